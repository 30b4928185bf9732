// Encoding word by word with a cache. If no piece of a vocabulary has a space (or its mark) after another character, no
// merge can cross the gap before a space, so words encode independently of each other; and texts repeat words. This
// makes whole books some ten times faster and changes no id.
#ifndef PL_WORDS_H
#define PL_WORDS_H

#include "data/tokenizer/vocab.h"
#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

// A growing array of ids; zeroed: empty.
typedef struct pl_ids {
    int32_t *v; // owned
    int64_t  n, cap;
} pl_ids;

pl_status pl_ids_reserve(pl_ids *o, size_t more, pl_err *err);

// A cache of encoded words, in several memories: a thread takes one while it encodes, so that threads that share a
// tokenizer all have one (those beyond PL_WORDS_MEMORIES encode without).
#define PL_WORDS_MEMORIES 16
typedef struct pl_words_memory pl_words_memory;
typedef struct pl_words {
    pl_words_memory *memory; // [PL_WORDS_MEMORIES]; NULL until init
} pl_words;

pl_status pl_words_init(pl_words *w, pl_err *err);
void      pl_words_fini(pl_words *w); // does nothing if zeroed

// Returns true if no piece has `mark` after another character. (" " or U+2581)
bool pl_words_are_apart(const pl_vocab *v, const char *mark);

// Appends the ids of one word. first: the word begins the text, otherwise it begins with the mark.
typedef pl_status (*pl_word_fn)(const void *ctx, const char *word, size_t n, bool first, pl_ids *o, pl_err *err);

// Cuts text[0..n) and encodes the words. every: cuts before each mark; else before each run of marks, and a single one
// at the end stays with its word. w NULL: without a cache.
pl_status pl_words_encode(pl_words *w, const char *text, size_t n, const char *mark, bool every, pl_word_fn fn,
                          const void *ctx, pl_ids *o, pl_err *err);

// For callers that cut words themselves: takes a memory that no other caller uses (NULL if there is none left), encodes
// one word at a time, and gives it back.
pl_words_memory *pl_words_take(pl_words *w);
void             pl_words_give(pl_words_memory *m); // NULL is fine
pl_status        pl_words_one(pl_words_memory *m, const char *word, size_t n, pl_word_fn fn, const void *ctx, pl_ids *o,
                              pl_err *err);

#endif
