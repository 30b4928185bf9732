#include "infer/serve/routes.h"
#include "infer/serve/weights.h"
#include "kernels/base/arena.h"
#include "kernels/base/log.h"

#include <stdio.h>
#include <string.h>

// ---- bodies ---------------------------------------------------------------------------------------------------------

static void answer_json(pl_exchange *x, pl_json_out *o) {
    bool made = pl_json_out_end(o, NULL) == PL_OK;
    pl_exchange_answer(x, 200, "application/json", made ? o->text : NULL, made ? o->len : 0);
}

static void fail_request(pl_exchange *x, pl_status st, const pl_err *err, const char *param) {
    pl_exchange_fail(x, pl_status_http(st), err->msg, param, NULL);
}

static void fail_model(pl_server *s, pl_exchange *x, const char *asked) {
    char text[512];
    snprintf(text, sizeof text, "the model \"%.200s\" is not served here; this is \"%.200s\"", asked, s->o->model);
    pl_exchange_fail(x, 404, text, "model", "model_not_found");
}

// Reads a body; returns false where it has been answered with what is wrong.
static bool read_body(pl_server *s, pl_exchange *x, pl_ask ask, pl_request *r) {
    pl_err    err = {0};
    pl_status st = pl_request_read(r, ask, x->body.s ? x->body.s : "", x->body.n, &err);
    if (st != PL_OK) {
        fail_request(x, st, &err, r->param);
        return false;
    }
    memcpy(x->ignored, r->ignored, sizeof x->ignored);
    if (!r->model || strcmp(r->model, s->o->model) == 0) return true;
    fail_model(s, x, r->model);
    pl_request_fini(r);
    return false;
}

// ---- answers of the model -------------------------------------------------------------------------------------------

// Returns why a request cannot be taken now, with *status; NULL: it can.
static const char *refuse_load(const pl_server *s, const pl_request *r, int *status) {
    int64_t choices = (int64_t)r->n * (r->messages ? 1 : r->n_prompts), room = s->o->queue + s->o->sessions;
    *status = 400;
    if (choices > room) return "n: the server has fewer slots and places in its queue than this request has answers";
    if (r->logprobs >= 0 && !s->o->logprobs)
        return "logprobs: the logits stay on the GPU; start the server with --logprobs";
    *status = 429;
    if (s->metrics.waiting + s->metrics.running + choices > room) return "the queue is full; try again later";
    return NULL;
}

// Returns true if a method is the drafter that the server was started with, or the last part of its path.
static bool is_drafter(const char *drafter, const char *method) {
    size_t n = strlen(drafter), m = strlen(method);
    while (n > 1 && drafter[n - 1] == '/')
        n--;
    return m <= n && memcmp(drafter + n - m, method, m) == 0 && (m == n || drafter[n - m - 1] == '/');
}

// Sessions of a step share drafter, tree and verifier. Returns true, having answered, if a request names others.
static bool refuse_drafting(const pl_server *s, pl_exchange *x, const pl_request *r) {
    const pl_drafter *d = s->o->runner->drafter;
    const char       *asked[] = {r->method, r->tree, r->verify}, *name[] = {"method", "tree", "verify"};
    const char       *own[] = {s->o->drafter, d ? d->tree : NULL, s->o->verify};
    for (int i = 0; i < 3; i++) {
        char why[512];
        if (!asked[i] || (d && (i == 0 ? is_drafter(own[i], asked[i]) : strcmp(own[i], asked[i]) == 0))) continue;
        if (d)
            snprintf(
                why, sizeof why,
                "speculative.%s: all requests share the server's \"%.200s\"; give that, or limit the drafts by off "
                "or max_tokens",
                name[i], own[i]);
        else
            snprintf(why, sizeof why, "speculative.%s: the server was started without a --drafter", name[i]);
        pl_exchange_fail(x, 400, why, "speculative", NULL);
        return true;
    }
    return false;
}

// Returns true, having answered with 503, once the server is to stop.
static bool refuse_stopping(const pl_server *s, pl_exchange *x) {
    if (!s->stopping && !pl_stop_requested()) return false;
    pl_exchange_fail(x, 503, "the server is stopping", NULL, NULL);
    return true;
}

static void answer_request(pl_server *s, pl_exchange *x, pl_ask ask) {
    pl_request r;
    pl_job    *j;
    pl_err     err = {0};
    int        status;
    if (refuse_stopping(s, x) || !read_body(s, x, ask, &r)) return;
    if (refuse_drafting(s, x, &r)) {
        pl_request_fini(&r);
        return;
    }
    const char *why = refuse_load(s, &r, &status);
    pl_status   st = why ? PL_OK : pl_job_create(&j, &s->job, &r, x, &err);
    if (why) {
        pl_exchange_fail(x, status, why, NULL, status == 429 ? "rate_limit_exceeded" : NULL);
    } else if (st != PL_OK) {
        fail_request(x, st, &err, r.param);
    } else {
        pl_server_add(s, j);
        if (j->stream) pl_exchange_stream(x);
    }
    pl_request_fini(&r);
}

static void answer_chat(void *s, pl_exchange *x) {
    answer_request(s, x, PL_ASK_CHAT);
}

static void answer_completion(void *s, pl_exchange *x) {
    answer_request(s, x, PL_ASK_COMPLETION);
}

