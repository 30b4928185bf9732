// Table of the cuDNN functions in use; graphs of its backend API, and plans for them.
#ifndef PL_CUDA_CUDNN_TABLE_H
#define PL_CUDA_CUDNN_TABLE_H

#include "kernels/cuda/lib/cudnn_attention.h"
#include <cudnn.h>

#define PL_CUDNN_OLDEST 91000 // 9.10: the first with scores masked by -infinity

#define PL_CUDNN_FUNCTIONS(X)                                                                                          \
    X(Create)                                                                                                          \
    X(Destroy)                                                                                                         \
    X(SetStream)                                                                                                       \
    X(GetVersion)                                                                                                      \
    X(GetErrorString)                                                                                                  \
    X(BackendCreateDescriptor)                                                                                         \
    X(BackendDestroyDescriptor)                                                                                        \
    X(BackendSetAttribute)                                                                                             \
    X(BackendGetAttribute)                                                                                             \
    X(BackendFinalize)                                                                                                 \
    X(BackendExecute)

typedef struct pl_cudnn_table {
#define X(name) __typeof__(cudnn##name) *name;
    PL_CUDNN_FUNCTIONS(X)
#undef X
} pl_cudnn_table;

// Opens it by name and folder, as pl_library_open does; refuses a version before PL_CUDNN_OLDEST.
pl_status             pl_cudnn_open(const char *name, const char *folder, pl_cudnn_table *t, pl_err *err);
// PL_E_UNSUPPORTED and one line if the library is too old.
pl_status             pl_cudnn_accept(const pl_cudnn_table *t, pl_err *err);
// Returns the installed one, opened at the first call and kept; NULL and one line if none is usable.
const pl_cudnn_table *pl_cudnn_installed(pl_err *err);
// Returns none, for the emulated device.
const pl_cudnn_table *pl_cudnn_none(pl_err *err);
// Tests: replaces the table of this build's device.
void                  PL_CUDA(cudnn_use)(const pl_cudnn_table *t);

// ---- graphs (cudnn_graph.c) -----------------------------------------------------------------------------------------

enum { PL_CUDNN_MOST = 160, PL_CUDNN_OPS = 40, PL_CUDNN_CONFIGS = 8 };

// Descriptors as they are made. The first failing call leaves its status, later ones do nothing.
typedef struct pl_cudnn_graph {
    const pl_cudnn_table    *t;
    cudnnStatus_t            status;
    const char              *doing; // the call that failed
    int64_t                  next;  // the next virtual tensor's uid
    int                      n_made, n_ops;
    cudnnBackendDescriptor_t made[PL_CUDNN_MOST], op[PL_CUDNN_OPS];
} pl_cudnn_graph;

// Inputs of a graph's run: pl_cudnn_tensor's names for whole tensors, then parts and numbers. Uids are these plus one.
enum { PL_CUDNN_V = PL_CUDNN_TENSORS, PL_CUDNN_DV, PL_CUDNN_SCALE, PL_CUDNN_MASKED, PL_CUDNN_ONE, PL_CUDNN_UIDS };

cudnnBackendDescriptor_t pl_cudnn_make(pl_cudnn_graph *g, cudnnBackendDescriptorType_t type);
void                     pl_cudnn_set(pl_cudnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                      cudnnBackendAttributeType_t type, int64_t n, const void *value);
// Reads at most n elements; returns their number.
int64_t                  pl_cudnn_get(pl_cudnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                      cudnnBackendAttributeType_t type, int64_t n, void *value);
void                     pl_cudnn_finish(pl_cudnn_graph *g, cudnnBackendDescriptor_t d, const char *what);
void                     pl_cudnn_drop(pl_cudnn_graph *g);
// The operations of a causal block, in g->op.
void                     pl_cudnn_forward(pl_cudnn_graph *g, const pl_cudnn_shape *s);
void                     pl_cudnn_backward(pl_cudnn_graph *g, const pl_cudnn_shape *s);

// ---- plans (cudnn_plan.c) -------------------------------------------------------------------------------------------

// Target of a plan: a handle's device, or a described one (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, finished), which needs
// no GPU.
typedef struct pl_cudnn_target {
    cudnnHandle_t            handle;
    cudnnBackendDescriptor_t device;
} pl_cudnn_target;

typedef struct pl_cudnn_plan {
    pl_cudnn_graph           graph;
    cudnnBackendDescriptor_t plan;
    int64_t                  workspace;
} pl_cudnn_plan;

// Makes the plan of the first deterministic engine of the library's heuristic that takes the graph within
// PL_CUDNN_WORKSPACE. PL_E_UNSUPPORTED if there is none, PL_E_DEVICE if the library refuses the description; one line,
// nothing held.
pl_status     pl_cudnn_plan_create(const pl_cudnn_table *t, const pl_cudnn_target *on, const pl_cudnn_shape *s,
                                   bool backward, pl_cudnn_plan *plan, pl_err *err);
void          pl_cudnn_plan_destroy(pl_cudnn_plan *plan);
// Runs it on the handle's stream.
cudnnStatus_t pl_cudnn_plan_run(const pl_cudnn_plan *plan, cudnnHandle_t handle, const pl_cudnn_shape *s, bool backward,
                                double scale, void *const at[PL_CUDNN_TENSORS], void *workspace);

#endif
