#include "infer/decode/likely.h"
#include "kernels/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MOST = 40 };

// Of every number of nodes, equal ones among them, the likeliest comes first, and all stand behind one another at last.
static void the_likeliest_first(void **state) {
    (void)state;
    pl_rng   r = pl_rng_make(5, PL_STREAM_TEST, 0);
    uint64_t at = 0;
    for (int n = 0; n <= MOST; n++) {
        pl_likely x[MOST];
        int       seen[MOST] = {0};
        for (int i = 0; i < n; i++)
            x[i] = (pl_likely){.f = (int)(8 * pl_rng_uniform(r, at++)), .item = i, .node = n - i};
        pl_likely_heap(x, n);
        double last = 8;
        for (int left = n; left > 0; left--) {
            const pl_likely top = pl_likely_take(x, left);
            assert_true(top.f <= last && top.node == n - top.item);
            assert_int_equal(seen[top.item]++, 0);
            assert_int_equal(x[left - 1].item, top.item);
            last = top.f;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_likeliest_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
