#!/usr/bin/env python3
"""Writes golden_tokenizer_files.jsonl: tokenizer.json texts with the files that lie beside them (tokenizer_config.json,
special_tokens_map.json, added_tokens.json), and the ids of some texts that AutoTokenizer of transformers gives for the
folder, with BOS and EOS; and odd vocabularies (U+0000, empty and double pieces), with the ids of `tokenizers`.
Needs: pip install transformers==5.24.0 tokenizers.

A line is {"name", "files": {name: text}, "texts", "ids", "bos", "eos", "warns"}; warns: the files contradict each
other, or a piece stands twice, which the program names in a line."""
import json
import os
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
from tokenizers import Tokenizer  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

TEXTS = ["a<|s|>b", "a <|e|>\n b", "he<|x|> ll t", "<|e|><|s|>"]
CLASS = {"tokenizer_class": "PreTrainedTokenizerFast"}


def token(content, **more):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": True, **more}


def base(added=()):
    pieces = ["<unk>"] + [chr(c) for c in range(33, 127)] + ["▁", "\n", "he", "ll", "▁t", "<|", "|>"]
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": 0, **token("<unk>")}] + [{"id": i, **t} for i, t in added],
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "pre_tokenizer": None,
            "post_processor": None, "decoder": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {p: i for i, p in enumerate(pieces)},
                      "merges": ["h e", "l l", "▁ t", "< |", "| >"]}}


N = len(base()["model"]["vocab"])
S, E, X = "<|s|>", "<|e|>", "<|x|>"
SE = [(N, token(S)), (N + 1, token(E))]
# name, the file's added tokens, tokenizer_config.json, special_tokens_map.json, added_tokens.json, warns
FOLDERS = [
    ("the file alone", SE, None, None, None, False),
    ("the config has them", [], {"added_tokens_decoder": {"0": token("<unk>"), N: token(S), N + 1: token(E)}}, None,
     None, False),
    ("the config states other ids", [], {"added_tokens_decoder": {N + 5: token(E), N + 3: token(S)}}, None, None, True),
    ("the config's keys out of order", [], {"added_tokens_decoder": {N + 1: token(E), N: token(S)}}, None, None, False),
    ("further tokens without ids", [], {"additional_special_tokens": [S, E]}, None, None, False),
    ("further tokens by their new name", [], {"extra_special_tokens": [E, S]}, None, None, False),
    ("further tokens by use", [], {"extra_special_tokens": {"image_token": S}, "eos_token": E}, None, None, False),
    ("a token of the model's own use", [], {"start_token": S, "eos_token": E}, None, None, False),
    ("a token of the model's own use as an object", [],
     {"image_token": {"__type": "AddedToken", **token(S, rstrip=True)}, "start_token": E}, None, None, False),
    ("an object of another type", [], {"image_token": token(S), "eos_token": E}, None, None, False),
    ("tokens of the model's uses as saved", [],
     {"model_specific_special_tokens": {"image_token": E, "audio_token": {"__type": "AddedToken", **token(S)}}}, None,
     None, False),
    ("tokens as saved do not count beside others", [],
     {"model_specific_special_tokens": {"image_token": E}, "start_token": S}, None, None, False),
    ("tokens as saved beside further ones", [],
     {"model_specific_special_tokens": {"image_token": E}, "additional_special_tokens": [S]}, None, None, False),
    ("no further tokens by their new name", [], {"extra_special_tokens": {}, "additional_special_tokens": [S, E]}, None,
     None, False),
    ("an empty list by their new name", [], {"extra_special_tokens": [], "additional_special_tokens": [E]}, None, None,
     False),
    ("EOS without an id", [], {"eos_token": E}, None, None, False),
    ("EOS as an object", [], {"eos_token": {"__type": "AddedToken", **token(E, rstrip=True)}}, None, None, False),
    ("BOS in front by the config alone", [], {"bos_token": S, "eos_token": E, "add_bos_token": True}, None, None, True),
    ("a pad before further tokens", [], {"pad_token": X, "additional_special_tokens": [S]}, None, None, False),
    ("white space swallowed by the config alone", [],
     {"added_tokens_decoder": {N: token(S), N + 1: token(E, lstrip=True, rstrip=True)}}, None, None, False),
    ("white space swallowed by the config, not the file", SE,
     {"added_tokens_decoder": {N: token(S), N + 1: token(E, lstrip=True, rstrip=True)}}, None, None, False),
    ("the file has another id", SE, {"added_tokens_decoder": {N + 1: token(S), N: token(E)}}, None, None, True),
    ("a piece becomes a token", [], {"added_tokens_decoder": {N - 5: token("he", special=False, normalized=True)}}, None,
     None, False),
    ("EOS is a piece", [], {"eos_token": "he"}, None, None, False),
    ("EOS is no special token in the file", [(N, token(E, special=False, rstrip=True))], {"eos_token": E}, None, None,
     False),
    ("a further token is none in the file", [(N, token(E, special=False, rstrip=True))],
     {"additional_special_tokens": [E]}, None, None, False),
    ("the map alone", [], {}, {"eos_token": E, "bos_token": token(S)}, None, False),
    ("the map counts before the config", [], {"eos_token": S}, {"eos_token": E}, None, False),
    ("the map does not count beside the decoder", [], {"eos_token": S, "added_tokens_decoder": {"0": token("<unk>")}},
     {"eos_token": E}, None, False),
    ("further tokens of the map", [], {}, {"additional_special_tokens": [S, E]}, None, False),
    ("added_tokens.json", [], {}, None, {E: N + 1, S: N}, False),
    ("added_tokens.json beside the file's", SE, {}, None, {E: N + 1, X: N + 2}, False),
    ("all of them", [(N, token(X))], {"bos_token": S, "additional_special_tokens": [E, X], "pad_token": "<unk>"}, None,
     None, False),
]


