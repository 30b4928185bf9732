// DynaSpec's routed head (arXiv 2510.13847, §4): a router picks clusters of the full head's rows for each context, and
// only their rows are read.
//
//   support(rows of one session) = union over its rows of the rows of top-k_t(scores)    never across sessions
//   k_t at draft depth t (0 for the first token):
//     k0, k1, then max(kmin, floor((k1 + t) / (2 t)))   §4.2: k1 / (2 t) rounded half up
//     floored: max(kmin, floor(k1 / (2 t)))             Algorithm 1; the two differ by at most 1. Without kmin it may
//                                                       reach 0 clusters; kmin is at least 1 here
//     fixed: k0 at every depth                          DynaSpec-F
//   k_t beyond the number of clusters: all of them.
// The head's rows are sorted by cluster (d2t has their target ids), so that the gather is a short list of dense spans;
// chosen neighbours merge into one span. For decoding they are packed with separate panels per cluster (PL_SEGMENTS),
// so that a chosen cluster reads next to nothing of its neighbours; a checkpoint has the rows one after the other. The
// table
//   head_cluster_offsets int64 [clusters + 1]   cluster c is rows offset[c] to offset[c + 1] - 1 of lm_head.weight
// must start at 0, end at the number of rows and never descend; an empty cluster adds nothing. The concatenation has
// the order of the rows, not of the scores (§4.2 and Algorithm 1 disagree on it; no result depends on it).
#ifndef PL_HEAD_DYNASPEC_H
#define PL_HEAD_DYNASPEC_H

#include "infer/head/head.h"
#include "infer/head/router.h"

// Settings of the kind.
typedef struct pl_dynaspec {
    int  clusters, router, width; // router: pl_router_kind
    int  k0, k1, kmin;
    bool fixed, floored;
    int  top; // training: the router learns the clusters of this many of the full head's best tokens
} pl_dynaspec;

extern const pl_key pl_dynaspec_keys[];

typedef struct pl_routed {
    const pl_dynaspec *own;
    pl_router          router;
    int64_t           *offset, *unit; // [clusters + 1]; owned
    pl_segments        segments;      // packing of `out`, from both arrays
} pl_routed;

// Requires a head of a routed kind.
static inline pl_routed *pl_routed_of(const pl_head *h) {
    return h->state;
}

// Returns k_t, at most the number of clusters.
int64_t   pl_routed_budget(const pl_dynaspec *s, int level);
// Sets the table of a new head and takes ownership: [clusters + 1], from pl_malloc. Call it before weights are loaded
// or drawn.
void      pl_routed_set_offsets(pl_head *h, int64_t *offset);
// Reads and checks the table of a checkpoint of n rows. *offset becomes the caller's.
pl_status pl_routed_read_offsets(int64_t **offset, const pl_weight_source *src, int64_t clusters, int64_t n,
                                 pl_err *err);

#endif
