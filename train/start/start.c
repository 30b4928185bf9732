#include "train/start/start.h"

#include "checkpoints/fingerprint.h"
#include "infer/head/draft_vocab.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"
#include "train/keys.h"
#include "train/start/embed.h"
#include "train/start/layer.h"
#include "train/start/lowrank.h"

#include <math.h>
#include <string.h>

const pl_backend *pl_start_backend(const pl_env *env) {
    return env->backend->memory ? pl_backend_cpu() : env->backend;
}

// Returns the nth parameter of the heads that starts so, from 0; -1: there is none. A drafter with several heads has
// one of each.
static int find_param(const pl_backbone *b, pl_param_start what, bool fixed, int nth) {
    for (int i = b->head_param; i < b->params.n; i++)
        if (b->params.p[i].start == what && b->params.p[i].fixed == fixed && nth-- == 0) return i;
    return -1;
}

// ---- from a checkpoint

typedef struct origin {
    const char         *dir;
    pl_hf_config        config;
    const pl_head_kind *head;
    pl_weight_source   *src;
    int64_t             rows; // of its head
    int32_t            *row;  // [V] the head's row of each target id, -1: none
} origin;

static void origin_close(origin *o) {
    pl_weight_source_close(o->src);
    pl_free(o->row);
}

static pl_status map_rows(origin *o, int64_t vocab, pl_err *err) {
    int32_t *d2t = NULL;
    o->rows = o->config.draft_vocab_size ? o->config.draft_vocab_size : vocab;
    o->row = pl_malloc(pl_size_mul((size_t)vocab, sizeof *o->row, 1));
    if (!o->row) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", o->dir);
    bool listed = o->rows < vocab || (!o->config.target_head && pl_weight_source_find(o->src, "d2t"));
    if (listed) PL_TRY(pl_draft_vocab_read(&d2t, o->src, o->rows, vocab, err));
    for (int64_t v = 0; v < vocab; v++)
        o->row[v] = d2t ? -1 : (int32_t)v;
    for (int64_t i = 0; d2t && i < o->rows; i++)
        o->row[d2t[i]] = (int32_t)i;
    pl_free(d2t);
    return PL_OK;
}

// Checks that the checkpoint's backbone is this drafter's.
static pl_status check_origin(const origin *o, const pl_backbone *b, pl_err *err) {
    const pl_hf_config *c = &o->config, *mine = &b->config;
    const char         *dir = o->dir;
    bool                own = b->kind->embeds && pl_weight_source_find(o->src, PL_BACKBONE_EMBED);
    if (c->backbone != mine->backbone)
        return pl_fail(err, PL_E_INPUT, "%s: is an %s drafter, drafter.kind asks for %s", dir, pl_hf_backbone_name(c),
                       pl_backbone_name(b));
    if (c->hidden_size != mine->hidden_size || c->vocab_size != mine->vocab_size)
        return pl_fail(err, PL_E_INPUT, "%s: width %d and vocabulary %d, this drafter has %d and %d; %s", dir,
                       c->hidden_size, c->vocab_size, mine->hidden_size, mine->vocab_size,
                       c->vocab_size == mine->vocab_size ? "give its drafter.width"
                                                         : "start from one for this vocabulary");
    if (own != b->own_embed)
        return pl_fail(err, PL_E_INPUT, "%s: was trained %s embeddings of its own; give drafter.own_embeddings: %s",
                       dir, own ? "with" : "without", own ? "true" : "false");
    if (c->n_taps != mine->n_taps || memcmp(c->tap, mine->tap, (size_t)c->n_taps * sizeof *c->tap) != 0)
        return pl_fail(err, PL_E_INPUT, "%s: its taps are other layers of the target; give them as drafter.taps", dir);
    if (c->num_hidden_layers != mine->num_hidden_layers)
        return pl_fail(err, PL_E_INPUT, "%s: has %d layers; give them as drafter.layers", dir, c->num_hidden_layers);
    for (int i = 0; i < PL_HF_NORMS; i++)
        if ((pl_hf_norms(c) ^ pl_hf_norms(mine)) & 1U << i)
            return pl_fail(err, PL_E_INPUT, "%s: was trained %s %s; give drafter.%s", dir,
                           pl_hf_norms(c) & 1U << i ? "with" : "without", pl_hf_norm_names[i], pl_hf_norm_names[i]);
    if (c->block.taps && (c->block.taps != mine->block.taps || c->block.group != mine->block.group))
        return pl_fail(err, PL_E_INPUT,
                       "%s: trained with convolutions; give drafter.conv.taps %d, drafter.conv.group %d", dir,
                       c->block.taps, c->block.group);
    if (c->block.causal != PL_HF_CAUSAL_NONE)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: trained with causal blocks; those that are trained here see both ways", dir);
    for (int l = 0; l < c->num_hidden_layers && c->sliding_window > 0; l++)
        if (!pl_hf_windowed(c, l))
            return pl_fail(err, PL_E_UNSUPPORTED, "%s: layer %d has no window, others do; here all have one, or none",
                           dir, l);
    if (c->sliding_window > 0 && c->sliding_window != mine->sliding_window)
        return pl_fail(err, PL_E_INPUT, "%s: trained with a window of %d; give drafter.window %d", dir,
                       c->sliding_window, c->sliding_window);
    if (c->block.size &&
        (c->block.mask_token != mine->block.mask_token || c->block.anchor_first != mine->block.anchor_first))
        return pl_fail(err, PL_E_INPUT, "%s: give its drafter.mask_token %d, drafter.anchor_first %s", dir,
                       c->block.mask_token, c->block.anchor_first ? "true" : "false");
    return PL_OK;
}

