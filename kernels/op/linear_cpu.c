// linear on the cpu backends: row-major weights (training) through the GEMM, packed weights (inference) here.
//
// Packed: kernels/cpu/panels.h has the computation of a pass; outputs may be combined freely. Few rows take one panel
// at a time: its weights are then one sequential stream, the fastest for caches (measured on Zen 5 at 30 MB of bf16,
// one thread: 55 GB/s against 40 for four panels interleaved).
//   rows of one tile  weights stream through once, start to end
//   more rows         GROUP panels by K_CHUNK at a time stay in L2 for all tiles of a block of rows; between chunks the
//                     sums stay in y, which changes no bit
//   a matrix unit     longer chunks, as moving sums to memory and back costs it as much as products; meanwhile the next
//                     chunk is prefetched. Sums have their own memory, since rows of y lie powers of two apart and
//                     share a few sets of a cache
// With a gate (gatedlinear) sums of a group of panels have their own memory too, in the thread's caches, and end there:
// a panel has the gate and up of its outputs, so that no sum goes to another core. Few rows end many panels at a time,
// as the stream of weights waits meanwhile.
#include "kernels/base/probe.h"
#include "kernels/codes.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pairs.h"
#include "kernels/op/linear.h"
#include "kernels/op/swiglu_cpu.h"
#include "kernels/op/trail.h"

void PL_CPU(linear_fwd)(pl_ctx *ctx, const void *args);
void PL_CPU(linear_bwd)(pl_ctx *ctx, const void *args);
void PL_CPU(gatedlinear_fwd)(pl_ctx *ctx, const void *args);
void pl_linear_fwd_ref32(pl_ctx *ctx, const void *args);
void pl_linear_bwd_ref32(pl_ctx *ctx, const void *args);

enum {
    ROWS_MAX = 96,      // rows of a block in fp32: its x chunk stays in L2 (bf16: PL_ROWS_BLOCK)
    K_CHUNK = 512,      // GROUP * K_CHUNK * 256 bytes of fp32 weights: 256 KiB
    K_CHUNK_BF16 = 768, // 192 KiB of weights beside 96 rows of x, 288 KiB
    GROUP = PL_PASS_PANELS,
    SMALL = 30000,      // multiply-adds below which a parallel region costs more than it saves
    TILES_WHOLE = 1024, // (a matrix unit) largest k for which a panel is taken whole
    TILES_CHUNK = 512,  // and the chunk of it for a longer one
    TILES_GROUP = 4,    // panels at a time where x is long and high
    TILES_LONG = 2048,  // k and rows above which x is that
    TILES_HIGH = 64,
    X_AHEAD = 16384,                   // bytes of x prefetched at the start of a part
    PACK_BIG = 65536,                  // floats of x above which packing it is worth a parallel region
    SHARED = 5,                        // tiles of x from which cached weights are prefetched too
    SUMS = 1 << 15,                    // floats of sums, of few rows, that pass a gate together
    OPEN = TILES_WHOLE * PL_PANEL * 2, // bytes of an opened chunk at most
    SOON = 1 << 18 // bytes of the next weight that a waiting thread prefetches: a part of its second-level cache
};

// ---- the product ----

