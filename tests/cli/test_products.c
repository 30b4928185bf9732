// What the program writes about models and measurements: tokenize, inspect, bench, eval, report.
#include "data/counts.h"
#include "data/strbuf.h"
#include "infer/curves.h"
#include "infer/report.h"
#include "infer/results.h"
#include "infer/svg.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/probe.h"
#include "program.h"
#include "random_drafter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *str(const pl_json *j, const cJSON *obj, const char *key) {
    const char *s;
    if (pl_json_get_str(j, obj, key, &s, NULL) != PL_OK) fail_msg("no string \"%s\"", key);
    return s;
}

static double num(const pl_json *j, const cJSON *obj, const char *key) {
    double v;
    if (pl_json_get_num(j, obj, key, -1e300, 1e300, &v, NULL) != PL_OK) fail_msg("no number \"%s\"", key);
    return v;
}

static const cJSON *array(const pl_json *j, const cJSON *obj, const char *key) {
    const cJSON *a;
    if (pl_json_get_array(j, obj, key, &a, NULL) != PL_OK) fail_msg("no array \"%s\"", key);
    return a;
}

static void write_file(const char *path, const char *text) {
    assert_int_equal(pl_file_write_atomic(path, text, strlen(text), NULL), PL_OK);
}

static char *read_file(const char *path) {
    uint8_t *data;
    size_t   n;
    assert_int_equal(pl_file_read(path, &data, &n, 1 << 26, NULL), PL_OK);
    return (char *)data;
}

// ---- figures ----

static int64_t repeated_slowly(const int32_t *t, int64_t n) {
    int64_t inside = 0;
    for (int64_t p = 0; p < n; p++) {
        bool hit = false;
        for (int64_t i = p < 3 ? 0 : p - 3; i <= p && i + 4 <= n; i++)
            for (int64_t k = 0; k < i; k++)
                hit |= memcmp(t + k, t + i, 4 * sizeof *t) == 0;
        inside += hit;
    }
    return inside;
}

static void test_repeated_grams(void **state) {
    (void)state;
    int32_t t[200];
    for (int n = 0; n < 200; n++)
        for (int kinds = 1; kinds < 6; kinds += 2) {
            uint32_t x = 17u * (uint32_t)n + (uint32_t)kinds;
            for (int i = 0; i < n; i++) {
                x = x * 1664525u + 1013904223u;
                t[i] = (int32_t)(x >> 16) % kinds;
            }
            assert_int_equal(pl_repeated_tokens(t, n), repeated_slowly(t, n));
        }
}

// Two methods over four prompts with known seconds: every figure can be done by hand.
static pl_results *made_results(void) {
    pl_results *r = pl_calloc(1, sizeof *r);
    r->method = pl_calloc(2, sizeof *r->method);
    r->n_methods = 2;
    r->n_prompts = 4;
    r->picked = pl_calloc(4, sizeof *r->picked);
    r->repeats = 1;
    r->seed = 1;
    r->category = pl_calloc(4, sizeof *r->category);
    r->target = pl_strdup("t<&>\"");
    r->prompts = pl_strdup("p");
    for (int i = 0; i < 4; i++)
        r->category[i] = pl_strdup(i < 2 ? "math" : i == 2 ? "prose" : "");
    for (int m = 0; m < 2; m++) {
        pl_method *a = &r->method[m];
        snprintf(a->name, sizeof a->name, "%s", m ? "head & <co>" : "plain");
        a->weights = "bf16";
        a->verify = "match";
        a->seeds = 1;
        a->answer = pl_calloc(4, sizeof *a->answer);
        a->step_bytes = 1000;
        a->draft_step_bytes = m ? 100 : 0;
        a->bandwidth = 1e6;
        for (int i = 0; i < 4; i++) {
            pl_answer *x = &a->answer[i];
            *x = (pl_answer){
                .seconds = m ? 1 + i : 3 + 2 * i, .emitted = 30, .steps = m ? 15 : 30, .tokens = 30, .repeated = 3};
            x->identical = !(m && i == 3);
            a->stats.emitted += x->emitted;
            a->stats.steps += x->steps;
            a->stats.seconds += x->seconds;
        }
        if (m) {
            a->drafter = pl_strdup("dir");
            a->checkpoint = pl_strdup("dir");
            a->tree = pl_strdup("chain:2");
            a->stats.drafted = 120;
            a->stats.accepted = 60;
            a->stats.position_drafted[0] = a->stats.position_drafted[1] = 60;
            a->stats.position_accepted[0] = 45;
            a->stats.position_accepted[1] = 15;
        }
    }
    return r;
}

static void test_figures(void **state) {
    (void)state;
    pl_results *r = made_results();
    pl_figures  f;
    pl_results_figures(r, 0, &f);
    assert_true(f.all.speedup == 1 && f.identical && f.different == 0);
    assert_true(fabs(f.floor - 1000) < 1e-9); // 1 token for 1000 bytes at 1e6 bytes/s
    pl_results_figures(r, 1, &f);
    assert_true(fabs(f.all.speedup - 24.0 / 10.0) < 1e-12); // 120 tokens in 10 s against 24 s
    pl_interval s = f.all.speedup_95, t = f.all.acceptance_95;
    assert_true(s.low <= f.all.speedup && s.high >= f.all.speedup && s.low > 2 && s.high < 3.01);
    assert_true(f.all.acceptance == 2 && t.low == 2 && t.high == 2); // the same for every prompt
    assert_true(!f.identical && f.different == 1);
    assert_true(fabs(f.floor - 2 * 1e6 / 1200) < 1e-9); // 2 tokens for 1000 + 2 * 100 bytes
    assert_true(fabs(f.repeated - 0.1) < 1e-12);
    pl_results_destroy(r);
}

