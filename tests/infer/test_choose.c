// The choice of drafters against simulated machines whose costs are known.
#include "infer/decode/choose.h"

#include "kernels/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- a machine and two drafters -------------------------------------------------------------------------------------

enum { SESSIONS = 16, OF_FREE = 9, LENGTH = 6 }; // FREE's token, and how many of them it drafts

typedef struct machine {
    const char *name;
    double      accept[3]; // of MODEL's candidates by place at depth 0; deeper: times fade each level
    double      fade;
    double      start, row, bend; // verify: start + row for each row, from `bend` rows on
    double      level, node;      // draft: one level, each node
    double      first;            // taking in and level 0, of all sessions; a fifth of it where nothing is drafted
    int         sessions;
    double      free, look; // the share of FREE's tokens that are right; seconds of its draft
} machine;

// Sessions on a machine, decoded with what is chosen for them.
typedef struct world {
    machine    m;
    pl_drafter free, model, hybrid;
    pl_choose  c;
    pl_tree    t[SESSIONS];
    pl_rng     dice;
    uint64_t   at;
    double     now, tokens;
    long       cycles, of[PL_ARMS], taken; // cycles of each arm; sessions' cycles whose rows MODEL took in
    int        life;                       // cycles of a session
    bool       attached[SESSIONS];         // before the cycle
    int        plain;                      // the first sessions, which decode plainly
    long       beside;                     // cycles in which some sessions are attached and others dropped
} world;

static world w;

double __wrap_pl_now(void);
double __wrap_pl_now(void) {
    return w.now;
}

static double uniform(void) {
    return (double)pl_rng_below(w.dice, w.at++, 1000000) / 1e6;
}

static double verify_cost(double rows) {
    return w.m.start + (rows > w.m.bend ? w.m.row * (rows - w.m.bend) : 0);
}

static double accept_of(int depth, int place) {
    return place < 3 ? w.m.accept[place] * pow(w.m.fade, depth) : 0.002;
}

// Grows a tree of the policy's shape, whose tokens are places.
static void grow(const pl_tree_policy *p, pl_tree *t, double *now) {
    int     frontier[PL_TREE_MAX] = {0}, next[PL_TREE_MAX], n = 1;
    int32_t id[PL_TREE_GROWN];
    float   logp[PL_TREE_GROWN] = {0};
    for (int l = 0; n > 0 && l < p->depth; l++) {
        for (int i = 0; i < n * p->k; i++)
            id[i] = i % p->k;
        int rows = n;
        n = p->kind->grow(p, t, l, frontier, n, id, logp, next);
        if (l > 0) *now += w.m.level + w.m.node * rows * w.m.sessions;
        t->notes.at[l] = *now;
        memcpy(frontier, next, sizeof next);
    }
}

static void draft_model(pl_drafter *d, pl_ctx *ctx, pl_draft_batch *b) {
    double end = w.now, began;
    bool   any = false;
    (void)ctx;
    for (int i = 0; i < b->n; i++)
        any |= b->item[i].tree != NULL;
    w.now = end = began = w.now + (any ? w.m.first : w.m.first / 5);
    for (int i = 0; i < b->n; i++) { // the levels of all sessions run together
        double now = began;
        if (b->item[i].tree) grow(&d->policy, b->item[i].tree, &now);
        if (now > end) end = now;
    }
    w.now = end;
    w.taken += b->n;
}

static void draft_free(pl_drafter *d, pl_ctx *ctx, pl_draft_batch *b) {
    (void)d, (void)ctx;
    w.now += w.m.look;
    for (int i = 0; i < b->n; i++)
        for (int l = 0; b->item[i].tree && l < LENGTH; l++)
            pl_tree_add(b->item[i].tree, l, OF_FREE, 0);
}

static const pl_drafter_kind model_kind = {.name = "model", .propose = draft_model},
                             free_kind = {.name = "free", .propose = draft_free};

