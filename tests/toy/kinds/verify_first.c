// A verifier in one file: the target's token is drawn, and kept as a draft where it is a node's first child. Lossless,
// because what is emitted is the target's draw either way; it accepts less than `match`, which looks at all children.
#include "infer/verify/verify.h"

static void verify(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out) {
    int node = out->path[out->n];
    (void)v;
    for (;;) {
        int64_t position = in->position + in->tree->depth[node] + 1;
        if (!in->dist(in->arg, node, in->p)) {
            out->bonus = -1;
            return;
        }
        out->bonus = (int32_t)in->coin->draw(in->coin, in->p, in->v, position);
        int child = pl_tree_child(in->tree, node, out->bonus);
        if (child < 0 || in->tree->rank[child] != 0) return;
        node = child;
        out->path[++out->n] = node;
    }
}

const pl_verifier pl_verify_first = {.name = "first",
                                     .help = "draws the target's tokens and keeps drafts that are a first child",
                                     .proposal = PL_PROPOSE_TOP,
                                     .lossless = true,
                                     .verify = verify};
