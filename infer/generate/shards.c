#include "infer/generate/shards.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"

// ---- the plan

void pl_shard_plan_fini(pl_shard_plan *p) {
    pl_free(p->first);
    pl_free(p->rows);
    *p = (pl_shard_plan){0};
}

static pl_status grow(pl_shard_plan *p, int64_t *cap, pl_err *err) {
    if (p->n + 1 < *cap) return PL_OK;
    *cap = *cap ? 2 * *cap : 64;
    int64_t *first = pl_realloc(p->first, (size_t)*cap * sizeof *first);
    if (first) p->first = first;
    int64_t *rows = first ? pl_realloc(p->rows, (size_t)*cap * sizeof *rows) : NULL;
    if (rows) p->rows = rows;
    return rows ? PL_OK : pl_fail(err, PL_E_MEMORY, "dataset: out of memory for %lld shards", (long long)*cap);
}

pl_status pl_shard_plan_make(pl_shard_plan *p, const pl_generator *g, int64_t rows_per_shard, pl_err *err) {
    int64_t jobs = pl_generator_jobs(g), cap = 0;
    PL_CHECK(jobs >= 0, "a plan for rounds without end");
    *p = (pl_shard_plan){0};
    PL_TRY(grow(p, &cap, err));
    p->first[0] = 0;
    for (int64_t j = 0; j < jobs; j++) {
        int64_t rows = pl_generator_rows(g, j);
        if (p->n > 0 && p->rows[p->n - 1] + rows <= rows_per_shard) {
            p->rows[p->n - 1] += rows;
        } else {
            PL_TRY(grow(p, &cap, err));
            p->rows[p->n++] = rows;
        }
        p->first[p->n] = j + 1;
    }
    return PL_OK;
}

static int64_t shard_of(const pl_shard_plan *p, int64_t job) {
    int64_t lo = 0, hi = p->n;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (p->first[mid] <= job)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

// ---- shares

// Returns the end of the unit that begins with entry `at` of the list: adjacent shards that a conversation spans.
static int64_t unit_end(const pl_shard_share *s, int64_t at) {
    int64_t end = at + 1;
    while (end < s->n && s->shard[end] == s->shard[end - 1] + 1 && (!s->group || s->group[end] == s->group[at]) &&
           !pl_generator_begins(s->g, s->plan->first[s->shard[end]]))
        end++;
    return end;
}

// Finds this rank's next unit from *at on, before `end`.
static bool next_unit(const pl_shard_share *s, int64_t *at, int64_t *units, int64_t end, pl_jobs *range) {
    while (*at < end) {
        int64_t from = *at;
        *at = unit_end(s, from);
        if ((*units)++ % s->ranks != s->rank) continue;
        *range = (pl_jobs){s->plan->first[s->shard[from]], s->plan->first[s->shard[*at - 1] + 1]};
        return true;
    }
    return false;
}

bool pl_shard_share_next(void *share, pl_jobs *range) {
    pl_shard_share *s = share;
    return next_unit(s, &s->at, &s->units, s->n, range);
}

// Returns the number of documents that this rank has yet to write.
static int64_t docs_left(const pl_shard_share *share) {
    pl_jobs r;
    int64_t docs = 0, at = share->made, units = share->made_units;
    while (next_unit(share, &at, &units, share->end, &r))
        docs += r.end - r.first;
    return docs;
}

// Skips the rest of the list before `end`, units of other ranks that the generator may not have passed yet.
static void pass(pl_shard_share *s) {
    while (s->made < s->end)
        s->made = unit_end(s, s->made), s->made_units++;
    if (s->at >= s->made) return;
    s->at = s->made;
    s->units = s->made_units;
}

// ---- writing

static pl_status append(pl_shard_share *s, pl_generator *g, pl_dataset_writer *w, const pl_columns *doc, pl_err *err) {
    int64_t number = pl_generator_number(g), shard = shard_of(s->plan, number);
    if (number == s->plan->first[shard]) PL_TRY(pl_dataset_writer_shard(w, shard, err));
    return pl_dataset_append(w, doc, err);
}

pl_status pl_shards_write(pl_shard_share *s, pl_generator *g, pl_dataset_writer *w, pl_comm *comm, int64_t done,
                          pl_err *err) {
    pl_progress p;
    pl_columns  doc;
    int64_t     left = docs_left(s), all = done + left, tokens = 0;
    pl_status   st = PL_OK;
    pl_dataset_writer_expect(w, s->plan->n);
    pl_stop_hold();
    pl_progress_begin(&p, "generate", done, all);
    for (; left > 0 && st == PL_OK; left--) {
        st = pl_generator_next(g, &doc, err);
        if (st != PL_OK) break;
        st = append(s, g, w, &doc, err);
        tokens++; // the last token, which has no row
        for (int64_t t = 0; t < doc.n; t++)
            tokens += doc.loss_mask[t];
        pl_progress_update(&p, ++done, "%lld tokens", (long long)tokens);
        if (st == PL_OK && !s->through && pl_stop_requested())
            st = pl_fail(err, PL_E_INTERRUPTED, "stopped after %lld of %lld answers; run the same command to go on",
                         (long long)done, (long long)all);
        if (st == PL_OK) st = pl_comm_check(comm, err);
    }
    pl_progress_end(&p);
    if (st == PL_OK) st = pl_dataset_flush(w, err);
    pl_stop_release();
    if (st == PL_OK) pass(s);
    return st;
}
