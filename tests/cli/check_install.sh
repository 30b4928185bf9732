#!/bin/bash
# Installs into an empty folder, builds the example against what was installed, as a user would, and runs it.
set -eu
program=$1
build=$(dirname "$program")
here=$(cd "$(dirname "$0")" && pwd)
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT

cmake --install "$build" --prefix "$prefix" > "$prefix/log" 2>&1 || { cat "$prefix/log"; exit 1; }
"$prefix/bin/paceline" --version

# The configured prefix stands in the .pc file; the folder it lies in now goes before it.
pc=$(dirname "$(find "$prefix" -name paceline.pc)")
export PKG_CONFIG_PATH="$pc${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
flags=$(pkg-config --define-variable=prefix="$prefix" --static --cflags --libs paceline)
read -ra flags <<< "$flags"
# A library built with sanitizers or coverage needs their runtimes.
symbols=$(nm "$(find "$prefix" -name libpaceline.a)" 2> /dev/null)
grep -q __asan_init <<< "$symbols" && flags+=(-fsanitize=address)
grep -q __tsan_init <<< "$symbols" && flags+=(-fsanitize=thread)
grep -q __ubsan_handle <<< "$symbols" && flags+=(-fsanitize=undefined)
grep -q __gcov_init <<< "$symbols" && flags+=(--coverage)
${CC:-gcc} -std=c17 -Wall -Wextra -Wpedantic -Werror "$here/example/example_api.c" "${flags[@]}" -o "$prefix/example"

# Errors first: they need no data.
if "$prefix/example" "$prefix/no-model" text 2> "$prefix/err"; then
    echo "a missing model was accepted"; exit 1
fi
grep -q "no-model: no such file" "$prefix/err"

if [ -z "${PACELINE_TEST_DATA:-}" ]; then
    echo "PACELINE_TEST_DATA is not set: the example was built, not run"
    exit 77
fi
target=$PACELINE_TEST_DATA/models/TinyStories-656K
"$prefix/example" "$target" "Once upon a time" > "$prefix/text"
"$prefix/bin/paceline" decode --quiet --target "$target" --prompt "Once upon a time" --max-new-tokens 40 > "$prefix/want"
echo >> "$prefix/text"
cmp "$prefix/text" "$prefix/want"
echo "installed, built and ran"
