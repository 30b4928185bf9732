// A session's state in the layers of a target that have a recurrence in place of attention (kernels/op/deltarule.h):
// Qwen3-Next's and Qwen3.5's gated delta nets. Beside a cache of keys and values, whose rejected rows are left behind,
// such a state has one value, that of a text. Its rules:
//
//   prompt     A chunk of n rows moves the state on by n, in place. Any division of a prompt gives the same bits.
//   tree       A forward moves it on by the root, which every verdict accepts; the other nodes are computed on copies
//              (one for each halving of the tree, in scratch) and leave a kept row: x, k, v, a and b (pl_gdn_kept).
//   commit     Replays the accepted nodes' kept rows, in order, and reads no weight (pl_recurrent_commit). A rejected
//              node leaves nothing. Each forward of a tree must be committed before the next rows.
//   a new text Begins at position 0, where the state counts as zeros: nothing is cleared.
//   prefixes   A state cannot go back. A kept one serves a prompt that continues all of its text; another prompt that
//              begins alike continues from an earlier state of the same text, if one was saved (pl_recurrent_save).
//
// Memory in fp32, whatever the caches are held in: layers (pl_gdn_state + nodes pl_gdn_kept) 4 bytes a session,
// however long its text; of 24 layers with 16 key and 32 value heads of 128: 53 MB, and 1.4 MB a node. A saved state
// takes the 53 MB once more. It is part of a pl_kv, in which the layers with attention alone have keys and values.
#ifndef PL_RECURRENT_H
#define PL_RECURRENT_H

#include "checkpoints/hf.h"
#include "kernels/backend.h"
#include "kernels/op/deltarule.h"

typedef struct pl_recurrent {
    pl_gdn_shape     shape;
    int              layers;               // with a recurrence; 0: none, and no memory
    int              nodes;                // most nodes of a tree
    size_t           elem;                 // bytes of a number
    const pl_memory *memory;               // of the blocks
    void            *block, *kept, *saved; // saved: NULL, or as large as block
    int32_t         *rows; // [nodes] the number of rows that a commit replays, then their indices (PL_SHARED)
    size_t           bytes, kept_bytes;
    int32_t         *at; // [2] positions that the state has seen, and those of the saved one (0: none); owned
} pl_recurrent;

// The shape of a config's recurrent layers.
static inline pl_gdn_shape pl_recurrent_shape(const pl_hf_delta *c) {
    return (pl_gdn_shape){
        .nk = c->key_heads, .nv = c->value_heads, .dk = c->key_dim, .dv = c->value_dim, .taps = c->taps};
}

pl_status          pl_recurrent_create(pl_recurrent *s, int layers, const pl_gdn_shape *shape, const pl_backend *be,
                                       pl_err *err);
void               pl_recurrent_destroy(pl_recurrent *s);
// Makes room for the kept rows of trees of so many nodes, slots n_ctx .. n_ctx + nodes - 1. Without it: chains and
// trees that are a root.
pl_status          pl_recurrent_keep(pl_recurrent *s, int nodes, pl_err *err);
// The i-th layer's state and kept rows.
void              *pl_recurrent_layer(const pl_recurrent *s, int i);
void              *pl_recurrent_kept(const pl_recurrent *s, int i);
// Returns true if rows at position n may come next: there is no state, or it has seen n positions, or begins anew.
static inline bool pl_recurrent_reaches(const pl_recurrent *s, int32_t n) {
    return s->layers == 0 || n == 0 || *s->at == n;
}
// Makes room for a saved state.
pl_status             pl_recurrent_keep_saved(pl_recurrent *s, pl_err *err);
// Saves the state in place of the saved one. Ordered with the ops of ctx, as is pl_recurrent_go.
void                  pl_recurrent_save(pl_ctx *ctx, const pl_recurrent *s);
// Returns the last position, n at most, from which rows may follow if the first n positions stay as they are.
static inline int32_t pl_recurrent_from(const pl_recurrent *s, int32_t n) {
    if (pl_recurrent_reaches(s, n)) return n;
    return s->at[1] <= n ? s->at[1] : 0;
}
// Continues from such a position.
void pl_recurrent_go(pl_ctx *ctx, const pl_recurrent *s, int32_t from);
// Returns true if a row (see pl_kv_row) continues the state, or a commit (below) follows the tree.
bool pl_recurrent_takes(const pl_recurrent *s, int32_t n_ctx, const int32_t *path, int32_t n_path, int32_t slot);
bool pl_recurrent_commits(const pl_recurrent *s, int32_t n_ctx, const int32_t *slot, int n);
// Notes what such a row adds.
void pl_recurrent_row(const pl_recurrent *s, int32_t n_ctx, const int32_t *path, int32_t n_path, int32_t slot);
// Commits the tree whose root had slot n_ctx: accepted nodes by slot, the root first.
void pl_recurrent_commit(pl_ctx *ctx, const pl_recurrent *s, int32_t n_ctx, const int32_t *slot, int n);

#endif
