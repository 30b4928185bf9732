// Ceilings of acceptance (DynaSpec's lemmas 1 and 2): the loss from a head's support, apart from that of its logits. At
// a context with the target's distribution p and a head that proposes from q, the softmax over its support S of k
// tokens,
//
//   achieved = sum_j min(p_j, q_j)  <=  ceiling = p(S)  <=  oracle = H_k(p), the mass of the k best tokens of p
//
// No q over S is accepted more often than p(S) (lemma 1), and no S of k tokens holds more mass than H_k(p) (lemma 2).
// H_k(p) - p(S) is the most that a better choice of tokens can gain, p(S) - achieved the most that better logits can. A
// row that breaks the order is an error of the program or of the drafter's map, and is refused.
//
// At temperature 0, all mass of p is on the target's best token and all of q's on the best of S (SlimSpec §4.2): per
// row, achieved is 1 if the two are the same token, the ceiling 1 if S holds the target's best, the oracle 1. Tokens
// outside a list that redistributes are not in S then, since no greedy draft is one of them.
//
// For any head, at any temperature: recall_target_best, the share of rows whose S holds the target's best token, which
// greedy decoding needs. A head that leaves rows of its matrix unread is also compared with the whole matrix, which
// shows the drafts that its choice of rows loses, independently of the target: recall_head_best and recall_head_top,
// the shares of rows whose S holds the whole head's best token, and all of its N best; retained, the mass of the whole
// head's q on S.
#ifndef PL_CEILINGS_H
#define PL_CEILINGS_H

#include "data/chat/prompts.h"
#include "infer/cli/env.h"
#include "infer/head/outside.h"
#include "infer/model/target.h"

#define PL_CEILINGS_DEPTH 32

// Sums over the rows of one draft depth.
typedef struct pl_ceiling_sums {
    int64_t rows, routed; // routed: rows that have the whole head's logits
    double  support;      // k
    double  achieved, ceiling, oracle;
    double  target;                // number of rows whose S holds the target's best
    double  best, bests, retained; // of the routed rows, against the whole head
} pl_ceiling_sums;

typedef struct pl_ceilings {
    int64_t         v;           // the target's vocabulary
    double          temperature; // of q and p; at 0, p may have any temperature: only its best token is read
    int             n_best;
    pl_ceiling_sums at[PL_CEILINGS_DEPTH];
    double         *sorted, *q;  // [v] scratch
    int64_t         target_best; // of the current row
} pl_ceilings;

// One row: the distributions at which a token of this depth was drafted.
typedef struct pl_ceiling_row {
    int               depth;
    const double     *p;      // [v] the target's distribution
    const float      *logits; // [vd] the head's, -infinity outside its support
    const float      *whole;  // [vd] logits of all rows; NULL: the head reads all rows
    const int32_t    *d2t;    // [vd] or NULL
    int64_t           vd;
    const pl_outside *outside; // the head's mass on tokens outside its list, which then belong to S; NULL: none
} pl_ceiling_row;

pl_status pl_ceilings_init(pl_ceilings *c, int64_t v, double temperature, int n_best, pl_err *err);
void      pl_ceilings_fini(pl_ceilings *c);
// Adds a row. PL_E_INTERNAL if it breaks the order, PL_E_INPUT if a logit is NaN or the support is empty.
pl_status pl_ceilings_add(pl_ceilings *c, const pl_ceiling_row *r, pl_err *err);
// Adds the member "ceilings" to an open object: one object for each depth that has rows.
void      pl_ceilings_write(const pl_ceilings *c, pl_json_out *o);

typedef struct pl_inspect_ceilings_options {
    const char       *drafter, *prompts; // prompts NULL: the target's own text
    const pl_prompts *texts;             // the prompts of `prompts` if they are already read; NULL
    uint64_t          seed;              // base of the seeds of drawn answers
    int64_t           positions;         // number of drafts to score
    int               depth;             // tokens drafted at a time, 1..PL_CEILINGS_DEPTH
    int               n_best;
    double            temperature; // of both distributions; 0: all mass on the best token
    bool              sampled;     // draws answers at that temperature, which is above 0; else greedy
} pl_inspect_ceilings_options;
// Writes the ceilings by depth, over chains of the drafter's best tokens along the answers of the target, whose file is
// `path`; the drafter's weights have the target's type. A row counts at depth d if the d tokens drafted before it equal
// the answer's.
pl_status pl_inspect_ceilings(pl_json_out *o, const pl_env *env, const pl_target *target, const char *path,
                              const pl_inspect_ceilings_options *opt, pl_err *err);

#endif
