#include "infer/serve/job.h"
#include "data/chat/prompts.h"
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"

#include <sodium.h>
#include <stdio.h>
#include <time.h>

// ---- prompts --------------------------------------------------------------------------------------------------------

static bool ends_with(const char *s, size_t n, const char *with) {
    size_t m = strlen(with);
    return n >= m && memcmp(s + n - m, with, m) == 0;
}

// Returns whether an answer behind this prompt may reason: in a block that the prompt has begun, or not where it has
// closed one.
static pl_reasoning find_reasoning(const char *s, size_t n) {
    while (n > 0 && (s[n - 1] == '\n' || s[n - 1] == ' '))
        n--;
    return ends_with(s, n, "<think>")    ? PL_REASONING_BEGUN
           : ends_with(s, n, "</think>") ? PL_REASONING_NONE
                                         : PL_REASONING_MAY;
}

static pl_status encode_chat(const pl_job_server *s, pl_request *r, const pl_strbuf *body, int32_t **ids, int64_t *n,
                             pl_err *err) {
    char            now[32];
    time_t          at = time(NULL);
    struct tm       local;
    unsigned        notes = 0;
    pl_jinja_out    out = {0};
    pl_chat_options o = s->chat_options;
    if (!s->chat) return pl_fail(err, PL_E_UNSUPPORTED, "messages: %s", s->no_chat);
    if (r->n_tools > 0 && !pl_chat_template_has(s->chat, "tools", false))
        return pl_fail(err, PL_E_UNSUPPORTED, "tools: the model's chat template does not write them");
    localtime_r(&at, &local);
    strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S", &local);
    if (!s->dated) o.date = now;
    o.add_generation_prompt = r->add_generation_prompt;
    o.notes = &notes;
    o.developer_is_system = true;
    o.no_tools = r->tool_choice == PL_TOOLS_NONE;
    // The record is the body: the template reads "messages" and "chat_template_kwargs" of it.
    PL_TRY(pl_chat_template_render(s->chat, "body", 0, body->s, body->n, &o, &out, err));
    r->reasoning = s->thinks ? find_reasoning(out.text, out.n) : PL_REASONING_NONE;
    pl_status st = pl_chat_encode(s->target->tok, out.text, out.n, ids, n, err);
    pl_jinja_out_fini(&out);
    if (st == PL_OK) pl_chat_warn_notes(notes, "requests");
    return st;
}

static pl_status copy_ids(const pl_request_prompt *p, int32_t **ids, int64_t *n, pl_err *err) {
    *n = p->n_ids;
    *ids = pl_malloc(((size_t)*n + 1) * sizeof **ids);
    if (!*ids) return pl_fail(err, PL_E_MEMORY, "prompt: out of memory");
    memcpy(*ids, p->ids, (size_t)*n * sizeof **ids);
    return PL_OK;
}

pl_status pl_request_encode(const pl_job_server *s, pl_request *r, const pl_strbuf *body, int i, int32_t **ids,
                            int64_t *n, pl_err *err) {
    *ids = NULL;
    if (r->messages) return encode_chat(s, r, body, ids, n, err);
    const pl_request_prompt *p = &r->prompt[i];
    if (!p->text) return copy_ids(p, ids, n, err);
    return pl_tokenizer_encode(s->target->tok, p->text, strlen(p->text), r->add_special ? PL_TOK_ADD_BOS : 0, ids, n,
                               err);
}

static pl_status check_ids(const pl_job_server *s, const int32_t *ids, int64_t n, pl_err *err) {
    long long vocab = s->target->model.vocab;
    if (!ids || n < 1) return pl_fail(err, PL_E_INPUT, "the prompt is empty: give at least one token");
    if (n >= s->max_len)
        return pl_fail(err, PL_E_INPUT, "the prompt has %lld tokens, the context holds %d; shorten it", (long long)n,
                       s->max_len);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return pl_fail(err, PL_E_INPUT, "prompt token %lld is %d, outside the vocabulary of %lld", (long long)i,
                           ids[i], vocab);
    return PL_OK;
}

