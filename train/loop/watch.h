// Time and memory of training on each rank, for the lines of metrics.jsonl. All are means over the steps since the last
// line:
//
//   step_seconds         seconds per step
//   wait_data_seconds    on the rank that waited longest: without data, while documents were read or generated
//   step_flops           of all ranks' products (kernels/flops.h)
//   memory_bytes         highest resident peak of all processes
// and, with several ranks,
//   wait_ranks_seconds   on the rank that waited longest: waiting for other ranks or for bytes in transfer
//   sent_bytes           of the rank that sent most (pl_comm_counts)
// and per rank, in order:
//   rank_tokens_per_second   of its own slots, over the time in which it waited for no other rank
//   rank_wait_data_seconds, rank_wait_ranks_seconds, rank_memory_bytes
#ifndef PL_TRAIN_WATCH_H
#define PL_TRAIN_WATCH_H

#include "kernels/comm/comm.h"
#include "train/loop/metrics.h"

enum {
    PL_WATCH_SECONDS,
    PL_WATCH_DATA,
    PL_WATCH_RANKS,
    PL_WATCH_SENT,
    PL_WATCH_TOKENS,
    PL_WATCH_FLOPS,
    PL_WATCH_MEMORY
};
enum { PL_WATCH_FIGURES = PL_WATCH_MEMORY + 1 };

typedef struct pl_watch {
    pl_comm *comm;                         // borrowed
    double   steps, own[PL_WATCH_FIGURES]; // summed over the steps since the last line
    double  *all;                          // [ranks][PL_WATCH_FIGURES], of the last collect: means per step
} pl_watch;

pl_status pl_watch_init(pl_watch *w, pl_comm *comm, pl_err *err);
void      pl_watch_fini(pl_watch *w); // does nothing if zeroed
// Adds a step of this rank, with its figures up to PL_WATCH_FLOPS (tokens and flops of its own slots).
void      pl_watch_step(pl_watch *w, const double step[PL_WATCH_MEMORY]);
// Collective: gathers all ranks' figures since the last call.
pl_status pl_watch_collect(pl_watch *w, pl_err *err);
void      pl_watch_report(const pl_watch *w, pl_metrics *m);

#endif
