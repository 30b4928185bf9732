// Drafters of which every layer has a window hold the last positions alone. Drafts, sessions and kept prefixes are
// those of a cache of all positions, which a drafter has whose calls may bring that many rows.
#include "infer/decode/decode.h"
#include "kernels/base/hash.h"
#include "kernels/base/room.h"
#include "tests/infer/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device.h"

enum { LEN = 640, ROWS = 12, WINDOW = 20 };

typedef struct drafter_case {
    const char             *what, *tree;
    const pl_backbone_kind *kind;
    pl_backbone_options     o;
    bool                    bf16; // its cache
} drafter_case;

static const pl_hf_config causal = {.sliding_window = WINDOW, .windowed = {3}, .block = {.causal = PL_HF_CAUSAL_ALL}},
                          half = {.sliding_window = WINDOW, .windowed = {1}};

static const drafter_case cases[] = {
    {"eagle3", "eagle2:20,5,4", &pl_backbone_eagle3, {.window = WINDOW}, false},
    {"eagle3, keys in bf16", "static:3x2x1", &pl_backbone_eagle3, {.window = WINDOW}, true},
    {"eagle3, three layers", "eagle2:12,4,3", &pl_backbone_eagle3, {.layers = 3, .window = WINDOW}, false},
    {"eagle3, less than a group", "chain:5", &pl_backbone_eagle3, {.layers = 2, .window = 5}, false},
    {"eagle3, three groups", "static:3x2x1", &pl_backbone_eagle3, {.layers = 2, .window = 96}, false},
    {"dflash", "static:3x2x1", &pl_backbone_dflash, {.layers = 2, .block = 6, .mask_token = 1, .window = WINDOW}, true},
    {"dflash, causal blocks",
     "chain:5",
     &pl_backbone_dflash,
     {.layers = 2, .block = 6, .mask_token = 1, .like_windows = &causal},
     false}};
enum { CASES = sizeof cases / sizeof *cases };

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

// A target of so many positions, and a case's drafter.
typedef struct world {
    char     dir[64], draft[64];
    pl_llama target;
} world;

static void open_world(world *w, const drafter_case *c, const char *family, const pl_backend *be) {
    pl_err err = {0};
    test_target_family(&w->target, test_mkdir(w->dir), family, 4, 23, PL_BF16);
    test_backbone_write(test_mkdir(w->draft), &w->target, c->kind, &c->o, 34);
    if (be) {
        pl_llama_fini(&w->target);
        must(pl_llama_open(&w->target, w->dir, PL_BF16, be, &err), &err);
    }
    w->target.config.max_position_embeddings = 4 * LEN;
    if (c->bf16) w->target.shape.kv = PL_BF16;
}

static void close_world(world *w) {
    pl_llama_fini(&w->target);
    test_rmdir(w->dir);
    test_rmdir(w->draft);
}

// rows: of a session in a call; LEN: its cache holds all positions.
static pl_drafter *open_drafter(const world *w, const char *what, const char *tree, int rows, int slots) {
    pl_drafter        *d;
    pl_err             err = {0};
    pl_drafter_options o = {.target = &w->target,
                            .dtype = PL_BF16,
                            .tree = tree,
                            .max_sessions = 1,
                            .max_rows = LEN,
                            .chunk = rows,
                            .slots = slots};
    must(pl_drafter_open(&d, what, &o, &err), &err);
    return d;
}

static void random_ids(int32_t *ids, int n, int seed) {
    pl_rng r = pl_rng_make(11, PL_STREAM_TEST, (uint64_t)seed);
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)pl_rng_below(r, (uint64_t)i, TEST_VOCAB);
}

// ---- drafts ---------------------------------------------------------------------------------------------------------

typedef struct reader {
    pl_drafter    *d;
    pl_ctx         ctx;
    const float   *features; // [LEN, width] of the text
    int64_t        width;
    const int32_t *tokens;
    int32_t        row[LEN], taken; // rows that it has taken in
    pl_tree        tree;
} reader;

