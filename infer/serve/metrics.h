// Counts of a server's work in Prometheus' text format 0.0.4, under the names of vLLM and llama.cpp.
#ifndef PL_METRICS_H
#define PL_METRICS_H

#include "infer/decode/decode.h"
#include "kernels/base/strbuf.h"

typedef struct pl_metrics {
    int64_t          running, waiting;         // choices now
    int64_t          stopped, lengthy, broken; // choices that ended at a stop, at a limit, because their client left
    int64_t          prompt, generated;        // tokens
    pl_session_stats stats;                    // of all that ended
    int64_t          n_first, n_later;         // tokens, answers' first ones and all others
    double           first, later;             // seconds: to the first token from the request's arrival; all others'
    int64_t          n_answers;
    double           whole; // seconds of all answers, from arrival to end
    bool             drafts;
    int64_t          swaps, recorded; // of the drafter's weights; answers
} pl_metrics;

// Appends the text. model: the label of each sample.
void pl_metrics_write(pl_strbuf *b, const pl_metrics *m, const char *model);

#endif
