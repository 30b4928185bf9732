#include "infer/decode/verification.h"

#include "infer/decode/session.h"
#include "kernels/base/check.h"

#include <string.h>

_Static_assert(PL_TREE_MAX <= PL_DRAW_PATH, "the path to any node");

void pl_verification_init(pl_verification *j, const pl_verifier *verifier, bool drafted, int64_t v, int sessions,
                          bool on_device) {
    *j = (pl_verification){.verifier = verifier, .v = v, .sessions = sessions};
    j->draws = on_device && (pl_verifier_matches(verifier) || (!drafted && verifier->lossless));
}

static size_t words(const pl_verification *j) {
    return (size_t)pl_said_words(j->v);
}

void pl_verification_take(pl_verification *j, pl_arena *shared, int rows) {
    j->said = pl_arena_alloc(shared, (size_t)j->sessions * words(j) * sizeof *j->said);
    if (!j->draws) return;
    j->draw = pl_arena_alloc(shared, (size_t)rows * sizeof *j->draw);
    j->drawn = pl_arena_alloc(shared, (size_t)rows * sizeof *j->drawn);
}

static bool is_greedy(const pl_sampling *s) {
    return s->temperature == 0 && !pl_sampling_changes_logits(s);
}

bool pl_verification_greedy(const pl_session *s) {
    return is_greedy(&s->opt.sampling);
}

bool pl_verification_on_host(const pl_verification *j, const pl_sampling *s) {
    return !is_greedy(s) && (!j->draws || pl_sampling_on_host(s));
}

void pl_verification_begin(pl_verification *j) {
    j->n_draws = 0;
}

static pl_rng_coin coin_of(const pl_verified *of) {
    pl_rng_coin c;
    pl_rng_coin_init(&c, of->s->opt.sampling.seed, PL_STREAM_ACCEPT, of->s->opt.key, of->position);
    return c;
}

void pl_verification_ask(pl_verification *j, pl_verified *of) {
    const pl_tree     *t = &of->s->tree;
    const pl_sampling *l = &of->s->opt.sampling;
    of->draw = -1;
    if (is_greedy(l) || pl_verification_on_host(j, l)) return;
    pl_rng_coin coin = coin_of(of);
    of->draw = j->n_draws;
    for (int i = 0; i < t->n; i++)
        j->draw[j->n_draws++] = (pl_draw_row){.u = pl_rng_coin_own(&coin, of->position + t->depth[i] + 1),
                                              .temperature = l->temperature,
                                              .top_p = l->top_p,
                                              .min_p = l->min_p,
                                              .penalty = pl_sampling_has_history(l) ? (float)l->repetition_penalty : 1,
                                              .top_k = l->top_k,
                                              .at = of->row + i,
                                              .text = of->s->slot,
                                              .token = t->token[i],
                                              .parent = i ? of->draw + t->parent[i] : -1};
}

void pl_verification_draw(const pl_verification *j, pl_ctx *ctx, pl_tensor logits, int n) {
    if (!j->draws || n == 0) return;
    bool said = ctx->measuring;
    for (int i = 0; i < n && !said; i++)
        said = j->draw[i].penalty != 1;
    pl_draw(
        ctx,
        &(pl_draw_args){
            .x = logits, .row = j->draw, .n = n, .said = said ? j->said : NULL, .texts = j->sessions, .id = j->drawn});
}

// The target's distributions of one session's tree.
typedef struct dists {
    const pl_verification *j;
    const pl_verified     *of;
    const float           *logits; // of the root
} dists;

static bool dist_of(void *arg, int node, double *p) {
    dists         *l = arg;
    pl_session    *s = l->of->s;
    const pl_tree *t = &s->tree;
    int32_t        path[PL_TREE_MAX];
    pl_history     h = {.said = l->j->said + (size_t)s->slot * words(l->j),
                        .answer = s->tokens + s->n_prompt,
                        .n_answer = s->n_tokens - s->n_prompt,
                        .path = path};
    if (pl_sampling_has_history(&s->opt.sampling)) {
        int n = pl_tree_path(t, node, path) - 1; // without the root, which is part of the text
        for (int i = 0; i < n; i++)
            path[i] = t->token[path[i + 1]];
        h.n_path = n;
    }
    return pl_distribution(p, l->logits + node * l->j->v, l->j->v, &s->opt.sampling, &h, &s->work);
}

void pl_verification_verdict(const pl_verification *j, const pl_verified *of, const float *logits,
                             const int32_t *argmax, pl_verdict *out) {
    pl_session *s = of->s;
    dists       l = {.j = j, .of = of};
    pl_rng_coin coin = coin_of(of);
    if (logits) l.logits = logits + of->row * j->v;
    const int32_t *own = of->draw >= 0 ? j->drawn + of->draw : pl_verification_greedy(s) ? argmax + of->row : NULL;
    PL_CHECK(own || logits, "session %d: a distribution without logits", s->slot);
    pl_verify_in in = {.tree = &s->tree,
                       .dist = dist_of,
                       .arg = &l,
                       .own = own,
                       .v = j->v,
                       .position = of->position,
                       .coin = &coin.base,
                       .p = s->dist,
                       .q = s->dist + j->v,
                       .r = s->dist + 2 * j->v};
    pl_verify(j->verifier, &in, out);
}

void pl_verification_said(pl_verification *j, const pl_session *s, int32_t token) {
    pl_said_add(j->said + (size_t)s->slot * words(j), token);
}

void pl_verification_text(pl_verification *j, const pl_session *s) {
    memset(j->said + (size_t)s->slot * words(j), 0, words(j) * sizeof *j->said);
    for (int32_t i = 0; i < s->n_tokens; i++)
        pl_verification_said(j, s, s->tokens[i]);
}
