// A model's parameters in training: five blocks of the same layout.
//
//   w     fp32 masters                 work  read by the ops: round(w) to the checkpoint's dtype
//   grad  gradients                    m, v  AdamW's moments
// All in be->real (fp32; double when gradients are checked) and in the backend's memory: bf16 working values are held
// as reals. A device, whose products take them in bf16, has a second copy:
//   work16  bf16, the values of work
// Decayed matrices come first and undecayed parameters after them, so AdamW is two calls. Frozen parameters follow in
// `work` alone. If the optimizer is sharded over ranks (pl_shard), w, m and v hold this rank's piece alone. Each
// parameter starts on a multiple of PL_BLOCK_GRAIN elements; the gaps are zero and stay zero.
#ifndef PL_TRAIN_BLOCK_H
#define PL_TRAIN_BLOCK_H

#include "infer/model/params.h"
#include "kernels/base/parallel.h"
#include <stdbool.h>

#define PL_BLOCK_GRAIN 16 // elements: one cache line of floats

// The piece of masters and moments that a process holds, one of `ranks`; ranks 0: all. A piece is whole chunks of the
// gradient's norm (kernels/op/adamw.h), so that the chunks do not depend on the number of ranks.
typedef struct pl_shard {
    int rank, ranks;
} pl_shard;

typedef struct pl_param_block {
    pl_params       *params; // borrowed
    pl_dtype         real, round_to;
    int64_t          n, n_decayed, n_work; // trained elements; decayed ones; trained and frozen
    pl_shard         shard;
    int64_t          piece, first, held; // elements of a piece; w, m, v hold [first, first + held)
    int64_t         *at;     // [params->n] first element of each parameter in work (and, unless frozen, in all blocks)
    bool            *frozen; // [params->n]
    void            *w, *m, *v, *grad, *work;
    uint16_t        *work16; // NULL without round_to PL_BF16
    const pl_memory *memory; // of these blocks
} pl_param_block;

typedef struct pl_param_block_options {
    const pl_backend *backend;
    pl_dtype          round_to; // the checkpoint's dtype: PL_BF16, or PL_F32 for no rounding
    const bool       *frozen;   // [params->n] or NULL: everything is trained
    pl_shard          shard;
    bool              decay_embed; // weight decay applies to embeddings too (never to norms)
} pl_param_block_options;

// Allocates the blocks (zero) and points every parameter's tensor into work and grad (row-major; grad NULL if frozen).
// params must outlive the block. PL_E_MEMORY.
pl_status pl_param_block_create(pl_param_block *b, pl_params *params, const pl_param_block_options *o, pl_err *err);
void      pl_param_block_destroy(pl_param_block *b);

int64_t pl_param_block_count(const pl_param_block *b, int i); // elements of parameter i

// Draws masters and working copy of all parameters: normal with the parameter's init_std, a pure function of (seed,
// PL_STREAM_INIT, index of the parameter, element); norms are 1.
pl_status pl_param_block_init(pl_param_block *b, uint64_t seed, pl_err *err);
// Returns those values for parameter i, as floats.
void      pl_param_block_draw(const pl_param_block *b, int i, uint64_t seed, float *values);
// Sets parameter i, with its working copy, from row-major floats.
pl_status pl_param_block_set(pl_param_block *b, int i, const float *values, pl_err *err);
// Sets all parameters from a checkpoint, which must have them in their shapes.
pl_status pl_param_block_read(pl_param_block *b, const pl_weight_source *src, pl_err *err);
// The same of n parameters from `first` on.
pl_status pl_param_block_read_some(pl_param_block *b, int first, int n, const pl_weight_source *src, pl_err *err);

// Ordered with the ops of ctx; host memory is cleared by its threads (ctx NULL: by one).
void pl_param_block_zero_grad(pl_param_block *b, pl_ctx *ctx);

// The working copy as floats, one pointer per parameter, for pl_params_write. End with pl_param_view_fini.
typedef struct pl_param_view {
    const float **data; // [params->n]
    float        *copy; // if the block does not hold floats in host memory
} pl_param_view;
pl_status pl_param_view_init(pl_param_view *v, const pl_param_block *b, pl_err *err);
void      pl_param_view_fini(pl_param_view *v);

// A block's parts in a training state: n elements of each, in reals.
enum { PL_BLOCK_W, PL_BLOCK_M, PL_BLOCK_V, PL_BLOCK_PARTS };
// Writes elements [at, at + n) of a part from the host: those held here, and with the masters the working copy.
pl_status pl_param_block_put(pl_param_block *b, int part, int64_t at, int64_t n, const void *values, pl_err *err);
// Reads them back; they must be held.
pl_status pl_param_block_take(const pl_param_block *b, int part, int64_t at, int64_t n, void *values, pl_err *err);

#endif
