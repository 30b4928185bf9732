// The vocabulary inside a GGUF file is the one that it was made from: the same ids, and the same fingerprint, so that
// datasets and checkpoints of the one go with the other. Every way in which such a file can be wrong has its line.
#include "data/tokenizer/pretok.h"
#include "data/tokenizer/spm_proto.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/gguf_texts.h"
#include "tok_fixture.h"

static const char *const texts[] = {
    "", "It was a dark evening, and the old man sat by the fire.", "  two  spaces\tand a tab\n\n\nlines",
    "caf\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87 \xF0\x9F\x99\x82 1234567 don't", "<s> </s> <|end|> <pad>"};
enum { TEXTS = sizeof texts / sizeof *texts };

static pl_tokenizer *open_path(const char *path, const char *pre) {
    pl_err        err;
    pl_tokenizer *tok;
    assert_ok(pl_tokenizer_open_pre(&tok, path, pre, &err));
    return tok;
}

static void assert_same(const pl_tokenizer *a, const pl_tokenizer *b) {
    assert_string_equal(pl_tokenizer_kind(a), pl_tokenizer_kind(b));
    assert_int_equal(pl_tokenizer_vocab_size(a), pl_tokenizer_vocab_size(b));
    assert_int_equal(pl_tokenizer_bos_id(a), pl_tokenizer_bos_id(b));
    assert_int_equal(pl_tokenizer_eos_id(a), pl_tokenizer_eos_id(b));
    assert_int_equal(pl_tokenizer_adds_bos(a), pl_tokenizer_adds_bos(b));
    assert_string_equal(pl_tokenizer_fingerprint(a), pl_tokenizer_fingerprint(b));
    for (int i = 0; i < TEXTS; i++)
        assert_same_ids(a, b, texts[i], strlen(texts[i]));
}

static void write_file(pl_gguf_out *o, const char *path) {
    pl_err err;
    assert_ok(pl_gguf_write(o, path, &err));
    pl_gguf_out_free(o);
}

// What llama.cpp's converter makes of a SentencePiece model.
static void convert_spm(const char *model, const char *to) {
    pl_err       err;
    uint8_t     *data;
    size_t       n;
    pl_spm_proto p;
    gguf_array   tokens = {0}, scores = {0}, types = {0};
    assert_ok(pl_file_read(model, &data, &n, 1 << 28, &err));
    assert_ok(pl_spm_proto_read(&p, model, data, n, &err));
    for (int32_t i = 0; i < p.n; i++) {
        gguf_text(&tokens, (const char *)p.pieces[i].s.p, p.pieces[i].s.n);
        gguf_float(&scores, p.pieces[i].score);
        gguf_int(&types, (int32_t)p.pieces[i].type);
    }
    pl_gguf_out *o = pl_gguf_out_new();
    assert_non_null(o);
    pl_gguf_put_text(o, "general.architecture", "llama");
    pl_gguf_put_text(o, "tokenizer.ggml.model", "llama");
    pl_gguf_put_text(o, "tokenizer.ggml.pre", "default");
    gguf_put_array(o, "tokenizer.ggml.tokens", &tokens);
    gguf_put_array(o, "tokenizer.ggml.scores", &scores);
    gguf_put_array(o, "tokenizer.ggml.token_type", &types);
    pl_gguf_put_u32(o, "tokenizer.ggml.unknown_token_id", 0);
    pl_gguf_put_u32(o, "tokenizer.ggml.bos_token_id", 1);
    pl_gguf_put_u32(o, "tokenizer.ggml.eos_token_id", 2);
    write_file(o, to);
    pl_spm_proto_fini(&p);
    pl_free(data);
}

static void test_llama(void **state) {
    (void)state;
    pl_err     err;
    pl_corpus *c = small_corpus();
    assert_ok(pl_spm_train(at("small.model"), c,
                           &(pl_spm_train_options){.vocab_size = 380, .byte_fallback = true, .quiet = true}, &err));
    convert_spm(at("small.model"), at("small.gguf"));
    pl_tokenizer *a = open_path(at("small.model"), NULL), *b = open_path(at("small.gguf"), NULL);
    assert_string_equal(pl_tokenizer_kind(b), "sentencepiece");
    assert_same(a, b);
    assert_same_ids(a, b, c->docs[0].text, c->docs[0].bytes);
    assert_round_trip(b, texts[3], strlen(texts[3]), PL_TOK_ADD_BOS);

    // A copy holds the vocabulary, under the name that stands for a folder.
    assert_ok(pl_dir_make(at("copy"), &err));
    assert_ok(pl_tokenizer_copy(b, at("small.gguf"), at("copy"), &err));
    pl_tokenizer *again = open_path(at("copy"), NULL);
    assert_same(a, again);
    pl_tokenizer_close(again);
    pl_tokenizer_close(a);
    pl_tokenizer_close(b);
    pl_corpus_destroy(c);
}

