// JSON of more values than its kind of file can have is refused by their number, before a tree of them is made.
#include "checkpoints/hf.h"
#include "checkpoints/safetensors.h"
#include "data/chat/template.h"
#include "data/counts/counts.h"
#include "data/dataset/dataset.h"
#include "data/text/prompts.h"
#include "data/tokenizer/tokenizer.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"
#include "tests/checkpoints/scratch.h"

// Texts around the bound: each has eleven values.
static void counted(void **state) {
    (void)state;
    static const char *const texts[] = {"[0,0,0,0,0,0,0,0,0,0]", "[[[[[[[[[[[]]]]]]]]]]]",
                                        "[{},{},{},{},{},[],[],[],[],[]]", "{\"a\":{\"b\":[1,2,3,4,5,6,7,8]}}",
                                        " [ \"a\" , true , false , null , 1e5 , \"\" , {} , [ 1 , 2 ] ] "};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int64_t most = 10; most <= 11; most++) {
            pl_json   j;
            pl_err    err;
            pl_status st = pl_json_parse_many(&j, "t", 0, texts[i], strlen(texts[i]), most, 0, &err);
            if (most == 11)
                assert_ok(st);
            else
                assert_says(st, PL_E_INPUT, &err, "t: more than 10 JSON values");
            pl_json_close(&j);
        }
}

// open, n times what stands between, and close, in a new file.
static void put_many(const char *name, const char *open, const char *what, int64_t n, const char *close) {
    pl_strbuf b = {0};
    pl_strbuf_add(&b, open, strlen(open));
    for (int64_t i = 0; i < n; i++)
        pl_strbuf_add(&b, what, strlen(what));
    pl_strbuf_add(&b, close, strlen(close));
    assert_false(b.failed);
    put_file(at(name), b.s, b.n);
    pl_strbuf_fini(&b);
}

static pl_status open_config(pl_err *err) {
    pl_hf_config cfg;
    put_many("config.json", "{\"x\":[0", ",0", (16 << 20) / PL_JSON_SPARSE, "]}");
    return pl_hf_config_read(&cfg, at(""), PL_HF_TARGET, err);
}

static pl_status open_index(pl_err *err) {
    pl_st *st;
    put_many("model.safetensors.index.json", "{\"weight_map\":[0", ",0", (64 << 20) / PL_JSON_SPARSE, "]}");
    return pl_st_open(&st, at("model.safetensors.index.json"), err);
}

static pl_status open_header(pl_err *err) {
    pl_st   *st;
    uint64_t n = 2 * PL_ST_VALUES_MAX + 8;
    char     head[16];
    memcpy(head, &n, 8);
    memcpy(head + 8, "{\"x\":[0", 7);
    pl_strbuf b = {0};
    pl_strbuf_add(&b, head, 15);
    for (int64_t i = 0; i < PL_ST_VALUES_MAX - 1; i++)
        pl_strbuf_add(&b, ",0", 2);
    pl_strbuf_add(&b, "]} ", 3);
    assert_int_equal(b.n, n + 8);
    put_file(at("model.safetensors"), b.s, b.n);
    pl_strbuf_fini(&b);
    return pl_st_open(&st, at("model.safetensors"), err);
}

static pl_status open_tokenizer(pl_err *err) {
    pl_tokenizer *tok;
    put_many("tokenizer.json", "{\"x\":[0", ",0", (int64_t)6 << 20, "]}");
    return pl_tokenizer_open(&tok, at("tokenizer.json"), err);
}

static pl_status open_template(pl_err *err) {
    pl_chat_template *t;
    put_many("tokenizer_config.json", "{\"x\":[0", ",0", (64 << 20) / PL_JSON_SPARSE, "]}");
    return pl_chat_template_open(&t, at(""), NULL, err);
}

static pl_status open_prompts(pl_err *err) {
    pl_prompts *p;
    put_many("p.jsonl", "{\"prompt\":\"a\",\"x\":[0", ",0", PL_PROMPT_VALUES, "]}");
    return pl_prompts_read(&p, at("p.jsonl"), err);
}

static pl_status open_list(pl_err *err) {
    pl_prompts *p;
    put_many("list.json", "[{\"prompt\":\"a\"},{\"prompt\":\"a\",\"x\":[0", ",0", PL_PROMPT_VALUES, "]}]");
    return pl_prompts_read(&p, at("list.json"), err);
}

static pl_status open_counts(pl_err *err) {
    pl_counts c;
    put_many("counts.json", "{\"x\":[0", ",0", (160 << 20) / PL_JSON_SPARSE, "]}");
    return pl_counts_read(&c, at("counts.json"), err);
}

static pl_status open_manifest(pl_err *err) {
    pl_dataset *ds;
    put_many("manifest.json", "{\"x\":[0", ",0", (64 << 20) / PL_JSON_SPARSE, "]}");
    return pl_dataset_open(&ds, at(""), NULL, err);
}

static pl_status open_variables(pl_err *err) {
    pl_jinja    *t;
    pl_jinja_out out;
    pl_strbuf    b = {0};
    pl_strbuf_add(&b, "{\"x\":[0", 7);
    for (int64_t i = 0; i < PL_JSON_VALUES; i++)
        pl_strbuf_add(&b, ",0", 2);
    pl_strbuf_add(&b, "]}", 2);
    PL_TRY(pl_jinja_compile(&t, "template", "", 0, err));
    pl_status st = pl_jinja_render(t, b.s, b.n, NULL, &out, err);
    pl_strbuf_fini(&b);
    pl_jinja_free(t);
    return st;
}

static void dense_files(void **state) {
    (void)state;
    pl_status (*const opens[])(pl_err * err) = {open_config,  open_index, open_header, open_tokenizer, open_template,
                                                open_prompts, open_list,  open_counts, open_manifest,  open_variables};
    for (size_t i = 0; i < sizeof opens / sizeof *opens; i++) {
        pl_err err = {0};
        assert_says(opens[i](&err), PL_E_INPUT, &err, "JSON values");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(counted), cmocka_unit_test(dense_files)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
