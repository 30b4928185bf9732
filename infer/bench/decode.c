// bench: times decoding and compares it with the bytes that each step must read.
//
// `--target` times plain decoding in bf16 and fp32 and decoding with a drafter, then the target's forward by rows.
//
// `--shape` times a model of a known shape with random weights (infer/bench/shapes.h) by steps of the decode loop at
// one context (infer/bench/cycle.h), each with the time of its reads at the bandwidth measured in the same run:
//   plain    without a drafter
//   verify   the target's part of a step, over 1 to 60 rows of a tree ten wide
//   cycle    with an EAGLE-3 drafter by head: the full one, FR-Spec's trimmed to 32k rows (to a quarter where the
//            vocabulary is no larger), SlimSpec's of rank d/8, DynaSpec's reading clusters of 27k rows (27/128 of the
//            vocabulary); a chain of 7, EAGLE-2's tree of 60 nodes, ten wide, six deep. Verdicts accept half of the
//            depth, three nodes, and the speed is computed for published acceptance lengths: 3.91 for the chain
//            (SGLang's EAGLE-3 on Llama-3.1-8B), 3.89 for the tree (FR-Spec's EAGLE-2, Llama-3-8B). On request also a
//            block drafter of 5 layers and 7 drafts: DFlash, DSpark or DFlash 2
//   draft    one level of these cycles below the first, layer and head: one row of the chain, ten of the tree
//   parts    shares of drafting: layer, head's product (timed by itself), softmax and top-k, rest; FR-Spec measures 33,
//            49, 13 and 5 % for EAGLE-2 (arXiv 2502.14856, figure 6)
#include "infer/bench/bench.h"
#include "infer/bench/cycle.h"
#include "infer/decode/runner.h"
#include "infer/drafter/backbone.h"
#include "infer/model/kv.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/json.h"
#include "kernels/base/room.h"
#include "kernels/op/linear.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GOAL_VERIFY 1.15 // over one row
#define GOAL_PLAIN 0.85  // share of the floor
#define GOAL_DRAFT 1.3   // over the floor
#define GOAL_CYCLE 6.3e-3
#define GOAL_SHAPE "llama3-8b" // of the cycle's goal, on an H200
#define SLOW 0.1               // seconds of tries after which no further try begins

static double median(const double *x, int n) {
    return n ? pl_stats(x, n).median : NAN;
}

// Writes the columns of a goal: its quantity, the value reached, and "yes" or "no". A missed goal does not fail the
// run. goal NaN: none.
static void put_goal(pl_json_out *o, const char *what, double reached, double goal, bool more) {
    pl_put_str(o, "goal_of", what);
    pl_put_num(o, "reached", reached);
    pl_put_num(o, "goal", goal);
    pl_put_str(o, "met",
               !isfinite(goal) || !isfinite(reached)        ? "-"
               : (more ? reached >= goal : reached <= goal) ? "yes"
                                                            : "no");
}

// Returns roughly the bytes of the weights' block that a step reads.
static size_t read_bytes(const pl_llama *target) {
    double step = pl_llama_step_bytes(target, 0);
    return step < (double)target->params.block_bytes ? (size_t)step : target->params.block_bytes;
}

// ---- the target's forward by rows -----------------------------------------------------------------------------------

enum { ROWS = 60, WIDE = 10, DEEP = ROWS / WIDE, VERIFIED = 7, VERIFY_TRIES = 3 };

// Sets a tree of n nodes: the root, ten children, and each further node below the node ten before it.
static void set_rows(pl_tree_policy *p, int n) {
    int32_t parent[ROWS];
    for (int i = 0; i < n; i++)
        parent[i] = i <= WIDE ? 0 : i - WIDE;
    pl_tree_shape_set(p, n, parent);
}

// Returns the seconds of the fastest of several steps, since the bandwidth is the best of its tries too; slow steps get
// fewer tries. The first step verifies the previous tree.
static pl_status time_rows(pl_cycles *c, int rows, double *seconds, pl_err *err) {
    pl_cycle_sample s;
    set_rows(&c->drafter->policy, rows);
    PL_TRY(pl_cycles_step(c, &s, err));
    double t0 = pl_now();
    *seconds = INFINITY;
    for (int i = 0; i < VERIFY_TRIES && (i == 0 || pl_now() - t0 < SLOW); i++) {
        PL_TRY(pl_cycles_step(c, &s, err));
        PL_CHECK(s.rows == rows, "%d rows, not %d", s.rows, rows);
        *seconds = fmin(*seconds, s.parts.target);
    }
    return PL_OK;
}