static pl_status origin_open(origin *o, const char *dir, const pl_backbone *b, pl_err *err) {
    *o = (origin){.dir = dir};
    PL_TRY(pl_hf_config_read(&o->config, dir, PL_HF_DRAFTER, err));
    o->head = pl_head_find(*o->config.head.kind ? o->config.head.kind : "full", err);
    if (!o->head) return PL_E_INPUT;
    PL_TRY(pl_weight_source_open(&o->src, dir, err));
    pl_status st = check_origin(o, b, err);
    if (st == PL_OK) st = map_rows(o, o->config.vocab_size, err);
    if (st != PL_OK) origin_close(o);
    return st;
}

static pl_status missing(const origin *o, int64_t id, pl_err *err) {
    return pl_fail(err, PL_E_INPUT, "%s: its head has no row for token %lld; start from a head of all tokens", o->dir,
                   (long long)id);
}

// Rows of a matrix of the checkpoint, for target ids.
static pl_status copy_rows(float *to, const origin *o, const char *name, const int32_t *id, int64_t n, int64_t width,
                           pl_err *err) {
    pl_weight_spec spec = {.part = {{.name = name, .rows = o->rows}}, .n_parts = 1, .rows = o->rows, .cols = width};
    PL_TRY(pl_weight_source_check(o->src, &spec, 1, err));
    for (int64_t i = 0; i < n; i++) {
        int64_t target = id ? id[i] : i;
        int32_t row = o->row[target];
        if (row < 0) return missing(o, target, err);
        PL_TRY(pl_weight_read_rows(o->src, &spec, row, 1, to + i * width, err));
    }
    return PL_OK;
}

// o NULL, or a checkpoint with the target's head: the rows of the target's output matrix. name: of the checkpoint's
// rows, where it has them by this name.
static pl_status full_rows(float *to, const origin *o, const char *name, const pl_start *s, const int32_t *id,
                           int64_t n, int64_t d, pl_err *err) {
    const pl_tensor *w = &s->teacher->host_head;
    if (o && !o->config.target_head) {
        if (!o->head->dense)
            return pl_fail(err, PL_E_INPUT, "%s: its head is of kind %s; start from a full head", o->dir,
                           o->head->name);
        bool named = name && pl_weight_source_find(o->src, name);
        return copy_rows(to, o, named ? name : o->head->dense, id, n, d, err);
    }
    for (int64_t i = 0; i < n; i++)
        pl_to_f32(to + i * d, (const uint8_t *)w->data + (size_t)((id ? id[i] : i) * d) * pl_dtype_size(w->dtype),
                  w->dtype, (size_t)d);
    return PL_OK;
}

