// inspect: models, draft heads and files of tensors.
#include "checkpoints/fingerprint.h"
#include "checkpoints/ggml.h"
#include "checkpoints/gguf_model.h"
#include "checkpoints/llama2c.h"
#include "checkpoints/state.h"
#include "infer/drafter/backbone.h"
#include "infer/inspect/parts.h"
#include "infer/model/recurrent.h"
#include "infer/model/target.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"

#include <string.h>

#define CONFIG_MAX ((size_t)16 << 20)

// Detects an EAGLE-1 head by its fc tensor: such heads have the config of a Llama of one layer. A config.json without
// weights counts as a drafter's: language models of one layer are rare.
static pl_status has_fc(const char *path, bool *drafter, pl_err *err) {
    pl_weight_source *src;
    *drafter = true;
    if (!pl_path_is_dir(path)) return PL_OK;
    PL_TRY(pl_weight_source_open(&src, path, err));
    *drafter = pl_weight_source_find(src, "fc.weight") != NULL;
    pl_weight_source_close(src);
    return PL_OK;
}

pl_status pl_inspect_is_drafter(const char *path, bool *drafter, pl_err *err) {
    pl_json   j;
    char     *file = pl_path_is_dir(path) ? pl_path_join(path, "config.json") : pl_strdup(path);
    pl_status st =
        file ? pl_json_open(&j, file, CONFIG_MAX, 0, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_free(file);
    if (st != PL_OK) return st;
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(j.root, "architectures");
    const cJSON *name = cJSON_IsArray(names) ? names->child : NULL;
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(j.root, "num_hidden_layers");
    *drafter = cJSON_HasObjectItem(j.root, "draft_vocab_size") || cJSON_HasObjectItem(j.root, "dflash_config") ||
               (name && cJSON_IsString(name) && strstr(name->valuestring, "Eagle") != NULL);
    bool one_layer = !*drafter && cJSON_IsNumber(layers) && layers->valuedouble == 1;
    pl_json_close(&j);
    return one_layer ? has_fc(path, drafter, err) : PL_OK;
}

static int64_t count_elements(const int64_t *shape, int rank) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= shape[i];
    return n;
}

static void put_tensor(pl_json_out *o, const char *name, const char *type, const int64_t *shape, int rank,
                       size_t bytes) {
    char text[PL_ST_SHAPE_TEXT];
    pl_json_out_object(o);
    pl_put_str(o, "name", name);
    pl_put_str(o, "dtype", type);
    pl_put_str(o, "shape", pl_st_shape_text(text, shape, rank));
    pl_put_int(o, "bytes", (int64_t)bytes);
    pl_json_out_close(o, '}');
}

static pl_status put_source(pl_json_out *o, const pl_weight_source *src, const pl_hf_config *c,
                            const pl_inspect_options *opt, pl_err *err) {
    int64_t elements = 0, n = pl_weight_source_count(src);
    double  bytes = 0;
    char    print[17];
    for (int64_t i = 0; i < n; i++) {
        const pl_weight_entry *e = pl_weight_source_at(src, i);
        elements += count_elements(e->shape, e->rank);
        bytes += (double)e->bytes;
    }
    pl_put_int(o, "parameters", elements);
    pl_put_int(o, "tensors", n);
    pl_put_num(o, "bytes", bytes);
    pl_put_str(o, "stored_as", pl_dtype_name(pl_weight_source_stored_dtype(src, NULL, 0)));
    PL_TRY(pl_fingerprint(print, src, c, false, err));
    pl_put_str(o, "fingerprint", print);
    if (opt->full_hash) {
        PL_TRY(pl_fingerprint(print, src, c, true, err));
        pl_put_str(o, "full_hash", print);
    }
    if (!opt->tensors) return PL_OK;
    pl_put_array(o, "tensor_list");
    for (int64_t i = 0; i < n; i++) {
        const pl_weight_entry *e = pl_weight_source_at(src, i);
        put_tensor(o, e->name, pl_ggml_type_name(e), e->shape, e->rank, e->bytes);
    }
    pl_json_out_close(o, ']');
    return PL_OK;
}

