#define _GNU_SOURCE 1 // memmem
#include "data/dataset/dataset.h"
#include "kernels/base/hash.h"
#include "tests/checkpoints/scratch.h"
#include <dirent.h>
#include <hdf5.h>
#include <signal.h>
#include <sys/wait.h>

enum { D = 6, A = 3, V = 500, MAX_ROWS = 64 };

static const pl_dataset_attrs attrs = {.target_fingerprint = "aaaaaaaaaaaaaaaa",
                                       .tokenizer_fingerprint = "bbbbbbbbbbbbbbbb",
                                       .template_name = "plain",
                                       .generation = "{\"temperature\":0,\"note\":\"caf\xC3\xA9\"}",
                                       .vocab_size = V,
                                       .d = D,
                                       .A = A,
                                       .tap_layer_ids = {2, 5, 8}};

typedef struct doc {
    int64_t      n;
    pl_doc_about about;
    int32_t      tokens[MAX_ROWS], argmax[MAX_ROWS];
    uint8_t      loss_mask[MAX_ROWS];
    uint16_t     features[MAX_ROWS * A * D], last_hidden[MAX_ROWS * D];
} doc;

// Document i: lengths and contents follow from i alone.
static doc *make(int64_t i) {
    static doc d;
    unsigned   x = (unsigned)i * 2654435761u + 1;
    d.n = 1 + i * 7 % 23;
    for (int64_t k = 0; k < d.n; k++) {
        x = x * 1664525u + 1013904223u;
        d.tokens[k] = (int32_t)((x >> 8) % V);
        d.argmax[k] = (int32_t)((x >> 16) % V);
        d.loss_mask[k] = (x >> 20) & 1;
    }
    d.about = (pl_doc_about){.end = -1};
    if (i % 5 < 4) // what nobody says is absent
        d.about =
            (pl_doc_about){(int32_t)(x % V), (int32_t)(i % 5), (int32_t)(i % 5), (int32_t)(i % 4), (int32_t)(i & 1)};
    for (int64_t k = 0; k < d.n * A * D; k++)
        d.features[k] = (uint16_t)(x = x * 1664525u + 1013904223u);
    for (int64_t k = 0; k < d.n * D; k++)
        d.last_hidden[k] = (uint16_t)((x = x * 1664525u + 1013904223u) >> 9);
    return &d;
}

static pl_columns columns_of(doc *d) {
    return (pl_columns){.n = d->n,
                        .tokens = d->tokens,
                        .loss_mask = d->loss_mask,
                        .argmax = d->argmax,
                        .features = d->features,
                        .last_hidden = d->last_hidden,
                        .about = d->about.end >= 0 ? &d->about : NULL};
}

static pl_status append(pl_dataset_writer *w, int64_t i, pl_err *err) {
    pl_columns d = columns_of(make(i));
    return pl_dataset_append(w, &d, err);
}

static void write_docs(const char *dir, int64_t docs, int64_t rows_per_shard) {
    pl_err             err;
    pl_dataset_writer *w;
    assert_ok(pl_dataset_writer_create(&w, dir, &attrs, rows_per_shard, &err));
    for (int64_t i = pl_dataset_writer_docs(w); i < docs; i++)
        assert_ok(append(w, i, &err));
    assert_ok(pl_dataset_writer_close(w, &err));
}

static void check_doc(pl_dataset *ds, int64_t i) {
    static doc got;
    pl_err     err;
    int64_t    first, n;
    const doc *want = make(i);
    assert_ok(pl_dataset_doc(ds, i, &first, &n, &err));
    assert_int_equal(n, want->n);
    pl_columns to = columns_of(&got);
    assert_ok(pl_dataset_read_doc(ds, i, &to, &err));
    assert_ok(pl_dataset_doc_about(ds, i, &got.about, &err));
    assert_memory_equal(&got.about, &want->about, sizeof want->about);
    assert_memory_equal(got.tokens, want->tokens, (size_t)n * 4);
    assert_memory_equal(got.argmax, want->argmax, (size_t)n * 4);
    assert_memory_equal(got.loss_mask, want->loss_mask, (size_t)n);
    assert_memory_equal(got.features, want->features, (size_t)n * A * D * 2);
    assert_memory_equal(got.last_hidden, want->last_hidden, (size_t)n * D * 2);
}

static pl_dataset *open_ok(const char *dir) {
    pl_err      err;
    pl_dataset *ds;
    assert_ok(pl_dataset_open(&ds, dir, NULL, &err));
    return ds;
}

