// A language model that drafts for another: any target of ours, with a cache of its own for every session.
//
// A session's context is a list of the model's own tokens. What the cache holds of it stays, rows that were drafted and
// became context included (attention depends on positions alone, kernels/op/attention.h: they have the bits that they
// would have anew); the rest is read. Behind the context a tree of drafted rows grows, level by level:
//
//   pl_draft_model_context(m, slot, ids, n, true)     for each session that drafts   -> a row of logits each
//   pl_draft_model_run(m)
//   pl_draft_model_row(m, slot, token, parent)        nodes to expand, any session's -> a row of logits each
//   pl_draft_model_run(m) ...
//
// The model computes in steps of its own, between the target's: it reads nothing of the target's forward.
//
// Who wants the best tokens alone asks for those (pl_draft_model_best): they are chosen where the logits are, by the
// ops that choose a draft head's, and a device hands over k ids a row instead of V logits.
#ifndef PL_DRAFT_MODEL_H
#define PL_DRAFT_MODEL_H

#include "infer/drafter/drafter.h"
#include "infer/model/kv.h"
#include "infer/model/target.h"

typedef struct pl_draft_row {
    int32_t slot, token, pos, n_ctx, n_path, place; // place: where in the cache its own key and value go
    int32_t drafted;                                // its number among its session's drafted rows, -1: of the context
    bool    wanted;                                 // its logits are
} pl_draft_row;

typedef struct pl_draft_context pl_draft_context;

// Of each row that was wanted, in the order of the calls; the host's until the next run.
typedef struct pl_draft_best {
    const int32_t *id;     // [rows, k] best first, equal ones by id; -1: none is left
    const float   *value;  // [rows, k] their logits
    const float   *lse;    // [rows] log-sum-exp over all that may be chosen; NULL: not scored
    const float   *logits; // [rows, V] where they were asked for too, else NULL
} pl_draft_best;

typedef struct pl_draft_model {
    pl_target         target;                      // the model that drafts, with its tokenizer where it has one
    int               positions;                   // of a context at most
    int               drafted;                     // rows behind it at most
    int               sessions, most, most_wanted; // rows of a forward, and of them with logits
    pl_ctx            ctx;
    pl_draft_context *context; // [sessions]
    pl_draft_row     *row;     // [most] to be run
    int               n, n_wanted;
    pl_draft_row     *early; // [most] of a context that is longer than what a forward takes
    int               k;     // the best that are chosen; 0: none are
    bool              scored;
    pl_tensor         barred; // [V] -infinity for tokens that are never chosen, else 0; .data NULL: all may be
} pl_draft_model;

// path: as pl_target_open takes it. slots: positions of a session's context at most; it is no more than the model has.
// per_level: rows of a session that one run expands at most; drafted: those of a whole draft.
pl_status pl_draft_model_open(pl_draft_model *m, const char *path, const char *tokenizer, int slots, int per_level,
                              int drafted, const pl_drafter_options *o, pl_err *err);
// Before the first run: the k best are going to be asked for, of the n tokens in `only` or (NULL) of the first n, with
// their log-sum-exp where scored.
pl_status pl_draft_model_chooses(pl_draft_model *m, int k, bool scored, const int32_t *only, int64_t n, pl_err *err);
void      pl_draft_model_close(pl_draft_model *m);
void      pl_draft_model_reset(pl_draft_model *m, int slot); // another session takes the slot

// The session's context becomes ids[0..n), n > 0; what was drafted behind the old one is gone, but for what is part of
// the new one. wanted: its last row's logits are, in the next run. May run a forward: logits in hand are gone. False:
// there is no place for it, it holds a token that the model lacks, or the step has failed; nothing was added.
bool         pl_draft_model_context(pl_draft_model *m, int slot, const int32_t *ids, int n, bool wanted);
// A drafted row behind `parent` (a drafted row's number, -1: the context). Returns its number; -1: there is no place.
int          pl_draft_model_row(pl_draft_model *m, int slot, int32_t token, int parent);
// Runs what was added. Logits [rows wanted, V] in the order of the calls, the host's until the next run; NULL: none
// were wanted, or the step failed (pl_draft_model_check tells).
const float *pl_draft_model_run(pl_draft_model *m);
// The same for the best, and for the logits beside them. False: none were wanted, or the step failed.
bool         pl_draft_model_best(pl_draft_model *m, bool logits, pl_draft_best *out);
// A failure goes to the caller's context.
void         pl_draft_model_check(pl_draft_model *m, pl_ctx *ctx);
// Bytes that one row reads, with half the positions cached.
double       pl_draft_model_bytes(const pl_draft_model *m);

#endif
