// The public API (paceline.h) over the inner one.
#include "data/chat/prompts.h"
#include "infer/cli/machine.h"
#include "infer/decode/runner.h"
#include "kernels/devices.h"
#include "paceline.h"

#include <math.h>
#include <string.h>

#define MAX_NEW 256

struct pl_decoder {
    char             *model; // the folder or file of the tokenizer, and of the chat template
    pl_chat_template *chat;  // the target's own, loaded on first use
    pl_pool          *pool;
    pl_target         target;
    pl_runner         runner;
};

const char *pl_version(void) {
    return PACELINE_VERSION;
}

static int told(pl_status st, const pl_err *err, char *message, size_t size) {
    if (st != PL_OK && message && size) snprintf(message, size, "%s", err->msg);
    return pl_status_exit(st);
}

static pl_status open_decoder(pl_decoder *d, const pl_decoder_options *o, pl_err *err) {
    pl_weights w = PL_WEIGHTS_AUTO;
    if (!o->target) return pl_fail(err, PL_E_USAGE, "target: is missing");
    if (o->weights && strcmp(o->weights, "bf16") == 0)
        w = PL_WEIGHTS_BF16;
    else if (o->weights && strcmp(o->weights, "fp32") == 0)
        w = PL_WEIGHTS_FP32;
    else if (o->weights)
        return pl_fail(err, PL_E_USAGE, "weights: %s: expected bf16 or fp32", o->weights);
    bool half = o->kv && strcmp(o->kv, "bf16") == 0;
    if (o->kv && !half && strcmp(o->kv, "fp32") != 0)
        return pl_fail(err, PL_E_USAGE, "kv: %s: expected fp32 or bf16", o->kv);
    d->model = pl_strdup(o->tokenizer ? o->tokenizer : o->target);
    if (!d->model) return pl_fail(err, PL_E_MEMORY, "decoder: out of memory");
    const pl_backend *be;
    PL_TRY(pl_device_open(&be, o->device ? o->device : "cpu", err));
    PL_TRY(pl_pool_create(&d->pool, o->threads, err));
    PL_TRY(pl_target_open(&d->target, o->target, o->tokenizer, o->pre, w, be, err));
    d->target.model.shape.kv = half ? PL_BF16 : PL_F32;
    pl_runner_options ro = {.drafter = o->drafter, .tree = o->tree, .max_len = o->max_len};
    return pl_runner_open(&d->runner, be, d->pool, &d->target, &ro, err);
}

int pl_decoder_open(pl_decoder **out, const pl_decoder_options *options, char *message, size_t size) {
    pl_err    err = {0};
    pl_status st;
    *out = pl_calloc(1, sizeof **out);
    st = *out ? open_decoder(*out, options, &err) : pl_fail(&err, PL_E_MEMORY, "decoder: out of memory");
    if (st != PL_OK) {
        pl_decoder_close(*out);
        *out = NULL;
    }
    return told(st, &err, message, size);
}

void pl_decoder_close(pl_decoder *d) {
    if (!d) return;
    pl_runner_close(&d->runner);
    pl_target_close(&d->target);
    pl_pool_destroy(d->pool);
    pl_chat_template_close(d->chat);
    pl_free(d->model);
    pl_free(d);
}

int pl_decoder_encode(const pl_decoder *d, const char *text, size_t bytes, int32_t **ids, int64_t *n, char *message,
                      size_t size) {
    pl_err    err = {0};
    pl_status st = PL_OK;
    *ids = NULL;
    *n = 0;
    if (!d->target.tok)
        st = pl_fail(&err, PL_E_USAGE, "the target has no tokenizer");
    else
        st = pl_tokenizer_encode(d->target.tok, text, bytes, PL_TOK_ADD_BOS, ids, n, &err);
    return told(st, &err, message, size);
}

static pl_status encode_chat(pl_decoder *d, const pl_decoder_chat *chat, int32_t **ids, int64_t *n, pl_err *err) {
    pl_chat_template *other = NULL;
    pl_jinja_out      out;
    unsigned          notes = 0;
    pl_chat_options   o = {.add_generation_prompt = true, .kwargs = chat->kwargs, .date = chat->date, .notes = &notes};
    if (!d->target.tok) return pl_fail(err, PL_E_USAGE, "the target has no tokenizer");
    if (!chat->conversation) return pl_fail(err, PL_E_USAGE, "conversation: is missing");
    if (chat->chat_template)
        PL_TRY(pl_chat_template_open(&other, d->model, chat->chat_template, err));
    else if (!d->chat)
        PL_TRY(pl_chat_template_open(&d->chat, d->model, NULL, err));
    pl_status st = pl_chat_template_render(other ? other : d->chat, "conversation", 0, chat->conversation, chat->bytes,
                                           &o, &out, err);
    if (st == PL_OK) pl_chat_warn_notes(notes, "conversation");
    if (st == PL_OK) st = pl_chat_encode(d->target.tok, out.text, out.n, ids, n, err);
    pl_jinja_out_fini(&out);
    pl_chat_template_close(other);
    return st;
}