// tree: of MODEL, NULL: there is none.
static void open_world(const machine *m, const char *tree, bool free) {
    pl_err err = {0};
    pl_choose_fini(&w.c);
    memset(&w, 0, sizeof w);
    w.m = *m;
    w.dice = pl_rng_make(9, PL_STREAM_TEST, (uint64_t)m->sessions);
    w.life = 100;
    w.model.kind = &model_kind;
    w.free.kind = &free_kind;
    assert_int_equal(pl_tree_policy_parse(&w.model.policy, tree ? tree : "chain:auto", &err), PL_OK);
    assert_int_equal(pl_tree_policy_parse(&w.free.policy, "chain:6", &err), PL_OK);
    w.hybrid = (pl_drafter){.policy = w.model.policy, .free = &w.free, .model = tree ? &w.model : NULL};
    assert_int_equal(pl_choose_init(&w.c, free ? &w.hybrid : &w.model, m->sessions, &err), PL_OK);
    for (int s = 0; s < m->sessions; s++) {
        pl_tree_root(&w.t[s], -7);
        pl_choose_start(&w.c, s, false);
    }
}

static void judge(const pl_tree *t, pl_verdict *v) {
    *v = (pl_verdict){0};
    for (int node = 0, depth = 0;; depth++) {
        double u = uniform() - w.m.free;
        int    r = u < 0 ? OF_FREE : 0;
        for (; r < 8 && u >= accept_of(depth, r); r++)
            u -= accept_of(depth, r);
        v->bonus = r; // 8: none of the candidates
        node = pl_tree_child(t, node, r);
        if (node < 0) return;
        v->path[++v->n] = node;
    }
}

// A dropped session stays dropped to its end, and no arm with MODEL is played while fewer than half are attached.
static void check_attached(void) {
    int n = 0;
    for (int s = 0; s < w.m.sessions; s++) {
        bool is = pl_choose_attached(&w.c, s), began = (w.cycles + s * w.life / w.m.sessions) % w.life == 0;
        assert_true(!is || w.attached[s] || began || w.cycles == 0);
        w.attached[s] = is;
        n += is;
    }
    w.beside += n > 0 && n < w.m.sessions - w.plain;
    assert_true(w.c.arm < PL_ARM_MODEL || w.plain == w.m.sessions || 2 * n >= w.m.sessions - w.plain);
}

// One step of an engine; verifying: its seconds, 0: the machine's.
static void cycle(double verifying) {
    pl_ctx        ctx = {.be = pl_backend_cpu()};
    pl_draft_pace p = {.sessions = w.m.sessions, .plain = w.plain, .rows = w.plain, .emitted = w.plain};
    pl_draft_item item[SESSIONS];
    for (int s = w.plain; s < w.m.sessions; s++) {
        pl_verdict v;
        judge(&w.t[s], &v);
        pl_choose_verdict(&w.c, s, &w.t[s], &v);
        p.rows += w.t[s].n;
        p.emitted += v.n + 1;
        pl_tree_root(&w.t[s], -7);
        item[s - w.plain] = (pl_draft_item){.slot = s, .tree = &w.t[s], .depth = 100};
        if ((w.cycles + s * w.life / w.m.sessions) % w.life) continue;
        pl_choose_end(&w.c, s); // another one begins
        pl_choose_start(&w.c, s, false);
    }
    p.verifying = verifying > 0 ? verifying : verify_cost(p.rows) * (0.95 + 0.1 * uniform());
    w.now += p.verifying;
    double began = w.now;
    w.of[w.c.arm]++;
    check_attached();
    pl_choose_draft(&w.c, &ctx, &(pl_draft_batch){.item = item, .n = w.m.sessions - w.plain}, w.plain);
    p.drafting = w.now - began;
    w.tokens += p.emitted;
    w.cycles++;
    pl_choose_step(&w.c, &p);
}

static double run(int cycles) {
    double tokens = w.tokens, now = w.now;
    for (int i = 0; i < cycles; i++)
        cycle(0);
    return (w.tokens - tokens) / (w.now - now);
}

// ---- the arms -------------------------------------------------------------------------------------------------------

static const char *const names[PL_ARMS] = {"none", "free", "model", "both"};

