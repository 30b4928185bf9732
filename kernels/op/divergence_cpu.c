// Divergence in tiles. Skipped rows are left out first; the others are grouped by teacher row, ROWS teacher rows at a
// time. For each group the vocabulary is walked in tiles of PL_DIV_TILE ids: the teacher's tile is one product, and so
// is, in fp32, each block of up to STUDENTS rows against the same tile of W. The rest of a tile's work is a pass of
// exponentials over its logits (at most 8 MB of them: the last-level cache). divergence_cpu.h has each objective's work
// on a row's tile.
//
// Products in bf16 are so much faster that logits must not leave a core's cache: each thread multiplies a chunk of rows
// by the packed tile of W, and continues with its logits, in backward up to its share of dx. x is packed once for all
// tiles of a group, as rows (z = x W^T) and as columns (dW = dz^T x).
//
// Sums run online, with their maximum subtracted as it grows: within a tile in fp32 lanes, across tiles in double.
#include "kernels/op/divergence_cpu.h"
#include "kernels/tape.h"

// ---- scratch ----

static void *take(pl_ctx *ctx, int64_t count, int64_t each, size_t size) {
    return pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)(count > 0 ? count : 1), (size_t)each, size));
}

// One of gemm.h's products; b is fp32 if the numbers are.
static void product(const div_job *j, bool bf16, pl_gemm_kind kind, int64_t m, int64_t n, int64_t k, const float *x,
                    int64_t ldx, pl_factor b, bool accumulate, float *c, int64_t ldc) {
    if (bf16)
        pl_gemm_bf16(j->ctx, kind, m, n, k, x, ldx, b, accumulate, c, ldc);
    else
        pl_gemm(j->ctx, kind, m, n, k, x, ldx, b.data, b.ld, accumulate, c, ldc);
}

// Rows of a chunk: whole tiles of a product, and whole blocks of K where they are columns of dz^T.
static int64_t chunk_tiles(int64_t tiles, int threads) {
    int64_t least = 1;
    while (least * PL_ROWS_TILE % PL_PANEL_BLOCK != 0)
        least++;
    int64_t fit = CHUNK / (least * PL_ROWS_TILE), fair = tiles / (least * threads), most = fit < fair ? fit : fair;
    return least * (most > 1 ? most : 1);
}

static void take_packs(div_job *j, int64_t all) {
    pl_ctx *ctx = j->ctx;
    packs  *p = &j->p;
    int     threads = pl_pool_threads(ctx->pool);
    p->x_room = pl_arena_alloc(&ctx->scratch, pl_gemm_rows_bytes(all, j->d));
    p->w.panels = pl_arena_alloc(&ctx->scratch, pl_gemm_b_bytes(TILE, j->d));
    p->own_bytes = sizeof(float) * CHUNK_MOST * TILE + (j->backward ? pl_gemm_rows_bytes(CHUNK_MOST, TILE) : 0);
    p->own = pl_arena_alloc(&ctx->scratch, pl_size_mul((size_t)threads, p->own_bytes, 1));
    if (!j->backward) return;
    p->x_across.panels = pl_arena_alloc(&ctx->scratch, pl_gemm_b_bytes(j->d, all));
    p->w_across.panels = pl_arena_alloc(&ctx->scratch, pl_gemm_b_bytes(j->d, TILE));
    p->dz_room = pl_arena_alloc(&ctx->scratch, pl_gemm_rows_bytes(TILE, all));
}

