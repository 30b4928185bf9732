#include "train/loop/trainer.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "kernels/base/room.h"
#include "kernels/comm/reader.h"
#include "kernels/flops.h"
#include "kernels/profile.h"
#include "train/loop/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SKIPPED_FILE "skipped.jsonl" // next to metrics.jsonl

typedef struct loop {
    pl_task                  *t;
    const pl_trainer_options *o;
    pl_metrics                metrics, skipped; // skipped: of steps that did not count
    pl_reduce                 reduce;
    pl_optim                  optim;
    pl_progress               progress;
    pl_watch                  watch;
    pl_checkpoints            files;
    pl_run_state              at;
    double                    saved_at; // time of the last checkpoint
} loop;

// ---- a step

static void note_slot(pl_guard *g, const pl_task *t, int slot) {
    if (!g) return;
    if (t->n_cursor > 0)
        memcpy(g->cursor + (size_t)slot * (size_t)t->n_cursor, t->cursor, (size_t)t->n_cursor * sizeof *t->cursor);
    if (slot == t->n_slots) return;
    g->loss[slot] = g->weight[slot] = 0;
}

// Runs this rank's slots of a step and sums all ranks' gradients; sums: the scalars of this rank's. g records the data
// that they read (NULL: not recorded).
static pl_status run_slots(pl_task *t, pl_reduce *reduce, pl_optim *optim, pl_guard *g, int64_t step, double *sums,
                           pl_err *err) {
    int first, n;
    pl_slots_share(t->n_slots, pl_comm_rank(t->comm), pl_comm_ranks(t->comm), &first, &n);
    double from = pl_now();
    if (t->begin) PL_TRY(t->begin(t, step, err));
    t->waited += pl_now() - from;
    pl_slots_begin(&reduce->slots);
    for (int s = 0; s < t->n_slots; s++) {
        note_slot(g, t, s);
        if (s < first || s >= first + n) {
            from = pl_now();
            if (t->skip) PL_TRY(t->skip(t, step, s, err));
            t->waited += pl_now() - from;
            continue;
        }
        memset(sums, 0, PL_SLOT_SUMS * sizeof *sums);
        pl_profile_phase("gradients to zero");
        pl_param_block_zero_grad(t->block, &optim->ctx);
        PL_TRY(pl_ctx_sync(&optim->ctx, err)); // a slot's ops run on another context
        pl_reduce_open(reduce);
        pl_profile_phase("forward");
        pl_status st = t->slot(t, step, s, sums, err);
        if (g) g->loss[s] = sums[PL_SUM_LOSS];
        if (g) g->weight[s] = sums[PL_SUM_WEIGHT];
        PL_TRY(pl_reduce_add(reduce, &optim->ctx, sums, st, err));
    }
    note_slot(g, t, t->n_slots);
    return PL_OK;
}

// Decides whether the step counts. A step that is not finite ends the run unless the guard skips it.
static pl_status judge_step(pl_guard *g, pl_step_result *r, int64_t step, pl_err *err) {
    bool finite = isfinite(r->loss) && isfinite(r->grad_norm);
    r->skipped[0] = 0;
    if (!finite && !(g && g->o.nonfinite))
        return pl_fail(err, PL_E_INPUT, "step %lld: the %s is not finite; lower train.lr or raise train.warmup",
                       (long long)step, isfinite(r->loss) ? "gradient" : "loss");
    r->counts = !g || pl_guard_counts(g, r->loss, r->grad_norm, r->sums[PL_SUM_WEIGHT], r->skipped);
    return PL_OK;
}

// Sets this rank's counts of a step: the current ones less those before it.
static void count_own(const pl_task *t, const pl_comm_counts *before, double waited, pl_step_result *r) {
    pl_comm_counts now = pl_comm_counted(t->comm);
    r->own[PL_WATCH_SECONDS] = r->seconds;
    r->own[PL_WATCH_DATA] = t->waited - waited;
    r->own[PL_WATCH_RANKS] = now.seconds - before->seconds;
    r->own[PL_WATCH_SENT] = (double)(now.sent - before->sent);
}

