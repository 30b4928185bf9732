#include "train/source/source.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "train/source/order.h"
#include "train/source/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Shared by training and held-out documents; owned by the training source, which lives longer.
typedef struct store {
    pl_dataset *ds;
    pl_survey   survey;
    pl_comm    *comm; // borrowed
} store;

// A document received from another rank.
typedef struct kept_doc {
    int64_t    at;
    pl_columns doc; // its own columns
} kept_doc;

typedef struct offline {
    pl_feature_source base;
    store             own, *s;
    pl_doc_order      order;
    bool              once; // each document once, in the dataset's order
    int64_t           at;   // current document, -1: none
    pl_columns        doc;  // document `at`
    kept_doc         *kept; // [n_kept]
    int64_t           n_kept, cap_kept;
    pl_doc_span       gathered; // documents available without the other ranks
} offline;

static void forget_kept(offline *o) {
    for (int64_t i = 0; i < o->n_kept; i++)
        pl_columns_free(&o->kept[i].doc);
    o->n_kept = 0;
}

static void destroy(pl_feature_source *s) {
    offline *o = (offline *)s;
    forget_kept(o);
    pl_free(o->kept);
    if (o->own.ds) pl_dataset_close(o->own.ds);
    pl_survey_fini(&o->own.survey);
    pl_doc_order_fini(&o->order);
    pl_columns_free(&o->doc);
    pl_free(o);
}

static pl_status make_room(offline *o, pl_columns *doc, int64_t n, pl_err *err) {
    pl_columns_shape shape = {.d = o->base.d, .taps = o->base.taps};
    return pl_columns_reserve(doc, &shape, n, err);
}

// Returns its number in the dataset.
static int64_t number_of(offline *o, int64_t at) {
    if (!o->once) return pl_doc_order_number(&o->order, at);
    PL_CHECK(at >= 0 && at < o->base.docs, "document %lld of %lld", (long long)at, (long long)o->base.docs);
    return o->order.member[at];
}

static int64_t number(pl_feature_source *s, int64_t at) {
    return number_of((offline *)s, at);
}

static int64_t rows_of(void *arg, int64_t at) {
    offline *o = arg;
    return o->s->survey.doc[number_of(o, at)].rows;
}

static pl_status rows(pl_feature_source *s, int64_t at, int64_t *n, pl_err *err) {
    *n = rows_of(s, at);
    (void)err;
    return PL_OK;
}

// ---- documents of other ranks' folders

static int sender(void *arg, int64_t at, int to) {
    offline         *o = arg;
    const pl_survey *v = &o->s->survey;
    int64_t          shard = pl_dataset_shard_of(o->s->ds, number_of(o, at));
    return pl_survey_has(v, to, shard) ? -1 : v->owner[shard];
}

static kept_doc *find_kept(const offline *o, int64_t at) {
    for (int64_t i = 0; i < o->n_kept; i++)
        if (o->kept[i].at == at) return &o->kept[i];
    return NULL;
}

static pl_status take(void *arg, int64_t at, pl_columns *room, pl_err *err) {
    offline *o = arg;
    if (o->n_kept == o->cap_kept) {
        int64_t   cap = o->cap_kept ? 2 * o->cap_kept : 64;
        kept_doc *p = pl_realloc(o->kept, (size_t)cap * sizeof *p);
        if (!p) return pl_fail(err, PL_E_MEMORY, "documents of other ranks: out of memory");
        o->kept = p;
        o->cap_kept = cap;
    }
    kept_doc *k = &o->kept[o->n_kept++];
    *k = (kept_doc){.at = at};
    PL_TRY(make_room(o, &k->doc, rows_of(o, at), err));
    k->doc.n = rows_of(o, at);
    *room = k->doc;
    return PL_OK;
}

static pl_status read_here(void *arg, int64_t at, pl_columns *doc, pl_err *err) {
    offline *o = arg;
    int64_t  n = rows_of(o, at);
    if (at != o->at) {
        o->at = -1;
        PL_TRY(make_room(o, &o->doc, n, err));
        PL_TRY(pl_dataset_read_doc(o->s->ds, number_of(o, at), &o->doc, err));
        o->doc.n = n;
        o->at = at;
    }
    *doc = o->doc;
    doc->room = 0; // lent
    return PL_OK;
}

