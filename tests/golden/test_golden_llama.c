// Targets against transformers' models of the same family: hidden states, logits, gradients; packed and decoding as
// well, on texts longer than the families' windows, row by row, in chunks and in trees; texts that they continue.
#include "tests/golden/experts.h"
#include "tests/golden/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoints/safetensors.h"
#include "infer/drafter/backbone.h"
#include "infer/model/kv.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/op/linear.h"
#include "kernels/op/rope.h"
#include "train/task/lm.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, ROWS = 32, VOCAB = 97 };
static const int taps[LAYERS] = {1, 2, 3}; // the first layer's input is the embedding's rows

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

static const int32_t *window(golden *g, int i, int64_t *n) {
    golden_entry *e = golden_at(g, "window/%d", i);
    assert_int_equal(e->dtype, PL_I32);
    *n = e->count - 1; // the last id is a label only
    return e->data;
}

// ---- under training ----

typedef struct forward {
    const pl_llama *m;
    pl_lm          *lm; // its rows
    int64_t         rows;
    pl_llama_out    out;
    pl_tensor       logits, features;
} forward;

static void run_forward(pl_ctx *ctx, void *arg) {
    forward *f = arg;
    pl_view  view = {
         .pos = f->lm->pos, .cos = f->m->cos, .sin = f->m->sin, .lo = f->lm->lo, .lo_window = f->lm->lo_window};
    pl_llama_forward(ctx, f->m, f->lm->id, f->rows, &view, taps, LAYERS, &f->out);
    f->logits = pl_llama_logits(ctx, f->m, f->out.hidden);
    f->features = pl_features(ctx, &f->out, LAYERS);
}

// The stored features: the taps side by side in their order, each value rounded to the nearest bf16.
static void check_features(golden *g, const pl_tensor *f, int64_t d, double grain) {
    for (int64_t row = 0; row < f->dim[0]; row++)
        for (int k = 0; k < LAYERS; k++) {
            const double *want = golden_reals(g, f->dim[0] * d, "hidden/%d", taps[k]);
            for (int64_t i = 0; i < d; i++) {
                int64_t at = row * f->dim[1] + k * d + i;
                double  w = want[row * d + i], x = f->dtype == PL_F64 ? pl_f64(f)[at] : (double)pl_f32(f)[at];
                assert_true(pl_round_bf16((float)x) == (float)x);
                assert_true(fabs(x - w) <= (1.0 / 256 + 1e-5) * fabs(w) + grain);
            }
        }
}

static void learn_on(golden *g, int windows, const pl_backend *be) {
    pl_err        err;
    pl_hf_config  c;
    pl_lm         lm;
    pl_lm_sums    sums;
    pl_ctx        ctx;
    pl_lm_options o = {.backend = be, .capacity = ROWS, .round_to = golden_held(be)};
    golden_begin(g);
    golden_config(g, &c);
    assert_int_equal(c.num_hidden_layers, LAYERS);
    must(pl_lm_create(&lm, &c, &o, &err), &err);
    golden_weights_set(&lm.block, GOLDEN_COARSE, "llama");
    for (int i = 0; i < windows; i++) {
        int64_t        n;
        const int32_t *ids = window(g, i, &n);
        pl_lm_add(&lm, ids, NULL, n);
    }

    forward f = {.m = &lm.model, .lm = &lm, .rows = lm.rows};
    must(pl_ctx_init(&ctx, be, NULL), &err);
    must(pl_ctx_measure(&ctx, run_forward, &f, &err), &err);
    pl_ctx_begin(&ctx);
    run_forward(&ctx, &f);
    must(pl_ctx_sync(&ctx, &err), &err);
    for (int i = 0; i < LAYERS; i++)
        golden_expect(g, be, f.out.tap[i], "hidden/%d", taps[i]);
    golden_expect(g, be, f.out.hidden, "hidden/final");
    golden_expect(g, be, f.logits, "logits");
    check_features(g, &f.features, c.hidden_size, golden_on_device(be) ? 1e-4 : 1e-6);
    pl_ctx_fini(&ctx);

    must(pl_lm_learn(&lm, &sums, &err), &err);
    assert_int_equal(sums.count, f.rows);
    golden_expect(g, be, pl_tensor_1d(&sums.loss, PL_F64, 1), "total");
    golden_expect_block(g, be, &lm.block, lm.block.grad, 0, "grad/");
    pl_lm_destroy(&lm);
    golden_all_asked(g, "config.json");
    golden_all_asked(g, "window/");
    golden_all_asked(g, "hidden/");
    golden_all_asked(g, "grad/");
}

