#!/usr/bin/env python3
"""What `paceline bench --json` says, as Markdown on standard output and, with --csv FILE, as lines of figures.csv
(what,rows,seconds,bytes,gb_per_s,share_of_copy): tables.py [--csv FILE] RESULT.json..."""
import argparse
import json
import math


def number(x, digits=3):
    if x is None:
        return "-"
    if isinstance(x, bool) or not isinstance(x, (int, float)):
        return str(x)
    if x == int(x) and abs(x) < 1e6:
        return str(int(x))
    return f"{x:.{digits}g}"


def microseconds(x):
    return "-" if x is None else f"{x * 1e6:.1f}"


def table(title, rows, columns):
    """columns: (heading, key or function of a row)."""
    if not rows:
        return
    print(f"\n{title}\n\n| {' | '.join(c[0] for c in columns)} |\n|{'---|' * len(columns)}")
    for r in rows:
        cells = [c[1](r) if callable(c[1]) else number(r.get(c[1])) for c in columns]
        print(f"| {' | '.join(cells)} |")


def us(key):
    return lambda r: microseconds(r.get(key))


def share(key):
    return lambda r: "-" if r.get(key) is None else f"{100 * r[key]:.0f} %"


GOAL = [("goal", "goal"), ("reached", "reached"), ("met", "met")]
KERNEL = [("what", "name"), ("us", us("seconds")), ("floor us", us("floor_seconds")),
          ("share", share("share_of_floor"))]


def kernels(j):
    table("Copies", j.get("bandwidth"), [("MB", "footprint_mb"), ("GB/s", "copy_gb_per_second")])
    for key in ("linear", "heads", "routed_reads", "attention", "draw"):
        table(f"bench {key}", j.get(key), KERNEL)
    table("bench train", j.get("train"), KERNEL + [("TFLOP/s", lambda r: f"{r['flops_per_second'] / 1e12:.1f}")])


def shape(j):
    m = j["model"]
    name = f"{m['shape']}, {m['layers']} layers, context {m['context']}"
    table(f"{name}: plain", j["plain"], [("tokens/s", "tokens_per_second"), ("us", us("seconds")),
                                         ("floor us", us("floor_seconds"))] + GOAL)
    table(f"{name}: verification", j["verify"], [("rows", "rows"), ("us", us("seconds"))] + GOAL)
    table(f"{name}: a draft level", j["draft"],
          [("head", "head"), ("rows", "rows"), ("us", us("seconds")), ("layer", us("layer_seconds")),
           ("head us", us("head_seconds")), ("bare product", us("product_seconds")),
           ("floor us", us("floor_seconds"))] + GOAL)
    table(f"{name}: a cycle", j["cycle"],
          [("head", "head"), ("tree", "tree"), ("us", us("seconds")), ("target", us("target_seconds")),
           ("drafting", us("draft_seconds")), ("floor us", us("floor_seconds")), ("at tau", "at_tau"),
           ("tokens/s", "tokens_per_second")] + GOAL)
    table(f"{name}: where drafting goes", j["parts"],
          [("head", "head"), ("tree", "tree"), ("layer", share("layer")), ("product", share("head_product")),
           ("softmax, top-k", share("softmax_topk")), ("rest", share("rest"))])


def lines(j):
    """(what, rows, row) of all that has seconds and bytes."""
    for key in ("linear", "heads", "routed_reads", "attention", "draw", "train"):
        for r in j.get(key) or []:
            yield f"bench {key} {r['name']}", r.get("m", r.get("rows", 1)), r
    if "model" not in j:
        return
    name = j["model"]["shape"]
    for r in j["plain"]:
        yield f"{name} plain", 1, r
    for r in j["verify"]:
        yield f"{name} verify", r["rows"], r
    for r in j["draft"]:
        yield f"{name} draft {r['head']}", r["rows"], r
    for r in j["cycle"]:
        yield f"{name} cycle {r['head']} {r['tree'].replace(',', ' ')}", 1, r


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--csv")
    p.add_argument("result", nargs="+")
    a = p.parse_args()
    csv = []
    for path in a.result:
        with open(path) as f:
            j = json.load(f)
        kernels(j)
        if "model" in j:
            shape(j)
        table("Left out", j.get("left_out"), [("what", "name"), ("why", "why")])
        for what, rows, r in lines(j):
            floor = r.get("floor_seconds") or math.nan
            csv.append(f"{what},{rows},{r['seconds']:.4e},{r['bytes']:.0f},{r['bytes'] / r['seconds'] / 1e9:.4g},"
                       f"{floor / r['seconds']:.3f}\n")
    if a.csv:
        with open(a.csv, "a") as f:
            f.writelines(csv)


if __name__ == "__main__":
    main()
