// Text to token ids and back. One interface; kinds:
//   "sentencepiece"  a SentencePiece .model (data/tokenizer/spm.c)
//   "huggingface"    a tokenizer.json with a BPE model: of the SentencePiece kind (Llama-2, Mistral, TinyStories) or
//                    byte-level (GPT-2, Llama-3, Qwen2, ...); or with a Unigram model (data/tokenizer/hf*.c)
//   "vocab+merges"   GPT-2's vocab.json and merges.txt: byte-level (data/tokenizer/ranks.c)
//   "tiktoken"       a rank file, "base64 rank" a line: byte-level (data/tokenizer/ranks.c)
//   "llama2c"        a llama2.c tokenizer .bin (data/tokenizer/llama2c.c)
// A .gguf file is opened as the original kind of its vocabulary, "sentencepiece" (tokenizer.ggml.model llama) or
// "vocab+merges" (gpt2), with its own ids for begin and end (data/tokenizer/gguf.c). Other kinds and features
// (WordPiece, ...) are refused by name. A tokenizer is immutable once open: any number of threads may use it.
//
// A folder is opened as the first of these that exists, even if that one is invalid: tokenizer.json; tokenizer.model, a
// rank file or a SentencePiece model, distinguished by content; vocab.json and merges.txt, both; tokenizer.bin;
// tokenizer.gguf, a vocabulary alone. A path may also name one of these files; vocab.json and merges.txt each find the
// other (also PREFIXvocab.json). The tokenizer_config.json beside the file gives the tokens for begin and end
// (bos_token, eos_token) and whether BOS is added (add_bos_token); for rank files and vocab.json also the added tokens
// (added_tokens_decoder; added_tokens.json is not read).
//
// Rank files and vocab.json do not state a pre-tokenizer (nor does a tokenizer.json with a byte-level decoder and no
// pre_tokenizer). Then it is, in this order: the one named by the caller, the "paceline_pre" of tokenizer_config.json,
// that of a vocabulary with a known fingerprint (GPT-2; Llama-3, 3.1, 3.2, 3.3; Qwen2, 2.5, 3), which also gives the
// publisher's special tokens. Otherwise the file is refused. Names: gpt-2, llama-3, qwen2 (the latter normalises to
// NFC, as Qwen's tokenizer does) and those of llama.cpp (data/tokenizer/pre_rows.c). A name
// for a file that has its own pre-tokenizer, or needs none, is refused.
#ifndef PL_TOKENIZER_H
#define PL_TOKENIZER_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct pl_tokenizer pl_tokenizer;

enum {
    // Prepend BOS, if the tokenizer's own configuration does so (post_processor of tokenizer.json, add_bos_token of the
    // tokenizer_config.json beside the file; always for .model and .bin without such a file).
    PL_TOK_ADD_BOS = 1,
    // Text that spells a special token ("</s>") is ordinary text: for untrusted input. SentencePiece and llama2.c never
    // match specials in text; the others do.
    PL_TOK_NO_SPECIAL = 2,
    // Encodes every word without the cache. Ids are the same; for measurements.
    PL_TOK_NO_CACHE = 4,
};

// For options and recipe keys that name a pre-tokenizer.
#define PL_TOK_PRE_HELP                                                                                                \
    "pre-tokenizer of a tokenizer that names none: gpt-2, llama-3, qwen2 or a name of llama.cpp's; default: that of "  \
    "a known vocabulary"

// path: a file or a folder, see above. pre: the pre-tokenizer's name, or NULL. PL_E_INPUT for a broken file,
// PL_E_UNSUPPORTED for one that needs an unsupported feature, PL_E_IO if unreadable.
pl_status pl_tokenizer_open_pre(pl_tokenizer **out, const char *path, const char *pre, pl_err *err);
pl_status pl_tokenizer_open(pl_tokenizer **out, const char *path, pl_err *err); // with pre NULL
void      pl_tokenizer_close(pl_tokenizer *tok);                                // NULL is allowed
// Sets *yes if a model's folder holds a tokenizer's file by that rule, or its GGUF file a vocabulary.
pl_status pl_tokenizer_brought(bool *yes, const char *model, pl_err *err);
// Copies the file or files of `path` (tok was opened from it) into a folder, under the names above.
pl_status pl_tokenizer_copy(const pl_tokenizer *tok, const char *path, const char *dir, pl_err *err);

// Encodes text[0..n_bytes) (valid UTF-8, may hold NUL bytes; not terminated). *ids is from pl_malloc and owned by the
// caller (never NULL on success, even for no tokens). PL_E_INPUT names the byte offset of invalid UTF-8, the normalizer
// that expands the text too much, or the regular expression that backtracks too much on it.
pl_status pl_tokenizer_encode(const pl_tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, int32_t **ids,
                              int64_t *n, pl_err *err);

