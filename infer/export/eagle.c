// The EAGLE repository's own program (eagle/model/cnets.py): it captures the inputs of layers 2, L/2 and L-3 of its
// target and no others. It reads the target's embeddings unless config.json has a target_hidden_size, then the file's
// over them: so that member stands there only where the widths differ.
#include "infer/export/export.h"
#include "kernels/base/arena.h"

static pl_status check(const pl_export *e, pl_err *err) {
    int layers = e->target_config.num_hidden_layers;
    if (e->config.rope.scaling != PL_HF_ROPE_NONE) // EConfig wants {"type", "factor"} and nothing else
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: RoPE that is scaled, which eagle does not read", e->checkpoint);
    if (!e->target)
        return pl_fail(err, PL_E_USAGE, "--target: is missing; eagle reads the layers that follow from its depth");
    if (e->n_taps == 3 && e->tap[0] == 2 && e->tap[1] == layers / 2 && e->tap[2] == layers - 3) return PL_OK;
    return pl_fail(
        err, PL_E_UNSUPPORTED,
        "%s: eagle captures the inputs of layers 2, %d and %d and no others; train with drafter.taps of these",
        e->checkpoint, layers / 2, layers - 3);
}

static void config(pl_json_out *o, const pl_export *e) {
    if (e->config.target_hidden_size != e->config.hidden_size) pl_export_put_width(o, e);
    pl_export_put_plain(o, e, 0);
}

static char *serve(const pl_export *e, const char *dir) {
    return pl_sprintf("python -m eagle.evaluation.gen_ea_answer_llama3chat --use_eagle3 --base-model-path %s "
                      "--ea-model-path %s",
                      e->served, dir);
}

const pl_export_engine pl_export_eagle = {.name = "eagle",
                                          .help = "the EAGLE repository's own program",
                                          .layer = "midlayer.",
                                          .list = PL_EXPORT_LIST,
                                          .skips_fc = true,
                                          .own = PL_EXPORT_OWN_SAME | PL_EXPORT_OWN_WIDTH,
                                          .check = check,
                                          .config = config,
                                          .serve = serve};
