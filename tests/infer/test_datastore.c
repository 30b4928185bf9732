// What drafters keep in a file: the round trip through drafters of two processes, and files that are refused.
#include "checkpoints/state.h"
#include "infer/drafter/datastore.h"
#include "tests/checkpoints/scratch.h"

#include <string.h>

enum { V = 20 };

static const pl_llama target = {.vocab = V};

static pl_drafter *open_drafter(const char *what) {
    pl_drafter        *d;
    pl_err             err = {0};
    pl_drafter_options o = {.target = &target, .dtype = PL_F32, .max_sessions = 1, .max_rows = 8, .slots = 64};
    if (pl_drafter_open(&d, what, &o, &err) != PL_OK) fail_msg("%s: %s", what, err.msg);
    pl_drafter_reset(d, 0);
    return d;
}

static const pl_tree *drafted(pl_drafter *d, const int32_t *text, int n) {
    static pl_tree t;
    pl_ctx         ctx = {0};
    pl_draft_item  it = {.tokens = text, .n_tokens = n, .tree = &t, .depth = 4};
    pl_draft_batch b = {.item = &it, .n = 1};
    pl_tree_root(&t, text[n - 1]);
    d->kind->propose(d, &ctx, &b);
    pl_drafter_reset(d, 0);
    return &t;
}

static const char *what_of(const char *before, const char *file) {
    static char what[600];
    snprintf(what, sizeof what, "%s%s", before, at(file));
    return what;
}

// Answers outlive their process, in order, and retrieval drafts from them; what came since is forgotten when asked to.
static void answers(void **state) {
    (void)state;
    static const int32_t one[] = {5, 6, 7, 8, 9, 3}, two[] = {1, 2, 3, 4}, text[] = {1, 6, 7, 8}, other[] = {9, 2, 3};
    pl_err               err = {0};
    int32_t             *ids;
    int64_t              n;
    pl_drafter          *d = open_drafter(what_of("suffix:4,keep=", "a.store"));
    assert_int_equal(drafted(d, text, 4)->n, 1);
    d->kind->ended(d, 0, one, 6);
    assert_int_equal(pl_drafter_save(d, &err), PL_OK);
    pl_drafter_destroy(d);
    for (int again = 0; again < 2; again++) {
        d = open_drafter(what_of("suffix:4,keep=", "a.store"));
        const pl_tree *t = drafted(d, text, 4);
        assert_true(t->n == 3 && t->token[1] == 9 && t->token[2] == 3);
        d->kind->ended(d, 0, two, 4);
        assert_int_equal(drafted(d, other, 3)->token[1], 4);
        assert_int_equal(pl_drafter_forget(d, &err), PL_OK);
        assert_int_equal(drafted(d, other, 3)->n, 1);
        assert_int_equal(drafted(d, text, 4)->n, 3);
        d->kind->ended(d, 0, two, 4);
        if (again) assert_int_equal(pl_drafter_save(d, &err), PL_OK);
        pl_drafter_destroy(d);
    }
    static const int32_t both[] = {5, 6, 7, 8, 9, 3, -1, 1, 2, 3, 4, -1};
    pl_datastore         of = {.kind = PL_DATASTORE_ANSWERS, .vocab = V};
    assert_int_equal(pl_datastore_read(at("a.store"), &of, &ids, &n, &err), PL_OK);
    assert_int_equal(n, 12);
    assert_memory_equal(ids, both, sizeof both);
    pl_free(ids);
    assert_true(pl_state_is(at("a.store")));
    d = open_drafter(what_of("retrieval:", "a.store"));
    assert_int_equal(drafted(d, other, 3)->token[1], 4);
    pl_drafter_destroy(d);
}

