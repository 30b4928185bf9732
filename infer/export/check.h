// Whether an engine would load a drafter's folder, and draft with it as it was trained: rules by name, from what the
// engines' loaders and converters do. A folder that breaks one either fails to load or, worse, loads and drafts badly.
// Nothing is run: what these rules do not know, they do not find.
#ifndef PL_EXPORT_CHECK_H
#define PL_EXPORT_CHECK_H

#include "infer/export/export.h"

typedef enum pl_check_verdict { PL_CHECK_HOLDS, PL_CHECK_BROKEN, PL_CHECK_UNSEEN } pl_check_verdict;

// Called for each rule that the engine has, in the table's order. why: what is wrong, or why it cannot be told
// (UNSEEN): no target was given, or the folder leaves something to a default or unsaid that may be right.
typedef void (*pl_check_tell)(void *arg, const char *rule, const char *help, pl_check_verdict v, const char *why);

typedef struct pl_check_count {
    int rules, broken, unseen;
} pl_check_count;

// dir: a folder with config.json and safetensors. target: NULL, or the folder of the one that is served. PL_E_INPUT
// where there is nothing to check.
pl_status pl_check_folder(const pl_export_engine *engine, const char *dir, const char *target, pl_check_tell tell,
                          void *arg, pl_check_count *count, pl_err *err);

#endif
