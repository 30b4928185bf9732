// Datasets of traces: written and read back, gone on with, refused where features are wanted and the other way round.
#include "data/dataset/dataset.h"
#include "tests/checkpoints/scratch.h"

enum { D = 6, V = 500, TOP = 5, MAX_ROWS = 32, DOCS = 30 };

static const pl_dataset_attrs attrs = {.target_fingerprint = "aaaaaaaaaaaaaaaa",
                                       .tokenizer_fingerprint = "bbbbbbbbbbbbbbbb",
                                       .template_name = "plain",
                                       .generation = "{}",
                                       .vocab_size = V,
                                       .d = D,
                                       .drafter_fingerprint = "cccccccccccccccc",
                                       .head_fingerprint = "dddddddddddddddd",
                                       .tree = "eagle2:10,4,3",
                                       .top = TOP};

typedef struct doc {
    int64_t  n;
    int32_t  tokens[MAX_ROWS], top_id[MAX_ROWS * TOP];
    uint8_t  depth[MAX_ROWS], beam[MAX_ROWS], held_out[MAX_ROWS];
    float    top_prob[MAX_ROWS * TOP];
    uint16_t hidden[MAX_ROWS * D], output[MAX_ROWS * D];
} doc;

static pl_columns rows_of(doc *d) {
    return (pl_columns){.n = d->n,
                        .tokens = d->tokens,
                        .depth = d->depth,
                        .beam = d->beam,
                        .held_out = d->held_out,
                        .hidden = d->hidden,
                        .output = d->output,
                        .top_id = d->top_id,
                        .top_prob = d->top_prob};
}

static doc *make(int64_t i) {
    static doc d;
    unsigned   x = (unsigned)i * 2654435761u + 1;
    d.n = 1 + i * 7 % 23;
    for (int64_t k = 0; k < d.n; k++) {
        d.tokens[k] = (int32_t)((x = x * 1664525u + 1013904223u) % V);
        d.depth[k] = (uint8_t)(k % 3);
        d.beam[k] = (uint8_t)(k % 4);
        d.held_out[k] = i % 4 == 0;
    }
    for (int64_t k = 0; k < d.n * TOP; k++) {
        d.top_id[k] = (int32_t)((x = x * 1664525u + 1013904223u) % V);
        d.top_prob[k] = (float)(x >> 8) / (float)(1 << 24);
    }
    for (int64_t k = 0; k < d.n * D; k++) {
        d.hidden[k] = (uint16_t)(x = x * 1664525u + 1013904223u);
        d.output[k] = (uint16_t)(x >> 16);
    }
    return &d;
}

static void write_from(const char *dir, int64_t rows_per_shard, int64_t stop) {
    pl_err             err;
    pl_dataset_writer *w;
    assert_ok(pl_dataset_writer_create(&w, dir, &attrs, rows_per_shard, &err));
    for (int64_t i = pl_dataset_writer_docs(w); i < (stop ? stop : DOCS); i++) {
        pl_columns r = rows_of(make(i));
        assert_ok(pl_dataset_append(w, &r, &err));
    }
    if (stop)
        pl_dataset_writer_destroy(w);
    else
        assert_ok(pl_dataset_writer_close(w, &err));
}

static const pl_dataset_attrs any = {.top = -1, .A = -1};

static void check(const char *dir) {
    static doc  got;
    pl_err      err;
    pl_dataset *ds;
    assert_ok(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.want = &any}, &err));
    const pl_dataset_attrs *a = pl_dataset_get_attrs(ds);
    assert_string_equal(a->drafter_fingerprint, attrs.drafter_fingerprint);
    assert_string_equal(a->head_fingerprint, attrs.head_fingerprint);
    assert_string_equal(a->tree, attrs.tree);
    assert_int_equal(a->top, TOP);
    assert_int_equal(pl_dataset_docs(ds), DOCS);
    for (int64_t i = 0; i < DOCS; i++) {
        doc       *want = make(i);
        pl_columns to = rows_of(&got);
        size_t     n = (size_t)want->n;
        assert_ok(pl_dataset_read_doc(ds, i, &to, &err));
        assert_memory_equal(got.tokens, want->tokens, n * 4);
        assert_memory_equal(got.depth, want->depth, n);
        assert_memory_equal(got.beam, want->beam, n);
        assert_memory_equal(got.held_out, want->held_out, n);
        assert_memory_equal(got.top_id, want->top_id, n * TOP * 4);
        assert_memory_equal(got.top_prob, want->top_prob, n * TOP * 4);
        assert_memory_equal(got.hidden, want->hidden, n * D * 2);
        assert_memory_equal(got.output, want->output, n * D * 2);
    }
    pl_dataset_close(ds);
}