pl_status pl_start_head_rows(float *rows, const pl_start *s, const char *dir, const int32_t *id, int64_t n, int64_t d,
                             pl_err *err) {
    origin o;
    PL_TRY(origin_open(&o, dir, s->model, err));
    pl_status st = full_rows(rows, &o, NULL, s, id, n, d, err);
    origin_close(&o);
    return st;
}

static pl_status dense_head(pl_start *s, const origin *o, int at, pl_err *err) {
    const pl_head *h = &s->model->head;
    float         *rows = pl_malloc(pl_size_mul((size_t)h->vocab, (size_t)h->d, sizeof *rows));
    if (!rows) return pl_fail(err, PL_E_MEMORY, "training: out of memory for the head");
    pl_status st = full_rows(rows, o, s->model->params.p[at].name[0], s, h->d2t, h->vocab, h->d, err);
    if (st == PL_OK) st = pl_param_block_set(s->block, at, rows, err);
    pl_free(rows);
    return st;
}

// Copies the factors of a checkpoint's head of the same rank, or computes the best ones of its rows. o NULL: of the
// target's.
static pl_status factored_head(pl_start *s, const origin *o, int up_at, int down_at, const pl_env *env, pl_err *err) {
    const pl_head  *h = &s->model->head;
    const pl_param *p = s->model->params.p;
    bool            same = o && o->head->factored && pl_hf_head_int(&o->config.head, "rank") == h->rank;
    size_t          n = (size_t)h->vocab, r = (size_t)h->rank, d = (size_t)h->d;
    float          *up = pl_malloc(pl_size_mul(n, r, sizeof *up)), *down = pl_malloc(pl_size_mul(r, d, sizeof *down));
    float          *rows = same || !o ? NULL : pl_malloc(pl_size_mul(n, d, sizeof *rows));
    pl_tensor       w = o ? pl_tensor_2d(rows, PL_F32, h->vocab, h->d) : s->teacher->host_head;
    pl_status st = up && down && (same || !o || rows) ? PL_OK : pl_fail(err, PL_E_MEMORY, "training: out of memory");
    if (st == PL_OK && same) {
        pl_weight_spec spec = pl_param_spec(&p[down_at]);
        st = copy_rows(up, o, p[up_at].name[0], h->d2t, h->vocab, h->rank, err);
        if (st == PL_OK) st = pl_weight_source_check(o->src, &spec, 1, err);
        if (st == PL_OK) st = pl_weight_read_f32(o->src, &spec, down, err);
    } else if (st == PL_OK) {
        if (o) st = full_rows(rows, o, NULL, s, h->d2t, h->vocab, h->d, err);
        if (st == PL_OK)
            st = pl_lowrank_factors(up, down, &w, o ? NULL : h->d2t, h->vocab, h->rank,
                                    (uint64_t)pl_generate_recipe_of(s->r)->seed, pl_start_backend(env), env->pool, err);
    }
    if (st == PL_OK) st = pl_param_block_set(s->block, up_at, up, err);
    if (st == PL_OK) st = pl_param_block_set(s->block, down_at, down, err);
    pl_free(up);
    pl_free(down);
    pl_free(rows);
    return st;
}

static pl_status dense_heads(pl_start *s, const origin *o, bool fixed, pl_err *err) {
    for (int k = 0, at; (at = find_param(s->model, PL_START_DENSE, fixed, k)) >= 0; k++)
        PL_TRY(dense_head(s, o, at, err));
    return PL_OK;
}

static pl_status factored_heads(pl_start *s, const origin *o, const pl_env *env, pl_err *err) {
    for (int k = 0, up; (up = find_param(s->model, PL_START_UP, false, k)) >= 0; k++)
        PL_TRY(factored_head(s, o, up, find_param(s->model, PL_START_DOWN, false, k), env, err));
    return PL_OK;
}

