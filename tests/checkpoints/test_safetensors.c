#include "checkpoints/safetensors.h"
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "scratch.h"
#include <sys/stat.h>

// A file of this header, its length in front, and n bytes of data.
static void put_st(const char *path, const char *header, size_t n) {
    uint64_t len = strlen(header);
    uint8_t *file = calloc(1, 8 + len + n);
    memcpy(file, &len, 8);
    memcpy(file + 8, header, len);
    for (size_t i = 0; i < n; i++)
        file[8 + len + i] = (uint8_t)i;
    put_file(path, file, 8 + len + n);
    free(file);
}

#define T(name, dtype, shape, from, to)                                                                                \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void test_good(void **state) {
    (void)state;
    pl_err err;
    pl_st *st;
    put_st(at("g"),
           "{\"__metadata__\":{\"format\":\"pt\"}," T("b", "BF16", "[2,3]", 4, 16) "," T("a", "F32", "[]", 0, 4) "," T(
               "none", "F32", "[0,5]", 16, 16) "," T("u", "BOOL", "[1]", 16, 17) "}   ",
           17);
    assert_ok(pl_st_open(&st, at("g"), &err));
    assert_int_equal(pl_st_count(st), 4);
    // File order is the order of the data.
    static const char *const order[] = {"a", "b", "none", "u"};
    for (int i = 0; i < 4; i++)
        assert_string_equal(pl_st_at(st, i)->name, order[i]);
    const pl_st_entry *b = pl_st_find(st, "b");
    assert_ptr_equal(b, pl_st_at(st, 1));
    assert_int_equal(b->dtype, PL_BF16);
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(((const uint8_t *)b->data)[0], 4);
    assert_int_equal(pl_st_find(st, "a")->rank, 0);
    assert_int_equal(pl_st_find(st, "none")->bytes, 0);
    assert_null(pl_st_find(st, "c"));
    assert_string_equal(pl_st_metadata(st, "format"), "pt");
    assert_null(pl_st_metadata(st, "other"));
    assert_int_equal(((const uint8_t *)b->data)[11], 15);
    pl_st_close(st);
    put_st(at("g"), "{}", 0);
    assert_ok(pl_st_open(&st, at("g"), &err));
    assert_int_equal(pl_st_count(st), 0);
    assert_null(pl_st_metadata(st, "format"));
    pl_st_close(st);
}

