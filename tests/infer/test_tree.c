// Draft trees: what the texts mean, how shapes grow, EAGLE-2, OPT-Tree and beams against plain second opinions, pruning.
#include "infer/tree/tree.h"

#include "kernels/base/rng.h"
#include "kernels/op/frontier.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static pl_tree_policy parse(const char *text) {
    pl_tree_policy p;
    pl_err         err = {0};
    if (pl_tree_policy_parse(&p, text, &err) != PL_OK) fail_msg("%s: %s", text, err.msg);
    return p;
}

static void texts(void **state) {
    (void)state;
    static const struct {
        const char *text, *shape; // shape: as the library writes it
        int         nodes, depth, width, k;
    } good[] = {
        {"chain:5", NULL, 6, 5, 1, 1},
        {"chain:127", NULL, 128, 127, 1, 1},
        {"static:4x2x1", "static:4x2x1", 21, 3, 8, 4},
        {"static:3", "static:3", 4, 1, 1, 3},
        {"static:1x1x1", "chain:3", 4, 3, 1, 1},
        {"static:0", "chain:1", 2, 1, 1, 1},
        {"static:0,0,0,1,1,4", "static:0,0,0,1,1,4", 7, 3, 1, 3},
        {"static:0,1,0,3,3", "static:0,0,1,2,2", 6, 2, 2, 2}, // depth first: the same tree, breadth first
        {"static:2x2x2x2x2", "static:2x2x2x2x2", 63, 5, 16, 2},
        {"eagle2:60,10,6", NULL, 60, 6, 10, 10},
        {"eagle2:128,31,2", NULL, 128, 2, 31, 31},
        {"eagle2:60,2,2", NULL, 7, 2, 2, 2}, // no more than there are
        {"eagle2:2,1,1", NULL, 2, 1, 1, 1},
        {"opt:60,10,6,0.25", NULL, 60, 6, 10, 10},
        {"opt:60,2,2,0", NULL, 7, 2, 2, 2},
        {"beam:4,5", NULL, 21, 5, 4, 4},
        {"beam:32,3,0.5", NULL, 97, 3, 32, 32},
        {"beam:1,127", NULL, 128, 127, 1, 1},
        {"dyspec:32,8,6", NULL, 32, 6, 8, 8},
        {"sequences:4,3", "static:4x1x1", 13, 3, 4, 4},
        {"sequences:1,127", "chain:127", 128, 127, 1, 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        pl_tree_policy p = parse(good[i].text);
        char           shape[PL_TREE_TEXT];
        assert_string_equal(p.text, good[i].text);
        if (p.max_nodes != good[i].nodes || p.depth != good[i].depth || p.width != good[i].width || p.k != good[i].k)
            fail_msg("%s: %d nodes, depth %d, width %d, k %d", p.text, p.max_nodes, p.depth, p.width, p.k);
        assert_int_equal(p.depth_max, p.depth);
        assert_int_equal(p.kind->fixed_shape, strchr("eobd", p.text[0]) == NULL);
        assert_int_equal(p.kind->predictable, strchr("bd", p.text[0]) != NULL);
        assert_true(pl_tree_expanded(&p) >= p.depth && pl_tree_expanded(&p) <= PL_TREE_GROWN);
        if (!good[i].shape) continue;
        pl_tree_shape_text(&p, shape, sizeof shape);
        assert_string_equal(shape, good[i].shape);
        pl_tree_policy again = parse(shape);
        assert_int_equal(again.max_nodes, p.max_nodes);
    }
    static const char *const bad[] = {
        "chain",
        "chain:",
        "chain:0",
        "chain:128",
        "chain:5x",
        "static",
        "static:",
        "static:x",
        "static:4x",
        "static:4x0",
        "static:-1",
        "static:4,2",
        "static:0,2",
        "static:0,,1",
        "static:0,1,",
        "static:4x4x4x4",
        "static:65",
        "static:128",
        "static: 4",
        "static:99999999999999999999",
        "eagle2",
        "eagle2:60,10",
        "eagle2:1,10,6",
        "eagle2:129,10,6",
        "eagle2:60,0,6",
        "eagle2:60,65,1",
        "eagle2:60,10,12",
        "eagle2:60,10,0",
        "eagle2:60,10,6,",
        "eagle2:60,10,6,1",
        "eagle2:60,32,2",
        "eagle2:60,1,128",
        "opt",
        "opt:60,10,6",
        "opt:60,10,6,",
        "opt:60,10,6,x",
        "opt:60,10,6,-1",
        "opt:60,10,6,nan",
        "opt:60,10,6,0.5,",
        "opt:60,10,6,129",
        "opt:1,10,6,0.5",
        "opt:60,32,2,0.5",
        "beam",
        "beam:4",
        "beam:4,",
        "beam:0,5",
        "beam:33,2",
        "beam:4,32",
        "beam:4,0",
        "beam:4,5,1.5",
        "beam:4,5,0.5x",
        "beam:4,5,0.5,1",
        "beam:x,5",
        "beam:4,99999999999",
        "dyspec:32,8",
        "dyspec:1,8,6",
        "dyspec:32,0,6",
        "dyspec:60,32,2",
        "sequences",
        "sequences:4",
        "sequences:0,4",
        "sequences:4,0",
        "sequences:4,32",
        "sequences:65,1",
        "sequences:4x3",
        "sequences:4,3,2",
        "auto:5",
        "tree",
        "chains:5",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_tree_policy p;
        pl_err         err = {0};
        if (pl_tree_policy_parse(&p, bad[i], &err) != PL_E_USAGE) fail_msg("%s: taken", bad[i]);
        assert_true(strstr(err.msg, "tree \"") && !strchr(err.msg, '\n'));
    }
    char          *longer = malloc(2000);
    pl_err         err = {0};
    pl_tree_policy p;
    strcpy(longer, "static:0");
    while (strlen(longer) < 1000)
        strcat(longer, ",0");
    assert_int_equal(pl_tree_policy_parse(&p, longer, &err), PL_E_USAGE);
    free(longer);
    for (int i = 0; pl_tree_kind_at(i); i++) { // the message of an unknown tree names every kind
        const pl_tree_kind *k = pl_tree_kind_at(i);
        assert_int_equal(pl_tree_policy_parse(&p, "oak", &err), PL_E_USAGE);
        assert_non_null(strstr(err.msg, k->syntax));
        assert_true(k->help && *k->help);
    }
    p = parse(NULL);
    assert_true(p.adapt && p.kind == &pl_tree_auto && p.k > 1);
    // Before anything is known drafts do not end early.
    p = parse("chain:confidence");
    static pl_tree unsure;
    int            node = 0;
    pl_tree_root(&unsure, 1);
    for (int l = 0; l < 3; l++)
        assert_int_equal(p.kind->grow(&p, &unsure, l, &node, 1, &(int32_t){7}, &(float){-9}, &node), l < 2);
    assert_int_equal(unsure.n, 4);
    assert_false(unsure.notes.stopped);
    p.least[0] = -8;
    pl_tree_root(&unsure, 1);
    assert_int_equal(p.kind->grow(&p, &unsure, 0, &(int){0}, 1, &(int32_t){7}, &(float){-9}, &node), 0);
    assert_true(unsure.n == 2 && unsure.notes.stopped);
    p = parse("chain:auto");
    assert_true(p.adapt && p.k == 1 && p.width == 1 && p.depth <= p.depth_max);
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

// Drafts as a drafter does: candidates of each node by `pick`, until nothing is left to expand.
typedef int32_t (*pick_fn)(void *arg, const pl_tree *t, int node, int rank, float *logp);

static void draft(const pl_tree_policy *p, pl_tree *t, pick_fn pick, void *arg) {
    int      frontier[PL_TREE_MAX] = {0}, next[PL_TREE_MAX], n = 1;
    int32_t *id = malloc(PL_TREE_GROWN * sizeof *id * 4);
    float   *logp = malloc(PL_TREE_GROWN * sizeof *logp * 4);
    pl_tree_root(t, 1);
    for (int level = 0; n > 0 && level < p->depth; level++) {
        for (int i = 0; i < n; i++)
            for (int r = 0; r < p->k; r++)
                id[i * p->k + r] = pick(arg, t, frontier[i], r, &logp[i * p->k + r]);
        n = p->kind->grow(p, t, level, frontier, n, id, logp, next);
        assert_true(n <= p->width);
        memcpy(frontier, next, sizeof next);
    }
    pl_tree_finish(p, t);
    free(id);
    free(logp);
}

static int32_t distinct(void *arg, const pl_tree *t, int node, int rank, float *logp) {
    (void)arg, (void)t;
    *logp = -0.5f;
    return 100 + 10 * node + rank;
}

static void shapes_grow(void **state) {
    (void)state;
    static const char *const text[] = {"static:4x2x1", "static:0,0,0,1,1,4", "static:0,1,0,3,3", "static:1x1x1x1"};
    pl_tree                 *t = malloc(sizeof *t);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        pl_tree_policy p = parse(text[i]);
        draft(&p, t, distinct, NULL);
        assert_int_equal(t->n, p.shape_n);
        for (int n = 1; n < t->n; n++) { // nodes come in the shape's own order
            assert_int_equal(t->parent[n], p.shape_parent[n]);
            assert_int_equal(t->rank[n], p.shape_rank[n]);
            assert_int_equal(t->token[n], 100 + 10 * t->parent[n] + t->rank[n]);
            assert_true(t->score[n] == -0.5f * (float)t->depth[n]);
        }
    }
    free(t);
}

// Node 0 offers 7, 7, 8, 9; others: few candidates, then none.
static int32_t repeating(void *arg, const pl_tree *t, int node, int rank, float *logp) {
    static const int32_t root[] = {7, 7, 8, 9};
    (void)arg;
    *logp = 0;
    if (node == 0) return root[rank];
    return t->token[node] == 8 ? (rank == 0 ? 20 : -1) : 30 + rank % 2;
}

static void repeats_stay_one_node(void **state) {
    (void)state;
    // Children of the root's candidates: 1, 2, 3 and 0 of them.
    pl_tree_policy p = parse("static:0,0,0,0,1,2,2,3,3,3");
    pl_tree       *t = malloc(sizeof *t);
    int32_t        draws[PL_TREE_MAX];
    draft(&p, t, repeating, NULL);
    // 7 keeps the place of its first draw (1 child); the second place's subtree is dropped; 8's list ends after 20.
    static const int32_t token[] = {1, 7, 8, 9, 30, 20}, parent[] = {-1, 0, 0, 0, 1, 2}, rank[] = {0, 0, 2, 3, 0, 0};
    assert_int_equal(t->n, 6);
    for (int i = 0; i < t->n; i++) {
        assert_int_equal(t->token[i], token[i]);
        assert_int_equal(t->parent[i], parent[i]);
        assert_int_equal(t->rank[i], rank[i]);
    }
    assert_int_equal(pl_tree_draws(t, 0, draws), 4); // the repetition counts as a draw
    assert_true(draws[0] == 7 && draws[1] == 7 && draws[2] == 8 && draws[3] == 9);
    assert_int_equal(pl_tree_draws(t, 1, draws), 1);
    // How many draws a node wants follows from its place alone.
    assert_int_equal(pl_tree_wanted(&p, t, 0), 4);
    assert_int_equal(pl_tree_wanted(&p, t, 1), 1);
    assert_int_equal(pl_tree_wanted(&p, t, 2), 3);
    assert_int_equal(pl_tree_wanted(&p, t, 3), 0);
    free(t);
}

typedef struct dice {
    pl_rng   r;
    uint64_t at;
    int      vocab, levels; // scores: multiples of 1/levels, so that equal ones abound
} dice;

static int32_t random_draw(void *arg, const pl_tree *t, int node, int rank, float *logp) {
    dice *d = arg;
    (void)t, (void)node, (void)rank;
    *logp = 0;
    return (int32_t)pl_rng_below(d->r, d->at++, (uint64_t)d->vocab);
}

// The number of draws below a node is its place's, and its place is that of its token's first draw: so it is known
// before the draws are made, whatever comes out.
static void draws_do_not_depend_on_values(void **state) {
    (void)state;
    pl_tree_policy p = parse("static:3x3x2");
    pl_tree       *t = malloc(sizeof *t);
    dice           d = {.r = pl_rng_make(5, PL_STREAM_TEST, 0), .vocab = 3};
    int            merged = 0;
    for (int k = 0; k < 200; k++) {
        draft(&p, t, random_draw, &d);
        merged += t->n < p.shape_n;
        for (int i = 0; i < t->n; i++) {
            int32_t draw[PL_TREE_MAX], n = pl_tree_draws(t, i, draw), first = 0, up[PL_TREE_MAX];
            assert_int_equal(n, t->depth[i] == p.depth ? 0 : t->depth[i] == 2 ? 2 : 3);
            assert_int_equal(n, t->drawn[i]);
            if (i == 0) continue;
            int m = pl_tree_draws(t, t->parent[i], up);
            while (first < m && up[first] != t->token[i])
                first++;
            assert_int_equal(first, t->rank[i]);
            for (int j = 0; j < i; j++)
                assert_false(t->parent[j] == t->parent[i] && t->token[j] == t->token[i]);
        }
    }
    assert_true(merged > 100);
    free(t);
}

// ---- EAGLE-2 --------------------------------------------------------------------------------------------------------

// Candidates are a function of the path, so that the second opinion sees the same drafter.
static uint64_t path_key(const int32_t *path, int n) {
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < n; i++)
        h = (h ^ (uint64_t)path[i]) * 1099511628211u;
    return h >> 7;
}

