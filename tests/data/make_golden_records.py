#!/usr/bin/env python3
"""Writes golden_records.jsonl: records under templates as transformers' own apply_chat_template renders them, with all
that it does to messages before a template sees them (null members, names of reasoning, checks of tools and documents).

    python tests/data/make_golden_records.py > tests/data/golden_records.jsonl   (transformers 5.24, jinja2; development only)

A line has "template", "text" or, where transformers fails, "error", and last "record". Tokens: bos_token "<s>".
"""
import json
import logging

import transformers
from tokenizers import Tokenizer, models

logging.disable(logging.WARNING)
TEMPLATES = {
    "prints": "{%- for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{%- if add_generation_prompt %}[assistant] {% endif %}",
    "adds": "{%- for m in messages %}{{ '[' + m['role'] + '] ' + m['content'] + '\n' }}{% endfor %}",
    "knows": "{%- for m in messages %}[{{ m.role }}] {% if m.content is string %}{{ m.content }}{% else %}"
             "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}\n{% endfor %}",
    "members": "{%- for m in messages %}{{ m | tojson }}\n{% endfor %}",
    "calls": "{%- for m in messages %}[{{ m.role }}] {{ m.content or '' }}{% if 'tool_calls' in m %}{{ m.tool_calls | length }}"
             "{% for c in m.tool_calls %}<{{ c.function.name }}{% for k, v in c.function.arguments | items %} {{ k }}={{ v }}"
             "{% endfor %}>{% endfor %}{% endif %}\n{% endfor %}",
    "thinks": "{%- for m in messages %}[{{ m.role }}]{% if m.reasoning_content is string %}<think>{{ m.reasoning_content }}"
              "</think>{% endif %}{{ m.content }}\n{% endfor %}",
    "analysis": "{%- for m in messages %}[{{ m.role }}]{% if 'thinking' in m %}<{{ m.thinking }}>{% endif %}{{ m.content }}\n{% endfor %}",
    "tools": "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% if documents %}{% for d in documents %}"
             "{{ d.title }}:{{ d.text }};{% endfor %}{% endif %}{{ messages | length }}",
    "llama": "{%- for m in messages %}{% if m.role == 'tool' or m.role == 'ipython' %}<ipython>"
             "{% if m.content is mapping or (m.content is iterable and m.content is not string) %}{{ m.content | tojson }}"
             "{% else %}{{ m.content }}{% endif %}{% else %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}",
}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": 1.0}}}


def says(role, content, **more):
    return {"role": role, "content": content, **more}


def talk(*messages, **beside):
    return {"messages": list(messages), **beside}


RECORDS = [
    talk(says("user", "a"), says("assistant", "b"), says("user", "c")),
    talk(says("user", None)), talk({"role": "user"}), talk(says("user", "a", name=None, weight=None)),
    talk(says("user", "a"), says("assistant", None, tool_calls=[CALL]), says("tool", "r", tool_call_id="x")),
    talk(says("user", "a"), says("assistant", "b", tool_calls=None), says("user", "c")),
    talk(says("user", "a"), says("assistant", "b", tool_calls=[]), says("user", "c")),
    talk(says("user", "a"), {"role": "assistant", "tool_calls": [CALL, CALL]}, says("tool", "r"), says("tool", "s")),
    talk(says("user", "a"), says("assistant", "b", reasoning_content="r"), says("user", "c")),
    talk(says("user", "a"), says("assistant", "b", reasoning="r"), says("user", "c")),
    talk(says("user", "a"), says("assistant", "b", thinking="r"), says("user", "c")),
    talk(says("user", "a"), says("assistant", "b", reasoning=None, thinking="r"), says("user", "c")),
    talk(says("user", "a"), says("assistant", "b", reasoning="x", thinking="y", reasoning_content="z"), says("user", "c")),
    talk(says("user", "a"), says("assistant", "b", reasoning_content="", thinking="y"), says("user", "c")),
    talk(says("user", "a"), says("assistant", "", thinking={"deep": [1, 2.0]}), says("user", "c")),
    talk(says("developer", "d"), says("user", "a"), says("assistant", "b"), says("developer", "e"), says("user", "c")),
    talk(says("user", "a"), says("assistant", "b"), says("ipython", "r"), says("assistant", "c")),
    talk(says("user", "a"), says("assistant", "b"), says("observation", "r"), says("assistant", "c")),
    talk(says("user", "a"), says("assistant", "b"), says("tool", {"k": [1, 2.0, None]}), says("assistant", "c")),
    talk(says("user", "a"), tools=[{"type": "function", "function": {"name": "f", "parameters": {"x": 1.0}}}]),
    talk(says("user", "a"), tools=[]), talk(says("user", "a"), tools=None), talk(says("user", "a"), tools=[1]),
    talk(says("user", "a"), tools=["f"]), talk(says("user", "a"), tools={"name": "f"}),
    talk(says("user", "a"), documents=[{"title": "t", "text": "x"}, {"title": "u", "text": "y"}]),
    talk(says("user", "a"), documents=["x"]), talk(says("user", "a"), documents=[]),
]
# Parts of text are the same in transformers where the template goes through them.
PARTS = [
    talk(says("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), says("assistant", "c")),
    talk(says("user", [{"text": "a"}]), says("assistant", [{"type": "text", "text": "c"}])),
]


def main():
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>")
    for name, template in TEMPLATES.items():
        for record in RECORDS + (PARTS if name == "knows" else []):
            line = {"template": template}
            more = {k: v for k, v in record.items() if k != "messages"}
            try:
                line["text"] = tokenizer.apply_chat_template(record["messages"], chat_template=template, tokenize=False,
                                                             add_generation_prompt=True, **more)
            except Exception as e:
                line["error"] = type(e).__name__
            line["record"] = record  # last, where the test cuts it out as it is written
            print(json.dumps(line, ensure_ascii=False))


main()
