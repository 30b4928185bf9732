// Chat templates against transformers' own Jinja: golden_chat.jsonl holds what it makes of each.
#include "data/chat/eval.h"
#include "data/chat/prompts.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"
#include "tests/checkpoints/scratch.h"
#include "tests/gguf_texts.h"
#include <signal.h>
#include <sys/wait.h>

static pl_status render(const char *text, const char *vars, const char *date, pl_jinja_out *out, pl_err *err) {
    pl_jinja *t;
    memset(out, 0, sizeof *out);
    PL_TRY(pl_jinja_compile(&t, "template", text, strlen(text), err));
    pl_status st = pl_jinja_render(t, vars, strlen(vars), date, out, err);
    pl_jinja_free(t);
    return st;
}

// Where transformers gives a text so does this, byte for byte; where it fails this fails, with a message.
static void as_transformers(void **state) {
    (void)state;
    uint8_t *data;
    size_t   n, at = 0, end;
    int      cases = 0, texts = 0, wrong = 0;
    char    *vars = NULL, *date = NULL;
    pl_err   err = {0};
    assert_int_equal(pl_file_read(PACELINE_SOURCE_DIR "/tests/data/golden_chat.jsonl", &data, &n, 1 << 20, &err),
                     PL_OK);
    for (; at < n; at = end + 1) {
        pl_json      j;
        pl_jinja_out out;
        const char *template, *text;
        for (end = at; end < n && data[end] != '\n'; end++)
            ;
        if (pl_json_parse(&j, "golden_chat.jsonl", ++cases, data + at, end - at, 0, &err) != PL_OK)
            fail_msg("%s", err.msg);
        if (!vars) { // the first line; its numbers are as they are written, so the line itself is taken
            const char *from = strstr((char *)data + at, "{\"messages\"");
            const char *day = strstr((char *)data + at, "\"date\": \"");
            assert_true(from && day && day > from);
            vars = pl_sprintf("%.*s", (int)(day - from - 2), from);
            date = pl_sprintf("%.10s", day + 9);
            pl_json_close(&j);
            continue;
        }
        assert_int_equal(pl_json_get_str(&j, NULL, "template", &template, &err), PL_OK);
        assert_int_equal(pl_json_opt_str(&j, NULL, "text", NULL, &text, &err), PL_OK);
        pl_status st = render(template, vars, date, &out, &err);
        if (text && (st != PL_OK || strcmp(out.text, text) != 0)) {
            print_error("line %d: %s\n  wanted '%s'\n  got    '%s'\n", cases, template, text, st ? err.msg : out.text);
            wrong++;
        } else if (!text && (st == PL_OK || strncmp(err.msg, "template:", 9) != 0)) {
            print_error("line %d: %s\n  wanted a refusal, got '%s'\n", cases, template, st ? err.msg : out.text);
            wrong++;
        }
        texts += text != NULL;
        pl_jinja_out_fini(&out);
        pl_json_close(&j);
    }
    assert_true(texts > 100 && cases - texts > 40);
    pl_free(data);
    pl_free(vars);
    pl_free(date);
    assert_int_equal(wrong, 0);
}

