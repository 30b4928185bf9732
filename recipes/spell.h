// Finds the nearest known name to an unknown one.
#ifndef PL_SPELL_H
#define PL_SPELL_H

#include <stdbool.h>

#define PL_SPELL_MAX 128 // bytes compared; longer words are cut

// Returns the Damerau-Levenshtein distance in bytes (optimal string alignment: insertion, deletion, substitution and a
// swap of adjacent bytes cost 1, no byte is edited twice), ignoring case.
int pl_spell_distance(const char *a, const char *b);

// Returns true if a name at this distance is a likely misspelling of `word`, not only the nearest one.
bool pl_spell_close(const char *word, int distance);

// Returns the nearest of names[0..n) to a word if it is close enough, else NULL.
const char *pl_spell_nearest(const char *word, const char *const *names, int n);

#endif