static void test_write_and_read(void **state) {
    (void)state;
    pl_err err;
    for (int64_t per_shard = 10; per_shard <= 1000; per_shard *= 10) {
        char dir[32];
        snprintf(dir, sizeof dir, "ds%d", (int)per_shard);
        write_docs(at(dir), 40, per_shard);
        pl_dataset *ds = open_ok(at(dir));
        assert_int_equal(pl_dataset_docs(ds), 40);
        assert_true(pl_dataset_complete(ds));
        assert_int_equal(strlen(pl_dataset_fingerprint(ds)), 16);
        const pl_dataset_attrs *a = pl_dataset_get_attrs(ds);
        assert_string_equal(a->target_fingerprint, attrs.target_fingerprint);
        assert_string_equal(a->generation, attrs.generation);
        assert_int_equal(a->A, A);
        assert_memory_equal(a->tap_layer_ids, attrs.tap_layer_ids, A * 4);
        int64_t rows = 0;
        for (int64_t i = 0; i < 40; i++) {
            int64_t first, n;
            assert_ok(pl_dataset_doc(ds, i, &first, &n, &err));
            assert_int_equal(first, rows);
            rows += n;
            check_doc(ds, i);
        }
        assert_int_equal(rows, pl_dataset_rows(ds));
        unsigned x = 5;
        for (int k = 0; k < 60; k++) { // shards come and go
            x = x * 1664525u + 1013904223u;
            check_doc(ds, (x >> 8) % 40);
        }
        // A range over documents and shards equals the documents joined; only what is asked for is read.
        int32_t *tokens = malloc((size_t)rows * 4), *argmax = malloc((size_t)rows * 4);
        assert_non_null(tokens);
        assert_non_null(argmax);
        assert_ok(pl_dataset_read(ds, 0, rows, &(pl_columns){.tokens = tokens, .argmax = argmax}, &err));
        for (int64_t i = 0, r = 0; i < 40; i++)
            for (int64_t t = 0, n = make(i)->n; t < n; t++, r++) {
                assert_int_equal(tokens[r], make(i)->tokens[t]);
                assert_int_equal(argmax[r], make(i)->argmax[t]);
            }
        assert_ok(pl_dataset_read(ds, rows, 0, &(pl_columns){.tokens = tokens}, &err));
        free(tokens);
        free(argmax);
        pl_dataset_close(ds);
    }
}

