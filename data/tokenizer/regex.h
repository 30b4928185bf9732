// Regular expressions of tokenizer files, run by PCRE2 (compiled to machine code if possible).
//
// The files are written for Oniguruma, whose syntax and classes differ from PCRE2's in places, so a pattern is
// translated first and refused if that is not exact: \s is White_Space, \d is Nd, \w is Alphabetic + M + Nd + Pc (and
// some numbers of Latin-1 outside classes), the name of a script is Script, not Script_Extensions; nested classes
// [a[bc]] are united; "." excludes the line feed. Refused by name: anchors and \b, backreferences, conditionals, named
// groups, inline flags other than i, set intersections, a quantifier after an interval ({2,3}+), \h \H \R \X \K \G \W
// in classes. Other patterns that PCRE2 does not compile are refused with its own message.
#ifndef PL_REGEX_H
#define PL_REGEX_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pl_regex pl_regex;

// pattern is valid UTF-8. Messages are "regular expression 'P': WHY", without a file position. PL_E_INPUT, PL_E_MEMORY.
pl_status pl_regex_compile(pl_regex **out, const char *pattern, pl_err *err);
void      pl_regex_free(pl_regex *r); // NULL is allowed

// A thread's memory while it matches one text, for any number of expressions. Zeroed to begin with; memory is allocated
// on first use. Its work is bounded: by a constant, and by the bytes of the walks that it has begun.
typedef struct pl_matcher {
    void   *data, *context, *stack; // owned
    int64_t left;                   // remaining steps
} pl_matcher;
void pl_matcher_fini(pl_matcher *m);

// Matches of s[0..n) (valid UTF-8) from left to right, without overlap. An empty match directly after another match is
// skipped. A zeroed walk is at the start.
typedef struct pl_regex_walk {
    size_t from, last; // start of the next search; 1 + end of the previous match, 0: none
} pl_regex_walk;
// *found false: there are no more. PL_E_INPUT when the expressions have backtracked too much on this text.
pl_status pl_regex_next(const pl_regex *r, pl_matcher *m, const char *s, size_t n, pl_regex_walk *w, bool *found,
                        size_t *start, size_t *end, pl_err *err);

#endif
