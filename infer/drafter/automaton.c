#include "infer/drafter/automaton.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/hash.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LONGEST PL_AUTOMATON_LONGEST
#define CHILDREN 8 // children of a node, at most

typedef struct state {
    int32_t len, link, count, first; // length of its longest string, suffix link, number of occurrences, index of its
                                     // newest edge
} state;

typedef struct edge {
    int32_t from, token, to, sibling;
} edge;

struct pl_automaton {
    int64_t   n, most; // tokens
    int32_t  *text;    // [most]
    state    *state;   // [2 most + 2]
    edge     *edge;    // [3 most + 4]
    int32_t  *table;   // [size] hash table by origin and token: 1 + index of the edge; 0: free
    int64_t   size;
    int32_t   states, edges, last;
    pl_suffix end; // the last tokens of the text, at most LONGEST of them
};

// ---- edges ----------------------------------------------------------------------------------------------------------

static int32_t *find_entry(const pl_automaton *a, int32_t from, int32_t token) {
    int32_t key[2] = {from, token};
    int64_t at = (int64_t)(pl_hash_key(key, sizeof key) & (uint64_t)(a->size - 1));
    for (; a->table[at]; at = (at + 1) & (a->size - 1)) {
        const edge *e = &a->edge[a->table[at] - 1];
        if (e->from == from && e->token == token) break;
    }
    return &a->table[at];
}

// Returns NULL if there is no such edge.
static edge *edge_of(const pl_automaton *a, int32_t from, int32_t token) {
    int32_t at = *find_entry(a, from, token);
    return at ? &a->edge[at - 1] : NULL;
}

static void add_edge(pl_automaton *a, int32_t from, int32_t token, int32_t to) {
    int32_t *at = find_entry(a, from, token);
    a->edge[a->edges] = (edge){.from = from, .token = token, .to = to, .sibling = a->state[from].first};
    a->state[from].first = a->edges++;
    *at = a->edges;
}

static int32_t add_state(pl_automaton *a, int32_t len, int32_t link, int32_t count) {
    a->state[a->states] = (state){.len = len, .link = link, .count = count, .first = -1};
    return a->states++;
}

// ---- create and destroy ---------------------------------------------------------------------------------------------

pl_status pl_automaton_create(pl_automaton **out, int64_t tokens, pl_err *err) {
    *out = NULL;
    PL_CHECK(tokens >= 1 && tokens < INT32_MAX / 4, "an automaton of %lld tokens", (long long)tokens);
    pl_automaton *a = pl_calloc(1, sizeof *a);
    if (!a) return pl_fail(err, PL_E_MEMORY, "suffixes of %lld tokens: out of memory", (long long)tokens);
    size_t n = (size_t)tokens;
    a->most = tokens;
    a->size = 16;
    while (a->size < 4 * tokens + 8) // keeps the table at most 3/4 full
        a->size *= 2;
    a->text = pl_calloc(n, sizeof *a->text);
    a->state = pl_calloc(2 * n + 2, sizeof *a->state);
    a->edge = pl_calloc(3 * n + 4, sizeof *a->edge);
    a->table = pl_calloc((size_t)a->size, sizeof *a->table);
    if (!a->text || !a->state || !a->edge || !a->table) {
        pl_automaton_destroy(a);
        return pl_fail(err, PL_E_MEMORY, "suffixes of %lld tokens: out of memory", (long long)tokens);
    }
    pl_automaton_clear(a);
    *out = a;
    return PL_OK;
}

void pl_automaton_destroy(pl_automaton *a) {
    if (!a) return;
    pl_free(a->text);
    pl_free(a->state);
    pl_free(a->edge);
    pl_free(a->table);
    pl_free(a);
}

void pl_automaton_clear(pl_automaton *a) {
    memset(a->table, 0, (size_t)(a->edges || a->n ? a->size : 0) * sizeof *a->table);
    a->n = 0;
    a->states = a->edges = a->last = 0;
    a->end = (pl_suffix){0};
    add_state(a, 0, -1, 0);
}

int64_t pl_automaton_tokens(const pl_automaton *a) {
    return a->n;
}

const int32_t *pl_automaton_text(const pl_automaton *a) {
    return a->text;
}

int64_t pl_automaton_room(const pl_automaton *a) {
    return a->most - a->n;
}

// ---- growing --------------------------------------------------------------------------------------------------------

