#include "train/eagle.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "train/keys.h"
#include "train/lowrank.h"
#include "train/source_online.h"
#include "train/teacher.h"
#include "train/trainer.h"
#include "train/unroll.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct eagle {
    pl_task            task;
    const pl_recipe   *r;
    pl_teacher         teacher;
    pl_eagle3          model;
    pl_param_block     block;
    pl_unroll          u;
    pl_feature_source *train, *held; // held NULL: no evaluation
    int64_t            cursor[2];    // next document, its next row
    int64_t            eval_rows;
    pl_dtype           dtype; // of the checkpoint
} eagle;

// A slot's own sums: for each step of the unroll the counted rows, their loss, how many agree with the target.
enum { SUM_COUNT = PL_SUM_OWN, SUM_LOSS = SUM_COUNT + PL_MAX_UNROLL, SUM_AGREE = SUM_LOSS + PL_MAX_UNROLL };
_Static_assert(SUM_AGREE + PL_MAX_UNROLL <= PL_SLOT_SUMS, "a slot's scalars");

// ---- the task

static pl_status slot(pl_task *t, int64_t step, int number, double *sums, pl_err *err) {
    eagle         *e = (eagle *)t;
    pl_unroll_sums s = {0};
    (void)step, (void)number; // the cursor says where the data goes on
    PL_TRY(pl_pack_fill(&e->u.pack, e->train, -1, e->cursor, err));
    PL_TRY(pl_unroll_learn(&e->u, err));
    pl_unroll_add(&e->u, false, &s);
    sums[PL_SUM_LOSS] = s.loss;
    sums[PL_SUM_WEIGHT] = s.weight;
    sums[PL_SUM_TOKENS] = (double)e->u.pack.rows;
    for (int k = 0; k < e->u.pack.steps; k++) {
        sums[SUM_COUNT + k] = s.count[k];
        sums[SUM_LOSS + k] = s.step_loss[k];
        sums[SUM_AGREE + k] = s.agree[k];
    }
    return PL_OK;
}

static void put_steps(pl_metrics *m, const char *key, const double *sum, const double *count, int steps) {
    double mean[PL_MAX_UNROLL];
    for (int k = 0; k < steps; k++)
        mean[k] = count[k] > 0 ? sum[k] / count[k] : 0;
    pl_metrics_nums(m, key, mean, steps);
}

static void report(pl_task *t, const double *sums, pl_metrics *m) {
    int steps = ((eagle *)t)->u.pack.steps;
    pl_metrics_num(m, "rows_counted", sums[SUM_COUNT]);
    put_steps(m, "step_loss", sums + SUM_LOSS, sums + SUM_COUNT, steps);
    put_steps(m, "step_accuracy", sums + SUM_AGREE, sums + SUM_COUNT, steps);
}

static pl_status evaluate(pl_task *t, int64_t step, pl_metrics *m, double *score, pl_err *err) {
    eagle         *e = (eagle *)t;
    pl_unroll_sums s = {0};
    int64_t        at[2] = {0}, rows = 0;
    int            steps = e->u.pack.steps;
    while (at[0] < e->held->docs && rows < e->eval_rows) {
        PL_TRY(pl_pack_fill(&e->u.pack, e->held, e->held->docs, at, err));
        PL_TRY(pl_unroll_score(&e->u, err));
        pl_unroll_add(&e->u, true, &s);
        rows += e->u.pack.rows;
    }
    double greedy = pl_unroll_greedy_length(&s, steps), sampled = pl_unroll_sampled_length(&s, steps);
    double loss = s.weight > 0 ? s.loss / s.weight : 0;
    pl_metrics_num(m, "eval_loss", loss);
    pl_metrics_num(m, "eval_acceptance_length", greedy);
    pl_metrics_num(m, "eval_acceptance_length_sampled", sampled);
    put_steps(m, "eval_step_loss", s.step_loss, s.count, steps);
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
    pl_status st = pl_eagle3_write(&e->model, dir, view.data, e->dtype, err);
    pl_param_view_fini(&view);
    return st;
}

