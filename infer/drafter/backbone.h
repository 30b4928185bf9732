// A drafter's backbone: what lies between the target's features and the draft head. One row in, one row out:
//
//   hidden_0 = fuse(features_t)                          once for each position whose features are known
//   (y, hidden') = step(token_{t+1}, hidden_t)           y: what the head reads, logits = head(y): token t+2
// Row t consumes the hidden of position t and the embedding of token t+1, and predicts token t+2. Its hidden comes from
// the target's features where they are known, and is the row's own previous output where they are not (decoding ahead;
// unroll step k of training, with rope position t + k). A backbone is one file with one pl_backbone_kind; the drafter
// loop (infer/drafter/rollout.c) and training (train/task/unroll.h) know nothing else about it. The embedding is the
// target's, frozen and shared; or, of kinds that may have one, the drafter's own, which learns with the rest: its width
// may then be another than the target's.
//
// Or it drafts a block in one forward (DFlash): the rows of a block are the last token known, its anchor, and B - 1
// masks, at the anchor's position and those behind it; they see features of all positions before the anchor, as keys
// and values of each layer, and each other. What the head reads of the mask at position p predicts token p:
//
//   y = draft(blocks, features of the context)           y[a + j], j = 1 .. B - 1: token a + j, anchor at position a
// or (anchor first) y[a + j], j = 0 .. B - 1, token a + j + 1.
// Such a backbone has `draft` in place of fuse and step; its loops are infer/drafter/block.c and train/task/blocks.h.
//
// Or both (P-EAGLE): context rows are rows of `step`, each with the token behind it, and a block is the last of them
// and B - 1 masks that see all of them and the masks before themselves; draft runs them in one forward, and training
// runs step with what `ahead` gives in the place of a row's own output. y has B rows a block, all of which draft.
#ifndef PL_BACKBONE_H
#define PL_BACKBONE_H

#include "infer/head/head.h"
#include "infer/model/layer.h"
#include "infer/model/llama.h"

#define PL_STEP_LAYERS 8 // of a drafter that drafts token after token, at most

typedef struct pl_backbone pl_backbone;

// What a new drafter is made of; zeros take the target's (or the stated default).
typedef struct pl_backbone_options {
    pl_hf_head     head; // kind "": full
    const int32_t *d2t;  // [draft_vocab] the target ids that the head drafts, copied; NULL: all of them
    int64_t        draft_vocab;
    bool           own_head;                 // EAGLE-1: a full head that is the drafter's own instead of the target's
    bool           bias;                     // EAGLE-1: fc has a bias
    int            n_taps, tap[PL_MAX_TAPS]; // EAGLE-3; 0: pl_llama_default_taps
    int            width;                    // of kinds that embed; 0: the target's. Another has embeddings of its own,
    bool           own_embed;                // which one of the target's width may have too
    int            inter;                    // MLP width; 0: the target's, in proportion to the width
    int            layers;                   // 0: as many as its kind begins with
    int            block, mask_token;        // block drafters: slots, the anchor's included; the masks' token
    bool           anchor_first;             // DSpark: the anchor's slot drafts too, each slot the token behind its own
    int            conv_taps, conv_group;    // DFlash 2: taps and groups of its convolutions; 0: none
    pl_hf_selector selector;                 // candidates 0: none; rank 0: by the vocabulary
    // EAGLE-3.1's, see infer/drafter/eagle3.h.
    bool           fc_norm, norm_before_fc, norm_output, norm_before_residual;
} pl_backbone_options;

// Rows of blocks and of their context, for `draft`. Exactly one of row (inference) and lo (training) is set. Of kinds
// with `ahead` tokens, positions and rows of the blocks stand right behind those of the context, T + M in each layer.
typedef struct pl_block_view {
    pl_tensor       features;      // [T, n_taps * d_target] of context rows that are taken in
    const int32_t  *context_pos;   // [T]
    const int32_t  *context_token; // [T] kinds with `ahead`: the token behind each row's; else NULL
    const int32_t  *anchor;        // [M / masks] likewise: the context row that a block begins with
    const int32_t  *token, *pos;   // [M] of the blocks' rows, block after block
    int64_t         m;             // 0: the context is taken in and nothing drafted
    // Cached, each [layers] layer-major: where context rows go; where blocks' rows go and what they see.
    const pl_kvrow *context_row, *row;
    const int32_t  *lo, *hi; // [M / B] context rows that a block sees: lo .. hi - 1
    bool            rerun;   // under a tape: layers are run again in backward instead of kept
} pl_block_view;

// Root mean squares of a document's features.
typedef struct pl_feature_rms {
    double tap[PL_MAX_TAPS], last_hidden, embedding;
} pl_feature_rms;

