// Targets with gated delta nets against transformers' models: hidden states at the taps and logits of a text read whole
// and in any division, of a tree's nodes, and the text that they continue.
#include "tests/golden/delta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/drafter/backbone.h"
#include "infer/model/kv.h"
#include "kernels/base/arena.h"
#include "train/task/lm.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, TEXT = 72, KEPT = 12, CONTEXT = 21, NODES = 9, ROWS = 80, SLOTS = 256, VOCAB = 61 };
static const int taps[3] = {1, 2, 4};

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

// ---- rows over a cache ----

typedef struct decode {
    const pl_llama *m;
    pl_kv           kv;
    int32_t         id[SLOTS], pos[ROWS], path[NODES * NODES], first, rows;
    const int32_t  *parent; // NULL: a chain
    pl_kvrow        row[LAYERS * ROWS];
    pl_llama_out    out;
    pl_tensor       logits, features;
} decode;

static void run_decode(pl_ctx *ctx, void *arg) {
    decode *d = arg;
    for (int32_t i = 0; i < d->rows && !ctx->measuring; i++) {
        int32_t *path = d->parent ? d->path + (ptrdiff_t)i * NODES : NULL, n = 0, up[NODES];
        for (int32_t k = i; d->parent && k >= 0; k = d->parent[k])
            up[n++] = k;
        for (int32_t k = 0; k < n; k++)
            path[k] = d->first + up[n - 1 - k];
        d->pos[i] = d->first + (d->parent ? n - 1 : i);
        pl_kv_row(&d->kv, &d->row[i], d->rows, d->first, path, d->parent ? n : i + 1, d->first + i);
    }
    pl_view view = {.pos = d->pos, .cos = d->m->cos, .sin = d->m->sin, .row = d->row, .m = d->rows};
    pl_llama_forward(ctx, d->m, d->id + d->first, d->rows, &view, taps, 3, &d->out);
    d->logits = pl_llama_logits(ctx, d->m, d->out.hidden);
    d->features = pl_features(ctx, &d->out, 3);
}

static void step(pl_ctx *ctx, decode *d, int32_t first, int32_t rows) {
    pl_err err;
    d->first = first;
    d->rows = rows;
    pl_ctx_begin(ctx);
    run_decode(ctx, d);
    must(pl_ctx_sync(ctx, &err), &err);
}

static void open_decode(decode *d, pl_llama *m, pl_ctx *ctx, const char *dir, pl_dtype t, const pl_backend *be) {
    pl_err err;
    memset(d, 0, sizeof *d);
    must(pl_llama_open(m, dir, t, be, &err), &err);
    d->m = m;
    must(pl_kv_create(&d->kv, LAYERS, SLOTS, &m->shape, be, &err), &err);
    must(pl_recurrent_keep(&d->kv.state, NODES, &err), &err);
    must(pl_ctx_init(ctx, be, NULL), &err);
    d->rows = ROWS;
    must(pl_ctx_measure(ctx, run_decode, d, &err), &err);
}

static void close_decode(decode *d, pl_llama *m, pl_ctx *ctx) {
    pl_ctx_fini(ctx);
    pl_kv_destroy(&d->kv);
    pl_llama_fini(m);
}

static pl_tensor last_rows(const pl_tensor *t, int64_t from, int64_t n) {
    pl_tensor r = *t;
    r.data = pl_f32(t) + from * t->dim[1];
    r.dim[0] = n;
    return r;
}

