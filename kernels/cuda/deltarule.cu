// The gated delta rule and its convolution over sessions' states (kernels/op/deltarule.h): rows one after another,
// value heads and their columns side by side.
//
//   shortconv  A block takes CHANNELS channels of a session, a warp one row at a time. The window moves on behind a
//              barrier, after all rows have read it.
//   deltarule  A block takes some columns of a session's value head. PARTS lanes of a warp hold a column in registers
//              while rows continue one state; states to which a tree's walk returns lie in shared memory. Rows are
//              staged there too, q and k scaled and the decay computed; within a stage no thread waits for others.
//   replay     The same update with the kept rows' values, in all layers.
//
// A row's bits depend on its path and dk. The host lists sessions and the order of rows; grids depend on shapes alone.
// Predicted for an H100 (3.1 TB/s) and 24 layers with 32 value heads of 128, a 4B model's: one row reads and writes 105
// MB of states, 34 us beside 2.7 ms for 8.4 GB of weights; 512 rows of a prompt move 1.4 GB, 0.5 ms, but take 24 x 512
// updates of some 0.35 us, 4.3 ms beside 7 ms of products.
#include "kernels/cuda/launch.cuh"
extern "C" {
#include "kernels/op/deltarule.h"
}

constexpr int SESSIONS = 32; // most sessions side by side; others follow in turns

// The sessions of a forward, for kernels: their number n, then the first row of each, then the number of rows.
static const int32_t *list_sessions(const pl_kvrow *row, int64_t rows, int32_t *to) {
    int32_t n = 0;
    for (int64_t m = 0; m < rows; m++)
        if (m == 0 || row[m].k != row[m - 1].k) to[1 + n++] = (int32_t)m;
    to[0] = n;
    to[1 + n] = (int32_t)rows;
    return to;
}
static int32_t *sessions_room(pl_ctx *ctx, int64_t rows) {
    return (int32_t *)pl_ctx_bytes(ctx, (size_t)(rows + 2) * sizeof(int32_t));
}
static int64_t side_by_side(int64_t rows) {
    return rows < SESSIONS ? rows : SESSIONS;
}

static __device__ __forceinline__ bool is_kept(const pl_kvrow &r) {
    return r.path && r.n_path > 1;
}
static __device__ __forceinline__ float *kept_of(const pl_kvrow &r, int64_t elements) {
    return (float *)r.v + (r.slot - r.n_ctx) * elements;
}

// ---- convolution ----------------------------------------------------------------------------------------------------

constexpr int CHANNELS = PL_WARP; // of a block
constexpr int CONV_WARPS = 16;    // most of a block

struct conv {
    const pl_kvrow *row;
    const int32_t  *sessions, *parent;
    float          *y;
    const float    *x, *w;
    int64_t         channels, window, kept, taps; // window: a state's element at which it begins
};

// Takes the inputs of a channel at row m and 1, 2, ... positions before it.
static __device__ __forceinline__ void take_inputs(float v[PL_GDN_TAPS], const conv &a, const float *window, int m,
                                                   int64_t c) {
    int before = 0; // positions before this forward
#pragma unroll
    for (int b = 0; b < PL_GDN_TAPS; b++) {
        if (b >= a.taps) break;
        v[b] = before == 0 ? a.x[m * a.channels + c] : window ? window[(a.taps - 1 - before) * a.channels + c] : 0;
        const int up = before == 0 ? a.parent[m] : -1;
        if (up < 0)
            before++;
        else
            m = up;
    }
}

static __device__ __forceinline__ void convolve(const conv &a, const float *window, int m, int64_t c) {
    const pl_kvrow &r = a.row[m];
    const float    *w = a.w + c * a.taps;
    float           v[PL_GDN_TAPS], sum = 0;
    take_inputs(v, a, window, m, c);
#pragma unroll
    for (int b = PL_GDN_TAPS - 1; b >= 0; b--)
        if (b < a.taps) sum = fmaf(w[a.taps - 1 - b], v[b], sum);
    a.y[m * a.channels + c] = sum / (1 + expf(-sum));
    if (is_kept(r)) kept_of(r, a.kept)[c] = v[0];
}

// Moves a session's window on by its rows, of a tree by the root.
static __device__ __forceinline__ void push_inputs(const conv &a, const float *before, int first, int end, int64_t c) {
    const pl_kvrow &r = a.row[first];
    float          *window = (float *)r.k + a.window, v[PL_GDN_TAPS];
    take_inputs(v, a, before, r.path ? first : end - 1, c);
#pragma unroll
    for (int b = 0; b < PL_GDN_TAPS - 1; b++)
        if (b < a.taps - 1) window[(a.taps - 2 - b) * a.channels + c] = v[b];
}

