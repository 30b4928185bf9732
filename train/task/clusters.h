// Clusters of a head's rows: spherical k-means (Dhillon and Modha 2001), as DynaSpec §4.2 makes its meta-labels.
//
//   u_v = W_v / |W_v|;   repeat: cluster(v) = argmax_m u_v . c_m (equal: the lower m),  c_m = sum of its u_v, normed
// Sizes are not balanced. Start: M rows drawn from the seed without repeats. A cluster that loses its last row takes
// the row that is farthest from its own centre (the lowest u_v . c, equal: the lower row) and is not alone; so all
// M clusters have a row in the end, even if all rows are equal or zero (zero rows are at u = 0).
//
// Stops after PL_CLUSTERS_ROUNDS rounds or when at most one row in a thousand has moved. Clusters are then numbered
// along a chain, the largest first and after each the most similar cluster that is left, so that clusters which are
// often chosen together are adjacent and their rows form one dense span. Inside a cluster rows keep their order.
//
// Deterministic in the seed: the same bits for any number of threads. Products run on the backend's training GEMM:
// 2 n M d flops a round; memory: the rows, a normed block, M centres and their sums.
#ifndef PL_TRAIN_CLUSTERS_H
#define PL_TRAIN_CLUSTERS_H

#include "kernels/backend.h"

enum { PL_CLUSTERS_ROUNDS = 20 };

typedef struct pl_clusters {
    int64_t  n, m;
    int32_t *order;  // [n] rows sorted by cluster
    int64_t *offset; // [m + 1] cluster c is order[offset[c] .. offset[c + 1])
    int      rounds; // of k-means
    double   cosine; // mean of u_v . c over the rows, to the centres of the last round
} pl_clusters;

// Clusters the rows of w, row-major [n, d], of any float type; id (NULL: all) selects n rows. be->real must be F32.
// PL_E_INPUT: more clusters than rows, a row that is not finite.
pl_status pl_clusters_make(pl_clusters *c, const pl_tensor *w, const int32_t *id, int64_t n, int64_t m, uint64_t seed,
                           const pl_backend *be, pl_pool *pool, pl_err *err);
void      pl_clusters_fini(pl_clusters *c);

#endif
