// Exports: the engine's names and numbers and nothing else, the same weights, and a drafter that opens again.
#include "tests/infer/fixture.h"
#include "tests/infer/served.h"

#include "checkpoints/gguf.h"
#include "checkpoints/safetensors.h"
#include "infer/export/export.h"
#include "infer/head/draft_vocab.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { LAYERS = 8, DRAFTED = 31, RANK = 12 };
static const pl_env env;
static char         base[64], target[80], checkpoint[80], out[80];
static pl_llama     model;

static int setup(void **state) {
    (void)state;
    test_mkdir(base);
    snprintf(target, sizeof target, "%s/target", base);
    snprintf(checkpoint, sizeof checkpoint, "%s/drafter", base);
    snprintf(out, sizeof out, "%s/out", base);
    if (pl_dir_make(target, NULL) != PL_OK || pl_dir_make(checkpoint, NULL) != PL_OK) return -1;
    test_target(&model, target, LAYERS, 41, PL_BF16);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    pl_llama_fini(&model);
    test_rmdir(base);
    return 0;
}

static void write_drafter(const char *head, int rank, const int32_t *d2t, const int *taps) {
    pl_backbone_options o = {
        .head = pl_hf_head_make(head, rank), .n_taps = 3, .d2t = d2t, .draft_vocab = d2t ? DRAFTED : 0};
    memcpy(o.tap, taps, 3 * sizeof *taps);
    test_backbone_write(checkpoint, &model, &pl_backbone_eagle3, &o, 43);
}

static void export_to(const char *engine) {
    pl_err err = {0};
    char  *serve;
    if (pl_export_write(pl_export_engine_find(engine, &err), checkpoint, target, out, false, &env, &serve, &err) !=
        PL_OK)
        fail_msg("%s", err.msg);
    assert_non_null(strstr(serve, out));
    pl_free(serve);
}

static pl_st *open_st(const char *dir) {
    pl_st *st;
    pl_err err = {0};
    if (pl_st_open(&st, dir, &err) != PL_OK) fail_msg("%s", err.msg);
    return st;
}

// Exactly these names, separated by blanks.
static void names_are(const char *want) {
    pl_st  *st = open_st(out);
    char    all[2048] = " ";
    int64_t n = 0;
    snprintf(all, sizeof all, " %s ", want);
    for (const char *c = all; *c; c++)
        n += *c == ' ';
    assert_int_equal(pl_st_count(st), n - 1);
    for (int64_t i = 0; i < pl_st_count(st); i++) {
        char one[160];
        snprintf(one, sizeof one, " %s ", pl_st_at(st, i)->name);
        if (!strstr(all, one)) fail_msg("%s is not wanted", one);
    }
    assert_string_equal(pl_st_metadata(st, "format"), "pt");
    pl_st_close(st);
}

#define LAYER(p)                                                                                                       \
    p "self_attn.q_proj.weight " p "self_attn.k_proj.weight " p "self_attn.v_proj.weight " p                           \
      "self_attn.o_proj.weight " p "mlp.gate_proj.weight " p "mlp.up_proj.weight " p "mlp.down_proj.weight " p         \
      "hidden_norm.weight " p "input_layernorm.weight " p "post_attention_layernorm.weight fc.weight norm.weight "     \
      "lm_head.weight"

// The checkpoint's tensor `mine` and the export's `theirs`, byte for byte.
static void same_tensor(const char *dir, const char *mine, const char *theirs) {
    pl_st             *a = open_st(dir), *b = open_st(out);
    const pl_st_entry *x = pl_st_find(a, mine), *y = pl_st_find(b, theirs);
    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal(x->bytes, y->bytes);
    assert_int_equal(x->dtype, y->dtype);
    assert_memory_equal(x->data, y->data, x->bytes);
    pl_st_close(a);
    pl_st_close(b);
}

static void config_is(const char *key, const char *want) {
    char    path[160], *text;
    pl_json j;
    pl_err  err = {0};
    snprintf(path, sizeof path, "%s/config.json", out);
    if (pl_json_open(&j, path, 1 << 20, PL_JSON_UNIQUE, &err) != PL_OK) fail_msg("%s", err.msg);
    const cJSON *node = pl_json_find(&j, NULL, key);
    text = node ? cJSON_PrintUnformatted(node) : NULL;
    if (!text || strcmp(text, want) != 0) fail_msg("%s: %s, not %s", key, text ? text : "missing", want);
    cJSON_free(text);
    pl_json_close(&j);
}

