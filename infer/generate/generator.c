#include "infer/generate/generator.h"

#include "infer/generate/questions.h"

#include "infer/decode/decode.h"
#include "infer/drafter/backbone.h"
#include "infer/model/kv.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"
#include "kernels/base/room.h"

#include <string.h>

// A document under construction. Jobs in flight, or waiting for earlier ones, are in a ring in the order of answering:
// turn q of this generator at q % ring_size. Within a range, turn numbers and job numbers have the same distances.
typedef struct job {
    int64_t           number;
    pl_jobs           range;       // requested range of jobs; earlier turns are answered only for the turns after them
    bool              begun, done; // both false: waiting
    bool              refused;     // the template refuses its history
    // While it is answered. Its key is not unique: the same job may be in the ring twice, once to return it and once
    // for a later turn.
    const pl_session *session;
    int64_t           answer; // where the answer begins
    pl_columns        doc;
    pl_doc_about      about;
    char             *text; // prompt of a later turn; owned
    size_t            text_n;
} job;

// A place of a round: a turn of a conversation.
typedef struct place {
    int64_t question;
    int32_t turn;
    int64_t before, next; // places of the conversation's previous and next turn; -1: none
} place;

struct pl_generator {
    const pl_llama      *target;
    const pl_tokenizer  *tok;
    pl_generator_options opt;
    pl_engine           *engine;
    int                  len; // the most tokens of a document
    pl_questions         questions;
    place               *place; // [n_places] places of a round
    int64_t              n_places;
    char               **said; // [n_said] answers as messages, turn q's at q % n_said; "": the turn was refused; owned
    int64_t              n_said;
    int                  n_stop;
    int32_t              stop[PL_MAX_STOP];
    job                 *ring;
    int                  ring_size;
    int64_t              next_start, next_out; // turns: the first that has not begun; the first not returned
    int64_t              known;                // turns that have a job
    pl_jobs              range;                // jobs being assigned; next: the first unassigned one
    int64_t              next;
    int64_t              in_out;    // ring index of the document lent to the caller, or -1
    bool                 asked_for; // without a pl_generator_work: all jobs have been requested
    bool                 failed;    // a job began and cannot complete
    int64_t              refused;   // conversations that ended before a turn with a refused history
};

static pl_columns_shape shape_of(const pl_generator *g) {
    return (pl_columns_shape){.d = g->target->shape.d, .taps = g->opt.n_taps};
}

static job *at_turn(const pl_generator *g, int64_t turn) {
    return &g->ring[turn % g->ring_size];
}

static job *job_of(const pl_generator *g, const pl_session *s) {
    int64_t turn = g->next_out;
    while (turn < g->known && at_turn(g, turn)->session != s)
        turn++;
    PL_CHECK(turn < g->known, "job %lld is not in hand", (long long)pl_session_key(s));
    return at_turn(g, turn);
}

// Stores final rows of the engine in the job's buffers, rounded to bf16.
static void on_final(void *arg, const pl_final_rows *r) {
    pl_generator *g = arg;
    job          *j = job_of(g, r->session);
    pl_columns   *doc = &j->doc;
    int64_t       d = g->target->shape.d, w = g->opt.n_taps * d;
    for (int i = 0; i < r->count; i++) {
        int64_t t = r->first + i, row = r->row[i];
        PL_CHECK(t < doc->room && t == doc->n, "row %lld of a document of %lld", (long long)t, (long long)doc->n);
        doc->tokens[t] = pl_session_tokens(r->session)[t];
        doc->loss_mask[t] = t >= j->answer;
        doc->argmax[t] = r->argmax[r->logits_row[row]];
        if (w) pl_from_f32(doc->features + t * w, PL_BF16, pl_f32(&r->features) + row * w, (size_t)w);
        pl_from_f32(doc->last_hidden + t * d, PL_BF16, pl_f32(&r->hidden) + row * d, (size_t)d);
        doc->n++;
    }
}

// ---- the order of a round ----

