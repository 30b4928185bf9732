#!/usr/bin/env bash
# The documents are true: every command in a block fenced as sh runs (with small settings, below), every link, path,
# option, recipe key and CMake option that a document names exists, and the documents are short.
#   bash tests/cli/check_readme.sh PROGRAM      all of it
#   bash tests/cli/check_readme.sh --words      their length alone; check_readme_seeded.sh shows that it can fail
# PACELINE_README_ROOT: another folder than the repository's, for --words.
set -uo pipefail
root=${PACELINE_README_ROOT:-$(cd "$(dirname "$0")/../.." && pwd)}
bad=0
say() { echo "$*"; bad=1; }

# ---- how long the documents are ----

# The numbers that were reached, rounded up. A commit that raises one says what for.
readme_ceiling=1300 ceiling=17600 # 600 for what a server records, targets with a recurrence, a real model's figures and drafter
length() { # WHAT CEILING: of standard input
    local words
    words=$(wc -w)
    [ "$words" -le "$2" ] || say "$1: $words words, $2 at most"
}
mapfile -t documents < <(cd "$root" && git ls-files --cached --others --exclude-standard '*.md' | sort -u |
    while read -r d; do [ ! -f "$d" ] || echo "$d"; done)
length README.md "$readme_ceiling" <"$root/README.md"
length 'all documents' "$ceiling" < <(cd "$root" && cat "${documents[@]}")
[ "$1" != --words ] || exit "$bad"

program=$(realpath "$1")
built=$(dirname "$program")
cd "$root" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ---- what a document names ----


commands=$("$program" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
for c in $commands; do "$program" "$c" --help >"$work/help.$c"; done
"$program" plan train --help >>"$work/help.plan"
cat "$work"/help.* >"$work/help"
"$program" run --keys | sed -n 's/^\([a-z][a-zA-Z0-9_.]*\): .*/\1/p' >"$work/keys"
git ls-files --cached --others --exclude-standard >"$work/files"
# Into files, not pipes: a grep that is content early would end what writes.
bash tests/shown.sh --list >"$work/proofs"
cmake --list-presets >"$work/presets" 2>/dev/null
cmake --build "$built" --target help >"$work/targets" 2>/dev/null
( . recipes/packages.sh && tr ' ' '\n' <<<"$PL_BUILD_PACKAGES" >"$work/packages.build" &&
    tr ' ' '\n' <<<"$PL_BUILD_PACKAGES $PL_OPTIONAL_PACKAGES $PL_TEST_PACKAGES $PL_FUZZ_PACKAGES" >"$work/packages" )
# Variables of the environment and CMake options that something reads.
git grep -hoE --untracked 'PACELINE_[A-Z0-9_]+' -- '*.c' '*.h' '*.cu' '*.cc' '*.txt' '*.sh' '*.py' '*.json' '*.awk' ':!tests/cli/check_readme.sh' |
    sort -u >"$work/variables"

spans() { awk '/^ *```/ { fence = !fence; next } !fence' "$1" | grep -oE '`[^`]+`' | tr -d '`' | sort -u; }

# A path: from the root, beside the document, or, without a folder, a file of the document's folder or below it.
there() { # DOCUMENT PATH
    local folder glob
    glob=$(sed 's/<[a-z]*>/*/g' <<<"$2")
    folder=$(dirname "$1")
    compgen -G "$glob" >/dev/null || compgen -G "$folder/$glob" >/dev/null && return 0
    case "$glob" in */*) return 1 ;; esac
    glob=${glob//./\\.}
    [ "$folder" = . ] && folder= || folder="$folder/"
    grep -qE "^$folder(.*/)?${glob//\*/[^/]*}\$" "$work/files"
}

for d in "${documents[@]}"; do
    # Links, relative to the document.
    while read -r link; do
        case "$link" in http*:* | '#'*) continue ;; esac
        [ -e "$(dirname "$d")/${link%%#*}" ] || say "$d: links to $link, which does not exist"
    done < <(awk '/^ *```/ { fence = !fence; next } !fence' "$d" | grep -oE '\]\([^)]+\)' | sed 's/^](//; s/)$//' | sort -u)
    while IFS= read -r span; do
        # Files and folders of the repository. Formats that others define (config.json, *.safetensors) are not ours.
        for word in $span; do
            word=${word%%[,;:)]*}
            case "$word" in
            -* | *=* | '$'* | [A-Z]*/* | /* | build/* | build-*/* | runs/*) continue ;;
            .c | .h | nccl.h | cudnn_graph.h | cmocka.h) continue ;; # of any file; of others
            *.c | *.h | *.cu | *.cuh | *.cc | *.sh | *.py | *.md | *.yaml | *.def | *.awk | */) there "$d" "$word" || say "$d: \`$word\` does not exist" ;;
            kernels/* | data/* | checkpoints/* | recipes/* | infer/* | train/* | tests/*) there "$d" "$word" || say "$d: \`$word\` does not exist" ;;
            esac
        done
        # Commands and their options.
        if [[ "$span" =~ ^(build/)?paceline\ ([a-z]+)(.*) ]]; then
            c=${BASH_REMATCH[2]}
            [ -f "$work/help.$c" ] || { say "$d: \`$span\`: no such command"; continue; }
            for option in $(grep -oE -- ' --[a-z][a-z-]*' <<<"${BASH_REMATCH[3]}"); do
                grep -qE -- "(^|[ ,])$option( |\$)" "$work/help.$c" || say "$d: \`$span\`: paceline $c has no $option"
            done
        elif [[ "$span" =~ ^(--[a-z][a-z-]*) ]]; then
            option=${BASH_REMATCH[1]}
            grep -qE -- "(^|[ ,])$option( |\$)" "$work/help" ||
                grep -qE -- "(^|[ |\"'])$option([ )|=\"']|\$)" tests/run.sh tests/gpu/run.sh tests/soak/soak.c || say "$d: \`$span\`: nothing has $option"
        elif [[ "$span" =~ ^(bash\ )?tests/shown\.sh\ ([a-z][a-z0-9-]*) ]]; then
            grep -qx -- "${BASH_REMATCH[2]}" "$work/proofs" || say "$d: \`$span\`: no such proof"
        elif [[ "$span" =~ ^((target|data|drafter|drafters|traces|train|eval|vocabularies)(\.[a-z_0-9]+)+) ]]; then
            key=$(sed -E 's/\.[0-9]+\./.N./' <<<"${BASH_REMATCH[1]}")
            case "$key" in *.c | *.h | *.jsonl | *.yaml) continue ;; esac
            grep -qE "^${key//./\\.}(\.|\$)" "$work/keys" || say "$d: \`$span\`: no such key in a recipe"
        fi
        for variable in $(grep -oE 'PACELINE_[A-Z0-9_]+' <<<"$span"); do
            grep -qx "$variable" "$work/variables" || say "$d: \`$variable\`: nothing reads it"
        done
    done < <(spans "$d")
done

# Each verifier of the program has its promise.
sed -n '/^Verifiers/,/^$/s/^  \([a-z-]*\) .*/\1/p' "$work/help.decode" >"$work/verifiers"
[ -s "$work/verifiers" ] || say "decode --help lists no verifiers"
sed -n '/^## Verifiers/,/^## Models/p' infer/README.md >"$work/promises"
while read -r verifier; do
    grep -qF "\`$verifier\`" "$work/promises" || say "infer/README.md: \`$verifier\` is missing among the verifiers"
