// A hybrid's plan at invented costs; and, where PACELINE_PAIRS asks for it, its speed beside plain decoding's and its
// parts' in interleaved rounds (tests/shown.sh hybrid).
//   PACELINE_PAIRS: "TARGET TOKENIZER|- PROMPTS SESSIONS TEMPERATURE PROCESSES ROUNDS EVERY SECONDS DRAFTER..."; the first
//                   drafter is the hybrid, the others run in one round of EVERY; ROUNDS: of all processes; SECONDS: of a
//                   piece
//   PACELINE_PAIRS_JSON: a file that gets a line
#include "tests/infer/fixture.h"

#include "data/chat/prompts.h"
#include "infer/eval/batch.h"
#include "kernels/base/arena.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "infer/decode/autotuner.h"
#include "infer/decode/bandit.h"
#include "infer/decode/waiting.h"
// ---- the plan -------------------------------------------------------------------------------------------------------

// LEARNT: cycles in which each way had its turn, and the better one is known (infer/decode/bandit.h).
enum { SLOTS = 4, TEXT = 400, LEARNT = 25 * PL_BANDIT_BLOCK };

typedef struct play {
    pl_drafter *d;
    pl_tree     tree[SLOTS];
    int32_t     text[SLOTS][TEXT];
    int         n[SLOTS];
    double      cost[SLOTS * 64 + 1];                 // seconds by rows
    int64_t     drafted[SLOTS], rows, cycles, rested; // rested: cycles in which the drafter was passed by
} play;

static void open_play(play *p, const char *what) {
    pl_err err = {0};
    memset(p, 0, sizeof *p);
    if (pl_drafter_open(&p->d, what, &(pl_drafter_options){.max_sessions = SLOTS, .max_rows = 256, .slots = TEXT},
                        &err) != PL_OK)
        fail_msg("%s", err.msg);
    for (int s = 0; s < SLOTS; s++) {
        p->d->kind->reset(p->d, s);
        p->n[s] = 8;
    }
}

// What comes at a place: in the first `right` texts periodic, in the others periodic but for every third token.
static int32_t said(int s, int at, int right) {
    return s >= right && at % 3 == 2 ? 100 + (int32_t)((unsigned)(at * 2654435761u) >> 8 & 1023) : at % 5;
}

// Cycles as an engine has them: verdicts by what the texts say, seconds by rows.
static void run(play *p, int cycles, int right) {
    pl_ctx ctx = {.be = pl_backend_cpu()};
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < p->n[s]; i++)
            p->text[s][i] = said(s, i, right);
    p->rows = p->cycles = p->rested = 0;
    memset(p->drafted, 0, sizeof p->drafted);
    for (int c = 0; c < cycles; c++) {
        pl_draft_item it[SLOTS];
        int           rows = 0, emitted = 0;
        for (int s = 0; s < SLOTS; s++) {
            it[s] =
                (pl_draft_item){.slot = s, .tokens = p->text[s], .n_tokens = p->n[s], .tree = &p->tree[s], .depth = 16};
            pl_tree_root(&p->tree[s], p->text[s][p->n[s] - 1]);
        }
        bool rests = p->d->rests; // as the decode loop has it
        if (!rests) p->d->kind->propose(p->d, &ctx, &(pl_draft_batch){.item = it, .n = SLOTS});
        p->rested += rests;
        for (int s = 0; s < SLOTS; s++) {
            pl_verdict v = {.n = 0, .path = {0}};
            for (int child; (child = pl_tree_child(&p->tree[s], v.path[v.n], said(s, p->n[s] + v.n, right))) >= 0;)
                v.path[++v.n] = child;
            v.bonus = said(s, p->n[s] + v.n, right);
            if (!rests) p->d->kind->judged(p->d, s, &p->tree[s], &v);
            p->drafted[s] += p->tree[s].n - 1;
            rows += p->tree[s].n;
            emitted += v.n + 1;
            for (int i = 0; i <= v.n; i++, p->n[s]++)
                p->text[s][p->n[s]] = said(s, p->n[s], right);
            if (p->n[s] < TEXT - 40) continue;
            p->d->kind->reset(p->d, s);
            p->n[s] = 8;
        }
        p->d->kind->paced(
            p->d, &(pl_draft_pace){.sessions = SLOTS, .rows = rows, .emitted = emitted, .verifying = p->cost[rows]});
        p->rows += rows;
        p->cycles++;
    }
}

static void costs(play *p, double first, double free_rows, double row) {
    for (int r = 0; r <= SLOTS * 64; r++)
        p->cost[r] = first + (r > free_rows ? (r - free_rows) * row : 0);
    for (int r = 1; r <= SLOTS * 64; r++) // all of it is known before
        for (int k = 0; k < 3; k++)
            p->d->kind->paced(p->d, &(pl_draft_pace){.sessions = SLOTS, .rows = r, .verifying = p->cost[r]});
}

