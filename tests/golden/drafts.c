#include "tests/golden/drafts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include <stdio.h>

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

static void write_target(golden *g, const char *dir) {
    pl_err       err;
    pl_hf_config c;
    pl_llama     m;
    char         path[96];
    golden_config(g, &c);
    must(pl_llama_init(&m, &c, pl_backend_cpu(), true, &err), &err);
    float **data = golden_weights(&m.params, "target");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    must(pl_params_write(&m.params, path, (const float *const *)data, PL_BF16, NULL, 0, &err), &err);
    golden_weights_free(data, m.params.n);
    pl_llama_fini(&m);
}

static void write_drafter(const char *target_dir, const char *dir, const pl_backbone_kind *kind,
                          const pl_backbone_options *o, const char *model) {
    pl_err       err;
    pl_llama     target;
    pl_backbone *b;
    must(pl_llama_open(&target, target_dir, PL_F32, pl_backend_cpu(), &err), &err);
    must(pl_backbone_create(&b, kind, &target, o, pl_backend_cpu(), &err), &err);
    float **data = golden_weights(&b->params, model);
    must(pl_backbone_write(b, dir, (const float *const *)data, PL_BF16, &err), &err);
    golden_weights_free(data, b->params.n);
    pl_backbone_destroy(b);
    pl_llama_fini(&target);
}

void golden_drafts(const char *file, const pl_backbone_kind *kind, const pl_backbone_options *o, const char *model,
                   golden_draft_fn draft, const char *head) {
    golden            g;
    char              dir[2][64];
    const pl_backend *be[GOLDEN_BACKENDS];
    int               n = golden_backends(be);
    golden_open(&g, file);
    for (int i = 0; i < 2; i++)
        golden_mkdir(&g, dir[i]);
    write_target(&g, dir[0]);
    write_drafter(dir[0], dir[1], kind, o, model);
    for (int i = 1; i < n; i++)       // models for inference are fp32
        for (int t = 0; t < 2; t++) { // the weights are exact in bf16, but x is rounded then
            pl_err       err;
            pl_llama     target;
            pl_backbone *b;
            if (t && golden_on_device(be[i])) continue;
            g.slack = t ? GOLDEN_BF16 : 0;
            must(pl_llama_open(&target, dir[0], PL_F32, be[i], &err), &err);
            must(pl_backbone_open(&b, dir[1], &target, t ? PL_BF16 : PL_F32, &err), &err);
            assert_ptr_equal(b->kind, kind);
            draft(&g, b, be[i], head);
            pl_backbone_destroy(b);
            pl_llama_fini(&target);
        }
    for (int i = 0; i < 2; i++)
        golden_rmdir(dir[i]);
    golden_close(&g);
}
