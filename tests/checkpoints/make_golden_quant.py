#!/usr/bin/env python3
"""Writes golden_quant.safetensors: quantised matrices as files hold them, and hashes of what the formats' own libraries
make of them in float32.

Needs: pip install torch==2.15.0 transformers==5.24.0 compressed-tensors==0.20.0 nvidia-modelopt==0.47.0 xxhash, and
the sources of autoawq 0.2.9 and gptqmodel 7.7.0, which do not install without a GPU, unpacked into one folder:

    pip download --no-deps --no-binary :all: autoawq==0.2.9 gptqmodel==7.7.0   # and tar xf
    python make_golden_quant.py FOLDER

Of a case the file has tensors "case|.weight_packed", ... and two metadata: "case", the config's text, and "case.hash",
"ROWS COLS HASH": XXH64 of the values plus 0 (ModelOpt's table has no -0), row after row. Elements are random bits,
scales random numbers that the format can hold: any bits are somebody's matrix. Values are computed from scales that
were turned to float32 first, where a library would round products to the scales' type."""
import ast
import json
import pathlib
import sys

import numpy as np
import torch
import xxhash
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.mx_utils import decompress_mx_scale
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = pathlib.Path(sys.argv[1])
rng = np.random.default_rng(7)
tensors, metadata = {}, {}


def functions(path, *names):
    """Functions of a source file without what it imports."""
    tree = ast.parse(path.read_text())
    constant = lambda n: isinstance(n, ast.Assign) and n.targets[0].id.startswith("AWQ_")
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) or constant(n)]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            node.returns, node.decorator_list = None, []
            for a in node.args.args + node.args.kwonlyargs:
                a.annotation = None
            node.args.defaults = [d if isinstance(d, ast.Constant) else ast.Constant(None) for d in node.args.defaults]
    space = {"torch": torch, "PLANAR_BITS": ()}
    exec(compile(tree, str(path), "exec"), space)
    return [space[n] for n in names]


(dequantize_gemm,) = functions(SOURCES / "autoawq-0.2.9/awq/utils/packing_utils.py", "dequantize_gemm")
unpack_rows, unpack_cols, correct_v1 = functions(SOURCES / "gptqmodel-7.7.0/gptqmodel/utils/model_dequant.py",
                                                 "unpack_rows", "unpack_cols", "_correct_gptq_v1_qzeros")


def words(*shape):
    return torch.from_numpy(rng.integers(-2**31, 2**31, shape, dtype=np.int64).astype(np.int32))


def octets(*shape):
    return torch.from_numpy(rng.integers(0, 256, shape).astype(np.uint8))


def e4m3(*shape):
    b = octets(*shape)
    b[(b & 127) == 127] = 3  # NaN
    return b.view(torch.float8_e4m3fn)


def scales(*shape, dtype=torch.float32):
    return torch.from_numpy(rng.uniform(0.001, 0.02, shape).astype(np.float32)).to(dtype)


def case(name, config, values, **of):
    values = (values.to(torch.float32) + 0).contiguous().numpy()
    metadata[name] = json.dumps(config)
    metadata[name + ".hash"] = f"{values.shape[0]} {values.shape[1]} {xxhash.xxh64(values.tobytes()).hexdigest()}"
    for k, v in of.items():
        tensors[f"{name}|.{k}"] = v.contiguous().clone()


# ---- fp8 ----

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
w, s = e4m3(40, 72), scales(3, 3)
case("fp8 blocks", {**FP8, "weight_block_size": [16, 32]}, _dequantize_fp8_weight(w, s, [16, 32], torch.float32),
     weight=w, weight_scale_inv=s)
w, s = e4m3(8, 32), scales()
case("fp8 tensor", FP8, _dequantize_fp8_weight(w, s, None, torch.float32), weight=w, weight_scale_inv=s)
w, s = e4m3(8, 32), scales(1, dtype=torch.bfloat16)
case("fp8 tensor of vLLM", FP8, _dequantize_fp8_weight(w, s, None, torch.float32), weight=w, weight_scale=s,
     input_scale=scales())
