// Status codes and messages: how a failure of the world (file, memory, driver, bad input) travels.
//
// Three failures, three treatments (see also check.h and backend.h):
//   world             -> a function returns pl_status and fills pl_err once, where it happens; *out is NULL and
//                        nothing leaks
//   caller's mistake  -> PL_CHECK aborts with the values
//   device op         -> the first error sticks to the context; the step asks once
#ifndef PL_STATUS_H
#define PL_STATUS_H

#include <stddef.h>

typedef enum pl_status {
#define X(name, text) name,
#include "kernels/base/status.def"
#undef X
} pl_status;

// One line "WHAT: WHERE: WHY" with how to mend it. Owned by the caller, usually on the stack; NULL is allowed.
typedef struct pl_err {
    pl_status status;
    char      msg[1024];
} pl_err;

#if defined(__GNUC__)
#define PL_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define PL_PRINTF(fmt, first)
#endif

// Fills err (if not NULL) and returns status, so that a failing function ends in one statement. The message is cut to
// fit.
pl_status pl_fail(pl_err *err, pl_status status, const char *fmt, ...) PL_PRINTF(3, 4);

// As pl_fail with ": strerror(errno)" appended; maps errno to a status (ENOMEM, ENOSPC, EACCES, ... all are PL_E_IO but
// ENOMEM).
pl_status pl_fail_errno(pl_err *err, const char *fmt, ...) PL_PRINTF(2, 3);

// Puts "prefix: " in front of a message already there, for callers that know the place better than the callee.
pl_status pl_fail_at(pl_err *err, pl_status status, const char *fmt, ...) PL_PRINTF(3, 4);

// Short text of a code, for messages that have no better one.
const char *pl_status_text(pl_status status);

// The program's exit code: 0 done, 2 wrong usage or bad input, 1 everything else.
int pl_status_exit(pl_status status);

// Returns from the enclosing function when expr fails.
#define PL_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        pl_status pl_try_ = (expr);                                                                                    \
        if (pl_try_ != PL_OK) return pl_try_;                                                                          \
    } while (0)

// Jumps to the function's single cleanup label when expr fails; `st` is the function's status variable.
#define PL_TRY_GOTO(st, label, expr)                                                                                   \
    do {                                                                                                               \
        (st) = (expr);                                                                                                 \
        if ((st) != PL_OK) goto label;                                                                                 \
    } while (0)

#endif
