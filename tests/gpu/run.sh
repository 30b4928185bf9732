#!/usr/bin/env bash
# The CUDA backend on a real GPU: every op against ref, decoding and training through the whole program, benches, and
# comparisons with PyTorch where python3 has it. Appends its figures to recipes/figures.csv, and a paragraph on what ran
# and what failed to recipes/FIGURES.md. All results lie in --out as well, each as soon as it is there; report.md has
# the tables.
#   bash tests/gpu/run.sh [--gpu N] [--only PARTS] [--sanitizer] [--out DIR] [--commit NAME]
#     builds here: what a bare GPU machine can build (nvcc, a C compiler, CMake), and the program where it builds
#   bash tests/gpu/run.sh --pack DIR|FILE.tar.gz      no GPU needed: builds all of it for sm_90 and puts the programs,
#     without debug information, and the libraries they need into one folder of at most 60 MiB, for a machine with
#     little but a driver
#   bash tests/gpu/run.sh --packed DIR|FILE.tar.gz [--device cuda:N|emulated] [the options above]      runs from that
#   bash tests/gpu/run.sh --build-only    no GPU needed: builds what a bare machine can, runs the bench emulated
# PARTS, separated by commas: ops (minutes), program, bench, shape, profile (kernels one by one, where there is an ncu),
# compare [all of these]; and
#   products    the products of a training step alone, by the library's algorithms
#   step        a training step launch by launch beside its prediction (predicted.csv), changes tried in turns, and
#               steps of which a share of the rows is supervised
#   train       compare_train.py alone, with PyTorch's own profile
#   line        the quickstart on the GPU, and answers and training for a target of 8B's widths with four layers
#   graphs      drafters' steps as graphs, those of Qwen3's kind among them
#   nccl        training through NCCL with one rank: join, sums, end
#   memcheck    the ops of training under compute-sanitizer's memcheck
# --brief: ops, products, step, train, line, graphs, nccl, memcheck, as many tests at a time as there are processors
# less three: about five minutes, each result written as it is there.
# --answers RECIPE [--target PATH]: the pipeline of that recipe on the GPU; its results and checkpoints in --out/answers.
# --sanitizer: the ops' tests once more under compute-sanitizer. --jobs N: so many tests at a time [1]; what is timed
# runs alone. --limit S: seconds that one program may take [290]. --commit: what to write down where the folder is no git checkout. --device emulated shows that
# a folder runs, at sizes that mean nothing, and writes to --out alone.
set -euo pipefail
cd "$(dirname "$0")/../.."
gpu=0 device="" sanitizer=0 only="" pack="" packed="" out="" commit="" at_a_time=1
parts=ops,program,bench,shape,profile,compare
limit=290 # seconds of one program
answers="" answers_target=""
while [ $# -gt 0 ]; do
    case "$1" in
    --gpu) gpu=$2; shift 2 ;;
    --device) device=$2; shift 2 ;;
    --only) parts=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --sanitizer) sanitizer=1; shift ;;
    --build-only) only=1; shift ;;
    --pack) pack=$2; shift 2 ;;
    --packed) packed=$2; shift 2 ;;
    --commit) commit=$2; shift 2 ;;
    --jobs) at_a_time=$2; shift 2 ;;
    --limit) limit=$2; shift 2 ;;
    --brief) parts=ops,products,step,train,line,graphs,nccl,memcheck; at_a_time=$(($(nproc) > 4 ? $(nproc) - 3 : 1)); shift ;;
    --answers) answers=$2; shift 2 ;;
    --target) answers_target=$2; shift 2 ;;
    *) echo "tests/gpu/run.sh: $1: not known" >&2; exit 2 ;;
    esac
done
say() { echo "tests/gpu/run.sh: $*" >&2; }
describe() { git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown; }

# ---- building ----

