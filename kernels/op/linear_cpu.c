// linear on the cpu backends: row-major weights (training) through the GEMM, packed weights (inference) here.
//
// Packed: what a pass computes stands in kernels/cpu/panels.h; what is free is which outputs it computes together. Few
// rows take one panel at a time: its weights are then one sequential stream, which caches feed fastest (measured on
// Zen 5 at 30 MB of bf16, one thread: 55 GB/s against 40 for four panels side by side).
//   rows of one tile  weights stream through once, start to end
//   more rows         GROUP panels by K_CHUNK at a time stay in L2 for all tiles of a block of rows; between chunks the
//                     sums rest in y, which changes no bit
//   a matrix unit     longer chunks, as sums on their way to memory and back cost it as much as products; meanwhile the
//                     next chunk is fetched. Sums rest in a place of their own, since rows of y lie powers of two apart
//                     and share a few sets of a cache
#include "kernels/base/ahead.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pairs.h"
#include "kernels/op/linear.h"

void PL_CPU(linear_fwd)(pl_ctx *ctx, const void *args);
void PL_CPU(linear_bwd)(pl_ctx *ctx, const void *args);
void pl_linear_fwd_ref32(pl_ctx *ctx, const void *args);
void pl_linear_bwd_ref32(pl_ctx *ctx, const void *args);

enum {
    ROWS_MAX = 96, // rows of a block in fp32: its x chunk stays in L2 (bf16: PL_ROWS_BLOCK)
    K_CHUNK = 512, // GROUP * K_CHUNK * 256 bytes of fp32 weights: 256 KiB; blocks of bf16 are whole in it
    GROUP = PL_PASS_PANELS,
    SMALL = 30000,      // multiply-adds below which a parallel region costs more than it saves
    TILES_WHOLE = 1024, // (a matrix unit) k up to which a panel is taken as a whole
    TILES_CHUNK = 512,  // and of which it takes so much at a time where it is longer
    TILES_GROUP = 4,    // panels at a time where x is long and high
    TILES_LONG = 2048,  // k and rows above which it is
    TILES_HIGH = 64,
    X_AHEAD = 16384,  // bytes of x fetched at the start of a part
    PACK_BIG = 65536, // floats of x above which packing it is worth a parallel region
    SHARED = 5,       // tiles of x from which weights out of a cache are fetched ahead too
    SOON = 1 << 18    // bytes of the next weight that a waiting thread fetches: a part of its second-level cache
};

// ---- the product ----

// All by value: what a worker has to look up elsewhere, it waits for once more.
typedef struct job {
    pl_rows     x; // this block of rows
    float      *y; // [rows][N]
    int64_t     n, k;
    const char *w;
    const char *next;           // the weight that is likely read after this one, or NULL
    int64_t     next_n, next_k; // its shape
    bool        bf16, next_bf16;
    bool        far;  // w is likely in no cache
    float      *rest; // (a matrix unit) sums of a thread, rest_floats for each
    int64_t     rest_floats;
} job;

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static void pack_part(void *arg, int part, int parts) {
    const job *j = arg;
    long       lo, hi;
    pl_range((long)j->x.tiles, 1, part, parts, &lo, &hi);
    for (long t = lo; t < hi; t++)
        pl_rows_pack(&j->x, t);
}

// Where a part of the next weight starts, NULL where there is none.
static const char *next_part(const job *j, int part, int parts, size_t *bytes) {
    if (!j->next) return NULL;
    long   lo, hi;
    size_t panel_bytes = pl_panels_bytes(PL_PANEL, j->next_k, j->next_bf16 ? PL_BF16 : PL_F32);
    pl_range((long)ceil_div(j->next_n, PL_PANEL), 1, part, parts, &lo, &hi);
    *bytes = (size_t)(hi - lo) * panel_bytes;
    return j->next + (size_t)lo * panel_bytes;
}

// ---- on a matrix unit, more rows than one of its tiles ----

static bool by_tiles(bool bf16, int64_t rows) {
    return bf16 && PL_TILE_ROWS_MOST > 0 && rows > PL_TILE_ROWS;
}
static int64_t tiles_chunk(int64_t k) {
    return k <= TILES_WHOLE ? k : TILES_CHUNK;
}
static int64_t tiles_group(int64_t rows, int64_t k) {
    return rows > TILES_HIGH && k > TILES_LONG ? TILES_GROUP : 1;
}

