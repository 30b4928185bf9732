// Reads and checks a serialised SentencePiece ModelProto: the library and its protobuf parser trust files too much, so
// every byte is checked here first; also takes the data for decoding.
#ifndef PL_SPM_PROTO_H
#define PL_SPM_PROTO_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ModelProto.SentencePiece.Type
typedef enum pl_spm_type {
    PL_SPM_NORMAL = 1,
    PL_SPM_UNKNOWN = 2,
    PL_SPM_CONTROL = 3,
    PL_SPM_USER_DEFINED = 4,
    PL_SPM_UNUSED = 5,
    PL_SPM_BYTE = 6,
} pl_spm_type;

typedef struct pl_spm_bytes {
    const uint8_t *p; // into the file's bytes
    size_t         n;
} pl_spm_bytes;

typedef struct pl_spm_piece {
    pl_spm_bytes s;
    float        score;
    pl_spm_type  type;
} pl_spm_piece;

typedef struct pl_spm_proto {
    pl_spm_piece *pieces; // owned
    int32_t       n;
    int           model_type; // 1 unigram, 2 BPE, 3 word, 4 char
    bool          byte_fallback;
    pl_spm_bytes  bos_piece, eos_piece, unk_surface;
    bool          add_dummy_prefix, remove_extra_whitespaces;
    pl_spm_bytes  charsmap; // precompiled_charsmap, empty for identity
} pl_spm_proto;

// PL_E_INPUT "path: broken SentencePiece model: ..." for a malformed or unusable model, and for whitespace at the end
// of words, unescaped whitespace and denormalisation rules, which are not supported. p points into data.
pl_status pl_spm_proto_read(pl_spm_proto *p, const char *path, const uint8_t *data, size_t n, pl_err *err);
void      pl_spm_proto_fini(pl_spm_proto *p);

#endif
