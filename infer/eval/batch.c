#include "infer/eval/batch.h"

#include "kernels/base/hash.h"
#include "kernels/base/log.h"

pl_status pl_batch_work_init(pl_batch_work *w, int64_t room, pl_err *err) {
    size_t n = (size_t)room;
    *w = (pl_batch_work){.question = pl_malloc(n * sizeof *w->question),
                         .prompt = pl_malloc(n * sizeof *w->prompt),
                         .prompt_n = pl_malloc(n * sizeof *w->prompt_n),
                         .sampling = pl_malloc(n * sizeof *w->sampling),
                         .hash = pl_malloc(n * sizeof *w->hash),
                         .latency = pl_malloc(2 * n * sizeof *w->latency)};
    bool all = w->question && w->prompt && w->prompt_n && w->sampling && w->hash && w->latency;
    return all ? PL_OK : pl_fail(err, PL_E_MEMORY, "batches: out of memory");
}

void pl_batch_work_fini(pl_batch_work *w) {
    pl_free(w->question);
    pl_free(w->prompt);
    pl_free(w->prompt_n);
    pl_free(w->sampling);
    pl_free(w->hash);
    pl_free(w->latency);
    *w = (pl_batch_work){0};
}

// A session in progress and the index of its prompt.
typedef struct slot {
    pl_session *session; // NULL: free
    int64_t     prompt;
} slot;

static pl_status start(pl_runner *r, const pl_batch_work *w, int64_t i, slot *s, pl_err *err) {
    pl_session_options o = {.sampling = w->sampling[i], .max_new = w->max_new, .n_stop = r->target->n_stop};
    for (int k = 0; k < o.n_stop; k++)
        o.stop[k] = r->target->stop[k];
    s->prompt = i;
    return pl_engine_start(r->engine, w->prompt[i], (int)w->prompt_n[i], &o, &s->session, err);
}

static void finish(pl_runner *r, const pl_batch_work *w, slot *s, pl_batched *b, uint64_t *hash, double *latency) {
    const pl_session_stats *stats = pl_session_statistics(s->session);
    int32_t                 n;
    const int32_t          *tokens = pl_session_answer(s->session, &n);
    pl_stats_add(&b->stats, stats);
    b->answers++;
    if (hash) hash[s->prompt] = pl_hash(tokens, (size_t)n * sizeof *tokens);
    if (latency) {
        latency[s->prompt] = stats->prefill_seconds;
        latency[w->n + s->prompt] = pl_ratio(stats->seconds, (double)stats->emitted);
    }
    pl_engine_end(r->engine, s->session);
    s->session = NULL;
}

static pl_status run(pl_runner *r, const pl_batch_work *w, slot *slots, pl_batched *b, uint64_t *hash, double *latency,
                     pl_err *err) {
    int64_t next = 0, done = 0;
    while (done < w->n) {
        if (pl_stop_requested())
            return pl_fail(err, PL_E_INTERRUPTED, "interrupted after %lld prompts", (long long)done);
        for (int k = 0; k < b->sessions && next < w->n; k++)
            if (!slots[k].session) PL_TRY(start(r, w, next++, &slots[k], err));
        PL_TRY(pl_engine_step(r->engine, err));
        for (int k = 0; k < b->sessions; k++) {
            if (!slots[k].session || pl_session_finish(slots[k].session) == PL_RUNNING) continue;
            finish(r, w, &slots[k], b, hash, latency);
            done++;
        }
    }
    return PL_OK;
}

pl_status pl_batch_run(pl_runner *r, const pl_batch_work *w, pl_batched *b, uint64_t *hash, double *latency,
                       pl_err *err) {
    slot *slots = pl_calloc((size_t)b->sessions, sizeof *slots);
    if (!slots) return pl_fail(err, PL_E_MEMORY, "batch: out of memory");
    double    from = pl_now();
    pl_status st = run(r, w, slots, b, hash, latency, err);
    b->seconds += pl_now() - from;
    pl_free(slots);
    return st;
}

pl_status pl_batch_warm_up(pl_runner *r, const pl_batch_work *w, int sessions, int most, pl_err *err) {
    pl_batch_work few = *w;
    pl_batched    b = {.sessions = sessions};
    if (few.n > sessions) few.n = sessions;
    if (few.max_new > most) few.max_new = most;
    return pl_batch_run(r, &few, &b, NULL, NULL, err);
}

const pl_batched *pl_batch_base(const pl_results *r, const pl_batched *b) {
    int base = r->method[b->method].base;
    for (int i = 0; i < r->n_batched && b->method != base; i++)
        if (r->batched[i].sessions == b->sessions && r->batched[i].method == base) return &r->batched[i];
    return NULL;
}

double pl_batch_speed(const pl_batched *b) {
    return pl_ratio((double)(b->stats.emitted + b->answers), b->seconds);
}