// Tile t's share of what comes after panel p's chunk at k0, which would be waited for while nothing is multiplied.
static void share_next(pl_pass *a, const job *j, int64_t t, int64_t p, int64_t end, int64_t group, int64_t k0) {
    const int64_t step = PL_PANEL * 2, k1 = k0 + a->kc, next = k1 < j->k ? p : p + group;
    if ((!j->far && j->x.tiles < SHARED) || next >= end) return;
    const int64_t k = k1 < j->k ? k1 : 0, lines = min64(a->kc, j->k - k) * step / 64;
    const int64_t from = lines * t / j->x.tiles;
    a->soon = j->w + (size_t)next * a->panel_bytes + (size_t)(k * step + from * 64);
    a->soon_lines = lines * (t + 1) / j->x.tiles - from;
}

// Where weights come from memory, lines of y are in no cache either: they are written without being read.
static void leave_rows(float *y, int64_t ldy, const float *from, int64_t rows, int64_t cols, bool past) {
    const bool lines = past && cols == PL_PANEL && ((uintptr_t)y & 63) == 0 && ldy % PL_VL == 0;
    for (int64_t r = 0; r < rows; r++, y += ldy, from += PL_PANEL) {
        if (!lines) memcpy(y, from, (size_t)cols * sizeof *y);
        for (int i = 0; i < PL_PANEL && lines; i += PL_VN_LANES)
            pl_vn_stream(y + i, pl_vn_loadu(from + i));
    }
}

static void multiply_chunk(const job *j, float *rest, int64_t p0, int64_t k0, int64_t end) {
    const int64_t panel_bytes = (int64_t)pl_panels_bytes(PL_PANEL, j->k, PL_BF16),
                  kc = min64(tiles_chunk(j->k), j->k - k0);
    const int64_t group = tiles_group(j->x.rows, j->k);
    const bool    direct = kc == j->k && !j->far; // small products: y is in a cache
    for (int64_t t = 0; t < j->x.tiles; t++) {
        int64_t r0 = pl_rows_first(&j->x, t), rows = pl_rows_first(&j->x, t + 1) - r0;
        for (int64_t p = p0; p < min64(p0 + group, end); p++) {
            float  *y = j->y + r0 * j->n + p * PL_PANEL, *sums = rest + ((p - p0) * j->x.rows + r0) * PL_PANEL;
            pl_pass a = {.kc = kc,
                         .x = pl_rows_at(&j->x, t, k0),
                         .among = j->x.tiles > 1,
                         .w = j->w + p * panel_bytes + k0 * PL_PANEL * 2,
                         .panel_bytes = (size_t)panel_bytes,
                         .y = direct ? y : sums,
                         .ldy = direct ? j->n : PL_PANEL,
                         .cols = min64(PL_PANEL, j->n - p * PL_PANEL),
                         .resume = k0 > 0,
                         .far = j->far};
            share_next(&a, j, t, p, end, group, k0);
            pl_panels_pass(true, (int)rows, 1, &a);
            if (!direct && k0 + kc == j->k) leave_rows(y, j->n, sums, rows, a.cols, j->far);
        }
    }
}

static void tiles_part(void *arg, int part, int parts) {
    const job     j = *(const job *)arg;
    const int64_t group = tiles_group(j.x.rows, j.k), chunk = tiles_chunk(j.k);
    const int64_t panel_bytes = (int64_t)pl_panels_bytes(PL_PANEL, j.k, PL_BF16);
    long          lo, hi;
    pl_range((long)ceil_div(j.n, PL_PANEL), 1, part, parts, &lo, &hi);
    for (int64_t p = lo; p < min64(lo + group, hi) && j.far; p++)
        pl_soon(j.w + p * panel_bytes, (size_t)(chunk * PL_PANEL * 2));
    uint64_t mode = pl_panels_begin(true);
    for (int64_t p0 = lo; p0 < hi; p0 += group)
        for (int64_t k0 = 0; k0 < j.k; k0 += chunk)
            multiply_chunk(&j, j.rest + part * j.rest_floats, p0, k0, hi);
    pl_panels_end(true, mode);
    pl_stream_end();
}

// ---- any other product ----

