// A config.json on its way into the form that checkpoints/hf.h reads: a copy that is edited (formats.c, blocks.c).
#ifndef PL_IMPORT_PARTS_H
#define PL_IMPORT_PARTS_H

#include "kernels/base/json.h"

// Memory that runs out sticks: a member that is missing for want of it must not become a default.
typedef struct pl_import_copy {
    cJSON *o; // owned
    bool   failed;
} pl_import_copy;

bool pl_import_has(const cJSON *o, const char *key); // and it is not null
void pl_import_put(pl_import_copy *e, cJSON *into, const char *key, cJSON *value);
void pl_import_architecture(pl_import_copy *e, const char *name);

// Whether an architecture, or speculators' name for the kind, is that of a DFlash or DSpark drafter.
bool      pl_import_is_block(const char *architecture, const char *kind);
// Brings e, a copy of j that has the layers' sizes at its top, into the form of checkpoints/hf_block.h: target layers
// by their outputs (speculators counts inputs), DSpark's members as the settings of our head "markov".
// PL_E_UNSUPPORTED for what would be computed otherwise.
// architecture, kind: the first of `architectures` and speculators_model_type, "" where there is none.
pl_status pl_import_block(pl_import_copy *e, const pl_json *j, const char *architecture, const char *kind,
                          pl_err *err);

#endif
