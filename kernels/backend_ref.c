// The table of the reference backend. The functions come from kernels/op/*_ref.c (kernels/ref.h).
#include "kernels/backend.h"

#define DECLARE_BWD_0(name)
#define DECLARE_BWD_1(name) pl_op_declare pl_##name##_bwd_ref32;
typedef void pl_op_declare(pl_ctx *ctx, const void *args);
#define X(NAME, name, backward)                                                                                        \
    pl_op_declare pl_##name##_fwd_ref32;                                                                               \
    DECLARE_BWD_##backward(name)
#include "kernels/ops.def"
#undef X

#define BWD_0(NAME, name)
#define BWD_1(NAME, name) .bwd[PL_OP_##NAME] = pl_##name##_bwd_ref32,

static const pl_backend ref32 = {
    .name = "ref",
    .arithmetic = "ref-2",
    .real = PL_F32,
#define X(NAME, name, backward) .fwd[PL_OP_##NAME] = pl_##name##_fwd_ref32, BWD_##backward(NAME, name)
#include "kernels/ops.def"
#undef X
};

const pl_backend *pl_backend_ref(void) {
    return &ref32;
}
