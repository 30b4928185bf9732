// JSON numbers within bounds, as nodes of a grammar.
#ifndef PL_GRAMMAR_NUMBERS_H
#define PL_GRAMMAR_NUMBERS_H

#include "infer/grammar/nodes.h"

#define PL_JSON_NUMBER_MAX (((int64_t)1 << 53) - 1)

int32_t pl_json_number(pl_nodes *g); // any, of at most 16 digits before and behind the point, and an exponent
// Whole numbers lo..hi without a point; |lo|, |hi| <= PL_JSON_NUMBER_MAX.
int32_t pl_json_integer(pl_nodes *g, int64_t lo, int64_t hi);
// Numbers lo..hi with or without a point; above, below: the bound itself is left out.
int32_t pl_json_decimal(pl_nodes *g, int64_t lo, int64_t hi, bool above, bool below);

#endif
