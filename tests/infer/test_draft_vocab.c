// Draft vocabularies: from a list, through a checkpoint, refused where they cannot be; what they draft is verified as
// anything else is.
#include "infer/head/draft_vocab.h"

#include "data/counts/counts.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "tests/infer/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DRAFTED = 40 };

static void write_list(const char *path, int vocab) {
    pl_counts     c;
    pl_err        err = {0};
    const int32_t text[] = {3, 9, 9, 1, 3, 9, 50, 1};
    assert_int_equal(pl_counts_init(&c, vocab, "0123456789abcdef", "a test", &err), PL_OK);
    pl_counts_add(&c, text, sizeof text / sizeof *text);
    assert_int_equal(pl_counts_write(&c, path, &err), PL_OK);
    pl_counts_fini(&c);
}

static void from_list(void **state) {
    (void)state;
    static const int32_t want[] = {9, 1, 3, 50};
    char                 dir[64], path[96];
    int32_t             *d2t;
    int64_t              n;
    pl_err               err = {0};
    snprintf(path, sizeof path, "%s/list.json", test_mkdir(dir));
    write_list(path, TEST_VOCAB);
    pl_draft_vocab_options o = {.vocab = TEST_VOCAB, .tokenizer = "0123456789abcdef"};
    assert_int_equal(pl_draft_vocab_from_list(&d2t, &n, path, &o, &err), PL_OK);
    assert_int_equal(n, 4); // ids that never occurred are not drafted
    assert_memory_equal(d2t, want, sizeof want);
    pl_free(d2t);
    o = (pl_draft_vocab_options){.size = 2, .vocab = TEST_VOCAB + 30}; // padded rows
    assert_int_equal(pl_draft_vocab_from_list(&d2t, &n, path, &o, &err), PL_OK);
    assert_int_equal(n, 2);
    assert_memory_equal(d2t, want, 2 * sizeof *want);
    pl_free(d2t);
    o.tokenizer = "another";
    assert_int_equal(pl_draft_vocab_from_list(&d2t, &n, path, &o, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "tokenizer"));
    o = (pl_draft_vocab_options){.size = 2, .vocab = TEST_VOCAB - 1};
    assert_int_equal(pl_draft_vocab_from_list(&d2t, &n, path, &o, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "vocabulary of 97"));
    assert_null(d2t);
    test_rmdir(dir);
}

// Reads the list with these options; *said is the line of the log, "" for none, which the caller frees.
static pl_status read_list(int32_t **d2t, int64_t *n, const char *path, const pl_draft_vocab_options *o, char **said,
                           pl_err *err) {
    size_t bytes;
    FILE  *f = open_memstream(said, &bytes);
    pl_log_to(f);
    pl_status st = pl_draft_vocab_from_list(d2t, n, path, o, err);
    pl_log_to(NULL);
    fclose(f);
    return st;
}

