// Tokenizers as they come from the world, against ids that other programs computed.
#include "data/tokenizer/tokenizer.h"
#include "kernels/base/json.h"
#include "tok_fixture.h"

static pl_tokenizer *open_outside(const char *name) {
    const char *path = outside(name);
    if (!path) skip();
    pl_err        err;
    pl_tokenizer *tok;
    assert_ok(pl_tokenizer_open(&tok, path, &err));
    return tok;
}

static char *read_outside(const char *name, size_t *n) {
    const char *path = outside(name);
    if (!path) skip();
    pl_err   err;
    uint8_t *data;
    assert_ok(pl_file_read(path, &data, n, 1 << 28, &err));
    return (char *)data;
}

// {"first_token":1, "greedy_ids":[...], "text":"..."}: what models wrote, so ids need not be what encoding gives.
static void check_greedy(const pl_tokenizer *tok, const char *name) {
    pl_err       err;
    pl_json      j;
    const cJSON *list, *e;
    const char  *want;
    assert_ok(pl_json_open(&j, outside(name), 1 << 20, 0, &err));
    assert_ok(pl_json_get_array(&j, NULL, "greedy_ids", &list, &err));
    assert_ok(pl_json_get_str(&j, NULL, "text", &want, &err));
    int32_t ids[512];
    int64_t n = 0;
    ids[n++] = pl_tokenizer_bos_id(tok);
    cJSON_ArrayForEach(e, list) ids[n++] = e->valueint;
    char  *text;
    size_t len;
    assert_ok(pl_tokenizer_decode(tok, ids, n, &text, &len, &err));
    assert_string_equal(text, want);
    pl_free(text);
    assert_ok(pl_tokenizer_decode(tok, ids + 1, n - 1, &text, &len, &err));
    assert_string_equal(text, want);
    pl_free(text);
    assert_round_trip(tok, want, strlen(want), PL_TOK_ADD_BOS);
    pl_json_close(&j);
}

static void test_stories260k(void **state) {
    (void)state;
    pl_tokenizer *tok = open_outside("models/stories260K/tok512.bin");
    assert_int_equal(pl_tokenizer_vocab_size(tok), 512);
    assert_int_equal(pl_tokenizer_bos_id(tok), 1);
    check_greedy(tok, "models/stories260K/golden_greedy.json");
    // Encoding gives the model's own ids for the first words of its text (unlike later ones, none was chosen freely).
    pl_err   err;
    int32_t *ids;
    int64_t  n;
    assert_ok(pl_tokenizer_encode(tok, "Once upon a time", 16, PL_TOK_ADD_BOS, &ids, &n, &err));
    const int32_t want[] = {1, 403, 407, 261, 378};
    assert_int_equal(n, 5);
    assert_memory_equal(ids, want, sizeof want);
    pl_free(ids);
    pl_tokenizer_close(tok);
}

static void test_tinystories_656k(void **state) {
    (void)state;
    pl_tokenizer *tok = open_outside("models/TinyStories-656K");
    assert_string_equal(pl_tokenizer_kind(tok), "huggingface");
    assert_int_equal(pl_tokenizer_vocab_size(tok), 2048);
    assert_int_equal(pl_tokenizer_bos_id(tok), 1);
    assert_int_equal(pl_tokenizer_eos_id(tok), 2);
    assert_true(pl_tokenizer_adds_bos(tok));
    check_greedy(tok, "models/TinyStories-656K/golden_greedy.json");
    pl_tokenizer_close(tok);
}

// llama.cpp's cases: texts parted by a line, and a line of ids for each.
static void check_golden(const pl_tokenizer *tok, const char *name, bool round_trip) {
    static const char mark[] = "\n__ggml_vocab_test__\n";
    char              file[64];
    size_t            n_in, n_out;
    snprintf(file, sizeof file, "tokenizers/golden/%s.inp", name);
    char *in = read_outside(file, &n_in), *text = in;
    snprintf(file, sizeof file, "tokenizers/golden/%s.out", name);
    char *out = read_outside(file, &n_out), *line = out;
    int   cases = 0;
    for (;; cases++) {
        char    *end = strstr(text, mark);
        size_t   len = end ? (size_t)(end - text) : strlen(text);
        pl_err   err;
        int32_t *ids;
        int64_t  n;
        if (!end && cases == 46) break; // what follows the last mark is no case
        assert_ok(pl_tokenizer_encode(tok, text, len, 0, &ids, &n, &err));
        for (int64_t i = 0; i < n; i++)
            if (strtol(line, &line, 10) != ids[i]) fail_msg("%s: case %d, id %d: %d", name, cases, (int)i, ids[i]);
        while (*line == ' ')
            line++;
        if (*line != '\n' && *line != 0) fail_msg("%s: case %d has more ids than %d", name, cases, (int)n);
        if (*line) line++;
        pl_free(ids);
        if (round_trip) assert_round_trip(tok, text, len, 0);
        if (!end) break;
        text = end + sizeof mark - 1;
    }
    assert_true(cases >= 46);
    pl_free(in);
    pl_free(out);
}

