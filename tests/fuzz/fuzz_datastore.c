// What drafters keep in a file: the bytes as they are, and with the sums of a state put right over any items' bytes. What
// is accepted is written and read again as the same ids.
#include "checkpoints/state.h"
#include "infer/drafter/datastore.h"
#include "kernels/base/arena.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { V = 50 };

static const pl_datastore kinds[] = {{.kind = PL_DATASTORE_ANSWERS, .vocab = V},
                                     {.kind = PL_DATASTORE_RECYCLING, .vocab = V}};

static void seeds(void) {
    static int32_t ids[V * 8];
    pl_err         err;
    for (int i = 0; i < V * 8; i++)
        ids[i] = i % 9 ? i % V : -1;
    for (int k = 0; k < 2; k++) {
        pl_fuzz_must(pl_datastore_write(pl_fuzz_path("seed"), &kinds[k], ids, k ? V * 8 : 30, &err), &err);
        pl_fuzz_seed_file(pl_fuzz_path("seed"));
    }
}

static const char *const words[] = {"PLSTATE1", "answers", "recycling", "datastore", "vocab",
                                    "ids",      "I32",     "I64",       NULL};

const pl_fuzz_target pl_fuzz = {.name = "datastore", .seeds = seeds, .words = words, .runs = 600, .max_len = 1 << 12};

static void read_store(const char *path) {
    for (int k = 0; k < 2; k++) {
        pl_err   err;
        int32_t *ids = NULL, *same = NULL;
        int64_t  n, m;
        if (!pl_fuzz_result(pl_datastore_read(path, &kinds[k], &ids, &n, &err), &err, &ids)) continue;
        pl_fuzz_touch(ids, (size_t)n * sizeof *ids);
        for (int64_t i = 0; i < n; i++)
            if (ids[i] < -1 || ids[i] >= V) pl_fuzz_finding("id %d", ids[i]);
        pl_fuzz_must(pl_datastore_write(pl_fuzz_path("again"), &kinds[k], ids, n, &err), &err);
        pl_fuzz_must(pl_datastore_read(pl_fuzz_path("again"), &kinds[k], &same, &m, &err), &err);
        if (n != m || (n > 0 && memcmp(ids, same, (size_t)n * sizeof *ids) != 0))
            pl_fuzz_finding("ids that were written read back as others");
        pl_free(ids);
        pl_free(same);
    }
}

// The input's bytes as the items' own, in a state whose sums are right: a byte for the kind, two for the vocabulary, the
// rest ids.
static void read_items(const uint8_t *data, size_t n) {
    static const char *const names[] = {"answers", "recycling", "", "answer"};
    static const pl_dtype    types[] = {PL_I32, PL_I32, PL_U8, PL_I64};
    if (n < 4) return;
    pl_err              err;
    const char         *kind = names[data[0] % 4];
    pl_dtype            type = types[data[1] % 4];
    int64_t             vocab = data[1] % 3 ? V : data[2];
    const pl_state_item items[] = {
        {.name = "datastore", .dtype = PL_U8, .count = (int64_t)strlen(kind), .data = kind},
        {.name = "vocab", .dtype = PL_I64, .count = 1, .data = &vocab},
        {.name = "ids", .dtype = type, .count = (int64_t)((n - 3) / pl_dtype_size(type)), .data = data + 3}};
    pl_fuzz_must(pl_state_write(pl_fuzz_path("items"), items, 3, &err), &err);
    read_store(pl_fuzz_path("items"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    read_store(pl_fuzz_file("store", data, n));
    read_items(data, n);
    return 0;
}
