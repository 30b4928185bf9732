// The library, and plans for the graphs of cudnn_graph.c: the part that needs no GPU.
#include "kernels/base/check.h"
#include "kernels/cuda/lib/cudnn_table.h"
#include "kernels/cuda/lib/library.h"
#include <math.h>
#include <string.h>

#define TEXT_2(x) #x
#define TEXT(x) TEXT_2(x)

pl_status pl_cudnn_accept(const pl_cudnn_table *t, pl_err *err) {
    size_t v = t->GetVersion();
    if (v >= PL_CUDNN_OLDEST) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED, "cuDNN %zu.%zu is older than %d.%d", v / 10000, v / 100 % 100,
                   PL_CUDNN_OLDEST / 10000, PL_CUDNN_OLDEST / 100 % 100);
}

pl_status pl_cudnn_open(const char *name, const char *folder, pl_cudnn_table *t, pl_err *err) {
    static const char *const symbol[] = {
#define X(name) "cudnn" #name,
        PL_CUDNN_FUNCTIONS(X)
#undef X
    };
    enum { N = sizeof symbol / sizeof *symbol };
    _Static_assert(sizeof *t == N * sizeof(void *), "a table of pointers alone");
    pl_cudnn_table found;
    PL_TRY(pl_library_open(name, folder, symbol, N, &found, err));
    PL_TRY(pl_cudnn_accept(&found, err));
    *t = found;
    return PL_OK;
}

static pl_cudnn_table  installed;
static pl_library_once once = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pl_status open_installed(pl_err *err) {
    return pl_cudnn_open("libcudnn.so." TEXT(CUDNN_MAJOR), PL_CUDNN_LIBRARIES, &installed, err);
}

const pl_cudnn_table *pl_cudnn_installed(pl_err *err) {
    return pl_library_is_there(&once, "PACELINE_ATTENTION", open_installed, err) ? &installed : NULL;
}

const pl_cudnn_table *pl_cudnn_none(pl_err *err) {
    (void)err;
    return NULL;
}

// ---- plans ----------------------------------------------------------------------------------------------------------

