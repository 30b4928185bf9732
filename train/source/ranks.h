// A source's documents over several ranks: the survey of a dataset whose shards lie in several folders, and the way of
// documents from the ranks that have them to those that learn from them.
//
// A manifest lists all shards; each rank's folder holds some of them, or all. Shards are dealt out to the ranks that
// have them: each opens (and checks) its own and sends its documents' lengths to the others, so that all can plan steps
// over all documents.
#ifndef PL_TRAIN_SOURCE_RANKS_H
#define PL_TRAIN_SOURCE_RANKS_H

#include "train/loop/trainer.h"
#include "train/source/source.h"

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

// A source's documents on their way. rows and sender must be equal on all ranks.
typedef struct pl_doc_carry {
    pl_comm         *comm;
    pl_columns_shape shape;
    int32_t          vocab; // every token is less
    void            *arg;
    int64_t (*rows)(void *arg, int64_t at);
    // Returns the rank that sends document `at` to rank `to`; -1: none, it has it or there is no such document.
    int (*sender)(void *arg, int64_t at, int to);
    // Returns a document that this rank sends: borrowed until the next call.
    pl_status (*give)(void *arg, int64_t at, pl_columns *doc, pl_err *err);
    // Returns memory for a document to receive: room for its rows in every column of the shape.
    pl_status (*take)(void *arg, int64_t at, pl_columns *room, pl_err *err);
} pl_doc_carry;

// Collective: sends rank r the documents of [rank[r].first, rank[r].end) that it lacks. PL_E_IO: a rank sent an invalid
// token or mark.
pl_status   pl_doc_carry_out(const pl_doc_carry *c, const pl_doc_span *rank, pl_err *err);
// Collective, for a source's get outside of steps: gathers document `at` for all ranks unless it is in `gathered`.
pl_status   pl_source_gather_one(pl_feature_source *s, const pl_doc_span *gathered, int64_t at, pl_comm *comm,
                                 pl_err *err);
// Returns the documents of all ranks' ranges, which follow each other.
pl_doc_span pl_doc_span_all(const pl_doc_span *rank, int ranks);

// For tasks that read a source from a document, cursor[0], and its row, cursor[1] (n_cursor 2).

// Announces the documents of a step, and each rank's part, to a source that fetches them. A pl_task's begin.
pl_status pl_source_begin(pl_feature_source *s, pl_task *t, int64_t step, pl_err *err);
// Writes the documents [from, end), by number in the dataset or among the generated answers. Of a pl_task's place.
void      pl_source_place(pl_feature_source *s, int64_t from, int64_t end, pl_json_out *o);

#endif
