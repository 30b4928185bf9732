// Rules for GGUF files: what `export --to gguf` writes keeps all of them, and each way to break one is told by its name.
#include "tests/infer/served.h"

#include "checkpoints/gguf.h"
#include "kernels/base/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static served_world w;
static char         served[96], file[96];

static int setup(void **state) {
    (void)state;
    served_make(&w);
    snprintf(served, sizeof served, "%s/served.gguf", w.base);
    snprintf(file, sizeof file, "%s/drafter.gguf", w.out);
    served_gguf(served, SERVED_LAYERS, TEST_VOCAB);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    served_end(&w);
    return 0;
}

static served_told check(const char *path, const char *to) {
    return served_check("gguf", path, to);
}

static void exports_hold(void **state) {
    (void)state;
    for (int i = 0; i < 2 * SERVED_ALL; i++) {
        if (i % SERVED_ALL == SERVED_RECURRENT || i % SERVED_ALL == SERVED_PARALLEL) continue; // which it does not know
        served_export(&w, "gguf", i % SERVED_ALL, served, i / SERVED_ALL);
        served_told h = check(i % 2 ? file : w.out, served);
        if (*h.broken || *h.unseen) fail_msg("%s", h.why);
        h = check(w.out, NULL);
        assert_string_equal(h.broken, "");
        assert_string_equal(h.unseen, "layers-there target-fits positions rope-target vocabulary ");
    }
}

// EAGLE-3.1's norms that llama.cpp computes.
static void norms_hold(void **state) {
    (void)state;
    pl_backbone_options o = {.n_taps = 3, .tap = {2, 4, 5}, .norm_before_fc = true, .norm_before_residual = true};
    served_world        normed = w;
    snprintf(normed.checkpoint[0], sizeof normed.checkpoint[0], "%s/normed", w.base);
    assert_int_equal(pl_dir_make(normed.checkpoint[0], NULL), PL_OK);
    test_backbone_write(normed.checkpoint[0], &w.model, &pl_backbone_eagle3, &o, 43);
    served_export(&normed, "gguf", 0, served, false);
    served_told h = check(file, served);
    if (*h.broken || *h.unseen) fail_msg("%s", h.why);
    pl_gguf *g;
    pl_err   err = {0};
    if (pl_gguf_open(&g, file, &err) != PL_OK) fail_msg("%s", err.msg);
    const pl_gguf_tensor *norm = pl_gguf_find_tensor(g, "enc.output_norm.weight");
    assert_true(norm && norm->rank == 1 && norm->shape[0] == 144);
    static const char *const keys[] = {"eagle3.norm_before_fc", "eagle3.norm_before_residual"};
    for (int i = 0; i < 2; i++)
        assert_true(pl_gguf_find(g, keys[i])->data[0]);
    pl_gguf_close(g);
}

static void never(void *arg, const char *rule, const char *help, pl_check_verdict v, const char *why) {
    (void)arg, (void)help, (void)v;
    fail_msg("%s: %s", rule, why);
}

static void refused(void **state) {
    (void)state;
    const pl_export_engine *engine = pl_export_engine_find("gguf", NULL);
    pl_check_count          n;
    pl_err                  err = {0};
    served_export(&w, "gguf", 0, served, false);
    assert_int_equal(pl_check_folder(engine, w.out, w.target, never, NULL, &n, &err), PL_E_USAGE);
    assert_non_null(strstr(err.msg, "is no .gguf file"));
    char         half[96];
    pl_gguf_out *o = pl_gguf_out_new();
    snprintf(half, sizeof half, "%s/half.gguf", w.base);
    pl_gguf_put_text(o, "general.architecture", "llama");
    pl_gguf_put_u32(o, "llama.block_count", SERVED_LAYERS);
    assert_int_equal(pl_gguf_write(o, half, &err), PL_OK);
    pl_gguf_out_free(o);
    assert_int_equal(pl_check_folder(engine, w.out, half, never, NULL, &n, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "has no llama.embedding_length"));
    assert_true(pl_check_folder(engine, w.target, served, never, NULL, &n, &err) != PL_OK);
    assert_non_null(strstr(err.msg, "drafter.gguf"));
}

// ---- broken one at a time ----

enum how { GONE, TEXT, NUMBER, FLOAT, LIST, TENSOR, MAP };

typedef struct breaking {
    int         trimmed;
    const char *rule; // "?rule": not broken, but nobody can tell
    const char *what; // a key or a tensor
    enum how    how;
    const char *text;
    double      v;
    int         n; // of list or shape
    int32_t     list[4];
    pl_dtype    dtype;
} breaking;

