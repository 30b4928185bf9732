// A drafter in one file: it drafts the last token once more, N times over.
#include "infer/drafter/drafter.h"
#include "kernels/base/arena.h"

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

static void reset(pl_drafter *d, int slot) {
    (void)d, (void)slot;
}

static double step_bytes(const pl_drafter *d) {
    (void)d;
    return sizeof(int32_t);
}

static void destroy(pl_drafter *d) {
    pl_free(d);
}

static const pl_drafter_kind kind = {
    .name = "repeat", .propose = propose, .reset = reset, .step_bytes = step_bytes, .destroy = destroy};

static pl_status shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *args, const char *tree, pl_err *err) {
    int n = *args ? atoi(args) : 2;
    if (n < 1 || n > 60)
        return pl_fail(err, PL_E_USAGE, "drafter \"repeat:%s\": expected repeat[:N], N in 1..60", args);
    snprintf(name, PL_TREE_TEXT, "chain:%d", n);
    return pl_tree_policy_parse(p, tree && *tree ? tree : name, err);
}

static pl_status open(pl_drafter **out, const char *args, const pl_tree_policy *policy, const pl_drafter_options *o,
                      pl_err *err) {
    (void)args;
    *out = pl_calloc(1, sizeof **out);
    if (!*out) return pl_fail(err, PL_E_MEMORY, "drafter \"repeat\": out of memory");
    **out = (pl_drafter){.kind = &kind, .policy = *policy, .max_sessions = o->max_sessions, .max_rows = o->max_rows};
    return PL_OK;
}

const pl_drafter_source pl_drafter_repeat = {
    .name = "repeat", .syntax = "repeat[:N]", .help = "the last token, N times over", .shape = shape, .open = open};
