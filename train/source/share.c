#include "train/source/share.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/comm/reader.h"
#include "train/source/carry.h"

#include <string.h>

// A known document, from `base` on: its length and the rank that made it.
typedef struct entry {
    int64_t    n;
    int        owner;
    bool       here;
    pl_columns doc; // its own columns
} entry;

// Iterates over units, starting at a job.
typedef struct walk {
    int64_t job, units;
} walk;

struct pl_doc_share {
    const pl_env        *env;
    const pl_llama      *target;
    const pl_tokenizer  *tok;
    const pl_prompts    *prompts;
    pl_generator_options opt;
    pl_generator        *g;
    pl_columns_shape     shape;
    walk                 ahead, told; // of the own generator; of the lengths that all ranks have
    int64_t              base;        // documents [base, told.job) are known
    entry               *entry;
    int64_t              cap;
    pl_doc_span          gathered; // documents available without the other ranks
};

static int ranks_of(const pl_doc_share *s) {
    return pl_comm_ranks(s->env->comm);
}

static int rank_of(const pl_doc_share *s) {
    return pl_comm_rank(s->env->comm);
}

// Returns the rank of the next unit, and the unit.
static int step_unit(const pl_doc_share *s, walk *w, pl_jobs *unit) {
    *unit = (pl_jobs){w->job, pl_generator_unit_end(s->g, w->job)};
    w->job = unit->end;
    return (int)(w->units++ % ranks_of(s));
}

static bool next_own(void *arg, pl_jobs *range) {
    pl_doc_share *s = arg;
    while (step_unit(s, &s->ahead, range) != rank_of(s))
        ;
    return true;
}

// ---- beginning

static void drop_before(pl_doc_share *s, int64_t at) {
    int64_t n = s->told.job - s->base, gone = at - s->base < n ? at - s->base : n;
    for (int64_t i = 0; i < gone; i++)
        pl_columns_free(&s->entry[i].doc);
    if (gone > 0) memmove(s->entry, s->entry + gone, (size_t)(n - gone) * sizeof *s->entry);
    s->base += gone;
}

static pl_status start_at(pl_doc_share *s, int64_t at, pl_err *err) {
    drop_before(s, s->told.job);
    pl_generator_destroy(s->g);
    s->g = NULL;
    s->base = at;
    s->ahead = s->told = (walk){.job = at};
    return pl_generator_create(&s->g, s->env, s->target, s->tok, s->prompts, &s->opt, err);
}

pl_status pl_doc_share_create(pl_doc_share **out, const pl_env *env, const pl_llama *target, const pl_tokenizer *tok,
                              const pl_prompts *prompts, const pl_generator_options *o, pl_err *err) {
    pl_doc_share *s = pl_calloc(1, sizeof *s);
    *out = s;
    if (!s) return pl_fail(err, PL_E_MEMORY, "online data: out of memory");
    *s = (pl_doc_share){.env = env, .target = target, .tok = tok, .prompts = prompts, .opt = *o};
    s->opt.work = (pl_generator_work){next_own, s};
    s->shape = (pl_columns_shape){.d = target->shape.d, .taps = o->n_taps};
    return PL_OK;
}

void pl_doc_share_destroy(pl_doc_share *s) {
    if (!s) return;
    drop_before(s, s->told.job);
    pl_generator_destroy(s->g);
    pl_free(s->entry);
    pl_free(s);
}

// ---- generation

static pl_status add_entry(pl_doc_share *s, int64_t at, int owner, pl_err *err) {
    int64_t i = at - s->base;
    if (i >= s->cap) {
        int64_t cap = s->cap ? 2 * s->cap : 64;
        entry  *p = pl_realloc(s->entry, (size_t)cap * sizeof *p);
        if (!p) return pl_fail(err, PL_E_MEMORY, "online data: out of memory");
        s->entry = p;
        s->cap = cap;
    }
    s->entry[i] = (entry){.owner = owner};
    return PL_OK;
}

static pl_status answer_document(pl_doc_share *s, int64_t at, pl_err *err) {
    pl_columns doc;
    entry     *e = &s->entry[at - s->base];
    PL_TRY(pl_generator_next(s->g, &doc, err));
    PL_CHECK(doc.n > 0 && pl_generator_number(s->g) == at, "document %lld is another one", (long long)at);
    PL_TRY(pl_columns_copy(&e->doc, &doc, &s->shape, doc.n, err));
    e->doc.n = e->n = doc.n;
    e->doc.about = NULL;
    e->here = true;
    return PL_OK;
}

// Takes the lengths of the documents in [from, to) that `rank` has made.
static pl_status take_lengths(pl_doc_share *s, int rank, int64_t from, int64_t to, const uint8_t *data, size_t n,
                              pl_err *err) {
    pl_reader in = pl_reader_of(rank, "the lengths of its documents", data, n, err);
    for (int64_t j = from; j < to && in.status == PL_OK; j++) {
        entry *e = &s->entry[j - s->base];
        if (e->owner == rank) e->n = pl_reader_int(&in, "a length", 1, pl_generator_rows(s->g, j));
    }
    return pl_reader_end(&in);
}

