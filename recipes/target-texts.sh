#!/usr/bin/env bash
# Texts for the built-in target beside books, in three steps (tiny-target-stories.yaml, tiny-target-own.yaml):
#   bash recipes/target-texts.sh stories TEXTS.jsonl BOOK.txt... > story-texts.jsonl
#       what stories.yaml made, as documents: the stories that came to their end, say little twice and use no odd word;
#       before two of three a sentence of a book, so that prompts of every kind lead into plain stories
#   bash recipes/target-texts.sh prompts BOOK.txt... > prompts.jsonl
#       prompts as an evaluation has them: beginnings of paragraphs, cut at a word, and the drafters' own
#   bash recipes/target-texts.sh own TEXTS.jsonl > own-texts.jsonl
#       what the target made of those prompts (own-texts.yaml), as documents: the answers that say nothing often,
#       up to their last sentence
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,11s/^# \?//p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
step=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

books() { # BOOK...: what stands between the marks of Project Gutenberg, whatever the encoding
    for book in "$@"; do
        iconv -f utf-8 -t utf-8 "$book" 2>/dev/null || iconv -f cp1252 -t utf-8//IGNORE "$book"
    done | tr -d '\r' | LC_ALL=C awk '
        /^\*\*\* ?START/ { inside = 1; print ""; next }
        /^\*\*\* ?END/   { inside = 0; print "" }
        inside'
}

shuffled() { # lines in an order that is the same everywhere
    LC_ALL=C awk '{ r = (r * 1103515245 + 12345) % 2147483648; printf "%010d %s\n", r, $0 }' | LC_ALL=C sort | cut -c12-
}

sentences() { # of standard input, one a line, 40 to 160 bytes long
    LC_ALL=C awk '
        /^$/ { text = ""; next }
        {
            text = text == "" ? $0 : text " " $0
            while (match(text, /[.!?]["”]?  ?[A-Z"“]/)) {
                end = RSTART + RLENGTH - 1
                sentence = substr(text, 1, end - 1)
                sub(/ +$/, "", sentence)
                text = substr(text, end)
                if (length(sentence) >= 40 && length(sentence) <= 160 && sentence ~ /^["“]?[A-Z]/ &&
                    sentence !~ /[_*\[]/ && sentence !~ / (Mr|Mrs|Ms|Dr|St|M|Mme)\.$/) print sentence
            }
        }'
}

words() { # LEAST: words that standard input says so often
    tr -cs 'A-Za-z' '\n' | tr 'A-Z' 'a-z' | LC_ALL=C sort | uniq -c | awk -v least="$1" '$1 >= least { print $2 }'
}

stories() { # TEXTS BOOK...
    local texts=$1
    shift
    books "$@" >"$work/books"
    sentences <"$work/books" | shuffled >"$work/sentences"
    { words 3 <"$work/books"; jq -r .answer "$texts" | words 50; } >"$work/words"
    jq -c --rawfile sentences "$work/sentences" --rawfile words "$work/words" -n '
        def words: [scan("[A-Za-z]+")];
        def said_twice: . as $w | [range(length - 3) | $w[.:. + 4] | join(" ")] | length - (unique | length);
        ($sentences | split("\n") | map(select(. != ""))) as $s
        | ($words | split("\n") | INDEX(.)) as $known
        | def plain: (.prompt | words | INDEX(.)) as $named
                     | .answer | test("^[ ,.!?]") and (words | all($named[.] or $known[ascii_downcase]));
        foreach (inputs | select(.tokens >= 40 and (.text | endswith("<|end_story|>")) and plain)
                        | .text | rtrimstr("<|end_story|>") | select(words | said_twice * 12 <= length))
            as $story (-1; . + 1;
            {text: (if . % 3 == 0 then $story else $s[. % ($s | length)] + " " + $story end)})' "$texts"
}

prompts() { # BOOK...
    books "$@" | LC_ALL=C awk '
        /^$/ { if (length(text) > 140 && text ~ /^["“]?[A-Z]/ && text !~ /[_*\[]/) print text; text = ""; next }
        { text = text == "" ? $0 : text " " $0 }' | shuffled | LC_ALL=C awk '
        NR <= 6500 { s = substr($0, 1, 60 + (NR * 37) % 70); sub(/ [^ ]*$/, "", s); print s }' |
        jq -cR '{prompt: .}'
    for _ in 1 2 3; do cat "$root/data/prompts/train.jsonl"; done
}

own() { # TEXTS
    jq -c '
        def grams($n): . as $w | [range(length - $n + 1) | $w[.:. + $n] | join(" ")];
        def sentence_end: [match("[.!?][\"”]?(?=\\s|$)"; "g") | .offset + .length] | last;
        (.answer | [scan("[A-Za-z'\'']+")]) as $w
        | ($w | grams(4)) as $four
        | select(($w | length) >= 25 and ($four | length - (unique | length)) <= 0.04 * ($four | length))
        | select($w | grams(3) | group_by(.) | map(length) | max <= 3)
        | .text |= sub("<\\|end_story\\|>"; "")
        | if .finish == "stop" then . else ((.text | sentence_end) // 0) as $stop | .text |= .[:$stop] end
        | select(.finish == "stop" or (.text | length) >= (.prompt | length) + 40)
        | {text}' "$1"
}

case "$step" in
stories | prompts | own) "$step" "$@" ;;
*) echo "$0: stories, prompts or own; not $step" >&2 && exit 2 ;;
esac