// Rows that cost what the first one costs pay for nothing that may be wrong, rows that are free for everything, and
// rows that are free up to a number for the likeliest of all sessions' drafts up to it.
static void plans_by_goodput(void **state) {
    (void)state;
    static play p;
    open_play(&p, "hybrid:suffix:16");
    costs(&p, 1e-4, 1e9, 0);
    run(&p, LEARNT, SLOTS);
    run(&p, 200, SLOTS);
    assert_true(p.drafted[0] > 5 * p.cycles); // long copies of a text that repeats itself
    pl_drafter_destroy(p.d);
    open_play(&p, "hybrid:suffix:16");
    costs(&p, 1e-4 * SLOTS, SLOTS, 2e-4);
    run(&p, LEARNT, 0);
    run(&p, 20000, 0);
    print_message("where nothing pays it rests in %lld of %lld cycles\n", (long long)p.rested, (long long)p.cycles);
    assert_true(p.rows < p.cycles * SLOTS * 101 / 100);
    assert_true(p.rested > p.cycles / 4 && p.rested < p.cycles); // its own time is the clock's
    pl_drafter_destroy(p.d);
    open_play(&p, "hybrid:suffix:16");
    costs(&p, 1e-4, 12, 1e-3);
    run(&p, LEARNT, SLOTS / 2);
    run(&p, 200, SLOTS / 2);
    double rows = (double)p.rows / (double)p.cycles;
    print_message("12 free rows for 4 sessions: %.2f used; drafts of sessions that repeat themselves %lld and %lld, of "
                  "the others %lld and %lld\n",
                  rows, (long long)p.drafted[0], (long long)p.drafted[1], (long long)p.drafted[2],
                  (long long)p.drafted[3]);
    assert_true(rows > 11 && rows <= 12.5);
    assert_true(p.drafted[0] + p.drafted[1] > 2 * (p.drafted[2] + p.drafted[3]));
    pl_drafter_destroy(p.d);
}

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

// ---- rows that waited -----------------------------------------------------------------------------------------------

enum { LENGTH = 250 };

enum { MOST = 8, ALONE = 4 }; // sessions; cycles of the last one

// What a model's drafts begin with, by session and number of tokens that they were made behind; -1: nothing.
typedef struct beginnings {
    bool    hybrids; // its adapting model tells its candidates; alone, with a chain of fixed length, it always drafts
    int     read, left; // sessions whose features are read: as answers begin, at most; halfway through the first ones
    int32_t of[MOST][LENGTH + 8];
} beginnings;

static void note(void *arg, const pl_cycle *c) {
    const pl_tree *t = c->tree;
    beginnings    *b = arg;
    int32_t       *at = &b->of[pl_session_key(c->session)][pl_session_length(c->session) - c->emitted];
    if (!b->hybrids && t->n > 1) *at = t->token[1];
    if (b->hybrids && t->notes.levels > 0) *at = t->notes.candidate[0];
}

static const pl_drafter_kind *told_kind;

// A row takes a second, so that nothing pays.
static void tell_rows(pl_drafter *d, const pl_draft_pace *p) {
    told_kind->paced(d, &(pl_draft_pace){.sessions = p->sessions,
                                         .rows = p->rows,
                                         .emitted = p->emitted,
                                         .verifying = p->rows,
                                         .drafting = p->drafting});
}

// For how many sessions features are read.
static int read_now(const pl_drafter *d, int sessions) {
    int n = 0;
    for (int k = 0; k < sessions; k++)
        n += !d->kind->reads || d->kind->reads(d, k);
    return n;
}

// All sessions answer at once, and the first one ends last. Says of how many features are read first and halfway.
static void answer_all(pl_engine *e, const pl_drafter *d, int sessions, int *first, int *halfway) {
    pl_err      err = {0};
    pl_session *s[MOST];
    for (int k = 0; k < sessions; k++) {
        int32_t            prompt[5] = {3, 1, 4, 1, 5 + k};
        pl_session_options so = {.sampling = {.temperature = 1, .top_p = 1, .seed = 3},
                                 .key = (uint64_t)k,
                                 .max_new = LENGTH - 5 - (k ? ALONE : 0)};
        assert_int_equal(pl_engine_start(e, prompt, 5, &so, &s[k], &err), PL_OK);
    }
    *first = read_now(d, sessions);
    while (pl_session_finish(s[0]) == PL_RUNNING) {
        assert_int_equal(pl_engine_step(e, &err), PL_OK);
        if (pl_session_length(s[0]) < LENGTH / 2) *halfway = read_now(d, sessions);
    }
    for (int k = 0; k < sessions; k++)
        pl_engine_end(e, s[k]);
}

