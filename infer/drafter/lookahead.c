// Lookahead decoding (Fu et al. 2024, arXiv 2402.02057): the target's forward continues guesses at the tokens ahead by
// Jacobi iteration, and the n-grams that arise are drafted when their first token comes.
//
//   "lookahead[:W,N,G]"   a window of W (5) columns, n-grams of N (3) tokens, at most G (5) of them drafted
//   window x[N-1][W]      guesses of the last N - 1 iterations: column c of row l stands c + l positions behind the
//                         last token, which itself is x[0][0]
//   forward               as a tree: row 0 is a chain from the last token on, and from its column c hangs the chain
//                         x[1][c] .. x[N-2][c]; y[c] is the target's best token behind it. Beside it the N-grams of the
//                         pool that begin with the last token, the newest first
//   afterwards            N-gram x[0][c] .. x[N-2][c], y[c] joins the pool; row l := row l + 1, the last row := y
// The paper verifies n-grams in rows apart from the window; here all rows are one tree, whose window is verified too.
// Its window begins with random tokens of the text, as here; n-grams join the pool once every row comes from an
// iteration. A cycle reads 1 + G (N - 1) + W (N - 1) - 1 rows at most. Each slot has its own window and pool (of the
// last 1,024 n-grams), empty when a session begins.
#include "infer/drafter/drafter.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/hash.h"
#include "kernels/op/topk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 5, GRAM = 3, GUESSES = 5, GRAM_MAX = 16, POOL = 1024 };

typedef struct ahead {
    bool     begun;
    int      iterations;
    int32_t *window;             // [N - 1][W]
    int32_t *pool;               // [POOL][N], a ring
    int64_t  joined;             // n-grams that ever joined it
    int      n;                  // nodes of the tree in hand; 0: none
    int32_t  token[PL_TREE_MAX]; // [n]
    int      last[PL_TREE_MAX];  // [W] node behind which y stands; -1: left out
} ahead;

typedef struct lookahead {
    pl_drafter base;
    int64_t    vocab;
    int        columns, gram, guesses, rows; // rows: most of one forward
    ahead     *slot;                         // [sessions]
} lookahead;

static int32_t *row_of(const lookahead *d, const ahead *a, int row) {
    return a->window + row * d->columns;
}

// ---- after a forward ------------------------------------------------------------------------------------------------

// Returns true if the session's rows are the tree in hand.
static bool is_drafted(const ahead *a, const pl_draft_batch *b, const pl_draft_item *it) {
    bool same = a->n > 0 && it->rows == a->n;
    for (int i = 0; i < a->n && same; i++)
        same = b->token[it->row0 + i] == a->token[i] && b->logits_row[it->row0 + i] >= 0;
    return same;
}

static void join_pool(const lookahead *d, ahead *a, int column, int32_t y) {
    int32_t *gram = a->pool + a->joined++ % POOL * d->gram;
    for (int l = 0; l < d->gram - 1; l++)
        gram[l] = row_of(d, a, l)[column];
    if (column == 0) gram[0] = a->token[0];
    gram[d->gram - 1] = y;
}

// best: of each row of logits.
static void iterate(const lookahead *d, ahead *a, const pl_draft_batch *b, const pl_draft_item *it,
                    const int32_t *best) {
    int32_t y[PL_TREE_MAX];
    bool    whole = is_drafted(a, b, it);
    for (int c = 0; c < d->columns && whole; c++) {
        whole = a->last[c] >= 0;
        if (whole) y[c] = best[b->logits_row[it->row0 + a->last[c]]];
    }
    a->n = 0;
    if (!whole) return;
    for (int c = 0; c < d->columns && a->iterations >= d->gram - 1; c++)
        join_pool(d, a, c, y[c]);
    a->iterations++;
    memmove(a->window, row_of(d, a, 1), (size_t)((d->gram - 2) * d->columns) * sizeof *a->window);
    memcpy(row_of(d, a, d->gram - 2), y, (size_t)d->columns * sizeof *y);
}

