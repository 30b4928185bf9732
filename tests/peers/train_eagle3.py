#!/usr/bin/env python3
"""EAGLE-3 drafters trained by the speculators library and by paceline, decoded by paceline. Development only.

    python tests/peers/train_eagle3.py --target checkpoints/tiny --steps 300 --seeds 3

Both learn from one dataset, the target's answers to the quickstart's prompts: the same taps, rows a step, steps, unroll,
learning rate with its warm-up and cosine, decay over the unroll, forward KL, AdamW without decay, clipping. speculators'
Eagle3DraftModel runs eagerly in fp32, in a loop of this file (its own trainer wants a GPU and vLLM), on features that
transformers computes from the same tokens; its output matrix is the target's, which it does not train. Its heads are
imported, and all heads decode the held-out prompts greedily by the same chain. Told: acceptance length by seed, and the
seconds that training took, without what comes before it.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import time

import h5py
import torch
import transformers
from speculators.models.eagle3 import Eagle3DraftModel

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "build/paceline"
RECIPE = """kind: drafter
seed: 1
target: {{path: {target}}}
data: {{prompts: data/prompts/train.jsonl, max_new_tokens: 128, greedy: true, samples: 2, temperature: 1}}
drafters: [{drafters}]
train: {{steps: {steps}, slots: 1, slot_rows: {rows}, unroll: {unroll}, lr: {lr}, warmup: {warmup}, weight_decay: 0,
        clip: 0.5, step_decay: {decay}, eval_every: {steps}, checkpoint_every: {steps}}}
eval: {{prompts: data/prompts/heldout.jsonl, max_new_tokens: 128, repeats: 1, plain_fp32: false,
       tree: "chain:{unroll}", drafters: [{imported}]}}
"""


def paceline(*args):
    subprocess.run([PROGRAM, *map(str, args)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


class Documents:
    """The dataset's tokens and masks, and what transformers computes of them."""

    def __init__(self, folder, target, taps):
        self.target, self.taps, self.docs = target, taps, []
        for shard in sorted(folder.glob("shard-*.h5")):
            with h5py.File(shard) as f:
                ids, mask, at = f["tokens"][:], f["loss_mask"][:], f["doc_offsets"][:]
            self.docs += [(torch.from_numpy(ids[a:b]).long(), torch.from_numpy(mask[a:b]).bool())
                          for a, b in zip(at, at[1:])]

    @torch.inference_mode()
    def features(self, i):
        """Inputs of the tapped layers side by side, and the last hidden before its norm: (x1, g0, y1, l1)."""
        ids, mask = self.docs[i]
        last = []
        hook = self.target.model.norm.register_forward_pre_hook(lambda module, args: last.append(args[0][0]))
        hidden = self.target.model(ids[None], output_hidden_states=True).hidden_states
        hook.remove()
        g = torch.cat([hidden[t][0] for t in self.taps], -1).bfloat16()
        return ids[1:], g[:-1], last[0][1:].bfloat16(), mask[1:]


def rows_of(documents, cache, order, rows):
    """Documents one behind the other, as many as fit into so many rows; the last one is cut."""
    parts, n = [], 0
    while n < rows:
        i = next(order)
        if i not in cache:
            cache[i] = documents.features(i)
        room = rows - n
        parts.append([x[:room] for x in cache[i]])
        n += len(parts[-1][0])
    ids, g, y, mask = (torch.cat(x)[None] for x in zip(*parts))
    of = torch.cat([torch.full((len(p[0]),), k) for k, p in enumerate(parts)])[None]
    at = torch.cat([1 + torch.arange(len(p[0])) for p in parts])[None]
    return ids, g.float(), y.float(), mask, of, at


def shuffled(n, seed):
    g = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(n, generator=g).tolist()


def kl_div(logits, targets, **_):
    """speculators' own is a Triton kernel, which wants a GPU."""
    p, q = (torch.nn.functional.log_softmax(x, -1) for x in (targets, logits))
    return torch.nn.functional.kl_div(q, p, reduction="none", log_target=True).sum(-1)


