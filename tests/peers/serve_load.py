#!/usr/bin/env python3
"""Clients of `paceline serve`, many at a time, beside `paceline eval` of the same prompts in batches. Development only.

    python tests/peers/serve_load.py --target checkpoints/tiny --prompts data/prompts/heldout.jsonl
    python tests/peers/serve_load.py --target FILE.gguf --prompts FILE.jsonl --drafter lookup --clients 1 8

    python tests/peers/serve_load.py --target FILE.gguf --prompts FILE.jsonl --llamacpp

Each client streams one completion after another. Printed are tokens per second of all of them, the median time to the
first token and the median time of a later one; `same`: every text is that of a client alone. The clients run on the
same machine: --threads, of the server and of eval, leaves them processors. With --llamacpp (pip install xllamacpp,
which has llama-server's code) both servers answer in turns, twice, with as many slots as clients.
"""
import argparse
import http.client
import json
import os
import queue
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time


def answer(port, prompt, a, temperature):
    body = {"messages": [{"role": "user", "content": prompt}]} if a.chat else {"prompt": prompt}
    body |= {"max_tokens": a.max_tokens, "temperature": temperature, "seed": 1, "stream": True,
            "stream_options": {"include_usage": True}}
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    began = time.monotonic()
    path = "/v1/chat/completions" if a.chat else "/v1/completions"
    c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    r, text, first, tokens = c.getresponse(), "", None, 0
    assert r.status == 200, r.read()
    for line in r:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if event["choices"]:
            choice = event["choices"][0]
            piece = (choice["delta"].get("content") or "") if a.chat else choice["text"]
            first = first or (time.monotonic() if piece else None)
            text += piece
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    c.close()
    ended = time.monotonic()
    return text, tokens, (first or ended) - began, ended - (first or ended)


def round_of(port, prompts, clients, a, temperature):
    left, got = queue.Queue(), {}
    for i in range(len(prompts)):
        left.put(i)

    def client():
        while True:
            try:
                i = left.get_nowait()
            except queue.Empty:
                return
            got[i] = answer(port, prompts[i], a, temperature)

    began = time.monotonic()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    [t.start() for t in threads], [t.join() for t in threads]
    seconds = time.monotonic() - began
    tokens = sum(x[1] for x in got.values())
    return ([got[i][0] for i in range(len(prompts))], tokens / seconds, statistics.median(x[2] for x in got.values()),
            statistics.median([x[3] / (x[1] - 1) for x in got.values() if x[1] > 1] or [float("nan")]))


def evaluated(a, temperature, folder):
    recipe = os.path.join(folder, "eval.yaml")
    batches = [n for n in a.clients if n > 1]
    with open(recipe, "w") as f:
        json.dump({"target": {"path": a.target}, "eval": {
            "benchmark": a.prompts, "limit": a.limit, "max_new_tokens": a.max_tokens, "temperatures": [temperature],
            "seeds": 1, "plain_fp32": False, "trace": False, "batches": batches,
            "drafters": [{"kind": a.drafter, "name": "d"}] if a.drafter else []}}, f)
    out = os.path.join(folder, "eval")
    subprocess.run([a.paceline, "eval", recipe, "--out", out, "--quiet", "--threads", str(a.threads)], check=True,
                   stdout=subprocess.DEVNULL)
    r = json.load(open(os.path.join(out, "results.json")))
    name = "d" if a.drafter else "plain"
    speed = {m.get("batch", 1): m["tokens_per_second"] for m in r["methods"] + r["batched"] if m["name"].split("@")[0] == name}
    subprocess.run(["rm", "-rf", out])
    return speed


LLAMACPP = """
import sys, time, xllamacpp
p, slots, threads = xllamacpp.CommonParams(), int(sys.argv[2]), int(sys.argv[3])
p.model.path, p.n_parallel, p.n_ctx, p.port = sys.argv[1], slots, 1024 * slots, int(sys.argv[4])
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
p.cache_prompt, p.kv_unified, p.verbosity = False, False, 0
server = xllamacpp.Server(p)
print(server.listening_address, flush=True)
time.sleep(1e6)
"""


def started(command):
    """A server that has printed its address, and its port."""
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in server.stdout:
        if found := re.search(r":(\d+)\s*$", line):
            return server, int(found.group(1))
    sys.exit(f"{command[0]} ended with {server.wait()}")


def stopped(server):
    server.terminate()
    server.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def in_turns(a, command, prompts, temperature, rounds=2):
    """Both servers by number of clients; only one of them runs at a time."""
    for n in a.clients:
        others = [sys.executable, "-c", LLAMACPP, a.target, str(n), str(a.threads)]
        for _ in range(rounds):
            for name, c in (("paceline", command), ("llama.cpp", others + [str(free_port())])):
                server, port = started(c)
                try:
                    round_of(port, prompts[:2], 1, a, temperature)  # warm
                    _, speed, first, later = round_of(port, prompts, n, a, temperature)
                    print(f"T={temperature:g} {n:3} clients: {name:9} {speed:.1f} tokens/s, first token "
                          f"{1e3 * first:.0f} ms, later ones {1e3 * later:.1f} ms", flush=True)
                finally:
                    stopped(server)


def main():
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--paceline", default=os.path.join(here, "build", "paceline"))
    ap.add_argument("--target", required=True)
    ap.add_argument("--prompts", required=True, help="JSON lines with \"prompt\"")
    ap.add_argument("--drafter")
    ap.add_argument("--chat", action="store_true", help="prompts are messages of a chat (not with eval's figures)")
    ap.add_argument("--llamacpp", action="store_true", help="in turns with llama.cpp's server instead of eval")
    ap.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--limit", type=int, default=64)
    ap.add_argument("--max-tokens", type=int, default=128)
    ap.add_argument("--temperatures", type=float, nargs="+", default=[0, 1])
    a = ap.parse_args()
    prompts = [json.loads(x)["prompt"] for x in open(a.prompts)][:a.limit]
    command = [a.paceline, "serve", "--target", a.target, "--port", "0", "--sessions", str(max(a.clients)),
               "--max-len", "1024", "--no-prefix-cache", "--quiet", "--threads", str(a.threads)] + (["--drafter", a.drafter] if a.drafter else [])
    with tempfile.TemporaryDirectory() as folder:
        for temperature in a.temperatures:
            if a.llamacpp:
                in_turns(a, command, prompts, temperature)
                continue
            beside = evaluated(a, temperature, folder)
            server, port = started(command)
            try:
                alone = None
                for n in a.clients:
                    texts, speed, first, later = round_of(port, prompts, n, a, temperature)
                    alone = alone or texts
                    print(f"T={temperature:g} {n:3} clients: {speed:.1f} tokens/s, first token {1e3 * first:.1f} ms, later "
                          f"ones {1e3 * later:.2f} ms; eval {beside.get(n, float('nan')):.1f} tokens/s, ratio "
                          f"{speed / beside.get(n, float('nan')):.2f}; same {texts == alone}", flush=True)
            finally:
                stopped(server)


if __name__ == "__main__":
    sys.exit(main())
