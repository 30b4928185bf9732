#!/usr/bin/env python3
"""Writes the *.golden files of this folder: what PyTorch and transformers compute for small models, in double.

  llama_default, _llama3, _yarn transformers' LlamaForCausalLM: hidden states, logits, loss, gradients
  qwen2, qwen3                  the same of Qwen2ForCausalLM, Qwen3ForCausalLM
  mistral, qwen2_window,        the same of MistralForCausalLM and so on, on texts longer than their windows; logits of
  phi3, phi3_short              a tree's nodes, each as the end of a text of its own; texts continued greedily
  gemma2, gemma2_tied, gemma3,  the same without gradients
  mixtral, qwen3_moe,
  qwen3_moe_step, gpt_oss,
  gpt_oss_mxfp4                 (experts' weights in MXFP4, read by transformers' own function)
  eagle3                        EAGLE-3's drafter (arXiv 2503.01840) and its training-time test, written here from the
                                paper with one whole attention mask per step; gradients of the drafter
  eagle1                        EAGLE-1's drafter and loss (arXiv 2401.15077) over the steps of a training-time test
  specvocab                     SpecVocab's head (arXiv 2602.13836) on rows: candidates and the law over them
  objectives                    the divergence engine's objectives on rows of logits: values, acceptance, gradients
  router                        scores, losses and gradients of routers over clusters: DynaSpec's MLP, CORAL's
  pretrain_untied, _tied        AdamW steps of a LlamaForCausalLM on bf16 copies of master weights

Needs: pip install torch==2.15.0 transformers==5.23.0 numpy. Run from anywhere; it writes beside itself.

A file, little-endian: "PLGOLD01"; u32 n and n bytes of text (the versions it was made with); u32 number of entries; an
entry: u32 n and n bytes of name, u32 type (0 float64, 1 int32, 2 bytes), u32 rank, u32 per dimension, float64 root
mean square and float64 maximum of PyTorch's error in float32 in the worst of ORDERS orders of summation (0: none), the
data row-major.

Weights and inputs are not stored: they are a hash of their name (see `bits`) that a reader computes as well; nearly all
of them are exact in bf16. A matrix's gradient G is stored as G s and s' G with vectors of signs s and s' of hashes: as
good as all of G for telling whether another G is the same, at a fraction of its size."""
import contextlib
import json
import math
import pathlib
import struct
import sys
import tempfile
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = pathlib.Path(__file__).resolve().parent
torch.set_num_threads(1)
torch.manual_seed(0)  # of no consequence: every parameter is overwritten
transformers.logging.set_verbosity_error()


# ---- numbers from names ----

def bits(name, n):
    """n 64-bit words: SplitMix64 started at the FNV-1a hash of the name."""
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = (h ^ c) * 0x100000001B3 % 2**64
    z = np.uint64(h) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def coarse(name, n, log2):
    """Odd multiples of 2^-log2 up to +-255: exact in bf16, standard deviation 148 2^-log2."""
    return ((bits(name, n) >> np.uint64(56)).astype(np.float64) * 2 - 255) * 2.0**-log2


def fine(name, n, log2):
    """Odd multiples of 2^-log2 up to +-(2^23 - 1): exact in float32, not in bf16."""
    return ((bits(name, n) >> np.uint64(41)).astype(np.float64) * 2 - (2**23 - 1)) * 2.0**-log2


def norm_weights(name, n):
    """Multiples of 1/128 in [0.75, 1.25)."""
    return ((bits(name, n) >> np.uint64(58)).astype(np.float64) + 96) / 128


def signs(name, n):
    return 1 - 2 * (bits(name, n) >> np.uint64(63)).astype(np.float64)


def weight(model, name, shape):
    """The weight `name` of a model (a prefix that keeps models apart)."""
    key, n = f"{model}/{name}", math.prod(shape)
    v = norm_weights(key, n) if len(shape) == 1 else coarse(key, n, 8 if "embed" in name else 10)
    return torch.from_numpy(v.reshape(shape))


