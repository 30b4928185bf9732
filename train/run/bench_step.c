#include "train/run/bench_step.h"

#include "infer/bench/bench.h"
#include "infer/bench/shapes.h"
#include "infer/model/target.h"
#include "kernels/base/clock.h"
#include "kernels/base/json.h"
#include "kernels/base/rng.h"
#include "kernels/profile.h"
#include "train/loop/trainer.h"
#include "train/source/teacher.h"
#include "train/task/lm.h"
#include "train/task/unroll.h"

#include <stdlib.h>
#include <string.h>

#define LEARNING_RATE 1e-5 // small: all steps learn from the same rows
#define STEP_DECAY 0.8

typedef struct kept { // profile of the steps of one case
    pl_profile  profile;
    const char *name, *rows; // rows: way's
    pl_dtype    dtype;
    double      seconds; // of a profiled step
    int         steps;
} kept;

typedef struct trial {
    char            name[32];
    const char     *rows; // way's
    pl_dtype        dtype;
    double          base; // seconds of a step without the change
    pl_sample_stats saved;
} trial;

// The most results: target, and drafter with all and with supervised rows, for each of two weight types; trials.
enum { CASES = 6, TRIALS = 64 };
typedef struct rest {
    kept *kept[CASES];
    trial tried[TRIALS];
    int   n, n_tried;
} rest;

typedef struct bench {
    const pl_bench_step *s;
    rest                *rest;
    const pl_env        *env;
    pl_dtype             dtype;
    pl_teacher           teacher;
    pl_params            random; // embedding and output matrix of a teacher by shape
    pl_hf_head           head;
    int64_t              drafted; // rows of the head
    int32_t             *ids;     // [seq_len + 1]
} bench;

// One case. The task is the first member: its functions cast it to the case.
typedef struct target_case {
    pl_task task;
    pl_lm   lm;
} target_case;

typedef struct drafter_case {
    pl_task        task;
    pl_backbone   *model;
    pl_param_block block;
    pl_unroll      u;
} drafter_case;

// ---- flops: each product once forward and, where both operands learn, twice backward ----

static double matrices(const pl_params *ps) {
    double n = 0;
    for (int i = 0; i < ps->n; i++)
        if (ps->p[i].kind == PL_PARAM_MATRIX) n += (double)ps->p[i].spec.rows * (double)ps->p[i].spec.cols;
    return n;
}

// Returns the flops of one layer's attention, forward and backward, whose rows attend to `seen` keys in all.
static double attention_flops(const pl_layer_shape *s, double seen) {
    return 3 * 4.0 * s->nh * s->hd * seen;
}

static double causal(const bench *b) {
    double n = (double)b->s->seq_len;
    return (double)b->s->batch * n * (n + 1) / 2;
}

static double target_flops(const bench *b, const pl_llama *m) {
    double rows = (double)(b->s->batch * b->s->seq_len), weights = matrices(&m->params);
    if (m->config.tie_word_embeddings) weights += (double)m->vocab * (double)m->shape.d;
    return 6 * weights * rows + m->n_layers * attention_flops(&m->shape, causal(b));
}

// Counts of a pack: all rows, rows that some step learns from (running), rows that teach, rows that each step learns
// from, and keys that all rows and running rows see.
typedef struct row_counts {
    double all, running, teachers, learned[PL_MAX_UNROLL], seen, running_seen;
} row_counts;

static row_counts count_rows(const pl_pack *p) {
    row_counts c = {.all = (double)p->rows};
    for (int64_t row = 0; row < p->rows; row++) {
        bool   runs = false, teaches = false;
        double keys = (double)(row - p->lo[row] + 1);
        for (int k = 0; k < p->steps; k++) {
            bool learns = p->weight[k * p->rows + row] > 0;
            c.learned[k] += learns;
            runs |= learns;
            teaches |= row > k && p->teacher_row[k * p->rows + row - 1 - k] == row;
        }
        c.seen += keys;
        c.running += runs;
        c.running_seen += runs ? keys : 0;
        c.teachers += teaches;
    }
    return c;
}

