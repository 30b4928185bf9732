// Chat templates: a template, a line "====", and its variables.
#include "data/chat/jinja.h"
#include "tests/fuzz/fuzz.h"
#include <stdio.h>
#include <string.h>

static const char vars[] =
    "\n====\n{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
    "\"content\": \"\\u00e9\", \"tool_calls\": [{\"a\": [1, 2.5, null]}]}], \"tools\": null, "
    "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"words\": [\"b\", \"A\"]}";

static void seed(const char *template) {
    char text[2048];
    snprintf(text, sizeof text, "%s%s", template, vars);
    pl_fuzz_seed_text(text);
}

static void seeds(void) {
    seed("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m['content'] | trim }}</s>\n{% endfor %}"
         "{%- if add_generation_prompt -%}<|assistant|>{%- endif %}");
    seed("{% macro f(a, b=2) %}{{ a ~ b }}{% endmacro %}{{ f(1) }}{{ f(b=3, a=4) }}{% call f(1) %}{% endcall %}");
    seed("{% set ns = namespace(i=0) %}{% for m in messages[::-1] if m.role != 'x' %}{% set ns.i = ns.i + loop.index %}"
         "{% if loop.last %}{% break %}{% endif %}{% else %}{{ none }}{% endfor %}{{ ns.i // 2 ** 3 % 5 - -1 }}");
    seed("{{ messages | tojson(indent=2) }}{{ words | sort | join(', ') | upper | replace('A', 'b') | indent }}"
         "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | length }}");
    seed(
        "{%- raw -%} {{ x }} {%- endraw -%}{# c -#}  {%+ if tools is none and 'a' in 'cat' %}{{ 'a,b'.split(',')[-1] }}"
        "{% elif words[0].startswith('b') %}{{ '%s' % 1 }}{{ '{}{k}'.format(1, k=2) }}{% endif %}");
    seed("{% set x %}{% generation %}q{% endgeneration %}{% endset %}{% filter title %}a b{% endfilter %}"
         "{% with a = (1, 'x'), b = {'k': [1.5e3]} %}{{ a }}{{ b }}{{ b.items() | list | tojson }}{% endwith %}");
}

static const char *const words[] = {"{{ ",
                                    " }}",
                                    "{% ",
                                    " %}",
                                    "{%-",
                                    "-%}",
                                    "for x in ",
                                    "endfor",
                                    "if ",
                                    "endif",
                                    "else",
                                    "set x = ",
                                    "macro f(a) ",
                                    "endmacro",
                                    "endset",
                                    " is defined",
                                    " is string",
                                    " | ",
                                    "tojson",
                                    "length",
                                    "join(',')",
                                    "loop.index",
                                    "namespace(a=1)",
                                    "messages",
                                    "[::2]",
                                    "[-1]",
                                    ".items()",
                                    ".split('a')",
                                    " in ",
                                    " not ",
                                    " and ",
                                    " ~ ",
                                    "range(9)",
                                    "none",
                                    "'\\u0041'",
                                    "1e400",
                                    "-9223372036854775808",
                                    "\xC3\xA9",
                                    "continue",
                                    "\n====\n",
                                    NULL};

const pl_fuzz_target pl_fuzz = {.name = "chat", .seeds = seeds, .words = words, .runs = 40000, .max_len = 1 << 13};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err       err = {0};
    pl_jinja    *t;
    pl_jinja_out out;
    const char  *text = (const char *)data, *split = n ? memmem(data, n, "\n====\n", 6) : NULL;
    size_t       n_template = split ? (size_t)(split - text) : n;
    if (!pl_fuzz_result(pl_jinja_compile(&t, "template", text, n_template, &err), &err, &t)) return 0;
    const char *values = split ? split + 6 : "{}";
    size_t      n_values = split ? n - n_template - 6 : 2;
    if (pl_fuzz_result(pl_jinja_render(t, values, n_values, "2026-03-09", &out, &err), &err, NULL)) {
        if (strlen(out.text) > out.n) pl_fuzz_finding("the text does not end");
        pl_jinja_out_fini(&out);
    }
    pl_jinja_free(t);
    return 0;
}
