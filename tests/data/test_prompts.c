#include "data/text/prompts.h"
#include "tests/checkpoints/scratch.h"

static pl_prompts *read_ok(const char *path) {
    pl_err      err;
    pl_prompts *p;
    assert_ok(pl_prompts_read(&p, path, &err));
    return p;
}

static void check(const pl_prompts *p, int64_t i, const char *text, const char *category, int64_t id, int64_t line) {
    assert_true(i < p->n);
    assert_string_equal(p->p[i].text, text);
    assert_string_equal(p->p[i].category, category);
    assert_int_equal(p->p[i].id, id);
    assert_int_equal(p->p[i].line, line);
}

static const char jsonl[] =
    "{\"prompt\":\"one\"}\n"
    "\n"
    "{\"text\":\"two\\nlines\",\"category\":\"c\",\"id\":7}\r\n"
    "{\"question_id\":81,\"category\":\"writing\",\"turns\":[\"first\",\"second\"],\"id\":3}\n"
    "{\"question\":\"How many?\",\"answer\":\"4\"}\n"
    "{\"instruction\":\"Do it.\",\"input\":\"with this\",\"output\":\"x\"}\n"
    "{\"instruction\":\"Do that.\",\"input\":\"\"}\n"
    "{\"task_id\":\"HumanEval/12\",\"prompt\":\"def f():\\n\"}\n"
    "{\"id\":\"identity_5\",\"conversations\":[{\"from\":\"human\",\"value\":\"Who?\"},{\"from\":\"gpt\",\"value\":"
    "\"I\"},"
    "{\"from\":\"human\",\"value\":\"Bye\"}]}\n"
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be nice.\"},{\"role\":\"user\",\"content\":\"a\"},"
    "{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"assistant\",\"content\":\"c\"}]}\n"
    "{\"conversations\":[{\"from\":\"gpt\",\"value\":\"hm\"},{\"from\":\"human\",\"value\":\"\\u00e9\\ud83d\\ude00\"}]"
    "}";

static void check_all(const pl_prompts *p, const int64_t *lines) {
    assert_int_equal(p->n, 10);
    check(p, 0, "one", "", 0, lines[0]);
    check(p, 1, "two\nlines", "c", 7, lines[1]);
    check(p, 2, "first\nsecond", "writing", 81, lines[2]);
    check(p, 3, "How many?", "", 3, lines[3]);
    check(p, 4, "Do it.\nwith this", "", 4, lines[4]);
    check(p, 5, "Do that.", "", 5, lines[5]);
    check(p, 6, "def f():\n", "", 12, lines[6]);
    check(p, 7, "Who?", "", 5, lines[7]);
    check(p, 8, "a\nb", "", 8, lines[8]);
    check(p, 9, "\xC3\xA9\xF0\x9F\x98\x80", "", 9, lines[9]);
}