w, s = e4m3(8, 32), scales(8, 1)
case("fbgemm", {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, w.float() * s, weight=w, weight_scale=s)
# An exponent alone: the only scale that a byte holds.
w, s = e4m3(4, 64), torch.from_numpy(rng.integers(115, 122, (4, 2)).astype(np.uint8)).view(torch.float8_e8m0fnu)
case("fp8 blocks by exponents", {**FP8, "weight_block_size": [1, 32]},
     w.float() * s.float().repeat_interleave(32, 1), weight=w, weight_scale_inv=s)


# ---- compressed-tensors ----

def compressed(name, fmt, args, compressor, state, values=None, **more):
    args = {"type": "int", "strategy": "group", "symmetric": True, **args}
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    if values is None:
        lib = {k: v.float() if k == "weight_scale" else v for k, v in state.items()}
        values = compressor.decompress(lib, scheme)["weight"]
    config = {"quant_method": "compressed-tensors", "format": fmt, "quantization_status": "compressed",
              "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": args}}}
    case(name, config, values, **state, **more)


BYTES, PACKED = NaiveQuantizationCompressor, PackedQuantizationCompressor
FLOAT = {"num_bits": 8, "type": "float"}
compressed("float channel", "float-quantized", {**FLOAT, "strategy": "channel"}, BYTES,
           {"weight": e4m3(8, 32), "weight_scale": scales(8, 1, dtype=torch.bfloat16)})
compressed("float tensor", "float-quantized", {**FLOAT, "strategy": "tensor"}, BYTES,
           {"weight": e4m3(8, 32), "weight_scale": scales(1)}, input_scale=scales(1))
compressed("float block", "float-quantized", {**FLOAT, "strategy": "block", "block_structure": [16, 32]}, BYTES,
           {"weight": e4m3(40, 72), "weight_scale": scales(3, 3, dtype=torch.bfloat16)})
compressed("int channel", "int-quantized", {"num_bits": 8, "strategy": "channel"}, BYTES,
           {"weight": octets(8, 32).view(torch.int8), "weight_scale": scales(8, 1, dtype=torch.bfloat16)})
compressed("int channel with zeros", "int-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": False}, BYTES,
           {"weight": octets(8, 32).view(torch.int8), "weight_scale": scales(8, 1),
            "weight_zero_point": octets(8, 1).view(torch.int8)})


def packed(bits, rows, cols, groups, zeros=False, dtype=torch.float16):
    half = 2**(bits - 1)
    draw = lambda *shape: torch.from_numpy(rng.integers(-half, half, shape).astype(np.int8))
    state = {"weight_packed": pack_to_int32(draw(rows, cols), bits), "weight_scale": scales(rows, groups, dtype=dtype),
             "weight_shape": torch.tensor([rows, cols])}
    if zeros:
        state["weight_zero_point"] = pack_to_int32(draw(rows, groups), bits, packed_dim=0).contiguous()
    return state


compressed("pack 4", "pack-quantized", {"num_bits": 4, "group_size": 32}, PACKED, packed(4, 6, 96, 3))
compressed("pack 4 with zeros", "pack-quantized", {"num_bits": 4, "group_size": 32, "symmetric": False}, PACKED,
           packed(4, 12, 64, 2, True, torch.bfloat16))
compressed("pack 8 channel", "pack-quantized", {"num_bits": 8, "strategy": "channel"}, PACKED, packed(8, 6, 40, 1))
compressed("pack 3 with zeros", "pack-quantized", {"num_bits": 3, "group_size": 12, "symmetric": False}, PACKED,
           packed(3, 12, 36, 3, True))
state, order = packed(4, 6, 64, 2), torch.from_numpy(rng.permutation(64) // 32).to(torch.int32)
scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(num_bits=4, strategy="channel"))
codes = PACKED.decompress({**state, "weight_scale": torch.ones(6, 1)}, scheme)["weight"]
compressed("pack 4 in another order", "pack-quantized", {"num_bits": 4, "group_size": 32}, PACKED, state,
           codes * state["weight_scale"].float()[:, order.long()], weight_g_idx=order)

