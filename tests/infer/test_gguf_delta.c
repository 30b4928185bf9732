// GGUF files of targets with gated delta nets: value heads in key-head order, decays, the layer for drafting, and files
// that are refused. Their tokens beside transformers': test_gguf_target.c.
#include "checkpoints/gguf_model.h"
#include "infer/drafter/mtp.h"
#include "tests/checkpoints/scratch.h"

#include <math.h>

enum { D = 8, VOCAB = 16, KEYS = 2, EACH = 3, HEADS = KEYS * EACH, DK = 2, DV = 4, TAPS = 2, FF = 8 };
enum { MIXED = 2 * KEYS * DK + HEADS * DV, ELEMENTS = 64 * 64, EDITS = 2 };

// A key or a tensor with another value: -: left out; i, t: a number, a text; f: flags; r: rows; c: columns; p: positive.
typedef struct edit {
    const char *name;
    char        how;
    int64_t     value;
} edit;

static const edit *find_edit(const edit *e, const char *name) {
    for (int i = 0; i < EDITS && e && e[i].name; i++)
        if (strcmp(e[i].name, name) == 0) return &e[i];
    return NULL;
}

static void put_flags(pl_gguf_out *o, const char *key, uint64_t n) {
    uint8_t raw[12 + 8] = {PL_GGUF_BOOL};
    memcpy(raw + 4, &n, sizeof n);
    raw[12] = 1;
    pl_gguf_put_value(o, &(pl_gguf_value){.key = key,
                                          .n_key = strlen(key),
                                          .type = PL_GGUF_ARRAY,
                                          .item = PL_GGUF_BOOL,
                                          .n = n,
                                          .raw = raw,
                                          .n_raw = 12 + n});
}

static void put_keys(pl_gguf_out *o, const edit *edits) {
    static const struct {
        const char *name;
        uint32_t    value;
    } keys[] = {{"block_count", 3},
                {"nextn_predict_layers", 1},
                {"context_length", 64},
                {"embedding_length", D},
                {"feed_forward_length", FF},
                {"attention.head_count", 2},
                {"attention.head_count_kv", 1},
                {"attention.key_length", 4},
                {"attention.value_length", 4},
                {"rope.dimension_count", 2},
                {"full_attention_interval", 2},
                {"ssm.group_count", KEYS},
                {"ssm.time_step_rank", HEADS},
                {"ssm.state_size", DK},
                {"ssm.inner_size", HEADS * DV},
                {"ssm.conv_kernel", TAPS}};
    int32_t sections[] = {1, 0, 0, 0};
    pl_gguf_put_text(o, "general.architecture", "qwen35");
    pl_gguf_put_f32(o, "qwen35.attention.layer_norm_rms_epsilon", 1e-6F);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const edit *e = find_edit(edits, keys[i].name);
        char        key[96];
        snprintf(key, sizeof key, "qwen35.%s", keys[i].name);
        if (!e || e->how == 'i') pl_gguf_put_u32(o, key, e ? (uint32_t)e->value : keys[i].value);
        if (e && e->how == 't') pl_gguf_put_text(o, key, "x");
    }
    const edit *other = find_edit(edits, "rope.dimension_sections"),
               *flags = find_edit(edits, "attention.recurrent_layers");
    if (other) sections[0] = (int32_t)other->value;
    pl_gguf_put_i32s(o, "qwen35.rope.dimension_sections", sections, 4);
    if (flags) put_flags(o, "qwen35.attention.recurrent_layers", (uint64_t)flags->value);
}

// Element i of a tensor: i / 64, but decays are negative.
static const float *values(bool negative) {
    static float w[2][ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) {
        w[0][i] = (float)i / 64;
        w[1][i] = -(float)(i + 1) / 64;
    }
    return w[negative];
}

static void put_tensor(pl_gguf_out *o, const edit *edits, const char *name, int64_t rows, int64_t cols) {
    const edit *e = find_edit(edits, name);
    int64_t     shape[2] = {e && e->how == 'r' ? e->value : rows, e && e->how == 'c' ? e->value : cols};
    if (e && e->how == '-') return;
    bool negative = strstr(name, "ssm_a") && !strstr(name, "alpha") && !(e && e->how == 'p');
    pl_gguf_put_tensor(o, name, e && e->how == 'h' ? PL_BF16 : PL_F32, cols > 0 ? 2 : 1, shape, values(negative));
}

