// Datasets for training (HDF5): features, what the target computed for its own text, from which drafters learn; and
// traces, what a trained drafter with a full head did along such text, from which routers learn (train/task/traces.h).
//
// A dataset is a folder of immutable shards shard-00000.h5, shard-00001.h5, ... and manifest.json. A shard with N rows
// in D documents holds the columns of data/dataset/columns.h, each as a dataset of its name with n = N (bf16: uint16
// with the attribute dtype="bf16"), doc_offsets int64 [D+1] and, of features, the lists of pl_doc_about, which shards
// of older builds lack in part. Everything that must agree later is an attribute of the shard's root and stands again
// in the manifest, with rows, documents, bytes and xxHash64 of each shard; a shard's hash is checked before HDF5 sees
// the file.
#ifndef PL_DATASET_H
#define PL_DATASET_H

#include "data/dataset/columns.h"

#define PL_DATASET_VERSION 1
#define PL_DATASET_MAX_TAPS 16
#define PL_DATASET_PARTS 512    // processes that write one dataset, at most
#define PL_DATASET_HOLDOUT "20" // one prompt in so many is held out where nobody says another number
#define PL_DATASET_MAX_TOP 128

// How `features` and `last_hidden` are stored (traces: always bf16). int8 is data/dataset/mxint8.h's, each tap and the
// last hidden a vector of its own: uint8 [N, A * bytes] and [N, bytes] with the attribute dtype="mxint8". Documents are
// bf16 wherever they are held: the writer encodes what it appends, reading decodes.
typedef enum pl_feature_format { PL_FEATURES_ANY, PL_FEATURES_BF16, PL_FEATURES_INT8 } pl_feature_format;

// What must agree between the producer and every consumer. Strings are borrowed from the caller.
typedef struct pl_dataset_attrs {
    const char *target_fingerprint;                 // of the target model
    const char *tokenizer_fingerprint;              // pl_tokenizer_fingerprint
    const char *template_name;                      // chat template's name or fingerprint; "plain" without one
    const char *generation;                         // settings of the generation, a JSON text
    int32_t     vocab_size;                         // every token and argmax is below it
    int32_t     d;                                  // width of one hidden state
    int32_t     A;                                  // number of taps, 0..PL_DATASET_MAX_TAPS
    int32_t     tap_layer_ids[PL_DATASET_MAX_TAPS]; // tap_numbering "layer inputs, 0-based"; L means layer L-1's output
    pl_feature_format feature_format;               // any: of a producer bf16, of a consumer whatever it is
    // Traces alone (A is 0); NULL and 0 in features.
    const char       *drafter_fingerprint; // the checkpoint's
    const char       *head_fingerprint;    // its head's rows and the tokens they stand for
    const char       *tree;                // how it drafted: a policy's text
    int32_t           top;                 // L
} pl_dataset_attrs;

// The member of `generation` that describes answers in later turns: "spelt", with their special tokens. Datasets of
// builds that left special tokens out lack it.
#define PL_DATASET_HISTORIES "histories"

pl_columns_shape pl_dataset_shape(const pl_dataset_attrs *a);
// The document's features become what reading them back from such a dataset would give.
pl_status        pl_dataset_as_stored(const pl_dataset_attrs *a, pl_columns *doc, pl_err *err);

// ---- writing

typedef struct pl_dataset_writer pl_dataset_writer;

// Names in a dataset's folder, as pl_dir_spares takes them.
extern const char *const pl_dataset_files[];
// PL_E_INPUT where dir holds such files and no manifest.json: then nothing says whose they are. Also of writers below.
pl_status                pl_dataset_spares(const char *dir, pl_err *err);

// Creates the folder or goes on with one that a stopped run left: whole shards are kept, an unfinished one is dropped.
// PL_E_INPUT when the folder holds a dataset with other attributes or one that is complete already.
// rows_per_shard: a document that would exceed it starts a new shard (a longer document gets a shard of its own).
pl_status pl_dataset_writer_create(pl_dataset_writer **out, const char *dir, const pl_dataset_attrs *attrs,
                                   int64_t rows_per_shard, pl_err *err);
