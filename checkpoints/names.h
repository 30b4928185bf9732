// A set of names numbered 0, 1, 2, ... in the order in which they were added; finding is O(1). The names are borrowed.
#ifndef PL_NAMES_H
#define PL_NAMES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pl_names {
    const char **name; // owned array of borrowed names
    uint32_t    *slot; // number + 1, 0 empty
    int64_t      count, cap, slots;
} pl_names;

// Grows as needed; a zeroed struct is an empty set.
// The number of the name, or -1 when it is there already, or -2 when out of memory.
int64_t pl_names_add(pl_names *s, const char *name);
int64_t pl_names_find(const pl_names *s, const char *name); // -1 if absent
void    pl_names_fini(pl_names *s);

#endif
