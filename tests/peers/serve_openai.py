#!/usr/bin/env python3
"""The client package `openai` against `paceline serve` (development only; pip install openai):

    python3 tests/peers/serve_openai.py build/paceline [TARGET [--drafter NAME ...]]

Starts the server on a free port with a key and a chat template, and goes through models, chat, completions, streams,
log-probabilities, lists, tools, errors and a client that leaves. Prints one line for each and ends with 1 where one fails.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import openai

TEMPLATE = (
    "{% for t in tools or [] %}{{ t | tojson }} in <tool_call>\n{% endfor %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>"
    "{{ c.function | tojson }}</tool_call>{% endfor %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
HI = [{"role": "user", "content": "Hi"}]
failed = 0


def check(name, ok, shown=""):
    global failed
    failed += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {name} {shown}")


def raises(name, kind, call, param=None):
    try:
        call()
        check(name, False, "no error")
    except kind as e:
        check(name, param is None or e.param == param, f"{e.status_code} {e.message[:90]}")


def whole_and_streamed(name, make, text_of, part_of):
    whole = make(stream=False)
    text, usage, finish = "", None, None
    for chunk in make(stream=True, stream_options={"include_usage": True}):
        if chunk.usage:
            usage = chunk.usage
        for c in chunk.choices:
            text += part_of(c) or ""
            finish = c.finish_reason or finish
    check(f"{name}: streamed = whole", text == text_of(whole), repr(text[:40]))
    check(f"{name}: usage", usage == whole.usage or usage.completion_tokens == whole.usage.completion_tokens, usage)
    check(f"{name}: finish", finish == whole.choices[0].finish_reason, finish)


def tools(chat, model):
    look = {"type": "object", "properties": {"at": {"enum": ["sea", "sky"]}}, "required": ["at"]}
    offered = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": look}}]
    common = dict(model=model, tools=offered, temperature=1, seed=3, parallel_tool_calls=False)
    for choice in ("required", {"type": "function", "function": {"name": "look"}}):
        r = chat(messages=HI, tool_choice=choice, **common).choices[0]
        calls = r.message.tool_calls or []
        ok = all(c.function.name == "look" and json.loads(c.function.arguments)["at"] in ("sea", "sky") for c in calls)
        check("tool calls", ok and calls and r.finish_reason == "tool_calls" and not r.message.content, len(calls))
        got = {}
        for chunk in chat(messages=HI, tool_choice=choice, stream=True, **common):
            for c in chunk.choices[0].delta.tool_calls or []:
                part = got.setdefault(c.index, [c.function.name, ""])
                part[1] += c.function.arguments or ""
        want = [[c.function.name, c.function.arguments] for c in calls]
        check("tool calls: streamed = whole", [got[i] for i in sorted(got)] == want)
    said = [*HI, r.message, {"role": "tool", "tool_call_id": calls[0].id, "content": "blue"}]
    r = chat(messages=said, tool_choice="auto", max_tokens=8, **common)
    check("a tool's result", r.usage.completion_tokens > 0, r.usage.prompt_tokens)
    raises("a tool that is not there", openai.BadRequestError, lambda: chat(
        messages=HI, tool_choice={"type": "function", "function": {"name": "g"}}, **common), "tool_choice")


def run(client, program, target):
    models = client.models.list().data
    model = models[0].id
    check("models", len(models) == 1 and client.models.retrieve(model).id == model, model)
    raises("models.retrieve of another", openai.NotFoundError, lambda: client.models.retrieve("gpt-4"))

    common = dict(model=model, temperature=0, max_tokens=24)
    whole_and_streamed(
        "chat",
        lambda **k: client.chat.completions.create(messages=HI, **common, **k),
        lambda r: r.choices[0].message.content,
        lambda c: c.delta.content,
    )
    whole_and_streamed(
        "completion",
        lambda **k: client.completions.create(prompt="Once upon a time", **common, **k),
        lambda r: r.choices[0].text,
        lambda c: c.text,
    )
    want = subprocess.run(
        [program, "decode", "--quiet", "--target", target, "-p", "Once upon a time", "-n", "24"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout[:-1]
    got = client.completions.create(prompt="Once upon a time", **common).choices[0].text
    check("completion = paceline decode", got == want, repr(got[:40]))
    for extra in ({"off": True}, {"max_tokens": 1}):
        r = client.completions.create(prompt="Once upon a time", **common, extra_body={"speculative": extra})
        check(f"speculative {extra}", r.choices[0].text == want, getattr(r.usage, "speculative_decoding", None))

    r = client.chat.completions.create(messages=HI, **common, n=3, logprobs=True, top_logprobs=2)
    entries = r.choices[0].logprobs.content
    check("n and logprobs", len(r.choices) == 3 and len(entries) == r.usage.completion_tokens // 3, len(entries))
    check("top_logprobs", all(e.top_logprobs[0].logprob >= e.logprob and len(e.top_logprobs) == 2 for e in entries))
    check("bytes", bytes(b for e in entries for b in e.bytes).decode().strip() == r.choices[0].message.content.strip())
    r = client.completions.create(model=model, prompt=["One day", "The dog"], echo=True, max_tokens=0, logprobs=1)
    check("echo of prompts", [c.text for c in r.choices] == ["One day", "The dog"])
    check("log-probabilities of prompts", r.choices[1].logprobs.token_logprobs[0] is None)
    ids = client.completions.create(model=model, prompt=[1, 5460, 730], max_tokens=4, temperature=0)
    check("prompt of ids", len(ids.choices[0].text) > 0 and ids.usage.prompt_tokens == 3, ids.usage.total_tokens)
    stop = got[8:14]
    r = client.completions.create(prompt="Once upon a time", **common, stop=[stop])
    check("stop", r.choices[0].text == got[: got.index(stop)] and r.choices[0].finish_reason == "stop", repr(stop))
    a, b = (client.completions.create(model=model, prompt="One", seed=4, max_tokens=20).choices[0].text for _ in "ab")
    check("seed", a == b, repr(a[:40]))
    r = client.completions.create(model=model, prompt="One", max_tokens=8, temperature=0, logit_bias={"2": -100},
                                  presence_penalty=1, frequency_penalty=0.5, top_p=0.9, user="someone")
    check("penalties, bias, user", len(r.choices[0].text) > 0)
    raw = client.completions.with_raw_response.create(model=model, prompt="One", max_tokens=1, user="someone")
    check("fields without effect are named", raw.headers["x-paceline-ignored"] == "user")

    chat = client.chat.completions.create
    raises("bad temperature", openai.BadRequestError, lambda: chat(model=model, messages=HI, temperature=-1), "temperature")
    tools(chat, model)
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 99},
                                               "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}},
              "required": ["age", "tags"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    for temperature in (0, 1):
        r = chat(model=model, messages=HI, response_format=form, max_tokens=200, temperature=temperature)
        got = json.loads(r.choices[0].message.content)
        check("json_schema", 1 <= got["age"] <= 99 and set(got["tags"]) <= {"a", "b"}, got)
    r = chat(model=model, messages=HI, extra_body={"regex": "(yes|no)!"}, temperature=0)
    check("regex", r.choices[0].message.content in ("yes!", "no!"), r.choices[0].message.content)
    raises("response_format", openai.BadRequestError, lambda: chat(
        model=model, messages=HI, response_format={"type": "xml"}), "response_format")
    raises("schema", openai.BadRequestError, lambda: chat(model=model, messages=HI, response_format={
        "type": "json_schema", "json_schema": {"name": "n", "schema": {"uniqueItems": True}}}), "response_format")
    raises("unknown field", openai.BadRequestError, lambda: chat(model=model, messages=HI, extra_body={"mood": 1}), "mood")
    raises("another model", openai.NotFoundError, lambda: chat(model="gpt-4", messages=HI), "model")
    raises("no messages", openai.BadRequestError, lambda: chat(model=model, messages=[]), "messages")
    raises("long prompt", openai.BadRequestError, lambda: client.completions.create(model=model, prompt=[1] * 5000))
    raises("wrong key", openai.AuthenticationError, lambda: client.with_options(api_key="sk-other").models.list())

    stream = client.completions.create(model=model, prompt="One", max_tokens=1500, stream=True,
                                       extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    check("a client that leaves", client.completions.create(prompt="Once upon a time", **common).choices[0].text == want)


def main():
    program = sys.argv[1]
    target = sys.argv[2] if len(sys.argv) > 2 else "checkpoints/tiny"
    with tempfile.TemporaryDirectory() as folder:
        template, keys = os.path.join(folder, "chat.jinja"), os.path.join(folder, "keys")
        with open(template, "w") as f:
            f.write(TEMPLATE)
        with os.fdopen(os.open(keys, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write("sk-test\n")
        server = subprocess.Popen(
            [program, "serve", "--quiet", "--target", target, "--port", "0", "--api-key-file", keys,
             "--chat-template", template, *sys.argv[3:]],
            stdout=subprocess.PIPE, text=True)
        try:
            url = re.search(r"http://\S+", server.stdout.readline()).group(0)
            began = time.monotonic()
            run(openai.OpenAI(base_url=url + "/v1", api_key="sk-test", max_retries=0), program, target)
            print(f"openai {openai.__version__}: {time.monotonic() - began:.1f} s")
        finally:
            server.terminate()
        check("ends well", server.wait(30) == 0)
    sys.exit(failed > 0)


main()
