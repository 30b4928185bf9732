#include "train/task/drafter.h"

#include "data/tokenizer/tokenizer.h"
#include "infer/eval/eval.h"
#include "infer/head/draft_vocab.h"
#include "infer/model/target.h"
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "train/keys.h"
#include "train/loop/trainer.h"
#include "train/source/ranks.h"
#include "train/source/sources.h"
#include "train/source/teacher.h"
#include "train/source/vocabularies.h"
#include "train/start/nearest.h"
#include "train/start/start.h"
#include "train/task/decoded.h"
#include "train/task/unroll.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct eagle {
    pl_task            task;
    const pl_recipe   *r;
    pl_teacher         teacher;
    pl_backbone       *model;
    pl_param_block     block;
    pl_unroll          u;
    pl_feature_source *train, *held; // held NULL: no evaluation
    int64_t            cursor[2];    // next document, next row in it
    int64_t            eval_rows;
    pl_dtype           dtype; // of the checkpoint
    pl_feature_noise   noise;
    const pl_env      *env;
    const char        *out_dir;
    pl_target          target;            // the target of decoded evaluations; the first one opens it
    bool               decodes, opened;   // evaluations decode; the target is open
    bool               borrowed;          // `target` uses the teacher's model
    pl_decoded         documents, served; // n 0: not evaluated
} eagle;

// A slot's additional sums: for each step of the unroll the rows that count, the rows that agree with the target, and
// each figure of the losses.
enum {
    SUM_COUNT = PL_SUM_OWN,
    SUM_AGREE = SUM_COUNT + PL_MAX_UNROLL,
    SUM_FIGURE = SUM_AGREE + PL_MAX_UNROLL,
    SUM_END = SUM_FIGURE + PL_FIGURES * PL_MAX_UNROLL
};
_Static_assert((int)SUM_END <= PL_SLOT_SUMS, "a slot's scalars");

// ---- the task

static pl_status slot(pl_task *t, int64_t step, int number, double *sums, pl_err *err) {
    eagle         *e = (eagle *)t;
    pl_unroll_sums s = {0};
    (void)step, (void)number; // the cursor alone determines the documents
    double from = pl_now();
    PL_TRY(pl_pack_fill(&e->u.pack, e->train, -1, e->cursor, &e->noise, err));
    t->waited += pl_now() - from;
    PL_TRY(pl_unroll_learn(&e->u, err));
    pl_unroll_add(&e->u, false, &s);
    sums[PL_SUM_LOSS] = s.loss;
    sums[PL_SUM_WEIGHT] = s.weight;
    sums[PL_SUM_TOKENS] = (double)e->u.pack.rows;
    sums[PL_SUM_SUPERVISED] = (double)e->u.rows.learners;
    for (int k = 0; k < e->u.opt.learn_steps; k++) {
        sums[SUM_COUNT + k] = s.count[k];
        sums[SUM_AGREE + k] = s.agree[k];
        for (int f = 0; f < e->u.n_figures; f++)
            sums[SUM_FIGURE + f * PL_MAX_UNROLL + k] = s.figure[f][k];
    }
    return PL_OK;
}

static pl_status begin(pl_task *t, int64_t step, pl_err *err) {
    return pl_source_begin(((eagle *)t)->train, t, step, err);
}

static pl_status skip(pl_task *t, int64_t step, int number, pl_err *err) {
    eagle *e = (eagle *)t;
    (void)step, (void)number;
    return pl_pack_skip(&e->u.pack, e->train, e->cursor, err);
}

// Writes a slot's documents, and the rows at which the first and last one were cut.
static void place(pl_task *t, int64_t step, int number, const int64_t *from, const int64_t *to, pl_json_out *o) {
    (void)step, (void)number;
    pl_source_place(((eagle *)t)->train, from[0], to[0] + (to[1] > 0), o);
    if (from[1] > 0) pl_put_int(o, "from_row", from[1]);
    if (to[1] > 0) pl_put_int(o, "to_row", to[1]);
}

static void put_steps(pl_metrics *m, const char *key, const double *sum, const double *count, int steps) {
    double mean[PL_MAX_UNROLL];
    for (int k = 0; k < steps; k++)
        mean[k] = count[k] > 0 ? sum[k] / count[k] : 0;
    pl_metrics_nums(m, key, mean, steps);
}