// Returns the state that holds the string s now: a split moves short strings to a new state, and strings get cut.
static pl_suffix find_holder(const pl_automaton *a, pl_suffix s) {
    while (s.state > 0 && a->state[a->state[s.state].link].len >= s.length)
        s.state = a->state[s.state].link;
    return s;
}

static pl_suffix shorten_to(const pl_automaton *a, pl_suffix s, int32_t most) {
    if (s.length > most) s.length = most;
    return find_holder(a, s);
}

// Returns the string extended by `token`, which must be one of its followers.
static pl_suffix extend(const pl_automaton *a, pl_suffix s, int32_t token) {
    const edge *e = edge_of(a, find_holder(a, s).state, token);
    PL_CHECK(e, "token %d does not follow", token);
    return (pl_suffix){.state = e->to, .length = s.length + 1};
}

// Splits state q, which is reached by an edge that skips tokens: its shorter strings move to a new state.
static int32_t split_state(pl_automaton *a, int32_t p, int32_t token, int32_t q) {
    int32_t clone = add_state(a, a->state[p].len + 1, a->state[q].link, a->state[q].count), order = -1;
    // Keeps the edges in order: reverses the list, then prepends its edges one by one.
    for (int32_t e = a->state[q].first; e >= 0; e = a->edge[e].sibling) {
        int32_t to = a->edge[e].to, t = a->edge[e].token;
        add_edge(a, clone, t, to);
    }
    for (int32_t e = a->state[clone].first, next; e >= 0; e = next) {
        next = a->edge[e].sibling;
        a->edge[e].sibling = order;
        order = e;
    }
    a->state[clone].first = order;
    a->state[q].link = clone;
    for (edge *e; p >= 0 && (e = edge_of(a, p, token)) && e->to == q; p = a->state[p].link)
        e->to = clone;
    return clone;
}

void pl_automaton_add(pl_automaton *a, int32_t token) {
    PL_CHECK(a->n < a->most, "more than %lld tokens", (long long)a->most);
    int32_t p = a->last, now = add_state(a, a->state[p].len + 1, 0, 0);
    edge   *e = NULL;
    a->text[a->n++] = token;
    for (; p >= 0 && !(e = edge_of(a, p, token)); p = a->state[p].link)
        add_edge(a, p, token, now);
    if (p >= 0)
        a->state[now].link = a->state[p].len + 1 == a->state[e->to].len ? e->to : split_state(a, p, token, e->to);
    a->last = now;
    a->end = shorten_to(a, extend(a, a->end, token), LONGEST);
    for (int32_t s = a->end.state; s > 0; s = a->state[s].link)
        a->state[s].count++;
}

// ---- searching ------------------------------------------------------------------------------------------------------

pl_suffix pl_automaton_repeated(const pl_automaton *a) {
    pl_suffix s = find_holder(a, a->end);
    while (s.state > 0 && a->state[s.state].count < 2) {
        s.state = a->state[s.state].link;
        s.length = a->state[s.state].len;
    }
    return s;
}

pl_suffix pl_automaton_find(const pl_automaton *a, const int32_t *tokens, int64_t n) {
    pl_suffix s = {0};
    for (int64_t i = n > LONGEST ? n - LONGEST : 0; i < n; i++) {
        const edge *e;
        while (!(e = edge_of(a, s.state, tokens[i])) && s.state > 0) {
            s.state = a->state[s.state].link;
            s.length = a->state[s.state].len;
        }
        if (e) s = (pl_suffix){.state = e->to, .length = s.length + 1};
    }
    return find_holder(a, s);
}

int pl_automaton_next(const pl_automaton *a, pl_suffix *s, int k, int32_t *token, int32_t *count, int64_t *all) {
    int n = 0;
    *all = 0;
    // A continuation is one token longer than s and needs an exact count, so s is cut to LONGEST - 1.
    for (*s = shorten_to(a, *s, LONGEST - 1); s->state > 0;
         s->state = a->state[s->state].link, *s = (pl_suffix){s->state, a->state[s->state].len}) {
        for (int32_t i = a->state[s->state].first; i >= 0; i = a->edge[i].sibling) {
            int32_t c = a->state[a->edge[i].to].count;
            *all += c;
            if (a->edge[i].token < 0 || (n == k && c <= count[n - 1])) continue;
            int at = n < k ? n++ : n - 1;
            for (; at > 0 && c > count[at - 1]; at--) {
                count[at] = count[at - 1];
                token[at] = token[at - 1];
            }
            count[at] = c;
            token[at] = a->edge[i].token;
        }
        if (n > 0) return n;
        *all = 0;
    }
    *s = (pl_suffix){0};
    return 0;
}

