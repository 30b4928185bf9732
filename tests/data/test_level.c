// Byte-level BPE against Hugging Face's ids: tokenizer.json in many forms, vocab.json with merges.txt, rank files.
#include "kernels/base/json.h"
#include "kernels/base/utf8.h"
#include "tok_fixture.h"

static pl_json golden;

static int open_golden_file(void **state) {
    pl_err err;
    if (scratch_setup(state) != 0) return -1;
    return pl_json_open(&golden, PACELINE_SOURCE_DIR "/tests/data/golden_level.json", 1 << 22, 0, &err) == PL_OK ? 0
                                                                                                                 : -1;
}

static int close_golden_file(void **state) {
    pl_json_close(&golden);
    return scratch_teardown(state);
}

static const char *str_of(const cJSON *obj, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(obj, key)->valuestring;
}

static const cJSON *list_of(const char *key) {
    return cJSON_GetObjectItemCaseSensitive(golden.root, key);
}

static char *printed(const char *key) {
    char *s = cJSON_PrintUnformatted(list_of(key));
    assert_non_null(s);
    return s;
}

static const cJSON *variant(const char *name) {
    const cJSON *e;
    cJSON_ArrayForEach(e, list_of("tokenizers")) if (strcmp(str_of(e, "name"), name) == 0) return e;
    fail_msg("no golden tokenizer '%s'", name);
    return NULL;
}

static char *added_tokens(const char *skip) {
    cJSON *list = cJSON_Duplicate(list_of("added"), true);
    for (cJSON *e = list->child, *next; e; e = next) {
        next = e->next;
        if (strcmp(str_of(e, "content"), skip) == 0) cJSON_Delete(cJSON_DetachItemViaPointer(list, e));
    }
    char *s = cJSON_PrintUnformatted(list);
    cJSON_Delete(list);
    assert_non_null(s);
    return s;
}

// A tokenizer.json; from (NULL: nothing) becomes `to` in its head.
static void put_variant(const char *path, const cJSON *v, const char *from, const char *to) {
    char       *vocab = printed("vocab"), *merges = printed("merges"), *added = added_tokens(str_of(v, "skip_added"));
    const char *head = str_of(v, "head"), *there = from ? strstr(head, from) : NULL;
    FILE       *f = fopen(path, "wb");
    assert_non_null(f);
    if (from && !there) fail_msg("'%s' is not in the head of '%s'", from, str_of(v, "name"));
    if (from)
        fprintf(f, "{%.*s%s%s", (int)(there - head), head, to, there + strlen(from));
    else
        fprintf(f, "{%s", head);
    fprintf(f, ",\"added_tokens\":%s,\"model\":{%s,\"vocab\":%s,\"merges\":%s}}", added, str_of(v, "settings"), vocab,
            merges);
    assert_int_equal(fclose(f), 0);
    cJSON_free(vocab);
    cJSON_free(merges);
    cJSON_free(added);
}

static pl_tokenizer *open_variant(const cJSON *v) {
    pl_err        err;
    pl_tokenizer *tok;
    put_variant(at("tokenizer.json"), v, NULL, NULL);
    assert_ok(pl_tokenizer_open(&tok, at("tokenizer.json"), &err));
    return tok;
}

// Texts of all, ids of one.
static void check_ids(const pl_tokenizer *tok, const cJSON *v, unsigned flags) {
    const cJSON *text = list_of("texts")->child, *ids = cJSON_GetObjectItemCaseSensitive(v, "ids")->child;
    for (; text; text = text->next, ids = ids->next) {
        pl_err       err;
        int32_t     *got;
        int64_t      n, i = 0;
        const cJSON *e;
        assert_ok(pl_tokenizer_encode(tok, text->valuestring, strlen(text->valuestring), flags, &got, &n, &err));
        bool same = n == cJSON_GetArraySize(ids);
        cJSON_ArrayForEach(e, ids) if (same) same = got[i++] == e->valueint;
        if (!same)
            fail_msg("%s: \"%s\": %d ids, wanted %d; they part at %d", str_of(v, "name"), text->valuestring, (int)n,
                     cJSON_GetArraySize(ids), (int)i - 1);
        pl_free(got);
    }
}

