// The shards of a dataset of the target's answers, and their distribution over ranks.
//
// The documents of a shard follow from the prompts alone, before any answer: jobs in order
// (infer/generate/generator.h), as many as stay within rows_per_shard with answers of full length (a longer document
// has a shard of its own). So any number of ranks can make the shards, in any order and repeatedly, and the dataset is
// the same, byte for byte.
//
// Ranks share the missing shards in units, assigned in turn: adjacent shards that a conversation spans form one unit,
// so that no answer is computed twice.
#ifndef PL_GENERATE_SHARDS_H
#define PL_GENERATE_SHARDS_H

#include "data/dataset/dataset.h"
#include "infer/generate/generator.h"

typedef struct pl_shard_plan {
    int64_t  n;
    int64_t *first; // [n + 1] shard k holds the documents of jobs [first[k], first[k + 1]); owned
    int64_t *rows;  // [n] the most rows of each; owned
} pl_shard_plan;

// Plans the shards of all jobs of the generator, which must not be endless.
pl_status pl_shard_plan_make(pl_shard_plan *p, const pl_generator *g, int64_t rows_per_shard, pl_err *err);
void      pl_shard_plan_fini(pl_shard_plan *p);

// One rank's share of a list of shards: the work of a generator. The generator may look ahead beyond the current
// shards: it then computes their last answers together with the first ones of later shards, which it keeps until their
// turn.
typedef struct pl_shard_share {
    const pl_shard_plan *plan;
    const pl_generator  *g;
    int                  rank, ranks;
    const int64_t       *shard, *group; // [n] the list; shards of a group (NULL: all), ascending; borrowed
    int64_t n, end;    // entries before `end`, the end of a group, are written now; later ones only looked ahead at
    int64_t at, units; // end of the entries that the generator was given; units so far
    int64_t made, made_units; // the same for written entries
    bool    through;          // a requested stop takes effect after all shards, since training must write a checkpoint
} pl_shard_share;

// Returns the next unit of this rank; a pl_generator_work's `next`, with the share as its argument.
bool pl_shard_share_next(void *share, pl_jobs *range);

// Writes the documents of the list up to `end`, from the generator, whose work is `share`. done: documents that existed
// before, for progress messages. Returns PL_E_INTERRUPTED after a request to stop, or another rank's failure.
pl_status pl_shards_write(pl_shard_share *share, pl_generator *g, pl_dataset_writer *w, pl_comm *comm, int64_t done,
                          pl_err *err);

#endif
