// OmniDraft's cache (Ramakrishnan et al. 2025, arXiv 2507.02659): maps lists of the drafter's tokens to tokens that
// only the target has, for those target tokens that have occurred.
//
// Each target token has one list, its spelling by the drafter's tokenizer. Learning a token inserts its list into a
// trie over the drafter's tokens; a prefix that has been written is a node of it, 0 for the empty prefix. Nothing is
// allocated after open, and nothing is evicted: there are at most as many lists as tokens.
#ifndef PL_NGRAMS_H
#define PL_NGRAMS_H

#include "data/tokenizer/lexicon.h"

#define PL_NGRAM_LONGEST 8 // tokens; longer lists are not learned

typedef struct pl_ngram_node {
    int32_t token;          // the drafter's, after the parent's
    int32_t target;         // the target's token for this path, -1: none
    int32_t first, sibling; // nodes; 0: none
} pl_ngram_node;

typedef struct pl_ngrams {
    int64_t        vt, vd;
    int32_t       *spelled; // all spellings, concatenated
    int64_t       *from;    // [vt + 1] start of each one in `spelled`
    int32_t       *root;    // [vd] the node of a list's first token, 0: none
    pl_ngram_node *node;
    int32_t        n, learned; // nodes, including the unused node 0; lists
    bool          *known;      // [vt]
} pl_ngrams;

// has[t] >= 0: the drafter has token t itself, so that it needs no list.
pl_status pl_ngrams_open(pl_ngrams *g, const pl_lexicon *target, int64_t vt, const pl_lexicon *draft, int64_t vd,
                         const int32_t *has, pl_err *err);
void      pl_ngrams_close(pl_ngrams *g); // zeroed is fine
void      pl_ngrams_forget(pl_ngrams *g);
void      pl_ngrams_learn(pl_ngrams *g, int32_t target);
// Returns the child of `node` for the drafter's token; 0: there is none.
int32_t   pl_ngrams_next(const pl_ngrams *g, int32_t node, int32_t token);

#endif
