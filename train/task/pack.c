#include "train/task/pack.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/hash.h"
#include "kernels/base/rng.h"
#include "kernels/op/elementwise.h"

#include <string.h>

static pl_status no_memory(pl_pack *p, int64_t capacity, pl_err *err) {
    pl_pack_fini(p);
    return pl_fail(err, PL_E_MEMORY, "training: out of memory for %lld rows; make train.slot_rows smaller",
                   (long long)capacity);
}

static void take_arrays(void *arg) {
    pl_pack *p = arg;
    size_t   n = (size_t)p->capacity, stacked = n * (size_t)p->steps;
    p->token = pl_arena_alloc(&p->arrays, stacked * sizeof *p->token);
    p->teacher_row = pl_arena_alloc(&p->arrays, stacked * sizeof *p->teacher_row);
    p->weight = pl_arena_alloc(&p->arrays, stacked * sizeof *p->weight);
    p->pos = pl_arena_alloc(&p->arrays, n * sizeof *p->pos);
    p->lo = pl_arena_alloc(&p->arrays, n * sizeof *p->lo);
    // Uploaded for each slot: a GPU takes them from here without a staged copy.
    p->features = pl_arena_alloc(&p->arrays, pl_size_mul(n, (size_t)p->width, pl_dtype_size(p->features_in)));
    p->last_hidden = pl_arena_alloc(&p->arrays, pl_size_mul(n, (size_t)p->d, pl_dtype_size(p->last_in)));
}

pl_status pl_pack_init(pl_pack *p, const pl_backbone *b, int64_t capacity, int steps, double step_decay,
                       const pl_backend *be, pl_err *err) {
    PL_CHECK(capacity >= 1 && capacity * steps <= INT32_MAX && steps >= 1 && steps <= PL_MAX_UNROLL,
             "%lld rows, %d steps", (long long)capacity, steps);
    bool stored = be->device != NULL;
    *p = (pl_pack){.capacity = capacity,
                   .steps = steps,
                   .d = b->d_target,
                   .width = b->n_taps * b->d_target,
                   .positions = b->config.max_position_embeddings,
                   .from_last = b->tap[0] == PL_TAP_FINAL,
                   .features_in = stored && !b->kind->predicts_features ? PL_BF16 : be->real,
                   .last_in = stored ? PL_BF16 : be->real};
    double w = 1;
    for (int k = 0; k < steps; k++, w *= step_decay)
        p->step_weight[k] = (float)w;
    size_t n = (size_t)capacity;
    PL_TRY(pl_arena_init_shared(&p->arrays, "training rows", be->memory, take_arrays, p, err));
    p->argmax = pl_calloc(n, sizeof *p->argmax);
    p->own = pl_calloc(n, sizeof *p->own);
    if (!p->argmax || !p->own) return no_memory(p, capacity, err);
    if (b->head.d2t) {
        p->drafted = pl_calloc((size_t)b->config.vocab_size, 1);
        if (!p->drafted) return no_memory(p, capacity, err);
        for (int64_t j = 0; j < b->head.vocab; j++)
            p->drafted[b->head.d2t[j]] = 1;
    }
    return PL_OK;
}

void pl_pack_fini(pl_pack *p) {
    pl_arena_fini(&p->arrays);
    pl_free(p->argmax);
    pl_free(p->own);
    pl_free(p->drafted);
    *p = (pl_pack){0};
}

void pl_pack_clear(pl_pack *p) {
    p->rows = 0;
}

