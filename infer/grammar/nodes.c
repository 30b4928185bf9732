#include "infer/grammar/nodes.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/utf8.h"

#include <stdlib.h>
#include <string.h>

void pl_nodes_fini(pl_nodes *g) {
    pl_free(g->node);
    pl_free(g->item);
    *g = (pl_nodes){0};
}

// Makes room for one more element; returns false if there is none.
static bool grow(pl_nodes *g, void **array, int32_t n, int32_t *cap, size_t each) {
    if (g->failed) return false;
    if (n < *cap) return true;
    int32_t most = *cap ? 2 * *cap : 256;
    g->full = n >= PL_GRAMMAR_NODES;
    void *p = g->full ? NULL : pl_realloc(*array, (size_t)most * each);
    g->failed = !p;
    if (!p) return false;
    *array = p;
    *cap = most;
    return true;
}

// Returns 0, which is a node, where there is no room.
static int32_t add_node(pl_nodes *g, pl_node node) {
    if (!grow(g, (void **)&g->node, g->n, &g->cap, sizeof *g->node)) return 0;
    g->node[g->n] = node;
    return g->n++;
}

int32_t pl_node_empty(pl_nodes *g) {
    return add_node(g, (pl_node){.kind = PL_NODE_EMPTY});
}

int32_t pl_node_byte(pl_nodes *g, uint8_t lo, uint8_t hi) {
    return add_node(g, (pl_node){.kind = PL_NODE_BYTE, .lo = lo, .hi = hi});
}

int32_t pl_node_list(pl_nodes *g, pl_node_kind kind) {
    return add_node(g, (pl_node){.kind = (uint8_t)kind, .item = -1, .last = -1});
}

void pl_node_add(pl_nodes *g, int32_t list, int32_t node) {
    if (!grow(g, (void **)&g->item, g->n_items, &g->cap_items, sizeof *g->item)) return;
    int32_t  at = g->n_items++;
    pl_node *l = &g->node[list];
    PL_CHECK(l->kind == PL_NODE_SEQ || l->kind == PL_NODE_ALT, "an item of a node of kind %d", l->kind);
    g->item[at] = (pl_node_item){.node = node, .next = -1};
    if (l->last >= 0)
        g->item[l->last].next = at;
    else
        l->item = at;
    l->last = at;
}

int32_t pl_node_pair(pl_nodes *g, pl_node_kind kind, int32_t a, int32_t b) {
    int32_t list = pl_node_list(g, kind);
    pl_node_add(g, list, a);
    pl_node_add(g, list, b);
    return list;
}

int32_t pl_node_repeat(pl_nodes *g, int32_t node, int32_t min, int32_t max) {
    return add_node(g, (pl_node){.kind = PL_NODE_REPEAT, .item = node, .min = min, .max = max});
}

int32_t pl_node_rule(pl_nodes *g) {
    return add_node(g, (pl_node){.kind = PL_NODE_RULE, .item = -1});
}

void pl_node_define(pl_nodes *g, int32_t rule, int32_t node) {
    if (!g->failed) g->node[rule].item = node;
}

int32_t pl_node_text(pl_nodes *g, const char *s, size_t n) {
    int32_t seq = pl_node_list(g, PL_NODE_SEQ);
    for (size_t i = 0; i < n && !g->failed; i++)
        pl_node_add(g, seq, pl_node_byte(g, (uint8_t)s[i], (uint8_t)s[i]));
    return seq;
}

// ---- characters as bytes --------------------------------------------------------------------------------------------

// Adds the characters lo..hi of n bytes, whose encodings are the products of the ranges of their bytes.
static void add_bytes(pl_nodes *g, int32_t alt, uint32_t lo, uint32_t hi, int n) {
    char    a[4], b[4];
    int32_t seq = pl_node_list(g, PL_NODE_SEQ);
    pl_utf8_put(a, lo);
    pl_utf8_put(b, hi);
    for (int i = 0; i < n; i++)
        pl_node_add(g, seq, pl_node_byte(g, (uint8_t)a[i], (uint8_t)b[i]));
    pl_node_add(g, alt, seq);
}

