#!/usr/bin/env python3
"""Mixed load on `paceline serve`: no answer has another's text, memory and descriptors stay (development only).

    python3 tests/peers/serve_soak.py build/paceline [--seconds 180] [--clients 16] [--connections 10000] [TARGET]
                                      [-- SERVE OPTIONS]

Requests are drawn: completions, chats with tools, JSON schemas and llama.cpp's /completion, whole and streamed. Of the
clients 10 % leave in the middle, 5 % read slowly and 5 % send what is no request. Texts at temperature 0 are compared
with those that the server gave alone at the start. Afterwards connections are opened and dropped, and the server is
killed under load (SIGKILL) and started again on its port. Prints a line each ten seconds and ends with 1 where one fails.
"""
import argparse
import collections
import json
import os
import random
import re
import socket
import subprocess
import tempfile
import threading
import time

TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }} in <tool_call>\n{% endfor %}{% for m in messages %}"
    "{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
PROMPTS = ["Once upon a time", "The dog was", "One day", "Lily had a red", "In the forest", "Tom and Mia", "A big bear"]
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 99},
                                           "kind": {"enum": ["dog", "cat"]}}, "required": ["age", "kind"]}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
MALFORMED = [b"\x00\xff\x13 nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\n",
             b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{\"a\":",
             b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", b"A" * 70000]


def bodies():
    """All requests, as (path, body); a body's answer at temperature 0 is always the same."""
    for prompt in PROMPTS:
        chat = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 24}
        yield "/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 24, "logprobs": 1}
        yield "/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 40, "stop": ["the"], "n": 2}
        yield "/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 60, "json_schema": SCHEMA}
        yield "/v1/chat/completions", chat
        yield "/v1/chat/completions", {**chat, "tools": TOOLS, "tool_choice": "required", "max_tokens": 60,
                                       "parallel_tool_calls": False}
        yield "/completion", {"prompt": prompt, "temperature": 0, "n_predict": 24, "speculative": {"off": True}}


def parts(answer):
    """What depends on the text alone."""
    if isinstance(answer, dict) and "content" in answer:
        return answer["content"]
    texts = []
    for c in answer["choices"]:
        m = c.get("message", {})
        calls = [(t["function"]["name"], t["function"]["arguments"]) for t in m.get("tool_calls") or []]
        texts.append([c.get("text"), m.get("content"), calls, c["finish_reason"]])
    return texts


def joined(events):
    """The same of a stream."""
    choices, content = {}, ""
    for e in events:
        content += e.get("content") or ""
        for c in e.get("choices", []):
            d = c.get("delta", {})
            to = choices.setdefault(c["index"], ["", "", [], None])
            to[0] += c.get("text") or ""
            to[1] += d.get("content") or ""
            to[2] += [(t["function"]["name"], t["function"]["arguments"]) for t in d.get("tool_calls") or []]
            to[3] = c["finish_reason"] or to[3]
    return [choices[i] for i in sorted(choices)] if choices else content


def same(want, got):
    if isinstance(want, str):
        return want == got
    return len(want) == len(got) and all(
        (w[0] or "") == (g[0] or "") and (w[1] or "") == (g[1] or "") and w[2:] == g[2:] for w, g in zip(want, got))


class Load:
    def __init__(self, port):
        self.port, self.counts, self.wrong, self.stop = port, collections.Counter(), [], False
        self.known = [(path, body, parts(json.loads(self.ask(path, body)[1]))) for path, body in bodies()]

    def send(self, path, body):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=300)
        text = json.dumps(body).encode()
        s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n%s" % (path.encode(), len(text), text))
        return s

    def ask(self, path, body, slow=0):
        data, s = b"", self.send(path, body)
        with s:
            while part := s.recv(64 if slow else 1 << 16):
                data += part
                if slow:
                    time.sleep(slow)
        head, _, rest = data.partition(b"\r\n\r\n")
        if b"chunked" in head:
            text = b""
            while rest and (n := int(rest.split(b"\r\n", 1)[0], 16)) > 0:
                rest = rest.split(b"\r\n", 1)[1]
                text, rest = text + rest[:n], rest[n + 2:]
            rest = text
        return int(head.split()[1]), rest

    def answer(self, r, slow):
        path, body, want = r.choice(self.known)
        stream = r.random() < 0.5
        status, text = self.ask(path, {**body, "stream": True} if stream else body, slow)
        if status != 200:
            self.counts[status] += 1
            return
        if stream:
            events = [e[6:] for e in text.decode().split("\n\n") if e and e != "data: [DONE]"]
            got = joined([json.loads(e) for e in events])
        else:
            got = parts(json.loads(text))
        self.counts["slow" if slow else "answered"] += 1
        if not same(want, got):
            self.wrong.append((path, body, stream, want, got))

    def leave(self, r):
        path, body, _ = r.choice(self.known)
        with self.send(path, {**body, "stream": r.random() < 0.7}) as s:
            s.settimeout(r.random())
            try:
                s.recv(r.choice([1, 400]))
            except TimeoutError:
                pass
        self.counts["left"] += 1

    def disturb(self, r):
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as s:
            try:
                s.sendall(r.choice(MALFORMED))
                s.recv(100)
            except OSError:
                pass
        self.counts["malformed"] += 1

    def client(self, seed):
        r = random.Random(seed)
        while not self.stop:
            x = r.random()
            try:
                if x < 0.05:
                    self.disturb(r)
                elif x < 0.15:
                    self.leave(r)
                else:
                    self.answer(r, 0.05 if x < 0.2 else 0)
            except Exception as e:  # what a client does not expect
                self.wrong.append(("client", repr(e)))


