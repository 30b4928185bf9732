#include "infer/generate/generator.h"

#include "infer/decode/decode.h"
#include "infer/drafter/backbone.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"

#include <string.h>

// A document under construction; jobs in flight or waiting for earlier ones sit in a ring.
typedef struct job {
    int64_t    number;
    bool       done;
    pl_columns doc;
    int32_t    end;
} job;

struct pl_generator {
    const pl_llama      *target;
    pl_generator_options opt;
    pl_engine           *engine;
    int32_t            **prompt;                                     // [n_prompts] token ids
    int64_t             *prompt_n, *prompt_from, n_prompts, n_given; // from: its number among all that were given
    int                  n_stop;
    int32_t              stop[PL_MAX_STOP];
    job                 *ring;
    int                  ring_size;
    int64_t              next_start, next_out; // job numbers
    int64_t              in_out;               // ring index of the document lent to the caller, or -1
};

static pl_columns_shape shape_of(const pl_generator *g) {
    return (pl_columns_shape){.d = g->target->shape.d, .taps = g->opt.n_taps};
}

static void to_bf16(uint16_t *dst, const float *src, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        dst[i] = pl_f32_to_bf16(src[i]);
}

// Rows that the engine has made final: into the job's buffers, rounded to bf16.
static void on_final(void *arg, const pl_final_rows *r) {
    pl_generator *g = arg;
    pl_columns   *doc = &g->ring[pl_session_key(r->session) % (uint64_t)g->ring_size].doc;
    int64_t       d = g->target->shape.d, w = g->opt.n_taps * d;
    for (int i = 0; i < r->count; i++) {
        int64_t t = r->first + i, row = r->row[i];
        PL_CHECK(t < doc->room && t == doc->n, "row %lld of a document of %lld", (long long)t, (long long)doc->n);
        doc->tokens[t] = pl_session_tokens(r->session)[t];
        doc->loss_mask[t] = t >= pl_session_prompt(r->session);
        doc->argmax[t] = r->argmax[r->logits_row[row]];
        if (w) to_bf16(doc->features + t * w, pl_f32(&r->features) + row * w, w);
        to_bf16(doc->last_hidden + t * d, pl_f32(&r->hidden) + row * d, d);
        doc->n++;
    }
}

// Those that leave no room for an answer are left out, or cut, and counted.
static pl_status encode_prompts(pl_generator *g, const pl_tokenizer *tok, const pl_prompts *prompts, int64_t *longest,
                                pl_err *err) {
    int     positions = g->target->config.max_position_embeddings, limit = positions - 1;
    int64_t too_long = 0, room = positions - (int64_t)g->opt.max_new - 1; // before an answer of full length
    g->prompt = pl_calloc((size_t)prompts->n, sizeof *g->prompt);
    g->prompt_n = pl_calloc((size_t)prompts->n, sizeof *g->prompt_n);
    g->prompt_from = pl_calloc((size_t)prompts->n, sizeof *g->prompt_from);
    if (!g->prompt || !g->prompt_n || !g->prompt_from)
        return pl_fail(err, PL_E_MEMORY, "%lld prompts: out of memory", (long long)prompts->n);
    *longest = 0;
    g->n_given = prompts->n;
    for (int64_t i = 0; i < prompts->n; i++) {
        const pl_prompt *p = &prompts->p[i];
        int32_t         *ids;
        int64_t          n;
        PL_TRY(pl_prompt_encode(tok, p, &ids, &n, err));
        too_long += n >= limit;
        if (n >= limit && !g->opt.cut) {
            pl_free(ids);
            continue;
        }
        g->prompt[g->n_prompts] = ids; // owned from here on
        if (n < 1)
            return pl_fail(err, PL_E_INPUT, "data.prompts: line %lld: the prompt has no tokens", (long long)p->line);
        if (n >= limit) pl_prompt_cut(tok, ids, &n, room > 2 ? room : 2);
        for (int64_t k = 0; k < n; k++)
            if (ids[k] < 0 || ids[k] >= g->target->vocab)
                return pl_fail(err, PL_E_INPUT,
                               "target.tokenizer: id %d lies outside the target's vocabulary of %lld; "
                               "give the target's own tokenizer",
                               ids[k], (long long)g->target->vocab);
        if (n > *longest) *longest = n;
        g->prompt_from[g->n_prompts] = i;
        g->prompt_n[g->n_prompts++] = n;
    }
    if (g->n_prompts == 0)
        return pl_fail(err, PL_E_INPUT,
                       "data.prompts: all %lld prompts have more tokens than the target's context takes, %d; shorten "
                       "them, or set data.long_prompts=cut",
                       (long long)prompts->n, limit - 1);
    if (too_long)
        pl_log_warn("data.prompts: %lld of %lld prompts have more tokens than the target's context takes, %d: %s",
                    (long long)too_long, (long long)prompts->n, limit - 1, g->opt.cut ? "cut" : "left out");
    return PL_OK;
}

