// Small datasets of one shard, features and traces, for the targets that read datasets.
#ifndef PL_FUZZ_DATASET_SEED_H
#define PL_FUZZ_DATASET_SEED_H

#include "data/dataset/dataset.h"
#include "tests/fuzz/fuzz.h"

enum { SEED_ROWS = 7, SEED_D = 4, SEED_TAPS = 2, SEED_DOCS = 2, SEED_VOCAB = 50 };

static inline void seed_dataset(const char *dir) {
    static const pl_dataset_attrs attrs = {.target_fingerprint = "aaaaaaaaaaaaaaaa",
                                           .tokenizer_fingerprint = "bbbbbbbbbbbbbbbb",
                                           .template_name = "plain",
                                           .generation = "{}",
                                           .vocab_size = SEED_VOCAB,
                                           .d = SEED_D,
                                           .A = SEED_TAPS,
                                           .tap_layer_ids = {1, 2}};
    pl_err                        err;
    pl_dataset_writer            *w;
    pl_fuzz_must(pl_dataset_writer_create(&w, dir, &attrs, 100, &err), &err);
    for (int doc = 0; doc < SEED_DOCS; doc++) {
        int32_t  tokens[SEED_ROWS], argmax[SEED_ROWS];
        uint8_t  mask[SEED_ROWS];
        uint16_t features[SEED_ROWS * SEED_D * SEED_TAPS], last[SEED_ROWS * SEED_D];
        for (int i = 0; i < SEED_ROWS; i++) {
            tokens[i] = doc + i;
            argmax[i] = doc + i + 1;
            mask[i] = (uint8_t)(i > 2);
        }
        for (int i = 0; i < SEED_ROWS * SEED_D * SEED_TAPS; i++)
            features[i] = (uint16_t)(0x3f80 + i);
        for (int i = 0; i < SEED_ROWS * SEED_D; i++)
            last[i] = (uint16_t)(0x3f80 + i);
        const pl_doc_about about = {.end = doc, .turn = doc, .back = doc, .finish = PL_ANSWER_STOP, .cut = 1};
        const pl_columns   rows = {.n = SEED_ROWS,
                                   .tokens = tokens,
                                   .loss_mask = mask,
                                   .argmax = argmax,
                                   .features = features,
                                   .last_hidden = last,
                                   .about = &about};
        pl_fuzz_must(pl_dataset_append(w, &rows, &err), &err);
    }
    pl_fuzz_must(pl_dataset_writer_close(w, &err), &err);
}

static inline void seed_traces(const char *dir) {
    static const pl_dataset_attrs attrs = {.target_fingerprint = "aaaaaaaaaaaaaaaa",
                                           .tokenizer_fingerprint = "bbbbbbbbbbbbbbbb",
                                           .template_name = "plain",
                                           .generation = "{}",
                                           .vocab_size = SEED_VOCAB,
                                           .d = SEED_D,
                                           .drafter_fingerprint = "cccccccccccccccc",
                                           .head_fingerprint = "dddddddddddddddd",
                                           .tree = "chain:3",
                                           .top = 1};
    int32_t                       id[SEED_ROWS] = {0};
    uint8_t                       mark[SEED_ROWS] = {0};
    float                         prob[SEED_ROWS] = {0};
    uint16_t                      state[SEED_ROWS * SEED_D] = {0};
    pl_columns                    rows = {.n = SEED_ROWS,
                                          .tokens = id,
                                          .depth = mark,
                                          .beam = mark,
                                          .held_out = mark,
                                          .top_id = id,
                                          .top_prob = prob,
                                          .hidden = state,
                                          .output = state};
    pl_err                        err;
    pl_dataset_writer            *w;
    pl_fuzz_must(pl_dataset_writer_create(&w, dir, &attrs, 100, &err), &err);
    for (int doc = 0; doc < SEED_DOCS; doc++)
        pl_fuzz_must(pl_dataset_append(w, &rows, &err), &err);
    pl_fuzz_must(pl_dataset_writer_close(w, &err), &err);
}

// Every document of a dataset of traces that was opened.
static inline void read_traces(pl_dataset *ds) {
    const pl_dataset_attrs *a = pl_dataset_get_attrs(ds);
    for (int64_t i = 0; i < pl_dataset_docs(ds) && i < 100; i++) {
        int64_t  first, n;
        int32_t  id[4096];
        float    prob[4096];
        uint16_t state[4096];
        pl_err   err;
        if (!pl_fuzz_result(pl_dataset_doc(ds, i, &first, &n, &err), &err, NULL)) continue;
        if (n * a->d > 4096 || n * a->top > 4096) continue;
        const pl_columns to = {.top_id = id, .top_prob = prob, .hidden = state};
        if (!pl_fuzz_result(pl_dataset_read_doc(ds, i, &to, &err), &err, NULL)) continue;
        for (int64_t k = 0; k < n * a->top; k++)
            if (id[k] < 0 || id[k] >= a->vocab_size) pl_fuzz_finding("row %lld is out of range", (long long)k);
        pl_fuzz_touch(state, (size_t)(n * a->d) * sizeof *state);
    }
}

// Every document of a dataset that was opened.
static inline void read_dataset(pl_dataset *ds) {
    const pl_dataset_attrs *a = pl_dataset_get_attrs(ds);
    pl_err                  err;
    for (int64_t i = 0; i < pl_dataset_docs(ds) && i < 100; i++) {
        int64_t  first, n;
        int32_t  tokens[256], argmax[256];
        uint8_t  mask[256];
        uint16_t features[4096], last[4096];
        if (!pl_fuzz_result(pl_dataset_doc(ds, i, &first, &n, &err), &err, NULL)) continue;
        pl_doc_about about;
        bool         held;
        if (pl_fuzz_result(pl_dataset_doc_about(ds, i, &about, &err), &err, NULL) &&
            (about.end < -1 || about.end >= a->vocab_size || about.back < 0 || about.back > i || about.turn < 0 ||
             about.finish < 0 || about.finish > PL_ANSWER_CONTEXT || about.cut < 0 || about.cut > 1))
            pl_fuzz_finding("document %lld ends with %d, %d back", (long long)i, about.end, about.back);
        pl_fuzz_result(pl_dataset_doc_held_out(ds, i, 1, 2, &held, &err), &err, NULL);
        if (first < 0 || n < 1 || first + n > pl_dataset_rows(ds)) pl_fuzz_finding("document %lld", (long long)i);
        if (n > 256 || n * a->d > 4096 || n * a->d * a->A > 4096) continue;
        const pl_columns to = {
            .tokens = tokens, .loss_mask = mask, .argmax = argmax, .features = features, .last_hidden = last};
        if (!pl_fuzz_result(pl_dataset_read_doc(ds, i, &to, &err), &err, NULL)) continue;
        for (int64_t k = 0; k < n; k++)
            if (tokens[k] < 0 || tokens[k] >= a->vocab_size || argmax[k] < 0 || argmax[k] >= a->vocab_size ||
                mask[k] > 1)
                pl_fuzz_finding("row %lld is out of range", (long long)k);
        pl_fuzz_touch(last, (size_t)(n * a->d) * sizeof *last);
    }
}

#endif
