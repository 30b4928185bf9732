// Answers of chats in parts (infer/serve/parts.h): by table, for every division of a text in two and byte by byte, and
// for every beginning of it; and texts that are drawn under the grammar of a form come back as calls.
#include "infer/grammar/grammar.h"
#include "infer/serve/delta.h"
#include "infer/serve/parts.h"
#include "kernels/base/rng.h"
#include "tests/checkpoints/scratch.h"

#define CHANNEL(header) "<|channel|>" header "<|message|>"

typedef struct answer {
    pl_call_form form;
    bool         calls;
    pl_reasoning thinks;
    const char  *text;
    const char  *reasoning, *content, *call; // call: NAME ARGUMENTS, with a line end behind each
} answer;

static const answer answers[] = {
    {PL_CALLS_NONE, true, PL_REASONING_NONE, " <tool_call>{}<think> \n", "", " <tool_call>{}<think> \n", ""},
    // Reasoning.
    {PL_CALLS_NONE, false, PL_REASONING_MAY, "\n<think>\nHm.\n\n</think>\n\nYes. \n", "Hm.", "Yes. \n", ""},
    {PL_CALLS_NONE, false, PL_REASONING_MAY, " <thin air", "", " <thin air", ""},
    {PL_CALLS_NONE, false, PL_REASONING_MAY, "A <think>b</think>", "", "A <think>b</think>", ""},
    {PL_CALLS_NONE, false, PL_REASONING_BEGUN, "\na < b, </thin>k\n</think>c", "a < b, </thin>k", "c", ""},
    {PL_CALLS_NONE, false, PL_REASONING_BEGUN, "cut off \n", "cut off \n", "", ""},
    {PL_CALLS_NONE, false, PL_REASONING_MAY, "<think></think>", "", "", ""},
    // Hermes.
    {PL_CALLS_HERMES, true, PL_REASONING_NONE,
     "Look. \n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1.0, \"</tool_call>\", "
     "\"\\\"{\"]}}\n</tool_call>\n",
     "", "Look.", "f {\"a\": [1.0, \"</tool_call>\", \"\\\"{\"]}\n"},
    {PL_CALLS_HERMES, true, PL_REASONING_MAY,
     "<think>a <tool_call></think>\n<tool_call>{\"arguments\":{},\"name\":\"f\"}</tool_call>\n<tool_call>\n"
     "{\"name\": \"g\"}\n</tool_call> Done.",
     "a <tool_call>", "Done.", "f {}\ng {}\n"},
    {PL_CALLS_HERMES, true, PL_REASONING_NONE, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"b\\\":2}\"}", "", "",
     "f {\"b\":2}\n"},
    {PL_CALLS_HERMES, true, PL_REASONING_NONE, "x <tool_call> {\"name\": \"f\", \"arguments\": [1]} </tool_call> y", "",
     "x <tool_call> {\"name\": \"f\", \"arguments\": [1]} </tool_call> y", ""},
    {PL_CALLS_HERMES, true, PL_REASONING_NONE, "<tool_call>{\"name\":\"f\"}, more", "",
     "<tool_call>{\"name\":\"f\"}, more", ""},
    {PL_CALLS_HERMES, true, PL_REASONING_NONE, "<tool_call>{\"name\":\"f\",\"name\":\"g\"}</tool_call>", "",
     "<tool_call>{\"name\":\"f\",\"name\":\"g\"}</tool_call>", ""},
    {PL_CALLS_HERMES, true, PL_REASONING_NONE, "<tool_call>{\"name\": <tool_call>{\"name\":\"g\"}</tool_call>", "",
     "<tool_call>{\"name\":", "g {}\n"},
    {PL_CALLS_HERMES, true, PL_REASONING_NONE, "<tool_call>\n<function=f>\n", "", "<tool_call>\n<function=f>\n", ""},
    {PL_CALLS_HERMES, true, PL_REASONING_NONE, "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":\"\\u0000\"}}", "", "",
     "f {\"x\":\"\\u0000\"}\n"},
    {PL_CALLS_HERMES, false, PL_REASONING_NONE, "a <tool_call>{\"name\":\"f\"}</tool_call>", "",
     "a <tool_call>{\"name\":\"f\"}</tool_call>", ""},
    // Llama.
    {PL_CALLS_LLAMA, true, PL_REASONING_NONE, " {\"name\": \"f\", \"parameters\": {\"q\": \"a;b\"}}", "", "",
     "f {\"q\": \"a;b\"}\n"},
    {PL_CALLS_LLAMA, true, PL_REASONING_NONE,
     "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"n\": "
     "12345678901234567890}}",
     "", "", "f {}\ng {\"n\": 12345678901234567890}\n"},
    {PL_CALLS_LLAMA, true, PL_REASONING_NONE,
     "{\"name\": \"f\", \"parameters\": {}};<|python_tag|>{\"name\":\"g\",\"parameters\":{}}", "", "", "f {}\ng {}\n"},
    {PL_CALLS_LLAMA, true, PL_REASONING_NONE, "{\"name\": \"Ann\"}", "", "{\"name\": \"Ann\"}", ""},
    {PL_CALLS_LLAMA, true, PL_REASONING_NONE, "{\"name\": \"f\", \"parameters\": {}} ; {\"x\": 1} {", "",
     " ; {\"x\": 1} {", "f {}\n"},
    {PL_CALLS_LLAMA, true, PL_REASONING_NONE, "<|python_tag|>search.call(query=\"x\")", "",
     "<|python_tag|>search.call(query=\"x\")", ""},
    {PL_CALLS_LLAMA, true, PL_REASONING_NONE, "I say {\"name\": \"f\", \"parameters\": {}}", "",
     "I say {\"name\": \"f\", \"parameters\": {}}", ""},
    {PL_CALLS_LLAMA, true, PL_REASONING_NONE, "I say <|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "", "I say",
     "f {}\n"},
    // Mistral.
    {PL_CALLS_MISTRAL, true, PL_REASONING_NONE,
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}}, {\"name\": \"g\", \"arguments\": {}, \"id\": "
     "\"abc\"}]",
     "", "", "f {\"a\": \"]\"}\ng {}\n"},
    {PL_CALLS_MISTRAL, true, PL_REASONING_NONE, "[TOOL_CALLS][{\"name\": \"f\"}, {\"name\": 3}]", "",
     "[TOOL_CALLS][{\"name\": \"f\"}, {\"name\": 3}]", ""},
    {PL_CALLS_MISTRAL, true, PL_REASONING_NONE, "[TOOL_CALLS][]", "", "[TOOL_CALLS][]", ""},
    {PL_CALLS_MISTRAL_ARGS, true, PL_REASONING_NONE,
     "Well.[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g-2[CALL_ID]xyz123456[ARGS]{}", "", "Well.",
     "f {\"a\": 1}\ng-2 {}\n"},
    {PL_CALLS_MISTRAL_ARGS, true, PL_REASONING_NONE, "[TOOL_CALLS]f[ARGS]12 [TOOL_CALLS] is a mark", "",
     "[TOOL_CALLS]f[ARGS]12 [TOOL_CALLS] is a mark", ""},
    {PL_CALLS_MISTRAL_ARGS, true, PL_REASONING_NONE, "[TOOL_CALLS]", "", "[TOOL_CALLS]", ""},
    // Harmony.
    {PL_CALLS_HARMONY, true, PL_REASONING_NONE,
     CHANNEL("analysis") "I must look.<|end|><|start|>assistant" CHANNEL(
         "commentary to=functions.f <|constrain|>json") "{\"a\": \"<|\"}<|call|>",
     "I must look.", "{\"a\": \"<|\"}<|call|>", ""}, // the stop token is not part of a text
    {PL_CALLS_HARMONY, true, PL_REASONING_NONE,
     CHANNEL("analysis") "I must look.<|end|><|start|>assistant" CHANNEL(
         "commentary to=functions.f <|constrain|>json") "{\"a\": \"<|\"}",
     "I must look.", "", "f {\"a\": \"<|\"}\n"},
    {PL_CALLS_HARMONY, true, PL_REASONING_NONE,
     CHANNEL("commentary") "First.<|end|><|start|>assistant to=functions.f" CHANNEL(
         "commentary json") "{}<|end|><|start|>assistant" CHANNEL("final") "Done.\n",
     "", "First.\nDone.\n", "f {}\n"},
    {PL_CALLS_HARMONY, true, PL_REASONING_NONE, CHANNEL("analysis") "One<|end|>" CHANNEL("analysis") "two", "One\ntwo",
     "", ""},
    {PL_CALLS_HARMONY, false, PL_REASONING_NONE, CHANNEL("commentary to=functions.f") "{}", "", "{}", ""},
    {PL_CALLS_HARMONY, true, PL_REASONING_NONE, CHANNEL("commentary to=functions.f") "{\"a\"", "", "{\"a\"", ""},
    {PL_CALLS_HARMONY, true, PL_REASONING_NONE, CHANNEL("final") "5 <|en", "", "5 <|en", ""},
    {PL_CALLS_HARMONY, true, PL_REASONING_NONE, CHANNEL("final") "5<|end|><|start|>assist", "", "5", ""},
    {PL_CALLS_HARMONY, true, PL_REASONING_NONE, "<|chan of beer", "", "<|chan of beer", ""},
    {PL_CALLS_HARMONY, true, PL_REASONING_NONE, "Plain words " CHANNEL("final"), "", "Plain words " CHANNEL("final"),
     ""},
};

