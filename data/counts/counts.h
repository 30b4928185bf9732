// How often each token of a vocabulary occurs: what trimmed draft vocabularies are chosen by (FR-Spec: counted in a
// text corpus; VocabTrim: in the target's own answers; papers arXiv 2502.14856, 2506.22694).
//
// A vocabulary list is a JSON file
//   {"format":"paceline.vocab","version":1,"tokenizer":FINGERPRINT,"vocab_size":V,"corpus":TEXT,"documents":D,
//    "tokens":N,"size":K,"ids":[...],"counts":[...]}
// with ids by rank: count descending, then id ascending. Ids that never occurred are left out. "size", where it stands,
// is how many of the ids are drafted unless a recipe asks for another number (a choice like BCL's, below).
#ifndef PL_COUNTS_H
#define PL_COUNTS_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pl_counts {
    int64_t *count; // [vocab]; owned
    int32_t  vocab;
    int64_t  tokens, documents;
    int64_t  size;          // chosen number of ids, 0: none was chosen
    char     tokenizer[17]; // pl_tokenizer_fingerprint
    char    *corpus;        // where they were counted, in words; owned
} pl_counts;

pl_status pl_counts_init(pl_counts *c, int32_t vocab, const char *tokenizer, const char *corpus, pl_err *err);
void      pl_counts_fini(pl_counts *c); // a zeroed one is allowed
// One document. Ids lie within the vocabulary.
void      pl_counts_add(pl_counts *c, const int32_t *ids, int64_t n);
// A token that ended the document added last and is not among its ids.
void      pl_counts_end(pl_counts *c, int32_t id);
// All ids by rank into id[vocab]; returns how many of them occurred.
int32_t   pl_counts_rank(const pl_counts *c, int32_t *id);
// Share of c's tokens that id[0..k) hold: E[1(token in list)]. NaN without tokens.
double    pl_counts_coverage(const pl_counts *c, const int32_t *id, int64_t k);
// Ids by rank that hold at least `share` of c's tokens: how many; -1 when all of them do not.
int64_t   pl_counts_needed(const pl_counts *c, const int32_t *id, int64_t n, double share);

// The size of a draft vocabulary by coverage against latency (BCL, arXiv 2603.05210):
//   U(k) = alpha C(k) + (1 - alpha) R(k)    subject to C(k) >= min_coverage
//   C(k) = share of the tokens that the first k ids by rank hold; the paper counts the assistant's tokens
//   R(k) = 1 - T(k) / T(V) = head_share (1 - k / V)
// T(k): time of a draft step with k rows in its head, T(k) / T(V) = 1 - head_share + head_share k / V: a head is read
// once a step, so its time is proportional to its rows, in bytes as in the paper's FLOPs. head_share is the head's part
// of a step over the whole vocabulary, as measured (0.49 in FR-Spec's profile); 1 weighs the head alone. The paper
// searches U by a Parzen estimator; here all k are tried: C is concave in k, the maximum is exact and always the same.
// Of equal utilities the smaller k. The paper's constants are not known to us; ours are a recipe's defaults.
typedef struct pl_bcl {
    double alpha, min_coverage, head_share; // each in 0..1
} pl_bcl;
// *coverage and *utility (may be NULL): C and U of the chosen k. Refused: counts of nothing.
pl_status pl_counts_bcl(int64_t *k, const pl_counts *c, const pl_bcl *o, double *coverage, double *utility,
                        pl_err *err);

// True for the beginning of a list.
bool      pl_counts_is(const char *front, size_t n);
pl_status pl_counts_write(const pl_counts *c, const char *path, pl_err *err);
// Refuses, with one line, a file that is not such a list, repeats an id, is out of order or does not add up.
pl_status pl_counts_read(pl_counts *c, const char *path, pl_err *err);

#endif