// ---- drafting -------------------------------------------------------------------------------------------------------

static double share_of(int32_t count, int64_t all, int32_t length) {
    return count / ((double)all + PL_AUTOMATON_DOUBT / length);
}

// A tree node's string as a position in the automaton.
typedef struct grown {
    const pl_automaton *a;
    pl_suffix           at[PL_TREE_MAX];
    int                 n[PL_TREE_MAX];
    int32_t             token[PL_TREE_MAX][CHILDREN];
    double              p[PL_TREE_MAX][CHILDREN];
} grown;

static void look_behind(grown *g, int node, int k) {
    int32_t count[CHILDREN];
    int64_t all;
    g->n[node] = pl_automaton_next(g->a, &g->at[node], k < CHILDREN ? k : CHILDREN, g->token[node], count, &all);
    for (int r = 0; r < g->n[node]; r++)
        g->p[node][r] = share_of(count[r], all, g->at[node].length);
}

static void grow_best_first(grown *g, int nodes, int depth, pl_tree *t) {
    double f[PL_TREE_MAX] = {1};
    int    taken[PL_TREE_MAX] = {0};
    look_behind(g, 0, CHILDREN);
    for (int i = 1; i <= nodes; i++) {
        int    best = -1;
        double most = PL_AUTOMATON_LEAST;
        for (int x = 0; x < t->n; x++) {
            if (t->depth[x] >= depth || taken[x] >= g->n[x] || f[x] * g->p[x][taken[x]] <= most) continue;
            best = x;
            most = f[x] * g->p[x][taken[x]];
        }
        if (best < 0) break;
        int32_t token = g->token[best][taken[best]++];
        int     node = pl_tree_add(t, best, token, (float)log(most));
        f[node] = most;
        g->at[node] = extend(g->a, g->at[best], token);
        look_behind(g, node, CHILDREN);
    }
}

// Candidates for pl_tree_draft, which requests each node after its parent.
static void give_candidates(void *arg, const pl_tree_policy *p, const pl_tree *t, int node, int32_t *id) {
    grown *g = arg;
    if (node > 0) g->at[node] = extend(g->a, g->at[t->parent[node]], t->token[node]);
    look_behind(g, node, p->k);
    for (int r = 0; r < p->k; r++)
        id[r] = r < g->n[node] ? g->token[node][r] : -1;
}

void pl_automaton_draft(const pl_automaton *a, pl_suffix s, const pl_tree_policy *policy, int nodes, int depth,
                        pl_tree *t) {
    grown g;
    PL_CHECK(nodes < PL_TREE_MAX, "%d nodes", nodes);
    if (s.length == 0) return;
    g.a = a;
    g.at[0] = s;
    if (policy)
        pl_tree_draft(policy, t, depth, give_candidates, &g);
    else
        grow_best_first(&g, nodes, depth, t);
    for (int i = 1; i < t->n && policy; i++)
        t->score[i] = t->score[t->parent[i]] + (float)log(g.p[t->parent[i]][t->rank[i]]);
}

// Only names the shape: pl_automaton_draft builds such trees whole.
static const pl_tree_kind most_frequent = {.name = "frequent", .syntax = "", .help = "", .fixed_shape = true};

pl_status pl_automaton_shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, int nodes, const char *tree,
                             pl_err *err) {
    if (!tree || !*tree) {
        *p = (pl_tree_policy){.kind = &most_frequent, .k = 1, .width = 1, .max_nodes = nodes + 1};
        p->depth = p->depth_max = nodes;
        snprintf(name, PL_TREE_TEXT, "%d nodes", nodes);
        memcpy(p->text, name, strlen(name) + 1);
        return PL_OK;
    }
    PL_TRY(pl_tree_policy_parse(p, tree, err));
    if (!p->needs_logp && p->k <= CHILDREN) return PL_OK;
    return pl_fail(err, PL_E_USAGE,
                   "drafter \"%s\" drafts chains and trees of a given shape with at most %d children, not \"%s\"; "
                   "leave --tree out for its own",
                   who, CHILDREN, tree);
}
