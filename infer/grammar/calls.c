#include "infer/grammar/calls.h"

#include "infer/grammar/readers.h"
#include "kernels/base/arena.h"

#include <string.h>

const char *const pl_mark_text[PL_MARKS] = {"<tool_call>",   "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]",
                                            "[ARGS]",        "[CALL_ID]",    "<|start|>",      "<|channel|>",
                                            "<|constrain|>", "<|message|>",  "<|end|>"};

_Static_assert(PL_MARK_BYTE + PL_MARKS <= 256, "a mark is a byte");

char *pl_calls_write(const pl_calls *c) {
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    pl_put_int(&o, "form", c->form);
    pl_put_int(&o, "reasoning", c->reasoning);
    pl_put_bool(&o, "many", c->many);
    pl_put_array(&o, "tools");
    for (int i = 0; i < c->n; i++)
        pl_json_out_node(&o, c->functions[i]);
    pl_json_out_close(&o, ']');
    pl_json_out_close(&o, '}');
    return pl_json_out_end(&o, NULL) == PL_OK ? o.text : NULL;
}

typedef struct reader {
    pl_nodes   *g;
    pl_json     json;
    const bool *spelt;
    int64_t     form;
} reader;

// ---- nodes ----------------------------------------------------------------------------------------------------------

static void add_text(const reader *r, int32_t seq, const char *s) {
    pl_node_add(r->g, seq, pl_node_text(r->g, s, strlen(s)));
}

static bool is_token(const reader *r, pl_mark m) {
    return r->spelt[PL_MARK_BYTE + m];
}

static void add_mark(const reader *r, int32_t seq, pl_mark m) {
    uint8_t byte = (uint8_t)(PL_MARK_BYTE + m);
    if (is_token(r, m))
        pl_node_add(r->g, seq, pl_node_byte(r->g, byte, byte));
    else
        add_text(r, seq, pl_mark_text[m]);
}

// Returns the length of the longest beginning of s that ends the first i bytes of s and then c.
static size_t go_on(const char *s, size_t i, char c) {
    size_t k = i + 1;
    while (k > 0 && (s[k - 1] != c || memcmp(s, s + i + 1 - k, k - 1) != 0))
        k--;
    return k;
}

// Any text up to the first s, of at most 16 ASCII characters, and s: a rule for each beginning of s that is read, as
// Knuth, Morris and Pratt search.
static int32_t until_text(const reader *r, const char *s) {
    enum { MOST = 16 };
    pl_nodes     *g = r->g;
    int32_t       rule[MOST + 1];
    pl_char_range other[MOST + 1];
    size_t        n = strlen(s);
    for (size_t i = 0; i < n; i++) {
        rule[i] = pl_node_rule(g);
        other[i] = (pl_char_range){(uint8_t)s[i], (uint8_t)s[i]};
    }
    rule[n] = pl_node_empty(g);
    int32_t others = pl_node_chars(g, other, pl_char_ranges_merge(other, (int)n, true));
    for (size_t i = 0; i < n; i++) {
        int32_t alt = pl_node_list(g, PL_NODE_ALT);
        for (size_t k = 0; k < n; k++)
            if (strchr(s, s[k]) == s + k)
                pl_node_add(g, alt,
                            pl_node_pair(g, PL_NODE_SEQ, pl_node_byte(g, (uint8_t)s[k], (uint8_t)s[k]),
                                         rule[go_on(s, i, s[k])]));
        pl_node_add(g, alt, pl_node_pair(g, PL_NODE_SEQ, others, rule[0]));
        pl_node_define(g, rule[i], alt);
    }
    return rule[0];
}

static void add_until(const reader *r, int32_t seq, pl_mark m) {
    static const pl_char_range any = {0, 0x10FFFF};
    if (!is_token(r, m)) {
        pl_node_add(r->g, seq, until_text(r, pl_mark_text[m]));
        return;
    }
    pl_node_add(r->g, seq, pl_node_repeat(r->g, pl_node_chars(r->g, &any, 1), 0, PL_GRAMMAR_MANY));
    add_mark(r, seq, m);
}

static void add_optional(const reader *r, int32_t seq, int32_t node) {
    pl_node_add(r->g, seq, pl_node_repeat(r->g, node, 0, 1));
}

// ---- a call ---------------------------------------------------------------------------------------------------------

// {"name": "f", "KEY": arguments}
static pl_status add_object(const reader *r, int32_t seq, const char *name, const char *key, int32_t arguments,
                            pl_err *err) {
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_str(&o, name);
    PL_TRY(pl_json_out_end(&o, err));
    add_text(r, seq, "{\"name\": ");
    add_text(r, seq, o.text);
    add_text(r, seq, ", \"");
    add_text(r, seq, key);
    add_text(r, seq, "\": ");
    pl_node_add(r->g, seq, arguments);
    add_text(r, seq, "}");
    pl_free(o.text);
    return PL_OK;
}

static void add_named(const reader *r, int32_t seq, const char *name, int32_t arguments) {
    static const pl_char_range letters[] = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}};
    int32_t                    id = pl_node_list(r->g, PL_NODE_SEQ);
    add_mark(r, seq, PL_MARK_CALLS);
    add_text(r, seq, name);
    add_mark(r, id, PL_MARK_CALL_ID);
    pl_node_add(r->g, id, pl_node_repeat(r->g, pl_node_chars(r->g, letters, 3), 9, 9));
    if (is_token(r, PL_MARK_CALL_ID)) add_optional(r, seq, id);
    add_mark(r, seq, PL_MARK_ARGS);
    pl_node_add(r->g, seq, arguments);
}

