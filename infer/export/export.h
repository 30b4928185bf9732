// Exports a trained EAGLE-3, P-EAGLE or block drafter in a serving engine's format, and checks rules by which
// an engine serves such a folder as it was trained.
//
// Engines agree on the mathematics and on most names. A head that ignores their differences loads and then drafts
// badly, so each engine has a file in this folder with its differences, and exports rely on no default:
//   layers   the target layers that feed fc. This program numbers their inputs (0-based; L: the last layer's output),
//            as vLLM and speculators do; others number outputs, one less. config.json of an export has the list in
//            the engine's numbering, and states it in "paceline.tap_numbering"
//   names    the layer's tensors are "midlayer.*" or "layers.0.*"
//   head     one dense matrix [Vd, d]: a low-rank head is multiplied out (its factors go to the folder "factors", since
//            engines refuse or skip unknown names)
//   d2t      int64 offsets, with t2d (trtllm: int32 offsets alone); omitted if draft ids equal target ids
//   embeddings  a drafter's own are in the file, for engines that read them; some engines use the target's even so, if
//            the widths are equal
// One table of rows for each engine writes config.json (or the keys of a GGUF file) and checks it. An export that
// breaks a rule of `check` is not written; some rules only warn.
#ifndef PL_EXPORT_H
#define PL_EXPORT_H

#include "checkpoints/hf.h"
#include "checkpoints/weights.h"
#include "infer/cli/env.h"
#include "kernels/base/json.h"

#include <stddef.h>

#define PL_EXPORT_TOKENS 3 // drafted at a time, in the command that serves an export of EAGLE-3

// Sorts of drafters for which engines have separate classes.
typedef enum pl_export_sort {
    PL_EXPORT_EAGLE3,
    PL_EXPORT_PEAGLE,
    PL_EXPORT_DFLASH, // block drafters from here on
    PL_EXPORT_DFLASH2,
    PL_EXPORT_DSPARK,   // blocks that draft from their anchor, or with a Markov head
    PL_EXPORT_XPRESS,   // blocks with xPress's refiner
    PL_EXPORT_LILICORR, // blocks with LiLiCorr's lattice
    PL_EXPORT_SORTS
} pl_export_sort;

struct pl_export_engine;

typedef struct pl_export {
    const struct pl_export_engine *engine;
    const char                    *checkpoint, *target; // folders as given; target NULL: not given
    pl_hf_config                   config, target_config;
    pl_weight_source              *src, *target_src;
    pl_export_sort                 sort;
    int                            n_taps, tap[PL_HF_TAPS]; // layer inputs
    int                            rows;                    // of the head
    int                            positions;               // the larger of the drafter's and its target's
    int                            target_layers;           // from the checkpoint or the target; 0: not known
    int                            tokens;                  // drafted at a time
    int                            markov_rank;             // 0: no Markov head
    const char                    *markov_form, *dtype;     // as config.json spells them
    bool                           confidence;              // the drafter has a confidence head
    int                            refiner_rank, refiner_ratio, passes; // xPress's; rank 0: no refiner
    bool                           whole;        // the head's rows are the target's tokens in order
    char                          *served;       // the target, quoted for a shell; owned
    bool                           f32;          // writes matrices in fp32
    bool                           targets_head; // the head is the target's, even if the checkpoint has another matrix
    bool                           own_embed;    // the checkpoint has its own embeddings
} pl_export;

// ---- tables ----

typedef enum pl_export_type {
    PL_ROW_INT,
    PL_ROW_NUM,
    PL_ROW_BOOL,
    PL_ROW_TEXT,
    PL_ROW_TAPS, // the target's layers
    PL_ROW_ROWS, // an object with nested rows; key NULL: the rows replace this row
    PL_ROW_PUT   // written by `put`
} pl_export_type;

typedef enum pl_export_need {
    PL_ROW_FREE,    // readers do not need it
    PL_ROW_DEFAULT, // readers have a default, which may differ from training
    PL_ROW_NEEDED,
    PL_ROW_FOREIGN // written by other trainers, not by exports
} pl_export_need;

// A member of config.json, or a key of a GGUF file.
typedef struct pl_export_row {
    const char    *key;
    pl_export_type type;
    pl_export_need need;
    size_t         at; // offset of the value in pl_export; 0: the value is `text` or false, any other breaks `rule`
    const char    *text, *rule;
    int            shift; // of PL_ROW_TAPS: 0 numbers layers by inputs, -1 by outputs
    const struct pl_export_row *rows;
    void (*put)(pl_json_out *o, const pl_export *e);
    bool (*when)(const pl_export *e); // written if it returns true; NULL: always
} pl_export_row;