static float path_logp(const dice *d, const int32_t *path, int n, int rank) {
    // Falling with the rank; equal steps are common, and some steps are 0.
    float s = 0;
    for (int r = 0; r <= rank; r++)
        s -= (float)pl_rng_below(d->r, path_key(path, n) + 131 * (uint64_t)r, (uint64_t)d->levels) / 8;
    return s;
}

static int32_t scored(void *arg, const pl_tree *t, int node, int rank, float *logp) {
    int32_t at[PL_TREE_MAX], path[PL_TREE_MAX];
    int     n = pl_tree_path(t, node, at);
    for (int i = 0; i < n; i++)
        path[i] = t->token[at[i]];
    *logp = path_logp(arg, path, n, rank);
    return 10 + rank;
}

typedef struct candidate {
    int32_t path[8]; // root first
    int     n, index;
    float   score;
} candidate;

static int by_score(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index - y->index;
}

static int by_index(const void *a, const void *b) {
    return ((const candidate *)a)->index - ((const candidate *)b)->index;
}

// The algorithm as the paper has it, on plain lists.
static int oracle(const dice *d, int nodes, int width, int depth, candidate *all) {
    candidate *level = malloc(4096 * sizeof *level), beam[64];
    int        n = 0, n_beam = 1;
    beam[0] = (candidate){.path = {1}, .n = 1};
    for (int l = 0; l < depth; l++) {
        int m = 0;
        for (int b = 0; b < n_beam; b++)
            for (int r = 0; r < width; r++) {
                candidate c = beam[b];
                c.score += path_logp(d, c.path, c.n, r);
                c.path[c.n++] = 10 + r;
                c.index = n;
                all[n++] = level[m++] = c;
            }
        qsort(level, (size_t)m, sizeof *level, by_score);
        n_beam = m < width ? m : width;
        memcpy(beam, level, (size_t)n_beam * sizeof *beam);
    }
    qsort(all, (size_t)n, sizeof *all, by_score);
    if (n > nodes - 1) n = nodes - 1;
    qsort(all, (size_t)n, sizeof *all, by_index);
    free(level);
    return n;
}