static void add_channel(const reader *r, int32_t seq, const char *name, int32_t arguments) {
    add_mark(r, seq, PL_MARK_CHANNEL);
    add_text(r, seq, "commentary to=functions.");
    add_text(r, seq, name);
    add_text(r, seq, " ");
    add_mark(r, seq, PL_MARK_CONSTRAIN);
    add_text(r, seq, "json");
    add_mark(r, seq, PL_MARK_MESSAGE);
    pl_node_add(r->g, seq, arguments);
}

static pl_status read_call(const reader *r, const cJSON *tool, int32_t *out, pl_err *err) {
    const char  *name;
    const cJSON *schema;
    int32_t      arguments = 0, seq = pl_node_list(r->g, PL_NODE_SEQ);
    PL_TRY(pl_json_get_str(&r->json, tool, "name", &name, err));
    PL_TRY(pl_json_opt_object(&r->json, tool, "parameters", &schema, err));
    if (schema && !schema->child) schema = NULL;
    PL_TRY(pl_schema_node(&arguments, r->g, &r->json, schema, err));
    *out = seq;
    switch ((pl_call_form)r->form) {
    case PL_CALLS_HERMES:
        add_mark(r, seq, PL_MARK_OPEN);
        add_text(r, seq, "\n");
        PL_TRY(add_object(r, seq, name, "arguments", arguments, err));
        add_text(r, seq, "\n");
        add_mark(r, seq, PL_MARK_CLOSE);
        return PL_OK;
    case PL_CALLS_LLAMA: return add_object(r, seq, name, "parameters", arguments, err);
    case PL_CALLS_MISTRAL: return add_object(r, seq, name, "arguments", arguments, err);
    case PL_CALLS_MISTRAL_ARGS: add_named(r, seq, name, arguments); return PL_OK;
    default: add_channel(r, seq, name, arguments); return PL_OK;
    }
}

// ---- an answer ------------------------------------------------------------------------------------------------------

static void add_reasoning(const reader *r, int32_t seq, int64_t reasoning) {
    pl_nodes *g = r->g;
    int32_t   text = pl_node_list(g, PL_NODE_SEQ);
    if (r->form == PL_CALLS_HARMONY) {
        add_mark(r, text, PL_MARK_CHANNEL);
        add_text(r, text, "analysis");
        add_mark(r, text, PL_MARK_MESSAGE);
        add_until(r, text, PL_MARK_END);
        add_mark(r, text, PL_MARK_START);
        add_text(r, text, "assistant");
        add_optional(r, seq, text);
        return;
    }
    if (reasoning == PL_REASONING_NONE) return;
    if (reasoning == PL_REASONING_MAY) add_text(r, text, "<think>");
    pl_node_add(g, text, until_text(r, "</think>"));
    pl_node_add(g, text, pl_node_repeat(g, pl_node_byte(g, '\n', '\n'), 0, 2));
    if (reasoning == PL_REASONING_MAY)
        add_optional(r, seq, text);
    else
        pl_node_add(g, seq, text);
}

// One call, or several with what stands between them.
static void add_calls(const reader *r, int32_t seq, int32_t call, bool many) {
    pl_nodes   *g = r->g;
    const char *between = r->form == PL_CALLS_HERMES ? "\n" : r->form == PL_CALLS_MISTRAL ? ", " : "";
    int32_t     more = pl_node_list(g, PL_NODE_SEQ);
    if (r->form == PL_CALLS_MISTRAL) {
        add_mark(r, seq, PL_MARK_CALLS);
        add_optional(r, seq, pl_node_byte(g, ' ', ' '));
        add_text(r, seq, "[");
    }
    pl_node_add(g, seq, call);
    add_text(r, more, between);
    pl_node_add(g, more, call);
    if (many && r->form != PL_CALLS_LLAMA && r->form != PL_CALLS_HARMONY) // whose answers end behind a call
        pl_node_add(g, seq, pl_node_repeat(g, more, 0, PL_GRAMMAR_MANY));
    if (r->form == PL_CALLS_MISTRAL) add_text(r, seq, "]");
}

static pl_status read_answer(reader *r, pl_err *err) {
    int64_t      reasoning;
    bool         many;
    const cJSON *tools, *tool;
    int32_t      call = pl_node_list(r->g, PL_NODE_ALT), seq = pl_node_list(r->g, PL_NODE_SEQ);
    PL_TRY(pl_json_get_int(&r->json, NULL, "form", PL_CALLS_HERMES, PL_CALLS_HARMONY, &r->form, err));
    PL_TRY(pl_json_get_int(&r->json, NULL, "reasoning", 0, PL_REASONING_BEGUN, &reasoning, err));
    PL_TRY(pl_json_get_bool(&r->json, NULL, "many", &many, err));
    PL_TRY(pl_json_get_array(&r->json, NULL, "tools", &tools, err));
    cJSON_ArrayForEach(tool, tools) {
        int32_t one = 0;
        PL_TRY(read_call(r, tool, &one, err));
        pl_node_add(r->g, call, one);
    }
    add_reasoning(r, seq, reasoning);
    add_calls(r, seq, call, many);
    r->g->root = seq;
    return PL_OK;
}

pl_status pl_calls_read(pl_nodes *g, const char *text, size_t n, const bool spelt[256], pl_err *err) {
    reader r = {.g = g, .spelt = spelt};
    PL_TRY(pl_json_parse(&r.json, "request", 0, text, n, PL_JSON_UNIQUE, err));
    pl_status st = read_answer(&r, err);
    pl_json_close(&r.json);
    return st;
}
