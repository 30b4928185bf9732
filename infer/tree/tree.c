#include "infer/tree/tree.h"

#include "kernels/base/check.h"

#include <stdio.h>
#include <string.h>

#define PL_TREE(name) extern const pl_tree_kind pl_tree_##name;
#include "infer/tree/trees.def"
#undef PL_TREE
#define PL_TREE(name) &pl_tree_##name,
static const pl_tree_kind *const kinds[] = {
#include "infer/tree/trees.def"
};
#undef PL_TREE
enum { KINDS = sizeof kinds / sizeof *kinds };

static void place_node(pl_tree *t, int i, int32_t token, int32_t parent, float score) {
    t->token[i] = token;
    t->parent[i] = parent;
    t->depth[i] = parent < 0 ? 0 : t->depth[parent] + 1;
    t->score[i] = score;
    t->kind[i] = PL_PROPOSE_TOP;
    t->q[i] = NULL;
}

// Appends node i to its parent's children.
static void link_child(pl_tree *t, int i) {
    int32_t parent = t->parent[i];
    t->drawn[i] = 0;
    t->rank[i] = 0;
    t->first[i] = t->last[i] = t->sibling[i] = -1;
    if (parent < 0) return;
    t->rank[i] = t->drawn[parent];
    if (t->last[parent] < 0)
        t->first[parent] = i;
    else
        t->sibling[t->last[parent]] = i;
    t->last[parent] = i;
}

void pl_tree_root(pl_tree *t, int32_t token) {
    t->n = 1;
    t->n_draws = 0;
    t->notes.levels = t->notes.n = 0;
    t->notes.stopped = false;
    place_node(t, 0, token, -1, 0);
    link_child(t, 0);
}

int pl_tree_add(pl_tree *t, int parent, int32_t token, float score) {
    PL_CHECK(parent >= 0 && parent < t->n, "parent %d of %d nodes", parent, t->n);
    PL_CHECK(t->n_draws < PL_TREE_GROWN - 1, "tree of %d draws", t->n_draws);
    t->draw_parent[t->n_draws] = parent;
    t->draw_token[t->n_draws++] = token;
    int i = pl_tree_child(t, parent, token);
    if (i < 0) {
        i = t->n++;
        place_node(t, i, token, parent, score);
        link_child(t, i);
    }
    t->drawn[parent]++;
    return i;
}

void pl_tree_miss(pl_tree *t, int parent) {
    PL_CHECK(t->n_draws < PL_TREE_GROWN - 1, "tree of %d draws", t->n_draws);
    t->draw_parent[t->n_draws] = parent;
    t->draw_token[t->n_draws++] = -1;
    t->drawn[parent]++;
}

int pl_tree_child(const pl_tree *t, int node, int32_t token) {
    int i = t->first[node];
    while (i >= 0 && t->token[i] != token)
        i = t->sibling[i];
    return i;
}

int pl_tree_path(const pl_tree *t, int node, int32_t *path) {
    int n = t->depth[node] + 1;
    for (int i = n - 1; i >= 0; i--, node = t->parent[node])
        path[i] = node;
    return n;
}

