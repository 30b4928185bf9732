// The bridge between a model's tensors and the files they live in; it knows no model.
//
// A model lists what it needs as pl_weight_spec: a matrix [rows, cols] that is the stack by rows of up to four tensors
// of the file (q, k, v; gate, up), or of runs of their rows, or a vector. A source is an opened model: check it once,
// then read. Reading converts any float type to fp32, undoes the interleaved RoPE order of llama2.c files, and never
// fails after a good check.
#ifndef PL_WEIGHTS_H
#define PL_WEIGHTS_H

#include "checkpoints/safetensors.h"
#include "kernels/base/dtype.h"
#include "kernels/base/status.h"
#include "kernels/codes.h"
#include <stdbool.h>
#include <stdint.h>

#define PL_WEIGHT_PARTS 4

typedef struct pl_weight_part {
    const char *name; // borrowed
    int64_t     rows;
    int64_t     first, of; // of > 0: these are rows [first, first + rows) of the tensor's `of`; 0: all that it has
    // run > 0: the rows lie in runs of so many, which begin every `pitch` rows from `first` on.
    int64_t     run, pitch;
} pl_weight_part;

typedef struct pl_weight_spec {
    pl_weight_part part[PL_WEIGHT_PARTS];
    int            n_parts;
    int64_t        rows, cols; // rows: the sum over the parts; cols 0: rank 1, rows elements
    int64_t        inner[2];   // not 0: a vector's tensor has rank 3, and these are its last two sizes
    bool           optional;   // absent is fine (all parts or none)
    const char    *alias;      // another name under which part 0 is accepted (tied lm_head and embedding), or NULL
} pl_weight_spec;

// The order of a gated delta net's value heads in llama.cpp's files: in turns of the key heads. Behind `first` rows or
// columns, head k each + j of Hugging Face's order is the (j keys + k)th of the file, each `width` wide. keys 0: the
// order is Hugging Face's.
typedef struct pl_weight_tiles {
    int64_t first, keys, each, width;
} pl_weight_tiles;

#define PL_WEIGHT_TILES 4096     // most heads
#define PL_WEIGHT_TILE_WIDTH 512 // most elements of a head

// A tensor of a source.
typedef struct pl_weight_entry {
    const char                  *name;
    pl_dtype                     dtype;
    int                          rank;
    int64_t                      shape[PL_ST_RANK];
    const void                  *data;  // mapped
    size_t                       bytes; // of its elements, and their scales
    // 0: rows are as Hugging Face has them (rotate-half RoPE: element i pairs with i + head_dim/2).
    // Else: shape[0] = rope_heads * head_dim rows whose RoPE pairs are neighbours (2i, 2i+1); reading reorders them.
    int64_t                      rope_heads;
    // Reading puts the heads back in order. Of a tensor of another rank than 2 the rows are its elements; columns have
    // first 0.
    pl_weight_tiles              row_tiles, column_tiles;
    // 0: columns one after another, and rows. Else element (r, c) lies r * row_stride + c * column_stride elements into
    // the data (of MXFP4 whole rows are row_stride rows apart).
    int64_t                      row_stride, column_stride;
    // Not NULL: the data are encoded (quantised). dtype is then the type in which a model is opened that does not ask
    // for another.
    const struct pl_weight_code *code;
    const void                  *scale; // of the code: scales or parameters; lives as long as the source
} pl_weight_entry;

// How finely a matrix is quantised.
typedef struct pl_weight_grain {
    int     bits;       // of an element
    int64_t rows, cols; // that share a scale
} pl_weight_grain;

// An encoding of matrices. One file with one pl_weight_code for each.
typedef struct pl_weight_code {
    const char *name;
    // Decodes rows [row0, row0 + n) of the tensor as stored, all columns, to [n, shape[1]] floats.
    void (*read)(const pl_weight_entry *e, int64_t row0, int64_t n, float *dst);
    // Returns the bytes from e->data on that hold the tensor.
    size_t (*span)(const pl_weight_entry *e);
    // Extends a hash by all that read uses beside those bytes.
    uint64_t (*hash)(const pl_weight_entry *e, uint64_t h);
    // Refuses numbers that no writer meant (a scale that is not finite) in a tensor of the source of that path. NULL:
    // any are good.
    pl_status (*check)(const pl_weight_entry *e, const char *path, pl_err *err);
    pl_weight_grain (*grain)(const pl_weight_entry *e);
    // The form of codes that holds what read decodes, rounded to bf16, and one row as stored in it (shape[1] / 32);
    // PL_CODE_NONE: no form does.
    pl_code form;
    void (*codes)(const pl_weight_entry *e, int64_t row, pl_code_row *to);
} pl_weight_code;

// MXFP4 (Open Compute Project, Microscaling Formats 1.0): two E2M1 a byte, the lower half first; of each 32 columns of
// a row one E8M0 scale, as far apart as rows are. BF16 holds every product of the two.
extern const pl_weight_code pl_weight_mxfp4;
// A vector A_log that is stored as -exp(A_log), in fp32, as llama.cpp's files have it; its entry has shape [n, 1].
extern const pl_weight_code pl_weight_decay;

typedef struct pl_weight_source pl_weight_source;

