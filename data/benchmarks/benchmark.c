#include "data/benchmarks/benchmark.h"

#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

#include <string.h>

#define FASTCHAT "https://github.com/lm-sys/FastChat, fastchat/llm_judge/data/mt_bench/question.jsonl"
#define GSM8K "https://github.com/openai/grade-school-math, grade_school_math/data/test.jsonl"
#define HUMANEVAL "https://github.com/openai/human-eval, data/HumanEval.jsonl.gz (unpacked)"
#define MATH500 "the dataset HuggingFaceH4/MATH-500, test.jsonl"
#define EAGLE "https://github.com/SafeAILab/EAGLE, eagle/data/"
#define BOXED "\nPlease reason step by step, and put your final answer within \\boxed{}."
#define FUNCTION "Write a solution to the following problem and make sure that it passes the tests:\n```python\n"
#define LLAMA_2                                                                                                        \
    "You are a helpful, respectful and honest assistant. Always answer as helpfully as possible, while being safe.  "  \
    "Your answers should not include any harmful, unethical, racist, sexist, toxic, dangerous, or illegal content. "   \
    "Please ensure that your responses are socially unbiased and positive in nature.\n\nIf a question does not make "  \
    "any sense, or is not factually coherent, explain why instead of answering something not correct. If you don't "   \
    "know the answer to a question, please don't share false information."

// Spec-Bench counts MT-bench's eight categories as one (evaluation/speed.py: question_id 81 to 160).
static const char *spec_bench_group(int64_t id) {
    return id >= 81 && id <= 160 ? "mt_bench" : NULL;
}

static const pl_question_set mt_bench = {.name = "mt_bench", .file = "mt_bench/question.jsonl", .origin = FASTCHAT};
static const pl_question_set spec_bench = {
    .name = "spec_bench",
    .file = "spec_bench/question.jsonl",
    .origin = "https://github.com/hemingkx/Spec-Bench, data/spec_bench/question.jsonl",
    .group = spec_bench_group,
};
static const pl_question_set humaneval = {
    .name = "humaneval",
    .file = "humaneval/HumanEval.jsonl",
    .origin = HUMANEVAL,
    .member = "prompt",
    .chat = {FUNCTION, "\n```"},
    .scoring = PL_SCORE_CODE,
};
static const pl_question_set gsm8k = {
    .name = "gsm8k",
    .file = "gsm8k/test.jsonl",
    .origin = GSM8K,
    .member = "question",
    .chat = {NULL, BOXED},
    .plain = {"Question: ", "\nAnswer:"},
    .scoring = PL_SCORE_NUMBER,
};
static const pl_question_set math500 = {
    .name = "math500",
    .file = "math500/test.jsonl",
    .origin = MATH500,
    .member = "problem",
    .chat = {NULL, BOXED},
    .plain = {"Question: ", "\nAnswer:"},
    .scoring = PL_SCORE_BOXED,
};
static const pl_question_set alpaca = {
    .name = "alpaca", .file = "alpaca/question.jsonl", .origin = EAGLE "alpaca/question.jsonl"};
static const pl_question_set qa = {.name = "qa", .file = "qa/question.jsonl", .origin = EAGLE "qa/question.jsonl"};
static const pl_question_set speed_bench = {
    .name = "speed_bench",
    .file = "speed_bench/qualitative.jsonl",
    .origin = "the dataset nvidia/SPEED-Bench, qualitative split, as JSON lines",
};

// SpecForge's bench_eagle3.py, mtbench:80 gsm8k:200 humaneval:200 math500:200.
static const pl_question_set forge_mt_bench = {
    .name = "mtbench", .file = "mt_bench/question.jsonl", .origin = FASTCHAT, .count = 80, .system = LLAMA_2};
static const pl_question_set forge_gsm8k = {
    .name = "gsm8k",
    .file = "gsm8k/test.jsonl",
    .origin = GSM8K,
    .member = "question",
    .count = 200,
    .shots = 5,
    .chat = {"Question: ", "\nAnswer:"},
    .plain = {"Question: ", "\nAnswer:"},
    .scoring = PL_SCORE_NUMBER,
};
static const pl_question_set forge_humaneval = {
    .name = "humaneval",
    .file = "humaneval/HumanEval.jsonl",
    .origin = HUMANEVAL,
    .member = "prompt",
    .count = 200,
    .scoring = PL_SCORE_CODE,
};
static const pl_question_set forge_math500 = {
    .name = "math500",
    .file = "math500/test.jsonl",
    .origin = MATH500,
    .member = "problem",
    .count = 200,
    .scoring = PL_SCORE_BOXED,
};

