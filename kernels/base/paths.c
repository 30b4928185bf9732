// Implements the parts of files.h about paths, folders' contents, and files that ended processes left behind.
#define _GNU_SOURCE 1 // flock, O_NOFOLLOW, O_DIRECTORY
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/sweep.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
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

// Writes the path from the root, without "." and "..", in PATH_MAX bytes; false: it is longer.
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

// ---- kinds of content

static const struct {
    const char *begins;
    size_t      n;
    const char *what;
} known[] = {
    {"version https://git-lfs", 23, "a pointer of Git LFS, not the file; fetch it with git lfs pull"},
    {"PAR1", 4, "a Parquet file; write it as JSON Lines"},
    {"\xff\xfe", 2, "UTF-16 text; convert it to UTF-8 (iconv -f utf-16 -t utf-8)"},
    {"\xfe\xff", 2, "UTF-16 text; convert it to UTF-8 (iconv -f utf-16 -t utf-8)"},
    {"\x1f\x8b", 2, "packed by gzip; unpack it"},
    {"PK\x03\x04", 4, "a zip archive; unpack it, or if PyTorch wrote it, save it as safetensors"},
    {"GGUF", 4, "a GGUF file, of which the vocabulary alone is read; name the model's folder in Hugging Face's form"},
};

// "<!doctype html", "<html", in any case, behind blanks.
static bool is_html(const uint8_t *s, size_t n) {
    static const char *const tags[] = {"<!doctype html", "<html"};
    while (n > 0 && isspace(*s))
        s++, n--;
    for (int t = 0; t < 2; t++) {
        size_t k = strlen(tags[t]), i = 0;
        while (i < k && i < n && tolower(s[i]) == tags[t][i])
            i++;
        if (i == k) return true;
    }
    return false;
}

// Returns true for the length of a JSON object, in 8 bytes, and the object.
static bool is_safetensors(const uint8_t *s, size_t n) {
    return n >= 9 && s[8] == '{' && s[5] == 0 && s[6] == 0 && s[7] == 0;
}

// Returns true for text without a mark in front whose every second byte is zero.
static bool is_wide(const uint8_t *s, size_t n) {
    return n >= 4 && ((s[0] && !s[1] && s[2] && !s[3]) || (!s[0] && s[1] && !s[2] && s[3]));
}

const char *pl_sniff(const void *data, size_t n) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (n >= known[i].n && memcmp(data, known[i].begins, known[i].n) == 0) return known[i].what;
    if (is_html(data, n)) return "a page of HTML, not the file; fetch it anew (it may ask for a login)";
    if (is_safetensors(data, n)) return "a safetensors file; name the folder that holds it and its config.json";
    return is_wide(data, n) ? known[2].what : NULL;
}

const char *pl_sniff_path(const char *path) {
    return strncmp(path, "~/", 2) == 0 || strcmp(path, "~") == 0
               ? "; ~ is expanded by shells alone, outside quotes: write the whole path"
               : "";
}

// ---- what dead processes left

// Returns true if `ours` (files.h) lists the name; dir: of a folder.
static bool is_listed(const char *const *ours, const char *name, bool dir) {
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

// Seconds after which the maker of a temporary has locked it, by far.
enum { SETTLED = 60 };

// Returns the process of ".NAME.KIND-PID", KIND "tmp" or "old", and the product's NAME; 0 if entry is no such name.
static pid_t temp_pid(const char *entry, const char *kind, char name[NAME_MAX + 1]) {
    const char *dash = strrchr(entry, '-');
    size_t      k = strlen(kind), n = dash ? (size_t)(dash - entry) : 0;
    if (entry[0] != '.' || n < k + 3 || strncmp(dash - k, kind, k) != 0 || dash[-1 - (ptrdiff_t)k] != '.') return 0;
    if (!isdigit((unsigned char)dash[1])) return 0;
    char *end;
    errno = 0;
    long pid = strtol(dash + 1, &end, 10);
    if (*end || errno || pid <= 0 || pid > INT_MAX) return 0;
    snprintf(name, NAME_MAX + 1, "%.*s", (int)(n - k - 2), entry + 1);
    return (pid_t)pid;
}

// Returns true if the entry is a temporary of some product, or one set aside; writes the product's name.
static bool is_temporary(const char *entry, char name[NAME_MAX + 1]) {
    return temp_pid(entry, "tmp", name) || temp_pid(entry, "old", name);
}

static bool dead(pid_t pid) {
    return pid == getpid() || (kill(pid, 0) != 0 && errno == ESRCH);
}

// A living process of that number may be another one, which got the number after the maker died: then the temporary has
// stood here for longer than it takes to lock it.
static bool settled(int dir, const char *name) {
    struct stat s;
    return fstatat(dir, name, &s, AT_SYMLINK_NOFOLLOW) == 0 && time(NULL) - s.st_ctim.tv_sec > SETTLED;
}

// Returns true if no process holds the lock; false where the file system has no locks.
static bool unlocked(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    bool yes = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return yes;
}

static bool there(int dir, const char *name) {
    struct stat s;
    return fstatat(dir, name, &s, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

void pl_sweep(const char *parent, const char *name, const char *const *ours, bool all) {
    char of[NAME_MAX + 1];
    int  fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        pid_t old = temp_pid(e->d_name, "old", of), tmp = old ? 0 : temp_pid(e->d_name, "tmp", of);
        if (!old && !tmp) continue;
        if (name ? strcmp(of, name) != 0 : !is_listed(ours, of, true) && !is_listed(ours, of, false)) continue;
        if (old && dead(old)) {
            if (!there(fd, of)) {
                if (pl_io_admit()) renameat(fd, e->d_name, fd, of);
            } else if (all) {
                pl_remove_at(fd, e->d_name);
            }
        } else if (all && tmp && (dead(tmp) || settled(fd, e->d_name)) && unlocked(fd, e->d_name)) {
            pl_remove_at(fd, e->d_name);
        }
    }
    closedir(d);
}

void pl_dir_sweep(const char *path, const char *const *ours) {
    pl_sweep(path, NULL, ours, true);
}

// ---- what is there already: looked at before it is written over, and opened without following links

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

static bool is_ours(int dir, const char *name, const char *const *ours) {
    struct stat s;
    char        of[NAME_MAX + 1];
    if (fstatat(dir, name, &s, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT; // gone meanwhile
    if (!S_ISDIR(s.st_mode) && !S_ISREG(s.st_mode)) return false;
    return is_listed(ours, is_temporary(name, of) ? of : name, S_ISDIR(s.st_mode));
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
