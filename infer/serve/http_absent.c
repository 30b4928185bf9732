// The build without libmicrohttpd.
#include "infer/serve/http.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"

#include <stdio.h>

void pl_http_describe(char *text, size_t size) {
    snprintf(text, size, "not built (libmicrohttpd-dev was not found, or PACELINE_SERVER=OFF)");
}

pl_status pl_http_open(pl_http **out, const pl_http_options *o, pl_err *err) {
    (void)o;
    *out = NULL;
    return pl_fail(err, PL_E_UNSUPPORTED,
                   "serve: this build has no HTTP server; install libmicrohttpd-dev and build with PACELINE_SERVER=ON");
}

void pl_http_close(pl_http *h) {
    PL_CHECK(!h, "no server was opened");
}

int pl_http_port(const pl_http *h) {
    (void)h;
    return 0;
}

int pl_http_exchanges(const pl_http *h) {
    (void)h;
    return 0;
}

pl_status pl_http_run(pl_http *h, int milliseconds, pl_err *err) {
    (void)h;
    (void)milliseconds;
    return pl_fail(err, PL_E_UNSUPPORTED, "serve: this build has no HTTP server");
}

void pl_exchange_answer(pl_exchange *x, int status, const char *type, char *body, size_t n) {
    (void)x;
    (void)status;
    (void)type;
    (void)n;
    pl_free(body);
}

void pl_exchange_stream(pl_exchange *x) {
    (void)x;
}

bool pl_exchange_write(pl_exchange *x, const char *text, size_t n) {
    (void)x;
    (void)text;
    (void)n;
    return false;
}

void pl_exchange_end(pl_exchange *x) {
    (void)x;
}
