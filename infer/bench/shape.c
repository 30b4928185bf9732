#include "infer/bench/shape.h"

#include "infer/bench/model.h"
#include "infer/decode/decode.h"
#include "infer/decode/runner.h"
#include "infer/drafter/backbone.h"
#include "kernels/base/clock.h"
#include "kernels/base/json_put.h"

#include <math.h>
#include <string.h>

#define GOAL_PLAIN 0.85 // share of the floor
#define GOAL_DRAFT 1.3  // over the floor
#define GOAL_CYCLE 6.3e-3
#define GOAL_SHAPE "llama3-8b" // the cycle's, an H200's
#define COLD 4                 // steps of a run that are not counted
#define BLOCK 8                // steps between two samples of the bandwidth

// ---- the decode loop ----

typedef struct loop {
    const char          *name, *tree;
    const pl_backbone   *backbone; // NULL: plain
    const pl_bench_head *head;     // NULL: plain, or a block drafter
    double               tau;      // at which the speed is told; NaN: as measured
    pl_drafter          *drafter;
    pl_engine           *engine;
    pl_session          *session;
    bool                 ready;
    int                  n, depth;
    double               bytes;                                                    // of a cycle
    double               seconds[PL_BENCH_MAX_PAIRS], floor[PL_BENCH_MAX_PAIRS];   // of a step
    double               target[PL_BENCH_MAX_PAIRS], drafting[PL_BENCH_MAX_PAIRS]; // of it; what is left is the verdict
} loop;

static pl_status open_loop(loop *l, pl_bench *b, const pl_bench_model *m, pl_err *err) {
    pl_engine_options eo = {.max_sessions = 1, .max_rows = 64, .max_len = m->max_len};
    pl_tree_policy    policy;
    l->bytes = pl_llama_step_bytes(&m->target, m->context);
    if (l->backbone) {
        PL_TRY(pl_tree_policy_parse(&policy, l->tree, err));
        l->depth = policy.depth;
        pl_drafter_options o = {.target = &m->target, .max_sessions = 1, .max_rows = eo.max_rows, .slots = m->max_len};
        bool               block = l->backbone->kind->draft;
        PL_TRY((block ? pl_drafter_block_create : pl_drafter_backbone_create)(&l->drafter, l->backbone, l->name,
                                                                              &policy, &o, err));
        l->bytes += l->depth *
                    (block ? l->drafter->kind->step_bytes(l->drafter) : pl_backbone_step_bytes(l->backbone, l->depth));
    }
    PL_TRY(pl_engine_create(&l->engine, b->env->backend, b->env->pool, &m->target, l->drafter, &eo, err));
    l->ready = true;
    return PL_OK;
}

static void close_loop(loop *l) {
    pl_engine_destroy(l->engine);
    pl_drafter_destroy(l->drafter);
    l->engine = NULL;
    l->drafter = NULL;
    l->ready = false;
}

// Reads the prompt; the first step that decodes comes next.
static pl_status start(loop *l, const pl_bench_model *m, pl_err *err) {
    pl_session_options so = {.sampling = {.top_p = 1}, .max_new = 1 << 20};
    if (l->session) pl_engine_end(l->engine, l->session);
    l->session = NULL;
    PL_TRY(pl_engine_start(l->engine, m->prompt, m->context, &so, &l->session, err));
    while (pl_session_reading(l->session))
        PL_TRY(pl_engine_step(l->engine, err));
    return PL_OK;
}

// `steps` more samples, in blocks with the bandwidth sampled before or, every other time, after.
static pl_status run_loop(loop *l, pl_bench *b, const pl_bench_model *m, int steps, pl_err *err) {
    PL_TRY(start(l, m, err));
    for (int i = -COLD; i < steps && l->n < PL_BENCH_MAX_PAIRS;) {
        int    first = l->n;
        double rate = i >= 0 && i / BLOCK % 2 == 0 ? pl_bench_rate(b, m->target.params.block, m->read_bytes) : 0;
        for (int k = 0; k < (i < 0 ? COLD : BLOCK) && i < steps && l->n < PL_BENCH_MAX_PAIRS; k++, i++) {
            if (pl_session_finish(l->session) != PL_RUNNING) PL_TRY(start(l, m, err));
            const pl_session_stats *s = pl_session_statistics(l->session);
            pl_session_stats        was = *s;
            PL_TRY(pl_engine_step(l->engine, err));
            if (i < 0) continue;
            double verdict = s->parts.verify - was.parts.verify;
            l->seconds[l->n] = s->seconds - was.seconds;
            l->target[l->n] = s->parts.target - was.parts.target;
            l->drafting[l->n] = l->seconds[l->n] - l->target[l->n] - verdict;
            l->n++;
        }
        if (rate == 0 && l->n > first) rate = pl_bench_rate(b, m->target.params.block, m->read_bytes);
        for (int k = first; k < l->n; k++)
            l->floor[k] = l->bytes / rate;
    }
    return PL_OK;
}

