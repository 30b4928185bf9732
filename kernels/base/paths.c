// What files.h says of paths: names, and what stands under them.
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *pl_path_join(const char *dir, const char *name) {
    size_t n = dir ? strlen(dir) : 0;
    return n == 0 ? pl_strdup(name) : pl_sprintf("%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
}

bool pl_path_ends(const char *path, const char *tail) {
    size_t n = strlen(path), m = strlen(tail);
    return n >= m && memcmp(path + n - m, tail, m) == 0;
}

const char *pl_path_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool pl_path_exists(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

bool pl_path_is_dir(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool pl_path_is_special(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
}

bool pl_path_same(const char *a, const char *b) {
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

// From the root, without "." and "..", in PATH_MAX bytes; false: longer.
static bool full_name(char *to, const char *path) {
    size_t n = 0;
    if (*path != '/') {
        if (!getcwd(to, PATH_MAX)) return false;
        n = strcmp(to, "/") == 0 ? 0 : strlen(to);
    }
    for (const char *end; *path; path = end) {
        path += strspn(path, "/");
        end = path + strcspn(path, "/");
        size_t part = (size_t)(end - path);
        if (part == 2 && memcmp(path, "..", 2) == 0) {
            while (n > 0 && to[--n] != '/') {
            }
        } else if (part > 1 || (part == 1 && *path != '.')) {
            if (n + part + 2 > PATH_MAX) return false;
            to[n++] = '/';
            memcpy(to + n, path, part);
            n += part;
        }
    }
    to[n] = 0;
    return true;
}

bool pl_path_within(const char *path, const char *dir) {
    char a[PATH_MAX], b[PATH_MAX];
    if (!full_name(a, path) || !full_name(b, dir)) return false;
    size_t n = strlen(b);
    return strncmp(a, b, n) == 0 && (a[n] == 0 || a[n] == '/');
}

pl_status pl_path_look_dir(const char *path, bool *is_dir, pl_err *err) {
    struct stat s;
    bool        there = stat(path, &s) == 0;
    *is_dir = there && S_ISDIR(s.st_mode);
    return there || errno == ENOENT ? PL_OK : pl_fail_errno(err, "%s: cannot look at", path);
}
