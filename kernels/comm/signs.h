// Signs of life between processes that share nothing: a star of TCP connections around rank 0. A thread of each rank
// says every second that the process lives, whatever its other threads compute; whose sign stays away is dead, whose
// connection breaks has ended. Rank 0 tells all who has failed; the first to fail is the one that is told. A rank whose
// own clock stood still (a suspended machine) hears the others anew before it judges them. Private to kernels/comm.
#ifndef PL_COMM_SIGNS_H
#define PL_COMM_SIGNS_H

#include "kernels/comm/impl.h"

enum { PL_HOST_BYTES = 64 }; // of a host's name, with its 0

typedef struct pl_signs pl_signs;

// silence: seconds without a sign after which a rank is dead; <= 0: PL_COMM_SILENCE. No connection yet.
pl_status   pl_signs_create(pl_signs **out, int rank, int ranks, double silence, pl_err *err);
// A rank and its host; only rank 0 has connections to all, the others to rank 0. fd -1: none. Owned from here on.
void        pl_signs_connect(pl_signs *s, int rank, int fd);
int         pl_signs_connection(const pl_signs *s, int rank); // -1: none
void        pl_signs_set_host(pl_signs *s, int rank, const char *host);
const char *pl_signs_host(const pl_signs *s, int rank);
int         pl_signs_neighbours(const pl_signs *s); // ranks of this one's host, itself included
// This host's name as the others are told it.
void        pl_signs_own_host(char host[PL_HOST_BYTES]);

// From here on a thread watches. Once all connections are there.
pl_status pl_signs_start(pl_signs *s, pl_err *err);
// Readable as soon as somebody has failed: for who waits in poll.
int       pl_signs_wake(const pl_signs *s);
bool      pl_signs_failed(pl_signs *s);
// Tells a failure, once there is one: PL_OK, or "rank N: ..."; nothing is in step any more.
pl_status pl_signs_check(pl_signs *s, pl_comm *c, pl_err *err);
// A rank has failed, perhaps this one; the others hear it.
void      pl_signs_tell(pl_signs *s, int who, pl_status status, const char *why);
// True for a rank that has said, longer ago than the limit of silence, that it ends.
bool      pl_signs_left(const pl_signs *s, int rank);
// A rank is cut off in a meeting: it has failed, but perhaps because of another, of whom a sign is on its way. Tells.
// why: NULL, or what is known beside that its process ended or its connection broke.
pl_status pl_signs_lost(pl_signs *s, pl_comm *c, int who, const char *why, pl_err *err);

// The others hear that this rank ends, unless it failed. NULL: nothing.
void pl_signs_close(pl_signs *s);

#endif
