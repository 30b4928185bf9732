// Prompt lookup (Saxena 2023, "Prompt Lookup Decoding"): drafts the tokens that followed the latest earlier occurrence
// of the text's last n-gram.
//
//   "lookup[:N[,MAX]]"   searches the session's text, prompt included, for its last n tokens, n = N (3) down to 1; the
//                        latest earlier occurrence wins and up to MAX tokens after it are the draft, a chain. Without
//                        MAX its length is chosen while decoding, from measured costs (chain:auto).
// A copy that reaches the end of the text continues in the draft itself, as Lempel and Ziv's copies do: a text that has
// begun to repeat itself is drafted as repeating.
//
// Index: for each n one open-addressing hash table from an n-gram to the position where it last ended, compared with
// the text itself. A token costs N insertions and N searches, expected O(1) each. Memory: 8 N to 16 N bytes per
// position and session, allocated when the drafter is opened.
#include "infer/drafter/drafter.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/hash.h"

#include <stdio.h>
#include <string.h>

#define GRAM 3
#define GRAM_MAX 16
#define LENGTH_MAX (PL_TREE_MAX - 1)

typedef struct lookup {
    pl_drafter base;
    int        gram, length; // N, MAX
    int        positions;
    int64_t    size;    // entries of a table, a power of two
    int32_t   *table;   // [sessions][N][size]: 1 + the position where the n-gram ends; 0: free
    int32_t   *indexed; // [sessions]: the n-grams that end before this position are in the tables
} lookup;

static int32_t *table_of(const lookup *d, int slot, int n) {
    return d->table + ((int64_t)slot * d->gram + n - 1) * d->size;
}

// Returns the entry of the n-gram that ends at `end`, or the free one for it.
static int32_t *find_entry(const lookup *d, int slot, const int32_t *text, int n, int32_t end) {
    int32_t       *table = table_of(d, slot, n);
    const int32_t *gram = text + end - n + 1;
    size_t         bytes = (size_t)n * sizeof *gram;
    int64_t        at = (int64_t)(pl_hash_key(gram, bytes) & (uint64_t)(d->size - 1));
    while (table[at] && memcmp(text + table[at] - n, gram, bytes) != 0)
        at = (at + 1) & (d->size - 1);
    return &table[at];
}

// Indexes all n-grams that end before `to`, each of which has a token after it.
static void index_up_to(lookup *d, int slot, const int32_t *text, int32_t to) {
    PL_CHECK(to <= d->positions, "a text of %d tokens, at most %d", to, d->positions);
    for (int32_t end = d->indexed[slot]; end < to; end++)
        for (int n = 1; n <= d->gram && n <= end + 1; n++)
            *find_entry(d, slot, text, n, end) = end + 1;
    if (to > d->indexed[slot]) d->indexed[slot] = to;
}

// Copy of the text from position `from`; node j of the chain is position last + j of the text.
typedef struct copy {
    const int32_t *tokens;
    int32_t        from, last;
} copy;

static void next_token(void *arg, const pl_tree_policy *p, const pl_tree *t, int node, int32_t *id) {
    const copy *c = arg;
    int32_t     at = c->from + t->depth[node];
    id[0] = at <= c->last ? c->tokens[at] : t->token[at - c->last];
    for (int r = 1; r < p->k; r++)
        id[r] = -1;
}

static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    lookup *d = (lookup *)base;
    if (ctx->measuring) return;
    for (int i = 0; i < b->n; i++) {
        pl_draft_item *it = &b->item[i];
        copy           c = {.tokens = it->tokens, .last = it->n_tokens - 1};
        index_up_to(d, it->slot, it->tokens, c.last);
        if (!it->tree) continue;
        for (int n = d->gram < c.last ? d->gram : c.last; n > 0 && c.from == 0; n--)
            c.from = *find_entry(d, it->slot, it->tokens, n, c.last);
        if (c.from > 0)
            pl_tree_draft(&base->policy, it->tree, it->depth < d->length ? it->depth : d->length, next_token, &c);
    }
}

static void reset(pl_drafter *base, int slot) {
    lookup *d = (lookup *)base;
    memset(table_of(d, slot, 1), 0, (size_t)(d->gram * d->size) * sizeof *d->table);
    d->indexed[slot] = 0;
}

// Counts entries and n-grams of the searches and of one token's insertions.
static double step_bytes(const pl_drafter *base) {
    const lookup *d = (const lookup *)base;
    return 2.0 * d->gram * (d->gram + 1) * sizeof(int32_t);
}

static void destroy(pl_drafter *base) {
    lookup *d = (lookup *)base;
    pl_free(d->table);
    pl_free(d->indexed);
}

static const pl_drafter_kind kind = {.name = "lookup",
                                     .propose = propose,
                                     .reset = reset,
                                     .keep = pl_drafter_keep_text,
                                     .step_bytes = step_bytes,
                                     .destroy = destroy};

// *length is 0 if MAX is not given.
static pl_status parse_args(const char *args, int *gram, int *length, pl_err *err) {
    int32_t v[2] = {GRAM, 0};
    if (*args && (pl_tree_numbers(args, ',', 1, LENGTH_MAX, v, 2) < 0 || v[0] > GRAM_MAX))
        return pl_fail(err, PL_E_USAGE, "drafter \"lookup:%s\": expected lookup[:N[,MAX]], N in 1..%d, MAX in 1..%d",
                       args, GRAM_MAX, LENGTH_MAX);
    *gram = v[0];
    *length = v[1];
    return PL_OK;
}

static pl_status shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args, const char *tree,
                       pl_err *err) {
    int gram, length;
    PL_TRY(parse_args(args, &gram, &length, err));
    if (!tree || !*tree) snprintf(name, PL_TREE_TEXT, length ? "chain:%d" : "chain:auto", length);
    PL_TRY(pl_tree_policy_parse(p, tree && *tree ? tree : name, err));
    if (p->width == 1 && p->k == 1 && !p->needs_logp) return PL_OK;
    return pl_fail(err, PL_E_USAGE, "drafter \"%s\" drafts chains, not the tree \"%s\": take chain:LENGTH", who, tree);
}

static pl_status init(pl_drafter *base, const char *args, const pl_drafter_options *o, pl_err *err) {
    lookup *d = (lookup *)base;
    int     gram, length;
    PL_TRY(parse_args(args, &gram, &length, err));
    d->gram = gram;
    d->length = length ? length : LENGTH_MAX;
    d->positions = o->slots;
    d->size = 2;
    while (d->size < 2 * (int64_t)o->slots)
        d->size *= 2;
    d->table = pl_calloc(pl_size_mul((size_t)o->max_sessions, (size_t)gram, (size_t)d->size), sizeof *d->table);
    d->indexed = pl_calloc((size_t)o->max_sessions, sizeof *d->indexed);
    if (d->table && d->indexed) return PL_OK;
    return pl_fail(err, PL_E_MEMORY, "drafter \"lookup\": an index of %d positions: out of memory", o->slots);
}

const pl_drafter_source pl_drafter_lookup = {.name = "lookup",
                                             .syntax = "lookup[:N[,MAX]]",
                                             .help = "what followed the last N tokens before, MAX tokens of it",
                                             .shape = shape,
                                             .proposals = 1u << PL_PROPOSE_TOP,
                                             .free = true,
                                             .kind = &kind,
                                             .size = sizeof(lookup),
                                             .init = init};