// Tokens per second with one arm alone, once it has learnt.
static double rate_of(const machine *m, pl_arm a) {
    open_world(m, a >= PL_ARM_MODEL ? "chain:auto" : NULL, true);
    for (int i = 0; i < 3000; i++) {
        w.c.arm = a;
        w.c.cycles = 0; // the block never ends
        cycle(0);
        if (i == 500) w.tokens = w.now = 0;
    }
    return w.tokens / w.now;
}

// The best arm is found for every machine, and trials of the others cost little.
static void best_arm_is_played(void **state) {
    (void)state;
    static const machine m[] = {
        {"nothing pays", {0.02, 0.01, 0.01}, 1, 1, 0.3, 1, 0.1, 0.01, 0.3, 1, 0.02, 0.05},
        {"free drafts pay", {0.05, 0.02, 0.01}, 1, 1, 0.01, 1, 0.1, 0.01, 0.3, 1, 0.8, 0.02},
        {"a model's pay", {0.8, 0.05, 0.02}, 1, 1, 0.01, 1, 0.03, 0.01, 0.1, 1, 0.01, 0.2},
        {"both pay", {0.45, 0.02, 0.01}, 1, 1, 0.005, 1, 0.03, 0.001, 0.05, 1, 0.45, 0.005},
        {"nothing pays 16", {0.02, 0.01, 0.01}, 1, 1, 0.1, 16, 0.1, 0.01, 0.5, 16, 0.02, 0.05},
        {"free drafts pay 16", {0.05, 0.02, 0.01}, 1, 1, 0.01, 16, 0.1, 0.01, 0.5, 16, 0.7, 0.02},
        {"a model's pay 16", {0.8, 0.05, 0.02}, 1, 1, 0.01, 16, 0.03, 0.001, 0.1, 16, 0.01, 0.2},
    };
    static const pl_arm want[] = {PL_ARM_NONE, PL_ARM_FREE, PL_ARM_MODEL, PL_ARM_BOTH,
                                  PL_ARM_NONE, PL_ARM_FREE, PL_ARM_MODEL};
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        double best = 0, rate[PL_ARMS];
        for (pl_arm a = 0; a < PL_ARMS; a++) {
            rate[a] = rate_of(&m[i], a);
            if (rate[a] > best) best = rate[a];
        }
        open_world(&m[i], "chain:auto", true);
        double early = run(500), late = run(20000);
        print_message("%-20s none %.3f, free %.3f, model %.3f, both %.3f: %s, %.3f early, %.3f late; cycles %ld, %ld, "
                      "%ld, %ld\n",
                      m[i].name, rate[0], rate[1], rate[2], rate[3], names[w.c.best], early, late, w.of[0], w.of[1],
                      w.of[2], w.of[3]);
        for (pl_arm a = 0; a < PL_ARMS; a++)
            if (a != want[i]) assert_true(w.of[a] < w.of[want[i]] / 2);
        assert_true(late > 0.97 * best);
    }
}

// A model that does not pay is dropped, and the little that it is tried for costs less than 3 %; where it begins to pay
// sessions are attached again.
static void drops_sessions(void **state) {
    (void)state;
    static const machine m = {"", {0.02, 0.01, 0.01}, 1, 1, 0.02, 16, 0.1, 0.01, 0.5, 16, 0.02, 0.05};
    open_world(&m, "chain:auto", true);
    run(20000);
    double lost = 1 - w.tokens / SESSIONS * verify_cost(SESSIONS) / w.now;
    print_message("a model that does not pay: %.2f %% lost, %.2f %% of rows taken in\n", 100 * lost,
                  100 * (double)w.taken / SESSIONS / (double)w.cycles);
    assert_true(lost < 0.03 && w.taken < w.cycles * SESSIONS / 20);
    assert_true(w.beside > 0);
    w.m.accept[0] = 1;
    run(20000);
    print_message("then it is always right: %s is the best arm\n", names[w.c.best]);
    assert_true(w.c.best >= PL_ARM_MODEL);
}

