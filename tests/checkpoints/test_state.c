#include "checkpoints/state.h"
#include "kernels/base/hash.h"
#include "scratch.h"

static const float    W[5] = {1, -2, 3.5f, 4, 5};
static const uint16_t H[3] = {1, 2, 3};
static const int64_t  POS[2] = {123456789012345, -1};

static const pl_state_item ITEMS[] = {
    {.name = "w", .dtype = PL_F32, .count = 5, .data = W},
    {.name = "position", .dtype = PL_I64, .count = 2, .data = POS},
    {.name = "empty", .dtype = PL_F32, .count = 0},
    {.name = "h", .dtype = PL_BF16, .count = 3, .data = H},
    {.name = "recipe", .dtype = PL_U8, .count = 11, .data = "seed: 1\n#\xff\0"},
};
enum { N = sizeof ITEMS / sizeof *ITEMS };

static void test_round_trip(void **state) {
    (void)state;
    pl_err    err;
    pl_state *s;
    assert_ok(pl_state_write(at("s"), ITEMS, N, &err));
    assert_ok(pl_state_open(&s, at("s"), &err));
    assert_int_equal(pl_state_count(s), N);
    for (int i = 0; i < N; i++) {
        const pl_state_item *item = pl_state_at(s, i);
        assert_string_equal(item->name, ITEMS[i].name);
        assert_ptr_equal(pl_state_find(s, ITEMS[i].name), item);
        assert_int_equal(item->dtype, ITEMS[i].dtype);
        assert_int_equal(item->count, ITEMS[i].count);
        assert_int_equal((uintptr_t)item->data % 64, 0);
        if (ITEMS[i].data)
            assert_memory_equal(item->data, ITEMS[i].data, (size_t)item->count * pl_dtype_size(item->dtype));
    }
    const void *data = &err;
    assert_ok(pl_state_get(s, "w", PL_F32, 5, &data, &err));
    assert_ptr_equal(data, pl_state_at(s, 0)->data);
    assert_says(pl_state_get(s, "w", PL_F32, 6, &data, &err), PL_E_INPUT, &err, "w: expected 6 of F32, found 5 of F32");
    assert_null(data);
    assert_says(pl_state_get(s, "w", PL_BF16, 5, &data, &err), PL_E_INPUT, &err, "expected 5 of BF16, found 5 of F32");
    assert_says(pl_state_get(s, "x", PL_F32, 5, &data, &err), PL_E_INPUT, &err, "x: missing");
    assert_null(pl_state_find(s, "x"));
    pl_state_close(s);
    assert_ok(pl_state_write(at("none"), NULL, 0, &err));
    assert_ok(pl_state_open(&s, at("none"), &err));
    assert_int_equal(pl_state_count(s), 0);
    pl_state_close(s);
}

static void test_same_bytes(void **state) {
    (void)state;
    pl_err   err;
    uint8_t *a, *b;
    size_t   na, nb;
    assert_ok(pl_state_write(at("a"), ITEMS, N, &err));
    assert_ok(pl_state_write(at("b"), ITEMS, N, &err));
    assert_ok(pl_file_read(at("a"), &a, &na, 1 << 20, &err));
    assert_ok(pl_file_read(at("b"), &b, &nb, 1 << 20, &err));
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    pl_free(a);
    pl_free(b);
}

// Whatever byte changes, wherever the file is cut or grows: it is refused.
static void test_every_damage(void **state) {
    (void)state;
    pl_err    err;
    pl_state *s;
    uint8_t  *data;
    size_t    n;
    assert_ok(pl_state_write(at("s"), ITEMS, N, &err));
    assert_ok(pl_file_read(at("s"), &data, &n, 1 << 20, &err));
    for (size_t i = 0; i < n; i++) {
        data[i] ^= (uint8_t)(1 << i % 8);
        put_file(at("d"), data, n);
        data[i] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(pl_state_open(&s, at("d"), &err), PL_E_INPUT);
        assert_null(s);
        assert_non_null(strstr(err.msg, at("d")));
        put_file(at("d"), data, i);
        assert_int_equal(pl_state_open(&s, at("d"), &err), PL_E_INPUT);
    }
    for (size_t more = 1; more <= 64; more++) {
        uint8_t *longer = calloc(1, n + more);
        memcpy(longer, data, n);
        put_file(at("d"), longer, n + more);
        free(longer);
        assert_int_equal(pl_state_open(&s, at("d"), &err), PL_E_INPUT);
    }
    pl_free(data);
}

