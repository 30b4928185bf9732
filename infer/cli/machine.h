// The machine that a result was measured on.
#ifndef PL_MACHINE_H
#define PL_MACHINE_H

#include "infer/cli/env.h"
#include "kernels/base/probe.h"

typedef struct pl_machine {
    char        cpu[128], os[160], isa[64];  // processor, system, instruction sets with backends
    const char *backend, *arithmetic;        // of pl_backend
    int         cores, threads;              // threads of this process
    int         parts;                       // processes of the target (--tensor-parallel)
    double      memory;                      // bytes
    double      bandwidth_bytes, bandwidth;  // bytes of the measurement's footprint; bytes/s; 0: not measured
    double      peak_flops, peak_bf16_flops; // flop/s with factors in fp32, in bf16; 0: not measured
} pl_machine;

void pl_machine_describe(pl_machine *m, const pl_env *env); // does not measure
void pl_machine_write(pl_json_out *o, const pl_machine *m); // writes one object

// Returns the commit of this build. pl_version is in paceline.h.
const char *pl_commit(void);

#endif
