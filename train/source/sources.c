#include "train/source/sources.h"

#include "infer/model/target.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "train/keys.h"
#include "train/source/bounded.h"
#include "train/source/online.h"

#include <string.h>

// What was generated and stored: by this target and its tokenizer, in this form.
static pl_status offline(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r, const char *out_dir,
                         pl_comm *comm, const pl_teacher *teacher, const pl_tokenizer *tok, const char *form,
                         const int *tap, int taps, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    pl_dataset_attrs       want = {.target_fingerprint = teacher->model.fingerprint,
                                   .tokenizer_fingerprint = tok ? pl_tokenizer_fingerprint(tok) : NULL,
                                   .template_name = form,
                                   .vocab_size = (int32_t)teacher->model.vocab,
                                   .d = (int32_t)teacher->model.shape.d,
                                   .A = taps > 0 ? taps : -1,
                                   .feature_format =
                                 tr->data.dataset ? PL_FEATURES_ANY : pl_data_format(pl_generate_recipe_of(r))};
    for (int i = 0; i < want.A; i++)
        want.tap_layer_ids[i] = tap[i];
    const char *given = tr->data.dataset;
    char       *dir = given ? pl_strdup(given) : pl_path_join(out_dir, "dataset");
    if (!dir) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_status st = pl_offline_sources(train, held, dir, &want, (uint64_t)pl_generate_recipe_of(r)->seed,
                                      tr->train.holdout, tr->data.window, comm, err);
    pl_free(dir);
    return st;
}

pl_status pl_drafter_sources(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r,
                             const char *out_dir, const pl_env *env, const pl_teacher *teacher, const int *tap,
                             int n_taps, pl_err *err) {
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    int64_t                   every = tr->train.holdout;
    int                       taps = tap[0] == PL_TAP_FINAL ? 0 : n_taps; // the last hidden comes anyway
    if (every == 1) return pl_recipe_fail(r, &tr->train.holdout, err, "1 leaves nothing to train on; use 2 or more");
    if (gen->data.mode == PL_DATA_ONLINE && gen->data.feature_format != PL_STORE_BF16)
        return pl_recipe_fail(r, &gen->data.feature_format, err, "data.mode: online stores nothing; leave it out");
    if (gen->data.disk_budget) return pl_bounded_sources(train, held, r, out_dir, env, &teacher->whole, tap, taps, err);
    if (gen->data.mode == PL_DATA_ONLINE)
        return pl_online_sources(train, held, r, env, &teacher->whole, tap, taps, every, err);
    const char    *target = gen->target.path;
    pl_tokenizer  *tok;
    pl_prompt_form form;
    PL_TRY(pl_target_tokenizer(&tok, target, gen->target.tokenizer, gen->target.pre, err));
    pl_status st = pl_recipe_form(&form, r, err);
    if (st == PL_OK) st = offline(train, held, r, out_dir, env->comm, teacher, tok, form.name, tap, taps, err);
    pl_prompt_form_close(&form);
    pl_tokenizer_close(tok);
    return st;
}

pl_status pl_sources_teacher(pl_teacher *t, const pl_recipe *r, const pl_env *env, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    pl_dtype                  dtype = pl_target_dtype(gen);
    bool                      asked = pl_train_recipe_of(r)->train.on_policy.share > 0; // what it says to others' text
    if (!pl_data_made_meanwhile(gen) && !asked) return pl_teacher_open(t, gen->target.path, dtype, env->backend, err);
    PL_TRY(pl_teacher_open_whole(t, gen->target.path, dtype, env->backend, env->tp, err));
    t->whole.shape.kv = pl_target_kv(gen);
    return PL_OK;
}
