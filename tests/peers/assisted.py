#!/usr/bin/env python3
"""A drafter of another vocabulary in paceline and in transformers' assisted generation, on the same pair and the same
prompts, in fp32. Development only.

    python tests/peers/assisted.py TARGET DRAFTER [--prompts F.jsonl] [--limit 16] [-n 64] [--drafts 3]

TARGET, DRAFTER: folders that both programs open. transformers' greedy generation with two tokenizers is SLEM (UAG, with
its look-behind), its sampling TLI (AssistantVocabTranslatorCache), which top_k 1 makes greedy, and which temperature 1
draws. Each of its forwards of the target verifies a draft, the one that reads the prompt too; tokens a forward stand
beside paceline's acceptance length. One line for each method, and what both take for the intersection of the
vocabularies. Exit code 1 where a greedy text is not transformers' plain greedy text and not by two logits closer than
1e-3, or where paceline accepts less by more than two standard errors of the difference over the prompts. Of drawn texts
it says how surprising the target finds a token (nats), beside plain sampling's: texts that verification leaves lossless
are as surprising as those. Where transformers' are not, by three standard errors, what it accepts is no measure.
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation.candidate_generator import AssistantToTargetTranslator

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GAP = 1e-3


class Counted:
    """Forwards of a model."""

    def __init__(self, model):
        self.n, self.forward = 0, model.forward
        model.forward = self

    def __call__(self, *args, **kwargs):
        self.n += 1
        return self.forward(*args, **kwargs)


def ours(program, target, drafter, ids, n, *options):
    run = subprocess.run([program, "decode", "--target", target, "--drafter", drafter, "--prompt-ids",
                          ",".join(map(str, ids)), "-n", str(n), "--dtype", "fp32", "--threads", "1", "--json", *options],
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr.strip().splitlines()[-1])
    said = json.loads(run.stdout)
    shared = re.search(r"(\d+) tokens are in both", run.stderr)
    return said["tokens"], said["stats"]["tokens"], said["stats"]["steps"], shared and int(shared[1])


def opened(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(folder)


def gap(model, ids):
    """Between the two best logits behind a text."""
    with torch.no_grad():
        best = model(torch.tensor([ids])).logits[0, -1].topk(2).values
    return (best[0] - best[1]).item()


def same(name, model, prompt, got, want):
    """Whether two greedy texts are one, or part where two logits are near."""
    k = 0
    while k < min(len(got), len(want)) and got[k] == want[k]:
        k += 1
    if k == min(len(got), len(want)):
        return True
    near = gap(model, prompt + want[:k])
    print(f"{name}: parts at token {k}, two logits {near:.2g} apart")
    return near < GAP


def surprise(model, ids, said):
    """-log p of a text's tokens, added up."""
    if not said:
        return 0.0
    with torch.no_grad():
        p = model(torch.tensor([ids + said])).logits[0, len(ids) - 1:-1].log_softmax(-1)
    return -p[range(len(said)), said].sum().item()


def mean_surprise(texts):
    """Nats a token, and its standard error over the texts."""
    mean, without = ratio(texts)
    m = len(without)
    return mean, ((m - 1) / m * sum((x - statistics.mean(without)) ** 2 for x in without)) ** 0.5


def ratio(pairs):
    """Emitted over cycles, and the jackknife's values without each prompt."""
    emitted, cycles = (sum(p[i] for p in pairs) for i in (0, 1))
    return emitted / cycles, [(emitted - e) / (cycles - c) for e, c in pairs]