static void test_bad_files(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t      data;
        const char *says;
    } bad[] = {
        {"", 0, "does not begin with '{'"},
        {"[]", 0, "does not begin with '{'"},
        {" {}", 0, "does not begin with '{'"},
        {"{", 0, "not JSON"},
        {"{}x", 0, "not JSON: text behind the end"},
        {"{\"a\":}", 0, ":1:6: not JSON: expected a value"},
        {"{\"\xff\":1}", 0, "not UTF-8"},
        {"{\"a\\u0000b\":1}", 0, "U+0000"},
        {"{\"a\":5}", 0, "a: expected an object"},
        {"{\"a\":{}}", 0, "a.dtype: missing"},
        {"{\"a\":{\"dtype\":7}}", 0, "a.dtype: expected a string"},
        {"{\"a\":{\"dtype\":\"F32\"}}", 0, "a.shape: missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, "a.data_offsets: missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]}}", 4, "a.shape: expected an array"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":{}}}", 4, "a.data_offsets: expected an array"},
        {"{" T("a", "F8_E5M2", "[4]", 0, 4) "}", 4, "a.dtype: \"F8_E5M2\" is not supported"},
        {"{" T("a", "f32", "[1]", 0, 4) "}", 4, "a.dtype: \"f32\" is not supported"},
        {"{" T("a", "F32", "[-1]", 0, 4) "}", 4, "a.shape[0]: expected a non-negative integer, found -1"},
        {"{" T("a", "F32", "[1.5]", 0, 4) "}", 4, "a.shape[0]: expected"},
        {"{" T("a", "F32", "[\"1\"]", 0, 4) "}", 4, "a.shape[0]: expected"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "a.shape: more than 8 dimensions"},
        {"{" T("a", "F32", "[4294967296,4294967296]", 0, 4) "}", 4, "a.shape: more elements than can be counted"},
        {"{" T("a", "F32", "[9007199254740992,2048]", 0, 4) "}", 4, "a.shape: more elements than can be counted"},
        {"{" T("a", "F64", "[2305843009213693952]", 0, 8) "}", 8, "a.shape[0]: expected"},
        // elements * 8 wraps to 0
        {"{" T("a", "F64", "[2147483648,1073741824]", 0, 0) "}", 0, "0 bytes for 2305843009213693952 elements of F64"},
        {"{" T("a", "F32", "[2]", 0, 4) "}", 4, "a.data_offsets: 4 bytes for 2 elements of F32"},
        {"{" T("a", "F32", "[1]", 0, 8) "}", 8, "a.data_offsets: 8 bytes for 1 elements of F32"},
        {"{" T("a", "BF16", "[2]", 0, 3) "}", 3, "a.data_offsets: 3 bytes for 2 elements"},
        {"{" T("a", "F32", "[1]", 4, 0) "}", 4, "a.data_offsets: ends before it begins"},
        {"{" T("a", "F32", "[1]", -4, 0) "}", 4, "a.data_offsets[0]: expected"},
        {"{" T("a", "F32", "[1]", 0, 18446744073709551620) "}", 4, "a.data_offsets[1]: expected"},
        {"{" T("a", "F32", "[2]", 0, 8) "}", 4, "ends at byte 8 of the data, which has 4; the file is cut"},
        {"{" T("a", "F32", "[1]", 9007199254740988, 9007199254740992) "}", 4, "the file is cut"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "expected two offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "expected two offsets"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 0, 4) "}", 4, "b: overlaps the tensor before it"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[1]", 4, 8) "}", 8, "b: overlaps the tensor before it"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 8, 12) "}", 12, "b: a hole in front of it"},
        {"{" T("a", "F32", "[1]", 4, 8) "}", 8, "a: a hole in front of it"},
        {"{" T("a", "F32", "[1]", 0, 4) "}", 5, "1 bytes at the end belong to no tensor"},
        {"{}", 3, "3 bytes at the end belong to no tensor"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", 8, "a: the key is there twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "a.dtype: the key is there twice"},
        {"{\"__metadata__\":5}", 0, "__metadata__: expected an object of strings"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__.a: expected a string"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_st *st = (pl_st *)&st;
        pl_err err = {0};
        put_st(at("b"), bad[i].header, bad[i].data);
        pl_status status = pl_st_open(&st, at("b"), &err);
        if (status == PL_OK) fail_msg("accepted: %s", bad[i].header);
        assert_refused(status, &err, bad[i].says);
        assert_non_null(strstr(err.msg, at("b")));
        assert_null(st);
    }
}