static void learn(const char *name, int windows) {
    golden            g;
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    golden_open(&g, name);
    for (int i = 0; i < n; i++)
        learn_on(&g, windows, be[i]);
    golden_close(&g);
}

static void learn_default(void **state) {
    (void)state;
    learn("llama_default", 2);
}

static void learn_yarn(void **state) {
    (void)state;
    learn("llama_yarn", 1);
}

static void learn_llama3(void **state) {
    (void)state;
    learn("llama_llama3", 1);
}

// ---- packed, over a cache: a prefill, then row by row ----

typedef struct decode {
    const pl_llama *m;
    pl_kv           kv;
    int32_t         id[ROWS], first, rows;
    int32_t         pos[ROWS];
    pl_kvrow        row[LAYERS * ROWS];
    pl_llama_out    out;
    pl_tensor       logits;
} decode;

static void run_decode(pl_ctx *ctx, void *arg) {
    decode *d = arg;
    for (int32_t i = 0; i < d->rows; i++) {
        d->pos[i] = d->first + i;
        pl_kv_row(&d->kv, &d->row[i], d->rows, d->first, NULL, i + 1, d->first + i);
    }
    pl_view view = {.pos = d->pos, .cos = d->m->cos, .sin = d->m->sin, .row = d->row, .m = d->rows};
    pl_llama_forward(ctx, d->m, d->id + d->first, d->rows, &view, taps, LAYERS, &d->out);
    d->logits = pl_llama_logits(ctx, d->m, d->out.hidden);
}

// first: rows of the prefill, then: of each step behind it.
static void decode_on(golden *g, int windows, const char *dir, pl_dtype t, const pl_backend *be, int32_t first,
                      int32_t then) {
    pl_err   err;
    pl_ctx   ctx;
    pl_llama m;
    decode  *d = golden_room(be, sizeof *d);
    int64_t  row0 = 0, n;
    must(pl_llama_open(&m, dir, t, be, &err), &err);
    d->m = &m;
    must(pl_kv_create(&d->kv, LAYERS, ROWS, &m.shape, be, &err), &err);
    must(pl_ctx_init(&ctx, be, NULL), &err);
    d->rows = first > then ? first : then;
    must(pl_ctx_measure(&ctx, run_decode, d, &err), &err);
    for (int w = 0; w < windows; w++, row0 += n) {
        const int32_t *id = window(g, w, &n);
        assert_true(n <= ROWS);
        memcpy(d->id, id, (size_t)n * sizeof *id);
        for (d->first = 0; d->first < n; d->first += d->rows) {
            d->rows = d->first == 0 ? first : then;
            if (d->rows > n - d->first) d->rows = (int32_t)(n - d->first);
            pl_ctx_begin(&ctx);
            run_decode(&ctx, d);
            must(pl_ctx_sync(&ctx, &err), &err);
            for (int i = 0; i < LAYERS; i++)
                golden_expect_rows(g, be, d->out.tap[i], row0 + d->first, "hidden/%d", taps[i]);
            golden_expect_rows(g, be, d->logits, row0 + d->first, "logits");
        }
    }
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&d->kv);
    pl_llama_fini(&m);
    golden_release();
}

// The golden file's model as a folder. Whether its embeddings are scaled.
static bool write_model(golden *g, char dir[64]) {
    char         path[96];
    pl_err       err;
    pl_hf_config c;
    pl_llama     m;
    golden_mkdir(g, dir);
    golden_config(g, &c);
    must(pl_llama_init(&m, &c, pl_backend_cpu(), false, &err), &err); // tied: one matrix in the file
    float **data = golden_weights(&m.params, "llama");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    must(pl_params_write(&m.params, path, (const float *const *)data, PL_BF16, NULL, 0, &err), &err);
    golden_weights_free(data, m.params.n);
    pl_llama_fini(&m);
    if (c.biased) stack_experts(dir, &c, strstr(g->name, "mxfp4") != NULL);
    return c.embedding_scaled;
}

// Whether a backend has what the golden file's model needs; what lacks it refuses to open it.
static bool computes(golden *g, const char *dir, const pl_backend *be) {
    pl_err       err;
    pl_hf_config c;
    pl_llama     m;
    golden_config(g, &c);
    if (c.experts == 0 || be->fwd[PL_OP_EXPERTS]) return true;
    assert_int_equal(pl_llama_open(&m, dir, PL_F32, be, &err), PL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "has experts, which"));
    return false;
}

