#include "infer/grammar/grammar.h"

#include "infer/grammar/readers.h"
#include "infer/grammar/token_text.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/hash.h"

#include <stdlib.h>
#include <string.h>

// The rest of a match: a node, the items of a list from one on, or a repeat whose item has matched `count` times; then
// the parent. Frames are numbers, equal for equal contents.
typedef struct frame {
    int32_t node, item, count; // item: of a list, -1: the node as a whole
    int32_t parent;            // -1: then the text ends
} frame;

// A set of frames that wait for a byte. Sets are numbers too.
typedef struct state {
    int32_t  first, n; // its frames in g->member, in rising order
    bool     ends;
    int32_t *next; // [256] state after each byte, UNKNOWN where it has not been computed; NULL: of none
} state;

enum { UNKNOWN = -2, FRAMES_MAX = 1 << 20 };

// A hash table of numbers into an array of its owner; -1: free.
typedef struct table {
    int32_t *slot;
    uint32_t mask;
    int32_t  n;
} table;

// The graph of a grammar, shared by all its walks and constant after it is compiled.
typedef struct compiled {
    pl_nodes nodes;
    int      users;
} compiled;

struct pl_grammar {
    compiled            *of;
    const pl_nodes      *nodes; // of it
    const pl_token_text *tokens;
    frame               *frame;
    state               *state;
    int32_t             *member;
    int32_t              n_frames, cap_frames, n_states, cap_states, n_members, cap_members;
    table                frames, states;
    int32_t              start;
    // Scratch of one step: frames to expand, those seen, leaves found.
    int32_t             *work, *leaf, *seen;
    int32_t              n_work, cap_work, n_leaf, cap_leaf, cap_seen, stamp;
    bool                 ends, failed;
    int64_t              spent; // frames that were expanded
    uint32_t           **mask;  // [cap_states] of states, NULL: not computed
    int32_t              cap_masks;
    size_t               mask_bytes;
};

static bool grow(pl_grammar *g, void *array, int32_t n, int32_t *cap, size_t each, int32_t most) {
    void **a = array;
    if (g->failed) return false;
    if (n < *cap) return true;
    int32_t to = *cap ? 2 * *cap : 256;
    void   *p = n >= most ? NULL : pl_realloc(*a, (size_t)to * each);
    g->failed = !p;
    if (!p) return false;
    *a = p;
    *cap = to;
    return true;
}

// Doubles a table that is half full; `hash_of` gives the hash of a number.
static bool table_room(pl_grammar *g, table *t, uint64_t (*hash_of)(const pl_grammar *, int32_t)) {
    if (g->failed) return false;
    if (t->slot && 2 * (uint32_t)t->n < t->mask + 1) return true;
    uint32_t size = t->slot ? 2 * (t->mask + 1) : 512;
    int32_t *slot = pl_malloc(size * sizeof *slot);
    g->failed = !slot;
    if (!slot) return false;
    memset(slot, 0xFF, size * sizeof *slot);
    for (int32_t i = 0; i < t->n; i++) {
        uint32_t at = (uint32_t)hash_of(g, i) & (size - 1);
        while (slot[at] >= 0)
            at = (at + 1) & (size - 1);
        slot[at] = i;
    }
    pl_free(t->slot);
    t->slot = slot;
    t->mask = size - 1;
    return true;
}

static uint64_t hash_frame(const pl_grammar *g, int32_t i) {
    return pl_hash(&g->frame[i], sizeof *g->frame);
}

static uint64_t hash_state(const pl_grammar *g, int32_t i) {
    const state *s = &g->state[i];
    return pl_hash_more(pl_hash(g->member + s->first, (size_t)s->n * sizeof *g->member), &s->ends, sizeof s->ends);
}

// Returns the number of a frame with this content, -1 on failure.
static int32_t find_frame(pl_grammar *g, frame f) {
    if (!table_room(g, &g->frames, hash_frame)) return -1;
    uint32_t at = (uint32_t)pl_hash(&f, sizeof f) & g->frames.mask;
    for (; g->frames.slot[at] >= 0; at = (at + 1) & g->frames.mask)
        if (memcmp(&g->frame[g->frames.slot[at]], &f, sizeof f) == 0) return g->frames.slot[at];
    if (!grow(g, &g->frame, g->n_frames, &g->cap_frames, sizeof *g->frame, FRAMES_MAX)) return -1;
    g->frame[g->n_frames] = f;
    g->frames.n++;
    return g->frames.slot[at] = g->n_frames++;
}

// ---- one step -------------------------------------------------------------------------------------------------------