static void put_figure(pl_metrics *m, const char *when, const char *name, const double *sum, const double *count,
                       int steps) {
    char key[64];
    snprintf(key, sizeof key, "%s_%s", when, name);
    put_steps(m, key, sum, count, steps);
}

static void report(pl_task *t, const double *sums, pl_metrics *m) {
    const pl_unroll *u = &((eagle *)t)->u;
    const double    *count = sums + SUM_COUNT, *figure = sums + SUM_FIGURE;
    int              steps = u->opt.learn_steps;
    pl_metrics_num(m, "rows_counted", *count);
    put_figure(m, "step", u->figure[0].name, figure, count, steps);
    put_steps(m, "step_accuracy", sums + SUM_AGREE, count, steps);
    for (int f = 1; f < u->n_figures; f++)
        put_figure(m, "step", u->figure[f].name, figure + f * PL_MAX_UNROLL, count, steps);
}

static pl_status estimate(eagle *e, int64_t step, pl_metrics *m, double *score, pl_err *err) {
    pl_unroll_sums s = {0};
    int64_t        at[2] = {0}, rows = 0;
    int            steps = e->u.pack.steps;
    bool           outside = e->u.pack.outside;
    e->u.pack.outside = true; // as in decoding, a token outside the head's list ends a draft
    while (at[0] < e->held->docs && rows < e->eval_rows) {
        pl_status st = pl_pack_fill(&e->u.pack, e->held, e->held->docs, at, NULL, err);
        if (st == PL_OK) st = pl_unroll_score_all(&e->u, err);
        if (st != PL_OK) {
            e->u.pack.outside = outside;
            return st;
        }
        pl_unroll_add(&e->u, true, &s);
        rows += e->u.pack.rows;
    }
    e->u.pack.outside = outside;
    double greedy = pl_unroll_greedy_length(&s, steps), sampled = pl_unroll_sampled_length(&s, steps);
    double loss = s.weight > 0 ? s.loss / s.weight : 0;
    pl_metrics_num(m, "eval_loss", loss);
    pl_metrics_num(m, "eval_acceptance_length", greedy);
    pl_metrics_num(m, "eval_acceptance_length_sampled", sampled);
    for (int f = 0; f < e->u.n_figures; f++)
        put_figure(m, "eval_step", e->u.figure[f].name, s.figure[f], s.count, steps);
    put_steps(m, "eval_step_accuracy", s.agree, s.count, steps);
    put_steps(m, "eval_step_acceptance", s.accept, s.count, steps);
    pl_metrics_int(m, "eval_rows", rows);
    pl_metrics_num(m, "eval_rows_counted", s.count[0]);
    pl_log("step %lld: held out loss %.4f, expected acceptance length %.3f greedy, %.3f sampled", (long long)step, loss,
           greedy, sampled);
    *score = greedy;
    return PL_OK;
}

static pl_status save_model(pl_task *t, const char *dir, pl_err *err) {
    eagle        *e = (eagle *)t;
    pl_param_view view;
    PL_TRY(pl_param_view_init(&view, &e->block, err));
    pl_status st = pl_backbone_write(e->model, dir, view.data, e->dtype, err);
    pl_param_view_fini(&view);
    return st;
}

// ---- held-out acceptance, measured by the decoder

static pl_status open_target(eagle *e, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(e->r);
    pl_target                *t = &e->target;
    pl_dtype                  dtype = pl_target_dtype(gen);
    e->borrowed = e->teacher.whole.layer != NULL;
    if (!e->borrowed) {
        PL_TRY(pl_target_open_over(t, gen->target.path, gen->target.tokenizer, gen->target.pre,
                                   dtype == PL_F32 ? PL_WEIGHTS_FP32 : PL_WEIGHTS_BF16, e->env->backend, e->env->tp,
                                   err));
        t->model.shape.kv = pl_target_kv(gen);
        return PL_OK;
    }
    *t = (pl_target){.model = e->teacher.whole, .dtype = dtype};
    PL_TRY(pl_target_tokenizer(&t->tok, gen->target.path, gen->target.tokenizer, gen->target.pre, err));
    t->n_stop = pl_target_stops(t->stop, &t->model.config, t->tok);
    return PL_OK;
}