// The tokens that end an answer are in every list, whatever its size: first where it lacks them, in place of the
// rarest; a whole list grows by them.
static void with_stops(void **state) {
    (void)state;
    static const struct {
        int64_t size;
        int     n_stop;
        int32_t stop[3], want[8];
        int64_t n;
        bool    said;
    } cases[] = {{0, 1, {50}, {9, 1, 3, 50}, 4, false},
                 {3, 1, {50}, {50, 9, 1}, 3, true},
                 {0, 2, {50, 7}, {7, 9, 1, 3, 50}, 5, true},
                 {4, 2, {50, 7}, {7, 9, 1, 50}, 4, true},
                 {3, 2, {8, 7}, {8, 7, 9}, 3, true},
                 {2, 2, {9, 7}, {7, 9}, 2, true},
                 {0, 2, {-1, TEST_VOCAB}, {9, 1, 3, 50}, 4, false}, // no rows of the target
                 {90, 1, {96}, {96, 9, 1, 3, 50}, 5, true},
                 {2, 1, {1}, {9, 1}, 2, false}};
    char   dir[64], path[96];
    pl_err err = {0};
    snprintf(path, sizeof path, "%s/list.json", test_mkdir(dir));
    write_list(path, 60); // of a vocabulary whose target has more rows
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t               *d2t;
        int64_t                n;
        char                  *said;
        pl_draft_vocab_options o = {
            .size = cases[i].size, .vocab = TEST_VOCAB, .stop = cases[i].stop, .n_stop = cases[i].n_stop};
        assert_int_equal(read_list(&d2t, &n, path, &o, &said, &err), PL_OK);
        assert_int_equal(n, cases[i].n);
        assert_memory_equal(d2t, cases[i].want, (size_t)n * sizeof *d2t);
        assert_int_equal(strstr(said, "tokens that end an answer; they are drafted too") != NULL, cases[i].said);
        free(said);
        pl_free(d2t);
    }
    int32_t               *d2t, stops[] = {7, 8, 10};
    int64_t                n;
    pl_draft_vocab_options o = {.size = 2, .vocab = TEST_VOCAB, .stop = stops, .n_stop = 3};
    assert_int_equal(pl_draft_vocab_from_list(&d2t, &n, path, &o, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "2 ids are no room for the target's 3 tokens that end an answer"));
    assert_null(d2t);
    test_rmdir(dir);
}

// A list that is shorter than the requested size is named with both numbers, in one line; no other list is.
static void short_lists(void **state) {
    (void)state;
    char   dir[64], path[96], want[256];
    pl_err err = {0};
    snprintf(path, sizeof path, "%s/list.json", test_mkdir(dir));
    snprintf(
        want, sizeof want,
        "paceline: warning: %s: lists 4 tokens, drafter.head.vocab_size is 5; count more text, or make it smaller\n",
        path);
    write_list(path, TEST_VOCAB);
    for (int64_t size = 0, n; size <= 5; size++) {
        int32_t *d2t;
        char    *said;
        assert_int_equal(
            read_list(&d2t, &n, path, &(pl_draft_vocab_options){.size = size, .vocab = TEST_VOCAB}, &said, &err),
            PL_OK);
        assert_string_equal(said, size > 4 ? want : "");
        assert_int_equal(n, size == 0 || size > 4 ? 4 : size);
        free(said);
        pl_free(d2t);
    }
    test_rmdir(dir);
}

static void map(int32_t *d2t) {
    for (int i = 0; i < DRAFTED; i++)
        d2t[i] = (41 * i + 7) % TEST_VOCAB;
}

