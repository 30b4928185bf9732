// One text at a time: a target, perhaps a drafter, an engine with one session. What `decode`, evaluation, benches and
// the library's users run.
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
    const char *drafter; // as pl_drafter_open takes it, NULL: plain decoding; weights are held in the target's dtype
    const char *tree;    // NULL: the drafter's own, auto for checkpoints
    const pl_verifier *verifier; // NULL: pl_verify_match
    pl_draft_watch    *watch;    // of the drafter, NULL: nobody
    int                max_len;  // 0, or more than the target has: the target's
    int                sessions; // of the engine, for who drives it himself (infer/eval/batch.h); 0: one
} pl_runner_options;

// The tree that is drafted: where none is asked for (NULL or "") a verifier of chains gets one that it can judge.
const char *pl_runner_tree(const char *tree, const pl_verifier *v);
// target and pool outlive the runner.
pl_status   pl_runner_open(pl_runner *r, const pl_backend *be, pl_pool *pool, const pl_target *target,
                           const pl_runner_options *o, pl_err *err);
void        pl_runner_close(pl_runner *r);

// A token of the answer (stop tokens are not told). false ends the text.
typedef bool (*pl_token_fn)(void *arg, int32_t token);

// Continues the prompt by at most max_new tokens; fn may be NULL. r->session holds the answer and its statistics until
// the next run. PL_E_INTERRUPTED when the process was asked to stop.
pl_status pl_runner_run(pl_runner *r, const int32_t *prompt, int64_t n, const pl_sampling *sampling, int max_new,
                        pl_token_fn fn, void *arg, pl_err *err);

// For drafters that keep something beyond a session, the last run's answer included: save it where they were told to;
// or forget what came since they were opened. r->session is NULL then.
pl_status pl_runner_save(pl_runner *r, pl_err *err);
pl_status pl_runner_forget(pl_runner *r, pl_err *err);

// a / b; NaN where there is nothing to divide by.
static inline double pl_ratio(double a, double b) {
    return b > 0 ? a / b : NAN;
}

// Figures of a session or of several added up. What cannot be said is NaN.
void   pl_stats_add(pl_session_stats *to, const pl_session_stats *s);
double pl_stats_speed(const pl_session_stats *s);      // tokens per second, without prefill and the token it emits
double pl_stats_acceptance(const pl_session_stats *s); // tokens per step, the bonus included: 1 for plain decoding
double pl_stats_accepted(const pl_session_stats *s);   // accepted over drafted tokens
int    pl_stats_depth(const pl_session_stats *s);      // deepest position that was ever drafted
// Share of the steps which drafted a token at depth i + 1 that accepted it, and with it all before it.
double pl_stats_position(const pl_session_stats *s, int i);
// Members of an open object: acceptance_by_position, and counts [l][r]: offered_by_rank, nodes at depth l of accepted
// paths that had a child of rank r; accepted_by_rank, those where it was accepted.
void   pl_stats_write_acceptance(pl_json_out *o, const pl_session_stats *s);
// seconds_by_part: target, verify, take_in, layer, head, draw, other (the parts of pl_step_parts; their sum is
// `seconds`).
void   pl_stats_write_parts(pl_json_out *o, const pl_session_stats *s);
// "stats" of decode: the members of an open object. n_prompt: tokens of the prompt(s).
void   pl_stats_write(pl_json_out *o, const pl_session_stats *s, int64_t n_prompt);

#endif
