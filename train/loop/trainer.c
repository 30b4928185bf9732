#include "train/loop/trainer.h"

#include "checkpoints/state.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STATE_FILE "training_state"
#define ARITHMETIC_ROOM 32 // of pl_backend, in a state

typedef struct loop {
    pl_task                  *t;
    const pl_trainer_options *o;
    pl_metrics                metrics;
    pl_slots                  slots;
    pl_optim                  optim;
    pl_progress               progress;
    char                     *last, *best; // folders
    int64_t                   step;        // done
    double                    best_score;  // NAN before the first evaluation
    int64_t                   best_step;
    double                    saved_at; // time
    int64_t                   saved_step;
} loop;

// ---- state

static pl_status write_state(const loop *l, const char *dir, pl_err *err) {
    const pl_task        *t = l->t;
    const pl_param_block *b = t->block;
    pl_param_state        parts;
    PL_TRY(pl_param_state_init(&parts, b, err));
    char *path = pl_path_join(dir, STATE_FILE);
    if (!path) {
        pl_param_state_fini(&parts);
        return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    }
    char arithmetic[ARITHMETIC_ROOM] = {0};
    snprintf(arithmetic, sizeof arithmetic, "%s", t->backend->arithmetic);
    pl_state_item item[] = {
        {.name = "identity", .dtype = PL_U8, .count = (int64_t)sizeof t->identity, .data = t->identity},
        {.name = "arithmetic", .dtype = PL_U8, .count = sizeof arithmetic, .data = arithmetic},
        {.name = "step", .dtype = PL_I64, .count = 1, .data = &l->step},
        {.name = "best_score", .dtype = PL_F64, .count = 1, .data = &l->best_score},
        {.name = "best_step", .dtype = PL_I64, .count = 1, .data = &l->best_step},
        {.name = "cursor", .dtype = PL_I64, .count = t->n_cursor, .data = t->cursor},
        {.name = "w", .dtype = b->real, .count = b->n, .data = parts.part[0]},
        {.name = "m", .dtype = b->real, .count = b->n, .data = parts.part[1]},
        {.name = "v", .dtype = b->real, .count = b->n, .data = parts.part[2]},
    };
    pl_status st = pl_state_write(path, item, sizeof item / sizeof *item, err);
    pl_param_state_fini(&parts);
    pl_free(path);
    return st;
}

static pl_status take_into(const pl_memory *m, const pl_state *s, const char *name, pl_dtype t, int64_t n, void *to,
                           pl_err *err) {
    const void *data;
    PL_TRY(pl_state_get(s, name, t, n, &data, err));
    return pl_memory_write(m, to, data, (size_t)n * pl_dtype_size(t), err);
}

static pl_status take(const pl_state *s, const char *name, pl_dtype t, int64_t n, void *to, pl_err *err) {
    return take_into(NULL, s, name, t, n, to, err);
}

// Whether this process goes on in the numbers that the state was computed in, or may do so in others.
static pl_status check_arithmetic(const loop *l, const pl_state *s, const char *path, pl_err *err) {
    char        was[ARITHMETIC_ROOM] = "an older one";
    const char *is = l->t->backend->arithmetic;
    if (pl_state_find(s, "arithmetic")) PL_TRY(take(s, "arithmetic", PL_U8, sizeof was, was, err));
    was[sizeof was - 1] = 0;
    if (strcmp(was, is) == 0) return PL_OK;
    if (!l->o->any_arithmetic)
        return pl_fail(err, PL_E_INPUT,
                       "%s: computed in arithmetic %s, this is %s (%s), whose bits differ; continue where it began, or "
                       "set train.resume=any",
                       path, was, is, l->t->backend->name);
    pl_log_warn("%s: goes on in arithmetic %s, was computed in %s: its bits are neither's", path, is, was);
    return PL_OK;
}

