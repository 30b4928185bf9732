// Routers: score the clusters of a head's rows for a context before the head is read.
//
//   mlp    s = W2 silu(W1 [norm(e); norm(h)] + b1) + b2    DynaSpec §4.2's small MLP on [embedding, previous hidden]:
//          e the embedding of the token that the draft step consumes, h the hidden that it consumes. W1 [width, 2d], W2
//          [C, width]. The paper names neither its activation nor norms; both inputs pass an RMSNorm of their own here,
//          since embeddings and hidden states differ in size by orders of magnitude between models.
//   coral  s = W2 (silu(W1 y) + y)                         CORAL (arXiv 2502.16880): softmax over groups, from the
//          head's input y. W1 [d, d], W2 [C, d]. It cannot overlap with the backbone's layer; mlp can.
// Clusters are ranked by score, so that the softmax changes nothing.
#ifndef PL_ROUTER_H
#define PL_ROUTER_H

#include "infer/model/params.h"

typedef enum pl_router_kind { PL_ROUTER_MLP, PL_ROUTER_CORAL } pl_router_kind;

typedef struct pl_router {
    pl_router_kind kind;
    int64_t        d, width, clusters;              // width: of the hidden layer; d for coral
    pl_tensor      norm_embed, norm_hidden, b1, b2; // mlp
    pl_tensor      w1, w2;
} pl_router;

const char *pl_router_name(int kind); // "mlp", "coral"; NULL past the last
// Adds the weights, as router.*, to the list.
void        pl_router_params(pl_router *r, pl_params *ps);
// Returns [M, C] scores: from embed and hidden [M, d] (mlp), or from output [M, d] (coral). Rows are independent.
pl_tensor   pl_router_scores(pl_ctx *ctx, const pl_router *r, pl_tensor embed, pl_tensor hidden, pl_tensor output);
// Returns the bytes of weights that scoring reads, for dtype t.
double      pl_router_bytes(const pl_router *r, pl_dtype t);

// Adds the k clusters with the highest scores to `chosen` [C] (bytes 0 or 1); ties: the lower cluster first. k beyond
// C: all. best: scratch of min(k, C). Returns false if a score is NaN.
bool pl_router_choose(const float *score, int64_t clusters, int64_t k, int32_t *best, uint8_t *chosen);

#endif