static void test_golden_ids(void **state) {
    (void)state;
    const cJSON *v;
    int          n = 0;
    cJSON_ArrayForEach(v, list_of("tokenizers")) {
        pl_tokenizer *tok = open_variant(v);
        assert_int_equal(pl_tokenizer_adds_bos(tok), cJSON_GetObjectItemCaseSensitive(v, "n_bos")->valueint);
        check_ids(tok, v, 0);
        check_ids(tok, v, 0); // from memory
        check_ids(tok, v, PL_TOK_NO_CACHE);
        pl_tokenizer_close(tok);
        n++;
    }
    assert_true(n >= 50);
}

// Where nothing is normalised or removed, the text comes back, special tokens apart.
static void test_round_trip(void **state) {
    (void)state;
    static const char *const names[] = {"gpt-2", "llama-3", "o200k", "deepseek", "bloom", "falcon", "starcoder"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        pl_tokenizer *tok = open_variant(variant(names[i]));
        const cJSON  *t;
        cJSON_ArrayForEach(t, list_of("texts"))
            assert_round_trip(tok, t->valuestring, strlen(t->valuestring), PL_TOK_NO_SPECIAL);
        assert_round_trip(tok, "a\0b\0", 4, 0);
        pl_tokenizer_close(tok);
    }
}

static void test_fingerprints_differ(void **state) {
    (void)state;
    char         seen[128][17];
    const cJSON *v;
    int          n = 0;
    cJSON_ArrayForEach(v, list_of("tokenizers")) {
        pl_tokenizer *tok = open_variant(v);
        strcpy(seen[n], pl_tokenizer_fingerprint(tok));
        // GPT-2's pattern in another spelling cuts the same words.
        for (int k = 0; k < n; k++)
            if (strcmp(seen[k], seen[n]) == 0 && !strstr(str_of(v, "name"), "by its pattern"))
                fail_msg("'%s' has the fingerprint of number %d", str_of(v, "name"), k);
        pl_tokenizer_close(tok);
        n++;
    }
}

// ---- broken characters

static void test_pending_bytes(void **state) {
    (void)state;
    pl_err        err;
    pl_tokenizer *tok = open_variant(variant("gpt-2"));
    pl_detok      d;
    const char   *s;
    // E2 82 AC in the byte alphabet.
    int32_t       e2 = pl_tokenizer_find(tok, "\xC3\xA2"), x82 = pl_tokenizer_find(tok, "\xC4\xA4"),
            ac = pl_tokenizer_find(tok, "\xC2\xAC"), a = pl_tokenizer_find(tok, "a");
    assert_true(e2 >= 0 && x82 >= 0 && ac >= 0 && a >= 0);
    assert_ok(pl_detok_init(&d, tok, true, &err));
    uint64_t before = pl_alloc_count();
    assert_int_equal(pl_detok_push(&d, e2, &s), 0);
    assert_int_equal(pl_detok_push(&d, x82, &s), 0);
    assert_int_equal(pl_detok_push(&d, ac, &s), 3);
    assert_memory_equal(s, "\xE2\x82\xAC", 3);
    // A character that is not finished is one U+FFFD, as Hugging Face has it; each stray byte is one.
    pl_detok_push(&d, e2, &s);
    pl_detok_push(&d, x82, &s);
    assert_int_equal(pl_detok_push(&d, a, &s), 4);
    assert_memory_equal(s,
                        "\xEF\xBF\xBD"
                        "a",
                        4);
    assert_int_equal(pl_detok_push(&d, ac, &s), 3);
    assert_int_equal(pl_detok_push(&d, e2, &s), 0);
    assert_int_equal(pl_detok_push(&d, e2, &s), 3);
    assert_int_equal(pl_detok_flush(&d, &s), 3);
    assert_int_equal(pl_alloc_count(), before);
    pl_detok_fini(&d);
    int32_t ids[] = {a, e2, x82, a, ac};
    char   *text;
    size_t  n;
    assert_ok(pl_tokenizer_decode(tok, ids, 5, &text, &n, &err));
    assert_string_equal(text, "a\xEF\xBF\xBD"
                              "a\xEF\xBF\xBD");
    pl_free(text);
    assert_ok(pl_tokenizer_decode_bytes(tok, ids, 5, &text, &n, &err));
    assert_int_equal(n, 5);
    assert_memory_equal(text,
                        "a\xE2\x82"
                        "a\xAC",
                        5);
    pl_free(text);
    assert_says(pl_tokenizer_decode_bytes(tok, (int32_t[]){1 << 20}, 1, &text, &n, &err), PL_E_INPUT, &err, "1048576");
    pl_tokenizer_close(tok);
}