static void full_head(void **state) {
    (void)state;
    static const int usual[] = {2, 4, 5}, odd[] = {1, 4, LAYERS};
    write_drafter("full", 0, NULL, usual);
    export_to("vllm");
    names_are(LAYER("midlayer."));
    same_tensor(checkpoint, "midlayer.mlp.up_proj.weight", "midlayer.mlp.up_proj.weight");
    same_tensor(checkpoint, "lm_head.weight", "lm_head.weight");
    config_is("architectures", "[\"LlamaForCausalLMEagle3\"]");
    config_is("eagle_aux_hidden_state_layer_ids", "[2,4,5]");
    config_is("eagle_config.eagle_aux_hidden_state_layer_ids", "[2,4,5]");
    config_is("paceline.tap_numbering", "\"input\"");
    config_is("norm_before_residual", "false");
    config_is("draft_vocab_size", "97");
    config_is("max_position_embeddings", "256");
    config_is("torch_dtype", "\"bfloat16\"");
    config_is("rope_parameters", "{\"rope_theta\":10000,\"rope_type\":\"default\"}");

    export_to("sglang"); // counts outputs
    names_are(LAYER("midlayer."));
    config_is("eagle_config.eagle_aux_hidden_state_layer_ids", "[1,3,4]");
    config_is("paceline.tap_numbering", "\"output\"");

    export_to("speculators");
    names_are(LAYER("layers.0.") " embed_tokens.weight");
    same_tensor(checkpoint, "midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight");
    same_tensor(target, "model.embed_tokens.weight", "embed_tokens.weight");
    config_is("speculators_model_type", "\"eagle3\"");
    config_is("eagle_aux_hidden_state_layer_ids", "[2,4,5]");
    config_is("transformer_layer_config.intermediate_size", "80");
    config_is("transformer_layer_config.model_type", "\"llama\"");
    config_is("speculators_config.verifier.architectures", "[\"LlamaForCausalLM\"]");

    write_drafter("full", 0, NULL, odd);
    export_to("sglang"); // whatever the first one is
    config_is("eagle_config.eagle_aux_hidden_state_layer_ids", "[0,3,7]");
    config_is("paceline.tap_numbering", "\"output\"");
}

static void refuse(const char *engine, const char *from, const char *to, const char *says) {
    pl_err err = {0};
    char  *serve;
    assert_true(pl_export_write(pl_export_engine_find(engine, &err), from, to, out, false, &env, &serve, &err) !=
                PL_OK);
    if (!strstr(err.msg, says)) fail_msg("%s: %s", says, err.msg);
    assert_null(serve);
}

