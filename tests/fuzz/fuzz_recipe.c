// Recipe files, with the program's own tables. What is accepted dumps to a recipe that reads back to the same dump.
#include "kernels/base/arena.h"
#include "recipes/recipe.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/recipe_tables.h"

#include <string.h>

static void seeds(void) {
    pl_fuzz_seed_file(PACELINE_SOURCE_DIR "/recipes/quickstart.yaml");
    pl_fuzz_seed_file(PACELINE_SOURCE_DIR "/recipes/tiny-target.yaml");
    pl_fuzz_seed_text("train: {steps: 5, lr: 1e-3}\nseed: 3\n");
    pl_fuzz_seed_text("drafters:\n  - name: full\n    head: {kind: full}\n  - {name: slim, head.rank: 32}\n");
    pl_fuzz_seed_text("data.prompts: [a, \"b \\u00e9\", 'c'' d']\ntarget:\n  path: |\n    x\n");
}

static const char *const words[] = {
    "train:", "\n  ", "\n",     "- ",      ": ",          "{",  "}",         "[",          "]",
    "&a ",    "*a",   "!!str ", "|",       ">-\n",        "? ", "#",         "---\n",      "...\n",
    "'",      "\"",   "\\x00",  "\\u0000", "%YAML 1.1\n", "~",  "drafters:", "head.rank:", "train.unroll:",
    "0x10",   ".inf", "1_000",  "\t",      "<<:",         NULL};

const pl_fuzz_target pl_fuzz = {.name = "recipe", .seeds = seeds, .words = words, .runs = 3000, .max_len = 1 << 13};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err               err;
    int                  n_tables;
    const pl_key *const *tables = fuzz_tables(&n_tables);
    pl_recipe           *r = NULL, *again = NULL;
    char                *text = NULL, *same = NULL, hash[17], hash_again[17];
    if (!pl_fuzz_result(pl_recipe_parse(&r, (const char *)data, n, "x.yaml", tables, n_tables, NULL, 0, &err), &err,
                        &r))
        return 0;
    pl_fuzz_must(pl_recipe_dump(r, &text, &err), &err);
    pl_fuzz_must(pl_recipe_parse(&again, text, strlen(text), "again", tables, n_tables, NULL, 0, &err), &err);
    pl_fuzz_must(pl_recipe_dump(again, &same, &err), &err);
    pl_fuzz_must(pl_recipe_hash(r, 0, hash, &err), &err);
    pl_fuzz_must(pl_recipe_hash(again, 0, hash_again, &err), &err);
    if (strcmp(text, same) != 0 || strcmp(hash, hash_again) != 0)
        pl_fuzz_finding("a dump reads back as another recipe:\n%s", text);
    pl_free(text);
    pl_free(same);
    pl_recipe_close(r);
    pl_recipe_close(again);
    return 0;
}
