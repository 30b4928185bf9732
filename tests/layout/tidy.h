// For `bash tests/shown.sh tidy`, included ahead of every file that clang-tidy reads: its analyzer looks at one file at
// a time and does not see that these never return PL_OK. A file that defines some of them reads the others.
#include "kernels/base/json.h"
#include "recipes/recipe.h"

static inline pl_status pl_tidy_failed(pl_status st) {
    if (st == PL_OK) __builtin_unreachable();
    return st;
}
#ifndef PL_TIDY_DEFINES_FAIL
#define pl_fail(...) pl_tidy_failed(pl_fail(__VA_ARGS__))
#define pl_fail_errno(...) pl_tidy_failed(pl_fail_errno(__VA_ARGS__))
#define pl_fail_at(...) pl_tidy_failed(pl_fail_at(__VA_ARGS__))
#endif
#ifndef PL_TIDY_DEFINES_JSON_FAIL
#define pl_json_fail(...) pl_tidy_failed(pl_json_fail(__VA_ARGS__))
#endif
#ifndef PL_TIDY_DEFINES_RECIPE_FAIL
#define pl_recipe_fail(...) pl_tidy_failed(pl_recipe_fail(__VA_ARGS__))
#endif
