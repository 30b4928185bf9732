// Text to token ids and back. One interface; kinds:
//   "sentencepiece"  a SentencePiece .model (data/tokenizer/spm.c)
//   "huggingface"    a tokenizer.json with a BPE model: of the SentencePiece kind (Llama-2, Mistral, TinyStories) or
//                    byte-level (GPT-2, Llama-3, Qwen2, ...); or with a Unigram model (data/tokenizer/hf*.c)
//   "vocab+merges"   GPT-2's vocab.json and merges.txt: byte-level (data/tokenizer/ranks.c)
//   "tiktoken"       a rank file, "base64 rank" a line: byte-level (data/tokenizer/ranks.c)
//   "llama2c"        a llama2.c tokenizer .bin (data/tokenizer/llama2c.c)
// A .gguf file is opened as the kind that its vocabulary was made from, "sentencepiece" (tokenizer.ggml.model llama) or
// "vocab+merges" (gpt2), with its own ids for begin and end (data/tokenizer/gguf.c).
// Whatever else a file asks for (WordPiece, ...) is refused by its name rather than
// guessed at. A tokenizer is immutable once open: any number of threads may encode and decode with it.
//
// A folder stands for the first of these that is there, and what is wrong with it is the error (nothing is skipped):
//   tokenizer.json, which names everything itself
//   tokenizer.model: a rank file or a SentencePiece model, told apart by content
//   vocab.json and merges.txt, both
//   tokenizer.bin
//   tokenizer.gguf, a vocabulary alone
// A path may also name one of these files; vocab.json and merges.txt each find the other (also PREFIXvocab.json).
// Beside the file, tokenizer_config.json says what the tokens for begin and end are (bos_token, eos_token) and whether
// BOS is added (add_bos_token); for rank files and vocab.json also the added tokens (added_tokens_decoder;
// an added_tokens.json is not read).
//
// Rank files and vocab.json do not say how text is cut into words before BPE (nor does a tokenizer.json with a
// byte-level decoder and no pre_tokenizer). Then the pre-tokenizer is, in this order: the one the caller names, the
// "paceline_pre" of tokenizer_config.json, that of the vocabulary where its fingerprint is known (GPT-2; Llama-3, 3.1,
// 3.2, 3.3; Qwen2, 2.5, 3), for which the publisher's special tokens are known as well. Else the file is refused.
// Names: gpt-2, llama-3, qwen2 (the latter normalises to NFC, as Qwen's tokenizer does). A name for a file that has its
// own pre-tokenizer, or none at all, is refused.
#ifndef PL_TOKENIZER_H
#define PL_TOKENIZER_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct pl_tokenizer pl_tokenizer;

enum {
    // Put BOS in front, if the tokenizer's own configuration does so (post_processor of tokenizer.json,
    // add_bos_token of the tokenizer_config.json beside the file; always for .model and .bin without such a file).
    PL_TOK_ADD_BOS = 1,
    // Text that spells a special token ("</s>") is ordinary text: for untrusted input. SentencePiece and llama2.c
    // never match specials in text; the others do.
    PL_TOK_NO_SPECIAL = 2,
    // Every word is encoded anew. Ids are the same; for measuring.
    PL_TOK_NO_CACHE = 4,
};

// For options and recipe keys that name a pre-tokenizer.
#define PL_TOK_PRE_HELP                                                                                                \
    "pre-tokenizer of a tokenizer that names none: gpt-2, llama-3, qwen2; default: that of a known vocabulary"

// path: a file or a folder, see above. pre: the pre-tokenizer's name, NULL where nobody named one.
// PL_E_INPUT for a file that is broken, PL_E_UNSUPPORTED for one that asks for what is not built, PL_E_IO if
// unreadable.
pl_status pl_tokenizer_open_pre(pl_tokenizer **out, const char *path, const char *pre, pl_err *err);
pl_status pl_tokenizer_open(pl_tokenizer **out, const char *path, pl_err *err); // with pre NULL
void      pl_tokenizer_close(pl_tokenizer *tok);                                // NULL is allowed
// Whether a folder holds a tokenizer's file by that rule.
pl_status pl_tokenizer_in_folder(bool *yes, const char *dir, pl_err *err);
// Copies the file or files that `path` stands for (tok was opened from it) into a folder, under the names above.
pl_status pl_tokenizer_copy(const pl_tokenizer *tok, const char *path, const char *dir, pl_err *err);

