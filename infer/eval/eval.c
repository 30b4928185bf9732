#include "infer/eval/eval.h"

#include "data/benchmarks/score.h"
#include "infer/eval/batch.h"
#include "infer/eval/gather.h"
#include "infer/eval/harness.h"
#include "infer/eval/questions.h"
#include "infer/eval/repeated.h"
#include "kernels/base/check.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"

#include <string.h>

#define WARM_UP 32 // tokens that each method decodes before timing

// A prompt, or a turn of a conversation; the turns of one follow each other.
typedef struct question {
    const pl_prompt *prompt;
    int              turn;
    bool             cut;
    bool             unasked;   // the template refuses it, or its history in this round
    bool             unwritten; // the template refuses it with any history
} question;

typedef struct eval {
    const pl_env          *env;
    const pl_eval_options *o;
    const pl_eval_recipe  *keys;
    pl_results            *r;
    const pl_target       *target[2]; // bf16, fp32 (NULL: not requested)
    pl_target              fp32;
    int                    n;                 // methods at one temperature: method m is configuration m % n
    pl_runner             *runner;            // [n]
    question              *question;          // [r->n_prompts]
    int32_t              **prompt;            // [r->n_prompts] ids; of a later turn, in its last round
    int64_t               *prompt_n, longest; // longest: greatest expected length
    int                    context;           // positions of a runner: the target's, until runners are opened
    char                 **history;           // [turns] answers of the current conversation, as messages; owned
    int64_t                refused;           // turns left out, since the template refused the history
    int                    turns;             // of the longest conversation
    int32_t              **said;              // [n] each configuration's answer to the current prompt
    int64_t               *said_n;
    pl_results_part        whole; // complete part so far, kept on an interrupt
} eval;

// ---- prompts ----

// True if this rank answers question i.
static bool is_mine(const eval *e, int64_t i) {
    return pl_eval_owner(e->r, i, e->env->comm) == pl_comm_rank(e->env->comm);
}

// Sets the ids of question i and takes ownership of them.
static pl_status take_ids(eval *e, int64_t i, int32_t *ids, int64_t n, pl_err *err) {
    const pl_prompt *p = e->question[i].prompt;
    int64_t          room = (int64_t)e->context - e->o->max_new_tokens - 1;
    pl_free(e->prompt[i]);
    e->prompt[i] = ids;
    if (n > room) {
        pl_prompt_cut(e->o->target->tok, ids, &n, room); // keeps the end, which the answer continues
        e->r->truncated += !e->question[i].cut;
        e->question[i].cut = true;
    }
    if (n < 1)
        return pl_fail(err, PL_E_INPUT, "%s: line %lld: the prompt has no tokens", e->o->prompts_name,
                       (long long)p->line);
    e->r->prompt_tokens += n - e->prompt_n[i];
    e->prompt_n[i] = n;
    return e->o->trace && is_mine(e, i) ? pl_trace_prompt(e->o->trace, i, p->category, ids, n, err) : PL_OK;
}

static pl_status encode(eval *e, int64_t i, pl_err *err) {
    const pl_prompt *p = e->question[i].prompt;
    int32_t         *ids;
    int64_t          n;
    pl_status        st = pl_prompt_encode(e->o->target->tok, p, &ids, &n, err);
    if (st != PL_OK) return pl_fail_at(err, st, "%s: line %lld", e->o->prompts_name, (long long)p->line);
    return take_ids(e, i, ids, n, err);
}

// Renders and encodes a later turn after these answers.
static pl_status render_turn(const eval *e, int64_t i, const char *const *answer, int32_t **ids, int64_t *n,
                             pl_err *err) {
    const pl_prompt_form *f = e->o->form;
    const question       *q = &e->question[i];
    pl_chat_turn          turn = {.number = q->turn, .answer = answer};
    pl_jinja_out          out = {0};
    PL_TRY(pl_chat_prompt_turn(q->prompt, e->o->prompts_name, f->chat, &f->options, &turn, &out, err));
    pl_status st = pl_chat_encode(e->o->target->tok, out.text, out.n, ids, n, err);
    pl_jinja_out_fini(&out);
    return st == PL_OK ? PL_OK : pl_fail_at(err, st, "%s: line %lld", e->o->prompts_name, (long long)q->prompt->line);
}