static pl_status read_state(loop *l, const char *path, pl_err *err) {
    pl_task        *t = l->t;
    pl_param_block *b = t->block;
    pl_state       *s;
    char            identity[sizeof t->identity];
    pl_status       st;
    PL_TRY(pl_state_open(&s, path, err));
    PL_TRY_GOTO(st, done, take(s, "identity", PL_U8, (int64_t)sizeof identity, identity, err));
    if (memcmp(identity, t->identity, sizeof identity) != 0) {
        identity[sizeof identity - 1] = 0;
        st = pl_fail(err, PL_E_INPUT,
                     "%s: belongs to another run (%s, this one is %s); restore the recipe and the data, or give "
                     "another --out",
                     path, identity, t->identity);
        goto done;
    }
    PL_TRY_GOTO(st, done, check_arithmetic(l, s, path, err));
    PL_TRY_GOTO(st, done, take(s, "step", PL_I64, 1, &l->step, err));
    PL_TRY_GOTO(st, done, take(s, "best_score", PL_F64, 1, &l->best_score, err));
    PL_TRY_GOTO(st, done, take(s, "best_step", PL_I64, 1, &l->best_step, err));
    PL_TRY_GOTO(st, done, take(s, "cursor", PL_I64, t->n_cursor, t->cursor, err));
    PL_TRY_GOTO(st, done, take_into(b->memory, s, "w", b->real, b->n, b->w, err));
    PL_TRY_GOTO(st, done, take_into(b->memory, s, "m", b->real, b->n, b->m, err));
    PL_TRY_GOTO(st, done, take_into(b->memory, s, "v", b->real, b->n, b->v, err));
    if (l->step < 0)
        st = pl_fail(err, PL_E_INPUT, "%s: step %lld; remove the folder", path, (long long)l->step);
    else
        st = pl_param_block_refresh(b, err);
done:
    pl_state_close(s);
    return st;
}

