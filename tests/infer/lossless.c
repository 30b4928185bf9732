#include "tests/infer/lossless.h"

#include "tests/infer/fixture.h"

#include "kernels/base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SESSIONS = 9, MAX_LEN = 200, MAX_NEW = 70 };

typedef struct said {
    int32_t tokens[MAX_LEN + 1], n;
    int64_t steps, accepted;
} said;

// Prompts that repeat themselves, so that there is something to find.
static int prompt_of(int key, int32_t *ids) {
    int n = 1 + key * 11 % 60;
    for (int i = 0; i < n; i++)
        ids[i] = (key * 31 + i % (3 + key) * 7) % TEST_VOCAB;
    return n;
}

// Sessions 0..n-1 in `slots` slots: one that ends makes place for the next. The loop allocates nothing.
static void run(const pl_llama *m, pl_drafter *d, int slots, int n, double temperature, said *out) {
    pl_err            err = {0};
    pl_engine        *e;
    pl_engine_options o = {.max_sessions = slots, .max_rows = d ? d->max_rows : slots, .max_len = MAX_LEN};
    pl_session       *s[SESSIONS] = {0};
    int               started = 0, ended = 0;
    assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), NULL, m, d, &o, &err), PL_OK);
    uint64_t before = pl_alloc_count();
    while (ended < n) {
        while (started < n && pl_engine_free_slots(e) > 0) {
            int32_t            ids[64];
            pl_session_options so = {.sampling = {.temperature = temperature, .top_p = 1, .seed = 3},
                                     .key = (uint64_t)started,
                                     .max_new = MAX_NEW - 3 * started};
            assert_int_equal(pl_engine_start(e, ids, prompt_of(started, ids), &so, &s[started], &err), PL_OK);
            started++;
        }
        assert_int_equal(pl_engine_step(e, &err), PL_OK);
        for (int i = 0; i < started; i++) {
            if (!s[i] || pl_session_finish(s[i]) == PL_RUNNING) continue;
            out[i].n = pl_session_length(s[i]);
            out[i].steps = pl_session_statistics(s[i])->steps;
            out[i].accepted = pl_session_statistics(s[i])->accepted;
            memcpy(out[i].tokens, pl_session_tokens(s[i]), (size_t)pl_session_length(s[i]) * sizeof(int32_t));
            pl_engine_end(e, s[i]);
            s[i] = NULL;
            ended++;
        }
    }
    assert_int_equal(pl_alloc_count() - before, 0);
    pl_engine_destroy(e);
}

void test_lossless(const char *what, const char *tree) {
    char     dir[64];
    pl_err   err = {0};
    pl_llama m;
    said    *plain = calloc(SESSIONS, sizeof *plain), *got = calloc(SESSIONS, sizeof *got),
         *alone = calloc(SESSIONS, sizeof *alone);
    int64_t accepted = 0;
    bool    adapts = false; // by measured costs, which may forbid any draft on a busy machine
    test_target(&m, test_mkdir(dir), 3, 11, PL_BF16);
    for (int t = 0; t < 2; t++) {
        run(&m, NULL, 1, SESSIONS, t, plain);
        for (int slots = 1; slots <= 4; slots += 3) {
            pl_drafter *d;
            assert_int_equal(pl_drafter_open(&d, what,
                                             &(pl_drafter_options){.target = &m,
                                                                   .dtype = PL_BF16,
                                                                   .tree = tree,
                                                                   .max_sessions = slots,
                                                                   .max_rows = slots * 64,
                                                                   .slots = MAX_LEN},
                                             &err),
                             PL_OK);
            run(&m, d, slots, SESSIONS, t, got);
            for (int i = 0; i < SESSIONS; i++) {
                if (got[i].n != plain[i].n ||
                    memcmp(got[i].tokens, plain[i].tokens, (size_t)got[i].n * sizeof *got[i].tokens) != 0)
                    fail_msg("%s: session %d in %d slots at temperature %d: tokens differ", what, i, slots, t);
                accepted += got[i].accepted;
                // Nothing is left of a slot's last session, and company changes nothing: the same steps, where they do
                // not depend on measured costs and nothing is asked to be kept.
                if (slots > 1 && !d->policy.adapt && !strstr(what, "keep"))
                    assert_int_equal(got[i].steps, alone[i].steps);
                if (slots == 1) alone[i] = got[i];
            }
            adapts = d->policy.adapt;
            pl_drafter_destroy(d);
        }
    }
    assert_true(accepted > 20 || adapts);
    pl_llama_fini(&m);
    test_rmdir(dir);
    free(plain);
    free(got);
    free(alone);
}
