#include "infer/bench/model.h"

#include "infer/head/dynaspec.h"
#include "kernels/base/check.h"
#include "kernels/op/linear.h"

#include <stdio.h>
#include <string.h>

#define WIDE PL_BENCH_WIDE // rows of a level
#define TILED_SEED 7
#define SPARE 128 // positions beyond the longest text: a tree's

// ---- weights ----

// An EAGLE-3 drafter without weights.
static pl_status add_drafter(pl_bench_model *m, const pl_head_example *e, pl_err *err) {
    pl_bench_head      *h = &m->head[m->n_heads];
    pl_backbone_options o = {.head = e->spec, .own_head = true};
    if (e->rows < m->target.vocab) {
        o.d2t = m->ids;
        o.draft_vocab = e->rows;
    }
    PL_CHECK(m->n_heads < (int)(sizeof m->head / sizeof *m->head), "%d heads", m->n_heads);
    o.n_taps = pl_llama_default_taps(m->target.n_layers, o.tap);
    snprintf(h->name, sizeof h->name, "%s", e->name);
    PL_TRY(pl_backbone_create(&h->backbone, pl_backbone_at(0), &m->target, &o, m->target.be, err));
    m->n_heads++;
    const pl_head_kind *kind = h->backbone->head.kind;
    return kind->draw_table ? kind->draw_table(&h->backbone->head, e->uneven, err) : PL_OK;
}

static pl_status add_drafters(pl_bench_model *m, pl_err *err) {
    pl_head_shape   shape = {.vocab = m->target.vocab, .d = m->target.shape.d};
    pl_head_example e;
    for (int at = 0; pl_head_next_example(&e, &at, &shape, PL_EXAMPLE_CYCLE);)
        PL_TRY(add_drafter(m, &e, err));
    return PL_OK;
}

static const char *const block_name[] = {"dflash", "dspark", "dflash2"};

const char *pl_bench_block_name(int i) {
    return i < (int)(sizeof block_name / sizeof *block_name) ? block_name[i] : NULL;
}

// As published ones are: 5 layers, 7 drafts, ranks of 256 where the model is that wide.
static pl_status add_block(pl_bench_model *m, const char *name, pl_err *err) {
    int                 rank = m->target.shape.d < 256 ? (int)m->target.shape.d : 256;
    pl_backbone_options o = {.layers = 5, .block = 8, .mask_token = 1};
    if (!name) return PL_OK;
    if (strcmp(name, "dspark") == 0) {
        o.block = 7;
        o.anchor_first = true;
        o.head = pl_hf_head_make("markov", rank);
        pl_hf_head_set_flag(&o.head, "confidence", true);
    } else if (strcmp(name, "dflash2") == 0) {
        o.conv_taps = 2;
        o.conv_group = 16;
        o.selector = (pl_hf_selector){.rank = rank, .candidates = 16};
    }
    return pl_backbone_create(&m->block, &pl_backbone_dflash, &m->target, &o, m->target.be, err);
}

static pl_status make_weights(pl_bench_model *m, pl_bench *b, pl_err *err) {
    int64_t values = pl_params_count(&m->target.params);
    for (int i = 0; i < m->n_heads; i++)
        values += pl_params_count(&m->head[i].backbone->params);
    if (m->block) values += pl_params_count(&m->block->params);
    // The caches of the forwards and, by turns, of the decode loop: all of them are filled.
    const pl_layer_shape *s = &m->target.shape;
    double                positions = (double)m->context + PL_BENCH_ROWS + (double)m->max_len,
           layers = m->target.n_layers + m->n_heads + (m->block ? m->block->layers : 0);
    double caches = 2 * positions * layers * s->nkv * s->hd * (double)pl_kv_elem(s, b->env->backend->real);
    PL_TRY(pl_bench_shape_room((double)values * (double)pl_dtype_size(PL_BF16) + caches, b->env->backend, err));
    PL_TRY(pl_params_tile(&m->target.params, PL_BF16, TILED_SEED, &b->ctx, err));
    m->read_bytes = pl_bench_read_bytes(&m->target);
    for (int i = 0; i < m->n_heads; i++) {
        pl_backbone *e = m->head[i].backbone;
        e->embed = m->target.embed; // which was not there yet when the drafter was made
        PL_TRY(pl_params_tile(&e->params, PL_BF16, TILED_SEED + 1 + (uint64_t)i, &b->ctx, err));
    }
    if (!m->block) return PL_OK;
    m->block->embed = m->target.embed;
    pl_head_share(&m->block->head, m->target.head);
    return pl_params_tile(&m->block->params, PL_BF16, TILED_SEED + 1 + (uint64_t)m->n_heads, &b->ctx, err);
}

