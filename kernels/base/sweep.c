#define _GNU_SOURCE 1 // flock, O_NOFOLLOW
#include "kernels/base/sweep.h"

#include "kernels/base/files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// Seconds in which whoever made a temporary has locked it, by far.
enum { SETTLED = 60 };

// The process of ".NAME.KIND-PID", KIND "tmp" or "old", and the product's NAME; 0 if entry is no such name.
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

bool pl_is_temporary(const char *entry, char name[NAME_MAX + 1]) {
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

// Nobody holds the lock. Where a file system has no locks nothing counts as left behind.
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
        if (name ? strcmp(of, name) != 0 : !pl_is_listed(ours, of, true) && !pl_is_listed(ours, of, false)) continue;
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