// ---- byte-level

static const char *const more[] = {"th", "the", "\xC4\xA0the", "aa", "aaaa"};
static const char *const merges[] = {"t h", "th e", "\xC4\xA0 the", "a a", "aa aa"};
enum { MORE = sizeof more / sizeof *more, FIRST_ADDED = 256 + MORE };

// The vocabulary without its keys for the model, the pre-tokenizer and the merges.
static pl_gguf_out *byte_level(void) {
    gguf_array tokens = {0}, types = {0};
    char       s[2];
    for (int b = 0; b < 256; b++)
        gguf_text(&tokens, s, (size_t)pl_byte_to_char((uint8_t)b, s));
    for (int i = 0; i < MORE; i++)
        gguf_text(&tokens, more[i], strlen(more[i]));
    gguf_text(&tokens, "<|end|>", 7);
    gguf_text(&tokens, "<pad>", 5);
    gguf_text(&tokens, "[unused]", 8); // a row of the matrix without a piece
    for (int i = 0; i < FIRST_ADDED; i++)
        gguf_int(&types, 1);
    gguf_int(&types, 3);
    gguf_int(&types, 4);
    gguf_int(&types, 5);
    pl_gguf_out *o = pl_gguf_out_new();
    assert_non_null(o);
    gguf_put_array(o, "tokenizer.ggml.tokens", &tokens);
    gguf_put_array(o, "tokenizer.ggml.token_type", &types);
    pl_gguf_put_u32(o, "tokenizer.ggml.eos_token_id", FIRST_ADDED);
    return o;
}

static void put_merges(pl_gguf_out *o) {
    gguf_array list = {0};
    for (int i = 0; i < MORE; i++)
        gguf_text(&list, merges[i], strlen(merges[i]));
    gguf_put_array(o, "tokenizer.ggml.merges", &list);
}

// The same as vocab.json and merges.txt, with its added tokens in tokenizer_config.json.
static void write_pair(const char *pre) {
    pl_strbuf vocab = {0}, list = {0}, config = {0};
    char      s[2], line[512];
    pl_strbuf_add(&vocab, "{", 1);
    for (int b = 0; b < FIRST_ADDED; b++) {
        int         n = b < 256 ? pl_byte_to_char((uint8_t)b, s) : (int)strlen(more[b - 256]);
        const char *text = b < 256 ? s : more[b - 256];
        bool        escaped = n == 1 && (*text == '"' || *text == '\\');
        pl_strbuf_add(
            &vocab, line,
            (size_t)snprintf(line, sizeof line, "%s\"%s%.*s\":%d", b ? "," : "", escaped ? "\\" : "", n, text, b));
    }
    pl_strbuf_add(&vocab, "}", 1);
    for (int i = 0; i < MORE; i++) {
        pl_strbuf_add(&list, merges[i], strlen(merges[i]));
        pl_strbuf_add(&list, "\n", 1);
    }
    pl_strbuf_add(
        &config, line,
        (size_t)snprintf(
            line, sizeof line,
            "{\"paceline_pre\":\"%s\",\"eos_token\":\"<|end|>\",\"add_bos_token\":false,"
            "\"added_tokens_decoder\":{\"%d\":{\"content\":\"<|end|>\",\"special\":true,\"normalized\":false},"
            "\"%d\":{\"content\":\"<pad>\",\"normalized\":false}}}",
            pre, FIRST_ADDED, FIRST_ADDED + 1));
    put_file(at("pair/vocab.json"), vocab.s, vocab.n);
    put_file(at("pair/merges.txt"), list.s, list.n);
    put_file(at("pair/tokenizer_config.json"), config.s, config.n);
    pl_strbuf_fini(&vocab);
    pl_strbuf_fini(&list);
    pl_strbuf_fini(&config);
}

