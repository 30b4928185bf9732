// The nearest known name to one that is not known.
#ifndef PL_SPELL_H
#define PL_SPELL_H

#include <stdbool.h>

#define PL_SPELL_MAX 128 // bytes compared; longer words are cut

// Damerau-Levenshtein distance in bytes (optimal string alignment: insertion, deletion, substitution and the swap of
// neighbours cost 1, none is edited twice), letters of either case being equal.
int pl_spell_distance(const char *a, const char *b);

// Whether a name at this distance is a likely slip for `word`, rather than merely the nearest there is.
bool pl_spell_close(const char *word, int distance);

#endif