// ---- vocab.json with merges.txt, and rank files

static void put_pair(const char *dir) {
    pl_err err;
    char   path[700];
    char  *vocab = printed("vocab");
    assert_ok(pl_dir_make(dir, &err));
    snprintf(path, sizeof path, "%s/vocab.json", dir);
    put_text(path, vocab);
    cJSON_free(vocab);
    snprintf(path, sizeof path, "%s/merges.txt", dir);
    FILE        *f = fopen(path, "wb");
    const cJSON *e;
    assert_non_null(f);
    fputs("#version: 0.2\n", f);
    cJSON_ArrayForEach(e, list_of("merges")) fprintf(f, "%s\r\n", e->valuestring);
    assert_int_equal(fclose(f), 0);
}

// Added tokens as in the golden tokenizers.
static void put_config(const char *path, const char *more) {
    pl_strbuf b = {0};
    pl_strbuf_add(&b, "{\"added_tokens_decoder\":{", 25);
    const cJSON *e;
    cJSON_ArrayForEach(e, list_of("added")) {
        char *one = cJSON_PrintUnformatted(e), key[24];
        int   n = snprintf(key, sizeof key, "%s\"%d\":", b.s[b.n - 1] == '{' ? "" : ",",
                           cJSON_GetObjectItemCaseSensitive(e, "id")->valueint);
        pl_strbuf_add(&b, key, (size_t)n);
        pl_strbuf_add(&b, one, strlen(one));
        cJSON_free(one);
    }
    pl_strbuf_add(&b, "}", 1);
    pl_strbuf_add(&b, more, strlen(more));
    pl_strbuf_add(&b, "}", 1);
    put_file(path, b.s, b.n);
    pl_strbuf_fini(&b);
}

static void test_pair(void **state) {
    (void)state;
    static const char *const pre[] = {"gpt-2", "qwen2"};
    pl_err                   err;
    pl_tokenizer            *tok;
    put_pair(at("pair"));
    assert_says(pl_tokenizer_open(&tok, at("pair"), &err), PL_E_INPUT, &err, "names no pre-tokenizer");
    assert_says(pl_tokenizer_open_pre(&tok, at("pair"), "gpt-3", &err), PL_E_INPUT, &err,
                "unknown pre-tokenizer 'gpt-3'; known are gpt-2, llama-3, qwen2");
    put_config(at("pair/tokenizer_config.json"), "");
    for (int i = 0; i < 2; i++) {
        assert_ok(pl_tokenizer_open_pre(&tok, at(i ? "pair" : "pair/merges.txt"), pre[i], &err));
        assert_string_equal(pl_tokenizer_kind(tok), "vocab+merges");
        check_ids(tok, variant(pre[i]), 0);
        pl_tokenizer_close(tok);
    }
    // What names it beside the file, and a copy that opens as the same.
    put_config(at("pair/tokenizer_config.json"),
               ",\"paceline_pre\":\"qwen2\",\"bos_token\":\"<|end|>\",\"add_bos_token\":true");
    assert_ok(pl_tokenizer_open(&tok, at("pair/vocab.json"), &err));
    check_ids(tok, variant("qwen2"), 0);
    assert_true(pl_tokenizer_adds_bos(tok));
    assert_int_equal(pl_tokenizer_bos_id(tok), pl_tokenizer_find(tok, "<|end|>"));
    char print[17];
    strcpy(print, pl_tokenizer_fingerprint(tok));
    assert_ok(pl_dir_make(at("copy"), &err));
    assert_ok(pl_tokenizer_copy(tok, at("pair/merges.txt"), at("copy"), &err));
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    pl_tokenizer_put_config(tok, &o);
    pl_json_out_close(&o, '}');
    assert_ok(pl_json_out_end(&o, &err));
    put_text(at("copy/tokenizer_config.json"), o.text);
    pl_free(o.text);
    pl_tokenizer_close(tok);
    assert_ok(pl_tokenizer_open(&tok, at("copy"), &err));
    assert_string_equal(pl_tokenizer_fingerprint(tok), print);
    check_ids(tok, variant("qwen2"), 0);
    pl_tokenizer_close(tok);
}

