// The tables and helpers that the recipe tests share.
#ifndef PL_TEST_RECIPE_FIXTURE_H
#define PL_TEST_RECIPE_FIXTURE_H

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/rng.h"
#include "recipes/recipe.h"
#include "tests/malformed.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { STAGE_DATA = 1, STAGE_TRAIN = 2 };

static const pl_recipe_key head_keys[] = {
    {.path = "name", .type = PL_RECIPE_STRING, .help = "name of the variant"},
    {.path = "head.kind", .type = PL_RECIPE_ENUM, .deflt = "full", .choices = {"full", "lowrank", "routed"}},
    {.path = "head.rank", .type = PL_RECIPE_INT, .deflt = "64", .min = 1, .max = 4096, .stages = STAGE_TRAIN},
    {0}};

static const pl_recipe_key train_keys[] = {
    {.path = "train.steps",
     .type = PL_RECIPE_INT,
     .deflt = "300",
     .min = 1,
     .max = INFINITY,
     .help = "optimizer steps",
     .stages = STAGE_TRAIN},
    {.path = "train.lr", .type = PL_RECIPE_REAL, .deflt = "1e-4", .min = 0, .max = 1, .stages = STAGE_TRAIN},
    {.path = "train.offset", .type = PL_RECIPE_INT, .deflt = "0", .stages = STAGE_TRAIN},
    {.path = "train.floor", .type = PL_RECIPE_REAL, .deflt = "-1.5", .min = -INFINITY, .max = 2.5},
    {.path = "train.deterministic", .type = PL_RECIPE_BOOL, .deflt = "false", .stages = STAGE_TRAIN},
    {.path = "train.optim.kind", .type = PL_RECIPE_ENUM, .deflt = "adamw", .choices = {"adamw", "sgd"}},
    {.path = "train.optim.betas", .type = PL_RECIPE_REAL_LIST, .deflt = "0.9,0.95", .min = 0, .max = 1},
    {0}};

static const pl_recipe_key other_keys[] = {
    {.path = "target.path", .type = PL_RECIPE_PATH, .help = "the target's folder", .stages = STAGE_DATA | STAGE_TRAIN},
    {.path = "target.layers", .type = PL_RECIPE_INT_LIST, .deflt = "[]", .min = 0, .max = 100},
    {.path = "data.prompts", .type = PL_RECIPE_STRING_LIST, .stages = STAGE_DATA},
    {.path = "data.mode", .type = PL_RECIPE_ENUM, .deflt = "offline", .choices = {"offline", "online", "bounded"}},
    {.path = "title", .type = PL_RECIPE_STRING, .stages = PL_RECIPE_NO_STAGE},
    {.path = "drafters", .type = PL_RECIPE_LIST_OF_MAPS, .item = head_keys, .help = "variants"},
    {.path = "train.late", .type = PL_RECIPE_STRING, .deflt = ""},
    {.path = "seed", .type = PL_RECIPE_INT, .deflt = "0"},
    {0}};

static const pl_recipe_key *const tables[] = {train_keys, other_keys};
#define N_TABLES 2

static pl_status read_n(pl_recipe **r, const char *yaml, size_t n, const char *const *sets, int n_sets, pl_err *err) {
    return pl_recipe_parse(r, yaml, n, "x.yaml", tables, N_TABLES, sets, n_sets, err);
}

static pl_recipe *must_read(const char *yaml, const char *const *sets, int n_sets) {
    pl_recipe *r = NULL;
    pl_err     err = {.msg = ""};
    if (read_n(&r, yaml, strlen(yaml), sets, n_sets, &err) != PL_OK) fail_msg("%s\n%s", yaml, err.msg);
    return r;
}

static const char drafters_yaml[] = "drafters:\n"
                                    "  - name: eagle3-full\n"
                                    "    head: {kind: full}\n"
                                    "  - name: eagle3-slim\n"
                                    "    head: {kind: lowrank, rank: 32}\n";

static void hash_of(const pl_recipe *r, unsigned stages, char out[17]) {
    assert_int_equal(pl_recipe_hash(r, stages, out, NULL), PL_OK);
    assert_int_equal(strlen(out), 16);
}

static void round_trip(const pl_recipe *r) {
    char *first = NULL, *second = NULL, hash[17], again_hash[17];
    assert_int_equal(pl_recipe_dump(r, &first, NULL), PL_OK);
    pl_recipe *again = must_read(first, NULL, 0);
    assert_int_equal(pl_recipe_dump(again, &second, NULL), PL_OK);
    assert_string_equal(first, second);
    hash_of(r, 0, hash);
    hash_of(again, 0, again_hash);
    assert_string_equal(hash, again_hash);
    pl_recipe_close(again);
    pl_free(first);
    pl_free(second);
}

#endif