static void init(pl_parts *p, const answer *a) {
    pl_parts_init(p, a->form, a->calls, a->thinks, 7);
}

// All parts as one text.
static char *shown(const pl_parts *p) {
    pl_strbuf b = {0};
    pl_strbuf_add(&b, p->reasoning.text.s, p->reasoning.text.n);
    pl_strbuf_add(&b, "|", 1);
    pl_strbuf_add(&b, p->content.text.s, p->content.text.n);
    pl_strbuf_add(&b, "|", 1);
    for (int i = 0; i < p->n_calls; i++) {
        char *line = pl_sprintf("%s %s\n", p->call[i].name, p->call[i].arguments);
        pl_strbuf_add(&b, line, strlen(line));
        pl_free(line);
    }
    return pl_strbuf_take(&b);
}

// Pushes text[0..n) in two, split at `at`; at < 0: byte by byte.
static char *divide(const answer *a, size_t n, long at) {
    pl_parts p;
    init(&p, a);
    if (at >= 0) pl_parts_push(&p, a->text, (size_t)at);
    for (size_t i = at < 0 ? 0 : (size_t)at; i < n; i += at < 0 ? 1 : n - (size_t)at)
        pl_parts_push(&p, a->text + i, at < 0 ? 1 : n - (size_t)at);
    pl_parts_end(&p);
    assert_false(p.failed);
    char *text = shown(&p);
    pl_parts_fini(&p);
    return text;
}

