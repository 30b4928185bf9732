// DSpark's head (arXiv 2607.05147): the target's own matrix plus low-rank logits of the previous token, which make a
// block's slots depend on each other; and a prediction of each draft's acceptance.
//   e = W1[previous token]                                    markov_head.markov_w1.weight [V, r]
//   z = W h + W2 m                                            markov_head.markov_w2.weight [V, r]
// m by drafter.head.form:
//   vanilla   m = e
//   gated     m = e sigmoid(G [h; e] + b)                     markov_head.gate_proj.weight [r, d + r], .bias [r]
//   rnn       (g, c, o) = J [s; e; h] + b,  m = tanh o        markov_head.joint_proj.weight [3 r, 2 r + d], .bias [3 r]
//             s' = sigmoid(g) s + (1 - sigmoid(g)) tanh c     the next slot's s; 0 in the first, the anchor's
//   confidence = sigmoid(wc [h; e] + bc)                      confidence_head.proj.weight [1, d + r], .bias [1]
// W is the target's, frozen and shared: a block drafter computes W h of all its slots in one product, and goes from
// slot to slot by W2 m alone. Confidence is learned from the drafts' acceptance (train/task/loss_confidence.c); with
// min_confidence a draft ends before the first slot below it. Confidence depends on earlier tokens alone, so
// verification stays lossless.
#include "checkpoints/hf_block.h"
#include "infer/head/head.h"

#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"

#include <math.h>

typedef struct markov {
    int  rank, form; // form: pl_hf_markov
    bool confidence;
    int  min_confidence; // thousandths
} markov;

static const pl_key keys[] = {
    {PL_KEY_AS_INT("drafter.head.rank", markov, rank), .each = true, .deflt = "0", .min = 0, .max = 65536,
     .help = "of a low-rank head, of specvocab's scorer, or of markov's and xpress's logits",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_ENUM("drafter.head.form", markov, form), .each = true, .deflt = "vanilla", .names = pl_hf_markov_name,
     .help =
         "markov: what becomes of the token before: it as it is, gated by what the slot knows, or with a state that "
         "goes from slot to slot",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_BOOL("drafter.head.confidence", markov, confidence), .each = true, .deflt = "false",
     .help = "markov: learn how likely each draft is to be accepted", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_INT("drafter.head.min_confidence", markov, min_confidence), .each = true, .deflt = "0", .min = 0,
     .max = 999,
     .help = "markov: a draft ends before a slot that is accepted with less than so many thousandths; 0: never",
     .stages = PL_STAGE_DRAFTER},
    PL_KEYS_END(markov)};

// The kind's weights besides the target's.
typedef struct weights {
    pl_tensor w1, w2, mix, mix_bias, sure, sure_bias; // mix: gate_proj or joint_proj
} weights;

static pl_status init(pl_head *h, pl_err *err) {
    const markov *own = h->own;
    if (own->rank < 1 || own->rank > h->d)
        return pl_fail(err, PL_E_INPUT,
                       "head of kind \"%s\": rank %d must lie in 1..%lld, the drafter's width (drafter.head.rank)",
                       h->kind->name, own->rank, (long long)h->d);
    if (own->min_confidence > 0 && !own->confidence)
        return pl_fail(err, PL_E_INPUT, "head of kind \"%s\": min_confidence needs confidence: true", h->kind->name);
    h->state = pl_calloc(1, sizeof(weights));
    return h->state ? PL_OK : pl_fail(err, PL_E_MEMORY, "drafter: out of memory");
}

static void fini(pl_head *h) {
    pl_free(h->state);
}

static void params(pl_head *h, pl_params *ps) {
    const markov *own = h->own;
    weights      *w = h->state;
    int64_t       r = own->rank, both = h->d + r;
    pl_params_weight(ps, &w->w1, PL_PARAM_EMBED, "markov_head.markov_w1.weight", h->vocab, r, 0.01);
    pl_params_weight(ps, &w->w2, PL_PARAM_MATRIX, "markov_head.markov_w2.weight", h->vocab, r, 1 / sqrt((double)r));
    double std = 1 / sqrt(3 * (double)both);
    if (own->form == PL_HF_MARKOV_GATED) {
        pl_params_weight(ps, &w->mix, PL_PARAM_MATRIX, "markov_head.gate_proj.weight", r, both, std);
        pl_params_weight(ps, &w->mix_bias, PL_PARAM_BIAS, "markov_head.gate_proj.bias", r, 0, 0);
    } else if (own->form == PL_HF_MARKOV_RNN) {
        pl_params_weight(ps, &w->mix, PL_PARAM_MATRIX, "markov_head.joint_proj.weight", 3 * r, both + r, std);
        pl_params_weight(ps, &w->mix_bias, PL_PARAM_BIAS, "markov_head.joint_proj.bias", 3 * r, 0, 0);
    }
    if (!own->confidence) return;
    pl_params_weight(ps, &w->sure, PL_PARAM_MATRIX, "confidence_head.proj.weight", 1, both,
                     0); // starts at 0: no preference
    pl_params_weight(ps, &w->sure_bias, PL_PARAM_BIAS, "confidence_head.proj.bias", 1, 0, 0);
}

