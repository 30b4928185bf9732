// Targets that lie over ranks, real processes: logits and texts are bit for bit those of one process, bytes are those of
// the formula, memory is a part, and a rank that ends ends all.
#include "tests/infer/fixture.h"

#include "infer/decode/session.h"
#include "infer/model/tp.h"
#include "kernels/base/hash.h"
#include "kernels/base/room.h"
#include "tests/key.h"
#include "tests/port.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SESSIONS = 3, MAX_NEW = 24, ROWS = 200, LAYERS = 2 };

typedef struct transcript {
    int32_t  tokens[SESSIONS][128];
    int32_t  n[SESSIONS];
    uint64_t bits[SESSIONS][128]; // hash of the logits at each position
    int64_t  accepted;
} transcript;

static transcript *record_to;

static void record(void *arg, const pl_final_rows *r) {
    (void)arg;
    for (int i = 0; i < r->count; i++) {
        const float *z = r->logits + (int64_t)r->logits_row[r->row[i]] * TEST_VOCAB;
        record_to->bits[pl_session_key(r->session)][r->first + i] = pl_hash(z, TEST_VOCAB * sizeof *z) | 1;
    }
}

// How the ranks come together.
static bool        over_tcp;
// What befalls those above 0: they end by an alarm, or find other files by the same path.
static int         die_after; // microseconds; 0: not
static const char *elsewhere; // NULL: not
// The target that they were started with.
static const char *their_target;

static pl_status come(pl_comm **c, int ranks, pl_err *err) {
    char          address[32];
    pl_comm_place place = {.ranks = ranks, .address = address, .identity = "test", .find_key = test_key};
    if (!over_tcp) return pl_comm_fork(c, ranks, err);
    snprintf(address, sizeof address, "127.0.0.1:%d", test_free_port());
    fflush(NULL);
    for (int r = 1; r < ranks; r++) {
        if (fork() != 0) continue;
        place.rank = r;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        break;
    }
    return pl_comm_join(c, &place, err);
}

// Returns on rank 0; the others follow it and end.
static pl_comm *lead(int ranks) {
    pl_comm *c = NULL;
    pl_err   err = {0};
    if (come(&c, ranks, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_status st = pl_comm_open(c, "host", pl_backend_cpu(), &err);
    if (pl_comm_rank(c) == 0) {
        if (st != PL_OK) fail_msg("%s", err.msg);
        return c;
    }
    if (die_after) setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = die_after}, NULL);
    if (elsewhere && chdir(elsewhere) != 0) abort();
    if (st == PL_OK) st = pl_tp_follow(c, pl_backend_cpu(), NULL, their_target, &err);
    if (st != PL_OK) pl_comm_fail(c, &err);
    pl_comm_close(c);
    _exit(st == PL_OK ? 0 : 1);
}

