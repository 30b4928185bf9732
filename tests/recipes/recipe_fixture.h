// The tables and helpers that the recipe tests share.
#ifndef PL_TEST_RECIPE_FIXTURE_H
#define PL_TEST_RECIPE_FIXTURE_H

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/rng.h"
#include "recipes/recipe.h"
#include "recipes/recipe_impl.h"
#include "tests/malformed.h"
#include "tests/recipes/by_name.h"

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

typedef struct head_fields {
    const char *name;
    struct {
        int     kind;
        int64_t rank;
    } head;
} head_fields;

typedef struct train_fields {
    struct {
        int64_t steps;
        double  lr;
        int64_t offset;
        double  floor;
        bool    deterministic;
        struct {
            int      kind;
            pl_reals betas;
        } optim;
    } train;
} train_fields;

typedef struct other_fields {
    struct {
        const char *path;
        pl_ints     layers;
    } target;
    struct {
        pl_strings prompts;
        int        mode;
    } data;
    const char *title;
    PL_KEY_ITEMS(head_fields) drafters;
    struct {
        const char *late;
    } train;
    int64_t seed;
} other_fields;

static const pl_key head_keys[] = {
    {PL_KEY_FIELD_STRING(head_fields, name), .help = "name of the variant"},
    {PL_KEY_FIELD_ENUM(head_fields, head.kind), .deflt = "full", .choices = {"full", "lowrank", "routed"}},
    {PL_KEY_FIELD_INT(head_fields, head.rank), .deflt = "64", .min = 1, .max = 4096, .stages = STAGE_TRAIN},
    PL_KEYS_END(head_fields)};

static const pl_key train_keys[] = {
    {PL_KEY_FIELD_INT(train_fields, train.steps), .deflt = "300", .min = 1, .max = INFINITY, .help = "optimizer steps",
     .stages = STAGE_TRAIN},
    {PL_KEY_FIELD_REAL(train_fields, train.lr), .deflt = "1e-4", .min = 0, .max = 1, .stages = STAGE_TRAIN},
    {PL_KEY_FIELD_INT(train_fields, train.offset), .deflt = "0", .stages = STAGE_TRAIN},
    {PL_KEY_FIELD_REAL(train_fields, train.floor), .deflt = "-1.5", .min = -INFINITY, .max = 2.5},
    {PL_KEY_FIELD_BOOL(train_fields, train.deterministic), .deflt = "false", .stages = STAGE_TRAIN},
    {PL_KEY_FIELD_ENUM(train_fields, train.optim.kind), .deflt = "adamw", .choices = {"adamw", "sgd"}},
    {PL_KEY_FIELD_REALS(train_fields, train.optim.betas), .deflt = "0.9,0.95", .min = 0, .max = 1},
    PL_KEYS_END(train_fields)};

static const pl_key other_keys[] = {
    {PL_KEY_FIELD_PATH(other_fields, target.path), .help = "the target's folder", .stages = STAGE_DATA | STAGE_TRAIN},
    {PL_KEY_FIELD_INTS(other_fields, target.layers), .deflt = "[]", .min = 0, .max = 100},
    {PL_KEY_FIELD_STRINGS(other_fields, data.prompts), .stages = STAGE_DATA},
    {PL_KEY_FIELD_ENUM(other_fields, data.mode), .deflt = "offline", .choices = {"offline", "online", "bounded"}},
    {PL_KEY_FIELD_STRING(other_fields, title), .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_ITEMS(other_fields, drafters, head_fields), .item = head_keys, .help = "variants"},
    {PL_KEY_FIELD_STRING(other_fields, train.late), .deflt = ""},
    {PL_KEY_FIELD_INT(other_fields, seed), .deflt = "0"},
    PL_KEYS_END(other_fields)};

static const pl_key *const tables[] = {train_keys, other_keys};
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
