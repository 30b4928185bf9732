#!/usr/bin/env python3
"""Writes golden_hf.h: small tokenizer.json files of the SentencePiece-BPE kind, texts, and the ids and texts that
Hugging Face's `tokenizers` gives for them. Needs: pip install tokenizers==0.19.1 sentencepiece
(0.19: later versions decode special tokens that are `normalized` as their normalised spelling)."""
import copy
import io
import json

import sentencepiece
import tokenizers

CORPUS = """the cat sat on the mat and the dog sat on the log
the rain in the plain stays mainly in the train again and again
a big red ball and a small blue ball were in the old tree house
when the sun came out the children ran to the river and played
one two three four five six seven eight nine ten
"She said: hello, world!" and then he said: 'good night, moon.'
"""


def train():
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines() * 3), model_writer=out, vocab_size=380, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1,
        minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    pieces = [sp.id_to_piece(i) for i in range(sp.get_piece_size())]
    score = {p: sp.get_score(i) for i, p in enumerate(pieces)}
    ids = {p: i for i, p in enumerate(pieces)}
    merges = []
    for p in pieces[259:]:
        splits = [(p[:i], p[i:]) for i in range(1, len(p)) if p[:i] in ids and p[i:] in ids]
        merges += [(a, b, score[p]) for a, b in sorted(splits, key=lambda s: (ids[s[0]], ids[s[1]]))]
    merges.sort(key=lambda m: -m[2])
    return ids, [f"{a} {b}" for a, b, _ in merges]


def token(i, content, special=True, normalized=False, lstrip=False, rstrip=False):
    return {"id": i, "content": content, "single_word": False, "lstrip": lstrip, "rstrip": rstrip,
            "normalized": normalized, "special": special}


PREPEND = {"type": "Prepend", "prepend": "▁"}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def variants(ids, merges):
    n = len(ids)
    base = {
        "added_tokens": [token(0, "<unk>"), token(1, "<s>"), token(2, "</s>"), token(n, "<|end|>", rstrip=True),
                         token(n + 1, "<mask>", lstrip=True), token(n + 2, "the  log", special=False, normalized=True),
                         token(n + 3, "<|end|>x", special=False)],
        "normalizer": {"type": "Sequence", "normalizers": [PREPEND, REPLACE]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                      {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                                     {"type": "ByteFallback"}, {"type": "Fuse"},
                                                     {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    }
    settings = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>", "ignore_merges": False}
    yield "prepend and replace", base, settings
    yield "normalized specials", {**base, "added_tokens": [token(0, "<unk>", normalized=True),
                                                           token(1, "<s>", normalized=True),
                                                           token(2, "</s>", normalized=True)]}, settings
    for scheme in ("first", "always", "never"):
        for split in (False, True):
            v = copy.deepcopy(base)
            v["normalizer"] = None
            v["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
            yield f"metaspace {scheme} {'split' if split else 'whole'}", v, settings
    yield "unknown, fused", base, {**settings, "byte_fallback": False}
    yield "unknown, one by one", base, {**settings, "byte_fallback": False, "fuse_unk": False}
    yield "unknown vanishes", base, {**settings, "byte_fallback": False, "unk_token": None}
    v = copy.deepcopy(base)
    v["normalizer"] = None
    v["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    v["post_processor"] = None
    yield "ignore_merges, no BOS", v, {**settings, "ignore_merges": True}


TEXTS = ["", " ", "   ", "\n", "the cat sat", " the cat", "the  cat ", "The Dog: 12 + 7 = 19!", "naïve café, 日本 😀",
         "▁▁ the", "</s>", "<s>the</s> cat<mask>dog", "a <|end|>  b", "x<|end|>x<|end|> \u3000y", "the \u00a0<mask>x",
         "in the  log the  logs  the log", "<unk>é日<unk>", "again and again\n\tand the rain\r\n", "<0x0A><0xE6>",
         "<|end|><mask><|end|>x", "thethethe onon aaaa  mainly"]


def c_string(s):
    out = []
    for b in s.encode():
        c = chr(b)
        out.append("\\" + c if c in '"\\' else c if 32 <= b < 127 and c != "?" else "\\%03o" % b)
    return "".join(out)


def c_lines(s, indent, end=""):
    text, lines = c_string(s), []
    while text:
        cut = min(len(text), 110 - indent)
        while cut < len(text) and "\\" in text[max(0, cut - 4):cut]:
            cut -= 1
        lines.append(" " * indent + '"' + text[:cut] + '"' + end)
        text = text[cut:]
    return "\n".join(lines) or " " * indent + '""'


def main():
    ids, merges = train()
    model = json.dumps({"vocab": ids, "merges": merges}, ensure_ascii=False, separators=(",", ":"))
    out = ["// Made by make_golden_hf.py with Hugging Face tokenizers %s; do not edit." % tokenizers.__version__,
           "// clang-format off", "#ifndef PL_GOLDEN_HF_H", "#define PL_GOLDEN_HF_H", "",
           "typedef struct golden_case {", "    const char *text;", "    int         n_bytes, n;",
           "    int         ids[64];", "    const char *decoded;", "} golden_case;", "",
           "typedef struct golden_tokenizer {",
           "    const char *name;", "    const char *head;     // the JSON members before \"model\"",
           "    const char *settings; // members of \"model\" before the shared ones", "    int         n_bos;",
           "    golden_case cases[%d];" % len(TEXTS), "} golden_tokenizer;", "",
           "// \"vocab\" and \"merges\" of every model here, in pieces: C promises no longer literals than 4095.",
           "static const char *const golden_model[] = {"]
    out.append(c_lines(model[1:-1], 4, ","))
    out.append("};\n")
    out.append("static const golden_tokenizer golden_tokenizers[] = {")
    for name, head, settings in variants(ids, merges):
        whole = {"version": "1.0", "truncation": None, "padding": None, **head,
                 "model": {"type": "BPE", "dropout": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, **settings, "vocab": ids, "merges": merges}}
        tok = tokenizers.Tokenizer.from_str(json.dumps(whole))
        rest = {k: v for k, v in whole.items() if k != "model"}
        own = {k: v for k, v in whole["model"].items() if k not in ("vocab", "merges")}
        out.append(f'    {{"{name}",')
        out.append(c_lines(json.dumps(rest, ensure_ascii=False, separators=(",", ":"))[1:-1], 5) + ",")
        out.append(c_lines(json.dumps(own, ensure_ascii=False, separators=(",", ":"))[1:-1], 5) + ",")
        out.append("     %d, {" % (len(tok.encode("a").ids) - len(tok.encode("a", add_special_tokens=False).ids)))
        for text in TEXTS:
            got = tok.encode(text, add_special_tokens=False).ids
            assert len(got) <= 64
            out.append("      {" + c_lines(text, 0) + ", %d, %d," % (len(text.encode()), len(got)))
            line = "       {" + ", ".join(map(str, got or [0])) + "},"
            while len(line) > 118:
                cut = line.rfind(", ", 0, 116) + 1
                out.append(line[:cut])
                line = "        " + line[cut + 1:]
            out.append(line)
            out.append(c_lines(tok.decode(got, skip_special_tokens=True), 7) + "},")
        out.append("     }},")
    out += ["};", "", "#endif"]
    with open("golden_hf.h", "w", encoding="ascii") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
