// EAGLE-1 checkpoints: the published layout opens, what is another model or another target's is refused with one line,
// and a file that states fewer positions than its target has drafts beyond them.
#include "tests/infer/fixture.h"

#include "infer/drafter/eagle1.h"
#include "kernels/base/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct world {
    char     dir[64], draft[64];
    pl_llama target;
} world;

static void world_init(world *w, const pl_backbone_options *o) {
    test_target(&w->target, test_mkdir(w->dir), 3, 41, PL_F32);
    test_backbone_write(test_mkdir(w->draft), &w->target, &pl_backbone_eagle1, o, 42);
}

static void world_fini(world *w) {
    pl_llama_fini(&w->target);
    test_rmdir(w->dir);
    test_rmdir(w->draft);
}

// Replaces text in the drafter's config.json.
static void edit_config(const world *w, const char *from, const char *to) {
    char     path[96];
    uint8_t *text;
    size_t   n;
    snprintf(path, sizeof path, "%s/config.json", w->draft);
    assert_int_equal(pl_file_read(path, &text, &n, 1 << 16, NULL), PL_OK);
    char *at = strstr((char *)text, from);
    assert_non_null(at);
    char *out = pl_sprintf("%.*s%s%s", (int)(at - (char *)text), (char *)text, to, at + strlen(from));
    assert_int_equal(pl_file_write_atomic(path, out, strlen(out), NULL), PL_OK);
    pl_free(out);
    pl_free(text);
}

// The drafter's weights again, with further tensors of n floats.
static void add_tensors(const world *w, const pl_backbone_options *o, const char *const *names, int n) {
    static const float data[48] = {1, 2, 3};
    char               path[96];
    pl_err             err;
    pl_backbone       *b;
    pl_st_source       extra[4] = {{0}};
    assert_int_equal(pl_backbone_create(&b, &pl_backbone_eagle1, &w->target, o, pl_backend_cpu(), &err), PL_OK);
    float **values = calloc((size_t)b->params.n, sizeof *values);
    for (int i = 0; i < b->params.n; i++) {
        const pl_weight_spec *s = &b->params.p[i].spec;
        int64_t               count = s->rows * (s->cols ? s->cols : 1);
        values[i] = malloc((size_t)count * sizeof(float));
        for (int64_t k = 0; k < count; k++)
            values[i][k] = 0.01f * (float)(k % 7);
    }
    for (int i = 0; i < n; i++)
        extra[i] = (pl_st_source){.name = names[i], .dtype = PL_F32, .rank = 1, .shape = {48}, .data = data};
    snprintf(path, sizeof path, "%s/model.safetensors", w->draft);
    assert_int_equal(
        pl_params_write(&b->params, path, (const float *const *)values, PL_BF16, n ? extra : NULL, n, &err), PL_OK);
    for (int i = 0; i < b->params.n; i++)
        free(values[i]);
    free(values);
    pl_backbone_destroy(b);
}

static pl_status open_it(const world *w, pl_err *err) {
    pl_backbone *b;
    *err = (pl_err){0};
    pl_status st = pl_backbone_open(&b, w->draft, &w->target, PL_BF16, err);
    assert_true((st == PL_OK) == (b != NULL));
    pl_backbone_destroy(b);
    return st;
}

static void refused(const world *w, const char *says) {
    pl_err    err;
    pl_status st = open_it(w, &err);
    if (st != PL_E_INPUT && st != PL_E_UNSUPPORTED) fail_msg("%s: status %d", says, (int)st);
    if (!strstr(err.msg, says)) fail_msg("\"%s\" does not say \"%s\"", err.msg, says);
    assert_non_null(strstr(err.msg, w->draft));
    assert_null(strchr(err.msg, '\n'));
}

