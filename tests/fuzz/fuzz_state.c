// training_state: the bytes as they are, and once more with the sum over header and table put right, so that mutations
// get past it.
#include "checkpoints/state.h"
#include "kernels/base/hash.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void seeds(void) {
    static const float         w[5] = {1, 2, 3, 4, 5};
    static const pl_state_item items[] = {{.name = "w", .dtype = PL_F32, .count = 5, .data = w},
                                          {.name = "recipe", .dtype = PL_U8, .count = 3, .data = "a: "},
                                          {.name = "none", .dtype = PL_BF16, .count = 0}};
    pl_err                     err;
    for (int64_t n = 0; n <= 3; n++) {
        pl_fuzz_must(pl_state_write(pl_fuzz_path("seed"), items, n, &err), &err);
        pl_fuzz_seed_file(pl_fuzz_path("seed"));
    }
}

static const char *const words[] = {"PLSTATE1", "F32", "BF16", "I64", NULL};

const pl_fuzz_target pl_fuzz = {.name = "state", .seeds = seeds, .words = words, .runs = 4000, .max_len = 1 << 12};

static void open_state(const uint8_t *data, size_t n) {
    pl_err    err;
    pl_state *s = NULL;
    if (!pl_fuzz_result(pl_state_open(&s, pl_fuzz_file("state", data, n), &err), &err, &s)) return;
    for (int64_t i = 0; i < pl_state_count(s); i++) {
        const pl_state_item *item = pl_state_at(s, i);
        const void          *at;
        pl_fuzz_touch(item->data, (size_t)item->count * pl_dtype_size(item->dtype));
        pl_fuzz_must(pl_state_get(s, item->name, item->dtype, item->count, &at, &err), &err);
        if (at != item->data) pl_fuzz_finding("%s is another item by its name", item->name);
    }
    pl_state_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    open_state(data, n);
    uint64_t table;
    if (n < 32) return 0;
    memcpy(&table, data + 16, 8);
    if (table > n - 32) return 0;
    uint8_t *mended = malloc(n);
    if (!mended) pl_fuzz_finding("no memory");
    memcpy(mended, data, n);
    uint64_t sum = pl_hash(mended, 24 + table);
    memcpy(mended + n - 8, &sum, 8);
    open_state(mended, n);
    free(mended);
    return 0;
}
