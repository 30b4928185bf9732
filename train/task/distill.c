#include "train/task/distill.h"

#include "infer/drafter/translation.h"
#include "infer/model/target.h"
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "train/keys.h"
#include "train/loop/trainer.h"
#include "train/source/ranks.h"
#include "train/source/sources.h"
#include "train/source/teacher.h"
#include "train/task/continuation.h"
#include "train/task/decoded.h"
#include "train/task/drafter.h"
#include "train/task/loss.h"
#include "train/task/model_files.h"
#include "train/task/unroll.h"

#include <stdio.h>
#include <string.h>

// Texts written at a time, texts read at a time, and the rows of such a forward.
enum { WRITTEN = 32, READ = 8, FORWARD = 256 };

// A slot's additional sum: rows of the drafter's answers that count.
enum { SUM_OWN_ROWS = PL_SUM_OWN };

typedef struct distill {
    pl_task            task;
    const pl_recipe   *r;
    pl_teacher         teacher;
    pl_lm              lm;
    pl_feature_source *train, *held; // held NULL: no evaluation
    int64_t            cursor;       // next document
    int64_t            longest;      // the most rows of a document
    float             *weight;       // [longest]
    pl_tokenizer      *tok;
    const char        *tok_path; // a tokenizer's file or folder; borrowed
    // The drafter's answers; engines NULL: off policy alone.
    pl_engine         *writer, *reader;
    pl_session_options drawing;
    pl_continuation   *text; // [capacity]
    int                n_text;
    int32_t           *ids; // [2 capacity] tokens of all texts
    int64_t            used;
    uint16_t          *hidden; // [capacity, d'] the target's last hidden states of their rows
    int64_t           *at;     // [capacity] each text's first row in `hidden`
} distill;

// ---- documents ------------------------------------------------------------------------------------------------------

static int64_t rows_taken(const distill *e, int64_t rows) {
    return rows < e->longest ? rows : e->longest;
}

static pl_status check_tokens(const distill *e, const pl_columns *doc, int64_t n, int64_t number, pl_err *err) {
    for (int64_t t = 0; t < n; t++)
        if (doc->tokens[t] >= e->lm.model.vocab)
            return pl_fail(err, PL_E_INPUT, "document %lld: token %d, the drafter has %lld", (long long)number,
                           (int)doc->tokens[t], (long long)e->lm.model.vocab);
    return PL_OK;
}

// Adds the first n rows. A row counts if its next token belongs to the answer; the document's last row has the mask of
// its own token.
static void add_document(distill *e, const pl_columns *doc, int64_t n) {
    for (int64_t t = 0; t < n; t++)
        e->weight[t] = doc->loss_mask[t + 1 < doc->n ? t + 1 : doc->n - 1];
    pl_lm_add_taught(&e->lm, doc->tokens, e->weight, doc->last_hidden, n);
}

static bool answers_itself(const distill *e, int64_t number) {
    pl_rng rng = pl_rng_make((uint64_t)pl_generate_recipe_of(e->r)->seed, PL_STREAM_OWN, 0);
    return e->writer && pl_rng_uniform(rng, (uint64_t)number) < pl_train_recipe_of(e->r)->train.on_policy.share;
}

// Queues the document's prompt, to be answered in at most n rows; returns false if it has none, or no row for an
// answer.
static bool keep_prompt(distill *e, const pl_columns *doc, int64_t n, int64_t number) {
    int64_t prompt = 0;
    while (prompt < n && !doc->loss_mask[prompt])
        prompt++;
    if (prompt == 0 || prompt == n) return false;
    pl_continuation *c = &e->text[e->n_text++];
    *c = (pl_continuation){.ids = e->ids + e->used,
                           .prompt = (int32_t)prompt,
                           .max_new = (int32_t)(n + 1 - prompt),
                           .key = (uint64_t)number};
    memcpy(c->ids, doc->tokens, (size_t)prompt * sizeof *c->ids);
    e->used += n + 1;
    return true;
}

// Fills a slot with whole documents while they fit, from *cursor on, and advances it. end < 0: the source has no end.
// learning: some documents are on policy.
static pl_status fill(distill *e, pl_feature_source *s, int64_t end, int64_t *cursor, bool learning, pl_err *err) {
    int64_t taken = 0, n;
    pl_lm_clear(&e->lm);
    e->n_text = 0;
    e->used = 0;
    for (; end < 0 || *cursor < end; ++*cursor) {
        pl_columns doc;
        PL_TRY(s->rows(s, *cursor, &n, err));
        n = rows_taken(e, n);
        if (taken + n > e->lm.capacity) break; // it begins the next slot, possibly another rank's
        PL_TRY(s->get(s, *cursor, &doc, err));
        PL_TRY(check_tokens(e, &doc, n, *cursor, err));
        if (!learning || !answers_itself(e, *cursor) || !keep_prompt(e, &doc, n, *cursor)) add_document(e, &doc, n);
        taken += n;
    }
    return PL_OK;
}

