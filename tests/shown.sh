#!/usr/bin/env bash
# The long proofs, each ending in one line with its figure. Give names to run some of them; without names all run.
#   bash tests/shown.sh [NAME...]      (bash tests/shown.sh --list says which there are)
#   fuzz [SECONDS] [TARGETS...]: every target for SECONDS (600), two at a time, with clang's libFuzzer; new inputs are
#   kept in build-fuzz/corpus. valgrind [TESTS...]: CTest programs on the portable kernels under memcheck. soak [SECONDS]: rounds
#   of generate, train, decode (3600 s). kills [N] [training] [generation] [bounded-run]: N kills of each over ranks (50). tidy [FILES.c...]: clang-tidy. hybrid [SETTING...]: as tiny-T0, stories-T1. benchmarks [TARGET/FOLDER].
# PACELINE_TEST_DATA: folder with outside data (needed by goldens, any-target and benchmarks).
# PACELINE_RUN: a finished run of recipes/quickstart.yaml, whose drafters benchmarks, hybrid and parity take; without it
# they train them once.
# PACELINE_HEADS: where heads keeps (or finds) its run, and plan finds one. PACELINE_EAGLE2_HEADS: eagle2-heads's.
# PACELINE_TARGET_4K, PACELINE_HEADS_4K: finished runs of recipes/target-4k.yaml and heads-4k.yaml (plan).
# PACELINE_BLOCKS: how often plan measures everything anew (5); processes whose means hybrid's intervals are of (8), see
# tests/pairs.sh. PACELINE_TIMED: a command to put before what plan and hybrid time ("taskset -c 2,3").
# PACELINE_LLAMA2C: llama2.c's `run` and a model of the built-in target's shape, as "RUN MODEL" (needed by llama2c).
set -uo pipefail
export CUDA_VISIBLE_DEVICES= # commands without --device run on the CPU
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

rows_prompts() { # KIND: stories; chat: instructions with their inputs; retrieval: a beginning behind twelve passages
    case $1 in
    stories) cat "$root/data/prompts/train.jsonl" ;;
    chat) python3 -c 'import json, sys
for line in open(sys.argv[1]):
    x = json.loads(line)
    print(json.dumps({"prompt": x["instruction"] + "\n" + x["instances"][0]["input"]}))' \
        "${PACELINE_TEST_DATA:?set it}/chat/user_oriented_instructions.jsonl" ;;
    retrieval) python3 -c 'import json, sys
text = [json.loads(line)["prompt"] for line in open(sys.argv[1])]
for i in range(192):
    print(json.dumps({"prompt": "\n".join(text[(7 * i + 61 * j) % len(text)] for j in range(13))}))' \
        "$root/data/prompts/stories.jsonl" ;;
    esac
}

rows_figures() { # FOLDER: of its runs all-N and supervised-N
    python3 -c 'import json, statistics, sys
def of(rows, turn, key):
    lines = [json.loads(x) for x in open(f"{sys.argv[1]}/{rows}-{turn}/metrics.jsonl")]
    return [x[key] for x in lines if key in x]
speed = {r: [statistics.median(of(r, t, "tokens_per_second")) for t in (1, 2, 3)] for r in ("all", "supervised")}
share = sum(of("all", 1, "rows_counted")) / sum(of("all", 1, "tokens"))
rise = [b / a for a, b in zip(speed["all"], speed["supervised"])]
loss = [of(r, 1, "eval_loss")[-1] for r in ("all", "supervised")]
print(f"{100 * share:.0f} % of rows count; rows/s " + ", ".join(f"{r} {min(v):.0f}..{max(v):.0f}" for r, v in speed.items())
      + f"; {min(rise):.2f}..{max(rise):.2f} times; held-out loss {loss[0]:.4f}, {loss[1]:.4f}")' "$1"
}

