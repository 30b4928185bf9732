// psi: with what probability a drafter that writes in its own tokens writes a string that begins with a token of the
// target's. Timor et al. 2025 (arXiv 2502.05202), Algorithm 3 and Theorem 3.2:
//
//   psi(t) = sum over d_1 .. d_i with F(d_1 .. d_i) = t of prod_j q(d_j | d_1 .. d_{j-1})
//
// F, the target's first token in a string, is the longest of its tokens that the string begins with (the paper's own
// T(s), its section 3). Any F and any rule by which writing ends will do, as long as both depend on what was written
// alone: psi is the law of F then, whatever they are, and verification that draws t from psi and divides by psi is
// exact. Here writing ends
//   where no further byte can make the first token another (it is "fixed": no token begins with all of the string and
//   more), at a token that ends the answer, after `cap` tokens,
//   and where the probability of what was written falls below `least`, as of a string that goes on: F is then the
//   longest token so far.
// The last is what makes psi cheap: of the exponentially many strings (Lemma 3.1: 2^(m-1) ways to write one token of m
// letters) at most 1 / least are gone on with after each token, whatever the vocabularies, so that psi is known of all
// tokens at once, by one forward of the drafter a level, and verification needs nothing of the drafter: psi is the q of
// infer/verify/rejection.c, its residual max(p - psi, 0), and nothing need be drawn again and again.
// Strings that begin with none of the target's tokens are left out and psi is taken of the rest, as in a vocabulary
// that is cut to the intersection.
//
// The paper does without psi of all tokens: it asks for psi of the drafted one, and on a rejection draws t from p until
// one is kept, with probability max(0, 1 - psi(t) / p(t)), each with a psi of its own. Such a psi is a sum over the
// ways to write t, with a forward for each of their beginnings, of tokens that nobody can foresee; the few strings gone
// on with here serve all of them. What all tokens cost beside that is a walk through both vocabularies at once: behind
// a string only tokens count that lead on into the target's; the others leave F as it is, and their sum is what is left
// of 1. tests/infer/test_string_law.c prints its time with real vocabularies: about that of the exponentials of q.
//
// With n-grams (ngrams.h) F is another: the target's token of the longest list in the cache that the tokens written
// begin with, of a list of one the token that both have; writing ends where no longer list begins so. What is written
// is then told token by token, not byte by byte, and few strings go on.
//
// Usage, for each token of the target:
//   pl_string_law_begin(l, psi)                          state 0: nothing written
//   for all states, in order: pl_string_law_take(l, state, q)   q [vd]: what is written behind it; adds states
//   pl_string_law_end(l): psi sums to 1; false: no string begins with a token
#ifndef PL_STRING_LAW_H
#define PL_STRING_LAW_H

#include "infer/drafter/ngrams.h"

typedef struct pl_string_state {
    double        w; // probability of what was written
    int           parent, depth;
    int32_t       token; // the last one
    pl_lexicon_at at;    // what was written, in the target's vocabulary; with n-grams `longest` alone
    int32_t       gram;  // the same as a node of the cache
} pl_string_state;

typedef struct pl_string_law {
    const pl_lexicon *target, *draft;
    int64_t           vt, vd;                // psi's and q's entries
    int32_t           end_target, end_draft; // tokens that end an answer, -1: none
    int               cap;
    double            least;
    pl_lexicon_at    *alone; // [vd] each draft token by itself
    int32_t          *odd;   // [n_odd] draft tokens that stand for nothing, or for the bytes of another
    int               n_odd;
    const pl_ngrams  *grams;     // NULL: all strings
    const int32_t    *to_target; // [vd] with n-grams: the token that both have, -1: none
    // Of the token in hand.
    double           *psi; // [vt]; borrowed
    pl_string_state  *state;
    int               n, most; // cap / least at most
} pl_string_law;

// Tokens beyond vt and vd do not count. 1 <= cap, 0 < least <= 1.
pl_status pl_string_law_init(pl_string_law *l, const pl_lexicon *target, int64_t vt, const pl_lexicon *draft,
                             int64_t vd, int cap, double least, pl_err *err);
// The law of what the cache makes of the drafter's tokens; both are borrowed.
void      pl_string_law_use(pl_string_law *l, const pl_ngrams *grams, const int32_t *to_target);
void      pl_string_law_fini(pl_string_law *l); // zeroed is fine
// States of one depth at most.
int       pl_string_law_level(const pl_string_law *l);
void      pl_string_law_begin(pl_string_law *l, double *psi);
void      pl_string_law_take(pl_string_law *l, int state, const double *q);
// Instead of taking it: writing ends at this state, as it may wherever that depends on what was written alone.
void      pl_string_law_stop(pl_string_law *l, int state);
bool      pl_string_law_end(pl_string_law *l);

#endif
