#define _GNU_SOURCE 1
#include "train/run/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAST = 32, MOST = 4096 }; // bytes of a secret

// Derives the key of a secret, without a final newline, which a file may have and a variable lacks.
static pl_status make_key(uint8_t key[PL_COMM_KEY], const char *where, const uint8_t *secret, size_t n, pl_err *err) {
    if (n > LEAST && secret[n - 1] == '\n') n--;
    if (n < LEAST)
        return pl_fail(err, PL_E_USAGE,
                       "%s: holds %zu bytes; a secret has at least 32 random ones (head -c 32 /dev/urandom | base64)",
                       where, n);
    pl_comm_key_of(key, secret, n);
    return PL_OK;
}

// ---- files

static pl_status read_open(int fd, const char *path, uint8_t bytes[MOST + 1], size_t *n, pl_err *err) {
    struct stat is;
    *n = 0;
    if (fstat(fd, &is) != 0) return pl_fail_errno(err, "%s", path);
    if (!S_ISREG(is.st_mode)) return pl_fail(err, PL_E_USAGE, "%s: is no regular file", path);
    if (is.st_mode & 077)
        return pl_fail(err, PL_E_USAGE, "%s: has the mode %04o, by which others may read the secret; chmod 600 %s",
                       path, (unsigned)is.st_mode & 07777, path);
    while (*n <= MOST) {
        ssize_t r = read(fd, bytes + *n, MOST + 1 - *n);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return pl_fail_errno(err, "%s", path);
        if (r == 0) return PL_OK;
        *n += (size_t)r;
    }
    return pl_fail(err, PL_E_USAGE, "%s: is no secret: it has more than %d bytes", path, MOST);
}

// Reads a secret file and derives its key. dir, flags: as for openat.
static pl_status read_key(int dir, const char *name, int flags, const char *path, uint8_t key[PL_COMM_KEY],
                          pl_err *err) {
    uint8_t bytes[MOST + 1];
    size_t  n;
    int     fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | flags); // O_NONBLOCK: opening a FIFO would block
    if (fd < 0) return pl_fail_errno(err, "%s", path);
    pl_status st = read_open(fd, path, bytes, &n, err);
    close(fd);
    return st == PL_OK ? make_key(key, path, bytes, n, err) : st;
}

// ---- a drawn secret

// Returns the user's runtime folder, or NULL.
static const char *runtime_folder(void) {
    const char *dir = getenv("XDG_RUNTIME_DIR");
    struct stat is;
    bool        own = dir && *dir == '/' && stat(dir, &is) == 0 && S_ISDIR(is.st_mode) && is.st_uid == geteuid();
    return own && (is.st_mode & 077) == 0 ? dir : NULL;
}

// Opens the folder of drawn secrets; makes it if it is missing. Only this user may have access to it.
static pl_status open_folder(pl_secret *s, pl_err *err) {
    const char *base = runtime_folder();
    struct stat is;
    int         used = base ? snprintf(s->folder, sizeof s->folder, "%s/paceline", base)
                            : snprintf(s->folder, sizeof s->folder, "/tmp/paceline-%lu", (unsigned long)geteuid());
    if (used >= (int)sizeof s->folder) return pl_fail(err, PL_E_IO, "%s: too long a path for a secret", base);
    if (mkdir(s->folder, 0700) != 0 && errno != EEXIST) return pl_fail_errno(err, "%s", s->folder);
    s->dir = open(s->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool own = s->dir >= 0 && fstat(s->dir, &is) == 0 && is.st_uid == geteuid() && (is.st_mode & 077) == 0;
    if (own) return PL_OK;
    return pl_fail(err, PL_E_IO,
                   "%s: is no folder of this user's alone (mode 0700), and holds no secret; remove it, or give "
                   "--secret-file or PACELINE_SECRET",
                   s->folder);
}

static void say_path(const pl_secret *s, char path[320]) {
    snprintf(path, 320, "%s/%s", s->folder, s->name);
}

static bool write_whole(int fd, const uint8_t *bytes, size_t n) {
    ssize_t r = write(fd, bytes, n);
    if (r >= 0 && r != (ssize_t)n) errno = ENOSPC;
    return r == (ssize_t)n;
}

// Writes the drawn secret, replacing an existing one.
static pl_status write_drawn(pl_secret *s, pl_err *err) {
    char temp[64], path[320];
    say_path(s, path);
    snprintf(temp, sizeof temp, ".%s.%ld", s->name, (long)getpid());
    unlinkat(s->dir, temp, 0); // left by an earlier process with this id
    int  fd = openat(s->dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool done = fd >= 0 && write_whole(fd, s->drawn, sizeof s->drawn);
    if (fd >= 0 && close(fd) != 0) done = false;
    s->written = done && renameat(s->dir, temp, s->dir, s->name) == 0;
    pl_status st = s->written ? PL_OK : pl_fail_errno(err, "%s", path);
    if (!s->written && fd >= 0) unlinkat(s->dir, temp, 0);
    return st;
}

// ----

static const char *given(const char *text) {
    return text && *text ? text : NULL;
}

pl_status pl_secret_open(pl_secret *s, const pl_launch *l, const char *file, const char *text, pl_err *err) {
    uint8_t     key[PL_COMM_KEY];
    const char *colon = strrchr(l->address, ':');
    *s = (pl_secret){.file = given(file), .text = given(text), .first = l->rank == 0, .dir = -1};
    if (s->file || s->text) return pl_secret_key(s, key, err); // reports an invalid secret at once
    if (!l->one_host)
        return pl_fail(err, PL_E_USAGE,
                       "ranks of several hosts know each other by a secret: (umask 077; head -c 32 /dev/urandom "
                       ">secret) makes one; give all of them --secret-file secret, or PACELINE_SECRET");
    snprintf(s->name, sizeof s->name, "ranks-%.10s", colon ? colon + 1 : "");
    if (strchr(s->name, '/')) return pl_fail(err, PL_E_USAGE, "%s: is no address; give HOST:PORT", l->address);
    return open_folder(s, err);
}

pl_status pl_secret_key(void *secret, uint8_t key[PL_COMM_KEY], pl_err *err) {
    pl_secret *s = secret;
    char       path[320];
    if (s->file) return read_key(AT_FDCWD, s->file, 0, s->file, key, err);
    if (s->text) return make_key(key, "PACELINE_SECRET", (const uint8_t *)s->text, strlen(s->text), err);
    say_path(s, path);
    if (!s->first) return read_key(s->dir, s->name, O_NOFOLLOW, path, key, err);
    PL_TRY(pl_comm_key_draw(s->drawn, err));
    PL_TRY(write_drawn(s, err));
    return make_key(key, path, s->drawn, sizeof s->drawn, err);
}

void pl_secret_close(pl_secret *s) {
    uint8_t there[PL_COMM_KEY], own[PL_COMM_KEY];
    if (s->written && read_key(s->dir, s->name, O_NOFOLLOW, s->name, there, NULL) == PL_OK) {
        pl_comm_key_of(own, s->drawn, sizeof s->drawn);
        if (memcmp(there, own, sizeof own) == 0) unlinkat(s->dir, s->name, 0);
    }
    if (s->dir >= 0) close(s->dir);
    *s = (pl_secret){.dir = -1};
}
