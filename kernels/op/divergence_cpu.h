// Each objective on a row's tile of logits: its sums in the forward walks, its loss from them, its gradient in the
// backward walk. Included by divergence_cpu.c alone, compiled once per ISA. Past `cols` a tile's last vector is padded
// with logits that every softmax makes 0.
//
// The first walk runs while both softmaxes are still accumulating. With e_j = exp(z'_j - max') and s_j = exp(z_j -
// max), besides sum e_j and sum s_j it computes one of
//   CROSS_KL       sum e_j (z'_j - z_j):  KL = sum / norm - m lse' + m lse,   norm = sum e_j, or exp(lse_V - max')
//   CROSS_TEACHER  sum e_j z_j:           CE = m lse - sum / norm
//   CROSS_STUDENT  sum s_j (z_j - z'_j):  reverse KL = sum / sum s_j - lse + lse'
//   CROSS_CHOICE, CROSS_LABEL  the logit of one id;  CROSS_NONE  nothing
// The second walk, if needed, has both softmaxes.
#ifndef PL_OP_DIVERGENCE_CPU_H
#define PL_OP_DIVERGENCE_CPU_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/rows.h"
#include "kernels/op/divergence.h"
#include <math.h>

typedef enum cross_kind { CROSS_KL, CROSS_TEACHER, CROSS_STUDENT, CROSS_CHOICE, CROSS_LABEL, CROSS_NONE } cross_kind;

// Sums of the second walk: three are kept for backward. Overlap's (tv, tvd++, lk-*): see alpha and R in divergence.h;
// BELOW is q's mass where p <= q. Jensen-Shannon's: sum q log(q / M), sum p log(p / M).
enum { ACCEPT, KEPT, ALPHA = KEPT, ABOVE, BELOW, GAP, SUMS, FROM_Q = KEPT, FROM_P };

typedef struct tile_row {
    int64_t      cols;
    const float *z, *t; // student's logits; teacher's: logits, or in an objective's second walk p or log p
    const float *e;     // first walk: exp(z' - max')
    float        max;   // first walk: running maximum of z
    float        lse;   // second walk: of z; of z' over V; lost: lse_p - lse_v, so that p^full = p exp(lost)
    float        lse_v, lost;
    double       beta;
} tile_row;

typedef struct row_end {
    double  cross, sum; // of the first walk; sum s_j
    double  lse, lse_p; // of z; of z' over the ids of p
    double  mass, norm;
    bool    counts; // hard-ce: the choice is among the draft ids
    double *sums;
    double  beta, decay;
} row_end;

typedef struct dz_row {
    int64_t      cols, choice; // ids in the tile; the choice's id within it
    const float *z;
    float       *dz; // weight * dz; may be z
    const float *t;  // p or log p
    float        weight, lse, mass;
    const float *kept;
    bool         counts;
    double       beta, decay;
} dz_row;

typedef struct objective {
    cross_kind cross;
    bool       log_p; // the teacher's second walk and dz need log p, not p
    void (*second)(const tile_row *r, double sums[SUMS]);
    double (*loss)(const row_end *e);
    void (*dz)(const dz_row *r);
} objective;

// ---- first walk ----

// Returns the tile's sum of s_j.
PL_INLINE float first_tile(cross_kind kind, const tile_row *r, double *out) {
    pl_vf max = pl_vf_set1(r->max), sum = pl_vf_zero(), with = sum;
    for (int64_t c = 0; c < r->cols; c += PL_VL) {
        pl_vf z = pl_vf_load(r->z + c), s = pl_vf_exp(pl_vf_sub(z, max));
        sum = pl_vf_add(sum, s);
        if (kind == CROSS_KL) with = pl_vf_fma(pl_vf_load(r->e + c), pl_vf_sub(pl_vf_load(r->t + c), z), with);
        if (kind == CROSS_TEACHER) with = pl_vf_fma(pl_vf_load(r->e + c), z, with);
        if (kind == CROSS_STUDENT) with = pl_vf_fma(s, pl_vf_sub(z, pl_vf_load(r->t + c)), with);
    }
    *out = (double)pl_vf_hsum(with);
    return pl_vf_hsum(sum);
}

static float first_row(cross_kind kind, const tile_row *r, double *out) {
    switch (kind) {
    case CROSS_KL: return first_tile(CROSS_KL, r, out);
    case CROSS_TEACHER: return first_tile(CROSS_TEACHER, r, out);
    case CROSS_STUDENT: return first_tile(CROSS_STUDENT, r, out);
    default: return first_tile(CROSS_NONE, r, out);
    }
}

