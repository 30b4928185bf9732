// How training goes on each rank: where its time goes and the memory that it took, for the lines of metrics.jsonl.
//
//   step_seconds         a step's, mean of the steps since the last line; so are all that follow
//   wait_data_seconds    in which the rank that waited longest had no data: documents were read, or made by the target
//   step_flops           that all ranks' products took (kernels/flops.h)
//   memory_bytes         high water of the process that took most, resident
// and, where there are several ranks,
//   wait_ranks_seconds   in which the one that waited longest waited for others or for bytes on their way
//   sent_bytes           of the rank that sent most (pl_comm_counts)
// and each one's, in order:
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
    double  *all;                          // [ranks][PL_WATCH_FIGURES], of the last collect: means of a step
} pl_watch;

pl_status pl_watch_init(pl_watch *w, pl_comm *comm, pl_err *err);
void      pl_watch_fini(pl_watch *w); // a zeroed one is fine
// A step of this rank's, its figures up to PL_WATCH_FLOPS (tokens and flops of its own slots).
void      pl_watch_step(pl_watch *w, const double step[PL_WATCH_MEMORY]);
// Collective: what all ranks have counted since the last time.
pl_status pl_watch_collect(pl_watch *w, pl_err *err);
void      pl_watch_report(const pl_watch *w, pl_metrics *m);

#endif
