// Held-out acceptance measured by the decoder, compared with the estimate from the held-out documents.
//
// The trainer's estimate (train/task/unroll.h) rests on the data: tokens, masks and features as they were stored. The
// decoder serves the checkpoint's files together with the target itself. This module brings both to one number, so
// that a convention in which they differ shows during training. For a document whose answer begins at
// token a, with drafts of K tokens:
//
//   promised  the drafter runs over the document's own features; a cycle at L (first a + 1) accepts the k leading
//             drafts that equal the document's tokens from L on, and the next cycle begins at L + k + 1
//   decoded   the decoder answers the document's prompt, tree chain:K, verifier match; greedily where the document is
//             greedy, else drawn as the documents were
// A draft is accepted if it is the token that the target draws, so both numbers have the same distribution; for greedy
// documents the cycles are the same up to rounding.
//
//   length      sum of emitted tokens / cycles, over all texts; the last cycle of a text emits what is left
//   difference  D = length decoded - length promised. Of greedy documents up to where the texts part (two logits were
//               near), its standard error being that of a cycle in a hundred which rounding drafts otherwise; of drawn
//               ones the standard error is the jackknife's over documents (Efron and Tibshirani 1993, An Introduction
//               to the Bootstrap, chapter 11)
//   alarm       |D| > 4 standard errors + 0.02 lengths promised; or less than 0.9 of the tokens of greedy answers are
//               reproduced; or fewer than half as many answers are greedy as the data's settings imply
//
// If the recipe serves another form of prompt than the documents have (eval.chat.*), or at another temperature
// (eval.temperatures, the first), held-out prompts are decoded in that form as well, and best/ is chosen by that
// length. The alarm is raised if it falls behind the promise of the documents by the same bound, with the two standard
// errors added as independent.
#ifndef PL_DECODED_H
#define PL_DECODED_H

#include "data/text/prompts.h"
#include "infer/cli/env.h"
#include "infer/decode/runner.h"
#include "train/source/source.h"
#include "train/task/unroll.h"

// Sums over the cycles of one text or of several.
typedef struct pl_cycle_sums {
    double cycles, emitted;
    double whole;                   // cycles that the end of the text does not clip
    double accepted[PL_MAX_UNROLL]; // [k] of the whole cycles, those that accepted drafts 1 to k + 1
} pl_cycle_sums;

// Consecutive cycles.
typedef struct pl_cycle_list {
    int32_t *at, *accepted; // index of each cycle's first token; accepted drafts of each cycle
    int      n;
} pl_cycle_list;

typedef struct pl_decoded_text {
    int64_t       doc;       // number in the source; -1: a prompt alone
    int32_t      *ids;       // [n], owned
    int64_t       n, prompt; // end and begin of a document's first answer
    pl_cycle_list promised, decoded;
    int64_t       said, same; // tokens of the decoded answer; length of the prefix that equals the document's
} pl_decoded_text;

typedef struct pl_decoded {
    pl_decoded_text *text; // [n], owned
    int              n, steps;
    pl_sampling      sampling; // of the answers
    int              max_new;
    bool             few_greedy; // fewer greedy documents were found than the data's settings imply
} pl_decoded;

typedef struct pl_decoded_figures {
    pl_cycle_sums promised, decoded; // sums over all texts
    double        promised_length, decoded_length;
    double        error;      // standard error of decoded_length - promised_length; of decoded_length without documents
    double        reproduced; // share of greedy answers' tokens before the first difference; NAN: drawn
    bool          few_greedy, alarm;
} pl_decoded_figures;

// Collective, before training: fetches to rank 0 the documents of held (NULL: none) that evaluations read and other
// ranks have: the first documents, up to `rows` rows with at most `longest` counted of each, and those that
// pl_decoded_documents examines.
pl_status pl_decoded_fetch(pl_feature_source *held, int64_t rows, int64_t longest, int most, pl_err *err);
// Selects at most `most` of the held-out documents, evenly spread, of one sampling: greedy ones if `greedy` and there
// are any, else those that are not, else any. A document is greedy if all of its answer is the target's first choice.
// steps: K. capacity: rows of the unroll that runs them; longer documents are cut. n 0: none has an answer that fits.
pl_status pl_decoded_documents(pl_decoded *d, pl_feature_source *held, int most, bool greedy, int max_new, int steps,
                               int64_t capacity, pl_err *err);
// Selects at most `most` of these prompts, evenly spread. Prompts of more than `room` tokens are left out.
pl_status pl_decoded_prompts(pl_decoded *d, const pl_prompts *prompts, const pl_tokenizer *tok, int most,
                             const pl_sampling *sampling, int max_new, int steps, int64_t room, pl_err *err);
void      pl_decoded_fini(pl_decoded *d);

// Fills `promised`, running u with its current weights; overwrites its pack and clears it.
pl_status   pl_decoded_promise(pl_decoded *d, pl_unroll *u, pl_feature_source *held, pl_err *err);
// Fills decoded, said and same; drafter: a checkpoint's folder.
pl_status   pl_decoded_run(pl_decoded *d, const pl_env *env, const pl_target *target, const char *drafter, pl_err *err);
// Fills the figures; of prompts without documents only those of decoding, and no alarm.
void        pl_decoded_compare(const pl_decoded *d, pl_decoded_figures *f);
// Returns true if prompts decoded in the served form fall behind the documents' promise.
bool        pl_decoded_falls_behind(const pl_decoded *served, const pl_decoded *documents);
// Returns the likely cause of an alarm, for its message.
const char *pl_decoded_cause(const pl_decoded_figures *f, int steps);

#endif
