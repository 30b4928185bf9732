// `paceline vocab`: how often tokens occur, which lists of tokens cover how much, and what two vocabularies share.
#ifndef PL_CLI_VOCAB_H
#define PL_CLI_VOCAB_H

#include "infer/cli/cli.h"

extern const pl_command pl_command_vocab;

#endif