// ---- second walk ----

// sum_j min(p^full_j, q_j); t is the teacher's logits.
static void second_accept(const tile_row *r, double sums[SUMS]) {
    pl_vf lse_s = pl_vf_set1(r->lse), lse_t = pl_vf_set1(r->lse_v), sum = pl_vf_zero();
    for (int64_t c = 0; c < r->cols; c += PL_VL) {
        pl_vf p = pl_vf_sub(pl_vf_load(r->t + c), lse_t), q = pl_vf_sub(pl_vf_load(r->z + c), lse_s);
        sum = pl_vf_add(sum, pl_vf_exp(pl_vf_min(p, q)));
    }
    sums[ACCEPT] += (double)pl_vf_hsum(sum);
}

static void second_overlap(const tile_row *r, double sums[SUMS]) {
    const pl_vf zero = pl_vf_zero(), lse_s = pl_vf_set1(r->lse), share = pl_vf_exp(pl_vf_set1(r->lost));
    pl_vf       accept = zero, alpha = zero, above = zero, below = zero, gap = zero;
    for (int64_t c = 0; c < r->cols; c += PL_VL) {
        pl_vf p = pl_vf_load(r->t + c), q = pl_vf_exp(pl_vf_sub(pl_vf_load(r->z + c), lse_s));
        accept = pl_vf_add(accept, pl_vf_min(pl_vf_mul(p, share), q));
        alpha = pl_vf_add(alpha, pl_vf_min(p, q));
        above = pl_vf_add(above, pl_vf_select_gt(p, q, q, zero));
        below = pl_vf_add(below, pl_vf_select_gt(p, q, zero, q));
        gap = pl_vf_add(gap, pl_vf_max(pl_vf_sub(q, p), zero));
    }
    sums[ACCEPT] += (double)pl_vf_hsum(accept);
    sums[ALPHA] += (double)pl_vf_hsum(alpha);
    sums[ABOVE] += (double)pl_vf_hsum(above);
    sums[BELOW] += (double)pl_vf_hsum(below);
    sums[GAP] += (double)pl_vf_hsum(gap);
}

// log(q / M) of the mixture M = b p + (1 - b) q, from d = log p - log q: - log(1 - b) - softplus(d + log(b / (1 - b))).
PL_INLINE pl_vf log_q_over_mixture(pl_vf d, pl_vf shift, pl_vf log_rest) {
    pl_vf x = pl_vf_add(d, shift), zero = pl_vf_zero();
    pl_vf up = pl_vf_max(x, zero), size = pl_vf_max(x, pl_vf_sub(zero, x));
    pl_vf soft = pl_vf_add(up, pl_vf_log1p_unit(pl_vf_exp(pl_vf_sub(zero, size))));
    return pl_vf_sub(pl_vf_sub(zero, log_rest), soft);
}

static void second_js(const tile_row *r, double sums[SUMS]) {
    const pl_vf shift = pl_vf_set1((float)log(r->beta / (1.0 - r->beta)));
    const pl_vf rest = pl_vf_set1((float)log1p(-r->beta)), lse_s = pl_vf_set1(r->lse), lost = pl_vf_set1(r->lost);
    pl_vf       accept = pl_vf_zero(), from_q = accept, from_p = accept;
    for (int64_t c = 0; c < r->cols; c += PL_VL) {
        pl_vf log_p = pl_vf_load(r->t + c), log_q = pl_vf_sub(pl_vf_load(r->z + c), lse_s);
        pl_vf d = pl_vf_sub(log_p, log_q), q_over = log_q_over_mixture(d, shift, rest);
        from_q = pl_vf_fma(pl_vf_exp(log_q), q_over, from_q);
        from_p = pl_vf_fma(pl_vf_exp(log_p), pl_vf_add(d, q_over), from_p);
        accept = pl_vf_add(accept, pl_vf_exp(pl_vf_min(pl_vf_add(log_p, lost), log_q)));
    }
    sums[ACCEPT] += (double)pl_vf_hsum(accept);
    sums[FROM_Q] += (double)pl_vf_hsum(from_q);
    sums[FROM_P] += (double)pl_vf_hsum(from_p);
}

// ---- losses ----

static double loss_kl(const row_end *e) {
    return e->cross / e->norm - e->mass * e->lse_p + e->mass * e->lse;
}

static double loss_ce(const row_end *e) {
    return e->mass * e->lse - e->cross / e->norm;
}