static void round_trip(void **state) {
    (void)state;
    write_from(at("one"), 1000, 0);
    check(at("one"));
    write_from(at("many"), 40, 0);
    check(at("many"));
}

static void goes_on(void **state) {
    (void)state;
    write_from(at("whole"), 40, 0);
    write_from(at("stopped"), 40, 11);
    write_from(at("stopped"), 40, 0);
    check(at("stopped"));
    // The manifest names every shard's checksum.
    uint8_t *a, *b;
    size_t   n, m;
    pl_err   err;
    assert_ok(pl_file_read(at("whole/manifest.json"), &a, &n, 1 << 20, &err));
    assert_ok(pl_file_read(at("stopped/manifest.json"), &b, &m, 1 << 20, &err));
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    pl_free(a);
    pl_free(b);
}

static void expect(const char *dir, const pl_dataset_attrs *want, const char *line) {
    pl_err      err;
    pl_dataset *ds;
    assert_int_equal(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.want = want}, &err), PL_E_INPUT);
    if (!strstr(err.msg, line)) fail_msg("%s", err.msg);
}

static void wanted(void **state) {
    (void)state;
    write_from(at("traces"), 100, 0);
    expect(at("traces"), NULL, "holds traces, wanted are features");
    expect(at("traces"), &(pl_dataset_attrs){.A = -1}, "holds traces, wanted are features");
    expect(at("traces"), &(pl_dataset_attrs){.top = 7, .A = -1}, "holds the 5 best ids, wanted are 7");
    expect(at("traces"), &(pl_dataset_attrs){.top = -1, .drafter_fingerprint = "x", .A = -1},
           "made with drafter cccccccccccccccc, wanted is x");
    expect(at("traces"), &(pl_dataset_attrs){.top = -1, .head_fingerprint = "x", .A = -1},
           "made with head dddddddddddddddd, wanted is x");
    expect(at("traces"), &(pl_dataset_attrs){.top = -1, .tree = "chain:3", .A = -1},
           "made with tree eagle2:10,4,3, wanted is chain:3");
    expect(at("traces"), &(pl_dataset_attrs){.top = -1, .d = 7, .A = -1}, "have width 6, wanted is 7");
    pl_dataset_attrs   features = {.target_fingerprint = "a",
                                   .tokenizer_fingerprint = "b",
                                   .template_name = "plain",
                                   .generation = "{}",
                                   .vocab_size = V,
                                   .d = 1};
    pl_err             err;
    pl_dataset_writer *w;
    int32_t            one = 1;
    uint8_t            mark = 1;
    uint16_t           value = 0;
    assert_ok(pl_dataset_writer_create(&w, at("features"), &features, 10, &err));
    pl_columns row = {.n = 1, .tokens = &one, .loss_mask = &mark, .argmax = &one, .last_hidden = &value};
    assert_ok(pl_dataset_append(w, &row, &err));
    assert_ok(pl_dataset_writer_close(w, &err));
    expect(at("features"), &any, "holds features, wanted are traces");
    assert_int_equal(pl_dataset_writer_create(&w, at("traces"), &features, 10, &err), PL_E_INPUT);
}

// Numbers that readers index with or add up.
static void broken_rows(void **state) {
    (void)state;
    for (int what = 0; what < 4; what++) {
        char name[16];
        snprintf(name, sizeof name, "broken%d", what);
        pl_err             err;
        pl_dataset_writer *w;
        assert_ok(pl_dataset_writer_create(&w, at(name), &attrs, 100, &err));
        doc *d = make(3);
        if (what == 0) d->top_id[7] = V;
        if (what == 1) d->top_prob[7] = -0.5f;
        if (what == 2) d->held_out[2] = 2;
        if (what == 3) d->tokens[1] = -1;
        pl_columns r = rows_of(d);
        assert_ok(pl_dataset_append(w, &r, &err));
        assert_ok(pl_dataset_writer_close(w, &err));
        pl_dataset *ds;
        assert_ok(pl_dataset_open(&ds, at(name), &(pl_dataset_open_options){.want = &any}, &err));
        assert_int_equal(pl_dataset_read_doc(ds, 0, &r, &err), PL_E_INPUT);
        assert_non_null(strstr(err.msg, "out of range; generate the dataset again"));
        pl_dataset_close(ds);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(goes_on),
        cmocka_unit_test(wanted),
        cmocka_unit_test(broken_rows),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
