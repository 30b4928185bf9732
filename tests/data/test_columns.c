// A document's columns: widths by kind, growing, copying what is there.
#include "data/dataset/columns.h"
#include "tests/checkpoints/scratch.h"

enum { D = 4, TAPS = 3, TOP = 5, ROWS = 6 };

static const pl_columns_shape features = {.d = D, .taps = TAPS}, bare = {.d = D}, traces = {.d = D, .top = TOP};

// A row's elements by column: every kind has the tokens, and nothing of the other.
static void test_widths(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t      bytes, features, bare, traces; // of an element; elements of a row
    } want[PL_COLUMNS] = {{"tokens", 4, 1, 1, 1},      {"loss_mask", 1, 1, 1, 0},
                          {"argmax", 4, 1, 1, 0},      {"features", 2, TAPS * D, 0, 0},
                          {"last_hidden", 2, D, D, 0}, {"depth", 1, 0, 0, 1},
                          {"beam", 1, 0, 0, 1},        {"held_out", 1, 0, 0, 1},
                          {"hidden", 2, 0, 0, D},      {"output", 2, 0, 0, D},
                          {"top_id", 4, 0, 0, TOP},    {"top_prob", 4, 0, 0, TOP}};
    for (pl_column c = 0; c < PL_COLUMNS; c++) {
        assert_string_equal(pl_column_name(c), want[c].name);
        assert_int_equal(pl_element_size(pl_column_element(c)), want[c].bytes);
        assert_int_equal(pl_column_width(c, &features), want[c].features);
        assert_int_equal(pl_column_width(c, &bare), want[c].bare);
        assert_int_equal(pl_column_width(c, &traces), want[c].traces);
    }
}

// Every byte of every column that the shape has.
static void fill(pl_columns *doc, const pl_columns_shape *s, int64_t rows) {
    for (pl_column c = 0; c < PL_COLUMNS; c++) {
        size_t bytes = (size_t)rows * pl_column_width(c, s) * pl_element_size(pl_column_element(c));
        if (bytes == 0) assert_null(pl_columns_at(doc, c));
        if (bytes > 0) memset(pl_columns_at(doc, c), 'a' + (int)c, bytes);
    }
    doc->n = rows;
}

static void assert_filled(const pl_columns *doc, pl_column c, const pl_columns_shape *s, int64_t rows) {
    size_t         bytes = (size_t)rows * pl_column_width(c, s) * pl_element_size(pl_column_element(c));
    const uint8_t *at = pl_columns_at(doc, c);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(at[i], 'a' + (int)c);
}

static void test_grow_and_copy(void **state) {
    (void)state;
    const pl_columns_shape *const shapes[] = {&features, &bare, &traces};
    pl_err                        err;
    for (size_t k = 0; k < 3; k++) {
        pl_columns doc = {0}, whole, part;
        assert_ok(pl_columns_reserve(&doc, shapes[k], ROWS, &err));
        fill(&doc, shapes[k], ROWS);
        const int32_t *tokens = doc.tokens;
        assert_ok(pl_columns_reserve(&doc, shapes[k], ROWS - 1, &err)); // enough is there
        assert_ptr_equal(doc.tokens, tokens);
        assert_ok(pl_columns_reserve(&doc, shapes[k], 1000 * ROWS, &err));
        assert_true(doc.room == 1000 * ROWS && doc.n == ROWS);
        // Of what is lent only what the lender leaves in it is copied.
        pl_columns lent = doc;
        lent.room = 0;
        assert_ok(pl_columns_copy(&whole, &lent, shapes[k], ROWS, &err));
        lent.argmax = NULL;
        lent.last_hidden = NULL;
        lent.output = NULL;
        assert_ok(pl_columns_copy(&part, &lent, shapes[k], ROWS - 2, &err));
        assert_int_equal(whole.n, ROWS);
        assert_int_equal(part.n, ROWS - 2);
        for (pl_column c = 0; c < PL_COLUMNS; c++) {
            bool left = c != PL_COLUMN_ARGMAX && c != PL_COLUMN_LAST_HIDDEN && c != PL_COLUMN_OUTPUT;
            assert_filled(&doc, c, shapes[k], ROWS);
            assert_filled(&whole, c, shapes[k], ROWS);
            if (!pl_columns_at(&doc, c)) continue;
            assert_ptr_not_equal(pl_columns_at(&whole, c), pl_columns_at(&doc, c));
            assert_true(!pl_columns_at(&part, c) == !left);
            if (left) assert_filled(&part, c, shapes[k], ROWS - 2);
        }
        pl_columns_free(&doc), pl_columns_free(&whole), pl_columns_free(&part);
        assert_null(part.tokens);
        assert_int_equal(part.room, 0);
    }
}

static void test_out_of_memory(void **state) {
    (void)state;
    pl_columns doc = {0}, copy;
    pl_err     err;
    pl_status  st = PL_E_MEMORY;
    assert_ok(pl_columns_reserve(&doc, &features, ROWS, &err));
    fill(&doc, &features, ROWS);
    for (uint64_t i = 1; st != PL_OK; i++) {
        pl_alloc_fail_after(i);
        st = pl_columns_reserve(&doc, &features, 10 * ROWS, &err);
        pl_alloc_fail_after(0);
        if (st != PL_OK) assert_says(st, PL_E_MEMORY, &err, "document of 60 rows: out of memory");
        assert_int_equal(doc.room, st == PL_OK ? 10 * ROWS : ROWS);
        for (pl_column c = 0; c < PL_COLUMNS; c++)
            assert_filled(&doc, c, &features, ROWS);
    }
    st = PL_E_MEMORY;
    for (uint64_t i = 1; st != PL_OK; i++) {
        pl_alloc_fail_after(i);
        st = pl_columns_copy(&copy, &doc, &features, ROWS, &err);
        pl_alloc_fail_after(0);
        if (st != PL_OK) assert_null(copy.tokens);
    }
    pl_columns_free(&doc), pl_columns_free(&copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_widths), cmocka_unit_test(test_grow_and_copy),
                                       cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