static void panels_part(void *arg, int part, int parts) {
    const job   j = *(const job *)arg;
    pl_dtype    dtype = j.bf16 ? PL_BF16 : PL_F32;
    size_t      after_bytes = 0;
    const char *after = next_part(&j, part, parts, &after_bytes);
    long        lo, hi;
    pl_range((long)ceil_div(j.n, PL_PANEL), 1, part, parts, &lo, &hi);
    size_t      step = PL_PANEL * (j.bf16 ? 2 : 4), panel_bytes = pl_panels_bytes(PL_PANEL, j.k, dtype);
    bool        once = j.x.tiles == 1;
    int64_t     chunk = once ? j.k : K_CHUNK, group = once ? hi - lo : GROUP;
    int64_t     x_bytes = j.x.packed ? (int64_t)j.x.tile_bytes : j.x.rows * j.k * (int64_t)sizeof(float);
    const char *x = pl_rows_at(&j.x, 0, 0);
    // In decoding another core has just written x: its lines come at once rather than one after the other.
    for (int64_t i = 0; i < min64(x_bytes, X_AHEAD) && once; i += 64)
        __builtin_prefetch(x + i);
    uint64_t mode = pl_panels_begin(j.bf16);
    for (int64_t p0 = lo; p0 < hi; p0 += group) {
        int64_t p1 = min64(p0 + group, hi);
        for (int64_t k0 = 0; k0 < j.k; k0 += chunk)
            for (int64_t t = 0; t < j.x.tiles; t++) {
                int64_t r0 = pl_rows_first(&j.x, t), rows = pl_rows_first(&j.x, t + 1) - r0;
                for (int64_t p = p0, g; p < p1; p += g) {
                    g = rows == 1 || once || j.bf16 ? 1 : GROUP;
                    while (g > 1 && (g > p1 - p || g * rows > PL_MR_PANEL))
                        g /= 2;
                    pl_pass a = {.kc = min64(chunk, j.k - k0),
                                 .x = pl_rows_at(&j.x, t, k0),
                                 .among = j.x.tiles > 1,
                                 .w = j.w + (size_t)p * panel_bytes + (size_t)k0 * step,
                                 .panel_bytes = panel_bytes,
                                 .y = j.y + r0 * j.n + p * PL_PANEL,
                                 .ldy = j.n,
                                 .cols = min64(PL_PANEL * g, j.n - p * PL_PANEL),
                                 .resume = k0 > 0,
                                 .after = p + g == hi && once ? after : NULL,
                                 .far = j.far};
                    pl_panels_pass(j.bf16, (int)rows, (int)g, &a);
                }
            }
    }
    pl_panels_end(j.bf16, mode);
    // The last of these panels has fetched the first of those.
    if (once && !j.far && after_bytes > PL_PANELS_AHEAD && pl_fetch_ahead())
        pl_soon(after + PL_PANELS_AHEAD, (size_t)min64((int64_t)after_bytes, SOON) - PL_PANELS_AHEAD);
}

// Weights lie a few hundred pages apart, at regular distances: the slot takes all bits of the address (Fibonacci
// hashing), or most of a model would share a few slots.
static size_t trail_slot(const void *data) {
    return (size_t)(((uint64_t)(uintptr_t)data >> 12) * 0x9e3779b97f4a7c15u >> 32) % PL_TRAIL;
}

// Notes that the weight is read now; how long ago it was read last, and what was read after it then.
static void follow_trail(pl_trail *t, job *j, const pl_tensor *w) {
    uint64_t bytes = pl_panels_bytes(j->n, j->k, w->dtype);
    size_t   was = trail_slot(t->last), now = trail_slot(w->data);
    if (t->last && t->next[was].from == t->last) t->next[was].to = *w;
    bool known = t->next[now].from == w->data;
    if (!known) t->next[now].to = (pl_tensor){0};
    const pl_tensor *next = &t->next[now].to;
    j->next = next->data;
    j->next_n = next->dim[0];
    j->next_k = next->dim[1];
    j->next_bf16 = next->dtype == PL_BF16;
    j->far = (known ? t->read - t->next[now].at : bytes) > t->cache;
    t->next[now].from = t->last = w->data;
    t->next[now].at = t->read;
    t->read += bytes;
}