static const char rank_lines[] = "YQ== 97\n"; // one line of the right form

// All bytes, "th", "he", "the", " the": ranks as ids. extra: more lines.
static void put_ranks(const char *path, const char *extra) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    FILE             *f = fopen(path, "wb");
    assert_non_null(f);
    for (int b = 0; b < 256; b++)
        fprintf(f, "%c%c== %d\n", digits[b >> 2], digits[(b & 3) << 4], b);
    fprintf(f, "dGg= 256\naGU= 257\ndGhl 258\nIHRoZQ== 259\n%s", extra);
    assert_int_equal(fclose(f), 0);
}

static void test_ranks(void **state) {
    (void)state;
    pl_err        err;
    pl_tokenizer *tok;
    int32_t      *ids;
    int64_t       n;
    put_ranks(at("small.tiktoken"), "");
    assert_ok(pl_tokenizer_open_pre(&tok, at("small.tiktoken"), "llama-3", &err));
    assert_string_equal(pl_tokenizer_kind(tok), "tiktoken");
    assert_int_equal(pl_tokenizer_vocab_size(tok), 260);
    assert_int_equal(pl_tokenizer_bos_id(tok), -1); // no vocabulary that is known: no special tokens are made up
    // "ethe": th has the lowest rank, then the; " the" is a piece as a whole.
    assert_ok(pl_tokenizer_encode(tok, "ethe the thx", 12, PL_TOK_ADD_BOS, &ids, &n, &err));
    const int32_t want[] = {'e', 258, 259, ' ', 256, 'x'};
    assert_int_equal(n, 6);
    assert_memory_equal(ids, want, sizeof want);
    pl_free(ids);
    assert_round_trip(tok, "the \xF0\x9F\x9A\x80 the\0 x", 15, 0);
    pl_tokenizer_close(tok);
    // In a folder, with names for two tokens.
    assert_ok(pl_dir_make(at("ranks"), &err));
    put_ranks(at("ranks/tokenizer.model"), "\n");
    put_text(at("ranks/tokenizer_config.json"),
             "{\"paceline_pre\":\"llama-3\",\"added_tokens_decoder\":{\"260\":{\"content\":\"<|begin_of_text|>\","
             "\"special\":true}}}");
    assert_ok(pl_tokenizer_open(&tok, at("ranks"), &err));
    assert_ok(pl_tokenizer_encode(tok, "the<|begin_of_text|>", 20, PL_TOK_ADD_BOS, &ids, &n, &err));
    assert_int_equal(n, 3);
    assert_int_equal(ids[0], 260);
    assert_int_equal(ids[1], 258);
    assert_int_equal(ids[2], 260);
    pl_free(ids);
    pl_tokenizer_close(tok);
    // tokenizer.json comes first, and what is wrong with it is not hidden by what stands beside it.
    put_variant(at("ranks/tokenizer.json"), variant("gpt-2"), NULL, NULL);
    assert_ok(pl_dir_make(at("both"), &err));
    put_ranks(at("both/tokenizer.model"), "");
    put_variant(at("both/tokenizer.json"), variant("gpt-2"), NULL, NULL);
    assert_ok(pl_tokenizer_open(&tok, at("both"), &err));
    assert_string_equal(pl_tokenizer_kind(tok), "huggingface");
    pl_tokenizer_close(tok);
    put_text(at("both/tokenizer.json"), "{");
    assert_says(pl_tokenizer_open(&tok, at("both"), &err), PL_E_INPUT, &err, "tokenizer.json:1:");
}

