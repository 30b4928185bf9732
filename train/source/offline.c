#include "train/source/source.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "train/source/order.h"

#include <stdio.h>
#include <string.h>

typedef struct offline {
    pl_feature_source base;
    pl_dataset       *ds;
    pl_doc_order      order;
    bool              once; // as they stand in the dataset, once
    int64_t           at;   // document in hand, -1: none
    pl_columns        doc;  // document `at`
} offline;

static void destroy(pl_feature_source *s) {
    offline *o = (offline *)s;
    if (!o) return;
    if (o->ds) pl_dataset_close(o->ds);
    pl_doc_order_fini(&o->order);
    pl_columns_free(&o->doc);
    pl_free(o);
}

static pl_status make_room(offline *o, int64_t n, pl_err *err) {
    pl_columns_shape shape = {.d = o->base.d, .taps = o->base.taps};
    return pl_columns_reserve(&o->doc, &shape, n, err);
}

// Its number in the dataset.
static int64_t number_of(offline *o, int64_t at) {
    if (!o->once) return pl_doc_order_number(&o->order, at);
    PL_CHECK(at >= 0 && at < o->base.docs, "document %lld of %lld", (long long)at, (long long)o->base.docs);
    return o->order.member[at];
}

static int64_t number(pl_feature_source *s, int64_t at) {
    return number_of((offline *)s, at);
}

static pl_status rows(pl_feature_source *s, int64_t at, int64_t *n, pl_err *err) {
    int64_t first;
    return pl_dataset_doc(((offline *)s)->ds, number_of((offline *)s, at), &first, n, err);
}

static pl_status get(pl_feature_source *s, int64_t at, pl_columns *doc, pl_err *err) {
    offline *o = (offline *)s;
    if (at != o->at) {
        int64_t number = number_of(o, at), first, n;
        o->at = -1;
        PL_TRY(pl_dataset_doc(o->ds, number, &first, &n, err));
        PL_TRY(make_room(o, n, err));
        PL_TRY(pl_dataset_read_doc(o->ds, number, &o->doc, err));
        o->doc.n = n;
        o->at = at;
    }
    *doc = o->doc;
    doc->room = 0; // lent
    return PL_OK;
}

// How its sampled documents were drawn, as far as the dataset says.
pl_status pl_source_read_sampling(pl_feature_source *s, const char *text, pl_err *err) {
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

static pl_status open_side(offline **out, const char *dir, const pl_dataset_open_options *opt, uint64_t seed,
                           pl_err *err) {
    offline *o = pl_calloc(1, sizeof *o);
    *out = NULL;
    if (!o) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    *o = (offline){.base = {.get = get, .rows = rows, .number = number, .destroy = destroy}, .once = true, .at = -1};
    pl_status st = pl_dataset_open(&o->ds, dir, opt, err);
    if (st == PL_OK) {
        pl_columns_shape shape = pl_dataset_read_shape(o->ds);
        o->base.d = shape.d;
        o->base.taps = opt->want && opt->want->A < 0 ? 0 : shape.taps;
        st = pl_doc_order_init(&o->order, seed, pl_dataset_docs(o->ds), err);
    }
    if (st == PL_OK) st = pl_source_read_sampling(&o->base, pl_dataset_get_attrs(o->ds)->generation, err);
    if (st == PL_OK)
        *out = o;
    else
        destroy(&o->base);
    return st;
}

static pl_status count_answers(offline *o, int64_t number, int64_t *rows, int64_t *answer, pl_err *err) {
    int64_t first, n;
    PL_TRY(pl_dataset_doc(o->ds, number, &first, &n, err));
    PL_TRY(make_room(o, n, err));
    PL_TRY(pl_dataset_read_doc(o->ds, number, &(pl_columns){.loss_mask = o->doc.loss_mask}, err));
    *rows += n;
    for (int64_t i = 0; i < n; i++)
        *answer += o->doc.loss_mask[i];
    return PL_OK;
}

static pl_status divide(offline *train, offline *held, const char *dir, uint64_t seed, int64_t every, pl_err *err) {
    int64_t docs = pl_dataset_docs(train->ds), rows = 0, answer = 0, held_rows = 0, held_answer = 0;
    for (int64_t i = 0; i < docs; i++) {
        bool apart;
        PL_TRY(pl_dataset_doc_held_out(train->ds, i, seed, every, &apart, err));
        offline *side = apart ? held : train;
        side->order.member[side->base.docs++] = i;
        PL_TRY(count_answers(train, i, apart ? &held_rows : &rows, apart ? &held_answer : &answer, err));
    }
    if (docs > 0 && answer + held_answer == rows + held_rows)
        return pl_fail(err, PL_E_INPUT,
                       "%s: every token of %lld documents is marked as an answer; the loss mask covers the prompts, "
                       "which the target did not write",
                       dir, (long long)docs);
    if (answer == 0)
        return pl_fail(err, PL_E_INPUT,
                       "%s: no token of %lld training documents is marked as an answer; the loss mask is empty", dir,
                       (long long)train->base.docs);
    if (every > 0 && held->base.docs == 0)
        pl_log_warn("%s: none of %lld documents is held out, acceptance is not estimated; make train.holdout smaller",
                    dir, (long long)docs);
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

static pl_status put_in_order(offline *t, int64_t window, pl_err *err) {
    t->once = false;
    t->order.docs = t->base.docs;
    return pl_doc_order_windows(&t->order, window, pl_dataset_shards(t->ds), docs_of_shard, t->ds, err);
}

pl_status pl_offline_sources(pl_feature_source **train, pl_feature_source **held, const char *dir,
                             const pl_dataset_attrs *want, uint64_t seed, int64_t every, int64_t window, pl_err *err) {
    offline *t = NULL, *h = NULL;
    *train = *held = NULL;
    // The second reader of the same files need not check all of them again.
    pl_dataset_open_options all = {.want = want}, again = {.want = want, .lazy = true};
    pl_status               st = open_side(&t, dir, &all, seed, err);
    if (st == PL_OK) st = open_side(&h, dir, &again, seed, err);
    if (st == PL_OK) st = divide(t, h, dir, seed, every, err);
    if (st == PL_OK) st = put_in_order(t, window, err);
    if (st == PL_OK) {
        snprintf(t->base.identity, sizeof t->base.identity, "%s", pl_dataset_fingerprint(t->ds));
        *train = &t->base;
    }
    if (st == PL_OK && h->base.docs > 0) {
        *held = &h->base;
        h = NULL;
    }
    if (h) destroy(&h->base);
    if (st != PL_OK && t) destroy(&t->base);
    return st;
}
