#include "kernels/base/interval.h"

#include <stdlib.h>

int pl_by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

pl_interval pl_interval_95(double *x, int n) {
    int cut = (int)((long long)n * 25 / 1000);
    qsort(x, (size_t)n, sizeof *x, pl_by_value);
    return (pl_interval){x[cut], x[n - 1 - cut]};
}
