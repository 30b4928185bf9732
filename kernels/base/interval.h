// Where most of many values lie.
#ifndef PL_INTERVAL_H
#define PL_INTERVAL_H

typedef struct pl_interval {
    double low, high; // NaN: no value was finite
    int    left_out;  // values that were not
} pl_interval;

// Of doubles, for qsort: ascending, no NaN.
int         pl_by_value(const void *a, const void *b);
// The middle 95 % of those of n values, n >= 1, that are finite; reorders them. Of bootstrap samples: their percentile
// interval. A resample of answers without tokens is 0/0, which has no place in an order: it is left out and counted.
pl_interval pl_interval_95(double *x, int n);

#endif