// Estimates the length of a later turn: answers of full length, each WORSE tokens longer when encoded again. A longer
// turn is cut by take_ids.
static pl_status measure_turn(eval *e, int64_t i, pl_err *err) {
    enum { WORSE = 16 };
    int          turn = e->question[i].turn;
    int32_t     *ids;
    int64_t      n;
    const char **stand_in = pl_malloc((size_t)turn * sizeof *stand_in);
    if (!stand_in) return pl_fail(err, PL_E_MEMORY, "prompts: out of memory");
    for (int t = 0; t < turn; t++)
        stand_in[t] = PL_CHAT_STAND_IN;
    pl_status st = render_turn(e, i, stand_in, &ids, &n, err);
    pl_free(stand_in);
    PL_TRY(st);
    pl_free(ids);
    n += (int64_t)turn * (e->o->max_new_tokens + WORSE);
    if (n > e->longest) e->longest = n;
    return PL_OK;
}

// Measures a later turn. Turns after a refused one are left out too. *ended counts such conversations.
static pl_status measure_later(eval *e, int64_t i, int64_t *ended, pl_err *first, pl_err *err) {
    question *q = &e->question[i];
    pl_err    why = {0};
    q->unwritten = e->question[i - 1].unwritten;
    if (q->unwritten) return PL_OK;
    pl_status st = measure_turn(e, i, &why);
    if (st == PL_OK) return PL_OK;
    if (st != PL_E_INPUT) return pl_fail(err, st, "%s", why.msg);
    q->unwritten = true;
    if ((*ended)++ == 0) *first = why;
    return PL_OK;
}

// Returns the number of turns of a prompt.
static int turns_of(const eval *e, const pl_prompt *p) {
    return e->o->form->chat && p->record ? p->turns : 1;
}

static pl_status list_questions(eval *e, pl_err *err) {
    const pl_prompts *p = e->o->prompts;
    pl_results       *r = e->r;
    for (int64_t i = 0; i < p->n; i++) {
        int turns = turns_of(e, &p->p[i]);
        r->n_prompts += turns;
        if (turns > e->turns) e->turns = turns;
    }
    size_t n = (size_t)r->n_prompts;
    r->category = pl_calloc(n, sizeof *r->category);
    r->record = pl_calloc(n, sizeof *r->record);
    r->picked = pl_calloc(n, sizeof *r->picked);
    e->question = pl_calloc(n, sizeof *e->question);
    e->prompt = pl_calloc(n, sizeof *e->prompt);
    e->prompt_n = pl_calloc(n, sizeof *e->prompt_n);
    e->history = pl_calloc((size_t)e->turns, sizeof *e->history);
    if (!r->category || !r->record || !r->picked || !e->question || !e->prompt || !e->prompt_n || !e->history)
        return pl_fail(err, PL_E_MEMORY, "prompts: out of memory");
    for (int64_t i = 0, at = 0; i < p->n; i++)
        for (int t = 0; t < turns_of(e, &p->p[i]); t++, at++) {
            e->question[at] = (question){.prompt = &p->p[i], .turn = t};
            r->record[at] = i;
            r->category[at] = pl_strdup(p->p[i].category);
            if (!r->category[at]) return pl_fail(err, PL_E_MEMORY, "prompts: out of memory");
        }
    return PL_OK;
}

// Encodes all questions and sets e->context to the positions that they need.
static pl_status encode_all(eval *e, pl_err *err) {
    int positions = e->o->target->model.config.max_position_embeddings;
    e->context = positions;
    if (e->o->max_new_tokens > positions - 3)
        return pl_fail(err, PL_E_INPUT,
                       "eval.max_new_tokens: %d, but the target's context holds %d positions; lower it",
                       e->o->max_new_tokens, positions);
    int64_t ended = 0;
    pl_err  first = {0};
    PL_TRY(list_questions(e, err));
    for (int64_t i = 0; i < e->r->n_prompts; i++) {
        PL_TRY(e->question[i].turn ? measure_later(e, i, &ended, &first, err) : encode(e, i, err));
        if (e->prompt_n[i] > e->longest) e->longest = e->prompt_n[i];
    }
    if (ended) pl_chat_warn_ended(ended, first.msg);
    int64_t need = e->longest + e->o->max_new_tokens + 1;
    if (need < positions) e->context = (int)need;
    return PL_OK;
}

