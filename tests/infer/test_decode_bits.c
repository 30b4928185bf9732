// Losslessness, bit for bit: what plain decoding emits, and the logits it emits it from, do not depend on drafts, tree
// shapes, company in the batch, threads or the length of the context.
#include "tests/infer/fixture.h"
#include "tests/whole.h"

#include "infer/decode/session.h"
#include "kernels/base/hash.h"
#include "kernels/op/elementwise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_NEW 40
#define SESSIONS 64

typedef struct transcript {
    int32_t  tokens[256];
    int32_t  n;
    int64_t  accepted, steps, emitted;
    uint64_t drafts;    // hash of the trees
    uint64_t bits[256]; // hash of the logits that position p's successor was taken from; 0: none
} transcript;

typedef struct world {
    pl_llama   target;
    transcript plain[SESSIONS]; // by session key
} world;

static int prompt_of(uint64_t key, int32_t *ids) {
    // Lengths from 1 to past two groups of attention, so that every offset to a boundary occurs.
    int n = 1 + (int)(key * 7 % 75);
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)((key * 31 + (uint64_t)i * (uint64_t)i * 13 + 5 * (uint64_t)i) % TEST_VOCAB);
    return n;
}

static transcript        *record_to; // by key; set around a run
static bool               hybrids;   // set around runs of two drafters
static int64_t            arms[4];   // there, sessions' cycles by pl_arm
// Set around runs that draw children: the verifier, and what it saw of the drawn trees.
static const pl_verifier *run_verifier;
static int                drawn_nodes, merged_nodes;

// Each node got the draws that its place in the shape says (fewer only where q has no more tokens), as they were asked
// for.
static void check_drawn(const pl_tree *t, const pl_tree_policy *p) {
    for (int i = 0; i < t->n; i++) {
        int32_t token[PL_TREE_MAX];
        int     n = pl_tree_draws(t, i, token), different = 0;
        if (!t->q[i]) continue;
        assert_int_equal(t->kind[i], run_verifier->proposal);
        if (!p->adapt) { // else the next shape is chosen by now
            int wanted = pl_tree_wanted(p, t, i);
            assert_true(n == wanted || (n < wanted && t->kind[i] == PL_PROPOSE_WOR));
        }
        for (int j = 0; j < n; j++) {
            bool below = t->kind[i] == PL_PROPOSE_TOP_ONE && j > 0; // beside the one draw, tokens that q leaves out
            assert_true(below ? t->q[i][token[j]] == 0 : t->q[i][token[j]] > 0);
        }
        for (int c = i + 1; c < t->n; c++)
            different += t->parent[c] == i;
        drawn_nodes++;
        merged_nodes += different < n;
    }
}

static void record(void *arg, const pl_final_rows *r) {
    (void)arg;
    transcript *t = &record_to[r->session->opt.key];
    for (int i = 0; i < r->count; i++) {
        int lrow = r->logits_row[r->row[i]];
        if (lrow >= 0)
            t->bits[r->first + i] = pl_hash(r->logits + (int64_t)lrow * TEST_VOCAB, TEST_VOCAB * sizeof(float)) | 1;
    }
}

// Decodes sessions key0..key0+n-1 side by side.
static void run(const pl_llama *m, pl_drafter *d, pl_pool *pool, int rows, uint64_t key0, int n, double temperature,
                int stop, transcript *out) {
    pl_err            err = {0};
    pl_engine        *e;
    pl_engine_options o = {.max_sessions = n, .max_rows = rows, .max_len = 160, .verifier = run_verifier};
    pl_session       *s[SESSIONS];
    int32_t           ids[128];
    if (d) d->max_rows = rows;
    assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), pool, m, d, &o, &err), PL_OK);
    record_to = out;
    pl_engine_on_final(e, record, NULL);
    for (int i = 0; i < n; i++) {
        pl_session_options so = {.sampling = {.temperature = temperature, .top_p = 1, .seed = 3},
                                 .key = key0 + (uint64_t)i,
                                 .max_new = MAX_NEW,
                                 .n_stop = stop >= 0,
                                 .stop = {stop}};
        int                len = prompt_of(so.key, ids);
        memset(&out[so.key], 0, sizeof out[so.key]);
        assert_int_equal(pl_engine_start(e, ids, len, &so, &s[i], &err), PL_OK);
    }
    for (bool running = true; running;) {
        assert_int_equal(pl_engine_step(e, &err), PL_OK);
        running = false;
        for (int i = 0; i < n; i++) {
            running |= s[i]->finish == PL_RUNNING;
            const pl_tree *t = &s[i]->tree;
            bool           modelled = t->notes.levels > 0;
            out[key0 + (uint64_t)i].drafts =
                pl_hash_more(out[key0 + (uint64_t)i].drafts, t->token, (size_t)t->n * sizeof *t->token);
            if (hybrids && s[i]->finish == PL_RUNNING) arms[2 * modelled + (t->n > (modelled ? t->notes.grown : 1))]++;
            if (!hybrids && run_verifier && d && s[i]->finish == PL_RUNNING) check_drawn(&s[i]->tree, &d->policy);
        }
    }
    for (int i = 0; i < n; i++) {
        transcript *t = &out[key0 + (uint64_t)i];
        t->n = s[i]->n_tokens;
        memcpy(t->tokens, s[i]->tokens, (size_t)t->n * sizeof *t->tokens);
        t->accepted = s[i]->stats.accepted;
        t->steps = s[i]->stats.steps;
        t->emitted = s[i]->stats.emitted;
    }
    pl_engine_destroy(e);
}

static void same(const transcript *a, const transcript *b, const char *what) {
    if (a->n != b->n || memcmp(a->tokens, b->tokens, (size_t)a->n * sizeof *a->tokens) != 0)
        fail_msg("%s: tokens differ (%d and %d)", what, a->n, b->n);
    int seen = 0;
    for (int p = 0; p < a->n; p++) {
        if (!a->bits[p] || !b->bits[p]) continue;
        seen++;
        if (a->bits[p] != b->bits[p]) fail_msg("%s: logit bits differ at position %d", what, p);
    }
    assert_true(seen > 0);
}

static void oracle_scripts(test_oracle *o, const transcript *plain, uint64_t key0, int n, const int32_t **script,
                           int32_t *script_n) {
    for (int i = 0; i < n; i++) {
        script[i] = plain[key0 + (uint64_t)i].tokens;
        script_n[i] = plain[key0 + (uint64_t)i].n;
    }
    o->script = script;
    o->script_n = script_n;
}

