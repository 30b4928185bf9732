// psi: the probability that a drafter, writing in its own tokens, writes a string whose first target token is t. Timor
// et al. 2025 (arXiv 2502.05202), Algorithm 3 and Theorem 3.2:
//
//   psi(t) = sum over d_1 .. d_i with F(d_1 .. d_i) = t of prod_j q(d_j | d_1 .. d_{j-1})
//
// F, the first target token of a string, is the longest target token that the string begins with (the paper's T(s),
// section 3). Any F and any rule for ending a string will do if both depend on the string alone: psi is then the
// distribution of F, and verification that draws t from psi and divides by psi is exact. Here a string ends
//   where no further byte can change its first token, at a token that ends the answer, after `cap` tokens,
//   and where its probability falls below `least`: F is then the longest token so far.
// The last rule makes psi cheap: of the exponentially many strings (Lemma 3.1) at most 1 / least are extended per
// token, so one forward of the drafter a level gives psi of all tokens, which Algorithm 3 needs: it accepts t with
// min(1, p(t) / psi(t)) and on rejection draws from p - min(p, psi), renormalised (lines 6 to 8), as
// infer/verify/rejection.c does with psi as its q. Strings that begin with no target token are left out, and psi is
// renormalised. Beyond the forwards, a walk through both vocabularies visits the tokens that can change F; the others
// keep it and share the remaining probability.
//
// With n-grams (ngrams.h) F is the target token of the longest cached list that the string begins with, or of a single
// token that both have; a string ends where no longer list begins with it.
//
// Usage, for each token of the target:
//   pl_string_law_begin(l, psi)                          state 0: nothing written
//   for all states, in order: pl_string_law_take(l, state, q)   q [vd]: distribution after it; adds states
//   pl_string_law_end(l): psi sums to 1; false: no string begins with a token
#ifndef PL_STRING_LAW_H
#define PL_STRING_LAW_H

#include "infer/drafter/ngrams.h"

typedef struct pl_string_state {
    double        w; // probability of the string
    int           parent, depth;
    int32_t       token; // its last token
    pl_lexicon_at at;    // the string in the target's vocabulary; with n-grams `longest` alone
    int32_t       gram;  // the string as a node of the cache
} pl_string_state;

typedef struct pl_string_law {
    const pl_lexicon *target, *draft;
    int64_t           vt, vd;                // entries of psi and of q
    int32_t           end_target, end_draft; // tokens that end an answer, -1: none
    int               cap;
    double            least;
    pl_lexicon_at    *alone; // [vd] each draft token as a string
    int32_t          *odd;   // [n_odd] draft tokens without bytes, or with the bytes of another token
    int               n_odd;
    const pl_ngrams  *grams;     // NULL: all strings
    const int32_t    *to_target; // [vd] with n-grams: the token that both have, -1: none
    // State of the current target token.
    double           *psi; // [vt]; borrowed
    pl_string_state  *state;
    int               n, most; // at most cap / least
} pl_string_law;

// Tokens from vt and vd on are ignored. 1 <= cap, 0 < least <= 1.
pl_status pl_string_law_init(pl_string_law *l, const pl_lexicon *target, int64_t vt, const pl_lexicon *draft,
                             int64_t vd, int cap, double least, pl_err *err);
// Uses the n-gram cache instead of all strings; both arguments are borrowed.
void      pl_string_law_use(pl_string_law *l, const pl_ngrams *grams, const int32_t *to_target);
void      pl_string_law_fini(pl_string_law *l); // zeroed is fine
// Returns the largest number of states of one depth.
int       pl_string_law_level(const pl_string_law *l);
void      pl_string_law_begin(pl_string_law *l, double *psi);
void      pl_string_law_take(pl_string_law *l, int state, const double *q);
// Ends writing at this state instead of taking it; allowed wherever the decision depends on the string alone.
void      pl_string_law_stop(pl_string_law *l, int state);
bool      pl_string_law_end(pl_string_law *l);

#endif