// A safetensors file, index or folder (pl_st_open). llama2.c files: pl_llama2c_open.
// In a folder whose config says that it is quantised, each matrix and its companions are one tensor under the name
// that it has in a plain folder (quant.h).
// Of a model that wraps a language model (images beside it; tensors under language_model.model. as published, or under
// model.language_model. as transformers 5 writes them) the source has the language model's tensors alone, under the
// names that they have without the wrapping: model.layers.0..., lm_head.weight; and those of its layer for drafting,
// mtp.fc.weight...
// A layer's experts have Qwen3-MoE's names, whatever the file calls them (block_sparse_moe.experts.7.w2.weight is
// mlp.experts.7.down_proj.weight, block_sparse_moe.gate.weight mlp.gate.weight: Mixtral's), and one by one where the
// file stacks them (GPT-OSS: gate and up in turns, transposed, or in MXFP4; Qwen3.5: gate above up).
pl_status pl_weight_source_open(pl_weight_source **out, const char *path, pl_err *err);
void      pl_weight_source_close(pl_weight_source *src);
// For readers of other formats: copies path and the entries; names and data must live until `release(owner)`, which
// close calls (it is also called when this fails). The names must differ (PL_E_INPUT if not).
pl_status pl_weight_source_create(pl_weight_source **out, const char *path, const pl_weight_entry *entries, int64_t n,
                                  void (*release)(void *owner), void *owner, pl_err *err);

const char            *pl_weight_source_path(const pl_weight_source *src);
int64_t                pl_weight_source_count(const pl_weight_source *src);
const pl_weight_entry *pl_weight_source_at(const pl_weight_source *src, int64_t i);
const pl_weight_entry *pl_weight_source_find(const pl_weight_source *src, const char *name); // NULL if absent

// Every part is there with the right shape and a float type, or one line names the tensor, the shape expected and the
// one found.
pl_status pl_weight_source_check(const pl_weight_source *src, const pl_weight_spec *specs, int64_t n, pl_err *err);
// Tensors that no spec claims (part or alias). *count is their number; the first min(count, cap) names go to names.
pl_status pl_weight_source_unclaimed(const pl_weight_source *src, const pl_weight_spec *specs, int64_t n,
                                     const char **names, int64_t cap, int64_t *count, pl_err *err);
// The type in which the matrices of the specs (NULL: of the whole source) are stored: the one they share, else PL_F32;
// where one is encoded, the type in which it is opened. Vectors count only where there is no matrix.
pl_dtype  pl_weight_source_stored_dtype(const pl_weight_source *src, const pl_weight_spec *specs, int64_t n);

bool      pl_weight_has(const pl_weight_source *src, const pl_weight_spec *spec); // all parts are there
// rows * max(cols, 1) floats, parts stacked. A missing or misshapen tensor is PL_E_INPUT.
pl_status pl_weight_read_f32(const pl_weight_source *src, const pl_weight_spec *spec, float *dst, pl_err *err);
// Rows [row0, row0 + n) of the stack.
pl_status pl_weight_read_rows(const pl_weight_source *src, const pl_weight_spec *spec, int64_t row0, int64_t n,
                              float *dst, pl_err *err);
// The form of codes that holds a matrix, if it is one for all parts, and row `row` of the stack in it (cols / 32). The
// source was checked.
pl_code   pl_weight_form(const pl_weight_source *src, const pl_weight_spec *spec);
void      pl_weight_read_codes(const pl_weight_source *src, const pl_weight_spec *spec, int64_t row, pl_code_row *to);
// The mapped bytes of a spec of one part, if they are in order and aligned to their element; false otherwise (then
// read).
bool      pl_weight_view(const pl_weight_source *src, const pl_weight_spec *spec, const void **data, pl_dtype *dtype);
// How many rows of the stack from row0 on lie one after the other in `dtype`, and where: *data is mapped and may lie at
// any address. 0: none, read them.
int64_t   pl_weight_rows_view(const pl_weight_source *src, const pl_weight_spec *spec, int64_t row0, pl_dtype dtype,
                              const void **data);
// The mapped pages of rows [row0, row0 + n) of the stack are not needed any more.
void      pl_weight_drop_rows(const pl_weight_source *src, const pl_weight_spec *spec, int64_t row0, int64_t n);
// Of all of it.
void      pl_weight_drop(const pl_weight_source *src, const pl_weight_spec *spec);
// Makes s, but for its name, a copy of an entry of a source, which must be checked and outlive it: in the entry's
// type, decoded.
void      pl_weight_copy(pl_st_source *s, const pl_weight_entry *e);

// Writes a safetensors file atomically: specs taken apart into their parts, data[i] of rows * max(cols, 1) floats
// converted to dtype (PL_BF16: to nearest even; or PL_F32). data[i] may be NULL for an optional spec, which is then
// left out. extra: further tensors as they are (d2t, t2d).
pl_status pl_weights_write(const char *path, const pl_weight_spec *specs, int64_t n, const float *const *data,
                           pl_dtype dtype, const pl_st_source *extra, int64_t n_extra, const pl_st_pair *metadata,
                           int64_t n_metadata, pl_err *err);

// ---- tensors of files as entries of a source: a mixture's under one set of names, whatever the file calls them

// Filled twice: without room it counts.
typedef struct pl_weight_list {
    pl_weight_entry        *entry;  // NULL: only n, text and n_matrices are wanted
    char                   *names;  // where the entries' names go, one after another
    struct pl_quant_matrix *matrix; // where those of quantised matrices go
    int64_t                 n, n_matrices;
    size_t                  text; // bytes of names
} pl_weight_list;

// Adds a tensor of a set. name: its own in a decoder (without what wraps it).
void pl_weight_list_add(pl_weight_list *l, const pl_st *set, const pl_st_entry *e, const char *name);
// Adds a quantised matrix, under such a name.
void pl_weight_list_add_matrix(pl_weight_list *l, const pl_weight_entry *e, const char *name);

#endif