// What is not built is refused by its name and line, and what is no template by its place.
static void refusals(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
        pl_status   st;
    } bad[] = {
        {"a\n{{ 1 | xmlattr }}", "template:2: the filter xmlattr is not built", PL_E_UNSUPPORTED},
        {"{{ 1 is sameas 1 }}", "the test sameas is not built", PL_E_UNSUPPORTED},
        {"{% include 'x' %}", "{% include %} is not built", PL_E_UNSUPPORTED},
        {"{% set j = joiner(',') %}{{ j() }}", "template:1: joiner is not built", PL_E_UNSUPPORTED},
        {"{% set c = cycler('a', 'b') %}{{ c.next() }}", "cycler is not built", PL_E_UNSUPPORTED},
        {"{{ lipsum }}", "lipsum is not built", PL_E_UNSUPPORTED},
        {"{% if self is defined %}x{% endif %}", "self is not built", PL_E_UNSUPPORTED},
        {"{% macro f(a) %}{{ varargs | length }}{% endmacro %}{{ f(1, 2) }}", "varargs or kwargs are not built",
         PL_E_UNSUPPORTED},
        {"{% macro f(a) %}{{ kwargs.b }}{% endmacro %}{{ f(1, b=2) }}", "varargs or kwargs are not built",
         PL_E_UNSUPPORTED},
        {"{% macro f(a) %}{% endmacro %}{{ f.name }}", "the member name of a macro is not built", PL_E_UNSUPPORTED},
        {"{% macro f(a) %}{% endmacro %}{{ f.arguments }}", "the member arguments of a macro", PL_E_UNSUPPORTED},
        {"{{ 'a'.zfill(3) }}", "the method zfill of a str is not built", PL_E_UNSUPPORTED},
        {"{% for i in [1] %}{{ loop.changed(i) }}{% endfor %}", "loop.changed is not built", PL_E_UNSUPPORTED},
        {"{% for i in x recursive %}{% endfor %}", "recursive", PL_E_UNSUPPORTED},
        {"{{ '{:>3}'.format(1) }}", "the field {:>3} is not built", PL_E_UNSUPPORTED},
        {"{{ ('a' | safe) | upper }}", "marked safe", PL_E_UNSUPPORTED},
        {"{{ ('a' | safe).replace('a', '<') }}", "marked safe", PL_E_UNSUPPORTED},
        {"{{ ('a' | safe).split('b') }}", "marked safe", PL_E_UNSUPPORTED},
        {"{{ ('%s' | safe) % '<' }}", "marked safe", PL_E_UNSUPPORTED},
        {"{{ 1e20 | int }}", "beyond 64 bits", PL_E_UNSUPPORTED},
        {"{{ '99999999999999999999' | int }}", "beyond 64 bits", PL_E_UNSUPPORTED},
        {"{{ '\xd9\xa1' | int }}", "digits beyond ASCII", PL_E_UNSUPPORTED},
        {"{{ '1_0' | float }}", "grouped by _", PL_E_UNSUPPORTED},
        {"{{ '-Inf' | float }}", "the number -Inf is not built", PL_E_UNSUPPORTED},
        {"{{ 'a\xca\xb0'.title() }}", "title: the letter", PL_E_UNSUPPORTED},
        {"{{ '\xc3\x9f' | upper }}", "the case of letters", PL_E_UNSUPPORTED},
        {"{{ 9223372036854775807 + 1 }}", "beyond 64 bits", PL_E_UNSUPPORTED},
        {"{{ 99999999999999999999 }}", "beyond 64 bits", PL_E_UNSUPPORTED},
        {"{{ strftime_now('%Y') }}", "which (date: YYYY-MM-DD)", PL_E_INPUT},
        {"{{ raise_exception('roles must alternate') }}", "refuses this conversation: roles must alternate",
         PL_E_INPUT},
        {"\n\n{{ x.y.z }}", "template:3: 'y' is undefined", PL_E_INPUT},
        {"{% if true %}\n{% endfor %}", "template:2: expected endif, found '{%'", PL_E_INPUT},
        {"{{ a", "template:1: a tag that does not end", PL_E_INPUT},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested more than", PL_E_INPUT},
        {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "needs more than 256 MB",
         PL_E_INPUT},
        {"{{ 'x' * 999999999 }}", "", PL_E_INPUT},
        {"{{ "
         "-------------------------------------------------------------------------------------------------------------"
         "---------------------1 }}",
         "nested more than", PL_E_INPUT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_jinja_out out;
        pl_err       err = {0};
        pl_status    st = render(bad[i].text, "{\"x\": {}}", NULL, &out, &err);
        if (st != bad[i].st || !strstr(err.msg, bad[i].says)) fail_msg("%s: %d, %s", bad[i].text, st, err.msg);
    }
    pl_jinja_out out;
    pl_err       err = {0};
    assert_int_equal(render("{{ strftime_now('%Y') }}", "{}", "2026-02-30", &out, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "date '2026-02-30'"));
    assert_int_equal(render("x", "[1]", NULL, &out, &err), PL_E_INPUT);
    assert_int_equal(render("x", "{\"a\": }", NULL, &out, &err), PL_E_INPUT);
    assert_int_equal(render("{{ a }}", "{\"a\": 123456789012345678901}", NULL, &out, &err), PL_E_UNSUPPORTED);
}

static void fill_json(pl_region *r, pl_chat_value vars, const void *text) {
    pl_chat_merge(r, vars, text, strlen(text));
}

static pl_status within(const char *text, const char *vars, pl_chat_bounds *bounds, pl_err *err) {
    pl_jinja    *t;
    pl_jinja_out out;
    PL_TRY(pl_jinja_compile(&t, "template", text, strlen(text), err));
    pl_status st = pl_jinja_render_within(t, fill_json, vars, NULL, bounds, &out, err);
    pl_jinja_out_fini(&out);
    pl_jinja_free(t);
    return st;
}

// `text` with `part` a hundred thousand times where it has a "@", and as many ")" where it has a "^".
static void hostile(const char *text, const char *part, const char *says) {
    pl_strbuf      b = {0};
    pl_err         err = {0};
    pl_chat_bounds bounds = {(size_t)256 << 20, 20000000, 0}; // a tenth of the steps that templates have
    for (const char *c = text; *c; c++)
        for (int i = 0; i < (*c == '@' || *c == '^' ? 100000 : 1); i++)
            pl_strbuf_add(&b, *c == '@' ? part : *c == '^' ? ")" : c, *c == '@' ? strlen(part) : 1);
    pl_strbuf_add(&b, "", 1);
    assert_false(b.failed);
    pl_status st = within(b.s, "{\"a\": 1}", &bounds, &err);
    if (st != PL_E_INPUT || !strstr(err.msg, says)) fail_msg("%.60s: %d, %s", text, st, err.msg);
    pl_strbuf_fini(&b);
}

