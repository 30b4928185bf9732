#!/usr/bin/env python3
"""Prefill and few rows by paceline and by PyTorch (transformers), in turns in one run. Development only.

    python tests/peers/prefill.py --shape llama3.2-1b
    python tests/peers/prefill.py --shape llama3.2-1b --layers 4 --rounds 5

Both read one folder of random weights in bf16, a Llama of that shape. Told of both, medians over rounds: tokens per
second of a prompt of --context tokens, and the time of a forward over 1, 16 and 60 rows behind it. paceline's share of
the measured peak of its arithmetic stands beside.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import torch
import transformers

SHAPES = {  # as infer/bench/shapes.c has them
    "llama3.2-1b": dict(vocab_size=128256, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32,
                        num_key_value_heads=8, intermediate_size=8192, head_dim=64, tie_word_embeddings=True),
    "tiny": dict(vocab_size=16384, hidden_size=256, num_hidden_layers=16, num_attention_heads=4,
                 num_key_value_heads=2, intermediate_size=704, head_dim=64, tie_word_embeddings=False),
}
ROWS = (1, 16, 60)


def flops(c, tokens):
    """Of a prompt: products of the layers for each token, attention over half of them, the output matrix once."""
    d, f, h, kv, hd = (c[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads",
                                      "num_key_value_heads", "head_dim"))
    layer = 2 * tokens * (d * (h + 2 * kv) * hd + h * hd * d + 3 * d * f) + 2 * tokens * tokens * h * hd
    return c["num_hidden_layers"] * layer + 2 * d * c["vocab_size"]


@torch.inference_mode()
def theirs(model, context):
    ids = torch.randint(0, model.config.vocab_size, (1, context))
    t0 = time.perf_counter()
    out = model(ids, use_cache=True, logits_to_keep=1)
    took = {"prefill": time.perf_counter() - t0}
    for rows in ROWS:
        t0 = time.perf_counter()
        model(ids[:, :rows], past_key_values=out.past_key_values, use_cache=True)
        took[rows] = time.perf_counter() - t0
        out.past_key_values.crop(-rows)
    return took


def ours(program, folder, context, threads):
    out = subprocess.run([program, "bench", "decode", "--target", folder, "--context", str(context), "--new-tokens", "4",
                          "--repeats", "1", "--json"], check=True, capture_output=True, text=True,
                         env=dict(os.environ, PACELINE_THREADS=str(threads))).stdout
    j = json.loads(out)
    plain = next(d for d in j["decode"] if d["name"] == "plain")
    took = {"prefill": context / plain["prefill_tokens_per_second"]}
    took.update({v["rows"]: v["seconds"] for v in j["verify"] if v["rows"] in ROWS})
    return took, j["machine"], j["commit"]


def main():
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    ap = argparse.ArgumentParser()
    ap.add_argument("--paceline", default=os.path.join(here, "build", "paceline"))
    ap.add_argument("--shape", choices=SHAPES, default="llama3.2-1b")
    ap.add_argument("--layers", type=int)
    ap.add_argument("--context", type=int, default=512)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    c = dict(SHAPES[a.shape])
    c["num_hidden_layers"] = a.layers or c["num_hidden_layers"]
    config = transformers.LlamaConfig(max_position_embeddings=4096, bos_token_id=1, eos_token_id=2, **c)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {a.threads} threads; {a.shape}, "
          f"{c['num_hidden_layers']} layers, bf16, prompt of {a.context}")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        theirs(model, a.context)
        us, them = [], []
        for _ in range(a.rounds):
            took, machine, commit = ours(a.paceline, folder, a.context, a.threads)
            us.append(took)
            them.append(theirs(model, a.context))
    mine, other = (statistics.median(t["prefill"] for t in side) for side in (us, them))
    rate = flops(c, a.context) / mine
    print(f"prefill: paceline {a.context / mine:.0f} tokens/s ({100 * rate / machine['peak_bf16_flops']:.0f} % of the "
          f"peak), PyTorch {a.context / other:.0f}, ratio {other / mine:.2f}")
    for rows in ROWS:
        mine, other = (statistics.median(t[rows] for t in side) for side in (us, them))
        print(f"{rows} rows: paceline {1e3 * mine:.1f} ms, PyTorch {1e3 * other:.1f} ms, ratio {other / mine:.2f}")
    print(f"commit {commit}, {machine['cpu']}, {machine['backend']}")


if __name__ == "__main__":
    main()
