// Monotonic time and robust statistics for benches.
#ifndef PL_CLOCK_H
#define PL_CLOCK_H

double pl_now(void);       // seconds, monotonic
double pl_unix_time(void); // seconds since 1970, for people

typedef struct pl_sample_stats {
    double median, min, p10, p90, mean;
    int    n;
} pl_sample_stats;
pl_sample_stats pl_stats(const double *x, int n); // n >= 1; x is not changed

typedef struct pl_interval {
    double low, high; // NaN: no value was finite
    int    left_out;  // values that were not
} pl_interval;

// Compares two doubles for qsort: ascending, no NaN.
int         pl_by_value(const void *a, const void *b);
// Returns the middle 95 % of the finite ones of n values, n >= 1, and reorders them: the percentile interval of
// bootstrap samples. A resample of answers without tokens is 0/0, which has no order: it is left out and counted.
pl_interval pl_interval_95(double *x, int n);

#endif
