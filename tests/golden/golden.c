#include "tests/golden/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "tests/cuda/emulate/device_emulated.h"
#include "tests/device.h"
#include "tests/ref64.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- files ----

typedef struct cursor {
    const uint8_t *p;
    size_t         left;
    const char    *file;
} cursor;

static const uint8_t *take(cursor *c, size_t n) {
    if (n > c->left) fail_msg("%s: ends in the middle of an entry", c->file);
    const uint8_t *p = c->p;
    c->p += n;
    c->left -= n;
    return p;
}

static uint32_t take_u32(cursor *c) {
    const uint8_t *p = take(c, 4);
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static double take_f64(cursor *c) {
    double x;
    memcpy(&x, take(c, 8), 8);
    return x;
}

static void take_entry(cursor *c, golden_entry *e) {
    static const pl_dtype types[] = {PL_F64, PL_I32, PL_U8};
    uint32_t              n = take_u32(c);
    if (n >= sizeof e->name) fail_msg("%s: a name of %u bytes", c->file, n);
    memcpy(e->name, take(c, n), n);
    uint32_t type = take_u32(c), rank = take_u32(c);
    if (type > 2 || rank < 1 || rank > 4) fail_msg("%s: %s: type %u, rank %u", c->file, e->name, type, rank);
    e->dtype = types[type];
    e->count = 1;
    for (uint32_t i = 0; i < 4; i++) {
        e->dim[i] = i < rank ? take_u32(c) : 1;
        if (e->dim[i] < 1 || e->dim[i] > 65536 || e->count > 65536)
            fail_msg("%s: %s: a dimension of %lld", c->file, e->name, (long long)e->dim[i]);
        e->count *= e->dim[i];
    }
    e->rms = take_f64(c);
    e->most = take_f64(c);
    size_t bytes = (size_t)e->count * pl_dtype_size(e->dtype);
    e->data = malloc(bytes);
    assert_non_null(e->data);
    memcpy(e->data, take(c, bytes), bytes);
}

void golden_open(golden *g, const char *name) {
    char     path[512];
    uint8_t *bytes;
    size_t   n;
    pl_err   err;
    snprintf(path, sizeof path, "%s/tests/golden/%s.golden", PACELINE_SOURCE_DIR, name);
    if (!pl_path_exists(path)) snprintf(path, sizeof path, "tests/golden/%s.golden", name); // built on another machine
    if (pl_file_read(path, &bytes, &n, 1 << 22, &err) != PL_OK) fail_msg("%s", err.msg);
    cursor c = {.p = bytes, .left = n, .file = name};
    assert_memory_equal(take(&c, 8), "PLGOLD01", 8);
    take(&c, take_u32(&c)); // the versions it was made with
    uint32_t entries = take_u32(&c);
    assert_in_range(entries, 1, 4096);
    *g = (golden){.name = name, .n = (int)entries, .entry = calloc(entries, sizeof *g->entry)};
    assert_non_null(g->entry);
    for (int i = 0; i < g->n; i++)
        take_entry(&c, &g->entry[i]);
    assert_int_equal(c.left, 0);
    pl_free(bytes);
}

void golden_close(golden *g) {
    for (int i = 0; i < g->n; i++)
        free(g->entry[i].data);
    free(g->entry);
    *g = (golden){0};
}

void golden_begin(golden *g) {
    for (int i = 0; i < g->n; i++)
        g->entry[i].asked = false;
}

void golden_all_asked(const golden *g, const char *prefix) {
    for (int i = 0; i < g->n; i++)
        if (strncmp(g->entry[i].name, prefix, strlen(prefix)) == 0 && !g->entry[i].asked)
            fail_msg("%s: nothing was compared with %s", g->name, g->entry[i].name);
}

static golden_entry *find(golden *g, const char *name) {
    for (int i = 0; i < g->n; i++)
        if (strcmp(g->entry[i].name, name) == 0) {
            g->entry[i].asked = true;
            return &g->entry[i];
        }
    fail_msg("%s: no entry %s", g->name, name);
    return NULL;
}

// The name from the variable arguments of the function that uses it.
#define FORMATTED(name, fmt)                                                                                           \
    char    name[160];                                                                                                 \
    va_list ap;                                                                                                        \
    va_start(ap, fmt);                                                                                                 \
    vsnprintf(name, sizeof name, fmt, ap);                                                                             \
    va_end(ap)

golden_entry *golden_at(golden *g, const char *fmt, ...) {
    FORMATTED(name, fmt);
    return find(g, name);
}

static void *typed(golden *g, const char *name, pl_dtype t, int64_t count) {
    golden_entry *e = find(g, name);
    if (e->dtype != t || e->count != count)
        fail_msg("%s: %s holds %lld of %s, wanted are %lld of %s", g->name, name, (long long)e->count,
                 pl_dtype_name(e->dtype), (long long)count, pl_dtype_name(t));
    return e->data;
}

const double *golden_reals(golden *g, int64_t count, const char *fmt, ...) {
    FORMATTED(name, fmt);
    return typed(g, name, PL_F64, count);
}

const int32_t *golden_ints(golden *g, int64_t count, const char *fmt, ...) {
    FORMATTED(name, fmt);
    return typed(g, name, PL_I32, count);
}

void golden_mkdir(golden *g, char dir[64]) {
    const char   *tmp = getenv("TMPDIR");
    golden_entry *e = find(g, "config.json");
    pl_err        err;
    char          path[96];
    snprintf(dir, 64, "%.40s/paceline-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir)) fail_msg("%s: cannot be made", dir);
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (pl_file_write_atomic(path, e->data, (size_t)e->count, &err) != PL_OK) fail_msg("%s", err.msg);
}

void golden_rmdir(const char *dir) {
    pl_err err;
    if (pl_tree_remove(dir, &err) != PL_OK) fail_msg("%s", err.msg);
}

void golden_config(golden *g, pl_hf_config *c) {
    char   dir[64];
    pl_err err;
    golden_mkdir(g, dir);
    if (pl_hf_config_read(c, dir, PL_HF_TARGET, &err) != PL_OK) fail_msg("%s", err.msg);
    golden_rmdir(dir);
}

int golden_backends(const pl_backend *be[GOLDEN_BACKENDS]) {
    const char *level;
    int         n = 0;
    be[n++] = pl_backend_ref64();
    be[n++] = pl_backend_ref();
    for (int i = 0; (level = pl_backend_cpu_level(i)); i++) {
        be[n] = pl_backend_cpu_isa(level);
        if (be[n])
            n++;
        else
            print_message("(cpu-%s does not run on this machine)\n", level);
    }
    be[n++] = pl_backend_cuda_emulated();
    be[n] = test_gpu();
    return be[n] ? n + 1 : n;
}

bool golden_on_device(const pl_backend *be) {
    return be == pl_backend_cuda_emulated() || be->memory;
}

pl_dtype golden_held(const pl_backend *be) {
    return be == pl_backend_ref() || be == pl_backend_ref64() ? PL_BF16 : PL_F32;
}

enum { ROOMS = 16 };
static struct room {
    const pl_memory *memory;
    void            *p;
    size_t           bytes;
} rooms[ROOMS];
static int n_rooms;

void *golden_room(const pl_backend *be, size_t bytes) {
    pl_err err;
    assert_true(n_rooms < ROOMS);
    struct room *r = &rooms[n_rooms++];
    *r = (struct room){.memory = be->memory, .bytes = bytes};
    r->p = pl_memory_create(r->memory, PL_SHARED, bytes, &err);
    if (!r->p) fail_msg("%s", err.msg);
    return r->p;
}

void golden_release(void) {
    for (; n_rooms > 0; n_rooms--)
        pl_memory_destroy(rooms[n_rooms - 1].memory, PL_SHARED, rooms[n_rooms - 1].p, rooms[n_rooms - 1].bytes);
}

// ---- numbers from names ----

// SplitMix64 started at the FNV-1a hash of the name.
static uint64_t start(const char *name) {
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001b3u;
    return h;
}

static uint64_t bits(uint64_t start_at, int64_t i) {
    uint64_t z = start_at + ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void golden_coarse(float *dst, int64_t n, int log2, const char *name) {
    uint64_t s = start(name);
    for (int64_t i = 0; i < n; i++)
        dst[i] = ldexpf((float)((int)(bits(s, i) >> 56) * 2 - 255), -log2);
}

// Exact in fp32, not in bf16.
static void fine(float *dst, int64_t n, int log2, const char *name) {
    uint64_t s = start(name);
    for (int64_t i = 0; i < n; i++)
        dst[i] = ldexpf((float)((int)(bits(s, i) >> 41) * 2 - ((1 << 23) - 1)), -log2);
}

void golden_weight(float *dst, const pl_param *p, golden_grade grade, const char *model) {
    for (int k = 0; k < p->spec.n_parts; k++) {
        char    name[160];
        bool    norm = p->spec.cols == 0;
        int64_t n = p->spec.part[k].rows * (norm ? 1 : p->spec.cols);
        snprintf(name, sizeof name, "%s/%s", model, p->name[k]);
        uint64_t s = start(name);
        if (norm)
            for (int64_t i = 0; i < n; i++)
                dst[i] = grade == GOLDEN_FINE ? 1 : (float)((bits(s, i) >> 58) + 96) / 128;
        else if (grade == GOLDEN_FINE)
            fine(dst, n, 26, name);
        else
            golden_coarse(dst, n, p->kind == PL_PARAM_EMBED ? 8 : 10, name);
        dst += n;
    }
}

static int64_t elements(const pl_param *p) {
    return p->spec.rows * (p->spec.cols > 0 ? p->spec.cols : 1);
}

float **golden_weights(const pl_params *ps, const char *model) {
    float **data = calloc((size_t)ps->n, sizeof *data);
    assert_non_null(data);
    for (int i = 0; i < ps->n; i++) {
        data[i] = calloc((size_t)elements(&ps->p[i]), sizeof(float));
        assert_non_null(data[i]);
        golden_weight(data[i], &ps->p[i], GOLDEN_COARSE, model);
    }
    return data;
}

void golden_weights_free(float **data, int n) {
    for (int i = 0; i < n; i++)
        free(data[i]);
    free(data);
}

void golden_weights_set(pl_param_block *b, golden_grade grade, const char *model) {
    for (int i = 0; i < b->params->n; i++) {
        float *values = calloc((size_t)elements(&b->params->p[i]), sizeof *values);
        assert_non_null(values);
        golden_weight(values, &b->params->p[i], grade, model);
        assert_int_equal(pl_param_block_set(b, i, values, NULL), PL_OK);
        free(values);
    }
}

// ---- comparison ----

static double real_at(pl_dtype real, const void *x, int64_t i) {
    return real == PL_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

// got: in fp32 or double, computed by the backend. slack: see golden_expect_block.
static void compare(const golden *g, const golden_entry *e, const pl_backend *be, pl_tensor got, int64_t from,
                    double slack) {
    const double *want = e->data;
    int64_t       count = pl_tensor_count(&got);
    if (e->dtype != PL_F64 || from < 0 || count < 1 || from + count > e->count)
        fail_msg("%s: %s has %lld values, compared with %lld from %lld", g->name, e->name, (long long)e->count,
                 (long long)count, (long long)from);
    double size = 0, squares = 0, rms = 0, most = 0;
    for (int64_t i = 0; i < e->count; i++) {
        size = fmax(size, fabs(want[i]));
        squares += want[i] * want[i];
    }
    for (int64_t i = 0; i < count; i++) {
        double x = fabs(real_at(got.dtype, got.data, i) - want[from + i]);
        most = fmax(most, x);
        rms += x * x; // a NaN stays
    }
    rms = sqrt(rms / (double)count);
    double allowed = e->most == 0 ? 0 : 2 * e->most + ldexp(size, -23);
    double allowed_rms = e->most == 0 ? 0 : 2 * e->rms + ldexp(sqrt(squares / (double)e->count), -23);
    if (slack == 0) slack = g->slack;
    if (slack > 0) allowed = allowed_rms = slack * size;
    if (golden_on_device(be)) allowed = allowed_rms = fmax(ldexp(size, -12), allowed);
    if (be->real == PL_F64) allowed = allowed_rms = 1e-12 * size;
    if (count < e->count) allowed_rms = allowed;
    assert_true(size > 0);
    if (!(rms <= allowed_rms && most <= allowed))
        fail_msg("%s on %s: %s: error %.3g rms, %.3g at most; allowed are %.3g and %.3g (values up to %.3g)", g->name,
                 be->name, e->name, rms, most, allowed_rms, allowed, size);
}

void golden_expect(golden *g, const pl_backend *be, pl_tensor got, const char *fmt, ...) {
    FORMATTED(name, fmt);
    golden_entry *e = find(g, name);
    assert_int_equal(pl_tensor_count(&got), e->count);
    compare(g, e, be, got, 0, 0);
}

void golden_expect_rows(golden *g, const pl_backend *be, pl_tensor got, int64_t row0, const char *fmt, ...) {
    FORMATTED(name, fmt);
    golden_entry *e = find(g, name);
    compare(g, e, be, got, row0 * (e->count / e->dim[0]), 0);
}

void golden_expect_slack(golden *g, const pl_backend *be, pl_tensor got, double slack, const char *name) {
    golden_entry *e = find(g, name);
    assert_int_equal(pl_tensor_count(&got), e->count);
    compare(g, e, be, got, 0, slack);
}

static double sign(uint64_t start_at, int64_t i) {
    return bits(start_at, i) >> 63 ? -1 : 1;
}

// One part: a vector as it is; a matrix G by G s and s' G, which are summed in double whatever G is in.
static void compare_part(golden *g, const pl_backend *be, pl_tensor got, double slack, const char *name) {
    char          side[192];
    int64_t       rows = got.dim[0], cols = got.dim[1];
    golden_entry *e[2];
    double       *sum[2];
    uint64_t      s[2];
    if (got.rank == 1) {
        e[0] = find(g, name);
        assert_int_equal(e[0]->count, rows);
        compare(g, e[0], be, got, 0, slack);
        return;
    }
    for (int k = 0; k < 2; k++) {
        snprintf(side, sizeof side, "%s/%s", name, k ? "cols" : "rows");
        e[k] = find(g, side);
        assert_int_equal(e[k]->count, k ? cols : rows);
        sum[k] = calloc((size_t)e[k]->count, sizeof *sum[k]);
        assert_non_null(sum[k]);
        s[k] = start(side);
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double x = real_at(got.dtype, got.data, r * cols + c);
            sum[0][r] += x * sign(s[0], c);
            sum[1][c] += x * sign(s[1], r);
        }
    for (int k = 0; k < 2; k++) {
        compare(g, e[k], be, pl_tensor_1d(sum[k], PL_F64, e[k]->count), 0, slack);
        free(sum[k]);
    }
}

void golden_expect_matrix(golden *g, const pl_backend *be, pl_tensor got, double slack, const char *fmt, ...) {
    FORMATTED(name, fmt);
    compare_part(g, be, got, slack, name);
}

void golden_expect_block(golden *g, const pl_backend *be, const pl_param_block *b, const void *block, double slack,
                         const char *prefix) {
    for (int i = 0; i < b->params->n; i++) {
        const pl_param *p = &b->params->p[i];
        int64_t         at = b->at[i];
        for (int k = 0; k < p->spec.n_parts; k++) {
            char      name[160];
            int64_t   rows = p->spec.part[k].rows, cols = p->spec.cols;
            void     *data = (uint8_t *)(uintptr_t)block + (size_t)at * pl_dtype_size(b->real);
            pl_tensor part = cols > 0 ? pl_tensor_2d(data, b->real, rows, cols) : pl_tensor_1d(data, b->real, rows);
            snprintf(name, sizeof name, "%s%s", prefix, p->name[k]);
            compare_part(g, be, part, slack, name);
            at += pl_tensor_count(&part);
        }
    }
}
