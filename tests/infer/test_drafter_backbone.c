// Drafting on a device without a wait for each level. Trees whose levels are queued ahead are, number for number, those
// that are grown level by level, as they are beside a session that draws its children. On the emulated device, or one
// that PACELINE_TEST_DEVICE names.
#define PL_CUDA_SUFFIX emulated
#include "infer/drafter/backbone.h"
#include "infer/drafter/drafter.h"
#include "kernels/base/rng.h"
#include "kernels/cuda/state.h"
#include "tests/infer/fixture.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device.h"

enum { SESSIONS = 4, MAX_ROWS = 40, SLOTS = 120, STEPS = 4, DISTRIBUTIONS = 128, DRAFTED = 12 };

// Sessions 0..2 take the best; the last one, where it is asked for, draws.
typedef struct bench {
    pl_llama            *target;
    pl_drafter          *d;
    pl_ctx               ctx;
    float               *features; // [MAX_ROWS, taps * d]
    int64_t              width;
    int32_t              tokens[SLOTS], row[MAX_ROWS];
    pl_tree              tree[SESSIONS];
    pl_draft_item        item[SESSIONS];
    pl_draft_batch       batch;
    pl_proposing         proposing;
    pl_sampling          sampling;
    pl_rng_coin          coin;
    pl_distribution_work work;
    double              *q, *dist;
    uint64_t             waits, allocations; // of the last draft
} bench;

typedef struct drafting {
    const char *what, *tree;
    const char *head;
    bool        listed;       // the head drafts DRAFTED tokens alone
    int         waits, depth; // of the deepest session
    int         full;         // nodes if no list ended; 0: none does
    int         layers;       // 0: one
} drafting;

static const drafting draftings[] = {
    {"chain", "chain:5", "full", false, 1, 5, 0, 0},
    {"long chain", "chain:60", "full", true, 1, 60, 0, 0}, // more index arrays than a device keeps track of
    {"chain of one", "chain:1", "full", false, 1, 1, 0, 0},
    {"levels", "static:3x2x1x2", "lowrank:rank=8", false, 1, 4, 0, 0},
    {"parents", "static:0,0,0,1,1,3,4,4,7,8", "full", true, 1, 4, 0, 0},
    {"eagle-2", "eagle2:20,5,4", "full", false, 1, 4, 0, 0},
    {"eagle-2 over a list", "eagle2:30,6,4", "full", true, 1, 4, 0, 0},
    // Lists that end: four candidates at depth 2, three at depth 3, two below.
    {"short lists", "eagle2:60,6,6", "full:position_aware", true, 1, 6, 0, 0},
    {"a shape of short lists", "static:1x1x5x2x1", "full:position_aware", true, 1, 5, 182, 0},
    // Two candidates for a frontier of four; clusters that are empty.
    {"two candidates", "eagle2:12,4,3", "specvocab:rank=12,candidates=2", false, 1, 3, 0, 0},
    {"rescored", "eagle2:12,3,3", "specvocab:rank=12,candidates=8", false, 1, 3, 0, 0},
    {"routed", "eagle2:20,4,4", "dynaspec:clusters=30,width=20,k0=3,k1=2,kmin=1", false, 1, 4, 0, 0},
    {"routed shape", "static:5x3x2x1", "dynaspec:clusters=60,width=20,k0=2,k1=2,kmin=1", false, 1, 4, 572, 0},
    {"routed chain", "chain:4", "dynaspec:clusters=40,width=20,k0=2,k1=1,kmin=1", false, 1, 4, 44, 0},
    {"auto", "auto", "full", false, 1, 3, 0, 0},
    {"eagle-2 of layers", "eagle2:20,5,4", "full", false, 1, 4, 0, 3},
    {"a beam", "beam:5,4", "full", false, 1, 4, 0, 0},
};
enum { DRAFTINGS = sizeof draftings / sizeof *draftings };

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

