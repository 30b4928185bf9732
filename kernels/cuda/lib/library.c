#include "kernels/cuda/lib/library.h"
#include "kernels/base/check.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, PATH = 512 };

static void *open_in(const char *name, const char *folder) {
    char path[PATH];
    if (!folder || snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return NULL;
    return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

pl_status pl_library_open(const char *name, const char *folder, const char *const *symbol, int n, void *table,
                          pl_err *err) {
    void *found[MOST];
    PL_CHECK(n >= 0 && n <= MOST, "%s: %d functions", name, n);
    void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (!library) library = open_in(name, folder);
    if (!library)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s is not installed, or LD_LIBRARY_PATH does not lead to it (%s)", name,
                       dlerror());
    for (int i = 0; i < n; i++) {
        found[i] = dlsym(library, symbol[i]);
        if (found[i]) continue;
        pl_fail(err, PL_E_UNSUPPORTED, "%s has no %s: another version than this build's", name, symbol[i]);
        dlclose(library);
        return PL_E_UNSUPPORTED;
    }
    memcpy(table, found, (size_t)n * sizeof *found);
    return PL_OK;
}

bool pl_library_is_there(pl_library_once *o, const char *own, pl_status (*open)(pl_err *err), pl_err *err) {
    const char *how = getenv(own);
    pthread_mutex_lock(&o->lock);
    if (!o->tried && how && strcmp(how, "own") == 0)
        pl_fail(&o->err, PL_E_UNSUPPORTED, "%s=own", own);
    else if (!o->tried)
        open(&o->err);
    o->tried = true;
    pthread_mutex_unlock(&o->lock);
    if (o->err.status == PL_OK) return true;
    if (err) *err = o->err;
    return false;
}
