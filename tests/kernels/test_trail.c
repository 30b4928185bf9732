// Which weight is read after which (kernels/op/trail.h).
#include "kernels/op/trail.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// 129 weights as an 8B model's lie, read in order: the second time each is known to be followed by the next.
static void every_weight_keeps_its_place(void **state) {
    enum { LAYERS = 32, EACH = 4, ALL = LAYERS * EACH + 1 };
    static const uintptr_t from[EACH] = {0, 0x3000000, 0x5000000, 0x13000000};
    static pl_trail        trail;
    (void)state;
    for (int time = 0; time < 2; time++)
        for (int i = 0; i < ALL; i++) {
            const uintptr_t at = 0x7f37fd966000 + (uintptr_t)(i / EACH) * 0x1a008000 + from[i % EACH];
            const pl_tensor w = {.data = (void *)at}, next = pl_trail_next(&trail);
            if (time == 1 && i > 0 && next.data != w.data)
                fail_msg("weight %d is followed by %p, not %p", i - 1, next.data, w.data);
            pl_trail_read(&trail, &w, 1);
        }
}

// A weight is far once more bytes of others have been read since than the last cache holds.
static void far_is_behind_a_cache(void **state) {
    static pl_trail trail = {.cache = 100};
    static char     at[3 << 12];
    const pl_tensor w[3] = {{.data = at}, {.data = at + (1 << 12)}, {.data = at + (2 << 12)}};
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_false(pl_trail_read(&trail, &w[i], 40)); // never read before: by its own bytes
    assert_true(pl_trail_read(&trail, &w[0], 40));
    assert_false(pl_trail_read(&trail, &w[0], 40));
    assert_true(pl_trail_read(&trail, &w[1], 40));
    static pl_trail small = {.cache = 30};
    assert_true(pl_trail_read(&small, &w[0], 40));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_weight_keeps_its_place),
                                       cmocka_unit_test(far_is_behind_a_cache)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
