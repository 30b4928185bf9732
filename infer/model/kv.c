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

// Rows before the window's first: up to the start of its group, and one more group. A device that finds every key of a
// window in a tree's branch reads the group before it all the same, and gives it no weight.
enum { BEFORE = 2 * PL_ATTN_GROUP };

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

pl_status pl_kv_create_window(pl_kv *kv, int layers, int slots, const pl_kv_window *window, const pl_layer_shape *s,
                              const pl_backend *be, pl_err *err) {
    int64_t held = (int64_t)window->seen + BEFORE + window->most;
    bool    bounded = window->seen > 0 && held < slots;
    PL_TRY(pl_kv_create(kv, layers, bounded ? (int)held : slots, s, be, err));
    if (bounded) kv->window = *window;
    return PL_OK;
}

void pl_kv_destroy(pl_kv *kv) {
    if (kv->block) pl_memory_destroy(kv->memory, PL_LOCAL, kv->block, kv->bytes);
    pl_recurrent_destroy(&kv->state);
    *kv = (pl_kv){0};
}

static size_t row_bytes(const pl_kv *kv) {
    return (size_t)kv->width * kv->elem;
}
static size_t plane_bytes(const pl_kv *kv) {
    return (size_t)kv->slots * row_bytes(kv);
}
// Returns the address of slot 0 of the i-th cached layer's keys, which lies before the memory if base > 0.
static uint8_t *slots_of(const pl_kv *kv, int i) {
    return (uint8_t *)((uintptr_t)kv->block + 2 * (size_t)i * plane_bytes(kv) - (size_t)kv->base * row_bytes(kv));
}
void *pl_kv_k(const pl_kv *kv, int layer) {
    return slots_of(kv, count_layers(kv, layer, false));
}
void *pl_kv_v(const pl_kv *kv, int layer) {
    return (uint8_t *)pl_kv_k(kv, layer) + plane_bytes(kv);
}

void pl_kv_row(const pl_kv *kv, pl_kvrow *row, int64_t m, int32_t n_ctx, const int32_t *path, int32_t n_path,
               int32_t slot) {
    PL_CHECK(slot >= kv->base && slot - kv->base < kv->slots, "slot %d of %d from %d", slot, kv->slots, kv->base);
    pl_recurrent_row(&kv->state, n_ctx, path, n_path, slot);
    int cached = 0, recurrent = 0;
    for (int l = 0; l < kv->layers; l++) {
        bool     state = kv->recurrent && kv->recurrent[l];
        pl_kvrow of = {.path = path, .n_ctx = n_ctx, .n_path = n_path, .slot = slot, .dtype = kv->dtype};
        of.k = state ? pl_recurrent_layer(&kv->state, recurrent) : slots_of(kv, cached);
        of.v = state ? pl_recurrent_kept(&kv->state, recurrent) : (uint8_t *)of.k + plane_bytes(kv);
        row[l * m] = of;
        recurrent += state;
        cached += !state;
    }
}

void pl_kv_move(pl_ctx *ctx, pl_kv *kv, int32_t n_ctx, const int32_t *from, int n) {
    size_t   row = row_bytes(kv), planes = 2 * (size_t)count_layers(kv, kv->layers, false);
    uint8_t *base = slots_of(kv, 0);
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

// Returns the first slot that is held before rows at position `first` on: at most window.seen - 1 + BEFORE - 1 earlier.
static int32_t lowest_of(const pl_kv *kv, int32_t first) {
    int32_t seen = first - kv->window.seen + 1, at = seen / PL_ATTN_GROUP * PL_ATTN_GROUP - PL_ATTN_GROUP;
    return seen > 0 && at > 0 ? at : 0;
}

void pl_kv_reach(pl_ctx *ctx, pl_kv *kv, int32_t first, int count, int drafted) {
    if (kv->window.seen == 0) return;
    int32_t low = lowest_of(kv, first), n = first - low, by = low - kv->base;
    bool    back = first < kv->next && first < kv->whole;
    bool    full = first + count + drafted > kv->base + kv->slots;
    PL_CHECK(count + drafted <= kv->window.most, "%d rows and %d drafted ones, %d at a time", count, drafted,
             kv->window.most);
    kv->next = first + count;
    if (!back && !full) return;
    size_t   row = row_bytes(kv), planes = 2 * (size_t)count_layers(kv, kv->layers, false);
    uint8_t *to = kv->block;
    kv->base = low;
    if (back) {
        kv->whole = first > 0 ? first + kv->window.refill : 0;
        for (size_t i = 0; i < planes; i++)
            pl_ctx_zero(ctx, to + i * plane_bytes(kv), (size_t)n * row);
        return;
    }
    if (kv->whole < first) kv->whole = first;
    // Each copy ends where its source begins.
    for (int32_t some; n > 0; n -= some, to += (size_t)some * row) {
        some = n < by ? n : by;
        pl_ctx_copy_pieces(ctx, to, to + (size_t)by * row, (size_t)some * row, plane_bytes(kv), planes);
    }
}

int32_t pl_kv_from(const pl_kv *kv, int32_t n, int32_t end) {
    int32_t enough = end - kv->window.refill;
    if (n >= kv->whole || n <= enough) return n;
    return enough > 0 ? enough : 0;
}
