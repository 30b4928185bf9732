// ggml's types: their values against the gguf package's, bit for bit; and that encodings of the same bytes differ in
// their fingerprints.
#include "checkpoints/fingerprint.h"
#include "checkpoints/ggml.h"
#include "scratch.h"

enum { COLS = 256, TYPES = 13, CODED = 6 };

static uint32_t take_u32(const uint8_t **at) {
    uint32_t v;
    memcpy(&v, *at, sizeof v);
    *at += sizeof v;
    return v;
}

// Codes hold the values that read decodes, rounded to bf16.
static void check_codes(const pl_weight_entry *e, const float *want) {
    uint8_t     panel[COLS / PL_CODE_BLOCK * 64 * 40]; // as large as any form's
    pl_code_row row[COLS / PL_CODE_BLOCK];
    assert_true(pl_codes_bytes(1, COLS, e->code->form) <= sizeof panel);
    e->code->codes(e, 1, row);
    for (int b = 0; b < COLS / PL_CODE_BLOCK; b++)
        pl_codes_put(panel, e->code->form, 5, b, COLS, &row[b]);
    for (int k = 0; k < COLS; k++)
        if (pl_codes_at(panel, e->code->form, 5, k, COLS) != pl_round_bf16(want[k]))
            fail_msg("%s: column %d has another value as a code", e->code->name, k);
}

static void test_values(void **state) {
    (void)state;
    pl_err   err;
    uint8_t *data;
    size_t   n;
    int      types = 0, coded = 0;
    assert_ok(pl_file_read(PACELINE_SOURCE_DIR "/tests/checkpoints/golden_ggml.bin", &data, &n, 1 << 20, &err));
    for (const uint8_t *at = data; at < data + n; types++) {
        const pl_ggml_type *t = pl_ggml_type_of(take_u32(&at));
        uint32_t            bytes = take_u32(&at);
        uint8_t             two[2][512];
        float               got[2][COLS], want[COLS];
        assert_non_null(t);
        assert_int_equal(t->dtype, PL_BF16);
        assert_int_equal(COLS / t->block * t->bytes, bytes);
        memcpy(two[0], at, bytes);
        memcpy(two[0] + bytes, at, bytes); // two rows, of which the second is read first
        memcpy(want, at + bytes, sizeof want);
        at += bytes + sizeof want;
        pl_weight_entry e = {.rank = 2, .shape = {2, COLS}, .data = two[0], .code = t->code};
        t->code->read(&e, 1, 1, got[1]);
        t->code->read(&e, 0, 1, got[0]);
        for (int r = 0; r < 2; r++)
            if (memcmp(got[r], want, sizeof want) != 0) fail_msg("%s: row %d has other values", t->name, r);
        if (t->code->codes) {
            check_codes(&e, want);
            coded++;
        }
        assert_int_equal(t->code->span(&e), 2 * (size_t)bytes);
        assert_string_equal(pl_ggml_type_name(&e), t->name);
    }
    assert_int_equal(types, TYPES);
    assert_int_equal(coded, CODED);
    pl_free(data);
}

static void test_numbers(void **state) {
    (void)state;
    const pl_ggml_type *f16 = pl_ggml_type_of(1), *other = pl_ggml_type_of(16);
    assert_true(f16->dtype == PL_F16 && !f16->code && f16->bytes == 2);
    assert_true(other->bytes == 0 && strcmp(other->name, "IQ2_XXS") == 0);
    assert_null(pl_ggml_type_of(4)); // once Q4_2
    assert_null(pl_ggml_type_of(1000));
    assert_string_equal(pl_ggml_type_name(&(pl_weight_entry){.dtype = PL_F16}), pl_dtype_name(PL_F16));
}

static void release_nothing(void *owner) {
    (void)owner;
}

// Q4_0 and IQ4_NL have blocks of the same size.
static void test_fingerprints(void **state) {
    (void)state;
    static const uint8_t row[18] = {0, 60, 1, 2, 3};
    char                 print[2][17];
    for (int i = 0; i < 2; i++) {
        pl_err            err;
        pl_weight_source *src;
        pl_weight_entry   e = {.name = "w",
                               .dtype = PL_BF16,
                               .rank = 2,
                               .shape = {1, 32},
                               .data = row,
                               .bytes = sizeof row,
                               .code = pl_ggml_type_of(i ? 20 : 2)->code};
        assert_ok(pl_weight_source_create(&src, "x", &e, 1, release_nothing, NULL, &err));
        assert_ok(pl_fingerprint(print[i], src, NULL, true, &err));
        pl_weight_source_close(src);
    }
    assert_string_not_equal(print[0], print[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_fingerprints)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
