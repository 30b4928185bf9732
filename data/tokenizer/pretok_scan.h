// The splits of GPT-2, Llama-3 and Qwen2 by hand: the same words as their regular expressions (tests compare them on
// random text), many times faster.
#ifndef PL_PRETOK_SCAN_H
#define PL_PRETOK_SCAN_H

#include <stdbool.h>
#include <stddef.h>

// Returns the end of the word that begins at s[at], at < n; s[0..n) is valid UTF-8. All three cut the whole text into
// words.
typedef size_t (*pl_scan_fn)(const char *s, size_t n, size_t at);

typedef struct pl_scan {
    const char *name;    // "gpt-2", "llama-3", "qwen2"
    const char *pattern; // as in tokenizer.json files
    pl_scan_fn  next;
} pl_scan;

extern const pl_scan pl_scans[3];
// Finds a scan by pattern or by name; NULL if there is none.
const pl_scan       *pl_scan_of_pattern(const char *pattern);
const pl_scan       *pl_scan_of_name(const char *name);

#endif