static double loss_one_id(const row_end *e) {
    return e->counts ? e->lse - e->cross : 0.0;
}

static double loss_tv(const row_end *e) {
    return e->sums[GAP];
}

static double loss_reverse_kl(const row_end *e) {
    return e->cross / e->sum - e->lse + e->lse_p;
}

static double loss_js(const row_end *e) {
    return e->beta * (e->sums[FROM_P] - (1.0 - e->mass) * log(e->beta)) + (1.0 - e->beta) * e->sums[FROM_Q];
}

// Uses the form of alpha with less cancellation.
static double loss_lk_alpha(const row_end *e) {
    return e->sums[GAP] < 0.5 ? -log1p(-e->sums[GAP]) : -log(fmax(e->sums[ALPHA], PL_DIV_MIN_OVERLAP));
}

static double loss_lk_lambda(const row_end *e) {
    double lambda = exp(-e->decay * e->sums[ALPHA]);
    return lambda * loss_kl(e) + (1.0 - lambda) * e->sums[GAP];
}

// ---- gradients ----

static void dz_kl(const dz_row *r) {
    pl_vf weight = pl_vf_set1(r->weight), lse = pl_vf_set1(r->lse), mass = pl_vf_set1(r->mass);
    for (int64_t c = 0; c < r->cols; c += PL_VL) {
        pl_vf q = pl_vf_mul(mass, pl_vf_exp(pl_vf_sub(pl_vf_load(r->z + c), lse)));
        pl_vf_store(r->dz + c, pl_vf_mul(weight, pl_vf_sub(q, pl_vf_load(r->t + c))));
    }
}

static void dz_one_id(const dz_row *r) {
    float weight = r->counts ? r->weight : 0.0f;
    pl_vf wv = pl_vf_set1(weight), lse = pl_vf_set1(r->lse);
    for (int64_t c = 0; c < r->cols; c += PL_VL)
        pl_vf_store(r->dz + c, pl_vf_mul(wv, pl_vf_exp(pl_vf_sub(pl_vf_load(r->z + c), lse))));
    if (r->choice >= 0 && r->choice < r->cols) r->dz[r->choice] -= weight;
}

// kl q_mass - kl p  +  tv q (R - r): total variation's gradient times tv, KL's times kl.
PL_INLINE void overlap_gradient(const dz_row *r, double tv, double kl) {
    double w = (double)r->weight;
    pl_vf  up = pl_vf_set1((float)(-w * tv * (double)r->kept[BELOW - KEPT]));
    pl_vf  down = pl_vf_set1((float)(w * tv * (double)r->kept[ABOVE - KEPT]));
    pl_vf  lse = pl_vf_set1(r->lse), mass = pl_vf_set1(r->mass), wkl = pl_vf_set1((float)(w * kl));
    for (int64_t c = 0; c < r->cols; c += PL_VL) {
        pl_vf p = pl_vf_load(r->t + c), q = pl_vf_exp(pl_vf_sub(pl_vf_load(r->z + c), lse));
        pl_vf dz = pl_vf_mul(q, pl_vf_select_gt(p, q, up, down));
        if (kl != 0.0) dz = pl_vf_fma(wkl, pl_vf_sub(pl_vf_mul(mass, q), p), dz);
        pl_vf_store(r->dz + c, dz);
    }
}

static void dz_tv(const dz_row *r) {
    overlap_gradient(r, 1.0, 0.0);
}

static void dz_tvdpp(const dz_row *r) {
    double variance = (double)r->kept[ABOVE - KEPT] * (double)r->kept[BELOW - KEPT];
    overlap_gradient(r, 1.0 / sqrt(fmax(variance, PL_DIV_MIN_VARIANCE)), 0.0);
}

static void dz_lk_alpha(const dz_row *r) {
    overlap_gradient(r, 1.0 / fmax((double)r->kept[ALPHA - KEPT], PL_DIV_MIN_OVERLAP), 0.0);
}

static void dz_lk_lambda(const dz_row *r) {
    double lambda = exp(-r->decay * (double)r->kept[ALPHA - KEPT]);
    overlap_gradient(r, 1.0 - lambda, lambda);
}

// The mean of log q - log p under q is the loss, which was kept.
static void dz_reverse_kl(const dz_row *r) {
    pl_vf weight = pl_vf_set1(r->weight), lse = pl_vf_set1(r->lse), mean = pl_vf_set1(r->kept[0]);
    for (int64_t c = 0; c < r->cols; c += PL_VL) {
        pl_vf log_q = pl_vf_sub(pl_vf_load(r->z + c), lse), g = pl_vf_sub(log_q, pl_vf_load(r->t + c));
        pl_vf_store(r->dz + c, pl_vf_mul(pl_vf_mul(weight, pl_vf_exp(log_q)), pl_vf_sub(g, mean)));
    }
}

