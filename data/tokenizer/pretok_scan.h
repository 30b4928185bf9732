// The splits of GPT-2, Llama-3 and Qwen2 by hand: the same words as their regular expressions (tests compare them on
// random text), many times faster.
#ifndef PL_PRETOK_SCAN_H
#define PL_PRETOK_SCAN_H

#include <stdbool.h>
#include <stddef.h>

// Where the word that begins at s[at] ends, at < n; s[0..n) is valid UTF-8. All three cut text into words without rest.
typedef size_t (*pl_scan_fn)(const char *s, size_t n, size_t at);

typedef struct pl_scan {
    const char *name;    // "gpt-2", "llama-3", "qwen2"
    const char *pattern; // as tokenizer.json files have it
    pl_scan_fn  next;
} pl_scan;

extern const pl_scan pl_scans[3];
// By pattern or by name; NULL when it is none of them.
const pl_scan       *pl_scan_of_pattern(const char *pattern);
const pl_scan       *pl_scan_of_name(const char *name);

#endif
