// report.html: what it says of an evaluation, of two of them, and of files that are no such thing.
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char scratch[64];

static char *page(const char *args) {
    char        path[160];
    test_output o;
    test_run(&o, "report %s/a --out %s/out %s", scratch, scratch, args);
    if (o.code != 0) fail_msg("%s", o.err);
    test_run_fini(&o);
    snprintf(path, sizeof path, "%s/out/report.html", scratch);
    return test_read_page(path);
}

static void says(const char *html, const char *part) {
    if (!strstr(html, part)) fail_msg("\"%s\" is not in the page", part);
}

#define METHODS(SPEED, HASH)                                                                                           \
    "{\"name\":\"plain\",\"tokens_per_second\":100,\"speedup\":1,\"acceptance_length\":1,\"identical_outputs\":true,"  \
    "\"promise\":\"identical\",\"temperature\":0,\"answers_hash\":\"h\",\"seconds_by_prompt\":[1,2,1,2,3],"            \
    "\"tokens_by_prompt\":[100,200,100,200,300],\"scored\":5,\"correct\":2,\"accuracy\":0.4},"                         \
    "{\"name\":\"head <a>\",\"drafter\":\"d\",\"checkpoint\":\"runs/x/best\",\"tokens_per_second\":" SPEED             \
    ",\"speedup\":1.5,\"speedup_low\":1.4,\"speedup_high\":1.6,\"acceptance_length\":2.5,\"identical_outputs\":true,"  \
    "\"promise\":\"identical\",\"temperature\":0,\"answers_hash\":\"" HASH "\",\"seconds_by_prompt\":[1,1,1,1,1],"     \
    "\"tokens_by_prompt\":[150,150,150,150,150],\"steps_by_prompt\":[60,60,60,60,60],\"tree\":\"chain:3\","            \
    "\"acceptance_lengths\":{\"total\":2.5,"                                                                           \
    "\"mean_of_steps\":2.625},\"ttft_seconds\":{\"p50\":0.004},\"categories\":[{\"name\":\"qa\",\"prompts\":2,"        \
    "\"speedup\":1.25},{\"name\":\"code\",\"prompts\":3,\"speedup\":1.75,\"speedup_low\":1.5,\"speedup_high\":2}]},"   \
    "{\"name\":\"lossy\",\"drafter\":\"d\",\"identical_outputs_reason\":\"\\\"><script>\",\"svg\":\"<script>\","       \
    "\"tokens_per_second\":300,\"speedup\":3,\"promise\":\"none\","                                                    \
    "\"identical_outputs\":null,\"temperature\":0},{\"name\":\"wrong\",\"drafter\":\"d\",\"tokens_per_second\":400,"   \
    "\"speedup\":4,\"promise\":\"identical\",\"identical_outputs\":false,\"temperature\":0}"
#define REST                                                                                                           \
    ",\"batched\":[{\"batch\":8,\"name\":\"plain\",\"temperature\":0,\"tokens_per_second\":800,\"speedup\":1,"         \
    "\"identical_outputs\":true},{\"batch\":8,\"name\":\"lossy\",\"temperature\":0,\"identical_outputs\":null},"       \
    "{\"batch\":8,\"name\":\"wrong\",\"temperature\":0,\"identical_outputs\":false}],"                                 \
    "\"machine\":{\"cpu\":\"some processor\",\"threads\":2},\"commit\":\"abc123\","                                    \
    "\"settings\":{\"target\":\"models/t\",\"target_fingerprint\":\"f00d\",\"prompts\":\"gsm8k\",\"n_prompts\":5}}"

static int setup(void **state) {
    (void)state;
    char path[160];
    test_scratch(scratch);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%c", scratch, 'a' + i);
        assert_int_equal(pl_dir_make(path, NULL), PL_OK);
    }
    test_put(scratch, "a/results.json", "{\"methods\":[" METHODS("150", "h") "]" REST);
    test_put(scratch, "b/results.json", "{\"methods\":[" METHODS("120", "other") "]" REST);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_scratch_remove(scratch);
    return 0;
}

