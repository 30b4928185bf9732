#include "infer/tree.h"

#include "kernels/base/check.h"

#include <string.h>

static const pl_tree_kind *const kinds[] = {&pl_tree_chain};
enum { KINDS = sizeof kinds / sizeof *kinds };

void pl_tree_root(pl_tree *t, int32_t token) {
    t->n = 1;
    t->token[0] = token;
    t->parent[0] = -1;
    t->depth[0] = 0;
    t->score[0] = 0;
}

int pl_tree_add(pl_tree *t, int parent, int32_t token, float score) {
    PL_CHECK(t->n < PL_TREE_MAX, "tree of %d nodes, at most %d", t->n, PL_TREE_MAX);
    PL_CHECK(parent >= 0 && parent < t->n, "parent %d of %d nodes", parent, t->n);
    int i = t->n++;
    t->token[i] = token;
    t->parent[i] = parent;
    t->depth[i] = t->depth[parent] + 1;
    t->score[i] = score;
    return i;
}

int pl_tree_child(const pl_tree *t, int node, int32_t token) {
    for (int i = node + 1; i < t->n; i++)
        if (t->parent[i] == node && t->token[i] == token) return i;
    return -1;
}

int pl_tree_path(const pl_tree *t, int node, int32_t *path) {
    int n = t->depth[node] + 1;
    for (int i = n - 1; i >= 0; i--, node = t->parent[node])
        path[i] = node;
    return n;
}

pl_status pl_tree_policy_parse(pl_tree_policy *p, const char *text, pl_err *err) {
    const char *colon = strchr(text, ':');
    size_t      n = colon ? (size_t)(colon - text) : strlen(text);
    for (int i = 0; i < KINDS; i++)
        if (strlen(kinds[i]->name) == n && memcmp(kinds[i]->name, text, n) == 0) {
            *p = (pl_tree_policy){.kind = kinds[i]};
            return kinds[i]->parse(p, colon ? colon + 1 : "", err);
        }
    return pl_fail(err, PL_E_USAGE, "tree \"%s\" is not known; known are: %s", text, kinds[0]->syntax);
}
