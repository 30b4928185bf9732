#!/usr/bin/env python3
"""Two ranks against one: paceline's and PyTorch's DistributedDataParallel (gloo), over a shaped link. Development only.

    sudo python tests/peers/train_ddp.py                       # as root: makes two network namespaces (iproute2, tbf)
    sudo python tests/peers/train_ddp.py --rates 100 1000 --steps 5 --before "nice -n 0"

Each rank has one thread; the global batch is the same for one rank and for two: four slots of 256 rows of an EAGLE-3
drafter for checkpoints/tiny, unroll 4, in fp32 (PyTorch's step is train_step.py's, not compiled). Efficiency is seconds
of a step on one rank / (2 x seconds on two). `plan` is `plan train`'s prediction from the one rank's step and the rate
of the link. paceline trains on documents, which do not fill every slot to its last row, on one rank as on two. Both
send gradients beside backward. `floor`: what the link needs for them by itself, a rank's bytes over the link's rate;
no efficiency is above one rank's seconds / (2 x floor), which is less for who computes faster. --before: a command that
each timing is run by.
"""
import argparse
import json
import os
import pathlib
import secrets
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parent.parent.parent
PACELINE = ROOT / "build" / "paceline"
SLOTS, ROWS, UNROLL = 4, 256, 4
SPACES, ADDRESS = ("plddp0", "plddp1"), "10.77.0.1"