NV = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
q, s, g = octets(6, 24), octets(6, 3) % 64 + 32, torch.tensor([317.5])
s = s.view(torch.float8_e4m3fn)
compressed("nvfp4", "nvfp4-pack-quantized", NV, None, {"weight_packed": q, "weight_scale": s, "weight_global_scale": g},
           dequantize(unpack_fp4_from_uint8(q, 6, 48, torch.float32), s.float(), args=QuantizationArgs(**NV),
                      global_scale=g), input_global_scale=scales(1))
MX = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}
q, s = octets(6, 32), octets(6, 2) % 8 + 118
compressed("mxfp4", "mxfp4-pack-quantized", MX, None, {"weight_packed": q, "weight_scale": s},
           dequantize(unpack_fp4_from_uint8(q, 6, 64, torch.float32), decompress_mx_scale(s).float(),
                      args=QuantizationArgs(**MX)))
MX = {**FLOAT, "group_size": 32}
w, s = e4m3(6, 64), octets(6, 2) % 8 + 112
compressed("mxfp8", "mxfp8-quantized", MX, None, {"weight": w, "weight_scale": s},
           dequantize(w, decompress_mx_scale(s).float(), args=QuantizationArgs(**MX, strategy="group")))

# ---- AWQ, GPTQ ----

q, z, s = words(64, 4), words(2, 4), scales(2, 32, dtype=torch.float16)
case("awq", {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True},
     dequantize_gemm(q, z, s.float(), 4, 32).T, qweight=q, qzeros=z, scales=s)


def gptq(name, bits, version, rows=32, cols=64, group=32, order=None):
    group = group if group > 0 else cols
    groups = -(-cols // group)
    q, z = words(cols * bits // 32, rows), words(groups, rows * bits // 32)
    s, g = scales(groups, rows, dtype=torch.float16), torch.arange(cols, dtype=torch.int32) // group
    if order is not None:
        g = g[torch.from_numpy(rng.permutation(cols))]
    zeros = unpack_cols(correct_v1(z, bits) if version == "gptq" else z, bits)
    values = (unpack_rows(q, bits).float() - zeros.float()[g.long()]) * s.float()[g.long()]
    case(name, {"quant_method": "gptq", "bits": bits, "group_size": -1 if group == cols else group,
                "desc_act": order is not None, "sym": False, "checkpoint_format": version}, values.T, qweight=q, qzeros=z,
         scales=s, g_idx=g)


gptq("gptq 4", 4, "gptq")
gptq("gptq 4 v2 in another order", 4, "gptq_v2", order=True)
gptq("gptq 2", 2, "gptq")
gptq("gptq 3", 3, "gptq")
gptq("gptq 3 v2", 3, "gptq_v2")
gptq("gptq 8 of one group", 8, "gptq", cols=32, group=-1)

# ---- ModelOpt ----

w, s = e4m3(8, 32), scales()
case("modelopt fp8", {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}, w.float() * s, weight=w,
     weight_scale=s, input_scale=scales())
q, s, g = octets(6, 24), (octets(6, 3) % 64 + 32).view(torch.float8_e4m3fn), torch.tensor(0.00317)
case("modelopt nvfp4", {"producer": {"name": "modelopt", "version": "0.47.0"},
                        "quantization": {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": "FP8",
                                         "exclude_modules": ["lm_head"]}},
     NVFP4QTensor((6, 48), torch.float32, q).dequantize(torch.float32, scale=s, double_scale=g, block_sizes={-1: 16}),
     weight=q, weight_scale=s, weight_scale_2=g, input_scale=scales())

metadata["cases"] = "\n".join(k for k in metadata if not k.endswith(".hash"))
file = HERE / "golden_quant.safetensors"
save_file(tensors, file, metadata)
whole = file.read_bytes()  # the library's metadata are in another order each time
size = int.from_bytes(whole[:8], "little")
header = json.dumps(json.loads(whole[8:8 + size]), sort_keys=True, separators=(",", ":")).encode()
header += b" " * (-len(header) % 8)
file.write_bytes(len(header).to_bytes(8, "little") + header + whole[8 + size:])
print(len(metadata) // 2, "cases")
