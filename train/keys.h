// The recipe keys of this floor: what is trained, on what, how. The target's own and the seed are infer's
// (infer/generate/generate.h).
#ifndef PL_TRAIN_KEYS_H
#define PL_TRAIN_KEYS_H

#include "checkpoints/hf_head.h"
#include "infer/drafter/backbone.h"
#include "infer/generate/generate.h"
#include "kernels/base/key.h"
#include "recipes/recipe.h"
#include "train/loop/trainer.h"

enum { PL_KIND_DRAFTER, PL_KIND_TARGET };        // kind
enum { PL_TOKENIZER_BPE, PL_TOKENIZER_UNIGRAM }; // data.tokenizer.type
enum { PL_FREEZE_NONE, PL_FREEZE_BACKBONE };     // drafter.freeze
enum { PL_LAYER_DRAWN, PL_LAYER_TARGET };        // drafter.layer
enum { PL_TRAIN_BF16, PL_TRAIN_F32 };            // train.dtype
enum { PL_WEIGHTS_DECAY, PL_WEIGHTS_PACE };      // train.draft_weights
enum { PL_MASKED_DRAFTED, PL_MASKED_ALL };       // train.masked_rows
enum { PL_RESUME_SAME, PL_RESUME_ANY };          // train.resume
enum { PL_ROWS_SUPERVISED, PL_ROWS_WHOLE };      // train.rows
enum { PL_SHARD_NONE, PL_SHARD_OPTIMIZER };      // train.shard
typedef struct pl_train_recipe {
    int kind;
    struct {
        struct {
            int64_t hidden_size, layers, heads, kv_heads, intermediate, vocab, positions;
            bool    tie;
            double  rope_theta, norm_eps;
        } new;
        const char *start;
    } target;
    struct {
        pl_strings text, code;
        bool       gutenberg, unwrap;
        int        encoding;
        int64_t    chunk_bytes;
        struct {
            pl_strings names;
            int64_t    every;
        } holdout;
        bool eos;
        struct {
            int64_t vocab_size;
            int     type;
            double  coverage;
            int64_t max_lines;
        } tokenizer;
        int64_t     window;
        const char *dataset;
    } data;
    struct {
        int     kind;
        pl_ints taps;
        int64_t intermediate, width, layers, window, block, mask_token;
        bool    own_embeddings, bias, anchor_first, fc_norm, norm_before_fc, norm_output, norm_before_residual;
        struct {
            int64_t taps, group;
        } conv;
        struct {
            int64_t rank, candidates, width, layers, heads;
            int     law, kind;
            double  scale;
        } selector;
        const char *start;
        int         freeze, layer;
    } drafter;
    struct {
        const char *path, *tree;
        int64_t     top, rows;
    } traces;
    struct {
        int64_t steps, batch, seq_len, long_seq_len, long_steps, slots, slot_rows, learn_rows;
        bool    recompute;
        int64_t unroll, eval_steps, anchors, top_k;
        int     objective, selector_objective, draft_weights;
        struct {
            double share, temperature;
        } on_policy;
        double  top_weight, depth_ratio, depth_floor, pace_alpha, confidence_weight, selector_weight;
        bool    masked_teacher;
        int     masked_rows;
        double  js_beta, lk_decay, token_weight, feature_weight, noise;
        int64_t holdout;
        double  step_decay, lr;
        int     schedule;
        double  min_lr_ratio;
        int64_t warmup;
        double  weight_decay;
        bool    decay_embeddings;
        double  beta1, beta2, eps, clip;
        int     dtype, resume, shard, rows;
        int64_t eval_every, eval_tokens, eval_prompts, checkpoint_every;
        double  checkpoint_minutes;
        int64_t keep, log_every;
        struct {
            bool    nonfinite;
            double  spike;
            int64_t window, in_a_row;
        } guard;
        struct {
            int64_t sequences, prefix, length, first_step;
            double  weight;
        } unlikelihood;
    } train;
} pl_train_recipe;
extern const pl_key                  pl_train_keys[];
static inline const pl_train_recipe *pl_train_recipe_of(const pl_recipe *r) {
    return pl_recipe_struct(r, pl_train_keys);
}

// Returns the backbone of drafter.kind (EAGLE-2 has EAGLE-1's); NULL: a language model that drafts for another.
const pl_backbone_kind *pl_train_backbone(const pl_recipe *r);
// Returns true if drafter.kind is that language model, whose task is train/task/distill.h.
bool                    pl_train_standalone(const pl_recipe *r);
// Returns true if the head's weights are not trained; "auto": a full head whose backbone uses the target's.
bool                    pl_train_freezes_head(const pl_recipe *r);
// The language model's name as drafter.kind and as --drafter (infer/drafter/drafter.h).
#define PL_TRAIN_STANDALONE "lm"
const char                         *pl_train_drafter_choice(int i); // drafter.kind; NULL past the last
// Returns the fields of drafter.head.* other than the kind's own keys.
static inline const pl_head_recipe *pl_head_recipe_of(const pl_recipe *r) {
    return pl_recipe_struct(r, pl_head_keys);
}
const pl_head_kind *pl_train_head_kind(const pl_recipe *r);
// Returns true if drafter.head.kind is a routed head, whose task is train/task/routed.h.
bool                pl_train_routed(const pl_recipe *r);
// Returns drafter.head as a checkpoint stores it.
pl_hf_selector      pl_train_selector(const pl_recipe *r); // what is left open stays 0
pl_hf_head          pl_train_head_read(const pl_recipe *r);

// Returns this rank's part of masters and moments by train.shard.
pl_shard pl_train_shard(const pl_recipe *r, const pl_comm *comm);

// The parts of a recipe that every kind of training shares.
pl_status pl_train_options_read(pl_trainer_options *o, const pl_recipe *r, const char *out_dir, pl_err *err);

// A kind of training: what makes a task of a recipe. train/run/run.c allocates its struct, whose first member is the
// task, zeroed but for backend, pool, comm and n_slots (train.slots, at least 1).
typedef struct pl_training {
    size_t size;
    pl_status (*prepare)(pl_task *t, const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err);
    void (*destroy)(pl_task *t); // also of one that prepare has left unfinished
} pl_training;
// In train/task: drafter.c, distill.c, routed.c, target.c.
extern const pl_training pl_training_drafter, pl_training_lm, pl_training_router, pl_training_target;

#endif
