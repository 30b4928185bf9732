#include "data/dataset/columns.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"

#include <string.h>

typedef enum span { ONE, D, TAPS, TOP } span; // what a row's width follows from

static const struct {
    const char *name;
    pl_element  element;
    span        span;
    size_t      at; // of the struct
} columns[PL_COLUMNS] = {
    [PL_COLUMN_TOKENS] = {"tokens", PL_ELEMENT_I32, ONE, offsetof(pl_columns, tokens)},
    [PL_COLUMN_LOSS_MASK] = {"loss_mask", PL_ELEMENT_U8, ONE, offsetof(pl_columns, loss_mask)},
    [PL_COLUMN_ARGMAX] = {"argmax", PL_ELEMENT_I32, ONE, offsetof(pl_columns, argmax)},
    [PL_COLUMN_FEATURES] = {"features", PL_ELEMENT_BF16, TAPS, offsetof(pl_columns, features)},
    [PL_COLUMN_LAST_HIDDEN] = {"last_hidden", PL_ELEMENT_BF16, D, offsetof(pl_columns, last_hidden)},
    [PL_COLUMN_DEPTH] = {"depth", PL_ELEMENT_U8, ONE, offsetof(pl_columns, depth)},
    [PL_COLUMN_BEAM] = {"beam", PL_ELEMENT_U8, ONE, offsetof(pl_columns, beam)},
    [PL_COLUMN_HELD_OUT] = {"held_out", PL_ELEMENT_U8, ONE, offsetof(pl_columns, held_out)},
    [PL_COLUMN_HIDDEN] = {"hidden", PL_ELEMENT_BF16, D, offsetof(pl_columns, hidden)},
    [PL_COLUMN_OUTPUT] = {"output", PL_ELEMENT_BF16, D, offsetof(pl_columns, output)},
    [PL_COLUMN_TOP_ID] = {"top_id", PL_ELEMENT_I32, TOP, offsetof(pl_columns, top_id)},
    [PL_COLUMN_TOP_PROB] = {"top_prob", PL_ELEMENT_F32, TOP, offsetof(pl_columns, top_prob)},
};

const char *pl_column_name(pl_column c) {
    return columns[c].name;
}

pl_element pl_column_element(pl_column c) {
    return columns[c].element;
}

size_t pl_element_size(pl_element e) {
    static const size_t size[] = {
        [PL_ELEMENT_U8] = 1, [PL_ELEMENT_I32] = 4, [PL_ELEMENT_BF16] = 2, [PL_ELEMENT_F32] = 4};
    return size[e];
}

bool pl_column_wide(pl_column c) {
    return columns[c].span != ONE;
}

size_t pl_column_width(pl_column c, const pl_columns_shape *s) {
    bool traces = c >= PL_COLUMN_DEPTH, both = c == PL_COLUMN_TOKENS;
    if (!both && traces != (s->top > 0)) return 0;
    switch (columns[c].span) {
    case ONE: return 1;
    case D: return (size_t)s->d;
    case TAPS: return (size_t)(s->taps * s->d);
    case TOP: break;
    }
    return (size_t)s->top;
}

// The members are pointers of several types: their bytes are moved.
void *pl_columns_at(const pl_columns *doc, pl_column c) {
    void *p;
    memcpy(&p, (const char *)doc + columns[c].at, sizeof p);
    return p;
}

static size_t row_bytes(pl_column c, const pl_columns_shape *s) {
    return pl_column_width(c, s) * pl_element_size(columns[c].element);
}

static pl_status grow(pl_columns *doc, pl_column c, size_t row, int64_t rows, pl_err *err) {
    if (row == 0) return PL_OK;
    void *p = pl_realloc(pl_columns_at(doc, c), pl_size_mul((size_t)rows, row, 1));
    if (!p) return pl_fail(err, PL_E_MEMORY, "document of %lld rows: out of memory", (long long)rows);
    memcpy((char *)doc + columns[c].at, &p, sizeof p);
    return PL_OK;
}

size_t pl_columns_row_bytes(const pl_columns_shape *s) {
    size_t bytes = 0;
    for (pl_column c = 0; c < PL_COLUMNS; c++)
        bytes += row_bytes(c, s);
    return bytes;
}

pl_status pl_columns_reserve(pl_columns *doc, const pl_columns_shape *s, int64_t rows, pl_err *err) {
    if (rows <= doc->room) return PL_OK;
    for (pl_column c = 0; c < PL_COLUMNS; c++)
        PL_TRY(grow(doc, c, row_bytes(c, s), rows, err));
    doc->room = rows;
    return PL_OK;
}

pl_status pl_columns_copy(pl_columns *to, const pl_columns *from, const pl_columns_shape *s, int64_t rows,
                          pl_err *err) {
    PL_CHECK(rows >= 0 && rows <= from->n, "%lld rows of %lld", (long long)rows, (long long)from->n);
    *to = (pl_columns){.n = rows, .room = rows};
    for (pl_column c = 0; c < PL_COLUMNS; c++) {
        const void *column = pl_columns_at(from, c);
        if (!column) continue;
        pl_status st = grow(to, c, row_bytes(c, s), rows, err);
        if (st != PL_OK) {
            pl_columns_free(to);
            return st;
        }
        if (rows > 0 && pl_columns_at(to, c)) memcpy(pl_columns_at(to, c), column, (size_t)rows * row_bytes(c, s));
    }
    return PL_OK;
}

const char *pl_columns_broken(const pl_columns *doc, const pl_columns_shape *s, int64_t first, int64_t n,
                              int32_t vocab) {
    const char *bad = NULL;
    for (int64_t i = first; i < first + n; i++) {
        if (doc->tokens && (doc->tokens[i] < 0 || doc->tokens[i] >= vocab)) bad = "a token";
        if (doc->argmax && (doc->argmax[i] < 0 || doc->argmax[i] >= vocab)) bad = "an argmax";
        if (doc->loss_mask && doc->loss_mask[i] > 1) bad = "a loss mask";
        if (doc->held_out && s->top && doc->held_out[i] > 1) bad = "a mark of held-out rows";
    }
    for (int64_t i = first * s->top; i < (first + n) * s->top; i++) {
        if (doc->top_id && (doc->top_id[i] < 0 || doc->top_id[i] >= vocab)) bad = "one of the best ids";
        if (doc->top_prob && !(doc->top_prob[i] >= 0 && doc->top_prob[i] <= 1.0001f)) bad = "a probability";
    }
    return bad;
}

void pl_columns_free(pl_columns *doc) {
    for (pl_column c = 0; c < PL_COLUMNS; c++)
        pl_free(pl_columns_at(doc, c));
    *doc = (pl_columns){0};
}
