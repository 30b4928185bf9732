// A drafter in one file: it drafts the last token once more, N times over.
#include "infer/drafter/drafter.h"

#include <stdio.h>
#include <stdlib.h>

static void last_token(void *arg, const pl_tree_policy *p, const pl_tree *t, int node, int32_t *id) {
    (void)arg;
    id[0] = t->token[node];
    for (int r = 1; r < p->k; r++)
        id[r] = -1;
}

static void propose(pl_drafter *d, pl_ctx *ctx, pl_draft_batch *b) {
    for (int i = 0; i < b->n && !ctx->measuring; i++)
        if (b->item[i].tree) pl_tree_draft(&d->policy, b->item[i].tree, b->item[i].depth, last_token, NULL);
}

static double step_bytes(const pl_drafter *d) {
    (void)d;
    return sizeof(int32_t);
}

static const pl_drafter_kind kind = {.name = "repeat", .propose = propose, .step_bytes = step_bytes};

static pl_status shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args, const char *tree,
                       pl_err *err) {
    int n = *args ? atoi(args) : 2;
    if (n < 1 || n > 60)
        return pl_fail(err, PL_E_USAGE, "drafter \"%s:%s\": expected %s[:N], N in 1..60", who, args, who);
    snprintf(name, PL_TREE_TEXT, "chain:%d", n);
    return pl_tree_policy_parse(p, tree && *tree ? tree : name, err);
}

const pl_drafter_source pl_drafter_repeat = {.name = "repeat",
                                             .syntax = "repeat[:N]",
                                             .help = "the last token, N times over",
                                             .shape = shape,
                                             .kind = &kind,
                                             .size = sizeof(pl_drafter)};
