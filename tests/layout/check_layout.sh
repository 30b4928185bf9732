#!/usr/bin/env bash
# Folders have levels: a file includes only from its own folder or from a lower level. Also: no conditional compilation
# in algorithms, lines within 120 columns, files around 600 lines, and nothing is cited that the repository lacks.
# check_layout_seeded.sh shows that each of these can fail. PACELINE_LAYOUT_ROOT: another folder than the repository's.
set -u
cd "${PACELINE_LAYOUT_ROOT:-$(dirname "$0")/../..}" || exit 2

# A folder includes folders to the left of a "<"; those between two "<" stand side by side and do not include each
# other. "." is what lies in the top folder itself. The last line: what a folder is refused although it stands below.
table='
levels   kernels < checkpoints recipes < data < infer < train
kernels  base < . < cpu < op < comm < cuda
data     text < benchmarks tokenizer < chat < dataset < counts
infer    model tree cli < head report < sample < drafter verify grammar < decode < generate inspect export import serve . < eval bench command < plan
train    loop < . < source < start < task < run plan
checkpoints .
recipes  .
never    infer/model infer/tree infer/grammar infer/head infer/sample infer/drafter infer/verify infer/decode : infer/cli recipes
'
mapfile -t files < <(find kernels data checkpoints recipes infer train -type f \
    \( -name '*.c' -o -name '*.h' -o -name '*.cc' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh' \) | LC_ALL=C sort)
[ "${#files[@]}" -gt 0 ] || { echo "no files under $PWD"; exit 2; }

found=$(
    TABLE="$table" awk '
    function folder(path,  part, n) { # the folder that a level is given to: two levels deep, top/. for the top itself
        n = split(path, part, "/")
        return part[1] "/" (n > 2 ? part[2] : ".")
    }
    BEGIN {
        lines = split(ENVIRON["TABLE"], line, "\n")
        for (i = 1; i <= lines; i++) {
            n = split(line[i], word, " ")
            level = 1; right = 0
            for (k = 2; k <= n; k++)
                if (word[k] == "<") level++
                else if (word[k] == ":") right = 1
                else if (word[1] == "levels") top[word[k]] = level
                else if (word[1] == "never" && right) refused[word[k]] = 1
                else if (word[1] == "never") strict[word[k]] = 1
                else level_of[word[1] "/" word[k]] = level
        }
    }
    FNR == 1 { mine = folder(FILENAME); own = substr(mine, 1, index(mine, "/") - 1)
               outside = FILENAME !~ /^kernels\// && FILENAME !~ /\.(h|def)$/
               if (!(mine in level_of)) print FILENAME ": " mine " has no level: tests/layout/check_layout.sh gives them" }
    FNR == 701 { print FILENAME ": more than 700 lines, more than the one idea of a file needs" }
    outside && /^[ \t]*#[ \t]*(if|ifdef|ifndef)([^A-Za-z0-9_]|$)/ {
        print FILENAME ":" FNR ": conditional compilation outside kernels/" }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        target = $0
        sub(/^[^"]*"/, "", target); sub(/".*/, "", target)
        at = FILENAME ":" FNR ": "
        if (target == "paceline.h") next # the public header: plain declarations that api.c implements
        if (target !~ /\//) { print at "\"" target "\": includes are written from the repository'"'"'s root"; next }
        theirs = folder(target); other = substr(theirs, 1, index(theirs, "/") - 1)
        same = other == own
        high = same ? level_of[theirs] : other in top ? top[other] : 99
        low = same ? level_of[mine] : top[own]
        if (same && !(theirs in level_of)) print at "includes " target ", whose folder has no level"
        else if (high > low) print at "includes " target ", which stands above it"
        else if (theirs != mine && high == low) print at "includes " target ", which stands beside it"
        if (mine in strict && (theirs in refused || other in refused))
            print at "includes " target ": what decodes knows neither the command line nor recipes"
        if (target ~ /^kernels\/cpu\// && own != "kernels") print at target " is private to kernels/"
    }' "${files[@]}" || echo "awk failed: nothing was checked"
    # What a comment cites, a reader can open: papers by their arXiv number, files by their path here.
    grep -rnE '(facts|papers):' --include='*.'{c,h,cc,cu,cuh,def,yaml,py,md} kernels data checkpoints recipes infer train \
        tests ./*.md ./*.c ./*.h 2>/dev/null | sed -E 's/^([^:]*:[0-9]+):.*/\1: cites what is not in the repository/'
    LC_ALL=C.UTF-8 grep -nP '^.{121,}$' "${files[@]}" /dev/null | sed -E 's/^([^:]*:[0-9]+):.*/\1: beyond 120 columns/'
)
[ -z "$found" ] || { echo "$found"; exit 1; }
echo "layout: ok"
