// `paceline plan train`: what training a drafter will take (train/plan/plan.h), for numbers of ranks and ways of
// getting data.
#ifndef PL_TRAIN_PLAN_COMMAND_H
#define PL_TRAIN_PLAN_COMMAND_H

#include "infer/cli/cli.h"

extern const pl_command pl_command_plan_train;

#endif