static void queue(pl_ctx *ctx, void *arg) {
    bench *b = arg;
    b->batch.features = pl_ctx_write(ctx, b->features, MAX_ROWS, b->width);
    uint64_t waits = ctx->measuring ? 0 : pl_cuda_state_of(ctx)->waits, allocations = pl_alloc_count();
    b->d->kind->propose(b->d, ctx, &b->batch);
    if (!ctx->measuring) b->waits = pl_cuda_state_of(ctx)->waits - waits;
    b->allocations = pl_alloc_count() - allocations;
}

static bench *open_bench(pl_llama *m, const char *dir, const char *tree, bool repeats) {
    pl_err err = {0};
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    must(pl_drafter_open(&b->d, dir,
                         &(pl_drafter_options){.target = m,
                                               .dtype = PL_BF16,
                                               .tree = tree,
                                               .max_sessions = SESSIONS,
                                               .max_rows = MAX_ROWS,
                                               .slots = SLOTS},
                         &err),
         &err);
    b->target = m;
    b->width = (int64_t)b->d->n_taps * m->shape.d;
    b->features = malloc((size_t)(MAX_ROWS * b->width) * sizeof(float));
    b->q = malloc(DISTRIBUTIONS * (size_t)m->vocab * sizeof *b->q);
    b->dist = malloc((size_t)m->vocab * sizeof *b->dist);
    assert_true(b->features && b->q && b->dist);
    must(pl_distribution_work_init(&b->work, m->vocab, &err), &err);
    b->sampling = (pl_sampling){.temperature = 1, .top_p = 1};
    b->proposing = (pl_proposing){.kind = PL_PROPOSE_WOR,
                                  .sampling = &b->sampling,
                                  .coin = &b->coin.base,
                                  .q = b->q,
                                  .q_rows = DISTRIBUTIONS,
                                  .vocab = m->vocab,
                                  .work = &b->work,
                                  .dist = b->dist};
    must(pl_ctx_init(&b->ctx, m->be, NULL), &err);
    b->ctx.repeats = repeats;
    must(pl_ctx_measure(&b->ctx, queue, b, &err), &err);
    return b;
}

static void close_bench(bench *b) {
    pl_ctx_fini(&b->ctx);
    pl_drafter_destroy(b->d);
    pl_distribution_work_fini(&b->work);
    free(b->features);
    free(b->q);
    free(b->dist);
    free(b);
}

// Step by step sessions take in 3 rows each, and more at first; session 1 ends earlier than the others, session 2
// (every other time) wants no tree. `n` sessions, of which the last may draw.
static pl_status draft(bench *b, int step, int n, bool draws, pl_err *err) {
    int row = 0;
    for (int i = 0; i < SLOTS; i++)
        b->tokens[i] =
            (int32_t)pl_rng_below(pl_rng_make(5, PL_STREAM_TEST, 1), (uint64_t)i, (uint64_t)b->target->vocab);
    for (int i = 0; i < n; i++) {
        int first = step == 0 ? 0 : 7 + i + 3 * (step - 1), count = step == 0 ? 7 + i : 3;
        b->item[i] = (pl_draft_item){.slot = i,
                                     .tokens = b->tokens,
                                     .n_tokens = first + count + 1,
                                     .first = first,
                                     .count = count,
                                     .feature_row = b->row + row,
                                     .tree = i == 2 && step % 2 ? NULL : &b->tree[i],
                                     .depth = i == 1 ? 2 : 100,
                                     .proposing = draws && i + 1 == n ? &b->proposing : NULL};
        pl_tree_root(&b->tree[i], b->tokens[first + count]);
        for (int j = 0; j < count; j++, row++) {
            b->row[row] = row;
            pl_rng r = pl_rng_make(6, PL_STREAM_TEST, (uint64_t)(i * SLOTS + first + j));
            for (int64_t e = 0; e < b->width; e++)
                b->features[row * b->width + e] = pl_rng_normal(r, (uint64_t)e);
        }
    }
    assert_true(row <= MAX_ROWS);
    b->proposing.q_used = 0;
    pl_rng_coin_init(&b->coin, 1, PL_STREAM_DRAFT, 2, step);
    b->batch = (pl_draft_batch){.item = b->item, .n = n};
    pl_ctx_begin(&b->ctx);
    queue(&b->ctx, b);
    return pl_ctx_sync(&b->ctx, err);
}

