// The divergence op's job and its selection of rows. Included by divergence_cpu.c alone, once per ISA.
#ifndef PL_OP_DIVERGENCE_ROWS_CPU_H
#define PL_OP_DIVERGENCE_ROWS_CPU_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pairs.h"
#include "kernels/op/divergence_cpu.h"

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