// Templates are somebody else's: neither the stack nor anybody's patience ends before the template does.
static void hostile_templates(void **state) {
    (void)state;
    hostile("{{ a@ }}", "|d", "nested more than");
    hostile("{% filter d@ %}{% endfilter %}", "|d", "nested more than");
    hostile("{% set a | d@ %}{% endset %}", "|d", "nested more than");
    hostile("{% set @a^ = 1 %}", "(", "nested more than");
    hostile("{% for @a^ in [] %}{% endfor %}", "(", "nested more than");
    hostile("{% set s = '@' * 30 %}{{ s.rfind(s[1500000:] + 'b') }}", "a", "does not come to an end");
    hostile("{% set s = '@' * 30 %}{{ s.rsplit('b' + s[1500000:]) }}", "a", "does not come to an end");
    hostile("{% set s = '@' * 30 %}{{ s.strip('b' * 3000000) }}", "a", "does not come to an end");
    hostile("{% set s = '@' * 99 %}{% set t = s ~ '' %}{% for i in range(99999) %}{{ s == t or '' }}{% endfor %}", "a",
            "does not come to an end");
    hostile("{% set s = '@' * 99 %}{% for i in range(99999) %}{{ s.find('b') }}{% endfor %}", "a",
            "does not come to an end");
    hostile("{% set s = '@' | list %}{% for i in s %}{{ 'b' in s }}{% endfor %}", "a", "does not come to an end");
}

// Where the assistant speaks, in bytes of the text.
static void generation(void **state) {
    (void)state;
    pl_jinja_out out;
    pl_err       err = {0};
    assert_int_equal(render("{% for m in w %}<{{ m }}>{% generation %}{{ m }}!{% endgeneration %};{% endfor %}",
                            "{\"w\": [\"\xc3\xa9\", \"b\"]}", NULL, &out, &err),
                     PL_OK);
    assert_string_equal(out.text, "<\xc3\xa9>\xc3\xa9!;<b>b!;");
    assert_int_equal(out.n_spans, 2);
    assert_true(out.spans[0].from == 4 && out.spans[0].to == 7 && out.spans[1].from == 11 && out.spans[1].to == 13);
    pl_jinja_out_fini(&out);
    assert_int_equal(render("{% set x %}{% generation %}a{% endgeneration %}{% endset %}", "{}", NULL, &out, &err),
                     PL_E_UNSUPPORTED);
}

// ---- bounds

#define LONG (1 << 18) // bytes of the strings below
#define MANY 20000     // items of the lists
#define NAMES 5000

static void put_run(pl_strbuf *b, const char *name, const char *what, int times) {
    pl_strbuf_add(b, name, strlen(name));
    for (int i = 0; i < times; i++)
        pl_strbuf_add(b, what, strlen(what));
}

// s and t are alike, b is blank, o are digits, l and m are alike lists.
static char *long_values(int bytes, int items) {
    pl_strbuf b = {0};
    put_run(&b, "{\"s\": \"", "a", bytes);
    put_run(&b, "\", \"t\": \"", "a", bytes);
    put_run(&b, "\", \"b\": \"", " ", bytes);
    put_run(&b, "\", \"o\": \"", "7", bytes);
    put_run(&b, "\", \"l\": [1", ",1", items - 1);
    put_run(&b, "], \"m\": [1", ",1", items - 1);
    put_run(&b, "]}", "", 0);
    char *text = pl_strbuf_take(&b);
    assert_non_null(text);
    return text;
}

// The steps of a template that may fail, but not for lack of them.
static int64_t steps_of(const char *text, const char *vars) {
    pl_chat_bounds bounds = {(size_t)256 << 20, 200000000, 0};
    pl_err         err = {0};
    if (within(text, vars, &bounds, &err) != PL_OK && !strstr(err.msg, "index")) fail_msg("%s: %s", text, err.msg);
    return bounds.done;
}

