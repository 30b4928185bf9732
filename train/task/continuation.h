// Continuations that a model in training writes, to learn from its own text.
//
// A continuation is a pure function of the current weights, the sampling and the text's key: it does not depend on the
// batch, the threads or the ranks (infer/decode/decode.h). So a resumed run writes the same continuations as one that
// was not stopped.
#ifndef PL_TRAIN_CONTINUATION_H
#define PL_TRAIN_CONTINUATION_H

#include "infer/decode/decode.h"

typedef struct pl_continuation {
    int32_t *ids;       // the prompt, then the continuation; room for prompt + max_new
    int32_t  n, prompt; // all tokens; tokens of the prompt, at least 1
    int32_t  max_new;   // at least 1; a stop token, which is kept, ends the text earlier
    uint64_t key;       // of its draws; distinct within a call
} pl_continuation;

// Continues n texts. The engine must have no session, and room for every text. o: sampling and stop tokens of all
// texts.
pl_status pl_continue(pl_engine *e, pl_continuation *text, int n, const pl_session_options *o, pl_err *err);

#endif