// ---- preparation

static pl_status init_model(eagle *e, const pl_env *env, pl_err *err) {
    const pl_recipe  *r = e->r;
    int               n_taps;
    const int64_t    *taps = pl_recipe_ints(r, "drafter.taps", &n_taps);
    pl_eagle3_options o = {.head_kind = pl_recipe_str(r, "drafter.head.kind"),
                           .head_rank = pl_recipe_int(r, "drafter.head.rank"),
                           .inter = (int)pl_recipe_int(r, "drafter.intermediate")};
    if (n_taps > PL_MAX_TAPS)
        return pl_recipe_fail(r, "drafter.taps", err, "%d layers, at most %d", n_taps, PL_MAX_TAPS);
    for (o.n_taps = 0; o.n_taps < n_taps; o.n_taps++)
        o.tap[o.n_taps] = (int)taps[o.n_taps];
    return pl_eagle3_init(&e->model, &e->teacher.model, &o, env->backend->real, err);
}

static pl_status create_block(eagle *e, const pl_env *env, pl_err *err) {
    pl_params *ps = &e->model.params;
    bool      *frozen = pl_calloc((size_t)ps->n, sizeof *frozen);
    if (!frozen) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    if (pl_recipe_bool(e->r, "drafter.head.frozen"))
        for (int i = 0; i < ps->n; i++)
            frozen[i] = ps->p[i].tensor == &e->model.head.out || ps->p[i].tensor == &e->model.head.down;
    pl_param_block_options o = {.real = env->backend->real,
                                .round_to = e->dtype,
                                .frozen = frozen,
                                .decay_embed = pl_recipe_bool(e->r, "train.decay_embeddings")};
    pl_status              st = pl_param_block_create(&e->block, ps, &o, err);
    pl_free(frozen);
    return st;
}

static void set_param(eagle *e, const pl_tensor *which, const float *values) {
    for (int i = 0; i < e->model.params.n; i++)
        if (e->model.params.p[i].tensor == which) pl_param_block_set(&e->block, i, values);
}

// The rows of the target's output matrix that the head has.
static pl_status head_from_target(eagle *e, pl_err *err) {
    const pl_head   *h = &e->model.head;
    const pl_tensor *from = &e->teacher.head;
    int64_t          d = from->dim[1];
    float           *rows = pl_malloc(pl_size_mul((size_t)h->vocab, (size_t)d, sizeof *rows));
    if (!rows) return pl_fail(err, PL_E_MEMORY, "training: out of memory for the head");
    for (int64_t j = 0; j < h->vocab; j++) {
        int64_t id = h->d2t ? h->d2t[j] : j;
        pl_to_f32(rows + j * d, (const uint8_t *)from->data + (size_t)(id * d) * pl_dtype_size(from->dtype),
                  from->dtype, (size_t)d);
    }
    set_param(e, &h->out, rows);
    pl_free(rows);
    return PL_OK;
}

static pl_status lowrank_from_target(eagle *e, const pl_env *env, pl_err *err) {
    const pl_head *h = &e->model.head;
    float         *up = pl_malloc(pl_size_mul((size_t)h->vocab, (size_t)h->rank, sizeof *up));
    float         *down = pl_malloc(pl_size_mul((size_t)h->rank, (size_t)h->d, sizeof *down));
    pl_status      st = up && down ? PL_OK : pl_fail(err, PL_E_MEMORY, "training: out of memory for the head");
    if (st == PL_OK)
        st = pl_lowrank_factors(up, down, &e->teacher.head, h->d2t, h->vocab, h->rank,
                                (uint64_t)pl_recipe_int(e->r, "seed"), env->backend, env->pool, err);
    if (st == PL_OK) {
        set_param(e, &h->out, up);
        set_param(e, &h->down, down);
    }
    pl_free(up);
    pl_free(down);
    return st;
}