// Selects held-out prompts of the recipe in this form.
static pl_status served_prompts(eagle *e, const pl_prompt_form *form, const pl_sampling *sampling, int most,
                                pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(e->r);
    const char               *file = pl_split_recipe_of(e->r)->eval.prompts;
    int64_t                   room = e->target.model.config.max_position_embeddings - gen->data.max_new_tokens - 1;
    pl_prompts               *train = NULL, *held = NULL;
    if (file)
        PL_TRY(pl_prompts_to_evaluate(e->r, form, file, NULL, &held, err));
    else
        PL_TRY(pl_recipe_prompts(e->r, form, &train, &held, err));
    pl_status st = pl_decoded_prompts(&e->served, held, e->target.tok, most, sampling, (int)gen->data.max_new_tokens,
                                      e->u.pack.steps, room, err);
    pl_prompts_destroy(train);
    pl_prompts_destroy(held);
    return st;
}

// Selects documents to answer again, and prompts if there are none or the served form or temperature differs.
static pl_status prepare_decoding(eagle *e, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(e->r);
    const pl_eval_recipe     *ev = pl_eval_recipe_of(e->r);
    int                       most = (int)pl_train_recipe_of(e->r)->train.eval_prompts;
    pl_sampling               sampling = {.top_p = 1, .seed = (uint64_t)gen->seed};
    pl_prompt_form            form = {0}, served = {0};
    if (ev->eval.temperatures.n > 0) sampling.temperature = ev->eval.temperatures.at[0];
    e->opened = true;
    PL_TRY(open_target(e, err));
    PL_TRY(pl_decoded_documents(&e->documents, e->held, most, sampling.temperature == 0, (int)gen->data.max_new_tokens,
                                e->u.pack.steps, e->u.opt.capacity, err));
    e->documents.sampling.seed = sampling.seed;
    pl_status st = pl_recipe_form(&form, e->r, err);
    if (st == PL_OK) st = pl_recipe_served_form(&served, e->r, err);
    bool other = st == PL_OK && (strcmp(form.name, served.name) != 0 ||
                                 sampling.temperature != e->documents.sampling.temperature || e->documents.n == 0);
    bool named = gen->data.prompts || pl_split_recipe_of(e->r)->eval.prompts;
    if (other && named && e->target.tok) st = served_prompts(e, &served, &sampling, most, err);
    pl_prompt_form_close(&form);
    pl_prompt_form_close(&served);
    return st;
}

// Writes the current checkpoint to a temporary folder, decodes with it, and removes it.
static pl_status decode_held_out(eagle *e, pl_err *err) {
    pl_atomic_dir a;
    char         *dir = pl_path_join(e->out_dir, "checkpoints/evaluated");
    pl_status     st = dir ? pl_atomic_dir_begin(&a, dir, err) : pl_fail(err, PL_E_MEMORY, "training: out of memory");
    pl_free(dir);
    if (st != PL_OK) return st;
    const char *to = pl_atomic_dir_path(&a);
    st = save_model(&e->task, to, err);
    if (st == PL_OK && e->documents.n > 0) st = pl_decoded_run(&e->documents, e->env, &e->target, to, err);
    if (st == PL_OK && e->served.n > 0) st = pl_decoded_run(&e->served, e->env, &e->target, to, err);
    pl_atomic_dir_abort(&a);
    return st;
}

static void put_decoded(pl_metrics *m, const char *what, const pl_cycle_sums *s, int steps) {
    char   key[64];
    double reached = s->whole, rate[2][PL_MAX_UNROLL];
    for (int k = 0; k < steps; k++) {
        rate[0][k] = s->whole > 0 ? s->accepted[k] / s->whole : 0;
        rate[1][k] = reached > 0 ? s->accepted[k] / reached : 0;
        reached = s->accepted[k];
    }
    snprintf(key, sizeof key, "%s_acceptance_by_position", what);
    pl_metrics_nums(m, key, rate[0], steps);
    snprintf(key, sizeof key, "%s_acceptance_conditional", what);
    pl_metrics_nums(m, key, rate[1], steps);
}