shown_rows() { # training on three kinds of data (or those named): all rows and supervised rows, in three turns
    local p kind turn rows new
    p=$(program)
    [ $# -gt 0 ] || set -- stories chat retrieval
    for kind in "$@"; do
        [ "$kind" = retrieval ] && new=48 || new=128
        rows_prompts "$kind" >"$work/$kind.jsonl" || { fail rows "$kind: no prompts"; continue; }
        (cd "$root" && "$p" generate recipes/quickstart.yaml --quiet --set data.prompts="$work/$kind.jsonl" \
            --set data.max_new_tokens="$new" --set data.samples=0 --out "$work/$kind") >"$work/rows.log" 2>&1 ||
            { tail -n 3 "$work/rows.log"; fail rows "$kind"; continue; }
        for turn in 1 2 3; do
            for rows in all supervised; do
                (cd "$root" && "$p" train recipes/quickstart.yaml --quiet --set drafters=null --set train.rows="$rows" \
                    --set data.prompts="$work/$kind.jsonl" --set data.max_new_tokens="$new" --set data.samples=0 \
                    --set data.dataset="$work/$kind/dataset" --set train.steps=100 --set train.warmup=10 \
                    --set train.slot_rows=1024 --set train.eval_every=0 --set train.eval_prompts=0 --set train.log_every=1 \
                    --out "$work/$kind/$rows-$turn") >"$work/rows.log" 2>&1 ||
                    { tail -n 3 "$work/rows.log"; fail rows "$kind, $rows"; continue 3; }
            done
        done
        say rows "$kind: $(rows_figures "$work/$kind")"
    done
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
    t0=$SECONDS
    (cd "$root" && "$p" run recipes/methods.yaml --out "$work/methods") >"$work/methods.log" 2>&1 || { tail -n 3 "$work/methods.log"; fail methods "see above"; return; }
    sed -n '/^method/,$p' "$work/methods.log"
    say methods "$((SECONDS - t0)) s, identical_outputs: $(grep -o '"identical_outputs": *[a-z]*' "$work/methods/results.json" | sort | uniq -c | tr '\n' ' ')"
}

shown_benchmarks() { # [TARGET]: Spec-Bench, MT-bench, HumanEval and GSM8K whole, one prompt at a time and many
    local data=${PACELINE_TEST_DATA:?set it} target=${1:-checkpoints/tiny} name p t0 head=()
    p=$(program)
    if [ "$target" = checkpoints/tiny ]; then
        heads || { fail benchmarks "training"; return; }
        head=(--set "eval.drafters.2.path=$heads/drafters/eagle3-lowrank/checkpoints/best")
    fi
    mkdir -p "$work/benchmarks/data/humaneval"
    for name in spec_bench mt_bench gsm8k; do ln -sfn "$data/bench/$name" "$work/benchmarks/data/$name"; done
    gunzip -c "$data/bench/humaneval/HumanEval.jsonl.gz" >"$work/benchmarks/data/humaneval/HumanEval.jsonl"
    for name in spec-bench mt-bench humaneval gsm8k; do
        t0=$SECONDS
        (cd "$root" && "$p" eval recipes/benchmarks.yaml --set target.path="$target" --set eval.benchmark=$name \
            --set eval.benchmark_data="$work/benchmarks/data" "${head[@]}" --out "$work/benchmarks/$name") \
            >"$work/benchmarks/$name.log" 2>&1 || { tail -n 3 "$work/benchmarks/$name.log"; fail benchmarks "$name"; continue; }
        sed -n '/^method/,$p' "$work/benchmarks/$name.log"
        say benchmarks "$name on $target: $(grep -o '"n_prompts": *[0-9]*' "$work/benchmarks/$name/results.json" | grep -o '[0-9]*$') questions, $((SECONDS - t0)) s, identical_outputs: $(grep -o '"identical_outputs": *[a-z]*' "$work/benchmarks/$name/results.json" | sort | uniq -c | tr '\n' ' ')"
    done
}

shape_folder() { # SHAPE LAYERS TOKENIZER: its published config.json with random weights in $work/SHAPE
    (cd "$root" && python3 tests/peers/random_folder.py "$1" --layers "$2" --out "$work/$1" \
        --tokenizer "$PACELINE_TEST_DATA/tokenizers/$3") >"$work/shapes.log" 2>&1 || { tail -n 1 "$work/shapes.log"; fail shapes "$1"; return 1; }
}

opened() { # SHAPE LAYERS: one answer, and what opening and the first token took
    local file=("$work/$1"/*.safetensors)
    cat "${file[@]}" >/dev/null # into the page cache, as far as it has room
    (cd "$root" && "$p" decode --target "$work/$1" --prompt "It was a dark evening, and the old man sat by" -n 8 --json) \
        >"$work/shapes.json" 2>"$work/shapes.log" || { tail -n 1 "$work/shapes.log"; fail shapes "$1"; return 1; }
    say shapes "$1, $2 layers, $(cat "${file[@]}" | wc -c | awk '{ printf "%.2f", $1 / 1e9 }') GB: $(jq -r '
        def of(d): . * d | round / d;
        "opened in \(.open_seconds | of(100)) s, first token after \(.open_seconds + .stats.prefill_seconds | of(100)) s, " +
        "peak memory \(.peak_memory_bytes / 1e9 | of(100)) GB, plain \(.stats.tokens_per_second | of(100)) tokens/s"' "$work/shapes.json")"
}

names_shard() { # SHAPE FILE WHAT: opening is refused in a line with the file's name
    local said
    said=$("$p" decode --target "$work/$1" --prompt x -n 1 2>&1 >/dev/null) && { fail shapes "$3 is opened"; return; }
    [[ "$said" == *"$2"* ]] && say shapes "$3 is named" || fail shapes "$3: $said"
}

shown_shapes() { # models by their published config.json: three with fewer layers through the whole pipeline, then 8B
    : "${PACELINE_TEST_DATA:?set it}"
    local p shape layers tokenizer t0 whole
    p=$(program)
    head -n 24 "$root/data/prompts/heldout.jsonl" >"$work/prompts.jsonl"
    while read -r shape layers tokenizer; do
        shape_folder "$shape" "$layers" "$tokenizer" && opened "$shape" "$layers" || continue
        t0=$SECONDS
        (cd "$root" && "$p" run recipes/any-target.yaml --set target.path="$work/$shape" --set data.prompts="$work/prompts.jsonl" \
            --set data.max_new_tokens=16 --set data.samples=0 --set drafter.head.kind=lowrank --set drafter.head.rank=64 \
            --set train.steps=8 --set train.warmup=2 --set train.slot_rows=128 --set train.eval_every=8 --set eval.holdout=4 \
            --set eval.max_new_tokens=16 --set eval.plain_fp32=false --out "$work/run") >"$work/shapes.log" 2>&1 || { tail -n 3 "$work/shapes.log"; fail shapes "$shape"; continue; }
        say shapes "$shape: answered, trained and decoded in $((SECONDS - t0)) s, identical_outputs: $(grep -o '"identical_outputs": *[a-z]*' "$work/run/results.json" | sort | uniq -c | tr '\n' ' ')"
        rm -rf "${work:?}/run" "${work:?}/$shape"
    done <<<"llama3.1-8b 4 llama3
qwen3-30b-a3b 4 qwen2
gpt-oss-20b 4 llama3"
    # As many layers as fit into nine tenths of the memory that is free, a layer 0.44 GB beside 2.1 GB.
    whole=$(awk '/MemAvailable/ { n = int(($2 * 1024 * 0.9 - 2.1e9) / 0.44e9); print (n > 32 ? 32 : n) }' /proc/meminfo)
    shape_folder llama3.1-8b "$whole" llama3 && opened llama3.1-8b "$whole" || return
    local shards=("$work"/llama3.1-8b/*.safetensors)
    truncate -s -4096 "${shards[-1]}"
    names_shard llama3.1-8b "${shards[-1]##*/}" "a truncated shard"
    rm "${shards[0]}"
    names_shard llama3.1-8b "${shards[0]##*/}" "a missing shard"
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

judge_plan() { # NAME TARGET RUN RECIPE: of RUN's drafters, the head that the planner picks against the best that eval measures
    local name=$1 target=$2 run=$3 block tree line
    # shellcheck disable=SC2206
    local timed=(${PACELINE_TIMED:-}) judged=$work/plan-$1
    mkdir -p "$judged" && cp -r "$run/drafters" "$judged/"
    # Processes of their own, in each of which methods answer prompt by prompt in turn: drift of the machine hits all
    # alike, and where a process's memory happens to lie is part of the interval.
    for ((block = 1; block <= ${PACELINE_BLOCKS:-5}; block++)); do
        (cd "$root" && "${timed[@]}" "$p" eval "$4" --out "$judged" --set "target.path=$target" --set 'eval.drafters=[]' \
            --set 'eval.temperatures=[0]' --set eval.plain_fp32=false --set eval.repeats=1 --set eval.ceilings=0 --quiet) >"$work/plan.log" 2>&1 ||
            { tail -n 3 "$work/plan.log"; fail plan "$name: eval"; return; }
        mv "$judged/results.json" "$judged/block-$block.json"
    done
    # All blocks accept the same drafts. The tree is the evaluation's: what is judged is the choice of the head.
    tree=$(grep -m 1 -o '"tree": *"[a-z][^"]*"' "$judged/block-1.json" | sed 's/.*: *"//; s/"$//')
    (cd "$root" && "${timed[@]}" "$p" plan --target "$target" --results "$judged/block-1.json" --tree "$tree" --heads none \
        --seconds 40 --quiet --json) 2>"$work/plan.log" | tr '{,' '\n\n' >"$judged/plan" || { tail -n 3 "$work/plan.log"; fail plan "$name: plan"; return; }
    line=$(awk -f "$root/tests/regret.awk" "$judged/plan" "$judged"/block-*.json) || { fail plan "$name: $line"; return; }
    sed '$d' <<<"$line"
    say plan "$name: $(tail -n 1 <<<"$line")"
    [[ "$line" != *"more than 3 % behind"* ]] || fail plan "$name"
}

shown_plan() { # on an idle machine, the planner's choice on two targets: heads.yaml's, and where the head is a small part
    local data=${PACELINE_TEST_DATA:?set it} p small run run_4k
    small=$(realpath -m "${PACELINE_TARGET_4K:-$work/target-4k}") run=$(realpath -m "${PACELINE_HEADS:-$work/heads-run}")
    run_4k=$(realpath -m "${PACELINE_HEADS_4K:-$work/heads-4k}")
    p=$(program)
    [ -d "$run/drafters" ] || (cd "$root" && "$p" run recipes/heads.yaml --set "vocabularies.0.text=[$data/text/gutenberg]" --out "$run") >"$work/heads.log" 2>&1 ||
        { tail -n 3 "$work/heads.log"; fail plan "training"; return; }
    judge_plan "vocabulary 16384" checkpoints/tiny "$run" recipes/heads.yaml
    [ -d "$small/checkpoints/last" ] || (cd "$root" && "$p" train recipes/target-4k.yaml --set "data.text=[$data/text/gutenberg]" --out "$small") \
        >"$work/target-4k.log" 2>&1 || { tail -n 3 "$work/target-4k.log"; fail plan "training a target"; return; }
    [ -d "$run_4k/drafters" ] || (cd "$root" && "$p" run recipes/heads-4k.yaml --set "target.path=$small/checkpoints/last" \
        --set "vocabularies.0.text=[$data/text/gutenberg]" --out "$run_4k") \
        >"$work/heads-4k.log" 2>&1 || { tail -n 3 "$work/heads-4k.log"; fail plan "training"; return; }
    judge_plan "vocabulary 4096" "$small/checkpoints/last" "$run_4k" recipes/heads-4k.yaml
}

shown_hybrid() { # a free drafter with a trained head, and with a small model, beside plain decoding and each alone: batches of 1, 4, 16 in several processes
    local p data=${PACELINE_TEST_DATA:?set it}/models head name target drafter prompts t lost=0 t0=$SECONDS
    p=$(program)
    heads || { fail hybrid "training"; return; }
    head=$heads/drafters/eagle3-full
    [ -e "$head/config.json" ] || head=$head/checkpoints/best
    while IFS='|' read -r name target prompts drafter; do
        for t in 0 1; do
            [ $# = 0 ] || [[ " $* " == *" $name-T$t "* ]] || continue
            echo "$name-T$t"
            (cd "$root" && bash tests/pairs.sh "$p" "$target" "$prompts" "$t" "hybrid:suffix:12+$drafter" "$drafter" suffix:12 recycle) || lost=$((lost + 1))
        done
    done <<<"tiny|checkpoints/tiny|data/prompts/heldout.jsonl|$head
stories|$data/TinyStories-656K|data/prompts/stories.jsonl|tli:$data/stories260K/stories260K.bin:$data/stories260K/tok512.bin"
    say hybrid "$((SECONDS - t0)) s; settings with a loss: $lost"
    [ "$lost" = 0 ] || fail hybrid "see above (only an idle machine can tell)"
}

online_traffic() { # FILE FIRST COUNT: asks the server at $url for answers to these prompts, eight clients at a time
    sed -n "$2,$(($2 + $3 - 1))p" "$1" | python3 -c 'import concurrent.futures, http.client, json, sys
host, key = sys.argv[1:]
def ask(line):
    c = http.client.HTTPConnection(host)
    body = {"prompt": json.loads(line)["prompt"], "max_tokens": 128, "temperature": 0}
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json", "Authorization": "Bearer " + key})
    r = c.getresponse()
    text = r.read()
    assert r.status == 200, text
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    list(pool.map(ask, sys.stdin))' "${url#http://}" a-key-of-this-proof
}

online_acceptance() { # NAME DRAFTER: acceptance lengths in chains of three, by kind of prompt
    local kind tau line="$1"
    for kind in own stories; do
        rm -rf "$work/online-eval"
        (cd "$root" && "$p" eval recipes/any-target.yaml --set target.path=checkpoints/tiny --set "eval.prompts=$work/$kind.jsonl" \
            --set eval.max_new_tokens=128 --set 'eval.temperatures=[0]' --set eval.plain_fp32=false --set eval.trace=false \
            --set "eval.drafters=[{path: $2, tree: \"chain:3\", name: d}]" --out "$work/online-eval") >"$work/online.log" 2>&1 ||
            { tail -n 2 "$work/online.log"; return 1; }
        tau=$(python3 -c 'import json, sys
m = [x for x in json.load(open(sys.argv[1]))["methods"] if x["name"] == "d"][0]
print("%.3f (identical: %s)" % (m["acceptance_length"], m["identical_outputs"]))' "$work/online-eval/results.json")
        line="$line  $kind $tau"
    done
    say online "$line"
}

shown_online() { # two kinds of traffic in turn, recorded and learned from while it is served (recipes/online.sh)
    local p url server drafter t0=$SECONDS keys=$work/online-keys run=$work/online-run record=$work/online.jsonl
    p=$(program)
    heads || { fail online "training"; return; }
    drafter=$heads/drafters/eagle3-lowrank/checkpoints/best
    head -n 24 "$root/data/prompts/heldout.jsonl" >"$work/own.jsonl"
    sed -n 701,724p "$root/data/prompts/stories.jsonl" >"$work/stories.jsonl"
    (umask 077 && echo a-key-of-this-proof >"$keys")
    "$p" serve --target "$root/checkpoints/tiny" --drafter "$drafter" --port 0 --record "$record" --swap "learned=$run/learned" \
        --api-key-file "$keys" >"$work/online.out" 2>"$work/serve.log" &
    server=$!
    while kill -0 $server 2>/dev/null && ! url=$(grep -o 'http://.*' "$work/online.out"); do sleep 0.1; done
    online_acceptance "at the start:    " "$drafter" || fail online "evaluation"
    for kind in stories own; do
        if [ $kind = stories ]; then online_traffic "$root/data/prompts/stories.jsonl" 1 160; else online_traffic "$root/data/prompts/train.jsonl" 1 160; fi ||
            { fail online "traffic"; break; }
        PACELINE=$p bash "$root/recipes/online.sh" "$root/recipes/any-target.yaml" "$root/checkpoints/tiny" "$drafter" "$record" "$run" \
            "$url" "$keys" drafter.head.kind=lowrank drafter.head.rank=64 train.steps=200 train.lr=1e-3 train.warmup=20 \
            train.eval_every=100 >"$work/online.log" 2>&1 || { tail -n 3 "$work/online.log"; fail online "learning"; break; }
        online_acceptance "after 160 $kind:" "$run/learned" || fail online "evaluation"
    done
    kill -TERM $server && wait $server
    say online "$((SECONDS - t0)) s"
}

heads_and_domains() { # NAME OUT: recipes/NAME.yaml, trained once, decoded at temperature 0 and 1, then by domain
    local data=${PACELINE_TEST_DATA:?set it} name=$1 p t0=$SECONDS d out
    out=$(realpath -m "$2")
    p=$(program)
    (cd "$root" && "$p" run "recipes/$name.yaml" --set "vocabularies.0.text=[$data/text/gutenberg]" --out "$out") >"$work/heads.log" 2>&1 ||
        { tail -n 3 "$work/heads.log"; fail "$name" "see above"; return; }
    sed -n '/^method/,/^$/p' "$work/heads.log"
    say "$name" "$((SECONDS - t0)) s, identical_outputs: $(grep -o '"identical_outputs": *[a-z]*' "$out/results.json" | sort | uniq -c | tr '\n' ' ')"
    # By domain: a dozen or two prompts of each, taken evenly; a .txt is read by paragraph.
    mkdir -p "$work/domains"
    awk 'NR % 8 == 1 { print "" } NR % 200 < 8' "$data/text/botchan.txt" >"$work/domains/books.txt"
    awk -v RS= -v ORS='\n\n' 'NR % 350 == 1' "$data/text/tinyshakespeare.txt" >"$work/domains/shakespeare.txt"
    grep -v '^ = ' "$data/text/wikitext-2/test.txt" | awk 'length > 200 && ++n % 100 == 1 { print $0 "\n" }' >"$work/domains/wikipedia.txt"
    awk 'NR % 10 == 1' "$data/text/sequoia_c4_small.jsonl" | sed -n 's/.*"input_tokens": *\[\([0-9, ]*\)\].*/\1/p' | while read -r ids; do
        "$p" tokenize --tokenizer "$data/tokenizers/llama2" --decode "$ids" | tr '\n' ' ' || echo "$ids" >>"$work/web.failed"
        printf '\n\n'
    done >"$work/domains/web.txt"
    zcat "$data/bench/humaneval/HumanEval.jsonl.gz" | awk 'NR % 10 == 1' >"$work/domains/code.jsonl"
    awk 'NR % 20 == 1' "$data/bench/spec_bench/question.jsonl" >"$work/domains/spec-bench.jsonl"
    [ ! -e "$work/web.failed" ] || fail "$name" "$(wc -l <"$work/web.failed") web texts were not read"
    for d in "$work"/domains/*; do
        [ -s "$d" ] || { fail "$name" "${d##*/} is empty"; continue; }
        rm -rf "$work/domain" && mkdir "$work/domain" && cp -r "$out/drafters" "$work/domain/" || { fail "$name" "${d##*/}"; continue; }
        (cd "$root" && "$p" eval "recipes/$name.yaml" --set "eval.prompts=$d" --set 'eval.temperatures=[0]' --set eval.ceilings=0 \
            --out "$work/domain") >"$work/domain.log" 2>&1 || { tail -n 3 "$work/domain.log"; fail "$name" "${d##*/}"; continue; }
        say "$name" "${d##*/}"
        sed -n '/^method/,/^$/p' "$work/domain.log"
        cp "$work/domain/results.json" "$out/${d##*/}.results.json"
    done
}

shown_heads() { # every draft head beside the full one
    heads_and_domains heads "${PACELINE_HEADS:-$work/heads-run}"
}

shown_eagle2_heads() { # lists and routers with EAGLE-2's model and tree
    heads_and_domains eagle2-heads "${PACELINE_EAGLE2_HEADS:-$work/eagle2-heads}"
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

shown_vocabularies() { # what lists from a corpus hold of other text of the same kind and of another; FR-Spec: V/4 holds 95 %
    local data=${PACELINE_TEST_DATA:?set it} p tok chat text shared
    p=$(program) tok=$data/tokenizers/llama3 chat=$data/chat/alpaca_eval/Meta-Llama-3-8B-Instruct.json text=$data/text
    "$p" vocab --tokenizer "$tok" --field output --against "$text/gutenberg" --against "$text/wikitext-2" \
        "$chat" >"$work/vocab-chat.log" 2>&1 || { tail -n 3 "$work/vocab-chat.log"; fail vocabularies "chat"; return; }
    "$p" vocab --tokenizer "$tok" --against-field output --against "$chat" --against "$text/wikitext-2" \
        "$text/gutenberg" >"$work/vocab-text.log" 2>&1 || { tail -n 3 "$work/vocab-text.log"; fail vocabularies "text"; return; }
    cat "$work/vocab-chat.log" "$work/vocab-text.log"
    # Columns of the table: name, what of it, tokens, then shares; V/4 is the second share.
    quarter() { awk -v name="$2" '$1 ~ name { for (i = 1; i <= NF; i++) if ($i == "%" && ++n == 2) print $(i - 1) }' "$work/$1.log" | head -n 1; }
    local cc ct tt tc
    cc=$(quarter vocab-chat '^Meta') ct=$(quarter vocab-chat '^gutenberg') tt=$(quarter vocab-text '^gutenberg') tc=$(quarter vocab-text '^Meta')
    awk "BEGIN { exit !($cc > $ct && $tt > $tc && $cc > 90 && $tt > 90) }" ||
        fail vocabularies "V/4 holds $cc % in domain, $ct % out of it (chat); $tt %, $tc % (books)"
    say vocabularies "V/4 of Llama-3's 128256 ids: from chat $cc % of held-out chat, $ct % of books; from books $tt % of held-out books, $tc % of chat (FR-Spec: 95 %)"
    shared=$("$p" vocab overlap "$tok" "$data/tokenizers/qwen2" --json | grep -o '"shared": *[0-9]*' | grep -o '[0-9]*$')
    [ "$shared" = 109566 ] && say vocabularies "Llama-3 and Qwen2 share $shared tokens" || fail vocabularies "Llama-3 and Qwen2 share ${shared:-?} tokens, not 109566"
}

shown_faults() { # every failure that every command can meet; a quarter of an hour
    "$(program)" --version >/dev/null
    "$root/build/test_fault" all >"$work/faults.log" 2>&1 || fail faults "$(grep -v '^ ' "$work/faults.log" | grep -E ' (own|libs) ' | head -n 20)"
    while read -r line; do say faults "$line"; done < <(grep -E '^[a-z]+ \([0-9]+ s\)|^  ' "$work/faults.log")
    [ -x "$root/build/test_mpi_faults" ] || { say faults "MPI: not shown (a build without it)"; return; }
    "$root/build/test_mpi_faults" all >"$work/faults.log" 2>&1 && say faults "$(grep 'failing calls' "$work/faults.log") by two ranks: a line by each, nobody hangs" ||
        fail faults "MPI: $(grep -m 1 ERROR "$work/faults.log")"
}

shown_verify() { # each verifier's distribution through the decode loop, a million draws a test
    program >/dev/null
    (cd "$root" && PACELINE_TEST_DRAWS=1000000 "$root"/build/test_verify_chi2) >"$work/verify.log" 2>&1 || { tail -n 5 "$work/verify.log"; fail verify "see above"; return; }
    grep ', z ' "$work/verify.log"
    say verify "$(grep -c ', z ' "$work/verify.log") G-tests"
}

shown_malformed() { # how many malformed inputs the tests give to readers, each refused with the line it must have
    program >/dev/null
    local t n total=0
    for t in $(cd "$root" && grep -lE 'assert_refused|malformed_seen' tests/*/test_*.c); do
        t=$(basename "$t" .c)
        cmake --build "$root/build" --target "$t" >/dev/null
        n=$(cd "$root" && "build/$t" 2>"$work/malformed.log" | sed -n 's/^malformed inputs refused with their line: //p') &&
            [ -n "$n" ] || { fail malformed "$t: $(grep -m 1 -E 'FAILED|error' "$work/malformed.log")"; continue; }
        say malformed "$t: $n"
        total=$((total + n))
    done
    say malformed "$total malformed inputs, each refused with its line"
}

fuzz_one() { # NAME SECONDS: one line; its findings go to build-fuzz/findings/NAME
    local f=$root/build-fuzz/$1 corpus=$root/build-fuzz/corpus/$1 found=$root/build-fuzz/findings/$1 log=$work/$1.log
    local end=$((SECONDS + $2)) execs=0 n=0 left ran last failed dict old_regressions=$root/tests/fuzz/regressions/${1#fuzz_}
    mkdir -p "$corpus" "$found"
    [ -d "$old_regressions" ] || old_regressions=
    "$f" --seeds="$corpus" --words="$work/$1.dict" >/dev/null 2>&1
    [ -s "$work/$1.dict" ] && dict=$work/$1.dict || dict=
    while left=$((end - SECONDS)) && [ "$left" -gt 0 ] && [ "$n" -lt 8 ]; do # a finding ends a run; a few are enough
        # shellcheck disable=SC2086
        "$f" -max_total_time="$left" -timeout=20 -malloc_limit_mb=256 -rss_limit_mb=2048 -print_final_stats=1 \
            ${dict:+-dict="$dict"} -artifact_prefix="$found/" "$corpus" $old_regressions >"$log" 2>&1 && failed=0 || failed=1
        ran=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
        execs=$((execs + ${ran:-0}))
        [ "$failed" = 0 ] && continue
        # A machine that stood still looks like an input that takes too long: it counts when it does so again.
        last=$(sed -n 's/^artifact_prefix=.*Test unit written to //p' "$log" | tail -n 1)
        case "$last" in */timeout-*) "$f" -timeout=20 "$last" >"$log" 2>&1 && rm -f "$last" && continue ;; esac
        n=$((n + 1))
        cp "$log" "$found/log-$n"
        grep -hE 'FINDING|SUMMARY' "$log" | head -n 2 | sed "s/^/    /"
    done
    # One input may end several runs.
    [ "$n" = 0 ] || n=$(find "$found" -name 'crash-*' -o -name 'oom-*' -o -name 'timeout-*' -o -name 'leak-*' | wc -l)
    case "$1" in fuzz_lib_*) say fuzz "$1: $execs inputs, $n library findings" ;; *) say fuzz "$1: $execs inputs, $n findings" ;; esac
    case "$1" in fuzz_lib_*) return 0 ;; esac
    [ "$n" = 0 ] && [ "$execs" -gt 0 ]
}

shown_fuzz() {
    . "$root/recipes/packages.sh"
    pl_install "$PL_FUZZ_PACKAGES" || return 1
    cmake --preset fuzz -S "$root" >/dev/null && cmake --build "$root/build-fuzz" --target fuzz_targets >"$work/fuzz.log" ||
        { tail -n 5 "$work/fuzz.log"; fail fuzz "does not build"; return; }
    export work root seconds=${1:-600}
    export -f fuzz_one say
    local files=$work targets=("${@:2}")
    [ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cd "$root/tests/fuzz" && ls fuzz_*.c | sed 's/\.c$//')
    [ -w /dev/shm ] && files=$(mktemp -d -p /dev/shm)
    printf '%s\n' "${targets[@]}" |
        TMPDIR=$files xargs -P 2 -I {} bash -c 'fuzz_one {} "$seconds"' || fail fuzz "see build-fuzz/findings"
    [ "$files" = "$work" ] || rm -rf "$files"
}

shown_valgrind() { # memcheck knows neither AVX-512 nor threads of our own making: the portable kernels, no emulated device; tests that finish within minutes
    command -v valgrind >/dev/null || { fail valgrind "please install valgrind"; return; }
    program >/dev/null
    local tests=("$@") t log
    [ $# -gt 0 ] || tests=(test_base test_json test_files test_safetensors test_hf test_llama2c test_state test_weights
        test_recipe test_spell test_prompts test_text test_tokens test_dataset test_malformed_data
        test_malformed_results test_tape test_op_linear test_op_attention test_op_rmsnorm test_op_topk test_linear_cpu
        test_attention_cpu test_elementwise_cpu test_divergence_cpu test_unroll)
    for t in "${tests[@]}"; do
        log=$work/$t.log
        cmake --build "$root/build" --target "$t" >/dev/null
        (cd "$root" && PACELINE_TEST_MEMCHECK=1 PACELINE_ISA=portable PACELINE_THREADS=2 valgrind -q --error-exitcode=99 --leak-check=full \
            --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect --child-silent-after-fork=yes \
            --suppressions=tests/valgrind.supp --num-callers=20 "build/$t") >"$log" 2>&1
        case $? in
        0) say valgrind "$t: no errors" ;;
        77) say valgrind "$t: skipped" ;;
        *) fail valgrind "$t"; grep -m 12 -E '^==|FAILED' "$log" ;;
        esac
    done
}