pl_status pl_trainer_step(pl_task *t, pl_reduce *reduce, pl_optim *optim, pl_guard *g, int64_t step, double lr,
                          pl_step_result *r, pl_err *err) {
    double         start = pl_now(), waited = t->waited, flops = pl_flops_counted();
    pl_comm_counts before = pl_comm_counted(t->comm);
    PL_TRY(run_slots(t, reduce, optim, g, step, r->sums, err));
    r->own[PL_WATCH_TOKENS] = r->sums[PL_SUM_TOKENS];
    r->own[PL_WATCH_FLOPS] = pl_flops_counted() - flops;
    PL_TRY(pl_comm_sum_doubles(t->comm, r->sums, PL_SLOT_SUMS, err));
    double weight = r->sums[PL_SUM_WEIGHT], scale = weight > 0 ? 1 / weight : 0;
    r->loss = weight > 0 ? r->sums[PL_SUM_LOSS] / weight : isfinite(weight) ? 0 : NAN;
    r->lr = lr;
    r->tokens = r->sums[PL_SUM_TOKENS];
    pl_profile_phase("optimizer");
    PL_TRY(pl_optim_norm(optim, scale, &r->grad_norm, err));
    PL_TRY(judge_step(g, r, step, err));
    // Moments are corrected by the number of updates, which excludes skipped steps.
    int64_t skipped = g ? pl_guard_skipped(g) : 0;
    if (r->counts) PL_TRY(pl_optim_update(optim, lr, scale, r->grad_norm, step - skipped, err));
    r->seconds = pl_now() - start;
    count_own(t, &before, waited, r);
    return PL_OK;
}

// Opens a file of lines in the run's folder, cut back to the run's step.
static pl_status open_lines(const loop *l, pl_metrics *m, const char *name, pl_err *err) {
    char     *path = pl_path_join(l->o->out_dir, name);
    pl_status st = path ? pl_metrics_open(m, path, l->t->name, l->at.step, err)
                        : pl_fail(err, PL_E_MEMORY, "training: out of memory");
    pl_free(path);
    return st;
}

static double rate_of(const pl_step_result *r, int sum) {
    return r->seconds > 0 ? r->sums[sum] / r->seconds : 0;
}

static bool line_due(const loop *l) {
    return l->at.step % l->o->log_every == 0 || l->at.step == l->o->steps;
}

// Every rank counts; rank 0 shows progress, the others log to their own destination (pl_log_to).
static pl_status watch_step(loop *l, const pl_step_result *r, pl_err *err) {
    pl_progress_update(&l->progress, l->at.step, "loss %.4f, %.0f tokens/s", r->loss, rate_of(r, PL_SUM_TOKENS));
    pl_watch_step(&l->watch, r->own);
    return line_due(l) ? pl_watch_collect(&l->watch, err) : PL_OK;
}

static pl_status log_step(loop *l, const pl_step_result *r, pl_err *err) {
    if (!line_due(l)) return PL_OK;
    pl_metrics_begin(&l->metrics, l->at.step);
    pl_metrics_num(&l->metrics, "loss", r->loss);
    pl_metrics_num(&l->metrics, "lr", r->lr);
    pl_metrics_num(&l->metrics, "grad_norm", r->grad_norm);
    pl_metrics_num(&l->metrics, "tokens", r->tokens);
    pl_metrics_num(&l->metrics, "tokens_per_second", rate_of(r, PL_SUM_TOKENS));
    if (l->t->supervised) pl_metrics_num(&l->metrics, "supervised_tokens_per_second", rate_of(r, PL_SUM_SUPERVISED));
    pl_watch_report(&l->watch, &l->metrics);
    if (pl_guard_skipped(&l->at.guard) > 0) pl_metrics_int(&l->metrics, "skipped", pl_guard_skipped(&l->at.guard));
    if (l->t->report) l->t->report(l->t, r->sums, &l->metrics);
    return pl_metrics_end(&l->metrics, err);
}

static pl_status run_evaluation(loop *l, pl_err *err) {
    double score = NAN;
    pl_metrics_begin(&l->metrics, l->at.step);
    PL_TRY(l->t->evaluate(l->t, l->at.step, &l->metrics, &score, err));
    PL_TRY(pl_metrics_end(&l->metrics, err));
    if (!(score > l->at.best_score) && !isnan(l->at.best_score)) return PL_OK;
    l->at.best_score = score;
    l->at.best_step = l->at.step;
    return pl_checkpoints_save_best(&l->files, err);
}

static bool is_due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

