// What files.h says of what is there already: looked at before it is written over, and opened without following links.
#define _GNU_SOURCE 1 // O_NOFOLLOW, O_DIRECTORY
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/sweep.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pl_status fail_link(const char *path, pl_err *err) {
    return pl_fail(err, PL_E_INPUT, "%s: is a link, which is never written through; remove it, or write elsewhere",
                   path);
}

static pl_status fail_irregular(const char *path, pl_err *err) {
    return pl_fail(err, PL_E_INPUT, "%s: is there and is not a regular file; remove it, or write elsewhere", path);
}

// PL_E_INPUT: the descriptor, which is closed, is of no regular file.
static pl_status take_regular(int fd, const char *path, pl_err *err) {
    struct stat s;
    pl_status   st = fstat(fd, &s) == 0 ? PL_OK : pl_fail_errno(err, "%s", path);
    if (st == PL_OK && !S_ISREG(s.st_mode)) st = fail_irregular(path, err);
    if (st != PL_OK) close(fd);
    return st;
}

pl_status pl_file_open(const char *path, int flags, int *fd, pl_err *err) {
    *fd = -1;
    int f = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666); // a pipe must not hang us
    if (f < 0 && errno == ELOOP) return fail_link(path, err);
    if (f < 0) return pl_fail_errno(err, "%s", path);
    PL_TRY(take_regular(f, path, err));
    *fd = f;
    return PL_OK;
}

// At most PL_FRONT bytes; none where nothing is there.
static pl_status read_front(const char *path, char *front, size_t *n, pl_err *err) {
    *n = 0;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ELOOP) return fail_link(path, err);
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? PL_OK : pl_fail_errno(err, "%s: cannot open", path);
    PL_TRY(take_regular(fd, path, err));
    ssize_t got = 1;
    while (*n < PL_FRONT && got > 0) {
        got = read(fd, front + *n, PL_FRONT - *n);
        if (got > 0) *n += (size_t)got;
        if (got < 0 && errno == EINTR) got = 1;
    }
    pl_status st = got < 0 ? pl_fail_errno(err, "%s: cannot read", path) : PL_OK;
    close(fd);
    return st;
}

pl_status pl_file_look(const char *path, pl_err *err) {
    struct stat s;
    if (lstat(path, &s) != 0)
        return errno == ENOENT || errno == ENOTDIR ? PL_OK : pl_fail_errno(err, "%s: cannot look at", path);
    if (S_ISLNK(s.st_mode)) return fail_link(path, err);
    return S_ISREG(s.st_mode) ? PL_OK : fail_irregular(path, err);
}

pl_status pl_file_spares(const char *path, pl_ours_fn ours, const char *option, pl_err *err) {
    size_t n;
    char  *front = pl_malloc(PL_FRONT);
    if (!front) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = read_front(path, front, &n, err);
    if (st == PL_OK && n > 0 && !(ours && ours(front, n)))
        st = pl_fail(err, PL_E_INPUT,
                     "%s: was not made by this program and would be lost; move it away, or give another "
                     "%s",
                     path, option);
    pl_free(front);
    return st;
}

bool pl_is_listed(const char *const *ours, const char *name, bool dir) {
    for (; ours && *ours; ours++) {
        size_t n = strlen(*ours);
        bool   of_dirs = n > 0 && (*ours)[n - 1] == '/';
        char   pattern[2 * NAME_MAX + 1]; // each byte may be escaped
        if (of_dirs != dir || n - of_dirs >= sizeof pattern) continue;
        memcpy(pattern, *ours, n - of_dirs);
        pattern[n - of_dirs] = 0;
        if (strcmp(pattern, name) == 0 || fnmatch(pattern, name, 0) == 0) return true;
    }
    return false;
}

static bool is_ours(int dir, const char *name, const char *const *ours) {
    struct stat s;
    char        of[NAME_MAX + 1];
    if (fstatat(dir, name, &s, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT; // gone meanwhile
    if (!S_ISDIR(s.st_mode) && !S_ISREG(s.st_mode)) return false;
    return pl_is_listed(ours, pl_is_temporary(name, of) ? of : name, S_ISDIR(s.st_mode));
}

static pl_status check_entries(DIR *d, const char *path, const char *mark, const char *const *ours, pl_err *err) {
    bool marked = !mark || faccessat(dirfd(d), mark, F_OK, 0) == 0;
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e && errno) return pl_fail_errno(err, "%s: cannot look into", path);
        if (!e) return PL_OK;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (!marked || !is_ours(dirfd(d), e->d_name, ours))
            return pl_fail(err, PL_E_INPUT, "%s: holds %s, which would be lost; move it away, or give another --out",
                           path, e->d_name);
    }
}

pl_status pl_dir_spares(const char *path, const char *mark, const char *const *ours, pl_err *err) {
    struct stat s;
    if (lstat(path, &s) != 0 && (errno == ENOENT || errno == ENOTDIR)) return PL_OK;
    DIR *d = opendir(path);
    if (!d && (errno == ENOTDIR || errno == ENOENT))
        return pl_fail(err, PL_E_INPUT, "%s: is there and is not a folder; move it away, or give another --out", path);
    if (!d) return pl_fail_errno(err, "%s: cannot look into", path);
    pl_status st = check_entries(d, path, mark, ours, err);
    closedir(d);
    return st;
}

pl_status pl_dir_drop(const char *path, const char *mark, const char *const *ours, pl_err *err) {
    struct stat s;
    PL_TRY(pl_dir_spares(path, mark, ours, err));
    if (lstat(path, &s) != 0 || !S_ISLNK(s.st_mode)) return pl_tree_remove(path, err);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return pl_fail_errno(err, "%s: cannot open", path);
    pl_status st = pl_remove_within(fd) == 0 ? PL_OK : pl_fail_errno(err, "%s: cannot empty", path);
    close(fd);
    return st;
}
