// A trained EAGLE-3, P-EAGLE, DFlash or DSpark drafter as a serving engine reads it, and rules by which such a folder
// would be served as it was trained.
//
// Engines agree on the mathematics and on most names; where they differ a head loads and then drafts badly, so each
// difference is written down by engine (the files of this folder) and nothing is left to a default:
//   layers   which target layers feed fc. This program counts a layer's input (0-based; L: the last layer's output), as
//            vLLM and speculators do; others count its output, one less. config.json of an export holds the list as the
//            engine counts, and "paceline.tap_numbering" says which that is
//   names    the layer's tensors are "midlayer.*" or "layers.0.*"
//   head     one dense matrix [Vd, d]: a low-rank head is multiplied out (its factors go to the folder "factors", since
//            engines refuse or skip names that they do not know)
//   d2t      int64 offsets, with t2d (trtllm: int32 offsets alone); left out where draft id = target id
//   embeddings  a drafter's own stand in the file, for engines that read them: some take the target's all the same
//            where they are as wide
// One table of rows for each engine writes config.json (or the keys of a GGUF file) and checks it. An export keeps all
// rules of `check`: one that would break them is not written.
#ifndef PL_EXPORT_H
#define PL_EXPORT_H

#include "checkpoints/hf.h"
#include "checkpoints/weights.h"
#include "infer/cli/env.h"
#include "kernels/base/json.h"

#include <stddef.h>

#define PL_EXPORT_TOKENS 3 // drafted at a time, in the command that serves an export of EAGLE-3

// Drafters for which engines have classes of their own.
typedef enum pl_export_sort {
    PL_EXPORT_EAGLE3,
    PL_EXPORT_PEAGLE,
    PL_EXPORT_DFLASH, // from here on block drafters
    PL_EXPORT_DFLASH2,
    PL_EXPORT_DSPARK, // blocks that draft from their anchor, or by a Markov head
    PL_EXPORT_SORTS
} pl_export_sort;

struct pl_export_engine;

typedef struct pl_export {
    const struct pl_export_engine *engine;
    const char                    *checkpoint, *target; // folders as they were named; target NULL: not given
    pl_hf_config                   config, target_config;
    pl_weight_source              *src, *target_src;
    pl_export_sort                 sort;
    int                            n_taps, tap[PL_HF_TAPS]; // layer inputs
    int                            rows;                    // of the head
    int                            positions;               // the drafter's or, where they are more, its target's
    int                            target_layers;           // as the checkpoint or the target has them; 0: not known
    int                            tokens;                  // drafted at a time
    int                            markov_rank;             // 0: no Markov head
    const char                    *markov_form, *dtype;     // as config.json spells them
    bool                           confidence;              // it has a confidence head
    bool                           whole;                   // the head's rows are the target's tokens in order
    char                          *served;                  // the target as a shell reads it; owned
    bool                           f32;                     // matrices are to be written in fp32
    bool                           targets_head;            // the head is the target's, whatever stands beside it
    bool                           own_embed;               // the checkpoint has embeddings of its own
} pl_export;

// ---- tables ----

typedef enum pl_export_type {
    PL_ROW_INT,
    PL_ROW_NUM,
    PL_ROW_BOOL,
    PL_ROW_TEXT,
    PL_ROW_TAPS, // the target's layers
    PL_ROW_ROWS, // an object with rows of its own; key NULL: its rows stand in the row's place
    PL_ROW_PUT   // written by `put`
} pl_export_type;

typedef enum pl_export_need {
    PL_ROW_FREE,    // readers do without it
    PL_ROW_DEFAULT, // readers have a default, which need not be what was trained
    PL_ROW_NEEDED,
    PL_ROW_FOREIGN // other trainers write it, exports do not
} pl_export_need;