// The seconds in which MODEL takes in rows, here five times a forward's, do not count for arms that do without it:
// while a trial is due, new sessions are attached beside dropped ones.
static void taking_in_is_the_models(void **state) {
    (void)state;
    static const machine m = {"", {0.02, 0.01, 0.01}, 1, 1, 0.02, 16, 0.1, 0.01, 25, 16, 0.02, 0.05};
    open_world(&m, "chain:auto", true);
    double most = 0;
    for (int i = 0; i < 20000; i++) {
        const pl_choose_arm *none = &w.c.of[PL_ARM_NONE];
        cycle(0);
        if (none->blocks > 0) most = fmax(most, none->x[(none->blocks - 1) % PL_CHOOSE_MEMORY]);
    }
    print_message("without drafts at most %.3f of plain decoding's time; %ld cycles with some sessions attached\n",
                  most, w.beside);
    assert_true(w.beside > 0 && most < 1.1);
}

static void set_plain(int n) {
    for (int s = 0; s < w.m.sessions; s++) {
        pl_choose_end(&w.c, s);
        pl_choose_start(&w.c, s, s < n);
        pl_tree_root(&w.t[s], -7);
        w.attached[s] = true; // all begin
    }
    w.plain = n;
}

// Half of the sessions are plain: the same arms are the best, and what is known of drafts is that of the others.
static void plain_sessions_beside(void **state) {
    (void)state;
    static const machine m[] = {
        {"nothing pays", {0.02, 0.01, 0.01}, 1, 1, 0.1, 16, 0.1, 0.01, 0.5, 16, 0.02, 0.05},
        {"free drafts pay", {0.05, 0.02, 0.01}, 1, 1, 0.01, 16, 0.1, 0.01, 0.5, 16, 0.7, 0.02},
        {"a model's pay", {0.8, 0.05, 0.02}, 1, 1, 0.01, 16, 0.03, 0.001, 0.1, 16, 0.01, 0.2},
    };
    static const pl_arm want[] = {PL_ARM_NONE, PL_ARM_FREE, PL_ARM_MODEL};
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        open_world(&m[i], "chain:auto", true);
        set_plain(8);
        run(6000);
        for (pl_arm a = 0; a < PL_ARMS; a++)
            if (a != want[i]) assert_true(w.of[a] < w.of[want[i]] / 2);
        if (want[i] != PL_ARM_MODEL) continue;
        pl_shape_costs known;
        pl_autotuner_costs(&w.c.tuner, &w.model.policy, 8, &known);
        assert_true(fabs(known.accept[0][0] - 0.8) < 0.1);
    }
}

// Steps of plain sessions alone: no arm is judged by them, none is left for them, and no tree's acceptance changes.
static void plain_sessions_teach_nothing(void **state) {
    (void)state;
    static const machine m = {"", {0.8, 0.05, 0.02}, 1, 1, 0.01, 16, 0.03, 0.001, 0.1, 4, 0.01, 0.2};
    for (int free = 0; free < 2; free++) {
        static pl_choose_arm of[PL_ARMS];
        open_world(&m, "chain:auto", free);
        run(3000);
        set_plain(4);
        memcpy(of, w.c.of, sizeof of);
        pl_arm              arm = w.c.arm, best = w.c.best;
        pl_autotuner_counts counts = w.c.tuner.counts;
        run(2000);
        assert_memory_equal(of, w.c.of, sizeof of);
        assert_memory_equal(&counts, &w.c.tuner.counts, sizeof counts);
        assert_true(arm == w.c.arm && best == w.c.best && best == PL_ARM_MODEL);
        set_plain(0);
        w.of[PL_ARM_MODEL] = 0;
        run(500);
        assert_true(w.of[PL_ARM_MODEL] > 350);
    }
}

// ---- a model alone --------------------------------------------------------------------------------------------------

static pl_shape_costs truth(void) {
    const machine        *m = &w.m;
    const pl_tree_policy *p = &w.model.policy;
    pl_shape_costs        c = {.levels = p->depth_max, .ranks = p->k, .width = p->width, .nodes = p->max_nodes};
    for (int l = 0; l < c.levels; l++)
        for (int r = 0; r < c.ranks; r++)
            c.accept[l][r] = accept_of(l, r);
    for (int n = 1; n <= c.nodes; n++)
        c.verify[n] = verify_cost(n * m->sessions) + (n > 1 ? m->first : m->first / 5);
    for (int k = 1; k <= c.width; k++)
        c.draft[k] = m->level + m->node * k * m->sessions;
    return c;
}

