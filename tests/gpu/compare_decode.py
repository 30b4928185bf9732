#!/usr/bin/env python3
"""Logits of a random Llama-shaped target and of an EAGLE-3 drafter: the program's on a device beside PyTorch's.

The truth is PyTorch in float64 on the same bf16 weights. The budget is the project's: an error of at most twice what
the naive computation in bf16 has (PyTorch, everything in bf16, on the same device), as |x - truth| / |truth| over all
rows. Prints a line for each result and exits 1 where one is over budget.

  compare_decode.py --dump build/dump_forward --device cuda:0 [--shape llama3.2-1b] [--layers N] [--rows 48]"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch

import torch_model as tm


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dump", required=True, help="the program dump_forward")
    p.add_argument("--device", default="cpu", help="of the program: cpu, emulated, cuda:N")
    p.add_argument("--shape", default="tiny", choices=list(tm.SHAPES))
    p.add_argument("--layers", type=int)
    p.add_argument("--rows", type=int, default=48, help="tokens that the target reads")
    p.add_argument("--steps", type=int, default=6, help="of the drafter, the first over all rows")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--spoil", action="store_true", help="the program gets a final norm that is 5 %% off: must be seen")
    p.add_argument("--library-path", help="LD_LIBRARY_PATH of the program")
    return p.parse_args()


def off(x, truth):
    x, truth = x.double(), truth.double()
    return float((x - truth).norm() / truth.norm())


def main():
    a = parse()
    s = dict(tm.SHAPES[a.shape])
    s["layers"] = a.layers or s["layers"]
    where = a.device if a.device.startswith("cuda") else "cpu"
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    weights = tm.random_weights(tm.target_shapes(s), where, a.seed)
    drafter = tm.random_weights(tm.drafter_shapes(s), where, a.seed + 1)
    ids = [(7919 * i + 13 * a.seed) % s["vocab"] for i in range(a.rows + a.steps)]

    def run(dtype):
        w, e = ({k: v.to(dtype) for k, v in one.items()} for one in (weights, drafter))
        tokens = torch.tensor(ids, device=where)
        logits, features = tm.target_forward(s, w, tokens[:a.rows])
        taken_in, ahead = tm.drafter_forward(s, e, w["model.embed_tokens.weight"], tokens, features, a.steps)
        return {"target": logits.cpu(), "features": features.cpu(), "drafter, taken in": taken_in.cpu(),
                "drafter, ahead": ahead.cpu()}

    truth, naive = run(torch.float64), run(torch.bfloat16)
    with tempfile.TemporaryDirectory() as d:
        folder = pathlib.Path(d)
        if a.spoil:
            weights["model.norm.weight"] = (weights["model.norm.weight"].float() * 1.05).to(torch.bfloat16)
        tm.write_model(folder / "target", s, weights, a.rows + a.steps + 64)
        tm.write_model(folder / "drafter", s, drafter, a.rows + a.steps + 64, drafter=True)
        del weights, drafter
        env = dict(os.environ)
        if a.library_path:
            env["LD_LIBRARY_PATH"] = a.library_path
        out = folder / "out.f32"
        r = subprocess.run([a.dump, a.device, folder / "target", folder / "drafter", ",".join(map(str, ids)),
                            str(a.steps), out], env=env, stdout=subprocess.PIPE, text=True)
        if r.returncode != 0:
            sys.exit(f"{a.dump} failed with {r.returncode}")
        said = json.loads(r.stdout)
        assert said["rows"] == a.rows and said["vocab"] == s["vocab"], said
        x = torch.from_numpy(np.fromfile(out, dtype=np.float32))
    assert torch.isfinite(x).all(), "not all of it is numbers"
    bad = 0
    for name, want in truth.items():
        got, x = x[:want.numel()].view(want.shape), x[want.numel():]
        ours, theirs = off(got, want), off(naive[name], want)
        same = float((got.argmax(-1) == want.argmax(-1)).float().mean())
        good = ours <= 2 * theirs and np.isfinite(ours)
        bad += not good
        print(f"{name:20s} error {ours:.2e}, PyTorch's in bf16 {theirs:.2e}, argmax as float64's {100 * same:.1f} %, "
              f"{'within' if good else 'OVER'} budget")
    assert x.numel() == 0, f"{x.numel()} values too many"
    print(f"compare_decode: {len(truth) - bad} of {len(truth)} within budget: {a.shape}, {s['layers']} layers, "
          f"{a.rows} rows on {a.device}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
