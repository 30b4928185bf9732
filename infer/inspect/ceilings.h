// Ceilings of acceptance (DynaSpec's lemmas 1 and 2): what a head's support costs, apart from what its logits cost. At
// a context with the target's distribution p and a head that proposes from q, the softmax over its support S of k
// tokens,
//
//   achieved = sum_j min(p_j, q_j)  <=  ceiling = p(S)  <=  oracle = H_k(p), the mass of the k best tokens of p
//
// No q over S is accepted more often than p(S) (lemma 1), and no S of k tokens holds more (lemma 2); with what p(S)
// loses against H_k(p) a better choice of tokens could be paid, with what achieved loses against p(S) better logits. A
// row that breaks the order is an error of the program or of the drafter's map, and is refused.
//
// At temperature 0, all mass of p lies on the target's best token and all of q on the best of S (SlimSpec §4.2): per
// row, achieved is whether the two are one token, the ceiling whether S holds the target's best, the oracle 1. Tokens
// outside a list that redistributes are not in S then, for no greedy draft is one of them.
//
// Of any head, at any temperature: recall_target_best, whether S holds the target's best token, which is what greedy
// decoding needs. A head that leaves rows of its matrix unread is held against the whole matrix as well, which says
// what its choice of rows loses of its own drafts and nothing of the target's tokens: recall_head_best,
// recall_head_top, whether the whole head's best token and all of its N best lie in S; retained, how much of the whole
// head's q does.
#ifndef PL_CEILINGS_H
#define PL_CEILINGS_H

#include "infer/head/outside.h"
#include "kernels/base/json.h"

#define PL_CEILINGS_DEPTH 32

// Sums over the rows of one draft depth.
typedef struct pl_ceiling_sums {
    int64_t rows, routed; // routed: rows that came with the whole head
    double  support;      // k
    double  achieved, ceiling, oracle;
    double  target;                // rows whose S holds the target's best
    double  best, bests, retained; // of the routed rows, against the whole head
} pl_ceiling_sums;

typedef struct pl_ceilings {
    int64_t         v;           // the target's vocabulary
    double          temperature; // of q; p comes with it, at 0 with any: its best token is all that is read
    int             n_best;
    pl_ceiling_sums at[PL_CEILINGS_DEPTH];
    double         *sorted, *q;  // [v] scratch
    int64_t         target_best; // of the row in hand
} pl_ceilings;

// One row: what was known where a token at this depth was drafted.
typedef struct pl_ceiling_row {
    int               depth;
    const double     *p;      // [v] the target's distribution
    const float      *logits; // [vd] the head's, -infinity outside its support
    const float      *whole;  // [vd] of all its rows; NULL: it reads them all
    const int32_t    *d2t;    // [vd] or NULL
    int64_t           vd;
    const pl_outside *outside; // what the head gives to tokens outside its list, which then belong to S; NULL: nothing
} pl_ceiling_row;

pl_status pl_ceilings_init(pl_ceilings *c, int64_t v, double temperature, int n_best, pl_err *err);
void      pl_ceilings_fini(pl_ceilings *c);
// Adds a row. PL_E_INTERNAL where it is out of order, PL_E_INPUT where a logit is not a number or the support is empty.
pl_status pl_ceilings_add(pl_ceilings *c, const pl_ceiling_row *r, pl_err *err);
// Members of an open object: "ceilings", one object for each depth that has rows.
void      pl_ceilings_write(const pl_ceilings *c, pl_json_out *o);

#endif