// The file as another HDF5 program sees it.
static void test_layout(void **state) {
    (void)state;
    write_docs(at("layout"), 8, 1000);
    hid_t file = H5Fopen(at("layout/shard-00000.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    int64_t rows = 0;
    for (int64_t i = 0; i < 8; i++)
        rows += make(i)->n;
    const struct {
        const char *name;
        int         rank;
        hsize_t     dim[2];
        hid_t       type;
    } sets[] = {{"tokens", 1, {(hsize_t)rows}, H5T_STD_I32LE},
                {"argmax", 1, {(hsize_t)rows}, H5T_STD_I32LE},
                {"loss_mask", 1, {(hsize_t)rows}, H5T_STD_U8LE},
                {"doc_offsets", 1, {9}, H5T_STD_I64LE},
                {"features", 2, {(hsize_t)rows, A * D}, H5T_STD_U16LE},
                {"last_hidden", 2, {(hsize_t)rows, D}, H5T_STD_U16LE},
                {"doc_ends", 1, {8}, H5T_STD_I32LE},
                {"doc_turns", 1, {8}, H5T_STD_I32LE},
                {"doc_backs", 1, {8}, H5T_STD_I32LE},
                {"doc_finishes", 1, {8}, H5T_STD_I32LE},
                {"doc_cuts", 1, {8}, H5T_STD_I32LE}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        hid_t   set = H5Dopen2(file, sets[i].name, H5P_DEFAULT);
        hsize_t dim[2] = {0};
        assert_true(set >= 0);
        hid_t space = H5Dget_space(set), type = H5Dget_type(set);
        assert_int_equal(H5Sget_simple_extent_dims(space, dim, NULL), sets[i].rank);
        assert_int_equal(dim[0], sets[i].dim[0]);
        if (sets[i].rank == 2) {
            char  text[8] = "";
            hid_t attr = H5Aopen(set, "dtype", H5P_DEFAULT), own = H5Aget_type(attr);
            assert_int_equal(dim[1], sets[i].dim[1]);
            assert_true(H5Aread(attr, own, text) >= 0);
            assert_string_equal(text, "bf16");
            H5Tclose(own);
            H5Aclose(attr);
        }
        assert_true(H5Tequal(type, sets[i].type) > 0);
        H5Tclose(type);
        H5Sclose(space);
        H5Dclose(set);
    }
    static const char *const names[][2] = {{"tap_numbering", "layer inputs, 0-based"},
                                           {"last_hidden", "post final norm"},
                                           {"shift", "unshifted: row t holds the features of token t"},
                                           {"target_fingerprint", "aaaaaaaaaaaaaaaa"},
                                           {"tokenizer_fingerprint", "bbbbbbbbbbbbbbbb"},
                                           {"template", "plain"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char  text[64] = "";
        hid_t attr = H5Aopen(file, names[i][0], H5P_DEFAULT), own = H5Aget_type(attr);
        assert_true(attr >= 0 && H5Aread(attr, own, text) >= 0);
        assert_string_equal(text, names[i][1]);
        H5Tclose(own);
        H5Aclose(attr);
    }
    int32_t taps[A], version;
    hid_t   attr = H5Aopen(file, "tap_layer_ids", H5P_DEFAULT);
    assert_true(H5Aread(attr, H5T_NATIVE_INT32, taps) >= 0);
    assert_memory_equal(taps, attrs.tap_layer_ids, sizeof taps);
    H5Aclose(attr);
    attr = H5Aopen(file, "schema_version", H5P_DEFAULT);
    assert_true(H5Aread(attr, H5T_NATIVE_INT32, &version) >= 0);
    assert_int_equal(version, PL_DATASET_VERSION);
    H5Aclose(attr);
    H5Fclose(file);
}

static uint64_t hash_file(const char *path) {
    pl_err   err;
    uint8_t *data;
    size_t   n;
    assert_ok(pl_file_read(path, &data, &n, 1 << 26, &err));
    uint64_t h = pl_hash(data, n);
    pl_free(data);
    return h;
}

static void assert_same_datasets(const char *a, const char *b) {
    pl_err      err;
    pl_dataset *x, *y;
    char        pa[600], pb[600];
    assert_ok(pl_dataset_open(&x, a, NULL, &err));
    assert_ok(pl_dataset_open(&y, b, NULL, &err));
    assert_string_equal(pl_dataset_fingerprint(x), pl_dataset_fingerprint(y)); // hashes of all shards are in it
    snprintf(pa, sizeof pa, "%s/shard-00000.h5", a);
    snprintf(pb, sizeof pb, "%s/shard-00000.h5", b);
    assert_int_equal(hash_file(pa), hash_file(pb));
    pl_dataset_close(x);
    pl_dataset_close(y);
}

static void test_same_bytes(void **state) {
    (void)state;
    char a[600], b[600];
    snprintf(a, sizeof a, "%s", at("same-a"));
    snprintf(b, sizeof b, "%s", at("same-b"));
    write_docs(a, 20, 60);
    sleep(1); // HDF5 keeps times in seconds
    write_docs(b, 20, 60);
    assert_same_datasets(a, b);
}

// ---- stopped writers

static void test_destroy_and_resume(void **state) {
    (void)state;
    pl_err             err;
    pl_dataset_writer *w;
    pl_dataset        *ds;
    char               a[600], b[600];
    snprintf(a, sizeof a, "%s", at("stop"));
    snprintf(b, sizeof b, "%s", at("whole"));
    assert_ok(pl_dataset_writer_create(&w, a, &attrs, 50, &err));
    for (int64_t i = 0; i < 13; i++)
        assert_ok(append(w, i, &err));
    int64_t whole = pl_dataset_writer_docs(w);
    assert_true(whole > 0 && whole < 13);
    assert_says(pl_dataset_open(&ds, a, NULL, &err), PL_E_INPUT, &err, "this dataset is not complete");
    assert_ok(pl_dataset_open(&ds, a, &(pl_dataset_open_options){.incomplete = true}, &err));
    assert_int_equal(pl_dataset_docs(ds), whole);
    assert_false(pl_dataset_complete(ds));
    check_doc(ds, whole - 1);
    pl_dataset_close(ds);
    pl_dataset_writer *other;
    assert_says(pl_dataset_writer_create(&other, a, &attrs, 50, &err), PL_E_INPUT, &err, "another process is writing");
    assert_null(other);
    pl_dataset_writer_destroy(w);
    write_docs(a, 25, 50); // goes on behind the whole shards
    write_docs(b, 25, 50);
    assert_same_datasets(a, b);
    assert_says(pl_dataset_writer_create(&w, a, &attrs, 50, &err), PL_E_INPUT, &err, "this dataset is complete");
    // Other attributes are refused before anything is touched.
    pl_dataset_attrs foreign = attrs;
    foreign.target_fingerprint = "cccccccccccccccc";
    assert_says(pl_dataset_writer_create(&w, a, &foreign, 50, &err), PL_E_INPUT, &err,
                "made with target aaaaaaaaaaaaaaaa, wanted is cccccccccccccccc");
    assert_null(w);
    pl_dataset_writer_destroy(NULL);
}

static int count_files(const char *dir) {
    DIR *d = opendir(dir);
    int  n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

// The process dies at every single step it takes on the disk; what is left opens, and the run can be finished.
static void test_killed_anywhere(void **state) {
    (void)state;
    pl_err err;
    char   dir[600], whole[600];
    snprintf(dir, sizeof dir, "%s", at("killed"));
    snprintf(whole, sizeof whole, "%s", at("unkilled"));
    write_docs(whole, 9, 30);
    bool killed = true;
    int  steps = 0;
    for (; killed; steps++) {
        assert_ok(pl_tree_remove(dir, &err));
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            pl_io_kill_after((uint64_t)steps + 1);
            pl_dataset_writer *w;
            pl_status          st = pl_dataset_writer_create(&w, dir, &attrs, 30, NULL);
            for (int64_t i = 0; i < 9 && st == PL_OK; i++)
                st = append(w, i, NULL);
            if (st == PL_OK) st = pl_dataset_writer_close(w, NULL);
            _exit(st == PL_OK ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        assert_true(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        char manifest[700];
        snprintf(manifest, sizeof manifest, "%s/manifest.json", dir);
        pl_dataset *ds;
        if (pl_path_exists(manifest)) {
            assert_ok(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.incomplete = true}, &err));
            for (int64_t i = 0; i < pl_dataset_docs(ds); i++)
                check_doc(ds, i);
            bool complete = pl_dataset_complete(ds);
            pl_dataset_close(ds);
            if (complete) continue; // died behind the last rename
        }
        write_docs(dir, 9, 30);
        assert_same_datasets(dir, whole);
        assert_int_equal(count_files(dir), count_files(whole)); // nothing of the dead is left
    }
    assert_true(steps > 20);
}

static void test_disk_errors(void **state) {
    (void)state;
    pl_err    err;
    char      dir[600];
    int       failures = 0;
    pl_status st = PL_E_IO;
    snprintf(dir, sizeof dir, "%s", at("full"));
    for (uint64_t step = 1; st != PL_OK; step++) {
        pl_dataset_writer *w;
        assert_ok(pl_tree_remove(dir, &err));
        pl_io_fail_after(step);
        st = pl_dataset_writer_create(&w, dir, &attrs, 30, &err);
        bool open = st == PL_OK;
        for (int64_t i = 0; i < 6 && st == PL_OK; i++)
            st = append(w, i, &err);
        if (st == PL_OK) {
            st = pl_dataset_writer_close(w, &err);
            open = false;
        }
        pl_io_fail_after(0);
        if (open) pl_dataset_writer_destroy(w);
        if (st != PL_OK) {
            assert_int_equal(st, PL_E_IO);
            assert_null(strchr(err.msg, '\n'));
            failures++;
        }
    }
    assert_true(failures > 15);
    // A folder that cannot be one.
    pl_dataset_writer *w;
    put_text(at("file"), "x");
    st = pl_dataset_writer_create(&w, at("file/ds"), &attrs, 30, &err);
    assert_true(st == PL_E_IO || st == PL_E_INPUT);
    assert_null(w);
}

// ---- broken and foreign datasets

static void put_byte(const char *path, size_t where, uint8_t flip) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, (long)where, SEEK_SET);
    int c = fgetc(f);
    fseek(f, (long)where, SEEK_SET);
    fputc(c ^ flip, f);
    fclose(f);
}

static void test_broken_shards(void **state) {
    (void)state;
    pl_err      err;
    pl_dataset *ds;
    char        dir[600], shard[700];
    snprintf(dir, sizeof dir, "%s", at("broken"));
    snprintf(shard, sizeof shard, "%s/shard-00001.h5", dir);
    write_docs(dir, 20, 60);
    uint8_t *data;
    size_t   n;
    assert_ok(pl_file_read(shard, &data, &n, 1 << 26, &err));
    for (size_t where = 0; where < n; where += n / 37) {
        put_byte(shard, where, 0x40);
        assert_says(pl_dataset_open(&ds, dir, NULL, &err), PL_E_INPUT, &err,
                    "shard-00001.h5: broken shard: its checksum is");
        assert_null(ds);
        put_byte(shard, where, 0x40);
    }
    put_file(shard, data, n / 2);
    assert_says(pl_dataset_open(&ds, dir, NULL, &err), PL_E_INPUT, &err, "the manifest says");
    // Lazily the whole shards are served and the broken one is met when it is read.
    assert_ok(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.lazy = true}, &err));
    check_doc(ds, 0);
    int64_t   first, rows;
    int32_t   tokens[MAX_ROWS];
    int64_t   i = 0;
    pl_status st;
    while ((st = pl_dataset_doc(ds, i, &first, &rows, &err)) == PL_OK)
        i++;
    assert_says(st, PL_E_INPUT, &err, "shard-00001.h5: broken shard");
    assert_says(pl_dataset_read(ds, 55, 20, &(pl_columns){.tokens = tokens}, &err), PL_E_INPUT, &err,
                "shard-00001.h5: broken shard");
    check_doc(ds, 1); // still serves
    pl_dataset_close(ds);
    assert_int_equal(remove(shard), 0);
    assert_says(pl_dataset_open(&ds, dir, NULL, &err), PL_E_INPUT, &err, "shard-00001.h5");
    // A stopped writer whose whole shard vanished does not go on.
    put_file(shard, data, n);
    ds = open_ok(dir);
    pl_dataset_close(ds);
    pl_free(data);
}

