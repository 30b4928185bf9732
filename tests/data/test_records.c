// Conversations as records bring them, and answers as conversations go on with them. golden_records.jsonl holds what
// transformers' apply_chat_template makes of each record; beyond it stands what servers do, named at each table.
#include "data/chat/prompts.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"
#include "tests/checkpoints/scratch.h"

#include <string.h>

static pl_chat_template *open_template(const char *text) {
    pl_chat_template *t;
    pl_err            err = {0};
    put_text(at("tokenizer_config.json"), "{\"bos_token\": \"<s>\"}");
    put_text(at("chat_template.jinja"), text);
    if (pl_chat_template_open(&t, at("."), NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    return t;
}

// The text of a record, NULL where it is refused; the caller's.
static char *render(const char *template, const char *record, const pl_chat_turn *turn, unsigned *notes, pl_err *err) {
    pl_chat_template *t = open_template(template);
    pl_chat_options   o = {.add_generation_prompt = true, .turn = turn, .notes = notes};
    pl_jinja_out      out;
    pl_status         st = pl_chat_template_render(t, "here", 3, record, strlen(record), &o, &out, err);
    char             *text = st == PL_OK ? pl_strdup(out.text) : NULL;
    if (st == PL_OK) pl_jinja_out_fini(&out);
    pl_chat_template_close(t);
    return text;
}

static void expect(const char *template, const char *record, const pl_chat_turn *turn, const char *want) {
    pl_err err = {0};
    char  *text = render(template, record, turn, NULL, &err);
    if (!text || strcmp(text, want) != 0)
        fail_msg("%s\n  wanted '%s'\n  got    '%s'", record, want, text ? text : err.msg);
    pl_free(text);
}

// ---- transformers

// The record of a golden line, its last member, as it is written there; the caller's.
static char *record_of(const char *line, size_t n) {
    static const char begins[] = "\"record\": ";
    const char       *from = memmem(line, n, begins, sizeof begins - 1);
    assert_non_null(from);
    from += sizeof begins - 1;
    return pl_sprintf("%.*s", (int)(line + n - 1 - from), from);
}

static void as_transformers(void **state) {
    (void)state;
    uint8_t *data;
    size_t   n, at = 0, end;
    int      lines = 0, refused = 0, wrong = 0;
    pl_err   err = {0};
    assert_int_equal(pl_file_read(PACELINE_SOURCE_DIR "/tests/data/golden_records.jsonl", &data, &n, 1 << 20, &err),
                     PL_OK);
    for (; at < n; at = end + 1) {
        pl_json j;
        const char *template, *text;
        for (end = at; end < n && data[end] != '\n'; end++)
            ;
        assert_int_equal(pl_json_parse(&j, "golden_records.jsonl", ++lines, data + at, end - at, 0, &err), PL_OK);
        assert_int_equal(pl_json_get_str(&j, NULL, "template", &template, &err), PL_OK);
        assert_int_equal(pl_json_opt_str(&j, NULL, "text", NULL, &text, &err), PL_OK);
        char *record = record_of((char *)data + at, end - at), *got = render(template, record, NULL, NULL, &err);
        if (!text != !got || (text && strcmp(text, got) != 0)) {
            print_error("line %d: %s\n  %s\n  wanted '%s'\n  got    '%s'\n", lines, template, record,
                        text ? text : "a refusal", got ? got : err.msg);
            wrong++;
        }
        refused += !text;
        pl_free(record);
        pl_free(got);
        pl_json_close(&j);
    }
    pl_free(data);
    assert_true(lines > 200 && refused > 30);
    assert_int_equal(wrong, 0);
}

// ---- servers

#define USER(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define SAYS(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define RECORD(messages) "{\"messages\": [" messages "]}"
#define ROLES "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
#define ARGUMENTS                                                                                                      \
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% "       \
    "endfor %}"
#define CALL(arguments)                                                                                                \
    "{\"role\": \"assistant\", \"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", "             \
    "\"arguments\": " arguments "}}]}"

// Arguments that are JSON strings: vLLM's and SGLang's servers decode those that are objects before they render. Parts:
// vLLM joins them by "\n" for templates of text. function_call, roles: what the template knows of them.
static void as_servers(void **state) {
    (void)state;
    static const struct {
        const char *template, *record, *text;
        unsigned notes;
    } cases[] = {
        {ARGUMENTS, RECORD(USER("a") "," CALL("{\"k\": 1.0}")), "{\"k\": 1.0}", 0},
        {ARGUMENTS, RECORD(USER("a") "," CALL("\"{\\\"k\\\": 1.0}\"")), "{\"k\": 1.0}", PL_CHAT_NOTE_ARGUMENTS},
        {ARGUMENTS, RECORD(USER("a") "," CALL("\"{}\"")), "{}", PL_CHAT_NOTE_ARGUMENTS},
        {ARGUMENTS, RECORD(USER("a") "," CALL("\"{\\\"k\\\"\"")), "\"{\\\"k\\\"\"", 0},
        {ARGUMENTS, RECORD(USER("a") "," CALL("\"[1]\"")), "\"[1]\"", 0},
        {"{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '<' + c.function.arguments }}{% endfor %}{% "
         "endfor %}",
         RECORD(USER("a") "," CALL("\"{\\\"k\\\": 1}\"")), "<{\"k\": 1}", 0}, // a template that adds strings
        {ARGUMENTS,
         RECORD(USER("a") ",{\"role\": \"assistant\", \"tool_calls\": \"[{\\\"function\\\": {\\\"name\\\": \\\"f\\\", "
                          "\\\"arguments\\\": {\\\"k\\\": 2}}}]\"}"),
         "{\"k\": 2}", 0},
        {ROLES,
         RECORD("{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", "
                "\"text\": \"b\"}]}"),
         "[user:a\nb]", PL_CHAT_NOTE_PARTS},
        {"{% for m in messages %}{{ m.content + '!' }}{% endfor %}",
         RECORD("{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}"), "a!",
         PL_CHAT_NOTE_PARTS},
        {ROLES, RECORD("{\"role\": \"user\", \"content\": []}"), "[user:]", PL_CHAT_NOTE_PARTS},
        {ROLES, RECORD("{\"role\": \"user\", \"content\": [\"a\", \"b\"]}"), "[user:a\nb]", PL_CHAT_NOTE_PARTS},
        {"{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
         RECORD("{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}"), "a", 0},
        {ARGUMENTS,
         RECORD(USER("a") ",{\"role\": \"assistant\", \"content\": null, \"function_call\": {\"name\": \"f\", "
                          "\"arguments\": \"{\\\"k\\\": 3}\"}}"),
         "{\"k\": 3}", PL_CHAT_NOTE_CALL | PL_CHAT_NOTE_ARGUMENTS},
        {"{% for m in messages %}{{ m.function_call.name if m.function_call }}{{ m.tool_calls is defined }}{% endfor "
         "%}",
         RECORD("{\"role\": \"assistant\", \"function_call\": {\"name\": \"f\", \"arguments\": \"{}\"}}"), "fFalse", 0},
        {ARGUMENTS "{{ messages[2].role }}",
         "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"function_call\", \"value\": "
         "\"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"k\\\": 4}}\"}, {\"from\": \"observation\", \"value\": "
         "\"r\"}]}",
         "{\"k\": 4}tool", 0},
        {"{{ tools | tojson }}{{ documents[0].t }}",
         "{\"messages\": [" USER("a") "], \"tools\": \"[{\\\"n\\\": 1.0}]\", \"documents\": \"[{\\\"t\\\": 2}]\"}",
         "[{\"n\": 1.0}]2", 0},
        // A template that leaves a role out, refuses it, or names it.
        {"{% for m in messages %}{% if m.role == 'user' or m.role == 'tool' %}[{{ m.role }}:{{ m.content }}]{% endif "
         "%}{% endfor %}",
         RECORD(USER("a") "," SAYS("observation", "r")), "[user:a][tool:r]", PL_CHAT_NOTE_ROLES},
        {"{% for m in messages %}{% if m.role not in ['user', 'tool'] %}{{ raise_exception('no') }}{% endif %}[{{ "
         "m.role }}]{% endfor %}",
         RECORD(USER("a") "," SAYS("tool_result", "r")), "[user][tool]", PL_CHAT_NOTE_ROLES},
        {"{% for m in messages %}{% if m.role == 'observation' %}<{{ m.content }}>{% endif %}{% endfor %}",
         RECORD(USER("a") "," SAYS("observation", "r")), "<r>", 0},
        {ROLES, RECORD(SAYS("human", "a") "," SAYS("gpt", "b")), "[user:a][assistant:b]", PL_CHAT_NOTE_ROLES},
        {ROLES, RECORD(USER("a") "," SAYS("model", "b") "," SAYS("ai", "c")), "[user:a][assistant:b][assistant:c]",
         PL_CHAT_NOTE_ROLES},
        {ROLES "{{ 'critic' }}", RECORD(USER("a") "," SAYS("critic", "b")), "[user:a][critic:b]critic", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned notes = 0;
        pl_err   err = {0};
        char    *text = render(cases[i].template, cases[i].record, NULL, &notes, &err);
        if (!text || strcmp(text, cases[i].text) != 0)
            fail_msg("%s\n%s\n  wanted '%s'\n  got    '%s'", cases[i].template, cases[i].record, cases[i].text,
                     text ? text : err.msg);
        if (notes != cases[i].notes) fail_msg("%s: notes %x, wanted %x", cases[i].record, notes, cases[i].notes);
        pl_free(text);
    }
}

// What stands beside a conversation: LLaMA-Factory's "system", OpenOrca's "system_prompt".
static void beside(void **state) {
    (void)state;
    expect(ROLES, "{\"messages\": [" USER("a") "], \"system\": \"s\"}", NULL, "[system:s][user:a]");
    expect(ROLES, "{\"messages\": [" USER("a") "], \"system_prompt\": \"s\"}", NULL, "[system:s][user:a]");
    expect(ROLES, "{\"messages\": [" USER("a") "], \"system\": \"\"}", NULL, "[user:a]");
    expect(ROLES, "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}], \"system\": \"s\"}", NULL,
           "[system:s][user:a]");
    static const struct {
        const char *record;
        unsigned    notes;
    } noted[] = {{"{\"messages\": [" SAYS("system", "own") "," USER("a") "], \"system\": \"s\"}", PL_CHAT_NOTE_SYSTEM},
                 {"{\"messages\": [" USER("a") "], \"context\": \"c\"}", PL_CHAT_NOTE_CONTEXT},
                 {"{\"messages\": [" USER("a") "], \"history\": [[\"q\", \"r\"]]}", PL_CHAT_NOTE_HISTORY},
                 {"{\"messages\": [" USER("a") "], \"functions\": [{\"name\": \"f\"}]}", PL_CHAT_NOTE_FUNCTIONS},
                 {"{\"messages\": [" USER("a") "], \"images\": [\"a.png\"]}", PL_CHAT_NOTE_MEDIA},
                 {"{\"messages\": [" USER("a") "], \"image\": \"a.png\", \"audios\": [\"b\"]}", PL_CHAT_NOTE_MEDIA},
                 {"{\"messages\": [" USER("a") "], \"functions\": [], \"images\": [], \"image\": null}", 0},
                 {"{\"messages\": [" USER("a") "], \"history\": [], \"context\": \"\"}", 0}};
    for (size_t i = 0; i < sizeof noted / sizeof *noted; i++) {
        unsigned notes = 0;
        pl_err   err = {0};
        pl_free(render(ROLES, noted[i].record, NULL, &notes, &err));
        assert_int_equal(notes, noted[i].notes);
    }
    // Records that are no conversations.
    pl_chat_template *t = open_template(ROLES);
    pl_prompts       *p;
    pl_err            err = {0};
    put_text(
        at("p.jsonl"),
        "{\"question\": \"q\", \"system_prompt\": \"s\"}\n"
        "{\"instruction\": \"i\", \"input\": \"x\", \"history\": [[\"a\", \"b\"], [\"c\", \"d\"]], \"system\": \"s\"}\n"
        "{\"turns\": [\"a\", \"b\"], \"system\": \"s\"}\n"
        "{\"prompt\": [" USER("a") "," SAYS("assistant", "b") "," USER("c") "]}\n"
                                                                            "{\"text\": [" USER("a") "]}\n");
    static const struct {
        const char *text;
        int         turns;
    } want[] = {{"[system:s][user:q]", 1},
                {"[system:s][user:a]", 3},
                {"[system:s][user:a]", 2},
                {"[user:a]", 2},
                {"[user:a]", 1}};
    assert_ok(pl_chat_prompts_read(&p, at("p.jsonl"), t, &(pl_chat_options){0}, &err));
    assert_int_equal(p->n, 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(p->p[i].text, want[i].text);
        assert_int_equal(p->p[i].turns, want[i].turns);
    }
    pl_jinja_out out;
    assert_ok(
        pl_chat_prompt_turn(&p->p[1], "p.jsonl", t, &(pl_chat_options){0}, &(pl_chat_turn){.number = 2}, &out, &err));
    assert_string_equal(out.text, "[system:s][user:a][assistant:b][user:c][assistant:d][user:i\nx]");
    pl_jinja_out_fini(&out);
    pl_prompts_destroy(p);
    pl_chat_template_close(t);
}

// What a template could have had is told once for a file where its records are written anew.
static void beside_prompts(void **state) {
    (void)state;
#define LEFT "beside a prompt that is text"
    static const struct {
        const char *record, *says; // NULL: nothing
    } cases[] = {{"{\"prompt\": \"q\", \"tools\": [{\"name\": \"f\"}]}", LEFT},
                 {"{\"question\": \"q\", \"functions\": [{\"name\": \"f\"}]}", LEFT},
                 {"{\"turns\": [\"q\", \"r\"], \"documents\": [{\"text\": \"d\"}]}", LEFT},
                 {"{\"text\": \"q\", \"chat_template_kwargs\": {\"a\": 1}}", LEFT},
                 {"{\"instruction\": \"q\", \"tools\": \"[]\"}", LEFT},
                 {"{\"question\": \"q\", \"choices\": [\"a\", \"b\"]}", "\"choices\" beside a prompt is not read"},
                 {"{\"prompt\": \"q\", \"options\": {\"A\": \"a\"}}", "\"options\" beside a prompt is not read"},
                 {"{\"text\": \"q\", \"context\": \"c\"}", "\"context\" beside a prompt is not read"},
                 {"{\"prompt\": [" USER("q") "], \"tools\": [{\"name\": \"f\"}]}", NULL},
                 {"{\"prompt\": \"q\", \"tools\": [], \"functions\": null, \"choices\": []}", NULL}};
    pl_chat_template *t = open_template(ROLES);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_prompts *p;
        pl_err      err = {0};
        char       *said = NULL, text[256];
        size_t      n;
        snprintf(text, sizeof text, "%s\n%s\n", cases[i].record, cases[i].record);
        put_text(at("beside.jsonl"), text);
        FILE *f = open_memstream(&said, &n);
        pl_log_to(f);
        assert_ok(pl_chat_prompts_read(&p, at("beside.jsonl"), t, &(pl_chat_options){0}, &err));
        pl_log_to(NULL);
        fclose(f);
        const char *says = cases[i].says, *first = says ? strstr(said, says) : said;
        if (says ? !first || strstr(first + 1, says) : *said != 0) fail_msg("%s: said \"%s\"", cases[i].record, said);
        free(said);
        pl_prompts_destroy(p);
    }
    pl_chat_template_close(t);
}

#define OWN "{\"role\":\"assistant\",\"content\":\"OWN\"}"

// Whoever speaks under whichever name: the last turn, behind own answers.
static void turns(void **state) {
    (void)state;
    static const char *const own[] = {OWN, OWN, OWN, OWN};
#define CALLED SAYS("assistant", "call")
#define END SAYS("assistant", "z") "," USER("u") "," SAYS("assistant", "y")
    static const struct {
        const char *messages;
        int         turns;
        const char *last;
    } cases[] = {
        {USER("a") "," CALLED "," SAYS("tool", "r") "," END, 3,
         "[user:a][assistant:call][tool:r][assistant:OWN][user:u]"},
        {USER("a") "," CALLED "," SAYS("ipython", "r") "," END, 3,
         "[user:a][assistant:call][ipython:r][assistant:OWN][user:u]"},
        {USER("a") "," CALLED "," SAYS("function", "r") "," SAYS("function", "s") "," END, 3,
         "[user:a][assistant:call][function:r][function:s][assistant:OWN][user:u]"},
        {USER("a") "," CALLED "," SAYS("observation", "r") "," END, 3,
         "[user:a][assistant:call][observation:r][assistant:OWN][user:u]"},
        {USER("a") "," CALLED "," SAYS("tool_response", "r") "," END, 3,
         "[user:a][assistant:call][tool_response:r][assistant:OWN][user:u]"},
        {USER("a") "," CALLED "," SAYS("tool_result", "r") "," END, 3,
         "[user:a][assistant:call][tool_result:r][assistant:OWN][user:u]"},
        {USER("a") "," SAYS("system", "s") "," END, 2, "[user:a][system:s][assistant:OWN][user:u]"},
        {USER("a") "," SAYS("developer", "s") "," END, 2, "[user:a][developer:s][assistant:OWN][user:u]"},
        {USER("a") "," SAYS("model", "m") "," USER("u") "," SAYS("assistant", "y"), 2,
         "[user:a][assistant:OWN][user:u]"},
        {SAYS("human", "a") "," SAYS("gpt", "m") "," SAYS("human", "u"), 2, "[user:a][assistant:OWN][user:u]"},
        {USER("a") "," SAYS("assistant", "m") "," SAYS("assistant", "n") "," USER("u"), 2,
         "[user:a][assistant:OWN][user:u]"},
        {USER("a") "," SAYS("assistant", "m") "," CALLED "," SAYS("tool", "r") "," SAYS("assistant", "z"), 2,
         "[user:a][assistant:m][assistant:call][tool:r]"},
        {SAYS("system", "s") "," SAYS("assistant", "m") "," USER("u"), 1, "[system:s][assistant:m][user:u]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_json j;
        pl_err  err = {0};
        char   *record = pl_sprintf(RECORD("%s"), cases[i].messages);
        assert_ok(pl_json_parse(&j, "record", 0, record, strlen(record), 0, &err));
        if (pl_chat_turns(&j) != cases[i].turns) fail_msg("%s: %d turns", record, pl_chat_turns(&j));
        expect(ROLES, record, &(pl_chat_turn){.number = cases[i].turns - 1, .answer = own}, cases[i].last);
        pl_json_close(&j);
        pl_free(record);
    }
}

// The hash of prompts, which datasets keep, is another where later turns are written otherwise than earlier builds did,
// and the same elsewhere: "x" stands for the record itself.
static void hash_of_records(void **state) {
    (void)state;
    static const struct {
        const char *messages;
        bool        anew;
    } cases[] = {
        {USER("a") "," SAYS("assistant", "b") "," USER("c"), false},
        {USER("a") ",{\"role\": \"assistant\", \"content\": null}," USER("c"), false}, // the target's own stands there
        {USER("a") "," CALL("{}") "," SAYS("tool", "r") "," USER("c"), false},
        {USER("a") "," CALL("\"{}\"") "," SAYS("tool", "r") "," USER("c"), true},
        {USER("a") "," SAYS("assistant", "b") ",{\"role\": \"user\", \"content\": \"c\", \"name\": null}", true},
        {USER("a") "," SAYS("assistant", "b") "," SAYS("human", "c"), true},
        {USER("a") "," SAYS("assistant", "b") "," SAYS("assistant", "b") "," USER("c"), true},
        {USER("a") "," SAYS("assistant", "b") ",{\"role\": \"user\", \"content\": [\"c\"]}", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_json j;
        pl_err  err = {0};
        char   *record = pl_sprintf(RECORD("%s"), cases[i].messages);
        assert_ok(pl_json_parse(&j, "record", 0, record, strlen(record), 0, &err));
        if (pl_chat_reads_anew(&j) != cases[i].anew) fail_msg("%s", record);
        pl_prompt  p = {.text = "t", .record = record, .anew = cases[i].anew}, plain = {.text = "t", .record = record};
        pl_prompts list = {&p, 1}, other = {&plain, 1};
        assert_true((pl_prompts_hash(&list, 0) == pl_prompts_hash(&other, 0)) == !cases[i].anew);
        pl_json_close(&j);
        pl_free(record);
    }
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *record, *says;
    } cases[] = {
        {RECORD(USER("a") "," SAYS("critic", "b")), "here:3: messages[1]: the role \"critic\" is unknown"},
        {RECORD("{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {}}]}"),
         "messages[0].content[0]: a part of the type \"image_url\""},
        {RECORD("{\"role\": \"user\", \"content\": [5]}"), "messages[0].content[0]: a part without text"},
        {RECORD("{\"role\": \"assistant\", \"tool_calls\": \"f\"}"), "tool_calls: a string that is not JSON"},
        {RECORD("{\"role\": \"assistant\", \"tool_calls\": [5]}"), "tool_calls[0]: expected an object"},
        {"{\"messages\": [" USER("a") "], \"tools\": \"f\"}", "tools: a string that is not JSON"},
        {"{\"messages\": [" USER("a") "], \"tools\": \"{}\"}", "no list of objects"},
        {"{\"messages\": [" USER("a") "], \"tools\": {\"name\": \"f\"}}", "tools: expected a list of objects"},
        {"{\"messages\": [" USER("a") "], \"documents\": 7}", "documents: expected a list of objects"},
        {"{\"messages\": [" USER("a") "], \"messages\": []}", "the key is there twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err err = {0};
        char  *text = render(ROLES, cases[i].record, NULL, NULL, &err);
        if (text || !strstr(err.msg, cases[i].says)) fail_msg("%s: '%s'", cases[i].record, text ? text : err.msg);
    }
}

// ---- files with odd records

static void odd_records(void **state) {
    (void)state;
    static const char        good[] = "{\"prompt\": \"a\"}\n";
    static const char *const odd[] = {"{\"prompt\": 5}\n",
                                      "{\"prompt\": \"a\"\n",
                                      "{\"answer\": \"a\"}\n",
                                      "{\"prompt\": \"a\", \"prompt\": \"b\"}\n",
                                      "{\"messages\": [" SAYS("critic", "x") "]}\n",
                                      "[1]\n"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        pl_err            err = {0};
        pl_prompts       *p;
        pl_chat_template *t = open_template(ROLES);
        char             *text = pl_sprintf("%s%s%s", good, odd[i], good);
        put_text(at("odd.jsonl"), text);
        assert_int_equal(pl_prompts_read_as(&p, at("odd.jsonl"), NULL, false, &err), PL_E_INPUT);
        assert_non_null(strstr(err.msg, "odd.jsonl:2"));
        assert_ok(pl_prompts_read_as(&p, at("odd.jsonl"), NULL, true, &err));
        assert_true(p->n == 2 && p->p[1].line == 3);
        pl_prompts_destroy(p);
        assert_ok(pl_chat_prompts_read_as(&p, at("odd.jsonl"), t, &(pl_chat_options){0}, NULL, true, &err));
        assert_true(p->n == 2 && p->p[1].line == 3);
        pl_prompts_destroy(p);
        pl_free(text);
        text = pl_sprintf("%s%s%s", good, odd[i], odd[i]); // another kind of file
        put_text(at("odd.jsonl"), text);
        assert_int_equal(pl_prompts_read_as(&p, at("odd.jsonl"), NULL, true, &err), PL_E_INPUT);
        assert_non_null(strstr(err.msg, "odd.jsonl:2"));
        pl_free(text);
        pl_chat_template_close(t);
    }
}

// A byte order mark and carriage returns in files of any kind; UTF-16 by its name.
static void encodings(void **state) {
    (void)state;
    static const struct {
        const char *name, *text;
    } same[] = {{"a.txt", "one\ntwo\n\nthree\n"},
                {"a.txt", "\xEF\xBB\xBFone\r\ntwo\r\n\r\nthree\r\n"},
                {"a.txt", "one\rtwo\r\rthree\r"},
                {"a.txt", "one\r\ntwo\n\nthree"},
                {"a.jsonl", "\xEF\xBB\xBF{\"prompt\": \"one\\ntwo\"}\r\n{\"prompt\": \"three\"}\r\n"},
                {"a.jsonl", "{\"prompt\": \"one\\ntwo\"}\r{\"prompt\": \"three\"}\r"},
                {"a.json", "\xEF\xBB\xBF[{\"prompt\": \"one\\ntwo\"},\r\n{\"prompt\": \"three\"}]\r\n"}};
    pl_err      err = {0};
    pl_prompts *p;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        put_text(at(same[i].name), same[i].text);
        if (pl_prompts_read(&p, at(same[i].name), &err) != PL_OK) fail_msg("%zu: %s", i, err.msg);
        assert_int_equal(p->n, 2);
        assert_string_equal(p->p[0].text, "one\ntwo");
        assert_string_equal(p->p[1].text, "three");
        pl_prompts_destroy(p);
    }
    static const struct {
        const char *name, *bytes;
        size_t      n;
        const char *says;
    } wide[] = {{"w.jsonl", "\xff\xfe{\0\"\0", 6, "w.jsonl: UTF-16 text"},
                {"w.txt", "\xfe\xff\0a\0b", 6, "w.txt: UTF-16 text"},
                {"w.txt", "a\0b\0c\0", 6, "w.txt: UTF-16 text"},
                {"w.jsonl", "version https://git-lfs.github.com/spec/v1\n", 43, "a pointer of Git LFS"},
                {"w.jsonl", "<!DOCTYPE html>", 15, "a page of HTML"},
                {"w.jsonl", "PAR1\x15", 5, "a Parquet file"}};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        put_file(at(wide[i].name), wide[i].bytes, wide[i].n);
        assert_int_equal(pl_prompts_read(&p, at(wide[i].name), &err), PL_E_INPUT);
        if (!strstr(err.msg, wide[i].says)) fail_msg("%s", err.msg);
    }
}

// ---- answers

static const char *const SPECIAL[] = {"<|start|>", "<|end|>",    "<|message|>", "<|channel|>", "<|constrain|>",
                                      "<|call|>",  "<|return|>", "[THINK]",     "[/THINK]",    "<|python_tag|>"};

// A byte-level tokenizer of one token a byte, id 0..255, the special tokens behind them.
static pl_tokenizer *open_bytes(void) {
    pl_tokenizer *tok;
    pl_json_out   o;
    pl_err        err = {0};
    char          name[8];
    int           more = 0;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    pl_json_out_key(&o, "added_tokens"), pl_json_out_array(&o);
    for (size_t i = 0; i < sizeof SPECIAL / sizeof *SPECIAL; i++) {
        pl_json_out_object(&o);
        pl_json_out_key(&o, "id"), pl_json_out_int(&o, 256 + (int64_t)i);
        pl_json_out_key(&o, "content"), pl_json_out_str(&o, SPECIAL[i]);
        pl_json_out_key(&o, "special"), pl_json_out_bool(&o, true);
        pl_json_out_key(&o, "normalized"), pl_json_out_bool(&o, false);
        pl_json_out_close(&o, '}');
    }
    pl_json_out_close(&o, ']');
    for (int k = 0; k < 2; k++) {
        pl_json_out_key(&o, k ? "decoder" : "pre_tokenizer"), pl_json_out_object(&o);
        pl_json_out_key(&o, "type"), pl_json_out_str(&o, "ByteLevel");
        pl_json_out_key(&o, "add_prefix_space"), pl_json_out_bool(&o, false);
        pl_json_out_key(&o, "use_regex"), pl_json_out_bool(&o, true);
        pl_json_out_close(&o, '}');
    }
    pl_json_out_key(&o, "model"), pl_json_out_object(&o);
    pl_json_out_key(&o, "type"), pl_json_out_str(&o, "BPE");
    pl_json_out_key(&o, "merges"), pl_json_out_array(&o), pl_json_out_close(&o, ']');
    pl_json_out_key(&o, "vocab"), pl_json_out_object(&o);
    for (int b = 0; b < 256; b++) {
        bool plain = (b > 32 && b < 127) || (b > 160 && b != 173);
        int  c = plain ? b : 256 + more++, n = 0; // GPT-2's byte alphabet
        if (c < 0x80) name[n++] = (char)c;
        if (c >= 0x80) name[n++] = (char)(0xc0 | c >> 6), name[n++] = (char)(0x80 | (c & 63));
        name[n] = 0;
        pl_json_out_key(&o, name), pl_json_out_int(&o, b);
    }
    pl_json_out_close(&o, '}');
    pl_json_out_close(&o, '}');
    pl_json_out_close(&o, '}');
    assert_ok(pl_json_out_end(&o, &err));
    assert_ok(pl_dir_make(at("bytes"), &err));
    put_text(at("bytes/tokenizer.json"), o.text);
    pl_free(o.text);
    if (pl_tokenizer_open(&tok, at("bytes"), &err) != PL_OK) fail_msg("%s", err.msg);
    return tok;
}

// The ids of a text of n bytes, special tokens as they are spelt.
static int64_t ids_of(const char *text, size_t n, int32_t *ids) {
    int64_t count = 0;
    for (size_t at = 0; at < n;) {
        size_t k = 0, special = sizeof SPECIAL / sizeof *SPECIAL;
        while (k < special && (n - at < strlen(SPECIAL[k]) || memcmp(text + at, SPECIAL[k], strlen(SPECIAL[k])) != 0))
            k++;
        ids[count++] = k < special ? 256 + (int32_t)k : (uint8_t)text[at];
        at += k < special ? strlen(SPECIAL[k]) : 1;
    }
    return count;
}

// An answer's text is decode(skip_special_tokens=False) of transformers; channels are what openai-harmony's parser
// gives vLLM's and SGLang's servers: analysis, final, commentary with a recipient.
static void answers(void **state) {
    (void)state;
#define TEXT(content) "{\"role\":\"assistant\",\"content\":\"" content "\"}"
    static const struct {
        const char *said;
        size_t      n; // 0: as a string
        const char *message;
    } cases[] = {
        {"", 0, TEXT("")},
        {"plain \xC3\xA9", 0, TEXT("plain \xC3\xA9")},
        {"[THINK]hm[/THINK]OK", 0, TEXT("[THINK]hm[/THINK]OK")},
        {"<|python_tag|>x", 0, TEXT("<|python_tag|>x")},
        {"a\0b", 3, TEXT("a\\u0000b")},
        {"a\xC3", 0, TEXT("a\xEF\xBF\xBD")},
        {"\xC3[THINK]\xA9", 0, TEXT("\xEF\xBF\xBD[THINK]\xEF\xBF\xBD")},
        {"<|channel|>final<|message|>OK", 0, TEXT("OK")},
        {"<|channel|>final", 0, TEXT("<|channel|>final")}, // its text never came
        {"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>OK", 0,
         "{\"role\":\"assistant\",\"thinking\":\"Hm.\",\"content\":\"OK\"}"},
        {"<|channel|>analysis<|message|>Hm.", 0, "{\"role\":\"assistant\",\"thinking\":\"Hm.\",\"content\":\"\"}"},
        {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>", 0,
         "{\"role\":\"assistant\",\"thinking\":\"a\\nb\",\"content\":\"\"}"},
        {"<|channel|>commentary<|message|>Let me see.", 0, TEXT("Let me see.")},
        {"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
         "<|constrain|>json<|message|>{\"k\": 1}",
         0,
         "{\"role\":\"assistant\",\"thinking\":\"Hm.\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":"
         "\"f\",\"arguments\":\"{\\\"k\\\": 1}\"}}]}"},
        {" to=functions.g<|channel|>commentary<|message|>{}<|call|>", 0,
         "{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":"
         "\"{}\"}}]}"},
    };
    pl_tokenizer *tok = open_bytes();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t ids[512];
        int64_t n = ids_of(cases[i].said, cases[i].n ? cases[i].n : strlen(cases[i].said), ids);
        char   *message;
        pl_err  err = {0};
        ids[n++] = 5000; // a row of the target's without a piece
        assert_ok(pl_chat_answer_message(&message, tok, ids, n, &err));
        assert_string_equal(message, cases[i].message);
        pl_free(message);
    }
    pl_tokenizer_close(tok);
}

