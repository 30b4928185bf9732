#!/usr/bin/env python3
"""Chat templates as models publish them, rendered by `paceline tokenize --chat` and by transformers. Development only.

    python tests/peers/check_templates.py --tokenizer MODEL TEMPLATE.jinja...

Every template writes the conversations below (tools, thinking on and off, parts, several turns), each with the same
special tokens and the same date; the text is split by `tokenizers` and here. A line a template: = the same bytes and
ids, e both refuse the conversation, r refused here by the name of what is not built, p parts as
text where transformers prints their list, X a difference, which is shown;
exit code 1 then. The llama.cpp sources hold some fifty templates (models/templates).
"""
import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile

import transformers
from tokenizers import Tokenizer, models
from transformers.utils import chat_template_utils as hf

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DATE = "2026-03-09"


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 9)


hf.datetime = Clock


def function(name, description, properties, required=None):
    parameters = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    function("get_weather", 'Get the current "weather".', {
        "location": {"type": "string", "description": "The city, e.g. Zürich"},
        "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
        "days": {"type": "integer", "default": 1},
        "scale": {"type": "number", "default": 1.0},
        "list": {"type": "array", "items": {"type": "number"}},
    }, ["location"]),
    function("noop", "does nothing", {}),
]


def says(role, content, **more):
    return {"role": role, "content": content, **more}


CALL = {"id": "call00001", "type": "function", "function": {
    "name": "get_weather", "arguments": {"location": "Zürich", "unit": "c", "n": [1, 2.5, None, True]}}}
ANSWER = says("tool", '{"t": 20}', name="get_weather", tool_call_id="call00001")
# messages, tools, add_generation_prompt, variables
CONVERSATIONS = [
    ([says("user", "Hello, <b>world</b> & \"you\" 'all' ☃")], None, True, {}),
    ([says("system", "You are terse."), says("user", "Hi"), says("assistant", "Hello!"),
      says("user", "  spaced \n\n text  ")], None, True, {}),
    ([says("user", "1+1?"), says("assistant", "<think>\nIt is two.\n</think>\n\n2"), says("user", "2+2?"),
      says("assistant", "<think>\nfour\n</think>\n\n4")], None, False, {}),
    ([says("user", "q"), says("assistant", "a", reasoning_content="because"), says("user", "r"),
      says("assistant", "b", reasoning_content="so")], None, False, {}),
    ([says("system", "sys"), says("user", "weather?")], TOOLS, True, {}),
    ([says("user", "weather?"), says("assistant", "", tool_calls=[CALL]), ANSWER, says("assistant", "20 degrees."),
      says("user", "thanks")], TOOLS, True, {}),
    ([says("user", "hi")], None, True, {"enable_thinking": False}),
    ([says("system", "s"), says("user", "hi"), says("assistant", "yo"), says("user", "x")], None, True,
     {"enable_thinking": True, "thinking": True}),
    ([says("user", "multi\nline\n"), says("assistant", "")], None, False, {}),
    ([says("user", "日本語 emoji 😀"), says("assistant", "réponse"), says("user", "fin")], None, True, {}),
    ([says("assistant", "starts odd"), says("user", "x")], None, True, {}),
    ([says("user", [{"type": "text", "text": "part one"}, {"type": "text", "text": "part two"}])], None, True, {}),
    ([says("developer", "dev"), says("user", "x"), says("assistant", "y", thinking="hm"), says("user", "z")], None, True,
     {"reasoning_effort": "high"}),
]


def theirs(tokenizer, text, messages, tools, prompt, variables):
    try:
        return tokenizer.apply_chat_template(messages, tools=tools, chat_template=text, add_generation_prompt=prompt,
                                             tokenize=False, **variables)
    except Exception:
        return None


def ours(program, folder, messages, tools, prompt, variables):
    record = os.path.join(folder, "conversation.jsonl")
    with open(record, "w") as f:
        json.dump({"messages": messages, "tools": tools, "chat_template_kwargs": variables}, f)
    run = subprocess.run([program, "tokenize", "--tokenizer", folder, "--chat", record, "--date", DATE, "--json"] +
                         ["--add-generation-prompt"] * prompt, capture_output=True, text=True)
    if run.returncode == 0:
        c = json.loads(run.stdout)["conversations"][0]
        return c["text"], c["ids"], ""
    return None, None, run.stderr.strip()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("templates", nargs="+")
    ap.add_argument("--tokenizer", required=True, help="a folder with a tokenizer.json; best the model's own")
    ap.add_argument("--program", default=os.path.join(ROOT, "build", "paceline"))
    a = ap.parse_args()
    config = json.load(open(os.path.join(a.tokenizer, "tokenizer_config.json")))
    special = {k: v if isinstance(v, str) else v["content"] for k in ("bos_token", "eos_token") if (v := config.get(k))}
    tokenizer = Tokenizer.from_file(os.path.join(a.tokenizer, "tokenizer.json"))
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **special)
    wrong = refused = 0
    for path in a.templates:
        text = open(path, newline="").read()
        line = ""
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.abspath(os.path.join(a.tokenizer, "tokenizer.json")), os.path.join(folder, "tokenizer.json"))
            json.dump(special, open(os.path.join(folder, "tokenizer_config.json"), "w"))
            open(os.path.join(folder, "chat_template.jinja"), "w", newline="").write(text)
            for i, c in enumerate(CONVERSATIONS):
                want, (got, ids, why) = theirs(whole, text, *c), ours(a.program, folder, *c)
                unbuilt = got is None and "not built" in why
                # Parts are joined, as vLLM does, where transformers prints a Python list.
                joined = want is not None and "[{'type': 'text'" in want and got is not None
                same = want == got and bool(ids) and tokenizer.encode(want, add_special_tokens=False).ids == ids
                line += "e" if want is None and got is None else "r" if unbuilt else "p" if joined else "=" if same else "X"
                if line[-1] == "X":
                    print(f"{os.path.basename(path)} {i}: wanted {want!r}, got {got!r} {why}")
        wrong += "X" in line
        refused += "r" in line
        print(line, os.path.basename(path))
    print(f"{len(a.templates)} templates, {wrong} differ, {refused} use what is not built")
    sys.exit(wrong > 0)


main()