static pl_tensor embed_before(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    return pl_embed(ctx, ((const weights *)h->state)->w1, r->token, pl_tensor_rows(&r->x));
}

static pl_tensor gate_embedding(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    const weights *w = h->state;
    pl_tensor      e = embed_before(ctx, h, r);
    pl_tensor      z = pl_bias(ctx, pl_linear(ctx, pl_concat(ctx, r->x, e), w->mix), w->mix_bias);
    return pl_mul(ctx, pl_squash(ctx, PL_SQUASH_SIGMOID, z, 0, e.dim[1], (pl_tensor){0}), e);
}

// Returns rows of zeros: the embedding of no token.
static pl_tensor zero_rows(pl_ctx *ctx, const pl_head *h, int64_t rows) {
    int32_t *id = pl_ctx_bytes(ctx, (size_t)rows * sizeof *id);
    for (int64_t i = 0; i < rows && !ctx->measuring; i++)
        id[i] = -1;
    return pl_embed(ctx, ((const weights *)h->state)->w1, id, rows);
}

// Computes one slot of each row: returns m, written to y if it has data, and sets *after, the next slot's state.
static pl_tensor run_slot(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, pl_tensor *after, pl_tensor y) {
    const weights *w = h->state;
    pl_tensor      e = embed_before(ctx, h, r), none = {0}, s = r->state.data ? r->state : zero_rows(ctx, h, e.dim[0]);
    int64_t        n = e.dim[1];
    pl_tensor      z = pl_linear(ctx, pl_concat(ctx, pl_concat(ctx, s, e), r->x), w->mix);
    z = pl_bias(ctx, z, w->mix_bias);
    pl_tensor kept = pl_mul(ctx, pl_squash(ctx, PL_SQUASH_SIGMOID, z, 0, n, none), s);
    pl_tensor fresh = pl_squash(ctx, PL_SQUASH_TANH, z, n, n, none);
    fresh = pl_mul(ctx, pl_squash(ctx, PL_SQUASH_REMAINDER, z, 0, n, none), fresh);
    *after = pl_add(ctx, kept, fresh, none);
    return pl_squash(ctx, PL_SQUASH_TANH, z, 2 * n, n, y);
}

// Computes m of all slots' rows, slot after slot.
static pl_tensor run_slots(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    int          levels = r->levels > 0 ? r->levels : 1;
    int64_t      m = pl_tensor_rows(&r->x), n = m / levels;
    pl_tensor    y = pl_ctx_tensor(ctx, m, ((const markov *)h->own)->rank);
    pl_head_rows one = *r;
    for (int k = 0; k < levels; k++) {
        one.x = pl_tensor_slice(&r->x, k * n, n);
        one.token = r->token + k * n;
        run_slot(ctx, h, &one, &one.state, pl_tensor_slice(&y, k * n, n));
    }
    return y;
}

static pl_tensor mix(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    switch (((const markov *)h->own)->form) {
    case PL_HF_MARKOV_GATED: return gate_embedding(ctx, h, r);
    case PL_HF_MARKOV_RNN: return run_slots(ctx, h, r);
    default: return embed_before(ctx, h, r);
    }
}

static void carry(pl_ctx *ctx, const pl_head *h, pl_head_rows *r) {
    if (((const markov *)h->own)->form == PL_HF_MARKOV_RNN)
        r->mixed = run_slot(ctx, h, r, &r->after, (pl_tensor){0});
    else
        r->mixed = mix(ctx, h, r);
}

static const pl_tensor *readout(const pl_head *h) {
    return &((const weights *)h->state)->w2;
}

static pl_tensor confidence(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    const weights *w = h->state;
    if (!((const markov *)h->own)->confidence) return (pl_tensor){0};
    return pl_bias(ctx, pl_linear(ctx, pl_concat(ctx, r->x, embed_before(ctx, h, r)), w->sure), w->sure_bias);
}

static double least_confidence(const pl_head *h) {
    return ((const markov *)h->own)->min_confidence / 1000.0;
}

// The target's rows are read once for all levels.
static double step_bytes(const pl_head *h, int level) {
    const markov *own = h->own;
    double        each = (double)h->vocab * (double)pl_dtype_size(h->out.dtype);
    double mix = (double)((const weights *)h->state)->mix.dim[0] * (double)((const weights *)h->state)->mix.dim[1];
    return each * own->rank + mix * (double)pl_dtype_size(h->out.dtype) + (level == 0 ? each * (double)h->d : 0);
}

static const pl_head_sequence sequence = {
    .mix = mix, .carry = carry, .readout = readout, .confidence = confidence, .least_confidence = least_confidence};

const pl_head_kind pl_head_markov = {.name = "markov",
                                     .keys = keys,
                                     .reads_inputs = true,
                                     .over_target = true,
                                     .init = init,
                                     .fini = fini,
                                     .params = params,
                                     .topk = pl_sequence_topk,
                                     .logits = pl_sequence_logits,
                                     .sequence = &sequence,
                                     .step_bytes = step_bytes};