static div_job start(pl_ctx *ctx, const pl_divergence_args *a, bool backward) {
    div_job j = {.a = a,
                 .ctx = ctx,
                 .o = &objectives[a->objective],
                 .taught = a->objective != PL_OBJ_LABEL,
                 .in_bf16 = pl_weight_in_bf16(&a->w),
                 .backward = backward,
                 .d = a->w.dim[1],
                 .Vd = a->w.dim[0]};
    int64_t all = a->x.dim[0], all_t = j.taught ? a->xt.dim[0] : 0;
    if (j.taught) {
        j.V = a->wt.dim[0];
        j.dt = a->wt.dim[1];
    }
    j.row = take(ctx, all, 1, sizeof(int32_t));
    j.teacher_of = take(ctx, all, 1, sizeof(int32_t));
    j.teacher_row = take(ctx, all_t, 1, sizeof(int32_t));
    j.number = take(ctx, all_t, 1, sizeof(int32_t));
    j.group_at = take(ctx, all_t / ROWS + 3, 1, sizeof(int64_t));
    j.x = take(ctx, all, j.d, sizeof(float));
    j.xt = take(ctx, all_t, j.dt, sizeof(float));
    if (backward) {
        j.dx = take(ctx, all, j.d, sizeof(float));
    } else {
        j.student = take(ctx, all, 1, sizeof(running));
        j.full = take(ctx, all_t, 1, sizeof(running));
        j.draft = take(ctx, all_t, 1, sizeof(running));
        j.cross = take(ctx, all, 1, sizeof(double));
        j.sums = take(ctx, all, SUMS, sizeof(double));
        j.fade = take(ctx, all_t, 1, sizeof(float));
        j.e = take(ctx, j.taught ? ROWS : 0, TILE, sizeof(float));
    }
    j.lse_p = take(ctx, all_t, 1, sizeof(float));
    j.lse_v = take(ctx, all_t, 1, sizeof(float));
    int64_t block = min64(all, STUDENTS);
    if (j.in_bf16)
        take_packs(&j, all);
    else
        j.z_place = take(ctx, block, TILE, sizeof(float));
    j.t_place = take(ctx, j.taught ? ROWS : 0, TILE, sizeof(float));
    j.kept_tile = (all + all_t) * TILE;
    const bool brief = j.in_bf16 && j.d < RECOMPUTE_BELOW;
    if (a->kept.rank > 0 && j.kept_tile > 0 && !brief) j.kept = a->kept.dim[0] / j.kept_tile;
    j.wide_t = take(ctx, j.taught ? TILE : 0, j.dt, sizeof(float));
    j.wide_s = take(ctx, a->w.dtype == PL_F32 || pl_weight_in_bf16(&a->w) ? 0 : TILE, j.d, sizeof(float));
    if (!ctx->measuring) {
        choose_rows(&j);
        double bytes = 4.0 * ((double)j.n * (double)j.d + (double)j.teachers * (double)j.dt);
        pl_parallel(ctx->pool, pl_cpu_parts(ctx, j.n, bytes), gather_part, &j);
        return j;
    }
    // The products' own scratch, at the largest shapes.
    pl_factor rows = {.ld = j.d};
    if (!j.in_bf16) product(&j, false, PL_GEMM_NT, block, TILE, j.d, NULL, j.d, rows, false, NULL, TILE);
    if (j.taught) {
        pl_factor of = {.ld = j.dt, .bf16 = pl_weight_in_bf16(&a->wt)};
        product(&j, of.bf16, PL_GEMM_NT, ROWS, TILE, j.dt, NULL, j.dt, of, false, NULL, TILE);
    }
    if (backward && !j.in_bf16) {
        product(&j, false, PL_GEMM_NN, block, j.d, TILE, NULL, TILE, rows, true, NULL, j.d);
        product(&j, false, PL_GEMM_TN, TILE, j.d, block, NULL, TILE, rows, true, NULL, j.d);
    }
    return j;
}

// ---- products ----

static void widen_part(void *arg, int part, int parts) {
    const div_job   *j = arg;
    const pl_tensor *w = j->from;
    int64_t          k = w->dim[1];
    bool             bf16 = pl_weight_in_bf16(w);
    const uint8_t   *data = bf16 ? pl_weight_halves(w, 0).data : w->data;
    size_t           row = (size_t)k * (bf16 ? sizeof(uint16_t) : pl_dtype_size(w->dtype));
    long             lo, hi;
    pl_range(j->cols, 1, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const uint8_t *src = data + (size_t)(j->ids ? j->ids[j->j0 + i] : j->j0 + i) * row;
        if (bf16)
            memcpy((uint8_t *)j->to + (size_t)i * row, src, row);
        else
            pl_to_f32(j->to + i * k, src, w->dtype, (size_t)k);
    }
}

