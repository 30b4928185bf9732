#include "random_drafter.h"

#include "infer/drafter/backbone.h"
#include "kernels/base/files.h"
#include "kernels/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

void test_random_drafter(const char *dir, const char *target, const char *head, int rank) {
    pl_llama     m;
    pl_backbone *e;
    pl_err       err;
    if (pl_llama_open(&m, target, PL_F32, pl_backend_cpu(), &err) != PL_OK) fail_msg("%s", err.msg);
    pl_backbone_options o = {.head = pl_hf_head_make(head, rank)};
    if (pl_backbone_create(&e, &pl_backbone_eagle3, &m, &o, pl_backend_cpu(), &err) != PL_OK) fail_msg("%s", err.msg);
    float **data = calloc((size_t)e->params.n, sizeof *data);
    assert_non_null(data);
    for (int i = 0; i < e->params.n; i++) {
        const pl_param *p = &e->params.p[i];
        int64_t         n = p->spec.rows * (p->spec.cols > 0 ? p->spec.cols : 1);
        data[i] = malloc((size_t)n * sizeof **data);
        assert_non_null(data[i]);
        pl_rng rng = pl_rng_make(5, PL_STREAM_TEST, (uint64_t)i);
        for (int64_t k = 0; k < n; k++)
            data[i][k] = p->kind == PL_PARAM_NORM ? 1 : 0.05f * pl_rng_normal(rng, (uint64_t)k);
    }
    assert_int_equal(pl_dir_make(dir, NULL), PL_OK);
    if (pl_backbone_write(e, dir, (const float *const *)data, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < e->params.n; i++)
        free(data[i]);
    free(data);
    pl_backbone_destroy(e);
    pl_llama_fini(&m);
}