// Trees of 1 to 64 nodes of random shape with their root at every offset to a boundary of attention's groups, until
// each number of nodes has been at each offset, or at those of one part of `parts`.
static void check_placed(world *w, pl_pool *pool, transcript *got, int part, int parts, const char *what) {
    const int32_t *script[1];
    int32_t        script_n[1];
    test_oracle    o;
    int64_t        accepted = 0;
    int            runs = 0;
    test_oracle_init(&o, TEST_PLACED, "chain:16", TEST_NODES, 1);
    for (int i = 0; i < PL_ATTN_GROUP && !test_whole(); i++)
        for (int n = 1; n <= TEST_NODES; n++) // of each sum of both, too, some
            o.placed[i][n] = (i + n / parts) % parts != part % parts;
    for (uint64_t key = 0; test_oracle_unplaced(&o); key = (key + 1) % SESSIONS) {
        oracle_scripts(&o, w->plain, key, 1, script, script_n);
        run(&w->target, &o.base, runs % 3 ? NULL : pool, TEST_NODES, key, 1, 0, -1, got);
        same(&w->plain[key], &got[key], what);
        accepted += got[key].accepted;
        if (++runs > 40 * SESSIONS) fail_msg("%s: %d placements are left", what, test_oracle_unplaced(&o));
    }
    print_message("%s: %d runs, %lld tokens accepted\n", what, runs, (long long)accepted);
    assert_true(accepted > PL_ATTN_GROUP * TEST_NODES / 2 / (test_whole() ? 1 : parts));
}

static void run_oracle(world *w, test_oracle_mode mode, const char *tree, int nodes, pl_pool *pool, uint64_t key0,
                       int n, double temperature, int stop, transcript *plain, transcript *got) {
    const int32_t *script[SESSIONS];
    int32_t        script_n[SESSIONS];
    test_oracle    o;
    test_oracle_init(&o, mode, tree, nodes, n);
    o.stop = stop;
    oracle_scripts(&o, plain, key0, n, script, script_n);
    run(&w->target, &o.base, pool, n * o.base.policy.max_nodes, key0, n, temperature, stop, got);
}