// Adds a frame to expand, once a step.
static void add_work(pl_grammar *g, int32_t f) {
    if (f < 0 || g->failed) return;
    while (f >= g->cap_seen) {
        int32_t before = g->cap_seen;
        if (!grow(g, &g->seen, g->cap_seen, &g->cap_seen, sizeof *g->seen, FRAMES_MAX)) return;
        memset(g->seen + before, 0, (size_t)(g->cap_seen - before) * sizeof *g->seen);
    }
    if (g->seen[f] == g->stamp) return;
    g->seen[f] = g->stamp;
    if (grow(g, &g->work, g->n_work, &g->cap_work, sizeof *g->work, FRAMES_MAX)) g->work[g->n_work++] = f;
}

// Adds the continuation behind a frame.
static void add_parent(pl_grammar *g, int32_t parent) {
    if (parent < 0)
        g->ends = true;
    else
        add_work(g, parent);
}

static void add_node(pl_grammar *g, int32_t node, int32_t parent) {
    if (g->nodes->node[node].productive)
        add_work(g, find_frame(g, (frame){.node = node, .item = -1, .parent = parent}));
}

// A list from an item on: the item, and behind it the others.
static void expand_items(pl_grammar *g, const frame *f, int32_t item) {
    const pl_node_item *x = &g->nodes->item[item];
    int32_t             parent = f->parent;
    if (x->next >= 0) parent = find_frame(g, (frame){.node = f->node, .item = x->next, .parent = f->parent});
    if (!g->failed) add_node(g, x->node, parent);
}

static void expand_repeat(pl_grammar *g, const frame *f, const pl_node *x) {
    bool empty = g->nodes->node[x->item].nullable;
    if (f->count >= x->min || empty) add_parent(g, f->parent);
    if (f->count >= x->max || !g->nodes->node[x->item].productive) return;
    // Without an end the count stays at min, so that there are finitely many frames.
    int32_t count = x->max == PL_GRAMMAR_MANY && f->count >= x->min ? f->count : f->count + 1;
    int32_t parent = find_frame(g, (frame){.node = f->node, .item = -1, .count = count, .parent = f->parent});
    if (!g->failed) add_node(g, x->item, parent);
}

static void expand(pl_grammar *g, int32_t i) {
    frame          f = g->frame[i]; // a copy: the array may move
    const pl_node *x = &g->nodes->node[f.node];
    switch ((pl_node_kind)x->kind) {
    case PL_NODE_EMPTY: add_parent(g, f.parent); return;
    case PL_NODE_BYTE:
        if (grow(g, &g->leaf, g->n_leaf, &g->cap_leaf, sizeof *g->leaf, FRAMES_MAX)) g->leaf[g->n_leaf++] = i;
        return;
    case PL_NODE_SEQ:
        if (f.item < 0 && x->item < 0)
            add_parent(g, f.parent);
        else
            expand_items(g, &f, f.item < 0 ? x->item : f.item);
        return;
    case PL_NODE_ALT:
        for (int32_t k = x->item; k >= 0; k = g->nodes->item[k].next)
            add_node(g, g->nodes->item[k].node, f.parent);
        return;
    case PL_NODE_REPEAT: expand_repeat(g, &f, x); return;
    case PL_NODE_RULE: add_node(g, x->item, f.parent); return;
    }
}

static void begin_step(pl_grammar *g) {
    g->n_work = g->n_leaf = 0;
    g->ends = false;
    g->stamp++;
}

