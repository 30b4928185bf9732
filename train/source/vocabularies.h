// Draft vocabularies as a stage of a recipe: token lists counted for the target's tokenizer, which drafters then name.
//
//     vocabularies:
//       - {name: general, text: [books/*.txt]}                          # FR-Spec (arXiv 2502.14856): a text corpus
//       - {name: chat, jsonl: [chat.json], field: output}
//       - {name: answers, dataset: true}                                # VocabTrim (2506.22694): the target's own text
//       - {name: bcl, dataset: true, size: bcl, alpha: 0.5, min_coverage: 0.9} # BCL (2603.05210; counts.h)
//     drafters:
//       - {name: frspec-8, head: {vocab: general, vocab_size: 2048}}
// Each becomes OUT/vocab/NAME.json, the list that `paceline vocab --list` writes (data/counts/counts.h); an item may
// name several sources, whose counts are added. Same inputs, same list: no randomness is in it.
#ifndef PL_TRAIN_VOCABULARIES_H
#define PL_TRAIN_VOCABULARIES_H

#include "recipes/recipe.h"

// An item of `vocabularies`.
enum { PL_VOCABULARY_ALL, PL_VOCABULARY_BCL }; // size
typedef struct pl_vocabulary_recipe {
    const char *name;
    pl_strings  text, jsonl;
    const char *field;
    bool        dataset;
    int         size;
    double      alpha, min_coverage, head_share;
} pl_vocabulary_recipe;

typedef struct pl_vocabularies_recipe {
    PL_KEY_ITEMS(pl_vocabulary_recipe) vocabularies;
} pl_vocabularies_recipe;
extern const pl_key                         pl_vocabularies_keys[];
static inline const pl_vocabularies_recipe *pl_vocabularies_recipe_of(const pl_recipe *r) {
    return pl_recipe_struct(r, pl_vocabularies_keys);
}

// Makes the lists that are not up to date: by the item's keys, the tokenizer and the content of the sources. Runs after
// the dataset, which is data.dataset or OUT/dataset. seeds: those of the drafters, which hold out documents of it by
// train.holdout: held-out documents of any are not counted.
pl_status pl_vocabularies_run(const pl_recipe *r, const uint64_t *seeds, int n_seeds, const char *out_dir, pl_err *err);

// Call it before they are made: refuses an OUT/vocab/NAME.json that no run has made.
pl_status pl_vocabularies_spare(const pl_recipe *r, const char *out_dir, pl_err *err);

// Refuses a name that cannot be a list: neither a file nor one of the recipe's, which may be made later. NULL is valid.
pl_status pl_vocabulary_check(const pl_recipe *r, const char *name, pl_err *err);
// Returns the path of a drafter's head.vocab: an item's OUT/vocab/NAME.json, else a path. Fails with one line if it is
// missing. *path NULL with PL_OK if name is NULL; pl_free.
pl_status pl_vocabulary_path(char **path, const pl_recipe *r, const char *name, const char *out_dir, pl_err *err);

#endif