static void test_gpt2(void **state) {
    (void)state;
    static const char *const names[][2] = {{"gpt-2", "gpt-2"}, {"qwen2", "qwen2"}};
    pl_err                   err;
    assert_ok(pl_dir_make(at("pair"), &err));
    for (int i = 0; i < 2; i++) {
        pl_gguf_out *o = byte_level();
        pl_gguf_put_text(o, "tokenizer.ggml.model", "gpt2");
        pl_gguf_put_text(o, "tokenizer.ggml.pre", names[i][0]);
        put_merges(o);
        write_file(o, at("bytes.gguf"));
        write_pair(names[i][1]);
        pl_tokenizer *a = open_path(at("pair"), NULL), *b = open_path(at("bytes.gguf"), NULL);
        assert_int_equal(pl_tokenizer_vocab_size(b), FIRST_ADDED + 2);
        assert_true(pl_tokenizer_is_special(b, FIRST_ADDED));
        assert_false(pl_tokenizer_is_special(b, FIRST_ADDED + 1));
        assert_same(a, b);
        pl_tokenizer_close(a);
        pl_tokenizer_close(b);
    }
    // A file that names no pre-tokenizer is opened with one that is named for it.
    pl_gguf_out *o = byte_level();
    pl_gguf_put_text(o, "tokenizer.ggml.model", "gpt2");
    put_merges(o);
    write_file(o, at("unnamed.gguf"));
    pl_tokenizer *a = open_path(at("pair"), NULL), *b = open_path(at("unnamed.gguf"), "qwen2");
    assert_same(a, b);
    pl_tokenizer_close(a);
    pl_tokenizer_close(b);
}

// llama.cpp's names. Each cuts the whole text: its bytes come back.
static const char *const pre_names[] = {
    "gpt-2",
    "phi-2",
    "jina-es",
    "jina-de",
    "gigachat",
    "jina-v2-es",
    "jina-v2-de",
    "a.x-4.0",
    "mellum",
    "modern-bert",
    "exaone4",
    "mpt",
    "olmo",
    "jais",
    "trillion",
    "granite-docling",
    "llama3",
    "llama-v3",
    "llama-bpe",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "jina-v5-nano",
    "qwen2",
    "deepseek-r1-qwen",
    "stablelm2",
    "hunyuan",
    "solar-open",
    "kormo",
    "f2llmv2",
    "megrez",
    "grok-2",
    "dbrx",
    "smaug-bpe",
    "glm4",
    "glm5",
    "chatglm-bpe",
    "smollm",
    "starcoder",
    "refact",
    "command-r",
    "codeshell",
    "exaone",
    "minerva-7b",
    "mellum2",
    "qwen35",
    "gpt-4o",
    "llama4",
    "kanana2",
    "talkie",
    "minimax-m2",
    "granite-embed-multi-97m",
    "tekken",
    "tiny_aya",
    "cohere2moe",
    "youtu",
    "minicpm5",
    "ufakzeka",
    "laguna",
    "seed-coder",
    "bailingmoe",
    "bailingmoe2",
    "llada-moe",
    "exaone-moe",
    "jais-2",
    "deepseek-v3",
    "hunyuan-dense",
    "joyai-llm",
    "hy_v4",
    "spark2_5",
    "deepseek-llm",
    "deepseek-coder",
    "afmoe",
    "falcon",
    "poro-chat",
    "bloom",
    "gpt3-finnish",
    "viking",
    "superbpe",
    "chameleon",
    "kimi-k2",
};

static void test_names(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof pre_names / sizeof *pre_names; i++) {
        pl_gguf_out *o = byte_level();
        pl_gguf_put_text(o, "tokenizer.ggml.model", "gpt2");
        pl_gguf_put_text(o, "tokenizer.ggml.pre", pre_names[i]);
        put_merges(o);
        write_file(o, at("named.gguf"));
        pl_tokenizer *tok = open_path(at("named.gguf"), NULL);
        for (int k = 0; k < TEXTS - 1; k++) {
            pl_err   err;
            int32_t *ids;
            int64_t  n;
            char    *back;
            size_t   bytes;
            assert_ok(pl_tokenizer_encode(tok, texts[k], strlen(texts[k]), 0, &ids, &n, &err));
            assert_ok(pl_tokenizer_decode(tok, ids, n, &back, &bytes, &err));
            if (bytes != strlen(texts[k]) || memcmp(back, texts[k], bytes) != 0)
                fail_msg("%s: text %d", pre_names[i], k);
            pl_free(back);
            pl_free(ids);
        }
        pl_tokenizer_close(tok);
    }
}

// ---- what is wrong with a file

static void refused(pl_gguf_out *o, const char *pre, pl_status want, const char *why) {
    pl_err        err;
    pl_tokenizer *tok;
    write_file(o, at("broken.gguf"));
    assert_int_equal(pl_tokenizer_open_pre(&tok, at("broken.gguf"), pre, &err), want);
    assert_null(tok);
    if (!strstr(err.msg, why)) fail_msg("\"%s\" does not say \"%s\"", err.msg, why);
    assert_non_null(strstr(err.msg, "broken.gguf"));
}

static pl_gguf_out *named(const char *model, const char *pre) {
    pl_gguf_out *o = byte_level();
    pl_gguf_put_text(o, "tokenizer.ggml.model", model);
    if (pre) pl_gguf_put_text(o, "tokenizer.ggml.pre", pre);
    return o;
}

