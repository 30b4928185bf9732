#include "infer/serve/answer.h"
#include "infer/cli/machine.h"
#include "infer/decode/runner.h"
#include "kernels/base/arena.h"
#include "kernels/base/utf8.h"
#include "paceline.h"

#include <stdio.h>

// ---- errors ---------------------------------------------------------------------------------------------------------

int pl_status_http(pl_status st) {
    return st == PL_E_INPUT || st == PL_E_UNSUPPORTED || st == PL_E_USAGE ? 400 : 500;
}

char *pl_error_text(int status, const char *message, const char *param, const char *code) {
    pl_json_out o;
    const char *type = status == 401   ? "authentication_error"
                       : status == 403 ? "permission_error"
                       : status == 404 ? "not_found_error"
                       : status == 429 ? "rate_limit_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    pl_put_object(&o, "error");
    pl_put_str(&o, "message", message);
    pl_put_str(&o, "type", type);
    pl_put_str(&o, "param", param && *param ? param : NULL);
    pl_put_str(&o, "code", code);
    pl_json_out_close(&o, '}');
    pl_json_out_close(&o, '}');
    return pl_json_out_end(&o, NULL) == PL_OK ? o.text : NULL;
}

void pl_exchange_fail(pl_exchange *x, int status, const char *message, const char *param, const char *code) {
    char *text = pl_error_text(status, message, param, code);
    pl_exchange_answer(x, status, "application/json", text, text ? strlen(text) : 0);
}

