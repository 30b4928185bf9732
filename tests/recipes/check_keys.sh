#!/usr/bin/env bash
# A row of a table of keys whose field is misspelt or of another type does not compile; the right one does. No recipe key
# is looked up by name.
set -u
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
try() { # NAME compiles|refused ROW
    cat >"$work/row.c" <<C
#include "kernels/base/key.h"
typedef struct fields {
    struct {
        int64_t steps;
        double  lr;
        struct {
            const char *kind;
        } optim;
    } train;
} fields;
const pl_key keys[] = {{$3}, PL_KEYS_END(fields)};
C
    if "${CC:-cc}" -std=c17 -I. -fsyntax-only "$work/row.c" 2>"$work/log"; then got=compiles; else got=refused; fi
    [ "$got" = "$2" ] || { echo "$1: $got, expected: $2"; cat "$work/log"; bad=1; }
}
try "a field" compiles 'PL_KEY_FIELD_INT(fields, train.steps), .deflt = "3"'
try "a nested field" compiles 'PL_KEY_FIELD_STRING(fields, train.optim.kind)'
try "a misspelt field" refused 'PL_KEY_FIELD_INT(fields, train.stepz), .deflt = "3"'
try "a misspelt section" refused 'PL_KEY_FIELD_INT(fields, trian.steps), .deflt = "3"'
try "an integer for a real" refused 'PL_KEY_FIELD_INT(fields, train.lr), .deflt = "3"'
try "a name for a text" refused 'PL_KEY_FIELD_ENUM(fields, train.optim.kind), .deflt = "sgd"'
try "a section" refused 'PL_KEY_FIELD_INT(fields, train.optim), .deflt = "3"'

getters='pl_recipe_(int|real|bool|str|choice|list|ints|reals|list_count|item|knows|has)\('
if grep -rnE "$getters" --include='*.c' --include='*.h' kernels data checkpoints recipes infer train paceline.c; then
    echo "recipe keys are looked up by name"
    bad=1
fi
if grep -rnE 'pl_recipe_(given|differs|default|path|require|fail)\([a-z>-]*, *"' --include='*.c' --include='*.h' infer train; then
    echo "a key is named by its field's address, not by a string"
    bad=1
fi
[ "$bad" = 0 ] && echo "keys: ok"
exit "$bad"