static void test_wanted(void **state) {
    (void)state;
    pl_err      err;
    pl_dataset *ds;
    char        dir[600];
    snprintf(dir, sizeof dir, "%s", at("wanted"));
    write_docs(dir, 4, 60);
    pl_dataset_attrs want = attrs;
    assert_ok(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.want = &want}, &err));
    pl_dataset_close(ds);
    want = (pl_dataset_attrs){.A = -1};
    assert_ok(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.want = &want}, &err));
    pl_dataset_close(ds);
    struct {
        pl_dataset_attrs want;
        const char      *says;
    } cases[8];
    for (int i = 0; i < 8; i++)
        cases[i].want = attrs;
    cases[0].want.target_fingerprint = "1111111111111111";
    cases[0].says = "made with target aaaaaaaaaaaaaaaa, wanted is 1111111111111111; generate the dataset again";
    cases[1].want.tokenizer_fingerprint = "2222222222222222";
    cases[1].says = "made with tokenizer bbbbbbbbbbbbbbbb, wanted is 2222222222222222";
    cases[2].want.template_name = "chatml";
    cases[2].says = "made with template plain, wanted is chatml";
    cases[3].want.generation = "{}";
    cases[3].says = "generation settings";
    cases[4].want.vocab_size = 501;
    cases[4].says = "a vocabulary of 500, wanted is 501";
    cases[5].want.d = 7;
    cases[5].says = "width 6, wanted is 7";
    cases[6].want.tap_layer_ids[1] = 6;
    cases[6].says = "inputs of layers [2,5,8], wanted are [2,6,8], 6 is not among them; generate the dataset again";
    cases[7].want = (pl_dataset_attrs){.A = 1, .tap_layer_ids = {9}};
    cases[7].says = "inputs of layers [2,5,8], wanted are [9], 9 is not among them";
    for (int i = 0; i < 8; i++) {
        assert_says(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.want = &cases[i].want}, &err), PL_E_INPUT,
                    &err, cases[i].says);
        assert_null(ds);
    }
}