host() { # I RANKS OUT [OPTIONS...]: rank I trains in namespaces, a folder and a temporary folder of its own
    local i=$1 n=$2 out=$3
    shift 3
    mkdir -p "$work/host$i/tmp"
    TMPDIR=$work/host$i/tmp ip netns exec "plh$i" unshare --uts --ipc --mount bash -c \
        'hostname "plh$1" && mount -t tmpfs tmpfs /dev/shm && cd "$2" && shift 2 && exec "$@"' - "$i" "$work/host$i" \
        "$p" train "$work/hosts.yaml" --out "$out" --quiet --threads 1 --rank "$i" --world "$n" --address 10.77.0.1:5000 "$@" \
        2>"$work/host$i/log"
}

sent() { # bytes that the hosts' links have sent
    local i
    for i in 0 1 2 3; do ip netns exec "plh$i" cat /sys/class/net/eth0/statistics/tx_bytes; done | awk '{ s += $1 } END { printf "%.0f", s }'
}

hosts_down() {
    local i
    for i in 0 1 2 3; do # a namespace ends some time after it was deleted, and its link with it
        ip link del "plh-$i" 2>/dev/null
        ip netns del "plh$i" 2>/dev/null
    done
    ip link del plh 2>/dev/null
}

hosts_up() { # four hosts on a bridge
    local i
    hosts_down
    ip link add plh type bridge && ip link set plh up || return 1
    for i in 0 1 2 3; do
        ip netns add "plh$i" && ip link add "plh-$i" type veth peer name eth0 netns "plh$i" && ip link set "plh-$i" master plh up &&
            ip -n "plh$i" addr add "10.77.0.$((i + 1))/24" dev eth0 && ip -n "plh$i" link set eth0 up && ip -n "plh$i" link set lo up || return 1
    done
}

