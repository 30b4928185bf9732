#include "tests/infer/biased.h"

static int32_t draw(const pl_verify_in *in) {
    return (int32_t)in->coin->draw(in->coin, in->p, in->v, -1);
}

static int32_t fresh(const pl_verify_in *in, const pl_children *c, int64_t position) {
    (void)position;
    int32_t y = draw(in);
    for (int i = 0; i < c->n; i++)
        if (c->token[i] == y) return y;
    return draw(in);
}

static int32_t no_residual(const pl_verify_in *in, const pl_children *c, int64_t position) {
    (void)position;
    return pl_ratio_test(in->coin, in->p, c->q, c->token[0]) ? c->token[0] : draw(in);
}

static int32_t no_miss(const pl_verify_in *in, const pl_children *c, int64_t position) {
    (void)position;
    return c->token[0] < 0 ? draw(in) : pl_verify_drawn(in, c->q, c->token[0]);
}

// A repeat is skipped: the residual of its rejection is never taken.
static int32_t merged(const pl_verify_in *in, const pl_children *c, int64_t position) {
    (void)position;
    for (int i = 0; i < c->n; i++) {
        bool repeat = false;
        for (int j = 0; j < i; j++)
            repeat |= c->token[j] == c->token[i];
        if (repeat) continue;
        if (pl_ratio_test(in->coin, in->p, c->q, c->token[i])) return c->token[i];
        if (!pl_residual(in->p, c->q, in->v)) break;
    }
    return draw(in);
}

const double *test_biased_q;

static int32_t untrimmed(const pl_verify_in *in, const pl_children *c, int64_t position) {
    (void)position;
    if (pl_ratio_test(in->coin, in->p, c->q, c->token[0])) return c->token[0];
    pl_residual(in->p, test_biased_q, in->v);
    return draw(in);
}

const pl_verifier test_biased_fresh = {.name = "fresh draw on a mismatch", .proposal = PL_PROPOSE_IID, .couple = fresh};
const pl_verifier test_biased_no_residual = {
    .name = "no residual", .proposal = PL_PROPOSE_IID, .chain = true, .couple = no_residual};
const pl_verifier test_biased_merged = {.name = "merged repeats", .proposal = PL_PROPOSE_IID, .couple = merged};
const pl_verifier test_biased_untrimmed = {
    .name = "untrimmed residual", .proposal = PL_PROPOSE_IID, .chain = true, .couple = untrimmed};
const pl_verifier test_biased_no_miss = {
    .name = "no miss", .proposal = PL_PROPOSE_IID, .chain = true, .couple = no_miss};
