// C interface to SentencePiece. No C++ type, no exception and no output on stderr leaves this file (training may report
// its progress on request). Messages are one line without a file name, which the callers add.
#ifndef PL_SPM_SHIM_H
#define PL_SPM_SHIM_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pl_spm pl_spm;

// Failures leave a message in msg[0..msg_size): PL_E_MEMORY, PL_E_IO (threads), PL_E_INPUT for all other errors of the
// library. proto: a serialised ModelProto that has been checked (data/tokenizer/spm_proto.h), as the library trusts
// parts of it.
pl_status pl_spm_open(pl_spm **out, const void *proto, size_t n, char *msg, size_t msg_size);
void      pl_spm_close(pl_spm *s);
int       pl_spm_vocab_size(const pl_spm *s);
// *ids is from pl_malloc and owned by the caller.
pl_status pl_spm_encode(const pl_spm *s, const char *text, size_t n_bytes, int32_t **ids, int64_t *n, char *msg,
                        size_t msg_size);

// Sentences one by one: next returns false at the end, *s is borrowed until the next call.
typedef bool (*pl_spm_next)(void *ctx, const char **s, size_t *n);

// keys[i] = values[i] are SentencePieceTrainer's own options. *proto is from pl_malloc.
pl_status pl_spm_train_proto(const char *const *keys, const char *const *values, int n_options, pl_spm_next next,
                             void *ctx, uint8_t **proto, size_t *n, char *msg, size_t msg_size);

#ifdef __cplusplus
}
#endif

#endif
