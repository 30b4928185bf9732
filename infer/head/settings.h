// Converts a head's settings between the kind's own struct, which its keys fill from a recipe, and the fields of a
// checkpoint's config. A setting's name in a config is the last part of its key.
#ifndef PL_HEAD_SETTINGS_H
#define PL_HEAD_SETTINGS_H

#include "checkpoints/hf_head.h"
#include "kernels/base/key.h"

// Adds the settings in `own`, filled by the keys, that are not 0.
void      pl_head_settings_state(pl_hf_head *spec, const pl_key *keys, const void *own);
// Fills own (zeroed, as large as the keys' struct) from the config; missing settings stay 0, an ENUM its default.
// Refuses, with one line, a value out of its key's range or of another type.
pl_status pl_head_settings_read(void *own, const pl_key *keys, const pl_hf_head *spec, pl_err *err);
// Returns true if a table has a setting of this name.
bool      pl_head_settings_know(const pl_key *keys, const char *name);

// Returns a setting of spec that a head of any kind follows (infer/head/head.c); NULL: there is none.
const char *pl_head_any_setting(const pl_hf_head *spec);

#endif
