#define _GNU_SOURCE 1 // gethostname, fdopen
#include "train/run/run.h"

#include "data/dataset/dataset.h"
#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "kernels/comm/reader.h"
#include "recipes/folder.h"
#include "train/keys.h"
#include "train/loop/checkpoint.h"
#include "train/loop/metrics.h"
#include "train/run/pipeline.h"
#include "train/source/sources.h"
#include "train/source/vocabularies.h"
#include "train/task/distill.h"
#include "train/task/drafter.h"
#include "train/task/head_keys.h"
#include "train/task/routed.h"
#include "train/task/textdata.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// ---- files in the folder

static pl_status spare_recipe(const char *path, pl_err *err) {
    int                  n;
    const pl_key *const *tables = pl_stage_tables(&n);
    return pl_recipe_spares(path, tables, n, err);
}

static pl_status check_file(const char *out_dir, const char *name, pl_status (*spares)(const char *, pl_err *),
                            pl_err *err) {
    char     *path = pl_path_join(out_dir, name);
    pl_status st = path ? spares(path, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_free(path);
    return st;
}

// Checks that training does not replace a checkpoint that it starts from.
static pl_status check_read(const pl_recipe *r, const char *out_dir, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    char                  *path = pl_path_join(out_dir, "checkpoints");
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_status st = pl_recipe_spares_read(r, &tr->drafter.start, path, err);
    if (st == PL_OK) st = pl_recipe_spares_read(r, &tr->target.start, path, err);
    pl_free(path);
    return st;
}

pl_status pl_train_spares(const pl_recipe *r, const char *out_dir, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    bool                   target = tr->kind == PL_KIND_TARGET;
    PL_TRY(pl_checkpoints_spare(out_dir, err));
    PL_TRY(check_file(out_dir, PL_TRAIN_BEGUN, spare_recipe, err));
    PL_TRY(check_file(out_dir, "recipe.yaml", spare_recipe, err));
    PL_TRY(check_file(out_dir, "metrics.jsonl", pl_metrics_spares, err));
    PL_TRY(check_file(out_dir, "skipped.jsonl", pl_metrics_spares, err));
    PL_TRY(check_read(r, out_dir, err));
    if (target) return pl_textdata_spares(r, out_dir, err);
    if (pl_generate_recipe_of(r)->data.disk_budget) PL_TRY(check_file(out_dir, "bounded", pl_dataset_spares, err));
    if (pl_train_routed(r) && !tr->traces.path) PL_TRY(check_file(out_dir, "traces", pl_dataset_spares, err));
    return PL_OK;
}

static pl_status write_recipe(const pl_recipe *r, const char *out_dir, const char *name, pl_err *err) {
    char *text, *path = pl_path_join(out_dir, name);
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_status st = pl_recipe_dump(r, &text, err);
    if (st == PL_OK) st = pl_file_write_atomic(path, text, strlen(text), err);
    pl_free(text);
    pl_free(path);
    return st;
}

// Writes the recipe, and before the first checkpoint also the copy with which training begins.
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

// ---- keys

// Checks that the head fits the target, and that its list of tokens exists or will be made.
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
    if (tr->kind == PL_KIND_TARGET) return PL_OK;
    PL_TRY(pl_head_keys_check_own(r, NULL, NULL, err));
    if (!pl_train_standalone(r)) PL_TRY(pl_eagle_check_alone(r, err));
    if (!tr->drafter.start || pl_path_exists(tr->drafter.start)) return PL_OK;
    return pl_recipe_fail(r, &tr->drafter.start, err, "\"%s\": no such checkpoint", tr->drafter.start);
}

// Checks a target's keys that others enable.
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
    PL_TRY(pl_head_keys_check(r, err));
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
    if (pl_train_standalone(r)) {
        PL_TRY(pl_head_keys_check(r, err));
        return pl_distill_check(r, err);
    }
    PL_TRY(pl_distill_check_other(r, err));
    if (!pl_train_routed(r)) {
        PL_TRY(pl_eagle_check(r, err));
        PL_TRY(pl_head_keys_check(r, err));
        return check_head(r, err);
    }
    PL_TRY(pl_router_check(r, err));
    return pl_recipe_require(r, &tr->drafter.start, err);
}

