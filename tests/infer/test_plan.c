// The planner: its arithmetic on made-up costs, its cycles on a micro target, and the statistics it feeds on.
#include "fixture.h"
#include "infer/bench/cycle.h"
#include "infer/decode/runner.h"
#include "infer/model/target.h"
#include "infer/plan/plan.h"
#include "kernels/base/files.h"
#include "kernels/base/rng.h"
#include "kernels/op/linear.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device.h"

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b));
}

static void add_line(pl_autotuner_cost *c, double at_one, double slope, int rows) {
    for (int i = 1; i <= rows; i++)
        pl_autotuner_cost_add(c, i, at_one + slope * (i - 1));
}

// Costs in arbitrary seconds; head_share scales the head.
static pl_plan_costs made_costs(double head_share, int batch) {
    pl_plan_costs c = {.batch = batch};
    add_line(&c.other, 0.25, 0, 40);
    add_line(&c.target, 10, 0.5, 40);
    add_line(&c.take_in, 1, 0, 40); // nothing that depends on what is emitted: SlimSpec's formula is exact
    add_line(&c.layer, 0.75, 0.125, 40);
    add_line(&c.first, 4 * head_share, 0.25 * head_share, 40);
    add_line(&c.head, 3 * head_share, 0.25 * head_share, 40);
    return c;
}

static void made_acceptance(pl_plan_acceptance *a, double scale) {
    *a = (pl_plan_acceptance){.ranks = 3};
    for (int l = 0; l < PL_SHAPE_LEVELS; l++)
        for (int r = 0; r < 3; r++)
            a->accept[l][r] = scale * (0.8 - 0.02 * l) / (1 + 3 * r);
}

static void test_arithmetic(void **state) {
    (void)state;
    static const int32_t chain[] = {-1, 0, 1, 2, 3}, tree[] = {-1, 0, 0, 1, 1, 2};
    double               rate[] = {0.5, 0.25};
    pl_plan_acceptance   a;
    pl_plan_cycle        c, full;
    pl_plan_acceptance_rates(&a, rate, 2);
    assert_true(near(a.accept[0][0], 0.5) && near(a.accept[1][0], 0.25) && near(a.accept[9][0], 0.25));

    pl_plan_costs costs = made_costs(1, 1);
    add_line(&costs.verify, 0.5, 0.5, 40);
    pl_plan_predict(&costs, &a, chain, 5, &c);
    assert_true(near(c.emitted, 1 + 0.5 + 0.125 + 0.03125 + 0.0078125));
    assert_true(near(c.target, 12) && near(c.layer, 3 * 0.75) && near(c.head, 4 + 3 * 3) && near(c.take_in, 1));
    assert_true(near(c.verify, 0.5 * c.emitted) && near(c.other, 0.25));
    assert_true(near(c.seconds, c.target + c.verify + c.take_in + c.layer + c.head + c.other));
    assert_true(near(c.speed, c.emitted / c.seconds) && c.depth == 4 && c.nodes == 5);
    // Ranks nobody has measured are worth nothing, and cost what they cost: 6 nodes, two expanded at depth 1.
    pl_plan_predict(&costs, &a, tree, 6, &c);
    assert_true(near(c.emitted, 1 + 0.5 + 0.125) && near(c.target, 12.5) && near(c.layer, 0.875));
    assert_true(near(c.head, 4 + 3.25));
    made_acceptance(&a, 1);
    pl_plan_predict(&costs, &a, tree, 6, &c);
    assert_true(near(c.emitted, 1 + 0.8 + 0.2 + 0.8 * (0.78 + 0.195) + 0.2 * 0.78));
    // Three sessions have three times the rows.
    pl_plan_costs three = made_costs(1, 3);
    pl_plan_predict(&three, &a, tree, 6, &full);
    assert_true(near(full.target, 10 + 0.5 * 17) && near(full.layer, 0.75 + 0.125 * 5) && near(full.head, 4.5 + 4.25));
    assert_true(near(full.speed, 3 * c.emitted / full.seconds));
    // Plain decoding has no drafter.
    int32_t root = -1;
    pl_plan_predict(&costs, &a, &root, 1, &c);
    assert_true(near(c.seconds, 10 + 0.5 + 0.25) && c.emitted == 1 && c.head == 0 && c.take_in == 0);
    assert_true(near(pl_plan_seconds(&costs.target, 2.5), 10.75));

    assert_true(near(pl_plan_omega(0.8, 3), (1 - pow(0.8, 4)) / 0.2) && pl_plan_omega(1, 7) == 8);
    for (int gamma = 1; gamma <= 8; gamma++) {
        pl_plan_acceptance_rates(&a, (double[]){0.7}, 1);
        assert_true(near(pl_plan_alpha(&a, gamma), 0.7));
    }
    pl_plan_acceptance_rates(&a, rate, 2);
    assert_true(near(pl_plan_alpha(&a, 2), (0.5 + 0.125) / (1 + 0.5)));
}