// The same answers of so many sessions, `before` times and then `times` times, which are noted.
static void note_answers(beginnings *to, const pl_llama *target, const char *what, const char *tree, int sessions,
                         int before, int times) {
    pl_err             err = {0};
    pl_drafter        *d;
    pl_engine         *e;
    const int          rows = 80 * sessions;
    pl_drafter_options od = {.target = target,
                             .dtype = PL_BF16,
                             .max_sessions = sessions,
                             .max_rows = rows,
                             .slots = LENGTH + 80,
                             .tree = tree};
    pl_engine_options  o = {.max_sessions = sessions, .max_rows = rows, .max_len = LENGTH};
    if (pl_drafter_open(&d, what, &od, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_drafter_kind kind = *d->kind;
    told_kind = d->kind;
    kind.paced = tell_rows;
    to->hybrids = told_kind->paced;
    to->read = 0;
    memset(to->of, 0xff, sizeof to->of);
    if (to->hybrids) d->kind = &kind;
    assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), NULL, target, d, &o, &err), PL_OK);
    for (int i = 0; i < before + times; i++) {
        if (i == before) pl_engine_on_cycle(e, note, to);
        int first, halfway = 0;
        answer_all(e, d, sessions, &first, &halfway);
        if (i >= before && first > to->read) to->read = first;
        if (i == 0) to->left = halfway;
    }
    pl_engine_destroy(e);
    pl_drafter_destroy(d);
}

static beginnings alone, waited;

// Where MODEL's drafts do not pay it is silent, and tried now and then: behind more rows than it takes in at once it
// drafts what it would have drafted had it seen them as they came.
static void waits_without_loss(void **state) {
    (void)state;
    char     dir[64], draft[64], hybrid[96];
    pl_llama target;
    int      same = 0, late = 0, always = 0;
    test_target(&target, test_mkdir(dir), 8, 21, PL_BF16);
    test_drafter_write(test_mkdir(draft), &target, "full", 0, 33);
    snprintf(hybrid, sizeof hybrid, "hybrid:suffix:1+%s", draft);
    note_answers(&alone, &target, draft, "chain:1", 1, 0, 1);
    note_answers(&waited, &target, hybrid, "chain:auto", 1, 0, 40);
    for (int i = 0; i < LENGTH; i++) {
        const int32_t its = alone.of[0][i], mine = waited.of[0][i];
        always += its >= 0;
        late += mine >= 0 && i > 150;
        if (mine < 0 || its < 0) continue;
        if (its != mine) fail_msg("behind %d tokens it drafts %d, and %d where rows waited", i, its, mine);
        same++;
    }
    print_message("%d drafts of a model that is silent, %d of them late, as of %d\n", same, late, always);
    assert_true(same > 12 && late >= 4 && same < always / 4);
    pl_llama_fini(&target);
    test_rmdir(dir);
    test_rmdir(draft);
}

// Of sessions that begin while MODEL is silent the first four keep their rows, and of those before it was known to be so
// as many are left. Only they draft when it is tried: what it drafts alone, though the features of those four are all
// that it is given.
static void four_keep_rows(void **state) {
    (void)state;
    char     dir[64], draft[64], hybrid[96];
    int      tried = 0, same = 0, always = 0;
    pl_llama target;
    test_target(&target, test_mkdir(dir), 8, 21, PL_BF16);
    test_drafter_write(test_mkdir(draft), &target, "full", 0, 33);
    snprintf(hybrid, sizeof hybrid, "hybrid:suffix:1+%s", draft);
    note_answers(&waited, &target, hybrid, "chain:auto", MOST, 1, 16);
    note_answers(&alone, &target, draft, "chain:1", MOST, 0, 1);
    assert_int_equal(waited.read, 4);
    assert_int_equal(waited.left, 4);
    assert_int_equal(alone.read, 8);
    for (int k = 0; k < MOST; k++)
        for (int i = 0; i < LENGTH; i++) {
            const int32_t its = alone.of[k][i], mine = waited.of[k][i];
            always += its >= 0;
            tried += mine >= 0;
            if (k >= 4 && mine >= 0) fail_msg("session %d drafts behind %d tokens", k, i);
            if (its < 0 || mine < 0) continue;
            if (its != mine) fail_msg("session %d drafts %d behind %d tokens, alone %d", k, mine, i, its);
            same++;
        }
    print_message("%d drafts of four sessions of eight, %d of them beside those of a model alone, %d\n", tried, same,
                  always);
    assert_true(tried > 3 && same > 3);
    pl_llama_fini(&target);
    test_rmdir(dir);
    test_rmdir(draft);
}

// Cycles in which MODEL drafted, and single ones between two such, behind its calibration, that it was left out of.
typedef struct exploring {
    const pl_drafter *d;
    int               drafted, left_out;
    int32_t           at;
    bool              before[2];
} exploring;

