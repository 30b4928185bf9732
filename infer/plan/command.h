// `paceline plan`: which head, size, chain or tree pays on this machine.
#ifndef PL_CLI_PLAN_H
#define PL_CLI_PLAN_H

#include "infer/cli/cli.h"

extern const pl_command pl_command_plan;

#endif
