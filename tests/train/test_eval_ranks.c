// Evaluation by several processes: the answers, counts and acceptance of one, and its trace in another order.
#include "tests/train/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "train/run/pipeline.h"
#include "train/run/run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pl_status eval(const pl_recipe *r, const char *dir, const pl_env *env, int64_t stop_after, pl_err *err) {
    pl_env shown = *env;
    (void)stop_after;
    if (pl_dir_make(dir, err) != PL_OK) return PL_E_IO;
    shown.text = tmpfile(); // the table
    assert_non_null(shown.text);
    pl_status st = pl_ranks_eval(r, dir, &shown, err);
    fclose(shown.text);
    return st;
}

#define METHODS                                                                                                        \
    "eval.drafters.0.path=BASE/drafter/checkpoints/best\neval.drafters.0.name=mine\neval.drafters.1.kind=lookup:3,4\n" \
    "eval.max_new_tokens=12\neval.tree=chain:3\neval.plain_fp32=false\neval.temperatures=0,1\neval.seeds=2\n"          \
    "eval.repeats=1\n"

static pl_status by(int ranks, const char *out, const char *extra, pl_err *err) {
    char lines[4096];
    snprintf(lines, sizeof lines, "%s%s%s", small_data_lines, METHODS, extra);
    return small_ranks(ranks, out, lines, eval, 0, err);
}

static const cJSON *results(pl_json *j, uint8_t **data, const char *out) {
    size_t       n;
    pl_err       err = {0};
    const cJSON *methods;
    small_read(out, "results.json", data, &n);
    if (pl_json_parse(j, out, 0, (char *)*data, n, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_json_get_array(j, NULL, "methods", &methods, &err), PL_OK);
    return methods;
}

static void same_member(const char *what, const cJSON *a, const cJSON *b) {
    const cJSON *x = cJSON_GetObjectItem(a, what), *y = cJSON_GetObjectItem(b, what);
    if (!x || !y || !cJSON_Compare(x, y, true))
        fail_msg("%s of %s: %s, %s", what, cJSON_GetObjectItem(a, "name")->valuestring, cJSON_Print(x), cJSON_Print(y));
}

// What does not depend on time.
static void same_results(const char *a, const char *b) {
    static const char *const what[] = {"name",     "acceptance_length",      "identical_outputs", "steps", "drafted",
                                       "accepted", "acceptance_by_position", "answers_hash",      "tokens"};
    pl_json                  j[2];
    uint8_t                 *data[2];
    const cJSON             *x = results(&j[0], &data[0], a), *y = results(&j[1], &data[1], b);
    assert_int_equal(cJSON_GetArraySize(x), cJSON_GetArraySize(y));
    assert_int_equal(cJSON_GetArraySize(x), 6);
    int seen[sizeof what / sizeof *what] = {0};
    for (int m = 0; m < cJSON_GetArraySize(x); m++)
        for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
            if (!cJSON_GetObjectItem(cJSON_GetArrayItem(x, m), what[i])) continue;
            same_member(what[i], cJSON_GetArrayItem(x, m), cJSON_GetArrayItem(y, m));
            seen[i]++;
        }
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) // plain decoding drafts nothing
        if (seen[i] < 2) fail_msg("%s: of %d methods", what[i], seen[i]);
    static const char *const settings[] = {"n_prompts", "prompt_tokens", "truncated_prompts", "mean_context"};
    for (size_t i = 0; i < 4; i++)
        assert_true(cJSON_Compare(cJSON_GetObjectItem(cJSON_GetObjectItem(j[0].root, "settings"), settings[i]),
                                  cJSON_GetObjectItem(cJSON_GetObjectItem(j[1].root, "settings"), settings[i]), true));
    for (int i = 0; i < 2; i++)
        pl_json_close(&j[i]), pl_free(data[i]);
}

// Lines of a trace, without the times, sorted.
static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int trace_lines(const char *out, char **line, int most) {
    uint8_t *data;
    size_t   n;
    int      lines = 0;
    small_read(out, "trace.jsonl", &data, &n);
    for (char *at = (char *)data; *at; at = strchr(at, '\n') + 1) {
        cJSON *o = cJSON_ParseWithLength(at, (size_t)(strchr(at, '\n') - at)), *c;
        assert_non_null(o);
        cJSON_DeleteItemFromObject(o, "seconds");
        cJSON_DeleteItemFromObject(o, "prefill_seconds");
        cJSON_ArrayForEach(c, cJSON_GetObjectItem(o, "cycles")) cJSON_DeleteItemFromObject(c, "seconds");
        assert_true(lines < most);
        line[lines++] = cJSON_PrintUnformatted(o);
        cJSON_Delete(o);
    }
    pl_free(data);
    qsort(line, (size_t)lines, sizeof *line, by_text);
    return lines;
}

static void same_trace(const char *a, const char *b) {
    enum { MOST = 1024 };
    static char *line[2][MOST];
    int          n = trace_lines(a, line[0], MOST);
    assert_int_equal(n, trace_lines(b, line[1], MOST));
    assert_true(n > 20);
    for (int i = 0; i < n; i++) {
        assert_string_equal(line[0][i], line[1][i]);
        cJSON_free(line[0][i]), cJSON_free(line[1][i]);
    }
}

static void like_one(const char *name, const char *extra) {
    char   out[2][64];
    pl_err err;
    for (int ranks = 1; ranks <= 3; ranks++) {
        snprintf(out[ranks > 1], sizeof out[0], "%s-%d", name, ranks);
        if (by(ranks, out[ranks > 1], extra, &err) != PL_OK) fail_msg("%s: %s", out[ranks > 1], err.msg);
        if (ranks == 1) continue;
        same_results(out[0], out[1]);
        same_trace(out[0], out[1]);
    }
}

static void prompts(void **state) {
    (void)state;
    pl_err err;
    if (small_run("drafter", "train.steps=20\ntrain.warmup=2\n", 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    like_one("prompts", "");
}

// Turns of one are the same rank's.
static void conversations(void **state) {
    (void)state;
    small_conversations(5);
    like_one("talks", "eval.prompts=BASE/talks.jsonl\ndata.form=chat\ndata.chat.template=BASE/t.jinja\n");
}

static void batches_are_refused(void **state) {
    (void)state;
    pl_err err;
    assert_int_equal(by(2, "batches", "eval.batches=4\n", &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "many prompts at a time are timed in one process"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts),
        cmocka_unit_test(conversations),
        cmocka_unit_test(batches_are_refused),
    };
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}