// Returns the rows of w for the current tile, in bf16 or as floats: in place, or copied to `wide`.
static pl_factor weight_rows(div_job *j, const pl_tensor *w, const int32_t *ids, float *wide) {
    int64_t   k = w->dim[1], first = j->j0 * k;
    pl_factor f = {.data = wide, .ld = k, .bf16 = pl_weight_in_bf16(w)};
    if (f.bf16 && !ids) {
        f = pl_weight_halves(w, j->j0);
    } else if (w->dtype == PL_F32 && !ids && (uintptr_t)w->data % sizeof(float) == 0) {
        f.data = pl_f32(w) + first;
    } else {
        j->from = w;
        j->ids = ids;
        j->to = wide;
        pl_parallel(j->ctx->pool, pl_cpu_parts(j->ctx, j->cols, 4.0 * (double)(j->cols * k)), widen_part, j);
    }
    return f;
}

static void pad_columns(float *z, int64_t rows, int64_t cols) {
    int64_t end = ceil_div(cols, PL_VL) * PL_VL;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = cols; c < end; c++)
            z[i * TILE + c] = PAD;
}

static int parts_of(const div_job *j, int64_t rows) {
    return pl_cpu_parts(j->ctx, rows, EXP_FLOPS * (double)(rows * j->cols));
}

static void over_rows(div_job *j, int64_t rows, pl_part_fn fn) {
    pl_parallel(j->ctx->pool, parts_of(j, rows), fn, j);
}