// Two seeds per prompt: prompts alike, seeds apart. The interval must hold what differs between seeds.
static void test_seeds(void **state) {
    (void)state;
    pl_results *r = made_results();
    pl_share    f;
    for (int m = 0; m < 2; m++) {
        pl_method *a = &r->method[m];
        pl_free(a->answer);
        a->seeds = 2;
        a->answer = pl_calloc(8, sizeof *a->answer);
        for (int i = 0; i < 8; i++)
            a->answer[i] = (pl_answer){.seconds = m ? 1 + i % 2 : 4, .emitted = 30, .steps = m ? 10 + 5 * (i % 2) : 30};
    }
    pl_results_share(r, 1, NULL, &f);
    assert_true(f.prompts == 4 && f.emitted == 240);
    assert_true(fabs(f.speedup - 32.0 / 12.0) < 1e-12 && fabs(f.acceptance - 240.0 / 100.0) < 1e-12);
    assert_true(f.speedup_95.low < f.speedup && f.speedup_95.high > f.speedup && f.speedup_95.low >= 2 &&
                f.speedup_95.high <= 4);
    assert_true(f.acceptance_95.low >= 2 && f.acceptance_95.high <= 3 && f.acceptance_95.low < f.acceptance_95.high);
    pl_results_share(r, 1, "math", &f); // two of the prompts
    assert_true(f.prompts == 2 && f.emitted == 120);
    assert_string_equal(pl_results_category(r, 1), "prose");
    assert_null(pl_results_category(r, 2));
    pl_results_destroy(r);
}

// results.json and the page of it, as `eval` writes them.
static pl_status save(const pl_results *r, const char *dir, pl_err *err) {
    char page[128];
    snprintf(page, sizeof page, "%s/report.html", dir);
    PL_TRY(pl_results_save(r, dir, err));
    return pl_report_write(page, &dir, 1, err);
}

// A verifier that does not promise plain decoding's tokens is not said to have broken a promise.
static void test_promises(void **state) {
    (void)state;
    char        scratch[64], path[128];
    pl_results *r = made_results();
    pl_json     j;
    pl_err      err;
    test_scratch(scratch);
    snprintf(path, sizeof path, "%s/results.json", scratch);
    for (int k = 0; k < 2; k++) {
        r->method[1].promise = k ? PL_PROMISE_NONE : PL_PROMISE_DISTRIBUTION;
        assert_int_equal(save(r, scratch, &err), PL_OK);
        assert_int_equal(pl_json_open(&j, path, 1 << 20, PL_JSON_UNIQUE, &err), PL_OK);
        const cJSON *m = array(&j, NULL, "methods")->child->next;
        assert_true(cJSON_IsNull(cJSON_GetObjectItem(m, "identical_outputs")));
        assert_string_equal(str(&j, m, "promise"), k ? "none" : "distribution");
        assert_non_null(strstr(str(&j, m, "identical_outputs_reason"), k ? "lossy" : "distribution"));
        pl_json_close(&j);
        snprintf(path, sizeof path, "%s/report.html", scratch);
        char *html = read_file(path);
        assert_non_null(strstr(html, k ? ">lossy<" : ">in distribution<"));
        pl_free(html);
        snprintf(path, sizeof path, "%s/results.json", scratch);
    }
    pl_results_destroy(r);
    test_scratch_remove(scratch);
}

static void test_results_files(void **state) {
    (void)state;
    char        scratch[64], path[128], page[128], metrics[128];
    pl_results *r = made_results();
    pl_json     j;
    pl_err      err;
    test_scratch(scratch);
    snprintf(path, sizeof path, "%s/results.json", scratch);
    snprintf(page, sizeof page, "%s/report.html", scratch);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", scratch);
    write_file(metrics,
               "{\"stage\":\"eagle3\",\"step\":1,\"loss\":5.5}\n"
               "{\"stage\":\"eagle3\",\"step\":2,\"loss\":4.5,\"eval_acceptance_length\":1.5}\n{\"stage\":\"eag");
    if (save(r, scratch, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_json_open(&j, path, 1 << 20, PL_JSON_UNIQUE, &err), PL_OK);
    const cJSON *methods = array(&j, NULL, "methods"), *m = methods->child->next;
    assert_int_equal(cJSON_GetArraySize(methods), 2);
    assert_string_equal(str(&j, methods->child, "name"), "plain");
    assert_string_equal(str(&j, m, "name"), "head & <co>");
    assert_true(num(&j, m, "acceptance_length") == 2);
    assert_true(num(&j, m, "accepted_over_drafted") == 0.5);
    assert_true(num(&j, m, "prompts") == 4);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(m, "identical_outputs")));
    const cJSON *rates = array(&j, m, "acceptance_by_position");
    const cJSON *took = array(&j, m, "seconds_by_prompt");
    double       all = 0;
    assert_int_equal(cJSON_GetArraySize(took), 4);
    for (const cJSON *x = took->child; x; x = x->next)
        all += x->valuedouble;
    assert_true(fabs(all - num(&j, m, "seconds")) < 1e-9);
    assert_int_equal(cJSON_GetArraySize(rates), 2);
    assert_true(rates->child->valuedouble == 0.75 && rates->child->next->valuedouble == 0.25);
    const cJSON *categories = array(&j, m, "categories");
    assert_int_equal(cJSON_GetArraySize(categories), 2);
    assert_true(num(&j, categories->child, "tokens_per_second") == 20); // 60 tokens in 1 + 2 s
    assert_non_null(pl_json_find(&j, NULL, "machine"));
    assert_non_null(pl_json_find(&j, NULL, "commit"));
    pl_json_close(&j);

    char *html = read_file(page);
    assert_non_null(strstr(html, "head &amp; &lt;co&gt;"));
    assert_null(strstr(html, "<co>"));
    assert_non_null(strstr(html, "prefers-color-scheme:dark"));
    assert_non_null(strstr(html, "Training loss"));
    assert_non_null(strstr(html, "Held-out acceptance length"));
    static const char *const outside[] = {"http:", "https:", "<script", "@import", "url(", "src=", "nan", "inf"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (strstr(html, outside[i])) fail_msg("report.html holds \"%s\"", outside[i]);
    pl_free(html);

    // The program makes the same page from the files.
    test_output o;
    test_run(&o, "report %s --out %s/two", scratch, scratch);
    assert_int_equal(o.code, 0);
    test_run_fini(&o);
    snprintf(page, sizeof page, "%s/two/report.html", scratch);
    assert_true(pl_path_exists(page));
    test_run_json(&j, "inspect %s --json", scratch);
    assert_string_equal(str(&j, NULL, "kind"), "run");
    assert_int_equal(cJSON_GetArraySize(array(&j, NULL, "methods")), 2);
    pl_json_close(&j);
    write_file(path, "{\"methods\":[{\"name\":3}]}");
    test_run_fails(2, "name", "report %s", scratch);
    write_file(path, "{\"methods\":");
    test_run_fails(2, "results.json", "report %s", scratch);
    write_file(metrics, "{\"stage\":\"a\",\"step\":\n");
    assert_int_equal(pl_tree_remove(path, NULL), PL_OK);
    test_run_fails(2, "metrics.jsonl:1", "report %s", scratch);
    pl_results_destroy(r);
    test_scratch_remove(scratch);
}

