#!/usr/bin/env bash
# The race detector itself: small kernels that are right pass, the same with one thing missing are found.
set -u
litmus=$(dirname "$1")/litmus
[ -x "$litmus" ] || { echo "no detector in this build"; exit 77; }
bad=0 n=0
while read -r what name; do
    n=$((n + 1))
    said=$("$litmus" "$name" 2>&1)
    status=$?
    case "$what" in
    right) [ "$status" = 0 ] || { echo "$name: right, but: $said"; bad=1; } ;;
    broken) [[ "$said" == race:* && "$status" = 134 ]] || { echo "$name: a race goes unseen ($status: $said)"; bad=1; } ;;
    esac
done < <("$litmus" --list)
[ "$n" -gt 0 ] || { echo "nothing ran"; exit 1; }
[ "$bad" = 0 ] && echo "litmus: $n kernels judged as they should be"
exit "$bad"
