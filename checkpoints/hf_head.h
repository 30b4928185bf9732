// What a draft head is, as a checkpoint's config.json states it in the object paceline.head: its kind and the settings
// that this kind has (infer/head/head.h has the kinds, whose keys say what settings there are and what they mean). Here
// they are names with a number, a flag or a text, so that this file knows none of them.
#ifndef PL_HF_HEAD_H
#define PL_HF_HEAD_H

#include "kernels/base/json.h"
#include "kernels/base/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { PL_HF_HEAD_SETTINGS = 24, PL_HF_HEAD_NAME = 32 };

typedef enum pl_hf_form { PL_HF_INT, PL_HF_FLAG, PL_HF_TEXT } pl_hf_form;

typedef struct pl_hf_setting {
    char       name[PL_HF_HEAD_NAME];
    pl_hf_form form;
    int64_t    value; // INT: 1..2^31 - 1; FLAG: 1
    char       text[PL_HF_HEAD_NAME];
} pl_hf_setting;

// Settings that are 0, false or "" are not stated.
typedef struct pl_hf_head {
    char          kind[PL_HF_HEAD_NAME]; // "full", "lowrank", ...; "": not stated
    int           n;
    pl_hf_setting setting[PL_HF_HEAD_SETTINGS];
} pl_hf_head;

// A selector behind the head (infer/head/selector.h): of blocks in dflash_config, as DFlash 2 has it (selector_rank,
// selector_top_k) or LiLiCorr (projector_type lilicorr and lilicorr_*), of others in paceline.selector, where the law
// of any stands, if it is not the full one.
typedef enum pl_hf_law { PL_HF_LAW_FULL, PL_HF_LAW_LIST } pl_hf_law;
typedef struct pl_hf_selector {
    int       rank, candidates; // 0: none
    pl_hf_law law;
    char      kind[16];             // "": codebook
    int       width, layers, heads; // of a lattice (infer/head/selector_lattice.c); 0: none
    double    mlp_ratio, scale, eps;
} pl_hf_selector;
#define PL_HF_LATTICE "lattice"
#define PL_HF_LATTICE_LAYERS 4 // most layers of a lattice
bool        pl_hf_is_lattice(const pl_hf_selector *s);
// "full", "list"; NULL past the last.
const char *pl_hf_law_name(int law);

// "KIND" or "KIND:NAME=VALUE,NAME,...": a number, a text, or a flag that is set; "KIND:64" is short for rank=64.
// PL_E_USAGE with one line.
pl_status  pl_hf_head_parse(pl_hf_head *h, const char *text, pl_err *err);
// The same of a text that is code: aborts.
pl_hf_head pl_hf_head_of(const char *text);
// Of this kind (NULL: "") and, where it is not 0, this rank.
pl_hf_head pl_hf_head_make(const char *kind, int rank);

// NULL: not stated.
const pl_hf_setting *pl_hf_head_find(const pl_hf_head *h, const char *name);
int64_t              pl_hf_head_int(const pl_hf_head *h, const char *name); // 0: not stated
// Adds or replaces a setting; a value of 0 takes it away.
void                 pl_hf_head_set(pl_hf_head *h, const char *name, int64_t value);
void                 pl_hf_head_set_flag(pl_hf_head *h, const char *name, bool on);
void                 pl_hf_head_set_text(pl_hf_head *h, const char *name, const char *text);

// The members of the object paceline.head.
pl_status pl_hf_head_read(pl_hf_head *h, const pl_json *j, const cJSON *object, pl_err *err);
void      pl_hf_head_put(pl_json_out *o, const pl_hf_head *h); // into an open object, in the order they were added
// Continues a hash with all that is stated, in whatever order.
uint64_t  pl_hf_head_hash(uint64_t hash, const pl_hf_head *h);

#endif
