#include "kernels/base/status.h"
#include "kernels/base/check.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MSG = sizeof((pl_err *)0)->msg };

// Messages carry text from files: a control byte there must not break the line or reach the terminal.
static void store(pl_err *err, pl_status status, const char *text) {
    if (!err) return;
    size_t n = strlen(text);
    if (n >= MSG) n = MSG - 1;
    // A cut never ends inside a UTF-8 sequence.
    while (text[n] && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        err->msg[i] = (char)(c < 0x20 || c == 0x7f ? ' ' : c);
    }
    err->msg[n] = 0;
    err->status = status;
}

// Everything is formatted aside first: the arguments may point into err->msg.
enum { ROOM = 2 * MSG };

static size_t format(char out[ROOM], const char *fmt, va_list ap) {
    int n = vsnprintf(out, ROOM, fmt, ap);
    if (n < 0) {
        out[0] = 0;
        return 0;
    }
    return (size_t)n < ROOM ? (size_t)n : ROOM - 1;
}

pl_status pl_fail(pl_err *err, pl_status status, const char *fmt, ...) {
    PL_CHECK(status != PL_OK, "a failure needs a failing status (%s)", fmt);
    char    text[ROOM];
    va_list ap;
    va_start(ap, fmt);
    format(text, fmt, ap);
    va_end(ap);
    store(err, status, text);
    return status;
}

pl_status pl_fail_errno(pl_err *err, const char *fmt, ...) {
    int       cause = errno;
    pl_status status = cause == ENOMEM ? PL_E_MEMORY : PL_E_IO;
    char      text[ROOM];
    va_list   ap;
    va_start(ap, fmt);
    size_t n = format(text, fmt, ap);
    va_end(ap);
    snprintf(text + n, ROOM - n, ": %s", strerror(cause));
    store(err, status, text);
    return status;
}

pl_status pl_fail_at(pl_err *err, pl_status status, const char *fmt, ...) {
    PL_CHECK(status != PL_OK, "a failure needs a failing status (%s)", fmt);
    char    text[ROOM];
    va_list ap;
    va_start(ap, fmt);
    size_t n = format(text, fmt, ap);
    va_end(ap);
    snprintf(text + n, ROOM - n, ": %s", err && err->msg[0] ? err->msg : pl_status_text(status));
    store(err, status, text);
    return status;
}

const char *pl_status_text(pl_status status) {
    switch (status) {
#define X(name, text)                                                                                                  \
    case name:                                                                                                         \
        return text;
#include "kernels/base/status.def"
#undef X
    }
    return "unknown status";
}

int pl_status_exit(pl_status status) {
    if (status == PL_OK) return 0;
    return status == PL_E_USAGE || status == PL_E_INPUT ? 2 : 1;
}
