// The verdicts of a decode step. A verifier compares the drafts with the target's tokens or distributions, which are:
//   greedy    The argmax of each row (topk), on any backend; not of logits that are processed.
//   drawn     On a device, for verifiers that match: the op draw draws the target's token of every node next to the
//             logits, and only the ids are copied to the host.
//   on the host   Otherwise. The distribution of a node is computed when the verifier reaches the node. A device then
//             copies the step's logits to the host, 4 V bytes a row, which slows down verifiers that couple (rejection,
//             recursive, kseq, block, transport), typical acceptance, drafters that draw their children, and sessions
//             with logit_bias, presence or frequency penalty, which the op draw lacks.
// The last two make the same draws, by the same uniform numbers of (seed, position), from the same distribution; they
// differ only by its rounding (kernels/op/draw.h).
#ifndef PL_VERIFICATION_H
#define PL_VERIFICATION_H

#include "infer/decode/decode.h"

typedef struct pl_verification {
    const pl_verifier *verifier;
    int64_t            v;
    bool               draws;    // sessions draw on the device, unless greedy or pl_sampling_on_host
    int                sessions; // most sessions
    // The step's draws, in shared memory, and their number.
    pl_draw_row       *draw;
    int32_t           *drawn; // [n_draws]
    int                n_draws;
    uint32_t          *said; // [sessions][pl_said_words(v)] the ids of each session's text, by slot
} pl_verification;

// One session's tree to verify; its root is the token at `position` of the text.
typedef struct pl_verified {
    pl_session *s;
    int64_t     position;
    int         row;  // of the root among the step's rows of logits; the nodes follow
    int         draw; // of the root among the step's draws; the nodes follow; -1: not drawn
} pl_verified;

// drafted: a drafter is in use; without one every lossless verifier only matches.
void pl_verification_init(pl_verification *j, const pl_verifier *verifier, bool drafted, int64_t v, int sessions,
                          bool on_device);
// Allocates the arrays, for at most `rows` draws. Called to measure the arena, then to allocate.
void pl_verification_take(pl_verification *j, pl_arena *shared, int rows);

// True if a session's verdict needs only the argmax of its rows.
bool pl_verification_greedy(const pl_session *s);
// True if it needs the logits of its rows on the host.
bool pl_verification_on_host(const pl_verification *j, const pl_sampling *s);
void pl_verification_begin(pl_verification *j);                // begins a step, without draws
void pl_verification_ask(pl_verification *j, pl_verified *of); // adds a session's draws, fills of->draw
void pl_verification_draw(const pl_verification *j, pl_ctx *ctx, pl_tensor logits,
                          int n); // n: pl_verification.n_draws, or the most, to measure
// Writes the verdict. logits: the step's, on the host; NULL where no verdict of the step needs them. argmax: the
// step's, read for greedy sessions.
void pl_verification_verdict(const pl_verification *j, const pl_verified *of, const float *logits,
                             const int32_t *argmax, pl_verdict *out);

// Set a session's text in `said` from its tokens, and add one token to it.
void pl_verification_text(pl_verification *j, const pl_session *s);
void pl_verification_said(pl_verification *j, const pl_session *s, int32_t token);

#endif
