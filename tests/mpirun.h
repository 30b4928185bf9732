// mpirun on the machine of a test: as root in a container, with more ranks than cores, and with patience for a rank that
// has something to say when another was killed.
#ifndef PL_TEST_MPIRUN_H
#define PL_TEST_MPIRUN_H

#include "kernels/comm/comm.h"
#include <stdlib.h>

// MPICH's ends all as soon as one has died, before they can say a word.
static inline const char *test_mpirun_patience(void) {
    return pl_comm_mpi_kind() == PL_MPI_MPICH ? "-disable-auto-cleanup" : "";
}

static inline void test_mpirun_here(void) {
    static const char *const set[][2] = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                         {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                         {"OMPI_MCA_odls_base_sigkill_timeout", "2"}};
    for (unsigned i = 0; i < sizeof set / sizeof *set; i++)
        setenv(set[i][0], set[i][1], 1);
}

#endif
