// The secret by which the ranks of a run that join over TCP know each other, and where it comes from:
//
//   --secret-file FILE   its bytes, at least 32, without a newline at the end; readable by its owner alone
//   PACELINE_SECRET      the same as text
//   drawn                where all ranks are of one host and none is given: rank 0 writes 32 random bytes into
//                        ranks-PORT in $XDG_RUNTIME_DIR/paceline or, where this user has no such folder, in
//                        /tmp/paceline-UID, which ranks of the same user read. A file that an earlier run left there
//                        is replaced.
//
// Ranks of several hosts are refused without one.
#ifndef PL_TRAIN_SECRET_H
#define PL_TRAIN_SECRET_H

#include "train/run/launch.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct pl_secret {
    const char *file, *text; // given: the option's and the variable's, borrowed; both NULL: drawn
    bool        first;       // rank 0's
    int         dir;         // descriptor of the drawn file's folder, or -1
    bool        written;
    char        folder[256], name[32];
    uint8_t     drawn[32]; // rank 0's
} pl_secret;

// file, text: NULL or "" where not given; the file counts first. PL_E_USAGE: none is given and the ranks are of several
// hosts; a secret of fewer than 32 bytes; a file that others may read. PL_E_IO: an unreadable file; a folder for the
// drawn one that others may write.
pl_status pl_secret_open(pl_secret *s, const pl_launch *l, const char *file, const char *text, pl_err *err);
// The secret's key, a pl_comm_find_key of a pl_secret: rank 0 draws and writes it, the others read it each time anew.
pl_status pl_secret_key(void *secret, uint8_t key[PL_COMM_KEY], pl_err *err);
// Once the ranks have joined, or failed to: removes a drawn file that is still this run's.
void      pl_secret_close(pl_secret *s);

#endif
