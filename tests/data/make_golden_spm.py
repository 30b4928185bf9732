#!/usr/bin/env python3
"""Writes golden_spm.inc: what sentencepiece's Python package gives for the SentencePiece models of the test data.
Usage: make_golden_spm.py TEST_DATA. Needs: pip install sentencepiece"""
import sys

import sentencepiece

MODELS = ["tokenizers/sentencepiece/test_model.model", "tokenizers/sentencepiece/test_ja_model.model",
          "tokenizers/storyllamas4096/tokenizer_4096.model", "tokenizers/llama2/tokenizer.model"]
TEXTS = ["", "Hello  world", " I saw a girl with a telescope.", "ＫＡＤＯＫＡ ① café", "吾輩は猫である。", "a\nb", "</s> 😀"]


def quote(s):
    return '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else "\\%03o" % b for b in s.encode()) + '"'


with open("golden_spm.inc", "w", encoding="ascii") as f:
    f.write("// Made by make_golden_spm.py with sentencepiece %s; do not edit.\n" % sentencepiece.__version__)
    for m in MODELS:
        sp = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1] + "/" + m)
        for t in TEXTS:
            ids = sp.encode(t)
            if len(ids) > 24:
                continue
            back = sp.decode(ids)
            f.write('{"%s",\n %s,\n %s,\n %d, {%s}},\n' % (m, quote(t), "NULL" if back == t else quote(back), len(ids),
                                                        ", ".join(map(str, ids or [0]))))
