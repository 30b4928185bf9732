// Unigram models against Hugging Face's `tokenizers`: golden_unigram.jsonl holds what it makes of each text.
#include "data/tokenizer/tokenizer.h"
#include "kernels/base/json.h"
#include "tests/checkpoints/scratch.h"

static pl_status open_json(pl_tokenizer **tok, const cJSON *head, const cJSON *model, pl_err *err) {
    cJSON *whole = cJSON_Duplicate(head, true);
    cJSON_AddItemToObject(whole, "model", cJSON_Duplicate(model, true));
    char *text = cJSON_PrintUnformatted(whole);
    put_text(at("tokenizer.json"), text);
    cJSON_free(text);
    cJSON_Delete(whole);
    return pl_tokenizer_open(tok, at("tokenizer.json"), err);
}

static void check_ids(const pl_tokenizer *tok, const char *name, const char *text, const cJSON *ids, unsigned flags) {
    pl_err   err = {0};
    int32_t *got;
    int64_t  n, i = 0;
    assert_ok(pl_tokenizer_encode(tok, text, strlen(text), flags, &got, &n, &err));
    if (n != cJSON_GetArraySize(ids)) fail_msg("%s: '%s': %d ids", name, text, (int)n);
    for (const cJSON *e = ids->child; e; e = e->next)
        if (got[i++] != e->valueint) fail_msg("%s: '%s': id %d", name, text, (int)i);
    pl_free(got);
}

static void check_case(const pl_tokenizer *tok, const char *name, const cJSON *c) {
    const char  *text = cJSON_GetObjectItem(c, "text")->valuestring;
    const char  *want = cJSON_GetObjectItem(c, "decoded")->valuestring;
    const cJSON *ids = cJSON_GetObjectItem(c, "ids");
    pl_err       err = {0};
    int32_t      id[128];
    int          n = 0;
    char        *back;
    size_t       bytes;
    check_ids(tok, name, text, ids, 0);
    check_ids(tok, name, text, ids, PL_TOK_NO_CACHE);
    assert_true(cJSON_GetArraySize(ids) <= 128);
    for (const cJSON *e = ids->child; e; e = e->next)
        id[n++] = e->valueint;
    assert_ok(pl_tokenizer_decode(tok, id, n, &back, &bytes, &err));
    if (strcmp(back, want) != 0) fail_msg("%s: '%s': decoded '%s', not '%s'", name, text, back, want);
    pl_free(back);
}

static void as_tokenizers(void **state) {
    (void)state;
    pl_err   err = {0};
    uint8_t *data;
    size_t   n, at_line = 0;
    int      files = 0, cases = 0;
    pl_json  j, with_model = {0};
    assert_ok(pl_file_read(PACELINE_SOURCE_DIR "/tests/data/golden_unigram.jsonl", &data, &n, 1 << 20, &err));
    for (const uint8_t *end; at_line < n; at_line = (size_t)(end - data) + 1) {
        end = memchr(data + at_line, '\n', n - at_line);
        assert_ok(pl_json_parse(&j, "golden", ++files, data + at_line, (size_t)(end - data) - at_line, 0, &err));
        const cJSON  *model = pl_json_find(&j, NULL, "model"), *c;
        pl_tokenizer *tok;
        const char   *name = pl_json_find(&j, NULL, "name")->valuestring;
        assert_true(model || with_model.root);
        if (open_json(&tok, pl_json_find(&j, NULL, "head"), model ? model : pl_json_find(&with_model, NULL, "model"),
                      &err) != PL_OK)
            fail_msg("%s: %s", name, err.msg);
        cJSON_ArrayForEach(c, pl_json_find(&j, NULL, "cases")) {
            check_case(tok, name, c);
            cases++;
        }
        pl_tokenizer_close(tok);
        if (model) {
            pl_json_close(&with_model);
            with_model = j;
        } else {
            pl_json_close(&j);
        }
    }
    pl_json_close(&with_model);
    pl_free(data);
    assert_true(files == 16 && cases > 300);
}

static void refusals(void **state) {
    (void)state;
#define HEAD "{\"decoder\": {\"type\": \"Metaspace\"}, \"pre_tokenizer\": {\"type\": \"Metaspace\"}, \"model\": "
    static const struct {
        const char *model, *says;
    } cases[] = {
        {"{\"type\": \"Unigram\", \"vocab\": [[\"a\", -1]]}}", "unk_id"},
        {"{\"type\": \"Unigram\", \"unk_id\": 3, \"vocab\": [[\"a\", -1]]}}", "unk_id"},
        {"{\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": []}}", "no pieces"},
        {"{\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"a\"]]}}", "a piece is [text, score]"},
        {"{\"type\": \"WordPiece\", \"vocab\": {}}}", "model type 'WordPiece' is not supported"}};
    pl_err        err = {0};
    pl_tokenizer *tok;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s%s", HEAD, cases[i].model);
        put_text(at("tokenizer.json"), text);
        assert_true(pl_tokenizer_open(&tok, at("tokenizer.json"), &err) != PL_OK);
        if (!strstr(err.msg, cases[i].says)) fail_msg("%s: %s", cases[i].says, err.msg);
    }
    put_text(at("tokenizer.json"),
             "{\"decoder\": {\"type\": \"ByteLevel\"}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}, "
             "\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"a\", -1]]}}");
    assert_true(pl_tokenizer_open(&tok, at("tokenizer.json"), &err) != PL_OK);
    assert_non_null(strstr(err.msg, "Unigram behind ByteLevel"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_tokenizers), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
