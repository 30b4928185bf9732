// The layer for drafting in a target's own files against PyTorch: states and logits behind the target's features, then
// ahead over a cache from its own states; and what it decodes, which is what the target alone decodes.
#include "tests/golden/delta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/drafter/mtp.h"
#include "infer/model/kv.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "paceline.h"
#include "tests/malformed.h"
#include <stdio.h>
#include <string.h>

enum { TOKENS = 20, STEPS = 4, D = 32, NEW = 40 };

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

typedef struct draft {
    const pl_backbone *b;
    pl_kv              kv;
    const int32_t     *token;
    float              values[TOKENS * D]; // features, then a hidden row
    pl_tensor          hidden;
    int32_t            first, rows, pos[TOKENS];
    pl_kvrow           row[TOKENS];
    pl_tensor          y, logits;
} draft;

static void run_draft(pl_ctx *ctx, void *arg) {
    draft *d = arg;
    for (int32_t i = 0; i < d->rows && !ctx->measuring; i++) {
        d->pos[i] = d->first + i;
        pl_kv_row(&d->kv, &d->row[i], d->rows, d->first, NULL, i + 1, d->first + i);
    }
    pl_view   view = {.pos = d->pos, .cos = d->b->cos, .sin = d->b->sin, .row = d->row, .m = d->rows};
    pl_tensor next;
    d->y = d->b->kind->step(ctx, d->b, d->token, d->b->kind->fuse(ctx, d->b, d->hidden), &view, &next, (pl_tensor){0});
    d->logits = pl_head_logits(ctx, &d->b->head, &(pl_head_rows){.x = d->y});
}

static pl_tensor last_row(pl_tensor t) {
    t.data = (float *)t.data + (t.dim[0] - 1) * t.dim[1];
    t.dim[0] = 1;
    return t;
}

// Rows up to t behind features, then ahead.
static void draft_from(golden *g, const pl_backbone *b, const pl_backend *be, int32_t t) {
    pl_err err;
    pl_ctx ctx;
    draft *d = golden_room(be, sizeof *d);
    *d = (draft){.b = b, .rows = t + 1, .token = golden_ints(g, TOKENS, "tokens") + 1};
    golden_coarse(d->values, TOKENS * D, 7, "mtp/features");
    d->hidden = pl_tensor_2d(d->values, PL_F32, d->rows, D);
    must(pl_kv_create(&d->kv, 1, TOKENS, &b->shape, be, &err), &err);
    must(pl_ctx_init(&ctx, be, NULL), &err);
    must(pl_ctx_measure(&ctx, run_draft, d, &err), &err);
    for (int k = 0; k < STEPS; k++) {
        pl_ctx_begin(&ctx);
        run_draft(&ctx, d);
        must(pl_ctx_sync(&ctx, &err), &err);
        golden_expect_rows(g, be, last_row(d->y), k, "%d/hidden", (int)t);
        golden_expect_rows(g, be, last_row(d->logits), k, "%d/logits", (int)t);
        memcpy(d->values, last_row(d->y).data, D * sizeof *d->values);
        d->hidden = pl_tensor_2d(d->values, PL_F32, 1, D);
        d->first += d->rows;
        d->rows = 1;
        d->token = golden_ints(g, TOKENS, "tokens") + 1 + d->first;
    }
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&d->kv);
    golden_release();
}

static void check_drafter(golden *g, const char *dir, const pl_backend *be, pl_dtype t) {
    pl_err       err;
    pl_llama     m;
    pl_backbone *b;
    must(pl_llama_open(&m, dir, t, be, &err), &err);
    must(pl_backbone_open_within(&b, &pl_backbone_mtp, &m, t, &err), &err);
    g->slack = t == PL_BF16 ? 4 * GOLDEN_BF16 : 0; // the weights are exact in it, but x is rounded
    draft_from(g, b, be, 0);
    draft_from(g, b, be, 5);
    draft_from(g, b, be, 12);
    g->slack = 0;
    pl_backbone_destroy(b);
    pl_llama_fini(&m);
}

static void check_model(const char *name, const char *instead, const char *before) {
    golden            g;
    char              dir[64];
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    golden_open(&g, name);
    golden_mkdir(&g, dir);
    golden_delta_write(&g, dir, instead, before);
    for (int i = 1; i < n; i++) { // models for inference are fp32
        if (!be[i]->fwd[PL_OP_EXPERTS] && strstr(name, "moe")) continue; // test_golden_delta has the refusal
        check_drafter(&g, dir, be[i], PL_F32);
        if (!strstr(name, "moe")) check_drafter(&g, dir, be[i], PL_BF16);
    }
    golden_rmdir(dir);
    golden_close(&g);
}

