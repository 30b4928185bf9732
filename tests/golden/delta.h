// Files of targets with gated delta nets, whose numbers follow from the tensors' names (make_golden_delta.py's `value`).
#ifndef PL_TEST_GOLDEN_DELTA_H
#define PL_TEST_GOLDEN_DELTA_H

#include "tests/golden/golden.h"

// Writes dir/model.safetensors with the tensors that the golden file lists; names begin with `before` in place of
// `instead`.
void golden_delta_write(golden *g, const char *dir, const char *instead, const char *before);

#endif
