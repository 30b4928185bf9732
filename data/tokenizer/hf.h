// Internal to the tokenizer: BPE and Unigram of Hugging Face's `tokenizers`, from any kind of file (tokenizer.json,
// vocab.json + merges.txt, tiktoken ranks). Only data/tokenizer/ includes this.
#ifndef PL_TOKENIZER_HF_H
#define PL_TOKENIZER_HF_H

#include "data/tokenizer/impl.h"
#include "data/tokenizer/pretok.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/vocab.h"
#include "data/tokenizer/words.h"
#include "kernels/base/json.h"

#define PL_HF_MAX_NORM 8
#define PL_HF_MAX_ADDED 1024 // bytes of an added token
#define PL_HF_MAX_PIECE 1024 // bytes of a Unigram piece; each position of a text tries as many
// Most bytes of a text of n bytes during normalization. NFKC expands a byte to 11 at most, and 3 of each of these are
// spaces that become marks.
#define PL_HF_NORM_ROOM(n) (64 * ((size_t)(n) + 16))
#define PL_HF_MAX_ID (PL_VOCAB_MAX - 1)

// ---- unigram.c

// Unigram language models (Kudo, arXiv 1804.10959) of Hugging Face's `tokenizers`: of all segmentations of a text into
// pieces, the one with the largest sum of scores (log probabilities), found by Viterbi's algorithm. A character that is
// no piece by itself is unknown, at the lowest score less 10; adjacent unknown characters are one.
typedef struct pl_unigram {
    const pl_vocab *vocab;   // borrowed; indexed
    double         *score;   // [vocab->n] owned
    double          unknown; // score of an unknown character
    int32_t         unk;
    const int32_t  *byte_id; // [256] borrowed: unknown characters are spelled in these if all exist; NULL: never
    size_t          longest; // bytes of a piece
} pl_unigram;

void      pl_unigram_fini(pl_unigram *u);
// Computes encoding's data from the scores; call it once they are set.
void      pl_unigram_index(pl_unigram *u);
// Appends the ids of s[0..n), valid UTF-8.
pl_status pl_unigram_encode(const pl_unigram *u, const char *s, size_t n, pl_ids *o, pl_err *err);

// ---- both

typedef struct pl_hf_merge {
    int32_t left, right, rank, merged; // merged < 0: an empty slot
} pl_hf_merge;

typedef struct pl_hf_added {
    char   *s; // the search string: normalised if it is `normalized`; owned
    size_t  n;
    int32_t id;
    bool    special, normalized, lstrip, rstrip, single_word;
} pl_hf_added;

typedef enum pl_hf_norm_kind {
    PL_NORM_PREPEND, // adds content before non-empty text
    PL_NORM_REPLACE, // replaces pattern, or regex, by content
    PL_NORM_FORM,    // Unicode's NFC, ...
    PL_NORM_LOWER,
    PL_NORM_STRIP, // white space at the left and right end
} pl_hf_norm_kind;

typedef struct pl_hf_norm {
    pl_hf_norm_kind kind;
    char           *pattern, *content; // owned
    pl_regex       *regex;             // owned
    pl_unicode_form form;
    bool            left, right;
} pl_hf_norm;

typedef enum pl_hf_scheme { PL_HF_ALWAYS, PL_HF_FIRST, PL_HF_NEVER } pl_hf_scheme;