// Renders question i after the conversation's answers. If the template refuses the history, this turn and the later
// ones of the conversation are left out, and their answers stay empty.
static pl_status ask(eval *e, int64_t i, pl_err *err) {
    question *q = &e->question[i];
    int32_t  *ids;
    int64_t   n;
    pl_err    why = {0};
    q->unasked = q->unwritten || (q->turn > 0 && e->question[i - 1].unasked);
    if (q->turn == 0 || q->unasked) return PL_OK;
    pl_status st = render_turn(e, i, (const char *const *)e->history, &ids, &n, &why);
    if (st == PL_OK) return take_ids(e, i, ids, n, err);
    if (st != PL_E_INPUT && st != PL_E_UNSUPPORTED) return pl_fail(err, st, "%s", why.msg);
    q->unasked = true;
    if (e->refused++ == 0) pl_log_warn("turn %d is not asked, and its conversation ends: %s", q->turn + 1, why.msg);
    return PL_OK;
}

// Stores the answer of "plain" to question i for the conversation's next turn.
static pl_status remember(eval *e, int64_t i, pl_err *err) {
    char **message = &e->history[e->question[i].turn];
    if (i + 1 == e->r->n_prompts || e->question[i + 1].turn == 0) return PL_OK;
    pl_free(*message);
    return pl_chat_answer_message(message, e->o->target->tok, e->said[0], e->said_n[0], err);
}

// ---- methods ----

// Fills kind ("lookup", "eagle3-lowrank"), drafter, tree and checkpoint from the opened drafter.
static pl_status describe_drafter(pl_method *m, const pl_eval_drafter *d, const pl_drafter *drafter, pl_err *err) {
    PL_CHECK(d, "%s was opened, but not asked for", drafter->kind->name);
    pl_hf_config c = {0};
    bool         folder = pl_drafter_is_folder(d->drafter);
    if (folder) PL_TRY(pl_hf_config_read(&c, d->drafter, PL_HF_DRAFTER, err));
    if (folder)
        snprintf(m->kind, sizeof m->kind, "%.8s-%.22s", drafter->kind->name, *c.head.kind ? c.head.kind : "full");
    else
        snprintf(m->kind, sizeof m->kind, "%s", drafter->kind->name);
    m->drafter = pl_strdup(d->drafter);
    m->tree = pl_strdup(drafter->tree);
    if (folder) m->checkpoint = pl_strdup(d->drafter);
    if (m->drafter && m->tree && (m->checkpoint || !folder)) return PL_OK;
    return pl_fail(err, PL_E_MEMORY, "%s: out of memory", d->drafter);
}

static bool name_taken(const eval *e, int m) {
    for (int k = 0; k < m; k++)
        if (strcmp(e->r->method[k].name, e->r->method[m].name) == 0) return true;
    return false;
}

// Names a method: the given name, else a checkpoint's kind or the drafter as requested ("recycle:6"). If that is taken,
// the tree and then the verifier are appended.
static pl_status name_drafter(const eval *e, int m, const pl_eval_drafter *d, pl_err *err) {
    pl_method  *a = &e->r->method[m];
    bool        given = d->name && *d->name;
    const char *kind = a->checkpoint ? a->kind : a->drafter;
    snprintf(a->name, sizeof a->name, "%s", given ? d->name : kind);
    if (!given && name_taken(e, m)) snprintf(a->name, sizeof a->name, "%.31s %.30s", kind, a->tree);
    if (!given && name_taken(e, m)) snprintf(a->name, sizeof a->name, "%.24s %.20s %.16s", kind, a->tree, a->verify);
    if (!name_taken(e, m)) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "eval: two methods would be called \"%s\"; give one a name", a->name);
}

static pl_promise promise_of(const pl_verifier *v, double temperature) {
    if (temperature == 0 || (!v->couple && !v->verify)) return PL_PROMISE_IDENTICAL; // greedy; sample-then-match
    return v->lossless ? PL_PROMISE_DISTRIBUTION : PL_PROMISE_NONE;
}

static pl_status allocate_answers(eval *e, int m, pl_err *err) {
    pl_method *a = &e->r->method[m];
    int64_t    n = e->r->n_prompts * a->seeds;
    a->answer = pl_calloc((size_t)n, sizeof *a->answer);
    if (!a->answer) return pl_fail(err, PL_E_MEMORY, "answers: out of memory");
    for (int64_t i = 0; i < n; i++)
        a->answer[i].identical = true;
    return PL_OK;
}

// Returns the drafter of configuration c; NULL: plain decoding.
static const pl_eval_drafter *drafter_of(const eval *e, int c) {
    int plain = e->keys->eval.plain_fp32 ? 2 : 1;
    return c < plain ? NULL : &e->o->drafter[c - plain];
}

