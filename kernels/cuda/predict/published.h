// Published times of kernels on Hopper GPUs beside what the model (predict.h) says of them, nothing fitted.
//
// A row describes what was published as launches: bytes, operations, blocks, and, for what a kernel does before and
// after it waits for memory, dependent round trips to the L2, barriers and shuffles. Each is the model's own arithmetic
// on that description; rates of memory are the published GPU's.
#ifndef PL_CUDA_PUBLISHED_H
#define PL_CUDA_PUBLISHED_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_published {
    const char *name, *source;
    double      seconds, predicted[2]; // as published; PL_CENTRAL, PL_PESSIMISTIC
    const char *limiter;               // of its largest part
} pl_published;

extern const int pl_published_n;
// Row i, 0 <= i < pl_published_n.
pl_published     pl_published_at(int i);
// (predicted - published) / published.
double           pl_published_error(const pl_published *p);

#ifdef __cplusplus
}
#endif

#endif
