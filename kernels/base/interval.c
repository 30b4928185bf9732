#include "kernels/base/interval.h"

#include <math.h>
#include <stdlib.h>

int pl_by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

pl_interval pl_interval_95(double *x, int n) {
    int finite = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(x[i])) x[finite++] = x[i];
    if (finite == 0) return (pl_interval){NAN, NAN, n};
    int cut = (int)((long long)finite * 25 / 1000);
    qsort(x, (size_t)finite, sizeof *x, pl_by_value);
    return (pl_interval){x[cut], x[finite - 1 - cut], n - finite};
}
