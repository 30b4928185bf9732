// The CUDA backend beyond what the ops' own tests cover, on the emulated device: the table, limits and faults each in
// one line, and the sizes at which work is split (slices of K, parts of a context, rounds of a selection).
#define PL_CUDA_SUFFIX emulated
#include "kernels/base/rng.h"
#include "kernels/cuda/state.h"
#include "kernels/op/attention.h"
#include "kernels/op/blockconv.h"
#include "kernels/op/deltarule.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/frontier.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/headtopk.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"
#include "kernels/op/rope.h"
#include "kernels/op/swiglu.h"
#include "kernels/panels.h"
#include "tests/cuda/emulate/device_emulated.h"
#include "tests/kernels/op_harness.h"
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

// ---- the table ------------------------------------------------------------------------------------------------------

static void table_is_complete(void **state) {
    (void)state;
    static const bool backward[PL_OP_COUNT] = {
#define X(NAME, name, bwd) bwd,
#include "kernels/ops.def"
#undef X
    };
    // Targets with experts are refused on a device (pl_llama_open); a product with its gate is three ops there.
    static const bool lacks[PL_OP_COUNT] = {
        [PL_OP_EXPERTS] = true, [PL_OP_GROUPED] = true, [PL_OP_COMBINE] = true, [PL_OP_GATEDLINEAR] = true};
    const pl_backend *be = pl_backend_cuda_emulated();
    int               has[2] = {0}, of[2] = {0};
    for (int op = 0; op < PL_OP_COUNT; op++) {
        if (lacks[op]) assert_null(be->fwd[op]);
        of[0] += !lacks[op];
        of[1] += backward[op];
        has[0] += be->fwd[op] != NULL;
        has[1] += backward[op] && be->bwd[op];
        if (!be->fwd[op]) print_message("missing: %s forward\n", pl_op_name((pl_op)op));
        if (backward[op] && !be->bwd[op]) print_message("missing: %s backward\n", pl_op_name((pl_op)op));
    }
    print_message("cuda table: %d of %d forward, %d of %d backward\n", has[0], of[0], has[1], of[1]);
    assert_int_equal(has[0], of[0]);
    assert_int_equal(has[1], of[1]);
}

// ---- limits and faults ----------------------------------------------------------------------------------------------

static void start(pl_ctx *ctx) {
    assert_int_equal(pl_ctx_init(ctx, pl_backend_cuda_emulated(), NULL), PL_OK);
    assert_int_equal(pl_arena_reserve(&ctx->frame, 1 << 20, NULL), PL_OK);
    assert_int_equal(pl_arena_reserve(&ctx->scratch, 1 << 20, NULL), PL_OK);
}

static void expect_failure(pl_ctx *ctx, pl_status status, const char *part) {
    pl_err err = {0};
    assert_int_equal(pl_ctx_sync(ctx, &err), status);
    if (!strstr(err.msg, part)) fail_msg("\"%s\" is not in \"%s\"", part, err.msg);
    assert_null(strchr(err.msg, '\n'));
    assert_int_equal(pl_ctx_sync(ctx, &err), PL_OK); // forgotten once told
}

static void limits(void **state) {
    (void)state;
    const int64_t fits[] = {1, 65535, 65535}, tall[] = {1, 65536, 1}, deep[] = {1, 1, 65536},
                  wide[] = {1ll << 31, 1, 1};
    const int64_t none[] = {5, 0, 1};
    pl_ctx        ctx;
    start(&ctx);
    assert_true(pl_may_launch_emulated(&ctx, "x", fits, 1024));
    assert_false(pl_may_launch_emulated(&ctx, "x", none, 32));
    assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
    assert_false(pl_may_launch_emulated(&ctx, "topk", tall, 32));
    assert_false(pl_may_launch_emulated(&ctx, "topk", fits, 32)); // the failure sticks
    expect_failure(&ctx, PL_E_UNSUPPORTED, "op topk needs a grid of 1 x 65536 x 1");
    assert_false(pl_may_launch_emulated(&ctx, "x", deep, 32));
    expect_failure(&ctx, PL_E_UNSUPPORTED, "65536 blocks");
    assert_false(pl_may_launch_emulated(&ctx, "x", wide, 32));
    expect_failure(&ctx, PL_E_UNSUPPORTED, "2147483648 x 1 x 1");

    float     one = 1;
    pl_tensor x = pl_ctx_const(&ctx, 1, 1), w = pl_tensor_2d(&one, PL_BF16, 1, 1);
    pl_kvrow  row = {.n_path = 1};
    pl_attention_cached(&ctx, pl_ctx_const(&ctx, 1, 3 * 288), &row, 1, 1, 288);
    expect_failure(&ctx, PL_E_UNSUPPORTED, "heads of 288");
    int32_t id;
    pl_headtopk(&ctx, &(pl_headtopk_args){.x = x, .w = w, .k = 1, .id = &id});
    expect_failure(&ctx, PL_E_UNSUPPORTED, "packed weights");
    pl_ctx_fini(&ctx);
}

// More output rows than a head has, of either type.
static void tall_products(void **state) {
    (void)state;
    const int64_t N = (1 << 22) + 1;
    const float   three = 3, two = 2;
    float        *y = malloc((size_t)N * sizeof *y);
    assert_non_null(y);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        pl_dtype  type = bf16 ? PL_BF16 : PL_F32;
        void     *panels = calloc(1, pl_panels_bytes(N, 1, type));
        pl_tensor w = pl_tensor_2d(panels, type, N, 1);
        pl_ctx    ctx;
        start(&ctx);
        w.layout = PL_PANELS;
        for (int64_t n = 63; n < N; n += 64) // the last row of each panel
            pl_panels_pack(panels, type, n, 1, N, 1, &three);
        pl_panels_pack(panels, type, N - 1, 1, N, 1, &three);
        pl_linear_into(&ctx, pl_tensor_2d(y, PL_F32, 1, N), pl_tensor_2d((void *)&two, PL_F32, 1, 1), w);
        assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
        for (int64_t n = 0; n < N; n++)
            if (y[n] != (n % 64 == 63 || n == N - 1 ? 6 : 0)) fail_msg("row %lld: %g", (long long)n, (double)y[n]);
        pl_ctx_fini(&ctx);
        free(panels);
    }
    free(y);
}