// ---- the drafter's own answers --------------------------------------------------------------------------------------

// Stores the target's last hidden states of a text's rows, rounded as documents store them.
static void keep_hidden(void *arg, const pl_final_rows *r) {
    distill *e = arg;
    int64_t  d = e->teacher.model.shape.d, first = e->at[pl_session_key(r->session)];
    for (int i = 0; i < r->count; i++) {
        const float *from = pl_f32(&r->hidden) + r->row[i] * d;
        pl_from_f32(e->hidden + (first + r->first + i) * d, PL_BF16, from, (size_t)d);
    }
}

// Runs the target over each text except its last token, which has no row.
static pl_status read_texts(distill *e, pl_err *err) {
    int64_t rows = 0;
    for (int i = 0; i < e->n_text; i++) {
        e->at[i] = rows;
        rows += e->text[i].n - 1;
    }
    for (int begun = 0, done = 0; done < e->n_text;) {
        for (; begun < e->n_text && pl_engine_free_slots(e->reader) > 0; begun++) {
            pl_session_options o = {.sampling = {.top_p = 1}, .key = (uint64_t)begun, .max_new = 1};
            pl_session        *s;
            PL_TRY(pl_engine_start(e->reader, e->text[begun].ids, e->text[begun].n - 1, &o, &s, err));
        }
        PL_TRY(pl_engine_step(e->reader, err));
        for (int i = 0; i < READ; i++) {
            pl_session *s = pl_engine_session(e->reader, i);
            if (!s || pl_session_finish(s) == PL_RUNNING) continue;
            pl_engine_end(e->reader, s);
            done++;
        }
    }
    return PL_OK;
}

static pl_status answer(distill *e, double *rows, pl_err *err) {
    int64_t d = e->teacher.model.shape.d;
    if (e->n_text == 0) return PL_OK;
    PL_TRY(pl_continue(e->writer, e->text, e->n_text, &e->drawing, err));
    PL_TRY(read_texts(e, err));
    for (int i = 0; i < e->n_text; i++) {
        const pl_continuation *c = &e->text[i];
        for (int32_t t = 0; t < c->n - 1; t++)
            e->weight[t] = t + 1 >= c->prompt;
        pl_lm_add_taught(&e->lm, c->ids, e->weight, e->hidden + e->at[i] * d, c->n - 1);
        *rows += c->n - c->prompt;
    }
    return PL_OK;
}

// ---- the task -------------------------------------------------------------------------------------------------------

static pl_status slot(pl_task *t, int64_t step, int number, double *sums, pl_err *err) {
    distill   *e = (distill *)t;
    pl_lm_sums s;
    double     from = pl_now();
    (void)step, (void)number; // the cursor alone determines the documents
    PL_TRY(fill(e, e->train, -1, &e->cursor, true, err));
    t->waited += pl_now() - from;
    PL_TRY(answer(e, &sums[SUM_OWN_ROWS], err));
    PL_TRY(pl_lm_learn(&e->lm, &s, err));
    sums[PL_SUM_LOSS] = s.loss;
    sums[PL_SUM_WEIGHT] = (double)s.count;
    sums[PL_SUM_TOKENS] = (double)e->lm.rows;
    return PL_OK;
}

static pl_status begin(pl_task *t, int64_t step, pl_err *err) {
    return pl_source_begin(((distill *)t)->train, t, step, err);
}

// Advances the cursor as a fill would.
static pl_status skip(pl_task *t, int64_t step, int number, pl_err *err) {
    distill *e = (distill *)t;
    (void)step, (void)number;
    for (int64_t taken = 0, n;; e->cursor++) {
        PL_TRY(e->train->rows(e->train, e->cursor, &n, err));
        taken += rows_taken(e, n);
        if (taken > e->lm.capacity) return PL_OK;
    }
}

static void place(pl_task *t, int64_t step, int number, const int64_t *from, const int64_t *to, pl_json_out *o) {
    (void)step, (void)number;
    pl_source_place(((distill *)t)->train, *from, *to, o);
}

