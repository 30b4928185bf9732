// trace.jsonl: the drafts and verdicts of every method, cycle by cycle, from which acceptance by any formula can be
// computed. Each line is one JSON object:
//
//   prompts  {"prompt": i, "category": "..." or null, "ids": [...]}            i counts from 0; a later turn of a
//            conversation is written again before each group of its answers, with the earlier turns in its ids
//   answers  {"method": "...", "prompt": i, "seed": s, "repeat": r, "temperature": T, "ids": [...],
//             "finish": "stop" | "length" | "context", "prefill_seconds": x, "seconds": x, "cycles": [...]}
//   cycles   {"at": n, "draft": [...], "parents": [...], "accepted": a, "emitted": e, "seconds": x}
//
// ids of an answer are the emitted tokens, a stop token included; prefill emits the first one, outside any cycle. at:
// tokens of prompt and answer before the cycle. draft: drafted tokens, node 1 first. parents: the parent's node of each
// draft, 0 for the last token before the cycle; left out for chains. accepted: drafted tokens that verification
// accepted. emitted: tokens added to the answer, accepted + 1 unless a stop token or the limit cut it. seconds: of a
// cycle and the drafting that follows it; of an answer, without prefill.
#ifndef PL_TRACE_H
#define PL_TRACE_H

#include "infer/decode/decode.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"

// The method and question of an answer.
typedef struct pl_trace_answer {
    const char *method; // borrowed until pl_trace_close
    int64_t     prompt, seed, repeat;
    double      temperature;
} pl_trace_answer;

// One cycle, kept until its answer is written.
typedef struct pl_trace_row {
    int64_t draft; // index of its first draft in pl_trace.node
    int32_t drafts, at, accepted, emitted;
    double  before; // seconds of the session at its beginning
} pl_trace_row;

// Cycles are copied during decoding, which is timed, and written as text when the answer is closed.
typedef struct pl_trace {
    pl_atomic_file  file;
    pl_trace_answer of;
    pl_trace_row   *row;  // [rows]
    int32_t        *node; // [nodes] tokens, [node_room + nodes] parents
    int64_t         rows, row_room, nodes, node_room;
    bool            failed; // out of memory
} pl_trace;

// True if these bytes are the beginning of a trace.
bool      pl_trace_is(const char *front, size_t n);
pl_status pl_trace_begin(pl_trace *t, const char *path, pl_err *err);
pl_status pl_trace_prompt(pl_trace *t, int64_t i, const char *category, const int32_t *ids, int64_t n, pl_err *err);
// Begin and end an answer; in between the engine runs its session with pl_trace_cycle as its pl_cycle_fn.
void      pl_trace_open(pl_trace *t, const pl_trace_answer *a);
void      pl_trace_cycle(void *trace, const pl_cycle *cycle);
pl_status pl_trace_close(pl_trace *t, const pl_session *s, pl_err *err);
// Puts the whole file in place and frees *t, also on failure.
pl_status pl_trace_commit(pl_trace *t, pl_err *err);
void      pl_trace_abort(pl_trace *t); // does nothing after commit or to a zeroed *t

#endif