// The text's kept rows, of which the last step had some.
static void expect_rows(golden *g, const pl_backend *be, const decode *d) {
    int32_t from = d->first < TEXT - KEPT ? TEXT - KEPT : d->first, n = d->first + d->rows - from;
    if (n <= 0) return;
    for (int i = 0; i < 3; i++)
        golden_expect_rows(g, be, last_rows(&d->out.tap[i], from - d->first, n), from - (TEXT - KEPT), "hidden/%d",
                           taps[i]);
    golden_expect_rows(g, be, last_rows(&d->logits, from - d->first, n), from - (TEXT - KEPT), "logits");
    // Features are the taps side by side, rounded to bf16.
    for (int64_t r = from - d->first; r < d->rows; r++)
        for (int64_t c = 0; c < d->features.dim[1]; c++) {
            int64_t width = d->m->shape.d;
            float   x = pl_f32(&d->out.tap[c / width])[r * width + c % width];
            assert_true(pl_f32(&d->features)[r * d->features.dim[1] + c] == pl_round_bf16(x));
        }
}

static void read_text(golden *g, const char *dir, pl_dtype t, const pl_backend *be, int32_t first, int32_t then) {
    pl_llama m;
    pl_ctx   ctx;
    decode  *d = golden_room(be, sizeof *d);
    open_decode(d, &m, &ctx, dir, t, be);
    memcpy(d->id, golden_ints(g, TEXT, "text"), TEXT * sizeof *d->id);
    for (int32_t at = 0, n; at < TEXT; at += n) {
        n = at == 0 ? first : then;
        if (n > TEXT - at) n = TEXT - at;
        step(&ctx, d, at, n);
        expect_rows(g, be, d);
    }
    close_decode(d, &m, &ctx);
    golden_release();
}

// A tree behind a context; then a node's path is accepted, and the text goes on behind it as without the tree.
static void tree_and_replay(golden *g, const char *dir, const pl_backend *be) {
    static const int32_t path[] = {0, 2, 5, 6, 8}, n = 5;
    pl_llama             m;
    pl_ctx               ctx;
    decode              *d = golden_room(be, sizeof *d);
    int32_t              slot[NODES];
    static float         want[VOCAB];
    open_decode(d, &m, &ctx, dir, PL_F32, be);
    const int32_t *text = golden_ints(g, TEXT, "text"), *token = golden_ints(g, NODES, "tree/tokens");
    memcpy(d->id, text, CONTEXT * sizeof *d->id);
    step(&ctx, d, 0, CONTEXT);
    memcpy(d->id + CONTEXT, token, NODES * sizeof *d->id);
    d->parent = golden_ints(g, NODES, "tree/parent");
    step(&ctx, d, CONTEXT, NODES);
    golden_expect(g, be, d->logits, "tree/logits");
    for (int i = 0; i < n; i++) {
        slot[i] = CONTEXT + path[i];
        d->id[CONTEXT + i] = token[path[i]];
    }
    pl_kv_move(&ctx, &d->kv, CONTEXT, slot, n);
    d->parent = NULL;
    d->id[CONTEXT + n] = 7;
    step(&ctx, d, CONTEXT + n, 1);
    memcpy(want, pl_f32(&d->logits), sizeof want);
    step(&ctx, d, 0, CONTEXT + n + 1);
    assert_memory_equal(want, pl_f32(&d->logits) + (CONTEXT + n) * VOCAB, sizeof want);
    close_decode(d, &m, &ctx);
    golden_release();
}

static void continue_text(golden *g, const char *dir, const pl_backend *be) {
    pl_llama      m;
    pl_ctx        ctx;
    decode       *d = golden_room(be, sizeof *d);
    golden_entry *prompt = golden_at(g, "greedy/prompt"), *text = golden_at(g, "greedy/text");
    open_decode(d, &m, &ctx, dir, PL_F32, be);
    assert_true(text->count < SLOTS && text->count == prompt->count + 200);
    memcpy(d->id, prompt->data, (size_t)prompt->count * sizeof *d->id);
    step(&ctx, d, 0, (int32_t)prompt->count);
    for (int32_t at = (int32_t)prompt->count; at < text->count; at++) {
        const float *z = pl_f32(&d->logits) + (int64_t)(d->rows - 1) * VOCAB;
        int32_t      best = 0, said = ((const int32_t *)text->data)[at];
        for (int32_t v = 1; v < VOCAB; v++)
            if (z[v] > z[best]) best = v;
        if (best != said) fail_msg("%s on %s: token %d is %d, not %d", g->name, be->name, (int)at, best, said);
        d->id[at] = best;
        step(&ctx, d, at, 1);
    }
    close_decode(d, &m, &ctx);
    golden_release();
}