// Files whose sums are right and whose content lies: one item "ab" of two F32 at 128.
//   0 header, 24 row {name 2, "F32", count 2, offset, hash}, 64 "ab" and zeros, 72 end of table, 128 blob, 136 sum
static void test_lies(void **state) {
    (void)state;
    static const float data[2] = {1, 2};
    const struct {
        size_t      at, n;
        uint64_t    value;
        const char *says;
    } lies[] = {
        {0, 1, 'X', "not a training state of paceline"},
        {8, 4, 2, "training state of version 2, this program reads 1"},
        {12, 4, 2, "the table ends too early"},
        {12, 4, 0, "something behind the last item"},
        {12, 4, UINT32_MAX, "a header that makes no sense"},
        {24, 8, 0, "a name in the table is not one"},
        {24, 8, 256, "a name in the table is not one"},
        {24, 8, 9, "a name in the table is not one"},
        {24, 8, UINT64_MAX, "a name in the table is not one"},
        {24, 8, 1, "a name in the table is not one"}, // then 'b' stands where zeros belong
        {65, 1, 0, "a name in the table is not one"}, // a zero inside of it
        {67, 1, 'x', "a name in the table is not one"},
        {32, 8, 0, "a type or count in the table makes no sense"},
        {35, 1, 'x', "a type or count in the table makes no sense"},
        {40, 8, UINT64_MAX, "a type or count in the table makes no sense"},
        {40, 8, (uint64_t)1 << 62, "a type or count in the table makes no sense"},
        {40, 8, 3, "an item lies outside of its place"},
        {40, 8, 1, "wrong checksum"},
        {48, 8, 192, "an item lies outside of its place"},
        {48, 8, 0, "an item lies outside of its place"},
        {48, 8, UINT64_MAX, "an item lies outside of its place"},
        {56, 8, 5, "ab: wrong checksum"},
        {100, 1, 1, "something between the items"},
        {128, 1, 1, "ab: wrong checksum"},
    };
    pl_err    err;
    pl_state *s;
    uint8_t  *file;
    size_t    n;
    assert_ok(
        pl_state_write(at("t"), &(pl_state_item){.name = "ab", .dtype = PL_F32, .count = 2, .data = data}, 1, &err));
    assert_ok(pl_file_read(at("t"), &file, &n, 1 << 20, &err));
    assert_int_equal(n, 144);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        uint8_t copy[144];
        memcpy(copy, file, n);
        memcpy(copy + lies[i].at, &lies[i].value, lies[i].n);
        uint64_t sum = pl_hash(copy, 72);
        memcpy(copy + 136, &sum, 8);
        put_file(at("l"), copy, n);
        pl_status st = pl_state_open(&s, at("l"), &err);
        if (st == PL_OK) fail_msg("accepted lie %zu", i);
        assert_refused(st, &err, lies[i].says);
        assert_null(s);
    }
    // A table length that leads out of the file must not be followed to compute a sum.
    for (uint64_t table = 57; table < 1000; table += 100) {
        uint8_t copy[144];
        memcpy(copy, file, n);
        memcpy(copy + 16, &table, 8);
        put_file(at("l"), copy, n);
        assert_int_equal(pl_state_open(&s, at("l"), &err), PL_E_INPUT);
    }
    pl_free(file);
    // Two items of one name, with a right sum.
    const pl_state_item two[] = {{.name = "ab", .dtype = PL_U8, .count = 0},
                                 {.name = "ac", .dtype = PL_U8, .count = 0}};
    assert_ok(pl_state_write(at("t"), two, 2, &err));
    assert_ok(pl_file_read(at("t"), &file, &n, 1 << 20, &err));
    file[24 + 48 + 40 + 1] = 'b';
    uint64_t sum = pl_hash(file, 24 + 96);
    memcpy(file + n - 8, &sum, 8);
    put_file(at("l"), file, n);
    assert_says(pl_state_open(&s, at("l"), &err), PL_E_INPUT, &err, "two items of one name");
    pl_free(file);
    put_text(at("l"), "{\"json\": \"and long enough to hold a header\"}");
    assert_says(pl_state_open(&s, at("l"), &err), PL_E_INPUT, &err, "not a training state of paceline");
    put_text(at("l"), "");
    assert_says(pl_state_open(&s, at("l"), &err), PL_E_INPUT, &err, "not a training state of paceline");
    assert_says(pl_state_open(&s, at("absent"), &err), PL_E_INPUT, &err, "absent: cannot open");
}

