#!/usr/bin/env bash
# Configuring where there is no cmocka: the program without tests, said in one line; with PACELINE_TESTS=ON one error
# that names the package. (A CMOCKA_LIBRARY that is off is not looked for again.) With OFF nothing that only tests use is
# built: a level, the reference in double, the emulated device, which the program refuses by name.
set -u
program=$(realpath "$1")
cd "$(dirname "$0")/../.."
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
bad=0
configure() { cmake -S . -B "$build" -DPACELINE_CUDA=OFF -DCMOCKA_LIBRARY=OFF "$@" 2>&1; }

if ! said=$(configure); then echo "$said" && echo "does not configure without cmocka" && exit 1; fi
[ "$(grep -c 'tests: not built .*libcmocka-dev' <<<"$said")" = 1 ] || { echo "$said" && echo "want one line" && bad=1; }
[ ! -e "$build/CTestTestfile.cmake" ] || { echo "there are tests without cmocka" && bad=1; }

if said=$(configure -DPACELINE_TESTS=ON); then echo "PACELINE_TESTS=ON without cmocka configures" && bad=1; fi
grep -q 'PACELINE_TESTS=ON, but cmocka (libcmocka-dev) was not found' <<<"$said" || { echo "$said" && bad=1; }

if ! said=$(configure -DPACELINE_TESTS=OFF -DPACELINE_SERVER=OFF); then echo "$said" && echo "PACELINE_TESTS=OFF fails" && bad=1; fi
! grep -q cmocka <<<"$said" || { echo "$said" && echo "PACELINE_TESTS=OFF speaks of cmocka" && bad=1; }
built=$build/compile_commands.json
grep -q PL_ISA=avx2 "$built" || [ "$(uname -m)" != x86_64 ] || { echo "PACELINE_TESTS=OFF builds no kernels" && bad=1; }
grep -q serve/http_absent.c "$built" || { echo "PACELINE_SERVER=OFF builds a server" && bad=1; }
grep -q PL_REF_SUFFIX=ref32 "$built" || { echo "PACELINE_TESTS=OFF builds no reference" && bad=1; }
for word in PL_ISA=units_emulated PL_REF_SUFFIX=ref64 PL_CUDA_SUFFIX=emulated /tests/; do
    ! grep -q -- "$word" "$built" || { echo "PACELINE_TESTS=OFF builds $word" && bad=1; }
done
said=$("$program" doctor --device emulated 2>&1)
[ $? = 2 ] && grep -q 'expected auto|cuda\[:N\]|cpu$' <<<"$said" || { echo "$said" && echo "$program: --device emulated" && bad=1; }
[ "$bad" = 0 ] && echo "configure: ok"
exit "$bad"
