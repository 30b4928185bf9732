#include "tests/infer/served.h"

#include "checkpoints/gguf.h"
#include "infer/drafter/dflash.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

void served_make(served_world *w) {
    test_mkdir(w->base);
    snprintf(w->target, sizeof w->target, "%s/target", w->base);
    snprintf(w->out, sizeof w->out, "%s/out", w->base);
    assert_int_equal(pl_dir_make(w->target, NULL), PL_OK);
    test_target(&w->model, w->target, SERVED_LAYERS, 41, PL_BF16);
    for (int i = 0; i < SERVED_ROWS; i++)
        w->d2t[i] = (i * 37 + 11) % TEST_VOCAB;
    pl_hf_head markov = pl_hf_head_make("markov", 7);
    pl_hf_head_set_flag(&markov, "confidence", true);
    for (int i = 0; i < SERVED_ALL; i++) {
        bool                block = served_is_block(i), spark = i == SERVED_SPARK || i == SERVED_RECURRENT;
        pl_backbone_options o = {
            .n_taps = 3, .tap = {2, 4, 5}, .d2t = i == 1 ? w->d2t : NULL, .draft_vocab = i == 1 ? SERVED_ROWS : 0};
        if (block) o.layers = 2, o.block = 6, o.mask_token = 9, o.anchor_first = spark;
        if (spark) o.head = markov;
        if (i == SERVED_WIDE) o.width = 24;
        if (i == SERVED_PARALLEL) o.block = 4, o.mask_token = 9;
        if (i == SERVED_RECURRENT) pl_hf_head_set_text(&o.head, "form", "rnn");
        if (i == SERVED_SECOND)
            o.conv_taps = 2, o.conv_group = 8, o.selector = (pl_hf_selector){.rank = 5, .candidates = 6};
        snprintf(w->checkpoint[i], sizeof w->checkpoint[i], "%s/drafter%d", w->base, i);
        assert_int_equal(pl_dir_make(w->checkpoint[i], NULL), PL_OK);
        const pl_backbone_kind *kind = block                  ? &pl_backbone_dflash
                                       : i == SERVED_PARALLEL ? &pl_backbone_peagle
                                                              : &pl_backbone_eagle3;
        test_backbone_write(w->checkpoint[i], &w->model, kind, &o, 43);
    }
}

void served_other(served_world *w, const pl_backbone_kind *kind, const pl_backbone_options *o) {
    snprintf(w->checkpoint[SERVED_OTHER], sizeof w->checkpoint[SERVED_OTHER], "%s/other", w->base);
    pl_dir_make(w->checkpoint[SERVED_OTHER], NULL);
    test_backbone_write(w->checkpoint[SERVED_OTHER], &w->model, kind, o, 43);
}

void served_end(served_world *w) {
    pl_llama_fini(&w->model);
    test_rmdir(w->base);
}