build=build-gpu whole=build-gpu-program
quietly() { # LOG COMMAND...: its last lines where it fails
    local log=$1
    shift
    "$@" >>"$log" 2>&1 || { grep -m 20 -E 'error|Error' "$log" || tail -n 20 "$log"; return 1; }
}
find_nvcc() {
    command -v nvcc >/dev/null || export PATH="$PATH:/usr/local/cuda/bin"
    command -v nvcc >/dev/null || { say "nvcc is not on the PATH"; exit 1; }
}
build_bare() { # ARCH
    rm -f "$build.log"
    quietly "$build.log" cmake -S tests/gpu -B "$build" "-DCMAKE_CUDA_ARCHITECTURES=$1" || exit 1
    quietly "$build.log" cmake --build "$build" -j "$(nproc)" || exit 1
}
goldens="$(for t in tests/golden/test_golden_*.c; do basename "$t" .c; done | tr '\n' ' ')"
device_tests="test_decode_cuda test_drafter_backbone test_head_device test_branch test_ceilings test_train_device"
device_tests="$device_tests test_plan"
programs="paceline_program paceline_emulated dump_forward $device_tests $goldens"
build_whole() { # ARCH FOLDER OPTION...: 1 where it cannot be configured, 2 where it does not build
    local arch=$1 folder=$2 targets=$programs t
    shift 2
    mkdir -p "$folder"
    : >"$folder/program.log"
    cmake -S . -B "$folder" -DCMAKE_BUILD_TYPE=Release -DPACELINE_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$arch" "$@" \
        >>"$folder/program.log" 2>&1 || return 1
    if [ $# -gt 0 ]; then
        targets="$targets bench_gpu bench_products"
        for t in tests/kernels/test_op_*.c tests/kernels/test_cuda*.c; do
            case $t in *test_cuda_cudnn.c) ! grep -q '^CUDNN_INCLUDE.*NOTFOUND' "$folder/CMakeCache.txt" || continue ;; esac
            targets="$targets $(basename "$t" .c)"
        done
    fi
    # shellcheck disable=SC2086
    quietly "$folder/program.log" cmake --build "$folder" -j "$(nproc)" --target $targets || return 2
}
# Libraries of the programs in $dir/bin, found in a folder first. The C library is the machine's own, as are the driver
# and CUDA's large libraries, where they are used; what is not found is told as such.
needed() { # FOLDER
    LD_LIBRARY_PATH=$1 ldd "$dir"/bin/* | awk '$2 == "=>" { print $3 == "not" ? $1 " not found" : $3 }' | sort -u |
        grep -vE -e '/(libc|libm|libdl|librt|libpthread|libresolv|libutil|ld-linux[^/]*)\.so' \
            -e 'lib(cuda|cublas|cudnn|nccl)[^/]*\.so'
}
make_pack() { # DIR
    local dir=$1 from=build-gpu-pack f size
    build_whole 90 "$from" -DPACELINE_SHARED=ON -DCMAKE_SKIP_BUILD_RPATH=ON ||
        { tail -n 5 "$from/program.log"; say "the pack does not build; see $from/program.log"; exit 1; }
    rm -rf "${dir:?}/bin" "${dir:?}/lib"
    mkdir -p "$dir/bin" "$dir/lib"
    for f in paceline paceline_emulated bench_gpu bench_products dump_forward $device_tests $goldens; do
        strip -g -o "$dir/bin/$f" "$from/$f"
    done
    for f in "$from"/test_op_* "$from"/test_cuda*; do [ ! -f "$f" ] || [ ! -x "$f" ] || strip -g -o "$dir/bin/$(basename "$f")" "$f"; done
    dir=$(cd "$dir" && pwd)
    needed "$PWD/$from" | while read -r f; do strip -g -o "$dir/lib/$(basename "$f")" "$(readlink -f "$f")"; done
    if needed "$dir/lib" | grep -v "^$dir/lib/"; then
        say "$dir: these would come from elsewhere"
        exit 1
    fi
    describe >"$dir/commit"
    size=$(du -sm "$dir" | cut -f1)
    echo "packed $(find "$dir/bin" -type f | wc -l) programs, $(find "$dir/lib" -type f | wc -l) libraries," \
        "$size MiB, into $dir"
    [ "$size" -le 60 ] || { say "$dir: more than 60 MiB"; exit 1; }
}
temporary=""
trap '[ -z "$temporary" ] || rm -rf "$temporary"' EXIT
if [ -n "$pack" ]; then
    find_nvcc
    case "$pack" in
    *.tar.gz)
        temporary=$(mktemp -d)
        make_pack "$temporary"
        mkdir -p "$(dirname "$pack")"
        tar -czf "$pack" -C "$temporary" .
        echo "$pack: $(du -m "$pack" | cut -f1) MiB"
        ;;
    *) make_pack "$pack" ;;
    esac
    exit 0
fi
if [ -n "$only" ]; then
    find_nvcc
    build_bare 90
    "$build/bench_gpu" emulated
    echo "built for sm_90; nothing has run on a GPU"
    exit 0
fi

# ---- what runs where ----

real=1 libs=""
[ -n "$device" ] || device=cuda:$gpu
case "$device" in
cuda:*) gpu=${device#cuda:} ;;
emulated) real=0 ;;
*) say "--device $device: expected cuda:N or emulated"; exit 2 ;;
esac
name=emulated paceline=paceline_emulated
if [ "$real" = 1 ]; then paceline=paceline name=$(nvidia-smi -i "$gpu" --query-gpu=name,driver_version --format=csv,noheader); fi
program=1
case "$packed" in
*.tar.gz)
    temporary=$(mktemp -d)
    tar -xzf "$packed" -C "$temporary"
    packed=$temporary
    ;;
esac
if [ -n "$packed" ]; then
    [ -x "$packed/bin/paceline" ] || { say "$packed: holds no pack; make one with --pack"; exit 2; }
    packed=$(cd "$packed" && pwd)
    ops=$packed/bin whole=$packed/bin
    [ -n "$commit" ] || commit=$(cat "$packed/commit")
    # Ours first; the driver and CUDA's large libraries from wherever this machine has them.
    libs=$packed/lib:${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64:/usr/local/cuda/lib64
    libs=$libs:$(python3 -c 'import glob, site
print(":".join(d for s in site.getsitepackages() for d in glob.glob(s + "/nvidia/*/lib")))' 2>/dev/null || true)
else
    [ "$real" = 1 ] || { say "--device emulated: is for --packed"; exit 2; }
    find_nvcc
    [ -n "$commit" ] || commit=$(describe)
    arch=$(nvidia-smi -i "$gpu" --query-gpu=compute_cap --format=csv,noheader | tr -d '. ')
    build_bare "$arch"
    ops=$build
fi
[ -n "$out" ] || out="build-gpu/results"
mkdir -p "$out"
out=$(cd "$out" && pwd)
own() { # a program of ours, with its libraries, not for ever
    if [ -n "$libs" ]; then timeout "$limit" env "LD_LIBRARY_PATH=$libs" "$@"; else timeout "$limit" "$@"; fi
}
wanted() { case ",$parts," in *",$1,"*) return 0 ;; esac; return 1; }

