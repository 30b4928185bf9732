// `paceline import`: a published drafter as this program holds one.
#ifndef PL_COMMAND_IMPORT_H
#define PL_COMMAND_IMPORT_H

#include "infer/cli/cli.h"

extern const pl_command pl_command_import;

#endif