static void test_llama_spm_golden(void **state) {
    (void)state;
    pl_tokenizer *tok = open_outside("tokenizers/llama2/tokenizer.model");
    assert_int_equal(pl_tokenizer_vocab_size(tok), 32000);
    assert_int_equal(pl_tokenizer_bos_id(tok), 1);
    assert_int_equal(pl_tokenizer_eos_id(tok), 2);
    check_golden(tok, "llama-spm", true);
    pl_tokenizer_close(tok);
}

static void test_byte_level_golden(void **state) {
    (void)state;
    static const struct {
        const char *path, *golden, *kind;
        int         vocab, bos, eos;
        bool        adds_bos;
    } cases[] = {
        {"tokenizers/llama3", "llama-bpe", "tiktoken", 128256, 128000, 128001, true},
        {"tokenizers/qwen2", "qwen2", "vocab+merges", 151646, -1, 151643, false},
        {"tokenizers/gpt2", "gpt-2", "huggingface", 50257, -1, 50256, false},
        {"tokenizers/gpt2/merges.txt", "gpt-2", "vocab+merges", 50257, 50256, 50256, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_tokenizer *tok = open_outside(cases[i].path);
        assert_string_equal(pl_tokenizer_kind(tok), cases[i].kind);
        assert_int_equal(pl_tokenizer_vocab_size(tok), cases[i].vocab);
        assert_int_equal(pl_tokenizer_bos_id(tok), cases[i].bos);
        assert_int_equal(pl_tokenizer_eos_id(tok), cases[i].eos);
        assert_int_equal(pl_tokenizer_adds_bos(tok), cases[i].adds_bos);
        check_golden(tok, cases[i].golden, true);
        pl_tokenizer_close(tok);
    }
    pl_tokenizer *tok = open_outside("tokenizers/llama3");
    assert_int_equal(pl_tokenizer_find(tok, "<|eot_id|>"), 128009);
    assert_int_equal(pl_tokenizer_find(tok, "<|reserved_special_token_245|>"), 128255);
    pl_tokenizer_close(tok);
    tok = open_outside("tokenizers/qwen2");
    assert_int_equal(pl_tokenizer_find(tok, "<|im_end|>"), 151645);
    pl_tokenizer_close(tok);
}

// The same vocabulary in two formats and two programs: ids agree on whole books.
static void test_llama2_bin_equals_model(void **state) {
    (void)state;
    static const char *const books[] = {"text/gutenberg/Alice-s-Adventures-in-Wonderland_11.txt",
                                        "text/tinyshakespeare.txt"};
    pl_tokenizer            *a = open_outside("tokenizers/llama2/tokenizer.model");
    pl_tokenizer            *b = open_outside("tokenizers/llama2/tokenizer.bin");
    for (int k = 0; k < 2; k++) {
        size_t bytes;
        char  *text = read_outside(books[k], &bytes);
        assert_same_ids(a, b, text, bytes);
        assert_round_trip(a, text, bytes, PL_TOK_ADD_BOS);
        pl_free(text);
    }
    pl_tokenizer_close(a);
    pl_tokenizer_close(b);
}

// Ids and texts that sentencepiece 0.1.99 (Python) gives.
static void test_sentencepiece_models(void **state) {
    (void)state;
    static const struct {
        const char *model, *text, *back; // back NULL: the text itself
        int         n, ids[24];
    } cases[] = {
#include "golden_spm.inc"
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err        err;
        pl_tokenizer *tok = open_outside(cases[i].model);
        int32_t      *ids;
        int64_t       n;
        char         *text;
        size_t        len;
        assert_ok(pl_tokenizer_encode(tok, cases[i].text, strlen(cases[i].text), 0, &ids, &n, &err));
        assert_int_equal(n, cases[i].n);
        assert_memory_equal(ids, cases[i].ids, (size_t)n * sizeof *ids);
        assert_ok(pl_tokenizer_decode(tok, ids, n, &text, &len, &err));
        assert_string_equal(text, cases[i].back ? cases[i].back : cases[i].text);
        pl_free(text);
        pl_free(ids);
        pl_tokenizer_close(tok);
    }
}

static void test_other_families(void **state) {
    (void)state;
    static const struct {
        const char *path, *says;
    } cases[] = {{"models/stories260K/stories260K.bin", "llama2.c tokenizer"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = outside(cases[i].path);
        if (!path) skip();
        pl_err        err;
        pl_tokenizer *tok;
        assert_refused(pl_tokenizer_open(&tok, path, &err), &err, cases[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stories260k),
        cmocka_unit_test(test_tinystories_656k),
        cmocka_unit_test(test_llama_spm_golden),
        cmocka_unit_test(test_byte_level_golden),
        cmocka_unit_test(test_llama2_bin_equals_model),
        cmocka_unit_test(test_sentencepiece_models),
        cmocka_unit_test(test_other_families),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