// Indices out of range: where ref aborts, a device can only tell.
static void faults(void **state) {
    (void)state;
    static const float w[6] = {1, 2, 3, 4, 5, 6};
    const int32_t      good[3] = {2, -1, 0}, bad[4] = {0, 3, 1, 7}, far[1] = {4};
    pl_ctx             ctx;
    start(&ctx);
    pl_tensor table = pl_tensor_2d((void *)w, PL_F32, 3, 2), y = pl_embed(&ctx, table, good, 3);
    assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
    assert_true(pl_f32(&y)[0] == 5 && pl_f32(&y)[3] == 0 && pl_f32(&y)[4] == 1);
    pl_embed(&ctx, table, bad, 4);
    expect_failure(&ctx, PL_E_DEVICE, "out of range: row 1 has 3"); // the lowest row, whichever came first
    pl_gather(&ctx, table, bad, 4);
    expect_failure(&ctx, PL_E_DEVICE, "row 1 has 3");
    pl_rope(&ctx, &(pl_rope_args){.qkv = pl_ctx_const(&ctx, 1, 2),
                                  .cos = pl_tensor_2d((void *)w, PL_F32, 4, 1),
                                  .sin = pl_tensor_2d((void *)w, PL_F32, 4, 1),
                                  .pos = far,
                                  .n_rot = 1,
                                  .hd = 2});
    expect_failure(&ctx, PL_E_DEVICE, "row 0 has 4");
    pl_ctx_fini(&ctx);
}

static void copies(void **state) {
    (void)state;
    const float from[4] = {1, 2, 3, 4};
    float       back[4] = {0};
    pl_ctx      ctx;
    start(&ctx);
    pl_tensor a = pl_ctx_const(&ctx, 1, 4), b = pl_ctx_const(&ctx, 1, 4);
    pl_ctx_upload(&ctx, a.data, from, sizeof from);
    pl_ctx_zero(&ctx, b.data, sizeof from);
    pl_ctx_copy(&ctx, (float *)b.data + 1, a.data, 2 * sizeof(float));
    pl_ctx_download(&ctx, back, b.data, sizeof back);
    assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
    assert_true(back[0] == 0 && back[1] == 1 && back[2] == 2 && back[3] == 0);
    pl_ctx_fail(&ctx, PL_E_DEVICE, "earlier");
    pl_ctx_zero(&ctx, a.data, sizeof from); // a failed context does nothing more
    assert_true(pl_f32(&a)[3] == 4);
    expect_failure(&ctx, PL_E_DEVICE, "earlier");
    pl_ctx_fini(&ctx);
}

// ---- the strict device ----------------------------------------------------------------------------------------------

typedef struct strict {
    pl_ctx   ctx;
    float   *table; // [4, 2] on the device
    int32_t *ids;   // [3] shared
} strict;

// Of a draft's next level, which an op chooses: candidate ids[1] of ids.
static const int32_t *next_token(pl_ctx *ctx, const strict *s) {
    pl_frontier_group *group = pl_ctx_bytes(ctx, sizeof *group);
    if (!ctx->measuring) *group = (pl_frontier_group){.rows = 1, .width = 1};
    pl_frontier_args a = {.group = group, .id = s->ids, .pick = s->ids + 1, .n_groups = 1, .k = 1, .n = 1};
    pl_frontier(ctx, &a);
    return a.next.token;
}

static void strict_step(pl_ctx *ctx, void *arg) {
    strict *s = arg;
    next_token(ctx, s);
    pl_tensor y = pl_embed(ctx, pl_tensor_2d(s->table, PL_F32, 4, 2), s->ids, 3);
    pl_ctx_read(ctx, &y);
}

