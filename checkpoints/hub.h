// The cache of a model hub (huggingface_hub): models--OWNER--NAME/ holds blobs, refs/main and, in snapshots/COMMIT/,
// the files of a model.
#ifndef PL_HUB_H
#define PL_HUB_H

#include "kernels/base/status.h"

// Refuses such a folder where a model's was expected, with the snapshot to be given, refs/main's or the only one
// ("models--a--b/snapshots/5d0f..."). PL_OK: dir is none, or it has no snapshot or several.
pl_status pl_hub_refuse(const char *dir, pl_err *err);

#endif