// Some of the stored taps, in whatever order they are asked for, are the stored ones' columns; the rest is as ever.
static void test_some_taps(void **state) {
    (void)state;
    static const struct {
        int32_t n, tap[A], place[A];
    } cases[] = {{3, {2, 5, 8}, {0, 1, 2}}, {1, {5}, {1}},       {2, {2, 8}, {0, 2}},
                 {3, {8, 2, 5}, {2, 0, 1}}, {2, {8, 8}, {2, 2}}, {0, {0}, {0}}};
    pl_err err;
    char   dir[600];
    snprintf(dir, sizeof dir, "%s", at("some"));
    write_docs(dir, 20, 30);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        pl_dataset      *ds;
        pl_dataset_attrs want = {.A = cases[k].n};
        memcpy(want.tap_layer_ids, cases[k].tap, sizeof cases[k].tap);
        assert_ok(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.want = &want}, &err));
        pl_columns_shape shape = pl_dataset_read_shape(ds);
        assert_int_equal(shape.taps, cases[k].n);
        assert_int_equal(pl_dataset_get_attrs(ds)->A, A);
        // All rows, over shards, in one piece.
        pl_columns all = {0};
        assert_ok(pl_columns_reserve(&all, &shape, pl_dataset_rows(ds), &err));
        assert_ok(pl_dataset_read(ds, 0, pl_dataset_rows(ds), &all, &err));
        for (int64_t i = 0, row = 0; i < 20; i++) {
            const doc *want_doc = make(i);
            for (int64_t t = 0; t < want_doc->n; t++, row++) {
                assert_int_equal(all.tokens[row], want_doc->tokens[t]);
                assert_memory_equal(all.last_hidden + row * D, want_doc->last_hidden + t * D, D * 2);
                for (int32_t j = 0; j < cases[k].n; j++)
                    assert_memory_equal(all.features + (row * cases[k].n + j) * D,
                                        want_doc->features + (t * A + cases[k].place[j]) * D, D * 2);
            }
        }
        pl_columns_free(&all);
        pl_dataset_close(ds);
    }
}

// A shard that a manifest names rightly (size and hash) but that holds something else.
static void put_manifest(const char *dir, const char *from, const char *to) {
    pl_err   err;
    uint8_t *data;
    size_t   n;
    char     path[700], text[8192];
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    assert_ok(pl_file_read(path, &data, &n, sizeof text / 2, &err));
    char *there = strstr((char *)data, from);
    if (!there) fail_msg("'%s' is not in the manifest %s", from, (char *)data);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(there - (char *)data), (char *)data, to, there + strlen(from));
    put_text(path, text);
    pl_free(data);
}

static void adopt_shard(const char *dir, const char *shard) {
    pl_err   err;
    uint8_t *data;
    size_t   n;
    char     path[700], bytes[64], hash[64], old_hash[17], new_hash[17], old_bytes[64];
    assert_ok(pl_file_read(shard, &data, &n, 1 << 26, &err));
    snprintf(path, sizeof path, "%s/shard-00000.h5", dir);
    uint8_t *old;
    size_t   m;
    assert_ok(pl_file_read(path, &old, &m, 1 << 26, &err));
    pl_hash_hex(old_hash, pl_hash(old, m));
    pl_hash_hex(new_hash, pl_hash(data, n));
    put_file(path, data, n);
    snprintf(old_bytes, sizeof old_bytes, "\"bytes\": %zu", m);
    snprintf(bytes, sizeof bytes, "\"bytes\": %zu", n);
    put_manifest(dir, old_bytes, bytes);
    snprintf(hash, sizeof hash, "%s", old_hash);
    put_manifest(dir, hash, new_hash);
    pl_free(old);
    pl_free(data);
}

