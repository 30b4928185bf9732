#!/usr/bin/env bash
# The long proofs, each ending in one line with its figure. Give names to run some of them; without names all run.
#   bash tests/shown.sh [NAME...]      (bash tests/shown.sh --list says which there are)
# PACELINE_TEST_DATA: folder with outside data (needed by goldens, any-target and specbench).
# PACELINE_RUN: a finished run of recipes/quickstart.yaml, whose drafters methods, specbench and parity take; without it
# they train them once.
# PACELINE_LLAMA2C: llama2.c's `run` and a model of the built-in target's shape, as "RUN MODEL" (needed by llama2c).
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
say() { printf '%-12s %s\n' "$1" "$2"; }
fail() { say "$1" "FAILED: $2"; status=1; }
program() {
    [ -x "$root/build/paceline" ] || { cmake --preset release -S "$root" >/dev/null && cmake --build "$root/build" >/dev/null; }
    echo "$root/build/paceline"
}

shown_quickstart() { # a clean clone, from nothing to the table
    git clone -q "$root" "$work/clone" || return 1
    local t0=$SECONDS
    (cd "$work/clone" && bash recipes/quickstart.sh) >"$work/quickstart.log" 2>&1 || { tail -n 5 "$work/quickstart.log"; fail quickstart "see above"; return; }
    sed -n '/^method/,/^$/p' "$work/quickstart.log"
    say quickstart "$((SECONDS - t0)) s, identical_outputs: $(grep -o '"identical_outputs": *[a-z]*' "$work/clone/runs/quickstart/results.json" | sort | uniq -c | tr '\n' ' ')"
}

shown_goldens() {
    local data=${PACELINE_TEST_DATA:?set it} p
    p=$(program)
    (cd "$root" && "$root"/build/test_decode_golden) >"$work/goldens.log" 2>&1 && say goldens "$(tail -n 1 "$work/goldens.log")" || fail goldens "$(tail -n 3 "$work/goldens.log")"
}

shown_any_target() {
    local data=${PACELINE_TEST_DATA:?set it} p t0
    p=$(program)
    for t in "TinyStories-656K" "stories260K/stories260K.bin"; do
        local extra=()
        case "$t" in *.bin) extra=(--set "target.tokenizer=$data/models/stories260K/tok512.bin") ;; esac
        t0=$SECONDS
        (cd "$root" && "$p" run recipes/any-target.yaml --set "target.path=$data/models/$t" "${extra[@]}" \
            --set data.prompts=data/prompts/stories.jsonl --out "$work/any") >"$work/any.log" 2>&1 || { tail -n 3 "$work/any.log"; fail any-target "$t"; continue; }
        sed -n '/^method/,$p' "$work/any.log"
        say any-target "$t: $((SECONDS - t0)) s"
        rm -rf "$work/any"
    done
}

heads() { # the folder of a run that has the quickstart's drafters
    heads=${PACELINE_RUN:-$work/heads}
    [ -d "$heads/drafters" ] && return
    (cd "$root" && "$p" run recipes/quickstart.yaml --out "$heads") >"$work/heads.log" 2>&1 || { tail -n 3 "$work/heads.log"; return 1; }
}

shown_methods() { # the full comparison, trained drafters and others, temperature 0 and 1
    local p t0
    p=$(program)
    heads || { fail methods "training"; return; }
    mkdir -p "$work/methods" && cp -r "$heads/drafters" "$work/methods/"
    t0=$SECONDS
    (cd "$root" && "$p" eval recipes/methods.yaml --out "$work/methods") >"$work/methods.log" 2>&1 || { tail -n 3 "$work/methods.log"; fail methods "see above"; return; }
    sed -n '/^method/,$p' "$work/methods.log"
    say methods "$((SECONDS - t0)) s, identical_outputs: $(grep -o '"identical_outputs": *[a-z]*' "$work/methods/results.json" | sort | uniq -c | tr '\n' ' ')"
}

