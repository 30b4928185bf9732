// Text for pretraining, with every way of cleaning it (the input's first byte chooses), in chunks.
#include "data/text/text.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void seeds(void) {
    pl_fuzz_seed_text("0plain text\r\nwith lines\r\rand more\n");
    pl_fuzz_seed_text(
        "3*** START OF THE PROJECT GUTENBERG EBOOK X ***\nProduced by Y\n\nTHE\n\n  verse\n  lines\n\nwrapped\n"
        "lines of\na book\n\n*** END OF THE PROJECT GUTENBERG EBOOK X ***\nlicence\n");
    pl_fuzz_seed_text("6caf\xe9 \x80 na\xefve\n");
    pl_fuzz_seed_text("b\xef\xbb\xbf\xff\xfe\xc3\n");
}

static const char *const words[] = {
    "*** START OF", "*** END OF", "THE PROJECT GUTENBERG EBOOK",  "\n\n", "\r\n", "   ", "Produced by",
    "\xef\xbb\xbf", "\xc3",       "End of the Project Gutenberg", NULL};

const pl_fuzz_target pl_fuzz = {.name = "text", .seeds = seeds, .words = words, .runs = 5000, .max_len = 1 << 13};

static void cut_up(const pl_corpus *c) {
    pl_err     err;
    pl_corpus *parts = NULL;
    size_t     total = 0;
    pl_fuzz_must(pl_corpus_chunk(&parts, c, 64, &err), &err);
    for (int64_t i = 0; i < parts->n; i++) {
        if (parts->docs[i].bytes > 64) pl_fuzz_finding("a chunk of %zu bytes", parts->docs[i].bytes);
        pl_fuzz_touch(parts->docs[i].text, parts->docs[i].bytes + 1);
        total += parts->docs[i].bytes;
    }
    if (total != c->bytes || parts->bytes != c->bytes)
        pl_fuzz_finding("%zu bytes in chunks, %zu whole", total, c->bytes);
    pl_corpus_destroy(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err     err;
    pl_corpus *c = NULL;
    if (n == 0) return 0;
    unsigned        how = data[0];
    pl_text_options o = {.gutenberg = how & 1, .unwrap = how & 2, .encoding = (pl_text_encoding)((how >> 2) % 3)};
    const char     *path = pl_fuzz_file("t.txt", data + 1, n - 1);
    if (!pl_fuzz_result(pl_corpus_read(&c, &path, 1, o, &err), &err, &c)) return 0;
    for (int64_t i = 0; i < c->n; i++)
        if (strlen(c->docs[i].text) > c->docs[i].bytes || memchr(c->docs[i].text, '\r', c->docs[i].bytes))
            pl_fuzz_finding("document %lld is not cleaned", (long long)i);
    if (c->n > 0) cut_up(c);
    pl_corpus_destroy(c);
    return 0;
}