static void same_tree(const pl_tree *a, const pl_tree *b, const char *what, int step, int session) {
    size_t n = (size_t)a->n;
    if (a->n != b->n || memcmp(a->token, b->token, n * sizeof *a->token) != 0 ||
        memcmp(a->parent, b->parent, n * sizeof *a->parent) != 0 ||
        memcmp(a->rank, b->rank, n * sizeof *a->rank) != 0 || memcmp(a->score, b->score, n * sizeof *a->score) != 0 ||
        a->n_draws != b->n_draws)
        fail_msg("%s, draft %d, session %d: trees of %d and %d nodes differ", what, step, session, a->n, b->n);
}

static void write_drafter(const char *dir, const pl_llama *m, const drafting *g) {
    pl_backbone_options o = {.head = pl_hf_head_of(g->head), .layers = g->layers, .norm_output = g->layers > 0};
    int32_t             list[DRAFTED];
    for (int i = 0; i < DRAFTED; i++)
        list[i] = (i * 29 + 3) % TEST_VOCAB;
    if (g->listed) o.d2t = list, o.draft_vocab = DRAFTED;
    test_backbone_write(dir, m, &pl_backbone_eagle3, &o, 5);
}

static void open_target(pl_llama *m, char dir[64]) {
    pl_err err = {0};
    test_target(m, test_mkdir(dir), 2, 11, PL_BF16);
    pl_llama_fini(m);
    must(pl_llama_open(m, dir, PL_BF16, test_device(), &err), &err);
}

