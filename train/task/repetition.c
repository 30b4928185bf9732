#include "train/task/repetition.h"

#include "infer/eval/repeated.h"
#include "kernels/base/check.h"

#include <math.h>
#include <string.h>

static int64_t room(const pl_repetition_options *o) {
    return (int64_t)o->prefix + o->length;
}

int64_t pl_repetition_rows(const pl_repetition_options *o) {
    return o->sequences * room(o);
}

pl_status pl_repetition_init(pl_repetition *r, const pl_repetition_options *o, pl_lm *lm, const pl_backend *be,
                             pl_pool *pool, pl_err *err) {
    const pl_hf_config *c = &lm->model.config;
    PL_CHECK(o->sequences >= 1 && o->prefix >= 1 && o->length >= 1 && lm->capacity >= pl_repetition_rows(o) &&
                 room(o) <= c->max_position_embeddings,
             "%d sequences of %d and %d, room for %lld rows, %d positions", o->sequences, o->prefix, o->length,
             (long long)lm->capacity, c->max_position_embeddings);
    *r = (pl_repetition){.o = *o, .lm = lm};
    size_t n = (size_t)pl_repetition_rows(o), sequences = (size_t)o->sequences;
    r->ids = pl_calloc(n, sizeof *r->ids);
    r->weight = pl_calloc(n, sizeof *r->weight);
    r->again = pl_calloc((size_t)o->length, sizeof *r->again);
    r->text = pl_calloc(sequences, sizeof *r->text);
    if (!r->ids || !r->weight || !r->again || !r->text)
        return pl_fail(err, PL_E_MEMORY, "training: out of memory for continuations");
    pl_engine_options eo = {
        .max_sessions = o->sequences, .max_rows = o->sequences > 64 ? o->sequences : 64, .max_len = (int)room(o)};
    return pl_engine_create(&r->engine, be, pool, &lm->model, NULL, &eo, err);
}

void pl_repetition_fini(pl_repetition *r) {
    pl_engine_destroy(r->engine);
    pl_free(r->ids);
    pl_free(r->weight);
    pl_free(r->again);
    pl_free(r->text);
    *r = (pl_repetition){0};
}

static pl_status go_on(pl_repetition *r, pl_err *err) {
    const pl_hf_config *c = &r->lm->model.config;
    pl_session_options  so = {.sampling = {.top_p = 1}};
    for (; so.n_stop < c->n_eos && so.n_stop < PL_MAX_STOP; so.n_stop++)
        so.stop[so.n_stop] = c->eos_token_id[so.n_stop];
    for (int i = 0; i < r->o.sequences; i++)
        r->text[i] = (pl_continuation){
            .ids = r->ids + i * room(&r->o), .prompt = r->text[i].prompt, .max_new = r->o.length, .key = (uint64_t)i};
    return pl_continue(r->engine, r->text, r->o.sequences, &so, err);
}

// Sets weight 1 for the rows whose labels are in R.
static pl_status mark(pl_repetition *r, pl_err *err) {
    memset(r->weight, 0, (size_t)pl_repetition_rows(&r->o) * sizeof *r->weight);
    r->written = r->repeated = 0;
    for (int i = 0; i < r->o.sequences; i++) {
        int32_t prompt = r->text[i].prompt, n = r->text[i].n - prompt;
        float  *weight = r->weight + i * room(&r->o) + prompt - 1;
        int64_t repeated = pl_repeated_tokens(r->ids + i * room(&r->o) + prompt, n, r->again);
        if (repeated < 0) return pl_fail(err, PL_E_MEMORY, "training: out of memory for continuations");
        for (int32_t t = 0; t < n; t++)
            weight[t] = r->again[t];
        r->written += n;
        r->repeated += repeated;
    }
    return PL_OK;
}

static bool repeats(const pl_repetition *r, int i) {
    for (int32_t t = 0; t < r->text[i].n - 1; t++)
        if (r->weight[i * room(&r->o) + t] != 0) return true;
    return false;
}

pl_status pl_repetition_write(pl_repetition *r, pl_err *err) {
    pl_lm_sums unused;
    PL_TRY(go_on(r, err));
    PL_TRY(mark(r, err));
    pl_lm_clear(r->lm);
    pl_repetition_add(r);
    PL_TRY(pl_lm_score(r->lm, &unused, err));
    const double *loss = r->lm->loss;
    for (int i = 0; i < r->o.sequences; i++) {
        if (!repeats(r, i)) continue;
        for (int32_t t = 0; t < r->text[i].n - 1; t++, loss++) {
            double p = exp(-*loss);
            float *w = r->weight + i * room(&r->o) + t;
            if (*w != 0) *w = (float)(-r->o.weight * p / fmax(1 - p, PL_UNLIKELY_MIN));
        }
    }
    pl_lm_clear(r->lm);
    return PL_OK;
}

void pl_repetition_add(const pl_repetition *r) {
    for (int i = 0; i < r->o.sequences; i++)
        if (repeats(r, i))
            pl_lm_add_weighted(r->lm, r->ids + i * room(&r->o), r->weight + i * room(&r->o), r->text[i].n - 1);
}
