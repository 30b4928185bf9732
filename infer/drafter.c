#include "infer/drafter.h"

pl_status pl_drafter_open(pl_drafter **out, const char *dir, const pl_llama *target, pl_dtype t, const char *tree,
                          int max_sessions, int max_rows, int slots, pl_err *err) {
    *out = NULL;
    pl_tree_policy policy;
    PL_TRY(pl_tree_policy_parse(&policy, tree, err));
    return pl_drafter_eagle3_open(out, dir, target, t, &policy, max_sessions, max_rows, slots, err);
}

void pl_drafter_destroy(pl_drafter *d) {
    if (d) d->kind->destroy(d);
}