static void put_of_layer(pl_gguf_out *o, const edit *edits, int layer, const char *name, int64_t rows, int64_t cols) {
    char whole[64];
    snprintf(whole, sizeof whole, "blk.%d.%s", layer, name);
    put_tensor(o, edits, whole, rows, cols);
}

static void put_layer(pl_gguf_out *o, const edit *edits, int l) {
    put_of_layer(o, edits, l, "attn_norm.weight", D, 0);
    put_of_layer(o, edits, l, "post_attention_norm.weight", D, 0);
    put_of_layer(o, edits, l, "ffn_gate.weight", FF, D);
    put_of_layer(o, edits, l, "ffn_up.weight", FF, D);
    put_of_layer(o, edits, l, "ffn_down.weight", D, FF);
    if (l == 0) {
        put_of_layer(o, edits, l, "attn_qkv.weight", MIXED, D);
        put_of_layer(o, edits, l, "attn_gate.weight", HEADS * DV, D);
        put_of_layer(o, edits, l, "ssm_beta.weight", HEADS, D);
        put_of_layer(o, edits, l, "ssm_alpha.weight", HEADS, D);
        put_of_layer(o, edits, l, "ssm_conv1d.weight", MIXED, TAPS);
        put_of_layer(o, edits, l, "ssm_dt.bias", HEADS, 0);
        put_of_layer(o, edits, l, "ssm_a", HEADS, 0);
        put_of_layer(o, edits, l, "ssm_norm.weight", DV, 0);
        put_of_layer(o, edits, l, "ssm_out.weight", D, HEADS * DV);
        return;
    }
    if (l == 1) { // queries with their gates, keys and values in one
        put_of_layer(o, edits, l, "attn_qkv.weight", 2 * 8 + 4 + 4, D);
    } else {
        put_of_layer(o, edits, l, "attn_q.weight", 2 * 8, D);
        put_of_layer(o, edits, l, "attn_k.weight", 4, D);
        put_of_layer(o, edits, l, "attn_v.weight", 4, D);
    }
    put_of_layer(o, edits, l, "attn_output.weight", D, 8);
    put_of_layer(o, edits, l, "attn_q_norm.weight", 4, 0);
    put_of_layer(o, edits, l, "attn_k_norm.weight", 4, 0);
}

static void write_model(const char *path, const edit *edits) {
    pl_err       err;
    pl_gguf_out *o = pl_gguf_out_new();
    put_keys(o, edits);
    put_tensor(o, edits, "token_embd.weight", VOCAB, D);
    put_tensor(o, edits, "output_norm.weight", D, 0);
    for (int l = 0; l < 3; l++)
        put_layer(o, edits, l);
    put_of_layer(o, edits, 2, "nextn.eh_proj.weight", D, 2 * D);
    put_of_layer(o, edits, 2, "nextn.enorm.weight", D, 0);
    put_of_layer(o, edits, 2, "nextn.hnorm.weight", D, 0);
    put_of_layer(o, edits, 2, "nextn.shared_head_norm.weight", D, 0);
    if (find_edit(edits, "own embeddings")) put_of_layer(o, edits, 2, "nextn.embed_tokens.weight", VOCAB, D);
    assert_ok(pl_gguf_write(o, path, &err));
    pl_gguf_out_free(o);
}

static pl_status open_model(const char *path, pl_err *err) {
    pl_llama  m;
    pl_status st = pl_llama_open(&m, path, PL_F32, pl_backend_cpu(), err);
    if (st == PL_OK) pl_llama_fini(&m);
    return st;
}

// ---- order

// A value head's place in the file.
static int stored_head(int head) {
    return head % EACH * KEYS + head / EACH;
}

static void read_all(const pl_weight_source *src, const char *name, float *to, int64_t rows, int64_t cols,
                     int64_t taps) {
    pl_err         err;
    pl_weight_spec s = {.part = {{name, rows}}, .n_parts = 1, .rows = rows, .cols = cols, .inner = {taps > 0, taps}};
    assert_ok(pl_weight_source_check(src, &s, 1, &err));
    assert_ok(pl_weight_read_f32(src, &s, to, &err));
}