static void explored(void *arg, const pl_cycle *c) {
    exploring *e = arg;
    bool       drafts = c->tree->notes.levels > 0;
    int32_t    at = pl_session_length(c->session) - c->emitted;
    if (at < e->at) e->before[0] = e->before[1] = false; // another answer; the last token of one is never drafted for
    e->at = at;
    // The draft's seconds are there until the next one begins.
    if (drafts ? c->tree->notes.grown < 2 : e->d->parts.take_in > 0)
        fail_msg("MODEL was asked for a draft of nothing, behind %d drafts", e->drafted);
    e->drafted += drafts;
    e->left_out += e->drafted > PL_AUTOTUNER_CALIBRATION && drafts && !e->before[0] && e->before[1];
    e->before[1] = e->before[0];
    e->before[0] = drafts;
}

// A step takes a second, however many rows it has, so that everything pays.
static void tell_steps(pl_drafter *d, const pl_draft_pace *p) {
    pl_draft_pace told = *p;
    told.verifying = 1;
    told_kind->paced(d, &told);
}

// Where MODEL's drafts pay its autotuner asks for a cycle without any now and then, to see what that costs: MODEL is
// not asked in it, whether its tokens are drawn or not.
static void explores_no_draft(void **state) {
    (void)state;
    static const pl_verifier *const verifiers[] = {&pl_verify_match, &pl_verify_rejection, &pl_verify_kseq,
                                                   &pl_verify_recursive_wor};
    char                            dir[64], draft[64], what[96];
    pl_llama                        target;
    pl_err                          err = {0};
    test_target(&target, test_mkdir(dir), 1, 21, PL_BF16);
    test_drafter_write(test_mkdir(draft), &target, "full", 0, 33);
    snprintf(what, sizeof what, "hybrid:suffix:1+%s", draft);
    for (size_t v = 0; v < sizeof verifiers / sizeof *verifiers; v++) {
        pl_drafter        *d;
        pl_engine         *e;
        const int          rows = 80;
        pl_drafter_options od = {.target = &target,
                                 .dtype = PL_BF16,
                                 .max_sessions = 1,
                                 .max_rows = rows,
                                 .slots = LENGTH + 80,
                                 .tree = verifiers[v]->chain ? "chain:auto" : "auto"};
        pl_engine_options  o = {.max_sessions = 1, .max_rows = rows, .max_len = LENGTH, .verifier = verifiers[v]};
        if (pl_drafter_open(&d, what, &od, &err) != PL_OK) fail_msg("%s", err.msg);
        pl_drafter_kind kind = *d->kind;
        exploring       seen = {.d = d};
        told_kind = d->kind;
        kind.paced = tell_steps;
        d->kind = &kind;
        if (pl_engine_create(&e, pl_backend_cpu(), NULL, &target, d, &o, &err) != PL_OK) fail_msg("%s", err.msg);
        pl_engine_on_cycle(e, explored, &seen);
        for (int k = 0, first, halfway; k < 12; k++)
            answer_all(e, d, 1, &first, &halfway);
        print_message("%s: MODEL drafts in %d cycles, and is left out of %d between them\n", verifiers[v]->name,
                      seen.drafted, seen.left_out);
        assert_true(seen.drafted > 100 && seen.left_out > 0);
        pl_engine_destroy(e);
        pl_drafter_destroy(d);
    }
    pl_llama_fini(&target);
    test_rmdir(dir);
    test_rmdir(draft);
}

// Rows reach a drafter once, in order and with their own features, however many wait.
static int32_t next_row;

static void take_rows(pl_drafter *d, pl_ctx *ctx, pl_draft_batch *b) {
    (void)d, (void)ctx;
    assert_int_equal(b->item[0].first, next_row);
    for (int j = 0; j < b->item[0].count; j++, next_row++)
        assert_true(pl_f32(&b->features)[(int64_t)b->item[0].feature_row[j] * 2] == (float)next_row);
}

static pl_waiting *only(void *arg, const pl_draft_item *it) {
    (void)it;
    return arg;
}