static void decode_file(const char *name, int windows) {
    golden            g;
    char              dir[64];
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    golden_open(&g, name);
    bool scaled = write_model(&g, dir);
    for (int i = 1; i < n; i++) { // models for inference are fp32
        if (!computes(&g, dir, be[i])) continue;
        decode_on(&g, windows, dir, PL_F32, be[i], 5, 1);
        decode_on(&g, windows, dir, PL_F32, be[i], 7, 4);
        // The weights are the same numbers, but x is rounded; so is the scale of embeddings that have
        // one, whose logits are capped from larger ones.
        g.slack = scaled ? 4 * GOLDEN_BF16 : GOLDEN_BF16;
        if (!golden_on_device(be[i])) decode_on(&g, windows, dir, PL_BF16, be[i], 5, 1);
        g.slack = 0;
    }
    golden_rmdir(dir);
    golden_close(&g);
}

// ---- behind a prefill: a tree's nodes, and a text as the model continues it ----

enum { NODES = 7, SLOTS = 256, TEXT = 220 };

typedef struct beyond {
    const pl_llama *m;
    pl_kv           kv;
    int32_t         id[TEXT], rows, first; // rows from `first` on; a tree's nodes where `parent` is set
    const int32_t  *parent;
    int32_t         pos[TEXT], path[NODES * NODES];
    pl_kvrow        row[LAYERS * TEXT];
    pl_tensor       logits;
    const float    *read; // the logits, where the host reads
} beyond;

static void run_beyond(pl_ctx *ctx, void *arg) {
    static const int32_t scattered[NODES] = {9, 3, 12, 0, 5, 1, 7};
    beyond              *d = arg;
    for (int32_t i = 0; i < d->rows; i++) {
        int32_t *path = d->parent ? d->path + (ptrdiff_t)i * NODES : NULL, n = 0, up[NODES];
        for (int32_t k = i; d->parent && k >= 0; k = d->parent[k])
            up[n++] = k;
        for (int32_t k = 0; k < n; k++)
            path[k] = d->first + scattered[up[n - 1 - k]];
        d->pos[i] = d->first + (d->parent ? n - 1 : i);
        pl_kv_row(&d->kv, &d->row[i], d->rows, d->first, path, d->parent ? n : i + 1,
                  d->first + (d->parent ? scattered[i] : i));
    }
    pl_view      view = {.pos = d->pos, .cos = d->m->cos, .sin = d->m->sin, .row = d->row, .m = d->rows};
    pl_llama_out out;
    pl_llama_forward(ctx, d->m, d->id + d->first, d->rows, &view, NULL, 0, &out);
    d->logits = pl_llama_logits(ctx, d->m, out.hidden);
    d->read = pl_ctx_read(ctx, &d->logits);
}

static void step_beyond(pl_ctx *ctx, beyond *d) {
    pl_err err;
    pl_ctx_begin(ctx);
    run_beyond(ctx, d);
    must(pl_ctx_sync(ctx, &err), &err);
}

static void beyond_on(golden *g, const char *dir, const pl_backend *be, bool greedy) {
    pl_err         err;
    pl_ctx         ctx;
    pl_llama       m;
    beyond        *d = golden_room(be, sizeof *d);
    golden_entry  *context = golden_at(g, "tree/context"), *prompt = golden_at(g, "greedy/prompt");
    golden_entry  *text = golden_at(g, "greedy/text");
    const int32_t *said = text->data;
    must(pl_llama_open(&m, dir, PL_F32, be, &err), &err);
    assert_true(text->count <= TEXT && prompt->count < text->count && context->count <= ROWS);
    d->m = &m;
    must(pl_kv_create(&d->kv, LAYERS, SLOTS, &m.shape, be, &err), &err);
    must(pl_ctx_init(&ctx, be, NULL), &err);
    d->rows = ROWS;
    must(pl_ctx_measure(&ctx, run_beyond, d, &err), &err);

    memcpy(d->id, context->data, (size_t)context->count * sizeof *d->id);
    d->rows = (int32_t)context->count;
    step_beyond(&ctx, d);
    d->first = d->rows;
    d->rows = NODES;
    d->parent = golden_ints(g, NODES, "tree/parent");
    memcpy(d->id + d->first, golden_ints(g, NODES, "tree/tokens"), NODES * sizeof *d->id);
    step_beyond(&ctx, d);
    golden_expect(g, be, d->logits, "tree/logits");

    d->parent = NULL;
    d->first = 0;
    d->rows = (int32_t)prompt->count;
    memcpy(d->id, prompt->data, (size_t)prompt->count * sizeof *d->id);
    for (int64_t n = prompt->count; n < text->count && greedy; n++) {
        step_beyond(&ctx, d);
        const float *z = d->read + (int64_t)(d->rows - 1) * VOCAB;
        int32_t      best = 0;
        for (int32_t v = 1; v < VOCAB; v++)
            if (z[v] > z[best]) best = v;
        if (best != said[n]) fail_msg("%s: token %d is %d, not %d", g->name, (int)n, best, said[n]);
        d->id[n] = best;
        d->first = (int32_t)n;
        d->rows = 1;
    }
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&d->kv);
    pl_llama_fini(&m);
    golden_release();
}

