// Writes a model under training as a folder that opens as a target (config.json, model.safetensors,
// generation_config.json, the tokenizer's files with tokenizer_config.json), and starts a model from such a folder.
#ifndef PL_TRAIN_MODEL_FILES_H
#define PL_TRAIN_MODEL_FILES_H

#include "data/tokenizer/tokenizer.h"
#include "train/task/lm.h"

// Writes the files into dir, which exists. tokenizer: the file or folder from which tok was opened.
pl_status pl_model_files_write(const char *dir, const pl_lm *lm, const pl_tokenizer *tok, const char *tokenizer,
                               pl_err *err);
// Reads the config of the model in `dir`, to train it and write it in dtype. Refuses models that cannot be trained.
pl_status pl_model_files_config(pl_hf_config *c, const char *dir, pl_dtype dtype, pl_err *err);
// Reads its weights; writes their fingerprint to `print`.
pl_status pl_model_files_weights(pl_lm *lm, const char *dir, char print[17], pl_err *err);

#endif
