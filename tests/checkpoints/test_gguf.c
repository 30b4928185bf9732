// GGUF files: what is written is read, and whatever is broken is refused with its place.
#include "checkpoints/gguf.h"
#include "kernels/base/files.h"
#include "tests/checkpoints/scratch.h"

static const float   matrix[2][3] = {{1, 2, 3}, {4, 5, 6}};
static const int64_t wide[5] = {7, -1, 5, INT64_MAX, 0};

static void write_one(const char *path) {
    static const int32_t list[] = {2, -8, 13};
    pl_err               err = {0};
    pl_gguf_out         *o = pl_gguf_out_new();
    assert_non_null(o);
    pl_gguf_put_text(o, "general.architecture", "eagle3");
    pl_gguf_put_u32(o, "a.number", 4000000000u);
    pl_gguf_put_f32(o, "a.real", 0.5f);
    pl_gguf_put_bool(o, "a.switch", true);
    pl_gguf_put_i32s(o, "a.list", list, 3);
    pl_gguf_put_text(o, "empty", "");
    pl_gguf_put_tensor(o, "m", PL_F32, 2, (const int64_t[]){2, 3}, matrix);
    pl_gguf_put_tensor(o, "ids", PL_I64, 1, (const int64_t[]){5}, wide);
    assert_ok(pl_gguf_write(o, path, &err));
    pl_gguf_out_free(o);
}

static void round_trip(void **state) {
    (void)state;
    pl_err   err = {0};
    pl_gguf *g;
    int64_t  v;
    char     text[16];
    write_one(at("one.gguf"));
    assert_ok(pl_gguf_open(&g, at("one.gguf"), &err));
    assert_int_equal(pl_gguf_values(g), 6);
    assert_int_equal(pl_gguf_tensors(g), 2);
    assert_true(pl_gguf_int(g, "a.number", &v) && v == 4000000000);
    assert_false(pl_gguf_int(g, "a.real", &v) || pl_gguf_int(g, "a.switch", &v) || pl_gguf_int(g, "none", &v));
    assert_true(pl_gguf_text(g, "general.architecture", text, sizeof text) && strcmp(text, "eagle3") == 0);
    assert_true(pl_gguf_text(g, "empty", text, sizeof text) && !*text);
    assert_false(pl_gguf_text(g, "general.architecture", text, 6) || pl_gguf_text(g, "a.number", text, sizeof text));
    const pl_gguf_value *list = pl_gguf_find(g, "a.list");
    assert_true(list->type == PL_GGUF_ARRAY && list->item == PL_GGUF_I32 && list->n == 3);
    const pl_gguf_tensor *m = pl_gguf_find_tensor(g, "m"), *ids = pl_gguf_find_tensor(g, "ids");
    assert_true(m && ids && m->rank == 2 && m->shape[0] == 3 && m->shape[1] == 2 && m->type == 0 && ids->type == 27);
    assert_memory_equal(m->data, matrix, sizeof matrix);
    assert_memory_equal(ids->data, wide, sizeof wide);
    assert_true(((uintptr_t)ids->data & 31) == ((uintptr_t)m->data & 31)); // aligned alike
    // All values into another file, as they are: the same keys, byte for byte.
    pl_gguf_out *o = pl_gguf_out_new();
    for (int64_t i = 0; i < pl_gguf_values(g); i++)
        pl_gguf_put_value(o, pl_gguf_value_at(g, i));
    pl_gguf_put_tensor(o, "m", PL_F32, 2, (const int64_t[]){2, 3}, matrix);
    pl_gguf_put_tensor(o, "ids", PL_I64, 1, (const int64_t[]){5}, wide);
    assert_ok(pl_gguf_write(o, at("two.gguf"), &err));
    pl_gguf_out_free(o);
    pl_gguf_close(g);
    uint8_t *a, *b;
    size_t   na, nb;
    assert_ok(pl_file_read(at("one.gguf"), &a, &na, 1 << 20, &err));
    assert_ok(pl_file_read(at("two.gguf"), &b, &nb, 1 << 20, &err));
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    pl_free(a);
    pl_free(b);
}

// Cut anywhere, or with a byte changed, it is refused or read; never more than there is.
static void broken(void **state) {
    (void)state;
    static const struct {
        size_t      at;
        uint8_t     byte;
        const char *says;
    } cases[] = {{0, 'X', "not a GGUF file"},       {4, 4, "GGUF of version 4"},  {8, 200, "the file ends inside"},
                 {16, 200, "the file ends inside"}, {24, 0, "a name of 0 bytes"}, {52, 13, "type 13 is unknown"}};
    pl_err   err = {0};
    pl_gguf *g;
    uint8_t *data;
    size_t   n;
    int      cut = 0;
    write_one(at("one.gguf"));
    assert_ok(pl_file_read(at("one.gguf"), &data, &n, 1 << 20, &err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t was = data[cases[i].at];
        data[cases[i].at] = cases[i].byte;
        put_file(at("bad.gguf"), data, n);
        assert_int_equal(pl_gguf_open(&g, at("bad.gguf"), &err), PL_E_INPUT);
        if (!strstr(err.msg, cases[i].says)) fail_msg("%s: %s", cases[i].says, err.msg);
        data[cases[i].at] = was;
    }
    for (size_t k = 0; k < n; k++) {
        put_file(at("bad.gguf"), data, k);
        pl_status st = pl_gguf_open(&g, at("bad.gguf"), &err);
        if (st == PL_OK) pl_gguf_close(g);
        cut += st != PL_OK;
    }
    assert_true((size_t)cut >= n - 24); // behind the last tensor there is but padding
    pl_free(data);
    // The same name twice.
    pl_gguf_out *o = pl_gguf_out_new();
    pl_gguf_put_u32(o, "k", 1);
    pl_gguf_put_u32(o, "k", 2);
    assert_ok(pl_gguf_write(o, at("bad.gguf"), &err));
    pl_gguf_out_free(o);
    assert_int_equal(pl_gguf_open(&g, at("bad.gguf"), &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "\"k\" stands there twice"));
}

static void out_of_memory(void **state) {
    (void)state;
    pl_err    err = {0};
    pl_status st = PL_E_MEMORY;
    write_one(at("one.gguf"));
    for (uint64_t i = 1; st != PL_OK; i++) {
        pl_gguf *g = NULL;
        pl_alloc_fail_after(i);
        st = pl_gguf_open(&g, at("one.gguf"), &err);
        pl_alloc_fail_after(0);
        assert_true(st == PL_OK || st == PL_E_MEMORY);
        pl_gguf_close(g);
    }
    st = PL_E_MEMORY;
    for (uint64_t i = 1; st != PL_OK; i++) {
        pl_alloc_fail_after(i);
        pl_gguf_out *o = pl_gguf_out_new();
        if (o) {
            pl_gguf_put_u32(o, "k", 1);
            pl_gguf_put_tensor(o, "m", PL_F32, 2, (const int64_t[]){2, 3}, matrix);
            st = pl_gguf_write(o, at("three.gguf"), &err);
            pl_gguf_out_free(o);
        }
        pl_alloc_fail_after(0);
        assert_true(st == PL_OK || st == PL_E_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip), cmocka_unit_test(broken),
                                       cmocka_unit_test(out_of_memory)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
