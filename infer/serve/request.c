#include "infer/serve/request.h"
#include "kernels/base/arena.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Which bodies have a field.
enum {
    CHAT = 1 << PL_ASK_CHAT,
    TEXT = 1 << PL_ASK_COMPLETION,
    OWN = 1 << PL_ASK_NATIVE,
    IDS = 1 << PL_ASK_TOKENIZE,
    BACK = 1 << PL_ASK_DETOKENIZE,
    BOTH = CHAT | TEXT,
    ALL = BOTH | OWN,
};

typedef struct field field;
typedef pl_status (*read_fn)(pl_request *r, const field *f, const cJSON *v, pl_err *err);
struct field {
    const char *name;
    unsigned    asks;
    read_fn     read; // NULL: without effect
    size_t      at;   // of the member of pl_request
    double      min, max;
};

// ---- values ---------------------------------------------------------------------------------------------------------

static pl_status read_real(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= f->min && v->valuedouble <= f->max))
        return pl_json_fail(&r->body, v, err, "expected a number from %g to %g", f->min, f->max);
    *(double *)((char *)r + f->at) = v->valuedouble;
    return PL_OK;
}

static pl_status read_int(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    int64_t x;
    PL_TRY(pl_json_int_of(&r->body, v, (int64_t)f->min, (int64_t)f->max, &x, err));
    *(int *)((char *)r + f->at) = (int)x;
    return PL_OK;
}

static pl_status read_signed(pl_request *r, const field *f, const cJSON *v, int *out, pl_err *err) {
    if (!cJSON_IsNumber(v) || v->valuedouble != floor(v->valuedouble) ||
        !(v->valuedouble >= f->min && v->valuedouble <= f->max))
        return pl_json_fail(&r->body, v, err, "expected a whole number from %g to %g", f->min, f->max);
    *out = (int)v->valuedouble;
    return PL_OK;
}

static pl_status read_bool(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    if (!cJSON_IsBool(v)) return pl_json_fail(&r->body, v, err, "expected true or false");
    *(bool *)((char *)r + f->at) = cJSON_IsTrue(v);
    return PL_OK;
}

static pl_status read_text(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    return pl_json_str_of(&r->body, v, (const char **)((char *)r + f->at), err);
}

static pl_status fail_unsupported(pl_request *r, const cJSON *v, const char *why, pl_err *err) {
    return pl_fail(err, PL_E_UNSUPPORTED, "%s: %s: %s", r->body.where, v->string, why);
}

// Takes the one value that asks for nothing: a number, or 0 and 1 for false and true.
static pl_status read_neutral(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    double x = cJSON_IsBool(v) ? cJSON_IsTrue(v) : cJSON_IsNumber(v) ? v->valuedouble : NAN;
    return x == f->min ? PL_OK : fail_unsupported(r, v, "is not supported here; leave it out", err);
}

// Takes an empty list, object or string alone.
static pl_status read_empty(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    (void)f;
    bool holds =
        cJSON_IsString(v) ? *v->valuestring != 0 : v->child != NULL || !(cJSON_IsArray(v) || cJSON_IsObject(v));
    return holds ? fail_unsupported(r, v, "is not supported here; leave it out", err) : PL_OK;
}

static pl_status read_refused(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    (void)f;
    return fail_unsupported(r, v, "is not supported here; leave it out", err);
}

// ---- fields ---------------------------------------------------------------------------------------------------------

static pl_status read_max_tokens(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    int64_t x;
    bool    newer = strcmp(f->name, "max_completion_tokens") == 0;
    PL_TRY(pl_json_int_of(&r->body, v, 0, INT32_MAX, &x, err));
    const cJSON *other = newer ? NULL : pl_json_find(&r->body, NULL, "max_completion_tokens");
    if (!other) r->max_tokens = x;
    return PL_OK;
}

// -1: until a stop; -2: as far as the context goes.
static pl_status read_n_predict(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    int n = 0;
    PL_TRY(read_signed(r, f, v, &n, err));
    r->max_tokens = n < 0 ? -1 : n;
    return PL_OK;
}

static pl_status read_last_n(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    return read_signed(r, f, v, &r->repeat_last_n, err);
}

static pl_status read_top_k(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    PL_TRY(read_int(r, f, v, err));
    if (r->sampling.top_k < 0) r->sampling.top_k = 0; // vLLM's -1: all
    return PL_OK;
}

