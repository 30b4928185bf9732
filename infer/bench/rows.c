#include "infer/bench/rows.h"

#include "kernels/base/json_put.h"
#include "kernels/op/linear.h"
#include "kernels/op/topk.h"

#include <math.h>
#include <stdio.h>

#define GOAL_VERIFY 1.15 // over one row

enum { WIDE = PL_BENCH_WIDE, DEEP = PL_BENCH_DEEP };

// ---- rows of one session ----

static size_t view_bytes(int layers, int rows) {
    return sizeof(pl_bench_view) + (size_t)layers * (size_t)rows * sizeof(pl_kvrow);
}

pl_bench_view *pl_bench_view_make(pl_bench *b, const pl_kv *kv, int rows, int wide, int context, int64_t vocab) {
    pl_bench_view *v = pl_bench_shared(b, view_bytes(kv->layers, rows));
    for (int i = 0; v && i < rows; i++) {
        int n = 1, up[DEEP] = {i};
        for (; wide > 0 && up[n - 1] > 0; n++)
            up[n] = up[n - 1] > wide ? up[n - 1] - wide : 0;
        for (int k = 0; k < n; k++)
            v->path[i][k] = context + up[n - 1 - k];
        v->id[i] = (int32_t)((int64_t)(i + 1) * 7919 % vocab);
        v->pos[i] = context + n - 1;
        pl_kv_row(kv, &v->row[i], rows, context, v->path[i], n, context + i);
    }
    return v;
}

void pl_bench_view_drop(pl_bench *b, pl_bench_view *v, const pl_kv *kv, int rows) {
    pl_bench_drop_shared(b, v, view_bytes(kv->layers, rows));
}

pl_status pl_bench_cache_make(pl_kv *kv, pl_bench *b, int layers, int context, const pl_layer_shape *s, pl_err *err) {
    PL_TRY(pl_kv_create(kv, layers, context + PL_BENCH_ROWS, s, b->env->backend, err));
    pl_bench_fill(b, kv->block, kv->bytes);
    return pl_ctx_sync(&b->ctx, err);
}

// ---- the target's forward ----

size_t pl_bench_read_bytes(const pl_llama *target) {
    double step = pl_llama_step_bytes(target, 0);
    return step < (double)target->params.block_bytes ? (size_t)step : target->params.block_bytes;
}

static void forward(pl_ctx *ctx, void *arg) {
    struct pl_bench_forward *f = arg;
    const pl_llama          *t = f->of->target;
    pl_llama_out             out = {0};
    pl_view view = {.pos = f->view->pos, .cos = t->cos, .sin = t->sin, .row = f->view->row, .m = f->rows};
    pl_llama_forward(ctx, t, f->view->id, f->rows, &view, NULL, 0, &out);
    pl_tensor logits = pl_llama_logits(ctx, t, out.hidden);
    pl_topk(ctx, &(pl_topk_args){.x = logits, .id = f->view->choice, .k = 1});
}

pl_status pl_bench_verify_make(pl_bench_verify *v, pl_bench *b, const pl_llama *target, int context, pl_bench_case *c,
                               pl_err *err) {
    static const int rows[PL_BENCH_VERIFY] = {1, 2, 4, 8, 16, 32, PL_BENCH_ROWS};
    v->target = target;
    PL_TRY(pl_llama_reach(target, context + PL_BENCH_ROWS, err));
    PL_TRY(pl_bench_cache_make(&v->kv, b, target->n_layers, context, &target->shape, err));
    for (int i = 0; i < PL_BENCH_VERIFY; i++, c++) {
        struct pl_bench_forward *f = &v->forward[i];
        *f = (struct pl_bench_forward){.of = v, .rows = rows[i], .c = c};
        f->view = pl_bench_view_make(b, &v->kv, f->rows, WIDE, context, target->vocab);
        if (!f->view) return pl_fail(err, PL_E_MEMORY, "bench: out of memory");
        snprintf(c->name, sizeof c->name, "verify %d rows", f->rows);
        c->step = forward;
        c->arg = f;
        c->bytes = pl_llama_step_bytes(target, context);
        c->flops = f->rows * pl_llama_step_bytes(target, 0); // a product and a sum for each value of two bytes
        c->factors = PL_BF16;
        c->memory = target->params.block;
        c->memory_bytes = pl_bench_read_bytes(target);
        pl_bench_ready(b, c);
    }
    return PL_OK;
}

void pl_bench_verify_drop(pl_bench_verify *v, pl_bench *b) {
    for (int i = 0; i < PL_BENCH_VERIFY; i++)
        if (v->forward[i].view) pl_bench_view_drop(b, v->forward[i].view, &v->kv, v->forward[i].rows);
    pl_kv_destroy(&v->kv);
}

void pl_bench_verify_write(pl_json_out *o, const pl_bench_verify *v) {
    double one = pl_bench_seconds(v->forward[0].c);
    pl_put_array(o, "verify");
    for (int i = 0; i < PL_BENCH_VERIFY; i++) {
        const pl_bench_case *c = v->forward[i].c;
        if (!c->ready) continue;
        double over = pl_bench_seconds(c) / one;
        pl_json_out_object(o);
        pl_put_int(o, "rows", v->forward[i].rows);
        pl_put_num(o, "seconds", pl_bench_seconds(c));
        pl_put_num(o, "bytes", c->bytes);
        pl_bench_write_pairs(o, &(pl_bench_pairs){c->seconds, c->floor, c->n});
        pl_bench_write_goal(o, "over_one_row", over, i ? GOAL_VERIFY : NAN, false);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}
