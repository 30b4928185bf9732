#define _GNU_SOURCE 1 // pthread_setattr_default_np
#include "kernels/base/thread.h"

// Attributes with the stack's size, to be destroyed where 0 is returned; else an error number.
static int make_attributes(pthread_attr_t *attr) {
    int rc = pthread_attr_init(attr);
    if (rc != 0) return rc;
    rc = pthread_attr_setstacksize(attr, PL_THREAD_STACK);
    if (rc != 0) pthread_attr_destroy(attr);
    return rc;
}

int pl_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg) {
    pthread_attr_t attr;
    int            rc = make_attributes(&attr);
    if (rc != 0) return rc;
    rc = pthread_create(thread, &attr, fn, arg);
    pthread_attr_destroy(&attr);
    return rc;
}

void pl_thread_defaults(void) {
#ifdef __GLIBC__
    pthread_attr_t attr;
    if (make_attributes(&attr) != 0) return;
    pthread_setattr_default_np(&attr);
    pthread_attr_destroy(&attr);
#endif
}
