#!/usr/bin/env python3
"""Vocabularies of llama.cpp's sources (models/ggml-vocab-*.gguf), split here and as their .out files have it.
Development only.

    python tests/peers/check_gguf_vocab.py LLAMA.CPP/models

A line a file: = the ids of all its cases, r refused here by the name of what is not built, X a difference, which is
shown; exit code 1 then. For the .gguf that have cases (.inp, parted by a line of their own) beside them.
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MARK = "\n__ggml_vocab_test__\n"


def ids_of(vocabulary, text):
    run = subprocess.run([ROOT / "build/paceline", "tokenize", "--json", "--no-special", "--tokenizer", vocabulary,
                          "--text", text], capture_output=True, text=True)
    return json.loads(run.stdout)["ids"] if run.returncode == 0 else run.stderr.strip()


def main():
    bad = False
    for vocabulary in sorted(pathlib.Path(sys.argv[1]).glob("*.gguf")):
        cases, wanted = (vocabulary.with_name(vocabulary.name + end) for end in (".inp", ".out"))
        if not cases.exists():
            continue
        texts = cases.read_text().split(MARK)[:-1]
        verdict, why = "=", f"{len(texts)} cases"
        for text, line in zip(texts, wanted.read_text().split("\n")):
            ids = ids_of(vocabulary, text)
            if isinstance(ids, str):
                verdict, why = "r", ids
                break
            if ids != [int(i) for i in line.split()]:
                verdict, why = "X", f"{text!r}: {ids}, there {line}"
                break
        bad = bad or verdict == "X"
        print(verdict, vocabulary.name, why)
    return bad


if __name__ == "__main__":
    sys.exit(main())
