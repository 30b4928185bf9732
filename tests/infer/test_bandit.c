// Ways to decode that take turns (infer/decode/bandit.h): who is played for how long, and what the turns lose.
#include "infer/decode/bandit.h"

#include "kernels/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { ALL = 7 };

typedef struct dice {
    pl_rng   r;
    uint64_t at;
} dice;

typedef struct world {
    const char *name;
    double      ratio[PL_BANDIT_ARMS]; // seconds of a cycle over what its tokens are worth
    double      noise;                 // of a cycle, its standard deviation
    double      stalls;                // share of the blocks in which something else takes half of the machine
    int         best;                  // -1: two are nearly equal
} world;

// Plays so many blocks. Returns what they took beyond what the fastest arm alone would have taken, as a share of it;
// noise left out.
static double play(pl_bandit *b, const world *w, dice *d, int blocks, unsigned may, int in_play[PL_BANDIT_ARMS]) {
    double took = 0, least = INFINITY, cycles = 0;
    for (int a = 0; a < b->arms; a++) {
        in_play[a] = 0;
        if (may >> a & 1) least = fmin(least, w->ratio[a]);
    }
    for (int i = 0; i < blocks; i++) {
        double pace = pl_rng_uniform(d->r, d->at++) < w->stalls ? 2 : 1;
        in_play[b->arm]++;
        for (; !pl_bandit_ends(b); cycles++) {
            took += w->ratio[b->arm];
            pl_bandit_add(b, pace * w->ratio[b->arm] * fmax(1 + w->noise * pl_rng_normal(d->r, d->at++), 0.2), 1);
        }
        pl_bandit_turn(b, may);
    }
    return took / cycles / least - 1;
}

// In the first 12 blocks all are looked at; later little is lost, whatever the machine.
static void turns_lose_little(void **state) {
    (void)state;
    static const world m[] = {{"nothing pays", {1, 1.01, 1.04}, 0.1, 0.05, 0},
                              {"nothing pays, noisy", {1, 1.01, 1.04}, 0.3, 0.1, -1},
                              {"one pays a little", {1, 0.94, 0.97}, 0.2, 0.05, 1},
                              {"one pays", {1, 0.8, 0.65}, 0.3, 0.05, 2},
                              {"one is very dear", {1, 1.002, 4}, 0.1, 0.05, -1}};
    enum { SEEDS = 50, BEGIN = 12, THEN = 28, LATER = 400 };
    for (size_t i = 0; i < sizeof m / sizeof *m; i++) {
        double lost[3] = {0}, best = 0;
        for (int k = 0; k < SEEDS; k++) {
            dice      d = {.r = pl_rng_make((uint64_t)k, PL_STREAM_TEST, i)};
            pl_bandit b;
            int       n[PL_BANDIT_ARMS];
            pl_bandit_init(&b, 3);
            lost[0] += play(&b, &m[i], &d, BEGIN, ALL, n) / SEEDS;
            for (int a = 0; a < 3; a++)
                assert_true(n[a] >= 2);
            lost[1] += play(&b, &m[i], &d, THEN, ALL, n) / SEEDS;
            lost[2] += play(&b, &m[i], &d, LATER, ALL, n) / SEEDS;
            if (m[i].best >= 0) best += (double)n[m[i].best] / LATER / SEEDS;
        }
        print_message("%-20s %.1f, %.1f, %.2f %% lost in the first %d blocks, %d more, %d more\n", m[i].name,
                      100 * lost[0], 100 * lost[1], 100 * lost[2], BEGIN, THEN, LATER);
        assert_true(lost[2] < 0.01);
        if (m[i].best >= 0) assert_true(best > 0.6);
    }
}