// A member of config.json, or a key of a GGUF file.
typedef struct pl_export_row {
    const char    *key;
    pl_export_type type;
    pl_export_need need;
    size_t         at; // of the value in pl_export; 0: it is `text` or false, and another value breaks `rule`
    const char    *text, *rule;
    int            shift; // of PL_ROW_TAPS: 0 counts layers by their inputs, -1 by their outputs
    const struct pl_export_row *rows;
    void (*put)(pl_json_out *o, const pl_export *e);
    bool (*when)(const pl_export *e); // written where it returns true; NULL: always
} pl_export_row;

// Initialisers: of a row with rows of its own, and of rows whose value is a field of pl_export.
#define PL_ROWS(list) .type = PL_ROW_ROWS, .rows = list
#define PL_INT(name, field) .key = name, .type = PL_ROW_INT, .at = offsetof(pl_export, field)
#define PL_NUM(name, field) .key = name, .type = PL_ROW_NUM, .at = offsetof(pl_export, field)
#define PL_BOOL(name, field) .key = name, .type = PL_ROW_BOOL, .at = offsetof(pl_export, field)
#define PL_TEXT(name, field) .key = name, .type = PL_ROW_TEXT, .at = offsetof(pl_export, field)

// Rows that several engines have (rows.c).
extern const pl_export_row pl_rows_class[]; // architectures
extern const pl_export_row pl_rows_layer[]; // sizes, norms, both spellings of RoPE, the type
extern const pl_export_row pl_rows_dtype[]; // both spellings of the type
extern const pl_export_row pl_rows_norms[]; // EAGLE-3.1's switches
// EAGLE-3's and P-EAGLE's own members, with the target's layers counted by inputs and by outputs.
extern const pl_export_row pl_rows_inputs[], pl_rows_outputs[];
extern const pl_export_row pl_rows_plain[];                    // config.json of SGLang's and TensorRT-LLM's kind
extern const pl_export_row pl_rows_block[];                    // block drafters as z-lab and DeepSpec publish them
extern const pl_export_row pl_rows_markov[], pl_rows_second[]; // of DSpark's heads, of DFlash 2

// For rows' `when`.
bool pl_export_is_block(const pl_export *e);
bool pl_export_is_parallel(const pl_export *e); // P-EAGLE
bool pl_export_is_dspark(const pl_export *e);
bool pl_export_is_second(const pl_export *e); // DFlash 2

void pl_export_put_rows(pl_json_out *o, const pl_export *e, const pl_export_row *rows);

// ---- engines ----

// Drafters whose own embeddings an engine reads: those as wide as their target, and others.
#define PL_EXPORT_OWN_SAME 1U
#define PL_EXPORT_OWN_WIDTH 2U

#define PL_EXPORT_NO_MARKOV 8U // beside 1 << pl_hf_markov: DSpark blocks without a Markov head

struct pl_check_rule;

typedef enum pl_check_verdict { PL_CHECK_HOLDS, PL_CHECK_BROKEN, PL_CHECK_UNSEEN } pl_check_verdict;

// Called for each rule that the engine has, in the table's order. why: the fault, or why there is no verdict
// (UNSEEN): no target was given, or the folder leaves something to a default that may be right.
typedef void (*pl_check_tell)(void *arg, const char *rule, const char *help, pl_check_verdict v, const char *why);

typedef struct pl_check_count {
    int rules, broken, unseen;
} pl_check_count;

struct pl_look;

// A file of another kind than config.json and model.safetensors.
typedef struct pl_export_file {
    // t: the tensors of model.safetensors, under the names of `name`.
    pl_status (*write)(const pl_export *e, const pl_st_source *t, int n, const char *dir, pl_err *err);
    // Writes its name of a tensor of ours; returns false if it has none.
    bool (*name)(bool block, const char *ours, char *theirs, size_t size);
    // Fills in k (infer/export/rules.h); `close` frees k->own.
    pl_status (*look)(struct pl_look *k, const char *path, const char *target, pl_err *err);
    void (*close)(struct pl_look *k);
} pl_export_file;

// The map of a trimmed vocabulary.
typedef struct pl_export_map {
    pl_dtype type;
    bool     ids;   // it holds the target's ids; else offsets
    bool     marks; // t2d stands beside d2t
} pl_export_map;