// Rank 0 after a step: lines and evaluations. *save: a checkpoint is due.
static pl_status look_after(loop *l, const pl_step_result *r, bool last, bool stop, bool *save, pl_err *err) {
    const pl_trainer_options *o = l->o;
    PL_TRY(log_step(l, r, err));
    if (l->t->evaluate && (last || is_due(l->at.step, o->eval_every))) PL_TRY(run_evaluation(l, err));
    if (!l->t->evaluate && last) PL_TRY(pl_checkpoints_save_best(&l->files, err));
    bool late = o->checkpoint_minutes > 0 && pl_now() - l->saved_at > 60 * o->checkpoint_minutes;
    *save = last || stop || late || is_due(l->at.step, o->checkpoint_every);
    return PL_OK;
}

// Rank 0 has decided; if each rank holds a piece of the block, all contribute theirs.
static pl_status save_state(loop *l, bool wanted, pl_err *err) {
    const pl_task *t = l->t;
    uint8_t        first = wanted;
    if (t->block->shard.ranks > 1) PL_TRY(pl_comm_broadcast(t->comm, &first, sizeof first, err));
    pl_reader in = pl_reader_of(0, "whether it saves", &first, sizeof first, err);
    wanted = pl_reader_byte(&in, "it", 1);
    PL_TRY(in.status);
    if (!wanted) return PL_OK;
    l->saved_at = pl_now();
    return pl_checkpoints_save(&l->files, &l->at, err);
}

// ---- steps that do not count

static void put_cursor(pl_json_out *o, const char *key, const int64_t *at, int n) {
    pl_json_out_key(o, key);
    pl_json_out_array(o);
    for (int i = 0; i < n; i++)
        pl_json_out_int(o, at[i]);
    pl_json_out_close(o, ']');
}

static void put_slot(pl_json_out *o, pl_task *t, const pl_guard *g, int64_t step, int slot) {
    const int64_t *from = g->cursor + (size_t)slot * (size_t)t->n_cursor, *to = from + t->n_cursor;
    pl_json_out_object(o);
    pl_json_out_key(o, "slot");
    pl_json_out_int(o, slot);
    pl_json_out_key(o, "loss");
    pl_json_out_num(o, g->weight[slot] > 0 ? g->loss[slot] / g->weight[slot] : g->loss[slot]);
    if (t->place) {
        t->place(t, step, slot, from, to, o);
    } else {
        put_cursor(o, "from", from, t->n_cursor);
        put_cursor(o, "to", to, t->n_cursor);
    }
    pl_json_out_close(o, '}');
}

static pl_status write_skipped(loop *l, const pl_step_result *r, pl_err *err) {
    pl_metrics *m = &l->skipped;
    if (m->fd < 0) PL_TRY(open_lines(l, m, SKIPPED_FILE, err));
    pl_metrics_begin(m, l->at.step);
    pl_json_out_key(&m->line, "why");
    pl_json_out_str(&m->line, r->skipped);
    pl_metrics_num(m, "loss", r->loss);
    pl_metrics_num(m, "grad_norm", r->grad_norm);
    pl_json_out_key(&m->line, "slots");
    pl_json_out_array(&m->line);
    for (int s = 0; s < l->t->n_slots; s++)
        put_slot(&m->line, l->t, &l->at.guard, l->at.step, s);
    pl_json_out_close(&m->line, ']');
    pl_log_warn("step %lld does not count: %s; %s says what it read", (long long)l->at.step, r->skipped, m->path);
    return pl_metrics_end(m, err);
}

// All ranks, after a step that did not count.
static pl_status tell_skipped(loop *l, const pl_step_result *r, pl_err *err) {
    const pl_guard *g = &l->at.guard;
    // Each slot's loss and weight, from the rank that worked on it.
    PL_TRY(pl_comm_sum_doubles(l->t->comm, l->at.guard.loss, l->t->n_slots, err));
    PL_TRY(pl_comm_sum_doubles(l->t->comm, l->at.guard.weight, l->t->n_slots, err));
    if (pl_comm_rank(l->t->comm) == 0) PL_TRY(write_skipped(l, r, err));
    if (g->o.in_a_row == 0 || pl_guard_in_a_row(g) < g->o.in_a_row) return PL_OK;
    return pl_fail(err, PL_E_INPUT,
                   "step %lld: %lld steps in a row did not count, of this one %s; look at what " SKIPPED_FILE
                   " names, lower train.lr or raise train.warmup",
                   (long long)l->at.step, (long long)pl_guard_in_a_row(g), r->skipped);
}

