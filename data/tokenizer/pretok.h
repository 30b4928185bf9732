// Pre-tokenizers: cut text into words, within which BPE merges. A chain of steps, each of which cuts the words of the
// previous one, as in the `pre_tokenizer` of a tokenizer.json.
#ifndef PL_PRETOK_H
#define PL_PRETOK_H

#include "data/tokenizer/regex.h"
#include "kernels/base/status.h"
#include <stdint.h>

#define PL_PRETOK_MAX 16

// ---- pretok_scan.c: the splits of GPT-2, Llama-3 and Qwen2 by hand: the same words as their regular expressions
// (tests compare them on random text), many times faster

// Returns the end of the word that begins at s[at], at < n; s[0..n) is valid UTF-8. All three cut the whole text into
// words.
typedef size_t (*pl_scan_fn)(const char *s, size_t n, size_t at);

typedef struct pl_scan {
    const char *name;    // "gpt-2", "llama-3", "qwen2"
    const char *pattern; // as in tokenizer.json files
    pl_scan_fn  next;
} pl_scan;

#define PL_SPLIT_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define PL_SPLIT_BEHIND_NUMBERS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PL_SPLIT_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define PL_SPLIT_LLAMA3 PL_SPLIT_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" PL_SPLIT_BEHIND_NUMBERS
#define PL_SPLIT_QWEN2 PL_SPLIT_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" PL_SPLIT_BEHIND_NUMBERS
extern const pl_scan pl_scans[3];
// Finds a scan by pattern or by name; NULL if there is none.
const pl_scan       *pl_scan_of_pattern(const char *pattern);
const pl_scan       *pl_scan_of_name(const char *name);

// ---- pretok.c

typedef enum pl_step_kind {
    PL_STEP_SCAN,    // a known split
    PL_STEP_REGEX,   // matches of an expression
    PL_STEP_LITERAL, // occurrences of a string
    PL_STEP_CLASS,   // characters of a class
    PL_STEP_PREFIX,  // adds a space before a word without one
    PL_STEP_MAP,     // bytes become characters of GPT-2's byte alphabet
} pl_step_kind;

// Treatment of a step's matches. The names are those of Hugging Face's SplitDelimiterBehavior.
typedef enum pl_behavior {
    PL_ISOLATED,             // a word of its own
    PL_REMOVED,              // dropped
    PL_CONTIGUOUS,           // adjacent matches are one word
    PL_MERGED_WITH_PREVIOUS, // joins the text before it
    PL_MERGED_WITH_NEXT,     // joins the text after it
} pl_behavior;

typedef struct pl_step {
    pl_step_kind   kind;
    pl_behavior    behavior;
    bool           invert;         // matches are the text between the pattern's matches
    const pl_scan *scan;           // SCAN
    pl_regex      *regex;          // REGEX; owned
    char          *pattern;        // REGEX, LITERAL: as in the file; owned
    bool (*in_class)(uint32_t cp); // CLASS
} pl_step;

typedef struct pl_pretok {
    pl_step step[PL_PRETOK_MAX];
    int     n;
    bool    bytes; // words are bytes: one of the steps is a MAP
} pl_pretok;

// A zeroed pl_pretok has no steps. Each add appends one; PL_E_INPUT for too many, or for a pattern that does not
// compile.
pl_status pl_pretok_add_scan(pl_pretok *p, const pl_scan *scan, pl_err *err);
pl_status pl_pretok_add_byte_level(pl_pretok *p, bool prefix_space, bool split, pl_err *err);
// Known patterns become their scan.
pl_status pl_pretok_add_split(pl_pretok *p, const char *pattern, bool is_regex, pl_behavior behavior, bool invert,
                              pl_err *err);
pl_status pl_pretok_add_class(pl_pretok *p, bool (*in_class)(uint32_t cp), pl_behavior behavior, pl_err *err);
void      pl_pretok_fini(pl_pretok *p);
uint64_t  pl_pretok_hash(const pl_pretok *p, uint64_t h);

typedef pl_status (*pl_pretok_word)(void *ctx, const char *s, size_t n, pl_err *err);

// Passes the words of s[0..n) (valid UTF-8) to fn in order; none is empty. With `bytes` a word may end inside a
// character. PL_E_INPUT when an expression exceeds its limit.
pl_status pl_pretok_run(const pl_pretok *p, pl_matcher *m, const char *s, size_t n, pl_pretok_word fn, void *ctx,
                        pl_err *err);

// GPT-2's byte alphabet: every byte as a printable character (openai/gpt-2, encoder.py, bytes_to_unicode).
int  pl_byte_to_char(uint8_t byte, char to[2]);                          // returns its 1 or 2 bytes of UTF-8
bool pl_chars_to_bytes(const char *s, size_t n, char *to, size_t *n_to); // false: a character is not of the alphabet

#endif