// Whatever goes through a string, a list or the names takes steps by their length.
static void work_is_counted(void **state) {
    (void)state;
    static const char *const strings[] = {"b.isspace()",
                                          "s.isalpha()",
                                          "o.isdigit()",
                                          "s.split()",
                                          "b.split()",
                                          "s.split('x')",
                                          "s.rsplit()",
                                          "s.rsplit('x')",
                                          "s.splitlines()",
                                          "s.startswith(t)",
                                          "s.endswith(t)",
                                          "s.startswith(('x', t))",
                                          "s.removeprefix(t)",
                                          "s.removesuffix(t)",
                                          "b.strip()",
                                          "s.lstrip()",
                                          "s.rstrip()",
                                          "s.strip('b')",
                                          "b | trim",
                                          "s.find('x')",
                                          "s.rfind('x')",
                                          "s.count('x')",
                                          "s.index('x')",
                                          "s.replace('x', 'y')",
                                          "s.replace('', 'y')",
                                          "s | replace('x', 'y')",
                                          "s.upper()",
                                          "s.lower()",
                                          "s | upper",
                                          "s.title()",
                                          "s | title",
                                          "s.capitalize()",
                                          "s | capitalize",
                                          "s.join(['x', 'y'])",
                                          "['x', 'y'] | join(s)",
                                          "s[::-1]",
                                          "s[262000]",
                                          "s[262000:]",
                                          "s[:-1]",
                                          "s | first",
                                          "s | last",
                                          "s | list",
                                          "s | reverse",
                                          "s | length",
                                          "s | indent",
                                          "s | tojson",
                                          "{s: 1} | tojson",
                                          "[s] | string",
                                          "{s: 1} | string",
                                          "'%s' % s",
                                          "s % ()",
                                          "s | format",
                                          "'{}'.format(s)",
                                          "s.format()",
                                          "s | int",
                                          "o | int(1)",
                                          "o | float",
                                          "s + t",
                                          "s ~ t",
                                          "s * 2",
                                          "('<' | safe) + s",
                                          "'x' in s",
                                          "s in t",
                                          "s == t",
                                          "s != t",
                                          "s < t",
                                          "s is eq(t)",
                                          "[s, t] | sort",
                                          "[s, t] | max",
                                          "[s, t] | unique | list",
                                          "[{'a': 1}] | map(attribute=s) | list",
                                          "{s: 1}[t]",
                                          "{s: 1}.get(t)",
                                          "dict(**{s: 1})",
                                          "s | attr(t)",
                                          "[s] == [t]",
                                          "[s].index(t)",
                                          "[s].count(t)",
                                          "t in [s]",
                                          "{1: s} == {1: t}"};
    static const char *const lists[] = {"l == m",
                                        "[l] == [m]",
                                        "{1: l} == {1: m}",
                                        "l < m",
                                        "[l, m] | sort",
                                        "l.count(2)",
                                        "l.index(2)",
                                        "2 in l",
                                        "l | sum",
                                        "l | max",
                                        "l | min",
                                        "l | sort",
                                        "l | unique | list",
                                        "l | list",
                                        "l | reverse | list",
                                        "l | join",
                                        "l | tojson",
                                        "l | string",
                                        "l + m",
                                        "l * 2",
                                        "l[::-1]",
                                        "l[1:]",
                                        "l | map('abs') | list",
                                        "l | select | list",
                                        "l | reject('odd') | list"};
    char                    *vars = long_values(LONG, MANY);
    int64_t                  none = steps_of("{{ '' }}", vars);
    for (int kind = 0; kind < 2; kind++) {
        size_t  n = kind ? sizeof lists / sizeof *lists : sizeof strings / sizeof *strings;
        int64_t least = kind ? MANY / 2 : LONG / 64;
        for (size_t i = 0; i < n; i++) {
            char *text = pl_sprintf("{{ %s }}", kind ? lists[i] : strings[i]);
            if (steps_of(text, vars) - none < least) fail_msg("%s takes %ld steps", text, steps_of(text, vars) - none);
            pl_free(text);
        }
    }
    pl_free(vars);
    int64_t steps[2];
    for (int kind = 0; kind < 2; kind++) {
        pl_strbuf b = {0};
        for (int i = 0; i < NAMES; i++) {
            char *name = pl_sprintf("{%% set v%d = 1 %%}", i);
            put_run(&b, name, "", 0);
            pl_free(name);
        }
        put_run(&b, kind ? "{% for i in range(50) %}{{ v4999 }}" : "{% for i in range(50) %}{{ 1 }}", "", 0);
        put_run(&b, "{% endfor %}", "", 0);
        char *text = pl_strbuf_take(&b);
        assert_non_null(text);
        steps[kind] = steps_of(text, "{}");
        pl_free(text);
    }
    assert_true(steps[1] - steps[0] >= 50 * NAMES / 16);
}

