// Text to token ids and back. One interface, one file per kind:
//   "sentencepiece"  a SentencePiece .model (data/tokenizer_spm.c)
//   "huggingface"    a tokenizer.json of the SentencePiece-BPE family: Llama-2, Mistral, TinyStories
//   (data/tokenizer_hf.c) "llama2c"        a llama2.c tokenizer .bin (data/tokenizer_llama2c.c)
// Whatever else a file asks for (ByteLevel, tiktoken, WordPiece, ...) is refused by its name rather than guessed at.
// A tokenizer is immutable once open: any number of threads may encode and decode with it.
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
    // Text that spells a special token ("</s>") is ordinary text: for untrusted input. Only tokenizer.json files
    // match specials in text at all; SentencePiece and llama2.c never do.
    PL_TOK_NO_SPECIAL = 2,
};

// path: a file, or a model directory holding tokenizer.model, else tokenizer.json, else tokenizer.bin.
// PL_E_INPUT for a file that is broken, PL_E_UNSUPPORTED for one that asks for what is not built, PL_E_IO if
// unreadable.
pl_status pl_tokenizer_open(pl_tokenizer **out, const char *path, pl_err *err);
void      pl_tokenizer_close(pl_tokenizer *tok); // NULL is allowed

// text[0..n_bytes) (valid UTF-8, may hold NUL bytes; not terminated) to ids. *ids is from pl_malloc and the caller's
// (never NULL on success, even for no tokens). PL_E_INPUT names the byte offset of invalid UTF-8.
pl_status pl_tokenizer_encode(const pl_tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, int32_t **ids,
                              int64_t *n, pl_err *err);

// ids to text: the inverse of encode for whole texts (the dummy leading space is removed once, special tokens give
// nothing, bytes that make no UTF-8 become U+FFFD each). *text is from pl_malloc, NUL-terminated, and the caller's.
// PL_E_INPUT for an id outside [0, vocab_size).
pl_status pl_tokenizer_decode(const pl_tokenizer *tok, const int32_t *ids, int64_t n, char **text, size_t *n_bytes,
                              pl_err *err);

int32_t     pl_tokenizer_vocab_size(const pl_tokenizer *tok);             // largest id + 1
int32_t     pl_tokenizer_bos_id(const pl_tokenizer *tok);                 // -1 if none
int32_t     pl_tokenizer_eos_id(const pl_tokenizer *tok);                 // -1 if none
bool        pl_tokenizer_adds_bos(const pl_tokenizer *tok);               // what PL_TOK_ADD_BOS will do
bool        pl_tokenizer_is_special(const pl_tokenizer *tok, int32_t id); // decodes to nothing: BOS, EOS, control, pad
const char *pl_tokenizer_piece(const pl_tokenizer *tok, int32_t id); // as the file spells it; "" for a hole; borrowed
int32_t     pl_tokenizer_find(const pl_tokenizer *tok, const char *piece); // id of a piece, -1 if there is none
// Tokens, special ones left out, that stand for the same bytes in both: what one's list can say about the other's.
int64_t     pl_tokenizer_shared(const pl_tokenizer *a, const pl_tokenizer *b, pl_err *err);
const char *pl_tokenizer_kind(const pl_tokenizer *tok);                    // "sentencepiece", "huggingface", "llama2c"
// 16 hex digits over pieces, scores, merges and whatever else changes ids; not over BOS settings or file names.
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