// Opens a runner for configuration c and returns its verifier in *v.
static pl_status open_runner(const eval *e, int c, int sessions, pl_runner *run, const pl_verifier **v, pl_err *err) {
    const pl_eval_drafter *d = drafter_of(e, c);
    pl_runner_options      ro = {.max_len = e->context, .sessions = sessions};
    *v = &pl_verify_match;
    if (d) {
        if (d->verify && *d->verify) *v = pl_verifier_find(d->verify, err);
        if (!*v) return PL_E_INPUT;
        ro.drafter = d->drafter;
        ro.tree = d->tree;
        ro.verifier = *v;
    }
    return pl_runner_open(run, e->env->backend, e->env->pool, e->target[e->keys->eval.plain_fp32 && c == 1], &ro, err);
}

static pl_status open_method(eval *e, int m, pl_err *err) {
    const pl_eval_drafter *d = drafter_of(e, m);
    bool                   fp32 = e->keys->eval.plain_fp32 && m == 1;
    pl_method             *a = &e->r->method[m];
    const pl_target       *t = e->target[fp32];
    const pl_verifier     *v;
    e->said[m] = pl_malloc((size_t)e->o->max_new_tokens * sizeof **e->said);
    if (!e->said[m]) return pl_fail(err, PL_E_MEMORY, "answers: out of memory");
    PL_TRY(open_runner(e, m, 1, &e->runner[m], &v, err));
    const pl_drafter *drafter = e->runner[m].drafter;
    snprintf(a->kind, sizeof a->kind, "plain");
    snprintf(a->name, sizeof a->name, "%s", fp32 ? "plain-fp32" : "plain");
    a->weights = pl_weights_name(t->dtype);
    a->kv = pl_weights_name(t->model.shape.kv);
    a->verify = v->name;
    a->weight_bytes = (double)pl_params_bytes(&t->model.params);
    if (drafter) {
        PL_TRY(describe_drafter(a, d, drafter, err));
        PL_TRY(name_drafter(e, m, d, err));
        a->draft_step_bytes = drafter->kind->step_bytes(drafter);
        if (a->checkpoint) a->weight_bytes += a->draft_step_bytes;
    }
    for (int t0 = 0; t0 < e->keys->eval.temperatures.n; t0++)
        e->r->method[t0 * e->n + m].promise = promise_of(v, e->keys->eval.temperatures.at[t0]);
    return PL_OK;
}

// Copies the method of configuration c for another temperature.
static pl_status repeat_method(eval *e, int t, int c, pl_err *err) {
    const pl_method *from = &e->r->method[c];
    pl_method       *a = &e->r->method[t * e->n + c];
    pl_promise       promise = a->promise;
    *a = *from;
    a->promise = promise;
    a->answer = NULL;
    a->samples = (pl_strbuf){0};
    a->drafter = from->drafter ? pl_strdup(from->drafter) : NULL;
    a->checkpoint = from->checkpoint ? pl_strdup(from->checkpoint) : NULL;
    a->tree = from->tree ? pl_strdup(from->tree) : NULL;
    size_t n = strnlen(a->name, sizeof a->name - 16);
    snprintf(a->name + n, sizeof a->name - n, "@T=%.4g", e->keys->eval.temperatures.at[t]);
    if (!a->drafter == !from->drafter && !a->checkpoint == !from->checkpoint && !a->tree == !from->tree) return PL_OK;
    return pl_fail(err, PL_E_MEMORY, "methods: out of memory");
}

static pl_status open_methods(eval *e, pl_err *err) {
    pl_results *r = e->r;
    int         plain = e->keys->eval.plain_fp32 ? 2 : 1;
    size_t      n = (size_t)plain + (size_t)e->o->n_drafters, all = n * (size_t)e->keys->eval.temperatures.n;
    r->method = pl_calloc(all, sizeof *r->method);
    e->runner = pl_calloc(n, sizeof *e->runner);
    e->said = pl_calloc(n, sizeof *e->said);
    e->said_n = pl_calloc(n, sizeof *e->said_n);
    if (!r->method || !e->runner || !e->said || !e->said_n) return pl_fail(err, PL_E_MEMORY, "methods: out of memory");
    r->n_methods = (int)all;
    e->n = (int)n;
    for (int c = 0; c < e->n; c++)
        PL_TRY(open_method(e, c, err));
    for (int m = 0; m < r->n_methods; m++) {
        int t = m / e->n;
        if (t > 0) PL_TRY(repeat_method(e, t, m % e->n, err));
        r->method[m].temperature = e->keys->eval.temperatures.at[t];
        r->method[m].seeds = e->keys->eval.temperatures.at[t] > 0 ? (int)e->keys->eval.seeds : 1;
        r->method[m].base = t * e->n;
        PL_TRY(allocate_answers(e, m, err));
    }
    return PL_OK;
}

