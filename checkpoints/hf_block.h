// Members of a block drafter's config.json beside a decoder's own (DFlash, arXiv 2602.06036, as z-lab publishes it):
//
//   block_size                       slots of a block, including the anchor's; here or in dflash_config
//   dflash_config.mask_token_id      the token in the slots after the anchor
//   dflash_config.target_layer_ids   0-based target layers whose outputs the drafter reads
//   sample_from_anchor               every slot, the anchor's too, drafts the token after its own (DSpark, arXiv
//                                    2607.05147); here or in dflash_config; absent: false
//   num_target_layers                the target's number of layers
//   sliding_window, layer_types      as Qwen3's, where use_sliding_window is true: row j of a block sees the positions
//                                    from a + j - sliding_window + 1 on, anchor at a
//   is_causal                        whether a slot sees the block's slots up to itself alone; here, or as is_causal or
//                                    causal in dflash_config; absent: in layers with a window (z-lab's reference, vLLM)
//   conv_kernel_size, conv_group_size, selector_rank, selector_top_k
//                                    DFlash 2's convolutions and selector; here or in dflash_config; absent: none
//   dflash_config.projector_type     "lilicorr": LiLiCorr's selector (arXiv 2608.20530), with lilicorr_candidate_topk,
//                                    _factor_dim, _hidden_size (0: the drafter's), _num_layers, _num_heads, _mlp_ratio,
//                                    _logit_scale and _vector_eps
#ifndef PL_HF_BLOCK_H
#define PL_HF_BLOCK_H

#include "checkpoints/hf_head.h"
#include "kernels/base/json.h"

#define PL_HF_BLOCK_MAX 17 // most slots: the drafts of a block fit an unroll (kernels/op/attention.h)

// Layers in which a block's slots see those before them alone: none, those with a window, all.
typedef enum pl_hf_causal { PL_HF_CAUSAL_NONE, PL_HF_CAUSAL_WINDOWS, PL_HF_CAUSAL_ALL } pl_hf_causal;

typedef struct pl_hf_block {
    int          size; // 0: not a block drafter
    int          mask_token;
    bool         anchor_first;  // sample_from_anchor
    int          target_layers; // 0: not stated
    int          taps, group;   // of the convolutions around each sublayer (kernels/op/blockconv.h); 0: none
    pl_hf_causal causal;
} pl_hf_block;

// Forms of DSpark's Markov head (infer/head/markov.c).
typedef enum pl_hf_markov { PL_HF_MARKOV_VANILLA, PL_HF_MARKOV_GATED, PL_HF_MARKOV_RNN } pl_hf_markov;
const char *pl_hf_markov_name(int form);         // as published; NULL past the last
int         pl_hf_markov_find(const char *name); // "": vanilla; -1: unknown
int         pl_hf_markov_of(const pl_hf_head *h);

#define PL_HF_REFINER_RANK 256 // of xPress's published heads (infer/head/xpress.c), and the ratio of its MLP
#define PL_HF_REFINER_RATIO 2

struct pl_hf_config;
// Fills in c->block and the taps, numbered by outputs, from the whole file. A file without a head of this program's
// uses the target's.
pl_status pl_hf_block_read(struct pl_hf_config *c, const pl_json *j, pl_err *err);
// Appends a list of layers to the taps.
pl_status pl_hf_taps_read(struct pl_hf_config *c, const pl_json *j, const cJSON *layers, pl_err *err);
void      pl_hf_block_put(pl_json_out *o, const struct pl_hf_config *c); // writes members of the open top object

#endif