static pl_status read_seed(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    int64_t x;
    (void)f;
    PL_TRY(pl_json_int_of(&r->body, v, -PL_JSON_INT_MAX, PL_JSON_INT_MAX, &x, err));
    if (r->ask == PL_ASK_NATIVE && (x == -1 || x == UINT32_MAX)) return PL_OK; // a random one
    r->sampling.seed = (uint64_t)x;
    r->has_seed = true;
    return PL_OK;
}

static pl_status add_stop(pl_request *r, const cJSON *v, pl_err *err) {
    const char *text;
    PL_TRY(pl_json_str_of(&r->body, v, &text, err));
    size_t n = strlen(text);
    if (n == 0 || n > PL_REQUEST_STOP_BYTES)
        return pl_json_fail(&r->body, v, err, "a stop string has 1 to %d bytes", PL_REQUEST_STOP_BYTES);
    if (r->n_stop == PL_REQUEST_STOPS)
        return pl_json_fail(&r->body, v, err, "more than %d stop strings", PL_REQUEST_STOPS);
    r->stop[r->n_stop++] = text;
    return PL_OK;
}

static pl_status read_stop(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    const cJSON *e;
    (void)f;
    if (!cJSON_IsArray(v)) return add_stop(r, v, err);
    cJSON_ArrayForEach(e, v) PL_TRY(add_stop(r, e, err));
    return PL_OK;
}

// {"50256": -100}: ids and what is added to their logits.
static pl_status read_bias(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    const cJSON *e;
    (void)f;
    if (!cJSON_IsObject(v)) return pl_json_fail(&r->body, v, err, "expected an object of token ids and numbers");
    int n = cJSON_GetArraySize(v);
    if (n > PL_REQUEST_BIASES) return pl_json_fail(&r->body, v, err, "%d tokens, %d at most", n, PL_REQUEST_BIASES);
    r->bias = pl_malloc(((size_t)n + 1) * sizeof *r->bias);
    if (!r->bias) return pl_fail(err, PL_E_MEMORY, "logit_bias: out of memory");
    cJSON_ArrayForEach(e, v) {
        char *end;
        long  id = strtol(e->string, &end, 10);
        if (*e->string < '0' || *e->string > '9' || *end || id > INT32_MAX)
            return pl_json_fail(&r->body, e, err, "the name of a bias is a token id");
        if (!cJSON_IsNumber(e) || !(fabs(e->valuedouble) <= PL_BIAS_MOST))
            return pl_json_fail(&r->body, e, err, "expected a number from -%d to %d", PL_BIAS_MOST, PL_BIAS_MOST);
        r->bias[r->sampling.n_bias++] = (pl_logit_bias){(int32_t)id, (float)e->valuedouble};
    }
    r->sampling.bias = r->bias;
    return PL_OK;
}

// llama.cpp's: false bans a token.
static pl_status read_bias_value(pl_request *r, const cJSON *v, float *out, pl_err *err) {
    double x = cJSON_IsFalse(v) ? -PL_BIAS_MOST : cJSON_IsNumber(v) ? v->valuedouble : NAN;
    if (!(fabs(x) <= PL_BIAS_MOST))
        return pl_json_fail(&r->body, v, err, "expected false or a number from -%d to %d", PL_BIAS_MOST, PL_BIAS_MOST);
    *out = (float)x;
    return PL_OK;
}

static bool is_number(const char *s) {
    return *s && strspn(s, "0123456789") == strlen(s);
}

// One bias of a token's id, as a number or text, or of the tokens of a text.
static pl_status add_native_bias(pl_request *r, const cJSON *id, const char *name, const cJSON *v, pl_err *err) {
    float       value = 0;
    int64_t     n;
    const char *text = name;
    PL_TRY(read_bias_value(r, v, &value, err));
    if (id && cJSON_IsNumber(id)) {
        PL_TRY(pl_json_int_of(&r->body, id, 0, INT32_MAX, &n, err));
        r->bias[r->sampling.n_bias++] = (pl_logit_bias){(int32_t)n, value};
        return PL_OK;
    }
    if (id) PL_TRY(pl_json_str_of(&r->body, id, &text, err));
    if (is_number(text) && strlen(text) < 10)
        r->bias[r->sampling.n_bias++] = (pl_logit_bias){(int32_t)strtol(text, NULL, 10), value};
    else
        r->text_bias[r->n_text_bias++] = (pl_text_bias){text, value};
    return PL_OK;
}