static void one_run(void **state) {
    (void)state;
    char *html = page("");
    // The fastest of those that keep their promise, lossy ones aside.
    says(html, "<p class=\"headline\"><b>1.50×</b>head &lt;a&gt; over plain decoding at temperature 0 (95 %: "
               "1.40–1.60); 2.50 tokens a step; the same output, token for token</p>");
    says(html, "<td>head &lt;a&gt;, code</td><td>3</td><td>–</td><td>1.75 <small>1.50–2.00</small>");
    says(html, "style=\"--v:1.750;--l:1.500; --h:2.000;--m:4.000\"");
    says(html, "<td class=\"no\">no</td>");
    says(html, "<td title=\"&quot;&gt;&lt;script&gt;\">lossy</td>");
    says(html, "<h3>Many prompts at a time</h3>");
    says(html, "<td>plain</td><td>8</td><td>0</td><td>800.0</td><td>1.00</td><td>–</td><td class=\"yes\">yes</td>");
    says(html, "<td>lossy</td><td>8</td><td>0</td><td>–</td><td>–</td><td>–</td><td>lossy</td>");
    says(html, "<td>wrong</td><td>8</td><td>0</td><td>–</td><td>–</td><td>–</td><td class=\"no\">no</td>");
    says(html, "<td>40.00 %</td>");
    says(html, "<td>2.625</td>");
    says(html, "<td>4.00</td>"); // TTFT
    says(html, "f00d");
    says(html, "head &lt;a&gt;: runs/x/best");
    says(html, "abc123");
    says(html, "/a/recipe.yaml --out ");
    says(html, "@media print");
    assert_null(strstr(html, "<script"));
    assert_null(strstr(html, "http://"));
    assert_null(strstr(html, "Against"));
    pl_free(html);
}

static void two_runs(void **state) {
    (void)state;
    char args[100];
    snprintf(args, sizeof args, "--against %s/b", scratch);
    char *html = page(args);
    says(html, "<h3>Against ");
    // plain: 100 and 100, prompt by prompt the same; the head: 150 and 120, though each prompt took as long.
    says(html, "<td>plain</td><td>100.0</td><td>100.0</td><td>1.00</td>");
    says(html, "<td>150.0</td><td>120.0</td><td>1.25</td>");
    says(html, "<td>the same</td>");
    says(html, "<td>others</td>");
    pl_free(html);
    // Acceptance too, where both say how many steps each prompt took.
    test_put(scratch, "b/results.json",
             "{\"methods\":[{\"name\":\"head <a>\",\"acceptance_length\":2,\"steps_by_prompt\":"
             "[75,75,75,75,76],\"tokens_by_prompt\":[150,150,150,150,150]}]" REST);
    html = page(args);
    says(html, "<td>2.50</td><td>2.00</td><td>1.25 <small>1.2");
    pl_free(html);
    // Other prompts, other seconds: an interval where they were the same ones.
    test_put(scratch, "b/results.json",
             "{\"methods\":[{\"name\":\"plain\",\"tokens_per_second\":50,\"seconds_by_prompt\":"
             "[2,4,2,4,7],\"tokens_by_prompt\":[100,200,100,200,300]}]" REST);
    html = page(args);
    says(html, "<td>2.00 <small>2.");
    pl_free(html);
    test_put(scratch, "b/results.json", "{\"methods\":[{\"name\":\"else\"}]" REST);
    html = page(args);
    says(html, "No method of that run has the name of one here.");
    pl_free(html);
    test_put(scratch, "b/results.json", "{\"methods\":[" METHODS("120", "other") "]" REST);
}

static void refused(void **state) {
    (void)state;
    test_run_fails(2, "no such run", "report %s/a --against %s/none --out %s/out", scratch, scratch, scratch);
    test_put(scratch, "b/metrics.jsonl", "{\"stage\":\"eagle3\",\"step\":1,\"loss\":2}\n");
    char path[160];
    snprintf(path, sizeof path, "%s/b/results.json", scratch);
    remove(path);
    test_run_fails(2, "no results.json to compare with", "report %s/a --against %s/b --out %s/out", scratch, scratch,
                   scratch);
}

// Curves of different stages are in different charts.
static void stages(void **state) {
    (void)state;
    char path[160];
    test_put(scratch, "a/metrics.jsonl",
             "{\"stage\":\"target\",\"step\":1,\"loss\":4}\n{\"stage\":\"target\",\"step\":2,\"loss\":3}\n"
             "{\"stage\":\"eagle3\",\"step\":1,\"loss\":2}\n{\"stage\":\"eagle3\",\"step\":2,\"loss\":1}\n");
    char *html = page("");
    says(html, "<figcaption>Training loss, target <small>by step</small></figcaption><svg");
    says(html, "<figcaption>Training loss, eagle3 <small>by step</small></figcaption><svg");
    assert_null(strstr(strstr(html, "<h2>Training</h2>"), "class=\"s1 ")); // a second curve of one chart
    pl_free(html);
    snprintf(path, sizeof path, "%s/a/metrics.jsonl", scratch);
    remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_run),
        cmocka_unit_test(stages),
        cmocka_unit_test(two_runs),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