// The checkpoint in `draft`, for n sessions of the world's target.
static pl_drafter *open_drafter(const world *w, const char *draft, const char *tree, int n, int rows) {
    pl_drafter        *d;
    pl_err             err = {0};
    pl_drafter_options o = {
        .target = &w->target, .dtype = PL_BF16, .tree = tree, .max_sessions = n, .max_rows = rows, .slots = 160};
    if (pl_drafter_open(&d, draft, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    return d;
}

static void check_dtype(pl_dtype t, pl_dtype kv) {
    char        dir[64], what[96];
    pl_err      err = {0};
    world      *w = calloc(1, sizeof *w);
    transcript *got = calloc(SESSIONS, sizeof *got);
    pl_pool    *two;
    assert_int_equal(pl_pool_create(&two, 2, &err), PL_OK);
    test_target(&w->target, test_mkdir(dir), 3, 11, t);
    w->target.shape.kv = kv;
    for (uint64_t k = 0; k < SESSIONS; k++)
        run(&w->target, NULL, NULL, 1, k, 1, 0, -1, w->plain);
    // Batches: 1 to 64 sessions, 1 and 2 threads, prompts in whatever chunks fit.
    for (int n = 1; n <= SESSIONS; n = n < 4 ? n + 1 : n * 4) {
        run(&w->target, NULL, n % 2 ? two : NULL, n + 5, 0, n, 0, -1, got);
        for (int i = 0; i < n; i++) {
            snprintf(what, sizeof what, "%s batch of %d, session %d", pl_dtype_name(t), n, i);
            same(&w->plain[i], &got[i], what);
        }
    }
    // Chains of 1 to 16, right and wrong.
    for (int k = 1; k <= 16; k++) {
        char tree[16];
        snprintf(tree, sizeof tree, "chain:%d", k);
        for (int mode = TEST_ACCEPT; mode <= TEST_REJECT; mode++) {
            uint64_t key = (uint64_t)(k * 5 % SESSIONS);
            run_oracle(w, (test_oracle_mode)mode, tree, 0, k % 2 ? two : NULL, key, 1, 0, -1, w->plain, got);
            snprintf(what, sizeof what, "%s chain of %d, mode %d", pl_dtype_name(t), k, mode);
            same(&w->plain[key], &got[key], what);
            if (mode == TEST_REJECT) {
                assert_int_equal(got[key].accepted, 0);
                assert_int_equal(got[key].steps, got[key].emitted);
            } else { // every chain is taken whole: only the last may be cut short
                assert_true(got[key].steps <= (got[key].emitted + k) / (k + 1));
            }
        }
    }
    snprintf(what, sizeof what, "%s trees at every offset", pl_dtype_name(t));
    check_placed(w, two, got, (int)t + 2 * (int)kv, 4, what);
    // In company.
    run_oracle(w, TEST_MIXED, "chain:5", 12, two, 0, 16, 0, -1, w->plain, got);
    for (int i = 0; i < 16; i++)
        same(&w->plain[i], &got[i], "trees in a batch");
    pl_llama_fini(&w->target);
    pl_pool_destroy(two);
    test_rmdir(dir);
    free(w);
    free(got);
}

static void bits_fp32(void **state) {
    (void)state;
    check_dtype(PL_F32, PL_F32);
}

static void bits_bf16(void **state) {
    (void)state;
    check_dtype(PL_BF16, PL_F32);
}

static void bits_of_caches_in_bf16(void **state) {
    (void)state;
    check_dtype(PL_BF16, PL_BF16);
}

// Caches in bf16, the target's and the drafter's: every kind of drafter with caches of its own gives what plain decoding
// over such a cache gives, which is not what it gives over fp32.
static void drafters_of_caches_in_bf16(void **state) {
    (void)state;
    const struct {
        const pl_backbone_kind *kind; // NULL: the target itself as lm
        pl_backbone_options     o;
        const char             *tree;
    } with[] = {{&pl_backbone_eagle3, {.head = pl_hf_head_of("full")}, "eagle2:20,5,3"},
                {&pl_backbone_eagle3, {.layers = 2}, "auto"},
                {&pl_backbone_eagle1, {.bias = true}, "chain:3"},
                {&pl_backbone_dflash, {.layers = 2, .block = 6, .mask_token = 1}, "static:4x2x1"},
                {NULL, {.layers = 0}, "chain:4"}};
    char        dir[64], draft[64], what[64];
    world      *w = calloc(1, sizeof *w);
    transcript *got = calloc(SESSIONS, sizeof *got);
    test_target(&w->target, test_mkdir(dir), 6, 23, PL_BF16);
    for (int t = 0; t < 2; t++) {
        w->target.shape.kv = PL_F32;
        int others = 0;
        for (uint64_t k = 0; k < 8; k++)
            run(&w->target, NULL, NULL, 1, k, 1, t, -1, got);
        w->target.shape.kv = PL_BF16;
        for (uint64_t k = 0; k < 8; k++) {
            run(&w->target, NULL, NULL, 1, k, 1, t, -1, w->plain);
            for (int p = 0; p < got[k].n; p++)
                others += got[k].bits[p] && got[k].bits[p] != w->plain[k].bits[p];
        }
        assert_true(others > 8);
        for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
            int n = i % 2 ? 8 : 1;
            if (with[i].kind)
                test_backbone_write(test_mkdir(draft), &w->target, with[i].kind, &with[i].o, 34);
            else
                snprintf(draft, sizeof draft, "lm:%.50s", dir);
            pl_drafter *d = open_drafter(w, draft, with[i].tree, n, n * 80);
            run(&w->target, d, NULL, n * 80, 0, n, t, -1, got);
            pl_drafter_destroy(d);
            snprintf(what, sizeof what, "drafter %zu, temperature %d", i, t);
            for (int k = 0; k < n; k++)
                same(&w->plain[k], &got[k], what);
            if (with[i].kind) test_rmdir(draft);
        }
    }
    pl_llama_fini(&w->target);
    test_rmdir(dir);
    free(w);
    free(got);
}

// At temperature 1 deterministic children with draws keyed by position give plain sampling's own tokens.
static void sampled_equals_plain(void **state) {
    (void)state;
    char        dir[64];
    world      *w = calloc(1, sizeof *w);
    transcript *got = calloc(SESSIONS, sizeof *got);
    test_target(&w->target, test_mkdir(dir), 2, 5, PL_BF16);
    for (uint64_t k = 0; k < SESSIONS; k++)
        run(&w->target, NULL, NULL, 1, k, 1, 1, -1, w->plain);
    run(&w->target, NULL, NULL, 20, 0, 16, 1, -1, got);
    for (int i = 0; i < 16; i++)
        same(&w->plain[i], &got[i], "sampled batch");
    run_oracle(w, TEST_MIXED, "chain:5", 12, NULL, 0, 16, 1, -1, w->plain, got);
    for (int i = 0; i < 16; i++)
        same(&w->plain[i], &got[i], "sampled trees in a batch");
    pl_llama_fini(&w->target);
    test_rmdir(dir);
    free(w);
    free(got);
}

// A stop token inside an accepted block ends the answer there, as plain decoding does.
static void stop_inside_block(void **state) {
    (void)state;
    char        dir[64];
    world      *w = calloc(1, sizeof *w);
    transcript *got = calloc(SESSIONS, sizeof *got), *stopped = calloc(SESSIONS, sizeof *stopped);
    test_target(&w->target, test_mkdir(dir), 2, 9, PL_F32);
    int ended = 0;
    for (uint64_t k = 0; k < 12; k++) {
        int32_t ids[128];
        int     n = prompt_of(k, ids);
        run(&w->target, NULL, NULL, 1, k, 1, 0, -1, w->plain);
        int stop = w->plain[k].tokens[n + 5]; // a token that plain decoding emits
        run(&w->target, NULL, NULL, 1, k, 1, 0, stop, stopped);
        assert_true(stopped[k].n <= n + 6);
        for (int mode = TEST_ACCEPT; mode <= TEST_STOP; mode++) {
            run_oracle(w, (test_oracle_mode)mode, "chain:9", 10, NULL, k, 1, 0, stop, w->plain, got);
            same(&stopped[k], &got[k], "stop inside a block");
        }
        ended += stopped[k].n < w->plain[k].n;
    }
    assert_int_equal(ended, 12);
    pl_llama_fini(&w->target);
    test_rmdir(dir);
    free(w);
    free(got);
    free(stopped);
}

// The EAGLE-3 drafter itself, random weights, with every kind of head and of tree, with several layers and with
// EAGLE-3.1's norms: same output at temperature 0 and 1.
static void eagle3_is_lossless(void **state) {
    (void)state;
    char                      dir[64], draft[64], what[128];
    world                    *w = calloc(1, sizeof *w);
    transcript               *got = calloc(SESSIONS, sizeof *got);
    int64_t                   accepted = 0;
    const int                 n = test_whole() ? 8 : 4; // sessions
    const pl_backbone_options kinds[] = {
        {.head = pl_hf_head_of("full")},
        {.head = pl_hf_head_of("lowrank:rank=12")},
        {.head = pl_hf_head_of("specvocab:rank=12,candidates=20")},
        {.head = pl_hf_head_of("dynaspec:clusters=12,width=20,k0=5,k1=3,kmin=1")},
        {.head = pl_hf_head_of("lowrank:rank=12"), .selector = {.rank = 7, .candidates = 5}},
        {.head = pl_hf_head_of("specvocab:rank=12,candidates=9"),
         .selector = {.rank = 4, .candidates = 6, .law = PL_HF_LAW_LIST}},
        {.head = pl_hf_head_of("dynaspec:clusters=24,width=20,k0=3,k1=1,kmin=1"),
         .selector = {.rank = 5, .candidates = 8}},
        {.head = pl_hf_head_of("lowrank:rank=12,acceptance,max_rejection=700")},
        {.layers = 3, .norm_before_fc = true},
        {.layers = 2, .fc_norm = true, .norm_output = true, .norm_before_residual = true},
        {.width = 36, .head = pl_hf_head_of("lowrank:rank=12")},
        {.layers = 2, .window = 7}};
    test_target(&w->target, test_mkdir(dir), 8, 21, PL_BF16);
    for (int temperature = 0; temperature < 2; temperature++) {
        for (uint64_t k = 0; k < (uint64_t)n; k++)
            run(&w->target, NULL, NULL, 1, k, 1, temperature, -1, w->plain);
        for (size_t head = 0; head < sizeof kinds / sizeof *kinds; head++) {
            const pl_backbone_options *o = &kinds[head];
            test_backbone_write(test_mkdir(draft), &w->target, &pl_backbone_eagle3, o, 33);
            const char *trees[] = {"chain:1",        "chain:4",          "chain:auto",         "auto",
                                   "static:4x2x1",   "static:8x4x1",     "static:0,0,0,1,1,4", "eagle2:60,10,6",
                                   "eagle2:20,5,3",  "chain:confidence", "beam:4,3",           "beam:4,5,0.3",
                                   "opt:20,5,5,0.2", "dyspec:20,5,4",    "sequences:4,3"};
            for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
                if (!test_whole() && (head + i) % 2 != (size_t)temperature) continue;
                if (!test_whole() && i >= 10 && head % 3) continue;
                pl_drafter *d = open_drafter(w, draft, trees[i], n, n * 80);
                run(&w->target, d, NULL, n * 80, 0, n, temperature, -1, got);
                pl_drafter_destroy(d);
                snprintf(what, sizeof what, "%.31s, %d layers, selector of %d, %.40s, temperature %d", o->head.kind,
                         o->layers, o->selector.candidates, trees[i], temperature);
                for (int k = 0; k < n; k++) {
                    same(&w->plain[k], &got[k], what);
                    if (i >= 4) accepted += got[k].accepted;
                }
            }
            test_rmdir(draft);
        }
    }
    print_message("trees of a random drafter: %lld tokens accepted\n", (long long)accepted);
    assert_true(accepted > 100); // chance alone does it: wide trees over a small vocabulary
    pl_llama_fini(&w->target);
    test_rmdir(dir);
    free(w);
    free(got);
}

