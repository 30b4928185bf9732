// Prompts: the input's first byte says whether it is JSON lines (or a list) or a text file. The same file is read as
// conversations, turn by turn and whole.
#include "data/benchmarks/benchmark.h"
#include "data/chat/prompts.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void seeds(void) {
    pl_fuzz_seed_text(
        "j{\"prompt\":\"a\",\"category\":\"x\",\"id\":7}\n{\"turns\":[\"b\",\"c\"],\"question_id\":81}\n");
    pl_fuzz_seed_text("j[{\"question\":\"a\"},\n{\"instruction\":\"b\",\"input\":\"c\"}]");
    pl_fuzz_seed_text("j{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"gpt\",\"value\":\"b\"}]}\n"
                      "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}],\"task_id\":\"HumanEval/12\"}\n");
    pl_fuzz_seed_text("j{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"
                      "\"t\"},{\"role\":\"tool\",\"content\":\"r\"},{\"role\":\"user\",\"content\":\"s\"}]}\n"
                      "{\"turns\":[{\"role\":\"user\",\"content\":\"x\"}]}\n{\"Turns\":[\"a\",\"b\"]}");
    pl_fuzz_seed_text("j{\"question\":\"How many? 1,2.5\",\"answer\":\"so\\n#### \\\\boxed{1,000}\"}\n"
                      "{\"problem\":\"x\",\"answer\":\"-.5\",\"question\":\"```\\na\"}\n");
    pl_fuzz_seed_text("j{\"task_id\":\"HumanEval/1\",\"prompt\":\"def f():\\n#\\nif\",\"turns\":[\"a\"]}\n");
    pl_fuzz_seed_text("tone paragraph\nof two lines\n\nanother \xc3\xa9\n\n\n");
}

static const char *const words[] = {"\"prompt\":\"",
                                    "\"turns\":[",
                                    "\"text\":\"",
                                    "\"task_id\":\"x/99999999999999999999\"",
                                    "\"id\":-9007199254740993",
                                    "\"from\":\"human\"",
                                    "\"messages\":[{\"role\":\"user\",\"content\":1.5}]",
                                    "\"role\":\"ipython\"",
                                    "\"role\":\"human\"",
                                    "\"content\":[{\"type\":\"text\",\"text\":\"p\"}]",
                                    "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]",
                                    "\"function_call\":{\"name\":\"f\"}",
                                    "\"reasoning\":\"r\"",
                                    "\"system\":\"s\"",
                                    "\"history\":[[\"a\",\"b\"]]",
                                    "\"tools\":\"[]\"",
                                    "\"tools\":[",
                                    "\"chat_template_kwargs\":{",
                                    "\"value\":",
                                    "}\n{",
                                    "},{",
                                    "[{",
                                    "}]",
                                    "\n\n",
                                    "\\n",
                                    "\xef\xbb\xbf",
                                    "\x1f\x8b",
                                    NULL};

const pl_fuzz_target pl_fuzz = {.name = "prompts", .seeds = seeds, .words = words, .runs = 5000, .max_len = 1 << 13};

// Every turn of a conversation behind answers of its own, with and without its oldest exchanges.
static void take_turns(const pl_prompt *p, const char *path, const pl_chat_template *t, const pl_chat_options *o) {
    const char  *answer[8] = {PL_CHAT_STAND_IN,
                              NULL,
                              "{\"role\":\"assistant\",\"thinking\":\"t\"}",
                              PL_CHAT_STAND_IN,
                              NULL,
                              NULL,
                              PL_CHAT_STAND_IN,
                              PL_CHAT_STAND_IN};
    pl_jinja_out out;
    pl_err       err;
    int          exchanges;
    if (!p->record || p->turns < 1) pl_fuzz_finding("a prompt of %d turns", p->turns);
    for (int k = 0; k < p->turns && k < 8; k++) {
        pl_fuzz_must(pl_chat_prompt_exchanges(p, path, k, &exchanges, &err), &err);
        for (int skip = 0; skip < 2 && skip < exchanges; skip++) {
            pl_chat_turn turn = {.number = k, .answer = answer, .skip = skip};
            pl_fuzz_must(pl_chat_prompt_turn(p, path, t, o, &turn, &out, &err), &err);
            pl_fuzz_touch(out.text, out.n);
            pl_jinja_out_fini(&out);
        }
    }
}

