// A language model that drafts for another one: any supported target, with its own cache for every session.
//
// A session's context is a list of the model's own tokens. Cached rows that match it are kept, including drafted rows
// that became context (attention depends on positions alone, kernels/op/attention.h, so their bits are those of a fresh
// read); the rest is read. After the context a tree of drafted rows grows, level by level:
//
//   pl_draft_model_context(m, slot, ids, n, true)     for each session that drafts   -> a row of logits each
//   pl_draft_model_run(m)
//   pl_draft_model_row(m, slot, token, parent)        nodes to expand, any session's -> a row of logits each
//   pl_draft_model_run(m) ...
//
// The model runs its own steps between the target's and reads nothing of the target's forward.
//
// Callers that need only the best tokens use pl_draft_model_results: the ops of draft heads choose them on the device,
// which then returns k ids a row instead of V logits.
#ifndef PL_DRAFT_MODEL_H
#define PL_DRAFT_MODEL_H

#include "infer/drafter/drafter.h"
#include "infer/head/stopping.h"
#include "infer/model/kv.h"
#include "infer/model/target.h"

typedef struct pl_draft_row {
    int32_t slot, token, pos, n_ctx, n_path, place; // place: cache position of its own key and value
    int32_t drafted;                                // index among its session's drafted rows, -1: a context row
    bool    wanted;                                 // its logits are requested
} pl_draft_row;

typedef struct pl_draft_context pl_draft_context;

// Results for each row with requested logits, in the order of the calls; host memory, valid until the next run.
typedef struct pl_draft_best {
    const int32_t *id;     // [rows, k] best first, ties by id; -1: none is left
    const float   *value;  // [rows, k] their logits
    const float   *lse;    // [rows] log-sum-exp over the tokens that may be chosen; NULL: not scored
    const float   *logits; // [rows, V] if requested, else NULL
    const float   *sure;   // [rows] logits of the predicted acceptance (pl_draft_model_stops); NULL: there is none
} pl_draft_best;

typedef struct pl_draft_model {
    pl_target         target;                      // the model that drafts, with its tokenizer where it has one
    int               positions;                   // longest context
    int               drafted;                     // most rows after it
    int               sessions, most, most_wanted; // most rows of a forward, and of those with logits
    double            cache_bytes;                 // of all sessions
    pl_ctx            ctx;
    pl_draft_context *context; // [sessions]
    pl_draft_row     *row;     // [most] queued rows
    int               n, n_wanted;
    pl_draft_row     *early; // [most] rows of a context that needs more than one forward
    int               k;     // number of best tokens chosen per row; 0: none
    bool              scored;
    pl_tensor         barred; // [V] -infinity for tokens that may not be chosen, else 0; .data NULL: all may be
    pl_head           stops;  // its prediction of acceptance, if drafts end by it
    pl_params         stops_weights;
} pl_draft_model;

// path: as for pl_target_open. slots: positions of a session's context, capped at the model's own limit. per_level:
// most rows of a session in one run; drafted: most rows of a whole draft.
pl_status pl_draft_model_open(pl_draft_model *m, const char *path, const char *tokenizer, int slots, int per_level,
                              int drafted, const pl_drafter_options *o, pl_err *err);
// Prepares the choice of pl_draft_model_results before the first run: the k best of the n tokens in `only` or (NULL) of
// the first n, with their log-sum-exp if scored.
pl_status pl_draft_model_chooses(pl_draft_model *m, int k, bool scored, const int32_t *only, int64_t n, pl_err *err);
// Call before pl_draft_model_chooses: the results then have the model's prediction of acceptance, if its folder has one
// and drafts end by it (m->stops).
pl_status pl_draft_model_stops(pl_draft_model *m, pl_dtype t, pl_err *err);
void      pl_draft_model_close(pl_draft_model *m);
void      pl_draft_model_reset(pl_draft_model *m, int slot); // prepares the slot for another session

// Sets the session's context to ids[0..n), n > 0; drafted rows that are not part of it are dropped. wanted: the next
// run returns its last row's logits. May run a forward, which invalidates earlier logits. Returns false, with nothing
// added, if it does not fit, holds a token that the model lacks, or the step has failed.
bool         pl_draft_model_context(pl_draft_model *m, int slot, const int32_t *ids, int n, bool wanted);
// Adds a drafted row after `parent` (a drafted row's number, -1: the context). Returns its number; -1: it does not fit.
int          pl_draft_model_row(pl_draft_model *m, int slot, int32_t token, int parent);
// Runs the queued rows. Returns logits [rows wanted, V] in the order of the calls, in host memory until the next run;
// NULL: none were requested, or the step failed (see pl_draft_model_check).
const float *pl_draft_model_run(pl_draft_model *m);
// Runs the queued rows and returns the best tokens, or logits, or both. False: no rows were requested, or the step
// failed.
bool         pl_draft_model_results(pl_draft_model *m, bool best, bool logits, pl_draft_best *out);
// Passes a failure on to the caller's context.
void         pl_draft_model_check(pl_draft_model *m, pl_ctx *ctx);
// Returns the bytes that one row reads, with half the positions cached.
double       pl_draft_model_bytes(const pl_draft_model *m);

#endif
