// `paceline inspect PATH`: what a path holds.
#ifndef PL_INSPECT_H
#define PL_INSPECT_H

#include "infer/cli/cli.h"

extern const pl_command pl_command_inspect;

#endif