static __global__ void __launch_bounds__(CONV_WARPS *PL_WARP) shortconv_kernel(conv a) {
    pl_previous_done();
    const int     warp = (int)threadIdx.x / PL_WARP, warps = (int)blockDim.x / PL_WARP;
    const int64_t c = (int64_t)blockIdx.x * CHANNELS + threadIdx.x % PL_WARP;
    for (int s = (int)blockIdx.y; s < a.sessions[0]; s += (int)gridDim.y) {
        const int       first = a.sessions[1 + s], end = a.sessions[2 + s];
        const pl_kvrow &r = a.row[first];
        const float    *window = r.n_ctx > 0 ? (const float *)r.k + a.window : NULL; // NULL: a text's first rows
        for (int m = first + warp; m < end && c < a.channels; m += warps)
            convolve(a, window, m, c);
        __syncthreads(); // the window has been read
        if (warp == 0 && c < a.channels) push_inputs(a, window, first, end, c);
    }
}

PL_CUDA_OP(shortconv_fwd) {
    const pl_shortconv_args *a = (const pl_shortconv_args *)args;
    const pl_gdn_shape      *s = &a->shape;
    const int64_t            rows = a->x.dim[0], C = a->x.dim[1];
    int32_t                 *sessions = sessions_room(ctx, rows);
    int32_t                 *parent = (int32_t *)pl_ctx_bytes(ctx, (size_t)rows * sizeof *parent);
    PL_OP_SKIP_IF_MEASURING(ctx);
    pl_gdn_parents(a->row, rows, parent);
    const conv c = {pl_index(ctx, a->row, rows),
                    pl_index(ctx, list_sessions(a->row, rows, sessions), rows + 2),
                    pl_index(ctx, (const int32_t *)parent, rows),
                    pl_f32(&a->y),
                    pl_f32(&a->x),
                    pl_f32(&a->w),
                    C,
                    (int64_t)s->nv * s->dk * s->dv,
                    pl_gdn_kept(s),
                    s->taps};
    PL_LAUNCH_EARLY(ctx, "shortconv", shortconv_kernel, pl_grid(pl_ceil_div(C, CHANNELS), side_by_side(rows)),
                    (rows > CONV_WARPS ? CONV_WARPS
                     : rows > 0        ? (int)rows
                                       : 1) *
                        PL_WARP,
                    c);
}

// ---- updates of a state ---------------------------------------------------------------------------------------------

constexpr int                      PER = 32; // elements of a column that a lane holds
constexpr int                      MOST_THREADS = 128;
template <int PARTS> constexpr int width_of = PARTS *PER;                                // largest dk
template <int PARTS> constexpr int                   staged_of = 2048 / width_of<PARTS>; // rows of a stage
template <int PARTS> constexpr int                   wide_of = PL_WARP / PARTS;          // columns of a warp
// A staged row: decay and rate, k, v of the block's columns, and (if outputs are wanted) q.
constexpr int                                        RATES = 4;

struct heads {
    int64_t state, kept, channels; // elements of a state, of a kept row, of its inputs
    int     nk, nv, dk, dv;
    int     columns, blocks; // columns of a block, blocks of a head
    int     stride, query;   // of staged rows; where q begins in them
};
static_assert(sizeof(heads) == 3 * 8 + 8 * 4, "no padding: launches are compared by their bytes");

// A thread's place: its column, and which part of it.
struct place {
    int head, key, block, local, column, part;
};
template <int PARTS> static __device__ __forceinline__ place place_of(const heads &h) {
    const int lane = (int)threadIdx.x % PL_WARP, warp = (int)threadIdx.x / PL_WARP;
    place     p;
    p.head = (int)blockIdx.x / h.blocks, p.block = (int)blockIdx.x % h.blocks;
    p.key = p.head / (h.nv / h.nk);
    p.local = warp * wide_of<PARTS> + lane % wide_of<PARTS>, p.part = lane / wide_of<PARTS>;
    p.column = p.block * h.columns + p.local;
    return p;
}