// Initialisers of a row with nested rows, and of rows whose value is a field of pl_export.
#define PL_ROWS(list) .type = PL_ROW_ROWS, .rows = list
#define PL_INT(name, field) .key = name, .type = PL_ROW_INT, .at = offsetof(pl_export, field)
#define PL_NUM(name, field) .key = name, .type = PL_ROW_NUM, .at = offsetof(pl_export, field)
#define PL_BOOL(name, field) .key = name, .type = PL_ROW_BOOL, .at = offsetof(pl_export, field)
#define PL_TEXT(name, field) .key = name, .type = PL_ROW_TEXT, .at = offsetof(pl_export, field)

// Rows shared by several engines (rows.c).
extern const pl_export_row pl_rows_class[]; // architectures
extern const pl_export_row pl_rows_layer[]; // sizes, norms, both spellings of RoPE, the type
extern const pl_export_row pl_rows_dtype[]; // both spellings of the type
extern const pl_export_row pl_rows_norms[]; // EAGLE-3.1's switches
// Members specific to EAGLE-3 and P-EAGLE, with the target's layers numbered by inputs, and by outputs.
extern const pl_export_row pl_rows_inputs[], pl_rows_outputs[];
extern const pl_export_row pl_rows_plain[];                    // config.json of SGLang and TensorRT-LLM
extern const pl_export_row pl_rows_block[];                    // block drafters as z-lab and DeepSpec publish them
extern const pl_export_row pl_rows_markov[], pl_rows_second[]; // of DSpark's heads, of DFlash 2

// For rows' `when`.
bool pl_export_is_block(const pl_export *e);
bool pl_export_is_parallel(const pl_export *e); // P-EAGLE
bool pl_export_is_dspark(const pl_export *e);
bool pl_export_is_second(const pl_export *e); // DFlash 2
bool pl_export_is_xpress(const pl_export *e);
bool pl_export_is_lilicorr(const pl_export *e);
bool pl_export_has_window(const pl_export *e);
bool pl_export_is_causal(const pl_export *e); // a block's slots see those before them alone, in every layer

void pl_export_put_layer_types(pl_json_out *o, const pl_export *e);

void pl_export_put_rows(pl_json_out *o, const pl_export *e, const pl_export_row *rows);

// ---- engines ----

// Drafters whose own embeddings an engine reads: of the target's width, of other widths.
#define PL_EXPORT_OWN_SAME 1U
#define PL_EXPORT_OWN_WIDTH 2U

#define PL_EXPORT_NO_MARKOV 8U // in the same mask as 1 << pl_hf_markov: DSpark blocks without a Markov head

struct pl_check_rule;

typedef enum pl_check_verdict { PL_CHECK_HOLDS, PL_CHECK_BROKEN, PL_CHECK_UNSEEN } pl_check_verdict;

// Called for each rule of the engine, in the table's order. why: the fault, or the reason for no verdict (UNSEEN): no
// target was given, or the folder relies on a default that may be right.
typedef void (*pl_check_tell)(void *arg, const char *rule, const char *help, pl_check_verdict v, const char *why);

typedef struct pl_check_count {
    int rules, broken, unseen;
} pl_check_count;

struct pl_look;

// A file of another kind than config.json and model.safetensors.
typedef struct pl_export_file {
    // t: the tensors of model.safetensors, under the names of `name`.
    pl_status (*write)(const pl_export *e, const pl_st_source *t, int n, const char *dir, pl_err *err);
    // Writes the file's name of one of this program's tensors; returns false if it has none.
    bool (*name)(bool block, const char *ours, char *theirs, size_t size);
    // Fills in vocabulary, width, layers, positions and RoPE's base of the served target.
    pl_status (*read_target)(pl_hf_config *target, const char *path, pl_err *err);
    // Fills in k (infer/export/rules.h), k->e.target_config included; `close` frees k->own.
    pl_status (*look)(struct pl_look *k, const char *path, const char *target, pl_err *err);
    void (*close)(struct pl_look *k);
} pl_export_file;

// The map of a trimmed vocabulary.
typedef struct pl_export_map {
    pl_dtype type;
    bool     ids;   // holds target ids; else offsets
    bool     marks; // has t2d as well as d2t
} pl_export_map;