// Plain exports open again: the same layers, rows, map and, of a chain, the same drafts.
static void opens_again(const char *engine, const int *taps, const int32_t *d2t) {
    pl_err       err = {0};
    pl_backbone *b;
    export_to(engine);
    if (pl_backbone_open(&b, out, &model, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(b->n_taps, 3);
    assert_memory_equal(b->tap, taps, 3 * sizeof *taps);
    assert_int_equal(b->head.vocab, d2t ? DRAFTED : TEST_VOCAB);
    if (d2t) assert_memory_equal(b->head.d2t, d2t, DRAFTED * sizeof *d2t);
    pl_backbone_destroy(b);
}

// Embeddings of the drafter's own: in the file as they are, for engines that read them; others are no place for it.
static void own_embeddings(void **state) {
    (void)state;
    static const char *const engines[] = {"vllm", "eagle", "sglang", "trtllm", "speculators"};
    for (int wide = 0; wide < 2; wide++) {
        pl_backbone_options o = {.own_embed = !wide, .width = wide ? 36 : 0, .n_taps = 3, .tap = {2, 4, 5}};
        test_backbone_write(checkpoint, &model, &pl_backbone_eagle3, &o, 43);
        for (int i = 0; i < 5; i++) {
            bool reads = i < 2 || (wide ? i < 4 : i == 4);
            if (!reads) {
                refuse(engines[i], checkpoint, target, wide ? "takes the target's width" : "embeddings of its own");
                continue;
            }
            export_to(engines[i]);
            same_tensor(checkpoint, "embed_tokens.weight", "embed_tokens.weight");
            config_is(i < 4 ? "hidden_size" : "transformer_layer_config.hidden_size", wide ? "36" : "48");
            if (wide) config_is("target_hidden_size", "48");
        }
    }
    write_drafter("full", 0, NULL, (const int[3]){2, 4, 5});
    export_to("eagle"); // which reads the target's where this member is missing
    pl_backbone *b;
    pl_err       err = {0};
    char        *text = served_text(out, "config.json");
    assert_null(strstr(text, "target_hidden_size"));
    pl_free(text);
    if (pl_backbone_open(&b, out, &model, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_false(b->own_embed);
    pl_backbone_destroy(b);
}

// vLLM's reader of speculators' form hands fc_norm on for eagle3 and drops it for peagle.
static void norms_of_peagle(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        const pl_backbone_kind *kind = i < 2 ? &pl_backbone_peagle : &pl_backbone_eagle3;
        pl_backbone_options     o = {.fc_norm = i % 2 == 0, .norm_before_fc = i % 2, .n_taps = 3, .tap = {2, 4, 5}};
        o.block = 4;
        o.mask_token = 9;
        test_backbone_write(checkpoint, &model, kind, &o, 43);
        if (i == 0)
            refuse("speculators", checkpoint, target,
                   "trained with fc_norm, which speculators does not compute for "
                   "P-EAGLE where vLLM reads it; export it to vllm");
        else
            export_to("speculators");
        export_to("vllm");
    }
}

// vLLM is given target and drafter, in its own form and speculators': by the folder alone it serves no local target.
static void served_by_vllm(void **state) {
    (void)state;
    static const pl_backbone_kind *const kinds[] = {&pl_backbone_eagle3, &pl_backbone_peagle, &pl_backbone_dflash};
    static const char *const             how[] = {"\"num_speculative_tokens\": 3}'",
                                                  "\"num_speculative_tokens\": 4, \"parallel_drafting\": true}'",
                                                  "\"num_speculative_tokens\": 3}'"};
    for (int i = 0; i < 6; i++) {
        pl_backbone_options o = {.layers = 1, .n_taps = 3, .tap = {2, 4, 5}, .block = 4, .mask_token = 9};
        char                want[400], *serve;
        pl_err              err = {0};
        test_backbone_write(checkpoint, &model, kinds[i / 2], &o, 43);
        if (pl_export_write(pl_export_engine_find(i % 2 ? "speculators" : "vllm", &err), checkpoint, target, out, false,
                            &env, &serve, &err) != PL_OK)
            fail_msg("%s", err.msg);
        snprintf(want, sizeof want, "vllm serve %s --speculative-config '{\"method\": \"%s\", \"model\": \"%s\", %s",
                 target, i < 4 ? "eagle3" : "dflash", out, how[i / 2]);
        assert_string_equal(serve, want);
        pl_free(serve);
    }
}

static void trimmed_head(void **state) {
    (void)state;
    static const int taps[] = {2, 4, 5};
    int32_t          d2t[DRAFTED];
    for (int i = 0; i < DRAFTED; i++)
        d2t[i] = (i * 37 + 11) % TEST_VOCAB; // any order
    write_drafter("full", 0, d2t, taps);
    opens_again("vllm", taps, d2t);
    names_are(LAYER("midlayer.") " d2t t2d");
    same_tensor(checkpoint, "d2t", "d2t");
    config_is("draft_vocab_size", "31");
    opens_again("sglang", taps, d2t);
    opens_again("eagle", taps, d2t);
    names_are(LAYER("midlayer.") " d2t t2d");
    opens_again("trtllm", taps, d2t); // the map in 32 bits, without its other half
    names_are(LAYER("midlayer.") " d2t");
    pl_st *st = open_st(out);
    assert_int_equal(pl_st_find(st, "d2t")->dtype, PL_I32);
    pl_st_close(st);
    export_to("speculators");
    names_are(LAYER("layers.0.") " d2t t2d embed_tokens.weight");
    write_drafter("full", 0, NULL, taps);
    opens_again("sglang", taps, NULL);
    opens_again("trtllm", taps, NULL);
    names_are(LAYER("midlayer."));
}

// With a row for every token engines have no room for a map.
static void other_order(void **state) {
    (void)state;
    int32_t             d2t[TEST_VOCAB];
    pl_backbone_options o = {.n_taps = 3, .tap = {2, 4, 5}, .d2t = d2t, .draft_vocab = TEST_VOCAB};
    for (int i = 0; i < TEST_VOCAB; i++)
        d2t[i] = TEST_VOCAB - 1 - i;
    test_backbone_write(checkpoint, &model, &pl_backbone_eagle3, &o, 43);
    refuse("vllm", checkpoint, target, "a head of all 97 tokens in another order than its target's");
}

// Layers by what each engine says of them: TensorRT-LLM's stand in a file of its own, EAGLE's program has its own.
static void layers_by_engine(void **state) {
    (void)state;
    static const int usual[] = {2, 4, 5}, other[] = {2, 3, 5}, turned[] = {4, 2, 5}, first[] = {0, 4, 5};
    char             path[160], want[400];
    uint8_t         *text;
    size_t           n;
    pl_err           err = {0};
    write_drafter("full", 0, NULL, usual);
    export_to("trtllm");
    config_is("eagle_config.eagle_aux_hidden_state_layer_ids", "[1,3,4]");
    config_is("paceline.tap_numbering", "\"output\"");
    config_is("attention_bias", "false");
    snprintf(path, sizeof path, "%s/trtllm.yaml", out);
    assert_int_equal(pl_file_read(path, &text, &n, 1 << 16, &err), PL_OK);
    snprintf(want, sizeof want,
             "speculative_config:\n  decoding_type: Eagle3\n  max_draft_len: 3\n"
             "  eagle3_layers_to_capture: [1, 3, 4]\n  speculative_model: \"%s\"\n",
             out);
    assert_string_equal((char *)text, want);
    pl_free(text);
    export_to("eagle");
    config_is("eagle_config.eagle_aux_hidden_state_layer_ids", "[2,4,5]");
    refuse("eagle", checkpoint, NULL, "--target: is missing");
    served_edit(checkpoint, "\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}");
    refuse("eagle", checkpoint, target, "RoPE that is scaled, which eagle does not read");
    export_to("vllm");
    write_drafter("full", 0, NULL, other);
    refuse("eagle", checkpoint, target, "layers 2, 4 and 5 and no others");
    export_to("trtllm");
    write_drafter("full", 0, NULL, turned);
    static const char *const sets[] = {"vllm", "sglang", "speculators", "trtllm"};
    for (int i = 0; i < 4; i++)
        refuse(sets[i], checkpoint, target, "reads the input of layer 2 after layer 4's, and");
    write_drafter("full", 0, NULL, first);
    refuse("trtllm", checkpoint, target, "reads the embeddings");
    refuse("sglang", checkpoint, target, "reads the embeddings, which sglang does not capture");
}

// ---- GGUF ----

static float value_at(const pl_gguf_tensor *t, int64_t i) {
    float    f;
    uint16_t h;
    if (t->type == 0) {
        memcpy(&f, t->data + 4 * i, sizeof f);
        return f;
    }
    memcpy(&h, t->data + 2 * i, sizeof h);
    return pl_bf16_to_f32(h);
}

// Tensor `theirs` of the file is the checkpoint's `mine`; heads > 0: whose rows stand in pairs.
static void same_values(const pl_gguf *g, const char *mine, const char *theirs, int64_t dim, bool f32) {
    pl_st                *st = open_st(checkpoint);
    const pl_st_entry    *e = pl_st_find(st, mine);
    const pl_gguf_tensor *t = pl_gguf_find_tensor(g, theirs);
    if (!e || !t) fail_msg("%s, %s", mine, theirs);
    int64_t cols = e->shape[e->rank - 1], rows = e->rank == 2 ? e->shape[0] : 1;
    assert_int_equal(t->rank, e->rank);
    assert_int_equal(t->shape[0], cols);
    assert_int_equal(t->type, f32 || e->rank == 1 ? 0 : 30);
    for (int64_t r = 0; r < rows; r++) {
        // [heads, 2, dim / 2] of ours are [heads, dim / 2, 2] of theirs.
        int64_t to = dim ? r / dim * dim + r % dim % (dim / 2) * 2 + r % dim / (dim / 2) : r;
        for (int64_t c = 0; c < cols; c++) {
            uint16_t h;
            memcpy(&h, (const uint8_t *)e->data + 2 * (r * cols + c), sizeof h);
            assert_true(value_at(t, to * cols + c) == pl_bf16_to_f32(h));
        }
    }
    pl_st_close(st);
}

static void gguf(void **state) {
    (void)state;
    static const char *const same[][2] = {{"fc.weight", "fc.weight"},
                                          {"norm.weight", "output_norm.weight"},
                                          {"lm_head.weight", "output.weight"},
                                          {"midlayer.input_layernorm.weight", "blk.0.attn_norm.weight"},
                                          {"midlayer.hidden_norm.weight", "blk.0.attn_norm_2.weight"},
                                          {"midlayer.self_attn.v_proj.weight", "blk.0.attn_v.weight"},
                                          {"midlayer.self_attn.o_proj.weight", "blk.0.attn_output.weight"},
                                          {"midlayer.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"},
                                          {"midlayer.mlp.gate_proj.weight", "blk.0.ffn_gate.weight"},
                                          {"midlayer.mlp.up_proj.weight", "blk.0.ffn_up.weight"},
                                          {"midlayer.mlp.down_proj.weight", "blk.0.ffn_down.weight"}};
    static const int         taps[] = {2, 4, 5}, last[] = {2, 4, LAYERS};
    const pl_export_engine  *engine = pl_export_engine_find("gguf", NULL);
    char                     served[96], path[96], *serve;
    int32_t                  d2t[DRAFTED], layer[3];
    int64_t                  v;
    pl_err                   err = {0};
    pl_gguf                 *g;
    for (int i = 0; i < DRAFTED; i++)
        d2t[i] = (i * 37 + 11) % TEST_VOCAB;
    snprintf(served, sizeof served, "%s/served.gguf", base);
    snprintf(path, sizeof path, "%s/drafter.gguf", out);
    served_gguf(served, LAYERS, TEST_VOCAB);
    for (int pass = 0; pass < 3; pass++) { // all rows, a trimmed head, and in fp32
        write_drafter("full", 0, pass ? d2t : NULL, taps);
        if (pl_export_write(engine, checkpoint, served, out, pass == 2, &env, &serve, &err) != PL_OK)
            fail_msg("%s", err.msg);
        assert_non_null(strstr(serve, "--spec-type draft-eagle3"));
        pl_free(serve);
        if (pl_gguf_open(&g, path, &err) != PL_OK) fail_msg("%s", err.msg);
        assert_int_equal(pl_gguf_tensors(g), pass ? 14 : 13);
        for (size_t i = 0; i < sizeof same / sizeof *same; i++)
            same_values(g, same[i][0], same[i][1], 0, pass == 2);
        same_values(g, "midlayer.self_attn.q_proj.weight", "blk.0.attn_q.weight", 8, pass == 2);
        same_values(g, "midlayer.self_attn.k_proj.weight", "blk.0.attn_k.weight", 8, pass == 2);
        const pl_gguf_value *list = pl_gguf_find(g, "eagle3.target_layers");
        assert_true(list->n == 3 && list->item == PL_GGUF_I32);
        memcpy(layer, list->data, sizeof layer);
        assert_memory_equal(layer, taps, sizeof layer);
        assert_true(pl_gguf_int(g, "eagle3.context_length", &v) && v == 512);
        assert_true(pl_gguf_find(g, "tokenizer.ggml.tokens")->n == TEST_VOCAB && !pl_gguf_find(g, "llama.block_count"));
        const pl_gguf_tensor *map = pl_gguf_find_tensor(g, "d2t");
        assert_true(!map == !pass);
        for (int i = 0; map && i < DRAFTED; i++) { // ids, not offsets
            memcpy(&v, map->data + 8 * i, sizeof v);
            assert_int_equal(v, d2t[i]);
        }
        pl_gguf_close(g);
    }
    refuse("gguf", checkpoint, target, "is no .gguf file");
    served_gguf(served, LAYERS, TEST_VOCAB + 1);
    refuse("gguf", checkpoint, served, "vocabulary 98 and width 48, the drafter was made for 97 and 48");
    served_gguf(served, 4, TEST_VOCAB);
    refuse("gguf", checkpoint, served, "has 4 layers, the drafter reads the input of layer 5");
    served_gguf(served, LAYERS, TEST_VOCAB);
    write_drafter("full", 0, NULL, last);
    refuse("gguf", checkpoint, served, "what leaves the last layer, before the final norm, which gguf");
    assert_true(pl_export_write(pl_export_engine_find("vllm", NULL), checkpoint, target, out, true, &env, &serve,
                                &err) == PL_E_USAGE);
}

// DFlash and DSpark: every tensor of the checkpoint, rows of queries and keys as they are, and what a block is made of.
static void gguf_blocks(void **state) {
    (void)state;
    static const char *const names[][2] = {{"fc.weight", "fc.weight"},
                                           {"norm.weight", "output_norm.weight"},
                                           {"hidden_norm.weight", "enc.output_norm.weight"},
                                           {"layers.0.input_layernorm.weight", "blk.0.attn_norm.weight"},
                                           {"layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight"},
                                           {"layers.1.self_attn.k_proj.weight", "blk.1.attn_k.weight"},
                                           {"layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight"},
                                           {"layers.1.self_attn.o_proj.weight", "blk.1.attn_output.weight"},
                                           {"layers.1.self_attn.q_norm.weight", "blk.1.attn_q_norm.weight"},
                                           {"layers.0.self_attn.k_norm.weight", "blk.0.attn_k_norm.weight"},
                                           {"layers.1.post_attention_layernorm.weight", "blk.1.ffn_norm.weight"},
                                           {"layers.0.mlp.gate_proj.weight", "blk.0.ffn_gate.weight"},
                                           {"layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight"},
                                           {"layers.1.mlp.down_proj.weight", "blk.1.ffn_down.weight"},
                                           {"markov_head.markov_w1.weight", "markov_w1.weight"},
                                           {"markov_head.markov_w2.weight", "markov_w2.weight"},
                                           {"confidence_head.proj.weight", "conf_proj.weight"},
                                           {"confidence_head.proj.bias", "conf_proj.bias"}};
    const pl_export_engine  *engine = pl_export_engine_find("gguf", NULL);
    char                     served[96], path[96], *serve;
    int64_t                  v;
    pl_err                   err = {0};
    pl_gguf                 *g;
    snprintf(served, sizeof served, "%s/served.gguf", base);
    snprintf(path, sizeof path, "%s/drafter.gguf", out);
    served_gguf(served, LAYERS, TEST_VOCAB);
    for (int pass = 0; pass < 3; pass++) { // DFlash, DSpark, and from the anchor on without a Markov head
        bool                spark = pass == 1;
        pl_backbone_options o = {
            .layers = 2, .block = 6, .mask_token = 9, .anchor_first = pass > 0, .n_taps = 2, .tap = {3, 6}};
        if (spark) o.head = pl_hf_head_of("markov:rank=7,confidence");
        test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
        if (pl_export_write(engine, checkpoint, served, out, false, &env, &serve, &err) != PL_OK)
            fail_msg("%s", err.msg);
        assert_non_null(strstr(serve, pass ? "--spec-type draft-dspark --spec-draft-n-max 6"
                                           : "--spec-type draft-dflash --spec-draft-n-max 5"));
        pl_free(serve);
        if (pl_gguf_open(&g, path, &err) != PL_OK) fail_msg("%s", err.msg);
        assert_int_equal(pl_gguf_tensors(g), spark ? 29 : 25);
        for (size_t i = 0; i < sizeof names / sizeof *names - (spark ? 0 : 4); i++)
            same_values(g, names[i][0], names[i][1], 0, false);
        const pl_gguf_value *list = pl_gguf_find(g, "dflash.target_layers"), *flag;
        static const int32_t taps[] = {3, 6};
        assert_true(list->n == 2 && memcmp(list->data, taps, sizeof taps) == 0);
        assert_true(pl_gguf_int(g, "dflash.block_count", &v) && v == 2);
        assert_true(pl_gguf_int(g, "dflash.block_size", &v) && v == 6);
        assert_true(pl_gguf_int(g, "tokenizer.ggml.mask_token_id", &v) && v == 9);
        flag = pl_gguf_find(g, "dflash.sample_from_anchor");
        assert_true(flag->type == PL_GGUF_BOOL && *flag->data == (pass > 0));
        flag = pl_gguf_find(g, "dflash.attention.causal");
        assert_true(flag->type == PL_GGUF_BOOL && *flag->data == 0);
        pl_gguf_close(g);
    }
    pl_backbone_options o = {
        .layers = 1, .block = 4, .anchor_first = true, .head = pl_hf_head_of("markov:rank=7,form=rnn")};
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    refuse("gguf", checkpoint, served, "none that gguf reads");
    o = (pl_backbone_options){
        .layers = 1, .block = 4, .conv_taps = 2, .conv_group = 8, .selector = {.rank = 5, .candidates = 7}};
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    refuse("gguf", checkpoint, served, "7 candidates, for which llama.cpp wants a width of 56 at least, not 48");
}

static float bf16_at(const pl_st_entry *e, int64_t i) {
    uint16_t h;
    memcpy(&h, (const uint8_t *)e->data + 2 * i, sizeof h);
    return pl_bf16_to_f32(h);
}

static void lowrank_head(void **state) {
    (void)state;
    static const int taps[] = {2, 4, 5};
    write_drafter("lowrank", RANK, NULL, taps);
    opens_again("vllm", taps, NULL);
    names_are(LAYER("midlayer."));
    pl_st             *a = open_st(checkpoint), *b = open_st(out);
    const pl_st_entry *up = pl_st_find(a, "efficient_lm_head.weight"),
                      *down = pl_st_find(a, "efficient_lm_head_down_proj.weight"),
                      *head = pl_st_find(b, "lm_head.weight");
    assert_true(up && down && head);
    int64_t d = model.shape.d;
    for (int64_t v = 0; v < TEST_VOCAB; v++)
        for (int64_t k = 0; k < d; k++) {
            double sum = 0, size = 0;
            for (int r = 0; r < RANK; r++) {
                double term = (double)bf16_at(up, v * RANK + r) * (double)bf16_at(down, r * d + k);
                sum += term;
                size += fabs(term);
            }
            assert_true(fabs((double)bf16_at(head, v * d + k) - sum) <= fabs(sum) / 256 + 1e-6 * size);
        }
    pl_st_close(a);
    pl_st_close(b);
    char factors[96];
    snprintf(factors, sizeof factors, "%s/factors", out);
    a = open_st(factors);
    assert_int_equal(pl_st_count(a), 2);
    pl_st_close(a);
}

static void refusals(void **state) {
    (void)state;
    static const int    taps[] = {2, 4, 5};
    pl_backbone_options eagle1 = {.own_head = true},
                        routed = {.head = pl_hf_head_of("dynaspec:router=coral,clusters=9,k0=2,fixed")};
    char     other[80];
    pl_llama m;
    pl_err   err = {0};
    assert_null(pl_export_engine_find("nothing", &err));
    write_drafter("full", 0, NULL, taps);
    refuse("speculators", checkpoint, NULL, "--target: is missing");
    refuse("vllm", target, NULL, "is a target, not a draft head");
    snprintf(other, sizeof other, "%s/other", base);
    assert_int_equal(pl_dir_make(other, NULL), PL_OK);
    test_target_sized(&m, other, LAYERS, TEST_VOCAB + 1, 3, PL_BF16);
    pl_llama_fini(&m);
    refuse("vllm", checkpoint, other, "vocabulary 98 and width 48, the drafter was made for 97 and 48");
    test_target(&m, other, 3, 3, PL_BF16);
    pl_llama_fini(&m);
    refuse("vllm", checkpoint, other, "has 3 layers, the drafter reads the input of layer 4");
    routed.n_taps = 3;
    memcpy(routed.tap, taps, sizeof taps);
    test_backbone_write(checkpoint, &model, &pl_backbone_eagle3, &routed, 5);
    refuse("vllm", checkpoint, NULL, "a dynaspec head is no one matrix");
    pl_backbone_options sure = {.head = pl_hf_head_of("full:acceptance"), .n_taps = 3};
    memcpy(sure.tap, taps, sizeof taps);
    test_backbone_write(checkpoint, &model, &pl_backbone_eagle3, &sure, 5);
    refuse("vllm", checkpoint, NULL, "predicts the acceptance of its drafts, which no engine knows");
    test_backbone_write(checkpoint, &model, &pl_backbone_eagle1, &eagle1, 5);
    refuse("sglang", checkpoint, NULL, "is an eagle1 drafter");
}

// A published head: its list must say how it counts; widths that it leaves out are its own.
static void published(void **state) {
    (void)state;
    static const int taps[] = {2, 4, 5};
    char             path[160], *text, *cut;
    uint8_t         *data;
    size_t           n;
    pl_err           err = {0};
    write_drafter("full", 0, NULL, taps);
    snprintf(path, sizeof path, "%s/config.json", checkpoint);
    assert_int_equal(pl_file_read(path, &data, &n, 1 << 20, &err), PL_OK);
    text = (char *)data;
    cut = strstr(text, ",\n  \"paceline\"");
    assert_non_null(cut);
    strcpy(cut, "\n}\n");
    assert_int_equal(pl_file_write_atomic(path, text, strlen(text), &err), PL_OK);
    refuse("vllm", checkpoint, NULL, "by input or by output");
    cut = strstr(text, "  \"target_hidden_size\": 48,\n");
    assert_non_null(cut);
    memmove(cut, cut + 28, strlen(cut + 28) + 1);
    strcpy(text + strlen(text) - 3, ",\n\"paceline\": {\"tap_numbering\": \"output\"}}\n");
    assert_int_equal(pl_file_write_atomic(path, text, strlen(text), &err), PL_OK);
    export_to("vllm");
    config_is("target_hidden_size", "48");
    config_is("eagle_aux_hidden_state_layer_ids", "[3,5,6]");
    pl_free(data);
}

// What is written holds from any folder, and serve.sh runs.
static void from_any_folder(void **state) {
    (void)state;
    char   here[4096], path[160], want[400], *text, *serve;
    pl_err err = {0};
    write_drafter("full", 0, NULL, (const int[3]){2, 4, 5});
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(base), 0);
    pl_status st =
        pl_export_write(pl_export_engine_find("trtllm", &err), "drafter", "target", "out", false, &env, &serve, &err);
    assert_int_equal(chdir(here), 0);
    if (st != PL_OK) fail_msg("%s", err.msg);
    snprintf(want, sizeof want, "trtllm-serve %s --extra_llm_api_options %s/trtllm.yaml", target, out);
    assert_string_equal(serve, want);
    pl_free(serve);
    text = served_text(out, "trtllm.yaml");
    snprintf(want, sizeof want, "speculative_model: \"%s\"", out);
    assert_non_null(strstr(text, want));
    pl_free(text);
    snprintf(path, sizeof path, "%s/serve.sh", out);
    assert_int_equal(access(path, X_OK), 0);
}

// Whether it is said while a drafter is exported.
static bool warned(const char *engine, const char *what) {
    char  *said = NULL;
    size_t n = 0;
    FILE  *f = open_memstream(&said, &n);
    pl_log_to(f);
    export_to(engine);
    pl_log_to(NULL);
    fclose(f);
    bool found = strstr(said, what) != NULL;
    free(said);
    return found;
}

// DSpark's heads by engine.
static void markov_heads(void **state) {
    (void)state;
    pl_backbone_options o = {.layers = 1, .block = 4, .anchor_first = true, .n_taps = 2, .tap = {3, 6}};
    o.head = pl_hf_head_of("markov:rank=7,form=gated");
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    refuse("vllm", checkpoint, target, "a gated Markov head, which vllm does not compute");
    assert_true(warned("speculators", "a gated Markov head, which speculators computes and vLLM (0.33) does not"));
    assert_false(warned("sglang", "warning"));
    o.head = pl_hf_head_make("markov", 7);
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    assert_false(warned("speculators", "warning"));
    assert_false(warned("vllm", "warning"));
    o.head = (pl_hf_head){0}; // each slot drafts the token behind its own
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    refuse("sglang", checkpoint, target, "which sglang serves with a Markov head alone");
    export_to("vllm");
}

// xPress's refiner, which one library computes, and LiLiCorr's lattice, in the form of ModelOpt.
static void refiners(void **state) {
    (void)state;
    pl_backbone_options o = {.layers = 1, .block = 4, .mask_token = 9, .n_taps = 2, .tap = {3, 6}};
    o.head = pl_hf_head_of("xpress:rank=7,passes=5");
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    refuse("vllm", checkpoint, target, "an xPress drafter, which vllm does not serve");
    assert_true(warned("speculators", "an xPress refiner, which speculators computes and vLLM (0.33) does not"));
    config_is("speculators_model_type", "\"xpress\"");
    config_is("xpress_rank", "7");
    config_is("xpress_mlp_ratio", "2");
    config_is("num_jacobi_passes", "5");
    config_is("sample_from_anchor", "false");
    o.head = (pl_hf_head){0};
    o.selector = (pl_hf_selector){.rank = 5, .candidates = 4, .kind = PL_HF_LATTICE, .width = 16};
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    static const char *const engines[] = {"sglang", "vllm"};
    for (int i = 0; i < 2; i++) {
        export_to(engines[i]);
        config_is("architectures", "[\"LiLiCorrDraftModel\"]");
        config_is("dflash_config",
                  "{\"mask_token_id\":9,\"target_layer_ids\":[2,5],\"projector_type\":\"lilicorr\","
                  "\"lilicorr_enabled\":true,\"lilicorr_candidate_topk\":4,\"lilicorr_hidden_size\":16,"
                  "\"lilicorr_num_layers\":2,\"lilicorr_num_heads\":4,\"lilicorr_mlp_ratio\":2,"
                  "\"lilicorr_factor_dim\":5,\"lilicorr_vector_eps\":1e-06,\"lilicorr_logit_scale\":10}");
        pl_st             *st = served_open(out);
        const pl_st_entry *slot = pl_st_find(st, "lilicorr.slot_embedding");
        assert_int_equal(slot->rank, 5);
        assert_true(slot->shape[0] == 1 && slot->shape[1] == 1 && slot->shape[2] == 3 && slot->shape[3] == 1 &&
                    slot->shape[4] == 16);
        pl_st_close(st);
    }
    refuse("speculators", checkpoint, target, "a LiLiCorr drafter, which speculators does not serve");
    o.selector.candidates = 6;
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    refuse("sglang", checkpoint, target, "lilicorr_candidate_topk: 6, engines take powers of two");
    o.selector.candidates = 4;
    o.anchor_first = true;
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    refuse("sglang", checkpoint, target, "blocks that draft from their anchor, which engines' LiLiCorr has not");
}

static void options_are(const char *want) {
    char *text = served_text(out, "trtllm.yaml"), *at = strstr(text, "  speculative_model: ");
    assert_non_null(at);
    *at = 0;
    assert_string_equal(text, want);
    pl_free(text);
}

// TensorRT-LLM is told what it would look for under names of its own.
static void block_options(void **state) {
    (void)state;
    pl_backbone_options o = {.layers = 1, .block = 4, .mask_token = 9, .n_taps = 2, .tap = {3, 6}};
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    export_to("trtllm");
    options_are("speculative_config:\n  decoding_type: DFlash\n  max_draft_len: 3\n  mask_token_id: 9\n"
                "  target_layer_ids: [2, 5]\n");
    config_is("block_size", "4");
    config_is("model_type", "\"qwen3\"");
    o.head = pl_hf_head_make("markov", 7);
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    refuse("trtllm", checkpoint, target, "whose blocks do not draft from their anchor");
    for (int markov = 0; markov < 2; markov++) {
        o.anchor_first = true;
        o.head = markov ? pl_hf_head_make("markov", 7) : (pl_hf_head){0};
        test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
        export_to("trtllm");
        options_are("speculative_config:\n  decoding_type: DSpark\n  max_draft_len: 4\n  block_size: 4\n"
                    "  mask_token_id: 9\n  target_layer_ids: [2, 5]\n");
        config_is("markov_rank", markov ? "7" : "0");
    }
    o.head = pl_hf_head_of("markov:rank=7,form=rnn");
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    refuse("trtllm", checkpoint, target, "a rnn Markov head, which trtllm does not compute");
    o = (pl_backbone_options){.layers = 1, .block = 4, .n_taps = 2, .tap = {3, 6}, .conv_taps = 2, .conv_group = 8};
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    refuse("trtllm", checkpoint, target, "a DFlash 2 drafter, which trtllm does not serve");
    o = (pl_backbone_options){.layers = 1, .block = 4, .n_taps = 2, .tap = {3, 6}, .own_head = true};
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, &o, 43);
    refuse("trtllm", checkpoint, target, "with a head of its own, where trtllm takes the target's");
}

// Engines that tell features from drafts by their width leave fc out where the two are the same.
static void without_fc(void **state) {
    (void)state;
    pl_backbone_options o = {.n_taps = 1, .tap = {4}};
    test_backbone_write(checkpoint, &model, &pl_backbone_eagle3, &o, 43);
    export_to("vllm");
    refuse("sglang", checkpoint, target, "reads 1 layer of width 48, which sglang takes in without fc");
    o.width = 36;
    test_backbone_write(checkpoint, &model, &pl_backbone_eagle3, &o, 43);
    export_to("sglang");
    refuse("trtllm", checkpoint, target, "reads 1 layer of width 48, which trtllm takes in without fc");
    o = (pl_backbone_options){.n_taps = 3, .tap = {2, 4, 5}, .width = 144};
    test_backbone_write(checkpoint, &model, &pl_backbone_eagle3, &o, 43);
    refuse("eagle", checkpoint, target, "reads 3 layers of width 48, which eagle takes in without fc");
}

// Paths as a shell reads them back.
static void quotes(void **state) {
    (void)state;
    static const char *const words[][2] = {
        {"a/b-c_1.2", "a/b-c_1.2"}, {"", "''"}, {"a b", "'a b'"}, {"it's", "'it'\\''s'"}, {"$HOME;rm", "'$HOME;rm'"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char *q = pl_export_quote(words[i][0]);
        assert_string_equal(q, words[i][1]);
        pl_free(q);
    }
    assert_null(pl_export_quote(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_head),      cmocka_unit_test(trimmed_head),    cmocka_unit_test(lowrank_head),
        cmocka_unit_test(own_embeddings), cmocka_unit_test(norms_of_peagle), cmocka_unit_test(refusals),
        cmocka_unit_test(published),      cmocka_unit_test(quotes),          cmocka_unit_test(layers_by_engine),
        cmocka_unit_test(gguf),           cmocka_unit_test(gguf_blocks),     cmocka_unit_test(block_options),
        cmocka_unit_test(served_by_vllm), cmocka_unit_test(without_fc),      cmocka_unit_test(markov_heads),
        cmocka_unit_test(refiners),       cmocka_unit_test(from_any_folder), cmocka_unit_test(other_order),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
