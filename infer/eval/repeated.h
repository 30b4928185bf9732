// Repetition in a text: seq-rep-4 of Welleck et al. 2020 (arXiv 1908.04319, section 6).
#ifndef PL_REPEATED_H
#define PL_REPEATED_H

#include <stdbool.h>
#include <stdint.h>

// Returns how many of n tokens are inside a 4-gram that occurred earlier among them; -1: out of memory. again: [n],
// true for these tokens, or NULL.
int64_t pl_repeated_tokens(const int32_t *tokens, int64_t n, bool *again);

#endif
