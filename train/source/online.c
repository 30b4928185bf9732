// Online data: the target answers prompts while the drafter trains, and nothing is stored.
//
// Training documents are endless, in rounds over the prompts (document number = job number of
// infer/generate/generator.h), so that a resumed run sees the same text. Several ranks deal out units of jobs (a
// document, or a block of conversations) in turn, so that every generator continues with its own. The lengths of
// documents decide which of them a rank's slots take; so all ranks receive the lengths, then documents go from their
// makers to their learners.
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "kernels/comm/reader.h"
#include "train/keys.h"
#include "train/source/answers.h"
#include "train/source/ranks.h"
#include "train/source/sources.h"

#include <string.h>

// A known document: its length and the rank that made it.
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

typedef struct online {
    pl_feature_source base;
    pl_answers        in, held; // held: in, with the held-out prompts; rank 0's alone
    pl_generator     *g;
    walk              ahead, told; // of the own generator; of the lengths that all ranks have
    int64_t           first;       // documents [first, told.job) are known
    entry            *entry;       // [made], behind told.job those of a generator that failed
    int64_t           made, cap;
    pl_doc_span       gathered; // documents available without the other ranks
} online;

static int ranks_of(const online *o) {
    return pl_comm_ranks(o->in.env->comm);
}

static int rank_of(const online *o) {
    return pl_comm_rank(o->in.env->comm);
}

// Returns the rank of the next unit, and the unit: a single document if there is one rank, whose generator goes on
// without end.
static int step_unit(const online *o, walk *w, pl_jobs *unit) {
    *unit = (pl_jobs){w->job, ranks_of(o) > 1 ? pl_generator_unit_end(o->g, w->job) : w->job + 1};
    w->job = unit->end;
    return (int)(w->units++ % ranks_of(o));
}

static bool next_own(void *arg, pl_jobs *range) {
    online *o = arg;
    while (step_unit(o, &o->ahead, range) != rank_of(o))
        ;
    return true;
}

static void drop_before(online *o, int64_t at) {
    int64_t gone = at - o->first < o->made ? at - o->first : o->made;
    for (int64_t i = 0; i < gone; i++)
        pl_columns_free(&o->entry[i].doc);
    if (gone > 0) memmove(o->entry, o->entry + gone, (size_t)(o->made - gone) * sizeof *o->entry);
    o->first += gone;
    o->made -= gone;
}

// Makes document `at` the next one, unless it follows those that are known.
static pl_status go_to(online *o, int64_t at, pl_err *err) {
    if (o->g && at >= o->first && at <= o->told.job) return PL_OK;
    pl_generator_options opt = o->in.opt;
    if (ranks_of(o) > 1) opt.work = (pl_generator_work){next_own, o};
    opt.first_job = at;
    drop_before(o, o->told.job);
    pl_generator_destroy(o->g);
    o->g = NULL;
    o->first = at;
    o->ahead = o->told = (walk){.job = at};
    return pl_generator_create(&o->g, o->in.env, o->in.target, o->in.tok, o->in.prompts, &opt, err);
}

// ---- generation

static pl_status add_entry(online *o, int64_t at, int owner, pl_err *err) {
    int64_t i = at - o->first;
    if (i >= o->cap) {
        int64_t cap = o->cap ? 2 * o->cap : 64;
        entry  *p = pl_realloc(o->entry, (size_t)cap * sizeof *p);
        if (!p) return pl_fail(err, PL_E_MEMORY, "online data: out of memory");
        o->entry = p;
        o->cap = cap;
    }
    o->entry[i] = (entry){.owner = owner};
    o->made = i + 1;
    return PL_OK;
}

static pl_status answer_document(online *o, int64_t at, pl_err *err) {
    pl_columns_shape shape = {.d = o->base.d, .taps = o->base.taps};
    pl_columns       doc;
    entry           *e = &o->entry[at - o->first];
    PL_TRY(pl_generator_next(o->g, &doc, err));
    PL_CHECK(doc.n > 0 && pl_generator_number(o->g) == at, "document %lld is another one", (long long)at);
    PL_TRY(pl_columns_copy(&e->doc, &doc, &shape, doc.n, err));
    e->doc.n = e->n = doc.n;
    e->doc.about = NULL;
    e->here = true;
    return PL_OK;
}

