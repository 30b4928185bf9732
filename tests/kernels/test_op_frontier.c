// The next level of draft trees: against sorting by hand, with lists that end early, rows that are not there, ties.
#include "kernels/base/rng.h"
#include "kernels/op/frontier.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GROUPS = 4, VOCAB = 500, MOST = 40, NO_PARENTS = 5 };

// levels: of values, as many different ones; 0: continuous; NO_PARENTS: also rows 2 to 4 are not there.
typedef struct shape {
    int  rows[GROUPS], width[GROUPS]; // width 0: the group is not among them
    int  k, depth, levels;
    bool picks, scored, maps;
} shape;

static const shape shapes[] = {
    {{1}, {1}, 1, 0, 0, true, false, false},
    {{1, 1, 1}, {3, 0, 2}, 3, 0, 0, true, true, true},
    {{1, 1}, {5, 10}, 10, 0, 0, false, true, true},
    {{3, 2, 1, 4}, {3, 2, 4, 1}, 4, 3, 0, true, true, false},
    {{3, 2, 1, 4}, {3, 2, 4, 1}, 4, 3, 2, false, true, false},
    {{10, 10, 7}, {10, 8, 10}, 10, 5, 0, false, true, true},
    {{10, 1, 7, 10}, {10, 10, 0, 10}, 10, 2, 3, false, true, true},
    {{31, 2, 3}, {31, 31, 31}, 31, 1, 4, false, true, false},
    {{16}, {MOST}, 64, 4, 0, false, true, true},
    {{2, 3, 1}, {3, 4, 2}, 4, 2, NO_PARENTS, false, true, true},
    {{2, 3, 1}, {3, 4, 2}, 4, 2, NO_PARENTS, true, true, true},
    {{5, 5}, {20, 9}, 4, 1, 0, false, false, true}, // all equal; more rows wanted than are there
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct level {
    int               m, n, n_groups;
    pl_frontier_group group[GROUPS];
    int32_t           index[64], pick[GROUPS * MOST], d2t[VOCAB], path[64 * 8];
    int32_t           id[64 * 64];
    float             value[64 * 64], lse[64], score[64];
} level;

static uint64_t below(uint64_t i, uint64_t n) {
    return pl_rng_below(pl_rng_make(17, PL_STREAM_TEST, 3), i, n);
}

static void make(level *l, const shape *s) {
    memset(l, 0, sizeof *l);
    for (int g = 0; g < GROUPS; g++) {
        if (s->width[g]) {
            l->group[l->n_groups++] = (pl_frontier_group){
                .first = l->m, .rows = s->rows[g], .to = l->n, .width = s->width[g], .slot = 90 * g};
            for (int i = 0; i < s->width[g]; i++)
                l->pick[l->n + i] = (int32_t)below((uint64_t)(l->n + i), (uint64_t)(s->rows[g] * s->k));
            l->n += s->width[g];
        }
        l->m += s->rows[g];
    }
    for (int v = 0; v < VOCAB; v++)
        l->d2t[v] = VOCAB - 1 - v;
    for (int m = 0; m < l->m; m++) {
        int held = below((uint64_t)m, 4) == 0 ? (int)below((uint64_t)m + 100, (uint64_t)s->k + 1) : s->k;
        l->index[m] = 7 * m + 2;
        l->score[m] =
            s->depth && below((uint64_t)m + 200, 5) == 0 ? INFINITY : -0.5f * (float)below((uint64_t)m + 300, 4);
        if (s->levels == NO_PARENTS && m >= 2 && m < 5) l->score[m] = INFINITY;
        l->lse[m] = 3;
        for (int j = 0; j < s->depth; j++)
            l->path[m * s->depth + j] = 10 * m + j;
        for (int r = 0; r < s->k; r++) {
            uint64_t i = (uint64_t)(m * s->k + r);
            l->id[i] = r < held ? (int32_t)below(i + 1000, VOCAB) : -1;
            l->value[i] = s->levels ? (float)below(i + 9000, (uint64_t)s->levels)
                                    : 2 * pl_rng_normal(pl_rng_make(4, PL_STREAM_TEST, 0), i);
            if (below(i + 20000, 30) == 0) l->value[i] = below(i, 2) ? -INFINITY : 5; // 5: above the log-sum-exp
        }
        if (m % 11 == 5) l->value[m * s->k] = l->lse[m] = INFINITY; // no number
    }
}

static void build(op_run *r, const void *arg) {
    const shape *s = arg;
    level       *l = malloc(sizeof *l);
    assert_non_null(l);
    make(l, s);
    pl_frontier_args a = {.index = s->depth ? NULL : op_ids_from(r, l->index, l->m),
                          .pick = s->picks ? op_ids_from(r, l->pick, l->n) : NULL,
                          .id = op_ids_from(r, l->id, (int64_t)l->m * s->k),
                          .d2t = s->maps ? op_ids_from(r, l->d2t, VOCAB) : NULL,
                          .n_groups = l->n_groups,
                          .k = s->k,
                          .n = l->n,
                          .depth = s->depth};
    a.group = (const pl_frontier_group *)(const void *)op_ids_from(
        r, (const int32_t *)(const void *)l->group, l->n_groups * (int64_t)(sizeof *l->group / sizeof(int32_t)));
    if (s->scored) {
        a.value = op_floats_from(r, l->value, (int64_t)l->m * s->k);
        a.lse = op_floats_from(r, l->lse, l->m);
    }
    if (s->depth) {
        a.at.path = (int32_t *)(uintptr_t)op_ids_from(r, l->path, (int64_t)l->m * s->depth);
        a.at.score = (float *)(uintptr_t)op_floats_from(r, l->score, l->m);
    }
    pl_frontier(op_ctx(r), &a);
    op_out_i32(r, a.next.token, l->n);
    op_out_i32(r, a.next.row, l->n);
    op_out_i32(r, a.next.path, (int64_t)l->n * (s->depth + 1));
    op_out_i32(r, a.next.picked, l->n);
    op_out_f32(r, a.next.score, l->n);
    free(l);
}

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        op_check(build, &shapes[i], OP_NO_TAPE | OP_EXACT, "frontier %d", i);
}

