// Inside the tokenizer: what a tokenizer.json says. Only data/tokenizer_hf*.c include this.
#ifndef PL_TOKENIZER_HF_H
#define PL_TOKENIZER_HF_H

#include "data/tokenizer_impl.h"
#include "data/words.h"

#define PL_HF_MAX_NORM 8

typedef struct pl_hf_merge {
    int32_t left, right, rank, merged; // merged < 0: an empty slot
} pl_hf_merge;

typedef struct pl_hf_added {
    char   *s; // as it is looked for: normalised if it is `normalized`; owned
    size_t  n;
    int32_t id;
    int32_t next; // in the list of those with the same first byte, -1 at its end
    bool    special, normalized, lstrip, rstrip;
} pl_hf_added;

// Prepend has no pattern.
typedef struct pl_hf_norm {
    char *pattern, *content; // owned
} pl_hf_norm;

typedef enum pl_hf_scheme { PL_HF_ALWAYS, PL_HF_FIRST, PL_HF_NEVER } pl_hf_scheme;

typedef struct pl_hf {
    pl_vocab     model;  // the BPE model's own vocabulary, without added tokens
    pl_hf_merge *merges; // open addressing
    size_t       merge_mask;
    int32_t      n_merges;
    bool         byte_fallback, fuse_unk, ignore_merges;
    int32_t      unk; // -1: unknown characters vanish
    int32_t      byte_id[256];
    pl_hf_norm   norm[PL_HF_MAX_NORM];
    int          n_norm;
    bool         metaspace, split;
    pl_hf_scheme scheme;
    char         mark[8]; // Metaspace's replacement
    pl_words     words;
    bool         by_words; // a text without pre-tokenizer may be cut in front of marks
    pl_hf_added *added;
    int32_t      n_added;
    int32_t      by_first[2][256]; // [normalized][first byte] -> added, -1
    pl_hf_norm   decode[PL_HF_MAX_NORM];
    int          n_decode;
    bool         decode_bytes;
    int          decode_strip;
} pl_hf;

// False when the pair was there already.
bool      pl_hf_merge_add(pl_hf *h, int32_t a, int32_t b, int32_t rank, int32_t merged);
pl_status pl_hf_normalize(const pl_hf *h, const char *s, size_t n, char **out, size_t *n_out, pl_err *err);
pl_status pl_hf_encode(const pl_tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, int32_t **ids,
                       int64_t *n, pl_err *err);

#endif
