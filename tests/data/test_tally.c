// What is counted: a dataset's answers with what they ended with, texts and records with the token that ends them.
#include "data/counts/tally.h"
#include "data/dataset/dataset.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "tests/checkpoints/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { V = 20, D = 2, EOS = 7, ROWS = 5 };

// Answers 4 5 and what they ended with, behind prompts of 1 2 and a token that differs.
static char *write_dataset(const char *name, const int32_t *end, int docs) {
    static const pl_dataset_attrs attrs = {.target_fingerprint = "aaaaaaaaaaaaaaaa",
                                           .tokenizer_fingerprint = "bbbbbbbbbbbbbbbb",
                                           .template_name = "plain",
                                           .generation = "{\"seed\": 3}",
                                           .vocab_size = V,
                                           .d = D};
    char                         *path = pl_path_join(scratch, name);
    pl_dataset_writer            *w;
    pl_err                        err = {0};
    assert_ok(pl_dataset_writer_create(&w, path, &attrs, 12, &err));
    for (int i = 0; i < docs; i++) {
        const pl_doc_about about = {.end = end[i]};
        int32_t            tokens[ROWS] = {1, 2, 8 + i % 8, 4, 5}, argmax[ROWS] = {0};
        uint8_t            mask[ROWS] = {0, 0, 0, 1, 1};
        uint16_t           last[ROWS * D] = {0};
        assert_ok(pl_dataset_append(w,
                                    &(pl_columns){.n = ROWS,
                                                  .tokens = tokens,
                                                  .loss_mask = mask,
                                                  .argmax = argmax,
                                                  .last_hidden = last,
                                                  .about = end[i] >= 0 ? &about : NULL},
                                    &err));
    }
    assert_ok(pl_dataset_writer_close(w, &err));
    return path;
}

// What ended answers is counted once for each that it ended, and ranks so, in the list and in its halves.
static void answers(void **state) {
    (void)state;
    static const int32_t end[] = {EOS, EOS, 3, EOS, -1, EOS};
    pl_tally             t = {0};
    pl_err               err = {0};
    int32_t              id[V];
    char                *path = write_dataset("answers", end, 6);
    assert_ok(pl_tally_dataset(&t, NULL, path, NULL, &err));
    assert_int_equal(t.all.documents, 6);
    assert_int_equal(t.all.tokens, 6 * 2 + 5);
    assert_int_equal(t.all.count[EOS], 4);
    assert_int_equal(t.all.count[3], 1);
    assert_int_equal(t.all.count[1] + t.all.count[2], 0);
    assert_int_equal(t.half[0].count[EOS], 1);
    assert_int_equal(t.half[1].count[EOS], 3);
    assert_int_equal(t.half[1].tokens, 3 * 2 + 3);
    assert_int_equal(pl_counts_rank(&t.all, id), 4);
    const int32_t want[] = {4, 5, EOS, 3};
    assert_memory_equal(id, want, sizeof want);
    pl_tally_fini(&t);
    pl_free(path);
}

// What training holds out is not counted, with any of the seeds that are named, or the dataset's own.
static void held_out(void **state) {
    (void)state;
    enum { DOCS = 8, EVERY = 3 };
    static const int32_t  end[DOCS] = {EOS, EOS, EOS, EOS, EOS, EOS, EOS, EOS};
    static const uint64_t seeds[] = {3, 11, 4};
    static const uint8_t  mask[ROWS] = {0, 0, 0, 1, 1};
    pl_err                err = {0};
    char                 *path = write_dataset("held", end, DOCS);
    for (int n_seeds = 0; n_seeds <= 3; n_seeds++) {
        pl_tally_held held = {.every = EVERY, .seed = seeds, .n_seeds = n_seeds};
        pl_tally      t = {0};
        int           kept = 0;
        for (int i = 0; i < DOCS; i++) {
            const int32_t tokens[ROWS] = {1, 2, 8 + i, 4, 5};
            bool          out = false;
            for (int k = 0; k < (n_seeds ? n_seeds : 1); k++)
                out |= pl_dataset_held_out(tokens, mask, ROWS, seeds[k], EVERY);
            kept += !out;
        }
        assert_true(kept > 0 && kept < DOCS);
        assert_ok(pl_tally_dataset(&t, NULL, path, &held, &err));
        assert_int_equal(t.all.documents, kept);
        assert_int_equal(t.all.count[EOS], kept);
        assert_int_equal(t.half[0].documents, (kept + 1) / 2);
        pl_tally_fini(&t);
    }
    pl_tally t = {0};
    assert_ok(pl_tally_dataset(&t, NULL, path, &(pl_tally_held){0}, &err));
    assert_int_equal(t.all.documents, DOCS);
    pl_tally_fini(&t);
    pl_free(path);
}

static void write_text(const char *name, const char *text) {
    char *path = pl_path_join(scratch, name);
    assert_int_equal(pl_file_write_atomic(path, text, strlen(text), NULL), PL_OK);
    pl_free(path);
}

// A file ends once, however often it was cut; a record ends once. With the target's stop tokens where they are given.
static void texts(void **state) {
    (void)state;
    pl_tally      t = {0}, given = {.stop = {5, 1 << 20, 9}, .n_stop = 3};
    pl_tokenizer *tok;
    pl_err        err = {0};
    int32_t      *ids;
    int64_t       n, plain = 0;
    char          text[10001];
    for (int i = 0; i < 10000; i++)
        text[i] = i % 7 == 6 ? ' ' : (char)('a' + i % 7);
    text[10000] = 0;
    write_text("a.txt", text);
    write_text("b.txt", "The cat sat.");
    write_text("c.jsonl", "{\"prompt\":\"one\"}\n{\"prompt\":\"two\"}\n{\"prompt\":\"three\"}\n");
    assert_ok(pl_tokenizer_open(&tok, "checkpoints/tiny", &err));
    int32_t eos = pl_tokenizer_eos_id(tok);
    char   *records = pl_path_join(scratch, "c.jsonl"), *one = pl_path_join(scratch, "b.txt");
    assert_true(eos >= 0);
    assert_ok(pl_tally_text(&t, tok, scratch, &err)); // *.txt
    assert_true(t.all.documents > 3);
    assert_int_equal(t.all.count[eos], 2);
    assert_ok(pl_tally_records(&t, tok, records, NULL, &err));
    assert_int_equal(t.all.count[eos], 2 + 3);
    assert_ok(pl_tally_text(&given, tok, one, &err));
    assert_ok(pl_tokenizer_encode(tok, "The cat sat.", 12, PL_TOK_NO_SPECIAL, &ids, &n, &err));
    for (int64_t i = 0; i < n; i++)
        plain += ids[i] == 5 || ids[i] == 9;
    assert_int_equal(given.all.count[eos], 0);
    assert_int_equal(given.all.count[5] + given.all.count[9], plain + 2);
    assert_int_equal(given.all.tokens, n + 2);
    pl_tally_fini(&t);
    pl_tally_fini(&given);
    pl_tokenizer_close(tok);
    pl_free(ids), pl_free(records), pl_free(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(held_out, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(texts, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
