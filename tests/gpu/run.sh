#!/usr/bin/env bash
# The CUDA backend on a real GPU: builds what a bare GPU machine can build (nvcc, a C compiler, CMake), runs every op
# against ref on GPU N, decoding and training where the program's libraries are, then the bench, prints a table and
# appends it to kernels/cuda/MEASURED.md and its figures to kernels/cuda/measured.csv. What fails is written down too.
#   bash tests/gpu/run.sh [--gpu N] [--sanitizer] [--build-only] [--commit NAME]
# --sanitizer: the ops' tests once more under compute-sanitizer. --build-only: no GPU needed; the bench runs emulated.
# --commit: what to write down where the folder is no git checkout.
set -euo pipefail
cd "$(dirname "$0")/../.."
gpu=0 sanitizer=0 only=0 commit=$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
while [ $# -gt 0 ]; do
    case "$1" in
    --gpu) gpu=$2; shift 2 ;;
    --sanitizer) sanitizer=1; shift ;;
    --build-only) only=1; shift ;;
    --commit) commit=$2; shift 2 ;;
    *) echo "tests/gpu/run.sh: $1: not known" >&2; exit 2 ;;
    esac
done
command -v nvcc >/dev/null || export PATH="$PATH:/usr/local/cuda/bin"
command -v nvcc >/dev/null || { echo "tests/gpu/run.sh: nvcc is not on the PATH" >&2; exit 1; }
arch=90
if [ "$only" = 0 ]; then
    arch=$(nvidia-smi -i "$gpu" --query-gpu=compute_cap --format=csv,noheader | tr -d '. ')
    device=$(nvidia-smi -i "$gpu" --query-gpu=name,driver_version --format=csv,noheader)
fi
build=build-gpu
cmake -S tests/gpu -B "$build" "-DCMAKE_CUDA_ARCHITECTURES=$arch" >"$build.log" 2>&1 || { tail -n 20 "$build.log"; exit 1; }
cmake --build "$build" -j "$(nproc)" >>"$build.log" 2>&1 || { grep -m 20 -E 'error|Error' "$build.log"; exit 1; }
rm -f "$build.log"
if [ "$only" = 1 ]; then
    "$build/bench_gpu" emulated
    echo "built for sm_$arch; nothing has run on a GPU"
    exit 0
fi

status=0 table="" cases=0 red=0
export PACELINE_TEST_GPU=$gpu
red_row() { # WHAT RESULT CASES SECONDS
    red=$((red + 1)) status=1
    table+="| $1 | $2 | $3 | $4 |"$'\n'
}
check() { # WHAT PROGRAM...: one line of the table; a program in which no case ran has failed
    local what=$1 t0=$SECONDS result=passed n
    shift
    "$@" >"$build/test.log" 2>&1 || { result=FAILED; grep -E 'FAILED|error|:[0-9]+: ' "$build/test.log" | head -n 8 || true; }
    n=$(grep -c '^\[       OK \]' "$build/test.log" || true)
    [ "$n" -gt 0 ] || result=FAILED
    cases=$((cases + n))
    if [ "$result" = FAILED ]; then
        red_row "$what" FAILED "$n" "$((SECONDS - t0))"
    else
        table+="| $what | $result | $n | $((SECONDS - t0)) |"$'\n'
    fi
    printf '%-28s %s, %d cases, %d s\n' "$what" "$result" "$n" "$((SECONDS - t0))"
}
for t in "$build"/test_*; do
    [ -x "$t" ] && [ -f "$t" ] || continue
    check "$(basename "$t" | sed 's/^test_op_//; s/^test_//')" "$t"
done
[ "$cases" -gt 0 ] || { echo "tests/gpu/run.sh: no test of an op ran; see $build" >&2; exit 1; }
if [ "$sanitizer" = 1 ]; then
    for tool in memcheck racecheck synccheck; do
        for t in linear headtopk attention topk divergence rmsnorm; do
            check "$t under $tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/test_op_$t"
        done
    done
fi
# The whole program, where its libraries are: decoding and training on the GPU, as on the emulated device.
whole="build-gpu-program" log=$build/program.log programs="paceline_program test_decode_cuda test_train_device"
decode() { "$whole/paceline" decode --quiet --target checkpoints/tiny --prompt "Once upon a time" --max-new-tokens 32 --dtype fp32 --device "$1"; }
same() {
    local here there
    here=$(decode cpu) && there=$(decode "cuda:$gpu") && [ -n "$here" ] && [ "$here" = "$there" ] && echo "[       OK ] decode"
}
if ! cmake -S . -B "$whole" -DCMAKE_BUILD_TYPE=Release -DPACELINE_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$arch" >"$log" 2>&1; then
    echo "the program is not built here (recipes/packages.sh has its libraries): no decoding, no training"
    table+="| decoding and training | not built here | 0 | 0 |"$'\n'
# shellcheck disable=SC2086
elif ! cmake --build "$whole" -j "$(nproc)" --target $programs >>"$log" 2>&1; then
    grep -m 20 -E 'error|Error' "$log" || true
    red_row "decoding and training" "does not build" 0 0
else
    export PACELINE_TEST_DEVICE=cuda:$gpu
    check "decoding" "$whole/test_decode_cuda"
    check "training" "$whole/test_train_device"
    unset PACELINE_TEST_DEVICE
    check "decode, the CPU's text" same
fi
bench=$("$build/bench_gpu" "$gpu") || { status=1; bench=""; echo "bench_gpu FAILED"; }
echo "$bench"

date=$(date -u +%Y-%m-%d)
sed -i '/^\*\*Nothing yet/,/^$/d' kernels/cuda/MEASURED.md
toolkit=$(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
{
    printf '\n## %s, commit %s: %s, CUDA %s\n\n' "$date" "$commit" "$device" "$toolkit"
    printf 'Ops against ref: %d cases, %d of the programs red.\n\n| test | result | cases | s |\n|---|---|---|---|\n%s' "$cases" "$red" "$table"
    printf '\nMeans over 50 launches, best of three rounds; share: of the copy bandwidth in the first line.\n\n'
    printf '| what | rows | us | GB/s | share |\n|---|---|---|---|---|\n'
    echo "$bench" | awk -F, 'NR > 1 && NF == 6 { printf "| %s | %s | %.1f | %s | %.0f %% |\n", $1, $2, $3 * 1e6, $5, $6 * 100 }'
} >>kernels/cuda/MEASURED.md
csv=kernels/cuda/measured.csv
[ -f "$csv" ] || echo "date,commit,device,what,rows,seconds,bytes,gb_per_s,share_of_copy" >"$csv"
echo "$bench" | awk -F, -v d="$date" -v c="$commit" -v g="${device//,/;}" 'NR > 1 && NF == 6 { print d "," c "," g "," $0 }' >>"$csv"
[ "$status" = 0 ] && echo "all green on $device" || echo "something is red on $device"
exit "$status"
