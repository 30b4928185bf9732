// Texts that a model goes on with while it is trained: what it then learns from is its own.
//
// A continuation is a function of the weights as they stand, the sampling and the text's key alone: how many are
// written at once, on how many threads or ranks, does not matter (infer/decode/decode.h). So those of a run that goes
// on are those of one that was not stopped.
#ifndef PL_TRAIN_CONTINUATION_H
#define PL_TRAIN_CONTINUATION_H

#include "infer/decode/decode.h"

typedef struct pl_continuation {
    int32_t *ids;       // the prompt, then what is written; room for prompt + max_new
    int32_t  n, prompt; // tokens; of them those of the prompt, at least 1
    int32_t  max_new;   // at least 1; a stop token, which is written too, ends it before
    uint64_t key;       // of its draws; none twice in one call
} pl_continuation;

// The engine has no session, and its sessions have room for every text. o: sampling and stop tokens of all of them.
pl_status pl_continue(pl_engine *e, pl_continuation *text, int n, const pl_session_options *o, pl_err *err);

#endif
