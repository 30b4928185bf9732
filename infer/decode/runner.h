// Decodes one text at a time: a target, perhaps a drafter, and an engine with one session. `decode`, evaluation,
// benches and users of the library run it.
#ifndef PL_RUNNER_H
#define PL_RUNNER_H

#include "infer/decode/decode.h"
#include "infer/model/target.h"
#include "kernels/base/json.h"
#include <math.h>

typedef struct pl_runner {
    const pl_target *target;  // borrowed
    pl_drafter      *drafter; // NULL: plain decoding
    pl_engine       *engine;
    pl_session      *session; // of the last run; NULL before
    int              max_len; // positions: prompt and answer
} pl_runner;

typedef struct pl_runner_options {
    const char        *drafter;  // for pl_drafter_open, NULL: plain decoding; weights have the target's dtype
    const char        *tree;     // NULL: the drafter's own, auto for checkpoints
    const pl_verifier *verifier; // NULL: pl_verify_match
    pl_draft_watch    *watch;    // observes the drafter; NULL: none
    int                max_len;  // positions; 0 or more than the target's: the target's
    int                sessions; // of the engine, for callers that step it themselves (infer/eval/batch.h); 0: one
    bool               see_logits, host_logits, keep_prefixes; // the engine's
} pl_runner_options;

// Returns `tree`; "chain:auto" where it is NULL or "" and the verifier takes chains alone.
const char *pl_runner_tree(const char *tree, const pl_verifier *v);
// Opens the drafter and creates the engine; target and pool must outlive the runner.
pl_status   pl_runner_open(pl_runner *r, const pl_backend *be, pl_pool *pool, const pl_target *target,
                           const pl_runner_options *o, pl_err *err);
void        pl_runner_close(pl_runner *r);

// Receives each token of the answer, without stop tokens; false ends the text.
typedef bool (*pl_token_fn)(void *arg, int32_t token);

// Continues the prompt by at most max_new tokens; fn may be NULL. r->session holds the answer and its statistics until
// the next run.
pl_status pl_runner_run(pl_runner *r, const int32_t *prompt, int64_t n, const pl_sampling *sampling, int max_new,
                        pl_token_fn fn, void *arg, pl_err *err);

// Both end the last run's session (r->session becomes NULL), so that a drafter that keeps tokens beyond a session has
// the last answer too. Save writes them to the drafter's file; forget restores the drafter's state at opening.
pl_status pl_runner_save(pl_runner *r, pl_err *err);
pl_status pl_runner_forget(pl_runner *r, pl_err *err);

// Replaces the drafter's weights between two steps: pl_drafter_retake.
pl_status pl_runner_retake(pl_runner *r, const char *dir, pl_err *err);

// Returns a / b, NaN unless b > 0.
static inline double pl_ratio(double a, double b) {
    return b > 0 ? a / b : NAN;
}

// Figures of one session's statistics, or of a sum of several; NaN where undefined.
void   pl_stats_add(pl_session_stats *to, const pl_session_stats *s);
double pl_stats_speed(const pl_session_stats *s);      // tokens per second, without prefill and the token it emits
double pl_stats_acceptance(const pl_session_stats *s); // tokens per step, the bonus included: 1 for plain decoding
double pl_stats_accepted(const pl_session_stats *s);   // accepted over drafted tokens
int    pl_stats_depth(const pl_session_stats *s);      // greatest depth that was drafted
// Returns, of the steps that drafted a token at depth i + 1, the share that accepted it and all before it.
double pl_stats_position(const pl_session_stats *s, int i);
// Writes members of an open object: acceptance_by_position, and counts [l][r]: offered_by_rank, nodes at depth l of
// accepted paths that had a child of rank r; accepted_by_rank, nodes whose child of rank r was accepted.
void   pl_stats_write_acceptance(pl_json_out *o, const pl_session_stats *s);
// Writes seconds_by_part: target, verify, take_in, layer, head, draw (pl_step_parts) and other; their sum is `seconds`.
void   pl_stats_write_parts(pl_json_out *o, const pl_session_stats *s);
// Writes the members of decode's "stats" into an open object; n_prompt: tokens of the prompts.
void   pl_stats_write(pl_json_out *o, const pl_session_stats *s, int64_t n_prompt);

#endif
