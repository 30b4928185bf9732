#include "infer/serve/record.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BEGIN "{\"prompt_ids\":["
enum { PIECE = 4096 };

struct pl_record {
    pl_record_options o;
    int               fd; // -1: recording has ended
    int64_t           bytes, written;
};

// Returns the offset behind the last line end of a file of n bytes, 0 if there is none; -1: it cannot be read.
static int64_t whole_lines(int fd, int64_t n) {
    char piece[PIECE];
    while (n > 0) {
        int64_t from = n > PIECE ? n - PIECE : 0;
        ssize_t got = pread(fd, piece, (size_t)(n - from), (off_t)from);
        if (got != n - from) return -1;
        for (int64_t i = got; i > 0; i--)
            if (piece[i - 1] == '\n') return from + i;
        n = from;
    }
    return 0;
}

static pl_status take_file(pl_record *r, pl_err *err) {
    struct stat info;
    char        front[sizeof BEGIN - 1];
    if (fstat(r->fd, &info) != 0) return pl_fail_errno(err, "%s", r->o.path);
    if (!S_ISREG(info.st_mode)) return pl_fail(err, PL_E_INPUT, "%s: is no file to record to", r->o.path);
    if (info.st_size == 0) return PL_OK;
    bool own = pread(r->fd, front, sizeof front, 0) == (ssize_t)sizeof front && memcmp(front, BEGIN, sizeof front) == 0;
    if (!own && info.st_size >= (off_t)sizeof front)
        return pl_fail(err, PL_E_INPUT, "%s: is there, and no record of a server; name another file", r->o.path);
    r->bytes = whole_lines(r->fd, info.st_size);
    if (r->bytes < 0 || ftruncate(r->fd, (off_t)r->bytes) != 0) return pl_fail_errno(err, "%s", r->o.path);
    return PL_OK;
}

pl_status pl_record_open(pl_record **out, const pl_record_options *o, pl_err *err) {
    pl_record *r = pl_calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", o->path);
    r->o = *o;
    r->fd = open(o->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
    pl_status st = r->fd < 0 ? pl_fail_errno(err, "%s", o->path) : take_file(r, err);
    if (st == PL_OK)
        *out = r;
    else
        pl_record_close(r);
    return st;
}

void pl_record_close(pl_record *r) {
    if (!r) return;
    if (r->fd >= 0) close(r->fd);
    pl_free(r);
}

static void end_recording(pl_record *r, const char *why) {
    pl_log_warn("%s: %s; nothing more is recorded", r->o.path, why);
    close(r->fd);
    r->fd = -1;
}

static void add_ids(pl_strbuf *b, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        char one[16];
        int  len = snprintf(one, sizeof one, i ? ",%d" : "%d", ids[i]);
        pl_strbuf_add(b, one, (size_t)len);
    }
}

static void add_text(pl_strbuf *b, const char *text) {
    pl_strbuf_add(b, text, strlen(text));
}

void pl_record_answer(pl_record *r, const int32_t *prompt, int64_t n_prompt, const int32_t *answer, int64_t n,
                      bool stopped) {
    pl_strbuf b = {0};
    if (r->fd < 0 || n < 1 || (double)randombytes_random() >= r->o.share * 4294967296.0) return;
    add_text(&b, BEGIN);
    add_ids(&b, prompt, n_prompt);
    add_text(&b, "],\"answer_ids\":[");
    add_ids(&b, answer, n);
    add_text(&b, "],\"target\":\"");
    add_text(&b, r->o.target);
    add_text(&b, stopped ? "\",\"finish\":\"stop\"}\n" : "\",\"finish\":\"length\"}\n");
    if (b.failed) {
        end_recording(r, "out of memory");
    } else if (r->bytes + (int64_t)b.n > r->o.max_bytes) {
        end_recording(r, "is as large as it may be (--record-max)");
    } else if (pl_fd_write(r->fd, r->o.path, b.s, b.n, NULL) != PL_OK) {
        end_recording(r, "cannot be written");
    } else {
        r->bytes += (int64_t)b.n;
        r->written++;
    }
    pl_strbuf_fini(&b);
}

int64_t pl_record_written(const pl_record *r) {
    return r->written;
}
