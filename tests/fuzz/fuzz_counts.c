// Vocabulary lists. What is accepted is written and read again as the same list.
#include "data/counts/counts.h"
#include "kernels/base/arena.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void seeds(void) {
    pl_fuzz_seed_text(
        "{\"format\":\"paceline.vocab\",\"version\":1,\"tokenizer\":\"0123456789abcdef\",\"vocab_size\":20,"
        "\"corpus\":\"a text\",\"documents\":2,\"tokens\":10,\"ids\":[3,1,7],\"counts\":[5,4,1]}");
    pl_fuzz_seed_text(
        "{\"format\":\"paceline.vocab\",\"version\":1,\"tokenizer\":\"0123456789abcdef\",\"vocab_size\":1,"
        "\"corpus\":\"\",\"documents\":0,\"tokens\":0,\"ids\":[],\"counts\":[]}");
}

static const char *const words[] = {
    "\"ids\":[", "\"counts\":[", "9007199254740992", ",9007199254740992", "\"vocab_size\":4194304", "\"tokens\":", "]",
    NULL};

const pl_fuzz_target pl_fuzz = {.name = "counts", .seeds = seeds, .words = words, .runs = 3000, .max_len = 1 << 15};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err    err;
    pl_counts c, same;
    if (!pl_fuzz_result(pl_counts_read(&c, pl_fuzz_file("v.json", data, n), &err), &err, &c.count)) return 0;
    int32_t *id = malloc((size_t)c.vocab * sizeof *id);
    if (!id) pl_fuzz_finding("no memory");
    int32_t seen = pl_counts_rank(&c, id);
    if (seen > c.vocab || pl_counts_needed(&c, id, seen, 0.5) > seen) pl_fuzz_finding("%d of %d ids", seen, c.vocab);
    pl_fuzz_must(pl_counts_write(&c, pl_fuzz_path("again.json"), &err), &err);
    pl_fuzz_must(pl_counts_read(&same, pl_fuzz_path("again.json"), &err), &err);
    if (c.tokens != same.tokens || c.vocab != same.vocab ||
        memcmp(c.count, same.count, (size_t)c.vocab * sizeof *c.count) != 0)
        pl_fuzz_finding("a list that was written reads back as another one");
    free(id);
    pl_counts_fini(&c);
    pl_counts_fini(&same);
    return 0;
}