static uint64_t draw_number(void) {
    uint64_t x;
    randombytes_buf(&x, sizeof x);
    return x >> 11; // a double holds it
}

static pl_status add_prompt(pl_job *j, const pl_job_server *s, pl_request *r, int i, pl_err *err) {
    pl_job_prompt *p = &j->prompt[i];
    size_t         bytes;
    PL_TRY(pl_request_encode(s, r, &j->x->body, i, &p->ids, &p->n, err));
    PL_TRY(check_ids(s, p->ids, p->n, err));
    p->seed = r->has_seed ? r->sampling.seed : s->has_seed ? s->seed : draw_number();
    if (!r->echo) return PL_OK;
    const char *text = r->prompt[i].text;
    if (!text) return pl_tokenizer_decode(s->target->tok, p->ids, p->n, &p->echo, &bytes, err);
    p->echo = pl_strdup(text);
    return p->echo ? PL_OK : pl_fail(err, PL_E_MEMORY, "prompt: out of memory");
}

// ---- jobs -----------------------------------------------------------------------------------------------------------

static pl_status copy_stops(pl_job *j, const pl_job_server *s, const pl_request *r, pl_err *err) {
    const pl_target *t = s->target;
    for (; j->n_stop < r->n_stop; j->n_stop++) {
        j->stop[j->n_stop] = pl_strdup(r->stop[j->n_stop]);
        if (!j->stop[j->n_stop]) return pl_fail(err, PL_E_MEMORY, "stop: out of memory");
    }
    for (int i = 0; i < r->n_stop_ids; i++)
        j->stop_id[j->n_stop_ids++] = r->stop_id[i];
    if (!r->ignore_eos && t->n_stop + j->n_stop_ids > PL_MAX_STOP)
        return pl_fail(err, PL_E_INPUT, "stop_token_ids: at most %d beside the model's own", PL_MAX_STOP - t->n_stop);
    for (int i = 0; i < t->n_stop && !r->ignore_eos; i++)
        j->stop_id[j->n_stop_ids++] = t->stop[i];
    return PL_OK;
}

static pl_status fail_bias(pl_request *r, pl_status st, const char *why, pl_err *err) {
    snprintf(r->param, sizeof r->param, "logit_bias");
    return pl_fail(err, st, "logit_bias: %s", why);
}

// Adds the biases of texts to those of ids: each token of a text gets its own.
static pl_status spell_bias(pl_job *j, const pl_job_server *s, pl_request *r, pl_err *err) {
    for (int i = 0; i < r->n_text_bias; i++) {
        const char *text = r->text_bias[i].text;
        int32_t    *ids;
        int64_t     n, before = j->sampling.n_bias;
        PL_TRY(pl_tokenizer_encode(s->target->tok, text, strlen(text), 0, &ids, &n, err));
        bool  fits = before + n <= PL_REQUEST_BIASES;
        void *more = fits ? pl_realloc(j->bias, (size_t)(before + n + 1) * sizeof *j->bias) : NULL;
        if (more) j->sampling.bias = j->bias = more;
        for (int64_t k = 0; k < n && more; k++)
            j->bias[j->sampling.n_bias++] = (pl_logit_bias){ids[k], r->text_bias[i].value};
        pl_free(ids);
        if (!fits) return fail_bias(r, PL_E_INPUT, "its texts have more than 1024 tokens", err);
        if (!more) return fail_bias(r, PL_E_MEMORY, "out of memory", err);
    }
    return PL_OK;
}

static pl_status check_bias(const pl_job *j, const pl_job_server *s, pl_err *err) {
    for (int i = 0; i < j->sampling.n_bias; i++)
        if (j->bias[i].id >= s->target->model.vocab)
            return pl_fail(err, PL_E_INPUT, "logit_bias: token %d is outside the vocabulary of %lld", j->bias[i].id,
                           (long long)s->target->model.vocab);
    return PL_OK;
}

// ---- answers of chats -----------------------------------------------------------------------------------------------