static void check_model(const char *name) {
    golden            g;
    char              dir[64];
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    golden_open(&g, name);
    golden_mkdir(&g, dir);
    golden_delta_write(&g, dir, "", "");
    for (int i = 1; i < n; i++) { // models for inference are fp32
        pl_err   err;
        pl_llama m;
        if (!be[i]->fwd[PL_OP_EXPERTS] && strstr(name, "moe")) {
            assert_int_equal(pl_llama_open(&m, dir, PL_F32, be[i], &err), PL_E_UNSUPPORTED);
            assert_non_null(strstr(err.msg, "has experts, which"));
            continue;
        }
        read_text(&g, dir, PL_F32, be[i], 7, 5);
        tree_and_replay(&g, dir, be[i]);
        if (golden_on_device(be[i])) continue; // an emulated one takes long for more
        read_text(&g, dir, PL_F32, be[i], TEXT, 1);
        read_text(&g, dir, PL_F32, be[i], 1, 1);
        continue_text(&g, dir, be[i]);
        g.slack = 4 * GOLDEN_BF16; // the weights are the same numbers, but x is rounded
        if (!strstr(name, "moe")) read_text(&g, dir, PL_BF16, be[i], 7, 5);
        g.slack = 0;
    }
    golden_rmdir(dir);
    golden_close(&g);
}

static void qwen3_next(void **state) {
    (void)state;
    check_model("qwen3_next");
}

static void qwen3_next_moe(void **state) {
    (void)state;
    check_model("qwen3_next_moe");
}

static void qwen3_5_moe(void **state) {
    (void)state;
    check_model("qwen3_5_moe");
}

static void qwen3_5(void **state) {
    (void)state;
    check_model("qwen3_5");
}

// Learning has no backward through a recurrence.
static void not_trained(void **state) {
    (void)state;
    golden        g;
    pl_err        err;
    pl_hf_config  c;
    pl_lm         lm;
    pl_lm_options o = {.backend = pl_backend_cpu(), .capacity = ROWS, .round_to = PL_F32};
    golden_open(&g, "qwen3_5");
    golden_config(&g, &c);
    assert_int_equal(pl_lm_create(&lm, &c, &o, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "Qwen3_5ForCausalLM is decoded and learned from, not trained: it has recurrent"));
    golden_close(&g);
}

// Qwen3.5 as published: the text part of a model that reads images, with a layer for drafting beside it.
static void qwen3_5_wrapped(void **state) {
    (void)state;
    golden g;
    char   dir[64], path[96];
    pl_err err;
    golden_open(&g, "qwen3_5");
    golden_mkdir(&g, dir);
    golden_entry *config = golden_at(&g, "config.json");
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"architectures\":[\"Qwen3_5ForConditionalGeneration\"],\"model_type\":\"qwen3_5\",\"text_config\":");
    fwrite(config->data, 1, (size_t)config->count, f);
    fputs(",\"tie_word_embeddings\":true}", f);
    assert_int_equal(fclose(f), 0);
    golden_delta_write(&g, dir, "model.", "model.language_model.");
    read_text(&g, dir, PL_F32, pl_backend_cpu(), 7, 5);
    pl_hf_config c;
    must(pl_hf_config_read(&c, dir, PL_HF_TARGET, &err), &err);
    assert_string_equal(c.architecture, "Qwen3_5ForConditionalGeneration");
    golden_rmdir(dir);
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3_next),  cmocka_unit_test(qwen3_next_moe),  cmocka_unit_test(qwen3_5),
        cmocka_unit_test(qwen3_5_moe), cmocka_unit_test(qwen3_5_wrapped), cmocka_unit_test(not_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