static void report(pl_task *t, const double *sums, pl_metrics *m) {
    pl_metrics_num(m, "rows_counted", sums[PL_SUM_WEIGHT]);
    if (((distill *)t)->writer) pl_metrics_num(m, "rows_on_policy", sums[SUM_OWN_ROWS]);
}

// Adds chains of drafts that start at each row. The model reads the text itself, so deeper drafts have the acceptance
// of the following rows.
static void add_chains(const pl_lm *lm, int steps, pl_unroll_sums *s) {
    for (int64_t i = 0; i < lm->rows; i++) {
        double agreed = 1, accepted = 1;
        for (int k = 0; k < steps; k++) {
            int64_t row = i + k;
            if (row >= lm->rows || lm->lo[row] != lm->lo[i] || lm->teacher_row[row] < 0) break;
            agreed *= lm->argmax[row] == lm->choice[row];
            accepted *= (double)lm->accept[row];
            s->chain[k]++;
            s->chain_agree[k] += agreed;
            s->chain_accept[k] += accepted;
        }
    }
}

static pl_status evaluate(pl_task *t, int64_t step, pl_metrics *m, double *score, pl_err *err) {
    distill               *e = (distill *)t;
    const pl_train_recipe *tr = pl_train_recipe_of(e->r);
    int                    steps = tr->train.eval_steps > 0 ? (int)tr->train.eval_steps : 4;
    pl_unroll_sums         s = {0};
    pl_lm_sums             all = {0}, some;
    int64_t                at = 0, rows = 0;
    while (at < e->held->docs && rows < tr->train.eval_tokens) {
        PL_TRY(fill(e, e->held, e->held->docs, &at, false, err));
        PL_TRY(pl_lm_score(&e->lm, &some, err));
        add_chains(&e->lm, steps, &s);
        all.loss += some.loss;
        all.count += some.count;
        all.correct += some.correct;
        all.accept += some.accept;
        all.foreseen += some.foreseen;
        rows += e->lm.rows;
    }
    double n = all.count > 0 ? (double)all.count : 1, loss = all.loss / n;
    double greedy = pl_unroll_greedy_length(&s, steps), sampled = pl_unroll_sampled_length(&s, steps);
    pl_metrics_num(m, "eval_loss", loss);
    pl_metrics_num(m, "eval_accuracy", (double)all.correct / n);
    pl_metrics_num(m, "eval_acceptance", all.accept / n);
    if (e->lm.stops.acceptance) pl_metrics_num(m, "eval_acceptance_loss", all.foreseen / n);
    pl_metrics_num(m, "eval_acceptance_length", greedy);
    pl_metrics_num(m, "eval_acceptance_length_sampled", sampled);
    pl_metrics_int(m, "eval_rows", rows);
    pl_metrics_num(m, "eval_rows_counted", (double)all.count);
    pl_log("step %lld: held out loss %.4f, acceptance %.3f, expected acceptance length %.3f greedy, %.3f sampled",
           (long long)step, loss, all.accept / n, greedy, sampled);
    *score = greedy;
    return PL_OK;
}

static pl_status save_model(pl_task *t, const char *dir, pl_err *err) {
    const distill *e = (const distill *)t;
    return pl_model_files_write(dir, &e->lm, e->tok, e->tok_path, err);
}

// ---- preparation ----------------------------------------------------------------------------------------------------

pl_status pl_distill_check(const pl_recipe *r, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    const void *const read[] = {&tr->train.eval_steps, &tr->train.objective, &tr->train.js_beta, &tr->train.lk_decay};
    const void       *field;
    for (int i = 0; pl_loss_at(i); i++)
        PL_TRY(pl_recipe_refuse_table(r, pl_loss_at(i)->keys, NULL,
                                      "a drafter that is a language model has no such loss", err));
    for (int k = 0; (field = k > 0 ? pl_drafter_field(r, k - 1) : &tr->train.eval_prompts); k++) {
        bool is_read = strncmp(pl_recipe_path(r, field), "drafter.head.", 13) == 0; // of lists with several kinds
        for (size_t i = 0; i < sizeof read / sizeof *read; i++)
            is_read |= field == read[i];
        if (!is_read && pl_recipe_differs(r, field))
            return pl_recipe_fail(r, field, err, "a drafter that is a language model has no such thing");
    }
    if (tr->train.on_policy.share == 0 && pl_recipe_differs(r, &tr->train.on_policy.temperature))
        return pl_recipe_fail(r, &tr->train.on_policy.temperature, err, "nothing is drawn; give train.on_policy.share");
    if (tr->train.on_policy.share > 0 && tr->train.objective == PL_OBJ_LABEL)
        return pl_recipe_fail(r, &tr->train.on_policy.share, err,
                              "with train.objective: label the drafter would learn its own answers; take a divergence");
    if (pl_head_recipe_of(r)->acceptance && tr->train.objective == PL_OBJ_LABEL)
        return pl_recipe_fail(r, &pl_head_recipe_of(r)->acceptance, err,
                              "with train.objective: label the target's distribution is not read; take a divergence");
    if (!tr->drafter.start)
        return pl_recipe_fail(r, &tr->drafter.start, err,
                              "name the model that learns to draft; kind: target makes one from text");
    return PL_OK;
}

