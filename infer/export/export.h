// A trained EAGLE-3, P-EAGLE, DFlash or DSpark drafter as a serving engine reads it.
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
// Block drafters (block.c) have z-lab's names everywhere: engines differ in where config.json says what, in how layers
// are counted, and in whether copies of the target's embeddings and head are wanted.
// Exports with a plain config (vllm, sglang, trtllm, eagle) open here as any drafter does, with the same numbers
// (low-rank heads: but for the rounding of the product).
#ifndef PL_EXPORT_H
#define PL_EXPORT_H

#include "checkpoints/hf.h"
#include "checkpoints/weights.h"
#include "infer/cli/env.h"
#include "infer/export/check.h"
#include "kernels/base/json.h"

// Which embeddings of a drafter's own an engine reads: of a drafter as wide as its target, and of another.
#define PL_EXPORT_OWN_SAME 1U
#define PL_EXPORT_OWN_WIDTH 2U

#define PL_EXPORT_TOKENS 3 // drafted at a time, in the command that serves an export

typedef struct pl_export {
    const char       *checkpoint, *target; // folders as they were named; target NULL: not given
    pl_hf_config      config, target_config;
    pl_weight_source *src, *target_src;
    int               n_taps, tap[PL_HF_TAPS]; // layer inputs
    int64_t           rows;                    // of the head
    bool              whole;                   // they are the target's tokens in order
    char             *served;                  // the target as a shell reads it; owned
    bool              f32;                     // matrices are to be written in fp32
    bool              targets_head;            // the head is the target's, whatever stands beside it
    bool              own_embed;               // the checkpoint has embeddings of its own
} pl_export;

// How an engine reads block drafters.
typedef struct pl_export_blocks {
    bool copies;   // the file holds the target's embeddings, and its head where the drafter has none of its own
    bool own_head; // a head of its own may stand there
    bool plain;    // it has neither DFlash 2's convolutions nor its selector
    bool vanilla;  // of Markov heads it computes that form alone
    bool markov;   // it serves no blocks that draft from their anchor without one
    // Refused with one line. NULL: nothing.
    pl_status (*check)(const pl_export *e, pl_err *err);
    void (*config)(pl_json_out *o, const pl_export *e); // members of an open object
    char *(*serve)(const pl_export *e, const char *dir);
} pl_export_blocks;

// One engine: a file of this folder and a line in engines.def.
typedef struct pl_export_engine {
    const char *name, *help;
    const char *layer;          // what stands before the one layer's names; several are called "layers.N."
    int         layers;         // of the drafter, at most; 0: one
    const char *later_norm;     // what norms the input of layers behind the first; NULL: input_layernorm
    unsigned    norms;          // EAGLE-3.1's that it computes (checkpoints/hf.h)
    unsigned    parallel_norms; // those of them that P-EAGLE loses on its way to it
    bool        parallel;       // it serves P-EAGLE
    unsigned    own;            // PL_EXPORT_OWN_*
    bool        embeddings;     // the file holds a copy of the target's
    bool        map32;          // d2t as int32, and no t2d
    bool        nested;         // the layer's sizes stand in an object of their own
    bool        strict;         // what is missing in config.json is taken from defaults that are no trainer's
    const char *list;           // the member that holds the target's layers
    bool        outputs;        // it counts them there by their outputs
    bool        skips_fc;       // features as wide as the drafter go in without fc
    int         fc_layers;      // it has an fc for so many layers at least
    bool        last;           // it captures what leaves the last layer too, before the final norm
    bool        rising;         // it captures a set of them: features come in rising order whatever the list says
    // What this engine cannot serve, refused with one line; what its user should know, by pl_log_warn. NULL: nothing.
    pl_status (*check)(const pl_export *e, pl_err *err);
    // config.json: members of an open object. NULL where it has a `write`.
    void (*config)(pl_json_out *o, const pl_export *e);
    const pl_export_blocks *blocks; // NULL: it is not known to read any
    // Instead of config.json and model.safetensors, from the tensors that would stand there. Its target is no Hugging
    // Face folder: checked by `check` alone.
    pl_status (*write)(const pl_export *e, const pl_st_source *t, int n, const char *dir, pl_err *err);
    // Where it has a `write`: the rules for what that makes.
    pl_status (*rules)(const char *path, const char *target, pl_check_tell tell, void *arg, pl_check_count *count,
                       pl_err *err);
    // A file more, and its text: the caller's, NULL where memory ran out. Both NULL: none.
    const char *more;
    char *(*more_text)(const pl_export *e, const char *dir);
    // The command that serves the export in `dir`, which is quoted already: the caller's, NULL where memory ran out.
    char *(*serve)(const pl_export *e, const char *dir);
} pl_export_engine;

