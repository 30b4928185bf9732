// GGUF, llama.cpp's file of one model: keys with typed values, then tensors. Version 3, and 2, which is read alike.
//
// Read strictly: every length lies in the file, names are different, tensors lie in the data and end in it. What a
// value or a tensor means is the caller's affair. Everything of a reader points into the mapped file.
#ifndef PL_GGUF_H
#define PL_GGUF_H

#include "kernels/base/dtype.h"
#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum pl_gguf_type {
    PL_GGUF_U8,
    PL_GGUF_I8,
    PL_GGUF_U16,
    PL_GGUF_I16,
    PL_GGUF_U32,
    PL_GGUF_I32,
    PL_GGUF_F32,
    PL_GGUF_BOOL,
    PL_GGUF_STRING,
    PL_GGUF_ARRAY,
    PL_GGUF_U64,
    PL_GGUF_I64,
    PL_GGUF_F64,
    PL_GGUF_TYPES
} pl_gguf_type;

#define PL_GGUF_RANK 4

typedef struct pl_gguf_value {
    const char    *key; // not terminated
    size_t         n_key;
    pl_gguf_type   type, item; // item: of an array's
    uint64_t       n;          // items of an array, bytes of a string
    const uint8_t *data;       // the items, or the number; little endian, at any address
    const uint8_t *raw;        // the value as the file has it, behind its type
    size_t         n_raw;
} pl_gguf_value;

typedef struct pl_gguf_tensor {
    const char    *name; // not terminated
    size_t         n_name;
    int            rank;
    int64_t        shape[PL_GGUF_RANK]; // fastest first: a matrix [rows, cols] is {cols, rows}
    uint32_t       type;                // ggml's number for it: 0 F32, 1 F16, 26 I32, 27 I64, 30 BF16, others
    const uint8_t *data;
    size_t         room; // bytes from data to the end of the file
} pl_gguf_tensor;

typedef struct pl_gguf pl_gguf;

// Returns true if a file begins with GGUF's magic; its name does not matter.
bool                  pl_gguf_is(const char *path);
// PL_E_INPUT for anything wrong with the content, with the place.
pl_status             pl_gguf_open(pl_gguf **out, const char *path, pl_err *err);
void                  pl_gguf_close(pl_gguf *g); // NULL is allowed
int64_t               pl_gguf_values(const pl_gguf *g);
const pl_gguf_value  *pl_gguf_value_at(const pl_gguf *g, int64_t i);
const pl_gguf_value  *pl_gguf_find(const pl_gguf *g, const char *key); // NULL: none
int64_t               pl_gguf_tensors(const pl_gguf *g);
const pl_gguf_tensor *pl_gguf_tensor_at(const pl_gguf *g, int64_t i);
const pl_gguf_tensor *pl_gguf_find_tensor(const pl_gguf *g, const char *name);
// A whole number of any width, or a text of fewer than `room` bytes, terminated. false: none, or of another type.
bool                  pl_gguf_int(const pl_gguf *g, const char *key, int64_t *v);
bool                  pl_gguf_text(const pl_gguf *g, const char *key, char *to, size_t room);
// The next item of an array of strings: *at begins as its data. Not terminated.
const char           *pl_gguf_next_string(const uint8_t **at, size_t *n);

// ---- writing ----

// Keys in the order of the calls, then tensors in theirs, aligned to 32 bytes; the same calls give the same bytes.
// Memory that runs out sticks, and is told by pl_gguf_write.
typedef struct pl_gguf_out pl_gguf_out;

pl_gguf_out *pl_gguf_out_new(void); // NULL: out of memory
void         pl_gguf_out_free(pl_gguf_out *o);
void         pl_gguf_put_u32(pl_gguf_out *o, const char *key, uint32_t v);
void         pl_gguf_put_f32(pl_gguf_out *o, const char *key, float v);
void         pl_gguf_put_bool(pl_gguf_out *o, const char *key, bool v);
void         pl_gguf_put_text(pl_gguf_out *o, const char *key, const char *v);
void         pl_gguf_put_i32s(pl_gguf_out *o, const char *key, const int32_t *v, uint64_t n);
void         pl_gguf_put_value(pl_gguf_out *o, const pl_gguf_value *v); // of another file, as it is
// shape: slowest first, as elsewhere. data is borrowed until the file is written. F32, F16, BF16, I32 or I64.
void pl_gguf_put_tensor(pl_gguf_out *o, const char *name, pl_dtype t, int rank, const int64_t *shape, const void *data);
// Atomically.
pl_status pl_gguf_write(const pl_gguf_out *o, const char *path, pl_err *err);

#endif
