// Readers of the *.golden files that make_golden.py writes (format and purpose: there), and the comparison with them.
// Whatever is wrong fails the cmocka test that runs.
#ifndef PL_TEST_GOLDEN_H
#define PL_TEST_GOLDEN_H

#include "checkpoints/hf.h"
#include "train/loop/block.h"

#define GOLDEN_BACKENDS 9

typedef struct golden_entry {
    char     name[96];
    pl_dtype dtype; // PL_F64, PL_I32 or PL_U8
    int64_t  dim[4], count;
    double   rms, most; // of PyTorch's errors in float32; 0: float32 has the values exactly
    void    *data;
    bool     asked; // since golden_begin
} golden_entry;

typedef struct golden {
    const char   *name;
    golden_entry *entry;
    int           n;
    double        slack; // not 0: what all may be off by, relative to an entry's largest value (weights in bf16)
} golden;

#define GOLDEN_BF16 0x1p-7

// name: without folder and ".golden".
void golden_open(golden *g, const char *name);
void golden_close(golden *g);
// Between these two a test compares; the second fails when an entry whose name begins with the prefix was not asked
// for.
void golden_begin(golden *g);
void golden_all_asked(const golden *g, const char *prefix);

// An entry by printf-like name.
golden_entry  *golden_at(golden *g, const char *fmt, ...) PL_PRINTF(2, 3);
const double  *golden_reals(golden *g, int64_t count, const char *fmt, ...) PL_PRINTF(3, 4);
const int32_t *golden_ints(golden *g, int64_t count, const char *fmt, ...) PL_PRINTF(3, 4);

// A scratch folder with the file's config.json in it; removed by golden_rmdir.
void golden_mkdir(golden *g, char dir[64]);
void golden_rmdir(const char *dir);
// The file's config.json, read as any target's.
void golden_config(golden *g, pl_hf_config *c);

// ref64, ref, cpu for every ISA that this machine has, the CUDA backend's kernels on an emulated device and, where
// PACELINE_TEST_GPU names one, a GPU. Returns how many.
int      golden_backends(const pl_backend *be[GOLDEN_BACKENDS]);
// What a backend reads in place must lie here: zeroed, in reach of host and device, until golden_release.
void    *golden_room(const pl_backend *be, size_t bytes);
void     golden_release(void);
bool     golden_on_device(const pl_backend *be);
// What training's weights, exact in either, are held as: where they are bf16 all but ref round what they meet as well,
// and are compared in fp32 here.
pl_dtype golden_held(const pl_backend *be);

// ---- numbers that both sides compute from names ----

// Exact in bf16: odd multiples of 2^-log2.
void golden_coarse(float *dst, int64_t n, int log2, const char *name);

typedef enum golden_grade {
    GOLDEN_COARSE, // exact in bf16
    GOLDEN_FINE,   // fp32 masters that are not; norms are 1
} golden_grade;
// Parameter p of a model (a prefix that keeps models apart), part after part.
void    golden_weight(float *dst, const pl_param *p, golden_grade grade, const char *model);
void    golden_weights_set(pl_param_block *b, golden_grade grade, const char *model);
// All parameters as pl_params_write takes them.
float **golden_weights(const pl_params *ps, const char *model);
void    golden_weights_free(float **data, int n);

// ---- comparison ----
//
// Against the double values in the file. In double: at most 1e-12 of the entry's largest value. In fp32: the root mean
// square and the largest of the errors at most twice PyTorch's own in float32 (in its worst order of summation) and a
// unit in the last place, which any storing may cost. What float32 has exactly must be exact. On a device, where
// attention in training takes each number as two of bf16: a 2^-12th of the entry's largest value, or the slack where
// that is more.

// got: fp32 or double, from a computation of the backend. It is all of the entry.
void golden_expect(golden *g, const pl_backend *be, pl_tensor got, const char *fmt, ...) PL_PRINTF(4, 5);
// It is rows row0, row0 + 1, ... of the entry; then the bound for the largest error is the only one.
void golden_expect_rows(golden *g, const pl_backend *be, pl_tensor got, int64_t row0, const char *fmt, ...)
    PL_PRINTF(5, 6);
// A matrix whose sums under signs stand in the file. slack: as below.
void golden_expect_matrix(golden *g, const pl_backend *be, pl_tensor got, double slack, const char *fmt, ...)
    PL_PRINTF(5, 6);
// A block of `b` (gradients, masters) against "<prefix><name>" of each part of each parameter. slack: bound of the
// error in fp32 relative to the largest value, in place of PyTorch's error; 0: none.
void golden_expect_block(golden *g, const pl_backend *be, const pl_param_block *b, const void *block, double slack,
                         const char *prefix);
// As golden_expect with a slack.
void golden_expect_slack(golden *g, const pl_backend *be, pl_tensor got, double slack, const char *name);

#endif
