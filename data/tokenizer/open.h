// Internal to the tokenizer: one opener for each kind of file, and the files of a path. open.c alone calls them.
#ifndef PL_TOKENIZER_OPEN_H
#define PL_TOKENIZER_OPEN_H

#include "data/tokenizer/impl.h"
#include "kernels/base/json.h"

// The files beside a tokenizer's; a missing one has root NULL.
typedef struct pl_tokenizer_beside {
    pl_json config; // tokenizer_config.json
    pl_json map;    // special_tokens_map.json
    pl_json added;  // added_tokens.json
    pl_json model;  // config.json, if readable
} pl_tokenizer_beside;
// "bos_token", "eos_token", ...: the uses of tokens, in transformers' order; ends with NULL.
extern const char *const pl_tokenizer_uses[];
// Finds a member of special_tokens_map.json or, if that lacks it or tokenizer_config.json has an added_tokens_decoder,
// of tokenizer_config.json (transformers 5); NULL: absent or null. *j: the file that has it.
const cJSON             *pl_tokenizer_beside_find(const pl_tokenizer_beside *b, const char *key, const pl_json **j);

// Each kind fills vocab, special, surface, strip, bos, eos, add_bos, hash, vt and impl from a file's bytes. On failure
// tok may be half filled: the caller closes it. Messages begin with `path`. pre: the pre-tokenizer's name, or NULL.
pl_status pl_tokenizer_open_spm(pl_tokenizer *tok, const char *path, const uint8_t *data, size_t n, pl_err *err);
pl_status pl_tokenizer_open_hf(pl_tokenizer *tok, const char *path, const char *pre, const pl_tokenizer_beside *beside,
                               const uint8_t *data, size_t n, pl_err *err);
bool      pl_hf_is_file(const pl_tokenizer *tok); // it came from a tokenizer.json
// Merges tokens that the files beside tokenizer.json add or change (hf_merge.c), after its own added tokens.
pl_status pl_hf_merge_beside(pl_tokenizer *tok, const pl_tokenizer_beside *beside, pl_err *err);
pl_status pl_tokenizer_open_llama2c(pl_tokenizer *tok, const char *path, const uint8_t *data, size_t n, pl_err *err);
// Files with a vocabulary alone. config: the tokenizer_config.json beside it, NULL if there is none.
pl_status pl_tokenizer_open_ranks(pl_tokenizer *tok, const char *path, const char *pre, const pl_json *config,
                                  const uint8_t *data, size_t n, pl_err *err);
pl_status pl_tokenizer_open_pair(pl_tokenizer *tok, const char *path, const char *merges_path, const char *pre,
                                 const pl_json *config, const uint8_t *data, size_t n, pl_err *err);
// Opens a vocabulary inside a GGUF file of any size; and writes a GGUF file with the vocabulary alone.
pl_status pl_tokenizer_open_gguf(pl_tokenizer *tok, const char *path, const char *pre, pl_err *err);
pl_status pl_tokenizer_copy_gguf(const char *from, const char *to, pl_err *err);
bool      pl_tokenizer_is_ranks(const uint8_t *data, size_t n);

// ---- files (files.c)

typedef struct pl_tokenizer_files {
    char *path;   // owned
    char *merges; // owned; of a vocab.json, else NULL
} pl_tokenizer_files;
// Finds the file or files of `path`, by the rule in tokenizer.h.
pl_status pl_tokenizer_find_files(pl_tokenizer_files *f, const char *path, pl_err *err);
void      pl_tokenizer_files_fini(pl_tokenizer_files *f);

#endif
