// Tables that foreign names fill, by names that were chosen to collide under the unseeded hashes that are published:
// each name still finds a place near where it belongs.
#include "checkpoints/names.h"
#include "data/tokenizer/hf.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "tests/checkpoints/scratch.h"
#include <time.h>

#define MANY 4000
#define RUN 200 // entries beside each other in a table that is half full: some 60 by chance
#define MORE 8000

static uint64_t rotl(uint64_t x, int r) {
    return x << r | x >> (64 - r);
}

static uint64_t inverse(uint64_t a) { // modulo 2^64, of an odd number
    uint64_t x = a;
    for (int i = 0; i < 6; i++)
        x *= 2 - a * x;
    return x;
}

static const uint64_t p1 = 0x9E3779B185EBCA87u, p2 = 0xC2B2AE3D27D4EB4Fu, p4 = 0x85EBCA77C2B2AE63u,
                      p5 = 0x27D4EB2F165667C5u; // of XXH64

// The i-th of names whose XXH64 with seed 0 is the same: eight bytes at will, and the eight that lead back.
typedef struct maker {
    uint64_t tried, inverse1, inverse2;
    char     name[17];
} maker;

static const char *next_name(maker *m) {
    for (bool printable = false; !printable;) {
        m->tried++;
        for (int i = 0; i < 8; i++)
            m->name[i] = (char)('a' + (m->tried >> (4 * i) & 15));
        uint64_t a, h = p5 + 16, b;
        memcpy(&a, m->name, 8);
        h ^= rotl(a * p2, 31) * p1;
        h = rotl(h, 27) * p1 + p4;
        b = rotl((h ^ rotl((12345 - p4) * m->inverse1, 37)) * m->inverse1, 33) * m->inverse2;
        memcpy(m->name + 8, &b, 8);
        printable = (b & 0x8080808080808080u) == 0;
        for (int i = 8; i < 16 && printable; i++)
            printable = m->name[i] >= 32 && m->name[i] < 127 && !strchr("\"\\", m->name[i]);
    }
    return m->name;
}

// MORE of them, and as many names that have nothing to do with each other.
static char *bad[MORE], *good[MORE];

static int make_names(void **state) {
    (void)state;
    maker m = {0, inverse(p1), inverse(p2), ""};
    for (int i = 0; i < MORE; i++) {
        bad[i] = pl_strdup(next_name(&m));
        good[i] = pl_sprintf("n%015d", i);
    }
    return pl_hash(bad[0], 16) != pl_hash(bad[MORE - 1], 16);
}

static int free_names(void **state) {
    (void)state;
    for (int i = 0; i < MORE; i++) {
        pl_free(bad[i]);
        pl_free(good[i]);
    }
    return 0;
}

typedef bool taken_fn(const void *table, size_t i);

static int longest_run(const void *table, size_t n, taken_fn *taken) {
    int run = 0, most = 0;
    for (size_t i = 0; i < 2 * n; i++) { // twice: the table is a ring
        run = taken(table, i % n) ? run + 1 : 0;
        if (run > most) most = run;
    }
    return most;
}

static bool in_names(const void *table, size_t i) {
    return ((const pl_names *)table)->slot[i] != 0;
}

static bool in_vocab(const void *table, size_t i) {
    return ((const pl_vocab *)table)->table[i] >= 0;
}

static bool in_merges(const void *table, size_t i) {
    return ((const pl_hf *)table)->merges[i].merged >= 0;
}

static void names_of_tensors(void **state) {
    (void)state;
    pl_names s = {0};
    for (int i = 0; i < MANY; i++)
        assert_int_equal(pl_names_add(&s, bad[i]), i);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(pl_names_find(&s, bad[i]), i);
    assert_true(longest_run(&s, (size_t)s.slots, in_names) < RUN);
    pl_names_fini(&s);
}

