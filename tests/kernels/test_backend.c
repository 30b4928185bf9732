#include "kernels/backend.h"
#include "tests/ref64.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void names(void **state) {
    (void)state;
    assert_string_equal(pl_op_name(PL_OP_EMBED), "embed");
    assert_string_equal(pl_op_name(PL_OP_ADAMW), "adamw");
    assert_string_equal(pl_backend_ref()->name, "ref");
    assert_string_equal(pl_backend_ref64()->name, "ref64");
    assert_string_equal(pl_backend_cpu_isa("portable")->name, "cpu-portable");
    assert_null(pl_backend_cpu_isa("mmx"));
}

// ref has every op, and every backward that ops.def announces; so has each cpu backend, in float.
static void complete(void **state) {
    (void)state;
    for (int i = -2; i < 0 || pl_backend_cpu_level(i); i++) {
        const pl_backend *be = i == -2   ? pl_backend_ref()
                               : i == -1 ? pl_backend_ref64()
                                         : pl_backend_cpu_isa(pl_backend_cpu_level(i));
        if (!be) continue;
        assert_int_equal(be->real, i == -1 ? PL_F64 : PL_F32);
#define X(NAME, name, backward)                                                                                        \
    assert_non_null(be->fwd[PL_OP_##NAME]);                                                                            \
    assert_true((be->bwd[PL_OP_##NAME] != NULL) == backward);
#include "kernels/ops.def"
#undef X
    }
}

// PACELINE_ISA lowers the choice and never raises it past the machine.
static void selection(void **state) {
    (void)state;
    unsetenv("PACELINE_ISA");
    const pl_backend *best = pl_backend_cpu(), *amx = pl_backend_cpu_isa("amx");
    const pl_backend *pairs = pl_backend_cpu_isa("avx512-bf16");
    const pl_backend *isa[3] = {pl_backend_cpu_isa("avx512"), pl_backend_cpu_isa("avx2"),
                                pl_backend_cpu_isa("portable")};
    const pl_backend *next = isa[0] ? isa[0] : isa[1] ? isa[1] : isa[2];
    if (amx || !pairs) // products of pairs are taken where they are fast
        assert_ptr_equal(best, amx ? amx : next);
    else
        assert_true(best == pairs || best == next);
    setenv("PACELINE_ISA", "portable", 1);
    assert_ptr_equal(pl_backend_cpu(), isa[2]);
    setenv("PACELINE_ISA", "avx2", 1);
    assert_ptr_equal(pl_backend_cpu(), isa[1] ? isa[1] : isa[2]);
    setenv("PACELINE_ISA", "avx512", 1);
    assert_ptr_equal(pl_backend_cpu(), next);
    setenv("PACELINE_ISA", "avx512-bf16", 1); // named, it is taken wherever it runs
    assert_true(pl_backend_cpu() == (pairs ? pairs : next));
    setenv("PACELINE_ISA", "amx", 1);
    assert_ptr_equal(pl_backend_cpu(), best);
    setenv("PACELINE_ISA", "units-emulated", 1); // never the best
    assert_true(pl_backend_cpu() == pl_backend_cpu_isa("units-emulated") || !isa[1]);
    setenv("PACELINE_ISA", "", 1);
    assert_ptr_equal(pl_backend_cpu(), best);
    setenv("PACELINE_ISA", "sse9", 1); // warned about
    assert_ptr_equal(pl_backend_cpu(), best);
    unsetenv("PACELINE_ISA");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(complete),
        cmocka_unit_test(selection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
