// The calls of our own code: the linker sends NAME here as __wrap_NAME (--wrap), and __real_NAME is what it would have
// got.
#define _GNU_SOURCE 1
#include "fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SITE __builtin_return_address(0)

// A call that answers `bad` when it is its turn to fail.
#define FAIL(kind, bad)                                                                                                \
    do {                                                                                                               \
        if (fault_due(FAULT_OWN, kind)) return bad;                                                                    \
    } while (0)

// result = call, with the libraries' layer looking away.
#define THROUGH(type, call)                                                                                            \
    fault_inside++;                                                                                                    \
    type result = (call);                                                                                              \
    fault_inside--

#define PLAIN(type, name, kind, bad, params, args)                                                                     \
    type __real_##name params;                                                                                         \
    type __wrap_##name params;                                                                                         \
    type __wrap_##name params {                                                                                        \
        FAIL(kind, bad);                                                                                               \
        THROUGH(type, __real_##name args);                                                                             \
        return result;                                                                                                 \
    }

// ---- memory ----

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *p, size_t n);
void  __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *p, size_t n);
void  __wrap_free(void *p);

void *__wrap_malloc(size_t n) {
    FAIL(FAULT_ALLOC, NULL);
    THROUGH(void *, __real_malloc(n));
    fault_took(FAULT_OWN, result, SITE);
    return result;
}

void *__wrap_calloc(size_t count, size_t n) {
    FAIL(FAULT_ALLOC, NULL);
    THROUGH(void *, __real_calloc(count, n));
    fault_took(FAULT_OWN, result, SITE);
    return result;
}

void *__wrap_realloc(void *p, size_t n) {
    FAIL(FAULT_ALLOC, NULL);
    uintptr_t old = (uintptr_t)p;
    THROUGH(void *, __real_realloc(p, n));
    if (result) {
        fault_gave((const void *)old);
        fault_took(FAULT_OWN, result, SITE);
    }
    return result;
}

void __wrap_free(void *p) {
    fault_gave(p);
    fault_inside++;
    __real_free(p);
    fault_inside--;
}

char *__real_realpath(const char *path, char *to);
char *__wrap_realpath(const char *path, char *to);
char *__wrap_realpath(const char *path, char *to) {
    FAIL(FAULT_ALLOC, NULL);
    THROUGH(char *, __real_realpath(path, to));
    if (!to) fault_took(FAULT_OWN, result, SITE);
    return result;
}

int __real_scandir(const char *dir, struct dirent ***list, int (*keep)(const struct dirent *),
                   int (*order)(const struct dirent **, const struct dirent **));
int __wrap_scandir(const char *dir, struct dirent ***list, int (*keep)(const struct dirent *),
                   int (*order)(const struct dirent **, const struct dirent **));
int __wrap_scandir(const char *dir, struct dirent ***list, int (*keep)(const struct dirent *),
                   int (*order)(const struct dirent **, const struct dirent **)) {
    FAIL(FAULT_ALLOC, -1);
    THROUGH(int, __real_scandir(dir, list, keep, order));
    for (int i = 0; i < result; i++)
        fault_took(FAULT_OWN, (*list)[i], SITE);
    if (result >= 0) fault_took(FAULT_OWN, *list, SITE);
    return result;
}

PLAIN(int, glob, FAULT_ALLOC, GLOB_NOSPACE,
      (const char *pattern, int flags, int (*error)(const char *, int), glob_t *g), (pattern, flags, error, g))
PLAIN(locale_t, newlocale, FAULT_ALLOC, 0, (int mask, const char *name, locale_t base), (mask, name, base))

void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    FAIL(FAULT_MAP, MAP_FAILED);
    THROUGH(void *, __real_mmap(at, n, prot, flags, fd, offset));
    if (result != MAP_FAILED) fault_mapped((int64_t)((n + 4095) / 4096));
    return result;
}

int __real_munmap(void *p, size_t n);
int __wrap_munmap(void *p, size_t n);
int __wrap_munmap(void *p, size_t n) {
    fault_mapped(-(int64_t)((n + 4095) / 4096));
    return __real_munmap(p, n);
}

// ---- files ----

// The mode where flags ask for one.
#define TAKE_MODE(flags)                                                                                               \
    mode_t mode = 0;                                                                                                   \
    if ((flags)&O_CREAT) {                                                                                             \
        va_list ap;                                                                                                    \
        va_start(ap, flags);                                                                                           \
        mode = va_arg(ap, mode_t);                                                                                     \
        va_end(ap);                                                                                                    \
    }

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    TAKE_MODE(flags)
    FAIL(flags & O_CREAT ? FAULT_CREATE : FAULT_OPEN, -1);
    THROUGH(int, __real_open(path, flags, mode));
    return result;
}

