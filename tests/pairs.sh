#!/bin/bash
# Drafters beside plain decoding: tests/pairs.sh PROGRAM TARGET PROMPTS TEMPERATURE DRAFTER...
# Runs PACELINE_BLOCKS (8) evaluations, each in a process of its own, since where a process' memory lies makes one method
# some per cent faster or slower than another as long as the process lives. In an evaluation all methods answer the same
# prompts in turns, one at a time and in batches of PACELINE_BATCHES (4, 16). Prints, by batch and drafter, the mean
# speed-up and its 95 % interval (Student's t over processes); fails where the first drafter's mean is below 0.97, or
# answers that are promised to be plain's are not. PACELINE_TIMED: a command to put before each evaluation;
# PACELINE_LIMIT: prompts at most.
set -euo pipefail
program=$1 target=$2 prompts=$3 temperature=$4
shift 4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    printf 'target:\n  path: %s\neval:\n  benchmark: %s\n  temperatures: [%s]\n' "$target" "$prompts" "$temperature"
    printf '  seeds: 1\n  limit: %s\n  plain_fp32: false\n  trace: false\n  max_new_tokens: 128\n' "${PACELINE_LIMIT:-0}"
    printf '  batches: [%s]\n  drafters:\n' "${PACELINE_BATCHES:-4, 16}"
    printf "    - {name: first, kind: '%s'}\n" "$1"
    for drafter in "${@:2}"; do
        if [ -d "$drafter" ]; then printf "    - {name: model, path: '%s'}\n" "$drafter"; else printf "    - {kind: '%s'}\n" "$drafter"; fi
    done
} >"$work/pairs.yaml"
for ((i = 1; i <= ${PACELINE_BLOCKS:-8}; i++)); do
    # shellcheck disable=SC2086
    ${PACELINE_TIMED:-} "$program" eval "$work/pairs.yaml" --seed "$i" --out "$work/$i" >"$work/log" 2>&1 ||
        { tail -n 3 "$work/log"; exit 1; }
done
python3 - "$work"/*/results.json <<'PYTHON'
import json, statistics, sys
speed, same = {}, True
for path in sys.argv[1:]:
    results = json.load(open(path))
    for m in [dict(m, batch=1) for m in results["methods"]] + results["batched"]:
        same &= m["identical_outputs"] is not False
        if m["name"] != "plain":
            speed.setdefault((m["batch"], m["name"]), []).append(m["speedup"])
worst = min(statistics.mean(x) for (_, name), x in speed.items() if name == "first")
for (batch, name), x in sorted(speed.items()):
    df, half = len(x) - 1, float("nan")
    if df > 0:  # Student's t by Cornish and Fisher's series
        t = 1.95996 + 2.37227 / df + 2.8225 / df**2 + 2.556 / df**3
        half = t * statistics.stdev(x) / len(x) ** 0.5
    print(f"  batch {batch:2} {name[:60]:60} {statistics.mean(x):.3f} +-{half:.3f}")
print(f"pairs: {len(sys.argv) - 1} processes, the first drafter at least {worst:.3f} times plain (0.97 wanted: "
      f"{'yes' if worst >= 0.97 else 'NO'}), answers {'are' if same else 'ARE NOT'} as promised")
sys.exit(worst < 0.97 or not same)
PYTHON
