#!/usr/bin/env python3
"""A target of a shape's widths with few layers and random weights, with the built-in target's tokenizer, as a folder:
for the whole line at a real model's size. Its answers mean nothing; what they cost does.
  shape_target.py FOLDER [--layers N] [--d 4096] [--inter 14336] [--heads 32] [--kv-heads 8] [--vocab 128256]"""
import argparse
import json
import os
import pathlib
import shutil
import struct

NOISE = 32 << 20  # bytes that repeat from matrix to matrix


def bf16_noise(n):
    """n random numbers of both signs between 0.0078 and 0.0156: about a matrix of some 4,096 columns."""
    raw = bytearray(os.urandom(2 * n))
    raw[1::2] = bytes(raw[1::2]).translate(bytes(0xbc if b & 1 else 0x3c for b in range(256)))
    return bytes(raw)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=pathlib.Path)
    for name, value in dict(layers=4, d=4096, inter=14336, heads=32, kv_heads=8, vocab=128256).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    a = p.parse_args()
    hd = a.d // a.heads
    shapes = {"model.embed_tokens.weight": (a.vocab, a.d), "model.norm.weight": (a.d,), "lm_head.weight": (a.vocab, a.d)}
    for i in range(a.layers):
        at = f"model.layers.{i}."
        shapes |= {at + "input_layernorm.weight": (a.d,), at + "post_attention_layernorm.weight": (a.d,),
                   at + "self_attn.q_proj.weight": (a.d, a.d), at + "self_attn.k_proj.weight": (a.kv_heads * hd, a.d),
                   at + "self_attn.v_proj.weight": (a.kv_heads * hd, a.d), at + "self_attn.o_proj.weight": (a.d, a.d),
                   at + "mlp.gate_proj.weight": (a.inter, a.d), at + "mlp.up_proj.weight": (a.inter, a.d),
                   at + "mlp.down_proj.weight": (a.d, a.inter)}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": a.d,
              "intermediate_size": a.inter, "num_hidden_layers": a.layers, "num_attention_heads": a.heads,
              "num_key_value_heads": a.kv_heads, "head_dim": hd, "vocab_size": a.vocab, "rms_norm_eps": 1e-5,
              "max_position_embeddings": 4096, "rope_theta": 500000.0, "tie_word_embeddings": False,
              "hidden_act": "silu", "torch_dtype": "bfloat16"}
    tiny = pathlib.Path(__file__).resolve().parents[2] / "checkpoints" / "tiny"
    a.folder.mkdir(parents=True)
    for name in ("tokenizer.model", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(tiny / name, a.folder / name)
    (a.folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, shape in shapes.items():
        n = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    noise, ones = bf16_noise(NOISE // 2), struct.pack("<H", 0x3f80)
    with open(a.folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            left = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            if len(shape) == 1:
                f.write(ones * shape[0])
                left = 0
            while left > 0:
                left -= f.write(noise[:left])
    print(f"{a.folder}: {at / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
