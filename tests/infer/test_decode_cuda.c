// Decoding on a device: weights, caches and activations in its memory, ops in its queue, on the CUDA backend's kernels.
// It is the emulated device here (tests/cuda/emulate/device_emulated.h: a host that touches a tensor, an index array
// that is written again too early, a pointer that a GPU could not reach show), and a GPU where PACELINE_TEST_DEVICE
// names one.
//   - What plain decoding emits, and the logits it emits it from, keep their bits in company, in chunks of a prompt, in
//     chains and in trees, with right, wrong and random drafts, and with every head (test_decode_bits.c has more of it,
//     on the CPU).
//   - Logits are the CPU's within what rounding costs; greedy text is the CPU's, and so is drawn text where that is
//   fp32's
//     rounding.
//   - Tokens are drawn on the device: no step downloads anything, under any distribution.
#include "infer/drafter/backbone.h"
#include "infer/drafter/drafter.h"
#include "infer/verify/verify.h"
#include "kernels/base/hash.h"
#include "tests/cuda/emulate/device_emulated.h"
#include "tests/infer/fixture.h"
#include "tests/whole.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device.h"

enum { SESSIONS = 6, MAX_NEW = 12, MAX_LEN = 128 };

typedef struct transcript {
    int32_t  tokens[MAX_LEN + 1];
    int32_t  n;
    int64_t  drafted, accepted;
    int      reused;
    uint64_t bits[MAX_LEN]; // hash of the logits that position p's successor was taken from; 0: none
} transcript;

static transcript        *record_to; // by key
static const pl_verifier *verifier;  // NULL: match
static float             *logits_to; // [MAX_LEN, TEST_VOCAB] by position; NULL: not wanted
static const pl_sampling *dist;      // NULL: by temperature alone
static bool               unseen;    // nobody looks at final rows
static pl_tokenizer      *tok;       // the target's, NULL: not known
static bool               hosted;    // engines have room for logits on the host
static int                cold = -1; // the session that is greedy whatever the others are

static void record(void *arg, const pl_final_rows *r) {
    (void)arg;
    for (int i = 0; i < r->count; i++) {
        int at = r->logits_row[r->row[i]];
        if (at < 0) continue;
        const float *z = r->logits + (int64_t)at * TEST_VOCAB;
        record_to[pl_session_key(r->session)].bits[r->first + i] = pl_hash(z, TEST_VOCAB * sizeof *z) | 1;
        if (logits_to) memcpy(logits_to + (r->first + i) * TEST_VOCAB, z, TEST_VOCAB * sizeof *z);
    }
}

// Prompts of 3 to 78 tokens: past two groups of attention's keys.
static int prompt_of(uint64_t key, int32_t *ids) {
    int n = 3 + (int)key * 15;
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)((key * 31 + (uint64_t)i * (uint64_t)i * 13 + 5 * (uint64_t)i) % TEST_VOCAB);
    return n;
}

