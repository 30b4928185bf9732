// Training on several ranks (kernels/comm/comm.h): rank 0 walks through the command as a single process would, and
// hands each training to the others, which do nothing else. A job says everything: recipe, folder, where to stop.
#ifndef PL_TRAIN_RANKS_H
#define PL_TRAIN_RANKS_H

#include "infer/cli/env.h"

// Rank 0: the others train this too, now. Nothing where there are none.
pl_status pl_ranks_hand_out(const pl_env *env, const pl_recipe *r, const char *out_dir, int64_t stop_after,
                            pl_err *err);
// Rank 0: there is nothing more to do.
pl_status pl_ranks_end(const pl_env *env, pl_err *err);
// The others: train what rank 0 hands out until it ends.
pl_status pl_ranks_serve(const pl_env *env, pl_err *err);

// The threads that a rank trains with, of `threads` for all of them: at least one.
int       pl_ranks_threads(int threads, int ranks);
// Rank 0's env while it trains: `env` with a pool of its share, which is the caller's to destroy; NULL where the pool
// of env will do. The others have no more than their share from the start.
pl_status pl_ranks_env(pl_env *out, pl_pool **pool, const pl_env *env, pl_err *err);

#endif