def model(vocab, merges=()):
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
            "decoder": {"type": "Fuse"},
            "model": {"type": "BPE", "unk_token": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                      "merges": list(merges)}}


def unigram(pieces):
    return {**model({}), "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]] + pieces,
                                   "byte_fallback": False}}


def vocabularies():
    three = json.dumps(model({"a": 0, "b": 1, "c": 2}))
    added = model({"a": 0, "b": 1})
    added["added_tokens"] = [{"id": 2, **token("x\0y")}, {"id": 3, **token("")}]
    long = "-1.5000000000000000000000000000000000000000000000000000000000000000000"
    return [
        ("a piece twice", three.replace('"c": 2', '"c": 2, "a": 3'), ["ab", "cab"]),
        ("a line twice", three.replace('"c": 2', '"c": 2, "a": 0'), ["ab", "cab"]),
        ("an empty piece", three.replace('"c": 2', '"": 2'), ["ab", ""]),
        ("U+0000", three.replace('"c": 2', '"\\u0000": 2'), ["ab", "a\0b", "\0\0"]),
        ("U+0000 in a merge", json.dumps(model({"a": 0, "b": 1, "\0": 2, "a\0": 3}, ["a \0"])), ["a\0b", "\0a"]),
        ("U+0000 in a pair", json.dumps(model({"a": 0, "b": 1, "\0": 2, "\0a": 3}, [["\0", "a"]])), ["a\0b", "\0a"]),
        ("U+0000 in an added token, an empty one", json.dumps(added), ["ax\0yb", "ab"]),
        ("a backslash before u0000", json.dumps(model({"\\": 0, "u": 1, "0": 2, "\\u0000": 3, "\0": 4})), ["\\u0000", "\0"]),
        ("a piece twice in Unigram", json.dumps(unigram([["a", -1.0], ["b", -2.0], ["a", -5.0], ["ab", -6.5]])),
         ["ab", "a", "aab"]),
        ("empty and U+0000 in Unigram", json.dumps(unigram([["a", -1.0], ["", -2.0], ["\0", -3.0]])), ["a\0a", "\0"]),
        ("long numbers in Unigram", json.dumps(unigram([["a", -1.0], ["b", -1.0], ["ab", -1.5]])).replace("-1.5", long),
         ["ab", "ba"]),
    ]


def folder(files):
    d = tempfile.mkdtemp()
    for name, text in files.items():
        with open(os.path.join(d, name), "w") as f:
            f.write(text)
    return AutoTokenizer.from_pretrained(d)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "golden_tokenizer_files.jsonl"), "w") as out:
        for name, added, config, special, more, warns in FOLDERS:
            files = {"tokenizer.json": json.dumps(base(added))}
            for file, content in (("tokenizer_config.json", None if config is None else {**CLASS, **config}),
                                  ("special_tokens_map.json", special), ("added_tokens.json", more)):
                if content is not None:
                    files[file] = json.dumps(content)
            t = folder(files)
            out.write(json.dumps({"name": name, "files": files, "texts": TEXTS, "ids": [t(x)["input_ids"] for x in TEXTS],
                                  "bos": -1 if t.bos_token_id is None else t.bos_token_id,
                                  "eos": -1 if t.eos_token_id is None else t.eos_token_id, "warns": warns}) + "\n")
        for name, text, texts in vocabularies():
            t = Tokenizer.from_str(text)
            out.write(json.dumps({"name": name, "files": {"tokenizer.json": text}, "texts": texts,
                                  "ids": [t.encode(x).ids for x in texts], "bos": -1, "eos": -1,
                                  "warns": name.startswith("a piece twice")}) + "\n")


if __name__ == "__main__":
    main()
