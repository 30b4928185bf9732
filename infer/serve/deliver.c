// How a job's text reaches its client.
#include "infer/serve/job.h"
#include "infer/serve/native.h"
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"

static pl_answer describe_job(const pl_job *j, const pl_job_server *s) {
    return (pl_answer){.tok = s->target->tok,
                       .id = j->id,
                       .model = s->model,
                       .created = j->created,
                       .chat = j->chat,
                       .chunk = j->stream};
}

// ---- what a session emitted -----------------------------------------------------------------------------------------

// Divides the text that can be given out.
static void divide_text(pl_choice *c) {
    size_t      n;
    const char *text = pl_delta_take(&c->delta, &n);
    pl_parts_push(&c->parts, text, n);
}

static void end_text(pl_choice *c, const char *why, int64_t tokens) {
    pl_delta_end(&c->delta);
    divide_text(c);
    pl_parts_end(&c->parts);
    c->finish = c->delta.stopped ? "stop" : why;
    c->tokens = tokens;
    if (c->parts.n_calls > 0 && strcmp(c->finish, "stop") == 0) c->finish = "tool_calls";
}

// Takes in a token; returns false if it ends the answer.
static bool take_token(pl_choice *c, int32_t token) {
    bool more = pl_delta_push(&c->delta, token);
    if (c->job->native) pl_strbuf_add(&c->ids, (const char *)&token, sizeof token);
    divide_text(c);
    return more && !(c->job->one_call && c->parts.n_calls > 0);
}

bool pl_choice_take(pl_choice *c) {
    int32_t        n;
    const int32_t *answer = pl_session_answer(c->session, &n);
    pl_finish      finish = pl_session_finish(c->session);
    int64_t        emitted = pl_session_length(c->session) - pl_session_prompt(c->session);
    if (emitted > 0 && c->first == 0) c->first = pl_now();
    if (c->job->max_tokens == 0) n = 0, emitted = 0; // the prompt alone was asked for
    while (c->taken < n && !c->finish)
        if (!take_token(c, answer[c->taken++])) end_text(c, "stop", c->taken);
    // A grammar without room for more states allows the end anywhere.
    bool whole = !c->constraint.grammar || pl_grammar_constraint_met(&c->constraint, answer, n);
    if (!c->finish && finish != PL_RUNNING) end_text(c, finish == PL_STOPPED && whole ? "stop" : "length", emitted);
    return !c->delta.text.failed && !c->parts.failed && !c->ids.failed;
}

// ---- streams --------------------------------------------------------------------------------------------------------

// Sends an object as an event.
static bool send_event(pl_job *j, pl_json_out *o) {
    static const char head[] = "data: ", tail[] = "\n\n";
    if (pl_json_out_end(o, NULL) != PL_OK) return false;
    bool sent = pl_exchange_write(j->x, head, sizeof head - 1) && pl_exchange_write(j->x, o->text, o->len) &&
                pl_exchange_write(j->x, tail, sizeof tail - 1);
    pl_free(o->text);
    return sent;
}

// Sends an object begun by pl_answer_begin.
static bool send_object(pl_job *j, pl_json_out *o, const pl_answer_usage *usage) {
    pl_answer_end(o, usage, j->include_usage);
    return send_event(j, o);
}

static bool send_choice(pl_job *j, const pl_job_server *s, const pl_answer_choice *part) {
    pl_json_out o;
    pl_answer   a = describe_job(j, s);
    pl_answer_begin(&o, &a);
    pl_answer_put_choice(&o, &a, part);
    return send_object(j, &o, NULL);
}

static size_t count_token(const pl_job_server *s, int32_t token) {
    size_t      n;
    const char *text = pl_tokenizer_bytes(s->target->tok, token, &n);
    return pl_count_characters(text, n);
}

// Describes tokens from..to of a choice, which follow those of the call before, with their log-probabilities.
static void set_logprobs(pl_answer_choice *part, pl_choice *c, const pl_job_server *s, int from, int to) {
    const pl_job_prompt *p = &c->job->prompt[c->prompt];
    if (c->job->logprobs < 0) return;
    part->logprobs = &c->logprobs;
    part->from = from;
    part->to = to;
    part->lead = p->echo && from == 0 ? p->ids : NULL;
    part->offset = c->offset;
    if (part->lead) c->offset += count_token(s, *p->ids);
    for (int i = from; i < to; i++)
        c->offset += count_token(s, pl_logprobs_at(&c->logprobs, i)->token);
}

// Returns the log-probabilities that the tokens taken so far have.
static int count_logprobs(const pl_choice *c) {
    const pl_job_prompt *p = &c->job->prompt[c->prompt];
    return c->taken + (p->echo ? (int)p->n - 1 : 0);
}

// Sends the chunk that begins a choice: of a chat the role, of a completion the prompt that it echoes.
static bool send_begin(pl_choice *c, const pl_job_server *s) {
    const pl_job_prompt *p = &c->job->prompt[c->prompt];
    pl_answer_choice     part = {.index = c->index, .text = "", .first = true};
    c->begun = true;
    if (p->echo) {
        part.text = p->echo;
        part.bytes = strlen(p->echo);
        c->sent = (int32_t)p->n - 1;
        set_logprobs(&part, c, s, 0, c->sent);
    }
    return (!c->job->chat && !p->echo) || send_choice(c->job, s, &part);
}

// Sets the text that has not been sent, and counts it as sent.
static const char *take_part(const pl_part *p, size_t *given, size_t *n) {
    *n = p->text.n - *given;
    *given = p->text.n;
    return *n ? p->text.s + p->text.n - *n : "";
}