def train(a, seed, documents, cache, taps, out):
    torch.manual_seed(seed)
    config = transformers.AutoConfig.from_pretrained(a.target)
    config.num_hidden_layers = 1
    m = Eagle3DraftModel.from_training_args(
        config, draft_vocab_size=config.vocab_size, norm_before_residual=False, ttt_steps=a.unroll,
        verifier_name_or_path=str(a.target), target_layer_ids=taps, draft_attn_impl="eager")
    m.load_verifier_weights()
    m.train()
    weights = [p for p in m.parameters() if p.requires_grad]
    adam = torch.optim.AdamW(weights, lr=a.lr, betas=(0.9, 0.95), weight_decay=0)
    order = shuffled(len(documents.docs), seed)
    seconds, metrics = 0.0, {}
    for step in range(a.steps):
        batch = rows_of(documents, cache, order, a.rows)  # features are made before the clock: ours are stored
        t0 = time.perf_counter()
        ids, g, y, mask, of, at = batch
        rate = min((step + 1) / a.warmup, 0.5 * (1 + math.cos(math.pi * step / a.steps)))
        for group in adam.param_groups:
            group["lr"] = a.lr * rate
        _, loss, metrics = m(g, ids, of, loss_mask=mask, position_ids=at, verifier_last_hidden_states=y,
                             ttt_steps=a.unroll, ttt_step_loss_decay=a.decay, loss_config={"kl_div": (kl_div, 1.0)})
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 0.5)
        adam.step()
        seconds += time.perf_counter() - t0
        if (step + 1) % 50 == 0:
            print(f"  speculators, seed {seed}, step {step + 1}: loss {loss.item():.3f}, {seconds:.0f} s", flush=True)
    m.save_pretrained(out)
    return seconds


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", type=pathlib.Path, default=ROOT / "checkpoints/tiny")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--rows", type=int, default=512)
    p.add_argument("--unroll", type=int, default=4)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--warmup", type=int, default=30)
    p.add_argument("--decay", type=float, default=0.8)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--out", type=pathlib.Path, required=True)
    a = p.parse_args()
    a.target = a.target.resolve()
    a.out.mkdir(parents=True)
    out = a.out.resolve()
    torch.set_num_threads(os.cpu_count())
    seeds = range(1, a.seeds + 1)

    def recipe(name, drafters, imported=()):
        (out / name).write_text(RECIPE.format(
            drafters=", ".join(drafters), imported=", ".join(imported), target=a.target, steps=a.steps, rows=a.rows,
            unroll=a.unroll, lr=a.lr, warmup=a.warmup, decay=a.decay))
        return out / name

    paceline("generate", recipe("data.yaml", []), "--out", out / "run")
    taps = json.loads((out / "run/dataset/manifest.json").read_text())["attributes"]["tap_layer_ids"]
    target = transformers.AutoModelForCausalLM.from_pretrained(a.target, dtype=torch.float32)
    documents, cache = Documents(out / "run/dataset", target, taps), {}

    took = {"paceline": [], "speculators": []}
    for s in seeds:  # in turns
        t0 = time.perf_counter()
        paceline("train", recipe("own.yaml", []), "--set", f"data.dataset={out}/run/dataset", "--set", f"seed={s}",
                 "--out", out / f"own-{s}")
        took["paceline"].append(time.perf_counter() - t0)
        took["speculators"].append(train(a, s, documents, cache, taps, out / f"theirs-{s}"))
        paceline("import", out / f"theirs-{s}", "--target", a.target, "--out", out / f"imported-{s}")
    heads = [(f"paceline-{s}", out / f"own-{s}/checkpoints/last") for s in seeds]
    heads += [(f"speculators-{s}", out / f"imported-{s}") for s in seeds]
    listed = [f"{{path: {path}, name: {name}}}" for name, path in heads]
    paceline("eval", recipe("eval.yaml", [], listed), "--out", out / "eval")

    results = json.loads((out / "eval/results.json").read_text())
    print("head           acceptance length (95 %)")
    for m in results["methods"]:
        if m["name"] in dict(heads):
            print(f"{m['name']:14} {m['acceptance_length']:.3f} ({m['acceptance_length_low']:.3f} to "
                  f"{m['acceptance_length_high']:.3f})"
                  f"{'' if m['identical_outputs'] else '  OUTPUTS DIFFER'}")
    for name, seconds in took.items():
        print(f"{name}: {', '.join(f'{x:.0f}' for x in seconds)} s of training, {a.steps} steps of {a.rows} rows")


if __name__ == "__main__":
    main()