void served_gguf(const char *path, int layers, int tokens) {
    pl_err       err = {0};
    pl_gguf_out *o = pl_gguf_out_new();
    int32_t     *ids = pl_calloc((size_t)tokens, sizeof *ids);
    pl_gguf_put_text(o, "general.architecture", "llama");
    pl_gguf_put_u32(o, "llama.block_count", (uint32_t)layers);
    pl_gguf_put_u32(o, "llama.embedding_length", 48);
    pl_gguf_put_u32(o, "llama.context_length", 512);
    pl_gguf_put_f32(o, "llama.rope.freq_base", 10000);
    pl_gguf_put_text(o, "tokenizer.ggml.model", "llama");
    pl_gguf_put_i32s(o, "tokenizer.ggml.tokens", ids, (uint64_t)tokens);
    if (pl_gguf_write(o, path, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_gguf_out_free(o);
    pl_free(ids);
}

void served_export(const served_world *w, const char *engine, int which, const char *target, bool f32) {
    static const pl_env env;
    pl_err              err = {0};
    char               *serve;
    if (pl_export_write(pl_export_engine_find(engine, &err), w->checkpoint[which], target, w->out, f32, &env, &serve,
                        &err) != PL_OK)
        fail_msg("%s", err.msg);
    pl_free(serve);
}

static void hear(void *arg, const char *rule, const char *help, pl_check_verdict v, const char *why) {
    served_told *t = arg;
    char        *to = v == PL_CHECK_BROKEN ? t->broken : t->unseen;
    assert_true(*help && (v == PL_CHECK_HOLDS) == !*why);
    t->rules++;
    if (v == PL_CHECK_HOLDS) return;
    snprintf(to + strlen(to), sizeof t->broken - strlen(to), "%s ", rule);
    snprintf(t->why + strlen(t->why), sizeof t->why - strlen(t->why), "%s: %s; ", rule, why);
}

served_told served_check(const char *engine, const char *path, const char *target) {
    served_told    t = {.broken = ""};
    pl_check_count n;
    pl_err         err = {0};
    if (pl_check_folder(pl_export_engine_find(engine, &err), path, target, hear, &t, &n, &err) != PL_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(n.broken > 0, *t.broken != 0);
    assert_true(n.rules > 0 && n.rules == t.rules);
    return t;
}

void served_expect(const served_told *t, const char *rule, int number) {
    char        want[64];
    bool        unsure = *rule == '?';
    const char *told = unsure ? t->unseen : t->broken;
    snprintf(want, sizeof want, "%s ", rule + unsure);
    const char *found = strstr(told, want);
    if (!found || (found > told && found[-1] != ' ')) fail_msg("case %d: %s wanted, told: %s", number, rule, t->why);
    int others = -1;
    for (const char *c = t->broken; *c; c++)
        others += *c == ' ';
    if (others > 1) fail_msg("case %d: %s", number, t->why);
}

pl_st *served_open(const char *dir) {
    pl_st *st;
    pl_err err = {0};
    if (pl_st_open(&st, dir, &err) != PL_OK) fail_msg("%s", err.msg);
    return st;
}

char *served_text(const char *dir, const char *name) {
    char    *path = pl_path_join(dir, name);
    uint8_t *text;
    size_t   n;
    pl_err   err = {0};
    if (pl_file_read(path, &text, &n, 1 << 20, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_free(path);
    return (char *)text;
}

void served_edit(const char *dir, const char *from, const char *to) {
    char  *text = served_text(dir, "config.json"), *at = strstr(text, from), path[160];
    pl_err err = {0};
    if (!at) fail_msg("%s: not in %s", from, text);
    char *next = pl_sprintf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(pl_file_write_atomic(path, next, strlen(next), &err), PL_OK);
    pl_free(next);
    pl_free(text);
}

void served_drop(const char *dir, const char *key) {
    char  *text = served_text(dir, "config.json"), mark[80], path[160];
    pl_err err = {0};
    cJSON *o = cJSON_Parse(text), *at = o;
    snprintf(mark, sizeof mark, "%s", key);
    char *dot = strchr(mark, '.');
    if (dot) *dot = 0, at = cJSON_GetObjectItemCaseSensitive(o, mark);
    assert_non_null(cJSON_GetObjectItemCaseSensitive(at, dot ? dot + 1 : mark));
    cJSON_DeleteItemFromObjectCaseSensitive(at, dot ? dot + 1 : mark);
    char *next = cJSON_Print(o);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(pl_file_write_atomic(path, next, strlen(next), &err), PL_OK);
    cJSON_free(next);
    cJSON_Delete(o);
    pl_free(text);
}

void served_replace(const char *dir, const char *name, const pl_st_source *to) {
    pl_st       *st = served_open(dir);
    pl_st_source all[256];
    int          n = 0;
    bool         there = false;
    char         path[160], temp[160];
    pl_err       err = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    snprintf(temp, sizeof temp, "%s/other.safetensors", dir);
    assert_true(pl_st_count(st) < 256);
    for (int64_t i = 0; i < pl_st_count(st); i++) {
        const pl_st_entry *e = pl_st_at(st, i);
        bool               is = strcmp(e->name, name) == 0;
        there |= is;
        if (is && !to->data) continue;
        all[n] = (pl_st_source){.name = e->name, .dtype = e->dtype, .rank = e->rank, .data = e->data};
        memcpy(all[n].shape, e->shape, sizeof e->shape);
        if (is) all[n] = *to;
        n++;
    }
    if (!there) all[n++] = *to;
    assert_int_equal(pl_st_write(temp, all, n, NULL, 0, &err), PL_OK);
    pl_st_close(st);
    assert_int_equal(rename(temp, path), 0);
}

void served_rename(const char *dir, const char *from, const char *to) {
    pl_st             *st = served_open(dir);
    const pl_st_entry *e = pl_st_find(st, from);
    assert_non_null(e);
    void *data = pl_malloc(e->bytes);
    memcpy(data, e->data, e->bytes);
    pl_st_source s = {.name = to, .dtype = e->dtype, .rank = e->rank, .data = data};
    memcpy(s.shape, e->shape, sizeof s.shape);
    pl_st_close(st);
    served_replace(dir, from, &s);
    pl_free(data);
}