static void dz_js(const dz_row *r) {
    const pl_vf shift = pl_vf_set1((float)log(r->beta / (1.0 - r->beta))), lse = pl_vf_set1(r->lse);
    const pl_vf rest = pl_vf_set1((float)log1p(-r->beta)), mean = pl_vf_set1(r->kept[FROM_Q - KEPT]);
    const pl_vf weight = pl_vf_set1((float)((double)r->weight * (1.0 - r->beta)));
    for (int64_t c = 0; c < r->cols; c += PL_VL) {
        pl_vf log_q = pl_vf_sub(pl_vf_load(r->z + c), lse), d = pl_vf_sub(pl_vf_load(r->t + c), log_q);
        pl_vf g = pl_vf_sub(log_q_over_mixture(d, shift, rest), mean);
        pl_vf_store(r->dz + c, pl_vf_mul(pl_vf_mul(weight, pl_vf_exp(log_q)), g));
    }
}

static const objective objectives[PL_OBJECTIVES] = {
    [PL_OBJ_KL] = {.cross = CROSS_KL, .loss = loss_kl, .dz = dz_kl},
    [PL_OBJ_SOFT_CE] = {.cross = CROSS_TEACHER, .loss = loss_ce, .dz = dz_kl},
    [PL_OBJ_HARD_CE] = {.cross = CROSS_CHOICE, .loss = loss_one_id, .dz = dz_one_id},
    [PL_OBJ_TV] = {.cross = CROSS_NONE, .second = second_overlap, .loss = loss_tv, .dz = dz_tv},
    [PL_OBJ_TVDPP] = {.cross = CROSS_NONE, .second = second_overlap, .loss = loss_tv, .dz = dz_tvdpp},
    [PL_OBJ_REVERSE_KL] = {.cross = CROSS_STUDENT, .log_p = true, .loss = loss_reverse_kl, .dz = dz_reverse_kl},
    [PL_OBJ_JS] = {.cross = CROSS_NONE, .log_p = true, .second = second_js, .loss = loss_js, .dz = dz_js},
    [PL_OBJ_LK_ALPHA] = {.cross = CROSS_NONE, .second = second_overlap, .loss = loss_lk_alpha, .dz = dz_lk_alpha},
    [PL_OBJ_LK_LAMBDA] = {.cross = CROSS_KL, .second = second_overlap, .loss = loss_lk_lambda, .dz = dz_lk_lambda},
    [PL_OBJ_LABEL] = {.cross = CROSS_LABEL, .loss = loss_one_id, .dz = dz_one_id},
};

// ---- the op's job and its selection of rows

enum {
    ROWS = 512,      // teachers per group
    STUDENTS = 4096, // students per block, usually all of a group's: a tile of W is then packed once for them
    CHUNK = 256,     // rows per chunk, about: their logits are 512 KB
    CHUNK_MOST = 480,
    TILE = PL_DIV_TILE,
    // Writing and reading a row's logit takes as long as a matrix unit needs for this many multiplications: shorter
    // rows in bf16 are multiplied again, and the memory for their logits stays untouched.
    RECOMPUTE_BELOW = PL_TILE_ROWS_MOST > 0 ? 768 : 0,
    EXP_FLOPS = 32
};

// Padding of a tile's last vector: finite, and negligible in every softmax.
#define PAD (-1e30f)

// A softmax being accumulated.
typedef struct running {
    float   max;
    int32_t id; // lowest id with the value max
    double  sum;
} running;

struct div_job;
// A walk's work on one student's tile of logits; dz: where backward writes its result.
typedef void (*student_fn)(const struct div_job *j, int64_t at, const float *z, float *dz);

// Operands of bf16 products, packed for the current group or tile.
typedef struct packs {
    pl_rows   x, dz;                 // students' rows; the tile's dz^T
    pl_gemm_b x_across, w, w_across; // x_across: for dW; w: tile of W for z; w_across: for dx
    void     *x_room, *dz_room;
    char     *own; // own_bytes for each part: logits of a chunk, and its dz as rows of a product
    size_t    own_bytes;
    int64_t   chunk; // tiles of x
} packs;