static void test_jsonl(void **state) {
    (void)state;
    put_text(at("p.jsonl"), jsonl);
    pl_prompts *p = read_ok(at("p.jsonl"));
    check_all(p, (int64_t[]){1, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    pl_prompts_destroy(p);
}

static void test_list(void **state) {
    (void)state;
    char   list[4096] = "\xEF\xBB\xBF \n[\n";
    size_t n = strlen(list);
    for (const char *s = jsonl; *s; s++) { // lines become elements
        if (*s == '\r') continue; // a line end of its own where a comma follows it
        bool end = *s == '\n' && s[1] == '{' && s[-1] != '\n';
        if (end || (*s == '\n' && s[1] == '{')) list[n++] = ',';
        list[n++] = *s;
    }
    strcpy(list + n, "\n]\n");
    put_text(at("p.json"), list);
    pl_prompts *p = read_ok(at("p.json"));
    check_all(p, (int64_t[]){3, 5, 6, 7, 8, 9, 10, 11, 12, 13});
    pl_prompts_destroy(p);
}

static void test_text_file(void **state) {
    (void)state;
    put_text(at("p.txt"), "\n\nfirst line\nsecond line\n \t\n\nnext  one\r\nmore\r\n\r\n\r\n  last");
    pl_prompts *p = read_ok(at("p.txt"));
    assert_int_equal(p->n, 3);
    check(p, 0, "first line\nsecond line", "", 0, 3);
    check(p, 1, "next  one\nmore", "", 1, 7);
    check(p, 2, "  last", "", 2, 11);
    pl_prompts_destroy(p);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *says;
    } cases[] = {
        {"a.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"\n", "a.jsonl:2:"},
        {"a.jsonl", "{\"prompt\":\"a\"}\n\n\nnonsense", "a.jsonl:4:"},
        {"a.jsonl", "{\"prompt\":\"a\"} {\"prompt\":\"b\"}", "a.jsonl:1:16: not JSON: text behind the end"},
        {"a.jsonl", "{\"prompt\":\"a\"}\n7\n", "a.jsonl:2: a record must be an object"},
        {"a.jsonl", "{\"prompt\":\"a\"}\n{\"prmpt\":\"a\"}\n", "no prompt in this record; it needs \"prompt\""},
        {"a.jsonl", "{\"prompt\":\"\"}", "the prompt of this record is empty"},
        {"a.jsonl", "{\"turns\":[]}", "the prompt of this record is empty"},
        {"a.jsonl", "{\"conversations\":[{\"from\":\"gpt\",\"value\":\"a\"}]}", "the prompt of this record is empty"},
        {"a.jsonl", "\n{\"prompt\":5}", "a.jsonl:2: prompt: expected a string"},
        {"a.jsonl", "{\"turns\":[\"a\",1]}", "turns[1]: expected a string"},
        {"a.jsonl", "{\"turns\":\"a\"}", "turns: expected an array"},
        {"a.jsonl", "{\"conversations\":[{\"value\":\"a\"}]}", "conversations[0].role: missing"},
        {"a.jsonl", "{\"conversations\":[\"a\"]}", "conversations[0]"},
        {"a.jsonl", "{\"prompt\":\"\xff\"}", "a.jsonl:1:"},
        {"a.jsonl", "{\"prompt\":\"a\\u0000b\"}", "a.jsonl:1:"},
        {"a.jsonl", "", "no prompts in this file"},
        {"a.jsonl", " \n\n", "no prompts in this file"},
        {"a.json", "[]", "no prompts in this file"},
        {"a.json", "[\n{\"prompt\":\"a\"},\n{\"prompt\":\"b\"", "a.json:3: the list ends inside this record"},
        {"a.json", "[\n{\"prompt\":\"a\"},\n]", "a.json:3:"},
        {"a.json", "[\n{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}]", "a.json:3:1: not JSON: text behind the end"},
        {"a.json", "[{\"prompt\":\"a\"}]\n\nx", "a.json:3: text behind the end of the list"},
        {"a.json", "[{\"prompt\":\"a\"}}", "'}' behind a record"},
        {"a.json", "[", "the list ends inside this record"},
        {"a.json", "[{\"prompt\":\"a", "the list ends inside this record"},
        {"a.txt", "fine\n\nnot \xff fine\n", "a.txt:3: byte 0xff is not UTF-8"},
        {"a.txt", "\n \n\t", "no prompts in this file"},
        {"a.jsonl.gz", "\x1f\x8b\x08rest", "a gzip file; unpack it first"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err      err;
        pl_prompts *p;
        put_text(at(cases[i].name), cases[i].text);
        assert_refused(pl_prompts_read(&p, at(cases[i].name), &err), &err, cases[i].says);
        assert_null(p);
    }
    pl_err      err;
    pl_prompts *p;
    assert_says(pl_prompts_read(&p, at("none.jsonl"), &err), PL_E_INPUT, &err, "none.jsonl");
    put_file(at("nul.txt"), "a\n\n\0b", 5);
    assert_says(pl_prompts_read(&p, at("nul.txt"), &err), PL_E_INPUT, &err, "nul.txt:3: byte 0x00");
    pl_prompts_destroy(NULL);
}

// ---- split

static bool has_text(const pl_prompts *p, const char *text) {
    for (int64_t i = 0; i < p->n; i++)
        if (strcmp(p->p[i].text, text) == 0) return true;
    return false;
}

static pl_prompts *numbered(int n, int period, bool backwards) {
    FILE *f = fopen(at("many.jsonl"), "w");
    assert_non_null(f);
    for (int i = 0; i < n; i++)
        fprintf(f, "{\"prompt\":\"number %d\",\"category\":\"k%d\"}\n", (backwards ? n - 1 - i : i) % period, i % 3);
    fclose(f);
    return read_ok(at("many.jsonl"));
}

static void test_split(void **state) {
    (void)state;
    pl_err      err;
    pl_prompts *all = numbered(100, 1000, false), *train, *held, *train2, *held2;
    for (int64_t n = 0; n <= 100; n += 20) {
        assert_ok(pl_prompts_split(all, 42, n, &train, &held, &err));
        assert_int_equal(held->n, n);
        assert_int_equal(train->n, 100 - n);
        for (int64_t i = 0; i < held->n; i++) {
            assert_false(has_text(train, held->p[i].text));
            if (i) assert_true(held->p[i].line > held->p[i - 1].line); // order is kept
        }
        pl_prompts_destroy(train);
        pl_prompts_destroy(held);
    }
    assert_ok(pl_prompts_split(all, 42, 20, &train, &held, &err));
    // The same side whatever the order of the file.
    pl_prompts *turned = numbered(100, 1000, true);
    assert_ok(pl_prompts_split(turned, 42, 20, &train2, &held2, &err));
    for (int64_t i = 0; i < held->n; i++)
        assert_true(has_text(held2, held->p[i].text));
    pl_prompts_destroy(train2);
    pl_prompts_destroy(held2);
    pl_prompts_destroy(turned);
    // Another seed, another choice; a larger share holds the smaller one.
    assert_ok(pl_prompts_split(all, 43, 20, &train2, &held2, &err));
    int common = 0;
    for (int64_t i = 0; i < held->n; i++)
        common += has_text(held2, held->p[i].text);
    assert_true(common < 15);
    pl_prompts_destroy(train2);
    pl_prompts_destroy(held2);
    assert_ok(pl_prompts_split(all, 42, 30, &train2, &held2, &err));
    for (int64_t i = 0; i < held->n; i++)
        assert_true(has_text(held2, held->p[i].text));
    pl_prompts_destroy(train2);
    pl_prompts_destroy(held2);
    pl_prompts_destroy(train);
    pl_prompts_destroy(held);
    pl_prompts_destroy(all);
}

static void test_split_duplicates(void **state) {
    (void)state;
    pl_err      err;
    pl_prompts *all = numbered(100, 25, false), *train, *held; // every text four times
    for (int64_t n = 0; n <= 100; n++) {
        assert_ok(pl_prompts_split(all, 1, n, &train, &held, &err));
        assert_int_equal(held->n, n / 4 * 4);
        assert_int_equal(train->n, 100 - held->n);
        for (int64_t i = 0; i < held->n; i++)
            assert_false(has_text(train, held->p[i].text));
        pl_prompts_destroy(train);
        pl_prompts_destroy(held);
    }
    pl_prompts_destroy(all);
}

static void test_out_of_memory(void **state) {
    (void)state;
    put_text(at("p.jsonl"), jsonl);
    char path[600];
    snprintf(path, sizeof path, "%s", at("p.jsonl"));
    pl_status st = PL_E_MEMORY;
    for (uint64_t i = 1; st != PL_OK; i++) {
        pl_err      err;
        pl_prompts *p, *train = NULL, *held = NULL;
        pl_alloc_fail_after(i);
        st = pl_prompts_read(&p, path, &err);
        if (st == PL_OK) st = pl_prompts_split(p, 1, 5, &train, &held, &err);
        pl_alloc_fail_after(0);
        if (st != PL_OK)
            assert_int_equal(st, PL_E_MEMORY);
        else
            assert_true(i > 50);
        pl_prompts_destroy(p);
        pl_prompts_destroy(train);
        pl_prompts_destroy(held);
    }
}

// ---- real files

static void test_real_files(void **state) {
    (void)state;
    static const struct {
        const char *path;
        int64_t     n;
        const char *category, *starts;
        int64_t     id;
    } files[] = {
        {"bench/spec_bench/question.jsonl", 480, "writing", "Compose an engaging travel blog post", 81},
        {"bench/mt_bench/question.jsonl", 80, "writing", "Compose an engaging travel blog post", 81},
        {"bench/gsm8k/test.jsonl", 1319, "", "Janet\xE2\x80\x99s ducks lay 16 eggs per day.", 0},
        {"bench/fr_spec/human_eval_question.jsonl", 164, "", "from typing import List", 0},
        {"bench/eagle/alpaca_question.jsonl", 80, "", "What would be the best type of exercise", 0},
        {"bench/sharegpt/hydra_sharegpt_question.jsonl", 100, "share-gpt", "Elaborate more on John Stuart Mill", 0},
        {"chat/fastchat_dummy_conversation.json", 500, "", "Who are you?", 0},
        {"chat/sharegpt_gpt4_256.jsonl", 256, "", "With these companies as an audience", 0},
        {"chat/torchspec_sample_conversations.jsonl", 1001, "", "Can you explain algorithms", 0},
        {"chat/alpaca_eval/vicuna-7b-v1.5.json", 805, "", "What are the names of some famous actors", 0},
        {"chat/user_oriented_instructions.jsonl", 252, "", "The sentence you are given might be too wordy", 0},
        {"bench/long/long_code_audit.txt", 0, "", "", 0},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = outside(files[i].path);
        if (!path) skip();
        pl_prompts *p = read_ok(path);
        if (files[i].n) {
            assert_int_equal(p->n, files[i].n);
            assert_string_equal(p->p[0].category, files[i].category);
            assert_int_equal(p->p[0].id, files[i].id);
            if (strncmp(p->p[0].text, files[i].starts, strlen(files[i].starts)) != 0) fail_msg("%s", p->p[0].text);
        } else
            assert_int_equal(p->n, 3);
        pl_prompts_destroy(p);
    }
    pl_err      err;
    pl_prompts *p;
    assert_says(pl_prompts_read(&p, outside("bench/humaneval/HumanEval.jsonl.gz"), &err), PL_E_INPUT, &err, "gunzip");
    assert_says(pl_prompts_read(&p, outside("text/sequoia_c4_small.jsonl"), &err), PL_E_INPUT, &err,
                "jsonl:1: no prompt in this record");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jsonl),         cmocka_unit_test(test_list),
        cmocka_unit_test(test_text_file),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_split),         cmocka_unit_test(test_split_duplicates),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_real_files),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