// rho (1 + kappa) / (1 + lambda kappa) is the ratio of speeds where the rest of the cycle does not know the head.
static void test_slimspec(void **state) {
    (void)state;
    static const int32_t chain[] = {-1, 0, 1, 2, 3}, tree[] = {-1, 0, 0, 1, 1, 2};
    for (int i = 0; i < 12; i++) {
        double             share = 0.05 + 0.1 * i, kept = 0.8 + 0.02 * i;
        pl_plan_costs      all = made_costs(1, 2), some = made_costs(share, 2);
        pl_plan_acceptance a, b;
        pl_plan_cycle      x, y;
        made_acceptance(&a, 1);
        made_acceptance(&b, kept);
        pl_plan_predict(&all, &a, i % 2 ? chain : tree, i % 2 ? 5 : 6, &x);
        pl_plan_predict(&some, &b, i % 2 ? chain : tree, i % 2 ? 5 : 6, &y);
        pl_plan_slimspec s = pl_plan_compare(&x, &y);
        assert_true(fabs(s.lambda - share) < 1e-12 && fabs(s.speedup - y.speed / x.speed) < 1e-12);
        assert_true((s.rho > s.threshold) == (y.speed > x.speed));
    }
    // The paper's own point: d/8 keeps .99 at a head of .21 of the time, kappa of about a quarter: 1.18 or 1.19 times.
    assert_true(fabs(pl_plan_slimspec_speedup(0.99, 0.21, 0.25) - 1.176) < 1e-3);
}

// Against every chain and a thousand random trees.
static void test_best(void **state) {
    (void)state;
    for (int batch = 1; batch <= 4; batch += 3) {
        pl_plan_costs      c = made_costs(0.3, batch);
        pl_plan_acceptance a;
        pl_plan_cycle      x, y;
        pl_shape           chain, tree;
        int32_t            parent[PL_PLAN_NODES] = {-1};
        add_line(&c.verify, 0.01, 0.01, 40);
        made_acceptance(&a, 1);
        pl_plan_best(&c, &a, PL_PLAN_NODES, true, &chain);
        pl_plan_best(&c, &a, PL_PLAN_NODES, false, &tree);
        pl_plan_predict(&c, &a, chain.parent, chain.n, &x);
        pl_plan_predict(&c, &a, tree.parent, tree.n, &y);
        assert_true(y.speed >= x.speed && near(tree.emitted, y.emitted) && near(tree.seconds, y.seconds));
        for (int n = 2; n <= PL_PLAN_NODES - 1; n++) {
            pl_plan_cycle z;
            for (int i = 1; i < n; i++)
                parent[i] = i - 1;
            pl_plan_predict(&c, &a, parent, n, &z);
            assert_true(z.speed <= x.speed * (1 + 1e-12));
        }
        pl_rng r = pl_rng_make(3, PL_STREAM_TEST, 0);
        for (int k = 0; k < 1000; k++) {
            int n = 2 + (int)pl_rng_below(r, (uint64_t)(100 * k), PL_PLAN_NODES - 1), depth[PL_PLAN_NODES] = {0};
            pl_plan_cycle z;
            for (int i = 1; i < n; i++) {
                parent[i] = (int32_t)pl_rng_below(r, (uint64_t)(100 * k + i), (uint64_t)i);
                depth[i] = depth[parent[i]] + 1;
                if (depth[i] > 14) parent[i] = 0, depth[i] = 1;
            }
            pl_plan_predict(&c, &a, parent, n, &z);
            assert_true(z.speed <= y.speed * (1 + 1e-12));
        }
    }
    // Counts: what was hardly offered is not known.
    pl_autotuner_counts n = {0};
    pl_plan_acceptance  a;
    n.seen[0][0] = n.seen[0][1] = 1000;
    n.hit[0][0] = 600;
    n.hit[0][1] = 100;
    n.seen[0][2] = 15;
    n.seen[1][0] = 600;
    n.hit[1][0] = 300;
    pl_plan_acceptance_counts(&a, &n);
    assert_true(a.ranks == 2 && fabs(a.accept[0][0] - 0.6) < 0.001 && fabs(a.accept[0][1] - 0.1) < 0.001);
    assert_true(fabs(a.accept[1][0] - 0.5) < 0.002 && a.accept[7][0] == a.accept[2][0]);
}

