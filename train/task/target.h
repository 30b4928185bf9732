// kind: target. Pretrains a Llama-family target from text: tokenizer, token files, training.
//
// checkpoints/{last,best} are complete Hugging Face model folders: config.json, generation_config.json,
// model.safetensors (which holds a tied embedding once), tokenizer.model, tokenizer_config.json.
// A step is `batch` windows of seq_len tokens; the last long_steps steps have windows of long_seq_len and the same
// number of tokens, so that all positions of the model are trained. Best is by bits per byte of held-out text.
#ifndef PL_TRAIN_PRETRAIN_H
#define PL_TRAIN_PRETRAIN_H

#include "train/keys.h"

extern const pl_training pl_training_target;

#endif