// [[id or text, bias], ...] or {"id or text": bias, ...}
static pl_status read_native_bias(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    const cJSON *e;
    int          n = cJSON_GetArraySize(v);
    (void)f;
    if (!cJSON_IsObject(v) && !cJSON_IsArray(v))
        return pl_json_fail(&r->body, v, err, "expected a list of [token, bias] or an object");
    if (n > PL_REQUEST_BIASES) return pl_json_fail(&r->body, v, err, "%d tokens, %d at most", n, PL_REQUEST_BIASES);
    r->bias = pl_malloc(((size_t)n + 1) * sizeof *r->bias);
    r->text_bias = pl_malloc(((size_t)n + 1) * sizeof *r->text_bias);
    if (!r->bias || !r->text_bias) return pl_fail(err, PL_E_MEMORY, "logit_bias: out of memory");
    cJSON_ArrayForEach(e, v) {
        if (cJSON_IsObject(v)) {
            PL_TRY(add_native_bias(r, NULL, e->string, e, err));
            continue;
        }
        if (!cJSON_IsArray(e) || cJSON_GetArraySize(e) != 2)
            return pl_json_fail(&r->body, e, err, "expected [token, bias]");
        PL_TRY(add_native_bias(r, e->child, NULL, e->child->next, err));
    }
    r->sampling.bias = r->bias;
    return PL_OK;
}

// Limits the drafts of one request; 0 tokens are none.
static pl_status read_draft_depth(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    int64_t depth;
    (void)f;
    PL_TRY(pl_json_int_of(&r->body, v, 0, INT32_MAX, &depth, err));
    r->plain |= depth == 0;
    r->draft_depth = (int)depth;
    return PL_OK;
}

// One member of "speculative".
static pl_status read_drafting(pl_request *r, const field *f, const cJSON *e, pl_err *err) {
    if (cJSON_IsNull(e)) return PL_OK;
    if (strcmp(e->string, "max_tokens") == 0) return read_draft_depth(r, f, e, err);
    if (strcmp(e->string, "method") == 0) return pl_json_str_of(&r->body, e, &r->method, err);
    if (strcmp(e->string, "tree") == 0) return pl_json_str_of(&r->body, e, &r->tree, err);
    if (strcmp(e->string, "verify") == 0) return pl_json_str_of(&r->body, e, &r->verify, err);
    if (strcmp(e->string, "off") != 0 || !cJSON_IsBool(e))
        return pl_json_fail(&r->body, e, err,
                            "expected \"off\": true or false, \"max_tokens\", \"method\", \"tree\" or \"verify\"");
    r->plain |= cJSON_IsTrue(e);
    return PL_OK;
}

static pl_status read_speculative(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    const cJSON *e;
    if (!cJSON_IsObject(v)) return pl_json_fail(&r->body, v, err, "expected an object {...}");
    cJSON_ArrayForEach(e, v) PL_TRY(read_drafting(r, f, e, err));
    if (r->method && strcmp(r->method, "off") == 0) {
        r->plain = true;
        r->method = NULL;
    }
    return PL_OK;
}

static pl_status read_stop_ids(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    const cJSON *e;
    (void)f;
    if (!cJSON_IsArray(v)) return pl_json_fail(&r->body, v, err, "expected a list of token ids");
    cJSON_ArrayForEach(e, v) {
        int64_t id;
        if (r->n_stop_ids == PL_MAX_STOP) return pl_json_fail(&r->body, e, err, "more than %d ids", PL_MAX_STOP);
        PL_TRY(pl_json_int_of(&r->body, e, 0, INT32_MAX, &id, err));
        r->stop_id[r->n_stop_ids++] = (int32_t)id;
    }
    return PL_OK;
}

// Chat's is a bool, with top_logprobs beside it; a completion's is the number.
static pl_status read_logprobs(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    if (r->ask != PL_ASK_CHAT) return read_int(r, f, v, err);
    if (!cJSON_IsBool(v)) return pl_json_fail(&r->body, v, err, "expected true or false");
    if (cJSON_IsTrue(v) && r->logprobs < 0) r->logprobs = 0;
    return PL_OK;
}

// 0: none.
static pl_status read_n_probs(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    PL_TRY(read_int(r, f, v, err));
    if (r->logprobs == 0) r->logprobs = -1;
    return PL_OK;
}

static pl_status read_top_logprobs(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    const cJSON *on = pl_json_find(&r->body, NULL, "logprobs");
    int          before = r->logprobs;
    PL_TRY(read_int(r, f, v, err));
    if (on && cJSON_IsTrue(on)) return PL_OK;
    if (r->logprobs > 0) return pl_json_fail(&r->body, v, err, "needs \"logprobs\": true");
    r->logprobs = before;
    return PL_OK;
}

