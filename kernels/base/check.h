// Checks of what the caller must get right (shapes, NULL, ranges). Always on, O(1) only; never for what came from a
// file.
#ifndef PL_CHECK_H
#define PL_CHECK_H

#include "kernels/base/status.h"

// Prints file:line, the expression and the formatted values to stderr, then aborts.
__attribute__((noreturn)) void pl_check_failed(const char *file, int line, const char *expr, const char *fmt, ...)
    PL_PRINTF(4, 5);

// PL_CHECK(n <= max, "n %d max %d", n, max);
#define PL_CHECK(expr, ...)                                                                                            \
    do {                                                                                                               \
        if (!(expr)) pl_check_failed(__FILE__, __LINE__, #expr, __VA_ARGS__);                                          \
    } while (0)

#endif