typedef struct one {
    int   c;
    float s;
} one;

static int falling(const void *x, const void *y) {
    const one *a = x, *b = y;
    return a->s != b->s ? (a->s < b->s) - (a->s > b->s) : a->c - b->c;
}

// The candidates of a group that are there, the best first.
static int sorted(const level *l, const shape *s, const pl_frontier_group *g, one *out) {
    int n = 0;
    for (int f = 0; f < g->rows; f++)
        for (int r = 0; r < s->k; r++) {
            int   m = g->first + f;
            float logp = s->scored ? l->value[m * s->k + r] - l->lse[m] : 0;
            if (!(logp < 0)) logp = 0;
            if (l->id[m * s->k + r] < 0 || (s->depth && l->score[m] > 0)) continue;
            out[n++] = (one){f * s->k + r, (s->depth ? l->score[m] : 0) + logp};
        }
    qsort(out, (size_t)n, sizeof *out, falling);
    return n;
}

static void by_hand(void **state) {
    (void)state;
    static level      l;
    static one        c[PL_FRONTIER_MAX];
    const pl_backend *be;
    int               missing = 0, there = 0, nothing = 0;
    for (int b = 0; (be = op_backend(b)); b++)
        for (int i = 0; i < SHAPES; i++) {
            const shape *s = &shapes[i];
            op_run      *r = op_run_once(build, s, be, 1, OP_NO_TAPE);
            make(&l, s);
            for (int g = 0; g < l.n_groups; g++) {
                const pl_frontier_group *of = &l.group[g];
                int                      n = sorted(&l, s, of, c);
                for (int j = 0; j < of->width; j++) {
                    int to = of->to + j;
                    one want = {-1, INFINITY};
                    int like = n && !s->picks ? c[0].c : -1; // what the group's first row that is there is
                    for (int e = 0; e < n && s->picks; e++)
                        if (c[e].c == l.pick[to]) want = c[e];
                    for (int f = of->width - 1; f >= 0 && s->picks; f--)
                        for (int e = 0; e < n; e++)
                            if (c[e].c == l.pick[of->to + f]) like = c[e].c;
                    if (!s->picks && j < n) want = c[j];
                    if (want.c >= 0) like = want.c;
                    int m = of->first + (like < 0 ? 0 : like / s->k), id = like < 0 ? -1 : l.id[m * s->k + like % s->k];
                    nothing += like < 0;
                    assert_int_equal((int)op_value(r, 3, to), want.c);
                    assert_int_equal((int)op_value(r, 0, to), id >= 0 && s->maps ? l.d2t[id] : id);
                    assert_int_equal((int)op_value(r, 1, to), s->depth ? m : l.index[m]);
                    assert_true(op_value(r, 4, to) == (double)want.s);
                    for (int p = 0; p < s->depth; p++)
                        assert_int_equal((int)op_value(r, 2, to * (s->depth + 1) + p), l.path[m * s->depth + p]);
                    assert_int_equal((int)op_value(r, 2, to * (s->depth + 1) + s->depth), of->slot + j);
                    *(want.c < 0 ? &missing : &there) += 1;
                }
            }
            op_run_free(r);
        }
    assert_true(missing > 20 && there > 20 && nothing > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),
        cmocka_unit_test(by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