// As EAGLE's authors publish: plain Llama architecture, no word of the bias that is there, a copy of the embedding.
static void published_layout(void **state) {
    (void)state;
    static const char *const  known[] = {"embed_tokens.weight", "layers.0.self_attn.rotary_emb.inv_freq"};
    const pl_backbone_options bias = {.bias = true}, none = {0};
    const struct {
        const pl_backbone_options *o;
        bool                       has;
    } cases[] = {{&bias, true}, {&none, false}};
    for (int i = 0; i < 2; i++) {
        world        w;
        pl_err       err;
        pl_backbone *b;
        world_init(&w, cases[i].o);
        add_tensors(&w, cases[i].o, known, 2);
        edit_config(&w, "LlamaForCausalLMEagle", "LlamaForCausalLM");
        edit_config(&w, i ? "\"bias\": false" : "\"bias\": true", "\"use_cache\": true");
        if (pl_backbone_open(&b, w.draft, &w.target, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
        assert_int_equal(((pl_eagle1 *)b)->fc_bias.data != NULL, cases[i].has);
        assert_true(b->head.shared && b->head.out.data == w.target.head.data);
        assert_true(b->n_taps == 1 && b->tap[0] == PL_TAP_FINAL);
        assert_true(pl_backbone_step_bytes(b, 3) > pl_head_step_bytes(&b->head, 0));
        pl_backbone_destroy(b);
        world_fini(&w);
    }
}

static void malformed(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } configs[] = {
        {"\"hidden_size\": 48", "\"hidden_size\": 64", "made for a target of width 64, this one has 48"},
        {"\"vocab_size\": 97", "\"vocab_size\": 98", "made for a vocabulary of 98, the target has 97"},
        {"\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2", "num_hidden_layers 2"},
        {"\"bias\": false", "\"bias\": true", "fc.bias"},
        {"\"intermediate_size\": 80", "\"intermediate_size\": 96", "mlp.gate_proj.weight"},
        {"\"bias\": false", "\"bias\": false, \"fc_norm\": true", "EAGLE-3's"},
        {"LlamaForCausalLMEagle", "LlamaForCausalLMEagle3", ""}, // EAGLE-3's tensors are not there
        {"LlamaForCausalLMEagle", "PacelineEagle", "paceline.head.kind: missing"},
        {"\"bias\": false", "\"bias\": false, \"attention_bias_\": 0, \"hidden_act\": \"gelu\"", "hidden_act"},
    };
    const pl_backbone_options plain = {0};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        world w;
        world_init(&w, &plain);
        edit_config(&w, configs[i].from, configs[i].to);
        refused(&w, configs[i].says);
        world_fini(&w);
    }
    static const char *const tensors[] = {"layers.0.input_layernorm.weight",
                                          "fc.bias",
                                          "norm.weight",
                                          "lm_head.weight",
                                          "layers.0.self_attn.q_proj.bias",
                                          "head_cluster_offsets"};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        world w;
        world_init(&w, &plain);
        add_tensors(&w, &plain, &tensors[i], 1);
        refused(&w, tensors[i]);
        world_fini(&w);
    }
    // A language model of one layer, given as the drafter.
    world    w;
    pl_llama one;
    world_init(&w, &plain);
    test_rmdir(w.draft);
    test_target(&one, test_mkdir(w.draft), 1, 43, PL_F32);
    refused(&w, "fc.weight");
    pl_llama_fini(&one);
    world_fini(&w);
}

// What only a routed head has belongs to a file that declares one.
static void routed_head(void **state) {
    (void)state;
    world                     w;
    pl_err                    err;
    const pl_backbone_options o = {.head = pl_hf_head_of("dynaspec:clusters=12,width=20,k0=4,k1=2")};
    world_init(&w, &o);
    if (open_it(&w, &err) != PL_OK) fail_msg("%s", err.msg);
    world_fini(&w);
}

// Texts may be longer than max_position_embeddings of a published head (2048 is common); its rope goes on.
static void few_positions(void **state) {
    (void)state;
    world                     w;
    pl_err                    err;
    pl_drafter               *d;
    pl_engine                *e;
    pl_session               *s;
    const pl_backbone_options plain = {0};
    world_init(&w, &plain);
    edit_config(&w, "\"max_position_embeddings\": 256", "\"max_position_embeddings\": 16");
    assert_int_equal(pl_drafter_open(&d, w.draft,
                                     &(pl_drafter_options){.target = &w.target,
                                                           .dtype = PL_F32,
                                                           .tree = "chain:3",
                                                           .max_sessions = 1,
                                                           .max_rows = 16,
                                                           .slots = 100},
                                     &err),
                     PL_OK);
    pl_engine_options o = {.max_sessions = 1, .max_rows = 16, .max_len = 100};
    assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), NULL, &w.target, d, &o, &err), PL_OK);
    pl_session_options so = {.sampling = {.top_p = 1}, .max_new = 80};
    assert_int_equal(pl_engine_start(e, (int32_t[]){1, 2, 3}, 3, &so, &s, &err), PL_OK);
    while (pl_session_finish(s) == PL_RUNNING)
        assert_int_equal(pl_engine_step(e, &err), PL_OK);
    assert_int_equal(pl_session_length(s), 83);
    pl_engine_destroy(e);
    pl_drafter_destroy(d);
    world_fini(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_layout),
        cmocka_unit_test(malformed),
        cmocka_unit_test(routed_head),
        cmocka_unit_test(few_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
