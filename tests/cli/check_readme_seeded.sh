#!/usr/bin/env bash
# check_readme.sh counts words: a copy of the documents passes with as many as it may have, and with one word more it
# fails and names what is too long.
set -u
cd "$(dirname "$0")/../.." || exit 1
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files --cached --others --exclude-standard '*.md' | while read -r d; do [ ! -f "$d" ] || cp --parents "$d" "$copy"; done
git -C "$copy" init -q
check() { PACELINE_README_ROOT="$copy" bash tests/cli/check_readme.sh --words; }
bad=0
check || { echo "the copy as it is: too long" && exit 1; }

seed() { # WHAT CEILING FILE: FILE gets as many words as WHAT has room for, then one more
    local room said
    room=$(($2 - $(find "$copy" -name '*.md' -exec cat {} + | wc -w)))
    for ((i = 0; i < room; i++)); do echo word; done >>"$copy/$3"
    check || { echo "$1: $2 words are too many" && bad=1; }
    echo word >>"$copy/$3"
    said=$(check) && echo "$1: $(($2 + 1)) words go unseen" && bad=1
    [ "$said" = "$1: $(($2 + 1)) words, $2 at most" ] || { printf '%s: one word more is answered by:\n%s\n' "$1" "$said" && bad=1; }
}
ceiling() { sed -n "s/.*\b$1=\([0-9]*\).*/\1/p" tests/cli/check_readme.sh; }
seed 'all documents' "$(ceiling ceiling)" NEW.md
find "$copy" -name '*.md' ! -path "$copy/README.md" -delete
seed README.md "$(ceiling readme_ceiling)" README.md
[ "$bad" = 0 ] && echo "documents: 2 seeds, each seen"
exit "$bad"
