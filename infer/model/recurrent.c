#include "infer/model/recurrent.h"

#include "kernels/base/check.h"
#include "kernels/base/room.h"

static size_t row_bytes(const pl_recurrent *s) {
    return pl_size_mul((size_t)s->layers, (size_t)pl_gdn_kept(&s->shape), s->elem);
}

pl_status pl_recurrent_create(pl_recurrent *s, int layers, const pl_gdn_shape *shape, const pl_backend *be,
                              pl_err *err) {
    *s = (pl_recurrent){.shape = *shape, .layers = layers, .elem = pl_dtype_size(be->real), .memory = be->memory};
    if (layers == 0) return PL_OK;
    s->bytes = pl_size_mul((size_t)layers, (size_t)pl_gdn_state(shape), s->elem);
    if (!s->memory)
        PL_TRY(pl_memory_room((double)s->bytes, "the states of recurrent layers",
                              "make the number of answers at a time smaller", err));
    s->at = pl_calloc(2, sizeof *s->at);
    if (!s->at) return pl_fail(err, PL_E_MEMORY, "states of recurrent layers: out of memory");
    s->block = pl_memory_create(s->memory, PL_LOCAL, s->bytes, err);
    if (s->block) return PL_OK;
    pl_recurrent_destroy(s);
    return PL_E_MEMORY;
}

static size_t rows_bytes(const pl_recurrent *s) {
    return (size_t)s->nodes * sizeof *s->rows;
}

void pl_recurrent_destroy(pl_recurrent *s) {
    if (s->block) pl_memory_destroy(s->memory, PL_LOCAL, s->block, s->bytes);
    if (s->saved) pl_memory_destroy(s->memory, PL_LOCAL, s->saved, s->bytes);
    if (s->kept) pl_memory_destroy(s->memory, PL_LOCAL, s->kept, s->kept_bytes);
    if (s->rows) pl_memory_destroy(s->memory, PL_SHARED, s->rows, rows_bytes(s));
    pl_free(s->at);
    *s = (pl_recurrent){0};
}

pl_status pl_recurrent_keep(pl_recurrent *s, int nodes, pl_err *err) {
    if (s->layers == 0 || nodes <= 1) return PL_OK;
    PL_CHECK(!s->kept && nodes <= PL_GDN_NODES, "kept rows of %d nodes", nodes);
    s->kept_bytes = pl_size_mul(row_bytes(s), (size_t)nodes, 1);
    if (!s->memory)
        PL_TRY(pl_memory_room((double)s->kept_bytes, "the rows of draft trees in recurrent layers",
                              "take a smaller tree or fewer answers at a time", err));
    s->kept = pl_memory_create(s->memory, PL_LOCAL, s->kept_bytes, err);
    if (!s->kept) return PL_E_MEMORY;
    s->nodes = nodes;
    s->rows = pl_memory_create(s->memory, PL_SHARED, rows_bytes(s), err);
    return s->rows ? PL_OK : PL_E_MEMORY;
}

pl_status pl_recurrent_keep_saved(pl_recurrent *s, pl_err *err) {
    if (s->layers == 0) return PL_OK;
    if (!s->memory)
        PL_TRY(pl_memory_room((double)s->bytes, "the saved states of recurrent layers",
                              "take fewer answers at a time or keep no prefixes", err));
    s->saved = pl_memory_create(s->memory, PL_LOCAL, s->bytes, err);
    return s->saved ? PL_OK : PL_E_MEMORY;
}

void pl_recurrent_save(pl_ctx *ctx, const pl_recurrent *s) {
    if (!s->saved) return;
    pl_ctx_copy(ctx, s->saved, s->block, s->bytes);
    s->at[1] = s->at[0];
}

void pl_recurrent_go(pl_ctx *ctx, const pl_recurrent *s, int32_t from) {
    if (s->layers == 0) return;
    PL_CHECK(pl_recurrent_from(s, from) == from, "back to %d: the state is at %d, the saved one at %d", from, s->at[0],
             s->at[1]);
    if (from != s->at[0] && from > 0) pl_ctx_copy(ctx, s->block, s->saved, s->bytes);
    s->at[0] = from;
    if (s->at[1] > from) s->at[1] = 0; // it is of another text
}

void *pl_recurrent_layer(const pl_recurrent *s, int i) {
    return (uint8_t *)s->block + (size_t)i * (size_t)pl_gdn_state(&s->shape) * s->elem;
}

void *pl_recurrent_kept(const pl_recurrent *s, int i) {
    if (!s->kept) return NULL;
    return (uint8_t *)s->kept + (size_t)i * (size_t)s->nodes * (size_t)pl_gdn_kept(&s->shape) * s->elem;
}

bool pl_recurrent_takes(const pl_recurrent *s, int32_t n_ctx, const int32_t *path, int32_t n_path, int32_t slot) {
    if (s->layers == 0) return true;
    if (path && n_path > 1) return *s->at == n_ctx + 1 && slot > n_ctx && slot - n_ctx < s->nodes;
    return *s->at == n_ctx + n_path - 1 || (n_ctx == 0 && n_path == 1);
}

void pl_recurrent_row(const pl_recurrent *s, int32_t n_ctx, const int32_t *path, int32_t n_path, int32_t slot) {
    if (s->layers == 0) return;
    PL_CHECK(pl_recurrent_takes(s, n_ctx, path, n_path, slot), "row %d + %d in %d: the state is at %d", n_ctx, n_path,
             slot, *s->at);
    if (!path || n_path == 1) *s->at = n_ctx + n_path;
}

bool pl_recurrent_commits(const pl_recurrent *s, int32_t n_ctx, const int32_t *slot, int n) {
    if (s->layers == 0) return true;
    for (int i = 1; i < n; i++)
        if (slot[i] - n_ctx >= s->nodes) return false;
    return n >= 1 && (n == 1 || n <= s->nodes) && *s->at == n_ctx + 1;
}

void pl_recurrent_commit(pl_ctx *ctx, const pl_recurrent *s, int32_t n_ctx, const int32_t *slot, int n) {
    if (s->layers == 0) return;
    PL_CHECK(pl_recurrent_commits(s, n_ctx, slot, n), "a commit of %d rows at %d: the state is at %d", n, n_ctx,
             *s->at);
    *s->at = n_ctx + n;
    if (!s->kept) return;
    s->rows[0] = n - 1;
    for (int i = 1; i < n; i++)
        s->rows[i] = slot[i] - n_ctx;
    pl_replay(ctx, &(pl_replay_args){.state = s->block,
                                     .kept = s->kept,
                                     .layers = s->layers,
                                     .pitch = s->nodes * pl_gdn_kept(&s->shape),
                                     .most = s->nodes - 1,
                                     .rows = s->rows,
                                     .shape = s->shape});
}
