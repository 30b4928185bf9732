// The op harness: a test describes a computation once, as a function that makes inputs, calls ops and hands over what
// is to be compared; the harness runs it on every backend of this machine and derives the checks:
//   - forward, and the gradients of all leaves, of every cpu ISA against ref by error budget: with truth = ref64,
//     err(cpu) <= 2 err(ref) + tiny
//   - gradients on ref64 against central differences
//   - the same bits twice, and with one thread and two
//   - the same of the CUDA backend, its kernels run on an emulated device: on inputs that are values of bf16
//   - guard bytes around frame and scratch blocks and around everything the harness hands out
//   - no allocation in a measured step
// The describing function runs many times; on a measuring context it must not touch data, so it makes its inputs only
// through the functions below, always in the same order.
#ifndef OP_HARNESS_H
#define OP_HARNESS_H

#include "kernels/op/attention.h"

typedef struct op_run op_run;
typedef void (*op_build_fn)(op_run *r, const void *shape);

enum {
    OP_NO_TAPE = 1,        // inference only: runs without a tape
    OP_EXACT = 2,          // cpu gives ref's bits
    OP_NO_DIFFERENCES = 4, // not differentiable (or piecewise): no central differences
    OP_EXACT_FMA = 8,      // as OP_EXACT, on every ISA with a fused multiply-add (all but portable)
    OP_NARROW = 512,       // the cpu too rounds to bf16 what such weights meet: compared as a device is
    OP_EXACT_LEVELS = 256, // as OP_EXACT, at every level of the cpu, but not on a device
    OP_NO_DEVICE = 16,     // not on the emulated device: sizes for the cpu's blocking would take it minutes
    OP_BF16_GRADS = 32,    // on a device gradients are rounded to bf16 inside the op: held to bf16's budget
    OP_BF16_PAIRS = 64,    // on a device a number is two of bf16 in products: held to 2^-15 of the largest
    OP_BF16_INSIDE = 128,  // on a device factors are rounded to bf16 inside the op, one after another: held to 2^-7
};

// Runs all checks; fmt names the case in messages.
void op_check(op_build_fn build, const void *shape, unsigned flags, const char *fmt, ...) PL_PRINTF(4, 5);

pl_ctx *op_ctx(op_run *r);

// Inputs: values are mean + scale * N(0, 1), representable in fp32, the same on every backend. A leaf has a gradient,
// which is checked; a constant has none.
pl_tensor      op_leaf(op_run *r, int64_t rows, int64_t cols, double mean, double scale);
pl_tensor      op_leaf_1d(op_run *r, int64_t n, double mean, double scale);
pl_tensor      op_constant(op_run *r, int64_t rows, int64_t cols, double scale);
// A leaf as training holds a weight: fp32 whose values are those of bf16, which it has as well.
pl_tensor      op_working(op_run *r, int64_t rows, int64_t cols, double scale);
// A frozen weight of a given type and layout (values rounded to the type, on every backend).
pl_tensor      op_weight(op_run *r, int64_t n, int64_t k, pl_dtype dtype, pl_layout layout, double scale);
// The same of given values [n, k].
pl_tensor      op_weight_from(op_run *r, int64_t n, int64_t k, pl_dtype dtype, pl_layout layout, const float *v);
// Integers in [lo, hi).
const int32_t *op_ids(op_run *r, int64_t n, int32_t lo, int32_t hi);
// A copy of the test's own integers or floats, guarded.
const int32_t *op_ids_from(op_run *r, const int32_t *from, int64_t n);
const float   *op_floats_from(op_run *r, const float *from, int64_t n);
// Memory for outputs outside the frame: be->real without a gradient; raw bytes. Filled with 0xff (NaN) on each run.
pl_tensor      op_place(op_run *r, int64_t rows, int64_t cols);
void          *op_bytes(op_run *r, size_t bytes);
const void    *op_bytes_from(op_run *r, const void *from, size_t bytes);
// Caches of keys and values in a type, PL_F32 (be->real) or PL_BF16, with values in it, and as an output.
pl_tensor      op_cache(op_run *r, int64_t slots, int64_t cols, pl_dtype t);
void           op_out_cache(op_run *r, pl_tensor cache);
// Puts keys and values of qkv's rows [nh | nkv | nkv heads of hd] into their caches as they are: rope that rotates
// nothing.
void           op_keep(op_run *r, pl_tensor qkv, const pl_kvrow *row, int nh, int nkv, int hd);

// Outputs, in be->real: compared, and where they have a gradient it is seeded with random coefficients.
void op_out(op_run *r, pl_tensor y);
// An output whose gradient is not asked for although the loss is sum coeff[i] * y[i]: the op seeds itself (divergence).
void op_out_loss(op_run *r, pl_tensor y, const float *coeff);
void op_out_f32(op_run *r, const float *y, int64_t n);
void op_out_f64(op_run *r, const double *y, int64_t n);
void op_out_i32(op_run *r, const int32_t *y, int64_t n); // equal on all backends

// For checks of a test's own: one run of `build` on a backend with `threads` threads; op_value(i, j) is element j of
// output i, op_grad(i, j) of leaf i's gradient (leaves counted without constants).
op_run *op_run_once(op_build_fn build, const void *shape, const pl_backend *be, int threads, unsigned flags);
double  op_value(const op_run *r, int out, int64_t at);
double  op_grad(const op_run *r, int leaf, int64_t at);
void    op_run_free(op_run *r);

// Backends of this machine: ref, ref64, each cpu ISA, and the CUDA backend's kernels on an emulated device or, where
// PACELINE_TEST_GPU is set to its number, on a GPU; NULL past the end. With PACELINE_TEST_MEMCHECK set only the portable
// ISA and no emulated device: memcheck gives fused multiply-adds of zeros another sign, and knows nothing of the
// device's threads. PACELINE_TEST_DEVICES_ALONE leaves the cpu's levels out, and op_check's central differences.
// PACELINE_TEST_SEEDS: in how many drawn orders each case runs on the emulated device (1).
const pl_backend *op_backend(int i);
// How often op_check runs a case on the emulated device; 0 where a GPU stands in its place.
int               op_device_runs(void);
// Memory that a backend's ops take for index arrays and results, and for tensors: a copy of `from`, or zero.
void             *op_shared(const pl_backend *be, const void *from, size_t bytes);
void              op_shared_free(const pl_backend *be, void *p, size_t bytes);

#endif
