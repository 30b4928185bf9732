// LiLiCorr (arXiv 2608.20530; tensor names and equations of NVIDIA Model-Optimizer's and vLLM's loaders): a small
// network over all candidates of a block gives each a vector by which it is left and one by which it is entered.
//
//   x(s, k) = T embed(candidate k of slot s) + P h_s + F features + slot_s + rank_k        [H], k in the head's order
//   features: LayerNorm of log p, p, log p - log p of the best, k / (K - 1), k == 0; p the head's
//   layers: x += attention(norm x), all slots in both directions, with a bias for the distance of slots and one more
//           within a slot;  x += W2 silu(W1 norm x + b1) + b2
//   c = norm(C of the target's fused features before the block)
//   f(s, k) = silu(J [norm x; c; norm x * c])
//   out(s, k) = unit(O f), in(s, k) = unit(I f), start = unit(A c)                          [r]
//   unit(v) = v / sqrt(|v|^2 + eps^2), which is loaders' v / max(|v|, eps) but for vectors about as short as eps
//   S(a, b) = scale out(s - 1, a) . in(s, b);  in the first slot scale start . in(0, b)
// in place of the head's logits. Behind a token that is not on the list of its slot (by the full law one may be drawn)
// the head's own logits stay. p is a constant in the gradient.
#include "infer/head/head.h"

#include "kernels/base/check.h"
#include "kernels/op/blockattention.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"

#include <math.h>
#include <stdio.h>

enum { LAYERS = PL_HF_LATTICE_LAYERS, FEATURES = 5 };

typedef struct affine {
    pl_tensor w, b;
} affine;

typedef struct lattice {
    int       width, layers, heads, drafts; // H, .., .., slots that draft
    int64_t   wide;                         // of an MLP
    double    scale, eps;
    affine    token, pass, norm, feature[2], context, join, out, in, start;
    pl_tensor slot, rank, distance, within; // [drafts, H], [K, H], [heads (2 drafts + 1)], [heads]
    pl_tensor norm_x, norm_c;
    struct {
        pl_tensor norm_attn, norm_mlp;
        affine    qkv, o, up, down;
    } layer[LAYERS];
} lattice;

static pl_status init(pl_selector *s, const pl_hf_selector *spec, int64_t d, int drafts, pl_err *err) {
    (void)d;
    if (spec->layers < 1 || spec->layers > LAYERS || spec->width < 1 || spec->heads < 1 ||
        spec->width % spec->heads != 0)
        return pl_fail(err, PL_E_INPUT,
                       "selector: a lattice of %d layers, width %d and %d heads; expected 1 to %d layers and a width "
                       "that the heads divide",
                       spec->layers, spec->width, spec->heads, LAYERS);
    if (!(spec->scale > 0) || !(spec->eps > 0) || !(spec->mlp_ratio * spec->width >= 1))
        return pl_fail(err, PL_E_INPUT, "selector: a lattice of scale %g, eps %g and mlp_ratio %g; all must be above 0",
                       spec->scale, spec->eps, spec->mlp_ratio);
    lattice *l = pl_calloc(1, sizeof *l);
    if (!l) return pl_fail(err, PL_E_MEMORY, "drafter: out of memory");
    *l = (lattice){.width = spec->width,
                   .layers = spec->layers,
                   .heads = spec->heads,
                   .drafts = drafts,
                   .wide = (int64_t)(spec->mlp_ratio * spec->width),
                   .scale = spec->scale,
                   .eps = spec->eps};
    s->state = l;
    return PL_OK;
}

static void fini(pl_selector *s) {
    pl_free(s->state);
}

// ---- weights --------------------------------------------------------------------------------------------------------

static void add_affine(pl_params *ps, affine *a, const char *prefix, const char *name, const char *mark, int64_t rows,
                       int64_t cols) {
    char whole[96];
    snprintf(whole, sizeof whole, "lilicorr.%s%s%sweight", prefix, name, mark);
    pl_params_weight(ps, &a->w, PL_PARAM_MATRIX, whole, rows, cols, 1 / sqrt((double)cols));
    snprintf(whole, sizeof whole, "lilicorr.%s%s%sbias", prefix, name, mark);
    pl_params_weight(ps, &a->b, PL_PARAM_BIAS, whole, rows, 0, 0);
}