static pl_status read_stream_options(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    const cJSON *e;
    (void)f;
    if (!cJSON_IsObject(v)) return pl_json_fail(&r->body, v, err, "expected an object {...}");
    cJSON_ArrayForEach(e, v) {
        const field usage = {.at = offsetof(pl_request, include_usage)};
        bool        off = cJSON_IsFalse(e) || cJSON_IsNull(e);
        if (strcmp(e->string, "include_usage") == 0)
            PL_TRY(read_bool(r, &usage, e, err));
        else if (strcmp(e->string, "include_obfuscation") != 0 && !off) // padding against eavesdroppers
            return pl_json_fail(&r->body, e, err, "is not supported here; leave it out");
    }
    return PL_OK;
}

// Holds the answer to a grammar. text: owned from here on.
static pl_status hold(pl_request *r, const field *f, pl_grammar_kind kind, char *text, const cJSON *v, pl_err *err) {
    bool second = r->grammar;
    if (second) pl_free(r->grammar);
    r->grammar = text;
    r->grammar_kind = kind;
    r->grammar_field = f->name;
    if (!text) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", f->name);
    return second ? pl_json_fail(&r->body, v, err, "a second grammar; give one of the two") : PL_OK;
}

static pl_status hold_to_schema(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_node(&o, v);
    PL_TRY(pl_json_out_end(&o, err));
    return hold(r, f, PL_GRAMMAR_SCHEMA, o.text, v, err);
}

// at: the kind.
static pl_status read_grammar(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    const char *text;
    if (f->at == PL_GRAMMAR_SCHEMA) return hold_to_schema(r, f, v, err);
    PL_TRY(pl_json_str_of(&r->body, v, &text, err));
    return hold(r, f, (pl_grammar_kind)f->at, pl_strdup(text), v, err);
}

static pl_status read_response_format(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    const char  *type;
    const cJSON *schema;
    if (!cJSON_IsObject(v)) return pl_json_fail(&r->body, v, err, "expected an object {...}");
    PL_TRY(pl_json_get_str(&r->body, v, "type", &type, err));
    if (strcmp(type, "text") == 0) return PL_OK;
    if (strcmp(type, "json_object") == 0)
        return hold(r, f, PL_GRAMMAR_SCHEMA, pl_strdup("{\"type\":\"object\"}"), v, err);
    if (strcmp(type, "json_schema") != 0)
        return fail_unsupported(r, v, "type is text, json_object or json_schema here", err);
    PL_TRY(pl_json_get_object(&r->body, v, "json_schema.schema", &schema, err));
    return hold_to_schema(r, f, schema, err);
}

// A name is written into templates, grammars and headers of channels.
static bool is_tool_name(const char *s) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t            n = strspn(s, letters);
    return n > 0 && n <= 64 && s[n] == 0;
}

static pl_status add_tool(pl_request *r, const cJSON *v, pl_err *err) {
    const char  *type, *name;
    const cJSON *function, *schema;
    PL_TRY(pl_json_opt_str(&r->body, v, "type", "function", &type, err));
    if (strcmp(type, "function") != 0)
        return pl_json_fail(&r->body, v, err, "only tools of type function are supported");
    PL_TRY(pl_json_get_object(&r->body, v, "function", &function, err));
    PL_TRY(pl_json_get_str(&r->body, function, "name", &name, err));
    if (!is_tool_name(name))
        return pl_json_fail(&r->body, function, err, "a name has 1 to 64 letters, digits, points, _ and -");
    PL_TRY(pl_json_opt_object(&r->body, function, "parameters", &schema, err));
    const cJSON *of = schema ? pl_json_find(&r->body, schema, "type") : NULL;
    if (of && !(cJSON_IsString(of) && strcmp(of->valuestring, "object") == 0))
        return pl_json_fail(&r->body, schema, err, "parameters are a schema of an object");
    if (r->n_tools == PL_REQUEST_TOOLS) return pl_json_fail(&r->body, v, err, "more than %d tools", PL_REQUEST_TOOLS);
    r->tool[r->n_tools++] = function;
    return PL_OK;
}

static pl_status read_tools(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    const cJSON *e;
    (void)f;
    if (!cJSON_IsArray(v)) return pl_json_fail(&r->body, v, err, "expected a list of tools");
    cJSON_ArrayForEach(e, v) {
        if (!cJSON_IsObject(e)) return pl_json_fail(&r->body, e, err, "expected an object {...}");
        PL_TRY(add_tool(r, e, err));
    }
    return PL_OK;
}

