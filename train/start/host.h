// What matrices of the host are multiplied on before training.
#ifndef PL_TRAIN_START_HOST_H
#define PL_TRAIN_START_HOST_H

#include "infer/cli/env.h"

// The CPU, whatever device trains.
const pl_backend *pl_start_backend(const pl_env *env);

#endif
