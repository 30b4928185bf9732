// `paceline check`: whether an engine would serve a drafter as it was trained.
#ifndef PL_COMMAND_CHECK_H
#define PL_COMMAND_CHECK_H

#include "infer/cli/cli.h"

extern const pl_command pl_command_check;

#endif