// FNV-1a, folded, has 2^13 places for so many pieces: those that come to place 7 are looked for.
static void pieces(void **state) {
    (void)state;
    pl_vocab v = {0};
    pl_err   err;
    for (uint64_t i = 0; v.n < MANY; i++) {
        char     s[32];
        int      n = snprintf(s, sizeof s, "%llx", (unsigned long long)i);
        uint64_t h = 0xcbf29ce484222325u;
        for (int k = 0; k < n; k++)
            h = (h ^ (uint8_t)s[k]) * 0x100000001b3u;
        if (((h ^ h >> 32) & 8191) == 7) assert_ok(pl_vocab_set(&v, v.n, s, (size_t)n, &err));
    }
    assert_ok(pl_vocab_index(&v, &err));
    for (int32_t i = 0; i < MANY; i++) {
        size_t      n;
        const char *s = pl_vocab_piece(&v, i, &n);
        assert_int_equal(pl_vocab_find(&v, s, n), i);
    }
    assert_true(longest_run(&v, v.mask + 1, in_vocab) < RUN);
    pl_vocab_fini(&v);
}

// Pairs of ids that a multiplication by the golden ratio puts at one place of 2^13.
static void merges(void **state) {
    (void)state;
    pl_hf  h = {0};
    pl_err err;
    int    n = 0;
    assert_ok(pl_hf_merges_reserve(&h, MANY, &err));
    for (uint64_t key = 0; n < MANY; key++) {
        int32_t  a = (int32_t)(key >> 13), b = (int32_t)(key & 8191);
        uint64_t x = ((uint64_t)a << 32 | (uint64_t)b) * 0x9e3779b97f4a7c15u;
        if (((x ^ x >> 32) & 8191) == 7) assert_true(pl_hf_merge_add(&h, a, b, n++, 1));
    }
    assert_true(longest_run(&h, h.merge_mask + 1, in_merges) < RUN);
    pl_free(h.merges);
}

static double seconds_of(void (*fn)(char **names, int n), char **names, int n) {
    clock_t from = clock();
    fn(names, n);
    return (double)(clock() - from) / CLOCKS_PER_SEC;
}

// An object of so many members, each of which must be new.
static void parse_object(char **names, int n) {
    pl_strbuf b = {0};
    pl_json   j;
    pl_err    err;
    for (int i = 0; i < n; i++) {
        pl_strbuf_add(&b, i ? ",\"" : "{\"", 2);
        pl_strbuf_add(&b, names[i], strlen(names[i]));
        pl_strbuf_add(&b, "\":1", 3);
    }
    pl_strbuf_add(&b, "}", 1);
    assert_ok(pl_json_parse(&j, "t", 0, b.s, b.n, PL_JSON_UNIQUE, &err));
    pl_json_close(&j);
    pl_strbuf_fini(&b);
}

static pl_status no_ids(const void *ctx, const char *word, size_t n, bool first, pl_ids *o, pl_err *err) {
    (void)ctx, (void)word, (void)n, (void)first, (void)o, (void)err;
    return PL_OK;
}

// Words of a text that are remembered.
static void remember_words(char **names, int n) {
    pl_words words = {0};
    pl_ids   ids = {0};
    pl_err   err;
    assert_ok(pl_words_init(&words, &err));
    pl_words_memory *m = pl_words_take(&words);
    for (int i = 0; i < n; i++)
        assert_ok(pl_words_one(m, names[i], strlen(names[i]), no_ids, NULL, &ids, &err));
    pl_words_give(m);
    pl_words_fini(&words);
    pl_free(ids.v);
}

// Tables that nothing shows: names that collide take what others take, and not a hundred times that.
static void members_and_words(void **state) {
    (void)state;
    void (*const fns[])(char **names, int n) = {parse_object, remember_words};
    for (int i = 0; i < 2; i++)
        assert_true(seconds_of(fns[i], bad, MORE) < 10 * seconds_of(fns[i], good, MORE) + 0.05);
}

// The hash of two pieces is that of their text, however long they are; another seed, another place.
static void joined(void **state) {
    (void)state;
    char text[600];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7);
    for (size_t n = 0; n <= sizeof text; n += 25)
        for (size_t cut = 0; cut <= n; cut += 5)
            assert_true(pl_hash_keys(text, cut, text + cut, n - cut) == pl_hash_key(text, n));
    assert_true(pl_hash_seed() == pl_hash_seed() && pl_hash_seed() != 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_tensors),  cmocka_unit_test(pieces), cmocka_unit_test(merges),
        cmocka_unit_test(members_and_words), cmocka_unit_test(joined),
    };
    return cmocka_run_group_tests(tests, make_names, free_names);
}