// More than is kept: the file holds at most that, the last answers among it.
static void bounded(void **state) {
    (void)state;
    pl_err       err = {0};
    int32_t     *ids, answer[1000];
    int64_t      n, before = 0;
    pl_datastore of = {.kind = PL_DATASTORE_ANSWERS, .vocab = V};
    pl_drafter  *d = open_drafter(what_of("suffix:keep=", "b.store"));
    for (int a = 0; a < 400; a++) {
        for (int i = 0; i < 1000; i++)
            answer[i] = (a * 7 + i * i) % V;
        d->kind->ended(d, 0, answer, 1000);
    }
    for (int again = 0; again < 2; again++) { // what was opened is saved as it was
        assert_int_equal(pl_drafter_save(d, &err), PL_OK);
        pl_drafter_destroy(d);
        assert_int_equal(pl_datastore_read(at("b.store"), &of, &ids, &n, &err), PL_OK);
        assert_true(n % 1001 == 0 && n > 1 << 17 && n <= 1 << 18 && (!again || n == before));
        assert_memory_equal(ids + n - 1001, answer, sizeof answer);
        before = n;
        pl_free(ids);
        d = open_drafter(what_of("suffix:keep=", "b.store"));
    }
    pl_drafter_destroy(d);
}

static void recycling(void **state) {
    (void)state;
    pl_err       err = {0};
    int32_t      matrix[V * 8], text[] = {4};
    pl_datastore of = {.kind = PL_DATASTORE_RECYCLING, .vocab = V};
    for (int i = 0; i < V * 8; i++)
        matrix[i] = i < 32 ? -1 : (i / 8 + 1 + i % 8) % V;
    assert_int_equal(pl_datastore_write(at("r.store"), &of, matrix, V * 8, &err), PL_OK);
    pl_drafter *d = open_drafter(what_of("recycle:3,keep=", "r.store"));
    for (int again = 0; again < 2; again++) {
        const pl_tree *t = drafted(d, text, 1);
        assert_true(t->n == 4 && t->token[1] == 5 && t->token[t->first[1]] == 6);
        assert_int_equal(pl_drafter_save(d, &err), PL_OK);
        pl_drafter_destroy(d);
        d = open_drafter(what_of("recycle:3,keep=", "r.store"));
    }
    pl_drafter_destroy(d);
}

