// Rows of a training pass: which rows of a pack run at each depth of a drafter, what they consume and what they
// predict. A schedule is one file with one pl_rows_kind:
//
//   rows_unroll.c  the same rows run at every depth
//   rows_masks.c   P-EAGLE (infer/drafter/peagle.c): depths > 0 consume masks; deeper depths train fewer rows
//   rows_blocks.c  block drafters (infer/drafter/backbone.h): blocks whose anchor is token t + 1 of a drawn row t
//
// Rows that no depth has a weight for can be left out (`supervised`). This is exact: such a row acts on others only by
// its key and value of depth 0, which are computed for all rows (pl_running); all its other gradients are zero. Forward
// values do not change (on a GPU another kernel may compute attention); sums over rows are grouped otherwise. If fewer
// than 1 in PL_ROWS_LEAN rows would be left out, all run: the lists' copies cost some 3 % of a step (`bench step
// --supervised 0.92`: operations fall by 4.8 %, rows per second rise by 2.2 %).
// `most` bounds memory by the rows that run: a pack in which more do takes several forwards, each with the keys and
// values of all rows, whose gradients add up.
//
// A cell is a row that runs at a depth; cells are counted depth after depth, and lists of cells hold their predictions.
// A teacher is any row of the pack, whether it runs or not: teacher_row counts all rows of the pack.
//
//   pl_rows_begin(r, PL_ROWS_LEARN);
//   while (pl_rows_next(r)) ...    each time the lists of one forward; a cell's result goes to pl_rows_place
#ifndef PL_TRAIN_ROWS_H
#define PL_TRAIN_ROWS_H

#include "infer/drafter/backbone.h"
#include "train/task/pack.h"

#define PL_ROWS_LEAN 16

typedef enum pl_rows_use {
    PL_ROWS_LEARN,
    PL_ROWS_SCORE,    // the rows that a schedule draws, for as many depths as the pack has
    PL_ROWS_SCORE_ALL // every row, in as many forwards as it takes
} pl_rows_use;

typedef struct pl_rows_options {
    int      learn_steps;              // depths of PL_ROWS_LEARN
    bool     supervised;               // only rows with a weight at some depth run
    int64_t  most;                     // with `supervised`: rows that run in one forward, at most; 0: all
    uint64_t seed;                     // of what is drawn
    int64_t  anchors;                  // blocks of a forward, at most
    double   depth_ratio, depth_floor; // masks: shares of rows that learn at depth k
} pl_rows_options;

typedef struct pl_depth_rows {
    int64_t        n;                // rows that run
    int64_t        keyed;            // rows that consume a token and a state: at depth 0 all, else those that run
    const int32_t *taken;            // [n] the pack's rows that run, ascending; NULL: all of them
    const int32_t *place;            // [pack's rows] with `taken`: the place of each that runs; NULL: the same rows run
                                     // at all depths
    const int32_t *run_pos, *run_lo; // [n] with `taken`
    const int32_t *token, *pos, *lo; // [keyed] lo: the first row that each sees
} pl_depth_rows;

