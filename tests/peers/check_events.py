#!/usr/bin/env python3
"""Event files of runs by TensorBoard's own reader (pip install tensorboard). Development only.

    python tests/peers/check_events.py runs/mine ...     what lies there against each run's metrics.jsonl
    python tests/peers/check_events.py                   trains, kills, goes on, while a reader looks on

A run passes where every scalar that TensorBoard holds is one of metrics.jsonl, at its step and time, once, and the
other way round.
"""
import json
import math
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from tensorboard.backend.event_processing import event_accumulator

NAMES = {"lr": "train/learning_rate", "alarm": "eval/alarm"}


def tag_of(key):
    if key in NAMES:
        return NAMES[key]
    for begin in ("eval", "served", "documents"):
        if key.startswith(begin + "_"):
            return begin + "/" + key[len(begin) + 1:]
    return "train/" + key


def expected(run):
    """tag -> [(step, time, value)]"""
    want = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        for key, value in record.items():
            if key in ("step", "time", "stage"):
                continue
            values = [(f"/{i + 1}", v) for i, v in enumerate(value)] if isinstance(value, list) else [("", value)]
            for index, v in values:
                if isinstance(v, (int, float)):
                    want.setdefault(tag_of(key) + index, []).append((record["step"], record["time"], v))
    return want


def as_float(v):
    return struct.unpack("f", struct.pack("f", v))[0]


def reader(run):
    return event_accumulator.EventAccumulator(str(run), size_guidance={event_accumulator.SCALARS: 0})


def compare(run, accumulator):
    accumulator.Reload()
    want, have = expected(run), accumulator.Tags()["scalars"]
    assert sorted(want) == sorted(have), f"{run}: tags {sorted(set(want) ^ set(have))}"
    for tag, points in want.items():
        got = [(e.step, e.wall_time, e.value) for e in accumulator.Scalars(tag)]
        assert got == [(s, t, as_float(v)) for s, t, v in points], f"{run}: {tag}: {got[:4]}... against {points[:4]}..."
    n = sum(len(p) for p in want.values())
    print(f"{run}: {n} scalars under {len(want)} tags, all as metrics.jsonl has them")


def train_killed():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="paceline-events-"))
    text = folder / "text.txt"
    text.write_text("\n".join(f"Once upon a time there were {n} ducks, and one of them said {n * n}." for n in range(4000)))
    run = folder / "run"
    command = ["build/paceline", "train", "recipes/target-4k.yaml", "--out", str(run), "-q",
               "--set", f"data.text=[{text}]", "--set", "data.tokenizer.vocab_size=320",
               "--set", "target.new.hidden_size=32", "--set", "target.new.layers=1", "--set", "target.new.heads=2",
               "--set", "target.new.kv_heads=1", "--set", "target.new.intermediate=64",
               "--set", "train.batch=2", "--set", "train.seq_len=64", "--set", "train.steps=60",
               "--set", "train.log_every=1", "--set", "train.eval_every=20", "--set", "train.checkpoint_every=15",
               "--set", "train.checkpoint_minutes=0", "--set", "train.unlikelihood.sequences=0"]
    look, steps = None, []
    for kill_at in (22, 40, None):
        process = subprocess.Popen(command)
        while kill_at and process.poll() is None:
            lines = (run / "metrics.jsonl").read_text().count("\n") if (run / "metrics.jsonl").exists() else 0
            if lines >= kill_at:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.005)
        assert process.wait() == (0 if kill_at is None else -signal.SIGKILL), process.returncode
        look = look or reader(run)
        look.Reload()
        steps.append(max(e.step for e in look.Scalars("train/loss")))
    assert steps[-1] == 60 and steps[0] >= 16, steps
    print(f"a reader that looked on saw the run up to steps {steps}")
    compare(run, look)  # the one that had read what was cut off
    compare(run, reader(run))
    shutil.rmtree(folder)


def main():
    for run in map(pathlib.Path, sys.argv[1:]):
        compare(run, reader(run))
    if len(sys.argv) == 1:
        train_killed()


main()