static int compare_ints(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static bool same_state(const pl_grammar *g, const state *s) {
    return s->ends == g->ends && s->n == g->n_leaf &&
           (s->n == 0 || memcmp(g->member + s->first, g->leaf, (size_t)s->n * sizeof *g->leaf) == 0);
}

// Expands the work and returns the state of its leaves.
static int32_t end_step(pl_grammar *g) {
    for (int32_t i = 0; i < g->n_work && !g->failed; i++)
        expand(g, g->work[i]);
    g->spent += g->n_work;
    if (g->failed || (g->n_leaf == 0 && !g->ends)) return PL_GRAMMAR_DEAD;
    if (g->n_leaf > 0) qsort(g->leaf, (size_t)g->n_leaf, sizeof *g->leaf, compare_ints);
    if (!table_room(g, &g->states, hash_state)) return PL_GRAMMAR_DEAD;
    uint64_t h = pl_hash_more(pl_hash(g->leaf, (size_t)g->n_leaf * sizeof *g->leaf), &g->ends, sizeof g->ends);
    uint32_t at = (uint32_t)h & g->states.mask;
    for (; g->states.slot[at] >= 0; at = (at + 1) & g->states.mask)
        if (same_state(g, &g->state[g->states.slot[at]])) return g->states.slot[at];
    if (!grow(g, &g->state, g->n_states, &g->cap_states, sizeof *g->state, PL_GRAMMAR_STATES)) return PL_GRAMMAR_DEAD;
    state s = {.first = g->n_members, .n = g->n_leaf, .ends = g->ends};
    for (int32_t i = 0; i < g->n_leaf; i++) {
        if (!grow(g, &g->member, g->n_members, &g->cap_members, sizeof *g->member, INT32_MAX / 4))
            return PL_GRAMMAR_DEAD;
        g->member[g->n_members++] = g->leaf[i];
    }
    g->state[g->n_states] = s;
    g->states.n++;
    return g->states.slot[at] = g->n_states++;
}

static int32_t compute_next(pl_grammar *g, int32_t from, uint8_t byte) {
    const state *s = &g->state[from];
    begin_step(g);
    for (int32_t i = 0; i < s->n; i++) {
        const frame   *f = &g->frame[g->member[s->first + i]];
        const pl_node *x = &g->nodes->node[f->node];
        if (x->lo <= byte && byte <= x->hi) add_parent(g, f->parent);
    }
    return end_step(g);
}

int32_t pl_grammar_byte(pl_grammar *g, int32_t from, uint8_t byte) {
    if (from < 0 || g->failed) return PL_GRAMMAR_DEAD;
    if (!g->state[from].next) {
        int32_t *next = pl_malloc(256 * sizeof *next);
        g->failed = !next;
        if (!next) return PL_GRAMMAR_DEAD;
        for (int i = 0; i < 256; i++)
            next[i] = UNKNOWN;
        g->state[from].next = next;
    }
    int32_t to = g->state[from].next[byte];
    if (to != UNKNOWN) return to;
    to = compute_next(g, from, byte);
    return g->state[from].next[byte] = to;
}

int32_t pl_grammar_token(pl_grammar *g, int32_t from, int32_t token) {
    const pl_token_text *t = g->tokens;
    int32_t              string = token >= 0 && token < t->vocab ? t->string[token] : PL_NO_TEXT;
    if (string == PL_NO_TEXT) return PL_GRAMMAR_DEAD;
    if (string < 0) return pl_grammar_byte(g, from, (uint8_t)(PL_MARK_BYTE + PL_NO_TEXT - 1 - string));
    for (int32_t i = 0; i < t->lexicon.len[string] && from >= 0; i++)
        from = pl_grammar_byte(g, from, t->lexicon.s[string][i]);
    return from;
}

bool pl_grammar_may_end(const pl_grammar *g, int32_t at) {
    return at >= 0 && !g->failed && g->state[at].ends;
}

int32_t pl_grammar_start(const pl_grammar *g) {
    return g->start;
}

bool pl_grammar_failed(const pl_grammar *g) {
    return g->failed;
}

// ---- masks ----------------------------------------------------------------------------------------------------------

static void forget_masks(pl_grammar *g) {
    for (int32_t i = 0; i < g->cap_masks; i++) {
        pl_free(g->mask[i]);
        g->mask[i] = NULL;
    }
    g->mask_bytes = 0;
}

// Walks the strings in their order: path[i] is the state after the first i bytes of the current one, of which the next
// shares the beginning. Strings that share a dead beginning are passed over. Sets allowed[i] of those that are whole.
static void walk_strings(pl_grammar *g, int32_t from, uint8_t *allowed) {
    const pl_token_text *t = g->tokens;
    int32_t              path[PL_TOKEN_TEXT_BYTES + 1] = {from};
    int32_t              alive = 0; // bytes of the last string that lead to a state
    for (int32_t i = 0; i < t->lexicon.n && !g->failed; i++) {
        int32_t n = t->lexicon.len[i], shared = t->shared[i];
        if (shared > alive) continue; // the byte behind `alive` is dead and shared
        if (n > PL_TOKEN_TEXT_BYTES) n = PL_TOKEN_TEXT_BYTES;
        for (alive = shared; alive < n; alive++) {
            path[alive + 1] = pl_grammar_byte(g, path[alive], t->lexicon.s[i][alive]);
            if (path[alive + 1] < 0) break;
        }
        allowed[i] = alive == t->lexicon.len[i];
    }
}

// Returns the mask of a state, owned by the caller; NULL on failure.
static uint32_t *compute_mask(pl_grammar *g, int32_t at, size_t bytes) {
    const pl_token_text *t = g->tokens;
    uint8_t             *allowed = pl_calloc((size_t)t->lexicon.n + 1, 1);
    uint32_t            *mask = pl_calloc(1, bytes + 1);
    if (allowed && mask) walk_strings(g, at, allowed);
    for (int32_t id = 0; allowed && mask && id < t->vocab; id++)
        if (t->string[id] >= 0 && allowed[t->string[id]]) mask[id / 32] |= 1U << id % 32;
    for (int i = 0; i < PL_MARKS && mask; i++)
        if (t->mark[i] >= 0 && pl_grammar_byte(g, at, (uint8_t)(PL_MARK_BYTE + i)) >= 0)
            mask[t->mark[i] / 32] |= 1U << t->mark[i] % 32;
    if (!allowed || !mask) g->failed = true;
    if (g->failed) {
        pl_free(mask);
        mask = NULL;
    }
    pl_free(allowed);
    return mask;
}

int32_t pl_grammar_words(const pl_grammar *g) {
    return (g->tokens->vocab + 31) / 32;
}

const uint32_t *pl_grammar_mask(pl_grammar *g, int32_t at) {
    size_t bytes = (size_t)pl_grammar_words(g) * sizeof(uint32_t);
    if (at < 0 || g->failed) return NULL;
    while (at >= g->cap_masks) {
        int32_t before = g->cap_masks;
        if (!grow(g, &g->mask, g->cap_masks, &g->cap_masks, sizeof *g->mask, PL_GRAMMAR_STATES * 2)) return NULL;
        memset(g->mask + before, 0, (size_t)(g->cap_masks - before) * sizeof *g->mask);
    }
    if (g->mask[at]) return g->mask[at];
    if (g->mask_bytes + bytes > PL_GRAMMAR_MASKS) forget_masks(g);
    uint32_t *mask = compute_mask(g, at, bytes);
    if (!mask) return NULL;
    g->mask[at] = mask;
    g->mask_bytes += bytes;
    return mask;
}

// ---- opening --------------------------------------------------------------------------------------------------------

static pl_status read_nodes(pl_nodes *n, pl_grammar_kind kind, const char *text, size_t size, const pl_token_text *t,
                            pl_err *err) {
    static const char *const name[] = {"JSON schema", "regular expression", "grammar", "tool calls"};
    bool                     spelt[256];
    pl_status                st = PL_OK;
    for (int b = 0; b < 256; b++)
        spelt[b] = t ? t->spelt[b] : b < PL_MARK_BYTE;
    if (kind == PL_GRAMMAR_REGEX)
        st = pl_regex_node(&n->root, n, text, size, false, err);
    else if (kind == PL_GRAMMAR_GBNF)
        st = pl_gbnf_read(n, text, size, err);
    else if (kind == PL_GRAMMAR_CALLS)
        st = pl_calls_read(n, text, size, spelt, err);
    else
        st = pl_schema_read(n, text, size, err);
    if (st == PL_OK || n->failed) st = pl_nodes_check(n, spelt, err); // a reader that ran out of room may say anything
    return st == PL_OK ? PL_OK : pl_fail_at(err, st, "%s", name[kind]);
}

// Begins a walk over what is compiled, which it keeps.
static pl_status begin_walk(pl_grammar **out, compiled *of, const pl_token_text *t, pl_err *err) {
    pl_grammar *g = pl_calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return pl_fail(err, PL_E_MEMORY, "grammar: out of memory");
    g->tokens = t;
    g->of = of;
    g->nodes = &of->nodes;
    of->users++;
    begin_step(g);
    add_node(g, of->nodes.root, -1);
    g->start = end_step(g);
    if (!g->failed) {
        *out = g;
        return PL_OK;
    }
    pl_grammar_close(g);
    return pl_fail(err, PL_E_MEMORY, "grammar: out of memory");
}

static void release(compiled *of) {
    if (of->users > 0) return;
    pl_nodes_fini(&of->nodes);
    pl_free(of);
}

pl_status pl_grammar_open(pl_grammar **out, pl_grammar_kind kind, const char *text, size_t n, const pl_token_text *t,
                          pl_err *err) {
    compiled *of = pl_calloc(1, sizeof *of);
    *out = NULL;
    if (!of) return pl_fail(err, PL_E_MEMORY, "grammar: out of memory");
    of->users = 1; // this call
    pl_status st = read_nodes(&of->nodes, kind, text, n, t, err);
    if (st == PL_OK) st = begin_walk(out, of, t, err);
    of->users--;
    release(of);
    return st;
}

pl_status pl_grammar_copy(pl_grammar **out, const pl_grammar *from, pl_err *err) {
    return begin_walk(out, from->of, from->tokens, err);
}

void pl_grammar_close(pl_grammar *g) {
    if (!g) return;
    for (int32_t i = 0; i < g->n_states; i++)
        pl_free(g->state[i].next);
    if (g->mask) forget_masks(g);
    void *owned[] = {g->frame, g->state, g->member, g->frames.slot, g->states.slot, g->work, g->leaf, g->seen, g->mask};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
    g->of->users--;
    release(g->of);
    pl_free(g);
}
