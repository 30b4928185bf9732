// OmniDraft's cache (Ramakrishnan et al. 2025, arXiv 2507.02659): lists of a drafter's tokens that stand for one token
// of the target's which the drafter lacks, for those tokens that the target has said.
//
// Each of the target's tokens has one list, its spelling by the drafter's tokenizer. Learning a token puts its list
// into a trie over the drafter's tokens; what has been written is a node of it, 0 for nothing. Nothing is allocated
// after open, and nothing is ever thrown out: there are as many lists as tokens at most.
#ifndef PL_NGRAMS_H
#define PL_NGRAMS_H

#include "data/tokenizer/lexicon.h"

#define PL_NGRAM_LONGEST 8 // tokens; what takes more is not learned

typedef struct pl_ngram_node {
    int32_t token;          // the drafter's, behind the parent's
    int32_t target;         // what the path stands for, -1: nothing by itself
    int32_t first, sibling; // nodes; 0: none
} pl_ngram_node;

typedef struct pl_ngrams {
    int64_t        vt, vd;
    int32_t       *spelled; // all spellings, one after the other
    int64_t       *from;    // [vt + 1] where each one's begins
    int32_t       *root;    // [vd] the node of a list's first token, 0: none
    pl_ngram_node *node;
    int32_t        n, learned; // nodes, the root's place included; lists
    bool          *known;      // [vt]
} pl_ngrams;

// has[t] >= 0: the drafter has token t itself, which needs no list.
pl_status pl_ngrams_open(pl_ngrams *g, const pl_lexicon *target, int64_t vt, const pl_lexicon *draft, int64_t vd,
                         const int32_t *has, pl_err *err);
void      pl_ngrams_close(pl_ngrams *g); // zeroed is fine
void      pl_ngrams_forget(pl_ngrams *g);
void      pl_ngrams_learn(pl_ngrams *g, int32_t target);
// The node behind one, with the drafter's token; 0: there is none.
int32_t   pl_ngrams_next(const pl_ngrams *g, int32_t node, int32_t token);

#endif