// Returns the plain configuration with the weights of configuration c.
static int reference(const eval *e, int c) {
    return e->keys->eval.plain_fp32 && c == 1 ? 1 : 0;
}

// ---- running ----

// Gives each prompt its own seed: with one seed all prompts would have the same draws.
static pl_sampling sampling_of(const eval *e, int t, int64_t i, int seed) {
    return (pl_sampling){.temperature = e->keys->eval.temperatures.at[t],
                         .top_p = 1,
                         .seed = e->r->seed + (uint64_t)i + (uint64_t)seed * (uint64_t)e->r->n_prompts};
}

// The receivers of an answer's cycles.
typedef struct looking {
    pl_answer *answer;
    pl_trace  *trace; // NULL: none
} looking;

static void on_cycle(void *arg, const pl_cycle *c) {
    looking *l = arg;
    l->answer->accepted += c->verdict->n;
    l->answer->drafting += c->tree->n > 1;
    if (l->trace) pl_trace_cycle(l->trace, c);
}

static pl_status decode(eval *e, pl_runner *run, const pl_trace_answer *a, pl_answer *x, const pl_sampling *s,
                        pl_err *err) {
    pl_trace *trace = e->o->trace;
    looking   l = {.answer = x, .trace = trace};
    if (trace) pl_trace_open(trace, a);
    pl_engine_on_cycle(run->engine, on_cycle, &l);
    pl_status st =
        pl_runner_run(run, e->prompt[a->prompt], e->prompt_n[a->prompt], s, e->o->max_new_tokens, NULL, NULL, err);
    pl_engine_on_cycle(run->engine, NULL, NULL);
    if (st != PL_OK) return st;
    return trace ? pl_trace_close(trace, run->session, err) : PL_OK;
}

// Answers question i by configuration c at temperature t and adds the figures.
static pl_status answer(eval *e, int t, int c, int64_t i, int seed, int repeat, pl_err *err) {
    pl_runner      *run = &e->runner[c];
    pl_method      *a = &e->r->method[t * e->n + c];
    pl_answer      *x = &a->answer[i * a->seeds + seed];
    pl_sampling     s = sampling_of(e, t, i, seed);
    pl_trace_answer of = {
        .method = a->name, .prompt = i, .seed = seed, .repeat = repeat, .temperature = a->temperature};
    pl_status st = decode(e, run, &of, x, &s, err);
    if (st != PL_OK) return pl_fail_at(err, st, "%s", a->name);
    const pl_session_stats *stats = pl_session_statistics(run->session);
    pl_stats_add(&a->stats, stats);
    x->seconds += stats->seconds;
    x->prefill_seconds += stats->prefill_seconds;
    x->emitted += stats->emitted;
    x->steps += stats->steps;
    int32_t        n;
    const int32_t *tokens = pl_session_answer(run->session, &n);
    memcpy(e->said[c], tokens, (size_t)n * sizeof *tokens);
    e->said_n[c] = n;
    if (repeat > 0) return PL_OK;
    x->tokens = n;
    x->repeated = pl_repeated_tokens(tokens, n, NULL);
    x->hash = pl_hash(tokens, (size_t)n * sizeof *tokens);
    if (x->repeated < 0) return pl_fail(err, PL_E_MEMORY, "answers: out of memory");
    const question *q = &e->question[i];
    bool            chat = e->o->form->chat;
    return q->turn > 0 ? PL_OK : pl_question_score(q->prompt, e->o->target->tok, chat, tokens, n, a, x, err);
}

static void compare(eval *e, int t, int64_t i, int seed) {
    for (int c = 0; c < e->n; c++) {
        pl_method *a = &e->r->method[t * e->n + c];
        int        ref = reference(e, c);
        if (e->said_n[c] != e->said_n[ref] ||
            memcmp(e->said[c], e->said[ref], (size_t)e->said_n[c] * sizeof **e->said) != 0)
            a->answer[i * a->seeds + seed].identical = false;
    }
}

static pl_status warm_up(eval *e, int t, pl_err *err) {
    pl_sampling s = sampling_of(e, t, 0, 0);
    int         n = e->o->max_new_tokens < WARM_UP ? e->o->max_new_tokens : WARM_UP;
    for (int c = 0; c < e->n; c++)
        PL_TRY(pl_runner_run(&e->runner[c], e->prompt[0], e->prompt_n[0], &s, n, NULL, NULL, err));
    return PL_OK;
}

