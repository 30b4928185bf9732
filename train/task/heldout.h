// Bits per byte of held-out text, a measure that does not depend on the tokenizer.
//
//   bits per byte = sum of -log2 p(token | the tokens before it in its window) / bytes of text those tokens spell
// The windows are fixed: held-out documents cut into windows, of which an even selection of about `tokens` is taken.
#ifndef PL_TRAIN_HELDOUT_H
#define PL_TRAIN_HELDOUT_H

#include "data/dataset/tokens.h"
#include "data/tokenizer/tokenizer.h"
#include "train/task/lm.h"

typedef struct pl_heldout {
    const pl_tokens *tokens; // borrowed
    int64_t         *start;  // [n] first input of each window in the stream
    int32_t         *len;    // [n] inputs; the labels are one further
    int64_t          n, bytes, window;
} pl_heldout;

typedef struct pl_heldout_result {
    double  bits_per_byte, loss, accuracy; // loss: nats per token
    int64_t tokens, bytes;
} pl_heldout_result;

// Selects windows of at most `window` inputs. PL_E_INPUT if all documents are too short for one.
pl_status pl_heldout_init(pl_heldout *h, const pl_tokens *tokens, const pl_tokenizer *tok, int64_t window,
                          int64_t want_tokens, pl_err *err);
void      pl_heldout_fini(pl_heldout *h);
// Scores the windows; lm's capacity must be at least the window.
pl_status pl_heldout_score(const pl_heldout *h, pl_lm *lm, pl_heldout_result *out, pl_err *err);

#endif