static const char head_results[] =
    "{\"methods\":[{\"name\":\"plain\",\"tokens\":100,\"seconds_by_part\":{\"target\":1.5}},"
    "{\"name\":\"all\",\"kind\":\"eagle3-full\",\"checkpoint\":\"a\",\"tree\":\"chain:4\",\"verify\":\"match\","
    "\"temperature\":0,"
    "\"acceptance_length\":4,\"steps\":100,\"mean_draft_depth\":4,\"seconds\":2,\"tokens\":400,"
    "\"seconds_by_part\":{\"target\":1,\"take_in\":0.3,\"layer\":0.2,\"head\":0.4,\"draw\":0,\"other\":0.1}},"
    "{\"name\":\"<slim>\",\"kind\":\"eagle3-lowrank\",\"checkpoint\":\"b\",\"tree\":\"chain:4\",\"verify\":\"match\","
    "\"temperature\":0,\"acceptance_length\":3.8,\"steps\":100,\"mean_draft_depth\":4,\"seconds\":1.7,\"tokens\":380,"
    "\"seconds_by_part\":{\"target\":1,\"take_in\":0.3,\"layer\":0.2,\"head\":0.1,\"other\":-1e300}},"
    "{\"name\":\"other tree\",\"kind\":\"eagle3-lowrank\",\"checkpoint\":\"c\",\"tree\":\"auto\",\"verify\":\"match\","
    "\"temperature\":0,\"acceptance_length\":3.8,\"steps\":100,\"mean_draft_depth\":4,\"seconds_by_part\":{\"head\":1}}"
    "]}";

static int count_of(const char *text, const char *part) {
    int n = 0;
    for (const char *s = text; (s = strstr(s, part)) != NULL; s++)
        n++;
    return n;
}