static pl_status count_up(void *arg, int64_t at, void *data, int64_t n, pl_err *err) {
    int64_t *next = arg;
    assert_int_equal(at, *next);
    if (n > PL_STATE_STREAM || *next > 3 * PL_STATE_STREAM) return pl_fail(err, PL_E_IO, "too many");
    for (int64_t i = 0; i < n; i++)
        ((float *)data)[i] = (float)(at + i);
    *next += n;
    return PL_OK;
}

// What is filled piece by piece is the file of what lies there; a filler that fails leaves the old file.
static void test_streams(void **state) {
    (void)state;
    enum { COUNT = 2 * PL_STATE_STREAM + 77 };
    pl_err        err;
    int64_t       next = 0;
    uint8_t      *a, *b;
    size_t        na, nb;
    float        *lies = malloc(COUNT * sizeof *lies);
    pl_state_item item[] = {ITEMS[0], {.name = "long", .dtype = PL_F32, .count = COUNT}, ITEMS[3]};
    assert_non_null(lies);
    for (int i = 0; i < COUNT; i++)
        lies[i] = (float)i;
    item[1].data = lies;
    assert_ok(pl_state_write(at("lies"), item, 3, &err));
    item[1] = (pl_state_item){.name = "long", .dtype = PL_F32, .count = COUNT, .fill = count_up, .arg = &next};
    assert_ok(pl_state_write(at("streams"), item, 3, &err));
    assert_int_equal(next, COUNT);
    assert_ok(pl_file_read(at("lies"), &a, &na, 1 << 24, &err));
    assert_ok(pl_file_read(at("streams"), &b, &nb, 1 << 24, &err));
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    next = 0;
    item[1].count = 5 * (int64_t)PL_STATE_STREAM;
    assert_int_equal(pl_state_write(at("streams"), item, 3, &err), PL_E_IO);
    pl_free(b);
    assert_ok(pl_file_read(at("streams"), &b, &nb, 1 << 24, &err));
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    pl_free(a), pl_free(b), free(lies);
}

static void test_faults(void **state) {
    (void)state;
    pl_err    err;
    pl_state *s;
    bool      done = false;
    assert_ok(pl_state_write(at("f"), ITEMS, 1, &err));
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 60);
        pl_io_fail_after(n);
        pl_status st = pl_state_write(at("f"), ITEMS, N, &err);
        pl_io_fail_after(0);
        done = st == PL_OK;
        if (!done) assert_int_equal(st, PL_E_IO);
        assert_ok(pl_state_open(&s, at("f"), &err)); // the old one or the new one
        assert_true(pl_state_count(s) == 1 || pl_state_count(s) == N);
        assert_true(!done || pl_state_count(s) == N);
        pl_state_close(s);
    }
    done = false;
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 60);
        pl_alloc_fail_after(n);
        pl_status st = pl_state_write(at("f"), ITEMS, N, &err);
        done = st == PL_OK;
        pl_alloc_fail_after(0);
        if (!done) assert_says(st, PL_E_MEMORY, &err, "out of memory");
    }
    done = false;
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 60);
        pl_alloc_fail_after(n);
        pl_status st = pl_state_open(&s, at("f"), &err);
        done = st == PL_OK;
        pl_alloc_fail_after(0);
        if (!done) assert_says(st, PL_E_MEMORY, &err, "out of memory");
        pl_state_close(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_every_damage),
        cmocka_unit_test(test_lies),       cmocka_unit_test(test_streams),    cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
