// Sends documents from the ranks that have them to those that learn from them, over the ranks' comm.
#ifndef PL_TRAIN_CARRY_H
#define PL_TRAIN_CARRY_H

#include "kernels/comm/comm.h"
#include "train/source/source.h"

// A source's documents. rows and sender must be equal on all ranks.
typedef struct pl_doc_carry {
    pl_comm         *comm;
    pl_columns_shape shape;
    int32_t          vocab; // every token is less
    void            *arg;
    int64_t (*rows)(void *arg, int64_t at);
    // Returns the rank that sends document `at` to rank `to`; -1: none, it has it or there is no such document.
    int (*sender)(void *arg, int64_t at, int to);
    // Returns a document that this rank sends: borrowed until the next call.
    pl_status (*give)(void *arg, int64_t at, pl_columns *doc, pl_err *err);
    // Returns memory for a document to receive: room for its rows in every column of the shape. Called in ascending
    // order of numbers for each sender.
    pl_status (*take)(void *arg, int64_t at, pl_columns *room, pl_err *err);
} pl_doc_carry;

// Collective: sends rank r the documents of [rank[r].first, rank[r].end) that it lacks. PL_E_IO: a rank sent an invalid
// token or mark.
pl_status pl_doc_carry_out(const pl_doc_carry *c, const pl_doc_span *rank, pl_err *err);

#endif
