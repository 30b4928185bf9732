// inspect: how a target's matrices are quantised, and what bf16 makes of them.
#include "checkpoints/quant.h"
#include "infer/inspect/parts.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GRAINS = 16,
    SAMPLE = 16 // rows of each matrix whose rounding is measured
};

// Matrices of one code and grain.
typedef struct group {
    const char     *code;
    pl_weight_grain grain;
    int64_t         matrices;
} group;

typedef struct tally {
    group   group[GRAINS];
    int     n;
    int64_t quantised, plain;
    double  squares, errors; // sums over the rows measured: of values, of their differences from bf16
} tally;

static void count(tally *t, const pl_weight_entry *e) {
    pl_weight_grain g = e->code->grain(e);
    int             i = 0;
    while (i < t->n && (strcmp(t->group[i].code, e->code->name) != 0 || t->group[i].grain.bits != g.bits ||
                        t->group[i].grain.rows != g.rows || t->group[i].grain.cols != g.cols))
        i++;
    t->quantised++;
    if (i == GRAINS) return; // the total counts on
    if (i == t->n) t->group[t->n++] = (group){.code = e->code->name, .grain = g};
    t->group[i].matrices++;
}

// Measures rows in the middle of a matrix, or all.
static pl_status measure(tally *t, const pl_weight_source *src, const pl_weight_entry *e, bool all, pl_err *err) {
    int64_t        rows = e->shape[0], cols = e->shape[1], first = all || rows < SAMPLE ? 0 : (rows - SAMPLE) / 2;
    int64_t        end = all || rows < SAMPLE ? rows : first + SAMPLE;
    pl_weight_spec spec = {.part = {{e->name, rows}}, .n_parts = 1, .rows = rows, .cols = cols};
    float         *v = pl_malloc(pl_size_mul(SAMPLE, (size_t)cols, sizeof *v));
    pl_status      st = v ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", e->name);
    for (int64_t r = first; r < end && st == PL_OK; r += SAMPLE) {
        int64_t n = end - r < SAMPLE ? end - r : SAMPLE;
        st = pl_weight_read_rows(src, &spec, r, n, v, err);
        for (int64_t i = 0; i < n * cols && st == PL_OK; i++) {
            double d = (double)v[i] - (double)pl_round_bf16(v[i]);
            t->squares += (double)v[i] * (double)v[i];
            t->errors += d * d;
        }
    }
    pl_free(v);
    return st;
}

static void put_groups(pl_json_out *o, const tally *t) {
    pl_put_array(o, "encodings");
    for (int i = 0; i < t->n; i++) {
        const group *g = &t->group[i];
        pl_json_out_object(o);
        pl_put_str(o, "encoding", g->code);
        pl_put_int(o, "bits", g->grain.bits);
        pl_put_int(o, "group_rows", g->grain.rows);
        pl_put_int(o, "group_columns", g->grain.cols);
        pl_put_int(o, "matrices", g->matrices);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

static void put_quantised(pl_json_out *o, const tally *t, const pl_quant *q) {
    const char *also = q->activations && q->cache ? "activations and caches"
                       : q->activations           ? "activations"
                       : q->cache                 ? "caches"
                                                  : NULL;
    pl_put_object(o, "quantised");
    pl_put_str(o, "format", *q->name ? q->name : t->n == 1 ? t->group[0].code : "mixed");
    put_groups(o, t);
    pl_put_int(o, "quantised_matrices", t->quantised);
    pl_put_int(o, "plain_matrices", t->plain);
    pl_put_num(o, "bf16_relative_error", t->squares > 0 ? sqrt(t->errors / t->squares) : 0);
    if (also) {
        char text[128];
        snprintf(text, sizeof text, "quantise %s too, which is not imitated: their logits differ", also);
        pl_put_str(o, "engines", text);
    }
    pl_json_out_close(o, '}');
}

pl_status pl_inspect_quantised(pl_json_out *o, const char *path, const pl_weight_source *src, bool all, pl_err *err) {
    tally    t = {0};
    pl_quant q = {0};
    pl_json  config = {0};
    for (int64_t i = 0; i < pl_weight_source_count(src); i++) {
        const pl_weight_entry *e = pl_weight_source_at(src, i);
        t.plain += !e->code && e->rank == 2;
        if (!e->code || !e->code->grain) continue;
        count(&t, e);
        PL_TRY(measure(&t, src, e, all, err));
    }
    if (t.quantised == 0) return PL_OK;
    pl_status st = pl_path_is_dir(path) ? pl_quant_read(&q, &config, path, err) : PL_OK;
    if (st == PL_OK) put_quantised(o, &t, &q);
    pl_json_close(&config);
    return st;
}
