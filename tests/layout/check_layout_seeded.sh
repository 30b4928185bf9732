#!/usr/bin/env bash
# check_layout.sh can fail: in a copy of the tree each folder gets an include of something above it (and some an include
# of something beside it), each time the check must fail and name the file. Likewise for its other rules.
set -u
cd "$(dirname "$0")/../.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r kernels data checkpoints recipes infer train "$copy/"
check() { PACELINE_LAYOUT_ROOT="$copy" bash tests/layout/check_layout.sh; }
bad=0
seeds=0
declare -A seeded

# What check_layout.sh must say of a file that ends in one more line.
expect() { # FILE LINE WORDS
    local file=$1 said
    seeds=$((seeds + 1))
    if [ ! -f "$file" ]; then echo "$file: is no file of the tree; name another one here" && bad=1 && return; fi
    printf '%s\n' "$2" >>"$copy/$file"
    if said=$(check); then
        echo "$file: \"${2%%$'\n'*}\" goes unseen" && bad=1
    elif ! grep -qE "^$file(:[0-9]+)?: .*$3" <<<"$said" || grep -qv "^$file:" <<<"$said"; then
        printf '%s: "%s" is answered by:\n%s\n' "$file" "${2%%$'\n'*}" "$said" && bad=1
    fi
    cp "$file" "$copy/$file"
    case "$file" in */*/*) seeded["$(dirname "$file" | cut -d/ -f1,2)"]=1 ;; *) seeded["${file%/*}"]=1 ;; esac
}
above() { expect "$1" "#include \"$2\"" "includes $2, which stands above it"; }
beside() { expect "$1" "#include \"$2\"" "includes $2, which stands beside it"; }

check >/dev/null || { echo "the copy as it is:" && check && exit 1; }

above kernels/base/arena.c kernels/tensor.h
above kernels/tape.c kernels/op/elementwise.h
above kernels/cpu/gemm_cpu.c kernels/op/linear.h
above kernels/op/linear.c kernels/comm/comm.h
above kernels/comm/comm.c kernels/cuda/table.h
above kernels/cuda/linear.cu data/text/text.h
above kernels/cuda/lib/lt.c infer/model/llama.h
above data/text/text.c data/tokenizer/tokenizer.h
above data/text/text.c data/benchmarks/benchmark.h
above data/benchmarks/benchmark.c data/chat/template.h
above data/tokenizer/vocab.h data/chat/template.h
above data/chat/jinja.h data/dataset/dataset.h
above data/dataset/h5.c data/counts/counts.h
above data/counts/tally.c infer/model/llama.h
above checkpoints/hf.c data/text/text.h
above recipes/recipe.c data/tokenizer/tokenizer.h
above infer/model/llama.c infer/head/head.h
above infer/tree/tree.h infer/report/report.h
above infer/cli/cli.c infer/report/report.h
above infer/grammar/regex.c infer/decode/decode.h
above infer/head/full.c infer/sample/coin.h
above infer/report/svg.c infer/sample/coin.h
above infer/sample/propose.c infer/drafter/drafter.h
above infer/drafter/rollout.c infer/decode/decode.h
above infer/verify/match.c infer/decode/decode.h
above infer/decode/decode.c infer/generate/generator.h
above infer/generate/generator.c infer/eval/eval.h
above infer/inspect/model.c infer/eval/eval.h
above infer/export/export.c infer/eval/eval.h
above infer/import/import.c infer/command/chat.h
above infer/serve/serve.c infer/command/chat.h
above infer/api.c infer/command/chat.h
above infer/eval/run.c infer/plan/plan.h
above infer/bench/ops.c infer/plan/plan.h
above infer/command/doctor.c infer/plan/plan.h
above infer/plan/plan.c train/loop/trainer.h
above train/loop/optim.c train/keys.h
above train/keys.c train/source/source.h
above train/source/teacher.c train/start/start.h
above train/start/lowrank.c train/task/unroll.h
above train/task/unroll.c train/run/run.h
above train/plan/plan.c tests/device.h
above train/run/run.c tests/device.h
# Every folder that there is stands above: a new one is given a level and a line here.
while read -r folder; do
    [ -n "${seeded[$folder]:-}" ] || { echo "$folder: no line above seeds it" && bad=1; }
done < <(find kernels data checkpoints recipes infer train -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' \) |
    sed -E 's|^([^/]*/[^/]*)/.*|\1|; s|^([^/]*)/[^/]*\.[a-z]+$|\1|' | sort -u)

beside data/benchmarks/score.c data/tokenizer/tokenizer.h
beside checkpoints/hf.c recipes/recipe.h
beside recipes/recipe.c checkpoints/hf.h
beside infer/tree/tree.c infer/model/llama.h
beside infer/head/full.c infer/report/report.h
beside infer/verify/match.c infer/drafter/drafter.h
beside infer/generate/generator.c infer/inspect/ceilings.h
beside infer/export/export.c infer/generate/generate.h
beside infer/import/import.c infer/export/export.h
beside infer/api.c infer/generate/generate.h
beside infer/bench/ops.c infer/command/chat.h
for folder in head/full sample/coin drafter/lookup verify/match decode/runner; do
    expect "infer/$folder.c" '#include "infer/cli/show.h"' 'includes infer/cli/show.h: what decodes'
done
for folder in model/kv tree/auto head/full sample/coin drafter/lookup verify/match decode/runner; do
    expect "infer/$folder.c" '#include "recipes/spell.h"' 'includes recipes/spell.h: what decodes'
done
expect infer/eval/run.c '#include "kernels/cpu/gemm.h"' 'private to kernels/'
expect data/text/text.c '#include "text.h"' "written from the repository's root"
expect train/task/unroll.c '#  ifdef NDEBUG' 'conditional compilation outside kernels/'
expect infer/plan/plan.c "// as fac""ts: 3 has it" 'cites what is not in the repository'
expect infer/plan/plan.c "// $(printf 'x%.0s' {1..118})" 'beyond 120 columns'
expect infer/plan/plan.c "$(for i in {1..701}; do echo "// $i"; done)" 'more than 700 lines'
mkdir "$copy/infer/attic"
echo 'int pl_attic;' >"$copy/infer/attic/attic.c"
said=$(check) && echo "infer/attic: a folder without a level goes unseen" && bad=1
printf '%s\n' "$said" | grep -q '^infer/attic/attic.c: infer/attic has no level' || { echo "$said" && bad=1; }
[ "$bad" = 0 ] && echo "layout: $seeds seeds, each seen"
exit "$bad"