static bool may_differ_from_run_to_run(pl_cudnn_graph *g, cudnnBackendDescriptor_t config) {
    enum { NOTES = 32 };
    cudnnBackendNumericalNote_t note[NOTES];
    cudnnBackendDescriptor_t    engine = pl_cudnn_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    pl_cudnn_get(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    int64_t n = pl_cudnn_get(g, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES, note);
    for (int64_t i = 0; i < n && i < NOTES; i++)
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return true;
    return g->status != CUDNN_STATUS_SUCCESS;
}

// Returns the plan of one engine, or NULL; a refusal does not change the graph's status.
static cudnnBackendDescriptor_t plan_of(pl_cudnn_graph *g, const pl_cudnn_target *on, cudnnBackendDescriptor_t config,
                                        int64_t *workspace) {
    if (may_differ_from_run_to_run(g, config)) {
        g->status = CUDNN_STATUS_SUCCESS;
        return NULL;
    }
    cudnnBackendDescriptor_t p = pl_cudnn_make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    pl_cudnn_set(g, p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (on->handle)
        pl_cudnn_set(g, p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &on->handle);
    else
        pl_cudnn_set(g, p, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &on->device);
    pl_cudnn_finish(g, p, "a plan");
    *workspace = -1;
    pl_cudnn_get(g, p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, workspace);
    bool fits = g->status == CUDNN_STATUS_SUCCESS && *workspace >= 0 && (uint64_t)*workspace <= PL_CUDNN_WORKSPACE;
    g->status = CUDNN_STATUS_SUCCESS;
    return fits ? p : NULL;
}

// Returns the heuristic's choices for the graph, best first.
static int64_t choices(pl_cudnn_graph *g, const pl_cudnn_target *on, cudnnBackendDescriptor_t *config) {
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t     graph = pl_cudnn_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    pl_cudnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->op);
    if (on->handle) pl_cudnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &on->handle);
    pl_cudnn_finish(g, graph, "the graph");
    cudnnBackendDescriptor_t ask = pl_cudnn_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    pl_cudnn_set(g, ask, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    pl_cudnn_set(g, ask, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (on->device)
        pl_cudnn_set(g, ask, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &on->device);
    pl_cudnn_finish(g, ask, "the choice of an engine");
    for (int i = 0; i < PL_CUDNN_CONFIGS; i++)
        config[i] = pl_cudnn_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    return pl_cudnn_get(g, ask, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, PL_CUDNN_CONFIGS, config);
}

pl_status pl_cudnn_plan_create(const pl_cudnn_table *t, const pl_cudnn_target *on, const pl_cudnn_shape *s,
                               bool backward, pl_cudnn_plan *plan, pl_err *err) {
    cudnnBackendDescriptor_t config[PL_CUDNN_CONFIGS];
    *plan = (pl_cudnn_plan){.graph = {.t = t, .next = PL_CUDNN_UIDS}};
    pl_cudnn_graph *g = &plan->graph;
    const char     *way = backward ? "backward" : "forward";
    (backward ? pl_cudnn_backward : pl_cudnn_forward)(g, s);
    int64_t n = choices(g, on, config);
    if (g->status != CUDNN_STATUS_SUCCESS) {
        pl_fail(err, PL_E_DEVICE, "cuDNN: attention %s of %lld rows, %d/%d heads of %d: %s: %s", way,
                (long long)s->rows, s->nh, s->nkv, s->hd, g->doing, t->GetErrorString(g->status));
        pl_cudnn_drop(g);
        return PL_E_DEVICE;
    }
    for (int64_t i = 0; i < n && i < PL_CUDNN_CONFIGS && !plan->plan; i++)
        plan->plan = plan_of(g, on, config[i], &plan->workspace);
    if (plan->plan) return PL_OK;
    pl_cudnn_drop(g);
    return pl_fail(err, PL_E_UNSUPPORTED, "cuDNN has no deterministic attention %s for %lld rows, %d/%d heads of %d",
                   way, (long long)s->rows, s->nh, s->nkv, s->hd);
}

void pl_cudnn_plan_destroy(pl_cudnn_plan *plan) {
    if (plan->plan) pl_cudnn_drop(&plan->graph);
    *plan = (pl_cudnn_plan){0};
}

cudnnStatus_t pl_cudnn_plan_run(const pl_cudnn_plan *plan, cudnnHandle_t handle, const pl_cudnn_shape *s, bool backward,
                                double scale, void *const at[PL_CUDNN_TENSORS], void *workspace) {
    const pl_cudnn_table *t = plan->graph.t;
    size_t                values = (size_t)s->nkv * (size_t)s->hd * sizeof(uint16_t); // after the keys
    float                 number[3] = {(float)scale, -INFINITY, 1};
    void                 *data[PL_CUDNN_UIDS];
    int64_t               uid[PL_CUDNN_UIDS], n = 0;
    memcpy(data, at, PL_CUDNN_TENSORS * sizeof *at);
    data[PL_CUDNN_V] = (char *)at[PL_CUDNN_KV] + values;
    data[PL_CUDNN_DV] = backward ? (char *)at[PL_CUDNN_DKV] + values : NULL;
    for (int i = 0; i < 3; i++)
        data[PL_CUDNN_SCALE + i] = &number[i];
    for (int64_t i = 0; i < PL_CUDNN_UIDS; i++) {
        bool only_backward = (i >= PL_CUDNN_DO && i < PL_CUDNN_TENSORS) || i == PL_CUDNN_DV || i == PL_CUDNN_ONE;
        if (only_backward && !backward) continue;
        data[n] = data[i];
        uid[n++] = i + 1;
    }
    pl_cudnn_graph           pack = {.t = t};
    cudnnBackendDescriptor_t d = pl_cudnn_make(&pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pl_cudnn_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uid);
    pl_cudnn_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, data);
    pl_cudnn_set(&pack, d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    pl_cudnn_finish(&pack, d, "what a plan runs on");
    if (!pack.status) pack.status = t->BackendExecute(handle, plan->plan, d);
    pl_cudnn_drop(&pack);
    return pack.status;
}
