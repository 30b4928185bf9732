// Token recycling (Luo et al. 2024, "Turning Trash into Treasure", arXiv 2408.08696): drafts after a token the
// candidates that the target had there the last time it read that token.
//
//   "recycle[:NODES[,keep[=FILE]]]"   NODES (4) drafted tokens
//   adjacency [V][8]           the target's 8 best tokens after each token, -1 if the token has not been read
//   drafting                   a tree of fixed shape: node i is candidate rank[i] of its parent's token; a node without
//                              candidate is left out with its subtree
//   after each forward (in a hybrid: of steps in which FREE drafts)
//                              adjacency[token] := top-8 of its row of logits, for every row that has logits, rejected
//                              drafts included, in row order: the last row of equal tokens stays
// The shape holds the NODES paths with the largest product of acceptance shares by rank (Chen et al. 2024, Sequoia, its
// optimum for shares that depend on the rank alone), for the shares below. The paper's own hand-made shape has 80.
//
// Each slot has its own matrix, empty when a session begins: drafts, and so speed, do not depend on the slot's previous
// session or on the batch, and timing reveals nothing of another user's text. The paper's matrix persists over
// questions; `keep` has one for all sessions of the process: drafts and speed then depend on what was read before and
// on batching; with verifier match the text does not. keep=FILE starts with the matrix in FILE
// (infer/drafter/datastore.h) and saves it there. 32 V bytes per matrix, allocated when the drafter is opened.
#include "infer/drafter/datastore.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/op/topk.h"

#include <stdio.h>
#include <string.h>

#define K 8
#define NODES 4 // the fastest for a 15 M parameter model on two cores; where rows are free, the paper's 80

// Share of target tokens that are candidate 0, 1, ... of the matrix, for tokens with a row.
static const double share[K] = {0.48, 0.12, 0.06, 0.04, 0.03, 0.025, 0.02, 0.015};

typedef struct recycle {
    pl_drafter   base;
    int64_t      vocab;
    int          k; // 8, less for smaller vocabularies
    bool         keep;
    int32_t     *adjacency; // [sessions][V][K]; with keep [1][V][K]
    int          rows;      // most rows of one forward
    char        *file;      // NULL: not saved
    pl_datastore of;
    int32_t     *opened; // [V][K] the file's contents; NULL: none
} recycle;

static int32_t *row_of(const recycle *d, int slot, int32_t token) {
    return d->adjacency + ((int64_t)(d->keep ? 0 : slot) * d->vocab + token) * K;
}

// ---- the shape ------------------------------------------------------------------------------------------------------

// Sets parents of nodes 1..nodes, grown best first: each step adds the child with the largest product.
static void make_shape(int nodes, int32_t *parent) {
    double product[PL_TREE_MAX] = {1};
    int    children[PL_TREE_MAX] = {0};
    for (int n = 1; n <= nodes; n++) {
        int    best = 0;
        double most = -1;
        for (int i = 0; i < n; i++)
            if (children[i] < K && product[i] * share[children[i]] > most) {
                best = i;
                most = product[i] * share[children[i]];
            }
        parent[n] = best;
        children[best]++;
        product[n] = most;
    }
}

static pl_status own_policy(pl_tree_policy *p, int nodes, pl_err *err) {
    int32_t parent[PL_TREE_MAX];
    char    text[PL_TREE_TEXT];
    size_t  n = (size_t)snprintf(text, sizeof text, "static:");
    make_shape(nodes, parent);
    for (int i = 1; i <= nodes; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", i > 1 ? "," : "", parent[i]);
    return pl_tree_policy_parse(p, text, err);
}

// ---- drafting -------------------------------------------------------------------------------------------------------

static void take_in(recycle *d, pl_ctx *ctx, const pl_draft_batch *b) {
    if (b->logits.dim[0] == 0) return;
    PL_CHECK(b->logits.dim[0] <= d->rows, "%lld rows, at most %d", (long long)b->logits.dim[0], d->rows);
    int32_t *top = pl_ctx_bytes(ctx, pl_size_mul((size_t)b->logits.dim[0], (size_t)d->k, sizeof *top));
    pl_topk(ctx, &(pl_topk_args){.x = b->logits, .id = top, .k = d->k});
    if (!pl_ctx_wait(ctx)) return;
    for (int i = 0; i < b->n; i++)
        for (int r = b->item[i].row0; r < b->item[i].row0 + b->item[i].rows; r++)
            if (b->logits_row[r] >= 0)
                memcpy(row_of(d, b->item[i].slot, b->token[r]), top + (int64_t)b->logits_row[r] * d->k,
                       (size_t)d->k * sizeof *top);
}

// arg: the slot's matrix.
static void give_remembered(void *arg, const pl_tree_policy *p, const pl_tree *t, int node, int32_t *id) {
    const int32_t *row = (const int32_t *)arg + (int64_t)t->token[node] * K;
    for (int r = 0; r < p->k; r++)
        id[r] = r < K ? row[r] : -1;
}

static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    recycle *d = (recycle *)base;
    if (ctx->measuring) { // the largest forward
        pl_draft_batch most = {.logits = pl_tensor_2d(NULL, ctx->be->real, d->rows, d->vocab)};
        take_in(d, ctx, &most);
        return;
    }
    take_in(d, ctx, b);
    if (ctx->err.status != PL_OK) return;
    for (int i = 0; i < b->n; i++)
        if (b->item[i].tree)
            pl_tree_draft(&base->policy, b->item[i].tree, b->item[i].depth, give_remembered,
                          row_of(d, b->item[i].slot, 0));
}

