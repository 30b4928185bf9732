// A drafter's backbone: the layers between the target's features and the draft head. One row in, one row out (but see
// step):
//
//   hidden_0 = fuse(features_t)                          once for each position whose features are known
//   (y, hidden') = step(token_{t+1}, hidden_t)           logits = head(y): token t+2
// Row t consumes the hidden state of position t and the embedding of token t+1, and predicts token t+2. Its hidden
// state comes from the target's features where they exist, else from the row's own previous output (decoding ahead;
// unroll step k of training, at rope position t + k). A backbone is one file with one pl_backbone_kind; drafting
// (infer/drafter/rollout.c) and training (train/task/unroll.h) use only that interface. The embedding is the target's,
// frozen and shared, or, for kinds that support it, the drafter's own, which is trained and may have another width.
//
// Block backbones (DFlash) draft a block in one forward. A block's rows are the last known token (its anchor) and B - 1
// masks at the positions after it; they attend to the features of all positions before the anchor, as keys and values
// of each layer, and to each other. The mask at position p predicts token p:
//
//   y = draft(blocks, features of the context)           y[a + j], j = 1 .. B - 1: token a + j, anchor at position a
// or (anchor first) y[a + j], j = 0 .. B - 1, token a + j + 1.
// Such a backbone has `draft` in place of fuse and step; see infer/drafter/block.c and train/task/rows_blocks.c.
//
// P-EAGLE has both: context rows are rows of `step`, each with the token after it, and a block is the last of them with
// B - 1 masks that attend to all of them and to the masks before themselves. draft runs them in one forward; training
// runs step with the output of `ahead` in place of a row's own output. y has B rows a block, and all of them draft.
//
// Medusa's blocks have neither masks nor cache: each draft is a head of its own over the anchor row's features. Hydra's
// heads also read the tokens of their path: `draft` gives each block one row, from which `follow` goes draft by draft.
#ifndef PL_BACKBONE_H
#define PL_BACKBONE_H

#include "infer/head/head.h"
#include "infer/model/kv.h"
#include "infer/model/layer.h"
#include "infer/model/llama.h"

#define PL_STEP_LAYERS 8 // most layers of a drafter that drafts token by token

typedef struct pl_backbone pl_backbone;

// Options of a new drafter; zeros take the target's value (or the stated default).
typedef struct pl_backbone_options {
    pl_hf_head          head; // kind "": full
    const int32_t      *d2t;  // [draft_vocab] target ids of the head's rows, copied; NULL: all tokens
    int64_t             draft_vocab;
    bool                own_head; // EAGLE-1: a full head that is the drafter's own instead of the target's
    bool                bias;     // EAGLE-1: fc has a bias
    int                 n_taps, tap[PL_MAX_TAPS]; // EAGLE-3; 0: pl_llama_default_taps
    int                 width;             // kinds with `embeds`; 0: the target's. Another width needs own embeddings
    bool                own_embed;         // own embeddings at the target's width too
    int                 inter;             // MLP width; 0: the target's, scaled with the width
    int                 layers;            // 0: the kind's default
    int                 block, mask_token; // block drafters: slots including the anchor; the mask token's id
    int                 window;            // kinds with `windows`: positions up to a row's own that it sees in each
                                           // layer; 0: all
    const pl_hf_config *like_windows;      // instead: the windows and causal layers of another drafter; borrowed
    bool                anchor_first;      // DSpark: the anchor's slot drafts too, and each slot drafts the token
                                           // after its own
    int                 conv_taps, conv_group; // DFlash 2: taps and groups of its convolutions; 0: none
    pl_hf_selector      selector;              // candidates 0: none; rank 0: chosen by vocabulary size
    // EAGLE-3.1's switches, see infer/drafter/eagle3.h.
    bool                fc_norm, norm_before_fc, norm_output, norm_before_residual;
} pl_backbone_options;

// Rows of blocks and of their context, for `draft`. Exactly one of row (inference) and lo (training) is set. For kinds
// with `ahead`, tokens, positions and rows of the blocks directly follow those of the context, T + M in each layer.
typedef struct pl_block_view {
    pl_tensor       features;      // [T, n_taps * d_target] new context rows
    const int32_t  *context_pos;   // [T]
    const int32_t  *context_token; // [T] kinds with `ahead`: the token after each row; else NULL
    const int32_t  *anchor;        // [M / masks] the context row that each block begins with
    const int32_t  *token, *pos;   // [M] the blocks' rows, block after block
    int64_t         m;             // 0: the context is cached and nothing is drafted
    // Cache rows, each [layers] layer-major: where context rows are written; where the blocks' rows are written and
    // which rows they attend to.
    const pl_kvrow *context_row, *row;
    const int32_t  *lo, *hi;    // [M / B] context rows that a block attends to: lo .. hi - 1
    const int32_t  *context_lo; // [T] training: the first context row of each row's document
    bool            rerun;      // under a tape: backward recomputes layers instead of keeping them
} pl_block_view;

