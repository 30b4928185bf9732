#define _GNU_SOURCE 1 // renameat2, flock, O_NOFOLLOW
#include "kernels/base/files.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/sweep.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- faults for tests ----

static atomic_uint_fast64_t steps;
static atomic_uint_fast64_t fail_in, kill_in; // steps until one fails, or the process is killed; 0 = never
static atomic_bool          no_exchange;

void pl_io_fail_after(uint64_t n) {
    atomic_store(&fail_in, n);
}

void pl_io_kill_after(uint64_t n) {
    atomic_store(&kill_in, n);
}

uint64_t pl_io_count(void) {
    return atomic_load(&steps);
}

void pl_io_no_exchange(bool on) {
    atomic_store(&no_exchange, on);
}

// True when a countdown reaches its end with this step.
static bool due(atomic_uint_fast64_t *left) {
    uint_fast64_t n = atomic_load(left);
    while (n != 0)
        if (atomic_compare_exchange_weak(left, &n, n - 1)) return n == 1;
    return false;
}

bool pl_io_admit(void) {
    atomic_fetch_add(&steps, 1);
    if (due(&kill_in)) raise(SIGKILL);
    if (!due(&fail_in)) return true;
    errno = EIO;
    return false;
}

// A name that is not there, or not of the kind asked for, is the user's slip; all else is the machine's.
static pl_status fail_path(pl_err *err, const char *path, const char *verb) {
    if (errno == ENOENT || errno == ENOTDIR || errno == EISDIR || errno == ELOOP || errno == ENAMETOOLONG)
        return pl_fail(err, PL_E_INPUT, "%s: cannot %s: %s%s", path, verb, strerror(errno), pl_sniff_path(path));
    return pl_fail_errno(err, "%s: cannot %s", path, verb);
}

static pl_status fail_memory(pl_err *err, const char *path) {
    return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
}

// ---- folders ----

// The folder that holds path, "." where it has no slash; path has no slash at its end.
static char *parent_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return pl_strdup(".");
    while (slash > path && slash[-1] == '/')
        slash--;
    return slash == path ? pl_strdup("/") : pl_sprintf("%.*s", (int)(slash - path), path);
}

pl_status pl_dir_make(const char *path, pl_err *err) {
    if (!*path) return pl_fail(err, PL_E_INPUT, "an empty folder name; give a path");
    char *p = pl_strdup(path);
    if (!p) return fail_memory(err, path);
    pl_status st = PL_OK;
    for (char *end = p + 1; st == PL_OK; end++) {
        if (*end && *end != '/') continue;
        char keep = *end;
        *end = 0;
        // An existing folder may lie where one may not create: look before making.
        if (!pl_path_is_dir(p)) {
            int rc = pl_io_admit() ? mkdir(p, 0777) : -1;
            if (rc != 0 && !(errno == EEXIST && pl_path_is_dir(p))) {
                if (errno == EEXIST) errno = ENOTDIR;
                st = fail_path(err, p, "make the folder");
            }
        }
        *end = keep;
        if (!keep) break;
    }
    pl_free(p);
    return st;
}

// ---- trees ----

typedef int (*entry_fn)(int dir, const char *name);

// fn for every entry of the folder `fd` (which stays open); 0, or -1 with errno.
static int each_entry(int fd, entry_fn fn) {
    int own = dup(fd);
    if (own < 0) return -1;
    DIR *d = fdopendir(own);
    if (!d) {
        close(own);
        return -1;
    }
    rewinddir(d); // the descriptor shares its position with fd
    int rc = 0;
    for (struct dirent *e; rc == 0;) {
        errno = 0;
        e = readdir(d);
        if (!e) {
            rc = errno ? -1 : 0;
            break;
        }
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) rc = fn(fd, e->d_name);
    }
    int cause = errno;
    closedir(d);
    errno = cause;
    return rc;
}