// ---- many prompts at a time ----

static pl_status run_batch(eval *e, const pl_batch_work *w, pl_batched *b, bool first, pl_err *err) {
    pl_method         *a = &e->r->method[b->method];
    pl_runner          run = {0};
    const pl_verifier *v;
    PL_TRY(open_runner(e, b->method % e->n, b->sessions, &run, &v, err));
    pl_status st = pl_batch_warm_up(&run, w, b->sessions, WARM_UP, err);
    if (st == PL_OK) st = pl_runner_forget(&run, err);
    if (st == PL_OK) st = pl_batch_run(&run, w, b, first ? w->hash : NULL, first ? w->latency : NULL, err);
    pl_runner_close(&run);
    if (st != PL_OK) return pl_fail_at(err, st, "%s, %d at a time", a->name, b->sessions);
    if (!first) return PL_OK;
    for (int64_t i = 0; i < w->n; i++)
        b->different += w->hash[i] != a->answer[w->question[i] * a->seeds].hash;
    b->ttft = pl_latency_of(w->latency, w->n);
    b->tpot = pl_latency_of(w->latency + w->n, w->n);
    return PL_OK;
}

static pl_status run_sessions(eval *e, int t, int sessions, const pl_batch_work *w, pl_err *err) {
    pl_results *r = e->r;
    pl_batched *first = r->batched + r->n_batched;
    int         n = 0;
    for (int c = 0; c < e->n; c++) // plain-fp32 has no batches
        if (!(e->keys->eval.plain_fp32 && c == 1))
            first[n++] = (pl_batched){.sessions = sessions, .method = t * e->n + c};
    r->n_batched += n;
    for (int k = 0; k < r->repeats; k++)
        for (int c = 0; c < n; c++)
            PL_TRY(run_batch(e, w, &first[(c + k) % n], k == 0, err));
    return PL_OK;
}

// Lists the questions of the first seed's round, without those left out.
static void list_asked(const eval *e, int t, pl_batch_work *w) {
    w->max_new = e->o->max_new_tokens;
    for (int64_t i = 0; i < e->r->n_prompts; i++) {
        if (e->question[i].unasked) continue;
        w->question[w->n] = i;
        w->prompt[w->n] = e->prompt[i];
        w->prompt_n[w->n] = e->prompt_n[i];
        w->sampling[w->n++] = sampling_of(e, t, i, 0);
    }
}

static pl_status run_batches(eval *e, int t, pl_err *err) {
    pl_batch_work w;
    if (e->keys->eval.batches.n == 0) return PL_OK;
    pl_status st = pl_batch_work_init(&w, e->r->n_prompts, err);
    if (st == PL_OK) list_asked(e, t, &w);
    for (int b = 0; b < e->keys->eval.batches.n && st == PL_OK; b++)
        st = run_sessions(e, t, (int)e->keys->eval.batches.at[b], &w, err);
    pl_batch_work_fini(&w);
    return st;
}

// Answers question i by all methods, in round k over the prompts.
static pl_status answer_all(eval *e, int t, int64_t i, int k, pl_err *err) {
    int seeds = e->r->method[t * e->n].seeds;
    for (int j = 0; j < e->n; j++)
        PL_TRY(answer(e, t, (int)((i + k + j) % e->n), i, k % seeds, k / seeds, err));
    compare(e, t, i, k % seeds);
    return remember(e, i, err);
}

// Runs all methods of temperature t, interleaved prompt by prompt.
static pl_status run_temperature(eval *e, int t, pl_progress *p, int64_t *done, pl_err *err) {
    pl_results *r = e->r;
    int         seeds = r->method[t * e->n].seeds, rounds = r->repeats * seeds;
    PL_TRY(warm_up(e, t, err));
    for (int k = 0; k < rounds; k++) {
        // No drafter finds its answer to the same prompt from an earlier round or from warming up.
        for (int c = 0; c < e->n; c++)
            PL_TRY(pl_runner_forget(&e->runner[c], err));
        for (int64_t i = 0; i < r->n_prompts; i++) {
            if (!is_mine(e, i)) continue;
            PL_TRY(ask(e, i, err));
            if (!e->question[i].unasked) PL_TRY(answer_all(e, t, i, k, err));
            pl_progress_update(p, ++*done, "prompts, plain %.1f tokens/s", pl_stats_speed(&r->method[t * e->n].stats));
            if (t + k == 0) e->whole = (pl_results_part){i + 1, e->n, 1, 0};
            if (pl_stop_requested() && *done < p->total)
                return pl_fail(err, PL_E_INTERRUPTED, "stopped after %lld prompts", (long long)*done);
        }
        if (k == 0) PL_TRY(run_batches(e, t, err)); // while the prompts are those of the first seed
        if (t == 0 || k + 1 == rounds)
            e->whole = (pl_results_part){r->n_prompts, (t + 1) * e->n, t ? INT32_MAX : k + 1, r->n_batched};
    }
    return PL_OK;
}