static void report_documents(eagle *e, const pl_decoded_figures *f, int64_t step, pl_metrics *m) {
    pl_metrics_int(m, "documents_decoded", e->documents.n);
    pl_metrics_num(m, "documents_promised_length", f->promised_length);
    pl_metrics_num(m, "documents_decoded_length", f->decoded_length);
    pl_metrics_num(m, "documents_difference_error", f->error);
    pl_metrics_num(m, "documents_reproduced", f->reproduced);
    put_decoded(m, "promised", &f->promised, e->documents.steps);
    put_decoded(m, "decoded", &f->decoded, e->documents.steps);
    pl_log("step %lld: acceptance length %.3f decoded, %.3f promised by the same %d held-out documents",
           (long long)step, f->decoded_length, f->promised_length, e->documents.n);
    if (f->alarm)
        pl_log_warn("step %lld: held-out documents: %s (acceptance length %.3f decoded, %.3f promised, standard error "
                    "%.3f)",
                    (long long)step, pl_decoded_cause(f, e->documents.steps), f->decoded_length, f->promised_length,
                    f->error);
}

static bool report_served(eagle *e, const pl_decoded_figures *f, const pl_decoded_figures *s, int64_t step,
                          pl_metrics *m) {
    pl_metrics_int(m, "served_decoded", e->served.n);
    pl_metrics_num(m, "served_decoded_length", s->decoded_length);
    pl_metrics_num(m, "served_decoded_error", s->error);
    put_decoded(m, "served", &s->decoded, e->served.steps);
    if (isnan(s->decoded_length)) {
        pl_log("step %lld: the target answers none of %d held-out prompts as it will be served", (long long)step,
               e->served.n);
        return false;
    }
    pl_log("step %lld: acceptance length %.3f as it will be served, on %d held-out prompts", (long long)step,
           s->decoded_length, e->served.n);
    if (e->documents.n == 0 || !pl_decoded_falls_behind(&e->served, &e->documents)) return false;
    pl_log_warn("step %lld: served prompts fall behind the data: acceptance length %.3f, %.3f promised by held-out "
                "documents; the chat template, the thinking mode, the system prompt or the temperature is not what the "
                "data were made with",
                (long long)step, s->decoded_length, f->promised_length);
    return true;
}

static pl_status evaluate(pl_task *t, int64_t step, pl_metrics *m, double *score, pl_err *err) {
    eagle             *e = (eagle *)t;
    pl_decoded_figures documents, served;
    PL_TRY(estimate(e, step, m, score, err));
    if (!e->decodes) return PL_OK;
    if (!e->opened) PL_TRY(prepare_decoding(e, err));
    if (e->documents.n + e->served.n == 0) return PL_OK;
    PL_TRY(pl_decoded_promise(&e->documents, &e->u, e->held, err));
    PL_TRY(decode_held_out(e, err));
    pl_decoded_compare(&e->documents, &documents);
    pl_decoded_compare(&e->served, &served);
    bool alarm = documents.alarm;
    if (e->documents.n > 0) {
        report_documents(e, &documents, step, m);
        *score = documents.decoded_length;
    }
    if (e->served.n > 0) {
        alarm |= report_served(e, &documents, &served, step, m);
        if (!isnan(served.decoded_length)) *score = served.decoded_length;
    }
    pl_metrics_int(m, "alarm", alarm);
    return PL_OK;
}

// ---- preparation

// Reads the list of tokens that the head drafts, with those that end the target's answers; *d2t NULL: all tokens.
static pl_status draft_vocab(int32_t **d2t, int64_t *n, const pl_recipe *r, const char *out_dir, const pl_llama *target,
                             pl_err *err) {
    const pl_head_recipe     *hd = pl_head_recipe_of(r);
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    char                     *list;
    pl_tokenizer             *tok = NULL;
    int32_t                   stop[PL_MAX_STOP];
    *d2t = NULL;
    *n = 0;
    PL_TRY(pl_vocabulary_path(&list, r, hd->vocab, out_dir, err));
    if (!list) return PL_OK;
    pl_status st = pl_target_tokenizer(&tok, gen->target.path, gen->target.tokenizer, gen->target.pre, err);
    if (st == PL_OK) {
        pl_draft_vocab_options o = {.size = hd->vocab_size,
                                    .vocab = target->vocab,
                                    .tokenizer = tok ? pl_tokenizer_fingerprint(tok) : NULL,
                                    .stop = stop,
                                    .n_stop = pl_target_stops(stop, &target->config, tok)};
        st = pl_draft_vocab_from_list(d2t, n, list, &o, err);
    }
    pl_tokenizer_close(tok);
    pl_free(list);
    return st;
}

