// Lists the tensors of published drafters, names and sizes: EAGLE-1, EAGLE-3 and P-EAGLE by the names of the EAGLE
// repository, block drafters by those of z-lab, DSpark and DFlash 2. The lists leave out embeddings and output matrix,
// which may be the target's, and the map of a trimmed vocabulary.
#ifndef PL_HF_TENSORS_H
#define PL_HF_TENSORS_H

#include "checkpoints/hf.h"

typedef struct pl_hf_sizes {
    pl_hf_backbone backbone;
    int64_t        layers, width, heads, kv_heads, head_dim, intermediate;
    int64_t        taps, target_width; // fc reads so many layers of that width
    int64_t        vocab, head_rows;   // of the Markov head's two factors and the selector's two codebooks
    unsigned       norms;              // EAGLE-3.1's, see pl_hf_norms
    int64_t        markov_rank;        // 0: no Markov head
    int            markov_form;        // pl_hf_markov
    int64_t        confidence_inputs;  // of the confidence head; 0: none
    int64_t        conv_taps, conv_group, selector_rank; // DFlash 2's; 0: none
    int64_t        refiner_rank, refiner_ratio, slots;   // xPress's; rank 0: none
    pl_hf_selector lattice;                              // LiLiCorr's; candidates 0: none
} pl_hf_sizes;

// Sizes of a drafter whose head has all rows, as its config states them.
pl_hf_sizes pl_hf_sizes_of(const pl_hf_config *c, int64_t target_width);

// Sizes one after the other, 0 after the last. False ends the walk.
typedef bool (*pl_hf_tensor_fn)(void *arg, const char *name, const int64_t size[3]);
// Calls fn for each tensor until it returns false; returns true if it never did.
bool pl_hf_tensors(const pl_hf_sizes *s, pl_hf_tensor_fn fn, void *arg);

#define PL_HF_PADDED 5 // most sizes of such a tensor
// Some tensors have sizes of 1 between their own in files, as P-EAGLE's mask_hidden [1, 1, n]. Replace the shape of
// this program, of rank 2, by the files' or the other way, and return the new rank; other tensors and shapes stay.
int pl_hf_pad(const char *name, int64_t *shape, int rank);
int pl_hf_unpad(const char *name, int64_t *shape, int rank);

#endif
