// SpecVocab's head (arXiv 2602.13836): a low-rank scorer lists candidates, exact rows rescore them.
//   s = W_up (W_down h)              scorer, [Vd]: efficient_lm_head.weight [Vd, r], efficient_lm_head_down_proj.weight
//                                    [r, d], the tensors of EAGLE-4's candidate head
//   C = the `candidates` best ids of s; ties: the lower id
//   z[v] = W[v] . h for v in C       lm_head.weight [Vd, d], bits as if all of it had been computed
//   q = softmax of z over C          the proposal's distribution; ids outside C come from the target alone
// A step reads Vd r + r d + |C| d elements rather than Vd d. Each row has its own candidates, sorted by id so that the
// exact rows are read in memory order. W is kept row-major only (gatherdot.h gives the reason).
//
// Training: the scorer learns as a low-rank head does, by the objective at each step of the unroll (out and project are
// its own); W is always frozen. The loss is the scorer's; held-out acceptance, which chooses the best checkpoint, is
// that of q (train/task/rescored.h).
#include "infer/head/head.h"

#include "kernels/op/gatherdot.h"

#include <stdio.h>

typedef struct specvocab {
    int rank; // first, as in lowrank's settings
    int candidates;
} specvocab;

static const pl_key keys[] = {{PL_KEY_AS_INT("drafter.head.rank", specvocab, rank), .each = true, .deflt = "0",
                               .min = 0, .max = 65536, .help = "of the scorer", .stages = PL_STAGE_DRAFTER},
                              {PL_KEY_AS_INT("drafter.head.candidates", specvocab, candidates), .each = true,
                               .deflt = "0", .min = 0, .max = PL_HEADTOPK_MAX,
                               .help = "specvocab: rows that are rescored", .stages = PL_STAGE_DRAFTER},
                              PL_KEYS_END(specvocab)};

static int64_t candidates(const pl_head *h) {
    return ((const specvocab *)h->own)->candidates;
}

static pl_status init(pl_head *h, pl_err *err) {
    int64_t most = h->vocab < PL_HEADTOPK_MAX ? h->vocab : PL_HEADTOPK_MAX;
    PL_TRY(pl_head_lowrank.init(h, err));
    if (candidates(h) < 1 || candidates(h) > most)
        return pl_fail(err, PL_E_INPUT,
                       "head of kind \"%s\": candidates %lld must lie in 1..%lld (drafter.head.candidates)",
                       h->kind->name, (long long)candidates(h), (long long)most);
    return PL_OK;
}

static void params(pl_head *h, pl_params *ps) {
    pl_head_lowrank.params(h, ps);
    pl_param *p = pl_params_weight(ps, &h->exact, PL_PARAM_EMBED, "lm_head.weight", h->vocab, h->d, 0.02);
    p->start = PL_START_DENSE;
    p->fixed = true;
}

static pl_tensor project(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor y) {
    return pl_head_lowrank.project(ctx, h, x, y);
}

// Returns the candidates of each row [M, C], ascending, and their exact logits [M, C].
static pl_tensor rescore_candidates(pl_ctx *ctx, const pl_head *h, pl_tensor x, int32_t **id) {
    int64_t n = candidates(h);
    *id = pl_ctx_bytes(ctx, pl_size_mul((size_t)x.dim[0], (size_t)n, sizeof **id));
    pl_headtopk(ctx, &(pl_headtopk_args){
                         .x = project(ctx, h, x, (pl_tensor){0}), .w = h->out, .k = (int)n, .by_id = true, .id = *id});
    return pl_gatherdot(ctx, x, h->exact, *id, n);
}

static void topk(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, int k, int32_t *id, float *value, float *lse) {
    int32_t  *candidate;
    pl_tensor z = rescore_candidates(ctx, h, r->x, &candidate);
    pl_topk(ctx, &(pl_topk_args){.x = z, .name = candidate, .k = k, .id = id, .value = value, .lse = lse});
}

static pl_tensor logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    int32_t  *candidate;
    pl_tensor z = rescore_candidates(ctx, h, r->x, &candidate);
    return pl_head_spread(ctx, h->vocab, candidate, z);
}

static double step_bytes(const pl_head *h, int level) {
    (void)level;
    double scorer = (double)(h->vocab + h->d) * (double)h->rank * (double)pl_dtype_size(h->out.dtype);
    return scorer + (double)candidates(h) * (double)h->d * (double)pl_dtype_size(h->exact.dtype);
}

// Examples: scorers of rank d/8 and d/16, with 2,004 candidates of the Llama-3 vocabulary.
static bool example(pl_head_example *e, int i, const pl_head_shape *s) {
    int     part = 8 << i;
    int64_t rank = s->d / part, n = s->vocab / 64 < PL_HEADTOPK_MAX ? s->vocab / 64 : PL_HEADTOPK_MAX;
    if (i > 1) return false;
    snprintf(e->name, sizeof e->name, "specvocab-d/%d-%lld", part, (long long)n);
    e->in = PL_EXAMPLE_HEADS | (i == 0 ? PL_EXAMPLE_PLAN : 0);
    if (rank < 1 || n < 1) {
        e->rows = 0;
        return true;
    }
    e->spec = pl_hf_head_make("specvocab", (int)rank);
    pl_hf_head_set(&e->spec, "candidates", n);
    return true;
}

const pl_head_kind pl_head_specvocab = {.name = "specvocab",
                                        .keys = keys,
                                        .factored = true,
                                        .dense = "lm_head.weight",
                                        .init = init,
                                        .params = params,
                                        .project = project,
                                        .topk = topk,
                                        .logits = logits,
                                        .shortlisted = candidates,
                                        .example = example,
                                        .step_bytes = step_bytes};
