#!/usr/bin/env python3
"""An EAGLE-3 training step: the program's tokens per second and peak memory beside PyTorch's, on the same device.

PyTorch's is the straightforward version: one drafter layer unrolled K times over S rows (training-time test: the
causal block of step 0, and each row's own keys and values of the steps after it), KL to the target's distribution over
the draft vocabulary, bf16 autocast over fp32 weights, fused AdamW, torch.compile where the device is a GPU. The
program's is `paceline bench step` with the same sizes. Both learn from made-up features; a step's cost does not depend
on them.

  compare_train.py --paceline build/paceline --device cuda:0 [--shape llama3-8b] [--rows 2048] [--unroll 7]
                   [--heads trimmed:32000,lowrank:512] [--repeats 5] [--csv FILE] [--profile FILE]"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time

import torch
import torch.nn.functional as F

import torch_model as tm

DECAY = 0.8


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--paceline", required=True)
    p.add_argument("--device", default="cpu", help="of the program: cpu, emulated, cuda:N")
    p.add_argument("--shape", default="tiny", choices=list(tm.SHAPES))
    p.add_argument("--rows", type=int, default=32)
    p.add_argument("--unroll", type=int, default=3)
    p.add_argument("--heads", default="trimmed:150,lowrank:8")
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--compile", action="store_true", help="torch.compile on a CPU too")
    p.add_argument("--library-path", help="LD_LIBRARY_PATH of the program")
    p.add_argument("--profile", help="PyTorch's own profile of one step of the first head, as a table, to this file")
    p.add_argument("--csv", help="a line of figures.csv for each result; of bytes, the peak")
    return p.parse_args()


class Step(torch.nn.Module):
    """K losses of all rows, from features, last hidden states and tokens."""

    def __init__(self, s, head, unroll, rows, device):
        super().__init__()
        kind, _, n = head.partition(":")
        self.s, self.unroll, self.rank = s, unroll, int(n) if kind == "lowrank" else 0
        self.drafted = int(n) if kind == "trimmed" else s["vocab"]
        shapes = tm.drafter_shapes(s, self.drafted, self.rank)
        self.names = list(shapes)
        self.w = torch.nn.ParameterList(torch.nn.Parameter(x.float()) for x in
                                        tm.random_weights(shapes, device, 1).values())
        at = torch.arange(rows, device=device)
        self.register_buffer("hidden_keys", at[None, :] > at[:, None])

    def attention(self, w, x, k, past):
        s, hd, rows = self.s, tm.head_dim(self.s), x.shape[0]
        group = s["heads"] // s["kv_heads"]
        cos, sin = tm.rotary(s, torch.arange(rows, device=x.device) + k, x.dtype)
        q, key, value = (F.linear(x, w[f"midlayer.self_attn.{p}_proj.weight"]).view(rows, -1, hd) for p in "qkv")
        cos, sin = cos.to(q.dtype), sin.to(q.dtype)
        q = tm.rotate(q, cos, sin).transpose(0, 1)
        key = tm.rotate(key, cos, sin).transpose(0, 1).repeat_interleave(group, 0)
        value = value.transpose(0, 1).repeat_interleave(group, 0)
        past.append((key, value))
        scores = [(q @ past[0][0].transpose(1, 2)).masked_fill(self.hidden_keys, -math.inf)]
        scores += [(q * own).sum(-1, keepdim=True) for own, _ in past[1:]]
        p = torch.softmax(torch.cat(scores, -1).float() / math.sqrt(hd), -1).to(q.dtype)
        o = p[..., :rows] @ past[0][1]
        for i, (_, own) in enumerate(past[1:]):
            o = o + p[..., rows + i:rows + i + 1] * own
        return F.linear(o.transpose(0, 1).reshape(rows, -1), w["midlayer.self_attn.o_proj.weight"])

    def forward(self, features, last, tokens, embed, target_head):
        w = dict(zip(self.names, self.w))
        rows = features.shape[0]
        with torch.no_grad():
            teacher = F.linear(last, target_head[:self.drafted]).float().log_softmax(-1)
        hidden, past, total = F.linear(features, w["fc.weight"]), [], 0.0
        for k in range(self.unroll):
            x = torch.cat((tm.rms_norm(embed[tokens[k + 1:k + 1 + rows]], w["midlayer.input_layernorm.weight"]),
                           tm.rms_norm(hidden, w["midlayer.hidden_norm.weight"])), -1)
            h = hidden + self.attention(w, x, k, past)
            hidden = h + tm.mlp(w, "midlayer.", tm.rms_norm(h, w["midlayer.post_attention_layernorm.weight"]))
            y = tm.rms_norm(hidden, w["norm.weight"])
            if self.rank:
                y = F.linear(y, w["efficient_lm_head_down_proj.weight"])
            logits = F.linear(y, w["efficient_lm_head.weight" if self.rank else "lm_head.weight"])
            n = rows - 1 - k  # rows whose teacher is within the sequence
            loss = F.kl_div(logits[:n].float().log_softmax(-1), teacher[k + 1:], log_target=True, reduction="sum")
            total = total + DECAY**k * loss
        return total / rows


def write_profile(path, step, gpu):
    """Kernels of one step by their time, and what the allocator holds."""
    kinds = [torch.profiler.ProfilerActivity.CPU] + [torch.profiler.ProfilerActivity.CUDA] * gpu
    with torch.profiler.profile(activities=kinds, with_flops=True) as profile:
        step()
        if gpu:
            torch.cuda.synchronize()
    key = "self_cuda_time_total" if gpu else "self_cpu_time_total"
    with open(path, "w") as f:
        f.write(profile.key_averages().table(sort_by=key, row_limit=60, max_name_column_width=90) + "\n")
        if gpu:
            for name, value in torch.cuda.memory_stats().items():
                if name.endswith(("all.peak", "all.current")) and "bytes" in name:
                    f.write(f"{name}: {value / 2**30:.3f} GiB\n")


def torch_step(a, s, head, where, compiled):
    """Seconds of a step, the median; peak bytes on a GPU."""
    gpu = where.startswith("cuda")
    g = torch.Generator(device=where).manual_seed(3)
    model = Step(s, head, a.unroll, a.rows, where)
    bf16 = dict(device=where, dtype=torch.bfloat16, generator=g)
    features = torch.randn(a.rows, len(tm.taps(s["layers"])) * s["d"], **bf16)
    last = torch.randn(a.rows, s["d"], **bf16)
    embed, target_head = torch.randn(s["vocab"], s["d"], **bf16), torch.randn(s["vocab"], s["d"], **bf16) * 0.02
    tokens = (7 * torch.arange(a.rows + a.unroll + 1, device=where) + 3) % model.drafted
    run = torch.compile(model) if compiled else model
    adam = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=gpu)
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds = []

    def step():
        with torch.autocast(where.split(":")[0], dtype=torch.bfloat16):
            loss = run(features, last, tokens, embed, target_head)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        return float(loss.detach())

    for i in range(a.repeats + 2):  # two warm up: compiling, and the optimizer's states
        if gpu:
            torch.cuda.synchronize()
        t0 = time.perf_counter()
        value = step()
        if gpu:
            torch.cuda.synchronize()
        if i >= 2:
            seconds.append(time.perf_counter() - t0)
        assert math.isfinite(value), f"loss {value}"
    if a.profile and head == a.heads.split(",")[0]:
        write_profile(a.profile, step, gpu)
    return statistics.median(seconds), torch.cuda.max_memory_allocated() if gpu else math.nan


class Used(threading.Thread):
    """The most of a GPU's memory that was taken beyond what was before."""

    def __init__(self):
        super().__init__(daemon=True)
        self.before, self.most, self.done = self.now(), 0, False

    def now(self):
        free, total = torch.cuda.mem_get_info()
        return total - free

    def run(self):
        while not self.done:
            self.most = max(self.most, self.now() - self.before)
            time.sleep(0.01)