static void leave(pl_comm *c) {
    pl_err err = {0};
    if (pl_tp_end(c, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_comm_close(c);
    while (over_tcp && waitpid(-1, NULL, 0) > 0)
        ;
}

// Three texts side by side, prompts read in chunks.
static void decode(const pl_llama *m, const char *draft, const char *tree, double temperature, transcript *out) {
    pl_err             err = {0};
    pl_engine         *e;
    pl_drafter        *d = NULL;
    pl_engine_options  o = {.max_sessions = SESSIONS, .max_rows = draft ? ROWS : 5, .max_len = 120, .all_logits = true};
    pl_drafter_options of = {.target = m,
                             .dtype = PL_BF16,
                             .tree = tree,
                             .max_sessions = SESSIONS,
                             .max_rows = ROWS,
                             .slots = 121 + PL_TREE_MAX};
    pl_session        *s[SESSIONS];
    memset(out, 0, sizeof *out);
    if (draft && pl_drafter_open(&d, draft, &of, &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_engine_create(&e, pl_backend_cpu(), NULL, m, d, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    record_to = out;
    pl_engine_on_final(e, record, NULL);
    for (int i = 0; i < SESSIONS; i++) {
        int32_t            ids[64];
        int                n = 3 + 17 * i;
        pl_session_options so = {
            .sampling = {.temperature = temperature, .top_p = 1, .seed = 3}, .key = (uint64_t)i, .max_new = MAX_NEW};
        for (int k = 0; k < n; k++)
            ids[k] = k % 5 ? (k * 11 + i) % 23 : k % 7; // with repetitions, for lookup
        if (pl_engine_start(e, ids, n, &so, &s[i], &err) != PL_OK) fail_msg("%s", err.msg);
    }
    for (bool running = true; running;) {
        if (pl_engine_step(e, &err) != PL_OK) fail_msg("%s", err.msg);
        running = false;
        for (int i = 0; i < SESSIONS; i++)
            running |= pl_session_finish(s[i]) == PL_RUNNING;
    }
    for (int i = 0; i < SESSIONS; i++) {
        out->n[i] = pl_session_length(s[i]);
        memcpy(out->tokens[i], pl_session_tokens(s[i]), (size_t)out->n[i] * sizeof(int32_t));
        out->accepted += pl_session_statistics(s[i])->accepted;
    }
    pl_engine_destroy(e);
    pl_drafter_destroy(d);
}

static void same(const transcript *a, const transcript *b, const char *what) {
    for (int i = 0; i < SESSIONS; i++) {
        if (a->n[i] != b->n[i] || memcmp(a->tokens[i], b->tokens[i], (size_t)a->n[i] * sizeof(int32_t)) != 0)
            fail_msg("%s: text %d differs", what, i);
        for (int p = 0; p < a->n[i] - 1; p++)
            if (a->bits[i][p] != b->bits[i][p] || !a->bits[i][p])
                fail_msg("%s: logits differ at position %d of text %d", what, p, i);
    }
    assert_int_equal(a->accepted, b->accepted);
}

static void open_over(pl_llama *m, const char *dir, pl_dtype t, pl_comm *c) {
    pl_err err = {0};
    if (pl_llama_open_over(m, dir, t, pl_backend_cpu(), c, &err) != PL_OK) fail_msg("%s", err.msg);
}

typedef struct way {
    const char *draft, *tree;
    double      temperature;
} way;

static void check_family(const char *family, pl_dtype t, pl_dtype kv) {
    way ways[] = {
        {NULL, NULL, 0}, {NULL, NULL, 1}, {"lookup", "chain:4", 0}, {"", "eagle2:6,4,20", 0}, {"", "eagle2:6,4,20", 1}};
    char       dir[64], head[64], what[128];
    pl_llama   whole;
    transcript one[sizeof ways / sizeof *ways], got;
    int64_t    accepted = 0;
    // Only the third layer of Qwen3_5 has attention.
    int        layers = strcmp(family, "Qwen3_5") == 0 ? 3 : LAYERS;
    test_target_heads(&whole, their_target = test_mkdir(dir), family, 8, 4, layers, 5, t);
    whole.shape.kv = kv;
    test_drafter_write(test_mkdir(head), &whole, "full", 0, 9);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (ways[i].draft && !*ways[i].draft) ways[i].draft = head;
        decode(&whole, ways[i].draft, ways[i].tree, ways[i].temperature, &one[i]);
        accepted += one[i].accepted;
    }
    assert_true(accepted > 0);
    pl_llama_fini(&whole);
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        pl_comm *c = lead(ranks);
        pl_llama m;
        open_over(&m, dir, t, c);
        m.shape.kv = kv;
        assert_int_equal(m.shape.nkv, 4 / ranks);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            snprintf(what, sizeof what, "%s in %s on %d ranks by %s at %g", family, pl_dtype_name(t), ranks,
                     ways[i].tree ? ways[i].tree : "plain", ways[i].temperature);
            decode(&m, ways[i].draft, ways[i].tree, ways[i].temperature, &got);
            same(&one[i], &got, what);
        }
        pl_llama_fini(&m);
        leave(c);
    }
    test_rmdir(head);
    test_rmdir(dir);
}

static void texts_and_logits_are_those_of_one_process(void **state) {
    static const char *const families[] = {"Llama", "Qwen2", "Qwen3", "Mistral", "Gemma2", "Phi3", "Qwen3_5"};
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (int t = 0; t < 2; t++)
            check_family(families[i], t ? PL_BF16 : PL_F32, PL_F32);
    check_family("Llama", PL_BF16, PL_BF16);
}

// Texts one after the other that share beginnings, in two slots. kept: of what the slots keep, at least so many tokens
// are not read again; 0: they keep nothing.
static void decode_turns(const pl_llama *m, const char *draft, int kept, int32_t out[5][120]) {
    pl_err             err = {0};
    pl_engine         *e;
    pl_drafter        *d;
    pl_engine_options  o = {.max_sessions = 2, .max_rows = ROWS, .chunk = 9, .max_len = 120, .keep_prefixes = kept > 0};
    pl_drafter_options of = {
        .target = m, .dtype = PL_BF16, .tree = "chain:3", .max_sessions = 2, .max_rows = ROWS, .slots = 121};
    int reused = 0;
    if (pl_drafter_open(&d, draft, &of, &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_engine_create(&e, pl_backend_cpu(), NULL, m, d, &o, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int turn = 0; turn < 5; turn++) {
        int32_t            ids[64];
        pl_session        *s;
        pl_session_options so = {.sampling = {.temperature = turn % 2, .top_p = 1, .seed = 3}, .max_new = 20};
        for (int k = 0; k < 64; k++)
            ids[k] = k < 30 ? k * 11 % 23 : (k * 5 + turn / 2) % 29;
        if (pl_engine_start(e, ids, turn == 4 ? 20 : 40 + 6 * turn, &so, &s, &err) != PL_OK) fail_msg("%s", err.msg);
        for (int n = 0; pl_session_finish(s) == PL_RUNNING && (turn != 1 || n < 9); n++)
            if (pl_engine_step(e, &err) != PL_OK) fail_msg("%s", err.msg);
        memcpy(out[turn], pl_session_tokens(s), 120 * sizeof(int32_t));
        memset(out[turn] + pl_session_length(s), 0, (size_t)(120 - pl_session_length(s)) * sizeof(int32_t));
        if (turn == 1) memset(out[turn] + 46, 0, 74 * sizeof(int32_t)); // ended early, not always after as many tokens
        reused += pl_session_reused(s);
        pl_engine_end(e, s);
    }
    assert_true(kept ? reused >= kept : reused == 0);
    pl_engine_destroy(e);
    pl_drafter_destroy(d);
}

static void check_prefixes(const char *family, int least) {
    static int32_t one[5][120], got[5][120];
    char           dir[64], head[64];
    pl_llama       m;
    test_target_heads(&m, their_target = test_mkdir(dir), family, 8, 4, LAYERS, 5, PL_BF16);
    test_drafter_write(test_mkdir(head), &m, "full", 0, 9);
    decode_turns(&m, head, 0, one);
    pl_llama_fini(&m);
    for (int ranks = 1; ranks <= 2; ranks++) {
        pl_comm *c = lead(ranks);
        open_over(&m, dir, PL_BF16, c);
        decode_turns(&m, head, least, got);
        assert_memory_equal(one, got, sizeof one);
        pl_llama_fini(&m);
        leave(c);
    }
    test_rmdir(head);
    test_rmdir(dir);
}

static void prefixes_are_kept_on_every_rank(void **state) {
    (void)state;
    check_prefixes("Llama", 80);
    check_prefixes("Qwen3_5", 50); // whose saved states lie before the places where prompts part
}

static void and_over_tcp(void **state) {
    (void)state;
    over_tcp = true;
    check_family("Llama", PL_BF16, PL_F32);
    over_tcp = false;
}

// The formula of infer/model/tp.h, of plain decoding, where every position but a text's last goes through one forward.
static void bytes_are_those_of_the_formula(void **state) {
    char       dir[64];
    pl_llama   m;
    transcript got;
    pl_err     err = {0};
    (void)state;
    test_target_heads(&m, their_target = test_mkdir(dir), "Llama", 8, 4, LAYERS, 5, PL_BF16);
    int64_t d = m.shape.d, inter = m.shape.inter, wide = (int64_t)m.shape.nh * m.shape.hd;
    pl_llama_fini(&m);
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        pl_tp_use use[4];
        int64_t   rows = 0;
        pl_comm  *c = lead(ranks);
        open_over(&m, dir, PL_BF16, c);
        decode(&m, NULL, NULL, 0, &got);
        for (int i = 0; i < SESSIONS; i++)
            rows += got.n[i] - 1;
        if (pl_tp_used(c, use, &err) != PL_OK) fail_msg("%s", err.msg);
        for (int r = 0; r < ranks; r++) {
            int64_t part[4], of[4] = {wide, inter, d, TEST_VOCAB};
            for (int k = 0; k < 4; k++)
                part[k] = of[k] * (r + 1) / ranks - of[k] * r / ranks;
            int64_t want = 4 * rows * (ranks - 1) * LAYERS * (part[0] + part[1] + 2 * part[2]);
            if (r > 0) want += 4 * rows * part[3];
            assert_int_equal((int64_t)use[r].sent, want);
        }
        pl_llama_fini(&m);
        leave(c);
    }
    test_rmdir(dir);
}

static void memory_is_a_part(void **state) {
    enum { VOCAB = 200000 };
    char     dir[64];
    pl_llama m;
    pl_err   err = {0};
    (void)state;
    test_target_sized(&m, their_target = test_mkdir(dir), LAYERS, VOCAB, 5, PL_BF16);
    double whole = (double)m.params.block_bytes;
    pl_llama_fini(&m);
    pl_comm  *c = lead(2);
    pl_tp_use before[2], after[2];
    if (pl_tp_used(c, before, &err) != PL_OK) fail_msg("%s", err.msg);
    open_over(&m, dir, PL_BF16, c);
    if (pl_tp_used(c, after, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_true((double)m.params.block_bytes < 0.52 * whole);
    for (int r = 0; r < 2; r++) {
        double more = after[r].memory - before[r].memory;
        print_message("rank %d of 2 holds %.2f of the weights' %.1f MB\n", r, more / whole, whole / 1e6);
        assert_true(more < 0.65 * whole && more > 0.4 * whole);
    }
    pl_llama_fini(&m);
    leave(c);
    test_rmdir(dir);
}

static void refused(const char *dir, int ranks, const char *with) {
    pl_llama m;
    pl_err   err = {0};
    pl_comm *c = lead(ranks);
    assert_int_not_equal(pl_llama_open_over(&m, dir, PL_BF16, pl_backend_cpu(), c, &err), PL_OK);
    if (!strstr(err.msg, with)) fail_msg("\"%s\" says nothing of \"%s\"", err.msg, with);
    pl_comm_fail(c, &err);
    pl_comm_close(c);
}

static void what_does_not_divide_is_refused(void **state) {
    char        dir[64], head[64];
    pl_llama    m;
    pl_err      err = {0};
    pl_drafter *d;
    (void)state;
    test_target(&m, their_target = test_mkdir(dir), LAYERS, 5, PL_BF16);
    refused(dir, 4, "2 key/value heads do not divide");
    test_backbone_write(test_mkdir(head), &m, &pl_backbone_eagle1, &(pl_backbone_options){0}, 9);
    pl_llama_fini(&m);
    pl_comm *c = lead(2);
    open_over(&m, dir, PL_BF16, c);
    pl_drafter_options of = {.target = &m, .dtype = PL_BF16, .max_sessions = 1, .max_rows = 64, .slots = 100};
    assert_int_equal(pl_drafter_open(&d, head, &of, &err), PL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "the target's own head, which lies over 2 ranks"));
    pl_llama_fini(&m);
    leave(c);
    test_rmdir(head);
    // A head that adds to the target's.
    pl_llama whole;
    assert_int_equal(pl_llama_open(&whole, dir, PL_BF16, pl_backend_cpu(), &err), PL_OK);
    test_backbone_write(
        test_mkdir(head), &whole, &pl_backbone_dflash,
        &(pl_backbone_options){
            .head = pl_hf_head_of("markov:rank=4"), .layers = 1, .block = 4, .mask_token = 1, .anchor_first = true},
        9);
    pl_llama_fini(&whole);
    c = lead(2);
    open_over(&m, dir, PL_BF16, c);
    assert_int_equal(pl_drafter_open(&d, head, &of, &err), PL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "the target's own head, which lies over 2 ranks"));
    pl_llama_fini(&m);
    leave(c);
    test_rmdir(head);
    test_rmdir(dir);
    test_target_family(&m, their_target = test_mkdir(dir), "Mixtral", LAYERS, 5, PL_BF16);
    pl_llama_fini(&m);
    refused(dir, 2, "MixtralForCausalLM has experts");
    test_rmdir(dir);
    test_target_heads(&m, their_target = test_mkdir(dir), "Qwen3_5", 8, 4, LAYERS, 5, PL_BF16);
    pl_hf_config config = m.config;
    pl_llama_fini(&m);
    refused(dir, 3, "4 key/value heads do not divide");
    config.delta.key_heads = 2;
    assert_int_equal(pl_tp_check(&config, 4, &err), PL_E_USAGE);
    assert_non_null(strstr(err.msg, "the 2 key heads of the target's recurrent layers do not divide"));
    test_rmdir(dir);
}

static void other_files_are_another_model(void **state) {
    char     a[64], b[64], dir[96], here[512];
    pl_llama m;
    (void)state;
    assert_non_null(getcwd(here, sizeof here));
    test_mkdir(a);
    test_mkdir(b);
    for (int i = 0; i < 2; i++) {
        snprintf(dir, sizeof dir, "%s/model", i ? b : a);
        assert_int_equal(mkdir(dir, 0700), 0);
        test_target(&m, dir, LAYERS, 5 + (uint64_t)i, PL_BF16);
        pl_llama_fini(&m);
    }
    elsewhere = b;
    their_target = "model";
    assert_int_equal(chdir(a), 0);
    refused("model", 2, "rank 1: its target is ");
    elsewhere = NULL;
    assert_int_equal(chdir(here), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(dir, sizeof dir, "%s/model", i ? b : a);
        test_rmdir(dir);
        test_rmdir(i ? b : a);
    }
}

static void a_rank_that_ends_ends_all(void **state) {
    char     dir[64];
    pl_llama m;
    pl_err   err = {0};
    (void)state;
    test_target(&m, their_target = test_mkdir(dir), LAYERS, 5, PL_BF16);
    pl_llama_fini(&m);
    die_after = 300000;
    pl_comm *c = lead(2);
    die_after = 0;
    open_over(&m, dir, PL_BF16, c);
    pl_engine         *e;
    pl_session        *s;
    int32_t            prompt[] = {1, 2, 3};
    pl_engine_options  o = {.max_sessions = 1, .max_rows = 8};
    pl_session_options so = {.sampling = {.top_p = 1}, .max_new = 250};
    pl_status          st = pl_engine_create(&e, pl_backend_cpu(), NULL, &m, NULL, &o, &err);
    assert_int_equal(st, PL_OK);
    while (st == PL_OK) { // texts one after the other, until it has happened
        st = pl_engine_start(e, prompt, 3, &so, &s, &err);
        while (st == PL_OK && pl_session_finish(s) == PL_RUNNING)
            st = pl_engine_step(e, &err);
        if (st == PL_OK) pl_engine_end(e, s);
    }
    if (!strstr(err.msg, "rank 1: process ") || !strstr(err.msg, "was ended by signal 14")) fail_msg("%s", err.msg);
    pl_engine_destroy(e);
    pl_llama_fini(&m);
    pl_comm_close(c);
    test_rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_logits_are_those_of_one_process),
        cmocka_unit_test(prefixes_are_kept_on_every_rank),
        cmocka_unit_test(and_over_tcp),
        cmocka_unit_test(bytes_are_those_of_the_formula),
        cmocka_unit_test(memory_is_a_part),
        cmocka_unit_test(what_does_not_divide_is_refused),
        cmocka_unit_test(other_files_are_another_model),
        cmocka_unit_test(a_rank_that_ends_ends_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
