// What the rules of `check` look at: a folder that an engine would read, and the target that it is served with.
#ifndef PL_EXPORT_LOOK_H
#define PL_EXPORT_LOOK_H

#include "checkpoints/safetensors.h"
#include "infer/export/export.h"

typedef struct pl_look {
    const pl_export_engine *engine;
    pl_json                 j;
    const cJSON            *layer; // the object with the layers' sizes: the root, or speculators' own
    pl_st                  *st;
    bool                    block; // a block drafter
    bool                    has_target;
    pl_hf_config            target;
    int64_t                 rows; // of lm_head, -1: none
    char                    why[PL_CHECK_WHY];
} pl_look;

typedef enum pl_check_of { PL_CHECK_ALL, PL_CHECK_EAGLE3 } pl_check_of;

typedef struct pl_check_rule {
    const char *name, *help;
    pl_check_verdict (*holds)(pl_look *k);
    bool        map;  // for heads with a draft vocabulary of their own alone
    const char *only; // an engine's name; NULL: all
    pl_check_of of;
} pl_check_rule;

extern const pl_check_rule pl_check_blocks[]; // of block drafters alone (check_block.c)
extern const size_t        pl_check_n_blocks;

// Of the target's layers (check_layers.c).
pl_check_verdict pl_check_layers_written(pl_look *k);
pl_check_verdict pl_check_layers_meant(pl_look *k);
pl_check_verdict pl_check_layers_rise(pl_look *k);
pl_check_verdict pl_check_layers_joined(pl_look *k);
pl_check_verdict pl_check_layers_counted(pl_look *k);
pl_check_verdict pl_check_layers_there(pl_look *k);
pl_check_verdict pl_check_layers_own(pl_look *k);

// They return PL_CHECK_BROKEN and PL_CHECK_UNSEEN, with what is wrong.
#define pl_broken(k, ...) pl_check_say((k)->why, PL_CHECK_BROKEN, __VA_ARGS__)
#define pl_unseen(k, ...) pl_check_say((k)->why, PL_CHECK_UNSEEN, __VA_ARGS__)

// Members of o (NULL: of the whole file).
const cJSON *pl_look_member(const pl_look *k, const cJSON *o, const char *key);
int64_t pl_look_int(const pl_look *k, const cJSON *o, const char *key); // of 31 bits: a product of two fits; -1: none
double  pl_look_num(const pl_look *k, const cJSON *o, const char *key); // NAN: none
const char *pl_look_text(const pl_look *k, const cJSON *o, const char *key); // "": none
int         pl_look_flag(const pl_look *k, const cJSON *o, const char *key); // 1, 0, or -1 where it is no switch
int64_t     pl_look_vocab(const pl_look *k);
// The engine's list of at most PL_HF_TAPS layers; -1: it is missing or no list of numbers.
int          pl_look_layers(const pl_look *k, int *layer);
const char *pl_look_architecture(const pl_look *k); // "missing": none

// The tensor, where it is there, is [rows, cols]; cols 0: a vector.
// Sizes one after the other, 0 after the last.
pl_check_verdict pl_look_sizes(pl_look *k, const char *name, const int64_t size[3]);
pl_check_verdict pl_look_shape(pl_look *k, const char *name, int64_t rows, int64_t cols);

#endif