const pl_export_engine *pl_export_engine_at(int i); // NULL past the last
// PL_E_USAGE for an unknown name.
const pl_export_engine *pl_export_engine_find(const char *name, pl_err *err);

// Reads checkpoint and target (which may be NULL, but for engines that want its embeddings), writes dir as a whole:
// config.json, model.safetensors, for a low-rank head factors/model.safetensors, the engine's own file, and serve.sh,
// whose command is *serve (the caller's, pl_free). Refused with one line: drafters of other kinds, heads that are not
// one matrix (DSpark's may be), a target that does not fit.
// f32: matrices in fp32, for engines that write another file; else as they are stored.
pl_status pl_export_write(const pl_export_engine *engine, const char *checkpoint, const char *target, const char *dir,
                          bool f32, const pl_env *env, char **serve, pl_err *err);

// ---- for the engines ----

// The engine takes features of so many layers, each of `wide` numbers, into a drafter of `width` without its fc.
bool pl_export_skips_fc(const pl_export_engine *engine, int layers, int64_t wide, int64_t width);

#define PL_EXPORT_LIST "eagle_config.eagle_aux_hidden_state_layer_ids"

// Both spellings of the type that the weights are stored in.
void pl_export_put_dtype(pl_json_out *o, const pl_export *e);
// Members that all of them read: sizes, norms, both spellings of RoPE, the type.
void pl_export_put_layer(pl_json_out *o, const pl_export *e);
// config.json of SGLang's and TensorRT-LLM's kind: the architecture LlamaForCausalLMEagle3, the layer, eagle_config;
// the target's width beside it is the engine's to write.
void pl_export_put_plain(pl_json_out *o, const pl_export *e, int shift);
// A list of layers by number: shift 0 counts inputs, -1 outputs.
void pl_export_put_taps(pl_json_out *o, const char *key, const pl_export *e, int shift);
// EAGLE-3.1's switches.
void pl_export_put_norms(pl_json_out *o, const pl_export *e);
// "eagle_config" with the layers in that numbering, those switches, "paceline" with the numbering.
void pl_export_put_eagle3(pl_json_out *o, const pl_export *e, int shift);
void pl_export_put_width(pl_json_out *o, const pl_export *e); // "target_hidden_size"

bool      pl_export_is_parallel(const pl_export *e); // P-EAGLE
int       pl_export_tokens(const pl_export *e);      // drafted at a time, of EAGLE-3 and P-EAGLE
bool      pl_export_is_block(const pl_export *e);
bool      pl_export_is_dspark(const pl_export *e);    // anchor first, or by a Markov head
bool      pl_export_is_second(const pl_export *e);    // DFlash 2: convolutions, a selector
int       pl_export_block_tokens(const pl_export *e); // drafted from a block
// The members of DSpark's heads.
void      pl_export_put_markov(pl_json_out *o, const pl_export *e);
// config.json as z-lab publishes DFlash and DeepSpec DSpark, and what these forms cannot say.
void      pl_export_put_block(pl_json_out *o, const pl_export *e);
pl_status pl_export_check_block(const pl_export *e, pl_err *err);
pl_status pl_export_check_second(const pl_export *e, pl_err *err); // for every engine

// The command by which vLLM serves drafters of any kind, in its own form and speculators': an engine's `serve`.
char *pl_export_serve_vllm(const pl_export *e, const char *dir);

// A word as a POSIX shell reads it back: as it is where it may be, else in quotes. The caller's; NULL for word NULL and
// where memory ran out.
char *pl_export_quote(const char *word);

#endif