static void is_wanted(const pl_tree *t, const candidate *want, int n, const char *what) {
    assert_int_equal(t->n, n + 1);
    for (int i = 1; i < t->n; i++) {
        int32_t at[PL_TREE_MAX];
        int     m = pl_tree_path(t, i, at);
        assert_int_equal(m, want[i - 1].n);
        for (int j = 0; j < m; j++)
            if (t->token[at[j]] != want[i - 1].path[j]) fail_msg("%s: node %d differs", what, i);
        assert_true(t->score[i] == want[i - 1].score);
    }
}

static double sum_of(const candidate *c, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp((double)c[i].score);
    return sum;
}

// The same tree, as many levels as each add 0.3 tokens; DySpec's of chosen nodes.
static void opt_ends_where_little_is_gained(void **state) {
    (void)state;
    pl_tree   *t = malloc(sizeof *t);
    candidate *want = malloc(PL_TREE_GROWN * sizeof *want);
    int        ended = 0;
    for (uint64_t k = 0; k < 100; k++) {
        dice           d = {.r = pl_rng_make(12, PL_STREAM_TEST, k), .levels = 4 + (int)(k % 9)};
        pl_tree_policy p = parse("opt:12,4,6,0.3"), dyspec = parse("dyspec:12,4,6");
        int            depth = 0, n = 0;
        for (double before = 0, after = 0; depth < 6 && (depth == 0 || after - before >= 0.3); depth++) {
            before = after;
            n = oracle(&d, 12, 4, depth + 1, want);
            after = sum_of(want, n);
        }
        draft(&p, t, scored, &d);
        is_wanted(t, want, n, p.text);
        ended += depth < 6;
        draft(&dyspec, t, scored, &d);
        is_wanted(t, want, oracle(&d, 12, 4, 6, want), dyspec.text);
    }
    assert_true(ended > 20 && ended < 100);
    free(t);
    free(want);
}

