// One level of the cpu backend: the table of ref, overridden by the functions of cpu.def. Included once per level, with
// PL_LEVEL_UNITS its name and PL_LEVEL_VECTORS that of the level with the same vectors (as sources compiled with PL_ISA
// have them), PL_LEVEL_NAME as people write it, and PL_LEVEL_ARITHMETIC the name of its bits; no guard.
#define LEVEL_JOIN2(a, b, c) a##b##c
#define LEVEL_JOIN(a, b, c) LEVEL_JOIN2(a, b, c)
#define LEVEL_FN(name, way, of) LEVEL_JOIN(pl_##name##way, _, PL_LEVEL_##of)
#define X_FWD(NAME, name, of) declare_op LEVEL_FN(name, _fwd, of);
#define X_BWD(NAME, name, of) declare_op LEVEL_FN(name, _bwd, of);
#include "kernels/cpu.def"
#undef X_FWD
#undef X_BWD

extern const pl_softmax LEVEL_JOIN(pl_softmax, _, PL_LEVEL_VECTORS);
double                  LEVEL_JOIN(pl_unit_run, _, PL_LEVEL_UNITS)(int times); // kernels/cpu/panels.h
static const pl_backend LEVEL_JOIN(backend, _, PL_LEVEL_UNITS) = {
    .name = "cpu-" PL_LEVEL_NAME,
    .arithmetic = PL_LEVEL_ARITHMETIC,
    .real = PL_F32,
    .keeps_logits = true,
#include "kernels/ops.def"
#define X_FWD(NAME, name, of) .fwd[PL_OP_##NAME] = LEVEL_FN(name, _fwd, of),
#define X_BWD(NAME, name, of) .bwd[PL_OP_##NAME] = LEVEL_FN(name, _bwd, of),
#include "kernels/cpu.def"
#undef X_FWD
#undef X_BWD
};
#undef LEVEL_JOIN2
#undef LEVEL_JOIN
#undef LEVEL_FN
#undef PL_LEVEL_UNITS
#undef PL_LEVEL_VECTORS
#undef PL_LEVEL_NAME
#undef PL_LEVEL_ARITHMETIC