// Assigns places to the block of conversations [from, to). *span: the largest distance of a conversation's first and
// last turn.
static void order_block(pl_generator *g, int64_t from, int64_t to, int64_t *span) {
    int64_t before[PL_GENERATE_BLOCK], first[PL_GENERATE_BLOCK];
    bool    more = true;
    for (int t = 0; more; t++) {
        more = false;
        for (int64_t i = from; i < to; i++) {
            if (t >= g->questions.q[i].turns) continue;
            int64_t at = g->n_places++, k = i - from;
            g->place[at] = (place){.question = i, .turn = t, .before = t ? before[k] : -1, .next = -1};
            if (t == 0) first[k] = at;
            if (t > 0) g->place[before[k]].next = at;
            before[k] = at;
            if (at - first[k] > *span) *span = at - first[k];
            more |= t + 1 < g->questions.q[i].turns;
        }
    }
}

static pl_status order_round(pl_generator *g, pl_err *err) {
    int64_t places = 0, span = 0;
    for (int64_t i = 0; i < g->questions.n; i++)
        places += g->questions.q[i].turns;
    g->place = pl_calloc((size_t)places, sizeof *g->place);
    if (!g->place) return pl_fail(err, PL_E_MEMORY, "%lld turns: out of memory", (long long)places);
    for (int64_t i = 0; i < g->questions.n; i += PL_GENERATE_BLOCK)
        order_block(g, i, i + PL_GENERATE_BLOCK < g->questions.n ? i + PL_GENERATE_BLOCK : g->questions.n, &span);
    // An answer is kept until its conversation's last turn has begun; meanwhile all jobs of the ring may be answered.
    g->n_said = span ? span + g->ring_size : 0;
    g->said = pl_calloc((size_t)g->n_said, sizeof *g->said);
    return g->said || !g->n_said ? PL_OK : pl_fail(err, PL_E_MEMORY, "generator: out of memory");
}

static const place *place_of(const pl_generator *g, int64_t number) {
    return &g->place[number % g->n_places];
}

// Returns the job number of the conversation's first turn.
static int64_t first_turn(const pl_generator *g, int64_t number) {
    int64_t at = number % g->n_places, first = at;
    while (g->place[first].before >= 0)
        first = g->place[first].before;
    return number - (at - first);
}

// Returns true if the range contains this turn of the conversation or a later one.
static bool wanted(const pl_generator *g, const job *j) {
    int64_t number = j->number, at = number % g->n_places;
    for (;;) {
        if (number >= j->range.first && (j->range.end < 0 || number < j->range.end)) return true;
        if (g->place[at].next < 0) return false;
        number += g->place[at].next - at;
        at = g->place[at].next;
    }
}

static int64_t block_of(const pl_generator *g, int64_t number) {
    return place_of(g, number)->question / PL_GENERATE_BLOCK;
}

// Returns the first job to answer so that `number` and later jobs can be answered: a first turn of its block's
// conversations.
static int64_t answered_from(const pl_generator *g, int64_t number) {
    int64_t from = number, round = number - number % g->n_places;
    int64_t block = block_of(g, number);
    for (int64_t j = number; j < round + g->n_places && block_of(g, j) == block; j++)
        if (first_turn(g, j) < from) from = first_turn(g, j);
    return from;
}

int64_t pl_generator_rows(const pl_generator *g, int64_t number) {
    const place       *p = place_of(g, number);
    const pl_question *a = &g->questions.q[p->question];
    int64_t            n = a->n + g->opt.max_new + pl_question_longer(&g->questions, a);
    return p->turn > 0 || n > g->len ? g->len : n;
}

bool pl_generator_begins(const pl_generator *g, int64_t number) {
    return answered_from(g, number) == number;
}

int64_t pl_generator_unit_end(const pl_generator *g, int64_t number) {
    do
        number++;
    while (number % g->n_places > 0 && !pl_generator_begins(g, number));
    return number;
}

const int32_t *pl_generator_opening(const pl_generator *g, int64_t number, int64_t *n) {
    const pl_question *a = &g->questions.q[place_of(g, number)->question];
    *n = a->n;
    return a->ids;
}