// One limit for all that a template holds and prints.
static void memory_is_bounded(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{{ (range(1000) | list) | tojson(separators=[s, s]) }}",
        "{{ ('a\\n' * 1000) | indent(100000) }}",
        "{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}"
        "{{ n.a | tojson(indent=64) }}",
        "{% set n = namespace(a=[s]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}",
        "{% set n = namespace(a={1: s}) %}{% for i in range(60) %}{% set n.a = {1: n.a, 2: n.a} %}{% endfor %}"
        "{{ n.a | string }}",
        "{{ [s] * 100 }}",
        "{{ s * 100 }}",
        "{{ ([s] * 100) | join }}",
        "{{ ([1] * 100) | join(s) }}",
        "{{ s.replace('a', s) }}",
        "{{ s.replace('', s) }}",
        "{{ s | replace('a', s) | tojson }}",
        "{{ '%s%s%s%s%s%s%s%s%s%s' % (s, s, s, s, s, s, s, s, s, s) }}",
        "{{ '{0}{0}{0}{0}{0}{0}{0}{0}{0}{0}'.format(s) }}",
        "{{ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s }}",
        "{{ (s * 3) | upper ~ (s * 3) | lower }}",
        "{% for i in range(100) %}{{ s }}{% endfor %}",
        "{% set x %}{% for i in range(100) %}{{ s }}{% endfor %}{% endset %}",
        "{% macro f() %}{{ s }}{% endmacro %}{% for i in range(100) %}{% set x = f() %}{% endfor %}",
        "{% filter upper %}{% for i in range(100) %}{{ s }}{% endfor %}{% endfilter %}",
        "{{ (s * 2) | list }}",
    };
    char *vars = long_values(1 << 20, 1);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pl_chat_bounds bounds = {(size_t)8 << 20, 20000000, 0};
        pl_err         err = {0};
        pl_status      st = within(texts[i], vars, &bounds, &err);
        if (st != PL_E_INPUT || !strstr(err.msg, "needs more than 8 MB")) fail_msg("%s: %d, %s", texts[i], st, err.msg);
    }
    pl_free(vars);
}

// A long template ends at the first signal: by it, or, where the process holds it back, by the step that hears of it.
static void a_stop_is_heard(void **state) {
    (void)state;
    static const char text[] = "{% for i in range(99999) %}{% if s.isspace() %}{% endif %}{% endfor %}";
    char             *vars = long_values(LONG, 1), byte = 0;
    int               ready[2], status;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pl_chat_bounds bounds = {(size_t)256 << 20, INT64_MAX, 0};
        pl_err         err = {0};
        pl_stop_install();
        alarm(60);
        if (write(ready[1], &byte, 1) != 1) _exit(1);
        _exit(within(text, vars, &bounds, &err) == PL_E_INTERRUPTED && strcmp(err.msg, "template:1: interrupted") == 0
                  ? 0
                  : 2);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(kill(child, SIGTERM), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM))
        fail_msg("ended by %x", (unsigned)status);
    close(ready[0]);
    close(ready[1]);
    pl_free(vars);
}

// ---- templates of folders

static const char *folder_with(const char *name, const char *config, const char *template) {
    pl_err err;
    assert_ok(pl_dir_make(at(name), &err));
    char path[64];
    snprintf(path, sizeof path, "%s/tokenizer_config.json", name);
    if (config) put_text(at(path), config);
    snprintf(path, sizeof path, "%s/chat_template.jinja", name);
    if (template) put_text(at(path), template);
    return at(name);
}

