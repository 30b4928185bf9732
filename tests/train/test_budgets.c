// The recipes that are shipped compare like with like: drafters of one table have learned for equally many steps, those
// of the drafters that they start from included. The quickstart does not: it shows what ten minutes give.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "infer/eval/eval.h"
#include "infer/generate/generator.h"
#include "recipes/recipe.h"
#include "train/keys.h"
#include "train/run/pipeline.h"

static const char *name_of(const pl_recipe *r, int i) {
    return pl_pipeline_recipe_of(r)->drafters.at[i].name;
}

static const char *of(const pl_recipe *r, int i, const void *field) {
    return pl_recipe_override(r, &pl_pipeline_recipe_of(r)->drafters.at[i], field);
}

static int start_of(const pl_recipe *r, int i) {
    const char *start = of(r, i, &pl_train_recipe_of(r)->drafter.start);
    for (int k = 0; k < i && start; k++)
        if (strcmp(name_of(r, k), start) == 0) return k;
    assert_null(start); // a checkpoint of elsewhere, whose steps are not known here
    return -1;
}

static int64_t own_steps(const pl_recipe *r, int i) {
    const char *steps = of(r, i, &pl_train_recipe_of(r)->train.steps);
    return steps ? atoll(steps) : pl_train_recipe_of(r)->train.steps;
}

static int64_t all_steps(const pl_recipe *r, int i) {
    int start = start_of(r, i);
    return own_steps(r, i) + (start < 0 ? 0 : all_steps(r, start));
}

// A drafter that others go on training from is a part of them and not one of those that are compared.
static bool compared(const pl_recipe *r, int i) {
    for (int k = i + 1; k < pl_pipeline_recipe_of(r)->drafters.n; k++)
        if (start_of(r, k) == i && own_steps(r, k) > 0) return false;
    return true;
}

static void check(const char *path, bool full) {
    pl_recipe           *r;
    pl_err               err = {0};
    int64_t              budget = 0;
    int                  rows = 0;
    bool                 has_full = false;
    int                  n;
    const pl_key *const *tables = pl_stage_tables(&n);
    if (pl_recipe_open(&r, path, tables, n, NULL, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < pl_pipeline_recipe_of(r)->drafters.n; i++) {
        if (!compared(r, i)) continue;
        if (rows++ == 0) budget = all_steps(r, i);
        if (all_steps(r, i) != budget)
            fail_msg("%s: %s learns for %lld steps in all, others for %lld", path, name_of(r, i),
                     (long long)all_steps(r, i), (long long)budget);
        if (strcmp(name_of(r, i), "full") == 0) has_full = true;
    }
    assert_true(rows >= 2 && has_full == full && budget > 0);
    pl_recipe_close(r);
}

static void equal_budgets(void **state) {
    (void)state;
    check("recipes/heads.yaml", true);
    check("recipes/heads-4k.yaml", true);
    check("recipes/dynaspec-sweep.yaml", false); // which it is made of
    check("recipes/methods.yaml", false);
    check("recipes/medusa.yaml", false);
    check("recipes/eagle2-heads.yaml", false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_budgets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
