#include "train/task/blocks.h"

#include "kernels/base/check.h"
#include "kernels/base/rng.h"

#include <math.h>
#include <string.h>

typedef struct room {
    pl_blocks *s;
    int        block;
} room;

static void take_arrays(void *arg) {
    const room *r = arg;
    pl_blocks  *s = r->s;
    size_t      n = (size_t)s->most, rows = n * (size_t)r->block, drafts = n * (size_t)s->drafts;
    s->row = pl_arena_alloc(&s->arrays, n * sizeof *s->row);
    s->token = pl_arena_alloc(&s->arrays, rows * sizeof *s->token);
    s->pos = pl_arena_alloc(&s->arrays, rows * sizeof *s->pos);
    s->lo = pl_arena_alloc(&s->arrays, n * sizeof *s->lo);
    s->hi = pl_arena_alloc(&s->arrays, n * sizeof *s->hi);
    s->index = pl_arena_alloc(&s->arrays, drafts * sizeof *s->index);
    s->teacher_row = pl_arena_alloc(&s->arrays, drafts * sizeof *s->teacher_row);
    s->weight = pl_arena_alloc(&s->arrays, drafts * sizeof *s->weight);
    s->argmax = pl_arena_alloc(&s->arrays, drafts * sizeof *s->argmax);
    s->before = pl_arena_alloc(&s->arrays, drafts * sizeof *s->before);
    s->accepted = pl_arena_alloc(&s->arrays, drafts * sizeof *s->accepted);
}

pl_status pl_blocks_init(pl_blocks *s, const pl_backbone *b, int64_t most, const pl_backend *be, pl_err *err) {
    PL_CHECK(pl_backbone_in_blocks(b->kind) && most >= 1 && most * b->block <= INT32_MAX, "%lld blocks of %d",
             (long long)most, b->block);
    *s = (pl_blocks){.most = most, .drafts = b->drafts};
    return pl_arena_init_shared(&s->arrays, "training blocks", be->memory, take_arrays, &(room){s, b->block}, err);
}

void pl_blocks_fini(pl_blocks *s) {
    pl_arena_fini(&s->arrays);
    *s = (pl_blocks){0};
}

int64_t pl_blocks_eligible(const pl_pack *p, int32_t *row) {
    int64_t n = 0;
    for (int64_t t = 0; t < p->rows; t++)
        if (p->weight[t] > 0) row[n++] = (int32_t)t;
    return n;
}

// Knuth, The Art of Computer Programming, volume 2, 3.4.2, algorithm S.
int64_t pl_blocks_draw(int32_t *row, int64_t n, int64_t most, uint64_t seed, uint64_t key) {
    pl_rng  rng = pl_rng_make(seed, PL_STREAM_ANCHOR, key);
    int64_t kept = 0;
    if (n <= most) return n;
    for (int64_t i = 0; i < n; i++)
        if (pl_rng_below(rng, (uint64_t)i, (uint64_t)(n - i)) < (uint64_t)(most - kept)) row[kept++] = row[i];
    return kept;
}

void pl_blocks_set(pl_blocks *s, const pl_backbone *b, const pl_pack *p, const int32_t *row, int64_t n) {
    PL_CHECK(n <= s->most, "%lld blocks, room for %lld", (long long)n, (long long)s->most);
    s->n = n;
    memcpy(s->row, row, (size_t)n * sizeof *row);
    for (int64_t i = 0; i < n; i++) {
        int32_t t = row[i];
        s->lo[i] = p->lo[t];
        s->hi[i] = t + 1;
        for (int j = 0; j < b->block; j++) {
            int64_t at = p->pos[t] + 1 + j;
            s->token[i * b->block + j] = j == 0 ? p->token[t] : b->config.block.mask_token;
            s->pos[i * b->block + j] = (int32_t)(at < p->positions ? at : p->positions - 1);
        }
        for (int k = 0; k < s->drafts; k++) {
            s->index[k * n + i] = (int32_t)(i * b->block + b->first + k);
            s->before[k * n + i] = p->token[k * p->rows + t];
            s->teacher_row[k * n + i] = p->teacher_row[k * p->rows + t];
            s->weight[k * n + i] = p->weight[k * p->rows + t];
        }
    }
}

void pl_blocks_pace(const pl_blocks *s, float *weight, const pl_tensor *loss, double alpha) {
    for (int64_t i = 0; i < s->n; i++) {
        double prefix[PL_MAX_UNROLL], product = 1, sum = 0;
        for (int k = 0; k < s->drafts; k++) {
            bool counts = weight[k * s->n + i] > 0;
            if (counts) product *= (1 - alpha) * exp(-pl_real_at(loss, k * s->n + i)) + alpha;
            prefix[k] = counts ? product : 0;
        }
        for (int k = s->drafts - 1; k >= 0; k--) {
            sum += prefix[k];
            if (weight[k * s->n + i] > 0) weight[k * s->n + i] = (float)sum;
        }
    }
}
