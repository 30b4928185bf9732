// Rows of a slot for a drafter's training-time test: documents (or pieces of long ones) side by side.
//
// Row t of a document at unroll step k consumes token t+1+k and predicts token t+2+k; its teacher is the target's
// distribution at position t+1+k. It counts when that position is in the document (and its piece), the predicted token
// is an answer token (past the document's end: the last token is one), and the target's choice is among the draft ids
// (with `outside` the last condition is dropped: the objective then takes the target's whole distribution, or the
// restricted one of every row).
// A row that does not count has weight 0 and teacher row -1. A step that would read past the document reads token -1,
// a row of zeros.
#ifndef PL_TRAIN_PACK_H
#define PL_TRAIN_PACK_H

#include "infer/drafter/backbone.h"
#include "train/source/source.h"

typedef struct pl_pack {
    int64_t  capacity, rows;       // the most rows, the current rows
    int      steps;                // K
    int64_t  d, width;             // width of a last hidden state, of a row's features
    int64_t  positions;            // rows of the RoPE table
    pl_dtype features_in, last_in; // dtypes of features and last_hidden
    uint64_t key;                  // identifies the rows of a fill: a pure function of its cursor
    bool     from_last;            // `features` are the last hidden states instead of the taps
    float    step_weight[PL_MAX_UNROLL];
    bool     outside;                // rows whose choice is no draft id count too; set before a fill
    uint8_t *drafted;                // [vocab] 1: the target id is a draft id; NULL: all are
    int32_t *token;                  // [K][rows], valid after pl_pack_close
    int32_t *teacher_row;            // [K][rows], or -1
    float   *weight;                 // [K][rows]
    int32_t *argmax;                 // [capacity] the target's choice at each row
    int32_t *own;                    // [capacity] each row's own token, which it predicts nothing of
    int32_t *pos, *lo;               // [capacity]
    void    *features, *last_hidden; // [capacity, width] inputs of the drafter, [capacity, d]: reals on the host; for a
                                     // device bf16 as they are stored, but for features that get noise
    pl_arena arrays;                 // memory of the ops' inputs: token, teacher_row, weight, pos, lo
} pl_pack;

// Noise on a drafter's features, which makes it robust to the errors of its own predictions (EAGLE's training):
//   feature += (u - 1/2) width 512 / n,   u uniform in [0, 1), n rows of the document
// u is a pure function of (seed, PL_STREAM_NOISE, number of the document over all epochs, row, column). The
// targets of the prediction get no noise.
typedef struct pl_feature_noise {
    double   width;
    uint64_t seed;
} pl_feature_noise;

// Allocates a pack for drafter b (widths, positions, draft ids). The weight of step k is step_decay^k.
pl_status pl_pack_init(pl_pack *p, const pl_backbone *b, int64_t capacity, int steps, double step_decay,
                       const pl_backend *be, pl_err *err);
void      pl_pack_fini(pl_pack *p);
void      pl_pack_clear(pl_pack *p);
// Appends rows [from, from + n) of a document; they must fit.
void      pl_pack_add(pl_pack *p, const pl_columns *doc, int64_t from, int64_t n);
// Call after the last add: compacts the K steps, so that step k starts at k * rows, the layout of the divergence op.
void      pl_pack_close(pl_pack *p);
// Fills the pack from a source, from cursor[0] (document) and cursor[1] (its row), and advances them. Takes whole
// documents while they fit; a document longer than the pack comes in pieces. Stops at `end` documents (< 0: never);
// with nothing left rows is 0. Clears before, closes after. noise: NULL or width 0: none.
pl_status pl_pack_fill(pl_pack *p, pl_feature_source *s, int64_t end, int64_t cursor[2], const pl_feature_noise *noise,
                       pl_err *err);
// Converts n rows of bf16, `cols` wide, to reals of the host (PL_BF16: copies them); writes them to `to` from row `row`
// on.
void      pl_rows_widen(void *to, pl_dtype real, int64_t row, const uint16_t *from, int64_t n, int64_t cols);
// The pack's rows as constants of a step; a device widens them itself.
pl_tensor pl_pack_features(pl_ctx *ctx, const pl_pack *p, int64_t rows);
pl_tensor pl_pack_last_hidden(pl_ctx *ctx, const pl_pack *p, int64_t rows);
// Advances the cursor of an endless source as a fill would.
pl_status pl_pack_skip(const pl_pack *p, pl_feature_source *s, int64_t cursor[2], pl_err *err);

#endif