// Rounds over all loops; one that fails is left out.
static pl_status run_loops(loop *l, int n, pl_bench *b, const pl_bench_model *m, const pl_bench_shape *s, pl_err *err) {
    for (int round = 0; round < s->repeats; round++)
        for (int i = 0; i < n; i++) {
            pl_err    why = {0};
            pl_status st = l[i].ready ? run_loop(&l[i], b, m, s->steps, &why) : PL_OK;
            if (st == PL_OK) continue;
            if (st == PL_E_INTERRUPTED) {
                *err = why;
                return st;
            }
            pl_bench_leave_out(b, l[i].name, &why);
            close_loop(&l[i]);
        }
    return PL_OK;
}

static double median(const double *x, int n) {
    return n ? pl_stats(x, n).median : NAN;
}

// ---- what is said ----

static void put_plain(pl_json_out *o, const loop *l) {
    pl_put_array(o, "plain");
    if (l->ready && l->n) {
        double share[PL_BENCH_MAX_PAIRS];
        for (int i = 0; i < l->n; i++)
            share[i] = l->floor[i] / l->seconds[i];
        pl_json_out_object(o);
        pl_put_num(o, "tokens_per_second", 1 / median(l->seconds, l->n));
        pl_put_num(o, "seconds", median(l->seconds, l->n));
        pl_put_num(o, "target_seconds", median(l->target, l->n));
        pl_put_num(o, "bytes", l->bytes);
        pl_bench_write_pairs(o, &(pl_bench_pairs){l->seconds, l->floor, l->n});
        pl_bench_write_goal(o, "share_of_floor", median(share, l->n), GOAL_PLAIN, true);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

static double part_seconds(const pl_bench_level *l, int part) {
    return l->part[part] ? pl_bench_seconds(l->part[part]) : NAN;
}

static void put_draft(pl_json_out *o, const pl_bench_model *m) {
    pl_put_array(o, "draft");
    for (int i = 0; i < m->n_heads; i++)
        for (int r = 0; r < PL_BENCH_WIDTHS; r++) {
            const pl_bench_level *l = &m->head[i].level[r];
            const pl_bench_case  *c = l->part[PL_BENCH_LEVEL];
            if (!c->ready) continue;
            double over[PL_BENCH_TRIES];
            for (int k = 0; k < c->n; k++)
                over[k] = c->seconds[k] / c->floor[k];
            pl_json_out_object(o);
            pl_put_str(o, "head", m->head[i].name);
            pl_put_int(o, "rows", l->rows);
            pl_put_num(o, "seconds", pl_bench_seconds(c));
            pl_put_num(o, "layer_seconds", part_seconds(l, PL_BENCH_LAYER));
            pl_put_num(o, "head_seconds", part_seconds(l, PL_BENCH_HEAD));
            pl_put_num(o, "product_seconds", part_seconds(l, PL_BENCH_PRODUCT));
            pl_put_num(o, "bytes", c->bytes);
            pl_put_num(o, "floor_seconds", median(c->floor, c->n));
            pl_bench_write_goal(o, "over_floor", median(over, c->n), GOAL_DRAFT, false);
            pl_json_out_close(o, '}');
        }
    pl_json_out_close(o, ']');
}

static void put_cycle(pl_json_out *o, const loop *l, int n, const pl_bench_shape *s) {
    pl_put_array(o, "cycle");
    for (int i = 0; i < n; i++) {
        if (!l[i].ready || !l[i].n) continue;
        double seconds = median(l[i].seconds, l[i].n);
        bool   chain = strncmp(l[i].tree, "chain", 5) == 0, goal = l[i].head && chain && !s->layers;
        pl_json_out_object(o);
        pl_put_str(o, "head", l[i].name);
        pl_put_str(o, "tree", l[i].tree);
        pl_put_num(o, "seconds", seconds);
        pl_put_num(o, "target_seconds", median(l[i].target, l[i].n));
        pl_put_num(o, "draft_seconds", median(l[i].drafting, l[i].n));
        pl_put_num(o, "at_tau", l[i].tau);
        pl_put_num(o, "tokens_per_second", l[i].tau / seconds);
        pl_put_num(o, "bytes", l[i].bytes);
        pl_put_num(o, "floor_seconds", median(l[i].floor, l[i].n));
        pl_put_num(o, "measured_tau", pl_stats_acceptance(pl_session_statistics(l[i].session)));
        pl_bench_write_goal(o, "seconds", seconds, goal && strcmp(s->name, GOAL_SHAPE) == 0 ? GOAL_CYCLE : NAN, false);
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

// Shares of drafting. What a head takes beyond its bare product is softmax and top-k; where rows are listed there is no
// bare product, and the head is one part.
static void put_parts(pl_json_out *o, const loop *l, int n, const pl_bench_model *m) {
    pl_put_array(o, "parts");
    for (int i = 0; i < n; i++) {
        if (!l[i].ready || !l[i].n || !l[i].head) continue;
        bool                  wide = strncmp(l[i].tree, "chain", 5) != 0;
        const pl_bench_level *first = &l[i].head->level[0], *other = &l[i].head->level[wide];
        double                all = median(l[i].drafting, l[i].n), deeper = l[i].depth - 1;
        double                layer = deeper * part_seconds(other, PL_BENCH_LAYER);
        double                head = part_seconds(first, PL_BENCH_HEAD) + deeper * part_seconds(other, PL_BENCH_HEAD);
        double product = part_seconds(first, PL_BENCH_PRODUCT) + deeper * part_seconds(other, PL_BENCH_PRODUCT);
        if (!isfinite(product) || product > head) product = head;
        put_parts_row(o, l[i].head->name, l[i].tree, layer / all, product / all, (head - product) / all,
                      1 - (layer + head) / all);
    }
    put_parts_row(o, "full, FR-Spec fig. 6", m->deep_tree, 0.33, 0.49, 0.13, 0.05);
    pl_json_out_close(o, ']');
}

static void put_model(pl_json_out *o, const pl_bench_model *m, const pl_bench_shape *s) {
    double drafters = 0;
    for (int i = 0; i < m->n_heads; i++)
        drafters += (double)pl_params_bytes(&m->head[i].backbone->params);
    pl_put_object(o, "model");
    pl_put_str(o, "shape", s->name);
    pl_put_int(o, "layers", m->target.n_layers);
    pl_put_bool(o, "whole", !s->layers);
    pl_put_int(o, "context", m->context);
    pl_put_str(o, "kv", pl_weights_name(m->target.shape.kv));
    pl_put_num(o, "cache_bytes", (double)m->verify.kv.bytes);
    pl_put_num(o, "weights_bytes", (double)pl_params_bytes(&m->target.params));
    pl_put_num(o, "drafters_bytes", drafters);
    pl_put_num(o, "step_bytes", pl_llama_step_bytes(&m->target, m->context));
    pl_json_out_close(o, '}');
}

// ---- the bench ----

static int list_loops(loop *l, const pl_bench_model *m, const char *block) {
    int n = 0;
    l[n++] = (loop){.name = "plain", .tau = NAN};
    for (int deep = 0; deep < 2; deep++)
        for (int i = 0; i < m->n_heads; i++)
            l[n++] = (loop){.name = m->head[i].name,
                            .backbone = m->head[i].backbone,
                            .head = &m->head[i],
                            .tree = deep ? m->deep_tree : "chain:7",
                            .tau = deep ? 3.89 : 3.91};
    if (m->block) l[n++] = (loop){.name = block, .backbone = m->block, .tree = "chain:7", .tau = 3.91};
    return n;
}

pl_status pl_bench_put_shape(pl_json_out *o, pl_bench *b, const pl_bench_shape *s, pl_err *err) {
    pl_bench_model *m = pl_calloc(1, sizeof *m);
    loop           *l = pl_calloc(2 + 2 * PL_BENCH_HEADS, sizeof *l);
    int             n = 0;
    pl_status       st = m && l ? PL_OK : pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    if (st == PL_OK) st = pl_bench_model_make(m, b, s, err);
    if (st == PL_OK) n = list_loops(l, m, s->block);
    for (int i = 0; i < n; i++) {
        pl_err why = {0};
        if (open_loop(&l[i], b, m, &why) == PL_OK) continue;
        pl_bench_leave_out(b, l[i].name, &why);
        close_loop(&l[i]);
    }
    if (st == PL_OK) {
        if (s->repeats < b->rounds) b->rounds = s->repeats;
        pl_bench_time(b, m->c, m->n_cases);
        st = run_loops(l, n, b, m, s, err);
    }
    if (st == PL_OK) {
        put_model(o, m, s);
        put_plain(o, &l[0]);
        pl_bench_verify_write(o, &m->verify);
        put_draft(o, m);
        put_cycle(o, l + 1, n - 1, s);
        put_parts(o, l + 1, n - 1, m);
    }
    for (int i = 0; i < n; i++)
        close_loop(&l[i]);
    if (m) pl_bench_model_drop(m, b);
    pl_free(l);
    pl_free(m);
    return st;
}
