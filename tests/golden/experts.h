// Folders of mixtures as they are published, from ones whose experts lie one by one under Qwen3-MoE's names.
#ifndef PL_TEST_GOLDEN_EXPERTS_H
#define PL_TEST_GOLDEN_EXPERTS_H

#include "checkpoints/hf.h"

void as_mixtral(const char *dir);
// GPT-OSS's stacks in BF16, or in MXFP4: then the experts' numbers are those of packed() in make_golden.py.
void stack_experts(const char *dir, const pl_hf_config *c, bool packed);

#endif