double pl_tree_probability(const pl_tree *t, int node) {
    double p = 1;
    for (int up; (up = t->parent[node]) >= 0; node = up)
        if (t->q[up]) p *= t->q[up][t->token[node]];
    return p;
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

static bool was_drawn(const pl_tree *t, int draws, int32_t parent, int32_t token) {
    for (int i = 0; i < draws; i++)
        if (t->draw_parent[i] == parent && t->draw_token[i] == token) return true;
    return false;
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
    for (int i = 0; i < n; i++)
        link_child(t, i);
    // Old indices are read from draw_parent before they are overwritten: `draws` never passes i.
    for (int i = 0; i < t->n_draws; i++) {
        int32_t parent = to[t->draw_parent[i]], token = t->draw_token[i];
        int     child = parent < 0 ? -1 : pl_tree_child(t, parent, token);
        if (child < 0) continue;
        if (!was_drawn(t, draws, parent, token)) t->rank[child] = t->drawn[parent];
        t->drawn[parent]++;
        t->draw_parent[draws] = parent;
        t->draw_token[draws++] = token;
    }
    t->n = n;
    t->n_draws = draws;
}

pl_status pl_tree_policy_parse(pl_tree_policy *p, const char *text, pl_err *err) {
    if (!text || !*text) text = "auto";
    const char *colon = strchr(text, ':');
    size_t      n = colon ? (size_t)(colon - text) : strlen(text);
    char        known[512] = "";
    for (int i = 0; i < KINDS; i++) {
        if (strlen(kinds[i]->name) == n && memcmp(kinds[i]->name, text, n) == 0) {
            *p = (pl_tree_policy){.kind = kinds[i]};
            if (snprintf(p->text, sizeof p->text, "%s", text) >= (int)sizeof p->text)
                return pl_fail(err, PL_E_USAGE, "tree \"%.40s...\": longer than %d characters", text, PL_TREE_TEXT - 1);
            PL_TRY(kinds[i]->parse(p, colon ? colon + 1 : "", err));
            if (p->depth_max < p->depth) p->depth_max = p->depth;
            return PL_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", kinds[i]->syntax);
    }
    return pl_fail(err, PL_E_USAGE, "tree \"%s\" is not known; known are: %s", text, known);
}

void pl_tree_draft(const pl_tree_policy *p, pl_tree *t, int depth, pl_tree_candidates fn, void *arg) {
    static const float even[PL_TREE_GROWN]; // no scores: drafters without them refuse policies that compare scores
    int32_t            id[PL_TREE_GROWN];
    int                frontier[PL_TREE_MAX] = {0}, next[PL_TREE_MAX], n = 1;
    PL_CHECK(p->width <= PL_TREE_MAX && p->width * p->k <= PL_TREE_GROWN && !p->needs_logp, "tree \"%s\"", p->text);
    for (int level = 0; n > 0 && level < depth && level < p->depth; level++) {
        for (int i = 0; i < n; i++)
            fn(arg, p, t, frontier[i], id + i * p->k);
        n = p->kind->grow(p, t, level, frontier, n, id, even, next);
        memcpy(frontier, next, (size_t)n * sizeof *next);
    }
}

void pl_tree_finish(const pl_tree_policy *p, pl_tree *t) {
    if (p->kind->finish) p->kind->finish(p, t);
    PL_CHECK(t->n <= p->max_nodes, "a tree \"%s\" of %d nodes, at most %d", p->kind->name, t->n, p->max_nodes);
}

int pl_tree_expanded(const pl_tree_policy *p) {
    // A tree that drops nodes may have expanded them before.
    return p->kind->finish && p->depth_max > 0 ? 1 + p->width * (p->depth_max - 1) : p->max_nodes;
}

// Returns how many draws of its parent's a node is.
static int times_drawn(const pl_tree *t, int node) {
    int n = 0;
    for (int i = 0; i < t->n_draws; i++)
        n += t->draw_parent[i] == t->parent[node] && t->draw_token[i] == t->token[node];
    return n;
}

int pl_tree_wanted(const pl_tree_policy *p, const pl_tree *t, int node) {
    if (p->shape_n == 0) return p->k;
    if (p->sequences && node > 0) return t->depth[node] < p->depth ? times_drawn(t, node) : 0;
    int32_t path[PL_TREE_MAX];
    int     n = pl_tree_path(t, node, path), s = 0;
    for (int i = 1; i < n; i++)
        s = p->shape_child[s] + t->rank[path[i]];
    return p->shape_children[s];
}

void pl_tree_notes_share(pl_tree *t, double began, double done, const double *share) {
    double all = 0, upto = 0;
    for (int l = 0; l < t->notes.levels; l++)
        all += share ? share[l] : 1;
    for (int l = 0; l < t->notes.levels; l++)
        t->notes.at[l] = began + (done - began) * ((upto += share ? share[l] : 1) / all);
}

const pl_tree_kind *pl_tree_kind_at(int i) {
    return i >= 0 && i < KINDS ? kinds[i] : NULL;
}