// Splits lo..hi, all of one length, until each part is a product of byte ranges: below a byte that differs, all later
// bytes run over all their values.
static void split_range(pl_nodes *g, int32_t alt, uint32_t lo, uint32_t hi, int n) {
    for (int i = n - 1; i > 0; i--) {
        uint32_t low = (1U << 6 * i) - 1; // bits of the last i bytes
        if ((lo & ~low) == (hi & ~low)) continue;
        if (lo & low) {
            split_range(g, alt, lo, lo | low, n);
            split_range(g, alt, (lo | low) + 1, hi, n);
            return;
        }
        if ((hi & low) != low) {
            split_range(g, alt, lo, (hi & ~low) - 1, n);
            split_range(g, alt, hi & ~low, hi, n);
            return;
        }
    }
    add_bytes(g, alt, lo, hi, n);
}

int32_t pl_node_chars(pl_nodes *g, const pl_char_range *range, int n) {
    // By length of the encoding, without surrogates.
    static const struct {
        uint32_t lo, hi;
        int      bytes;
    } part[] = {{0, 0x7F, 1}, {0x80, 0x7FF, 2}, {0x800, 0xD7FF, 3}, {0xE000, 0xFFFF, 3}, {0x10000, 0x10FFFF, 4}};
    int32_t alt = pl_node_list(g, PL_NODE_ALT);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof part / sizeof *part && !g->failed; k++) {
            uint32_t lo = range[i].lo > part[k].lo ? range[i].lo : part[k].lo;
            uint32_t hi = range[i].hi < part[k].hi ? range[i].hi : part[k].hi;
            if (lo <= hi) split_range(g, alt, lo, hi, part[k].bytes);
        }
    return alt;
}

static int compare_ranges(const void *a, const void *b) {
    uint32_t x = ((const pl_char_range *)a)->lo, y = ((const pl_char_range *)b)->lo;
    return (x > y) - (x < y);
}

int pl_char_ranges_merge(pl_char_range *range, int n, bool negate) {
    int kept = 0;
    if (n > 0) qsort(range, (size_t)n, sizeof *range, compare_ranges);
    for (int i = 0; i < n; i++) {
        if (kept && range[i].lo <= range[kept - 1].hi + 1) {
            if (range[i].hi > range[kept - 1].hi) range[kept - 1].hi = range[i].hi;
        } else {
            range[kept++] = range[i];
        }
    }
    if (!negate) return kept;
    uint32_t from = 0;
    int      out = 0;
    for (int i = 0; i < kept; i++) {
        pl_char_range r = range[i]; // read before its place may be written: out <= i
        if (r.lo > from) range[out++] = (pl_char_range){from, r.lo - 1};
        from = r.hi + 1;
    }
    if (from <= 0x10FFFF) range[out++] = (pl_char_range){from, 0x10FFFF};
    return out;
}

// ---- checks ---------------------------------------------------------------------------------------------------------

// Sets a node's properties from those of its items; returns true if they changed. They only ever become true.
static bool update(pl_nodes *g, pl_node *x, const bool *spelt) {
    bool nullable = x->kind == PL_NODE_EMPTY || x->kind == PL_NODE_SEQ, productive = nullable;
    for (int b = x->lo; x->kind == PL_NODE_BYTE && b <= x->hi && !productive; b++)
        productive = spelt[b];
    if (x->kind == PL_NODE_SEQ || x->kind == PL_NODE_ALT) {
        for (int32_t i = x->item; i >= 0; i = g->item[i].next) {
            const pl_node *of = &g->node[g->item[i].node];
            nullable = x->kind == PL_NODE_SEQ ? nullable && of->nullable : nullable || of->nullable;
            productive = x->kind == PL_NODE_SEQ ? productive && of->productive : productive || of->productive;
        }
    } else if (x->kind == PL_NODE_REPEAT) {
        nullable = x->min == 0 || g->node[x->item].nullable;
        productive = x->min == 0 || g->node[x->item].productive;
    } else if (x->kind == PL_NODE_RULE && x->item >= 0) {
        nullable = g->node[x->item].nullable;
        productive = g->node[x->item].productive;
    }
    bool changed = nullable != x->nullable || productive != x->productive;
    x->nullable = nullable;
    x->productive = productive;
    return changed;
}