static void strict_open(strict *s) {
    static const float values[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const pl_backend  *be = pl_backend_emulated();
    pl_err             err = {0};
    s->table = pl_memory_create(be->memory, PL_LOCAL, sizeof values, &err);
    s->ids = pl_memory_create(be->memory, PL_SHARED, 3 * sizeof *s->ids, &err);
    assert_true(s->table && s->ids);
    assert_int_equal(pl_memory_write(be->memory, s->table, values, sizeof values, &err), PL_OK);
    assert_int_equal(pl_ctx_init(&s->ctx, be, NULL), PL_OK);
    assert_int_equal(pl_ctx_measure(&s->ctx, strict_step, s, &err), PL_OK);
}

static void strict_close(strict *s) {
    const pl_memory *m = pl_backend_emulated()->memory;
    pl_ctx_fini(&s->ctx);
    pl_memory_destroy(m, PL_LOCAL, s->table, 8 * sizeof *s->table);
    pl_memory_destroy(m, PL_SHARED, s->ids, 3 * sizeof *s->ids);
}

// Ops run when they are waited for: an index that changes before that is the one that is read.
static void queue(void **state) {
    (void)state;
    strict s;
    float  back[8];
    strict_open(&s);
    pl_ctx_begin(&s.ctx);
    s.ids[0] = 1, s.ids[1] = 2, s.ids[2] = -1;
    pl_tensor y = pl_embed(&s.ctx, pl_tensor_2d(s.table, PL_F32, 4, 2), s.ids, 3);
    s.ids[0] = 3;
    const float *z = pl_ctx_read(&s.ctx, &y);
    assert_non_null(z);
    assert_true(z[0] == 6 && z[1] == 7 && z[2] == 4 && z[4] == 0);
    pl_ctx_copy_pieces(&s.ctx, s.table, s.table + 1, sizeof(float), 2 * sizeof(float), 4); // each row's second to first
    pl_ctx_zero(&s.ctx, s.table + 6, sizeof(float));
    assert_int_equal(pl_ctx_sync(&s.ctx, NULL), PL_OK);
    assert_int_equal(pl_memory_read(s.ctx.be->memory, back, s.table, sizeof back, NULL), PL_OK);
    assert_true(back[0] == 1 && back[1] == 1 && back[2] == 3 && back[4] == 5 && back[6] == 0 && back[7] == 7);
    strict_close(&s);
}

// What the process that runs fn dies of.
static int death_of(void (*fn)(strict *s)) {
    pid_t child = fork();
    int   status = 0;
    if (child == 0) {
        strict s;
        strict_open(&s);
        if (!freopen("/dev/null", "w", stderr)) _exit(3);
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        fn(&s);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void touch(strict *s) {
    *(volatile float *)s->table = 1;
}
static void stray(strict *s) {
    const int32_t ids[3] = {0};
    pl_ctx_begin(&s->ctx);
    pl_embed(&s->ctx, pl_tensor_2d(s->table, PL_F32, 4, 2), ids, 3);
}
static void stray_within(strict *s) {
    const int32_t pos[4] = {0};
    pl_ctx_begin(&s->ctx);
    pl_tensor one = pl_tensor_2d(s->table, PL_F32, 4, 1), qkv = pl_tensor_2d(s->table, PL_F32, 4, 2);
    pl_rope(&s->ctx, &(pl_rope_args){.qkv = qkv, .cos = one, .sin = one, .pos = pos, .n_rot = 1, .hd = 2});
}
static void rewritten(strict *s) {
    s->ctx.repeats = true;
    s->ids[0] = 1;
    pl_ctx_begin(&s->ctx);
    pl_tensor y = pl_embed(&s->ctx, pl_tensor_2d(s->table, PL_F32, 4, 2), s->ids, 3);
    pl_ctx_zero(&s->ctx, y.data, sizeof(float)); // sends what waits
    s->ids[0] = 2;
    pl_ctx_wait(&s->ctx);
}
static void early(strict *s) {
    pl_ctx_begin(&s->ctx);
    s->ids[0] = 5, s->ids[1] = 0;
    const int32_t *token = next_token(&s->ctx, s);
    if (*(const volatile int32_t *)token == 5) pl_ctx_wait(&s->ctx);
}
static void nothing(strict *s) {
    s->ids[0] = 1;
}

static void walls(void **state) {
    (void)state;
    assert_int_equal(death_of(nothing), 0);
    assert_int_equal(death_of(touch), SIGSEGV);        // a host that writes a tensor
    assert_int_equal(death_of(stray), SIGABRT);        // an op that is given host memory,
    assert_int_equal(death_of(stray_within), SIGABRT); // or args that hold it
    assert_int_equal(death_of(rewritten), SIGABRT);    // an index array that changes before its op has read it
    assert_int_equal(death_of(early), SIGSEGV);        // a host that reads an index array that an op writes
}

// ---- steps that repeat ----------------------------------------------------------------------------------------------

// A model of six layers (which share their weights) decodes a root and two children at position n.
enum { LAYERS = 6, D = 32, HD = 16, VOCAB = 200, SLOTS = 160, NODES = 3, BEST = 4 };

typedef struct index_arrays {
    int32_t  id[NODES], pos[NODES], path[NODES][2];
    pl_kvrow row[LAYERS][NODES];
} index_arrays;

typedef struct looped {
    pl_ctx        ctx;
    index_arrays *in;
    float        *table, *cos, *sin, *cache; // on the device
    void         *wqkv, *wo, *head;          // bf16 panels there
    int32_t      *id;
    float        *value; // of the last step
    int           turn;
} looped;

static void *put(const void *from, size_t bytes) {
    const pl_memory *m = pl_backend_emulated()->memory;
    void            *p = pl_memory_create(m, PL_LOCAL, bytes, NULL);
    assert_non_null(p);
    if (from) assert_int_equal(pl_memory_write(m, p, from, bytes, NULL), PL_OK);
    return p;
}

static float *noise(int64_t n, float scale, uint64_t which) {
    float *v = calloc((size_t)n, sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        v[i] = scale * pl_rng_normal(pl_rng_make(3, PL_STREAM_TEST, which), (uint64_t)i);
    return v;
}

static float *put_noise(int64_t n, uint64_t which) {
    float *v = noise(n, 1, which), *p = put(v, (size_t)n * sizeof *v);
    free(v);
    return p;
}

static void *put_panels(int64_t n, int64_t k, uint64_t which) {
    float *v = noise(n * k, 0.3f, which);
    size_t bytes = pl_panels_bytes(n, k, PL_BF16);
    void  *packed = calloc(bytes, 1), *p;
    assert_non_null(packed);
    pl_panels_pack(packed, PL_BF16, 0, n, n, k, v);
    p = put(packed, bytes);
    free(packed);
    free(v);
    return p;
}

static pl_tensor panels(void *data, int64_t n, int64_t k) {
    pl_tensor t = pl_tensor_2d(data, PL_BF16, n, k);
    t.layout = PL_PANELS;
    return t;
}

// Leaves other bytes on the stack each turn, which arguments made there have between their members.
static void __attribute__((noinline)) soil(int turn) {
    volatile uint8_t bytes[1 << 14];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(turn * 37 + 11);
}

static void looped_step(pl_ctx *ctx, void *arg) {
    looped *s = arg;
    soil(s->turn);
    pl_tensor h = pl_embed(ctx, pl_tensor_2d(s->table, PL_F32, VOCAB, D), s->in->id, NODES);
    for (int l = 0; l < LAYERS; l++) {
        soil(s->turn);
        pl_tensor qkv = pl_linear(ctx, h, panels(s->wqkv, 4 * HD, D));
        soil(s->turn);
        pl_rope(ctx, &(pl_rope_args){.qkv = qkv,
                                     .cos = pl_tensor_2d(s->cos, PL_F32, SLOTS, HD / 2),
                                     .sin = pl_tensor_2d(s->sin, PL_F32, SLOTS, HD / 2),
                                     .pos = s->in->pos,
                                     .n_rot = 3,
                                     .hd = HD,
                                     .row = s->in->row[l]});
        soil(s->turn);
        pl_tensor o = pl_attention_cached(ctx, qkv, s->in->row[l], 2, 1, HD);
        soil(s->turn);
        h = pl_linear(ctx, o, panels(s->wo, D, D));
    }
    s->id = pl_ctx_bytes(ctx, NODES * BEST * sizeof *s->id);
    s->value = pl_ctx_bytes(ctx, NODES * BEST * sizeof *s->value);
    soil(s->turn);
    pl_headtopk(ctx,
                &(pl_headtopk_args){.x = h, .w = panels(s->head, VOCAB, D), .k = BEST, .id = s->id, .value = s->value});
}

static void looped_open(looped *s, bool repeats) {
    const pl_backend *be = pl_backend_emulated();
    s->in = pl_memory_create(be->memory, PL_SHARED, sizeof *s->in, NULL);
    assert_non_null(s->in);
    s->table = put_noise(VOCAB * D, 1);
    s->cos = put_noise(SLOTS * HD / 2, 2);
    s->sin = put_noise(SLOTS * HD / 2, 3);
    s->cache = put_noise((int64_t)LAYERS * 2 * SLOTS * HD, 4);
    s->wqkv = put_panels(4 * HD, D, 5);
    s->wo = put_panels(D, D, 6);
    s->head = put_panels(VOCAB, D, 7);
    assert_int_equal(pl_ctx_init(&s->ctx, be, NULL), PL_OK);
    s->ctx.repeats = repeats;
    assert_int_equal(pl_ctx_measure(&s->ctx, looped_step, s, NULL), PL_OK);
}

static void looped_close(looped *s) {
    const pl_memory *m = pl_backend_emulated()->memory;
    pl_ctx_fini(&s->ctx);
    pl_memory_destroy(m, PL_SHARED, s->in, sizeof *s->in);
    pl_memory_destroy(m, PL_LOCAL, s->table, VOCAB * D * sizeof(float));
    pl_memory_destroy(m, PL_LOCAL, s->cos, SLOTS * HD / 2 * sizeof(float));
    pl_memory_destroy(m, PL_LOCAL, s->sin, SLOTS * HD / 2 * sizeof(float));
    pl_memory_destroy(m, PL_LOCAL, s->cache, (size_t)LAYERS * 2 * SLOTS * HD * sizeof(float));
    pl_memory_destroy(m, PL_LOCAL, s->wqkv, pl_panels_bytes(4 * HD, D, PL_BF16));
    pl_memory_destroy(m, PL_LOCAL, s->wo, pl_panels_bytes(D, D, PL_BF16));
    pl_memory_destroy(m, PL_LOCAL, s->head, pl_panels_bytes(VOCAB, D, PL_BF16));
}

static void looped_run(looped *s, int n, int turn) {
    for (int i = 0; i < NODES; i++) {
        s->in->id[i] = (n * 7 + turn + i * 31) % VOCAB;
        s->in->pos[i] = n + (i > 0);
        s->in->path[i][0] = n;
        s->in->path[i][1] = n + i;
        for (int l = 0; l < LAYERS; l++) {
            float *k = s->cache + (size_t)l * 2 * SLOTS * HD;
            s->in->row[l][i] = (pl_kvrow){k, k + SLOTS * HD, s->in->path[i], n, i ? 2 : 1, n + i, PL_F32};
        }
    }
    s->turn = turn;
    pl_ctx_begin(&s->ctx);
    looped_step(&s->ctx, s);
    assert_int_equal(pl_ctx_sync(&s->ctx, NULL), PL_OK);
}

// The same numbers with graphs and without; each sequence is captured when it comes the second time, and none again
// while the context grows over groups and parts.
static void steps_become_graphs(void **state) {
    (void)state;
    const int from[] = {0, 27, 125}, count = 8;
    looped    plain, graphs;
    looped_open(&plain, false);
    looped_open(&graphs, true);
    const pl_cuda_state *seen = graphs.ctx.state, *none = plain.ctx.state;
    uint64_t             pieces = 0;
    int                  steps = 0;
    for (int i = 0; i < 3; i++)
        for (int n = from[i]; n < from[i] + count; n++, steps++) {
            looped_run(&plain, n, steps);
            looped_run(&graphs, n, steps);
            assert_memory_equal(plain.id, graphs.id, NODES * BEST * sizeof *plain.id);
            assert_memory_equal(plain.value, graphs.value, NODES * BEST * sizeof *plain.value);
            if (steps == 0) assert_true(seen->captured == 0 && seen->replayed == 0);
            if (steps == 1) pieces = seen->captured;
            assert_true(seen->captured == pieces && seen->replayed == pieces * (uint64_t)steps);
        }
    print_message("%d steps: %d graphs\n", steps, (int)pieces);
    assert_true(pieces >= 1 && none->captured == 0);
    looped_close(&plain);
    looped_close(&graphs);
}

typedef struct padded {
    float *x, *g, *kernel, *base;
    int    turn;
} padded;

// What drafters' steps have beside the loop's ops above.
static void padded_step(pl_ctx *ctx, void *arg) {
    padded *s = arg;
    soil(s->turn);
    pl_tensor g = pl_tensor_1d(s->g, PL_F32, HD);
    pl_tensor y = pl_headnorm(ctx, pl_tensor_2d(s->x, PL_F32, NODES, 4 * HD), g, g, 2, 1, 1e-5);
    soil(s->turn);
    y = pl_squash(ctx, PL_SQUASH_TANH, y, 0, 4 * HD, (pl_tensor){0});
    soil(s->turn);
    pl_blockconv(ctx, y, pl_tensor_2d(s->kernel, PL_F32, NODES, 4 * 4 * HD),
                 pl_tensor_1d(s->base, PL_F32, (int64_t)4 * 4 * HD), 0, NODES, 1);
}

// Launches are compared by their arguments' bytes: none of them is anybody's but the op's.
static void padding_is_no_difference(void **state) {
    (void)state;
    const pl_memory *m = pl_backend_emulated()->memory;
    const int64_t    each = (int64_t)4 * 4 * HD, n[] = {(int64_t)NODES * 4 * HD, HD, NODES * each, each};
    padded           s = {put_noise(n[0], 1), put_noise(n[1], 2), put_noise(n[2], 3), put_noise(n[3], 4), 0};
    pl_ctx           ctx;
    assert_int_equal(pl_ctx_init(&ctx, pl_backend_emulated(), NULL), PL_OK);
    ctx.repeats = true;
    assert_int_equal(pl_ctx_measure(&ctx, padded_step, &s, NULL), PL_OK);
    for (; s.turn < 6; s.turn++) {
        pl_ctx_begin(&ctx);
        padded_step(&ctx, &s);
        assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
    }
    const pl_cuda_state *seen = ctx.state;
    assert_true(seen->captured == 1 && seen->replayed == 5);
    pl_ctx_fini(&ctx);
    for (int i = 0; i < 4; i++)
        pl_memory_destroy(m, PL_LOCAL, (float *[]){s.x, s.g, s.kernel, s.base}[i], (size_t)n[i] * sizeof(float));
}

// A recurrent layer of two sessions: a tree of three nodes, of which some are replayed, and a row of a chain.
enum { RULED = 4, TREE_ROWS = 3 };
typedef struct ruled {
    pl_ctx  ctx;
    float  *x, *gates, *w, *rates, *state, *kept;
    int64_t n[6]; // their elements
    struct {
        pl_kvrow row[RULED];
        int32_t  path[TREE_ROWS][2], rows[TREE_ROWS];
    } * in;
    int turn;
} ruled;
static const pl_gdn_shape ruled_shape = {.nk = 1, .nv = 2, .dk = 12, .dv = 9, .taps = 3};

static void ruled_step(pl_ctx *ctx, void *arg) {
    ruled              *r = arg;
    const pl_gdn_shape *s = &ruled_shape;
    const int64_t       C = pl_gdn_channels(s);
    soil(r->turn);
    pl_tensor x =
        pl_shortconv(ctx, pl_tensor_2d(r->x, PL_F32, RULED, C), pl_tensor_1d(r->w, PL_F32, C * s->taps), r->in->row, s);
    soil(r->turn);
    pl_deltarule(ctx, x, pl_tensor_2d(r->gates, PL_F32, RULED, 2 * s->nv), pl_tensor_1d(r->rates, PL_F32, s->nv),
                 pl_tensor_1d(r->rates, PL_F32, s->nv), r->in->row, s);
    soil(r->turn);
    pl_replay(
        ctx,
        &(pl_replay_args){
            .state = r->state, .kept = r->kept, .layers = 1, .most = TREE_ROWS - 1, .rows = r->in->rows, .shape = *s});
}

static void ruled_open(ruled *r, bool repeats) {
    const pl_gdn_shape *s = &ruled_shape;
    const pl_backend   *be = pl_backend_emulated();
    const int64_t       C = pl_gdn_channels(s);
    float             **v[6] = {&r->x, &r->gates, &r->w, &r->rates, &r->state, &r->kept};
    *r = (ruled){.n = {RULED * C, (int64_t)RULED * 2 * s->nv, C * s->taps, s->nv, 2 * pl_gdn_state(s),
                       TREE_ROWS * pl_gdn_kept(s)}};
    for (int i = 0; i < 6; i++)
        *v[i] = put_noise(r->n[i], 20 + (uint64_t)i);
    r->in = pl_memory_create(be->memory, PL_SHARED, sizeof *r->in, NULL);
    assert_non_null(r->in);
    assert_int_equal(pl_ctx_init(&r->ctx, be, NULL), PL_OK);
    r->ctx.repeats = repeats;
    assert_int_equal(pl_ctx_measure(&r->ctx, ruled_step, r, NULL), PL_OK);
}

// Each turn replays another path of the tree, and continues both texts.
static void ruled_run(ruled *r, int turn, int *n) {
    float *second = r->state + pl_gdn_state(&ruled_shape);
    for (int i = 0; i < TREE_ROWS; i++) {
        r->in->path[i][0] = *n;
        r->in->path[i][1] = *n + i;
        r->in->row[i] = (pl_kvrow){r->state, r->kept, r->in->path[i], *n, i ? 2 : 1, *n + i, PL_F32};
    }
    r->in->row[TREE_ROWS] = (pl_kvrow){second, NULL, NULL, turn, 1, turn, PL_F32};
    r->in->rows[0] = turn % 2;
    r->in->rows[1] = 1 + turn / 2 % 2;
    *n += 1 + turn % 2;
    r->turn = turn;
    pl_ctx_begin(&r->ctx);
    ruled_step(&r->ctx, r);
    assert_int_equal(pl_ctx_sync(&r->ctx, NULL), PL_OK);
}

static void ruled_close(ruled *r) {
    const pl_memory *m = pl_backend_emulated()->memory;
    float           *v[6] = {r->x, r->gates, r->w, r->rates, r->state, r->kept};
    pl_ctx_fini(&r->ctx);
    pl_memory_destroy(m, PL_SHARED, r->in, sizeof *r->in);
    for (int i = 0; i < 6; i++)
        pl_memory_destroy(m, PL_LOCAL, v[i], (size_t)r->n[i] * sizeof(float));
}

// A text's length, a tree's accepted nodes and the states that they leave are no part of a launch. With less shared
// memory more blocks leave the same states; with too little for any the op is refused.
static void recurrences_become_graphs(void **state) {
    (void)state;
    ruled graphs, plain;
    float left[2][2 * 400];
    int   n[2] = {0, 0};
    ruled_open(&graphs, true);
    ruled_open(&plain, false);
    ((pl_cuda_state *)plain.ctx.state)->room = 40 << 10;
    for (int turn = 0; turn < 6; turn++) {
        ruled_run(&graphs, turn, &n[0]);
        ruled_run(&plain, turn, &n[1]);
    }
    const pl_cuda_state *seen = graphs.ctx.state;
    assert_true(seen->captured == 1 && seen->replayed == 5);
    assert_true(graphs.n[4] <= 2 * 400);
    for (int i = 0; i < 2; i++) {
        const ruled *r = i ? &plain : &graphs;
        assert_int_equal(
            pl_memory_read(pl_backend_emulated()->memory, left[i], r->state, (size_t)r->n[4] * sizeof(float), NULL),
            PL_OK);
    }
    assert_memory_equal(left[0], left[1], (size_t)graphs.n[4] * sizeof(float));
    ((pl_cuda_state *)plain.ctx.state)->room = 20 << 10;
    pl_ctx_begin(&plain.ctx);
    ruled_step(&plain.ctx, &plain);
    expect_failure(&plain.ctx, PL_E_UNSUPPORTED, "op deltarule: heads of 12 take 33536 bytes");
    ruled_close(&graphs);
    ruled_close(&plain);
}

typedef struct many {
    float *x;
    int    n;
} many;

static void add_twice(pl_ctx *ctx, void *arg) {
    const many     *m = arg;
    const pl_tensor x = pl_tensor_2d(m->x, PL_F32, 1, m->n);
    pl_add(ctx, pl_add(ctx, x, x, (pl_tensor){0}), x, (pl_tensor){0});
}

// Each of many sequences becomes a graph when it comes the second time, whatever their hashes share.
static void many_become_graphs(void **state) {
    (void)state;
    enum { SEQUENCES = 300 };
    pl_ctx ctx;
    float *x = put_noise(SEQUENCES, 1);
    assert_int_equal(pl_ctx_init(&ctx, pl_backend_emulated(), NULL), PL_OK);
    ctx.repeats = true;
    assert_int_equal(pl_ctx_measure(&ctx, add_twice, &(many){x, SEQUENCES}, NULL), PL_OK);
    for (int round = 0; round < 3; round++)
        for (int n = 1; n <= SEQUENCES; n++) {
            pl_ctx_begin(&ctx);
            add_twice(&ctx, &(many){x, n});
            assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
        }
    const pl_cuda_state *s = ctx.state;
    assert_true(s->captured == SEQUENCES && s->replayed == 2 * SEQUENCES);
    pl_ctx_fini(&ctx);
    pl_memory_destroy(pl_backend_emulated()->memory, PL_LOCAL, x, SEQUENCES * sizeof *x);
}

// ---- where work is split --------------------------------------------------------------------------------------------

enum { WIDE_K = 4500, WIDE_N = 130 }; // five slices of K, three panels

static void wide(op_run *r, const void *arg) {
    const int *rows = arg;
    pl_tensor  x = op_constant(r, *rows, WIDE_K, 1);
    pl_tensor  w = op_weight(r, WIDE_N, WIDE_K, PL_BF16, PL_PANELS, 1 / sqrt(WIDE_K));
    pl_tensor  y = pl_linear(op_ctx(r), x, w);
    op_out(r, y);
    pl_headtopk_args a = {.x = x, .w = w, .k = 3};
    a.id = op_bytes(r, (size_t)(*rows * 3) * 4);
    a.value = op_bytes(r, (size_t)(*rows * 3) * 4);
    pl_headtopk(op_ctx(r), &a);
    op_out_i32(r, a.id, *rows * 3);
    op_out_f32(r, a.value, *rows * 3);
    op_out(r, pl_gatherdot(op_ctx(r), x, w, a.id, 3));
    for (int32_t m = 0; m<*rows; m += *rows> 20 ? 21 : 5) // some rows by themselves
        op_out(r, pl_linear(op_ctx(r), pl_gather(op_ctx(r), x, op_ids_from(r, &m, 1), 1), w));
}

// One row, each number of column blocks and past the largest: the bits of a row alone; the fused head and
// listed rows have linear's.
static void slices(void **state) {
    (void)state;
    const int sizes[] = {1, 8, 9, 17, 33, 64, 70};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int rows = sizes[i], every = rows > 20 ? 21 : 5;
        op_run   *r = op_run_once(wide, &rows, pl_backend_cuda_emulated(), 1, OP_NO_TAPE);
        for (int m = 0; m < rows; m++) {
            for (int k = 0; k < 3; k++)
                assert_true(op_value(r, 2, m * 3 + k) == op_value(r, 0, m * WIDE_N + (int)op_value(r, 1, m * 3 + k)));
            for (int k = 0; k < 3; k++)
                assert_true(op_value(r, 3, m * 3 + k) == op_value(r, 2, m * 3 + k));
            for (int n = 0; n < WIDE_N && m % every == 0; n++)
                assert_true(op_value(r, 4 + m / every, n) == op_value(r, 0, m * WIDE_N + n));
        }
        op_run_free(r);
    }
    const int few = 2;
    op_check(wide, &few, OP_NO_TAPE, "linear and head over %d columns", WIDE_K);
}

// What rmsnorm, swiglu and attention have rounded as they made it gives the bits of what a product rounds for itself: a
// copy of the same values, and each row alone. Columns of more than one slice, and of none that is whole.
typedef struct beside {
    int rows, columns, heads;
} beside;

static void rounded_beside(op_run *r, const void *arg) {
    const beside *s = arg;
    pl_ctx       *ctx = op_ctx(r);
    const int     n = s->columns, hd = n / s->heads;
    pl_tensor     w = op_weight(r, 70, n, PL_BF16, PL_PANELS, 0.1), made[3];
    pl_tensor     k = op_constant(r, s->rows, hd, 1), v = op_constant(r, s->rows, hd, 1);
    pl_kvrow     *row = op_bytes(r, (size_t)s->rows * sizeof *row);
    int32_t      *all = op_bytes(r, (size_t)s->rows * sizeof *all);
    pl_tensor x = op_constant(r, s->rows, n, 1), gu = op_constant(r, s->rows, 2 * n, 1), g = op_constant(r, 1, n, 1);
    pl_tensor qkv = op_constant(r, s->rows, n + 2 * hd, 1), y[3];
    g.rank = 1, g.dim[0] = n, g.dim[1] = 1;
    for (int m = 0; m < s->rows; m++) {
        all[m] = m;
        row[m] = (pl_kvrow){k.data, v.data, NULL, 0, m + 1, m, PL_F32};
    }
    made[0] = pl_rmsnorm(ctx, x, g, 1e-5);
    y[0] = pl_linear(ctx, made[0], w);
    made[1] = pl_gated(ctx, gu, PL_GATE_SILU);
    y[1] = pl_linear(ctx, made[1], w);
    made[2] = pl_attention_cached(ctx, qkv, row, s->heads, 1, hd);
    y[2] = pl_linear(ctx, made[2], w);
    for (int i = 0; i < 3; i++) {
        op_out(r, y[i]);
        op_out(r, pl_linear(ctx, pl_gather(ctx, made[i], all, s->rows), w));
        op_out(r, pl_linear(ctx, pl_gather(ctx, made[i], op_ids_from(r, &(int32_t){s->rows - 1}, 1), 1), w));
    }
}

static void rounded_once(void **state) {
    (void)state;
    const beside shapes[] = {{8, 66, 2}, {9, 66, 2}, {33, 64, 1}, {70, 128, 4}, {17, 138, 3}, {12, 1100, 10}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const beside *s = &shapes[i];
        op_run       *r = op_run_once(rounded_beside, s, pl_backend_cuda_emulated(), 1, OP_NO_TAPE);
        for (int k = 0; k < 9; k += 3)
            for (int e = 0; e < s->rows * 70; e++) {
                assert_true(op_value(r, k, e) == op_value(r, k + 1, e));
                if (e >= (s->rows - 1) * 70)
                    assert_true(op_value(r, k, e) == op_value(r, k + 2, e - (s->rows - 1) * 70));
            }
        op_run_free(r);
    }
}

// It is known for one product after another, and for nothing once y may have changed.
static void rounded_until_written(void **state) {
    (void)state;
    enum { K = 64, N = 64 };
    static float    values[16 * K], ones[K];
    static uint16_t w[N * K];
    pl_ctx          ctx;
    start(&ctx);
    for (int i = 0; i < 16 * K; i++)
        values[i] = (float)(i % 7);
    for (int i = 0; i < K; i++)
        ones[i] = 1;
    for (int i = 0; i < N * K; i++)
        w[i] = 0x3f80;
    const pl_cuda_rounded *known = &((const pl_cuda_state *)ctx.state)->rounded;
    pl_tensor              weight = pl_tensor_2d(w, PL_BF16, N, K), g = pl_tensor_1d(ones, PL_F32, K);
    weight.layout = PL_PANELS;
    pl_rmsnorm(&ctx, pl_tensor_2d(values, PL_F32, 8, K), g, 1e-5);
    assert_null(known->of); // few rows: nobody wants it
    pl_tensor y = pl_rmsnorm(&ctx, pl_tensor_2d(values, PL_F32, 16, K), g, 1e-5);
    assert_ptr_equal(known->of, y.data);
    pl_tensor z = pl_linear(&ctx, y, weight);
    assert_ptr_equal(known->of, y.data);
    assert_true(pl_f32(&z)[0] > 1);
    pl_ctx_zero(&ctx, y.data, 16 * K * sizeof(float));
    assert_null(known->of);
    z = pl_linear(&ctx, y, weight);
    assert_true(pl_f32(&z)[0] == 0);
    y = pl_rmsnorm(&ctx, pl_tensor_2d(values, PL_F32, 16, K), g, 1e-5);
    pl_ctx_upload(&ctx, y.data, values, sizeof values);
    assert_null(known->of);
    y = pl_rmsnorm(&ctx, pl_tensor_2d(values, PL_F32, 16, K), g, 1e-5);
    pl_add(&ctx, y, y, (pl_tensor){0});
    assert_null(known->of);
    assert_int_equal(pl_ctx_sync(&ctx, NULL), PL_OK);
    pl_ctx_fini(&ctx);
}

enum { CONTEXT = 2300, HEADS = 6, WIDTH = 40 }; // 72 groups of keys: 18 parts

static void long_context(op_run *r, const void *arg) {
    const pl_dtype *kv = arg;
    pl_tensor       qkv = op_constant(r, 2, (HEADS + 2) * WIDTH, 1);
    pl_tensor       k = op_cache(r, CONTEXT + 2, WIDTH, *kv), v = op_cache(r, CONTEXT + 2, WIDTH, *kv);
    pl_kvrow       *row = op_bytes(r, 2 * sizeof *row);
    int32_t        *path = op_bytes(r, 2 * sizeof *path);
    path[0] = CONTEXT + 1, path[1] = CONTEXT;
    row[0] = (pl_kvrow){k.data, v.data, NULL, CONTEXT - 32, 1, CONTEXT - 32, *kv};
    row[1] = (pl_kvrow){k.data, v.data, path, CONTEXT, 2, CONTEXT, *kv};
    op_out(r, pl_attention_cached(op_ctx(r), qkv, row, HEADS, 1, WIDTH));
}

// A tree of 20 rows after n committed keys, at scattered slots: its trunk is four deep, each of the others hangs under
// a node of the trunk. All rows in one call, then each by itself.
enum { TREE = 20, TRUNK = 4 };
typedef struct tree_shape {
    int n, nh, nkv, hd;
} tree_shape;

static pl_dtype held; // of the cache of what is built next

static void tree_rows(op_run *r, const void *arg) {
    const tree_shape *s = arg;
    int               kv = s->nkv * s->hd;
    pl_ctx           *ctx = op_ctx(r);
    pl_tensor         qkv = op_constant(r, TREE, (s->nh + 2 * s->nkv) * s->hd, 1);
    pl_tensor         k = op_cache(r, s->n + TREE, kv, held), v = op_cache(r, s->n + TREE, kv, held);
    pl_kvrow         *row = op_bytes(r, TREE * sizeof *row);
    int32_t          *path = op_bytes(r, TREE * (TRUNK + 1) * sizeof *path);
    for (int m = 0; m < TREE; m++) {
        int      under = m < TRUNK ? m : m % TRUNK + 1; // nodes of the trunk on its path, itself apart
        int32_t *p = path + m * (TRUNK + 1);
        for (int i = 0; i <= under; i++)
            p[i] = s->n + (i < under ? i * 7 : m * 7) % TREE;
        row[m] = (pl_kvrow){k.data, v.data, p, s->n, under + 1, p[under], held};
    }
    op_keep(r, qkv, row, s->nh, s->nkv, s->hd);
    op_out(r, pl_attention_cached(ctx, qkv, row, s->nh, s->nkv, s->hd));
    for (int32_t m = 0; m < TREE; m++)
        op_out(r,
               pl_attention_cached(ctx, pl_gather(ctx, qkv, op_ids_from(r, &m, 1), 1), row + m, s->nh, s->nkv, s->hd));
}

// 28..31 and 124..127: branches that cross into the next group, and the next part; 8188: some rows have parts of four
// groups, some of eight.
static void trees_share_a_context(void **state) {
    (void)state;
    const tree_shape shapes[] = {{0, 4, 1, 64},    {28, 8, 2, 40},   {31, 9, 1, 16},  {64, 3, 3, 33},
                                 {126, 8, 2, 128}, {300, 4, 2, 256}, {60, 20, 1, 16}, {8188, 1, 1, 4}};
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        const tree_shape *s = &shapes[i / 2];
        held = i % 2 ? PL_BF16 : PL_F32;
        op_run *r = op_run_once(tree_rows, s, pl_backend_cuda_emulated(), 1, OP_NO_TAPE);
        for (int m = 0; m < TREE; m++)
            for (int e = 0; e < s->nh * s->hd; e++)
                assert_true(op_value(r, 0, m * s->nh * s->hd + e) == op_value(r, m + 1, e));
        op_run_free(r);
        if (s->n < 400)
            op_check(tree_rows, s, OP_NO_TAPE | OP_BF16_PAIRS, "a tree after %d keys in %s, %d/%d heads of %d", s->n,
                     pl_dtype_name(held), s->nh, s->nkv, s->hd);
    }
}

static void rounds(op_run *r, const void *arg) { // 69 chunks of 64 best, then 5, then 1
    const int   *v = arg;
    pl_topk_args a = {.x = op_constant(r, 2, *v, 1), .k = 64};
    a.id = op_bytes(r, sizeof(int32_t) * 2 * 64);
    a.value = op_bytes(r, sizeof(float) * 2 * 64);
    a.lse = op_bytes(r, sizeof(float) * 2);
    pl_topk(op_ctx(r), &a);
    op_out_i32(r, a.id, 2 * 64);
    op_out_f32(r, a.value, 2 * 64);
    op_out_f32(r, a.lse, 2);
}

static void long_sizes(void **state) {
    (void)state;
    const int vocab = 70001;
    for (int i = 0; i < 2; i++) {
        const pl_dtype kv = i ? PL_BF16 : PL_F32;
        op_check(long_context, &kv, OP_NO_TAPE | OP_BF16_PAIRS, "attention over %d keys in %s", CONTEXT,
                 pl_dtype_name(kv));
    }
    op_check(rounds, &vocab, OP_NO_TAPE, "top 64 of %d", vocab);
}

// This build's own answer, whichever it is, is one line.
static void opening(void **state) {
    (void)state;
    char   text[512];
    pl_err err = {0};
    pl_backend_cuda_describe(text, sizeof text);
    assert_true(strlen(text) > 8 && !strchr(text, '\n'));
    print_message("cuda: %s\n", text);
    const pl_backend *be = pl_backend_cuda(99, &err);
    assert_null(be);
    assert_int_equal(err.status, PL_E_UNSUPPORTED);
    assert_true(*err.msg && !strchr(err.msg, '\n'));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_complete),
        cmocka_unit_test(limits),
        cmocka_unit_test(tall_products),
        cmocka_unit_test(faults),
        cmocka_unit_test(copies),
        cmocka_unit_test(queue),
        cmocka_unit_test(walls),
        cmocka_unit_test(slices),
        cmocka_unit_test(rounded_once),
        cmocka_unit_test(rounded_until_written),
        cmocka_unit_test(steps_become_graphs),
        cmocka_unit_test(padding_is_no_difference),
        cmocka_unit_test(recurrences_become_graphs),
        cmocka_unit_test(many_become_graphs),
        cmocka_unit_test(trees_share_a_context),
        cmocka_unit_test(long_sizes),
        cmocka_unit_test(opening),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