// Decodes ids to text: the inverse of encode for whole texts (the dummy leading space is removed once, special tokens
// give nothing). Invalid UTF-8 becomes U+FFFD: one per byte, as in SentencePiece; in byte-level kinds one per maximal
// part of a character, as in Hugging Face's. *text is from pl_malloc, NUL-terminated, and owned by the caller.
// PL_E_INPUT for an id outside [0, vocab_size).
pl_status pl_tokenizer_decode(const pl_tokenizer *tok, const int32_t *ids, int64_t n, char **text, size_t *n_bytes,
                              pl_err *err);
// Decodes likewise with special tokens as spelled in the file, as Hugging Face's decode(skip_special_tokens=False).
pl_status pl_tokenizer_decode_spelt(const pl_tokenizer *tok, const int32_t *ids, int64_t n, char **text,
                                    size_t *n_bytes, pl_err *err);
// Decodes likewise without U+FFFD: to exactly the bytes of the ids.
pl_status pl_tokenizer_decode_bytes(const pl_tokenizer *tok, const int32_t *ids, int64_t n, char **bytes,
                                    size_t *n_bytes, pl_err *err);

// Writes the members of a tokenizer_config.json (an open object) that a copy of the file needs to open as this
// tokenizer: paceline_pre and added_tokens_decoder for rank files and vocab.json, nothing for the others.
typedef struct pl_json_out pl_json_out;
void                       pl_tokenizer_put_config(const pl_tokenizer *tok, pl_json_out *o);

int32_t     pl_tokenizer_vocab_size(const pl_tokenizer *tok); // largest id + 1
int32_t     pl_tokenizer_bos_id(const pl_tokenizer *tok);     // -1 if none
int32_t     pl_tokenizer_eos_id(const pl_tokenizer *tok);     // -1 if none
// Returns true if tokenizer_config.json or special_tokens_map.json names the EOS; otherwise it was found by its usual
// spelling.
bool        pl_tokenizer_states_eos(const pl_tokenizer *tok);
bool        pl_tokenizer_adds_bos(const pl_tokenizer *tok);               // the effect of PL_TOK_ADD_BOS
bool        pl_tokenizer_is_special(const pl_tokenizer *tok, int32_t id); // decodes to nothing: BOS, EOS, control, pad
// Returns true if all ids are such: the text of what follows them begins a text (pl_detok_init).
bool        pl_tokenizer_all_special(const pl_tokenizer *tok, const int32_t *ids, int64_t n);
bool        pl_tokenizer_is_added(const pl_tokenizer *tok, int32_t id); // not in the model's own vocabulary
// As spelled in the file (bytes of a rank file in GPT-2's byte alphabet); "" for a hole; borrowed.
const char *pl_tokenizer_piece(const pl_tokenizer *tok, int32_t id);
// Returns the *n bytes that an id appends to a text (a dummy space included); none for special tokens and ids outside
// the vocabulary. Not terminated; borrowed.
const char *pl_tokenizer_bytes(const pl_tokenizer *tok, int32_t id, size_t *n);
int32_t     pl_tokenizer_find(const pl_tokenizer *tok, const char *piece); // id of a piece, -1 if there is none
// Returns the number of tokens, special ones left out, that stand for the same bytes in both, and so can be translated.
int64_t     pl_tokenizer_shared(const pl_tokenizer *a, const pl_tokenizer *b, pl_err *err);
const char *pl_tokenizer_kind(const pl_tokenizer *tok); // see above
// 16 hex digits over pieces, scores, merges, normaliser, pre-tokenizer, added tokens and everything else that changes
// ids or text; not over BOS settings or file names.
const char *pl_tokenizer_fingerprint(const pl_tokenizer *tok);

// Streaming decode: text appears as soon as it is whole UTF-8. push never allocates.
// at_start: the ids begin a text (its dummy leading space is dropped, as pl_tokenizer_decode does); false when they
// continue a prompt.
typedef struct pl_detok {
    const pl_tokenizer *tok; // borrowed
    char               *buf; // owned; the results of push and flush
    uint8_t             pending[4];
    int                 n_pending;
    int                 strip; // leading spaces to drop: 0 none, 1 one, 2 all
} pl_detok;
pl_status pl_detok_init(pl_detok *d, const pl_tokenizer *tok, bool at_start, pl_err *err);
void      pl_detok_fini(pl_detok *d);
// Returns the bytes of text completed by this id: *text (not terminated) is borrowed until the next call. An id outside
// the vocabulary (models may have padded rows) gives nothing.
size_t    pl_detok_push(pl_detok *d, int32_t id, const char **text);
size_t    pl_detok_flush(pl_detok *d, const char **text); // bytes of an unfinished character, as U+FFFD

#endif
