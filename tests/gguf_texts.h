// Arrays of a GGUF vocabulary, for the tests that write one. Memory that runs out aborts the program.
#ifndef PL_TEST_GGUF_TEXTS_H
#define PL_TEST_GGUF_TEXTS_H

#include "checkpoints/gguf.h"
#include "kernels/base/strbuf.h"
#include <stdlib.h>
#include <string.h>

// An array that grows: items as they stand in a file.
typedef struct gguf_array {
    pl_strbuf    bytes;
    uint32_t     n;
    pl_gguf_type item;
} gguf_array;

static inline void gguf_text(gguf_array *a, const char *s, size_t n) {
    uint64_t len = n;
    a->item = PL_GGUF_STRING;
    pl_strbuf_add(&a->bytes, (const char *)&len, 8);
    pl_strbuf_add(&a->bytes, s, n);
    a->n++;
}

static inline void gguf_float(gguf_array *a, float v) {
    a->item = PL_GGUF_F32;
    pl_strbuf_add(&a->bytes, (const char *)&v, 4);
    a->n++;
}

static inline void gguf_int(gguf_array *a, int32_t v) {
    a->item = PL_GGUF_I32;
    pl_strbuf_add(&a->bytes, (const char *)&v, 4);
    a->n++;
}

// Copied into o; a is empty again.
static inline void gguf_put_array(pl_gguf_out *o, const char *key, gguf_array *a) {
    pl_strbuf raw = {0};
    uint32_t  item = (uint32_t)a->item;
    uint64_t  n = a->n;
    pl_strbuf_add(&raw, (const char *)&item, 4);
    pl_strbuf_add(&raw, (const char *)&n, 8);
    pl_strbuf_add(&raw, a->bytes.s, a->bytes.n);
    if (raw.failed || a->bytes.failed) abort();
    pl_gguf_put_value(o, &(pl_gguf_value){.key = key,
                                          .n_key = strlen(key),
                                          .type = PL_GGUF_ARRAY,
                                          .item = a->item,
                                          .n = n,
                                          .raw = (const uint8_t *)raw.s,
                                          .n_raw = raw.n});
    pl_strbuf_fini(&raw);
    pl_strbuf_fini(&a->bytes);
    *a = (gguf_array){0};
}

#endif