int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...) {
    TAKE_MODE(flags)
    FAIL(flags & O_CREAT ? FAULT_CREATE : FAULT_OPEN, -1);
    THROUGH(int, __real_openat(dir, path, flags, mode));
    return result;
}

PLAIN(FILE *, fopen, FAULT_OPEN, NULL, (const char *path, const char *mode), (path, mode))
PLAIN(DIR *, opendir, FAULT_OPEN, NULL, (const char *path), (path))
PLAIN(DIR *, fdopendir, FAULT_OPEN, NULL, (int fd), (fd))
PLAIN(int, dup, FAULT_OPEN, -1, (int fd), (fd))
PLAIN(int, mkdir, FAULT_CREATE, -1, (const char *path, mode_t mode), (path, mode))
PLAIN(struct dirent *, readdir, FAULT_READ, NULL, (DIR * d), (d))

PLAIN(int, stat, FAULT_LOOK, -1, (const char *path, struct stat *s), (path, s))
PLAIN(int, lstat, FAULT_LOOK, -1, (const char *path, struct stat *s), (path, s))
PLAIN(int, fstat, FAULT_LOOK, -1, (int fd, struct stat *s), (fd, s))
PLAIN(int, fstatat, FAULT_LOOK, -1, (int dir, const char *path, struct stat *s, int flags), (dir, path, s, flags))

PLAIN(int, ftruncate, FAULT_WRITE, -1, (int fd, off_t n), (fd, n))
PLAIN(int, fsync, FAULT_SYNC, -1, (int fd), (fd))
PLAIN(int, rename, FAULT_RENAME, -1, (const char *from, const char *to), (from, to))
PLAIN(int, renameat, FAULT_RENAME, -1, (int a, const char *from, int b, const char *to), (a, from, b, to))
PLAIN(int, renameat2, FAULT_RENAME, -1, (int a, const char *from, int b, const char *to, unsigned flags),
      (a, from, b, to, flags))
PLAIN(int, unlink, FAULT_REMOVE, -1, (const char *path), (path))
PLAIN(int, unlinkat, FAULT_REMOVE, -1, (int dir, const char *path, int flags), (dir, path, flags))
PLAIN(int, rmdir, FAULT_REMOVE, -1, (const char *path), (path))
PLAIN(int, flock, FAULT_LOCK, -1, (int fd, int what), (fd, what))
PLAIN(int, pthread_create, FAULT_THREAD, EAGAIN,
      (pthread_t * t, const pthread_attr_t *a, void *(*fn)(void *), void *arg), (t, a, fn, arg))

ssize_t __real_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n) {
    FAIL(FAULT_READ, -1);
    FAIL(FAULT_EINTR_READ, -1);
    if (n > 1 && fault_due(FAULT_OWN, FAULT_SHORT_READ)) n = n > 64 ? 7 : n - 1;
    THROUGH(ssize_t, __real_read(fd, to, n));
    return result;
}

ssize_t __real_write(int fd, const void *from, size_t n);
ssize_t __wrap_write(int fd, const void *from, size_t n);
ssize_t __wrap_write(int fd, const void *from, size_t n) {
    FAIL(FAULT_WRITE, -1);
    FAIL(FAULT_EINTR_WRITE, -1);
    if (n > 1 && fault_due(FAULT_OWN, FAULT_SHORT_WRITE)) n /= 2;
    THROUGH(ssize_t, __real_write(fd, from, n));
    return result;
}

// The write itself happens inside of libc; what the caller sees of a full disk is this.
int __real_fflush(FILE *f);
int __wrap_fflush(FILE *f);
int __wrap_fflush(FILE *f) {
    if (fault_due(FAULT_OWN, FAULT_WRITE)) {
        if (f) __fpurge(f); // what was to be written did not arrive
        return EOF;
    }
    THROUGH(int, __real_fflush(f));
    return result;
}

// ---- time ----

// eval asks twice how fast this machine reads, a quarter of a second each time, thousands of times in a walk. Its one
// allocation may fail and then the figure is left out, so there is nothing to be seen here.
double __wrap_pl_probe_bandwidth(void *pool, size_t bytes);
double __wrap_pl_probe_bandwidth(void *pool, size_t bytes) {
    (void)pool, (void)bytes;
    return 1e9;
}
