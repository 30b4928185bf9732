#include "infer/bench/predict.h"

#include "infer/bench/model.h"
#include "kernels/base/check.h"
#include "kernels/base/json_put.h"
#include "kernels/base/log.h"
#include "kernels/cuda/predict/predict.h"
#include "kernels/cuda/predict/published.h"

#include <stdio.h>

#define CHAIN 7

pl_status pl_bench_prediction_done(pl_prediction *p, pl_status st, const char *name, pl_err *err) {
    pl_predict_end(p);
    if (st != PL_OK || !p->left) return st;
    return pl_fail(err, PL_E_INTERNAL, "bench: %s: %lld launches beyond %d, of %d kinds", name, (long long)p->left,
                   PL_PREDICT_LAUNCHES, PL_PREDICT_KERNELS);
}

static pl_status record(pl_prediction *p, pl_bench_case *c, pl_err *err) {
    if (!c->ready) return pl_fail(err, PL_E_MEMORY, "bench: %s: no memory", c->name);
    pl_predict_begin(p);
    pl_ctx_begin(&c->ctx);
    c->step(&c->ctx, c->arg);
    return pl_bench_prediction_done(p, pl_ctx_sync(&c->ctx, err), c->name, err);
}

static void put_kernel(pl_json_out *o, const pl_predicted_kernel *k, double times) {
    const double n = times * (double)k->launches;
    pl_json_out_object(o);
    pl_put_str(o, "op", k->op);
    pl_put_num(o, "launches", n);
    pl_put_int(o, "blocks", k->blocks);
    pl_put_int(o, "threads", k->threads);
    pl_put_num(o, "seconds", n * k->seconds[PL_CENTRAL]);
    pl_put_num(o, "pessimistic", n * k->seconds[PL_PESSIMISTIC]);
    pl_put_num(o, "early_seconds", times * k->early_seconds[PL_CENTRAL]);
    pl_put_str(o, "limiter", k->limiter);
    pl_put_num(o, "bytes", n * k->bytes);
    pl_put_int(o, "skimmed", k->c.seen);
    pl_put_int(o, "timed", k->c.sampled);
    pl_put_num(o, "sectors_a_request", k->c.requests > 0 ? k->c.sectors / k->c.requests : 0);
    pl_put_num(o, "wavefronts_a_request", k->c.shared > 0 ? k->c.wavefronts / k->c.shared : 0);
    pl_put_num(o, "rounds", k->c.most_rounds);
    pl_put_num(o, "path_seconds", k->c.most_path[PL_CENTRAL]);
    pl_put_num(o, "nothing_in_flight", k->c.path[PL_CENTRAL] > 0 ? k->c.idle[PL_CENTRAL] / k->c.path[PL_CENTRAL] : 0);
    pl_put_num(o, "lead_seconds", k->c.lead[PL_CENTRAL]);
    pl_put_num(o, "trail_seconds", k->c.trail[PL_CENTRAL]);
    pl_put_num(o, "products", k->c.products);
    pl_json_out_close(o, '}');
}

void pl_bench_put_prediction(pl_json_out *o, const char *name, const pl_bench_predicted *parts, int n, double least,
                             double flops) {
    double seconds[2] = {0}, early[2] = {0}, launches = 0, bytes = 0;
    for (int i = 0; i < n; i++) {
        for (int how = 0; how < 2; how++) {
            seconds[how] += parts[i].times * parts[i].p->seconds[how];
            early[how] += parts[i].times * parts[i].p->early_seconds[how];
        }
        for (int k = 0; k < parts[i].p->n; k++) {
            const pl_predicted_kernel *of = &parts[i].p->k[k];
            const double               each = parts[i].times * (double)of->launches;
            launches += each;
            bytes += each * of->bytes;
        }
    }
    pl_json_out_object(o);
    pl_put_str(o, "step", name);
    pl_put_num(o, "seconds", seconds[PL_CENTRAL]);
    pl_put_num(o, "pessimistic", seconds[PL_PESSIMISTIC]);
    pl_put_num(o, "early_seconds", early[PL_CENTRAL]);
    pl_put_num(o, "early_pessimistic", early[PL_PESSIMISTIC]);
    pl_put_num(o, "launches", launches);
    pl_put_num(o, "bytes", bytes);
    if (flops > 0) {
        pl_put_num(o, "flops", flops);
        pl_put_num(o, "flops_per_second", flops / seconds[PL_CENTRAL]);
    } else {
        const double floor = least / pl_gpu(PL_GPU_COPY, PL_CENTRAL);
        pl_put_num(o, "least_bytes", least);
        pl_put_num(o, "over_least_bytes", bytes / least);
        pl_put_num(o, "share_of_copy", floor / seconds[PL_CENTRAL]);
        pl_put_num(o, "share_pessimistic", floor / seconds[PL_PESSIMISTIC]);
        pl_put_num(o, "share_early", floor / early[PL_CENTRAL]);
    }
    pl_put_array(o, "kernels");
    for (int i = 0; i < n; i++)
        for (int k = 0; k < parts[i].p->n; k++)
            put_kernel(o, &parts[i].p->k[k], parts[i].times);
    pl_json_out_close(o, ']');
    pl_json_out_close(o, '}');
}

