// A constraint on what a session may say: texts of a JSON schema, a regular expression or a GBNF grammar.
//
// The grammar is walked byte by byte as a set of stacks, which becomes deterministic as it is used: a state is a
// number, the same for the same set, so a decode tree forks by copying it and going back costs nothing. Every state
// leads to an end: parts that match no text are never entered.
//
// A token is allowed if its bytes lead to a state; a stop token where the text may end, a mark of tool calls (calls.h)
// where it is due, another special token nowhere.
// Bytes without a token of their own are left out of the grammar, so that no text is entered that cannot be spelt.
#ifndef PL_GRAMMAR_H
#define PL_GRAMMAR_H

#include "data/tokenizer/tokenizer.h"
#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_GRAMMAR_DEAD (-1)
#define PL_GRAMMAR_STATES (1 << 16)         // states that one grammar may reach: 67 MB
#define PL_GRAMMAR_MASKS ((size_t)16 << 20) // bytes of masks that are kept
#define PL_GRAMMAR_WORK ((int64_t)1 << 23)  // frames that one mask may expand: half a second

typedef struct pl_grammar    pl_grammar;    // not for several threads at once
typedef struct pl_token_text pl_token_text; // read by any number of grammars

typedef enum pl_grammar_kind {
    PL_GRAMMAR_SCHEMA, // JSON values of a JSON schema (schema.c); "true": any value
    PL_GRAMMAR_REGEX,  // the whole text matches (regex.c)
    PL_GRAMMAR_GBNF,   // llama.cpp's grammars, from the rule root (gbnf.c)
    PL_GRAMMAR_CALLS   // answers that call a tool, a text of pl_calls_write (calls.h)
} pl_grammar_kind;

// Bytes that each token appends to a text.
pl_status pl_token_text_open(pl_token_text **out, const pl_tokenizer *tok, pl_err *err);
void      pl_token_text_close(pl_token_text *t);

// text is not kept. PL_E_INPUT names what is malformed or too large, PL_E_UNSUPPORTED what is valid and not supported.
// t is borrowed; NULL: of any bytes, without tokens.
pl_status pl_grammar_open(pl_grammar **out, pl_grammar_kind kind, const char *text, size_t n, const pl_token_text *t,
                          pl_err *err);
// Opens another walk over a compiled grammar. Each walk may have a thread of its own; one thread opens, copies and
// closes them.
pl_status pl_grammar_copy(pl_grammar **out, const pl_grammar *of, pl_err *err);
void      pl_grammar_close(pl_grammar *g);

int32_t         pl_grammar_start(const pl_grammar *g);
// Returns the state after a byte or a token; PL_GRAMMAR_DEAD if none of the grammar's texts goes on so. state may be
// dead.
int32_t         pl_grammar_byte(pl_grammar *g, int32_t state, uint8_t byte);
int32_t         pl_grammar_token(pl_grammar *g, int32_t state, int32_t token);
bool            pl_grammar_may_end(const pl_grammar *g, int32_t state); // the text so far is a whole one
int32_t         pl_grammar_words(const pl_grammar *g);                  // of a mask
// Returns a bit for each token that may follow, bit i of word i / 32, without stop tokens; it is valid until the next
// call. NULL: no memory, or a bound is reached, as pl_grammar_failed says.
const uint32_t *pl_grammar_mask(pl_grammar *g, int32_t state);
// Running out of memory, states or work sticks: states are dead from then on.
bool            pl_grammar_failed(const pl_grammar *g);

#endif
