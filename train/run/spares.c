#include "train/run/spares.h"

#include "data/dataset/dataset.h"
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "recipes/folder.h"
#include "train/keys.h"
#include "train/loop/checkpoint.h"
#include "train/loop/metrics.h"
#include "train/run/pipeline.h"
#include "train/source/textdata.h"

static pl_status recipe(const char *path, pl_err *err) {
    int                  n;
    const pl_key *const *tables = pl_stage_tables(&n);
    return pl_recipe_spares(path, tables, n, err);
}

static pl_status at(const char *out_dir, const char *name, pl_status (*spares)(const char *, pl_err *), pl_err *err) {
    char     *path = pl_path_join(out_dir, name);
    pl_status st = path ? spares(path, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_free(path);
    return st;
}

// Checks that training does not replace a checkpoint that it starts from.
static pl_status check_read(const pl_recipe *r, const char *out_dir, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    char                  *path = pl_path_join(out_dir, "checkpoints");
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_status st = pl_recipe_spares_read(r, &tr->drafter.start, path, err);
    if (st == PL_OK) st = pl_recipe_spares_read(r, &tr->target.start, path, err);
    pl_free(path);
    return st;
}

pl_status pl_train_spares(const pl_recipe *r, const char *out_dir, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    bool                   target = tr->kind == PL_KIND_TARGET;
    PL_TRY(pl_checkpoints_spare(out_dir, err));
    PL_TRY(at(out_dir, PL_TRAIN_BEGUN, recipe, err));
    PL_TRY(at(out_dir, "recipe.yaml", recipe, err));
    PL_TRY(at(out_dir, "metrics.jsonl", pl_metrics_spares, err));
    PL_TRY(at(out_dir, "skipped.jsonl", pl_metrics_spares, err));
    PL_TRY(check_read(r, out_dir, err));
    if (target) return pl_textdata_spares(r, out_dir, err);
    if (pl_generate_recipe_of(r)->data.disk_budget) PL_TRY(at(out_dir, "bounded", pl_dataset_spares, err));
    if (pl_train_routed(r) && !tr->traces.path) PL_TRY(at(out_dir, "traces", pl_dataset_spares, err));
    return PL_OK;
}
