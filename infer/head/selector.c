#include "infer/head/selector.h"

#include "kernels/op/topk.h"

#include <math.h>
#include <string.h>

#define PL_SELECTOR(name) extern const pl_selector_kind pl_selector_##name;
#include "infer/head/selectors.def"
#undef PL_SELECTOR
#define PL_SELECTOR(name) &pl_selector_##name,
static const pl_selector_kind *const kinds[] = {
#include "infer/head/selectors.def"
};
#undef PL_SELECTOR
enum { KINDS = sizeof kinds / sizeof *kinds };

const char *pl_selector_name(int i) {
    return i < KINDS ? kinds[i]->name : NULL;
}

int pl_selector_rank(int64_t vocab) {
    double wanted = 256 * sqrt((double)vocab / 151936);
    int    rank = 8;
    while (rank * M_SQRT2 < wanted && rank < 256)
        rank *= 2;
    return rank;
}

void pl_selector_settle(pl_hf_selector *spec, int64_t d, int64_t vocab) {
    if (spec->candidates == 0) return;
    if (spec->rank == 0) spec->rank = pl_selector_rank(vocab);
    if (!pl_hf_is_lattice(spec)) return;
    if (spec->width == 0) spec->width = (int)d;
    if (spec->layers == 0) spec->layers = 2;
    if (spec->heads == 0) spec->heads = 4;
    if (spec->mlp_ratio == 0) spec->mlp_ratio = 2;
    if (spec->scale == 0) spec->scale = 10;
    if (spec->eps == 0) spec->eps = 1e-6;
}

pl_status pl_selector_init(pl_selector *s, const pl_hf_selector *spec, int64_t d, int64_t draft_vocab, int drafts,
                           pl_err *err) {
    const char *name = *spec->kind ? spec->kind : kinds[0]->name;
    *s = (pl_selector){.rank = spec->rank, .candidates = spec->candidates, .law = spec->law};
    int64_t most = draft_vocab < PL_TOPK_MAX ? draft_vocab : PL_TOPK_MAX;
    if (s->candidates == 0) return PL_OK;
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->name, name) == 0) s->kind = kinds[i];
    if (!s->kind) return pl_fail(err, PL_E_INPUT, "selector: kind \"%s\" is not known", name);
    if (s->candidates < 2 || s->candidates > most)
        return pl_fail(err, PL_E_INPUT, "selector: %d candidates must lie in 2..%lld", s->candidates, (long long)most);
    if (s->rank < 1 || s->rank > d)
        return pl_fail(err, PL_E_INPUT, "selector: rank %d must lie in 1..%lld, the drafter's width", s->rank,
                       (long long)d);
    if (s->kind->blocks && drafts == 0)
        return pl_fail(err, PL_E_UNSUPPORTED, "selector: a %s scores the slots of blocks; this drafter has none",
                       s->kind->name);
    return s->kind->init ? s->kind->init(s, spec, d, drafts, err) : PL_OK;
}

void pl_selector_fini(pl_selector *s) {
    if (s->kind && s->kind->fini) s->kind->fini(s);
    *s = (pl_selector){0};
}

void pl_selector_params(pl_selector *s, pl_params *ps, int64_t d, int64_t vocab, int64_t draft_vocab) {
    if (s->candidates > 0) s->kind->params(s, ps, d, vocab, draft_vocab);
}

double pl_selector_bytes(const pl_selector *s) {
    return s->candidates > 0 ? s->kind->bytes(s) : 0;
}