pl_status pl_generator_create(pl_generator **out, const pl_env *env, const pl_llama *target, const pl_tokenizer *tok,
                              const pl_prompts *prompts, const pl_generator_options *o, pl_err *err) {
    *out = NULL;
    pl_generator *g = pl_calloc(1, sizeof *g);
    if (!g) return pl_fail(err, PL_E_MEMORY, "generator: out of memory");
    g->target = target;
    g->opt = *o;
    g->in_out = -1;
    g->next_start = g->next_out = o->first_job;
    for (int i = 0; i < target->config.n_eos && i < PL_MAX_STOP; i++)
        g->stop[g->n_stop++] = target->config.eos_token_id[i];
    pl_status st;
    int64_t   longest = 0;
    PL_TRY_GOTO(st, fail, encode_prompts(g, tok, prompts, &longest, err));
    pl_columns_shape shape = shape_of(g);
    int64_t          len = longest + o->max_new + 1, context = target->config.max_position_embeddings;
    if (len > context) len = context;
    // Twice as many documents as sessions: short answers may run ahead of a long one that is due first.
    g->ring_size = 2 * o->sessions;
    g->ring = pl_calloc((size_t)g->ring_size, sizeof *g->ring);
    if (!g->ring) PL_TRY_GOTO(st, fail, pl_fail(err, PL_E_MEMORY, "generator: out of memory"));
    for (int i = 0; i < g->ring_size; i++) {
        g->ring[i].number = -1;
        PL_TRY_GOTO(st, fail, pl_columns_reserve(&g->ring[i].doc, &shape, len, err));
    }
    pl_engine_options eo = {.max_sessions = o->sessions,
                            .max_rows = o->sessions > 32 ? 2 * o->sessions : 64,
                            .max_len = (int)len,
                            .n_taps = o->n_taps,
                            .all_logits = true};
    memcpy(eo.tap, o->tap, sizeof eo.tap);
    PL_TRY_GOTO(st, fail, pl_engine_create(&g->engine, env->backend, env->pool, target, NULL, &eo, err));
    pl_engine_on_final(g->engine, on_final, g);
    *out = g;
    return PL_OK;
fail:
    pl_generator_destroy(g);
    return st;
}

void pl_generator_destroy(pl_generator *g) {
    if (!g) return;
    pl_engine_destroy(g->engine);
    for (int64_t i = 0; g->prompt && i < g->n_given; i++)
        pl_free(g->prompt[i]);
    for (int i = 0; g->ring && i < g->ring_size; i++)
        pl_columns_free(&g->ring[i].doc);
    pl_free(g->prompt);
    pl_free(g->prompt_from);
    pl_free(g->prompt_n);
    pl_free(g->ring);
    pl_free(g);
}

int64_t pl_generator_prompt(const pl_generator *g, int64_t number) {
    return g->prompt_from[number % g->n_prompts];
}

int64_t pl_generator_jobs(const pl_generator *g) {
    return g->opt.samples < 0 ? -1 : g->n_prompts * (g->opt.samples + (g->opt.greedy ? 1 : 0));
}

static pl_status start_jobs(pl_generator *g, pl_err *err) {
    int64_t jobs = pl_generator_jobs(g);
    while (pl_engine_free_slots(g->engine) > 0 && (jobs < 0 || g->next_start < jobs)) {
        job *j = &g->ring[g->next_start % g->ring_size];
        if (g->next_start - g->next_out >= g->ring_size) return PL_OK; // the ring is full of documents that wait
        int64_t            p = g->next_start % g->n_prompts, round = g->next_start / g->n_prompts;
        bool               greedy = g->opt.greedy && round == 0;
        pl_session_options so = {.sampling = {.temperature = greedy ? 0 : g->opt.temperature,
                                              .top_p = greedy ? 1 : g->opt.top_p,
                                              .seed = g->opt.seed},
                                 .key = (uint64_t)g->next_start,
                                 .max_new = g->opt.max_new,
                                 .n_stop = g->n_stop};
        pl_session        *s;
        memcpy(so.stop, g->stop, sizeof so.stop);
        j->number = g->next_start;
        j->done = false;
        j->doc.n = 0;
        PL_TRY(pl_engine_start(g->engine, g->prompt[p], (int)g->prompt_n[p], &so, &s, err));
        g->next_start++;
    }
    return PL_OK;
}

static void finish_job(job *j, const pl_session *s) {
    int64_t n = pl_session_length(s);
    PL_CHECK(n - j->doc.n <= 1, "%lld tokens, %lld rows", (long long)n, (long long)j->doc.n);
    j->doc.end = NULL;
    if (j->doc.n < n) {
        j->end = pl_session_tokens(s)[n - 1];
        j->doc.end = &j->end;
    }
    j->done = true;
}

pl_status pl_generator_next(pl_generator *g, pl_columns *doc, pl_err *err) {
    *doc = (pl_columns){0};
    if (g->in_out >= 0) {
        g->ring[g->in_out].number = -1;
        g->in_out = -1;
        g->next_out++;
    }
    int64_t jobs = pl_generator_jobs(g);
    if (jobs >= 0 && g->next_out >= jobs) return PL_OK;
    job *want = &g->ring[g->next_out % g->ring_size];
    while (want->number != g->next_out || !want->done) {
        PL_TRY(start_jobs(g, err));
        PL_TRY(pl_engine_step(g->engine, err));
        for (int i = 0; i < g->opt.sessions; i++) {
            pl_session *s = pl_engine_session(g->engine, i);
            if (!s || pl_session_finish(s) == PL_RUNNING) continue;
            finish_job(&g->ring[pl_session_key(s) % (uint64_t)g->ring_size], s);
            pl_engine_end(g->engine, s);
        }
    }
    g->in_out = g->next_out % g->ring_size;
    *doc = want->doc;
    doc->room = 0; // lent
    return PL_OK;
}
