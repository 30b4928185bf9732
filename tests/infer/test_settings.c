// Settings that stand in several places: whatever opens a target has the same output matrix, the same tokens that
// end an answer, and hears of tensors that the model has no part for.
#include "tests/infer/fixture.h"
#include "tests/infer/served.h"

#include "infer/decode/runner.h"
#include "infer/model/target.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "train/source/teacher.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char EMBED[] = "model.embed_tokens.weight", HEAD[] = "lm_head.weight";
enum { WIDTH = 48 };
static char   base[64], dir[80];
static char  *said;
static size_t said_bytes;
static FILE  *hears;

static int setup(void **state) {
    (void)state;
    test_mkdir(base);
    snprintf(dir, sizeof dir, "%s/target", base);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_rmdir(base);
    return 0;
}

static void listen(void) {
    free(said);
    said = NULL;
    hears = open_memstream(&said, &said_bytes);
    pl_log_to(hears);
}

static const char *heard(void) {
    pl_log_to(NULL);
    fclose(hears);
    return said;
}

// A target with both matrices in its file, not tied; `more` goes into its config.json in place of the flag.
static void make(const char *more) {
    pl_err   err = {0};
    pl_llama m;
    assert_int_equal(pl_tree_remove(dir, &err), PL_OK);
    assert_int_equal(pl_dir_make(dir, &err), PL_OK);
    test_target(&m, dir, 2, 41, PL_BF16);
    pl_llama_fini(&m);
    served_edit(dir, "\"tie_word_embeddings\": false", more);
}

// A tensor of the file, copied.
static void *copy_of(const char *name, pl_st_source *as) {
    pl_st             *st = served_open(dir);
    const pl_st_entry *e = pl_st_find(st, name);
    assert_non_null(e);
    void *data = malloc(e->bytes);
    memcpy(data, e->data, e->bytes);
    *as = (pl_st_source){.name = as->name, .dtype = e->dtype, .rank = e->rank, .data = data};
    memcpy(as->shape, e->shape, sizeof as->shape);
    pl_st_close(st);
    return data;
}

// ---- members of generation_config.json that are not applied

static void generation(void **state) {
    (void)state;
    static const struct {
        const char *text, *says; // NULL: nothing
    } cases[] = {
        {"{\"repetition_penalty\": 1.05, \"do_sample\": true, \"temperature\": 0.7, \"top_p\": 0.8, \"top_k\": 20}",
         "generation_config.json: repetition_penalty 1.05: not applied here"},
        {"{\"stop_strings\": [\"User:\"], \"suppress_tokens\": [3], \"begin_suppress_tokens\": [2, 5]}",
         ": suppress_tokens, begin_suppress_tokens, stop_strings: not applied here"},
        {"{\"bad_words_ids\": [[7, 8]], \"no_repeat_ngram_size\": 3}", ": no_repeat_ngram_size 3, bad_words_ids: not"},
        {"{\"forced_eos_token_id\": 2, \"min_new_tokens\": 4}", ": forced_eos_token_id 2, min_new_tokens 4: not"},
        {"{\"presence_penalty\": 1.5, \"sequence_bias\": [[[4], -1.0]]}", ": presence_penalty 1.5, sequence_bias: not"},
        {"{\"repetition_penalty\": 1.0, \"no_repeat_ngram_size\": 0, \"bad_words_ids\": null, \"stop_strings\": [], "
         "\"num_beams\": 1, \"typical_p\": 1.0, \"min_length\": 0, \"max_length\": 20, \"suppress_tokens\": null}",
         NULL}};
    char path[300];
    make("\"tie_word_embeddings\": false");
    snprintf(path, sizeof path, "%s/generation_config.json", dir);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err    err = {0};
        pl_target t;
        assert_int_equal(pl_file_write_atomic(path, cases[i].text, strlen(cases[i].text), &err), PL_OK);
        listen();
        assert_int_equal(pl_target_open(&t, dir, NULL, NULL, PL_WEIGHTS_BF16, pl_backend_cpu(), &err), PL_OK);
        pl_target_close(&t);
        const char *line = heard();
        if (cases[i].says ? !strstr(line, cases[i].says) : *line) fail_msg("%s: \"%s\"", cases[i].text, line);
    }
}

// ---- the output matrix

static const char TIED[] = "\"tie_word_embeddings\": true";