// Beam search on plain lists: the best `width` of each level, all of which are kept. gain: see pl_tree_beam.
static int beam_oracle(const dice *d, int width, int depth, double gain, candidate *all) {
    candidate beam[64] = {{.path = {1}, .n = 1}}, level[1024];
    int       n = 0, n_beam = 1;
    for (int l = 0; l < depth; l++) {
        int m = 0;
        for (int b = 0; b < n_beam; b++)
            for (int r = 0; r < width; r++) {
                candidate c = beam[b];
                c.score += path_logp(d, c.path, c.n, r);
                c.path[c.n++] = 10 + r;
                c.index = m;
                level[m++] = c;
            }
        qsort(level, (size_t)m, sizeof *level, by_score);
        n_beam = m < width ? m : width;
        memcpy(beam, level, (size_t)n_beam * sizeof *beam);
        memcpy(all + n, level, (size_t)n_beam * sizeof *all);
        n += n_beam;
        if (sum_of(level, n_beam) < gain) break;
    }
    return n;
}

static void beams_keep_the_best_of_each_level(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int         width, depth;
        double      gain;
    } of[] = {{"beam:4,5", 4, 5, 0}, {"beam:1,6", 1, 6, 0}, {"beam:20,2", 20, 2, 0}, {"beam:3,6,0.9", 3, 6, 0.9}};
    pl_tree   *t = malloc(sizeof *t);
    candidate *want = malloc(PL_TREE_GROWN * sizeof *want);
    int        ended = 0;
    for (uint64_t k = 0; k < 200; k++) {
        dice           d = {.r = pl_rng_make(13, PL_STREAM_TEST, k), .levels = 2 + (int)(k % 9)};
        pl_tree_policy p = parse(of[k % 4].text);
        int            n = beam_oracle(&d, of[k % 4].width, of[k % 4].depth, of[k % 4].gain, want);
        draft(&p, t, scored, &d);
        is_wanted(t, want, n, p.text);
        ended += t->n < p.max_nodes;
    }
    assert_true(ended > 10 && ended < 50);
    free(t);
    free(want);
}