// Assigns to each token outside a redistributing head's list the drafted token that it depends on.
static pl_status init_outside(eagle *e, const pl_env *env, pl_err *err) {
    pl_head         *h = &e->model->head;
    const pl_tensor *rows = &e->teacher.host_head;
    if (h->redistribute == 0 || pl_comm_rank(env->comm) > 0) return PL_OK; // rank 0 alone stores it
    int32_t *on = pl_malloc(pl_size_mul((size_t)rows->dim[0], sizeof *on, 1));
    if (!on) return pl_fail(err, PL_E_MEMORY, "training: out of memory for the head");
    pl_status st = pl_nearest_rows(on, rows, h->d2t, h->vocab, pl_start_backend(env), env->pool, err);
    if (st == PL_OK)
        st = pl_outside_init(&h->outside, h->redistribute, on, rows->dim[0], h->d2t, h->vocab, "drafter.head", err);
    pl_free(on);
    return st;
}

// Selects the mask token of block drafters: a token that does not occur in texts, so its embedding is free.
static pl_status mask_token(int *out, const pl_recipe *r, const pl_llama *target, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    pl_tokenizer             *tok = NULL;
    *out = (int)tr->drafter.mask_token;
    if (*out >= target->vocab)
        return pl_recipe_fail(r, &tr->drafter.mask_token, err, "the target has %lld tokens", (long long)target->vocab);
    if (*out >= 0) return PL_OK;
    PL_TRY(pl_target_tokenizer(&tok, gen->target.path, gen->target.tokenizer, gen->target.pre, err));
    if (tok) *out = pl_tokenizer_vocab_size(tok) < target->vocab ? pl_tokenizer_vocab_size(tok) : -1;
    if (tok && *out < 0) *out = pl_tokenizer_find(tok, "<unk>");
    pl_tokenizer_close(tok);
    if (*out >= 0) return PL_OK;
    return pl_recipe_fail(r, &tr->drafter.mask_token, err,
                          "the target has no row without a piece and no <unk>; name a token that texts do not hold");
}

static pl_status init_model(eagle *e, const char *out_dir, const pl_env *env, pl_err *err) {
    const pl_recipe       *r = e->r;
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    pl_backbone_options    o = {.head = pl_train_head_read(r),
                                .own_head = !pl_train_freezes_head(r),
                                .bias = tr->drafter.bias,
                                .width = (int)tr->drafter.width,
                                .own_embed = tr->drafter.own_embeddings,
                                .inter = (int)tr->drafter.intermediate,
                                .layers = (int)tr->drafter.layers,
                                .window = (int)tr->drafter.window,
                                .block = (int)tr->drafter.block,
                                .anchor_first = tr->drafter.anchor_first,
                                .conv_taps = (int)tr->drafter.conv.taps,
                                .conv_group = (int)tr->drafter.conv.group,
                                .selector = pl_train_selector(r),
                                .fc_norm = tr->drafter.fc_norm,
                                .norm_before_fc = tr->drafter.norm_before_fc,
                                .norm_output = tr->drafter.norm_output,
                                .norm_before_residual = tr->drafter.norm_before_residual};
    if (pl_train_backbone(r)->draft && !pl_train_backbone(r)->own_heads)
        PL_TRY(mask_token(&o.mask_token, r, &e->teacher.model, err));
    if (tr->drafter.taps.n > PL_MAX_TAPS)
        return pl_recipe_fail(r, &tr->drafter.taps, err, "%d layers, at most %d", tr->drafter.taps.n, PL_MAX_TAPS);
    for (o.n_taps = 0; o.n_taps < tr->drafter.taps.n; o.n_taps++)
        o.tap[o.n_taps] = (int)tr->drafter.taps.at[o.n_taps];
    int32_t  *d2t = NULL;
    pl_status st = draft_vocab(&d2t, &o.draft_vocab, r, out_dir, &e->teacher.model, err);
    o.d2t = d2t;
    if (st == PL_OK) st = pl_backbone_create(&e->model, pl_train_backbone(r), &e->teacher.model, &o, env->backend, err);
    pl_free(d2t);
    if (st != PL_OK) return st;
    return init_outside(e, env, err);
}

