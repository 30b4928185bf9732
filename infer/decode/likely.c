#include "infer/decode/likely.h"

static void sift(pl_likely *x, int n, int i) {
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && x[child + 1].f > x[child].f) child++;
        if (!(x[child].f > x[i].f)) return;
        pl_likely swap = x[i];
        x[i] = x[child];
        x[child] = swap;
    }
}

void pl_likely_heap(pl_likely *x, int n) {
    for (int i = n / 2; i >= 0; i--)
        sift(x, n, i);
}

pl_likely pl_likely_take(pl_likely *x, int n) {
    pl_likely top = x[0];
    x[0] = x[n - 1];
    sift(x, n - 1, 0);
    x[n - 1] = top;
    return top;
}