// The message in a later turn: ids of the answer come back, a NUL among them; calls are decoded.
static void history(void **state) {
    (void)state;
    static const char TURNS[] =
        "{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments | tojson }}"
        "{% endif %}{{ m.reasoning_content }}{{ m.content }};{% endfor %}";
    static const char record[] = RECORD(USER("a") "," SAYS("assistant", "x") "," USER("b"));
    static const struct {
        const char *message, *text;
        size_t      n;
    } cases[] = {
        {"{\"role\":\"assistant\",\"content\":\"[THINK]x\\u0000y\"}", "a;[THINK]x\0y;b;", 15},
        {"{\"role\":\"assistant\",\"thinking\":\"t\",\"content\":\"c\"}", "a;tc;b;", 7},
        {"{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"k\\\": 1}\"}}]}",
         "a;{\"k\": 1};b;", 13}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_chat_template *t = open_template(TURNS);
        pl_jinja_out      out;
        pl_err            err = {0};
        pl_chat_options   o = {.turn = &(pl_chat_turn){.number = 1, .answer = &cases[i].message}};
        assert_ok(pl_chat_template_render(t, "here", 1, record, sizeof record - 1, &o, &out, &err));
        assert_int_equal(out.n, cases[i].n);
        assert_memory_equal(out.text, cases[i].text, out.n);
        pl_jinja_out_fini(&out);
        pl_chat_template_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_transformers), cmocka_unit_test(as_servers),      cmocka_unit_test(beside),
        cmocka_unit_test(turns),           cmocka_unit_test(hash_of_records), cmocka_unit_test(refused),
        cmocka_unit_test(odd_records),     cmocka_unit_test(encodings),       cmocka_unit_test(answers),
        cmocka_unit_test(history),         cmocka_unit_test(beside_prompts),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
