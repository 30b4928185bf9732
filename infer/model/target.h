// A target as opened by commands: weights in the dtype that suits the file, tokenizer, stop tokens.
#ifndef PL_TARGET_H
#define PL_TARGET_H

#include "data/tokenizer/tokenizer.h"
#include "infer/model/llama.h"

#define PL_MAX_STOP (PL_HF_EOS + 1) // stop tokens of a target, and of a session

typedef enum pl_weights { PL_WEIGHTS_AUTO, PL_WEIGHTS_BF16, PL_WEIGHTS_FP32 } pl_weights;

typedef struct pl_target {
    pl_llama      model;
    pl_dtype      dtype; // dtype of the matrices, PL_F32 or PL_BF16
    pl_tokenizer *tok;   // NULL: none, see pl_target_open
    int           n_stop;
    int32_t       stop[PL_MAX_STOP]; // pl_target_stops
} pl_target;

// path: a model directory or a llama2.c file. tokenizer: NULL takes the directory's own; a directory without one and a
// llama2.c file leave tok NULL. AUTO: bf16 if the file stores bf16 or is quantised, else
// fp32.
pl_status pl_target_open(pl_target *t, const char *path, const char *tokenizer, const char *pre, pl_weights weights,
                         const pl_backend *be, pl_err *err);
// Opens it over ranks: see pl_llama_open_over.
pl_status pl_target_open_over(pl_target *t, const char *path, const char *tokenizer, const char *pre,
                              pl_weights weights, const pl_backend *be, pl_comm *comm, pl_err *err);
void      pl_target_close(pl_target *t);

// Opens the tokenizer that belongs to a target, without the model; *out NULL with PL_OK if there is none.
pl_status   pl_target_tokenizer(pl_tokenizer **out, const char *path, const char *tokenizer, const char *pre,
                                pl_err *err);
// Sets the tokens that end its answers: the eos ids of config.json and generation_config.json within the vocabulary,
// and the EOS of the tokenizer's files, as in vLLM and SGLang (an EOS with a usual spelling counts if no id is named;
// tok may be NULL). Returns their number; logs a warning for a place that disagrees.
int         pl_target_stops(int32_t stop[PL_MAX_STOP], const pl_hf_config *c, const pl_tokenizer *tok);
// Returns a hash that distinguishes datasets and lists by their targets' stop tokens; 0: they are the config's ids.
uint64_t    pl_target_stops_hash(const pl_hf_config *c, const pl_tokenizer *tok);
// Returns PL_E_UNSUPPORTED if the backend cannot compute the target, PL_E_MEMORY if this rank's share (of `parts`) of
// its weights, held in t, and a quarter more for caches and a drafter exceed `room` bytes; one line gives the reason.
// Reads the config alone.
pl_status   pl_target_fits(const char *path, pl_dtype t, int parts, const pl_backend *be, double room, pl_err *err);
// Returns the dtype in which the target's file stores its matrices, PL_BF16 or (everything else) PL_F32.
pl_status   pl_target_stored(pl_dtype *out, const char *path, pl_err *err);
const char *pl_weights_name(pl_dtype t); // "bf16" or "fp32"

#endif
