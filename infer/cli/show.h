// Results that are built once as JSON and read by people as an aligned list: `inspect`, `doctor`.
#ifndef PL_SHOW_H
#define PL_SHOW_H

#include "infer/cli/env.h"

// Where to put members: the command's result with --json, else a document in *local, begun.
pl_json_out *pl_show_begin(const pl_env *env, pl_json_out *local);
// Without --json: prints the document and frees it. Numbers under keys that end in "bytes" are also told in larger
// units, lists of objects become tables, strings of several lines stand at the end as they are.
pl_status    pl_show_end(const pl_env *env, pl_json_out *local, pl_err *err);
void         pl_show_abort(pl_json_out *local); // instead of end, after a failure

#endif