hosts_recipe() { # STEPS
    awk 'BEGIN { srand(1); split("rider leader wind group wheel climb road coach", w); for (i = 0; i < 9000; i++) printf "%s%s", w[int(rand() * 8) + 1], i % 9 == 8 ? ".\n" : " " }' >"$work/hosts.txt"
    cat >"$work/hosts.yaml" <<END
kind: target
data: {text: $work/hosts.txt, tokenizer: {vocab_size: 300}}
target: {new: {hidden_size: 128, layers: 2, heads: 4, kv_heads: 2, intermediate: 256, positions: 96}}
train: {steps: $1, batch: 8, seq_len: 64, lr: 1e-2, warmup: 5, slots: 4, checkpoint_every: 20, log_every: 1}
END
}

mpi_hosts() { # STEPS OPTIONS...: the same four by mpirun, whose rsh is a script that enters a host; rank I's line in hostI/log
    cat >"$work/enter" <<'END'
#!/bin/bash
# ADDRESS COMMAND...: as rsh would
i=$((${1##*.} - 1)) work=$(dirname "$0")
shift
mkdir -p "$work/host$i/tmp"
TMPDIR=$work/host$i/tmp exec ip netns exec "plh$i" unshare --uts --ipc --mount bash -c \
    'hostname "plh$1" && mount -t tmpfs tmpfs /dev/shm && cd "$2" && exec bash -c "$3"' - "$i" "$work/host$i" "$*"
END
    cat >"$work/rank" <<'END'
#!/bin/bash
cd "$(dirname "$0")/host$OMPI_COMM_WORLD_RANK" && echo $$ >pid && exec "$@" 2>log
END
    chmod +x "$work/enter" "$work/rank"
    hosts_recipe "$1"
    shift
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$work/enter" 10.77.0.1 exec timeout 600 mpirun -n 4 --map-by node \
        --bind-to none --mca plm_rsh_agent "$work/enter" --mca plm_rsh_no_tree_spawn 1 \
        --host 10.77.0.1,10.77.0.2,10.77.0.3,10.77.0.4 "$work/rank" \
        "$p" train "$work/hosts.yaml" --out run --quiet --threads 1 "$@" >"$work/mpirun.log" 2>&1
}

ranks_gone() { # SECONDS: whether all four have ended by then
    local until=$((SECONDS + $1)) i
    while [ $SECONDS -le $until ]; do
        for i in 0 1 2 3; do kill -0 "$(cat "$work/host$i/pid")" 2>/dev/null && sleep 0.2 && continue 2; done
        return 0
    done
    return 1
}

happens_to_mpi() { # WHAT COMMAND...: to rank 2 of four while they sum; the others name it and its host
    local what=$1 t0 run took
    shift
    rm -rf "$work"/host?/{run,log,pid}
    mpi_hosts 4000 & run=$!
    until [ -s "$work/host0/run/metrics.jsonl" ]; do kill -0 $run 2>/dev/null || break; sleep 0.05; done
    "$@"
    t0=$SECONDS
    ranks_gone 45 || { fail hosts "MPI, $what: ranks live on"; ip link set plh-2 up; kill $run; return 1; }
    took=$((SECONDS - t0))
    ip link set plh-2 up # mpirun's daemon there hears of the end, too
    wait $run && { fail hosts "MPI, $what: mpirun returns 0"; return 1; }
    grep -q "rank 2: .*plh2" "$work/host0/log" && grep -q "rank 2: " "$work/host1/log" && grep -q "rank 2: " "$work/host3/log" ||
        { cat "$work"/host?/log; fail hosts "MPI, $what: it is not named"; return 1; }
    say hosts "MPI, $what: all end after $took s; $(sed 's/^paceline: //' "$work/host0/log")"
}

hosts_by_mpi() {
    local before bytes want state=$work/host0/run/checkpoints/last/training_state
    command -v mpirun >/dev/null && "$p" doctor | grep -q 'mpi .*Open MPI' || { say hosts "MPI: not shown (no mpirun, or a build without Open MPI)"; return; }
    rm -rf "$work"/host?/run
    hosts_up || { fail hosts "MPI: the hosts are not up again"; return; } # the cut link
    before=$(sent)
    mpi_hosts 100 || { cat "$work/mpirun.log" "$work"/host?/log; fail hosts "MPI: four hosts"; return; }
    bytes=$(($(sent) - before))
    same_weights "four hosts by mpirun" "$state" || return
    want=$(stat -c %s "$state" | awk '{ printf "%.0f", $1 / 3 * 6 * 100 }')
    say hosts "MPI: four hosts, the weights of one process; $bytes bytes sent, $want predicted, $(awk -v a="$bytes" -v b="$want" 'BEGIN { printf "%+.1f", 100 * (a / b - 1) }') %"
    happens_to_mpi "a killed rank" bash -c "kill -KILL \$(cat '$work/host2/pid')"
    happens_to_mpi "a stopped rank" bash -c "kill -STOP \$(cat '$work/host2/pid')"
    happens_to_mpi "a link cut" ip link set plh-2 down
}

same_weights() { # NAME STATE: as those of one process
    cmp -s "$work/one/checkpoints/last/training_state" "$2" || { fail hosts "$1: other weights than one process's"; return 1; }
}

two_and_two() { # ranks 0 and 1 on host 0, whose name is a loopback address to itself alone, and ranks 2 and 3 on host 1
    local r what="two ranks on rank 0's host, whose name is a loopback address there, and two elsewhere" pids=()
    mkdir -p "$work/host0" "$work/host1"
    printf '127.0.0.1 localhost\n127.0.1.1 plh0\n' >"$work/host0/hosts"
    printf '127.0.0.1 localhost\n10.77.0.1 plh0\n' >"$work/host1/hosts"
    for r in 3 2 1 0; do
        ip netns exec "plh$((r / 2))" unshare --uts --mount bash -c 'hostname "plh$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"' - \
            $((r / 2)) "$work/host$((r / 2))/hosts" "$p" train "$work/hosts.yaml" --out "$work/two$r" --quiet --threads 1 --rank "$r" \
            --world 4 --address plh0:5000 2>"$work/two$r.log" & pids+=($!)
    done
    for r in "${pids[@]}"; do wait "$r" || { cat "$work"/two?.log; fail hosts "$what"; return 1; }; done
    same_weights "$what" "$work/two0/checkpoints/last/training_state" && say hosts "$what: the weights of one process"
}

shown_hosts() { # ranks on four hosts (network, uts, ipc and mount namespaces; as root): bits, bytes, a cut link, fewer hosts
    local p i before bytes want t0 pids=() state=$work/host0/run/checkpoints/last/training_state
    command -v ip >/dev/null && command -v unshare >/dev/null || { fail hosts "needs ip (iproute2) and unshare"; return; }
    p=$(program)
    PACELINE_SECRET=$(head -c 32 /dev/urandom | base64)
    export PACELINE_SECRET
    (umask 077 && head -c 32 /dev/urandom >"$work/secret")
    hosts_up || { fail hosts "namespaces cannot be made; run it as root"; hosts_down; return; }
    hosts_recipe 100
    "$p" train "$work/hosts.yaml" --out "$work/one" --quiet || { fail hosts "one process"; hosts_down; return; }
    before=$(sent)
    for i in 3 2 1 0; do host "$i" 4 run & pids+=($!); done
    for i in "${pids[@]}"; do wait "$i" || { cat "$work"/host?/log; fail hosts "four hosts"; hosts_down; return; }; done
    bytes=$(($(sent) - before))
    same_weights "four hosts" "$state" || { hosts_down; return; }
    # Each step a rank sends 3/4 of the gradient twice; weights and moments in the state are three times as many numbers.
    want=$(stat -c %s "$state" | awk '{ printf "%.0f", $1 / 3 * 6 * 100 }')
    say hosts "four hosts: the weights of one process; $bytes bytes sent, $want predicted, $(awk -v a="$bytes" -v b="$want" 'BEGIN { printf "%+.1f", 100 * (a / b - 1) }') %"
    rm -rf "$work"/host?/run
    pids=()
    for i in 3 2 1 0; do host "$i" 4 run & pids+=($!); done
    until [ -s "$work/host0/run/metrics.jsonl" ]; do sleep 0.05; done
    ip link set plh-2 down
    t0=$SECONDS
    for i in "${pids[@]}"; do wait "$i" && { fail hosts "a host trained on without its link"; hosts_down; return; }; done
    grep -q "rank 2: no sign of life from plh2" "$work/host0/log" && grep -q "rank 2: " "$work/host1/log" && grep -q "rank 2: " "$work/host3/log" ||
        { cat "$work"/host?/log; fail hosts "the cut host is not named"; hosts_down; return; }
    say hosts "a link cut while summing: all end after $((SECONDS - t0)) s; $(sed 's/^paceline: //' "$work/host0/log")"
    pids=()
    for i in 1 0; do host "$i" 2 run --secret-file "$work/secret" & pids+=($!); done
    for i in "${pids[@]}"; do wait "$i" || { cat "$work"/host[01]/log; fail hosts "two hosts"; hosts_down; return; }; done
    same_weights "two hosts that go on" "$state" && say hosts "two hosts go on from there, by a secret of a file: the weights of one process"
    two_and_two
    hosts_by_mpi
    hosts_down
}

launched() { # WHAT GROUP COMMAND...: ranks that something starts train into $work/run; the weights of one process
    local what=$1 group=$2 by
    shift 2
    rm -rf "$work/run"
    timeout 120 "$@" train "$work/hosts.yaml" --out "$work/run" --threads 1 --group "$group" >"$work/launched.log" 2>&1 || { tail -n 3 "$work/launched.log"; fail launchers "$what"; return 1; }
    by=$(grep -m 1 -o 'rank 0 of .*' "$work/launched.log")
    cmp -s "$work/one/checkpoints/last/training_state" "$work/run/checkpoints/last/training_state" && say launchers "$what: $by: the weights of one process" ||
        fail launchers "$what: other weights than one process's"
}

launchers_mpich() { # a build against MPICH; the tests that start themselves by mpirun
    local t b=$root/build-mpich
    command -v mpicc.mpich >/dev/null && command -v mpirun.mpich >/dev/null || { say launchers "MPICH: not shown (no mpicc.mpich, mpirun.mpich)"; return; }
    cmake -S "$root" -B "$b" -G Ninja -DPACELINE_CUDA=OFF -DPACELINE_MPI=ON -DMPI_C_COMPILER="$(command -v mpicc.mpich)" \
        -DMPIEXEC_EXECUTABLE="$(command -v mpirun.mpich)" >/dev/null &&
        cmake --build "$b" --target paceline_program test_comm test_rank_options test_mpi_faults >"$work/mpich.log" 2>&1 || { tail -n 3 "$work/mpich.log"; fail launchers "MPICH: does not build"; return; }
    for t in test_comm test_rank_options test_mpi_faults; do
        (cd "$root" && "$b/$t") >"$work/mpich.log" 2>&1 && say launchers "MPICH, $t: $(grep -c '^\[       OK' "$work/mpich.log") tests, none fails" ||
            fail launchers "MPICH, $t: $(grep -m 1 ERROR "$work/mpich.log")"
    done
}

slurm_up() { # a controller and a node, this machine; as root, with munge's key made
    local host i
    host=$(hostname -s)
    export SLURM_CONF=$work/slurm/slurm.conf
    mkdir -p "$work/slurm/state" "$work/slurm/spool"
    munge -n 2>/dev/null | unmunge >/dev/null 2>&1 || { mkdir -p /run/munge && chown munge: /run/munge && runuser -u munge -- munged && sleep 1; } || return 1
    cat >"$SLURM_CONF" <<END
ClusterName=shown
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/slurm/state
SlurmdSpoolDir=$work/slurm/spool
SlurmctldPidFile=$work/slurm/controller.pid
SlurmdPidFile=$work/slurm/node.pid
SlurmctldLogFile=$work/slurm/controller.log
SlurmdLogFile=$work/slurm/node.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/linear
ReturnToService=2
KillWait=20
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc)
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:4
END
    slurmctld -f "$SLURM_CONF" && sleep 1 && slurmd -f "$SLURM_CONF" || return 1
    for i in {1..20}; do [ "$(sinfo -h -o %T)" = idle ] && return; sleep 0.5; done
    return 1
}

slurm_down() { kill "$(cat "$work/slurm/node.pid")" "$(cat "$work/slurm/controller.pid")"; unset SLURM_CONF; } 2>/dev/null

srun_ends() { # WHAT WANTED COMMAND...: happens to ranks of srun while they train; rank 0 says so
    local what=$1 wanted=$2 run
    shift 2
    rm -rf "$work/run"
    timeout 120 srun --mpi=none -n 2 --overcommit "$p" train "$work/hosts.yaml" --out "$work/run" --quiet --threads 1 \
        --set train.steps=100000 >"$work/launched.log" 2>&1 & run=$!
    until [ -s "$work/run/metrics.jsonl" ] || ! kill -0 $run; do sleep 0.05; done
    "$@"
    wait $run && { fail launchers "srun, $what: returns 0"; return; }
    grep -q "$wanted" "$work/launched.log" && say launchers "srun, $what: $(grep -m 1 "$wanted" "$work/launched.log" | sed 's/^paceline: //')" ||
        { cat "$work/launched.log"; fail launchers "srun, $what: \"$wanted\" expected"; }
}

kill_rank() { # of srun's
    local pid
    for pid in $(pgrep -f "^$p train"); do grep -qz "^SLURM_PROCID=$1$" "/proc/$pid/environ" && kill -KILL "$pid"; done
}

launchers_srun() {
    local what
    for what in srun slurmctld slurmd munged; do command -v $what >/dev/null || { say launchers "srun: not shown (no $what)"; return; }; done
    slurm_up || { fail launchers "Slurm does not come up (run it as root): $(tail -n 1 "$work/slurm/controller.log")"; slurm_down; return; }
    launched srun auto srun --mpi=none -n 2 --overcommit "$p"
    "$p" doctor | grep -q 'mpi .*Open MPI' && srun --mpi=list 2>&1 | grep -q pmix && launched "srun --mpi=pmix, Open MPI" mpi srun --mpi=pmix -n 2 --overcommit "$p"
    [ -x "$root/build-mpich/paceline" ] && launched "srun --mpi=pmi2, MPICH" mpi srun --mpi=pmi2 -n 2 --overcommit "$root/build-mpich/paceline"
    srun_ends "a killed rank" "rank 1: its process on" kill_rank 1
    srun_ends "SIGTERM" "of 100000; the same command goes on" scancel --signal=TERM --name="${p##*/}"
    slurm_down
}

shown_launchers() { # ranks by MPICH's mpirun and by srun (as root): the weights of one process, failures and stops
    local p
    p=$(program)
    hosts_recipe 100
    "$p" train "$work/hosts.yaml" --out "$work/one" --quiet || { fail launchers "one process"; return; }
    launchers_mpich
    launchers_srun
}

kills_start() { # WORDS...: $pid runs them into $work/run, leader of a session of its own
    TMPDIR=$work/tmp setsid "$p" "$@" --out "$work/run" --quiet --threads 1 2>"$work/kills.log" &
    pid=$!
}

kills_done_so_far() { # lines of metrics, or shards of the dataset
    { cat "$work"/run/metrics.jsonl; compgen -G "$work/run/dataset/shard-*"; } 2>/dev/null | wc -l
}

kills_inodes() { stat -c %i "$work/run/checkpoints/last" "$work/run/bounded/manifest.json" "$work/run/dataset/manifest.json" 2>/dev/null; }

kills_wait() { # POINT: until it is there, or the run has ended
    local files before
    before=$(kills_done_so_far)
    files=$(kills_inodes)
    while kill -0 "$pid" 2>/dev/null; do
        case $1 in
        start) sleep "0.0$((RANDOM % 10))"; return ;;
        writing) compgen -G "$work/run/*/.*.tmp-*" >/dev/null && return ;;
        replaced) [ "$(kills_inodes)" != "$files" ] && return ;;
        step) [ "$(kills_done_so_far)" -gt $((before + RANDOM % $2)) ] && return ;;
        esac
    done
}

