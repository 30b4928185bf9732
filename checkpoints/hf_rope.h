// Reads the rotary embedding of a config.json: from rope_scaling or, where that is missing or empty, rope_parameters,
// and from the top for members that neither has, as transformers 5 does (original_max_position_embeddings counts at the
// top first). A warning names a place that contradicts.
#ifndef PL_HF_ROPE_H
#define PL_HF_ROPE_H

#include "checkpoints/hf_family.h"

// Into c->rope and c->local_theta; c's positions are read already. What is not computed here is PL_E_INPUT, by name.
pl_status pl_hf_rope_read(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err);

#endif