// A head whose router reads the step's inputs, or (coral) the layer's output.
static pl_backbone *routed_backbone(const pl_llama *target, const char *router, const pl_backend *be, pl_pool *pool) {
    pl_backbone        *b;
    pl_err              err;
    pl_backbone_options o = {.head = pl_hf_head_of("dynaspec:clusters=12,width=20,k0=4,k1=4")};
    pl_hf_head_set_text(&o.head, "router", router);
    if (pl_backbone_create(&b, &pl_backbone_eagle3, target, &o, be, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(b->head.kind->table->draw(&b->head, false, &err), PL_OK);
    assert_int_equal(pl_params_draw(&b->params, PL_BF16, 7, pool, &err), PL_OK);
    return b;
}

// A block costs one forward, and its head by depth; what lies behind the block is neither drafted nor verified.
static void test_blocks(void **state) {
    (void)state;
    static const int32_t chain[] = {-1, 0, 1, 2, 3}, tree[] = {-1, 0, 0, 1, 1, 2};
    pl_plan_acceptance   a;
    pl_plan_cycle        c, less;
    pl_plan_costs        costs = made_costs(1, 1), three = made_costs(1, 3);
    costs.drafts = three.drafts = 3;
    pl_plan_acceptance_rates(&a, (double[]){0.5, 0.25}, 2);
    pl_plan_predict(&costs, &a, chain, 5, &c);
    pl_plan_predict(&costs, &a, chain, 4, &less);
    assert_true(c.nodes == 4 && c.depth == 3 && near(c.emitted, 1 + 0.5 + 0.125 + 0.03125));
    assert_true(near(c.target, 11.5) && c.layer == 0 && near(c.take_in, 1) && near(c.head, 4 + 2 * 0.25));
    assert_true(near(c.seconds, less.seconds) && near(c.speed, less.speed));
    made_acceptance(&a, 1);
    pl_plan_predict(&three, &a, tree, 6, &c);
    assert_true(c.nodes == 6 && near(c.target, 10 + 0.5 * 17) && near(c.head, 4 + 5 * 0.25)); // two levels of three
    assert_true(near(pl_plan_step(&three, 3), 3 * 0.25));
    for (int chains = 0; chains < 2; chains++) {
        pl_shape best;
        pl_plan_best(&costs, &a, PL_PLAN_NODES, chains, &best);
        pl_plan_predict(&costs, &a, best.parent, best.n, &c);
        assert_true(c.nodes == best.n && c.depth <= 3 && near(best.seconds, c.seconds));
        for (int n = 2; n <= 5; n++) {
            pl_plan_predict(&costs, &a, chain, n, &less);
            assert_true(less.speed <= c.speed * (1 + 1e-12));
        }
    }
}

typedef struct micro {
    char      dir[64], head[96];
    pl_target target;
    pl_pool  *pool;
} micro;

static void open_micro(micro *m) {
    test_mkdir(m->dir);
    m->target = (pl_target){.dtype = PL_F32};
    test_target(&m->target.model, m->dir, 3, 5, PL_F32);
    snprintf(m->head, sizeof m->head, "%s/head", m->dir);
    assert_int_equal(pl_dir_make(m->head, NULL), PL_OK);
    test_drafter_write(m->head, &m->target.model, "lowrank", 8, 9);
    assert_int_equal(pl_pool_create(&m->pool, 2, NULL), PL_OK);
}

static void close_micro(micro *m) {
    pl_llama_fini(&m->target.model);
    pl_pool_destroy(m->pool);
    test_rmdir(m->dir);
}

static void test_measuring(void **state) {
    (void)state;
    micro m;
    open_micro(&m);
    for (int batch = 1; batch <= 3; batch += 2) {
        pl_backbone        *b, *full;
        pl_err              err;
        pl_plan_plain       plain;
        pl_plan_subject     s[4] = {0};
        pl_backbone_options bo = {0};
        pl_shape            wide = {.n = 30};
        for (int i = 1; i < wide.n; i++)
            wide.parent[i] = i < 4 ? 0 : i - 3;
        if (pl_backbone_open(&b, m.head, &m.target.model, PL_F32, &err) != PL_OK) fail_msg("%s", err.msg);
        if (pl_backbone_create(&full, &pl_backbone_eagle3, &m.target.model, &bo, pl_backend_cpu(), &err) != PL_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(pl_params_draw(&full->params, PL_BF16, 7, m.pool, &err), PL_OK);
        s[0] = (pl_plan_subject){.backbone = b, .k = 8};
        s[1] = (pl_plan_subject){.backbone = full, .k = 1};
        s[2] = (pl_plan_subject){.backbone = routed_backbone(&m.target.model, "mlp", pl_backend_cpu(), m.pool), .k = 8};
        s[3] =
            (pl_plan_subject){.backbone = routed_backbone(&m.target.model, "coral", pl_backend_cpu(), m.pool), .k = 1};
        pl_plan_measuring o = {.target = &m.target.model,
                               .batch = batch,
                               .context = 16,
                               .temperature = batch == 1 ? 0 : 1,
                               .seconds = 0,
                               .tree = &wide};
        if (pl_plan_measure(s, 4, &plain, pl_backend_cpu(), m.pool, &o, &err) != PL_OK) fail_msg("%s", err.msg);
        assert_true(plain.rounds >= 3 && pl_plan_seconds(&plain.costs.target, batch) > 0);
        assert_true(pl_plan_seconds(&plain.costs.verify, batch) > 0 && plain.costs.batch == batch);
        for (int i = 0; i < 4; i++) {
            assert_true((s[i].step > 0) == (s[i].k >= 3)); // the given tree has three children of a node
            const pl_autotuner_cost *part[] = {&s[i].costs.target, &s[i].costs.take_in, &s[i].costs.layer,
                                               &s[i].costs.first, &s[i].costs.head};
            for (int k = 0; k < 5; k++) {
                double before = 0;
                for (int rows = batch; rows <= 16 * batch; rows++) {
                    double at = pl_plan_seconds(part[k], rows);
                    assert_true(isfinite(at) && at > 0 && at >= before);
                    before = at;
                }
            }
            double head = pl_plan_seconds(&s[i].costs.head, batch);
            assert_true(s[i].costs.router < head && (i != 2 || s[i].costs.router > 1e-7)); // 3: it waits for the layer
        }
        o.context = m.target.model.config.max_position_embeddings;
        assert_int_equal(pl_plan_measure(s, 2, &plain, pl_backend_cpu(), m.pool, &o, &err), PL_E_INPUT);
        assert_non_null(strstr(err.msg, "leaves no room"));
        for (int i = 0; i < 4; i++)
            pl_backbone_destroy((pl_backbone *)s[i].backbone);
    }
    close_micro(&m);
}

// A step at the context, whatever came before: its rows, the tokens that its verdict is set to, and its parts.
static void check_cycles(const pl_backend *be, const pl_backbone *b, const pl_llama *target, pl_pool *pool) {
    static const int32_t tree[] = {-1, 0, 0, 1, 1, 3};
    pl_tree_policy       policy;
    pl_cycles           *c, *plain;
    pl_cycle_sample      s;
    pl_err               err;
    pl_cycle_options     o = {.target = target, .batch = 2, .context = 20};
    pl_cycle_policy(&policy, 6, 2, 2, 3);
    if (pl_cycles_open(&plain, be, pool, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int hot = 0; hot < 2; hot++)
        for (int drafts = 0; drafts < 2; drafts++) {
            o = (pl_cycle_options){.target = target,
                                   .policy = &policy,
                                   .backbone = drafts ? b : NULL,
                                   .batch = 2,
                                   .context = 20,
                                   .temperature = hot,
                                   .caches = plain};
            if (pl_cycles_open(&c, be, pool, &o, &err) != PL_OK) fail_msg("%s", err.msg);
            pl_tree_shape_set(&c->drafter->policy, 6, tree);
            c->drafter->by_level = c->level;
            for (int i = 0; i < 6; i++) {
                c->accepts = i % 5; // the tree has three levels
                assert_int_equal(pl_cycles_step(c, &s, &err), PL_OK);
                assert_int_equal(s.rows, i ? 12 : 4); // the chain of one comes first
                assert_int_equal(s.emitted, 2 + 2 * (i == 0 ? 0 : c->accepts < 3 ? c->accepts : 3));
                const pl_draft_parts *p = &s.parts.draft;
                double                parts = p->take_in + p->layer + p->head;
                assert_true(s.parts.target > 0 && s.draft > 0 && parts <= s.draft + 1e-9);
                assert_true((parts > 0) == drafts);
                assert_int_equal(pl_session_length(pl_engine_session(c->engine, 1)), 20 + 1 + s.emitted / 2);
                for (int l = 1; l < 3 && drafts; l++)
                    assert_true(c->level[l].layer > c->level[l - 1].layer && c->level[l].head > c->level[l - 1].head);
                if (drafts) assert_true(c->level[2].head <= p->head && c->level[0].layer == 0);
                if (i % 2 == 0) assert_int_equal(pl_cycles_step(plain, &s, &err), PL_OK);
            }
            pl_cycles_close(c);
        }
    pl_cycles_close(plain);
}

static void test_cycles(void **state) {
    (void)state;
    for (int device = 0; device < 2; device++) {
        char              dir[64];
        pl_llama          target;
        pl_backbone      *b;
        pl_pool          *pool;
        pl_err            err;
        const pl_backend *be = device ? test_device() : pl_backend_cpu();
        test_target(&target, test_mkdir(dir), 1, 5, PL_BF16);
        pl_llama_fini(&target);
        assert_int_equal(pl_pool_create(&pool, 1, NULL), PL_OK);
        if (pl_llama_open(&target, dir, PL_BF16, be, &err) != PL_OK) fail_msg("%s", err.msg);
        b = routed_backbone(&target, "mlp", be, pool);
        check_cycles(be, b, &target, pool);
        pl_backbone_destroy(b);
        pl_llama_fini(&target);
        pl_pool_destroy(pool);
        test_rmdir(dir);
    }
}

// The deepest tree that may be asked for beside those that the planner measures anyway.
static void test_measuring_deepest(void **state) {
    (void)state;
    micro           m;
    pl_backbone    *b;
    pl_err          err;
    pl_plan_plain   plain;
    pl_plan_subject s = {.k = 2};
    pl_shape        chain = {.n = PL_SHAPE_LEVELS + 1};
    for (int i = 1; i < chain.n; i++)
        chain.parent[i] = i - 1;
    open_micro(&m);
    if (pl_backbone_open(&b, m.head, &m.target.model, PL_F32, &err) != PL_OK) fail_msg("%s", err.msg);
    s.backbone = b;
    pl_plan_measuring o = {.target = &m.target.model, .batch = 2, .context = 16, .tree = &chain};
    if (pl_plan_measure(&s, 1, &plain, pl_backend_cpu(), m.pool, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    // Seconds of as many rows were measured, not continued from fewer ones.
    bool measured = false;
    for (int i = 0; i < PL_AUTOTUNER_BUCKETS; i++)
        measured |= s.costs.target.visits[i] > 0 && s.costs.target.rows[i] == 2 * (PL_SHAPE_LEVELS + 1);
    assert_true(measured);
    pl_backbone_destroy(b);
    close_micro(&m);
}

// Block drafters: a forward a cycle, and a head over all slots or slot by slot; on the CPU and on a device.
static void block_costs(const pl_backend *be, int batch, int from, int to) {
    const pl_backbone_options kinds[] = {
        {.layers = 1, .block = 6, .mask_token = 3},
        {.layers = 1, .block = 4, .anchor_first = true, .head = pl_hf_head_of("markov:rank=6,form=rnn,confidence")},
        {.layers = 1, .block = 5, .conv_taps = 2, .conv_group = 8, .selector = {.rank = 4, .candidates = 6}}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    static const int drafts[KINDS] = {5, 4, 4};
    char             dir[64];
    pl_llama         target;
    pl_pool         *pool;
    pl_err           err;
    pl_plan_plain    plain;
    pl_plan_subject  s[KINDS + 1] = {0};
    test_target(&target, test_mkdir(dir), 1, 5, PL_BF16);
    pl_llama_fini(&target);
    assert_int_equal(pl_pool_create(&pool, 1, NULL), PL_OK);
    if (pl_llama_open(&target, dir, PL_BF16, be, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = from; i <= to; i++) {
        pl_backbone              *b;
        const pl_backbone_options deep = {.layers = 2};
        if (pl_backbone_create(&b, i < KINDS ? &pl_backbone_dflash : &pl_backbone_eagle3, &target,
                               i < KINDS ? &kinds[i] : &deep, be, &err) != PL_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(pl_params_draw(&b->params, PL_BF16, 7, pool, &err), PL_OK);
        s[i] = (pl_plan_subject){.backbone = b, .k = 2};
    }
    pl_plan_measuring o = {.target = &target, .batch = batch, .context = 20};
    if (pl_plan_measure(s + from, to - from + 1, &plain, be, pool, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = from; i <= to; i++) {
        const pl_plan_costs *c = &s[i].costs;
        assert_int_equal(c->drafts, i < KINDS ? drafts[i] : 0);
        assert_true(pl_plan_seconds(&c->target, batch) > 0 && pl_plan_seconds(&c->take_in, batch) > 0);
        assert_true(pl_plan_seconds(&c->first, batch) > 0);
        assert_true((pl_plan_seconds(&c->layer, batch) == 0) == (i < KINDS));
        assert_true((pl_plan_seconds(&c->head, batch) == 0) == (i < KINDS));
        pl_backbone_destroy((pl_backbone *)s[i].backbone);
    }
    pl_llama_fini(&target);
    pl_pool_destroy(pool);
    test_rmdir(dir);
}

static void test_measuring_blocks(void **state) {
    (void)state;
    block_costs(pl_backend_cpu(), 1, 0, 3); // the last one is none
    block_costs(pl_backend_cpu(), 3, 0, 3);
    block_costs(test_device(), 1, 1, 1);
}

// The same cycles with everything in a device's memory (the emulated one's, or PACELINE_TEST_DEVICE's).
static void test_measuring_device(void **state) {
    (void)state;
    char                dir[64];
    pl_llama            target;
    pl_backbone        *b;
    pl_pool            *pool;
    pl_err              err;
    pl_plan_plain       plain;
    pl_plan_subject     s;
    pl_backbone_options bo = {.head = pl_hf_head_make("lowrank", 8)};
    const pl_backend   *be = test_device();
    test_target(&target, test_mkdir(dir), 1, 5, PL_BF16);
    pl_llama_fini(&target);
    assert_int_equal(pl_pool_create(&pool, 1, NULL), PL_OK);
    if (pl_llama_open(&target, dir, PL_BF16, be, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_backbone_create(&b, &pl_backbone_eagle3, &target, &bo, be, &err), PL_OK);
    assert_int_equal(pl_params_draw(&b->params, PL_BF16, 7, pool, &err), PL_OK);
    for (int routed = 0; routed < 2; routed++) { // the argmax, then draws with a routed head
        pl_plan_measuring o = {.target = &target, .batch = 1, .context = 16, .temperature = routed};
        pl_backbone      *other = routed ? routed_backbone(&target, "mlp", be, pool) : NULL;
        s = (pl_plan_subject){.backbone = routed ? other : b, .k = 2};
        if (pl_plan_measure(&s, 1, &plain, be, pool, &o, &err) != PL_OK) fail_msg("%s", err.msg);
        const pl_autotuner_cost *part[] = {&s.costs.target, &s.costs.take_in, &s.costs.layer, &s.costs.first,
                                           &s.costs.head};
        for (int k = 0; k < 5; k++)
            assert_true(pl_plan_seconds(part[k], 1) > 0 && isfinite(pl_plan_seconds(part[k], 16)));
        assert_true(plain.rounds >= 5 && pl_plan_seconds(&plain.costs.target, 1) > 0);
        assert_true(s.costs.router > 0 || !routed);
        if (routed) pl_backbone_destroy(other);
    }
    pl_backbone_destroy(b);
    pl_llama_fini(&target);
    pl_pool_destroy(pool);
    test_rmdir(dir);
}

// Weights by the gigabyte: what a device makes is what the CPU makes, the rows of the last panel that are none are
// zero, and the values have the variance of a matrix of that width.
static void test_tiled_weights(void **state) {
    (void)state;
    enum { ROWS = 3001, COLS = 260 }; // more than a tile, no whole panels
    const pl_backend *be[2] = {pl_backend_cpu(), test_device()};
    uint16_t         *got[2];
    size_t            bytes = pl_panels_bytes(ROWS, COLS, PL_BF16);
    for (int i = 0; i < 2; i++) {
        pl_params ps;
        pl_tensor w, norm;
        pl_ctx    ctx;
        pl_err    err = {0};
        assert_int_equal(pl_params_init(&ps, 2, &err), PL_OK);
        ps.memory = be[i]->memory;
        pl_params_add(&ps,
                      &(pl_param_args){.tensor = &w, .kind = PL_PARAM_MATRIX, .part = {{"w", ROWS}}, .cols = COLS});
        pl_params_add(&ps, &(pl_param_args){.tensor = &norm, .kind = PL_PARAM_NORM, .part = {{"norm", COLS}}});
        assert_int_equal(pl_ctx_init(&ctx, be[i], NULL), PL_OK);
        if (pl_params_tile(&ps, PL_BF16, 3, &ctx, &err) != PL_OK) fail_msg("%s", err.msg);
        assert_int_equal(ps.p[0].owned_bytes, bytes);
        got[i] = malloc(bytes);
        assert_non_null(got[i]);
        assert_int_equal(pl_memory_read(ps.memory, got[i], w.data, bytes, &err), PL_OK);
        pl_ctx_fini(&ctx);
        pl_params_fini(&ps);
    }
    assert_memory_equal(got[0], got[1], bytes);
    double sum = 0, squares = 0;
    bool   differ = false;
    for (int64_t r = 0; r < (ROWS + PL_PANEL - 1) / PL_PANEL * PL_PANEL; r++) {
        float x[COLS], y[COLS];
        pl_panels_row(x, got[0], PL_BF16, r, COLS);
        pl_panels_row(y, got[0], PL_BF16, r > 63 ? r - 64 : r + 64, COLS);
        for (int k = 0; k < COLS; k++) {
            if (r >= ROWS) assert_true(x[k] == 0);
            sum += x[k];
            squares += x[k] * x[k];
        }
        differ |= memcmp(x, y, sizeof x) != 0;
    }
    double n = (double)ROWS * COLS;
    assert_true(differ && fabs(sum / n) < 6 / sqrt(n * COLS) && fabs(squares / n * COLS - 1) < 6 / sqrt(n));
    free(got[0]);
    free(got[1]);
}

// Values drawn for benches do not depend on the number of threads, and are what they are said to be.
static void test_drawn_weights(void **state) {
    (void)state;
    micro        m;
    pl_backbone *b[2];
    double       sum = 0, squares = 0;
    open_micro(&m);
    for (int i = 0; i < 2; i++) {
        pl_backbone_options bo = {.head = pl_hf_head_make("lowrank", 7)};
        assert_int_equal(pl_backbone_create(&b[i], &pl_backbone_eagle3, &m.target.model, &bo, pl_backend_cpu(), NULL),
                         PL_OK);
        assert_int_equal(pl_params_draw(&b[i]->params, PL_F32, 11, i ? m.pool : NULL, NULL), PL_OK);
    }
    for (int i = 0; i < b[0]->params.n; i++) {
        assert_int_equal(b[0]->params.p[i].owned_bytes, b[1]->params.p[i].owned_bytes);
        assert_memory_equal(b[0]->params.p[i].owned, b[1]->params.p[i].owned, b[0]->params.p[i].owned_bytes);
    }
    const pl_tensor *w = &b[0]->head.down;
    const float     *x = w->data;
    int64_t          padded = (w->dim[0] + PL_PANEL - 1) / PL_PANEL * PL_PANEL;
    for (int64_t i = 0; i < padded * w->dim[1]; i++) {
        if (i % PL_PANEL >= w->dim[0]) assert_true(x[i] == 0); // rows that are none
        sum += x[i];
        squares += x[i] * x[i];
    }
    double n = (double)(w->dim[0] * w->dim[1]), k = (double)w->dim[1];
    assert_true(fabs(sum / n) < 4 / sqrt(n * k) && fabs(squares / n * k - 1) < 4 / sqrt(n));
    pl_backbone_destroy(b[0]);
    pl_backbone_destroy(b[1]);
    close_micro(&m);
}

// seconds_by_part adds up to `seconds`; ranks count the accepted path.
static void test_statistics(void **state) {
    (void)state;
    static const char *const trees[] = {"chain:3", "static:3x2x1", "auto", "eagle2:12,3,3"};
    micro                    m;
    open_micro(&m);
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        pl_runner         r;
        pl_err            err;
        int32_t           prompt[] = {3, 1, 4, 1, 5};
        pl_runner_options ro = {.drafter = m.head, .tree = trees[i], .max_len = 100};
        pl_sampling       s = {.temperature = 0, .top_p = 1};
        if (pl_runner_open(&r, pl_backend_cpu(), m.pool, &m.target, &ro, &err) != PL_OK) fail_msg("%s", err.msg);
        assert_int_equal(pl_runner_run(&r, prompt, 5, &s, 64, NULL, NULL, &err), PL_OK);
        const pl_session_stats *t = pl_session_statistics(r.session);
        const pl_draft_parts   *d = &t->parts.draft;
        double                  sum = t->parts.target + t->parts.verify + d->take_in + d->layer + d->head + d->draw;
        assert_true(t->parts.target > 0 && t->parts.verify > 0 && d->take_in > 0 && d->head > 0 && d->draw == 0);
        assert_true(sum <= t->seconds);
        int64_t accepted = 0;
        for (int l = 0; l < PL_SHAPE_LEVELS; l++) {
            int64_t at = 0;
            for (int k = 0; k < PL_SHAPE_RANKS; k++) {
                at += t->rank_accepted[l][k];
                assert_true(t->rank_accepted[l][k] <= t->rank_offered[l][k]);
                assert_true(k == 0 || t->rank_offered[l][k] <= t->rank_offered[l][k - 1]);
            }
            accepted += at;
            assert_true(t->rank_offered[l][0] <= t->steps && at <= t->rank_offered[l][0]);
        }
        assert_true(t->accepted <= accepted && accepted <= t->accepted + 3); // the last block may be cut off
        pl_runner_close(&r);
    }
    close_micro(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cycles),        cmocka_unit_test(test_arithmetic),
                                       cmocka_unit_test(test_blocks),        cmocka_unit_test(test_measuring_blocks),
                                       cmocka_unit_test(test_slimspec),      cmocka_unit_test(test_best),
                                       cmocka_unit_test(test_measuring),     cmocka_unit_test(test_drawn_weights),
                                       cmocka_unit_test(test_statistics),    cmocka_unit_test(test_measuring_device),
                                       cmocka_unit_test(test_tiled_weights), cmocka_unit_test(test_measuring_deepest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