// Checks the memory for answers of full length in all places: documents on the host, caches on the target's device.
static pl_status ask_room(const pl_generator *g, const pl_backend *be, pl_err *err) {
    const pl_llama  *t = g->target;
    pl_columns_shape shape = shape_of(g);
    double           bytes = (double)g->ring_size * (double)g->len * (double)pl_columns_row_bytes(&shape);
    if (pl_backend_on_host(be))
        bytes += (double)g->opt.sessions * (double)g->len * 2 * t->n_layers * (double)(t->shape.nkv * t->shape.hd) *
                 (double)pl_kv_elem(&t->shape, be->real);
    return pl_memory_room(bytes, "answers in the making", "lower data.sessions or data.max_new_tokens", err);
}

pl_status pl_generator_create(pl_generator **out, const pl_env *env, const pl_llama *target, const pl_tokenizer *tok,
                              const pl_prompts *prompts, const pl_generator_options *o, pl_err *err) {
    *out = NULL;
    pl_generator *g = pl_calloc(1, sizeof *g);
    if (!g) return pl_fail(err, PL_E_MEMORY, "generator: out of memory");
    g->target = target;
    g->tok = tok;
    g->opt = *o;
    g->in_out = -1;
    g->n_stop = pl_target_stops(g->stop, &target->config, tok);
    // Twice as many documents as sessions: short answers may run ahead of a long one that is due first.
    g->ring_size = 2 * o->sessions;
    pl_status st;
    g->questions = (pl_questions){.target = target, .tok = tok, .opt = &g->opt};
    PL_TRY_GOTO(st, fail, pl_questions_list(&g->questions, prompts, err));
    PL_TRY_GOTO(st, fail, order_round(g, err));
    pl_columns_shape shape = shape_of(g);
    int64_t          len = g->questions.longest + o->max_new + 1;
    g->len = len > pl_questions_positions(&g->questions) ? pl_questions_positions(&g->questions) : (int)len;
    PL_TRY_GOTO(st, fail, ask_room(g, env->backend, err));
    g->ring = pl_calloc((size_t)g->ring_size, sizeof *g->ring);
    if (!g->ring) PL_TRY_GOTO(st, fail, pl_fail(err, PL_E_MEMORY, "generator: out of memory"));
    for (int i = 0; i < g->ring_size; i++) {
        PL_TRY_GOTO(st, fail, pl_columns_reserve(&g->ring[i].doc, &shape, g->len, err));
    }
    pl_engine_options eo = {.max_sessions = o->sessions,
                            .max_rows = o->sessions > 32 ? 2 * o->sessions : 64,
                            .max_len = g->len,
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
    if (g->refused > 1)
        pl_log_warn(
            "data.prompts: %lld conversations in all ended before a turn behind an answer that the chat template "
            "refuses",
            (long long)g->refused);
    pl_engine_destroy(g->engine);
    pl_questions_fini(&g->questions);
    for (int i = 0; g->ring && i < g->ring_size; i++) {
        pl_columns_free(&g->ring[i].doc);
        pl_free(g->ring[i].text);
    }
    for (int64_t i = 0; g->said && i < g->n_said; i++)
        pl_free(g->said[i]);
    pl_free(g->said);
    pl_free(g->place);
    pl_free(g->ring);
    pl_free(g);
}

const char *pl_generator_prompt(const pl_generator *g, size_t *n) {
    PL_CHECK(g->in_out >= 0, "no document is lent");
    const job  *j = &g->ring[g->in_out];
    const char *text = j->text ? j->text : g->questions.q[place_of(g, j->number)->question].prompt->text;
    *n = j->text ? j->text_n : strlen(text);
    return text;
}

int64_t pl_generator_number(const pl_generator *g) {
    PL_CHECK(g->in_out >= 0, "no document is lent");
    return g->ring[g->in_out].number;
}

int64_t pl_generator_jobs(const pl_generator *g) {
    return g->opt.samples < 0 ? -1 : g->n_places * (g->opt.samples + (g->opt.greedy ? 1 : 0));
}

void pl_generator_forget(pl_generator *g) {
    for (int i = 0; i < g->opt.sessions; i++) {
        pl_session *s = pl_engine_session(g->engine, i);
        if (s) pl_engine_end(g->engine, s);
    }
    for (int i = 0; i < g->ring_size; i++)
        g->ring[i].session = NULL;
    g->next_out = g->next_start = g->known;
    g->in_out = -1;
    g->range = (pl_jobs){0};
    g->next = 0;
}

// ---- jobs ----

// Requests the next range; returns false if there is none.
static bool next_range(pl_generator *g) {
    pl_jobs *r = &g->range;
    if (g->opt.work.next) {
        if (!g->opt.work.next(g->opt.work.arg, r)) return false;
    } else {
        if (g->asked_for) return false;
        *r = (pl_jobs){g->opt.first_job, pl_generator_jobs(g)};
    }
    g->asked_for = true;
    g->next = r->end < 0 || r->first < r->end ? answered_from(g, r->first) : r->end;
    return true;
}

// Assigns jobs to turns while the ring has room.
static void look_ahead(pl_generator *g) {
    while (g->known < g->next_out + g->ring_size) {
        if (g->range.end >= 0 && g->next >= g->range.end) {
            if (!next_range(g)) return;
            continue;
        }
        job *j = at_turn(g, g->known++);
        j->number = g->next++;
        j->range = g->range;
        j->begun = j->done = false;
    }
}

// answer: where it begins.
static pl_status start_session(pl_generator *g, job *j, const int32_t *ids, int64_t n, int64_t answer, int max_new,
                               pl_err *err) {
    bool               greedy = g->opt.greedy && j->number / g->n_places == 0;
    pl_session_options so = {.sampling = {.temperature = greedy ? 0 : g->opt.temperature,
                                          .top_p = greedy ? 1 : g->opt.top_p,
                                          .seed = g->opt.seed},
                             .key = (uint64_t)j->number,
                             .max_new = max_new,
                             .n_stop = g->n_stop};
    pl_session        *s;
    memcpy(so.stop, g->stop, sizeof so.stop);
    PL_TRY(pl_engine_start(g->engine, ids, (int)n, &so, &s, err));
    j->session = s;
    j->answer = answer;
    return PL_OK;
}

// Returns true if the job's answer is the one that its prompt brings, in the round of greedy answers.
static bool is_given(const pl_generator *g, const job *j) {
    return g->questions.q[place_of(g, j->number)->question].n_given > 0 && g->opt.greedy &&
           j->number / g->n_places == 0;
}

// Collects the answers of this round before the turn.
static void find_answers(const pl_generator *g, int64_t turn, const char **answer) {
    for (const place *p = place_of(g, at_turn(g, turn)->number); p->before >= 0; p = &g->place[p->before]) {
        turn -= p - &g->place[p->before];
        answer[p->turn - 1] = g->said[turn % g->n_said];
    }
}

// Encodes a later turn, with as much of its history as leaves room for an answer of full length.
static pl_status write_turn(pl_generator *g, job *j, const char *const *answer, int32_t **ids, int64_t *n,
                            pl_err *err) {
    const place       *p = place_of(g, j->number);
    const pl_question *a = &g->questions.q[p->question];
    int64_t            room = g->len - g->opt.max_new - 1, limit = g->len - 1;
    int                exchanges;
    pl_chat_turn       turn = {.number = p->turn, .answer = answer};
    PL_TRY(pl_chat_prompt_exchanges(a->prompt, pl_questions_path(&g->questions), p->turn, &exchanges, err));
    for (;; turn.skip++) {
        PL_TRY(pl_question_render(&g->questions, a, &turn, &j->text, &j->text_n, ids, n, err));
        if (*n <= room || turn.skip + 1 >= exchanges) break;
        pl_free(*ids);
        pl_free(j->text);
        *ids = NULL;
        j->text = NULL;
    }
    j->about.cut = turn.skip > 0 || *n >= limit;
    if (*n >= limit && !g->opt.cut) // it was measured
        return pl_fail(err, PL_E_INPUT, "data.prompts: line %lld: turn %d has %lld tokens, of which %lld have room",
                       (long long)a->prompt->line, p->turn + 1, (long long)*n, (long long)limit - 1);
    if (*n >= limit) pl_prompt_cut(g->tok, *ids, n, room > 2 ? room : 2);
    if (*n < 1)
        return pl_fail(err, PL_E_INPUT, "data.prompts: line %lld: turn %d has no tokens", (long long)a->prompt->line,
                       p->turn + 1);
    return pl_questions_check_ids(&g->questions, *ids, *n, err);
}

static bool follows_refused(const char *const *answer, int turns) {
    for (int k = 0; k < turns; k++)
        if (answer[k] && !*answer[k]) return true;
    return false;
}

// Starts a refused turn: the opening prompt alone, without an answer.
static pl_status start_refused(pl_generator *g, job *j, pl_err *err) {
    const pl_question *a = &g->questions.q[place_of(g, j->number)->question];
    pl_free(j->text);
    j->text = NULL;
    j->refused = true;
    j->about.cut = a->cut;
    return start_session(g, j, a->ids, a->n, a->n, 1, err);
}

// Ends the conversation if the template refuses the target's own answer, which is no error of the run.
static pl_status refuse_turn(pl_generator *g, job *j, const pl_err *why, pl_err *err) {
    if (g->refused++ == 0)
        pl_log_warn("turn %d is not asked, and its conversation ends: %s", place_of(g, j->number)->turn + 1, why->msg);
    return start_refused(g, j, err);
}

static pl_status start_turn(pl_generator *g, int64_t turn, pl_err *err) {
    job         *j = at_turn(g, turn);
    const place *p = place_of(g, j->number);
    const char **answer = pl_calloc((size_t)p->turn, sizeof *answer);
    int32_t     *ids = NULL;
    int64_t      n = 0;
    pl_err       why = {0};
    if (!answer) return pl_fail(err, PL_E_MEMORY, "generator: out of memory");
    find_answers(g, turn, answer);
    bool      known = follows_refused(answer, p->turn);
    pl_status st = known ? PL_E_INPUT : write_turn(g, j, answer, &ids, &n, &why);
    if (st == PL_OK)
        st = start_session(g, j, ids, n, n, g->opt.max_new, err);
    else if (known)
        st = start_refused(g, j, err);
    else if (st == PL_E_INPUT || st == PL_E_UNSUPPORTED)
        st = refuse_turn(g, j, &why, err);
    else
        pl_fail(err, st, "%s", why.msg);
    pl_free(ids);
    pl_free(answer);
    return st;
}

static pl_status start_job(pl_generator *g, int64_t turn, pl_err *err) {
    job               *j = at_turn(g, turn);
    const place       *p = place_of(g, j->number);
    const pl_question *a = &g->questions.q[p->question];
    pl_free(j->text);
    j->text = NULL;
    j->begun = true;
    j->refused = false;
    j->doc.n = 0;
    j->about = (pl_doc_about){.end = -1,
                              .turn = p->turn,
                              .back = (int32_t)(j->number - first_turn(g, j->number)),
                              .cut = a->cut && p->turn == 0};
    // Jobs before the range are answered only if a later turn needs them.
    j->done = !wanted(g, j);
    if (j->done) return PL_OK;
    // The target reads such a conversation but for its last token; the token that it emits then is dropped.
    const pl_prompt *said = a->prompt;
    if (is_given(g, j)) return start_session(g, j, said->ids, said->n_ids - 1, said->n_prompt, 1, err);
    return p->turn > 0 ? start_turn(g, turn, err) : start_session(g, j, a->ids, a->n, a->n, g->opt.max_new, err);
}

// Returns true if the previous turn, if any, has been answered.
static bool may_start(const pl_generator *g, int64_t turn) {
    const place *p = place_of(g, at_turn(g, turn)->number);
    if (p->before < 0) return true;
    int64_t before = turn - (p - &g->place[p->before]);
    return before < g->next_out || at_turn(g, before)->done;
}

// Starts as many jobs as there are free slots, the earliest first. Documents that are not yet returned occupy the ring.
static pl_status start_jobs(pl_generator *g, pl_err *err) {
    look_ahead(g);
    for (int64_t q = g->next_start; q < g->known && pl_engine_free_slots(g->engine) > 0; q++)
        if (!at_turn(g, q)->begun && may_start(g, q)) PL_TRY(start_job(g, q, err));
    while (g->next_start < g->known && at_turn(g, g->next_start)->begun)
        g->next_start++;
    return PL_OK;
}

// Stores the answer as a message for later turns.
static pl_status keep_answer(pl_generator *g, const job *j, const pl_session *s, pl_err *err) {
    int32_t        n;
    const int32_t *ids = pl_session_answer(s, &n);
    int64_t        turn = g->next_out;
    if (place_of(g, j->number)->next < 0) return PL_OK;
    while (at_turn(g, turn) != j)
        turn++;
    char **said = &g->said[turn % g->n_said];
    pl_free(*said);
    *said = NULL;
    if (!j->refused) return pl_chat_answer_message(said, g->tok, ids, n, err);
    *said = pl_strdup("");
    return *said ? PL_OK : pl_fail(err, PL_E_MEMORY, "generator: out of memory");
}

static pl_status finish_job(pl_generator *g, job *j, const pl_session *s, pl_err *err) {
    static const pl_answer_end why[] = {[PL_RUNNING] = PL_ANSWER_UNKNOWN,
                                        [PL_STOPPED] = PL_ANSWER_STOP,
                                        [PL_LENGTH] = PL_ANSWER_LENGTH,
                                        [PL_CONTEXT] = PL_ANSWER_CONTEXT};
    int64_t                    n = pl_session_length(s);
    PL_CHECK(n - j->doc.n <= 1, "%lld tokens, %lld rows", (long long)n, (long long)j->doc.n);
    if (j->doc.n < n && !j->refused) j->about.end = pl_session_tokens(s)[n - 1];
    j->about.finish = (int32_t)(j->refused ? PL_ANSWER_UNKNOWN : why[pl_session_finish(s)]);
    const pl_prompt *p = g->questions.q[place_of(g, j->number)->question].prompt;
    if (is_given(g, j)) j->about.end = p->ids[p->n_ids - 1];
    if (is_given(g, j)) j->about.finish = p->stopped ? PL_ANSWER_STOP : PL_ANSWER_LENGTH;
    j->done = true;
    j->session = NULL;
    return keep_answer(g, j, s, err);
}

static pl_status step(pl_generator *g, pl_err *err) {
    PL_TRY(start_jobs(g, err));
    PL_TRY(pl_engine_step(g->engine, err));
    for (int i = 0; i < g->opt.sessions; i++) {
        pl_session *s = pl_engine_session(g->engine, i);
        if (!s || pl_session_finish(s) == PL_RUNNING) continue;
        PL_TRY(finish_job(g, job_of(g, s), s, err));
        pl_engine_end(g->engine, s);
    }
    return PL_OK;
}

pl_status pl_generator_next(pl_generator *g, pl_columns *doc, pl_err *err) {
    *doc = (pl_columns){0};
    PL_CHECK(!g->failed, "a document after a failure");
    do {
        if (g->in_out >= 0) {
            g->in_out = -1;
            g->next_out++;
        }
        look_ahead(g);
        if (g->next_out == g->known) return PL_OK;
        const job *want = at_turn(g, g->next_out);
        pl_status  st = PL_OK;
        while (st == PL_OK && !(want->begun && want->done))
            st = step(g, err);
        g->failed = st != PL_OK;
        PL_TRY(st);
        g->in_out = g->next_out % g->ring_size;
    } while (g->ring[g->in_out].number < g->ring[g->in_out].range.first);
    job *j = &g->ring[g->in_out];
    *doc = j->doc;
    doc->about = &j->about;
    doc->room = 0; // borrowed by the caller
    return PL_OK;
}