static pl_status init_weights(eagle *e, const pl_env *env, pl_err *err) {
    enum { AUTO, TARGET, RANDOM };
    const pl_head *h = &e->model.head;
    int            init = pl_recipe_choice(e->r, "drafter.head.init");
    bool           fits = h->d == e->teacher.head.dim[1];
    pl_param_block_init(&e->block, (uint64_t)pl_recipe_int(e->r, "seed"));
    if (init == RANDOM) return PL_OK;
    if (fits && h->kind == &pl_head_full) return head_from_target(e, err);
    if (fits && h->kind == &pl_head_lowrank) return lowrank_from_target(e, env, err);
    if (init == AUTO) return PL_OK;
    return pl_recipe_fail(e->r, "drafter.head.init", err, "a head of this kind or width cannot start from the target");
}

static int param_index(const eagle *e, const pl_tensor *t) {
    int i = 0;
    while (e->model.params.p[i].tensor != t)
        i++;
    return i;
}

// The final norm starts as the target's, whose output its head is made for.
static pl_status norm_from_target(eagle *e, pl_err *err) {
    const pl_params *ps = &e->teacher.model.params;
    int              i = 0;
    while (ps->p[i].tensor != &e->teacher.model.norm)
        i++;
    pl_weight_spec spec = ps->p[i].spec;
    spec.part[0].name = ps->p[i].name[0];
    float *gain = pl_malloc((size_t)spec.rows * sizeof *gain);
    if (!gain) return pl_fail(err, PL_E_MEMORY, "training: out of memory for a norm");
    pl_status st = pl_weight_read_f32(e->teacher.src, &spec, gain, err);
    if (st == PL_OK) set_param(e, &e->model.norm, gain);
    pl_free(gain);
    return st;
}

// Taps are raw residual streams, whose size differs between layers and models by orders of magnitude (some grow past
// 30); the drafter's one layer adds to what fc makes of them. fc starts so that each tap arrives with unit variance, or
// the layer would spend its training outgrowing the features.
static pl_status scale_fc(eagle *e, pl_err *err) {
    pl_feature_doc doc;
    int64_t        d = e->model.d_target, width = d * e->model.n_taps, rows = e->model.shape.d;
    int            fc = param_index(e, &e->model.fc);
    PL_TRY(e->train->get(e->train, 0, &doc, err));
    float *w = pl_malloc(pl_size_mul((size_t)rows, (size_t)width, sizeof *w));
    if (!w) return pl_fail(err, PL_E_MEMORY, "training: out of memory for fc");
    for (int i = 0; i < e->model.n_taps; i++) {
        double sum = 0;
        for (int64_t t = 0; t < doc.n; t++)
            for (int64_t k = 0; k < d; k++) {
                double x = (double)pl_bf16_to_f32(doc.features[t * width + i * d + k]);
                sum += x * x;
            }
        double rms = sqrt(sum / (double)(doc.n * d));
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < d; k++) {
                int64_t at = r * width + i * d + k;
                double  v = e->block.real == PL_F64 ? ((double *)e->block.w)[e->block.at[fc] + at]
                                                    : (double)((float *)e->block.w)[e->block.at[fc] + at];
                w[at] = (float)(rms > 0 ? v / rms : v);
            }
    }
    set_param(e, &e->model.fc, w);
    pl_free(w);
    return PL_OK;
}

static pl_status open_sources(eagle *e, const char *out_dir, const pl_env *env, pl_err *err) {
    const pl_recipe *r = e->r;
    int64_t          every = pl_recipe_int(r, "train.holdout");
    if (every == 1) return pl_recipe_fail(r, "train.holdout", err, "1 leaves nothing to train on; use 2 or more");
    if (strcmp(pl_recipe_str(r, "data.mode"), "online") == 0)
        return pl_online_sources(&e->train, &e->held, r, env, e->model.tap, e->model.n_taps, every, err);
    pl_dataset_attrs want = {.target_fingerprint = e->teacher.model.fingerprint,
                             .vocab_size = (int32_t)e->teacher.model.vocab,
                             .d = (int32_t)e->model.d_target,
                             .A = e->model.n_taps};
    for (int i = 0; i < want.A; i++)
        want.tap_layer_ids[i] = e->model.tap[i];
    const char *given = pl_recipe_str(r, "data.dataset");
    char       *dir = given ? pl_strdup(given) : pl_path_join(out_dir, "dataset");
    if (!dir) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_status st = pl_offline_sources(&e->train, &e->held, dir, &want, (uint64_t)pl_recipe_int(r, "seed"), every, err);
    pl_free(dir);
    return st;
}

