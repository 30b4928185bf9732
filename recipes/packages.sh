# Debian/Ubuntu packages that paceline needs; sourced by recipes/quickstart.sh and tests/run.sh.
# pl_install "PACKAGES" installs what is missing (with sudo where not root), saying what.
# CUDA is taken where its nvcc is found and never installed from here: Debian's nvidia-cuda-toolkit is non-free, some
# gigabytes large, and 11.8, which knows no sm_100; NVIDIA's own packages need their repository. The same holds for NCCL
# (libnccl-dev) and cuDNN (libcudnn9-dev-cuda-13): built in where their headers are found, loaded where they are.
PL_BUILD_PACKAGES="build-essential cmake ninja-build pkg-config libhdf5-dev libsentencepiece-dev libcjson-dev libyaml-dev libxxhash-dev libpcre2-dev libutf8proc-dev libsodium-dev"
PL_OPTIONAL_PACKAGES="libopenmpi-dev openmpi-bin libmicrohttpd-dev"
PL_TEST_PACKAGES="libcmocka-dev"
PL_FUZZ_PACKAGES="clang-14 libclang-rt-14-dev"

pl_install() {
    missing=""
    for p in $1; do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q "install ok installed" || missing="$missing $p"
    done
    [ -z "$missing" ] && return 0
    command -v apt-get >/dev/null || { echo "paceline: please install:$missing" >&2; return 1; }
    sudo=""
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { echo "paceline: please install as root:$missing" >&2; return 1; }
        sudo="sudo"
    fi
    echo "installing:$missing"
    # shellcheck disable=SC2086
    { $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 ||
        { $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null; }; } ||
        { echo "paceline: could not install:$missing" >&2; return 1; }
}
