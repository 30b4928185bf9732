#include "checkpoints/weights.h"
#include "scratch.h"

enum { ROWS = 4, COLS = 3 };

static const pl_weight_spec qkv = {.part = {{"q", 2}, {"k", 1}, {"v", 1}}, .n_parts = 3, .rows = 4, .cols = 3};
static const pl_weight_spec norm = {.part = {{"norm", 5}}, .n_parts = 1, .rows = 5};
static const pl_weight_spec head = {.part = {{"lm_head", 4}}, .n_parts = 1, .rows = 4, .cols = 3, .alias = "embed"};
static const pl_weight_spec extra = {
    .part = {{"g", 2}, {"u", 2}}, .n_parts = 2, .rows = 4, .cols = 3, .optional = true};

static float value(int64_t i) {
    return (float)(i % 7) * 0.25f - 0.5f; // exact in bf16 and f16
}

// q F32, k BF16, v F16, norm F64, embed F32, ids I64.
static void put_mixed(const char *path) {
    static float          q[6], embed[12];
    static uint16_t       k[3], v[3];
    static double         n[5];
    static int64_t        ids[4] = {9, 8, 7, 6};
    pl_err                err;
    // 1.0, -2.0 and 0.5 as fp16
    static const uint16_t half[3] = {0x3c00, 0xc000, 0x3800};
    for (int i = 0; i < 6; i++)
        q[i] = value(i);
    for (int i = 0; i < 3; i++) {
        k[i] = pl_f32_to_bf16(value(6 + i));
        v[i] = half[i];
    }
    for (int i = 0; i < 5; i++)
        n[i] = 1.5 + i;
    for (int i = 0; i < 12; i++)
        embed[i] = (float)i;
    const pl_st_source entries[] = {
        {.name = "q", .dtype = PL_F32, .rank = 2, .shape = {2, 3}, .data = q},
        {.name = "k", .dtype = PL_BF16, .rank = 2, .shape = {1, 3}, .data = k},
        {.name = "v", .dtype = PL_F16, .rank = 2, .shape = {1, 3}, .data = v},
        {.name = "norm", .dtype = PL_F64, .rank = 1, .shape = {5}, .data = n},
        {.name = "embed", .dtype = PL_F32, .rank = 2, .shape = {4, 3}, .data = embed},
        {.name = "ids", .dtype = PL_I64, .rank = 2, .shape = {2, 2}, .data = ids},
    };
    assert_ok(pl_st_write(path, entries, 6, NULL, 0, &err));
}

