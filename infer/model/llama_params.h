// The list of a target's weights, by the names that its files give them (checkpoints/weights.h).
#ifndef PL_LLAMA_PARAMS_H
#define PL_LLAMA_PARAMS_H

#include "infer/model/llama.h"

// Lists the weights of m, whose config, shape and layers' kinds are set. packed: see pl_llama_init.
void pl_llama_list(pl_llama *m, bool packed);

#endif