pl_status pl_distill_check_other(const pl_recipe *r, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    const void *const      keys[] = {&tr->train.on_policy.share, &tr->train.on_policy.temperature};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (pl_recipe_differs(r, keys[i]))
            return pl_recipe_fail(r, keys[i], err, "is of drafter.kind: " PL_TRAIN_STANDALONE);
    if (tr->train.objective == PL_OBJ_LABEL)
        return pl_recipe_fail(r, &tr->train.objective, err,
                              "label is of drafter.kind: " PL_TRAIN_STANDALONE "; hard-ce takes the target's choice");
    return PL_OK;
}

// Opens the target's tokenizer, which is also the drafter's.
static pl_status open_tokenizer(distill *e, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(e->r);
    const char               *start = pl_train_recipe_of(e->r)->drafter.start;
    pl_tokenizer             *target;
    PL_TRY(pl_target_tokenizer(&target, gen->target.path, gen->target.tokenizer, gen->target.pre, err));
    pl_status st = pl_target_tokenizer(&e->tok, start, NULL, NULL, err);
    e->tok_path = start;
    if (st == PL_OK && !e->tok) {
        e->tok = target;
        e->tok_path = gen->target.tokenizer ? gen->target.tokenizer : gen->target.path;
        if (!target) st = pl_fail(err, PL_E_INPUT, "%s: no tokenizer; give target.tokenizer", gen->target.path);
        return st;
    }
    if (st == PL_OK && target && !pl_translation_same(e->tok, target))
        st =
            pl_fail(err, PL_E_INPUT,
                    "%s: its vocabulary is not the target's, with which it is compared token by token; train it on the "
                    "target's answers as text (kind: target)",
                    start);
    pl_tokenizer_close(target);
    return st;
}

static pl_status create_model(distill *e, const pl_env *env, char start[17], pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(e->r);
    const char            *dir = tr->drafter.start;
    pl_llama              *target = &e->teacher.model;
    pl_hf_config           c;
    PL_TRY(pl_model_files_config(&c, dir, tr->train.dtype == PL_TRAIN_BF16 ? PL_BF16 : PL_F32, err));
    if (c.vocab_size > target->vocab || c.vocab_size < pl_tokenizer_vocab_size(e->tok))
        return pl_fail(err, PL_E_INPUT, "%s: %d rows, the target has %lld, its tokenizer %d", dir, c.vocab_size,
                       (long long)target->vocab, (int)pl_tokenizer_vocab_size(e->tok));
    pl_lm_options o = {.backend = env->backend,
                       .pool = env->pool,
                       .capacity = tr->train.slot_rows,
                       .round_to = c.dtype,
                       .shard = pl_train_shard(e->r, env->comm),
                       .decay_embed = tr->train.decay_embeddings,
                       .recompute = tr->train.recompute,
                       .teacher = {.head = e->teacher.head,
                                   .cap = target->config.final_softcap,
                                   .objective = (pl_objective)tr->train.objective,
                                   .js_beta = tr->train.js_beta,
                                   .lk_decay = tr->train.lk_decay},
                       .acceptance = pl_head_recipe_of(e->r)->acceptance,
                       .max_rejection = pl_head_recipe_of(e->r)->max_rejection};
    PL_TRY(pl_lm_create(&e->lm, &c, &o, err));
    PL_TRY(pl_model_files_weights(&e->lm, dir, start, err));
    int64_t positions = c.max_position_embeddings;
    if (target->config.max_position_embeddings < positions) positions = target->config.max_position_embeddings;
    e->longest = o.capacity < positions - 1 ? o.capacity : positions - 1;
    e->weight = pl_calloc((size_t)e->longest, sizeof *e->weight);
    return e->weight ? PL_OK : pl_fail(err, PL_E_MEMORY, "training: out of memory");
}