// The plane of heads with the same tree, times by part, lists and ceilings of the run's folder.
static void test_head_charts(void **state) {
    (void)state;
    char        scratch[64], path[160], page[128];
    const char *run = test_scratch(scratch);
    pl_err      err;
    snprintf(page, sizeof page, "%s/report.html", scratch);
    snprintf(path, sizeof path, "%s/results.json", scratch);
    write_file(path, head_results);
    snprintf(path, sizeof path, "%s/ceilings", scratch);
    assert_int_equal(pl_dir_make(path, NULL), PL_OK);
    snprintf(path, sizeof path, "%s/vocab", scratch);
    assert_int_equal(pl_dir_make(path, NULL), PL_OK);
    snprintf(path, sizeof path, "%s/vocab/books.json", scratch);
    pl_counts c;
    assert_int_equal(pl_counts_init(&c, 50, "0123456789abcdef", "books", NULL), PL_OK);
    pl_counts_add(&c, (int32_t[]){7, 7, 7, 3, 3, 1}, 6);
    assert_int_equal(pl_counts_write(&c, path, NULL), PL_OK);
    pl_counts_fini(&c);
    snprintf(path, sizeof path, "%s/ceilings/slim.json", scratch);
    write_file(path, "{\"temperature\":1,\"ceilings\":[{\"depth\":0,\"rows\":3,\"achieved\":0.5,\"ceiling\":0.75,"
                     "\"oracle\":0.875,\"retained\":0.25},{\"depth\":1,\"rows\":1,\"achieved\":0.3,\"ceiling\":0.35,"
                     "\"oracle\":0.475,\"retained\":0.65},7]}");
    if (pl_report_write(page, &run, 1, &err) != PL_OK) fail_msg("%s", err.msg);
    char *html = read_file(page);
    // kappa = 0.4 / (2 - 0.4); the head with another tree is not in the plane, which has two points.
    assert_non_null(strstr(html, "tree chain:4: kappa = 0.25"));
    assert_int_equal(count_of(html, "<circle") - count_of(html, "r=\"3\""), 2 + 2); // and in the legend
    assert_non_null(strstr(html, "&lt;slim&gt;"));
    assert_null(strstr(html, "<slim>"));
    assert_non_null(strstr(html, "5000 µs a token")); // 2 s for 400 tokens
    assert_non_null(strstr(html, "draft head: 1000"));
    assert_non_null(strstr(html, "Tokens of books that a list covers"));
    assert_non_null(strstr(html, "slim, temperature 1"));
    // Means over the 3 and 1 rows: achieved, ceiling, oracle, what lies between them, and what is not known.
    assert_non_null(strstr(html, "<td class=\"n\">45.0 %</td><td class=\"n\">65.0 %</td><td class=\"n\">77.5 %</td>"
                                 "<td class=\"n\">20.0 %</td><td class=\"n\">12.5 %</td><td class=\"n\">–</td>"
                                 "<td class=\"n\">–</td><td class=\"n\">35.0 %</td>"));
    static const char *const outside[] = {"http:", "https:", "<script", "url(", "src=", "nan", "inf"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (strstr(html, outside[i])) fail_msg("report.html holds \"%s\"", outside[i]);
    pl_free(html);
    write_file(path, "{\"ceilings\":[{\"depth\":0,\"rows\":3,\"achieved\":0.5,\"ceiling\":0.4,\"oracle\":0.875}]}");
    assert_int_equal(pl_report_write(page, &run, 1, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "slim.json"));
    assert_non_null(strstr(err.msg, "achieved 0.5, ceiling 0.4"));
    write_file(path, "{\"ceilings\":7}");
    assert_int_equal(pl_report_write(page, &run, 1, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "slim.json: ceilings: expected an array"));
    assert_int_equal(pl_tree_remove(path, NULL), PL_OK);
    snprintf(path, sizeof path, "%s/vocab/books.json", scratch);
    write_file(path, "{}");
    assert_int_equal(pl_report_write(page, &run, 1, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "books.json"));
    test_scratch_remove(scratch);
}

// Where the n-th `text` of SVG begins that is a number beside a point, and its place.
static const char *next_number(const char *s, double *x, double *y, int *number) {
    while ((s = strstr(s, "<text x=\"")) != NULL) {
        char kind[16];
        s += 9;
        if (sscanf(s, "%lf\" y=\"%lf\" class=\"%15[a-z]\" text-anchor=\"middle\">%d", x, y, kind, number) == 4 &&
            strcmp(kind, "number") == 0)
            return s;
    }
    return NULL;
}

// Thirty heads, most of them at nearly the same place: tables where lines could not be told apart, every point
// numbered, no number over another.
static void test_many_heads(void **state) {
    (void)state;
    enum { HEADS = 30 };
    char        scratch[64], path[160], page[128], text[16384] = "{\"methods\":[";
    const char *run = test_scratch(scratch);
    pl_err      err;
    double      x[HEADS], y[HEADS];
    int         n = 0, number;
    for (int i = 0; i < HEADS; i++) {
        size_t at = strlen(text);
        snprintf(
            text + at, sizeof text - at,
            "%s{\"name\":\"head-%d\",\"kind\":\"eagle3-%s\",\"checkpoint\":\"c%d\",\"tree\":\"chain:3\",\"verify\":"
            "\"match\",\"weights\":\"bf16\",\"temperature\":0,\"acceptance_length\":%.4f,\"steps\":100,"
            "\"mean_draft_depth\":3,\"seconds\":2,\"tokens\":300,\"acceptance_by_position\":[0.75,0.5],"
            "\"seconds_by_part\":{\"target\":1,\"head\":%.4f}}",
            i ? "," : "", i, i ? "lowrank" : "full", i, 3 - 0.001 * (i % 4), i ? 0.1 + 0.002 * i : 0.4);
    }
    strcat(text, "]}");
    snprintf(page, sizeof page, "%s/report.html", scratch);
    snprintf(path, sizeof path, "%s/results.json", scratch);
    write_file(path, text);
    if (pl_report_write(page, &run, 1, &err) != PL_OK) fail_msg("%s", err.msg);
    char *html = read_file(page);
    for (const char *s = html; n < HEADS && (s = next_number(s, &x[n], &y[n], &number)) != NULL; n++)
        assert_int_equal(number, n + 1);
    assert_int_equal(n, HEADS);
    for (int i = 0; i < HEADS; i++)
        for (int k = 0; k < i; k++)
            if (fabs(x[i] - x[k]) < 8 && fabs(y[i] - y[k]) < 9) fail_msg("%d stands over %d", i + 1, k + 1);
    assert_non_null(strstr(html, "Share of drafts accepted up to a position</h3>"));
    assert_non_null(strstr(html, "<td>head-29</td><td class=\"n\">75.0 %</td><td class=\"n\">50.0 %</td>"));
    // What all share is told once.
    assert_non_null(strstr(html, "All drafters: weights bf16, tree chain:3, verifier match."));
    assert_null(strstr(html, "<td>bf16</td>"));
    pl_free(html);
    test_scratch_remove(scratch);
}

// Whichever allocation fails: one line, no product, nothing leaked (the sanitizers look).
static void test_out_of_memory(void **state) {
    (void)state;
    char        scratch[64], path[128], page[128];
    const char *run = test_scratch(scratch);
    pl_results *r = made_results();
    assert_int_equal(pl_results_save(r, scratch, NULL), PL_OK);
    snprintf(path, sizeof path, "%s/metrics.jsonl", scratch);
    write_file(path, "{\"stage\":\"a\",\"step\":1,\"loss\":1}\n{\"stage\":\"a\",\"step\":2,\"loss\":0.5}\n");
    snprintf(page, sizeof page, "%s/again.html", scratch);
    uint64_t n = 0;
    for (pl_status st = PL_E_MEMORY; st != PL_OK;) {
        pl_err err = {0};
        pl_alloc_fail_after(++n);
        st = pl_report_write(page, &run, 1, &err);
        pl_alloc_fail_after(0);
        if (st == PL_OK) break;
        assert_int_equal(st, PL_E_MEMORY);
        assert_true(err.msg[0] != 0);
        assert_false(pl_path_exists(page));
        assert_true(n < 10000);
    }
    assert_true(n > 10);
    pl_results_destroy(r);
    test_scratch_remove(scratch);
}

static void test_out_of_memory_decoding(void **state) {
    (void)state;
    char        data[512];
    const char *path = test_data(data, "models/stories260K/stories260K.bin");
    uint64_t    n = 0;
    for (pl_status st = PL_E_MEMORY; st != PL_OK;) {
        pl_err    err = {0};
        pl_target t;
        pl_runner run = {0};
        pl_alloc_fail_after(++n);
        st = pl_target_open(&t, path, NULL, NULL, PL_WEIGHTS_AUTO, pl_backend_cpu(), &err);
        if (st == PL_OK)
            st = pl_runner_open(&run, pl_backend_cpu(), NULL, &t, &(pl_runner_options){.max_len = 32}, &err);
        pl_alloc_fail_after(0);
        pl_runner_close(&run);
        pl_target_close(&t);
        if (st != PL_OK) assert_int_equal(st, PL_E_MEMORY);
        assert_true(n < 10000);
    }
    assert_true(n > 10);
}

static void test_charts(void **state) {
    (void)state;
    double    x[2000], y[2000];
    pl_strbuf b = {0};
    for (int i = 0; i < 2000; i++) {
        x[i] = i;
        y[i] = i % 7 == 0 ? NAN : sin(i * 0.01);
    }
    pl_line line[] = {{.label = "a", .x = x, .y = y, .n = 2000}, {.label = "one", .x = x, .y = x, .n = 1}};
    pl_bar  bar[] = {{.label = "none", .value = 0, .low = NAN, .high = NAN, .mark = NAN},
                     {.label = "far", .value = 3, .low = 2, .high = 4, .mark = 1e9}};
    pl_svg_lines(&b, "lines", "x", line, 2, false);
    pl_svg_bars(&b, "bars", "unit", bar, 2);
    pl_svg_bars(&b, "zero", "unit", bar, 1);
    size_t before = b.n;
    pl_svg_lines(&b, "empty", "x", line, 0, false); // nothing to draw
    assert_int_equal(b.n, before);
    char *svg = pl_strbuf_take(&b);
    assert_non_null(svg);
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    assert_true(strlen(svg) < 40000); // long curves are thinned out
    pl_free(svg);
}

// Names of parts, however long, stand apart within the picture, which is high enough for them.
static void test_stacks(void **state) {
    (void)state;
    enum { PARTS = 5, LONG = 40 };
    char        name[PARTS][LONG + 1];
    const char *part[PARTS], *bar = "bar";
    double      value[PARTS], x[PARTS], y[PARTS];
    int         height = 0, n = 0;
    pl_strbuf   b = {0};
    for (int i = 0; i < PARTS; i++) {
        memset(name[i], 'a' + i, LONG);
        name[i][LONG] = 0;
        part[i] = name[i];
        value[i] = i + 1;
    }
    pl_svg_stacks(&b, "stacks", "s", part, PARTS, 0, &bar, value, 1);
    char *svg = pl_strbuf_take(&b);
    assert_non_null(svg);
    assert_int_equal(sscanf(strstr(svg, "viewBox"), "viewBox=\"0 0 760 %d\"", &height), 1);
    for (const char *s = svg; n < PARTS && (s = strstr(s, "<text x=\"")) != NULL; s++) {
        char kind[16];
        if (sscanf(s, "<text x=\"%lf\" y=\"%lf\" class=\"%15[a-z]\">", &x[n], &y[n], kind) != 3) continue;
        if (strcmp(kind, "label") == 0 && strstr(s, "</text>") - strchr(s, '>') == LONG + 1) n++;
    }
    assert_int_equal(n, PARTS);
    for (int i = 0; i < PARTS; i++) {
        assert_true(x[i] + 7 * LONG <= 760 && y[i] <= height);
        for (int k = 0; k < i; k++)
            if (fabs(y[i] - y[k]) < 12) assert_true(fabs(x[i] - x[k]) >= 7 * LONG);
    }
    pl_free(svg);
}

static void test_probe(void **state) {
    (void)state;
    double rate = pl_probe_bandwidth(NULL, 1 << 20), flops = pl_probe_flops(NULL);
    assert_true(rate > 1e8 && rate < 1e13);
    assert_true(flops > 1e8 && flops < 1e13);
}

// ---- the program ----

static void test_tokenize(void **state) {
    (void)state;
    char        data[512], scratch[64], file[128];
    const char *tok = test_data(data, "models/TinyStories-656K");
    int32_t     a[64], b[64];
    pl_json     j;
    test_output o;
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/text", scratch);
    write_file(file, "Once upon a time");
    test_run_json(&j, "tokenize --tokenizer %s --text 'Once upon a time' --json", tok);
    int n = test_ids(&j, "ids", a, 64);
    assert_int_equal(a[0], 1);
    pl_json_close(&j);
    test_run_json(&j, "tokenize --tokenizer %s/tokenizer.json --file %s --no-special --json", tok, file);
    assert_int_equal(test_ids(&j, "ids", b, 64), n - 1);
    assert_memory_equal(a + 1, b, (size_t)(n - 1) * sizeof *a);
    pl_json_close(&j);
    test_run(&o, "tokenize --tokenizer %s --text 'Once upon a time'", tok);
    assert_int_equal(o.code, 0);
    char *line = o.out;
    line[strcspn(line, "\n")] = 0;
    test_run_json(&j, "tokenize --tokenizer %s --decode '%s' --json", tok, line);
    assert_string_equal(str(&j, NULL, "text"), "Once upon a time");
    pl_json_close(&j);
    test_run_fini(&o);
    // Exactly the bytes and nothing behind them.
    test_run(&o, "tokenize --tokenizer %s --decode '%s'", tok, "1");
    assert_int_equal(o.out_bytes, 0);
    test_run_fini(&o);
    test_run_fails(2, "--decode", "tokenize --tokenizer %s --decode 1,99999", tok);
    test_run_fails(2, "no-such", "tokenize --tokenizer %s/no-such --text a", tok);
    write_file(file, "a\xff");
    test_run_fails(2, file, "tokenize --tokenizer %s --file %s --json", tok, file);
    test_scratch_remove(scratch);
}

// Byte-level ids need not be whole characters.
static void test_tokenize_bytes(void **state) {
    (void)state;
    char        data[512], scratch[64], file[128];
    const char *gpt2 = test_data(data, "tokenizers/gpt2");
    int32_t     ids[16];
    pl_json     j;
    test_output o;
    test_run_json(&j, "tokenize --tokenizer %s --text \xF0\x9F\x9A\x80z --json", gpt2);
    assert_int_equal(test_ids(&j, "ids", ids, 16), 4);
    pl_json_close(&j);
    test_run(&o, "tokenize --tokenizer %s/vocab.json --decode %d", gpt2, ids[0]);
    assert_int_equal(o.out_bytes, 2);
    assert_memory_equal(o.out, "\xF0\x9F", 2);
    test_run_fini(&o);
    test_run_json(&j, "tokenize --tokenizer %s --decode %d,%d --json", gpt2, ids[0], ids[3]);
    assert_string_equal(str(&j, NULL, "text"), "\xEF\xBF\xBDz");
    assert_string_equal(str(&j, NULL, "bytes_hex"), "f09f7a");
    pl_json_close(&j);
    test_run_json(&j, "tokenize --tokenizer %s --decode %d --json", gpt2, ids[3]);
    assert_null(pl_json_find(&j, NULL, "bytes_hex"));
    pl_json_close(&j);
    test_run_fails(2, "unknown pre-tokenizer", "tokenize --tokenizer %s/vocab.json --pre gpt-5 --text a", gpt2);
    test_run_fails(2, "names its own", "tokenize --tokenizer %s --pre gpt-2 --text a", gpt2);
    test_run_fails(2, "--file", "bench tokenize --tokenizer %s", gpt2);
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/text", scratch);
    write_file(file, "the cat sat on the mat\n");
    test_run_json(&j, "bench tokenize --tokenizer %s --file %s --json", gpt2, file);
    const cJSON *t = pl_json_find(&j, NULL, "tokenize"), *ways = pl_json_find(&j, t, "ways");
    assert_int_equal(cJSON_GetArraySize(ways), 3);
    assert_true(cJSON_GetObjectItem(ways->child, "mb_per_second")->valuedouble > 0);
    assert_int_equal(cJSON_GetObjectItem(t, "tokens")->valueint, 7);
    pl_json_close(&j);
    test_scratch_remove(scratch);
}

static void expect_kind(const char *kind, const char *path, const char *options) {
    pl_json     j;
    test_output o;
    test_run_json(&j, "inspect %s --json %s", path, options);
    assert_string_equal(str(&j, NULL, "kind"), kind);
    pl_json_close(&j);
    test_run(&o, "inspect %s %s", path, options);
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, kind));
    test_run_fini(&o);
}