static void eagle2_is_the_papers(void **state) {
    (void)state;
    pl_tree         *t = malloc(sizeof *t);
    candidate       *want = malloc(PL_TREE_GROWN * sizeof *want);
    static const int config[][3] = {{60, 10, 6}, {8, 4, 7},  {128, 8, 7}, {12, 1, 5},
                                    {5, 3, 1},   {32, 2, 6}, {20, 20, 2}};
    int              ties = 0, deep = 0;
    for (uint64_t k = 0; k < 300; k++) {
        const int *c = config[k % 7];
        char       text[64];
        dice       d = {.r = pl_rng_make(11, PL_STREAM_TEST, k), .levels = 2 + (int)(k % 5)};
        snprintf(text, sizeof text, "eagle2:%d,%d,%d", c[0], c[1], c[2]);
        pl_tree_policy p = parse(text);
        draft(&p, t, scored, &d);
        is_wanted(t, want, oracle(&d, c[0], c[1], c[2], want), text);
        for (int i = 1; i < t->n; i++) {
            for (int j = 1; j < i; j++)
                ties += t->score[j] == t->score[i];
            deep += t->depth[i] > 2;
        }
    }
    assert_true(ties > 1000 && deep > 1000);
    free(t);
    free(want);
}

// Rounding may leave a log-probability a hair above 0: the tree stays closed under ancestors.
static int32_t above_zero(void *arg, const pl_tree *t, int node, int rank, float *logp) {
    (void)arg, (void)t, (void)node;
    *logp = rank ? -5 : 1e-6f;
    return 10 + rank;
}

