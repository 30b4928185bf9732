// A target's forward over a cache: its layers take turns in the room of two, which changes no bit of what it gives, and
// what was tapped stays.
#include "tests/infer/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/model/kv.h"
#include "kernels/base/arena.h"
#include <string.h>

enum { LAYERS = 7, ROWS = 24, WIDTH = 48, MANY = LAYERS };

typedef struct forward {
    const pl_llama *m;
    pl_kv           kv;
    int32_t         id[ROWS], pos[ROWS];
    pl_kvrow        row[LAYERS * ROWS];
    const int      *tap;
    int             n_taps;
    pl_llama_out    out;
} forward;

static void run(pl_ctx *ctx, void *arg) {
    forward *f = arg;
    for (int32_t i = 0; i < ROWS; i++) {
        f->id[i] = (i * 7 + 3) % TEST_VOCAB;
        f->pos[i] = i;
        pl_kv_row(&f->kv, &f->row[i], ROWS, 0, NULL, i + 1, i);
    }
    pl_view view = {.pos = f->pos, .cos = f->m->cos, .sin = f->m->sin, .row = f->row, .m = ROWS};
    pl_llama_forward(ctx, f->m, f->id, ROWS, &view, f->tap, f->n_taps, &f->out);
}

typedef struct result {
    float  hidden[ROWS * WIDTH], tap[MANY][ROWS * WIDTH];
    size_t room;
} result;

static void forward_with(result *to, const pl_llama *m, const int *tap, int n_taps) {
    static forward f;
    pl_err         err;
    pl_ctx         ctx;
    f = (forward){.m = m, .tap = tap, .n_taps = n_taps};
    assert_int_equal(pl_kv_create(&f.kv, m->n_layers, ROWS, &m->shape, m->be, &err), PL_OK);
    assert_int_equal(pl_ctx_init(&ctx, m->be, NULL), PL_OK);
    assert_int_equal(pl_ctx_measure(&ctx, run, &f, &err), PL_OK);
    to->room = ctx.frame.size;
    pl_ctx_begin(&ctx);
    run(&ctx, &f);
    assert_int_equal(pl_ctx_sync(&ctx, &err), PL_OK);
    assert_int_equal(f.out.hidden.dim[1], WIDTH);
    memcpy(to->hidden, f.out.hidden.data, sizeof to->hidden);
    for (int i = 0; i < n_taps; i++)
        memcpy(to->tap[i], f.out.tap[i].data, sizeof to->tap[i]);
    pl_ctx_fini(&ctx);
    pl_kv_destroy(&f.kv);
}

// Every subset of layers that may be tapped, against a run that keeps them all. state: the family (Qwen3Moe's second
// layer has no experts).
static void taps_change_nothing(void **state) {
    static const int all[MANY] = {0, 1, 2, 3, 4, 5, 6};
    static result    kept, some;
    char             dir[64];
    pl_llama         m;
    test_target_family(&m, test_mkdir(dir), *state, LAYERS, 5, PL_F32);
    forward_with(&kept, &m, all, MANY);
    for (int set = 0; set < 1 << MANY; set++) {
        int tap[MANY], n = 0;
        for (int i = 0; i < MANY; i++)
            if (set >> i & 1) tap[n++] = i;
        if (n > PL_MAX_TAPS) continue;
        forward_with(&some, &m, tap, n);
        assert_memory_equal(some.hidden, kept.hidden, sizeof kept.hidden);
        for (int i = 0; i < n; i++)
            assert_memory_equal(some.tap[i], kept.tap[tap[i]], sizeof kept.tap[0]);
        assert_true(some.room <= kept.room);
    }
    pl_llama_fini(&m);
    test_rmdir(dir);
}

static void depth_takes_no_room(void **state) {
    (void)state;
    static result shallow, deep;
    char          dir[64];
    pl_llama      m;
    test_target(&m, test_mkdir(dir), 3, 5, PL_F32);
    forward_with(&shallow, &m, NULL, 0);
    pl_llama_fini(&m);
    test_rmdir(dir);
    test_target(&m, test_mkdir(dir), LAYERS, 5, PL_F32);
    forward_with(&deep, &m, NULL, 0);
    pl_llama_fini(&m);
    test_rmdir(dir);
    assert_int_equal(deep.room, shallow.room);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"taps_change_nothing", taps_change_nothing, NULL, NULL, "Llama"},
        {"taps_change_nothing_among_experts", taps_change_nothing, NULL, NULL, "Qwen3Moe"},
        cmocka_unit_test(depth_takes_no_room),
    };
    return cmocka_run_group_tests_name("forward", tests, NULL, NULL);
}