static void test_bad_lengths(void **state) {
    (void)state;
    pl_err                err;
    pl_st                *st;
    static const uint64_t lengths[] = {3, 100, (100u << 20) + 1, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t file[10] = {[8] = '{', [9] = '}'};
        memcpy(file, &lengths[i], 8);
        put_file(at("l"), file, sizeof file);
        assert_says(pl_st_open(&st, at("l"), &err), PL_E_INPUT, &err, "a header of ");
        assert_non_null(strstr(err.msg, "in a file of 10"));
    }
    put_text(at("l"), "1234567");
    assert_says(pl_st_open(&st, at("l"), &err), PL_E_INPUT, &err, "7 bytes are no safetensors file");
    put_text(at("l"), "");
    assert_says(pl_st_open(&st, at("l"), &err), PL_E_INPUT, &err, "0 bytes are no safetensors file");
    assert_says(pl_st_open(&st, at("absent"), &err), PL_E_INPUT, &err, "absent: cannot open");
    put_text(at("l"), "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    assert_says(pl_st_open(&st, at("l"), &err), PL_E_INPUT, &err, "a pointer of Git LFS");
}

static const char VALID[] = "{\"__metadata__\":{\"k\":\"v\"}," T("a", "F32", "[2,2]", 0, 16) "," T(
    "b", "BF16", "[3]", 16, 22) "," T("c", "U8", "[2]", 22, 24) "}";

static void test_every_cut(void **state) {
    (void)state;
    pl_err   err;
    pl_st   *st;
    uint8_t *data;
    size_t   n;
    put_st(at("whole"), VALID, 24);
    assert_ok(pl_file_read(at("whole"), &data, &n, 4096, &err));
    for (size_t cut = 0; cut < n; cut++) {
        put_file(at("cut"), data, cut);
        assert_int_equal(pl_st_open(&st, at("cut"), &err), PL_E_INPUT);
    }
    pl_free(data);
}

// Damaged headers are refused or understood; what is understood can be read to its last byte.
static void test_damage(void **state) {
    (void)state;
    pl_err   err;
    uint8_t *data;
    size_t   n;
    put_st(at("whole"), VALID, 24);
    assert_ok(pl_file_read(at("whole"), &data, &n, 4096, &err));
    pl_rng rng = pl_rng_make(1, PL_STREAM_TEST, 0);
    int    refused = 0;
    for (uint64_t round = 0; round < 3000; round++) {
        uint8_t copy[512];
        memcpy(copy, data, n);
        for (uint64_t k = 0; k <= round % 3; k++)
            copy[pl_rng_below(rng, round * 8 + 2 * k, n)] = (uint8_t)pl_rng_below(rng, round * 8 + 2 * k + 1, 256);
        put_file(at("damaged"), copy, n);
        pl_st *st;
        if (pl_st_open(&st, at("damaged"), &err) != PL_OK) {
            refused++;
            continue;
        }
        unsigned sum = 0;
        for (int64_t i = 0; i < pl_st_count(st); i++)
            for (size_t k = 0; k < pl_st_at(st, i)->bytes; k++)
                sum += ((const uint8_t *)pl_st_at(st, i)->data)[k];
        assert_true(sum < 24 * 256);
        pl_st_close(st);
    }
    assert_in_range(refused, 1000, 2999);
    pl_free(data);
}

// ---- folders and indexes ----

static void put_index(const char *text) {
    put_text(at("set/model.safetensors.index.json"), text);
}

static void test_folder(void **state) {
    (void)state;
    pl_err err;
    pl_st *st;
    assert_ok(pl_dir_make(at("set"), &err));
    assert_says(pl_st_open(&st, at("set"), &err), PL_E_INPUT, &err,
                "no model.safetensors and no model.safetensors.index");
    put_text(at("set/pytorch_model.bin"), "x");
    assert_says(pl_st_open(&st, at("set"), &err), PL_E_INPUT, &err, "convert it to model.safetensors");
    put_st(at("set/s1"),
           "{\"__metadata__\":{\"k\":\"1\"}," T("a", "F32", "[1]", 0, 4) "," T("b", "U8", "[1]", 4, 5) "}", 5);
    put_st(at("set/s2"), "{" T("c", "F32", "[1]", 0, 4) "}", 4);
    put_index("{\"metadata\":{\"total_size\":9},\"weight_map\":{\"a\":\"s1\",\"c\":\"s2\",\"b\":\"s1\"}}");
    assert_ok(pl_st_open(&st, at("set"), &err));
    assert_int_equal(pl_st_count(st), 3);
    assert_string_equal(pl_st_at(st, 2)->name, "c");
    assert_int_equal(((const uint8_t *)pl_st_find(st, "b")->data)[0], 4);
    assert_string_equal(pl_st_metadata(st, "k"), "1");
    pl_st_close(st);
    assert_ok(pl_st_open(&st, at("set/model.safetensors.index.json"), &err));
    pl_st_close(st);
    // A single file beside an index is named, and not read.
    put_st(at("set/model.safetensors"), "{" T("c", "F32", "[1]", 0, 4) "}", 4);
    char  *said = NULL;
    size_t n;
    FILE  *f = open_memstream(&said, &n);
    pl_log_to(f);
    assert_ok(pl_st_open(&st, at("set"), &err));
    pl_log_to(NULL);
    fclose(f);
    assert_non_null(strstr(said, "set/model.safetensors: lies beside an index that does not name it"));
    free(said);
    assert_int_equal(pl_st_count(st), 3);
    pl_st_close(st);
    assert_int_equal(unlink(at("set/model.safetensors")), 0);
}

// The index says which file has a tensor, whatever else the files hold; what transformers reads of such folders.
static void test_index_is_authority(void **state) {
    (void)state;
    static const struct {
        const char *index;
        int         count;
        const char *names[3];
        uint8_t     first[3]; // byte of each, which numbers the file's bytes
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"s1\"}}", 1, {"a"}, {0}},                            // b is not named
        {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s3\"}}", 2, {"a", "b"}, {0, 4}},       // and s1 has a b as well
        {"{\"weight_map\":{\"b\":\"s1\",\"a\":\"s3\"}}", 2, {"b", "a"}, {4, 0}},       // the other way round
        {"{\"weight_map\":{\"b\":\"sub/s1\",\"a\":\"./s1\"}}", 2, {"b", "a"}, {4, 0}}, // a folder beside the index
        {"{\"weight_map\":{\"b\":\"sub/..s1\"}}", 1, {"b"}, {4}},                      // a name, not a way out
        {"{\"weight_map\":{}}", 0, {NULL}, {0}},
    };
    pl_err err;
    pl_st *st;
    assert_ok(pl_dir_make(at("auth/sub"), &err));
    static const char two[] = "{" T("a", "F32", "[1]", 0, 4) "," T("b", "U8", "[1]", 4, 5) "}";
    put_st(at("auth/s1"), two, 5);
    put_st(at("auth/s3"), two, 5);
    put_st(at("auth/sub/s1"), two, 5);
    put_st(at("auth/sub/..s1"), two, 5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text(at("auth/model.safetensors.index.json"), cases[i].index);
        pl_status got = pl_st_open(&st, at("auth"), &err);
        if (got != PL_OK) fail_msg("%s: %s", cases[i].index, err.msg);
        assert_int_equal(pl_st_count(st), cases[i].count);
        for (int k = 0; k < cases[i].count; k++) {
            const pl_st_entry *e = pl_st_find(st, cases[i].names[k]);
            assert_non_null(e);
            assert_int_equal(((const uint8_t *)e->data)[0], cases[i].first[k]);
        }
        pl_st_close(st);
    }
}

