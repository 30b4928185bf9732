// The shards of a dataset of the target's answers, and who makes them.
//
// Which documents a shard holds follows from the prompts alone, before anything is answered: jobs in their order
// (infer/generate/generator.h), so many that even answers of full length stay within rows_per_shard (a longer document
// has a shard of its own). So shards are made by any number of ranks, in any order and again, and the dataset is the
// same one, byte for byte.
//
// Ranks share the shards that are missing: those between which no conversation goes on are dealt out in turn, the
// others stay together, so that no answer is made twice.
#ifndef PL_GENERATE_SHARDS_H
#define PL_GENERATE_SHARDS_H

#include "data/dataset/dataset.h"
#include "infer/generate/generator.h"

typedef struct pl_shard_plan {
    int64_t  n;
    int64_t *first; // [n + 1] shard k holds the documents of jobs [first[k], first[k + 1]); owned
    int64_t *rows;  // [n] that it has at most; owned
} pl_shard_plan;

// For all jobs of the generator, whose number is known.
pl_status pl_shard_plan_make(pl_shard_plan *p, const pl_generator *g, int64_t rows_per_shard, pl_err *err);
void      pl_shard_plan_fini(pl_shard_plan *p);
int64_t   pl_shard_of(const pl_shard_plan *p, int64_t job);

// What one rank makes of a list of shards: a generator's work. The generator may look ahead, beyond the shards that are
// wanted now: their last answers are then made beside the first ones of those behind them, which wait in it until it is
// their turn.
typedef struct pl_shard_share {
    const pl_shard_plan *plan;
    const pl_generator  *g;
    int                  rank, ranks;
    const int64_t       *shard, *group; // [n] the list; shards of a group (NULL: all), ascending; borrowed
    int64_t              n, end;        // written are those before `end`, a group's; those behind are looked ahead at
    int64_t              at, units;     // of the list: behind what the generator was given; units so far
    int64_t              made, made_units; // likewise of what was written
    bool                 through;          // a stop waits until all is made: who trains has a checkpoint to write
} pl_shard_share;

// The next unit of this rank; a pl_generator_work's `next`, with the share as its argument.
bool    pl_shard_share_next(void *share, pl_jobs *range);
// The documents in all that this rank has yet to write.
int64_t pl_shard_share_docs(const pl_shard_share *share);

// Takes the documents of the list up to `end` from the generator, whose work is `share`, into the writer. done:
// documents that were there before, for the progress that is told. PL_E_INTERRUPTED when the process was asked to stop;
// another rank's failure.
pl_status pl_shards_write(pl_shard_share *share, pl_generator *g, pl_dataset_writer *w, pl_comm *comm, int64_t done,
                          pl_err *err);

#endif