// Takes the lengths of the documents in [from, to) that `rank` has made.
static pl_status take_lengths(online *o, int rank, int64_t from, int64_t to, const uint8_t *data, size_t n,
                              pl_err *err) {
    pl_reader in = pl_reader_of(rank, "the lengths of its documents", data, n, err);
    for (int64_t j = from; j < to && in.status == PL_OK; j++) {
        entry *e = &o->entry[j - o->first];
        if (e->owner == rank) e->n = pl_reader_int(&in, "a length", 1, pl_generator_rows(o->g, j));
    }
    return pl_reader_end(&in);
}

// Exchanges all ranks' lengths of the documents [from, to).
static pl_status share_lengths(online *o, int64_t from, int64_t to, pl_err *err) {
    size_t   bytes[PL_RANKS_MAX], n = 0;
    uint8_t *all;
    int64_t *mine = pl_malloc((size_t)(to - from + 1) * sizeof *mine);
    if (!mine) return pl_fail(err, PL_E_MEMORY, "online data: out of memory");
    for (int64_t j = from; j < to; j++)
        if (o->entry[j - o->first].owner == rank_of(o)) mine[n++] = o->entry[j - o->first].n;
    pl_status st =
        pl_comm_gather(o->in.env->comm, mine, n * sizeof *mine, (size_t)(to - from) * sizeof *mine, &all, bytes, err);
    pl_free(mine);
    PL_TRY(st);
    const uint8_t *at = all;
    for (int r = 0; r < ranks_of(o) && st == PL_OK; at += bytes[r++])
        st = take_lengths(o, r, from, to, at, bytes[r], err);
    pl_free(all);
    return st;
}

// Generates one unit on each rank. A failed generator can only be destroyed.
static pl_status answer_more(online *o, pl_err *err) {
    walk w = o->told;
    for (int i = 0; i < ranks_of(o); i++) {
        pl_jobs unit;
        int     owner = step_unit(o, &w, &unit);
        for (int64_t j = unit.first; j < unit.end; j++) {
            PL_TRY(add_entry(o, j, owner, err));
            if (owner == rank_of(o)) PL_TRY(answer_document(o, j, err));
        }
    }
    if (ranks_of(o) > 1) PL_TRY(share_lengths(o, o->told.job, w.job, err));
    o->told = w;
    return PL_OK;
}

// ---- distribution

static int64_t rows_of(void *arg, int64_t at) {
    const online *o = arg;
    return o->entry[at - o->first].n;
}

static int sender(void *arg, int64_t at, int to) {
    const online *o = arg;
    int           owner = at < o->told.job ? o->entry[at - o->first].owner : to;
    return owner == to ? -1 : owner;
}

static pl_status give(void *arg, int64_t at, pl_columns *doc, pl_err *err) {
    const online *o = arg;
    *doc = o->entry[at - o->first].doc;
    (void)err;
    return PL_OK;
}

static pl_status take(void *arg, int64_t at, pl_columns *room, pl_err *err) {
    online *o = arg;
    entry  *e = &o->entry[at - o->first];
    PL_TRY(pl_columns_reserve(&e->doc, &(pl_columns_shape){.d = o->base.d, .taps = o->base.taps}, e->n, err));
    e->doc.n = e->n;
    e->here = true;
    *room = e->doc;
    return PL_OK;
}

static pl_status gather(pl_feature_source *s, const pl_doc_span *rank, pl_err *err) {
    online      *o = (online *)s;
    pl_doc_carry c = {.comm = o->in.env->comm,
                      .shape = {.d = s->d, .taps = s->taps},
                      .vocab = (int32_t)o->in.target->vocab,
                      .arg = o,
                      .rows = rows_of,
                      .sender = sender,
                      .give = give,
                      .take = take};
    PL_TRY(pl_doc_carry_out(&c, rank, err));
    o->gathered = pl_doc_span_all(rank, ranks_of(o));
    return PL_OK;
}

// ---- the source