static void eagle2_keeps_ancestors(void **state) {
    (void)state;
    pl_tree       *t = malloc(sizeof *t);
    pl_tree_policy p = parse("eagle2:4,3,5"); // the deeper ones must not push their ancestors out
    draft(&p, t, above_zero, NULL);
    assert_int_equal(t->n, 4);
    for (int i = 1; i < t->n; i++)
        assert_int_equal(t->parent[i], i - 1);
    free(t);
}

// ---- pruning --------------------------------------------------------------------------------------------------------

static void pruning(void **state) {
    (void)state;
    pl_tree *t = malloc(sizeof *t), *old = malloc(sizeof *old);
    pl_rng   r = pl_rng_make(3, PL_STREAM_TEST, 1);
    uint64_t at = 0;
    for (int k = 0; k < 200; k++) {
        bool    keep[PL_TREE_GROWN] = {true};
        int     to[PL_TREE_GROWN], n = 1, size = 2 + (int)pl_rng_below(r, at++, 60);
        int32_t a[PL_TREE_MAX], b[PL_TREE_MAX], want[PL_TREE_MAX];
        pl_tree_root(t, 1);
        for (int i = 0; i < size; i++) // five tokens: some are offered twice
            pl_tree_add(t, (int)pl_rng_below(r, at + 2 * (uint64_t)i, (uint64_t)t->n),
                        (int32_t)pl_rng_below(r, at + 2 * (uint64_t)i + 1, 5), (float)i);
        at += 2 * (uint64_t)size;
        *old = *t;
        to[0] = 0;
        for (int i = 1; i < t->n; i++) {
            keep[i] = keep[t->parent[i]] && pl_rng_below(r, at++, 4) > 0;
            to[i] = keep[i] ? n++ : -1;
        }
        pl_tree_prune(t, keep);
        assert_int_equal(t->n, n);
        for (int i = 0; i < old->n; i++) {
            if (to[i] < 0) continue;
            int x = to[i], m = pl_tree_draws(old, i, a), left = 0;
            assert_true(t->token[x] == old->token[i] && t->depth[x] == old->depth[i] && t->score[x] == old->score[i]);
            assert_int_equal(t->parent[x], i ? to[old->parent[i]] : -1);
            for (int j = 0; j < m; j++) { // the draws of kept children, in order
                int child = to[pl_tree_child(old, i, a[j])];
                assert_int_equal(pl_tree_child(t, x, a[j]), child);
                if (child >= 0) want[left++] = a[j];
            }
            assert_int_equal(pl_tree_draws(t, x, b), left);
            assert_int_equal(t->drawn[x], left);
            assert_memory_equal(b, want, (size_t)left * sizeof *b);
            for (int j = left - 1; j >= 0; j--) { // the rank is the first draw's
                bool again = false;
                for (int h = 0; h < j; h++)
                    again |= b[h] == b[j];
                if (!again) assert_int_equal(t->rank[pl_tree_child(t, x, b[j])], j);
            }
        }
    }
    free(t);
    free(old);
}