static pl_status read_tool_choice(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    static const char *const name[] = {
        [PL_TOOLS_AUTO] = "auto", [PL_TOOLS_NONE] = "none", [PL_TOOLS_REQUIRED] = "required"};
    (void)f;
    for (int i = 0; cJSON_IsString(v) && i < 3; i++)
        if (strcmp(v->valuestring, name[i]) == 0) {
            r->tool_choice = (pl_tool_choice)i;
            return PL_OK;
        }
    if (!cJSON_IsObject(v))
        return pl_json_fail(&r->body, v, err,
                            "expected auto, none, required or {\"type\": \"function\", \"function\": ...}");
    r->tool_choice = PL_TOOLS_NAMED;
    return pl_json_get_str(&r->body, v, "function.name", &r->tool_name, err);
}

static pl_status read_modalities(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    const cJSON *e;
    (void)f;
    if (!cJSON_IsArray(v)) return pl_json_fail(&r->body, v, err, "expected a list");
    cJSON_ArrayForEach(e, v) if (!cJSON_IsString(e) || strcmp(e->valuestring, "text") != 0) return fail_unsupported(
        r, v, "only [\"text\"] is supported here", err);
    return PL_OK;
}

static pl_status read_messages(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    (void)f;
    if (!cJSON_IsArray(v) || !v->child) return pl_json_fail(&r->body, v, err, "expected a list of messages");
    r->messages = true;
    return PL_OK;
}

static pl_status read_object(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    (void)f;
    return cJSON_IsObject(v) ? PL_OK : pl_json_fail(&r->body, v, err, "expected an object {...}");
}

// ---- prompts --------------------------------------------------------------------------------------------------------

static pl_status add_ids(pl_request *r, const cJSON *list, pl_err *err) {
    pl_request_prompt *p = &r->prompt[r->n_prompts++];
    const cJSON       *e;
    p->ids = pl_malloc(((size_t)cJSON_GetArraySize(list) + 1) * sizeof *p->ids);
    if (!p->ids) return pl_fail(err, PL_E_MEMORY, "prompt: out of memory");
    cJSON_ArrayForEach(e, list) {
        int64_t id;
        PL_TRY(pl_json_int_of(&r->body, e, 0, INT32_MAX, &id, err));
        p->ids[p->n_ids++] = (int32_t)id;
    }
    return PL_OK;
}

static pl_status add_prompt(pl_request *r, const cJSON *v, pl_err *err) {
    if (cJSON_IsArray(v)) return add_ids(r, v, err);
    return pl_json_str_of(&r->body, v, &r->prompt[r->n_prompts++].text, err);
}

// A text, a list of ids, or a list of either.
static pl_status read_prompt(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    const cJSON *e;
    bool         list = cJSON_IsArray(v), many = list && v->child && !cJSON_IsNumber(v->child);
    int          n = many ? cJSON_GetArraySize(v) : 1, most = (int)f->max;
    if (r->prompt) return pl_json_fail(&r->body, v, err, "a second prompt; give one of the two");
    if (list && !v->child && most > 1) return pl_json_fail(&r->body, v, err, "an empty list; expected a prompt");
    if (n > most) return pl_json_fail(&r->body, v, err, "%d prompts, %d at most", n, most);
    r->prompt = pl_calloc((size_t)n, sizeof *r->prompt);
    if (!r->prompt) return pl_fail(err, PL_E_MEMORY, "prompt: out of memory");
    if (!many) return add_prompt(r, v, err);
    cJSON_ArrayForEach(e, v) PL_TRY(add_prompt(r, e, err));
    return PL_OK;
}

// Tokenizing takes a text alone, detokenizing ids alone.
static pl_status read_content(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    if (!cJSON_IsString(v)) return pl_json_fail(&r->body, v, err, "expected a text");
    return read_prompt(r, f, v, err);
}

static pl_status read_tokens(pl_request *r, const field *f, const cJSON *v, pl_err *err) {
    if (!cJSON_IsArray(v) || (v->child && !cJSON_IsNumber(v->child)))
        return pl_json_fail(&r->body, v, err, "expected a list of token ids");
    return read_prompt(r, f, v, err);
}

// ---- the table ------------------------------------------------------------------------------------------------------

