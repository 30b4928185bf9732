#include "infer/tree.h"

#include "kernels/base/check.h"

#include <stdio.h>
#include <string.h>

static const pl_tree_kind *const kinds[] = {&pl_tree_chain};
enum { KINDS = sizeof kinds / sizeof *kinds };

void pl_tree_root(pl_tree *t, int32_t token) {
    t->n = 1;
    t->n_draws = 0;
    t->token[0] = token;
    t->parent[0] = -1;
    t->depth[0] = 0;
    t->score[0] = 0;
    t->kind[0] = PL_PROPOSE_TOP;
    t->q[0] = NULL;
}

int pl_tree_add(pl_tree *t, int parent, int32_t token, float score) {
    PL_CHECK(parent >= 0 && parent < t->n, "parent %d of %d nodes", parent, t->n);
    PL_CHECK(t->n_draws < PL_TREE_GROWN - 1, "tree of %d draws", t->n_draws);
    t->draw_parent[t->n_draws] = parent;
    t->draw_token[t->n_draws++] = token;
    int old = pl_tree_child(t, parent, token);
    if (old >= 0) return old;
    int i = t->n++;
    t->token[i] = token;
    t->parent[i] = parent;
    t->depth[i] = t->depth[parent] + 1;
    t->score[i] = score;
    t->kind[i] = PL_PROPOSE_TOP;
    t->q[i] = NULL;
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

int pl_tree_draws(const pl_tree *t, int node, int32_t *token) {
    int n = 0;
    for (int i = 0; i < t->n_draws; i++)
        if (t->draw_parent[i] == node) {
            PL_CHECK(n < PL_TREE_MAX, "node %d has more than %d children", node, PL_TREE_MAX);
            token[n++] = t->draw_token[i];
        }
    return n;
}

void pl_tree_prune(pl_tree *t, const bool *keep) {
    int32_t to[PL_TREE_GROWN];
    int     n = 1, draws = 0;
    to[0] = 0;
    for (int i = 1; i < t->n; i++) {
        to[i] = -1;
        if (!keep[i]) continue;
        int32_t parent = to[t->parent[i]];
        PL_CHECK(parent >= 0, "node %d stays, its parent %d goes", i, t->parent[i]);
        to[i] = n;
        t->token[n] = t->token[i];
        t->parent[n] = parent;
        t->depth[n] = t->depth[i];
        t->score[n] = t->score[i];
        t->kind[n] = t->kind[i];
        t->q[n++] = t->q[i];
    }
    // Old indices are read from draw_parent before they are overwritten: `draws` never passes i.
    for (int i = 0; i < t->n_draws; i++) {
        int32_t parent = to[t->draw_parent[i]];
        bool    stays = false;
        for (int c = 1; parent >= 0 && c < n && !stays; c++)
            stays = t->parent[c] == parent && t->token[c] == t->draw_token[i];
        if (!stays) continue;
        t->draw_parent[draws] = parent;
        t->draw_token[draws++] = t->draw_token[i];
    }
    t->n = n;
    t->n_draws = draws;
}

pl_status pl_tree_policy_parse(pl_tree_policy *p, const char *text, pl_err *err) {
    if (!text || !*text) text = "chain:auto";
    const char *colon = strchr(text, ':');
    size_t      n = colon ? (size_t)(colon - text) : strlen(text);
    char        known[512] = "";
    for (int i = 0; i < KINDS; i++) {
        if (strlen(kinds[i]->name) == n && memcmp(kinds[i]->name, text, n) == 0) {
            *p = (pl_tree_policy){.kind = kinds[i]};
            return kinds[i]->parse(p, colon ? colon + 1 : "", err);
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", kinds[i]->syntax);
    }
    return pl_fail(err, PL_E_USAGE, "tree \"%s\" is not known; known are: %s", text, known);
}

void pl_tree_finish(const pl_tree_policy *p, pl_tree *t) {
    if (p->kind->finish) p->kind->finish(p, t);
    PL_CHECK(t->n <= p->max_nodes, "a tree \"%s\" of %d nodes, at most %d", p->kind->name, t->n, p->max_nodes);
}