typedef struct call {
    reader *r;
    int     count;
    bool    grows;
} call;

static void propose(pl_ctx *ctx, void *arg) {
    const call    *c = arg;
    reader        *r = c->r;
    pl_draft_item  it = {.tokens = r->tokens,
                         .n_tokens = r->taken + c->count + 1,
                         .first = r->taken,
                         .count = c->count,
                         .feature_row = r->row,
                         .tree = c->grows ? &r->tree : NULL,
                         .depth = 8};
    pl_draft_batch b = {.item = &it, .n = !ctx->measuring};
    b.features = pl_ctx_write(ctx, r->features + r->taken * r->width, c->count, r->width);
    if (c->grows) pl_tree_root(&r->tree, r->tokens[it.n_tokens - 1]);
    r->d->kind->propose(r->d, ctx, &b);
}

static reader *open_reader(const world *w, const char *tree, int rows, const float *features, const int32_t *tokens) {
    pl_err  err = {0};
    reader *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->d = open_drafter(w, w->draft, tree, rows, LEN);
    r->width = (int64_t)r->d->n_taps * w->target.shape.d;
    r->features = features;
    r->tokens = tokens;
    for (int i = 0; i < LEN; i++)
        r->row[i] = i;
    must(pl_ctx_init(&r->ctx, w->target.be, NULL), &err);
    must(pl_ctx_measure(&r->ctx, propose, &(call){r, rows, false}, &err), &err);
    return r;
}

static void close_reader(reader *r) {
    pl_ctx_fini(&r->ctx);
    pl_drafter_destroy(r->d);
    free(r);
}

// Takes in rows up to position `to`, at most so many at a time, and with the last of them grows a tree.
static void read_to(reader *r, int32_t to, int most) {
    pl_err err = {0};
    while (r->taken < to) {
        int count = to - r->taken < most ? to - r->taken : most;
        pl_ctx_begin(&r->ctx);
        propose(&r->ctx, &(call){r, count, r->taken + count == to});
        must(pl_ctx_sync(&r->ctx, &err), &err);
        r->taken += count;
    }
}

static bool same_tree(const pl_tree *a, const pl_tree *b) {
    size_t n = (size_t)a->n;
    return a->n == b->n && memcmp(a->token, b->token, n * sizeof *a->token) == 0 &&
           memcmp(a->parent, b->parent, n * sizeof *a->parent) == 0 &&
           memcmp(a->score, b->score, n * sizeof *a->score) == 0;
}

// A text of random features, so often over: drafts at random places, between which the two take in rows by different
// divisions. n: rows; dense: drafts after a few rows, mostly.
static void check_drafts(const drafter_case *c, const pl_backend *be, int n, int rounds, bool dense) {
    world   w;
    pl_rng  rng = pl_rng_make(7, PL_STREAM_TEST, 3);
    int32_t tokens[LEN + 1];
    int     drafts = 0, nodes = 0;
    open_world(&w, c, "Llama", be);
    pl_drafter *d = open_drafter(&w, w.draft, c->tree, 1, LEN);
    int64_t     width = (int64_t)d->n_taps * w.target.shape.d;
    float      *features = malloc((size_t)(LEN * width) * sizeof *features);
    pl_drafter_destroy(d);
    assert_non_null(features);
    random_ids(tokens, LEN + 1, 2);
    for (int64_t i = 0; i < LEN * width; i++)
        features[i] = pl_bf16_to_f32(pl_f32_to_bf16(pl_rng_normal(rng, (uint64_t)i)));
    reader *all = open_reader(&w, c->tree, LEN, features, tokens),
           *few = open_reader(&w, c->tree, ROWS, features, tokens);
    if (few->d->cache_bytes > all->d->cache_bytes / 2) fail_msg("%s: %g bytes", c->what, few->d->cache_bytes);
    for (int round = 0; round < rounds; round++) { // the second is another session in the slot
        all->taken = few->taken = 0;
        for (uint64_t at = 0; few->taken < n - ROWS; at += 2, drafts++) {
            int32_t step = 1 + (int32_t)pl_rng_below(rng, at, dense && at % 3 ? 4 : 3 * ROWS), to = few->taken + step;
            if (to > n) to = n;
            read_to(all, to, LEN);
            read_to(few, to, 1 + (int)pl_rng_below(rng, at + 1, ROWS));
            nodes += all->tree.n;
            if (!same_tree(&all->tree, &few->tree))
                fail_msg("%s: drafts differ after %d of %d rows", c->what, (int)to, n);
        }
    }
    print_message("%s: %d drafts of %d nodes, caches of %.0f and %.0f bytes\n", c->what, drafts, nodes,
                  all->d->cache_bytes, few->d->cache_bytes);
    assert_true(nodes > 3 * drafts);
    close_reader(all);
    close_reader(few);
    free(features);
    close_world(&w);
}