static pl_status create_block(eagle *e, const pl_env *env, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(e->r);
    pl_params             *ps = &e->model->params;
    bool                  *frozen = pl_calloc((size_t)ps->n, sizeof *frozen);
    if (!frozen) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    bool           head = pl_train_freezes_head(e->r), backbone = tr->drafter.freeze == PL_FREEZE_BACKBONE;
    const pl_head *of = &e->model->head;
    for (int i = 0; i < ps->n; i++) {
        bool beside =
            i >= e->model->selector_param || ps->p[i].tensor == &of->sure || ps->p[i].tensor == &of->sure_bias;
        frozen[i] = i < e->model->head_param ? backbone : !beside && (head || ps->p[i].fixed);
    }
    pl_param_block_options o = {.backend = env->backend,
                                .round_to = e->dtype,
                                .frozen = frozen,
                                .shard = pl_train_shard(e->r, env->comm),
                                .decay_embed = tr->train.decay_embeddings};
    pl_status              st = pl_param_block_create(&e->block, ps, &o, err);
    pl_free(frozen);
    return st;
}

// Sets the unroll's options of a block drafter.
static void block_options(pl_unroll_options *o, const eagle *e) {
    const pl_train_recipe *tr = pl_train_recipe_of(e->r);
    int64_t                most = tr->train.anchors;
    o->steps = o->learn_steps = e->model->drafts;
    o->anchors = most > 0                    ? most
                 : e->model->kind->own_heads ? o->capacity
                                             : (o->capacity + e->model->block - 1) / e->model->block;
    o->seed = (uint64_t)pl_generate_recipe_of(e->r)->seed;
    o->pace = tr->train.draft_weights == PL_WEIGHTS_PACE ? tr->train.pace_alpha : 0;
}

static pl_status create_unroll(eagle *e, const pl_env *env, pl_err *err) {
    const pl_recipe          *r = e->r;
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    bool                      regress = e->model->kind->predicts_features;
    int                       learn = (int)tr->train.unroll, look = (int)tr->train.eval_steps;
    pl_unroll_options         o = {.capacity = tr->train.slot_rows,
                                   .learn_steps = learn > 0 ? learn
                                                  : regress ? 1
                                                            : 5,
                                   .step_decay = tr->train.step_decay,
                                   .token_weight = regress ? tr->train.token_weight : 1,
                                   .feature_weight = tr->train.feature_weight,
                                   .confidence_weight = tr->train.confidence_weight,
                                   .selector_weight = tr->train.selector_weight};
    o.objective = (pl_objective)tr->train.objective;
    o.recompute = tr->train.recompute;
    o.supervised = tr->train.rows == PL_ROWS_SUPERVISED && !pl_backbone_in_blocks(e->model->kind);
    o.learn_rows = tr->train.learn_rows;
    o.unmasked = !tr->train.masked_teacher;
    o.all_rows = tr->train.masked_rows == PL_MASKED_ALL;
    o.js_beta = tr->train.js_beta;
    o.lk_decay = tr->train.lk_decay;
    o.teacher_cap = e->teacher.model.config.final_softcap;
    o.top_k = (int)tr->train.top_k;
    o.top_weight = tr->train.top_weight;
    o.steps = look > 0 ? look : 4;
    o.selector_objective = (pl_objective)tr->train.selector_objective;
    for (int i = 0; pl_loss_at(i); i++)
        o.own[i] = pl_loss_at(i)->keys ? pl_recipe_struct(r, pl_loss_at(i)->keys) : NULL;
    if (o.steps < o.learn_steps) o.steps = o.learn_steps;
    if (e->model->kind->ahead) {
        o.steps = o.learn_steps = e->model->drafts;
        o.seed = (uint64_t)gen->seed;
        o.depth_ratio = tr->train.depth_ratio;
        o.depth_floor = tr->train.depth_floor;
    }
    if (pl_backbone_in_blocks(e->model->kind)) block_options(&o, e);
    e->noise = (pl_feature_noise){.width = regress ? tr->train.noise : 0, .seed = (uint64_t)gen->seed};
    return pl_unroll_create(&e->u, e->model, e->teacher.head, &o, env->backend, env->pool, err);
}

