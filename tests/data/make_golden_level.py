#!/usr/bin/env python3
"""Writes golden_level.json: a small byte-level BPE model, many tokenizer.json around it (normalizers, pre-tokenizers,
added tokens as real files have them), texts, and the ids that Hugging Face's `tokenizers` gives for them.
Needs: pip install tokenizers==0.23.3"""
import json

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

CORPUS = """the cat sat on the mat and the dog sat on the log, didn't it? She'll say we've 12 of 345.
the rain in the plain stays mainly in the train again and again; HELLO World, I'M here!
for (int i = 0; i < 100; i++) { printf("%d\\n", i); }    // four   spaces\n\n\tand a tab
Größe café naïve Привет мир こんにちは世界 안녕 नमस्ते 🚀🚀 1234567890 2024-11-21 3.14159
"""

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
          r"""|\s*[\r\n]+|\s+(?!\S)|\s+""")
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
         r"""|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
         r"""|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
BLOOM = r""" ?[^(\s|[.,!?…。，、।۔،])]+"""

LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
MAP = {**LEVEL, "use_regex": False}


def split(pattern, behavior="Isolated", invert=False, regex=True):
    return {"type": "Split", "pattern": {"Regex" if regex else "String": pattern}, "behavior": behavior,
            "invert": invert}


def chain(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def token(i, content, special=True, **flags):
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": not special, "special": special, **flags}


def variants(n):
    added = [token(n, "<|end|>"), token(n + 1, "<|mask|>", lstrip=True), token(n + 2, "<|pad|>", rstrip=True),
             token(n + 3, "rain in", special=False), token(n + 4, "cat", special=False, single_word=True),
             token(n + 5, "   ", special=False, normalized=True), token(n + 6, "<|end|>x", special=False)]
    yield None, added
    # skip_added: a token that the normalizer would make nothing of, which `tokenizers` does not survive
    none = dict(normalizer=None, skip_added="", settings={})
    yield "gpt-2", dict(none, pre=LEVEL)
    yield "prefix space", dict(none, pre={**LEVEL, "add_prefix_space": True})
    yield "llama-3", dict(none, pre=chain(split(LLAMA3), MAP), settings={"ignore_merges": True}, bos=n)
    yield "qwen2", dict(none, pre=chain(split(QWEN2), MAP), normalizer={"type": "NFC"})
    yield "o200k", dict(none, pre=chain(split(O200K), MAP))
    yield "gpt-2, by its pattern removed inverted", dict(none, pre=chain(split(GPT2, "Removed", True), MAP))
    yield "deepseek", dict(none, pre=chain(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), MAP))
    yield "bloom", dict(none, pre=chain(split(BLOOM), MAP))
    yield "starcoder", dict(none, pre=chain({"type": "Digits", "individual_digits": True}, LEVEL))
    yield "digits together", dict(none, pre=chain({"type": "Digits", "individual_digits": False}, MAP))
    yield "falcon", dict(none, pre=chain({"type": "Punctuation", "behavior": "Contiguous"}, LEVEL,
                                         {"type": "Digits", "individual_digits": False},
                                         split("[0-9][0-9][0-9]")))
    yield "whitespace", dict(none, pre=chain({"type": "WhitespaceSplit"}, MAP))
    for behavior in ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"):
        for invert in (False, True):
            name = behavior + (" inverted" if invert else "")
            yield name, dict(none, pre=chain(split(r"[\s\d]", behavior, invert), MAP))
            yield name + " string", dict(none, pre=chain(split("a", behavior, invert, False), MAP))
            yield name + " maybe empty", dict(none, pre=chain(split(r"a*", behavior, invert), MAP))
        yield behavior + " punctuation", dict(none, pre=chain({"type": "Punctuation", "behavior": behavior}, MAP))
    yield "classes", dict(none, pre=chain(split(r"[\w&]+|\W|\S"), MAP))
    yield "not a space in a class", dict(none, pre=chain(split(r"[^\S\n]+|(?<=t)h|x{2,}|\x41|\u00e9|[\S]"), MAP))
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield form, dict(none, pre=LEVEL, normalizer={"type": form})
    yield "lower and strip", dict(none, skip_added="   ", pre=LEVEL, normalizer={"type": "Sequence", "normalizers": [
        {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": r"\s{2,}"}, "content": " "},
        {"type": "Replace", "pattern": {"String": "é"}, "content": "e"}]})


TEXTS = ["", " ", "   ", "\n\n", "the cat sat", " The  cat,\r\n\r\n didn't SHE'LL 'S", "cat cats a.cat cat", "Größe CAFE\u0301 naïve",
         "e\u0323\u0301\u212b ﬀ ① ½ Ⅷ ² \u1e9b\u0323 한국어 \u1112\u1161\u11ab", "İstanbul ΣΑΣ", "日本語 こんにちは、世界。 नमस्ते", "🚀👨‍👩‍👧 x",
         "12345 67 8\u0663\u0664 1,234.5", "a <|end|>b<|mask|> c<|pad|>  d <|end|>x \u00a0<|mask|>", "the rain in   the train",
         "\t\t for (i=0;i<10;++i){ }  // x\n    y", "\u00a0\u3000\u2028\u0085 \u200bz\u180e \ufeff", "''' \"\"\"... --- !!!\n\n?",
         "aaaa aaa1aa 1a", "xxxAéB xx th the x{2,}", "we&co_1 — “quoted” don\u2019t", "tu\u017f 'ſ 'RE 're"]


def main():
    tok = tokenizers.Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.train_from_iterator(CORPUS.splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=420, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=1))
    trained = json.loads(tok.to_str())["model"]
    vocab, merges = trained["vocab"], [" ".join(m) if isinstance(m, list) else m for m in trained["merges"]]
    n = len(vocab)
    lines = []
    for name, v in variants(n):
        if name is None:
            added = v
            continue
        head = {"version": "1.0", "truncation": None, "padding": None,
                "normalizer": v["normalizer"], "pre_tokenizer": v["pre"],
                "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
                "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}}
        if "bos" in v:
            head["post_processor"] = {"type": "Sequence", "processors": [head["post_processor"], {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [v["bos"]], "tokens": ["<|end|>"]}}}]}
        model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                 "end_of_word_suffix": "", "fuse_unk": False, **v["settings"]}
        head["added_tokens"] = [t for t in added if t["content"] != v["skip_added"]]
        whole = tokenizers.Tokenizer.from_str(json.dumps({**head, "model": {**model, "vocab": vocab, "merges": merges}}))
        del head["added_tokens"]
        ids = [whole.encode(t, add_special_tokens=False).ids for t in TEXTS]
        bos = len(whole.encode("a").ids) - len(whole.encode("a", add_special_tokens=False).ids)
        lines.append(json.dumps({"name": name, "n_bos": bos, "skip_added": v["skip_added"], "head": json.dumps(head, ensure_ascii=False)[1:-1],
                                 "settings": json.dumps(model)[1:-1], "ids": ids}, ensure_ascii=False,
                                separators=(",", ":")))
    with open("golden_level.json", "w", encoding="utf-8") as f:
        f.write('{"made_by":"make_golden_level.py, Hugging Face tokenizers %s",\n' % tokenizers.__version__)
        f.write('"vocab":%s,\n' % json.dumps(vocab, separators=(",", ":")))
        f.write('"merges":%s,\n' % json.dumps(merges, separators=(",", ":")))
        f.write('"added":%s,\n' % json.dumps(added))
        f.write('"texts":%s,\n"tokenizers":[\n' % json.dumps(TEXTS, ensure_ascii=True))
        f.write(",\n".join(lines) + "]}\n")


main()