# ---- tests ----

lines=0 # of the table
rm -rf "$out/rows"
mkdir -p "$out/rows"
: >"$out/figures.csv"
row() { # WHAT RESULT CASES SECONDS
    printf '| %s | %s | %s | %s |\n' "$@" >"$out/rows/$(printf %03d "$lines")"
    printf '%-28s %s, %s cases, %s s\n' "$@"
    lines=$((lines + 1))
}
table() { # so far, in the order in which the lines began
    find "$out/rows" -type f | sort | xargs -r cat
}
cases() { table | awk -F' *[|] *' '{ n += $4 } END { print n + 0 }'; }
red() { table | awk -F' *[|] *' '$3 != "passed" && $3 != "not built here" { n++ } END { print n + 0 }'; }
check() { # WHAT PROGRAM...: one line of the table, beside others where --jobs says so
    while [ "$(jobs -rp | wc -l)" -ge "$at_a_time" ]; do wait -n || true; done
    check_now "$@" &
    lines=$((lines + 1))
    [ "$at_a_time" -gt 1 ] || wait
}
check_now() { # a program in which no case ran has failed
    local what=$1 t0=$SECONDS result=passed n log
    shift
    log=$out/$(echo "$what" | tr -c 'a-zA-Z0-9\n' '-').log
    "$@" >"$log" 2>&1 || {
        result=FAILED
        grep -E 'FAILED|error|ERROR|:[0-9]+: ' "$log" | head -n 8 || tail -n 4 "$log"
    }
    n=$(grep -c '^\[       OK \]' "$log" || true)
    [ "$n" -gt 0 ] || result=FAILED
    row "$what" "$result" "$n" "$((SECONDS - t0))"
}
test_ops() {
    local t short
    [ "$real" = 0 ] || export PACELINE_TEST_GPU=$gpu PACELINE_TEST_DEVICES_ALONE=1
    for t in "$ops"/test_op_* "$ops"/test_cuda*; do
        short=$(basename "$t" | sed 's/^test_op_//; s/^test_//')
        case "$real $short" in 1* | "0 add" | "0 embed" | "0 topk") ;; *) continue ;; esac
        [ ! -x "$t" ] || [ ! -f "$t" ] || check "$short" own "$t"
    done
    [ "$lines" -gt 0 ] || { say "no test of an op is there; see $ops"; exit 1; }
    if [ "$real" = 1 ] && [ -x "$ops/test_cuda_cudnn" ]; then
        check "cuda_cudnn, own kernels" own env PACELINE_ATTENTION=own "$ops/test_cuda_cudnn"
    fi
    if [ "$sanitizer" = 1 ]; then
        for tool in memcheck racecheck synccheck; do
            for t in linear headtopk attention topk draw divergence rmsnorm; do
                check "$t under $tool" own compute-sanitizer --tool "$tool" --error-exitcode 9 "$ops/test_op_$t"
            done
        done
    fi
    unset PACELINE_TEST_GPU PACELINE_TEST_DEVICES_ALONE
}
paceline() { own "$whole/$paceline" "$@"; }
# shellcheck disable=SC2317 # called through check
decode() { # DEVICE TOKENS
    paceline decode --quiet --target checkpoints/tiny --prompt "Once upon a time" --max-new-tokens "$2" --dtype fp32 \
        --device "$1"
}
# shellcheck disable=SC2317
same() {
    local here there n=32
    [ "$real" = 1 ] || n=3
    here=$(decode cpu "$n") && there=$(decode "$device" "$n") && [ -n "$here" ] && [ "$here" = "$there" ] &&
        echo "[       OK ] decode"
}
test_program() {
    local t
    export PACELINE_TEST_DEVICE=$device
    for t in $device_tests; do # emulated they take minutes
        [ "$real" = 0 ] && [ "$t" != test_plan ] || check "$(echo "${t#test_}" | tr _ ' ')" own "$whole/$t"
    done
    for t in PACELINE_EARLY_LAUNCH=0 PACELINE_GRAPHS=0 "PACELINE_EARLY_LAUNCH=0 PACELINE_GRAPHS=0"; do
        # shellcheck disable=SC2086
        [ "$real" = 0 ] || check "decode cuda, $t" own env $t "$whole/test_decode_cuda"
    done
    unset PACELINE_TEST_DEVICE
    [ "$real" = 0 ] || export PACELINE_TEST_GPU=$gpu
    for t in $goldens; do check "PyTorch's ${t#test_golden_}" own "$whole/$t"; done
    unset PACELINE_TEST_GPU
    check "decode, the CPU's text" same
}

# ---- benches ----

# NAME ARGUMENTS...: one bench, its result in NAME.json, told as tables where there is a python3
bench() {
    local into=$1 t0=$SECONDS
    shift
    if paceline bench "$@" --device "$device" --json --quiet >"$out/$into.json" 2>"$out/$into.log"; then
        python3 tests/gpu/tables.py --csv "$out/figures.csv" "$out/$into.json" >"$out/$into.md" ||
            cp "$out/$into.json" "$out/$into.md"
        cat "$out/$into.md"
        echo "($into: $((SECONDS - t0)) s)"
    else
        tail -n 3 "$out/$into.log"
        row "bench $into" FAILED 0 "$((SECONDS - t0))"
        rm -f "$out/$into.json"
    fi
}
run_bench() {
    local which=$gpu
    [ "$real" = 1 ] || which=emulated
    if own "$ops/bench_gpu" "$which" >"$out/bench_gpu.csv"; then
        awk -F, 'NR > 1 && NF == 6' "$out/bench_gpu.csv" >>"$out/figures.csv"
        cat "$out/bench_gpu.csv"
    else
        row bench_gpu FAILED 0 0
    fi
    [ "$program" = 1 ] || return 0
    if [ "$real" = 1 ]; then
        bench kernels bandwidth linear heads attention draw train --hidden 4096 --vocab 128256 --weights bf16 \
            --seq-len 2048 --max-mb 4096
        paceline plan --shape llama3-8b --context 512 --seconds 20 --device "$device" --quiet >"$out/plan.txt" ||
            row plan FAILED 0 0
    else
        bench kernels bandwidth linear heads attention draw train --hidden 512 --vocab 256 --weights bf16 \
            --seq-len 8 --max-mb 1
    fi
}
run_shapes() {
    local s
    if [ "$real" = 0 ]; then
        bench shape-tiny decode --shape tiny --layers 1 --context 8 --new-tokens 2 --repeats 1 --max-mb 1
        return
    fi
    for s in llama3-8b llama3.2-1b llama2-7b qwen2-7b; do
        bench "shape-$s" decode --shape "$s" --context 1000 --new-tokens 24 --repeats 3
    done
    bench shape-llama3-8b-bf16-kv decode --shape llama3-8b --context 1000 --kv bf16 --new-tokens 24 --repeats 3
    bench shape-llama3-8b-long decode --shape llama3-8b --context 8000 --kv bf16 --new-tokens 24 --repeats 3
    # The switches are compared with 8 layers, in a quarter of the time.
    set -- decode --shape llama3-8b --layers 8 --context 1000 --new-tokens 16 --repeats 2
    bench shape-8-layers "$@"
    PACELINE_EARLY_LAUNCH=0 bench shape-8-layers-in-turn "$@"
    PACELINE_GRAPHS=0 bench shape-8-layers-no-graphs "$@"
    PACELINE_EARLY_LAUNCH=0 PACELINE_GRAPHS=0 bench shape-8-layers-plainest "$@"
}
run_profile() {
    command -v ncu >/dev/null || { row profile "not built here" 0 0; return; }
    # A prompt of one chunk: the launches that are profiled reach the decode steps.
    local t0=$SECONDS
    if PACELINE_GRAPHS=0 own ncu --metrics gpu__time_duration.sum,dram__bytes_read.sum --cache-control none \
        --clock-control none --csv --page raw -c 2500 "$whole/paceline" bench decode --shape llama3-8b --layers 1 \
        --context 64 --new-tokens 8 --repeats 1 --device "$device" --json --quiet >"$out/ncu.csv" 2>"$out/ncu.err" &&
        python3 tests/gpu/ncu_table.py "$out/ncu.csv" >"$out/profile.md"; then
        cat "$out/profile.md"
        row profile passed "$(grep -c . "$out/profile.md")" "$((SECONDS - t0))"
    else
        tail -n 3 "$out/ncu.err"
        row profile FAILED 0 "$((SECONDS - t0))"
    fi
}

# ---- comparisons ----

compare() { # NAME SCRIPT ARGUMENTS...
    local what=$1 t0=$SECONDS script=$2
    shift 2
    if PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 timeout $((2 * limit)) python3 "tests/gpu/$script" \
        --device "$device" --library-path "$libs" "$@" 2>"$out/$what.err" | tee "$out/$what.txt"; then
        row "$what" passed "$(grep -c . "$out/$what.txt")" "$((SECONDS - t0))"
    else
        tail -n 3 "$out/$what.err"
        row "$what" FAILED 0 "$((SECONDS - t0))"
    fi
}
run_comparisons() {
    local need=True
    [ "$real" = 0 ] || need='torch.cuda.is_available()'
    if ! python3 -c "import torch, sys; sys.exit(not $need)" 2>/dev/null; then
        echo "python3 has no PyTorch for this device: nothing is compared"
        row "comparisons with PyTorch" "not built here" 0 0
    elif [ "$real" = 1 ]; then
        compare compare-decode compare_decode.py --dump "$whole/dump_forward" --shape llama3.2-1b --rows 48 --steps 6
        compare compare-train compare_train.py --paceline "$whole/paceline" --shape llama3-8b --rows 2048 --unroll 7 \
            --heads trimmed:32000,lowrank:512 --repeats 3 --csv "$out/figures.csv"
    else
        compare compare-decode compare_decode.py --dump "$whole/dump_forward" --rows 12 --steps 3
        compare compare-train compare_train.py --paceline "$whole/$paceline" --rows 16 --unroll 2 --repeats 1 \
            --csv "$out/figures.csv"
    fi
}

# ---- a training step ----

step() { # NAME ARGUMENTS...: 8B's widths on a GPU, toy sizes elsewhere
    local into=$1
    shift
    if [ "$real" = 1 ]; then
        bench "$into" step --shape llama3-8b --head trimmed:32000 --batch 1 --seq-len 2048 --unroll 7 "$@"
    else
        bench "$into" step --shape tiny --head trimmed:150 --batch 1 --seq-len 16 --unroll 2 "$@"
    fi
}
run_products() {
    if [ "$real" = 0 ]; then return; fi
    if own "$ops/bench_products" "$gpu" >"$out/products.csv"; then
        cat "$out/products.csv"
    else
        row "products alone" FAILED 0 0
    fi
}
run_step() {
    if [ "$real" = 1 ]; then
        step step --repeats 5 --launches --try early
    else
        step step --repeats 1 --launches
    fi
    step step-0.54 --repeats 3 --supervised 0.54
    step step-0.08 --repeats 3 --supervised 0.08
}
run_train() {
    python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
        { row "training beside PyTorch" "not built here" 0 0; return; }
    compare compare-train compare_train.py --paceline "$whole/paceline" --shape llama3-8b --rows 2048 --unroll 7 \
        --heads trimmed:32000 --repeats 5 --csv "$out/figures.csv" --profile "$out/torch-profile.txt"
}

# ---- the whole line ----

# NAME COMMAND...: its messages with the second at which each came, in NAME.log; a line of the table
timed() {
    local what=$1 t0=$SECONDS
    shift
    if "$@" 2>&1 >"$out/$what.txt" | while IFS= read -r line; do echo "$((SECONDS - t0)) s  $line"; done >"$out/$what.log" &&
        [ "${PIPESTATUS[0]}" = 0 ]; then
        row "$what" passed "$(grep -c . "$out/$what.txt")" "$((SECONDS - t0))"
    else
        tail -n 3 "$out/$what.log"
        row "$what" FAILED 0 "$((SECONDS - t0))"
    fi
    tail -n 12 "$out/$what.txt"
}
line_recipe() { # FOLDER PROMPTS TOKENS ROWS STEPS: of a target in FOLDER/target
    head -n "$2" data/prompts/train.jsonl >"$1/prompts.jsonl"
    cat >"$1/line.yaml" <<END
kind: drafter
target: {path: $1/target}
data: {prompts: $1/prompts.jsonl, max_new_tokens: $3, samples: 0, sessions: 64}
drafters:
  - {name: lowrank, head: {kind: lowrank, rank: 32}}
train: {steps: $5, slots: 1, slot_rows: $4, unroll: 5, eval_every: $5, lr: 1e-4}
eval: {prompts: data/prompts/heldout.jsonl, limit: 4, max_new_tokens: 16, temperatures: [0], plain_fp32: false}
END
}
run_line() {
    local work
    work=$(mktemp -d)
    if [ "$real" = 1 ]; then
        timed quickstart paceline run recipes/quickstart.yaml --device "$device" --out "$work/quickstart"
        python3 tests/gpu/shape_target.py "$work/target" &&
            line_recipe "$work" 256 128 2048 60
    else
        python3 tests/gpu/shape_target.py "$work/target" --layers 2 --d 64 --inter 96 --heads 4 --kv-heads 2 --vocab 4096 &&
            line_recipe "$work" 2 6 64 1
    fi
    timed line paceline run "$work/line.yaml" --device "$device" --out "$work/line"
    timed line-online paceline run "$work/line.yaml" --device "$device" --out "$work/online" --set data.mode=online
    rm -rf "$work"
}
run_graphs() {
    if [ "$real" = 0 ]; then return; fi
    export PACELINE_TEST_DEVICE=$device
    check "drafters' steps as graphs" own "$whole/test_drafter_backbone"
    unset PACELINE_TEST_DEVICE
}
run_nccl() {
    local work
    [ "$real" = 1 ] || return 0
    work=$(mktemp -d)
    head -n 16 data/prompts/train.jsonl >"$work.jsonl"
    timed nccl paceline run recipes/quickstart.yaml --device "$device" --transport nccl --out "$work" \
        --set data.prompts="$work.jsonl" --set train.steps=20 --set eval.limit=2
    rm -rf "$work" "$work.jsonl"
}
run_memcheck() {
    local t
    command -v compute-sanitizer >/dev/null || { row memcheck "not built here" 0 0; return; }
    export PACELINE_TEST_GPU=$gpu PACELINE_TEST_DEVICES_ALONE=1
    for t in divergence attention linear rmsnorm adamw; do
        check "$t under memcheck" own compute-sanitizer --tool memcheck --error-exitcode 9 "$ops/test_op_$t"
    done
    wait
    unset PACELINE_TEST_GPU PACELINE_TEST_DEVICES_ALONE
}
run_answers() {
    local work=$out/answers
    mkdir -p "$work"
    # shellcheck disable=SC2086
    timed answers paceline run "$answers" --device "$device" --out "$work" \
        ${answers_target:+--set target.path=$answers_target}
}

if wanted ops; then test_ops; fi
if [ -z "$packed" ] && { wanted step || wanted train || wanted line || wanted graphs || wanted nccl || [ -n "$answers" ] ||
    wanted program || wanted bench || wanted shape || wanted compare; }; then
    result=0
    build_whole "$arch" "$whole" || result=$?
    case "$result" in
    0) ;;
    1) program=0; row "the program (recipes/packages.sh has its libraries)" "not built here" 0 0 ;;
    *) program=0; row "the program" "does not build" 0 0 ;;
    esac
