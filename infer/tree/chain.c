// Chains: at each level the drafter's best token. chain:N drafts N tokens; chain:auto chooses N by measured costs,
// chain:confidence also ends drafts by the drafter's own probability of the path so far.
#include "infer/tree/tree.h"

#include <stdlib.h>
#include <string.h>

#define CHAIN_AUTO_MAX 16

static pl_status parse(pl_tree_policy *p, const char *args, pl_err *err) {
    bool confidence = strcmp(args, "confidence") == 0;
    if (confidence || strcmp(args, "auto") == 0) {
        pl_tree_policy_adapt(p, CHAIN_AUTO_MAX + 1, 1, 1, CHAIN_AUTO_MAX);
        p->stops = p->needs_logp = confidence;
        return PL_OK;
    }
    char *end;
    long  n = strtol(args, &end, 10);
    if (end == args || *end || n < 1 || n > PL_TREE_MAX - 1)
        return pl_fail(err, PL_E_USAGE,
                       "tree \"chain:%s\": expected chain:auto, chain:confidence or chain:LENGTH, LENGTH in 1..%d",
                       args, PL_TREE_MAX - 1);
    p->k = p->width = 1;
    p->depth = (int)n;
    p->max_nodes = (int)n + 1;
    return PL_OK;
}

static int grow(const pl_tree_policy *p, pl_tree *t, int level, const int *frontier, int n, const int32_t *id,
                const float *logp, int *next) {
    (void)p, (void)level, (void)n, (void)logp;
    if (id[0] < 0) return 0;
    next[0] = pl_tree_add(t, frontier[0], id[0], 0);
    return 1;
}

static int ahead(const pl_tree_policy *p, int level, int n, int32_t *pick) {
    (void)p, (void)level;
    pick[0] = 0;
    return n;
}

const pl_tree_kind pl_tree_chain = {.name = "chain",
                                    .syntax = "chain:LENGTH|auto|confidence",
                                    .help =
                                        "one token after the other; auto: as many as pay while decoding; confidence: "
                                        "fewer where the drafter is not sure",
                                    .fixed_shape = true,
                                    .parse = parse,
                                    .grow = grow,
                                    .ahead = ahead};
