// A dataset from the target's hidden states, computed by another program: a folder of safetensors files as vLLM's
// extractor (speculative method extract_hidden_states) writes them, one for each sequence:
//
//   hidden_states  [n, layers, d]  F32, F16 or BF16: the residual stream at the inputs of data.hidden_states.layers, in
//                                  that order; the number of the target's layers denotes the last layer's
//                                  output, before the final norm, and must be among them
//   token_ids      [n]             I64 or I32
//   loss_mask      [n]             optional, of any type of number: not 0 if the token belongs to an answer
//
// Features are copied, the last hidden gets the target's final norm, argmax its head. Files come in the order of their
// names; files of fewer than two tokens, without an answer or longer than the target's context are skipped and counted.
//
// The recipe's list of layers is verified: the target computes the beginning of the first file itself, and a layer that
// differs is refused, with the layer that matches. Of a target that is not computed here (pl_hf_config.foreign) its
// first choices are compared with the answers' tokens instead: fewer than one in ten is refused.
#ifndef PL_HIDDEN_STATES_H
#define PL_HIDDEN_STATES_H

#include "data/dataset/dataset.h"
#include "infer/generate/generate.h"

// Tokens of answers: by loss_mask; all; those after each begin mark, up to and including the next end mark.
enum { PL_ANSWERS_MASK, PL_ANSWERS_ALL, PL_ANSWERS_BETWEEN };

// Checks the keys without reading files.
pl_status pl_hidden_states_check(const pl_recipe *r, pl_err *err);
// Hashes the names and sizes of the files.
pl_status pl_hidden_states_hash(uint64_t *h, const pl_recipe *r, pl_err *err);
// Appends the documents of all files but the first pl_dataset_writer_docs(w). taps: the layers to store.
pl_status pl_hidden_states_write(pl_dataset_writer *w, const pl_recipe *r, const pl_llama *target,
                                 const pl_tokenizer *tok, const pl_taps *taps, const pl_env *env, pl_err *err);

#endif