def own_step(a, head):
    env = dict(os.environ)
    if a.library_path:
        env["LD_LIBRARY_PATH"] = a.library_path
    used = Used() if a.device.startswith("cuda") else None
    if used:
        used.start()
    r = subprocess.run([a.paceline, "bench", "step", "--json", "--quiet", "--device", a.device, "--shape", a.shape,
                        "--batch", "1", "--seq-len", str(a.rows), "--unroll", str(a.unroll), "--repeats",
                        str(a.repeats), "--head", head] + ([] if a.device == "cpu" else ["--max-mb", "16"]),
                       env=env, stdout=subprocess.PIPE, text=True)
    if used:
        used.done = True
        used.join()
    if r.returncode != 0:
        return None
    said = json.loads(r.stdout)
    return said["step"][0]["seconds"], used.most if used else math.nan


def told(a, head, who, seconds, peak):
    """Prints a result as soon as it is there; its line of figures.csv."""
    room = f", peak {peak / 2**30:.2f} GiB" if math.isfinite(peak) else ""
    print(f"{head:16s} {who:9s} {a.rows / seconds:10.1f} tokens/s, {seconds * 1e3:9.2f} ms a step{room}", flush=True)
    taken = f"{peak:.0f}" if math.isfinite(peak) else ""
    return f"train eagle3 {head} K{a.unroll} {who} (bytes: peak),{a.rows},{seconds:.4e},{taken},,"


def main():
    a = parse()
    s = tm.SHAPES[a.shape]
    where = a.device if a.device.startswith("cuda") else "cpu"
    if where.startswith("cuda"):
        torch.cuda.set_device(where)
    bad, lines = 0, []
    for head in a.heads.split(","):
        both = {}
        own = own_step(a, head)
        if own:
            both["paceline"] = own
            lines.append(told(a, head, "paceline", *own))
        compiled = a.compile or where.startswith("cuda")
        for attempt in [True, False] if compiled else [False]:  # where it does not compile, it is told and runs eagerly
            try:
                both["PyTorch"] = torch_step(a, s, head, where, attempt)
                lines.append(told(a, head, "PyTorch", *both["PyTorch"]))
                break
            except RuntimeError as e:  # out of memory among them
                print(f"{head}: PyTorch{', compiled' * attempt}: {str(e).splitlines()[0]}")
            finally:
                if where.startswith("cuda"):
                    torch.cuda.empty_cache()
        if len(both) == 2:
            (mine, room), (theirs, their_room) = both["paceline"], both["PyTorch"]
            room = f", with {room / their_room:.2f} of the memory" if math.isfinite(room) else ""
            print(f"{head:16s} paceline is {theirs / mine:.2f} times as fast{room}")
        bad += len(both) < 2
    if a.csv:
        with open(a.csv, "a") as f:
            f.writelines(line + "\n" for line in lines)
    print(f"compare_train: {len(a.heads.split(',')) - bad} heads compared: {a.shape}, {a.rows} rows, unroll "
          f"{a.unroll} on {a.device}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