typedef struct pl_backbone_kind {
    const char    *name;               // "eagle3": recipe key drafter.kind
    const char    *alias, *alias_tree; // a second name there, and the tree that it stands for; NULL: none
    pl_hf_backbone which;              // PL_HF_OTHER: no published architecture is its, configs name it
    size_t         size;               // of its struct, which begins with a pl_backbone
    int            layers;             // at most; 0: it is one
    bool           embeds;             // it may have embeddings of its own, and another width than the target's
    // hidden is a prediction of the target's feature of the next position: training may regress it.
    bool           predicts_features;
    // Completes the config of a new drafter, which begins as a copy of the target's.
    void (*configure)(pl_hf_config *c, const pl_llama *target, const pl_backbone_options *o);
    // Refuses, with one line, a config that is computed otherwise or whose taps the target lacks. May fill in taps.
    pl_status (*check)(pl_hf_config *c, const pl_llama *target, const char *where, pl_err *err);
    // The layers whose inputs a drafter of this config reads. NULL: it reads the last hidden alone.
    void (*taps)(pl_taps *t, const pl_hf_config *c, int n_layers);
    // Shape, taps and parameter list (without the head's) from b->config.
    void (*init)(pl_backbone *b);
    // features [M, n_taps * d_target] -> hidden [M, d].
    pl_tensor (*fuse)(pl_ctx *ctx, const pl_backbone *b, pl_tensor features);
    // One step for M rows: returns what the head reads [M, d] and, in *hidden_out, what the next step consumes.
    // y.data not NULL: the result is written there (a slice of a larger tensor).
    pl_tensor (*step)(pl_ctx *ctx, const pl_backbone *b, const int32_t *token, pl_tensor hidden, pl_view *view,
                      pl_tensor *hidden_out, pl_tensor y);
    // Block drafters, instead of fuse and step: what the head reads of the blocks' rows [M, d]. NULL: token after
    // token.
    pl_tensor (*draft)(pl_ctx *ctx, const pl_backbone *b, const pl_block_view *view);
    // Beside both: what a mask's step consumes, for M rows [M, d].
    pl_tensor (*ahead)(pl_ctx *ctx, const pl_backbone *b, int64_t m);
    // A tensor of a checkpoint that the model may leave unread; any other that it does not know is refused. NULL: all.
    bool (*ignores)(const char *name);
    // What the columns of its PL_START_FEATURES weight are multiplied by before training: a gain for each d_target of
    // them, from the sizes of what they read on the first training document. NULL: it has no such weight.
    void (*gains)(const pl_backbone *b, const pl_feature_rms *in, double *gain);
    // Published drafters have no head of their own but the target's, which is then not in their checkpoint.
    bool shares_head;
    // Parameter that rows read once, when their features come in, and not for each draft, NULL: none.
    const pl_tensor *(*fuse_only)(const pl_backbone *b);
} pl_backbone_kind;

struct pl_backbone {
    const pl_backbone_kind *kind;
    pl_hf_config            config; // the drafter's own
    pl_layer_shape          shape;
    int                     n_taps, tap[PL_MAX_TAPS]; // the features that `fuse` reads, see pl_llama_forward
    int64_t                 d_target;
    pl_tensor               embed;     // [V, d] the target's; borrowed
    bool                    own_embed; // it is a parameter instead
    pl_head                 head;
    pl_tensor               cos, sin;  // as the target's grow
    int                     positions; // the target's, where its own config says less
    pl_dtype                real;      // of the tables
    pl_rope_blocks          rope;
    pl_params               params;
    int                     head_param;     // the head's own parameters are head_param and those after it,
    int                     selector_param; // its selector's selector_param and those after it
    int                     layers;
    int                     block, drafts, first; // block drafters: slots, drafts, the first slot that drafts; or zeros
    int                     masks;                // rows of a block that `draft` is given
};

// It learns from blocks (train/task/blocks.h) instead of an unroll.
bool pl_backbone_in_blocks(const pl_backbone_kind *k);

// What recipes call drafters (drafter.kind): a backbone's name, or one that stands for a backbone with a tree of its
// own. NULL past the last.
const char             *pl_backbone_choice(int i);
const pl_backbone_kind *pl_backbone_at(int i);
const char             *pl_backbone_tree(int i); // how it is evaluated where a recipe says nothing; NULL: any way
// NULL: none of that name.
const pl_backbone_kind *pl_backbone_find(const char *name);
const char             *pl_backbone_name(const pl_backbone *b); // "eagle3": recipe key drafter.kind

// The embeddings that a checkpoint has of its own, in files too.
#define PL_BACKBONE_EMBED "embed_tokens.weight"

// What makes a new drafter's layers and blocks those of a drafter of this config.
void pl_backbone_like(pl_backbone_options *o, const pl_hf_config *c);

// Shapes and parameter list of a new drafter for a target, on be; no weights (a trainer binds them).
pl_status pl_backbone_create(pl_backbone **out, const pl_backbone_kind *kind, const pl_llama *target,
                             const pl_backbone_options *o, const pl_backend *be, pl_err *err);
// As pl_llama_reach, of the drafter's own tables.
pl_status pl_backbone_reach(const pl_backbone *b, int64_t positions, pl_err *err);
// A checkpoint directory as the backbone it declares itself to be, weights held in t for inference, in the target's
// memory. Refused with one line when it does not fit the target.
pl_status pl_backbone_open(pl_backbone **out, const char *dir, const pl_llama *target, pl_dtype t, pl_err *err);
void      pl_backbone_destroy(pl_backbone *b); // NULL is allowed

// Writes config.json and model.safetensors into dir (which exists). data: one row-major block per parameter.
pl_status pl_backbone_write(const pl_backbone *b, const char *dir, const float *const *data, pl_dtype t, pl_err *err);
// Bytes that one draft step must read, the mean over `depth` levels.
double    pl_backbone_step_bytes(const pl_backbone *b, int depth);
// The taps side by side, each rounded to bf16: [M, n_taps * d_target], what datasets store and `fuse` reads.
pl_tensor pl_features(pl_ctx *ctx, const pl_llama_out *out, int n_taps);

// What a drafter of this config reads of a target of n_layers beside its last hidden; n 0: nothing.
void      pl_backbone_taps(pl_taps *t, const pl_hf_config *c, int n_layers);
// Every tap is one that a target of n_layers has.
pl_status pl_backbone_check_taps(const int *tap, int n, int n_layers, const char *where, pl_err *err);

extern const pl_backbone_kind pl_backbone_eagle1, pl_backbone_eagle3, pl_backbone_dflash, pl_backbone_peagle;

#endif
