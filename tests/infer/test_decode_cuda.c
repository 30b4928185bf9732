// Losslessness on the CUDA backend's kernels, run on the emulated device through the decode loop: what plain decoding
// emits, and the logits it emits it from, keep their bits in company, in chunks of a prompt, in chains and in trees,
// with right, wrong and random drafts. (test_decode_bits.c has the same, and more, on the CPU.)
#include "infer/drafter.h"
#include "kernels/base/hash.h"
#include "kernels/cuda/emulate/device_emulated.h"
#include "tests/infer/fixture.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SESSIONS = 6, MAX_NEW = 12, MAX_LEN = 128 };

typedef struct transcript {
    int32_t  tokens[MAX_LEN + 1];
    int32_t  n;
    int64_t  accepted;
    uint64_t bits[MAX_LEN]; // hash of the logits that position p's successor was taken from; 0: none
} transcript;

static transcript *record_to; // by key

static void record(void *arg, const pl_final_rows *r) {
    (void)arg;
    for (int i = 0; i < r->count; i++) {
        int at = r->logits_row[r->row[i]];
        if (at < 0) continue;
        const float *z = r->logits + (int64_t)at * TEST_VOCAB;
        record_to[r->session->opt.key].bits[r->first + i] = pl_hash(z, TEST_VOCAB * sizeof *z) | 1;
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
    pl_engine_options o = {.max_sessions = n, .max_rows = rows, .max_len = MAX_LEN};
    pl_session       *s[SESSIONS];
    int32_t           ids[MAX_LEN];
    if (d) d->max_rows = rows;
    if (pl_engine_create(&e, pl_backend_cuda_emulated(), NULL, m, d, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    record_to = out;
    pl_engine_on_final(e, record, NULL);
    for (int i = 0; i < n; i++) {
        pl_session_options so = {.sampling = {.temperature = temperature, .top_p = 1, .seed = 3},
                                 .key = key0 + (uint64_t)i,
                                 .max_new = MAX_NEW};
        int                len = prompt_of(so.key, ids);
        memset(&out[so.key], 0, sizeof out[so.key]);
        assert_int_equal(pl_engine_start(e, ids, len, &so, &s[i], &err), PL_OK);
    }
    for (bool running = true; running;) {
        if (pl_engine_step(e, &err) != PL_OK) fail_msg("%s", err.msg);
        running = false;
        for (int i = 0; i < n; i++)
            running |= s[i]->finish == PL_RUNNING;
    }
    for (int i = 0; i < n; i++) {
        transcript *t = &out[key0 + (uint64_t)i];
        t->n = s[i]->n_tokens;
        memcpy(t->tokens, s[i]->tokens, (size_t)t->n * sizeof *t->tokens);
        t->accepted = s[i]->stats.accepted;
    }
    pl_engine_destroy(e);
}

static void same(const transcript *a, const transcript *b, const char *what, int key) {
    int seen = 0;
    if (a->n != b->n || memcmp(a->tokens, b->tokens, (size_t)a->n * sizeof *a->tokens) != 0)
        fail_msg("%s, session %d: tokens differ", what, key);
    for (int p = 0; p < a->n; p++) {
        if (!a->bits[p] || !b->bits[p]) continue;
        seen++;
        if (a->bits[p] != b->bits[p]) fail_msg("%s, session %d: logit bits differ at position %d", what, key, p);
    }
    assert_true(seen >= MAX_NEW);
}

// All sessions with an oracle's drafts, alone and together; returns how many drafted tokens were accepted.
static int64_t drafted(const pl_llama *m, const transcript *plain, test_oracle_mode mode, const char *tree, int nodes,
                       double temperature, transcript *got, const char *what) {
    const int32_t *script[SESSIONS];
    int32_t        script_n[SESSIONS];
    int64_t        accepted = 0;
    for (int together = 0; together < 2; together++) {
        int step = together ? SESSIONS : 1;
        for (int key = together ? 0 : 2; key < SESSIONS; key += together ? step : 3) {
            test_oracle o;
            test_oracle_init(&o, mode, tree, nodes, step);
            for (int i = 0; i < step; i++) {
                script[i] = plain[key + i].tokens;
                script_n[i] = plain[key + i].n;
            }
            o.script = script;
            o.script_n = script_n;
            run(m, &o.base, step * o.base.policy.max_nodes, (uint64_t)key, step, temperature, got);
            for (int i = 0; i < step; i++) {
                same(&plain[key + i], &got[key + i], what, key + i);
                accepted += got[key + i].accepted;
            }
        }
    }
    return accepted;
}

static void check(pl_dtype t, double temperature) {
    static transcript plain[SESSIONS], got[SESSIONS];
    char              dir[64], drafter[64];
    pl_err            err = {0};
    pl_llama          m;
    pl_drafter       *d;
    test_target(&m, test_mkdir(dir), 2, 11, t);
    for (uint64_t key = 0; key < SESSIONS; key++) // prompts in one row at a time
        run(&m, NULL, 1, key, 1, temperature, plain);
    run(&m, NULL, 70, 0, SESSIONS, temperature, got); // together, prompts in chunks of up to 70 rows
    for (int i = 0; i < SESSIONS; i++)
        same(&plain[i], &got[i], "batch", i);
    assert_true(drafted(&m, plain, TEST_ACCEPT, "chain:5", 0, temperature, got, "right chains") > 0);
    assert_int_equal(drafted(&m, plain, TEST_REJECT, "chain:3", 0, temperature, got, "wrong chains"), 0);
    assert_true(drafted(&m, plain, TEST_MIXED, "chain:6", 40, temperature, got, "trees") > 0);

    // A real drafter: EAGLE-3 with a full head, random weights, a tree of its own.
    test_drafter_write(test_mkdir(drafter), &m, "full", 0, 5);
    if (pl_drafter_open(&d, drafter, &m, t, "eagle2:12,3,3", 1, 64, MAX_LEN, &err) != PL_OK) fail_msg("%s", err.msg);
    for (uint64_t key = 1; key < SESSIONS; key += 2) {
        run(&m, d, 64, key, 1, temperature, got);
        same(&plain[key], &got[key], "eagle-3", (int)key);
    }
    pl_drafter_destroy(d);
    test_rmdir(drafter);
    pl_llama_fini(&m);
    test_rmdir(dir);
}

static void bf16_greedy(void **state) {
    (void)state;
    check(PL_BF16, 0);
}
static void bf16_sampled(void **state) {
    (void)state;
    check(PL_BF16, 1);
}
static void fp32_greedy(void **state) {
    (void)state;
    check(PL_F32, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_greedy),
        cmocka_unit_test(bf16_sampled),
        cmocka_unit_test(fp32_greedy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