typedef struct pl_rows {
    const struct pl_rows_kind *kind;
    const pl_backbone         *model; // borrowed
    pl_pack                   *pack;  // borrowed
    pl_rows_options            opt;
    pl_rows_use                use;
    int64_t                    rows;     // of the pack
    int64_t                    learners; // rows of the pack with a weight at some depth
    bool                       lean;     // the others do not run
    int64_t                    first;    // rows of the pack [first, begun) are this forward's
    int64_t                    begun;    // rows of the pack (blocks: anchors) that forwards have covered so far
    int                        depths;   // of this use
    // The forward's lists.
    pl_depth_rows              depth[PL_MAX_UNROLL];
    int64_t                    cells;
    const int32_t             *before;      // [cells] the token before the predicted one, -1 past the text's end
    const int32_t             *teacher_row; // [cells] row of the pack that teaches, -1: the cell does not count
    float                     *weight;      // [cells] 0: the cell does not count
    // Results of the forward.
    int32_t                   *argmax;   // [cells] draft ids, -1 where a cell does not count
    float                     *accepted; // [cells] probability that verification accepts
    // Lists of a schedule that runs less than the pack's.
    struct {
        int32_t *before, *teacher_row; // [cells]
        float   *weight;
    } own;
    struct { // of depths, [capacity]: as pl_depth_rows has them
        int32_t *taken[PL_MAX_UNROLL], *place[PL_MAX_UNROLL], *token[PL_MAX_UNROLL];
        int32_t *pos[PL_MAX_UNROLL], *lo[PL_MAX_UNROLL];
    } some;
    struct {
        bool      thin;  // rows are drawn
        int32_t  *token; // [capacity] masks
        int32_t  *order; // [capacity] rows as drawn
        uint64_t *drawn; // [capacity]
    } masks;
    struct {
        int32_t *anchor;      // [capacity] rows whose blocks run
        int64_t  n;           // of them
        int32_t *row;         // [anchors] those of this forward
        int32_t *token, *pos; // [n, B] of the blocks' rows
        int32_t *lo, *hi;     // [n] rows of its context
        int32_t *index;       // [cells] the block row that each cell reads
        int32_t *before;      // [n] the token before each anchor
    } blocks;
    pl_arena arrays; // memory of all lists, readable by ops
} pl_rows;

typedef struct pl_rows_kind {
    // Allocates the lists of r->own, r->some, r->masks or r->blocks in r->arrays. NULL: none.
    void (*take)(pl_rows *r);
    // Returns the cells of the largest forward of any use.
    int64_t (*most)(const pl_rows *r);
    // Draws the rows that run and sets the pack's weights of the others to 0. NULL: all rows run.
    void (*begin)(pl_rows *r);
    // Sets the lists of the next forward and how many rows it takes; false: none is left. measuring: as many rows as
    // ever run; the lists' values are not read.
    bool (*next)(pl_rows *r, bool measuring);
} pl_rows_kind;

extern const pl_rows_kind pl_rows_unroll, pl_rows_masks, pl_rows_blocks;

// Initialises the schedule of a drafter over a pack.
pl_status pl_rows_init(pl_rows *r, const pl_backbone *b, pl_pack *p, const pl_rows_options *o, const pl_backend *be,
                       pl_err *err);
void      pl_rows_fini(pl_rows *r);
void      pl_rows_begin(pl_rows *r, pl_rows_use use);
bool      pl_rows_next(pl_rows *r);
// Sets the lists of the largest forward, for a measuring context.
void      pl_rows_largest(pl_rows *r, pl_rows_use use);
// For schedules. Sets lists that cover every row at every depth.
void      pl_rows_all(pl_rows *r);
// Advances [first, begun) by the rows whose learners one forward takes; all that are left if none are left out.
void      pl_rows_advance(pl_rows *r, bool measuring);
// Returns how many of n rows run in one forward, at most.
int64_t   pl_rows_at_once(const pl_rows *r, int64_t n);
// Allocates r->some and r->own for n[k] rows at depth k.
void      pl_rows_take_some(pl_rows *r, const int64_t *n);
// Sets r->some to the rows of [first, begun) that run at each depth, which are among those of the depth before, and the
// forward's lists to them. measuring: n[k] rows.
void pl_rows_some(pl_rows *r, bool (*runs)(const pl_rows *r, int64_t row, int k), const int64_t *n, bool measuring);
// Returns true if a row has a weight at this depth or a deeper one.
bool pl_rows_learn_from(const pl_rows *r, int64_t row, int depth);
// Replaces the weights of a block's counted drafts (weight [cells] > 0) by D-PACE's (arXiv 2605.18810), for losses
// [cells] that are cross-entropies:
//   q_k = exp(-loss_k),   s_k = (1 - alpha) q_k + alpha
//   weight_k = sum over counted m >= k of prod_{i <= m} s_i,   a constant to the gradient
void pl_rows_pace(const pl_rows *r, float *weight, const double *loss, double alpha);

// Returns the place of depth k's row i in [depths][rows of the pack].
static inline int64_t pl_rows_place(const pl_rows *r, int k, int64_t i) {
    return k * r->rows + (r->depth[k].taken ? r->depth[k].taken[i] : i);
}

#endif
