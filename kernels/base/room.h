// How much memory the host can still give, asked before much is taken: the kernel promises more than there is and kills
// whoever touches it.
#ifndef PL_ROOM_H
#define PL_ROOM_H

#include "kernels/base/status.h"
#include <stdbool.h>

// Writes the path of this process's control group, where limits of cores and memory are found, below the root of its
// hierarchy: "" for the root and where there is none. controller NULL: of cgroup v2; else a version 1 controller's
// ("memory"). Every ancestor may hold a limit of its own: cut at the last '/' to reach it.
void pl_cgroup(char *group, size_t room, const char *controller);

// For help: the environment's variable that limits what may be used.
#define PL_MEMORY_HELP "PACELINE_MEMORY=BYTES (or 500M, 20G): the memory that may be used, where the machine has more"

// Bytes that this process may still fill, INFINITY where nothing says: the least of nine tenths of what the kernel
// calls available, what is left of its control groups' limits (v2 and v1, ancestors included), and of PACELINE_MEMORY;
// less the blocks that it holds and has not touched yet. PL_E_USAGE: PACELINE_MEMORY is no size.
pl_status pl_memory_available(double *bytes, pl_err *err);

// Called before processes are forked that fill memory side by side: each forked one has an equal part (all of them and
// this one) of what is available now, less the bytes that they share.
void pl_memory_divide(int processes, double shared);

// Refuses with PL_E_MEMORY to fill more bytes than that: one line that says what takes them, how many are needed, how
// many can be had, and `mend`, what to do.
pl_status pl_memory_room(double bytes, const char *what, const char *mend, pl_err *err);
// The same where the caller's line says what would fit: *have are the bytes that can be had, fewer than asked.
pl_status pl_memory_lacks(double bytes, bool *lacks, double *have, pl_err *err);
// Bytes that this process holds in memory now, mapped files' pages included; 0 where nothing says.
double    pl_memory_resident(void);
// The most that it has held so far.
double    pl_memory_peak(void);
// Bytes in words: "1.5 GiB".
void      pl_memory_words(double bytes, char text[32]);

#endif
