#!/usr/bin/env bash
# Every barrier, fence, copy wait and dependency wait of kernels/cuda left out, one at a time: the tests of the ops that
# use it, watched for races, must turn red. A line for each place; those that no test misses stand, with why they may,
# in tests/cuda/unmissed.txt.
#   bash tests/cuda/mutate.sh BUILD_FOLDER [FILE[:LINE]...]
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
build=$1
shift
say=$(mktemp)
trap 'rm -f "$say"' EXIT
export PACELINE_TEST_DEVICES_ALONE=1 PACELINE_TEST_SEEDS=1 PACELINE_TEST_DEVICE=emulated
tests_of() { # FILE: quick ones first
    case "$1" in
    attention*) echo raced_op_attention ;;
    blockattention.cu) echo raced_op_blockattention ;;
    blockconv.cu) echo raced_op_blockconv ;;
    columns.cuh | rows.cu) echo raced_slices raced_op_headnorm raced_op_rmsnorm raced_op_smoothl1 raced_op_classify raced_op_embed raced_op_gather raced_op_adamw ;;
    device.cuh) echo raced_op_smoothl1 raced_op_rmsnorm raced_op_route raced_op_topk raced_op_draw ;;
    divergence.cu) echo raced_op_divergence ;;
    draw.cu) echo raced_op_draw ;;
    elementwise.cu) echo raced_slices raced_op_silu raced_op_softcap raced_op_add raced_op_rope raced_op_swiglu raced_op_concat ;;
    frontier.cu) echo raced_op_frontier ;;
    byrow.cuh | gatherdot.cu) echo raced_op_gatherdot raced_op_embed raced_cuda ;;
    gemm.cu) echo raced_op_linear ;;
    headtopk.cu) echo raced_op_headtopk ;;
    linear.cu) echo raced_branch raced_slices raced_op_linear raced_cuda raced_op_headtopk ;;
    optim.cu) echo raced_op_adamw ;;
    panel.cuh) echo raced_branch raced_op_linear raced_cuda ;;
    route.cu) echo raced_op_route ;;
    squash.cu) echo raced_op_squash ;;
    select.cuh | topk.cu) echo raced_op_topk raced_op_frontier raced_op_route raced_op_headtopk ;;
    *) echo "no tests are named for $1" >&2 ;;
    esac
}
judge() { # FILE:LINE: how it was missed
    local t out seeds reached=0
    for t in $(for seeds in 0 1; do for t in $(tests_of "${1%%:*}"); do echo "$seeds:$t"; done; done); do # quickest first
        seeds=${t%%:*} t=${t#*:}
        [ -x "$build/raced/$t" ] || { echo "not built: $t"; return 2; }
        PACELINE_TEST_SEEDS=$seeds PACELINE_EMULATED_DROP=$1 timeout 900 "$build/raced/$t" >"$say" 2>&1
        case $? in
        0) n=$(sed -n 's/^emulated device: left out .* \([0-9]*\) times$/\1/p' "$say" | tail -n 1); reached=$((reached + ${n:-0})); continue ;;
        124) echo "$t: does not end"; return 0 ;;
        esac
        out=$(grep -m 1 -oE '^race: [a-z]+ memory|emulated device: .*|^.*FAILED.*' "$say" | head -n 1 | sed 's/^emulated device: //; s/block [0-9,]* thread [0-9]*: //')
        echo "$t: ${out:-another result}"
        return 0
    done
    [ "$reached" -gt 0 ] && echo "missed by none (left out $reached times)" || echo "not reached"
    return 1
}
places() {
    grep -nE '__sync(threads|warp)\(\)|pl_fence\(\)|pl_copy_wait<|pl_previous_done\(\)' kernels/cuda/*.cu kernels/cuda/*.cuh |
        grep -vE '^[^:]*:[0-9]+: *(//|static|template|\*)' | grep -vE '//.*(pl_previous_done|pl_fence)\(?' | sed -E 's|^kernels/cuda/([^:]*:[0-9]+):.*|\1|'
}
# With nothing left out all is green, or red would say nothing.
sound() { # TEST
    [ -x "$build/raced/$1" ] || return 0
    timeout 900 "$build/raced/$1" >"$say" 2>&1 || { echo "$1 is red as it is: $(grep -m 1 -E '^race:|FAILED' "$say")"; exit 1; }
}
for test in $(for place in $(places); do
    [ $# = 0 ] || [[ " $* " == *" $place "* || " $* " == *" ${place%%:*} "* ]] && tests_of "${place%%:*}"
done | tr ' ' '\n' | sort -u); do sound "$test"; done
total=0 red=0 left=0 known=0
for place in $(places); do
    if [ $# -gt 0 ]; then
        [[ " $* " == *" $place "* || " $* " == *" ${place%%:*} "* ]] || continue
    fi
    total=$((total + 1))
    how=$(judge "$place")
    case $? in
    0) red=$((red + 1)) ;;
    1) # by the line's text, which stays where numbers change
        text=$(sed -n "${place##*:}p" "kernels/cuda/${place%%:*}" | sed 's/^ *//')
        grep -qxF "${place%%:*}: $text" tests/cuda/unmissed.txt 2>/dev/null && { known=$((known + 1)); how="$how; unmissed.txt says why"; } || left=$((left + 1)) ;;
    *) left=$((left + 1)) ;;
    esac
    printf '%-24s %s\n' "$place" "$how"
done
echo "$total places left out one at a time: $red missed, $known explained, $left open"
[ "$total" -gt 0 ] && [ "$left" = 0 ]
