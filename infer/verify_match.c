#include "infer/verify.h"

static void verify(const pl_verify_in *in, pl_verdict *out) {
    int node = 0;
    out->n = 0;
    out->path[0] = 0;
    for (;;) {
        if (in->argmax && in->sampling->temperature == 0)
            out->bonus = in->argmax[node];
        else
            out->bonus = pl_sample(in->logits + node * in->v, in->v, in->sampling, in->key,
                                   in->position + in->tree->depth[node] + 1, in->work);
        int child = out->bonus < 0 ? -1 : pl_tree_child(in->tree, node, out->bonus);
        if (child < 0) return;
        node = child;
        out->path[++out->n] = node;
    }
}

const pl_verifier pl_verify_match = {.name = "match", .verify = verify};
