#include "checkpoints/llama2c.h"
#include "scratch.h"
#include <math.h>

// dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
static const int32_t SMALL[7] = {16, 24, 2, 4, 2, 32, 8};

static size_t floats_of(const int32_t h[7]) {
    size_t d = (size_t)h[0], f = (size_t)h[1], l = (size_t)h[2], hd = d / (size_t)h[3], kv = hd * (size_t)h[4];
    size_t v = (size_t)(h[5] < 0 ? -h[5] : h[5]);
    return v * d * (h[5] < 0 ? 2 : 1) + l * (2 * d * d + 2 * d * kv + 3 * d * f + 2 * d) + d + (size_t)h[6] * hd;
}

// A file whose k-th float is k / 8 (exact: fewer than 2^20 of them).
static void put_model(const char *path, const int32_t h[7], size_t floats) {
    float *data = malloc(28 + floats * sizeof *data);
    memcpy(data, h, 28);
    for (size_t k = 0; k < floats; k++)
        data[7 + k] = (float)k / 8;
    put_file(path, data, 28 + floats * sizeof *data);
    free(data);
}

static void test_layout(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        pl_err            err;
        pl_weight_source *src;
        pl_hf_config      c;
        int32_t           h[7];
        memcpy(h, SMALL, sizeof h);
        if (!tied) h[5] = -h[5];
        put_model(at("m.bin"), h, floats_of(h));
        assert_ok(pl_llama2c_open(&src, &c, at("m.bin"), &err));
        assert_int_equal(c.hidden_size, 16);
        assert_int_equal(c.intermediate_size, 24);
        assert_int_equal(c.num_hidden_layers, 2);
        assert_int_equal(c.num_attention_heads, 4);
        assert_int_equal(c.num_key_value_heads, 2);
        assert_int_equal(c.head_dim, 4);
        assert_int_equal(c.vocab_size, 32);
        assert_int_equal(c.max_position_embeddings, 8);
        assert_true(c.rms_norm_eps == 1e-5 && c.rope.theta == 10000);
        assert_int_equal(c.tie_word_embeddings, tied);
        assert_int_equal(pl_weight_source_count(src), 1 + 2 * 9 + 1 + !tied);
        // Where each tensor of layer 1 begins, counted by hand from the layout.
        const struct {
            const char *name;
            int64_t     rows, cols, first;
        } want[] = {
            {"model.embed_tokens.weight", 32, 16, 0},
            {"model.layers.0.input_layernorm.weight", 16, 0, 512},
            {"model.layers.1.input_layernorm.weight", 16, 0, 528},
            {"model.layers.1.self_attn.v_proj.weight", 8, 16, 544 + 2 * 256 + 2 * 128 + 128},
            {"model.layers.1.self_attn.o_proj.weight", 16, 16, 544 + 2 * 256 + 4 * 128 + 256},
            {"model.layers.1.post_attention_layernorm.weight", 16, 0, 544 + 4 * 256 + 4 * 128 + 16},
            {"model.layers.1.mlp.gate_proj.weight", 24, 16, 2112 + 384},
            {"model.layers.1.mlp.down_proj.weight", 16, 24, 2112 + 3 * 384},
            {"model.layers.1.mlp.up_proj.weight", 24, 16, 2112 + 5 * 384},
            {"model.norm.weight", 16, 0, 2112 + 6 * 384},
            {"lm_head.weight", 32, 16, 2112 + 6 * 384 + 16 + 32},
        };
        for (size_t i = 0; i < sizeof want / sizeof *want - (size_t)tied; i++) {
            const pl_weight_spec s = {
                .part = {{want[i].name, want[i].rows}}, .n_parts = 1, .rows = want[i].rows, .cols = want[i].cols};
            float  *got = malloc(32 * 16 * sizeof *got);
            int64_t n = want[i].rows * (want[i].cols ? want[i].cols : 1);
            assert_ok(pl_weight_source_check(src, &s, 1, &err));
            assert_ok(pl_weight_read_f32(src, &s, got, &err));
            for (int64_t k = 0; k < n; k++)
                if (got[k] != (float)(want[i].first + k) / 8) fail_msg("%s[%d] = %g", want[i].name, (int)k, got[k]);
            free(got);
        }
        if (tied) assert_null(pl_weight_source_find(src, "lm_head.weight"));
        pl_weight_source_close(src);
    }
}

// out = W x, W [rows, cols].
static void apply(float *out, const float *w, const float *x, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        out[r] = 0;
        for (int c = 0; c < cols; c++)
            out[r] += w[r * cols + c] * x[c];
    }
}

static void rotate(float *v, int dim, int position, bool neighbours) {
    for (int i = 0; i < dim / 2; i++) {
        int   a = neighbours ? 2 * i : i, b = neighbours ? 2 * i + 1 : i + dim / 2;
        float angle = (float)position * powf(10000, -2.0f * (float)i / (float)dim);
        float va = v[a], vb = v[b];
        v[a] = va * cosf(angle) - vb * sinf(angle);
        v[b] = va * sinf(angle) + vb * cosf(angle);
    }
}

