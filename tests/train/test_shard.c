// Masters and moments over ranks: weights, moments and checkpoints are those of one process that holds them all, bit
// for bit, at 1, 2, 3 and 4 ranks; a run goes on with another number of them, sharded or not.
#include "tests/train/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "kernels/op/adamw.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// Pieces of whole chunks: five of w and one of the bias; the border of what decays lies inside of one.
#define DIM (5 * (int64_t)PL_SUMSQ_CHUNK - 3000)

static void run(const char *dir, int ranks, bool sharded, int64_t at, pl_status want) {
    pl_err             err;
    pl_trainer_options o = toy_options(dir);
    o.keep = 2;
    o.steps = 6;
    o.checkpoint_every = 2;
    o.eval_every = 0;
    o.stop_after = at;
    toy_is.sharded = sharded;
    pl_status st = toy_run(&o, ranks, NULL, &err);
    toy_is.sharded = false;
    if (st != want) fail_msg("%s by %d ranks: %s", dir, ranks, err.msg);
}

static void like_one(int64_t dim) {
    static int number;
    char       name[32];
    toy_is = (toy_setup){.dim = dim, .slots = 4};
    snprintf(name, sizeof name, "whole-%d", ++number);
    char *whole = toy_path(name);
    run(whole, 1, false, 0, PL_OK);
    for (int ranks = 1; ranks <= 4; ranks++) {
        if (ranks == 3) toy_is.slots = 6; // three take slots of 4 no better than two
        snprintf(name, sizeof name, "sharded-%d-%d", number, ranks);
        char *dir = toy_path(name), *of = whole;
        if (ranks == 3) {
            of = toy_path("whole-6");
            assert_int_equal(pl_tree_remove(of, NULL), PL_OK);
            run(of, 1, false, 0, PL_OK);
        }
        run(dir, ranks, true, 0, PL_OK);
        toy_same_run(of, dir);
        toy_same_file(of, dir, "checkpoints/step-4/training_state");
        toy_is.slots = 4;
        if (of != whole) pl_free(of);
        pl_free(dir);
    }
    pl_free(whole);
}

static void weights_are_those_of_one(void **state) {
    (void)state;
    like_one(DIM);
    like_one(PL_SUMSQ_CHUNK / 2);               // one chunk, which rank 0 holds
    like_one(2 * (int64_t)PL_SUMSQ_CHUNK + 20); // three
    toy_is = (toy_setup){.dim = 50};
}

// By four, two that hold all, three, one, and two again.
static void goes_on_with_others(void **state) {
    (void)state;
    char *whole = toy_path("all"), *parts = toy_path("parts");
    toy_is = (toy_setup){.dim = DIM, .slots = 4};
    run(whole, 1, false, 0, PL_OK);
    run(parts, 4, true, 1, PL_E_INTERRUPTED);
    run(parts, 2, false, 2, PL_E_INTERRUPTED);
    run(parts, 1, true, 3, PL_E_INTERRUPTED);
    run(parts, 2, true, 4, PL_E_INTERRUPTED);
    run(parts, 1, false, 5, PL_E_INTERRUPTED);
    run(parts, 4, true, 0, PL_OK);
    toy_same_run(whole, parts);
    pl_free(whole), pl_free(parts);
    toy_is = (toy_setup){.dim = 50};
}

static double nan_at_2(int64_t step, int slot) {
    return step == 2 && slot == 3 ? NAN : 1;
}

static double large_at_2(int64_t step, int slot) {
    return step == 2 && slot == 3 ? 1e18 : 1; // its square is finite in double alone
}

// A gradient whose bad part lies in one rank's piece is seen by all.
static void bad_steps(void **state) {
    (void)state;
    char *whole = toy_path("bad"), *four = toy_path("bad-4"), *large = toy_path("large"), *two = toy_path("large-2");
    toy_is = (toy_setup){.dim = DIM, .slots = 4, .factor = nan_at_2};
    run(whole, 1, false, 0, PL_OK);
    run(four, 4, true, 0, PL_OK);
    toy_same_run(whole, four);
    toy_same_file(whole, four, "skipped.jsonl");
    toy_is.factor = large_at_2;
    run(large, 1, false, 0, PL_OK);
    run(two, 2, true, 0, PL_OK);
    toy_same_run(large, two);
    pl_free(whole), pl_free(four), pl_free(large), pl_free(two);
    toy_is = (toy_setup){.dim = 50};
}

