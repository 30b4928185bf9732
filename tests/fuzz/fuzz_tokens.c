// Token files: as they are, and once more with both checksums put right.
#include "data/dataset/tokens.h"
#include "kernels/base/hash.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER = 128, AT_PAYLOAD = 56, AT_HASH = 120 }; // data/dataset/tokens.h's layout

// The payload's sum is chained: offsets, then ids.
static void mend(uint8_t *file, size_t n) {
    int64_t docs;
    memcpy(&docs, file + 40, 8);
    size_t   left = n - HEADER;
    size_t   offsets = docs >= 0 && (uint64_t)docs < left / 8 ? ((size_t)docs + 1) * 8 : 0;
    uint64_t h = pl_hash_more(pl_hash(file + HEADER, offsets), file + HEADER + offsets, left - offsets);
    memcpy(file + AT_PAYLOAD, &h, 8);
    h = pl_hash(file, AT_HASH);
    memcpy(file + AT_HASH, &h, 8);
}

static void seed(int id_bytes) {
    uint8_t       file[512] = "PLTOKENS";
    const int64_t offsets[] = {0, 5, 5, 20};
    size_t        n = HEADER;
    memcpy(file + 8, (uint32_t[]){1, (uint32_t)id_bytes}, 8);
    memcpy(file + 16, "0123456789abcdef", 16);
    memcpy(file + 32, (int64_t[]){20, 3}, 16);
    memcpy(file + 48, (int32_t[]){300}, 4);
    memcpy(file + n, offsets, sizeof offsets);
    n += sizeof offsets;
    for (int32_t i = 0; i < 20; i++, n += (size_t)id_bytes)
        memcpy(file + n, &(int32_t){i * 7}, (size_t)id_bytes);
    mend(file, n);
    pl_fuzz_seed(file, n);
}

static void seeds(void) {
    seed(2);
    seed(4);
}

const pl_fuzz_target pl_fuzz = {.name = "tokens", .seeds = seeds, .runs = 4000, .max_len = 1 << 12};

static void open_tokens(const uint8_t *data, size_t n) {
    pl_err     err;
    pl_tokens *t = NULL;
    if (!pl_fuzz_result(pl_tokens_open(&t, pl_fuzz_file("t.tokens", data, n), NULL, &err), &err, &t)) return;
    for (int64_t T = 1; T < t->n; T += 3) {
        int64_t  count = pl_tokens_windows(t, T);
        int32_t *ids = malloc((size_t)(T + 1) * 4), *doc = malloc((size_t)(T + 1) * 4);
        if (!ids || !doc) pl_fuzz_finding("no memory");
        for (int64_t i = 0; i < 2 * count && i < 64; i++) {
            pl_tokens_window(t, T, 7, i, ids, doc);
            for (int64_t k = 0; k <= T; k++)
                if (ids[k] < 0 || ids[k] >= t->vocab_size) pl_fuzz_finding("id %d of %d", ids[k], t->vocab_size);
        }
        free(ids);
        free(doc);
    }
    pl_tokens_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    open_tokens(data, n);
    if (n < HEADER) return 0;
    uint8_t *mended = malloc(n);
    if (!mended) pl_fuzz_finding("no memory");
    memcpy(mended, data, n);
    mend(mended, n);
    open_tokens(mended, n);
    free(mended);
    return 0;
}
