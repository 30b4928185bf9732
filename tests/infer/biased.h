// Verifiers that are wrong in ways that decoders have been wrong: controls, which the tests of losslessness must tell
// from right ones.
#ifndef PL_TEST_INFER_BIASED_H
#define PL_TEST_INFER_BIASED_H

#include "infer/verify/verify.h"

// Draws from p, and where the token was not drafted draws anew instead of emitting it.
extern const pl_verifier test_biased_fresh;
// After a rejection draws from the target's distribution, not from the residual.
extern const pl_verifier test_biased_no_residual;
// Tests k draws with replacement in turn, merging repeats as if they were one.
extern const pl_verifier test_biased_merged;
// After a draw that fell on none of the target's tokens draws from the target's distribution, not from the residual.
extern const pl_verifier test_biased_no_miss;
// The residual is taken of another q than the one drawn from: test_biased_q, of the untrimmed vocabulary.
extern const pl_verifier test_biased_untrimmed;
extern const double     *test_biased_q;

#endif
