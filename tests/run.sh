#!/usr/bin/env bash
# The suite for every change: installs what the tests need, builds, runs everything through CTest.
#   bash tests/run.sh [--no-install] [--preset NAME] [-L TIER] [CTEST ARGUMENTS...]
# TIER: unit, isa, device, system or nightly (tests/README.md), which alone is built and run. Without one, and
# without arguments for CTest, all but nightly run.
# PACELINE_TEST_DATA: folder with outside data (real models, tokenizers); without it those cases are skipped and counted.
set -euo pipefail
cd "$(dirname "$0")/.."
install=1
preset=release
tier=
while [ $# -gt 0 ]; do
    case "$1" in
    --no-install) install=0; shift ;;
    --preset) preset="$2"; shift 2 ;;
    -L) tier="$2"; shift 2 ;;
    *) break ;;
    esac
done
case "$tier" in "" | unit | isa | device | system | nightly) ;; *) echo "there is no tier $tier"; exit 2 ;; esac
. recipes/packages.sh
if [ "$install" = 1 ]; then
    pl_install "$PL_BUILD_PACKAGES $PL_TEST_PACKAGES"
    pl_install "$PL_OPTIONAL_PACKAGES" || echo "going on without: $PL_OPTIONAL_PACKAGES"
fi
cmake --preset "$preset" -DPACELINE_TESTS=ON ${CI:+-DPACELINE_WERROR=ON} >/dev/null
case "$preset" in release) build=build ;; *) build="build-$preset" ;; esac
if grep -q '^PACELINE_CUDA_BUILT:INTERNAL=ON' "$build/CMakeCache.txt"; then
    echo "CUDA sources: compiled for sm_$(sed -n 's/^CMAKE_CUDA_ARCHITECTURES:[A-Z]*=//p' "$build/CMakeCache.txt")"
else
    echo "CUDA sources: not compiled here (no nvcc, or this preset leaves it out); their ops run on the emulated device"
fi
cmake --build "$build" -j "$(nproc)" ${tier:+--target "tier_$tier"}
if [ -n "$tier" ]; then
    set -- -L "^$tier\$" "$@"
elif [ $# -eq 0 ]; then
    set -- -LE '^nightly$'
fi
[ -n "${PACELINE_TEST_DATA:-}" ] || echo "PACELINE_TEST_DATA is not set: cases that need outside data are skipped"
log="$build/ctest.log"
status=0
# One more at a time than there are processors: ranks wait for each other for much of their time.
ctest --test-dir "$build" -j "$(($(nproc) + 1))" --output-on-failure --no-tests=error "$@" 2>&1 | tee "$log" || status=$?
# Cases that a test program skipped (cmocka says so) are counted: a green run with nothing in it is no green run.
skipped=$(cat "$build"/Testing/Temporary/LastTest.log 2>/dev/null | grep -c '^\[  SKIPPED \] [a-z]' || true)
echo "skipped cases: $skipped"
exit "$status"