enum { NEW, OPEN, DONE };

typedef struct step {
    int32_t node, item; // item: of a list, the next one to enter; of others -1: not entered yet
} step;

// Returns the next node that can begin where s->node begins, -1: none is left.
static int32_t next_first(const pl_nodes *g, step *s) {
    const pl_node *x = &g->node[s->node];
    if (x->kind == PL_NODE_REPEAT || x->kind == PL_NODE_RULE) {
        int32_t of = s->item == -1 ? x->item : -1;
        s->item = -2;
        return of;
    }
    if ((x->kind != PL_NODE_SEQ && x->kind != PL_NODE_ALT) || s->item == -2) return -1;
    int32_t at = s->item == -1 ? x->item : s->item;
    if (at < 0) return -1;
    int32_t of = g->item[at].node;
    bool    on = x->kind == PL_NODE_ALT || g->node[of].nullable;
    s->item = on && g->item[at].next >= 0 ? g->item[at].next : -2;
    return of;
}

// Walks what may stand first in `from`, depth first without recursion. Returns false for a node within itself.
static bool walk_first(const pl_nodes *g, int32_t from, uint8_t *mark, step *stack) {
    int n = 0;
    stack[n++] = (step){from, -1};
    mark[from] = OPEN;
    while (n > 0) {
        int32_t of = next_first(g, &stack[n - 1]);
        if (of < 0) {
            mark[stack[--n].node] = DONE;
        } else if (mark[of] == OPEN) {
            return false;
        } else if (mark[of] == NEW) {
            mark[of] = OPEN;
            stack[n++] = (step){of, -1};
        }
    }
    return true;
}

static pl_status check_left(const pl_nodes *g, pl_err *err) {
    uint8_t *mark = pl_calloc((size_t)g->n, 1);
    step    *stack = pl_malloc((size_t)g->n * sizeof *stack); // a node is on it once
    bool     fine = true;
    for (int32_t i = 0; mark && stack && i < g->n && fine; i++)
        if (mark[i] == NEW) fine = walk_first(g, i, mark, stack);
    pl_status st = !mark || !stack ? pl_fail(err, PL_E_MEMORY, "grammar: out of memory")
                   : fine          ? PL_OK
                                   : pl_fail(err, PL_E_INPUT,
                                             "a rule begins with itself (left recursion); let it end "
                                                      "with itself");
    pl_free(mark);
    pl_free(stack);
    return st;
}

pl_status pl_nodes_check(pl_nodes *g, const bool spelt[256], pl_err *err) {
    if (g->full) return pl_fail(err, PL_E_INPUT, "is too large: more than %d parts", PL_GRAMMAR_NODES);
    if (g->failed) return pl_fail(err, PL_E_MEMORY, "grammar: out of memory");
    for (bool changed = true; changed;) { // items mostly stand before the nodes that hold them
        changed = false;
        for (int32_t i = 0; i < g->n; i++)
            changed |= update(g, &g->node[i], spelt);
    }
    if (!g->node[g->root].productive) return pl_fail(err, PL_E_INPUT, "matches no text at all");
    for (int32_t i = 0; i < g->n; i++) {
        const pl_node *x = &g->node[i];
        if (x->kind != PL_NODE_REPEAT || !g->node[x->item].nullable) continue;
        if (x->max != PL_GRAMMAR_MANY && x->max > PL_GRAMMAR_EMPTIES)
            return pl_fail(err, PL_E_INPUT, "repeats up to %d times what may be empty; at most %d", x->max,
                           PL_GRAMMAR_EMPTIES);
    }
    return check_left(g, err);
}
