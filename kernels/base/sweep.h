// Inside files.c, maps.c and paths.c: what they share.
#ifndef PL_SWEEP_H
#define PL_SWEEP_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <sys/stat.h>

// Opens a file to read it; *s is its state. A FIFO without a writer would be waited for without end, and a device need
// not end: unless `stream`, both are refused, as a folder from elsewhere may hold one under any name.
pl_status pl_input_open(const char *path, bool stream, int *fd, struct stat *s, pl_err *err);
// Removes what this process's products have written so far. For a process that ends right after.
void      pl_temporaries_remove(void);

// Every change of the disk passes here first. False: fail with errno, as the call itself would.
bool pl_io_admit(void);
// rm -r of an entry of an open folder; 0, or -1 with errno. Nothing there is no error.
int  pl_remove_at(int dir, const char *name);
// The same of all entries of an open folder, which stays.
int  pl_remove_within(int dir);
// Of temporaries for the name, or (NULL) for what `ours` lists, in the folder `parent`: puts back an old product that
// was set aside by a process that died before the new one took its name, and, with `all`, removes what dead processes
// left. Best effort: what cannot be cleaned harms nothing.
void pl_sweep(const char *parent, const char *name, const char *const *ours, bool all);

#endif
