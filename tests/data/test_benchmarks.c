// Benchmarks: the words of each set, as text and as chats, and how answers are scored.
#include "data/benchmarks/benchmark.h"
#include "data/chat/prompts.h"
#include "tests/checkpoints/scratch.h"

static void scores(void **state) {
    (void)state;
    static const struct {
        pl_scoring  how;
        const char *answer, *reference;
        bool        right;
    } cases[] = {
        {PL_SCORE_NUMBER, "She has 9 * 2 = 18 dollars.", " 18", true},
        {PL_SCORE_NUMBER, "So 1,080.0 in all, of 3", "1080", false},
        {PL_SCORE_NUMBER, "It is $1,080.", "1,080", true},
        {PL_SCORE_NUMBER, "from 3-2 comes 1", "1", true},
        {PL_SCORE_NUMBER, "from 3-2", "2", true},
        {PL_SCORE_NUMBER, "minus: -7", "-7", true},
        {PL_SCORE_NUMBER, "minus: -7", "7", false},
        {PL_SCORE_NUMBER, "\\boxed{18} of 20", "18", true},
        {PL_SCORE_NUMBER, "\\boxed{1} then \\boxed{\\frac{36}{2} = 18}", "18", true},
        {PL_SCORE_NUMBER, "no number", "18", false},
        {PL_SCORE_NUMBER, "", "18", false},
        {PL_SCORE_NUMBER, "it ends in 18.", "18", true},
        {PL_SCORE_BOXED, "so \\boxed{\\left( 3, \\frac{\\pi}{2} \\right)}.", "\\left( 3, \\frac{\\pi}{2} \\right)",
         true},
        {PL_SCORE_BOXED, "so \\boxed{\\left(3,\\frac{\\pi}{2}\\right)}.", "\\left( 3, \\frac{\\pi}{2} \\right)", true},
        {PL_SCORE_BOXED, "\\boxed{\\frac{1}{2}}", "\\frac{3}{2}", false},
        {PL_SCORE_BOXED, "\\boxed{1/2}", "2", false},
        {PL_SCORE_BOXED, "\\boxed{2.0}", "2", true},
        {PL_SCORE_BOXED, "the answer is 2", "2", true},
        {PL_SCORE_BOXED, "the answer is x", "x", false},
        {PL_SCORE_BOXED, "\\boxed{open", "open", false},
        {PL_SCORE_NONE, "18", "18", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (pl_score(cases[i].how, cases[i].answer, cases[i].reference) != cases[i].right)
            fail_msg("\"%s\" against \"%s\"", cases[i].answer, cases[i].reference);
}

static void code(void **state) {
    (void)state;
    static const struct {
        const char *answer;
        bool        chat;
        const char *part;
    } cases[] = {
        {"    return x\n\ndef other():\n", false, "    return x\n"},
        {"    return x\nprint(f(1))\nif x:", false, "    return x"},
        {"    return x", false, "    return x"},
        {"Here:\n```python\ndef f():\n    return 1\n```\nIt works.", true, "def f():\n    return 1\n"},
        {"```\na\n```\nand\n```python\nb\n```", true, "b\n"},
        {"```python\ncut off", true, "cut off"},
        {"no block", true, "no block"},
        {"ends in ```", true, "ends in ```"},
        {"", true, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t at_, n = pl_code_of(cases[i].answer, cases[i].chat, &at_);
        if (n != strlen(cases[i].part) || strncmp(cases[i].answer + at_, cases[i].part, n) != 0)
            fail_msg("\"%s\": \"%.*s\"", cases[i].answer, (int)n, cases[i].answer + at_);
    }
}

static pl_prompts *read_set(const pl_question_set *s, const pl_chat_template *t, const char *path) {
    static const pl_chat_options none = {0};
    pl_question_reader          *r;
    pl_prompts                  *p;
    pl_err                       err = {0};
    assert_ok(pl_question_reader_create(&r, s, t != NULL, &err));
    const pl_prompts_rewrite *w = pl_question_reader_rewrite(r);
    if (t)
        assert_ok(pl_chat_prompts_read_as(&p, path, t, &none, w, false, &err));
    else
        assert_ok(pl_prompts_read_as(&p, path, w, false, &err));
    pl_question_reader_destroy(r);
    return p;
}

static const pl_question_set *set_of(const char *benchmark, int i) {
    const pl_benchmark *b = pl_benchmark_find(benchmark);
    assert_non_null(b);
    return b->set[i];
}

#define GSM                                                                                                            \
    "{\"question\": \"q0?\", \"answer\": \"because\\n#### 1,000\"}\n{\"question\": \"q1?\", \"answer\": \"#### 1\"}\n" \
    "\n{\"question\": \"q2?\", \"answer\": \"#### 2\"}\n{\"question\": \"q3?\", \"answer\": \"#### 3\"}\n"             \
    "{\"question\": \"q4?\", \"answer\": \"#### 4\"}\n{\"question\": \"q5?\", \"answer\": \"#### 5\"}\n"

static pl_chat_template *open_template(void) {
    pl_err            err = {0};
    pl_chat_template *t;
    put_text(at("t.jinja"), "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}A:");
    assert_ok(pl_chat_template_open(&t, scratch, at("t.jinja"), &err));
    return t;
}

static void words(void **state) {
    (void)state;
    pl_chat_template *t = open_template();
    put_text(at("gsm.jsonl"), GSM);
    pl_prompts *p = read_set(set_of("gsm8k", 0), NULL, at("gsm.jsonl"));
    assert_int_equal(p->n, 6);
    assert_string_equal(p->p[0].text, "Question: q0?\nAnswer:");
    assert_string_equal(p->p[0].reference, " 1,000");
    assert_string_equal(p->p[0].category, "gsm8k");
    assert_true(p->p[2].line == 4 && p->p[5].id == 5);
    pl_prompts_destroy(p);
    p = read_set(set_of("gsm8k", 0), t, at("gsm.jsonl"));
    assert_string_equal(p->p[1].text,
                        "[user:q1?\nPlease reason step by step, and put your final answer within \\boxed{}.]A:");
    assert_true(strcmp(p->p[1].reference, " 1") == 0 && p->p[1].turns == 1);
    pl_prompts_destroy(p);
    // SpecForge: five examples, which are not asked.
    p = read_set(set_of("specforge", 1), t, at("gsm.jsonl"));
    assert_int_equal(p->n, 1);
    assert_string_equal(p->p[0].text,
                        "[user:Question: q0?\nAnswer: because\n#### 1,000\n\nQuestion: q1?\nAnswer: #### 1\n\n"
                        "Question: q2?\nAnswer: #### 2\n\nQuestion: q3?\nAnswer: #### 3\n\n"
                        "Question: q4?\nAnswer: #### 4\n\nQuestion: q5?\nAnswer:]A:");
    pl_prompts_destroy(p);
    put_text(at("human.jsonl"), "{\"task_id\": \"HumanEval/7\", \"prompt\": \"def f():\\n\", \"test\": \"x\"}\n");
    p = read_set(set_of("humaneval", 0), NULL, at("human.jsonl"));
    assert_true(p->p[0].id == 7 && strcmp(p->p[0].text, "def f():\n") == 0);
    assert_string_equal(p->p[0].reference, "HumanEval/7");
    pl_prompts_destroy(p);
    p = read_set(set_of("humaneval", 0), t, at("human.jsonl"));
    assert_string_equal(p->p[0].text, "[user:Write a solution to the following problem and make sure that it passes "
                                      "the tests:\n```python\ndef f():\n\n```]A:");
    pl_prompts_destroy(p);
    // Turns, groups, a system message.
    put_text(at("turns.jsonl"), "{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"a\", \"b\"]}\n"
                                "{\"question_id\": 321, \"category\": \"qa\", \"turns\": [\"c\"]}\n");
    p = read_set(set_of("spec-bench", 0), t, at("turns.jsonl"));
    assert_true(p->n == 2 && p->p[0].turns == 2 && p->p[0].id == 81);
    assert_string_equal(p->p[0].category, "mt_bench");
    assert_string_equal(p->p[0].text, "[user:a]A:");
    assert_string_equal(p->p[1].category, "qa");
    pl_prompts_destroy(p);
    p = read_set(set_of("mt-bench", 0), NULL, at("turns.jsonl"));
    assert_true(strcmp(p->p[0].category, "writing") == 0 && strcmp(p->p[0].text, "a\nb") == 0);
    assert_null(p->p[0].reference);
    pl_prompts_destroy(p);
    p = read_set(set_of("specforge", 0), t, at("turns.jsonl"));
    assert_int_equal(p->p[0].turns, 2);
    assert_non_null(strstr(p->p[0].text, "[system:You are a helpful, respectful and honest assistant."));
    assert_non_null(strstr(p->p[0].text, "share false information.][user:a]A:"));
    const char  *answer[] = {"{\"role\":\"assistant\",\"content\":\"told\"}"};
    pl_jinja_out out;
    pl_err       err = {0};
    assert_ok(pl_chat_prompt_turn(&p->p[0], "turns.jsonl", t, &(pl_chat_options){0},
                                  &(pl_chat_turn){.number = 1, .answer = answer}, &out, &err));
    assert_non_null(strstr(out.text, "][user:a][assistant:told][user:b]A:"));
    pl_jinja_out_fini(&out);
    pl_prompts_destroy(p);
    pl_chat_template_close(t);
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *benchmark, *text, *says;
    } cases[] = {
        {"gsm8k", "{\"answer\": \"x\"}\n", "no \"question\"; the file is to be that of https://github.com/openai/"},
        {"gsm8k", "{\"question\": \"x\"}\n", "no \"answer\""},
        {"gsm8k", "{\"question\": 5, \"answer\": \"x\"}\n", "f.jsonl:1"},
        {"humaneval", "{\"prompt\": \"x\"}\n", "no \"task_id\""},
        {"math500", "{\"question\": \"x\", \"answer\": \"y\"}\n", "no \"problem\""},
        {"mt-bench", "{\"prompt\": \"x\"}\n", "no \"turns\""},
        {"mt-bench", "{\"turns\": []}\n", "is empty"},
        {"mt-bench", "{\"turns\": [\"a\", 5]}\n", "f.jsonl:1"},
        {"spec-bench", "{\"turns\": [\"a\"], \"question_id\": 1.5}\n", "f.jsonl:1"},
        {"speed-bench", "[]", "no prompts in this file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_question_reader *r;
        pl_prompts         *p;
        pl_err              err = {0};
        put_text(at("f.jsonl"), cases[i].text);
        assert_ok(pl_question_reader_create(&r, set_of(cases[i].benchmark, 0), false, &err));
        assert_refused(pl_prompts_read_as(&p, at("f.jsonl"), pl_question_reader_rewrite(r), false, &err), &err, cases[i].says);
        pl_question_reader_destroy(r);
    }
    pl_err err = {0};
    char  *path;
    assert_says(pl_benchmark_file(&path, set_of("qa", 0), at("none"), &err), PL_E_INPUT, &err,
                "none/qa/question.jsonl: is missing; put it there from https://github.com/SafeAILab/EAGLE");
    assert_null(pl_benchmark_find("none"));
}

static void real_files(void **state) {
    (void)state;
    static const struct {
        const char *benchmark, *path;
        int64_t     n;
        const char *starts;
    } files[] = {
        {"spec-bench", "bench/spec_bench/question.jsonl", 480, "Compose an engaging travel blog"},
        {"mt-bench", "bench/mt_bench/question.jsonl", 80, "Compose an engaging travel blog"},
        {"gsm8k", "bench/gsm8k/test.jsonl", 1319, "Question: Janet\xE2\x80\x99s ducks lay 16 eggs"},
        {"humaneval", "bench/fr_spec/human_eval_question.jsonl", 164, "from typing import List"},
        {"alpaca", "bench/eagle/alpaca_question.jsonl", 80, "What would be the best type of exercise"},
        {"qa", "bench/eagle/qa_question.jsonl", 80, "Who played anna in once upon a time?"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = outside(files[i].path);
        if (!path) skip();
        pl_prompts *p = read_set(set_of(files[i].benchmark, 0), NULL, path);
        assert_int_equal(p->n, files[i].n);
        if (strncmp(p->p[0].text, files[i].starts, strlen(files[i].starts)) != 0) fail_msg("%s", p->p[0].text);
        pl_prompts_destroy(p);
    }
    pl_prompts *p = read_set(set_of("gsm8k", 0), NULL, outside("bench/gsm8k/test.jsonl"));
    for (int64_t i = 0; i < p->n; i++) // every reference is a number
        assert_true(pl_score(PL_SCORE_NUMBER, p->p[i].reference, p->p[i].reference));
    pl_prompts_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores),  cmocka_unit_test(code),       cmocka_unit_test(words),
        cmocka_unit_test(refused), cmocka_unit_test(real_files),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