// A file as pl_state_write makes it, but for one thing.
static void refused(void **state) {
    (void)state;
    static const int32_t high[] = {1, V, -1}, low[] = {1, -2};
    const int64_t        v = V, w = V + 1;
    const struct {
        const char   *what;
        pl_state_item item[3];
        const char   *says;
    } bad[] = {
        {"suffix:keep=", {{.name = "other", .dtype = PL_U8, .count = 1, .data = "x"}}, "is no datastore"},
        {"suffix:keep=", {{.name = "datastore", .dtype = PL_U8, .count = 5, .data = "texts"}}, "is no datastore"},
        {"suffix:keep=",
         {{.name = "datastore", .dtype = PL_U8, .count = 9, .data = "recycling"}},
         "holds recycling, not answers"},
        {"recycle:keep=",
         {{.name = "datastore", .dtype = PL_U8, .count = 7, .data = "answers"}},
         "holds answers, not recycling"},
        {"suffix:keep=", {{.name = "datastore", .dtype = PL_U8, .count = 7, .data = "answers"}}, "vocab"},
        {"suffix:keep=",
         {{.name = "datastore", .dtype = PL_U8, .count = 7, .data = "answers"},
          {.name = "vocab", .dtype = PL_I64, .count = 1, .data = &w}},
         "was kept for a vocabulary of 21, the target has 20"},
        {"suffix:keep=",
         {{.name = "datastore", .dtype = PL_U8, .count = 7, .data = "answers"},
          {.name = "vocab", .dtype = PL_I64, .count = 1, .data = &v}},
         "holds no ids"},
        {"suffix:keep=",
         {{.name = "datastore", .dtype = PL_U8, .count = 7, .data = "answers"},
          {.name = "vocab", .dtype = PL_I64, .count = 1, .data = &v},
          {.name = "ids", .dtype = PL_I64, .count = 1, .data = &v}},
         "holds no ids"},
        {"suffix:keep=",
         {{.name = "datastore", .dtype = PL_U8, .count = 7, .data = "answers"},
          {.name = "vocab", .dtype = PL_I64, .count = 1, .data = &v},
          {.name = "ids", .dtype = PL_I32, .count = 3, .data = high}},
         "id 20 at 1 is none of 20"},
        {"suffix:keep=",
         {{.name = "datastore", .dtype = PL_U8, .count = 7, .data = "answers"},
          {.name = "vocab", .dtype = PL_I64, .count = 1, .data = &v},
          {.name = "ids", .dtype = PL_I32, .count = 2, .data = low}},
         "id -2 at 1"},
        {"recycle:keep=",
         {{.name = "datastore", .dtype = PL_U8, .count = 9, .data = "recycling"},
          {.name = "vocab", .dtype = PL_I64, .count = 1, .data = &v},
          {.name = "ids", .dtype = PL_I32, .count = 1, .data = low}},
         "holds 1 ids, not 8 for each of 20 tokens"},
        {"retrieval:",
         {{.name = "datastore", .dtype = PL_U8, .count = 7, .data = "answers"},
          {.name = "vocab", .dtype = PL_I64, .count = 1, .data = &v},
          {.name = "ids", .dtype = PL_I32, .count = 0}},
         "holds no answers"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err             err = {0};
        pl_drafter        *d;
        pl_drafter_options o = {.target = &target, .dtype = PL_F32, .max_sessions = 1, .max_rows = 8, .slots = 64};
        int                n = 0;
        while (n < 3 && bad[i].item[n].name)
            n++;
        assert_ok(pl_state_write(at("bad.store"), bad[i].item, n, &err));
        pl_status st = pl_drafter_open(&d, what_of(bad[i].what, "bad.store"), &o, &err);
        if (st == PL_OK) fail_msg("case %d is taken", (int)i);
        assert_null(d);
        assert_refused(st, &err, bad[i].says);
    }
}

// Cut off, or with one byte changed: the sums see it.
static void damaged(void **state) {
    (void)state;
    static const int32_t one[] = {5, 6, 7, 8, -1};
    pl_err               err = {0};
    uint8_t             *bytes;
    size_t               size;
    int32_t             *ids;
    int64_t              n;
    pl_datastore         of = {.kind = PL_DATASTORE_ANSWERS, .vocab = V};
    assert_ok(pl_datastore_write(at("c.store"), &of, one, 5, &err));
    assert_ok(pl_file_read(at("c.store"), &bytes, &size, 1 << 20, &err));
    for (size_t k = 0; k < size; k += 13) {
        put_file(at("d.store"), bytes, k);
        assert_refused(pl_datastore_read(at("d.store"), &of, &ids, &n, &err), &err, "is no datastore, or damaged");
        bytes[k] ^= 4;
        put_file(at("d.store"), bytes, size);
        assert_refused(pl_datastore_read(at("d.store"), &of, &ids, &n, &err), &err, "is no datastore, or damaged");
        bytes[k] ^= 4;
        assert_null(ids);
    }
    // What begins as a store and is cut is no text to retrieve from.
    put_file(at("d.store"), bytes, size / 2);
    pl_drafter        *d;
    pl_drafter_options o = {.target = &target, .dtype = PL_F32, .max_sessions = 1, .max_rows = 8, .slots = 64};
    assert_refused(pl_drafter_open(&d, what_of("retrieval:", "d.store"), &o, &err), &err, "or damaged");
    // A folder that is not there is told when the file is opened.
    assert_refused(pl_datastore_read(at("none/d.store"), &of, &ids, &n, &err), &err, "none/; make it first");
    pl_free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers), cmocka_unit_test(bounded),
                                       cmocka_unit_test(recycling), cmocka_unit_test(refused),
                                       cmocka_unit_test(damaged)};
    return cmocka_run_group_tests_name("test_datastore", tests, scratch_setup, scratch_teardown);
}
