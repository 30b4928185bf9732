// Drafters node by node. What the head reads at a node of a drafted tree is what the backbone alone gives: of a chain
// along the node's path (EAGLE-1, EAGLE-3), of the level's slot of a block (DFlash, DSpark, DFlash 2). The law there is
// the head's, the Markov head's in each form, or a selector's by both laws, by a second computation in double. The
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

enum { SESSIONS = 2, ROWS = 5, LEVELS = 3, WIDTH = 4, RANK = 5, CANDIDATES = 6, D = 48, SLOTS = 40, B = 4, MASK = 3 };
static const int children[LEVELS] = {2, 2, 1}; // static:2x2x1

// What was read at a node, the state behind it, and its logits.
typedef struct node {
    int32_t token;
    double  x[D], state[RANK], z[TEST_VOCAB];
} node;

enum { SELECTOR = -1, HEAD = -2 };

typedef struct seen {
    pl_draft_watch          watch; // first
    const pl_backbone_kind *kind;
    int                     form; // of a Markov head; or SELECTOR, HEAD
    pl_hf_law               law;
    bool                    anchor_first;
    int                     draws; // the session whose children are drawn, -1: none
    int                     rows;
    double                  moved;                    // how far a law's logit is from the head's own, at most
    float                  *w, *w1, *w2, *mix, *bias; // the target's head and the checkpoint's, as they are read
    node                    at[SESSIONS][LEVELS][WIDTH];
    int                     held[SESSIONS][LEVELS];
    double                  slot[SESSIONS][B][D];             // what the backbone gives the slots of a block
    double                  path[SESSIONS][LEVELS][WIDTH][D]; // and a chain along each node's path
    double                  furthest;                         // difference of two logits
    double                  apart;                            // of what was read and should have been
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
        double m[RANK], plain[TEST_VOCAB];
        if (r->group[row] != r->group[first]) first = row;
        int   i = row - first, level = r->level;
        node *own = &s->at[r->group[row]][level][i];
        for (int k = 0; k < D; k++)
            own->x[k] = (double)x[row * D + k];
        own->token = r->token[row];
        s->held[r->group[row]][level] = i + 1;
        for (int v = 0; v < TEST_VOCAB; v++)
            own->z[v] = product(s->w + v * D, own->x, D);
        memcpy(plain, own->z, sizeof plain);
        if (s->form == SELECTOR) {
            select_law(s, own->token, own->x, own->z);
        } else if (s->form >= 0) {
            mix(s, own->token, own->x, level ? s->at[r->group[row]][level - 1][i / 2].state : nothing, m, own->state);
            for (int v = 0; v < TEST_VOCAB; v++)
                own->z[v] += product(s->w2 + v * RANK, m, RANK);
        }
        for (int v = 0; v < TEST_VOCAB; v++) {
            double got = (double)pl_f32(&z)[row * TEST_VOCAB + v];
            if (isinf(own->z[v]) || isinf(got))
                assert_true(isinf(own->z[v]) && isinf(got));
            else
                s->furthest = fmax(s->furthest, fabs(own->z[v] - got));
            if (!isinf(own->z[v])) s->moved = fmax(s->moved, fabs(own->z[v] - plain[v]));
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

// q is the law, and gives every child something.
static void were_drawn_from(const pl_tree *t, int parent, const double *z) {
    const double *q = t->q[parent];
    bool          all[TEST_VOCAB];
    memset(all, true, sizeof all);
    double lse = lse_of(z, all);
    assert_non_null(q);
    for (int v = 0; v < TEST_VOCAB; v++)
        assert_true(isinf(z[v]) ? q[v] == 0 : fabs(log(q[v]) - (z[v] - lse)) < 1e-3);
    for (int c = 1; c < t->n; c++)
        if (t->parent[c] == parent) assert_true(q[t->token[c]] > 0);
}

// Nodes of a level lie in the order of its rows. Where nobody looked on, what the head read is not known, and the law
// is the head's of what it should have read.
static void looked_through(seen *s, const pl_tree *t, int session) {
    for (int level = 0; level < LEVELS; level++) {
        int i = 0;
        for (int v = 0; v < t->n; v++) {
            if (t->depth[v] != level) continue;
            const node   *own = &s->at[session][level][i];
            const double *x = s->kind->draft ? s->slot[session][level + !s->anchor_first] : s->path[session][level][i];
            node          unseen;
            i++;
            for (int u = 0; u < TEST_VOCAB; u++)
                unseen.z[u] = product(s->w + u * D, x, D);
            if (!s->watch.see) own = &unseen;
            if (s->watch.see) assert_int_equal(t->token[v], own->token);
            for (int k = 0; k < D && s->watch.see; k++)
                s->apart = fmax(s->apart, fabs(own->x[k] - x[k]));
            if (session == s->draws)
                were_drawn_from(t, v, own->z);
            else
                are_the_best(t, v, own->z, children[level]);
        }
        if (s->watch.see) assert_int_equal(i, s->held[session][level]);
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
    s->w = tensor(s->kind == &pl_backbone_eagle3 ? drafter : target, "lm_head.weight", TEST_VOCAB, D);
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

// ---- the backbone alone, on the CPU ----

typedef struct alone {
    const pl_backbone *b;
    pl_kv              kv;
    const float       *features; // [ROWS, taps * D]
    const int32_t     *tokens;   // [ROWS + 1] the text
    // Of the rows that come in, and of those behind them.
    int32_t            context_pos[ROWS], token[B], pos[B];
    pl_kvrow           context_row[ROWS], row[B];
    pl_tensor          x[B];
} alone;

static pl_tensor features_of(const alone *a) {
    return pl_tensor_2d((void *)(uintptr_t)a->features, PL_F32, ROWS, (int64_t)a->b->n_taps * D);
}

static void run_block(pl_ctx *ctx, void *arg) {
    alone              *a = arg;
    const pl_block_view view = {.features = features_of(a),
                                .context_pos = a->context_pos,
                                .context_row = a->context_row,
                                .token = a->token,
                                .pos = a->pos,
                                .row = a->row,
                                .m = B};
    pl_tensor           x = a->b->kind->draft(ctx, a->b, &view);
    for (int j = 0; j < B; j++)
        a->x[j] = pl_tensor_2d(pl_f32(&x) + j * D, PL_F32, 1, D);
}

static void run_chain(pl_ctx *ctx, void *arg) {
    alone    *a = arg;
    pl_view   view = {.pos = a->context_pos, .cos = a->b->cos, .sin = a->b->sin, .row = a->context_row, .m = ROWS};
    pl_tensor hidden = a->b->kind->fuse(ctx, a->b, features_of(a));
    pl_tensor x = a->b->kind->step(ctx, a->b, a->tokens + 1, hidden, &view, &hidden, (pl_tensor){0});
    a->x[0] = pl_tensor_2d(pl_f32(&x) + (ROWS - 1) * D, PL_F32, 1, D);
    hidden = pl_tensor_2d(pl_f32(&hidden) + (ROWS - 1) * D, PL_F32, 1, D);
    for (int j = 1; j < LEVELS; j++) {
        view = (pl_view){.pos = a->pos + j - 1, .cos = a->b->cos, .sin = a->b->sin, .row = a->row + j - 1, .m = 1};
        a->x[j] = a->b->kind->step(ctx, a->b, a->token + j - 1, hidden, &view, &hidden, (pl_tensor){0});
    }
}

// What x there is behind ROWS rows. token: [B] a block's, or a path.
static void run_alone(double (*to)[D], int n, const seen *s, const char *target, const char *dir, const float *features,
                      const int32_t *tokens, const int32_t *token) {
    pl_err       err = {0};
    pl_llama     m;
    pl_backbone *b;
    pl_ctx       ctx;
    alone        a = {.features = features, .tokens = tokens};
    bool         block = s->kind->draft != NULL;
    void (*run)(pl_ctx *, void *) = block ? run_block : run_chain;
    if (pl_llama_open(&m, target, PL_F32, pl_backend_cpu(), &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_backbone_open(&b, dir, &m, PL_F32, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_kv_create(&a.kv, 1, ROWS + B, &b->shape, m.be, &err), PL_OK);
    a.b = b;
    for (int i = 0; i < ROWS; i++) {
        a.context_pos[i] = i;
        pl_kv_row(&a.kv, &a.context_row[i], ROWS, block ? i : 0, NULL, block ? 1 : i + 1, i);
    }
    for (int j = 0; j < n; j++) {
        a.token[j] = token[j];
        a.pos[j] = ROWS + j;
        pl_kv_row(&a.kv, &a.row[j], block ? B : 1, ROWS, NULL, block ? B : j + 1, ROWS + j);
    }
    assert_int_equal(pl_ctx_init(&ctx, m.be, NULL), PL_OK);
    if (pl_ctx_measure(&ctx, run, &a, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_ctx_begin(&ctx);
    run(&ctx, &a);
    if (pl_ctx_sync(&ctx, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < n * D; i++)
        to[i / D][i % D] = (double)pl_f32(&a.x[i / D])[i % D];
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&a.kv);
    pl_backbone_destroy(b);
    pl_llama_fini(&m);
}

static int32_t token_at(const pl_tree *t, int level, int i) {
    for (int v = 0; v < t->n; v++)
        if (t->depth[v] == level && i-- == 0) return t->token[v];
    fail_msg("a tree of %d nodes", t->n);
    return -1;
}

// What the nodes of session i's tree should have read.
static void should_read(seen *s, int i, const char *target, const char *dir, const float *features,
                        const int32_t *tokens, const pl_tree *t) {
    if (s->kind->draft) {
        const int32_t block[B] = {tokens[ROWS], MASK, MASK, MASK};
        run_alone(s->slot[i], B, s, target, dir, features, tokens, block);
        return;
    }
    for (int leaf = 0; leaf < WIDTH; leaf++) {
        double        x[LEVELS][D];
        const int32_t path[LEVELS] = {token_at(t, 1, leaf / 2), token_at(t, 2, leaf)};
        run_alone(x, LEVELS, s, target, dir, features, tokens, path);
        memcpy(s->path[i][0][0], x[0], sizeof x[0]);
        memcpy(s->path[i][1][leaf / 2], x[1], sizeof x[1]);
        memcpy(s->path[i][2][leaf], x[2], sizeof x[2]);
    }
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
    if (s->watch.see) c.d->watch = &s->watch;
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
                                  .proposing = i == s->draws ? &draws : NULL};
        pl_tree_root(&tree[i], tokens[ROWS]);
        for (int j = 0; j < ROWS; j++)
            row[i * ROWS + j] = i * ROWS + j;
    }
    c.batch = (pl_draft_batch){.item = item, .n = SESSIONS};
    pl_ctx_begin(&ctx);
    propose(&ctx, &c);
    if (pl_ctx_sync(&ctx, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < SESSIONS; i++)
        should_read(s, i, target, dir, c.features + i * ROWS * c.width, tokens, &tree[i]);
    for (int i = 0; i < SESSIONS; i++)
        looked_through(s, &tree[i], i);
    pl_ctx_fini(&ctx);
    pl_drafter_destroy(c.d);
    pl_distribution_work_fini(&work);
    free(c.features);
    free(q);
}

// looked: else the levels of a block are drafted at once, and those of a chain ahead of the host on a device.
static void every_node(const pl_backend *be, seen s, bool looked) {
    char                dir[64], drafter[64];
    pl_err              err = {0};
    pl_llama            m;
    pl_backbone_options o = {.layers = 1};
    const char         *name = s.form >= 0          ? pl_hf_markov_name(s.form)
                               : s.form == SELECTOR ? pl_hf_law_name((int)s.law)
                                                    : "head";
    if (looked) s.watch.see = see;
    if (s.kind->draft)
        o = (pl_backbone_options){.layers = 1, .block = B, .mask_token = MASK, .anchor_first = s.anchor_first};
    if (s.form >= 0) {
        o.head = pl_hf_head_make("markov", RANK);
        pl_hf_head_set_text(&o.head, "form", name);
    } else if (s.form == SELECTOR) {
        if (s.kind->draft) o.conv_taps = 2, o.conv_group = 8; // DFlash 2
        o.selector = (pl_hf_selector){.rank = RANK, .candidates = CANDIDATES, .law = s.law};
    }
    test_target(&m, test_mkdir(dir), 4, 17, PL_F32);
    pl_llama_fini(&m);
    if (pl_llama_open(&m, dir, PL_F32, be, &err) != PL_OK) fail_msg("%s", err.msg);
    test_backbone_write(test_mkdir(drafter), &m, s.kind, &o, 41);
    read_weights(&s, dir, drafter);
    draft(&s, &m, dir, drafter);
    print_message("%s, %s: logits within %.2g, x within %.2g; the law moves them by %.2g\n", s.kind->name, name,
                  s.furthest, s.apart, s.moved);
    assert_int_equal(s.rows, looked ? SESSIONS * (1 + 2 + 4) : 0);
    if (s.form != HEAD) assert_true(s.moved > 0.01);
    assert_true(s.furthest < 2e-5 && s.apart < 3e-4);
    float *owned[] = {s.w, s.w1, s.w2, s.mix, s.bias};
    for (int i = 0; i < 5; i++)
        free(owned[i]);
    pl_llama_fini(&m);
    test_rmdir(drafter);
    test_rmdir(dir);
}

static void on(const pl_backend *be) {
    const pl_backbone_kind *steps[] = {&pl_backbone_eagle1, &pl_backbone_eagle3};
    for (int i = 0; i < 2; i++) {
        every_node(be, (seen){.kind = steps[i], .form = HEAD, .draws = 1}, true);
        every_node(be, (seen){.kind = steps[i], .form = HEAD, .draws = -1}, false);
    }
    for (int law = 0; pl_hf_law_name(law); law++)
        every_node(be, (seen){.kind = steps[1], .form = SELECTOR, .law = (pl_hf_law)law, .draws = 1}, true);
    every_node(be, (seen){.kind = &pl_backbone_dflash, .form = HEAD, .draws = 1}, false);
    for (int form = 0; pl_hf_markov_name(form); form++)
        every_node(be, (seen){.kind = &pl_backbone_dflash, .form = form, .anchor_first = true, .draws = 1}, true);
    for (int law = 0; pl_hf_law_name(law); law++)
        every_node(be, (seen){.kind = &pl_backbone_dflash, .form = SELECTOR, .law = (pl_hf_law)law, .draws = 1}, true);
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