fi
if wanted program && [ "$program" = 1 ]; then test_program; fi
wait
if wanted products; then run_products; fi
if wanted step && [ "$program" = 1 ]; then run_step; fi
if wanted train && [ "$program" = 1 ]; then run_train; fi
if wanted line && [ "$program" = 1 ]; then run_line; fi
if wanted graphs && [ "$program" = 1 ]; then run_graphs; fi
if wanted nccl && [ "$program" = 1 ]; then run_nccl; fi
if wanted memcheck; then run_memcheck; fi
if [ -n "$answers" ] && [ "$program" = 1 ]; then run_answers; fi
if wanted bench; then run_bench; fi
if wanted shape && [ "$program" = 1 ]; then run_shapes; fi
if wanted profile && [ "$program" = 1 ] && [ "$real" = 1 ]; then run_profile; fi
if wanted compare && [ "$program" = 1 ]; then run_comparisons; fi

# ---- writing down ----

date=$(date -u +%Y-%m-%d)
report=$out/report.md
{
    printf '\n## %s, commit %s: %s' "$date" "$commit" "$name"
    command -v nvcc >/dev/null && printf ', CUDA %s' "$(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
    printf '\n\nParts: %s. %d cases, %d of the lines red.\n\n' "$parts" "$(cases)" "$(red)"
    printf '| test | result | cases | s |\n|---|---|---|---|\n'
    table
    if [ -s "$out/bench_gpu.csv" ]; then
        printf '\nMeans over 50 launches, best of three rounds; share: of the copy bandwidth in the first line.\n\n'
        printf '| what | rows | us | GB/s | share |\n|---|---|---|---|---|\n'
        awk -F, 'NR > 1 && NF == 6 {
            printf "| %s | %s | %.1f | %s | %.0f %% |\n", $1, $2, $3 * 1e6, $5, $6 * 100 }' "$out/bench_gpu.csv"
    fi
    for f in "$out"/kernels.md "$out"/shape-*.md "$out"/step*.md "$out"/profile.md; do [ ! -s "$f" ] || cat "$f"; done
    for f in "$out"/compare-*.txt "$out"/plan.txt "$out"/products.csv "$out"/quickstart.log "$out"/line*.log; do
        [ ! -s "$f" ] || { printf '\n```\n'; cat "$f"; printf '```\n'; }
    done
} >"$report"
if [ "$real" = 1 ]; then
    { # a paragraph: the page has a ceiling of words
        printf '\n`bash tests/gpu/run.sh`, %s, %s, %s: parts %s; %d cases, %d of the lines red' \
            "$date" "$commit" "$name" "$parts" "$(cases)" "$(red)"
        table | awk -F' *[|] *' '$3 != "passed" && $3 != "not built here" { printf "; %s", $2 } END { print "." }'
    } >>recipes/FIGURES.md
    # From: what, rows, seconds, bytes, GB/s, share of a copy.
    awk -F, -v OFS=, -v d="$date" -v c="$commit" -v g="${name//,/;}" \
        'NF == 6 { print d, c, g, "bash tests/gpu/run.sh", $1, $2, "s", $3, "", "", $4, $6 }' "$out/figures.csv" |
        tee "$out/written.csv" >>recipes/figures.csv
fi
table
[ "$(red)" = 0 ] && echo "all green on $name" || echo "something is red on $name"
[ "$(red)" = 0 ]
