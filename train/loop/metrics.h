// metrics.jsonl: one JSON object per line, appended during training, each starting with "stage", "step" and "time"
// (Unix seconds). A resumed run first cuts off the lines written after its checkpoint, so that every step appears once.
#ifndef PL_TRAIN_METRICS_H
#define PL_TRAIN_METRICS_H

#include "kernels/base/json.h"
#include "kernels/base/status.h"
#include "train/loop/events.h"
#include <stdint.h>

typedef struct pl_metrics {
    char       *path;
    const char *stage, *watched; // borrowed; watched: the folder of `events`, NULL: none
    int         fd;
    pl_json_out line;
    bool        open; // a line has been begun
    pl_events   events;
} pl_metrics;

// PL_OK: no file, or lines of a training, of which a kill may have cut the last. PL_E_INPUT: another file, or a link.
pl_status pl_metrics_spares(const char *path, pl_err *err);
// Keeps the whole lines before the first one of this stage with a step above keep_step, and appends after them. Lines
// of other stages that follow such a line are cut too: stages run in order. PL_E_IO, and the refusals of
// pl_metrics_spares.
pl_status pl_metrics_open(pl_metrics *m, const char *path, const char *stage, int64_t keep_step, pl_err *err);
void      pl_metrics_close(pl_metrics *m);
// Copies lines to a TensorBoard event file in dir too (train/loop/events.h), which is created with the first of them: a
// process that has nothing left to do leaves the files unchanged. Borrows dir.
void      pl_metrics_watch(pl_metrics *m, const char *dir);

void      pl_metrics_begin(pl_metrics *m, int64_t step);
void      pl_metrics_num(pl_metrics *m, const char *key, double v);
void      pl_metrics_int(pl_metrics *m, const char *key, int64_t v);
void      pl_metrics_nums(pl_metrics *m, const char *key, const double *v, int n);
pl_status pl_metrics_end(pl_metrics *m, pl_err *err); // writes the line

#endif
