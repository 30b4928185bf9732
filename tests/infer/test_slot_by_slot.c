// Block drafters slot by slot: DFlash, whose slots know nothing of the tokens before them, DSpark's Markov head in each
// form, and a selector by both laws. The law of every node of a drafted tree is that of its path, by a second computation in double; the
// children taken are its best, and those drawn were drawn from it. On the CPU and on the emulated device, or one that
// PACELINE_TEST_DEVICE names.
#define PL_CUDA_SUFFIX emulated
#include "checkpoints/weights.h"
#include "infer/drafter/backbone.h"
#include "infer/drafter/drafter.h"
#include "infer/model/kv.h"
#include "infer/sample/propose.h"
#include "kernels/base/rng.h"
#include "tests/infer/fixture.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device.h"

enum {
    SESSIONS = 2,
    DRAWS = 1,
    ROWS = 5,
    LEVELS = 3,
    WIDTH = 4,
    RANK = 5,
    CANDIDATES = 6,
    D = 48,
    SLOTS = 40,
    B = 4,
    MASK = 3
};
static const int children[LEVELS] = {2, 2, 1}; // static:2x2x1; session DRAWS draws them

// What was read at a node, the state behind it, and its logits.
typedef struct node {
    int32_t token;
    double  x[D], state[RANK], z[TEST_VOCAB];
} node;

enum { SELECTOR = -1, NEITHER = -2 };

typedef struct seen {
    pl_draft_watch watch; // first
    int            form;  // of a Markov head; or
    pl_hf_law      law;
    bool           anchor_first;
    int            rows, moved;              // those whose best is not the head's own
    float         *w, *w1, *w2, *mix, *bias; // the target's head and the checkpoint's, as they are read
    node           at[SESSIONS][LEVELS][WIDTH];
    int            held[SESSIONS][LEVELS];
    double         slot[SESSIONS][B][D]; // what the backbone gives the slots of a block
    double         furthest;             // difference of two logits
} seen;

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static double product(const float *row, const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)row[i] * x[i];
    return sum;
}

// m of a row, and the state that the slots behind it get.
static void mix(const seen *s, int32_t token, const double *x, const double *state, double *m, double *after) {
    double in[2 * RANK + D];
    for (int i = 0; i < RANK; i++)
        m[i] = (double)s->w1[token * RANK + i];
    if (s->form == PL_HF_MARKOV_GATED) {
        memcpy(in, x, D * sizeof *in);
        memcpy(in + D, m, RANK * sizeof *in);
        for (int i = 0; i < RANK; i++)
            m[i] *= sigmoid(product(s->mix + i * (D + RANK), in, D + RANK) + (double)s->bias[i]);
    }
    if (s->form != PL_HF_MARKOV_RNN) return;
    memcpy(in, state, RANK * sizeof *in);
    memcpy(in + RANK, m, RANK * sizeof *in);
    memcpy(in + 2 * RANK, x, D * sizeof *in);
    double z[3 * RANK];
    for (int i = 0; i < 3 * RANK; i++)
        z[i] = product(s->mix + i * (2 * RANK + D), in, 2 * RANK + D) + (double)s->bias[i];
    for (int i = 0; i < RANK; i++) {
        after[i] = sigmoid(z[i]) * state[i] + (1 - sigmoid(z[i])) * tanh(z[RANK + i]);
        m[i] = tanh(z[2 * RANK + i]);
    }
}

static int best_of(const double *z) {
    int best = 0;
    for (int v = 1; v < TEST_VOCAB; v++)
        if (z[v] > z[best]) best = v;
    return best;
}

static double lse_of(const double *z, const bool *of) {
    double sum = 0;
    for (int v = 0; v < TEST_VOCAB; v++)
        if (of[v]) sum += exp(z[v]);
    return log(sum);
}

