#include "data/text/text.h"
#include "kernels/base/utf8.h"
#include "tests/checkpoints/scratch.h"

static char *clean(size_t (*step)(char *, size_t), const char *text) {
    static char buf[1 << 15];
    strcpy(buf, text);
    buf[step(buf, strlen(text))] = 0;
    return buf;
}

static void test_newlines(void **state) {
    (void)state;
    assert_string_equal(clean(pl_text_normalize_newlines, "a\r\nb\rc\n\r\n\r\rd\r"), "a\nb\nc\n\n\n\nd\n");
    assert_string_equal(clean(pl_text_normalize_newlines, ""), "");
}

static void test_unwrap(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", ""},
        {"\n\n\n", ""},
        {"one\n", "one\n"},
        {"one", "one"},
        {"one\ntwo\n\n\n\nthree\nfour \n  \t\nfive\n", "one two\nthree four\nfive\n"},
        {"one \n two\n", "one two\n"},
        {"say:\n   verse one\n   verse two\n\nprose\nagain", "say:\nverse one\nverse two\nprose again"},
        {"\n\n   TITLE   \n\ntext\n", "TITLE\ntext\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(clean(pl_text_unwrap, cases[i][0]), cases[i][1]);
}

static void test_gutenberg(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"no markers\nat all\n", "no markers\nat all\n"},
        {"head\n*** START OF THIS PROJECT GUTENBERG EBOOK X ***\n\n\nProduced by A\nand B\n\n\nBOOK\n\ntext\n\n\n"
         "End of the Project Gutenberg EBook of X, by Y\n\n*** END OF THIS PROJECT GUTENBERG EBOOK X ***\nlicence\n",
         "BOOK\n\ntext\n"},
        {"head\n***START OF THE PROJECT GUTENBERG EBOOK X***\n\nE-text prepared by A\n\nHTML version by B\n\ntext\n\n"
         "***END OF THE PROJECT GUTENBERG EBOOK X***\n******* This file\n",
         "text\n"},
        {"*** START OF THE PROJECT GUTENBERG EBOOK A VERY\nLONG TITLE ***\ntext\n*** END OF THE PROJECT GUTENBERG "
         "EBOOK\n",
         "text\n"},
        // the head of 1993: a small print with a marker at its end
        {"**The Project Gutenberg Etext of X**\n***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***\n"
         "Why is this here?\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n\n\nText of the book\n"
         "goes on\nand on\nand on\nand on\nand on\nand on and on and on and on and on and on and on and on\n"
         "and on and on and on and on and on and on and on and on and on and on and on and on and on and on\n\n"
         "End of Project Gutenberg Etext X\n",
         "Text of the book\ngoes on\nand on\nand on\nand on\nand on\nand on and on and on and on and on and on and on "
         "and on\nand on and on and on and on and on and on and on and on and on and on and on and on and on and on\n"},
        // notes of the transcriber at the end
        {"*** START OF THIS PROJECT GUTENBERG EBOOK X ***\ntext\n\nTranscriber's Note: errors\n\nfoo => bar\n\n"
         "End of Project Gutenberg's X\n",
         "text\n"},
        // the text may speak of an end
        {"*** START OF THIS PROJECT GUTENBERG EBOOK X ***\nThe End of the project was near.\nEND OF BOOK ONE\n"
         "*** END OF THIS PROJECT GUTENBERG EBOOK X ***\n",
         "The End of the project was near.\nEND OF BOOK ONE\n"},
        {"*** START OF THIS PROJECT GUTENBERG EBOOK X ***\nno end", "no end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(clean(pl_text_strip_gutenberg, cases[i][0]), cases[i][1]);
}

// ---- reading

static const pl_text_options plain = {0};

static pl_corpus *read_ok(const char *path, pl_text_options opt) {
    pl_err     err;
    pl_corpus *c;
    assert_ok(pl_corpus_read(&c, &path, 1, opt, &err));
    size_t sum = 0;
    for (int64_t i = 0; i < c->n; i++) {
        assert_int_equal(c->docs[i].text[c->docs[i].bytes], 0);
        assert_int_equal(pl_utf8_valid(c->docs[i].text, c->docs[i].bytes), c->docs[i].bytes);
        sum += c->docs[i].bytes;
    }
    assert_int_equal(sum, c->bytes);
    return c;
}

static void test_encodings(void **state) {
    (void)state;
    pl_err      err;
    pl_corpus  *c;
    const char *path = at("latin.txt");
    put_text(at("latin.txt"), "caf\xe9 \x93q\x94\r\n");
    assert_says(pl_corpus_read(&c, &path, 1, plain, &err), PL_E_INPUT, &err,
                "latin.txt: not valid UTF-8 at byte 3 (0xe9); convert");
    assert_null(c);
    c = read_ok(path, (pl_text_options){.encoding = PL_TEXT_LATIN1});
    assert_string_equal(c->docs[0].text, "caf\xC3\xA9 \xE2\x80\x9Cq\xE2\x80\x9D\n");
    pl_corpus_destroy(c);
    c = read_ok(path, (pl_text_options){.encoding = PL_TEXT_REPLACE});
    assert_string_equal(c->docs[0].text, "caf\xEF\xBF\xBD \xEF\xBF\xBDq\xEF\xBF\xBD\n");
    pl_corpus_destroy(c);
    put_text(at("bom.txt"), "\xEF\xBB\xBFx\xC3\xA9\rz");
    c = read_ok(at("bom.txt"), plain);
    assert_string_equal(c->docs[0].text, "x\xC3\xA9\nz");
    pl_corpus_destroy(c);
    put_file(at("wide.txt"),
             "\xff\xfe"
             "a\0b\0",
             6);
    path = at("wide.txt");
    assert_says(pl_corpus_read(&c, &path, 1, (pl_text_options){.encoding = PL_TEXT_LATIN1}, &err), PL_E_INPUT, &err,
                "UTF-16");
}

static void test_files_folders_globs(void **state) {
    (void)state;
    pl_err     err;
    pl_corpus *c;
    assert_ok(pl_dir_make(at("lib/sub.txt"), &err));
    put_text(at("lib/b.txt"), "b\n");
    put_text(at("lib/a.txt"), "a\n");
    put_text(at("lib/c.md"), "c\n");
    put_text(at("lib/empty.txt"), "\n\n");
    put_text(at("lib/.hidden.txt"), "h\n");
    put_text(at("lib/sub.txt/d.txt"), "d\n");
    pl_status st = pl_tree_remove(at("lib/sub.txt"), &err);
    assert_int_equal(st, PL_OK);
    char        dir[600], glob[600], file[600];
    const char *paths[] = {file, dir, glob};
    snprintf(dir, sizeof dir, "%s", at("lib"));
    snprintf(glob, sizeof glob, "%s", at("lib/?.*"));
    snprintf(file, sizeof file, "%s", at("lib/b.txt"));
    assert_ok(pl_corpus_read(&c, paths, 3, (pl_text_options){.unwrap = true}, &err));
    assert_int_equal(c->n, 3);
    assert_string_equal(c->docs[0].name, file);
    assert_string_equal(c->docs[0].text, "b\n");
    assert_string_equal(c->docs[1].text, "a\n");
    assert_string_equal(c->docs[2].text, "c\n");
    pl_corpus_destroy(c);
    paths[0] = at("lib/none.txt");
    assert_says(pl_corpus_read(&c, paths, 1, plain, &err), PL_E_INPUT, &err, "no such file or folder");
    assert_ok(pl_dir_make(at("void"), &err));
    paths[0] = at("void");
    assert_says(pl_corpus_read(&c, paths, 1, plain, &err), PL_E_INPUT, &err, "no .txt files in this folder");
    paths[0] = at("lib/empty.txt");
    assert_says(pl_corpus_read(&c, paths, 1, (pl_text_options){.unwrap = true}, &err), PL_E_INPUT, &err,
                "no text in it");
    pl_corpus_destroy(NULL);
}

// A document for each record of a *.jsonl, as it stands; held out by the file's name, chunked or not.
static void test_records(void **state) {
    (void)state;
    pl_err      err;
    pl_corpus  *c, *cut, *train, *held;
    const char *name = "r.jsonl", *path;
    put_text(at("r.jsonl"), "{\"text\": \"one\\r\\ntwo\", \"n\": 1}\n\n{\"text\": \"three\"}\n");
    put_text(at("q.txt"), "four\n");
    c = read_ok(at("r.jsonl"), (pl_text_options){.gutenberg = true, .unwrap = true});
    assert_int_equal(c->n, 2);
    assert_string_equal(c->docs[0].text, "one\ntwo");
    assert_string_equal(c->docs[1].text, "three");
    assert_string_equal(strrchr(c->docs[1].name, '/'), "/r.jsonl#3");
    pl_corpus_destroy(c);
    char        first[600], second[600], again[600];
    const char *paths[] = {first, second, again};
    snprintf(first, sizeof first, "%s", at("r.jsonl"));
    snprintf(second, sizeof second, "%s", at("q.txt"));
    snprintf(again, sizeof again, "%s", at("r.jsonl"));
    assert_ok(pl_corpus_read(&c, paths, 3, plain, &err));
    assert_int_equal(c->n, 3);
    assert_ok(pl_corpus_chunk(&cut, c, 64, &err));
    for (int i = 0; i < 2; i++) {
        assert_ok(pl_corpus_split_names(i ? cut : c, &name, 1, &train, &held, &err));
        assert_int_equal(train->n, 1);
        assert_int_equal(held->n, 2);
        assert_string_equal(held->docs[1].text, "three");
        pl_corpus_destroy(train);
        pl_corpus_destroy(held);
    }
    pl_corpus_destroy(cut);
    pl_corpus_destroy(c);
    put_text(at("bad.jsonl"), "{\"text\": \"x\"}\n{\"answer\": \"y\"}\n");
    path = at("bad.jsonl");
    assert_says(pl_corpus_read(&c, &path, 1, plain, &err), PL_E_INPUT, &err,
                "bad.jsonl:2: this record has no \"text\"");
}

// ---- chunks and splits

static void test_chunks(void **state) {
    (void)state;
    pl_err err;
    FILE  *f = fopen(at("long.txt"), "w");
    assert_non_null(f);
    for (int i = 0; i < 200; i++)
        fprintf(f, "paragraph %d with words\n", i);
    for (int i = 0; i < 300; i++)
        fputs("word ", f);
    for (int i = 0; i < 300; i++)
        fputs("\xE6\x97\xA5", f);
    fclose(f);
    pl_corpus *c = read_ok(at("long.txt"), plain), *k;
    for (size_t max = 64; max <= 8192; max *= 2) {
        assert_ok(pl_corpus_chunk(&k, c, max, &err));
        assert_int_equal(k->bytes, c->bytes);
        size_t at_byte = 0;
        for (int64_t i = 0; i < k->n; i++) {
            const pl_document *d = &k->docs[i];
            assert_true(d->bytes > 0 && d->bytes <= max);
            assert_memory_equal(d->text, c->docs[0].text + at_byte, d->bytes);
            assert_int_equal(pl_utf8_valid(d->text, d->bytes), d->bytes);
            if (at_byte + d->bytes < 4000) assert_int_equal(d->text[d->bytes - 1], '\n');
            at_byte += d->bytes;
        }
        if (max == 8192) assert_int_equal(k->n, 1);
        char want[700];
        snprintf(want, sizeof want, "%s#%d", at("long.txt"), (int)k->n - 1);
        assert_string_equal(k->docs[k->n - 1].name, want);
        pl_corpus_destroy(k);
    }
    pl_corpus_destroy(c);
}

static void test_splits(void **state) {
    (void)state;
    pl_err err;
    assert_ok(pl_dir_make(at("s"), &err));
    for (int i = 0; i < 7; i++) {
        char name[32], text[200];
        snprintf(name, sizeof name, "s/doc%d.txt", i);
        memset(text, 'a' + i, 150);
        text[150] = 0;
        put_text(at(name), text);
    }
    pl_corpus *c = read_ok(at("s"), plain), *train, *held, *chunks;
    assert_ok(pl_corpus_split_every(c, 3, &train, &held, &err));
    assert_int_equal(train->n, 5);
    assert_int_equal(held->n, 2);
    assert_int_equal(held->docs[0].text[0], 'c');
    assert_int_equal(held->docs[1].text[0], 'f');
    assert_int_equal(train->bytes + held->bytes, c->bytes);
    pl_corpus_destroy(train);
    pl_corpus_destroy(held);
    char        full[600];
    const char *names[] = {"doc1.txt", full, "doc9.txt"};
    snprintf(full, sizeof full, "%s", at("s/doc4.txt"));
    assert_ok(pl_corpus_chunk(&chunks, c, 64, &err));
    const pl_corpus *both[] = {c, chunks};
    for (int k = 0; k < 2; k++) {
        assert_ok(pl_corpus_split_names(both[k], names, 2, &train, &held, &err));
        assert_int_equal(held->bytes, 300);
        assert_int_equal(train->bytes, 750);
        assert_int_equal(held->docs[0].text[0], 'b');
        assert_int_equal(held->docs[held->n - 1].text[0], 'e');
        pl_corpus_destroy(train);
        pl_corpus_destroy(held);
        assert_says(pl_corpus_split_names(both[k], names, 3, &train, &held, &err), PL_E_INPUT, &err,
                    "doc9.txt: no document of this name");
        assert_null(train);
        assert_null(held);
    }
    pl_corpus_destroy(chunks);
    pl_corpus_destroy(c);
}

static void test_out_of_memory(void **state) {
    (void)state;
    pl_err err;
    char   path[600];
    assert_ok(pl_dir_make(at("m"), &err));
    put_text(at("m/a.txt"),
             "caf\xe9\n\nand more text than sixty-four bytes, so that there is something to cut here.\n");
    put_text(at("m/b.txt"), "b\n");
    snprintf(path, sizeof path, "%s", at("m"));
    const char *paths[] = {path};
    pl_status   st = PL_E_MEMORY;
    for (uint64_t i = 1; st != PL_OK; i++) {
        pl_corpus *c, *k = NULL, *train = NULL, *held = NULL;
        pl_alloc_fail_after(i);
        st = pl_corpus_read(&c, paths, 1, (pl_text_options){true, true, PL_TEXT_LATIN1}, &err);
        if (st == PL_OK) st = pl_corpus_chunk(&k, c, 64, &err);
        if (st == PL_OK) st = pl_corpus_split_every(k, 2, &train, &held, &err);
        pl_alloc_fail_after(0);
        if (st != PL_OK)
            assert_int_equal(st, PL_E_MEMORY);
        else
            assert_true(i > 20);
        pl_corpus_destroy(c);
        pl_corpus_destroy(k);
        pl_corpus_destroy(train);
        pl_corpus_destroy(held);
    }
}

// ---- real books

static void test_books(void **state) {
    (void)state;
    const char *dir = outside("text/gutenberg");
    if (!dir) skip();
    pl_corpus *c = read_ok(dir, (pl_text_options){.gutenberg = true, .unwrap = true});
    assert_int_equal(c->n, 27);
    for (int64_t i = 0; i < c->n; i++) {
        const pl_document *d = &c->docs[i];
        // Notes that an editor put inside the text stay (Bleak House, Great Expectations, Moby Dick).
        bool               noted = strstr(d->name, "Bleak") || strstr(d->name, "Great") || strstr(d->name, "Moby");
        if (!noted && strstr(d->text, "Project Gutenberg")) fail_msg("%s still names Project Gutenberg", d->name);
        assert_null(strstr(d->text, "\r"));
        assert_null(strstr(d->text, "\n\n"));
        assert_null(strstr(d->text, "Produced by"));
        assert_null(strstr(d->text, "etext transcriber"));
        assert_true(d->bytes > 100000);
        if (strstr(d->name, "Alice")) {
            assert_non_null(strstr(d->text,
                                   "Alice was beginning to get very tired of sitting by her sister on the bank, "
                                   "and of having nothing to do: once or twice"));
            assert_int_equal(strncmp(d->text, "ALICE\xE2\x80\x99S ADVENTURES IN WONDERLAND\n", 34), 0);
            assert_string_equal(d->text + d->bytes - 8, "THE END\n");
        }
        if (strstr(d->name, "Ulysses"))
            assert_string_equal(d->text + d->bytes - 31, "Trieste-Zurich-Paris\n1914-1921\n");
    }
    pl_corpus_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newlines),
        cmocka_unit_test(test_unwrap),
        cmocka_unit_test(test_gutenberg),
        cmocka_unit_test(test_encodings),
        cmocka_unit_test(test_files_folders_globs),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_books),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
