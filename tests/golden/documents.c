#include "tests/golden/documents.h"

#include <stdio.h>

const int golden_doc_rows[DOCS] = {9, 6};

static void to_bf16(uint16_t *dst, int64_t n, int doc, const char *what) {
    char  name[64];
    float values[LONGEST * TAPS * D];
    snprintf(name, sizeof name, "eagle3/doc/%d/%s", doc, what);
    golden_coarse(values, n, 7, name);
    for (int64_t i = 0; i < n; i++)
        dst[i] = pl_f32_to_bf16(values[i]);
}

void golden_document_read(golden *g, int i, golden_document *d) {
    d->n = golden_doc_rows[i];
    const int32_t *tokens = golden_ints(g, d->n, "doc/%d/tokens", i);
    const int32_t *argmax = golden_ints(g, d->n, "doc/%d/argmax", i);
    const int32_t *mask = golden_ints(g, d->n, "doc/%d/mask", i);
    for (int t = 0; t < d->n; t++) {
        d->tokens[t] = tokens[t];
        d->argmax[t] = argmax[t];
        d->loss_mask[t] = (uint8_t)mask[t];
    }
    to_bf16(d->features, (int64_t)d->n * TAPS * D, i, "features");
    to_bf16(d->last_hidden, (int64_t)d->n * D, i, "last");
}

pl_columns golden_document_rows(golden_document *d) {
    return (pl_columns){.n = d->n,
                        .tokens = d->tokens,
                        .loss_mask = d->loss_mask,
                        .argmax = d->argmax,
                        .features = d->features,
                        .last_hidden = d->last_hidden};
}
