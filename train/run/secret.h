// The secret by which ranks that join over TCP authenticate each other, and its sources:
//
//   --secret-file FILE   its bytes, at least 32, without a newline at the end; readable by its owner alone
//   PACELINE_SECRET      the same as text
//   drawn                if all ranks run on one host and none is given: rank 0 writes 32 random bytes into
//                        ranks-PORT in $XDG_RUNTIME_DIR/paceline or, if this user has no such folder, in
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
    const char *file, *text; // value of the option and of the variable, borrowed; both NULL: drawn
    bool        first;       // this is rank 0
    int         dir;         // descriptor of the drawn file's folder, or -1
    bool        written;
    char        folder[256], name[32];
    uint8_t     drawn[32]; // rank 0's
} pl_secret;

// Opens the secret. file, text: NULL or "" if not given; the file has precedence. PL_E_USAGE: none is given and the
// ranks are of several hosts; a secret of fewer than 32 bytes; a file that other users may read. PL_E_IO: an unreadable
// file; a folder for the drawn one that other users may write.
pl_status pl_secret_open(pl_secret *s, const pl_launch *l, const char *file, const char *text, pl_err *err);
// Derives the secret's key, a pl_comm_find_key of a pl_secret: rank 0 draws and writes it, the others read it on each
// call.
pl_status pl_secret_key(void *secret, uint8_t key[PL_COMM_KEY], pl_err *err);
// Removes a drawn file that is still this run's; call it when the ranks have joined or failed to.
void      pl_secret_close(pl_secret *s);

#endif
