// A prediction of acceptance beside any head that drafts token after token, and drafts that end by it (SpecDec++, Huang
// et al. 2024, arXiv 2405.19715, section 3):
//
//   a(y) = sigmoid(w y + b)     y [d]: what the head reads; acceptance_head.weight [1, d], acceptance_head.bias [1]
//
// is the probability that a token drafted from y is accepted where the tokens before it are. Nothing is drafted from a
// node where the product of a along its path, itself included, is below 1 - max_rejection / 1000: where one of the
// tokens would be rejected with more than that probability. y depends on earlier tokens alone, so that verification
// stays lossless. The paper predicts from the state behind the token, by a residual network. Training:
// train/task/acceptance.h.
//
// A language model that drafts (infer/drafter/lm.c) has the two tensors in a file beside its own, with
// acceptance_head.max_rejection, int64 [1], where drafts end by it: other programs open its folder as a plain model.
#ifndef PL_STOPPING_H
#define PL_STOPPING_H

#include "infer/head/head.h"

// Refuses, with one line, settings that the head's kind has no use for.
pl_status pl_stopping_check(const pl_head *h, pl_err *err);
// Adds the weights of a head with `acceptance`.
void      pl_stopping_params(pl_head *h, pl_params *ps);
// Returns the logits of a [M, 1] of rows x [M, d].
pl_tensor pl_stopping_logits(pl_ctx *ctx, const pl_head *h, pl_tensor x);
// Returns the least product with which a draft continues; 0: drafts do not end by it.
double    pl_stopping_least(const pl_head *h);
// Sets kept[node] to the product along its path, from its logit z and its parent's (up < 0: the root, which has none).
// Returns true if nothing is drafted from the node.
bool      pl_stopping_ends(const pl_head *h, float *kept, int up, int node, float z);

#define PL_STOPPING_FILE "acceptance_head.safetensors"
// Opens the prediction of the model of width d in folder dir: h becomes a head that has nothing else, with acceptance
// false if there is no such file; ps its weights as t in `memory`, to be ended with pl_params_fini, also on failure.
pl_status pl_stopping_open(pl_head *h, pl_params *ps, const char *dir, int64_t d, pl_dtype t, const pl_memory *memory,
                           pl_err *err);
// Writes that file: data[i] is entry i of ps, which pl_stopping_params has filled.
pl_status pl_stopping_write(const pl_head *h, const pl_params *ps, const char *dir, const float *const *data,
                            pl_dtype t, pl_err *err);

#endif
