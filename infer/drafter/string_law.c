#include "infer/drafter/string_law.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"

#include <string.h>

#define MANY 16 // one token in MANY must have some probability

static const char *bytes_of(const pl_string_law *l, int64_t d, size_t *n) {
    return pl_lexicon_bytes(l->draft, (int32_t)d, n);
}

int pl_string_law_level(const pl_string_law *l) {
    return (int)(1 / l->least * (1 + 1e-9));
}

pl_status pl_string_law_init(pl_string_law *l, const pl_lexicon *target, int64_t vt, const pl_lexicon *draft,
                             int64_t vd, int cap, double least, pl_err *err) {
    PL_CHECK(cap >= 1 && least > 0 && least <= 1, "cap %d, least %g", cap, least);
    *l = (pl_string_law){.target = target,
                         .draft = draft,
                         .vt = vt,
                         .vd = vd,
                         .end_target = pl_tokenizer_eos_id(target->tok),
                         .end_draft = pl_tokenizer_eos_id(draft->tok),
                         .cap = cap,
                         .least = least};
    l->most = 1 + cap * pl_string_law_level(l);
    l->alone = pl_calloc((size_t)vd, sizeof *l->alone);
    l->state = pl_calloc((size_t)l->most, sizeof *l->state);
    l->odd = pl_calloc((size_t)vd, sizeof *l->odd);
    if (!l->alone || !l->state || !l->odd) {
        pl_string_law_fini(l);
        return pl_fail(err, PL_E_MEMORY, "strings of %lld tokens: out of memory", (long long)vd);
    }
    for (int64_t d = 0; d < vd; d++) {
        size_t      n;
        const char *s = bytes_of(l, d, &n);
        pl_lexicon_start(target, &l->alone[d]);
        pl_lexicon_read(target, &l->alone[d], s, n);
        if (pl_lexicon_find(draft, s, n) != d) l->odd[l->n_odd++] = (int32_t)d;
    }
    return PL_OK;
}

void pl_string_law_use(pl_string_law *l, const pl_ngrams *grams, const int32_t *to_target) {
    l->grams = grams;
    l->to_target = to_target;
}

void pl_string_law_fini(pl_string_law *l) {
    pl_free(l->alone);
    pl_free(l->state);
    pl_free(l->odd);
    *l = (pl_string_law){0};
}

void pl_string_law_begin(pl_string_law *l, double *psi) {
    l->psi = psi;
    memset(psi, 0, (size_t)l->vt * sizeof *psi);
    l->n = 1;
    l->state[0] = (pl_string_state){.w = 1, .parent = -1, .token = -1};
    pl_lexicon_start(l->target, &l->state[0].at);
}

// Ends writing at a string whose first target token is `first` (-1: it has none).
static void end_string(pl_string_law *l, int32_t first, double w) {
    if (first >= 0 && first < l->vt) l->psi[first] += w;
}

// Extends the string of `parent` by token d, or ends writing there.
static void add_token(pl_string_law *l, int parent, int64_t d, double w, const pl_lexicon_at *at, int32_t gram,
                      bool open) {
    int depth = l->state[parent].depth + 1;
    if (depth < l->cap && w >= l->least && l->n < l->most && open)
        l->state[l->n++] =
            (pl_string_state){.w = w, .parent = parent, .depth = depth, .token = (int32_t)d, .at = *at, .gram = gram};
    else
        end_string(l, at->longest, w);
}

static void add_gram(pl_string_law *l, int parent, int64_t d, double w, int32_t gram, int32_t longest) {
    if (gram && l->grams->node[gram].target >= 0) longest = l->grams->node[gram].target;
    add_token(l, parent, d, w, &(pl_lexicon_at){.longest = longest}, gram, gram && l->grams->node[gram].first);
}

// Strings that leave the cache keep their first token F.
static void take_grams(pl_string_law *l, int state, const double *q) {
    const pl_string_state s = l->state[state];
    double                rest = 1;
    if (s.depth == 0) {
        for (int64_t d = 0; d < l->vd; d++) {
            if (!(q[d] > 0)) continue;
            if (d == l->end_draft)
                end_string(l, l->end_target, q[d]);
            else
                add_gram(l, state, d, q[d], pl_ngrams_next(l->grams, 0, (int32_t)d), l->to_target[d]);
        }
        return;
    }
    for (int32_t g = l->grams->node[s.gram].first; g; g = l->grams->node[g].sibling) {
        int32_t d = l->grams->node[g].token;
        if (!(q[d] > 0)) continue;
        rest -= q[d];
        add_gram(l, state, d, s.w * q[d], g, s.at.longest);
    }
    if (rest > 0) end_string(l, s.at.longest, s.w * rest);
}