static void cap_part(void *arg, int part, int parts) {
    const div_job *j = arg;
    pl_vf          cap = pl_vf_set1((float)j->a->teacher_cap);
    long           lo, hi;
    pl_range(j->tn, 1, part, parts, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        for (int64_t c = 0; c < j->cols; c += PL_VL) {
            float *t = j->t + r * TILE + c;
            pl_vf_store(t, pl_vf_mul(cap, pl_vf_tanh(pl_vf_div(pl_vf_load(t), cap))));
        }
}

// A walk over the draft ids for the first time, or again (the second walk, backward); or over all of the teacher's ids.
typedef enum walk_kind { WALK_FIRST, WALK_AGAIN, WALK_FULL } walk_kind;

// Returns the memory for this tile's kept logits, those of students and then of teachers; NULL: not kept.
static float *kept_rows(const div_job *j) {
    int64_t tile = j->j0 / TILE;
    return tile < j->kept ? pl_f32(&j->a->kept) + tile * j->kept_tile : NULL;
}

static void teacher_logits(div_job *j, const int32_t *ids, walk_kind walk) {
    float *kept = walk == WALK_FULL ? NULL : kept_rows(j);
    j->t = kept ? kept + (j->a->x.dim[0] + j->t0) * TILE : j->t_place;
    if (kept && walk == WALK_AGAIN) return;
    pl_factor w = weight_rows(j, &j->a->wt, ids, j->wide_t);
    product(j, w.bf16, PL_GEMM_NT, j->tn, j->cols, j->dt, j->xt + j->t0 * j->dt, j->dt, w, false, j->t, TILE);
    if (j->a->teacher_cap > 0) over_rows(j, j->tn, cap_part);
    pad_columns(j->t, j->tn, j->cols);
}

static void student_logits(div_job *j, pl_factor w, walk_kind walk) {
    float *kept = kept_rows(j);
    j->z = kept ? kept + j->s0 * TILE : j->z_place;
    if (kept && walk == WALK_AGAIN) return;
    product(j, false, PL_GEMM_NT, j->sn, j->cols, j->d, j->x + j->s0 * j->d, j->d, w, false, j->z, TILE);
    pad_columns(j->z, j->sn, j->cols);
}

static void each_part(void *arg, int part, int parts) {
    const div_job *j = arg;
    long           lo, hi;
    pl_range(j->sn, 1, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        j->each(j, j->s0 + i, j->z + i * TILE, j->backward ? j->z_place + i * TILE : NULL);
}

// ---- chunks of products in bf16 ----

static void pack_group_part(void *arg, int part, int parts) {
    const div_job *j = arg;
    long           lo, hi;
    pl_range((long)j->p.x.tiles, 1, part, parts, &lo, &hi);
    for (long t = lo; t < hi; t++)
        pl_rows_pack(&j->p.x, t);
    if (j->backward) pl_gemm_b_pack(&j->p.x_across, part, parts);
}

// Packs the rows of group g, all of them at once.
static void pack_group(div_job *j, int64_t g) {
    packs *p = &j->p;
    j->s0 = j->group_at[g];
    j->sn = j->group_at[g + 1] - j->s0;
    const float *x = j->x + j->s0 * j->d;
    pl_gemm_rows_begin(&p->x, x, j->d, false, j->sn, j->d, p->x_room);
    p->chunk = chunk_tiles(p->x.tiles, pl_pool_threads(j->ctx->pool));
    p->x_across.n = j->d;
    p->x_across.k = j->sn;
    p->x_across.from = (pl_factor){.data = x, .ld = j->d};
    pl_parallel(j->ctx->pool, pl_cpu_parts(j->ctx, j->sn, 4.0 * (double)(j->sn * j->d)), pack_group_part, j);
}

static void pack_tile_part(void *arg, int part, int parts) {
    const div_job *j = arg;
    pl_gemm_b_pack(&j->p.w, part, parts);
    if (j->backward) pl_gemm_b_pack(&j->p.w_across, part, parts);
}

// dz of a chunk, rows r0 .. r0 + rows - 1 of the group: their share of dx, and their columns of dz^T.
static void chunk_backward(const div_job *j, const float *dz, char *room, int64_t r0, int64_t rows) {
    const packs *p = &j->p;
    if (j->a->x.grad) {
        pl_rows of_dx;
        pl_gemm_rows_begin(&of_dx, dz, TILE, false, rows, j->cols, room);
        for (int64_t t = 0; t < of_dx.tiles; t++)
            pl_rows_pack(&of_dx, t);
        pl_gemm_rows(&of_dx, 0, of_dx.tiles, &p->w_across, 0, pl_gemm_panels(&p->w_across), true,
                     j->dx + (j->s0 + r0) * j->d, j->d);
    }
    for (int64_t t = 0; t < p->dz.tiles && j->a->w.grad; t++)
        pl_rows_pack_some(&p->dz, t, r0, rows, dz);
}

static void chunks_part(void *arg, int part, int parts) {
    const div_job *j = arg;
    const packs   *p = &j->p;
    float         *kept = kept_rows(j), *own = (float *)(void *)(p->own + (size_t)part * p->own_bytes);
    long           lo, hi;
    pl_range((long)p->x.tiles, (long)p->chunk, part, parts, &lo, &hi);
    for (int64_t t = lo, to; t < hi; t = to) {
        to = min64(t + p->chunk, hi);
        int64_t r0 = pl_rows_first(&p->x, t), rows = pl_rows_first(&p->x, to) - r0;
        float  *z = kept ? kept + (j->s0 + r0) * TILE : own;
        if (!kept || !j->again) {
            uint64_t mode = pl_panels_begin(true);
            pl_gemm_rows(&p->x, t, to, &p->w, 0, pl_gemm_panels(&p->w), false, z, TILE);
            pl_panels_end(true, mode);
            pad_columns(z, rows, j->cols);
        }
        for (int64_t i = 0; i < rows; i++)
            j->each(j, j->s0 + r0 + i, z + i * TILE, own + i * TILE);
        if (!j->backward) continue;
        uint64_t mode = pl_panels_begin(true);
        chunk_backward(j, own, (char *)(own + CHUNK_MOST * TILE), r0, rows);
        pl_panels_end(true, mode);
    }
}

// dW of the tile: dz^T in tiles of ids.
static void dw_part(void *arg, int part, int parts) {
    const div_job *j = arg;
    const packs   *p = &j->p;
    int            row_parts = (int)min64(parts, p->dz.tiles), col_parts = parts / row_parts;
    long           lo, hi, plo, phi;
    if (part >= row_parts * col_parts) return;
    pl_range((long)p->dz.tiles, 1, part / col_parts, row_parts, &lo, &hi);
    pl_range((long)pl_gemm_panels(&p->x_across), 1, part % col_parts, col_parts, &plo, &phi);
    uint64_t mode = pl_panels_begin(true);
    pl_gemm_rows(&p->dz, lo, hi, &p->x_across, plo, phi, true,
                 (float *)j->a->w.grad + (j->j0 + pl_rows_first(&p->dz, lo)) * j->d, j->d);
    pl_panels_end(true, mode);
}

// Runs the current tile against all rows of the group.
static void over_chunks(div_job *j, pl_factor w) {
    packs *p = &j->p;
    p->w = (pl_gemm_b){.along = true, .n = j->cols, .k = j->d, .from = w, .panels = p->w.panels};
    p->w_across = (pl_gemm_b){.n = j->d, .k = j->cols, .from = w, .panels = p->w_across.panels};
    if (j->backward) pl_gemm_rows_begin(&p->dz, NULL, TILE, true, j->cols, j->sn, p->dz_room);
    int parts = parts_of(j, j->sn);
    pl_parallel(j->ctx->pool, parts, pack_tile_part, j);
    pl_parallel(j->ctx->pool, parts, chunks_part, j);
    if (j->backward && j->a->w.grad) pl_parallel(j->ctx->pool, parts, dw_part, j);
}

// ---- walks over all students of the group ----

// For a block of rows in fp32, whose dz has replaced their logits.
static void gradients(div_job *j, pl_factor w) {
    pl_factor x = {.data = j->x + j->s0 * j->d, .ld = j->d};
    float    *dx = j->dx + j->s0 * j->d, *dw = j->a->w.grad;
    if (j->a->x.grad) product(j, false, PL_GEMM_NN, j->sn, j->d, j->cols, j->z_place, TILE, w, true, dx, j->d);
    if (dw) product(j, false, PL_GEMM_TN, j->cols, j->d, j->sn, j->z_place, TILE, x, true, dw + j->j0 * j->d, j->d);
}

// Runs `each` on every student's row of the current tile.
static void over_students(div_job *j, int64_t g, walk_kind walk, student_fn each) {
    pl_factor w = weight_rows(j, &j->a->w, NULL, j->wide_s);
    j->each = each;
    j->again = walk == WALK_AGAIN;
    if (j->in_bf16) {
        over_chunks(j, w);
        return;
    }
    for (j->s0 = j->group_at[g]; j->s0 < j->group_at[g + 1]; j->s0 += STUDENTS) {
        j->sn = min64(STUDENTS, j->group_at[g + 1] - j->s0);
        student_logits(j, w, walk);
        over_rows(j, j->sn, each_part);
        if (j->backward) gradients(j, w);
    }
}

// Walks: set the group, then each tile of ids [from, to), then each block of students of the group.
static void set_group(div_job *j, int64_t g) {
    j->t0 = g * ROWS;
    j->tn = min64(ROWS, j->teachers - j->t0);
}

static void set_tile(div_job *j, int64_t j0, int64_t to) {
    j->j0 = j0;
    j->cols = min64(TILE, to - j0);
}

// ---- forward ----

// Adds a tile's row to r; returns the factor for earlier sums.
PL_INLINE float raise_max(running *r, const float *z, int64_t j0, int64_t cols) {
    pl_vf   m0 = pl_vf_load(z), m1 = m0;
    int64_t c = PL_VL;
    for (; c + 2 * PL_VL <= cols; c += 2 * PL_VL) {
        m0 = pl_vf_max(m0, pl_vf_load(z + c));
        m1 = pl_vf_max(m1, pl_vf_load(z + c + PL_VL));
    }
    for (; c < cols; c += PL_VL)
        m0 = pl_vf_max(m0, pl_vf_load(z + c));
    float top = pl_vf_hmax(pl_vf_max(m0, m1));
    if (!(top > r->max)) return 1.0f;
    int64_t at = 0;
    while (at < cols - 1 && z[at] != top)
        at++;
    pl_vf fade = pl_vf_exp(pl_vf_set1(r->max - top));
    r->id = (int32_t)(j0 + at);
    r->max = top;
    r->sum *= (double)fade.p[0][0];
    return fade.p[0][0];
}

static void teacher_part(void *arg, int part, int parts) {
    const div_job *j = arg;
    long           lo, hi;
    pl_range(j->tn, 1, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        running     *r = &j->teacher_state[j->t0 + i];
        const float *t = j->t + i * TILE;
        float       *e = j->e + i * TILE;
        j->fade[j->t0 + i] = raise_max(r, t, j->j0, j->cols);
        pl_vf max = pl_vf_set1(r->max), sum = pl_vf_zero();
        for (int64_t c = 0; c < j->cols; c += PL_VL) {
            pl_vf p = pl_vf_exp(pl_vf_sub(pl_vf_load(t + c), max));
            sum = pl_vf_add(sum, p);
            if (j->keep_exp) pl_vf_store(e + c, p);
        }
        r->sum += (double)pl_vf_hsum(sum);
    }
}

static void student_first(const div_job *j, int64_t at, const float *z, float *dz) {
    (void)dz;
    int64_t  teacher = j->teacher_of[at];
    running *r = &j->student[at];
    tile_row row = {.cols = j->cols, .z = z};
    float    fade = raise_max(r, z, j->j0, j->cols);
    row.max = r->max;
    if (j->taught) {
        row.t = j->t + (teacher - j->t0) * TILE;
        row.e = j->e + (teacher - j->t0) * TILE;
        if (j->o->cross != CROSS_STUDENT) fade = j->fade[teacher];
    }
    // A label's logit, and that of the best draft id so far, are in one tile.
    int64_t id = (j->o->cross == CROSS_CHOICE ? j->draft[teacher].id
                  : j->taught                 ? -1
                                              : j->a->label[j->row[at]]) -
                 j->j0;
    double cross = 0.0;
    r->sum += (double)first_row(j->o->cross, &row, &cross);
    if (j->o->cross < CROSS_CHOICE)
        j->cross[at] = j->cross[at] * (double)fade + cross;
    else if (id >= 0 && id < j->cols)
        j->cross[at] = (double)z[id];
}

static double lse(const running *r) {
    return (double)r->max + log(r->sum);
}

// Turns the teacher's tile into log p or p, for rows that need both softmaxes.
static void teacher_softmax_part(void *arg, int part, int parts) {
    const div_job *j = arg;
    long           lo, hi;
    pl_range(j->tn, 1, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const float *t = j->t + i * TILE;
        float       *p = j->t_place + i * TILE;
        pl_vf        lse_t = pl_vf_set1(j->lse_p[j->t0 + i]);
        for (int64_t c = 0; c < j->cols; c += PL_VL) {
            pl_vf log_p = pl_vf_sub(pl_vf_load(t + c), lse_t);
            pl_vf_store(p + c, j->o->log_p ? log_p : pl_vf_exp(log_p));
        }
    }
}

static void teacher_softmax(div_job *j) {
    over_rows(j, j->tn, teacher_softmax_part);
    j->t = j->t_place;
}

static void student_second(const div_job *j, int64_t at, const float *z, float *dz) {
    (void)dz;
    int64_t  teacher = j->teacher_of[at];
    tile_row row = {.cols = j->cols,
                    .z = z,
                    .t = j->t + (teacher - j->t0) * TILE,
                    .lse = (float)lse(&j->student[at]),
                    .lse_v = j->lse_v[teacher],
                    .lost = j->lse_p[teacher] - j->lse_v[teacher],
                    .beta = j->a->js_beta};
    (j->o->second ? j->o->second : second_accept)(&row, j->sums + at * SUMS);
}

// One walk over the draft ids: the teacher's tile once, then every student of the group against it.
static void draft_walk(div_job *j, int64_t g, walk_kind walk) {
    set_group(j, g);
    if (j->in_bf16) pack_group(j, g);
    for (int64_t j0 = 0; j0 < j->Vd; j0 += TILE) {
        set_tile(j, j0, j->Vd);
        if (j->taught) {
            teacher_logits(j, j->a->d2t, walk);
            if (walk == WALK_FIRST)
                over_rows(j, j->tn, teacher_part);
            else if (j->o->second)
                teacher_softmax(j);
        }
        over_students(j, g, walk, walk == WALK_FIRST ? student_first : student_second);
    }
}

static void teacher_walk(div_job *j, int64_t g, int64_t from) {
    set_group(j, g);
    for (int64_t j0 = from; j0 < j->V; j0 += TILE) {
        set_tile(j, j0, j->V);
        teacher_logits(j, NULL, WALK_FULL);
        over_rows(j, j->tn, teacher_part);
    }
}

static void compute_fwd(div_job *j) {
    const running none = {.max = -INFINITY, .id = -1, .sum = 0.0};
    for (int64_t i = 0; i < j->n; i++) {
        j->student[i] = none;
        j->cross[i] = 0.0;
    }
    memset(j->sums, 0, (size_t)j->n * SUMS * sizeof(double));
    for (int64_t r = 0; r < j->teachers; r++)
        j->draft[r] = j->full[r] = none;
    for (int64_t g = 0; g < j->groups; g++) {
        j->teacher_state = j->draft;
        j->keep_exp = true;
        draft_walk(j, g, WALK_FIRST);
        if (!j->taught) continue;
        // Without d2t the draft ids are the first Vd target ids, so their sums are the start of the full ones.
        if (!j->a->d2t || !j->a->whole) memcpy(j->full + j->t0, j->draft + j->t0, (size_t)j->tn * sizeof(running));
        for (int64_t r = j->t0; r < j->t0 + j->tn && j->a->d2t && !j->a->whole; r++)
            j->full[r].id = j->a->d2t[j->full[r].id];
        j->teacher_state = j->full;
        j->keep_exp = false;
        if (j->a->whole) teacher_walk(j, g, j->a->d2t ? 0 : j->Vd);
        for (int64_t r = j->t0; r < j->t0 + j->tn; r++) {
            j->lse_v[r] = (float)lse(&j->full[r]);
            j->lse_p[r] = j->a->unmasked ? j->lse_v[r] : (float)lse(&j->draft[r]);
        }
        if (j->o->second || j->a->accept.data) draft_walk(j, g, WALK_AGAIN);
    }
}

// Returns true if the best of the draft ids is the teacher's choice over all.
static bool drafted(const div_job *j, int64_t t) {
    int32_t id = j->draft[t].id;
    return (j->a->d2t ? j->a->d2t[id] : id) == j->full[t].id;
}

// Returns the inputs of an objective's loss.
static row_end end_of(const div_job *j, int64_t i) {
    const running *s = &j->student[i];
    row_end        e = {.cross = j->cross[i],
                        .sum = s->sum,
                        .lse = lse(s),
                        .mass = 1.0,
                        .counts = true,
                        .sums = j->sums + i * SUMS,
                        .beta = j->a->js_beta,
                        .decay = j->a->lk_decay};
    if (!j->taught) return e;
    const running *draft = &j->draft[j->teacher_of[i]], *full = &j->full[j->teacher_of[i]];
    e.lse_p = lse(draft);
    e.norm = draft->sum;
    if (!j->a->unmasked) return e;
    e.mass = exp(lse(draft) - lse(full));
    e.lse_p = lse(full);
    e.norm = exp(lse(full) - (double)draft->max);
    e.counts = drafted(j, j->teacher_of[i]);
    return e;
}

static void write_outputs(const div_job *j) {
    const pl_divergence_args *a = j->a;
    int64_t                   all = a->x.dim[0];
    memset(a->loss.data, 0, (size_t)all * sizeof(float));
    memset(a->stat.data, 0, (size_t)all * 4 * sizeof(float));
    if (a->accept.data) memset(a->accept.data, 0, (size_t)all * sizeof(float));
    for (int64_t i = 0; i < all && a->student_argmax; i++)
        a->student_argmax[i] = -1;
    for (int64_t i = 0; i < j->n; i++) {
        int64_t row = j->row[i];
        row_end e = end_of(j, i);
        double  loss = j->o->loss(&e);
        if (!j->o->second) e.sums[KEPT] = loss; // for reverse KL's gradient
        pl_f32(&a->loss)[row] = (float)loss;
        if (a->accept.data) pl_f32(&a->accept)[row] = (float)(j->taught ? e.sums[ACCEPT] : exp(-loss));
        if (a->student_argmax) a->student_argmax[row] = j->student[i].id;
        float *stat = pl_f32(&a->stat) + row * 4;
        stat[0] = (float)e.lse;
        for (int k = 0; k < 3; k++)
            stat[1 + k] = (float)e.sums[KEPT + k];
    }
    if (!j->taught) return;
    memset(a->teacher_stat.data, 0, (size_t)a->xt.dim[0] * 4 * sizeof(float));
    for (int64_t r = 0; r < a->xt.dim[0] && a->teacher_argmax; r++)
        a->teacher_argmax[r] = -1;
    for (int64_t r = 0; r < j->teachers; r++) {
        float *stat = pl_f32(&a->teacher_stat) + (int64_t)j->teacher_row[r] * 4;
        stat[0] = j->full[r].max;
        stat[1] = (float)lse(&j->full[r]);
        stat[2] = (float)lse(&j->draft[r]);
        stat[3] = (float)(drafted(j, r) ? 1 + j->draft[r].id : -1 - j->draft[r].id);
        if (a->teacher_argmax) a->teacher_argmax[j->teacher_row[r]] = j->full[r].id;
    }
}

void PL_CPU(divergence_fwd)(pl_ctx *ctx, const void *args) {
    size_t  mark = pl_arena_mark(&ctx->scratch);
    div_job j = start(ctx, args, false);
    if (!ctx->measuring) {
        compute_fwd(&j);
        write_outputs(&j);
    }
    pl_arena_release(&ctx->scratch, mark);
}

// ---- backward ----

// weight * dz of the tile's logits.
static void student_dz(const div_job *j, int64_t at, const float *z, float *dz) {
    int64_t      row = j->row[at], teacher = j->teacher_of[at];
    const float *stat = pl_f32(&j->a->stat) + row * 4;
    dz_row       r = {.cols = j->cols,
                      .z = z,
                      .dz = dz,
                      .weight = j->a->weight[row],
                      .lse = stat[0],
                      .mass = 1.0f,
                      .kept = stat + 1,
                      .choice = -1,
                      .counts = true,
                      .beta = j->a->js_beta,
                      .decay = j->a->lk_decay};
    if (j->taught) {
        const float *of = pl_f32(&j->a->teacher_stat) + (int64_t)j->teacher_row[teacher] * 4;
        r.t = j->t + (teacher - j->t0) * TILE;
        r.choice = (int64_t)fabsf(of[3]) - 1 - j->j0;
        if (j->a->unmasked) {
            r.mass = expf(of[2] - of[1]);
            r.counts = of[3] > 0.0f;
        }
    } else {
        r.choice = j->a->label[row] - j->j0;
    }
    j->o->dz(&r);
}

static void scatter_part(void *arg, int part, int parts) {
    const div_job *j = arg;
    float         *grad = j->a->x.grad;
    long           lo, hi;
    pl_range(j->n, 1, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        for (int64_t c = 0; c < j->d; c++)
            grad[j->row[i] * j->d + c] += j->dx[i * j->d + c];
}

static void compute_bwd(div_job *j) {
    const pl_divergence_args *a = j->a;
    for (int64_t r = 0; r < j->teachers; r++)
        j->lse_p[r] = pl_f32(&a->teacher_stat)[(int64_t)j->teacher_row[r] * 4 + (a->unmasked ? 1 : 2)];
    memset(j->dx, 0, (size_t)(j->n * j->d) * sizeof(float));
    for (int64_t g = 0; g < j->groups; g++) {
        set_group(j, g);
        if (j->in_bf16) pack_group(j, g);
        for (int64_t j0 = 0; j0 < j->Vd; j0 += TILE) {
            set_tile(j, j0, j->Vd);
            if (j->taught) {
                teacher_logits(j, a->d2t, WALK_AGAIN);
                teacher_softmax(j);
            }
            over_students(j, g, WALK_AGAIN, student_dz);
            if (a->w.grad && g == j->groups - 1) // the rest of the walk covers other rows of it
                pl_tape_done_to(j->ctx, a->w.grad, (size_t)((j0 + j->cols) * j->d) * sizeof(float));
        }
    }
    if (a->x.grad) pl_parallel(j->ctx->pool, pl_cpu_parts(j->ctx, j->n, 4.0 * (double)(j->n * j->d)), scatter_part, j);
}

void PL_CPU(divergence_bwd)(pl_ctx *ctx, const void *args) {
    const pl_divergence_args *a = args;
    if (!a->x.grad && !a->w.grad) return;
    size_t  mark = pl_arena_mark(&ctx->scratch);
    div_job j = start(ctx, args, true);
    if (!ctx->measuring) compute_bwd(&j);
    pl_arena_release(&ctx->scratch, mark);
}
