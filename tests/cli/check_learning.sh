#!/usr/bin/env bash
# A drafter learns from what its server answers: two rounds of recipes/online.sh beside a server that records. Its texts
# stay the same, its drafter's weights do not; requests for weights without a key, or by other names, are refused.
#   bash tests/cli/check_learning.sh PROGRAM
set -uo pipefail
p=$(realpath "$1")
cd "$(dirname "$0")/../.." || exit 1
command -v curl >/dev/null || { echo "no curl: skipped"; exit 77; }
"$p" doctor --json | grep -q '"server":"libmicrohttpd' || { echo "no HTTP server in this build: skipped"; exit 77; }
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
bad=0
fail() { echo "$*"; bad=1; }
export PACELINE=$p PACELINE_ONLINE_LEAST=8 no_proxy=127.0.0.1
small=(target.path=checkpoints/tiny data.max_new_tokens=12 data.samples=0 eval.holdout=4 train.steps=2 train.holdout=2
    train.slot_rows=64 train.unroll=2 train.warmup=1 train.eval_every=2 train.checkpoint_every=2
    drafter.head.kind=lowrank drafter.head.rank=16)
sets=()
for pair in "${small[@]}"; do sets+=(--set "$pair"); done
head -n 12 data/prompts/heldout.jsonl >"$work/prompts.jsonl"
for step in generate train; do
    "$p" "$step" recipes/any-target.yaml "${sets[@]}" --set "data.prompts=$work/prompts.jsonl" --out "$work/first" \
        -q --threads 1 || { echo "no drafter to begin with"; exit 1; }
done
first=$work/first/checkpoints/best
(umask 077 && echo "a-key-of-this-test" >"$work/keys")

start() { # OPTIONS...: a server; $url
    "$p" serve --target checkpoints/tiny --drafter "$first" --tree chain:3 --threads 1 --port 0 --quiet "$@" >"$work/out" 2>"$work/log" &
    server=$!
    for _ in $(seq 600); do
        url=$(sed -n 's/^tiny at //p' "$work/out")
        [ -z "$url" ] || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    cat "$work/log"
    exit 1
}
stop() { kill -TERM "$server"; wait "$server"; server=; }
key=(-H "Authorization: Bearer a-key-of-this-test")
request() { # PATH [CURL OPTIONS...]: the body; the status at its end
    curl -sS -w '%{http_code}' -H 'Content-Type: application/json' "${@:2}" "$url$1"
}
texts() {
    for i in 1 2 3 4 5 6 7 8; do
        request /v1/completions "${key[@]}" -d "{\"prompt\": \"The rider number $i\", \"max_tokens\": 16, \"temperature\": 0}" |
            grep -o '"text":"[^"]*"'
    done
}

start --record "$work/served.jsonl" --swap "learned=$work/run/learned" --swap "broken=$work/nowhere" --api-key-file "$work/keys"
texts >"$work/texts.0"
[ "$(grep -c . "$work/texts.0")" = 8 ] || fail "$(cat "$work/log") $(wc -l <"$work/texts.0") of 8 texts"
[ "$(stat -c %a "$work/served.jsonl")" = 600 ] || fail "the record is readable by others"
for round in 1 2; do
    answer=$(bash recipes/online.sh recipes/any-target.yaml checkpoints/tiny "$first" "$work/served.jsonl" "$work/run" "$url" \
        "$work/keys" "${small[@]}" eval.holdout=0 "train.steps=$((2 + round))" 2>"$work/round.log") || fail "round $round: $(tail -n 3 "$work/round.log")"
    grep -q "\"drafter\":\"learned\",\"drafters\":\[\"learned\",\"broken\"\],\"swaps\":$round" <<<"$answer" || fail "round $round: $answer"
    texts >"$work/texts.$round"
    cmp -s "$work/texts.0" "$work/texts.$round" || fail "round $round: other texts"
done
cmp -s "$first/model.safetensors" "$work/run/learned/model.safetensors" && fail "nothing was learned"
few=$(PACELINE_ONLINE_LEAST=9 bash recipes/online.sh recipes/any-target.yaml checkpoints/tiny "$first" "$work/served.jsonl" \
    "$work/run" "$url" "$work/keys" 2>&1) || fail "too few answers are an error: $few"
[ "$few" = "8 answers since the last round, 9 wanted" ] || fail "$few"
[[ "$(request /v1/drafter -d '{"drafter": "learned"}')" == *401 ]] || fail "weights are replaced without a key"
[[ "$(request /v1/drafter "${key[@]}" -d '{"drafter": "../first"}')" == *404 ]] || fail "a path is a name"
[[ "$(request /v1/drafter "${key[@]}" -d '{"drafter": "broken"}')" == *409 ]] || fail "a missing checkpoint is none"
[[ "$(request /v1/drafter "${key[@]}" -d '{"drafter": 3}')" == *400 ]] || fail "a number is a name"
[[ "$(request /v1/drafter "${key[@]}")" == *'"swaps":2'*200 ]] || fail "the drafter in use is not told"
stop
[ "$(grep -c answer_ids "$work/served.jsonl")" = 24 ] || fail "$(wc -l <"$work/served.jsonl") answers are recorded, 24 were given"
start --swap "learned=$work/run/learned"
[[ "$(request /v1/drafter -d '{"drafter": "learned"}')" == *403 ]] || fail "weights are replaced where no key is needed"
stop
[ ! -e "$work/round.log" ] || [ "$bad" = 0 ] || tail -n 3 "$work/round.log"
exit "$bad"
