#include "checkpoints/hub.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include <dirent.h>
#include <string.h>

// snapshots/NAME within dir, where it is a folder; takes over nothing.
static char *snapshot(const char *dir, const char *name) {
    char *path = pl_sprintf("%s%ssnapshots/%s", dir, pl_path_ends(dir, "/") ? "" : "/", name);
    if (path && *name && !strchr(name, '/') && *name != '.' && pl_path_is_dir(path)) return path;
    pl_free(path);
    return NULL;
}

static char *main_snapshot(const char *dir) {
    char    *ref = pl_path_join(dir, "refs/main"), *found = NULL;
    uint8_t *commit = NULL;
    size_t   n;
    if (ref && pl_path_exists(ref) && pl_file_read(ref, &commit, &n, 256, NULL) == PL_OK) {
        commit[strcspn((char *)commit, "\r\n")] = 0;
        found = snapshot(dir, (const char *)commit);
    }
    pl_free(commit);
    pl_free(ref);
    return found;
}

static char *only_snapshot(const char *dir) {
    char *path = pl_path_join(dir, "snapshots"), *found = NULL;
    DIR  *d = path ? opendir(path) : NULL;
    int   n = 0;
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char *one = snapshot(dir, e->d_name);
        if (!one) continue;
        pl_free(found);
        found = one;
        n++;
    }
    if (d) closedir(d);
    pl_free(path);
    if (n == 1) return found;
    pl_free(found);
    return NULL;
}

pl_status pl_hub_refuse(const char *dir, pl_err *err) {
    char *found = main_snapshot(dir);
    if (!found) found = only_snapshot(dir);
    if (!found) return PL_OK;
    pl_status st = pl_fail(err, PL_E_INPUT, "%s: a hub's cache folder; give the model's files in it, %s", dir, found);
    pl_free(found);
    return st;
}