// One engine: a file of this folder and a line in engines.def.
typedef struct pl_export_engine {
    const char          *name, *help;
    const char          *classes[PL_EXPORT_SORTS]; // by which it finds its code, in `architectures`; NULL: not served
    const char *const   *synonyms;                 // of classes that others write, NULL behind them; NULL: none
    const pl_export_row *rows, *blocks;            // config.json; of block drafters
    const char          *inner;                    // the member with the layers' sizes; NULL: they stand at the top
    const char          *layer;                    // prefix of the only layer's tensors; several have "layers.N."
    int                  layers;                   // of the drafter, at most; 0: one
    const char          *later_norm;               // input norm of layers behind the first; NULL: input_layernorm
    unsigned             norms, parallel_norms;    // EAGLE-3.1's that it computes, for EAGLE-3 and for P-EAGLE
    unsigned             own;                      // PL_EXPORT_OWN_*
    unsigned             markov;                   // 1 << pl_hf_markov, and PL_EXPORT_NO_MARKOV
    bool                 block_heads;              // a block drafter may have a head of its own
    bool copies; // the file holds the target's embeddings, and a block drafter's head if it is the target's
    bool strict; // its defaults for missing members are no trainer's
    bool rising; // features come in rising order whatever the list of layers says
    bool last;   // it captures the last layer's output too, before the final norm
    int  taps;   // layers that an EAGLE-3 drafter reads, exactly; 0: any number
    // Returns true if features of so many layers of width `wide` enter a drafter of that width without its fc. NULL:
    // they never do.
    bool (*skips_fc)(int64_t layers, int64_t wide, int64_t width);
    const char                 *wants_target; // why an export needs --target; NULL: it does not
    const pl_export_map        *map;
    const pl_export_file       *file;  // NULL: config.json and model.safetensors
    const struct pl_check_rule *rules; // of this engine alone, ended by a name NULL; NULL: none
    const char                 *more;  // a file more, and its text: the caller's, NULL if out of memory. NULL: none
    char *(*more_text)(const pl_export *e, const char *dir);
    // The command that serves the export in `dir`, which is quoted already: the caller's, NULL if out of memory.
    char *(*serve)(const pl_export *e, const char *dir);
} pl_export_engine;

const pl_export_engine *pl_export_engine_at(int i); // NULL past the last
// PL_E_USAGE for an unknown name.
const pl_export_engine *pl_export_engine_find(const char *name, pl_err *err);

// Reads checkpoint and target (which may be NULL, but for engines that want it), writes dir as a whole: config.json,
// model.safetensors, for a low-rank head factors/model.safetensors, the engine's own file, and serve.sh, whose command
// is *serve (the caller's, pl_free). Refused with one line: drafters of other kinds, heads that are not one matrix
// (DSpark's may be), and what breaks a rule of pl_check_folder.
// f32: matrices in fp32, for engines that write another file; else as they are stored.
pl_status pl_export_write(const pl_export_engine *engine, const char *checkpoint, const char *target, const char *dir,
                          bool f32, const pl_env *env, char **serve, pl_err *err);

// Follows the engine's rules, which come from its loaders and converters: a folder that breaks one either fails to load
// or, worse, loads and drafts badly. No engine is run, so a folder that keeps all rules can still fail.
// dir: a folder with config.json and safetensors, or the engine's own file. target: NULL, or the one that is
// served. PL_E_INPUT for a folder without a drafter.
pl_status pl_check_folder(const pl_export_engine *engine, const char *dir, const char *target, pl_check_tell tell,
                          void *arg, pl_check_count *count, pl_err *err);

// ---- for the engines ----

extern const pl_export_map pl_export_offsets;                             // of int64, with t2d
bool  pl_export_skips_equal(int64_t layers, int64_t wide, int64_t width); // skips_fc by the width alone
char *pl_export_serve_vllm(const pl_export *e, const char *dir);          // in its own form and speculators'

// A word as a POSIX shell reads it back: as it is where it may be, else in quotes. The caller's; NULL for word NULL and
// where memory ran out.
char *pl_export_quote(const char *word);

#endif