static void expect(const char *dir, const char *file, const char *record, const pl_chat_options *o, const char *text) {
    pl_chat_template *t;
    pl_jinja_out      out;
    pl_err            err = {0};
    if (pl_chat_template_open(&t, dir, file, &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_chat_template_render(t, "here", 3, record, strlen(record), o, &out, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_string_equal(out.text, text);
    pl_jinja_out_fini(&out);
    pl_chat_template_close(t);
}

static void refused(const char *dir, const char *record, const pl_chat_options *o, const char *says) {
    pl_chat_template *t;
    pl_jinja_out      out;
    pl_err            err = {0};
    pl_status         st = pl_chat_template_open(&t, dir, NULL, &err);
    if (st == PL_OK) st = pl_chat_template_render(t, "here", 3, record, strlen(record), o, &out, &err);
    if (st == PL_OK || !strstr(err.msg, says)) fail_msg("wanted '%s', got '%s'", says, st ? err.msg : "a text");
    pl_chat_template_close(t);
}

#define MESSAGES "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]"

static void of_folders(void **state) {
    (void)state;
    pl_chat_options   plain = {0}, next = {.add_generation_prompt = true}, more = {.kwargs = "{\"think\": false}"};
    static const char lines[] = "{{ bos_token }}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
                                "{{ 'A:' if add_generation_prompt }}{{ think if think is defined }}";
    static const char tools[] = "{{ tools | tojson }}{{ messages | length }}{{ documents is none }}";
    static const char two[] = "{\"bos_token\": {\"content\": \"<s>\", \"lstrip\": false}, \"chat_template\": "
                              "[{\"name\": \"default\", \"template\": \"{{ bos_token }}plain\"}, {\"name\": "
                              "\"tool_use\", \"template\": \"{{ tools | tojson }}\"}]}";
    pl_err            err = {0};
    const char       *dir = folder_with("one", "{\"bos_token\": \"<s>\", \"chat_template\": \"not this\"}", lines);
    expect(dir, NULL, MESSAGES "}", &plain, "<s>[user:hi]");
    expect(dir, NULL, MESSAGES "}", &next, "<s>[user:hi]A:");
    expect(dir, NULL, MESSAGES "}", &more, "<s>[user:hi]False");
    expect(dir, NULL, MESSAGES ", \"chat_template_kwargs\": {\"think\": 1.0}}", &more, "<s>[user:hi]1.0");
    expect(dir, NULL,
           " { \"conversations\" : [{\"from\":\"human\",\"value\":\"a\\\"}\"},{\"from\":\"gpt\",\"value\":\"b\"}] } ",
           &plain, "<s>[user:a\"}][assistant:b]");
    put_text(at("other.jinja"), tools);
    expect(dir, at("other.jinja"), MESSAGES ", \"tools\": [ {\"a\": 1.0, \"b\": [1, \"]\"]} ], \"id\": 7}", &plain,
           "[{\"a\": 1.0, \"b\": [1, \"]\"]}]1True");
    expect(dir, at("other.jinja"), MESSAGES "}", &plain, "null1True");

    dir = folder_with("two", two, NULL);
    expect(dir, NULL, MESSAGES "}", &plain, "<s>plain");
    expect(dir, NULL, MESSAGES ", \"tools\": [{}]}", &plain, "[{}]");

    assert_ok(pl_dir_make(at("two/additional_chat_templates"), &err));
    put_text(at("two/additional_chat_templates/tool_use.jinja"), "{{ tools | length }}");
    expect(dir, NULL, MESSAGES ", \"tools\": [{}]}", &plain, "1");
    expect(dir, NULL, MESSAGES "}", &plain, "<s>plain");
    expect(dir, at("other.jinja"), MESSAGES ", \"tools\": [{}]}", &plain, "[{}]1True");

    dir = folder_with("none", "{\"bos_token\": \"<s>\"}", NULL);
    refused(dir, MESSAGES "}", &plain, "has no chat template");
    refused(folder_with("unnamed", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}]}", NULL),
            MESSAGES "}", &plain, "\"default\"");
    dir = at("one");
    refused(dir, "[]", &plain, "here:3");
    refused(dir, "{}", &plain, "it needs \"messages\"");
    refused(dir, "{\"messages\": []}", &plain, "without a message");
    refused(dir, "{\"messages\": [1]}", &plain, "a message is an object");
    refused(dir, "{\"messages\": [{\"content\": \"x\"}]}", &plain, "role");
    refused(dir, "{\"conversations\": [{\"from\": \"martian\", \"value\": \"x\"}]}", &plain, "martian");
    refused(dir, "{\"messages\": 5}", &plain, "messages");
    refused(dir, MESSAGES ", \"messages\": 5}", &plain, "messages");
    refused(dir, "{\"conversations\": [{\"from\": \"human\", \"value\": 5}]}", &plain, "value");
    more.kwargs = " {\"think\": [1.50]} ";
    expect(dir, NULL, MESSAGES "}", &more, "<s>[user:hi][1.5]");
    more.kwargs = "[1]";
    refused(dir, MESSAGES "}", &more, "not an object");
}

// NAME of the scratch folder: a vocabulary of four tokens, with templates where they are given.
static void put_gguf(const char *name, const char *usual, const char *tools, uint32_t bos) {
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "x"};
    pl_err                   err;
    gguf_array               list = {0};
    pl_gguf_out             *o = pl_gguf_out_new();
    assert_non_null(o);
    for (int i = 0; i < 4; i++)
        gguf_text(&list, tokens[i], strlen(tokens[i]));
    gguf_put_array(o, "tokenizer.ggml.tokens", &list);
    pl_gguf_put_u32(o, "tokenizer.ggml.bos_token_id", bos);
    pl_gguf_put_u32(o, "tokenizer.ggml.eos_token_id", 2);
    if (usual) pl_gguf_put_text(o, "tokenizer.chat_template", usual);
    if (tools) pl_gguf_put_text(o, "tokenizer.chat_template.tool_use", tools);
    assert_ok(pl_gguf_write(o, at(name), &err));
    pl_gguf_out_free(o);
}

// A GGUF file brings its own template and tokens; a folder's tokenizer.gguf where nothing else does.
static void of_gguf(void **state) {
    (void)state;
    static const char lines[] = "{{ bos_token }}{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
                                "{{ eos_token }}{{ pad_token is defined }}";
    pl_chat_options   plain = {0};
    put_gguf("a.gguf", lines, "{{ tools | tojson }}", 1);
    expect(at("a.gguf"), NULL, MESSAGES "}", &plain, "<s>[user:hi]</s>False");
    expect(at("a.gguf"), NULL, MESSAGES ", \"tools\": [{}]}", &plain, "[{}]");
    put_text(at("of.jinja"), "{{ eos_token }}!");
    expect(at("a.gguf"), at("of.jinja"), MESSAGES "}", &plain, "</s>!");
    folder_with("within", NULL, NULL);
    put_gguf("within/tokenizer.gguf", lines, NULL, 1);
    expect(at("within"), NULL, MESSAGES "}", &plain, "<s>[user:hi]</s>False");
    folder_with("within", NULL, "{{ messages | length }}");
    expect(at("within"), NULL, MESSAGES "}", &plain, "1");
    put_gguf("b.gguf", NULL, NULL, 1);
    refused(at("b.gguf"), MESSAGES "}", &plain, "has no chat template");
    put_gguf("b.gguf", lines, NULL, 7);
    refused(at("b.gguf"), MESSAGES "}", &plain, "tokenizer.ggml.bos_token_id is 7, outside the vocabulary");
    put_gguf("b.gguf", "{% for", NULL, 1);
    refused(at("b.gguf"), MESSAGES "}", &plain, "b.gguf:1");
}