// Returns the flops of a step in which all rows run, or (supervised) those that a step learns from, of the others only
// fc, keys and values of depth 0. fc's inputs are constants and have no gradient; the teacher's logits have no
// backward. On a CPU the head takes the rows that learn alone.
static double drafter_flops(const bench *b, const drafter_case *d, bool supervised) {
    const pl_backbone    *e = d->model;
    const pl_layer_shape *s = &e->shape;
    row_counts            c = count_rows(&d->u.pack);
    double                fc = (double)pl_tensor_count(e->kind->fuse_only(e)), flops = 4 * fc * c.all;
    double                head = 0, keys = 2.0 * s->nkv * s->hd * (double)s->d_attn;
    double                n = supervised ? c.running : c.all, seen = supervised ? c.running_seen : c.seen;
    bool                  host = !b->env->backend->memory;
    for (int i = e->head_param; i < e->params.n; i++)
        if (e->params.p[i].kind == PL_PARAM_MATRIX)
            head += (double)e->params.p[i].spec.rows * (double)e->params.p[i].spec.cols;
    double layer = matrices(&e->params) - fc - head;
    for (int k = 0; k < b->s->unroll; k++) {
        double keyed = k == 0 ? c.all : n;
        flops += 6 * ((layer - keys) * n + keys * keyed + head * (host ? c.learned[k] : n));
        flops += attention_flops(s, seen + k * n);
    }
    // The teacher's logits at the draft ids.
    double teacher = (double)b->drafted * (double)pl_tensor_cols(&b->teacher.head);
    return flops + 2 * teacher * (host ? c.teachers : c.all);
}

// ---- the target ----

static pl_status target_slot(pl_task *t, int64_t step, int slot, double *sums, pl_err *err) {
    pl_lm     *lm = &((target_case *)t)->lm;
    pl_lm_sums got;
    (void)step, (void)slot;
    PL_TRY(pl_lm_learn(lm, &got, err));
    sums[PL_SUM_LOSS] = got.loss;
    sums[PL_SUM_WEIGHT] = (double)got.count;
    sums[PL_SUM_TOKENS] = (double)lm->rows;
    return PL_OK;
}

static pl_status make_target(target_case *c, const bench *b, pl_err *err) {
    const pl_bench_step *s = b->s;
    pl_hf_config         config = b->teacher.model.config;
    pl_lm_options        o = {.backend = b->env->backend, .pool = b->env->pool, .round_to = b->dtype};
    o.capacity = s->batch * s->seq_len;
    PL_TRY(pl_lm_create(&c->lm, &config, &o, err));
    PL_TRY(pl_param_block_init(&c->lm.block, b->env->seed, err));
    for (int64_t i = 0; i < s->batch; i++)
        pl_lm_add(&c->lm, b->ids, NULL, s->seq_len);
    c->task.name = "target";
    c->task.block = &c->lm.block;
    c->task.slot = target_slot;
    return PL_OK;
}

// ---- the drafter ----

static pl_status drafter_slot(pl_task *t, int64_t step, int slot, double *sums, pl_err *err) {
    pl_unroll     *u = &((drafter_case *)t)->u;
    pl_unroll_sums got = {0};
    (void)step, (void)slot;
    PL_TRY(pl_unroll_learn(u, err));
    pl_unroll_add(u, false, &got);
    sums[PL_SUM_LOSS] = got.loss;
    sums[PL_SUM_WEIGHT] = got.weight;
    sums[PL_SUM_TOKENS] = (double)u->pack.rows;
    return PL_OK;
}

static void fill_bf16(uint16_t *x, int64_t n, pl_rng r) {
    for (int64_t i = 0; i < n; i++)
        x[i] = pl_f32_to_bf16(pl_rng_normal(r, (uint64_t)i));
}