pl_status pl_trainer_done_steps(const char *out_dir, int64_t *step, pl_err *err) {
    *step = 0;
    char     *dir = pl_path_join(out_dir, "checkpoints/last");
    char     *path = dir ? pl_path_join(dir, STATE_FILE) : NULL;
    pl_state *s = NULL;
    pl_status st = path ? pl_atomic_dir_recover(dir, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    if (st == PL_OK && pl_path_exists(path)) {
        st = pl_state_open(&s, path, err);
        if (st == PL_OK) st = take(s, "step", PL_I64, 1, step, err);
        if (s) pl_state_close(s);
    }
    pl_free(dir);
    pl_free(path);
    return st;
}

static pl_status save(const loop *l, const char *dir, bool state, pl_err *err) {
    pl_atomic_dir a;
    PL_TRY(pl_atomic_dir_begin(&a, dir, err));
    const char *to = pl_atomic_dir_path(&a);
    pl_status   st = l->t->save_model(l->t, to, err);
    if (st == PL_OK && state) st = write_state(l, to, err);
    if (st == PL_OK) return pl_atomic_dir_commit(&a, err);
    pl_atomic_dir_abort(&a);
    return st;
}

static pl_status save_last(loop *l, pl_err *err) {
    if (l->saved_step == l->step) return PL_OK;
    PL_TRY(save(l, l->last, true, err));
    l->saved_at = pl_now();
    l->saved_step = l->step;
    return PL_OK;
}

// ---- a step

pl_status pl_trainer_step(pl_task *t, pl_slots *slots, pl_optim *optim, int64_t step, double lr, pl_step_result *r,
                          pl_err *err) {
    double start = pl_now();
    int    first, n;
    pl_slots_share(t->n_slots, pl_comm_rank(t->comm), pl_comm_ranks(t->comm), &first, &n);
    pl_slots_begin(slots);
    for (int s = 0; s < t->n_slots; s++) {
        if (s < first || s >= first + n) {
            if (t->skip) PL_TRY(t->skip(t, step, s, err));
            continue;
        }
        memset(r->sums, 0, sizeof r->sums);
        pl_param_block_zero_grad(t->block, &optim->ctx);
        PL_TRY(pl_ctx_sync(&optim->ctx, err)); // a slot's ops go another way
        PL_TRY(t->slot(t, step, s, r->sums, err));
        pl_slots_add(slots, &optim->ctx, t->block->grad, r->sums);
    }
    PL_TRY(pl_comm_sum(t->comm, &optim->ctx, t->block->grad, t->block->n, err));
    PL_TRY(pl_comm_sum_doubles(t->comm, r->sums, PL_SLOT_SUMS, err));
    double weight = r->sums[PL_SUM_WEIGHT];
    r->loss = weight > 0 ? r->sums[PL_SUM_LOSS] / weight : 0;
    if (!isfinite(r->loss))
        return pl_fail(err, PL_E_INPUT, "step %lld: the loss is not finite; lower train.lr or raise train.warmup",
                       (long long)step);
    r->lr = lr;
    PL_TRY(pl_optim_step(optim, lr, weight > 0 ? 1 / weight : 0, step, &r->grad_norm, err));
    r->tokens = r->sums[PL_SUM_TOKENS];
    r->seconds = pl_now() - start;
    return PL_OK;
}

static pl_status log_step(loop *l, const pl_step_result *r, pl_err *err) {
    double rate = r->seconds > 0 ? r->tokens / r->seconds : 0;
    pl_progress_update(&l->progress, l->step, "loss %.4f, %.0f tokens/s", r->loss, rate);
    if (l->step % l->o->log_every != 0 && l->step != l->o->steps) return PL_OK;
    pl_metrics_begin(&l->metrics, l->step);
    pl_metrics_num(&l->metrics, "loss", r->loss);
    pl_metrics_num(&l->metrics, "lr", r->lr);
    pl_metrics_num(&l->metrics, "grad_norm", r->grad_norm);
    pl_metrics_num(&l->metrics, "tokens", r->tokens);
    pl_metrics_num(&l->metrics, "tokens_per_second", rate);
    if (l->t->report) l->t->report(l->t, r->sums, &l->metrics);
    return pl_metrics_end(&l->metrics, err);
}

static pl_status evaluate(loop *l, pl_err *err) {
    double score = NAN;
    pl_metrics_begin(&l->metrics, l->step);
    PL_TRY(l->t->evaluate(l->t, l->step, &l->metrics, &score, err));
    PL_TRY(pl_metrics_end(&l->metrics, err));
    if (!(score > l->best_score) && !isnan(l->best_score)) return PL_OK;
    l->best_score = score;
    l->best_step = l->step;
    return save(l, l->best, false, err);
}

static bool due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

// What rank 0 alone does after a step: lines, evaluations, files.
static pl_status look_after(loop *l, const pl_step_result *r, bool last, bool stop, pl_err *err) {
    const pl_trainer_options *o = l->o;
    PL_TRY(log_step(l, r, err));
    if (l->t->evaluate && (last || due(l->step, o->eval_every))) PL_TRY(evaluate(l, err));
    if (!l->t->evaluate && last) PL_TRY(save(l, l->best, false, err));
    bool late = o->checkpoint_minutes > 0 && pl_now() - l->saved_at > 60 * o->checkpoint_minutes;
    return last || stop || late || due(l->step, o->checkpoint_every) ? save_last(l, err) : PL_OK;
}

static pl_status run_steps(loop *l, pl_err *err) {
    const pl_trainer_options *o = l->o;
    pl_step_result            r;
    while (l->step < o->steps) {
        double lr = pl_schedule_at(&o->schedule, l->step + 1);
        PL_TRY(pl_trainer_step(l->t, &l->slots, &l->optim, l->step + 1, lr, &r, err));
        l->step++;
        bool   last = l->step == o->steps;
        double asked = pl_stop_requested() || (o->stop_after > 0 && l->step >= o->stop_after);
        PL_TRY(pl_comm_sum_doubles(l->t->comm, &asked, 1, err)); // any of the ranks: its machine may be taken away
        bool stop = asked > 0 && !last;
        if (pl_comm_rank(l->t->comm) == 0) PL_TRY(look_after(l, &r, last, stop, err));
        if (stop)
            return pl_fail(err, PL_E_INTERRUPTED, "%s: stopped after step %lld of %lld; the same command goes on",
                           l->last, (long long)l->step, (long long)o->steps);
    }
    return PL_OK;
}

// No steps: what the task was given is the product.
static pl_status as_it_starts(loop *l, pl_err *err) {
    PL_TRY(l->t->evaluate ? evaluate(l, err) : save(l, l->best, false, err));
    return save_last(l, err);
}

// Ranks without a slot would only wait.
static pl_status check_shares(const pl_task *t, pl_err *err) {
    int ranks = pl_comm_ranks(t->comm), first, n;
    pl_slots_share(t->n_slots, 0, ranks, &first, &n);
    int shares = (t->n_slots + n - 1) / n;
    if (shares < ranks)
        return pl_fail(err, PL_E_USAGE,
                       "--ranks %d: a step has %d slot%s, shared in powers of two: %d to a rank, none for %d of them; "
                       "use --ranks %d or train.slots: %d",
                       ranks, t->n_slots, t->n_slots > 1 ? "s" : "", n, ranks - shares, shares, ranks * n);
    if (t->comm)
        pl_log("%s: %d rank%s, %d of %d slots each at most, joined by %s", t->name, ranks, ranks > 1 ? "s" : "", n,
               t->n_slots, pl_comm_transport(t->comm));
    return PL_OK;
}

// Every rank starts where rank 0 does.
static pl_status check_start(loop *l, pl_err *err) {
    const pl_task *t = l->t;
    pl_param_state parts;
    if (pl_comm_ranks(t->comm) == 1) return PL_OK;
    PL_TRY(pl_param_state_init(&parts, t->block, err));
    size_t   bytes = (size_t)t->block->n * pl_dtype_size(t->block->real);
    uint64_t h = pl_hash(t->identity, sizeof t->identity);
    h = pl_hash_more(pl_hash_more(h, &l->step, sizeof l->step), t->cursor, (size_t)t->n_cursor * sizeof *t->cursor);
    for (int i = 0; i < 3; i++)
        h = pl_hash_more(h, parts.part[i], bytes);
    pl_param_state_fini(&parts);
    uint64_t first = h;
    PL_TRY(pl_comm_broadcast(t->comm, &first, sizeof first, err));
    if (first == h) return PL_OK;
    return pl_fail(err, PL_E_INTERNAL,
                   "%s: step %lld: other weights than rank 0; did files change while they were read?", t->name,
                   (long long)l->step);
}

// What runs before this one left undone goes; the last checkpoint is put back where one died swapping it.
static pl_status take_folders(const loop *l, pl_err *err) {
    char *checkpoints = pl_path_join(l->o->out_dir, "checkpoints");
    if (!checkpoints) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    pl_status st = pl_dir_make(l->o->out_dir, err);
    if (st == PL_OK) st = pl_atomic_dir_recover(l->last, err);
    pl_dir_sweep(l->o->out_dir);
    pl_dir_sweep(checkpoints);
    pl_free(checkpoints);
    return st;
}

// Of another rank: the run is the same one, whatever its files are called there.
static pl_status same_run(const pl_task *t, pl_err *err) {
    char first[sizeof t->identity];
    memcpy(first, t->identity, sizeof first);
    PL_TRY(pl_comm_broadcast(t->comm, first, sizeof first, err));
    if (memcmp(first, t->identity, sizeof first) == 0) return PL_OK;
    first[sizeof first - 1] = 0;
    return pl_fail(err, PL_E_INPUT,
                   "%s: this rank would train %s, rank 0 trains %s; give all the same recipe, data and target", t->name,
                   t->identity, first);
}

// A part of rank 0's block to the others'.
static pl_status share_part(const pl_task *t, const void *mine, void *theirs, pl_err *err) {
    const pl_memory *m = t->block->memory;
    size_t           bytes = (size_t)t->block->n * pl_dtype_size(t->block->real);
    if (pl_comm_rank(t->comm) == 0) return pl_comm_broadcast(t->comm, (void *)(uintptr_t)mine, bytes, err);
    void *to = m ? pl_malloc(bytes) : theirs;
    if (!to) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    pl_status st = pl_comm_broadcast(t->comm, to, bytes, err);
    if (st == PL_OK && m) st = pl_memory_write(m, theirs, to, bytes, err);
    if (m) pl_free(to);
    return st;
}

// What rank 0 has read: the others need no file of it.
static pl_status share_state(loop *l, pl_err *err) {
    pl_task        *t = l->t;
    pl_param_block *b = t->block;
    pl_param_state  parts = {0};
    void           *theirs[3] = {b->w, b->m, b->v};
    bool            first = pl_comm_rank(t->comm) == 0;
    if (pl_comm_ranks(t->comm) == 1) return PL_OK;
    PL_TRY(same_run(t, err));
    PL_TRY(pl_comm_broadcast(t->comm, &l->saved_step, sizeof l->saved_step, err));
    if (l->saved_step < 0) return PL_OK; // a new run: all begin alike, which check_start sees
    l->step = l->saved_step;
    PL_TRY(pl_comm_broadcast(t->comm, t->cursor, (size_t)t->n_cursor * sizeof *t->cursor, err));
    pl_status st = first ? pl_param_state_init(&parts, b, err) : PL_OK;
    for (int i = 0; i < 3 && st == PL_OK; i++)
        st = share_part(t, parts.part[i], theirs[i], err);
    if (first) pl_param_state_fini(&parts);
    return st == PL_OK && !first ? pl_param_block_refresh(b, err) : st;
}

static pl_status open_state(loop *l, const char *path, pl_err *err) {
    const pl_task *t = l->t;
    if (pl_comm_rank(t->comm) == 0) {
        PL_TRY(take_folders(l, err));
        if (pl_path_exists(path)) {
            PL_TRY(read_state(l, path, err));
            l->saved_step = l->step;
        }
    }
    PL_TRY(share_state(l, err));
    if (l->saved_step < 0) return PL_OK;
    if (l->step < l->o->steps)
        pl_log("%s: goes on after step %lld of %lld", t->name, (long long)l->step, (long long)l->o->steps);
    else
        pl_log("%s: all %lld steps are done", t->name, (long long)l->step);
    return PL_OK;
}

static pl_status start(loop *l, pl_err *err) {
    pl_task   *t = l->t;
    char      *state = NULL, *metrics = NULL;
    pl_status  st;
    const char oom[] = "training: out of memory";
    l->last = pl_path_join(l->o->out_dir, "checkpoints/last");
    l->best = pl_path_join(l->o->out_dir, "checkpoints/best");
    metrics = pl_path_join(l->o->out_dir, "metrics.jsonl");
    if (l->last) state = pl_path_join(l->last, STATE_FILE);
    if (!l->last || !l->best || !metrics || !state) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s", oom));
    PL_TRY_GOTO(st, done, check_shares(t, err));
    PL_TRY_GOTO(st, done, open_state(l, state, err));
    PL_TRY_GOTO(st, done, pl_optim_init(&l->optim, t->backend, t->pool, t->block, &l->o->optim, err));
    int first, share;
    pl_slots_share(t->n_slots, pl_comm_rank(t->comm), pl_comm_ranks(t->comm), &first, &share);
    PL_TRY_GOTO(st, done, pl_slots_init(&l->slots, share, t->block->n, t->backend, err));
    PL_TRY_GOTO(st, done, check_start(l, err));
    if (pl_comm_rank(t->comm) == 0) PL_TRY_GOTO(st, done, pl_metrics_open(&l->metrics, metrics, t->name, l->step, err));
done:
    pl_free(state);
    pl_free(metrics);
    return st;
}

pl_status pl_trainer_run(pl_task *t, const pl_trainer_options *o, pl_err *err) {
    PL_CHECK(o->log_every >= 1 && o->steps >= 0, "log_every %lld, steps %lld", (long long)o->log_every,
             (long long)o->steps);
    loop      l = {.t = t, .o = o, .best_score = NAN, .saved_step = -1, .metrics = {.fd = -1}, .saved_at = pl_now()};
    pl_status st = start(&l, err);
    if (st == PL_OK && o->steps == 0 && l.saved_step < 0 && pl_comm_rank(t->comm) == 0) st = as_it_starts(&l, err);
    if (st == PL_OK && l.step < o->steps) {
        pl_progress_begin(&l.progress, t->name, l.step, o->steps);
        st = run_steps(&l, err);
        pl_progress_end(&l.progress);
    }
    pl_metrics_close(&l.metrics);
    pl_slots_fini(&l.slots);
    pl_optim_fini(&l.optim);
    pl_free(l.last);
    pl_free(l.best);
    return st;
}
