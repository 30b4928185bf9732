// Libraries that are loaded on first use, so that one binary starts without them and their half gigabytes are mapped
// only when used. Functions are kept in a struct of pointers alone, typed by the real header.
#ifndef PL_CUDA_LIBRARY_H
#define PL_CUDA_LIBRARY_H

#include "kernels/base/status.h"
#include <pthread.h>
#include <stdbool.h>

// Opens `name` by the system's search, else in `folder` (of the build's toolkit; may be NULL), and writes the address
// of symbol[i] to the i-th pointer of `table`. Stays open. PL_E_UNSUPPORTED and one line if the library or a symbol is
// missing; then the table is untouched.
pl_status pl_library_open(const char *name, const char *folder, const char *const *symbol, int n, void *table,
                          pl_err *err);

// A library with our own kernels as the fallback, opened on first use, by any thread: true, or *err (may be NULL) has
// the reason. own: the environment variable that disables it with the value "own"; read at the first call alone.
typedef struct pl_library_once {
    pthread_mutex_t lock; // PTHREAD_MUTEX_INITIALIZER
    pl_err          err;
    bool            tried;
} pl_library_once;
bool pl_library_is_there(pl_library_once *o, const char *own, pl_status (*open)(pl_err *err), pl_err *err);

#endif