// An arm that was hopeless and becomes the best is found, and left again when it is so no more.
static void follows_changes(void **state) {
    (void)state;
    dice      d = {.r = pl_rng_make(3, PL_STREAM_TEST, 0)};
    world     w = {"", {1, 1.3, 1.3}, 0.1, 0, 0};
    pl_bandit b;
    int       n[PL_BANDIT_ARMS], blocks = 0;
    pl_bandit_init(&b, 3);
    play(&b, &w, &d, 400, ALL, n);
    assert_int_equal(b.best, 0);
    assert_true(n[1] < 8 && n[2] < 8);
    w.ratio[2] = 0.7;
    for (; b.best != 2; blocks++)
        play(&b, &w, &d, 1, ALL, n);
    print_message("the best arm is found after %d blocks", blocks);
    assert_true(blocks < 700); // (1.3 - 1) / PL_BANDIT_REGRET, and some
    play(&b, &w, &d, 10, ALL, n);
    assert_true(n[2] >= 9);
    w.ratio[2] = 1.4;
    for (blocks = 0; b.best == 2; blocks++)
        play(&b, &w, &d, 1, ALL, n);
    print_message(", and left after %d when it is no more\n", blocks);
    assert_true(blocks < 10);
}

// The first block of an arm, on memory that is new to it, says nothing; nor does one that the machine disturbed much.
static void forgets_what_is_cold(void **state) {
    (void)state;
    dice      d = {.r = pl_rng_make(4, PL_STREAM_TEST, 0)};
    world     w = {"", {1, 0.9, 1}, 0, 0, 0}, cold = {"", {5, 5, 5}, 0, 0, 0};
    pl_bandit b;
    int       n[PL_BANDIT_ARMS];
    pl_bandit_init(&b, 2);
    play(&b, &cold, &d, 2, ALL, n);
    assert_true(n[0] == 1 && n[1] == 1);
    play(&b, &w, &d, 20, ALL, n);
    assert_int_equal(b.best, 1);
    assert_true(fabs(b.of[0].ratio - 1) < 1e-9 && fabs(b.of[1].ratio - 0.9) < 1e-9);
    assert_int_equal(b.arm, 1);
    play(&b, &cold, &d, 1, ALL, n);
    assert_int_equal(b.best, 1);
}

// Who may not be played is not, however long it waits; cycles that are worth nothing known are none.
static void plays_who_may(void **state) {
    (void)state;
    dice      d = {.r = pl_rng_make(5, PL_STREAM_TEST, 0)};
    world     w = {"", {1, 0.9, 0.5}, 0.1, 0, 0};
    pl_bandit b;
    int       n[PL_BANDIT_ARMS];
    pl_bandit_init(&b, 3);
    // the first block is the last arm's, whoever may be played later
    play(&b, &w, &d, 50, 3, n);
    assert_true(n[2] == 1 && n[1] > 30 && pl_bandit_is_due(&b, 2));
    play(&b, &w, &d, 50, ALL, n);
    assert_true(n[2] > 40 && b.best == 2);
    play(&b, &w, &d, 50, 3, n);
    assert_true(n[2] == 1 && b.best == 1);
    for (int i = 0; i < 2 * PL_BANDIT_BLOCK; i++)
        pl_bandit_add(&b, 1, 0);
    assert_false(pl_bandit_ends(&b));
}

// Batches of sixteen, one right behind another: what ends last has many of its own blocks, and is not the usual number.
static void a_batch_has_a_tail(void **state) {
    static pl_bandits b;
    (void)state;
    pl_bandits_init(&b, 3, 16);
    assert_ptr_equal(pl_bandits_usual(&b), pl_bandit_of(&b, 16));
    for (int batch = 0; batch < 40; batch++) {
        for (int i = 0; i < 100; i++)
            pl_bandits_cycle(&b, 16);
        for (int n = 8; n >= 1; n /= 2)
            for (int i = 0; i < 12; i++)
                pl_bandits_cycle(&b, n);
        assert_ptr_equal(pl_bandits_usual(&b), pl_bandit_of(&b, 9));
    }
    int cycles = 0;
    for (; pl_bandits_usual(&b) != pl_bandit_of(&b, 3); cycles++)
        pl_bandits_cycle(&b, 4);
    assert_true(cycles > PL_BANDIT_LATELY / 4 && cycles < PL_BANDIT_LATELY);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_batch_has_a_tail), cmocka_unit_test(turns_lose_little),
                                       cmocka_unit_test(follows_changes), cmocka_unit_test(forgets_what_is_cold),
                                       cmocka_unit_test(plays_who_may)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
