#include "train/run/taps.h"

#include "train/keys.h"

#include <stdio.h>
#include <string.h>

static pl_status asked_for(pl_hf_config *c, const pl_recipe *r, int n_layers, pl_err *err) {
    const pl_ints *taps = &pl_train_recipe_of(r)->drafter.taps;
    if (taps->n > PL_MAX_TAPS) return pl_recipe_fail(r, taps, err, "%d layers, at most %d", taps->n, PL_MAX_TAPS);
    *c = (pl_hf_config){.backbone = pl_train_backbone(r)->which,
                        .num_hidden_layers = (int)pl_train_recipe_of(r)->drafter.layers,
                        .n_taps = taps->n,
                        .tap_numbering = PL_HF_TAPS_INPUT};
    for (int i = 0; i < taps->n; i++) {
        c->tap[i] = (int)taps->at[i];
        if (taps->at[i] > n_layers)
            return pl_recipe_fail(r, taps, err, "layer %d does not exist, the target has %d layers", c->tap[i],
                                  n_layers);
    }
    return PL_OK;
}

pl_status pl_drafter_taps(pl_taps *t, const pl_recipe *r, int n_layers, pl_err *err) {
    const char  *start = pl_train_recipe_of(r)->drafter.start;
    pl_hf_config c;
    *t = (pl_taps){0};
    if (pl_train_standalone(r)) return PL_OK; // it reads tokens alone
    if (!start || !pl_train_routed(r)) {
        PL_TRY(asked_for(&c, r, n_layers, err));
        pl_backbone_taps(t, &c, n_layers);
        return PL_OK;
    }
    PL_TRY(pl_hf_config_read(&c, start, PL_HF_DRAFTER, err));
    pl_backbone_taps(t, &c, n_layers);
    return t->n > 0 ? pl_backbone_check_taps(t->layer, t->n, n_layers, start, err) : PL_OK;
}

pl_status pl_taps_add(pl_taps *all, const pl_taps *more, pl_err *err) {
    for (int i = 0; i < more->n; i++) {
        int at = 0;
        while (at < all->n && all->layer[at] < more->layer[i])
            at++;
        if (at < all->n && all->layer[at] == more->layer[i]) continue;
        if (all->n == PL_MAX_TAPS)
            return pl_fail(err, PL_E_INPUT,
                           "drafter.taps: the drafters read the inputs of more than %d layers together; train some of "
                           "them in a run of their own",
                           PL_MAX_TAPS);
        memmove(all->layer + at + 1, all->layer + at, (size_t)(all->n - at) * sizeof *all->layer);
        all->layer[at] = more->layer[i];
        all->n++;
    }
    return PL_OK;
}

bool pl_taps_same(const pl_taps *a, const pl_taps *b) {
    return a->n == b->n && memcmp(a->layer, b->layer, (size_t)a->n * sizeof *a->layer) == 0;
}

void pl_taps_text(char to[64], const pl_taps *t) {
    int n = 0;
    to[0] = 0;
    for (int i = 0; i < t->n && n < 58; i++)
        n += snprintf(to + n, (size_t)(64 - n), i ? ",%d" : "%d", t->layer[i]);
}
