// The files of an evaluation's folder besides results.json: trace.jsonl, examples.csv, report.html, and the folders
// samples/ and ceilings/, with a file for each method.
#ifndef PL_EVAL_PRODUCTS_H
#define PL_EVAL_PRODUCTS_H

#include "recipes/recipe.h"

// Writes the name of a method's file: the method's name without slashes, and `tail`.
void      pl_eval_file(char *out, size_t size, const char *method, const char *tail);
// Writes the file dir/name atomically.
pl_status pl_eval_save(const char *dir, const char *name, const char *text, size_t n, pl_err *err);
// Fails if a file of these names in out_dir is not an earlier evaluation's, or is the recipe's prompts. A file is
// recognised by its beginning, a file of the two folders by the methods in results.json.
pl_status pl_eval_spares(const pl_recipe *r, const char *out_dir, pl_err *err);
// Removes an earlier evaluation's files except results.json; fails on files of other origin.
pl_status pl_eval_drop(const char *out_dir, pl_err *err);

#endif
