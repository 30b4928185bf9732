// DSpark's Markov head, slot by slot: the law of every node of a drafted tree is that of its path, for each form, by a
// second computation in double. On the CPU and on the emulated device, or one that PACELINE_TEST_DEVICE names.
#define PL_CUDA_SUFFIX emulated
#include "checkpoints/weights.h"
#include "infer/drafter/backbone.h"
#include "infer/drafter/drafter.h"
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

enum { SESSIONS = 2, ROWS = 5, LEVELS = 3, WIDTH = 4, RANK = 5, D = 48, SLOTS = 40 };

// What was read at a node, and the state behind it.
typedef struct node {
    int32_t token;
    double  state[RANK];
} node;

typedef struct seen {
    pl_draft_watch watch; // first
    int            form, rows;
    float         *w, *w1, *w2, *mix, *bias; // the target's head and the checkpoint's, as they are read
    node           at[SESSIONS][LEVELS][WIDTH];
    double         furthest; // difference of two logits
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

// Rows of a level by session; in it two children for each node of the level before, in order.
static void see(pl_draft_watch *w, pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    static const double nothing[RANK] = {0};
    seen               *s = (seen *)w;
    pl_tensor           z = pl_head_logits(ctx, h, r);
    const float        *x = pl_ctx_read(ctx, &r->x);
    if (!pl_ctx_wait(ctx)) return;
    for (int row = 0, first = 0; row < r->x.dim[0]; row++, s->rows++) {
        double read[D], m[RANK];
        if (r->group[row] != r->group[first]) first = row;
        int   i = row - first, level = r->level;
        node *own = &s->at[r->group[row]][level][i];
        for (int k = 0; k < D; k++)
            read[k] = (double)x[row * D + k];
        own->token = r->token[row];
        mix(s, own->token, read, level ? s->at[r->group[row]][level - 1][i / 2].state : nothing, m, own->state);
        for (int v = 0; v < TEST_VOCAB; v++) {
            double want = product(s->w + v * D, read, D) + product(s->w2 + v * RANK, m, RANK);
            s->furthest = fmax(s->furthest, fabs(want - (double)pl_f32(&z)[row * TEST_VOCAB + v]));
        }
    }
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

static void draft(seen *s, const pl_llama *m, const char *dir) {
    static int32_t tokens[ROWS + 1], row[SESSIONS * ROWS];
    pl_err         err = {0};
    pl_ctx         ctx;
    call           c = {0};
    pl_tree        tree[SESSIONS];
    pl_draft_item  item[SESSIONS];
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
    c.d->watch = &s->watch;
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
                                  .depth = LEVELS};
        pl_tree_root(&tree[i], tokens[ROWS]);
        for (int j = 0; j < ROWS; j++)
            row[i * ROWS + j] = i * ROWS + j;
    }
    c.batch = (pl_draft_batch){.item = item, .n = SESSIONS};
    pl_ctx_begin(&ctx);
    propose(&ctx, &c);
    if (pl_ctx_sync(&ctx, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_ctx_fini(&ctx);
    pl_drafter_destroy(c.d);
    free(c.features);
}

static void every_node(const pl_backend *be) {
    char     dir[64], drafter[64];
    pl_err   err = {0};
    pl_llama m;
    test_target(&m, test_mkdir(dir), 4, 17, PL_F32);
    pl_llama_fini(&m);
    for (int form = 0; pl_hf_markov_name(form); form++) {
        seen       s = {.form = form};
        pl_hf_head head = pl_hf_head_make("markov", RANK);
        pl_hf_head_set_text(&head, "form", pl_hf_markov_name(form));
        if (pl_llama_open(&m, dir, PL_F32, be, &err) != PL_OK) fail_msg("%s", err.msg);
        test_backbone_write(
            test_mkdir(drafter), &m, &pl_backbone_dflash,
            &(pl_backbone_options){.head = head, .layers = 1, .block = 4, .mask_token = 3, .anchor_first = true}, 41);
        read_weights(&s, dir, drafter);
        draft(&s, &m, drafter);
        print_message("%s: logits within %.2g\n", pl_hf_markov_name(form), s.furthest);
        assert_int_equal(s.rows, SESSIONS * (1 + 2 + 4));
        assert_true(s.furthest < 2e-5);
        float *owned[] = {s.w, s.w1, s.w2, s.mix, s.bias};
        for (int i = 0; i < 5; i++)
            free(owned[i]);
        pl_llama_fini(&m);
        test_rmdir(drafter);
    }
    test_rmdir(dir);
}

static void on_the_cpu(void **state) {
    (void)state;
    every_node(pl_backend_cpu());
}

static void on_a_device(void **state) {
    (void)state;
    every_node(test_device());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_cpu),
        cmocka_unit_test(on_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
