// Held-out acceptance as the decoder has it, beside what the held-out documents promise.
//
// The trainer's estimate (train/task/unroll.h) rests on the data: tokens, masks and features as they were stored. What
// will be served is the checkpoint's files, read by the decoder, beside the target itself. Both are brought to one
// number here, so that a convention in which they differ is seen while training. For a document whose answer begins at
// token a, with drafts of K tokens:
//
//   promised  the drafter runs over the document's own features; a cycle at L (first a + 1) accepts the leading drafts
//             that are the document's tokens from L on, k of them, and the next one begins at L + k + 1
//   decoded   the decoder answers the document's prompt, tree chain:K, verifier match; greedily where the document is
//             greedy, else drawn as the documents were
// A draft is accepted where it is the token that the target draws, so both follow one law; for greedy documents they
// are the same cycles up to rounding.
//
//   length      sum of emitted tokens / cycles, over all texts; the last cycle of a text emits what is left
//   difference  D = length decoded - length promised. Of greedy documents up to where the texts part (two logits were
//               near), its standard error being that of a cycle in a hundred which rounding drafts otherwise; of drawn
//               ones the standard error is the jackknife's over documents (Efron and Tibshirani 1993, An Introduction
//               to the Bootstrap, chapter 11)
//   alarm       |D| > 4 standard errors + 0.02 lengths promised; or less than 0.9 of greedy answers are said again; or
//               fewer than half as many answers are greedy as the data say were made
//
// Where the recipe serves another form of prompt than the documents have (eval.chat.*), or at another temperature
// (eval.temperatures, the first), held-out prompts are decoded in that form as well: that length is what best/ is
// chosen by. It raises the alarm where it falls behind what the documents promise by the same bound, the two standard
// errors added as independent.
#ifndef PL_DECODED_H
#define PL_DECODED_H

#include "data/text/prompts.h"
#include "infer/cli/env.h"
#include "infer/decode/runner.h"
#include "train/source/source.h"
#include "train/task/unroll.h"

// Cycles of one text, or of several added up.
typedef struct pl_cycle_sums {
    double cycles, emitted;
    double whole;                   // cycles that the text's end does not clip
    double accepted[PL_MAX_UNROLL]; // of those, how many accepted drafts 1 to k + 1
} pl_cycle_sums;

// Cycles one after the other.
typedef struct pl_cycle_list {
    int32_t *at, *accepted; // token that each begins at; drafts that it accepts
    int      n;
} pl_cycle_list;

typedef struct pl_decoded_text {
    int64_t       doc;       // its number in the source; -1: a prompt alone
    int32_t      *ids;       // [n], owned
    int64_t       n, prompt; // of a document: up to the end of its first answer, and where that begins
    pl_cycle_list promised, decoded;
    int64_t       said, same; // tokens of the decoded answer; how many of them, from the first on, are the document's
} pl_decoded_text;

typedef struct pl_decoded {
    pl_decoded_text *text; // [n], owned
    int              n, steps;
    pl_sampling      sampling; // of the answers
    int              max_new;
    bool             few_greedy; // of documents of which more say to be
} pl_decoded;

typedef struct pl_decoded_figures {
    pl_cycle_sums promised, decoded; // added up
    double        promised_length, decoded_length;
    double        error; // standard error of decoded_length - promised_length; of decoded_length without documents
    double reproduced;   // share of the greedy answers that the target says again, up to where they part; NAN: drawn
    bool   few_greedy, alarm;
} pl_decoded_figures;

// By all ranks, before training: rank 0 gets what evaluations will ask of held (NULL: nothing) and others have: the
// first documents, of `rows` rows where each counts `longest` at most, and those that pl_decoded_documents looks at.
pl_status pl_decoded_fetch(pl_feature_source *held, int64_t rows, int64_t longest, int most, pl_err *err);
// At most `most` of the held-out documents, evenly spread, of one sampling: greedy ones if `greedy` and there are any,
// else those that are not, else any. A document is greedy if all of its answer is the target's first choice. steps: K.
// capacity: rows of the unroll that will run them; longer documents are cut. n 0: none has an answer that fits.
pl_status pl_decoded_documents(pl_decoded *d, pl_feature_source *held, int most, bool greedy, int max_new, int steps,
                               int64_t capacity, pl_err *err);
// At most `most` of these prompts, evenly spread. room: tokens of a prompt at most; longer ones are left out.
pl_status pl_decoded_prompts(pl_decoded *d, const pl_prompts *prompts, const pl_tokenizer *tok, int most,
                             const pl_sampling *sampling, int max_new, int steps, int64_t room, pl_err *err);
void      pl_decoded_fini(pl_decoded *d);

// Fills `promised`: u with the drafter's weights as they are; its pack is used and left cleared.
pl_status   pl_decoded_promise(pl_decoded *d, pl_unroll *u, pl_feature_source *held, pl_err *err);
// Fills decoded, said and same; drafter: a checkpoint's folder.
pl_status   pl_decoded_run(pl_decoded *d, const pl_env *env, const pl_target *target, const char *drafter, pl_err *err);
// Of documents: all. Of prompts alone: what was decoded, and no alarm.
void        pl_decoded_compare(const pl_decoded *d, pl_decoded_figures *f);
// Whether prompts decoded in the served form fall behind the documents' promise.
bool        pl_decoded_falls_behind(const pl_decoded *served, const pl_decoded *documents);
// What the figures of documents hint at, for the alarm's line.
const char *pl_decoded_cause(const pl_decoded_figures *f, int steps);

#endif
