// The list of a target's weights, by the names that its files give them (checkpoints/weights.h).
#ifndef PL_LLAMA_PARAMS_H
#define PL_LLAMA_PARAMS_H

#include "infer/model/llama.h"

// Lists one layer's: its widths are s's, its kind w's (experts and recurrence are set), the rest c's.
void pl_llama_list_layer(pl_params *ps, pl_layer *w, const pl_layer_shape *s, const pl_hf_config *c, const char *prefix,
                         double out_scale);

// Lays a mixture over PL_EXPERT_TENSORS tensors for each of c's experts.
enum { PL_EXPERT_TENSORS = 4 };
pl_mixture pl_mixture_over(pl_tensor *of, const pl_hf_config *c);

// Lists the weights of m, whose config, shape and layers' kinds are set. packed: see pl_llama_init.
void pl_llama_list(pl_llama *m, bool packed);

#endif