kills_gone() { # no process of the session is left, within 20 s; $ended is what the leader ended with
    local i
    wait "$pid" 2>/dev/null
    ended=$?
    for i in {1..200}; do
        [ -z "$(ps -o pid= --sid "$pid")" ] && return
        sleep 0.1
    done
    return 1
}

kills_shared() { { find /dev/shm -maxdepth 1 -type f; ipcs -m | awk '$2 ~ /^[0-9]+$/ { print "segment " $2 }'; } | sort; }

kills_names() { (cd "$1" && find . -mindepth 1 | sort); }

kills_same_training() { # weights, the best ones, metrics
    local f
    for f in last/training_state last/model.safetensors best/model.safetensors; do
        cmp "$work/one/checkpoints/$f" "$work/run/checkpoints/$f" || { fail kills "$1: another $f than undisturbed"; return 1; }
    done
    cmp <(grep -o '"step":[0-9]*,"loss":[^,]*' "$work/one/metrics.jsonl") <(grep -o '"step":[0-9]*,"loss":[^,]*' "$work/run/metrics.jsonl") || { fail kills "$1: other metrics"; return 1; }
}

kills_same_names() { # WHAT [PATTERN]: but for logs of ranks and event files of starts before the first checkpoint, which one undisturbed process has none of
    local other="/rank-[0-9]*[.]log$|/events[.]out${2:+|$2}"
    diff <(kills_names "$work/one" | grep -vE "$other") <(kills_names "$work/run" | grep -vE "$other") || { fail kills "$1: other files"; return 1; }
}