static void test_inspect(void **state) {
    (void)state;
    static const char *const known[][2] = {{"model", "models/TinyStories-656K"},
                                           {"llama2.c model", "models/stories260K/stories260K.bin"},
                                           {"tokenizer", "models/stories260K/tok512.bin"},
                                           {"tokenizer", "models/TinyStories-656K/tokenizer.json"},
                                           {"tokenizer", "tokenizers/llama2/tokenizer.model"},
                                           {"tokenizer", "tokenizers/llama3"},
                                           {"tokenizer", "tokenizers/qwen2"},
                                           {"tokenizer", "tokenizers/gpt2/merges.txt"},
                                           {"safetensors", "models/TinyStories-656K/model.safetensors"},
                                           {"prompts", "bench/mt_bench/question.jsonl"},
                                           {"drafter checkpoint", "configs/SpecForge/llama3-8B-eagle3.json"},
                                           {"drafter checkpoint", "configs/EAGLE/vicuna_7B_config.json"}};
    char                     data[512], scratch[64], file[128];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        expect_kind(known[i][0], test_data(data, known[i][1]), "");
    const char *target = test_data(data, "models/TinyStories-656K");
    expect_kind("model", target, "--tensors --full-hash");
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/head", scratch);
    test_random_drafter(file, target, "lowrank", 8);
    expect_kind("drafter checkpoint", file, "--full-hash");
    snprintf(file, sizeof file, "%s/r.yaml", scratch);
    write_file(file, "train: {steps: 3}\n");
    expect_kind("recipe", file, "");
    write_file(file, "train: {stepz: 3}\n");
    test_run_fails(2, "r.yaml:1", "inspect %s", file);
    test_run_fails(2, "nothing known", "inspect %s", scratch);
    snprintf(file, sizeof file, "%s/x.safetensors", scratch);
    write_file(file, "junk");
    test_run_fails(2, "x.safetensors", "inspect %s --json", file);
    test_scratch_remove(scratch);
}