static const pl_benchmark all[] = {
    {"spec-bench", 1024, {&spec_bench}},
    {"mt-bench", 1024, {&mt_bench}},
    {"humaneval", 1024, {&humaneval}},
    {"gsm8k", 2048, {&gsm8k}},
    {"alpaca", 1024, {&alpaca}},
    {"math500", 2048, {&math500}},
    {"qa", 1024, {&qa}},
    {"specforge", 2048, {&forge_mt_bench, &forge_gsm8k, &forge_humaneval, &forge_math500}},
    {"speed-bench", 4096, {&speed_bench}},
};

const pl_benchmark *pl_benchmark_at(int i) {
    return i < (int)(sizeof all / sizeof *all) ? &all[i] : NULL;
}

const pl_benchmark *pl_benchmark_find(const char *name) {
    for (int i = 0; pl_benchmark_at(i); i++)
        if (strcmp(all[i].name, name) == 0) return &all[i];
    return NULL;
}

pl_status pl_benchmark_file(char **path, const pl_question_set *s, const char *dir, pl_err *err) {
    *path = pl_path_join(dir, s->file);
    if (!*path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (pl_path_exists(*path)) return PL_OK;
    pl_status st = pl_fail(err, PL_E_INPUT, "%s: is missing; put it there from %s", *path, s->origin);
    pl_free(*path);
    *path = NULL;
    return st;
}

// ---- records ----

struct pl_question_reader {
    const pl_question_set *set;
    bool                   chat;
    int                    seen, asked;
    pl_strbuf              shots; // the examples, each with its answer
    pl_prompts_rewrite     rewrite;
};

static pl_status string_member(const pl_json *j, const char *name, const pl_question_set *s, const char **text,
                               pl_err *err) {
    const cJSON *node = pl_prompts_member(j, name);
    if (!node)
        return pl_json_fail(j, j->root, err, "this record has no \"%s\"; the file is to be that of %s", name,
                            s->origin);
    return pl_json_str_of(j, node, text, err);
}

static void add(pl_strbuf *b, const char *s) {
    if (s) pl_strbuf_add(b, s, strlen(s));
}

// What is asked, in the set's words.
static void add_asked(pl_strbuf *b, const pl_question_reader *r, const char *asked) {
    const pl_question_set *s = r->set;
    add(b, r->chat ? s->chat.before : s->plain.before);
    add(b, asked);
    add(b, r->chat ? s->chat.after : s->plain.after);
}

// An example: the question, and what its file answers.
static pl_status add_shot(pl_question_reader *r, const pl_json *j, pl_err *err) {
    const pl_question_set *s = r->set;
    const char            *asked, *answer;
    PL_TRY(string_member(j, s->member, s, &asked, err));
    PL_TRY(string_member(j, "answer", s, &answer, err));
    add_asked(&r->shots, r, asked);
    add(&r->shots, " ");
    add(&r->shots, answer);
    add(&r->shots, "\n\n");
    return PL_OK;
}

static pl_status put_text(pl_json_out *o, const pl_question_reader *r, const char *asked, pl_err *err) {
    pl_strbuf b = {.failed = r->shots.failed};
    pl_strbuf_add(&b, r->shots.s, r->shots.n);
    add_asked(&b, r, asked);
    char *text = pl_strbuf_take(&b);
    if (!text) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", r->set->name);
    pl_json_out_str(o, text);
    pl_free(text);
    return PL_OK;
}

// The i-th thing that a user says; NULL past the last.
static pl_status said(const pl_question_reader *r, const pl_json *j, int i, const char **text, pl_err *err) {
    const cJSON *turns = pl_prompts_member(j, "turns");
    *text = NULL;
    if (r->set->member) return i > 0 ? PL_OK : string_member(j, r->set->member, r->set, text, err);
    if (!cJSON_IsArray(turns))
        return pl_json_fail(j, j->root, err, "this record has no \"turns\"; the file is to be that of %s",
                            r->set->origin);
    const cJSON *turn = cJSON_GetArrayItem(turns, i);
    return turn ? pl_json_str_of(j, turn, text, err) : PL_OK;
}

static void put_message(pl_json_out *o, const char *role) {
    pl_json_out_object(o);
    pl_put_str(o, "role", role);
    pl_json_out_key(o, "content");
}

// A conversation: what stands between a user's words is not known.
static pl_status put_messages(pl_json_out *o, const pl_question_reader *r, const pl_json *j, pl_err *err) {
    const char *text;
    pl_put_array(o, "messages");
    put_message(o, "system");
    pl_json_out_str(o, r->set->system);
    pl_json_out_close(o, '}');
    for (int i = 0;; i++) {
        PL_TRY(said(r, j, i, &text, err));
        if (!text) break;
        if (i > 0) {
            put_message(o, "assistant");
            pl_json_out_null(o);
            pl_json_out_close(o, '}');
        }
        put_message(o, "user");
        PL_TRY(put_text(o, r, text, err));
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
    return PL_OK;
}

static pl_status put_turns(pl_json_out *o, const pl_question_reader *r, const pl_json *j, pl_err *err) {
    const char *text;
    pl_put_array(o, "turns");
    for (int i = 0;; i++) {
        PL_TRY(said(r, j, i, &text, err));
        if (!text) break;
        PL_TRY(put_text(o, r, text, err));
    }
    pl_json_out_close(o, ']');
    return PL_OK;
}

static pl_status put_id(pl_json_out *o, const pl_json *j, int64_t *id, pl_err *err) {
    static const char *const names[] = {"question_id", "task_id", "id"};
    *id = -1;
    for (int i = 0; i < 3; i++) {
        const cJSON *node = pl_prompts_member(j, names[i]);
        if (!node) continue;
        if (cJSON_IsString(node)) {
            pl_put_str(o, names[i], node->valuestring);
            return PL_OK;
        }
        PL_TRY(pl_json_int_of(j, node, -PL_JSON_INT_MAX, PL_JSON_INT_MAX, id, err));
        pl_put_int(o, names[i], *id);
        return PL_OK;
    }
    return PL_OK;
}

static pl_status put_reference(pl_json_out *o, const pl_question_reader *r, const pl_json *j, pl_err *err) {
    const char *answer = NULL, *marked;
    switch (r->set->scoring) {
    case PL_SCORE_NONE: return PL_OK;
    case PL_SCORE_CODE: PL_TRY(string_member(j, "task_id", r->set, &answer, err)); break;
    case PL_SCORE_NUMBER:
    case PL_SCORE_BOXED: PL_TRY(string_member(j, "answer", r->set, &answer, err)); break;
    }
    marked = strstr(answer, "####"); // GSM8K's solutions end so
    pl_put_str(o, "reference", marked ? marked + 4 : answer);
    return PL_OK;
}

static pl_status put_record(pl_json_out *o, const pl_question_reader *r, const pl_json *j, pl_err *err) {
    const cJSON *category = pl_prompts_member(j, "category");
    const char  *own = category && cJSON_IsString(category) && *category->valuestring ? category->valuestring : NULL;
    const char  *group = NULL;
    int64_t      id;
    pl_json_out_object(o);
    PL_TRY(put_id(o, j, &id, err));
    if (r->set->group) group = r->set->group(id);
    pl_put_str(o, "category", group ? group : own ? own : r->set->name);
    PL_TRY(put_reference(o, r, j, err));
    PL_TRY(r->chat && r->set->system ? put_messages(o, r, j, err) : put_turns(o, r, j, err));
    pl_json_out_close(o, '}');
    return PL_OK;
}

static pl_status take_record(void *arg, const pl_json *j, pl_strbuf *b, pl_err *err) {
    pl_question_reader *r = arg;
    pl_json_out         o;
    if (r->seen++ < r->set->shots) return add_shot(r, j, err);
    if (r->set->count && r->asked == r->set->count) return PL_OK;
    r->asked++;
    pl_json_out_begin(&o, 0);
    pl_status st = put_record(&o, r, j, err);
    if (st != PL_OK) {
        pl_free(o.text);
        return st;
    }
    PL_TRY(pl_json_out_end(&o, err));
    pl_strbuf_add(b, o.text, o.len);
    pl_free(o.text);
    return PL_OK;
}

pl_status pl_question_reader_create(pl_question_reader **out, const pl_question_set *s, bool chat, pl_err *err) {
    pl_question_reader *r = *out = pl_calloc(1, sizeof *r);
    if (!r) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", s->name);
    r->set = s;
    r->chat = chat;
    r->rewrite = (pl_prompts_rewrite){take_record, r};
    return PL_OK;
}

void pl_question_reader_destroy(pl_question_reader *r) {
    if (r) pl_strbuf_fini(&r->shots);
    pl_free(r);
}

const pl_prompts_rewrite *pl_question_reader_rewrite(const pl_question_reader *r) {
    return &r->rewrite;
}
