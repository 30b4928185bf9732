// What an evaluation leaves in its folder beside results.json: trace.jsonl, examples.csv, report.html, and the folders
// samples/ and ceilings/, with a file for each method.
#ifndef PL_EVAL_PRODUCTS_H
#define PL_EVAL_PRODUCTS_H

#include "recipes/recipe.h"

// The name of a method's file: "METHOD" without slashes, and `tail`.
void      pl_eval_file(char *out, size_t size, const char *method, const char *tail);
// PL_OK: what stands in out_dir under these names is an earlier evaluation's, or nothing is, and the recipe's prompts
// are none of it. Files are known by how they begin, those of the two folders by the methods that results.json names.
pl_status pl_eval_spares(const pl_recipe *r, const char *out_dir, pl_err *err);
// Removes what an earlier evaluation left beside its results, and refuses what another has made.
pl_status pl_eval_drop(const char *out_dir, pl_err *err);

#endif