// Copies a parameter from the checkpoint; sets zeros if it is missing and may be.
static pl_status same_param(pl_start *s, const origin *o, int i, pl_err *err) {
    const pl_param *p = &s->model->params.p[i];
    pl_weight_spec  spec = pl_param_spec(p);
    PL_TRY(pl_weight_source_check(o->src, &spec, 1, err));
    float *w = pl_calloc((size_t)pl_param_block_count(s->block, i), sizeof *w);
    if (!w) return pl_fail(err, PL_E_MEMORY, "training: out of memory for %s", p->name[0]);
    pl_status st = PL_OK;
    if (pl_weight_has(o->src, &spec)) st = pl_weight_read_f32(o->src, &spec, w, err);
    if (st == PL_OK) st = pl_param_block_set(s->block, i, w, err);
    pl_free(w);
    return st;
}

static pl_status backbone(pl_start *s, const origin *o, pl_err *err) {
    const pl_params *ps = &s->model->params;
    for (int i = 0; i < s->model->head_param; i++) {
        pl_weight_spec spec = pl_param_spec(&ps->p[i]);
        if (!ps->p[i].neutral || pl_weight_has(o->src, &spec)) PL_TRY(same_param(s, o, i, err));
    }
    return PL_OK;
}

// Copies a head's parameters other than rows of tokens (DSpark's logits of the token before, its confidence); those of
// another size keep their initial values. Leaves out routers, which are trained with their clusters.
static pl_status beside_rows(pl_start *s, const origin *o, pl_err *err) {
    const pl_backbone *b = s->model;
    if (o->head != b->head.kind || b->head.kind->routed) return PL_OK;
    for (int i = b->head_param; i < b->selector_param; i++) {
        const pl_param *p = &b->params.p[i];
        pl_weight_spec  spec = pl_param_spec(p);
        if (p->start != PL_START_DRAWN) continue;
        if (pl_weight_has(o->src, &spec) && pl_weight_source_check(o->src, &spec, 1, NULL) == PL_OK)
            PL_TRY(same_param(s, o, i, err));
        else
            pl_log("%s: has no %s of this size, which begins anew", o->dir, p->name[0]);
    }
    return PL_OK;
}

// A selector of the same rank as it is: rows of target ids, then of those that this head drafts; another begins anew.
static pl_status selector(pl_start *s, const origin *o, pl_err *err) {
    const pl_backbone *b = s->model;
    const pl_selector *own = &b->head.selector;
    if (o->config.selector.candidates && (own->candidates == 0 || o->config.selector.rank != own->rank))
        pl_log("%s: its selector of rank %d is not taken over; drafter.selector.candidates %d and rank %d would",
               o->dir, o->config.selector.rank, o->config.selector.candidates, o->config.selector.rank);
    bool other = strcmp(o->config.selector.kind, b->config.selector.kind) != 0;
    if (own->candidates == 0 || o->config.selector.rank != own->rank || other) return PL_OK;
    for (int i = b->selector_param; i < b->params.n; i++) {
        const pl_param *p = &b->params.p[i];
        if (p->tensor != &own->after) {
            PL_TRY(same_param(s, o, i, err));
            continue;
        }
        float *w = pl_malloc(pl_size_mul((size_t)pl_param_block_count(s->block, i), sizeof *w, 1));
        if (!w) return pl_fail(err, PL_E_MEMORY, "training: out of memory for %s", p->name[0]);
        pl_status st = copy_rows(w, o, p->name[0], b->head.d2t, b->head.vocab, own->rank, err);
        if (st == PL_OK) st = pl_param_block_set(s->block, i, w, err);
        pl_free(w);
        PL_TRY(st);
    }
    return PL_OK;
}