static void test_read(void **state) {
    (void)state;
    pl_err            err;
    pl_weight_source *src;
    put_mixed(at("mixed.safetensors"));
    assert_ok(pl_weight_source_open(&src, at("mixed.safetensors"), &err));
    const pl_weight_spec specs[] = {qkv, norm, head, extra};
    assert_ok(pl_weight_source_check(src, specs, 4, &err));
    static const float want[12] = {-.5f, -.25f, 0, .25f, .5f, .75f, 1, -.5f, -.25f, 1, -2, .5f};
    float              got[12];
    assert_ok(pl_weight_read_f32(src, &qkv, got, &err));
    assert_memory_equal(got, want, sizeof want);
    // Every range of rows, across the seams.
    for (int64_t row = 0; row <= ROWS; row++)
        for (int64_t n = 0; row + n <= ROWS; n++) {
            float part[14];
            for (int i = 0; i < 14; i++)
                part[i] = 99;
            assert_ok(pl_weight_read_rows(src, &qkv, row, n, part + 1, &err));
            assert_memory_equal(part + 1, want + row * COLS, (size_t)(n * COLS) * sizeof *part);
            assert_true(part[0] == 99 && part[1 + n * COLS] == 99);
        }
    assert_ok(pl_weight_read_f32(src, &norm, got, &err));
    assert_true(got[0] == 1.5f && got[4] == 5.5f);
    assert_ok(pl_weight_read_rows(src, &norm, 3, 2, got, &err));
    assert_true(got[0] == 4.5f && got[1] == 5.5f);
    // By its other name.
    assert_ok(pl_weight_read_f32(src, &head, got, &err));
    assert_true(got[0] == 0 && got[11] == 11);
    assert_true(pl_weight_has(src, &head));
    assert_false(pl_weight_has(src, &extra));
    pl_weight_drop(src, &head);
    pl_weight_drop(src, &extra);
    assert_says(pl_weight_read_f32(src, &extra, got, &err), PL_E_INPUT, &err, "g: missing; expected a tensor of shape");

    const void *data;
    pl_dtype    dtype;
    assert_true(pl_weight_view(src, &head, &data, &dtype));
    assert_int_equal(dtype, PL_F32);
    assert_true(((const float *)data)[11] == 11);
    assert_false(pl_weight_view(src, &qkv, &data, &dtype));
    assert_false(pl_weight_view(src, &extra, &data, &dtype));

    assert_int_equal(pl_weight_source_stored_dtype(src, NULL, 0), PL_F32); // they differ
    assert_int_equal(pl_weight_source_stored_dtype(src, &norm, 1), PL_F64);
    const pl_weight_spec k = {.part = {{"k", 1}}, .n_parts = 1, .rows = 1, .cols = 3};
    assert_int_equal(pl_weight_source_stored_dtype(src, &k, 1), PL_BF16);
    assert_int_equal(pl_weight_source_stored_dtype(src, (pl_weight_spec[]){k, norm}, 2), PL_BF16);
    assert_int_equal(pl_weight_source_stored_dtype(src, &extra, 1), PL_F32);

    const char *names[2];
    int64_t     count;
    assert_ok(pl_weight_source_unclaimed(src, specs, 4, names, 2, &count, &err));
    assert_int_equal(count, 1);
    assert_string_equal(names[0], "ids");
    assert_ok(pl_weight_source_unclaimed(src, &norm, 1, names, 2, &count, &err));
    assert_int_equal(count, 5);
    pl_weight_source_close(src);
}

static void test_bad(void **state) {
    (void)state;
    static const struct {
        pl_weight_spec spec;
        const char    *says;
    } bad[] = {
        {{.part = {{"absent", 2}}, .n_parts = 1, .rows = 2, .cols = 3},
         "absent: missing; expected a tensor of shape [2, 3]"},
        {{.part = {{"absent", 2}}, .n_parts = 1, .rows = 2}, "absent: missing; expected a tensor of shape [2]"},
        {{.part = {{"q", 3}}, .n_parts = 1, .rows = 3, .cols = 3}, "q: expected shape [3, 3], found [2, 3]"},
        {{.part = {{"q", 2}}, .n_parts = 1, .rows = 2, .cols = 4}, "q: expected shape [2, 4], found [2, 3]"},
        {{.part = {{"q", 2}}, .n_parts = 1, .rows = 2}, "q: expected shape [2], found [2, 3]"},
        {{.part = {{"norm", 5}}, .n_parts = 1, .rows = 5, .cols = 1}, "norm: expected shape [5, 1], found [5]"},
        {{.part = {{"ids", 2}}, .n_parts = 1, .rows = 2, .cols = 2}, "ids: expected F32, BF16, F16 or F64, found I64"},
        {{.part = {{"q", 2}, {"k", 2}}, .n_parts = 2, .rows = 4, .cols = 3}, "k: expected shape [2, 3], found [1, 3]"},
        {{.part = {{"lm", 4}}, .n_parts = 1, .rows = 4, .cols = 4, .alias = "embed"},
         "embed: expected shape [4, 4], found [4, 3]"},
        // An optional stack of which one part is there is no stack.
        {{.part = {{"q", 2}, {"k2", 1}}, .n_parts = 2, .rows = 3, .cols = 3, .optional = true}, "k2: missing"},
    };
    pl_err            err;
    pl_weight_source *src;
    const void       *data;
    pl_dtype          dtype;
    put_mixed(at("mixed.safetensors"));
    assert_ok(pl_weight_source_open(&src, at("mixed.safetensors"), &err));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        float untouched[16] = {42};
        assert_says(pl_weight_source_check(src, &bad[i].spec, 1, &err), PL_E_INPUT, &err, bad[i].says);
        assert_non_null(strstr(err.msg, "mixed.safetensors: "));
        assert_says(pl_weight_read_f32(src, &bad[i].spec, untouched, &err), PL_E_INPUT, &err, bad[i].says);
        assert_true(untouched[0] == 42);
        assert_false(pl_weight_view(src, &bad[i].spec, &data, &dtype));
    }
    pl_weight_source_close(src);
    assert_says(pl_weight_source_open(&src, at("absent"), &err), PL_E_INPUT, &err, "absent");
    assert_null(src);
}

