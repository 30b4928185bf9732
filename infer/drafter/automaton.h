// Suffix automaton of a growing text: finds every string that occurs in it, counts its occurrences and lists the tokens
// that follow it.
//
// A state is a class of strings that end at the same positions (Blumer et al. 1985). Adding a token takes amortised
// constant time and at most 2 states and 3 edges. Occurrences are counted exactly and online for strings of at most
// `longest` tokens: each added token ends at most `longest` such strings, which lie at most `longest` states up the
// suffix links, and each of them gains one occurrence. (Exact counts of every length would cost a walk over the whole
// text for each token of a repetitive text.)
//
// Several texts are stored as one, separated by PL_AUTOMATON_END, which is never drafted. Nothing is allocated after
// create: 100 to 116 bytes per token.
#ifndef PL_AUTOMATON_H
#define PL_AUTOMATON_H

#include "infer/drafter/drafter.h"

#define PL_AUTOMATON_LONGEST 32 // longest string that is counted, in tokens
#define PL_AUTOMATON_END (-1)

typedef struct pl_automaton pl_automaton;

// A string: the last `length` tokens of the strings of its state. {0} is the empty string.
typedef struct pl_suffix {
    int32_t state, length;
} pl_suffix;

pl_status      pl_automaton_create(pl_automaton **out, int64_t tokens, pl_err *err); // tokens: capacity
void           pl_automaton_destroy(pl_automaton *a);
void           pl_automaton_clear(pl_automaton *a);
int64_t        pl_automaton_tokens(const pl_automaton *a);
const int32_t *pl_automaton_text(const pl_automaton *a);         // the added tokens, valid until the next change
int64_t        pl_automaton_room(const pl_automaton *a);         // tokens that can still be added
void           pl_automaton_add(pl_automaton *a, int32_t token); // requires room > 0
// Returns the longest suffix of the text that also occurs elsewhere in it.
pl_suffix      pl_automaton_repeated(const pl_automaton *a);
// Returns the longest suffix of tokens[0..n) that occurs in the text.
pl_suffix      pl_automaton_find(const pl_automaton *a, const int32_t *tokens, int64_t n);
// Returns the k most frequent tokens after the string s, the most frequent first (ties: the most recent first), with
// their counts; *all receives the count of all followers. If nothing follows s, *s is shortened to its longest suffix
// that has a follower. Returns the number of tokens; 0: the string has become empty.
int pl_automaton_next(const pl_automaton *a, pl_suffix *s, int k, int32_t *token, int32_t *count, int64_t *all);

// ---- drafting -------------------------------------------------------------------------------------------------------

// Probability of a token seen c times after a string of n tokens that was seen C times: c / (C + PL_AUTOMATON_DOUBT /
// n), so that a single observation does not count as certain.
#define PL_AUTOMATON_DOUBT 2.0

// Grows the tree from the continuations of s and sets scores to the log of the path's probability (the product of the
// estimates above).
//   policy NULL  best first: the at most `nodes` most probable nodes, no path below PL_AUTOMATON_LEAST
//   policy given as that policy grows it
#define PL_AUTOMATON_LEAST 0.05
void pl_automaton_draft(const pl_automaton *a, pl_suffix s, const pl_tree_policy *policy, int nodes, int depth,
                        pl_tree *t);

// Parses the tree of a drafter that uses this automaton: its own shape of at most `nodes` tokens, or --tree's, which
// must be one that grows from candidates of each node.
pl_status pl_automaton_shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, int nodes, const char *tree,
                             pl_err *err);

#endif
