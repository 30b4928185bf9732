// Inside files.c, sweep.c and spares.c: what they share.
#ifndef PL_SWEEP_H
#define PL_SWEEP_H

#include <limits.h>
#include <stdbool.h>

// Every change of the disk passes here first. False: fail with errno, as the call itself would.
bool pl_io_admit(void);
// rm -r of an entry of an open folder; 0, or -1 with errno. Nothing there is no error.
int  pl_remove_at(int dir, const char *name);
// The same of all entries of an open folder, which stays.
int  pl_remove_within(int dir);
// Whether `ours` (kernels/base/files.h) lists the name; dir: of a folder.
bool pl_is_listed(const char *const *ours, const char *name, bool dir);
// Whether the entry is a temporary of some product, or one set aside: whose, into `name`.
bool pl_is_temporary(const char *entry, char name[NAME_MAX + 1]);
// Of temporaries for the name, or (NULL) for what `ours` lists, in the folder `parent`: puts back an old product that
// was set aside by a process that died before the new one took its name, and, with `all`, removes what dead processes
// left. Best effort: what cannot be cleaned harms nothing.
void pl_sweep(const char *parent, const char *name, const char *const *ours, bool all);

#endif