static void test_unaligned_view(void **state) {
    (void)state;
    // A header of odd length puts the floats on an odd address: then there is no view, and reading still works.
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    uint64_t          len = strlen(header) + (strlen(header) % 2 == 0);
    uint8_t           file[128];
    const float       a[2] = {1.5f, -2};
    pl_err            err;
    memset(file, ' ', sizeof file);
    memcpy(file, &len, 8);
    memcpy(file + 8, header, strlen(header));
    memcpy(file + 8 + len, a, sizeof a);
    put_file(at("odd"), file, 8 + len + sizeof a);
    const pl_weight_spec spec = {.part = {{"a", 2}}, .n_parts = 1, .rows = 2};
    pl_weight_source    *src;
    const void          *data;
    pl_dtype             dtype;
    float                got[2];
    assert_ok(pl_weight_source_open(&src, at("odd"), &err));
    assert_false(pl_weight_view(src, &spec, &data, &dtype));
    assert_ok(pl_weight_read_f32(src, &spec, got, &err));
    assert_memory_equal(got, a, sizeof a);
    pl_weight_source_close(src);
}

static int  released;
static char owned_path[] = "here";

static void count_release(void *owner) {
    assert_string_equal(owner, "owner");
    memset(owned_path, '?', sizeof owned_path - 1); // a path may be the owner's
    released++;
}

// Rows of two heads of four: neighbours (0, 1), (2, 3) become (0, 2), (1, 3).
static void test_rope_order(void **state) {
    (void)state;
    float data[8 * 2];
    for (int i = 0; i < 16; i++)
        data[i] = (float)i;
    const pl_weight_entry entry = {
        .name = "q", .dtype = PL_F32, .rank = 2, .shape = {8, 2}, .data = data, .bytes = sizeof data, .rope_heads = 2};
    const pl_weight_spec spec = {.part = {{"q", 8}}, .n_parts = 1, .rows = 8, .cols = 2};
    static const int     order[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    pl_err               err;
    pl_weight_source    *src;
    const void          *view;
    pl_dtype             dtype;
    float                got[16];
    released = 0;
    assert_ok(pl_weight_source_create(&src, "here", &entry, 1, count_release, (void *)"owner", &err));
    assert_false(pl_weight_view(src, &spec, &view, &dtype));
    assert_ok(pl_weight_read_f32(src, &spec, got, &err));
    for (int r = 0; r < 8; r++)
        assert_memory_equal(got + 2 * r, data + 2 * order[r], 2 * sizeof *data);
    assert_ok(pl_weight_read_rows(src, &spec, 5, 2, got, &err));
    assert_memory_equal(got, data + 2 * order[5], 2 * sizeof *data);
    assert_memory_equal(got + 2, data + 2 * order[6], 2 * sizeof *data);
    pl_weight_source_close(src);
    assert_int_equal(released, 1);
    const pl_weight_entry twice[2] = {entry, entry};
    assert_says(pl_weight_source_create(&src, "here", twice, 2, count_release, (void *)"owner", &err), PL_E_INPUT, &err,
                "here: two tensors named q");
    assert_null(src);
    assert_int_equal(released, 2);
    for (uint64_t n = 1; n <= 4; n++) {
        pl_alloc_fail_after(n);
        memcpy(owned_path, "here", 4);
        assert_says(pl_weight_source_create(&src, owned_path, &entry, 1, count_release, (void *)"owner", &err),
                    PL_E_MEMORY, &err, "here: out of memory");
        pl_alloc_fail_after(0);
        assert_int_equal(released, 2 + (int)n);
    }
}

static void test_write(void **state) {
    (void)state;
    pl_err  err;
    float   stack[12], vector[5], tied[12];
    int64_t d2t[4] = {0, 5, 9, 9};
    for (int i = 0; i < 12; i++) {
        stack[i] = 1 + (float)i / 1000; // not exact in bf16
        tied[i] = (float)-i;
    }
    for (int i = 0; i < 5; i++)
        vector[i] = (float)i / 3;
    const pl_weight_spec specs[] = {qkv, norm, extra, head};
    const float *const   data[] = {stack, vector, NULL, tied};
    const pl_st_source   raw = {.name = "d2t", .dtype = PL_I64, .rank = 1, .shape = {4}, .data = d2t};
    for (int pass = 0; pass < 2; pass++) {
        pl_dtype          dtype = pass ? PL_BF16 : PL_F32;
        pl_weight_source *src;
        float             got[12];
        assert_ok(pl_weights_write(at("out"), specs, 4, data, dtype, &raw, 1, &(pl_st_pair){"format", "pt"}, 1, &err));
        assert_ok(pl_weight_source_open(&src, at("out"), &err));
        assert_ok(pl_weight_source_check(src, specs, 4, &err));
        assert_int_equal(pl_weight_source_count(src), 6);
        assert_int_equal(pl_weight_source_stored_dtype(src, specs, 4), dtype);
        assert_int_equal(pl_weight_source_find(src, "v")->shape[0], 1);
        assert_memory_equal(pl_weight_source_find(src, "d2t")->data, d2t, sizeof d2t);
        assert_ok(pl_weight_read_f32(src, &qkv, got, &err));
        for (int i = 0; i < 12; i++)
            assert_true(got[i] == (pass ? pl_round_bf16(stack[i]) : stack[i]));
        assert_ok(pl_weight_read_f32(src, &norm, got, &err));
        for (int i = 0; i < 5; i++)
            assert_true(got[i] == (pass ? pl_round_bf16(vector[i]) : vector[i]));
        assert_false(pl_weight_has(src, &extra));
        pl_weight_source_close(src);
    }
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 100);
        pl_alloc_fail_after(n);
        pl_status st = pl_weights_write(at("out"), specs, 4, data, PL_F32, &raw, 1, NULL, 0, &err);
        done = st == PL_OK;
        pl_alloc_fail_after(0);
        if (!done) assert_says(st, PL_E_MEMORY, &err, "out of memory");
    }
}