static void rows_wait_in_order(void **state) {
    (void)state;
    enum { ADDED = 5, TIMES = 41, OWN = 3 };
    static const pl_drafter_kind kind = {.name = "takes", .propose = take_rows};
    pl_drafter                   d = {.kind = &kind};
    pl_waiting                   w;
    pl_ctx                       ctx;
    pl_err                       err;
    float                        x[ADDED * 2];
    int32_t                      index[ADDED] = {4, 3, 2, 1, 0}; // rows of the batch lie in any order
    pl_tensor                    features = pl_tensor_2d(x, PL_F32, ADDED, 2);
    pl_draft_item                it = {.count = ADDED, .feature_row = index};
    assert_int_equal(pl_waiting_init(&w, 400, 2 * sizeof(float), &err), PL_OK);
    assert_int_equal(pl_ctx_init(&ctx, pl_backend_cpu(), NULL), PL_OK);
    assert_int_equal(pl_arena_reserve(&ctx.frame, 1 << 16, &err), PL_OK);
    next_row = 0;
    for (int k = 0; k <= TIMES; k++, it.first += ADDED) {
        for (int j = 0; j < ADDED; j++)
            x[index[j] * 2] = (float)(it.first + j);
        if (k < TIMES) pl_waiting_add(&w, &it, &features);
    }
    it.first -= ADDED;
    it.count = OWN;
    pl_waiting_catch_up(&w, &d, &ctx, &it, &features);
    assert_int_equal(next_row, TIMES * ADDED - w.n);
    assert_in_range(w.n, 1, PL_WAITING_MOST);
    pl_draft_batch all = {.item = &it, .n = 1, .features = features};
    pl_waiting_join(&all, &ctx, w.n + OWN, only, &w);
    take_rows(&d, &ctx, &all);
    assert_int_equal(next_row, TIMES * ADDED + OWN);
    assert_int_equal(w.n, 0);
    pl_waiting_fini(&w);
    pl_ctx_fini(&ctx);
}

// ---- speed ----------------------------------------------------------------------------------------------------------

enum {
    PLAIN,
    HYBRID,
    AGAIN,
    SINGLES,
    METHODS = 8,
    PIECES = 64,
    WARM = 2,
    AGAIN_MOST = 4,
    PROMPTS = 1024,
    ANSWER = 128
};

#define DISTURBED 0.1

// What came of pieces; NaN: that method did not run in that round.
typedef struct results {
    int     answers, blocks, repeated; // of a piece, the last block's; blocks added up; rounds that were disturbed
    double  speed[METHODS][PIECES], warm[METHODS], tpot[METHODS][PROMPTS];
    int64_t different, drafted[METHODS], emitted[METHODS], steps[METHODS];
} results;

// Answers are cut into pieces: the same prompts for every method of a round, plain decoding and the hybrid in every
// round, the others behind them in every `singles`-th, but for those that reached less than half of plain decoding's speed
// in a block. A round is played in parts of an answer a session, in each of which the hybrid stands between two plain
// decoders, which change places from part to part: so what drifts does not matter, what disturbs a machine for longer
// than a part disturbs all, and the two beside each other say what a difference must be to mean anything. The hybrid is
// compared with the mean time of both. What a method has learnt of the machine stays from piece to piece, as in a
// server; what it keeps of texts does not outlive a session. Rounds come in blocks of as many, each in a process of its
// own: where a process' memory happens to lie makes one method some per cent faster or slower than another as long as
// the process lives, which more rounds of it do not average.
typedef struct pairs {
    pl_target   target;
    pl_prompts *prompts;
    int         sessions, blocks, rounds, singles, n; // rounds: of all blocks; methods, plain decoding the first
    double      temperature, seconds;                 // of a piece, at least
    bool        slow[METHODS];                        // not to be played any more
    char       *name[METHODS];
    pl_runner   runner[METHODS];
    // A piece's.
    int         answers;
    int32_t    *ids[PROMPTS];
    int64_t     n_ids[PROMPTS];
    pl_sampling sampling[PROMPTS];
    uint64_t    hash[METHODS][PROMPTS];
    double      tpot[METHODS][PROMPTS];
    results     of;
} pairs;

static const pl_prompt *prompt_at(const pairs *x, int piece, int i) {
    return &x->prompts->p[((int64_t)piece * x->answers + i) % x->prompts->n];
}

static void encode(pairs *x, int piece) {
    pl_err err = {0};
    for (int i = 0; i < x->answers; i++) {
        pl_free(x->ids[i]);
        assert_int_equal(pl_prompt_encode(x->target.tok, prompt_at(x, piece, i), &x->ids[i], &x->n_ids[i], &err),
                         PL_OK);
        x->sampling[i] = (pl_sampling){.temperature = x->temperature,
                                       .top_p = 1,
                                       .seed = (uint64_t)piece * (uint64_t)x->answers + (uint64_t)i + 1};
    }
}

// Answers first..first+n-1 of the piece; adds to b.
static void answer(pairs *x, int m, int first, int n, pl_batched *b) {
    pl_err        err = {0};
    double        latency[2 * PROMPTS];
    pl_batch_work w = {.n = n,
                       .prompt = x->ids + first,
                       .prompt_n = x->n_ids + first,
                       .sampling = x->sampling + first,
                       .max_new = ANSWER};
    b->sessions = x->sessions;
    if (pl_batch_run(&x->runner[m], &w, b, x->hash[m] + first, latency, &err) != PL_OK)
        fail_msg("%s: %s", x->name[m], err.msg);
    memcpy(x->tpot[m] + first, latency + n, (size_t)n * sizeof *latency);
}

static int part_of(const pairs *x) {
    return x->sessions;
}

