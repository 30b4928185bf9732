// The emulated device as a backend: the same launchers and kernels, memory of the host, everything done when it
// returns. For tests (tests/kernels/op_harness.c, test_cuda.c). Not for use: it is slower than ref.
#include "kernels/cuda/emulate/device_emulated.h"
#include "kernels/base/check.h"
#include "kernels/cuda/table.h"
#include <string.h>

// Blocks of its own, so that what is not the device's can be told apart later; today plain host blocks.
static void *create(const pl_memory *m, pl_place place, size_t bytes, pl_err *err) {
    (void)m, (void)place;
    return pl_block_create(bytes, err);
}

static void destroy(const pl_memory *m, pl_place place, void *p, size_t bytes) {
    (void)m, (void)place;
    pl_block_destroy(p, bytes);
}

typedef struct own {
    pl_cuda_state state;
    pl_cuda_fault fault;
} own;

static pl_status open_context(pl_ctx *ctx, pl_err *err) {
    size_t tickets = PL_CUDA_TICKETS * sizeof(unsigned);
    own   *o = pl_block_create(sizeof *o + tickets, err);
    if (!o) return PL_E_MEMORY;
    o->fault = (pl_cuda_fault){PL_NO_FAULT, PL_NO_FAULT};
    o->state = (pl_cuda_state){.fault = &o->fault, .ticket = (unsigned *)(o + 1), .op = "none"};
    ctx->state = o;
    return PL_OK;
}

static void close_context(pl_ctx *ctx) {
    pl_block_destroy(ctx->state, sizeof(own) + PL_CUDA_TICKETS * sizeof(unsigned));
    ctx->state = NULL;
}

static void copy(pl_ctx *ctx, void *to, const void *from, size_t bytes) {
    (void)ctx;
    memcpy(to, from, bytes);
}

static void zero(pl_ctx *ctx, void *to, size_t bytes) {
    (void)ctx;
    memset(to, 0, bytes);
}

static void wait_for(pl_ctx *ctx) {
    own *o = ctx->state;
    PL_CUDA(faults)(ctx, &o->fault);
    o->fault = (pl_cuda_fault){PL_NO_FAULT, PL_NO_FAULT};
    for (int i = 0; i < PL_CUDA_TICKETS; i++)
        PL_CHECK(o->state.ticket[i] == 0, "op %s left ticket %d at %u", o->state.op, i, o->state.ticket[i]);
}

bool PL_CUDA(enter)(pl_ctx *ctx) {
    (void)ctx;
    return true;
}

void PL_CUDA(launched)(pl_ctx *ctx) {
    (void)ctx;
}

const pl_backend *pl_backend_cuda_emulated(void) {
    static const pl_memory memory = {.name = "cuda-emulated", .create = create, .destroy = destroy};
    static const pl_device device = {.open = open_context,
                                     .close = close_context,
                                     .upload = copy,
                                     .download = copy,
                                     .copy = copy,
                                     .zero = zero,
                                     .wait = wait_for};
    static pl_backend      be = {.name = "cuda-emulated", .real = PL_F32, .memory = &memory, .device = &device};
    PL_CUDA(fill)(&be);
    return &be;
}