static pl_status run_all(eval *e, pl_err *err) {
    pl_progress p;
    pl_status   st = PL_OK;
    int64_t     done = 0, rounds = 0, mine = 0;
    for (int64_t i = 0; i < e->r->n_prompts; i++)
        mine += is_mine(e, i);
    for (int t = 0; t < e->keys->eval.temperatures.n; t++)
        rounds += e->r->method[t * e->n].seeds;
    e->r->batched =
        pl_calloc((size_t)(e->keys->eval.temperatures.n * e->keys->eval.batches.n * e->n + 1), sizeof *e->r->batched);
    if (!e->r->batched) return pl_fail(err, PL_E_MEMORY, "batches: out of memory");
    pl_stop_hold();
    pl_progress_begin(&p, "eval", 0, mine * e->r->repeats * rounds);
    for (int t = 0; t < e->keys->eval.temperatures.n && st == PL_OK; t++)
        st = run_temperature(e, t, &p, &done, err);
    pl_progress_end(&p);
    pl_stop_release();
    if (e->refused > 1)
        pl_log_warn("%s: %lld times in all a turn behind an answer that the chat template refuses was not asked",
                    e->o->prompts_name, (long long)e->refused);
    return st;
}

// ---- floors ----

// Measures the bandwidth, before and after the run, and keeps the greater figure.
static void measure_bandwidth(eval *e) {
    for (int m = 0; m < e->n; m++) {
        pl_method *a = &e->r->method[m];
        double     footprint = pl_llama_step_bytes(&e->runner[m].target->model, 0) + a->draft_step_bytes;
        double     rate = 0;
        for (int k = 0; k < m && rate == 0; k++) // methods with the same weights share a measurement
            if (e->r->method[k].weights == a->weights && e->r->method[k].draft_step_bytes == a->draft_step_bytes)
                rate = e->r->method[k].bandwidth;
        if (rate == 0) rate = pl_probe_bandwidth(e->env->pool, (size_t)footprint);
        if (rate > a->bandwidth) a->bandwidth = rate;
        if (m == 0) e->r->machine.bandwidth_bytes = footprint, e->r->machine.bandwidth = a->bandwidth;
    }
}

static pl_status finish_figures(eval *e, pl_err *err) {
    pl_results *r = e->r;
    for (int m = 0; m < r->n_methods; m++) {
        pl_method       *a = &r->method[m];
        const pl_method *base = &r->method[a->base];
        double           context = 0;
        pl_results_hash(r, a);
        int64_t n = r->n_prompts * base->seeds;
        for (int64_t i = 0; i < n; i++) {
            int64_t prompt = i / base->seeds;
            context += (double)e->prompt_n[prompt] + (double)base->answer[i].tokens / 2;
        }
        if (m == 0) r->mean_context = context / (double)n;
        a->step_bytes = pl_llama_step_bytes(&e->runner[m % e->n].target->model, (int64_t)(context / (double)n));
        a->bandwidth = r->method[m % e->n].bandwidth;
        pl_engine_tree(e->runner[m % e->n].engine, a->tree_used, sizeof a->tree_used);
        PL_TRY(pl_latencies_measure(r, a, err));
    }
    return PL_OK;
}

// ---- the whole ----

// Gathers the answers of all ranks on rank 0.
static pl_status gather(eval *e, pl_err *err) {
    pl_results  *r = e->r;
    size_t       n = (size_t)r->n_prompts;
    uint8_t     *cut = pl_calloc(2 * n + 1, 1), *sampled = cut + n;
    pl_eval_part p = {.comm = e->env->comm, .r = r, .prompt_n = e->prompt_n, .cut = cut, .sampled = sampled};
    if (!cut) return pl_fail(err, PL_E_MEMORY, "answers: out of memory");
    for (size_t i = 0; i < n; i++) {
        const question *q = &e->question[i];
        cut[i] = q->cut;
        sampled[i] = q->prompt->scoring == PL_SCORE_CODE && q->prompt->reference && q->turn == 0;
    }
    pl_status st = pl_eval_gather(&p, err);
    r->prompt_tokens = r->truncated = 0;
    for (size_t i = 0; i < n; i++) {
        r->prompt_tokens += e->prompt_n[i];
        r->truncated += cut[i];
    }
    pl_free(cut);
    return st;
}

