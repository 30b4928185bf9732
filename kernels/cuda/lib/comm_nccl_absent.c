// Replaces comm_nccl.c if CMake found no CUDA or no nccl.h.
#include "kernels/comm/impl.h"

#include <stdio.h>

static pl_status open_nccl(pl_comm *c, const pl_backend *be, pl_err *err) {
    (void)c, (void)be;
    return pl_fail(err, PL_E_UNSUPPORTED,
                   "this build has no NCCL (built where CUDA and nccl.h are found); use --transport host");
}

const pl_transport pl_transport_nccl = {.name = "nccl", .open = open_nccl};

void pl_comm_describe_nccl(char *out, size_t room) {
    snprintf(out, room, "not built in");
}
