// Whether an engine would load a drafter's folder, and draft with it as it was trained: rules by name, from what the
// engines' loaders and converters do. A folder that breaks one either fails to load or, worse, loads and drafts badly.
// Nothing is run: what these rules do not know, they do not find.
#ifndef PL_EXPORT_CHECK_H
#define PL_EXPORT_CHECK_H

#include "kernels/base/status.h"

#include <stddef.h>

struct pl_export_engine; // infer/export/export.h

typedef enum pl_check_verdict { PL_CHECK_HOLDS, PL_CHECK_BROKEN, PL_CHECK_UNSEEN } pl_check_verdict;

// Called for each rule that the engine has, in the table's order. why: what is wrong, or why it cannot be told
// (UNSEEN): no target was given, or the folder leaves something to a default or unsaid that may be right.
typedef void (*pl_check_tell)(void *arg, const char *rule, const char *help, pl_check_verdict v, const char *why);

typedef struct pl_check_count {
    int rules, broken, unseen;
} pl_check_count;

// dir: a folder with config.json and safetensors, or what the engine's own `rules` read. target: NULL, or the one that
// is served. PL_E_INPUT where there is nothing to check.
pl_status pl_check_folder(const struct pl_export_engine *engine, const char *dir, const char *target,
                          pl_check_tell tell, void *arg, pl_check_count *count, pl_err *err);

// The rules of `gguf`: path is a .gguf file or a folder with drafter.gguf, target the served .gguf file.
pl_status pl_check_gguf(const char *path, const char *target, pl_check_tell tell, void *arg, pl_check_count *count,
                        pl_err *err);

// ---- for the rules ----

#define PL_CHECK_WHY 240
// Writes why and returns v.
pl_check_verdict pl_check_say(char why[PL_CHECK_WHY], pl_check_verdict v, const char *fmt, ...) PL_PRINTF(3, 4);
// Counts a verdict and tells it.
void             pl_check_told(pl_check_count *count, pl_check_tell tell, void *arg, const char *name, const char *help,
                               pl_check_verdict v, const char *why);

#endif
