#!/usr/bin/env python3
"""GGUF files as targets beside transformers: tiny random models of each architecture, written by the gguf package in
several types, and the same values as Hugging Face folders. Development only.

    python tests/peers/check_gguf_target.py [--only NAME] [--golden tests/infer/gguf]

Greedily, `paceline decode --dtype fp32` continues ids on the file as transformers does on its values; without the option,
as on a folder that holds these in bf16. With --golden the small ones are written there with transformers' tokens. Needs: pip install torch transformers gguf numpy safetensors."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T, GGUFWriter
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
V, D, FF, LAYERS, HEADS, KV, HD, POSITIONS = 64, 32, 32, 2, 4, 2, 8, 512
PROMPT, NEW = [(7 * i * i + 3 * i) % V for i in range(20)], 24
HALVES = {T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0]}
SMALL = [T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.IQ4_NL, T.MXFP4, T.BF16, T.F16]
LARGE = [T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_XS]
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def packed(w, t, rng):
    """Bytes of a matrix (or stack) in a type, and its values."""
    if t in HALVES:  # types that the package only reads: random blocks, scaled to weights' size
        block, size = GGML_QUANT_SIZES[t]
        b = rng.integers(0, 256, (w.size // block, size), dtype=np.uint8)
        one = np.full(len(b), 1, np.float16).view(np.uint8).reshape(-1, 2)
        for at in HALVES[t]:
            b[:, at:at + 2] = one
        scale = w.std() / dequantize(b, t).std()
        for at in HALVES[t]:
            b[:, at:at + 2] = (scale * rng.uniform(0.8, 1.2, len(b))).astype(np.float16).view(np.uint8).reshape(-1, 2)
        raw = b.reshape(*w.shape[:-1], -1)
    else:
        raw = quantize(w, t)
    return raw, dequantize(raw, t).astype(np.float32).reshape(w.shape)


def paired(w, heads):
    """Rows as llama.cpp's converter orders them; its inverse is unpaired."""
    return w.reshape(heads, 2, len(w) // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpaired(w, heads):
    return w.reshape(heads, len(w) // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def plus_one(case):
    """Whether folders hold norms' gains less 1."""
    return case.get("gemma") or case.get("delta")


class File:
    def __init__(self, path, arch, types, rng):
        self.w, self.arch, self.types, self.rng, self.n = GGUFWriter(path, arch), arch, types, rng, 0

    def key(self, name, v):
        add = {bool: self.w.add_bool, int: self.w.add_uint32, float: self.w.add_float32, str: self.w.add_string,
               list: self.w.add_array}
        add[type(v)](f"{self.arch}.{name}", v)

    def put(self, name, w):
        """Writes a tensor and returns its values: vectors, biases and routers in fp32, the others in each type in turn."""
        w = np.ascontiguousarray(w, dtype=np.float32)
        if w.ndim == 1 or name.endswith(".bias") or "ffn_gate_inp" in name or "conv1d" in name:
            self.w.add_tensor(name, w)
            return w, False
        t = self.types[self.n % len(self.types)]
        self.n += 1
        raw, values = packed(w, t, self.rng)
        self.w.add_tensor(name, raw, raw_dtype=t)
        return values, True

    def close(self):
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()


class Model:
    """A transformers model whose parameters become what the file holds."""

    def __init__(self, case, rng):
        torch.manual_seed(3)
        self.case = case
        self.m = transformers.AutoModelForCausalLM.from_config(case["config"])
        self.m.eval()
        for name, p in self.m.named_parameters():
            scale = 0.03 if "embed" in name and case["config"].tie_word_embeddings else 0.2 if p.dim() > 1 else 0.1
            v = torch.from_numpy(rng.normal(0, scale, tuple(p.shape)).astype(np.float32))
            gain = "norm" in name and (not plus_one(case) or "linear_attn" in name)
            p.data = torch.round(((1 if gain else 0) + v) * 128) / 128 if p.dim() == 1 else v
        self.p = dict(self.m.named_parameters())
        self.done, self.matrices, self.drafter = set(), set(), {}

    def give(self, f, name, theirs, there=lambda w: w, back=lambda w: w, rows=None):
        """Writes a parameter (or a part of it: an index) and takes back what the file holds."""
        w = self.p[name].data
        rows = slice(None) if rows is None else rows
        values, matrix = f.put(theirs, there(w[rows].numpy()))
        w[rows] = torch.from_numpy(np.ascontiguousarray(back(values)))
        self.done.add(name)
        if matrix:
            self.matrices.add(name)

    def continue_greedily(self):
        ids = list(PROMPT)
        with torch.no_grad():
            for _ in range(NEW):
                z = self.m(torch.tensor([ids]), use_cache=False).logits[0, -1]
                ids.append(int(z.argmax()))
        return ids[len(PROMPT):]

    def save(self, folder):
        for name in self.matrices:
            self.p[name].data = self.p[name].data.bfloat16()
        self.m.config.dtype = torch.float32
        self.m.save_pretrained(folder)
        if self.drafter:
            path = f"{folder}/model.safetensors"
            save_file({**load_file(path), **self.drafter}, path, metadata={"format": "pt"})


def give_mlp(m, f, l, name):
    for ours, theirs in ("gate", "ffn_gate"), ("up", "ffn_up"), ("down", "ffn_down"):
        m.give(f, f"{name}.mlp.{ours}_proj.weight", f"blk.{l}.{theirs}.weight")


def give_experts(m, f, l, name):
    ff = m.p[f"{name}.mlp.experts.down_proj"].shape[2]
    m.give(f, f"{name}.mlp.gate.weight", f"blk.{l}.ffn_gate_inp.weight")
    gu, down = f"{name}.mlp.experts.gate_up_proj", f"{name}.mlp.experts.down_proj"
    if m.case.get("joined"):
        m.give(f, gu, f"blk.{l}.ffn_gate_up_exps.weight")
    else:
        m.give(f, gu, f"blk.{l}.ffn_gate_exps.weight", rows=(slice(None), slice(0, ff)))
        m.give(f, gu, f"blk.{l}.ffn_up_exps.weight", rows=(slice(None), slice(ff, None)))
    m.give(f, down, f"blk.{l}.ffn_down_exps.weight")
    if m.case.get("delta"):
        m.give(f, f"{name}.mlp.shared_expert_gate.weight", f"blk.{l}.ffn_gate_inp_shexp.weight", lambda w: w[0],
               lambda w: w[None])
        for ours in "gate", "up", "down":
            m.give(f, f"{name}.mlp.shared_expert.{ours}_proj.weight", f"blk.{l}.ffn_{ours}_shexp.weight")


def give_delta(m, f, l, name):
    """A gated delta net. Value heads are in turns of the key heads in Qwen3.5's files."""
    c, name, blk = m.case["config"], f"{name}.linear_attn", f"blk.{l}"
    keys, each = c.linear_num_key_heads, c.linear_num_value_heads // c.linear_num_key_heads
    dk, dv = c.linear_key_head_dim, c.linear_value_head_dim
    if f.arch == "qwen3next":
        row, size = np.arange(len(m.p[f"{name}.in_proj_qkvz.weight"])), 2 * dk + 2 * each * dv
        at = row % size
        part = lambda lo, hi: row[(lo <= at) & (at < hi)]
        if m.case.get("joined"):
            m.give(f, f"{name}.in_proj_qkvz.weight", f"{blk}.ssm_in.weight")
        else:
            qkv = np.concatenate([part(0, dk), part(dk, 2 * dk), part(2 * dk, 2 * dk + each * dv)])
            m.give(f, f"{name}.in_proj_qkvz.weight", f"{blk}.attn_qkv.weight", rows=qkv)
            m.give(f, f"{name}.in_proj_qkvz.weight", f"{blk}.attn_gate.weight", rows=part(2 * dk + each * dv, size))
        m.give(f, f"{name}.in_proj_ba.weight", f"{blk}.ssm_ba.weight")

    def turned(first, width, axis=0):
        def move(w, a, b):
            w = np.moveaxis(np.asarray(w), axis, 0)
            heads = w[first:].reshape(a, b, width, *w.shape[1:]).swapaxes(0, 1).reshape(w[first:].shape)
            return np.moveaxis(np.concatenate([w[:first], heads]), 0, axis)
        if f.arch == "qwen3next":
            return lambda w: w, lambda w: w
        return lambda w: move(w, keys, each), lambda w: move(w, each, keys)

    heads, wide, behind = turned(0, 1), turned(0, dv), turned(2 * keys * dk, dv)
    if f.arch != "qwen3next":
        m.give(f, f"{name}.in_proj_qkv.weight", f"{blk}.attn_qkv.weight", *behind)
        m.give(f, f"{name}.in_proj_z.weight", f"{blk}.attn_gate.weight", *wide)
        m.give(f, f"{name}.in_proj_b.weight", f"{blk}.ssm_beta.weight", *heads)
        m.give(f, f"{name}.in_proj_a.weight", f"{blk}.ssm_alpha.weight", *heads)
    m.give(f, f"{name}.conv1d.weight", f"{blk}.ssm_conv1d.weight", lambda w: behind[0](w[:, 0]),
           lambda w: behind[1](w)[:, None])
    m.give(f, f"{name}.dt_bias", f"{blk}.ssm_dt.bias", *heads)
    m.give(f, f"{name}.A_log", f"{blk}.ssm_a", lambda w: -np.exp(heads[0](w)), lambda w: heads[1](np.log(-w)))
    m.give(f, f"{name}.norm.weight", f"{blk}.ssm_norm.weight")
    m.give(f, f"{name}.out_proj.weight", f"{blk}.ssm_out.weight", *turned(0, dv, 1))


def give_oss(m, f, l, name):
    turn = lambda w: w.swapaxes(1, 2)
    for what in "weight", "bias":
        m.give(f, f"{name}.mlp.router.{what}", f"blk.{l}.ffn_gate_inp.{what}")
    for at, theirs in (0, "ffn_gate_exps"), (1, "ffn_up_exps"):
        m.give(f, f"{name}.mlp.experts.gate_up_proj", f"blk.{l}.{theirs}.weight", turn, turn,
               (slice(None), slice(None), slice(at, None, 2)))
        m.give(f, f"{name}.mlp.experts.gate_up_proj_bias", f"blk.{l}.{theirs}.bias", rows=(slice(None), slice(at, None, 2)))
    m.give(f, f"{name}.mlp.experts.down_proj", f"blk.{l}.ffn_down_exps.weight", turn, turn)
    m.give(f, f"{name}.mlp.experts.down_proj_bias", f"blk.{l}.ffn_down_exps.bias")


def give_attention(m, f, l, name, heads):
    pair = f.arch == "llama"
    for x, n in zip("qkv", heads):
        turned = [lambda w: paired(w, n), lambda w: unpaired(w, n)] if pair and x != "v" else [lambda w: w] * 2
        m.give(f, f"{name}.self_attn.{x}_proj.weight", f"blk.{l}.attn_{x}.weight", *turned)
        if f"{name}.self_attn.{x}_proj.bias" in m.p:
            m.give(f, f"{name}.self_attn.{x}_proj.bias", f"blk.{l}.attn_{x}.bias", *turned)


def give_layer(m, f, l):
    name, c = f"model.layers.{l}", m.case["config"]
    gemma, oss, delta = m.case.get("gemma"), f.arch == "gpt-oss", m.case.get("delta")
    plus = [lambda w: w + 1, lambda w: w - 1] if plus_one(m.case) else [lambda w: w] * 2
    norm = lambda ours, theirs: m.give(f, f"{name}.{ours}.weight", f"blk.{l}.{theirs}.weight", *plus)
    norm("input_layernorm", "attn_norm")
    norm("post_attention_layernorm", "post_attention_norm" if gemma or oss or delta else "ffn_norm")
    if gemma:
        norm("pre_feedforward_layernorm", "ffn_norm")
        norm("post_feedforward_layernorm", "post_ffw_norm")
    if f"{name}.self_attn.q_norm.weight" in m.p:
        norm("self_attn.q_norm", "attn_q_norm")
        norm("self_attn.k_norm", "attn_k_norm")
    if f.arch == "phi3":
        m.give(f, f"{name}.self_attn.qkv_proj.weight", f"blk.{l}.attn_qkv.weight")
        m.give(f, f"{name}.mlp.gate_up_proj.weight", f"blk.{l}.ffn_up.weight")
        m.give(f, f"{name}.mlp.down_proj.weight", f"blk.{l}.ffn_down.weight")
    else:
        if f"{name}.linear_attn.A_log" in m.p:
            give_delta(m, f, l, name)
        else:
            give_attention(m, f, l, name, (c.num_attention_heads, c.num_key_value_heads, 0))
        (give_oss if oss else give_experts if m.case.get("experts") else give_mlp)(m, f, l, name)
    if f"{name}.self_attn.o_proj.weight" in m.p:
        m.give(f, f"{name}.self_attn.o_proj.weight", f"blk.{l}.attn_output.weight")
    if f"{name}.self_attn.o_proj.bias" in m.p:
        if m.case.get("no_output_bias"):
            m.p[f"{name}.self_attn.o_proj.bias"].data.zero_()
            m.done.add(f"{name}.self_attn.o_proj.bias")
        else:
            m.give(f, f"{name}.self_attn.o_proj.bias", f"blk.{l}.attn_output.bias")
    if oss:
        m.give(f, f"{name}.self_attn.sinks", f"blk.{l}.attn_sinks.weight")


def give_drafter(m, f, rng):
    """A layer for drafting, which transformers has not: in files of llama.cpp a block behind the others."""
    c, l = m.case["config"], m.case["config"].num_hidden_layers
    d, q, kv = c.hidden_size, c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    layer = {"self_attn.q_proj": ("attn_q", (2 * q, d)), "self_attn.k_proj": ("attn_k", (kv, d)),
             "self_attn.v_proj": ("attn_v", (kv, d)), "self_attn.o_proj": ("attn_output", (d, q)),
             "self_attn.q_norm": ("attn_q_norm", (c.head_dim,)), "self_attn.k_norm": ("attn_k_norm", (c.head_dim,)),
             "input_layernorm": ("attn_norm", (d,)), "post_attention_layernorm": ("post_attention_norm", (d,)),
             "mlp.gate_proj": ("ffn_gate", (c.intermediate_size, d)), "mlp.up_proj": ("ffn_up", (c.intermediate_size, d)),
             "mlp.down_proj": ("ffn_down", (d, c.intermediate_size))}
    names = {"fc": ("nextn.eh_proj", (d, 2 * d)), "pre_fc_norm_embedding": ("nextn.enorm", (d,)),
             "pre_fc_norm_hidden": ("nextn.hnorm", (d,)), "norm": ("nextn.shared_head_norm", (d,)),
             **{f"layers.0.{ours}": of for ours, of in layer.items()}}
    for ours, (theirs, shape) in names.items():
        gain = len(shape) == 1
        w = rng.normal(0, 0.1 if gain else 0.2, shape).astype(np.float32)
        w = np.round(w * 128) / 128 if gain else w
        values, matrix = f.put(f"blk.{l}.{theirs}.weight", w + gain)
        values = torch.from_numpy(np.ascontiguousarray(values - gain))
        m.drafter[f"mtp.{ours}.weight"] = values.bfloat16() if matrix else values


def write(m, path, rng):
    case, c = m.case, m.case["config"]
    f = File(path, case["arch"], case["types"], rng)
    f.key("block_count", c.num_hidden_layers + case.get("drafter", 0))
    f.key("context_length", c.max_position_embeddings)
    f.key("embedding_length", c.hidden_size)
    if hasattr(c, "intermediate_size"):
        f.key("feed_forward_length", c.intermediate_size)
    f.key("attention.head_count", c.num_attention_heads)
    f.key("attention.head_count_kv", c.num_key_value_heads)
    f.key("attention.layer_norm_rms_epsilon", c.rms_norm_eps)
    for k, v in case.get("keys", {}).items():
        f.key(k, v)
    for name, v in case.get("tensors", {}).items():
        f.w.add_tensor(name, np.array(v, dtype=np.float32))
    m.give(f, "model.embed_tokens.weight", "token_embd.weight")
    plus = [lambda w: w + 1, lambda w: w - 1] if plus_one(case) else [lambda w: w] * 2
    m.give(f, "model.norm.weight", "output_norm.weight", *plus)
    if "lm_head.weight" in m.p:
        m.give(f, "lm_head.weight", "output.weight")
    for l in range(c.num_hidden_layers):
        give_layer(m, f, l)
    if case.get("drafter"):
        give_drafter(m, f, rng)
    left = set(m.p) - m.done
    assert not left, left
    f.close()


def decoded(program, target, *more):
    a = [program, "decode", "--target", str(target), "--prompt-ids", ",".join(map(str, PROMPT)), "-n", str(NEW), "--json"]
    r = subprocess.run([*a, *more], capture_output=True, text=True)
    if r.returncode:
        raise SystemExit(r.stderr)
    r = json.loads(r.stdout)
    return r["tokens"] if "--drafter" not in more else (r["tokens"], r["stats"]["acceptance_length"])


# ---- cases ----

def config(kind, **more):
    sizes = dict(vocab_size=V, hidden_size=D, intermediate_size=FF, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                 num_key_value_heads=KV, head_dim=HD, max_position_embeddings=POSITIONS, rms_norm_eps=1e-5,
                 tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    return getattr(transformers, kind)(**{**sizes, **more}, attn_implementation="eager")


def delta_case(arch, kind, dims, types, keys={}, experts=0, partial=0.5, **more):
    layers = ["linear_attention", "full_attention"]
    rope = dict(rope_type="default", rope_theta=1e6, partial_rotary_factor=partial)
    if arch != "qwen3next":
        rope.update(mrope_section=[1, 1, 0], mrope_interleaved=True)
        keys = {**keys, "rope.dimension_sections": [1, 1, 0, 0]}
    sizes = dict(zip(["linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
                      "linear_conv_kernel_dim"], dims))
    if experts:
        sizes.update(num_experts=experts, num_experts_per_tok=2, moe_intermediate_size=32,
                     shared_expert_intermediate_size=64)
        keys = {**keys, "expert_count": experts, "expert_used_count": 2, "expert_feed_forward_length": 32,
                "expert_shared_feed_forward_length": 64}
    return dict(arch=arch, types=types, delta=True, experts=experts > 0,
                config=config(kind, layer_types=layers, rope_parameters=rope, **sizes, **more.pop("config", {})),
                keys={"rope.freq_base": 1e6, "rope.dimension_count": int(HD * partial), "attention.key_length": HD,
                      "attention.value_length": HD, "ssm.group_count": dims[0], "ssm.time_step_rank": dims[1],
                      "ssm.state_size": dims[2], "ssm.inner_size": dims[1] * dims[3], "ssm.conv_kernel": dims[4],
                      **keys}, **more)


def delta_cases():
    interval = {"full_attention_interval": 2}
    yield "qwen3next", delta_case("qwen3next", "Qwen3NextConfig", [2, 4, 8, 8, 4], [T.Q8_0, T.Q4_1], interval, 4)
    yield "qwen3next_old", delta_case("qwen3next", "Qwen3NextConfig", [2, 4, 8, 8, 4], [T.Q4_0],
                                      {"attention.recurrent_layers": [True, False]}, 4, joined=True)
    yield "qwen35", delta_case("qwen35", "Qwen3_5TextConfig", [2, 6, 16, 32, 4], [T.Q8_0],
                               {**interval, "nextn_predict_layers": 1}, drafter=1, config=dict(tie_word_embeddings=True))
    yield "qwen35moe", delta_case("qwen35moe", "Qwen3_5MoeTextConfig", [2, 4, 8, 8, 3], [T.Q4_0, T.Q8_0], interval, 4)


def cases():
    theta = dict(rope_theta=10000.0)
    divisors = [1, 1.25, 4, 8]
    long = [1, 2.5, 6]
    yield "llama", dict(arch="llama", config=config("LlamaConfig", rope_parameters=dict(rope_type="default", **theta)),
                        keys={"rope.freq_base": 10000.0, "rope.dimension_count": HD}, types=SMALL)
    yield "llama_freqs", dict(
        arch="llama", tensors={"rope_freqs.weight": divisors}, types=[T.Q8_0],
        config=config("LlamaConfig", tie_word_embeddings=True, rope_parameters=dict(
            rope_type="longrope", short_factor=divisors, long_factor=divisors, attention_factor=1.0, factor=1.0,
            original_max_position_embeddings=POSITIONS, **theta)))
    yield "llama_linear", dict(
        arch="llama", keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, types=[T.Q4_0],
        config=config("LlamaConfig", rope_parameters=dict(rope_type="linear", factor=4.0, **theta)))
    yield "llama_yarn", dict(
        arch="llama", types=[T.Q5_1, T.F16],
        keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 128},
        config=config("LlamaConfig", rope_parameters=dict(rope_type="yarn", factor=4.0, **theta,
                                                          original_max_position_embeddings=128)))
    yield "llama_bias", dict(
        arch="llama", types=[T.Q8_0], no_output_bias=True, alone=True,
        config=config("LlamaConfig", attention_bias=True, rope_parameters=dict(rope_type="default", **theta)))
    yield "mixtral", dict(
        arch="llama", types=[T.Q4_1, T.Q8_0], experts=True, keys={"expert_count": 4, "expert_used_count": 2},
        config=config("MixtralConfig", num_local_experts=4, num_experts_per_tok=2, sliding_window=None,
                      rope_parameters=dict(rope_type="default", **theta)))
    yield "qwen2", dict(arch="qwen2", types=[T.Q5_0, T.Q8_0], keys={"rope.freq_base": 1e6},
                        config=config("Qwen2Config", tie_word_embeddings=True,
                                      rope_parameters=dict(rope_type="default", rope_theta=1e6)))
    yield "qwen3", dict(arch="qwen3", types=[T.IQ4_NL, T.Q8_0],
                        keys={"rope.freq_base": 1e6, "attention.key_length": 16, "attention.value_length": 16},
                        config=config("Qwen3Config", head_dim=16,
                                      rope_parameters=dict(rope_type="default", rope_theta=1e6)))
    yield "qwen3moe", dict(
        arch="qwen3moe", types=[T.Q4_0, T.Q8_0], experts=True,
        keys={"rope.freq_base": 1e6, "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32},
        config=config("Qwen3MoeConfig", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                      norm_topk_prob=True, rope_parameters=dict(rope_type="default", rope_theta=1e6)))
    yield "phi3", dict(
        arch="phi3", types=[T.Q8_0, T.Q4_1],
        tensors={"rope_factors_long.weight": long, "rope_factors_short.weight": [1] * 3},
        keys={"rope.dimension_count": 6, "rope.scaling.original_context_length": 128, "rope.scaling.type": "longrope",
              "rope.scaling.attn_factor": 1.25, "attention.sliding_window": 8},
        config=config("Phi3Config", sliding_window=None, original_max_position_embeddings=128, rope_parameters=dict(
            rope_type="longrope", short_factor=long, long_factor=long, attention_factor=1.25,
            original_max_position_embeddings=128, partial_rotary_factor=0.75, **theta)))
    yield "gemma2", dict(
        arch="gemma2", types=[T.Q5_1, T.Q8_0], gemma=True,
        keys={"attention.sliding_window": 8, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        config=config("Gemma2Config", sliding_window=8, query_pre_attn_scalar=HD, tie_word_embeddings=True,
                      rope_parameters=dict(rope_type="default", **theta)))
    kinds = ["full_attention" if (l + 1) % 6 == 0 else "sliding_attention" for l in range(6)]
    yield "gemma3", dict(
        arch="gemma3", types=[T.Q5_0, T.Q8_0], gemma=True,
        keys={"attention.sliding_window": 8, "rope.freq_base": 1e6, "rope.scaling.type": "linear",
              "rope.scaling.factor": 8.0},
        config=config("Gemma3TextConfig", num_hidden_layers=6, sliding_window=8, query_pre_attn_scalar=HD,
                      tie_word_embeddings=True, layer_types=kinds, rope_parameters={
                          "full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                          "sliding_attention": dict(rope_type="default", rope_theta=10000.0)}))
    yield "gpt-oss", dict(
        arch="gpt-oss", types=[T.MXFP4, T.Q8_0],
        keys={"rope.freq_base": 150000.0, "attention.sliding_window": 8, "expert_count": 4, "expert_used_count": 2,
              "expert_feed_forward_length": 32, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
              "rope.scaling.original_context_length": 128, "attention.key_length": HD, "attention.value_length": HD},
        config=config("GptOssConfig", intermediate_size=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
                      layer_types=["sliding_attention", "full_attention"],
                      rope_parameters=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=True,
                                           original_max_position_embeddings=128, rope_theta=150000.0)))
    yield from delta_cases()
    yield "large", dict(
        arch="llama", types=LARGE, large=True,
        config=config("LlamaConfig", hidden_size=256, intermediate_size=512, num_attention_heads=16,
                      num_key_value_heads=16, head_dim=16, rope_parameters=dict(rope_type="default", **theta)))


def check(name, case, program, golden):
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory() as d:
        m = Model(case, rng)
        path = f"{d}/{name}.gguf"
        write(m, path, rng)
        want = m.continue_greedily()
        got = decoded(program, path, "--dtype", "fp32")
        m.save(f"{d}/folder")
        draft = ["--drafter", "mtp", "--tree", "chain:3"] if case.get("drafter") else []
        bf16 = decoded(program, path, "--dtype", "bf16", *draft)
        folder = bf16 if case.get("alone") else decoded(program, f"{d}/folder", "--dtype", "bf16", *draft)
        if golden and not case.get("large"):
            os.makedirs(golden, exist_ok=True)
            pathlib.Path(golden, f"{name}.gguf").write_bytes(pathlib.Path(path).read_bytes())
            pathlib.Path(golden, f"{name}.ids").write_text(" ".join(map(str, want)) + "\n")
        print(f"{'=' if got == want else 'X'} transformers, {'=' if bf16 == folder else 'X'} folder: {name}, "
              f"{len(set(want))} different tokens, {os.path.getsize(path)} bytes", flush=True)
        if got != want:
            print("   ", want, "\n   ", got)
        if bf16 != folder:
            print("    folder", folder, "\n   ", bf16)
        return got != want or bf16 != folder


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only")
    p.add_argument("--golden")
    p.add_argument("--paceline", default=os.path.join(ROOT, "build", "paceline"))
    a = p.parse_args()
    torch.set_num_threads(1)
    sys.exit(sum(check(n, c, a.paceline, a.golden) for n, c in cases() if a.only in (None, n)) > 0)


main()