// Adds `batch` times a document with the bench's tokens and random features.
static pl_status fill_pack(pl_pack *p, const bench *b, pl_err *err) {
    int64_t          n = b->s->seq_len;
    pl_columns       doc = {.n = n};
    pl_columns_shape shape = {.d = p->d, .taps = p->from_last ? 0 : p->width / p->d};
    pl_status        st = pl_columns_reserve(&doc, &shape, n, err);
    if (st == PL_OK) {
        memcpy(doc.tokens, b->ids, (size_t)n * sizeof *doc.tokens);
        memcpy(doc.argmax, b->ids + 1, (size_t)n * sizeof *doc.argmax);
        int64_t prompt = n - (int64_t)(b->s->supervised * (double)n);
        memset(doc.loss_mask, 0, (size_t)prompt);
        memset(doc.loss_mask + prompt, 1, (size_t)(n - prompt));
        if (doc.features) fill_bf16(doc.features, n * p->width, pl_rng_make(b->env->seed, PL_STREAM_NOISE, 1));
        fill_bf16(doc.last_hidden, n * p->d, pl_rng_make(b->env->seed, PL_STREAM_NOISE, 2));
        pl_pack_clear(p);
        for (int64_t i = 0; i < b->s->batch; i++)
            pl_pack_add(p, &doc, 0, n);
        pl_pack_close(p);
    }
    pl_columns_free(&doc);
    return st;
}

// Reads --head: "trimmed:ROWS", an example's name ("lowrank-d/8") or settings ("lowrank:rank=64").
static pl_status read_head(bench *b, pl_err *err) {
    static const char trimmed[] = "trimmed:";
    const pl_llama   *target = &b->teacher.model;
    const char       *text = b->s->head;
    pl_head_shape     shape = {.vocab = target->vocab, .d = target->shape.d};
    pl_head_example   e;
    pl_err            why;
    char             *end = NULL;
    b->head = pl_hf_head_make("full", 0);
    b->drafted = target->vocab;
    if (strncmp(text, trimmed, sizeof trimmed - 1) == 0) {
        const char *number = text + sizeof trimmed - 1;
        b->drafted = *number >= '0' && *number <= '9' ? strtol(number, &end, 10) : 0;
        if (b->drafted >= 1 && b->drafted <= target->vocab && !*end) return PL_OK;
        return pl_fail(err, PL_E_USAGE, "--head %s: expected trimmed:ROWS, at most %lld", text,
                       (long long)target->vocab);
    }
    for (int at = 0; pl_head_next_example(&e, &at, &shape, ~0u);)
        if (strcmp(e.name, text) == 0) {
            b->head = e.spec;
            b->drafted = e.rows;
            return PL_OK;
        }
    const pl_head_kind *kind = NULL;
    if (pl_hf_head_parse(&b->head, text, &why) == PL_OK) kind = pl_head_find(b->head.kind, &why);
    if (kind && kind->routed)
        return pl_fail(err, PL_E_USAGE, "--head %s: a routed head's steps train its router alone; time another", text);
    pl_head tried = {0};
    bool    ok = kind && pl_head_init(&tried, &b->head, target->shape.d, target->vocab, &why) == PL_OK;
    pl_head_fini(&tried);
    return ok ? PL_OK : pl_fail(err, PL_E_USAGE, "--head %s: %s", text, why.msg);
}

// Sets initial weights: draws a million for each matrix and repeats them, so that a model of billions starts in
// seconds.
static pl_status fill_block(pl_param_block *b, uint64_t seed, pl_err *err) {
    enum { TILE = 1 << 20 };
    pl_status st = PL_OK;
    for (int i = 0; i < b->params->n && st == PL_OK; i++) {
        const pl_param *p = &b->params->p[i];
        int64_t         n = pl_param_block_count(b, i);
        float          *values = pl_malloc(pl_size_mul((size_t)n, sizeof *values, 1));
        pl_rng          rng = pl_rng_make(seed, PL_STREAM_INIT, (uint64_t)i);
        if (!values) return pl_fail(err, PL_E_MEMORY, "bench: out of memory");
        if (p->init_std == 0) pl_param_block_draw(b, i, seed, values);
        for (int64_t j = 0; j < n && p->init_std > 0; j++)
            values[j] = j < TILE ? (float)(p->init_std * (double)pl_rng_normal(rng, (uint64_t)j)) : values[j - TILE];
        st = pl_param_block_set(b, i, values, err);
        pl_free(values);
    }
    return st;
}