static void take_in(lookahead *d, pl_ctx *ctx, const pl_draft_batch *b) {
    if (b->logits.dim[0] == 0) return;
    PL_CHECK(b->logits.dim[0] <= d->rows, "%lld rows, at most %d", (long long)b->logits.dim[0], d->rows);
    int32_t *best = pl_ctx_bytes(ctx, (size_t)b->logits.dim[0] * sizeof *best);
    pl_topk(ctx, &(pl_topk_args){.x = b->logits, .id = best, .k = 1});
    if (!pl_ctx_wait(ctx)) return;
    for (int i = 0; i < b->n; i++)
        iterate(d, &d->slot[b->item[i].slot], b, &b->item[i], best);
}

// ---- drafting -------------------------------------------------------------------------------------------------------

static int add_node(const pl_draft_item *it, int parent, int32_t token) {
    if (parent < 0 || it->tree->depth[parent] >= it->depth) return -1;
    return pl_tree_add(it->tree, parent, token, 0);
}

static void add_guesses(const lookahead *d, const ahead *a, const pl_draft_item *it) {
    int64_t oldest = a->joined > POOL ? a->joined - POOL : 0;
    int     taken = 0;
    for (int64_t g = a->joined; g-- > oldest && taken < d->guesses;) {
        const int32_t *gram = a->pool + g % POOL * d->gram;
        int            before = it->tree->n;
        if (gram[0] != it->tree->token[0]) continue;
        for (int l = 1, node = 0; l < d->gram; l++)
            node = add_node(it, node, gram[l]);
        taken += it->tree->n > before;
    }
}

static void add_window(const lookahead *d, ahead *a, const pl_draft_item *it) {
    for (int c = 0, from = 0; c < d->columns; c++) {
        if (c > 0) from = add_node(it, from, row_of(d, a, 0)[c]);
        a->last[c] = from;
        for (int l = 1; l < d->gram - 1; l++)
            a->last[c] = add_node(it, a->last[c], row_of(d, a, l)[c]);
    }
}

static void begin_window(const lookahead *d, ahead *a, const pl_draft_item *it) {
    for (int i = 0; i < (d->gram - 1) * d->columns && !a->begun; i++)
        a->window[i] = it->tokens[pl_hash_key(&i, sizeof i) % (uint64_t)it->n_tokens];
    a->begun = true;
}

static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    lookahead *d = (lookahead *)base;
    if (ctx->measuring) { // the largest forward
        pl_draft_batch most = {.logits = pl_tensor_2d(NULL, ctx->be->real, d->rows, d->vocab)};
        take_in(d, ctx, &most);
        return;
    }
    take_in(d, ctx, b);
    for (int i = 0; i < b->n && ctx->err.status == PL_OK; i++) {
        const pl_draft_item *it = &b->item[i];
        ahead               *a = &d->slot[it->slot];
        if (!it->tree) continue;
        begin_window(d, a, it);
        add_guesses(d, a, it);
        add_window(d, a, it);
        a->n = it->tree->n;
        memcpy(a->token, it->tree->token, (size_t)a->n * sizeof *a->token);
    }
}

static void reset(pl_drafter *base, int slot) {
    ahead *a = &((lookahead *)base)->slot[slot];
    a->begun = false;
    a->iterations = a->n = 0;
    a->joined = 0;
}

static int keep(pl_drafter *base, int slot, int n) {
    reset(base, slot);
    return n;
}

// A cycle reads the logits of all its rows again, whatever its depth.
static double step_bytes(const pl_drafter *base) {
    const lookahead *d = (const lookahead *)base;
    return base->policy.max_nodes * (double)d->vocab * sizeof(float) / base->policy.depth;
}

static void destroy(pl_drafter *base) {
    lookahead *d = (lookahead *)base;
    for (int i = 0; d->slot && i < base->max_sessions; i++) {
        pl_free(d->slot[i].window);
        pl_free(d->slot[i].pool);
    }
    pl_free(d->slot);
}

static const pl_drafter_kind kind = {.name = "lookahead",
                                     .propose = propose,
                                     .reset = reset,
                                     .keep = keep,
                                     .step_bytes = step_bytes,
                                     .destroy = destroy};