typedef enum heads { OWN, SAME, SAME_WIDE, ABSENT, ALONE } heads;

static void put_heads(heads h) {
    pl_st_source s = {.name = HEAD};
    void        *data = copy_of(EMBED, &s);
    float       *wide = malloc((size_t)TEST_VOCAB * WIDTH * sizeof *wide);
    if (h == SAME_WIDE) {
        pl_to_f32(wide, data, s.dtype, (size_t)TEST_VOCAB * WIDTH);
        s.dtype = PL_F32, s.data = wide;
    }
    if (h == ABSENT) s = (pl_st_source){.name = HEAD};
    if (h != OWN) served_replace(dir, HEAD, &s);
    if (h == ALONE) served_replace(dir, EMBED, &(pl_st_source){.name = EMBED});
    free(wide);
    free(data);
}

typedef struct answer {
    int32_t id[24];
    int     n;
} answer;

static bool take(void *arg, int32_t id) {
    answer *a = arg;
    if (a->n < 24) a->id[a->n++] = id;
    return true;
}

static answer decode(const char *what) {
    pl_err            err = {0};
    pl_target         t;
    pl_runner         r;
    answer            a = {0};
    const int32_t     prompt[] = {3, 1, 4, 1, 5};
    pl_runner_options o = {.max_len = 64};
    if (pl_target_open(&t, dir, NULL, NULL, PL_WEIGHTS_BF16, pl_backend_cpu(), &err) != PL_OK)
        fail_msg("%s: %s", what, err.msg);
    assert_int_equal(pl_runner_open(&r, pl_backend_cpu(), NULL, &t, &o, &err), PL_OK);
    assert_int_equal(pl_runner_run(&r, prompt, 5, &(pl_sampling){.top_p = 1}, 24, take, &a, &err), PL_OK);
    pl_runner_close(&r);
    pl_target_close(&t);
    return a;
}

static bool same_answer(const answer *a, const answer *b) {
    return a->n == b->n && memcmp(a->id, b->id, (size_t)a->n * sizeof *a->id) == 0;
}

// What the teacher of training has as output matrix: the embeddings, or another.
static bool teacher_ties(const char *what) {
    pl_err     err = {0};
    pl_teacher t;
    if (pl_teacher_open(&t, dir, PL_BF16, pl_backend_cpu(), false, NULL, &err) != PL_OK)
        fail_msg("%s: %s", what, err.msg);
    bool tied = memcmp(t.host_head.data, t.host_embed.data, (size_t)TEST_VOCAB * WIDTH * 2) == 0;
    assert_true(tied || !t.model.config.tie_word_embeddings);
    pl_teacher_close(&t);
    return tied;
}

static bool matrix_is_embedding(void) {
    pl_err            err;
    pl_hf_config      c;
    pl_weight_source *src;
    assert_int_equal(pl_llama_source(&src, &c, dir, &err), PL_OK);
    bool is = strcmp(pl_llama_matrix(src, &c, true)->name, HEAD) != 0 || c.tie_word_embeddings;
    pl_weight_source_close(src);
    return is;
}

// transformers 5.24 (PreTrainedModel.tie_weights): both in the file and not equal: they stay two matrices, with a
// warning; else one.
static void one_output_matrix(void **state) {
    (void)state;
    static const struct {
        const char *what;
        heads       file;
        bool        config, tied, warned;
    } cases[] = {
        {"not tied", OWN, false, false, false},
        {"tied in config.json, another matrix in the file", OWN, true, false, true},
        {"tied, the same matrix twice", SAME, true, true, false},
        {"tied, the same matrix in another type", SAME_WIDE, true, true, false},
        {"tied, the embeddings alone", ABSENT, true, true, false},
        {"tied, the output matrix alone", ALONE, true, true, false},
        {"not tied, the same matrix twice", SAME, false, false, false},
    };
    answer own = {0}, tied = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make(cases[i].config ? TIED : "\"tie_word_embeddings\": false");
        put_heads(cases[i].file);
        listen();
        answer      a = decode(cases[i].what);
        bool        teaches = teacher_ties(cases[i].what), is = matrix_is_embedding();
        const char *line = heard();
        bool        equal = cases[i].tied || cases[i].file == SAME;
        if (i == 0) own = a;
        if (i == 2) tied = a;
        if (!same_answer(&a, i < 2 ? &own : i > 2 ? &tied : &a))
            fail_msg("%s: decodes by another matrix", cases[i].what);
        if (teaches != equal && cases[i].file != SAME) fail_msg("%s: teaches by another matrix", cases[i].what);
        if (is != cases[i].tied) fail_msg("%s: import and export take another matrix", cases[i].what);
        if ((strstr(line, "ties the output matrix") != NULL) != cases[i].warned)
            fail_msg("%s: \"%s\"", cases[i].what, line);
        if (cases[i].warned && strstr(strstr(line, "ties") + 1, "ties the output matrix"))
            fail_msg("%s: the line is there twice", cases[i].what);
    }
    assert_false(same_answer(&own, &tied));
}

