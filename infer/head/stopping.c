#include "infer/head/stopping.h"

#include "infer/head/draft_vocab.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"

#include <math.h>

#define MAX_REJECTION "acceptance_head.max_rejection"

pl_status pl_stopping_check(const pl_head *h, pl_err *err) {
    if (h->max_rejection > 0 && !h->acceptance)
        return pl_fail(err, PL_E_INPUT, "head of kind \"%s\": max_rejection needs acceptance: true", h->kind->name);
    if (h->acceptance && h->kind->sequence)
        return pl_fail(err, PL_E_INPUT,
                       "head of kind \"%s\": acceptance is for drafters that go token after token; markov has "
                       "confidence: true",
                       h->kind->name);
    if (h->acceptance && h->kind->routed)
        return pl_fail(err, PL_E_INPUT, "head of kind \"%s\": its router alone is trained, and no acceptance",
                       h->kind->name);
    return PL_OK;
}

void pl_stopping_params(pl_head *h, pl_params *ps) {
    if (!h->acceptance) return;
    // Begins at 0: one half everywhere.
    pl_params_weight(ps, &h->sure, PL_PARAM_MATRIX, "acceptance_head.weight", 1, h->d, 0);
    pl_params_weight(ps, &h->sure_bias, PL_PARAM_BIAS, "acceptance_head.bias", 1, 0, 0);
}

pl_tensor pl_stopping_logits(pl_ctx *ctx, const pl_head *h, pl_tensor x) {
    return pl_bias(ctx, pl_linear(ctx, x, h->sure), h->sure_bias);
}

double pl_stopping_least(const pl_head *h) {
    return h->max_rejection > 0 ? 1 - h->max_rejection / 1000.0 : 0;
}

bool pl_stopping_ends(const pl_head *h, float *kept, int up, int node, float z) {
    kept[node] = (up < 0 ? 1 : kept[up]) / (1 + expf(-z));
    return kept[node] < (float)pl_stopping_least(h);
}

static pl_status read_max_rejection(pl_head *h, const pl_weight_source *src, pl_err *err) {
    const pl_weight_entry *e = pl_weight_source_find(src, MAX_REJECTION);
    if (!e) return PL_OK;
    int64_t value = e->rank == 1 && e->shape[0] == 1 ? pl_draft_vocab_entry(e->data, e->dtype, 0) : 0;
    if (value < 1 || value > 999)
        return pl_fail(err, PL_E_INPUT, "%s: tensor \"" MAX_REJECTION "\": expected an int64 [1] from 1 to 999",
                       pl_weight_source_path(src));
    h->max_rejection = (int)value;
    return PL_OK;
}

static pl_status open_file(pl_head *h, pl_params *ps, const char *path, pl_dtype t, pl_err *err) {
    pl_weight_source *src;
    PL_TRY(pl_weight_source_open(&src, path, err));
    pl_status st = read_max_rejection(h, src, err);
    if (st == PL_OK) return pl_params_load(ps, src, t, err);
    pl_weight_source_close(src);
    return st;
}

pl_status pl_stopping_open(pl_head *h, pl_params *ps, const char *dir, int64_t d, pl_dtype t, const pl_memory *memory,
                           pl_err *err) {
    char *path = pl_path_join(dir, PL_STOPPING_FILE);
    *ps = (pl_params){0};
    *h = (pl_head){.d = d, .acceptance = path && pl_path_exists(path)};
    pl_status st = path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (h->acceptance) st = pl_params_init(ps, 2, err);
    if (h->acceptance && st == PL_OK) {
        ps->memory = memory;
        pl_stopping_params(h, ps);
        st = open_file(h, ps, path, t, err);
    }
    pl_free(path);
    return st;
}

pl_status pl_stopping_write(const pl_head *h, const pl_params *ps, const char *dir, const float *const *data,
                            pl_dtype t, pl_err *err) {
    char        *path = pl_path_join(dir, PL_STOPPING_FILE);
    int64_t      value = h->max_rejection;
    pl_st_source most = {.name = MAX_REJECTION, .dtype = PL_I64, .rank = 1, .shape = {1}, .data = &value};
    pl_status    st = path ? pl_params_write(ps, path, data, t, &most, value > 0, err)
                           : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(path);
    return st;
}