static void take_parts(pl_answer_choice *part, pl_choice *c) {
    part->reasoning = take_part(&c->parts.reasoning, &c->given[0], &part->reasoning_bytes);
    part->text = take_part(&c->parts.content, &c->given[1], &part->bytes);
    part->call = c->parts.call;
    part->call_from = c->given_calls;
    part->call_to = c->job->one_call && c->parts.n_calls > 1 ? 1 : c->parts.n_calls;
    c->given_calls = part->call_to;
}

static bool send_native_part(pl_choice *c, const pl_job_server *s, const pl_native_part *part) {
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_native_put(&o, c, s, part);
    c->sent = part->to;
    return send_event(c->job, &o);
}

static bool send_native(pl_choice *c, const pl_job_server *s) {
    pl_native_part part = {.from = c->sent, .to = c->taken};
    part.text = take_part(&c->parts.content, &c->given[1], &part.bytes);
    if (part.bytes > 0 && !send_native_part(c, s, &part)) return false;
    return !c->finish ||
           send_native_part(c, s, &(pl_native_part){.text = "", .from = c->sent, .to = c->taken, .last = true});
}

bool pl_choice_send(pl_choice *c, const pl_job_server *s) {
    if (c->job->native) return send_native(c, s);
    pl_answer_choice part = {.index = c->index};
    int              tokens = count_logprobs(c);
    if (c->first == 0 && !c->finish) return true; // its prompt is being read
    if (!c->begun && !send_begin(c, s)) return false;
    take_parts(&part, c);
    bool more = part.bytes > 0 || part.reasoning_bytes > 0 || part.call_to > part.call_from;
    if (more || (c->finish && tokens > c->sent && c->job->logprobs >= 0)) {
        set_logprobs(&part, c, s, c->sent, tokens);
        c->sent = tokens;
        if (!send_choice(c->job, s, &part)) return false;
    }
    if (!c->finish) return true;
    return send_choice(c->job, s, &(pl_answer_choice){.index = c->index, .text = "", .finish = c->finish});
}

// ---- the end --------------------------------------------------------------------------------------------------------

static pl_answer_usage count_usage(const pl_job *j, const pl_job_server *s) {
    pl_answer_usage u = {.completion = j->completion, .cached = j->cached, .stats = s->drafts ? &j->stats : NULL};
    for (int i = 0; i < j->n_prompts; i++)
        u.prompt += j->prompt[i].n;
    return u;
}

static bool end_stream(pl_job *j, const pl_job_server *s) {
    static const char done[] = "data: [DONE]\n\n";
    pl_json_out       o;
    pl_answer         a = describe_job(j, s);
    pl_answer_usage   u = count_usage(j, s);
    bool              sent = true;
    if (j->include_usage) {
        pl_answer_begin(&o, &a);
        sent = send_object(j, &o, &u);
    }
    if (!j->native) sent = sent && pl_exchange_write(j->x, done, sizeof done - 1);
    pl_exchange_end(j->x);
    return sent;
}

// Adds a whole choice, behind the prompt that it echoes.
static void put_whole(pl_json_out *o, const pl_answer *a, pl_choice *c, const pl_job_server *s) {
    const char      *echo = c->job->prompt[c->prompt].echo;
    pl_strbuf        text = {0};
    pl_answer_choice whole = {.index = c->index, .finish = c->finish};
    take_parts(&whole, c);
    if (echo) pl_strbuf_add(&text, echo, strlen(echo));
    if (whole.bytes) pl_strbuf_add(&text, whole.text, whole.bytes);
    whole.text = text.s ? text.s : "";
    whole.bytes = text.n;
    set_logprobs(&whole, c, s, 0, count_logprobs(c));
    pl_answer_put_choice(o, a, &whole);
    o->failed |= text.failed;
    pl_strbuf_fini(&text);
}

// One object, or a list of several.
static void put_native(pl_json_out *o, pl_job *j, const pl_job_server *s) {
    pl_json_out_begin(o, 0);
    if (j->n > 1) pl_json_out_array(o);
    for (int i = 0; i < j->n; i++) {
        pl_choice     *c = &j->choice[i];
        pl_native_part whole = {.to = c->taken, .last = true};
        whole.text = take_part(&c->parts.content, &c->given[1], &whole.bytes);
        pl_native_put(o, c, s, &whole);
    }
    if (j->n > 1) pl_json_out_close(o, ']');
}

static void put_answer(pl_json_out *o, pl_job *j, const pl_job_server *s) {
    pl_answer       a = describe_job(j, s);
    pl_answer_usage u = count_usage(j, s);
    pl_answer_begin(o, &a);
    for (int i = 0; i < j->n; i++)
        put_whole(o, &a, &j->choice[i], s);
    pl_answer_end(o, &u, false);
}

static void answer_whole(pl_job *j, const pl_job_server *s) {
    pl_json_out o;
    if (j->native)
        put_native(&o, j, s);
    else
        put_answer(&o, j, s);
    bool made = pl_json_out_end(&o, NULL) == PL_OK;
    pl_exchange_answer(j->x, 200, "application/json", made ? o.text : NULL, made ? o.len : 0);
}

bool pl_job_finish(pl_job *j, const pl_job_server *s) {
    if (j->stream) return end_stream(j, s);
    answer_whole(j, s);
    return true;
}

void pl_job_fail(pl_job *j, int status, const char *message) {
    if (!j->stream) {
        pl_exchange_fail(j->x, status, message, NULL, NULL);
        return;
    }
    char *text = pl_error_text(status, message, NULL, NULL);
    if (text && pl_exchange_write(j->x, "data: ", 6) && pl_exchange_write(j->x, text, strlen(text)))
        pl_exchange_write(j->x, "\n\n", 2);
    pl_free(text);
    pl_exchange_end(j->x);
}
