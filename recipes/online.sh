#!/usr/bin/env bash
# A drafter learns from what its server answers (online speculative decoding, arXiv 2310.07177): one round.
#   paceline serve --target T --drafter D --record served.jsonl --swap learned=RUN/learned --api-key-file KEYS &
#   bash recipes/online.sh RECIPE T D served.jsonl RUN URL KEYS [KEY=VALUE...]
# RECIPE is the one that D was trained with, less a list of drafters; KEY=VALUE are further keys of it (train.steps=200).
# Trains RUN/learned, at first D, on the answers that were recorded since the last round, at least
# PACELINE_ONLINE_LEAST (64), and lets the server draft with the new weights. For as long as there is traffic:
#   while sleep 600; do bash recipes/online.sh ...; done
set -euo pipefail
[ $# -ge 7 ] || { sed -n '2,8s/^# \?//p' "$0" >&2; exit 2; }
recipe=$1 target=$2 drafter=$3 record=$4 run=$5 url=$6 keys=$7
shift 7
p=${PACELINE:-$(dirname "$0")/../build/paceline}
mkdir -p "$run"
seen=$(cat "$run/seen" 2>/dev/null || echo 0)
lines=$(wc -l <"$record")
least=${PACELINE_ONLINE_LEAST:-64}
[ $((lines - seen)) -ge "$least" ] || { echo "$((lines - seen)) answers since the last round, $least wanted"; exit 0; }
[ ! -d "$run/learned" ] || drafter=$run/learned
round=$run/round-$lines
mkdir -p "$round"
sed -n "$((seen + 1)),${lines}p" "$record" >"$round/served.jsonl"
own=(--set "target.path=$target" --set "data.prompts=$round/served.jsonl" --set data.greedy=true --set data.samples=0
    --set eval.holdout=0 --set "drafter.start=$drafter" --out "$round")
for pair in "$@"; do own+=(--set "$pair"); done
"$p" generate "$recipe" "${own[@]}"
"$p" train "$recipe" "${own[@]}"
rm -rf "$run/learned.new"
cp -r "$round/checkpoints/best" "$run/learned.new"
rm -rf "$run/learned"
mv "$run/learned.new" "$run/learned"
echo "$lines" >"$run/seen"
rm -rf "$round/dataset"
curl -sS --fail-with-body -H "Authorization: Bearer $(grep -vm1 '^#' "$keys")" -H 'Content-Type: application/json' \
    -d '{"drafter": "learned"}' "$url/v1/drafter"
echo