static void add_layer(pl_params *ps, lattice *l, int i) {
    char    prefix[24], norms[40];
    int64_t H = l->width;
    snprintf(prefix, sizeof prefix, "layers.%d.", i);
    snprintf(norms, sizeof norms, "lilicorr.layers.%d.", i);
    pl_params_norm(ps, &l->layer[i].norm_attn, norms, "attn_norm", H);
    add_affine(ps, &l->layer[i].qkv, prefix, "attn.in_proj", "_", 3 * H, H);
    add_affine(ps, &l->layer[i].o, prefix, "attn.out_proj", ".", H, H);
    pl_params_norm(ps, &l->layer[i].norm_mlp, norms, "mlp_norm", H);
    add_affine(ps, &l->layer[i].up, prefix, "mlp.0", ".", l->wide, H);
    add_affine(ps, &l->layer[i].down, prefix, "mlp.2", ".", H, l->wide);
}

static void params(pl_selector *s, pl_params *ps, int64_t d, int64_t vocab, int64_t draft_vocab) {
    lattice *l = s->state;
    int64_t  H = l->width, apart = 2 * l->drafts + 1;
    (void)vocab, (void)draft_vocab;
    if (H != d) add_affine(ps, &l->token, "", "token_proj", ".", H, d);
    add_affine(ps, &l->pass, "", "pass_hidden_proj", ".", H, d);
    pl_params_norm(ps, &l->norm.w, "lilicorr.", "feature_mlp.0", FEATURES);
    pl_params_weight(ps, &l->norm.b, PL_PARAM_BIAS, "lilicorr.feature_mlp.0.bias", FEATURES, 0, 0);
    add_affine(ps, &l->feature[0], "", "feature_mlp.1", ".", H, FEATURES);
    add_affine(ps, &l->feature[1], "", "feature_mlp.3", ".", H, H);
    pl_params_weight(ps, &l->slot, PL_PARAM_EMBED, "lilicorr.slot_embedding", l->drafts, H, 0);
    pl_params_weight(ps, &l->rank, PL_PARAM_EMBED, "lilicorr.rank_embedding", s->candidates, H, 0);
    pl_params_weight(ps, &l->distance, PL_PARAM_EMBED, "lilicorr.relative_slot_bias", l->heads, apart, 0);
    pl_params_weight(ps, &l->within, PL_PARAM_BIAS, "lilicorr.same_slot_bias", l->heads, 0, 0);
    add_affine(ps, &l->context, "", "context_proj", ".", H, d);
    for (int i = 0; i < l->layers; i++)
        add_layer(ps, l, i);
    pl_params_norm(ps, &l->norm_x, "lilicorr.", "output_norm", H);
    pl_params_norm(ps, &l->norm_c, "lilicorr.", "anchor_norm", H);
    add_affine(ps, &l->join, "", "factor_input_proj", ".", H, 3 * H);
    add_affine(ps, &l->out, "", "out_head", ".", s->rank, H);
    add_affine(ps, &l->in, "", "in_head", ".", s->rank, H);
    add_affine(ps, &l->start, "", "anchor_out_head", ".", s->rank, H);
}

static pl_tensor apply(pl_ctx *ctx, const affine *a, pl_tensor x) {
    return pl_bias(ctx, pl_linear(ctx, x, a->w), a->b);
}

// ---- rows of the lattice: block after block, slot after slot, candidate after candidate -----------------------------

typedef struct shape {
    int64_t n, K, slots, rows; // blocks, candidates, drafts of a block, all
} shape;

static shape shape_of(const pl_head *h, const pl_head_rows *r) {
    const lattice *l = h->selector.state;
    shape          s = {.n = pl_tensor_rows(&r->x) / l->drafts, .K = h->selector.candidates, .slots = l->drafts};
    PL_CHECK(s.n * s.slots == pl_tensor_rows(&r->x), "%lld rows of %lld drafts", (long long)pl_tensor_rows(&r->x),
             (long long)s.slots);
    s.rows = s.n * s.slots * s.K;
    return s;
}

// Returns the row of the list, draft after draft, that holds lattice row i.
static int64_t list_row(const shape *s, int64_t i) {
    return i / s->K % s->slots * s->n + i / (s->K * s->slots);
}

// Returns a constant of [rows, cols], whose values the host has written to *at.
static pl_tensor constant(pl_ctx *ctx, int64_t rows, int64_t cols) {
    void *at = pl_ctx_bytes(ctx, pl_size_mul((size_t)rows, (size_t)cols, sizeof(double)));
    return pl_tensor_2d(at, ctx->be->real, rows, cols);
}

static pl_tensor written(pl_ctx *ctx, pl_tensor t) {
    return pl_ctx_write(ctx, t.data, t.dim[0], t.dim[1]);
}

static int32_t *index_of(pl_ctx *ctx, int64_t n) {
    return pl_ctx_bytes(ctx, pl_size_mul((size_t)n, sizeof(int32_t), 1));
}