// Rows of one draft, for `follow`.
typedef struct pl_follow_view {
    int            draft; // from 0
    pl_tensor      state; // [n, ..] of the draft before; of the first draft: the result of `draft`
    const int32_t *token; // [n] the token before each draft; -1: none
    pl_tensor      y;     // where the result goes; data NULL: a new tensor
    bool           rerun; // as in pl_block_view
} pl_follow_view;

// Root mean squares of a document's features.
typedef struct pl_feature_rms {
    double tap[PL_MAX_TAPS], last_hidden, embedding;
} pl_feature_rms;

typedef struct pl_backbone_kind {
    const char    *name;               // "eagle3": recipe key drafter.kind
    const char    *alias, *alias_tree; // a second name there, and the tree that it implies; NULL: none
    pl_hf_backbone which;              // PL_HF_OTHER: no published architecture, configs give the name
    size_t         size;               // of the kind's struct, which begins with a pl_backbone
    int            layers;             // most layers; 0: one
    bool           embeds;             // supports own embeddings, and so another width than the target's
    bool           windows;            // its layers may have a sliding window
    // hidden is a prediction of the target's feature at the next position, so training may add feature regression.
    bool           predicts_features;
    // Completes the config of a new drafter, which begins as a copy of the target's.
    void (*configure)(pl_hf_config *c, const pl_llama *target, const pl_backbone_options *o);
    // Refuses, with one line, a config that this kind does not compute or whose taps the target lacks. May fill in
    // taps.
    pl_status (*check)(pl_hf_config *c, const pl_llama *target, const char *where, pl_err *err);
    // Sets the layers whose inputs a drafter of this config reads. NULL: it reads the last hidden state alone.
    void (*taps)(pl_taps *t, const pl_hf_config *c, int n_layers);
    // Sets shape, taps and the parameter list (without the head's) from b->config.
    void (*init)(pl_backbone *b);
    // features [M, n_taps * d_target] -> hidden [M, d].
    pl_tensor (*fuse)(pl_ctx *ctx, const pl_backbone *b, pl_tensor features);
    // Runs one step for M rows: returns the head's input [M, d] and sets *hidden_out, the input of the next step. If
    // y.data is not NULL the result is written there (a slice of a larger tensor). With view->run fewer rows continue
    // after the last layer's attention: pl_layer_running selects those of the residual, and the result has as many.
    pl_tensor (*step)(pl_ctx *ctx, const pl_backbone *b, const int32_t *token, pl_tensor hidden, pl_view *view,
                      pl_tensor *hidden_out, pl_tensor y);
    // Block drafters, instead of fuse and step: returns the head's input for the blocks' rows [M, d]. NULL: the kind
    // drafts token by token.
    pl_tensor (*draft)(pl_ctx *ctx, const pl_backbone *b, const pl_block_view *view);
    // Block drafters whose drafts depend on the tokens before them, in addition to draft, which returns one row a block
    // [M / B, d]: returns the head's input of one draft [n, d] and sets *state for the next draft of the same paths.
    pl_tensor (*follow)(pl_ctx *ctx, const pl_backbone *b, const pl_follow_view *view, pl_tensor *state);
    // Returns the context's hidden states [T, d] of features, as the layers of `draft` read them. NULL: the kind has
    // none.
    pl_tensor (*context)(pl_ctx *ctx, const pl_backbone *b, pl_tensor features);
    // In addition to both: returns the input of a mask's step, for M rows [M, d].
    pl_tensor (*ahead)(pl_ctx *ctx, const pl_backbone *b, int64_t m);
    // Each draft of a block has a head of its own and reads the last hidden states up to the block's anchor row: no
    // masks or taps.
    bool own_heads;
    // Returns true for a checkpoint tensor that may stay unread; other unknown tensors are refused. NULL: none may.
    bool (*ignores)(const char *name);
    // Sets the factors that scale the columns of its PL_START_FEATURES weight before training: one gain per d_target
    // columns, from the feature sizes of the first training document. NULL: the kind has no such weight.
    void (*gains)(const pl_backbone *b, const pl_feature_rms *in, double *gain);
    // Published drafters of this kind use the target's head, which is then not in their checkpoint.
    bool shares_head;
    // Returns the parameter that is read once per context row and not once per draft; NULL: none.
    const pl_tensor *(*fuse_only)(const pl_backbone *b);
} pl_backbone_kind;

struct pl_backbone {
    const pl_backbone_kind *kind;
    pl_hf_config            config; // the drafter's own
    pl_layer_shape          shape;
    int                     n_taps, tap[PL_MAX_TAPS]; // the features that `fuse` reads, see pl_llama_forward
    int64_t                 d_target;
    pl_tensor               embed;     // [V, d] the target's, borrowed
    bool                    own_embed; // embed is a parameter of the drafter
    pl_head                 head;
    pl_head                *more;     // [drafts - 1] kinds with own_heads: the heads of the other drafts; d2t is head's
    pl_tensor              *expert;   // of a layer's mixture, which borrows them; NULL: none
    pl_tensor               cos, sin; // rotary tables, grown with the target's
    int                     positions; // of the tables: the target's if the drafter's config states fewer
    pl_dtype                real;      // of the tables
    pl_rope_blocks          rope;
    pl_params               params;
    int                     head_param;     // index of the head's first parameter,
    int                     selector_param; // and of its selector's
    int                     layers;
    int                     block, drafts, first; // block drafters: slots, drafts, the first slot that drafts; else
                                                  // zeros
    int                     masks;                // rows per block that `draft` gets
};

