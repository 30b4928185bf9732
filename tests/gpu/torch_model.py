"""Llama and EAGLE-3's drafter in plain PyTorch, in any dtype, for the comparisons of this folder."""
import json
import math
import struct

import torch
import torch.nn.functional as F

# As infer/bench/shapes.c has them.
SHAPES = {
    "llama3-8b": dict(vocab=128256, d=4096, layers=32, heads=32, kv_heads=8, inter=14336, theta=500000.0),
    "llama3.2-1b": dict(vocab=128256, d=2048, layers=16, heads=32, kv_heads=8, inter=8192, theta=500000.0),
    "tiny": dict(vocab=600, d=64, layers=2, heads=4, kv_heads=2, inter=96, theta=10000.0),
}
EPS = 1e-5


def head_dim(s):
    return s["d"] // s["heads"]


def taps(layers):
    """Inputs of these layers; as pl_llama_default_taps."""
    if layers >= 7:
        want = [2, layers // 2, layers - 3]
    else:
        want = [(2 * layers + 3) // 6, (4 * layers + 3) // 6, layers]
    return list(dict.fromkeys(want))


def layer_shapes(s, prefix, width):
    d, hd = s["d"], head_dim(s)
    return {f"{prefix}self_attn.q_proj.weight": (s["heads"] * hd, width),
            f"{prefix}self_attn.k_proj.weight": (s["kv_heads"] * hd, width),
            f"{prefix}self_attn.v_proj.weight": (s["kv_heads"] * hd, width),
            f"{prefix}self_attn.o_proj.weight": (d, s["heads"] * hd),
            f"{prefix}mlp.gate_proj.weight": (s["inter"], d),
            f"{prefix}mlp.up_proj.weight": (s["inter"], d),
            f"{prefix}mlp.down_proj.weight": (d, s["inter"])}


def target_shapes(s):
    w = {"model.embed_tokens.weight": (s["vocab"], s["d"]), "model.norm.weight": (s["d"],),
         "lm_head.weight": (s["vocab"], s["d"])}
    for i in range(s["layers"]):
        p = f"model.layers.{i}."
        w |= layer_shapes(s, p, s["d"])
        w |= {f"{p}input_layernorm.weight": (s["d"],), f"{p}post_attention_layernorm.weight": (s["d"],)}
    return w


def drafter_shapes(s, draft_vocab=None, rank=0):
    d = s["d"]
    w = {"fc.weight": (d, len(taps(s["layers"])) * d)} | layer_shapes(s, "midlayer.", 2 * d)
    w |= {f"midlayer.{n}.weight": (d,) for n in ("hidden_norm", "input_layernorm", "post_attention_layernorm")}
    w["norm.weight"] = (d,)
    if rank:
        return w | {"efficient_lm_head.weight": (s["vocab"], rank), "efficient_lm_head_down_proj.weight": (rank, d)}
    return w | {"lm_head.weight": (draft_vocab or s["vocab"], d)}


def random_weights(shapes, device, seed):
    """Matrices of variance 1 / columns, norms around 1; all of them values of bf16."""
    g = torch.Generator(device=device).manual_seed(seed)
    out = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            w = 1 + 0.1 * torch.randn(shape, generator=g, device=device)
        else:
            w = torch.randn(shape, generator=g, device=device) / math.sqrt(shape[1])
            if "embed" in name:
                w = w * math.sqrt(shape[1])
        out[name] = w.to(torch.bfloat16)
    return out


def rms_norm(x, g):
    """In at least float32, as every implementation has it; the result in the weights' type."""
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPS)).to(x.dtype) * g


