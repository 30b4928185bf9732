// `paceline decode`: one answer, streamed, with its statistics; and `paceline tokenize`.
#ifndef PL_CLI_DECODE_H
#define PL_CLI_DECODE_H

#include "infer/cli/cli.h"

extern const pl_command pl_command_decode, pl_command_tokenize;

#endif
