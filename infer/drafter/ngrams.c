#include "infer/drafter/ngrams.h"

#include "kernels/base/arena.h"

#include <string.h>

// Spells a token's bytes in the drafter's tokens, exactly; *n is 0 if that is impossible or takes too many.
static pl_status spell_token(const pl_lexicon *draft, int64_t vd, const char *s, size_t bytes, int32_t *id, int *n,
                             pl_err *err) {
    size_t end[PL_NGRAM_LONGEST + 1], sum = 0;
    PL_TRY(pl_lexicon_spell(draft, s, bytes, false, id, end, PL_NGRAM_LONGEST + 1, n, err));
    bool good = *n <= PL_NGRAM_LONGEST;
    for (int i = 0; i < *n && good; i++) {
        size_t len;
        pl_lexicon_bytes(draft, id[i], &len);
        sum += len;
        good = id[i] < vd;
    }
    if (!good || sum != bytes) *n = 0;
    return PL_OK;
}

static pl_status spell_all(pl_ngrams *g, const pl_lexicon *target, const pl_lexicon *draft, const int32_t *has,
                           pl_err *err) {
    int64_t n_target = pl_tokenizer_vocab_size(target->tok), room = 0, at = 0;
    for (int64_t t = 0; t < g->vt; t++) {
        int32_t     id[PL_NGRAM_LONGEST + 1];
        size_t      bytes = 0;
        int         n = 0;
        const char *s = t < n_target ? pl_lexicon_bytes(target, (int32_t)t, &bytes) : NULL;
        if (has[t] < 0 && bytes > 0) PL_TRY(spell_token(draft, g->vd, s, bytes, id, &n, err));
        if (n < 2) n = 0;
        if (at + n > room) {
            room = 2 * room + 1024;
            int32_t *more = pl_realloc(g->spelled, (size_t)room * sizeof *more);
            if (!more) return pl_fail(err, PL_E_MEMORY, "n-grams of %lld tokens: out of memory", (long long)g->vt);
            g->spelled = more;
        }
        for (int i = 0; i < n; i++)
            g->spelled[at++] = id[i];
        g->from[t + 1] = at;
    }
    return PL_OK;
}

static pl_status open_lists(pl_ngrams *g, const pl_lexicon *target, const pl_lexicon *draft, const int32_t *has,
                            pl_err *err) {
    g->from = pl_calloc((size_t)g->vt + 1, sizeof *g->from);
    g->root = pl_calloc((size_t)g->vd, sizeof *g->root);
    g->known = pl_calloc((size_t)g->vt, sizeof *g->known);
    if (!g->from || !g->root || !g->known)
        return pl_fail(err, PL_E_MEMORY, "n-grams of %lld tokens: out of memory", (long long)g->vt);
    PL_TRY(spell_all(g, target, draft, has, err));
    g->node = pl_calloc((size_t)g->from[g->vt] + 1, sizeof *g->node);
    if (!g->node) return pl_fail(err, PL_E_MEMORY, "n-grams of %lld tokens: out of memory", (long long)g->vt);
    pl_ngrams_forget(g);
    return PL_OK;
}

pl_status pl_ngrams_open(pl_ngrams *g, const pl_lexicon *target, int64_t vt, const pl_lexicon *draft, int64_t vd,
                         const int32_t *has, pl_err *err) {
    *g = (pl_ngrams){.vt = vt, .vd = vd};
    pl_status st = open_lists(g, target, draft, has, err);
    if (st != PL_OK) pl_ngrams_close(g);
    return st;
}

void pl_ngrams_close(pl_ngrams *g) {
    pl_free(g->spelled);
    pl_free(g->from);
    pl_free(g->root);
    pl_free(g->node);
    pl_free(g->known);
    *g = (pl_ngrams){0};
}

void pl_ngrams_forget(pl_ngrams *g) {
    memset(g->root, 0, (size_t)g->vd * sizeof *g->root);
    memset(g->known, 0, (size_t)g->vt * sizeof *g->known);
    g->node[0] = (pl_ngram_node){.token = -1, .target = -1};
    g->n = 1;
    g->learned = 0;
}

int32_t pl_ngrams_next(const pl_ngrams *g, int32_t node, int32_t token) {
    if (node == 0) return g->root[token];
    int32_t at = g->node[node].first;
    while (at > 0 && g->node[at].token != token)
        at = g->node[at].sibling;
    return at;
}

static int32_t add_node(pl_ngrams *g, int32_t node, int32_t token) {
    int32_t at = g->n++;
    g->node[at] = (pl_ngram_node){.token = token, .target = -1};
    if (node == 0) {
        g->root[token] = at;
    } else {
        g->node[at].sibling = g->node[node].first;
        g->node[node].first = at;
    }
    return at;
}

void pl_ngrams_learn(pl_ngrams *g, int32_t target) {
    if (target < 0 || target >= g->vt || g->known[target]) return;
    g->known[target] = true;
    int64_t from = g->from[target], to = g->from[target + 1];
    int32_t node = 0;
    if (from == to) return;
    for (int64_t i = from; i < to; i++) {
        int32_t next = pl_ngrams_next(g, node, g->spelled[i]);
        node = next ? next : add_node(g, node, g->spelled[i]);
    }
    g->node[node].target = target;
    g->learned++;
}
