// llama2.c model files, version 0: 7 int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len;
// vocab_size negative: the classifier is not tied), then fp32 tensors kind by kind over all layers:
//   tok_embeddings, rms_att, wq, wk, wv, wo, rms_ffn, w1, w2, w3, rms_final, freq_cis_real, freq_cis_imag (unused),
//   and wcls where not tied.
// The file's size must be exactly what the header says. Newer versions ("ak42" magic) are refused by name.
#ifndef PL_LLAMA2C_H
#define PL_LLAMA2C_H

#include "checkpoints/hf.h"
#include "checkpoints/weights.h"
#include "kernels/base/status.h"

// A source with Hugging Face's names (model.embed_tokens.weight, model.layers.N.self_attn.q_proj.weight, ...,
// model.norm.weight, lm_head.weight where not tied), rows of q and k reordered at reading from neighbouring RoPE pairs
// to rotate-half; and the config: eps 1e-5, theta 10000, bos 1, eos {1, 2}: llama2.c stops at BOS, its data has no EOS.
// Both outputs are zeroed on failure; cfg may be NULL.
pl_status pl_llama2c_open(pl_weight_source **out, pl_hf_config *cfg, const char *path, pl_err *err);

#endif