// Documents in whole shards: where a producer that was stopped goes on (documents come in a fixed order).
int64_t   pl_dataset_writer_docs(const pl_dataset_writer *w);
int64_t   pl_dataset_writer_rows(const pl_dataset_writer *w);

// Shards by number, where it is known beforehand which documents each will hold, so that they can be made in any order,
// by several processes that see one folder, and again. Part 0 creates the dataset as above, alone, and takes in what
// other parts left when a run was stopped; parts 1, 2, ... are opened behind it. Each keeps a list of its own shards
// beside the manifest (manifest-PART.json), so that a part that dies costs its unfinished shard alone.
// gone: shards may have been deleted since they were made (pl_dataset_writer_drop). Else one that is listed and not
// there is refused.
pl_status pl_dataset_writer_open(pl_dataset_writer **out, const char *dir, const pl_dataset_attrs *attrs, int part,
                                 bool gone, pl_err *err);
// Whether the shard is whole and there; bytes on disk, 0: it is not.
int64_t   pl_dataset_writer_has(const pl_dataset_writer *w, int64_t shard);
// Finishes the current shard; the documents from here on make up `shard`, however long it becomes. One that was there
// before must get the same bytes: PL_E_INPUT.
pl_status pl_dataset_writer_shard(pl_dataset_writer *w, int64_t shard, pl_err *err);
// How many there are in all: closing part 0 fails where one is missing, the last ones too.
void      pl_dataset_writer_expect(pl_dataset_writer *w, int64_t shards);
// Part 0, while no other is open: takes the lists of parts 1 .. parts - 1 into the manifest.
pl_status pl_dataset_writer_join(pl_dataset_writer *w, int parts, pl_err *err);
// Part 0: deletes the shard's file. It stays in the manifest.
pl_status pl_dataset_writer_drop(pl_dataset_writer *w, int64_t shard, pl_err *err);

// One document of n > 0 rows, with every column that the dataset has, and its end. All are copied. After a failure the
// writer only accepts destroy.
pl_status pl_dataset_append(pl_dataset_writer *w, const pl_columns *doc, pl_err *err);
// Finishes the current shard (whole on disk, in the manifest), if it has rows: for producers with consumers beside.
pl_status pl_dataset_flush(pl_dataset_writer *w, pl_err *err);
// Finishes the last shard and marks the dataset complete; part 0 joins the others' first, and fails where a shard is
// missing. Of another part: finishes the last shard. The writer is gone afterwards, also on failure.
pl_status pl_dataset_writer_close(pl_dataset_writer *w, pl_err *err);
// Gives up: whole shards stay, the unfinished one is removed. NULL is allowed.
void      pl_dataset_writer_destroy(pl_dataset_writer *w);

// ---- reading

typedef struct pl_dataset pl_dataset; // for one thread at a time

typedef struct pl_dataset_open_options {
    // NULL (features of any target), or what the reader was made for; its NULL strings, its d and vocab_size where 0,
    // and its taps where A < 0 ask for nothing. Taps that it asks for must be among the dataset's: `features` then are
    // these alone, in its order. top > 0: traces, of so many ids; < 0: traces of any. A mismatch is refused with one
    // line that names both sides.
    const pl_dataset_attrs *want;
    bool                    lazy;       // check each shard's hash when it is first read instead of all of them now
    bool                    incomplete; // accept a dataset whose producer has not finished (its whole shards)
} pl_dataset_open_options;

// opt NULL: any target, all hashes checked now, complete only.
pl_status pl_dataset_open(pl_dataset **out, const char *dir, const pl_dataset_open_options *opt, pl_err *err);
void      pl_dataset_close(pl_dataset *ds);