static void test_bench(void **state) {
    (void)state;
    pl_json j;
    test_run_json(&j, "bench heads linear --json --threads 1 --vocab 512 --hidden 64 --ranks 8,64 --max-mb 1");
    const cJSON *h, *heads = array(&j, NULL, "heads");
    assert_int_equal(cJSON_GetArraySize(heads), 26); // bf16, fp32: full, 4 trimmed, 2 low-rank, 2 specvocab, 4 dynaspec
    cJSON_ArrayForEach(h, heads) {
        str(&j, h, "name");
        assert_true(num(&j, h, "seconds") > 0);
        assert_true(num(&j, h, "p10") <= num(&j, h, "p90"));
        assert_true(num(&j, h, "floor_seconds") > 0);
        assert_true(num(&j, h, "share_p10") > 0 && num(&j, h, "share_p10") <= num(&j, h, "share_of_floor"));
        assert_true(num(&j, h, "share_of_floor") <= num(&j, h, "share_p90"));
        bool        bf16 = strcmp(str(&j, h, "weights"), "bf16") == 0;
        double      rank = num(&j, h, "rank"), w = bf16 ? 2 : 4;
        const char *kind = str(&j, h, "kind");
        if (strcmp(kind, "full") == 0) assert_true(num(&j, h, "bytes") == w * num(&j, h, "vocab") * 64);
        if (strcmp(kind, "lowrank") == 0) assert_true(num(&j, h, "bytes") == w * rank * (512 + 64));
        assert_true(num(&j, h, "speedup_over_full") > 0);
    }
    assert_int_equal(cJSON_GetArraySize(array(&j, NULL, "linear")), 4); // 4096 x 4096 is above --max-mb
    assert_non_null(pl_json_find(&j, NULL, "machine"));
    pl_json_close(&j);
}

static void test_bench_decode(void **state) {
    (void)state;
    char         data[512];
    const char  *target = test_data(data, "models/TinyStories-656K");
    pl_json      j;
    const cJSON *m;
    test_run_json(&j, "bench decode --json --target %s --context 8 --new-tokens 16 --repeats 3", target);
    const cJSON *methods = array(&j, NULL, "decode");
    assert_int_equal(cJSON_GetArraySize(methods), 2);
    cJSON_ArrayForEach(m, methods) {
        assert_true(num(&j, m, "tokens_per_second") > 0);
        assert_true(num(&j, m, "floor_tokens_per_second") > 0 && num(&j, m, "bandwidth_gb_per_second") > 0);
        assert_true(num(&j, m, "share_p10") > 0 && num(&j, m, "share_p10") <= num(&j, m, "share_of_floor"));
        assert_true(num(&j, m, "share_of_floor") <= num(&j, m, "share_p90"));
        assert_true(num(&j, m, "acceptance_length") == 1);
    }
    pl_json_close(&j);
    test_run_fails(2, "512 positions", "bench decode --target %s --context 500", target);
}

