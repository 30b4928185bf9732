// Documents on their way from the ranks that have them to those that learn from them, over the ranks' comm.
#ifndef PL_TRAIN_CARRY_H
#define PL_TRAIN_CARRY_H

#include "kernels/comm/comm.h"
#include "train/source/source.h"

// What a source says of its documents. All ranks answer `rows` and `sender` alike, for whatever is asked for.
typedef struct pl_doc_carry {
    pl_comm         *comm;
    pl_columns_shape shape;
    int32_t          vocab; // every token is below it
    void            *arg;
    int64_t (*rows)(void *arg, int64_t at);
    // Who sends document `at` to rank `to`; -1: nobody, it has it or there is no such document.
    int (*sender)(void *arg, int64_t at, int to);
    // A document that this rank sends: borrowed until the next call.
    pl_status (*give)(void *arg, int64_t at, pl_columns *doc, pl_err *err);
    // Where one that comes goes: room for its rows in every column of the shape. In ascending order of numbers for each
    // sender.
    pl_status (*take)(void *arg, int64_t at, pl_columns *room, pl_err *err);
} pl_doc_carry;

// Collective: rank r gets what it lacks of documents [rank[r].first, rank[r].end). PL_E_IO: a rank sent a token or a
// mark that is none.
pl_status pl_doc_carry_out(const pl_doc_carry *c, const pl_doc_span *rank, pl_err *err);

#endif
