// A grammar over bytes as a graph of nodes: the readers (gbnf.c, regex.c, schema.c) build it, the automaton walks it.
//
//   empty   matches nothing            byte    one byte in lo..hi
//   seq     its items in order         alt     one of its items
//   repeat  an item min to max times   rule    the definition of a rule, which may be recursive
//
// Nodes are numbers and may be shared. Running out of memory or of PL_GRAMMAR_NODES sticks (`failed`), every later call
// is harmless, and pl_nodes_check returns the failure.
#ifndef PL_GRAMMAR_NODES_H
#define PL_GRAMMAR_NODES_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_GRAMMAR_NODES (1 << 18) // nodes and items of a grammar at most: 10 MB
#define PL_GRAMMAR_MANY INT32_MAX  // max of a repeat without an end
#define PL_GRAMMAR_EMPTIES 64      // max of a repeat whose item may be empty

typedef enum pl_node_kind {
    PL_NODE_EMPTY,
    PL_NODE_BYTE,
    PL_NODE_SEQ,
    PL_NODE_ALT,
    PL_NODE_REPEAT,
    PL_NODE_RULE
} pl_node_kind;

typedef struct pl_node {
    uint8_t kind, lo, hi;
    bool    nullable, productive; // set by pl_nodes_check: matches the empty text; matches any text at all
    int32_t item;                 // seq, alt: first item, -1: none; repeat: its node; rule: its node, -1: not defined
    int32_t last;                 // seq, alt: last item
    int32_t min, max;             // repeat
} pl_node;

typedef struct pl_node_item {
    int32_t node, next; // next: -1: the last
} pl_node_item;

typedef struct pl_nodes {
    pl_node      *node; // owned
    pl_node_item *item; // owned
    int32_t       n, n_items, cap, cap_items;
    int32_t       root; // node of the whole text
    bool          failed, full;
} pl_nodes;

// A range of characters (Unicode scalar values), both ends included.
typedef struct pl_char_range {
    uint32_t lo, hi;
} pl_char_range;

void    pl_nodes_fini(pl_nodes *g);
int32_t pl_node_empty(pl_nodes *g);
int32_t pl_node_byte(pl_nodes *g, uint8_t lo, uint8_t hi);
int32_t pl_node_text(pl_nodes *g, const char *s, size_t n); // these bytes
// The UTF-8 of any character of the ranges; surrogates are left out. No character: matches no text.
int32_t pl_node_chars(pl_nodes *g, const pl_char_range *range, int n);
int32_t pl_node_list(pl_nodes *g, pl_node_kind kind); // an empty seq or alt
void    pl_node_add(pl_nodes *g, int32_t list, int32_t node);
int32_t pl_node_pair(pl_nodes *g, pl_node_kind kind, int32_t a, int32_t b); // a list of two
int32_t pl_node_repeat(pl_nodes *g, int32_t node, int32_t min, int32_t max);
int32_t pl_node_rule(pl_nodes *g); // to be defined
void    pl_node_define(pl_nodes *g, int32_t rule, int32_t node);

// Sorts and merges ranges in place; returns how many are left. negate: their complement instead; `range` has room for
// one more.
int pl_char_ranges_merge(pl_char_range *range, int n, bool negate);

// Computes nullable and productive, for texts of bytes b with spelt[b]. Refuses a left-recursive grammar, one that
// matches no text, and a long repeat of what may be empty.
pl_status pl_nodes_check(pl_nodes *g, const bool spelt[256], pl_err *err);

#endif