static void panels_fwd(pl_ctx *ctx, const pl_linear_args *a) {
    int64_t m = a->x.dim[0], n = a->w.dim[0], k = a->w.dim[1];
    if (m == 0 || n == 0) return;
    _Alignas(64) job j = {.n = n, .k = k, .w = a->w.data, .bf16 = a->w.dtype == PL_BF16};
    if (!ctx->measuring) follow_trail(&ctx->trail, &j, &a->w);
    // Blocks of near-equal height too. Scratch for the highest one of any call that is no larger: 96 rows are one block
    // of 96, 256 rows three of 86, and a step may have fewer rows than the one that was measured.
    int64_t most = j.bf16 ? PL_ROWS_BLOCK : ROWS_MAX, blocks = ceil_div(m, most);
    size_t  mark = pl_arena_mark(&ctx->scratch);
    void   *packed = pl_arena_alloc(&ctx->scratch, pl_rows_bytes(j.bf16, min64(m, most), k));
    bool    tiles = by_tiles(j.bf16, min64(m, most));
    j.rest_floats = tiles ? min64(m, most) * PL_PANEL * tiles_group(min64(m, most), k) : 0;
    j.rest = pl_arena_alloc(&ctx->scratch, (size_t)(j.rest_floats * pl_pool_threads(ctx->pool)) * sizeof(float));
    if (!ctx->measuring && k == 0) memset(a->y.data, 0, (size_t)(m * n) * sizeof(float));
    for (int64_t b = 0; b < blocks && !ctx->measuring && k > 0; b++) {
        int64_t r0 = m * b / blocks, rows = m * (b + 1) / blocks - r0;
        int     parts = pl_pool_threads(ctx->pool);
        pl_rows_begin(&j.x, j.bf16, pl_f32(&a->x) + r0 * k, rows, k, packed);
        if (tiles) pl_rows_even(&j.x);
        j.y = pl_f32(&a->y) + r0 * n;
        if (rows * k >= PACK_BIG)
            pl_parallel(ctx->pool, parts, pack_part, &j);
        else
            pack_part(&j, 0, 1);
        const pl_part_fn multiply = tiles ? tiles_part : panels_part;
        if ((double)rows * (double)n * (double)k < SMALL)
            multiply(&j, 0, 1);
        else
            pl_parallel(ctx->pool, parts, multiply, &j);
    }
    pl_arena_release(&ctx->scratch, mark);
}

// ---- the op ----

void PL_CPU(linear_fwd)(pl_ctx *ctx, const void *args) {
    const pl_linear_args *a = args;
    int64_t               m = a->x.dim[0], n = a->w.dim[0], k = a->w.dim[1];
    if (a->w.layout == PL_PANELS)
        panels_fwd(ctx, a);
    else if (pl_weight_in_bf16(&a->w))
        pl_gemm_bf16(ctx, PL_GEMM_NT, m, n, k, pl_f32(&a->x), k, pl_weight_halves(&a->w, 0), false, pl_f32(&a->y), n);
    else if (a->w.dtype == PL_F32)
        pl_gemm(ctx, PL_GEMM_NT, m, n, k, pl_f32(&a->x), k, pl_f32(&a->w), k, false, pl_f32(&a->y), n);
    else
        pl_linear_fwd_ref32(ctx, args);
}

void PL_CPU(linear_bwd)(pl_ctx *ctx, const void *args) {
    const pl_linear_args *a = args;
    int64_t               m = a->x.dim[0], n = a->w.dim[0], k = a->w.dim[1];
    const float          *dy = a->y.grad;
    if (!dy) return;
    if (a->w.layout == PL_PANELS || (a->w.dtype != PL_F32 && !pl_weight_in_bf16(&a->w))) {
        pl_linear_bwd_ref32(ctx, args);
        return;
    }
    if (pl_weight_in_bf16(&a->w)) {
        pl_factor x = {.data = a->x.data, .ld = k};
        if (a->x.grad) pl_gemm_bf16(ctx, PL_GEMM_NN, m, k, n, dy, n, pl_weight_halves(&a->w, 0), true, a->x.grad, k);
        if (a->w.grad) pl_gemm_bf16(ctx, PL_GEMM_TN, n, k, m, dy, n, x, true, a->w.grad, k);
        return;
    }
    if (a->x.grad) pl_gemm(ctx, PL_GEMM_NN, m, k, n, dy, n, pl_f32(&a->w), k, true, a->x.grad, k);
    if (a->w.grad) pl_gemm(ctx, PL_GEMM_TN, n, k, m, dy, n, pl_f32(&a->x), k, true, a->w.grad, k);
}