static const breaking cases[] = {
    {0, "architecture", "general.architecture", TEXT, .text = "llama"},
    {0, "architecture", "general.architecture", GONE, .n = 0},
    {0, "few-layers", "eagle3.block_count", NUMBER, .v = 2},
    {0, "every-field", "eagle3.attention.layer_norm_rms_epsilon", GONE, .n = 0},
    {0, "every-field", "eagle3.context_length", GONE, .n = 0},
    {0, "?every-field", "eagle3.rope.freq_base", GONE, .n = 0},
    {0, "?every-field", "eagle3.norm_before_residual", GONE, .n = 0},
    {0, "layers-written", "eagle3.target_layers", GONE, .n = 0},
    {0, "layers-written", "eagle3.target_layers", NUMBER, .v = 2},
    {0, "layers-written", "eagle3.target_layers", LIST, .n = 2, .list = {2, 4}},
    {0, "last-layer", "eagle3.target_layers", LIST, .n = 3, .list = {2, 4, SERVED_LAYERS}},
    {0, "layers-there", "eagle3.target_layers", LIST, .n = 3, .list = {2, 4, SERVED_LAYERS + 1}},
    {0, "layers-written", "eagle3.target_layers", LIST, .n = 3, .list = {-1, 2, 4}},
    {0, "names", "output_norm.weight", GONE, .n = 0},
    {0, "names", "fc.bias", TENSOR, .n = 1, .list = {48}, .dtype = PL_F32},
    {0, "names", "enc.output_norm.weight", TENSOR, .n = 1, .list = {144}, .dtype = PL_F32},
    {0, "types", "output_norm.weight", TENSOR, .n = 1, .list = {48}, .dtype = PL_BF16},
    {0, "?types", "blk.0.ffn_up.weight", TENSOR, .n = 2, .list = {80, 48}, .dtype = PL_I32},
    {0, "shapes", "eagle3.feed_forward_length", NUMBER, .v = 96},
    {0, "shapes", "blk.0.attn_norm.weight", TENSOR, .n = 1, .list = {47}, .dtype = PL_F32},
    {0, "shapes", "fc.weight", TENSOR, .n = 1, .list = {48}, .dtype = PL_F32},
    {1, "map-there", "d2t", GONE, .n = 0},
    {1, "map-there", "output.weight", GONE, .n = 0},
    {1, "map-tokens", "d2t", MAP, .text = "offsets"},
    {1, "map-type", "d2t", MAP, .text = "narrow"},
    {1, "map-tokens", "d2t", MAP, .text = "far"},
    {0, "map-type", "d2t", MAP, .text = "short"},
    {2, "few-layers", "dflash.block_count", NUMBER, .v = 0},
    {2, "every-field", "dflash.context_length", GONE, .n = 0},
    {2, "?every-field", "dflash.attention.causal", GONE, .n = 0},
    {3, "?every-field", "dflash.sample_from_anchor", GONE, .n = 0},
    {2, "block", "tokenizer.ggml.mask_token_id", GONE, .n = 0},
    {3, "block", "tokenizer.ggml.mask_token_id", NUMBER, .v = TEST_VOCAB},
    {2, "block", "dflash.block_size", NUMBER, .v = 1},
    {2, "block", "dflash.conv_kernel_size", NUMBER, .v = 2},
    {4, "block", "dflash.selector_rank", GONE, .n = 0},
    {4, "block", "dflash.conv_group_size", NUMBER, .v = 7},
    {4, "block", "dflash.selector_top_k", NUMBER, .v = 7},
    {4, "names", "blk.0.ffn_conv_base", GONE, .n = 0},
    {4, "shapes", "dflash.conv_kernel_size", NUMBER, .v = 3},
    {2, "layers-written", "dflash.target_layers", GONE, .n = 0},
    {2, "last-layer", "dflash.target_layers", LIST, .n = 3, .list = {2, 4, SERVED_LAYERS}},
    {2, "names", "enc.output_norm.weight", GONE, .n = 0},
    {2, "names", "blk.1.attn_k_norm.weight", GONE, .n = 0},
    {2, "names", "blk.2.attn_norm.weight", TENSOR, .n = 1, .list = {48}, .dtype = PL_F32},
    {3, "names", "markov_w2.weight", GONE, .n = 0},
    {3, "types", "conf_proj.bias", TENSOR, .n = 1, .list = {1}, .dtype = PL_BF16},
    {2, "shapes", "blk.1.attn_q_norm.weight", TENSOR, .n = 1, .list = {47}, .dtype = PL_F32},
    {2, "shapes", "dflash.feed_forward_length", NUMBER, .v = 96},
    {2, "positions", "dflash.context_length", NUMBER, .v = 128},
    {6, "target-fits", "eagle3.target_hidden_size", NUMBER, .v = 64},
    {6, "names", "token_embd.weight", GONE, .n = 0},
    {0, "vocabulary", "tokenizer.ggml.tokens", GONE, .n = 0},
    {0, "vocabulary", "tokenizer.ggml.tokens", LIST, .n = 3, .list = {1, 2, 3}},
    {0, "positions", "eagle3.context_length", NUMBER, .v = 128},
    {0, "rope-target", "eagle3.rope.freq_base", FLOAT, .v = 20000},
};

