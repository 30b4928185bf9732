#include "infer/decode/bandit.h"

#include "kernels/base/check.h"

#include <math.h>

#define COLD 1        // blocks that do not count
#define FIRST 2       // blocks of each arm, the cold ones among them, before any is preferred
#define CLIP 1.2      // times an arm's ratio: no block counts as further off, once there are some
#define OFTEN 3       // blocks in a row that are further off: what was known before is forgotten
#define SURPRISE 0.95 // of the best arm's ratio: a block of another that is better than this is believed at once

void pl_bandit_init(pl_bandit *b, int arms) {
    PL_CHECK(arms >= 1 && arms <= PL_BANDIT_ARMS, "%d arms", arms);
    *b = (pl_bandit){.arms = arms, .arm = arms - 1};
}

static int octave(int sessions) {
    int i = 0;
    while (i < PL_BANDIT_OCTAVES - 1 && 1 << i < sessions)
        i++;
    return i;
}

void pl_bandits_init(pl_bandits *b, int arms, int sessions) {
    for (int i = 0; i < PL_BANDIT_OCTAVES; i++) {
        pl_bandit_init(&b->of[i], arms);
        b->often[i] = 0;
    }
    b->often[octave(sessions)] = 1;
}

pl_bandit *pl_bandit_of(pl_bandits *b, int sessions) {
    return &b->of[octave(sessions)];
}

void pl_bandits_cycle(pl_bandits *b, int sessions) {
    for (int i = 0; i < PL_BANDIT_OCTAVES; i++)
        b->often[i] *= 1 - 1.0 / PL_BANDIT_LATELY;
    b->often[octave(sessions)]++;
}

pl_bandit *pl_bandits_usual(pl_bandits *b) {
    int most = 0;
    for (int i = 1; i < PL_BANDIT_OCTAVES; i++)
        if (b->often[i] > b->often[most]) most = i;
    return &b->of[most];
}

void pl_bandit_add(pl_bandit *b, double seconds, double worth) {
    if (!(worth > 0)) return;
    b->cycles++;
    b->seconds += seconds;
    b->worth += worth;
}

bool pl_bandit_ends(const pl_bandit *b) {
    return b->cycles >= PL_BANDIT_BLOCK;
}

static void learn(pl_bandit *b) {
    int  a = b->arm;
    long n = ++b->of[a].blocks - COLD;
    if (n <= 0) return;
    double x = b->seconds / b->worth, known = b->of[a].ratio, best = b->of[b->best].ratio;
    double weight = n < PL_BANDIT_WINDOW ? 1.0 / (double)n : 1.0 / PL_BANDIT_WINDOW;
    bool   off = n > 2 && (x > CLIP * known || x < known / CLIP);
    bool   surprise = a != b->best && n > 1 && known > best && x < SURPRISE * best;
    b->of[a].off = off ? b->of[a].off + 1 : 0;
    if (b->of[a].off == OFTEN || surprise) {
        weight = 1;
        b->of[a].blocks = COLD + 1;
        b->of[a].off = 0;
    } else if (off) {
        x = fmin(fmax(x, known / CLIP), known * CLIP);
    }
    b->of[a].ratio += weight * (x - known);
}

static bool is_known(const pl_bandit *b, int a) {
    return b->of[a].blocks > COLD;
}

bool pl_bandit_is_due(const pl_bandit *b, int a) {
    if (b->of[a].blocks < FIRST) return true;
    double wait = (b->of[a].ratio / b->of[b->best].ratio - 1) / PL_BANDIT_REGRET;
    return (double)b->of[a].since > fmin(wait, exp2(3 * (double)(b->of[a].blocks - COLD)));
}

void pl_bandit_turn(pl_bandit *b, unsigned may) {
    int next = -1;
    learn(b);
    for (int a = 0; a < b->arms; a++)
        b->of[a].since = a == b->arm ? 0 : b->of[a].since + 1;
    b->best = 0;
    for (int a = 1; a < b->arms; a++)
        if (may >> a & 1 && is_known(b, a) && is_known(b, b->best) &&
            b->of[a].ratio < (1 - PL_BANDIT_EVEN) * b->of[b->best].ratio)
            b->best = a;
    // Of those that are due the one played least, or longest ago.
    for (int a = 0; a < b->arms; a++) {
        if (!(may >> a & 1) || (a == b->best && b->of[a].blocks >= FIRST) || !pl_bandit_is_due(b, a)) continue;
        if (next < 0 || (b->of[a].blocks < FIRST && b->of[a].blocks < b->of[next].blocks) ||
            (b->of[next].blocks >= FIRST && b->of[a].since > b->of[next].since))
            next = a;
    }
    b->arm = next >= 0 ? next : b->best;
    b->cycles = 0;
    b->seconds = b->worth = 0;
}
