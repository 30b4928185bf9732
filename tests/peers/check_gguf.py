#!/usr/bin/env python3
"""`paceline export --to gguf` beside llama.cpp's own converter, tensor by tensor and key by key. Development only.

    python tests/peers/check_gguf.py CHECKPOINT --target checkpoints/tiny --served TARGET.gguf --llama-cpp SOURCES

CHECKPOINT: an EAGLE-3 drafter trained here. Its export for vLLM is what the converter reads. Exit code 1 where a tensor
differs, or a key of the drafter's own; keys that name the file or come from the served target's file are told.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGUFReader

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def fields(reader):
    return {k: [bytes(p) if p.dtype == np.uint8 else p.tolist() for p in (f.parts[i] for i in f.data)]
            for k, f in reader.fields.items() if not k.startswith("GGUF.")}


def compare(ours, theirs):
    a, b = GGUFReader(ours), GGUFReader(theirs)
    keys, other = fields(a), fields(b)
    bad = 0
    for k in sorted(set(keys) | set(other)):
        if keys.get(k) == other.get(k):
            continue
        own = k.startswith("eagle3.") or k == "general.architecture"
        bad += own
        print(f"{'X' if own else ' '} {k}: {str(keys.get(k))[:60]} here, {str(other.get(k))[:60]} there")
    mine, yours = ({t.name: t for t in r.tensors} for r in (a, b))
    for name in sorted(set(mine) | set(yours)):
        x, y = mine.get(name), yours.get(name)
        same = x is not None and y is not None and x.tensor_type == y.tensor_type and np.array_equal(x.data, y.data)
        bad += not same
        print("=" if same else "X", name)
    print(f"{len(mine)} tensors, {bad} differences")
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkpoint")
    p.add_argument("--target", required=True)
    p.add_argument("--served", required=True)
    p.add_argument("--llama-cpp", required=True)
    p.add_argument("--paceline", default=os.path.join(ROOT, "build", "paceline"))
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        run = lambda *args, **k: subprocess.run(args, check=True, stdout=subprocess.DEVNULL, **k)
        run(a.paceline, "export", a.checkpoint, "--to", "gguf", "--target", a.served, "--out", f"{d}/g", "--weights",
            "fp32")
        run(a.paceline, "export", a.checkpoint, "--to", "vllm", "--target", a.target, "--out", f"{d}/v")
        run(sys.executable, os.path.join(a.llama_cpp, "convert_hf_to_gguf.py"), f"{d}/v", "--target-model-dir", a.target,
            "--outtype", "f32", "--outfile", f"{d}/theirs.gguf", stderr=subprocess.DEVNULL,
            env=dict(os.environ, PYTHONPATH=os.path.join(a.llama_cpp, "gguf-py")))
        sys.exit(compare(f"{d}/g/drafter.gguf", f"{d}/theirs.gguf") > 0)


if __name__ == "__main__":
    main()
