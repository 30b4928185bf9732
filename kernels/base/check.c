#include "kernels/base/check.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void pl_check_failed(const char *file, int line, const char *expr, const char *fmt, ...) {
    char    text[1024];
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(text, sizeof text, fmt, ap) < 0) text[0] = 0;
    va_end(ap);
    // One call, so that threads failing together do not mix their lines.
    fprintf(stderr, "paceline: %s:%d: check failed: %s: %s\n", file, line, expr, text);
    fflush(stderr);
    abort();
}