static bool is(const char *name, size_t n, const char *what) {
    return strlen(what) == n && memcmp(name, what, n) == 0;
}

static void put_map(pl_gguf_out *o, const char *how) {
    int64_t wide[SERVED_ROWS], n = strcmp(how, "short") == 0 ? SERVED_ROWS - 1 : SERVED_ROWS;
    int32_t narrow[SERVED_ROWS];
    for (int i = 0; i < SERVED_ROWS; i++) {
        narrow[i] = w.d2t[i];
        wide[i] = strcmp(how, "offsets") == 0         ? w.d2t[i] - i
                  : strcmp(how, "far") == 0 && i == 3 ? TEST_VOCAB
                                                      : w.d2t[i];
    }
    bool small = strcmp(how, "narrow") == 0;
    pl_gguf_put_tensor(o, "d2t", small ? PL_I32 : PL_I64, 1, &n, small ? (const void *)narrow : wide);
    pl_err err = {0};
    if (pl_gguf_write(o, file, &err) != PL_OK) fail_msg("%s", err.msg); // before the arrays go
}

static void put(pl_gguf_out *o, const breaking *b) {
    static const float zeros[80 * 48] = {0};
    const int64_t      shape[2] = {b->list[0], b->list[1]};
    pl_err             err = {0};
    switch (b->how) {
    case GONE: break;
    case TEXT: pl_gguf_put_text(o, b->what, b->text); break;
    case NUMBER: pl_gguf_put_u32(o, b->what, (uint32_t)b->v); break;
    case FLOAT: pl_gguf_put_f32(o, b->what, (float)b->v); break;
    case LIST: pl_gguf_put_i32s(o, b->what, b->list, (uint64_t)b->n); break;
    case TENSOR: pl_gguf_put_tensor(o, b->what, b->dtype, b->n, shape, zeros); break;
    case MAP: put_map(o, b->text); return;
    }
    if (pl_gguf_write(o, file, &err) != PL_OK) fail_msg("%s", err.msg);
}

// The file again, but for the key or tensor that is broken.
static void break_it(const breaking *b) {
    pl_err       err = {0};
    pl_gguf     *g;
    pl_gguf_out *o = pl_gguf_out_new();
    if (pl_gguf_open(&g, file, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int64_t i = 0; i < pl_gguf_values(g); i++) {
        const pl_gguf_value *v = pl_gguf_value_at(g, i);
        if (!is(v->key, v->n_key, b->what)) pl_gguf_put_value(o, v);
    }
    for (int64_t i = 0; i < pl_gguf_tensors(g); i++) {
        const pl_gguf_tensor *t = pl_gguf_tensor_at(g, i);
        char                  name[80];
        int64_t               shape[PL_GGUF_RANK];
        for (int k = 0; k < t->rank; k++)
            shape[k] = t->shape[t->rank - 1 - k];
        snprintf(name, sizeof name, "%.*s", (int)t->n_name, t->name);
        if (strcmp(name, b->what) != 0)
            pl_gguf_put_tensor(o, name,
                               t->type == 0    ? PL_F32
                               : t->type == 27 ? PL_I64
                                               : PL_BF16,
                               t->rank, shape, t->data);
    }
    put(o, b);
    pl_gguf_out_free(o);
    pl_gguf_close(g);
}

static void broken_by_name(void **state) {
    (void)state;
    enum { CASES = sizeof cases / sizeof *cases };
    for (int i = 0; i < CASES; i++) {
        const breaking *b = &cases[i];
        served_export(&w, "gguf", b->trimmed, served, false);
        break_it(b);
        served_told h = check(file, served);
        served_expect(&h, b->rule, i);
    }
    print_message("%d files, each refused by the name of its rule\n", CASES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(exports_hold), cmocka_unit_test(norms_hold),
                                       cmocka_unit_test(refused), cmocka_unit_test(broken_by_name)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
