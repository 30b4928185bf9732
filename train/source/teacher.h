// What training a drafter needs of its target: shapes, the embedding and the output matrix. Not the layers: their work
// is in the features.
#ifndef PL_TRAIN_TEACHER_H
#define PL_TRAIN_TEACHER_H

#include "infer/model/llama.h"

typedef struct pl_teacher {
    pl_llama          model;                 // config, shapes, embed and head (no gradient); the layers have no weights
    pl_tensor         head;                  // [V, d] row-major
    pl_tensor         host_embed, host_head; // the same matrices where the host reads them
    pl_llama          whole;                 // pl_teacher_open_whole: with its layers, for decoding; else empty
    pl_weight_source *src;                   // open while matrices are views of it
    void             *block[2];
    size_t            bytes[2];
    void             *there[2]; // copies in the backend's memory, where that is not the host's
} pl_teacher;

// For be. path: a Hugging Face folder or a llama2.c file. t: PL_F32 or PL_BF16, as the target held its weights when it
// computed the features. model.fingerprint is the target's.
pl_status pl_teacher_open(pl_teacher *t, const char *path, pl_dtype dtype, const pl_backend *be, pl_err *err);
// The same with the target's layers, for whoever has it answer while the drafter learns: `whole` is the target as
// pl_llama_open_over gives it, and model.embed is its embedding.
pl_status pl_teacher_open_whole(pl_teacher *t, const char *path, pl_dtype dtype, const pl_backend *be, pl_comm *comm,
                                pl_err *err);
void      pl_teacher_close(pl_teacher *t);

#endif
