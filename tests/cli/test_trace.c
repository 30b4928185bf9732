// trace.jsonl: every cycle's draft and what became of it agrees with the answer's tokens and with results.json.
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "program.h"
#include "random_drafter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TWO "{\"prompt\":\"Once upon a time\",\"category\":\"old\"}\n{\"prompt\":\"The dog was sad because\"}\n"
#define TARGET PACELINE_SOURCE_DIR "/checkpoints/tiny"
#define NEW 24
#define MOST 256

static char scratch[64];

static const char *at(char buf[160], const char *name) {
    snprintf(buf, 160, "%s/%s", scratch, name);
    return buf;
}

// A target, a random head for it, two prompts.
static void make(void) {
    char path[160], recipe[1600];
    test_scratch(scratch);
    test_random_drafter(at(path, "head"), TARGET, "lowrank", 8);
    snprintf(recipe, sizeof recipe,
             "target: {path: " TARGET "}\neval:\n  prompts: %s/two.jsonl\n  max_new_tokens: %d\n  seeds: 2\n"
             "  repeats: 2\n  temperatures: [0, 1]\n  plain_fp32: false\n"
             "  drafters: [{name: head, path: %s, tree: 'chain:3'}, {name: tree, kind: 'recycle:8'}]\n",
             scratch, NEW, path);
    test_write(at(path, "e.yaml"), recipe);
    test_write(at(path, "two.jsonl"), TWO);
}

// ---- reading ----

typedef struct ids {
    int32_t id[MOST];
    int     n;
} ids;

static ids ids_of(const cJSON *of, const char *key) {
    ids    r = {.n = 0};
    cJSON *e;
    cJSON_ArrayForEach(e, cJSON_GetObjectItemCaseSensitive(of, key)) {
        assert_true(cJSON_IsNumber(e) && r.n < MOST);
        r.id[r.n++] = (int32_t)e->valuedouble;
    }
    return r;
}

static double num(const cJSON *of, const char *key) {
    const cJSON *e = cJSON_GetObjectItemCaseSensitive(of, key);
    if (!cJSON_IsNumber(e)) fail_msg("%s: no number", key);
    return e->valuedouble;
}

#define PROMPTS 2
#define SEEDS 2
#define REPEATS 2
#define DEPTH 16

// Sums over the cycles of the answers of one method. What harnesses make of them, each as it says itself.
typedef struct sums {
    char    method[64];
    int     answers;
    int64_t steps, emitted, drafted, accepted;
    double  seconds, prefill;
    double  k, drafting, prompt_k[PROMPTS], prompt_steps[PROMPTS], turn[PROMPTS][SEEDS][2]; // of a turn: emitted, steps
    double  first[PROMPTS][SEEDS], later[PROMPTS][SEEDS];                                   // seconds, over repeats
    double  reached[DEPTH], passed[DEPTH]; // steps that got as far as depth i + 1, that passed it
} sums;

// One cycle beside the answer: the accepted path is what the answer says, and what it stops at is no child.
static void check_cycle(const cJSON *c, const ids *text, sums *s) {
    ids draft = ids_of(c, "draft"), parents = ids_of(c, "parents");
    int first = (int)num(c, "at"), accepted = (int)num(c, "accepted"), emitted = (int)num(c, "emitted");
    assert_true(first + emitted <= text->n && emitted >= 1 && emitted <= accepted + 1);
    if (parents.n) assert_int_equal(parents.n, draft.n);
    int node = 0, found = 0;
    for (int i = 0; i < emitted; i++) {
        int child = 0;
        for (int k = 0; k < draft.n && !child; k++) {
            int parent = parents.n ? parents.id[k] : k;
            assert_true(parent >= 0 && parent <= k);
            if (parent == node && draft.id[k] == text->id[first + i]) child = k + 1;
        }
        if (!child) break;
        node = child;
        found++;
    }
    // A stop token or the limit may have cut what was accepted.
    assert_int_equal(found, accepted < emitted ? accepted : emitted);
    int depth[MOST] = {0}, deepest = 0;
    for (int k = 0; k < draft.n; k++) {
        depth[k + 1] = depth[parents.n ? parents.id[k] : k] + 1;
        if (depth[k + 1] > deepest) deepest = depth[k + 1];
    }
    assert_true(deepest <= DEPTH && accepted <= deepest);
    for (int i = 0; i < deepest && i <= accepted; i++) {
        s->reached[i]++;
        s->passed[i] += i < accepted;
    }
    s->k += accepted;
    s->drafting += draft.n > 0;
    s->steps++;
    s->emitted += emitted;
    s->drafted += draft.n;
    s->accepted += found;
    s->seconds += num(c, "seconds");
}

