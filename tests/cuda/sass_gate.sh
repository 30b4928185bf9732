#!/usr/bin/env bash
# Machine code of all kernels beside what it may come to: a line for each kernel and architecture (tests/cuda/sass.awk
# says what is counted) against tests/cuda/sass_limits.tsv. A kernel that is new there, or has more loads before the wait
# for the launch before it, serial loops, fences or spilled registers, or over a tenth more code, is red; so is any
# fence that is sequentially consistent.
#   bash tests/cuda/sass_gate.sh OBJECTS_FOLDER [--accept]      (--accept: the limits are what there is now)
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
objdump=${PACELINE_CUOBJDUMP:-cuobjdump}
command -v "$objdump" >/dev/null || { echo "cuobjdump is not on the PATH (CUDA's toolkit, or pip install nvidia-cuda-cuobjdump)"; exit 1; }
filt=$(command -v c++filt || echo cat)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# FILE:NAME, instances of a template apart; overloads are numbered. Beside it: copies whose memory descriptor is an odd
# register, which no descriptor is. CUDA 13.0's compiler makes them of copies with a cache hint in a loop with a uniform
# counter, and a GPU calls them an illegal instruction.
table=$(find "$1" -name '*.cu.o' | LC_ALL=C sort | while read -r o; do
    "$objdump" -sass "$o" >"$work/sass"
    awk -v f="$(basename "$o" .o)" '/Function :/ { k = $3 } /desc\[UR[0-9]*[13579]\]/ { print f ":" k }' "$work/sass" >>"$work/odd"
    awk -v file="$(basename "$o" .o)" -f "$here/sass.awk" "$work/sass"
done | "$filt" | awk -F'\t' -v OFS='\t' '
    { gsub(/\((int|bool|unsigned int|long)\)/, "", $2); sub(/^void /, "", $2); sub(/\(.*/, "", $2)
      k = $1 ":" $2 OFS $3
      if (++n[k] > 1) k = $1 ":" $2 "#" n[k] OFS $3
      print k, $4, $5, $6, $7, $8, $9, $10 }' | LC_ALL=C sort)
[ ! -s "$work/odd" ] || { echo "copies with a descriptor that is none: $(sort -u "$work/odd" | "$filt")"; exit 1; }
[ "$(wc -l <<<"$table")" -gt 100 ] || { echo "no machine code was found in $1"; exit 1; }
header=$(printf 'kernel\tarch\tearly\tserial\tbar\tmembar\tivall\tspills\tbytes')
if [ "${2:-}" = --accept ]; then
    { echo "$header"; echo "$table"; } >"$here/sass_limits.tsv"
    exit
fi
{ echo "$header"; echo "$table"; } | awk -F'\t' '$2 == "sm_90" || NR == 1 { printf "%-44s %-6s %6s %6s %4s %8s %6s %6s %7s\n", $1, $2, $3, $4, $5, $6, $7, $8, $9 }'
found=$(echo "$table" | awk -F'\t' '
    FNR == NR { if (FNR > 1) { known[$1, $2] = 1; for (i = 3; i <= 9; i++) limit[$1, $2, i] = $i } else for (i = 1; i <= 9; i++) what[i] = $i; next }
    !(($1, $2) in known) { print $1 " on " $2 ": new: see its line and accept it"; next }
    { for (i = 3; i <= 9; i++) {
        if (i == 5) continue
        most = limit[$1, $2, i] + 0
        if ($i + 0 > (i == 9 ? 1.1 * most : most) || $i ~ /sc/)
            print $1 " on " $2 ": " what[i] " " $i ", the limit is " limit[$1, $2, i] } }' "$here/sass_limits.tsv" -)
[ -z "$found" ] || { echo "$found"; exit 1; }
echo "$table" | awk -F'\t' '{ e += $3; s += $4; p += $8; if ($9 > b) { b = $9; k = $1 " on " $2 } }
    END { print NR " kernels within their limits: " e " early loads, " s " serial loops, " p " spills; the largest has " b " bytes (" k ")" }'
