#include "infer/model/kv.h"

#include "kernels/base/check.h"
#include "kernels/base/room.h"

// Returns how many of the layers before `layer` have keys and values, or (recurrent) a state.
static int count_layers(const pl_kv *kv, int layer, bool recurrent) {
    int n = 0;
    for (int l = 0; l < layer; l++)
        n += (kv->recurrent && kv->recurrent[l]) == recurrent;
    return n;
}

pl_status pl_kv_create(pl_kv *kv, int layers, int slots, const pl_layer_shape *s, const pl_backend *be, pl_err *err) {
    *kv = (pl_kv){.layers = layers,
                  .slots = slots,
                  .width = (int64_t)s->nkv * s->hd,
                  .elem = pl_kv_elem(s, be->real),
                  .dtype = s->kv,
                  .memory = be->memory,
                  .recurrent = s->recurrent};
    int cached = count_layers(kv, layers, false);
    PL_TRY(pl_recurrent_create(&kv->state, layers - cached, &s->delta, be, err));
    if (cached == 0) return PL_OK; // a drafter without layers
    kv->bytes = pl_size_mul(pl_size_mul((size_t)cached, (size_t)slots, 2), (size_t)kv->width, kv->elem);
    if (!kv->memory)
        PL_TRY(pl_memory_room((double)kv->bytes, "the cache of keys and values",
                              "make the context (prompt and new tokens) or the number of answers at a time smaller, or "
                              "hold it in bf16",
                              err));
    kv->block = pl_memory_create(kv->memory, PL_LOCAL, kv->bytes, err);
    return kv->block ? PL_OK : PL_E_MEMORY;
}

void pl_kv_destroy(pl_kv *kv) {
    if (kv->block) pl_memory_destroy(kv->memory, PL_LOCAL, kv->block, kv->bytes);
    pl_recurrent_destroy(&kv->state);
    *kv = (pl_kv){0};
}

static size_t plane_bytes(const pl_kv *kv) {
    return (size_t)kv->slots * (size_t)kv->width * kv->elem;
}
void *pl_kv_k(const pl_kv *kv, int layer) {
    return (uint8_t *)kv->block + 2 * (size_t)count_layers(kv, layer, false) * plane_bytes(kv);
}
void *pl_kv_v(const pl_kv *kv, int layer) {
    return (uint8_t *)pl_kv_k(kv, layer) + plane_bytes(kv);
}

void pl_kv_row(const pl_kv *kv, pl_kvrow *row, int64_t m, int32_t n_ctx, const int32_t *path, int32_t n_path,
               int32_t slot) {
    PL_CHECK(slot < kv->slots, "slot %d of %d", slot, kv->slots);
    pl_recurrent_row(&kv->state, n_ctx, path, n_path, slot);
    int      cached = 0, recurrent = 0;
    uint8_t *plane = kv->block;
    for (int l = 0; l < kv->layers; l++) {
        bool     state = kv->recurrent && kv->recurrent[l];
        pl_kvrow of = {.path = path, .n_ctx = n_ctx, .n_path = n_path, .slot = slot, .dtype = kv->dtype};
        of.k = state ? pl_recurrent_layer(&kv->state, recurrent) : plane + 2 * (size_t)cached * plane_bytes(kv);
        of.v = state ? pl_recurrent_kept(&kv->state, recurrent) : (uint8_t *)of.k + plane_bytes(kv);
        row[l * m] = of;
        recurrent += state;
        cached += !state;
    }
}

void pl_kv_move(pl_ctx *ctx, pl_kv *kv, int32_t n_ctx, const int32_t *from, int n) {
    size_t   row = (size_t)kv->width * kv->elem, planes = 2 * (size_t)count_layers(kv, kv->layers, false);
    uint8_t *base = kv->block;
    pl_recurrent_commit(ctx, &kv->state, n_ctx, from, n);
    for (int i = 0; i < n; i++) {
        // Ascending positions never overtake their destination, so moving them in order overwrites nothing that is
        // still needed.
        PL_CHECK(from[i] >= n_ctx + i, "slot %d moves to %d", from[i], n_ctx + i);
        if (from[i] != n_ctx + i && planes > 0)
            pl_ctx_copy_pieces(ctx, base + (size_t)(n_ctx + i) * row, base + (size_t)from[i] * row, row,
                               plane_bytes(kv), planes);
    }
}
