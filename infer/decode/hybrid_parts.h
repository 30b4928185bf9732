// Who drafts in a hybrid (hybrid.c), and what: "FREE[+MODEL]" and a tree, taken apart.
#ifndef PL_HYBRID_PARTS_H
#define PL_HYBRID_PARTS_H

#include "infer/drafter/drafter.h"

#define PL_HYBRID_NODES 64 // of a session's tree, the root included

typedef struct pl_hybrid_parts {
    char           free[512];
    const char    *model; // NULL: there is none; else part of the text that was given
    const char    *free_tree, *model_tree;
    pl_tree_policy of_free, of_model;
} pl_hybrid_parts;

// args: the text behind "hybrid:"; tree: auto, chain:auto or chain:confidence, NULL or "" as auto. What is no such text
// or tree is told in one line.
pl_status pl_hybrid_parts_of(pl_hybrid_parts *x, const char *args, const char *tree, pl_err *err);
// The limits of both, and the tree that their drafter is named by (pl_drafter_source.shape).
pl_status pl_hybrid_shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *args, const char *tree, pl_err *err);
// How it draws: as MODEL does (pl_drafter_proposals).
unsigned  pl_hybrid_proposals(const char *args);

#endif