// Flops of a training step against what they must be about.
static void test_bench_step(void **state) {
    (void)state;
    char         data[512];
    const char  *target = test_data(data, "models/TinyStories-656K");
    pl_json      j;
    const cJSON *m;
    double       drafter[2];
    for (int i = 0; i < 2; i++) {
        test_run_json(&j, "bench step --json --target %s --batch 2 --seq-len 16 --repeats 2 --unroll %d", target,
                      2 + 2 * i);
        const cJSON *steps = array(&j, NULL, "step");
        assert_int_equal(cJSON_GetArraySize(steps), 2);
        cJSON_ArrayForEach(m, steps) {
            assert_true(num(&j, m, "tokens") == 32);
            assert_true(num(&j, m, "tokens_per_second") > 0 && num(&j, m, "share_of_floor") > 0);
            assert_true(num(&j, m, "p10") <= num(&j, m, "seconds") && num(&j, m, "seconds") <= num(&j, m, "p90"));
        }
        m = cJSON_GetArrayItem(steps, 0);
        assert_string_equal(str(&j, m, "name"), "target");
        // Every parameter but the norms multiplies each token once forward and twice backward; attention comes on top.
        double least = 6 * 32 * num(&j, m, "parameters"), flops = num(&j, m, "flops");
        assert_true(flops > 0.99 * least && flops < 1.2 * least);
        m = cJSON_GetArrayItem(steps, 1);
        assert_string_equal(str(&j, m, "name"), "eagle3");
        drafter[i] = num(&j, m, "flops");
        pl_json_close(&j);
    }
    assert_true(drafter[1] > 1.5 * drafter[0] && drafter[1] < 2 * drafter[0]); // fc and the teacher come once
    test_run_fails(2, "512 positions", "bench step --target %s --seq-len 512", target);
    test_run_fails(2, "--target: is missing", "bench step");
}

static void test_eval(void **state) {
    (void)state;
    char        data[512], scratch[64], file[128], recipe[1200];
    const char *target = test_data(data, "models/TinyStories-656K");
    pl_json     j;
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/head", scratch);
    test_random_drafter(file, target, "full", 0);
    snprintf(recipe, sizeof recipe,
             "target: {path: %s}\neval:\n  prompts: %s/p.jsonl\n  max_new_tokens: 24\n  repeats: 2\n  drafters:\n"
             "    - {path: %s/head, tree: 'chain:3'}\n    - {path: %s/head, name: auto}\n",
             target, scratch, scratch, scratch);
    snprintf(file, sizeof file, "%s/e.yaml", scratch);
    write_file(file, recipe);
    snprintf(file, sizeof file, "%s/p.jsonl", scratch);
    write_file(file,
               "{\"prompt\":\"Once upon a time\",\"category\":\"a\"}\n{\"prompt\":\"The dog\",\"category\":\"b\"}\n"
               "{\"prompt\":\"Lily was\",\"category\":\"a\"}\n");
    test_run_json(&j, "eval %s/e.yaml --out %s/run --json --quiet --threads 2 --set eval.ceilings=6", scratch, scratch);
    pl_json_close(&j);
    // One checkpoint under two names: one file, of the first.
    snprintf(file, sizeof file, "%s/run/ceilings/auto.json", scratch);
    assert_false(pl_path_exists(file));
    snprintf(file, sizeof file, "%s/run/ceilings/eagle3-full.json", scratch);
    assert_int_equal(pl_json_open(&j, file, 1 << 20, PL_JSON_UNIQUE, NULL), PL_OK);
    assert_string_equal(str(&j, NULL, "name"), "eagle3-full");
    assert_string_equal(str(&j, NULL, "answers"), "greedy");
    assert_true(num(&j, NULL, "positions") == 6);
    const cJSON *row = array(&j, NULL, "ceilings")->child;
    assert_true(num(&j, row, "depth") == 0 && num(&j, row, "rows") == 6 && num(&j, row, "ceiling") == 1);
    assert_true(num(&j, row, "achieved") > 0 && num(&j, row, "achieved") <= num(&j, row, "ceiling"));
    pl_json_close(&j);
    snprintf(file, sizeof file, "%s/run/report.html", scratch);
    char *html = read_file(file);
    assert_non_null(strstr(html, "<h2>Ceilings of "));
    pl_free(html);
    snprintf(file, sizeof file, "%s/run/results.json", scratch);
    assert_int_equal(pl_json_open(&j, file, 1 << 20, PL_JSON_UNIQUE, NULL), PL_OK);
    const cJSON             *methods = array(&j, NULL, "methods"), *m;
    static const char *const names[] = {"plain", "plain-fp32", "eagle3-full", "auto"};
    int                      i = 0;
    assert_int_equal(cJSON_GetArraySize(methods), 4);
    cJSON_ArrayForEach(m, methods) {
        assert_string_equal(str(&j, m, "name"), names[i++]);
        assert_true(cJSON_IsTrue(cJSON_GetObjectItem(m, "identical_outputs")));
        assert_true(num(&j, m, "prompts") == 3);
        assert_true(num(&j, m, "tokens") > 0);
        assert_true(num(&j, m, "acceptance_length") >= 1);
        assert_true(num(&j, m, "floor_tokens_per_second") > 0);
        assert_int_equal(cJSON_GetArraySize(array(&j, m, "categories")), 2);
    }
    // Plain and the drafters on its weights decoded the same tokens.
    const cJSON *plain = methods->child, *chain = plain->next->next;
    assert_true(num(&j, plain, "tokens") == num(&j, chain, "tokens"));
    assert_string_equal(str(&j, plain, "answers_hash"), str(&j, chain, "answers_hash"));
    assert_true(num(&j, chain, "drafted") > 0);
    pl_json_close(&j);
    snprintf(file, sizeof file, "%s/run/report.html", scratch);
    assert_true(pl_path_exists(file));
    snprintf(file, sizeof file, "%s/run/recipe.yaml", scratch);
    assert_true(pl_path_exists(file));
    test_run_fails(2, "eval.max_new_tokens", "eval %s/e.yaml --out %s/bad --quiet --set eval.max_new_tokens=512",
                   scratch, scratch);
    test_run_fails(2, "no-such", "eval %s/e.yaml --out %s/bad --quiet --set eval.prompts=no-such", scratch, scratch);
    test_run_fails(2, "nowhere", "eval %s/e.yaml --out %s/bad --quiet --set eval.drafters.0.path=nowhere", scratch,
                   scratch);
    snprintf(file, sizeof file, "%s/bad/results.json", scratch);
    assert_false(pl_path_exists(file));
    test_scratch_remove(scratch);
}

