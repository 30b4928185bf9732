#!/usr/bin/env python3
"""`paceline decode` on quantised folders beside transformers on what their libraries unpack. Development only.

    python tests/peers/check_quantised.py [--paceline build/paceline] [--target FOLDER]

Needs: pip install torch transformers compressed-tensors nvidia-modelopt. FOLDER: a Llama whose sizes are multiples of
32; without it a random one of two layers. Its matrices are rounded to each format, packed by the format's library (AWQ,
GPTQ: by their documented layout), and written twice: as a quantised folder, which paceline reads, and as the library
unpacks it, which transformers reads. Both compute in float32. Greedy tokens are compared for 8 prompts until
transformers' best two logits lie within 0.02. Exit code 1 where tokens differ before that."""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
GROUP = 32


def amax(w, group):
    return w.unflatten(1, (-1, group)).abs().amax(2).clamp(min=1e-6)


def spread(s, group):
    return s.repeat_interleave(group, 1)


def fp8(w):
    s = amax(w, GROUP).unflatten(0, (-1, GROUP)).amax(1) / 448
    wide = spread(s.repeat_interleave(GROUP, 0), GROUP)
    q = (w / wide).to(torch.float8_e4m3fn)
    return {"weight": q, "weight_scale_inv": s}, q.float() * wide


def compressed(fmt, **args):
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    library = BaseCompressor.get_value_from_registry(fmt)

    def run(w):
        if fmt.startswith("nvfp4"):
            g = 448 * 6 / w.abs().max().reshape(1)
            state = {"weight_scale": (amax(w, 16) / 6 * g).to(torch.float8_e4m3fn).float(), "weight_global_scale": g}
        else:
            one = args["strategy"] == "channel"
            most = amax(w, w.shape[1] if one else GROUP)
            top = 448 if args["type"] == "float" else 2**(args["num_bits"] - 1) - 1
            state = {"weight_scale": (most / top).bfloat16()}
        state = library.compress({"weight": w, **state}, scheme)
        if fmt.startswith("nvfp4"):
            q = unpack_fp4_from_uint8(state["weight_packed"], w.shape[0], w.shape[1], torch.float32)
            return state, dequantize(q, state["weight_scale"].float(), args=scheme.weights, global_scale=g)
        return state, library.decompress({k: v.float() if k == "weight_scale" else v for k, v in state.items()},
                                         scheme)["weight"]

    config = {"quant_method": "compressed-tensors", "format": fmt, "ignore": [], "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": args}}}
    return config, run


def pack(codes, order):
    """Eight codes of the last dimension to a word."""
    c = codes.to(torch.int64).unflatten(-1, (-1, 8))
    return sum(c[..., n] << 4 * i for i, n in enumerate(order)).to(torch.int32)


def rounded(w):
    lo, hi = w.unflatten(1, (-1, GROUP)).amin(2).clamp(max=0), w.unflatten(1, (-1, GROUP)).amax(2).clamp(min=0)
    s = ((hi - lo) / 15).clamp(min=1e-5).half()
    z = (-lo / s.float()).round().clamp(1, 15)
    q = (w / spread(s.float(), GROUP) + spread(z, GROUP)).round().clamp(0, 15)
    return q, z, s, (q - spread(z, GROUP)) * spread(s.float(), GROUP)


def awq(w):
    q, z, s, values = rounded(w)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {"qweight": pack(q.T, order), "qzeros": pack(z.T, order), "scales": s.T}, values


def gptq(w):
    q, z, s, values = rounded(w)
    return {"qweight": pack(q, range(8)).T, "qzeros": pack(z.T - 1, range(8)), "scales": s.T,
            "g_idx": torch.arange(w.shape[1], dtype=torch.int32) // GROUP}, values


def nvfp4(w):
    q, s, g = NVFP4QTensor.quantize(w, 16, try_tensorrt=False)
    return ({"weight": q._quantized_data, "weight_scale": s, "weight_scale_2": g.reshape(())},
            q.dequantize(torch.float32, scale=s, double_scale=g, block_sizes={-1: 16}))


FORMATS = {
    "fp8": ({"quant_method": "fp8", "weight_block_size": [GROUP, GROUP], "activation_scheme": "dynamic"}, fp8),
    "float": compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
    "int8": compressed("int-quantized", num_bits=8, type="int", strategy="channel"),
    "int4": compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=GROUP),
    "nvfp4": compressed("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}, awq),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False}, gptq),
    "modelopt": ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, nvfp4),
}


def random_target(where):
    torch.manual_seed(1)
    m = LlamaForCausalLM(LlamaConfig(hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
                                     num_key_value_heads=2, vocab_size=320, tie_word_embeddings=False))
    for p in m.parameters():
        if p.ndim == 2:
            p.data *= 6
    m.to(torch.bfloat16).save_pretrained(where)


def write(where, target, tensors, config):
    shutil.copytree(target, where, ignore=shutil.ignore_patterns("*.safetensors*"))
    text = json.loads((where / "config.json").read_text())
    if config:
        text["quantization_config"] = config
    (where / "config.json").write_text(json.dumps(text))
    save_file({k: v.contiguous() for k, v in tensors.items()}, where / "model.safetensors", {"format": "pt"})


def compare(name, base, target, paceline, prompts):
    config, quantise = FORMATS[name]
    packed, plain = {}, {}
    for f in sorted(target.glob("*.safetensors")):
        for k, w in load_file(f).items():
            if w.ndim != 2 or "embed" in k or "lm_head" in k:
                packed[k] = plain[k] = w
                continue
            state, values = quantise(w.float())
            packed.update({k.removesuffix("weight") + s: t for s, t in state.items()})
            plain[k] = values.float()
    write(base / name, target, packed, config)
    write(base / (name + "-plain"), target, plain, None)
    model = AutoModelForCausalLM.from_pretrained(base / (name + "-plain"), dtype=torch.float32)
    model.generation_config.eos_token_id = None
    same, tokens = 0, 0
    for prompt in prompts:
        out = model.generate(torch.tensor([prompt]), max_new_tokens=32, do_sample=False, output_logits=True,
                             return_dict_in_generate=True)
        gaps = [torch.topk(z[0], 2).values for z in out.logits]
        upto = next((i for i, g in enumerate(gaps) if g[0] - g[1] < 0.02), len(gaps))
        run = subprocess.run([paceline, "decode", "--json", "--dtype", "fp32", "--target", base / name, "-n", "32",
                              "--prompt-ids", ",".join(map(str, prompt))], check=True, capture_output=True, text=True)
        ours = json.loads(run.stdout)["tokens"]
        upto = min(upto, len(ours))
        same += ours[:upto] == out.sequences[0, len(prompt):][:upto].tolist()
        tokens += upto
    print(f"{name:9} {same} of {len(prompts)} prompts alike, {tokens} tokens compared")
    return same == len(prompts)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--paceline", default=ROOT / "build" / "paceline")
    p.add_argument("--target", type=pathlib.Path)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        base = pathlib.Path(d)
        if not a.target:
            random_target(base / "target")
        target = a.target or base / "target"
        vocab = json.loads((target / "config.json").read_text())["vocab_size"]
        g = torch.Generator().manual_seed(3)
        prompts = [[1] + torch.randint(3, vocab, (7,), generator=g).tolist() for _ in range(8)]
        good = [compare(name, base, target, a.paceline, prompts) for name in FORMATS]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