static void check_answer(const cJSON *answer, const ids *prompt, sums *s) {
    ids    text = *prompt, said = ids_of(answer, "ids");
    double seconds = s->seconds;
    sums   before = *s;
    int    now = prompt->n + 1; // prefill gave the first token
    memcpy(text.id + text.n, said.id, (size_t)said.n * sizeof *said.id);
    text.n += said.n;
    const cJSON *c;
    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(answer, "cycles")) {
        assert_int_equal((int)num(c, "at"), now);
        check_cycle(c, &text, s);
        now += (int)num(c, "emitted");
    }
    assert_int_equal(now, text.n);
    const char *finish = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "finish"));
    assert_non_null(finish);
    if (strcmp(finish, "length") == 0)
        assert_int_equal(said.n, NEW);
    else
        assert_string_equal(finish, "stop");
    int p = (int)num(answer, "prompt"), seed = (int)num(answer, "seed");
    assert_true(seed >= 0 && seed < SEEDS);
    s->prompt_k[p] += s->k - before.k;
    s->prompt_steps[p] += (double)(s->steps - before.steps);
    s->turn[p][seed][0] += (double)(s->emitted - before.emitted);
    s->turn[p][seed][1] += (double)(s->steps - before.steps);
    s->first[p][seed] += num(answer, "prefill_seconds");
    s->later[p][seed] += num(answer, "seconds");
    s->answers++;
    s->prefill += num(answer, "prefill_seconds");
    assert_true(s->seconds - seconds >= 0 && num(answer, "seconds") - (s->seconds - seconds) < 1e-9);
}

static int read_trace(const char *path, sums *all, int most) {
    ids   prompt[PROMPTS];
    int   n = 0, prompts = 0;
    char *text = test_read(path);
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        cJSON *j = cJSON_ParseWithLength(line, (size_t)(end - line));
        assert_non_null(j);
        const char *method = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, "method"));
        int         i = (int)num(j, "prompt"), k = 0;
        assert_true(i >= 0 && i < 2);
        if (!method) {
            assert_int_equal(i, prompts++);
            prompt[i] = ids_of(j, "ids");
            const cJSON *category = cJSON_GetObjectItemCaseSensitive(j, "category");
            assert_true(cJSON_IsNull(category) || strcmp(cJSON_GetStringValue(category), "old") == 0);
        } else {
            assert_true(i < prompts);
            while (k < n && strcmp(all[k].method, method) != 0)
                k++;
            if (k == n) {
                assert_true(n < most);
                all[n] = (sums){0};
                snprintf(all[n++].method, sizeof all->method, "%s", method);
            }
            check_answer(j, &prompt[i], &all[k]);
        }
        cJSON_Delete(j);
    }
    pl_free(text);
    return n;
}

// ---- formulas ----

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check_latency(const cJSON *m, const char *key, double *x, int n) {
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(m, key);
    double       sum = 0;
    qsort(x, (size_t)n, sizeof *x, by_value);
    for (int i = 0; i < n; i++)
        sum += x[i];
    assert_float_equal(num(of, "mean"), sum / n, 1e-9);
    assert_float_equal(num(of, "p50"), x[(n - 1) / 2], 1e-9);
    assert_float_equal(num(of, "p90"), x[(n - 1) * 9 / 10], 1e-9);
    assert_float_equal(num(of, "p99"), x[(n - 1) * 99 / 100], 1e-9);
}

