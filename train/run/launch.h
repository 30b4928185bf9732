// The rank of a process that a launcher started (torchrun, srun, mpirun of Open MPI or MPICH, or the command line with
// --rank, --world and --address), and the transport by which it joins the others. Determined once, from the options and
// the environment alone.
//
//   options    --rank, --world and --address, all three
//   torchrun   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR; rank 0 listens at MASTER_PORT + 1: torchrun's own
//              store listens at MASTER_PORT
//   mpirun     OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), PMI_RANK and PMI_SIZE (MPICH, Intel MPI); they join over MPI
//              if this build has the MPI that started them and --address does not select TCP
//   srun       SLURM_PROCID and SLURM_NTASKS, in a step; rank 0 listens on the first host of the step
//
// If a launcher has started all ranks on one host, and no --address is given, rank 0 listens on loopback alone.
//
// Launchers may be nested: srun starts one torchrun or mpirun for each node, whose processes are the ranks. Otherwise
// two launchers that contradict each other are refused, naming both, and so is an incomplete set of torchrun's
// variables, which job scripts leave behind.
#ifndef PL_TRAIN_LAUNCH_H
#define PL_TRAIN_LAUNCH_H

#include "kernels/comm/comm.h"
#include <stdbool.h>

typedef struct pl_launch {
    const char *by;           // "torchrun", ...; NULL: a single process
    int         rank, ranks;  // over all hosts
    int         local;        // index among the ranks of this host, from 0: selects its GPU
    bool        mpi;          // the ranks join over MPI, else over TCP
    bool        one_host;     // all ranks run on this host: known from the launcher or a loopback address
    char        address[320]; // rank 0's listening address; over MPI "", or the given address of signs of life
} pl_launch;

typedef struct pl_launch_options {
    int         rank, world; // -1 and 0: not given
    const char *address;     // NULL: not given. Without --rank: where rank 0 of a launcher's ranks listens
    const char *group;       // "mpi" or "tcp"; NULL, "auto": as above
    pl_mpi_kind has_mpi;     // of this build
} pl_launch_options;

// Returns a variable of the environment, NULL if it is not set: getenv, or a test's function.
typedef const char *(*pl_launch_get)(void *arg, const char *name);

// Fills in *l. PL_E_USAGE: one line that names the contradicting or missing settings.
pl_status pl_launch_find(pl_launch *l, const pl_launch_options *o, pl_launch_get get, void *arg, pl_err *err);

// Writes the first host of a Slurm list: "node[003-007,9],other" is node003. Returns false for no such list, or no
// room.
bool pl_launch_first_host(char *host, int room, const char *list);

#endif
