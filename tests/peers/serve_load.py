#!/usr/bin/env python3
"""Clients of `paceline serve`, many at a time, beside `paceline eval` of the same prompts in batches. Development only.

    python tests/peers/serve_load.py --target checkpoints/tiny --prompts data/prompts/heldout.jsonl
    python tests/peers/serve_load.py --target FILE.gguf --prompts FILE.jsonl --drafter lookup --clients 1 8

Each client streams one completion after another. Told are tokens per second of all of them, the median time to the
first token and the median time of a later one; `same`: every text is that of a client alone.
"""
import argparse
import http.client
import json
import os
import queue
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time


def answer(port, prompt, a, temperature):
    body = {"prompt": prompt, "max_tokens": a.max_tokens, "temperature": temperature, "seed": 1, "stream": True,
            "stream_options": {"include_usage": True}}
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    began = time.monotonic()
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    r, text, first, tokens = c.getresponse(), "", None, 0
    assert r.status == 200, r.read()
    for line in r:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if event["choices"]:
            first = first or time.monotonic()
            text += event["choices"][0]["text"]
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
            statistics.median(x[3] / (x[1] - 1) for x in got.values() if x[1] > 1))


def evaluated(a, temperature, folder):
    recipe = os.path.join(folder, "eval.yaml")
    batches = [n for n in a.clients if n > 1]
    with open(recipe, "w") as f:
        json.dump({"target": {"path": a.target}, "eval": {
            "benchmark": a.prompts, "limit": a.limit, "max_new_tokens": a.max_tokens, "temperatures": [temperature],
            "seeds": 1, "plain_fp32": False, "trace": False, "batches": batches,
            "drafters": [{"kind": a.drafter, "name": "d"}] if a.drafter else []}}, f)
    out = os.path.join(folder, "eval")
    subprocess.run([a.paceline, "eval", recipe, "--out", out, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    r = json.load(open(os.path.join(out, "results.json")))
    name = "d" if a.drafter else "plain"
    speed = {m.get("batch", 1): m["tokens_per_second"] for m in r["methods"] + r["batched"] if m["name"].split("@")[0] == name}
    subprocess.run(["rm", "-rf", out])
    return speed


def main():
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--paceline", default=os.path.join(here, "build", "paceline"))
    ap.add_argument("--target", required=True)
    ap.add_argument("--prompts", required=True, help="JSON lines with \"prompt\"")
    ap.add_argument("--drafter")
    ap.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    ap.add_argument("--limit", type=int, default=64)
    ap.add_argument("--max-tokens", type=int, default=128)
    ap.add_argument("--temperatures", type=float, nargs="+", default=[0, 1])
    a = ap.parse_args()
    prompts = [json.loads(x)["prompt"] for x in open(a.prompts)][:a.limit]
    command = [a.paceline, "serve", "--target", a.target, "--port", "0", "--sessions", str(max(a.clients)),
               "--max-len", "1024", "--no-prefix-cache", "--quiet"] + (["--drafter", a.drafter] if a.drafter else [])
    with tempfile.TemporaryDirectory() as folder:
        for temperature in a.temperatures:
            beside = evaluated(a, temperature, folder)
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            try:
                port = int(re.search(r":(\d+)\s*$", server.stdout.readline()).group(1))
                alone = None
                for n in a.clients:
                    texts, speed, first, later = round_of(port, prompts, n, a, temperature)
                    alone = alone or texts
                    print(f"T={temperature:g} {n:3} clients: {speed:.1f} tokens/s, first token {1e3 * first:.1f} ms, later "
                          f"ones {1e3 * later:.2f} ms; eval {beside.get(n, float('nan')):.1f} tokens/s, ratio "
                          f"{speed / beside.get(n, float('nan')):.2f}; same {texts == alone}", flush=True)
            finally:
                server.terminate()
                server.wait()


if __name__ == "__main__":
    sys.exit(main())
