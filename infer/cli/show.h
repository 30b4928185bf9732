// Results that are built as JSON and printed as an aligned list without --json: `inspect`, `doctor`.
#ifndef PL_SHOW_H
#define PL_SHOW_H

#include "infer/cli/env.h"

// Returns the object for members: the command's result with --json, else a new document in *local.
pl_json_out *pl_show_begin(const pl_env *env, pl_json_out *local);
// Without --json: prints the document and frees it. Numbers under keys that end in "bytes" are also printed in larger
// units, lists of objects become tables, strings of several lines are printed unchanged at the end.
pl_status    pl_show_end(const pl_env *env, pl_json_out *local, pl_err *err);
void         pl_show_abort(pl_json_out *local); // frees the document; instead of end, after a failure

#endif