static pl_status prepare(eagle *e, const char *out_dir, const pl_env *env, pl_err *err) {
    const pl_recipe *r = e->r;
    char             recipe[17];
    int64_t          slots = pl_recipe_int(r, "train.slots");
    PL_TRY(pl_recipe_require(r, "target.path", err));
    PL_TRY(pl_recipe_hash(r, PL_STAGE_DRAFTER, recipe, err));
    e->dtype = pl_recipe_choice(r, "train.dtype") == 0 ? PL_BF16 : PL_F32;
    e->eval_rows = pl_recipe_int(r, "train.eval_tokens");
    pl_dtype held = strcmp(pl_recipe_str(r, "target.dtype"), "fp32") == 0 ? PL_F32 : PL_BF16;
    PL_TRY(pl_teacher_open(&e->teacher, pl_recipe_str(r, "target.path"), held, err));
    PL_TRY(init_model(e, env, err));
    PL_TRY(create_block(e, env, err));
    PL_TRY(init_weights(e, env, err));
    PL_TRY(norm_from_target(e, err));
    PL_TRY(open_sources(e, out_dir, env, err));
    PL_TRY(scale_fc(e, err));
    PL_TRY(pl_unroll_create(&e->u, &e->model, e->teacher.head, pl_recipe_int(r, "train.slot_rows"),
                            (int)pl_recipe_int(r, "train.unroll"), pl_recipe_real(r, "train.step_decay"), env->backend,
                            env->pool, err));

    e->task.name = "eagle3";
    e->task.block = &e->block;
    e->task.backend = env->backend;
    e->task.pool = env->pool;
    e->task.n_slots = slots > 0 ? (int)slots : 1;
    e->task.cursor = e->cursor;
    e->task.n_cursor = 2;
    e->task.slot = slot;
    e->task.report = report;
    e->task.save_model = save_model;
    if (e->held) e->task.evaluate = evaluate;
    snprintf(e->task.identity, sizeof e->task.identity, "eagle3 recipe %s target %s data %s", recipe,
             e->teacher.model.fingerprint, e->train->identity);
    pl_log("eagle3: %.2f M parameters, %s head, %d steps of unroll, %.0f MB of activations",
           (double)pl_params_count(&e->model.params) / 1e6, e->model.head.kind->name, e->u.pack.steps,
           (double)e->u.ctx.frame.size / 1e6);
    return PL_OK;
}

static void destroy(eagle *e) {
    if (e->train) e->train->destroy(e->train);
    if (e->held) e->held->destroy(e->held);
    pl_unroll_destroy(&e->u);
    pl_param_block_destroy(&e->block);
    pl_eagle3_fini(&e->model);
    pl_teacher_close(&e->teacher);
    pl_free(e);
}

pl_status pl_eagle_train(const pl_recipe *r, const char *out_dir, const pl_env *env, int64_t stop_after, pl_err *err) {
    pl_trainer_options o;
    PL_TRY(pl_train_options_read(&o, r, out_dir, err));
    o.stop_after = stop_after;
    eagle *e = pl_calloc(1, sizeof *e);
    if (!e) return pl_fail(err, PL_E_MEMORY, "training: out of memory");
    e->r = r;
    pl_status st = prepare(e, out_dir, env, err);
    if (st == PL_OK) st = pl_trainer_run(&e->task, &o, err);
    destroy(e);
    return st;
}