static void test_foreign_shard(void **state) {
    (void)state;
    pl_err             err;
    pl_dataset        *ds;
    pl_dataset_writer *w;
    char               dir[600];
    pl_dataset_attrs   foreign = attrs;
    snprintf(dir, sizeof dir, "%s", at("home"));
    write_docs(dir, 4, 1000);
    foreign.target_fingerprint = "ffffffffffffffff";
    assert_ok(pl_dataset_writer_create(&w, at("abroad"), &foreign, 1000, &err));
    for (int64_t i = 0; i < 4; i++)
        assert_ok(append(w, i, &err));
    assert_ok(pl_dataset_writer_close(w, &err));
    adopt_shard(dir, at("abroad/shard-00000.h5"));
    assert_says(pl_dataset_open(&ds, dir, NULL, &err), PL_E_INPUT, &err,
                "shard-00000.h5: made with target ffffffffffffffff, wanted is aaaaaaaaaaaaaaaa");
    write_docs(at("short"), 3, 1000);
    adopt_shard(dir, at("short/shard-00000.h5"));
    assert_says(pl_dataset_open(&ds, dir, NULL, &err), PL_E_INPUT, &err, "in 3 documents, the manifest says");
    static const char not_hdf5[4096] = "this is not HDF5 at all";
    put_file(at("nothdf5"), not_hdf5, sizeof not_hdf5);
    adopt_shard(dir, at("nothdf5"));
    assert_says(pl_dataset_open(&ds, dir, NULL, &err), PL_E_INPUT, &err, "cannot open the shard: HDF5: ");
    hid_t file = H5Fcreate(at("empty.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(file >= 0);
    H5Fclose(file);
    assert_int_equal(truncate(at("empty.h5"), 4096), 0); // room for the rows that the manifest names
    adopt_shard(dir, at("empty.h5"));
    assert_says(pl_dataset_open(&ds, dir, NULL, &err), PL_E_INPUT, &err, "not a shard of a dataset");
}

// A list of the documents put in place of a shard's own; NULL: the shard has none.
static void replace_list(const char *dir, const char *name, const int32_t *list, hsize_t n_list) {
    pl_err   err;
    uint8_t *data;
    size_t   n;
    char     shard[700], from[700];
    snprintf(shard, sizeof shard, "%s", at("other.h5"));
    snprintf(from, sizeof from, "%s/shard-00000.h5", dir);
    assert_ok(pl_file_read(from, &data, &n, 1 << 26, &err));
    put_file(shard, data, n);
    pl_free(data);
    hid_t file = H5Fopen(shard, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(file >= 0 && H5Ldelete(file, name, H5P_DEFAULT) >= 0);
    if (list) {
        hid_t space = H5Screate_simple(1, &n_list, NULL),
              set = H5Dcreate2(file, name, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        assert_true(set >= 0 && H5Dwrite(set, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, list) >= 0);
        H5Dclose(set);
        H5Sclose(space);
    }
    H5Fclose(file);
    adopt_shard(dir, shard);
}

// What documents are: lists that shards of older builds lack; what they say is held within bounds.
static void test_about(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t      at; // of pl_doc_about
        int32_t     absent, good[4], bad[2][4];
    } lists[] = {
        {"doc_ends", offsetof(pl_doc_about, end), -1, {0, -1, V - 1, 3}, {{0, 0, V, 0}, {0, 0, 0, -2}}},
        {"doc_turns", offsetof(pl_doc_about, turn), 0, {0, 1, 2, 1 << 30}, {{0, -1, 0, 0}, {0, 0, 0, INT32_MIN}}},
        {"doc_backs", offsetof(pl_doc_about, back), 0, {0, 1, 0, 3}, {{0, 2, 0, 0}, {1, 0, 0, 0}}},
        {"doc_finishes", offsetof(pl_doc_about, finish), 0, {0, 1, 2, 3}, {{4, 0, 0, 0}, {0, 0, -1, 0}}},
        {"doc_cuts", offsetof(pl_doc_about, cut), 0, {0, 1, 1, 0}, {{0, 0, 0, 2}, {-1, 0, 0, 0}}}};
    pl_err      err;
    pl_dataset *ds;
    char        dir[600], says[200];
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (int i = 0; i < 5; i++) { // absent, good, bad twice, of another length
            snprintf(dir, sizeof dir, "%s%zu-%d", at("about"), l, i);
            write_docs(dir, 4, 1000);
            const int32_t *list = i == 0 ? NULL : i == 2 || i == 3 ? lists[l].bad[i - 2] : lists[l].good;
            replace_list(dir, lists[l].name, list, i == 4 ? 3 : 4);
            snprintf(says, sizeof says, "shard-00000.h5: '%s' is broken; generate the dataset again", lists[l].name);
            if (i > 1) {
                assert_says(pl_dataset_open(&ds, dir, NULL, &err), PL_E_INPUT, &err, says);
                continue;
            }
            assert_ok(pl_dataset_open(&ds, dir, NULL, &err));
            for (int k = 0; k < 4; k++) {
                int32_t      id[64], got;
                pl_doc_about about;
                assert_ok(pl_dataset_doc_about(ds, k, &about, &err));
                memcpy(&got, (char *)&about + lists[l].at, sizeof got);
                assert_int_equal(got, i == 0 ? lists[l].absent : lists[l].good[k]);
                assert_ok(pl_dataset_read_doc(ds, k, &(pl_columns){.tokens = id}, &err));
                assert_memory_equal(id, make(k)->tokens, (size_t)make(k)->n * sizeof *id);
            }
            pl_dataset_close(ds);
        }
}

// All answers of a conversation are on one side, that of its first document, whatever their own prompts are.
static void test_held_out(void **state) {
    (void)state;
    enum { DOCS = 60, TURNS = 3 };
    pl_err             err;
    pl_dataset_writer *w;
    pl_dataset        *ds;
    int                apart = 0, alone = 0;
    assert_ok(pl_dataset_writer_create(&w, at("held"), &attrs, 40, &err));
    for (int i = 0; i < DOCS; i++) { // of three conversations at a time, turn by turn
        pl_columns   d = columns_of(make(i));
        pl_doc_about about = {.end = 1, .turn = i % 9 / TURNS, .back = i % 9 / TURNS * TURNS};
        d.about = &about;
        assert_ok(pl_dataset_append(w, &d, &err));
    }
    assert_ok(pl_dataset_writer_close(w, &err));
    ds = open_ok(at("held"));
    for (int i = 0; i < DOCS; i++) {
        const doc *own = make(i);
        bool       held, first, mine = pl_dataset_held_out(own->tokens, own->loss_mask, own->n, 7, 3);
        int        begins = i - i % 9 / TURNS * TURNS;
        assert_ok(pl_dataset_doc_held_out(ds, i, 7, 3, &held, &err));
        own = make(begins);
        first = pl_dataset_held_out(own->tokens, own->loss_mask, own->n, 7, 3);
        assert_int_equal(held, first);
        apart += held;
        alone += mine != held;
        assert_ok(pl_dataset_doc_held_out(ds, i, 7, 0, &held, &err));
        assert_false(held);
    }
    assert_true(apart > 0 && apart < DOCS && alone > 0);
    pl_dataset_close(ds);
}

// HDF5 reads whatever bytes it is given only after their hash matched; here it does, to see that our side holds.
static void test_any_shard(void **state) {
    (void)state;
    pl_err   err;
    char     dir[600], path[700];
    uint8_t *data;
    size_t   n;
    write_docs(at("seed"), 4, 1000);
    assert_ok(pl_file_read(at("seed/shard-00000.h5"), &data, &n, 1 << 26, &err));
    // Tokens beyond the vocabulary, an open mask, an argmax below zero: found by value in the file.
    const doc *d = make(3);
    for (int k = 0; k < 2; k++) {
        snprintf(dir, sizeof dir, "%s", at(k ? "badargmax" : "badtoken"));
        write_docs(dir, 4, 1000);
        const int32_t *row = k ? d->argmax : d->tokens;
        uint8_t       *there = memmem(data, n, row, (size_t)d->n * 4);
        assert_non_null(there);
        int32_t was = row[0], bad = k ? -1 : V;
        memcpy(there, &bad, 4);
        snprintf(path, sizeof path, "%s", at("bad.h5"));
        put_file(path, data, n);
        adopt_shard(dir, path);
        memcpy(there, &was, 4);
        pl_dataset *ds = open_ok(dir);
        int32_t     out[MAX_ROWS];
        assert_says(pl_dataset_read_doc(ds, 3, &(pl_columns){.tokens = k ? NULL : out, .argmax = k ? out : NULL}, &err),
                    PL_E_INPUT, &err, k ? "an argmax is out of range" : "a token is out of range");
        pl_dataset_close(ds);
    }
    pl_free(data);
}

static void test_broken_manifest(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"schema_version\": 1", "\"schema_version\": 2", "schema version 2, this program reads 1"},
        {"\"kind\": \"features\"", "\"kind\": \"pictures\"", "a dataset of features is wanted, this one is 'pictures'"},
        {"\"kind\": \"features\"", "\"kind\": \"traces\"", "drafter_fingerprint: missing"},
        {"shard-00000.h5", "../../etc/passwd", "expected the shard shard-00000.h5 here"},
        {"\"rows\": 52", "\"rows\": 54", "not the sums over the shards"},
        {"\"vocab_size\": 500", "\"vocab_size\": 0", "vocab_size"},
        {"\"d\": 6", "\"d\": 1e300", "attributes.d"},
        {"\"xxhash64\": \"", "\"xxhash64\": \"z", "xxhash64 must be 16 hex digits"},
        {"\"complete\": true", "\"complete\": 1", "complete"},
        {"\"complete\": true,", "", "complete: missing"},
        {"\"d\": 6", "\"d\": 0", "attributes.d: expected a positive integer, found 0"},
        {"\"d\": 6", "\"d\": 16777216", "rows in 5 documents do not fit into"},
        {"shard-00000.h5\",\n   \"rows\": ", "shard-00000.h5\",\n   \"rows\": 5000000", "do not fit into"},
        {"\"docs\": 5,\n   \"bytes", "\"docs\": 53,\n   \"bytes", "expected an integer from 1 to 52, found 53"},
        {"\"docs\": 5,\n   \"bytes", "\"docs\": 0,\n   \"bytes", "shards[0].docs: expected"},
        {"\"bytes\": ", "\"bytes\": -", "bytes: expected a positive integer"},
        {"\"bytes\": ", "\"bytes\": 0.", "bytes"},
        {"\"xxhash64\": \"", "\"xxhash64\": \"0", "xxhash64 must be 16 hex digits"},
        {"\"template\"", "\"tmplate\"", "attributes.template: missing"},
        {"\"target_fingerprint\": \"", "\"target_fingerprint\": 7, \"x\": \"", "expected a string, found 7"},
        {"\"tap_layer_ids\": [", "\"tap_layer_ids\": [-1,", "tap_layer_ids[0]"},
        {"\"tap_layer_ids\": [", "\"tap_layer_ids\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,", "more than 16 taps"},
        {"\"kind\"", "\"kind\": 1, \"kind\"", "the key is there twice"},
        {"\"shards\"", "\"shard\"", "shards: missing"},
        {" ]\n}", " ]\n", "not JSON"}};
    pl_err      err;
    pl_dataset *ds;
    assert_says(pl_dataset_open(&ds, at("nothing"), NULL, &err), PL_E_INPUT, &err,
                "not a dataset (no manifest.json in it)");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(pl_tree_remove(at("mf"), &err));
        write_docs(at("mf"), 5, 1000);
        put_manifest(at("mf"), cases[i].from, cases[i].to);
        assert_refused(pl_dataset_open(&ds, at("mf"), NULL, &err), &err, cases[i].says);
        assert_null(ds);
    }
}

