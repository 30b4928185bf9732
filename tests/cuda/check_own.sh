#!/usr/bin/env bash
# kernels/cuda is in a program several times, compiled for a GPU, for the emulated device, to be watched for races: where
# a function of one build could stand in for another's, its accesses would go unwatched. So no symbol of the kernels may
# be one that linkers merge.
set -u
build=$(dirname "$1")
[ -d "$build/tests/CMakeFiles/raced_kernels.dir" ] && grep -q '^CMAKE_BUILD_TYPE:.*=Rel' "$build/CMakeCache.txt" ||
    { echo "no kernels that are watched, or none that are inlined"; exit 77; }
n=0 bad=0
while read -r o; do
    n=$((n + 1))
    found=$(nm -C "$o" | awk '$2 ~ /^[WVu]$/' | grep -vE ' (std::|DW\.ref\.|operator |void std::|__gnu_cxx::|typeinfo|vtable)')
    [ -z "$found" ] || { echo "$o: $found"; bad=1; }
done < <(find "$build" -path '*cuda_emulated/*.cc.o' 2>/dev/null)
[ "$n" -gt 0 ] || { echo "nothing was looked at"; exit 1; }
[ "$bad" = 0 ] && echo "$n objects of kernels share nothing"
exit "$bad"
