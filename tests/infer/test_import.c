// Imports: what any engine was given comes back as it was; what could be read in two ways is read in the right one.
#include "tests/infer/fixture.h"
#include "tests/infer/served.h"

#include "checkpoints/safetensors.h"
#include "infer/drafter/dflash.h"
#include "infer/export/export.h"
#include "infer/import/import.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"

#include <dirent.h>
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
static const int    TAPS[] = {2, 4, 5};
static char         base[64], target[80], checkpoint[80], out[80], back[80], again[80];
static pl_llama     model;

static int setup(void **state) {
    (void)state;
    test_mkdir(base);
    snprintf(target, sizeof target, "%s/target", base);
    snprintf(checkpoint, sizeof checkpoint, "%s/drafter", base);
    snprintf(out, sizeof out, "%s/out", base);
    snprintf(back, sizeof back, "%s/back", base);
    snprintf(again, sizeof again, "%s/again", base);
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

static const int32_t *some_tokens(void) {
    static int32_t d2t[DRAFTED];
    for (int i = 0; i < DRAFTED; i++)
        d2t[i] = (i * 37 + 11) % TEST_VOCAB; // any order
    return d2t;
}

static void write_drafter(const char *head, int rank, const int32_t *d2t) {
    pl_backbone_options o = {
        .head = pl_hf_head_make(head, rank), .n_taps = 3, .d2t = d2t, .draft_vocab = d2t ? DRAFTED : 0};
    memcpy(o.tap, TAPS, sizeof TAPS);
    test_backbone_write(checkpoint, &model, &pl_backbone_eagle3, &o, 43);
}

static void export_to(const char *engine, const char *from, const char *to) {
    pl_err err = {0};
    char  *serve;
    assert_int_equal(pl_tree_remove(to, &err), PL_OK); // cases write files of their own there
    if (pl_export_write(pl_export_engine_find(engine, &err), from, target, to, false, &env, &serve, &err) != PL_OK)
        fail_msg("%s", err.msg);
    pl_free(serve);
}

// A folder that holds something else is left as it is, and so is what is read.
static void nothing_is_lost(void **state) {
    (void)state;
    pl_err         err = {0};
    pl_import_told told;
    uint8_t       *text = NULL;
    size_t         n = 0;
    char          *mine = pl_path_join(back, "thesis.txt"), *serve;
    write_drafter("full", 0, NULL);
    export_to("vllm", checkpoint, out);
    assert_int_equal(pl_dir_make(back, &err), PL_OK);
    assert_int_equal(pl_file_write_atomic(mine, "years", 5, &err), PL_OK);
    assert_int_equal(pl_import(&(pl_import_options){out, target, back, 0}, &told, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "holds thesis.txt, which would be lost"));
    const pl_export_engine *vllm = pl_export_engine_find("vllm", &err);
    const char *const       places[] = {back, target, checkpoint};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pl_export_write(vllm, checkpoint, target, places[i], false, &env, &serve, &err), PL_E_INPUT);
        assert_non_null(strstr(err.msg, i ? "is what is read" : "which would be lost"));
    }
    assert_int_equal(pl_file_read(mine, &text, &n, 64, &err), PL_OK);
    assert_int_equal(n, 5);
    pl_free(text);
    pl_free(mine);
    assert_int_equal(pl_tree_remove(back, &err), PL_OK);
}

static pl_import_told import_as(const char *from, pl_hf_tap_numbering numbering) {
    pl_import_told told;
    pl_err         err = {0};
    assert_int_equal(pl_tree_remove(back, &err), PL_OK); // into a new folder
    if (pl_import(&(pl_import_options){from, target, back, numbering}, &told, &err) != PL_OK) fail_msg("%s", err.msg);
    return told;
}

static void refused(pl_hf_tap_numbering numbering, const char *says) {
    pl_import_told told;
    pl_err         err = {0};
    assert_true(pl_import(&(pl_import_options){out, target, back, numbering}, &told, &err) != PL_OK);
    if (!strstr(err.msg, says)) fail_msg("%s: %s", says, err.msg);
}

// The same tensors, bit for bit.
static void same_weights(const char *a, const char *b) {
    pl_st *x = served_open(a), *y = served_open(b);
    assert_int_equal(pl_st_count(x), pl_st_count(y));
    for (int64_t i = 0; i < pl_st_count(x); i++) {
        const pl_st_entry *mine = pl_st_at(x, i), *theirs = pl_st_find(y, mine->name);
        if (!theirs) fail_msg("%s is missing", mine->name);
        assert_true(mine->dtype == theirs->dtype && mine->bytes == theirs->bytes);
        assert_memory_equal(mine->data, theirs->data, mine->bytes);
    }
    pl_st_close(x);
    pl_st_close(y);
}