// ---- what a device chooses while nobody waits for it ----------------------------------------------------------------

// Which candidate of the frontier's a node is.
static int32_t pick_of(const pl_tree *t, const int *frontier, int n, int k, int node) {
    for (int f = 0; f < n; f++)
        if (frontier[f] == t->parent[node]) return f * k + t->rank[node];
    fail_msg("node %d hangs under no frontier node", node);
    return -1;
}

static void shapes_say_ahead(void **state) {
    (void)state;
    pl_tree *t = malloc(sizeof *t);
    int      wide = 0;
    for (uint64_t i = 0; i < 400; i++) {
        pl_rng         r = pl_rng_make(21, PL_STREAM_TEST, i);
        int32_t        parent[PL_TREE_MAX], pick[PL_TREE_MAX], id[PL_TREE_GROWN];
        int            frontier[PL_TREE_MAX] = {0}, next[PL_TREE_MAX], n = 1, nodes = 2 + (int)pl_rng_below(r, 0, 30);
        float          logp[PL_TREE_GROWN];
        pl_tree_policy p = parse(i % 3 ? "static:2x2" : "chain:6");
        for (int j = 1; j < nodes; j++)
            parent[j] = (int32_t)pl_rng_below(r, (uint64_t)j, (uint64_t)j);
        if (i % 3) {
            pl_tree_shape_set(&p, nodes, parent);
            pl_tree_shape_size(&p, &p.depth, &p.width, &p.k);
            p.k += (int)(i % 2); // more candidates than any node has children
            p.max_nodes = nodes;
        }
        pl_tree_root(t, 1);
        for (int level = 0; n > 0 && level < p.depth; level++) {
            for (int f = 0; f < n; f++)
                for (int c = 0; c < p.k; c++)
                    id[f * p.k + c] = distinct(NULL, t, frontier[f], c, &logp[f * p.k + c]);
            int m = p.kind->grow(&p, t, level, frontier, n, id, logp, next);
            if (level + 1 < p.depth) assert_int_equal(p.kind->ahead(&p, level, n, pick), m);
            for (int j = 0; j < m && level + 1 < p.depth; j++)
                assert_int_equal(pick[j], pick_of(t, frontier, n, p.k, next[j]));
            wide += m > 1;
            memcpy(frontier, next, sizeof next);
            n = m;
        }
    }
    assert_true(wide > 100);
    free(t);
}

// Logits with ties, log-sum-exps that leave some log-probabilities above 0, lists that end early.
static void make_level(pl_rng r, int n, int k, int32_t *id, float *value, float *lse) {
    for (int f = 0; f < n; f++) {
        uint64_t at = (uint64_t)f * 1000;
        int      held = pl_rng_below(r, at, 3) ? k : (int)pl_rng_below(r, at + 1, (uint64_t)k + 1);
        lse[f] = 0.25f + 0.5f * (float)pl_rng_below(r, at + 2, 3);
        for (int c = 0; c < k; c++) {
            id[f * k + c] = c < held ? (int32_t)(at % 7) + 11 * c : -1;
            value[f * k + c] = c < held ? 0.5f - 0.3f * (float)c * (float)pl_rng_below(r, at + 3, 3) : -INFINITY;
        }
    }
}