// infer/head/selector.h: z holds the head's logits, and gets the law's.
static void select_law(const seen *s, int32_t token, const double *x, double *z) {
    bool   in[TEST_VOCAB] = {0};
    double p[RANK], own[TEST_VOCAB], shift = 0;
    for (int v = 0; v < TEST_VOCAB; v++) {
        int ahead = 0;
        for (int u = 0; u < TEST_VOCAB; u++)
            ahead += z[u] > z[v];
        in[v] = ahead < CANDIDATES;
    }
    memcpy(own, z, sizeof own);
    for (int i = 0; i < RANK; i++)
        p[i] = product(s->mix + i * D, x, D) * (double)s->w1[token * RANK + i];
    for (int v = 0; v < TEST_VOCAB; v++)
        if (in[v]) z[v] += product(s->w2 + v * RANK, p, RANK);
    if (s->law == PL_HF_LAW_FULL) shift = lse_of(own, in) - lse_of(z, in);
    for (int v = 0; v < TEST_VOCAB; v++)
        z[v] = in[v] ? z[v] + shift : s->law == PL_HF_LAW_FULL ? z[v] : -INFINITY;
}

// Rows of a level by session; in it two children for each node of the level before, in order.
static void see(pl_draft_watch *w, pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    static const double nothing[RANK] = {0};
    seen               *s = (seen *)w;
    pl_tensor           z = pl_head_logits(ctx, h, r);
    const float        *x = pl_ctx_read(ctx, &r->x);
    if (!pl_ctx_wait(ctx)) return;
    for (int row = 0, first = 0; row < r->x.dim[0]; row++, s->rows++) {
        double m[RANK];
        if (r->group[row] != r->group[first]) first = row;
        int   i = row - first, level = r->level;
        node *own = &s->at[r->group[row]][level][i];
        for (int k = 0; k < D; k++)
            own->x[k] = (double)x[row * D + k];
        own->token = r->token[row];
        s->held[r->group[row]][level] = i + 1;
        for (int v = 0; v < TEST_VOCAB; v++)
            own->z[v] = product(s->w + v * D, own->x, D);
        int best = best_of(own->z);
        if (s->form == SELECTOR) {
            select_law(s, own->token, own->x, own->z);
        } else {
            mix(s, own->token, own->x, level ? s->at[r->group[row]][level - 1][i / 2].state : nothing, m, own->state);
            for (int v = 0; v < TEST_VOCAB; v++)
                own->z[v] += product(s->w2 + v * RANK, m, RANK);
        }
        s->moved += best_of(own->z) != best;
        for (int v = 0; v < TEST_VOCAB; v++) {
            double got = (double)pl_f32(&z)[row * TEST_VOCAB + v];
            if (isinf(own->z[v]) || isinf(got))
                assert_true(isinf(own->z[v]) && isinf(got));
            else
                s->furthest = fmax(s->furthest, fabs(own->z[v] - got));
        }
    }
}

// Its children in the order of the logits, where none is far from another one's place.
static void are_the_best(const pl_tree *t, int parent, const double *z, int k) {
    bool taken[TEST_VOCAB] = {0};
    int  n = 0;
    for (int c = 0; c < t->n; c++) {
        if (c == 0 || t->parent[c] != parent) continue;
        double most = -INFINITY;
        for (int v = 0; v < TEST_VOCAB; v++)
            if (!taken[v]) most = fmax(most, z[v]);
        assert_true(z[t->token[c]] > most - 1e-4);
        taken[t->token[c]] = true;
        n++;
    }
    assert_int_equal(n, k);
}

static void were_drawn_from(const double *q, const double *z) {
    bool all[TEST_VOCAB];
    memset(all, true, sizeof all);
    double lse = lse_of(z, all);
    assert_non_null(q);
    for (int v = 0; v < TEST_VOCAB; v++)
        assert_true(fabs(q[v] - exp(z[v] - lse)) < 1e-4);
}

