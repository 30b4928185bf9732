#!/usr/bin/env python3
"""Training steps of an EAGLE-3 drafter: paceline's and PyTorch's, in turns in one run. Development only.

    python tests/peers/train_step.py --target checkpoints/tiny
    python tests/peers/train_step.py --target checkpoints/tiny --head lowrank:rank=32
    python tests/peers/train_step.py --shape llama3.2-1b --batch 1

PyTorch runs the same step: the same products (fc, the drafter's layer and head, the target's output matrix), K steps
of training-time test with all their keys, the divergence from the target's distribution, clipping, AdamW on fp32
masters; compiled (--eager: not), with bf16 autocast and in fp32. What is told of each is the median over all rounds of
rows per second, and paceline's over PyTorch's by round. Data are made up on both sides: a step's cost does not depend
on them. --check compares PyTorch's step with attention and loss written out row by row.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

SHAPES = {  # as infer/bench/shapes.c has them
    "llama3.2-1b": dict(vocab_size=128256, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32,
                        num_key_value_heads=8, intermediate_size=8192),
    "llama3-8b": dict(vocab_size=128256, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
                      num_key_value_heads=8, intermediate_size=14336),
}
STEP_DECAY, LR, EPS = 0.8, 1e-5, 1e-5


def rms_norm(x, gain):
    return F.rms_norm(x, gain.shape, gain.to(x.dtype), EPS)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Drafter(torch.nn.Module):
    """EAGLE-3: fc over three taps, one layer that reads embedding and hidden state, norm, head."""

    def __init__(self, c, rank):
        super().__init__()
        d, f, heads, kv = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.heads, self.kv, self.hd = heads, kv, c.get("head_dim") or d // heads
        new = lambda *shape: torch.nn.Parameter(torch.randn(*shape) * 0.02)
        self.fc = new(d, 3 * d)
        self.qkv = new((heads + 2 * kv) * self.hd, 2 * d)
        self.o, self.gate_up, self.down = new(d, heads * self.hd), new(2 * f, d), new(d, f)
        self.norms = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(d)) for _ in range(4)])
        self.head = torch.nn.ParameterList([new(c["vocab_size"], d)] if rank == 0 else
                                           [new(rank, d), new(c["vocab_size"], rank)])

    def step(self, embedded, hidden, keys, values, cos, sin):
        """One step of the test over [B, T] rows; keys and values: of the steps before, [B, heads, T, hd] each."""
        b, t, d = hidden.shape
        x = torch.cat((rms_norm(embedded, self.norms[0]), rms_norm(hidden, self.norms[1])), -1)
        q, k, v = F.linear(x, self.qkv).split([self.heads * self.hd, self.kv * self.hd, self.kv * self.hd], -1)
        q, k, v = (y.view(b, t, -1, self.hd).transpose(1, 2) for y in (q, k, v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv
        keys.append(k.repeat_interleave(group, 1))
        values.append(v.repeat_interleave(group, 1))
        # The causal block of step 0, and of each later step the row's own entry.
        scale = 1 / math.sqrt(self.hd)
        causal = torch.ones(t, t, dtype=torch.bool, device=q.device).tril()
        scores = [(q @ keys[0].transpose(-1, -2) * scale).masked_fill(~causal, -math.inf)]
        scores += [(q * key).sum(-1, keepdim=True) * scale for key in keys[1:]]
        p = torch.softmax(torch.cat(scores, -1).float(), -1).to(q.dtype)
        out = p[..., :t] @ values[0]
        for i, value in enumerate(values[1:]):
            out = out + p[..., t + i:t + i + 1] * value
        h = hidden + F.linear(out.transpose(1, 2).reshape(b, t, -1), self.o)
        gate, up = F.linear(rms_norm(h, self.norms[2]), self.gate_up).chunk(2, -1)
        hidden = h + F.linear(F.silu(gate) * up, self.down)
        y = rms_norm(hidden, self.norms[3])
        for w in self.head:
            y = F.linear(y, w)
        return hidden, y


def loss_of(model, teacher, embed, features, last, ids, unroll, cos, sin):
    """Forward KL to the target's distribution but for its entropy, summed over rows and steps, per row of step 0."""
    n = ids.shape[1]
    with torch.no_grad():
        p = torch.softmax(F.linear(last, teacher).float(), -1)
    hidden, keys, values, total = F.linear(features, model.fc), [], [], 0.0
    embedded = F.embedding(ids, embed)
    for k in range(unroll):
        x = F.pad(embedded[:, 1 + k:], (0, 0, 0, 1 + k))  # the token that step k reads; rows past the end do not count
        hidden, logits = model.step(x, hidden, keys, values, cos[k:k + n], sin[k:k + n])
        rows = n - 1 - k
        log_q = torch.log_softmax(logits[:, :rows].float(), -1)
        total = total - STEP_DECAY**k * (p[:, 1 + k:1 + k + rows] * log_q).sum()
    return total / (ids.shape[0] * n)