static void drafts_are_those_of_all_positions(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++)
        check_drafts(&cases[c], NULL, LEN - 4, 2, true);
}

static void drafts_on_a_device(void **state) {
    (void)state;
    for (int c = 1; c < CASES; c += 4)
        check_drafts(&cases[c], test_device(), 260, 1, false);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

static double bytes_of(const world *w, const char *what, int rows, int slots) {
    pl_drafter *d = open_drafter(w, what, strstr(what, "hybrid") ? "chain:auto" : "chain:4", rows, slots);
    double      bytes = d->cache_bytes;
    pl_drafter_destroy(d);
    return bytes;
}

// A bound on memory counts the smaller cache: it refuses the other one, of a million positions.
static void check_room(const world *w, const char *refused) {
    enum { MANY = 1 << 20 };
    pl_drafter        *d = NULL;
    pl_err             err = {0};
    char               most[32];
    pl_llama           target = w->target;
    pl_drafter_options o = {.target = &target, .dtype = PL_BF16, .max_sessions = 1, .max_rows = ROWS, .slots = MANY};
    target.config.max_position_embeddings = MANY + 999;
    snprintf(most, sizeof most, "%.0f", pl_memory_resident() + 150e6);
    setenv("PACELINE_MEMORY", most, 1);
    pl_status st = pl_drafter_open(&d, w->draft, &o, &err);
    unsetenv("PACELINE_MEMORY");
    if (refused)
        assert_true(st == PL_E_MEMORY && strstr(err.msg, refused));
    else
        must(st, &err);
    pl_drafter_destroy(d);
}

// Memory does not depend on a text's length where all layers have a window, and does where one has none.
static void memory_is_bounded(void **state) {
    (void)state;
    static const drafter_case full[] = {
        {.kind = &pl_backbone_eagle3, .o = {.layers = 2}},
        {.kind = &pl_backbone_dflash, .o = {.layers = 2, .block = 6, .mask_token = 1, .like_windows = &half}}};
    char what[160];
    for (int c = 0; c < CASES; c++) {
        world w;
        open_world(&w, &cases[c], "Llama", NULL);
        double each = 2.0 * (double)(w.target.shape.nkv * w.target.shape.hd) * (cases[c].bf16 ? 2 : 4);
        int    layers = cases[c].o.layers ? cases[c].o.layers : 1, window = cases[c].o.window;
        double held = bytes_of(&w, w.draft, ROWS, LEN) / (each * layers);
        assert_true(bytes_of(&w, w.draft, ROWS, LEN) == bytes_of(&w, w.draft, ROWS, 4 * LEN - 8));
        assert_true(held >= (window ? window : WINDOW) + ROWS && held <= (window ? window : WINDOW) + ROWS + 64 + 6);
        snprintf(what, sizeof what, "hybrid:suffix+%s", w.draft);
        assert_true(bytes_of(&w, what, ROWS, 4 * LEN - 99) == bytes_of(&w, what, ROWS, LEN));
        assert_true(bytes_of(&w, w.draft, ROWS, 60) < bytes_of(&w, w.draft, ROWS, LEN)); // no more than the text
        if (c == 3) check_room(&w, NULL);
        close_world(&w);
    }
    for (int c = 0; c < 2; c++) {
        world w;
        open_world(&w, &full[c], "Llama", NULL);
        assert_true(bytes_of(&w, w.draft, ROWS, 4 * LEN - 8) > 3 * bytes_of(&w, w.draft, ROWS, LEN));
        check_room(&w, "the cache of keys and values");
        close_world(&w);
    }
}

// ---- sessions -------------------------------------------------------------------------------------------------------

typedef struct text {
    int32_t  id[LEN + 1], n;
    int      reused, cycles;
    int64_t  accepted;
    uint64_t drafts; // hash of all trees: tokens, parents and scores
} text;

static void see_cycle(void *arg, const pl_cycle *c) {
    text  *t = arg;
    size_t n = (size_t)c->tree->n;
    t->cycles++;
    t->drafts = pl_hash_more(t->drafts, c->tree->token, n * sizeof *c->tree->token);
    t->drafts = pl_hash_more(t->drafts, c->tree->parent, n * sizeof *c->tree->parent);
    t->drafts = pl_hash_more(t->drafts, c->tree->score, n * sizeof *c->tree->score);
}

// One session: the first `take` tokens of one of two given texts (-1, -2), or of what the session `from` became, and
// some more. ended: after so many steps; 0: at its end.
typedef struct turn {
    int from, take, more, ended;
} turn;

static const turn turns[] = {
    {-1, 300, 0, 0},   {0, 308, 5, 0}, // goes on from all of it but the end of the answer
    {1, 326, 9, 0},                    // and again
    {2, 320, 4, 0},                    // back within what is held
    {-1, 150, 0, 0},                   // back to where it is not: the last rows of a prefix come again
    {-1, 148, 3, 0},                   // back by a little more, to where keys are there, but of rows that lacked some
    {-1, 300, 0, 0},   {-1, 120, 200, 0}, // a common beginning, and rows anew that fill the cache
    {7, 310, 0, 2},                       // ended early
    {-1, 120, 200, 0}, {-1, 290, 0, 9},   // ended within its prompt
    {-1, 290, 0, 0},   {-2, 280, 0, 0},   {-2, 30, 0, 0}, {-2, 280, 0, 0}, {-2, 1, 0, 0}};
enum { TURNS = sizeof turns / sizeof *turns };

// Runs the turns one after the other in an engine's only slot. became: texts of which every turn was run to its end.
static void run_turns(const world *w, pl_drafter *d, pl_engine_options o, const pl_verifier *v, double temperature,
                      const text *became, text *out) {
    pl_engine *e;
    pl_err     err = {0};
    o.max_sessions = 1;
    o.max_len = LEN;
    o.verifier = v;
    must(pl_engine_create(&e, pl_backend_cpu(), NULL, &w->target, d, &o, &err), &err);
    for (int i = 0; i < TURNS; i++) {
        const turn        *t = &turns[i];
        int32_t            ids[LEN];
        pl_session        *s;
        pl_session_options so = {.sampling = {.temperature = temperature, .top_p = 1, .seed = 3}, .max_new = 24};
        out[i] = (text){.drafts = 1};
        if (t->from < 0)
            random_ids(ids, t->take, 90 - t->from);
        else
            memcpy(ids, (became ? became : out)[t->from].id, (size_t)t->take * sizeof *ids);
        random_ids(ids + t->take, t->more, 200 + i);
        pl_engine_on_cycle(e, see_cycle, &out[i]);
        must(pl_engine_start(e, ids, t->take + t->more, &so, &s, &err), &err);
        for (int step = 0; pl_session_finish(s) == PL_RUNNING && (!became || !t->ended || step < t->ended); step++)
            must(pl_engine_step(e, &err), &err);
        out[i].n = pl_session_length(s);
        out[i].reused = pl_session_reused(s);
        out[i].accepted = pl_session_statistics(s)->accepted;
        memcpy(out[i].id, pl_session_tokens(s), (size_t)out[i].n * sizeof *out[i].id);
        pl_engine_end(e, s);
    }
    pl_engine_destroy(e);
}

// A small cache, with kept prefixes, in chunks: the drafts of a cache of all positions that reads every prompt anew.
static void check_sessions(const drafter_case *c, const char *family, const char *free_one, double temperature) {
    static text        plain[TURNS], fresh[TURNS], kept[TURNS];
    char               what[160];
    world              w;
    pl_err             err = {0};
    const pl_verifier *v = temperature > 0 ? pl_verifier_find("rejection", &err) : NULL;
    int                layers = c->o.layers && c->kind->step ? c->o.layers : 1, rows = 0, reused = 0, refilled = 0;
    int64_t            accepted = 0;
    open_world(&w, c, family, NULL);
    const char *tree = *free_one ? "chain:auto" : temperature > 0 ? "chain:4" : c->tree;
    snprintf(what, sizeof what, "%s%s", free_one, w.draft);
    pl_drafter *all = open_drafter(&w, what, tree, LEN, LEN);
    rows = all->policy.max_nodes > ROWS ? all->policy.max_nodes : ROWS;
    pl_drafter *few = open_drafter(&w, what, tree, rows, LEN);
    assert_true(few->cache_bytes < all->cache_bytes / 2);
    run_turns(&w, NULL, (pl_engine_options){.max_rows = 64}, v, temperature, NULL, plain);
    run_turns(&w, all, (pl_engine_options){.max_rows = LEN}, v, temperature, NULL, fresh);
    run_turns(&w, few, (pl_engine_options){.max_rows = rows, .keep_prefixes = true}, v, temperature, fresh, kept);
    for (int i = 0; i < TURNS; i++) {
        int n = turns[i].take + turns[i].more, window = c->o.window ? c->o.window : WINDOW;
        accepted += fresh[i].accepted;
        reused += kept[i].reused;
        refilled += i > 0 && kept[i].reused == n - layers * window;
        if (temperature == 0 && (plain[i].n != fresh[i].n || memcmp(plain[i].id, fresh[i].id, (size_t)plain[i].n * 4)))
            fail_msg("%s, turn %d: not plain decoding's text", c->what, i);
        if (turns[i].ended) continue;
        if (fresh[i].n != kept[i].n || memcmp(fresh[i].id, kept[i].id, (size_t)kept[i].n * 4) != 0)
            fail_msg("%s, turn %d: other tokens", c->what, i);
        if (!*free_one && (fresh[i].drafts != kept[i].drafts || fresh[i].cycles != kept[i].cycles))
            fail_msg("%s, temperature %g, turn %d (%d of %d reused): other drafts", c->what, temperature, i,
                     kept[i].reused, n);
    }
    print_message("%s, %s: %d positions reused, %d prefixes refilled, %d accepted\n", c->what, family, reused, refilled,
                  (int)accepted);
    assert_true(accepted > 0);
    assert_true(reused > (w.target.recurrent ? 500 : *free_one ? 0 : 1500));
    if (!w.target.recurrent && !*free_one) assert_true(refilled >= 3);
    pl_drafter_destroy(few);
    pl_drafter_destroy(all);
    close_world(&w);
}

static void sessions_go_back(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++)
        if (cases[c].o.window != 96) check_sessions(&cases[c], "Llama", "", c % 2);
    check_sessions(&cases[2], "Qwen3_5", "", 0);
    check_sessions(&cases[0], "Llama", "hybrid:suffix+", 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(drafts_are_those_of_all_positions),
                                       cmocka_unit_test(drafts_on_a_device), cmocka_unit_test(memory_is_bounded),
                                       cmocka_unit_test(sessions_go_back)};
    test_only();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