// As many prompts as plain decoding takes so many seconds for, in whole parts.
static void size_pieces(pairs *x) {
    double seconds = INFINITY;
    int    part = x->answers = part_of(x);
    encode(x, 0);
    for (int i = 0; i < 3; i++) { // something else may run meanwhile
        pl_batched b = {0};
        answer(x, 0, 0, part, &b);
        seconds = fmin(seconds, b.seconds);
    }
    x->answers = (int)ceil(x->seconds / seconds) * part;
    while (x->answers > PROMPTS)
        x->answers -= part;
}

// Time per later token, by prompt, so that each domain's speed can be told.
static void by_prompt(pairs *x, int m, int piece) {
    for (int i = 0; i < x->answers; i++)
        if (!isnan(x->tpot[m][i])) x->of.tpot[m][prompt_at(x, piece, i) - x->prompts->p] += x->tpot[m][i];
}

// Tokens a second of both plain decoders.
static double plain_speed(const results *of, int r) {
    return 2 / (1 / of->speed[PLAIN][r] + 1 / of->speed[AGAIN][r]);
}

// A round by its number in all blocks; before those that count come WARM that do not. Returns false, and counts nothing,
// where the two plain decoders differ by more than DISTURBED: something else ran, and what it took from the hybrid
// nobody can tell.
static bool one_round(pairs *x, int r, bool counted, bool singles, bool may_fail) {
    pl_batched b[METHODS] = {0};
    int        part = part_of(x);
    encode(x, counted ? r + 1 : PIECES + 1 + r); // other prompts than those that count
    for (int at = 0; at < x->answers; at += part)
        for (int k = 0; k < SINGLES; k++) {
            int m = (r + at / part) % 2 ? AGAIN - k : k;
            answer(x, m, at, part, &b[m]);
        }
    double twice = pl_batch_speed(&b[AGAIN]) / pl_batch_speed(&b[PLAIN]);
    if (may_fail && (twice > 1 + DISTURBED || twice < 1 - DISTURBED)) return false;
    for (int m = 0; m < x->n; m++) {
        if (m >= SINGLES && (!singles || x->slow[m])) continue;
        if (m >= SINGLES) answer(x, m, 0, x->answers, &b[m]);
        if (counted)
            x->of.speed[m][r] = pl_batch_speed(&b[m]);
        else
            x->of.warm[m] = pl_batch_speed(&b[m]);
        x->of.drafted[m] += b[m].stats.drafted;
        x->of.emitted[m] += b[m].stats.emitted;
        x->of.steps[m] += b[m].stats.steps;
        if (counted && m < SINGLES) by_prompt(x, m, r + 1);
    }
    for (int i = 0; i < x->answers; i++)
        x->of.different += x->hash[PLAIN][i] != x->hash[HYBRID][i] || x->hash[PLAIN][i] != x->hash[AGAIN][i];
    return true;
}

static int rounds_of_block(const pairs *x) {
    return x->rounds / x->blocks;
}

static bool has_singles(const pairs *x, int block) {
    for (int r = block * rounds_of_block(x); r < (block + 1) * rounds_of_block(x); r++)
        if (r % x->singles == 0) return true;
    return false;
}

static void run_block(pairs *x, int block) {
    int first = block * rounds_of_block(x);
    size_pieces(x);
    for (int i = 0; i < WARM; i++)
        one_round(x, first + i, false, i == 0 && has_singles(x, block), false);
    for (int r = first; r < first + rounds_of_block(x); r++)
        for (int left = AGAIN_MOST; !one_round(x, r, true, r % x->singles == 0, left > 0); left--)
            x->of.repeated++;
    x->of.answers = x->answers;
    x->of.blocks = 1;
}

// In a process of its own, which hands its results over.
static void block_apart(const pairs *x, int block, results *of) {
    int  to[2], status, slow = 0;
    char text[48];
    for (int m = 0; m < x->n; m++)
        slow |= x->slow[m] << m;
    assert_int_equal(pipe(to), 0);
    snprintf(text, sizeof text, "%d %d %d", block, to[1], slow);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("PACELINE_PAIRS_BLOCK", text, 1);
        execl("/proc/self/exe", "test_hybrid", (char *)NULL);
        _exit(127);
    }
    close(to[1]);
    size_t  got = 0;
    ssize_t n;
    while (got < sizeof *of && (n = read(to[0], (char *)of + got, sizeof *of - got)) > 0)
        got += (size_t)n;
    close(to[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0 || got != sizeof *of) fail_msg("block %d: status %d, %zu bytes of results", block, status, got);
}

static void hand_over(const results *of, int to) {
    for (size_t at = 0; at < sizeof *of;) {
        ssize_t n = write(to, (const char *)of + at, sizeof *of - at);
        assert_true(n > 0);
        at += (size_t)n;
    }
}