static pl_status train(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after, pl_err *err) {
    const pl_training *kind = pl_train_recipe_of(r)->kind == PL_KIND_TARGET ? &pl_training_target
                              : pl_train_standalone(r)                      ? &pl_training_lm
                              : pl_train_routed(r)                          ? &pl_training_router
                                                                            : &pl_training_drafter;
    pl_trainer_options o;
    PL_TRY(pl_train_options_read(&o, r, out_dir, err));
    o.stop_after = stop_after;
    pl_task *t = pl_calloc(1, kind->size);
    if (!t) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    int64_t slots = pl_train_recipe_of(r)->train.slots;
    t->backend = env->backend;
    t->pool = env->pool;
    t->comm = env->comm;
    t->n_slots = slots > 0 ? (int)slots : 1;
    pl_status st = kind->prepare(t, r, out_dir, env, err);
    if (st == PL_OK) st = pl_trainer_run(t, &o, err);
    kind->destroy(t);
    pl_free(t);
    return st;
}

// ---- rank 0 and the other ranks ----

static pl_status name_job(pl_job *j, const pl_recipe *r, const char *out_dir, pl_err *err) {
    pl_hash_hex(j->out_dir, pl_hash(out_dir, strlen(out_dir)));
    return pl_recipe_hash(r, 0, j->recipe, err);
}

int pl_ranks_threads(int threads, int ranks) {
    return threads > ranks ? threads / ranks : 1;
}

// Makes rank 0's env for shared work: `env` with a pool of its share of threads. *pool is owned by the caller; NULL if
// env's pool is used. The other ranks have only their share from the start.
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

// Returns true for the first line that open_words writes.
static bool is_words(const char *front, size_t n) {
    return n >= 5 && memcmp(front, "rank ", 5) == 0;
}

// Opens a rank's log, OUT/rank-R.log on its host. The log is optional: if it cannot be written (a link, or a file with
// other lines), the rank is silent, since rank 0 reports the messages.
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

// Executes a job's work, on any rank.
static pl_status work_on(const pl_recipe *r, const char *out_dir, const pl_job *j, const pl_env *env,
                         int64_t stop_after, pl_err *err) {
    if (j->what == PL_RANKS_EVAL) return pl_pipeline_eval(r, out_dir, env, err);
    if (j->what == PL_RANKS_TRAIN)
        return (pl_comm_rank(env->comm) > 0 ? train_with_words : train)(r, out_dir, env, stop_after, err);
    return pl_generate_run(r, &j->taps, out_dir, env, err);
}

// Assigns the work to all ranks. taps: for generating, else NULL.
static pl_status hand_out(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_ranks_work what,
                          const pl_taps *taps, int64_t stop_after, pl_err *err) {
    pl_job   j = {.what = (int32_t)what};
    pl_env   share;
    pl_pool *pool;
    if (taps) j.taps = *taps;
    if (pl_comm_ranks(env->comm) > 1) {
        PL_TRY(name_job(&j, r, out_dir, err));
        PL_TRY(pl_comm_broadcast(env->comm, &j, sizeof j, err));
    }
    PL_TRY(share_of(&share, &pool, env, err));
    pl_status st = work_on(r, out_dir, &j, &share, stop_after, err);
    pl_pool_destroy(pool);
    return st;
}

pl_status pl_train_run_until(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after,
                             pl_err *err) {
    if (pl_comm_rank(env->comm) > 0) return train_with_words(r, out_dir, env, stop_after, err);
    PL_TRY(pl_train_check(r, err));
    PL_TRY(pl_train_spares(r, out_dir, err));
    PL_TRY(pl_dir_make(out_dir, err));
    PL_TRY(keep_recipes(r, out_dir, err));
    return hand_out(r, out_dir, env, PL_RANKS_TRAIN, NULL, stop_after, err);
}

pl_status pl_train_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    return pl_train_run_until(r, out_dir, env, 0, err);
}

pl_status pl_ranks_generate(const pl_recipe *r, const pl_taps *taps, const char *out_dir, const pl_env *env,
                            pl_err *err) {
    return hand_out(r, out_dir, env, PL_RANKS_GENERATE, taps, 0, err);
}

pl_status pl_ranks_eval(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    PL_TRY(pl_eval_check_ranks(r, env->comm, err));
    return hand_out(r, out_dir, env, PL_RANKS_EVAL, NULL, 0, err);
}

// ---- the other ranks ----

pl_status pl_ranks_end(const pl_env *env, pl_err *err) {
    return pl_comm_broadcast(env->comm, &(pl_job){0}, sizeof(pl_job), err);
}

