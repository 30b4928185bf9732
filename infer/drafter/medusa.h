// Shared by drafters of several heads on the target's last hidden state: Medusa and Hydra (infer/drafter/hydra.c).
#ifndef PL_MEDUSA_H
#define PL_MEDUSA_H

#include "infer/drafter/backbone.h"

// pl_backbone_kind.check and .ignores.
pl_status pl_medusa_check(pl_hf_config *c, const pl_llama *target, const char *where, pl_err *err);
bool      pl_medusa_ignores(const char *name);

#endif
