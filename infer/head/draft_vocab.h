// Draft vocabularies: a head whose rows stand for some of the target's tokens. draft id i stands for target id d2t[i].
//
// In memory d2t holds absolute target ids. In a checkpoint it is the pair that published EAGLE-3 heads have: "d2t"
// int64 [Vd], the offset to add, target id = i + d2t[i], and "t2d" bool [V], whether a target id is drafted at all.
// Rows lie in the order of the list they come from, most frequent first, so that a prefix of the rows is a smaller
// vocabulary of the same kind.
#ifndef PL_DRAFT_VOCAB_H
#define PL_DRAFT_VOCAB_H

#include "checkpoints/weights.h"

// The first `size` ids of a list that `paceline vocab --list` wrote (0: as many as it says, or all); *n of them, fewer
// where the list is shorter. *d2t is the caller's. tokenizer: fingerprint that the list must have been counted with,
// NULL: not known. Refused with one line: a list of another vocabulary, an empty one.
pl_status pl_draft_vocab_from_list(int32_t **d2t, int64_t *n, const char *path, int64_t size, int64_t vocab,
                                   const char *tokenizer, pl_err *err);

// Entry i of a d2t as it is stored, in PL_I64 or PL_I32, at any address; of any other type 0.
int64_t   pl_draft_vocab_entry(const void *data, pl_dtype t, int64_t i);
// How many rows at the end draft the token of their own number: what is left of a map that was written over zeros, or
// all rows of one that never was. A few may do so by chance, which is 0.
int64_t   pl_draft_vocab_unfilled(const int32_t *d2t, int64_t n);
// d2t [n] of a checkpoint: present, in range, no id twice, and t2d, where it is there, marks the same ids.
pl_status pl_draft_vocab_read(int32_t **d2t, const pl_weight_source *src, int64_t n, int64_t vocab, pl_err *err);

// The two tensors to write beside a head. Ends with pl_draft_vocab_tensors_fini.
typedef struct pl_draft_vocab_tensors {
    pl_st_source tensor[2];
    int64_t     *d2t;
    uint8_t     *t2d;
} pl_draft_vocab_tensors;
pl_status pl_draft_vocab_tensors_init(pl_draft_vocab_tensors *t, const int32_t *d2t, int64_t n, int64_t vocab,
                                      pl_err *err);
void      pl_draft_vocab_tensors_fini(pl_draft_vocab_tensors *t);

#endif