void pl_job_server_look(pl_job_server *s) {
    static const char *const thinking[] = {"<think>", "</think>"};
    if (!s->chat) return;
    s->form = pl_parts_form(s->chat);
    s->thinks = pl_chat_template_has(s->chat, thinking[1], false);
    for (int i = 0; i < PL_MARKS + 2; i++) {
        int32_t id = pl_tokenizer_find(s->target->tok, i < PL_MARKS ? pl_mark_text[i] : thinking[i - PL_MARKS]);
        if (pl_tokenizer_is_special(s->target->tok, id)) s->mark[s->n_marks++] = id;
    }
}

// Divides a chat's answer, unless it is held to a grammar of the request: that is all content.
static void divide_choice(pl_choice *c, const pl_job_server *s, const pl_request *r) {
    bool divided = r->ask == PL_ASK_CHAT && (!r->grammar || r->grammar_kind == PL_GRAMMAR_CALLS);
    bool calls = divided && r->n_tools > 0 && r->tool_choice != PL_TOOLS_NONE;
    pl_parts_init(&c->parts, divided ? s->form : PL_CALLS_NONE, calls, divided ? r->reasoning : PL_REASONING_NONE,
                  draw_number());
    if (!divided || (s->form == PL_CALLS_NONE && !s->thinks)) return;
    c->delta.mark = s->mark;
    c->delta.n_marks = s->n_marks;
}

// Holds the answers to calls of the tools, or of the named one, where the request requires them.
static pl_status require_call(const pl_job_server *s, pl_request *r, pl_err *err) {
    pl_calls c = {.form = s->form, .reasoning = r->reasoning, .many = r->parallel_calls};
    if (r->tool_choice != PL_TOOLS_REQUIRED && r->tool_choice != PL_TOOLS_NAMED) return PL_OK;
    r->grammar_field = "tool_choice";
    snprintf(r->param, sizeof r->param, "%s", r->grammar_field);
    if (s->form == PL_CALLS_NONE)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "tool_choice: the form of calls in the model's chat template is unknown here; use auto or none");
    c.functions = r->tool;
    c.n = r->n_tools;
    for (int i = 0; i < r->n_tools && r->tool_name; i++)
        if (strcmp(pl_json_find(&r->body, r->tool[i], "name")->valuestring, r->tool_name) == 0) {
            c.functions = &r->tool[i];
            c.n = 1;
        }
    r->grammar = pl_calls_write(&c);
    r->grammar_kind = PL_GRAMMAR_CALLS;
    *r->param = 0;
    return r->grammar ? PL_OK : pl_fail(err, PL_E_MEMORY, "tool_choice: out of memory");
}

// Each choice walks a grammar of its own.
static pl_status hold_choice(pl_choice *c, pl_job_server *s, pl_request *r, pl_err *err) {
    pl_grammar *g;
    if (!r->grammar) return PL_OK;
    snprintf(r->param, sizeof r->param, "%s", r->grammar_field);
    if (!s->tokens) PL_TRY(pl_token_text_open(&s->tokens, s->target->tok, err));
    PL_TRY(pl_grammar_cached(&s->grammars, &g, r->grammar_kind, r->grammar, strlen(r->grammar), s->tokens, err));
    PL_TRY(pl_grammar_constraint_init(&c->constraint, g, s->target->model.vocab, c->job->stop_id, c->job->n_stop_ids,
                                      err));
    *r->param = 0;
    return PL_OK;
}

static pl_status fill_job(pl_job *j, pl_job_server *s, pl_request *r, pl_err *err) {
    const pl_tokenizer *tok = s->target->tok;
    int                 prompts = r->messages ? 1 : r->n_prompts;
    j->prompt = pl_calloc((size_t)prompts, sizeof *j->prompt);
    j->choice = pl_calloc((size_t)prompts * (size_t)r->n, sizeof *j->choice);
    if (!j->prompt || !j->choice) return pl_fail(err, PL_E_MEMORY, "request: out of memory");
    j->n_prompts = prompts;
    for (int i = 0; i < prompts; i++)
        PL_TRY(add_prompt(j, s, r, i, err));
    PL_TRY(copy_stops(j, s, r, err));
    PL_TRY(spell_bias(j, s, r, err));
    PL_TRY(check_bias(j, s, err));
    PL_TRY(require_call(s, r, err));
    while (j->n < prompts * r->n) {
        pl_choice           *c = &j->choice[j->n];
        const pl_job_prompt *p = &j->prompt[j->n / r->n];
        *c = (pl_choice){.job = j, .prompt = j->n / r->n, .index = j->n, .logprobs = {.top = r->logprobs}};
        PL_TRY(pl_delta_init(&c->delta, tok, pl_tokenizer_all_special(tok, p->ids, p->n), (const char *const *)j->stop,
                             j->n_stop, err));
        j->n++;
        divide_choice(c, s, r);
        PL_TRY(hold_choice(c, s, r, err));
    }
    return PL_OK;
}