# What is killed: its recipe and how far it goes between kills at most, its words for so many ranks, and what must be equal.
kills_training() {
    awk 'BEGIN { srand(1); split("rider leader wind group wheel climb road coach", w); for (i = 0; i < 9000; i++) printf "%s%s", w[int(rand() * 8) + 1], i % 9 == 8 ? ".\n" : " " }' >"$work/kills.txt"
    cat >"$work/kills.yaml" <<END
kind: target
data: {text: $work/kills.txt, tokenizer: {vocab_size: 300}, chunk_bytes: 2048, holdout: {every: 9}}
target: {new: {hidden_size: 128, layers: 2, heads: 4, kv_heads: 2, intermediate: 256, positions: 96}}
train: {steps: $((12 * $1)), batch: 4, seq_len: 32, lr: 1e-2, warmup: 5, slots: 4, checkpoint_every: 3, keep: 3, eval_every: 20, eval_tokens: 64, log_every: 1}
END
    stride=12
}
kills_training_words() { words=(train "$work/kills.yaml" --ranks "$1" --set "train.shard=$([ $((RANDOM % 2)) = 0 ] && echo none || echo optimizer)"); }
kills_training_same() { kills_same_training training && kills_same_names training; }

kills_small() { # STEPS: a small drafter of small documents
    cat >"$work/kills.yaml" <<END
target: {path: $root/checkpoints/tiny}
data: {prompts: $root/data/prompts/heldout.jsonl, max_new_tokens: 8, samples: 8, rows_per_shard: 80, window: 4, sessions: 4}
drafter: {head: {kind: lowrank, rank: 8}}
train: {steps: $1, slots: 4, slot_rows: 48, unroll: 2, eval_steps: 2, eval_every: 20, eval_tokens: 100, eval_prompts: 1,
  checkpoint_every: 2, keep: 2, warmup: 2, holdout: 8, log_every: 1}
END
    stride=4
}
kills_generation() { kills_small 1; }
kills_generation_words() { words=(generate "$work/kills.yaml" --ranks "$1"); }
kills_generation_same() { diff -r "$work/one/dataset" "$work/run/dataset" && diff <(kills_names "$work/one") <(kills_names "$work/run") || { fail kills "generation: another dataset"; return 1; }; }

kills_bounded_run() { kills_small $((2 * $1)); }
kills_bounded_run_words() { words=(train "$work/kills.yaml" --ranks "$1" --set data.disk_budget=4MB); }
kills_bounded_run_same() { # which shards are there depends on who came when
    kills_same_training "bounded run" && kills_same_names "bounded run" bounded/shard- || return 1
    [ "$(cat "$work"/run/bounded/shard-* | wc -c)" -le 4000000 ] || { fail kills "bounded run: more than its budget"; return 1; }
}

kills_ended() { # KIND: whether it is complete; the next one begins anew then
    [ ! -d "$work/run" ] || ! grep -q '"complete": *true' "$work/run/dataset/manifest.json" 2>/dev/null && [ "$ended" != 0 ] && return
    "kills_${1}_same" || return 1
    rounds=$((rounds + 1))
    rm -rf "$work/run"
}

