#!/usr/bin/env bash
# From a fresh machine to a measured, lossless speed-up: installs what is needed, builds, trains three drafters for the
# built-in target on its own text, and shows what they gain.
#   bash recipes/quickstart.sh [--no-install] [PACELINE RUN OPTIONS...]
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = "--no-install" ]; then
    shift
else
    . recipes/packages.sh
    pl_install "$PL_BUILD_PACKAGES"
fi
[ -d checkpoints/tiny ] || { echo "paceline: checkpoints/tiny is missing; make it with recipes/tiny-target.yaml" >&2; exit 1; }
# Kernels for GPUs take long to compile, and without a driver nothing here runs them. A later build takes them back with
# -DPACELINE_CUDA=AUTO.
cuda=AUTO
grep -q 'libcuda\.so\.1' <<<"$(PATH=$PATH:/sbin ldconfig -p 2>/dev/null)" || cuda=OFF
echo "building$([ $cuda = AUTO ] || echo ' for the CPU: there is no NVIDIA driver')"
cmake --preset release -DPACELINE_TESTS=OFF -DPACELINE_CUDA=$cuda >/dev/null
cmake --build build -j "$(nproc)" >build/build.log 2>&1 || { tail -n 30 build/build.log >&2; exit 1; }
# The run takes as long as some 2,250 of these steps (Zen 3): the answers 450, the drafters 850, the table 950.
step=$(build/paceline bench step --target checkpoints/tiny --head trimmed:1024 --batch 1 --seq-len 512 --unroll 4 \
    --repeats 3 --json --quiet | sed -n 's/.*"eagle3".*"seconds":\([0-9.e-]*\).*/\1/p')
awk -v s="$step" 'BEGIN { printf "a training step takes %.0f ms, the run about %.0f minutes\n", 1000 * s, 2250 * s / 60 }'
build/paceline run recipes/quickstart.yaml --out runs/quickstart "$@"
echo
echo "results: runs/quickstart/results.json"
echo "report:  runs/quickstart/report.html"
