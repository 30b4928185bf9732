#include "infer/model/target.h"

#include "kernels/base/files.h"

pl_status pl_target_tokenizer(pl_tokenizer **out, const char *path, const char *tokenizer, const char *pre,
                              pl_err *err) {
    *out = NULL;
    bool brings = false;
    if (!tokenizer) PL_TRY(pl_tokenizer_in_folder(&brings, path, err));
    if (brings) tokenizer = path;
    if (tokenizer) return pl_tokenizer_open_pre(out, tokenizer, pre, err);
    if (pre) return pl_fail(err, PL_E_INPUT, "%s: has no tokenizer for the pre-tokenizer given (%s)", path, pre);
    return PL_OK;
}
pl_status pl_target_stored(pl_dtype *out, const char *path, pl_err *err) {
    bool folder;
    *out = PL_F32;
    PL_TRY(pl_path_look_dir(path, &folder, err));
    if (!folder) return PL_OK; // llama2.c files are fp32
    pl_weight_source *src;
    PL_TRY(pl_weight_source_open(&src, path, err));
    if (pl_weight_source_stored_dtype(src, NULL, 0) == PL_BF16) *out = PL_BF16;
    pl_weight_source_close(src);
    return PL_OK;
}

int pl_target_stops(int32_t stop[PL_MAX_STOP], const pl_hf_config *c, const pl_tokenizer *tok) {
    int n = 0;
    for (int i = 0; i < c->n_eos && i < PL_MAX_STOP; i++)
        stop[n++] = c->eos_token_id[i];
    int32_t eos = tok ? pl_tokenizer_eos_id(tok) : -1;
    if (n == 0 && eos >= 0) stop[n++] = eos;
    return n;
}

// A tokenizer may know special tokens (padding) that the model has no rows for, but no pieces of text.
static bool fits(const pl_target *t) {
    for (int64_t i = t->model.vocab; t->tok && i < pl_tokenizer_vocab_size(t->tok); i++)
        if (!pl_tokenizer_is_special(t->tok, (int32_t)i)) return false;
    return true;
}

pl_status pl_target_open(pl_target *t, const char *path, const char *tokenizer, const char *pre, pl_weights weights,
                         const pl_backend *be, pl_err *err) {
    return pl_target_open_over(t, path, tokenizer, pre, weights, be, NULL, err);
}

pl_status pl_target_open_over(pl_target *t, const char *path, const char *tokenizer, const char *pre,
                              pl_weights weights, const pl_backend *be, pl_comm *comm, pl_err *err) {
    *t = (pl_target){.dtype = weights == PL_WEIGHTS_BF16 ? PL_BF16 : PL_F32};
    if (!pl_path_exists(path))
        return pl_fail(err, PL_E_INPUT, "%s: no such file or folder; models are read from this disk, download it first",
                       path);
    pl_status st = PL_OK;
    if (weights == PL_WEIGHTS_AUTO) PL_TRY(pl_target_stored(&t->dtype, path, err));
    PL_TRY(pl_target_tokenizer(&t->tok, path, tokenizer, pre, err));
    PL_TRY_GOTO(st, fail, pl_llama_open_over(&t->model, path, t->dtype, be, comm, err));
    if (!fits(t))
        PL_TRY_GOTO(st, fail,
                    pl_fail(err, PL_E_INPUT,
                            "%s: the tokenizer has %d ids, the model %lld: it is another model's tokenizer",
                            tokenizer ? tokenizer : path, pl_tokenizer_vocab_size(t->tok), (long long)t->model.vocab));
    t->n_stop = pl_target_stops(t->stop, &t->model.config, t->tok);
    return PL_OK;
fail:
    pl_target_close(t);
    return st;
}

void pl_target_close(pl_target *t) {
    pl_llama_fini(&t->model);
    pl_tokenizer_close(t->tok);
    *t = (pl_target){0};
}

const char *pl_weights_name(pl_dtype t) {
    return t == PL_BF16 ? "bf16" : "fp32";
}