// Embeddings of the drafter's own, another width and P-EAGLE's masks come back from engines that read them.
static void own_embeddings(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        bool                    wide = i % 2, parallel = i / 2 == 1;
        pl_backbone_options     o = {.own_embed = true, .width = wide ? 36 : 0, .n_taps = 3, .tap = {2, 4, 5}};
        const pl_backbone_kind *kind = parallel ? &pl_backbone_peagle : &pl_backbone_eagle3;
        if (parallel) o.block = 5, o.mask_token = 9, o.layers = 2;
        if (i / 2 == 2) o.head = pl_hf_head_make("lowrank", RANK);
        test_backbone_write(checkpoint, &model, kind, &o, 43);
        for (int e = 0; pl_export_engine_at(e); e++) {
            const pl_export_engine *to = pl_export_engine_at(e);
            bool                    reads = to->own & (wide ? PL_EXPORT_OWN_WIDTH : PL_EXPORT_OWN_SAME) &&
                         (to->classes[PL_EXPORT_PEAGLE] || !parallel);
            if (to->file || !reads) continue;
            export_to(to->name, checkpoint, out);
            assert_true(import_as(out, PL_HF_TAPS_UNSTATED).own_embed);
            same_weights(checkpoint, back);
            pl_backbone *b;
            pl_err       err = {0};
            if (pl_backbone_open(&b, back, &model, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
            assert_int_equal(b->embed.dim[1], wide ? 36 : 48);
            pl_backbone_destroy(b);
            served_replace(out, "embed_tokens.weight", &(pl_st_source){.name = "embed_tokens.weight"});
            if (wide) refused(PL_HF_TAPS_UNSTATED, "has no embed_tokens.weight");
        }
    }
}

// What reads the target's rows or embeddings, or has its width, is no place for them.
static void no_own_embeddings(void **state) {
    (void)state;
    const struct {
        const pl_backbone_kind *kind;
        pl_backbone_options     o;
        const char             *says;
    } cases[] = {
        {&pl_backbone_eagle3, {.width = 36, .head = pl_hf_head_of("specvocab:rank=4,candidates=5")}, "target's rows"},
        {&pl_backbone_eagle3,
         {.own_embed = true, .head = pl_hf_head_of("dynaspec:clusters=12,width=20,k0=5,k1=3,kmin=1")},
         "a dynaspec head reads the target's embeddings"},
        {&pl_backbone_eagle3, {.width = 40}, "drafter.width: 40, give a multiple of 3"},
        {&pl_backbone_eagle1, {.width = 36}, "an eagle1 drafter of width 36 for a target of width 48"},
        {&pl_backbone_dflash, {.own_embed = true, .block = 4}, "it takes the target's embeddings and width"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_backbone *b;
        pl_err       err = {0};
        assert_true(pl_backbone_create(&b, cases[i].kind, &model, &cases[i].o, pl_backend_cpu(), &err) != PL_OK);
        if (!strstr(err.msg, cases[i].says)) fail_msg("%s: %s", cases[i].says, err.msg);
    }
}

// Out to every engine and back: the same checkpoint, which gives the same export.
static void round_trips(void **state) {
    (void)state;
    static const struct {
        const char *head;
        int         rank;
        bool        trimmed;
    } heads[] = {{"full", 0, false}, {"full", 0, true}, {"lowrank", RANK, false}, {"lowrank", RANK, true}};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++) {
        write_drafter(heads[h].head, heads[h].rank, heads[h].trimmed ? some_tokens() : NULL);
        for (int e = 0; pl_export_engine_at(e); e++) {
            const char *name = pl_export_engine_at(e)->name;
            if (pl_export_engine_at(e)->file) continue; // another file
            export_to(name, checkpoint, out);
            pl_import_told told = import_as(out, PL_HF_TAPS_UNSTATED);
            assert_string_equal(told.format, strcmp(name, "speculators") == 0 ? "speculators" : "eagle3");
            assert_string_equal(told.head, heads[h].head);
            assert_string_equal(told.map, heads[h].trimmed ? "offsets" : "none");
            assert_memory_equal(told.tap, TAPS, sizeof TAPS);
            same_weights(checkpoint, back);
            export_to(name, back, again);
            same_weights(out, again);
            char *first = served_text(out, "config.json"), *second = served_text(again, "config.json");
            assert_string_equal(first, second);
            pl_free(first), pl_free(second);
            // Positions are as many as the target's, which engines size their tables by; the rest is what it was.
            pl_err       err = {0};
            pl_backbone *b;
            if (pl_backbone_open(&b, back, &model, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
            assert_memory_equal(b->tap, TAPS, sizeof TAPS);
            pl_backbone_destroy(b);
        }
    }
}

// ---- exports that were changed by hand ----

// By what layers are counted: a list says it by where it stands and how it begins, a file by saying so, a caller by
// knowing better; else it is asked for.
static void numbering(void **state) {
    (void)state;
    static const int inputs[] = {1, 3, 4}, outputs[] = {2, 4, 5};
    write_drafter("full", 0, NULL);
    export_to("sglang", checkpoint, out);
    served_edit(out, "\"norm_output\": false", "\"norm_output\": false, \"eagle_config\": null, \"note\": 1");
    refused(PL_HF_TAPS_UNSTATED, "eagle_config"); // a key twice
    export_to("sglang", checkpoint, out);
    served_drop(out, "paceline");
    pl_import_told told = import_as(out, PL_HF_TAPS_UNSTATED); // [1, 3, 4]: outputs
    assert_memory_equal(told.tap, outputs, sizeof outputs);
    assert_string_equal(told.numbering, "format");
    told = import_as(out, PL_HF_TAPS_INPUT);
    assert_memory_equal(told.tap, inputs, sizeof inputs);
    assert_string_equal(told.numbering, "option");
    served_edit(out, "[1, 3, 4]", "[2, 4, 5]"); // the paper's, as inputs
    told = import_as(out, PL_HF_TAPS_UNSTATED);
    assert_memory_equal(told.tap, TAPS, sizeof TAPS);
    served_edit(out, "[2, 4, 5]", "[2, 4, 6]");
    refused(PL_HF_TAPS_UNSTATED, "by input or by output, and both are in use; give --numbering");
    told = import_as(out, PL_HF_TAPS_OUTPUT);
    assert_true(told.tap[0] == 3 && told.tap[2] == 7);
    // A list at the top is vLLM's.
    export_to("vllm", checkpoint, out);
    told = import_as(out, PL_HF_TAPS_UNSTATED);
    assert_string_equal(told.numbering, "file");
    refused(PL_HF_TAPS_OUTPUT, "says itself that its layers are counted by input");
    served_drop(out, "paceline");
    told = import_as(out, PL_HF_TAPS_UNSTATED);
    assert_memory_equal(told.tap, TAPS, sizeof TAPS);
    assert_string_equal(told.numbering, "format");
    // None at all: the paper's, whatever is said about counting.
    served_drop(out, "eagle_aux_hidden_state_layer_ids");
    served_drop(out, "eagle_config");
    told = import_as(out, PL_HF_TAPS_OUTPUT);
    assert_memory_equal(told.tap, TAPS, sizeof TAPS);
    assert_string_equal(told.numbering, "default");
    // A layer that the target lacks, or one twice.
    export_to("sglang", checkpoint, out);
    refused(PL_HF_TAPS_INPUT, "says itself that its layers are counted by output");
    served_drop(out, "paceline");
    served_edit(out, "3, 4]", "3, 8]");
    refused(PL_HF_TAPS_UNSTATED, "reads the output of layer 8");
    served_edit(out, "[1, 3, 8]", "[1, 1, 4]");
    refused(PL_HF_TAPS_UNSTATED, "names layer 1 twice");
}

// Offsets or ids, in 32 bits or 64, with their other half or without.
static void maps(void **state) {
    (void)state;
    const int32_t *ids = some_tokens();
    int64_t        wide[DRAFTED];
    int32_t        narrow[DRAFTED];
    for (int form = 0; form < 4; form++) {
        write_drafter("full", 0, ids);
        export_to("vllm", checkpoint, out);
        for (int i = 0; i < DRAFTED; i++) {
            narrow[i] = form & 1 ? ids[i] : ids[i] - i;
            wide[i] = narrow[i];
        }
        pl_st_source s = {.name = "d2t", .dtype = PL_I64, .rank = 1, .shape = {DRAFTED}, .data = wide};
        if (form & 2) s.dtype = PL_I32, s.data = narrow;
        served_replace(out, "d2t", &s);
        if (form == 3) served_replace(out, "t2d", &(pl_st_source){.name = "t2d"});
        pl_import_told told = import_as(out, PL_HF_TAPS_UNSTATED);
        assert_string_equal(told.map, form & 1 ? "ids" : "offsets");
        assert_int_equal(told.rows, DRAFTED);
        same_weights(checkpoint, back);
    }
    pl_st_source s = {.name = "d2t", .dtype = PL_I64, .rank = 1, .shape = {DRAFTED}, .data = wide};
    // Rising ids could be offsets of others: nothing but t2d tells, and offsets that never repeat are no list's.
    int32_t      rising[DRAFTED];
    for (int i = 0; i < DRAFTED; i++)
        wide[i] = rising[i] = 2 * i;
    write_drafter("full", 0, rising);
    export_to("vllm", checkpoint, out);
    served_replace(out, "d2t", &s);
    served_replace(out, "t2d", &(pl_st_source){.name = "t2d"});
    assert_string_equal(import_as(out, PL_HF_TAPS_UNSTATED).map, "ids");
    same_weights(checkpoint, back);
    write_drafter("full", 0, ids);
    export_to("vllm", checkpoint, out);
    wide[3] = wide[4] = 5;
    served_replace(out, "d2t", &s);
    refused(PL_HF_TAPS_UNSTATED, "neither as offsets nor as ids, 31 different tokens");
    s.shape[0] = DRAFTED - 1;
    served_replace(out, "d2t", &s);
    refused(PL_HF_TAPS_UNSTATED, "d2t must be 31 integers");
    s.dtype = PL_F32;
    served_replace(out, "d2t", &s);
    refused(PL_HF_TAPS_UNSTATED, "d2t holds F32; I64 and I32 are known");
    served_replace(out, "d2t", &(pl_st_source){.name = "d2t"});
    refused(PL_HF_TAPS_UNSTATED, "a head of 31 rows for 97 tokens, and no d2t");
}

// Maps that were never filled, or in part: the head drafts the first tokens of the vocabulary, which no figure shows.
static void unfilled_maps(void **state) {
    (void)state;
    static const struct {
        int  filled; // rows, of DRAFTED
        bool ids;
        int  told; // rows that the line names, 0: none
    } cases[] = {{0, false, DRAFTED}, {0, true, DRAFTED},  {20, false, 11},   {23, false, 8},
                 {24, false, 0},      {DRAFTED, false, 0}, {DRAFTED, true, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t wide[DRAFTED];
        char    line[64], *said = NULL;
        size_t  n;
        for (int k = 0; k < DRAFTED; k++) {
            int id = k < cases[i].filled ? 40 + k : k; // rows that stand for later tokens, then themselves
            wide[k] = cases[i].ids ? id : id - k;
        }
        write_drafter("full", 0, some_tokens());
        export_to("vllm", checkpoint, out);
        served_replace(out, "d2t",
                       &(pl_st_source){.name = "d2t", .dtype = PL_I64, .rank = 1, .shape = {DRAFTED}, .data = wide});
        served_replace(out, "t2d", &(pl_st_source){.name = "t2d"});
        FILE *f = open_memstream(&said, &n);
        pl_log_to(f);
        import_as(out, PL_HF_TAPS_UNSTATED);
        pl_log_to(NULL);
        fclose(f);
        snprintf(line, sizeof line, "the last %d of 31 rows", cases[i].told);
        if (cases[i].told ? !strstr(said, line) : strstr(said, "d2t") != NULL) fail_msg("case %zu: \"%s\"", i, said);
        free(said);
    }
    int64_t marks[TEST_VOCAB] = {0};
    served_replace(out, "t2d",
                   &(pl_st_source){.name = "t2d", .dtype = PL_I64, .rank = 1, .shape = {TEST_VOCAB}, .data = marks});
    refused(PL_HF_TAPS_UNSTATED, "t2d holds I64; BOOL and U8 are known");
}

// A config that was copied from a tied target: the head's rows are its own, and the checkpoint says so.
static void copied_tie(void **state) {
    (void)state;
    static const char *const engines[] = {"vllm", "sglang", "trtllm", "speculators", "eagle"};
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        write_drafter("full", 0, NULL);
        export_to(engines[i], checkpoint, out);
        served_edit(out, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
        import_as(out, PL_HF_TAPS_UNSTATED);
        char *config = served_text(back, "config.json");
        if (!strstr(config, "\"tie_word_embeddings\": false")) fail_msg("%s: %s", engines[i], config);
        pl_free(config);
        same_weights(checkpoint, back);
    }
}

static void names(void **state) {
    (void)state;
    float row[TEST_VOCAB * 48] = {0};
    write_drafter("full", 0, NULL);
    // Prefixes, buffers, copies of the target's.
    export_to("speculators", checkpoint, out);
    served_rename(out, "fc.weight", "model.fc.weight");
    served_rename(out, "layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight");
    served_replace(
        out, "rotary_emb.inv_freq",
        &(pl_st_source){.name = "rotary_emb.inv_freq", .dtype = PL_F32, .rank = 1, .shape = {6}, .data = row});
    import_as(out, PL_HF_TAPS_UNSTATED);
    same_weights(checkpoint, back);
    // A head that is the target's is stored here.
    served_replace(out, "lm_head.weight", &(pl_st_source){.name = "lm_head.weight"});
    pl_import_told told = import_as(out, PL_HF_TAPS_UNSTATED);
    assert_string_equal(told.head, "target");
    pl_st *a = served_open(back), *b = served_open(target);
    assert_memory_equal(pl_st_find(a, "lm_head.weight")->data, pl_st_find(b, "lm_head.weight")->data,
                        pl_st_find(a, "lm_head.weight")->bytes);
    pl_st_close(a);
    pl_st_close(b);
    // What would be computed otherwise.
    served_replace(out, "fc.bias",
                   &(pl_st_source){.name = "fc.bias", .dtype = PL_F32, .rank = 1, .shape = {48}, .data = row});
    refused(PL_HF_TAPS_UNSTATED, "tensor \"fc.bias\": none that this program computes with");
    export_to("speculators", checkpoint, out);
    served_replace(
        out, "embed_tokens.weight",
        &(pl_st_source){
            .name = "embed_tokens.weight", .dtype = PL_F32, .rank = 2, .shape = {TEST_VOCAB, 48}, .data = row});
    told = import_as(out, PL_HF_TAPS_UNSTATED);
    assert_true(told.own_embed);
    a = served_open(back);
    assert_memory_equal(pl_st_find(a, "embed_tokens.weight")->data, row, sizeof row);
    pl_st_close(a);
    export_to("vllm", checkpoint, out);
    served_replace(out, "norm.weight", &(pl_st_source){.name = "norm.weight"});
    refused(PL_HF_TAPS_UNSTATED, "has no norm.weight");
    export_to("vllm", checkpoint, out);
    served_replace(out, "fc.weight",
                   &(pl_st_source){.name = "fc.weight", .dtype = PL_F32, .rank = 2, .shape = {48, 96}, .data = row});
    refused(PL_HF_TAPS_UNSTATED, "fc.weight reads 96 columns, 3 layers of its target have 144");
    static const struct {
        const char *engine, *from, *to, *says;
    } edits[] = {
        {"vllm", "\"norm_before_fc\": false", "\"norm_before_fc\": true", "has no input_norm.weight"},
        {"vllm", "\"fc_norm\": false,\n  \"norm_output\": false,\n  \"norm_before_fc\": false",
         "\"fc_norm\": true, \"norm_before_fc\": true", "of which one is"},
        {"vllm", "\"vocab_size\": 97", "\"vocab_size\": 98", "made for a vocabulary of 98"},
        {"vllm", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 9", "9 layers, at most 8 in such a drafter"},
        {"vllm", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2", "has no layers.1.self_attn"},
        {"vllm", "LlamaForCausalLMEagle3", "PEagleDraftModel", "mask_token_id: missing"},
        {"speculators", "\"speculators_model_type\": \"eagle3\"", "\"speculators_model_type\": \"peagle\"",
         "mask_token_id: missing"},
        {"speculators", "\"speculators_model_type\": \"eagle3\"", "\"speculators_model_type\": \"eagle\"",
         "\"eagle\" is not supported; eagle3, peagle, dflash, dflash2, dspark and xpress are"},
        {"vllm", "\"vocab_size\": 97", "\"vocab_size\": 97, \"hydra_num_heads\": 4",
         "hydra_lm_head.pt as the paper's code writes it"},
        {"vllm", "\"vocab_size\": 97", "\"vocab_size\": 97, \"medusa_num_heads\": 4",
         "train such heads with drafter.kind: medusa"},
        {"speculators", "\"model_type\": \"llama\"", "\"model_type\": \"phi3\"",
         "model_type \"phi3\" is not supported"}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        export_to(edits[i].engine, checkpoint, out);
        served_edit(out, edits[i].from, edits[i].to);
        refused(PL_HF_TAPS_UNSTATED, edits[i].says);
    }
}

// What speculators leaves out is what transformers' class has.
static void left_out(void **state) {
    (void)state;
    pl_hf_config            c;
    const pl_import_format *f;
    bool                    stated;
    pl_err                  err = {0};
    char                    path[160];
    static const char       text[] =
        "{\"architectures\": [\"Eagle3DraftModel\"], \"speculators_model_type\": \"eagle3\", \"draft_vocab_size\": "
        "32000, \"norm_before_residual\": false, \"eagle_aux_hidden_state_layer_ids\": [2, 18, 33], "
        "\"transformer_layer_config\": {\"model_type\": \"%s\", \"num_key_value_heads\": 8}}";
    for (int i = 0; i < 2; i++) {
        char *made = pl_sprintf(text, i ? "qwen3" : "llama");
        snprintf(path, sizeof path, "%s/config.json", out);
        assert_int_equal(pl_dir_make(out, &err), PL_OK);
        assert_int_equal(pl_file_write_atomic(path, made, strlen(made), &err), PL_OK);
        pl_free(made);
        if (pl_import_config(&c, &f, &stated, out, &err) != PL_OK) fail_msg("%s", err.msg);
        assert_string_equal(f->name, "speculators");
        assert_true(stated && c.n_taps == 3 && c.tap[1] == 18 && c.num_hidden_layers == 1);
        assert_int_equal(c.vocab_size, i ? 151936 : 32000);
        assert_int_equal(c.intermediate_size, i ? 22016 : 11008);
        assert_int_equal(c.max_position_embeddings, i ? 32768 : 2048);
        assert_true(c.hidden_size == 4096 && c.head_dim == 128 && c.num_key_value_heads == 8);
    }
}

// EAGLE-1 drafters have their target's head, and no norms but one.
static void eagle1(void **state) {
    (void)state;
    static const float  ones[48] = {1};
    pl_backbone_options plain = {0}, own = {.own_head = true};
    pl_import_told      told;
    pl_err              err = {0};
    test_backbone_write(checkpoint, &model, &pl_backbone_eagle1, &own, 47);
    assert_int_equal(pl_import(&(pl_import_options){checkpoint, target, back, PL_HF_TAPS_UNSTATED}, &told, &err),
                     PL_E_INPUT);
    assert_non_null(strstr(err.msg, "own kind of checkpoint already"));
    test_backbone_write(checkpoint, &model, &pl_backbone_eagle1, &plain, 47);
    told = import_as(checkpoint, PL_HF_TAPS_UNSTATED);
    assert_string_equal(told.format, "eagle1");
    assert_string_equal(told.head, "target");
    assert_int_equal(told.n_taps, 0);
    same_weights(checkpoint, back);
    snprintf(out, sizeof out, "%s/drafter", base); // which is changed in place
    served_replace(out, "norm.weight",
                   &(pl_st_source){.name = "norm.weight", .dtype = PL_F32, .rank = 1, .shape = {48}, .data = ones});
    refused(PL_HF_TAPS_UNSTATED, "tensor \"norm.weight\": none that this program computes with");
    served_replace(out, "norm.weight", &(pl_st_source){.name = "norm.weight"});
    served_edit(out, "\"bias\": false", "\"bias\": true");
    refused(PL_HF_TAPS_UNSTATED, "has no fc.bias");
    snprintf(out, sizeof out, "%s/out", base);
}

// Half precision, as most are published: with a copy of the target's embeddings as near as halves can be.
static void halves(void **state) {
    (void)state;
    write_drafter("full", 0, NULL);
    export_to("speculators", checkpoint, out);
    pl_st      *st = served_open(out);
    const char *names[32];
    int64_t     n = pl_st_count(st);
    for (int64_t i = 0; i < n; i++)
        names[i] = pl_strdup(pl_st_at(st, i)->name);
    pl_st_close(st);
    for (int64_t i = 0; i < n; i++) {
        st = served_open(out);
        const pl_st_entry *e = pl_st_find(st, names[i]);
        pl_st_source       s = {.name = names[i], .dtype = PL_F16, .rank = e->rank};
        int64_t            count = 1;
        for (int r = 0; r < e->rank; r++)
            count *= s.shape[r] = e->shape[r];
        float    *wide = pl_malloc((size_t)count * sizeof *wide);
        uint16_t *half = pl_malloc((size_t)count * sizeof *half);
        pl_to_f32(wide, e->data, e->dtype, (size_t)count);
        pl_from_f32(half, PL_F16, wide, (size_t)count);
        s.data = half;
        pl_st_close(st);
        served_replace(out, names[i], &s);
        pl_free(wide);
        pl_free(half);
    }
    import_as(out, PL_HF_TAPS_UNSTATED);
    st = served_open(back);
    assert_int_equal(pl_st_find(st, "fc.weight")->dtype, PL_F16);
    assert_null(pl_st_find(st, "embed_tokens.weight"));
    pl_st_close(st);
    pl_err       err = {0};
    pl_backbone *b;
    if (pl_backbone_open(&b, back, &model, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_backbone_destroy(b);
    for (int64_t i = 0; i < n; i++)
        pl_free((void *)names[i]);
}

// Members by which engines compute otherwise, and TensorRT-LLM's name for one that is known.
static void engines_members(void **state) {
    (void)state;
    static const struct {
        const char *top, *inner, *says;
    } cases[] = {{"\"rope_is_neox_style\": false, ", "", "rope_is_neox_style: false is not supported"},
                 {"\"use_gemma_norm\": true, ", "", "use_gemma_norm: true is not supported"},
                 {"\"logit_scale\": 2, ", "", "logit_scale: 2 is not supported"},
                 {"", "\"eh_proj_before_attn\": true, ", "eh_proj_before_attn: true is not supported"},
                 {"\"logit_scale\": 1.0, \"is_neox_style\": true, ", "\"return_hidden_post_norm\": true, ", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *top = pl_sprintf("{%s", cases[i].top), *inner = pl_sprintf("\"eagle_config\": {%s", cases[i].inner);
        write_drafter("full", 0, NULL);
        export_to("trtllm", checkpoint, out);
        served_edit(out, "\"eagle_config\": {", inner);
        served_edit(out, "{", top);
        pl_free(top);
        pl_free(inner);
        if (cases[i].says) {
            refused(PL_HF_TAPS_UNSTATED, cases[i].says);
            continue;
        }
        import_as(out, PL_HF_TAPS_UNSTATED);
        char *text = served_text(back, "config.json");
        assert_non_null(strstr(text, "\"norm_output\": true"));
        pl_free(text);
    }
}

// ---- blocks ----

static void write_block(const pl_backbone_options *o) {
    test_backbone_write(checkpoint, &model, &pl_backbone_dflash, o, 47);
    test_rmdir(out);
    assert_int_equal(pl_dir_make(out, NULL), PL_OK);
    static const char *const files[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        char *from = pl_path_join(checkpoint, files[i]), *to = pl_path_join(out, files[i]);
        assert_int_equal(link(from, to), 0);
        pl_free(from);
        pl_free(to);
    }
}

static void same_config(const char *a, const char *b) {
    char *first = served_text(a, "config.json"), *second = served_text(b, "config.json");
    if (strcmp(first, second) != 0) print_message("%s", second);
    assert_string_equal(first, second);
    pl_free(first);
    pl_free(second);
}

static void flash(void) {
    write_block(&(pl_backbone_options){.layers = 3, .block = 5, .mask_token = 6, .n_taps = 3, .tap = {2, 4, 5}});
}

static void spark(void) {
    pl_hf_head head = pl_hf_head_make("markov", 7);
    pl_hf_head_set_flag(&head, "confidence", true);
    write_block(&(pl_backbone_options){
        .head = head, .layers = 2, .block = 4, .mask_token = 3, .anchor_first = true, .n_taps = 2, .tap = {3, 6}});
}

// config.json of `out` without what is ours, with `inner` in dflash_config and `top` at the top.
static void as_published(const char *architecture, const char *inner, const char *top) {
    char *in = pl_sprintf("\"dflash_config\": {%s", inner), *at = pl_sprintf("{%s", top);
    served_edit(out, "PacelineDFlash", architecture);
    served_drop(out, "paceline");
    served_drop(out, "dflash_config.sample_from_anchor");
    served_edit(out, "\"dflash_config\":\t{", in);
    served_edit(out, "{", at);
    pl_free(in);
    pl_free(at);
}

static void expect_block(const char *head, int first_tap) {
    pl_import_told told = import_as(out, PL_HF_TAPS_UNSTATED);
    assert_string_equal(told.format, "dflash");
    assert_string_equal(told.head, head);
    assert_string_equal(told.numbering, "format");
    assert_int_equal(told.tap[0], first_tap);
    same_weights(checkpoint, back);
    same_config(checkpoint, back);
}

// As z-lab, SpecForge and DeepSpec write them: the checkpoint that they are.
static void blocks(void **state) {
    (void)state;
    flash();
    expect_block("target", 2);
    flash();
    served_edit(out, "\"dflash_config\": {", "\"dflash_config\": {\"projector_type\": \"dflash\", ");
    expect_block("target", 2);
    spark();
    as_published("DSparkDraftModel",
                 "\"projector_type\": \"dspark\", \"attention_mode\": \"gqa\", \"markov_rank\": 7, "
                 "\"markov_head_type\": \"vanilla\", \"enable_confidence_head\": true, "
                 "\"confidence_head_with_markov\": true, \"confidence_head_alpha\": 1.0, ",
                 "");
    expect_block("markov", 3);
    spark();
    as_published("Qwen3DSparkModel", "\"unused\": null, ",
                 "\"markov_rank\": 7, \"enable_confidence_head\": true, \"mask_token_id\": 3, "
                 "\"target_layer_ids\": [2, 5], ");
    served_drop(out, "dflash_config");
    expect_block("markov", 3);
}

static pl_hf_selector lilicorr(void) {
    return (pl_hf_selector){
        .rank = 5, .candidates = 8, .kind = PL_HF_LATTICE, .width = 16, .heads = 2, .eps = 1e-4, .mlp_ratio = 1.5};
}

// LiLiCorr as ModelOpt writes it: with members of its own, one of which says that the head is on.
static void lattice(void **state) {
    (void)state;
    write_block(&(pl_backbone_options){
        .layers = 1, .block = 4, .mask_token = 3, .n_taps = 2, .tap = {3, 6}, .selector = lilicorr()});
    export_to("sglang", checkpoint, out);
    served_edit(out, "\"dflash_config\": {", "\"attention_dropout\": 0.0, \"dflash_config\": {\"causal\": false, ");
    expect_block("target", 3);
    served_edit(out, "\"lilicorr_enabled\": true", "\"lilicorr_enabled\": false");
    refused(PL_HF_TAPS_UNSTATED, "a selector that is switched off");
    export_to("sglang", checkpoint, out);
    served_edit(out, "lilicorr_vector_eps", "unused");
    refused(PL_HF_TAPS_UNSTATED, "lilicorr_vector_eps: missing");
    export_to("sglang", checkpoint, out);
    served_edit(out, "\"lilicorr_num_heads\": 2", "\"lilicorr_num_heads\": 4");
    refused(PL_HF_TAPS_UNSTATED, "lilicorr.relative_slot_bias is [2, 7], expected [4, 7]");
}

// Out to every engine that reads blocks and back, heads of their own where the engine takes them.
static void blocks_round_trips(void **state) {
    (void)state;
    for (int e = 0; pl_export_engine_at(e); e++) {
        const pl_export_engine *engine = pl_export_engine_at(e);
        if (!engine->blocks || engine->file) continue;
        for (int kind = 0; kind < 11; kind++) {
            pl_backbone_options o = {.layers = 2, .block = 6, .mask_token = 9, .n_taps = 3, .tap = {2, 4, 5}};
            bool                own = kind == 3 || kind == 4, refined = kind == 8, lattice = kind > 8;
            if (own && !engine->block_heads) continue;
            if (refined && !engine->classes[PL_EXPORT_XPRESS]) continue;
            if (lattice && !engine->classes[PL_EXPORT_LILICORR]) continue;
            if (kind > 5 && kind < 8 && !(engine->markov & 1U << (kind - 5))) continue;
            if (kind == 1 && !(engine->markov & PL_EXPORT_NO_MARKOV)) continue;
            if (kind == 5 && !engine->classes[PL_EXPORT_DFLASH2]) continue;
            bool spark = kind == 2 || (kind > 5 && kind < 8);
            o.anchor_first = kind == 1 || spark;
            if (spark) o.head = pl_hf_head_make("markov", 7);
            if (refined) o.head = pl_hf_head_of("xpress:rank=7,mlp_ratio=3,passes=4");
            if (spark && kind > 5) pl_hf_head_set_text(&o.head, "form", pl_hf_markov_name(kind - 5));
            if (spark) pl_hf_head_set_flag(&o.head, "confidence", true);
            if (own) o.own_head = true, o.d2t = some_tokens(), o.draft_vocab = DRAFTED;
            if (kind == 4) o.head = pl_hf_head_make("lowrank", RANK);
            if (kind == 5) o.conv_taps = 2, o.conv_group = 8, o.selector = (pl_hf_selector){.rank = 5, .candidates = 9};
            if (lattice) o.selector = lilicorr();
            if (kind == 10) o.conv_taps = 2, o.conv_group = 8, o.selector.width = 0;
            write_block(&o);
            export_to(engine->name, checkpoint, out);
            expect_block(kind == 4 ? "lowrank" : own ? "full" : spark ? "markov" : refined ? "xpress" : "target", 2);
            export_to(engine->name, back, again);
            same_weights(out, again);
            same_config(out, again);
        }
    }
}

// Several layers and EAGLE-3.1's norms, at the engines that compute them and refused by name at the others.
static void later_eagle3(void **state) {
    (void)state;
    const struct {
        pl_backbone_options     o;
        const char             *at;   // engines, each with a blank behind it
        const char             *says; // the others' refusal; NULL: a norm, TensorRT-LLM: the number of layers
        const pl_backbone_kind *kind; // NULL: EAGLE-3's
    } cases[] = {
        {{.layers = 2, .block = 5, .mask_token = 9, .norm_before_fc = true},
         "vllm speculators ",
         "a P-EAGLE drafter, which ",
         &pl_backbone_peagle},
        {{.head = pl_hf_head_make("lowrank", RANK), .block = 3, .mask_token = 9, .norm_before_residual = true},
         "vllm speculators ",
         "a P-EAGLE drafter, which ",
         &pl_backbone_peagle},
        {{.layers = 3}, "vllm sglang speculators ", "3 layers, ", NULL},
        {{.layers = 2, .fc_norm = true, .norm_output = true}, "vllm sglang speculators ", NULL, NULL},
        {{.fc_norm = true, .norm_output = true}, "vllm sglang speculators trtllm ", "trained with fc_norm", NULL},
        {{.norm_before_fc = true}, "vllm sglang speculators trtllm gguf ", "trained with norm_before_fc, which ", NULL},
        {{.norm_before_residual = true}, "vllm speculators gguf ", "trained with norm_before_residual, which ", NULL},
        {{.own_embed = true}, "vllm speculators eagle gguf ", "has embeddings of its own, in whose place ", NULL},
        {{.width = 36}, "vllm sglang trtllm eagle gguf ", "of width 36 for a target of 48, where ", NULL},
    };
    char served[96];
    snprintf(served, sizeof served, "%s/served.gguf", base);
    served_gguf(served, LAYERS, TEST_VOCAB);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_backbone_options o = cases[i].o;
        o.n_taps = 3;
        memcpy(o.tap, TAPS, sizeof TAPS);
        test_backbone_write(checkpoint, &model, cases[i].kind ? cases[i].kind : &pl_backbone_eagle3, &o, 43);
        for (int e = 0; pl_export_engine_at(e); e++) {
            const pl_export_engine *engine = pl_export_engine_at(e);
            char                    name[32], *serve;
            pl_err                  err = {0};
            snprintf(name, sizeof name, "%s ", engine->name);
            if (!strstr(cases[i].at, name)) {
                bool        layers = strcmp(engine->name, "trtllm") == 0;
                const char *to = engine->file ? served : target, *says = cases[i].says;
                if (!says) says = layers ? "2 layers, trtllm serves at most 1" : "trained with fc_norm, which ";
                assert_true(pl_export_write(engine, checkpoint, to, out, false, &env, &serve, &err) != PL_OK);
                if (!strstr(err.msg, says)) fail_msg("%s: %s", engine->name, err.msg);
            } else if (!engine->file) {
                export_to(engine->name, checkpoint, out);
                served_told held = served_check(engine->name, out, target);
                if (*held.broken || *held.unseen) fail_msg("%s: %s", engine->name, held.why);
                import_as(out, PL_HF_TAPS_UNSTATED);
                same_weights(checkpoint, back);
                export_to(engine->name, back, again);
                same_weights(out, again);
                same_config(out, again);
            }
        }
    }
}

// speculators' form of DSpark that is silent about its anchor is read in two ways.
static void silent_anchor(void **state) {
    (void)state;
    char  *said = NULL;
    size_t n = 0;
    spark();
    export_to("speculators", checkpoint, again);
    for (int silent = 0; silent < 2; silent++) {
        FILE *f = open_memstream(&said, &n);
        if (silent) served_drop(again, "sample_from_anchor");
        pl_log_to(f);
        import_as(again, PL_HF_TAPS_UNSTATED);
        pl_log_to(NULL);
        fclose(f);
        assert_int_equal(strstr(said, "sample_from_anchor is missing; taken as true") != NULL, silent);
        free(said);
        same_config(checkpoint, back);
    }
}

static void blocks_refused(void **state) {
    (void)state;
    static const struct {
        const char *inner, *top, *says;
    } cases[] = {
        {"\"markov_rank\": 7, \"markov_head_type\": \"lstm\", ", "", "a lstm Markov head of DSpark"},
        {"\"markov_rank\": 7, \"markov_head_type\": \"gated\", ", "", "markov_head.gate_proj.weight"},
        {"\"markov_rank\": 7, \"attention_mode\": \"mla\", ", "", "a DSpark drafter with mla attention"},
        {"\"markov_rank\": 7, ", "\"attention_mode\": \"mla\", ", "a DSpark drafter with mla attention"},
        {"\"markov_rank\": 7, \"projector_type\": \"domino\", ", "", "a domino drafter"},
        {"\"markov_rank\": 7, \"confidence_head_with_markov\": false, ", "", "without the token before"},
        {"\"markov_rank\": 7, \"block_size\": 5, ", "", "block_size: 5, and 4 at the top"},
        {"\"markov_rank\": 7, \"shift_label\": true, ", "", "shift_label"},
        {"\"markov_rank\": 7, \"use_swa\": true, ", "", "use_swa"},
        {"\"markov_rank\": 7, \"attention_sink_bias\": true, ", "", "attention_sink_bias"},
        {"\"markov_rank\": 7, \"final_logit_softcapping\": 30.0, ", "", "final_logit_softcapping"},
        {"\"markov_rank\": 7, \"input_embedding_scale\": 1.0, \"attention_value_scale\": 0.6, ", "",
         "attention_value_scale"},
        {"\"markov_rank\": 7, \"input_embedding_scale\": 2, ", "", "input_embedding_scale"},
        {"\"markov_rank\": 7, ", "\"is_neox_style\": false, ", "is_neox_style: false is not supported"},
        {"\"markov_rank\": 7, ", "\"logit_scale\": 0.5, ", "logit_scale: 0.5 is not supported"},
        {"\"markov_rank\": 9, ", "", "markov_w1.weight is [97, 7], expected [97, 9]"},
        {"\"markov_rank\": 7, \"enable_confidence_head\": false, ", "", "tensor \"confidence_head.proj"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spark();
        as_published("DSparkDraftModel", cases[i].inner, cases[i].top);
        refused(PL_HF_TAPS_UNSTATED, cases[i].says);
    }
    flash();
    refused(PL_HF_TAPS_INPUT, "--numbering: a block drafter's config.json says how it counts layers");
    served_edit(out, "\"num_target_layers\": 8", "\"num_target_layers\": 9");
    refused(PL_HF_TAPS_UNSTATED, "made for a target of 9 layers");
    flash();
    served_edit(out, "\"target_layer_ids\": [\n      1", "\"target_layer_ids\": [-1");
    refused(PL_HF_TAPS_UNSTATED, "the embeddings, which a block drafter is not given here");
    flash();
    served_edit(out, "\"target_layer_ids\": [\n      1", "\"target_layer_ids\": [30");
    refused(PL_HF_TAPS_UNSTATED, "target_layer_ids: reads the output of layer 30");
    flash();
    served_edit(out, "\"target_layer_ids\"", "\"target_layers\"");
    refused(PL_HF_TAPS_UNSTATED, "target_layer_ids: missing");
    flash();
    served_edit(out, "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 17");
    refused(PL_HF_TAPS_UNSTATED, "17 layers, at most 16 in such a drafter");
    flash();
    served_replace(out, "layers.2.self_attn.q_norm.weight", &(pl_st_source){.name = "norm.weight"});
    refused(PL_HF_TAPS_UNSTATED, "has no layers.2.self_attn.q_norm.weight");
}

// Configs as they were published: read, or refused by the kind of drafter or of RoPE that they name.
static void published_configs(void **state) {
    (void)state;
    static const char *const kinds[] = {"sliding_window",     "block_size",       "Domino",
                                        "mask_token_id",      "latent attention", "use_qk_norm",
                                        "EAGLE-3 for speech", "\"mrope\"",        "multimodal RoPE"};
    const char              *data = getenv("PACELINE_TEST_DATA");
    if (!data) skip();
    int read = 0, by_kind = 0, named = 0;
    for (int i = 0; i < 5; i++) {
        static const char *const from[] = {"AngelSlim", "EAGLE", "HASS", "SpecForge", "TorchSpec"};
        char                     dir[600];
        struct dirent          **e;
        snprintf(dir, sizeof dir, "%s/configs/%s", data, from[i]);
        int n = scandir(dir, &e, NULL, alphasort);
        if (n < 0) skip();
        for (int k = 0; k < n; k++) {
            pl_hf_config            c;
            const pl_import_format *f;
            bool                    stated;
            pl_err                  err = {0};
            char                   *path = pl_path_join(dir, e[k]->d_name);
            if (pl_path_ends(path, ".json")) {
                pl_status st = pl_import_config(&c, &f, &stated, path, &err);
                bool      known = false;
                for (size_t x = 0; x < sizeof kinds / sizeof *kinds; x++)
                    known |= strstr(err.msg, kinds[x]) != NULL;
                if (st != PL_OK && !known) fail_msg("%s", err.msg);
                read += st == PL_OK;
                by_kind += st != PL_OK;
                named += st == PL_OK && c.n_taps > 0;
                if (st == PL_OK) assert_true(strcmp(f->name, "speculators") != 0);
            }
            pl_free(path);
            free(e[k]);
        }
        free(e);
    }
    print_message("%d published configs read (%d name their layers), %d refused by name\n", read, named, by_kind);
    assert_int_equal(read + by_kind, 87);
    assert_true(read > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(own_embeddings),
        cmocka_unit_test(no_own_embeddings),
        cmocka_unit_test(round_trips),
        cmocka_unit_test(later_eagle3),
        cmocka_unit_test(numbering),
        cmocka_unit_test(maps),
        cmocka_unit_test(unfilled_maps),
        cmocka_unit_test(copied_tie),
        cmocka_unit_test(names),
        cmocka_unit_test(left_out),
        cmocka_unit_test(eagle1),
        cmocka_unit_test(halves),
        cmocka_unit_test(engines_members),
        cmocka_unit_test(blocks),
        cmocka_unit_test(lattice),
        cmocka_unit_test(blocks_refused),
        cmocka_unit_test(silent_anchor),
        cmocka_unit_test(blocks_round_trips),
        cmocka_unit_test(published_configs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