static void test_shards_without_index(void **state) {
    (void)state;
    pl_err err;
    pl_st *st;
    assert_ok(pl_dir_make(at("bare"), &err));
    put_st(at("bare/model-00001-of-00002.safetensors"), "{" T("a", "F32", "[1]", 0, 4) "}", 4);
    assert_says(pl_st_open(&st, at("bare"), &err), PL_E_INPUT, &err, "model-00002-of-00002.safetensors: cannot open");
    put_st(at("bare/model-00002-of-00002.safetensors"),
           "{" T("b", "U8", "[1]", 0, 1) "," T("a", "F32", "[1]", 1, 5) "}", 5);
    assert_says(pl_st_open(&st, at("bare"), &err), PL_E_INPUT, &err,
                "a: is in another shard as well, with other values");
    put_st(at("bare/model-00002-of-00002.safetensors"),
           "{" T("a", "F32", "[1]", 0, 4) "," T("b", "U8", "[1]", 4, 5) "}", 5);
    assert_ok(pl_st_open(&st, at("bare"), &err));
    assert_int_equal(pl_st_count(st), 2);
    pl_st_close(st);
    put_st(at("bare/model-00001-of-00003.safetensors"), "{" T("a", "F32", "[1]", 0, 4) "}", 4);
    assert_says(pl_st_open(&st, at("bare"), &err), PL_E_INPUT, &err, "shards of two sets");
    put_st(at("bare/model.safetensors"), "{" T("z", "F32", "[1]", 0, 4) "}", 4);
    assert_ok(pl_st_open(&st, at("bare"), &err)); // which is whole by itself
    assert_int_equal(pl_st_count(st), 1);
    pl_st_close(st);
}

