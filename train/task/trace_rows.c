#include "train/task/trace_rows.h"

#include "kernels/base/arena.h"
#include "kernels/base/log.h"
#include "kernels/base/rng.h"

static pl_status divide(pl_trace_rows *t, const char *dir, pl_err *err) {
    int64_t docs = pl_dataset_docs(t->ds);
    for (int s = 0; s < PL_TRACE_SIDES; s++)
        t->member[s] = pl_calloc((size_t)docs + 1, sizeof **t->member);
    t->order = pl_calloc((size_t)docs + 1, sizeof *t->order);
    if (!t->member[PL_TRACE_TRAIN] || !t->member[PL_TRACE_HELD] || !t->order)
        return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    for (int64_t i = 0; i < docs; i++) {
        int64_t first, n;
        uint8_t held;
        PL_TRY(pl_dataset_doc(t->ds, i, &first, &n, err));
        PL_TRY(pl_dataset_read(t->ds, first, 1, &(pl_columns){.held_out = &held}, err));
        t->member[held][t->docs[held]++] = i;
    }
    if (t->docs[PL_TRACE_TRAIN] == 0) return pl_fail(err, PL_E_INPUT, "%s: no document is for training", dir);
    if (t->docs[PL_TRACE_HELD] == 0)
        pl_log_warn("%s: no document is held out, so that it is not measured what the router's shortlists hold", dir);
    return PL_OK;
}

static void take_arrays(void *arg) {
    pl_trace_rows *t = arg;
    size_t         n = (size_t)t->capacity, reals = pl_size_mul(n, (size_t)t->d, pl_dtype_size(t->real));
    t->tokens = pl_arena_alloc(&t->arrays, n * sizeof *t->tokens);
    t->hidden = pl_arena_alloc(&t->arrays, reals);
    t->output = pl_arena_alloc(&t->arrays, reals);
}

static pl_status make_room(pl_trace_rows *t, const char *dir, const pl_backend *be, pl_err *err) {
    size_t n = (size_t)t->capacity, top = (size_t)t->top;
    PL_TRY(pl_arena_init_shared(&t->arrays, "trace rows", be->memory, take_arrays, t, err));
    t->depth = pl_calloc(n, 1);
    t->top_id = pl_calloc(n, top * sizeof *t->top_id);
    t->top_prob = pl_calloc(n, top * sizeof *t->top_prob);
    t->bf16 = pl_calloc(n, (size_t)t->d * sizeof *t->bf16);
    return t->depth && t->top_id && t->top_prob && t->bf16
               ? PL_OK
               : pl_fail(err, PL_E_MEMORY, "%s: out of memory for %lld rows", dir, (long long)t->capacity);
}

pl_status pl_trace_rows_open(pl_trace_rows *t, const char *dir, const pl_dataset_attrs *want, uint64_t seed,
                             int64_t capacity, const pl_backend *be, pl_err *err) {
    *t = (pl_trace_rows){.seed = seed, .capacity = capacity, .real = be->real, .epoch = -1};
    pl_status st = pl_dataset_open(&t->ds, dir, &(pl_dataset_open_options){.want = want}, err);
    if (st == PL_OK) {
        t->d = pl_dataset_get_attrs(t->ds)->d;
        t->top = pl_dataset_get_attrs(t->ds)->top;
        st = divide(t, dir, err);
    }
    if (st == PL_OK) st = make_room(t, dir, be, err);
    if (st != PL_OK) pl_trace_rows_close(t);
    return st;
}

void pl_trace_rows_close(pl_trace_rows *t) {
    void *owned[] = {
        t->member[PL_TRACE_TRAIN], t->member[PL_TRACE_HELD], t->order, t->depth, t->top_id, t->top_prob, t->bf16};
    if (t->ds) pl_dataset_close(t->ds);
    pl_arena_fini(&t->arrays);
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
    *t = (pl_trace_rows){0};
}

static int64_t document(pl_trace_rows *t, int side, int64_t at) {
    int64_t docs = t->docs[side];
    if (side == PL_TRACE_HELD) return t->member[side][at];
    if (at / docs != t->epoch) {
        t->epoch = at / docs;
        pl_rng_permute(pl_rng_make(t->seed, PL_STREAM_SHUFFLE, (uint64_t)t->epoch), t->order, docs);
    }
    return t->member[side][t->order[at % docs]];
}

static void widen(const pl_trace_rows *t, void *to, int64_t at, int64_t n) {
    const uint16_t *from = t->bf16;
    for (int64_t i = 0; i < n * t->d; i++)
        if (t->real == PL_F64)
            ((double *)to)[at * t->d + i] = (double)pl_bf16_to_f32(from[i]);
        else
            ((float *)to)[at * t->d + i] = pl_bf16_to_f32(from[i]);
}

// Reads rows [first, first + n) of the dataset to row `at` of the step.
static pl_status take(pl_trace_rows *t, int64_t at, int64_t first, int64_t n, pl_err *err) {
    pl_columns to = {.tokens = t->tokens + at,
                     .depth = t->depth + at,
                     .top_id = t->top_id + at * t->top,
                     .top_prob = t->top_prob + at * t->top,
                     .hidden = t->bf16};
    PL_TRY(pl_dataset_read(t->ds, first, n, &to, err));
    widen(t, t->hidden, at, n);
    PL_TRY(pl_dataset_read(t->ds, first, n, &(pl_columns){.output = t->bf16}, err));
    widen(t, t->output, at, n);
    return PL_OK;
}

// Finds the next rows for a step that has `taken` rows: *n rows from *first of the dataset. Advances the cursor.
static pl_status next_rows(pl_trace_rows *t, int side, int64_t taken, int64_t cursor[2], int64_t *first, int64_t *n,
                           pl_err *err) {
    int64_t rows, room = t->capacity - taken;
    PL_TRY(pl_dataset_doc(t->ds, document(t, side, cursor[0]), first, &rows, err));
    if (cursor[1] < 0 || cursor[1] >= rows)
        return pl_fail(err, PL_E_INPUT, "the run stands at row %lld of a document of %lld; give another --out",
                       (long long)cursor[1], (long long)rows);
    *n = rows - cursor[1] < room ? rows - cursor[1] : room;
    *first += cursor[1];
    cursor[1] += *n;
    if (cursor[1] == rows) {
        cursor[0]++;
        cursor[1] = 0;
    }
    return PL_OK;
}

pl_status pl_trace_rows_fill(pl_trace_rows *t, int side, int64_t cursor[2], pl_err *err) {
    int64_t first, n;
    t->rows = 0;
    while (t->rows < t->capacity && (side == PL_TRACE_TRAIN || cursor[0] < t->docs[side])) {
        PL_TRY(next_rows(t, side, t->rows, cursor, &first, &n, err));
        PL_TRY(take(t, t->rows, first, n, err));
        t->rows += n;
    }
    return PL_OK;
}

pl_status pl_trace_rows_skip(pl_trace_rows *t, int64_t cursor[2], pl_err *err) {
    int64_t first, n;
    for (int64_t taken = 0; taken < t->capacity; taken += n)
        PL_TRY(next_rows(t, PL_TRACE_TRAIN, taken, cursor, &first, &n, err));
    return PL_OK;
}
