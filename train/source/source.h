// A drafter's training documents: a stream of documents with the target's features.
//
// Documents are numbered over all epochs from 0, and a document's content is a pure function of its number, so that a
// resumed run needs only the number of the next document. Offline sources read a dataset in another order each epoch;
// an online source computes documents on request.
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
    int64_t d, taps;            // widths; taps 0: documents have no features
    int64_t docs;               // documents per epoch; 0: unknown
    double  greedy_share;       // share of greedy answers among them
    double  temperature, top_p; // sampling of the other answers
    char    identity[17];       // hash of the documents' inputs: resuming with another is refused
    // Returns document `at`: the columns of features, of which `features` is NULL if taps is 0; borrowed until the next
    // call. Called with the same number again, the next one, or (the first time) any. A source without further
    // documents fails.
    pl_status (*get)(pl_feature_source *s, int64_t at, pl_columns *doc, pl_err *err);
    // Returns the rows of document `at`, for callers that skip it; the same rules for numbers as get.
    pl_status (*rows)(pl_feature_source *s, int64_t at, int64_t *n, pl_err *err);
    // Returns the number in the dataset of document `at`; NULL: documents are made from prompts, in order.
    int64_t (*number)(pl_feature_source *s, int64_t at);
    // For sources whose documents are made during training, or lie in several ranks' folders; NULL: nothing to do.
    // Before a step all ranks call begin with its first document (earlier ones are not requested again), then rows of
    // all documents of the step, in order, then gather with each rank's range: documents [rank[r].first, rank[r].end).
    // The step then gets only these, each rank independently. Outside of steps, and during planning, rows and get are
    // collective too.
    pl_status (*begin)(pl_feature_source *s, int64_t at, pl_err *err);
    pl_status (*gather)(pl_feature_source *s, const pl_doc_span *rank, pl_err *err);
    // Called by all ranks before training, for held-out documents, in ascending order: sends [from, to) from others'
    // folders to rank 0, which evaluates alone. They stay in memory. NULL: rank 0 has all.
    pl_status (*fetch)(pl_feature_source *s, int64_t from, int64_t to, pl_err *err);
    void (*destroy)(pl_feature_source *s);
};

// Opens training and held-out documents of a dataset folder. A document is held out if its prompt (its tokens up to the
// first answer token) hashes, with the seed, to 0 modulo `every` (0: none is): answers to one prompt stay together.
// `want` is as in pl_dataset_open_options; want->A < 0: no features are needed, and none are read. comm: ranks whose
// folders hold the same manifest, and each all shards or some (train/source/ranks.h): collective; NULL: a single rank
// with all shards. train: in the order of train/source/order.h, without end; lives longer than held. held: `docs`
// documents in the dataset's order, NULL if none is held out (with a warning if some should have been). PL_E_INPUT when
// no token of the training documents is marked as an answer.
pl_status pl_offline_sources(pl_feature_source **train, pl_feature_source **held, const char *dir,
                             const pl_dataset_attrs *want, uint64_t seed, int64_t every, int64_t window, pl_comm *comm,
                             pl_err *err);

#endif
