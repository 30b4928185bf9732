// Reads the figures of metrics.jsonl files as curves over steps.
#ifndef PL_CURVES_H
#define PL_CURVES_H

#include "kernels/base/status.h"

typedef struct pl_curve {
    char   *series; // its run, or run and stage: "run", "run / stage"
    char    key[64];
    double *x, *y;
    int     n, capacity;
} pl_curve;

typedef struct pl_curves {
    pl_curve *curve;
    int       n, capacity;
} pl_curves;

// Adds every number of every line, by stage and key, in the order of the file. An incomplete last line is left out.
pl_status pl_curves_read(pl_curves *c, const char *series, const char *path, pl_err *err);
void      pl_curves_fini(pl_curves *c);

#endif
