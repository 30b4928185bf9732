// trace.jsonl: what every method drafted and what became of it, cycle by cycle; acceptance by any formula can be
// computed from it. One JSON object in a line each:
//
//   prompts  {"prompt": i, "category": "..." or null, "ids": [...]}            i counts from 0; a later turn of a
//            conversation stands before each group of its answers, behind what was said before it
//   answers  {"method": "...", "prompt": i, "seed": s, "repeat": r, "temperature": T, "ids": [...],
//             "finish": "stop" | "length" | "context", "prefill_seconds": x, "seconds": x, "cycles": [...]}
//   cycles   {"at": n, "draft": [...], "parents": [...], "accepted": a, "emitted": e, "seconds": x}
//
// ids of an answer: the tokens emitted, a stop token included. Its first token is prefill's and of no cycle. at: tokens
// of prompt and answer before the cycle. draft: drafted tokens, node 1 first; parents: node of each one's parent, 0 the
// last token before the cycle; left out for chains. accepted: drafted tokens that verification accepted; emitted: what
// the answer grew by, accepted + 1 unless a stop token or the limit cut it. seconds: of a cycle with the drafting that
// follows it; those of an answer are without prefill.
#ifndef PL_TRACE_H
#define PL_TRACE_H

#include "infer/decode/decode.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"

// What an answer is to.
typedef struct pl_trace_answer {
    const char *method; // borrowed until pl_trace_close
    int64_t     prompt, seed, repeat;
    double      temperature;
} pl_trace_answer;

// One cycle as it is kept until its answer is written.
typedef struct pl_trace_row {
    int64_t draft; // where its drafts begin among the nodes
    int32_t drafts, at, accepted, emitted;
    double  before; // seconds of the session before it
} pl_trace_row;

// Cycles are copied while an answer is decoded, which is timed, and become text when it is closed.
typedef struct pl_trace {
    pl_atomic_file  file;
    pl_trace_answer of;
    pl_trace_row   *row;  // [rows]
    int32_t        *node; // [nodes] tokens, [node_room + nodes] parents
    int64_t         rows, row_room, nodes, node_room;
    bool            failed; // out of memory
} pl_trace;

// True for the beginning of a trace.
bool      pl_trace_is(const char *front, size_t n);
pl_status pl_trace_begin(pl_trace *t, const char *path, pl_err *err);
pl_status pl_trace_prompt(pl_trace *t, int64_t i, const char *category, const int32_t *ids, int64_t n, pl_err *err);
// Between them the engine runs the answer's session, with pl_trace_cycle as its pl_cycle_fn.
void      pl_trace_open(pl_trace *t, const pl_trace_answer *a);
void      pl_trace_cycle(void *trace, const pl_cycle *cycle);
pl_status pl_trace_close(pl_trace *t, const pl_session *s, pl_err *err);
// The file appears, whole; ends the life of *t, also on failure.
pl_status pl_trace_commit(pl_trace *t, pl_err *err);
void      pl_trace_abort(pl_trace *t); // nothing after commit, or of a zeroed one

#endif