// memset's 0xff is -1 everywhere.
static void clear_matrix(recycle *d, int slot) {
    memset(row_of(d, slot, 0), 0xff, (size_t)d->vocab * K * sizeof *d->adjacency);
}

static void reset(pl_drafter *base, int slot) {
    recycle *d = (recycle *)base;
    if (!d->keep) clear_matrix(d, slot);
}

static pl_status forget(pl_drafter *base, pl_err *err) {
    recycle *d = (recycle *)base;
    (void)err;
    if (!d->keep) return PL_OK;
    clear_matrix(d, 0);
    if (d->opened) memcpy(d->adjacency, d->opened, (size_t)d->vocab * K * sizeof *d->adjacency);
    return PL_OK;
}

static pl_status save(pl_drafter *base, pl_err *err) {
    const recycle *d = (const recycle *)base;
    return d->file ? pl_datastore_write(d->file, &d->of, d->adjacency, d->vocab * K, err) : PL_OK;
}

// A cycle reads the logits of all its rows again and one matrix row per node, whatever its depth.
static double step_bytes(const pl_drafter *base) {
    const recycle *d = (const recycle *)base;
    int            levels = base->policy.depth > 0 ? base->policy.depth : 1; // depth 0: an adaptive policy drafts
                                                                             // nothing now
    return base->policy.max_nodes * ((double)d->vocab * sizeof(float) + 2.0 * K * sizeof(int32_t)) / levels;
}

static void destroy(pl_drafter *base) {
    recycle *d = (recycle *)base;
    pl_free(d->adjacency);
    pl_free(d->file);
    pl_free(d->opened);
}

static const pl_drafter_kind kind = {.name = "recycle",
                                     .propose = propose,
                                     .reset = reset,
                                     .keep = pl_drafter_keep_text, // of a prompt it reads the last row alone
                                     .step_bytes = step_bytes,
                                     .destroy = destroy,
                                     .forget = forget,
                                     .save = save};

// ---- opening --------------------------------------------------------------------------------------------------------

static pl_status shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args, const char *tree,
                       pl_err *err) {
    int         nodes;
    const char *keep;
    PL_TRY(pl_drafter_nodes(who, NODES, args, &nodes, &keep, err));
    if (!tree || !*tree) {
        snprintf(name, PL_TREE_TEXT, "%d nodes", nodes);
        return own_policy(p, nodes, err);
    }
    PL_TRY(pl_tree_policy_parse(p, tree, err));
    if (!p->needs_logp && p->k <= K) return PL_OK;
    return pl_fail(err, PL_E_USAGE,
                   "drafter \"%s\" drafts chains and trees of a given shape with at most %d children, not \"%s\"; "
                   "leave --tree out for its own",
                   who, K, tree);
}

static pl_status open_file(recycle *d, const pl_drafter_options *o, const char *path, pl_err *err) {
    int64_t n;
    d->of = (pl_datastore){.kind = PL_DATASTORE_RECYCLING, .tok = o->tok, .vocab = d->vocab};
    d->file = pl_strdup(path);
    if (!d->file) return pl_fail(err, PL_E_MEMORY, "drafter \"recycle\": out of memory");
    PL_TRY(pl_file_look(path, err)); // fails early if the file cannot be written
    PL_TRY(pl_datastore_read(path, &d->of, &d->opened, &n, err));
    if (d->opened && n != d->vocab * K)
        return pl_fail(err, PL_E_INPUT, "%s: holds %lld ids, not %d for each of %lld tokens", path, (long long)n, K,
                       (long long)d->vocab);
    return forget(&d->base, err);
}

static pl_status init(pl_drafter *base, const char *args, const pl_drafter_options *o, pl_err *err) {
    recycle    *d = (recycle *)base;
    int         nodes;
    const char *keep;
    PL_TRY(pl_drafter_nodes("recycle", NODES, args, &nodes, &keep, err));
    d->vocab = o->target->vocab;
    d->k = d->vocab < K ? (int)d->vocab : K;
    d->keep = keep != NULL;
    d->rows = o->max_rows;
    int matrices = keep ? 1 : o->max_sessions;
    d->adjacency = pl_calloc(pl_size_mul((size_t)matrices, (size_t)d->vocab, K), sizeof *d->adjacency);
    if (!d->adjacency)
        return pl_fail(err, PL_E_MEMORY, "drafter \"recycle\": %d matrices of %lld x %d: out of memory", matrices,
                       (long long)d->vocab, K);
    for (int s = 0; s < matrices; s++)
        clear_matrix(d, s);
    return keep && *keep ? open_file(d, o, keep, err) : PL_OK;
}

const pl_drafter_source pl_drafter_recycle = {
    .name = "recycle",
    .syntax = "recycle[:NODES[,keep[=FILE]]]",
    .help = "what the target found probable after a token before; keep: over answers",
    .shape = shape,
    .proposals = 1u << PL_PROPOSE_TOP,
    .free = true,
    .kind = &kind,
    .size = sizeof(recycle),
    .init = init};