// EAGLE-1 with its target's head, with one of its own and with a bias; greedy and sampled; alone and in a batch.
static void eagle1_is_lossless(void **state) {
    (void)state;
    const pl_backbone_options kinds[] = {{.bias = true},
                                         {.own_head = true},
                                         {.head = pl_hf_head_of("lowrank:rank=12")},
                                         {.head = pl_hf_head_of("dynaspec:router=coral,clusters=9,k0=2,fixed")}};
    char                      dir[64], draft[64];
    world                    *w = calloc(1, sizeof *w);
    transcript               *got = calloc(SESSIONS, sizeof *got);
    test_target(&w->target, test_mkdir(dir), 4, 23, PL_BF16);
    for (int t = 0; t < 2; t++) {
        for (uint64_t k = 0; k < 8; k++)
            run(&w->target, NULL, NULL, 1, k, 1, t, -1, w->plain);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            test_backbone_write(test_mkdir(draft), &w->target, &pl_backbone_eagle1, &kinds[i], 34);
            const char *trees[] = {"chain:3", "chain:auto"};
            for (int k = 0; k < 4; k++) {
                int         n = k < 2 ? 8 : 1;
                pl_drafter *d = open_drafter(w, draft, trees[k % 2], n, n * 17);
                assert_string_equal(d->kind->name, "eagle1");
                run(&w->target, d, NULL, n * 17, 0, n, t, -1, got);
                pl_drafter_destroy(d);
                for (int j = 0; j < n; j++)
                    same(&w->plain[j], &got[j], trees[k % 2]);
            }
            test_rmdir(draft);
        }
    }
    pl_llama_fini(&w->target);
    test_rmdir(dir);
    free(w);
    free(got);
}

// Free drafts, a model's, both in a tree and none, which take turns (infer/decode/choose.h): of one session and of
// eight, and by verifiers that draw, at temperature 0.
static void hybrid_is_lossless(void **state) {
    (void)state;
    static const char *const free_ones[] = {"suffix:12,keep", "recycle:30", "lookup", "suffix:3"};
    char                     dir[64], draft[64], what[160];
    world                   *w = calloc(1, sizeof *w);
    transcript              *got = calloc(SESSIONS, sizeof *got);
    int64_t                  accepted = 0;
    test_target(&w->target, test_mkdir(dir), 8, 21, PL_BF16);
    test_backbone_write(test_mkdir(draft), &w->target, &pl_backbone_eagle3,
                        &(pl_backbone_options){.head = pl_hf_head_of("lowrank:rank=12")}, 33);
    for (int t = 0; t < 2; t++) {
        for (uint64_t k = 0; k < 8; k++)
            run(&w->target, NULL, NULL, 1, k, 1, t, -1, w->plain);
        for (int i = 0; i < 32; i++) {
            int         n = i % 2 ? 8 : 1;
            const char *tree = i / 2 % 2 ? "auto" : i / 4 % 4 == 3 ? "chain:confidence" : "chain:auto";
            const char *with = i / 4 % 2 ? "+" : "";
            bool        whole = i / 8 == 3; // a language model, which reads no features
            snprintf(what, sizeof what, "hybrid:%s%s%s%s", free_ones[i / 8], with, *with && whole ? "lm:" : "",
                     *with ? (whole ? dir : draft) : "");
            pl_drafter *d = open_drafter(w, what, tree, n, n * 80);
            hybrids = true;
            if (t == 0 && i / 2 % 2 == 0 && *with) run_verifier = pl_verifier_at(i / 8);
            run(&w->target, d, NULL, n * 80, 0, n, t, -1, got);
            run_verifier = NULL;
            pl_drafter_destroy(d);
            for (int k = 0; k < n; k++) {
                same(&w->plain[k], &got[k], what);
                accepted += got[k].accepted;
            }
        }
    }
    hybrids = false;
    print_message(
        "hybrids: %lld tokens accepted; cycles without a draft %lld, of FREE %lld, of MODEL %lld, of both %lld\n",
        (long long)accepted, (long long)arms[0], (long long)arms[1], (long long)arms[2], (long long)arms[3]);
    assert_true(accepted > 200);
    for (int i = 0; i < 4; i++)
        assert_true(arms[i] > 20);
    pl_llama_fini(&w->target);
    test_rmdir(dir);
    test_rmdir(draft);
    free(w);
    free(got);
}

// Drafts that come all at once, along every kind of tree, those deeper than a block too.
static void blocks_are_lossless(const pl_backbone_kind *of, const pl_backbone_options *kinds, size_t n_kinds) {
    static const char *const trees[] = {"chain:1",        "chain:4",         "chain:16",           "chain:auto",
                                        "auto",           "static:4x2x1",    "static:0,0,0,1,1,4", "eagle2:20,5,3",
                                        "eagle2:60,10,6", "chain:confidence"};
    char                     dir[64], draft[64], what[96];
    world                   *w = calloc(1, sizeof *w);
    transcript              *got = calloc(SESSIONS, sizeof *got);
    int64_t                  accepted = 0;
    const int                most = test_whole() ? 8 : 4; // sessions
    test_target(&w->target, test_mkdir(dir), 6, 23, PL_BF16);
    for (int t = 0; t < 2; t++) {
        for (uint64_t k = 0; k < (uint64_t)most; k++)
            run(&w->target, NULL, NULL, 1, k, 1, t, -1, w->plain);
        for (size_t i = 0; i < n_kinds; i++) {
            test_backbone_write(test_mkdir(draft), &w->target, of, &kinds[i], 34);
            for (size_t k = 0; k < sizeof trees / sizeof *trees; k++) {
                if (!test_whole() && (i + k) % 2 != (size_t)t) continue;
                int         n = k % 3 ? most : 1;
                pl_drafter *d = open_drafter(w, draft, trees[k], n, n * 80);
                assert_string_equal(d->kind->name, of->name);
                run(&w->target, d, NULL, n * 80, 0, n, t, -1, got);
                pl_drafter_destroy(d);
                snprintf(what, sizeof what, "%s of %d, %s, temperature %d", of->name, kinds[i].block, trees[k], t);
                for (int j = 0; j < n; j++) {
                    same(&w->plain[j], &got[j], what);
                    accepted += got[j].accepted;
                }
            }
            test_rmdir(draft);
        }
    }
    print_message("blocks of a random %s: %lld tokens accepted\n", of->name, (long long)accepted);
    assert_true(accepted > 100);
    pl_llama_fini(&w->target);
    test_rmdir(dir);
    free(w);
    free(got);
}