// ---- a drafter's level ----

static pl_tensor layer_of(pl_ctx *ctx, const pl_bench_level *l) {
    const pl_backbone *e = l->head->backbone;
    pl_tensor          hidden;
    pl_view            view = {.pos = l->view->pos, .cos = e->cos, .sin = e->sin, .row = l->view->row, .m = l->rows};
    return e->kind->step(ctx, e, l->view->id, l->x, &view, &hidden, (pl_tensor){0});
}

static pl_head_rows head_rows_of(const pl_bench_level *l, pl_tensor y) {
    return (pl_head_rows){.x = y,
                          .level = 1,
                          .hidden = l->x,
                          .token = l->view->id,
                          .embed = l->head->backbone->embed,
                          .group = l->view->group};
}

// A chain wants the best token, a tree the ten best and their probabilities.
static void head_of(pl_ctx *ctx, const pl_bench_level *l, const pl_head_rows *rows) {
    pl_head_topk(ctx, &l->head->backbone->head, rows, l->k, l->view->choice, l->view->value,
                 l->k > 1 ? l->view->lse : NULL);
}

static void level_step(pl_ctx *ctx, void *arg) {
    const pl_bench_level *l = arg;
    pl_head_rows          rows = head_rows_of(l, (pl_tensor){0});
    pl_head_begin(ctx, &l->head->backbone->head, &rows);
    rows.x = layer_of(ctx, l);
    head_of(ctx, l, &rows);
}

static void layer_step(pl_ctx *ctx, void *arg) {
    layer_of(ctx, arg);
}

static void head_step(pl_ctx *ctx, void *arg) {
    const pl_bench_level *l = arg;
    pl_head_rows          rows = head_rows_of(l, l->x);
    head_of(ctx, l, &rows);
}

static void product_step(pl_ctx *ctx, void *arg) {
    const pl_bench_level *l = arg;
    const pl_head        *h = &l->head->backbone->head;
    pl_linear(ctx, pl_head_project(ctx, h, l->x, (pl_tensor){0}), h->out);
}

// What a routed head reads for these rows: the union of their clusters.
static double head_bytes(pl_bench_level *l) {
    const pl_head *h = &l->head->backbone->head;
    pl_bench_case *c = l->part[PL_BENCH_HEAD];
    double         bytes = pl_head_step_bytes(h, 1);
    if (!h->kind->support || !c->ready) return bytes;
    pl_ctx_begin(&c->ctx);
    pl_head_rows    rows = head_rows_of(l, l->x);
    pl_head_support s = h->kind->support(&c->ctx, h, &rows);
    double          listed = s.spans.groups == 1 ? (double)pl_route_rows(&c->ctx, s.spans) : (double)h->vocab;
    return pl_router_bytes(&pl_routed_of(h)->router, PL_BF16) +
           listed * (double)h->rank * (double)pl_dtype_size(PL_BF16);
}

static void ready_part(pl_bench *b, pl_bench_model *m, pl_bench_level *l, int part, const char *name,
                       void (*step)(pl_ctx *, void *)) {
    pl_bench_case *c = l->part[part] = &m->c[m->n_cases++];
    snprintf(c->name, sizeof c->name, "%s of %.30s, %d rows", name, l->head->name, l->rows);
    c->step = step;
    c->arg = l;
    pl_bench_ready(b, c);
}

static void set_part(pl_bench_level *l, int part, double bytes) {
    pl_bench_case   *c = l->part[part];
    const pl_params *ps = &l->head->backbone->params;
    c->bytes = bytes;
    c->flops = bytes * l->rows; // a product and a sum for each value of two bytes
    c->factors = PL_BF16;
    c->memory = ps->block;
    c->memory_bytes = bytes < (double)ps->block_bytes ? (size_t)bytes : ps->block_bytes;
}