size_t pl_count_characters(const char *text, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

// ---- log-probabilities ----------------------------------------------------------------------------------------------

// Writes a token's text as a key or value: bytes that are no text by themselves as OpenAI's completions show them.
static void put_token(pl_json_out *o, const pl_answer *a, int32_t token, bool key) {
    size_t      n;
    const char *s = pl_tokenizer_bytes(a->tok, token, &n);
    pl_strbuf   b = {0};
    if (pl_tokenizer_is_special(a->tok, token)) {
        pl_strbuf_add(&b, pl_tokenizer_piece(a->tok, token), strlen(pl_tokenizer_piece(a->tok, token)));
    } else if (pl_utf8_valid(s, n) == n) {
        pl_strbuf_add(&b, s, n);
    } else {
        pl_strbuf_add(&b, "bytes:", 6);
        for (size_t i = 0; i < n; i++) {
            char hex[8];
            pl_strbuf_add(&b, hex, (size_t)snprintf(hex, sizeof hex, "\\x%02x", (uint8_t)s[i]));
        }
    }
    char *text = pl_strbuf_take(&b);
    if (!text) o->failed = true;
    if (text && key) pl_json_out_key(o, text);
    if (text && !key) pl_json_out_str(o, text);
    pl_free(text);
}

static void put_chat_token(pl_json_out *o, const pl_answer *a, const pl_logprob *l) {
    size_t      n;
    const char *s = pl_tokenizer_bytes(a->tok, l->token, &n);
    if (a->ids) pl_put_int(o, "id", l->token);
    pl_json_out_key(o, "token");
    put_token(o, a, l->token, false);
    pl_put_num(o, "logprob", l->logprob);
    pl_put_array(o, "bytes");
    for (size_t i = 0; i < n; i++)
        pl_json_out_int(o, (uint8_t)s[i]);
    pl_json_out_close(o, ']');
}

void pl_answer_put_tokens(pl_json_out *o, const pl_answer *a, const char *name, const pl_logprobs *p, int from,
                          int to) {
    pl_put_array(o, name);
    for (int i = from; i < to; i++) {
        const pl_logprob *l = pl_logprobs_at(p, i);
        pl_json_out_object(o);
        put_chat_token(o, a, l);
        pl_put_array(o, "top_logprobs");
        for (int k = 1; k <= p->top; k++) {
            pl_json_out_object(o);
            put_chat_token(o, a, l + k);
            pl_json_out_close(o, '}');
        }
        pl_json_out_close(o, ']');
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

// Writes where a token's text begins, in characters; returns where it ends.
static size_t put_offset(pl_json_out *o, const pl_answer *a, int32_t token, size_t at) {
    size_t      n;
    const char *s = pl_tokenizer_bytes(a->tok, token, &n);
    pl_json_out_int(o, (int64_t)at);
    return at + pl_count_characters(s, n);
}

static void put_top(pl_json_out *o, const pl_answer *a, const pl_logprob *l, int n) {
    pl_json_out_object(o);
    for (int k = 0; k < n; k++) {
        put_token(o, a, l[k].token, true);
        pl_json_out_num(o, l[k].logprob);
    }
    pl_json_out_close(o, '}');
}

static void put_text_logprobs(pl_json_out *o, const pl_answer *a, const pl_answer_choice *c) {
    size_t offset = c->offset;
    pl_put_array(o, "tokens");
    if (c->lead) put_token(o, a, *c->lead, false);
    for (int i = c->from; i < c->to; i++)
        put_token(o, a, pl_logprobs_at(c->logprobs, i)->token, false);
    pl_json_out_close(o, ']');
    pl_put_array(o, "token_logprobs");
    if (c->lead) pl_json_out_null(o);
    for (int i = c->from; i < c->to; i++)
        pl_json_out_num(o, pl_logprobs_at(c->logprobs, i)->logprob);
    pl_json_out_close(o, ']');
    pl_put_array(o, "top_logprobs");
    if (c->lead) pl_json_out_null(o);
    for (int i = c->from; i < c->to; i++)
        put_top(o, a, pl_logprobs_at(c->logprobs, i) + 1, c->logprobs->top);
    pl_json_out_close(o, ']');
    pl_put_array(o, "text_offset");
    if (c->lead) offset = put_offset(o, a, *c->lead, offset);
    for (int i = c->from; i < c->to; i++)
        offset = put_offset(o, a, pl_logprobs_at(c->logprobs, i)->token, offset);
    pl_json_out_close(o, ']');
}

static void put_logprobs(pl_json_out *o, const pl_answer *a, const pl_answer_choice *c) {
    pl_json_out_key(o, "logprobs");
    if (!c->logprobs) {
        pl_json_out_null(o);
        return;
    }
    pl_json_out_object(o);
    if (a->chat)
        pl_answer_put_tokens(o, a, "content", c->logprobs, c->from, c->to);
    else
        put_text_logprobs(o, a, c);
    pl_json_out_close(o, '}');
}

// ---- objects --------------------------------------------------------------------------------------------------------

void pl_answer_begin(pl_json_out *o, const pl_answer *a) {
    char version[96];
    snprintf(version, sizeof version, "paceline-%s-%.12s", pl_version(), pl_commit());
    pl_json_out_begin(o, 0);
    pl_json_out_object(o);
    pl_put_str(o, "id", a->id);
    pl_put_str(o, "object", !a->chat ? "text_completion" : a->chunk ? "chat.completion.chunk" : "chat.completion");
    pl_put_int(o, "created", a->created);
    pl_put_str(o, "model", a->model);
    pl_put_str(o, "system_fingerprint", version);
    pl_put_array(o, "choices");
}

static void put_calls(pl_json_out *o, const pl_answer *a, const pl_answer_choice *c) {
    if (c->call_from == c->call_to) return;
    pl_put_array(o, "tool_calls");
    for (int i = c->call_from; i < c->call_to; i++) {
        pl_json_out_object(o);
        if (a->chunk) pl_put_int(o, "index", i);
        pl_put_str(o, "id", c->call[i].id);
        pl_put_str(o, "type", "function");
        pl_put_object(o, "function");
        pl_put_str(o, "name", c->call[i].name);
        pl_put_str(o, "arguments", c->call[i].arguments);
        pl_json_out_close(o, '}');
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

// Writes the members of a chat's message, or what a chunk adds to it. A call without words has no content.
static void put_message(pl_json_out *o, const pl_answer *a, const pl_answer_choice *c) {
    bool calls = c->call_to > c->call_from;
    pl_put_object(o, a->chunk ? "delta" : "message");
    if (c->first || !a->chunk) pl_put_str(o, "role", "assistant");
    if (c->reasoning_bytes > 0) {
        pl_json_out_key(o, "reasoning_content");
        pl_json_out_strn(o, c->reasoning, c->reasoning_bytes);
    }
    if (c->first || c->bytes > 0 || !a->chunk) {
        pl_json_out_key(o, "content");
        if (calls && c->bytes == 0)
            pl_json_out_null(o);
        else
            pl_json_out_strn(o, c->text, c->bytes);
    }
    put_calls(o, a, c);
    if (!a->chunk) pl_put_str(o, "refusal", NULL);
    pl_json_out_close(o, '}');
}

void pl_answer_put_choice(pl_json_out *o, const pl_answer *a, const pl_answer_choice *c) {
    pl_json_out_object(o);
    pl_put_int(o, "index", c->index);
    if (a->chat) {
        put_message(o, a, c);
    } else {
        pl_json_out_key(o, "text");
        pl_json_out_strn(o, c->text, c->bytes);
    }
    put_logprobs(o, a, c);
    pl_put_str(o, "finish_reason", c->finish);
    pl_json_out_close(o, '}');
}

static void put_speculation(pl_json_out *o, const pl_session_stats *s) {
    pl_put_object(o, "speculative_decoding");
    pl_put_int(o, "steps", s->steps);
    pl_put_int(o, "drafted", s->drafted);
    pl_put_int(o, "accepted", s->accepted);
    pl_put_num(o, "acceptance_length", pl_stats_acceptance(s));
    pl_put_array(o, "drafted_by_position");
    for (int i = 0, n = pl_stats_depth(s); i < n; i++)
        pl_json_out_int(o, s->position_drafted[i]);
    pl_json_out_close(o, ']');
    pl_put_array(o, "accepted_by_position");
    for (int i = 0, n = pl_stats_depth(s); i < n; i++)
        pl_json_out_int(o, s->position_accepted[i]);
    pl_json_out_close(o, ']');
    pl_json_out_close(o, '}');
}

void pl_answer_end(pl_json_out *o, const pl_answer_usage *u, bool nulls) {
    pl_json_out_close(o, ']');
    if (u) {
        pl_put_object(o, "usage");
        pl_put_int(o, "prompt_tokens", u->prompt);
        pl_put_int(o, "completion_tokens", u->completion);
        pl_put_int(o, "total_tokens", u->prompt + u->completion);
        pl_put_object(o, "prompt_tokens_details");
        pl_put_int(o, "cached_tokens", u->cached);
        pl_json_out_close(o, '}');
        if (u->stats) put_speculation(o, u->stats);
        pl_json_out_close(o, '}');
    } else if (nulls) {
        pl_put_str(o, "usage", NULL);
    }
    pl_json_out_close(o, '}');
}