// ---- the loop

static pl_status run_steps(loop *l, pl_err *err) {
    const pl_trainer_options *o = l->o;
    pl_step_result            r;
    while (l->at.step < o->steps) {
        double lr = pl_schedule_at(&o->schedule, l->at.step + 1);
        PL_TRY(pl_trainer_step(l->t, &l->reduce, &l->optim, &l->at.guard, l->at.step + 1, lr, &r, err));
        l->at.step++;
        if (!r.counts) PL_TRY(tell_skipped(l, &r, err));
        PL_TRY(watch_step(l, &r, err));
        bool   last = l->at.step == o->steps, wanted = false;
        double asked = pl_stop_requested() || (o->stop_after > 0 && l->at.step >= o->stop_after);
        PL_TRY(pl_comm_sum_doubles(l->t->comm, &asked, 1, err)); // any rank: its machine may be taken away
        bool stop = asked > 0 && !last;
        if (pl_comm_rank(l->t->comm) == 0) PL_TRY(look_after(l, &r, last, stop, &wanted, err));
        PL_TRY(save_state(l, wanted, err));
        if (stop) PL_TRY(pl_comm_barrier(l->t->comm, err)); // the launcher may end the others as soon as one exits
        if (stop)
            return pl_fail(err, PL_E_INTERRUPTED, "%s: stopped after step %lld of %lld; the same command goes on",
                           l->files.last, (long long)l->at.step, (long long)o->steps);
    }
    return PL_OK;
}

// All ranks measure their own peak memory; rank 0 logs it.
static void report_memory(const loop *l) {
    const pl_param_block *b = l->t->block;
    int                   ranks = pl_comm_ranks(l->t->comm), most = 0, least = 0;
    double                peak[PL_RANKS_MAX] = {0}, each = 3 * (double)pl_dtype_size(b->real);
    char                  text[4][32];
    if (ranks == 1 || pl_comm_rank(l->t->comm) > 0) return;
    for (int r = 0; r < ranks; r++) // as collected at the last step
        peak[r] = l->watch.all[r * PL_WATCH_FIGURES + PL_WATCH_MEMORY];
    if (peak[0] == 0) return; // no step was run
    for (int r = 1; r < ranks; r++) {
        if (peak[r] > peak[most]) most = r;
        if (peak[r] < peak[least]) least = r;
    }
    pl_memory_words(each * (double)b->held, text[0]);
    pl_memory_words(each * (double)b->n, text[1]);
    pl_memory_words(peak[most], text[2]);
    pl_memory_words(peak[least], text[3]);
    pl_log("%s: %s of %s of masters and moments on a rank; memory held at most: %s by rank %d, %s by rank %d",
           l->t->name, text[0], text[1], text[2], most, text[3], least);
}

// No steps: the product is the model as the task received it.
static pl_status as_it_starts(loop *l, pl_err *err) {
    if (pl_comm_rank(l->t->comm) == 0)
        PL_TRY(l->t->evaluate ? run_evaluation(l, err) : pl_checkpoints_save_best(&l->files, err));
    return save_state(l, pl_comm_rank(l->t->comm) == 0, err);
}

// Refuses ranks without a slot, which would only wait.
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

// Hashes the held part of the block; of a sharded block the working copy, which all ranks have.
static pl_status hash_block(const pl_param_block *b, uint64_t *h, pl_err *err) {
    enum { PART = 1 << 12 };
    double    room[PART];
    size_t    each = pl_dtype_size(b->real);
    bool      sharded = b->shard.ranks > 1;
    pl_status st = PL_OK;
    for (int part = 0; part < (sharded ? 1 : PL_BLOCK_PARTS); part++)
        for (int64_t at = 0; at < b->n && st == PL_OK; at += PART) {
            int64_t n = b->n - at < PART ? b->n - at : PART;
            st = sharded
                     ? pl_memory_read(b->memory, room, (uint8_t *)b->work + (size_t)at * each, (size_t)n * each, err)
                     : pl_param_block_take(b, part, at, n, room, err);
            if (st == PL_OK) *h = pl_hash_more(*h, room, (size_t)n * each);
        }
    return st;
}