static void test_no_taps(void **state) {
    (void)state;
    pl_err             err;
    pl_dataset_attrs   none = attrs;
    pl_dataset_writer *w;
    none.A = 0;
    assert_ok(pl_dataset_writer_create(&w, at("notaps"), &none, 30, &err));
    for (int64_t i = 0; i < 5; i++) {
        pl_columns d = columns_of(make(i));
        d.features = NULL;
        assert_ok(pl_dataset_append(w, &d, &err));
        if (i == 2) assert_ok(pl_dataset_flush(w, &err));
    }
    assert_ok(pl_dataset_writer_close(w, &err));
    pl_dataset *ds = open_ok(at("notaps"));
    uint16_t    last[MAX_ROWS * D], unused[4] = {1, 2, 3, 4};
    assert_ok(pl_dataset_read_doc(ds, 4, &(pl_columns){.last_hidden = last, .features = unused}, &err));
    assert_memory_equal(last, make(4)->last_hidden, (size_t)make(4)->n * D * 2);
    assert_int_equal(unused[0], 1);
    pl_dataset_close(ds);
    // A dataset without a document is a dataset.
    assert_ok(pl_dataset_writer_create(&w, at("nodocs"), &none, 30, &err));
    assert_ok(pl_dataset_writer_close(w, &err));
    ds = open_ok(at("nodocs"));
    assert_int_equal(pl_dataset_docs(ds), 0);
    pl_dataset_close(ds);
}

