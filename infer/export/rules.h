// The input of the rules of `check`: a drafter as the engine reads it, and the target that it is served with.
#ifndef PL_EXPORT_RULES_H
#define PL_EXPORT_RULES_H

#include "checkpoints/hf_tensors.h"
#include "checkpoints/safetensors.h"
#include "infer/export/export.h"

#define PL_CHECK_WHY 240

typedef struct pl_look_tensor {
    char        name[96];
    int         rank;
    int64_t     size[PL_HF_PADDED];
    pl_dtype    dtype; // PL_DTYPE_COUNT: another type
    const void *data;
    bool        needed; // the file must have it; rank 0: of any size
} pl_look_tensor;

typedef struct pl_look_list {
    pl_look_tensor *t; // owned
    int64_t         n, cap;
    bool            failed; // out of memory
} pl_look_list;

typedef struct pl_look {
    const pl_export_engine     *engine;
    const struct pl_check_rule *rule; // the current rule
    // Values that the file states, in the fields of the engine's rows: -1 or NAN for missing numbers, n_taps -1 for a
    // missing list, the engine's default for members that have one.
    pl_export                   e;
    pl_hf_sizes                 s;    // sizes derived from e
    int64_t                     rows; // of the head's tensor; -1: no such tensor
    const char                 *list; // the key of the list of layers
    int shift, first; // numbering of the file's list, as pl_export_row.shift; the first layer that the engine captures
    pl_look_list        have, want; // tensors of the file, and those that the engine reads
    const pl_hf_config *target;     // e.target_config, or NULL: not given
    char                why[PL_CHECK_WHY];
    pl_json             j;     // config.json, or the keys of the engine's own file
    const cJSON        *layer; // the object with the layers' sizes: the root, or the engine's inner one
    pl_st              *st;    // tensors of a folder
    void               *own;   // state of the engine's own file
} pl_look;

// Drafters to which a rule applies: EAGLE-3 and P-EAGLE, blocks, files of another kind. WARNS: an export that breaks
// the rule is written, with a warning.
enum {
    PL_CHECK_STEP = 1,
    PL_CHECK_BLOCK = 2,
    PL_CHECK_FOLDER = PL_CHECK_STEP | PL_CHECK_BLOCK,
    PL_CHECK_FILE = 4,
    PL_CHECK_ALL = PL_CHECK_FOLDER | PL_CHECK_FILE,
    PL_CHECK_WARNS = 8
};

typedef struct pl_check_rule {
    const char *name, *help;
    pl_check_verdict (*holds)(pl_look *k);
    unsigned of;
} pl_check_rule;

// Writes why and returns v.
pl_check_verdict pl_check_say(char why[PL_CHECK_WHY], pl_check_verdict v, const char *fmt, ...) PL_PRINTF(3, 4);
#define pl_broken(k, ...) pl_check_say((k)->why, PL_CHECK_BROKEN, __VA_ARGS__)
#define pl_unseen(k, ...) pl_check_say((k)->why, PL_CHECK_UNSEEN, __VA_ARGS__)

// Calls fn for each rule of the engine.
typedef void (*pl_check_fn)(void *arg, const pl_check_rule *rule, pl_check_verdict v, const char *why);
pl_status pl_check_each(const pl_export_engine *engine, const char *dir, const char *target, pl_check_fn fn, void *arg,
                        pl_err *err);

// Fills in k->e from config.json by the engine's rows (rows.c).
void             pl_look_take_rows(pl_look *k);
// Rules that check the tables' rows.
pl_check_verdict pl_check_every_field(pl_look *k);
pl_check_verdict pl_check_no_nulls(pl_look *k);
pl_check_verdict pl_check_constants(pl_look *k); // rows whose `rule` is the current rule

extern const pl_check_rule pl_check_blocks[]; // of block drafters' folders (block.c), ended by a NULL name

// Returns true if every layer has a window.
bool pl_look_all_windows(const pl_look *k);

// Return members of o (NULL: of the whole file).
const cJSON *pl_look_member(const pl_look *k, const cJSON *o, const char *key);
int64_t      pl_look_int(const pl_look *k, const cJSON *o,
                         const char *key);                                    // below 2^31: products fit; -1: none
double       pl_look_num(const pl_look *k, const cJSON *o, const char *key);  // NAN: none
const char  *pl_look_text(const pl_look *k, const cJSON *o, const char *key); // "": none
int          pl_look_flag(const pl_look *k, const cJSON *o, const char *key); // 1, 0, or -1 if it is not a boolean

const pl_look_tensor *pl_look_find(const pl_look_list *l, const char *name); // NULL: none
// Appends a zeroed tensor; returns NULL if out of memory, which pl_check_each reports.
pl_look_tensor       *pl_look_add(pl_look_list *l);

// Writes the engine's name of one of this program's tensors; returns false if it has none. layers: of the drafter.
bool pl_export_name(const pl_export_engine *engine, bool block, int64_t layers, const char *ours, char *out,
                    size_t size);

// Returns the first of these norms of EAGLE-3.1 that the engine does not compute, NULL if it computes all.
const char *pl_export_lost_norm(const pl_export_engine *engine, pl_export_sort sort, unsigned norms);

#endif
