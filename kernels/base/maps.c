// Mapped files, and how a process ends when one of them shrinks under it.
#define _GNU_SOURCE 1 // madvise, sigaction
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/sweep.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Every mapping of the process, newest first. The handler takes the lock too: no thread touches a mapping under it.
typedef struct mapping {
    struct mapping *next;
    const uint8_t  *data;
    size_t          size;
    char            path[];
} mapping;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mapping        *mappings;

static pl_status note_mapping(const pl_map *m, const char *path, pl_err *err) {
    size_t   n = strlen(path) + 1;
    mapping *of = pl_malloc(sizeof *of + n);
    if (!of) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    of->data = m->data;
    of->size = m->size;
    memcpy(of->path, path, n);
    pthread_mutex_lock(&lock);
    of->next = mappings;
    mappings = of;
    pthread_mutex_unlock(&lock);
    return PL_OK;
}

static void forget_mapping(const pl_map *m) {
    pthread_mutex_lock(&lock);
    mapping **at = &mappings;
    while (*at && (*at)->data != m->data)
        at = &(*at)->next;
    mapping *gone = *at;
    if (gone) *at = gone->next;
    pthread_mutex_unlock(&lock);
    pl_free(gone);
}

pl_status pl_map_open(pl_map *m, const char *path, pl_err *err) {
    struct stat s;
    int         fd;
    *m = (pl_map){0};
    PL_TRY(pl_input_open(path, false, &fd, &s, err));
    pl_status st = PL_OK;
    if (S_ISDIR(s.st_mode)) {
        st = pl_fail(err, PL_E_INPUT, "%s: not a regular file", path);
    } else if (s.st_size > 0) {
        void *p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            st = pl_fail_errno(err, "%s: cannot map", path);
        } else {
            *m = (pl_map){.data = p, .size = (size_t)s.st_size};
            st = note_mapping(m, path, err);
            if (st != PL_OK) pl_map_close(m);
        }
    }
    close(fd);
    return st;
}

void pl_map_close(pl_map *m) {
    if (m->data) {
        forget_mapping(m);
        munmap((void *)m->data, m->size);
    }
    *m = (pl_map){0};
}

void pl_map_drop(const void *p, size_t bytes) {
    if (bytes == 0) return;
    // Outward to whole pages: a neighbour on a shared page is only read again.
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), lo = (uintptr_t)p / page * page;
    madvise((void *)lo, (uintptr_t)p + bytes - lo, MADV_DONTNEED);
}

// ---- a mapping without its file

static const char *path_at(const uint8_t *at) {
    const char *path = NULL;
    pthread_mutex_lock(&lock);
    for (const mapping *m = mappings; m && !path; m = m->next)
        if (at >= m->data && at < m->data + m->size) path = m->path;
    pthread_mutex_unlock(&lock);
    return path;
}

static void write_error(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) return; // there is no other place to report it
}

// The faulting thread read a mapping, so that it holds no lock of the C library: removing temporaries is safe.
static void on_fault(int sig, siginfo_t *info, void *context) {
    (void)context;
    const char *path = info->si_code > 0 ? path_at(info->si_addr) : NULL;
    if (!path) { // a fault of another kind ends the process as it would have, once the instruction runs again
        signal(sig, SIG_DFL);
        return;
    }
    write_error("paceline: ");
    write_error(path);
    write_error(": cannot read: it became shorter while it was in use, or its disk failed\n");
    pl_temporaries_remove();
    _exit(pl_status_exit(PL_E_IO));
}

void pl_map_guard(void) {
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_sigaction = on_fault;
    act.sa_flags = SA_SIGINFO;
    sigemptyset(&act.sa_mask);
    sigaction(SIGBUS, &act, NULL);
}
