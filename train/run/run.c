#define _GNU_SOURCE 1 // gethostname, fdopen
#include "train/run/run.h"

#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "recipes/folder.h"
#include "train/keys.h"
#include "train/run/pipeline.h"
#include "train/run/spares.h"
#include "train/source/bounded.h"
#include "train/source/vocabularies.h"
#include "train/task/distill.h"
#include "train/task/drafter.h"
#include "train/task/routed.h"
#include "train/task/target.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pl_status write_recipe(const pl_recipe *r, const char *out_dir, const char *name, pl_err *err) {
    char *text, *path = pl_path_join(out_dir, name);
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_status st = pl_recipe_dump(r, &text, err);
    if (st == PL_OK) st = pl_file_write_atomic(path, text, strlen(text), err);
    pl_free(text);
    pl_free(path);
    return st;
}

// The recipe, and with the first checkpoint to come the one that it begins with.
static pl_status keep_recipes(const pl_recipe *r, const char *out_dir, pl_err *err) {
    char     *dir = pl_path_join(out_dir, "checkpoints"), *last = dir ? pl_path_join(dir, "last") : NULL;
    pl_status st =
        last ? write_recipe(r, out_dir, "recipe.yaml", err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    if (st == PL_OK && !pl_path_exists(last)) {
        st = pl_dir_make(dir, err);
        if (st == PL_OK) st = write_recipe(r, out_dir, PL_TRAIN_BEGUN, err);
    }
    pl_free(last);
    pl_free(dir);
    return st;
}

// The head can be made for the target, and its list of tokens is there or will be made.
static pl_status check_head(const pl_recipe *r, pl_err *err) {
    const pl_head_recipe *hd = pl_head_recipe_of(r);
    int64_t               width = pl_train_recipe_of(r)->drafter.width;
    pl_hf_head            spec = pl_train_head_read(r);
    pl_hf_config          target;
    pl_head               h;
    PL_TRY(pl_vocabulary_check(r, hd->vocab, err));
    PL_TRY(pl_llama_config(&target, pl_generate_recipe_of(r)->target.path, err));
    pl_status st = pl_head_init(&h, &spec, width > 0 ? width : target.hidden_size, target.vocab_size, err);
    pl_head_fini(&h);
    return st;
}

pl_status pl_train_check_alone(const pl_recipe *r, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    const pl_key          *own = pl_train_head_kind(r)->keys;
    if (tr->kind == PL_KIND_TARGET) return PL_OK;
    for (int i = 0; pl_head_at(i); i++) {
        const pl_key *other = pl_head_at(i)->keys;
        if (other)
            PL_TRY(
                pl_recipe_refuse_table(r, other, own, "is of another kind of head; take it out (null undoes it)", err));
    }
    if (!pl_head_recipe_of(r)->vocab && pl_recipe_differs(r, &pl_head_recipe_of(r)->vocab_size))
        return pl_recipe_fail(r, &pl_head_recipe_of(r)->vocab_size, err,
                              "is of drafter.head.vocab, the list to draft from; give that");
    if (!pl_train_standalone(r)) PL_TRY(pl_eagle_check_alone(r, err));
    if (!tr->drafter.start || pl_path_exists(tr->drafter.start)) return PL_OK;
    return pl_recipe_fail(r, &tr->drafter.start, err, "\"%s\": no such checkpoint", tr->drafter.start);
}

// Of a target: keys that others switch on.
static pl_status check_target(const pl_recipe *r, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    bool                   writes = tr->train.unlikelihood.sequences > 0;
    const struct {
        const void *key;
        bool        read;
        const char *of;
    } keys[] = {{&tr->train.long_seq_len, tr->train.long_steps > 0, "train.long_steps"},
                {&tr->train.unlikelihood.prefix, writes, "train.unlikelihood.sequences"},
                {&tr->train.unlikelihood.length, writes, "train.unlikelihood.sequences"},
                {&tr->train.unlikelihood.weight, writes, "train.unlikelihood.sequences"},
                {&tr->train.unlikelihood.first_step, writes, "train.unlikelihood.sequences"},
                {&tr->train.guard.window, tr->train.guard.spike > 0, "train.guard.spike"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!keys[i].read && pl_recipe_differs(r, keys[i].key))
            return pl_recipe_fail(r, keys[i].key, err, "is of %s, which is 0; give both or neither", keys[i].of);
    PL_TRY(pl_recipe_refuse_stages(r, PL_STAGE_DRAFTER | PL_STAGE_TRACES, "is not read by kind: target", err));
    return pl_recipe_require(r, &tr->data.text, err);
}

pl_status pl_train_check(const pl_recipe *r, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    pl_trainer_options        options;
    PL_TRY(pl_train_options_read(&options, r, "", err));
    if (tr->kind == PL_KIND_TARGET) return check_target(r, err);
    PL_TRY(pl_recipe_refuse_stages(r, PL_STAGE_TARGET | PL_STAGE_TOKENIZER | PL_STAGE_TOKENS,
                                   "is not read by kind: drafter", err));
    PL_TRY(pl_recipe_require(r, &gen->target.path, err));
    if (pl_data_made_meanwhile(gen)) PL_TRY(pl_recipe_require(r, &gen->data.prompts, err));
    if (gen->data.disk_budget) PL_TRY(pl_bounded_check(r, err));
    if (pl_train_standalone(r)) return pl_distill_check(r, err);
    PL_TRY(pl_distill_check_other(r, err));
    if (!pl_train_routed(r)) {
        PL_TRY(pl_eagle_check(r, err));
        return check_head(r, err);
    }
    PL_TRY(pl_router_check(r, err));
    return pl_recipe_require(r, &tr->drafter.start, err);
}

static pl_status train(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after, pl_err *err) {
    if (pl_train_recipe_of(r)->kind == PL_KIND_TARGET) return pl_pretrain(r, out_dir, env, stop_after, err);
    if (pl_train_standalone(r)) return pl_distill_train(r, out_dir, env, stop_after, err);
    return pl_train_routed(r) ? pl_router_train(r, out_dir, env, stop_after, err)
                              : pl_eagle_train(r, out_dir, env, stop_after, err);
}

// ---- rank 0 and the others ----

typedef enum work { WORK_TRAIN, WORK_GENERATE, WORK_EVAL } work;

typedef struct job {
    work    what;
    int64_t stop_after;      // of training
    pl_taps taps;            // of generating
    size_t  out_dir, recipe; // bytes of the two texts that follow, each with its 0; none: the end
} job;

// Rank 0: the others do this too, now. Nothing where there are none. j: what is to be done.
static pl_status hand_out(const pl_env *env, const pl_recipe *r, const char *out_dir, job j, pl_err *err) {
    char *text;
    if (pl_comm_ranks(env->comm) == 1) return PL_OK; // nobody listens
    PL_TRY(pl_recipe_dump(r, &text, err));
    j.out_dir = strlen(out_dir) + 1;
    j.recipe = strlen(text) + 1;
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

int pl_ranks_threads(int threads, int ranks) {
    return threads > ranks ? threads / ranks : 1;
}

// Rank 0's env while all work: `env` with a pool of its share, which is the caller's to destroy; NULL where the pool
// of env will do. The others have no more than their share from the start.
static pl_status share_of(pl_env *out, pl_pool **pool, const pl_env *env, pl_err *err) {
    int ranks = pl_comm_joined(env->comm) ? 1 : pl_comm_ranks(env->comm), all = pl_pool_threads(env->pool);
    *out = *env;
    *pool = NULL;
    if (ranks == 1 || pl_comm_rank(env->comm) > 0 || all == 1) return PL_OK;
    PL_TRY(pl_pool_create(pool, pl_ranks_threads(all, ranks), err));
    out->pool = *pool;
    out->threads = pl_pool_threads(*pool);
    return PL_OK;
}

// ---- a run ----

// The first line of open_words.
static bool is_words(const char *front, size_t n) {
    return n >= 5 && memcmp(front, "rank ", 5) == 0;
}

// A rank's own words: OUT/rank-R.log on its host. A run does not need them: where they cannot be written, as under a
// link or behind another's lines, it says nothing, as its messages are rank 0's to give.
static FILE *open_words(const char *out_dir, const pl_comm *comm) {
    char  host[256] = "", *path = pl_sprintf("%s/rank-%d.log", out_dir, pl_comm_rank(comm));
    int   fd = -1;
    FILE *f = NULL;
    if (path && pl_dir_make(out_dir, NULL) == PL_OK && pl_file_spares(path, is_words, "--out", NULL) == PL_OK &&
        pl_file_open(path, O_WRONLY | O_CREAT | O_APPEND, &fd, NULL) == PL_OK)
        f = fdopen(fd, "a");
    if (fd >= 0 && !f) close(fd);
    pl_free(path);
    if (!f) return NULL;
    gethostname(host, sizeof host - 1);
    pl_log_to(f);
    pl_log("rank %d of %d on %s, process %ld", pl_comm_rank(comm), pl_comm_ranks(comm), host, (long)getpid());
    return f;
}

static pl_status train_with_words(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after,
                                  pl_err *err) {
    FILE     *f = open_words(out_dir, env->comm);
    pl_err    own = {0};
    pl_status st = train(r, out_dir, env, stop_after, err ? err : &own);
    if (f && st != PL_OK) pl_log("%s", err ? err->msg : own.msg);
    pl_log_to(NULL);
    if (f) fclose(f);
    return st;
}

pl_status pl_train_run_until(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after,
                             pl_err *err) {
    if (pl_comm_rank(env->comm) > 0) return train_with_words(r, out_dir, env, stop_after, err);
    pl_env   share;
    pl_pool *pool;
    PL_TRY(pl_train_check(r, err));
    PL_TRY(pl_train_spares(r, out_dir, err));
    PL_TRY(pl_dir_make(out_dir, err));
    PL_TRY(keep_recipes(r, out_dir, err));
    PL_TRY(hand_out(env, r, out_dir, (job){.what = WORK_TRAIN, .stop_after = stop_after}, err));
    PL_TRY(share_of(&share, &pool, env, err));
    pl_status st = train(r, out_dir, &share, stop_after, err);
    pl_pool_destroy(pool);
    return st;
}

pl_status pl_train_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    return pl_train_run_until(r, out_dir, env, 0, err);
}

pl_status pl_ranks_generate(const pl_recipe *r, const pl_taps *taps, const char *out_dir, const pl_env *env,
                            pl_err *err) {
    pl_env   share;
    pl_pool *pool;
    PL_TRY(hand_out(env, r, out_dir, (job){.what = WORK_GENERATE, .taps = *taps}, err));
    PL_TRY(share_of(&share, &pool, env, err));
    pl_status st = pl_generate_run(r, taps, out_dir, &share, err);
    pl_pool_destroy(pool);
    return st;
}

pl_status pl_ranks_eval(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    pl_env   share;
    pl_pool *pool;
    PL_TRY(pl_eval_check_ranks(r, env->comm, err));
    PL_TRY(hand_out(env, r, out_dir, (job){.what = WORK_EVAL}, err));
    PL_TRY(share_of(&share, &pool, env, err));
    pl_status st = pl_pipeline_eval(r, out_dir, &share, err);
    pl_pool_destroy(pool);
    return st;
}

// ---- the other ranks ----

static pl_status work_on(const pl_recipe *r, const char *out_dir, const job *j, const pl_env *env, pl_err *err) {
    if (j->what == WORK_EVAL) return pl_pipeline_eval(r, out_dir, env, err);
    return j->what == WORK_GENERATE ? pl_generate_run(r, &j->taps, out_dir, env, err)
                                    : pl_train_run_until(r, out_dir, env, j->stop_after, err);
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
    if (st == PL_OK) st = work_on(r, both, j, env, err);
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
