// What measurements are written as: figures, results.json, tables, charts and the report.
#include "data/counts/counts.h"
#include "infer/eval/repeated.h"
#include "infer/eval/results.h"
#include "infer/report/report.h"
#include "infer/report/svg.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/probe.h"
#include "kernels/base/strbuf.h"
#include "program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// ---- figures ----

static bool repeated_slowly(const int32_t *t, int64_t n, int64_t p) {
    bool hit = false;
    for (int64_t i = p < 3 ? 0 : p - 3; i <= p && i + 4 <= n; i++)
        for (int64_t k = 0; k < i; k++)
            hit |= memcmp(t + k, t + i, 4 * sizeof *t) == 0;
    return hit;
}

static void test_repeated_grams(void **state) {
    (void)state;
    int32_t t[200];
    bool    again[200];
    for (int n = 0; n < 200; n++)
        for (int kinds = 1; kinds < 6; kinds += 2) {
            uint32_t x = 17u * (uint32_t)n + (uint32_t)kinds;
            for (int i = 0; i < n; i++) {
                x = x * 1664525u + 1013904223u;
                t[i] = (int32_t)(x >> 16) % kinds;
            }
            int64_t all = 0;
            memset(again, 2, sizeof again);
            int64_t told = pl_repeated_tokens(t, n, again);
            for (int64_t p = 0; p < n; p++) {
                bool hit = repeated_slowly(t, n, p);
                assert_int_equal(again[p], hit);
                all += hit;
            }
            assert_int_equal(told, all);
            assert_int_equal(pl_repeated_tokens(t, n, NULL), all);
        }
}

