// DSpark's head (arXiv 2607.05147): the target's own matrix, and low-rank logits of the token before, which give a
// block's slots what they cannot know of each other; beside them a guess of how likely the draft is to be accepted.
//   e = W1[token before]                                      markov_head.markov_w1.weight [V, r]
//   z = W h + W2 e                                            markov_head.markov_w2.weight [V, r]
//   confidence = sigmoid(wc [h; e] + bc)                      confidence_head.proj.weight [1, d + r], .bias [1]
// W is the target's, frozen and shared: a drafter of blocks has W h of all its slots from one product, and goes from
// slot to slot by W2 e alone. Confidence is learned from the drafts' acceptance (train/task/blocks.h); with
// min_confidence a draft ends before the first slot whose confidence is less, which depends on the tokens before it
// alone, so that verification loses nothing.
#include "infer/head/head.h"

#include "kernels/op/add.h"
#include "kernels/op/bias.h"
#include "kernels/op/concat.h"
#include "kernels/op/embed.h"
#include "kernels/op/linear.h"
#include "kernels/op/topk.h"

#include <math.h>
#include <stdio.h>

typedef struct markov {
    int  rank;
    bool confidence;
    int  min_confidence; // thousandths
} markov;

static const pl_key keys[] = {
    {PL_KEY_AS_INT("drafter.head.rank", markov, rank), .each = true, .deflt = "0", .min = 0, .max = 65536,
     .help = "of a low-rank head, of specvocab's scorer, or of markov's logits", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_BOOL("drafter.head.confidence", markov, confidence), .each = true, .deflt = "false",
     .help = "markov: learn how likely each draft is to be accepted", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_INT("drafter.head.min_confidence", markov, min_confidence), .each = true, .deflt = "0", .min = 0,
     .max = 999,
     .help = "markov: a draft ends before a slot that is accepted with less than so many thousandths; 0: never",
     .stages = PL_STAGE_DRAFTER},
    PL_KEYS_END(markov)};

// Its weights, beside the target's.
typedef struct weights {
    pl_tensor w1, w2, sure, sure_bias;
} weights;

static pl_status init(pl_head *h, pl_err *err) {
    const markov *own = h->own;
    if (own->rank < 1 || own->rank > h->d)
        return pl_fail(err, PL_E_INPUT, "head of kind \"%s\": rank %d must lie in 1..%lld, the drafter's width",
                       h->kind->name, own->rank, (long long)h->d);
    if (own->min_confidence > 0 && !own->confidence)
        return pl_fail(err, PL_E_INPUT, "head of kind \"%s\": min_confidence needs confidence: true", h->kind->name);
    h->state = pl_calloc(1, sizeof(weights));
    return h->state ? PL_OK : pl_fail(err, PL_E_MEMORY, "drafter: out of memory");
}

static void fini(pl_head *h) {
    pl_free(h->state);
}

static void add(pl_params *ps, pl_tensor *t, pl_param_kind kind, const char *name, int64_t rows, int64_t cols,
                double init_std) {
    pl_params_add(
        ps, &(pl_param_args){.tensor = t, .kind = kind, .part = {{name, rows}}, .cols = cols, .init_std = init_std});
}

static void params(pl_head *h, pl_params *ps) {
    const markov *own = h->own;
    weights      *w = h->state;
    int64_t       r = own->rank, both = h->d + r;
    add(ps, &w->w1, PL_PARAM_EMBED, "markov_head.markov_w1.weight", h->vocab, r, 0.01);
    add(ps, &w->w2, PL_PARAM_MATRIX, "markov_head.markov_w2.weight", h->vocab, r, 1 / sqrt((double)r));
    if (!own->confidence) return;
    add(ps, &w->sure, PL_PARAM_MATRIX, "confidence_head.proj.weight", 1, both, 0); // begins with no opinion
    add(ps, &w->sure_bias, PL_PARAM_BIAS, "confidence_head.proj.bias", 1, 0, 0);
}

static pl_tensor before(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    return pl_embed(ctx, ((const weights *)h->state)->w1, r->token, pl_tensor_rows(&r->x));
}

static void teach(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, pl_tensor *x, pl_tensor *w) {
    *x = pl_concat(ctx, r->x, before(ctx, h, r));
    *w = pl_concat(ctx, h->out, ((const weights *)h->state)->w2);
}

static pl_tensor all(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    pl_tensor base = r->base.data ? r->base : pl_linear(ctx, r->x, h->out);
    pl_tensor more = pl_linear(ctx, before(ctx, h, r), ((const weights *)h->state)->w2);
    return pl_add(ctx, base, more, (pl_tensor){0});
}

static void topk(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, int k, int32_t *id, float *value, float *lse) {
    pl_topk(ctx, &(pl_topk_args){.x = all(ctx, h, r), .k = k, .id = id, .value = value, .lse = lse});
}

static pl_tensor logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    pl_tensor z = all(ctx, h, r);
    z.data = pl_ctx_read(ctx, &z);
    return z;
}

static pl_tensor confidence(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    const weights *w = h->state;
    if (!((const markov *)h->own)->confidence) return (pl_tensor){0};
    return pl_bias(ctx, pl_linear(ctx, pl_concat(ctx, r->x, before(ctx, h, r)), w->sure), w->sure_bias);
}

static double least_confidence(const pl_head *h) {
    return ((const markov *)h->own)->min_confidence / 1000.0;
}

// The target's rows are read for all levels at once.
static double step_bytes(const pl_head *h, int level) {
    const markov *own = h->own;
    double        each = (double)h->vocab * (double)pl_dtype_size(h->out.dtype);
    return each * own->rank + (level == 0 ? each * (double)h->d : 0);
}

const pl_head_kind pl_head_markov = {.name = "markov",
                                     .keys = keys,
                                     .reads_inputs = true,
                                     .over_target = true,
                                     .init = init,
                                     .fini = fini,
                                     .params = params,
                                     .topk = topk,
                                     .logits = logits,
                                     .teach = teach,
                                     .confidence = confidence,
                                     .least_confidence = least_confidence,
                                     .step_bytes = step_bytes};