// Creates the engines that write the drafter's answers and read them with the target.
static pl_status create_engines(distill *e, const pl_env *env, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(e->r);
    size_t                 n = (size_t)e->lm.capacity, d = (size_t)e->teacher.model.shape.d;
    pl_engine_options      eo = {.max_sessions = WRITTEN, .max_rows = FORWARD, .max_len = (int)e->longest + 1};
    // A seed of its own: these draws must differ from those of the target's answers.
    uint64_t               seed = (uint64_t)pl_generate_recipe_of(e->r)->seed ^ 0xd1b54a32d192ed03u;
    if (tr->train.on_policy.share == 0) return PL_OK;
    e->text = pl_calloc(n, sizeof *e->text);
    e->ids = pl_calloc(2 * n, sizeof *e->ids);
    e->at = pl_calloc(n, sizeof *e->at);
    e->hidden = pl_calloc(pl_size_mul(n, d, 1), sizeof *e->hidden);
    if (!e->text || !e->ids || !e->at || !e->hidden)
        return pl_fail(err, PL_E_MEMORY, "training: out of memory for the drafter's answers");
    e->drawing =
        (pl_session_options){.sampling = {.temperature = tr->train.on_policy.temperature, .top_p = 1, .seed = seed}};
    PL_TRY(pl_sampling_check(&e->drawing.sampling, err));
    e->drawing.n_stop = pl_target_stops(e->drawing.stop, &e->teacher.model.config, e->tok);
    e->lm.model.shape.kv = pl_target_kv(pl_generate_recipe_of(e->r)); // as in decoding
    PL_TRY(pl_engine_create(&e->writer, env->backend, env->pool, &e->lm.model, NULL, &eo, err));
    eo.max_sessions = READ;
    PL_TRY(pl_engine_create(&e->reader, env->backend, env->pool, &e->teacher.whole, NULL, &eo, err));
    pl_engine_on_final(e->reader, keep_hidden, e);
    return PL_OK;
}

static pl_status prepare(pl_task *t, const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    distill               *e = (distill *)t;
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    char                   recipe[17], start[17];
    int                    final = PL_TAP_FINAL; // only the last hidden is read
    e->r = r;
    PL_TRY(pl_recipe_hash(r, PL_STAGE_DRAFTER, recipe, err));
    PL_TRY(open_tokenizer(e, err));
    PL_TRY(pl_sources_teacher(&e->teacher, e->r, env, err));
    PL_TRY(create_model(e, env, start, err));
    PL_TRY(pl_drafter_sources(&e->train, &e->held, e->r, out_dir, env, &e->teacher, &final, 1, err));
    int64_t look = tr->train.eval_tokens + e->lm.capacity; // the last slot may exceed eval_tokens
    PL_TRY(pl_decoded_fetch(e->held, look, e->longest, 0, err));
    PL_TRY(create_engines(e, env, err));
    e->task.name = PL_TRAIN_STANDALONE;
    e->task.block = &e->lm.block;
    e->task.cursor = &e->cursor;
    e->task.n_cursor = 1;
    e->task.begin = begin;
    e->task.tape = &e->lm.tape;
    e->task.slot = slot;
    e->task.skip = skip;
    e->task.place = place;
    e->task.report = report;
    e->task.save_model = save_model;
    if (e->held) e->task.evaluate = evaluate;
    snprintf(e->task.identity, sizeof e->task.identity, "%s recipe %s target %s data %s start %s", e->task.name, recipe,
             e->teacher.model.fingerprint, e->train->identity, start);
    pl_log("%s: %.2f M parameters, learns from the target's answers%s, %.0f MB of activations", e->task.name,
           (double)pl_params_count(&e->lm.model.params) / 1e6, e->writer ? " and from its own" : "",
           (double)e->lm.ctx.frame.size / 1e6);
    return PL_OK;
}

static void destroy(pl_task *t) {
    distill *e = (distill *)t;
    pl_engine_destroy(e->writer);
    pl_engine_destroy(e->reader);
    if (e->held) e->held->destroy(e->held);
    if (e->train) e->train->destroy(e->train); // after held, which may read from it
    pl_lm_destroy(&e->lm);
    pl_teacher_close(&e->teacher);
    pl_tokenizer_close(e->tok);
    void *owned[] = {e->weight, e->text, e->ids, e->at, e->hidden};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
}

const pl_training pl_training_lm = {sizeof(distill), prepare, destroy};