static void by_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const answer *a = &answers[i];
        char *want = pl_sprintf("%s|%s|%s", a->reasoning, a->content, a->call), *got = divide(a, strlen(a->text), 0);
        if (strcmp(want, got) != 0) fail_msg("%s\nwant %s\ngot  %s", a->text, want, got);
        pl_free(want);
        pl_free(got);
    }
}

static void every_division(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        for (size_t n = 0; n <= strlen(answers[i].text); n++) { // an answer may end anywhere
            char *want = divide(&answers[i], n, 0);
            for (long at = -1; at <= (long)n; at++) {
                char *got = divide(&answers[i], n, at);
                if (strcmp(want, got) != 0)
                    fail_msg("%.*s at %ld\nwant %s\ngot  %s", (int)n, answers[i].text, at, want, got);
                pl_free(got);
            }
            pl_free(want);
        }
}

static void ids(void **state) {
    (void)state;
    for (int form = PL_CALLS_HERMES; form <= PL_CALLS_MISTRAL; form += 2) {
        static const char text[] = "<tool_call>{\"name\":\"f\"}</tool_call><tool_call>{\"name\":\"f\"}</tool_call>";
        static const char list[] =
            "[TOOL_CALLS][{\"name\":\"f\"},{\"name\":\"f\"},{\"name\":\"f\",\"id\":\"abcdefghi\"}]";
        pl_parts p;
        pl_parts_init(&p, (pl_call_form)form, true, PL_REASONING_NONE, 99);
        if (form == PL_CALLS_HERMES)
            pl_parts_push(&p, text, sizeof text - 1);
        else
            pl_parts_push(&p, list, sizeof list - 1);
        assert_int_equal(p.n_calls, form == PL_CALLS_HERMES ? 2 : 3);
        assert_int_equal(strlen(p.call[0].id), form == PL_CALLS_HERMES ? 14 : 9); // Mistral's templates require nine
        assert_string_not_equal(p.call[0].id, p.call[1].id);
        if (form == PL_CALLS_MISTRAL) assert_string_equal(p.call[2].id, "abcdefghi");
        pl_parts_fini(&p);
    }
}