// What others have measured, and what the model says of it; five of the figures share a source with constants
static void put_published(pl_json_out *o) {
    pl_put_array(o, "published");
    for (int i = 0; i < pl_published_n; i++) {
        const pl_published p = pl_published_at(i);
        pl_json_out_object(o);
        pl_put_str(o, "name", p.name);
        pl_put_num(o, "published", p.seconds);
        pl_put_num(o, "predicted", p.predicted[PL_CENTRAL]);
        pl_put_num(o, "pessimistic", p.predicted[PL_PESSIMISTIC]);
        pl_put_num(o, "error", pl_published_error(&p));
        pl_put_str(o, "limiter", p.limiter);
        pl_put_str(o, "source", p.source);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

// compared: with published figures, whose errors follow; measured: on a GPU, these kernels.
void pl_bench_put_constants(pl_json_out *o) {
    pl_put_bool(o, "compared", true);
    pl_put_bool(o, "measured", false);
    put_published(o);
    pl_put_array(o, "constants");
    for (int i = 0; i < pl_gpu_constants_n; i++) {
        const pl_gpu_constant *c = &pl_gpu_constants[i];
        pl_json_out_object(o);
        pl_put_str(o, "name", c->name);
        pl_put_str(o, "unit", c->unit);
        pl_put_num(o, "central", c->central);
        pl_put_num(o, "low", c->low);
        pl_put_num(o, "high", c->high);
        pl_put_str(o, "source", c->source);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

// The target over a chain and its root.
static pl_status record_chain(pl_prediction *p, pl_bench *b, pl_bench_model *m, pl_err *err) {
    struct pl_bench_forward *f = &m->verify.forward[3];
    pl_bench_view           *tree = f->view;
    PL_CHECK(f->rows == CHAIN + 1 && f->rows <= PL_BENCH_DEEP, "%d rows of a chain of %d", f->rows, CHAIN);
    f->view = pl_bench_view_make(b, &m->verify.kv, f->rows, 1, m->context, m->target.vocab);
    pl_status st = f->view ? record(p, f->c, err) : pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    if (f->view) pl_bench_view_drop(b, f->view, &m->verify.kv, f->rows);
    f->view = tree;
    return st;
}

static pl_status put_steps(pl_json_out *o, pl_bench *b, pl_bench_model *m, pl_prediction *p, pl_err *err) {
    enum { ONE, EIGHT, DEEP, LEVEL };
    PL_TRY(record(&p[ONE], m->verify.forward[0].c, err));
    PL_TRY(record_chain(&p[EIGHT], b, m, err));
    PL_TRY(record(&p[DEEP], m->verify.forward[PL_BENCH_VERIFY - 1].c, err));
    const double least = m->verify.forward[0].c->bytes;
    pl_put_array(o, "predicted");
    pl_bench_put_prediction(o, "plain", &(pl_bench_predicted){&p[ONE], 1}, 1, least, 0);
    pl_bench_put_prediction(o, "verify 60 rows", &(pl_bench_predicted){&p[DEEP], 1}, 1, least, 0);
    for (int i = 0; i < m->n_heads; i++) {
        const pl_bench_case *level = m->head[i].level[0].part[PL_BENCH_LEVEL];
        char                 name[80];
        PL_TRY(record(&p[LEVEL], m->head[i].level[0].part[PL_BENCH_LEVEL], err));
        snprintf(name, sizeof name, "cycle of %d, %s", CHAIN, m->head[i].name);
        pl_bench_put_prediction(o, name, (pl_bench_predicted[]){{&p[LEVEL], CHAIN}, {&p[EIGHT], 1}}, 2,
                                least + CHAIN * level->bytes, 0);
    }
    pl_json_out_close(o, ']');
    pl_bench_put_constants(o);
    return PL_OK;
}

pl_status pl_bench_counted(pl_env *counted, const pl_env *env, pl_err *err) {
    *counted = *env;
    counted->backend = pl_backend_counted();
    if (!counted->backend)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "--predict: this build has no counted kernels; build with GCC, without a "
                       "sanitizer");
    pl_log_warn("--predict: by a model that has met others' measurements, none of these kernels");
    return PL_OK;
}

pl_status pl_bench_put_predicted(pl_json_out *o, const pl_env *env, const pl_bench_shape *s, pl_err *err) {
    pl_env          counted;
    pl_bench        b;
    pl_bench_model *m = pl_calloc(1, sizeof *m);
    pl_prediction  *p = pl_calloc(4, sizeof *p);
    pl_status       st = m && p ? PL_OK : pl_fail(err, PL_E_MEMORY, "bench: out of memory");
    if (st == PL_OK) st = pl_bench_counted(&counted, env, err);
    if (st == PL_OK && (st = pl_bench_open(&b, &counted, 1 << 20, err)) == PL_OK) {
        st = pl_bench_model_make(m, &b, s, err);
        if (st == PL_OK) st = put_steps(o, &b, m, p, err);
        pl_bench_model_drop(m, &b);
        pl_bench_close(&b);
    }
    pl_free(p);
    pl_free(m);
    return st;
}