// The rows as read with rotate-half give the scores of the rows as stored with neighbouring pairs.
static void test_rope_scores(void **state) {
    (void)state;
    enum { D = 16, HD = 4, HEADS = 4, KV = 2 };
    pl_err            err;
    pl_weight_source *src;
    size_t            n = floats_of(SMALL);
    float            *file = malloc(28 + n * sizeof *file), *data = file + 7;
    memcpy(file, SMALL, 28);
    for (size_t k = 0; k < n; k++)
        data[k] = sinf((float)k * 0.37f);
    put_file(at("rope.bin"), file, 28 + n * sizeof *file);
    assert_ok(pl_llama2c_open(&src, NULL, at("rope.bin"), &err));
    const pl_weight_spec q = {
        .part = {{"model.layers.1.self_attn.q_proj.weight", D}}, .n_parts = 1, .rows = D, .cols = D};
    const pl_weight_spec k = {
        .part = {{"model.layers.1.self_attn.k_proj.weight", KV * HD}}, .n_parts = 1, .rows = KV * HD, .cols = D};
    float wq[D * D], wk[KV * HD * D], x[D], y[D];
    assert_ok(pl_weight_read_f32(src, &q, wq, &err));
    assert_ok(pl_weight_read_f32(src, &k, wk, &err));
    const float *stored_q = data + 544 + 256, *stored_k = data + 544 + 512 + 128;
    for (int i = 0; i < D; i++) {
        x[i] = cosf((float)i);
        y[i] = sinf((float)i * 1.7f);
    }
    float q1[D], q2[D], k1[KV * HD], k2[KV * HD];
    apply(q1, wq, x, D, D);
    apply(q2, stored_q, x, D, D);
    apply(k1, wk, y, KV * HD, D);
    apply(k2, stored_k, y, KV * HD, D);
    for (int h = 0; h < HEADS; h++) {
        float a[HD], b[HD], c[HD], d[HD], s1 = 0, s2 = 0;
        int   g = h / (HEADS / KV);
        memcpy(a, q1 + h * HD, sizeof a);
        memcpy(b, k1 + g * HD, sizeof b);
        memcpy(c, q2 + h * HD, sizeof c);
        memcpy(d, k2 + g * HD, sizeof d);
        rotate(a, HD, 7, false);
        rotate(b, HD, 3, false);
        rotate(c, HD, 7, true);
        rotate(d, HD, 3, true);
        for (int i = 0; i < HD; i++) {
            s1 += a[i] * b[i];
            s2 += c[i] * d[i];
        }
        assert_true(fabsf(s1 - s2) < 1e-4f);
        assert_true(fabsf(s1) > 1e-3f);
    }
    pl_weight_source_close(src);
    free(file);
}

