// Where most of many values lie.
#ifndef PL_INTERVAL_H
#define PL_INTERVAL_H

typedef struct pl_interval {
    double low, high;
} pl_interval;

// Of doubles, for qsort: ascending, no NaN.
int         pl_by_value(const void *a, const void *b);
// The middle 95 % of n values, n >= 1; sorts them. Of bootstrap samples: their percentile interval.
pl_interval pl_interval_95(double *x, int n);

#endif
