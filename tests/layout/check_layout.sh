#!/usr/bin/env bash
# The house keeps its floors: a file includes only what stands on its own floor or below (README, "The house").
# Also: no conditional compilation in algorithms, lines within 120 columns, files around 600 lines.
set -u
cd "$(dirname "$0")/../.."
floor() {
    case "$1" in
    kernels) echo 1 ;;
    data | checkpoints | recipes) echo 2 ;;
    infer) echo 3 ;;
    train) echo 4 ;;
    *) echo 5 ;;
    esac
}
bad=0
say() { echo "$*"; bad=1; }
for f in $(git ls-files --cached --others --exclude-standard 'kernels/*' 'data/*' 'checkpoints/*' 'recipes/*' 'infer/*' 'train/*' | grep -E '\.(c|h|cc|def|cu|cuh)$'); do
    [ -f "$f" ] || continue
    folder=${f%%/*}
    mine=$(floor "$folder")
    while IFS=: read -r line inc; do
        target=$(echo "$inc" | sed -n 's/.*#include "\([^"]*\)".*/\1/p')
        case "$target" in */* | paceline.h) ;; *) say "$f:$line: \"$target\": includes are written from the repository's root" && continue ;; esac
        [ "$target" = paceline.h ] && continue # the public header: plain declarations that api.c implements
        theirs=${target%%/*}
        [ "$(floor "$theirs")" -le "$mine" ] || say "$f:$line: includes $target, which stands above it"
        if [ "$mine" = 2 ] && [ "$theirs" != "$folder" ] && [ "$(floor "$theirs")" = 2 ]; then
            say "$f:$line: $folder/ and $theirs/ stand side by side and do not include each other"
        fi
        case "$target" in kernels/cpu/*) case "$f" in kernels/*) ;; *) say "$f:$line: $target is private to kernels/" ;; esac ;; esac
    done < <(grep -nE '^[[:space:]]*#[[:space:]]*include "' "$f" | sed 's/^\([0-9]*\):/\1:/')
    case "$f" in kernels/*) ;; *.h | *.def) ;; *)
        grep -nE '^[[:space:]]*#[[:space:]]*(if|ifdef|ifndef)\b' "$f" | while read -r hit; do echo "$f:$hit: conditional compilation outside kernels/"; done | grep . && bad=1 ;;
    esac
    long=$(LC_ALL=C.UTF-8 grep -nP '^.{121,}$' "$f" | cut -d: -f1 | tr '\n' ' ')
    [ -z "$long" ] || say "$f: lines beyond 120 columns: $long"
    lines=$(wc -l <"$f")
    [ "$lines" -le 700 ] || say "$f: $lines lines, more than a file's one idea needs"
done
# What a comment cites, a reader can open: papers by their arXiv number, files by their path here.
while IFS= read -r hit; do
    say "$hit: cites what is not in the repository"
done < <(git grep --untracked -nE '(facts|papers):' -- '*.c' '*.h' '*.cc' '*.cu' '*.cuh' '*.def' '*.yaml' '*.py' '*.md' | cut -d: -f1,2)
[ "$bad" = 0 ] && echo "layout: ok"
exit "$bad"
