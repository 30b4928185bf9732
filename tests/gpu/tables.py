#!/usr/bin/env python3
"""What `paceline bench --json` says, as Markdown on standard output and, with --csv FILE, as lines of figures.csv
(what,rows,seconds,bytes,gb_per_s,share_of_copy): tables.py [--csv FILE] RESULT.json..."""
import argparse
import csv
import json
import math
import os


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


def group_of(r):
    """Which line of predicted.csv a piece of work of a training step belongs to."""
    op, what, phase = r["op"], r["what"], r["phase"]
    product = what.replace(" +=", "").split(" x ")
    if op == "idle":
        return "idle: " + what
    if op in ("upload", "download"):
        return "uploads and downloads"
    if op == "zero":
        return "gradients to zero"
    if len(product) == 3 and op.startswith("divergence"):
        return "head products, " + ("forward" if phase == "forward" else "backward")
    if len(product) == 3:
        dw = phase == "backward" and int(product[2]) < min(int(product[0]), int(product[1]))
        return "layer products, " + ("forward" if phase == "forward" else "dW" if dw else "dx")
    if op == "linear" and not what:
        return "layer products, " + phase
    if op.startswith("divergence"):
        return "head, row kernels"
    if op.startswith("attention"):
        return "attention"
    if phase == "optimizer":
        return "optimizer"
    if "narrow" in what or "round" in what:
        return "narrowing to bf16"
    return "elementwise"


def predicted():
    """Milliseconds by group, of the step that the predictions are for."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "predicted.csv")) as f:
        return {r["group"]: float(r["ms"]) for r in csv.DictReader(f)}


def rows_of(r):
    return f", {r['rows']} rows run" if "rows" in r else ""


def step(j, r, full):
    name = f"training step, {r['name']}, head {r.get('head', '-')}, {r['tokens']:.0f} rows, " \
           f"supervised {r.get('supervised', 1):g}{rows_of(r)}"
    table(name, [r], [("tokens/s", "tokens_per_second"), ("ms", lambda r: f"{r['seconds'] * 1e3:.2f}"),
                      ("p10", lambda r: f"{r['p10'] * 1e3:.2f}"), ("p90", lambda r: f"{r['p90'] * 1e3:.2f}"),
                      ("TFLOP/s", lambda r: f"{r['flops_per_second'] / 1e12:.1f}")])
    table(f"{name}: changes, in turns", j.get("trials"),
          [("change", "name"), ("ms without", lambda x: f"{x['base_seconds'] * 1e3:.2f}"),
           ("saved ms", lambda x: f"{x['saved_seconds'] * 1e3:.2f}"),
           ("p10", lambda x: f"{x['saved_p10'] * 1e3:.2f}"), ("p90", lambda x: f"{x['saved_p90'] * 1e3:.2f}")])
    launches = [x for x in j.get("launches") or [] if x["step"] == r["name"] and x["weights"] == r["weights"]]
    if not launches:
        return
    groups = {}
    for x in launches:
        g = groups.setdefault(group_of(x), [0, 0])
        g[0] += x["n"]
        g[1] += x["seconds"]
    want = predicted() if full else {}
    rows = [dict(group=k, n=n, ms=s * 1e3, predicted=want.get(k)) for k, (n, s) in groups.items()]
    rows += [dict(group=k, n=0, ms=0, predicted=v) for k, v in want.items() if k not in groups]
    table(f"{name}: where it goes ({r['profiled_seconds'] * 1e3:.2f} ms while profiled, busy "
          f"{r['busy_seconds'] * 1e3:.2f}, idle {r['idle_seconds'] * 1e3:.2f})",
          sorted(rows, key=lambda x: -x["ms"]),
          [("group", "group"), ("n", "n"), ("ms", "ms"), ("predicted ms", "predicted")])
    table(f"{name}: launches", launches[:60],
          [("phase", "phase"), ("op", "op"), ("what", "what"), ("n", "n"), ("us each", lambda x:
           f"{x['seconds'] / max(x['n'], 1e-9) * 1e6:.1f}"), ("ms", lambda x: f"{x['seconds'] * 1e3:.3f}"),
           ("share", share("share")), ("TFLOP/s", lambda x: number((x.get("flops_per_second") or 0) / 1e12)),
           ("GB/s", lambda x: number((x.get("bytes_per_second") or 0) / 1e9))])


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
    for r in j.get("step") or []:
        name = f"bench step {r['name']} {r.get('head', '')} supervised {r.get('supervised', 1):g}{rows_of(r)}"
        yield name, int(r["tokens"]), r
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
    out = []
    for path in a.result:
        with open(path) as f:
            j = json.load(f)
        kernels(j)
        for r in j.get("step") or []:
            step(j, r, r["tokens"] == 2048 and r.get("supervised") == 1 and r.get("head") == "trimmed:32000")
        if "model" in j:
            shape(j)
        table("Left out", j.get("left_out"), [("what", "name"), ("why", "why")])
        for what, rows, r in lines(j):
            floor = r.get("floor_seconds") or math.nan
            out.append(f"{what},{rows},{r['seconds']:.4e},{r.get('bytes', 0):.0f},"
                       f"{r.get('bytes', 0) / r['seconds'] / 1e9:.4g},"
                       f"{floor / r['seconds']:.3f}\n")
    if a.csv:
        with open(a.csv, "a") as f:
            f.writelines(out)


if __name__ == "__main__":
    main()