// Blocks, whose drafts come all at once: with the target's head, one of its own, factors, a list; anchor first, and
// level by level where each token's law is the one before's, up to where the head is not sure; trees deeper than a
// block too.
static void dflash_is_lossless(void **state) {
    (void)state;
    static const int32_t      list[] = {7, 90, 4, 33, 2, 61, 8, 15, 16, 42, 77, 23};
    const pl_backbone_options kinds[] = {
        {.layers = 2, .block = 4, .mask_token = 3, .anchor_first = true},
        {.layers = 2, .block = 6, .mask_token = 3, .anchor_first = true, .head = pl_hf_head_of("markov:rank=12")},
        {.layers = 1,
         .block = 7,
         .mask_token = 3,
         .head = pl_hf_head_of("markov:rank=5,confidence,min_confidence=500")},
        {.layers = 1,
         .block = 5,
         .mask_token = 3,
         .head = pl_hf_head_of("markov:rank=7,form=gated,confidence,min_confidence=400")},
        {.layers = 1,
         .block = 6,
         .mask_token = 3,
         .anchor_first = true,
         .head = pl_hf_head_of("markov:rank=9,form=rnn")},
        {.layers = 1, .block = 6, .mask_token = 3, .head = pl_hf_head_of("xpress:rank=9,passes=2")},
        {.layers = 1, .block = 4, .mask_token = 3, .anchor_first = true, .head = pl_hf_head_of("xpress:rank=7")},
        {.layers = 1,
         .block = 6,
         .mask_token = 3,
         .selector = {.rank = 6, .candidates = 5, .kind = PL_HF_LATTICE, .width = 16, .heads = 2}},
        {.layers = 2, .block = 5, .mask_token = 3},
        {.layers = 2, .block = 5, .mask_token = 3, .window = 11},
        {.layers = 2,
         .block = 6,
         .mask_token = 3,
         .conv_taps = 2,
         .conv_group = 8,
         .selector = {.rank = 4, .candidates = 16}},
        {.layers = 1, .block = 4, .mask_token = 3, .anchor_first = true, .conv_taps = 3, .conv_group = 1},
        {.layers = 1, .block = 9, .mask_token = 96, .own_head = true, .selector = {.rank = 9, .candidates = 3}},
        {.layers = 3, .block = 2, .mask_token = 3, .head = pl_hf_head_of("lowrank:rank=12")},
        {.layers = 2,
         .block = 7,
         .head = pl_hf_head_of("full:position_aware"),
         .own_head = true,
         .d2t = list,
         .draft_vocab = sizeof list / sizeof *list},
        {.layers = 1,
         .block = 5,
         .head = pl_hf_head_of("full:position_aware"),
         .own_head = true,
         .d2t = list,
         .draft_vocab = sizeof list / sizeof *list,
         .selector = {.rank = 3, .candidates = 4}}};
    blocks_are_lossless(&pl_backbone_dflash, kinds, sizeof kinds / sizeof *kinds);
}

// A window that is no smaller than the text changes no draft, a smaller one does; in each layer, or in the first alone.
static void windows(void **state) {
    (void)state;
    enum { N = 4, LONG = 160 };
    char         dir[64], draft[64];
    world       *w = calloc(1, sizeof *w);
    transcript  *got[3] = {calloc(SESSIONS, sizeof **got), calloc(SESSIONS, sizeof **got),
                           calloc(SESSIONS, sizeof **got)};
    pl_hf_config first = {.windowed = {1}};
    test_target(&w->target, test_mkdir(dir), 6, 23, PL_BF16);
    for (int kind = 0; kind < 3; kind++) {
        const int sizes[] = {0, LONG, 6};
        int       changed = 0;
        for (int i = 0; i < 3; i++) {
            pl_backbone_options o = {.layers = 2, .window = sizes[i]};
            if (kind > 0) o.block = 5, o.mask_token = 3;
            first.sliding_window = sizes[i];
            if (kind == 2) o.like_windows = &first;
            test_backbone_write(test_mkdir(draft), &w->target, kind ? &pl_backbone_dflash : &pl_backbone_eagle3, &o,
                                34);
            pl_drafter *d = open_drafter(w, draft, "static:4x2x1", N, N * 80);
            run(&w->target, d, NULL, N * 80, 0, N, 0, -1, got[i]);
            pl_drafter_destroy(d);
            test_rmdir(draft);
        }
        for (int k = 0; k < N; k++) {
            same(&got[0][k], &got[1][k], "a window of all");
            same(&got[0][k], &got[2][k], "a small window");
            assert_true(got[0][k].drafts == got[1][k].drafts);
            changed += got[0][k].drafts != got[2][k].drafts;
        }
        assert_true(changed > 0);
    }
    pl_llama_fini(&w->target);
    test_rmdir(dir);
    for (int i = 0; i < 3; i++)
        free(got[i]);
    free(w);
}

// P-EAGLE, whose context runs through its layers.
static void peagle_is_lossless(void **state) {
    (void)state;
    const pl_backbone_options kinds[] = {
        {.block = 4, .mask_token = 3},
        {.layers = 2, .block = 6, .mask_token = 9, .fc_norm = true, .head = pl_hf_head_of("lowrank:rank=12")},
        {.layers = 2,
         .block = 5,
         .mask_token = 3,
         .norm_before_residual = true,
         .selector = {.rank = 4, .candidates = 16}},
        {.layers = 2, .block = 5, .mask_token = 3, .width = 36}};
    blocks_are_lossless(&pl_backbone_peagle, kinds, sizeof kinds / sizeof *kinds);
}

// Medusa's heads: whole, low-rank, on a list, one alone; its drafts need no cache.
static void medusa_is_lossless(void **state) {
    (void)state;
    static const int32_t      list[] = {7, 90, 4, 33, 2, 61, 8, 15, 16, 42, 77, 23};
    const pl_backbone_options kinds[] = {{.block = 4},
                                         {.block = 6, .head = pl_hf_head_of("lowrank:rank=12")},
                                         {.block = 1},
                                         {.block = 5,
                                          .head = pl_hf_head_of("full:position_aware"),
                                          .d2t = list,
                                          .draft_vocab = sizeof list / sizeof *list}};
    blocks_are_lossless(&pl_backbone_medusa, kinds, sizeof kinds / sizeof *kinds);
}