// Two methods over four prompts with known seconds: every figure can be done by hand.
static pl_results *made_results(void) {
    pl_results *r = pl_calloc(1, sizeof *r);
    r->method = pl_calloc(2, sizeof *r->method);
    r->n_methods = 2;
    r->n_prompts = 4;
    r->picked = pl_calloc(4, sizeof *r->picked);
    r->record = pl_calloc(4, sizeof *r->record);
    r->repeats = 1;
    r->seed = 1;
    r->category = pl_calloc(4, sizeof *r->category);
    r->target = pl_strdup("t<&>\"");
    r->prompts = pl_strdup("p");
    r->form = pl_strdup("plain");
    for (int i = 0; i < 4; i++)
        r->category[i] = pl_strdup(i < 2 ? "math" : i == 2 ? "prose" : ""), r->record[i] = i;
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

// The table ends with why the fastest method is.
static void test_why(void **state) {
    (void)state;
    pl_results *r = made_results();
    for (int slow = 0; slow < 2; slow++) {
        char  table[8192] = "";
        FILE *f = tmpfile();
        assert_non_null(f);
        r->method[1].stats.parts.target = 6;
        r->method[1].stats.parts.draft.head = 3;
        for (int i = 0; slow && i < 4; i++)
            r->method[1].answer[i].seconds *= 3;
        pl_results_table(f, r);
        rewind(f);
        assert_true(fread(table, 1, sizeof table - 1, f) > 0);
        fclose(f);
        // A plain step takes 24 s / 120, a cycle 10 s / 60.
        const char *want =
            slow ? "temperature 0: no drafter pays; of them head & <co> is fastest: 2.00 tokens a cycle"
                 : "temperature 0: head & <co> is fastest: 2.00 tokens a cycle that takes 0.83 plain steps "
                   "(target 0.50, drafting 0.25, rest 0.08)\n";
        if (!strstr(table, want)) fail_msg("%s", table);
    }
    pl_results_destroy(r);
}

// Answers without a token: most of them, a category's, all. No figure is NaN in what is written.
static void test_empty_answers(void **state) {
    (void)state;
    for (int empty = 1; empty <= 4; empty++) {
        pl_results *r = made_results();
        char        table[8192] = "";
        pl_share    share;
        FILE       *f = tmpfile();
        assert_non_null(f);
        for (int m = 0; m < 2; m++) {
            pl_method *a = &r->method[m];
            a->stats.emitted = a->stats.steps = 0;
            a->stats.seconds = 0;
            for (int i = 0; i < 4; i++) {
                if (i < empty) a->answer[i] = (pl_answer){.identical = true};
                a->stats.emitted += a->answer[i].emitted;
                a->stats.steps += a->answer[i].steps;
                a->stats.seconds += a->answer[i].seconds;
            }
        }
        pl_results_share(r, 1, NULL, &share);
        assert_true(share.speedup_95.left_out > (empty > 2 ? 100 : 0) || empty == 1);
        assert_true(empty == 4 ? isnan(share.speedup_95.low)
                               : share.speedup_95.low <= share.speedup && share.speedup <= share.speedup_95.high);
        pl_results_table(f, r);
        rewind(f);
        assert_true(fread(table, 1, sizeof table - 1, f) > 0);
        fclose(f);
        if (strstr(table, "nan") || strstr(table, "inf")) fail_msg("%d empty:\n%s", empty, table);
        assert_int_equal(strstr(table, "is fastest") != NULL, empty < 4);
        pl_results_destroy(r);
    }
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

// A second drafter that takes four fifths of the first one's steps and twice its time, whatever the prompt: each one's
// own intervals are wide, the pairs' are not.
static void test_pairs(void **state) {
    (void)state;
    pl_results *r = made_results();
    pl_share    own;
    pl_pair     p;
    r->method = pl_realloc(r->method, 3 * sizeof *r->method);
    pl_method *first = &r->method[1], *second = &r->method[2];
    *second = (pl_method){.name = "second", .weights = "bf16", .verify = "match", .seeds = 1};
    second->drafter = pl_strdup("other");
    second->answer = pl_calloc(4, sizeof *second->answer);
    for (int i = 0; i < 4; i++) {
        first->answer[i].steps = 5 * (i + 2);
        second->answer[i] = first->answer[i];
        second->answer[i].steps = 4 * (i + 2);
        second->answer[i].seconds *= 2;
    }
    r->n_methods = 3;
    assert_false(pl_results_pair(r, 0, &p));
    assert_false(pl_results_pair(r, 1, &p));
    assert_true(pl_results_pair(r, 2, &p) && p.first == 1);
    assert_true(fabs(p.acceptance - 1.25) < 1e-12 && fabs(p.speed - 0.5) < 1e-12);
    assert_true(fabs(p.acceptance_95.low - 1.25) < 1e-12 && fabs(p.acceptance_95.high - 1.25) < 1e-12);
    assert_true(fabs(p.speed_95.low - 0.5) < 1e-12 && fabs(p.speed_95.high - 0.5) < 1e-12);
    pl_results_share(r, 2, NULL, &own);
    assert_true(own.acceptance_95.high > 1.2 * own.acceptance_95.low);

    char    scratch[64], path[128], table[8192] = "";
    pl_json j;
    pl_err  err;
    test_scratch(scratch);
    snprintf(path, sizeof path, "%s/results.json", scratch);
    if (save(r, scratch, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_json_open(&j, path, 1 << 20, PL_JSON_UNIQUE, &err), PL_OK);
    const cJSON *m = test_array(&j, NULL, "methods")->child->next;
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(m, "over_first")));
    m = m->next;
    assert_string_equal(test_str(&j, cJSON_GetObjectItem(m, "over_first"), "first"), "head & <co>");
    assert_true(fabs(test_num(&j, m, "over_first.acceptance") - 1.25) < 1e-9);
    assert_true(test_array(&j, m, "steps_by_prompt")->child->next->valuedouble == 12);
    pl_json_close(&j);
    snprintf(path, sizeof path, "%s/report.html", scratch);
    char *html = test_read_page(path);
    assert_non_null(strstr(html, "<td>second</td><td class=\"text\">head &amp; &lt;co&gt;</td><td>1.25"));
    pl_free(html);
    FILE *f = tmpfile();
    assert_non_null(f);
    pl_results_table(f, r);
    rewind(f);
    assert_true(fread(table, 1, sizeof table - 1, f) > 0);
    fclose(f);
    if (!strstr(table, "\nover head & <co>") ||
        !strstr(table, "\nsecond                       1.25  1.25..1.25     0.50  0.50..0.50\n"))
        fail_msg("%s", table);
    pl_results_destroy(r);
    test_scratch_remove(scratch);
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
        const cJSON *m = test_array(&j, NULL, "methods")->child->next;
        assert_true(cJSON_IsNull(cJSON_GetObjectItem(m, "identical_outputs")));
        assert_string_equal(test_str(&j, m, "promise"), k ? "none" : "distribution");
        assert_non_null(strstr(test_str(&j, m, "identical_outputs_reason"), k ? "lossy" : "distribution"));
        pl_json_close(&j);
        snprintf(path, sizeof path, "%s/report.html", scratch);
        char *html = test_read_page(path);
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
    test_write(metrics,
               "{\"stage\":\"eagle3\",\"step\":1,\"loss\":5.5}\n"
               "{\"stage\":\"eagle3\",\"step\":2,\"loss\":4.5,\"eval_acceptance_length\":1.5}\n{\"stage\":\"eag");
    if (save(r, scratch, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_json_open(&j, path, 1 << 20, PL_JSON_UNIQUE, &err), PL_OK);
    const cJSON *methods = test_array(&j, NULL, "methods"), *m = methods->child->next;
    assert_int_equal(cJSON_GetArraySize(methods), 2);
    assert_string_equal(test_str(&j, methods->child, "name"), "plain");
    assert_string_equal(test_str(&j, m, "name"), "head & <co>");
    assert_true(test_num(&j, m, "acceptance_length") == 2);
    assert_true(test_num(&j, m, "accepted_over_drafted") == 0.5);
    assert_true(test_num(&j, m, "prompts") == 4);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(m, "identical_outputs")));
    const cJSON *rates = test_array(&j, m, "acceptance_by_position");
    const cJSON *took = test_array(&j, m, "seconds_by_prompt");
    double       all = 0;
    assert_int_equal(cJSON_GetArraySize(took), 4);
    for (const cJSON *x = took->child; x; x = x->next)
        all += x->valuedouble;
    assert_true(fabs(all - test_num(&j, m, "seconds")) < 1e-9);
    assert_int_equal(cJSON_GetArraySize(rates), 2);
    assert_true(rates->child->valuedouble == 0.75 && rates->child->next->valuedouble == 0.25);
    const cJSON *categories = test_array(&j, m, "categories");
    assert_int_equal(cJSON_GetArraySize(categories), 2);
    assert_true(test_num(&j, categories->child, "tokens_per_second") == 20); // 60 tokens in 1 + 2 s
    assert_non_null(pl_json_find(&j, NULL, "machine"));
    assert_non_null(pl_json_find(&j, NULL, "commit"));
    pl_json_close(&j);

    char *html = test_read_page(page);
    assert_non_null(strstr(html, "head &amp; &lt;co&gt;"));
    assert_null(strstr(html, "<co>"));
    assert_non_null(strstr(html, "prefers-color-scheme:dark"));
    assert_non_null(strstr(html, "Training loss"));
    assert_non_null(strstr(html, "<th>held-out acceptance length, greedy</th>"));
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
    assert_string_equal(test_str(&j, NULL, "kind"), "run");
    assert_int_equal(cJSON_GetArraySize(test_array(&j, NULL, "methods")), 2);
    pl_json_close(&j);
    test_write(path, "{\"methods\":[{\"name\":3}]}");
    test_run_fails(2, "name", "report %s", scratch);
    test_write(path, "{\"methods\":");
    test_run_fails(2, "results.json", "report %s", scratch);
    test_write(metrics, "{\"stage\":\"a\",\"step\":\n");
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
    test_write(path, head_results);
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
    test_write(path, "{\"temperature\":1,\"ceilings\":[{\"depth\":0,\"rows\":3,\"achieved\":0.5,\"ceiling\":0.75,"
                     "\"oracle\":0.875,\"recall_target_best\":1,\"retained\":0.25},{\"depth\":1,\"rows\":1,"
                     "\"achieved\":0.3,\"ceiling\":0.35,"
                     "\"oracle\":0.475,\"recall_target_best\":0.5,\"retained\":0.65},7],\"greedy\":{\"temperature\":0,"
                     "\"ceilings\":[{\"depth\":0,\"rows\":4,"
                     "\"achieved\":0.25,\"ceiling\":0.625,\"oracle\":1}]}}");
    if (pl_report_write(page, &run, 1, &err) != PL_OK) fail_msg("%s", err.msg);
    char *html = test_read_page(page);
    // kappa = 0.4 / (2 - 0.4); the head with another tree is not in the plane, which has two points.
    assert_non_null(strstr(html, "tree chain:4: kappa = 0.25"));
    assert_int_equal(count_of(html, "r=\"5\""), 2);
    // lambda = 0.1 / 0.4, rho = 3.8 / 4; the speed-up for the measured kappa and for 0.25, which it is.
    assert_non_null(strstr(html, "<td>&lt;slim&gt;</td><td>0.250</td><td>0.950</td><td>1.118</td><td>1.118</td>"));
    assert_non_null(strstr(html, "&lt;slim&gt;"));
    assert_null(strstr(html, "<slim>"));
    // 2 s for 400 tokens, of them 1 for the target's forward.
    assert_non_null(strstr(html, "<td>all</td><td>5000</td><td>2500</td>"));
    assert_non_null(strstr(html, "Tokens of books that a list covers"));
    assert_non_null(strstr(html, "books (counted here)</li>"));
    assert_non_null(strstr(html, "<td>slim, temperature 1</td><td>1</td><td>30.0 %</td><td>35.0 %</td>"));
    // Means over the 3 and 1 rows: achieved, ceiling, oracle, what lies between them, and what is not known.
    assert_non_null(strstr(html,
                           "<td>45.0 %</td><td>65.0 %</td><td>77.5 %</td><td>20.0 %</td><td>12.5 %</td><td>87.5 %</td>"
                           "<td>–</td><td>–</td><td>35.0 %</td><td>25.0 %</td><td>62.5 %</td></tr>"));
    assert_non_null(strstr(html, "<td>slim, greedy</td><td>0</td><td>25.0 %</td>"));
    static const char *const outside[] = {"http:", "https:", "<script", "url(", "src=", "nan", "inf"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (strstr(html, outside[i])) fail_msg("report.html holds \"%s\"", outside[i]);
    pl_free(html);
    test_write(path, "{\"ceilings\":[{\"depth\":0,\"rows\":3,\"achieved\":0.5,\"ceiling\":0.4,\"oracle\":0.875}]}");
    assert_int_equal(pl_report_write(page, &run, 1, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "slim.json"));
    assert_non_null(strstr(err.msg, "achieved 0.5, ceiling 0.4"));
    test_write(path, "{\"ceilings\":7}");
    assert_int_equal(pl_report_write(page, &run, 1, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "slim.json: ceilings: expected an array"));
    assert_int_equal(pl_tree_remove(path, NULL), PL_OK);
    snprintf(path, sizeof path, "%s/vocab/books.json", scratch);
    test_write(path, "{}");
    assert_int_equal(pl_report_write(page, &run, 1, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "books.json"));
    test_scratch_remove(scratch);
}

// Thirty heads, most of them at nearly the same place.
static void test_many_heads(void **state) {
    (void)state;
    enum { HEADS = 30 };
    char        scratch[64], path[160], page[128], text[16384] = "{\"methods\":[";
    const char *run = test_scratch(scratch);
    pl_err      err;
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
    test_write(path, text);
    if (pl_report_write(page, &run, 1, &err) != PL_OK) fail_msg("%s", err.msg);
    char *html = test_read_page(page);
    assert_int_equal(count_of(html, "r=\"5\""), HEADS);
    assert_non_null(strstr(html, "Share of drafts accepted up to a position</h3>"));
    assert_non_null(strstr(html, "75.0 % 50.0 % </td></tr>"));
    // What all share is told once.
    assert_non_null(strstr(html, "All drafters: weights bf16. Tree chain:3. Verifier match."));
    assert_int_equal(count_of(html, "bf16"), 1);
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
    test_write(path, "{\"stage\":\"a\",\"step\":1,\"loss\":1}\n{\"stage\":\"a\",\"step\":2,\"loss\":0.5}\n");
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
    pl_svg_lines(&b, line, 2, false);
    size_t before = b.n;
    pl_svg_lines(&b, line, 0, false); // nothing to draw
    assert_int_equal(b.n, before);
    char *svg = pl_strbuf_take(&b);
    assert_non_null(svg);
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    assert_true(strlen(svg) < 40000); // long curves are thinned out
    pl_free(svg);
}

static void test_probe(void **state) {
    (void)state;
    double rate = pl_probe_bandwidth(NULL, 1 << 20), flops = pl_backend_peak(pl_backend_cpu(), PL_F32, NULL);
    assert_true(rate > 1e8 && rate < 1e13);
    assert_true(flops > 1e8 && flops < 1e13);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeated_grams),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_why),
        cmocka_unit_test(test_empty_answers),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_promises),
        cmocka_unit_test(test_results_files),
        cmocka_unit_test(test_head_charts),
        cmocka_unit_test(test_many_heads),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_out_of_memory_decoding),
        cmocka_unit_test(test_charts),
        cmocka_unit_test(test_probe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
