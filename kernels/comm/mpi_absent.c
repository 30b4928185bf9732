// Replaces mpi.c if CMake found no MPI.
#include "kernels/comm/impl.h"

#include <stdio.h>

static pl_status join(pl_comm *c, const pl_comm_place *place, pl_err *err) {
    (void)c, (void)place;
    return pl_fail(err, PL_E_UNSUPPORTED, "this build has no MPI (PACELINE_MPI=ON builds it in); use --group tcp");
}

static void close_nothing(pl_comm *c) {
    (void)c;
}

const pl_group pl_group_mpi = {.name = "MPI", .join = join, .close = close_nothing};

void pl_comm_describe_mpi(char *out, size_t room) {
    snprintf(out, room, "not built in");
}

pl_mpi_kind pl_comm_mpi_kind(void) {
    return PL_MPI_NONE;
}
