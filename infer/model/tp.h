// A target whose weights are divided among ranks (tensor parallelism, Megatron-LM, arXiv 1909.08053, section 3, but by
// output rows alone). Every matrix W [N, K] is divided by its rows, the outputs: rank r of R holds rows N r / R up to N
// (r + 1) / R, computes those outputs of every product, and all ranks gather the rest:
//
//   attention   its own heads of queries, keys and values, and their cache; gathered: o [M, nh hd], o Wo^T [M, d]
//   recurrence  its own key heads and their value heads, and their states; gathered: o [M, nv dv], o Wo^T [M, d]
//   MLP         its own part of gate and up; gathered: a(x Wg^T) * (x Wu^T) [M, inter], and that by Wd^T [M, d]
//   head        its own rows of the vocabulary; gathered by rank 0 alone: logits [n, V]
//
// Every number is computed as one rank computes it, in the same order of sums, so logits have the same bits on any
// number of ranks. Megatron's split of Wo and Wd by inputs would halve the gathers, and send 4 d numbers a row and
// layer instead of nh hd + inter + 2 d (1.6 times as many for Llama 3 8B), but it adds partial sums, whose bits depend
// on R.
//
// Norms, the embedding and the residual stream are on every rank. R must divide the key/value heads, the query heads
// and the key heads of a recurrence; other widths may differ by a row between ranks. Mixtures of experts are refused.
//
// Rank 0 alone reads prompts, samples, drafts, verifies and writes; the others follow (pl_tp_follow): each opens its
// own target and runs the rows that rank 0 sends, with token, position and cache slots. So decisions that depend on
// time or on one process (adaptive trees, a requested stop) need no agreement, and a drafter lies on one rank. If a
// rank fails all end, with its line (kernels/comm/comm.h). A rank sends per forward of M rows, of which n have logits,
// with w_r its part of a width w: 4 M (R - 1) L (nh_r hd + inter_r + 2 d_r)  +  4 n V_r (ranks above 0) bytes; in a
// recurrence nv_r dv stands for nh_r hd.
#ifndef PL_TP_H
#define PL_TP_H

#include "checkpoints/hf.h"
#include "checkpoints/weights.h"
#include "kernels/backend.h"
#include "kernels/comm/comm.h"

struct pl_llama;

// Refuses, by name, a config that cannot be divided among so many ranks.
pl_status      pl_tp_check(const pl_hf_config *c, int ranks, pl_err *err);
int64_t        pl_tp_own(const pl_comm *c, int64_t n);
// Returns this rank's piece of a file's tensor of `rows` rows, or of its rows [first, first + rows) of `of`. c NULL:
// all.
pl_weight_part pl_tp_part(const pl_comm *c, const char *name, int64_t rows);
pl_weight_part pl_tp_run(const pl_comm *c, const char *name, int64_t first, int64_t rows, int64_t of);
// Gathers the columns of all ranks: [M, width]. c NULL: x itself.
pl_tensor      pl_tp_all(pl_ctx *ctx, pl_comm *c, pl_tensor x, int64_t width);
// Gathers them on rank 0; on the others the values are undefined.
pl_tensor      pl_tp_first_rank(pl_ctx *ctx, pl_comm *c, pl_tensor x, int64_t width);

// ---- ranks above 0

// Follows rank 0 until pl_tp_end. target: the path of this rank's own target, of which it opens its part whenever rank
// 0 opens the target; NULL: it has none. PL_E_USAGE: the files are another model's than rank 0's, or missing. PL_E_IO:
// an order that does not fit the open target and caches.
pl_status pl_tp_follow(pl_comm *c, const pl_backend *be, pl_pool *pool, const char *target, pl_err *err);

// ---- rank 0; each does nothing if the comm is NULL or the target whole

pl_status pl_tp_end(pl_comm *c, pl_err *err);
// Bytes per rank: activations sent so far, memory held now (pl_memory_resident) and its maximum; use has room for the
// comm's ranks.
typedef struct pl_tp_use {
    double sent, memory, peak;
} pl_tp_use;

pl_status pl_tp_used(pl_comm *c, pl_tp_use *use, pl_err *err);
// The other ranks open their own targets as model number *id; once rank 0 has opened its own, pl_tp_agree compares
// fingerprints.
pl_status pl_tp_open(pl_comm *c, int *id, pl_dtype t, pl_err *err);
pl_status pl_tp_agree(pl_comm *c, char fingerprint[17], pl_err *err);
void      pl_tp_close(pl_comm *c, int id);

// The caches on the other ranks that correspond to those of a decode engine.
typedef struct pl_tp_caches pl_tp_caches;
// Limits of the sizes: the largest tree, the most concurrent answers, and all of them with such a tree in one forward.
#define PL_TP_PATH_MAX 128
#define PL_TP_SESSIONS_MAX 1024
#define PL_TP_ROWS_MAX (PL_TP_SESSIONS_MAX * PL_TP_PATH_MAX)
typedef struct pl_tp_sizes {
    int      sessions, slots, rows, logits; // of a forward: most rows, and most rows with logits
    int      path;                          // most slots of a row's path
    int      nodes;                         // of a tree
    int      saved;                         // 1: recurrent layers have a saved state (pl_recurrent_save), else 0
    pl_dtype kv;                            // as in pl_layer_shape
} pl_tp_sizes;
// *out NULL: the target is whole.
pl_status pl_tp_caches_create(pl_tp_caches **out, const struct pl_llama *m, const pl_tp_sizes *s, pl_err *err);
void      pl_tp_caches_destroy(pl_tp_caches *t);
// Adds a row of the next forward, in order; arguments as for pl_kv_row.
typedef struct pl_tp_row {
    int32_t        token, pos, session, n_ctx, n_path, slot;
    const int32_t *path; // NULL: a chain
    bool           logits;
} pl_tp_row;
void      pl_tp_add(pl_tp_caches *t, const pl_tp_row *row);
// Saves the states of a session's recurrent layers, which are those of position `at`; or continues from that position.
void      pl_tp_state(pl_tp_caches *t, int session, int32_t at, bool save);
// Moves slots of a session before the next forward; arguments as for pl_kv_move.
void      pl_tp_move(pl_tp_caches *t, int session, int32_t n_ctx, const int32_t *from, int n);
// The others begin the forward of the added rows; this rank must then run it too.
pl_status pl_tp_begin(pl_tp_caches *t, pl_err *err);
// Call after it: if it failed here, tells the others, which wait for this rank's part.
void      pl_tp_finish(pl_tp_caches *t, pl_ctx *ctx);

#endif