typedef struct div_job {
    const pl_divergence_args *a;
    const objective          *o;
    pl_ctx                   *ctx;
    bool                      taught;              // has a teacher
    int64_t                   n, teachers, groups; // participating rows, teachers and groups
    int64_t                   d, dt, V, Vd;
    int32_t                  *row;         // [n] student rows, by group
    int32_t                  *teacher_of;  // [n] index into teacher_row
    int32_t                  *teacher_row; // [teachers] ascending
    int32_t                  *number;      // [T'] teacher row -> index, -1
    int64_t                  *group_at;    // [groups + 1] into row
    float                    *x, *dx, *xt; // compact rows
    running                  *student, *full, *draft;
    double                   *cross;             // [n] first walk
    double                   *sums;              // [n, SUMS] second walk
    float                    *fade;              // [teachers] of the current tile
    float                    *lse_p, *lse_v;     // [teachers] over p's logits, over all logits
    float                    *z_place, *t_place; // at most [STUDENTS, TILE], [ROWS, TILE] logits, overwritten by their
                                                 // results
    float                    *e;                 // [ROWS, TILE] teacher exponentials
    float                    *wide_t, *wide_s;   // [TILE, dt], [TILE, d] rows of weights that need conversion
    int64_t                   kept, kept_tile;   // tiles whose logits are kept after the first walk; floats of each
    // the current tile
    int64_t                   j0, cols; // ids
    int64_t                   t0, tn;   // teachers
    int64_t                   s0, sn;   // students
    float                    *z, *t;    // their logits: in z_place and t_place, or kept ones
    running                  *teacher_state;
    bool                      keep_exp;
    student_fn                each;
    bool                      in_bf16, backward, again; // again: kept logits are available
    packs                     p;
    // rows to widen
    const pl_tensor          *from;
    const int32_t            *ids;
    float                    *to;
} div_job;

// ---- participating rows ----

static bool takes_part(const pl_divergence_args *a, int64_t i) {
    return a->weight[i] != 0.0f && (a->objective != PL_OBJ_LABEL ? a->teacher_row[i] : a->label[i]) >= 0;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t group_of(const div_job *j, int64_t i) {
    return j->taught ? j->number[j->a->teacher_row[i]] / ROWS : 0;
}

// A stable counting sort of the student rows by group.
static void choose_rows(div_job *j) {
    const pl_divergence_args *a = j->a;
    int64_t                   all = a->x.dim[0];
    if (j->taught) {
        for (int64_t r = 0; r < a->xt.dim[0]; r++)
            j->number[r] = -1;
        for (int64_t i = 0; i < all; i++)
            if (takes_part(a, i)) j->number[a->teacher_row[i]] = 0;
        for (int64_t r = 0; r < a->xt.dim[0]; r++) {
            if (j->number[r] < 0) continue;
            j->teacher_row[j->teachers] = (int32_t)r;
            j->number[r] = (int32_t)j->teachers++;
        }
    }
    j->groups = j->taught ? ceil_div(j->teachers, ROWS) : 1;
    for (int64_t g = 0; g <= j->groups; g++)
        j->group_at[g] = 0;
    for (int64_t i = 0; i < all; i++)
        if (takes_part(a, i)) j->group_at[group_of(j, i) + 1]++;
    for (int64_t g = 0; g < j->groups; g++)
        j->group_at[g + 1] += j->group_at[g];
    j->n = j->group_at[j->groups];
    for (int64_t i = all - 1; i >= 0; i--) { // backwards: each group's end moves to its start
        if (!takes_part(a, i)) continue;
        int64_t at = --j->group_at[group_of(j, i) + 1];
        j->row[at] = (int32_t)i;
        j->teacher_of[at] = j->taught ? j->number[a->teacher_row[i]] : 0;
    }
    // Now group_at[g + 1] is the start of group g: shift back.
    for (int64_t g = 0; g < j->groups; g++)
        j->group_at[g] = j->group_at[g + 1];
    j->group_at[j->groups] = j->n;
}

static void gather_part(void *arg, int part, int parts) {
    const div_job *j = arg;
    long           lo, hi;
    pl_range(j->n, 1, part, parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        memcpy(j->x + i * j->d, pl_f32(&j->a->x) + j->row[i] * j->d, (size_t)j->d * sizeof(float));
    pl_range(j->teachers, 1, part, parts, &lo, &hi);
    for (int64_t r = lo; r < hi; r++)
        memcpy(j->xt + r * j->dt, pl_f32(&j->a->xt) + j->teacher_row[r] * j->dt, (size_t)j->dt * sizeof(float));
}

#endif
