// Which of a few ways to decode is the fastest here, by playing them in turns (a multi-armed bandit).
//
// A way (an arm) may cost what no model of its parts says: rows of another number push the weights that stay in a cache
// out of it and make the next steps slower, a look at the text touches memory, what was measured may have been measured
// in another hour. So an arm is judged by all that its cycles took, for what all their tokens are worth: the seconds of
// plain decoding for as many, by a yardstick that the caller keeps. Where that is off it is off for all arms alike.
//
// Arms are played in blocks of PL_BANDIT_BLOCK cycles. ratio: seconds over worth, a running mean of an arm's last
// PL_BANDIT_WINDOW blocks (less than 1: faster than the yardstick). The first block of each arm does not count, since
// memory is new to it. Then the arm of the least ratio is played, lower arms where the difference is below
// PL_BANDIT_EVEN, and another again when
//   blocks since it was played > (its ratio / the best one - 1) / PL_BANDIT_REGRET,
// so that what it loses is at most that share of all time, whatever it loses when it is played: an arm that is nearly
// as good is looked at often, one that is hopeless seldom. While an arm was played n times only (the first apart) it
// waits no longer than 8^n blocks. What a block shows is believed slowly, and beyond a fifth not at all, unless three
// in a row show it; an arm that is far faster than the best one in a block is played on.
#ifndef PL_BANDIT_H
#define PL_BANDIT_H

#include <stdbool.h>

#define PL_BANDIT_ARMS 3
#define PL_BANDIT_OCTAVES 16
#define PL_BANDIT_BLOCK 32
#define PL_BANDIT_WINDOW 32
#define PL_BANDIT_EVEN 0.003
#define PL_BANDIT_REGRET 0.0005 // for each arm
#define PL_BANDIT_LATELY 512    // cycles

typedef struct pl_bandit {
    int    arms, arm, best; // arm: in play
    int    cycles;          // of its block so far
    double seconds, worth;  // of them
    struct {
        long   blocks, since; // played; blocks of others since then
        int    off;           // the last ones, far from what was known
        double ratio;
    } of[PL_BANDIT_ARMS];
} pl_bandit;

// One for each octave of the number of sessions in flight: 1, 2, 3 to 4, 5 to 8...
typedef struct pl_bandits {
    pl_bandit of[PL_BANDIT_OCTAVES];
    double    often[PL_BANDIT_OCTAVES]; // cycles, those longer ago counting less (PL_BANDIT_LATELY)
} pl_bandits;

// sessions: the most that may be in flight, as many as are expected at first.
void       pl_bandits_init(pl_bandits *b, int arms, int sessions);
pl_bandit *pl_bandit_of(pl_bandits *b, int sessions);
// A cycle of so many went by.
void       pl_bandits_cycle(pl_bandits *b, int sessions);
// The octave of most of the last cycles. What begins should ask this one: where a batch begins right behind another
// one's end, few are in flight just then.
pl_bandit *pl_bandits_usual(pl_bandits *b);

// The last arm is played first, so that what decodes only a few tokens drafts them as well as may be.
void pl_bandit_init(pl_bandit *b, int arms);
// A cycle of the arm in play.
void pl_bandit_add(pl_bandit *b, double seconds, double worth);
// Its block is at its end: `may` (bits of arms, arm 0 among them) says what may be played next.
bool pl_bandit_ends(const pl_bandit *b);
void pl_bandit_turn(pl_bandit *b, unsigned may);
// Another arm than the best one has waited for as long as it must.
bool pl_bandit_is_due(const pl_bandit *b, int arm);

#endif