// ---- what is refused

static void test_ranks_refused(void **state) {
    (void)state;
    static const struct {
        const char *extra, *says;
    } cases[] = {{"dGg= 300\n", "ranks 256 and 300 are the same piece"},
                 {"YWE= 256\n", ":261: token id 256 is given twice"},
                 {"YWE 300\n", ":261: not a piece in base64"},
                 {"YW=E 300\n", ":261: not a piece in base64"},
                 {"YWF= 300\n", ":261: not a piece in base64"}, // bits left over
                 {"!!!! 300\n", ":261: not a piece in base64"},
                 {"YWE=300\n", ":261: not a piece in base64"},
                 {" 300\n", ":261: not a piece in base64"},
                 {"YWE= \n", ":261: the rank must be an integer"},
                 {"YWE= -1\n", ":261: the rank must be an integer"},
                 {"YWE= 3e2\n", ":261: the rank must be an integer"},
                 {"YWE= 99999999999999999999999\n", ":261: the rank must be an integer"},
                 {"YWE= 4194304\n", ":261: token id 4194304 is outside"}};
    pl_err        err;
    pl_tokenizer *tok;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_ranks(at("bad.tiktoken"), cases[i].extra);
        assert_says(pl_tokenizer_open_pre(&tok, at("bad.tiktoken"), "gpt-2", &err), PL_E_INPUT, &err, cases[i].says);
        assert_true(strstr(err.msg, "bad.tiktoken") != NULL);
        assert_null(tok);
    }
    char *longer = pl_malloc(9000);
    memset(longer, 'A', 8999);
    longer[8999] = 0;
    put_ranks(at("bad.tiktoken"), longer);
    assert_says(pl_tokenizer_open_pre(&tok, at("bad.tiktoken"), "gpt-2", &err), PL_E_INPUT, &err,
                ":261: a piece of 8999");
    pl_free(longer);
    put_text(at("bad.tiktoken"), rank_lines);
    assert_says(pl_tokenizer_open_pre(&tok, at("bad.tiktoken"), "gpt-2", &err), PL_E_INPUT, &err,
                "byte 0x00 has no rank");
    put_text(at("bad.tiktoken"), "\n\n");
    assert_says(pl_tokenizer_open_pre(&tok, at("bad.tiktoken"), "gpt-2", &err), PL_E_INPUT, &err, "no pieces");
    put_text(at("bad.tiktoken"), "");
    assert_says(pl_tokenizer_open_pre(&tok, at("bad.tiktoken"), "gpt-2", &err), PL_E_INPUT, &err, "is empty");
    put_ranks(at("cfg.tiktoken"), "");
    static const struct {
        const char *config, *says;
    } configs[] = {
        {"{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}", "'x' is no token id"},
        {"{\"added_tokens_decoder\":{\"99999999999999999999\":{\"content\":\"y\"}}}", "is no token id"},
        {"{\"added_tokens_decoder\":{\"5\":{\"content\":\"y\"}}}", "'y' has id 121 in the vocabulary, 5 here"},
        {"{\"added_tokens_decoder\":{\"5\":{\"content\":\"yy\"}}}", "token id 5 is given twice"},
        {"{\"added_tokens_decoder\":{\"300\":{\"content\":\"\"}}}", "an empty token"},
        {"{\"added_tokens_decoder\":{\"300\":7}}", "added_tokens_decoder"},
        {"{\"added_tokens_decoder\":7}", "added_tokens_decoder"},
        {"{\"paceline_pre\":7}", "paceline_pre"},
        {"{\"paceline_pre\":\"nope\"}", "unknown pre-tokenizer 'nope'"},
        {"{", "tokenizer_config.json:1:"}};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        bool named = strstr(configs[i].config, "paceline_pre") != NULL;
        put_text(at("tokenizer_config.json"), configs[i].config);
        assert_says(pl_tokenizer_open_pre(&tok, at("cfg.tiktoken"), named ? NULL : "gpt-2", &err), PL_E_INPUT, &err,
                    configs[i].says);
    }
    assert_int_equal(remove(at("tokenizer_config.json")), 0);
}

