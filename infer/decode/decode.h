// The decode loop: draft, verify, commit, for one session or many.
//
// A forward takes rows; a row belongs to a session. One prompt with a draft tree, sixty-four prompts with chains, a
// prefill chunk beside decoding rows: all are rows of one target forward. Plain decoding is the same loop with trees
// that are only a root. A row's bits never depend on the other rows (kernels/op/linear.h, attention.h), so a session's
// tokens depend neither on the batch nor on the number of threads, and with verifier match not on the drafter.
//
// One step:  rows (the tree of each decoding session, root included, then prompt chunks)  ->  target forward  ->
//            verify  ->  commit (cache rows moved into place, tokens appended, stop tokens)  ->  the drafter takes in
//            the final rows and grows the next trees.
#ifndef PL_DECODE_H
#define PL_DECODE_H

#include "infer/drafter/drafter.h"
#include "infer/model/llama.h"
#include "infer/model/target.h"
#include "infer/tree/best.h"
#include "infer/verify/verify.h"

typedef struct pl_engine  pl_engine;
typedef struct pl_session pl_session;

typedef struct pl_engine_options {
    int                max_sessions; // sequences in flight
    int                max_rows;     // rows of one target forward; prompts go in chunks of what is left
    int                chunk;        // prompts fill a step up to so many rows, and get a quarter of them if there is
                                     // room; 0: max_rows
    int                max_len;      // positions of a session, prompt included; 0: the target's
    const pl_verifier *verifier;     // NULL: pl_verify_match; one that draws children needs a tree of fixed shape
    // Capture of the target's features for datasets: the taps (see pl_llama_forward); 0: none. The drafter's own taps
    // come on top.
    int                n_taps, tap[PL_MAX_TAPS];
    bool               all_logits; // the head runs over every row, also of prompts (datasets store each row's argmax)
    int                max_logits; // most rows of a step that have logits, at least a tree for each session (0: that);
                                   // prompts of sessions with prompt_logits get those that trees leave
    // A diagnostic: copies logits from a device to the host for final rows, to compare devices row by row. Decoding
    // itself copies them only if verdicts need distributions (infer/decode/verification.h).
    bool               see_logits;
    // Devices only: room for a step's logits on the host, 4 V bytes for each row with logits. Sessions with
    // prompt_logits or with processors that a device lacks (pl_sampling_on_host) need it; steps without such a session
    // copy nothing.
    bool               host_logits;
    // A session that ends leaves its keys and values, and the drafter's, in its slot, and a new one continues from the
    // prefix that its prompt shares with them. Texts do not depend on it; on_final does not get the rows of the prefix.
    // Not with `caches`, lent or borrowed. A target with recurrent layers continues from all of a slot's text or from
    // the state that reading its prompt saved. Rows that a drafter's windows no longer hold and the next ones see are
    // read again.
    bool               keep_prefixes;
    // NULL, or an engine of as many sessions and positions whose caches of the target are borrowed. It must outlive
    // this one, and their steps alternate. A target with recurrent layers gets caches of its own.
    pl_engine         *caches;
} pl_engine_options;

// Rows of one session that became final in a step: positions first..first+count-1. Everything is borrowed until the
// callback returns.
typedef struct pl_final_rows {
    pl_session    *session;
    int32_t        first, count;
    const int32_t *row;        // [count] row in the tensors below
    pl_tensor      features;   // [rows, n_taps * d] rounded to bf16, options' taps; .data NULL when none
    pl_tensor      hidden;     // [rows, d] after the final norm
    const float   *logits;     // [rows with logits, V]; NULL if the step's logits are not on the host
    const int32_t *logits_row; // [rows] row of logits, -1: none
    const int32_t *argmax;     // [rows with logits] valid for greedy sessions, or with all_logits
} pl_final_rows;
typedef void (*pl_final_fn)(void *arg, const pl_final_rows *rows);

// The outcome of one session's draft, passed before the next draft. Borrowed until the callback returns.
typedef struct pl_cycle {
    const pl_session *session; // emitted tokens are appended already; statistics' seconds are those of earlier cycles
    const pl_tree    *tree;    // what was verified, the root included
    const pl_verdict *verdict;
    int32_t           emitted; // at most verdict->n + 1: a stop token or a limit ends the answer inside the block
} pl_cycle;
typedef void (*pl_cycle_fn)(void *arg, const pl_cycle *cycle);

typedef struct pl_session_options {
    pl_sampling sampling;
    uint64_t    key; // distinguishes sessions of one seed
    int         max_new;
    // The session decodes plainly: it gets no drafts, and the drafter neither takes in its rows nor learns its answer.
    bool        plain;
    int         draft_depth; // most levels of its drafts; 0: as many as the tree has
    // All rows of the prompt have logits on the host, for pl_engine_on_final; no prefix is reused. A step reads as many
    // rows of the prompt as may have logits (max_logits). On a device the engine needs host_logits.
    bool        prompt_logits;
    int         n_stop;
    int32_t     stop[PL_MAX_STOP];
} pl_session_options;

