#!/usr/bin/env python3
"""Writes golden_unigram.jsonl: small Unigram tokenizer.json files, texts, and the ids and texts that Hugging Face's
`tokenizers` gives for them. Needs: pip install tokenizers

    python tests/data/make_golden_unigram.py > tests/data/golden_unigram.jsonl
"""
import json

import tokenizers
from tokenizers import models, trainers

from make_golden_hf import CORPUS, PREPEND, REPLACE, token

TEXTS = ["", " ", "the cat", "  the  cat ", "the rain in the plain", "zebra", "catdog", "\u732b\u306f the \u732b\u732b",
         "na\u00efve caf\u00e9", "\U0001f680\U0001f680 the", "hello, world!", "a\nb\tc", "<s>the</s> cat", "xx the mask<mask>yy",
         "ththththeee", "the children ran to the river and played one two three four five six seven eight nine ten",
         "\u00e9", "thethethe", "sat on the log<|end|>  and", "0123456789", "\u2581the"]


def train(byte_fallback):
    tok = tokenizers.Tokenizer(models.Unigram())
    tok.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tok.train_from_iterator(CORPUS.splitlines() * 3, trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    model = json.loads(tok.to_str())["model"]
    vocab = [[p, round(s, 6)] for p, s in model["vocab"]]
    if byte_fallback:
        vocab[3:3] = [[f"<0x{b:02X}>", -12.5 - b / 512] for b in range(256)]
    return {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": byte_fallback}


def variants():
    for byte_fallback in (False, True):
        model = train(byte_fallback)
        n = len(model["vocab"])
        base = {"version": "1.0", "truncation": None, "padding": None,
                "added_tokens": [token(0, "<unk>"), token(1, "<s>"), token(2, "</s>"),
                                 token(n, "<|end|>", rstrip=True), token(n + 1, "<mask>", lstrip=True)],
                "normalizer": {"type": "Sequence", "normalizers": [PREPEND, REPLACE]}, "pre_tokenizer": None,
                "post_processor": None,
                "decoder": {"type": "Sequence", "decoders": [
                    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
                "model": model}
        kind = "bytes" if byte_fallback else "unknown"
        yield f"whole texts, {kind}", base
        for scheme in ("first", "always", "never"):
            for split in (False, True):
                yield f"metaspace {scheme} {'split' if split else 'whole'}, {kind}", {
                    **base, "normalizer": None, "decoder": base["decoder"],
                    "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme,
                                      "split": split}}
        yield f"no fusing across, {kind}", {**base, "normalizer": {"type": "NFKC"}}


def main():
    last = None
    for name, spec in variants():
        tok = tokenizers.Tokenizer.from_str(json.dumps(spec))
        cases = [{"text": t, "ids": tok.encode(t, add_special_tokens=False).ids} for t in TEXTS]
        for c in cases:
            c["decoded"] = tok.decode(c["ids"])
        spec = dict(spec)
        model = spec.pop("model")
        record = {"name": name, "head": spec, "cases": cases}
        if model != last:  # absent: as the line before
            record["model"] = last = model
        print(json.dumps(record, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