// Hydra's heads, whose candidates depend on their node's path, and a layer's cache before them.
static void hydra_is_lossless(void **state) {
    (void)state;
    static const int32_t      list[] = {7, 90, 4, 33, 2, 61, 8, 15, 16, 42, 77, 23};
    const pl_backbone_options kinds[] = {{.block = 4},
                                         {.block = 1},
                                         {.block = 6, .layers = 3, .head = pl_hf_head_of("lowrank:rank=12")},
                                         {.block = 5,
                                          .head = pl_hf_head_of("full:position_aware"),
                                          .d2t = list,
                                          .draft_vocab = sizeof list / sizeof *list}};
    blocks_are_lossless(&pl_backbone_hydra, kinds, 2);
    blocks_are_lossless(&pl_backbone_hydrapp, kinds, sizeof kinds / sizeof *kinds);
}

// Targets of other families than Llama, greedy and sampled, with chains and trees and an EAGLE-3 drafter that is told
// to fit them, and with their own layer for drafting.
static void families_are_lossless(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool        bias, norm, window, caps, sinks, delta;
        int         experts;
    } families[] = {{"Qwen2", .bias = true},
                    {"Qwen3", .norm = true},
                    {"Gemma2", .window = true, .caps = true},
                    {"Mistral", .window = true},
                    {"Mixtral", .experts = 5},
                    {"Qwen3Moe", .norm = true, .experts = 9},
                    {"GptOss", .bias = true, .window = true, .sinks = true, .experts = 5},
                    {"Qwen3Next", .norm = true, .delta = true, .experts = 5}};
    enum { FAMILIES = sizeof families / sizeof *families };
    static const char *const trees[] = {"chain:3", "eagle2:12,4,4"};
    for (int f = 0; f < FAMILIES; f++) {
        char        dir[64], draft[64], what[96];
        world      *w = calloc(1, sizeof *w);
        transcript *got = calloc(SESSIONS, sizeof *got);
        test_target_family(&w->target, test_mkdir(dir), families[f].name, 4, 29, f % 2 ? PL_F32 : PL_BF16);
        const pl_hf_config *c = &w->target.config;
        assert_true(c->qkv_bias == families[f].bias && c->qk_norm == families[f].norm);
        assert_true((c->sliding_window > 0) == families[f].window && c->experts == families[f].experts);
        assert_true((c->attention_softcap > 0 && c->final_softcap > 0 && c->post_norms) == families[f].caps);
        assert_true(c->sinks == families[f].sinks && (c->delta.value_heads > 0) == families[f].delta);
        test_drafter_write(test_mkdir(draft), &w->target, "full", 0, 31);
        for (int t = 0; t < 2; t++) {
            for (uint64_t k = 0; k < (t == 0 ? SESSIONS : 8); k++)
                run(&w->target, NULL, NULL, 1, k, 1, t, -1, w->plain);
            snprintf(what, sizeof what, "%s trees at every offset", families[f].name);
            // A draw depends on its position, not on a tree's place.
            if (t == 0) check_placed(w, NULL, got, f, FAMILIES, what);
            for (int i = 0; i < (families[f].delta ? 4 : 2); i++) {
                pl_drafter *d = open_drafter(w, i < 2 ? draft : "mtp", trees[i % 2], 8, 8 * 17);
                run(&w->target, d, NULL, 8 * 17, 0, 8, t, -1, got);
                pl_drafter_destroy(d);
                snprintf(what, sizeof what, "%s, %s%s", families[f].name, i < 2 ? "" : "mtp, ", trees[i % 2]);
                for (int j = 0; j < 8; j++)
                    same(&w->plain[j], &got[j], what);
            }
        }
        pl_llama_fini(&w->target);
        test_rmdir(draft);
        test_rmdir(dir);
        free(w);
        free(got);
    }
}

// Children drawn in every way, in trees of given and of adapting shape: a verifier that only matches emits plain
// sampling's tokens whatever is drafted, so what is drawn, merged and left out must not disturb anything.
static void drawn_by(const pl_backbone_kind *kind, const pl_backbone_options *of) {
    static size_t drafter; // calls so far
    char          dir[64], draft[64], what[96];
    pl_err        err = {0};
    world        *w = calloc(1, sizeof *w);
    transcript   *got = calloc(SESSIONS, sizeof *got);
    test_target(&w->target, test_mkdir(dir), 3, 23, PL_BF16);
    test_backbone_write(test_mkdir(draft), &w->target, kind, of, 35);
    for (uint64_t k = 0; k < 8; k++)
        run(&w->target, NULL, NULL, 1, k, 1, 1, -1, w->plain);
    for (int way = PL_PROPOSE_IID; way <= PL_PROPOSE_TOP_ONE; way++) {
        pl_verifier       v = {.name = "matches", .proposal = (pl_proposal)way, .lossless = true};
        bool              wor = way == PL_PROPOSE_WOR;
        // Every third begins with another drafter and proposal: each pair of the three is seen.
        const char *const trees[] = {"chain:3",
                                     "static:4x2x1",
                                     "auto",
                                     wor ? "beam:4,4" : "sequences:4,3",
                                     "static:0,0,0,1,1,2",
                                     wor ? "dyspec:24,6,4" : "sequences:3,4"};
        drawn_nodes = merged_nodes = 0;
        run_verifier = &v;
        for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
            if (!test_whole() && (i + (size_t)way + drafter) % 3) continue;
            pl_drafter *d = open_drafter(w, draft, trees[i], 8, 8 * 64);
            run(&w->target, d, NULL, 8 * 64, 0, 8, 1, -1, got);
            pl_drafter_destroy(d);
            snprintf(what, sizeof what, "%s of %s, proposal %d", trees[i], kind->name, way);
            for (int k = 0; k < 8; k++)
                same(&w->plain[k], &got[k], what);
        }
        assert_true(drawn_nodes > 1000);
        assert_true(way == PL_PROPOSE_IID ? merged_nodes > 0 : merged_nodes == 0);
        // A tree that chooses among its nodes is refused.
        pl_drafter       *d;
        pl_engine        *e;
        pl_engine_options o = {.max_sessions = 1, .max_rows = 64, .max_len = 160, .verifier = &v};
        assert_int_equal(pl_drafter_open(&d, draft,
                                         &(pl_drafter_options){.target = &w->target,
                                                               .dtype = PL_BF16,
                                                               .tree = "eagle2:20,5,3",
                                                               .max_sessions = 1,
                                                               .max_rows = 64,
                                                               .slots = 160},
                                         &err),
                         PL_OK);
        assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), NULL, &w->target, d, &o, &err), PL_E_USAGE);
        assert_non_null(strstr(err.msg, "eagle2"));
        pl_drafter_destroy(d);
    }
    drafter++;
    run_verifier = NULL;
    pl_llama_fini(&w->target);
    test_rmdir(draft);
    test_rmdir(dir);
    free(w);
    free(got);
}

