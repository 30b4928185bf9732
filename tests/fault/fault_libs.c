// The calls of libraries. These definitions stand in the executable, where dynamic symbol lookup finds them before
// libc's: HDF5, cJSON, libyaml, libstdc++ and libc itself call them. Memory goes on to glibc's second names
// (looking one up with dlsym would itself allocate), everything else to the next definition.
#define _GNU_SOURCE 1
#include "fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t count, size_t n);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void  __libc_free(void *p);

#define SITE __builtin_return_address(0)

static bool due(fault_kind k) {
    return fault_inside == 0 && fault_due(FAULT_LIBS, k);
}

// ---- memory ----

static void *took(void *p, const void *site) {
    if (fault_inside == 0) fault_took(FAULT_LIBS, p, site);
    return p;
}

void *malloc(size_t n) {
    return due(FAULT_ALLOC) ? NULL : took(__libc_malloc(n), SITE);
}

void *calloc(size_t count, size_t n) {
    return due(FAULT_ALLOC) ? NULL : took(__libc_calloc(count, n), SITE);
}

void *realloc(void *p, size_t n) {
    if (due(FAULT_ALLOC)) return NULL;
    uintptr_t old = (uintptr_t)p;
    void     *q = __libc_realloc(p, n);
    if ((q || n == 0) && fault_inside == 0) fault_gave((const void *)old);
    return took(q, SITE);
}

void *aligned_alloc(size_t align, size_t n) {
    return due(FAULT_ALLOC) ? NULL : took(__libc_memalign(align, n), SITE);
}

void *memalign(size_t align, size_t n);
void *memalign(size_t align, size_t n) {
    return due(FAULT_ALLOC) ? NULL : took(__libc_memalign(align, n), SITE);
}

int posix_memalign(void **out, size_t align, size_t n) {
    if (due(FAULT_ALLOC)) return ENOMEM;
    void *p = took(__libc_memalign(align, n), SITE);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

void free(void *p) {
    if (fault_inside == 0) fault_gave(p);
    __libc_free(p);
}

// ---- files and threads ----

static void find(void *fn, const char *name) {
    void *found;
    fault_inside++;
    found = dlsym(RTLD_NEXT, name);
    fault_inside--;
    memcpy(fn, &found, sizeof found);
}

// The next definition of a name, found once: next(...) calls it.
#define NEXT(type, name, params)                                                                                       \
    static type(*next) params;                                                                                         \
    if (!next) find(&next, name)

#define PLAIN(type, name, kind, bad, params, args)                                                                     \
    type name params {                                                                                                 \
        NEXT(type, #name, params);                                                                                     \
        return due(kind) ? bad : next args;                                                                            \
    }

#define TAKE_MODE(flags)                                                                                               \
    mode_t mode = 0;                                                                                                   \
    if ((flags)&O_CREAT) {                                                                                             \
        va_list ap;                                                                                                    \
        va_start(ap, flags);                                                                                           \
        mode = va_arg(ap, mode_t);                                                                                     \
        va_end(ap);                                                                                                    \
    }

int open(const char *path, int flags, ...) {
    NEXT(int, "open", (const char *, int, ...));
    TAKE_MODE(flags)
    return due(flags & O_CREAT ? FAULT_CREATE : FAULT_OPEN) ? -1 : next(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...) {
    NEXT(int, "openat", (int, const char *, int, ...));
    TAKE_MODE(flags)
    return due(flags & O_CREAT ? FAULT_CREATE : FAULT_OPEN) ? -1 : next(dir, path, flags, mode);
}

PLAIN(FILE *, fopen, FAULT_OPEN, NULL, (const char *path, const char *mode), (path, mode))
PLAIN(FILE *, fopen64, FAULT_OPEN, NULL, (const char *path, const char *mode), (path, mode))
PLAIN(int, fstat, FAULT_LOOK, -1, (int fd, struct stat *s), (fd, s))
PLAIN(int, stat, FAULT_LOOK, -1, (const char *path, struct stat *s), (path, s))
PLAIN(int, ftruncate, FAULT_WRITE, -1, (int fd, off_t n), (fd, n))
PLAIN(ssize_t, writev, FAULT_WRITE, -1, (int fd, const struct iovec *v, int n), (fd, v, n))
PLAIN(void *, mmap, FAULT_MAP, MAP_FAILED, (void *at, size_t n, int prot, int flags, int fd, off_t offset),
      (at, n, prot, flags, fd, offset))
PLAIN(int, pthread_create, FAULT_THREAD, EAGAIN,
      (pthread_t * t, const pthread_attr_t *a, void *(*fn)(void *), void *arg), (t, a, fn, arg))

// Reads and writes: an error, an interruption, or fewer bytes than asked for.
#define MOVE(name, error, eintr, shorter, params, args)                                                                \
    ssize_t name params {                                                                                              \
        NEXT(ssize_t, #name, params);                                                                                  \
        if (due(error) || due(eintr)) return -1;                                                                       \
        if (n > 1 && due(shorter)) n /= 2;                                                                             \
        return next args;                                                                                              \
    }

MOVE(read, FAULT_READ, FAULT_EINTR_READ, FAULT_SHORT_READ, (int fd, void *to, size_t n), (fd, to, n))
MOVE(pread, FAULT_READ, FAULT_EINTR_READ, FAULT_SHORT_READ, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
MOVE(write, FAULT_WRITE, FAULT_EINTR_WRITE, FAULT_SHORT_WRITE, (int fd, const void *from, size_t n), (fd, from, n))
MOVE(pwrite, FAULT_WRITE, FAULT_EINTR_WRITE, FAULT_SHORT_WRITE, (int fd, const void *from, size_t n, off_t at),
     (fd, from, n, at))
