// The gated delta rule and its convolution: every backend against double; the definition, row by row; the same bits of
// a text however it is divided, in chains and in trees whose accepted nodes are replayed.
#include "kernels/op/deltarule.h"
#include "kernels/op/elementwise.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEXT = 12, SIDE = 7, ROWS = TEXT + SIDE, NODES = 16 };

static const pl_gdn_shape shapes[] = {{1, 1, 1, 1, 1},   {2, 4, 8, 12, 4}, {1, 3, 5, 64, 3},
                                      {2, 2, 16, 80, 4}, {3, 3, 7, 33, 8}, {1, 2, 130, 9, 4}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

// A text of TEXT rows in stretches; the last may be a tree around its chain, with SIDE more nodes.
typedef struct way {
    pl_gdn_shape shape;
    int          stretch[TEXT + 1]; // rows, ended by 0
    bool         tree;
} way;

typedef struct inputs {
    pl_tensor x, gates, w, a_log, dt, state, kept;
    int32_t  *rows; // to replay
} inputs;

static inputs make_inputs(op_run *r, const pl_gdn_shape *s) {
    int64_t C = pl_gdn_channels(s);
    return (inputs){.x = op_constant(r, ROWS, C, 1),
                    .gates = op_constant(r, ROWS, 2 * s->nv, 1),
                    .w = pl_tensor_1d(op_constant(r, C, s->taps, 0.5).data, op_ctx(r)->be->real, C * s->taps),
                    .a_log = pl_tensor_1d(op_constant(r, 1, s->nv, 1).data, op_ctx(r)->be->real, s->nv),
                    .dt = pl_tensor_1d(op_constant(r, 1, s->nv, 1).data, op_ctx(r)->be->real, s->nv),
                    .state = op_cache(r, 1, pl_gdn_state(s), PL_F32),
                    .kept = op_cache(r, NODES, pl_gdn_kept(s), PL_F32),
                    .rows = op_bytes(r, (1 + NODES) * sizeof(int32_t))};
}

static pl_tensor run_rows(op_run *r, const inputs *in, const pl_gdn_shape *s, const int32_t *index, int n,
                          const pl_kvrow *row) {
    pl_ctx   *ctx = op_ctx(r);
    pl_tensor x = pl_shortconv(ctx, pl_gather(ctx, in->x, index, n), in->w, row, s);
    return pl_deltarule(ctx, x, pl_gather(ctx, in->gates, index, n), in->a_log, in->dt, row, s);
}

static void replay(op_run *r, const inputs *in, const pl_gdn_shape *s, const int32_t *node, int n) {
    in->rows[0] = n;
    memcpy(in->rows + 1, node, (size_t)n * sizeof *node);
    pl_replay(
        op_ctx(r),
        &(pl_replay_args){
            .state = in->state.data, .kept = in->kept.data, .layers = 1, .most = NODES, .rows = in->rows, .shape = *s});
}

// Rows of a chain from position `at` on.
static void set_chain(const inputs *in, pl_kvrow *row, int32_t *index, int at, int n) {
    for (int i = 0; i < n; i++) {
        index[i] = at + i;
        row[i] = (pl_kvrow){.k = in->state.data, .v = in->kept.data, .n_ctx = at, .n_path = i + 1, .slot = at + i};
    }
}

// Nodes: the text's from `at` on are a path of n; behind the i-th of them, in between, hang other rows, some on each
// other. on_path gets the nodes of the path.
static int set_tree(const inputs *in, pl_kvrow *row, int32_t *index, int32_t *paths, int at, int n, int32_t *on_path) {
    static const int hang[SIDE] = {0, 0, 1, 1, 2, 3, 3};
    int              parent[NODES], nodes = 0, side[SIDE], sides = 0;
    for (int i = 0; i < n; i++) {
        parent[nodes] = i ? on_path[i - 1] : -1;
        index[nodes] = at + i;
        on_path[i] = nodes++;
        for (int k = 0; k < SIDE; k++) {
            if (hang[k] != i || nodes + n - i > NODES) continue;
            parent[nodes] = k % 2 && sides > 0 ? side[sides - 1] : on_path[i];
            index[nodes] = TEXT + k;
            side[sides++] = nodes++;
        }
    }
    for (int m = 0; m < nodes; m++) {
        int32_t *path = paths + (ptrdiff_t)m * NODES;
        int      depth = 0;
        for (int p = m; p >= 0; p = parent[p])
            depth++;
        for (int p = m, d = depth; p >= 0; p = parent[p])
            path[--d] = at + p;
        row[m] = (pl_kvrow){
            .k = in->state.data, .v = in->kept.data, .path = path, .n_ctx = at, .n_path = depth, .slot = at + m};
    }
    return nodes;
}

// Outputs: o of each stretch (of a tree: of the path), then the state.
static void build(op_run *r, const void *arg) {
    const way *w = arg;
    inputs     in = make_inputs(r, &w->shape);
    pl_kvrow  *row = op_bytes(r, NODES * sizeof *row);
    int32_t   *index = op_bytes(r, NODES * sizeof *index), *paths = op_bytes(r, NODES * NODES * sizeof *paths);
    int32_t   *on_path = op_bytes(r, NODES * sizeof *on_path);
    for (int i = 0, at = 0; w->stretch[i]; at += w->stretch[i++]) {
        int n = w->stretch[i];
        if (!w->tree || w->stretch[i + 1]) {
            set_chain(&in, row, index, at, n);
            op_out(r, run_rows(r, &in, &w->shape, index, n, row));
            continue;
        }
        int       nodes = set_tree(&in, row, index, paths, at, n, on_path);
        pl_tensor o = run_rows(r, &in, &w->shape, index, nodes, row);
        op_out(r, pl_gather(op_ctx(r), o, on_path, n));
        replay(r, &in, &w->shape, on_path + 1, n - 1);
    }
    op_out(r, in.state);
}

static const way ways[] = {{.stretch = {12}},
                           {.stretch = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
                           {.stretch = {5, 1, 6}},
                           {.stretch = {7, 5}, .tree = true},
                           {.stretch = {3, 9}, .tree = true},
                           {.stretch = {11, 1}, .tree = true}};
enum { WAYS = sizeof ways / sizeof *ways };

static void all_backends(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int k = 0; k < WAYS; k++) {
            way w = ways[k];
            w.shape = shapes[i];
            op_check(build, &w, OP_NO_TAPE, "shape %d, way %d", i, k);
        }
}

static double value_at(const op_run *r, const way *w, int64_t width, int m, int64_t i) {
    int out = 0;
    for (; m >= w->stretch[out]; m -= w->stretch[out++])
        ;
    return op_value(r, out, m * width + i);
}

static int last_output(const way *w) {
    int out = 0;
    while (w->stretch[out])
        out++;
    return out;
}

// More sessions than a device computes at a time, of one row or two, on states that texts have left.
static void build_many(op_run *r, const void *arg) {
    enum { SESSIONS = 40, EACH = 2, MANY = SESSIONS * (EACH + 1) / 2 };
    const pl_gdn_shape *s = arg;
    pl_ctx             *ctx = op_ctx(r);
    int64_t             C = pl_gdn_channels(s);
    pl_dtype            real = ctx->be->real;
    pl_tensor           x = op_constant(r, MANY, C, 1), gates = op_constant(r, MANY, 2 * s->nv, 1);
    pl_tensor           w = pl_tensor_1d(op_constant(r, C, s->taps, 0.5).data, real, C * s->taps);
    pl_tensor           rates = pl_tensor_1d(op_constant(r, 1, s->nv, 1).data, real, s->nv);
    pl_tensor           states = op_cache(r, SESSIONS, pl_gdn_state(s), PL_F32);
    pl_kvrow           *row = op_bytes(r, MANY * sizeof *row);
    for (int i = 0, m = 0; i < SESSIONS; i++) {
        uint8_t *own = (uint8_t *)states.data + (size_t)(i * pl_gdn_state(s)) * pl_dtype_size(real);
        for (int k = 0; k < 1 + i % EACH; k++)
            row[m++] = (pl_kvrow){.k = own, .n_ctx = 3, .n_path = k + 1, .slot = 3 + k};
    }
    op_out(r, pl_deltarule(ctx, pl_shortconv(ctx, x, w, row, s), gates, rates, rates, row, s));
    op_out(r, states);
}

static void many_sessions(void **state) {
    (void)state;
    const pl_gdn_shape s = {1, 2, 5, 3, 3};
    op_check(build_many, &s, OP_NO_TAPE, "many sessions");
}

// Each backend gives a text the same bits in every way, and leaves the same state.
static void same_bits(void **state) {
    (void)state;
    const pl_backend *be;
    for (int i = 0; i < SHAPES; i++)
        for (int b = 0; (be = op_backend(b)); b++) {
            if (!be->fwd[PL_OP_DELTARULE]) continue;
            const pl_gdn_shape *s = &shapes[i];
            way                 first = ways[0];
            first.shape = *s;
            op_run *want = op_run_once(build, &first, be, 1, OP_NO_TAPE);
            for (int k = 1; k < WAYS; k++) {
                way w = ways[k];
                w.shape = *s;
                op_run *got = op_run_once(build, &w, be, 1 + k % 2, OP_NO_TAPE);
                int64_t width = (int64_t)s->nv * s->dv;
                for (int m = 0; m < TEXT; m++)
                    for (int64_t j = 0; j < width; j++)
                        if (value_at(got, &w, width, m, j) != value_at(want, &first, width, m, j))
                            fail_msg("%s: shape %d, way %d: row %d differs", be->name, i, k, m);
                for (int64_t j = 0; j < pl_gdn_state(s); j++)
                    if (op_value(got, last_output(&w), j) != op_value(want, 1, j))
                        fail_msg("%s: shape %d, way %d: the state differs at %lld", be->name, i, k, (long long)j);
                op_run_free(got);
            }
            op_run_free(want);
        }
}

// ---- the definition -------------------------------------------------------------------------------------------------

// One step of a state [dk, dv] of a single head, of whose convolution one tap is left.
static void build_one(op_run *r, const void *arg) {
    const pl_gdn_shape *s = arg;
    inputs              in = make_inputs(r, s);
    pl_kvrow           *row = op_bytes(r, NODES * sizeof *row);
    int32_t            *index = op_bytes(r, NODES * sizeof *index);
    set_chain(&in, row, index, 0, 2);
    op_out(r, in.x);
    op_out(r, in.gates);
    op_out(r, in.w);
    op_out(r, in.a_log);
    op_out(r, in.dt);
    op_out(r, run_rows(r, &in, s, index, 2, row));
}

static double silu(double x) {
    return x / (1 + exp(-x));
}

static void against_definition(void **state) {
    (void)state;
    enum { DK = 3, DV = 2, C = 2 * DK + DV };
    const pl_gdn_shape one = {1, 1, DK, DV, 2};
    op_run            *r = op_run_once(build_one, &one, pl_backend_ref(), 1, OP_NO_TAPE);
    double             S[DK][DV] = {{0}}, before[C] = {0};
    for (int m = 0; m < 2; m++) {
        double y[C], q[DK], k[DK], lq = 1e-6, lk = 1e-6;
        for (int c = 0; c < C; c++) {
            double x = op_value(r, 0, m * C + c);
            y[c] = silu(op_value(r, 2, 2 * c) * before[c] + op_value(r, 2, 2 * c + 1) * x);
            before[c] = x;
        }
        for (int i = 0; i < DK; i++) {
            lq += y[i] * y[i];
            lk += y[DK + i] * y[DK + i];
        }
        for (int i = 0; i < DK; i++) {
            q[i] = y[i] / sqrt(lq) / sqrt(DK);
            k[i] = y[DK + i] / sqrt(lk);
        }
        double beta = 1 / (1 + exp(-op_value(r, 1, 2 * m)));
        double decay = exp(-exp(op_value(r, 3, 0)) * log1p(exp(op_value(r, 1, 2 * m + 1) + op_value(r, 4, 0))));
        for (int j = 0; j < DV; j++) {
            double u = 0, o = 0;
            for (int i = 0; i < DK; i++)
                u += k[i] * (S[i][j] *= decay);
            u = beta * (y[2 * DK + j] - u);
            for (int i = 0; i < DK; i++)
                o += q[i] * (S[i][j] += k[i] * u);
            assert_true(fabs(o - op_value(r, 5, m * DV + j)) < 1e-5);
        }
    }
    op_run_free(r);
}

// ---- the walk over a tree -------------------------------------------------------------------------------------------

// Trees of random shape: every node once, behind its parent, on a state that its parent left and nothing overwrote.
static void walks(void **state) {
    (void)state;
    static pl_kvrow    row[PL_GDN_NODES];
    static int32_t     paths[PL_GDN_NODES][PL_GDN_NODES], work[PL_GDN_WORK * PL_GDN_NODES];
    static pl_gdn_step step[PL_GDN_NODES];
    uint32_t           seed = 1;
    for (int run = 0; run < 400; run++) {
        int nodes = run < 8 ? 1 + run : 1 + (int)(seed % PL_GDN_NODES), parent[PL_GDN_NODES];
        int held[PL_GDN_STATES], own = -1, reach = 1 + run % 9;
        for (int m = 0; m < nodes; m++) {
            seed = seed * 1664525 + 1013904223;
            int back = 1 + (int)((seed >> 8) % (uint32_t)(run % 2 ? reach : nodes));
            parent[m] = m == 0 ? -1 : m < back ? 0 : m - back;
            int depth = m == 0 ? 0 : row[parent[m]].n_path;
            if (m > 0) memcpy(paths[m], paths[parent[m]], (size_t)depth * sizeof **paths);
            paths[m][depth] = 5 + m;
            row[m] = (pl_kvrow){.k = row, .path = paths[m], .n_ctx = 5, .n_path = depth + 1, .slot = 5 + m};
        }
        pl_gdn_order(row, nodes, step, work);
        for (int i = 0; i < PL_GDN_STATES; i++)
            held[i] = -1;
        bool seen[PL_GDN_NODES] = {false};
        for (int i = 0; i < nodes; i++) {
            const pl_gdn_step *s = &step[i];
            assert_true(s->row >= 0 && s->row < nodes && !seen[s->row] && s->to < PL_GDN_STATES);
            assert_int_equal(s->from == PL_GDN_OWN ? own : held[s->from], parent[s->row]);
            assert_true((s->to == PL_GDN_OWN) == (s->row == 0));
            seen[s->row] = true;
            *(s->to == PL_GDN_OWN ? &own : &held[s->to]) = s->row;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_backends),       cmocka_unit_test(many_sessions), cmocka_unit_test(same_bits),
        cmocka_unit_test(against_definition), cmocka_unit_test(walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