void pl_rows_widen(void *to, pl_dtype real, int64_t row, const uint16_t *from, int64_t n, int64_t cols) {
    size_t at = (size_t)(row * cols), count = (size_t)(n * cols);
    if (real == PL_BF16) {
        memcpy((uint16_t *)to + at, from, count * sizeof *from);
        return;
    }
    if (real == PL_F32) {
        pl_to_f32((float *)to + at, from, PL_BF16, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        ((double *)to)[at + i] = (double)pl_bf16_to_f32(from[i]);
}

static pl_tensor write_rows(pl_ctx *ctx, const void *from, pl_dtype dtype, int64_t rows, int64_t cols) {
    if (dtype != PL_BF16) return pl_ctx_write(ctx, from, rows, cols);
    size_t    bytes = pl_size_mul((size_t)rows, (size_t)cols, sizeof(uint16_t));
    pl_tensor half = pl_tensor_2d(pl_ctx_const_1d(ctx, (rows * cols + 1) / 2).data, PL_BF16, rows, cols);
    int32_t  *own = pl_ctx_bytes(ctx, (size_t)rows * sizeof *own); // each row's number
    for (int64_t i = 0; i < rows && !ctx->measuring; i++)
        own[i] = (int32_t)i;
    pl_ctx_copy(ctx, half.data, from, bytes); // without a wait: the pack stays as it is until the step ends
    return pl_embed(ctx, half, own, rows);
}

pl_tensor pl_pack_features(pl_ctx *ctx, const pl_pack *p, int64_t rows) {
    return write_rows(ctx, p->features, p->features_in, rows, p->width);
}

pl_tensor pl_pack_last_hidden(pl_ctx *ctx, const pl_pack *p, int64_t rows) {
    return write_rows(ctx, p->last_hidden, p->last_in, rows, p->d);
}

// Returns true if row t of a document counts at step k (see the header). `end`: rows of the piece.
static bool counts(const pl_pack *p, const pl_columns *doc, int64_t t, int k, int64_t end) {
    int64_t teacher = t + 1 + k, predicted = t + 2 + k;
    if (teacher >= end || predicted >= p->positions) return false;
    if (!doc->loss_mask[predicted < doc->n ? predicted : doc->n - 1]) return false;
    return p->outside || !p->drafted || p->drafted[doc->argmax[teacher]];
}

void pl_pack_add(pl_pack *p, const pl_columns *doc, int64_t from, int64_t n) {
    PL_CHECK(from >= 0 && n >= 0 && from + n <= doc->n && p->rows + n <= p->capacity,
             "rows %lld and %lld more of a document of %lld, room for %lld", (long long)from, (long long)n,
             (long long)doc->n, (long long)(p->capacity - p->rows));
    int64_t first = p->rows, end = from + n, last_pos = p->positions - p->steps;
    for (int64_t i = 0; i < n; i++) {
        int64_t t = from + i, row = first + i;
        // Clamps positions whose steps would leave the RoPE table; rows at clamped positions and rows that attend to
        // them do not count.
        p->pos[row] = (int32_t)(t < last_pos ? t : last_pos);
        p->lo[row] = (int32_t)first;
        p->argmax[row] = doc->argmax[t];
        p->own[row] = doc->tokens[t];
        for (int k = 0; k < p->steps; k++) {
            int64_t at = k * p->capacity + row, id = t + 1 + k;
            bool    in = counts(p, doc, t, k, end) && t <= last_pos;
            p->token[at] = id < doc->n ? doc->tokens[id] : -1;
            p->teacher_row[at] = in ? (int32_t)(row + 1 + k) : -1;
            p->weight[at] = in ? p->step_weight[k] : 0;
        }
    }
    const uint16_t *features = p->from_last ? doc->last_hidden : doc->features;
    PL_CHECK(features, "a document without the drafter's features, %lld wide", (long long)p->width);
    pl_rows_widen(p->features, p->features_in, first, features + from * p->width, n, p->width);
    pl_rows_widen(p->last_hidden, p->last_in, first, doc->last_hidden + from * p->d, n, p->d);
    p->rows += n;
}

void pl_pack_close(pl_pack *p) {
    for (int k = 1; k < p->steps; k++) {
        size_t n = (size_t)p->rows;
        memmove(p->token + k * p->rows, p->token + k * p->capacity, n * sizeof *p->token);
        memmove(p->teacher_row + k * p->rows, p->teacher_row + k * p->capacity, n * sizeof *p->teacher_row);
        memmove(p->weight + k * p->rows, p->weight + k * p->capacity, n * sizeof *p->weight);
    }
}

// Adds noise to rows [from, from + n) of document `number`, the last n of the pack.
static void add_noise(pl_pack *p, const pl_feature_noise *noise, int64_t number, const pl_columns *doc, int64_t from,
                      int64_t n) {
    pl_rng  rng = pl_rng_make(noise->seed, PL_STREAM_NOISE, (uint64_t)number);
    double  width = noise->width * 512 / (double)doc->n;
    int64_t at = (p->rows - n) * p->width;
    PL_CHECK(p->features_in != PL_BF16, "noise on features as stored, %lld wide", (long long)p->width);
    for (int64_t i = 0; i < n * p->width; i++) {
        double e = width * (pl_rng_uniform(rng, (uint64_t)(from * p->width + i)) - 0.5);
        if (p->features_in == PL_F64)
            ((double *)p->features)[at + i] += e;
        else
            ((float *)p->features)[at + i] += (float)e;
    }
}

// Reads the length of the cursor's document and checks the cursor, which is a training state's or rank 0's, against it.
static pl_status find_rows(pl_feature_source *s, const int64_t cursor[2], int64_t *rows, pl_err *err) {
    PL_TRY(s->rows(s, cursor[0], rows, err));
    if (cursor[1] >= 0 && cursor[1] < *rows) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "the run stands at row %lld of a document of %lld; give another --out",
                   (long long)cursor[1], (long long)*rows);
}

// Returns how many rows of a document of `rows` rows a pack takes from the cursor on, and advances it. `taken`: rows of
// the pack so far. Returns 0 if the document must begin a new pack; *full: the pack has no room for another document.
static int64_t take_piece(int64_t rows, int64_t capacity, int64_t taken, int64_t cursor[2], bool *full) {
    int64_t left = rows - cursor[1], room = capacity - taken;
    *full = left > room;
    if (left > room && taken > 0) return 0;
    if (left > room) {
        cursor[1] += room;
        return room;
    }
    cursor[0]++;
    cursor[1] = 0;
    return left;
}

pl_status pl_pack_fill(pl_pack *p, pl_feature_source *s, int64_t end, int64_t cursor[2], const pl_feature_noise *noise,
                       pl_err *err) {
    pl_pack_clear(p);
    p->key = pl_hash(cursor, 2 * sizeof *cursor);
    for (bool full = false; !full && p->rows < p->capacity && (end < 0 || cursor[0] < end);) {
        pl_columns doc;
        int64_t    number = cursor[0], from = cursor[1], rows;
        PL_TRY(find_rows(s, cursor, &rows, err));
        int64_t n = take_piece(rows, p->capacity, p->rows, cursor, &full);
        if (n == 0 && full) break; // it begins the next pack, possibly another rank's
        PL_TRY(s->get(s, number, &doc, err));
        pl_pack_add(p, &doc, from, n);
        if (noise && noise->width > 0) add_noise(p, noise, number, &doc, from, n);
    }
    pl_pack_close(p);
    return PL_OK;
}

pl_status pl_pack_skip(const pl_pack *p, pl_feature_source *s, int64_t cursor[2], pl_err *err) {
    int64_t taken = 0, rows;
    for (bool full = false; !full && taken < p->capacity;) {
        PL_TRY(find_rows(s, cursor, &rows, err));
        taken += take_piece(rows, p->capacity, taken, cursor, &full);
    }
    return PL_OK;
}