// ---- opening --------------------------------------------------------------------------------------------------------

static int count_nodes(const int *x) {
    return x[2] * (x[1] - 1) + x[0] * (x[1] - 1) - 1;
}

// Reads W, N and G.
static pl_status read_args(int *x, const char *args, pl_err *err) {
    static const int deflt[] = {COLUMNS, GRAM, GUESSES}, least[] = {1, 2, 1}, most[] = {64, GRAM_MAX, 64};
    const char      *at = args;
    bool             good = true;
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        long  v = *args ? strtol(at, &end, 10) : deflt[i];
        good &= !*args || (end > at && *at >= '0' && *at <= '9' && *end == (i < 2 ? ',' : 0));
        good &= v >= least[i] && v <= most[i];
        if (!good) break;
        x[i] = (int)v;
        at = *args ? end + 1 : at;
    }
    if (good && count_nodes(x) < PL_TREE_MAX && count_nodes(x) > 0) return PL_OK;
    return pl_fail(err, PL_E_USAGE,
                   "drafter \"lookahead:%s\": expected lookahead:W,N,G, W columns, n-grams of N tokens from 2 to %d, G "
                   "guesses, (W + G) (N - 1) up to %d",
                   args, GRAM_MAX, PL_TREE_MAX);
}

// Sets the shape of a tree whose paths are all there and differ: guesses, then the window.
static pl_status own_policy(pl_tree_policy *p, const int *x, pl_err *err) {
    char text[PL_TREE_TEXT];
    int  n = snprintf(text, sizeof text, "static:"), node = 0, from = 0;
    for (int g = 0; g < x[2]; g++)
        for (int l = 1; l < x[1]; l++, node++)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", node ? "," : "", l == 1 ? 0 : node);
    for (int c = 0; c < x[0]; c++) {
        if (c > 0) n += snprintf(text + n, sizeof text - (size_t)n, ",%d", from), from = ++node;
        for (int l = 1; l < x[1] - 1; l++, node++)
            n += snprintf(text + n, sizeof text - (size_t)n, ",%d", l == 1 ? from : node);
    }
    return pl_tree_policy_parse(p, text, err);
}

static pl_status shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args, const char *tree,
                       pl_err *err) {
    int x[3];
    PL_TRY(read_args(x, args, err));
    if (tree && *tree)
        return pl_fail(err, PL_E_USAGE, "drafter \"%s\" drafts its window and n-grams, not \"%s\"; leave --tree out",
                       who, tree);
    snprintf(name, PL_TREE_TEXT, "%d,%d,%d", x[0], x[1], x[2]);
    return own_policy(p, x, err);
}

static pl_status init(pl_drafter *base, const char *args, const pl_drafter_options *o, pl_err *err) {
    lookahead *d = (lookahead *)base;
    int        x[3];
    PL_TRY(read_args(x, args, err));
    d->columns = x[0];
    d->gram = x[1];
    d->guesses = x[2];
    d->vocab = o->target->vocab;
    d->rows = o->max_rows;
    d->slot = pl_calloc((size_t)o->max_sessions, sizeof *d->slot);
    bool good = d->slot;
    for (int i = 0; i < o->max_sessions && good; i++) {
        d->slot[i].window = pl_calloc((size_t)((d->gram - 1) * d->columns), sizeof *d->slot[i].window);
        d->slot[i].pool = pl_calloc(POOL * (size_t)d->gram, sizeof *d->slot[i].pool);
        good = d->slot[i].window && d->slot[i].pool;
    }
    return good ? PL_OK : pl_fail(err, PL_E_MEMORY, "drafter \"lookahead\": out of memory");
}

const pl_drafter_source pl_drafter_lookahead = {.name = "lookahead",
                                                .syntax = "lookahead[:W,N,G]",
                                                .help = "n-grams that the target makes by Jacobi iteration",
                                                .shape = shape,
                                                .proposals = 1u << PL_PROPOSE_TOP,
                                                .kind = &kind,
                                                .size = sizeof(lookahead),
                                                .init = init};
