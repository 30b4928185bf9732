// xPress's head (arXiv 2608.02438; tensor names and the first slot: speculators 0.9, xpress): the target's own matrix
// plus low-rank logits of a causal refiner, which reads the block's hidden states and all tokens drafted before.
//   a_j = I [D h_j; G mean(h); E[token before slot j]]      in_proj [r, 3 r], down_h, down_g [r, d], token_embed [V, r]
//   c_j = a_j + sum over i <= j of L_ji a_i                 mix_l [r, B, B]: channel by channel
//   m_j = c_j + mlp_down (silu(mlp_gate c_j) * mlp_up c_j)  mlp_gate, mlp_up [q r, r], mlp_down [r, q r]; q: mlp_ratio
//   z_j = W h_j + R m_j                                     readout [Vd, r];  all names begin with refiner_head.
// mean(h) is over all slots of the block. Where blocks do not draft from their anchor, the anchor's slot has an a_0
// too, of the token before the anchor. The state of a path are the a of its slots.
#include "checkpoints/hf_block.h"
#include "infer/head/head.h"

#include "kernels/op/blockconv.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"

#include <stdio.h>

typedef struct xpress {
    int rank, ratio, passes;
} xpress;

static const pl_key keys[] = {
    {PL_KEY_AS_INT("drafter.head.rank", xpress, rank), .each = true, .deflt = "0", .min = 0, .max = 65536,
     .help = "xpress: of its logits; the published ones have 256", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_INT("drafter.head.mlp_ratio", xpress, ratio), .each = true, .deflt = "2", .min = 1, .max = 64,
     .late = true, .help = "xpress: width of its MLP over its rank", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_INT("drafter.head.passes", xpress, passes), .each = true, .deflt = "6", .min = 0, .max = 64,
     .late = true,
     .help = "xpress: a chain of best tokens is refined in so many passes over all slots; 0: slot after slot, as trees "
             "and drawn drafts are",
     .stages = PL_STAGE_DRAFTER},
    PL_KEYS_END(xpress)};

typedef struct weights {
    pl_tensor embed, down_h, down_g, in, mix, gate, up, down, readout;
} weights;

static pl_status init(pl_head *h, pl_err *err) {
    xpress *own = h->own;
    if (own->rank < 1 || own->rank > h->d)
        return pl_fail(err, PL_E_INPUT,
                       "head of kind \"%s\": rank %d must lie in 1..%lld, the drafter's width (drafter.head.rank)",
                       h->kind->name, own->rank, (long long)h->d);
    if (own->ratio == 0) own->ratio = PL_HF_REFINER_RATIO;
    h->state = pl_calloc(1, sizeof(weights));
    return h->state ? PL_OK : pl_fail(err, PL_E_MEMORY, "drafter: out of memory");
}

static void fini(pl_head *h) {
    pl_free(h->state);
}

static void params(pl_head *h, pl_params *ps) {
    const xpress *own = h->own;
    weights      *w = h->state;
    int64_t       r = own->rank, wide = r * own->ratio, slots = h->slots;
    const struct {
        pl_tensor  *tensor;
        const char *name;
        int64_t     rows, cols;
    } matrix[] = {{&w->down_h, "down_h", r, h->d},      {&w->down_g, "down_g", r, h->d},
                  {&w->in, "in_proj", r, 3 * r},        {&w->gate, "mlp_gate", wide, r},
                  {&w->up, "mlp_up", wide, r},          {&w->down, "mlp_down", r, wide},
                  {&w->readout, "readout", h->vocab, r}};
    pl_params_weight(ps, &w->embed, PL_PARAM_EMBED, "refiner_head.token_embed.weight", h->vocab, r, 0.02);
    for (size_t i = 0; i < sizeof matrix / sizeof *matrix; i++) {
        char name[64];
        snprintf(name, sizeof name, "refiner_head.%s.weight", matrix[i].name);
        pl_params_weight(ps, matrix[i].tensor, PL_PARAM_MATRIX, name, matrix[i].rows, matrix[i].cols, 0.02);
    }
    pl_params_add(ps, &(pl_param_args){.tensor = &w->mix,
                                       .kind = PL_PARAM_BIAS,
                                       .part = {{"refiner_head.mix_l", r * slots * slots}},
                                       .inner = {slots, slots}});
}