// ---- tensors of no part

static void tensors_of_no_part(void **state) {
    (void)state;
    static const struct {
        const char *name[5];
        const char *line; // NULL: nothing is said
    } cases[] = {
        {{NULL}, NULL},
        {{"model.layers.0.self_attn.o_proj.bias"}, NULL}, // of zeros
        {{"model.layers.0.self_attn.q_proj.bias"},
         "model.layers.0.self_attn.q_proj.bias: of no part of LlamaForCausalLM"},
        {{"model.layers.2.mlp.up_proj.weight"}, "model.layers.2.mlp.up_proj.weight: of no part"},
        {{"model.layers.0.mlp.up_proj.weight_scale", "model.layers.1.mlp.up_proj.weight_scale"},
         "weight_scale, model."},
        {{"base_model.model.lora_A.weight", "a.norm", "b.norm", "c.norm", "d.norm"}, " and 2 more: of no part"},
        {{"model.layers.0.self_attn.rotary_emb.inv_freq"}, NULL},
        {{"vision_tower.patch.weight", "multi_modal_projector.weight"}, NULL},
    };
    static const float value[4] = {1, 2, 3, 4}, zero[4];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make("\"tie_word_embeddings\": false");
        for (int k = 0; k < 5 && cases[i].name[k]; k++)
            served_replace(dir, cases[i].name[k],
                           &(pl_st_source){.name = cases[i].name[k],
                                           .dtype = PL_F32,
                                           .rank = 1,
                                           .shape = {4},
                                           .data = strstr(cases[i].name[k], "o_proj.bias") ? zero : value});
        listen();
        decode(cases[i].name[0] ? cases[i].name[0] : "plain");
        teacher_ties("");
        const char *line = heard(), *first = strstr(line, "of no part");
        if (cases[i].line ? !strstr(line, cases[i].line) : *line) fail_msg("case %zu: \"%s\"", i, line);
        if (first && strstr(first + 1, "of no part")) fail_msg("case %zu: said twice", i);
    }
}

// ---- what ends an answer