// Every harness's figure of a method, from the trace alone, beside results.json.
static void check_formulas(const pl_json *j, const cJSON *m, const sums *s) {
    const cJSON *l = cJSON_GetObjectItemCaseSensitive(m, "acceptance_lengths");
    double       steps = (double)s->steps, turns = 0, n_turns = 0, prompts = 0, x[2][PROMPTS * SEEDS];
    int          n = 0, seeds = (int)test_num(j, m, "seeds");
    assert_float_equal(num(l, "total"), (double)s->emitted / steps, 1e-9);
    assert_float_equal(num(l, "with_first"), (double)(s->emitted + s->answers) / steps, 1e-9);
    assert_float_equal(num(l, "mean_of_steps"), s->k / steps + 1, 1e-9);
    assert_float_equal(num(l, "accepted_only"), s->k / steps, 1e-9);
    if (s->drafting > 0)
        assert_float_equal(num(l, "drafting"), 1 + s->k / s->drafting, 1e-9);
    else
        assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(l, "drafting")));
    for (int p = 0; p < PROMPTS; p++) {
        prompts += s->prompt_k[p] / s->prompt_steps[p] + 1;
        for (int seed = 0; seed < seeds; seed++, n_turns++, n++) {
            turns += s->turn[p][seed][0] / s->turn[p][seed][1];
            x[0][n] = s->first[p][seed] / REPEATS;
            x[1][n] = s->later[p][seed] / s->turn[p][seed][0];
        }
    }
    assert_float_equal(num(l, "mean_of_prompts"), prompts / PROMPTS, 1e-9);
    assert_float_equal(num(l, "mean_of_turns"), turns / n_turns, 1e-9);
    check_latency(m, "ttft_seconds", x[0], n);
    check_latency(m, "tpot_seconds", x[1], n);
    double rate = (double)(s->emitted + s->answers) / (s->seconds + s->prefill);
    assert_float_equal(test_num(j, m, "tokens_per_second_with_prefill"), rate, 1e-6 * rate);
    const cJSON *e;
    int          i = 0;
    cJSON_ArrayForEach(e, test_array(j, m, "acceptance_by_position_conditional")) {
        assert_true(i < DEPTH);
        if (s->reached[i] > 0)
            assert_float_equal(e->valuedouble, s->passed[i] / s->reached[i], 1e-9);
        else
            assert_true(cJSON_IsNull(e));
        i++;
    }
    assert_true(i == DEPTH || s->reached[i] == 0);
}

// ---- tests ----

static void of_an_evaluation(void **state) {
    (void)state;
    char    path[160];
    pl_json j;
    sums    all[8];
    double  plain = 0;
    make();
    test_run_json(&j, "eval %s/e.yaml --out %s/run --json --quiet", scratch, scratch);
    int          n = read_trace(at(path, "run/trace.jsonl"), all, 8), seen = 0;
    const cJSON *m;
    cJSON_ArrayForEach(m, test_array(&j, NULL, "methods")) {
        int k = 0;
        while (k < n && strcmp(all[k].method, test_str(&j, m, "name")) != 0)
            k++;
        assert_true(k < n);
        seen++;
        assert_int_equal(all[k].answers, 2 * 2 * (int)test_num(&j, m, "seeds")); // prompts, repeats
        assert_int_equal(all[k].steps, (int64_t)test_num(&j, m, "steps"));
        assert_int_equal(all[k].emitted, (int64_t)test_num(&j, m, "tokens"));
        assert_int_equal(all[k].drafted, (int64_t)test_num(&j, m, "drafted"));
        assert_int_equal(all[k].accepted, (int64_t)test_num(&j, m, "accepted"));
        if (strcmp(all[k].method, "tree") == 0) assert_true(all[k].accepted > 0);
        assert_float_equal((double)all[k].emitted / (double)all[k].steps, test_num(&j, m, "acceptance_length"), 1e-9);
        assert_float_equal(all[k].seconds, test_num(&j, m, "seconds"), 1e-9);
        assert_float_equal(all[k].prefill, test_num(&j, m, "prefill_seconds"), 1e-9);
        check_formulas(&j, m, &all[k]);
        // The bytes of a plain step over those of a cycle, at the same temperature (plain comes first).
        if (strncmp(test_str(&j, m, "name"), "plain", 5) == 0) plain = test_num(&j, m, "cycle_bytes");
        assert_float_equal(test_num(&j, m, "memory_bound_speedup"),
                           test_num(&j, m, "acceptance_length") * plain / test_num(&j, m, "cycle_bytes"), 1e-9);
    }
    assert_int_equal(seen, 6);
    assert_int_equal(n, 6);
    pl_json_close(&j);
    // One that is not asked for is not there, neither is the earlier one.
    test_run_json(&j, "eval %s/e.yaml --out %s/run --json --quiet --set eval.trace=false", scratch, scratch);
    pl_json_close(&j);
    assert_false(pl_path_exists(at(path, "run/trace.jsonl")));
    test_scratch_remove(scratch);
}