// Writes the array "verify": the target's seconds by rows, and over one row. A number of rows that fails is left out.
// plain: cycles of plain decoding whose caches are shared; NULL: none.
static void put_verify(pl_json_out *o, pl_bench *b, const pl_llama *target, int context, int rounds, pl_cycles *plain) {
    static const int rows[VERIFIED] = {1, 2, 4, 8, 16, 32, ROWS};
    double           seconds[VERIFIED][PL_BENCH_TRIES], floor[VERIFIED][PL_BENCH_TRIES];
    double           bytes = pl_llama_step_bytes(target, context);
    int              n[VERIFIED] = {0}; // samples
    pl_tree_policy   policy;
    pl_cycles       *c;
    pl_err           err;
    pl_cycle_options of = {.target = target, .policy = &policy, .batch = 1, .context = context, .caches = plain};
    if (context + PL_CYCLE_SPARE > target->config.max_position_embeddings) return;
    if (rounds > PL_BENCH_TRIES) rounds = PL_BENCH_TRIES;
    pl_cycle_policy(&policy, ROWS, WIDE, WIDE, DEEP);
    if (pl_cycles_open(&c, b->env->backend, b->env->pool, &of, &err) != PL_OK) pl_bench_leave_out(b, "verify", &err);
    for (int t = 0; c && t < rounds; t++) {
        double rate = pl_bench_rate(b, target->params.block, read_bytes(target));
        double peak = pl_backend_peak_once(b->env->backend, PL_BF16, b->env->pool);
        for (int i = 0; i < VERIFIED; i++) {
            if (n[i] < t) continue;
            floor[i][t] = pl_bench_floor(bytes, rate, rows[i] * pl_llama_step_bytes(target, 0), peak);
            n[i] += time_rows(c, rows[i], &seconds[i][t], &err) == PL_OK;
            if (n[i] == t) pl_bench_leave_out(b, "verify", &err);
        }
    }
    pl_cycles_close(c);
    pl_put_array(o, "verify");
    for (int i = 0; i < VERIFIED; i++) {
        if (n[i] < rounds) continue;
        double one = median(seconds[i], rounds);
        pl_json_out_object(o);
        pl_put_int(o, "rows", rows[i]);
        pl_put_num(o, "seconds", one);
        pl_put_num(o, "bytes", bytes);
        pl_bench_write_pairs(o, &(pl_bench_pairs){seconds[i], floor[i], rounds});
        put_goal(o, "over_one_row", one / median(seconds[0], n[0]), i ? GOAL_VERIFY : NAN, false);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

// ---- a target -------------------------------------------------------------------------------------------------------

#define METHODS 3

typedef struct method {
    const char      *name;
    pl_runner        runner;
    pl_session_stats stats;
    double           weights; // bytes that one step reads, the drafter's included
    double           per_token[PL_BENCH_MAX_PAIRS], floor[PL_BENCH_MAX_PAIRS], bandwidth[PL_BENCH_MAX_PAIRS];
    bool             open;
} method;

// Figures of opening the target.
typedef struct opening {
    double seconds, bytes, resident, floor;
} opening;

// Samples the bandwidth in bytes per second of reading a method's own weights, without a second copy; on a device, of
// copies.
static double probe(pl_bench *b, const method *m) {
    const pl_params *ps = &m->runner.target->model.params;
    return pl_bench_rate(b, ps->block, m->weights < (double)ps->block_bytes ? (size_t)m->weights : ps->block_bytes);
}

// Opens the target and times it. The floor reads each byte from the file's pages and writes it to its place.
static pl_status open_timed(opening *o, pl_target *t, pl_bench *b, const pl_bench_decode *d, pl_err *err) {
    double before = pl_memory_resident(), t0 = pl_now();
    PL_TRY(pl_target_open(t, d->target, NULL, d->pre, d->dtype[0] ? PL_WEIGHTS_BF16 : PL_WEIGHTS_FP32, b->env->backend,
                          err));
    const pl_params *ps = &t->model.params;
    *o = (opening){.seconds = pl_now() - t0,
                   .bytes = (double)pl_params_bytes(ps),
                   .resident = pl_memory_resident() - before,
                   .floor = 2 * (double)ps->block_bytes / pl_bench_rate(b, ps->block, ps->block_bytes)};
    return PL_OK;
}

static void write_opening(pl_json_out *o, const opening *of) {
    pl_put_object(o, "opening");
    pl_put_num(o, "seconds", of->seconds);
    pl_put_num(o, "bytes", of->bytes);
    pl_put_num(o, "bytes_per_second", of->bytes / of->seconds);
    pl_put_num(o, "floor_seconds", of->floor);
    pl_put_num(o, "share_of_floor", of->floor / of->seconds);
    pl_put_num(o, "resident_bytes", of->resident);
    pl_json_out_close(o, '}');
}

static int first_dtype(const pl_bench_decode *d) {
    return d->dtype[0] ? 0 : 1;
}

static pl_status open_all(opening *o, pl_target target[2], method *m, pl_bench *b, const pl_bench_decode *d,
                          pl_err *err) {
    static const char *const names[METHODS] = {"plain", "plain-fp32", "drafter"};
    const bool               wanted[METHODS] = {d->dtype[0], d->dtype[1], d->drafter != NULL};
    const int                first = first_dtype(d);
    for (int i = 0; i < METHODS; i++) {
        if (!wanted[i]) continue;
        pl_target *t = &target[i < 2 ? i : first];
        if (i == first)
            PL_TRY(open_timed(o, t, b, d, err));
        else if (i == 1)
            PL_TRY(pl_target_open(t, d->target, NULL, d->pre, PL_WEIGHTS_FP32, b->env->backend, err));
        t->model.shape.kv = d->kv;
        if (i < 2) t->n_stop = 0; // no stop tokens: every run has the same length
        int positions = t->model.config.max_position_embeddings;
        if (d->context + d->new_tokens + 1 > positions)
            return pl_fail(err, PL_E_INPUT, "%s: the context holds %d positions; lower --context or --new-tokens",
                           d->target, positions);
        pl_runner_options of = {
            .drafter = i == 2 ? d->drafter : NULL, .tree = d->tree, .max_len = d->context + d->new_tokens + 1};
        PL_TRY(pl_runner_open(&m[i].runner, b->env->backend, b->env->pool, t, &of, err));
        const pl_drafter *drafter = m[i].runner.drafter;
        m[i].name = names[i];
        m[i].open = true;
        m[i].weights = pl_llama_step_bytes(&t->model, d->context + d->new_tokens / 2) +
                       (drafter ? drafter->kind->step_bytes(drafter) : 0);
    }
    return PL_OK;
}

// Returns the mean bytes that one cycle of drafting and verifying reads in a run.
static double cycle_bytes(const method *m, const pl_session_stats *s, const pl_bench_decode *d) {
    const pl_drafter *drafter = m->runner.drafter;
    double            levels = 0;
    for (int i = 0; i < PL_TREE_MAX; i++)
        levels += (double)s->position_drafted[i];
    double target = pl_llama_step_bytes(&m->runner.target->model, d->context + d->new_tokens / 2);
    return target + (drafter ? drafter->kind->step_bytes(drafter) : 0) * levels / (double)s->steps;
}

// Runs the methods in rounds, and samples the bandwidth right before each run or, every other round, right after.
static pl_status run_all(method *m, pl_bench *b, const int32_t *prompt, const pl_bench_decode *d, pl_err *err) {
    pl_sampling greedy = {.top_p = 1};
    for (int k = -1; k < d->repeats; k++) // the first round warms up
        for (int i = 0; i < METHODS; i++) {
            if (!m[i].open) continue;
            double rate = k >= 0 && k % 2 == 0 ? probe(b, &m[i]) : 0;
            PL_TRY(pl_runner_run(&m[i].runner, prompt, d->context, &greedy, d->new_tokens, NULL, NULL, err));
            const pl_session_stats *s = pl_session_statistics(m[i].runner.session);
            if (k < 0) continue;
            if (k % 2 != 0) rate = probe(b, &m[i]);
            pl_stats_add(&m[i].stats, s);
            m[i].bandwidth[k] = rate;
            m[i].per_token[k] = s->seconds / (double)s->emitted;
            m[i].floor[k] = cycle_bytes(&m[i], s, d) / rate / pl_stats_acceptance(s);
        }
    return PL_OK;
}

static void write_method(pl_json_out *o, const method *m, const pl_bench_decode *d) {
    pl_sample_stats s = pl_stats(m->per_token, d->repeats);
    pl_json_out_object(o);
    pl_put_str(o, "name", m->name);
    pl_put_str(o, "weights", pl_weights_name(m->runner.target->dtype));
    pl_put_str(o, "kv", pl_weights_name(m->runner.target->model.shape.kv));
    pl_put_num(o, "tokens_per_second", 1 / s.median);
    pl_put_num(o, "seconds_per_token", s.median);
    pl_put_num(o, "p10", s.p10);
    pl_put_num(o, "p90", s.p90);
    pl_put_num(o, "acceptance_length", pl_stats_acceptance(&m->stats));
    pl_put_num(o, "cycle_bytes", cycle_bytes(m, &m->stats, d));
    pl_put_num(o, "bandwidth_gb_per_second", pl_stats(m->bandwidth, d->repeats).median / 1e9);
    pl_put_num(o, "floor_tokens_per_second", 1 / pl_stats(m->floor, d->repeats).median);
    pl_bench_write_pairs(o, &(pl_bench_pairs){m->per_token, m->floor, d->repeats});
    pl_put_num(o, "prefill_tokens_per_second", (double)d->context * d->repeats / m->stats.prefill_seconds);
    pl_json_out_close(o, '}');
}

pl_status pl_bench_put_decode(pl_json_out *o, pl_bench *b, const pl_bench_decode *d, pl_err *err) {
    pl_target target[2] = {0};
    method   *m = pl_calloc(METHODS, sizeof *m);
    opening   opened = {0};
    int32_t  *prompt = pl_malloc((size_t)d->context * sizeof *prompt);
    pl_status st = m && prompt ? PL_OK : pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    if (st == PL_OK) st = open_all(&opened, target, m, b, d, err);
    for (int i = 0; st == PL_OK && i < d->context; i++)
        prompt[i] = (int32_t)((7 * i + 3) % target[first_dtype(d)].model.vocab);
    if (st == PL_OK) st = run_all(m, b, prompt, d, err);
    if (st == PL_OK) {
        write_opening(o, &opened);
        pl_put_array(o, "decode");
        for (int i = 0; i < METHODS; i++)
            if (m[i].open) write_method(o, &m[i], d);
        pl_json_out_close(o, ']');
        put_verify(o, b, &target[first_dtype(d)].model, d->context, d->repeats, NULL);
    }
    for (int i = 0; m && i < METHODS; i++)
        pl_runner_close(&m[i].runner);
    pl_target_close(&target[0]);
    pl_target_close(&target[1]);
    pl_free(m);
    pl_free(prompt);
    return st;
}

// ---- a model of random weights --------------------------------------------------------------------------------------

#define HEADS 4
#define TILED_SEED 7
#define APART 3 // steps of a run on a device that are synchronised after each part

enum { CHAIN, DEEP_TREE, TREES };

typedef struct model_head {
    char           name[48];
    pl_backbone   *backbone;
    pl_bench_case *product[TREES]; // with the rows of a level; NULL: the head has no plain product
} model_head;

typedef struct model {
    pl_llama       target;
    int            context;
    int32_t       *ids;         // [vocab] 0, 1, 2, ...
    const char    *tree[TREES]; // as of --tree
    pl_tree_policy policy[TREES];
    pl_backbone   *block; // a block drafter; NULL: none
    model_head     head[HEADS];
    int            n_heads;
} model;

// Returns the bytes of one position of one layer's cache.
static double position_bytes(const model *m) {
    const pl_layer_shape *s = &m->target.shape;
    return 2.0 * s->nkv * s->hd * (double)pl_kv_elem(s, m->target.be->real);
}

// Adds an EAGLE-3 drafter without weights.
static pl_status add_drafter(model *m, const pl_head_example *e, pl_err *err) {
    model_head         *h = &m->head[m->n_heads];
    pl_backbone_options o = {.head = e->spec, .own_head = true};
    if (e->rows < m->target.vocab) {
        o.d2t = m->ids;
        o.draft_vocab = e->rows;
    }
    PL_CHECK(m->n_heads < (int)(sizeof m->head / sizeof *m->head), "%d heads", m->n_heads);
    o.n_taps = pl_llama_default_taps(m->target.n_layers, o.tap);
    snprintf(h->name, sizeof h->name, "%s", e->name);
    PL_TRY(pl_backbone_create(&h->backbone, pl_backbone_at(0), &m->target, &o, m->target.be, err));
    m->n_heads++;
    const pl_head_kind *kind = h->backbone->head.kind;
    return kind->table ? kind->table->draw(&h->backbone->head, e->uneven, err) : PL_OK;
}

static pl_status add_drafters(model *m, pl_err *err) {
    pl_head_shape   shape = {.vocab = m->target.vocab, .d = m->target.shape.d};
    pl_head_example e;
    for (int at = 0; pl_head_next_example(&e, &at, &shape, PL_EXAMPLE_CYCLE);)
        PL_TRY(add_drafter(m, &e, err));
    return PL_OK;
}

static const char *const block_name[] = {"dflash", "dspark", "dflash2"};

const char *pl_bench_block_name(int i) {
    return i < (int)(sizeof block_name / sizeof *block_name) ? block_name[i] : NULL;
}

// Adds a block drafter of published sizes: 5 layers, 7 drafts, factors of rank 256, or of the model's width if smaller.
static pl_status add_block(model *m, const char *name, pl_err *err) {
    int                 rank = m->target.shape.d < 256 ? (int)m->target.shape.d : 256;
    pl_backbone_options o = {.layers = 5, .block = 8, .mask_token = 1};
    if (!name) return PL_OK;
    if (strcmp(name, "dspark") == 0) {
        o.block = 7;
        o.anchor_first = true;
        o.head = pl_hf_head_make("markov", rank);
        pl_hf_head_set_flag(&o.head, "confidence", true);
    } else if (strcmp(name, "dflash2") == 0) {
        o.conv_taps = 2;
        o.conv_group = 16;
        o.selector = (pl_hf_selector){.rank = rank, .candidates = 16};
    }
    return pl_backbone_create(&m->block, &pl_backbone_dflash, &m->target, &o, m->target.be, err);
}

static pl_status make_weights(model *m, pl_bench *b, pl_err *err) {
    int64_t values = pl_params_count(&m->target.params);
    for (int i = 0; i < m->n_heads; i++)
        values += pl_params_count(&m->head[i].backbone->params);
    if (m->block) values += pl_params_count(&m->block->params);
    // Each loop of a head has its own draft cache; the target's caches are shared.
    double layers = m->target.n_layers + 2 * m->n_heads + (m->block ? m->block->layers : 0);
    double caches = layers * position_bytes(m) * (m->context + PL_CYCLE_SPARE);
    PL_TRY(pl_bench_shape_room((double)values * (double)pl_dtype_size(PL_BF16) + caches, b->env->backend, err));
    PL_TRY(pl_params_tile(&m->target.params, PL_BF16, TILED_SEED, &b->ctx, err));
    for (int i = 0; i < m->n_heads; i++) {
        pl_backbone *e = m->head[i].backbone;
        e->embed = m->target.embed; // made after the drafter
        PL_TRY(pl_params_tile(&e->params, PL_BF16, TILED_SEED + 1 + (uint64_t)i, &b->ctx, err));
    }
    if (!m->block) return PL_OK;
    m->block->embed = m->target.embed;
    pl_head_share(&m->block->head, m->target.head);
    return pl_params_tile(&m->block->params, PL_BF16, TILED_SEED + 1 + (uint64_t)m->n_heads, &b->ctx, err);
}

typedef struct bare_product {
    const pl_head *head;
    pl_tensor      x;
} bare_product;

static void product_step(pl_ctx *ctx, void *arg) {
    const bare_product *p = arg;
    pl_linear(ctx, pl_head_project(ctx, p->head, p->x, (pl_tensor){0}), p->head->out);
}

// Adds each head's product with the rows of a level. A routed head reads chosen rows and has no plain product.
static void add_products(pl_bench *b, model *m) {
    for (int i = 0; i < m->n_heads * TREES; i++) {
        const pl_backbone *e = m->head[i / TREES].backbone;
        int                rows = m->policy[i % TREES].width;
        if (e->head.kind->support) continue;
        pl_bench_case *c = pl_bench_add(b, "product of %.30s, %d rows", m->head[i / TREES].name, rows);
        bare_product  *p = c->arg = pl_bench_alloc(b, sizeof *p);
        m->head[i / TREES].product[i % TREES] = c;
        if (!p || !pl_bench_input(b, &p->x, rows, m->target.shape.d)) continue;
        p->head = &e->head;
        c->step = product_step;
        c->bytes = pl_head_step_bytes(&e->head, 1);
        c->memory = e->params.block;
        c->memory_bytes = c->bytes < (double)e->params.block_bytes ? (size_t)c->bytes : e->params.block_bytes;
        pl_bench_ready(b, c);
    }
    pl_bench_run(b);
}

static pl_status make_model(model *m, pl_bench *b, const pl_bench_shape *s, pl_err *err) {
    pl_hf_config c;
    m->context = s->context;
    PL_TRY(pl_bench_shape_find(&c, s->name, s->layers, m->context + PL_CYCLE_SPARE, err));
    m->tree[CHAIN] = "chain:7";
    m->tree[DEEP_TREE] = c.vocab_size < 1000 ? "eagle2:12,4,3" : "eagle2:60,10,6";
    for (int i = 0; i < TREES; i++)
        PL_TRY(pl_tree_policy_parse(&m->policy[i], m->tree[i], err));
    m->ids = pl_malloc((size_t)c.vocab_size * sizeof *m->ids);
    if (!m->ids) return pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    for (int i = 0; i < c.vocab_size; i++)
        m->ids[i] = i;
    PL_TRY(pl_llama_init(&m->target, &c, b->env->backend, true, err));
    m->target.shape.kv = s->kv;
    PL_TRY(add_drafters(m, err));
    PL_TRY(add_block(m, s->block, err));
    return make_weights(m, b, err);
}

static void drop_model(model *m) {
    for (int i = 0; i < m->n_heads; i++)
        pl_backbone_destroy(m->head[i].backbone);
    pl_backbone_destroy(m->block);
    pl_llama_fini(&m->target);
    pl_free(m->ids);
}

// ---- its cycles -----------------------------------------------------------------------------------------------------

typedef struct loop {
    const char        *name;
    int                tree;     // CHAIN or DEEP_TREE
    const pl_backbone *backbone; // NULL: plain
    const model_head  *head;     // NULL: plain, or a block drafter
    double             tau;      // acceptance length of the printed speed; NaN: as measured
    pl_cycles         *c;
    int                n, n_parts;
    double             bytes, emitted; // of a cycle, mean
    double             rate;           // bytes per second, sampled in this round
    double             seconds[PL_BENCH_MAX_PAIRS], floor[PL_BENCH_MAX_PAIRS], target[PL_BENCH_MAX_PAIRS],
        drafting[PL_BENCH_MAX_PAIRS];
    // Shares of drafting, from steps timed part by part: all layers, all heads; layer and head of one deeper level.
    double layer[PL_BENCH_MAX_PAIRS], heads[PL_BENCH_MAX_PAIRS], level_layer[PL_BENCH_MAX_PAIRS],
        level_head[PL_BENCH_MAX_PAIRS];
} loop;

static pl_status open_loop(loop *l, pl_bench *b, const model *m, pl_cycles *plain, pl_err *err) {
    pl_cycle_options o = {.target = &m->target, .batch = 1, .context = m->context, .caches = plain};
    l->bytes = pl_llama_step_bytes(&m->target, m->context);
    if (l->backbone) {
        o.policy = &m->policy[l->tree];
        o.backbone = l->backbone;
    }
    PL_TRY(pl_cycles_open(&l->c, b->env->backend, b->env->pool, &o, err));
    if (l->backbone) l->bytes += o.policy->depth * l->c->drafter->kind->step_bytes(l->c->drafter);
    return PL_OK;
}

static void add_parts(void *arg, const pl_cycle_sample *s) {
    loop                 *l = arg;
    const pl_draft_parts *level = l->c->level;
    int                   k = l->n_parts;
    if (!l->head || k == PL_BENCH_MAX_PAIRS) return;
    int last = l->c->drafter->policy.depth - 1;
    l->layer[k] = s->parts.draft.layer / s->draft;
    l->heads[k] = s->parts.draft.head / s->draft;
    l->level_layer[k] = (level[last].layer - level[0].layer) / last / s->draft;
    l->level_head[k] = (level[last].head - level[0].head) / last / s->draft;
    l->n_parts++;
}

static void add_step(void *arg, const pl_cycle_sample *s) {
    loop *l = arg;
    if (!l->c->device) add_parts(l, s);
    l->seconds[l->n] = s->seconds;
    l->target[l->n] = s->parts.target;
    l->drafting[l->n] = s->draft;
    l->floor[l->n] = l->bytes / l->rate;
    l->emitted += (s->emitted - l->emitted) / ++l->n;
}

// Takes `steps` more samples.
static pl_status run_loop(loop *l, int steps, pl_err *err) {
    int room = PL_BENCH_MAX_PAIRS - l->n;
    PL_TRY(pl_cycles_run(l->c, steps < room ? steps : room, false, add_step, l, err));
    return l->c->device && l->head ? pl_cycles_run(l->c, APART, true, add_parts, l, err) : PL_OK;
}

// Runs all loops in rounds, each after one sample of the bandwidth; a loop that fails is left out.
static pl_status run_loops(loop *l, int n, pl_bench *b, const model *m, const pl_bench_shape *s, pl_err *err) {
    for (int round = 0; round < s->repeats; round++) {
        double rate = pl_bench_rate(b, m->target.params.block, read_bytes(&m->target));
        for (int i = 0; i < n; i++) {
            l[i].rate = rate;
            if (!l[i].c || run_loop(&l[i], s->steps, err) == PL_OK) continue;
            if (i == 0) return err->status; // the other loops use its caches
            pl_bench_leave_out(b, l[i].name, err);
            pl_cycles_close(l[i].c);
            l[i].c = NULL;
        }
    }
    return PL_OK;
}

// ---- output ---------------------------------------------------------------------------------------------------------

static void put_plain(pl_json_out *o, const loop *l) {
    pl_put_array(o, "plain");
    if (l->n) {
        double share[PL_BENCH_MAX_PAIRS];
        for (int i = 0; i < l->n; i++)
            share[i] = l->floor[i] / l->seconds[i];
        pl_json_out_object(o);
        pl_put_num(o, "tokens_per_second", 1 / median(l->seconds, l->n));
        pl_put_num(o, "seconds", median(l->seconds, l->n));
        pl_put_num(o, "target_seconds", median(l->target, l->n));
        pl_put_num(o, "bytes", l->bytes);
        pl_bench_write_pairs(o, &(pl_bench_pairs){l->seconds, l->floor, l->n});
        put_goal(o, "share_of_floor", median(share, l->n), GOAL_PLAIN, true);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

// Writes one level of a drafter below the first: seconds of layer and head, and its floor. A routed head's floor counts
// the clusters of one row.
static void put_draft(pl_json_out *o, const pl_bench *b, const loop *l, int n, const model *m) {
    pl_put_array(o, "draft");
    for (int i = 0; i < n; i++) {
        const pl_head *h = &l[i].backbone->head;
        if (!l[i].c || !l[i].n_parts) continue;
        double all = median(l[i].drafting, l[i].n), layer = all * median(l[i].level_layer, l[i].n_parts),
               head = all * median(l[i].level_head, l[i].n_parts),
               bytes =
                   pl_backbone_step_bytes(l[i].backbone, 0) + pl_head_step_bytes(h, 1) + position_bytes(m) * m->context,
               floor = pl_bench_floor(bytes, l[i].bytes / median(l[i].floor, l[i].n),
                                      bytes * m->policy[l[i].tree].width, b->peak_bf16);
        const pl_bench_case *product = l[i].head->product[l[i].tree];
        pl_json_out_object(o);
        pl_put_str(o, "head", l[i].name);
        pl_put_int(o, "rows", m->policy[l[i].tree].width);
        pl_put_num(o, "seconds", layer + head);
        pl_put_num(o, "layer_seconds", layer);
        pl_put_num(o, "head_seconds", head);
        pl_put_num(o, "product_seconds", product ? pl_bench_seconds(product) : NAN);
        pl_put_num(o, "bytes", bytes);
        pl_put_num(o, "floor_seconds", floor);
        put_goal(o, "over_floor", (layer + head) / floor, GOAL_DRAFT, false);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

static void put_cycle(pl_json_out *o, const loop *l, int n, const model *m, const pl_bench_shape *s) {
    pl_put_array(o, "cycle");
    for (int i = 0; i < n; i++) {
        if (!l[i].c || !l[i].n) continue;
        double seconds = median(l[i].seconds, l[i].n);
        bool   goal = l[i].head && l[i].tree == CHAIN && !s->layers;
        pl_json_out_object(o);
        pl_put_str(o, "head", l[i].name);
        pl_put_str(o, "tree", m->tree[l[i].tree]);
        pl_put_num(o, "seconds", seconds);
        pl_put_num(o, "target_seconds", median(l[i].target, l[i].n));
        pl_put_num(o, "draft_seconds", median(l[i].drafting, l[i].n));
        pl_put_num(o, "at_tau", l[i].tau);
        pl_put_num(o, "tokens_per_second", l[i].tau / seconds);
        pl_put_num(o, "bytes", l[i].bytes);
        pl_put_num(o, "floor_seconds", median(l[i].floor, l[i].n));
        pl_put_num(o, "measured_tau", l[i].emitted);
        put_goal(o, "seconds", seconds, goal && strcmp(s->name, GOAL_SHAPE) == 0 ? GOAL_CYCLE : NAN, false);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

static void put_parts_row(pl_json_out *o, const char *head, const char *tree, double layer, double product, double topk,
                          double rest) {
    pl_json_out_object(o);
    pl_put_str(o, "head", head);
    pl_put_str(o, "tree", tree);
    pl_put_num(o, "layer", layer);
    pl_put_num(o, "head_product", product);
    pl_put_num(o, "softmax_topk", topk);
    pl_put_num(o, "rest", rest);
    pl_json_out_close(o, '}');
}

// Writes the shares of drafting. A head's time beyond its product is softmax and top-k; a routed head is one part.
static void put_parts(pl_json_out *o, const loop *l, int n, const model *m) {
    pl_put_array(o, "parts");
    for (int i = 0; i < n; i++) {
        if (!l[i].c || !l[i].n_parts) continue;
        const pl_bench_case *const *product = (const pl_bench_case *const *)l[i].head->product;
        double all = median(l[i].drafting, l[i].n), head = median(l[i].heads, l[i].n_parts), bare = head,
               layer = median(l[i].layer, l[i].n_parts);
        if (product[CHAIN] && product[l[i].tree])
            bare = (pl_bench_seconds(product[CHAIN]) +
                    (m->policy[l[i].tree].depth - 1) * pl_bench_seconds(product[l[i].tree])) /
                   all;
        if (!(bare < head)) bare = head;
        put_parts_row(o, l[i].name, m->tree[l[i].tree], layer, bare, head - bare, 1 - (layer + head));
    }
    put_parts_row(o, "full, FR-Spec fig. 6", m->tree[DEEP_TREE], 0.33, 0.49, 0.13, 0.05);
    pl_json_out_close(o, ']');
}

static void put_model(pl_json_out *o, const model *m, const pl_bench_shape *s) {
    double drafters = 0;
    for (int i = 0; i < m->n_heads; i++)
        drafters += (double)pl_params_bytes(&m->head[i].backbone->params);
    pl_put_object(o, "model");
    pl_put_str(o, "shape", s->name);
    pl_put_int(o, "layers", m->target.n_layers);
    pl_put_bool(o, "whole", !s->layers);
    pl_put_int(o, "context", m->context);
    pl_put_str(o, "kv", pl_weights_name(m->target.shape.kv));
    pl_put_num(o, "cache_bytes", m->target.n_layers * position_bytes(m) * m->context);
    pl_put_num(o, "weights_bytes", (double)pl_params_bytes(&m->target.params));
    pl_put_num(o, "drafters_bytes", drafters);
    pl_put_num(o, "step_bytes", pl_llama_step_bytes(&m->target, m->context));
    pl_json_out_close(o, '}');
}

static int list_loops(loop *l, const model *m, const char *block) {
    int n = 0;
    l[n++] = (loop){.name = "plain", .tau = NAN};
    for (int tree = 0; tree < TREES; tree++)
        for (int i = 0; i < m->n_heads; i++)
            l[n++] = (loop){.name = m->head[i].name,
                            .backbone = m->head[i].backbone,
                            .head = &m->head[i],
                            .tree = tree,
                            .tau = tree == CHAIN ? 3.91 : 3.89};
    if (m->block) l[n++] = (loop){.name = block, .backbone = m->block, .tree = CHAIN, .tau = 3.91};
    return n;
}

static pl_status put_shape(pl_json_out *o, pl_bench *b, const pl_bench_shape *s, model *m, loop *l, pl_err *err) {
    PL_TRY(make_model(m, b, s, err));
    int n = list_loops(l, m, s->block);
    PL_TRY(open_loop(&l[0], b, m, NULL, err));
    for (int i = 1; i < n; i++) {
        pl_err why = {0};
        if (open_loop(&l[i], b, m, l[0].c, &why) != PL_OK) pl_bench_leave_out(b, l[i].name, &why);
    }
    if (s->repeats < b->rounds) b->rounds = s->repeats;
    add_products(b, m);
    PL_TRY(run_loops(l, n, b, m, s, err));
    put_model(o, m, s);
    put_plain(o, &l[0]);
    put_verify(o, b, &m->target, m->context, s->repeats, l[0].c);
    put_draft(o, b, l + 1, n - 1, m);
    put_cycle(o, l + 1, n - 1, m, s);
    put_parts(o, l + 1, n - 1, m);
    return PL_OK;
}

pl_status pl_bench_put_shape(pl_json_out *o, pl_bench *b, const pl_bench_shape *s, pl_err *err) {
    enum { LOOPS = 2 + TREES * HEADS };
    model    *m = pl_calloc(1, sizeof *m);
    loop     *l = pl_calloc(LOOPS, sizeof *l);
    pl_status st = m && l ? put_shape(o, b, s, m, l, err) : pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    for (int i = LOOPS - 1; l && i >= 0; i--) // in reverse, since the others use the first loop's caches
        pl_cycles_close(l[i].c);
    pl_bench_forget(b);
    if (m) drop_model(m);
    pl_free(l);
    pl_free(m);
    return st;
}