static void add_block(pairs *x, const results *b) {
    results *of = &x->of;
    of->answers = b->answers;
    of->blocks += b->blocks;
    of->repeated += b->repeated;
    of->different += b->different;
    for (int m = 0; m < x->n; m++) {
        of->warm[m] += b->warm[m] / b->warm[0];
        of->drafted[m] += b->drafted[m];
        of->emitted[m] += b->emitted[m];
        of->steps[m] += b->steps[m];
        for (int i = 0; i < PROMPTS; i++)
            of->tpot[m][i] += b->tpot[m][i];
        for (int r = 0; r < x->rounds; r++) {
            if (isnan(b->speed[m][r])) continue;
            of->speed[m][r] = b->speed[m][r];
            x->slow[m] |= m >= SINGLES && b->speed[m][r] < 0.5 * b->speed[0][r];
        }
    }
}

// Mean of the blocks' mean ratios and half of its 95 % interval (Student's t, by Cornish and Fisher's series): a block's
// rounds share what its process was dealt, so blocks are what is independent. *half: NaN of one block.
static double ratio(const pairs *x, int m, double *half) {
    double mean[PIECES], sum = 0, square = 0;
    int    n = 0, per = rounds_of_block(x);
    for (int b = 0; b < x->blocks; b++) {
        double of = 0;
        int    rounds = 0;
        for (int r = b * per; r < (b + 1) * per; r++) {
            if (isnan(x->of.speed[m][r])) continue;
            of += x->of.speed[m][r] / (m == AGAIN ? x->of.speed[PLAIN][r] : plain_speed(&x->of, r));
            rounds++;
        }
        if (rounds) sum += mean[n++] = of / rounds;
    }
    sum /= n;
    for (int b = 0; b < n; b++)
        square += pow(mean[b] - sum, 2);
    double df = n - 1;
    *half = (1.95996 + 2.37227 / df + 2.8225 / (df * df) + 2.556 / (df * df * df)) * sqrt(square / df / n);
    return sum;
}

static void print_domains(const pairs *x, FILE *json) {
    int told = 0;
    for (int64_t i = 0; i < x->prompts->n && i < PROMPTS; i++) {
        const char *of = x->prompts->p[i].category;
        double      plain = 0, mine = 0;
        for (int64_t k = 0; k < x->prompts->n && k < PROMPTS; k++) {
            if (strcmp(x->prompts->p[k].category, of) != 0) continue;
            if (k < i) break; // told
            plain += (x->of.tpot[PLAIN][k] + x->of.tpot[AGAIN][k]) / 2;
            mine += x->of.tpot[HYBRID][k];
        }
        if (mine <= 0) continue;
        print_message("  %s: %.3f times plain, by time per token\n", of, plain / mine);
        if (json) fprintf(json, "%s\"%s\":%.4f", told++ ? "," : "", of, plain / mine);
    }
}

static void print_pairs(const pairs *x, const char *target) {
    const results *of = &x->of;
    FILE          *json = getenv("PACELINE_PAIRS_JSON") ? fopen(getenv("PACELINE_PAIRS_JSON"), "a") : NULL;
    double         best = 1, half, mine = ratio(x, HYBRID, &half), lower = mine - half, other;
    if (json)
        fprintf(json,
                "{\"target\":\"%s\",\"sessions\":%d,\"temperature\":%g,\"processes\":%d,\"pairs\":%d,"
                "\"repeated\":%d,\"answers\":%d,\"methods\":[",
                target, x->sessions, x->temperature, x->blocks, x->rounds, of->repeated, of->answers);
    for (int m = 1; m < x->n; m++) {
        double mean = ratio(x, m, &other);
        print_message("  %-60.60s %.3f times plain (", x->name[m], mean);
        if (isnan(other))
            print_message("one piece");
        else
            print_message("+-%.3f", other);
        print_message("), %.2f drafted and %.3f emitted a step", (double)of->drafted[m] / (double)of->steps[m],
                      (double)of->emitted[m] / (double)of->steps[m]);
        if (m == HYBRID) print_message("; first pieces %.3f", of->warm[m] / of->blocks);
        print_message("\n");
        if (json) fprintf(json, "%s{\"name\":\"%s\",\"speedup\":%.4f", m > 1 ? "," : "", x->name[m], mean);
        if (json && !isnan(other)) fprintf(json, ",\"interval\":[%.4f,%.4f]", mean - other, mean + other);
        if (json) fprintf(json, "}");
        if (m >= SINGLES && mean > best) best = mean;
    }
    if (json) fprintf(json, "],\"domains\":{");
    print_domains(x, json);
    double plain = 0;
    for (int r = 0; r < x->rounds; r++)
        plain += plain_speed(of, r) / x->rounds;
    if (json) fprintf(json, "},\"plain\":%.1f,\"different\":%lld}\n", plain, (long long)of->different);
    if (json) fclose(json);
    print_message("pairs: %d sessions, T=%g, %d processes, %d pairs of %d answers (%d disturbed ones repeated), plain "
                  "%.0f tokens/s: hybrid %.3f, at "
                  "least %.3f (0.98 asked: %s); the best single method %.3f (less 1 %%: %s); %lld answers differ\n",
                  x->sessions, x->temperature, x->blocks, x->rounds, of->answers, of->repeated, plain, mine, lower,
                  lower >= 0.98 ? "yes" : "NO", best, mine >= 0.99 * best ? "yes" : "NO", (long long)of->different);
    assert_int_equal(of->different, 0);
}