// Every way to name a drafter, two temperatures, several seeds: one results.json.
static void test_eval_methods(void **state) {
    (void)state;
    char        data[512], scratch[64], file[128], recipe[1600];
    const char *target = test_data(data, "models/TinyStories-656K");
    pl_json     j;
    test_output o;
    test_scratch(scratch);
    snprintf(file, sizeof file, "%s/head", scratch);
    test_random_drafter(file, target, "lowrank", 8);
    snprintf(recipe, sizeof recipe,
             "target: {path: %s}\neval:\n  prompts: %s/p.jsonl\n  max_new_tokens: 24\n  plain_fp32: false\n"
             "  temperatures: [0, 1]\n  seeds: 3\n  drafters:\n    - {kind: lookup}\n    - {kind: 'lookup:2,4'}\n"
             "    - {kind: recycle, tree: 'chain:3'}\n    - {kind: recycle}\n    - {path: %s/head, verify: match}\n"
             "    - {path: %s/head, tree: 'chain:2'}\n",
             target, scratch, scratch, scratch);
    snprintf(file, sizeof file, "%s/e.yaml", scratch);
    write_file(file, recipe);
    snprintf(file, sizeof file, "%s/p.jsonl", scratch);
    write_file(file, "{\"prompt\":\"Once upon a time\",\"category\":\"a\"}\n"
                     "{\"prompt\":\"The dog\",\"category\":\"b\"}\n");
    test_run(&o, "eval %s/e.yaml --out %s/run --threads 1", scratch, scratch);
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.out, "recycle 4 nodes"));
    assert_non_null(strstr(o.out, "lookup@T=1"));
    const char *table = strstr(o.out, "speed-up (accept)"); // a column for each category, a line for each drafter
    assert_non_null(table);
    assert_non_null(strstr(table, "             a             b\nprompts"));
    assert_non_null(strstr(table, "\nlookup:2,4 "));
    assert_null(strstr(table, "\nplain"));
    test_run_fini(&o);
    snprintf(file, sizeof file, "%s/run/results.json", scratch);
    assert_int_equal(pl_json_open(&j, file, 1 << 20, PL_JSON_UNIQUE, NULL), PL_OK);
    static const char *const names[] = {
        "plain", "lookup", "lookup:2,4", "recycle", "recycle 4 nodes", "eagle3-lowrank", "eagle3-lowrank chain:2"};
    const cJSON *m, *methods = array(&j, NULL, "methods");
    const char  *hash[2] = {NULL, NULL};
    int          i = 0;
    assert_int_equal(cJSON_GetArraySize(methods), 14);
    cJSON_ArrayForEach(m, methods) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", names[i % 7], i < 7 ? "" : "@T=1");
        assert_string_equal(str(&j, m, "name"), name);
        assert_true(num(&j, m, "temperature") == i / 7);
        assert_true(num(&j, m, "seeds") == (i < 7 ? 1 : 3));
        assert_true(cJSON_IsTrue(cJSON_GetObjectItem(m, "identical_outputs")));
        assert_string_equal(str(&j, m, "promise"), "identical");
        if (!hash[i / 7]) hash[i / 7] = str(&j, m, "answers_hash");
        assert_string_equal(str(&j, m, "answers_hash"), hash[i / 7]);
        if (i % 7) {
            double a = num(&j, m, "acceptance_length");
            assert_true(num(&j, m, "acceptance_length_low") <= a && num(&j, m, "acceptance_length_high") >= a);
            assert_string_equal(str(&j, m, "verify"), "match");
        }
        i++;
    }
    assert_string_not_equal(hash[0], hash[1]);
    pl_json_close(&j);
    snprintf(file, sizeof file, "%s/bad", scratch);
    static const char *const bad[][2] = {
        {"eval.drafters=[{kind: lookup, path: x}]", "stands beside"},
        {"eval.drafters=[{kind: nosuch}]", "no drafter without a checkpoint"},
        {"eval.drafters=[{path: lookup}]", "take `kind`, or ./lookup"},
        {"eval.drafters=[{drafter: nosuch}]", "none of the recipe's"},
        {"eval.drafters=[{name: x}]", "path"},
        {"eval.drafters=[{kind: \"lookup:0\"}]", "N in 1..16"},
        {"eval.drafters=[{kind: lookup, verify: nosuch}]", "nosuch"},
        {"eval.drafters=[{kind: lookup, name: plain}]", "two methods"},
        {"eval.temperatures=1,1", "stands twice"},
        {"eval.temperatures=[]", "is empty"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        test_run_fails(2, bad[k][1], "eval %s/e.yaml --out %s --quiet --set '%s'", scratch, file, bad[k][0]);
    test_scratch_remove(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeated_grams),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_promises),
        cmocka_unit_test(test_results_files),
        cmocka_unit_test(test_head_charts),
        cmocka_unit_test(test_many_heads),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_out_of_memory_decoding),
        cmocka_unit_test(test_charts),
        cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_tokenize_bytes),
        cmocka_unit_test(test_inspect),
        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_bench_decode),
        cmocka_unit_test(test_bench_step),
        cmocka_unit_test(test_eval),
        cmocka_unit_test(test_eval_methods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