static void put_config(pl_json_out *o, const pl_hf_config *c) {
    static const char *const scaling[] = {[PL_HF_ROPE_NONE] = "none",
                                          [PL_HF_ROPE_LINEAR] = "linear",
                                          [PL_HF_ROPE_LLAMA3] = "llama3",
                                          [PL_HF_ROPE_YARN] = "yarn",
                                          [PL_HF_ROPE_LONG] = "longrope"};
    pl_put_str(o, "architecture", c->architecture);
    if (c->foreign) pl_put_bool(o, "computed_here", false);
    pl_put_int(o, "hidden_size", c->hidden_size);
    pl_put_int(o, "intermediate_size", c->intermediate_size);
    pl_put_int(o, "layers", c->num_hidden_layers);
    pl_put_int(o, "heads", c->num_attention_heads);
    pl_put_int(o, "kv_heads", c->num_key_value_heads);
    pl_put_int(o, "head_dim", c->head_dim);
    pl_put_int(o, "vocab", c->vocab_size);
    pl_put_int(o, "positions", c->max_position_embeddings);
    pl_put_num(o, "norm_eps", c->rms_norm_eps);
    pl_put_num(o, "rope_theta", c->rope.theta);
    pl_put_str(o, "rope_scaling", scaling[c->rope.scaling]);
    if (c->sliding_window > 0) {
        int windowed = 0;
        for (int l = 0; l < c->num_hidden_layers; l++)
            windowed += pl_hf_windowed(c, l);
        pl_put_int(o, "sliding_window", c->sliding_window);
        pl_put_int(o, "windowed_layers", windowed);
    }
    if (c->delta.value_heads > 0) {
        pl_gdn_shape shape = pl_recurrent_shape(&c->delta);
        int          recurrent = 0;
        for (int l = 0; l < c->num_hidden_layers; l++)
            recurrent += pl_hf_recurrent(c, l);
        pl_put_int(o, "recurrent_layers", recurrent);
        pl_put_int(o, "state_bytes", 4 * recurrent * pl_gdn_state(&shape));
        pl_put_int(o, "state_bytes_per_draft", 4 * recurrent * pl_gdn_kept(&shape));
    }
    if (c->experts > 0) {
        pl_put_int(o, "experts", c->experts);
        pl_put_int(o, "experts_per_token", c->experts_per_token);
        pl_put_int(o, "expert_size", c->expert_size);
    }
    if (c->attention_softcap > 0) pl_put_num(o, "attention_softcap", c->attention_softcap);
    if (c->final_softcap > 0) pl_put_num(o, "final_softcap", c->final_softcap);
    pl_put_bool(o, "tied_embeddings", c->tie_word_embeddings);
    pl_put_int(o, "bos", c->bos_token_id);
    pl_put_ids(o, "eos", c->eos_token_id, c->n_eos);
}

static void put_tokenizer(pl_json_out *o, const pl_tokenizer *tok) {
    pl_put_str(o, "kind", pl_tokenizer_kind(tok));
    pl_put_int(o, "vocab", pl_tokenizer_vocab_size(tok));
    pl_put_int(o, "bos", pl_tokenizer_bos_id(tok));
    pl_put_int(o, "eos", pl_tokenizer_eos_id(tok));
    pl_put_bool(o, "adds_bos", pl_tokenizer_adds_bos(tok));
    pl_put_str(o, "fingerprint", pl_tokenizer_fingerprint(tok));
}

pl_status pl_inspect_bin(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    pl_hf_config      c;
    pl_weight_source *src;
    if (pl_llama2c_open(&src, &c, path, NULL) != PL_OK) return pl_inspect_tokenizer(o, path, opt, err);
    pl_put_str(o, "kind", "llama2.c model");
    put_config(o, &c);
    pl_status st = put_source(o, src, &c, opt, err);
    pl_weight_source_close(src);
    return st;
}