static void test_bad(void **state) {
    (void)state;
    static const struct {
        int32_t     h[7];
        const char *says;
    } bad[] = {
        {{0, 24, 2, 4, 2, 32, 8}, "hidden_size: expected an integer from 1 to 65536, found 0"},
        {{-16, 24, 2, 4, 2, 32, 8}, "hidden_size: expected an integer from 1 to 65536, found -16"},
        {{INT32_MIN, 24, 2, 4, 2, 32, 8}, "hidden_size: expected"},
        {{16, INT32_MAX, 2, 4, 2, 32, 8}, "intermediate_size: expected"},
        {{16, 24, 0, 4, 2, 32, 8}, "num_hidden_layers: expected"},
        {{16, 24, 100000, 4, 2, 32, 8}, "num_hidden_layers: expected"},
        {{16, 24, 2, 0, 2, 32, 8}, "num_attention_heads: expected"},
        {{16, 24, 2, 5, 5, 32, 8}, "head_dim: expected"},
        {{16, 24, 2, 4, 0, 32, 8}, "num_key_value_heads: expected"},
        {{16, 24, 2, 4, 3, 32, 8}, "num_key_value_heads: 3 does not divide num_attention_heads 4"},
        {{16, 24, 2, 16, 2, 32, 8}, "head_dim: 1 is odd"},
        {{16, 24, 2, 4, 2, 0, 8}, "vocab_size: expected"},
        {{16, 24, 2, 4, 2, INT32_MIN, 8}, "vocab_size: expected"},
        {{16, 24, 2, 4, 2, 5000000, 8}, "vocab_size: expected"},
        {{16, 24, 2, 4, 2, 32, 0}, "max_position_embeddings: expected"},
        {{16, 24, 2, 4, 2, 32, -8}, "max_position_embeddings: expected"},
        {{16, 24, 2, 4, 2, 33, 8}, "where the header promises"},
        {{16, 24, 2, 4, 2, -32, 8}, "where the header promises"},
        {{16, 24, 2, 4, 2, 32, 9}, "where the header promises"},
        {{65536, 1 << 20, 1024, 4096, 4096, 4 << 20, 1 << 28}, "where the header promises"},
    };
    pl_err err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_weight_source *src;
        pl_hf_config      c = {.n_eos = 5};
        put_model(at("bad.bin"), bad[i].h, floats_of(SMALL));
        pl_status st = pl_llama2c_open(&src, &c, at("bad.bin"), &err);
        if (st == PL_OK) fail_msg("accepted number %zu", i);
        assert_refused(st, &err, bad[i].says);
        assert_null(src);
        assert_int_equal(c.n_eos, 0);
    }
    pl_weight_source *src;
    uint8_t           start[64] = "24ka\2";
    put_file(at("bad.bin"), start, sizeof start);
    assert_says(pl_llama2c_open(&src, NULL, at("bad.bin"), &err), PL_E_INPUT, &err,
                "newer version; export it as version 0");
    put_file(at("bad.bin"), SMALL, 27);
    assert_says(pl_llama2c_open(&src, NULL, at("bad.bin"), &err), PL_E_INPUT, &err, "27 bytes are no llama2.c file");
    put_file(at("bad.bin"), SMALL, 28);
    assert_says(pl_llama2c_open(&src, NULL, at("bad.bin"), &err), PL_E_INPUT, &err, "the file is cut");
    static const struct {
        char        begins[32];
        const char *says;
    } others[] = {{"GGUF\3\0\0\0", "a GGUF file, of which the vocabulary alone is read; name the model's folder"},
                  {"\x60\x03\0\0\0\0\0\0{\"__meta", "a safetensors file; name the folder that holds it"},
                  {"PK\3\4\24\1\x08\x08", "a zip archive; unpack it, or if PyTorch wrote it, save it as safetensors"},
                  {"version https://git-lfs.github", "a pointer of Git LFS"},
                  {"\x7f"
                   "ELF\2\1\1\0",
                   "not a llama2.c version 0 file"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        memset(start, 0, sizeof start);
        memcpy(start, others[i].begins, sizeof others[i].begins);
        put_file(at("bad.bin"), start, sizeof start);
        assert_says(pl_llama2c_open(&src, NULL, at("bad.bin"), &err), PL_E_INPUT, &err, others[i].says);
    }
    put_model(at("bad.bin"), SMALL, floats_of(SMALL) + 1);
    assert_says(pl_llama2c_open(&src, NULL, at("bad.bin"), &err), PL_E_INPUT, &err, "where the header promises");
    put_model(at("bad.bin"), SMALL, floats_of(SMALL) - 1);
    assert_says(pl_llama2c_open(&src, NULL, at("bad.bin"), &err), PL_E_INPUT, &err, "where the header promises");
}

static void test_memory(void **state) {
    (void)state;
    pl_err err;
    bool   done = false;
    put_model(at("mem.bin"), SMALL, floats_of(SMALL));
    for (uint64_t n = 1; !done; n++) {
        pl_weight_source *src;
        pl_hf_config      c;
        assert_true(n < 100);
        pl_alloc_fail_after(n);
        pl_status st = pl_llama2c_open(&src, &c, at("mem.bin"), &err);
        pl_alloc_fail_after(0);
        done = st == PL_OK;
        if (!done) {
            assert_says(st, PL_E_MEMORY, &err, "out of memory");
            assert_null(src);
            assert_int_equal(c.hidden_size, 0);
        }
        pl_weight_source_close(src);
    }
}

static void test_real(void **state) {
    (void)state;
    pl_err            err;
    pl_weight_source *src;
    pl_hf_config      c;
    const char       *file = outside("models/stories260K/stories260K.bin");
    if (!file) skip();
    assert_ok(pl_llama2c_open(&src, &c, file, &err));
    assert_int_equal(c.hidden_size, 64);
    assert_int_equal(c.intermediate_size, 172);
    assert_int_equal(c.num_hidden_layers, 5);
    assert_int_equal(c.num_attention_heads, 8);
    assert_int_equal(c.num_key_value_heads, 4);
    assert_int_equal(c.vocab_size, 512);
    assert_true(c.tie_word_embeddings);
    assert_int_equal(pl_weight_source_count(src), 47);
    assert_int_equal(pl_weight_source_stored_dtype(src, NULL, 0), PL_F32);
    const pl_weight_spec norm = {.part = {{"model.norm.weight", 64}}, .n_parts = 1, .rows = 64};
    float                w[64];
    assert_ok(pl_weight_read_f32(src, &norm, w, &err));
    for (int i = 0; i < 64; i++)
        assert_true(w[i] > 0.1f && w[i] < 20); // a trained norm, not some other tensor's bytes
    pl_weight_source_close(src);
    file = outside("models/stories260K/stories260K-q8.bin");
    assert_says(pl_llama2c_open(&src, &c, file, &err), PL_E_INPUT, &err, "newer version; export it as version 0");
    file = outside("models/TinyStories-656K/model.safetensors");
    assert_says(pl_llama2c_open(&src, &c, file, &err), PL_E_INPUT, &err, "a safetensors file; name the folder");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout), cmocka_unit_test(test_rope_scores), cmocka_unit_test(test_bad),
        cmocka_unit_test(test_memory), cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