typedef struct pl_hf {
    pl_vocab     model; // the model's own vocabulary, without added tokens
    bool         is_unigram;
    pl_unigram   unigram; // else BPE:
    pl_hf_merge *merges;  // open addressing
    size_t       merge_mask;
    uint64_t     merge_mix;   // odd
    int          merge_shift; // 64 less the bits of merge_mask
    int32_t      n_merges;
    bool         by_rank; // no merges: two pieces merge if their concatenation is a piece; its id is the rank
    pl_vocab     raw;     // byte-level: the model's pieces as bytes, holes for other pieces
    bool         byte_fallback, fuse_unk, ignore_merges;
    int32_t      unk;          // -1: unknown characters are dropped
    int32_t      byte_id[256]; // of "<0xHH>"; byte-level: of the piece for this byte; -1
    pl_hf_norm   norm[PL_HF_MAX_NORM];
    int          n_norm;
    bool         metaspace, split;
    pl_hf_scheme scheme;
    char         mark[8]; // Metaspace's replacement
    const char  *pre;     // family chosen by pl_pre_choose, NULL: the file is complete
    pl_pretok    pretok;  // all other pre-tokenizers
    pl_words     words;
    bool         by_words; // a text without pre-tokenizer may be cut before marks
    pl_hf_added *added;
    int32_t      n_added;
    int32_t     *in_order[2];        // [normalized] indices in `added`, sorted by bytes, each string once; owned
    int32_t      from_first[2][257]; // [normalized][byte] first index in in_order that begins with this or a later byte
    pl_matcher   reader;             // for the normalizers while added tokens are read
    pl_hf_norm   decode[PL_HF_MAX_NORM];
    int          n_decode;
    // LlamaTokenizer or CodeLlamaTokenizer if tokenizer_config.json names it: transformers 5 rebuilds it from the
    // vocabulary, without a space before text after a special token, unless it is `legacy`, or before a text that
    // begins with one.
    const char  *rebuilt;
    bool         legacy;
    bool         merged;                     // files beside tokenizer.json changed its added tokens
    bool         decode_bytes, decode_level; // ByteFallback, ByteLevel
    int          decode_strip;
} pl_hf;

void pl_hf_close(pl_tokenizer *tok);

// Reserves room for so many merges. PL_E_MEMORY.
pl_status pl_hf_merges_reserve(pl_hf *h, size_t count, pl_err *err);
// Adds a line of merges: two pieces separated by one space.
pl_status pl_hf_merge_line(pl_hf *h, const char *line, size_t n, int32_t rank, pl_err *err);
// Returns false if the pair was present.
bool      pl_hf_merge_add(pl_hf *h, int32_t a, int32_t b, int32_t rank, int32_t merged);
pl_status pl_hf_encode(const pl_tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, int32_t **ids,
                       int64_t *n, pl_err *err);

// Reading (hf_read.c, hf_parts.c). Messages begin with j->where.
pl_status pl_hf_refuse(const pl_json *j, pl_err *err, const char *part, const char *what);
pl_status pl_hf_read_normalizer(pl_hf *h, const pl_json *j, const cJSON *node, pl_err *err);
pl_status pl_hf_read_pre_tokenizer(pl_hf *h, const pl_json *j, const cJSON *node, pl_err *err);
pl_status pl_hf_read_vocab(pl_tokenizer *tok, const pl_json *j, const cJSON *vocab, pl_err *err); // and indexes it
pl_status pl_hf_read_decoder(pl_hf *h, const pl_json *j, const cJSON *node, pl_err *err);

// Adds one added token; flags as in the file. pl_hf_added_reserve must have reserved room for it.
pl_status pl_hf_added_reserve(pl_hf *h, size_t more, pl_err *err);
pl_status pl_hf_added_flags(pl_hf_added *a, const pl_json *j, const cJSON *node, pl_err *err); // lstrip, special, ...
pl_status pl_hf_added_add(pl_tokenizer *tok, int64_t id, const char *content, size_t n, const pl_hf_added *flags,
                          pl_err *err);
// Replaces the token at *a: flags, id and, depending on the flags, its text; the old text is freed after success.
pl_status pl_hf_added_set(pl_hf *h, pl_hf_added *a, const char *content, size_t n, const pl_hf_added *flags, int32_t id,
                          pl_err *err);
// Parses the id that is the key of a member of added_tokens_decoder.
pl_status pl_hf_added_key(int64_t *id, const pl_json *j, const cJSON *member, pl_err *err);

// Requires the model in h->model (indexed), tok->vocab with it and the added tokens, and normaliser, pre-tokenizer and
// decoder. pl_hf_index_bytes makes raw and byte_id of a byte-level model (before merges are read); pl_hf_finish the
// rest: lists of added tokens, surfaces, words, hash.
pl_status pl_hf_index_bytes(pl_hf *h, const char *where, pl_err *err);
pl_status pl_hf_finish(pl_tokenizer *tok, const char *where, pl_err *err);
// Begins an empty one of the kind "vocab+merges" (ranks.c).
pl_status pl_hf_begin_pieces(pl_tokenizer *tok, const char *path, pl_err *err);

#endif