def rotary(s, positions, dtype):
    hd = head_dim(s)
    freq = s["theta"] ** (-torch.arange(0, hd, 2, dtype=torch.float64, device=positions.device) / hd)
    angle = torch.cat([positions.double()[:, None] * freq] * 2, -1)
    return angle.cos().to(dtype)[:, None], angle.sin().to(dtype)[:, None]


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def attention(s, w, prefix, x, cos, sin, keys, values):
    """x [M, width] after the M rows whose keys and values [n, kv heads, hd] are given; returns those with x's own."""
    hd, m = head_dim(s), x.shape[0]
    q, k, v = (F.linear(x, w[f"{prefix}self_attn.{p}_proj.weight"]).view(m, -1, hd) for p in "qkv")
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    if keys is not None:
        k, v = torch.cat((keys, k)), torch.cat((values, v))
    n, group = k.shape[0], s["heads"] // s["kv_heads"]
    scores = torch.einsum("mhd,nhd->hmn", q, k.repeat_interleave(group, 1)) / math.sqrt(hd)
    at = torch.arange(n, device=x.device)
    scores = scores.masked_fill(at[None, None, :] > at[n - m:, None], -math.inf)
    p = torch.softmax(scores.to(torch.promote_types(x.dtype, torch.float32)), -1).to(x.dtype)
    o = torch.einsum("hmn,nhd->mhd", p, v.repeat_interleave(group, 1)).reshape(m, -1)
    return F.linear(o, w[f"{prefix}self_attn.o_proj.weight"]), k, v


def mlp(w, prefix, x):
    gate, up, down = (w[f"{prefix}mlp.{p}_proj.weight"] for p in ("gate", "up", "down"))
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


@torch.no_grad()
def target_forward(s, w, ids):
    """Logits [n, V] and the features that EAGLE-3 takes, rounded to bf16 as every dataset holds them."""
    h = w["model.embed_tokens.weight"][ids]
    cos, sin = rotary(s, torch.arange(len(ids), device=h.device), h.dtype)
    want, seen = taps(s["layers"]), {}
    for i in range(s["layers"]):
        p = f"model.layers.{i}."
        seen[i] = h
        o, _, _ = attention(s, w, p, rms_norm(h, w[f"{p}input_layernorm.weight"]), cos, sin, None, None)
        h = h + o
        h = h + mlp(w, p, rms_norm(h, w[f"{p}post_attention_layernorm.weight"]))
    seen[s["layers"]] = h
    features = torch.cat([seen[t] for t in want], -1).to(torch.bfloat16).to(h.dtype)
    return F.linear(rms_norm(h, w["model.norm.weight"]), w["lm_head.weight"]), features


@torch.no_grad()
def drafter_forward(s, w, embed, ids, features, steps):
    """Logits of the rows taken in [n, V] and of the steps after them [steps - 1, V]."""
    n, keys, values, out = features.shape[0], None, None, []
    hidden = F.linear(features, w["fc.weight"])
    for k in range(steps):
        first, m = (0, n) if k == 0 else (n + k - 1, 1)
        cos, sin = rotary(s, torch.arange(first, first + m, device=hidden.device), hidden.dtype)
        x = torch.cat((rms_norm(embed[ids[first + 1:first + 1 + m]], w["midlayer.input_layernorm.weight"]),
                       rms_norm(hidden, w["midlayer.hidden_norm.weight"])), -1)
        o, keys, values = attention(s, w, "midlayer.", x, cos, sin, keys, values)
        h = hidden + o
        h = h + mlp(w, "midlayer.", rms_norm(h, w["midlayer.post_attention_layernorm.weight"]))
        out.append(F.linear(rms_norm(h, w["norm.weight"]), w["lm_head.weight"]))
        hidden = h[-1:]
    return out[0], torch.cat(out[1:]) if steps > 1 else out[0][:0]


# ---- files ----

def write_safetensors(path, weights):
    at, header, parts = 0, {}, []
    for name, w in weights.items():
        data = w.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(w.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for data in parts:
            f.write(data)


def write_model(folder, s, weights, positions, drafter=False):
    folder.mkdir(parents=True)
    config = {"architectures": ["LlamaForCausalLMEagle3" if drafter else "LlamaForCausalLM"], "model_type": "llama",
              "hidden_size": s["d"], "intermediate_size": s["inter"],
              "num_hidden_layers": 1 if drafter else s["layers"], "num_attention_heads": s["heads"],
              "num_key_value_heads": s["kv_heads"], "head_dim": head_dim(s), "vocab_size": s["vocab"],
              "max_position_embeddings": positions, "hidden_act": "silu", "rms_norm_eps": EPS,
              "rope_theta": s["theta"], "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    if drafter:
        config |= {"draft_vocab_size": s["vocab"], "target_hidden_size": s["d"],
                   "eagle_config": {"use_aux_hidden_state": True,
                                    "eagle_aux_hidden_state_layer_ids": taps(s["layers"])},
                   "paceline": {"tap_numbering": "input"}}
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", weights)
