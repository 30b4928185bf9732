// The message by which rank 0 assigns work to the other ranks. They take recipe and folder from their own command lines
// and compare these hashes: no rank runs, opens or writes text from another one. Private to train/run.
#ifndef PL_TRAIN_JOB_H
#define PL_TRAIN_JOB_H

#include "infer/model/llama.h"

typedef struct pl_job {
    int32_t what; // one pl_ranks_work (train/run/run.h); 0: no more work
    int32_t n_taps, tap[PL_MAX_TAPS];
    char    recipe[17], out_dir[17]; // pl_recipe_hash of all keys; the hash of the folder's path
} pl_job;

#endif