static void ahead_is_level_by_level(void **state) {
    (void)state;
    char     dir[64], drafter[64];
    pl_err   err = {0};
    pl_llama m;
    open_target(&m, dir);
    for (int g = 0; g < DRAFTINGS; g++) {
        const drafting *of = &draftings[g];
        int             nodes = 0, deepest = 0;
        write_drafter(test_mkdir(drafter), &m, of);
        bench *ahead = open_bench(&m, drafter, of->tree, true), *waits = open_bench(&m, drafter, of->tree, false);
        for (int step = 0; step < STEPS; step++) {
            must(draft(ahead, step, SESSIONS - 1, false, &err), &err);
            must(draft(waits, step, SESSIONS, true, &err), &err);
            for (int i = 0; i + 1 < SESSIONS; i++) {
                const pl_tree *t = &ahead->tree[i];
                same_tree(t, &waits->tree[i], of->what, step, i);
                nodes += t->n;
                for (int j = 0; j < t->n; j++)
                    deepest = t->depth[j] > deepest ? t->depth[j] : deepest;
                for (int l = 1; l < t->notes.levels; l++)
                    assert_true(t->notes.at[l] > t->notes.at[l - 1]);
            }
            assert_true(waits->tree[SESSIONS - 1].n > 1);
            if (ahead->waits != (uint64_t)of->waits) fail_msg("%s: %d waits", of->what, (int)ahead->waits);
            if (of->depth > 1) assert_true(waits->waits > (uint64_t)of->depth);
        }
        print_message("%s: %d nodes, %d deep\n", of->what, nodes, deepest);
        assert_int_equal(deepest, of->depth);
        assert_true(of->full == 0 || nodes < of->full);
        close_bench(ahead);
        close_bench(waits);
        test_rmdir(drafter);
    }
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// A drafter's steps become graphs however its trees grow: none is captured once every shape has come twice.
static void drafts_become_graphs(void **state) {
    (void)state;
    static const char *const trees[] = {"chain:5", "static:3x2x1x2", "eagle2:20,5,4"};
    char                     dir[64], drafter[64];
    pl_err                   err = {0};
    pl_llama                 m;
    open_target(&m, dir);
    write_drafter(test_mkdir(drafter), &m, &draftings[6]);
    for (size_t g = 0; g < sizeof trees / sizeof *trees; g++) {
        bench               *graphs = open_bench(&m, drafter, trees[g], true);
        const pl_cuda_state *seen = graphs->ctx.state;
        uint64_t             captured = 0, before = 0;
        for (int step = 0; step < 16; step++) {
            must(draft(graphs, step, 2, false, &err), &err);
            if (step == 3) captured = seen->captured;
            if (step > 3) assert_true(seen->captured == captured && seen->replayed > before);
            if (step > 3) assert_int_equal(graphs->allocations, 0);
            before = seen->replayed;
        }
        print_message("%s: %d graphs\n", trees[g], (int)captured);
        assert_true(captured > 0);
        close_bench(graphs);
    }
    test_rmdir(drafter);
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// A policy that says other nodes ahead than it then expands is found out; one that says none is waited for.
static int swapped(const pl_tree_policy *p, int level, int n, int32_t *pick) {
    int     m = pl_tree_shape_ahead(p, level, n, pick);
    int32_t first = pick[0];
    if (m > 1) pick[0] = pick[1], pick[1] = first;
    return m;
}

static void other_nodes_are_refused(void **state) {
    (void)state;
    char     dir[64], drafter[64];
    pl_err   err = {0};
    pl_llama m;
    open_target(&m, dir);
    write_drafter(test_mkdir(drafter), &m, &draftings[0]);
    bench       *b = open_bench(&m, drafter, "static:2x1x1", false);
    pl_tree_kind wrong = pl_tree_static;
    wrong.ahead = swapped;
    b->d->policy.kind = &wrong;
    assert_int_equal(draft(b, 0, 1, false, &err), PL_E_DEVICE);
    if (!strstr(err.msg, "level 1 of a draft went on with other nodes")) fail_msg("%s", err.msg);
    wrong.ahead = NULL;
    must(draft(b, 0, 1, false, &err), &err);
    assert_int_equal(b->tree[0].n, 7);
    assert_int_equal(b->waits, 3);
    close_bench(b);
    test_rmdir(drafter);
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// A policy that wants the root alone for now (an adapting one does) has rows taken in and nothing drafted, with nobody
// waited for: what it wants later is drafted as if all drafts before had been.
static void no_levels(void **state) {
    (void)state;
    static const int32_t chain[] = {-1, 0, 1, 2};
    char                 dir[64], drafter[64];
    pl_err               err = {0};
    pl_llama             m;
    open_target(&m, dir);
    write_drafter(test_mkdir(drafter), &m, &draftings[0]);
    bench *none = open_bench(&m, drafter, "auto", false), *all = open_bench(&m, drafter, "auto", false);
    for (int step = 0; step < STEPS; step++) {
        bool last = step + 1 == STEPS;
        pl_tree_shape_set(&none->d->policy, last ? 4 : 1, chain);
        must(draft(none, step, SESSIONS, true, &err), &err);
        must(draft(all, step, SESSIONS, true, &err), &err);
        if (!last) assert_int_equal(none->waits, 0);
        for (int i = 0; i < SESSIONS; i++)
            if (last)
                same_tree(&none->tree[i], &all->tree[i], "drafted late", step, i);
            else
                assert_true(none->tree[i].n == 1 && none->tree[i].notes.levels == 0);
    }
    assert_int_equal(all->tree[0].n, 4);
    close_bench(none);
    close_bench(all);
    test_rmdir(drafter);
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// Who looks on sees each level's tokens, the tree's own, where the host reads them; the tree is the same.
typedef struct looker {
    pl_draft_watch watch;
    int            levels, rows, token[DISTRIBUTIONS], depth[DISTRIBUTIONS], item[DISTRIBUTIONS];
} looker;

static void see(pl_draft_watch *w, pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    looker *l = (looker *)w;
    (void)h;
    if (ctx->measuring) return;
    l->levels++;
    for (int i = 0; i < r->x.dim[0]; i++, l->rows++) {
        assert_true(l->rows < DISTRIBUTIONS);
        l->token[l->rows] = r->token[i];
        l->depth[l->rows] = r->level;
        l->item[l->rows] = r->group[i];
    }
}

static void looked_at(void **state) {
    (void)state;
    looker   l = {.watch.see = see};
    char     dir[64], drafter[64];
    pl_err   err = {0};
    pl_llama m;
    open_target(&m, dir);
    write_drafter(test_mkdir(drafter), &m, &draftings[6]);
    bench *seen = open_bench(&m, drafter, "static:3x2x2x1", true),
          *unseen = open_bench(&m, drafter, "static:3x2x2x1", true);
    seen->d->watch = &l.watch;
    must(pl_ctx_measure(&seen->ctx, queue, &(bench){.d = seen->d, .features = seen->features, .width = seen->width},
                        &err),
         &err);
    must(draft(seen, 0, 3, false, &err), &err);
    must(draft(unseen, 0, 3, false, &err), &err);
    for (int i = 0; i < 3; i++)
        same_tree(&seen->tree[i], &unseen->tree[i], "looked at", 0, i);
    assert_int_equal(l.levels, 4);
    assert_int_equal(l.rows, 2 * (1 + 3 + 6 + 12) + 1 + 3); // session 1 ends after two levels
    for (int i = 0; i < l.rows; i++) {
        const pl_tree *t = &seen->tree[l.item[i]];
        int            found = 0;
        for (int n = 0; n < t->n; n++)
            found += t->depth[n] == l.depth[i] && t->token[n] == l.token[i];
        if (!found) fail_msg("level %d: no node has token %d", l.depth[i], l.token[i]);
    }
    close_bench(seen);
    close_bench(unseen);
    test_rmdir(drafter);
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// The caches of a drafter hold what its target's do: drafts of the same features over bf16 are those over fp32 but for
// that rounding, where tokens come one after another and where they come in blocks.
static void caches_are_the_targets(void **state) {
    (void)state;
    static const struct {
        const pl_backbone_kind *kind;
        pl_backbone_options     o;
        const char             *tree;
    } of[] = {{&pl_backbone_eagle3, {.block = 0}, "eagle2:20,4,4"},
              {&pl_backbone_dflash, {.block = 5, .mask_token = 1}, "eagle2:20,4,4"}};
    char     dir[64], drafter[64];
    pl_err   err = {0};
    pl_llama m;
    open_target(&m, dir);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        bench *over[2];
        float  most = 0;
        test_backbone_write(test_mkdir(drafter), &m, of[i].kind, &of[i].o, 5);
        for (int k = 0; k < 2; k++) {
            m.shape.kv = k ? PL_BF16 : PL_F32;
            over[k] = open_bench(&m, drafter, of[i].tree, true);
        }
        for (int step = 0; step < STEPS; step++) {
            for (int k = 0; k < 2; k++)
                must(draft(over[k], step, 1, false, &err), &err);
            const pl_tree *a = &over[0]->tree[0], *b = &over[1]->tree[0];
            for (int n = 1; n < a->n && n < b->n && a->token[n] == b->token[n]; n++)
                most = fmaxf(most, fabsf(a->score[n] - b->score[n]));
        }
        print_message("%s: scores over caches in bf16 differ by %.2g at most\n", of[i].kind->name, (double)most);
        assert_true(most > 1e-5f && most < 0.1f);
        for (int k = 0; k < 2; k++)
            close_bench(over[k]);
        test_rmdir(drafter);
    }
    pl_llama_fini(&m);
    test_rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ahead_is_level_by_level),
        cmocka_unit_test(drafts_become_graphs),
        cmocka_unit_test(other_nodes_are_refused),
        cmocka_unit_test(no_levels),
        cmocka_unit_test(looked_at),
        cmocka_unit_test(caches_are_the_targets),
    };
    test_only();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