class Peer:
    def __init__(self, c, rank, batch, seq_len, unroll, bf16, eager):
        torch.manual_seed(1)
        d = c["hidden_size"]
        self.bf16, self.unroll = bf16, unroll
        held = torch.bfloat16 if bf16 else torch.float32
        self.model = Drafter(c, rank)
        self.teacher = (torch.randn(c["vocab_size"], d) * 0.02).to(held)
        self.embed = (torch.randn(c["vocab_size"], d) * 0.02).to(held)
        self.features, self.last = torch.randn(batch, seq_len, 3 * d).to(held), torch.randn(batch, seq_len, d).to(held)
        self.ids = torch.randint(c["vocab_size"], (batch, seq_len))
        hd = d // c["num_attention_heads"]
        angle = torch.arange(seq_len + unroll)[:, None] * 10000.0 ** (-torch.arange(0, hd, 2) / hd)
        self.cos, self.sin = (torch.cat((f(angle), f(angle)), -1).to(held) for f in (torch.cos, torch.sin))
        self.adam = torch.optim.AdamW(self.model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.loss = loss_of if eager else torch.compile(loss_of)

    def step(self):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.loss(self.model, self.teacher, self.embed, self.features, self.last, self.ids, self.unroll,
                             self.cos, self.sin)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        return float(loss.detach())


def check():
    """The step's loss against attention and divergence written out row by row, in double."""
    c = dict(vocab_size=29, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24)
    for rank in (0, 5):
        peer = Peer(c, rank, 2, 7, 3, False, True)
        m = peer.model.double()
        w = lambda t: t.double()
        got = loss_of(m, w(peer.teacher), w(peer.embed), w(peer.features), w(peer.last), peer.ids, 3, w(peer.cos),
                      w(peer.sin)).item()
        want, n, hd, group = 0.0, 7, 4, 2
        for b in range(2):
            hidden, keys, values = [m.fc @ w(peer.features)[b, t] for t in range(n)], [], []
            for k in range(3):
                outs = []
                q, ks, vs = [], [], []
                for t in range(n):
                    e = w(peer.embed)[peer.ids[b, t + 1 + k]] if t + 1 + k < n else torch.zeros(16, dtype=torch.double)
                    x = torch.cat((rms_norm(e, m.norms[0]), rms_norm(hidden[t], m.norms[1])))
                    y = (m.qkv @ x).view(-1, hd)
                    turn = lambda z: rotate(z, w(peer.cos)[t + k], w(peer.sin)[t + k])
                    q.append(turn(y[:4])), ks.append(turn(y[4:6])), vs.append(y[6:])
                keys.append(ks), values.append(vs)
                for t in range(n):
                    seen = [(keys[0][u], values[0][u]) for u in range(t + 1)]
                    seen += [(keys[j][t], values[j][t]) for j in range(1, k + 1)]
                    heads = []
                    for h in range(4):
                        s = torch.stack([q[t][h] @ key[h // group] / math.sqrt(hd) for key, _ in seen])
                        heads.append(sum(a * v[h // group] for a, (_, v) in zip(torch.softmax(s, 0), seen)))
                    h = hidden[t] + m.o @ torch.cat(heads)
                    gate, up = (m.gate_up @ rms_norm(h, m.norms[2])).chunk(2)
                    outs.append(h + m.down @ (F.silu(gate) * up))
                hidden = outs
                for t in range(n - 1 - k):
                    y = rms_norm(hidden[t], m.norms[3])
                    for head in m.head:
                        y = head @ y
                    p = torch.softmax(w(peer.teacher) @ w(peer.last)[b, t + 1 + k], 0)
                    want -= STEP_DECAY**k * (p * torch.log_softmax(y, 0)).sum().item()
        want /= 2 * n
        assert abs(got - want) < 1e-6 * abs(want), (rank, got, want)
        print(f"check: rank {rank}: loss {got:.12f}, row by row {want:.12f}")


def paceline(a, head, weights):
    model = ["--target", a.target] if a.target else ["--shape", a.shape]
    out = subprocess.run([a.paceline, "bench", "step", *model, "--head", head, "--batch", str(a.batch), "--seq-len",
                          str(a.seq_len), "--unroll", str(a.unroll), "--repeats", str(a.steps), "--weights", weights,
                          "--threads", str(a.threads), "--json", "-q"], check=True, capture_output=True, text=True)
    answer = json.loads(out.stdout)
    return [s for s in answer["step"] if s["name"] == "eagle3"][0], answer


def main():
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--paceline", default=os.path.join(here, "build", "paceline"))
    ap.add_argument("--target", help="a Hugging Face folder")
    ap.add_argument("--shape", choices=SHAPES)
    ap.add_argument("--head", default="full", help="full or lowrank:rank=R")
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--seq-len", type=int, default=512)
    ap.add_argument("--unroll", type=int, default=5)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--steps", type=int, default=3, help="of each side in a round")
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--weights", default="both", choices=("bf16", "fp32", "both"))
    ap.add_argument("--eager", action="store_true", help="PyTorch without torch.compile")
    ap.add_argument("--check", action="store_true")
    a = ap.parse_args()
    if a.check:
        return check()
    if bool(a.target) == bool(a.shape):
        ap.error("give a --target or a --shape")
    if a.head != "full" and not a.head.startswith("lowrank:rank="):
        ap.error("--head: full or lowrank:rank=R")
    rank = 0 if a.head == "full" else int(a.head.split("=")[1])
    c = SHAPES[a.shape] if a.shape else json.load(open(os.path.join(a.target, "config.json")))
    torch.set_num_threads(a.threads)
    rows = a.batch * a.seq_len
    print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {a.threads} threads, "
          f"{'eager' if a.eager else 'compiled'}; {a.target or a.shape}, head {a.head}, {a.batch}x{a.seq_len} rows, "
          f"unroll {a.unroll}", flush=True)
    for weights in ("bf16", "fp32"):
        if a.weights not in (weights, "both"):
            continue
        peer = Peer(c, rank, a.batch, a.seq_len, a.unroll, weights == "bf16", a.eager)
        peer.step(), peer.step()  # compiles, warms up
        ours, theirs, ratio = [], [], []
        for r in range(a.rounds):
            step, answer = paceline(a, a.head, weights)
            ours.append(step["tokens_per_second"])
            took = []
            for _ in range(a.steps):
                t0 = time.perf_counter()
                loss = peer.step()
                took.append(time.perf_counter() - t0)
            assert math.isfinite(loss)
            theirs.append(rows / statistics.median(took))
            ratio.append(ours[-1] / theirs[-1])
            print(f"  {weights} round {r + 1}: paceline {ours[-1]:.0f} rows/s ({100 * step['share_of_floor']:.0f} % of "
                  f"the peak), PyTorch {theirs[-1]:.0f}, ratio {ratio[-1]:.2f}", flush=True)
        print(f"{weights}: paceline {statistics.median(ours):.0f} rows/s, PyTorch {statistics.median(theirs):.0f}, "
              f"ratio {statistics.median(ratio):.2f} ({min(ratio):.2f} to {max(ratio):.2f}); "
              f"commit {answer['commit']}, {answer['machine']['cpu']}", flush=True)
        del peer


if __name__ == "__main__":
    sys.exit(main())