static void test_pair_refused(void **state) {
    (void)state;
    static const struct {
        const char *merges, *says;
    } cases[] = {{"qqq a\n", "merges.txt:1: 'qqq' of the merge is not in the vocabulary"},
                 {"#version: 0.2\n\na qqq\n", "merges.txt:3: 'qqq' of the merge is not in the vocabulary"},
                 {"z q\n", "merges.txt:1: what the merge makes is not in the vocabulary"},
                 {"a\n", "merges.txt:1: a merge is two pieces around one space"},
                 {"a b c\n", "merges.txt:1: a merge is two pieces around one space"},
                 {"a \xff\n", "merges.txt: not valid UTF-8 at byte 2"}};
    pl_err        err;
    pl_tokenizer *tok;
    put_pair(at("bad"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text(at("bad/merges.txt"), cases[i].merges);
        assert_says(pl_tokenizer_open_pre(&tok, at("bad"), "gpt-2", &err), PL_E_INPUT, &err, cases[i].says);
    }
    put_text(at("bad/merges.txt"), "");
    assert_ok(pl_tokenizer_open_pre(&tok, at("bad"), "gpt-2", &err)); // bytes alone
    pl_tokenizer_close(tok);
    static const char *const vocabs[][2] = {{"[]", "expected an object"},
                                            {"{}", "no pieces"},
                                            {"{\"a\":0,\"b\":0}", "token id 0 is given twice"},
                                            {"{\"a\":1e30}", "a:"},
                                            {"{\"a\":-1}", "a:"},
                                            {"{\"a\":\"b\"}", "a:"},
                                            {"{\"a\":0,\"a\":1}", "twice"},
                                            {"{\"a\":0", "vocab.json:1:"}};
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++) {
        put_text(at("bad/vocab.json"), vocabs[i][0]);
        assert_says(pl_tokenizer_open_pre(&tok, at("bad"), "gpt-2", &err), PL_E_INPUT, &err, vocabs[i][1]);
    }
    put_pair(at("bad"));
    assert_int_equal(remove(at("bad/merges.txt")), 0);
    assert_says(pl_tokenizer_open(&tok, at("bad"), &err), PL_E_INPUT, &err, "vocab.json with merges.txt");
    assert_says(pl_tokenizer_open(&tok, at("bad/vocab.json"), &err), PL_E_INPUT, &err, "merges.txt");
}

