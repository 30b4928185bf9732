#include "data/tokenizer/spm_train.h"
#include "data/tokenizer/spm_shim.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/rng.h"
#include <stdio.h>
#include <string.h>

// Walks the lines of all documents; with a limit each line is kept with the same probability, drawn by its number.
typedef struct lines {
    const pl_corpus *texts;
    int64_t          doc, line;
    size_t           at;
    double           keep;
    pl_rng           rng;
} lines;

static bool next_line(void *ctx, const char **s, size_t *n) {
    lines *l = ctx;
    while (l->doc < l->texts->n) {
        const pl_document *d = &l->texts->docs[l->doc];
        if (l->at >= d->bytes) {
            l->doc++;
            l->at = 0;
            continue;
        }
        const char *from = d->text + l->at, *end = memchr(from, '\n', d->bytes - l->at);
        size_t      len = end ? (size_t)(end - from) : d->bytes - l->at;
        l->at += len + 1;
        if (len == 0) continue;
        if (l->keep < 1 && pl_rng_uniform(l->rng, (uint64_t)l->line++) >= l->keep) continue;
        *s = from;
        *n = len;
        return true;
    }
    return false;
}

pl_status pl_spm_train(const char *path, const pl_corpus *texts, const pl_spm_train_options *o, pl_err *err) {
    const char *type = o->model_type ? o->model_type : "bpe";
    double      coverage = o->character_coverage > 0 ? o->character_coverage : 0.9995;
    char        size[16], cover[32], msg[512];
    PL_CHECK(o->vocab_size > 0 && o->character_coverage <= 1 && o->max_lines >= 0, "vocab_size %d, coverage %g",
             o->vocab_size, o->character_coverage);
    if (strcmp(type, "bpe") != 0 && strcmp(type, "unigram") != 0)
        return pl_fail(err, PL_E_USAGE, "tokenizer training: model type '%s' is unknown; use bpe or unigram", type);
    snprintf(size, sizeof size, "%d", o->vocab_size);
    snprintf(cover, sizeof cover, "%.9g", coverage);
    // Identity normalisation and every space kept: text must come back exactly. A sentence never holds a line feed, so
    // that gets a piece by name.
    const char *option[][2] = {
        {"model_type", type},
        {"vocab_size", size},
        {"character_coverage", cover},
        {"byte_fallback", o->byte_fallback ? "true" : "false"},
        {"hard_vocab_limit", "true"},
        {"split_digits", "true"},
        {"normalization_rule_name", "identity"},
        {"remove_extra_whitespaces", "false"},
        {"add_dummy_prefix", "true"},
        {"user_defined_symbols", "\n"},
        {"max_sentence_length", "1048576"},
        {"num_threads", "2"}, // fixed: unigram sums per thread, so another number could give other bytes
        {"unk_id", "0"},
        {"bos_id", "1"},
        {"eos_id", "2"},
        {"pad_id", "-1"},
        {"minloglevel", o->quiet ? "2" : "0"},
    };
    enum { N = sizeof option / sizeof *option };
    const char *keys[N], *values[N];
    for (int i = 0; i < N; i++) {
        keys[i] = option[i][0];
        values[i] = option[i][1];
    }
    lines    l = {.texts = texts, .keep = 1, .rng = pl_rng_make(o->seed, PL_STREAM_SHUFFLE, 0)};
    uint8_t *proto = NULL;
    size_t   n = 0;
    if (o->max_lines > 0) {
        const char *s;
        int64_t     total = 0;
        while (next_line(&l, &s, &n))
            total++;
        l.doc = 0;
        l.at = 0;
        l.keep = total > 0 ? (double)o->max_lines / (double)total : 1;
    }
    // Opens the file before training, so that a missing folder fails early.
    pl_atomic_file file;
    PL_TRY(pl_atomic_file_begin(&file, path, err));
    pl_status st = pl_spm_train_proto(keys, values, N, next_line, &l, &proto, &n, msg, sizeof msg);
    if (st != PL_OK)
        pl_fail(err, st, "%s: training a %s tokenizer of %d pieces on %lld documents: %s", path, type, o->vocab_size,
                (long long)texts->n, msg);
    else
        st = pl_atomic_file_append(&file, proto, n, err);
    pl_free(proto);
    if (st == PL_OK) return pl_atomic_file_commit(&file, err);
    pl_atomic_file_abort(&file);
    return st;
}
