// Folders of drafters as engines read them, changed by hand.
#ifndef PL_TEST_INFER_SERVED_H
#define PL_TEST_INFER_SERVED_H

#include "checkpoints/safetensors.h"

pl_st *served_open(const char *dir);
char  *served_text(const char *dir, const char *name); // the caller's
// config.json with `from`, the first time that it stands there, replaced.
void   served_edit(const char *dir, const char *from, const char *to);
// Without the member ("eagle_config", or "eagle_config.list").
void   served_drop(const char *dir, const char *key);
// model.safetensors with tensor `name` as `to` says: data NULL: left out; not there: added.
void   served_replace(const char *dir, const char *name, const pl_st_source *to);
void   served_rename(const char *dir, const char *from, const char *to);

#endif
