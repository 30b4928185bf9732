#!/usr/bin/env python3
"""A model's folder with its published config.json, fewer layers and random weights. Development only.

    python tests/peers/random_folder.py llama3.1-8b --layers 32 --out DIR
    python tests/peers/random_folder.py gpt-oss-20b --layers 2 --out DIR --tokenizer TOKENIZER_FOLDER

Tensors stand in shards of at most 5 GB behind an index, named and typed as the publisher has them: bf16, and for
GPT-OSS's experts MXFP4. Values are uniform of either sign around 0.012, norms 1; the same seed writes the same bytes.
With --tokenizer the files of that folder are copied beside them.
"""
import argparse
import json
import pathlib
import shutil

import numpy as np

# config.json as it was published, less transformers_version.
CONFIGS = {
    "llama3.1-8b": {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
        "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": False,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
            "rope_type": "llama3"},
        "rope_theta": 500000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True,
        "vocab_size": 128256},
    "qwen3-30b-a3b": {
        "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
        "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 40960,
        "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
        "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
        "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": False, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": None,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False,
        "vocab_size": 151936},
    "qwen3.5-4b": {
        "architectures": ["Qwen3_5ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "eos_token_id": 248044, "head_dim": 256, "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02,
        "intermediate_size": 9216, "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128, "max_position_embeddings": 262144,
        "model_type": "qwen3_5_text", "num_attention_heads": 16, "num_hidden_layers": 32, "num_key_value_heads": 4,
        "rms_norm_eps": 1e-06, "rope_parameters": {
            "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"},
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 248320},
    "gpt-oss-20b": {
        "architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
        "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
        "initial_context_length": 4096, "initializer_range": 0.02, "intermediate_size": 2880,
        "layer_types": ["sliding_attention", "full_attention"] * 12, "max_position_embeddings": 131072,
        "model_type": "gpt_oss", "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24,
        "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": False, "pad_token_id": 199999,
        "quantization_config": {
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                                       "lm_head"],
            "quant_method": "mxfp4"},
        "rms_norm_eps": 1e-05, "rope_scaling": {
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
            "rope_type": "yarn", "truncate": False},
        "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
        "tie_word_embeddings": False, "use_cache": True, "vocab_size": 201088},
}
SHARD = 5 << 30


def tensors(c):
    """Of a model: (name, dtype, shape, how it is filled), in the order of the layers."""
    d, hd = c["hidden_size"], c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    q, kv = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd

    def matrix(name, *shape):
        return name, "BF16", shape, "random"

    def norm(name, n):
        return name, "BF16", (n,), "ones"

    yield matrix("model.embed_tokens.weight", c["vocab_size"], d)
    for i in range(c["num_hidden_layers"]):
        of = f"model.layers.{i}."
        yield norm(of + "input_layernorm.weight", d)
        hybrid = c["model_type"] == "qwen3_5_text"
        recurrent = hybrid and c["layer_types"][i] == "linear_attention"
        if recurrent:
            yield from recurrence(c, of + "linear_attn.", d, matrix, norm)
        # A hybrid's q has its output gate's rows too.
        for name, rows, cols in () if recurrent else (("q", q << hybrid, d), ("k", kv, d), ("v", kv, d), ("o", d, q)):
            yield matrix(f"{of}self_attn.{name}_proj.weight", rows, cols)
            if c["attention_bias"]:
                yield matrix(f"{of}self_attn.{name}_proj.bias", rows)
        if c["model_type"] == "qwen3_moe" or (hybrid and not recurrent):
            yield norm(of + "self_attn.q_norm.weight", hd)
            yield norm(of + "self_attn.k_norm.weight", hd)
        if c["model_type"] == "gpt_oss":
            yield matrix(of + "self_attn.sinks", c["num_attention_heads"])
        yield norm(of + "post_attention_layernorm.weight", d)
        yield from feed_forward(c, of + "mlp.", d, matrix)
    yield norm("model.norm.weight", d)
    if not c["tie_word_embeddings"]:
        yield matrix("lm_head.weight", c["vocab_size"], d)


