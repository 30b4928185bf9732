// Mixtures of experts in config.json: how many, how wide, in which layers.
#ifndef PL_HF_EXPERTS_H
#define PL_HF_EXPERTS_H

#include "checkpoints/hf_family.h"

// num_local_experts or num_experts, num_experts_per_tok, moe_intermediate_size, norm_topk_prob, decoder_sparse_step and
// mlp_only_layers into c, whose sizes are read already. A family without experts takes none of them, and says so.
pl_status pl_hf_experts_read(pl_hf_config *c, const pl_json *j, const pl_hf_family *f, pl_err *err);
pl_status pl_hf_experts_check(const pl_hf_config *c, const char *where, pl_err *err);
// The same as members of an open object; nothing where there are none.
void      pl_hf_experts_put(pl_json_out *o, const pl_hf_config *c, const pl_hf_family *f);

#endif