#define AT(member) offsetof(pl_request, member)
static const field fields[] = {
    {"model", ALL | IDS | BACK, read_text, AT(model), 0, 0},
    {"messages", CHAT | IDS, read_messages, 0, 0, 0},
    {"chat_template_kwargs", CHAT | IDS, read_object, 0, 0, 0},
    {"add_generation_prompt", CHAT | IDS, read_bool, AT(add_generation_prompt), 0, 0},
    {"prompt", TEXT | OWN, read_prompt, 0, 1, PL_REQUEST_PROMPTS},
    {"prompt", IDS, read_content, 0, 1, 1},
    {"content", IDS, read_content, 0, 1, 1},
    {"tokens", BACK, read_tokens, 0, 1, 1},
    {"add_special_tokens", TEXT | IDS, read_bool, AT(add_special), 0, 0},
    {"add_special", IDS, read_bool, AT(add_special), 0, 0},
    {"return_token_strs", IDS, read_bool, AT(pieces), 0, 0},
    {"echo", TEXT, read_bool, AT(echo), 0, 0},
    {"n", BOTH, read_int, AT(n), 1, PL_REQUEST_CHOICES},
    {"n_cmpl", OWN, read_int, AT(n), 1, PL_REQUEST_CHOICES},
    {"stream", ALL, read_bool, AT(stream), 0, 0},
    {"stream_options", BOTH, read_stream_options, 0, 0, 0},
    {"max_tokens", BOTH, read_max_tokens, 0, 0, 0},
    {"n_predict", OWN, read_n_predict, 0, -2, INT32_MAX},
    {"max_completion_tokens", CHAT, read_max_tokens, 0, 0, 0},
    {"temperature", ALL, read_real, AT(sampling.temperature), 0, 1000},
    {"top_p", ALL, read_real, AT(sampling.top_p), 1e-6, 1},
    {"top_k", ALL, read_top_k, AT(sampling.top_k), -1, 1 << 30},
    {"min_p", ALL, read_real, AT(sampling.min_p), 0, 1},
    {"repetition_penalty", BOTH, read_real, AT(sampling.repetition_penalty), 0.01, 100},
    {"repeat_penalty", OWN, read_real, AT(sampling.repetition_penalty), 0.01, 100},
    {"repeat_last_n", OWN, read_last_n, 0, -1, INT32_MAX},
    {"presence_penalty", BOTH, read_real, AT(sampling.presence_penalty), -2, 2},
    {"frequency_penalty", BOTH, read_real, AT(sampling.frequency_penalty), -2, 2},
    {"logit_bias", BOTH, read_bias, 0, 0, 0},
    {"logit_bias", OWN, read_native_bias, 0, 0, 0},
    {"speculative", ALL, read_speculative, 0, 0, 0},
    {"speculative.n_max", ALL, read_draft_depth, 0, 0, 0}, // llama.cpp's
    {"seed", ALL, read_seed, 0, 0, 0},
    {"stop", ALL, read_stop, 0, 0, 0},
    {"stop_token_ids", BOTH, read_stop_ids, 0, 0, 0},
    {"ignore_eos", ALL, read_bool, AT(ignore_eos), 0, 0},
    {"logprobs", BOTH, read_logprobs, AT(logprobs), 0, PL_REQUEST_TOP_LOGPROBS},
    {"n_probs", OWN, read_n_probs, AT(logprobs), 0, PL_REQUEST_TOP_LOGPROBS},
    {"return_tokens", OWN, read_bool, AT(return_tokens), 0, 0},
    {"top_logprobs", CHAT, read_top_logprobs, AT(logprobs), 0, PL_REQUEST_TOP_LOGPROBS},
    {"response_format", BOTH, read_response_format, 0, 0, 0},
    {"json_schema", ALL, read_grammar, PL_GRAMMAR_SCHEMA, 0, 0}, // llama.cpp's
    {"grammar", ALL, read_grammar, PL_GRAMMAR_GBNF, 0, 0},
    {"regex", BOTH, read_grammar, PL_GRAMMAR_REGEX, 0, 0},
    {"tools", CHAT | IDS, read_tools, 0, 0, 0},
    {"tool_choice", CHAT, read_tool_choice, 0, 0, 0},
    {"parallel_tool_calls", CHAT, read_bool, AT(parallel_calls), 0, 0},
    // Fields that are not supported: values without effect are accepted, others refused.
    {"functions", CHAT, read_empty, 0, 0, 0},
    {"modalities", CHAT, read_modalities, 0, 0, 0},
    {"suffix", TEXT, read_empty, 0, 0, 0},
    {"presence_penalty", OWN, read_neutral, 0, 0, 0}, // llama.cpp's count the prompt's tokens too
    {"frequency_penalty", OWN, read_neutral, 0, 0, 0},
    {"dynatemp_range", OWN, read_neutral, 0, 0, 0},
    {"typical_p", OWN, read_neutral, 0, 1, 0},
    {"top_n_sigma", OWN, read_neutral, 0, -1, 0},
    {"xtc_probability", OWN, read_neutral, 0, 0, 0},
    {"dry_multiplier", OWN, read_neutral, 0, 0, 0},
    {"mirostat", OWN, read_neutral, 0, 0, 0},
    {"min_keep", OWN, read_neutral, 0, 0, 0},
    {"n_indent", OWN, read_neutral, 0, 0, 0},
    {"t_max_predict_ms", OWN, read_neutral, 0, 0, 0},
    {"post_sampling_probs", OWN, read_neutral, 0, 0, 0},
    {"samplers", OWN, read_refused, 0, 0, 0}, // infer/sample/distribution.h has the order
    {"response_fields", OWN, read_empty, 0, 0, 0},
    {"lora", OWN, read_empty, 0, 0, 0},
    {"min_tokens", BOTH, read_neutral, 0, 0, 0},
    {"use_beam_search", BOTH, read_neutral, 0, 0, 0},
    {"length_penalty", BOTH, read_neutral, 0, 1, 0},
    {"skip_special_tokens", BOTH, read_neutral, 0, 1, 0},
    {"include_stop_str_in_output", BOTH, read_neutral, 0, 0, 0},
    {"continue_final_message", CHAT | IDS, read_neutral, 0, 0, 0},
    {"best_of", TEXT, read_neutral, 0, 1, 0},
    {"audio", CHAT, read_refused, 0, 0, 0},
    {"web_search_options", CHAT, read_refused, 0, 0, 0},
    {"reasoning_effort", CHAT, read_refused, 0, 0, 0}, // templates that know it take it in chat_template_kwargs
    // Without effect.
    {"user", BOTH, NULL, 0, 0, 0},
    {"metadata", BOTH, NULL, 0, 0, 0},
    {"store", BOTH, NULL, 0, 0, 0},
    {"service_tier", BOTH, NULL, 0, 0, 0},
    {"safety_identifier", BOTH, NULL, 0, 0, 0},
    {"prompt_cache_key", BOTH, NULL, 0, 0, 0},
    {"prompt_cache_retention", BOTH, NULL, 0, 0, 0},
    {"cache_prompt", ALL, NULL, 0, 0, 0},
    {"id_slot", OWN, NULL, 0, 0, 0},
    {"n_keep", OWN, NULL, 0, 0, 0}, // no text is shifted out of the context
    {"n_cache_reuse", OWN, NULL, 0, 0, 0},
    {"timings_per_token", OWN, NULL, 0, 0, 0},
    {"return_progress", OWN, NULL, 0, 0, 0},
    {"speculative.n_min", OWN, NULL, 0, 0, 0},
    {"speculative.p_min", OWN, NULL, 0, 0, 0},
    // They belong to fields that are refused above, and are read without effect.
    {"dynatemp_exponent", OWN, NULL, 0, 0, 0},
    {"xtc_threshold", OWN, NULL, 0, 0, 0},
    {"dry_base", OWN, NULL, 0, 0, 0},
    {"dry_allowed_length", OWN, NULL, 0, 0, 0},
    {"dry_penalty_last_n", OWN, NULL, 0, 0, 0},
    {"dry_sequence_breakers", OWN, NULL, 0, 0, 0},
    {"mirostat_tau", OWN, NULL, 0, 0, 0},
    {"mirostat_eta", OWN, NULL, 0, 0, 0},
    {"prediction", CHAT, NULL, 0, 0, 0}, // of the answer: it would change speed alone
    {"spaces_between_special_tokens", BOTH, NULL, 0, 0, 0},
};