static void drawn_children(void **state) {
    (void)state;
    drawn_by(&pl_backbone_eagle3, &(pl_backbone_options){0});
    drawn_by(&pl_backbone_dflash, &(pl_backbone_options){.layers = 2, .block = 4, .mask_token = 3});
    drawn_by(&pl_backbone_dflash,
             &(pl_backbone_options){
                 .layers = 2, .block = 4, .anchor_first = true, .head = pl_hf_head_of("markov:rank=9,confidence")});
    drawn_by(&pl_backbone_dflash,
             &(pl_backbone_options){
                 .layers = 1, .block = 4, .anchor_first = true, .head = pl_hf_head_of("markov:rank=9,form=rnn")});
    drawn_by(&pl_backbone_dflash,
             &(pl_backbone_options){.layers = 1, .block = 4, .mask_token = 3, .head = pl_hf_head_of("xpress:rank=9")});
    for (int law = 0; law < 2; law++)
        drawn_by(
            &pl_backbone_dflash,
            &(pl_backbone_options){
                .layers = 1,
                .block = 4,
                .mask_token = 3,
                .selector = {.rank = 6, .candidates = 40, .law = (pl_hf_law)law, .kind = PL_HF_LATTICE, .width = 16}});
    drawn_by(&pl_backbone_dflash, &(pl_backbone_options){.layers = 1,
                                                         .block = 4,
                                                         .mask_token = 3,
                                                         .conv_taps = 2,
                                                         .conv_group = 16,
                                                         .selector = {.rank = 6, .candidates = 40}});
    drawn_by(&pl_backbone_eagle3, &(pl_backbone_options){.selector = {.rank = 6, .candidates = 40}});
    drawn_by(&pl_backbone_eagle3,
             &(pl_backbone_options){.selector = {.rank = 6, .candidates = 40, .law = PL_HF_LAW_LIST}});
    drawn_by(&pl_backbone_dflash,
             &(pl_backbone_options){.layers = 1,
                                    .block = 4,
                                    .mask_token = 3,
                                    .selector = {.rank = 6, .candidates = 40, .law = PL_HF_LAW_LIST}});
    drawn_by(&pl_backbone_eagle3, &(pl_backbone_options){.head = pl_hf_head_of("specvocab:rank=12,candidates=60"),
                                                         .selector = {.rank = 6, .candidates = 40}});
    drawn_by(&pl_backbone_eagle3,
             &(pl_backbone_options){.head = pl_hf_head_of("dynaspec:clusters=12,width=20,k0=6,k1=6"),
                                    .selector = {.rank = 6, .candidates = 40}});
    drawn_by(&pl_backbone_peagle, &(pl_backbone_options){.layers = 2, .block = 4, .mask_token = 3});
    drawn_by(&pl_backbone_medusa, &(pl_backbone_options){.block = 4});
    drawn_by(&pl_backbone_hydrapp, &(pl_backbone_options){.block = 4, .layers = 1});
}

// As they begin, convolutions and selector change nothing: candidates, their logits, and the logits of all that is
// drawn from are those of the drafter without them, for every token before, bit for bit.
typedef struct beginning {
    const pl_backbone *b;
    int32_t            id[2][6];
    float              value[2][6], logits[2][TEST_VOCAB];
} beginning;

static void run_beginning(pl_ctx *ctx, void *arg) {
    enum { ROWS = 8, CONTEXT = 5 };
    static const int32_t token[ROWS] = {17, 3, 3, 3, 60, 3, 3, 3}, pos[ROWS] = {5, 6, 7, 8, 3, 4, 5, 6};
    static const int32_t context_pos[CONTEXT] = {0, 1, 2, 3, 4}, lo[2] = {0, 0}, hi[2] = {5, 3}, before[2] = {17, 44};
    static float         features[CONTEXT * 3 * 256];
    static const int32_t row[2] = {1, 6};
    beginning           *o = arg;
    for (int64_t i = 0; i < CONTEXT * o->b->n_taps * o->b->d_target; i++)
        features[i] = (float)((i * 37 + 11) % 101 - 50) / 32;
    const pl_block_view v = {.features = pl_tensor_2d(features, PL_F32, CONTEXT, o->b->n_taps * o->b->d_target),
                             .context_pos = context_pos,
                             .token = token,
                             .pos = pos,
                             .m = ROWS,
                             .lo = lo,
                             .hi = hi};
    pl_tensor           y = o->b->kind->draft(ctx, o->b, &v);
    pl_head_rows        r = {.x = pl_gather(ctx, y, row, 2), .token = before};
    int32_t            *id = pl_ctx_bytes(ctx, sizeof o->id);
    float              *value = pl_ctx_bytes(ctx, sizeof o->value);
    pl_head_topk(ctx, &o->b->head, &r, 6, id, value, NULL);
    pl_tensor logits = pl_head_logits(ctx, &o->b->head, &r);
    if (ctx->measuring) return;
    memcpy(o->logits, pl_f32(&logits), sizeof o->logits);
    memcpy(o->id, id, sizeof o->id);
    memcpy(o->value, value, sizeof o->value);
}

static void second_begins_as_the_first(void **state) {
    (void)state;
    const pl_backbone_options kinds[] = {{.layers = 2, .block = 4, .mask_token = 3, .n_taps = 2, .tap = {1, 2}},
                                         {.layers = 2,
                                          .block = 4,
                                          .mask_token = 3,
                                          .n_taps = 2,
                                          .tap = {1, 2},
                                          .conv_taps = 2,
                                          .conv_group = 16,
                                          .selector = {.rank = 5, .candidates = 6}}};
    beginning                 o[2] = {0};
    char                      dir[64], draft[2][64];
    world                    *w = calloc(1, sizeof *w);
    pl_err                    err = {0};
    test_target(&w->target, test_mkdir(dir), 4, 23, PL_BF16);
    for (int i = 0; i < 2; i++) {
        pl_backbone *b;
        pl_ctx       ctx;
        test_backbone_begun(test_mkdir(draft[i]), &w->target, &pl_backbone_dflash, &kinds[i], 34);
        assert_int_equal(pl_backbone_open(&b, draft[i], &w->target, PL_F32, &err), PL_OK);
        assert_int_equal(b->params.n, i ? 2 * (9 + 4) + 3 + 3 : 2 * 9 + 3);
        o[i].b = b;
        assert_int_equal(pl_ctx_init(&ctx, pl_backend_cpu(), NULL), PL_OK);
        assert_int_equal(pl_ctx_measure(&ctx, run_beginning, &o[i], &err), PL_OK);
        pl_ctx_begin(&ctx);
        run_beginning(&ctx, &o[i]);
        assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
        pl_ctx_fini(&ctx);
        pl_backbone_destroy(b);
    }
    assert_memory_equal(o[0].id, o[1].id, sizeof o[0].id);
    assert_memory_equal(o[0].value, o[1].value, sizeof o[0].value);
    assert_memory_equal(o[0].logits, o[1].logits, sizeof o[0].logits);
    assert_true(o[0].value[0][0] > o[0].value[0][5]);
    pl_llama_fini(&w->target);
    for (int i = 0; i < 2; i++)
        test_rmdir(draft[i]);
    test_rmdir(dir);
    free(w);
}

