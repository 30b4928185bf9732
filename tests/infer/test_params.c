// Loading: what lies in the file in bf16 is packed without a copy, the rest by way of fp32, by several threads where
// it is much; the packed values are the file's whichever way they came.
#include "infer/model/params.h"
#include "kernels/base/arena.h"
#include "kernels/base/rng.h"
#include "kernels/panels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

// A stack of three whose borders are no panel's, in columns that are odd in number; more than threads are worth.
enum { Q = 1000, K = 333, V = 71, ROWS = Q + K + V, COLS = 1027 };
enum { PLACES = (ROWS + PL_PANEL - 1) / PL_PANEL * PL_PANEL };

typedef struct file {
    float            *value; // [ROWS][COLS], values of bf16
    uint8_t          *map;   // of a file without a name: pages that are let go come back
    size_t            bytes;
    pl_weight_entry   entry[3];
    pl_params         ps;
    pl_tensor         w;
    pl_weight_source *src;
} file;

// Each part in its own type, at an address that is a multiple of nothing.
static void make(file *f, const pl_dtype type[3], int64_t rope_heads, bool gated) {
    static const char *const name[3] = {"q", "k", "v"};
    static const int64_t     rows[3] = {Q, K, V};
    pl_err                   err;
    FILE                    *to = tmpfile();
    size_t                   at[3];
    *f = (file){.value = malloc(sizeof(float) * ROWS * COLS)};
    assert_non_null(f->value);
    assert_non_null(to);
    for (int64_t i = 0; i < (int64_t)ROWS * COLS; i++)
        f->value[i] = pl_round_bf16((float)pl_rng_normal(pl_rng_make(3, PL_STREAM_TEST, 0), (uint64_t)i));
    int64_t top = 0;
    for (int p = 0; p < 3; top += rows[p++]) {
        size_t n = (size_t)(rows[p] * COLS), bytes = n * pl_dtype_size(type[p]);
        void  *part = malloc(bytes);
        assert_non_null(part);
        pl_from_f32(part, type[p], f->value + top * COLS, n);
        assert_int_equal(fputc('x', to), 'x');
        at[p] = f->bytes + 1;
        assert_int_equal(fwrite(part, 1, bytes, to), bytes);
        f->bytes = at[p] + bytes;
        free(part);
    }
    assert_int_equal(fflush(to), 0);
    f->map = mmap(NULL, f->bytes, PROT_READ, MAP_PRIVATE, fileno(to), 0);
    assert_ptr_not_equal(f->map, MAP_FAILED);
    fclose(to);
    for (int p = 0; p < 3; p++)
        f->entry[p] = (pl_weight_entry){.name = name[p],
                                        .dtype = type[p],
                                        .rank = 2,
                                        .shape = {rows[p], COLS},
                                        .data = f->map + at[p],
                                        .bytes = (size_t)(rows[p] * COLS) * pl_dtype_size(type[p]),
                                        .rope_heads = p == 0 ? rope_heads : 0};
    assert_int_equal(pl_params_init(&f->ps, 1, &err), PL_OK);
    pl_params_add(&f->ps, &(pl_param_args){.tensor = &f->w,
                                           .kind = PL_PARAM_MATRIX,
                                           .part = {{"q", Q}, {"k", K}, {"v", V}},
                                           .cols = COLS,
                                           .gated = gated});
}

static void release(void *owner) {
    const file *f = owner;
    assert_int_equal(munmap(f->map, f->bytes), 0);
}

// gated: the stack's first half is a gate and its second up, whichever parts they are made of.
static void check(const pl_dtype type[3], int64_t rope_heads, pl_dtype held, bool gated) {
    file   f;
    pl_err err = {0};
    make(&f, type, rope_heads, gated);
    assert_int_equal(pl_weight_source_create(&f.src, "here", f.entry, 3, release, &f, &err), PL_OK);
    float *want = malloc(sizeof(float) * ROWS * COLS), *got = malloc(sizeof(float) * COLS);
    assert_non_null(want);
    assert_non_null(got);
    const pl_weight_spec spec = pl_param_spec(&f.ps.p[0]);
    assert_int_equal(pl_weight_read_f32(f.src, &spec, want, &err), PL_OK);
    if (rope_heads == 0) assert_memory_equal(want, f.value, sizeof(float) * ROWS * COLS);
    if (pl_params_load(&f.ps, f.src, held, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_true(f.w.layout == (gated ? PL_GATED : PL_PANELS) && f.w.dtype == held);
    bool there[PLACES] = {false};
    for (int64_t r = 0; r < ROWS; r++) {
        int64_t place = gated ? pl_gated_place(r, ROWS) : r;
        assert_true(place < PLACES && !there[place]);
        there[place] = true;
        pl_panels_row(got, f.w.data, held, place, COLS);
        assert_memory_equal(got, want + r * COLS, sizeof(float) * COLS);
    }
    for (int64_t r = 0; r < PLACES; r++) // the rest of the last panel
        for (int64_t k = 0; k < COLS && !there[r]; k++)
            assert_true(pl_panels_at(f.w.data, held, r, k, COLS) == 0);
    pl_params_fini(&f.ps);
    free(f.value);
    free(want);
    free(got);
}

static void every_way(void **state) {
    (void)state;
    static const pl_dtype stored[][3] = {
        {PL_BF16, PL_BF16, PL_BF16}, {PL_F32, PL_F32, PL_F32}, {PL_BF16, PL_F32, PL_F64}};
    for (int i = 0; i < 3; i++)
        for (int held = 0; held < 2; held++)
            for (int gated = 0; gated < 2; gated++) {
                check(stored[i], 0, held ? PL_BF16 : PL_F32, gated);
                check(stored[i], 10, held ? PL_BF16 : PL_F32, gated);
            }
}

static void views(void **state) {
    (void)state;
    file        f;
    pl_err      err = {0};
    const void *at;
    make(&f, (pl_dtype[]){PL_BF16, PL_F32, PL_BF16}, 0, false);
    assert_int_equal(pl_weight_source_create(&f.src, "here", f.entry, 3, release, &f, &err), PL_OK);
    const pl_weight_spec spec = pl_param_spec(&f.ps.p[0]);
    assert_int_equal(pl_weight_rows_view(f.src, &spec, 0, PL_BF16, &at), Q);
    assert_ptr_equal(at, f.entry[0].data);
    assert_int_equal(pl_weight_rows_view(f.src, &spec, Q - 1, PL_BF16, &at), 1);
    assert_ptr_equal(at, (const uint8_t *)f.entry[0].data + (size_t)(Q - 1) * COLS * 2);
    assert_int_equal(pl_weight_rows_view(f.src, &spec, Q, PL_BF16, &at), 0);
    assert_int_equal(pl_weight_rows_view(f.src, &spec, Q + 3, PL_F32, &at), K - 3);
    assert_int_equal(pl_weight_rows_view(f.src, &spec, Q + K, PL_BF16, &at), V);
    assert_ptr_equal(at, f.entry[2].data);
    pl_weight_source_close(f.src);
    pl_params_fini(&f.ps);
    free(f.value);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_way), cmocka_unit_test(views)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