static int open_dir_at(int dir, const char *name) {
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int close_keep(int fd, int rc) {
    int cause = errno;
    close(fd);
    errno = cause;
    return rc;
}

// Recursion goes as deep as the tree does: products are shallow.
int pl_remove_at(int dir, const char *name) {
    struct stat s;
    if (fstatat(dir, name, &s, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : -1;
    int flags = 0;
    if (S_ISDIR(s.st_mode)) {
        int fd = open_dir_at(dir, name);
        if (fd < 0) return -1;
        if (close_keep(fd, each_entry(fd, pl_remove_at)) != 0) return -1;
        flags = AT_REMOVEDIR;
    }
    return pl_io_admit() ? unlinkat(dir, name, flags) : -1;
}

int pl_remove_within(int dir) {
    return each_entry(dir, pl_remove_at);
}

pl_status pl_dir_lock(const char *dir, int *fd, pl_err *err) {
    *fd = -1;
    char *path = pl_path_join(dir, ".lock");
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    int       f = -1;
    pl_status st = pl_file_open(path, O_RDWR | O_CREAT, &f, err);
    // A file system without locks (ENOLCK, ENOSYS, ENOTSUP) is no reason to refuse work.
    if (st == PL_OK && flock(f, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        st = pl_fail(err, PL_E_INPUT, "%s: another run is at work in this folder; wait for it or give --out", dir);
        close(f);
    }
    if (st == PL_OK) *fd = f;
    pl_free(path);
    return st;
}

void pl_dir_unlock(int fd) {
    if (fd >= 0) close(fd);
}

pl_status pl_path_rename(const char *from, const char *to, pl_err *err) {
    if (pl_io_admit() && rename(from, to) == 0) return PL_OK;
    return pl_fail_errno(err, "%s: cannot rename it to %s", from, to);
}

pl_status pl_tree_remove(const char *path, pl_err *err) {
    return pl_remove_at(AT_FDCWD, path) == 0 ? PL_OK : pl_fail_errno(err, "%s: cannot remove", path);
}

static int sync_fd(int fd) {
    return pl_io_admit() ? fsync(fd) : -1;
}

static int sync_at(int dir, const char *name) {
    struct stat s;
    if (fstatat(dir, name, &s, AT_SYMLINK_NOFOLLOW) != 0) return -1;
    if (!S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode)) return 0;
    int fd = S_ISDIR(s.st_mode) ? open_dir_at(dir, name) : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    int rc = S_ISDIR(s.st_mode) ? each_entry(fd, sync_at) : 0;
    if (rc == 0) rc = sync_fd(fd);
    return close_keep(fd, rc);
}

// ---- reading ----

pl_status pl_input_open(const char *path, bool stream, int *fd, struct stat *s, pl_err *err) {
    *fd = open(path, O_RDONLY | O_CLOEXEC | (stream ? 0 : O_NONBLOCK));
    if (*fd < 0) return fail_path(err, path, "open");
    pl_status st = PL_OK;
    if (fstat(*fd, s) != 0) {
        st = fail_path(err, path, "look at");
    } else if (!stream && !S_ISREG(s->st_mode) && !S_ISDIR(s->st_mode)) {
        st = pl_fail(err, PL_E_INPUT, "%s: not a regular file", path);
    }
    if (st == PL_OK) return PL_OK;
    close(*fd);
    *fd = -1;
    return st;
}

// All that fd gives; s is its state.
static pl_status read_all(int fd, const struct stat *s, const char *path, uint8_t **data, size_t *n, size_t max_bytes,
                          pl_err *err) {
    uint8_t  *buf = NULL;
    size_t    len = 0, cap = 0;
    pl_status st = PL_OK;
    if (S_ISREG(s->st_mode) && (uint64_t)s->st_size > max_bytes) goto large;
    // A regular file is read in one piece; a pipe does not know its length.
    cap = S_ISREG(s->st_mode) ? (size_t)s->st_size + 1 : 4096;
    for (;;) {
        uint8_t *bigger = pl_realloc(buf, cap + 1);
        if (!bigger) {
            st = fail_memory(err, path);
            goto done;
        }
        buf = bigger;
        ssize_t got = 1;
        while (len < cap && got > 0) {
            got = read(fd, buf + len, cap - len);
            if (got > 0) len += (size_t)got;
            if (got < 0 && errno == EINTR) got = 1;
        }
        if (got < 0) {
            st = fail_path(err, path, "read");
            goto done;
        }
        if (len > max_bytes) goto large;
        if (got == 0) break;
        cap = cap > max_bytes / 2 ? max_bytes + 1 : 2 * cap;
    }
    buf[len] = 0;
    *data = buf;
    *n = len;
    return PL_OK;
large:
    st = pl_fail(err, PL_E_INPUT, "%s: larger than %zu bytes, the most that is read here", path, max_bytes);
done:
    pl_free(buf);
    return st;
}

static pl_status read_input(const char *path, bool stream, uint8_t **data, size_t *n, size_t max_bytes, pl_err *err) {
    struct stat s;
    int         fd;
    *data = NULL;
    *n = 0;
    PL_CHECK(max_bytes < SIZE_MAX / 4, "max_bytes %zu", max_bytes);
    PL_TRY(pl_input_open(path, stream, &fd, &s, err));
    pl_status st = read_all(fd, &s, path, data, n, max_bytes, err);
    close(fd);
    return st;
}

pl_status pl_file_read(const char *path, uint8_t **data, size_t *n, size_t max_bytes, pl_err *err) {
    return read_input(path, false, data, n, max_bytes, err);
}

pl_status pl_stream_read(const char *path, uint8_t **data, size_t *n, size_t max_bytes, pl_err *err) {
    return read_input(path, true, data, n, max_bytes, err);
}

// ---- temporaries ----

// Those of living products, for an end without a way back (pl_temporaries_remove).
enum { LIVING = 16 };
static pthread_mutex_t living_lock = PTHREAD_MUTEX_INITIALIZER;
static const char     *living[LIVING]; // of their owners; NULL: a free place. What finds none is left to pl_sweep.
static pid_t           living_in;      // a forked rank has its parent's in its memory, and no part in them

static void replace_living(const char *old, const char *new) {
    pthread_mutex_lock(&living_lock);
    if (living_in != getpid()) memset(living, 0, sizeof living);
    living_in = getpid();
    for (int i = 0; i < LIVING; i++)
        if (living[i] == old) {
            living[i] = new;
            break;
        }
    pthread_mutex_unlock(&living_lock);
}

static void drop_temp(char **temp) {
    if (*temp) replace_living(*temp, NULL);
    pl_free(*temp);
    *temp = NULL;
}

void pl_temporaries_remove(void) {
    pthread_mutex_lock(&living_lock);
    for (int i = 0; i < LIVING && living_in == getpid(); i++)
        if (living[i]) pl_remove_at(AT_FDCWD, living[i]);
    pthread_mutex_unlock(&living_lock);
}

typedef struct place {
    char *path, *temp, *parent; // owned
    int   fd;                   // of the temporary, locked
} place;

static void place_fini(place *p) {
    pl_free(p->path);
    pl_free(p->temp);
    pl_free(p->parent);
    *p = (place){.fd = -1};
}

// Fills path, parent and temp. follow: a link leads to what it points to, so that the link itself stays.
static pl_status place_init(place *p, const char *path, bool follow, pl_err *err) {
    *p = (place){.fd = -1};
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    p->path = pl_sprintf("%.*s", (int)n, path);
    if (!p->path) goto memory;
    struct stat s;
    const char *name = pl_path_name(p->path);
    bool        dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    if (dots || (follow && lstat(p->path, &s) == 0 && S_ISLNK(s.st_mode))) {
        char *real = realpath(p->path, NULL);
        if (!real) {
            pl_status st = fail_path(err, path, "follow");
            place_fini(p);
            return st;
        }
        pl_free(p->path);
        p->path = real;
    }
    name = pl_path_name(p->path);
    if (!*name) {
        place_fini(p);
        return pl_fail(err, PL_E_INPUT, "\"%s\": not a name that can be written; give a path with a name at its end",
                       path);
    }
    p->parent = parent_of(p->path);
    if (!p->parent) goto memory;
    char *temp = pl_sprintf(".%s.tmp-%ld", name, (long)getpid());
    if (temp) p->temp = pl_path_join(strcmp(p->parent, ".") == 0 ? NULL : p->parent, temp);
    pl_free(temp);
    if (p->temp) return PL_OK;
memory:
    place_fini(p);
    return fail_memory(err, path);
}

// Locks the fresh temporary, so that others see that it lives. No locks on this file system: go on without.
static void place_lock(place *p) {
    while (flock(p->fd, LOCK_EX | LOCK_NB) != 0 && errno == EINTR)
        ;
}

static pl_status fail_taken(pl_err *err, const place *p) {
    if (errno != EEXIST) return fail_path(err, p->temp, "create");
    return pl_fail(err, PL_E_IO, "%s: another process is writing it (%s); wait for it, or remove that", p->path,
                   p->temp);
}

static int sync_dir(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    return close_keep(fd, sync_fd(fd));
}

// ---- atomic files ----

pl_status pl_atomic_file_begin(pl_atomic_file *a, const char *path, pl_err *err) {
    *a = (pl_atomic_file){.fd = -1};
    place p;
    PL_TRY(place_init(&p, path, false, err));
    pl_status   st = PL_OK;
    struct stat s;
    if (lstat(p.path, &s) == 0 && !S_ISREG(s.st_mode)) {
        st = pl_fail(err, PL_E_INPUT, "%s: is there and is %s; choose another name", path,
                     S_ISLNK(s.st_mode) ? "a link, which is never written through" : "not a regular file");
        goto fail;
    }
    pl_sweep(p.parent, pl_path_name(p.path), NULL, true);
    p.fd = pl_io_admit() ? open(p.temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    if (p.fd < 0) {
        st = fail_taken(err, &p);
        goto fail;
    }
    place_lock(&p);
    *a = (pl_atomic_file){.path = p.path, .temp = p.temp, .fd = p.fd};
    replace_living(NULL, a->temp);
    pl_free(p.parent);
    return PL_OK;
fail:
    place_fini(&p);
    return st;
}

pl_status pl_atomic_file_append(pl_atomic_file *a, const void *data, size_t n, pl_err *err) {
    PL_CHECK(a->temp, "append without begin");
    const uint8_t *p = data;
    while (n > 0) {
        ssize_t put = pl_io_admit() ? write(a->fd, p, n < (size_t)1 << 30 ? n : (size_t)1 << 30) : -1;
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return pl_fail_errno(err, "%s: cannot write", a->path);
        p += put;
        n -= (size_t)put;
    }
    return PL_OK;
}

pl_status pl_atomic_file_rewrite(pl_atomic_file *a, size_t at, const void *data, size_t n, pl_err *err) {
    if (lseek(a->fd, (off_t)at, SEEK_SET) < 0) return pl_fail_errno(err, "%s: cannot go back", a->path);
    PL_TRY(pl_atomic_file_append(a, data, n, err));
    return lseek(a->fd, 0, SEEK_END) < 0 ? pl_fail_errno(err, "%s: cannot go on", a->path) : PL_OK;
}

pl_status pl_atomic_file_commit(pl_atomic_file *a, pl_err *err) {
    PL_CHECK(a->temp, "commit without begin");
    pl_status st = PL_OK;
    char     *parent = parent_of(a->path);
    if (!parent) {
        st = fail_memory(err, a->path);
        goto done;
    }
    // The folder's fsync only decides whether a power cut right now shows the old file: after the rename both are
    // whole.
    if (sync_fd(a->fd) != 0 || !pl_io_admit() || rename(a->temp, a->path) != 0) {
        st = pl_fail_errno(err, "%s: cannot finish", a->path);
        goto done;
    }
    drop_temp(&a->temp);
    if (sync_dir(parent) != 0) st = pl_fail_errno(err, "%s: written, but cannot make its folder durable", a->path);
done:
    pl_free(parent);
    pl_atomic_file_abort(a);
    return st;
}

void pl_atomic_file_abort(pl_atomic_file *a) {
    if (!a->path) return; // zeroed, or ended: its descriptor is not ours
    if (a->temp) unlink(a->temp);
    close(a->fd);
    pl_free(a->path);
    drop_temp(&a->temp);
    *a = (pl_atomic_file){.fd = -1};
}

pl_status pl_fd_write(int fd, const char *path, const void *data, size_t n, pl_err *err) {
    for (size_t done = 0; done < n;) {
        ssize_t w = write(fd, (const char *)data + done, n - done);
        if (w < 0 && errno != EINTR) return pl_fail_errno(err, "%s", path);
        if (w > 0) done += (size_t)w;
    }
    return PL_OK;
}

pl_status pl_file_write_atomic(const char *path, const void *data, size_t n, pl_err *err) {
    pl_atomic_file a;
    PL_TRY(pl_atomic_file_begin(&a, path, err));
    pl_status st = pl_atomic_file_append(&a, data, n, err);
    if (st == PL_OK) return pl_atomic_file_commit(&a, err);
    pl_atomic_file_abort(&a);
    return st;
}

// ---- atomic folders ----

pl_status pl_atomic_dir_recover(const char *path, pl_err *err) {
    struct stat s;
    if (lstat(path, &s) == 0) return PL_OK;
    place p;
    PL_TRY(place_init(&p, path, true, err));
    pl_sweep(p.parent, pl_path_name(p.path), NULL, false);
    place_fini(&p);
    return PL_OK;
}

pl_status pl_atomic_dir_begin(pl_atomic_dir *a, const char *path, pl_err *err) {
    *a = (pl_atomic_dir){.lock = -1};
    place p;
    PL_TRY(place_init(&p, path, true, err));
    pl_status st = pl_dir_make(p.parent, err);
    if (st != PL_OK) goto fail;
    pl_sweep(p.parent, pl_path_name(p.path), NULL, true);
    struct stat s;
    if (lstat(p.path, &s) == 0 && !S_ISDIR(s.st_mode)) {
        st = pl_fail(err, PL_E_INPUT, "%s: is there and is not a folder; choose another place or remove it", path);
        goto fail;
    }
    if (!pl_io_admit() || mkdir(p.temp, 0777) != 0) {
        st = fail_taken(err, &p);
        goto fail;
    }
    p.fd = open(p.temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p.fd < 0) {
        st = fail_path(err, p.temp, "open");
        rmdir(p.temp);
        goto fail;
    }
    place_lock(&p);
    *a = (pl_atomic_dir){.path = p.path, .temp = p.temp, .lock = p.fd};
    replace_living(NULL, a->temp);
    pl_free(p.parent);
    return PL_OK;
fail:
    place_fini(&p);
    return st;
}

const char *pl_atomic_dir_path(const pl_atomic_dir *a) {
    PL_CHECK(a->temp, "path without begin");
    return a->temp;
}

// 0 when the two names have changed places.
static int exchange(const char *a, const char *b) {
    if (atomic_load(&no_exchange)) {
        errno = EINVAL;
        return -1;
    }
    return pl_io_admit() ? renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) : -1;
}

// The new product takes the name. Afterwards *aside says where the old one is (heap, NULL if there was none).
static int swap_in(const pl_atomic_dir *a, const char *parent, char **aside) {
    struct stat s;
    *aside = NULL;
    if (lstat(a->path, &s) != 0) return errno == ENOENT && pl_io_admit() ? rename(a->temp, a->path) : -1;
    char *temp = pl_strdup(a->temp), *old = pl_sprintf("%s/.%s.old-%ld", parent, pl_path_name(a->path), (long)getpid());
    int   rc = -1;
    if (!temp || !old) {
        errno = ENOMEM;
    } else if (exchange(a->temp, a->path) == 0) {
        *aside = temp;
        rc = 0;
    } else if ((errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) && pl_io_admit() &&
               rename(a->path, old) == 0) {
        if (pl_io_admit() && rename(a->temp, a->path) == 0) {
            *aside = old;
            rc = 0;
        } else {
            int cause = errno;
            rename(old, a->path);
            errno = cause;
        }
    }
    if (*aside != temp) pl_free(temp);
    if (*aside != old) pl_free(old);
    return rc;
}

// The way back from swap_in.
static void swap_out(const pl_atomic_dir *a, const char *aside) {
    if (!aside || strcmp(aside, a->temp) != 0) {
        rename(a->path, a->temp);
        if (aside) rename(aside, a->path);
    } else {
        renameat2(AT_FDCWD, a->temp, AT_FDCWD, a->path, RENAME_EXCHANGE);
    }
}

pl_status pl_atomic_dir_commit(pl_atomic_dir *a, pl_err *err) {
    PL_CHECK(a->temp, "commit without begin");
    pl_status st = PL_OK;
    char     *aside = NULL, *parent = parent_of(a->path);
    if (!parent) {
        st = fail_memory(err, a->path);
        goto done;
    }
    if (sync_at(AT_FDCWD, a->temp) != 0) {
        st = pl_fail_errno(err, "%s: cannot make it durable", a->path);
        goto done;
    }
    if (swap_in(a, parent, &aside) != 0) {
        st = pl_fail_errno(err, "%s: cannot put the new one in place", a->path);
        goto done;
    }
    if (sync_dir(parent) != 0) {
        st = pl_fail_errno(err, "%s: cannot make its folder durable", a->path);
        swap_out(a, aside);
        goto done;
    }
    drop_temp(&a->temp);
    // What cannot be removed now goes with the next begin.
    if (aside) pl_remove_at(AT_FDCWD, aside);
done:
    pl_free(aside);
    pl_free(parent);
    pl_atomic_dir_abort(a);
    return st;
}

// 0 when `path` is called `as`, and what was called so `old`.
static int succeed(const char *path, const char *as, const char *old) {
    struct stat s;
    if (lstat(as, &s) != 0) return errno == ENOENT && pl_io_admit() ? rename(path, as) : -1;
    if (exchange(path, as) == 0) return pl_io_admit() ? rename(path, old) : -1;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) return -1;
    if (!pl_io_admit() || rename(as, old) != 0) return -1;
    return pl_io_admit() ? rename(path, as) : -1;
}

pl_status pl_path_succeed(const char *path, const char *as, const char *old, pl_err *err) {
    char *parent = parent_of(as);
    if (!parent) return fail_memory(err, as);
    pl_status st = PL_OK;
    if (succeed(path, as, old) != 0)
        st = pl_fail_errno(err, "%s: cannot put %s in its place", as, path);
    else if (sync_dir(parent) != 0)
        st = pl_fail_errno(err, "%s: cannot make its folder durable", as);
    pl_free(parent);
    return st;
}

void pl_atomic_dir_abort(pl_atomic_dir *a) {
    if (!a->path) return;
    if (a->temp) pl_remove_at(AT_FDCWD, a->temp);
    close(a->lock);
    pl_free(a->path);
    drop_temp(&a->temp);
    *a = (pl_atomic_dir){.lock = -1};
}
