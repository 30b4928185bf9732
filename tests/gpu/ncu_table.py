#!/usr/bin/env python3
"""Kernels of an `ncu --csv --page raw` run as Markdown, in the order in which they came first: launches, the median
time of one, what it reads from memory and at which rate: ncu_table.py NCU.csv"""
import csv
import statistics
import sys


def main():
    with open(sys.argv[1], newline="") as f:
        rows = [r for r in csv.reader(f) if len(r) > 4]
    head = next(i for i, r in enumerate(rows) if r[0] == "ID")
    at = {name: i for i, name in enumerate(rows[head])}
    kernels = {}
    for r in rows[head + 2:]:  # behind the units
        def number(name):
            return float(r[at[name]].replace(",", ""))
        key = (r[at["Kernel Name"]].split("(")[0].removeprefix("void "), r[at["Grid Size"]])
        kernels.setdefault(key, []).append((number("gpu__time_duration.sum"), number("dram__bytes_read.sum")))
    print("\n| kernel | grid | launches | us | MB read | GB/s |\n|---|---|---|---|---|---|")
    for (name, grid), launches in kernels.items():
        ns = statistics.median(t for t, _ in launches)
        read = statistics.median(b for _, b in launches)
        print(f"| `{name}` | {grid} | {len(launches)} | {ns / 1e3:.1f} | {read / 1e6:.2f} | {read / ns:.0f} |")


if __name__ == "__main__":
    main()