// Returns the row of the state that is element e of a part: four in turn for each part, so that lanes read staged keys
// without conflicts.
template <int PARTS> static __device__ __forceinline__ int element_of(int part, int e) {
    return e / 4 * 4 * PARTS + part * 4 + e % 4;
}
// Loads a thread's elements of a state; NULL: zeros.
template <int PARTS>
static __device__ __forceinline__ void load_state(float (&S)[PER], const float *state, const heads &h, const place &p) {
    const bool    there = state && p.column < h.dv;
    const int64_t from = (int64_t)p.head * h.dk * h.dv + p.column;
#pragma unroll
    for (int e = 0; e < PER; e++) {
        const int i = element_of<PARTS>(p.part, e);
        S[e] = there && i < h.dk ? state[from + (int64_t)i * h.dv] : 0;
    }
}
template <int PARTS>
static __device__ __forceinline__ void store_state(float *state, const float (&S)[PER], const heads &h,
                                                   const place &p) {
    const int64_t to = (int64_t)p.head * h.dk * h.dv + p.column;
#pragma unroll
    for (int e = 0; e < PER; e++) {
        const int i = element_of<PARTS>(p.part, e);
        if (i < h.dk && p.column < h.dv) state[to + (int64_t)i * h.dv] = S[e];
    }
}

// Sums the parts of a column; each gets the result.
template <int PARTS> static __device__ __forceinline__ float sum_parts(float v) {
#pragma unroll
    for (int s = PL_WARP / 2; s >= wide_of<PARTS>; s >>= 1)
        v += __shfl_xor_sync(PL_FULL, v, s);
    return v;
}

// Applies a staged row; returns its output. Products and sums are fused by the source alone, so that a replayed row
// gives the bits of a computed one.
template <int PARTS, bool OUTPUT>
static __device__ __forceinline__ float update(float (&S)[PER], const float *row, const heads &h, const place &p) {
    const float4 *k = (const float4 *)(row + RATES) + p.part, *q = (const float4 *)(row + h.query) + p.part;
    const float   decay = row[0];
    float         u[4] = {}, o[4] = {};
#pragma unroll
    for (int e = 0; e < PER; e += 4) {
        const float4 key = k[e / 4 * PARTS];
        S[e] *= decay, S[e + 1] *= decay, S[e + 2] *= decay, S[e + 3] *= decay;
        u[0] = fmaf(key.x, S[e], u[0]), u[1] = fmaf(key.y, S[e + 1], u[1]);
        u[2] = fmaf(key.z, S[e + 2], u[2]), u[3] = fmaf(key.w, S[e + 3], u[3]);
    }
    const float change =
        row[1] * (row[RATES + width_of<PARTS> + p.local] - sum_parts<PARTS>((u[0] + u[1]) + (u[2] + u[3])));
#pragma unroll
    for (int e = 0; e < PER; e += 4) {
        const float4 key = k[e / 4 * PARTS];
        S[e] = fmaf(key.x, change, S[e]), S[e + 1] = fmaf(key.y, change, S[e + 1]);
        S[e + 2] = fmaf(key.z, change, S[e + 2]), S[e + 3] = fmaf(key.w, change, S[e + 3]);
        if constexpr (OUTPUT) {
            const float4 query = q[e / 4 * PARTS];
            o[0] = fmaf(query.x, S[e], o[0]), o[1] = fmaf(query.y, S[e + 1], o[1]);
            o[2] = fmaf(query.z, S[e + 2], o[2]), o[3] = fmaf(query.w, S[e + 3], o[3]);
        }
    }
    return OUTPUT ? sum_parts<PARTS>((o[0] + o[1]) + (o[2] + o[3])) : 0;
}

// ---- the rule -------------------------------------------------------------------------------------------------------

struct rule {
    const pl_kvrow    *row;
    const int32_t     *sessions;
    const pl_gdn_step *step;
    float             *o;
    const float       *x, *gates, *a_log, *dt;
    heads              h;
};

// to = x scale / sqrt(sum x^2 + eps), zeros behind n; by a warp. kept: a copy, or NULL.
template <int WIDTH>
static __device__ __forceinline__ void scale_to_unit(float *to, const float *x, int n, float scale, float *kept) {
    const int lane = (int)threadIdx.x % PL_WARP;
    float     v[WIDTH / PL_WARP], square = 0;
#pragma unroll
    for (int e = 0; e < WIDTH / PL_WARP; e++) {
        const int i = e * PL_WARP + lane;
        v[e] = i < n ? x[i] : 0;
        square = fmaf(v[e], v[e], square);
    }
    const float by = scale / sqrtf(pl_warp_sum(square) + (float)PL_GDN_L2_EPS);
#pragma unroll
    for (int e = 0; e < WIDTH / PL_WARP; e++) {
        const int i = e * PL_WARP + lane;
        to[i] = v[e] * by;
        if (kept && i < n) kept[i] = to[i];
    }
}

