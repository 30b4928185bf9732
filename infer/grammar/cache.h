// Compiled grammars that are kept: requests ask for the same few again and again, and each answer walks its own copy.
#ifndef PL_GRAMMAR_CACHE_H
#define PL_GRAMMAR_CACHE_H

#include "infer/grammar/grammar.h"

#define PL_GRAMMAR_KEPT 8

typedef struct pl_grammar_cache {
    struct {
        pl_grammar_kind kind;
        char           *text; // owned; NULL: free
        size_t          n;
        pl_grammar     *grammar; // owned; it is not walked
        uint64_t        used;    // order of the last use
    } kept[PL_GRAMMAR_KEPT];
    uint64_t uses;
} pl_grammar_cache;

// pl_grammar_open, or a copy of the grammar that an earlier call compiled of the same text for the same tokens. The
// grammar used longest ago makes room for another.
pl_status pl_grammar_cached(pl_grammar_cache *c, pl_grammar **out, pl_grammar_kind kind, const char *text, size_t n,
                            const pl_token_text *t, pl_err *err);
void      pl_grammar_cache_fini(pl_grammar_cache *c); // zeroed is fine; copies live on

#endif
