// Where a drafter's training documents come from: a stream of documents with the target's features.
//
// Documents are numbered over all epochs from 0, and a document's content is a pure function of its number, so that the
// number of the next document is all that a resumed run must know. Offline sources read a dataset in another order each
// epoch; an online source computes what it is asked for.
#ifndef PL_TRAIN_SOURCE_H
#define PL_TRAIN_SOURCE_H

#include "data/dataset/dataset.h"
#include "kernels/comm/comm.h"
#include <stdint.h>

typedef struct pl_doc_span {
    int64_t first, end;
} pl_doc_span;

typedef struct pl_feature_source pl_feature_source;
struct pl_feature_source {
    int64_t d, taps;            // widths; taps 0: documents come without features
    int64_t docs;               // documents per epoch; 0: not known
    double  greedy_share;       // of them, greedy answers
    double  temperature, top_p; // how the target drew the others
    char    identity[17];       // of what the documents are made from: resuming with another is refused
    // Document `at`: the columns of features, of which `features` is NULL where taps is 0; borrowed until the
    // next call. Called with the same number again, the next one, or (first of all) any. A source that has no more
    // documents fails.
    pl_status (*get)(pl_feature_source *s, int64_t at, pl_columns *doc, pl_err *err);
    // How many rows document `at` has, for who passes it over; numbers are asked for as with get.
    pl_status (*rows)(pl_feature_source *s, int64_t at, int64_t *n, pl_err *err);
    // Which document of the dataset `at` is; NULL: they are made from prompts, in order.
    int64_t (*number)(pl_feature_source *s, int64_t at);
    // For a source whose documents are made while one trains, or lie in several ranks' folders; both NULL: nothing to
    // do. Before a step all ranks call begin with its first document (those before it are not asked for again), then
    // rows of all that the step takes, one after the other, and then gather with what each rank will get: documents
    // [rank[r].first, rank[r].end). After that a step asks for these alone, each rank by itself. Outside of steps, and
    // while documents are planned, rows and get are collective too.
    pl_status (*begin)(pl_feature_source *s, int64_t at, pl_err *err);
    pl_status (*gather)(pl_feature_source *s, const pl_doc_span *rank, pl_err *err);
    // Of held-out documents, by all ranks before training, in ascending order: rank 0, which evaluates by itself, will
    // ask for [from, to), and gets what lies in others' folders. It stays in memory. NULL: rank 0 has all.
    pl_status (*fetch)(pl_feature_source *s, int64_t from, int64_t to, pl_err *err);
    void (*destroy)(pl_feature_source *s);
};

// Both sides of a dataset folder. Held out is every document whose prompt (its tokens up to the first answer token)
// hashes, with the seed, to 0 modulo `every` (0: nothing is): answers to one prompt stay on one side. `want` is as in
// pl_dataset_open_options; want->A < 0 says that no features are needed: none are read, whatever the dataset has.
// comm: ranks whose folders hold the same manifest, and each all shards or some (train/source/survey.h): collective;
// NULL: one, which has all. train: in the order of train/source/order.h, without end; lives longer than held. held:
// `docs` documents in the dataset's order, NULL where nothing is held out (with a warning where something should have
// been). PL_E_INPUT when no token of the training side is marked as an answer.
pl_status pl_offline_sources(pl_feature_source **train, pl_feature_source **held, const char *dir,
                             const pl_dataset_attrs *want, uint64_t seed, int64_t every, int64_t window, pl_comm *comm,
                             pl_err *err);
// greedy_share, temperature and top_p from what a dataset stores of its generation.
pl_status pl_source_read_sampling(pl_feature_source *s, const char *generation, pl_err *err);

#endif
