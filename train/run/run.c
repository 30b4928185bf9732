#include "train/run/run.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "train/run/ranks.h"
#include "train/task/drafter.h"
#include "train/task/routed.h"
#include "train/task/target.h"

#include <string.h>

static pl_status write_recipe(const pl_recipe *r, const char *out_dir, pl_err *err) {
    char *text, *path = pl_path_join(out_dir, "recipe.yaml");
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_status st = pl_recipe_dump(r, &text, err);
    if (st == PL_OK) st = pl_file_write_atomic(path, text, strlen(text), err);
    pl_free(text);
    pl_free(path);
    return st;
}

static pl_status train(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after, pl_err *err) {
    bool target = strcmp(pl_recipe_str(r, "kind"), "target") == 0;
    if (target) return pl_pretrain(r, out_dir, env, stop_after, err);
    bool routed = strcmp(pl_recipe_str(r, "drafter.head.kind"), "dynaspec") == 0;
    return routed ? pl_router_train(r, out_dir, env, stop_after, err)
                  : pl_eagle_train(r, out_dir, env, stop_after, err);
}

pl_status pl_train_run_until(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after,
                             pl_err *err) {
    if (pl_comm_rank(env->comm) > 0) return train(r, out_dir, env, stop_after, err);
    pl_env   share;
    pl_pool *pool;
    PL_TRY(pl_dir_make(out_dir, err));
    PL_TRY(write_recipe(r, out_dir, err));
    PL_TRY(pl_ranks_hand_out(env, r, out_dir, stop_after, err));
    PL_TRY(pl_ranks_env(&share, &pool, env, err));
    pl_status st = train(r, out_dir, &share, stop_after, err);
    pl_pool_destroy(pool);
    return st;
}

pl_status pl_train_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    return pl_train_run_until(r, out_dir, env, 0, err);
}