static void test_real(void **state) {
    (void)state;
    const char *dir = outside("models/TinyStories-656K");
    if (!dir) skip();
    const pl_weight_spec specs[] = {
        {.part = {{"model.layers.0.self_attn.q_proj.weight", 128},
                  {"model.layers.0.self_attn.k_proj.weight", 64},
                  {"model.layers.0.self_attn.v_proj.weight", 64}},
         .n_parts = 3,
         .rows = 256,
         .cols = 128},
        {.part = {{"lm_head.weight", 2048}},
         .n_parts = 1,
         .rows = 2048,
         .cols = 128,
         .alias = "model.embed_tokens.weight"},
        {.part = {{"model.norm.weight", 128}}, .n_parts = 1, .rows = 128},
    };
    pl_err            err;
    pl_weight_source *src;
    const char       *names[32];
    int64_t           count;
    assert_ok(pl_weight_source_open(&src, dir, &err));
    assert_ok(pl_weight_source_check(src, specs, 3, &err));
    assert_int_equal(pl_weight_source_stored_dtype(src, specs, 3), PL_BF16);
    assert_ok(pl_weight_source_unclaimed(src, specs, 3, names, 32, &count, &err));
    assert_int_equal(count, 15);
    float *rows = malloc(256 * 128 * sizeof *rows);
    assert_ok(pl_weight_read_f32(src, specs, rows, &err));
    const pl_weight_entry *v = pl_weight_source_find(src, "model.layers.0.self_attn.v_proj.weight");
    const uint16_t        *bits = v->data;
    for (int i = 0; i < 64 * 128; i++)
        if (rows[192 * 128 + i] != pl_bf16_to_f32(bits[i])) fail_msg("v %d", i);
    free(rows);
    pl_weight_source_close(src);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),       cmocka_unit_test(test_bad),   cmocka_unit_test(test_unaligned_view),
        cmocka_unit_test(test_rope_order), cmocka_unit_test(test_write), cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