kills_of() { # KIND N: half of one rank, a quarter of the launcher, a quarter of all
    local n=$2 i=0 kind=$1 name=${1//_/-} point who="" pid victims starts=0 rounds=0 named=0 one=0 launcher=0 all=0 stride words ended t0=$SECONDS
    rm -rf "$work/one" "$work/run"
    mkdir -p "$work/tmp"
    "kills_$kind" "$n"
    "kills_${kind}_words" 1
    "$p" "${words[@]}" --out "$work/one" --quiet 2>"$work/kills.log" || { cat "$work/kills.log"; fail kills "$name: undisturbed"; return; }
    kills_shared >"$work/shared"
    RANDOM=7
    while [ $i -lt "$n" ]; do
        "kills_${kind}_words" $((RANDOM % 2 ? 2 : 4))
        case $((RANDOM % 5)) in 0) point=start ;; 1) point=writing ;; 2) point=replaced ;; *) point=step ;; esac
        kills_start "${words[@]}"
        starts=$((starts + 1))
        kills_wait "$point" "$stride"
        victims=($(cat "/proc/$pid/task/$pid/children" 2>/dev/null))
        case $((i % 4)) in
        0 | 2) [ ${#victims[@]} -gt 0 ] && kill -9 "${victims[RANDOM % ${#victims[@]}]}" 2>/dev/null && who=one ;;
        1) kill -9 "$pid" 2>/dev/null && who=launcher ;;
        3) kill -9 "$pid" "${victims[@]}" 2>/dev/null && who=all ;;
        esac
        kills_gone || { fail kills "$name: processes outlive kill $i of $who at $point"; return; }
        grep -qvE '^paceline: ([a-z]+: rank [0-9]+: |warning: )' "$work/kills.log" && { cat "$work/kills.log"; fail kills "$name: kill $i of ${who:-nobody} at $point"; return; }
        if [ -n "$who" ]; then # else it had not started yet, or ended before
            declare "$who=$((${!who} + 1))" who=""
            [ "$point" = step ] || named=$((named + 1))
            i=$((i + 1))
        fi
        kills_ended "$kind" || return
    done
    if "kills_${kind}_words" 4 && kills_start "${words[@]}" && ! wait "$pid"; then cat "$work/kills.log"; fail kills "$name: the last run"; return; fi
    "kills_${kind}_same" || return
    [ -z "$(ls -A "$work/tmp")" ] || { ls -A "$work/tmp"; fail kills "$name: temporaries stay"; return; }
    [ -z "$(kills_shared | comm -13 "$work/shared" -)" ] || { kills_shared | comm -13 "$work/shared" -; fail kills "$name: shared memory stays"; return; }
    say kills "$name: $n kills ($one of one rank, $launcher of the launcher, $all of all; $named while starting, while a file was written or just after) in $((starts + 1)) starts by 2 or 4 ranks, $((rounds + 1)) times to the end, $((SECONDS - t0)) s: what the undisturbed run leaves; no process, shared memory, lock or temporary stays"
}