static pl_status carry_docs(offline *o, const pl_doc_span *rank, pl_err *err) {
    pl_doc_carry c = {.comm = o->s->comm,
                      .shape = {.d = o->base.d, .taps = o->base.taps},
                      .vocab = pl_dataset_get_attrs(o->s->ds)->vocab_size,
                      .arg = o,
                      .rows = rows_of,
                      .sender = sender,
                      .give = read_here,
                      .take = take};
    return pl_doc_carry_out(&c, rank, err);
}

static pl_status begin(pl_feature_source *s, int64_t at, pl_err *err) {
    ((offline *)s)->gathered = (pl_doc_span){0};
    (void)at, (void)err;
    return PL_OK;
}

static pl_status gather(pl_feature_source *s, const pl_doc_span *rank, pl_err *err) {
    offline *o = (offline *)s;
    forget_kept(o);
    PL_TRY(carry_docs(o, rank, err));
    o->gathered = pl_doc_span_all(rank, pl_comm_ranks(o->s->comm));
    return PL_OK;
}

static pl_status fetch(pl_feature_source *s, int64_t from, int64_t to, pl_err *err) {
    pl_doc_span rank[PL_RANKS_MAX] = {{from, to}};
    return carry_docs((offline *)s, rank, err);
}

static pl_status get(pl_feature_source *s, int64_t at, pl_columns *doc, pl_err *err) {
    offline *o = (offline *)s;
    if (s->gather) PL_TRY(pl_source_gather_one(s, &o->gathered, at, o->s->comm, err));
    if (sender(o, at, pl_comm_rank(o->s->comm)) < 0) return read_here(o, at, doc, err);
    const kept_doc *k = find_kept(o, at);
    PL_CHECK(k && k->doc.n > 0, "document %lld lies elsewhere", (long long)at);
    *doc = k->doc;
    doc->room = 0; // lent
    return PL_OK;
}

// ---- opening

// Reads how the dataset's sampled documents were drawn, as far as it states that.
static pl_status read_sampling(pl_feature_source *s, const char *text, pl_err *err) {
    pl_json j;
    s->temperature = s->top_p = 1;
    if (!text || !*text) return PL_OK;
    PL_TRY(pl_json_parse(&j, "generation", 0, text, strlen(text), 0, err));
    bool      greedy = false;
    int64_t   samples = 0;
    pl_status st = pl_json_opt_bool(&j, NULL, "greedy", false, &greedy, err);
    if (st == PL_OK) st = pl_json_opt_int(&j, NULL, "samples", 0, INT32_MAX, 0, &samples, err);
    if (st == PL_OK) s->greedy_share = greedy ? 1 / (1 + (double)samples) : 0;
    if (st == PL_OK) st = pl_json_opt_num(&j, NULL, "temperature", 0, 1e6, 1, &s->temperature, err);
    if (st == PL_OK) st = pl_json_opt_num(&j, NULL, "top_p", 0, 1, 1, &s->top_p, err);
    pl_json_close(&j);
    return st;
}

static pl_status open_side(offline *o, store *s, const pl_dataset_attrs *want, uint64_t seed, pl_err *err) {
    pl_columns_shape shape = pl_dataset_read_shape(s->ds);
    o->s = s;
    o->base.d = shape.d;
    o->base.taps = want && want->A < 0 ? 0 : shape.taps;
    PL_TRY(pl_doc_order_init(&o->order, seed, pl_dataset_docs(s->ds), err));
    return read_sampling(&o->base, pl_dataset_get_attrs(s->ds)->generation, err);
}