// The same map comes back, and what the head proposes are target ids of it.
static void through_a_checkpoint(void **state) {
    (void)state;
    char         dir[64], draft[64];
    int32_t      d2t[DRAFTED], prompt[] = {5, 17, 40, 3};
    pl_err       err = {0};
    pl_llama     m;
    pl_backbone *b;
    map(d2t);
    test_target(&m, test_mkdir(dir), 2, 7, PL_BF16);
    test_backbone_write(test_mkdir(draft), &m, &pl_backbone_eagle3,
                        &(pl_backbone_options){.d2t = d2t, .draft_vocab = DRAFTED}, 9);
    assert_int_equal(pl_backbone_open(&b, draft, &m, PL_BF16, &err), PL_OK);
    assert_int_equal(b->head.vocab, DRAFTED);
    assert_memory_equal(b->head.d2t, d2t, sizeof d2t);
    assert_int_equal(b->head.out.dim[0], DRAFTED);
    pl_backbone_destroy(b);
    // Decoding with it: plain decoding's tokens at both temperatures, by every verifier that promises them, and by all
    // others at temperature 0. The full drafter's k must fit the head.
    for (int t = 0; t < 2; t++) {
        int32_t said[2][60];
        int     n_said[2];
        for (int d = 0; d < 2; d++) {
            pl_drafter *drafter = NULL;
            pl_engine  *e;
            pl_session *s;
            if (d)
                assert_int_equal(pl_drafter_open(&drafter, draft,
                                                 &(pl_drafter_options){.target = &m,
                                                                       .dtype = PL_BF16,
                                                                       .tree = "eagle2:20,5,4",
                                                                       .max_sessions = 1,
                                                                       .max_rows = 64,
                                                                       .slots = 128},
                                                 &err),
                                 PL_OK);
            pl_engine_options  o = {.max_sessions = 1, .max_rows = 64, .max_len = 128};
            pl_session_options so = {.sampling = {.temperature = t, .top_p = 1, .seed = 3}, .max_new = 60};
            assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), NULL, &m, drafter, &o, &err), PL_OK);
            assert_int_equal(pl_engine_start(e, prompt, 4, &so, &s, &err), PL_OK);
            while (pl_session_finish(s) == PL_RUNNING)
                assert_int_equal(pl_engine_step(e, &err), PL_OK);
            n_said[d] = pl_session_length(s) - pl_session_prompt(s);
            memcpy(said[d], pl_session_tokens(s) + pl_session_prompt(s), (size_t)n_said[d] * sizeof **said);
            if (d) assert_true(pl_session_statistics(s)->drafted > 0);
            pl_engine_destroy(e);
            pl_drafter_destroy(drafter);
        }
        assert_int_equal(n_said[0], n_said[1]);
        assert_memory_equal(said[0], said[1], (size_t)n_said[0] * sizeof **said);
    }
    pl_drafter *wide;
    assert_int_not_equal(pl_drafter_open(&wide, draft,
                                         &(pl_drafter_options){.target = &m,
                                                               .dtype = PL_BF16,
                                                               .tree = "eagle2:60,50,2",
                                                               .max_sessions = 1,
                                                               .max_rows = 64,
                                                               .slots = 128},
                                         &err),
                         PL_OK);
    assert_null(strchr(err.msg, '\n'));
    pl_llama_fini(&m);
    test_rmdir(dir);
    test_rmdir(draft);
}