shown_kills() { # [N] [KINDS...]: 50 kills each of training by 2 and 4 ranks, optimizer sharded or not, of generation and of bounded training
    local n=${1:-50} kinds=("${@:2}") kind
    p=$(program)
    [ ${#kinds[@]} -gt 0 ] || kinds=(training generation bounded-run)
    for kind in "${kinds[@]}"; do kills_of "${kind//-/_}" "$n"; done
}

shown_soak() {
    program >/dev/null
    cmake --build "$root/build" --target soak >/dev/null
    (cd "$root" && build/soak --seconds="${1:-3600}") && say soak "flat" || fail soak "something grows"
}

shown_cuda_archs() { # all CUDA sources for the three architectures, warnings as errors; their machine code within its limits
    command -v nvcc >/dev/null || { fail cuda-archs "nvcc is not on the PATH"; return; }
    local b=$root/build-cuda-archs t0=$SECONDS
    cmake -S "$root" -B "$b" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPACELINE_CUDA=ON -DPACELINE_WERROR=ON -DPACELINE_TESTS=OFF \
        "-DCMAKE_CUDA_ARCHITECTURES=80-real;90-real;100" >"$work/archs.log" 2>&1 &&
        cmake --build "$b" --target kernels_cuda kernels_cuda_device >>"$work/archs.log" 2>&1 || { tail -n 5 "$work/archs.log"; fail cuda-archs "does not build"; return; }
    say cuda-archs "$(find "$b" -name '*.cu.o' | wc -l) CUDA sources for sm_80, sm_90 and sm_100, $((SECONDS - t0)) s"
    bash "$root/tests/cuda/sass_gate.sh" "$b" >"$work/sass.log" 2>&1 || { grep -E ' on sm_|PATH|no machine|descriptor' "$work/sass.log"; fail cuda-archs "machine code"; return; }
    sed '$d' "$work/sass.log"
    say cuda-archs "$(tail -n 1 "$work/sass.log")"
}

watch_disk() { # FOLDER FILE: into FILE, the most bytes that its shards took, unfinished ones too, until FILE.stop is there
    local most=0 now
    while [ ! -e "$2.stop" ]; do
        now=$(find "$1" -type f -name '*shard-*' -printf '%s\n' 2>/dev/null | awk '{ n += $1 } END { print n + 0 }')
        [ "$now" -le "$most" ] || { most=$now; echo "$most" >"$2"; }
        sleep 0.02
    done
}
bounded_train() { # OUT OPTIONS...
    (cd "$root" && "$p" train "$work/bounded.yaml" --out "$work/bounded/$1" --threads 2 "${@:2}") 2>"$work/bounded/$1.log"
}
seconds() { # NAME COMMAND...: its wall and processor time into $work/NAME.time
    local TIMEFORMAT='%R %U %S'
    { time "${@:2}" 2>&3 3>&-; } 3>&2 2>"$work/$1.time"
}
bounded_generate() { (cd "$root" && "$p" generate "$work/bounded.yaml" --out "$work/bounded/data" --threads 2) 2>"$work/bounded.log"; }
bounded_same() { # OUT: the whole dataset's weights, best and last
    for f in best last; do
        cmp -s "$work/bounded/whole/checkpoints/$f/model.safetensors" "$work/bounded/$1/checkpoints/$f/model.safetensors" ||
            { fail bounded "$1: other weights than with the whole dataset"; return 1; }
    done
}

shown_bounded() { # a tenth of the data's size on disk: the same weights, by one rank and three, killed at every turn
    local p size budget i t column n f kills=0 t0=$SECONDS mounted="" failed=""
    p=$(program)
    mkdir -p "$work/bounded"
    cat >"$work/bounded.yaml" <<END
target: {path: checkpoints/tiny}
data: {prompts: data/prompts/heldout.jsonl, max_new_tokens: 32, samples: 12, rows_per_shard: 250, window: 4, sessions: 8}
drafter: {head: {kind: lowrank, rank: 16}}
train: {steps: 60, slots: 3, slot_rows: 96, unroll: 2, eval_steps: 2, eval_every: 30, eval_tokens: 300, eval_prompts: 2,
  checkpoint_every: 6, warmup: 2, holdout: 8}
END
    # Timed in turns, nothing beside them: bounded ones on a file system of a tenth of the data's size, where one can be
    # mounted (some of it is the manifest's, and rounding).
    for i in 1 2 3; do
        rm -rf "$work/bounded/data" "$work/bounded/whole" "$work/bounded/timed"
        seconds "generate$i" bounded_generate || { tail -n 2 "$work/bounded.log"; fail bounded generate; return; }
        size=$(find "$work/bounded/data/dataset" -name 'shard-*' -printf '%s\n' | awk '{ n += $1 } END { print n }')
        budget=$(awk "BEGIN { printf \"%.3fMB\", int($size / 1e4 - 128) / 1e3 }")
        seconds "whole$i" bounded_train whole --set "data.dataset=$work/bounded/data/dataset" || { tail -n 2 "$work/bounded/whole.log"; fail bounded whole; return; }
        mkdir -p "$work/bounded/timed/bounded"
        mount -t tmpfs -o "size=$((size / 10))" tmpfs "$work/bounded/timed/bounded" 2>/dev/null && mounted="a tmpfs of $((size / 10)) bytes"
        seconds "timed$i" bounded_train timed --set "data.disk_budget=$budget" || { tail -n 2 "$work/bounded/timed.log"; failed=1; }
        umount "$work/bounded/timed/bounded" 2>/dev/null
        [ -z "$failed" ] || { fail bounded "1 rank"; return; }
        bounded_same timed || return
    done
    for t in generate whole timed; do
        for column in '{ print $1 }' '{ print $2 + $3 }'; do cat "$work/$t"?.time | awk "$column" | sort -n | sed -n 2p; done
    done | paste -s -d ' ' | awk '{ printf "generating %.1f s, training %.1f s, bounded %.1f s: %.2f of both together (processor time %.1f, %.1f and %.1f s: %.2f)\n",
        $1, $3, $5, $5 / ($1 + $3), $2, $4, $6, $6 / ($2 + $4) }' >"$work/bounded.took"
    say bounded "on ${mounted:-the disk}, medians of three: $(cat "$work/bounded.took"); $(grep -o '[0-9]* shards made.*' "$work/bounded/timed.log")"
    awk '{ for (i = 1; i < NF; i++) if ($(i + 1) == "of" && $(i + 2) == "both") exit $i > 1.1 }' "$work/bounded.took" || fail bounded "more than 1.1 times as long"
    (cd "$root" && "$p" generate "$work/bounded.yaml" --out "$work/bounded/data3" --threads 2 --ranks 3) 2>"$work/bounded.log" || { tail -n 2 "$work/bounded.log"; fail bounded "generate --ranks 3"; return; }
    diff -rq "$work/bounded/data/dataset" "$work/bounded/data3/dataset" || { fail bounded "three ranks made another dataset"; return; }
    # What is on disk, looked at all the time, which takes a third of a core.
    for n in 1 3; do
        watch_disk "$work/bounded/by$n/bounded" "$work/bounded/by$n.most" &
        bounded_train "by$n" --set "data.disk_budget=$budget" --ranks "$n" || { tail -n 2 "$work/bounded/by$n.log"; fail bounded "$n ranks"; failed=1; }
        touch "$work/bounded/by$n.most.stop"
        wait
        [ -z "$failed" ] || return
        bounded_same "by$n" || return
        [ "$(cat "$work/bounded/by$n.most")" -le "$((size / 10))" ] || { fail bounded "$n ranks: $(cat "$work/bounded/by$n.most") bytes on disk, $((size / 10)) allowed"; return; }
    done
    # Killed, all ranks at once, after more and more seconds, until it is done.
    for n in 2 3 5 8 12 20; do
        (cd "$root" && exec timeout -s KILL "$n" "$p" train "$work/bounded.yaml" --out "$work/bounded/killed" --threads 2 --set "data.disk_budget=$budget" --ranks $((1 + n % 3))) 2>>"$work/bounded.log" && break
        kills=$((kills + 1))
    done 2>/dev/null
    bounded_train killed --set "data.disk_budget=$budget" --ranks 2 || { tail -n 2 "$work/bounded/killed.log"; fail bounded "after $kills kills"; return; }
    bounded_same killed || return
    say bounded "$(awk "BEGIN { printf \"%.1f MB of data, budget $budget; on disk at most %.3f MB (1 rank), %.3f MB (3)\", $size / 1e6, $(cat "$work/bounded/by1.most") / 1e6, $(cat "$work/bounded/by3.most") / 1e6 }"); killed $kills times; the whole dataset's weights, $((SECONDS - t0)) s"
}

full_disk() { # MIB WORDS...: on a file system of so many the command ends with one line; with room it goes on
    local out=$work/full/$2 n
    mkdir -p "$out" && mount -t tmpfs -o "size=${1}m" tmpfs "$out" || { fail full-disk "cannot mount a tmpfs; run it as root"; return 1; }
    (cd "$root" && "$p" "${@:3}" --out "$out" --quiet --threads 2) 2>"$work/full.log"
    n=$?
    [ "$n" = 1 ] && [ "$(wc -l <"$work/full.log")" = 1 ] && grep -q 'No space left on device' "$work/full.log" ||
        { cat "$work/full.log"; umount "$out"; fail full-disk "$2: ends with $n"; return 1; }
    say full-disk "$2, $1 MiB: $(sed "s|$work/||" "$work/full.log")"
    [ -z "$(find "$out" -name '*.tmp-*')" ] || { find "$out" -name '*.tmp-*'; umount "$out"; fail full-disk "$2: temporaries stay"; return 1; }
    mount -o remount,size=100m "$out"
    (cd "$root" && "$p" "${@:3}" --out "$out" --quiet --threads 2) 2>"$work/full.log" || { cat "$work/full.log"; umount "$out"; fail full-disk "$2: with room again"; return 1; }
    rm -rf "$work/full/$2-done" && cp -r "$out" "$work/full/$2-done"
    umount "$out"
}

shown_full_disk() { # a disk that is full ends generation, bounded training and a checkpoint with one line; with room they go on to the same bits
    local p f one=$work/full/one
    p=$(program)
    mkdir -p "$work/full"
    cat >"$work/full.yaml" <<END
target: {path: checkpoints/tiny}
data: {prompts: data/prompts/heldout.jsonl, max_new_tokens: 16, samples: 3, rows_per_shard: 200, window: 4, sessions: 8}
drafter: {head: {kind: lowrank, rank: 8}}
train: {steps: 20, slots: 2, slot_rows: 64, unroll: 2, eval_steps: 2, eval_every: 10, eval_tokens: 100, eval_prompts: 1, checkpoint_every: 5,
  warmup: 2, holdout: 8}
END
    (cd "$root" && "$p" generate "$work/full.yaml" --out "$one" --quiet && "$p" train "$work/full.yaml" --out "$one" --quiet) || { fail full-disk "with room"; return; }
    full_disk 3 generation generate "$work/full.yaml" || return
    diff -r "$one/dataset" "$work/full/generation-done/dataset" || { fail full-disk "generation: another dataset"; return; }
    full_disk 3 bounded train "$work/full.yaml" --set data.disk_budget=30MB || return
    full_disk 12 checkpoint train "$work/full.yaml" --set "data.dataset=$one/dataset" || return
    for f in bounded checkpoint; do
        cmp "$one/checkpoints/last/model.safetensors" "$work/full/$f-done/checkpoints/last/model.safetensors" || { fail full-disk "$f: other weights"; return; }
    done
    say full-disk "each goes on, once there is room, to the bits of a run that had it"
}

raced_one() { # TEST: in drawn orders, watched for races
    local name=${1##*/} orders=${PACELINE_TEST_SEEDS:-4} status=0
    [ -f "$1" ] || { fail cuda-proofs "no test that is watched for races"; return 1; }
    (cd "$root" && PACELINE_TEST_DEVICES_ALONE=1 PACELINE_TEST_SEEDS=$orders PACELINE_TEST_DEVICE=emulated "$1") >"$work/$name.log" 2>&1 &&
        say cuda-proofs "$name: no race, the same bits in $orders orders" || fail cuda-proofs "$name: $(grep -m 1 -E '^race|FAILED' "$work/$name.log")"
    return $status
}

shown_cuda_proofs() { # device_cuda.c over the stand-in; kernels on the emulated device: drawn orders, races, and each barrier, fence and wait left out in turn; hours
    local t
    program >/dev/null
    cmake --build "$root/build" --target raced >/dev/null || { fail cuda-proofs "does not build"; return; }
    for t in "$root"/build/standin_*; do
        [ -f "$t" ] || { say cuda-proofs "no headers of CUDA, so no stand-in"; continue; }
        [[ "$t" != *nccl* ]] || continue # all of it is in the suite
        (cd "$root" && PACELINE_TEST_DEVICE=cuda:0 "$t") >"$work/proofs.log" 2>&1 &&
            say cuda-proofs "${t##*/}: device_cuda.c over a runtime that is none" || fail cuda-proofs "${t##*/}: $(grep -m 1 -E '^stand-in|FAILED' "$work/proofs.log")"
    done
    export root work
    export -f say fail raced_one
    printf '%s\n' "$root"/build/raced/raced_* | xargs -P 2 -I {} bash -c 'raced_one {}' || status=1
    for t in walk round; do
        "$root/build/standin_nccl" $t >"$work/nccl.log" 2>&1 || { grep -m 1 ERROR "$work/nccl.log"; fail cuda-proofs "NCCL that is none: $t"; continue; }
        say cuda-proofs "NCCL that is none: $(awk '/ failures$/ { n += $5 } / values of / { print } END { if (n) print n " failing calls of two ranks, each told in one line by both" }' "$work/nccl.log")"
    done
    bash "$root/tests/cuda/mutate.sh" "$root/build" >"$work/mutate.log" 2>&1 || fail cuda-proofs "places that nothing misses"
    cat "$work/mutate.log"
}

tidy_one() { # FILE: its findings
    local known=(--extra-arg=-include "--extra-arg=$root/tests/layout/tidy.h") name
    for name in $(sed -nE 's/^pl_status pl_((json_|recipe_)?fail)\(.*/\U\1/p' "$root/$1"); do known+=("--extra-arg=-DPL_TIDY_DEFINES_$name"); done
    (cd "$root" && clang-tidy -p build --quiet --extra-arg=-Wno-unknown-warning-option "${known[@]}" "$1" 2>"$work/tidy.err") |
        grep -E '^[^ ]+:[0-9]+:[0-9]+: (warning|error): ' || true
}

shown_tidy() { # clang-tidy (.clang-tidy) over every product .c file that is compiled here, two at a time
    command -v clang-tidy >/dev/null || { fail tidy "please install clang-tidy"; return; }
    program >/dev/null
    export work root
    export -f tidy_one
    local files=("$@") n
    [ $# -gt 0 ] || mapfile -t files < <(cd "$root" && git ls-files 'kernels/*.c' 'data/*.c' 'checkpoints/*.c' 'recipes/*.c' 'infer/*.c' 'train/*.c' paceline.c)
    # Without its command line a file (cuBLASLt's where there is no toolkit) could not be read.
    printf '%s\n' "${files[@]}" | while read -r f; do grep -qF "\"$root/$f\"" "$root/build/compile_commands.json" && echo "$f"; done >"$work/tidy.files"
    xargs -P 2 -I {} bash -c 'tidy_one {}' <"$work/tidy.files" | sed "s|$root/||" | sort -u >"$work/tidy.log"
    cat "$work/tidy.log"
    n=$(wc -l <"$work/tidy.log")
    [ "$n" = 0 ] && say tidy "$(wc -l <"$work/tidy.files") files, no findings" || fail tidy "$n findings"
}

names=$(declare -F | sed -n 's/^declare -f shown_//p' | tr _ -)
[ "${1:-}" != --list ] || { echo "$names"; exit 0; }
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $names
while [ $# -gt 0 ]; do
    name=$1
    shift
    args=()
    case "$name" in
    soak) [[ "${1:-}" =~ ^[0-9]+$ ]] && args=("$1") && shift ;;
    kills)
        args=(50)
        [[ "${1:-}" =~ ^[0-9]+$ ]] && args=("$1") && shift
        while [[ "${1:-}" =~ ^(training|generation|bounded-run)$ ]]; do args+=("$1") && shift; done
        ;;
    fuzz) while [[ "${1:-}" =~ ^([0-9]+|fuzz_.*)$ ]]; do args+=("$1") && shift; done ;;
    valgrind) while [[ "${1:-}" == test_* ]]; do args+=("$1") && shift; done ;;
    benchmarks) [[ "${1:-}" == */* ]] && args=("$1") && shift ;;
    hybrid) while [[ "${1:-}" =~ ^(tiny|stories)-T[01]$ ]]; do args+=("$1") && shift; done ;;
    rows) while [[ "${1:-}" =~ ^(stories|chat|retrieval)$ ]]; do args+=("$1") && shift; done ;;
    tidy) while [[ "${1:-}" == *.c ]]; do args+=("$1") && shift; done ;;
    esac
    "shown_${name//-/_}" "${args[@]}"
done
exit $status