static pl_status begin(pl_feature_source *s, int64_t at, pl_err *err) {
    online *o = (online *)s;
    o->gathered = (pl_doc_span){0};
    PL_TRY(go_to(o, at, err));
    drop_before(o, at);
    return PL_OK;
}

// A document's length is the target's answer's: the document must be made.
static pl_status rows(pl_feature_source *s, int64_t at, int64_t *n, pl_err *err) {
    online *o = (online *)s;
    PL_TRY(go_to(o, at, err));
    while (at >= o->told.job)
        PL_TRY(answer_more(o, err));
    *n = rows_of(o, at);
    return PL_OK;
}

static pl_status get(pl_feature_source *s, int64_t at, pl_columns *doc, pl_err *err) {
    online *o = (online *)s;
    int64_t n;
    PL_TRY(rows(s, at, &n, err));
    if (s->gather)
        PL_TRY(pl_source_gather_one(s, &o->gathered, at, o->in.env->comm, err));
    else
        drop_before(o, at);
    const entry *e = &o->entry[at - o->first];
    PL_CHECK(e->here, "document %lld is another rank's", (long long)at);
    *doc = e->doc;
    doc->room = 0; // lent
    return PL_OK;
}

static void destroy(pl_feature_source *s) {
    online *o = (online *)s;
    drop_before(o, o->first + o->made);
    pl_generator_destroy(o->g);
    pl_free(o->entry);
    pl_prompts_destroy(o->held.prompts);
    pl_answers_close(&o->in);
    pl_free(o);
}

// ---- opening

static void set_identity(online *o) {
    const char *tok = pl_tokenizer_fingerprint(o->in.tok);
    uint64_t    id = pl_prompts_hash(o->in.prompts, pl_hash(o->in.target->fingerprint, 16));
    id = pl_hash_more(id, tok, strlen(tok));
    if (!pl_tokenizer_adds_bos(o->in.tok)) id = pl_hash_more(id, "no bos", 6);
    pl_hash_hex(o->base.identity, id);
}

// Holds out one in `every` prompts; rank 0 evaluates.
static pl_status hold_out(online *o, pl_feature_source **held, uint64_t seed, int64_t every, pl_err *err) {
    pl_prompts *all = o->in.prompts;
    o->held = o->in;
    o->held.prompts = NULL;
    if (every <= 1 || all->n / every == 0) return PL_OK;
    pl_status st = pl_prompts_split(all, seed + 1, all->n / every, &o->in.prompts, &o->held.prompts, err);
    pl_prompts_destroy(all);
    PL_TRY(st);
    if (rank_of(o) > 0) return PL_OK;
    o->held.opt.seed ^= 0x9e3779b97f4a7c15u; // other draws than in training, in case a prompt is on both sides
    PL_TRY(pl_answers_hold(held, &o->held, NULL, 0, NULL, err));
    if ((*held)->docs > 0) return PL_OK;
    pl_log_warn("data.samples: 0 without data.greedy leaves nothing to hold out; acceptance is not estimated");
    (*held)->destroy(*held);
    *held = NULL;
    return PL_OK;
}

pl_status pl_online_sources(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r, const pl_env *env,
                            const pl_llama *target, const int *taps, int n_taps, pl_err *err) {
    online *o = pl_calloc(1, sizeof *o);
    *train = *held = NULL;
    if (!o) return pl_fail(err, PL_E_MEMORY, "online data: out of memory");
    o->base = (pl_feature_source){.get = get, .rows = rows, .destroy = destroy};
    pl_status st = pl_answers_open(&o->in, r, env, target, taps, n_taps, err);
    if (st == PL_OK)
        st = hold_out(o, held, (uint64_t)pl_generate_recipe_of(r)->seed, pl_train_recipe_of(r)->train.holdout, err);
    if (st != PL_OK) {
        destroy(&o->base);
        return st;
    }
    o->in.opt.samples = -1; // endless
    pl_answers_describe(&o->base, &o->in);
    set_identity(o);
    if (ranks_of(o) > 1) {
        o->base.begin = begin;
        o->base.gather = gather;
    }
    *train = &o->base;
    return PL_OK;
}
