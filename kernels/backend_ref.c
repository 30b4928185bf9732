// The two tables of the reference backend. The functions come from kernels/op/*_ref.c, compiled once on float and once
// on double (kernels/ref.h).
#include "kernels/backend.h"

#define DECLARE_BWD_0(name)
#define DECLARE_BWD_1(name) pl_op_declare pl_##name##_bwd_ref32, pl_##name##_bwd_ref64;
typedef void pl_op_declare(pl_ctx *ctx, const void *args);
#define X(NAME, name, backward)                                                                                        \
    pl_op_declare pl_##name##_fwd_ref32, pl_##name##_fwd_ref64;                                                        \
    DECLARE_BWD_##backward(name)
#include "kernels/ops.def"
#undef X

#define BWD_0(NAME, name, suffix)
#define BWD_1(NAME, name, suffix) .bwd[PL_OP_##NAME] = pl_##name##_bwd_##suffix,

static const pl_backend ref32 = {
    .name = "ref",
    .arithmetic = "ref-2",
    .real = PL_F32,
#define X(NAME, name, backward) .fwd[PL_OP_##NAME] = pl_##name##_fwd_ref32, BWD_##backward(NAME, name, ref32)
#include "kernels/ops.def"
#undef X
};

static const pl_backend ref64 = {
    .name = "ref64",
    .arithmetic = "ref64-2",
    .real = PL_F64,
#define X(NAME, name, backward) .fwd[PL_OP_##NAME] = pl_##name##_fwd_ref64, BWD_##backward(NAME, name, ref64)
#include "kernels/ops.def"
#undef X
};

const pl_backend *pl_backend_ref(void) {
    return &ref32;
}

const pl_backend *pl_backend_ref64(void) {
    return &ref64;
}
