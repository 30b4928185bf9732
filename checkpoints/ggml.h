// The types of ggml's tensors as GGUF files number them: plain floats, and blocks of quantised numbers of a row.
//
// A block's layout is ggml's (ggml-common.h), its numbers those of the gguf package's dequantize, bit for bit: products
// and sums in fp32, in its order.
#ifndef PL_GGML_H
#define PL_GGML_H

#include "checkpoints/weights.h"

typedef struct pl_ggml_type {
    const char           *name; // as llama.cpp writes it: "Q4_K"
    pl_dtype              dtype;
    int                   block, bytes; // elements of a block and its bytes; 0: not supported
    const pl_weight_code *code;         // NULL: plain elements of dtype
} pl_ggml_type;

// NULL: a number that no type has.
const pl_ggml_type *pl_ggml_type_of(uint32_t number);
// The name of an entry's encoding or, if it is plain, its type.
const char         *pl_ggml_type_name(const pl_weight_entry *e);

#endif