// Places of EOS, and the tokens at which engines stop: vLLM the tokenizer's beside generation_config's, SGLang it beside
// config.json's.
static void what_ends_an_answer(void **state) {
    (void)state;
    static const char *const pieces[] = {"<unk>", "<s>", "</s>", "a", "b", "c", NULL}, *const merges[] = {NULL};
    static const struct {
        const char *config, *generation, *tokenizer, *map;
        int32_t     stop[4]; // ended by -1
        bool        warned;
    } cases[] = {
        {"5", NULL, NULL, NULL, {5, -1}, false}, // "</s>" of the vocabulary is a guess
        {"null", NULL, NULL, NULL, {2, -1}, false},
        {"5", NULL, "{\"eos_token\":\"c\"}", NULL, {5, -1}, false},
        {"5", NULL, "{\"eos_token\":\"a\"}", NULL, {5, 3, -1}, true},
        {"5", NULL, "{\"eos_token\":{\"content\":\"a\"}}", NULL, {5, 3, -1}, true},
        {"5", NULL, NULL, "{\"eos_token\":\"a\"}", {5, 3, -1}, true},
        {"5", NULL, NULL, "{\"eos_token\":{\"content\":\"b\",\"lstrip\":false}}", {5, 4, -1}, true},
        {"null", "{\"eos_token_id\":[4,5]}", "{\"eos_token\":\"a\"}", NULL, {4, 5, 3, -1}, true},
        {"[5,4]", "{\"eos_token_id\":[4,3]}", "{\"eos_token\":\"a\"}", NULL, {5, 4, 3, -1}, false},
        {"null", NULL, "{\"eos_token\":\"a\"}", NULL, {3, -1}, false},
        {"99", NULL, "{\"eos_token\":\"a\"}", NULL, {3, -1}, true},
        {"[99,5]", NULL, NULL, NULL, {5, -1}, true},
        {"-1", NULL, "{\"eos_token\":null}", NULL, {2, -1}, false},
    };
    const char *const files[] = {"generation_config.json", "tokenizer_config.json", "special_tokens_map.json"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char              eos[64];
        pl_target         t;
        pl_err            err = {0};
        const char *const text[] = {cases[i].generation, cases[i].tokenizer, cases[i].map};
        make("\"tie_word_embeddings\": false");
        test_tokenizer_write(dir, pieces, merges);
        snprintf(eos, sizeof eos, "\"eos_token_id\": %s", cases[i].config);
        served_edit(dir, "\"eos_token_id\": null", eos);
        for (int k = 0; k < 3; k++) {
            char *path = pl_path_join(dir, files[k]);
            if (text[k]) assert_int_equal(pl_file_write_atomic(path, text[k], strlen(text[k]), &err), PL_OK);
            pl_free(path);
        }
        listen();
        if (pl_target_open(&t, dir, NULL, NULL, PL_WEIGHTS_BF16, pl_backend_cpu(), &err) != PL_OK)
            fail_msg("%s", err.msg);
        uint64_t    hash = pl_target_stops_hash(&t.model.config, t.tok);
        const char *line = heard();
        int         n = 0;
        while (cases[i].stop[n] >= 0)
            n++;
        if (t.n_stop != n || memcmp(t.stop, cases[i].stop, (size_t)n * sizeof *t.stop) != 0)
            fail_msg("case %zu: %d stops, %d, %d, ...", i, t.n_stop, t.stop[0], t.stop[1]);
        if ((*line != 0) != cases[i].warned) fail_msg("case %zu: \"%s\"", i, line);
        bool as_config = t.model.config.n_eos == n && memcmp(t.model.config.eos_token_id, t.stop, (size_t)n * 4) == 0;
        if ((hash == 0) != as_config) fail_msg("case %zu: hash %llx", i, (unsigned long long)hash);
        pl_target_close(&t);
    }
}

// A tokenizer of `pieces` pieces, and one more token by its configuration.
static void make_tokenizer(int pieces, bool special) {
    static char       name[TEST_VOCAB + 2][8];
    const char       *list[TEST_VOCAB + 2] = {NULL};
    const char *const merges[] = {NULL};
    char              config[160], *path = pl_path_join(dir, "tokenizer_config.json");
    for (int i = 0; i < pieces; i++) {
        snprintf(name[i], sizeof name[i], "p%d", i);
        list[i] = name[i];
    }
    test_tokenizer_write(dir, list, merges);
    snprintf(config, sizeof config, "{\"added_tokens_decoder\":{\"%d\":{\"content\":\"<t>\",\"special\":%s}}}", pieces,
             special ? "true" : "false");
    assert_int_equal(pl_file_write_atomic(path, config, strlen(config), NULL), PL_OK);
    pl_free(path);
}

// An added token that the model has no row for is none of its business until a prompt has it; a piece is another
// model's.
static void tokens_without_rows(void **state) {
    (void)state;
    static const struct {
        int  pieces;
        bool special, opens;
    } cases[] = {{TEST_VOCAB - 1, false, true},
                 {TEST_VOCAB, false, true},
                 {TEST_VOCAB, true, true},
                 {TEST_VOCAB + 1, false, false},
                 {TEST_VOCAB + 1, true, false}};
    make("\"tie_word_embeddings\": false");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_target t;
        pl_runner r;
        pl_err    err = {0};
        int32_t   prompt[] = {3, TEST_VOCAB};
        make_tokenizer(cases[i].pieces, cases[i].special);
        pl_status st = pl_target_open(&t, dir, NULL, NULL, PL_WEIGHTS_BF16, pl_backend_cpu(), &err);
        if ((st == PL_OK) != cases[i].opens) fail_msg("case %zu: %s", i, err.msg);
        if (st != PL_OK) {
            assert_non_null(strstr(err.msg, "it is another model's tokenizer"));
            continue;
        }
        assert_int_equal(pl_runner_open(&r, pl_backend_cpu(), NULL, &t, &(pl_runner_options){.max_len = 8}, &err),
                         PL_OK);
        assert_int_equal(pl_runner_run(&r, prompt, 2, &(pl_sampling){.top_p = 1}, 2, NULL, NULL, &err), PL_E_INPUT);
        assert_non_null(strstr(err.msg, "prompt token 1 is 97, outside the vocabulary of 97"));
        pl_runner_close(&r);
        pl_target_close(&t);
    }
}