static void beyond_prefill(const char *name) {
    golden            g;
    char              dir[64];
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    golden_open(&g, name);
    write_model(&g, dir);
    for (int i = 1; i < n; i++)
        if (computes(&g, dir, be[i]))
            beyond_on(&g, dir, be[i], !golden_on_device(be[i])); // an emulated device takes minutes to say that much
    golden_rmdir(dir);
    golden_close(&g);
}

// ---- families ----

static void mistral(void **state) {
    (void)state;
    learn("mistral", 1);
    decode_file("mistral", 1);
    beyond_prefill("mistral");
}

static void qwen2_window(void **state) {
    (void)state;
    learn("qwen2_window", 1);
    decode_file("qwen2_window", 1);
    beyond_prefill("qwen2_window");
}

static void phi3(void **state) {
    (void)state;
    learn("phi3", 1);
    decode_file("phi3", 1);
    beyond_prefill("phi3");
    learn("phi3_short", 1);
    decode_file("phi3_short", 1);
}

static void gemma2(void **state) {
    (void)state;
    decode_file("gemma2", 1);
    beyond_prefill("gemma2");
    decode_file("gemma2_tied", 1);
    golden        g;
    pl_err        err;
    pl_hf_config  c;
    pl_lm         lm;
    pl_lm_options o = {.backend = pl_backend_cpu(), .capacity = ROWS, .round_to = PL_F32};
    golden_open(&g, "gemma2");
    golden_config(&g, &c);
    assert_int_equal(pl_lm_create(&lm, &c, &o, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "Gemma2ForCausalLM is decoded and learned from, not trained: it has norms whose"));
    golden_close(&g);
}

static void run_first(pl_ctx *ctx, void *arg) {
    beyond      *d = arg;
    pl_llama_out out;
    pl_kv_row(&d->kv, &d->row[0], 1, 0, NULL, 1, 0);
    pl_view view = {.pos = d->pos, .cos = d->m->cos, .sin = d->m->sin, .row = d->row, .m = 1};
    pl_llama_forward(ctx, d->m, d->id, 1, &view, (const int[]){0}, 1, &out);
    d->logits = out.tap[0];
}

// sqrt(hidden_size) is a float, and a bf16 where the weights are.
static void embedding_scale(void **state) {
    (void)state;
    golden g;
    char   dir[64];
    golden_open(&g, "gemma2");
    write_model(&g, dir);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        pl_err   err;
        pl_ctx   ctx;
        pl_llama m;
        beyond   d = {.m = &m};
        must(pl_llama_open(&m, dir, bf16 ? PL_BF16 : PL_F32, pl_backend_cpu(), &err), &err);
        must(pl_kv_create(&d.kv, LAYERS, SLOTS, &m.shape, pl_backend_cpu(), &err), &err);
        must(pl_ctx_init(&ctx, pl_backend_cpu(), NULL), &err);
        must(pl_ctx_measure(&ctx, run_first, &d, &err), &err);
        float scale = bf16 ? 6.9375f : (float)sqrt(48), w[48];
        golden_coarse(w, 48, 8, "llama/model.embed_tokens.weight"); // the table's first row
        pl_ctx_begin(&ctx);
        run_first(&ctx, &d);
        must(pl_ctx_sync(&ctx, &err), &err);
        for (int i = 0; i < 48; i++)
            assert_true(pl_f32(&d.logits)[i] == scale * w[i]);
        pl_ctx_fini(&ctx);
        pl_kv_destroy(&d.kv);
        pl_llama_fini(&m);
    }
    golden_rmdir(dir);
    golden_close(&g);
}