// One engine: a file of this folder and a line in engines.def.
typedef struct pl_export_engine {
    const char          *name, *help;
    const char          *classes[PL_EXPORT_SORTS];  // class names in `architectures`; NULL: not served
    const char          *synonyms[PL_EXPORT_SORTS]; // class names that other trainers write; NULL: none
    const pl_export_row *rows, *blocks;             // config.json; of block drafters
    const char          *inner;                     // the member with the layers' sizes; NULL: the top level
    const char          *layer;                 // prefix of a single layer's tensors; several layers have "layers.N."
    int                  layers;                // the most layers of a drafter; 0: one
    const char          *later_norm;            // input norm of layers after the first; NULL: input_layernorm
    unsigned             norms, parallel_norms; // norms of EAGLE-3.1 that it computes, for EAGLE-3 and for P-EAGLE
    unsigned             own;                   // PL_EXPORT_OWN_*
    unsigned             markov;                // 1 << pl_hf_markov, and PL_EXPORT_NO_MARKOV
    bool                 windows;               // a block drafter's layers may have a sliding window
    bool                 block_heads;           // a block drafter may have its own head
    bool                 copies; // the file has copies of the target's embeddings and, for block drafters, of its head
    bool                 strict; // its defaults for missing members are those of no trainer
    bool                 rising; // features are in ascending order of layers, whatever the order of the list
    bool                 last;   // it can capture the last layer's output, before the final norm
    int                  taps;   // exact number of layers that an EAGLE-3 drafter reads; 0: any
    // Returns true if features of so many layers of width `wide` enter a drafter of that width without its fc. NULL:
    // they never do.
    bool (*skips_fc)(int64_t layers, int64_t wide, int64_t width);
    const char                 *wants_target; // the reason why an export needs --target; NULL: it does not
    const pl_export_map        *map;
    const pl_export_file       *file;  // NULL: config.json and model.safetensors
    const struct pl_check_rule *rules; // rules of this engine alone, ended by a NULL name; NULL: none
    const char *more; // an additional file; more_text returns its text (caller's; NULL: out of memory). NULL: none
    char *(*more_text)(const pl_export *e, const char *dir);
    // Returns the command that serves the export in `dir`, already quoted; owned by the caller, NULL if out of memory.
    char *(*serve)(const pl_export *e, const char *dir);
} pl_export_engine;

const pl_export_engine *pl_export_engine_at(int i); // NULL past the last
// Finds an engine by name; PL_E_USAGE for an unknown one.
const pl_export_engine *pl_export_engine_find(const char *name, pl_err *err);

// Reads checkpoint and target (which may be NULL unless the engine has wants_target), writes dir atomically:
// config.json, model.safetensors, for a low-rank head factors/model.safetensors, the engine's own file, and serve.sh,
// whose command is *serve (owned by the caller, pl_free). Refuses with one line: drafters of other kinds, heads that
// are not one matrix (except DSpark's), a target that does not fit, and exports that break a rule of pl_check_folder,
// unless the rule only warns.
// f32: writes matrices in fp32, for engines with their own file; else in their stored type.
pl_status pl_export_write(const pl_export_engine *engine, const char *checkpoint, const char *target, const char *dir,
                          bool f32, const pl_env *env, char **serve, pl_err *err);

// Checks the engine's rules, which are derived from its loaders and converters: a folder that breaks one either fails
// to load or, worse, loads and drafts badly. No engine is run, so a folder that satisfies all rules can still fail.
// dir: a folder with config.json and safetensors, or the engine's own file. target: the served one, or NULL. PL_E_INPUT
// for a folder without a drafter.
pl_status pl_check_folder(const pl_export_engine *engine, const char *dir, const char *target, pl_check_tell tell,
                          void *arg, pl_check_count *count, pl_err *err);

// ---- for the engines ----

extern const pl_export_map pl_export_offsets;                             // int64 offsets, with t2d
bool  pl_export_skips_equal(int64_t layers, int64_t wide, int64_t width); // skips_fc by the width alone
char *pl_export_serve_vllm(const pl_export *e, const char *dir);          // for vLLM's own format and speculators'

// Quotes a word for a POSIX shell if it needs quotes. The caller owns the result; NULL for word NULL and if out of
// memory.
char *pl_export_quote(const char *word);

#endif