// E / C of a tree, from their definitions.
static double rate_of_tree(const pl_shape_costs *c, int n, const int32_t *parent) {
    double f[PL_SHAPE_NODES] = {1}, emitted = 1, seconds = c->verify[n];
    int    depth[PL_SHAPE_NODES] = {0}, children[PL_SHAPE_NODES] = {0}, width[PL_SHAPE_LEVELS + 1] = {0};
    for (int i = 1; i < n; i++) {
        depth[i] = depth[parent[i]] + 1;
        f[i] = f[parent[i]] * c->accept[depth[i] - 1][children[parent[i]]];
        if (children[parent[i]]++ == 0) width[depth[i] - 1]++;
        emitted += f[i];
    }
    for (int l = 1; width[l]; l++)
        seconds += c->draft[width[l]];
    return emitted / seconds;
}

// By the machine's true costs the chosen tree is nearly the best tree, and the learned costs are nearly the true ones.
static void settles_on_what_pays(void **state) {
    (void)state;
    static const machine m[] = {
        {"few rows are free", {0.7, 0.1, 0.03}, 0.97, 1, 0.12, 6, 0.08, 0.004, 0.15, 1, 0, 0},
        {"rows are free", {0.6, 0.15, 0.08}, 0.95, 1, 0.01, 48, 0.03, 0.001, 0.15, 1, 0, 0},
        {"rows are dear", {0.7, 0.1, 0.05}, 0.95, 1, 0.4, 1, 0.05, 0.02, 0.15, 1, 0, 0},
        {"a sure drafter", {0.97, 0.01, 0.005}, 1, 1, 0.05, 8, 0.03, 0.002, 0.15, 1, 0, 0},
        {"a useless drafter", {0.02, 0.01, 0.01}, 1, 1, 0.1, 1, 0.1, 0.01, 0.15, 1, 0, 0},
        {"four sessions", {0.6, 0.15, 0.05}, 0.95, 1, 0.05, 16, 0.04, 0.004, 0.15, 4, 0, 0},
    };
    char text[PL_TREE_TEXT];
    for (size_t i = 0; i < sizeof m / sizeof *m; i++)
        for (int chain = 0; chain < 2; chain++) {
            open_world(&m[i], chain ? "chain:auto" : "auto", false);
            run(600);
            pl_shape_costs c = truth(), known;
            pl_shape       best, mine = w.c.tuner.chosen;
            assert_true(pl_choose_tree(&w.c, text, sizeof text));
            if (w.c.best == PL_ARM_NONE) mine = (pl_shape){.n = 1, .parent = {-1}};
            pl_shape_best(&c, &best);
            pl_autotuner_costs(&w.c.tuner, &w.model.policy, m[i].sessions, &known);
            double share = rate_of_tree(&c, mine.n, mine.parent) * best.seconds / best.emitted;
            print_message("%-20s %-10s %.3f of the best rate: %s\n", m[i].name, chain ? "chain:auto" : "auto", share,
                          text);
            assert_true(fabs(known.verify[mine.n] / c.verify[mine.n] - 1) < 0.08);
            assert_true(fabs(known.draft[1] / c.draft[1] - 1) < 0.08);
            assert_true(fabs(known.accept[0][0] - c.accept[0][0]) < 0.1);
            assert_true(share > 0.95);
            if (chain) assert_true(strncmp(text, "chain:", 6) == 0 || strcmp(text, "none") == 0);
            if (i == 1 && !chain) assert_true(strncmp(text, "static:", 7) == 0);
            if (i == 4) assert_string_equal(text, "none");
        }
}

// Steps of one row are slow at first, so that drafts of 3 in 10 right tokens look free beside them, and are not. It
// decodes plainly now and then, and finds that nothing pays.
static void finds_plain_again(void **state) {
    (void)state;
    static const machine m = {"", {0.3, 0.05, 0.02}, 0.9, 1, 0.4, 1, 0.02, 0.005, 0.02, 1, 0, 0};
    long                 early = 0, late = 0;
    enum { COLD = 100, CYCLES = 3000 };
    open_world(&m, "chain:auto", false);
    for (int i = 0; i < CYCLES; i++) {
        cycle(i < COLD && w.t[0].n == 1 ? 5 : 0);
        *(i < CYCLES / 2 ? &early : &late) += w.c.best == PL_ARM_MODEL;
    }
    print_message("drafts are the best arm in %ld of the first cycles, %ld of the last %d\n", early, late, CYCLES / 2);
    assert_true(early > 50 && late < CYCLES / 20);
}

