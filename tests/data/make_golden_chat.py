#!/usr/bin/env python3
"""Writes golden_chat.jsonl: templates, variables, and what transformers makes of them (its own Jinja environment).

    python tests/data/make_golden_chat.py > tests/data/golden_chat.jsonl     (needs transformers and jinja2; development only)

The first line has "vars", which all templates get, and "date", what strftime_now writes; the others "template", and
"text" or, where transformers fails, "error".
"""
import datetime
import json

from transformers.utils import chat_template_utils as hf

DATE = "2026-03-09"


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 9)


hf.datetime = Clock
NESTED = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Hi \u2603 <b>\"x\"</b> & 'y'\n"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1, "b": 1.0}}}]},
        {"role": "tool", "content": "[1, 2]", "name": "f"},
    ],
    "tools": [{"name": "f", "parameters": {"type": "object", "items": [1, 2.5, None, True, "z\u00fcrich \U0001f600"]}}],
    "n": 7, "x": 2.5, "s": "a,b,,c", "none": None, "yes": True, "empty": "", "words": ["Beta", "alpha", "beta", "Gamma"],
    "people": [{"name": "Zoe", "age": 3, "on": True}, {"name": "abe", "age": 30, "on": False}, {"name": "Max", "age": 3}],
}
CASES = [
    # text, comments, white space, raw
    "plain\n", "two\n\n", "a\r\nb\rc", "{# a comment #}\nx", "  {# c #}  \n y", "{#- c -#}  z", "{#-#}\n x",
    "a {%- if true %} b {%- endif %} c", "a\n  {% if true %}\n b\n  {% endif %}\n c", "  {%+ if true %}\n x{% endif +%}\n y",
    "{% if true -%}   \n  x   {%- endif %}  \n", "a {{- ' b ' -}} c", "{{ 'x' }}\n{{ 'y' }}\n",
    "{% raw %} {{ not this }} {% endraw %}\nx", "  {%- raw -%}  a {% b %}  {%- endraw -%}  c", "\t {% set a = 1 %}\t\n{{ a }}",
    "x{% set a = 1 %} \n{{ a }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': {}} }}", "\u2003{%- if 1 %}x{% endif %}",
    # literals
    "{{ 1 }} {{ 1_000 }} {{ 1.5 }} {{ 2e3 }} {{ 1e-5 }} {{ 1.0 }} {{ 123456789012345680.0 }} {{ 1e16 }} {{ 0.0001 }}",
    "{{ 0.1 + 0.2 }} {{ 1/3 }} {{ 100.0 }} {{ 1e22 }} {{ 12345.678 }} {{ -0.0 }} {{ 5e-324 }}",
    r"""{{ 'a\n\t\\\'\x41\u2603\101\q' }}{{ "b\"c" }}{{ 'one' 'two' }}""",
    "{{ [1, 'two', none, true, 2.0, {'k': 'v'}, (1,), (), (1, 2)] }}", "{{ ['it\\'s', '\"', '\\'\"', '\\n\\x00\\u200b\u2603'] }}",
    "{{ true }} {{ True }} {{ none }} {{ None }} {{ false }}", "{{ () }}{{ [] }}{{ {} }}", "{{ 1, 2 }}",
    # operators
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
    "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ +3 }} {{ - 3 }}",
    "{{ 'a' + 'b' }} {{ 'a' ~ 1 ~ none ~ x }} {{ 'ab' * 3 }} {{ 2 * [1] }} {{ [1] + [2, 3] }} {{ (1,) + (2,) }}",
    "{{ 'a' + 1 }}", "{{ missing + 'a' }}", "{{ 1 / 0 }}", "{{ none + 1 }}", "{{ 'a' < 1 }}", "{{ -'a' }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' == 'a' }} {{ [1, 2] == [1, 2] }} {{ (1,) == [1] }}",
    "{{ {'a': 1} == {'a': 1} }} {{ none == none }} {{ missing == missing2 }} {{ 'b' > 'a' }} {{ [1, 2] < [1, 3] }} {{ 2 >= 2 }}",
    "{{ 'a' in 'cat' }} {{ 'x' not in 'cat' }} {{ 1 in [1, 2] }} {{ 'a' in {'a': 1} }} {{ 'a' in missing }} {{ '' in '' }}",
    "{{ 1 in 'a' }}", "{{ not 1 == 2 }} {{ not true and false }} {{ 1 and 2 }} {{ 0 or 'x' }} {{ '' or none or [] }}",
    "{{ 'y' if yes else 'n' }} {{ 'y' if missing }}{{ 'a' if false else 'b' if false else 'c' }}",
    "{{ '%s-%d%%' % ('a', 3) }} {{ 'v=%s' % 2 }} {{ '%s' % [1] }}", "{{ 5 % 3 * 2 }} {{ 'a' ~ 'b' + 'c' }}",
    # members, subscripts, slices
    "{{ messages[0].role }} {{ messages[0]['role'] }} {{ messages[-1].name }} {{ messages[9] }}|{{ messages[0].nothing }}",
    "{{ messages.0.role }} {{ tools[0].parameters['items'][4] }} {{ tools[0].parameters.items is callable }}",
    "{{ missing.x }}", "{{ missing['x'] }}", "{{ none.x }}|{{ n.x }}|{{ s.x }}|{{ none['x'] }}", "{{ s[0] }}{{ s[-1] }}{{ s[99] }}",
    "{{ s[1:] }} {{ s[:-1] }} {{ s[::2] }} {{ s[::-1] }} {{ words[1:3] }} {{ words[::-1] }} {{ words[5:] }} {{ words[-2:] }}",
    "{{ 'h\u00e9llo \U0001f600'[1:4] }} {{ 'h\u00e9llo'[-3:] }} {{ '\U0001f600x'[0] }} {{ words[3:0:-2] }} {{ (1, 2, 3)[1:] }}",
    "{{ words['0'] }}|{{ words['x'] }}", "{{ x[0] }}", "{{ messages[n:] }}",
    # set, scope, namespaces
    "{% set a = 1 %}{% for i in [1] %}{% set a = 2 %}{{ a }}{% endfor %}{{ a }}",
    "{% set a = 1 %}{% if true %}{% set a = 2 %}{% endif %}{{ a }}", "{% set a, b = 1, 2 %}{{ b }}{{ a }}",
    "{% set a, b = [1] %}", "{% set ns = namespace(a=1, b='x') %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}",
    "{% set n.a = 1 %}", "{% set m %}  block {{ n }} {% endset %}[{{ m }}]", "{% set m | trim | upper %}  block  {% endset %}[{{ m }}]",
    "{% set ns = namespace({'q': 1}) %}{{ ns.q }}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% for i in [1, 2] %}{% if i == 1 %}{% set seen = 'x' %}{% endif %}{{ seen }}|{% endfor %}",
    "{% set q = 1 %}{% set q %}{% set q = 5 %}{{ q }}{% endset %}{{ q }}",
    # for
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }} {% endfor %}",
    "{% for m in messages if m.role != 'tool' %}{{ loop.index }}:{{ m.role }} {% else %}none{% endfor %}",
    "{% for m in [] %}x{% else %}empty{% endfor %}", "{% for m in missing %}x{% else %}empty{% endfor %}", "{% for m in none %}{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in {'a': 1} %}{{ k }}{% endfor %}",
    "{% for c in 'h\u00e9' %}[{{ c }}]{% endfor %}", "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.depth }}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined }}>{{ loop.nextitem.role if not loop.last }} {% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for i in range(2, 8, 3) %}{{ i }}{% endfor %}{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}",
    "{% for i in [1,2] %}{% with %}{% if i == 1 %}{% continue %}{% endif %}{% endwith %}{{ i }}{% endfor %}",
    # macros, call, filter blocks, generation
    "{% macro f(a, b='x') %}[{{ a }}{{ b }}{{ n }}]{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(b=3, a=4) }}{{ f() }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f() %}{{ z }}{% endmacro %}{% set z = 1 %}{{ f() }}{% set z = 2 %}{{ f() }}",
    "{% macro f() %}<{{ caller('q') }}>{% endmacro %}{% call(v) f() %}in {{ v }}{% endcall %}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(c=2) }}",
    "{% macro f(x) %}{% for i in x %}{{ i }},{% endfor %}{% endmacro %}{% set r = f([1, 2]) %}{{ r | length }}{{ r }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'b') | trim %}  aaa  {% endfilter %}",
    "{% for m in messages %}{% if m.role == 'system' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.role }}{% endif %}{% endfor %}",
    # tests
    "{{ n is defined }}{{ missing is defined }}{{ missing is undefined }}{{ none is none }}{{ n is not none }}{{ messages[0].q is defined }}",
    "{{ s is string }}{{ n is string }}{{ n is number }}{{ yes is number }}{{ x is float }}{{ n is integer }}{{ yes is integer }}{{ yes is boolean }}",
    "{{ tools is iterable }}{{ s is iterable }}{{ missing is iterable }}{{ n is iterable }}{{ s is sequence }}{{ tools[0] is sequence }}{{ tools[0] is mapping }}{{ s is mapping }}",
    "{{ yes is true }}{{ n is true }}{{ empty is false }}{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}{{ n is eq 7 }}{{ n is in [7] }}{{ 3 is lt 4 }}",
    "{{ 'upper' is filter }}{{ n is equalto(7) and true }}{{ 'x' if s is string else 'y' }}{{ not n is string }}", "{{ n is not string or false }}", "{{ n is nosuch }}",
    # filters
    "{{ missing | default('d') }}{{ none | default('d') }}{{ empty | default('d', true) }}{{ n | d(1) }}{{ none | default('d', boolean=True) }}",
    "{{ s | length }}{{ words | count }}{{ tools[0] | length }}{{ missing | length }}{{ 'h\u00e9' | length }}", "{{ n | length }}",
    "[{{ '  a b ' | trim }}][{{ 'xxaxx' | trim('x') }}][{{ '\u2003a\u2003' | trim }}]", "{{ 'aBc' | upper }}{{ 'aBc' | lower }}{{ 'aBC d' | capitalize }}{{ 'it is-a (test) of' | title }}{{ '\u00e9t\u00e9' | upper }}",
    "{{ 'aaa' | replace('a', 'b') }}{{ 'aaa' | replace('a', 'b', 2) }}{{ 'ab' | replace('', '-') }}{{ n | replace('7', '8') }}",
    "{{ words | join }}{{ words | join(', ') }}{{ people | join(';', attribute='name') }}{{ [1, none, 'x'] | join('-') }}{{ missing | join(',') }}",
    "{{ words | first }}{{ words | last }}{{ 'abc' | first }}{{ [] | first }}{{ 'abc' | last }}{{ [] | last }}|", "{{ 'abc' | list }}{{ {'a': 1} | list }}{{ (1, 2) | list }}{{ 'abc' | reverse }}{{ words | reverse | list }}",
    "{{ {'b': 1, 'a': 2} | items | list }}{{ {'b': 1, 'A': 2} | dictsort }}{{ {'b': 1, 'a': 2} | dictsort(by='value') }}{{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}",
    "{{ words | sort }}{{ words | sort(case_sensitive=true) }}{{ words | sort(reverse=true) }}{{ people | sort(attribute='age') | map(attribute='name') | list }}{{ people | sort(attribute='age', reverse=true) | map(attribute='name') | list }}",
    "{{ words | unique | list }}{{ [3, 1, 3] | unique | list }}{{ [3, 1, 2] | max }}{{ words | min }}{{ [1, 2.5] | sum }}{{ people | sum(attribute='age') }}{{ [] | sum }}",
    "{{ -3 | abs }}{{ (-3) | abs }}{{ 2.7 | int }}{{ '12' | int }}{{ ' 12 ' | int }}{{ 'x' | int }}{{ 'x' | int(5) }}{{ '3.7' | int }}{{ '1.5' | float }}{{ 'x' | float }}{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.345 | round(2) }}{{ 7 | round }}",
    "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, blank=true) }}|{{ 'a\\nb\\n' | indent('> ') }}|",
    "{{ tools | tojson }}", "{{ tools | tojson(indent=2) }}", "{{ {'b': [], 'a': {}} | tojson(indent=4) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}",
    "{{ tools | tojson(ensure_ascii=true) }}", "{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}", "{{ '\\x01\\x7f\"\\\\/\\b\\f\u2028' | tojson }}{{ {1: 2, none: 3, true: 4} | tojson }}", "{{ missing | tojson }}",
    "{{ people | map(attribute='name') | join(',') }}{{ words | map('upper') | join(',') }}{{ people | map(attribute='on', default='?') | join(',') }}{{ words | map('replace', 'a', '4') | list }}",
    "{{ people | selectattr('on') | map(attribute='name') | list }}{{ people | rejectattr('on', 'defined') | map(attribute='name') | list }}{{ people | selectattr('age', 'equalto', 3) | list | length }}",
    "{{ [1, 2, 3, 4] | select('even') | list }}{{ [0, 1, ''] | select | list }}{{ [1, 2] | reject('odd') | list }}{{ none | selectattr('a') | list }}{{ none | map('upper') | list }}",
    "{{ '%s %s' | format('a', 1) }}{{ people[0] | attr('items') is callable }}{{ n | string + 'x' }}{{ none | string }}", "{{ ('<' | safe) + '<' }}{{ '<' + ('>' | safe) }}{{ ('<' | safe) ~ '<' }}{{ '<' | safe }}{{ [1] | tojson | safe }}",
    "{{ n | nosuch }}", "{{ s | trim(1, 2, 3) }}", "{{ 'a' | upper | lower | title }}",
    # generators, views and ranges
    "{{ 'y' if people | selectattr('nosuch') else 'n' }}{{ 'y' if [] | map('upper') | list else 'n' }}{{ 'y' if {}.items() else 'n' }}{{ 'y' if range(0) else 'n' }}",
    "{% set g = words | map('upper') %}{{ g | join }}|{{ g | join }}|{{ g | list }}", "{% set g = words | map('upper') %}{{ 'ALPHA' in g }}{{ g | list }}", "{% set g = words | select %}{{ g | first }}{{ g | list }}",
    "{% set g = words | reverse %}{% for w in g %}{{ w }}{{ loop.last }}{% endfor %}{% for w in g %}x{% endfor %}", "{{ words | map('upper') | length }}", "{{ words | map('upper') | tojson }}", "{{ (words | map('upper'))[0] }}|{{ {'a': 1}.items()[0] }}|{{ range(5)[1] }}{{ range(5) | length }}{{ {'a': 1}.keys() | length }}",
    "{{ (words | map('upper')) + [1] }}", "{{ words | select | last }}", "{{ words | map('upper') is sequence }}{{ {}.items() is sequence }}{{ range(1) is sequence }}{{ words | map('upper') is iterable }}", "{{ {'a': 1} | items | first }}{{ [1] == range(1) }}{{ range(2) == range(2) }}{{ range(3) | tojson }}", "{{ [3, 1] | sort | first }}{{ {'a': 1}.values() | sum }}{{ {'a': 1}.items() | tojson }}", "{{ words[1:] | map('upper') | sort | join }}{{ words | unique | map('lower') | list }}",
    # methods
    "{{ s.split(',') }}{{ s.split(',', 1) }}{{ ' a  b '.split() }}{{ 'a b c'.split(None, 1) }}{{ 'a b c'.split(maxsplit=1) }}{{ s.rsplit(',', 1) }}{{ s.rsplit(',') }}",
    "[{{ ' a '.strip() }}][{{ ' a '.lstrip() }}][{{ ' a '.rstrip() }}][{{ 'xax'.strip('x') }}][{{ 'xyaxy'.lstrip('yx') }}][{{ 'a\\n\\n'.rstrip('\\n') }}]",
    "{{ s.startswith('a') }}{{ s.endswith(('x', 'c')) }}{{ s.replace(',', ';', 1) }}{{ s.upper() }}{{ 'aB'.lower() }}{{ 'ab cd'.title() }}{{ 'aB'.capitalize() }}{{ \"they're x1y\".title() }}",
    "{{ '-'.join(words) }}{{ s.find('b') }}{{ s.find('q') }}{{ s.rfind(',') }}{{ '\u00e9,x'.find('x') }}{{ s.index('b') }}{{ s.count(',') }}{{ 'aaa'.count('aa') }}{{ 'ab'.count('') }}", "{{ s.index('q') }}", "{{ '-'.join([1]) }}",
    "{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ 'ab'.isalpha() }}{{ ' \\t'.isspace() }}{{ 'ab'.removeprefix('a') }}{{ 'ab'.removesuffix('b') }}{{ 'a\\nb\\r\\nc\\n'.splitlines() }}",
    "{{ '{} {1} {k} {{}}'.format(1, 2, k=3) }}", "{{ '{} {} {k} {{}}'.format(1, 'b', k=[1]) }}", "{{ '{}'.format() }}", "{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 2) }}{{ {'a': 1}.keys() | list }}{{ {'a': 1}.values() | list }}",
    "{{ words.index('beta') }}{{ words.count('beta') }}", "{{ words.append(1) }}", "{% if words.pop() %}{% endif %}", "{{ s.nosuch() }}", "{{ n() }}", "{{ missing() }}",
    # functions
    "{{ strftime_now('%d %b %Y %H:%M %A %j') }}", "{{ raise_exception('no ' ~ n) }}", "{{ dict(a=1, b=2) }}{{ dict({'a': 1}, b=2) }}", "{{ range(3) | list }}{{ range(0) | list }}",
    # what Python does at the edges: numbers, blanks, letters, what is undefined
    "{{ 1.0 // 0.1 }} {{ -1.0 // 0.3 }} {{ -4.0 % 2 }} {{ 4 % -2.5 }} {{ 0.0 // -3 }} {{ +-0.0 }} {{ -0.0 | abs }} {{ +yes }}", "{{ +'a' }}", "{{ 'a' | abs }}",
    "{{ yes | round }} {{ yes | round(2) }} {{ '1e999' | int(4) }} {{ '-' | float(2) }}", "{{ ' a  b  c \\n'.split(None, 1) }}{{ 'a b '.split(maxsplit=2) }}{{ ' a '.split(None, 1) }}",
    "{{ '\u65e5a \u01c6b \u10d0 x\u2170y'.title() }}{{ '\u01c6'.capitalize() }}{{ 'a\u00a0b\u3000c' | title }}{{ '\\x7f\u00e9' | tojson(ensure_ascii=true) }}",
    "{{ missing is sequence }}{{ missing is callable }}{% for i in [1] %}{{ loop is callable }}{% endfor %}", "{{ {'a': 1} | attr('a') }}|{{ namespace(a=1) | attr('a') }}",
    "{{ [{'a': {}}, {'a': {'b': 1}}, {}] | map(attribute='a.b', default='x') | list }}{{ [{}] | map(attribute='q', default=none) | join }}",
    "{% for i in [1, 2] %}{% if i == 1 %}{% continue %}{% endif %}{% break %}{% else %}else{% endfor %}", "{% for i in [1, 2] %}{{ i }}{% if i == 2 %}{% break %}{% endif %}{% else %}else{% endfor %}",
    "{% for i in [1, 2] %}{{ i }}{% for j in [] %}{% else %}{% break %}{% endfor %}{% endfor %}", "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) }}",
    "{{ ('<a' | safe).startswith('<') }}{{ ('<a' | safe).find('a') }}{{ ('<a' | safe).count('a') }}{{ 'a' in ('<a' | safe) }}",
    # what is no template
    "{% if %}", "{% if true %}", "{% endif %}", "{{ 1 +", "{{ }}", "{% for in x %}{% endfor %}", "{{ 'abc }}", "{# x", "{% break %}", "{% nosuch %}", "{{ a b }}", "{{ (1 }}", "{{ [1, 2 }}", "{{ 1 if }}", "{% set 1 = 2 %}", "{{ x..y }}",
    "{% macro f(a %}{% endmacro %}", "{% raw %}x", "{{ $ }}", "{% else %}", "{{ {1} }}",
]


def main():
    print(json.dumps({"vars": NESTED, "date": DATE}))
    for template in CASES:
        record = {"template": template}
        try:
            record["text"] = hf._compile_jinja_template(template).render(**NESTED)
        except Exception as e:
            record["error"] = type(e).__name__
        print(json.dumps(record, ensure_ascii=True))


main()