static void answer_native(void *s, pl_exchange *x) {
    answer_request(s, x, PL_ASK_NATIVE);
}

// ---- tokens ---------------------------------------------------------------------------------------------------------

static void put_tokens(pl_json_out *o, const pl_server *s, const pl_request *r, const int32_t *ids, int64_t n) {
    pl_json_out_begin(o, 0);
    pl_json_out_object(o);
    pl_put_int(o, "count", n);
    pl_put_int(o, "max_model_len", s->job.max_len);
    pl_put_ids(o, "tokens", ids, n);
    pl_json_out_key(o, "token_strs");
    if (r->pieces) {
        pl_json_out_array(o);
        for (int64_t i = 0; i < n; i++)
            pl_json_out_str(o, pl_tokenizer_piece(s->job.target->tok, ids[i]));
        pl_json_out_close(o, ']');
    } else {
        pl_json_out_null(o);
    }
    pl_json_out_close(o, '}');
}

static void answer_tokens(void *arg, pl_exchange *x) {
    pl_server  *s = arg;
    pl_request  r;
    pl_json_out o;
    pl_err      err = {0};
    int32_t    *ids = NULL;
    int64_t     n = 0;
    if (!read_body(s, x, PL_ASK_TOKENIZE, &r)) return;
    pl_status st = pl_request_encode(&s->job, &r, &x->body, 0, &ids, &n, &err);
    if (st == PL_OK) {
        put_tokens(&o, s, &r, ids, n);
        answer_json(x, &o);
    } else {
        fail_request(x, st, &err, r.messages ? "messages" : "prompt");
    }
    pl_free(ids);
    pl_request_fini(&r);
}

// Answers under vLLM's name and llama.cpp's.
static void answer_text(void *arg, pl_exchange *x) {
    pl_server  *s = arg;
    pl_request  r;
    pl_json_out o;
    pl_err      err = {0};
    char       *text;
    size_t      n;
    if (!read_body(s, x, PL_ASK_DETOKENIZE, &r)) return;
    pl_status st = pl_tokenizer_decode(s->job.target->tok, r.prompt[0].ids, r.prompt[0].n_ids, &text, &n, &err);
    if (st == PL_OK) {
        pl_json_out_begin(&o, 0);
        pl_json_out_object(&o);
        pl_json_out_key(&o, "prompt"), pl_json_out_strn(&o, text, n);
        pl_json_out_key(&o, "content"), pl_json_out_strn(&o, text, n);
        pl_json_out_close(&o, '}');
        answer_json(x, &o);
        pl_free(text);
    } else {
        fail_request(x, st, &err, "tokens");
    }
    pl_request_fini(&r);
}

// ---- the server -----------------------------------------------------------------------------------------------------

static void put_model(pl_json_out *o, const pl_server *s) {
    pl_json_out_object(o);
    pl_put_str(o, "id", s->o->model);
    pl_put_str(o, "object", "model");
    pl_put_int(o, "created", s->begun);
    pl_put_str(o, "owned_by", "paceline");
    pl_put_int(o, "max_model_len", s->job.max_len);
    pl_json_out_close(o, '}');
}

static void list_models(void *s, pl_exchange *x) {
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    pl_put_str(&o, "object", "list");
    pl_put_array(&o, "data");
    put_model(&o, s);
    pl_json_out_close(&o, ']');
    pl_json_out_close(&o, '}');
    answer_json(x, &o);
}

static void show_model(void *arg, pl_exchange *x) {
    pl_server  *s = arg;
    pl_json_out o;
    if (strcmp(x->tail, s->o->model) != 0) {
        fail_model(s, x, x->tail);
        return;
    }
    pl_json_out_begin(&o, 0);
    put_model(&o, s);
    answer_json(x, &o);
}

static void show_health(void *arg, pl_exchange *x) {
    static const char ok[] = "{\"status\":\"ok\"}";
    if (!refuse_stopping(arg, x)) pl_exchange_answer(x, 200, "application/json", pl_strdup(ok), sizeof ok - 1);
}

static void show_metrics(void *arg, pl_exchange *x) {
    const pl_server *s = arg;
    pl_strbuf        b = {0};
    pl_metrics_write(&b, &s->metrics, s->o->model);
    size_t n = b.n;
    char  *text = pl_strbuf_take(&b);
    pl_exchange_answer(x, 200, "text/plain; version=0.0.4; charset=utf-8", text, n);
}

const pl_route pl_routes[] = {{.method = "GET", .path = "/health", .open = true, .fn = show_health},
                              {.method = "GET", .path = "/metrics", .fn = show_metrics},
                              {.method = "GET", .path = "/v1/models", .fn = list_models},
                              {.method = "GET", .path = "/v1/models/", .tail = true, .fn = show_model},
                              {.method = "GET", .path = "/v1/drafter", .fn = pl_weights_show},
                              {.method = "POST", .path = "/v1/drafter", .fn = pl_weights_replace},
                              {.method = "POST", .path = "/v1/chat/completions", .fn = answer_chat},
                              {.method = "POST", .path = "/v1/completions", .fn = answer_completion},
                              {.method = "POST", .path = "/completion", .fn = answer_native},
                              {.method = "POST", .path = "/completions", .fn = answer_native},
                              {.method = "POST", .path = "/tokenize", .fn = answer_tokens},
                              {.method = "POST", .path = "/detokenize", .fn = answer_text},
                              {0}};