// ---- templates ------------------------------------------------------------------------------------------------------

// The places of published templates by which their forms are found.
static void forms_of_templates(void **state) {
    (void)state;
    static const struct {
        pl_call_form form;
        const char  *text;
    } cases[] = {
        {PL_CALLS_NONE, "{% for m in messages %}{{ m.content }}{% endfor %}"},
        {PL_CALLS_HERMES, "{{- '<tool_call>\\n{\"name\": \"' }}{{- tool_call.name }}{{- '\", \"arguments\": ' }}"},
        {PL_CALLS_NONE, "{{- '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}"}, // Qwen3-Coder
        {PL_CALLS_NONE, "{{ '<tool_call>' + tc.name }}<arg_key>"},                      // GLM
        {PL_CALLS_LLAMA, "{{- \"<|start_header_id|>\" }}{{- '{\"name\": \"' + tool_call.name + '\", ' }}"
                         "{{- '\"parameters\": ' }}{{- \"<|python_tag|>\" }}"},
        {PL_CALLS_NONE, "{{- '<|start_header_id|>' + message['role'] }}"}, // Llama 3
        {PL_CALLS_MISTRAL, "{{- \"[TOOL_CALLS] [\" }}{{- '{\"name\": \"' }}"},
        {PL_CALLS_MISTRAL_ARGS, "{{- '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}"},
        {PL_CALLS_HARMONY, "{{- \"<|start|>assistant<|channel|>final<|message|>\" }}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_chat_template *t;
        pl_err            err = {0};
        put_text(at("chat.jinja"), cases[i].text);
        assert_ok(pl_chat_template_open(&t, scratch, at("chat.jinja"), &err));
        if (pl_parts_form(t) != cases[i].form) fail_msg("%s: form %d", cases[i].text, (int)pl_parts_form(t));
        pl_chat_template_close(t);
    }
}

// ---- drawn calls ----------------------------------------------------------------------------------------------------

// A tokenizer of ASCII characters whose marks are special tokens.
static void write_marked(void) {
    pl_strbuf         b = {0};
    char              text[128];
    int               id = 0;
    static const char head[] = "{\"added_tokens\":[";
    pl_strbuf_add(&b, head, sizeof head - 1);
    for (int i = 0; i < PL_MARKS; i++) {
        int n = snprintf(text, sizeof text, "%s{\"id\":%d,\"content\":\"%s\",\"special\":true}", i ? "," : "", 200 + i,
                         pl_mark_text[i]);
        pl_strbuf_add(&b, text, (size_t)n);
    }
    static const char model[] = "],\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"vocab\":{";
    pl_strbuf_add(&b, model, sizeof model - 1);
    for (int c = 0; c < 200; c++) { // holes are filled with words
        bool plain = c >= 32 && c < 127 && c != '"' && c != '\\';
        int  n = plain       ? snprintf(text, sizeof text, "%s\"%c\":%d", c ? "," : "", c, id++)
                 : c == '"'  ? snprintf(text, sizeof text, ",\"\\\"\":%d", id++)
                 : c == '\\' ? snprintf(text, sizeof text, ",\"\\\\\":%d", id++)
                 : c == '\n' ? snprintf(text, sizeof text, ",\"\\n\":%d", id++)
                             : snprintf(text, sizeof text, "%s\"word%d\":%d", c ? "," : "", c, id++);
        pl_strbuf_add(&b, text, (size_t)n);
    }
    static const char tail[] = "},\"merges\":[]}}";
    pl_strbuf_add(&b, tail, sizeof tail - 1);
    char *all = pl_strbuf_take(&b);
    put_text(at("tokenizer.json"), all);
    pl_free(all);
}

static const char functions[] =
    "[{\"name\":\"get\",\"parameters\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":0,"
    "\"maximum\":9},\"of\":{\"$ref\":\"#/$defs/of\"}},\"required\":[\"n\"],\"additionalProperties\":false,\"$defs\":"
    "{\"of\":{\"enum\":[\"a}\",\"b\"]}}}},{\"name\":\"put\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":"
    "{\"type\":\"boolean\"}},\"required\":[\"x\"]}}]";

static pl_grammar *open_grammar(const pl_calls *c, const pl_token_text *tokens) {
    pl_grammar *g;
    pl_err      err = {0};
    char       *text = pl_calls_write(c);
    assert_non_null(text);
    if (pl_grammar_open(&g, PL_GRAMMAR_CALLS, text, strlen(text), tokens, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_free(text);
    return g;
}

// Draws tokens that the grammar allows until it ends; false: the text becomes too long.
static bool draw_text(pl_grammar *g, const pl_tokenizer *tok, uint64_t seed, pl_delta *d) {
    pl_rng   r = pl_rng_make(seed, PL_STREAM_TEST, 3);
    uint64_t u = 0;
    int32_t  state = pl_grammar_start(g), vocab = pl_tokenizer_vocab_size(tok), id[1 << 15];
    for (int step = 0; step < 600; step++) {
        int             n = 0;
        const uint32_t *mask = pl_grammar_mask(g, state);
        assert_non_null(mask);
        for (int32_t i = 0; i < vocab; i++) {
            bool goes_on = mask[i / 32] >> i % 32 & 1;
            if (step < 3) assert_int_equal(goes_on, pl_grammar_token(g, state, i) >= 0);
            if (goes_on) id[n++] = i;
        }
        bool ends = pl_grammar_may_end(g, state);
        assert_true(ends || n > 0);
        if (ends && (n == 0 || pl_rng_below(r, u++, 2) == 0)) return true;
        int32_t one = id[pl_rng_below(r, u++, (uint64_t)n)];
        state = pl_grammar_token(g, state, one);
        pl_delta_push(d, one);
    }
    return false;
}

static void check_call(const pl_tool_call *c) {
    pl_json j;
    assert_int_equal(pl_json_parse(&j, "arguments", 0, c->arguments, strlen(c->arguments), 0, NULL), PL_OK);
    if (strcmp(c->name, "get") == 0)
        assert_true(cJSON_IsNumber(pl_json_find(&j, NULL, "n")));
    else
        assert_true(strcmp(c->name, "put") == 0 && cJSON_IsBool(pl_json_find(&j, NULL, "x")));
    pl_json_close(&j);
}

// Returns how many calls were drawn.
static int draw_answers(const pl_calls *c, const pl_tokenizer *tok, const pl_token_text *tokens, const int32_t *mark,
                        int marks) {
    pl_grammar *g = open_grammar(c, tokens);
    int         calls = 0;
    for (uint64_t seed = 0; seed < 6; seed++) {
        pl_delta d;
        pl_parts p;
        assert_int_equal(pl_delta_init(&d, tok, false, NULL, 0, NULL), PL_OK);
        d.mark = mark;
        d.n_marks = marks;
        pl_parts_init(&p, c->form, true, c->reasoning, seed);
        if (draw_text(g, tok, seed, &d)) {
            pl_delta_end(&d);
            pl_parts_push(&p, d.text.s, d.text.n);
            pl_parts_end(&p);
            if (p.n_calls < 1 || p.content.text.n > 0) fail_msg("form %d: %.*s", (int)c->form, (int)d.text.n, d.text.s);
            if (!c->many) assert_int_equal(p.n_calls, 1);
            for (int i = 0; i < p.n_calls; i++)
                check_call(&p.call[i]);
            calls += p.n_calls;
        }
        pl_parts_fini(&p);
        pl_delta_fini(&d);
    }
    assert_false(pl_grammar_failed(g));
    pl_grammar_close(g);
    return calls;
}

static void draw_all(const char *dir, int expected) {
    pl_tokenizer  *tok;
    pl_token_text *tokens;
    pl_json        j;
    pl_err         err = {0};
    int32_t        mark[PL_MARKS];
    int            marks = 0, calls = 0;
    assert_ok(pl_tokenizer_open(&tok, dir, &err));
    assert_ok(pl_token_text_open(&tokens, tok, &err));
    assert_ok(pl_json_parse(&j, "tools", 0, functions, strlen(functions), 0, &err));
    const cJSON *function[] = {j.root->child, j.root->child->next};
    for (int i = 0; i < PL_MARKS; i++)
        if (pl_tokenizer_is_special(tok, pl_tokenizer_find(tok, pl_mark_text[i])))
            mark[marks++] = pl_tokenizer_find(tok, pl_mark_text[i]);
    assert_int_equal(marks, expected);
    for (int form = PL_CALLS_HERMES; form <= PL_CALLS_HARMONY; form++)
        for (int many = 0; many < 2; many++) {
            pl_calls c = {.form = (pl_call_form)form, .many = many, .functions = function, .n = 2};
            calls += draw_answers(&c, tok, tokens, mark, marks);
        }
    print_message("%d calls\n", calls);
    assert_true(calls > 60);
    pl_json_close(&j);
    pl_token_text_close(tokens);
    pl_tokenizer_close(tok);
}

// Marks as special tokens, and as text of a vocabulary that lacks them.
static void drawn_calls_come_back(void **state) {
    (void)state;
    write_marked();
    draw_all(at("tokenizer.json"), PL_MARKS);
    draw_all(PACELINE_SOURCE_DIR "/checkpoints/tiny", 0);
}

static const struct {
    pl_call_form form;
    pl_reasoning reasoning;
    bool         takes;
    const char  *text;
} texts[] = {
    {PL_CALLS_HERMES, PL_REASONING_MAY, true,
     "<think>a</thin</think>\n\n<tool_call>\n{\"name\": \"put\", \"arguments\": {\"x\": true}}\n</tool_call>"},
    {PL_CALLS_HERMES, PL_REASONING_BEGUN, true,
     "<<//think></think><tool_call>\n{\"name\": \"put\", \"arguments\": {\"x\":false}}\n</tool_call>"},
    {PL_CALLS_HERMES, PL_REASONING_BEGUN, false,
     "<tool_call>\n{\"name\": \"put\", \"arguments\": {\"x\":false}}\n</tool_call>"},
    {PL_CALLS_HERMES, PL_REASONING_NONE, false, "<think></think><tool_call>\n"},
    {PL_CALLS_LLAMA, PL_REASONING_NONE, true, "{\"name\": \"get\", \"parameters\": {\"n\": 3, \"of\": \"a}\"}}"},
    {PL_CALLS_LLAMA, PL_REASONING_NONE, false, "{\"name\": \"get\", \"parameters\": {\"of\": \"b\"}}"},
    {PL_CALLS_HARMONY, PL_REASONING_NONE, true,
     CHANNEL("analysis") "<|<|end|><|start|>assistant" CHANNEL(
         "commentary to=functions.put <|constrain|>json") "{\"x\":true}"},
    {PL_CALLS_HARMONY, PL_REASONING_NONE, false, CHANNEL("final") "No."},
};

static void texts_of_grammars(void **state) {
    (void)state;
    pl_json j;
    assert_int_equal(pl_json_parse(&j, "tools", 0, functions, strlen(functions), 0, NULL), PL_OK);
    const cJSON *function[] = {j.root->child, j.root->child->next};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pl_calls    c = {.form = texts[i].form, .reasoning = texts[i].reasoning, .functions = function, .n = 2};
        pl_grammar *g = open_grammar(&c, NULL);
        int32_t     state_at = pl_grammar_start(g);
        for (const char *s = texts[i].text; *s; s++)
            state_at = pl_grammar_byte(g, state_at, (uint8_t)*s);
        if (pl_grammar_may_end(g, state_at) != texts[i].takes) fail_msg("%s", texts[i].text);
        pl_grammar_close(g);
    }
    pl_json_close(&j);
}

static void refused_tools(void **state) {
    (void)state;
    static const char *const text[][2] = {
        {"{\"form\":1,\"reasoning\":0,\"many\":true,\"tools\":[{\"name\":\"f\",\"parameters\":{\"not\":{}}}]}",
         "tools[0].parameters.not: this keyword"},
        {"{\"form\":9,\"reasoning\":0,\"many\":true,\"tools\":[]}", "form"},
        {"{\"form\":1,\"reasoning\":0,\"many\":true,\"tools\":[]}", "matches no text"},
        {"[]", "form"},
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        pl_grammar *g;
        pl_err      err = {0};
        pl_status   st = pl_grammar_open(&g, PL_GRAMMAR_CALLS, text[i][0], strlen(text[i][0]), NULL, &err);
        if (st == PL_OK || !strstr(err.msg, text[i][1])) fail_msg("%s: %s", text[i][0], st ? err.msg : "taken");
        malformed_seen();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_table),
        cmocka_unit_test(every_division),
        cmocka_unit_test(ids),
        cmocka_unit_test(forms_of_templates),
        cmocka_unit_test(drawn_calls_come_back),
        cmocka_unit_test(texts_of_grammars),
        cmocka_unit_test(refused_tools),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
