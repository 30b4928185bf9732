// Tensors of files as entries of a source (checkpoints/weights.h): a mixture's under one set of names, whatever the
// file calls them.
#ifndef PL_MIXTURE_H
#define PL_MIXTURE_H

#include "checkpoints/weights.h"

// Filled twice: without room it counts.
typedef struct pl_weight_list {
    pl_weight_entry *entry; // NULL: only n and text are wanted
    char            *names; // where the entries' names go, one after another
    int64_t          n;
    size_t           text; // bytes of names
} pl_weight_list;

// A tensor of a set. name: its own in a decoder (without what wraps it).
void pl_weight_list_add(pl_weight_list *l, const pl_st *set, const pl_st_entry *e, const char *name);

#endif
