// The dense head: logits = lm_head . x, over the target's vocabulary or a trimmed draft vocabulary (d2t).
#include "infer/head/head.h"

#include <stdio.h>

static void params(pl_head *h, pl_params *ps) {
    if (h->shared) return;
    pl_params_weight(ps, &h->out, PL_PARAM_MATRIX, "lm_head.weight", h->vocab, h->d, 0.02)->start = PL_START_DENSE;
}

// Examples: all rows, a half to a sixteenth of them; FR-Spec's share of 128k (arXiv 2502.14856); a half, with fewer
// rows read at deeper levels.
static bool example(pl_head_example *e, int i, const pl_head_shape *s) {
    enum { PARTS = 5, FRSPEC = PARTS, AWARE, EXAMPLES };
    e->spec = pl_hf_head_make("full", 0);
    if (i < PARTS) {
        snprintf(e->name, sizeof e->name, i ? "trimmed-V/%d" : "full", 1 << i);
        e->rows = s->vocab >> i;
        e->in = PL_EXAMPLE_HEADS | PL_EXAMPLE_PLAN | (i == 0 ? PL_EXAMPLE_CYCLE : 0);
    } else if (i == FRSPEC) {
        e->rows = s->vocab > 32000 ? 32000 : s->vocab / 4;
        snprintf(e->name, sizeof e->name, "trimmed-%lld", (long long)e->rows);
        e->in = PL_EXAMPLE_CYCLE;
    } else if (i == AWARE) {
        snprintf(e->name, sizeof e->name, "position-aware-V/2");
        pl_hf_head_set_flag(&e->spec, "position_aware", true);
        e->rows = s->vocab / 2;
        e->in = PL_EXAMPLE_PLAN;
    }
    return i < EXAMPLES;
}

const pl_head_kind pl_head_full = {
    .name = "full", .listed = true, .dense = "lm_head.weight", .published = true, .params = params, .example = example};