def packed(model, name, rows, cols):
    """A matrix in MXFP4: bytes of two values, and scales."""
    pairs = (bits(f"{model}/{name}/blocks", rows * cols // 2) >> np.uint64(56)).astype(np.uint8)
    scales = (bits(f"{model}/{name}/scales", rows * cols // 32) >> np.uint64(56)).astype(np.uint8) % 4 + 121
    return (torch.from_numpy(pairs.reshape(rows, cols // 32, 16)), torch.from_numpy(scales.reshape(rows, cols // 32)))


def parameter(config, values, name, shape):
    """A model's parameter, where one holds all of a layer's experts made of theirs."""
    if ".experts." not in name:
        return values(name.replace(".mlp.router.", ".mlp.gate."), shape)
    layer, of = name.split(".experts.")
    oss = config.model_type == "gpt_oss"  # transposed, gate and up in turns

    def two(e, what, *shape):
        pair = [values(f"{layer}.experts.{e}.{p}_proj.{what}", shape) for p in ("gate", "up")]
        return torch.stack(pair, 1).reshape(-1, *shape[1:]) if oss else torch.cat(pair)

    def one(e):
        if of == "gate_up_proj":
            return two(e, "weight", shape[2] // 2, shape[1]).T if oss else two(e, "weight", shape[1] // 2, shape[2])
        if of == "gate_up_proj_bias":
            return two(e, "bias", shape[1] // 2)
        if of == "down_proj_bias":
            return values(f"{layer}.experts.{e}.down_proj.bias", shape[1:])
        w = values(f"{layer}.experts.{e}.down_proj.weight", (shape[2], shape[1]) if oss else shape[1:])
        return w.T if oss else w

    def mxfp4(rows, cols):
        """What transformers reads from blocks and scales."""
        both = []
        for e in range(shape[0]):
            if of == "down_proj":
                both.append(packed("llama", f"{layer}.experts.{e}.down_proj.weight", rows, cols))
            else:
                g, u = (packed("llama", f"{layer}.experts.{e}.{p}_proj.weight", rows // 2, cols) for p in ("gate", "up"))
                both.append(tuple(torch.stack(t, 1).reshape(rows, *t[0].shape[1:]) for t in zip(g, u)))
        blocks, scales = (torch.stack(t) for t in zip(*both))
        return convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)

    if getattr(config, "packed", False) and len(shape) == 3:
        return mxfp4(shape[2], shape[1]).double()
    return torch.stack([one(e) for e in range(shape[0])])


# ---- files ----

class Golden:
    def __init__(self, limit=1e-5):
        self.entries, self.limit = {}, limit  # limit: of float32's error relative to the largest value

    def put(self, name, truth, singles=()):
        """truth: float64 or int32 or bytes. singles: the same computed in float32, once or more often."""
        if isinstance(truth, bytes):
            truth = np.frombuffer(truth, dtype=np.uint8)
        truth = np.asarray(truth)
        rms = most = 0.0
        if singles:
            e = np.abs(np.stack(singles).astype(np.float64) - truth)
            rms = max(float(np.sqrt(np.mean(one**2))) for one in e)
            most = float(e.max())
            size = np.abs(truth).max()
            assert 0 < most < self.limit * size, f"{name}: float32 is {most} off of {size}: not the same computation"
        assert name not in self.entries and truth.dtype in (np.float64, np.int32, np.uint8), (name, truth.dtype)
        self.entries[name] = (truth, rms, most)

    def put_tensors(self, name, tensors):
        """The first is double, the others are float32."""
        truth, *singles = (t.detach().numpy() for t in tensors)
        self.put(name, truth, singles)

    def put_matrices(self, name, tensors):
        """Sums of rows and of columns under signs; vectors as they are."""
        if tensors[0].dim() == 1:
            return self.put_tensors(name, tensors)
        truth, *singles = (t.detach().numpy().astype(np.float64) for t in tensors)
        right, left = signs(name + "/rows", truth.shape[1]), signs(name + "/cols", truth.shape[0])
        self.put(name + "/rows", truth @ right, [s @ right for s in singles])
        self.put(name + "/cols", left @ truth, [left @ s for s in singles])

    def write(self, name):
        made = (f"torch {torch.__version__}, transformers {transformers.__version__}, numpy {np.__version__}, "
                f"python {sys.version.split()[0]}; tests/golden/make_golden.py\n").encode()
        out = [b"PLGOLD01", struct.pack("<I", len(made)), made, struct.pack("<I", len(self.entries))]
        for key, (a, rms, most) in self.entries.items():
            kind = {"float64": 0, "int32": 1, "uint8": 2}[str(a.dtype)]
            out += [struct.pack("<I", len(key)), key.encode(), struct.pack("<II", kind, a.ndim),
                    struct.pack(f"<{a.ndim}I", *a.shape), struct.pack("<dd", rms, most),
                    np.ascontiguousarray(a).astype(a.dtype.newbyteorder("<")).tobytes()]
        data = b"".join(out)
        (HERE / f"{name}.golden").write_bytes(data)
        worst = max((e[2] / np.abs(e[0]).max() for e in self.entries.values() if e[2]), default=0)
        print(f"{name}: {len(self.entries)} entries, {len(data)} bytes, float32 off by at most {worst:.1e}")


def int32(values):
    return np.asarray(values, dtype=np.int32)


ORDERS = 24


@contextlib.contextmanager
def summing_in(order):
    """Products of matrices sum in another order, and so round otherwise. One run's error in float32 is one draw from
    what float32 makes of these numbers, and a bound should not hang on the luck of one draw."""
    linear, calls = F.linear, iter(range(10**6))

    def permuted(x, w, bias=None):
        p = torch.from_numpy(np.argsort(bits(f"order/{order}/{next(calls)}", w.shape[1])))
        return linear(x[..., p], w[:, p], bias)

    with mock.patch.object(F, "linear", permuted if order else linear):
        yield


def in_all_precisions(fn, *args):
    """fn's results in double, then in float32 once for each order."""
    out = [fn(torch.float64, *args)]
    for order in range(ORDERS):
        with summing_in(order):
            out.append(fn(torch.float32, *args))
    return list(zip(*out))


# ---- transformers' Llama ----

@contextlib.contextmanager
def computing_in(dtype):
    """transformers computes norms, rotary angles and softmax in torch.float32 by name; in double it means double."""
    with contextlib.ExitStack() as stack:
        if dtype == torch.float64:
            stack.enter_context(mock.patch.multiple(torch, float=torch.float64, float32=torch.float64))
            stack.enter_context(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        yield


def family_config(family, rope, tie=False, **sizes):
    packed = sizes.pop("packed", False)
    kind = "Gemma3Text" if family == "Gemma3" else family
    act = {} if family.startswith("Gemma") else {"hidden_act": "silu"}
    config = getattr(transformers, kind + "Config")(rms_norm_eps=1e-5, tie_word_embeddings=tie, rope_parameters=rope,
                                                  attn_implementation="eager", bos_token_id=1, eos_token_id=2,
                                                  pad_token_id=None, architectures=[family + "ForCausalLM"], **act,
                                                  **sizes)
    config._experts_implementation = "eager"
    if packed:
        config.packed = True
    return config


def llama_config(rope, tie=False, **sizes):
    return family_config("Llama", rope, tie, **sizes)


def config_json(config):
    """config.json as transformers writes it."""
    with tempfile.TemporaryDirectory() as d:
        config.save_pretrained(d)
        text = (pathlib.Path(d) / "config.json").read_bytes()
    assert json.loads(text)["architectures"] == config.architectures
    return text


def llama_model(config, dtype, values):
    model = getattr(transformers, config.architectures[0])(config).to(dtype).train()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(parameter(config, values, name, tuple(p.shape)).to(dtype))
    return model


SMALL = dict(vocab_size=97, hidden_size=48, intermediate_size=40, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=64)


def llama_run(dtype, config, windows):
    """Windows of tokens, each one more than it has rows: hidden states, logits; summed loss, its gradients."""
    with computing_in(dtype):
        model = llama_model(config, dtype, lambda name, shape: weight("llama", name, shape))
        rows = {f"hidden/{i}": [] for i in range(1, config.num_hidden_layers + 1)}
        rows |= {"hidden/final": [], "logits": []}
        last = []  # the last layer's output: transformers' last hidden_states is behind the final norm
        model.model.layers[-1].register_forward_hook(lambda m, i, o: last.append(o[0] if isinstance(o, tuple) else o))
        total = 0
        for w in windows:
            ids = torch.tensor(w)
            r = model(ids[None, :-1], output_hidden_states=True, use_cache=False)
            for i in range(1, config.num_hidden_layers):
                rows[f"hidden/{i}"].append(r.hidden_states[i][0])
            rows[f"hidden/{config.num_hidden_layers}"].append(last[-1].reshape(len(w) - 1, -1))
            rows["hidden/final"].append(r.hidden_states[-1][0])
            rows["logits"].append(r.logits[0])
            total = total + F.cross_entropy(r.logits[0], ids[1:], reduction="sum")
        assert rows["logits"][0].dtype == dtype
        total.backward()
    out = {k: torch.cat(v) for k, v in rows.items()} | {"total": total.reshape(1)}
    freq = getattr(model.model.rotary_emb, "inv_freq", None)
    return out, {n: p.grad for n, p in model.named_parameters()}, freq


def rope_tables(g, config):
    """Llama 3.1's own constants: transformers' frequencies in double, and the table they give."""
    with computing_in(torch.float64):
        freq = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config).inv_freq.numpy()
    assert freq.dtype == np.float64
    at = np.array([1, 1000, 4095])
    g.put("rope31/positions", int32(at))
    g.put("rope31/cos", np.cos(at[:, None] * freq))
    g.put("rope31/sin", np.sin(at[:, None] * freq))


TREE = dict(context=20, parent=[-1, 0, 0, 1, 1, 2, 5])
GREEDY = 200


def tree_run(dtype, config, context, tokens):
    """Logits after each node of a tree: each as the last of its own text."""
    rows = []
    with computing_in(dtype), torch.no_grad():
        model = llama_model(config, dtype, lambda name, shape: weight("llama", name, shape))
        for node in range(len(tokens)):
            path = []
            while node >= 0:
                path.insert(0, tokens[node])
                node = TREE["parent"][node]
            rows.append(model(torch.tensor([context + path])).logits[0, -1])
    return ({"tree/logits": torch.stack(rows)},)


def greedy_text(config, prompt):
    """What the model says in double, and the least distance of a choice from the next best."""
    text, least = list(prompt), math.inf
    with computing_in(torch.float64), torch.no_grad():
        model = llama_model(config, torch.float64, lambda name, shape: weight("llama", name, shape))
        for _ in range(GREEDY):
            z = model(torch.tensor([text])).logits[0, -1]
            best = torch.topk(z, 2)
            least = min(least, float(best.values[0] - best.values[1]))
            text.append(int(best.indices[0]))
    return text, least


def beyond_prefill(g, name, config, window):
    """A tree behind a context, and the first of some prompts whose greedy text varies and is never a near tie."""
    tokens = (bits(f"{name}/tree", len(TREE["parent"])) % np.uint64(97)).astype(int).tolist()
    context = window[:TREE["context"]]
    runs = in_all_precisions(tree_run, config, context, tokens)[0]
    g.put("tree/context", int32(context))
    g.put("tree/tokens", int32(tokens))
    g.put("tree/parent", int32(TREE["parent"]))
    g.put_tensors("tree/logits", [r["tree/logits"] for r in runs])
    for i in range(200):
        prompt = (bits(f"{name}/prompt/{i}", TREE["context"]) % np.uint64(97)).astype(int).tolist()
        text, least = greedy_text(config, prompt)
        if len(set(text[len(prompt):])) >= 8 and least > 2e-3:
            break
    else:
        raise AssertionError(f"{name}: no prompt will do")
    print(f"{name}: {len(set(text[len(prompt):]))} different tokens of {GREEDY}, never nearer than {least:.1e}")
    g.put("greedy/prompt", int32(prompt))
    g.put("greedy/text", int32(text))


NEAR = 0.01


def least_choice(config, window):
    """Over rows and layers, how far the last expert chosen is above the best one that is not."""
    least = []
    with computing_in(torch.float64), torch.no_grad():
        model = llama_model(config, torch.float64, lambda name, shape: weight("llama", name, shape))
        for n, module in model.named_modules():
            if n.endswith((".mlp.gate", ".mlp.router")):
                module.register_forward_hook(lambda m, i, o: least.append(o[0].reshape(-1, o[0].shape[-1])))
        model(torch.tensor([window[:-1]]))
    k = config.num_experts_per_tok
    best = [torch.topk(z, k + 1).values for z in least]
    return min(float((z[:, k - 1] - z[:, k]).min()) for z in best)


def clear_window(name, config, n):
    """The first text on which the choice of experts is the same in bf16."""
    for i in range(2000):
        window = (bits(f"{name}/tokens/0/{i}", n + 1) % np.uint64(97)).astype(int).tolist()
        least = least_choice(config, window)
        if least > NEAR:
            print(f"{name}: text {i}, experts never chosen by less than {least:.1e}")
            return window
    raise AssertionError(f"{name}: no text will do")


def llama_case(name, rope, lengths, family="Llama", tie=False, learned=True, beyond=False, **sizes):
    config, g = family_config(family, rope, tie, **(SMALL | sizes)), Golden()
    windows = [(bits(f"{name}/tokens/{i}", n + 1) % np.uint64(97)).astype(int).tolist() for i, n in enumerate(lengths)]
    if hasattr(config, "num_experts_per_tok"):
        windows = [clear_window(name, config, n) for n in lengths]
    out, grad, freq = in_all_precisions(llama_run, config, windows)
    if freq[0] is not None:
        assert torch.allclose(freq[0], freq[1].double(), rtol=1e-6, atol=0)
        assert not torch.equal(freq[0], freq[1].double())
    g.put("config.json", config_json(config))
    for i, w in enumerate(windows):
        g.put(f"window/{i}", int32(w))
    for k in out[0]:
        g.put_tensors(k, [o[k] for o in out])
    for k in grad[0]:
        if learned:
            g.put_matrices(f"grad/{k}", [o[k] for o in grad])
    if beyond:
        beyond_prefill(g, name, config, windows[0])
    if rope.get("rope_type") == "llama3":
        rope_tables(g, llama_config(dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=8192),
                                    hidden_size=4096, num_attention_heads=32, head_dim=128,
                                    max_position_embeddings=131072))
    g.write(name)


# ---- EAGLE-3 from the paper ----

STEPS, TAPS, D, V, VD, RANK, NH, NKV, HD = 3, 3, 48, 97, 41, 12, 6, 2, 8
EPS, THETA, DECAY = 1e-5, 10000.0, 0.8

DRAFTER = {
    "fc.weight": (D, TAPS * D),
    "midlayer.self_attn.q_proj.weight": (NH * HD, 2 * D),
    "midlayer.self_attn.k_proj.weight": (NKV * HD, 2 * D),
    "midlayer.self_attn.v_proj.weight": (NKV * HD, 2 * D),
    "midlayer.self_attn.o_proj.weight": (D, NH * HD),
    "midlayer.mlp.gate_proj.weight": (40, D),
    "midlayer.mlp.up_proj.weight": (40, D),
    "midlayer.mlp.down_proj.weight": (D, 40),
    "midlayer.hidden_norm.weight": (D,),
    "midlayer.input_layernorm.weight": (D,),
    "midlayer.post_attention_layernorm.weight": (D,),
    "norm.weight": (D,),
}
HEADS = {
    "full": {"lm_head.weight": (V, D)},
    "lowrank": {"efficient_lm_head.weight": (V, RANK), "efficient_lm_head_down_proj.weight": (RANK, D)},
}


def rms_norm(x, g):
    return g * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS))


def rotate(x, positions):
    """[S, heads, HD] at these positions; halves are pairs."""
    freq = THETA ** (-torch.arange(0, HD, 2, dtype=torch.float64) / HD)
    angle = positions.double()[:, None] * freq
    cos, sin = (torch.cat((f(angle), f(angle)), -1)[:, None, :].to(x.dtype) for f in (torch.cos, torch.sin))
    return x * cos + torch.cat((-x[..., HD // 2:], x[..., :HD // 2]), -1) * sin


def documents():
    """Two documents: the first begins with a prompt of 3 tokens, the second has answers with a gap."""
    head = weight("target", "lm_head.weight", (V, D))
    docs = []
    for i, n in enumerate((9, 6)):
        tokens = (bits(f"eagle3/doc/{i}/tokens", n) % np.uint64(V)).astype(int)
        features = torch.from_numpy(coarse(f"eagle3/doc/{i}/features", n * TAPS * D, 7).reshape(n, TAPS * D))
        last = torch.from_numpy(coarse(f"eagle3/doc/{i}/last", n * D, 7).reshape(n, D))
        mask = [int(t >= 3) for t in range(n)] if i == 0 else [1, 1, 1, 0, 1, 1]
        docs.append(dict(n=n, tokens=tokens, mask=mask, features=features, last=last,
                         argmax=(last @ head.T).argmax(-1).numpy()))
    return docs


def rows_of(docs, drafted):
    """Per step and row: the token consumed (-1: none), the row of the teacher (-1: does not count), the weight."""
    token, teacher, weights, first = [[] for _ in range(STEPS)], [[] for _ in range(STEPS)], [], 0
    for k in range(STEPS):
        weights.append([])
        first = 0
        for d in docs:
            for t in range(d["n"]):
                consumed, predicted = t + 1 + k, t + 2 + k
                counts = consumed < d["n"]  # the teacher has read the consumed token: its distribution is of the next
                counts = counts and d["mask"][min(predicted, d["n"] - 1)] == 1
                counts = counts and int(d["argmax"][consumed]) in drafted
                token[k].append(int(d["tokens"][consumed]) if consumed < d["n"] else -1)
                teacher[k].append(first + consumed if counts else -1)
                weights[k].append(float(np.float32(DECAY**k)) if counts else 0.0)
            first += d["n"]
    return int32(token), int32(teacher), np.array(weights)


def drafter_weights(dtype, head, d2t):
    w = {}
    for name, shape in (DRAFTER | HEADS[head]).items():
        values = weight("drafter", name, shape)
        if d2t is not None and shape[0] == V:
            values = values[d2t]
        w[name] = values.to(dtype).clone().requires_grad_()
    return w


def eagle3_run(dtype, docs, head, d2t):
    w = drafter_weights(dtype, head, d2t)
    embed, target = (weight("target", n, (V, D)).to(dtype) for n in ("model.embed_tokens.weight", "lm_head.weight"))
    ids = list(range(V)) if d2t is None else d2t
    token, teacher, weights = rows_of(docs, set(ids))
    features, last = (torch.cat([d[k] for d in docs]).to(dtype) for k in ("features", "last"))
    doc = torch.cat([torch.full((d["n"],), i) for i, d in enumerate(docs)])
    position = torch.cat([torch.arange(d["n"]) for d in docs])
    S, scale = len(doc), 1 / math.sqrt(HD)
    causal = (doc[:, None] == doc[None, :]) & (torch.arange(S)[:, None] >= torch.arange(S)[None, :])
    own = torch.eye(S, dtype=torch.bool)
    full_teacher = F.linear(last, target)

    out, keys, values, total = {}, [], [], 0
    hidden = F.linear(features, w["fc.weight"])
    out["fused"] = hidden
    losses, accepts, best = [], [], []
    for k in range(STEPS):
        x = torch.zeros(S, D, dtype=dtype)
        there = torch.from_numpy(token[k] >= 0)
        x[there] = embed[torch.from_numpy(token[k]).long()[there]]
        a = torch.cat((rms_norm(x, w["midlayer.input_layernorm.weight"]),
                       rms_norm(hidden, w["midlayer.hidden_norm.weight"])), -1)
        q, key, value = (F.linear(a, w[f"midlayer.self_attn.{p}_proj.weight"]) for p in "qkv")
        q, key, value = (y.view(S, -1, HD) for y in (q, key, value))
        q = rotate(q, position + k)
        keys.append(rotate(key, position + k))
        values.append(value)
        all_keys = torch.cat(keys).repeat_interleave(NH // NKV, 1)  # [(k + 1) S, NH, HD]
        all_values = torch.cat(values).repeat_interleave(NH // NKV, 1)
        mask = torch.cat([causal] + [own] * k, 1)  # [S, (k + 1) S]
        scores = torch.einsum("shd,thd->hst", q, all_keys) * scale
        p = torch.softmax(scores.masked_fill(~mask, -math.inf), -1)
        o = torch.einsum("hst,thd->shd", p, all_values).reshape(S, NH * HD)
        h = hidden + F.linear(o, w["midlayer.self_attn.o_proj.weight"])
        z = rms_norm(h, w["midlayer.post_attention_layernorm.weight"])
        gate, up = (F.linear(z, w[f"midlayer.mlp.{p}_proj.weight"]) for p in ("gate", "up"))
        hidden = h + F.linear(F.silu(gate) * up, w["midlayer.mlp.down_proj.weight"])
        y = rms_norm(hidden, w["norm.weight"])
        if head == "full":
            logits = F.linear(y, w["lm_head.weight"])
        else:
            logits = F.linear(F.linear(y, w["efficient_lm_head_down_proj.weight"]), w["efficient_lm_head.weight"])
        out[f"hidden/{k}"], out[f"logits/{k}"] = hidden, logits

        log_q = torch.log_softmax(logits, -1)
        loss, accept = torch.zeros(S, dtype=dtype), torch.zeros(S, dtype=dtype)
        for t in range(S):
            if teacher[k][t] < 0:
                continue
            z = full_teacher[teacher[k][t]]
            log_p = torch.log_softmax(z[ids], -1)  # renormalised over the draft ids
            loss[t] = (log_p.exp() * (log_p - log_q[t])).sum()
            accept[t] = torch.minimum(torch.softmax(z, -1)[ids], log_q[t].exp()).sum()
            total = total + float(weights[k][t]) * loss[t]
        losses.append(loss)
        accepts.append(accept)
        best.append(np.where(teacher[k] >= 0, logits.argmax(-1).numpy(), -1))
    out["loss"], out["accept"], out["total"] = torch.stack(losses), torch.stack(accepts), total.reshape(1)
    total.backward()
    return out, {n: p.grad for n, p in w.items()}, int32(best)


def eagle3_case():
    g, docs = Golden(), documents()
    config = llama_config(dict(rope_type="default", rope_theta=THETA), **SMALL)
    d2t = sorted(np.argsort(bits("eagle3/d2t", V))[:VD].tolist())
    g.put("config.json", config_json(config))  # of the target
    g.put("d2t", int32(d2t))
    for i, d in enumerate(docs):
        for k in ("tokens", "mask", "argmax"):
            g.put(f"doc/{i}/{k}", int32(d[k]))
    shared = None
    for head in HEADS:
        for vocab, ids in (("all", None), ("trimmed", d2t)):
            token, teacher, weights = rows_of(docs, set(range(V)) if ids is None else set(ids))
            out, grad, best = in_all_precisions(eagle3_run, docs, head, ids)
            assert all(np.array_equal(best[0], b) for b in best)
            g.put(f"{head}/{vocab}/teacher_row", teacher)
            g.put(f"{head}/{vocab}/weight", weights)
            g.put(f"{head}/{vocab}/student_argmax", best[0])
            for k in ("loss", "accept", "total"):
                g.put_tensors(f"{head}/{vocab}/{k}", [o[k] for o in out])
            for k in grad[0]:
                g.put_matrices(f"{head}/{vocab}/grad/{k}", [o[k] for o in grad])
            if ids is None:
                for k in range(STEPS):
                    g.put_tensors(f"{head}/logits/{k}", [o[f"logits/{k}"] for o in out])
            states = [f"hidden/{k}" for k in range(STEPS)]
            if shared is None:  # heads and vocabularies share all that stands below them
                shared = out[0]
                g.put("token", token)
                assert torch.equal(shared["fused"], out[1]["fused"].double())  # few bits: no sum of them is rounded
                g.put("fused", shared["fused"].detach().numpy())
                for k in states:
                    g.put_tensors(k, [o[k] for o in out])
            assert all(torch.equal(shared[k], out[0][k]) for k in states)
    g.write("eagle3")


# ---- EAGLE-1 from its authors' training ----

EAGLE1 = {
    "fc.weight": (D, 2 * D),
    "fc.bias": (D,),
    "layers.0.self_attn.q_proj.weight": (NH * HD, D),
    "layers.0.self_attn.k_proj.weight": (NKV * HD, D),
    "layers.0.self_attn.v_proj.weight": (NKV * HD, D),
    "layers.0.self_attn.o_proj.weight": (D, NH * HD),
    "layers.0.mlp.gate_proj.weight": (40, D),
    "layers.0.mlp.up_proj.weight": (40, D),
    "layers.0.mlp.down_proj.weight": (D, 40),
    "layers.0.post_attention_layernorm.weight": (D,),
}
FEATURE_WEIGHT, TOKEN_WEIGHT = 1.0, 0.1


def eagle1_run(dtype, docs, head):
    """Step 0 alone is EAGLE-1's training: SmoothL1 on the next feature and 0.1 of the cross-entropy with the target's
    distribution. head: "target", or the drafter's own "lowrank"."""
    own = HEADS["lowrank"] if head == "lowrank" else {}
    w = {n: weight("eagle1", n, shape).to(dtype).clone().requires_grad_() for n, shape in (EAGLE1 | own).items()}
    embed, target = (weight("target", n, (V, D)).to(dtype) for n in ("model.embed_tokens.weight", "lm_head.weight"))
    token, teacher, weights = rows_of(docs, set(range(V)))
    last = torch.cat([d["last"] for d in docs]).to(dtype)
    doc = torch.cat([torch.full((d["n"],), i) for i, d in enumerate(docs)])
    position = torch.cat([torch.arange(d["n"]) for d in docs])
    S = len(doc)
    causal = (doc[:, None] == doc[None, :]) & (torch.arange(S)[:, None] >= torch.arange(S)[None, :])
    log_p = torch.log_softmax(F.linear(last, target), -1)
    out, keys, values, total, hidden = {}, [], [], 0, last
    losses, features, best = [], [], []
    for k in range(STEPS):
        x = torch.zeros(S, D, dtype=dtype)
        there = torch.from_numpy(token[k] >= 0)
        x[there] = embed[torch.from_numpy(token[k]).long()[there]]
        h = F.linear(torch.cat((x, hidden), -1), w["fc.weight"], w["fc.bias"])
        q, key, value = (F.linear(h, w[f"layers.0.self_attn.{p}_proj.weight"]).view(S, -1, HD) for p in "qkv")
        q = rotate(q, position + k)
        keys.append(rotate(key, position + k))
        values.append(value)
        mask = torch.cat([causal] + [torch.eye(S, dtype=torch.bool)] * k, 1)
        scores = torch.einsum("shd,thd->hst", q, torch.cat(keys).repeat_interleave(NH // NKV, 1)) / math.sqrt(HD)
        p = torch.softmax(scores.masked_fill(~mask, -math.inf), -1)
        o = torch.einsum("hst,thd->shd", p, torch.cat(values).repeat_interleave(NH // NKV, 1)).reshape(S, NH * HD)
        h = h + F.linear(o, w["layers.0.self_attn.o_proj.weight"])
        z = rms_norm(h, w["layers.0.post_attention_layernorm.weight"])
        gate, up = (F.linear(z, w[f"layers.0.mlp.{p}_proj.weight"]) for p in ("gate", "up"))
        hidden = h + F.linear(F.silu(gate) * up, w["layers.0.mlp.down_proj.weight"])
        if head == "target":
            logits = F.linear(hidden, target)
        else:
            logits = F.linear(F.linear(hidden, w["efficient_lm_head_down_proj.weight"]), w["efficient_lm_head.weight"])
        out[f"hidden/{k}"], out[f"logits/{k}"] = hidden, logits
        log_q = torch.log_softmax(logits, -1)
        loss, feature = torch.zeros(S, dtype=dtype), torch.zeros(S, dtype=dtype)
        for t in range(S):
            r = teacher[k][t]
            if r < 0:
                continue
            cross_entropy = -(log_p[r].exp() * log_q[t]).sum()
            feature[t] = F.smooth_l1_loss(hidden[t], last[r], reduction="none").mean()
            loss[t] = (log_p[r].exp() * (log_p[r] - log_q[t])).sum()
            token_weight = float(np.float32(TOKEN_WEIGHT * float(weights[k][t])))  # weights of rows are float32
            total = total + token_weight * cross_entropy + FEATURE_WEIGHT * float(weights[k][t]) * feature[t]
        losses.append(loss)
        features.append(feature)
        best.append(np.where(teacher[k] >= 0, logits.argmax(-1).numpy(), -1))
    out["loss"], out["feature_loss"] = torch.stack(losses), torch.stack(features)
    total.backward()
    return out, {n: p.grad for n, p in w.items()}, int32(best)


def eagle1_case():
    g, docs = Golden(), documents()
    g.put("config.json", config_json(llama_config(dict(rope_type="default", rope_theta=THETA), **SMALL)))
    for i, d in enumerate(docs):
        for k in ("tokens", "mask", "argmax"):
            g.put(f"doc/{i}/{k}", int32(d[k]))
    for head in ("target", "lowrank"):
        out, grad, best = in_all_precisions(eagle1_run, docs, head)
        assert all(np.array_equal(best[0], b) for b in best)
        large = (out[0]["hidden/0"].detach() - torch.cat([d["last"] for d in docs])).abs() > 1
        assert 0.1 < large.double().mean() < 0.9  # both branches of SmoothL1
        g.put(f"{head}/student_argmax", best[0])
        for k in ("loss", "feature_loss", *(f"logits/{k}" for k in range(STEPS))):
            g.put_tensors(f"{head}/{k}", [o[k] for o in out])
        for k in grad[0]:
            g.put_matrices(f"{head}/grad/{k}", [o[k] for o in grad])
        if head == "target":
            for k in range(STEPS):
                g.put_tensors(f"hidden/{k}", [o[f"hidden/{k}"] for o in out])
    g.write("eagle1")


# ---- pretraining ----

def bf16(x):
    return x.float().bfloat16().to(x.dtype)


BETA1, BETA2, ADAM_EPS, WEIGHT_DECAY, LR, WARMUP, MIN_RATIO, UPDATES = 0.9, 0.95, 1e-8, 0.1, 0.01, 2, 0.1, 6


def rate(step):
    """Linear warm-up, then a cosine to MIN_RATIO of the top."""
    if step <= WARMUP:
        return LR * step / WARMUP
    t = (step - WARMUP) / (UPDATES - WARMUP)
    return LR * (MIN_RATIO + (1 - MIN_RATIO) * (1 + math.cos(math.pi * t)) / 2)


def pretrain_run(dtype, config, batches, clip, decay_embed):
    with computing_in(dtype):
        model = llama_model(config, dtype, lambda name, shape: torch.zeros(shape))
        params = dict(model.named_parameters())
        master = {n: torch.nn.Parameter(
            (torch.ones(p.shape) if p.dim() == 1 else
             torch.from_numpy(fine(f"pretrain/{n}", p.numel(), 26).reshape(p.shape))).to(dtype))
            for n, p in params.items()}
        decayed = [n for n, p in params.items() if p.dim() == 2 and (decay_embed or "embed" not in n)]
        assert 0 < len(decayed) < len(params)
        adam = torch.optim.AdamW([dict(params=[master[n] for n in decayed], weight_decay=WEIGHT_DECAY),
                                  dict(params=[p for n, p in master.items() if n not in decayed], weight_decay=0.0)],
                                 lr=LR, betas=(BETA1, BETA2), eps=ADAM_EPS, foreach=False)
        losses, norms = [], []
        for step in range(1, UPDATES + 1):
            with torch.no_grad():
                for n, p in params.items():
                    p.copy_(bf16(master[n]))
            model.zero_grad()
            ids = torch.tensor(batches[(step - 1) % len(batches)])
            logits = model(ids[:, :-1]).logits
            loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
            loss.backward()
            norm = torch.nn.utils.get_total_norm([p.grad for p in params.values()])
            for n, p in params.items():
                # torch's own clipping divides by norm + 1e-6, which would show in double.
                master[n].grad = p.grad * min(1.0, clip / norm.item())
            torch.nn.utils.clip_grads_with_norm_(params.values(), clip, norm)
            for n, p in params.items():
                assert torch.allclose(p.grad, master[n].grad, rtol=1e-4, atol=1e-9)
            for group in adam.param_groups:
                group["lr"] = rate(step)
            adam.step()
            losses.append(loss.detach())
            norms.append(norm.detach())
    return torch.stack(losses), torch.stack(norms), {n: p.detach() for n, p in master.items()}


def pretrain_case(name, tie, decay_embed, clip):
    sizes = dict(vocab_size=61, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=8, max_position_embeddings=32)
    config = llama_config(dict(rope_type="default", rope_theta=10000.0), tie=tie, **sizes)
    batches = [[(bits(f"pretrain/batch/{b}/{w}", 13) % np.uint64(61)).astype(int).tolist() for w in range(2)]
               for b in range(2)]
    loss, norm, master = in_all_precisions(pretrain_run, config, batches, clip, decay_embed)
    print(name, "losses", [f"{x:.3f}" for x in loss[0].tolist()], "norms", [f"{x:.3f}" for x in norm[0].tolist()])
    assert (norm[0] > clip).any() and (norm[0] < clip).any() and loss[0][-1] < loss[0][0] - 0.3
    g = Golden(limit=1e-3)  # a weight rounded to the other bf16 changes what follows
    g.put("config.json", config_json(config))
    g.put("batches", int32(batches))
    g.put("rates", np.array([rate(s) for s in range(1, UPDATES + 1)]))
    g.put("optimizer", np.array([BETA1, BETA2, ADAM_EPS, WEIGHT_DECAY, clip, LR, WARMUP, MIN_RATIO, UPDATES],
                                dtype=np.float64))
    g.put("decay_embed", int32([decay_embed]))
    g.put_tensors("loss", loss)
    g.put_tensors("norm", norm)
    for n in master[0]:
        g.put_matrices(f"master/{n}", [m[n] for m in master])
    g.write(name)


# ---- objectives ----

OBJECTIVE = dict(rows=8, teachers=5, ids=40, kept=17, width=6, teacher_width=5, beta=0.3, decay=3.0)
OBJECTIVES = ("kl", "ce", "hard-ce", "tv", "tvd++", "reverse-kl", "js", "lk-alpha", "lk-lambda")


def objective_rows(name, z, teacher, ids, unmasked):
    """What each row adds to the loss: (its value, what autograd differentiates).

    z: [n, Vd]; teacher: [n, V] logits. Laws over all V ids are written out where the objective is one of them."""
    log_full, log_q = torch.log_softmax(teacher, -1), torch.log_softmax(z, -1)
    log_p = log_full[:, ids] if unmasked else torch.log_softmax(teacher[:, ids], -1)
    p, q = log_p.exp(), log_q.exp()
    everywhere = torch.zeros_like(log_full)
    wide_q = everywhere.index_copy(1, torch.tensor(ids), q)
    wide_p = log_full.exp() if unmasked else everywhere.index_copy(1, torch.tensor(ids), p)
    kl, tv = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1), (wide_p - wide_q).abs().sum(-1) / 2
    alpha = torch.minimum(p, q).sum(-1)
    if name == "kl":
        return kl, kl
    if name == "ce":
        return (loss := -(p * log_q).sum(-1)), loss
    if name == "hard-ce":
        choice = (teacher if unmasked else torch.full_like(teacher, -math.inf).index_copy(
            1, torch.tensor(ids), teacher[:, ids])).argmax(-1)
        place = torch.tensor([ids.index(int(c)) if int(c) in ids else -100 for c in choice])
        return (loss := F.cross_entropy(z, place, ignore_index=-100, reduction="none")), loss
    if name == "tv":
        return tv, tv
    if name == "tvd++":  # the policy gradient of the reward's advantage, with its expectations under q written out
        reward = (p > q).to(z.dtype)
        mean = (q * reward).sum(-1, keepdim=True)
        deviation = (q * (reward - mean) ** 2).sum(-1, keepdim=True).sqrt()
        return tv, -((q * (reward - mean) / deviation).detach() * log_q).sum(-1)
    if name == "reverse-kl":
        return (loss := (q * (log_q - log_p)).sum(-1)), loss
    if name == "js":
        b = OBJECTIVE["beta"]
        mixture = b * wide_p + (1 - b) * wide_q
        part = [(torch.xlogy(x, x) - torch.xlogy(x, mixture)).sum(-1) for x in (wide_p, wide_q)]
        return (loss := b * part[0] + (1 - b) * part[1]), loss
    if name == "lk-alpha":
        return (loss := -alpha.log()), loss
    keep = torch.exp(-OBJECTIVE["decay"] * alpha.detach())
    return (loss := keep * kl + (1 - keep) * tv), loss


def objectives_run(dtype, name, ids, unmasked):
    o = OBJECTIVE
    made = {k: torch.from_numpy(coarse(f"objectives/{k}", math.prod(shape), log2).reshape(shape)).to(dtype)
            for k, shape, log2 in (("x", (o["rows"], o["width"]), 7), ("w", (o["ids"], o["width"]), 7),
                                   ("xt", (o["teachers"], o["teacher_width"]), 7),
                                   ("wt", (o["ids"], o["teacher_width"]), 7))}
    x, w = made["x"].clone().requires_grad_(), made["w"][ids].clone().requires_grad_()
    teacher = F.linear(made["xt"], made["wt"])[[i % o["teachers"] for i in range(o["rows"])]]
    z = F.linear(x, w)
    value, through = objective_rows(name, z, teacher, ids, unmasked)
    weight = torch.tensor([(1 + i % 4) / 4 for i in range(o["rows"])], dtype=dtype)
    (weight * through).sum().backward()
    accept = torch.minimum(torch.softmax(teacher, -1)[:, ids], torch.softmax(z, -1)).sum(-1)
    return value.detach(), accept.detach(), x.grad, w.grad


def objectives_case():
    g = Golden()
    kept = sorted(np.argsort(bits("objectives/d2t", OBJECTIVE["ids"]))[:OBJECTIVE["kept"]].tolist())
    g.put("d2t", int32(kept))
    for name in OBJECTIVES:
        for case, ids, unmasked in (("all", list(range(OBJECTIVE["ids"])), False), ("masked", kept, False),
                                    ("unmasked", kept, True)):
            loss, accept, dx, dw = in_all_precisions(objectives_run, name, ids, unmasked)
            g.put_tensors(f"{name}/{case}/loss", loss)
            if name == "kl":  # of the laws alone
                g.put_tensors(f"{case}/accept", accept)
            g.put_tensors(f"{name}/{case}/dx", dx)
            g.put_matrices(f"{name}/{case}/dw", dw)
    g.write("objectives")


# ---- SpecVocab's head ----

SPECVOCAB = dict(rows=7, width=24, rank=6, ids=97, candidates=13)


def specvocab_run(dtype):
    o = SPECVOCAB
    x, up, down, exact = (torch.from_numpy(coarse(f"specvocab/{k}", a * b, 9).reshape(a, b)).to(dtype)
                          for k, a, b in (("x", o["rows"], o["width"]), ("up", o["ids"], o["rank"]),
                                          ("down", o["rank"], o["width"]), ("exact", o["ids"], o["width"])))
    scores = F.linear(F.linear(x, down), up)
    ids = torch.topk(scores, o["candidates"], sorted=False).indices.sort(-1).values
    return ids, torch.log_softmax(F.linear(x, exact).gather(-1, ids), -1)


def specvocab_case():
    g = Golden()
    ids, law = in_all_precisions(specvocab_run)
    assert all(torch.equal(ids[0], other) for other in ids)
    g.put("candidates", int32(ids[0]))
    g.put_tensors("law", law)
    g.write("specvocab")


# ---- routers ----

ROUTER = dict(rows=9, d=12, width=7, clusters=11, eps=1e-6)


def router_run(dtype, kind):
    """Scores of a head's clusters: DynaSpec's MLP with binary cross-entropy, CORAL's with that of its softmax."""
    o = ROUTER
    rows, d, width, clusters = o["rows"], o["d"], o["width"] if kind == "mlp" else o["d"], o["clusters"]
    shapes = {"router.fc1.weight": (width, 2 * d if kind == "mlp" else d), "router.fc2.weight": (clusters, width)}
    if kind == "mlp":
        shapes |= {"router.embed_norm.weight": (d,), "router.hidden_norm.weight": (d,), "router.fc1.bias": (width,),
                   "router.fc2.bias": (clusters,)}
    w = {n: weight(f"router/{kind}", n, s).to(dtype).clone().requires_grad_() for n, s in shapes.items()}
    embed, hidden, output = (torch.from_numpy(coarse(f"router/{n}", rows * d, log2).reshape(rows, d)).to(dtype)
                             for n, log2 in (("embed", 12), ("hidden", 6), ("output", 7)))
    weights = torch.tensor([0.0 if i == 4 else (1 + i % 4) / 4 for i in range(rows)], dtype=dtype)
    held = torch.from_numpy((bits("router/labels", rows * clusters) % np.uint64(4) == 0).astype(np.float64)
                            .reshape(rows, clusters)).to(dtype)
    if kind == "mlp":
        norm = torch.nn.functional.rms_norm
        x = torch.cat((norm(embed, (d,), w["router.embed_norm.weight"], o["eps"]),
                       norm(hidden, (d,), w["router.hidden_norm.weight"], o["eps"])), -1)
        h = F.silu(F.linear(x, w["router.fc1.weight"], w["router.fc1.bias"]))
        z = F.linear(h, w["router.fc2.weight"], w["router.fc2.bias"])
        loss = F.binary_cross_entropy_with_logits(z, held, reduction="none").sum(-1)
    else:
        z = F.linear(F.silu(F.linear(output, w["router.fc1.weight"])) + output, w["router.fc2.weight"])
        shares = held / 8  # exact, and a row's sum is not 1: the engine's own formula
        loss = -(shares * torch.log_softmax(z, -1)).sum(-1)
    (weights * loss).sum().backward()
    return z.detach(), torch.where(weights > 0, loss, 0.0).detach(), {n: p.grad for n, p in w.items()}


def router_case():
    g = Golden()
    for kind in ("mlp", "coral"):
        z, loss, grad = in_all_precisions(router_run, kind)
        g.put_tensors(f"{kind}/scores", z)
        g.put_tensors(f"{kind}/loss", loss)
        for n in grad[0]:
            g.put_matrices(f"{kind}/grad/{n}", [one[n] for one in grad])
    g.put("labels", int32((bits("router/labels", ROUTER["rows"] * ROUTER["clusters"]) % np.uint64(4) == 0).astype(int)))
    g.write("router")


if __name__ == "__main__":
    llama_case("llama_default", dict(rope_type="default", rope_theta=10000.0), (9, 6))
    # Of the four frequencies one stays, one is blended, two are stretched.
    llama_case("llama_llama3", dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                                    high_freq_factor=4.0, original_max_position_embeddings=64), (16,))
    # One frequency stays, two are blended, one is stretched; cos and sin are by more than 1.
    llama_case("llama_yarn", dict(rope_type="yarn", rope_theta=500.0, factor=2.0, beta_fast=4.0, beta_slow=0.25,
                                  original_max_position_embeddings=64), (16,))
    default = dict(rope_type="default", rope_theta=10000.0)
    llama_case("qwen2", default, (9, 6), "Qwen2", head_dim=8, use_sliding_window=False)
    # Heads wider than their share of the hidden state, as Qwen3's small models have them; one matrix for both ends.
    llama_case("qwen3", default, (9, 6), "Qwen3", tie=True, head_dim=16, use_sliding_window=False)
    # Texts longer than windows; as far as 200 tokens behind a prompt.
    far = dict(max_position_embeddings=256, beyond=True)
    llama_case("mistral", default, (24,), "Mistral", sliding_window=6, **far)
    llama_case("qwen2_window", default, (24,), "Qwen2", head_dim=8, use_sliding_window=True, sliding_window=5,
               max_window_layers=1, **far)
    factors = dict(short_factor=[1.0, 1.5, 3.0], long_factor=[1.25, 4.0, 9.0], rope_theta=500.0,
                   partial_rotary_factor=0.75)
    # transformers takes the long factors for a text past the original length: all that is asked here is longer.
    llama_case("phi3", dict(rope_type="longrope", **factors), (24,), "Phi3", sliding_window=30,
               original_max_position_embeddings=16, **far)
    llama_case("phi3_short", dict(rope_type="longrope", factor=4.0, **factors), (9,), "Phi3",
               original_max_position_embeddings=256, max_position_embeddings=256)
    gemma2 = dict(family="Gemma2", learned=False, head_dim=16, sliding_window=5, query_pre_attn_scalar=12,
                  attn_logit_softcapping=3.0, final_logit_softcapping=8.0)
    # With one matrix for both ends random weights say one token again and again: their texts are told of two.
    llama_case("gemma2", default, (24,), **gemma2, **far)
    llama_case("gemma2_tied", default, (9,), tie=True, **gemma2)
    gemma3 = dict(full_attention=dict(rope_type="linear", rope_theta=5000.0, factor=4.0),
                  sliding_attention=dict(rope_type="default", rope_theta=100.0))
    llama_case("gemma3", gemma3, (24,), "Gemma3", learned=False, head_dim=16, sliding_window=5,
               query_pre_attn_scalar=12, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
               **far)
    llama_case("mixtral", default, (24,), "Mixtral", learned=False, sliding_window=6, num_local_experts=5,
               num_experts_per_tok=2, **far)
    moe = dict(family="Qwen3Moe", learned=False, moe_intermediate_size=24, num_experts=7, num_experts_per_tok=3)
    llama_case("qwen3_moe", default, (24,), norm_topk_prob=True, mlp_only_layers=[1], **moe, **far)
    llama_case("qwen3_moe_step", default, (9,), norm_topk_prob=False, decoder_sparse_step=2, use_sliding_window=True,
               sliding_window=5, **moe)
    oss = dict(rope_type="yarn", rope_theta=500.0, factor=2.0, beta_fast=4.0, beta_slow=0.25, truncate=False,
               original_max_position_embeddings=64)
    moe = dict(family="GptOss", learned=False, sliding_window=6, num_local_experts=5, num_experts_per_tok=2)
    llama_case("gpt_oss", oss, (24,), **moe, **far)
    llama_case("gpt_oss_mxfp4", oss, (9,), packed=True, hidden_size=64, intermediate_size=32, **(moe))
    eagle3_case()
    eagle1_case()
    specvocab_case()
    objectives_case()
    router_case()
    pretrain_case("pretrain_untied", False, False, 2.2)
    pretrain_case("pretrain_tied", True, True, 2.2)