// Sessions key0..key0+n-1 side by side.
static void run(const pl_llama *m, pl_drafter *d, int rows, uint64_t key0, int n, double temperature, transcript *out) {
    pl_err            err = {0};
    pl_engine        *e;
    pl_engine_options o = {.max_sessions = n,
                           .max_rows = rows,
                           .max_len = MAX_LEN,
                           .verifier = verifier,
                           .see_logits = !unseen,
                           .host_logits = hosted};
    pl_session       *s[SESSIONS];
    int32_t           ids[MAX_LEN];
    if (d) d->max_rows = rows;
    if (pl_engine_create(&e, m->be, NULL, m, d, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    record_to = out;
    if (!unseen) pl_engine_on_final(e, record, NULL);
    for (int i = 0; i < n; i++) {
        pl_session_options so = {.sampling = {.temperature = temperature, .top_p = 1, .seed = 3},
                                 .key = key0 + (uint64_t)i,
                                 .max_new = MAX_NEW};
        if (dist) so.sampling = *dist;
        if (cold >= 0 && so.key == (uint64_t)cold) so.sampling.temperature = 0;
        int len = prompt_of(so.key, ids);
        memset(&out[so.key], 0, sizeof out[so.key]);
        assert_int_equal(pl_engine_start(e, ids, len, &so, &s[i], &err), PL_OK);
    }
    for (bool running = true; running;) {
        if (pl_engine_step(e, &err) != PL_OK) fail_msg("%s", err.msg);
        running = false;
        for (int i = 0; i < n; i++)
            running |= pl_session_finish(s[i]) == PL_RUNNING;
    }
    for (int i = 0; i < n; i++) {
        transcript *t = &out[key0 + (uint64_t)i];
        t->n = pl_session_length(s[i]);
        memcpy(t->tokens, pl_session_tokens(s[i]), (size_t)t->n * sizeof *t->tokens);
        t->drafted = pl_session_statistics(s[i])->drafted;
        t->accepted = pl_session_statistics(s[i])->accepted;
    }
    pl_engine_destroy(e);
}

static void same(const transcript *a, const transcript *b, const char *what, int key) {
    int seen = unseen ? MAX_NEW : 0;
    if (a->n != b->n || memcmp(a->tokens, b->tokens, (size_t)a->n * sizeof *a->tokens) != 0)
        fail_msg("%s, session %d: tokens differ", what, key);
    for (int p = 0; p < a->n; p++) {
        if (!a->bits[p] || !b->bits[p]) continue;
        seen++;
        if (a->bits[p] != b->bits[p]) fail_msg("%s, session %d: logit bits differ at position %d", what, key, p);
    }
    assert_true(seen >= MAX_NEW);
}

// Sessions key..key+n-1 side by side with an oracle's drafts; returns how many drafted tokens were accepted.
static int64_t oracled(const pl_llama *m, const transcript *plain, test_oracle_mode mode, const char *tree, int nodes,
                       int key, int n, double temperature, transcript *got, const char *what) {
    const int32_t *script[SESSIONS];
    int32_t        script_n[SESSIONS];
    int64_t        accepted = 0;
    test_oracle    o;
    test_oracle_init(&o, mode, tree, nodes, n);
    for (int i = 0; i < n; i++) {
        script[i] = plain[key + i].tokens;
        script_n[i] = plain[key + i].n;
    }
    o.script = script;
    o.script_n = script_n;
    run(m, &o.base, n * o.base.policy.max_nodes, (uint64_t)key, n, temperature, got);
    for (int i = 0; i < n; i++) {
        same(&plain[key + i], &got[key + i], what, key + i);
        accepted += got[key + i].accepted;
    }
    return accepted;
}

// All sessions so, some alone, then together.
static int64_t drafted(const pl_llama *m, const transcript *plain, test_oracle_mode mode, const char *tree, int nodes,
                       double temperature, transcript *got, const char *what) {
    int64_t accepted = 0;
    for (int key = 2; key < SESSIONS; key += 3)
        accepted += oracled(m, plain, mode, tree, nodes, key, 1, temperature, got, what);
    return accepted + oracled(m, plain, mode, tree, nodes, 0, SESSIONS, temperature, got, what);
}

// The random target in dir, on a backend.
static void open_on(pl_llama *m, const char *dir, pl_dtype t, const pl_backend *be) {
    pl_err err = {0};
    if (pl_llama_open(m, dir, t, be, &err) != PL_OK) fail_msg("%s", err.msg);
}

static void make(pl_llama *m, char dir[64], pl_dtype t) {
    test_target(m, test_mkdir(dir), 2, 11, t);
    pl_llama_fini(m);
    open_on(m, dir, t, test_device());
}

static void check(pl_dtype t, pl_dtype kv, double temperature) {
    static transcript plain[SESSIONS], got[SESSIONS];
    char              dir[64];
    pl_llama          m;
    make(&m, dir, t);
    m.shape.kv = kv;
    for (uint64_t key = 0; key < SESSIONS; key++) { // prompts in one row at a time: every second one, greedy
        bool by_row = test_whole() || (temperature == 0 && key % 2);
        run(&m, NULL, by_row ? 1 : 16, key, 1, temperature, plain);
    }
    run(&m, NULL, 70, 0, SESSIONS, temperature, got); // together, prompts in chunks of up to 70 rows
    for (int i = 0; i < SESSIONS; i++)
        same(&plain[i], &got[i], "batch", i);
    assert_true(drafted(&m, plain, TEST_ACCEPT, "chain:5", 0, temperature, got, "right chains") > 0);
    assert_int_equal(drafted(&m, plain, TEST_REJECT, "chain:3", 0, temperature, got, "wrong chains"), 0);
    // More rows than attention's tiles twice; in the first of the variants more still.
    const int nodes = test_whole() || (t == PL_BF16 && kv == PL_F32 && temperature == 0) ? 40 : 20;
    assert_true(drafted(&m, plain, TEST_MIXED, "chain:6", nodes, temperature, got, "trees") > 0);
    pl_llama_fini(&m);
    test_rmdir(dir);
}

typedef struct drafting {
    const pl_backbone_kind *kind; // NULL: a drafter by name
    const char             *head;
    const char             *what, *tree;
    pl_hf_selector          selector;
} drafting;

static const drafting draftings[] = {
    {&pl_backbone_eagle3, "full", "eagle-3", .tree = "eagle2:12,3,3"},
    {&pl_backbone_eagle3, "full", "eagle-3", .tree = "chain:4"},
    {&pl_backbone_eagle1, "lowrank:rank=8", "eagle-1", .tree = "chain:4"},
    {&pl_backbone_eagle3, "specvocab:rank=12,candidates=20", "specvocab", .tree = "chain:4"},
    {&pl_backbone_eagle3, "dynaspec:clusters=12,width=20,k0=5,k1=3,kmin=1", "dynaspec", .tree = "static:3x2"},
    {&pl_backbone_eagle3, "dynaspec:clusters=24,width=20,k0=2,k1=1,kmin=1", "selected", .tree = "static:3x2",
     .selector = {.rank = 5, .candidates = 9}},
    {&pl_backbone_eagle3, "full", "of a list", .tree = "static:3x2",
     .selector = {.rank = 5, .candidates = 9, .law = PL_HF_LAW_LIST}},
    {&pl_backbone_medusa, "lowrank:rank=8", "medusa", .tree = "static:3x2"},
    {&pl_backbone_hydrapp, "lowrank:rank=8", "hydra++", .tree = "static:3x2"},
    {.what = "lookup", .tree = "chain:4"},
    {.what = "recycle"},
};
enum { DRAFTINGS = sizeof draftings / sizeof *draftings };

static void with(const drafting *g, const pl_llama *m, pl_dtype t, double temperature, uint64_t key, transcript *out) {
    char        dir[64];
    pl_err      err = {0};
    pl_drafter *d;
    if (g->kind)
        test_backbone_write(test_mkdir(dir), m, g->kind,
                            &(pl_backbone_options){.head = pl_hf_head_of(g->head), .selector = g->selector}, 5);
    if (pl_drafter_open(&d, g->kind ? dir : g->what,
                        &(pl_drafter_options){.target = m,
                                              .dtype = t,
                                              .tree = g->tree,
                                              .max_sessions = 2,
                                              .max_rows = 128,
                                              .slots = MAX_LEN,
                                              .tok = tok},
                        &err) != PL_OK)
        fail_msg("%s", err.msg);
    run(m, d, 128, key, 2, temperature, out);
    pl_drafter_destroy(d);
    if (g->kind) test_rmdir(dir);
}

// Every head and every drafter, or each second one from `first` on, two sessions at a time.
static void drafters(pl_dtype t, pl_dtype kv, double temperature, int first) {
    bool              all = test_whole() || getenv("PACELINE_TEST_DEVICE");
    static transcript plain[SESSIONS], got[SESSIONS];
    char              dir[64];
    pl_llama          m;
    make(&m, dir, t);
    m.shape.kv = kv;
    for (uint64_t key = 0; key < 4; key++)
        run(&m, NULL, 16, key, 1, temperature, plain);
    for (int i = all ? 0 : first; i < DRAFTINGS; i += all ? 1 : 2) {
        int key = i % 2 * 2;
        with(&draftings[i], &m, t, temperature, (uint64_t)key, got);
        int64_t drafted = 0;
        for (int k = key; k < key + 2; k++) {
            same(&plain[k], &got[k], draftings[i].what, k);
            drafted += got[k].drafted;
        }
        if (drafted == 0) fail_msg("%s: nothing was drafted", draftings[i].what);
    }
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// Children that are drawn come from the head's distribution, which the host reads: the queued device gives what the
// same kernels give at once on memory that the host shares.
static void drawn(void **state) {
    (void)state;
    if (getenv("PACELINE_TEST_DEVICE")) skip(); // tensor cores sum in an order of their own
    static transcript queued[SESSIONS], at_once[SESSIONS];
    char              dir[64];
    pl_err            err = {0};
    pl_llama          m, plain;
    make(&m, dir, PL_BF16);
    open_on(&plain, dir, PL_BF16, pl_backend_cuda_emulated());
    verifier = pl_verifier_find("rejection", &err);
    if (!verifier) fail_msg("%s", err.msg);
    for (int i = 1; draftings[i].kind; i++) {
        drafting g = draftings[i];
        g.tree = "chain:3";
        with(&g, &m, PL_BF16, 0.8, 1, queued);
        with(&g, &plain, PL_BF16, 0.8, 1, at_once);
        same(&at_once[1], &queued[1], g.what, 1);
        same(&at_once[2], &queued[2], g.what, 2);
        assert_true(queued[1].drafted > 0 && queued[1].drafted == at_once[1].drafted);
        assert_true(queued[1].accepted == at_once[1].accepted);
    }
    verifier = NULL;
    pl_llama_fini(&m);
    pl_llama_fini(&plain);
    test_rmdir(dir);
}

// Distributions with every processor; the last one is penalised greedy decoding, whose tokens are drawn as well.
static const pl_sampling drawn_dists[] = {
    {.temperature = 1, .top_p = 1, .seed = 3},
    {.temperature = 1.2, .top_k = 40, .top_p = 0.95, .min_p = 0.01, .repetition_penalty = 1.2, .seed = 4},
    {.temperature = 0.7, .top_p = 0.8, .repetition_penalty = 0.9, .seed = 5},
    {.temperature = 0, .top_p = 1, .repetition_penalty = 1.5},
};
enum { DISTRIBUTIONS = sizeof drawn_dists / sizeof *drawn_dists };

static int64_t downloads;
static void (*download)(pl_ctx *ctx, void *to, const void *from, size_t bytes);

static void count_download(pl_ctx *ctx, void *to, const void *from, size_t bytes) {
    downloads++;
    download(ctx, to, from, bytes);
}

// The device, its downloads counted.
static const pl_backend *counting(void) {
    static pl_backend be;
    static pl_device  device;
    be = *test_device();
    device = *be.device;
    download = device.download;
    device.download = count_download;
    be.device = &device;
    return &be;
}

// Under each distribution plain decoding's tokens, alone, in company, in chains and in trees, and with a drafter,
// without a single download; verifiers that couple take theirs.
static void nothing_comes_back(void **state) {
    (void)state;
    static transcript plain[SESSIONS], got[SESSIONS];
    char              dir[64];
    pl_err            err = {0};
    pl_llama          m;
    test_target(&m, test_mkdir(dir), 2, 11, PL_BF16);
    pl_llama_fini(&m);
    open_on(&m, dir, PL_BF16, counting());
    unseen = true;
    for (int i = 0; i < DISTRIBUTIONS; i++) {
        dist = &drawn_dists[i];
        downloads = 0;
        for (uint64_t key = 0; key < SESSIONS; key++)
            run(&m, NULL, 16, key, 1, 0, plain);
        if (i == 1) {
            run(&m, NULL, 70, 0, SESSIONS, 0, got);
            for (int k = 0; k < SESSIONS; k++)
                same(&plain[k], &got[k], "batch", k);
            assert_true(drafted(&m, plain, TEST_ACCEPT, "chain:5", 0, 0, got, "right chains") > 0);
        }
        if (i % 2 || (i > 0 && test_whole()))
            assert_true(drafted(&m, plain, TEST_MIXED, "chain:6", 20, 0, got, "trees") > 0);
        with(&draftings[0], &m, PL_BF16, 0, 0, got);
        same(&plain[0], &got[0], "eagle-3", 0);
        same(&plain[1], &got[1], "eagle-3", 1);
        if (downloads) fail_msg("distribution %d: %lld downloads", i, (long long)downloads);
    }
    dist = NULL;
    verifier = pl_verifier_find("rejection", &err);
    run(&m, NULL, 16, 0, 1, 1, plain); // nothing to couple with
    assert_true(verifier && downloads == 0);
    with(&draftings[1], &m, PL_BF16, 1, 0, got);
    assert_true(downloads > 0);
    verifier = NULL;
    unseen = false;
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// Processors that the op draw lacks: such sessions bring their steps' logits to the host, where the engine has room for
// them, and drafts change nothing; the others' steps bring none.
static void processors_on_the_host(void **state) {
    (void)state;
    static transcript          plain[SESSIONS], got[SESSIONS];
    static const pl_logit_bias bias[] = {{5, 3}, {17, -100}};
    static const pl_sampling   dists[] = {{.top_p = 1, .frequency_penalty = 0.9, .presence_penalty = 0.3},
                                          {.temperature = 0.8, .top_p = 0.9, .bias = bias, .n_bias = 2, .seed = 6}};
    char                       dir[64];
    pl_err                     err = {0};
    pl_engine                 *e;
    pl_session                *s;
    pl_llama                   m;
    test_target(&m, test_mkdir(dir), 2, 11, PL_BF16);
    pl_llama_fini(&m);
    open_on(&m, dir, PL_BF16, counting());
    unseen = hosted = true;
    for (int i = 0; i < 2; i++) {
        dist = NULL;
        downloads = 0;
        run(&m, NULL, 16, 0, 1, i, plain);
        assert_int_equal(downloads, 0);
        dist = &dists[i];
        for (uint64_t key = 0; key < SESSIONS; key++)
            run(&m, NULL, 16, key, 1, 0, plain);
        assert_true(downloads > 0);
        assert_true(drafted(&m, plain, TEST_MIXED, "chain:6", 20, 0, got, "processed") > 0);
    }
    unseen = hosted = false;
    pl_engine_options o = {.max_sessions = 1, .max_rows = 8, .max_len = 32};
    assert_int_equal(pl_engine_create(&e, m.be, NULL, &m, NULL, &o, &err), PL_OK);
    for (int i = 0; i < 3; i++) {
        pl_session_options so = {.max_new = 1, .prompt_logits = i == 2};
        so.sampling = i < 2 ? dists[i] : (pl_sampling){.top_p = 1};
        assert_int_equal(pl_engine_start(e, (int32_t[]){1}, 1, &so, &s, &err), PL_E_UNSUPPORTED);
        assert_non_null(strstr(err.msg, "host_logits"));
    }
    pl_engine_destroy(e);
    dist = NULL;
    pl_llama_fini(&m);
    test_rmdir(dir);
}

static void serve(pl_engine *e, const int32_t *ids, int n, const pl_session_options *o, transcript *to) {
    pl_err      err = {0};
    pl_session *s;
    if (pl_engine_start(e, ids, n, o, &s, &err) != PL_OK) fail_msg("%s", err.msg);
    while (pl_session_finish(s) == PL_RUNNING)
        if (pl_engine_step(e, &err) != PL_OK) fail_msg("%s", err.msg);
    to->n = pl_session_length(s);
    memcpy(to->tokens, pl_session_tokens(s), (size_t)to->n * sizeof *to->tokens);
    to->accepted = pl_session_statistics(s)->accepted;
    to->reused = pl_session_reused(s);
    pl_engine_end(e, s);
}

// Two prompts that part at `other`, one after another, with and without kept prefixes: the same bits, and the second
// one reads none of its first `reused` tokens.
static void kept_prefixes(const pl_llama *m, const char *draft, pl_dtype dtype, int other, int reused,
                          transcript of[2][2]) {
    int32_t            ids[MAX_LEN];
    pl_err             err = {0};
    pl_engine         *e;
    pl_session_options so = {.sampling = {.top_p = 1}, .max_new = MAX_NEW};
    for (int kept = 0; kept < 2; kept++) {
        pl_drafter        *d;
        pl_drafter_options od = {
            .target = m, .dtype = dtype, .tree = "chain:3", .max_sessions = 1, .max_rows = 40, .slots = MAX_LEN};
        pl_engine_options o = {
            .max_sessions = 1, .max_rows = 40, .max_len = MAX_LEN, .see_logits = true, .keep_prefixes = kept};
        if (pl_drafter_open(&d, draft, &od, &err) != PL_OK) fail_msg("%s", err.msg);
        if (pl_engine_create(&e, m->be, NULL, m, d, &o, &err) != PL_OK) fail_msg("%s", err.msg);
        pl_engine_on_final(e, record, NULL);
        record_to = of[kept];
        for (so.key = 0; so.key < 2; so.key++) {
            int n = prompt_of(3, ids);
            for (int i = other; i < n && so.key == 0; i++)
                ids[i] = (ids[i] + 1) % TEST_VOCAB;
            serve(e, ids, n, &so, &of[kept][so.key]);
        }
        assert_int_equal(of[kept][1].reused, kept ? reused : 0);
        pl_engine_destroy(e);
        pl_drafter_destroy(d);
    }
    for (int key = 0; key < 2; key++) {
        same(&of[0][key], &of[1][key], "kept prefix", key);
        assert_int_equal(of[0][key].accepted, of[1][key].accepted);
    }
}

// After a kept prefix a text and its logits are those behind a prompt that was read, bit for bit; and so are the logits
// of a prompt's rows, read in chunks.
static void prefixes_on_a_device(void **state) {
    (void)state;
    static transcript  of[2][2], all[1];
    char               dir[64], draft[64];
    pl_err             err = {0};
    pl_engine         *e;
    pl_llama           m;
    pl_session_options so;
    test_target(&m, test_mkdir(dir), 4, 11, PL_BF16);
    pl_llama_fini(&m);
    open_on(&m, dir, PL_BF16, test_device());
    test_drafter_write(test_mkdir(draft), &m, "full", 0, 9);
    kept_prefixes(&m, draft, PL_BF16, 40, 39, of); // a row of the drafter reads the token after it
    pl_engine_options o = {.max_sessions = 1, .max_rows = 40, .max_len = MAX_LEN, .host_logits = true, .max_logits = 7};
    if (pl_engine_create(&e, m.be, NULL, &m, NULL, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_engine_on_final(e, record, NULL);
    record_to = all;
    so = (pl_session_options){.sampling = {.top_p = 1}, .max_new = 1, .prompt_logits = true};
    serve(e, of[0][1].tokens, of[0][1].n - 1, &so, all);
    same(&of[0][1], all, "a prompt's logits", 1);
    for (int p = 0; p < of[0][1].n - 1; p++)
        assert_true(all[0].bits[p] != 0);
    pl_engine_destroy(e);
    pl_llama_fini(&m);
    test_rmdir(dir);
    test_rmdir(draft);
}

// A tokenizer of TEST_VOCAB pieces: letters, and pairs of them, `step` apart.
static void write_tokenizer(const char *dir, int step) {
    enum { LETTERS = 26 };
    static char text[TEST_VOCAB][4], merge[TEST_VOCAB][8];
    const char *pieces[TEST_VOCAB + 1] = {0}, *merges[TEST_VOCAB + 1] = {0};
    for (int i = 0; i < TEST_VOCAB; i++) {
        int pair = (i - LETTERS) * step, a = 'a' + pair / LETTERS % LETTERS, b = 'a' + pair % LETTERS;
        snprintf(text[i], sizeof text[i], i < LETTERS ? "%c" : "%c%c", i < LETTERS ? 'a' + i : a, b);
        snprintf(merge[i], sizeof merge[i], "%c %c", a, b);
        pieces[i] = text[i];
        if (i >= LETTERS) merges[i - LETTERS] = merge[i];
    }
    test_tokenizer_write(dir, pieces, merges);
}

// Models that draft choose where their logits are: greedy and matched drafts, chains and trees, of the target's
// vocabulary or another, come without a download. What is drawn, slem's texts too, takes logits, beside a session that
// draws nothing too.
static void models_choose_there(void **state) {
    (void)state;
    static const struct {
        const char *way, *tree;
    } by[] = {{"lm", "chain:4"},        {"lm", "static:3x2"}, {"lm", "eagle2:12,3,3"}, {"tli", "chain:4"},
              {"tli", "eagle2:12,3,3"}, {"union", "chain:3"}, {"slem", "chain:3"}};
    static transcript plain[SESSIONS], hot[SESSIONS], got[SESSIONS];
    char              dir[64], other[64], what[80];
    pl_err            err = {0};
    pl_llama          m;
    test_target(&m, test_mkdir(dir), 2, 11, PL_BF16);
    pl_llama_fini(&m);
    test_target(&m, test_mkdir(other), 1, 12, PL_BF16);
    pl_llama_fini(&m);
    write_tokenizer(dir, 1);
    write_tokenizer(other, 2);
    open_on(&m, dir, PL_BF16, counting());
    if (pl_tokenizer_open(&tok, dir, &err) != PL_OK) fail_msg("%s", err.msg);
    unseen = true;
    for (uint64_t key = 0; key < 2; key++) {
        run(&m, NULL, 16, key, 1, 0, plain);
        run(&m, NULL, 16, key, 1, 1, hot);
    }
    downloads = 0;
    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        drafting g = {.what = what, .tree = by[i].tree};
        snprintf(what, sizeof what, "%s:%s", by[i].way, strcmp(by[i].way, "lm") ? other : dir);
        for (int t = 0; t < 2; t++) {
            with(&g, &m, PL_BF16, t, 0, got);
            for (int k = 0; k < 2; k++)
                same(t ? &hot[k] : &plain[k], &got[k], what, k);
            assert_true(got[0].drafted + got[1].drafted > 0);
            bool draws = t && strcmp(by[i].way, "slem") == 0;
            if ((downloads > 0) != draws) fail_msg("%s, %s: %lld downloads", what, by[i].tree, (long long)downloads);
            downloads = 0;
        }
    }
    verifier = pl_verifier_find("rejection", &err);
    cold = 1;
    snprintf(what, sizeof what, "lm:%s", dir);
    with(&(drafting){.what = what, .tree = "chain:3"}, &m, PL_BF16, 1, 0, got);
    same(&plain[1], &got[1], "beside one that draws", 1);
    assert_true(downloads > 0 && got[0].drafted > 0 && got[1].accepted == got[1].drafted);
    cold = -1;
    verifier = NULL;
    unseen = false;
    pl_tokenizer_close(tok);
    tok = NULL;
    pl_llama_fini(&m);
    test_rmdir(dir);
    test_rmdir(other);
}

// Root mean square of a - b over that of b, over the rows of positions from..to-1.
static double distance(const float *a, const float *b, int from, int to) {
    double diff = 0, size = 0;
    for (int64_t i = (int64_t)from * TEST_VOCAB; i < (int64_t)to * TEST_VOCAB; i++) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(diff / size);
}

// The budget. fp32 weights: one fma chain per output on both; attention's two products a layer take each number as two
// of bf16, 2^-16 at most, independently. bf16: each of the 4 L + 1 products on a row's way rounds what enters to bf16,
// by 2^-9 at most, independently; twice that. Caches in bf16 round two numbers more a layer.
static void like_the_cpu(void **state) {
    (void)state;
    enum { LAYERS = 2 };
    static transcript there[SESSIONS], here[SESSIONS];
    static float      z[2][MAX_LEN * TEST_VOCAB];
    for (int b = 0; b < 3; b++) {
        pl_dtype t = b ? PL_BF16 : PL_F32, kv = b == 2 ? PL_BF16 : PL_F32;
        double   rounded = b == 2 ? 6 * LAYERS + 1 : 4 * LAYERS + 1;
        double   budget = b ? 2 * sqrt(rounded) / 512 : sqrt(2 * LAYERS) / (1 << 16), worst = 0;
        char     dir[64];
        pl_llama m, cpu;
        make(&m, dir, t);
        open_on(&cpu, dir, t, pl_backend_cpu());
        m.shape.kv = cpu.shape.kv = kv;
        for (uint64_t key = 0; key < SESSIONS; key++) {
            int32_t prompt[MAX_LEN];
            int     n = prompt_of(key, prompt);
            logits_to = z[0];
            run(&m, NULL, 16, key, 1, 0, there);
            logits_to = z[1];
            run(&cpu, NULL, 16, key, 1, 0, here);
            logits_to = NULL;
            if (t == PL_F32 && (here[key].n != there[key].n ||
                                memcmp(here[key].tokens, there[key].tokens, sizeof(int32_t) * (size_t)here[key].n)))
                fail_msg("session %d: the text is not the CPU's", (int)key);
            int same_text = n; // rows up to the first token that differs see the same text
            while (same_text < here[key].n - 1 && here[key].tokens[same_text] == there[key].tokens[same_text])
                same_text++;
            assert_true(same_text > n);
            double d = distance(z[0], z[1], n - 1, same_text);
            worst = d > worst ? d : worst;
        }
        print_message("logits in %s, caches in %s: %.2g of the CPU's away, budget %.2g\n", pl_dtype_name(t),
                      pl_dtype_name(kv), worst, budget);
        assert_true(worst <= budget);
        pl_llama_fini(&m);
        pl_llama_fini(&cpu);
        test_rmdir(dir);
    }
}

// The host's distribution of the device's logits, and the coin of the position: the token after `position`.
static int32_t drawn_on_the_host(const transcript *t, const float *z, uint64_t key, int position,
                                 pl_distribution_work *work) {
    uint32_t    said[(TEST_VOCAB + 31) / 32] = {0};
    double      p[TEST_VOCAB];
    pl_rng_coin coin;
    for (int i = 0; i <= position; i++)
        pl_said_add(said, t->tokens[i]);
    assert_true(pl_distribution(p, z + position * TEST_VOCAB, TEST_VOCAB, dist, &(pl_history){.said = said}, work));
    pl_rng_coin_init(&coin, dist->seed, PL_STREAM_ACCEPT, key, position);
    return (int32_t)pl_draw_at(p, TEST_VOCAB, pl_rng_coin_own(&coin, position + 1));
}

// Text of the device's own logits: none of these uniform numbers lies within PL_DRAW_SHARE of a boundary.
static void drawn_from_the_dist(void **state) {
    (void)state;
    static transcript    of[DISTRIBUTIONS][SESSIONS];
    static float         z[MAX_LEN * TEST_VOCAB];
    pl_distribution_work work;
    pl_err               err = {0};
    char                 dir[64];
    pl_llama             m;
    make(&m, dir, PL_F32);
    if (pl_distribution_work_init(&work, TEST_VOCAB, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < DISTRIBUTIONS; i++)
        for (uint64_t key = 0; key < SESSIONS; key += test_whole() ? 1 : 2) {
            int32_t     prompt[MAX_LEN];
            int         n = prompt_of(key, prompt);
            transcript *there = of[i], *other = of[i ? i - 1 : 0];
            dist = &drawn_dists[i];
            logits_to = z;
            run(&m, NULL, 16, key, 1, 0, there);
            logits_to = NULL;
            for (int at = n - 1; at + 1 < there[key].n; at++)
                assert_int_equal(there[key].tokens[at + 1], drawn_on_the_host(&there[key], z, key, at, &work));
            if (i == 0) continue; // another distribution, other text
            assert_int_equal(other[key].n, there[key].n);
            assert_memory_not_equal(other[key].tokens, there[key].tokens, sizeof(int32_t) * (size_t)there[key].n);
        }
    dist = NULL;
    pl_distribution_work_fini(&work);
    pl_llama_fini(&m);
    test_rmdir(dir);
}

// Recurrent layers: the CPU's text, and plain decoding's bits in company, in chains and trees and with a drafter. Such a
// target with experts is refused.
static void recurrent_layers(void **state) {
    (void)state;
    static transcript plain[SESSIONS], here[SESSIONS], got[SESSIONS], of[2][2];
    char              dir[64], draft[64];
    pl_err            err = {0};
    pl_llama          m, cpu;
    test_target_family(&cpu, test_mkdir(dir), "Qwen3_5", 3, 11, PL_F32);
    open_on(&m, dir, PL_F32, test_device());
    for (uint64_t key = 0; key < 2; key++) {
        run(&m, NULL, key ? 1 : 16, key, 1, 0, plain);
        run(&cpu, NULL, 16, key, 1, 0, here);
        assert_int_equal(plain[key].n, here[key].n);
        assert_memory_equal(plain[key].tokens, here[key].tokens, (size_t)here[key].n * sizeof(int32_t));
    }
    assert_true(oracled(&m, plain, TEST_MIXED, "chain:6", 20, 0, 2, 0, got, "trees") > 0);
    test_drafter_write(test_mkdir(draft), &cpu, "full", 0, 9);
    kept_prefixes(&m, draft, PL_F32, 44, 40, of); // the saved state is that of 40
    test_rmdir(draft);
    with(&draftings[1], &m, PL_F32, 0, 0, got);
    for (int k = 0; k < 2; k++)
        same(&plain[k], &got[k], draftings[1].what, k);
    for (int i = 0; i < 2; i++) { // the target's own layer, in a chain and in a tree, which accept as on the CPU
        const drafting own = {.what = "mtp", .tree = i ? "static:3x2" : "chain:4"};
        with(&own, &m, PL_F32, 0, 0, got);
        with(&own, &cpu, PL_F32, 0, 0, here);
        for (int k = 0; k < 2; k++) {
            same(&plain[k], &got[k], own.what, k);
            assert_true(got[k].drafted > 0);
            assert_int_equal(got[k].accepted, here[k].accepted);
        }
    }
    pl_llama_fini(&m);
    pl_llama_fini(&cpu);
    test_rmdir(dir);
    test_target_family(&cpu, test_mkdir(dir), "Qwen3Next", 3, 11, PL_F32);
    assert_int_equal(pl_llama_open(&m, dir, PL_F32, test_device(), &err), PL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "Qwen3NextForCausalLM has experts, which"));
    pl_llama_fini(&cpu);
    test_rmdir(dir);
}

static void drafters_greedy(void **state) {
    (void)state;
    drafters(PL_BF16, PL_F32, 0, 0);
}
static void drafters_sampled(void **state) {
    (void)state;
    drafters(PL_BF16, PL_F32, 1, 1);
}
static void bf16_greedy(void **state) {
    (void)state;
    check(PL_BF16, PL_F32, 0);
}
static void bf16_sampled(void **state) {
    (void)state;
    check(PL_BF16, PL_F32, 1);
}
static void fp32_greedy(void **state) {
    (void)state;
    check(PL_F32, PL_F32, 0);
}
static void caches_in_bf16(void **state) {
    (void)state;
    check(PL_BF16, PL_BF16, 0);
    drafters(PL_BF16, PL_BF16, 1, 0);
    drafters(PL_BF16, PL_BF16, 0, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_greedy),
        cmocka_unit_test(bf16_sampled),
        cmocka_unit_test(fp32_greedy),
        cmocka_unit_test(drafters_greedy),
        cmocka_unit_test(caches_in_bf16),
        cmocka_unit_test(drafters_sampled),
        cmocka_unit_test(drawn),
        cmocka_unit_test(like_the_cpu),
        cmocka_unit_test(nothing_comes_back),
        cmocka_unit_test(processors_on_the_host),
        cmocka_unit_test(prefixes_on_a_device),
        cmocka_unit_test(drawn_from_the_dist),
        cmocka_unit_test(models_choose_there),
        cmocka_unit_test(recurrent_layers),
    };
    test_only();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
