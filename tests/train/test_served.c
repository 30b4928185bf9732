// Conversations that were served: a dataset of their ids has the columns of the dataset whose answers they are, bit for
// bit, and another model's answers are refused.
#include "tests/train/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/dataset/dataset.h"
#include "infer/generate/generate.h"
#include "infer/serve/record.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = 512 };

static pl_status made(const char *out, const char *extra, pl_err *err) {
    char lines[4096];
    snprintf(lines, sizeof lines, "%s%s", small_data_lines, extra);
    pl_recipe *r = small_recipe(lines);
    char      *dir = pl_path_join(small_base, out);
    pl_env     env = small_env(NULL);
    pl_status  st = pl_generate_run(r, NULL, dir, &env, err);
    pl_recipe_close(r);
    pl_free(dir);
    return st;
}

static pl_dataset *opened(const char *out) {
    pl_err      err;
    pl_dataset *ds;
    char       *dir = pl_sprintf("%s/%s/dataset", small_base, out);
    assert_int_equal(pl_dataset_open(&ds, dir, NULL, &err), PL_OK);
    pl_free(dir);
    return ds;
}

static int64_t read_doc(pl_dataset *ds, int64_t i, pl_columns *doc, pl_doc_about *about) {
    pl_err  err;
    int64_t first, n;
    assert_int_equal(pl_dataset_doc(ds, i, &first, &n, &err), PL_OK);
    assert_true(n <= ROOM);
    assert_int_equal(pl_dataset_read_doc(ds, i, doc, &err), PL_OK);
    assert_int_equal(pl_dataset_doc_about(ds, i, about, &err), PL_OK);
    return n;
}

static void record(const char *name, const char *target, int64_t docs, pl_dataset *ds, pl_columns *doc) {
    pl_err       err;
    pl_record   *r;
    pl_doc_about about;
    int32_t      answer[ROOM + 1];
    char        *path = pl_path_join(small_base, name);
    assert_int_equal(
        pl_record_open(&r, &(pl_record_options){.path = path, .target = target, .share = 1, .max_bytes = 1 << 20},
                       &err),
        PL_OK);
    for (int64_t i = 0; i < docs; i++) {
        int64_t n = read_doc(ds, i, doc, &about), at = 0, k = 0;
        while (!doc->loss_mask[at])
            at++;
        for (int64_t t = at; t < n; t++)
            answer[k++] = doc->tokens[t];
        answer[k++] = about.end;
        pl_record_answer(r, doc->tokens, at, answer, k, about.finish == PL_ANSWER_STOP);
    }
    assert_int_equal(pl_record_written(r), docs);
    pl_record_close(r);
    pl_free(path);
}

static void same_columns(void **state) {
    (void)state;
    pl_err           err;
    pl_dataset      *was = opened("data");
    pl_columns_shape shape = pl_dataset_read_shape(was);
    pl_columns       a = {0}, b = {0};
    pl_doc_about     about_a, about_b;
    int64_t          docs = pl_dataset_docs(was) / 2; // the greedy ones stand in front of the sampled ones
    char             target[17];
    snprintf(target, sizeof target, "%s", pl_dataset_get_attrs(was)->target_fingerprint);
    assert_int_equal(pl_columns_reserve(&a, &shape, ROOM, &err), PL_OK);
    assert_int_equal(pl_columns_reserve(&b, &shape, ROOM, &err), PL_OK);
    record("served.jsonl", target, docs, was, &a);
    pl_status st = made("again",
                        "data.prompts=BASE/served.jsonl\ndata.samples=0\neval.holdout=0\n"
                        "data.max_new_tokens=5\n",
                        &err);
    if (st != PL_OK) fail_msg("%s", err.msg);
    pl_dataset *is = opened("again");
    assert_int_equal(pl_dataset_docs(is), docs);
    for (int64_t i = 0; i < docs; i++) {
        int64_t n = read_doc(was, i, &a, &about_a);
        assert_int_equal(read_doc(is, i, &b, &about_b), n);
        assert_memory_equal(a.tokens, b.tokens, (size_t)n * sizeof *a.tokens);
        assert_memory_equal(a.loss_mask, b.loss_mask, (size_t)n);
        assert_memory_equal(a.argmax, b.argmax, (size_t)n * sizeof *a.argmax);
        assert_memory_equal(a.features, b.features, (size_t)(n * shape.taps * shape.d) * sizeof *a.features);
        assert_memory_equal(a.last_hidden, b.last_hidden, (size_t)(n * shape.d) * sizeof *a.last_hidden);
        assert_int_equal(about_a.end, about_b.end);
    }
    pl_dataset_close(is);
    record("foreign.jsonl", "0123456789abcdef", 2, was, &a);
    assert_int_equal(made("foreign", "data.prompts=BASE/foreign.jsonl\neval.holdout=0\n", &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "line 1: another model answered (0123456789abcdef"));
    pl_dataset_close(was);
    pl_columns_free(&a);
    pl_columns_free(&b);
}