// The drafter gets worse: the shape follows.
static void follows_changes(void **state) {
    (void)state;
    static const machine m = {"", {0.9, 0.03, 0.01}, 1, 1, 0.05, 1, 0.05, 0.005, 0.05, 1, 0, 0};
    int                  nodes[2];
    open_world(&m, "auto", false);
    for (int half = 0; half < 2; half++) {
        run(1500);
        nodes[half] = w.c.best == PL_ARM_NONE ? 1 : w.c.tuner.chosen.n;
        w.m.accept[0] = 0.1;
    }
    print_message("%d nodes, then %d\n", nodes[0], nodes[1]);
    assert_true(nodes[0] >= 8 && nodes[1] <= 3);
}

// A drafter that is never right costs little, however expensive it is; from some cycle on it is always right, and
// drafted.
static void trials_are_bounded(void **state) {
    (void)state;
    static const machine m[] = {
        {"cheap to try", {0.02, 0.01, 0.01}, 1, 1, 0.05, 1, 0.02, 0.001, 0.05, 1, 0, 0},
        {"expensive", {0.02, 0.01, 0.01}, 1, 1, 0.3, 1, 2, 0.1, 3, 1, 0, 0},
        {"expensive, of sixteen", {0.02, 0.01, 0.01}, 1, 1, 0.05, 16, 0.5, 0.02, 1, 16, 0, 0},
    };
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        open_world(&m[i], "chain:auto", false);
        run(20000);
        double plain = verify_cost(m[i].sessions) + m[i].first / 5;
        double lost = 1 - w.tokens / m[i].sessions * plain / w.now;
        print_message("%-24s never right: %.2f %% of 20,000 cycles lost\n", m[i].name, 100 * lost);
        assert_true(lost < 0.02);
    }
    open_world(&m[0], "chain:auto", false);
    run(5000);
    assert_int_equal(w.c.best, PL_ARM_NONE);
    w.m.accept[0] = 1;
    while (w.c.best == PL_ARM_NONE && w.cycles < 10000)
        cycle(0);
    print_message("right from cycle 5000 on: drafted from cycle %ld on\n", w.cycles);
    assert_true(w.cycles < 8000);
}

// Decodes with a drafter that is right nine times in ten at probability `sure` and two times in ten at `unsure`, one of
// the two at every token: tokens per second of chains, a step being one second and a level 0.15. `drafted`: a cycle.
static double decode_unsure(const char *tree, double sure, double unsure, double *drafted) {
    pl_tree_policy p;
    pl_err         err = {0};
    pl_autotuner   tuner;
    pl_tree       *t = calloc(1, sizeof *t);
    double         right[PL_TREE_MAX], now = 0, emitted = 0;
    enum { CYCLES = 6000 };
    assert_int_equal(pl_tree_policy_parse(&p, tree, &err), PL_OK);
    pl_autotuner_init(&tuner, &p);
    w.dice = pl_rng_make(9, PL_STREAM_TEST, 3);
    w.at = 0;
    pl_tree_root(t, -7);
    *drafted = 0;
    for (int i = 0; i < CYCLES; i++) {
        pl_autotuner_cycle c = {.pace = {.sessions = 1, .rows = t->n}};
        pl_verdict         v = {.bonus = 1};
        while (v.n + 1 < t->n && uniform() < right[v.n]) {
            v.n++;
            v.path[v.n] = v.n;
        }
        pl_autotuner_accepted(&tuner, t, &v);
        emitted += c.pace.emitted = v.n + 1;
        *drafted += (double)(t->n - 1) / CYCLES;
        c.pace.verifying = 1 + 0.02 * (t->n - 1);
        now += c.pace.verifying;
        double began = now;
        pl_tree_root(t, -7);
        for (int l = 0, node = 0, n = 1; n > 0 && l < p.depth; l++) {
            bool is_sure = uniform() < 0.5;
            right[l] = is_sure ? 0.9 : 0.2;
            n = p.kind->grow(&p, t, l, &node, 1, &(int32_t){0}, &(float){(float)log(is_sure ? sure : unsure)}, &node);
            now += 0.15;
            t->notes.at[l] = now;
        }
        pl_autotuner_drafted(&c, t);
        c.taken = c.levels == 0;
        c.pace.drafting = now - began;
        pl_autotuner_learn(&tuner, &c);
        pl_autotuner_next(&tuner, &p, 1);
    }
    free(t);
    return emitted / now;
}

