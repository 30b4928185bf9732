// Messages from rank 0 to the ranks that follow it: an order, then its bytes. Private to infer/model.
#ifndef PL_TP_ORDERS_H
#define PL_TP_ORDERS_H

#include "infer/model/tp.h"

typedef enum pl_tp_what {
    PL_TP_END,
    PL_TP_OPEN,   // id, n: dtype. Each rank opens its own target; then all compare the fingerprint
    PL_TP_CLOSE,  // id
    PL_TP_CACHES, // id, n: number of the model, sizes
    PL_TP_DROP,   // id
    PL_TP_RUN,    // id; bytes: records
    PL_TP_USED,
} pl_tp_what;

typedef struct pl_tp_order {
    int64_t     bytes; // bytes that follow the order
    int32_t     what, id, n;
    pl_tp_sizes sizes;
} pl_tp_order;
_Static_assert(sizeof(pl_tp_sizes) == 8 * sizeof(int32_t), "an order is read number by number");

// Records of a run, 32-bit numbers one after the other, in order of execution.
enum {
    PL_TP_MOVE,  // session, n_ctx, n, then n slots
    PL_TP_STATE, // session, position, save (0 or 1)
    PL_TP_ROW,   // token, pos, session, n_ctx, n_path, slot, logits, path present (0 or 1), then the path
};
enum { PL_TP_MOVE_WORDS = 4, PL_TP_STATE_WORDS = 4, PL_TP_ROW_WORDS = 9 }; // words without the variable part

// Writes this rank's pl_tp_use into the zeroed array of all ranks' [ranks][PL_TP_USES].
#define PL_TP_USES 3
void pl_tp_put_use(const pl_comm *c, double *all);

#endif