static void gemma3(void **state) {
    (void)state;
    decode_file("gemma3", 1);
    beyond_prefill("gemma3");
}

// Gemma 3 as the text part of a model that reads images: the same numbers under the names of either wrapping.
static void gemma3_wrapped(void **state) {
    (void)state;
    static const struct {
        const char *model, *head;
    } names[] = {{"language_model.model.", "language_model."}, {"model.language_model.", ""}};
    for (int way = 0; way < 2; way++) {
        golden       g;
        pl_err       err;
        char         dir[64], path[96], *text, (*name)[128];
        pl_hf_config c, inner;
        pl_st       *plain;
        golden_open(&g, "gemma3");
        write_model(&g, dir);
        golden_config(&g, &c);
        golden_entry *config = golden_at(&g, "config.json");
        snprintf(path, sizeof path, "%s/config.json", dir);
        text = malloc((size_t)config->count + 256);
        assert_non_null(text);
        int n = sprintf(text, "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"eos_token_id\":[3,4],"
                              "\"model_type\":\"gemma3\",\"text_config\":");
        memcpy(text + n, config->data, (size_t)config->count);
        strcpy(text + n + config->count, "}");
        must(pl_file_write_atomic(path, text, strlen(text), &err), &err);
        free(text);

        snprintf(path, sizeof path, "%s/model.safetensors", dir);
        must(pl_st_open(&plain, path, &err), &err);
        int64_t       count = pl_st_count(plain);
        pl_st_source *all = calloc((size_t)count + 1, sizeof *all);
        name = calloc((size_t)count, sizeof *name);
        assert_true(all && name);
        for (int64_t i = 0; i < count; i++) {
            const pl_st_entry *e = pl_st_at(plain, i);
            bool               model = strncmp(e->name, "model.", 6) == 0;
            snprintf(name[i], sizeof name[i], "%s%s", model ? names[way].model : names[way].head,
                     e->name + (model ? 6 : 0));
            all[i] = (pl_st_source){.name = name[i], .dtype = e->dtype, .rank = e->rank, .data = e->data};
            memcpy(all[i].shape, e->shape, sizeof e->shape);
        }
        const float vision[2] = {1, 2};
        all[count] = (pl_st_source){
            .name = "vision_tower.patch.weight", .dtype = PL_F32, .rank = 1, .shape = {2}, .data = vision};
        char wrapped[96];
        snprintf(wrapped, sizeof wrapped, "%s/wrapped", dir);
        must(pl_st_write(wrapped, all, count + 1, NULL, 0, &err), &err);
        pl_st_close(plain);
        assert_int_equal(rename(wrapped, path), 0);
        free(all);
        free(name);

        must(pl_hf_config_read(&inner, dir, PL_HF_TARGET, &err), &err);
        assert_true(inner.n_eos == 3 && inner.eos_token_id[0] == 3 && inner.local_theta == c.local_theta);
        decode_on(&g, 1, dir, PL_F32, pl_backend_cpu(), 5, 1);
        golden_rmdir(dir);
        golden_close(&g);
    }
}

// ---- mixtures of experts ----

// The names that transformers writes as well, and the bytes of a step.
static void mixtral(void **state) {
    (void)state;
    decode_file("mixtral", 1);
    beyond_prefill("mixtral");
    golden        g;
    char          dir[64];
    pl_err        err;
    pl_hf_config  c;
    pl_llama      m;
    pl_lm         lm;
    pl_lm_options o = {.backend = pl_backend_cpu(), .capacity = ROWS, .round_to = PL_F32};
    golden_open(&g, "mixtral");
    write_model(&g, dir);
    as_mixtral(dir);
    decode_on(&g, 1, dir, PL_F32, pl_backend_cpu(), 5, 1);

    must(pl_llama_open(&m, dir, PL_BF16, pl_backend_cpu(), &err), &err);
    const pl_mixture *x = &m.layer[0].mixture;
    assert_true(x->n == 5 && x->k == 2 && x->normalised && x->router.dtype == PL_F32);
    double expert = (double)(pl_panels_bytes(80, 48, PL_BF16) + pl_panels_bytes(48, 40, PL_BF16));
    double all = (double)pl_params_bytes(&m.params);
    for (int i = 0; i < m.params.n; i++)
        if (m.params.p[i].kind == PL_PARAM_EMBED) all -= (double)m.params.p[i].owned_bytes;
    assert_true(pl_llama_step_bytes(&m, 0) == all - LAYERS * 3 * expert);
    pl_llama_fini(&m);

    golden_config(&g, &c);
    assert_int_equal(pl_lm_create(&lm, &c, &o, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "MixtralForCausalLM is decoded and learned from, not trained: it has experts"));
    golden_rmdir(dir);
    golden_close(&g);
}