// Writes the normed features of lattice row i.
static void put_features(pl_tensor *t, const shape *s, const pl_selector_list *l, int64_t i) {
    int64_t row = list_row(s, i), k = i % s->K;
    double  best = (double)l->value[row * s->K] - (double)l->lse[row];
    double  log_p = (double)l->value[row * s->K + k] - (double)l->lse[row], mean = 0, square = 0;
    double  f[FEATURES] = {log_p, exp(log_p), log_p - best, (double)k / (double)(s->K - 1), k == 0};
    for (int j = 0; j < FEATURES; j++)
        mean += f[j] / FEATURES;
    for (int j = 0; j < FEATURES; j++)
        square += (f[j] - mean) * (f[j] - mean) / FEATURES;
    for (int j = 0; j < FEATURES; j++)
        pl_real_put(t, i * FEATURES + j, (f[j] - mean) / sqrt(square + 1e-5));
}

static pl_tensor embed_features(pl_ctx *ctx, const lattice *l, const shape *s, const pl_selector_list *list) {
    pl_tensor t = constant(ctx, s->rows, FEATURES), weight = l->norm.w;
    int32_t  *first = index_of(ctx, s->rows);
    for (int64_t i = 0; i < s->rows && !ctx->measuring; i++) {
        put_features(&t, s, list, i);
        first[i] = 0;
    }
    weight.rank = 2;
    weight.dim[1] = weight.dim[0];
    weight.dim[0] = 1;
    t = pl_bias(ctx, pl_mul(ctx, written(ctx, t), pl_gather(ctx, weight, first, s->rows)), l->norm.b);
    return apply(ctx, &l->feature[1], pl_silu(ctx, apply(ctx, &l->feature[0], t)));
}

static pl_tensor embed_lattice(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, const shape *s,
                               const pl_selector_list *list) {
    const lattice *l = h->selector.state;
    pl_tensor      none = {0};
    int32_t       *token = index_of(ctx, s->rows), *row = index_of(ctx, s->rows);
    int32_t       *slot = index_of(ctx, s->rows), *rank = index_of(ctx, s->rows);
    for (int64_t i = 0; i < s->rows && !ctx->measuring; i++) {
        int32_t id = list->id[list_row(s, i) * s->K + i % s->K];
        token[i] = id >= 0 && h->d2t ? h->d2t[id] : id;
        row[i] = (int32_t)list_row(s, i);
        slot[i] = (int32_t)(i / s->K % s->slots);
        rank[i] = (int32_t)(i % s->K);
    }
    pl_tensor x = pl_embed(ctx, r->embed, token, s->rows);
    if (l->token.w.data) x = apply(ctx, &l->token, x);
    x = pl_add(ctx, x, pl_gather(ctx, apply(ctx, &l->pass, r->x), row, s->rows), none);
    x = pl_add(ctx, x, embed_features(ctx, l, s, list), none);
    x = pl_add(ctx, x, pl_embed(ctx, l->slot, slot, s->rows), none);
    return pl_add(ctx, x, pl_embed(ctx, l->rank, rank, s->rows), none);
}

// ---- attention ------------------------------------------------------------------------------------------------------

// The biases are a part of the scores q . k: queries get the biases of their slot to every slot, keys a 1 at their own.

// Returns the biases [heads slots, slots] of a slot (row) to slots (columns).
static pl_tensor bias_table(pl_ctx *ctx, const lattice *l) {
    int64_t   D = l->drafts, n = l->heads * D * D;
    int32_t  *apart = index_of(ctx, n), *same = index_of(ctx, n);
    pl_tensor distance = l->distance, within = l->within;
    for (int64_t i = 0; i < n && !ctx->measuring; i++) {
        int64_t head = i / (D * D), from = i / D % D, to = i % D;
        apart[i] = (int32_t)(head * (2 * D + 1) + from - to + D);
        same[i] = from == to ? (int32_t)head : -1;
    }
    distance.dim[0] = l->heads * (2 * D + 1);
    distance.dim[1] = 1;
    within.rank = 2;
    within.dim[1] = 1;
    pl_tensor t = pl_add(ctx, pl_embed(ctx, distance, apart, n), pl_gather(ctx, within, same, n), (pl_tensor){0});
    t.dim[0] = l->heads * D;
    t.dim[1] = D;
    return t;
}

static pl_tensor unit_matrix(pl_ctx *ctx, int64_t n) {
    pl_tensor t = constant(ctx, n, n);
    for (int64_t i = 0; i < n * n && !ctx->measuring; i++)
        pl_real_put(&t, i, i % (n + 1) == 0);
    return written(ctx, t);
}

