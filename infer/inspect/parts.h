// One function for each kind of path; it writes members of an open object, "kind" first.
#ifndef PL_INSPECT_PARTS_H
#define PL_INSPECT_PARTS_H

#include "data/chat/prompts.h"
#include "infer/cli/env.h"
#include "infer/decode/runner.h"

typedef struct pl_inspect_options {
    bool        full_hash, tensors;
    const char *pre; // data/tokenizer/tokenizer.h; NULL
} pl_inspect_options;

// path: a folder with config.json, or a config.json.
pl_status pl_inspect_is_drafter(const char *path, bool *drafter, pl_err *err);
bool      pl_inspect_is_llama2c(const char *path); // true if the file opens as one

pl_status pl_inspect_model(pl_json_out *o, const char *path, pl_inspect_options opt, pl_err *err);
pl_status pl_inspect_drafter(pl_json_out *o, const char *path, pl_inspect_options opt, pl_err *err);
pl_status pl_inspect_llama2c(pl_json_out *o, const char *path, pl_inspect_options opt, pl_err *err);
pl_status pl_inspect_safetensors(pl_json_out *o, const char *path, pl_inspect_options opt, pl_err *err);
pl_status pl_inspect_dataset(pl_json_out *o, const char *path, pl_inspect_options opt, pl_err *err);
pl_status pl_inspect_tokens(pl_json_out *o, const char *path, pl_err *err);
pl_status pl_inspect_tokenizer(pl_json_out *o, const char *path, pl_inspect_options opt, pl_err *err);
pl_status pl_inspect_recipe(pl_json_out *o, const pl_env *env, const char *path, pl_err *err);
pl_status pl_inspect_state(pl_json_out *o, const char *path, pl_err *err);
pl_status pl_inspect_run(pl_json_out *o, const char *path, pl_err *err);
pl_status pl_inspect_results(pl_json_out *o, const char *path, pl_err *err);
pl_status pl_inspect_prompts(pl_json_out *o, const char *path, pl_err *err);

typedef struct pl_inspect_mask_options {
    const char *tokenizer, *pre;
    int64_t     document, count; // the first document, the number of documents
} pl_inspect_mask_options;
// Prints the documents of the dataset `path` as text, the supervised parts in colour, or in brackets if the output has
// no colour; with --json writes them as members of the open object.
pl_status pl_inspect_mask(const pl_env *env, const char *path, const pl_inspect_mask_options *opt, pl_err *err);

typedef struct pl_inspect_acceptance_options {
    const char *drafter, *prompts; // prompts NULL: the target's own text
    const char *pre;               // data/tokenizer/tokenizer.h; NULL
    int         children;          // 1..PL_ACCEPTANCE_CHILDREN
    int64_t     positions;
    double      temperature; // above 0
    pl_dtype    kv;          // pl_layer_shape
} pl_inspect_acceptance_options;
// Writes, for the target `path`, the expected acceptance of one node's children by each verifier, averaged over
// positions of decoded text, and the transport bound (infer/inspect/acceptance.h).
pl_status pl_inspect_acceptance(pl_json_out *o, const pl_env *env, const char *path,
                                const pl_inspect_acceptance_options *opt, pl_err *err);

typedef struct pl_inspect_ceilings_options {
    const char       *drafter, *prompts; // prompts NULL: the target's own text
    const pl_prompts *texts;             // the prompts of `prompts` if they are already read; NULL
    uint64_t          seed;              // base of the seeds of drawn answers
    int64_t           positions;         // number of drafts to score
    int               depth;             // tokens drafted at a time, 1..PL_CEILINGS_DEPTH
    int               n_best;
    double            temperature; // of both distributions; 0: all mass on the best token
    bool              sampled;     // draws answers at that temperature, which is above 0; else greedy
} pl_inspect_ceilings_options;
// Writes infer/inspect/ceilings.h by depth, over chains of the drafter's best tokens along the answers of the target,
// whose file is `path`; the drafter's weights have the target's type. A row counts at depth d if the d tokens drafted
// before it equal the answer's.
pl_status pl_inspect_ceilings(pl_json_out *o, const pl_env *env, const pl_target *target, const char *path,
                              const pl_inspect_ceilings_options *opt, pl_err *err);

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