// Receives the next job; check_taps compares its layers with the target.
static pl_status take_job(pl_job *j, const pl_env *env, pl_err *err) {
    pl_job sent = {0};
    PL_TRY(pl_comm_broadcast(env->comm, &sent, sizeof sent, err));
    pl_reader in = pl_reader_of(0, "a job", &sent, sizeof sent, err);
    *j = (pl_job){.what = pl_reader_int32(&in, "its kind", 0, PL_RANKS_EVAL)};
    if (j->what != 0 && j->what != PL_RANKS_TRAIN && j->what != PL_RANKS_GENERATE && j->what != PL_RANKS_EVAL)
        pl_reader_refuse(&in, "its kind is %d", j->what);
    j->taps.n = pl_reader_int32(&in, "the number of layers to store", 0, PL_MAX_TAPS);
    for (int i = 0; i < PL_MAX_TAPS; i++)
        j->taps.layer[i] = pl_reader_int32(&in, "a layer to store", 0, INT32_MAX);
    snprintf(j->recipe, sizeof j->recipe, "%s", pl_reader_text(&in, "the hash of its recipe", sizeof j->recipe));
    snprintf(j->out_dir, sizeof j->out_dir, "%s", pl_reader_text(&in, "the hash of its folder", sizeof j->out_dir));
    return in.status;
}

// Compares a job's layers with the target.
static pl_status check_taps(const pl_job *j, const pl_recipe *r, pl_err *err) {
    pl_hf_config target;
    if (j->what != PL_RANKS_GENERATE) return PL_OK;
    PL_TRY(pl_generate_check(r, err));
    PL_TRY(pl_llama_config(&target, pl_generate_recipe_of(r)->target.path, err));
    for (int i = 0; i < j->taps.n; i++)
        if (j->taps.layer[i] > target.num_hidden_layers)
            return pl_fail(err, PL_E_IO, "rank 0 sent a job: layer %d to store, the target has %d", j->taps.layer[i],
                           target.num_hidden_layers);
    return PL_OK;
}

// Executes the job with this rank's own recipe and folder.
static pl_status work_as(const pl_recipe *r, const char *out_dir, const pl_job *j, const pl_env *env,
                         const pl_ranks_own *own, pl_err *err) {
    pl_job here;
    PL_TRY(name_job(&here, r, out_dir, err));
    if (strcmp(here.recipe, j->recipe) != 0)
        return pl_fail(err, PL_E_USAGE,
                       "%s: the recipe of rank 0 has the hash %s, this rank's %s; start all ranks with one recipe",
                       out_dir, j->recipe, here.recipe);
    PL_TRY(check_taps(j, r, err));
    return work_on(r, out_dir, j, env, own->stop_after, err);
}

static bool is_folder(const pl_job *j, const char *out_dir) {
    char sum[17];
    pl_hash_hex(sum, pl_hash(out_dir, strlen(out_dir)));
    return strcmp(sum, j->out_dir) == 0;
}

// Executes the job for the drafter of the recipe's list whose folder equals rank 0's; *found: there is one.
static pl_status work_on_drafter(const pl_job *j, const pl_env *env, const pl_ranks_own *own, bool *found,
                                 pl_err *err) {
    int n = 0;
    *found = false;
    if (own->drafters) PL_TRY(pl_pipeline_drafters(&n, own->recipe, err));
    for (int i = 0; i < n && !*found; i++) {
        char      *dir = pl_pipeline_drafter_folder(own->recipe, i, own->out_dir);
        pl_recipe *one = NULL;
        pl_status  st = dir ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", own->out_dir);
        *found = dir && is_folder(j, dir);
        if (*found) st = pl_pipeline_drafter_recipe(&one, own->recipe, i, own->out_dir, err);
        if (*found && st == PL_OK) st = work_as(one, dir, j, env, own, err);
        pl_recipe_close(one);
        pl_free(dir);
        PL_TRY(st);
    }
    return PL_OK;
}

static const char *work_name(int32_t what) {
    return what == PL_RANKS_TRAIN ? "trains" : what == PL_RANKS_EVAL ? "evaluates" : "generates";
}

static pl_status serve(const pl_job *j, const pl_env *env, const pl_ranks_own *own, pl_err *err) {
    bool found;
    if (!(own->works & (unsigned)j->what))
        return pl_fail(err, PL_E_USAGE,
                       "rank 0 %s, which this rank's command does not; start all ranks with one command",
                       work_name(j->what));
    if (is_folder(j, own->out_dir)) return work_as(own->recipe, own->out_dir, j, env, own, err);
    PL_TRY(work_on_drafter(j, env, own, &found, err));
    if (found) return PL_OK;
    return pl_fail(err, PL_E_USAGE, "--out: is %s here and another folder on rank 0; give all ranks the same --out",
                   own->out_dir);
}

pl_status pl_ranks_serve(const pl_env *env, const pl_ranks_own *own, pl_err *err) {
    for (;;) {
        pl_job j;
        PL_TRY(take_job(&j, env, err));
        if (j.what == 0) return PL_OK;
        PL_TRY(serve(&j, env, own, err));
    }
}
