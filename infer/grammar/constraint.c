#include "infer/grammar/constraint.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"

#include <string.h>

// Walks to the end of the answer, which has grown since the last call. A stop token ends it.
static void follow(pl_grammar_constraint *c, const int32_t *answer, int64_t n) {
    PL_CHECK(n >= c->n_said, "an answer shrank from %lld to %lld tokens", (long long)c->n_said, (long long)n);
    for (; c->n_said < n; c->n_said++)
        c->state = pl_grammar_token(c->grammar, c->state, answer[c->n_said]);
}

static const uint32_t *allowed(pl_constraint *base, const int32_t *answer, int64_t n, const int32_t *path,
                               int64_t n_path) {
    pl_grammar_constraint *c = (pl_grammar_constraint *)base;
    follow(c, answer, n);
    int32_t at = c->state;
    for (int64_t i = 0; i < n_path && at >= 0; i++)
        at = pl_grammar_token(c->grammar, at, path[i]);
    const uint32_t *mask = at < 0 ? NULL : pl_grammar_mask(c->grammar, at);
    memset(c->mask, 0, (size_t)c->words * sizeof *c->mask);
    if (mask) memcpy(c->mask, mask, (size_t)c->own * sizeof *mask);
    for (int i = 0; i < c->n_stop; i++) // behind a path that may not stand there any mask will do
        if (!mask || pl_grammar_may_end(c->grammar, at)) c->mask[c->stop[i] / 32] |= 1U << c->stop[i] % 32;
    return c->mask;
}

pl_status pl_grammar_constraint_init(pl_grammar_constraint *c, pl_grammar *g, int64_t vocab, const int32_t *stop,
                                     int n_stop, pl_err *err) {
    int32_t words = (int32_t)((vocab + 31) / 32), own = pl_grammar_words(g);
    *c = (pl_grammar_constraint){.base.allowed = allowed,
                                 .grammar = g,
                                 .own = own,
                                 .state = pl_grammar_start(g),
                                 .stop = stop,
                                 .n_stop = n_stop,
                                 .words = words > own ? words : own};
    c->mask = pl_malloc((size_t)c->words * sizeof *c->mask);
    pl_status st = PL_OK;
    if (!c->mask) st = pl_fail(err, PL_E_MEMORY, "grammar: out of memory");
    if (st == PL_OK && n_stop == 0)
        st = pl_fail(err, PL_E_UNSUPPORTED, "the target has no token that ends an answer, so a grammar cannot end");
    if (st != PL_OK) pl_grammar_constraint_fini(c);
    return st;
}

void pl_grammar_constraint_fini(pl_grammar_constraint *c) {
    pl_grammar_close(c->grammar);
    pl_free(c->mask);
    *c = (pl_grammar_constraint){0};
}

bool pl_grammar_constraint_met(pl_grammar_constraint *c, const int32_t *answer, int64_t n) {
    follow(c, answer, n);
    return pl_grammar_may_end(c->grammar, c->state);
}