// ---- positions

static pl_hf_config long_config(int positions) {
    pl_hf_config c;
    pl_hf_config_init(&c);
    strcpy(c.architecture, "LlamaForCausalLM");
    c.hidden_size = 16, c.intermediate_size = 16, c.num_hidden_layers = 3, c.vocab_size = 32;
    c.num_attention_heads = c.num_key_value_heads = 2, c.head_dim = 8;
    c.max_position_embeddings = positions;
    c.sliding_window = 4, c.windowed[0] = 5, c.local_theta = 50; // layers 0 and 2
    return c;
}

// Rotary tables have rows for what is used, whatever the model states: they grow to the same bits, and never beyond.
static void tables_grow(void **state) {
    (void)state;
    enum { STATED = 300000, FIRST = 1 << 12 };
    static const struct {
        int64_t asked, rows;
    } steps[] = {{1, FIRST},     {FIRST, FIRST},   {FIRST + 1, 2 * FIRST},
                 {5, 2 * FIRST}, {STATED, STATED}, {STATED + 9, STATED}};
    pl_hf_config c = long_config(STATED), few = long_config(700);
    pl_llama     grown, whole;
    pl_err       err = {0};
    assert_int_equal(pl_llama_init(&grown, &c, pl_backend_cpu(), false, &err), PL_OK);
    assert_int_equal(pl_llama_init(&whole, &c, pl_backend_cpu(), false, &err), PL_OK);
    assert_int_equal(pl_llama_reach(&whole, STATED, &err), PL_OK);
    assert_int_equal(whole.cos.dim[0], STATED);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(pl_llama_reach(&grown, steps[i].asked, &err), PL_OK);
        assert_int_equal(grown.cos.dim[0], steps[i].rows);
        size_t bytes = (size_t)(steps[i].rows * 4) * sizeof(float);
        assert_memory_equal(grown.cos.data, whole.cos.data, bytes);
        assert_memory_equal(grown.sin.data, whole.sin.data, bytes);
        assert_memory_equal(grown.local_cos.data, whole.local_cos.data, bytes);
        for (int l = 0; l < 3; l++) {
            assert_ptr_equal(grown.layer[l].cos.data, l == 1 ? NULL : grown.local_cos.data);
            assert_ptr_equal(grown.layer[l].sin.data, l == 1 ? NULL : grown.local_sin.data);
        }
    }
    pl_llama_fini(&grown);
    pl_llama_fini(&whole);
    assert_int_equal(pl_llama_init(&grown, &few, pl_backend_cpu(), false, &err), PL_OK);
    assert_int_equal(grown.cos.dim[0], 700);
    pl_llama_fini(&grown);
}

// Decoding past the first rows: the cache of an engine is what asks for them.
static void engines_reach(void **state) {
    (void)state;
    pl_err            err = {0};
    pl_target         t;
    pl_runner         r;
    pl_runner_options o = {.max_len = 140000};
    make("\"tie_word_embeddings\": false");
    served_edit(dir, "\"max_position_embeddings\": 256", "\"max_position_embeddings\": 10000000");
    assert_int_equal(pl_target_open(&t, dir, NULL, NULL, PL_WEIGHTS_BF16, pl_backend_cpu(), &err), PL_OK);
    assert_int_equal(t.model.cos.dim[0], 1 << 12);
    assert_int_equal(pl_runner_open(&r, pl_backend_cpu(), NULL, &t, &o, &err), PL_OK);
    assert_true(t.model.cos.dim[0] >= 140000);
    pl_runner_close(&r);
    pl_target_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(generation),          cmocka_unit_test(one_output_matrix),
                                       cmocka_unit_test(tensors_of_no_part),  cmocka_unit_test(what_ends_an_answer),
                                       cmocka_unit_test(tokens_without_rows), cmocka_unit_test(tables_grow),
                                       cmocka_unit_test(engines_reach)};
    int                     failed = cmocka_run_group_tests(tests, setup, teardown);
    free(said);
    return failed;
}
