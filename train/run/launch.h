// Which rank of how many this process is, when something else started it: torchrun, srun, mpirun of Open MPI or MPICH,
// or a person with --rank, --world and --address; and how it joins the others. Decided once, from the options and the
// environment alone.
//
//   options    --rank, --world and --address, all three
//   torchrun   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR; rank 0 listens at the port behind MASTER_PORT, where
//              torchrun's own store is
//   mpirun     OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), PMI_RANK and PMI_SIZE (MPICH, Intel MPI); they join over MPI
//              where this build has the one that started them and no --address says that TCP is meant
//   srun       SLURM_PROCID and SLURM_NTASKS, in a step; rank 0 listens on the first host of the step
//
// Where a launcher has started all of them on one host, and no --address is given, rank 0 listens by loopback alone.
//
// They may stand inside each other: srun starts one torchrun or mpirun for each node, whose processes are the ranks.
// Otherwise two that say different things are refused, naming both, and so are half of torchrun's variables, which job
// scripts leave behind.
#ifndef PL_TRAIN_LAUNCH_H
#define PL_TRAIN_LAUNCH_H

#include "kernels/comm/comm.h"
#include <stdbool.h>

typedef struct pl_launch {
    const char *by;           // "torchrun", ...; NULL: nothing started this process as one of several
    int         rank, ranks;  // of all
    int         local;        // of this host, from 0: which GPU is its own
    bool        mpi;          // they join over MPI, else over TCP
    bool        one_host;     // all are of this host, by the launcher or as the address is a loopback one
    char        address[320]; // where rank 0 listens; over MPI "", unless it is said where signs of life go
} pl_launch;

typedef struct pl_launch_options {
    int         rank, world; // -1 and 0: not given
    const char *address;     // NULL: not given. Alone it says where rank 0 of a launcher's ranks listens
    const char *group;       // "mpi" or "tcp"; NULL, "auto": as above
    pl_mpi_kind has_mpi;     // of this build
} pl_launch_options;

// A variable of the environment, NULL where it is not set: getenv, or a test's.
typedef const char *(*pl_launch_get)(void *arg, const char *name);

// PL_E_USAGE: a line that names what contradicts what, or what is missing.
pl_status pl_launch_find(pl_launch *l, const pl_launch_options *o, pl_launch_get get, void *arg, pl_err *err);

// The first host of a Slurm list: "node[003-007,9],other" is node003. false: no such list, or no room.
bool pl_launch_first_host(char *host, int room, const char *list);

#endif
