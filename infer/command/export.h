// `paceline export`: a trained drafter as a serving engine reads it.
#ifndef PL_COMMAND_EXPORT_H
#define PL_COMMAND_EXPORT_H

#include "infer/cli/cli.h"

extern const pl_command pl_command_export;

#endif