// A disk that fails under rank 0 while the others bring their pieces ends all with its line; the run goes on from the
// checkpoint before.
static void a_full_disk(void **state) {
    (void)state;
    char   *whole = toy_path("disk-whole"), *dir = toy_path("disk");
    pl_err  err;
    int64_t done;
    int     failed = 0;
    toy_is = (toy_setup){.dim = DIM, .slots = 4};
    run(whole, 1, false, 0, PL_OK);
    for (uint64_t n = 1; n < 90; n += 8) {
        pl_trainer_options o = toy_options(dir);
        o.keep = 2;
        o.steps = 6;
        o.checkpoint_every = 2;
        o.eval_every = 0;
        assert_int_equal(pl_tree_remove(dir, &err), PL_OK);
        toy_is.sharded = true;
        pl_io_fail_after(n);
        pl_status st = toy_run(&o, 4, NULL, &err);
        pl_io_fail_after(0);
        if (st != PL_OK && st != PL_E_IO) fail_msg("%s", err.msg);
        failed += st == PL_E_IO;
        assert_int_equal(pl_trainer_done_steps(dir, &done, &err), PL_OK);
        assert_true(done % 2 == 0);
        run(dir, 2, true, 0, PL_OK);
        toy_same_run(whole, dir);
    }
    assert_true(failed > 6);
    toy_is = (toy_setup){.dim = 50};
    pl_free(whole), pl_free(dir);
}

// What each rank holds: its piece, which all together make the whole; blocks that hold nothing at the end of a short
// one.
static void pieces(void **state) {
    (void)state;
    for (int64_t dim = PL_SUMSQ_CHUNK / 2; dim <= DIM; dim += PL_SUMSQ_CHUNK)
        for (int ranks = 1; ranks <= 9; ranks++) {
            int64_t next = 0, n = 0;
            for (int rank = 0; rank < ranks; rank++) {
                toy       y;
                pl_params ps;
                pl_err    err;
                assert_int_equal(pl_params_init(&ps, 1, &err), PL_OK);
                pl_params_add(
                    &ps,
                    &(pl_param_args){
                        .tensor = &y.w, .kind = PL_PARAM_MATRIX, .part = {{"w", 2}}, .cols = dim / 2, .init_std = 1});
                pl_param_block_options o = {
                    .backend = pl_backend_cpu(), .round_to = PL_F32, .shard = {.rank = rank, .ranks = ranks}};
                pl_param_block b;
                float          mine[3], drawn[3];
                assert_int_equal(pl_param_block_create(&b, &ps, &o, &err), PL_OK);
                assert_int_equal(pl_param_block_init(&b, 3, &err), PL_OK);
                n = b.n;
                assert_true(b.held == 0 || b.first == next);
                assert_true(ranks == 1 || b.first % PL_SUMSQ_CHUNK == 0 || b.held == 0);
                next += b.held;
                if (b.held > 3 && b.first + 3 < dim) { // its masters are the draw that all have
                    float *all = pl_malloc((size_t)dim * sizeof *all);
                    assert_non_null(all);
                    pl_param_block_draw(&b, 0, 3, all);
                    memcpy(drawn, all + b.first, sizeof drawn);
                    assert_int_equal(pl_param_block_take(&b, PL_BLOCK_W, b.first, 3, mine, &err), PL_OK);
                    assert_memory_equal(mine, drawn, sizeof mine);
                    assert_memory_equal(b.work, all, (size_t)dim * sizeof *all);
                    pl_free(all);
                }
                pl_param_block_destroy(&b);
                pl_params_fini(&ps);
            }
            assert_int_equal(next, n);
        }
}

int main(void) {
    pl_log_set(PL_LOG_MUTE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces),
        cmocka_unit_test(weights_are_those_of_one),
        cmocka_unit_test(goes_on_with_others),
        cmocka_unit_test(bad_steps),
        cmocka_unit_test(a_full_disk),
    };
    return cmocka_run_group_tests(tests, toy_setup_folder, toy_teardown_folder);
}
