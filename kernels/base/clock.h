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

#endif
