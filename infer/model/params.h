// A model's weights as one list: each with its tensor, its names in files and its storage. Every operation on all
// weights (loading, packing, initialising, training, saving, counting bytes) is a loop over this list; a module writes
// its list once and gets all of them.
#ifndef PL_PARAMS_H
#define PL_PARAMS_H

#include "checkpoints/weights.h"
#include "kernels/backend.h"

typedef enum pl_param_kind {
    PL_PARAM_NORM,   // [n]: kept in be->real, initialised to 1, no weight decay
    PL_PARAM_BIAS,   // [n]: as NORM, initialised to 0
    PL_PARAM_TAPS,   // [n]: as NORM, of a convolution; in files [n / (taps w), taps, w]: 1 at the first tap, else 0
    PL_PARAM_MATRIX, // [rows, cols]: packed into panels for inference, by segments if it has any
    PL_PARAM_EMBED,  // [rows, cols]: looked up by row, kept row-major
} pl_param_kind;

// A weight's value before training (train/start/start.h), unless another drafter provides it.
typedef enum pl_param_start {
    PL_START_DRAWN,      // drawn with init_std; norms 1, biases 0
    PL_START_IDENTITY,   // with init_std 0: the identity in a matrix's first columns, else zeros
    PL_START_DENSE,      // a head's rows [V, d]: the target's output matrix, or another drafter's rows
    PL_START_UP,         // the best low-rank factors of those rows: up [V, r]
    PL_START_DOWN,       // and down [r, d]
    PL_START_FINAL_NORM, // the target's final norm, if it has the same width
    PL_START_EMBED,      // the target's embeddings, or their random projection to the width (train/start/embed.h)
    PL_START_FEATURES    // drawn, then each group of d columns scaled to the features that it reads
                         // (pl_backbone_kind.gains)
} pl_param_start;

typedef struct pl_param {
    pl_weight_spec     spec; // part[].name points into name below
    char               name[PL_WEIGHT_PARTS][96];
    pl_tensor         *tensor; // borrowed: the module's field, set by load or bind
    pl_param_kind      kind;
    double             init_std; // standard deviation of a matrix's initial values; 0: zeros (norms: ones)
    void              *owned;    // its part of the list's block when loaded (NULL: bound, or a view of the mapped file)
    size_t             owned_bytes;
    const pl_segments *segments; // borrowed, filled in before load or draw; NULL: none
    pl_code            code;     // of a matrix that is held as the file's codes, set by load
    pl_param_start     start;
    bool               fixed;   // never trained
    bool               neutral; // an identity at the start: a drafter may start from one that lacks it
    bool               fp32;    // held in fp32, whatever the dtype of the others
    bool               gated;   // a matrix that is a gate above up: the two are packed side by side (PL_GATED)
    float              offset;  // added to the file's values of a vector when loading for inference
} pl_param;

typedef struct pl_params {
    pl_param         *p;
    int               n, capacity;
    pl_weight_source *src;   // kept open while embeddings are views of the mapped file; owned
    uint8_t          *block; // all loaded weights in one piece, for huge pages
    size_t            block_bytes;
    const pl_memory  *memory; // of block, NULL: the host's; set before load and draw
} pl_params;

pl_status pl_params_init(pl_params *ps, int capacity, pl_err *err);
void      pl_params_fini(pl_params *ps); // frees loaded weights

// One weight to be added; omitted fields are 0.
typedef struct pl_param_args {
    pl_tensor         *tensor;
    pl_param_kind      kind;
    pl_weight_part     part[PL_WEIGHT_PARTS]; // stacked by rows; the first without a name ends them. Names are copied
    int64_t            cols;                  // 0: a vector
    int64_t            inner[2];              // of taps: their number and width
    double             init_std;
    const pl_segments *segments;
    const char        *alias;    // see pl_weight_spec
    bool               optional; // see pl_weight_spec
    pl_param_start     start;
    bool               fixed;
    bool               neutral;
    bool               fp32;
    bool               gated;
    float              offset; // see pl_param
} pl_param_args;
void      pl_params_add(pl_params *ps, const pl_param_args *a);
// Add a weight of one tensor: of rows and columns (0: a vector), or a norm <prefix><name>.weight of n. Return its
// entry, for fields that are not 0.
pl_param *pl_params_weight(pl_params *ps, pl_tensor *t, pl_param_kind kind, const char *name, int64_t rows,
                           int64_t cols, double init_std);
pl_param *pl_params_norm(pl_params *ps, pl_tensor *t, const char *prefix, const char *name, int64_t n);

// Returns the index in ps->p of a tensor of the module; the tensor must have an entry.
int pl_params_find(const pl_params *ps, const pl_tensor *tensor);

// Returns element j of a vector before training.
double pl_param_begins(const pl_param *p, int64_t j);

// Returns the tensors that p needs of a file. Its part names point into p (entries may move while more are added).
pl_weight_spec pl_param_spec(const pl_param *p);

// Loads for inference: checks all parameters against the source, then reads and packs tensor by tensor (matrices in
// dtype t, F32 or BF16, of which the host holds quantised ones as their codes where a form does (kernels/codes.h);
// norms in fp32; embeddings stay in the mapped file if stored as t, else are copied row-major). A
// device's memory gets copies of all, one tensor at a time. Takes ownership of the source, also on failure.
pl_status pl_params_load(pl_params *ps, pl_weight_source *src, pl_dtype t, pl_err *err);
// Draws random values instead of loading, for benches and plans: the same memory in the same layouts, matrices uniform
// with variance 1 / cols, norms 1, biases 0; a value depends on seed, entry and position alone.
pl_status pl_params_draw(pl_params *ps, pl_dtype t, uint64_t seed, pl_pool *pool, pl_err *err);
// Draws the same distribution for models of gigabytes: draws about a megabyte of each matrix and repeats it by copies
// on ctx within the backend's memory, so that distant rows are equal. Synchronises.
pl_status pl_params_tile(pl_params *ps, pl_dtype t, uint64_t seed, pl_ctx *ctx, pl_err *err);
// Allocates the same memory without values, all zero: for a copy (of `block`) of weights that are drawn elsewhere.
pl_status pl_params_hold(pl_params *ps, pl_dtype t, pl_err *err);
// Checks that the source has all parameters in their shapes; one line names the first that differs.
pl_status pl_params_check(const pl_params *ps, const pl_weight_source *src, pl_err *err);
// Finds tensors of the source that no entry claims: *count is their number, `names` gets the first min(count, cap).
pl_status pl_params_unclaimed(const pl_params *ps, const pl_weight_source *src, const char **names, int64_t cap,
                              int64_t *count, pl_err *err);
// A trainer binds tensors to its own memory instead: see train/loop/block.h.

int64_t   pl_params_count(const pl_params *ps); // elements
size_t    pl_params_bytes(const pl_params *ps); // bytes held in memory after load
// Writes a safetensors file: data[i] is parameter i, row-major, rounded to t; extra tensors are written unchanged.
pl_status pl_params_write(const pl_params *ps, const char *path, const float *const *data, pl_dtype t,
                          const pl_st_source *extra, int n_extra, pl_err *err);

#endif