def recurrence(c, of, d, matrix, norm):
    values, v = c["linear_num_value_heads"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
    qkv = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + v
    for name, rows in (("qkv", qkv), ("z", v), ("b", values), ("a", values)):
        yield matrix(f"{of}in_proj_{name}.weight", rows, d)
    yield matrix(of + "conv1d.weight", qkv, 1, c["linear_conv_kernel_dim"])
    yield matrix(of + "dt_bias", values)
    yield matrix(of + "A_log", values)
    yield norm(of + "norm.weight", c["linear_value_head_dim"])
    yield matrix(of + "out_proj.weight", d, v)


def feed_forward(c, of, d, matrix):
    if c["model_type"] == "gpt_oss":
        e, f = c["num_local_experts"], c["intermediate_size"]
        yield matrix(of + "router.weight", e, d)
        yield matrix(of + "router.bias", e)
        for name, rows, cols in (("gate_up", 2 * f, d), ("down", d, f)):
            yield f"{of}experts.{name}_proj_blocks", "U8", (e, rows, cols // 32, 16), "random"
            yield f"{of}experts.{name}_proj_scales", "U8", (e, rows, cols // 32), "scales"
            yield matrix(f"{of}experts.{name}_proj_bias", e, rows)
        return
    if c["model_type"] == "qwen3_moe":
        yield matrix(of + "gate.weight", c["num_experts"], d)
    for expert in range(c["num_experts"]) if c["model_type"] == "qwen3_moe" else (None,):
        at = of if expert is None else f"{of}experts.{expert}."
        f = c["intermediate_size"] if expert is None else c["moe_intermediate_size"]
        yield matrix(at + "gate_proj.weight", f, d)
        yield matrix(at + "up_proj.weight", f, d)
        yield matrix(at + "down_proj.weight", d, f)


def size(tensor):
    _, dtype, shape, _ = tensor
    return int(np.prod(shape)) * (2 if dtype == "BF16" else 1)


def content(rng, tensor):
    _, dtype, shape, how = tensor
    n = int(np.prod(shape))
    if how == "ones":
        return np.full(n, 0x3F80, np.uint16)
    if how == "scales":  # 2^-8, so that experts' weights are of the others' size
        return np.full(n, 127 - 8, np.uint8)
    if dtype == "U8":
        return np.frombuffer(rng.bytes(n), np.uint8)
    bits = np.frombuffer(rng.bytes(2 * n), np.uint16)  # sign and mantissa are random, the exponent is that of 2^-7
    return (bits & 0x807F) | (120 << 7)


def write_shard(path, shard, rng):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for t in shard:
        header[t[0]] = {"dtype": t[1], "shape": list(t[2]), "data_offsets": [at, at + size(t)]}
        at += size(t)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in shard:
            content(rng, t).tofile(f)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("shape", choices=CONFIGS)
    p.add_argument("--layers", type=int)
    p.add_argument("--tokenizer", type=pathlib.Path)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", type=pathlib.Path, required=True)
    a = p.parse_args()

    config = dict(CONFIGS[a.shape])
    if a.layers:
        config["num_hidden_layers"] = a.layers
        if "layer_types" in config:
            config["layer_types"] = config["layer_types"][:a.layers]
    shards = [[]]
    for t in tensors(config):
        if shards[-1] and sum(map(size, shards[-1])) + size(t) > SHARD:
            shards.append([])
        shards[-1].append(t)

    a.out.mkdir(parents=True)
    rng = np.random.default_rng(a.seed)
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for name, shard in zip(names, shards):
        write_shard(a.out / name, shard, rng)
    index = {"metadata": {"total_size": sum(size(t) for s in shards for t in s)},
             "weight_map": {t[0]: name for name, s in zip(names, shards) for t in s}}
    (a.out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    (a.out / "config.json").write_text(json.dumps(config, indent=1))
    for f in sorted(a.tokenizer.iterdir()) if a.tokenizer else ():
        shutil.copy(f, a.out)


if __name__ == "__main__":
    main()