static void bad_lines(void **state) {
    (void)state;
    static const struct {
        const char *line, *why;
    } bad[] = {
        {"{\"prompt_ids\":[1],\"answer_ids\":[],\"target\":\"x\",\"finish\":\"stop\"}", "\"answer_ids\" is empty"},
        {"{\"prompt_ids\":[1],\"answer_ids\":[-3],\"target\":\"x\",\"finish\":\"stop\"}", "-3"},
        {"{\"answer_ids\":[1],\"target\":\"x\",\"finish\":\"stop\"}", "prompt_ids"},
        {"{\"prompt_ids\":[1],\"answer_ids\":[2],\"finish\":\"stop\"}", "target"},
        {"{\"prompt_ids\":[1],\"answer_ids\":[2],\"target\":\"01234567890123456789\",\"finish\":\"stop\"}",
         "16 hex digits"}};
    char *path = pl_path_join(small_base, "bad.jsonl");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err err;
        FILE  *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "%s\n", bad[i].line);
        fclose(f);
        assert_int_equal(made("bad", "data.prompts=BASE/bad.jsonl\neval.holdout=0\n", &err), PL_E_INPUT);
        if (!strstr(err.msg, bad[i].why)) fail_msg("%s: %s", bad[i].line, err.msg);
    }
    pl_free(path);
}

// A line that a stopped server left unfinished is cut, a full file ends the recording, and a user's file is left alone.
static void the_file(void **state) {
    (void)state;
    static const int32_t ids[] = {1, 2, 3};
    pl_err               err;
    pl_record           *r;
    struct stat          info;
    char                *path = pl_path_join(small_base, "file.jsonl");
    pl_record_options    o = {.path = path, .target = "0123456789abcdef", .share = 1, .max_bytes = 250};
    assert_int_equal(pl_record_open(&r, &o, &err), PL_OK);
    pl_record_answer(r, ids, 3, ids, 2, true);
    pl_record_close(r);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    off_t one = info.st_size;
    assert_int_equal(truncate(path, one - 1), 0);
    assert_int_equal(pl_record_open(&r, &o, &err), PL_OK);
    for (int i = 0; i < 9; i++)
        pl_record_answer(r, ids, 3, ids, 2, false);
    assert_int_equal(pl_record_written(r), 2);
    pl_record_close(r);
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size <= 250 && info.st_size > 2 * one - 10);
    o.share = 0;
    assert_int_equal(pl_record_open(&r, &o, &err), PL_OK);
    pl_record_answer(r, ids, 3, ids, 2, true);
    assert_int_equal(pl_record_written(r), 0);
    pl_record_close(r);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("my own words, which are not a record\n", f);
    fclose(f);
    assert_int_equal(pl_record_open(&r, &o, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "is there, and no record of a server"));
    pl_free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_columns),
        cmocka_unit_test(bad_lines),
        cmocka_unit_test(the_file),
    };
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}