static void test_refused(void **state) {
    (void)state;
    gguf_array   a = {0};
    pl_gguf_out *o = pl_gguf_out_new();
    pl_gguf_put_text(o, "general.architecture", "llama");
    refused(o, NULL, PL_E_INPUT, "has no tokenizer.ggml.tokens");

    o = pl_gguf_out_new();
    gguf_int(&a, 1);
    gguf_put_array(o, "tokenizer.ggml.tokens", &a);
    refused(o, NULL, PL_E_INPUT, "tokenizer.ggml.tokens is of another type");

    o = pl_gguf_out_new();
    gguf_text(&a, "a", 1);
    gguf_put_array(o, "tokenizer.ggml.tokens", &a);
    gguf_int(&a, 1);
    gguf_int(&a, 1);
    gguf_put_array(o, "tokenizer.ggml.token_type", &a);
    refused(o, NULL, PL_E_INPUT, "has 2 entries for 1 tokens");

    refused(named("bert", NULL), NULL, PL_E_UNSUPPORTED, "of the kind 'bert' is not supported");
    refused(named("llama", NULL), NULL, PL_E_INPUT, "has no tokenizer.ggml.scores");
    refused(named("llama", NULL), "gpt-2", PL_E_INPUT, "leave out the one given (gpt-2)");
    refused(named("gpt2", "unheard-of"), NULL, PL_E_UNSUPPORTED, "the pre-tokenizer 'unheard-of'");
    refused(named("gpt2", "gpt-2"), "gpt-2", PL_E_INPUT, "names its own pre-tokenizer");
    refused(named("gpt2", "gpt-2"), NULL, PL_E_INPUT, "has no tokenizer.ggml.merges");

    o = named("gpt2", NULL);
    put_merges(o);
    refused(o, NULL, PL_E_INPUT, "names no pre-tokenizer");

    o = named("gpt2", "gemma4");
    put_merges(o);
    refused(o, NULL, PL_E_UNSUPPORTED, "'gemma4' is not supported: its pieces are text, not bytes");

    o = named("gpt2", "gpt-2");
    gguf_text(&a, "th", 2);
    gguf_put_array(o, "tokenizer.ggml.merges", &a);
    refused(o, NULL, PL_E_INPUT, "merge 0: a merge is two pieces around one space");

    o = named("gpt2", "gpt-2");
    gguf_text(&a, "t zz", 4);
    gguf_put_array(o, "tokenizer.ggml.merges", &a);
    refused(o, NULL, PL_E_INPUT, "'zz' of the merge is not in the vocabulary");

    o = named("gpt2", "gpt-2");
    put_merges(o);
    pl_gguf_put_u32(o, "tokenizer.ggml.bos_token_id", 100000);
    refused(o, NULL, PL_E_INPUT, "bos_token_id is 100000, outside the vocabulary");

    o = named("gpt2", "gpt-2");
    put_merges(o);
    pl_gguf_put_bool(o, "tokenizer.ggml.add_eos_token", true);
    refused(o, NULL, PL_E_UNSUPPORTED, "an EOS behind every text");

    o = pl_gguf_out_new();
    gguf_text(&a, "a", 1);
    gguf_text(&a, "", 0);
    gguf_put_array(o, "tokenizer.ggml.tokens", &a);
    pl_gguf_put_text(o, "tokenizer.ggml.model", "gpt2");
    pl_gguf_put_text(o, "tokenizer.ggml.pre", "gpt-2");
    refused(o, NULL, PL_E_INPUT, "token 1 is empty or no text");

    o = pl_gguf_out_new();
    gguf_text(&a, "a", 1);
    gguf_put_array(o, "tokenizer.ggml.tokens", &a);
    gguf_int(&a, 6);
    gguf_put_array(o, "tokenizer.ggml.token_type", &a);
    pl_gguf_put_text(o, "tokenizer.ggml.model", "gpt2");
    pl_gguf_put_text(o, "tokenizer.ggml.pre", "gpt-2");
    refused(o, NULL, PL_E_INPUT, "no pieces");
}

// ---- the world's

static void test_llama2(void **state) {
    (void)state;
    const char *model = outside("tokenizers/llama2/tokenizer.model");
    if (!model) skip();
    pl_err   err;
    uint8_t *text;
    size_t   bytes;
    convert_spm(model, at("llama2.gguf"));
    pl_tokenizer *a = open_path(model, NULL), *b = open_path(at("llama2.gguf"), NULL);
    assert_same(a, b);
    assert_ok(pl_file_read(outside("text/tinyshakespeare.txt"), &text, &bytes, 1 << 28, &err));
    assert_same_ids(a, b, (const char *)text, bytes);
    pl_free(text);
    pl_tokenizer_close(a);
    pl_tokenizer_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),   cmocka_unit_test(test_gpt2),   cmocka_unit_test(test_names),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_llama2),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