def compare(name, a, b):
    """paceline's acceptance length beside transformers'; whether it is no less."""
    (ta, la), (tb, lb) = ratio(a), ratio(b)
    m = len(la)
    d = [x - y for x, y in zip(la, lb)]
    error = ((m - 1) / m * sum((x - statistics.mean(d)) ** 2 for x in d)) ** 0.5
    print(f"{name:<12} paceline {ta:.3f}   transformers {tb:.3f}   difference {ta - tb:+.3f} (standard error {error:.3f})")
    return ta - tb >= -2 * error


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("target")
    p.add_argument("drafter")
    p.add_argument("--prompts", default=os.path.join(ROOT, "data/prompts/heldout.jsonl"))
    p.add_argument("--limit", type=int, default=16)
    p.add_argument("-n", type=int, default=64)
    p.add_argument("--drafts", type=int, default=3)
    p.add_argument("--only", help="one of the methods: \"tli, T=1\"")
    p.add_argument("--program", default=os.path.join(ROOT, "build/paceline"))
    o = p.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    model, tok = opened(o.target)
    count = Counted(model)
    texts = [json.loads(line)["prompt"] for line in open(o.prompts)][:o.limit]
    prompts = [tok(t)["input_ids"] for t in texts]
    plain = {"max_new_tokens": o.n, "do_sample": False}
    good, want = True, []
    for ids in prompts:
        want.append(model.generate(torch.tensor([ids]), **plain)[0, len(ids):].tolist())

    methods = [("slem", "slem, T=0", ["--temperature", "0"], dict(do_sample=False)),
               ("tli", "tli, T=0", ["--temperature", "0"], dict(do_sample=True, top_k=1)),
               ("tli", "tli, T=1", ["--temperature", "1", "--verify", "rejection"],
                dict(do_sample=True, top_k=0, top_p=1.0, temperature=1.0))]
    for kind, name, options, sampling in methods:
        if o.only and name != o.only:
            continue
        drafter, drafter_tok = opened(o.drafter)
        if kind == "tli" and sampling["top_k"] == 1:
            theirs = len(AssistantToTargetTranslator(tok, drafter_tok, model.config.vocab_size)
                         .target_to_assistant_input_ids)
        drafter.generation_config.num_assistant_tokens = o.drafts
        drafter.generation_config.num_assistant_tokens_schedule = "constant"
        drafter.generation_config.assistant_confidence_threshold = 0
        a, b, drawn = [], [], {"plain": [], "paceline": [], "transformers": []}
        for i, ids in enumerate(prompts):
            greedy = sampling.get("top_k", 1) == 1
            for seed in range(1 if greedy else 2):
                torch.manual_seed(seed)
                count.n = 0
                said = model.generate(torch.tensor([ids]), assistant_model=drafter, tokenizer=tok,
                                      assistant_tokenizer=drafter_tok, max_new_tokens=o.n, **sampling)
                said = said[0, len(ids):].tolist()
                b.append((len(said), count.n))
                tokens, emitted, steps, shared = ours(o.program, o.target, f"{kind}:{o.drafter}", ids, o.n, "--tree",
                                                      f"chain:{o.drafts}", "--seed", str(seed), *options)
                a.append((emitted, steps))
                if not greedy:
                    torch.manual_seed(seed + 1000)
                    free = model.generate(torch.tensor([ids]), max_new_tokens=o.n, **sampling)[0, len(ids):].tolist()
                    for who, text in (("plain", free), ("paceline", tokens), ("transformers", said)):
                        drawn[who].append((surprise(model, ids, text), len(text)))
                if greedy:
                    good &= same(f"{name}, prompt {i}, paceline", model, ids, tokens, want[i])
                    good &= same(f"{name}, prompt {i}, transformers", model, ids, said, want[i])
        if kind == "tli" and greedy:
            print(f"both vocabularies: {shared} tokens by paceline, {theirs} by transformers")
        no_less = compare(name, a, b)
        if greedy:
            good &= no_less
            continue
        found = {who: mean_surprise(texts) for who, texts in drawn.items()}
        print(f"{name}: nats a token " + ", ".join(f"{who} {m:.3f} (standard error {e:.3f})"
                                                   for who, (m, e) in found.items()))
        far = {who: abs(m - found["plain"][0]) > 3 * math.hypot(e, found["plain"][1]) for who, (m, e) in found.items()}
        good &= not far["paceline"] and (no_less or far["transformers"])
    sys.exit(not good)


if __name__ == "__main__":
    main()