// Exchanges all ranks' lengths of the documents [from, to).
static pl_status share_lengths(pl_doc_share *s, int64_t from, int64_t to, pl_err *err) {
    size_t   bytes[PL_RANKS_MAX], n = 0;
    uint8_t *all;
    int64_t *mine = pl_malloc((size_t)(to - from + 1) * sizeof *mine);
    if (!mine) return pl_fail(err, PL_E_MEMORY, "online data: out of memory");
    for (int64_t j = from; j < to; j++)
        if (s->entry[j - s->base].owner == rank_of(s)) mine[n++] = s->entry[j - s->base].n;
    pl_status st =
        pl_comm_gather(s->env->comm, mine, n * sizeof *mine, (size_t)(to - from) * sizeof *mine, &all, bytes, err);
    pl_free(mine);
    PL_TRY(st);
    const uint8_t *at = all;
    for (int r = 0; r < ranks_of(s) && st == PL_OK; at += bytes[r++])
        st = take_lengths(s, r, from, to, at, bytes[r], err);
    pl_free(all);
    return st;
}

// Generates one unit on each rank.
static pl_status answer_more(pl_doc_share *s, pl_err *err) {
    int64_t from = s->told.job;
    walk    w = s->told;
    for (int i = 0; i < ranks_of(s); i++) {
        pl_jobs unit;
        int     owner = step_unit(s, &w, &unit);
        for (int64_t j = unit.first; j < unit.end; j++) {
            PL_TRY(add_entry(s, j, owner, err));
            if (owner == rank_of(s)) PL_TRY(answer_document(s, j, err));
        }
    }
    PL_TRY(share_lengths(s, from, w.job, err));
    s->told = w;
    return PL_OK;
}

// ---- distribution

static int64_t rows_of(void *arg, int64_t at) {
    pl_doc_share *s = arg;
    return s->entry[at - s->base].n;
}

static int sender(void *arg, int64_t at, int to) {
    pl_doc_share *s = arg;
    int           owner = at < s->told.job ? s->entry[at - s->base].owner : to;
    return owner == to ? -1 : owner;
}

static pl_status give(void *arg, int64_t at, pl_columns *doc, pl_err *err) {
    pl_doc_share *s = arg;
    *doc = s->entry[at - s->base].doc;
    (void)err;
    return PL_OK;
}

static pl_status take(void *arg, int64_t at, pl_columns *room, pl_err *err) {
    pl_doc_share *s = arg;
    entry        *e = &s->entry[at - s->base];
    PL_TRY(pl_columns_reserve(&e->doc, &s->shape, e->n, err));
    e->doc.n = e->n;
    e->here = true;
    *room = e->doc;
    return PL_OK;
}

pl_status pl_doc_share_gather(pl_doc_share *s, const pl_doc_span *rank, pl_err *err) {
    pl_doc_carry c = {.comm = s->env->comm,
                      .shape = s->shape,
                      .vocab = (int32_t)s->target->vocab,
                      .arg = s,
                      .rows = rows_of,
                      .sender = sender,
                      .give = give,
                      .take = take};
    PL_TRY(pl_doc_carry_out(&c, rank, err));
    s->gathered = rank[0];
    for (int r = 1; r < ranks_of(s); r++)
        if (rank[r].end > s->gathered.end) s->gathered.end = rank[r].end;
    return PL_OK;
}

// ---- reading

pl_status pl_doc_share_begin(pl_doc_share *s, int64_t at, pl_err *err) {
    s->gathered = (pl_doc_span){0};
    if (!s->g || at < s->base || at > s->told.job) return start_at(s, at, err);
    drop_before(s, at);
    return PL_OK;
}

pl_status pl_doc_share_rows(pl_doc_share *s, int64_t at, int64_t *n, pl_err *err) {
    if (!s->g || at < s->base) PL_TRY(start_at(s, at, err));
    while (at >= s->told.job)
        PL_TRY(answer_more(s, err));
    *n = s->entry[at - s->base].n;
    return PL_OK;
}

pl_status pl_doc_share_get(pl_doc_share *s, int64_t at, pl_columns *doc, pl_err *err) {
    int64_t n;
    PL_TRY(pl_doc_share_rows(s, at, &n, err));
    if (at < s->gathered.first || at >= s->gathered.end) { // collective: all ranks call it
        pl_doc_span all[PL_RANKS_MAX];
        for (int r = 0; r < ranks_of(s); r++)
            all[r] = (pl_doc_span){at, at + 1};
        PL_TRY(pl_doc_share_gather(s, all, err));
    }
    const entry *e = &s->entry[at - s->base];
    PL_CHECK(e->here, "document %lld is another rank's", (long long)at);
    *doc = e->doc;
    doc->room = 0; // lent
    return PL_OK;
}
