#include "kernels/comm/reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

pl_reader pl_reader_of(int rank, const char *what, const void *data, size_t n, pl_err *err) {
    const uint8_t *at = data;
    return (pl_reader){.at = at, .end = n ? at + n : at, .rank = rank, .what = what, .err = err};
}

static size_t count_left(const pl_reader *r) {
    return r->status == PL_OK ? (size_t)(r->end - r->at) : 0;
}

pl_status pl_reader_refuse(pl_reader *r, const char *fmt, ...) {
    char    text[256], who[24] = "the ranks";
    va_list ap;
    if (r->status != PL_OK) return r->status;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (r->rank >= 0) snprintf(who, sizeof who, "rank %d", r->rank);
    r->status = pl_fail(r->err, PL_E_IO, "%s sent %s: %s", who, r->what, text);
    return r->status;
}

const uint8_t *pl_reader_lend(pl_reader *r, const char *name, size_t n) {
    const uint8_t *at = r->at;
    if (r->status != PL_OK) return NULL;
    if (n > count_left(r)) {
        pl_reader_refuse(r, "%s is of %zu bytes, %zu are left", name, n, count_left(r));
        return NULL;
    }
    if (n) r->at += n;
    return at;
}

void pl_reader_copy(pl_reader *r, const char *name, void *to, size_t n) {
    const uint8_t *at = pl_reader_lend(r, name, n);
    if (n == 0) return;
    if (at)
        memcpy(to, at, n);
    else
        memset(to, 0, n);
}

static int64_t check_range(pl_reader *r, const char *name, int64_t x, int64_t least, int64_t most) {
    if (r->status == PL_OK && (x < least || x > most))
        pl_reader_refuse(r, "%s is %lld, not %lld to %lld", name, (long long)x, (long long)least, (long long)most);
    return r->status == PL_OK ? x : 0;
}

uint8_t pl_reader_byte(pl_reader *r, const char *name, uint8_t most) {
    uint8_t x;
    pl_reader_copy(r, name, &x, sizeof x);
    return (uint8_t)check_range(r, name, x, 0, most);
}

int32_t pl_reader_int32(pl_reader *r, const char *name, int32_t least, int32_t most) {
    int32_t x;
    pl_reader_copy(r, name, &x, sizeof x);
    return (int32_t)check_range(r, name, x, least, most);
}

int64_t pl_reader_int(pl_reader *r, const char *name, int64_t least, int64_t most) {
    int64_t x;
    pl_reader_copy(r, name, &x, sizeof x);
    return check_range(r, name, x, least, most);
}

double pl_reader_real(pl_reader *r, const char *name, double least, double most) {
    double x;
    pl_reader_copy(r, name, &x, sizeof x);
    if (r->status == PL_OK && !(x >= least && x <= most))
        pl_reader_refuse(r, "%s is %g, not %g to %g", name, x, least, most);
    return r->status == PL_OK ? x : 0;
}

int64_t pl_reader_count(pl_reader *r, const char *name, int64_t most, size_t each) {
    int64_t n = pl_reader_int(r, name, 0, most);
    size_t  left = count_left(r);
    if (each > 0 && (uint64_t)n > left / each)
        pl_reader_refuse(r, "%s is %lld of %zu bytes each, %zu bytes are left", name, (long long)n, each, left);
    return r->status == PL_OK ? n : 0;
}

const char *pl_reader_text(pl_reader *r, const char *name, size_t room) {
    const char *text = (const char *)pl_reader_lend(r, name, room);
    if (!text) return "";
    size_t n = strnlen(text, room);
    if (n == room) pl_reader_refuse(r, "%s has no end", name);
    for (size_t i = 0; i < n && r->status == PL_OK; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] == 0x7f)
            pl_reader_refuse(r, "%s has a control character", name);
    return r->status == PL_OK ? text : "";
}

pl_status pl_reader_end(pl_reader *r) {
    if (count_left(r) > 0) pl_reader_refuse(r, "%zu bytes follow its end", count_left(r));
    return r->status;
}