// text[0..n_bytes) (valid UTF-8, may hold NUL bytes; not terminated) to ids. *ids is from pl_malloc and the caller's
// (never NULL on success, even for no tokens). PL_E_INPUT names the byte offset of invalid UTF-8, the normalizer that
// makes too much of the text, or the regular expression that backtracks too much on it.
pl_status pl_tokenizer_encode(const pl_tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, int32_t **ids,
                              int64_t *n, pl_err *err);

// ids to text: the inverse of encode for whole texts (the dummy leading space is removed once, special tokens give
// nothing). Bytes that make no UTF-8 become U+FFFD: each of them, as SentencePiece has it; byte-level kinds one for
// every longest part of a character, as Hugging Face has it. *text is from pl_malloc, NUL-terminated, and the caller's.
// PL_E_INPUT for an id outside [0, vocab_size).
pl_status pl_tokenizer_decode(const pl_tokenizer *tok, const int32_t *ids, int64_t n, char **text, size_t *n_bytes,
                              pl_err *err);
// The same with special tokens as the file spells them, as Hugging Face's decode(skip_special_tokens=False) has it.
pl_status pl_tokenizer_decode_spelt(const pl_tokenizer *tok, const int32_t *ids, int64_t n, char **text,
                                    size_t *n_bytes, pl_err *err);
// The same without U+FFFD: the bytes that the ids stand for, exactly.
pl_status pl_tokenizer_decode_bytes(const pl_tokenizer *tok, const int32_t *ids, int64_t n, char **bytes,
                                    size_t *n_bytes, pl_err *err);

// Members of a tokenizer_config.json (an open object) without which a copy of the file would not open as this
// tokenizer: paceline_pre and added_tokens_decoder for rank files and vocab.json, nothing for the others.
typedef struct pl_json_out pl_json_out;
void                       pl_tokenizer_put_config(const pl_tokenizer *tok, pl_json_out *o);

int32_t     pl_tokenizer_vocab_size(const pl_tokenizer *tok); // largest id + 1
int32_t     pl_tokenizer_bos_id(const pl_tokenizer *tok);     // -1 if none
int32_t     pl_tokenizer_eos_id(const pl_tokenizer *tok);     // -1 if none
// True where tokenizer_config.json or special_tokens_map.json names the EOS; else its usual spelling does.
bool        pl_tokenizer_states_eos(const pl_tokenizer *tok);
bool        pl_tokenizer_adds_bos(const pl_tokenizer *tok);               // what PL_TOK_ADD_BOS will do
bool        pl_tokenizer_is_special(const pl_tokenizer *tok, int32_t id); // decodes to nothing: BOS, EOS, control, pad
bool        pl_tokenizer_is_added(const pl_tokenizer *tok, int32_t id);   // no piece of the model's vocabulary
// As the file spells it (bytes of a rank file in GPT-2's byte alphabet); "" for a hole; borrowed.
const char *pl_tokenizer_piece(const pl_tokenizer *tok, int32_t id);
int32_t     pl_tokenizer_find(const pl_tokenizer *tok, const char *piece); // id of a piece, -1 if there is none
// Tokens, special ones left out, that stand for the same bytes in both: what one's list can say about the other's.
int64_t     pl_tokenizer_shared(const pl_tokenizer *a, const pl_tokenizer *b, pl_err *err);
const char *pl_tokenizer_kind(const pl_tokenizer *tok); // see above
// 16 hex digits over pieces, scores, merges, normaliser, pre-tokenizer, added tokens and whatever else changes ids or
// text; not over BOS settings or file names.
const char *pl_tokenizer_fingerprint(const pl_tokenizer *tok);

// Streaming decode: text appears as soon as it is whole UTF-8. push never allocates.
// at_start: the ids begin a text (its dummy leading space is dropped, as pl_tokenizer_decode does); false when they
// continue a prompt.
typedef struct pl_detok {
    const pl_tokenizer *tok; // borrowed
    char               *buf; // owned; what push and flush return
    uint8_t             pending[4];
    int                 n_pending;
    int                 strip; // 0 nothing, 1 one leading space, 2 every leading space still to be dropped
} pl_detok;
pl_status pl_detok_init(pl_detok *d, const pl_tokenizer *tok, bool at_start, pl_err *err);
void      pl_detok_fini(pl_detok *d);
// Text that became complete with this id: *text (not terminated) is borrowed until the next call; returns its bytes.
// An id outside the vocabulary (models may have padded rows) gives nothing.
size_t    pl_detok_push(pl_detok *d, int32_t id, const char **text);
size_t    pl_detok_flush(pl_detok *d, const char **text); // bytes still waiting for the rest of a character, as U+FFFD

#endif
