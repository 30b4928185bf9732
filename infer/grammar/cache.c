#include "infer/grammar/cache.h"

#include "kernels/base/arena.h"
#include "kernels/base/strbuf.h"

#include <string.h>

static void forget(pl_grammar_cache *c, int i) {
    pl_free(c->kept[i].text);
    pl_grammar_close(c->kept[i].grammar);
    memset(&c->kept[i], 0, sizeof c->kept[i]);
}

// Returns the place of a text, -1: it is not kept. *oldest: a free place, or that of the grammar used longest ago.
static int find(const pl_grammar_cache *c, pl_grammar_kind kind, const char *text, size_t n, int *oldest) {
    *oldest = 0;
    for (int i = 0; i < PL_GRAMMAR_KEPT; i++) {
        if (c->kept[i].text && c->kept[i].kind == kind && c->kept[i].n == n && memcmp(c->kept[i].text, text, n) == 0)
            return i;
        if (c->kept[i].used < c->kept[*oldest].used) *oldest = i;
    }
    return -1;
}

pl_status pl_grammar_cached(pl_grammar_cache *c, pl_grammar **out, pl_grammar_kind kind, const char *text, size_t n,
                            const pl_token_text *t, pl_err *err) {
    int oldest, i = find(c, kind, text, n, &oldest);
    *out = NULL;
    if (i < 0) {
        pl_grammar *g;
        pl_strbuf   copy = {0};
        PL_TRY(pl_grammar_open(&g, kind, text, n, t, err));
        pl_strbuf_add(&copy, text, n);
        char *own = pl_strbuf_take(&copy);
        if (!own) { // it serves this request alone
            *out = g;
            return PL_OK;
        }
        i = oldest;
        forget(c, i);
        c->kept[i].kind = kind;
        c->kept[i].text = own;
        c->kept[i].n = n;
        c->kept[i].grammar = g;
    }
    c->kept[i].used = ++c->uses;
    return pl_grammar_copy(out, c->kept[i].grammar, err);
}

void pl_grammar_cache_fini(pl_grammar_cache *c) {
    for (int i = 0; i < PL_GRAMMAR_KEPT; i++)
        forget(c, i);
}