// Drafts that end where the drafter is not sure bring more, also where its own probabilities are wrong: what counts is
// that they tell the cases apart.
static void confidence_pays(void **state) {
    (void)state;
    static const double said[3][2] = {{0.9, 0.2}, {0.6, 0.3}, {0.98, 0.7}};
    double              drafted, before = decode_unsure("chain:auto", 0.9, 0.2, &drafted);
    print_message("chain:auto: %.3f tokens a second, %.2f drafted a cycle\n", before, drafted);
    for (int i = 0; i < 3; i++) {
        double rate = decode_unsure("chain:confidence", said[i][0], said[i][1], &drafted);
        print_message("probabilities %.2f and %.2f: %.3f, %.2f drafted\n", said[i][0], said[i][1], rate, drafted);
        assert_true(rate > 1.04 * before);
    }
}

// ---- its name -------------------------------------------------------------------------------------------------------

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *what, *tree, *line;
    } bad[] = {
        {"hybrid", NULL, "drafter \"hybrid:\": expected hybrid:FREE[+MODEL], as hybrid:suffix+PATH"},
        {"hybrid:suffix+", NULL, "drafter \"hybrid:suffix+\": expected hybrid:FREE[+MODEL], as hybrid:suffix+PATH"},
        {"hybrid:runs/x+suffix", NULL,
         "drafter \"hybrid:runs/x+suffix\": \"runs/x\" is no drafter without a checkpoint; it comes behind +"},
        {"hybrid:hybrid:suffix", NULL, "drafter \"hybrid:hybrid:suffix\": there is no hybrid in a hybrid"},
        {"hybrid:suffix+hybrid:lookup", NULL,
         "drafter \"hybrid:suffix+hybrid:lookup\": there is no hybrid in a hybrid"},
        {"hybrid:lm:x+lookup", NULL, "drafter \"hybrid:lm:x+lookup\": \"lm:x\" is a model, which comes behind +"},
        {"hybrid:recycle:64", NULL, "drafter \"hybrid\": \"recycle:64\" drafts 64 tokens, at most 63"},
        {"hybrid:suffix", "chain:confidence",
         "drafter \"hybrid:suffix\": a MODEL's drafts end by confidence, and there is none: take chain:auto"},
        {"hybrid:suffix+lookup", "chain:confidence",
         "drafter \"lookup\" drafts chains, not the tree \"chain:confidence\": take chain:LENGTH"},
        {"slem:x", "chain:confidence",
         "drafter \"slem\" has no probabilities of what it drafts for \"chain:confidence\": take chain:auto"},
        {"hybrid:suffix", "chain:3",
         "drafter \"hybrid\" chooses its tree in every cycle: auto, chain:auto or chain:confidence, not \"chain:3\""}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_tree_policy p;
        pl_err         err = {0};
        assert_int_equal(pl_drafter_shape(&p, bad[i].what, bad[i].tree, &err), PL_E_USAGE);
        assert_string_equal(err.msg, bad[i].line);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_arm_is_played),
        cmocka_unit_test(drops_sessions),
        cmocka_unit_test(taking_in_is_the_models),
        cmocka_unit_test(plain_sessions_beside),
        cmocka_unit_test(plain_sessions_teach_nothing),
        cmocka_unit_test(settles_on_what_pays),
        cmocka_unit_test(finds_plain_again),
        cmocka_unit_test(follows_changes),
        cmocka_unit_test(trials_are_bounded),
        cmocka_unit_test(confidence_pays),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
