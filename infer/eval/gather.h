// Evaluation by several ranks: each answers some records of the prompts' file, whole conversations, and rank 0 puts
// the answers together in their order. Answers are those of one process, and so are counts and acceptance, but for
// methods that are not alike from run to run anyway or go by what was answered before (trees chosen by measured costs;
// recycled tokens). Times are those of the rank that measured them, beside others that may share its machine: they say
// less than one process's, and results.json says how many there were (settings.ranks).
#ifndef PL_EVAL_GATHER_H
#define PL_EVAL_GATHER_H

#include "infer/decode/trace.h"
#include "infer/eval/results.h"
#include "kernels/comm/comm.h"

static inline int pl_eval_owner(const pl_results *r, int64_t i, const pl_comm *c) {
    return (int)(r->record[i] % pl_comm_ranks(c));
}

typedef struct pl_eval_part {
    pl_comm       *comm;
    pl_results    *r;        // methods' stats, answers and samples; this rank's, on rank 0 afterwards all ranks'
    int64_t       *prompt_n; // [n_prompts] likewise
    uint8_t       *cut;      // [n_prompts] likewise
    const uint8_t *sampled;  // [n_prompts] whether each answer adds a line to its method's samples
} pl_eval_part;

// Collective. Nothing where there is one rank.
pl_status pl_eval_gather(const pl_eval_part *p, pl_err *err);
// Collective: rank 0's trace takes in the others' lines, rank by rank; theirs are to be aborted.
pl_status pl_eval_gather_trace(pl_comm *c, pl_trace *t, pl_err *err);

#endif
