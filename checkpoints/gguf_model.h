// A model in llama.cpp's form as a source of weights: a GGUF file, or all parts of a split one
// (NAME-00001-of-00003.gguf, keys split.no, split.count and split.tensors.count).
//
// Keys become the config that the architecture has in Hugging Face's form, tensors have Hugging Face's names; what
// llama.cpp derives from the architecture's name (windows, scale of scores, local RoPE base) is derived alike
// (src/models/ of ggml-org/llama.cpp). Matrices stay encoded in the mapped file. A layer for drafting, which llama.cpp
// appends to the others (nextn), has the names that Qwen3.5's folders give it (mtp).
#ifndef PL_GGUF_MODEL_H
#define PL_GGUF_MODEL_H

#include "checkpoints/gguf.h"
#include "checkpoints/hf.h"
#include "checkpoints/weights.h"

// Sets *file (owned by the caller) to the GGUF file of a model: `path` itself if it is one, or the only model (or first
// part of one) in a folder without safetensors; NULL: path is something else. PL_E_INPUT: a folder of several models.
pl_status pl_gguf_model_find(char **file, const char *path, pl_err *err);

// Returns true if a GGUF file holds tensors of an architecture of targets; false: a vocabulary alone, or a drafter.
bool pl_gguf_model_is(const char *file);

// file: a GGUF file, of a split one the first. PL_E_UNSUPPORTED names an architecture, a type of tensor or a setting
// that is not computed here. Norms hold their gains in full (norm_plus_one is false); EOS are eos, eot and eom tokens
// by key or, as llama.cpp does, by name. Both outputs are zeroed on failure; cfg may be NULL.
pl_status pl_gguf_model_open(pl_weight_source **out, pl_hf_config *cfg, const char *file, pl_err *err);

// ---- between gguf_model.c and gguf_config.c

typedef struct pl_gguf_parts {
    char     *path; // of the first
    pl_gguf **part; // [n]
    int       n;
} pl_gguf_parts;

// NULL: no part has it.
const pl_gguf_tensor *pl_gguf_parts_find(const pl_gguf_parts *p, const char *name);

// An architecture of GGUF files: its counterpart in Hugging Face's form and the layout of its tensors.
typedef struct pl_gguf_family {
    const char *name;                // general.architecture
    const char *architecture, *type; // Hugging Face's
    const char *mixed;               // the architecture if it has experts, NULL: has none or always
    bool        paired;              // rows of queries and keys alternate between the halves of a head
    bool        tiled;               // value heads of gated delta nets are in turns of their key heads
    int         period;              // one layer in so many is without a window; 0: no windows
    int         window;              // unless stated; 0: must be stated, negative: no windows then
    double      local_theta;         // of windowed layers, unless stated
    int         narrow;              // layers of the model whose scores are scaled by hidden size / heads
} pl_gguf_family;

// NULL: the architecture is none of them.
const pl_gguf_family *pl_gguf_family_of(const pl_gguf *g);
pl_status pl_gguf_config(pl_hf_config *c, const pl_gguf_family **family, const pl_gguf_parts *p, pl_err *err);

#endif
