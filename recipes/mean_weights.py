#!/usr/bin/env python3
"""A model whose weights are the weighted mean of others' of the same shape, rounded to bf16 once. Development only.

    python recipes/mean_weights.py --out DIR A:1 B:2

The other files are A's. Two models of which one was trained on from the other are often better together than either:
so the built-in target was made (tiny-target-own.yaml).
"""
import argparse
import json
import pathlib
import shutil

import numpy as np


def read(folder):
    data = (folder / "model.safetensors").read_bytes()
    n = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:n])
    assert all(t["dtype"] == "BF16" for k, t in header.items() if k != "__metadata__"), f"{folder}: not bf16"
    values = np.frombuffer(data[n:], np.uint16).astype(np.uint32) << 16
    return data[:n], values.view(np.float32).astype(np.float64)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("models", nargs="+", metavar="DIR:WEIGHT")
    a = p.parse_args()
    models = [(pathlib.Path(m.rpartition(":")[0]), float(m.rpartition(":")[2])) for m in a.models]
    total, mean, first = sum(w for _, w in models), 0, None
    for folder, weight in models:
        header, values = read(folder)
        first = first or header
        assert header == first, f"{folder}: other tensors than {models[0][0]} has"
        mean = mean + values * (weight / total)
    bits = mean.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)  # to nearest, ties to even
    shutil.copytree(models[0][0], a.out)
    (a.out / "model.safetensors").write_bytes(first + rounded.tobytes())


if __name__ == "__main__":
    main()
