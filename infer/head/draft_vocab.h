// Draft vocabularies: a head whose rows stand for some of the target's tokens. Draft id i stands for target id d2t[i].
//
// In memory d2t holds absolute target ids. A checkpoint has the pair that published EAGLE-3 heads use: "d2t" int64
// [Vd], the offset to add, target id = i + d2t[i], and "t2d" bool [V], true for drafted target ids. Rows keep the order
// of the list that they come from, most frequent first, so that a prefix of the rows is a smaller vocabulary of the
// same kind.
#ifndef PL_DRAFT_VOCAB_H
#define PL_DRAFT_VOCAB_H

#include "checkpoints/weights.h"

typedef struct pl_draft_vocab_options {
    int64_t        size;      // ids; 0: as many as the list states, or all
    int64_t        vocab;     // of the target
    const char    *tokenizer; // fingerprint that the list must have been counted with; NULL: not known
    const int32_t *stop;      // [n_stop] the target's tokens that end an answer
    int            n_stop;
} pl_draft_vocab_options;

// Reads the first ids of a list that `paceline vocab --list` wrote; *n is smaller than a given size, with a warning, if
// the list is shorter. Each stop token is among them: one that is not there comes first, in place of the rarest id
// where the size is bounded, and a line of the log says so. *d2t becomes the caller's. Refuses a list of another
// vocabulary, an empty one, and a size that stop tokens alone exceed.
pl_status pl_draft_vocab_from_list(int32_t **d2t, int64_t *n, const char *path, const pl_draft_vocab_options *o,
                                   pl_err *err);

// Returns entry i of a stored d2t, PL_I64 or PL_I32 at any alignment; 0 for other types.
int64_t   pl_draft_vocab_entry(const void *data, pl_dtype t, int64_t i);
// Returns the number of last rows that map to their own number: the rest of a map that was written over zeros, or all
// rows of one that was never written. A few may do so by chance, which returns 0.
int64_t   pl_draft_vocab_unfilled(const int32_t *d2t, int64_t n);
// Reads and checks d2t [n] of a checkpoint: present, in range, no id twice, and t2d, if present, marks the same ids.
pl_status pl_draft_vocab_read(int32_t **d2t, const pl_weight_source *src, int64_t n, int64_t vocab, pl_err *err);

// The two tensors to write with a head. End with pl_draft_vocab_tensors_fini.
typedef struct pl_draft_vocab_tensors {
    pl_st_source tensor[2];
    int64_t     *d2t;
    uint8_t     *t2d;
} pl_draft_vocab_tensors;
pl_status pl_draft_vocab_tensors_init(pl_draft_vocab_tensors *t, const int32_t *d2t, int64_t n, int64_t vocab,
                                      pl_err *err);
void      pl_draft_vocab_tensors_fini(pl_draft_vocab_tensors *t);

#endif