static void best_scores_are_what_grows(void **state) {
    (void)state;
    static int32_t id[PL_TREE_GROWN];
    static float   value[PL_TREE_GROWN], lse[PL_TREE_MAX], logp[PL_TREE_GROWN];
    pl_tree       *t = malloc(sizeof *t);
    pl_ctx         ctx;
    int            missing = 0, there = 0;
    assert_int_equal(pl_ctx_init(&ctx, pl_backend_ref(), NULL), PL_OK);
    assert_int_equal(pl_arena_reserve(&ctx.frame, 1 << 20, NULL), PL_OK);
    for (uint64_t i = 0; i < 200; i++) {
        static const char *const text[] = {"eagle2:60,3,8", "eagle2:60,10,6", "beam:10,6", "dyspec:60,10,6"};
        pl_tree_policy           p = parse(text[i % 4]);
        pl_frontier_rows         at = {0};
        pl_frontier_group        g = {.rows = 1, .slot = 40};
        int                      frontier[PL_TREE_MAX] = {0}, next[PL_TREE_MAX], real[PL_TREE_MAX] = {0}, n = 1;
        pl_ctx_begin(&ctx);
        pl_tree_root(t, 1);
        assert_true(p.kind->by_score && !p.kind->ahead);
        for (int level = 0; n > 0 && level < p.depth; level++) {
            make_level(pl_rng_make(22, PL_STREAM_TEST, i * 16 + (uint64_t)level), g.rows, p.k, id, value, lse);
            g.width = p.width;
            pl_frontier_args a = {.group = &g,
                                  .id = id,
                                  .value = value,
                                  .lse = lse,
                                  .at = at,
                                  .n_groups = 1,
                                  .k = p.k,
                                  .n = g.width,
                                  .depth = level};
            pl_frontier(&ctx, &a);
            int32_t own[PL_TREE_GROWN]; // the candidates of the rows that are there
            for (int f = 0; f < n; f++)
                for (int c = 0; c < p.k; c++) {
                    own[f * p.k + c] = id[real[f] * p.k + c];
                    logp[f * p.k + c] = value[real[f] * p.k + c] - lse[real[f]];
                }
            int m = p.kind->grow(&p, t, level, frontier, n, own, logp, next);
            for (int j = 0; j < g.width; j++) {
                if (j >= m) {
                    assert_true(a.next.picked[j] == -1 && a.next.token[j] == (m > 0 ? a.next.token[0] : -1));
                    missing++;
                    continue;
                }
                int32_t pick = pick_of(t, frontier, n, p.k, next[j]);
                assert_int_equal(a.next.token[j], t->token[next[j]]);
                assert_int_equal(a.next.picked[j], real[pick / p.k] * p.k + pick % p.k);
                assert_memory_equal(&a.next.score[j], &t->score[next[j]], sizeof(float));
                there++;
            }
            for (int j = 0; j < m; j++)
                real[j] = j;
            memcpy(frontier, next, sizeof next);
            at = a.next;
            g.rows = g.width;
            n = m;
        }
    }
    assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
    assert_true(missing > 100 && there > 1000);
    pl_ctx_fini(&ctx);
    free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(shapes_grow),
        cmocka_unit_test(repeats_stay_one_node),
        cmocka_unit_test(draws_do_not_depend_on_values),
        cmocka_unit_test(eagle2_is_the_papers),
        cmocka_unit_test(opt_ends_where_little_is_gained),
        cmocka_unit_test(beams_keep_the_best_of_each_level),
        cmocka_unit_test(eagle2_keeps_ancestors),
        cmocka_unit_test(pruning),
        cmocka_unit_test(shapes_say_ahead),
        cmocka_unit_test(best_scores_are_what_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