static void test_other_files(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } files[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "a pointer of Git LFS"},
        {"<!DOCTYPE html><html><head>", "a page of HTML"},
        {"\n <HTML lang=en>", "a page of HTML"},
        {"PAR1\x15\x04\x15\x10\x15\x14", "a Parquet file"},
        {"PK\x03\x04\x14\x01\x08\x08\x08\x08", "a zip archive"},
        {"{\"a\": 1, \"b\": 2}", "a header of"},
    };
    pl_err err;
    pl_st *st;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        put_text(at("other"), files[i].text);
        assert_says(pl_st_open(&st, at("other"), &err), PL_E_INPUT, &err, files[i].says);
    }
}

static void test_bad_indexes(void **state) {
    (void)state;
    static const struct {
        const char *index, *says;
    } bad[] = {
        {"", "not JSON"},
        {"[]", "weight_map: missing"},
        {"{}", "weight_map: missing"},
        {"{\"weight_map\":[]}", "weight_map: expected an object"},
        {"{\"weight_map\":{\"a\":1}}", "weight_map.a: expected a string"},
        {"{\"weight_map\":{\"a\":\"s1\",\"a\":\"s1\",\"b\":\"s1\"}}", "weight_map.a: the key is there twice"},
        {"{\"weight_map\":{\"a\":\"../set/s1\"}}", "is no name of a file beside the index"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "is no name of a file beside the index"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "is no name of a file beside the index"},
        {"{\"weight_map\":{\"a\":\"sub/s1\"}}", "set/sub/s1: cannot open: No such file"},
        {"{\"weight_map\":{\"a\":\"sub/../../s1\"}}", "is no name of a file beside the index"},
        {"{\"weight_map\":{\"a\":\"\"}}", "is no name of a file beside the index"},
        {"{\"weight_map\":{\"a\":\"s9\"}}", "s9: cannot open: No such file"},
        {"{\"weight_map\":{\"a\":\".\"}}", "not a regular file"},
        {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s1\",\"z\":\"s1\"}}", "weight_map.z: s1 does not hold this tensor"},
        {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s2\",\"c\":\"s2\"}}", "weight_map.b: s2 does not hold this tensor"},
        {"{\"weight_map\":{\"a\":\"cut\"}}", "the file is cut"},
    };
    pl_err err;
    assert_ok(pl_dir_make(at("set"), &err));
    put_st(at("set/s1"), "{" T("a", "F32", "[1]", 0, 4) "," T("b", "U8", "[1]", 4, 5) "}", 5);
    put_st(at("set/s2"), "{" T("c", "F32", "[1]", 0, 4) "}", 4);
    put_st(at("set/s3"), "{" T("b", "F32", "[1]", 0, 4) "}", 4);
    put_st(at("set/cut"), "{" T("a", "F32", "[1]", 0, 4) "}", 2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_st *st;
        put_index(bad[i].index);
        pl_status status = pl_st_open(&st, at("set"), &err);
        if (status == PL_OK) fail_msg("accepted: %s", bad[i].index);
        assert_refused(status, &err, bad[i].says);
        assert_null(st);
    }
}