static const char CONVERSATIONS[] =
    "{\"id\": 7, \"category\": \"c\", \"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
    "\"assistant\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", "
    "\"content\": \"d\"}, {\"role\": \"tool\", \"content\": \"e\"}]}\n"
    "{\"Conversations\": [{\"from\": \"system\", \"value\": \"s\"}, {\"from\": \"human\", \"value\": \"h\"}, "
    "{\"from\": \"gpt\", \"value\": \"g\"}]}\n"
    "{\"turns\": [\"first\", \"second\", \"third\"]}\n{\"Question\": \"q\"}\n"
    "{\"turns\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"user\", \"content\": \"y\"}]}\n";

static pl_chat_template *open_turns(void) {
    static const char text[] = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
                               "{{ 'A:' if add_generation_prompt }}";
    pl_chat_template *t;
    pl_err            err = {0};
    put_text(at("p.jsonl"), CONVERSATIONS);
    assert_ok(pl_chat_template_open(&t, folder_with("turns", NULL, text), NULL, &err));
    return t;
}

// A conversation of each record, its first turn rendered.
static void prompts_of_conversations(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t     line;
        int         turns;
    } want[] = {{"[system:S][user:a]A:", 1, 3},
                {"[system:s][user:h]A:", 2, 1},
                {"[system:S][user:first]A:", 3, 3},
                {"[system:S][user:q]A:", 4, 1},
                {"[system:S][user:x][user:y]A:", 5, 1}};
    static const char *const given[] = {"[system:S][user:a]A:",
                                        "[system:S][user:a][assistant:b][user:c]A:",
                                        "[system:S][user:a][assistant:b][user:c][assistant:d][tool:e]A:",
                                        "[system:s][user:h]A:",
                                        "[system:S][user:first]A:", // nobody has answered it
                                        "[system:S][user:q]A:",
                                        "[system:S][user:x][user:y]A:"};
    pl_chat_options          o = {.system = "S"};
    pl_prompts              *p, *turns, *sides[2];
    pl_err                   err = {0};
    pl_chat_template        *t = open_turns();
    assert_ok(pl_chat_prompts_read(&p, at("p.jsonl"), t, &o, &err));
    assert_int_equal(p->n, 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(p->p[i].text, want[i].text);
        assert_true(p->p[i].rendered && p->p[i].record && p->p[i].turns == want[i].turns);
        assert_int_equal(p->p[i].line, want[i].line);
    }
    assert_true(p->p[0].id == 7 && strcmp(p->p[0].category, "c") == 0);
    assert_ok(pl_chat_prompts_given(&turns, p, "p.jsonl", t, &o, false, &err));
    assert_int_equal(turns->n, 7);
    for (int i = 0; i < 7; i++) {
        assert_string_equal(turns->p[i].text, given[i]);
        assert_true(turns->p[i].rendered && !turns->p[i].record && turns->p[i].turns == 1);
    }
    assert_true(turns->p[2].id == 7 && turns->p[2].line == 1 && strcmp(turns->p[2].category, "c") == 0);
    assert_ok(pl_prompts_split(p, 1, 2, &sides[0], &sides[1], &err)); // which goes on with the records
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < sides[k]->n; i++)
            assert_true(sides[k]->p[i].record && sides[k]->p[i].turns == want[sides[k]->p[i].line - 1].turns);
        pl_prompts_destroy(sides[k]);
    }
    pl_prompts_destroy(turns);
    pl_prompts_destroy(p);
    put_text(at("p.jsonl"), "{\"question\": \"q\"}\n{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}\n");
    assert_int_equal(pl_chat_prompts_read(&p, at("p.jsonl"), t, &o, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "p.jsonl:2"));
    assert_non_null(strstr(err.msg, "to answer"));
    // Paragraphs are what users say, too; whole records keep the answers.
    put_text(at("p.txt"), "one\ntwo\n\nthree\n");
    assert_ok(pl_chat_prompts_read(&p, at("p.txt"), t, &o, &err));
    assert_int_equal(p->n, 2);
    assert_string_equal(p->p[0].text, "[system:S][user:one\ntwo]A:");
    assert_true(p->p[1].rendered && strcmp(p->p[1].text, "[system:S][user:three]A:") == 0);
    pl_prompts_destroy(p);
    put_text(at("p.jsonl"), CONVERSATIONS);
    assert_ok(pl_chat_texts_read(&p, at("p.jsonl"), t, &o, &err));
    assert_int_equal(p->n, 5);
    assert_string_equal(p->p[1].text, "[system:s][user:h][assistant:g]");
    assert_string_equal(p->p[2].text, "[system:S][user:first]");
    pl_prompts_destroy(p);
    put_text(at("p.jsonl"), "{\"turns\": []}\n");
    assert_int_equal(pl_chat_prompts_read(&p, at("p.jsonl"), t, &o, &err), PL_E_INPUT);
    put_text(at("p.jsonl"), "{\"turns\": [\"a\", 5]}\n");
    assert_int_equal(pl_chat_prompts_read(&p, at("p.jsonl"), t, &o, &err), PL_E_INPUT);
    pl_chat_template_close(t);
}