static pl_status put_state(pl_json_out *o, const char *path, pl_err *err) {
    pl_state *s;
    PL_TRY(pl_state_open(&s, path, err));
    pl_put_array(o, "items");
    for (int64_t i = 0; i < pl_state_count(s); i++) {
        const pl_state_item *x = pl_state_at(s, i);
        pl_json_out_object(o);
        pl_put_str(o, "name", x->name);
        pl_put_str(o, "dtype", pl_dtype_name(x->dtype));
        pl_put_int(o, "count", x->count);
        if (x->count == 1 && x->dtype == PL_I64)
            pl_put_int(o, "value", *(const int64_t *)x->data);
        else if (x->count == 1 && x->dtype == PL_F64)
            pl_put_num(o, "value", *(const double *)x->data);
        else
            pl_put_str(o, "value", NULL);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
    pl_state_close(s);
    return PL_OK;
}

pl_status pl_inspect_state(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    (void)opt;
    pl_put_str(o, "kind", "training state");
    return put_state(o, path, err);
}

// Writes the tapped layers, numbered by their inputs, whatever the config's numbering.
static void put_taps(pl_json_out *o, const pl_hf_config *c, pl_hf_tap_numbering numbering) {
    static const char *const as[] = {"not stated", "layer inputs", "layer outputs"};
    pl_taps                  t;
    pl_put_ids(o, "taps", c->tap, c->n_taps);
    pl_put_str(o, "tap_numbering", as[numbering]);
    if (c->n_taps == 0) return;
    pl_backbone_taps(&t, c, 0);
    pl_put_ids(o, "layer_inputs", t.layer, t.n);
}

// Writes a head's settings: head_rank, head_clusters, ...
static void put_head(pl_json_out *o, const pl_hf_head *h) {
    for (int i = 0; i < h->n; i++) {
        const pl_hf_setting *s = &h->setting[i];
        char                 name[48];
        snprintf(name, sizeof name, "head_%s", s->name);
        if (s->form == PL_HF_TEXT) pl_put_str(o, name, s->text);
        if (s->form == PL_HF_FLAG) pl_put_bool(o, name, true);
        if (s->form == PL_HF_INT) pl_put_int(o, name, s->value);
    }
}

static pl_status put_drafter(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    pl_hf_config      c;
    pl_weight_source *src = NULL;
    PL_TRY(pl_hf_config_read(&c, path, PL_HF_DRAFTER, err));
    pl_put_str(o, "kind", "drafter checkpoint");
    put_config(o, &c);
    pl_put_str(o, "backbone", pl_hf_backbone_name(&c));
    pl_put_str(o, "head", *c.head.kind ? c.head.kind : "full");
    if (c.backbone == PL_HF_EAGLE1) {
        pl_put_bool(o, "target_head", c.target_head);
        pl_put_str(o, "features", "the target's last hidden after its final norm");
    }
    put_head(o, &c.head);
    pl_put_int(o, "draft_vocab", c.draft_vocab_size ? c.draft_vocab_size : c.vocab_size);
    if (c.backbone == PL_HF_DFLASH) {
        pl_put_bool(o, "target_head", c.target_head);
        pl_put_int(o, "block", c.block.size);
        pl_put_int(o, "drafts", c.block.size - !c.block.anchor_first);
        pl_put_int(o, "mask_token", c.block.mask_token);
        pl_put_bool(o, "anchor_first", c.block.anchor_first);
        put_taps(o, &c, PL_HF_TAPS_OUTPUT);
    }
    if (c.backbone == PL_HF_EAGLE3) put_taps(o, &c, c.tap_numbering);
    if (!pl_path_is_dir(path)) return PL_OK;
    PL_TRY(pl_weight_source_open(&src, path, err));
    pl_status st = put_source(o, src, &c, opt, err);
    pl_weight_source_close(src);
    char *state = pl_path_join(path, "training_state");
    if (!state) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_put_bool(o, "resumable", pl_path_exists(state));
    if (st == PL_OK && pl_path_exists(state)) {
        pl_put_object(o, "training_state");
        st = put_state(o, state, err);
        pl_json_out_close(o, '}');
    }
    pl_free(state);
    return st;
}

static pl_status put_model(pl_json_out *o, const char *path, const pl_weight_source *src, const pl_hf_config *c,
                           const pl_inspect_options *opt, pl_err *err) {
    pl_tokenizer *tok = NULL;
    pl_put_str(o, "kind", "model");
    put_config(o, c);
    if (!src) return PL_OK;
    pl_status st = put_source(o, src, c, opt, err);
    if (st == PL_OK) st = pl_inspect_quantised(o, path, src, opt->full_hash, err);
    int tap[PL_MAX_TAPS], taps = pl_llama_default_taps(c->num_hidden_layers, tap);
    pl_put_ids(o, "eagle3_taps", tap, taps);
    if (st == PL_OK) st = pl_target_tokenizer(&tok, path, NULL, opt->pre, err);
    if (st == PL_OK && tok) {
        pl_put_object(o, "tokenizer");
        put_tokenizer(o, tok);
        pl_json_out_close(o, '}');
    }
    pl_tokenizer_close(tok);
    return st;
}

pl_status pl_inspect_model(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    pl_hf_config      c;
    pl_weight_source *src = NULL;
    bool              drafter, whole = pl_path_is_dir(path); // false: a config.json alone
    PL_TRY(pl_inspect_is_drafter(path, &drafter, err));
    if (drafter) return put_drafter(o, path, opt, err);
    PL_TRY(whole ? pl_llama_source(&src, &c, path, err) : pl_hf_config_read(&c, path, PL_HF_TARGET, err));
    pl_status st = put_model(o, path, src, &c, opt, err);
    if (src) pl_weight_source_close(src);
    return st;
}

pl_status pl_inspect_gguf(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    pl_hf_config      c;
    pl_weight_source *src;
    if (!pl_path_is_dir(path) && !pl_gguf_model_is(path)) return pl_inspect_tokenizer(o, path, opt, err);
    PL_TRY(pl_llama_source(&src, &c, path, err));
    pl_status st = put_model(o, path, src, &c, opt, err);
    pl_weight_source_close(src);
    return st;
}

pl_status pl_inspect_safetensors(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    pl_st *st;
    PL_TRY(pl_st_open(&st, path, err));
    int64_t elements = 0, n = pl_st_count(st);
    double  bytes = 0;
    for (int64_t i = 0; i < n; i++) {
        const pl_st_entry *e = pl_st_at(st, i);
        elements += count_elements(e->shape, e->rank);
        bytes += (double)e->bytes;
    }
    pl_put_str(o, "kind", "safetensors");
    pl_put_int(o, "tensors", n);
    pl_put_int(o, "elements", elements);
    pl_put_num(o, "bytes", bytes);
    pl_put_array(o, "tensor_list");
    for (int64_t i = 0; i < n; i++) {
        const pl_st_entry *e = pl_st_at(st, i);
        put_tensor(o, e->name, pl_dtype_name(e->dtype), e->shape, e->rank, e->bytes);
    }
    pl_json_out_close(o, ']');
    pl_st_close(st);
    if (!opt->full_hash) return PL_OK;
    pl_weight_source *src;
    char              print[17];
    PL_TRY(pl_weight_source_open(&src, path, err));
    pl_status hashed = pl_fingerprint(print, src, NULL, true, err);
    pl_weight_source_close(src);
    if (hashed == PL_OK) pl_put_str(o, "full_hash", print);
    return hashed;
}

pl_status pl_inspect_tokenizer(pl_json_out *o, const char *path, const pl_inspect_options *opt, pl_err *err) {
    pl_tokenizer *tok;
    PL_TRY(pl_tokenizer_open_pre(&tok, path, opt->pre, err));
    pl_put_str(o, "kind", "tokenizer");
    pl_put_object(o, "tokenizer");
    put_tokenizer(o, tok);
    pl_put_str(o, "bos_piece",
               pl_tokenizer_bos_id(tok) >= 0 ? pl_tokenizer_piece(tok, pl_tokenizer_bos_id(tok)) : NULL);
    pl_put_str(o, "eos_piece",
               pl_tokenizer_eos_id(tok) >= 0 ? pl_tokenizer_piece(tok, pl_tokenizer_eos_id(tok)) : NULL);
    pl_json_out_close(o, '}');
    pl_tokenizer_close(tok);
    return PL_OK;
}
