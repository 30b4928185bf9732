// The divergence engine's job, and which rows take part in it. Included by divergence_cpu.c alone, once per ISA.
#ifndef PL_OP_DIVERGENCE_ROWS_CPU_H
#define PL_OP_DIVERGENCE_ROWS_CPU_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pairs.h"
#include "kernels/op/divergence_cpu.h"

enum {
    ROWS = 512,      // teachers of a group
    STUDENTS = 4096, // of a block, all of a group's as a rule: a tile of W is then packed once for them
    CHUNK = 256,     // rows of a chunk, about: their logits are 512 KB
    CHUNK_MOST = 480,
    TILE = PL_DIV_TILE,
    // A row's logit is written and read in the time in which a matrix unit multiplies so many numbers: shorter rows in
    // bf16 are multiplied again, and room for their logits stays untouched.
    RECOMPUTE_BELOW = PL_TILE_ROWS_MOST > 0 ? 768 : 0,
    EXP_FLOPS = 32
};

// In the padding of a tile's last vector: finite, and nothing beside it.
#define PAD (-1e30f)

// A softmax under way.
typedef struct running {
    float   max;
    int32_t id; // of max, the lowest
    double  sum;
} running;

struct div_job;
// What a walk does with one student's tile of logits; dz: where backward leaves its own.
typedef void (*student_fn)(const struct div_job *j, int64_t at, const float *z, float *dz);

// Products in bf16: what is packed, for the group or the tile in hand.
typedef struct packs {
    pl_rows   x, dz;                 // students' rows; the tile's dz^T
    pl_gemm_b x_across, w, w_across; // of dW; the tile of W: of z, of dx
    void     *x_room, *dz_room;
    char     *own; // own_bytes for each part: logits of a chunk, and its dz as rows of a product
    size_t    own_bytes;
    int64_t   chunk; // tiles of x
} packs;

typedef struct div_job {
    const pl_divergence_args *a;
    const objective          *o;
    pl_ctx                   *ctx;
    bool                      taught;              // by a teacher
    int64_t                   n, teachers, groups; // that take part
    int64_t                   d, dt, V, Vd;
    int32_t                  *row;         // [n] student rows, by group
    int32_t                  *teacher_of;  // [n] index into teacher_row
    int32_t                  *teacher_row; // [teachers] ascending
    int32_t                  *number;      // [T'] teacher row -> index, -1
    int64_t                  *group_at;    // [groups + 1] into row
    float                    *x, *dx, *xt; // compact rows
    running                  *student, *full, *draft;
    double                   *cross;         // [n] of the first walk
    double                   *sums;          // [n, SUMS] of the second
    float                    *fade;          // [teachers] of the tile in hand
    float                    *lse_p, *lse_v; // [teachers] of p's logits, of all
    float           *z_place, *t_place;      // at most [STUDENTS, TILE], [ROWS, TILE] logits and what becomes of them
    float           *e;                      // [ROWS, TILE] teacher exponentials
    float           *wide_t, *wide_s;        // [TILE, dt], [TILE, d] rows of weights that lie otherwise than read
    int64_t          kept, kept_tile;        // tiles whose logits stay from the first walk on; floats of each
    // the tile in hand
    int64_t          j0, cols; // ids
    int64_t          t0, tn;   // teachers
    int64_t          s0, sn;   // students
    float           *z, *t;    // their logits: in z_place and t_place, or where they are kept
    running         *teacher_state;
    bool             keep_exp;
    student_fn       each;
    bool             in_bf16, backward, again; // again: where logits are kept they are there
    packs            p;
    // rows to widen
    const pl_tensor *from;
    const int32_t   *ids;
    float           *to;
} div_job;

// ---- which rows take part ----

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
    for (int64_t i = all - 1; i >= 0; i--) { // from the back: each group's end moves to its start
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
