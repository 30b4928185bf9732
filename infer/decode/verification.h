// The verdicts of a decode step: what a verifier is given of the target, and where that comes from.
//   greedy    the argmax of each row (topk), on any backend;
//   drawn     on a device, for verifiers that match: the op draw makes the target's own token of every node beside the
//             logits, and ids are all that comes to the host;
//   on the host   else: the distribution of a node is made when a walk comes to it. On a device that takes the step's
//             logits, 4 V bytes a row, so verifiers that couple (rejection, recursive, kseq, block, transport) and
//             typical acceptance are slower there by their way over the bus, as are drafters that draw their children.
// Drawn and on the host are the same draws, by the same uniform numbers of (seed, position), from the same
// distribution; they differ where its rounding does (kernels/op/draw.h).
#ifndef PL_VERIFICATION_H
#define PL_VERIFICATION_H

#include "infer/decode/decode.h"

typedef struct pl_verification {
    const pl_verifier *verifier;
    int64_t            v;
    bool               draws;    // on the device, where not greedy
    int                sessions; // at most
    // The step's, in shared memory, and how many.
    pl_draw_row       *draw;
    int32_t           *drawn; // [n_draws]
    int                n_draws;
    uint32_t          *said; // [sessions][pl_said_words(v)] the ids of each session's text, by slot
} pl_verification;

// What one session's verdict is about: its tree, whose root stands at a position of its text.
typedef struct pl_verified {
    pl_session *s;
    int64_t     position;
    int         row;  // of the root among the step's rows of logits; the nodes follow
    int         draw; // of the root, likewise; -1: not drawn
} pl_verified;

// drafted: whether there will be trees at all. Without one every lossless verifier only matches.
void pl_verification_init(pl_verification *j, const pl_verifier *verifier, bool drafted, int64_t v, int sessions,
                          bool on_device);
// Takes its arrays, of `rows` draws at most (measured, then for good).
void pl_verification_take(pl_verification *j, pl_arena *shared, int rows);

// Whether a session needs the argmax of its rows, and nothing else.
bool pl_verification_greedy(const pl_session *s);
void pl_verification_begin(pl_verification *j);                // a step
void pl_verification_ask(pl_verification *j, pl_verified *of); // fills of->draw
void pl_verification_draw(const pl_verification *j, pl_ctx *ctx, pl_tensor logits,
                          int n); // n: pl_verification.n_draws, or to measure
// logits: the step's, on the host, or NULL where nothing here asks for them; argmax: likewise, where a session is
// greedy.
void pl_verification_verdict(const pl_verification *j, const pl_verified *of, const float *logits,
                             const int32_t *argmax, pl_verdict *out);

// Sets a session's text, and adds to it.
void pl_verification_text(pl_verification *j, const pl_session *s);
void pl_verification_said(pl_verification *j, const pl_session *s, int32_t token);

#endif
