#include "train/task/model_files.h"

#include "checkpoints/fingerprint.h"
#include "infer/head/stopping.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"

#include <string.h>

enum { STOPPING = 2 }; // parameters of a prediction of acceptance, the model's last

static pl_status write_text(const char *dir, const char *name, pl_json_out *o, pl_err *err) {
    PL_TRY(pl_json_out_end(o, err));
    char     *path = pl_path_join(dir, name);
    pl_status st =
        path ? pl_file_write_atomic(path, o->text, o->len, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(path);
    pl_free(o->text);
    return st;
}

static pl_status write_generation(const pl_lm *lm, const char *dir, pl_err *err) {
    const pl_hf_config *c = &lm->model.config;
    pl_json_out         o;
    pl_json_out_begin(&o, 2);
    pl_json_out_object(&o);
    if (c->bos_token_id >= 0) pl_put_int(&o, "bos_token_id", c->bos_token_id);
    if (c->n_eos > 0) pl_put_int(&o, "eos_token_id", c->eos_token_id[0]);
    pl_put_int(&o, "max_length", c->max_position_embeddings);
    pl_json_out_close(&o, '}');
    return write_text(dir, "generation_config.json", &o, err);
}

static pl_status write_tokenizer_config(const pl_lm *lm, const pl_tokenizer *tok, const char *dir, pl_err *err) {
    int32_t     bos = pl_tokenizer_bos_id(tok), eos = pl_tokenizer_eos_id(tok);
    pl_json_out o;
    pl_json_out_begin(&o, 2);
    pl_json_out_object(&o);
    pl_put_bool(&o, "add_bos_token", pl_tokenizer_adds_bos(tok));
    pl_put_bool(&o, "add_eos_token", false);
    if (bos >= 0) pl_put_str(&o, "bos_token", pl_tokenizer_piece(tok, bos));
    if (eos >= 0) pl_put_str(&o, "eos_token", pl_tokenizer_piece(tok, eos));
    // Naming an ordinary piece of a tokenizer.json as unk_token would make it a special token.
    int32_t unk = pl_tokenizer_find(tok, "<unk>");
    bool piece = strcmp(pl_tokenizer_kind(tok), "huggingface") == 0 && unk >= 0 && !pl_tokenizer_is_special(tok, unk);
    if (unk >= 0 && !piece) pl_put_str(&o, "unk_token", "<unk>");
    pl_put_bool(&o, "clean_up_tokenization_spaces", false);
    pl_put_bool(&o, "legacy", false);
    pl_put_int(&o, "model_max_length", lm->model.config.max_position_embeddings);
    // The class by which other programs open it; SentencePiece kinds use Llama's.
    bool llama = strcmp(pl_tokenizer_kind(tok), "sentencepiece") == 0 || strcmp(pl_tokenizer_kind(tok), "llama2c") == 0;
    pl_put_str(&o, "tokenizer_class", llama ? "LlamaTokenizer" : "PreTrainedTokenizerFast");
    pl_tokenizer_put_config(tok, &o);
    pl_json_out_close(&o, '}');
    return write_text(dir, "tokenizer_config.json", &o, err);
}

pl_status pl_model_files_write(const char *dir, const pl_lm *lm, const pl_tokenizer *tok, const char *tokenizer,
                               pl_err *err) {
    const pl_llama *m = &lm->model;
    char           *config = pl_path_join(dir, "config.json"), *weights = pl_path_join(dir, "model.safetensors");
    pl_param_view   view = {0};
    pl_params       plain = m->params, beside = m->params; // its own tensors, and those of a file of their own
    pl_status       st = config && weights ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (lm->stops.acceptance) plain.n -= STOPPING;
    beside.p += plain.n;
    beside.n -= plain.n;
    if (st == PL_OK) st = pl_hf_config_write(config, &m->config, err);
    if (st == PL_OK) st = pl_param_view_init(&view, &lm->block, err);
    if (st == PL_OK) st = pl_params_write(&plain, weights, view.data, m->config.dtype, NULL, 0, err);
    if (st == PL_OK && beside.n > 0)
        st = pl_stopping_write(&lm->stops, &beside, dir, view.data + plain.n, m->config.dtype, err);
    pl_param_view_fini(&view);
    pl_free(config);
    pl_free(weights);
    if (st == PL_OK) st = pl_tokenizer_copy(tok, tokenizer, dir, err);
    if (st == PL_OK) st = write_tokenizer_config(lm, tok, dir, err);
    if (st == PL_OK) st = write_generation(lm, dir, err);
    return st;
}

pl_status pl_model_files_config(pl_hf_config *c, const char *dir, pl_dtype dtype, pl_err *err) {
    pl_weight_source *src;
    PL_TRY(pl_llama_source(&src, c, dir, err));
    pl_weight_source_close(src);
    PL_TRY(pl_llama_trainable(c, dir, err));
    c->dtype = dtype;
    return PL_OK;
}

// Reads the model's prediction of acceptance, if its folder has one; else it begins at 0.
static pl_status read_stopping(pl_lm *lm, const char *dir, pl_err *err) {
    char             *path = pl_path_join(dir, PL_STOPPING_FILE);
    pl_weight_source *src = NULL;
    pl_status         st = path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK && pl_path_exists(path)) st = pl_weight_source_open(&src, path, err);
    if (src) st = pl_param_block_read_some(&lm->block, lm->model.params.n - STOPPING, STOPPING, src, err);
    pl_weight_source_close(src);
    pl_free(path);
    return st;
}

pl_status pl_model_files_weights(pl_lm *lm, const char *dir, char print[17], pl_err *err) {
    pl_weight_source *src;
    pl_hf_config      c;
    PL_TRY(pl_llama_source(&src, &c, dir, err));
    pl_status st = pl_fingerprint(print, src, &lm->model.config, true, err);
    int       n = lm->model.params.n - (lm->stops.acceptance ? STOPPING : 0);
    if (st == PL_OK) st = pl_param_block_read_some(&lm->block, 0, n, src, err);
    pl_weight_source_close(src);
    return st == PL_OK && lm->stops.acceptance ? read_stopping(lm, dir, err) : st;
}
