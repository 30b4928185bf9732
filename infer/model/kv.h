// A session's key/value cache: for each layer K and V, [slots, nkv*hd], in fp32 or (the shape's kv) in bf16, to which
// rope rounds the values that it writes (kernels/op/attention.h, pl_kvrow). Speculative decoding is lossless against
// plain decoding over the same kind of cache; logits over the other kind differ by that rounding. Slot = position for
// committed rows; rows of a draft tree take the slots after them until commit moves the accepted ones into place. It
// lies in memory that the backend's ops can read. Layers with a recurrence have a state in place of keys and values
// (infer/model/recurrent.h).
//
// If every layer has a window, a cache may hold the last positions alone (pl_kv_create_window). Its slots are positions
// too: the first row in memory is slot `base`, and when rows no longer fit, the window's rows move to the front
// (pl_kv_reach). Attention reads the same keys at the same positions, so its bits do not depend on the cache's size.
#ifndef PL_KV_H
#define PL_KV_H

#include "infer/model/layer.h"
#include "infer/model/recurrent.h"

typedef struct pl_kv_window {
    int seen;   // positions up to its own that a row sees in any layer; 0: all
    int most;   // rows of a session that are set at a time, drafted ones included
    int refill; // rows after which nothing depends on keys of earlier ones, in any layer
} pl_kv_window;

typedef struct pl_kv {
    int              layers, slots; // slots: rows of each layer in memory
    int64_t          width;         // nkv * hd
    void            *block;
    size_t           bytes, elem;
    pl_dtype         dtype;     // PL_BF16, or PL_F32: the backend's reals
    const pl_memory *memory;    // of the block
    const bool      *recurrent; // [layers] the shape's; NULL: none is
    pl_recurrent     state;     // of recurrent layers
    pl_kv_window     window;    // zeros: all positions are held
    int32_t          base;      // the first slot in memory
    int32_t          next;      // with a window: the position after the last row that was final
    int32_t          whole;     // with a window: the first position from which all that a row sees is held
} pl_kv;

// The option of all commands and the recipes' key.
#define PL_KV_CHOICES "fp32", "bf16"
#define PL_KV_HELP "how caches hold keys and values, a drafter's too"
static inline pl_dtype pl_kv_chosen(int choice) {
    return choice == 1 ? PL_BF16 : PL_F32;
}
// Returns the bytes of a number in such a cache.
static inline size_t pl_kv_elem(const pl_layer_shape *s, pl_dtype real) {
    return pl_dtype_size(s->kv == PL_BF16 ? PL_BF16 : real);
}

// layers 0: no memory. Recurrent layers get a state; pl_recurrent_keep makes room for trees over it.
pl_status pl_kv_create(pl_kv *kv, int layers, int slots, const pl_layer_shape *s, const pl_backend *be, pl_err *err);
// The same for `slots` positions of which layers with a window see the last alone: holds no more than these, two groups
// of attention's keys (which a device reads whole) and the rows that are set at a time. window->seen 0: pl_kv_create.
pl_status pl_kv_create_window(pl_kv *kv, int layers, int slots, const pl_kv_window *window, const pl_layer_shape *s,
                              const pl_backend *be, pl_err *err);
void      pl_kv_destroy(pl_kv *kv);
// Return the address of slot 0 of a layer's keys, and of its values: before the memory if base > 0.
void     *pl_kv_k(const pl_kv *kv, int layer);
void     *pl_kv_v(const pl_kv *kv, int layer);
// Fills row[l * m] for all layers: this row writes to `slot` and attends to n_ctx committed slots plus path (NULL:
// chain). In a recurrent layer k and v are the state and its kept rows (kernels/op/deltarule.h).
void      pl_kv_row(const pl_kv *kv, pl_kvrow *row, int64_t m, int32_t n_ctx, const int32_t *path, int32_t n_path,
                    int32_t slot);
// Commits: moves slots from[0..n) (ascending) to n_ctx, n_ctx+1, ... in every layer. RoPE depends on positions, which a
// move does not change. A recurrent state replays them. Ordered with the ops of ctx.
void      pl_kv_move(pl_ctx *ctx, pl_kv *kv, int32_t n_ctx, const int32_t *from, int n);
// Makes room, before their pl_kv_row, for final rows at positions first .. first + count - 1 and so many drafted ones
// after them. Without a window there is always room. Keys before `first` that are no longer held count as zeros.
// Ordered with the ops of ctx.
void      pl_kv_reach(pl_ctx *ctx, pl_kv *kv, int32_t first, int count, int drafted);
// Returns the position, n at most, from which rows must come again before a text of `end` positions is drafted from, if
// its first n positions stay: n where all that row n sees is held, else enough rows that no result depends on the keys
// that are gone.
int32_t   pl_kv_from(const pl_kv *kv, int32_t n, int32_t end);

#endif