// Adds token d after a state, byte by byte.
static void take_one(pl_string_law *l, int state, const double *q, int64_t d) {
    const pl_string_state s = l->state[state];
    size_t                n;
    const char           *bytes = bytes_of(l, d, &n);
    pl_lexicon_at         at = s.depth == 0 ? l->alone[d] : s.at;
    if (!(q[d] > 0)) return;
    if (d == l->end_draft) {
        end_string(l, s.depth == 0 ? l->end_target : s.at.longest, s.w * q[d]);
        return;
    }
    if (n == 0) return;
    if (s.depth > 0) pl_lexicon_read(l->target, &at, bytes, n);
    add_token(l, state, d, s.w * q[d], &at, 0, pl_lexicon_open(l->target, &at));
}

// Walks both vocabularies together after a state's string: visits the draft tokens that begin with the bytes read so
// far (`mine`) and that change F or may do so, and returns their probability. `at`: the string with these bytes.
static double lead_on(pl_string_law *l, int state, const double *q, const pl_lexicon_at *mine,
                      const pl_lexicon_at *at) {
    const pl_lexicon *x = l->draft;
    int32_t           was = l->state[state].at.longest, i = mine->lo;
    double            w = l->state[state].w, sum = 0;
    bool              open = pl_lexicon_open(l->target, at);
    if (!open && at->longest == was) return 0;
    for (; i < mine->hi && (!open || x->len[i] == mine->depth); i++) { // the entry ends here, or no extension is
                                                                       // possible
        int32_t d = x->id[i];
        if (d >= l->vd || d == l->end_draft || !(q[d] > 0)) continue;
        add_token(l, state, d, w * q[d], at, 0, open);
        sum += q[d];
    }
    while (i < mine->hi) {
        const char    b = (char)x->s[i][mine->depth];
        pl_lexicon_at next = *mine, to = *at;
        pl_lexicon_read(x, &next, &b, 1);
        pl_lexicon_read(l->target, &to, &b, 1);
        sum += lead_on(l, state, q, &next, &to);
        i = next.hi;
    }
    return sum;
}

static void take_most(pl_string_law *l, int state, const double *q) {
    const pl_string_state s = l->state[state];
    pl_lexicon_at         mine;
    double                rest = 1;
    for (int i = 0; i < l->n_odd; i++) {
        rest -= q[l->odd[i]];
        take_one(l, state, q, l->odd[i]);
    }
    pl_lexicon_start(l->draft, &mine);
    rest -= lead_on(l, state, q, &mine, &s.at);
    if (rest > 0) end_string(l, s.at.longest, s.w * rest);
}

// Returns true if many tokens have some probability: only then is the walk over all tokens worth its cost.
static bool said_by_many(const pl_string_law *l, const double *q) {
    int64_t n = 0;
    for (int64_t d = 0; d < l->vd; d++)
        n += q[d] > 0;
    return MANY * n > l->vd;
}

void pl_string_law_take(pl_string_law *l, int state, const double *q) {
    PL_CHECK(state < l->n, "state %d of %d", state, l->n);
    if (l->grams) {
        take_grams(l, state, q);
    } else if (l->state[state].depth > 0 && said_by_many(l, q)) {
        take_most(l, state, q);
    } else {
        for (int64_t d = 0; d < l->vd; d++)
            if (q[d] > 0) take_one(l, state, q, d);
    }
}

void pl_string_law_stop(pl_string_law *l, int state) {
    end_string(l, l->state[state].at.longest, l->state[state].w);
}

bool pl_string_law_end(pl_string_law *l) {
    double sum = 0;
    for (int64_t t = 0; t < l->vt; t++)
        sum += l->psi[t];
    if (!(sum > 0)) return false;
    for (int64_t t = 0; t < l->vt; t++)
        l->psi[t] /= sum;
    return true;
}