shown_specbench() { # all 480 questions, by category
    local data=${PACELINE_TEST_DATA:?set it} p t0
    p=$(program)
    heads || { fail specbench "training"; return; }
    t0=$SECONDS
    (cd "$root" && "$p" eval recipes/spec-bench.yaml --set "eval.prompts=$data/bench/spec_bench/question.jsonl" \
        --set "eval.drafters.2.path=$heads/drafters/eagle3-lowrank/checkpoints/best" --out "$work/specbench") >"$work/specbench.log" 2>&1 || { tail -n 3 "$work/specbench.log"; fail specbench "see above"; return; }
    sed -n '/^method/,$p' "$work/specbench.log"
    say specbench "$(grep -o '"n_prompts": *[0-9]*' "$work/specbench/results.json" | grep -o '[0-9]*$') questions, $((SECONDS - t0)) s, identical_outputs: $(grep -o '"identical_outputs": *[a-z]*' "$work/specbench/results.json" | sort | uniq -c | tr '\n' ' ')"
}

shown_parity() { # what the training code says of a trained drafter is what decoding accepts, position for position
    local p head line
    p=$(program)
    [ -x "$root/build/test_parity" ] || cmake --build "$root/build" --target test_parity >/dev/null || { fail parity "does not build"; return; }
    heads || { fail parity "training"; return; }
    for head in full lowrank; do
        (cd "$root" && PACELINE_PARITY="checkpoints/tiny $heads/drafters/eagle3-$head/checkpoints/best" build/test_parity) >"$work/parity.log" 2>&1 || { tail -n 5 "$work/parity.log"; fail parity "eagle3-$head"; continue; }
        line=$(grep '^parity:' "$work/parity.log") && say parity "eagle3-$head on checkpoints/tiny${line#parity}" || fail parity "eagle3-$head: did not run"
    done
}

shown_bench() {
    "$(program)" bench || fail bench "exit $?"
}

shown_llama2c() { # greedy decoding beside llama2.c's own program, same shape, two threads, interleaved
    # shellcheck disable=SC2206
    local pair=(${PACELINE_LLAMA2C:?set it to "RUN MODEL"}) p i
    p=$(program)
    for i in 1 2 3; do
        OMP_NUM_THREADS=2 "${pair[0]}" "${pair[1]}" -t 0 -n 256 -z "${pair[2]:-tokenizer.bin}" 2>&1 >/dev/null | tail -n 1
        "$p" decode --target "${pair[1]}" --dtype fp32 --threads 2 --prompt-ids 1 --max-new-tokens 256 --json |
            grep -o '"tokens_per_second": *[0-9.]*' | head -n 1
    done
    say llama2c "pairs above: llama2.c, then paceline fp32"
}

shown_faults() { # every failure that every command can meet; a quarter of an hour
    "$(program)" --version >/dev/null
    "$root/build/test_fault" all >"$work/faults.log" 2>&1 || fail faults "$(grep -v '^ ' "$work/faults.log" | grep -E ' (own|libs) ' | head -n 20)"
    while read -r line; do say faults "$line"; done < <(grep -E '^[a-z]+ \([0-9]+ s\)|^  ' "$work/faults.log")
}

shown_verify() { # each verifier's law through the decode loop, a million draws a test
    program >/dev/null
    (cd "$root" && PACELINE_TEST_DRAWS=1000000 "$root"/build/test_verify_chi2) >"$work/verify.log" 2>&1 || { tail -n 5 "$work/verify.log"; fail verify "see above"; return; }
    grep ', z ' "$work/verify.log"
    say verify "$(grep -c ', z ' "$work/verify.log") G-tests"
}

names=$(declare -F | sed -n 's/^declare -f shown_//p' | tr _ -)
[ "${1:-}" != --list ] || { echo "$names"; exit 0; }
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $names
for name in "$@"; do "shown_${name//-/_}"; done
exit $status