done <"$work/verifiers"

# ---- what a document runs ----

# A folder that looks like a clone with a build in it; what commands write goes there.
mkdir "$work/clone"
for f in *; do case "$f" in build* | runs) ;; *) ln -s "$root/$f" "$work/clone/$f" ;; esac; done
mkdir -p "$work/clone/build" "$work/clone/runs"
ln -s "$program" "$work/clone/build/paceline"
head -n 12 data/prompts/stories.jsonl >"$work/prompts.jsonl"
mkdir "$work/chat" # a chat model: the built-in target with a template
for f in checkpoints/tiny/*; do ln -s "$root/$f" "$work/chat/"; done
printf '%s' '{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}' >"$work/chat/chat_template.jinja"
small="--set data.max_new_tokens=16 --set data.samples=0 --set train.steps=2 --set train.warmup=0 --set train.eval_every=0 --set train.checkpoint_every=0"
small+=" --set train.slot_rows=64 --set train.slots=4 --set train.unroll=2 --set eval.holdout=4 --set eval.limit=2 --set eval.max_new_tokens=8"

served=0 server=
"$program" doctor --json | grep -q '"server":"libmicrohttpd' && served=1
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
sanitized=0
nm "$built/libpaceline.a" >"$work/symbols" 2>/dev/null
grep -qE '__(asan_init|tsan_init|ubsan_handle|gcov_init)' "$work/symbols" && sanitized=1

run() { # DOCUMENT COMMAND: as a user would, in the clone, but small
    local d=$1 line=$2 what
    line=$(sed -E "s|MODEL|checkpoints/tiny|g; s|CHAT|$work/chat|g; s|PROMPTS|$work/prompts.jsonl|g; s|DRAFTER|runs/mine/checkpoints/best|g" <<<"$line")
    case "$line" in
    'sudo apt-get install '*) # the packages are those that recipes/packages.sh installs
        for what in ${line#sudo apt-get install }; do
            case "$what" in -*) continue ;; esac
            grep -qxF -- "$what" "$work/packages" || say "$d: $2: $what is not in recipes/packages.sh"
        done
        while read -r what; do
            grep -qF -- " $what" <<<"$line" || say "$d: $2: $what of recipes/packages.sh is missing"
        done <"$work/packages.build"
        return ;;
    'cmake --build '*) # the targets it names exist
        for what in $(sed -n 's/.*--target //p' <<<"$line"); do
            grep -qE "(^|[ .])$what(:|\$)" "$work/targets" || say "$d: $2: no target $what"
        done
        return ;;
    'sudo cmake --install '*) line="cmake --install '$built' --prefix '$work/prefix'" ;;
    # The first in a new folder; the others over it, which looks at no compiler again.
    'cmake --preset '*) line="cmake ${line#cmake } -S '$root' -B '$work/configured'" ;;
    'cmake -S . -B build'*) line="cmake -S '$root' -B '$work/configured'${line#cmake -S . -B build}" ;;
    'cc '*) # against what was installed; a sanitized library needs its runtime (check_install.sh has it)
        [ "$sanitized" = 0 ] || return 0
        line="PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name paceline.pc)") $(sed "s|pkg-config|pkg-config --define-variable=prefix=$work/prefix|" <<<"$line")"
        line=${line/PKG_CONFIG_PATH=/export PKG_CONFIG_PATH=}
        line=${line/ cc /; cc } ;;
    './example '*) [ "$sanitized" = 0 ] || return 0 ;;
    'bash tests/run.sh'*) # the suite itself is what runs this: its preset has to exist
        what=$(sed -nE 's/.*--preset ([a-z]+).*/\1/p' <<<"$line")
        [ -z "$what" ] || grep -q "\"$what\"" "$work/presets" || say "$d: $2: no preset $what"
        bash -n tests/run.sh || say "$d: $2"
        return ;;
    'bash tests/shown.sh --list') ;;
    'bash tests/shown.sh '*)
        for what in $(sed 's/^bash tests.shown.sh //; s/#.*//' <<<"$line"); do
            [[ "$what" =~ ^[a-z][a-z0-9-]*$ ]] || continue
            grep -qx -- "$what" "$work/proofs" || say "$d: $2: no such proof"
            break
        done
        return ;;
    'bash recipes/quickstart.sh'*)
        bash -n recipes/quickstart.sh || say "$d: $2"
        what=$(sed -n 's/^build\/paceline \(run recipes.*\) "\$@"$/\1/p' recipes/quickstart.sh)
        [ -n "$what" ] || say "recipes/quickstart.sh: where is its run?"
        line="build/paceline $what $small --set drafters.2.steps=1 --set drafters.2.warmup=0 --set data.prompts=$work/prompts.jsonl" ;;
    *recipes/*.yaml*) # each with the keys that its kind reads
        what=$small
        [[ "$line" == *train.unroll=null* ]] && what=${what/--set train.unroll=2 /}
        [[ "$line" == *target*.yaml* && "$line" != *any-target.yaml* ]] && what=$(sed -E 's/--set train.(slot_rows|unroll)=[0-9]+ //g' <<<"$what")
        line+=" $what" ;;
    *' serve '*) # in the background, at a free port, for the commands that ask it
        [ "$served" = 1 ] || return 0
        (cd "$work/clone" && eval "exec $line --port 0 --max-len 128") >"$work/serve" 2>"$work/err" </dev/null &
        server=$!
        for _ in $(seq 600); do [ ! -s "$work/serve" ] || break; sleep 0.05; done
        port=$(sed -n 's/.*:\([0-9]*\)$/\1/p' "$work/serve")
        [ -n "$port" ] || say "$d: $2: does not begin to serve"
        return ;;
    'curl '*)
        [ "$served" = 1 ] && command -v curl >/dev/null || return 0
        line=${line/:8000/:$port}
        line="curl --noproxy '*' --silent --show-error --fail ${line#curl }" ;;
    *' decode '*) line+=" --max-new-tokens 8" ;;
    *' --mask '*) ;;
    *' inspect '*) line+=" --positions 8" ;;
    *' plan train '*) ;;
    *' plan '*) line+=" --seconds 1 --heads none" ;; # the others: test_plan_command
    *' bench decode '* | *' bench step '*) line=${line/ bench / bench --repeats 1 } ;;
    esac
    (cd "$work/clone" && eval "$line") >"$work/out" 2>"$work/err" </dev/null && return
    say "$d: $2"
    echo "    ran: $line"
    tail -n 3 "$work/err" | sed 's/^/    /'
}

ran=0
for d in README.md $(printf '%s\n' "${documents[@]}" | grep -v '^README.md$'); do
    while IFS= read -r line; do
        [ -n "$line" ] || continue
        run "$d" "$line"
        ran=$((ran + 1))
    done < <(awk '/^ *```sh$/ { on = 1; next } /^ *```/ { on = 0 } on { sub(/[ ]+#.*$/, ""); if (sub(/\\$/, "")) printf "%s", $0; else print }' "$d")
done
# recipes/any-target.yaml: its drafter with the tree that it chooses itself, and in a chain.
for what in eagle3-full chain-5; do
    grep -qE "\"name\": \"$what\"" "$work/clone/runs/mine/results.json" || say "README.md: runs/mine has no method $what"
done
[ "$ran" -ge 15 ] || say "only $ran commands were found"
[ "$bad" = 0 ] && echo "documents: $(cat "${documents[@]}" | wc -w) words, $(wc -w <README.md) in README.md, $ran commands ran, ${#documents[@]} documents checked"
exit "$bad"
