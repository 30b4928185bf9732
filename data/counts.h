// How often each token of a vocabulary occurs: what trimmed draft vocabularies are chosen by (FR-Spec: counted in a
// text corpus; VocabTrim: in the target's own answers; papers arXiv 2502.14856, 2506.22694).
//
// A vocabulary list is a JSON file
//   {"format":"paceline.vocab","version":1,"tokenizer":FINGERPRINT,"vocab_size":V,"corpus":TEXT,"documents":D,
//    "tokens":N,"ids":[...],"counts":[...]}
// with ids by rank: count descending, then id ascending. Ids that never occurred are left out.
#ifndef PL_COUNTS_H
#define PL_COUNTS_H

#include "kernels/base/status.h"
#include <stdint.h>

typedef struct pl_counts {
    int64_t *count; // [vocab]; owned
    int32_t  vocab;
    int64_t  tokens, documents;
    char     tokenizer[17]; // pl_tokenizer_fingerprint
    char    *corpus;        // where they were counted, in words; owned
} pl_counts;

pl_status pl_counts_init(pl_counts *c, int32_t vocab, const char *tokenizer, const char *corpus, pl_err *err);
void      pl_counts_fini(pl_counts *c); // a zeroed one is allowed
// One document. Ids lie within the vocabulary.
void      pl_counts_add(pl_counts *c, const int32_t *ids, int64_t n);
// All ids by rank into id[vocab]; returns how many of them occurred.
int32_t   pl_counts_rank(const pl_counts *c, int32_t *id);
// Share of c's tokens that id[0..k) hold: E[1(token in list)]. NaN without tokens.
double    pl_counts_coverage(const pl_counts *c, const int32_t *id, int64_t k);
// Ids by rank that hold at least `share` of c's tokens: how many; -1 when all of them do not.
int64_t   pl_counts_needed(const pl_counts *c, const int32_t *id, int64_t n, double share);

pl_status pl_counts_write(const pl_counts *c, const char *path, pl_err *err);
// Refuses, with one line, a file that is not such a list, repeats an id, is out of order or does not add up.
pl_status pl_counts_read(pl_counts *c, const char *path, pl_err *err);

#endif