// Checks elements whose value heads begin behind `first` and are `width` wide.
static void expect_heads(const float *got, int first, int width, const char *name) {
    for (int i = 0; i < first; i++)
        if (got[i] != (float)i / 64) fail_msg("%s: element %d has moved", name, i);
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < width; i++)
            if (got[first + h * width + i] != (float)(first + stored_head(h) * width + i) / 64)
                fail_msg("%s: head %d is in another place", name, h);
}

static void test_order(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int         rows, cols, taps, first, width; // of elements
    } tensors[] = {{"in_proj_qkv.weight", MIXED, D, 0, 2 * KEYS * DK * D, DV * D},
                   {"in_proj_z.weight", HEADS * DV, D, 0, 0, DV * D},
                   {"in_proj_a.weight", HEADS, D, 0, 0, D},
                   {"in_proj_b.weight", HEADS, D, 0, 0, D},
                   {"conv1d.weight", MIXED * TAPS, 0, TAPS, 2 * KEYS * DK * TAPS, DV * TAPS},
                   {"dt_bias", HEADS, 0, 0, 0, 1}};
    float             w[ELEMENTS];
    char              name[96];
    pl_err            err;
    pl_weight_source *src;
    write_model(at("m.gguf"), NULL);
    assert_ok(pl_gguf_model_open(&src, NULL, at("m.gguf"), &err));
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        snprintf(name, sizeof name, "model.layers.0.linear_attn.%s", tensors[i].name);
        read_all(src, name, w, tensors[i].rows, tensors[i].cols, tensors[i].taps);
        expect_heads(w, tensors[i].first, tensors[i].width, name);
    }
    read_all(src, "model.layers.0.linear_attn.out_proj.weight", w, D, HEADS * DV, 0);
    for (int r = 0; r < D; r++)
        for (int i = 0; i < HEADS * DV; i++)
            assert_true(w[r * HEADS * DV + i] == (float)(r * HEADS * DV + stored_head(i / DV) * DV + i % DV) / 64);
    read_all(src, "model.layers.0.linear_attn.A_log", w, HEADS, 0, 0);
    for (int h = 0; h < HEADS; h++)
        assert_true(w[h] == (float)log((stored_head(h) + 1) / 64.0));
    pl_weight_source_close(src);
}

// The blocks behind the model's have the names of Qwen3.5's folders; its own are without them.
static void test_drafter(void **state) {
    (void)state;
    static const char *const names[] = {"mtp.fc.weight",
                                        "mtp.pre_fc_norm_embedding.weight",
                                        "mtp.pre_fc_norm_hidden.weight",
                                        "mtp.norm.weight",
                                        "mtp.layers.0.self_attn.q_proj.weight",
                                        "mtp.layers.0.post_attention_layernorm.weight",
                                        "mtp.layers.0.mlp.down_proj.weight",
                                        "model.layers.1.self_attn.v_proj.weight"};
    pl_err                   err;
    pl_hf_config             c;
    pl_weight_source        *src;
    write_model(at("m.gguf"), NULL);
    assert_ok(open_model(at("m.gguf"), &err));
    assert_ok(pl_gguf_model_open(&src, &c, at("m.gguf"), &err));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!pl_weight_source_find(src, names[i])) fail_msg("%s is missing", names[i]);
    assert_int_equal(c.num_hidden_layers, 2);
    assert_true(pl_hf_recurrent(&c, 0) && !pl_hf_recurrent(&c, 1) && c.output_gate && !c.norm_plus_one);
    assert_true(c.delta.key_heads == KEYS && c.delta.value_heads == HEADS && c.delta.value_dim == DV);
    assert_int_equal(pl_hf_rotary_dim(&c), 2);
    pl_weight_source_close(src);
}