static pl_status make_level(pl_bench_level *l, pl_bench *b, pl_bench_model *m, const pl_bench_head *h, int rows,
                            pl_err *err) {
    bool whole = h->backbone->head.kind->support == NULL; // all rows are read: there is a bare product
    *l = (pl_bench_level){.head = h, .rows = rows, .k = rows};
    l->view = pl_bench_view_make(b, &h->kv, rows, 0, m->context, m->target.vocab);
    if (!l->view || !pl_bench_input(b, &l->x, &l->x_bytes, rows, m->target.shape.d))
        return pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    ready_part(b, m, l, PL_BENCH_LEVEL, "level", level_step);
    ready_part(b, m, l, PL_BENCH_LAYER, "layer", layer_step);
    ready_part(b, m, l, PL_BENCH_HEAD, "head", head_step);
    if (whole) ready_part(b, m, l, PL_BENCH_PRODUCT, "product", product_step);
    double layer = pl_backbone_step_bytes(h->backbone, 0), head = head_bytes(l);
    layer += 2.0 * (double)h->kv.width * (double)h->kv.elem * m->context;
    set_part(l, PL_BENCH_LEVEL, layer + head);
    set_part(l, PL_BENCH_LAYER, layer);
    set_part(l, PL_BENCH_HEAD, head);
    if (whole) set_part(l, PL_BENCH_PRODUCT, head);
    return PL_OK;
}

// ---- all of it ----

pl_status pl_bench_model_make(pl_bench_model *m, pl_bench *b, const pl_bench_shape *s, pl_err *err) {
    pl_hf_config c;
    m->context = s->context;
    m->max_len = s->context + 2 * s->steps + SPARE;
    PL_TRY(pl_bench_shape_find(&c, s->name, s->layers, m->max_len + SPARE, err));
    m->deep_tree = c.vocab_size < 1000 ? "eagle2:12,4,3" : "eagle2:60,10,6";
    m->prompt = pl_malloc((size_t)s->context * sizeof *m->prompt);
    m->ids = pl_malloc((size_t)c.vocab_size * sizeof *m->ids);
    if (!m->prompt || !m->ids) return pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    for (int i = 0; i < s->context; i++)
        m->prompt[i] = (int32_t)((7 * i + 3) % c.vocab_size);
    for (int i = 0; i < c.vocab_size; i++)
        m->ids[i] = i;
    PL_TRY(pl_llama_init(&m->target, &c, b->env->backend, true, err));
    m->target.shape.kv = s->kv;
    PL_TRY(add_drafters(m, err));
    PL_TRY(add_block(m, s->block, err));
    PL_TRY(make_weights(m, b, err));
    PL_TRY(pl_bench_verify_make(&m->verify, b, &m->target, m->context, m->c, err));
    m->n_cases = PL_BENCH_VERIFY;
    for (int i = 0; i < m->n_heads; i++) {
        pl_bench_head *h = &m->head[i];
        PL_TRY(pl_backbone_reach(h->backbone, m->context + PL_BENCH_ROWS, err));
        PL_TRY(pl_bench_cache_make(&h->kv, b, 1, m->context, &h->backbone->shape, err));
        for (int w = 0; w < PL_BENCH_WIDTHS; w++)
            PL_TRY(make_level(&h->level[w], b, m, h, w ? WIDE : 1, err));
    }
    return PL_OK;
}

void pl_bench_model_drop(pl_bench_model *m, pl_bench *b) {
    for (int i = 0; i < m->n_cases; i++)
        pl_bench_done(&m->c[i]);
    pl_bench_verify_drop(&m->verify, b);
    for (int i = 0; i < PL_BENCH_HEADS; i++) {
        pl_bench_head *h = &m->head[i];
        for (int w = 0; w < PL_BENCH_WIDTHS; w++) {
            pl_bench_view_drop(b, h->level[w].view, &h->kv, h->level[w].rows);
            pl_bench_drop(b, h->level[w].x.data, h->level[w].x_bytes);
        }
        pl_kv_destroy(&h->kv);
        pl_backbone_destroy(h->backbone);
    }
    pl_backbone_destroy(m->block);
    pl_llama_fini(&m->target);
    pl_free(m->prompt);
    pl_free(m->ids);
}
