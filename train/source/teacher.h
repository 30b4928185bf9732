// The parts of a target that a drafter's training needs: shapes, the embedding and the output matrix. Not the layers:
// the features contain their work.
#ifndef PL_TRAIN_TEACHER_H
#define PL_TRAIN_TEACHER_H

#include "infer/model/llama.h"

typedef struct pl_teacher {
    pl_llama          model;                 // config, shapes, embed and head (no gradient); the layers have no weights
    pl_tensor         head;                  // [V, d] row-major
    pl_tensor         host_embed, host_head; // the same matrices in host memory
    pl_llama          whole;                 // with layers, for decoding; empty if it is not opened
    pl_weight_source *src;                   // open while matrices are views of it
    void             *block[2];
    size_t            bytes[2];
    void             *there[2]; // copies in the backend's memory, if that is not the host's
} pl_teacher;

// Opens a teacher for be. path: a Hugging Face folder, a GGUF or llama2.c file. dtype: PL_F32 or PL_BF16, that of the
// target when it computed the features. model.fingerprint is the target's. whole: with the target's layers too, if it
// answers during training: t->whole is the target as pl_llama_open_over opens it on tp, and model.embed is its
// embedding.
pl_status pl_teacher_open(pl_teacher *t, const char *path, pl_dtype dtype, const pl_backend *be, bool whole,
                          pl_comm *tp, pl_err *err);
void      pl_teacher_close(pl_teacher *t);

#endif