static pl_status make_drafter(drafter_case *c, const bench *b, pl_err *err) {
    const pl_bench_step *s = b->s;
    pl_backbone_options  o = {.head = b->head};
    int32_t             *d2t = NULL;
    pl_unroll_options    uo = {
           .capacity = s->batch * s->seq_len, .steps = s->unroll, .step_decay = STEP_DECAY, .token_weight = 1};
    uo.supervised = s->supervised < 1;
    pl_param_block_options bo = {.backend = b->env->backend, .round_to = b->dtype};
    if (b->drafted < b->teacher.model.vocab) {
        o.draft_vocab = b->drafted;
        o.d2t = d2t = pl_malloc((size_t)b->drafted * sizeof *d2t);
        if (!d2t) return pl_fail(err, PL_E_MEMORY, "bench: out of memory");
        for (int64_t i = 0; i < b->drafted; i++)
            d2t[i] = (int32_t)i;
    }
    pl_status st = pl_backbone_create(&c->model, pl_backbone_at(0), &b->teacher.model, &o, b->env->backend, err);
    pl_free(d2t);
    PL_TRY(st);
    PL_TRY(pl_param_block_create(&c->block, &c->model->params, &bo, err));
    PL_TRY(fill_block(&c->block, b->env->seed, err));
    uo.teacher_cap = b->teacher.model.config.final_softcap;
    PL_TRY(pl_unroll_create(&c->u, c->model, b->teacher.head, &uo, b->env->backend, b->env->pool, err));
    PL_TRY(fill_pack(&c->u.pack, b, err));
    c->task.name = "eagle3";
    c->task.block = &c->block;
    c->task.slot = drafter_slot;
    return PL_OK;
}

// ---- timing ----

// A way of running a task, with its operations and its times.
typedef struct way {
    const char *head; // the value of --head; NULL: none
    const char *rows; // "all", "supervised"; NULL: no choice
    double      flops;
    double     *seconds, *floor; // [repeats]
} way;

// Writes one case.
static void write(pl_json_out *o, const pl_task *t, const bench *b, const way *w) {
    const char     *head = w->head;
    const double   *seconds = w->seconds, *floor = w->floor, flops = w->flops;
    pl_sample_stats s = pl_stats(seconds, b->s->repeats);
    double          tokens = (double)(b->s->batch * b->s->seq_len);
    pl_json_out_object(o);
    pl_put_str(o, "name", t->name);
    if (head) pl_put_str(o, "head", head);
    pl_put_str(o, "weights", pl_weights_name(b->dtype));
    pl_put_int(o, "parameters", pl_params_count(t->block->params));
    pl_put_num(o, "tokens", tokens);
    pl_put_num(o, "tokens_per_second", tokens / s.median);
    pl_put_num(o, "seconds", s.median);
    pl_put_num(o, "p10", s.p10);
    pl_put_num(o, "p90", s.p90);
    pl_put_num(o, "flops", flops);
    pl_put_num(o, "flops_per_second", flops / s.median);
    if (head) pl_put_num(o, "supervised", b->s->supervised);
    if (w->rows) pl_put_str(o, "rows", w->rows);
    if (!b->env->backend->memory) // a device's peak is not known
        pl_bench_write_pairs(o, &(pl_bench_pairs){seconds, floor, b->s->repeats});
}

// ---- where the time goes ----

static int by_seconds(const void *x, const void *y) {
    const pl_profile_line *a = x, *b = y;
    return (a->seconds < b->seconds) - (a->seconds > b->seconds);
}

// Adds members to an open object: seconds of a profiled step, of its ops or launches, and of the device's idle time.
static void write_sums(pl_json_out *o, const kept *k) {
    double busy = 0, idle = 0;
    for (int i = 0; i < k->profile.n; i++)
        *(k->profile.line[i].idle ? &idle : &busy) += k->profile.line[i].seconds / k->steps;
    pl_put_num(o, "profiled_seconds", k->seconds);
    pl_put_num(o, "busy_seconds", busy);
    pl_put_num(o, "idle_seconds", idle);
    pl_put_int(o, "lines_lost", k->profile.lost);
}