// A prefix of rows means the most frequent tokens where the rows lie in that order alone: a drafter of all tokens in
// order of their ids that declares such a head is refused, made or read. A list may hold all tokens.
static void by_position(void **state) {
    (void)state;
    char         dir[64], draft[64], config[96];
    int32_t      all[TEST_VOCAB];
    pl_err       err = {0};
    pl_llama     m;
    pl_backbone *b;
    pl_hf_config c;
    test_target(&m, test_mkdir(dir), 2, 7, PL_BF16);
    pl_backbone_options o = {.head = pl_hf_head_of("full:position_aware"), .n_taps = 1, .tap = {1}};
    assert_int_equal(pl_backbone_create(&b, &pl_backbone_eagle3, &m, &o, pl_backend_cpu(), &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "drafter.head.position_aware: "));
    assert_null(b);
    o.head = pl_hf_head_of("full:redistribute=9"); // the target's own matrix, by EAGLE-1's default
    assert_int_equal(pl_backbone_create(&b, &pl_backbone_eagle1, &m, &o, pl_backend_cpu(), &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "drafter.head.redistribute: "));

    test_backbone_write(test_mkdir(draft), &m, &pl_backbone_eagle3, &(pl_backbone_options){0}, 9);
    snprintf(config, sizeof config, "%s/config.json", draft);
    assert_int_equal(pl_hf_config_read(&c, draft, PL_HF_DRAFTER, &err), PL_OK);
    c.head = pl_hf_head_of("full:position_aware");
    assert_int_equal(pl_hf_config_write(config, &c, &err), PL_OK);
    assert_int_equal(pl_backbone_open(&b, draft, &m, PL_BF16, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "paceline.head.position_aware is for a trimmed draft vocabulary"));
    assert_null(strchr(err.msg, '\n'));
    test_rmdir(draft);

    for (int i = 0; i < TEST_VOCAB; i++)
        all[i] = (41 * i + 7) % TEST_VOCAB;
    o = (pl_backbone_options){.head = pl_hf_head_of("full:position_aware"), .d2t = all, .draft_vocab = TEST_VOCAB};
    test_backbone_write(test_mkdir(draft), &m, &pl_backbone_eagle3, &o, 9);
    if (pl_backbone_open(&b, draft, &m, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_non_null(b->head.d2t);
    assert_memory_equal(b->head.d2t, all, sizeof all);
    pl_backbone_destroy(b);
    pl_llama_fini(&m);
    test_rmdir(dir);
    test_rmdir(draft);
}

static void refused(void **state) {
    (void)state;
    int64_t good[] = {2, 2, 4}, outside[] = {2, 2, 95}, below[] = {-1, 2, 4}, twice[] = {2, 1, 4}; // 2 3 6
    int32_t narrow[] = {2, 2, 4};
    float   real[] = {2, 2, 4};
    uint8_t marks[8] = {0, 0, 1, 1, 0, 0, 1, 0}, other[8] = {0, 1, 1, 0, 0, 0, 1, 0};
    const struct {
        const void *d2t;
        pl_dtype    dtype;
        int64_t     n;
        const void *t2d;
        const char *why; // NULL: taken
    } all[] = {{good, PL_I64, 3, marks, NULL},          {narrow, PL_I32, 3, NULL, NULL},
               {NULL, PL_I64, 3, marks, "no tensor"},   {good, PL_I64, 2, marks, "expected [3]"},
               {outside, PL_I64, 3, NULL, "outside"},   {below, PL_I64, 3, NULL, "outside"},
               {twice, PL_I64, 3, NULL, "twice"},       {real, PL_F32, 3, NULL, "expected int64"},
               {good, PL_I64, 3, other, "differ over"}, {good, PL_I64, 3, good, "expected bool"}};
    char path[96], dir[64];
    snprintf(path, sizeof path, "%s/m.safetensors", test_mkdir(dir));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pl_err            err = {0};
        pl_st_source      t[3];
        int               n = 0;
        int32_t          *d2t;
        pl_weight_source *src;
        t[n++] = (pl_st_source){.name = "x", .dtype = PL_F32, .rank = 1, .shape = {3}, .data = real};
        if (all[i].d2t)
            t[n++] = (pl_st_source){
                .name = "d2t", .dtype = all[i].dtype, .rank = 1, .shape = {all[i].n}, .data = all[i].d2t};
        int64_t wide[8] = {0};
        bool    odd = all[i].t2d == good;
        if (all[i].t2d)
            t[n++] = (pl_st_source){.name = "t2d",
                                    .dtype = odd ? PL_I64 : PL_BOOL,
                                    .rank = 1,
                                    .shape = {8},
                                    .data = odd ? (const void *)wide : all[i].t2d};
        assert_int_equal(pl_st_write(path, t, n, NULL, 0, &err), PL_OK);
        assert_int_equal(pl_weight_source_open(&src, path, &err), PL_OK);
        pl_status st = pl_draft_vocab_read(&d2t, src, 3, 8, &err);
        if (!all[i].why) {
            assert_int_equal(st, PL_OK);
            assert_true(d2t[0] == 2 && d2t[1] == 3 && d2t[2] == 6);
            pl_free(d2t);
        } else {
            assert_int_equal(st, PL_E_INPUT);
            if (!strstr(err.msg, all[i].why)) fail_msg("case %zu: %s", i, err.msg);
            assert_null(strchr(err.msg, '\n'));
            assert_null(d2t);
        }
        pl_weight_source_close(src);
    }
    test_rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_list),   cmocka_unit_test(with_stops),
        cmocka_unit_test(short_lists), cmocka_unit_test(through_a_checkpoint),
        cmocka_unit_test(by_position), cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