pl_status pl_start_from(pl_start *s, const char *dir, const pl_env *env, pl_err *err) {
    const pl_backbone *b = s->model;
    bool               inherits = !b->head.shared && pl_head_recipe_of(s->r)->init == PL_INIT_AUTO;
    origin             o;
    PL_TRY(origin_open(&o, dir, b, err));
    pl_status st = backbone(s, &o, err);
    if (st == PL_OK) st = selector(s, &o, err);
    if (st == PL_OK && pl_head_recipe_of(s->r)->init == PL_INIT_AUTO) st = beside_rows(s, &o, err);
    if (st == PL_OK) st = dense_heads(s, &o, true, err);
    if (st == PL_OK && inherits) st = dense_heads(s, &o, false, err);
    if (st == PL_OK && inherits) st = factored_heads(s, &o, env, err);
    origin_close(&o);
    return st;
}

// ---- from the target

// What is never trained starts as the target's, whatever the recipe says of the rest.
static pl_status start_head(pl_start *s, const pl_env *env, pl_err *err) {
    const pl_backbone    *b = s->model;
    const pl_head_recipe *hd = pl_head_recipe_of(s->r);
    bool                  fits = b->head.d == s->teacher->head.dim[1];
    bool                  dense = find_param(b, PL_START_DENSE, false, 0) >= 0;
    bool                  factored = find_param(b, PL_START_UP, false, 0) >= 0;
    if (b->head.shared) return PL_OK;
    if (fits) PL_TRY(dense_heads(s, NULL, true, err));
    if (hd->init == PL_INIT_RANDOM) return PL_OK;
    if (fits && dense) return dense_heads(s, NULL, false, err);
    if (fits && factored) return factored_heads(s, NULL, env, err);
    if (hd->init == PL_INIT_AUTO) return PL_OK;
    return pl_recipe_fail(s->r, &hd->init, err, "a head of this kind or width cannot start from the target");
}

// The final norm starts as the target's, whose output its head is made for.
static pl_status norm_from_target(pl_start *s, int at, pl_err *err) {
    const pl_params *ps = &s->teacher->model.params;
    int              i = pl_params_find(ps, &s->teacher->model.norm);
    pl_weight_spec   spec = ps->p[i].spec;
    spec.part[0].name = ps->p[i].name[0];
    float *gain = pl_malloc((size_t)spec.rows * sizeof *gain);
    if (!gain) return pl_fail(err, PL_E_MEMORY, "training: out of memory for a norm");
    pl_status st = pl_weight_read_f32(s->teacher->src, &spec, gain, err);
    for (int64_t k = 0; k < spec.rows && st == PL_OK; k++)
        gain[k] += ps->p[i].offset;
    if (st == PL_OK) st = pl_param_block_set(s->block, at, gain, err);
    pl_free(gain);
    return st;
}

static double rms_of(const uint16_t *x, int64_t rows, int64_t stride, int64_t d) {
    double sum = 0;
    for (int64_t t = 0; t < rows; t++)
        for (int64_t k = 0; k < d; k++) {
            double v = (double)pl_bf16_to_f32(x[t * stride + k]);
            sum += v * v;
        }
    return sqrt(sum / (double)(rows * d));
}

static double rms_of_embeddings(const pl_tensor *embed, const int32_t *id, int64_t n) {
    int64_t d = embed->dim[1];
    double  sum = 0;
    for (int64_t t = 0; t < n; t++)
        for (int64_t k = 0; k < d; k++) {
            float x;
            pl_to_f32(&x, (const uint8_t *)embed->data + (size_t)(id[t] * d + k) * pl_dtype_size(embed->dtype),
                      embed->dtype, 1);
            sum += (double)x * (double)x;
        }
    return sqrt(sum / (double)(n * d));
}

// Parameter p as it is drawn, its i-th d columns multiplied by gain[i].
static pl_status scale_columns(pl_start *s, int p, const double *gain, int64_t d, pl_err *err) {
    int64_t n = pl_param_block_count(s->block, p), width = s->model->params.p[p].spec.cols;
    float  *w = pl_malloc(pl_size_mul((size_t)n, sizeof *w, 1));
    if (!w) return pl_fail(err, PL_E_MEMORY, "training: out of memory for fc");
    pl_param_block_draw(s->block, p, (uint64_t)pl_generate_recipe_of(s->r)->seed, w);
    for (int64_t k = 0; k < n; k++)
        w[k] = (float)((double)w[k] * gain[k % width / d]);
    pl_status st = pl_param_block_set(s->block, p, w, err);
    pl_free(w);
    return st;
}