static void of_one_answer(void **state) {
    (void)state;
    char    path[160];
    pl_json j;
    sums    one;
    make();
    test_run_json(&j,
                  "decode --target " TARGET " --drafter recycle:8 -n %d --trace %s --json --quiet "
                  "--prompt 'One day, Lily and Tom went to play. One day, Lily and Tom went to'",
                  NEW, at(path, "t.jsonl"));
    assert_int_equal(read_trace(path, &one, 1), 1);
    assert_string_equal(one.method, "recycle");
    assert_int_equal(one.steps, (int64_t)test_num(&j, NULL, "stats.steps"));
    assert_int_equal(one.accepted, (int64_t)test_num(&j, NULL, "stats.accepted"));
    assert_true(one.accepted > 0 && one.drafted > one.steps); // trees, and some of them right
    pl_json_close(&j);
    test_run_fails(2, "nowhere", "decode --target " TARGET " --prompt x --trace %s/nowhere/t.jsonl", scratch);
    test_scratch_remove(scratch);
}

// ---- conversations ----

// Ids of question i, as the trace has them last.
static ids asked(const char *path, int i) {
    ids   found = {.n = 0};
    char *text = test_read(path);
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        cJSON *j = cJSON_ParseWithLength(line, (size_t)(end - line));
        if (!cJSON_GetObjectItemCaseSensitive(j, "method") && (int)num(j, "prompt") == i) found = ids_of(j, "ids");
        cJSON_Delete(j);
    }
    pl_free(text);
    return found;
}

static int evaluate_chat(const char *file, const char *history, ids question[2]) {
    char    path[160];
    pl_json j;
    test_run_json(&j,
                  "eval %s/chat.yaml --out %s/%s --json --quiet --set eval.prompts=%s/%s.jsonl --set "
                  "eval.chat.history=%s",
                  scratch, scratch, file, scratch, file, history);
    int n = (int)test_num(&j, NULL, "settings.n_prompts");
    pl_json_close(&j);
    snprintf(path, sizeof path, "%s/%s/trace.jsonl", scratch, file);
    for (int i = 0; i < 2; i++)
        question[i] = asked(path, i);
    return n;
}