// After any sequence of trees and commits the cache holds what reading the text at once puts there.
static void check_cache(pl_dtype kv) {
    char        dir[64];
    pl_err      err = {0};
    world      *w = calloc(1, sizeof *w);
    test_oracle o;
    test_target(&w->target, test_mkdir(dir), 3, 17, PL_BF16);
    w->target.shape.kv = kv;
    for (uint64_t key = 3; key < 40; key += 4) {
        int32_t            ids[128], script_n[1];
        const int32_t     *script[1];
        int                len = prompt_of(key, ids);
        pl_engine         *e[2];
        pl_session        *s[2];
        pl_session_options so = {.sampling = {.top_p = 1}, .key = key, .max_new = MAX_NEW};
        pl_engine_options  eo = {.max_sessions = 1, .max_rows = TEST_NODES, .max_len = 160};
        run(&w->target, NULL, NULL, 1, key, 1, 0, -1, w->plain);
        test_oracle_init(&o, TEST_PLACED, "chain:16", TEST_NODES, 1);
        oracle_scripts(&o, w->plain, key, 1, script, script_n);
        assert_int_equal(pl_engine_create(&e[0], pl_backend_cpu(), NULL, &w->target, &o.base, &eo, &err), PL_OK);
        assert_int_equal(pl_engine_start(e[0], ids, len, &so, &s[0], &err), PL_OK);
        while (s[0]->finish == PL_RUNNING)
            assert_int_equal(pl_engine_step(e[0], &err), PL_OK);
        assert_true(s[0]->stats.accepted > 0 && s[0]->n_read > len);
        eo.max_rows = 160;
        so.max_new = 1;
        assert_int_equal(pl_engine_create(&e[1], pl_backend_cpu(), NULL, &w->target, NULL, &eo, &err), PL_OK);
        assert_int_equal(pl_engine_start(e[1], s[0]->tokens, s[0]->n_read, &so, &s[1], &err), PL_OK);
        assert_int_equal(pl_engine_step(e[1], &err), PL_OK);
        assert_int_equal(s[1]->n_read, s[0]->n_read);
        size_t bytes = (size_t)s[0]->n_read * (size_t)s[0]->kv.width * (kv == PL_BF16 ? 2 : 4);
        assert_int_equal(s[0]->kv.bytes,
                         2 * w->target.n_layers * s[0]->kv.slots * s[0]->kv.width * (int64_t)(kv == PL_BF16 ? 2 : 4));
        for (int l = 0; l < w->target.n_layers; l++) {
            assert_memory_equal(pl_kv_k(&s[0]->kv, l), pl_kv_k(&s[1]->kv, l), bytes);
            assert_memory_equal(pl_kv_v(&s[0]->kv, l), pl_kv_v(&s[1]->kv, l), bytes);
        }
        pl_engine_destroy(e[0]);
        pl_engine_destroy(e[1]);
    }
    pl_llama_fini(&w->target);
    test_rmdir(dir);
    free(w);
}

static void cache_is_a_prefills(void **state) {
    (void)state;
    check_cache(PL_F32);
    check_cache(PL_BF16);
}

// After a warm-up step the loop allocates nothing.
static void allocates_nothing(const char *tree) {
    char        dir[64], draft[64];
    pl_err      err = {0};
    pl_llama    m;
    pl_drafter *d;
    pl_engine  *e;
    pl_session *s;
    int32_t     ids[4] = {1, 2, 3, 4};
    test_target(&m, test_mkdir(dir), 4, 2, PL_BF16);
    test_drafter_write(test_mkdir(draft), &m, "lowrank", 8, 3);
    assert_int_equal(
        pl_drafter_open(
            &d, draft,
            &(pl_drafter_options){
                .target = &m, .dtype = PL_BF16, .tree = tree, .max_sessions = 1, .max_rows = 64, .slots = 200},
            &err),
        PL_OK);
    pl_engine_options o = {.max_sessions = 1, .max_rows = 64, .max_len = 200};
    assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), NULL, &m, d, &o, &err), PL_OK);
    pl_session_options so = {.sampling = {.top_p = 1}, .max_new = 150};
    assert_int_equal(pl_engine_start(e, ids, 4, &so, &s, &err), PL_OK);
    uint64_t before = pl_alloc_count();
    while (s->finish == PL_RUNNING)
        assert_int_equal(pl_engine_step(e, &err), PL_OK);
    assert_int_equal(pl_alloc_count() - before, 0);
    assert_int_equal(s->stats.emitted, s->n_tokens - s->n_prompt - 1);
    assert_int_equal(s->stats.emitted, s->stats.accepted + s->stats.steps);
    pl_engine_destroy(e);
    pl_drafter_destroy(d);
    pl_llama_fini(&m);
    test_rmdir(dir);
    test_rmdir(draft);
}

static void no_allocation(void **state) {
    (void)state;
    allocates_nothing("chain:5");
    allocates_nothing("static:4x2x1");
    allocates_nothing("eagle2:60,10,6");
    allocates_nothing("auto");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_fp32),
        cmocka_unit_test(bits_bf16),
        cmocka_unit_test(bits_of_caches_in_bf16),
        cmocka_unit_test(drafters_of_caches_in_bf16),
        cmocka_unit_test(sampled_equals_plain),
        cmocka_unit_test(stop_inside_block),
        cmocka_unit_test(eagle3_is_lossless),
        cmocka_unit_test(hybrid_is_lossless),
        cmocka_unit_test(drawn_children),
        cmocka_unit_test(second_begins_as_the_first),
        cmocka_unit_test(cache_is_a_prefills),
        cmocka_unit_test(eagle1_is_lossless),
        cmocka_unit_test(windows),
        cmocka_unit_test(dflash_is_lossless),
        cmocka_unit_test(peagle_is_lossless),
        cmocka_unit_test(medusa_is_lossless),
        cmocka_unit_test(hydra_is_lossless),
        cmocka_unit_test(families_are_lossless),
        cmocka_unit_test(no_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
