// One function per thing that `inspect` knows: members of an open object, "kind" first.
#ifndef PL_INSPECT_PARTS_H
#define PL_INSPECT_PARTS_H

#include "infer/env.h"

typedef struct pl_inspect_options {
    bool        full_hash, tensors;
    const char *pre; // data/tokenizer.h; NULL
} pl_inspect_options;

// path: a folder with config.json, or a config.json.
pl_status pl_inspect_is_drafter(const char *path, bool *drafter, pl_err *err);
bool      pl_inspect_is_llama2c(const char *path); // opens as one

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

typedef struct pl_inspect_acceptance_options {
    const char *drafter, *prompts; // prompts NULL: the target's own text
    const char *pre;               // data/tokenizer.h; NULL
    int         children;          // 1..PL_ACCEPTANCE_CHILDREN
    int64_t     positions;
    double      temperature; // above 0
} pl_inspect_acceptance_options;
// path: a target. Expected acceptance of one node's children by each verifier, averaged over positions of decoded text,
// beside the transport bound (infer/acceptance.h).
pl_status pl_inspect_acceptance(pl_json_out *o, const pl_env *env, const char *path,
                                const pl_inspect_acceptance_options *opt, pl_err *err);

#endif