int pl_decoder_encode_chat(pl_decoder *d, const pl_decoder_chat *chat, int32_t **ids, int64_t *n, char *message,
                           size_t size) {
    pl_err err = {0};
    *ids = NULL;
    *n = 0;
    return told(encode_chat(d, chat, ids, n, &err), &err, message, size);
}

static bool is_stop(const pl_decoder *d, int32_t id) {
    for (int i = 0; i < d->target.n_stop; i++)
        if (d->target.stop[i] == id) return true;
    return false;
}

int pl_decoder_message(const pl_decoder *d, const int32_t *ids, int64_t n, char **json, char *message, size_t size) {
    pl_err    err = {0};
    pl_status st = PL_OK;
    *json = NULL;
    if (n > 0 && is_stop(d, ids[n - 1])) n--;
    if (!d->target.tok)
        st = pl_fail(&err, PL_E_USAGE, "the target has no tokenizer");
    else
        st = pl_chat_answer_message(json, d->target.tok, ids, n, &err);
    return told(st, &err, message, size);
}

void pl_decoder_free(void *ids) {
    pl_free(ids);
}

typedef struct telling {
    pl_decoder_token fn;
    void            *arg;
    pl_detok         detok;
    bool             has_text, ended;
} telling;

static bool tell(void *arg, int32_t token) {
    telling    *t = arg;
    const char *text = NULL;
    size_t      n = t->has_text ? pl_detok_push(&t->detok, token, &text) : 0;
    t->ended = t->fn && !t->fn(t->arg, token, text, n);
    return !t->ended;
}

static bool starts_text(const pl_decoder *d, const pl_decoder_request *r) {
    for (int64_t i = 0; i < r->n_prompt; i++)
        if (!pl_tokenizer_is_special(d->target.tok, r->prompt[i])) return false;
    return true;
}

static double or_zero(double x) {
    return isfinite(x) ? x : 0;
}

int pl_decoder_generate(pl_decoder *d, const pl_decoder_request *request, pl_decoder_token on_token, void *arg,
                        pl_decoder_stats *stats, char *message, size_t size) {
    pl_err      err = {0};
    pl_status   st = PL_OK;
    telling     t = {.fn = on_token, .arg = arg, .has_text = d->target.tok != NULL};
    pl_sampling s = {.temperature = request->temperature,
                     .top_k = request->top_k,
                     .top_p = request->top_p == 0 ? 1 : request->top_p,
                     .seed = request->seed};
    int         max_new = request->max_new_tokens ? request->max_new_tokens : MAX_NEW;
    if (stats) *stats = (pl_decoder_stats){0};
    if (max_new < 1)
        return told(pl_fail(&err, PL_E_USAGE, "max_new_tokens: %d: must be positive", max_new), &err, message, size);
    if (t.has_text) st = pl_detok_init(&t.detok, d->target.tok, starts_text(d, request), &err);
    if (st == PL_OK) st = pl_runner_run(&d->runner, request->prompt, request->n_prompt, &s, max_new, tell, &t, &err);
    if (st == PL_OK && t.has_text && on_token && !t.ended) {
        const char *text;
        size_t      n = pl_detok_flush(&t.detok, &text);
        if (n) on_token(arg, -1, text, n);
    }
    if (st == PL_OK && stats) {
        const pl_session       *session = d->runner.session;
        const pl_session_stats *x = pl_session_statistics(session);
        *stats = (pl_decoder_stats){.prompt_tokens = pl_session_prompt(session),
                                    .tokens = x->emitted,
                                    .steps = x->steps,
                                    .drafted = x->drafted,
                                    .accepted = x->accepted,
                                    .seconds = x->seconds,
                                    .prefill_seconds = x->prefill_seconds,
                                    .tokens_per_second = or_zero(pl_stats_speed(x)),
                                    .acceptance_length = or_zero(pl_stats_acceptance(x)),
                                    .stopped = pl_session_finish(session) == PL_STOPPED};
    }
    if (t.has_text) pl_detok_fini(&t.detok);
    return told(st, &err, message, size);
}

int pl_decoder_save(pl_decoder *d, char *message, size_t size) {
    pl_err err = {0};
    return told(pl_runner_save(&d->runner, &err), &err, message, size);
}
