#include "train/start/start.h"

#include "checkpoints/fingerprint.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "train/keys.h"
#include "train/start/embed.h"
#include "train/start/host.h"
#include "train/start/lowrank.h"
#include "train/start/start_from.h"

#include <math.h>

static pl_status set_param(pl_start *s, const pl_tensor *which, const float *values, pl_err *err) {
    return pl_param_block_set(s->block, pl_params_find(&s->model->params, which), values, err);
}

// The rows of the target's output matrix that the head has, into one of its matrices.
static pl_status head_from_target(pl_start *s, const pl_tensor *to, pl_err *err) {
    const pl_head   *h = &s->model->head;
    const pl_tensor *from = &s->teacher->host_head;
    int64_t          d = from->dim[1];
    float           *rows = pl_malloc(pl_size_mul((size_t)h->vocab, (size_t)d, sizeof *rows));
    if (!rows) return pl_fail(err, PL_E_MEMORY, "training: out of memory for the head");
    for (int64_t j = 0; j < h->vocab; j++) {
        int64_t id = h->d2t ? h->d2t[j] : j;
        pl_to_f32(rows + j * d, (const uint8_t *)from->data + (size_t)(id * d) * pl_dtype_size(from->dtype),
                  from->dtype, (size_t)d);
    }
    pl_status st = set_param(s, to, rows, err);
    pl_free(rows);
    return st;
}

static pl_status factors_from_target(pl_start *s, int up_at, int down_at, const pl_env *env, pl_err *err) {
    const pl_head *h = &s->model->head;
    float         *up = pl_malloc(pl_size_mul((size_t)h->vocab, (size_t)h->rank, sizeof *up));
    float         *down = pl_malloc(pl_size_mul((size_t)h->rank, (size_t)h->d, sizeof *down));
    pl_status      st = up && down ? PL_OK : pl_fail(err, PL_E_MEMORY, "training: out of memory for the head");
    if (st == PL_OK)
        st = pl_lowrank_factors(up, down, &s->teacher->host_head, h->d2t, h->vocab, h->rank,
                                (uint64_t)pl_generate_recipe_of(s->r)->seed, pl_start_backend(env), env->pool, err);
    if (st == PL_OK) st = pl_param_block_set(s->block, up_at, up, err);
    if (st == PL_OK) st = pl_param_block_set(s->block, down_at, down, err);
    pl_free(up);
    pl_free(down);
    return st;
}

int pl_start_param(const pl_backbone *b, pl_param_start what, bool fixed) {
    for (int i = b->head_param; i < b->params.n; i++)
        if (b->params.p[i].start == what && b->params.p[i].fixed == fixed) return i;
    return -1;
}

// What is never trained starts as the target's, whatever the recipe says of the rest.
static pl_status start_head(pl_start *s, const pl_env *env, pl_err *err) {
    const pl_backbone    *b = s->model;
    const pl_head_recipe *hd = pl_head_recipe_of(s->r);
    bool                  fits = b->head.d == s->teacher->head.dim[1];
    int fixed = pl_start_param(b, PL_START_DENSE, true), dense = pl_start_param(b, PL_START_DENSE, false);
    int up = pl_start_param(b, PL_START_UP, false), down = pl_start_param(b, PL_START_DOWN, false);
    if (b->head.shared) return PL_OK;
    if (fixed >= 0 && fits) PL_TRY(head_from_target(s, b->params.p[fixed].tensor, err));
    if (hd->init == PL_INIT_RANDOM) return PL_OK;
    if (fits && dense >= 0) return head_from_target(s, b->params.p[dense].tensor, err);
    if (fits && up >= 0 && down >= 0) return factors_from_target(s, up, down, env, err);
    if (hd->init == PL_INIT_AUTO) return PL_OK;
    return pl_recipe_fail(s->r, &hd->init, err, "a head of this kind or width cannot start from the target");
}

// The final norm starts as the target's, whose output its head is made for.
static pl_status norm_from_target(pl_start *s, const pl_tensor *norm, pl_err *err) {
    const pl_params *ps = &s->teacher->model.params;
    int              i = pl_params_find(ps, &s->teacher->model.norm);
    pl_weight_spec   spec = ps->p[i].spec;
    spec.part[0].name = ps->p[i].name[0];
    float *gain = pl_malloc((size_t)spec.rows * sizeof *gain);
    if (!gain) return pl_fail(err, PL_E_MEMORY, "training: out of memory for a norm");
    pl_status st = pl_weight_read_f32(s->teacher->src, &spec, gain, err);
    for (int64_t k = 0; k < spec.rows && st == PL_OK; k++)
        gain[k] += ps->p[i].offset;
    if (st == PL_OK) st = set_param(s, norm, gain, err);
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
        if (p->start == PL_START_FINAL_NORM && b->shape.d == d) PL_TRY(norm_from_target(s, p->tensor, err));
        if (p->start == PL_START_EMBED) PL_TRY(start_embeddings(s, i, env, err));
        if (p->start != PL_START_FEATURES) continue;
        PL_CHECK(p->spec.cols <= (PL_MAX_TAPS + 1) * d, "%lld columns", (long long)p->spec.cols);
        b->kind->gains(b, &rms, gain);
        PL_TRY(scale_columns(s, i, gain, d, err));
    }
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
