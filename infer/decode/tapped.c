#include "infer/decode/tapped.h"

#include "infer/drafter/backbone.h"
#include "kernels/base/check.h"

static int add(pl_tapped *t, const int *tap, int n, int *where) {
    for (int i = 0; i < n; i++) {
        int j = 0;
        while (j < t->n && t->layer[j] != tap[i])
            j++;
        PL_CHECK(j < PL_MAX_TAPS, "more than %d different tap layers", PL_MAX_TAPS);
        if (j == t->n) t->layer[t->n++] = tap[i];
        where[i] = j;
    }
    return n;
}

void pl_tapped_init(pl_tapped *t, const int *tap, int n, const pl_drafter *d) {
    *t = (pl_tapped){.all = true};
    t->n_own = add(t, tap, n, t->own);
    t->n_layers_own = t->n;
    if (d) t->n_drafter = add(t, d->tap, d->n_taps, t->drafter);
}

bool pl_tapped_begin(pl_tapped *t, const pl_drafter *d) {
    t->n_rows = 0;
    t->all = t->n_own > 0 || (d && !d->kind->reads);
    bool some = !t->all && d && t->n_drafter > 0;
    if (some) t->all = true; // until somebody's are not read
    return some;
}

void pl_tapped_add(pl_tapped *t, const pl_drafter *d, int slot, int row0, int rows) {
    bool reads = d->kind->reads(d, slot);
    t->all &= reads;
    for (int m = row0; m < row0 + rows; m++) {
        t->at[m] = reads ? t->n_rows : -1;
        if (reads) t->row[t->n_rows++] = m;
    }
}

void pl_tapped_some(pl_tapped *t, int n) {
    t->all = false;
    t->n_rows = t->n > 0 ? n : 0;
}

void pl_tapped_all(pl_tapped *t) {
    t->all = true;
}

// Whether anybody but the options' features is asked for.
static bool any(const pl_tapped *t) {
    return t->all || t->n_rows > 0;
}

int pl_tapped_view(const pl_tapped *t, pl_view *view) {
    if (!any(t)) return t->n_layers_own;
    if (!t->all) {
        view->tap_row = t->row;
        view->n_tap_rows = t->n_rows;
    }
    return t->n;
}

// The features a consumer asked for, out of all that were tapped.
static pl_tensor select_features(pl_ctx *ctx, const pl_llama_out *out, const int *where, int n) {
    pl_llama_out some = {0};
    for (int i = 0; i < n; i++)
        some.tap[i] = out->tap[where[i]];
    return n ? pl_features(ctx, &some, n) : (pl_tensor){0};
}

pl_tensor pl_tapped_own(const pl_tapped *t, pl_ctx *ctx, const pl_llama_out *out) {
    return select_features(ctx, out, t->own, t->n_own);
}

pl_tensor pl_tapped_drafters(const pl_tapped *t, pl_ctx *ctx, const pl_llama_out *out) {
    return any(t) ? select_features(ctx, out, t->drafter, t->n_drafter) : (pl_tensor){0};
}

const int32_t *pl_tapped_rows(const pl_tapped *t, const int32_t *final_row, int first, int n) {
    for (int m = first; m < first + n; m++)
        t->final[m] = t->all ? final_row[m] : t->at[final_row[m]];
    return t->final + first;
}
