// bench: rows over a cache of keys, as decoding and verifying have them.
#include "kernels/op/attention.h"
#include "infer/bench/parts.h"
#include "infer/model/target.h"
#include "kernels/base/json_put.h"

#include <stdio.h>

enum { HEAD_DIM = 128, QUERIES = 4, MOST_ROWS = 60 }; // queries that share a key head

typedef struct cached {
    pl_tensor qkv;
    pl_kvrow *row;                 // [copies][rows]
    void     *kv;                  // [copies] caches, read in turn
    size_t    qkv_bytes, kv_bytes; // kv: of one
    int       copies, turn, rows, keys, nh, nkv;
} cached;

static void attention_step(pl_ctx *ctx, void *arg) {
    cached *a = arg;
    pl_attention_cached(ctx, a->qkv, a->row + (size_t)a->turn * (size_t)a->rows, a->nh, a->nkv, HEAD_DIM);
    a->turn = (a->turn + 1) % a->copies;
}

// `rows` of a chain whose last one sees `keys` keys.
static bool make(pl_bench *b, cached *a, int rows, int keys, int64_t width, pl_dtype kv) {
    *a = (cached){.rows = rows, .keys = keys, .nh = (int)(width / HEAD_DIM)};
    a->nkv = a->nh / QUERIES;
    size_t one = (size_t)keys * (size_t)(a->nkv * HEAD_DIM) * pl_dtype_size(kv);
    a->kv_bytes = 2 * one;
    if (a->nkv < 1 || (double)a->kv_bytes > b->max_bytes) return false;
    a->copies = pl_bench_copies(b, a->kv_bytes);
    a->kv = pl_bench_block(b, (size_t)a->copies * a->kv_bytes);
    a->row = pl_bench_shared(b, (size_t)(a->copies * rows) * sizeof *a->row);
    if (!a->kv || !a->row || !pl_bench_input(b, &a->qkv, &a->qkv_bytes, rows, (a->nh + 2 * a->nkv) * HEAD_DIM))
        return false;
    for (int i = 0; i < a->copies * rows; i++) {
        uint8_t *k = (uint8_t *)a->kv + (size_t)(i / rows) * a->kv_bytes;
        int      m = i % rows;
        a->row[i] = (pl_kvrow){
            .k = k, .v = k + one, .n_ctx = keys - rows, .n_path = m + 1, .slot = keys - rows + m, .dtype = kv};
    }
    return true;
}

static double cache_bytes(const pl_bench *b, int keys, int64_t width, pl_dtype kv) {
    size_t bytes = 2 * (size_t)keys * (size_t)(width / HEAD_DIM / QUERIES * HEAD_DIM) * pl_dtype_size(kv);
    return (double)bytes > b->max_bytes ? 0 : (double)bytes * pl_bench_copies(b, bytes);
}

pl_status pl_bench_put_attention(pl_json_out *o, pl_bench *b, int64_t width, pl_dtype kv, pl_err *err) {
    static const int rows[] = {1, 8, MOST_ROWS}, keys[] = {128, 1024, 8192};
    enum { N = 9 };
    cached a[N] = {0};
    double bytes = 0;
    for (int i = 0; i < N; i++)
        bytes += cache_bytes(b, keys[i / 3], width, kv);
    PL_TRY(pl_bench_room(b, bytes, "attention: the caches",
                         "lower --hidden, or --max-mb, above which a cache is left out", err));
    pl_bench_case *c = pl_bench_cases(N, err);
    if (!c) return PL_E_MEMORY;
    for (int i = 0; i < N; i++) {
        if (!make(b, &a[i], rows[i % 3], keys[i / 3], width, kv)) continue;
        snprintf(c[i].name, sizeof c[i].name, "%d rows over %d keys", a[i].rows, a[i].keys);
        c[i].step = attention_step;
        c[i].arg = &a[i];
        c[i].bytes = (double)a[i].kv_bytes;
        c[i].flops = 4.0 * a[i].rows * a[i].keys * a[i].nh * HEAD_DIM;
        c[i].memory = a[i].kv;
        c[i].memory_bytes = a[i].kv_bytes;
        pl_bench_ready(b, &c[i]);
    }
    pl_bench_time(b, c, N);
    pl_put_array(o, "attention");
    for (int i = 0; i < N; i++) {
        if (!c[i].ready) continue;
        pl_json_out_object(o);
        pl_put_str(o, "name", c[i].name);
        pl_put_int(o, "rows", a[i].rows);
        pl_put_int(o, "keys", a[i].keys);
        pl_put_int(o, "heads", a[i].nh);
        pl_put_int(o, "kv_heads", a[i].nkv);
        pl_put_str(o, "kv", pl_weights_name(kv));
        pl_bench_write(o, &c[i]);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
    for (int i = 0; i < N; i++) {
        pl_bench_done(&c[i]);
        pl_bench_drop(b, a[i].qkv.data, a[i].qkv_bytes);
        pl_bench_drop(b, a[i].kv, (size_t)a[i].copies * a[i].kv_bytes);
        pl_bench_drop_shared(b, a[i].row, (size_t)(a[i].copies * a[i].rows) * sizeof *a[i].row);
    }
    pl_free(c);
    return PL_OK;
}
