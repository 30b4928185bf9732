#include "infer/serve/serve.h"
#include "infer/serve/routes.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"

#include <sodium.h>
#include <string.h>

enum {
    WAIT = 200, // milliseconds without work until a stop request is looked for
    LINGER = 5, // seconds for clients to read their answers before a requested stop
};

// ---- jobs and slots -------------------------------------------------------------------------------------------------

void pl_server_add(pl_server *s, pl_job *j) {
    j->before = s->last;
    *(s->last ? &s->last->after : &s->jobs) = j;
    s->last = j;
    s->metrics.waiting += j->n;
    for (int i = 0; i < j->n_prompts; i++)
        s->metrics.prompt += j->prompt[i].n;
    j->x->job = j;
}

static void remove_job(pl_server *s, pl_job *j) {
    *(j->before ? &j->before->after : &s->jobs) = j->after;
    *(j->after ? &j->after->before : &s->last) = j->before;
    s->metrics.waiting -= j->n - j->started;
    j->x->job = NULL;
    pl_job_free(j);
}

// Frees the slot of a choice. broken: its client has left.
static void end_session(pl_server *s, pl_choice *c, bool broken) {
    pl_session *x = c->session;
    double      now = pl_now();
    int         i = 0;
    while (s->running[i] != c)
        i++;
    s->running[i] = s->running[--s->metrics.running];
    c->session = NULL;
    const pl_session_stats *stats = pl_session_statistics(x);
    c->counts = (pl_session_counts){.reused = pl_session_reused(x),
                                    .drafted = stats->drafted,
                                    .accepted = stats->accepted,
                                    .prefill_seconds = stats->prefill_seconds,
                                    .seconds = stats->seconds};
    pl_stats_add(&s->metrics.stats, pl_session_statistics(x));
    pl_stats_add(&c->job->stats, pl_session_statistics(x));
    s->metrics.generated += pl_session_length(x) - pl_session_prompt(x);
    pl_engine_end(s->o->runner->engine, x);
    if (broken) {
        s->metrics.broken++;
        return;
    }
    bool stopped = strcmp(c->finish, "length") != 0;
    s->metrics.stopped += stopped;
    s->metrics.lengthy += !stopped;
    s->metrics.n_answers++;
    s->metrics.whole += now - c->job->arrived;
    if (c->first == 0) return;
    s->metrics.n_first++;
    s->metrics.first += c->first - c->job->arrived;
    if (c->tokens < 2) return;
    s->metrics.n_later += c->tokens - 1;
    s->metrics.later += now - c->first;
}

// Ends all sessions of a job whose client is gone.
static void drop_job(pl_server *s, pl_job *j) {
    for (int i = 0; i < j->n; i++)
        if (j->choice[i].session) end_session(s, &j->choice[i], true);
    remove_job(s, j);
}

static void fail_job(pl_server *s, pl_job *j, int status, const char *message) {
    pl_job_fail(j, status, message);
    drop_job(s, j);
}

// Completes a job after its last choice.
static void finish_if_ended(pl_server *s, pl_job *j) {
    if (j->ended < j->n) return;
    pl_job_finish(j, &s->job);
    remove_job(s, j);
}

// Starts the next choice of a job. A request for no tokens ends at once.
static pl_status start_choice(pl_server *s, pl_job *j, pl_err *err) {
    pl_choice         *c = &j->choice[j->started];
    pl_job_prompt     *p = &j->prompt[c->prompt];
    pl_session_options o = pl_choice_options(c, &s->job);
    j->started++;
    s->metrics.waiting--;
    if (o.max_new == 0) {
        c->finish = "length";
        j->ended++;
        return PL_OK;
    }
    PL_TRY(pl_engine_start(s->o->runner->engine, p->ids, (int)p->n, &o, &c->session, err));
    if (o.key == 0) j->cached += pl_session_reused(c->session); // a prompt's tokens count once
    s->running[s->metrics.running++] = c;
    return PL_OK;
}

static pl_status fill_slots(pl_server *s, pl_err *err) {
    for (pl_job *j = s->jobs, *after; j; j = after) {
        after = j->after;
        bool sent = true;
        while (j->started < j->n && s->metrics.running < s->o->sessions && sent) {
            PL_TRY(start_choice(s, j, err));
            pl_choice *c = &j->choice[j->started - 1];
            sent = !c->finish || !j->stream || pl_choice_send(c, &s->job);
        }
        if (sent)
            finish_if_ended(s, j);
        else
            drop_job(s, j);
    }
    return PL_OK;
}

static void record_answer(pl_server *s, const pl_choice *c) {
    const pl_session *x = c->session;
    int32_t           prompt = pl_session_prompt(x), n = pl_session_length(x) - prompt;
    const int32_t    *ids = pl_session_tokens(x);
    if (!s->o->record) return;
    pl_record_answer(s->o->record, ids, prompt, ids + prompt, n, pl_session_finish(x) == PL_STOPPED);
    s->metrics.recorded = pl_record_written(s->o->record);
}

// Takes in and sends what a choice's session emitted in this step.
static void deliver_tokens(pl_server *s, pl_choice *c) {
    pl_job *j = c->job;
    if (!pl_choice_take(c)) {
        fail_job(s, j, 500, "out of memory");
        return;
    }
    if (c->finish) {
        record_answer(s, c);
        end_session(s, c, false);
        j->ended++;
        j->completion += c->tokens;
    }
    if (j->stream && !pl_choice_send(c, &s->job)) {
        drop_job(s, j);
        return;
    }
    finish_if_ended(s, j);
}

