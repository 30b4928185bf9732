// Unicode properties of characters for pre-tokenizers and normalizers. Tables: utf8proc's.
#ifndef PL_UNICODE_H
#define PL_UNICODE_H

#include "kernels/base/status.h"
#include "kernels/base/strbuf.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum pl_char_class { PL_CHAR_OTHER, PL_CHAR_LETTER, PL_CHAR_NUMBER, PL_CHAR_SPACE } pl_char_class;

// \p{L}, \p{N}, \s (White_Space), or none of them: the classes of GPT-2's split and its descendants.
pl_char_class pl_unicode_class(uint32_t cp);
bool          pl_unicode_is_space(uint32_t cp);     // White_Space
bool          pl_unicode_is_punct(uint32_t cp);     // category P, and ASCII's symbols, as in Hugging Face's Punctuation
bool          pl_unicode_is_word(uint32_t cp);      // \w: Alphabetic, marks, decimal numbers, connectors, joiners
bool          pl_unicode_is_printable(uint32_t cp); // Python's str.isprintable: no controls, no spaces but U+0020

typedef enum pl_unicode_form { PL_NFC, PL_NFD, PL_NFKC, PL_NFKD } pl_unicode_form;

// Returns true if s[0..n), valid UTF-8, is certainly in the form already (a quick check; false means "perhaps not").
bool      pl_unicode_is_normal(pl_unicode_form form, const char *s, size_t n);
// Appends the normalised text.
pl_status pl_unicode_normalize(pl_unicode_form form, const char *s, size_t n, pl_strbuf *to, pl_err *err);
// Appends the text in lower case, character by character (no rule looks at neighbours).
void      pl_unicode_lower(const char *s, size_t n, pl_strbuf *to);
void      pl_unicode_upper(const char *s, size_t n, pl_strbuf *to);
void      pl_unicode_title(const char *s, size_t n, pl_strbuf *to); // as at the beginning of a word
// Returns true if some character's case depends on its neighbours or becomes several characters (Unicode's
// SpecialCasing).
bool      pl_unicode_is_special_case(const char *s, size_t n);

// Returns whether a character is of lower, upper or title case; unknown for modifier letters, which these tables lack.
typedef enum pl_unicode_case { PL_UNCASED, PL_CASED, PL_CASE_UNKNOWN } pl_unicode_case;
pl_unicode_case pl_unicode_case_of(uint32_t cp);

#endif
