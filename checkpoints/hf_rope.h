// What a config.json says of rotary embedding: rope_theta with rope_scaling, or rope_parameters.
#ifndef PL_HF_ROPE_H
#define PL_HF_ROPE_H

#include "checkpoints/hf_family.h"

// Into c->rope and c->local_theta; c's positions are read already. What is not computed here is PL_E_INPUT, by name.
pl_status pl_hf_rope_read(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err);

#endif
