// Training-time test: what counts, the gradient of the whole drafter loss against central differences in double, and
// what a row may see.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "by_hand.h"
#include "kernels/base/arena.h"
#include "kernels/base/rng.h"
#include "kernels/op/divergence.h"
#include "tests/ref64.h"
#include "train/keys.h"
#include "train/loop/block.h"
#include "train/task/selected.h"
#include "train/task/unroll.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 8, TAPS = 2, VOCAB = 23, K = 3, CAPACITY = 20 };
#define TEACHER_CAP 2.5 // of the target's logits

typedef struct setup {
    pl_llama       target; // shapes and embedding only
    pl_backbone   *model;
    pl_param_block block;
    pl_unroll      u;
    float          embed[VOCAB * D], head[VOCAB * D];
    int32_t        tokens[32], argmax[32];
    uint8_t        loss_mask[32];
    uint16_t       features[32 * TAPS * D], last_hidden[32 * D];
} setup;

static float noise(int what, int64_t i) {
    return pl_rng_normal(pl_rng_make(9, PL_STREAM_TEST, (uint64_t)what), (uint64_t)i);
}

// A drafter over made-up features. d2t: draft ids in steps of two.
static int top_k;       // of HASS's loss in what is made; 0: none
static int learn_steps; // of what is made; 0: all
static int width;       // of a drafter with embeddings of its own; 0: the target's

static double      depth_ratio = 1; // P-EAGLE's
static bool        supervised;      // what is made leaves out rows that nothing learns from
static int         learn_rows;      // and runs so many at a time; 0: all
static int         layers;          // of what is made; 0: the kind's default
static bool        anchor_first;    // blocks
static const void *rounds;          // settings of loss_rounds.c; NULL: no such loss
static const char *selected_kind = "";

// Of a selector behind the head; 0: none. What it learns by, and whether the head's divergence takes the teacher as it is.
static int          selected_from;
static pl_objective selected_by;
static bool         as_it_is;
static bool         all_rows; // a masked teacher's rows whose choice is not drafted count too
static pl_hf_law    selected_law;

