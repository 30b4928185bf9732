// Sessions as a server has them: plain ones beside others, drafts of limited depth, penalties, logits of prompts, kept
// prefixes, and ends between any two steps.
#include "infer/decode/decode.h"
#include "kernels/base/hash.h"
#include "tests/infer/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LEN = 200, SLOTS = 4 };

typedef struct text {
    int32_t id[LEN + 1], n;
    int64_t steps, accepted, drafted;
    int     deepest, reused;
} text;

// A target, and drafters for it of every kind that has a cache.
enum { EAGLE3, EAGLE1, DFLASH, PEAGLE, BACKBONES };

typedef struct world {
    char     dir[64], draft[BACKBONES][64];
    pl_llama target;
} world;

// family: "Llama", or one with recurrent layers.
static void open_world_of(world *w, const char *family) {
    static const pl_backbone_kind *const kind[BACKBONES] = {&pl_backbone_eagle3, &pl_backbone_eagle1,
                                                            &pl_backbone_dflash, &pl_backbone_peagle};
    static const pl_backbone_options     o[BACKBONES] = {
            {.layers = 2}, {.bias = true}, {.layers = 2, .block = 6, .mask_token = 1}, {.block = 4, .mask_token = 3}};
    if (strcmp(family, "Llama") == 0)
        test_target(&w->target, test_mkdir(w->dir), 4, 23, PL_BF16);
    else
        test_target_family(&w->target, test_mkdir(w->dir), family, 4, 23, PL_BF16);
    for (int i = 0; i < BACKBONES; i++)
        test_backbone_write(test_mkdir(w->draft[i]), &w->target, kind[i], &o[i], 34);
}

static void open_world(world *w) {
    open_world_of(w, "Llama");
}

static void close_world(world *w) {
    pl_llama_fini(&w->target);
    test_rmdir(w->dir);
    for (int i = 0; i < BACKBONES; i++)
        test_rmdir(w->draft[i]);
}