static const field *find_field(pl_ask ask, const char *name) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if ((fields[i].asks >> ask & 1) && strcmp(fields[i].name, name) == 0) return &fields[i];
    return NULL;
}

static void add_ignored(pl_request *r, const char *name) {
    size_t n = strlen(r->ignored);
    snprintf(r->ignored + n, sizeof r->ignored - n, "%s%s", n ? ", " : "", name);
}

static pl_status read_member(pl_request *r, const cJSON *v, pl_err *err) {
    const field *f = find_field(r->ask, v->string);
    if (cJSON_IsNull(v)) return PL_OK;
    if (!f) return fail_unsupported(r, v, "this server has no such field; leave it out", err);
    if (f->read) return f->read(r, f, v, err);
    add_ignored(r, f->name);
    return PL_OK;
}

static pl_status fail_member(pl_request *r, const char *name, const char *why, pl_err *err) {
    snprintf(r->param, sizeof r->param, "%s", name);
    return pl_fail(err, PL_E_INPUT, "%s: %s: %s", r->body.where, name, why);
}

static pl_status check_tools(pl_request *r, pl_err *err) {
    bool forced = r->tool_choice == PL_TOOLS_REQUIRED || r->tool_choice == PL_TOOLS_NAMED, there = false;
    if (forced && r->n_tools == 0) return fail_member(r, "tool_choice", "there are no tools", err);
    if (forced && r->grammar) return fail_member(r, "tool_choice", "a second grammar; give one of the two", err);
    if (forced && r->ignore_eos) return fail_member(r, "ignore_eos", "beside a call that ends with such a token", err);
    if (r->tool_choice != PL_TOOLS_NAMED) return PL_OK;
    for (int i = 0; i < r->n_tools; i++)
        there |= strcmp(pl_json_find(&r->body, r->tool[i], "name")->valuestring, r->tool_name) == 0;
    return there ? PL_OK : fail_member(r, "tool_choice", "none of the tools has this name", err);
}

