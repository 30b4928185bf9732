#include "train/run/ranks.h"

#include "kernels/base/arena.h"
#include "train/run/run.h"

#include <string.h>

typedef struct job {
    int64_t stop_after;
    size_t  out_dir, recipe; // bytes of the two texts that follow, each with its 0; none: the end
} job;

pl_status pl_ranks_hand_out(const pl_env *env, const pl_recipe *r, const char *out_dir, int64_t stop_after,
                            pl_err *err) {
    char *text;
    if (pl_comm_ranks(env->comm) == 1) return PL_OK; // nobody listens
    PL_TRY(pl_recipe_dump(r, &text, err));
    job       j = {.stop_after = stop_after, .out_dir = strlen(out_dir) + 1, .recipe = strlen(text) + 1};
    char     *both = pl_malloc(j.out_dir + j.recipe);
    pl_status st = both ? PL_OK : pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    if (st == PL_OK) {
        memcpy(both, out_dir, j.out_dir);
        memcpy(both + j.out_dir, text, j.recipe);
        st = pl_comm_broadcast(env->comm, &j, sizeof j, err);
    }
    if (st == PL_OK) st = pl_comm_broadcast(env->comm, both, j.out_dir + j.recipe, err);
    pl_free(both);
    pl_free(text);
    return st;
}

pl_status pl_ranks_end(const pl_env *env, pl_err *err) {
    return pl_comm_broadcast(env->comm, &(job){0}, sizeof(job), err);
}

static pl_status serve(const pl_env *env, const job *j, pl_err *err) {
    pl_recipe *r = NULL;
    char      *both = pl_malloc(j->out_dir + j->recipe);
    pl_status  st = both ? PL_OK : pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    if (st == PL_OK) st = pl_comm_broadcast(env->comm, both, j->out_dir + j->recipe, err);
    if (st == PL_OK)
        st = pl_recipe_parse(&r, both + j->out_dir, j->recipe - 1, "recipe", env->keys, env->n_keys, NULL, 0, err);
    if (st == PL_OK) st = pl_train_run_until(r, both, env, j->stop_after, err);
    pl_recipe_close(r);
    pl_free(both);
    return st;
}

pl_status pl_ranks_serve(const pl_env *env, pl_err *err) {
    for (;;) {
        job j;
        PL_TRY(pl_comm_broadcast(env->comm, &j, sizeof j, err));
        if (j.recipe == 0) return PL_OK;
        PL_TRY(serve(env, &j, err));
    }
}

int pl_ranks_threads(int threads, int ranks) {
    return threads > ranks ? threads / ranks : 1;
}

pl_status pl_ranks_env(pl_env *out, pl_pool **pool, const pl_env *env, pl_err *err) {
    int ranks = pl_comm_ranks(env->comm), all = pl_pool_threads(env->pool);
    *out = *env;
    *pool = NULL;
    if (ranks == 1 || pl_comm_rank(env->comm) > 0 || all == 1) return PL_OK;
    PL_TRY(pl_pool_create(pool, pl_ranks_threads(all, ranks), err));
    out->pool = *pool;
    out->threads = pl_pool_threads(*pool);
    return PL_OK;
}
