// Vocabularies of a recipe: what is counted, when a list is made anew, which names lead to it, what is refused.
#include "data/counts/tally.h"
#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "tests/checkpoints/scratch.h"
#include "train/keys.h"
#include "train/run/pipeline.h"
#include "train/source/vocabularies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void write_text(const char *name, const char *text) {
    char *path = pl_path_join(scratch, name);
    assert_int_equal(pl_file_write_atomic(path, text, strlen(text), NULL), PL_OK);
    pl_free(path);
}

// %s: the test's folder, as often as it stands there.
static pl_recipe *recipe(const char *fmt) {
    pl_recipe           *r;
    pl_err               err = {0};
    char                *text = pl_sprintf(fmt, scratch, scratch, scratch);
    int                  n;
    const pl_key *const *tables = pl_stage_tables(&n);
    if (pl_recipe_parse(&r, text, strlen(text), "r", tables, n, NULL, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_free(text);
    return r;
}

#define TARGET "target: {path: checkpoints/tiny}\n"

static pl_counts list(const char *name) {
    char     *path = pl_sprintf("%s/vocab/%s.json", scratch, name);
    pl_counts c;
    pl_err    err = {0};
    if (pl_counts_read(&c, path, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_free(path);
    return c;
}

static ino_t inode(const char *name) {
    char       *path = pl_sprintf("%s/vocab/%s.json", scratch, name);
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    pl_free(path);
    return s.st_ino;
}

static void run(const pl_recipe *r) {
    pl_err err = {0};
    if (pl_vocabularies_run(r, NULL, 0, scratch, &err) != PL_OK) fail_msg("%s", err.msg);
}

static void test_lists(void **state) {
    (void)state;
    write_text("a.txt", "The cat sat on the mat. The cat sat.\n");
    write_text("b.jsonl", "{\"prompt\":\"not this\",\"output\":\"The dog ran on the mat.\"}\n");
    pl_recipe *r = recipe(TARGET "vocabularies:\n"
                                 "  - {name: both, text: ['%s/*.txt'], jsonl: ['%s/b.jsonl'], field: output}\n"
                                 "  - {name: few, text: ['%s/a.txt'], size: bcl, alpha: 0, min_coverage: 0.5}\n");
    pl_err     err = {0};
    run(r);
    // What the tally by hand says.
    pl_tally      t = {0};
    pl_tokenizer *tok;
    assert_int_equal(pl_tokenizer_open(&tok, "checkpoints/tiny", &err), PL_OK);
    char *a = pl_path_join(scratch, "a.txt"), *b = pl_path_join(scratch, "b.jsonl");
    assert_int_equal(pl_tally_text(&t, tok, a, &err), PL_OK);
    pl_counts few = list("few");
    assert_memory_equal(few.count, t.all.count, (size_t)t.all.vocab * sizeof *few.count);
    assert_string_equal(few.corpus, a);
    int32_t *id = calloc((size_t)few.vocab, sizeof *id);
    pl_counts_rank(&few, id);
    assert_true(few.size > 0 && pl_counts_coverage(&few, id, few.size) >= 0.5 &&
                pl_counts_coverage(&few, id, few.size - 1) < 0.5);
    assert_int_equal(pl_tally_records(&t, tok, b, "output", &err), PL_OK);
    pl_counts both = list("both");
    assert_memory_equal(both.count, t.all.count, (size_t)t.all.vocab * sizeof *both.count);
    assert_int_equal(both.size, 0);
    assert_int_equal(both.documents, 2);
    assert_string_equal(both.tokenizer, pl_tokenizer_fingerprint(tok));
    // Names lead to them; anything else is a path, which must be there.
    char *path, *want = pl_sprintf("%s/vocab/few.json", scratch);
    assert_int_equal(pl_vocabulary_path(&path, r, "few", scratch, &err), PL_OK);
    assert_string_equal(path, want);
    pl_free(path);
    assert_int_equal(pl_vocabulary_path(&path, r, want, "elsewhere", &err), PL_OK);
    assert_string_equal(path, want);
    pl_free(path);
    assert_int_equal(pl_vocabulary_path(&path, r, NULL, scratch, &err), PL_OK);
    assert_null(path);
    assert_int_equal(pl_vocabulary_path(&path, r, "fwe", scratch, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "\"fwe\" is no file and none of the recipe's vocabularies (both, few)"));
    assert_int_equal(pl_vocabulary_path(&path, r, "few", "elsewhere", &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "make it with paceline run"));
    assert_null(path);
    // Nothing changed: nothing is written. One source changed: its lists alone are.
    ino_t was[2] = {inode("both"), inode("few")};
    run(r);
    assert_true(inode("both") == was[0] && inode("few") == was[1]);
    write_text("b.jsonl", "{\"output\":\"The cow\"}\n");
    run(r);
    assert_true(inode("few") == was[1]);
    pl_counts anew = list("both");
    assert_true(anew.tokens < both.tokens);
    pl_counts *used[] = {&few, &both, &anew};
    for (int i = 0; i < 3; i++)
        pl_counts_fini(used[i]);
    pl_tally_fini(&t);
    pl_tokenizer_close(tok);
    pl_recipe_close(r);
    free(id);
    pl_free(a);
    pl_free(b);
    pl_free(want);
}

// A list whose stamp an older build made, which counted otherwise: the same sources, the same keys.
static void test_older_build(void **state) {
    (void)state;
    pl_err        err = {0};
    pl_tokenizer *tok;
    char          keys_of[17], old[17];
    write_text("a.txt", "The cat sat on the mat. The cat sat.\n");
    pl_recipe *r = recipe(TARGET "vocabularies: [{name: few, text: ['%s/a.txt']}]\n");
    run(r);
    // Counted without the end, as it was then.
    pl_counts few = list("few");
    assert_int_equal(pl_tokenizer_open(&tok, "checkpoints/tiny", &err), PL_OK);
    assert_int_equal(pl_recipe_item_hash(r, &pl_vocabularies_recipe_of(r)->vocabularies.at[0], keys_of, &err), PL_OK);
    int32_t eos = pl_tokenizer_eos_id(tok);
    char   *path = pl_path_join(scratch, "a.txt"), *stamp = pl_path_join(scratch, ".stamps/vocab.few"),
         *file = pl_path_join(scratch, "vocab/few.json");
    assert_int_equal(few.count[eos], 1);
    few.count[eos]--, few.tokens--;
    assert_int_equal(pl_counts_write(&few, file, &err), PL_OK);
    pl_counts_fini(&few);
    run(r); // and its stamp is right: it is kept
    few = list("few");
    assert_int_equal(few.count[eos], 0);
    pl_counts_fini(&few);
    uint64_t h = pl_hash_more(pl_hash(keys_of, 16), pl_tokenizer_fingerprint(tok), 16);
    h = pl_hash_more(h, path, strlen(path) + 1);
    h = pl_hash_more(h, "The cat sat on the mat. The cat sat.\n", 38);
    pl_hash_hex(old, h);
    assert_int_equal(pl_file_write_atomic(stamp, old, 16, &err), PL_OK);
    run(r);
    few = list("few");
    assert_int_equal(few.count[eos], 1);
    pl_counts_fini(&few);
    pl_tokenizer_close(tok);
    pl_recipe_close(r);
    pl_free(path), pl_free(stamp), pl_free(file);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *items, *why;
    } bad[] = {
        {"[{text: [a]}]", "name"},
        {"[{name: a/b, text: [a]}]", "no folder name"},
        {"[{name: a, text: [%s/a.txt]}, {name: a, text: [%s/a.txt]}]", "stands twice"},
        {"[{name: a}]", "nothing to count"},
        {"[{name: a, text: [%s/*.none]}]", "matches no file"},
        {"[{name: a, jsonl: [%s/none.jsonl]}]", "matches no file"},
        {"[{name: a, text: [%s/a.txt], field: output}]", "is for jsonl"},
        {"[{name: a, text: [%s/a.txt], alpha: 0.5}]", "is for size: bcl"},
        {"[{name: a, text: [%s/a.txt], size: all, head_share: 0.5}]", "is for size: bcl"},
        {"[{name: a, dataset: true}]\ndata.mode: online", "not all answers are stored"},
        {"[{name: a, dataset: true}]", "manifest"},
        {"[{name: a, jsonl: [%s/b.jsonl], field: other}]", "other"},
    };
    write_text("a.txt", "The cat sat on the mat.\n");
    write_text("b.jsonl", "{\"output\":\"The dog\"}\n");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char      *text = pl_sprintf(TARGET "vocabularies: %s\n", bad[i].items);
        pl_recipe *r = recipe(text);
        pl_err     err = {0};
        assert_int_equal(pl_vocabularies_run(r, NULL, 0, scratch, &err), PL_E_INPUT);
        if (!strstr(err.msg, bad[i].why)) fail_msg("case %zu: %s", i, err.msg);
        assert_null(strchr(err.msg, '\n'));
        pl_recipe_close(r);
        pl_free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lists, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_older_build, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_refused, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
