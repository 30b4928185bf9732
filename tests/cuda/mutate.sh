#!/usr/bin/env bash
# Every barrier, fence, copy wait and dependency wait of kernels/cuda left out, one at a time: a test of the ops, watched
# for races, must turn red. A line for each place; those that no test misses stand, with why they may, in
# tests/cuda/unmissed.txt.
#   bash tests/cuda/mutate.sh BUILD_FOLDER [FILE[:LINE]...]
# Each test runs once as it is, in order and in a drawn order: it must be green, and says which places it passes and how
# long it takes. A place is then left out in the tests that pass it alone, the quickest first, each until its first
# failure. What tests pass is kept beside them until they are built anew. PACELINE_TEST_JOBS: places at a time (2).
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
build=$(cd "$1" && pwd) || exit 2
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export build work PACELINE_TEST_DEVICES_ALONE=1 PACELINE_TEST_DEVICE=emulated CMOCKA_TEST_ABORT=1
kept=$build/raced/places # TEST.SEEDS: its processor time in seconds, then what it passes
export kept
mkdir -p "$kept"
places() { # as the emulated device names them
    grep -nE '__sync(threads|warp)\(\)|pl_fence\(\)|pl_copy_wait<|pl_previous_done\(\)' kernels/cuda/*.cu kernels/cuda/*.cuh |
        grep -vE '^[^:]*:[0-9]+: *(//|static|template|\*)' | grep -vE '//.*(pl_previous_done|pl_fence)\(?' | sed -E 's|^kernels/cuda/([^:]*:[0-9]+):.*|\1|'
}
asked() { # PLACE OF...: whether it is one of those
    local place=$1
    shift
    [ $# = 0 ] || [[ " $* " == *" $place "* || " $* " == *" ${place%%:*} "* ]]
}
passes() { # TEST:SEEDS as it is
    local t=${1%:*} seeds=${1#*:} out
    out=$kept/$t.$seeds
    [ "$out" -nt "$build/raced/$t" ] && return 0
    rm -f "$out" "$work/$t.$seeds.at"
    local TIMEFORMAT='%U'
    { time PACELINE_TEST_SEEDS=$seeds PACELINE_EMULATED_PLACES=$work/$t.$seeds.at timeout 3600 "$build/raced/$t" >"$work/$t.$seeds.log" 2>&1 3>&-; } 2>"$work/$t.$seeds.time" ||
        { echo "$t is red as it is: $(grep -m 1 -E '^race:|FAILED' "$work/$t.$seeds.log")"; return 1; }
    { cat "$work/$t.$seeds.time"; [ ! -f "$work/$t.$seeds.at" ] || cat "$work/$t.$seeds.at"; } >"$out.new" && mv "$out.new" "$out"
}
judge() { # FILE:LINE: how it was missed, after a number that says whether it was
    local n=0 t seeds cpu out say=$work/$1.log
    while read -r seeds cpu t; do
        # Five times as long as it takes, and some: what waits forever does so by turning in circles.
        (ulimit -t $((30 + 5 * ${cpu%.*})) && PACELINE_TEST_SEEDS=$seeds PACELINE_EMULATED_DROP=$1 exec timeout 3600 "$build/raced/$t") >"$say" 2>&1
        case $? in
        0) n=$((n + $(sed -n 's/^emulated device: left out .* \([0-9]*\) times$/\1/p' "$say" | tail -n 1 | grep . || echo 0))); continue ;;
        124 | 152) echo "0 $1 $t: does not end"; return ;;
        esac
        out=$(grep -m 1 -oE '^race: [a-z]+ memory|emulated device: .*|^.*FAILED.*|^.*\[ *LINE *\].*' "$say" | head -n 1 | sed 's/^emulated device: //; s/block [0-9,]* thread [0-9]*: //')
        echo "0 $1 $t: ${out:-another result}"
        return
    done < <(grep -lxF "$1" "$kept"/raced_* | while read -r f; do
        seeds=${f##*.} t=$(basename "${f%.*}")
        [ "$f" -nt "$build/raced/$t" ] && [ -f "tests/kernels/test_${t#raced_}.c" ] || continue
        echo "$seeds $(head -n 1 "$f") $t"
    done | sort -k 1,1n -k 2,2n)
    [ "$n" -gt 0 ] && echo "1 $1 missed by none (left out $n times)" || echo "1 $1 not passed"
}
export -f passes judge
jobs=${PACELINE_TEST_JOBS:-2}
tests=$(for t in "$build"/raced/raced_*; do # not those that were built once and are no more
    t=${t##*/}
    [ ! -f "tests/kernels/test_${t#raced_}.c" ] || printf '%s:0\n%s:1\n' "$t" "$t"
done)
[ -n "$tests" ] || { echo "nothing is built"; exit 2; }
xargs -P "$jobs" -I {} bash -c 'passes {}' <<<"$tests" || exit 1 # with nothing left out all is green, or red would say nothing
total=0 red=0 open=0 known=0
while read -r unseen place how; do
    total=$((total + 1))
    # By the line's text, which stays where numbers change.
    text=$(sed -n "${place##*:}p" "kernels/cuda/${place%%:*}" | sed 's/^ *//')
    if [ "$unseen" = 0 ]; then
        red=$((red + 1))
    elif grep -qxF "${place%%:*}: $text" tests/cuda/unmissed.txt; then
        known=$((known + 1)) how="$how; unmissed.txt says why"
    else
        open=$((open + 1))
    fi
    printf '%-24s %s\n' "$place" "$how"
done < <(for place in $(places); do asked "$place" "$@" && echo "$place"; done | xargs -P "$jobs" -I {} bash -c 'judge {}' 2>/dev/null) # a shell names each that aborts
echo "$total places left out one at a time: $red missed, $known explained, $open open"
[ "$total" -gt 0 ] && [ "$open" = 0 ]