// ---- the block ------------------------------------------------------------------------------------------------------

// Returns the mean of each block's rows [n, d].
static pl_tensor average_blocks(pl_ctx *ctx, pl_tensor y, int slots) {
    int64_t   n = pl_tensor_rows(&y) / slots;
    pl_tensor sum = {0};
    for (int j = 0; j < slots; j++) {
        int32_t *row = pl_ctx_bytes(ctx, (size_t)n * sizeof *row);
        for (int64_t i = 0; i < n && !ctx->measuring; i++)
            row[i] = (int32_t)(i * slots + j);
        pl_tensor share = pl_embed_scaled(ctx, y, row, n, 1.0 / slots);
        sum = j > 0 ? pl_add(ctx, sum, share, (pl_tensor){0}) : share;
    }
    return sum;
}

// Keeps [D h; G mean(h)] of all slots.
static void prepare(pl_ctx *ctx, const pl_head *h, pl_head_blocks *b) {
    const weights *w = h->state;
    int64_t        rows = pl_tensor_rows(&b->y);
    int32_t       *block = pl_ctx_bytes(ctx, (size_t)rows * sizeof *block);
    for (int64_t i = 0; i < rows && !ctx->measuring; i++)
        block[i] = (int32_t)(i / b->slots);
    pl_tensor all = pl_linear(ctx, average_blocks(ctx, b->y, b->slots), w->down_g);
    b->kept = pl_concat(ctx, pl_linear(ctx, b->y, w->down_h), pl_gather(ctx, all, block, rows));
}

// Returns a of n rows, of this slot of these blocks (NULL: 0 .. n - 1) and with these tokens before, written to y if it
// has data.
static pl_tensor fuse_slot(pl_ctx *ctx, const pl_head *h, const pl_head_blocks *b, const int32_t *block, int64_t slot,
                           const int32_t *token, int64_t n, pl_tensor y) {
    const weights *w = h->state;
    int32_t       *row = pl_ctx_bytes(ctx, (size_t)n * sizeof *row);
    for (int64_t i = 0; i < n && !ctx->measuring; i++)
        row[i] = (int32_t)((block ? block[i] : i) * b->slots + slot);
    pl_tensor x = pl_concat(ctx, pl_gather(ctx, b->kept, row, n), pl_embed(ctx, w->embed, token, n));
    if (!y.data) return pl_linear(ctx, x, w->in);
    pl_linear_into(ctx, y, x, w->in);
    return y;
}

// Returns the weights of mix_l for rows that are slots 0 .. slots - 1 of blocks, in the form of blockconv: tap o of
// slot j is L_j,j-o.
static pl_tensor taps_of(pl_ctx *ctx, const pl_head *h, int slots, int64_t rows) {
    const weights *w = h->state;
    int64_t        r = ((const xpress *)h->own)->rank, B = h->slots, taps = slots, width = 2 * taps * r;
    int32_t       *at = pl_ctx_bytes(ctx, (size_t)(slots * width) * sizeof *at);
    int32_t       *slot = pl_ctx_bytes(ctx, (size_t)rows * sizeof *slot);
    for (int64_t i = 0; i < slots * width && !ctx->measuring; i++) {
        int64_t j = i / width, o = i % width / r, c = i % r;
        at[i] = o <= j ? (int32_t)((c * B + j) * B + j - o) : -1; // the second side of blockconv has none
    }
    for (int64_t i = 0; i < rows && !ctx->measuring; i++)
        slot[i] = (int32_t)(i % slots);
    pl_tensor all = w->mix;
    all.rank = 2;
    all.dim[1] = 1;
    pl_tensor table = pl_gather(ctx, all, at, slots * width);
    table.dim[0] = slots;
    table.dim[1] = width;
    return pl_gather(ctx, table, slot, rows);
}

// Returns c of rows a, block after block of `slots` slots.
static pl_tensor mix_slots(pl_ctx *ctx, const pl_head *h, pl_tensor a, int slots) {
    int64_t   r = a.dim[1], n = 2 * (int64_t)slots * r;
    pl_tensor zero = pl_tensor_1d(pl_ctx_bytes(ctx, (size_t)n * sizeof(double)), ctx->be->real, n);
    for (int64_t i = 0; i < n && !ctx->measuring; i++)
        pl_real_put(&zero, i, 0);
    zero = pl_ctx_write(ctx, zero.data, 1, n);
    zero.rank = 1;
    zero.dim[0] = n;
    zero.dim[1] = 1;
    pl_tensor mixed = pl_blockconv(ctx, a, taps_of(ctx, h, slots, a.dim[0]), zero, 0, slots, 1);
    return pl_add(ctx, a, mixed, (pl_tensor){0});
}