static pl_status open_targets(eval *e, pl_err *err) {
    const pl_eval_options *o = e->o;
    e->target[0] = o->target;
    if (!e->keys->eval.plain_fp32) return PL_OK;
    const pl_generate_recipe *gen = pl_generate_recipe_of(o->recipe);
    PL_TRY(pl_target_open_over(&e->fp32, o->path, gen->target.tokenizer, gen->target.pre, PL_WEIGHTS_FP32,
                               e->env->backend, e->env->tp, err));
    e->fp32.model.shape.kv = o->target->model.shape.kv;
    e->target[1] = &e->fp32;
    return PL_OK;
}

static pl_status describe(eval *e, pl_err *err) {
    pl_results *r = e->r;
    pl_machine_describe(&r->machine, e->env);
    r->repeats = (int)e->keys->eval.repeats;
    r->ranks = pl_comm_ranks(e->env->comm);
    r->max_new_tokens = e->o->max_new_tokens;
    r->seed = (uint64_t)pl_generate_recipe_of(e->o->recipe)->seed;
    PL_TRY(pl_recipe_hash(e->o->recipe, 0, r->recipe_hash, err));
    snprintf(r->fingerprint, sizeof r->fingerprint, "%s", e->o->target->model.fingerprint);
    r->target = pl_strdup(e->o->path);
    r->prompts = pl_strdup(e->o->prompts_name);
    r->form = pl_strdup(e->o->form->name);
    return r->target && r->prompts && r->form ? PL_OK : pl_fail(err, PL_E_MEMORY, "results: out of memory");
}

static void close_eval(eval *e) {
    for (int m = 0; e->runner && m < e->n; m++)
        pl_runner_close(&e->runner[m]);
    for (int m = 0; e->said && m < e->n; m++)
        pl_free(e->said[m]);
    for (int64_t i = 0; e->prompt && i < e->r->n_prompts; i++)
        pl_free(e->prompt[i]);
    pl_free(e->runner);
    pl_free(e->said);
    pl_free(e->said_n);
    pl_free(e->prompt);
    pl_free(e->prompt_n);
    pl_free(e->question);
    for (int t = 0; e->history && t < e->turns; t++)
        pl_free(e->history[t]);
    pl_free(e->history);
    pl_target_close(&e->fp32);
}

// Cuts the results to their complete part; false: it is empty, or there are several ranks.
static bool cut(eval *e) {
    if (pl_comm_ranks(e->env->comm) > 1 || e->whole.prompts == 0) return false;
    for (int64_t i = e->whole.prompts; i < e->r->n_prompts; i++)
        pl_free(e->prompt[i]);
    pl_results_cut(e->r, &e->whole);
    return true;
}

pl_status pl_eval(pl_results **out, const pl_env *env, const pl_eval_options *o, pl_err *err) {
    *out = NULL;
    eval      e = {.env = env, .o = o, .keys = pl_eval_recipe_of(o->recipe), .r = pl_calloc(1, sizeof *e.r)};
    pl_status st = PL_OK, stopped = PL_OK;
    if (!e.r) return pl_fail(err, PL_E_MEMORY, "results: out of memory");
    PL_TRY_GOTO(st, done, open_targets(&e, err));
    PL_TRY_GOTO(st, done, describe(&e, err));
    PL_TRY_GOTO(st, done, encode_all(&e, err));
    PL_TRY_GOTO(st, done, open_methods(&e, err));
    measure_bandwidth(&e);
    stopped = run_all(&e, err);
    if (stopped != PL_OK && !(stopped == PL_E_INTERRUPTED && cut(&e))) PL_TRY_GOTO(st, done, stopped);
    PL_TRY_GOTO(st, done, gather(&e, err));
    if (stopped == PL_OK) measure_bandwidth(&e);
    st = finish_figures(&e, err);
done:
    close_eval(&e);
    if (st == PL_OK)
        *out = e.r;
    else
        pl_results_destroy(e.r);
    return st == PL_OK ? stopped : st;
}
