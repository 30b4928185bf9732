// A head's settings between the three places where they stand: a struct of the kind's own, which its keys fill from a
// recipe; what a checkpoint's config states; and back. A setting's name in a config is the last part of its key.
#ifndef PL_HEAD_SETTINGS_H
#define PL_HEAD_SETTINGS_H

#include "checkpoints/hf_head.h"
#include "kernels/base/key.h"

// Adds what own, filled by the keys, has other than 0.
void      pl_head_settings_state(pl_hf_head *spec, const pl_key *keys, const void *own);
// Fills own (zeroed, as large as the keys' struct) from what is stated; what is not stays 0, an ENUM its default. One
// line refuses a value out of its key's range or of another form.
pl_status pl_head_settings_read(void *own, const pl_key *keys, const pl_hf_head *spec, pl_err *err);
// Whether a table has a setting of this name.
bool      pl_head_settings_know(const pl_key *keys, const char *name);

#endif