// Returns m.
static pl_tensor refine(pl_ctx *ctx, const pl_head *h, pl_tensor c) {
    const weights *w = h->state;
    pl_tensor      wide = pl_mul(ctx, pl_silu(ctx, pl_linear(ctx, c, w->gate)), pl_linear(ctx, c, w->up));
    return pl_add(ctx, c, pl_linear(ctx, wide, w->down), (pl_tensor){0});
}

// ---- the contract ---------------------------------------------------------------------------------------------------

static pl_tensor mix(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    const pl_head_blocks *b = r->blocks;
    int                   levels = r->levels > 0 ? r->levels : 1, slots = b->first + levels;
    int64_t               rows = pl_tensor_rows(&r->x), n = rows / levels;
    pl_tensor             a = pl_ctx_tensor(ctx, n * slots, ((const xpress *)h->own)->rank);
    int32_t              *row = pl_ctx_bytes(ctx, (size_t)(n * slots) * sizeof *row);
    int32_t              *drafts = pl_ctx_bytes(ctx, (size_t)rows * sizeof *drafts);
    for (int j = 0; j < slots; j++) {
        const int32_t *token = j < b->first ? b->before : r->token + (j - b->first) * n;
        fuse_slot(ctx, h, b, NULL, j, token, n, pl_tensor_slice(&a, j * n, n));
        for (int64_t i = 0; i < n && !ctx->measuring; i++)
            row[i * slots + j] = (int32_t)(j * n + i);
    }
    for (int64_t i = 0; i < rows && !ctx->measuring; i++)
        drafts[i] = (int32_t)(i % n * slots + b->first + i / n);
    pl_tensor c = mix_slots(ctx, h, pl_gather(ctx, a, row, n * slots), slots);
    return refine(ctx, h, pl_gather(ctx, c, drafts, rows));
}

static void carry(pl_ctx *ctx, const pl_head *h, pl_head_rows *r) {
    const pl_head_blocks *b = r->blocks;
    int                   slot = b->first + r->level;
    int64_t               n = pl_tensor_rows(&r->x);
    int32_t              *last = pl_ctx_bytes(ctx, (size_t)n * sizeof *last);
    int32_t              *before = pl_ctx_bytes(ctx, (size_t)n * sizeof *before);
    for (int64_t i = 0; i < n && !ctx->measuring; i++) {
        last[i] = (int32_t)(i * (slot + 1) + slot);
        before[i] = b->before[r->block[i]];
    }
    pl_tensor path = r->state;
    if (r->level == 0 && b->first > 0) path = fuse_slot(ctx, h, b, r->block, 0, before, n, (pl_tensor){0});
    pl_tensor a = fuse_slot(ctx, h, b, r->block, slot, r->token, n, (pl_tensor){0});
    r->after = slot > 0 ? pl_concat(ctx, path, a) : a;
    pl_tensor all = r->after;
    all.dim[0] = n * (slot + 1);
    all.dim[1] = a.dim[1];
    r->mixed = refine(ctx, h, pl_gather(ctx, mix_slots(ctx, h, all, slot + 1), last, n));
}

static const pl_tensor *readout(const pl_head *h) {
    return &((const weights *)h->state)->readout;
}

static int passes(const pl_head *h) {
    return ((const xpress *)h->own)->passes;
}

// The target's rows are read once for all levels.
static double step_bytes(const pl_head *h, int level) {
    const xpress *own = h->own;
    double        r = own->rank, each = (double)h->vocab, inside = (3 + 3 * own->ratio) * r * r;
    return (double)pl_dtype_size(h->out.dtype) * (each * r + inside + (level == 0 ? (each + 2 * r) * (double)h->d : 0));
}

static const pl_head_sequence sequence = {
    .prepare = prepare, .mix = mix, .carry = carry, .readout = readout, .passes = passes};

const pl_head_kind pl_head_xpress = {.name = "xpress",
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