static void dense(void **state) {
    (void)state;
    check_model("mtp", "", "");
}

static void experts(void **state) {
    (void)state;
    check_model("mtp_moe", "", "");
}

// As published: the decoder's tensors are wrapped, those of the layer for drafting are not.
static void wrapped(void **state) {
    (void)state;
    check_model("mtp", "model.", "model.language_model.");
}

// ---- decoding

typedef struct answer {
    int32_t id[NEW];
    int     n;
} answer;

static bool take_token(void *arg, int32_t token, const char *text, size_t bytes) {
    answer *a = arg;
    (void)text, (void)bytes;
    if (a->n < NEW) a->id[a->n++] = token;
    return true;
}

static void decode(answer *a, const char *dir, const char *drafter, const char *tree, double temperature) {
    char        why[256] = "";
    int32_t     prompt[] = {3, 14, 15, 9, 2, 6, 5};
    pl_decoder *d;
    *a = (answer){0};
    pl_decoder_options o = {.target = dir, .drafter = drafter, .tree = tree, .weights = "fp32", .threads = 1};
    if (pl_decoder_open(&d, &o, why, sizeof why) != 0) fail_msg("%s", why);
    pl_decoder_request r = {
        .prompt = prompt, .n_prompt = 7, .max_new_tokens = NEW, .temperature = temperature, .seed = 5};
    if (pl_decoder_generate(d, &r, take_token, a, NULL, why, sizeof why) != 0) fail_msg("%s", why);
    pl_decoder_close(d);
}

static void lossless(void **state) {
    (void)state;
    static const char *const trees[] = {"chain:3", "static:2x1", "eagle2:12,3,3", "auto"};
    golden                   g;
    char                     dir[64];
    golden_open(&g, "mtp_moe");
    golden_mkdir(&g, dir);
    golden_delta_write(&g, dir, "", "");
    for (int warm = 0; warm < 2; warm++) {
        answer plain, drafted;
        decode(&plain, dir, NULL, NULL, warm);
        assert_true(plain.n > 8);
        for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
            decode(&drafted, dir, "mtp", trees[i], warm);
            assert_memory_equal(&plain, &drafted, sizeof plain);
        }
    }
    golden_rmdir(dir);
    golden_close(&g);
}

// ---- refusals

static void expect_refusal(const pl_llama *m, pl_status st, const char *says) {
    pl_err       err;
    pl_backbone *b;
    assert_int_equal(pl_backbone_open_within(&b, &pl_backbone_mtp, m, PL_F32, &err), st);
    if (!strstr(err.msg, says) || strchr(err.msg, '\n')) fail_msg("\"%s\", wanted \"%s\"", err.msg, says);
    assert_null(b);
    if (st == PL_E_INPUT) malformed_seen();
}

static void refuse(const char *target, pl_status st, const char *says) {
    pl_err   err;
    pl_llama m;
    must(pl_llama_open(&m, target, PL_F32, pl_backend_cpu(), &err), &err);
    expect_refusal(&m, st, says);
    pl_llama_fini(&m);
}

static void without(void **state) {
    (void)state;
    golden   g;
    char     dir[64];
    pl_err   err;
    pl_llama m;
    golden_open(&g, "mtp");
    golden_mkdir(&g, dir);
    golden_delta_write(&g, dir, "mtp.", "draft.");
    refuse(dir, PL_E_INPUT, "has no layer for drafting (no tensor mtp.fc.weight)");
    golden_delta_write(&g, dir, "mtp.layers.0.self_attn.q_norm", "mtp.layers.0.self_attn.r_norm");
    refuse(dir, PL_E_INPUT, "mtp.layers.0.self_attn.q_norm.weight: missing");
    golden_delta_write(&g, dir, "", "");
    must(pl_llama_open(&m, dir, PL_F32, pl_backend_cpu(), &err), &err);
    golden_delta_write(&g, dir, "model.layers.1.mlp.up_proj", "mtp.layers.1.mlp.up_proj");
    expect_refusal(&m, PL_E_UNSUPPORTED, "tensor \"mtp.layers.1.mlp.up_proj.weight\": the layer for drafting has none");
    pl_llama_fini(&m);
    golden_rmdir(dir);
    golden_close(&g);
    refuse(PACELINE_SOURCE_DIR "/checkpoints/tiny", PL_E_UNSUPPORTED,
           "are not supported, only Qwen3-Next's and Qwen3.5's");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(dense), cmocka_unit_test(experts), cmocka_unit_test(wrapped),
                                       cmocka_unit_test(lossless), cmocka_unit_test(without)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
