#include "checkpoints/fingerprint.h"
#include "checkpoints/llama2c.h"
#include "scratch.h"
#include <ctype.h>

enum { LONG = 40000 };

static uint8_t bytes[LONG];

static void put_model(const char *path, const char *name, pl_dtype dtype, int64_t rows) {
    pl_err             err;
    const int64_t      size = (int64_t)pl_dtype_size(dtype);
    const pl_st_source entries[] = {
        {.name = name, .dtype = dtype, .rank = 2, .shape = {rows, LONG / rows / size}, .data = bytes},
        {.name = "b", .dtype = PL_F32, .rank = 1, .shape = {2}, .data = bytes},
    };
    assert_ok(pl_st_write(path, entries, 2, NULL, 0, &err));
}

static void print(char out[17], const char *path, const pl_hf_config *cfg, bool full) {
    pl_err            err;
    pl_weight_source *src;
    assert_ok(pl_weight_source_open(&src, path, &err));
    assert_ok(pl_fingerprint(out, src, cfg, full, &err));
    pl_weight_source_close(src);
    assert_int_equal(strlen(out), 16);
    for (int i = 0; i < 16; i++)
        assert_true(isxdigit((unsigned char)out[i]) && !isupper((unsigned char)out[i]));
}

static void test_content(void **state) {
    (void)state;
    char base[17], full[17], other[17];
    for (int i = 0; i < LONG; i++)
        bytes[i] = (uint8_t)(i * 31 >> 4);
    put_model(at("m"), "a", PL_F32, 100);
    print(base, at("m"), NULL, false);
    print(full, at("m"), NULL, true);
    assert_string_not_equal(base, full);
    print(other, at("m"), NULL, false);
    assert_string_equal(base, other);
    put_model(at("n"), "a2", PL_F32, 100);
    print(other, at("n"), NULL, false);
    assert_string_not_equal(base, other);
    put_model(at("n"), "a", PL_F32, 50);
    print(other, at("n"), NULL, false);
    assert_string_not_equal(base, other);
    put_model(at("n"), "a", PL_I32, 100);
    print(other, at("n"), NULL, false);
    assert_string_not_equal(base, other);
    // Sampled bytes are seen always, the others by the full one alone.
    static const struct {
        int  byte;
        bool sampled;
    } places[] = {{0, true},        {4095, true},  {4096, false},  {17951, false},       {17952, true},
                  {LONG / 2, true}, {22047, true}, {22048, false}, {LONG - 4097, false}, {LONG - 4096, true},
                  {LONG - 1, true}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        bytes[places[i].byte] ^= 1;
        put_model(at("n"), "a", PL_F32, 100);
        bytes[places[i].byte] ^= 1;
        print(other, at("n"), NULL, false);
        if (places[i].sampled != (strcmp(other, base) != 0)) fail_msg("sampled: byte %d", places[i].byte);
        print(other, at("n"), NULL, true);
        if (strcmp(other, full) == 0) fail_msg("full: byte %d", places[i].byte);
    }
}

static void test_shards(void **state) {
    (void)state;
    pl_err             err;
    char               one[17], two[17];
    const pl_st_source entries[] = {
        {.name = "x", .dtype = PL_F32, .rank = 1, .shape = {5}, .data = bytes},
        {.name = "a", .dtype = PL_F32, .rank = 1, .shape = {7}, .data = bytes + 64},
    };
    const pl_st_source turned[] = {entries[1], entries[0]};
    assert_ok(pl_dir_make(at("set"), &err));
    assert_ok(pl_st_write(at("single"), entries, 2, NULL, 0, &err));
    assert_ok(pl_st_write(at("turned"), turned, 2, NULL, 0, &err));
    assert_ok(pl_st_write(at("set/s1"), entries, 1, NULL, 0, &err));
    assert_ok(pl_st_write(at("set/s2"), entries + 1, 1, NULL, 0, &err));
    put_text(at("set/model.safetensors.index.json"), "{\"weight_map\":{\"a\":\"s2\",\"x\":\"s1\"}}");
    for (int full = 0; full < 2; full++) {
        print(one, at("single"), NULL, full);
        print(two, at("turned"), NULL, full);
        assert_string_equal(one, two);
        print(two, at("set"), NULL, full);
        assert_string_equal(one, two);
    }
}

static void test_config(void **state) {
    (void)state;
    char         none[17], base[17], other[17];
    pl_hf_config c;
    put_model(at("m"), "a", PL_F32, 100);
    pl_hf_config_init(&c);
    c.hidden_size = 64;
    c.num_attention_heads = 4;
    print(none, at("m"), NULL, false);
    print(base, at("m"), &c, false);
    assert_string_not_equal(none, base);
    pl_hf_config changed[8];
    for (int i = 0; i < 8; i++)
        changed[i] = c;
    changed[0].num_attention_heads = 8;
    changed[1].rope.theta = 500000;
    changed[2].rms_norm_eps = 1e-5;
    changed[3].rope.scaling = PL_HF_ROPE_LINEAR;
    changed[4].tie_word_embeddings = true;
    changed[5].n_taps = 1;
    changed[6].norm_output = true;
    strcpy(changed[7].head.kind, "routed");
    for (int i = 0; i < 8; i++) {
        print(other, at("m"), &changed[i], false);
        if (strcmp(other, base) == 0) fail_msg("change %d", i);
    }
    // These say how a model is used, not what it computes.
    c.eos_token_id[0] = 3;
    c.n_eos = 1;
    c.max_position_embeddings = 9999;
    print(other, at("m"), &c, false);
    assert_string_equal(other, base);
}

static void test_real(void **state) {
    (void)state;
    pl_err            err;
    pl_weight_source *src;
    pl_hf_config      c;
    char              a[17], b[17];
    if (!outside("")) skip();
    print(a, outside("models/TinyStories-656K"), NULL, false);
    print(b, outside("models/TinyStories-656K/model.safetensors"), NULL, false);
    assert_string_equal(a, b);
    assert_ok(pl_llama2c_open(&src, &c, outside("models/stories260K/stories260K.bin"), &err));
    assert_ok(pl_fingerprint(a, src, &c, false, &err));
    assert_ok(pl_fingerprint(b, src, &c, true, &err));
    assert_string_not_equal(a, b);
    pl_alloc_fail_after(1);
    assert_says(pl_fingerprint(a, src, &c, false, &err), PL_E_MEMORY, &err, "out of memory");
    assert_string_equal(a, "");
    pl_weight_source_close(src);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_content),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
