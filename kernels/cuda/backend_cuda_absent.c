// Replaces the CUDA backend in builds without it.
#include "kernels/devices.h"
#include <stdio.h>

const pl_backend *pl_backend_cuda(int n, pl_err *err) {
    (void)n;
    pl_fail(err, PL_E_UNSUPPORTED, "no CUDA: this build has no CUDA backend; use --device cpu");
    return NULL;
}

double pl_backend_cuda_room(const pl_backend *be) {
    (void)be;
    return 0;
}

void pl_backend_cuda_describe(char *out, size_t room) {
    snprintf(out, room, "not built in");
}

void pl_backend_cuda_libraries(char *out, size_t room) {
    snprintf(out, room, "not built in");
}

void pl_backend_cuda_attention(char *out, size_t room) {
    snprintf(out, room, "not built in");
}

pl_status pl_backend_cuda_try(const char *name, pl_err *err) {
    (void)name;
    return pl_fail(err, PL_E_UNSUPPORTED, "no CUDA: this build has no CUDA backend");
}

void pl_backend_cuda_pin(bool on) {
    (void)on;
}