typedef enum pl_finish { PL_RUNNING, PL_STOPPED, PL_LENGTH, PL_CONTEXT } pl_finish;
const char *pl_finish_name(pl_finish f); // "running", "stop", "length", "context"

// Seconds of a session by part: the target's forward, verdict and commit, and drafting.
typedef struct pl_step_parts {
    double         target, verify;
    pl_draft_parts draft;
} pl_step_parts;

// A session's statistics. Prefill's time and its token are left out of steps, seconds and emitted.
typedef struct pl_session_stats {
    int64_t       emitted, steps, drafted, accepted;
    // By depth - 1: steps that drafted to this depth, that accepted all nodes above it, and that accepted it.
    int64_t       position_drafted[PL_TREE_MAX], position_reached[PL_TREE_MAX], position_accepted[PL_TREE_MAX];
    // At the node of depth l of the accepted path: children offered at rank r, and how often that one was accepted.
    int64_t       rank_offered[PL_SHAPE_LEVELS][PL_SHAPE_RANKS], rank_accepted[PL_SHAPE_LEVELS][PL_SHAPE_RANKS];
    double        seconds, prefill_seconds;
    pl_step_parts parts; // of `seconds`: those of a step count for each of its sessions, as the step's seconds do
} pl_session_stats;

// Borrows target, drafter (may be NULL) and pool; they outlive the engine.
pl_status pl_engine_create(pl_engine **out, const pl_backend *be, pl_pool *pool, const pl_llama *target,
                           pl_drafter *drafter, const pl_engine_options *o, pl_err *err);
void      pl_engine_destroy(pl_engine *e);
void      pl_engine_on_final(pl_engine *e, pl_final_fn fn, void *arg); // NULL: no callback, the default
void      pl_engine_on_cycle(pl_engine *e, pl_cycle_fn fn, void *arg); // the same

// Starts a session in a free slot. The prompt has at least one token, all below the vocabulary, and fits. With
// keep_prefixes it takes the slot that shares the longest prefix, if that is at least half of the slot's tokens (else
// they are another conversation's), otherwise the slot that ended longest ago.
pl_status   pl_engine_start(pl_engine *e, const int32_t *prompt, int n, const pl_session_options *o, pl_session **out,
                            pl_err *err);
pl_session *pl_engine_session(pl_engine *e, int slot); // NULL when the slot is free
int         pl_engine_free_slots(const pl_engine *e);
// Frees the slot, between any two steps: the session may be reading its prompt, decoding or finished.
void        pl_engine_end(pl_engine *e, pl_session *s);
// One step for all running sessions. Sessions that finish stay in their slots until ended.
pl_status   pl_engine_step(pl_engine *e, pl_err *err);
// Writes the tree in use: the requested one, or if it adapts the current shape ("chain:4"; "none": plain decoding is
// faster). text: PL_TREE_TEXT bytes hold any.
void        pl_engine_tree(const pl_engine *e, char *text, size_t size);

// ---- a session, until it is ended; what is pointed to is its own ----

const int32_t *pl_session_tokens(const pl_session *s); // prompt, then what was emitted (the stop token included)
int32_t        pl_session_length(const pl_session *s); // how many, both together
int32_t        pl_session_prompt(const pl_session *s); // how many of the prompt
int32_t        pl_session_reused(const pl_session *s); // how many of these were not read: a kept prefix has them
// Returns the generated tokens without the stop token.
const int32_t *pl_session_answer(const pl_session *s, int32_t *n);
bool           pl_session_reading(const pl_session *s); // a part of its prompt is still to be read
pl_finish      pl_session_finish(const pl_session *s);
// Truncates a decoding session to n tokens and keeps its last token in the last place, to measure many steps at one
// length. n is above the prompt's length. Recurrent layers keep the state of the longer text, and a drafter's windows
// may lack keys.
void           pl_session_rewind(pl_session *s, int32_t n);
uint64_t       pl_session_key(const pl_session *s);
const pl_session_stats *pl_session_statistics(const pl_session *s);

static inline void pl_step_parts_add(pl_step_parts *to, const pl_step_parts *p) {
    to->target += p->target;
    to->verify += p->verify;
    to->draft.take_in += p->draft.take_in;
    to->draft.layer += p->draft.layer;
    to->draft.head += p->draft.head;
    to->draft.router += p->draft.router;
    to->draft.draw += p->draft.draw;
}

#endif
