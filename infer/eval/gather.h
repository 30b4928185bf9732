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

// The bytes of `rank`'s part, and the same read from n bytes that it sent into p->r, prompt_n and cut; samples[m] is
// lent and holds the lines of its answers by method m. PL_E_IO: they are no part of this evaluation, by one line that
// names the rank; p->r is then of no further use.
void      pl_eval_part_write(pl_strbuf *b, const pl_eval_part *p, int rank);
pl_status pl_eval_part_read(const pl_eval_part *p, int rank, const uint8_t *data, size_t n, const char **samples,
                            pl_err *err);

// Collective. Nothing where there is one rank. PL_E_IO: what a rank sent is no part of this evaluation, or larger than
// this host's memory.
pl_status pl_eval_gather(const pl_eval_part *p, pl_err *err);
// Collective: rank 0's trace takes in the others' lines, rank by rank; theirs are to be aborted.
pl_status pl_eval_gather_trace(pl_comm *c, pl_trace *t, pl_err *err);

#endif