static void write_launches(pl_json_out *o, kept *k) {
    pl_profile *p = &k->profile;
    qsort(p->line, (size_t)p->n, sizeof *p->line, by_seconds);
    for (int i = 0; i < p->n; i++) {
        const pl_profile_line *x = &p->line[i];
        pl_json_out_object(o);
        pl_put_str(o, "step", k->name);
        if (k->rows) pl_put_str(o, "rows", k->rows);
        pl_put_str(o, "weights", pl_weights_name(k->dtype));
        pl_put_str(o, "phase", x->phase);
        pl_put_str(o, "op", x->op);
        pl_put_str(o, "what", x->what);
        pl_put_num(o, "n", (double)x->n / k->steps);
        pl_put_num(o, "seconds", x->seconds / k->steps);
        pl_put_num(o, "share", x->seconds / k->steps / k->seconds);
        if (x->flops > 0) pl_put_num(o, "flops_per_second", x->flops / x->seconds);
        if (x->bytes > 0) pl_put_num(o, "bytes_per_second", x->bytes / x->seconds);
        pl_json_out_close(o, '}');
    }
}

static void write_rest(pl_json_out *o, const pl_bench_step *s, rest *r) {
    if (s->launches) {
        pl_put_array(o, "launches");
        for (int i = 0; i < r->n; i++)
            write_launches(o, r->kept[i]);
        pl_json_out_close(o, ']');
    }
    if (!s->trials) return;
    pl_put_array(o, "trials");
    for (int i = 0; i < r->n_tried; i++) {
        pl_json_out_object(o);
        pl_put_str(o, "name", r->tried[i].name);
        if (r->tried[i].rows) pl_put_str(o, "rows", r->tried[i].rows);
        pl_put_str(o, "weights", pl_weights_name(r->tried[i].dtype));
        pl_put_num(o, "base_seconds", r->tried[i].base);
        pl_put_num(o, "saved_seconds", r->tried[i].saved.median);
        pl_put_num(o, "saved_p10", r->tried[i].saved.p10);
        pl_put_num(o, "saved_p90", r->tried[i].saved.p90);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

typedef struct timed { // a task and its optimiser
    pl_task  *task;
    pl_reduce reduce;
    pl_optim  optim;
    int64_t   step; // steps so far
} timed;

static pl_status run_step(timed *t, double *seconds, pl_err *err) {
    pl_step_result r;
    PL_TRY(pl_trainer_step(t->task, &t->reduce, &t->optim, NULL, ++t->step, LEARNING_RATE, &r, err));
    *seconds = r.seconds;
    return PL_OK;
}

static pl_status profile_steps(pl_json_out *o, timed *t, const bench *b, const char *rows, pl_err *err) {
    kept  *k = pl_calloc(1, sizeof *k);
    double seconds = 0;
    if (!k) return pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    b->rest->kept[b->rest->n++] = k;
    *k = (kept){.name = t->task->name, .rows = rows, .dtype = b->dtype, .steps = b->s->repeats};
    pl_status st = PL_OK;
    pl_profile_begin(&k->profile);
    for (int i = 0; i < k->steps && st == PL_OK; i++, k->seconds += seconds / k->steps)
        st = run_step(t, &seconds, err);
    pl_profile_end();
    if (st == PL_OK) write_sums(o, k);
    return st;
}

// Runs steps with and without one change in turns; computes the saving over the pairs. saved, base: [repeats].
static pl_status try_change(trial *x, double *saved, double *base, timed *t, int repeats, pl_err *err) {
    for (int k = -1; k < repeats; k++) { // the first pair warms up
        double with = 0, without = 0;
        PL_TRY(pl_backend_cuda_try(x->name, err));
        pl_status st = run_step(t, &with, err);
        pl_backend_cuda_try(NULL, NULL);
        PL_TRY(st);
        PL_TRY(run_step(t, &without, err));
        if (k >= 0) saved[k] = without - with, base[k] = without;
    }
    x->saved = pl_stats(saved, repeats);
    x->base = pl_stats(base, repeats).median;
    return PL_OK;
}

static pl_status try_changes(timed *t, const bench *b, const char *rows, pl_err *err) {
    int       n = b->s->repeats;
    double   *saved = pl_malloc(2 * (size_t)n * sizeof *saved);
    pl_status st = saved ? PL_OK : pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    for (const char *at = b->s->trials; st == PL_OK && *at; at += strspn(at, ",")) {
        size_t length = strcspn(at, ",");
        trial  x = {.rows = rows, .dtype = b->dtype};
        snprintf(x.name, sizeof x.name, "%.*s", (int)length, at);
        at += length;
        if (b->rest->n_tried == TRIALS) st = pl_fail(err, PL_E_USAGE, "--try: at most %d names", TRIALS / 4);
        if (st == PL_OK) st = try_change(&x, saved, saved + n, t, n, err);
        if (st == PL_OK) b->rest->tried[b->rest->n_tried++] = x;
    }
    pl_free(saved);
    return st;
}

// Writes by how much rows per second rise if only supervised rows run, and by how much operations fall.
static void write_rise(pl_json_out *o, const way *w, int n, double *rise) {
    for (int k = 0; k < n; k++)
        rise[k] = w[0].seconds[k] / w[1].seconds[k];
    pl_sample_stats s = pl_stats(rise, n);
    pl_put_num(o, "rise", s.median);
    pl_put_num(o, "rise_p10", s.p10);
    pl_put_num(o, "rise_p90", s.p90);
    pl_put_num(o, "rise_of_operations", w[0].flops / w[1].flops);
}

// Times a task's `ways` (at most 2) in turns. rows: with two, whether only supervised rows run.
static pl_status time_task(pl_json_out *o, pl_task *task, const bench *b, way *w, int ways, bool *rows, pl_err *err) {
    pl_optim_options adam = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .clip = 1};
    timed            t = {.task = task};
    int              n = b->s->repeats;
    double          *room = pl_calloc(5 * (size_t)n, sizeof *room);
    bool             host = !b->env->backend->memory;
    pl_status        st = room ? PL_OK : pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    for (int i = 0; i < ways && room; i++) {
        w[i].seconds = room + 2 * i * n;
        w[i].floor = w[i].seconds + n;
    }
    task->backend = b->env->backend;
    task->pool = b->env->pool;
    task->n_slots = 1;
    if (st == PL_OK) st = pl_optim_init(&t.optim, task->backend, task->pool, task->block, &adam, err);
    if (st == PL_OK) st = pl_reduce_init(&t.reduce, 1, task->block, NULL, NULL, task->backend, err);
    for (int k = -ways; k < n * ways && st == PL_OK; k++) { // the first step of each warms up
        way   *of = &w[(k + ways) % ways];
        double before = pl_backend_peak_once(task->backend, b->dtype, task->pool), taken = 0;
        if (ways > 1) *rows = of == w + 1;
        st = run_step(&t, &taken, err);
        if (st != PL_OK || k < 0) continue;
        // A step is long: the peak is measured before and after it.
        of->seconds[k / ways] = taken;
        double peak = 0.5 * (before + pl_backend_peak_once(task->backend, b->dtype, task->pool));
        if (host) of->floor[k / ways] = of->flops / peak;
    }
    for (int i = 0; i < ways && st == PL_OK; i++) {
        if (ways > 1) *rows = i == 1;
        write(o, task, b, &w[i]);
        if (i == 1) write_rise(o, w, n, room + 4 * n);
        if (b->s->launches) st = profile_steps(o, &t, b, w[i].rows, err);
        if (st == PL_OK && w[i].head && b->s->trials) st = try_changes(&t, b, w[i].rows, err);
        pl_json_out_close(o, '}');
    }
    pl_reduce_fini(&t.reduce);
    pl_optim_fini(&t.optim);
    pl_free(room);
    return st;
}

static pl_status bench_target(pl_json_out *o, const bench *b, pl_err *err) {
    target_case *c = pl_calloc(1, sizeof *c);
    if (!c) return pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    pl_status st = make_target(c, b, err);
    if (st == PL_OK) {
        way w = {.flops = target_flops(b, &c->lm.model)};
        st = time_task(o, &c->task, b, &w, 1, NULL, err);
    }
    pl_lm_destroy(&c->lm);
    pl_free(c);
    return st;
}

static pl_status bench_drafter(pl_json_out *o, const bench *b, pl_err *err) {
    drafter_case *c = pl_calloc(1, sizeof *c);
    if (!c) return pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    pl_status st = make_drafter(c, b, err);
    bool      thins = b->s->supervised < 1;
    if (st == PL_OK) {
        way w[2] = {{.head = b->s->head, .rows = thins ? "all" : NULL, .flops = drafter_flops(b, c, false)},
                    {.head = b->s->head, .rows = "supervised", .flops = drafter_flops(b, c, true)}};
        st = time_task(o, &c->task, b, w, thins ? 2 : 1, &c->u.rows.opt.supervised, err);
    }
    pl_unroll_destroy(&c->u);
    pl_param_block_destroy(&c->block);
    pl_backbone_destroy(c->model);
    pl_free(c);
    return st;
}

// Makes a teacher of random matrices in the memory of the backend that reads them.
static pl_status make_teacher(bench *b, pl_err *err) {
    pl_teacher  *t = &b->teacher;
    pl_ctx       ctx;
    pl_hf_config c;
    int64_t      positions = b->s->seq_len + b->s->unroll + 1;
    PL_TRY(pl_bench_shape_find(&c, b->s->shape, b->s->layers, (int)positions, err));
    PL_TRY(pl_llama_init(&t->model, &c, b->env->backend, false, err));
    PL_TRY(pl_params_init(&b->random, 2, err));
    b->random.memory = b->env->backend->memory;
    pl_params_add(&b->random, &(pl_param_args){.tensor = &t->model.embed,
                                               .kind = PL_PARAM_EMBED,
                                               .part = {{"embed", c.vocab_size}},
                                               .cols = c.hidden_size});
    if (!c.tie_word_embeddings)
        pl_params_add(&b->random, &(pl_param_args){.tensor = &t->head,
                                                   .kind = PL_PARAM_EMBED,
                                                   .part = {{"head", c.vocab_size}},
                                                   .cols = c.hidden_size});
    PL_TRY(pl_bench_shape_room((double)pl_params_count(&b->random) * (double)pl_dtype_size(b->dtype), b->env->backend,
                               err));
    PL_TRY(pl_ctx_init(&ctx, b->env->backend, b->env->pool));
    pl_status st = pl_params_tile(&b->random, b->dtype, b->env->seed, &ctx, err);
    pl_ctx_fini(&ctx);
    if (c.tie_word_embeddings) t->head = t->model.embed;
    t->model.head = t->head;
    return st;
}

// Runs both cases with weights of one dtype.
static pl_status put_cases(pl_json_out *o, bench *b, pl_err *err) {
    const pl_bench_step *s = b->s;
    if (s->shape)
        PL_TRY(make_teacher(b, err));
    else
        PL_TRY(pl_teacher_open(&b->teacher, s->target, b->dtype, b->env->backend, false, NULL, err));
    PL_TRY(read_head(b, err));
    const pl_hf_config *config = &b->teacher.model.config;
    if (s->seq_len + s->unroll > config->max_position_embeddings)
        return pl_fail(err, PL_E_INPUT, "%s: the context holds %d positions; lower --seq-len", s->target,
                       config->max_position_embeddings);
    b->ids = pl_malloc(((size_t)s->seq_len + 1) * sizeof *b->ids);
    if (!b->ids) return pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    for (int64_t i = 0; i <= s->seq_len; i++)
        b->ids[i] = (int32_t)((7 * i + 3) % b->drafted); // the head drafts every token, so all rows count
    if (!s->shape) PL_TRY(bench_target(o, b, err));      // pretraining a model of billions does not fit
    return bench_drafter(o, b, err);
}

pl_status pl_bench_put_step(pl_json_out *o, const pl_env *env, const pl_bench_step *s, pl_err *err) {
    static const pl_dtype dtype[] = {PL_BF16, PL_F32};
    pl_status             st = PL_OK;
    rest                  later = {0};
    if (s->trials && (!env->backend->device || pl_backend_on_host(env->backend)))
        return pl_fail(err, PL_E_USAGE, "--try: changes how a GPU runs; give --device cuda");
    pl_put_array(o, "step");
    for (int i = 0; i < 2 && st == PL_OK; i++) {
        bench b = {.s = s, .rest = &later, .env = env, .dtype = dtype[i]};
        if (!s->dtype[i]) continue;
        st = put_cases(o, &b, err);
        pl_teacher_close(&b.teacher);
        pl_params_fini(&b.random);
        pl_free(b.ids);
    }
    pl_json_out_close(o, ']');
    if (st == PL_OK) write_rest(o, s, &later);
    for (int i = 0; i < later.n; i++)
        pl_free(later.kept[i]);
    return st;
}
