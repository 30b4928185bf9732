// Fingerprint of a model: xxHash64 over the names, types and shapes of its tensors, the numbers of its config that
// change what it computes, and the tensors' bytes: the first, middle and last 4 KiB of each, or all of them. It does
// not depend on the order of the tensors in the file or on how they are split into shards.
#ifndef PL_FINGERPRINT_H
#define PL_FINGERPRINT_H

#include "checkpoints/hf.h"
#include "checkpoints/weights.h"
#include "kernels/base/status.h"
#include <stdbool.h>

#define PL_FINGERPRINT_BLOCK 4096 // bytes

// cfg may be NULL (the weights alone). full: every byte is read (and its pages dropped again). The two modes never give
// the same value.
pl_status pl_fingerprint(char out[17], const pl_weight_source *src, const pl_hf_config *cfg, bool full, pl_err *err);

#endif
