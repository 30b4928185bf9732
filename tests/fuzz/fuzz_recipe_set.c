// --set arguments: one a line of the input, at most eight, over a recipe with two drafters.
#include "kernels/base/arena.h"
#include "recipes/recipe.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/recipe_tables.h"

#include <stdlib.h>
#include <string.h>

static void seeds(void) {
    pl_fuzz_seed_text("train.steps=5\ntrain.lr=1e-3\nseed=3");
    pl_fuzz_seed_text("drafters.0.name=x\ndrafters.2.head.rank=64\ndrafters.2.name=y");
    pl_fuzz_seed_text("data.prompts=a,b\neval.prompts=[c, \"d,e\"]");
    pl_fuzz_seed_text("drafters=[{name: a, head: {kind: full}}, {name: b}]");
}

static const char *const words[] = {
    "train.steps=", "drafters.1.", "drafters=[{", "=[", "name: ", "\n", "18446744073709551616", "..", "1e999", "-1",
    "true",         "\"",          "'",           ",",  "&a ",    NULL};

const pl_fuzz_target pl_fuzz = {.name = "recipe_set", .seeds = seeds, .words = words, .runs = 5000, .max_len = 1 << 11};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char yaml[] = "drafters:\n  - name: full\n  - {name: slim, head: {kind: lowrank, rank: 32}}\n";
    char             *line = malloc(n + 1);
    const char       *sets[8];
    int               n_sets = 0;
    if (!line) pl_fuzz_finding("no memory");
    if (n) memcpy(line, data, n);
    line[n] = 0; // an argument ends at its first 0 byte
    for (char *p = line; p && n_sets < 8; n_sets++) {
        sets[n_sets] = p;
        p = strchr(p, '\n');
        if (p) *p++ = 0;
    }
    pl_err               err;
    int                  n_tables;
    const pl_key *const *tables = fuzz_tables(&n_tables);
    pl_recipe           *r = NULL;
    char                *text = NULL;
    if (pl_fuzz_result(pl_recipe_parse(&r, yaml, sizeof yaml - 1, "x.yaml", tables, n_tables, sets, n_sets, &err), &err,
                       &r)) {
        pl_fuzz_must(pl_recipe_dump(r, &text, &err), &err);
        pl_free(text);
        pl_recipe_close(r);
    }
    free(line);
    return 0;
}