// ---- writing ----

static pl_status fill_counting(void *arg, size_t offset, void *buf, size_t n, pl_err *err) {
    if (!arg) return pl_fail(err, PL_E_IO, "no more");
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)buf)[i] = (uint8_t)((offset + i) * 7 >> 3);
    return PL_OK;
}

static void test_write(void **state) {
    (void)state;
    pl_err               err;
    static const float   f[6] = {1, 2, 3, 4, 5, 6};
    static const int64_t l[2] = {-1, 1};
    static const uint8_t b[3] = {1, 0, 1};
    static char          arg;
    enum { LONG = 3000000 };
    const pl_st_source entries[] = {
        {.name = "mask", .dtype = PL_BOOL, .rank = 1, .shape = {3}, .data = b},
        {.name = "z.\"quoted\"", .dtype = PL_F32, .rank = 2, .shape = {2, 3}, .data = f},
        {.name = "a", .dtype = PL_F32, .rank = 0, .data = f},
        {.name = "ids", .dtype = PL_I64, .rank = 1, .shape = {2}, .data = l},
        {.name = "long", .dtype = PL_BF16, .rank = 1, .shape = {LONG / 2}, .fill = fill_counting, .arg = &arg},
        {.name = "none", .dtype = PL_F32, .rank = 1, .shape = {0}},
    };
    const pl_st_pair metadata[] = {{"format", "pt"}, {"who", "paceline"}};
    assert_ok(pl_st_write(at("w1"), entries, 6, metadata, 2, &err));
    assert_ok(pl_st_write(at("w2"), entries, 6, metadata, 2, &err));
    uint8_t *one, *two;
    size_t   n1, n2;
    assert_ok(pl_file_read(at("w1"), &one, &n1, 1 << 24, &err));
    assert_ok(pl_file_read(at("w2"), &two, &n2, 1 << 24, &err));
    assert_int_equal(n1, n2);
    assert_memory_equal(one, two, n1);
    assert_int_equal(one[0] % 8, 0); // header length
    pl_free(one);
    pl_free(two);
    pl_st *st;
    assert_ok(pl_st_open(&st, at("w1"), &err));
    static const char *const order[] = {"ids", "z.\"quoted\"", "a", "none", "long", "mask"};
    assert_int_equal(pl_st_count(st), 6);
    for (int i = 0; i < 6; i++)
        if (i != 2 && i != 3) assert_string_equal(pl_st_at(st, i)->name, order[i]);
    for (int i = 0; i < 6; i++) {
        const pl_st_source *w = &entries[i];
        const pl_st_entry  *r = pl_st_find(st, w->name);
        assert_non_null(r);
        assert_int_equal(r->dtype, w->dtype);
        assert_int_equal(r->rank, w->rank);
        assert_memory_equal(r->shape, w->shape, sizeof r->shape);
        assert_int_equal((uintptr_t)r->data % pl_dtype_size(r->dtype), 0);
        if (w->data) assert_memory_equal(r->data, w->data, r->bytes);
    }
    const uint8_t *bytes = pl_st_find(st, "long")->data;
    for (size_t i = 0; i < LONG; i++)
        if (bytes[i] != (uint8_t)(i * 7 >> 3)) fail_msg("byte %zu", i);
    assert_string_equal(pl_st_metadata(st, "who"), "paceline");
    pl_st_close(st);
    assert_ok(pl_st_write(at("w3"), NULL, 0, NULL, 0, &err));
    assert_ok(pl_st_open(&st, at("w3"), &err));
    assert_int_equal(pl_st_count(st), 0);
    pl_st_close(st);
}