static pl_status divide_docs(offline *train, offline *held, const char *dir, int64_t every, pl_err *err) {
    const pl_survey *v = &train->s->survey;
    int64_t          rows = 0, answer = 0, held_rows = 0, held_answer = 0;
    for (int64_t i = 0; i < v->docs; i++) {
        bool     apart = v->doc[i].held;
        offline *side = apart ? held : train;
        side->order.member[side->base.docs++] = i;
        *(apart ? &held_rows : &rows) += v->doc[i].rows;
        *(apart ? &held_answer : &answer) += v->doc[i].answers;
    }
    if (v->docs > 0 && answer + held_answer == rows + held_rows)
        return pl_fail(err, PL_E_INPUT,
                       "%s: every token of %lld documents is marked as an answer; the loss mask covers the prompts, "
                       "which the target did not write",
                       dir, (long long)v->docs);
    if (answer == 0)
        return pl_fail(err, PL_E_INPUT,
                       "%s: no token of %lld training documents is marked as an answer; the loss mask is empty", dir,
                       (long long)train->base.docs);
    if (every > 0 && held->base.docs == 0)
        pl_log_warn("%s: none of %lld documents is held out, acceptance is not estimated; make train.holdout smaller",
                    dir, (long long)v->docs);
    if (10 * answer < rows)
        pl_log_warn("%s: only %.1f%% of the training rows are answers", dir, 100.0 * (double)answer / (double)rows);
    pl_log("dataset: %lld training documents, %lld rows, %.1f%% answers; %lld documents held out",
           (long long)train->base.docs, (long long)rows, 100.0 * (double)answer / (double)rows,
           (long long)held->base.docs);
    return PL_OK;
}

static int64_t docs_of_shard(void *ds, int64_t k) {
    return pl_dataset_shard_docs(ds, k);
}

// Names a dataset of conversations whose later turns this build would write otherwise.
static void warn_histories(const store *s, const char *dir) {
    const pl_dataset_attrs *a = pl_dataset_get_attrs(s->ds);
    bool                    later = false;
    for (int64_t i = 0; i < s->survey.docs; i++)
        later |= s->survey.doc[i].about.turn > 0;
    if (!later || strncmp(a->template_name, "chat:", 5) != 0 || strstr(a->generation, "\"" PL_DATASET_HISTORIES "\""))
        return;
    pl_log_warn("%s: made by an earlier build, which left the special tokens of the target's answers out of the turns "
                "behind them; if its answers hold such tokens, remove it and generate the dataset again",
                dir);
}

static pl_status open_both(offline *t, offline *h, const char *dir, const pl_dataset_attrs *want, uint64_t seed,
                           int64_t every, int64_t window, pl_comm *comm, pl_err *err) {
    pl_dataset_open_options lazy = {.want = want, .lazy = true}; // the survey checks each size, and each shard once
    store                  *s = &t->own;
    s->comm = comm;
    PL_TRY(pl_dataset_open(&s->ds, dir, &lazy, err));
    PL_TRY(pl_survey_take(&s->survey, s->ds, dir, seed, every, comm, err));
    warn_histories(s, dir);
    PL_TRY(open_side(t, s, want, seed, err));
    PL_TRY(open_side(h, s, want, seed, err));
    PL_TRY(divide_docs(t, h, dir, every, err));
    h->once = true;
    t->order.docs = t->base.docs;
    PL_TRY(pl_doc_order_windows(&t->order, window, pl_dataset_shards(s->ds), docs_of_shard, s->ds, err));
    snprintf(t->base.identity, sizeof t->base.identity, "%s", pl_dataset_fingerprint(s->ds));
    if (s->survey.everywhere) return PL_OK;
    t->base.begin = begin;
    t->base.gather = gather;
    h->base.fetch = fetch;
    return PL_OK;
}

pl_status pl_offline_sources(pl_feature_source **train, pl_feature_source **held, const char *dir,
                             const pl_dataset_attrs *want, uint64_t seed, int64_t every, int64_t window, pl_comm *comm,
                             pl_err *err) {
    offline  *side[2];
    pl_status st = PL_OK;
    for (int i = 0; i < 2; i++) {
        side[i] = pl_calloc(1, sizeof *side[i]);
        if (!side[i]) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
        if (side[i])
            *side[i] = (offline){.base = {.get = get, .rows = rows, .number = number, .destroy = destroy}, .at = -1};
    }
    if (st == PL_OK) st = open_both(side[0], side[1], dir, want, seed, every, window, comm, err);
    *train = st == PL_OK ? &side[0]->base : NULL;
    *held = st == PL_OK && side[1]->base.docs > 0 ? &side[1]->base : NULL;
    if (side[1] && !*held) destroy(&side[1]->base);
    if (side[0] && !*train) destroy(&side[0]->base);
    return st;
}