// All by value: pointers would cost a worker further cache misses.
typedef struct job {
    pl_rows        x; // this block of rows
    float         *y; // [rows][ldy]
    int64_t        n, k, ldy;
    bool           gated; // y is the gate's output
    pl_gate        gate;
    bool           tiles; // a matrix unit takes more rows than one of its tiles
    // (with a gate) NULL, or the rows of the next product, in tiles like x's: packed there instead of y
    const pl_rows *left;
    const char    *w;
    size_t         panel_bytes;
    pl_code        code;
    const char    *next; // the weight that is likely read after this one, or NULL
    int64_t        next_panels;
    size_t         next_panel_bytes;
    bool           bf16;
    bool           far;  // w is likely in no cache
    float         *rest; // (a matrix unit, gates) sums of a thread, rest_floats for each
    int64_t        rest_floats;
    char          *open; // (codes, more rows than a tile) a thread's opened chunks of panels, open_bytes for each
    int64_t        open_bytes;
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

// Returns the start of a part of the next weight, NULL if there is none.
static const char *next_part(const job *j, int part, int parts, size_t *bytes) {
    if (!j->next) return NULL;
    long lo, hi;
    pl_range((long)j->next_panels, 1, part, parts, &lo, &hi);
    *bytes = (size_t)(hi - lo) * j->next_panel_bytes;
    return j->next + (size_t)lo * j->next_panel_bytes;
}

// Panel p of a weight in bf16 from column k0 on: of codes opened, in the i-th place of the thread's room.
static const char *open_chunk(const job *j, int part, int64_t i, int64_t p, int64_t k0, int64_t kc) {
    const char *panel = j->w + (size_t)p * j->panel_bytes;
    if (!j->code) return panel + k0 * PL_PANEL * 2;
    char *room = j->open + part * j->open_bytes + i * OPEN;
    pl_codes_open(j->code, panel + (size_t)(k0 / PL_CODE_BLOCK) * pl_code_block_bytes(j->code), kc, room);
    return room;
}

// ---- the end ----

enum { GATED_LD = GROUP * PL_PANEL }; // row stride of sums before a gate: panels of a pass are adjacent

// Returns the sums of the group's i-th panel.
static float *gated_sums(const job *j, float *rest, int64_t i) {
    return rest + i / GROUP * j->x.rows * GATED_LD + i % GROUP * PL_PANEL;
}

// Applies the gate to panel p's sums for the rows of tiles t0 .. t1 - 1, in the thread's own mode for denormals. sums:
// row 0's. The result replaces them, or is packed.
static void end_panel(const job *j, uint64_t mode, float *sums, int64_t ld, int64_t t0, int64_t t1, int64_t p) {
    const int64_t at = p * PL_HALF_PANEL, cols = min64(PL_HALF_PANEL, j->ldy - at);
    const int64_t r0 = pl_rows_first(&j->x, t0), rows = pl_rows_first(&j->x, t1) - r0;
    float        *from = sums + r0 * ld;
    if (j->bf16) pl_flush_end(mode);
    pl_gate_rows(j->gate, from, ld, from, ld, PL_HALF_PANEL, rows, cols);
    if (j->left) {
        pl_rows to = *j->left;
        to.ld = ld;
        for (int64_t t = t0; t < t1; t++)
            pl_rows_pack_some(&to, t, at, cols, sums);
    }
    if (j->bf16) pl_flush_denormals();
}

static void end_group(const job *j, uint64_t mode, float *rest, int64_t p0, int64_t p1) {
    for (int64_t p = p0; p < p1; p++) {
        float  *sums = gated_sums(j, rest, p - p0);
        int64_t cols = min64(PL_HALF_PANEL, j->ldy - p * PL_HALF_PANEL);
        end_panel(j, mode, sums, GATED_LD, 0, j->x.tiles, p);
        for (int64_t r = 0; r < j->x.rows && !j->left; r++)
            memcpy(j->y + r * j->ldy + p * PL_HALF_PANEL, sums + r * GATED_LD, (size_t)cols * sizeof *sums);
    }
}

// Returns the panels that a part takes at a time if their sums pass a gate.
static int64_t gated_group(bool once, int64_t rows) {
    int64_t some = SUMS / (rows * GATED_LD) * GROUP;
    return once && some > GROUP ? some : GROUP;
}

// ---- on a matrix unit, more rows than one of its tiles ----

static int64_t tiles_chunk(int64_t k) {
    return k <= TILES_WHOLE ? k : TILES_CHUNK;
}
static int64_t tiles_group(int64_t rows, int64_t k) {
    return rows > TILES_HIGH && k > TILES_LONG ? TILES_GROUP : 1;
}

// Prefetches tile t's share of the data that follows panel p's chunk at k0, which would otherwise stall the products.
static void share_next(pl_pass *a, const job *j, int64_t t, int64_t p, int64_t end, int64_t group, int64_t k0) {
    const int64_t step = PL_PANEL * 2, k1 = k0 + a->kc, next = k1 < j->k ? p : p + group;
    if ((!j->far && j->x.tiles < SHARED) || next >= end) return;
    const int64_t k = k1 < j->k ? k1 : 0, lines = min64(a->kc, j->k - k) * step / 64;
    const int64_t from = lines * t / j->x.tiles;
    a->soon = j->w + (size_t)next * a->panel_bytes + (size_t)(k * step + from * 64);
    a->soon_lines = lines * (t + 1) / j->x.tiles - from;
}

// If weights come from memory, lines of y are in no cache either: they are written without being read.
static void leave_rows(float *y, int64_t ldy, const float *from, int64_t rows, int64_t cols, bool past) {
    const bool lines = past && cols % PL_VL == 0 && ((uintptr_t)y & 63) == 0 && ldy % PL_VL == 0;
    for (int64_t r = 0; r < rows; r++, y += ldy, from += PL_PANEL) {
        if (!lines) memcpy(y, from, (size_t)cols * sizeof *y);
        for (int64_t i = 0; i < cols && lines; i += PL_VN_LANES)
            pl_vn_stream(y + i, pl_vn_loadu(from + i));
    }
}

static void multiply_chunk(const job *j, uint64_t mode, int part, int64_t p0, int64_t k0, int64_t end) {
    float        *rest = j->rest + part * j->rest_floats;
    const char   *w[TILES_GROUP];
    const int64_t kc = min64(tiles_chunk(j->k), j->k - k0);
    const int64_t group = tiles_group(j->x.rows, j->k);
    const bool    direct = kc == j->k && !j->far && !j->gated; // small products: y is in a cache
    const int64_t wide = j->gated ? PL_HALF_PANEL : PL_PANEL;  // columns of y per panel
    for (int64_t p = p0; p < min64(p0 + group, end); p++)
        w[p - p0] = open_chunk(j, part, p - p0, p, k0, kc);
    for (int64_t t = 0; t < j->x.tiles; t++) {
        int64_t r0 = pl_rows_first(&j->x, t), rows = pl_rows_first(&j->x, t + 1) - r0;
        for (int64_t p = p0; p < min64(p0 + group, end); p++) {
            float  *y = j->y + r0 * j->ldy + p * wide, *sums = rest + ((p - p0) * j->x.rows + r0) * PL_PANEL;
            pl_pass a = {.kc = kc,
                         .x = pl_rows_at(&j->x, t, k0),
                         .among = j->x.tiles > 1,
                         .w = w[p - p0],
                         .panel_bytes = j->panel_bytes,
                         .y = direct ? y : sums,
                         .ldy = direct ? j->ldy : PL_PANEL,
                         .cols = j->gated ? PL_PANEL : min64(PL_PANEL, j->n - p * PL_PANEL),
                         .resume = k0 > 0,
                         .far = j->far && !j->code,
                         .here = j->code != PL_CODE_NONE};
            if (!j->code) share_next(&a, j, t, p, end, group, k0);
            pl_panels_pass(true, (int)rows, 1, &a);
            if (direct || k0 + kc < j->k) continue;
            if (j->gated) end_panel(j, mode, sums - r0 * PL_PANEL, PL_PANEL, t, t + 1, p);
            if (j->left) continue;
            leave_rows(y, j->ldy, sums, rows, min64(wide, j->ldy - p * wide), j->far);
        }
    }
}

static void tiles_part(void *arg, int part, int parts) {
    const job     j = *(const job *)arg;
    const int64_t group = tiles_group(j.x.rows, j.k), chunk = tiles_chunk(j.k);
    long          lo, hi;
    pl_range((long)ceil_div(j.n, PL_PANEL), 1, part, parts, &lo, &hi);
    for (int64_t p = lo; p < min64(lo + group, hi) && j.far && !j.code; p++)
        pl_soon(j.w + (size_t)p * j.panel_bytes, (size_t)(chunk * PL_PANEL * 2));
    uint64_t mode = pl_panels_begin(true);
    for (int64_t p0 = lo; p0 < hi; p0 += group)
        for (int64_t k0 = 0; k0 < j.k; k0 += chunk)
            multiply_chunk(&j, mode, part, p0, k0, hi);
    pl_panels_end(true, mode);
    pl_stream_end();
}

// ---- any other product ----

// Near-equal chunks of k: sums of many rows go to y and back between them.
static int64_t chunk_of(bool bf16, int64_t k) {
    int64_t chunks = ceil_div(k, bf16 ? K_CHUNK_BF16 : K_CHUNK);
    return ceil_div(ceil_div(k, chunks), PL_CODE_BLOCK) * PL_CODE_BLOCK;
}

static void panels_part(void *arg, int part, int parts) {
    const job   j = *(const job *)arg;
    size_t      after_bytes = 0;
    const char *after = next_part(&j, part, parts, &after_bytes);
    long        lo, hi;
    pl_range((long)ceil_div(j.n, PL_PANEL), 1, part, parts, &lo, &hi);
    size_t      step = PL_PANEL * (j.bf16 ? 2 : 4);
    bool        once = j.x.tiles == 1;
    int64_t     chunk = once ? j.k : chunk_of(j.bf16, j.k), group = j.gated ? gated_group(once, j.x.rows)
                                                                    : once  ? hi - lo
                                                                            : GROUP;
    int64_t     x_bytes = j.x.packed ? (int64_t)j.x.tile_bytes : j.x.rows * j.k * (int64_t)sizeof(float);
    const char *x = pl_rows_at(&j.x, 0, 0);
    float      *rest = j.rest + part * j.rest_floats;
    // In decoding another core has just written x: prefetches its lines together rather than one after the other.
    for (int64_t i = 0; i < min64(x_bytes, X_AHEAD) && once; i += 64)
        __builtin_prefetch(x + i);
    uint64_t mode = pl_panels_begin(j.bf16);
    for (int64_t p0 = lo; p0 < hi; p0 += group) {
        int64_t p1 = min64(p0 + group, hi);
        for (int64_t k0 = 0; k0 < j.k; k0 += chunk) {
            const char *opened[GROUP];
            const bool  open = j.code && !once;
            for (int64_t p = p0; p < p1 && open; p++)
                opened[p - p0] = open_chunk(&j, part, p - p0, p, k0, min64(chunk, j.k - k0));
            for (int64_t t = 0; t < j.x.tiles; t++) {
                int64_t r0 = pl_rows_first(&j.x, t), rows = pl_rows_first(&j.x, t + 1) - r0;
                for (int64_t p = p0, g; p < p1; p += g) {
                    g = rows == 1 || once || j.bf16 ? 1 : GROUP;
                    while (g > 1 && (g > p1 - p || g * rows > PL_MR_PANEL))
                        g /= 2;
                    pl_pass a = {.kc = min64(chunk, j.k - k0),
                                 .x = pl_rows_at(&j.x, t, k0),
                                 .among = j.x.tiles > 1,
                                 .w = open ? opened[p - p0] : j.w + (size_t)p * j.panel_bytes + (size_t)k0 * step,
                                 .panel_bytes = j.panel_bytes,
                                 .y = j.y + r0 * j.n + p * PL_PANEL,
                                 .ldy = j.n,
                                 .cols = min64(PL_PANEL * g, j.n - p * PL_PANEL),
                                 .resume = k0 > 0,
                                 .after = p + g == hi && once ? after : NULL,
                                 .far = j.far && !open,
                                 .here = open,
                                 .code = open ? PL_CODE_NONE : j.code};
                    if (j.gated) {
                        a.y = gated_sums(&j, rest, p - p0) + r0 * GATED_LD;
                        a.ldy = GATED_LD;
                        a.cols = PL_PANEL * g;
                    }
                    pl_panels_pass(j.bf16, (int)rows, (int)g, &a);
                }
            }
        }
        if (j.gated) end_group(&j, mode, rest, p0, p1);
    }
    pl_panels_end(j.bf16, mode);
    // The last of these panels has prefetched the first of those.
    if (once && !j.far && after_bytes > PL_PANELS_AHEAD && pl_fetch_ahead())
        pl_soon(after + PL_PANELS_AHEAD, (size_t)min64((int64_t)after_bytes, SOON) - PL_PANELS_AHEAD);
}

// Records that the weight is read now; finds how long ago it was last read, and which weight followed.
static void follow_trail(pl_trail *t, job *j, const pl_tensor *w) {
    j->far = pl_trail_read(t, w, pl_packed_bytes(w));
    const pl_tensor next = pl_trail_next(t);
    j->next = next.data;
    if (!next.data) return;
    j->next_panels = ceil_div(next.dim[0], PL_PANEL);
    j->next_panel_bytes = pl_packed_panel(&next);
}

// Sets up a product with w in blocks of up to `most` rows, and its scratch. gate: NULL, or the gate that follows.
static job product_of(pl_ctx *ctx, const pl_tensor *w, const pl_gate *gate, int64_t most) {
    int64_t n = w->dim[0], k = w->dim[1];
    job     j = {.n = n,
                 .k = k,
                 .ldy = gate ? n / 2 : n,
                 .w = w->data,
                 .bf16 = w->dtype == PL_BF16,
                 .panel_bytes = pl_packed_panel(w),
                 .code = w->code};
    if (gate) j.gate = *gate;
    j.gated = gate != NULL;
    j.tiles = j.bf16 && PL_TILE_ROWS_MOST > 0 && most > PL_TILE_ROWS;
    j.rest_floats = j.tiles ? most * PL_PANEL * tiles_group(most, k) : 0;
    if (gate) j.rest_floats += SUMS + most * GATED_LD;
    j.rest = pl_arena_alloc(&ctx->scratch, (size_t)(j.rest_floats * pl_pool_threads(ctx->pool)) * sizeof(float));
    if (!j.code) return j;
    j.open_bytes = OPEN * (PL_TILE_ROWS_MOST > 0 ? TILES_GROUP : GROUP); // for fewer rows than were measured too
    j.open = pl_arena_alloc(&ctx->scratch, (size_t)(j.open_bytes * pl_pool_threads(ctx->pool)));
    return j;
}

static void begin_rows(job *j, const float *x, int64_t rows, void *room) {
    pl_rows_begin(&j->x, j->bf16, x, rows, j->k, room);
    if (j->tiles) pl_rows_even(&j->x);
}

static void pack(pl_ctx *ctx, job *j) {
    if (j->x.rows * j->k >= PACK_BIG)
        pl_parallel(ctx->pool, pl_pool_threads(ctx->pool), pack_part, j);
    else
        pack_part(j, 0, 1);
}

static void multiply(pl_ctx *ctx, job *j) {
    const pl_part_fn part = j->tiles ? tiles_part : panels_part;
    if ((double)j->x.rows * (double)j->n * (double)j->k < SMALL)
        part(j, 0, 1);
    else
        pl_parallel(ctx->pool, pl_pool_threads(ctx->pool), part, j);
}

// Returns the largest block height. Scratch is for the highest block of any call that is no larger: 96 rows are one
// block of 96, 256 rows three of 86, and a step may have fewer rows than the measured one.
static int64_t block_most(bool bf16, int64_t m) {
    return min64(m, bf16 ? PL_ROWS_BLOCK : ROWS_MAX);
}

static void panels_fwd(pl_ctx *ctx, const pl_linear_args *a, const pl_gate *gate) {
    int64_t m = a->x.dim[0], k = a->w.dim[1];
    if (m == 0 || a->w.dim[0] == 0) return;
    const int64_t    most = block_most(a->w.dtype == PL_BF16, m), blocks = ceil_div(m, most);
    size_t           mark = pl_arena_mark(&ctx->scratch);
    _Alignas(64) job j = product_of(ctx, &a->w, gate, most);
    void            *packed = pl_arena_alloc(&ctx->scratch, pl_rows_bytes(j.bf16, most, k));
    if (!ctx->measuring) follow_trail(&ctx->trail, &j, &a->w);
    if (!ctx->measuring && k == 0) memset(a->y.data, 0, (size_t)(m * j.ldy) * sizeof(float));
    for (int64_t b = 0; b < blocks && !ctx->measuring && k > 0; b++) {
        int64_t r0 = m * b / blocks, rows = m * (b + 1) / blocks - r0;
        begin_rows(&j, pl_f32(&a->x) + r0 * k, rows, packed);
        j.y = pl_f32(&a->y) + r0 * j.ldy;
        pack(ctx, &j);
        multiply(ctx, &j);
    }
    pl_arena_release(&ctx->scratch, mark);
}

// Both products of a block, one after the other. Between them rows are packed by the thread that computes them, each
// thread's part of every row separately, and are never written unpacked.
static void mlp_fwd(pl_ctx *ctx, const pl_gatedlinear_args *a) {
    int64_t m = a->x.dim[0], k = a->w.dim[1], inside = a->down.dim[1], n = a->down.dim[0];
    if (m == 0 || n == 0) return;
    const int64_t    most = block_most(a->w.dtype == PL_BF16, m), blocks = ceil_div(m, most);
    size_t           mark = pl_arena_mark(&ctx->scratch);
    _Alignas(64) job up = product_of(ctx, &a->w, &a->gate, most);
    _Alignas(64) job down = product_of(ctx, &a->down, NULL, most);
    void            *packed = pl_arena_alloc(&ctx->scratch, pl_rows_bytes(up.bf16, most, k));
    void            *left = pl_arena_alloc(&ctx->scratch, pl_rows_bytes(up.bf16, most, inside));
    float           *row = pl_arena_alloc(&ctx->scratch, (size_t)inside * sizeof *row); // a single row in fp32
    const bool       nothing = k == 0 || inside == 0;
    if (!ctx->measuring && nothing) memset(a->y.data, 0, (size_t)(m * n) * sizeof(float));
    for (int64_t b = 0; b < blocks && !ctx->measuring && !nothing; b++) {
        int64_t r0 = m * b / blocks, rows = m * (b + 1) / blocks - r0;
        begin_rows(&up, pl_f32(&a->x) + r0 * k, rows, packed);
        begin_rows(&down, row, rows, left);
        up.left = down.x.packed ? &down.x : NULL;
        up.y = row;
        down.y = pl_f32(&a->y) + r0 * n;
        pack(ctx, &up);
        follow_trail(&ctx->trail, &up, &a->w);
        multiply(ctx, &up);
        follow_trail(&ctx->trail, &down, &a->down);
        multiply(ctx, &down);
    }
    pl_arena_release(&ctx->scratch, mark);
}

// ---- the op ----

void PL_CPU(linear_fwd)(pl_ctx *ctx, const void *args) {
    const pl_linear_args *a = args;
    int64_t               m = a->x.dim[0], n = a->w.dim[0], k = a->w.dim[1];
    if (a->w.layout == PL_PANELS)
        panels_fwd(ctx, a, NULL);
    else if (pl_weight_in_bf16(&a->w))
        pl_gemm_bf16(ctx, PL_GEMM_NT, m, n, k, pl_f32(&a->x), k, pl_weight_halves(&a->w, 0), false, pl_f32(&a->y), n);
    else if (a->w.dtype == PL_F32)
        pl_gemm(ctx, PL_GEMM_NT, m, n, k, pl_f32(&a->x), k, pl_f32(&a->w), k, false, pl_f32(&a->y), n);
    else
        pl_linear_fwd_ref32(ctx, args);
}

void PL_CPU(gatedlinear_fwd)(pl_ctx *ctx, const void *args) {
    const pl_gatedlinear_args *a = args;
    if (a->w.layout != PL_GATED)
        pl_gatedlinear_by_parts(ctx, a);
    else if (a->down.data)
        mlp_fwd(ctx, a);
    else
        panels_fwd(ctx, &(pl_linear_args){.x = a->x, .w = a->w, .y = a->y}, &a->gate);
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