// What a block's process needs.
static void open_methods(pairs *x, char **word, bool singles, pl_pool **pool) {
    pl_err err = {0};
    assert_int_equal(pl_pool_create(pool, 2, &err), PL_OK);
    if (pl_target_open(&x->target, word[0], strcmp(word[1], "-") ? word[1] : NULL, NULL, PL_WEIGHTS_BF16,
                       pl_backend_cpu(), &err) != PL_OK)
        fail_msg("%s", err.msg);
    for (int m = 0; m < x->n; m++)
        if ((m < SINGLES || (singles && !x->slow[m])) &&
            pl_runner_open(
                &x->runner[m], pl_backend_cpu(), *pool, &x->target,
                &(pl_runner_options){.drafter = m == PLAIN || m == AGAIN ? NULL : x->name[m], .sessions = x->sessions},
                &err) != PL_OK)
            fail_msg("%s: %s", x->name[m], err.msg);
}

static void close_methods(pairs *x, pl_pool *pool) {
    for (int m = 0; m < x->n; m++)
        pl_runner_close(&x->runner[m]);
    for (int i = 0; i < PROMPTS; i++)
        pl_free(x->ids[i]);
    pl_target_close(&x->target);
    pl_pool_destroy(pool);
}

static void speed_in_pairs(void **state) {
    (void)state;
    enum { WORDS = 9 };
    static pairs   x;
    static results of;
    char           text[2048], *word[WORDS + METHODS - AGAIN], *at = text;
    int            n = 0, block, to, slow;
    pl_err         err = {0};
    pl_pool       *pool;
    if (!getenv("PACELINE_PAIRS")) skip();
    snprintf(text, sizeof text, "%s", getenv("PACELINE_PAIRS"));
    for (char *w; n < WORDS + METHODS - AGAIN && (w = strtok_r(at, " ", &at));)
        word[n++] = w;
    assert_true(n > WORDS);
    x.sessions = atoi(word[3]);
    x.temperature = atof(word[4]);
    x.blocks = atoi(word[5]);
    x.rounds = atoi(word[6]);
    x.singles = atoi(word[7]);
    x.seconds = atof(word[8]);
    assert_true(x.sessions >= 1 && x.sessions <= 64 && x.blocks >= 2 && x.rounds <= PIECES && x.singles >= 1);
    assert_true(x.rounds >= x.blocks && x.rounds % x.blocks == 0);
    assert_int_equal(pl_prompts_read(&x.prompts, word[2], &err), PL_OK);
    assert_true(x.prompts->n <= PROMPTS);
    x.name[PLAIN] = "plain";
    x.name[AGAIN] = "plain beside itself";
    x.name[HYBRID] = word[WORDS];
    x.n = SINGLES;
    for (int i = WORDS + 1; i < n; i++)
        x.name[x.n++] = word[i];
    for (int m = 0; m < METHODS; m++)
        for (int r = 0; r < PIECES; r++)
            x.of.speed[m][r] = NAN;
    if (getenv("PACELINE_PAIRS_BLOCK")) {
        assert_int_equal(sscanf(getenv("PACELINE_PAIRS_BLOCK"), "%d %d %d", &block, &to, &slow), 3);
        for (int m = 0; m < x.n; m++)
            x.slow[m] = slow >> m & 1;
        open_methods(&x, word, has_singles(&x, block), &pool);
        run_block(&x, block);
        hand_over(&x.of, to);
        close_methods(&x, pool);
    } else {
        for (int b = 0; b < x.blocks; b++) {
            block_apart(&x, b, &of);
            add_block(&x, &of);
        }
        print_pairs(&x, word[0]);
    }
    pl_prompts_destroy(x.prompts);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_by_goodput),   cmocka_unit_test(refuses),
                                       cmocka_unit_test(waits_without_loss), cmocka_unit_test(four_keep_rows),
                                       cmocka_unit_test(explores_no_draft),  cmocka_unit_test(rows_wait_in_order),
                                       cmocka_unit_test(speed_in_pairs)};
    const struct CMUnitTest block[] = {cmocka_unit_test(speed_in_pairs)};
    return getenv("PACELINE_PAIRS_BLOCK") ? cmocka_run_group_tests(block, NULL, NULL)
                                          : cmocka_run_group_tests(tests, NULL, NULL);
}