// Checks what belongs together.
static pl_status check_members(pl_request *r, pl_err *err) {
    bool chat = r->ask == PL_ASK_CHAT, ids = r->ask == PL_ASK_TOKENIZE;
    if (chat && !r->messages) return fail_member(r, "messages", "is missing; expected a list of messages", err);
    if (ids && r->messages && r->prompt) return fail_member(r, "messages", "beside a prompt; give one of the two", err);
    if (!chat && !r->messages && !r->prompt)
        return fail_member(r, r->ask == PL_ASK_DETOKENIZE ? "tokens" : "prompt", "is missing", err);
    if (r->max_tokens == 0 && !r->echo && r->ask != PL_ASK_NATIVE)
        return fail_member(r, "max_tokens", "expected 1 or more", err);
    if (pl_json_find(&r->body, NULL, "stream_options") && !r->stream)
        return fail_member(r, "stream_options", "needs \"stream\": true", err);
    if (pl_sampling_check(&r->sampling, NULL) != PL_OK) // the table has checked the others
        return fail_member(r, "temperature", "expected 0 (greedy) or a number from 1e-06 to 1000", err);
    if (ids && pl_json_find(&r->body, NULL, "content") && !pl_json_find(&r->body, NULL, "add_special"))
        r->add_special = false; // llama.cpp's default
    if (r->grammar && r->ignore_eos)
        return fail_member(r, "ignore_eos", "beside a grammar, whose texts end with such a token", err);
    double penalty = r->sampling.repetition_penalty;
    if (r->ask == PL_ASK_NATIVE && penalty != 0 && penalty != 1 && r->repeat_last_n != -1)
        return fail_member(r, "repeat_penalty", "looks at the whole text here; give \"repeat_last_n\": -1 with it",
                           err);
    return check_tools(r, err);
}

static pl_status read_members(pl_request *r, pl_err *err) {
    const cJSON *v;
    if (!cJSON_IsObject(r->body.root)) return pl_json_fail(&r->body, r->body.root, err, "expected an object {...}");
    cJSON_ArrayForEach(v, r->body.root) {
        pl_status st = read_member(r, v, err);
        if (st == PL_OK) continue;
        snprintf(r->param, sizeof r->param, "%s", v->string);
        return st;
    }
    return check_members(r, err);
}

pl_status pl_request_read(pl_request *r, pl_ask ask, const char *body, size_t n, pl_err *err) {
    *r = (pl_request){.ask = ask,
                      .n = 1,
                      .max_tokens = -1,
                      .logprobs = -1,
                      .add_special = true,
                      .add_generation_prompt = true,
                      .parallel_calls = true,
                      .repeat_last_n = 64,
                      .sampling = {.temperature = 1, .top_p = 1}};
    if (ask == PL_ASK_NATIVE) // llama.cpp's defaults
        r->sampling = (pl_sampling){.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05};
    pl_status st = pl_json_parse(&r->body, "body", 0, body, n, PL_JSON_UNIQUE, err);
    if (st == PL_OK) st = read_members(r, err);
    if (st == PL_OK) return PL_OK;
    pl_request failed = *r;
    pl_request_fini(r);
    memcpy(r->param, failed.param, sizeof r->param);
    return st;
}

void pl_request_fini(pl_request *r) {
    for (int i = 0; i < r->n_prompts; i++)
        pl_free(r->prompt[i].ids);
    pl_free(r->prompt);
    pl_free(r->bias);
    pl_free(r->text_bias);
    pl_free(r->grammar);
    pl_json_close(&r->body);
    *r = (pl_request){0};
}