// One that has embeddings of its own is refused as a drafter, and its target opens.
static void test_own_embeddings(void **state) {
    (void)state;
    const edit   edits[EDITS] = {{"own embeddings", 'y', 0}};
    pl_err       err;
    pl_llama     m;
    pl_backbone *b;
    write_model(at("m.gguf"), NULL);
    assert_ok(pl_llama_open(&m, at("m.gguf"), PL_F32, pl_backend_cpu(), &err));
    assert_ok(pl_backbone_open_within(&b, &pl_backbone_mtp, &m, PL_F32, &err));
    pl_backbone_destroy(b);
    pl_llama_fini(&m);
    write_model(at("m.gguf"), edits);
    assert_ok(pl_llama_open(&m, at("m.gguf"), PL_F32, pl_backend_cpu(), &err));
    assert_says(pl_backbone_open_within(&b, &pl_backbone_mtp, &m, PL_F32, &err), PL_E_UNSUPPORTED, &err,
                "tensor \"mtp.layers.0.nextn.embed_tokens.weight\": the layer for drafting has none here");
    pl_llama_fini(&m);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        edit        edits[EDITS];
        pl_status   status;
        const char *says;
    } cases[] = {
        {{{"ssm.group_count", '-', 0}}, PL_E_INPUT, "qwen35.ssm.group_count is missing"},
        {{{"ssm.group_count", 'i', 4}}, PL_E_INPUT, "4 does not divide linear_num_value_heads 6"},
        {{{"ssm.group_count", 'i', 0}}, PL_E_INPUT, "ssm.group_count is 0, expected 1 to 4096"},
        {{{"ssm.time_step_rank", 'i', 1 << 30}}, PL_E_INPUT, "ssm.time_step_rank is 1073741824"},
        {{{"ssm.time_step_rank", 't', 0}}, PL_E_INPUT, "ssm.time_step_rank is no whole number"},
        {{{"ssm.state_size", 'i', 513}}, PL_E_INPUT, "ssm.state_size is 513, expected 1 to 512"},
        {{{"ssm.inner_size", 'i', 25}}, PL_E_INPUT, "ssm.inner_size: 25 is not 6 heads of one size"},
        {{{"ssm.inner_size", 'i', 5}}, PL_E_INPUT, "ssm.inner_size is 5, expected 6 to 3072"},
        {{{"ssm.conv_kernel", 'i', 9}}, PL_E_INPUT, "ssm.conv_kernel is 9, expected 1 to 8"},
        {{{"ssm.conv_kernel", 'i', 1}}, PL_E_INPUT, "linear_attn.conv1d.weight: expected shape"},
        {{{"full_attention_interval", 'i', 0}}, PL_E_INPUT, "full_attention_interval is 0"},
        {{{"full_attention_interval", 'i', 1}}, PL_E_INPUT, "no layer is linear_attention"},
        {{{"nextn_predict_layers", 'i', 3}}, PL_E_INPUT, "nextn_predict_layers is 3, expected 0 to 2"},
        {{{"attention.recurrent_layers", 'f', 1}}, PL_E_INPUT, "recurrent_layers has not one flag for each layer"},
        {{{"rope.dimension_sections", 'i', 3}},
         PL_E_UNSUPPORTED,
         "dimension_sections has 3 pairs, and a head rotates 1"},
        {{{"blk.0.attn_qkv.weight", 'r', MIXED - 1}}, PL_E_INPUT, "blk.0.attn_qkv.weight: is not of the heads' size"},
        {{{"blk.0.ssm_out.weight", 'c', HEADS * DV + 1}}, PL_E_INPUT, "ssm_out.weight: is not of the heads' size"},
        {{{"blk.0.ssm_dt.bias", 'r', 7}}, PL_E_INPUT, "blk.0.ssm_dt.bias: is not of the heads' size"},
        {{{"blk.0.ssm_a", 'p', 0}}, PL_E_INPUT, "element 0 is stored as 0, expected -exp(A_log)"},
        {{{"blk.0.ssm_a", '-', 0}}, PL_E_INPUT, "model.layers.0.linear_attn.A_log: missing"},
        {{{"blk.0.ssm_a", 'h', 0}}, PL_E_INPUT, "blk.0.ssm_a: is not F32"},
        {{{"blk.0.ssm_norm.weight", 'r', 3}}, PL_E_INPUT, "linear_attn.norm.weight: expected shape [4], found [3]"},
        {{{"blk.1.attn_qkv.weight", 'r', 16}}, PL_E_INPUT, "blk.1.attn_qkv.weight: is not queries, keys and values"},
    };
    pl_err err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_model(at("m.gguf"), cases[i].edits);
        assert_says(open_model(at("m.gguf"), &err), cases[i].status, &err, cases[i].says);
        malformed_seen();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_drafter),
                                       cmocka_unit_test(test_own_embeddings), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
