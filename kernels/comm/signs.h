// Signs of life (heartbeats) between processes that share no memory: a star of TCP connections around rank 0. A thread
// of each rank sends one every second, whatever its other threads compute; a rank without signs is dead, a rank whose
// connection breaks has ended. Rank 0 reports a failure to all; the first one is reported. A rank whose own clock stood
// still (a suspended machine) waits for new signs before it judges the others. Private to kernels/comm.
#ifndef PL_COMM_SIGNS_H
#define PL_COMM_SIGNS_H

#include "kernels/comm/impl.h"

enum { PL_HOST_BYTES = 64 }; // a host's name, with its 0

typedef struct pl_signs pl_signs;

// silence: seconds without a sign after which a rank counts as dead; <= 0: PL_COMM_SILENCE. No connection yet.
pl_status   pl_signs_create(pl_signs **out, int rank, int ranks, double silence, pl_err *err);
// Sets a rank's connection and host; rank 0 has connections to all, the others to rank 0 alone. fd -1: none. Takes
// ownership of fd.
void        pl_signs_connect(pl_signs *s, int rank, int fd);
int         pl_signs_connection(const pl_signs *s, int rank); // -1: none
void        pl_signs_set_host(pl_signs *s, int rank, const char *host);
const char *pl_signs_host(const pl_signs *s, int rank);
int         pl_signs_neighbours(const pl_signs *s); // ranks on this one's host, itself included
// Writes this host's name as sent to the others.
void        pl_signs_own_host(char host[PL_HOST_BYTES]);

// Starts the watching thread; call it once all connections are set.
pl_status pl_signs_start(pl_signs *s, pl_err *err);
// Returns a descriptor for poll, readable as soon as a rank has failed.
int       pl_signs_wake(const pl_signs *s);
// Returns PL_OK, or a failure as "rank N: ...", after which the ranks are no longer in step.
pl_status pl_signs_check(pl_signs *s, pl_comm *c, pl_err *err);
// Reports a rank's failure, perhaps this one's, to the others.
void      pl_signs_tell(pl_signs *s, int who, pl_status status, const char *why);
// Returns true for a rank that announced its end longer ago than the limit of silence.
bool      pl_signs_left(const pl_signs *s, int rank);
// Reports that a rank is cut off in a meeting: it has failed, unless another rank's failure, whose sign is on its way,
// is the cause. why: NULL, or details besides the end of its process or connection.
pl_status pl_signs_lost(pl_signs *s, pl_comm *c, int who, const char *why, pl_err *err);

// Announces to the others that this rank ends, unless it failed. Does nothing for NULL.
void pl_signs_close(pl_signs *s);

#endif