static void gpt_oss(void **state) {
    (void)state;
    decode_file("gpt_oss", 1);
    beyond_prefill("gpt_oss");
    decode_file("gpt_oss_mxfp4", 1);
}

static void qwen3_moe(void **state) {
    (void)state;
    decode_file("qwen3_moe", 1);
    beyond_prefill("qwen3_moe");
    decode_file("qwen3_moe_step", 1);
}

static void learn_qwen2(void **state) {
    (void)state;
    learn("qwen2", 2);
}

static void learn_qwen3(void **state) {
    (void)state;
    learn("qwen3", 2);
}

static void decode_qwen2(void **state) {
    (void)state;
    decode_file("qwen2", 2);
}

static void decode_qwen3(void **state) {
    (void)state;
    decode_file("qwen3", 2);
}

static void decode_default(void **state) {
    (void)state;
    decode_file("llama_default", 2);
}

static void decode_yarn(void **state) {
    (void)state;
    decode_file("llama_yarn", 1);
}

static void decode_llama3(void **state) {
    (void)state;
    decode_file("llama_llama3", 1);
}

// Llama 3.1's own rotary table, in double and rounded once.
static void rope_llama31(void **state) {
    (void)state;
    enum { HALF = 64, POSITIONS = 4096 };
    golden       g;
    pl_rope_spec spec = {.theta = 500000,
                         .hd = 2 * HALF,
                         .scaling = PL_ROPE_LLAMA3,
                         .factor = 8,
                         .low_freq_factor = 1,
                         .high_freq_factor = 4,
                         .original_positions = 8192};
    golden_open(&g, "llama_llama3");
    const int32_t *at = golden_ints(&g, 3, "rope31/positions");
    const double  *want[2] = {golden_reals(&g, 3 * HALF, "rope31/cos"), golden_reals(&g, 3 * HALF, "rope31/sin")};
    double        *real[2];
    float         *single[2];
    for (int k = 0; k < 2; k++) {
        real[k] = calloc((size_t)POSITIONS * HALF, sizeof(double));
        single[k] = calloc((size_t)POSITIONS * HALF, sizeof(float));
        assert_true(real[k] && single[k]);
    }
    pl_rope_table(real[0], real[1], PL_F64, &spec, POSITIONS);
    pl_rope_table(single[0], single[1], PL_F32, &spec, POSITIONS);
    for (int k = 0; k < 2; k++)
        for (int p = 0; p < 3; p++)
            for (int i = 0; i < HALF; i++) {
                double x = want[k][p * HALF + i];
                int    j = at[p] * HALF + i;
                assert_true(fabs(real[k][j] - x) <= 1e-11);
                assert_true(fabs((double)single[k][j] - x) <= ldexp(fabs(x), -24) + 1e-11);
            }
    for (int k = 0; k < 2; k++) {
        free(real[k]);
        free(single[k]);
    }
    golden_all_asked(&g, "rope31/");
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learn_default), cmocka_unit_test(learn_llama3),   cmocka_unit_test(learn_yarn),
        cmocka_unit_test(decode_yarn),   cmocka_unit_test(decode_default), cmocka_unit_test(decode_llama3),
        cmocka_unit_test(rope_llama31),  cmocka_unit_test(learn_qwen2),    cmocka_unit_test(learn_qwen3),
        cmocka_unit_test(decode_qwen2),  cmocka_unit_test(decode_qwen3),   cmocka_unit_test(mistral),
        cmocka_unit_test(qwen2_window),  cmocka_unit_test(phi3),           cmocka_unit_test(gemma2),
        cmocka_unit_test(gemma3),        cmocka_unit_test(gemma3_wrapped), cmocka_unit_test(embedding_scale),
        cmocka_unit_test(mixtral),       cmocka_unit_test(qwen3_moe),      cmocka_unit_test(gpt_oss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