// Checks that every rank starts from rank 0's values.
static pl_status check_start(loop *l, pl_err *err) {
    const pl_task *t = l->t;
    if (pl_comm_ranks(t->comm) == 1) return PL_OK;
    uint64_t h = pl_hash(t->identity, sizeof t->identity);
    h = pl_hash_more(h, &l->at.step, sizeof l->at.step);
    h = pl_hash_more(h, t->cursor, (size_t)t->n_cursor * sizeof *t->cursor);
    PL_TRY(hash_block(t->block, &h, err));
    uint64_t first = h;
    PL_TRY(pl_comm_broadcast(t->comm, &first, sizeof first, err));
    if (first == h) return PL_OK;
    return pl_fail(err, PL_E_INTERNAL,
                   "%s: step %lld: other weights than rank 0; did files change while they were read?", t->name,
                   (long long)l->at.step);
}

static pl_status resume_run(loop *l, pl_err *err) {
    const pl_task *t = l->t;
    PL_TRY(pl_checkpoints_init(&l->files, l->t, l->o, err));
    PL_TRY(pl_guard_init(&l->at.guard, &l->o->guard, t->n_slots, t->n_cursor, err));
    PL_TRY(pl_checkpoints_resume(&l->files, &l->at, err));
    if (l->files.saved < 0) return PL_OK;
    if (l->at.step < l->o->steps)
        pl_log("%s: goes on after step %lld of %lld", t->name, (long long)l->at.step, (long long)l->o->steps);
    else
        pl_log("%s: all %lld steps are done", t->name, (long long)l->at.step);
    return PL_OK;
}

// Opens rank 0's files of lines, each cut back to the step that the run resumes from.
static pl_status open_files(loop *l, pl_err *err) {
    char *path = pl_path_join(l->o->out_dir, SKIPPED_FILE);
    if (!path) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    bool there = pl_path_exists(path);
    pl_free(path);
    if (there) PL_TRY(open_lines(l, &l->skipped, SKIPPED_FILE, err));
    PL_TRY(open_lines(l, &l->metrics, "metrics.jsonl", err));
    pl_metrics_watch(&l->metrics, l->o->out_dir);
    return PL_OK;
}

static pl_status start_run(loop *l, pl_err *err) {
    pl_task         *t = l->t;
    pl_optim_options o = l->o->optim;
    int              first, share;
    o.comm = t->comm;
    PL_TRY(check_shares(t, err));
    PL_TRY(resume_run(l, err));
    PL_TRY(pl_optim_init(&l->optim, t->backend, t->pool, t->block, &o, err));
    pl_slots_share(t->n_slots, pl_comm_rank(t->comm), pl_comm_ranks(t->comm), &first, &share);
    PL_TRY(pl_reduce_init(&l->reduce, share, t->block, t->comm, t->tape, t->backend, err));
    PL_TRY(pl_watch_init(&l->watch, t->comm, err));
    PL_TRY(check_start(l, err));
    return pl_comm_rank(t->comm) == 0 ? open_files(l, err) : PL_OK;
}

static pl_status run_task(loop *l, pl_err *err) {
    PL_TRY(start_run(l, err));
    if (l->o->steps == 0 && l->files.saved < 0) return as_it_starts(l, err);
    if (l->at.step >= l->o->steps) return PL_OK;
    pl_stop_hold();
    pl_progress_begin(&l->progress, l->t->name, l->at.step, l->o->steps);
    pl_status st = run_steps(l, err);
    pl_progress_end(&l->progress);
    pl_stop_release();
    if (st == PL_OK) report_memory(l);
    return st;
}

pl_status pl_trainer_run(pl_task *t, const pl_trainer_options *o, pl_err *err) {
    PL_CHECK(o->log_every >= 1 && o->steps >= 0, "log_every %lld, steps %lld", (long long)o->log_every,
             (long long)o->steps);
    loop *l = pl_calloc(1, sizeof *l); // too large for a small stack
    if (!l) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    l->t = t;
    l->o = o;
    l->metrics.fd = l->skipped.fd = -1;
    l->saved_at = pl_now();
    l->at.best_score = NAN;
    pl_status st = run_task(l, err);
    pl_metrics_close(&l->metrics);
    pl_metrics_close(&l->skipped);
    pl_watch_fini(&l->watch);
    pl_reduce_fini(&l->reduce);
    pl_optim_fini(&l->optim);
    pl_checkpoints_fini(&l->files);
    pl_guard_fini(&l->at.guard);
    pl_free(l);
    return st;
}