static void test_out_of_memory(void **state) {
    (void)state;
    pl_err    err;
    char      dir[600];
    pl_status st = PL_E_MEMORY;
    snprintf(dir, sizeof dir, "%s", at("memory"));
    write_docs(dir, 6, 30);
    for (uint64_t i = 1; st != PL_OK; i++) {
        pl_dataset *ds;
        pl_alloc_fail_after(i);
        st = pl_dataset_open(&ds, dir, NULL, &err);
        pl_alloc_fail_after(0);
        if (st == PL_OK) assert_true(i > 20);
        pl_dataset_close(ds);
    }
    st = PL_E_MEMORY;
    for (uint64_t i = 1; st != PL_OK; i++) {
        pl_dataset_writer *w;
        assert_ok(pl_tree_remove(dir, &err));
        pl_alloc_fail_after(i);
        st = pl_dataset_writer_create(&w, dir, &attrs, 30, &err);
        bool open = st == PL_OK;
        for (int64_t k = 0; k < 4 && st == PL_OK; k++)
            st = append(w, k, &err);
        if (st == PL_OK) {
            st = pl_dataset_writer_close(w, &err);
            open = false;
        }
        pl_alloc_fail_after(0);
        if (st != PL_OK) assert_int_equal(st, PL_E_MEMORY);
        if (open) pl_dataset_writer_destroy(w);
    }
}

// Features in 8 bits: what is read is what pl_dataset_as_stored says, of all taps and of some; another format is refused.
static void test_int8(void **state) {
    (void)state;
    enum { N = 12 };
    pl_err             err;
    pl_dataset_writer *w;
    pl_dataset        *ds;
    pl_dataset_attrs   packed = attrs, taps = {.A = 2, .tap_layer_ids = {8, 2}};
    const char        *dir = at("int8");
    packed.feature_format = PL_FEATURES_INT8;
    assert_ok(pl_dataset_writer_create(&w, dir, &packed, 60, &err));
    for (int64_t i = 0; i < N / 2; i++)
        assert_ok(append(w, i, &err));
    assert_ok(pl_dataset_flush(w, &err));
    pl_dataset_writer_destroy(w);
    assert_int_equal(pl_dataset_writer_create(&w, dir, &attrs, 60, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "its features are stored as int8, wanted is bf16; set data.feature_format"));
    assert_ok(pl_dataset_writer_create(&w, dir, &packed, 60, &err));
    for (int64_t i = pl_dataset_writer_docs(w); i < N; i++)
        assert_ok(append(w, i, &err));
    assert_ok(pl_dataset_writer_close(w, &err));
    pl_dataset_open_options bf16 = {.want = &attrs}, some = {.want = &taps};
    packed.feature_format = PL_FEATURES_BF16, bf16.want = &packed;
    assert_int_equal(pl_dataset_open(&ds, dir, &bf16, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "its features are stored as int8, wanted is bf16"));
    packed.feature_format = PL_FEATURES_INT8;
    for (int k = 0; k < 2; k++) {
        assert_ok(pl_dataset_open(&ds, dir, k ? &some : NULL, &err));
        assert_int_equal(pl_dataset_get_attrs(ds)->feature_format, PL_FEATURES_INT8);
        for (int64_t i = 0; i < N; i++) {
            uint16_t   features[MAX_ROWS * A * D], last[MAX_ROWS * D];
            doc       *d = make(i);
            pl_columns want = columns_of(d);
            assert_ok(pl_dataset_as_stored(&packed, &want, &err));
            assert_ok(pl_dataset_read_doc(ds, i, &(pl_columns){.features = features, .last_hidden = last}, &err));
            assert_memory_equal(last, d->last_hidden, (size_t)d->n * D * 2);
            for (int64_t t = 0; t < d->n; t++) {
                if (!k) assert_memory_equal(features + t * A * D, d->features + t * A * D, A * D * 2);
                if (k) assert_memory_equal(features + t * 2 * D, d->features + (t * A + 2) * D, D * 2);
                if (k) assert_memory_equal(features + (t * 2 + 1) * D, d->features + t * A * D, D * 2);
            }
        }
        pl_dataset_close(ds);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_and_read),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_destroy_and_resume),
        cmocka_unit_test(test_killed_anywhere),
        cmocka_unit_test(test_disk_errors),
        cmocka_unit_test(test_broken_shards),
        cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_foreign_shard),
        cmocka_unit_test(test_about),
        cmocka_unit_test(test_held_out),
        cmocka_unit_test(test_any_shard),
        cmocka_unit_test(test_broken_manifest),
        cmocka_unit_test(test_no_taps),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_some_taps),
        cmocka_unit_test(test_int8),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
