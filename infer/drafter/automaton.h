// The suffix automaton of a text that grows: every string that occurs in it, how often, and what follows it.
//
// States are classes of strings that end at the same places (Blumer et al. 1985); a token is added in amortised
// constant time and at most 2 states and 3 edges. How often a class occurs is kept for strings of at most `longest`
// tokens, exactly and online: the place that the text has come to ends its last `longest` tokens and their suffixes,
// which are at most `longest` states up the links, and each of them occurs once more. (An exact count of every length
// would cost a walk as long as the text for each token of a text that repeats itself.)
//
// Several texts are one with a separator between them (PL_AUTOMATON_END), which follows strings and is never drafted.
// Nothing is allocated after create: 100 to 116 bytes a token.
#ifndef PL_AUTOMATON_H
#define PL_AUTOMATON_H

#include "infer/drafter/drafter.h"

#define PL_AUTOMATON_LONGEST 32 // tokens of a string at most
#define PL_AUTOMATON_END (-1)

typedef struct pl_automaton pl_automaton;

// Where a string ends: it is the `length` last tokens of what the state stands for. {0}: the empty string.
typedef struct pl_suffix {
    int32_t state, length;
} pl_suffix;

pl_status      pl_automaton_create(pl_automaton **out, int64_t tokens, pl_err *err); // of at most so many
void           pl_automaton_destroy(pl_automaton *a);
void           pl_automaton_clear(pl_automaton *a);
int64_t        pl_automaton_tokens(const pl_automaton *a);
const int32_t *pl_automaton_text(const pl_automaton *a);         // those tokens, until the next change
int64_t        pl_automaton_room(const pl_automaton *a);         // tokens that can still be added
void           pl_automaton_add(pl_automaton *a, int32_t token); // there is room
// The longest end of the text that occurs elsewhere in it too.
pl_suffix      pl_automaton_repeated(const pl_automaton *a);
// The longest end of tokens[0..n) that occurs in the text.
pl_suffix      pl_automaton_find(const pl_automaton *a, const int32_t *tokens, int64_t n);
// How often a string occurs, of at most PL_AUTOMATON_LONGEST tokens.
int32_t        pl_automaton_count(const pl_automaton *a, pl_suffix s);
// The k tokens that follow the string most often, the most frequent first and of equal ones those that came up last,
// and how often each does; *all: how often anything does. Where nothing follows it, *s becomes its longest end that
// something does follow. Returns how many; 0: the string has become empty.
int       pl_automaton_next(const pl_automaton *a, pl_suffix *s, int k, int32_t *token, int32_t *count, int64_t *all);
// The string with one more token behind it, which follows it.
pl_suffix pl_automaton_on(const pl_automaton *a, pl_suffix s, int32_t token);

// ---- drafting -------------------------------------------------------------------------------------------------------

// Of c occurrences among C of a string of n tokens: c / (C + PL_AUTOMATON_DOUBT / n), so that what was seen once behind
// one token is not taken for certain.
#define PL_AUTOMATON_DOUBT 2.0

// Grows the tree from a string's continuations and sets scores to the logarithms of those shares along the path.
// Returns the sum of its paths' probabilities, 0: nothing follows.
//   best first  policy NULL: at most `nodes` nodes, the most probable of all, no path below PL_AUTOMATON_LEAST
//   given       else: as the policy grows it
#define PL_AUTOMATON_LEAST 0.05
double pl_automaton_draft(const pl_automaton *a, pl_suffix s, const pl_tree_policy *policy, int nodes, int depth,
                          pl_tree *t);

// The tree of a drafter that drafts so: its own, of at most `nodes` tokens; or --tree's, where each node's candidates
// suffice for it.
pl_status pl_automaton_shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, int nodes, const char *tree,
                             pl_err *err);

#endif
