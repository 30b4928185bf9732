#include "checkpoints/names.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/hash.h"
#include <string.h>

// The slot where name is, or the empty one where it belongs.
static int64_t slot_of(const pl_names *s, const char *name) {
    int64_t mask = s->slots - 1, i = (int64_t)(pl_hash_key(name, strlen(name)) & (uint64_t)mask);
    while (s->slot[i] && strcmp(s->name[s->slot[i] - 1], name) != 0)
        i = (i + 1) & mask;
    return i;
}

static bool grow(pl_names *s) {
    int64_t      cap = s->cap ? 2 * s->cap : 64, slots = 2 * cap;
    const char **name = pl_realloc(s->name, (size_t)cap * sizeof *name);
    if (!name) return false;
    s->name = name; // still holds s->cap names should the next line fail
    uint32_t *slot = pl_calloc((size_t)slots, sizeof *slot);
    if (!slot) return false;
    pl_free(s->slot);
    s->slot = slot;
    s->slots = slots;
    s->cap = cap;
    for (int64_t i = 0; i < s->count; i++)
        s->slot[slot_of(s, s->name[i])] = (uint32_t)(i + 1);
    return true;
}

int64_t pl_names_add(pl_names *s, const char *name) {
    PL_CHECK(s->count < UINT32_MAX / 4, "%ld names", (long)s->count);
    if (s->count == s->cap && !grow(s)) return -2;
    int64_t at = slot_of(s, name);
    if (s->slot[at]) return -1;
    s->name[s->count++] = name;
    s->slot[at] = (uint32_t)s->count;
    return s->count - 1;
}

int64_t pl_names_find(const pl_names *s, const char *name) {
    return s->slots ? (int64_t)s->slot[slot_of(s, name)] - 1 : -1;
}

void pl_names_fini(pl_names *s) {
    pl_free(s->name);
    pl_free(s->slot);
    *s = (pl_names){0};
}
