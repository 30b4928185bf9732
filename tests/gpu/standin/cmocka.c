#include "tests/gpu/standin/cmocka.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

static jmp_buf out;

void standin_fail(const char *file, int line, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    longjmp(out, 1);
}

int standin_run(const struct CMUnitTest *tests, int n) {
    volatile int failed = 0;
    for (volatile int i = 0; i < n; i++) {
        void *state = NULL;
        if (setjmp(out) == 0) {
            tests[i].run(&state);
            printf("[       OK ] %s\n", tests[i].name);
        } else {
            printf("[  FAILED  ] %s\n", tests[i].name);
            failed++;
        }
        fflush(stdout);
    }
    return failed;
}
