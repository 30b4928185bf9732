// Survey of a dataset: its documents, and the ranks that have its shards.
//
// The manifest lists all shards; each rank's folder holds some of them, or all. Shards are dealt out to the ranks that
// have them: each opens (and checks) its own and sends its documents' lengths to the others, so that all can plan steps
// over all documents, whose rows go to the ranks that learn from them (train/source/carry.h).
#ifndef PL_TRAIN_SURVEY_H
#define PL_TRAIN_SURVEY_H

#include "data/dataset/dataset.h"
#include "kernels/comm/comm.h"

typedef struct pl_doc_said {
    int64_t      rows, answers; // answers: rows whose token is the target's answer
    pl_doc_about about;
    int32_t      held; // 1: held out of training
} pl_doc_said;

typedef struct pl_survey {
    int64_t      docs, shards;
    int          ranks;
    pl_doc_said *doc;        // [docs] owned
    int         *owner;      // [shards] the rank that opened it, and sends its documents; owned
    uint8_t     *there;      // [ranks][shards] 1: in that rank's folder; owned
    bool         everywhere; // each rank has all shards
} pl_survey;

// Collective. ds: opened lazily; receives the documents of shards on other ranks. Held out: see pl_dataset_held_out.
// PL_E_INPUT: a shard that no rank has, by name; ranks whose manifests differ. PL_E_IO: a rank that sent other shards
// or documents than the manifest has.
pl_status pl_survey_take(pl_survey *v, pl_dataset *ds, const char *dir, uint64_t seed, int64_t every, pl_comm *comm,
                         pl_err *err);
void      pl_survey_fini(pl_survey *v);

static inline bool pl_survey_has(const pl_survey *v, int rank, int64_t shard) {
    return v->there[rank * v->shards + shard];
}

#endif
