// drafter.layer: target: after no steps the layer's weights are those of the target's last layer, where both have them.
#include "program.h"

#include "checkpoints/weights.h"
#include "kernels/base/arena.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { D = 256, LAST = 15 }; // of checkpoints/tiny

static char scratch[64];

static float *read(const char *dir, const char *name, int64_t rows, int64_t cols) {
    pl_err            err;
    pl_weight_source *src;
    pl_weight_spec    spec = {.part = {{.name = name, .rows = rows}}, .n_parts = 1, .rows = rows, .cols = cols};
    float            *w = pl_malloc((size_t)(rows * (cols ? cols : 1)) * sizeof *w);
    assert_int_equal(pl_weight_source_open(&src, dir, &err), PL_OK);
    assert_int_equal(pl_weight_source_check(src, &spec, 1, &err), PL_OK);
    assert_int_equal(pl_weight_read_f32(src, &spec, w, &err), PL_OK);
    pl_weight_source_close(src);
    return w;
}

// Columns from `skip` on of the drafter's matrix are the target's.
static void same(const char *own, const char *of, int64_t rows, int64_t cols, int64_t skip) {
    char dir[128], name[128];
    snprintf(dir, sizeof dir, "%s/run/checkpoints/best", scratch);
    snprintf(name, sizeof name, "midlayer.%s.weight", own);
    float *a = read(dir, name, rows, cols ? skip + cols : 0);
    snprintf(name, sizeof name, "model.layers.%d.%s.weight", LAST, of);
    float *b = read("checkpoints/tiny", name, rows, cols);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < (cols ? cols : 1); c++)
            assert_true(a[r * (skip + (cols ? cols : 1)) + skip + c] == b[r * (cols ? cols : 1) + c]);
    double drawn = 0;
    for (int64_t i = 0; i < rows * skip; i++)
        drawn += fabs((double)a[i / skip * (skip + cols) + i % skip]);
    assert_true(skip == 0 || drawn > 0);
    pl_free(a);
    pl_free(b);
}

static void takes_the_last_layer(void **state) {
    (void)state;
    test_scratch(scratch);
    pl_json j;
    test_run_json(&j,
                  "run recipes/quickstart.yaml --set drafters=null --set data.prompts=data/prompts/heldout.jsonl --set "
                  "data.max_new_tokens=8 --set data.samples=0 "
                  "--set train.steps=0 --set drafter.layer=target --set eval.limit=1 --set eval.drafters=null "
                  "--set drafter.head.kind=full --out %s/run --json",
                  scratch);
    pl_json_close(&j);
    same("self_attn.q_proj", "self_attn.q_proj", D, D, D);
    same("self_attn.k_proj", "self_attn.k_proj", D / 2, D, D);
    same("self_attn.o_proj", "self_attn.o_proj", D, D, 0);
    same("mlp.up_proj", "mlp.up_proj", 640, D, 0);
    same("mlp.down_proj", "mlp.down_proj", D, 640, 0);
    same("hidden_norm", "input_layernorm", D, 0, 0);
    same("post_attention_layernorm", "post_attention_layernorm", D, 0, 0);
    test_run_fails(2, "is of eagle3 with one layer",
                   "train recipes/eagle1.yaml --set drafter.layer=target --out %s/other", scratch);
    test_scratch_remove(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(takes_the_last_layer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
