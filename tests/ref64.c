// The reference backend's table in double. Its functions come from kernels/op/*_ref.c, compiled once more (kernels/ref.h).
#include "tests/ref64.h"

#define DECLARE_BWD_0(name)
#define DECLARE_BWD_1(name) pl_op_declare pl_##name##_bwd_ref64;
typedef void pl_op_declare(pl_ctx *ctx, const void *args);
#define X(NAME, name, backward)                                                                                        \
    pl_op_declare pl_##name##_fwd_ref64;                                                                               \
    DECLARE_BWD_##backward(name)
#include "kernels/ops.def"
#undef X

#define BWD_0(NAME, name)
#define BWD_1(NAME, name) .bwd[PL_OP_##NAME] = pl_##name##_bwd_ref64,

static const pl_backend ref64 = {
    .name = "ref64",
    .arithmetic = "ref64-2",
    .real = PL_F64,
#define X(NAME, name, backward) .fwd[PL_OP_##NAME] = pl_##name##_fwd_ref64, BWD_##backward(NAME, name)
#include "kernels/ops.def"
#undef X
};

const pl_backend *pl_backend_ref64(void) {
    return &ref64;
}