// A second turn stands behind what the target has said itself: as if the record had held just that.
static void of_a_conversation(void **state) {
    (void)state;
    char    path[160], list[4096] = "", record[4096];
    ids     own[2], given[2];
    pl_json j;
    make();
    test_write(at(path, "t.jinja"), "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:");
    snprintf(record, sizeof record,
             "target: {path: " TARGET "}\ndata: {form: chat, chat: {template: %s}}\n"
             "eval: {max_new_tokens: %d, plain_fp32: false, drafters: [{kind: recycle}]}\n",
             path, NEW);
    test_write(at(path, "chat.yaml"), record);
    test_write(at(path, "own.jsonl"), "{\"turns\": [\"Who was sad?\", \"And the dog?\"]}\n");
    assert_int_equal(evaluate_chat("own", "own", own), 2);
    for (int i = 0; i < own[0].n; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", i ? "," : "", own[0].id[i]);
    test_run_json(&j, "decode --target " TARGET " --dtype bf16 -n %d --prompt-ids %s --json --quiet", NEW, list);
    char *said = cJSON_PrintUnformatted(pl_json_find(&j, NULL, "text"));
    snprintf(record, sizeof record,
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Who was sad?\"}, {\"role\": \"assistant\", "
             "\"content\": %s}, {\"role\": \"user\", \"content\": \"And the dog?\"}]}\n",
             said);
    test_write(at(path, "given.jsonl"), record);
    pl_json_close(&j);
    cJSON_free(said);
    assert_int_equal(evaluate_chat("given", "given", given), 2);
    assert_true(own[1].n > own[0].n + NEW / 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(own[i].n, given[i].n);
        assert_memory_equal(own[i].id, given[i].id, (size_t)own[i].n * sizeof *own[i].id);
    }
    test_scratch_remove(scratch);
}

// A tokenizer with a word for every token of the target's but for those of single characters, of which it spells every
// text.
static void write_speller(const char *path) {
    FILE *f = fopen(path, "w");
    int   id = 0;
    assert_non_null(f);
    fprintf(f, "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,"
               "\"post_processor\":null,\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\","
               "\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
               "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{");
    for (char c = 'a'; c <= 'z'; c++)
        fprintf(f, "\"%c\":%d,", c, id++);
    for (char c = '0'; c <= '9'; c++)
        fprintf(f, "\"%c\":%d,", c, id++);
    for (; id < 16383; id++)
        fprintf(f, "\"w%05d\":%d,", id, id);
    fprintf(f, "\" \":%d},\"merges\":[]}}\n", id);
    assert_int_equal(fclose(f), 0);
}

// Answers that need six tokens where one was said come to stand before a second turn: it loses its beginning, and
// nothing else is lost.
static void of_answers_read_longer(void **state) {
    (void)state;
    char    path[160], tokenizer[160], recipe[1024];
    pl_json j;
    make();
    write_speller(at(tokenizer, "tokenizer.json"));
    test_write(at(path, "t.jinja"), "{% for m in messages %}{{ m.content }} {% endfor %}");
    snprintf(recipe, sizeof recipe,
             "target: {path: " TARGET ", tokenizer: %s}\ndata: {form: chat, chat: {template: %s}}\n"
             "eval: {max_new_tokens: %d, plain_fp32: false, prompts: %s/l.jsonl, drafters: [{kind: recycle}]}\n",
             tokenizer, path, NEW, scratch);
    test_write(at(path, "l.yaml"), recipe);
    test_write(at(path, "l.jsonl"), "{\"turns\": [\"who was sad\", \"and the dog\"]}\n");
    test_run_json(&j, "eval %s/l.yaml --out %s/l --json --quiet", scratch, scratch);
    assert_int_equal((int)test_num(&j, NULL, "settings.n_prompts"), 2);
    assert_int_equal((int)test_num(&j, NULL, "settings.truncated_prompts"), 1);
    const cJSON *m;
    cJSON_ArrayForEach(m, test_array(&j, NULL, "methods"))
        assert_true(cJSON_IsTrue(cJSON_GetObjectItem(m, "identical_outputs")));
    pl_json_close(&j);
    // Both turns, and an answer as long as it may be with WORSE tokens besides (infer/eval/eval.c).
    ids cut = asked(at(path, "l/trace.jsonl"), 1);
    assert_true(cut.n > NEW && cut.n < 6 * NEW);
    assert_int_equal(cut.id[cut.n - 2], 'g' - 'a');
    test_scratch_remove(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_an_evaluation), cmocka_unit_test(of_one_answer),
                                       cmocka_unit_test(of_a_conversation), cmocka_unit_test(of_answers_read_longer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