def links(rate):
    """Two namespaces with eth0 each, sending at most `rate` Mbit/s; None: takes them away."""
    run = lambda *c, check=True: subprocess.run(c, check=check, stderr=None if check else subprocess.DEVNULL)
    for s in SPACES:
        run("ip", "netns", "del", s, check=False)
    if rate is None:
        return
    for s in SPACES:
        run("ip", "netns", "add", s)
    run("ip", "link", "add", "eth0", "netns", SPACES[0], "type", "veth", "peer", "name", "eth0", "netns", SPACES[1])
    for i, s in enumerate(SPACES):
        run("ip", "-n", s, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
        run("ip", "-n", s, "link", "set", "lo", "up")
        run("ip", "-n", s, "link", "set", "eth0", "up")
        run("ip", "netns", "exec", s, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{rate}mbit", "burst",
            "256kb", "latency", "50ms")


def together(ranks, command, **more):
    """Starts each rank's command in its namespace (one rank: here) and waits for all."""
    started = []
    for r in range(ranks):
        space = ["ip", "netns", "exec", SPACES[r]] if ranks > 1 else []
        started.append(subprocess.Popen(space + command(r), stdout=subprocess.PIPE if r == 0 else subprocess.DEVNULL,
                                        text=True, cwd=ROOT, **more))
    out = started[0].communicate()[0]
    assert all(p.wait() == 0 for p in started), [p.returncode for p in started]
    return out


def paceline_step(a, ranks):
    """Seconds of a step: the median but for the first."""
    run = pathlib.Path(tempfile.mkdtemp(dir=a.work))
    keys = [f"train.slots={SLOTS}", f"train.slot_rows={ROWS}", f"train.unroll={UNROLL}", f"train.steps={a.steps + 1}",
            "train.warmup=1", "train.log_every=1", "train.eval_prompts=0", "train.eval_every=0", "train.dtype=f32",
            "train.checkpoint_every=0", f"data.dataset={a.work}/made/dataset"]
    base = [str(PACELINE), "train", "recipes/any-target.yaml", *made_keys(), "--threads", "1", "-q"]
    for k in keys:
        base += ["--set", k]
    place = lambda r: ["--rank", str(r), "--world", "2", "--address", f"{ADDRESS}:29511"] if ranks == 2 else []
    together(ranks, lambda r: base + ["--out", f"{run}/{r}"] + place(r), stderr=subprocess.DEVNULL)
    lines = [json.loads(l) for l in open(run / "0" / "metrics.jsonl")]
    return statistics.median([l["step_seconds"] for l in lines if "step_seconds" in l][1:])


def torch_rank(a):
    """One rank of PyTorch's: prints seconds of a step."""
    import torch
    import torch.distributed as dist
    sys.path.insert(0, str(HERE.parent))
    import train_step

    class Whole(torch.nn.Module):
        def __init__(self, peer):
            super().__init__()
            self.model, self.peer = peer.model, peer

        def forward(self):
            p = self.peer
            return train_step.loss_of(self.model, p.teacher, p.embed, p.features, p.last, p.ids, p.unroll, p.cos, p.sin)

    torch.set_num_threads(1)
    config = json.load(open(ROOT / "checkpoints" / "tiny" / "config.json"))
    peer = train_step.Peer(config, 0, SLOTS // a.ranks, ROWS, UNROLL, False, True)
    whole = Whole(peer)
    if a.ranks > 1:
        dist.init_process_group("gloo", init_method=f"tcp://{ADDRESS}:29512", rank=a.rank, world_size=a.ranks)
        whole = torch.nn.parallel.DistributedDataParallel(whole)
    took = []
    for _ in range(a.steps + 1):
        start = time.perf_counter()
        whole().backward()
        torch.nn.utils.clip_grad_norm_(peer.model.parameters(), 1.0)
        peer.adam.step()
        peer.adam.zero_grad(set_to_none=True)
        took.append(time.perf_counter() - start)
    print(statistics.median(took[1:]))
    if a.ranks > 1:
        dist.destroy_process_group()


def torch_step(a, ranks):
    env = dict(os.environ, GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1")
    me = [sys.executable, str(HERE), "--part", "rank", "--ranks", str(ranks), "--steps", str(a.steps), "--rank"]
    return float(together(ranks, lambda r: me + [str(r)], env=env))


def planned(one, rate):
    """plan train's efficiency of two ranks, for a rank that takes `one` seconds for all slots."""
    def steps(flops):
        out = subprocess.run([str(PACELINE), "plan", "train", "--target", "checkpoints/tiny", "--slots", str(SLOTS),
                              "--slot-rows", str(ROWS), "--tokens", str(ROWS), "--unroll", str(UNROLL), "--ranks", "1,2",
                              "--flops", repr(flops), "--network", str(rate / 1000), "--latency", "100", "--transport", "host", "--json"],
                             check=True, capture_output=True, text=True, cwd=ROOT)
        return json.loads(out.stdout)["steps"]
    flops = steps(0.01)[0]["compute_seconds"] * 0.01 / one
    return steps(flops)[1]


def made_keys():
    keys = ["target.path=checkpoints/tiny", "data.prompts=data/prompts/heldout.jsonl", "data.max_new_tokens=192",
            "eval.holdout=7"]
    return [x for k in keys for x in ("--set", k)]


def timed(a, part, ranks):
    out = subprocess.run([*shlex.split(a.before), sys.executable, str(HERE), "--part", part, "--ranks", str(ranks),
                          "--steps", str(a.steps), "--work", a.work], check=True, capture_output=True, text=True)
    return float(out.stdout)


def main():
    os.environ.setdefault("PACELINE_SECRET", secrets.token_hex(32))  # by which its ranks know each other
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rates", type=int, nargs="+", default=[100, 1000], help="Mbit/s of the link, each way")
    ap.add_argument("--steps", type=int, default=5)
    ap.add_argument("--before", default="", help="a command that runs each timing")
    ap.add_argument("--part", choices=("paceline", "torch", "rank"), help=argparse.SUPPRESS)
    ap.add_argument("--ranks", type=int, default=1, help=argparse.SUPPRESS)
    ap.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    ap.add_argument("--work", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.part == "rank":
        return torch_rank(a)
    if a.part:
        return print((paceline_step if a.part == "paceline" else torch_step)(a, a.ranks))
    with tempfile.TemporaryDirectory(prefix="paceline-ddp-") as a.work:
        subprocess.run([str(PACELINE), "generate", "recipes/any-target.yaml", *made_keys(), "--out", f"{a.work}/made",
                        "-q"],
                       check=True, cwd=ROOT)
        one = {part: timed(a, part, 1) for part in ("paceline", "torch")}
        print(f"one rank: paceline {one['paceline']:.3f} s a step, PyTorch {one['torch']:.3f} s", flush=True)
        try:
            for rate in a.rates:
                links(rate)
                two = {part: timed(a, part, 2) for part in one}
                plan = planned(one["paceline"], rate)
                floor = plan["sent_bytes"] * 8 / (rate * 1e6)
                eff = {part: one[part] / (2 * two[part]) for part in one}
                most = {part: min(1, one[part] / (2 * floor)) for part in one}
                print(f"{rate} Mbit/s, floor {floor:.3f} s: paceline {two['paceline']:.3f} s, efficiency "
                      f"{eff['paceline']:.2f} of {most['paceline']:.2f} (plan {plan['step_seconds']:.3f} s, "
                      f"{plan['efficiency']:.2f}); PyTorch {two['torch']:.3f} s, {eff['torch']:.2f} of "
                      f"{most['torch']:.2f}", flush=True)
        finally:
            links(None)


if __name__ == "__main__":
    main()