static void make_spec(setup *s, const pl_backbone_kind *kind, const pl_backend *be, pl_pool *pool,
                      const pl_hf_head *head, bool trimmed, pl_dtype round_to) {
    pl_err       err = {0};
    pl_hf_config c;
    memset(s, 0, sizeof *s);
    pl_hf_config_init(&c);
    c.hidden_size = D;
    c.intermediate_size = 12;
    c.num_hidden_layers = 4;
    c.num_attention_heads = 2;
    c.num_key_value_heads = 1;
    c.head_dim = 4;
    c.vocab_size = VOCAB;
    c.max_position_embeddings = 24;
    assert_int_equal(pl_llama_init(&s->target, &c, be, false, &err), PL_OK);
    for (int i = 0; i < VOCAB * D; i++) {
        s->embed[i] = noise(1, i);
        s->head[i] = noise(2, i);
    }
    s->target.embed = pl_tensor_2d(s->embed, PL_F32, VOCAB, D);
    s->target.head = pl_tensor_2d(s->head, PL_F32, VOCAB, D);
    pl_backbone_options o = {.head = *head, .bias = true, .n_taps = TAPS, .tap = {1, 3}};
    o.own_embed = width;
    o.width = width;
    o.layers = layers;
    o.selector = (pl_hf_selector){.rank = selected_from ? 3 : 0, .candidates = selected_from, .law = selected_law};
    snprintf(o.selector.kind, sizeof o.selector.kind, "%s", selected_kind);
    o.selector.heads = *selected_kind ? 2 : 0;
    o.anchor_first = anchor_first;
    if (kind->draft) o.block = K + (kind == &pl_backbone_dflash && !anchor_first), o.mask_token = 2;
    if (kind->own_heads) o.n_taps = 0;
    if (pl_backbone_create(&s->model, kind, &s->target, &o, be, &err) != PL_OK) fail_msg("%s", err.msg);
    if (trimmed) {
        s->model->head.d2t = pl_calloc(VOCAB, sizeof(int32_t));
        s->model->head.vocab = VOCAB / 2;
        for (int j = 0; j < VOCAB / 2; j++)
            s->model->head.d2t[j] = 2 * j + 1;
        for (int k = 1; s->model->more && k < s->model->drafts; k++)
            s->model->more[k - 1].vocab = VOCAB / 2;
        for (int i = 0; i < s->model->params.n; i++)
            for (int k = 0; k < K; k++)
                if (s->model->params.p[i].tensor == &pl_backbone_head(s->model, k)->out ||
                    s->model->params.p[i].tensor == &s->model->head.exact)
                    s->model->params.p[i].spec.rows = s->model->params.p[i].spec.part[0].rows = VOCAB / 2;
    }
    pl_param_block_options bo = {.backend = be, .round_to = round_to};
    assert_int_equal(pl_param_block_create(&s->block, &s->model->params, &bo, &err), PL_OK);
    assert_int_equal(pl_param_block_init(&s->block, 5, NULL), PL_OK);
    pl_tensor         wt = pl_tensor_2d(s->head, PL_F32, VOCAB, D);
    pl_unroll_options uo = {.capacity = CAPACITY, .steps = K, .step_decay = 0.8, .token_weight = 1};
    uo.teacher_cap = TEACHER_CAP;
    uo.top_k = top_k;
    uo.learn_steps = learn_steps;
    uo.supervised = supervised;
    uo.learn_rows = learn_rows;
    uo.top_weight = 0.7;
    uo.anchors = CAPACITY;
    uo.depth_ratio = depth_ratio;
    uo.depth_floor = depth_ratio < 1 ? 0.3 : 0;
    uo.seed = 4;
    uo.selector_objective = selected_by;
    uo.unmasked = as_it_is;
    uo.all_rows = all_rows;
    uo.js_beta = 0.4;
    uo.lk_decay = 2;
    if (selected_from) uo.selector_weight = 0.7;
    for (int i = 0; pl_loss_at(i); i++)
        if (pl_loss_at(i)->keys && strcmp(pl_loss_at(i)->keys->path, "train.rounds.count") == 0) uo.own[i] = rounds;
    if (kind->predicts_features) uo.token_weight = 0.1, uo.feature_weight = 1;
    if (pl_unroll_create(&s->u, s->model, wt, &uo, be, pool, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < 32; i++) {
        s->tokens[i] = (int32_t)((i * 7 + 3) % VOCAB);
        s->loss_mask[i] = i >= 3;
        s->argmax[i] = (int32_t)((i * 5 + 1) % VOCAB);
    }
    for (int i = 0; i < 32 * TAPS * D; i++)
        s->features[i] = pl_f32_to_bf16(noise(3, i));
    for (int i = 0; i < 32 * D; i++)
        s->last_hidden[i] = pl_f32_to_bf16(noise(4, i));
}

static void make_kind(setup *s, const pl_backbone_kind *kind, const pl_backend *be, pl_pool *pool, const char *head,
                      bool trimmed, pl_dtype round_to) {
    pl_hf_head spec = pl_hf_head_make(head, 3);
    make_spec(s, kind, be, pool, &spec, trimmed, round_to);
}

static void make(setup *s, const pl_backend *be, pl_pool *pool, const char *head, bool trimmed, pl_dtype round_to) {
    make_kind(s, &pl_backbone_eagle3, be, pool, head, trimmed, round_to);
}

static void destroy(setup *s) {
    pl_unroll_destroy(&s->u);
    pl_param_block_destroy(&s->block);
    pl_backbone_destroy(s->model);
    pl_llama_fini(&s->target);
}

static pl_columns doc_at(setup *s, int from, int n) {
    return (pl_columns){.n = n,
                        .tokens = s->tokens + from,
                        .loss_mask = s->loss_mask + from,
                        .argmax = s->argmax + from,
                        .features = s->features + from * TAPS * D,
                        .last_hidden = s->last_hidden + from * D};
}

// Two documents of 9 and 6 rows.
static void load_rows(setup *s) {
    pl_columns a = doc_at(s, 0, 9), b = doc_at(s, 12, 6);
    pl_pack_clear(&s->u.pack);
    pl_pack_add(&s->u.pack, &a, 0, 9);
    pl_pack_add(&s->u.pack, &b, 0, 6);
    pl_pack_close(&s->u.pack);
}

static double loss_of(setup *s) {
    pl_err         err = {0};
    pl_unroll_sums sums = {0};
    bool           learn = s->u.opt.top_k > 0 || rounds; // which scoring leaves out
    if ((learn ? pl_unroll_learn : pl_unroll_score)(&s->u, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_unroll_add(&s->u, !learn, &sums);
    return sums.loss;
}

static void what_counts(void **state) {
    (void)state;
    static setup s;
    make(&s, pl_backend_ref(), NULL, "full", false, PL_F32);
    load_rows(&s);
    const pl_pack *p = &s.u.pack;
    assert_int_equal(p->rows, 15);
    for (int k = 0; k < K; k++)
        for (int row = 0; row < 15; row++) {
            int  first = row < 9 ? 0 : 9, n = row < 9 ? 9 : 6, t = row - first, i = k * 15 + row;
            bool answer = first > 0 || t + 2 + k >= 3; // the first document's first three tokens are its prompt
            bool counts = t + 1 + k < n && answer;
            assert_int_equal(p->token[i], t + 1 + k < n ? s.tokens[(first ? 12 : 0) + t + 1 + k] : -1);
            assert_int_equal(p->teacher_row[i], counts ? row + 1 + k : -1);
            assert_true(counts ? fabs((double)p->weight[i] - pow(0.8, k)) < 1e-6 : p->weight[i] == 0);
            assert_int_equal(p->pos[row], t);
            assert_int_equal(p->lo[row], first);
        }
    destroy(&s);
}

// Rows whose target token is no draft id do not count; a trimmed drafter's loss is over the draft ids alone.
static void trimmed_vocabulary(void **state) {
    (void)state;
    static setup s;
    make(&s, pl_backend_ref64(), NULL, "full", true, PL_F32);
    load_rows(&s);
    const pl_pack *p = &s.u.pack;
    int            counted = 0;
    for (int i = 0; i < K * 15; i++) {
        if (p->teacher_row[i] < 0) continue;
        counted++;
        assert_int_equal(p->argmax[p->teacher_row[i]] % 2, 1);
    }
    assert_true(counted > 3);
    assert_true(loss_of(&s) > 0);
    destroy(&s);
}

static void draw_weights(setup *s) { // away from small initial values
    double *w = s->block.w;
    for (int64_t i = 0; i < s->block.n; i++)
        w[i] = 5 * w[i];
    assert_int_equal(pl_param_block_put(&s->block, PL_BLOCK_W, 0, s->block.n, s->block.w, NULL), PL_OK);
}

// With all_rows, rows whose choice is no draft id count too, and the teacher stays restricted: the loss of a row that
// counts either way is the same, to the bit, and that of every other row is a divergence of two distributions, at least
// 0, which the unmasked teacher's with its lost mass is not.
static void all_rows_of_a_masked_teacher(void **state) {
    (void)state;
    static setup drafted, all;
    make(&drafted, pl_backend_ref64(), NULL, "full", true, PL_F32);
    all_rows = true;
    make(&all, pl_backend_ref64(), NULL, "full", true, PL_F32);
    all_rows = false;
    setup *both[2] = {&drafted, &all};
    int    count[2] = {0};
    for (int i = 0; i < 2; i++) {
        draw_weights(both[i]);
        load_rows(both[i]);
        assert_true(loss_of(both[i]) > 0);
    }
    const pl_pack *p = &drafted.u.pack, *q = &all.u.pack;
    for (int i = 0; i < K * 15; i++) {
        count[0] += p->weight[i] > 0;
        count[1] += q->weight[i] > 0;
        if (p->weight[i] > 0) assert_true(q->weight[i] == p->weight[i] && all.u.loss[i] == drafted.u.loss[i]);
        if (q->weight[i] > 0) assert_true(all.u.loss[i] >= 0 && all.u.student_argmax[i] >= 0);
        if (q->weight[i] > 0 && p->weight[i] == 0) assert_int_equal(q->argmax[q->teacher_row[i]] % 2, 0);
    }
    assert_true(count[0] > 3 && count[1] > count[0]);
    destroy(&drafted);
    destroy(&all);
}

// P-EAGLE: rows that are drawn to learn at a depth are fewer than those before it, as many as the shares say, and the
// same to all losses and to all gradients as if all rows had run with the others' weights 0. Also run again in backward,
// with HASS's loss, and with a selector.
static void drawn_depths(void **state) {
    (void)state;
    static setup drawn, all;
    pl_err       err = {0};
    for (int i = 0; i < 4; i++) {
        top_k = i == 2 ? 4 : 0;
        selected_from = i == 3 ? 5 : 0;
        depth_ratio = 0.6;
        make_kind(&drawn, &pl_backbone_peagle, pl_backend_ref64(), NULL, i ? "lowrank" : "full", i, PL_F32);
        depth_ratio = 1;
        make_kind(&all, &pl_backbone_peagle, pl_backend_ref64(), NULL, i ? "lowrank" : "full", i, PL_F32);
        top_k = selected_from = 0;
        drawn.u.opt.recompute = i == 1;
        draw_weights(&drawn);
        draw_weights(&all);
        load_rows(&drawn);
        load_rows(&all);
        int64_t could = 0, rows = all.u.pack.rows, counted[K] = {0};
        for (int64_t row = 0; row < rows; row++)
            could += all.u.pack.weight[rows + row] > 0 || all.u.pack.weight[2 * rows + row] > 0;
        if (pl_unroll_learn(&drawn.u, &err) != PL_OK) fail_msg("%s", err.msg);
        memcpy(all.u.pack.weight, drawn.u.pack.weight, (size_t)(K * rows) * sizeof *all.u.pack.weight);
        if (pl_unroll_learn(&all.u, &err) != PL_OK) fail_msg("%s", err.msg);
        for (int64_t c = 0; c < K * rows; c++) {
            for (int f = 0; f < all.u.n_figures; f++)
                assert_true(fabs(drawn.u.figure[f].value[c] - all.u.figure[f].value[c]) < 1e-12);
            assert_int_equal(drawn.u.student_argmax[c], all.u.student_argmax[c]);
            counted[c / rows] += drawn.u.pack.weight[c] > 0;
        }
        const pl_depth_rows *depth = drawn.u.rows.depth;
        assert_true(depth[0].n == rows && depth[0].keyed == rows && drawn.u.rows.cells < K * rows);
        assert_true(depth[1].n <= (int64_t)ceil(0.6 * (double)could) && counted[1] > 0);
        assert_true(depth[2].n <= (int64_t)ceil(0.36 * (double)could) && counted[2] > 0);
        assert_true(counted[2] == depth[2].n && counted[1] <= depth[1].n);
        const double *a = drawn.block.grad, *b = all.block.grad;
        double        most = 0;
        for (int64_t k = 0; k < all.block.n; k++) {
            most = fmax(most, fabs(b[k]));
            assert_true(fabs(a[k] - b[k]) < 1e-11);
        }
        assert_true(most > 1e-3);
        destroy(&drawn);
        destroy(&all);
    }
}

// Answer tokens: at starts, at ends, alternating, one, all, none.
enum { MASKS = 6 };
static bool is_answer(int mask, int i) {
    const bool answer[MASKS] = {i % 12 >= 2 && i % 12 < 5, i % 12 >= 7 || i >= 16, i % 2 == 1, i == 6, true, false};
    return answer[mask];
}

static void load_masked(setup *s, int mask, bool piece) {
    for (int i = 0; i < 32; i++)
        s->loss_mask[i] = is_answer(mask, i);
    if (!piece) {
        load_rows(s);
        return;
    }
    pl_columns doc = doc_at(s, 0, 31);
    pl_pack_clear(&s->u.pack);
    pl_pack_add(&s->u.pack, &doc, 4, CAPACITY);
    pl_pack_close(&s->u.pack);
}

// Losses and choices of the rows that run, learned from and scored, are those of a pass of all rows, to the bit, and
// gradients are the same sums.
static void compare_running(setup *some, setup *all, const char *what) {
    pl_err         err = {0};
    pl_unroll_sums learned[2] = {0}, scored[2] = {0};
    double         most = 0;
    setup         *both[2] = {some, all};
    for (int i = 0; i < 2; i++) {
        memset(both[i]->block.grad, 0, (size_t)both[i]->block.n * sizeof(double));
        if (pl_unroll_learn(&both[i]->u, &err) != PL_OK) fail_msg("%s: %s", what, err.msg);
        pl_unroll_add(&both[i]->u, false, &learned[i]);
        if (pl_unroll_score(&both[i]->u, &err) != PL_OK) fail_msg("%s: %s", what, err.msg);
        pl_unroll_add(&both[i]->u, true, &scored[i]);
    }
    if (memcmp(&learned[0], &learned[1], sizeof *learned))
        fail_msg("%s: loss %.17g, %.17g", what, learned[0].loss, learned[1].loss);
    if (memcmp(&scored[0], &scored[1], sizeof *scored))
        fail_msg("%s: scored %.17g, %.17g", what, scored[0].loss, scored[1].loss);
    pl_unroll_sums *sums = learned;
    const double   *a = some->block.grad, *b = all->block.grad;
    for (int64_t k = 0; k < all->block.n; k++)
        most = fmax(most, fabs(b[k]));
    assert_true((most > 0) == (sums[1].weight > 0));
    for (int64_t k = 0; k < all->block.n; k++)
        if (fabs(a[k] - b[k]) > 1e-13 * fmax(most, 1))
            fail_msg("%s: gradient %lld: %.17g, %.17g", what, (long long)k, a[k], b[k]);
}

static void running_rows(void **state) {
    (void)state;
    static setup some, all;
    static const struct {
        const pl_backbone_kind *kind;
        const char             *head;
        int                     layers, top_k, selected_from;
        double                  depth_ratio;
        bool                    trimmed, recompute;
    } cases[] = {
        {&pl_backbone_eagle3, "full", 1, 0, 0, 1, false, false},
        {&pl_backbone_eagle3, "lowrank", 3, 0, 0, 1, true, false},
        {&pl_backbone_eagle3, "lowrank", 3, 4, 0, 1, false, true},
        {&pl_backbone_eagle3, "full", 1, 0, 5, 1, true, true},
        {&pl_backbone_eagle1, "lowrank", 0, 0, 0, 1, false, false},
        {&pl_backbone_eagle1, "full", 0, 3, 0, 1, true, true},
        {&pl_backbone_peagle, "full", 2, 0, 0, 1, false, false},
        {&pl_backbone_peagle, "lowrank", 1, 4, 0, 0.6, true, true},
    };
    for (size_t c = 0; c < 2 * sizeof cases / sizeof *cases; c++) {
        size_t i = c / 2;
        int    at_once = c % 2 ? 4 : 0;
        top_k = cases[i].top_k;
        selected_from = cases[i].selected_from;
        depth_ratio = cases[i].depth_ratio;
        layers = cases[i].layers;
        make_kind(&all, cases[i].kind, pl_backend_ref64(), NULL, cases[i].head, cases[i].trimmed, PL_F32);
        supervised = true;
        learn_rows = at_once;
        make_kind(&some, cases[i].kind, pl_backend_ref64(), NULL, cases[i].head, cases[i].trimmed, PL_F32);
        supervised = false;
        top_k = selected_from = layers = learn_rows = 0;
        assert_true(at_once == 0 || some.u.ctx.frame.size < all.u.ctx.frame.size);
        depth_ratio = 1;
        some.u.opt.recompute = cases[i].recompute;
        draw_weights(&some);
        draw_weights(&all);
        for (int mask = 0; mask < 2 * MASKS; mask++) {
            char what[64];
            snprintf(what, sizeof what, "case %zu, mask %d, %d at once", i, mask, at_once);
            load_masked(&some, mask / 2, mask % 2);
            load_masked(&all, mask / 2, mask % 2);
            compare_running(&some, &all, what);
            int64_t rows = all.u.pack.rows, n = some.u.rows.depth[0].n, want = 0;
            for (int64_t row = 0; row < rows; row++) {
                bool learns = false;
                for (int k = 0; k < K; k++)
                    learns |= all.u.pack.weight[k * rows + row] > 0;
                want += learns;
            }
            if (want > 0 && at_once == 0 && n != want)
                fail_msg("%s: %lld rows run of %lld", what, (long long)n, (long long)want);
            assert_true(want == 0 || at_once == 0 || (n > 0 && n <= at_once));
        }
        destroy(&some);
        destroy(&all);
    }
}

// Long documents come in pieces; positions go on, the last place of the rope table is not passed.
static void pieces(void **state) {
    (void)state;
    static setup s;
    make(&s, pl_backend_ref(), NULL, "full", false, PL_F32);
    pl_columns doc = doc_at(&s, 0, 31);
    pl_pack   *p = &s.u.pack;
    pl_pack_clear(p);
    pl_pack_add(p, &doc, 0, CAPACITY);
    pl_pack_close(p);
    assert_int_equal(p->teacher_row[CAPACITY - 1], -1); // its teacher lies in the next piece
    assert_int_equal(p->teacher_row[CAPACITY - 2], CAPACITY - 1);
    pl_pack_clear(p);
    pl_pack_add(p, &doc, CAPACITY, 31 - CAPACITY);
    pl_pack_close(p);
    for (int row = 0; row < p->rows; row++) {
        int t = row + CAPACITY;
        assert_int_equal(p->lo[row], 0);
        assert_int_equal(p->pos[row], t < 24 - K ? t : 24 - K);
        for (int k = 0; k < K; k++)
            assert_true(p->weight[k * p->rows + row] == 0 || t + 2 + k < 24);
    }
    destroy(&s);
}

// Central differences of fourth order.
static double difference(setup *s, double *x) {
    double x0 = *x, h = 3e-5, f[4], at[4] = {-2, -1, 1, 2};
    for (int i = 0; i < 4; i++) {
        *x = x0 + at[i] * h;
        f[i] = loss_of(s);
    }
    *x = x0;
    return (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * h);
}

// A lattice's features are constants to the gradient, but not to differences: its parameters are compared with them, and
// those before them where they are muted.
static bool muted;

static bool is_left_out(const setup *s, int p) {
    if (!*selected_kind) return false;
    const char *name = s->model->params.p[p].name[0];
    return muted ? strstr(name, "feature_mlp") != NULL : strncmp(name, "lilicorr.", 9) != 0;
}

// Every parameter's gradient through all steps.
static void gradient_by(const pl_backbone_kind *kind, const char *head, bool trimmed, pl_objective o, bool unmasked) {
    static setup s;
    pl_err       err = {0};
    make_kind(&s, kind, pl_backend_ref64(), NULL, head, trimmed, PL_F32);
    s.u.opt.objective = o;
    s.u.opt.unmasked = s.u.pack.outside = unmasked;
    s.u.opt.js_beta = 0.4;
    double *w = s.block.w;
    for (int64_t i = 0; i < s.block.n; i++) // away from small initial values and from biases of 0
        w[i] = (kind == &pl_backbone_eagle3 ? 5 : 1) * w[i] +
               (kind != &pl_backbone_eagle3 || selected_from ? 0.1 * (double)noise(5, i) : 0);
    for (int p = 0; p < s.model->params.n; p++)
        for (int64_t j = 0; j < pl_param_block_count(&s.block, p); j++) {
            const char *name = s.model->params.p[p].name[0];
            if (muted && strcmp(name, "lilicorr.feature_mlp.3.weight") == 0) w[s.block.at[p] + j] = 0;
            if (strncmp(name, "refiner_head.", 13) == 0) w[s.block.at[p] + j] *= 1.5;
        }
    assert_int_equal(pl_param_block_put(&s.block, PL_BLOCK_W, 0, s.block.n, s.block.w, NULL), PL_OK);
    load_rows(&s);
    if (pl_unroll_learn(&s.u, &err) != PL_OK) fail_msg("%s", err.msg);
    double *work = s.block.work, *grad = calloc((size_t)s.block.n, sizeof *grad);
    assert_non_null(grad);
    memcpy(grad, s.block.grad, (size_t)s.block.n * sizeof *grad);
    for (int p = 0; p < s.model->params.n; p++) {
        int64_t n = pl_param_block_count(&s.block, p);
        double  largest = 0;
        if (is_left_out(&s, p)) continue;
        for (int64_t j = 0; j < n; j += 1 + n / (*selected_kind ? 8 : 60)) {
            double want = difference(&s, &work[s.block.at[p] + j]), got = grad[s.block.at[p] + j];
            if (fabs(got - want) > 1e-7 * (fabs(want) + 0.1))
                fail_msg("%s element %lld: %.12g, differences say %.12g", s.model->params.p[p].name[0], (long long)j,
                         got, want);
            if (fabs(want) > largest) largest = fabs(want);
        }
        if (!(largest > 1e-4)) fail_msg("%s: does not matter, %g", s.model->params.p[p].name[0], largest);
    }
    free(grad);
    destroy(&s);
}

static void gradient(const pl_backbone_kind *kind, const char *head, bool trimmed);

// xPress's refiner in blocks that draft from their anchor and that do not, behind the text and behind its own tokens.
static void gradient_xpress(void **state) {
    (void)state;
    static const struct {
        int64_t count;
        double  weight, base;
    } some = {2, 0.4, 0.3};
    layers = 1;
    for (int i = 0; i < 3; i++) {
        anchor_first = i == 1;
        rounds = i == 2 ? &some : NULL;
        gradient(&pl_backbone_dflash, "xpress", false);
    }
    rounds = NULL;
    anchor_first = false;
    layers = 0;
}

static void gradient_lilicorr(void **state) {
    (void)state;
    const pl_objective by[] = {PL_OBJ_HARD_CE, PL_OBJ_KL};
    layers = 1;
    selected_kind = PL_HF_LATTICE;
    selected_from = VOCAB / 2;
    for (int i = 0; i < 2; i++) {
        selected_by = by[i];
        muted = i;
        gradient(&pl_backbone_dflash, "full", false);
    }
    layers = selected_from = 0;
    selected_kind = "";
    muted = false;
}

static void gradient(const pl_backbone_kind *kind, const char *head, bool trimmed) {
    gradient_by(kind, head, trimmed, PL_OBJ_KL, false);
}

// Medusa's heads, each with a matrix of its own.
static void gradient_medusa(void **state) {
    (void)state;
    gradient(&pl_backbone_medusa, "full", false);
    gradient(&pl_backbone_medusa, "lowrank", true);
    gradient_by(&pl_backbone_medusa, "full", true, PL_OBJ_TV, true);
}

// Hydra's, which read the tokens before them; behind a layer of their own.
static void gradient_hydra(void **state) {
    (void)state;
    gradient(&pl_backbone_hydra, "full", false);
    layers = 2;
    gradient(&pl_backbone_hydrapp, "lowrank", true);
    layers = 0;
}

static const double *weights_of(const setup *s, const char *name) {
    for (int p = 0; p < s->model->params.n; p++)
        if (strcmp(s->model->params.p[p].name[0], name) == 0) return (double *)s->block.work + s->block.at[p];
    fail_msg("no %s", name);
    return NULL;
}

// Turns logits into log-probabilities.
static void normalise_logits(double *z) {
    double sum = 0;
    for (int v = 0; v < VOCAB; v++)
        sum += exp(z[v]);
    for (int v = 0; v < VOCAB; v++)
        z[v] -= log(sum);
}

// Every loss by the paper's formula: y = h + SiLU(W h + b), a matrix for each head, the teacher of row t + 1 + k.
static void medusa_by_hand(void **state) {
    (void)state;
    static setup s;
    make_kind(&s, &pl_backbone_medusa, pl_backend_ref64(), NULL, "full", false, PL_F32);
    double *w = s.block.w;
    for (int64_t i = 0; i < s.block.n; i++)
        w[i] += 0.1 * (double)noise(5, i);
    assert_int_equal(pl_param_block_put(&s.block, PL_BLOCK_W, 0, s.block.n, s.block.w, NULL), PL_OK);
    load_rows(&s);
    assert_true(loss_of(&s) > 0);
    int counted = 0;
    for (int k = 0; k < K; k++) {
        char block[64], bias[64], head[64];
        snprintf(block, sizeof block, "blocks.%d.layers.0.weight", k);
        snprintf(bias, sizeof bias, "blocks.%d.layers.0.bias", k);
        snprintf(head, sizeof head, k ? "heads.%d.lm_head.weight" : "lm_head.weight", k);
        const double *wk = weights_of(&s, block), *bk = weights_of(&s, bias), *out = weights_of(&s, head);
        for (int row = 0; row < 15; row++) {
            int     i = k * 15 + row, teacher = s.u.pack.teacher_row[i];
            double  y[D], q[VOCAB] = {0}, p[VOCAB] = {0}, kl = 0;
            double *last = s.u.pack.last_hidden, *h = last + row * D;
            if (!(s.u.pack.weight[i] > 0)) continue;
            for (int j = 0; j < D; j++) {
                double z = bk[j];
                for (int m = 0; m < D; m++)
                    z += wk[j * D + m] * h[m];
                y[j] = h[j] + z / (1 + exp(-z));
            }
            for (int v = 0; v < VOCAB; v++) {
                for (int j = 0; j < D; j++) {
                    q[v] += out[v * D + j] * y[j];
                    p[v] += (double)s.head[v * D + j] * last[teacher * D + j];
                }
                p[v] = TEACHER_CAP * tanh(p[v] / TEACHER_CAP);
            }
            normalise_logits(q);
            normalise_logits(p);
            for (int v = 0; v < VOCAB; v++)
                kl += exp(p[v]) * (p[v] - q[v]);
            if (fabs(kl - s.u.loss[i]) > 1e-10) fail_msg("head %d, row %d: %.15g, %.15g", k, row, s.u.loss[i], kl);
            counted++;
        }
    }
    assert_true(counted > 20);
    destroy(&s);
}

// Losses of a pass that learns, [K * 15].
static void learned(double *loss, pl_objective o, int of) {
    static setup s;
    pl_err       err = {0};
    top_k = of;
    make(&s, pl_backend_ref64(), NULL, "full", false, PL_F32);
    top_k = 0;
    s.u.opt.objective = o;
    load_rows(&s);
    if (pl_unroll_learn(&s.u, &err) != PL_OK) fail_msg("%s", err.msg);
    memcpy(loss, s.u.loss, K * 15 * sizeof *loss);
    destroy(&s);
}

// HASS's top-K loss: of all tokens it is cross-entropy with the teacher; of one, that with its choice times its
// probability, which is the same for all steps that look at one row of the teacher. Its gradient.
static void top_k_loss(void **state) {
    (void)state;
    static double kl[K * 15], ce[K * 15], hard[K * 15], all[K * 15], one[K * 15];
    int           counted = 0;
    learned(kl, PL_OBJ_KL, 0);
    learned(ce, PL_OBJ_SOFT_CE, 0);
    learned(hard, PL_OBJ_HARD_CE, 0);
    learned(all, PL_OBJ_KL, VOCAB);
    learned(one, PL_OBJ_KL, 1);
    for (int i = 0; i < K * 15; i++) {
        if (ce[i] == 0) continue;
        double share = (one[i] - kl[i]) / 0.7 / hard[i];
        assert_true(fabs(all[i] - kl[i] - 0.7 * ce[i]) < 1e-6 * ce[i]); // probabilities are kept in fp32
        assert_true(share > 1.0 / VOCAB && share < 1);
        for (int k = 1; k * 15 + i < K * 15 && i < 15; k++) // row i at step k has the teacher of row i + k at step 0
            if (i >= k && ce[k * 15 + i - k] > 0)
                assert_true(fabs((one[k * 15 + i - k] - kl[k * 15 + i - k]) / 0.7 / hard[k * 15 + i - k] - share) <
                            1e-6);
        counted++;
    }
    assert_true(counted > 20);
    top_k = 4;
    gradient(&pl_backbone_eagle3, "full", false);
    gradient(&pl_backbone_eagle3, "lowrank", true);
    gradient(&pl_backbone_eagle1, "full", false);
    top_k = 0;
}

// The recipe's names are the engine's.
static void objectives_by_name(void **state) {
    (void)state;
    for (int i = 0; pl_train_keys[i].path; i++) {
        const pl_key *k = &pl_train_keys[i];
        if (strcmp(k->path, "train.objective") != 0) continue;
        int n = 0;
        for (; pl_key_choice(k, n); n++)
            assert_string_equal(pl_key_choice(k, n), pl_objective_name(n));
        assert_int_equal(n, PL_OBJECTIVES);
        assert_string_equal(k->deflt, pl_objective_name(PL_OBJ_KL));
        return;
    }
    fail_msg("no key train.objective");
}

// A trimmed head by other objectives; without a mask rows count whose choice is no draft id.
static void gradient_objectives(void **state) {
    (void)state;
    static setup s;
    int          counted[2] = {0};
    for (int unmasked = 0; unmasked < 2; unmasked++) {
        gradient_by(&pl_backbone_eagle3, "lowrank", true, PL_OBJ_TV, unmasked);
        gradient_by(&pl_backbone_eagle3, "full", true, PL_OBJ_JS, unmasked);
        gradient_by(&pl_backbone_eagle1, "full", true, PL_OBJ_LK_ALPHA, unmasked);
        make(&s, pl_backend_ref64(), NULL, "full", true, PL_F32);
        s.u.pack.outside = unmasked;
        load_rows(&s);
        for (int i = 0; i < K * 15; i++)
            counted[unmasked] += s.u.pack.teacher_row[i] >= 0;
        destroy(&s);
        make(&s, pl_backend_ref64(), NULL, "full", false, PL_F32);
        load_rows(&s);
        for (int i = 0; i < K * 15 && unmasked; i++)
            counted[1] -= s.u.pack.teacher_row[i] >= 0; // as many as a whole vocabulary has
        destroy(&s);
    }
    assert_true(counted[0] > 0 && counted[1] == 0);
}

// A selector that has learned nothing, of all that its head drafts: it scores as the head does, so by any objective it
// loses what the head loses, mass beside a trimmed list included.
static void selects_as_the_head(void **state) {
    (void)state;
    static setup s;
    pl_err       err = {0};
    for (int trimmed = 0; trimmed < 2; trimmed++)
        for (int o = 0; o < PL_OBJECTIVES; o++) {
            int counted = 0, wrong = 0;
            if (o == PL_OBJ_LABEL || o == PL_OBJ_HARD_CE) continue; // what these documents say is chosen is made up
            selected_from = trimmed ? VOCAB / 2 : VOCAB;
            selected_by = (pl_objective)o;
            as_it_is = true;
            make(&s, pl_backend_ref64(), NULL, "full", trimmed, PL_F32);
            s.u.opt.objective = selected_by;
            load_rows(&s);
            const double *lost = pl_unroll_figure(&s.u, "selector_loss")->value;
            const double *listed = pl_unroll_figure(&s.u, "candidate_recall")->value;
            for (int learn = 0; learn < 2; learn++) {
                if ((learn ? pl_unroll_learn : pl_unroll_score)(&s.u, &err) != PL_OK) fail_msg("%s", err.msg);
                for (int i = 0; i < K * 15; i++) {
                    if (listed[i] == 0) continue;
                    counted++;
                    wrong += !(fabs(lost[i] - s.u.loss[i]) < 1e-9 * (1 + s.u.loss[i]));
                }
            }
            if (wrong || counted < 8) fail_msg("%s: %d of %d", pl_objective_name(o), wrong, counted);
            destroy(&s);
        }
    selected_from = 0;
    as_it_is = false;
}

// A selector that has learned nothing, of a short list: by the full law the head is accepted as if there were none, and
// by the list's it is not.
static void accepted_as_the_head(void **state) {
    (void)state;
    static setup s[3];
    pl_err       err = {0};
    for (int trimmed = 0; trimmed < 2; trimmed++) {
        int counted = 0, other = 0;
        for (int i = 0; i < 3; i++) { // none, full, list
            selected_from = i ? 5 : 0;
            selected_law = i == 2 ? PL_HF_LAW_LIST : PL_HF_LAW_FULL;
            make(&s[i], pl_backend_ref64(), NULL, trimmed ? "lowrank" : "full", trimmed, PL_F32);
            load_rows(&s[i]);
            if (pl_unroll_score(&s[i].u, &err) != PL_OK) fail_msg("%s", err.msg);
        }
        for (int i = 0; i < K * 15; i++) {
            if (s[0].u.pack.weight[i] == 0) continue;
            double none = (double)s[0].u.accept[i];
            assert_true(fabs((double)s[1].u.accept[i] - none) < 1e-6);
            other += fabs((double)s[2].u.accept[i] - none) > 1e-3;
            counted++;
        }
        assert_true(counted > 8 && other > 4);
        for (int i = 0; i < 3; i++)
            destroy(&s[i]);
    }
    selected_from = 0;
    selected_law = PL_HF_LAW_FULL;
}

// Held-out acceptance is the overlap of the target's law with what decoding draws from, by either law, of every kind of
// head that has a list.
typedef struct compared {
    setup    *s;
    double    promised[9], drawn[9];
    pl_tensor last;
} compared;

static void compare_acceptance(pl_ctx *ctx, void *arg) {
    static const int32_t before[9] = {3, 7, 11, 2, 19, 4, 4, 9, 22}, row[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    static int32_t       choice[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    static float         x[9 * D], last[9 * D], weight[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    compared            *o = arg;
    const pl_head       *h = &o->s->model->head;
    for (int i = 0; i < 9 * D; i++) {
        x[i] = 2 * noise(6, i);
        last[i] = noise(7, i);
    }
    pl_head_rows       r = {.x = pl_tensor_2d(x, PL_F32, 9, D), .token = before};
    pl_divergence_args d = {.x = pl_head_project(ctx, h, r.x, (pl_tensor){0}),
                            .w = h->exact.data ? h->exact : h->out,
                            .xt = pl_tensor_2d(last, PL_F32, 9, D),
                            .wt = pl_tensor_2d(o->s->head, PL_F32, VOCAB, D),
                            .teacher_cap = TEACHER_CAP,
                            .teacher_row = row,
                            .weight = weight,
                            .d2t = h->d2t,
                            .accept = pl_ctx_const_1d(ctx, 9)};
    pl_selected        s = {.head = h,
                            .read = r,
                            .rows = d.x,
                            .choice = choice,
                            .last_hidden = d.xt,
                            .wt = d.wt,
                            .teacher_row = row,
                            .cap = TEACHER_CAP,
                            .scored = true};
    if (h->exact.data) d.x = r.x;
    pl_divergence(ctx, &d);
    s.stat = d.teacher_stat;
    pl_selected_list(ctx, &s);
    pl_selected_teach(ctx, &s);
    pl_tensor score = pl_selected_scores(ctx, &s, s.own), z = pl_head_logits(ctx, h, &r);
    if (ctx->measuring) return;
    for (int i = 0; i < 9; i++) {
        int32_t best;
        double  p[VOCAB], sum = 0, sum_q = 0;
        o->promised[i] = pl_selected_accept(&s, &score, i, pl_real_at(&d.accept, i), &best);
        for (int v = 0; v < VOCAB; v++) {
            double logit = 0;
            for (int j = 0; j < D; j++)
                logit += (double)last[i * D + j] * (double)o->s->head[v * D + j];
            sum += p[v] = exp(TEACHER_CAP * tanh(logit / TEACHER_CAP));
        }
        for (int64_t j = 0; j < h->vocab; j++)
            sum_q += exp(pl_real_at(&z, i * h->vocab + j));
        o->drawn[i] = 0;
        for (int64_t j = 0; j < h->vocab; j++)
            o->drawn[i] += fmin(p[h->d2t ? h->d2t[j] : j] / sum, exp(pl_real_at(&z, i * h->vocab + j)) / sum_q);
    }
}

static void promises_what_is_drawn(void **state) {
    (void)state;
    static setup s;
    pl_err       err = {0};
    const char  *kinds[] = {"full", "lowrank", "specvocab:rank=3,candidates=23", "specvocab:rank=3,candidates=11"};
    for (int kind = 0; kind < 4; kind++)
        for (int law = 0; law < 2; law++) {
            compared   o = {.s = &s};
            pl_ctx     ctx;
            pl_hf_head spec = kind == 1 ? pl_hf_head_make("lowrank", 3) : pl_hf_head_of(kinds[kind]);
            bool       trimmed = kind == 1 || kind == 3;
            selected_from = 5;
            selected_law = (pl_hf_law)law;
            make_spec(&s, &pl_backbone_eagle3, pl_backend_cpu(), NULL, &spec, trimmed, PL_F32);
            float *w = s.block.w;
            for (int64_t i = 0; i < s.block.n; i++)
                w[i] = 3 * w[i] + 0.3F * noise(5, i);
            assert_int_equal(pl_param_block_put(&s.block, PL_BLOCK_W, 0, s.block.n, s.block.w, NULL), PL_OK);
            assert_int_equal(pl_ctx_init(&ctx, pl_backend_cpu(), NULL), PL_OK);
            if (pl_ctx_measure(&ctx, compare_acceptance, &o, &err) != PL_OK) fail_msg("%s", err.msg);
            pl_ctx_begin(&ctx);
            compare_acceptance(&ctx, &o);
            if (pl_ctx_sync(&ctx, &err) != PL_OK) fail_msg("%s", err.msg);
            for (int i = 0; i < 9; i++)
                if (!(fabs(o.promised[i] - o.drawn[i]) < 1e-5 && o.drawn[i] > 0 && o.drawn[i] < 1))
                    fail_msg("%s, %s law, row %d: %.9g promised, %.9g drawn", kinds[kind], pl_hf_law_name(law), i,
                             o.promised[i], o.drawn[i]);
            pl_ctx_fini(&ctx);
            destroy(&s);
        }
    selected_from = 0;
    selected_law = PL_HF_LAW_FULL;
}

// Of a short list: total variation is what `rejection` does not accept. The gradient by each objective.
static void selects_by(void **state) {
    (void)state;
    static setup       s;
    pl_err             err = {0};
    const pl_objective by[] = {PL_OBJ_KL, PL_OBJ_TV, PL_OBJ_JS, PL_OBJ_LK_ALPHA, PL_OBJ_HARD_CE, PL_OBJ_REVERSE_KL};
    for (int trimmed = 0; trimmed < 2; trimmed++) {
        int counted = 0;
        selected_from = 5;
        selected_by = PL_OBJ_TV;
        selected_law = PL_HF_LAW_LIST;
        make(&s, pl_backend_ref64(), NULL, trimmed ? "lowrank" : "full", trimmed, PL_F32);
        draw_weights(&s);
        double *w = s.block.w;
        for (int64_t i = 0; i < s.block.n; i++) // also what begins as zeros
            w[i] += 0.1 * (double)noise(5, i);
        assert_int_equal(pl_param_block_put(&s.block, PL_BLOCK_W, 0, s.block.n, s.block.w, NULL), PL_OK);
        load_rows(&s);
        if (pl_unroll_score(&s.u, &err) != PL_OK) fail_msg("%s", err.msg);
        const pl_figure *lost = pl_unroll_figure(&s.u, "selector_loss");
        for (int i = 0; i < K * 15; i++) {
            if (lost->loss->weight[i] == 0) continue;
            assert_true(fabs(lost->value[i] - (1 - (double)s.u.accept[i])) < 1e-6);
            counted++;
        }
        assert_true(counted > 4);
        destroy(&s);
    }
    selected_law = PL_HF_LAW_FULL;
    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        selected_by = by[i];
        gradient_by(&pl_backbone_eagle3, i % 2 ? "lowrank" : "full", i % 3 == 1, PL_OBJ_KL, false);
    }
    selected_from = 0;
}

static void gradient_lowrank(void **state) {
    (void)state;
    gradient(&pl_backbone_eagle3, "lowrank", false);
}

static void gradient_full(void **state) {
    (void)state;
    gradient(&pl_backbone_eagle3, "full", false);
}

// Embeddings of the drafter's own, as wide as the target's and not.
static void gradient_own(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        width = i ? D + 2 : D;
        gradient(&pl_backbone_eagle3, i ? "lowrank" : "full", i);
    }
    width = 0;
}

static void gradient_trimmed(void **state) {
    (void)state;
    gradient(&pl_backbone_eagle3, "full", true);
}

static void gradient_eagle1(void **state) {
    (void)state;
    gradient(&pl_backbone_eagle1, "full", false);
}

static void gradient_eagle1_lowrank(void **state) {
    (void)state;
    gradient(&pl_backbone_eagle1, "lowrank", false);
}

// Learning from fewer steps than are scored: the gradient is that of an unroll of so many steps.
static void fewer_steps(void **state) {
    (void)state;
    static setup all, one;
    pl_err       err = {0};
    make_kind(&all, &pl_backbone_eagle1, pl_backend_ref64(), NULL, "full", false, PL_F32);
    learn_steps = 1;
    make_kind(&one, &pl_backbone_eagle1, pl_backend_ref64(), NULL, "full", false, PL_F32);
    learn_steps = 0;
    load_rows(&all);
    load_rows(&one);
    for (int i = 15; i < K * 15; i++) // what remains is step 0
        all.u.pack.weight[i] = 0;
    assert_int_equal(pl_unroll_learn(&all.u, &err), PL_OK);
    assert_int_equal(pl_unroll_learn(&one.u, &err), PL_OK);
    double *a = all.block.grad, *b = one.block.grad, largest = 0;
    for (int64_t i = 0; i < one.block.n; i++) {
        assert_true(fabs(a[i] - b[i]) <= 1e-12);
        largest = fmax(largest, fabs(a[i]));
    }
    assert_true(largest > 0.01);
    pl_unroll_sums sums = {0};
    pl_unroll_add(&one.u, false, &sums);
    assert_true(sums.count[0] > 0 && sums.count[1] == 0);
    assert_int_equal(pl_unroll_score(&one.u, &err), PL_OK);
    pl_unroll_add(&one.u, true, &sums);
    assert_true(sums.count[1] > 0 && sums.count[K - 1] > 0);
    destroy(&all);
    destroy(&one);
}

// A source of one document of 31 rows, over and over.
typedef struct one_doc {
    pl_feature_source base;
    setup            *s;
} one_doc;

static pl_status get_doc(pl_feature_source *s, int64_t at, pl_columns *doc, pl_err *err) {
    (void)at, (void)err;
    *doc = doc_at(((one_doc *)s)->s, 0, 31);
    doc->features = NULL;
    return PL_OK;
}

static pl_status rows_of_doc(pl_feature_source *s, int64_t at, int64_t *n, pl_err *err) {
    (void)s, (void)at, (void)err;
    *n = 31;
    return PL_OK;
}

// Noise depends on seed, document, row and column alone: not on how documents are cut into packs; epochs differ; what
// is to be predicted stays clean; its width is as stated.
static void noise_on_features(void **state) {
    (void)state;
    static setup s;
    pl_err       err = {0};
    make_kind(&s, &pl_backbone_eagle1, pl_backend_ref(), NULL, "full", false, PL_F32);
    one_doc          source = {.base = {.d = D, .docs = 1, .get = get_doc, .rows = rows_of_doc}, .s = &s};
    pl_feature_noise noisy = {.width = 0.5, .seed = 3};
    pl_pack         *p = &s.u.pack, whole;
    static float     want[2][31 * D];
    assert_int_equal(pl_pack_init(&whole, s.model, 40, K, 0.8, pl_backend_cpu(), &err), PL_OK);
    double most = 0, epochs_differ = 0;
    for (int doc = 0; doc < 2; doc++) {
        int64_t at[2] = {doc, 0};
        assert_int_equal(pl_pack_fill(&whole, &source.base, doc + 1, at, &noisy, &err), PL_OK);
        assert_int_equal(whole.rows, 31);
        memcpy(want[doc], whole.features, sizeof want[doc]);
        for (int i = 0; i < 31 * D; i++) {
            double clean = (double)pl_bf16_to_f32(s.last_hidden[i]), off = (double)want[doc][i] - clean;
            assert_true(((float *)whole.last_hidden)[i] == pl_bf16_to_f32(s.last_hidden[i]));
            most = fmax(most, fabs(off));
            if (doc) epochs_differ += fabs((double)want[0][i] - (double)want[1][i]);
        }
    }
    double half = 0.25 * 512 / 31;
    assert_true(most <= half * 1.0001 && most > 0.95 * half);
    assert_true(epochs_differ > half);
    int64_t at[2] = {0, 0};
    for (int piece = 0; piece < 2; piece++) { // the first document in two packs
        int rows = piece ? 31 - CAPACITY : CAPACITY;
        assert_int_equal(pl_pack_fill(p, &source.base, 1, at, &noisy, &err), PL_OK);
        assert_int_equal(p->rows, rows);
        assert_memory_equal(p->features, want[0] + piece * CAPACITY * D, (size_t)(rows * D) * sizeof(float));
    }
    at[0] = at[1] = 0;
    assert_int_equal(pl_pack_fill(p, &source.base, 1, at, NULL, &err), PL_OK);
    assert_memory_equal(p->features, p->last_hidden, (size_t)(CAPACITY * D) * sizeof(float));
    pl_pack_fini(&whole);
    destroy(&s);
}

// The tape's gradient of every element is what the backward written by hand says.
static void second_opinion(const char *head) {
    static setup s;
    pl_err       err = {0};
    double       loss[K * 15], largest = 0;
    make(&s, pl_backend_ref64(), NULL, head, false, PL_F32);
    double *w = s.block.w;
    for (int64_t i = 0; i < s.block.n; i++)
        w[i] *= 5;
    assert_int_equal(pl_param_block_put(&s.block, PL_BLOCK_W, 0, s.block.n, s.block.w, NULL), PL_OK);
    load_rows(&s);
    if (pl_unroll_learn(&s.u, &err) != PL_OK) fail_msg("%s", err.msg);
    double *mine = pl_calloc((size_t)s.block.n, sizeof *mine), *tape = s.block.grad;
    assert_non_null(mine);
    assert_true(by_hand_drafter(&s.u, &s.block, mine, loss) > 0);
    for (int i = 0; i < K * 15; i++)
        assert_true(fabs(loss[i] - s.u.loss[i]) <= 1e-11 * (1 + loss[i]));
    for (int64_t i = 0; i < s.block.n; i++) {
        if (fabs(mine[i] - tape[i]) > 1e-10 * (1 + fabs(mine[i])))
            fail_msg("element %lld: by hand %.15g, by the tape %.15g", (long long)i, mine[i], tape[i]);
        largest = fmax(largest, fabs(mine[i]));
    }
    assert_true(largest > 0.1);
    pl_free(mine);
    destroy(&s);
}

static void by_hand_full(void **state) {
    (void)state;
    second_opinion("full");
}

static void by_hand_lowrank(void **state) {
    (void)state;
    second_opinion("lowrank");
}

// A document's losses do not depend on what stands beside it, nor on what comes after a row in it.
static void rows_see_their_own_past(void **state) {
    (void)state;
    static setup s;
    pl_err       err = {0};
    double       both[K * 15];
    make(&s, pl_backend_ref64(), NULL, "lowrank", false, PL_F32);
    load_rows(&s);
    assert_int_equal(pl_unroll_score(&s.u, &err), PL_OK);
    memcpy(both, s.u.loss, sizeof both);

    pl_columns b = doc_at(&s, 12, 6), longer = doc_at(&s, 12, 9);
    for (int pass = 0; pass < 2; pass++) {
        pl_columns *doc = pass ? &longer : &b;
        pl_pack_clear(&s.u.pack);
        pl_pack_add(&s.u.pack, doc, 0, doc->n);
        pl_pack_close(&s.u.pack);
        assert_int_equal(pl_unroll_score(&s.u, &err), PL_OK);
        for (int k = 0; k < K; k++)
            for (int t = 0; t + 1 + k < 6; t++) {
                double want = both[k * 15 + 9 + t], got = s.u.loss[k * doc->n + t];
                assert_true(want > 0 && fabs(got - want) < 1e-9 * want);
            }
    }
    destroy(&s);
}

// Step k of row t is what a drafter computes that runs ahead one row at a time: its layer over a cache that holds the
// rows up to t and its own steps.
static void steps_are_a_chain(void **state) {
    (void)state;
    static setup s;
    pl_err       err = {0};
    make(&s, pl_backend_ref64(), NULL, "full", false, PL_F32);
    load_rows(&s);
    assert_int_equal(pl_unroll_score(&s.u, &err), PL_OK);

    enum { T = 4 }; // row of the first document
    pl_ctx         *ctx = &s.u.ctx;
    pl_layer_shape *sh = &s.model->shape;
    pl_tensor       wt = s.u.wt, last, hidden;
    static double   k_cache[16 * 4], v_cache[16 * 4], feat[9 * TAPS * D];
    int32_t         pos[16];
    pl_kvrow        row[16];
    int32_t         teacher[16];
    float           weight[16];
    pl_tape        *tape = ctx->tape;
    assert_int_equal(sh->nkv * sh->hd, 4);
    for (int i = 0; i < (T + 1) * TAPS * D; i++)
        feat[i] = (double)pl_bf16_to_f32(s.features[i]);
    ctx->tape = NULL;
    pl_ctx_begin(ctx);
    last = pl_ctx_const(ctx, 9, D);
    for (int i = 0; i < 9 * D; i++)
        pl_f64(&last)[i] = (double)pl_bf16_to_f32(s.last_hidden[i]);
    hidden = s.model->kind->fuse(ctx, s.model, pl_tensor_2d(feat, PL_F64, T + 1, TAPS * D));
    int rows = T + 1, first = 0;
    for (int k = 0; k < K; k++) {
        for (int m = 0; m < rows; m++) {
            pos[m] = first + m;
            row[m] = (pl_kvrow){.k = k_cache, .v = v_cache, .n_ctx = first, .n_path = m + 1, .slot = first + m};
        }
        pl_view   view = {.pos = pos, .cos = s.model->cos, .sin = s.model->sin, .row = row, .m = rows};
        pl_tensor y = s.model->kind->step(ctx, s.model, s.tokens + 1 + first, hidden, &view, &hidden, (pl_tensor){0});
        // The newest row goes on alone.
        pl_tensor one = pl_tensor_2d((double *)y.data + (rows - 1) * D, PL_F64, 1, D);
        hidden = pl_tensor_2d((double *)hidden.data + (rows - 1) * D, PL_F64, 1, D);
        teacher[0] = T + 1 + k;
        weight[0] = 1;
        pl_divergence_args a = {.objective = PL_OBJ_KL,
                                .x = one,
                                .w = s.model->head.out,
                                .xt = last,
                                .wt = wt,
                                .teacher_cap = TEACHER_CAP,
                                .teacher_row = teacher,
                                .weight = weight};
        pl_tensor          loss = pl_divergence(ctx, &a);
        double             want = s.u.loss[k * 15 + T];
        assert_true(want > 0 && fabs(pl_f64(&loss)[0] - want) < 1e-9 * want);
        first += rows;
        rows = 1;
    }
    assert_int_equal(pl_ctx_sync(ctx, &err), PL_OK);
    ctx->tape = tape;
    destroy(&s);
}

// The same bits for one thread and two, and no allocation in a steady step.
static void threads_do_not_matter(void **state) {
    (void)state;
    static setup one, two;
    pl_err       err = {0};
    pl_pool     *pool;
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
    make(&one, pl_backend_cpu(), NULL, "lowrank", false, PL_BF16);
    make(&two, pl_backend_cpu(), pool, "lowrank", false, PL_BF16);
    load_rows(&one);
    load_rows(&two);
    assert_int_equal(pl_unroll_learn(&one.u, &err), PL_OK);
    assert_int_equal(pl_unroll_learn(&two.u, &err), PL_OK);
    assert_memory_equal(one.u.loss, two.u.loss, K * 15 * sizeof(double));
    assert_memory_equal(one.block.grad, two.block.grad, (size_t)one.block.n * sizeof(float));
    uint64_t before = pl_alloc_count();
    assert_int_equal(pl_unroll_learn(&two.u, &err), PL_OK);
    assert_int_equal(pl_unroll_score(&two.u, &err), PL_OK);
    assert_int_equal(pl_alloc_count(), before);
    destroy(&one);
    destroy(&two);
    pl_pool_destroy(pool);
}

// What a tape told, as it stood then.
typedef struct telling {
    const uint8_t *grad;
    uint8_t        then[1 << 16], told[1 << 16]; // told: how often
    int            early;                        // tellings before the last entry's
    const pl_tape *tape;
} telling;

static void keep_told(void *arg, size_t from, size_t to) {
    telling *t = arg;
    assert_true(from < to && to <= sizeof t->then);
    memcpy(t->then + from, t->grad + from, to - from);
    for (size_t i = from; i < to; i++)
        t->told[i]++;
    t->early += t->tape->at > 0;
}

static int compare_places(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

// Each byte of each gradient once, when it has its last value, and before backward ends.
static void told_when_complete(const pl_backbone_kind *kind, const char *head, bool trimmed, bool recompute) {
    setup               s;
    static telling      t;
    size_t              at[64];
    struct pl_tape_part part[64];
    pl_err              err;
    const pl_backend   *be = pl_backend_cpu();
    make_kind(&s, kind, be, NULL, head, trimmed, PL_F32);
    pl_unroll_options uo = s.u.opt;
    uo.recompute = recompute;
    pl_tensor wt = s.u.wt;
    pl_unroll_destroy(&s.u);
    if (pl_unroll_create(&s.u, s.model, wt, &uo, be, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    t = (telling){.grad = s.block.grad, .tape = &s.u.tape};
    pl_tape_ready ready = {.grad = s.block.grad, .at = at, .part = part, .done = keep_told, .arg = &t};
    assert_true(s.block.params->n < 64);
    for (int i = 0; i < s.block.params->n; i++)
        if (!s.block.frozen[i]) at[ready.n++] = (size_t)s.block.at[i] * sizeof(float);
    at[ready.n] = (size_t)s.block.n * sizeof(float);
    qsort(at, (size_t)ready.n, sizeof *at, compare_places);
    for (int again = 0; again < 2; again++) {
        pl_param_block_zero_grad(&s.block, NULL);
        load_rows(&s);
        ready.ran = false;
        s.u.tape.ready = &ready;
        if (pl_unroll_learn(&s.u, &err) != PL_OK) fail_msg("%s", err.msg);
        for (size_t i = 0; i < at[ready.n]; i++)
            if (t.told[i] != again + 1) fail_msg("%s: byte %zu told %d times", head, i, t.told[i]);
        assert_memory_equal(t.then, s.block.grad, at[ready.n]);
    }
    assert_true(t.early >= 2);
    s.u.tape.ready = NULL;
    destroy(&s);
}

static void gradients_are_told(void **state) {
    (void)state;
    for (int recompute = 0; recompute < 2; recompute++) {
        told_when_complete(&pl_backbone_eagle3, "full", false, recompute);
        told_when_complete(&pl_backbone_eagle3, "full", true, recompute);
        told_when_complete(&pl_backbone_eagle3, "lowrank", false, recompute);
        told_when_complete(&pl_backbone_eagle1, "lowrank", true, recompute);
    }
}

// Acceptance: by hand from the sums.
static void lengths(void **state) {
    (void)state;
    static setup s;
    make(&s, pl_backend_ref(), NULL, "full", false, PL_F32);
    pl_columns a = doc_at(&s, 4, 4); // steps count 3, 2, 1 rows
    pl_pack   *p = &s.u.pack;
    pl_pack_clear(p);
    pl_pack_add(p, &a, 0, 4);
    pl_pack_close(p);
    for (int k = 0; k < K; k++)
        for (int t = 0; t < 4; t++) {
            int i = k * 4 + t;
            s.u.loss[i] = 1;
            s.u.accept[i] = 0.5f;
            s.u.student_argmax[i] = t + 1 + k < 4 ? p->argmax[t + 1 + k] : -1;
        }
    s.u.student_argmax[1] = (p->argmax[2] + 1) % VOCAB; // row 1 is wrong at once
    pl_unroll_sums sums = {0};
    s.u.ran = K;
    pl_unroll_add(&s.u, true, &sums);
    assert_true(sums.count[0] == 3 && sums.count[1] == 2 && sums.count[2] == 1);
    assert_true(sums.agree[0] == 2 && sums.agree[1] == 2);
    assert_true(fabs(pl_unroll_greedy_length(&sums, K) - (1 + 2.0 / 3 + 1.0 / 2 + 1)) < 1e-12);
    assert_true(fabs(pl_unroll_sampled_length(&sums, K) - (1 + 0.5 + 0.25 + 0.125)) < 1e-12);
    assert_true(fabs(sums.weight - (3 + 2 * 0.8 + 0.64)) < 1e-5 && fabs(sums.loss - sums.weight) < 1e-12);
    destroy(&s);
}

// Row of the features that row `row` of load_rows's pack is.
static int last_row(int row) {
    return row < 9 ? row : 12 + row - 9;
}

// A SpecVocab head over made-up weights: exact rows that are not the scorer's.
static void make_specvocab(setup *s, const pl_backend *be, int candidates, bool trimmed) {
    pl_err     err = {0};
    pl_hf_head spec = pl_hf_head_make("specvocab", 3);
    pl_hf_head_set(&spec, "candidates", candidates);
    make_spec(s, &pl_backbone_eagle3, be, NULL, &spec, trimmed, PL_F32);
    for (int i = 0; i < s->model->params.n; i++)
        if (s->model->params.p[i].tensor == &s->model->head.exact) {
            float rows[VOCAB * D];
            for (int k = 0; k < VOCAB * D; k++)
                rows[k] = noise(6, k);
            assert_int_equal(pl_param_block_set(&s->block, i, rows, NULL), PL_OK);
        }
    load_rows(s);
    if (pl_unroll_score(&s->u, &err) != PL_OK) fail_msg("%s", err.msg);
}

// What is held out of a specvocab head is the distribution that it proposes from: here once more, by plain loops, from
// what the head read.
static void rescored_dist(void **state) {
    (void)state;
    static setup s;
    for (int c = 0; c < 8; c++) {
        bool              trimmed = c & 1;
        int               listed = (const int[]){1, 4, 9, 11}[c / 2], seen = 0;
        const pl_backend *be = pl_backend_ref64();
        make_specvocab(&s, be, listed, trimmed);
        const pl_head *h = &s.model->head;
        const pl_pack *p = &s.u.pack;
        const double  *x = pl_f64(&s.u.own.x); // of the last step
        for (int row = 0; row < p->rows; row++) {
            int    i = (K - 1) * (int)p->rows + row, best = -1;
            double score[VOCAB], z[VOCAB], p_full[VOCAB], down[3], sum = 0, total = 0, accept = 0;
            if (p->weight[i] == 0) continue;
            for (int r = 0; r < 3; r++) {
                down[r] = 0;
                for (int k = 0; k < D; k++)
                    down[r] += pl_real_at(&h->down, r * D + k) * x[row * D + k];
            }
            for (int v = 0; v < h->vocab; v++) {
                score[v] = z[v] = 0;
                for (int r = 0; r < 3; r++)
                    score[v] += pl_real_at(&h->out, v * 3 + r) * down[r];
                for (int k = 0; k < D; k++)
                    z[v] += pl_real_at(&h->exact, v * D + k) * x[row * D + k];
            }
            for (int v = 0; v < VOCAB; v++) {
                double t = 0;
                for (int k = 0; k < D; k++)
                    t += (double)s.head[v * D + k] *
                         (double)pl_bf16_to_f32(s.last_hidden[last_row(p->teacher_row[i]) * D + k]);
                total += p_full[v] = exp(TEACHER_CAP * tanh(t / TEACHER_CAP));
            }
            bool in[VOCAB];
            for (int v = 0; v < h->vocab; v++) {
                int above = 0;
                for (int o = 0; o < h->vocab; o++)
                    above += score[o] > score[v] || (score[o] == score[v] && o < v);
                in[v] = above < listed;
                if (in[v]) sum += exp(z[v]);
                if (in[v] && (best < 0 || z[v] > z[best])) best = v;
            }
            for (int v = 0; v < h->vocab; v++)
                if (in[v]) accept += fmin(exp(z[v]) / sum, p_full[h->d2t ? h->d2t[v] : v] / total);
            assert_int_equal(s.u.student_argmax[i], best);
            assert_true(fabs((double)s.u.accept[i] - accept) < 1e-6);
            seen++;
        }
        assert_true(seen > 3);
        // The backend that people train on says the same.
        static setup cpu;
        make_specvocab(&cpu, pl_backend_cpu(), listed, trimmed);
        for (int i = 0; i < K * p->rows; i++) {
            assert_int_equal(cpu.u.student_argmax[i], s.u.student_argmax[i]);
            assert_true(fabs((double)cpu.u.accept[i] - (double)s.u.accept[i]) < 1e-4);
        }
        destroy(&cpu);
        // A few rows at a time, without those that do not count.
        supervised = true;
        learn_rows = 4;
        make_specvocab(&cpu, pl_backend_ref64(), listed, trimmed);
        supervised = false;
        learn_rows = 0;
        for (int i = 0; i < K * p->rows; i++) {
            assert_int_equal(cpu.u.student_argmax[i], s.u.student_argmax[i]);
            assert_true(p->weight[i] == 0 || cpu.u.accept[i] == s.u.accept[i]);
        }
        destroy(&cpu);
        destroy(&s);
    }
}

// A scorer that went astray lists nothing, rather than anything.
static void rescored_nan(void **state) {
    (void)state;
    static setup s;
    pl_err       err = {0};
    make_specvocab(&s, pl_backend_cpu(), 4, false);
    for (int i = 0; i < s.model->params.n; i++)
        if (s.model->params.p[i].tensor == &s.model->head.out) {
            float up[VOCAB * 3];
            for (int k = 0; k < VOCAB * 3; k++)
                up[k] = noise(7, k);
            up[VOCAB * 3 - 1] = NAN; // one id of the vocabulary
            assert_int_equal(pl_param_block_set(&s.block, i, up, NULL), PL_OK);
        }
    assert_int_equal(pl_unroll_score(&s.u, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "specvocab: a candidate's score is NaN; lower train.lr");
    destroy(&s);
}

// The frame is what the slot's rows take, and as much again for each row that runs at a time.
static void memory_grows_with_the_rows_that_run(void **state) {
    (void)state;
    static setup s;
    enum { SIZES = 4, STEP = CAPACITY / SIZES };
    int64_t size[SIZES + 1];
    for (int i = 0; i <= SIZES; i++) { // the last: all at once
        supervised = true;
        learn_rows = i < SIZES ? (i + 1) * STEP : 0;
        make(&s, pl_backend_cpu(), NULL, "full", false, PL_F32);
        supervised = false;
        learn_rows = 0;
        size[i] = (int64_t)s.u.ctx.frame.size;
        destroy(&s);
    }
    const int64_t each = size[1] - size[0], kept = size[0] - each;
    assert_true(each > 0 && kept > 0);
    for (int i = 0; i < SIZES; i++) // to the rounding of arenas
        assert_true(llabs(size[i] - kept - (i + 1) * each) <= size[SIZES] / 50);
    assert_int_equal(size[SIZES - 1], size[SIZES]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_grows_with_the_rows_that_run),
        cmocka_unit_test(what_counts),
        cmocka_unit_test(trimmed_vocabulary),
        cmocka_unit_test(all_rows_of_a_masked_teacher),
        cmocka_unit_test(gradient_medusa),
        cmocka_unit_test(gradient_hydra),
        cmocka_unit_test(gradient_xpress),
        cmocka_unit_test(gradient_lilicorr),
        cmocka_unit_test(medusa_by_hand),
        cmocka_unit_test(gradient_objectives),
        cmocka_unit_test(objectives_by_name),
        cmocka_unit_test(top_k_loss),
        cmocka_unit_test(selects_as_the_head),
        cmocka_unit_test(accepted_as_the_head),
        cmocka_unit_test(promises_what_is_drawn),
        cmocka_unit_test(selects_by),
        cmocka_unit_test(pieces),
        cmocka_unit_test(drawn_depths),
        cmocka_unit_test(running_rows),
        cmocka_unit_test(gradient_lowrank),
        cmocka_unit_test(gradient_full),
        cmocka_unit_test(gradient_trimmed),
        cmocka_unit_test(gradient_own),
        cmocka_unit_test(gradient_eagle1),
        cmocka_unit_test(gradient_eagle1_lowrank),
        cmocka_unit_test(fewer_steps),
        cmocka_unit_test(noise_on_features),
        cmocka_unit_test(by_hand_full),
        cmocka_unit_test(by_hand_lowrank),
        cmocka_unit_test(rows_see_their_own_past),
        cmocka_unit_test(steps_are_a_chain),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(gradients_are_told),
        cmocka_unit_test(lengths),
        cmocka_unit_test(rescored_dist),
        cmocka_unit_test(rescored_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