// Later turns: with what the assistant has said, as far as that is told, and without the oldest exchanges.
static void turns_of_conversations(void **state) {
    (void)state;
#define SAID(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
    static const char *const said[] = {SAID("ONE"), SAID("TWO")}, *const second[] = {NULL, SAID("TWO")};
    static const struct {
        int          record;
        pl_chat_turn turn;
        int          exchanges;
        const char  *text;
    } cases[] = {
        {0, {1, said, 0}, 2, "[system:S][user:a][assistant:ONE][user:c]A:"},
        {0, {1, said, 1}, 2, "[system:S][user:c]A:"},
        {0, {2, said, 0}, 2, "[system:S][user:a][assistant:ONE][user:c][assistant:d][tool:e]A:"}, // the tool's d
        {0, {2, said, 1}, 2, "[system:S][user:c][assistant:d][tool:e]A:"},
        {0, {2, NULL, 0}, 2, "[system:S][user:a][assistant:b][user:c][assistant:d][tool:e]A:"},
        {2, {0, NULL, 0}, 1, "[system:S][user:first]A:"},
        {2, {2, said, 0}, 3, "[system:S][user:first][assistant:ONE][user:second][assistant:TWO][user:third]A:"},
        {2, {2, said, 1}, 3, "[system:S][user:second][assistant:TWO][user:third]A:"},
        {2, {2, said, 2}, 3, "[system:S][user:third]A:"},
        {2, {2, second, 0}, 3, "[system:S][user:first][assistant:][user:second][assistant:TWO][user:third]A:"},
        {4, {0, NULL, 0}, 1, "[system:S][user:x][user:y]A:"},
    };
    pl_chat_options   o = {.system = "S"};
    pl_prompts       *p;
    pl_err            err = {0};
    pl_chat_template *t = open_turns();
    assert_ok(pl_chat_prompts_read(&p, at("p.jsonl"), t, &o, &err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_jinja_out     out;
        int              exchanges;
        const pl_prompt *prompt = &p->p[cases[i].record];
        assert_ok(pl_chat_prompt_turn(prompt, "p.jsonl", t, &o, &cases[i].turn, &out, &err));
        assert_string_equal(out.text, cases[i].text);
        pl_jinja_out_fini(&out);
        assert_ok(pl_chat_prompt_exchanges(prompt, "p.jsonl", cases[i].turn.number, &exchanges, &err));
        assert_int_equal(exchanges, cases[i].exchanges);
    }
    pl_prompts_destroy(p);
    pl_chat_template_close(t);
}

// The same template and tokens, the same hash; others, another one.
static void hashes(void **state) {
    (void)state;
    static const char *const configs[] = {"{\"bos_token\": \"a\", \"eos_token\": \"b\"}",
                                          "{\"eos_token\": \"b\", \"bos_token\": {\"content\": \"a\"}, \"x\": 1}",
                                          "{\"bos_token\": \"a\"}"};
    char                     hash[4][17];
    for (int i = 0; i < 4; i++) {
        pl_chat_template *t;
        pl_err            err;
        char              name[16];
        snprintf(name, sizeof name, "hash%d", i);
        assert_ok(pl_chat_template_open(&t, folder_with(name, configs[i % 3], i < 3 ? "x" : "y"), NULL, &err));
        memcpy(hash[i], pl_chat_template_hash(t), 17);
        pl_chat_template_close(t);
    }
    assert_string_equal(hash[0], hash[1]);
    assert_string_not_equal(hash[0], hash[2]);
    assert_string_not_equal(hash[0], hash[3]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_transformers),
        cmocka_unit_test(refusals),
        cmocka_unit_test(hostile_templates),
        cmocka_unit_test(generation),
        cmocka_unit_test(work_is_counted),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(a_stop_is_heard),
        cmocka_unit_test(of_folders),
        cmocka_unit_test(of_gguf),
        cmocka_unit_test(hashes),
        cmocka_unit_test(prompts_of_conversations),
        cmocka_unit_test(turns_of_conversations),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