static __device__ __forceinline__ float softplus(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

// Stages row m, by a warp, and keeps it if it is a tree's.
template <int PARTS> static __device__ __forceinline__ void stage_row(float *to, const rule &a, const place &p, int m) {
    const heads   &h = a.h;
    const pl_kvrow r = a.row[m];
    const int      lane = (int)threadIdx.x % PL_WARP;
    const float   *q = a.x + m * h.channels + (int64_t)p.key * h.dk, *k = q + (int64_t)h.nk * h.dk;
    const float   *v = a.x + m * h.channels + 2 * (int64_t)h.nk * h.dk + (int64_t)p.head * h.dv;
    float         *kept = is_kept(r) ? kept_of(r, h.kept) + h.channels : NULL;
    const bool     keeps_key = kept && p.block == 0 && p.head % (h.nv / h.nk) == 0;
    scale_to_unit<width_of<PARTS>>(to + RATES, k, h.dk, 1, keeps_key ? kept + (int64_t)p.key * h.dk : NULL);
    scale_to_unit<width_of<PARTS>>(to + h.query, q, h.dk, 1 / sqrtf((float)h.dk), NULL);
    if (kept) kept += (int64_t)h.nk * h.dk;
    const int i = p.block * h.columns + lane; // a block has at most a warp's columns
    if (lane < h.columns) to[RATES + width_of<PARTS> + lane] = i < h.dv ? v[i] : 0;
    if (kept && lane < h.columns && i < h.dv) kept[(int64_t)p.head * h.dv + i] = v[i];
    if (lane > 0) return;
    const float *gates = a.gates + m * (int64_t)(2 * h.nv) + p.head;
    to[0] = expf(-expf(a.a_log[p.head]) * softplus(gates[h.nv] + a.dt[p.head]));
    to[1] = 1 / (1 + expf(-gates[0]));
    if (!kept || p.block > 0) return;
    kept += (int64_t)h.nv * h.dv + p.head;
    kept[0] = to[0], kept[h.nv] = to[1];
}

// A session's rows. The session's own state (PL_GDN_OWN) has the first place in shared memory, walks' others follow.
template <int PARTS>
static __device__ __forceinline__ void run_session(const rule &a, const place &p, float *staged, float *states,
                                                   int first, int end) {
    constexpr int   STAGED = staged_of<PARTS>;
    const int       warp = (int)threadIdx.x / PL_WARP, warps = (int)blockDim.x / PL_WARP;
    const pl_kvrow &r = a.row[first];
    float           S[PER];
    int             held = PL_GDN_OWN;
    auto at = [&](int state, int e) -> float & { return states[((state + 1) * PER + e) * blockDim.x + threadIdx.x]; };
    load_state<PARTS>(S, r.n_ctx > 0 ? (const float *)r.k : NULL, a.h, p);
    for (int i = first; i < end; i++) {
        if ((i - first) % STAGED == 0) {
            __syncthreads(); // the stage before has been read
            for (int k = i + warp; k < end && k < i + STAGED; k += warps)
                stage_row<PARTS>(staged + (k - i) * a.h.stride, a, p, a.step[k].row);
            __syncthreads();
        }
        const pl_gdn_step step = a.step[i], next = i + 1 < end ? a.step[i + 1] : pl_gdn_step{-1, PL_GDN_OWN, 0};
        if (step.from != held) {
#pragma unroll
            for (int e = 0; e < PER; e++)
                S[e] = at(step.from, e);
        }
        const float o = update<PARTS, true>(S, staged + (i - first) % STAGED * a.h.stride, a.h, p);
        if (p.part == 0 && p.column < a.h.dv) a.o[(step.row * (int64_t)a.h.nv + p.head) * a.h.dv + p.column] = o;
        held = step.to;
        if (held == PL_GDN_OWN && next.to != PL_GDN_OWN) store_state<PARTS>((float *)r.k, S, a.h, p);
        if (next.row >= 0 && next.from == held && next.to != held) { // later rows may continue it, too
#pragma unroll
            for (int e = 0; e < PER; e++)
                at(held, e) = S[e];
        }
    }
}

template <int PARTS> static __global__ void __launch_bounds__(MOST_THREADS) deltarule_kernel(rule a) {
    pl_previous_done();
    float      *staged = (float *)pl_dynamic_shared(), *states = staged + staged_of<PARTS> * a.h.stride;
    const place p = place_of<PARTS>(a.h);
    for (int s = (int)blockIdx.y; s < a.sessions[0]; s += (int)gridDim.y)
        run_session<PARTS>(a, p, staged, states, a.sessions[1 + s], a.sessions[2 + s]);
}

// How a state is divided: `states` of it in shared memory.
struct division {
    heads  h;
    int    threads;
    size_t room;
};

template <int PARTS> static division divide(pl_ctx *ctx, const pl_gdn_shape *s, int states, bool outputs) {
    division d = {};
    heads   &h = d.h;
    h.state = pl_gdn_state(s), h.kept = pl_gdn_kept(s), h.channels = pl_gdn_channels(s);
    h.nk = s->nk, h.nv = s->nv, h.dk = s->dk, h.dv = s->dv;
    for (h.columns = MOST_THREADS / PARTS;; h.columns /= 2) {
        h.query = RATES + width_of<PARTS> + (h.columns + 3) / 4 * 4;
        h.stride = h.query + (outputs ? width_of<PARTS> : 0);
        d.threads = h.columns * PARTS;
        d.room = sizeof(float) * ((size_t)staged_of<PARTS> * h.stride + (size_t)states * PER * d.threads);
        const bool fits = d.room <= pl_cuda_state_of(ctx)->room, needed = h.columns / 2 < h.dv;
        if ((fits && needed) || h.columns == wide_of<PARTS>) break;
    }
    h.blocks = (int)pl_ceil_div(h.dv, h.columns);
    if (d.room > pl_cuda_state_of(ctx)->room)
        pl_ctx_fail(ctx, PL_E_UNSUPPORTED, "%s: op deltarule: heads of %d take %zu bytes of shared memory, it has %zu",
                    ctx->be->name, s->dk, d.room, pl_cuda_state_of(ctx)->room);
    return d;
}

// Returns the number of states that walks over trees of so many rows may return to, the session's own included; 0:
// there is no tree.
static int states_of(const pl_kvrow *row, int64_t rows, const pl_gdn_step *step) {
    bool tree = false;
    int  n = 2; // the session's own and a child's, and one for each halving
    for (int64_t m = 0; m < rows; m++)
        tree |= pl_gdn_keeps(&row[m]);
    for (int64_t left = rows; left > 1 && n <= PL_GDN_STATES; left /= 2)
        n++;
    for (int64_t i = 0; i < rows; i++)
        PL_CHECK(step[i].to + 1 < n, "a walk over %lld rows takes state %d", (long long)rows, step[i].to);
    return tree ? n : 0;
}

template <int PARTS> static void run_rule(pl_ctx *ctx, const pl_deltarule_args *a, rule r, int states) {
    const division d = divide<PARTS>(ctx, &a->shape, states, true);
    r.h = d.h;
    PL_LAUNCH_EARLY_ROOM(ctx, "deltarule", deltarule_kernel<PARTS>,
                         pl_grid((int64_t)d.h.nv * d.h.blocks, side_by_side(a->x.dim[0])), d.threads, d.room, r);
}

PL_CUDA_OP(deltarule_fwd) {
    const pl_deltarule_args *a = (const pl_deltarule_args *)args;
    const int64_t            rows = a->x.dim[0];
    int32_t                 *sessions = sessions_room(ctx, rows);
    pl_gdn_step             *step = (pl_gdn_step *)pl_ctx_bytes(ctx, (size_t)rows * sizeof *step);
    const size_t             mark = pl_arena_mark(&ctx->shared);
    int32_t                 *work = (int32_t *)pl_ctx_bytes(ctx, PL_GDN_WORK * (size_t)rows * sizeof *work);
    pl_arena_release(&ctx->shared, mark);
    PL_OP_SKIP_IF_MEASURING(ctx);
    pl_gdn_order(a->row, rows, step, work);
    rule r = {};
    r.row = pl_index(ctx, a->row, rows);
    r.sessions = pl_index(ctx, list_sessions(a->row, rows, sessions), rows + 2);
    r.step = pl_index(ctx, (const pl_gdn_step *)step, rows);
    r.o = pl_f32(&a->o), r.x = pl_f32(&a->x), r.gates = pl_f32(&a->gates);
    r.a_log = pl_f32(&a->a_log), r.dt = pl_f32(&a->dt);
    const int states = states_of(a->row, rows, step);
    if (a->shape.dk <= width_of<4>)
        run_rule<4>(ctx, a, r, states);
    else
        run_rule<16>(ctx, a, r, states);
}

// ---- replay ---------------------------------------------------------------------------------------------------------

struct replayed {
    float         *state;
    const float   *kept;
    const int32_t *rows; // their number, then their indices
    int64_t        pitch, taps;
    heads          h;
};

// Stages a kept row, by a warp.
template <int PARTS>
static __device__ __forceinline__ void stage_kept(float *to, const float *kept, const heads &h, const place &p) {
    const int    lane = (int)threadIdx.x % PL_WARP, i = p.block * h.columns + lane;
    const float *k = kept + h.channels + (int64_t)p.key * h.dk, *values = kept + h.channels + (int64_t)h.nk * h.dk;
    const float *rates = values + (int64_t)h.nv * h.dv;
#pragma unroll
    for (int e = 0; e < width_of<PARTS>; e += PL_WARP)
        to[RATES + e + lane] = e + lane < h.dk ? k[e + lane] : 0;
    if (lane < h.columns) to[RATES + width_of<PARTS> + lane] = i < h.dv ? values[(int64_t)p.head * h.dv + i] : 0;
    if (lane < 2) to[lane] = rates[lane * h.nv + p.head];
}

// Moves a channel's window on. Ascending, no place is written before it is read.
static __device__ __forceinline__ void push_kept(const replayed &a, float *window, const float *kept, int64_t c) {
    const int n = a.rows[0], before = (int)a.taps - 1;
#pragma unroll
    for (int t = 0; t < PL_GDN_TAPS - 1; t++) {
        if (t >= before) break;
        const int from = n + t;
        window[t * a.h.channels + c] =
            from < before ? window[from * a.h.channels + c] : kept[a.rows[1 + from - before] * a.h.kept + c];
    }
}

template <int PARTS> static __global__ void __launch_bounds__(MOST_THREADS) replay_kernel(replayed a) {
    pl_previous_done();
    constexpr int STAGED = staged_of<PARTS>;
    float        *staged = (float *)pl_dynamic_shared(), *state = a.state + blockIdx.y * a.h.state, S[PER];
    const float  *kept = a.kept + blockIdx.y * a.pitch;
    const int     n = a.rows[0], warp = (int)threadIdx.x / PL_WARP, warps = (int)blockDim.x / PL_WARP;
    const int     others = (int)blockIdx.x - a.h.nv * a.h.blocks;
    if (n == 0) return;
    if (others >= 0) { // a block of channels
        const int64_t c = (int64_t)others * blockDim.x + threadIdx.x;
        if (c < a.h.channels) push_kept(a, state + (int64_t)a.h.nv * a.h.dk * a.h.dv, kept, c);
        return;
    }
    const place p = place_of<PARTS>(a.h);
    load_state<PARTS>(S, state, a.h, p);
    for (int i = 0; i < n; i++) {
        if (i % STAGED == 0) {
            __syncthreads(); // the stage before has been read
            for (int k = i + warp; k < n && k < i + STAGED; k += warps)
                stage_kept<PARTS>(staged + (k - i) * a.h.stride, kept + a.rows[1 + k] * a.h.kept, a.h, p);
            __syncthreads();
        }
        update<PARTS, false>(S, staged + i % STAGED * a.h.stride, a.h, p);
    }
    store_state<PARTS>(state, S, a.h, p);
}

template <int PARTS> static void run_replay(pl_ctx *ctx, const pl_replay_args *a, const int32_t *rows) {
    const division d = divide<PARTS>(ctx, &a->shape, 0, false);
    const replayed r = {(float *)a->state, (const float *)a->kept, rows, a->pitch, a->shape.taps, d.h};
    const int64_t  blocks = (int64_t)d.h.nv * d.h.blocks + pl_ceil_div(d.h.channels, d.threads);
    PL_LAUNCH_EARLY_ROOM(ctx, "replay", replay_kernel<PARTS>, pl_grid(blocks, a->layers), d.threads, d.room, r);
}

PL_CUDA_OP(replay_fwd) {
    const pl_replay_args *a = (const pl_replay_args *)args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    const int32_t *rows = pl_index(ctx, a->rows, 1 + a->most);
    if (a->shape.dk <= width_of<4>)
        run_replay<4>(ctx, a, rows);
    else
        run_replay<16>(ctx, a, rows);
}