static pl_status start_embeddings(pl_start *s, int at, const pl_env *env, pl_err *err) {
    const pl_weight_spec *spec = &s->model->params.p[at].spec;
    float                *rows = pl_malloc(pl_size_mul((size_t)spec->rows, (size_t)spec->cols, sizeof *rows));
    if (!rows) return pl_fail(err, PL_E_MEMORY, "training: out of memory for embeddings");
    pl_status st = pl_start_embed(rows, &s->teacher->host_embed, spec->cols,
                                  (uint64_t)pl_generate_recipe_of(s->r)->seed, pl_start_backend(env), env->pool, err);
    if (st == PL_OK) st = pl_param_block_set(s->block, at, rows, err);
    pl_free(rows);
    return st;
}

// What starts from the target or from the size of its features, by its parameter's own word.
static pl_status start_backbone(pl_start *s, const pl_columns *doc, const pl_env *env, pl_err *err) {
    const pl_backbone *b = s->model;
    int64_t            d = b->d_target;
    double             gain[PL_MAX_TAPS + 1] = {0};
    pl_feature_rms     rms = {.embedding = rms_of_embeddings(&s->teacher->host_embed, doc->tokens, doc->n),
                              .last_hidden = rms_of(doc->last_hidden, doc->n, d, d)};
    for (int i = 0; i < b->n_taps && doc->features; i++)
        rms.tap[i] = rms_of(doc->features + i * d, doc->n, b->n_taps * d, d);
    for (int i = 0; i < b->head_param; i++) {
        const pl_param *p = &b->params.p[i];
        if (p->start == PL_START_FINAL_NORM && b->shape.d == d) PL_TRY(norm_from_target(s, i, err));
        if (p->start == PL_START_EMBED) PL_TRY(start_embeddings(s, i, env, err));
        if (p->start != PL_START_FEATURES) continue;
        PL_CHECK(p->spec.cols <= (PL_MAX_TAPS + 1) * d, "%lld columns", (long long)p->spec.cols);
        b->kind->gains(b, &rms, gain);
        PL_TRY(scale_columns(s, i, gain, d, err));
    }
    if (pl_train_recipe_of(s->r)->drafter.layer == PL_LAYER_TARGET)
        return pl_start_layer(s, rms.tap[b->n_taps - 1], err);
    return PL_OK;
}

pl_status pl_start_identity(char out[17], const pl_recipe *r, pl_err *err) {
    const char       *dir = pl_train_recipe_of(r)->drafter.start;
    pl_weight_source *src;
    pl_hf_config      c;
    *out = 0;
    if (!dir) return PL_OK;
    if (pl_train_standalone(r)) {
        PL_TRY(pl_llama_source(&src, &c, dir, err));
    } else {
        PL_TRY(pl_hf_config_read(&c, dir, PL_HF_DRAFTER, err));
        PL_TRY(pl_weight_source_open(&src, dir, err));
    }
    pl_status st = pl_fingerprint(out, src, &c, true, err);
    pl_weight_source_close(src);
    return st;
}

pl_status pl_start_weights(pl_start *s, const pl_env *env, pl_err *err) {
    pl_columns  doc;
    const char *from = pl_train_recipe_of(s->r)->drafter.start;
    PL_TRY(pl_param_block_init(s->block, (uint64_t)pl_generate_recipe_of(s->r)->seed, err));
    if (!from || pl_head_recipe_of(s->r)->init != PL_INIT_AUTO) PL_TRY(start_head(s, env, err));
    if (from) return pl_start_from(s, from, env, err);
    PL_TRY(s->source->get(s->source, 0, &doc, err));
    return start_backbone(s, &doc, env, err);
}