// Returns queries, keys and values of all heads [rows 3 heads, hd] with D more columns: those of the biases.
static pl_tensor widen_heads(pl_ctx *ctx, const lattice *l, const shape *s, pl_tensor qkv) {
    int64_t   D = l->drafts, hd = l->width / l->heads, n = s->rows * 3 * l->heads;
    int32_t  *query = index_of(ctx, n), *other = index_of(ctx, n), *bias = index_of(ctx, n), *unit = index_of(ctx, n);
    double    scale = sqrt((double)(hd + D)); // which the op divides by
    pl_tensor none = {0};
    for (int64_t i = 0; i < n && !ctx->measuring; i++) {
        int64_t head = i % l->heads, part = i / l->heads % 3, slot = i / (3 * l->heads) / s->K % D;
        query[i] = part == 0 ? (int32_t)i : -1;
        other[i] = part == 0 ? -1 : (int32_t)i;
        bias[i] = part == 0 ? (int32_t)(head * D + slot) : -1;
        unit[i] = part == 1 ? (int32_t)slot : -1;
    }
    qkv.dim[0] = n;
    qkv.dim[1] = hd;
    pl_tensor q = pl_embed_scaled(ctx, qkv, query, n, scale / sqrt((double)hd));
    pl_tensor more = pl_embed_scaled(ctx, bias_table(ctx, l), bias, n, scale);
    more = pl_add(ctx, more, pl_gather(ctx, unit_matrix(ctx, D), unit, n), none);
    return pl_concat(ctx, pl_add(ctx, q, pl_gather(ctx, qkv, other, n), none), more);
}

static int64_t common_divisor(int64_t a, int64_t b) {
    return b == 0 ? a : common_divisor(b, a % b);
}

// Returns the first hd of every hd + D columns.
static pl_tensor narrow_heads(pl_ctx *ctx, const lattice *l, const shape *s, pl_tensor o) {
    int64_t  hd = l->width / l->heads, wide = hd + l->drafts, piece = common_divisor(hd, wide);
    int64_t  n = s->rows * l->width / piece;
    int32_t *at = index_of(ctx, n);
    for (int64_t i = 0; i < n && !ctx->measuring; i++)
        at[i] = (int32_t)(i / (hd / piece) * (wide / piece) + i % (hd / piece));
    o.dim[0] = s->rows * l->heads * wide / piece;
    o.dim[1] = piece;
    o = pl_gather(ctx, o, at, n);
    o.dim[0] = s->rows;
    o.dim[1] = l->width;
    return o;
}

static pl_tensor attend(pl_ctx *ctx, const lattice *l, const shape *s, pl_tensor x, const affine *in) {
    int64_t   wide = l->width / l->heads + l->drafts;
    pl_tensor qkv = widen_heads(ctx, l, s, apply(ctx, in, x)), none = constant(ctx, 1, 2 * l->heads * wide);
    int32_t  *no_context = index_of(ctx, s->n);
    for (int64_t i = 0; i < s->n && !ctx->measuring; i++)
        no_context[i] = 0;
    for (int64_t i = 0; i < none.dim[1] && !ctx->measuring; i++)
        pl_real_put(&none, i, 0);
    qkv.dim[0] = s->rows;
    qkv.dim[1] = 3 * l->heads * wide;
    pl_tensor o = pl_blockattention(ctx, qkv, written(ctx, none), no_context, no_context, (int)(s->slots * s->K),
                                    l->heads, l->heads, (int)wide);
    return narrow_heads(ctx, l, s, o);
}

static pl_tensor run_layers(pl_ctx *ctx, const lattice *l, const shape *s, pl_tensor x, double eps) {
    for (int i = 0; i < l->layers; i++) {
        pl_tensor y = pl_rmsnorm(ctx, x, l->layer[i].norm_attn, eps);
        x = pl_add(ctx, x, apply(ctx, &l->layer[i].o, attend(ctx, l, s, y, &l->layer[i].qkv)), (pl_tensor){0});
        y = pl_silu(ctx, apply(ctx, &l->layer[i].up, pl_rmsnorm(ctx, x, l->layer[i].norm_mlp, eps)));
        x = pl_add(ctx, x, apply(ctx, &l->layer[i].down, y), (pl_tensor){0});
    }
    return pl_rmsnorm(ctx, x, l->norm_x, eps);
}

// ---- the contract ---------------------------------------------------------------------------------------------------

