// The environment of a command: made once by the main program and passed down.
#ifndef PL_ENV_H
#define PL_ENV_H

#include "kernels/backend.h"
#include "kernels/base/json.h"
#include "kernels/comm/comm.h"
#include "recipes/recipe.h"

#include <stdio.h>

typedef struct pl_env {
    const pl_backend    *backend;
    pl_pool             *pool;
    pl_comm             *comm;    // the ranks of training; NULL: one
    pl_comm             *tp;      // tensor-parallel ranks of targets (infer/model/tp.h); NULL: one
    int                  threads; // of the pool
    bool                 quiet, json;
    FILE                *text;   // human-readable results (stdout); NULL with --json
    pl_json_out         *result; // with --json: an open object, to which the command adds its members; else NULL
    // All tables of recipe keys, for pl_recipe_open.
    const pl_key *const *keys;
    int                  n_keys;
    const pl_recipe     *recipe;      // the command's recipe; NULL: none
    int64_t              own_prompts; // prompts that its target writes first (data.prompts: self:N); 0: none
    uint64_t             seed;        // --seed, else 1; a recipe's key `seed`
    bool                 has_seed;    // --seed was given
} pl_env;

// A stage of a recipe: pl_generate_run, pl_eval_run, pl_run. The main program has opened the recipe and made out_dir.
typedef pl_status (*pl_stage_fn)(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);

#endif