pl_status pl_job_create(pl_job **out, pl_job_server *s, pl_request *r, pl_exchange *x, pl_err *err) {
    pl_job *j = pl_calloc(1, sizeof *j);
    *out = NULL;
    if (!j) return pl_fail(err, PL_E_MEMORY, "request: out of memory");
    *j = (pl_job){.x = x,
                  .created = time(NULL),
                  .arrived = pl_now(),
                  .chat = r->ask == PL_ASK_CHAT,
                  .native = r->ask == PL_ASK_NATIVE,
                  .return_tokens = r->return_tokens,
                  .stream = r->stream,
                  .include_usage = r->include_usage,
                  .logprobs = r->logprobs,
                  .max_tokens = r->max_tokens,
                  .plain = r->plain,
                  .draft_depth = r->draft_depth,
                  .one_call = !r->parallel_calls,
                  .sampling = r->sampling,
                  .bias = r->bias};
    r->bias = NULL; // the job's from here on
    snprintf(j->id, sizeof j->id, "%s-%014llx%014llx", j->chat ? "chatcmpl" : "cmpl", (unsigned long long)draw_number(),
             (unsigned long long)draw_number());
    pl_status st = fill_job(j, s, r, err);
    if (st != PL_OK) {
        if (!*r->param && (st == PL_E_INPUT || st == PL_E_UNSUPPORTED))
            snprintf(r->param, sizeof r->param, "%s", r->messages ? "messages" : "prompt");
        pl_job_free(j);
        return st;
    }
    *out = j;
    return PL_OK;
}

void pl_job_free(pl_job *j) {
    if (!j) return;
    for (int i = 0; i < j->n; i++) {
        pl_grammar_constraint_fini(&j->choice[i].constraint);
        pl_delta_fini(&j->choice[i].delta);
        pl_parts_fini(&j->choice[i].parts);
        pl_logprobs_fini(&j->choice[i].logprobs);
        pl_strbuf_fini(&j->choice[i].ids);
    }
    for (int i = 0; j->prompt && i < j->n_prompts; i++) {
        pl_free(j->prompt[i].ids);
        pl_free(j->prompt[i].echo);
    }
    for (int i = 0; i < j->n_stop; i++)
        pl_free(j->stop[i]);
    pl_free(j->bias);
    pl_free(j->prompt);
    pl_free(j->choice);
    pl_free(j);
}

pl_session_options pl_choice_options(pl_choice *c, const pl_job_server *s) {
    const pl_job        *j = c->job;
    const pl_job_prompt *p = &j->prompt[c->prompt];
    int64_t              room = s->max_len - p->n;
    pl_session_options   o = {.sampling = j->sampling,
                              .key = (uint64_t)(c->index % (j->n / j->n_prompts)), // a prompt's first choice has key 0
                              .max_new = (int)(j->max_tokens >= 0 && j->max_tokens < room ? j->max_tokens : room),
                              .plain = j->plain,
                              .draft_depth = j->draft_depth,
                              .prompt_logits = p->echo && j->logprobs >= 0,
                              .n_stop = j->n_stop_ids};
    // A prompt's log-probabilities alone take a step, whose token is left out.
    if (o.max_new == 0 && o.prompt_logits) o.max_new = 1;
    o.sampling.seed = p->seed;
    if (c->constraint.grammar) o.sampling.constraint = &c->constraint.base;
    memcpy(o.stop, j->stop_id, sizeof o.stop);
    return o;
}
