#!/usr/bin/env bash
# A new kind is one file and one line: the kinds of tests/toy/kinds, which no other code knows, are trained from a
# recipe, evaluated, planned, timed, inspected and reported by paceline_toys; the plain program refuses them by name.
#   bash tests/toy/check_toys.sh PROGRAM
set -uo pipefail
program=$(realpath "$1")
toys=$(dirname "$program")/paceline_toys
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
say() { echo "$*"; bad=1; }
has() { grep -qE -- "$2" "$work/out" || { head -40 "$work/out"; say "$1: nothing like \"$2\""; }; }
runs() { "$toys" "$@" >"$work/out" 2>"$work/err" || { cat "$work/out" "$work/err"; say "paceline_toys $1: failed"; }; }
refused() { # PATTERN ARGUMENTS...: by the plain program, in one line
    local pattern=$1; shift
    "$program" "$@" >"$work/out" 2>&1 && say "$*: accepted without the kind"
    has "$*" "$pattern"
    [ "$(wc -l <"$work/out")" = 1 ] || say "$*: not one line"
}

# ---- what is there ----

runs run --keys
has keys '^drafter\.head\.layers: an integer from 0 to 4'
has keys '^drafter\.kind: one of .*normed'
has keys '^drafter\.head\.kind: one of .*mixed'
has keys '^train\.choice_weight: a number from 0'
runs decode --help
for name in 'fork:N ' 'repeat\[:N\] ' 'first '; do has 'decode --help' "^  $name"; done
runs bench heads --vocab 2000 --hidden 64 --quiet
has 'bench heads' '^ +mixed-2-bf16 +mixed '
runs bench step --shape tiny --layers 2 --head mixed:layers=2 --quiet --json
has 'bench step' '"head": *"mixed:layers=2"'

# What CONTRIBUTING.md says of adding each.
for file in tests/toy/kinds/*.c; do
    lines=$(wc -l <"$file")
    grep -qE "^ $file +\| +$lines \+" CONTRIBUTING.md || say "CONTRIBUTING.md: $file has $lines lines"
done

# ---- a run ----

head -16 data/prompts/train.jsonl >"$work/prompts.jsonl"
cat >"$work/toys.yaml" <<EOF
kind: drafter
target: {path: $PWD/checkpoints/tiny}
data: {prompts: $work/prompts.jsonl, max_new_tokens: 24, samples: 0}
drafters:
  - name: mixed
    head: {kind: mixed, layers: 2}
  - name: normed
    kind: normed
    choice_weight: 0.5
    head: {kind: mixed}
train: {steps: 4, slots: 1, slot_rows: 64, unroll: 2, holdout: 4, warmup: 1, eval_every: 2, checkpoint_every: 2}
eval:
  prompts: $PWD/data/prompts/heldout.jsonl
  limit: 2
  max_new_tokens: 16
  repeats: 1
  temperatures: [0, 1]
  seeds: 1
  ceilings: 40
  drafters:
    - kind: repeat:3
    - {name: forked, drafter: mixed, tree: "fork:3"}
    - {name: firsts, drafter: normed, verify: first}
EOF
runs run "$work/toys.yaml" --out "$work/run" --quiet
for method in mixed normed repeat:3 forked firsts; do
    has results "^$method +.* yes "
    has results "^$method@T=1 +.* (yes|in distribution) "
    grep -q "$method" "$work/run/report.html" || say "report.html: no $method"
done
metrics=$(find "$work/run" -path '*normed*' -name metrics.jsonl)
for figure in step_choice_loss eval_step_choice_loss; do
    grep -qE "\"$figure\":\[[0-9.e+-]*[1-9]" "$metrics" || say "metrics.jsonl: no $figure of the drafter with train.choice_weight"
done
other=$(find "$work/run" -path '*mixed*' -name metrics.jsonl)
[ -s "$other" ] && ! grep -q choice_loss "$other" ||
    say "metrics.jsonl: choice_loss of a drafter without"
! grep -q '"identical": *false' "$work/run/results.json" || say "results.json: a method's output is not plain decoding's"

# ---- its checkpoints ----

mixed=$(dirname "$(find "$work/run" -path '*mixed*' -name config.json | head -1)")
normed=$(dirname "$(find "$work/run" -path '*normed*' -name config.json | head -1)")
runs inspect "$mixed"
has inspect '^head_layers +2'
runs inspect "$normed" --json
has 'inspect --json' 'normed'
runs plan --target checkpoints/tiny --drafter "$mixed" --heads none --seconds 1 --quiet
has plan '^ +mixed '
runs decode --target checkpoints/tiny --drafter "$normed" --tree fork:2 --verify first --prompt 'It was' -n 8 --quiet
refused '"mixed"' decode --target checkpoints/tiny --drafter "$mixed" --prompt 'It was'
refused 'Normed|normed' decode --target checkpoints/tiny --drafter "$normed" --prompt 'It was'
refused 'repeat' decode --target checkpoints/tiny --drafter repeat:3 --prompt 'It was'
refused 'choice_weight=1: unknown key' run recipes/quickstart.yaml --set train.choice_weight=1 --out "$work/other"
program=$toys refused 'no such loss' train recipes/distill.yaml --set train.choice_weight=1 --out "$work/other"
refused 'drafters\.0\.head\.' run "$work/toys.yaml" --out "$work/other"

[ "$bad" = 0 ] && echo "toys: ok"
exit "$bad"
