// Evaluation by several ranks: each decodes some records of the prompts' file, whole conversations, and rank 0 gathers
// the answers in the file's order. Answers, counts and acceptance equal those of one process, except for methods that
// vary from run to run or depend on earlier answers (trees chosen by measured costs; recycled tokens). Each rank
// measures its own times, while others may share its machine, so they are less exact than one process's; results.json
// has the number of ranks (settings.ranks).
#ifndef PL_EVAL_GATHER_H
#define PL_EVAL_GATHER_H

#include "infer/decode/trace.h"
#include "infer/eval/results.h"
#include "kernels/comm/comm.h"

// Returns the rank that answers prompt i.
static inline int pl_eval_owner(const pl_results *r, int64_t i, const pl_comm *c) {
    return (int)(r->record[i] % pl_comm_ranks(c));
}

typedef struct pl_eval_part {
    pl_comm       *comm;
    pl_results    *r;        // stats, answers and samples: this rank's; on rank 0 then all ranks'
    int64_t       *prompt_n; // [n_prompts] likewise
    uint8_t       *cut;      // [n_prompts] likewise
    const uint8_t *sampled;  // [n_prompts] 1: each answer adds a line to its method's samples
} pl_eval_part;

// Write `rank`'s part as bytes, and read n such bytes from `rank` into p->r, prompt_n and cut. samples[m] points into
// `data`, at the lines of its answers by method m. PL_E_IO: the bytes are no part of this evaluation; the message has
// the rank, and p->r must not be used further.
void      pl_eval_part_write(pl_strbuf *b, const pl_eval_part *p, int rank);
pl_status pl_eval_part_read(const pl_eval_part *p, int rank, const uint8_t *data, size_t n, const char **samples,
                            pl_err *err);

// Gathers all parts on rank 0; does nothing with one rank. Collective. PL_E_IO: a rank's bytes are no part of this
// evaluation, or more than this host's memory.
pl_status pl_eval_gather(const pl_eval_part *p, pl_err *err);
// Appends the other ranks' lines to rank 0's trace, rank by rank; the others must abort theirs. Collective.
pl_status pl_eval_gather_trace(pl_comm *c, pl_trace *t, pl_err *err);

#endif