def connect_and_drop(port, n):
    """n connections, up to 200 at a time, that send nothing or half of a request."""
    held = collections.deque()
    for i in range(n):
        s = socket.create_connection(("127.0.0.1", port), timeout=60)
        if i % 2:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: local")
        held.append(s)
        if len(held) > 200:
            held.popleft().close()
    for s in held:
        s.close()


def started(command):
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return server, int(re.search(r":(\d+)$", server.stdout.readline()).group(1))


def killed_and_back(server, command, load, clients):
    """Kills the server while clients wait; one that is started at once on its port answers as it did."""
    waiting = [load.send(path, {**body, "stream": True}) for path, body, _ in load.known[:clients]]
    time.sleep(0.1)
    server.kill()
    server.wait()
    for s in waiting:
        s.close()
    command[command.index("--port") + 1] = str(load.port)
    server, port = started(command)
    path, body, want = load.known[0]
    return server, port == load.port and same(want, parts(json.loads(load.ask(path, body)[1])))


def state(pid):
    pages = int(open(f"/proc/{pid}/statm").read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir(f"/proc/{pid}/fd"))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("program")
    ap.add_argument("--seconds", type=float, default=180)
    ap.add_argument("--clients", type=int, default=16)
    ap.add_argument("--connections", type=int, default=10000)
    ap.add_argument("target", nargs="?", default="checkpoints/tiny")
    ap.add_argument("options", nargs="*")
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        template = os.path.join(folder, "chat.jinja")
        open(template, "w").write(TEMPLATE)
        command = [a.program, "serve", "--quiet", "--target", a.target, "--port", "0", "--chat-template", template,
                   *(a.options or ["--drafter", "lookup"])]
        server, port = started(command)
        load = Load(port)
        idle = state(server.pid)[1]
        threads = [threading.Thread(target=load.client, args=(i,), daemon=True) for i in range(a.clients)]
        for t in threads:
            t.start()
        began, first, memory = time.monotonic(), None, 0
        while time.monotonic() < began + a.seconds and server.poll() is None:
            time.sleep(10)
            memory, files = state(server.pid)
            if first is None and time.monotonic() > began + a.seconds / 3:
                first = memory
            print(f"{time.monotonic() - began:4.0f} s: {memory:.1f} MiB, {files} descriptors, {dict(load.counts)}", flush=True)
        load.stop = True
        for t in threads:
            t.join(60)
        connect_and_drop(port, a.connections)
        time.sleep(2)
        after, left = state(server.pid)
        server, back = killed_and_back(server, command, load, a.clients)
        server.terminate()
        code = server.wait(60)
    first = first or memory
    checks = {"no wrong text": not load.wrong, "memory stays": memory < 1.05 * first + 2, "descriptors stay": left <= idle + 1,
              "answers": load.counts["answered"] > 0, "connections cost nothing": after < 1.05 * first + 2,
              "comes back": back, "ends well": code == 0}
    for name, ok in checks.items():
        print("ok  " if ok else "FAIL", name)
    for w in load.wrong[:5]:
        print(w)
    print(f"descriptors: {idle} at first, {left} at the end; memory {first:.1f} to {memory:.1f} MiB, after "
          f"{a.connections} connections {after:.1f}")
    raise SystemExit(not all(checks.values()))


main()