static void read_chat(const char *path) {
    static const char template[] =
        "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{{ tools | tojson }}";
    pl_chat_options   o = {.system = "S", .kwargs = "{\"k\": 1}"};
    pl_chat_template *t;
    pl_prompts       *p = NULL;
    pl_err            err = {0};
    pl_fuzz_must(pl_chat_template_open(&t, pl_fuzz_dir(), pl_fuzz_file("t.jinja", template, sizeof template - 1), &err),
                 &err);
    for (int whole = 0; whole < 2; whole++) {
        pl_status st = (whole ? pl_chat_texts_read : pl_chat_prompts_read)(&p, path, t, &o, &err);
        if (!pl_fuzz_result(st, &err, &p)) continue;
        for (int64_t i = 0; i < p->n; i++) {
            if (!p->p[i].rendered || !p->p[i].text[0]) pl_fuzz_finding("prompt %lld is not rendered", (long long)i);
            if (!whole) take_turns(&p->p[i], path, t, &o);
        }
        pl_prompts_destroy(p);
        p = NULL;
    }
    pl_chat_template_close(t);
}

// As the questions of each benchmark's sets; of an answer that is any text something is right.
static void read_benchmarks(const char *path) {
    for (int i = 0; pl_benchmark_at(i); i++)
        for (int k = 0; k < PL_BENCHMARK_SETS && pl_benchmark_at(i)->set[k]; k++) {
            pl_question_reader *r;
            pl_prompts         *p = NULL;
            pl_err              err = {0};
            size_t              at;
            pl_fuzz_must(pl_question_reader_create(&r, pl_benchmark_at(i)->set[k], false, &err), &err);
            bool read =
                pl_fuzz_result(pl_prompts_read_as(&p, path, pl_question_reader_rewrite(r), false, &err), &err, &p);
            pl_question_reader_destroy(r);
            for (int64_t q = 0; read && q < p->n; q++) {
                const char *text = p->p[q].text, *reference = p->p[q].reference ? p->p[q].reference : "";
                pl_score(PL_SCORE_NUMBER, text, reference);
                pl_score(PL_SCORE_BOXED, text, reference);
                size_t n = pl_code_of(text, q % 2 == 0, &at);
                if (at + n > strlen(text)) pl_fuzz_finding("code of %zu bytes at %zu", n, at);
            }
            if (read) pl_prompts_destroy(p);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err      err;
    pl_prompts *p = NULL, *train = NULL, *held = NULL;
    if (n == 0) return 0;
    const char *path = pl_fuzz_file(data[0] == 't' ? "p.txt" : "p.jsonl", data + 1, n - 1);
    read_chat(path);
    if (data[0] != 't') read_benchmarks(path);
    if (!pl_fuzz_result(pl_prompts_read(&p, path, &err), &err, &p)) return 0;
    if (p->n < 1) pl_fuzz_finding("no prompts, and no failure");
    for (int64_t i = 0; i < p->n; i++) {
        if (!p->p[i].text[0]) pl_fuzz_finding("prompt %lld is empty", (long long)i);
        pl_fuzz_touch(p->p[i].text, strlen(p->p[i].text));
        pl_fuzz_touch(p->p[i].category, strlen(p->p[i].category));
    }
    pl_fuzz_must(pl_prompts_split(p, 1, p->n / 2, &train, &held, &err), &err);
    if (train->n + held->n != p->n) pl_fuzz_finding("a split loses prompts");
    pl_prompts_destroy(train);
    pl_prompts_destroy(held);
    pl_prompts_destroy(p);
    return 0;
}
