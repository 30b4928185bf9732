// The reader of what ranks send: values in their ranges, the first failure, and what follows it.
#include "kernels/comm/reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#pragma pack(push, 1)
typedef struct message {
    uint8_t byte;
    int32_t small;
    int64_t large, count;
    double  real;
    char    text[6];
} message;
#pragma pack(pop)

static const message right = {1, -2, INT64_MAX, 6, 0.5, "abc"};

static void values_in_their_order(void **state) {
    pl_err    err = {0};
    message   m = right;
    pl_reader r = pl_reader_of(3, "a message", &m, sizeof m, &err);
    (void)state;
    assert_int_equal(pl_reader_byte(&r, "a byte", 1), 1);
    assert_int_equal(pl_reader_int32(&r, "a small", -2, 5), -2);
    assert_true(pl_reader_int(&r, "a large", 0, INT64_MAX) == INT64_MAX);
    assert_int_equal(pl_reader_count(&r, "entries", 7, 2), 6); // 14 bytes are left
    assert_int_equal(r.status, PL_OK);
}

typedef struct wrong {
    const char *says;
    size_t      cut; // bytes at the end
    int         at, width;
    int64_t     value;
} wrong;

static pl_status read_all(pl_reader *r) {
    pl_reader_byte(r, "a byte", 1);
    pl_reader_int32(r, "a small", -2, 5);
    pl_reader_int(r, "a large", 0, INT64_MAX);
    pl_reader_count(r, "entries", 7, 2);
    pl_reader_real(r, "a real", 0, 1);
    pl_reader_text(r, "a text", sizeof right.text);
    return pl_reader_end(r);
}

static void the_first_that_is_not(void **state) {
    static const wrong wrongs[] = {
        {"a text is of 6 bytes, 5 are left", .cut = 1},
        {"entries is of 8 bytes, 7 are left", .cut = 15},
        {"a byte is of 1 bytes, 0 are left", .cut = sizeof(message)},
        {"a byte is 2, not 0 to 1", .at = 0, .width = 1, .value = 2},
        {"a small is -3, not -2 to 5", .at = 1, .width = 4, .value = -3},
        {"a large is -1, not 0 to 9223372036854775807", .at = 5, .width = 8, .value = -1},
        {"entries is 8, not 0 to 7", .at = 13, .width = 8, .value = 8},
        {"entries is 7 of 2 bytes each, 13 bytes are left", .cut = 1, .at = 13, .width = 8, .value = 7},
        {"a real is ", .at = 21, .width = 8, .value = -1}, // not a number
        {"a real is 2, not 0 to 1", .at = 21, .width = 8, .value = 0x4000000000000000},
        {"a text has no end", .at = 29, .width = 6, .value = 0x787878787878},
        {"a text has a control character", .at = 30, .width = 1, .value = 27}};
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        const wrong *w = &wrongs[i];
        pl_err       err = {0};
        message      m = right;
        pl_reader    r = pl_reader_of(3, "a message", &m, sizeof m - w->cut, &err);
        memcpy((uint8_t *)&m + w->at, &w->value, (size_t)w->width);
        assert_int_equal(read_all(&r), PL_E_IO);
        if (strncmp(err.msg, "rank 3 sent a message: ", 23) != 0 ||
            strncmp(err.msg + 23, w->says, strlen(w->says)) != 0)
            fail_msg("\"%s\", not \"%s\"", err.msg, w->says);
    }
    pl_err    err = {0};
    message   m[2] = {right};
    pl_reader r = pl_reader_of(-1, "a message", m, sizeof m[0] + 1, &err);
    assert_int_equal(read_all(&r), PL_E_IO);
    assert_string_equal(err.msg, "the ranks sent a message: 1 bytes follow its end");
}

static void zeros_follow_a_failure(void **state) {
    pl_err    err = {0};
    message   m = right;
    uint8_t   copy[4] = {1, 2, 3, 4};
    pl_reader r = pl_reader_of(0, "a message", &m, sizeof m, &err);
    (void)state;
    pl_reader_refuse(&r, "%s", "first");
    pl_reader_refuse(&r, "%s", "second");
    assert_int_equal(pl_reader_byte(&r, "a byte", 1), 0);
    assert_int_equal(pl_reader_int32(&r, "a small", 5, 9), 0);
    assert_int_equal(pl_reader_count(&r, "entries", 1, 0), 0);
    assert_string_equal(pl_reader_text(&r, "a text", 6), "");
    assert_null(pl_reader_lend(&r, "bytes", 0));
    pl_reader_copy(&r, "bytes", copy, sizeof copy);
    for (int i = 0; i < 4; i++)
        assert_int_equal(copy[i], 0);
    assert_string_equal(err.msg, "rank 0 sent a message: first");
    r = pl_reader_of(0, "nothing", NULL, 0, NULL);
    assert_int_equal(pl_reader_end(&r), PL_OK);
    assert_int_equal(pl_reader_byte(&r, "a byte", 1), 0);
    assert_int_equal(pl_reader_end(&r), PL_E_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_in_their_order), cmocka_unit_test(the_first_that_is_not),
                                       cmocka_unit_test(zeros_follow_a_failure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