static void test_json_refused(void **state) {
    (void)state;
    static const struct {
        const char *variant, *from, *to, *says;
    } cases[] = {
        {"gpt-2", "\"pre_tokenizer\": {\"type\": \"ByteLevel\"", "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"",
         "pre_tokenizer 'BertPreTokenizer' is not supported"},
        {"gpt-2", "\"decoder\": {\"type\": \"ByteLevel\"", "\"decoder\": {\"type\": \"Fuse\"",
         "ByteLevel stands among the pre-tokenizers alone"},
        {"gpt-2", "\"post_processor\": {\"type\": \"ByteLevel\"",
         "\"post_processor\": {\"type\": \"RobertaProcessing\"", "post_processor 'RobertaProcessing' is not supported"},
        {"NFC", "\"NFC\"", "\"Precompiled\"", "normalizer 'Precompiled' is not supported"},
        {"bloom", " ?[^(\\\\s", "([", "pre_tokenizer: regular expression '([|"},
        {"bloom", " ?[^(\\\\s", "\\\\b[^(", "'\\b': not supported"},
        {"bloom", "\"Isolated\"", "\"Glued\"", "behavior 'Glued' is not supported"},
        {"falcon", "\"Punctuation\"", "\"ByteLevel\"", "ByteLevel stands there twice"},
        {"Removed string", "\"String\": \"a\"", "\"String\": \"\"", "an empty pattern"},
        {"gpt-2", "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false",
         "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": 7", "pre_tokenizer.add_prefix_space"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_err        err;
        pl_tokenizer *tok;
        put_variant(at("changed.json"), variant(cases[i].variant), cases[i].from, cases[i].to);
        assert_says(pl_tokenizer_open(&tok, at("changed.json"), &err), PL_E_INPUT, &err, cases[i].says);
        assert_true(strstr(err.msg, "changed.json") != NULL);
        assert_null(tok);
    }
    pl_err        err;
    pl_tokenizer *tok;
    const cJSON  *v = variant("starcoder");
    put_variant(at("none.json"), v, "\"pre_tokenizer\": ", "\"pre_tokenizer\": null, \"was\": ");
    assert_says(pl_tokenizer_open(&tok, at("none.json"), &err), PL_E_INPUT, &err, "names no pre-tokenizer");
    assert_ok(pl_tokenizer_open_pre(&tok, at("none.json"), "gpt-2", &err));
    check_ids(tok, variant("gpt-2"), 0);
    pl_tokenizer_close(tok);
    put_variant(at("own.json"), v, NULL, NULL);
    assert_says(pl_tokenizer_open_pre(&tok, at("own.json"), "gpt-2", &err), PL_E_INPUT, &err,
                "names its own pre-tokenizer");
    // An expression that goes wrong on a text, not in itself.
    put_variant(at("slow.json"), variant("bloom"), " ?[^(\\\\s|[.,!?…。，、।۔،])]+", "(x+x+)+[yz]");
    assert_ok(pl_tokenizer_open(&tok, at("slow.json"), &err));
    char xs[64];
    memset(xs, 'x', sizeof xs);
    int32_t *ids;
    int64_t  n;
    assert_says(pl_tokenizer_encode(tok, xs, sizeof xs, 0, &ids, &n, &err), PL_E_INPUT, &err, "backtracks too much");
    assert_null(ids);
    pl_tokenizer_close(tok);
}

static void test_out_of_memory(void **state) {
    (void)state;
    put_variant(at("tokenizer.json"), variant("deepseek"), NULL, NULL);
    put_ranks(at("oom.tiktoken"), "");
    put_pair(at("oompair"));
    static const char *const files[] = {"tokenizer.json", "oom.tiktoken", "oompair"};
    for (int k = 0; k < 3; k++) {
        const char   *pre = k ? "qwen2" : NULL;
        pl_err        err;
        pl_tokenizer *tok;
        char          path[700];
        snprintf(path, sizeof path, "%s", at(files[k]));
        uint64_t before = pl_alloc_count();
        assert_ok(pl_tokenizer_open_pre(&tok, path, pre, &err));
        uint64_t total = pl_alloc_count() - before;
        pl_tokenizer_close(tok);
        for (uint64_t i = 1; i <= total; i += total > 300 && i > 60 && i + 200 < total ? 41 : 1) {
            pl_alloc_fail_after(i);
            pl_status st = pl_tokenizer_open_pre(&tok, path, pre, &err);
            pl_alloc_fail_after(0);
            if (st == PL_OK) { // PCRE2 does without its machine code where there is no memory for it
                pl_tokenizer_close(tok);
                continue;
            }
            if (st != PL_E_MEMORY) fail_msg("%s, allocation %d of %d: %s", files[k], (int)i, (int)total, err.msg);
            assert_null(tok);
        }
        assert_ok(pl_tokenizer_open_pre(&tok, path, pre, &err));
        int32_t *ids;
        int64_t  n;
        for (uint64_t i = 1, st = PL_E_MEMORY; st != PL_OK; i++) {
            pl_alloc_fail_after(i);
            st = pl_tokenizer_encode(tok, "the cafe\xCC\x81 \xE6\x97\xA5 123", 17, 0, &ids, &n, &err);
            pl_alloc_fail_after(0);
            if (st != PL_OK) assert_int_equal(st, PL_E_MEMORY);
            assert_true(i < 1000);
            pl_free(ids);
        }
        pl_tokenizer_close(tok);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_ids),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_fingerprints_differ),
        cmocka_unit_test(test_pending_bytes),
        cmocka_unit_test(test_pair),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_ranks_refused),
        cmocka_unit_test(test_pair_refused),
        cmocka_unit_test(test_json_refused),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, open_golden_file, close_golden_file);
}