static pl_status prepare(pl_task *t, const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    eagle                    *e = (eagle *)t;
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    char                      recipe[17], start_id[17];
    e->r = r;
    PL_TRY(pl_recipe_require(r, &gen->target.path, err));
    PL_TRY(pl_recipe_hash(r, PL_STAGE_DRAFTER, recipe, err));
    PL_TRY(pl_start_identity(start_id, r, err));
    e->dtype = tr->train.dtype == PL_TRAIN_BF16 ? PL_BF16 : PL_F32;
    e->eval_rows = tr->train.eval_tokens;
    PL_TRY(pl_sources_teacher(&e->teacher, r, env, err));
    PL_TRY(init_model(e, out_dir, env, err));
    PL_TRY(create_block(e, env, err));
    PL_TRY(pl_drafter_sources(&e->train, &e->held, r, out_dir, env, &e->teacher, e->model->tap, e->model->n_taps, err));
    pl_start start = {.r = r, .model = e->model, .block = &e->block, .teacher = &e->teacher, .source = e->train};
    PL_TRY(pl_start_weights(&start, env, err));
    int64_t look = e->eval_rows + tr->train.slot_rows; // the last slot may exceed eval_rows
    PL_TRY(pl_decoded_fetch(e->held, look, tr->train.slot_rows, (int)tr->train.eval_prompts, err));
    PL_TRY(create_unroll(e, env, err));
    e->task.name = pl_backbone_name(e->model);
    e->task.block = &e->block;
    if (!pl_backbone_in_blocks(e->model->kind)) e->task.supervised = &e->u.rows.opt.supervised;
    e->task.cursor = e->cursor;
    e->task.n_cursor = 2;
    e->task.begin = begin;
    if (e->u.opt.learn_rows == 0) e->task.tape = &e->u.tape; // else a slot may go backward several times
    e->task.slot = slot;
    e->task.skip = skip;
    e->task.place = place;
    e->task.report = report;
    e->task.save_model = save_model;
    if (e->held) e->task.evaluate = evaluate;
    e->env = env;
    e->out_dir = out_dir;
    const pl_hf_config *of = &e->teacher.model.config;
    e->decodes = tr->train.eval_prompts > 0 && !of->foreign && pl_llama_computable(of, env->backend, NULL) == PL_OK;
    if (tr->train.eval_prompts > 0 && !e->decodes)
        pl_log("%s is not computed here: held-out prompts are not decoded (train.eval_prompts)",
               e->teacher.model.config.architecture);
    char vocabulary[32] = "";
    if (e->model->head.d2t)
        snprintf(vocabulary, sizeof vocabulary, " vocab %016llx",
                 (unsigned long long)pl_hash(e->model->head.d2t, (size_t)e->model->head.vocab * sizeof(int32_t)));
    snprintf(e->task.identity, sizeof e->task.identity, "%s recipe %s target %s data %s%s%s%s", e->task.name, recipe,
             e->teacher.model.fingerprint, e->train->identity, vocabulary, *start_id ? " start " : "", start_id);
    char blocks[64] = "";
    if (e->u.opt.anchors > 0) snprintf(blocks, sizeof blocks, " behind %lld rows a slot", (long long)e->u.opt.anchors);
    pl_log("%s: %.2f M parameters, %s head, %d %s%s, %.0f MB of activations", e->task.name,
           (double)pl_params_count(&e->model->params) / 1e6,
           e->model->head.shared ? "the target's" : e->model->head.kind->name, e->u.opt.learn_steps,
           e->model->kind->draft ? "drafts at once" : "steps of unroll", blocks, (double)e->u.ctx.frame.size / 1e6);
    return PL_OK;
}

static void destroy(pl_task *t) {
    eagle *e = (eagle *)t;
    pl_decoded_fini(&e->documents);
    pl_decoded_fini(&e->served);
    if (e->borrowed) e->target.model = (pl_llama){0};
    pl_target_close(&e->target);
    if (e->held) e->held->destroy(e->held);
    if (e->train) e->train->destroy(e->train); // after held, which may read from it
    pl_unroll_destroy(&e->u);
    pl_param_block_destroy(&e->block);
    pl_backbone_destroy(e->model);
    pl_teacher_close(&e->teacher);
}

const pl_training pl_training_drafter = {sizeof(eagle), prepare, destroy};