// Returns the head of a draft, from 0; kinds without own_heads have one for all.
static inline const pl_head *pl_backbone_head(const pl_backbone *b, int draft) {
    return b->more && draft > 0 ? &b->more[draft - 1] : &b->head;
}

// Returns the context's hidden states of the row that each of n blocks begins with, for selectors that read them; else
// no tensor.
pl_tensor pl_backbone_context(pl_ctx *ctx, const pl_backbone *b, const pl_block_view *view, int64_t n);
// Sets a slot's cache rows in every layer, as pl_kv_row does: the slot at position `at` of a block of which each layer
// sees the whole, or in causal layers the slots up to it.
void pl_backbone_slot_row(const pl_backbone *b, const pl_kv *kv, pl_kvrow *row, int64_t m, int32_t anchor, int32_t at);
// Returns the window of a session's cache if every layer has one, else zeros. most: its rows that are set at a time.
pl_kv_window pl_backbone_window(const pl_backbone *b, int most);
// Sets the windows that the options ask for, once the layers are set. For kinds' configure.
void         pl_backbone_windows(pl_hf_config *c, const pl_backbone_options *o);
// Returns true if the kind learns from blocks (train/task/rows_blocks.c) instead of an unroll.
bool         pl_backbone_in_blocks(const pl_backbone_kind *k);

// Returns the i-th name of recipe key drafter.kind: a backbone's, or an alias that implies a tree. NULL past the last.
const char             *pl_backbone_choice(int i);
const pl_backbone_kind *pl_backbone_at(int i);
const char             *pl_backbone_tree(int i); // default tree for evaluation; NULL: none
// Returns NULL if no backbone has that name.
const pl_backbone_kind *pl_backbone_find(const char *name);
const char             *pl_backbone_name(const pl_backbone *b); // "eagle3": recipe key drafter.kind

// Parameter name of own embeddings, in files too.
#define PL_BACKBONE_EMBED "embed_tokens.weight"

// Sets the options that give a new drafter the layers and blocks of this config, which they borrow.
void pl_backbone_like(pl_backbone_options *o, const pl_hf_config *c);

// Replaces the weights by those of another checkpoint of the same shape, in place: no call may be in flight. PL_E_INPUT
// if it is another drafter (config, list of tokens, table), and then nothing has changed.
pl_status pl_backbone_retake(pl_backbone *b, const char *dir, const pl_llama *target, pl_dtype t, pl_err *err);

// Creates a new drafter for a target, on be, with shapes and a parameter list but no weights (a trainer binds them).
pl_status pl_backbone_create(pl_backbone **out, const pl_backbone_kind *kind, const pl_llama *target,
                             const pl_backbone_options *o, const pl_backend *be, pl_err *err);
// Grows the drafter's own tables, as pl_llama_reach does.
pl_status pl_backbone_reach(const pl_backbone *b, int64_t positions, pl_err *err);
// Opens a checkpoint directory as the backbone that its config declares, with weights as t for inference, in the
// target's memory. Refuses one that does not fit the target.
pl_status pl_backbone_open(pl_backbone **out, const char *dir, const pl_llama *target, pl_dtype t, pl_err *err);
// Opens the drafter of `kind` that lies in the target's own files, likewise. PL_E_INPUT: they have none;
// PL_E_UNSUPPORTED: it has parts that are not computed here.
pl_status pl_backbone_open_within(pl_backbone **out, const pl_backbone_kind *kind, const pl_llama *target, pl_dtype t,
                                  pl_err *err);
void      pl_backbone_destroy(pl_backbone *b); // NULL is allowed

// Writes config.json and model.safetensors into dir (which exists). data: one row-major block per parameter.
pl_status pl_backbone_write(const pl_backbone *b, const char *dir, const float *const *data, pl_dtype t, pl_err *err);
// Returns the bytes that one draft step must read, averaged over `depth` levels.
double    pl_backbone_step_bytes(const pl_backbone *b, int depth);
// Concatenates the taps, each rounded to bf16: [M, n_taps * d_target], the form that datasets store and `fuse` reads.
pl_tensor pl_features(pl_ctx *ctx, const pl_llama_out *out, int n_taps);

// Sets the layers of an n_layers target that a drafter of this config reads besides the last hidden state; n 0: none.
void      pl_backbone_taps(pl_taps *t, const pl_hf_config *c, int n_layers);
// Checks that a target of n_layers has every tap.
pl_status pl_backbone_check_taps(const int *tap, int n, int n_layers, const char *where, pl_err *err);

extern const pl_backbone_kind pl_backbone_eagle1, pl_backbone_eagle3, pl_backbone_dflash, pl_backbone_peagle,
    pl_backbone_medusa, pl_backbone_hydra, pl_backbone_hydrapp, pl_backbone_mtp;

#endif