// Nodes of a level lie in the order of its rows, and read the level's slot, whatever stands before them.
static void looked_through(const seen *s, const pl_tree *t, int session) {
    for (int level = 0; level < LEVELS; level++) {
        const double *x = s->slot[session][level + !s->anchor_first];
        int           i = 0;
        for (int v = 0; v < t->n; v++) {
            if (t->depth[v] != level) continue;
            const node *own = &s->at[session][level][i++];
            node        plain;
            for (int u = 0; u < TEST_VOCAB; u++)
                plain.z[u] = product(s->w + u * D, x, D);
            if (s->form == NEITHER) own = &plain;
            if (s->form != NEITHER) assert_int_equal(t->token[v], own->token);
            for (int k = 0; k < D && s->form != NEITHER; k++)
                assert_true(fabs(own->x[k] - x[k]) < 1e-4);
            if (session == DRAWS)
                were_drawn_from(t->q[v], own->z);
            else
                are_the_best(t, v, own->z, children[level]);
        }
        if (s->form != NEITHER) assert_int_equal(i, s->held[session][level]);
    }
    assert_int_equal(t->n, 1 + 2 + 4 + 4);
}

static float *tensor(const char *dir, const char *name, int64_t rows, int64_t cols) {
    pl_err            err = {0};
    pl_weight_source *src;
    pl_weight_spec    spec = {.part = {{.name = name, .rows = rows}}, .n_parts = 1, .rows = rows, .cols = cols};
    float            *to = malloc((size_t)(rows * (cols ? cols : 1)) * sizeof *to);
    if (pl_weight_source_open(&src, dir, &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_weight_source_check(src, &spec, 1, &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_weight_read_f32(src, &spec, to, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_weight_source_close(src);
    return to;
}

static void read_weights(seen *s, const char *target, const char *drafter) {
    bool rnn = s->form == PL_HF_MARKOV_RNN;
    s->w = tensor(target, "lm_head.weight", TEST_VOCAB, D);
    if (s->form == SELECTOR) {
        s->w1 = tensor(drafter, "candidate_selector.predecessor_codebook", TEST_VOCAB, RANK);
        s->w2 = tensor(drafter, "candidate_selector.successor_codebook", TEST_VOCAB, RANK);
        s->mix = tensor(drafter, "candidate_selector.hidden_projection.weight", RANK, D);
    }
    if (s->form < 0) return;
    s->w1 = tensor(drafter, "markov_head.markov_w1.weight", TEST_VOCAB, RANK);
    s->w2 = tensor(drafter, "markov_head.markov_w2.weight", TEST_VOCAB, RANK);
    if (s->form == PL_HF_MARKOV_VANILLA) return;
    s->mix = tensor(drafter, rnn ? "markov_head.joint_proj.weight" : "markov_head.gate_proj.weight",
                    rnn ? 3 * RANK : RANK, rnn ? 2 * RANK + D : D + RANK);
    s->bias =
        tensor(drafter, rnn ? "markov_head.joint_proj.bias" : "markov_head.gate_proj.bias", rnn ? 3 * RANK : RANK, 0);
}

typedef struct call {
    pl_drafter    *d;
    pl_draft_batch batch;
    float         *features;
    int64_t        width;
} call;

static void propose(pl_ctx *ctx, void *arg) {
    call *c = arg;
    c->batch.features = pl_ctx_write(ctx, c->features, SESSIONS * ROWS, c->width);
    c->d->kind->propose(c->d, ctx, &c->batch);
}

// ---- the slots by the backbone alone ----

typedef struct slots {
    const pl_backbone *b;
    pl_kv              kv;
    const float       *features; // [ROWS, taps * D]
    int32_t            token[B], pos[B], context_pos[ROWS];
    pl_kvrow           context_row[ROWS], row[B];
    pl_tensor          hidden;
} slots;

static void run_block(pl_ctx *ctx, void *arg) {
    slots              *d = arg;
    const pl_block_view view = {
        .features = pl_tensor_2d((void *)(uintptr_t)d->features, PL_F32, ROWS, (int64_t)d->b->n_taps * D),
        .context_pos = d->context_pos,
        .context_row = d->context_row,
        .token = d->token,
        .pos = d->pos,
        .row = d->row,
        .m = B};
    d->hidden = d->b->kind->draft(ctx, d->b, &view);
}

// A block behind ROWS rows, on the CPU.
static void slots_of(double (*to)[D], const char *target, const char *dir, const float *features, int32_t anchor) {
    pl_err       err = {0};
    pl_llama     m;
    pl_backbone *b;
    pl_ctx       ctx;
    slots        d = {.features = features};
    if (pl_llama_open(&m, target, PL_F32, pl_backend_cpu(), &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_backbone_open(&b, dir, &m, PL_F32, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_kv_create(&d.kv, 1, ROWS + B, &b->shape, m.be, &err), PL_OK);
    d.b = b;
    for (int i = 0; i < ROWS; i++) {
        d.context_pos[i] = i;
        pl_kv_row(&d.kv, &d.context_row[i], ROWS, i, NULL, 1, i);
    }
    for (int j = 0; j < B; j++) {
        d.token[j] = j ? MASK : anchor;
        d.pos[j] = ROWS + j;
        pl_kv_row(&d.kv, &d.row[j], B, ROWS, NULL, B, ROWS + j);
    }
    assert_int_equal(pl_ctx_init(&ctx, m.be, NULL), PL_OK);
    if (pl_ctx_measure(&ctx, run_block, &d, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_ctx_begin(&ctx);
    run_block(&ctx, &d);
    if (pl_ctx_sync(&ctx, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < B * D; i++)
        to[i / D][i % D] = (double)pl_f32(&d.hidden)[i];
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&d.kv);
    pl_backbone_destroy(b);
    pl_llama_fini(&m);
}

static void draft(seen *s, const pl_llama *m, const char *target, const char *dir) {
    static int32_t       tokens[ROWS + 1], row[SESSIONS * ROWS];
    pl_err               err = {0};
    pl_ctx               ctx;
    call                 c = {0};
    pl_tree              tree[SESSIONS];
    pl_draft_item        item[SESSIONS];
    pl_rng_coin          coin;
    double               dist[TEST_VOCAB];
    double              *q = malloc((1 + 2 + 4) * TEST_VOCAB * sizeof *q);
    pl_distribution_work work;
    pl_sampling          sampling = {.temperature = 1, .top_p = 1};
    pl_proposing         draws = {.kind = PL_PROPOSE_WOR,
                                  .sampling = &sampling,
                                  .coin = &coin.base,
                                  .q = q,
                                  .q_rows = 1 + 2 + 4,
                                  .vocab = TEST_VOCAB,
                                  .work = &work,
                                  .dist = dist};
    if (pl_distribution_work_init(&work, TEST_VOCAB, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_rng_coin_init(&coin, 1, PL_STREAM_DRAFT, 2, 0);
    if (pl_drafter_open(&c.d, dir,
                        &(pl_drafter_options){.target = m,
                                              .dtype = PL_F32,
                                              .tree = "static:2x2x1",
                                              .max_sessions = SESSIONS,
                                              .max_rows = SESSIONS * ROWS,
                                              .slots = SLOTS},
                        &err) != PL_OK)
        fail_msg("%s", err.msg);
    s->watch.see = see;
    if (s->form != NEITHER) c.d->watch = &s->watch; // else all levels at once
    c.width = (int64_t)c.d->n_taps * m->shape.d;
    c.features = malloc((size_t)(SESSIONS * ROWS * c.width) * sizeof *c.features);
    for (int64_t i = 0; i < SESSIONS * ROWS * c.width; i++)
        c.features[i] = pl_rng_normal(pl_rng_make(3, PL_STREAM_TEST, 1), (uint64_t)i);
    assert_int_equal(pl_ctx_init(&ctx, m->be, NULL), PL_OK);
    if (pl_ctx_measure(&ctx, propose, &c, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i <= ROWS; i++)
        tokens[i] = (i * 31 + 5) % TEST_VOCAB;
    for (int i = 0; i < SESSIONS; i++) {
        item[i] = (pl_draft_item){.slot = i,
                                  .tokens = tokens,
                                  .n_tokens = ROWS + 1,
                                  .count = ROWS,
                                  .feature_row = row + i * ROWS,
                                  .tree = &tree[i],
                                  .depth = LEVELS,
                                  .proposing = i == DRAWS ? &draws : NULL};
        pl_tree_root(&tree[i], tokens[ROWS]);
        for (int j = 0; j < ROWS; j++)
            row[i * ROWS + j] = i * ROWS + j;
    }
    c.batch = (pl_draft_batch){.item = item, .n = SESSIONS};
    pl_ctx_begin(&ctx);
    propose(&ctx, &c);
    if (pl_ctx_sync(&ctx, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < SESSIONS; i++)
        slots_of(s->slot[i], target, dir, c.features + i * ROWS * c.width, tokens[ROWS]);
    for (int i = 0; i < SESSIONS; i++)
        looked_through(s, &tree[i], i);
    pl_ctx_fini(&ctx);
    pl_drafter_destroy(c.d);
    pl_distribution_work_fini(&work);
    free(c.features);
    free(q);
}

static void every_node(const pl_backend *be, int form, pl_hf_law law) {
    char                dir[64], drafter[64];
    pl_err              err = {0};
    pl_llama            m;
    seen                s = {.form = form, .law = law, .anchor_first = form >= 0};
    pl_backbone_options o = {.layers = 1, .block = B, .mask_token = MASK, .anchor_first = s.anchor_first};
    const char *name = form >= 0 ? pl_hf_markov_name(form) : form == SELECTOR ? pl_hf_law_name((int)law) : "none";
    if (form >= 0) {
        o.head = pl_hf_head_make("markov", RANK);
        pl_hf_head_set_text(&o.head, "form", name);
    } else if (form == SELECTOR) {
        o.selector = (pl_hf_selector){.rank = RANK, .candidates = CANDIDATES, .law = law};
    }
    test_target(&m, test_mkdir(dir), 4, 17, PL_F32);
    pl_llama_fini(&m);
    if (pl_llama_open(&m, dir, PL_F32, be, &err) != PL_OK) fail_msg("%s", err.msg);
    test_backbone_write(test_mkdir(drafter), &m, &pl_backbone_dflash, &o, 41);
    read_weights(&s, dir, drafter);
    draft(&s, &m, dir, drafter);
    print_message("%s: logits within %.2g, %d of %d best moved\n", name, s.furthest, s.moved, s.rows);
    if (form != NEITHER) assert_int_equal(s.rows, SESSIONS * (1 + 2 + 4));
    if (form != NEITHER) assert_true(s.moved > 0);
    assert_true(s.furthest < 2e-5);
    float *owned[] = {s.w, s.w1, s.w2, s.mix, s.bias};
    for (int i = 0; i < 5; i++)
        free(owned[i]);
    pl_llama_fini(&m);
    test_rmdir(drafter);
    test_rmdir(dir);
}

static void on(const pl_backend *be) {
    every_node(be, NEITHER, PL_HF_LAW_FULL);
    for (int form = 0; pl_hf_markov_name(form); form++)
        every_node(be, form, PL_HF_LAW_FULL);
    every_node(be, SELECTOR, PL_HF_LAW_FULL);
    every_node(be, SELECTOR, PL_HF_LAW_LIST);
}

static void on_the_cpu(void **state) {
    (void)state;
    on(pl_backend_cpu());
}

static void on_a_device(void **state) {
    (void)state;
    on(test_device());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_cpu),
        cmocka_unit_test(on_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