static void test_write_failures(void **state) {
    (void)state;
    pl_err       err;
    static char  arg;
    pl_st_source entry = {.name = "x", .dtype = PL_F32, .rank = 1, .shape = {1000}, .fill = fill_counting};
    put_text(at("wf"), "old");
    assert_says(pl_st_write(at("wf"), &entry, 1, NULL, 0, &err), PL_E_IO, &err, "no more");
    entry.arg = &arg;
    struct stat s;
    bool        done = false;
    for (uint64_t n = 1; !done; n++) {
        assert_true(n < 100);
        pl_alloc_fail_after(n);
        pl_status status = pl_st_write(at("wf"), &entry, 1, NULL, 0, &err);
        done = status == PL_OK;
        pl_alloc_fail_after(0);
        if (!done) assert_says(status, PL_E_MEMORY, &err, "out of memory");
        assert_int_equal(stat(at("wf"), &s), 0);
        assert_true(done ? s.st_size > 4000 : s.st_size == 3);
    }
    assert_says(pl_st_write(at("no/where"), &entry, 1, NULL, 0, &err), PL_E_INPUT, &err, "cannot create");
    pl_io_fail_after(3);
    assert_says(pl_st_write(at("wf"), &entry, 1, NULL, 0, &err), PL_E_IO, &err, "cannot write");
}

static void test_open_memory(void **state) {
    (void)state;
    pl_err err;
    bool   done = false;
    assert_ok(pl_dir_make(at("om"), &err));
    put_st(at("om/s1"), VALID, 24);
    put_text(at("om/model.safetensors.index.json"), "{\"weight_map\":{\"a\":\"s1\",\"b\":\"s1\",\"c\":\"s1\"}}");
    for (uint64_t n = 1; !done; n++) {
        pl_st *st;
        assert_true(n < 300);
        pl_alloc_fail_after(n);
        pl_status status = pl_st_open(&st, at("om"), &err);
        pl_alloc_fail_after(0);
        done = status == PL_OK;
        if (!done) {
            assert_says(status, PL_E_MEMORY, &err, "out of memory");
            assert_null(st);
        }
        pl_st_close(st);
    }
}

static void test_real(void **state) {
    (void)state;
    pl_err      err;
    pl_st      *st;
    const char *dir = outside("models/TinyStories-656K");
    if (!dir) skip();
    assert_ok(pl_st_open(&st, dir, &err));
    assert_int_equal(pl_st_count(st), 20);
    assert_string_equal(pl_st_metadata(st, "format"), "pt");
    int64_t elements = 0;
    for (int64_t i = 0; i < pl_st_count(st); i++) {
        const pl_st_entry *e = pl_st_at(st, i);
        assert_int_equal(e->dtype, PL_BF16);
        elements += (int64_t)(e->bytes / 2);
    }
    assert_int_equal(elements, 656000);
    const pl_st_entry *e = pl_st_find(st, "model.layers.1.self_attn.k_proj.weight");
    assert_non_null(e);
    assert_int_equal(e->shape[0], 64);
    assert_int_equal(e->shape[1], 128);
    // Written again in its own order, it is the same file byte for byte.
    pl_st_source again[20];
    for (int i = 0; i < 20; i++) {
        const pl_st_entry *r = pl_st_at(st, i);
        again[i] = (pl_st_source){.name = r->name, .dtype = r->dtype, .rank = r->rank, .data = r->data};
        memcpy(again[i].shape, r->shape, sizeof r->shape);
    }
    assert_ok(pl_st_write(at("again"), again, 20, &(pl_st_pair){"format", "pt"}, 1, &err));
    uint8_t *a, *b;
    size_t   na, nb;
    assert_ok(pl_file_read(at("again"), &a, &na, 1 << 24, &err));
    assert_ok(pl_file_read(pl_st_path(st), &b, &nb, 1 << 24, &err));
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    pl_free(a);
    pl_free(b);
    pl_st_close(st);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_index_is_authority),
        cmocka_unit_test(test_shards_without_index),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_bad_indexes),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_write_failures),
        cmocka_unit_test(test_open_memory),
        cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
