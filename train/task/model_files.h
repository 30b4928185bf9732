// A model under training as files that open as a target: config.json, model.safetensors, generation_config.json, and
// the tokenizer's own with tokenizer_config.json; and what a model that starts from such a folder takes from it.
#ifndef PL_TRAIN_MODEL_FILES_H
#define PL_TRAIN_MODEL_FILES_H

#include "data/tokenizer/tokenizer.h"
#include "train/task/lm.h"

// Into dir, which exists. tokenizer: a file or folder, whose tokenizer is tok.
pl_status pl_model_files_write(const char *dir, const pl_lm *lm, const pl_tokenizer *tok, const char *tokenizer,
                               pl_err *err);
// The config of the model in `dir`, to be trained and written in dtype; one that cannot be trained is refused.
pl_status pl_model_files_config(pl_hf_config *c, const char *dir, pl_dtype dtype, pl_err *err);
// Its weights; print: their fingerprint.
pl_status pl_model_files_weights(pl_lm *lm, const char *dir, char print[17], pl_err *err);

#endif