static pl_drafter *open_drafter(const world *w, const char *what, const char *tree) {
    pl_drafter        *d;
    pl_err             err = {0};
    pl_drafter_options o = {.target = &w->target,
                            .dtype = PL_BF16,
                            .tree = tree,
                            .max_sessions = SLOTS,
                            .max_rows = SLOTS * 64,
                            .slots = LEN};
    if (pl_drafter_open(&d, what, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    return d;
}

static pl_engine *open_engine(const world *w, pl_drafter *d, pl_engine_options o) {
    pl_engine *e;
    pl_err     err = {0};
    o.max_len = LEN;
    if (o.max_sessions == 0) o.max_sessions = SLOTS;
    if (o.max_rows == 0) o.max_rows = SLOTS * 64;
    if (pl_engine_create(&e, pl_backend_cpu(), NULL, &w->target, d, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    return e;
}

static void step(pl_engine *e) {
    pl_err err = {0};
    if (pl_engine_step(e, &err) != PL_OK) fail_msg("%s", err.msg);
}

static pl_session *start(pl_engine *e, const int32_t *ids, int n, const pl_session_options *o) {
    pl_session *s;
    pl_err      err = {0};
    if (pl_engine_start(e, ids, n, o, &s, &err) != PL_OK) fail_msg("%s", err.msg);
    return s;
}

static void take(const pl_session *s, text *out) {
    const pl_session_stats *stats = pl_session_statistics(s);
    *out = (text){.n = pl_session_length(s),
                  .steps = stats->steps,
                  .accepted = stats->accepted,
                  .drafted = stats->drafted,
                  .reused = pl_session_reused(s)};
    memcpy(out->id, pl_session_tokens(s), (size_t)out->n * sizeof *out->id);
    while (stats->position_drafted[out->deepest])
        out->deepest++;
}

static void finish(pl_engine *e, pl_session *s, text *out) {
    while (pl_session_finish(s) == PL_RUNNING)
        step(e);
    take(s, out);
    pl_engine_end(e, s);
}

static void random_ids(int32_t *ids, int n, int seed) {
    pl_rng r = pl_rng_make(11, PL_STREAM_TEST, (uint64_t)seed);
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)pl_rng_below(r, (uint64_t)i, TEST_VOCAB);
}

static void same(const text *a, const text *b, const char *what, int which) {
    if (a->n != b->n || memcmp(a->id, b->id, (size_t)a->n * sizeof *a->id) != 0)
        fail_msg("%s, session %d: tokens differ (%d and %d)", what, which, a->n, b->n);
}

// ---- speculation by session -----------------------------------------------------------------------------------------

// A drafter that looks at the items that it gets: a plain session's is none of them.
typedef struct spy {
    pl_drafter base;
    bool       seen[SLOTS];
    int        deepest[SLOTS];
    int64_t    rows[SLOTS], ended;
} spy;

static void last_token(void *arg, const pl_tree_policy *p, const pl_tree *t, int node, int32_t *id) {
    (void)arg, (void)p;
    id[0] = (t->token[node] * 7 + 3) % TEST_VOCAB;
}

static void look(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    spy *d = (spy *)base;
    for (int i = 0; i < b->n && !ctx->measuring; i++) {
        const pl_draft_item *it = &b->item[i];
        d->seen[it->slot] = true;
        d->rows[it->slot] += it->count;
        if (!it->tree) continue;
        if (it->depth > d->deepest[it->slot]) d->deepest[it->slot] = it->depth;
        pl_tree_draft(&base->policy, it->tree, it->depth, last_token, NULL);
    }
}

static void count_ended(pl_drafter *d, int slot, const int32_t *answer, int n) {
    (void)slot, (void)answer, (void)n;
    ((spy *)d)->ended++;
}

static const pl_drafter_kind spy_kind = {.name = "spy", .propose = look, .ended = count_ended};

static void drafter_sees_no_plain_session(void **state) {
    (void)state;
    world  w;
    pl_err err = {0};
    text   got;
    open_world(&w);
    spy d = {.base = {.kind = &spy_kind, .max_sessions = SLOTS, .max_rows = SLOTS * 64}};
    assert_int_equal(pl_tree_policy_parse(&d.base.policy, "chain:5", &err), PL_OK);
    pl_engine  *e = open_engine(&w, &d.base, (pl_engine_options){0});
    pl_session *s[SLOTS];
    int32_t     ids[30];
    random_ids(ids, 30, 1);
    for (int i = 0; i < SLOTS; i++)
        s[i] = start(e, ids, 30 - i,
                     &(pl_session_options){
                         .sampling = {.top_p = 1}, .max_new = 20, .plain = i % 2, .draft_depth = i == 2 ? 2 : 0});
    for (int i = 0; i < SLOTS; i++)
        finish(e, s[i], &got);
    for (int i = 0; i < SLOTS; i++) {
        assert_int_equal(d.seen[i], i % 2 == 0);
        assert_int_equal(d.rows[i] > 0, i % 2 == 0);
    }
    assert_true(d.deepest[0] == 5 && d.deepest[2] == 2 && d.ended == 2);
    pl_engine_destroy(e);
    close_world(&w);
}

// Plain, limited and free sessions side by side, in a batch that changes: each has plain decoding's tokens, and the
// drafts that it asked for.
static void sessions_choose_their_drafts(void **state) {
    (void)state;
    enum { SESSIONS = 9 };
    static const char *const trees[] = {"chain:4",    "static:3x2x1",  "auto",
                                        "chain:auto", "eagle2:20,5,3", "beam:4,3,0.2"};
    world                    w;
    static text              plain[2][SESSIONS], got[SESSIONS];
    char                     what[160];
    int64_t                  free_drafts = 0;
    open_world(&w);
    for (int run = 0; run < 2 * 10; run++) {
        int         t = run % 2, with = run / 2 - 1;
        const char *tree = with < 6 ? trees[with < 0 ? 0 : with] : "auto";
        snprintf(what, sizeof what, "%s", w.draft[EAGLE3]);
        if (with == 6) snprintf(what, sizeof what, "hybrid:suffix+%s", w.draft[EAGLE3]);
        if (with == 7) snprintf(what, sizeof what, "hybrid:recycle:8");
        if (with == 8) snprintf(what, sizeof what, "hybrid:lookup+lm:%s", w.dir);
        pl_drafter *d = with < 0 ? NULL : open_drafter(&w, what, with == 8 ? "chain:auto" : tree);
        pl_engine  *e = open_engine(&w, d, (pl_engine_options){.chunk = 16});
        pl_session *s[SESSIONS] = {0};
        for (int begun = 0, ended = 0; ended < SESSIONS;) {
            while (begun < SESSIONS && pl_engine_free_slots(e) > 0) {
                int32_t            ids[40];
                int                n = 3 + 4 * begun, kind = begun % 3;
                pl_session_options o = {.sampling = {.temperature = t, .top_p = 1, .seed = 3},
                                        .key = (uint64_t)begun,
                                        .max_new = 60 - 4 * begun,
                                        .plain = kind == 1,
                                        .draft_depth = kind == 2 ? 1 : 0};
                random_ids(ids, n, begun);
                s[begun++] = start(e, ids, n, &o);
            }
            step(e);
            for (int i = 0; i < begun; i++) {
                if (!s[i] || pl_session_finish(s[i]) == PL_RUNNING) continue;
                take(s[i], with < 0 ? &plain[t][i] : &got[i]);
                pl_engine_end(e, s[i]);
                s[i] = NULL;
                ended++;
            }
        }
        for (int i = 0; i < SESSIONS && with >= 0; i++) {
            same(&plain[t][i], &got[i], what, i);
            if (i % 3 == 1) assert_int_equal(got[i].drafted, 0);
            if (i % 3 == 2) assert_true(got[i].deepest <= 1);
            if (i % 3 == 0) free_drafts += got[i].deepest > 1 ? got[i].drafted : 0;
            if (i % 3 == 2 && (with < 2 || with == 4)) assert_true(got[i].deepest == 1 && got[i].drafted > 10);
        }
        pl_engine_destroy(e);
        pl_drafter_destroy(d);
    }
    assert_true(free_drafts > 500);
    close_world(&w);
}

// ---- penalties ------------------------------------------------------------------------------------------------------

static const pl_logit_bias bias[] = {{5, 4}, {17, -100}, {60, 2.5F}, {3, -1.5F}, {60, 1}};

static const pl_sampling processed[] = {
    {.top_p = 1, .frequency_penalty = 0.7, .presence_penalty = 0.4},
    {.top_p = 1, .bias = bias, .n_bias = 5},
    {.top_p = 1, .presence_penalty = -2, .frequency_penalty = 2},
    {.top_p = 1, .presence_penalty = 1, .frequency_penalty = 0.1, .repetition_penalty = 1.3, .bias = bias, .n_bias = 5},
    {.temperature = 1, .top_p = 0.9, .frequency_penalty = 1.5, .bias = bias, .n_bias = 5, .seed = 4},
    {.temperature = 0.7, .top_k = 20, .top_p = 1, .presence_penalty = 1.5, .seed = 5}};
enum { PROCESSED = sizeof processed / sizeof *processed };

// The next greedy token by hand, of the logits of a row after n tokens, `prompt` of them the prompt's.
static int32_t best_by_hand(const float *logits, const pl_sampling *s, const int32_t *id, int n, int prompt) {
    float   z[TEST_VOCAB];
    int32_t best = 0;
    memcpy(z, logits, sizeof z);
    for (int i = 0; i < s->n_bias; i++)
        z[s->bias[i].id] += s->bias[i].value;
    for (int32_t t = 0; t < TEST_VOCAB; t++) {
        int count = 0, occurred = 0;
        for (int i = 0; i < n; i++) {
            occurred += id[i] == t;
            count += i >= prompt && id[i] == t;
        }
        float penalty = s->repetition_penalty > 0 ? (float)s->repetition_penalty : 1;
        if (occurred) z[t] = z[t] > 0 ? z[t] / penalty : z[t] * penalty;
        z[t] = (float)((double)z[t] - count * s->frequency_penalty - (count > 0) * s->presence_penalty);
        if (z[t] > z[best]) best = t;
    }
    return best;
}

typedef struct checked {
    const pl_sampling *sampling;
    int64_t            rows, other; // checked; not the argmax of the logits
} checked;

static void check_greedy(void *arg, const pl_final_rows *r) {
    checked       *c = arg;
    const int32_t *id = pl_session_tokens(r->session);
    for (int i = 0; i < r->count; i++) {
        int at = r->logits_row[r->row[i]], n = r->first + i + 1;
        if (at < 0 || n >= pl_session_length(r->session)) continue;
        const float *z = r->logits + (ptrdiff_t)at * TEST_VOCAB;
        assert_int_equal(id[n], best_by_hand(z, c->sampling, id, n, pl_session_prompt(r->session)));
        c->rows++;
        c->other += id[n] != best_by_hand(z, &(pl_sampling){0}, id, n, n);
    }
}

// Greedy tokens are those found by hand; with drafts of every kind they are plain decoding's, greedy and drawn.
static void drafts_are_processed(void **state) {
    (void)state;
    enum { SESSIONS = 3, PROMPT = 20 };
    static text plain[SESSIONS], got[SESSIONS];
    static const struct {
        int         which; // BACKBONES: lm
        const char *tree;
    } with[] = {{EAGLE3, "static:4x2x1"}, {EAGLE3, "eagle2:20,5,3"}, {DFLASH, "chain:5"}, {BACKBONES, "chain:4"}};
    world w;
    open_world(&w);
    for (int c = 0; c < PROCESSED; c++) {
        int64_t accepted = 0;
        for (int run = -1; run < 4; run++) {
            char what[80];
            snprintf(what, sizeof what, "lm:%s", w.dir);
            pl_drafter *d = run < 0 ? NULL
                                    : open_drafter(&w, with[run].which < BACKBONES ? w.draft[with[run].which] : what,
                                                   with[run].tree);
            pl_engine  *e = open_engine(&w, d, (pl_engine_options){0});
            checked     k = {.sampling = &processed[c]};
            pl_session *s[SESSIONS];
            if (processed[c].temperature == 0) pl_engine_on_final(e, check_greedy, &k);
            for (int i = 0; i < SESSIONS; i++) {
                int32_t ids[PROMPT];
                random_ids(ids, PROMPT, i);
                s[i] = start(e, ids, PROMPT,
                             &(pl_session_options){.sampling = processed[c], .key = (uint64_t)i, .max_new = 30});
            }
            for (int i = 0; i < SESSIONS; i++)
                finish(e, s[i], run < 0 ? &plain[i] : &got[i]);
            for (int i = 0; i < SESSIONS && run >= 0; i++) {
                snprintf(what, sizeof what, "processors %d, %s", c, with[run].tree);
                same(&plain[i], &got[i], what, i);
                accepted += got[i].accepted;
            }
            if (processed[c].temperature == 0) assert_true(k.rows >= SESSIONS * 30 && k.other > 5);
            pl_engine_destroy(e);
            pl_drafter_destroy(d);
        }
        assert_true(accepted > 0);
    }
    close_world(&w);
}

static void bad_bias_is_refused(void **state) {
    (void)state;
    world       w;
    pl_err      err = {0};
    pl_session *s;
    open_world(&w);
    pl_engine *e = open_engine(&w, NULL, (pl_engine_options){0});
    for (int i = 0; i < 2; i++) {
        pl_logit_bias one = {i ? TEST_VOCAB : -1, 1};
        assert_int_equal(pl_engine_start(e, (int32_t[]){1}, 1,
                                         &(pl_session_options){.sampling = {.bias = &one, .n_bias = 1}, .max_new = 1},
                                         &s, &err),
                         PL_E_INPUT);
        assert_non_null(strstr(err.msg, "logit_bias: token"));
    }
    assert_int_equal(pl_engine_free_slots(e), SLOTS);
    pl_engine_destroy(e);
    close_world(&w);
}

// ---- logits of prompts ----------------------------------------------------------------------------------------------

typedef struct seen_logits {
    uint64_t bits[SLOTS][LEN]; // by key and position; 0: not seen
    int      most;             // rows with logits of one session in one step
} seen_logits;

static void see_logits(void *arg, const pl_final_rows *r) {
    seen_logits *to = arg;
    int          n = 0;
    for (int i = 0; i < r->count; i++) {
        int at = r->logits_row[r->row[i]];
        if (at < 0) continue;
        uint64_t *bits = &to->bits[pl_session_key(r->session)][r->first + i];
        assert_true(*bits == 0);
        *bits = pl_hash(r->logits + (ptrdiff_t)at * TEST_VOCAB, TEST_VOCAB * sizeof(float)) | 1;
        n++;
    }
    if (n > to->most && pl_session_reading(r->session)) to->most = n;
}

// Two of four sessions see all of their prompts' logits, as an engine has them where all rows do, in chunks of what the
// bound leaves; the others' prompts have their last row's.
static void prompts_have_logits(void **state) {
    (void)state;
    static seen_logits all, got;
    static text        want[SLOTS], text_of[SLOTS];
    world              w;
    open_world(&w);
    for (int run = 0; run < 4; run++) {
        memset(run ? &got : &all, 0, sizeof all);
        pl_drafter *d = run ? open_drafter(&w, w.draft[EAGLE3], "chain:3") : NULL;
        pl_engine  *e = open_engine(
             &w, d,
             (pl_engine_options){.all_logits = run == 0, .max_logits = run == 2 ? 24 : 0, .chunk = run == 3 ? 8 : 0});
        pl_session *s[SLOTS];
        pl_engine_on_final(e, see_logits, run ? &got : &all);
        for (int i = 0; i < SLOTS; i++) {
            int32_t            ids[64];
            pl_session_options o = {
                .sampling = {.top_p = 1}, .key = (uint64_t)i, .max_new = 12, .prompt_logits = run && i % 2};
            random_ids(ids, 20 + 14 * i, i);
            s[i] = start(e, ids, 20 + 14 * i, &o);
        }
        for (int i = 0; i < SLOTS; i++)
            finish(e, s[i], run ? &text_of[i] : &want[i]);
        for (int i = 0; i < SLOTS && run; i++) {
            same(&want[i], &text_of[i], "prompts with logits", i);
            for (int p = 0; p < 20 + 14 * i - 1; p++)
                assert_int_equal(got.bits[i][p], i % 2 ? all.bits[i][p] : 0);
            for (int p = 20 + 14 * i - 1; p < want[i].n - 1; p++)
                assert_int_equal(got.bits[i][p], all.bits[i][p]);
        }
        if (run) assert_true(got.most > 1 && got.most <= (run == 2 ? 24 : 16));
        pl_engine_destroy(e);
        pl_drafter_destroy(d);
    }
    close_world(&w);
}

// ---- kept prefixes --------------------------------------------------------------------------------------------------

// One session: the first `take` tokens of a text (-1, -2: two given ones; else what an earlier session became) and some
// more, ended at its end or early: after `steps` cycles, or (READING) after one step.
enum { READING = -1 };
typedef struct turn {
    int  from, take, more, steps;
    bool plain, logits;
    int  depth;
    int  least; // positions that are reused in one slot at least
} turn;

static const turn turns[] = {{.from = -1, .take = 60},
                             {.from = 0, .take = 70, .more = 5, .least = 62}, // goes on from the whole answer
                             {.from = -1, .take = 60, .least = 59},           // the same prompt again
                             {.from = -1, .take = 60, .least = 59},
                             {.from = -1, .take = 30, .more = 20, .least = 29}, // a common beginning
                             {.from = -1, .take = 30, .least = 29},             // a whole prefix
                             {.from = -1, .take = 60, .least = 29},             // the other way round
                             {.from = -2, .take = 50, .steps = READING},
                             {.from = -2, .take = 50, .least = 6},
                             {.from = -2, .take = 50, .steps = 4, .least = 49},
                             {.from = 9, .take = 52, .more = 4, .least = 49},
                             {.from = -1, .take = 60, .plain = true},
                             {.from = -1, .take = 60}, // behind a plain one, whose rows a drafter lacks
                             {.from = 12, .take = 70, .plain = true, .least = 69},
                             {.from = 13, .take = 72, .more = 3, .least = 50},
                             {.from = -1, .take = 60, .logits = true},
                             {.from = -1, .take = 60, .depth = 1, .least = 59},
                             {.from = -2, .take = 1},
                             {.from = -2, .take = 1}};
enum { TURNS = sizeof turns / sizeof *turns };

static int build(const turn *t, int which, const text *became, int32_t *ids) {
    if (t->from < 0)
        random_ids(ids, t->take, 90 - t->from);
    else
        memcpy(ids, became[t->from].id, (size_t)t->take * sizeof *ids);
    random_ids(ids + t->take, t->more, 200 + which);
    return t->take + t->more;
}

// Runs the turns in so many slots. became: the texts of a run in which every turn was run to its end.
static void run_turns(pl_engine *e, int slots, double temperature, const text *became, bool early, text *out) {
    pl_session *s[TURNS] = {0};
    int         seen[TURNS] = {0};
    for (int begun = 0, ended = 0; ended < TURNS;) {
        while (begun < TURNS && begun - ended < slots) {
            const turn        *t = &turns[begun];
            int32_t            ids[LEN];
            pl_session_options o = {.sampling = {.temperature = temperature, .top_p = 1, .seed = 3},
                                    .key = (uint64_t)(t->from + 3 + t->more), // equal prompts go on in the same way
                                    .max_new = 12,
                                    .plain = t->plain,
                                    .draft_depth = t->depth,
                                    .prompt_logits = t->logits};
            if (!became && t->from >= ended) break; // what it goes on from must be there
            s[begun] = start(e, ids, build(t, begun, became ? became : out, ids), &o);
            begun++;
        }
        step(e);
        for (int i = 0; i < begun; i++) {
            if (!s[i]) continue;
            bool done = pl_session_finish(s[i]) != PL_RUNNING;
            seen[i]++;
            if (early && turns[i].steps == READING) done |= pl_session_reading(s[i]) || seen[i] > 1;
            if (early && turns[i].steps > 0) done |= pl_session_statistics(s[i])->steps >= turns[i].steps;
            if (!done) continue;
            take(s[i], &out[i]);
            pl_engine_end(e, s[i]);
            s[i] = NULL;
            ended++;
        }
    }
}

// With kept prefixes every session has the tokens that it has without, and (where the tree is fixed) the same drafts,
// accepted alike: no drafter misses a row. rows: of a step, so that prompts take several.
static void check_turns(const world *w, const char *what, const char *tree, const pl_verifier *v, double temperature) {
    static text       fresh[TURNS], kept[TURNS];
    pl_engine_options o = {.max_sessions = 1, .verifier = v, .chunk = 7};
    pl_drafter       *d = what ? open_drafter(w, what, tree) : NULL;
    bool              hybrid = what && strstr(what, "hybrid"), fixed = !hybrid && !strstr(tree, "auto");
    pl_engine        *e = open_engine(w, d, o);
    run_turns(e, 1, temperature, NULL, false, fresh);
    pl_engine_destroy(e);
    pl_drafter_destroy(d);
    for (int slots = 1; slots <= 3; slots += 2) {
        int reused = 0;
        d = what ? open_drafter(w, what, tree) : NULL;
        o.keep_prefixes = true;
        o.max_sessions = slots;
        e = open_engine(w, d, o);
        run_turns(e, slots, temperature, fresh, true, kept);
        for (int i = 0; i < TURNS; i++) {
            const turn *t = &turns[i];
            assert_int_equal(fresh[i].reused, 0);
            reused += kept[i].reused;
            if (t->steps) kept[i].n = kept[i].n < fresh[i].n ? kept[i].n : fresh[i].n, fresh[i].n = kept[i].n;
            same(&fresh[i], &kept[i], what ? what : "plain", i);
            if (t->logits) assert_int_equal(kept[i].reused, 0);
            if (slots == 1 && !hybrid && !w->target.recurrent && kept[i].reused < t->least)
                fail_msg("%s, %s: turn %d reused %d positions", what, tree, i, kept[i].reused);
            if (!fixed || t->steps) continue;
            if (kept[i].steps != fresh[i].steps || kept[i].accepted != fresh[i].accepted)
                fail_msg("%s, %s, turn %d in %d slots: %d steps with %d accepted, without kept prefixes %d with %d",
                         what, tree, i, slots, (int)kept[i].steps, (int)kept[i].accepted, (int)fresh[i].steps,
                         (int)fresh[i].accepted);
        }
        // A hybrid's MODEL may miss rows; recurrent layers have two states of a text.
        int least = slots == 1 ? 500 : 200;
        assert_true(reused > (hybrid ? 0 : w->target.recurrent ? least / 4 : least));
        pl_engine_destroy(e);
        pl_drafter_destroy(d);
    }
}

static void kept_prefixes_change_nothing(void **state) {
    (void)state;
    world  w;
    char   what[160];
    pl_err err = {0};
    open_world(&w);
    const pl_verifier *rejection = pl_verifier_find("rejection", &err);
    for (int t = 0; t < 2; t++) {
        check_turns(&w, NULL, "", NULL, t);
        for (int i = 0; i < BACKBONES; i++)
            check_turns(&w, w.draft[i], t ? "chain:3" : "static:4x2x1", t ? rejection : NULL, t);
    }
    check_turns(&w, w.draft[EAGLE3], "auto", NULL, 1);
    check_turns(&w, "lookup:3,4", "chain:4", NULL, 0);
    snprintf(what, sizeof what, "lm:%s", w.dir);
    check_turns(&w, what, "chain:3", NULL, 0);
    check_turns(&w, what, "chain:3", rejection, 1);
    check_turns(&w, "suffix", "chain:6", NULL, 0);
    check_turns(&w, "recycle:8", "static:4x2", NULL, 0);
    check_turns(&w, "hybrid:suffix", "auto", NULL, 0);
    snprintf(what, sizeof what, "hybrid:suffix+%s", w.draft[EAGLE3]);
    check_turns(&w, what, "auto", NULL, 0);
    snprintf(what, sizeof what, "hybrid:recycle:8+lm:%s", w.dir);
    check_turns(&w, what, "chain:auto", NULL, 1);
    close_world(&w);
}

// A recurrent state cannot go back: a prompt that continues all of a slot's text continues its state, one that parts
// from it later than the saved state continues that, and any other begins anew, over what the slot's last session left.
static void recurrent_states_go_on(void **state) {
    (void)state;
    world              w;
    text               fresh, kept;
    int32_t            ids[LEN];
    char               what[80];
    pl_drafter        *refused;
    pl_err             err;
    pl_session_options o = {.sampling = {.top_p = 1}, .max_new = 12};
    static const int   REUSED[4] = {32, 32, 0, 19};
    open_world_of(&w, "Qwen3_5");
    check_turns(&w, NULL, "", NULL, 0);
    check_turns(&w, w.draft[EAGLE3], "static:4x2x1", NULL, 1);
    check_turns(&w, "suffix", "chain:6", NULL, 0);
    snprintf(what, sizeof what, "lm:%s", w.dir);
    assert_int_equal(pl_drafter_open(&refused, what,
                                     &(pl_drafter_options){.target = &w.target,
                                                           .dtype = PL_BF16,
                                                           .tree = "chain:3",
                                                           .max_sessions = 1,
                                                           .max_rows = 64,
                                                           .slots = LEN},
                                     &err),
                     PL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "Qwen3_5ForCausalLM has recurrent layers and cannot draft"));
    for (int i = -1; i < BACKBONES; i++) {
        pl_drafter *d = i < 0 ? NULL : open_drafter(&w, w.draft[i], "static:3x2x1");
        pl_engine  *e = open_engine(&w, d, (pl_engine_options){.max_sessions = 1, .keep_prefixes = true});
        pl_engine  *other = open_engine(&w, NULL, (pl_engine_options){.max_sessions = 1});
        random_ids(ids, 40, 5);
        finish(e, start(e, ids, 40, &o), &kept);
        for (int t = 0; t < 3; t++) {
            int n = kept.n + 3;
            memcpy(ids, kept.id, (size_t)kept.n * sizeof *ids);
            random_ids(ids + kept.n, 3, 30 + t);
            finish(e, start(e, ids, n, &o), &kept);
            finish(other, start(other, ids, n, &o), &fresh);
            same(&fresh, &kept, "the next turn", t);
            assert_int_equal(fresh.reused, 0);
            assert_int_equal(kept.reused, n - 4); // all of it but the last token, which was not read
        }
        // Another answer after the same prompt, a second time, then prompts that share 20 tokens of it.
        for (int t = 0; t < 4; t++) {
            random_ids(ids, 40, 5);
            if (t > 1) random_ids(ids + 20, 20, 40 + t);
            finish(e, start(e, ids, 40, &o), &kept);
            finish(other, start(other, ids, 40, &o), &fresh);
            same(&fresh, &kept, "a prompt that parts from the last one", t);
            assert_int_equal(kept.reused, REUSED[t]);
        }
        pl_engine_destroy(other);
        pl_engine_destroy(e);
        pl_drafter_destroy(d);
    }
    close_world(&w);
}

// How far each kind goes back: a row that reads the token after it is not the other prompt's.
static void kinds_keep_their_rows(void **state) {
    (void)state;
    static const int want[BACKBONES] = {29, 29, 30, 29};
    world            w;
    int32_t          ids[60];
    text             got;
    open_world(&w);
    for (int i = -2; i < BACKBONES; i++) {
        spy         none = {.base = {.kind = &spy_kind, .max_sessions = SLOTS, .max_rows = SLOTS * 64}};
        pl_err      err = {0};
        pl_drafter *d = i >= 0 ? open_drafter(&w, w.draft[i], "chain:3") : NULL;
        assert_int_equal(pl_tree_policy_parse(&none.base.policy, "chain:3", &err), PL_OK);
        pl_engine *e =
            open_engine(&w, i == -1 ? &none.base : d, (pl_engine_options){.max_sessions = 1, .keep_prefixes = true});
        for (int round = 0; round < 2; round++) {
            random_ids(ids, 60, 5);
            if (round) random_ids(ids + 30, 30, 6);
            finish(e, start(e, ids, 60, &(pl_session_options){.sampling = {.top_p = 1}, .max_new = 8}), &got);
        }
        assert_int_equal(got.reused, i == -2 ? 30 : i == -1 ? 0 : want[i]); // without `keep`: nothing
        pl_engine_destroy(e);
        pl_drafter_destroy(d);
    }
    close_world(&w);
}

// A short common beginning is not worth another conversation's cache: it takes the slot that ended longest ago.
static void conversations_keep_their_slots(void **state) {
    (void)state;
    world              w;
    int32_t            ids[2][100];
    text               got;
    pl_session_options o = {.sampling = {.top_p = 1}, .max_new = 2};
    open_world(&w);
    pl_engine *e = open_engine(&w, NULL, (pl_engine_options){.max_sessions = 2, .keep_prefixes = true});
    for (int i = 0; i < 2; i++) {
        random_ids(ids[i], 100, 7);
        random_ids(ids[i] + 20, 80, 8 + i);
    }
    for (int round = 0; round < 6; round++) {
        finish(e, start(e, ids[round % 2], 60 + 10 * (round / 2), &o), &got);
        assert_int_equal(got.reused, round < 2 ? 0 : 60 + 10 * (round / 2 - 1));
    }
    random_ids(ids[0], 30, 99); // round 4's slot is the older one
    finish(e, start(e, ids[0], 30, &o), &got);
    finish(e, start(e, ids[1], 90, &o), &got);
    assert_int_equal(got.reused, 80);
    pl_engine_destroy(e);
    close_world(&w);
}

// ---- ends at any time -----------------------------------------------------------------------------------------------

// Sessions begin and end between random steps, in the middle of prompts and answers; each has the beginning of what
// plain decoding makes of its prompt, and its slot is at once another's.
static void ends_between_steps_of(const char *family) {
    enum { PROMPTS = 12, STEPS = 260 };
    static text plain[PROMPTS];
    world       w;
    char        what[160];
    int32_t     ids[LEN];
    open_world_of(&w, family);
    pl_engine *e = open_engine(&w, NULL, (pl_engine_options){0});
    for (int i = 0; i < PROMPTS; i++) {
        random_ids(ids, 90, i / 3); // threes share a beginning
        random_ids(ids + 30, 60, i);
        finish(e,
               start(e, ids, 34 + 4 * i,
                     &(pl_session_options){.sampling = {.temperature = i % 2, .top_p = 1, .seed = 3}, .max_new = 40}),
               &plain[i]);
    }
    pl_engine_destroy(e);
    for (int run = 0; run < 8; run++) {
        int         of[SLOTS], reading = 0, decoding = 0;
        pl_session *s[SLOTS] = {0};
        pl_rng      r = pl_rng_make(12, PL_STREAM_TEST, (uint64_t)run);
        uint64_t    at = 0;
        snprintf(what, sizeof what, "%s%.63s", run / 2 == 2 ? "hybrid:suffix+" : "",
                 run / 2 == 3 ? "lookup" : w.draft[run / 2 == 1 ? DFLASH : EAGLE3]);
        pl_drafter *d = open_drafter(&w, what, run / 2 == 2 ? "auto" : "chain:4");
        e = open_engine(&w, d, (pl_engine_options){.keep_prefixes = run % 2, .chunk = 12});
        for (int n = 0; n < STEPS; n++) {
            int slot = (int)pl_rng_below(r, at++, SLOTS);
            if (s[slot] && (pl_session_finish(s[slot]) != PL_RUNNING || pl_rng_below(r, at++, 3) == 0)) {
                const int32_t *id = pl_session_tokens(s[slot]);
                int32_t        length = pl_session_length(s[slot]);
                assert_true(length <= plain[of[slot]].n);
                if (memcmp(id, plain[of[slot]].id, (size_t)length * sizeof *id) != 0)
                    fail_msg("%s, step %d: prompt %d", what, n, of[slot]);
                *(pl_session_reading(s[slot]) ? &reading : &decoding) += pl_session_finish(s[slot]) == PL_RUNNING;
                pl_engine_end(e, s[slot]);
                s[slot] = NULL;
            }
            if (!s[slot]) {
                int                i = of[slot] = (int)pl_rng_below(r, at++, PROMPTS);
                pl_session_options o = {.sampling = {.temperature = i % 2, .top_p = 1, .seed = 3},
                                        .max_new = 40,
                                        .plain = pl_rng_below(r, at++, 5) == 0};
                s[slot] = start(e, plain[i].id, 34 + 4 * i, &o);
            }
            step(e);
        }
        assert_true(reading > 3 && decoding > 10);
        pl_engine_destroy(e);
        pl_drafter_destroy(d);
    }
    close_world(&w);
}

static void ends_between_any_steps(void **state) {
    (void)state;
    ends_between_steps_of("Llama");
    ends_between_steps_of("Qwen3_5");
}

// ---- other weights --------------------------------------------------------------------------------------------------

static void answer(pl_engine *e, int retake_at, pl_drafter *d, const world *w, const char *dir, text *out) {
    static const pl_session_options o = {.sampling = {.top_p = 1}, .max_new = 60};
    pl_err                          err = {0};
    int32_t                         ids[12];
    random_ids(ids, 12, 7);
    pl_session *s = start(e, ids, 12, &o);
    for (int i = 0; pl_session_finish(s) == PL_RUNNING; i++) {
        if (i == retake_at && pl_drafter_retake(d, dir, &w->target, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
        step(e);
    }
    take(s, out);
    pl_engine_end(e, s);
}

// A drafter whose weights are replaced in the middle of a text does not change it, drafts from then on as one that was
// opened with them, and refuses those of another shape.
static void weights_are_replaced(void **state) {
    (void)state;
    static const pl_backbone_kind *const kind[BACKBONES] = {&pl_backbone_eagle3, &pl_backbone_eagle1,
                                                            &pl_backbone_dflash, &pl_backbone_peagle};
    static const pl_backbone_options     o[BACKBONES] = {
            {.layers = 2}, {.bias = true}, {.layers = 2, .block = 6, .mask_token = 1}, {.block = 4, .mask_token = 3}};
    world w;
    open_world(&w);
    for (int i = 0; i < BACKBONES; i++) {
        char   other[64];
        text   plain, first, middle, later, again, alone;
        pl_err err = {0};
        test_backbone_write(test_mkdir(other), &w.target, kind[i], &o[i], 35);
        pl_engine *e = open_engine(&w, NULL, (pl_engine_options){0});
        answer(e, -1, NULL, &w, NULL, &plain);
        pl_engine_destroy(e);
        pl_drafter *d = open_drafter(&w, w.draft[i], "chain:4");
        e = open_engine(&w, d, (pl_engine_options){0});
        answer(e, -1, d, &w, NULL, &first);
        answer(e, 4, d, &w, other, &middle);
        answer(e, -1, d, &w, NULL, &later);
        assert_int_equal(pl_drafter_retake(d, w.draft[(i + 1) % BACKBONES], &w.target, PL_BF16, &err), PL_E_INPUT);
        assert_non_null(strstr(err.msg, "its config.json differs from the drafter's"));
        assert_int_equal(pl_drafter_retake(d, "nowhere", &w.target, PL_BF16, &err), PL_E_INPUT);
        answer(e, -1, d, &w, NULL, &again);
        pl_engine_destroy(e);
        pl_drafter_destroy(d);
        d = open_drafter(&w, other, "chain:4");
        e = open_engine(&w, d, (pl_engine_options){0});
        answer(e, -1, d, &w, NULL, &alone);
        pl_engine_destroy(e);
        pl_drafter_destroy(d);
        same(&plain, &first, "first weights", i);
        same(&plain, &middle, "replaced in the middle", i);
        same(&plain, &later, "other weights", i);
        assert_true(later.steps == alone.steps && later.accepted == alone.accepted);
        assert_true(again.steps == alone.steps && again.accepted == alone.accepted);
        // Their drafts differ, or nothing was replaced.
        assert_true(i != EAGLE3 || first.accepted != later.accepted);
        test_rmdir(other);
    }
    pl_drafter *d = open_drafter(&w, "lookup", "chain:4");
    pl_err      err = {0};
    assert_int_equal(pl_drafter_retake(d, w.draft[0], &w.target, PL_BF16, &err), PL_E_UNSUPPORTED);
    pl_drafter_destroy(d);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafter_sees_no_plain_session), cmocka_unit_test(sessions_choose_their_drafts),
        cmocka_unit_test(drafts_are_processed),          cmocka_unit_test(bad_bias_is_refused),
        cmocka_unit_test(prompts_have_logits),           cmocka_unit_test(kept_prefixes_change_nothing),
        cmocka_unit_test(kinds_keep_their_rows),         cmocka_unit_test(conversations_keep_their_slots),
        cmocka_unit_test(ends_between_any_steps),        cmocka_unit_test(weights_are_replaced),
        cmocka_unit_test(recurrent_states_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