// A dataset whose shards come and go (pl_dataset_writer_open with gone): shard k of n holds documents
// [first_doc[k], first_doc[k + 1]). Single documents are read (read_doc, doc_about, of pl_dataset_doc the number of
// rows), of shards that are there; checksums as with lazy.
pl_status pl_dataset_open_planned(pl_dataset **out, const char *dir, const pl_dataset_attrs *want,
                                  const int64_t *first_doc, int64_t n, pl_err *err);
pl_status pl_dataset_refresh(pl_dataset *ds, pl_err *err);  // the manifest has grown
void      pl_dataset_forget(pl_dataset *ds, int64_t shard); // its file goes: nothing of it stays open or believed
// A dataset of which the folder holds some shards, opened with lazy. Of one that is not here its documents are told, as
// somebody who has it read them: their offsets [docs + 1] and what they are [docs], which are taken over (pl_free).
// Reading its rows fails.
// *here: its file is in the folder. A file of another size than the manifest's is refused; its checksum is read later.
pl_status pl_dataset_here(const pl_dataset *ds, int64_t shard, bool *here, pl_err *err);
void      pl_dataset_tell(pl_dataset *ds, int64_t shard, int64_t *offsets, pl_doc_about *about);
int64_t   pl_dataset_shard_of(const pl_dataset *ds, int64_t doc);
int64_t   pl_dataset_row_bytes(const pl_dataset_attrs *a); // bytes that a row takes in a file
// Bytes on disk that a shard of so many rows and documents takes at most.
int64_t   pl_dataset_shard_room(const pl_dataset_attrs *a, int64_t rows, int64_t docs);
int64_t   pl_dataset_shard_bytes(const pl_dataset *ds, int64_t shard); // as the manifest has it; 0: never made
int64_t   pl_dataset_shards(const pl_dataset *ds);
int64_t   pl_dataset_shard_rows(const pl_dataset *ds, int64_t shard);
int64_t   pl_dataset_shard_docs(const pl_dataset *ds, int64_t shard);

const pl_dataset_attrs *pl_dataset_get_attrs(const pl_dataset *ds);  // of what is stored; strings borrowed from ds
pl_columns_shape        pl_dataset_read_shape(const pl_dataset *ds); // of what reading gives
int64_t                 pl_dataset_docs(const pl_dataset *ds);
int64_t                 pl_dataset_rows(const pl_dataset *ds);
bool                    pl_dataset_complete(const pl_dataset *ds);
const char             *pl_dataset_fingerprint(const pl_dataset *ds); // 16 hex over the manifest; borrowed

// Document i's first row and number of rows (rows are numbered over all shards). May open (and check) a shard.
pl_status pl_dataset_doc(pl_dataset *ds, int64_t i, int64_t *first_row, int64_t *n, pl_err *err);
// What document i of features is, as far as its shard says.
pl_status pl_dataset_doc_about(pl_dataset *ds, int64_t i, pl_doc_about *about, pl_err *err);
// Whether a document is held out of training, to choose the best checkpoint by: one prompt in `every` (0: none), told
// by a hash of the prompt's tokens and a seed, so that all answers to a prompt are on one side.
bool      pl_dataset_held_out(const int32_t *tokens, const uint8_t *mask, int64_t n, uint64_t seed, int64_t every);
// The same of document i; of a conversation its first document decides for all.
pl_status pl_dataset_doc_held_out(pl_dataset *ds, int64_t i, uint64_t seed, int64_t every, bool *held, pl_err *err);
// Into the columns of *to that are not NULL, which have room for it; a column that this kind of dataset lacks is left
// alone, as is to->n.
pl_status pl_dataset_read_doc(pl_dataset *ds, int64_t i, const pl_columns *to, pl_err *err);
// The same with rows [first, first + n), across documents and shards.
pl_status pl_dataset_read(pl_dataset *ds, int64_t first, int64_t n, const pl_columns *to, pl_err *err);

#endif