// Scales rows [n, r] to the length sqrt(scale), so that products of two are scale times their cosine.
static pl_tensor scale_rows(pl_ctx *ctx, const lattice *l, pl_tensor x) {
    int64_t   r = x.dim[1];
    pl_tensor g = constant(ctx, 1, r);
    for (int64_t i = 0; i < r && !ctx->measuring; i++)
        pl_real_put(&g, i, sqrt(l->scale / (double)r));
    g = written(ctx, g);
    g.rank = 1;
    g.dim[0] = r;
    g.dim[1] = 1;
    return pl_rmsnorm(ctx, x, g, l->eps * l->eps / (double)r);
}

// Keeps the vectors by which candidates are entered and left [rows, r], and by which blocks begin [n, r].
static void prepare(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, pl_selector_list *list) {
    const lattice *l = h->selector.state;
    shape          s = shape_of(h, r);
    int32_t       *block = index_of(ctx, s.rows);
    PL_CHECK(r->blocks && r->embed.data, "a lattice of %lld blocks without their context", (long long)s.n);
    for (int64_t i = 0; i < s.rows && !ctx->measuring; i++)
        block[i] = (int32_t)(i / (s.slots * s.K));
    double    eps = h->selector.norm_eps;
    pl_tensor x = run_layers(ctx, l, &s, embed_lattice(ctx, h, r, &s, list), eps);
    pl_tensor c = pl_rmsnorm(ctx, apply(ctx, &l->context, r->blocks->context), l->norm_c, eps);
    pl_tensor each = pl_gather(ctx, c, block, s.rows);
    pl_tensor f = pl_concat(ctx, pl_concat(ctx, x, each), pl_mul(ctx, x, each));
    f = pl_silu(ctx, apply(ctx, &l->join, f));
    list->kept[0] = scale_rows(ctx, l, apply(ctx, &l->in, f));
    list->kept[1] = scale_rows(ctx, l, apply(ctx, &l->out, f));
    list->kept[2] = scale_rows(ctx, l, apply(ctx, &l->start, c));
}

// Returns the place of a token on the list of a row; -1: none.
static int64_t place_of(const pl_head *h, const pl_selector_list *l, int64_t row, int32_t token) {
    int K = h->selector.candidates;
    for (int64_t k = 0; k < K; k++) {
        int32_t id = l->all[row * K + k];
        if (id >= 0 && (h->d2t ? h->d2t[id] : id) == token) return k;
    }
    return -1;
}

static pl_tensor score(pl_ctx *ctx, const pl_head *h, const pl_selector_ask *a) {
    const lattice          *l = h->selector.state;
    const pl_selector_list *list = a->list;
    int64_t                 m = a->own.dim[0], n = list->kept[2].dim[0], D = l->drafts, K = h->selector.candidates;
    int32_t                *begin = index_of(ctx, m), *from = index_of(ctx, m), *to = index_of(ctx, m * K);
    pl_tensor               keeps = constant(ctx, m, K), none = {0};
    for (int64_t i = 0; i < m && !ctx->measuring; i++) {
        int64_t row = list->row ? list->row[i] : i, slot = row / n, block = row % n;
        int64_t k = slot > 0 ? place_of(h, list, row - n, a->before[i]) : 0;
        begin[i] = slot == 0 ? (int32_t)block : -1;
        from[i] = slot > 0 && k >= 0 ? (int32_t)((block * D + slot - 1) * K + k) : -1;
        for (int64_t j = 0; j < K; j++) {
            to[i * K + j] = (int32_t)((block * D + slot) * K + j);
            pl_real_put(&keeps, i * K + j, k < 0);
        }
    }
    pl_tensor v = pl_add(ctx, pl_gather(ctx, list->kept[2], begin, m), pl_gather(ctx, list->kept[1], from, m), none);
    pl_tensor own = pl_mul(ctx, a->own, written(ctx, keeps));
    return pl_add(ctx, own, pl_gatherdot(ctx, v, list->kept[0], to, K), none);
}

// All candidates of a block are computed at once, for all of its drafts.
static double bytes(const pl_selector *s) {
    const lattice *l = s->state;
    double         H = l->width, layer = (4 * H + 2 * (double)l->wide) * H, d = (double)l->pass.w.dim[1];
    double         all = l->layers * layer + (4 + 2) * H * H + 2 * H * d + 3 * H * s->rank;
    return (double)pl_dtype_size(l->pass.w.dtype) * (all / l->drafts + s->candidates * d);
}

const pl_selector_kind pl_selector_lattice = {.name = PL_HF_LATTICE,
                                              .blocks = true,
                                              .init = init,
                                              .fini = fini,
                                              .params = params,
                                              .prepare = prepare,
                                              .score = score,
                                              .bytes = bytes};
