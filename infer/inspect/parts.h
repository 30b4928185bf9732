// Functions of `inspect` that show a path, one for each kind, and those of its modes.
#ifndef PL_INSPECT_PARTS_H
#define PL_INSPECT_PARTS_H

#include "checkpoints/weights.h"
#include "data/chat/prompts.h"
#include "infer/cli/cli.h"
#include "infer/decode/runner.h"

typedef struct pl_inspect_options {
    const pl_env *env;
    bool          full_hash, tensors;
    const char   *pre; // data/tokenizer/tokenizer.h; NULL
} pl_inspect_options;

// Writes the members of an open object that describe `path`, "kind" first.
typedef pl_status pl_inspect_fn(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err);
pl_inspect_fn     pl_inspect_model; // a target or a drafter: a folder with config.json, or a config.json
pl_inspect_fn     pl_inspect_bin;   // a llama2.c model, else its tokenizer
pl_inspect_fn     pl_inspect_gguf;  // a model in a GGUF file or a folder of one, else its vocabulary
pl_inspect_fn pl_inspect_safetensors, pl_inspect_dataset, pl_inspect_tokens, pl_inspect_tokenizer, pl_inspect_recipe;
pl_inspect_fn pl_inspect_state, pl_inspect_run, pl_inspect_results, pl_inspect_prompts;

// Writes an object `quantised` for a target's folder that is: its format; bits and group of its matrices by encoding;
// how many are plain; the root mean square of what rounding to bf16 changes, over that of the weights, from 16 rows of
// each matrix (all: from all); what engines quantise beside weights.
pl_status pl_inspect_quantised(pl_json_out *o, const char *path, const pl_weight_source *src, bool all, pl_err *err);

// path: a folder with config.json, or a config.json.
pl_status pl_inspect_is_drafter(const char *path, bool *drafter, pl_err *err);

// Prints the documents of the dataset that the arguments name as text, the supervised parts in colour, or in brackets
// if the output has no colour; with --json writes them as members of the open object.
pl_status pl_inspect_mask(const pl_env *env, const pl_cli_args *a, pl_err *err);

// Writes, for the target that the arguments name, the expected acceptance of one node's children by each verifier,
// averaged over positions of decoded text, and the transport bound (infer/inspect/acceptance.h).
pl_status pl_inspect_acceptance(pl_json_out *o, const pl_env *env, const pl_cli_args *a, pl_err *err);

// Texts that a runner decodes under observation, until `*positions`, which the observer counts, reaches `most`.
typedef struct pl_inspect_texts {
    const char       *target, *prompts; // folder of the target; prompts NULL: its own text from the first token on
    const pl_prompts *texts;            // the prompts of `prompts` if they are already read; NULL
    int64_t           most;
    int               tokens; // the most tokens to decode for each position
    const int64_t    *positions;
} pl_inspect_texts;
// Decodes the texts; increments sampling->seed before each. PL_E_INPUT if no position was observed.
pl_status pl_inspect_decode(const pl_inspect_texts *t, pl_runner *runner, pl_sampling *sampling, pl_err *err);

#endif
