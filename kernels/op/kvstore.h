// Puts the keys and values of this forward's rows into their sessions' caches: for each row m
//   cache k[slot] = qkv[m, nh*hd : (nh+nkv)*hd],  cache v[slot] = the nkv*hd after it.
// Exact copy; rows must have distinct (cache, slot). No gradient: committed keys are constants.
#ifndef PL_OP_KVSTORE_H
#define PL_OP_KVSTORE_H
#include "kernels/op/attention.h"
#include <string.h>

typedef struct pl_kvstore_args {
    pl_tensor       qkv;
    const pl_kvrow *row; // [M]
    int             nh, nkv, hd;
} pl_kvstore_args;

void pl_kvstore(pl_ctx *ctx, pl_tensor qkv, const pl_kvrow *row, int nh, int nkv, int hd);

// One row of it on the host: its keys, and its values behind them, `bytes` each.
static inline void pl_kvstore_row(const pl_kvrow *row, const void *keys, size_t bytes) {
    memcpy((char *)row->k + (size_t)row->slot * bytes, keys, bytes);
    memcpy((char *)row->v + (size_t)row->slot * bytes, (const char *)keys + bytes, bytes);
}
#endif
