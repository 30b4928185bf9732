// What the program says while it works. Everything goes to stderr; stdout belongs to results.
// Libraries call these; the program sets the mode. Progress is one rewritten line on a terminal, a plain line every
// few seconds elsewhere, nothing with --quiet.
#ifndef PL_LOG_H
#define PL_LOG_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// MUTE: nothing at all, for processes whose messages another one gives.
typedef enum pl_log_level { PL_LOG_MUTE, PL_LOG_QUIET, PL_LOG_NORMAL } pl_log_level;
void pl_log_set(pl_log_level level);
// Everything that is said goes here from now on, whatever the level, as plain lines; NULL: to stderr again. Borrowed.
// Lines of pl_log_warn_once are given anew.
void pl_log_to(FILE *f);
// A line of normal level that precedes the next one, of whatever level; a command that fails before it has any gives
// its failure alone. pl_log_first_now gives it where no line has followed.
void pl_log_first(const char *fmt, ...) PL_PRINTF(1, 2);
void pl_log_first_now(void);
void pl_log(const char *fmt, ...) PL_PRINTF(1, 2);      // one line, normal level
void pl_log_warn(const char *fmt, ...) PL_PRINTF(1, 2); // one line "paceline: warning: ...", also when quiet
// The same, but a line that was given before is left out: for what is read more than once in a process.
void pl_log_warn_once(const char *fmt, ...) PL_PRINTF(1, 2);

typedef struct pl_progress {
    const char *what; // borrowed
    int64_t     total;
    double      start, last;
    int64_t     start_at;
    bool        live;
} pl_progress;
void pl_progress_begin(pl_progress *p, const char *what, int64_t start_at, int64_t total);
// done of total, and free text (may be NULL): prints rate and time left at most a few times a second.
void pl_progress_update(pl_progress *p, int64_t done, const char *fmt, ...) PL_PRINTF(3, 4);
void pl_progress_end(pl_progress *p);

// SIGINT, SIGTERM and SIGUSR1. Once the program has installed the handler, the first one ends the process as it would
// have by default, after a line on standard error. Work whose end is worth waiting for holds it back: inside a hold the
// first signal is a request, for which the work polls at each of its safe points; it is confirmed by a line where the
// process still runs a second later. The second signal ends the process at once, inside a hold too.
void pl_stop_install(void); // forgets an earlier request
void pl_stop_hold(void);    // may be nested
void pl_stop_release(void);
bool pl_stop_requested(void);

#endif
