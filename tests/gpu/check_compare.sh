#!/usr/bin/env bash
# Runs the parts of tests/gpu/run.sh at toy sizes on the CPU and on the emulated device: results as tables and lines
# and, where python3 has PyTorch, the comparisons with it.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$1 emulated=$(dirname "$1")/paceline_emulated dump=$(dirname "$1")/dump_forward work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
command -v python3 >/dev/null || exit 77
"$program" bench decode --shape tiny --context 8 --new-tokens 2 --repeats 1 --json --quiet >"$work/shape.json"
"$emulated" bench linear --vocab 64 --hidden 64 --max-mb 1 --json --quiet --device emulated >"$work/linear.json"
python3 tests/gpu/tables.py --csv "$work/figures.csv" "$work/shape.json" "$work/linear.json" >"$work/tables.md"
lines=$(awk -F, 'NF == 6 && $3 > 0 && $4 > 0' "$work/figures.csv" | wc -l)
if [ "$lines" != 34 ]; then
    cat "$work/figures.csv"
    echo "$lines lines of figures, not 1 + 7 + 8 + 8 of the shape and 10"
    exit 1
fi
grep -q '^| lowrank-d/8 | chain:7 |' "$work/tables.md" || { cat "$work/tables.md"; exit 1; }
echo "tables: ok"
python3 -c 'import numpy, torch' 2>/dev/null || { echo "python3 has no PyTorch: nothing is compared"; exit 77; }
python3 tests/gpu/compare_decode.py --dump "$dump" --device cpu
python3 tests/gpu/compare_decode.py --dump "$dump" --device emulated --rows 12 --steps 3
if python3 tests/gpu/compare_decode.py --dump "$dump" --device cpu --spoil >"$work/spoiled"; then
    echo "a norm that is 5 % off was not seen"
    exit 1
fi
grep -q '3 of 4 within budget' "$work/spoiled" || { cat "$work/spoiled"; exit 1; }
python3 tests/gpu/compare_train.py --paceline "$program" --device cpu --repeats 1 --csv "$work/figures.csv"
awk -F, 'NF != 6 { bad = 1 }
    /^train eagle3 lowrank:8 K3 paceline/ { seen = 1 }
    END { exit bad || !seen }' "$work/figures.csv" || { cat "$work/figures.csv"; exit 1; }