// ---- steps ----------------------------------------------------------------------------------------------------------

// Records log-probabilities of tokens that the rows of a step predicted.
static void on_final(void *arg, const pl_final_rows *rows) {
    pl_server *s = arg;
    pl_choice *c = NULL;
    for (int i = 0; i < s->metrics.running && !c; i++)
        if (s->running[i]->session == rows->session) c = s->running[i];
    if (!c || c->job->logprobs < 0 || !rows->logits) return;
    const int32_t *tokens = pl_session_tokens(rows->session);
    int32_t        prompt = pl_session_prompt(rows->session), n = pl_session_length(rows->session);
    int64_t        vocab = s->job.target->model.vocab;
    int32_t        base = c->job->prompt[c->prompt].echo ? 1 : prompt; // the first token with one
    for (int32_t i = 0; i < rows->count; i++) {
        int32_t at = rows->first + i + 1, row = rows->logits_row[rows->row[i]];
        if (row < 0 || at >= n || at - base != c->logprobs.n) continue;
        if (pl_logprobs_add(&c->logprobs, rows->logits + (size_t)row * (size_t)vocab, vocab, tokens[at], NULL) != PL_OK)
            c->delta.text.failed = true; // reported when it is delivered
    }
}

static bool wants_logprobs(const pl_server *s) {
    for (int i = 0; i < s->metrics.running; i++)
        if (s->running[i]->job->logprobs >= 0) return true;
    return false;
}

static pl_status take_step(pl_server *s, pl_err *err) {
    pl_engine *e = s->o->runner->engine;
    pl_engine_on_final(e, wants_logprobs(s) ? on_final : NULL, s);
    PL_TRY(pl_engine_step(e, err));
    // A delivery may end several choices: each slot's is looked up when its turn comes.
    for (int slot = 0; slot < s->o->sessions; slot++) {
        pl_session *x = pl_engine_session(e, slot);
        pl_choice  *c = NULL;
        for (int i = 0; x && i < s->metrics.running && !c; i++)
            if (s->running[i]->session == x) c = s->running[i];
        if (c) deliver_tokens(s, c);
    }
    return PL_OK;
}

// ---- the loop -------------------------------------------------------------------------------------------------------

static void on_gone(void *arg, pl_exchange *x) {
    drop_job(arg, x->job);
}

// After a stop request those that wait are refused, those that run end.
static void begin_stop(pl_server *s) {
    s->stopping = true;
    for (pl_job *j = s->jobs, *after; j; j = after) {
        after = j->after;
        if (j->started == 0) fail_job(s, j, 503, "the server is stopping");
    }
}

static bool has_ended(const pl_server *s) {
    return s->stopping && !s->jobs && (pl_http_exchanges(s->http) == 0 || pl_now() > s->busy + LINGER);
}

static pl_status run_loop(pl_server *s, pl_err *err) {
    while (!has_ended(s)) {
        PL_TRY(pl_http_run(s->http, s->jobs ? 0 : WAIT, err));
        if (s->jobs || !s->stopping) s->busy = pl_now();
        if (!s->stopping && pl_stop_requested()) begin_stop(s);
        PL_TRY(fill_slots(s, err));
        if (s->metrics.running > 0) PL_TRY(take_step(s, err));
    }
    return PL_OK;
}

// Answers all with a failure of the engine.
static void fail_all(pl_server *s, const char *why) {
    while (s->jobs)
        fail_job(s, s->jobs, 500, why);
    pl_http_run(s->http, 0, NULL);
}

pl_status pl_serve(const pl_serve_options *o, pl_metrics *done, pl_err *err) {
    pl_server s = {.o = o,
                   .job = {.target = o->runner->target,
                           .chat = o->chat,
                           .no_chat = o->no_chat,
                           .chat_options = o->chat_options,
                           .dated = o->dated,
                           .model = o->model,
                           .max_len = o->runner->max_len,
                           .drafts = o->runner->drafter != NULL,
                           .seed = o->seed,
                           .has_seed = o->has_seed},
                   .begun = (int64_t)pl_unix_time()};
    s.metrics.drafts = s.job.drafts;
    pl_job_server_look(&s.job);
    PL_CHECK(s.job.target->tok, "a server needs a tokenizer");
    if (sodium_init() < 0) return pl_fail(err, PL_E_IO, "serve: libsodium finds no random numbers");
    s.running = pl_calloc((size_t)o->sessions, sizeof(pl_choice *));
    if (!s.running) return pl_fail(err, PL_E_MEMORY, "serve: out of memory");
    pl_stop_hold();
    pl_http_options h = {.host = o->host,
                         .port = o->port,
                         .access = o->access,
                         .origin = o->origin,
                         .routes = pl_routes,
                         .arg = &s,
                         .gone = on_gone};
    pl_status       st = pl_http_open(&s.http, &h, err);
    if (st == PL_OK) {
        o->ready(o->arg, pl_http_port(s.http));
        st = run_loop(&s, err);
        if (st != PL_OK) fail_all(&s, err->msg);
    }
    pl_http_close(s.http);
    pl_engine_on_final(o->runner->engine, NULL, NULL);
    pl_stop_release();
    pl_grammar_cache_fini(&s.job.grammars);
    pl_token_text_close(s.job.tokens);
    pl_free(s.running);
    *done = s.metrics;
    return st;
}
