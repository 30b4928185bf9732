#include "infer/export/export.h"

#include "infer/drafter/backbone.h"
#include "infer/head/draft_vocab.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json_put.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"
#include "kernels/op/linear.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TENSORS 256
#define MERGED_ROWS 256 // of the product, at a time
#define LAYER "midlayer."

#define PL_EXPORT_ENGINE(name) extern const pl_export_engine pl_export_##name;
#include "infer/export/engines.def"
#undef PL_EXPORT_ENGINE

static const pl_export_engine *const engines[] = {
#define PL_EXPORT_ENGINE(name) &pl_export_##name,
#include "infer/export/engines.def"
#undef PL_EXPORT_ENGINE
};
enum { ENGINES = sizeof engines / sizeof *engines };

const pl_export_engine *pl_export_engine_at(int i) {
    return i >= 0 && i < ENGINES ? engines[i] : NULL;
}

const pl_export_engine *pl_export_engine_find(const char *name, pl_err *err) {
    for (int i = 0; i < ENGINES; i++)
        if (strcmp(engines[i]->name, name) == 0) return engines[i];
    pl_fail(err, PL_E_USAGE, "%s: no such engine; paceline export --help lists them", name);
    return NULL;
}

// ---- config.json ----

void pl_export_put_dtype(pl_json_out *o, const pl_export *e) {
    pl_put_str(o, "torch_dtype", pl_hf_dtype_name(e->config.dtype));
    pl_put_str(o, "dtype", pl_hf_dtype_name(e->config.dtype));
}

void pl_export_put_layer(pl_json_out *o, const pl_export *e) {
    const pl_hf_config *c = &e->config;
    // Engines size their tables by the draft's positions: as many as the target has.
    int                 positions = c->max_position_embeddings, more = e->target_config.max_position_embeddings;
    bool                block = pl_export_is_block(e);
    pl_put_str(o, "model_type", block ? "qwen3" : "llama"); // a block drafter's layers norm queries and keys
    pl_put_int(o, "vocab_size", c->vocab_size);
    pl_put_int(o, "hidden_size", c->hidden_size);
    pl_put_int(o, "intermediate_size", c->intermediate_size);
    pl_put_int(o, "num_hidden_layers", c->num_hidden_layers);
    pl_put_int(o, "num_attention_heads", c->num_attention_heads);
    pl_put_int(o, "num_key_value_heads", c->num_key_value_heads);
    pl_put_int(o, "head_dim", c->head_dim);
    pl_put_str(o, "hidden_act", "silu");
    pl_put_num(o, "rms_norm_eps", c->rms_norm_eps);
    pl_put_int(o, "max_position_embeddings", more > positions ? more : positions);
    pl_put_num(o, "initializer_range", 0.02);
    pl_hf_put_rope(o, &c->rope);
    pl_put_object(o, "rope_parameters"); // as transformers 5 spells it
    pl_put_num(o, "rope_theta", c->rope.theta);
    pl_hf_put_scaling(o, &c->rope);
    pl_json_out_close(o, '}');
    if (block) pl_put_bool(o, "is_causal", false); // what vLLM and SGLang read before all else
    pl_put_bool(o, "attention_bias", false);
    pl_put_bool(o, "mlp_bias", false);
    pl_put_bool(o, "tie_word_embeddings", false);
    pl_hf_put_token(o, "bos_token_id", c->bos_token_id);
    pl_hf_put_token(o, "eos_token_id", c->n_eos ? c->eos_token_id[0] : -1);
    pl_hf_put_token(o, "pad_token_id", c->pad_token_id);
    pl_export_put_dtype(o, e);
}

void pl_export_put_taps(pl_json_out *o, const char *key, const pl_export *e, int shift) {
    pl_put_array(o, key);
    for (int i = 0; i < e->n_taps; i++)
        pl_json_out_int(o, e->tap[i] + shift);
    pl_json_out_close(o, ']');
}

void pl_export_put_norms(pl_json_out *o, const pl_export *e) {
    for (int i = 0; i < PL_HF_NORMS; i++)
        pl_put_bool(o, pl_hf_norm_names[i], pl_hf_norms(&e->config) & 1U << i);
}

void pl_export_put_width(pl_json_out *o, const pl_export *e) {
    pl_put_int(o, "target_hidden_size", e->config.target_hidden_size);
}

void pl_export_put_eagle3(pl_json_out *o, const pl_export *e, int shift) {
    pl_put_int(o, "draft_vocab_size", e->rows);
    pl_export_put_norms(o, e);
    pl_put_object(o, "eagle_config");
    pl_put_bool(o, "use_aux_hidden_state", true);
    pl_put_bool(o, "use_input_layernorm_in_first_layer", true);
    pl_put_bool(o, "use_last_layernorm", true);
    pl_put_bool(o, "use_mtp_layernorm", false);
    if (e->config.norm_before_fc) pl_put_bool(o, "norm_before_fc", true); // TensorRT-LLM reads it nowhere else
    pl_export_put_taps(o, "eagle_aux_hidden_state_layer_ids", e, shift);
    pl_json_out_close(o, '}');
    pl_put_object(o, "paceline");
    pl_put_str(o, "tap_numbering", shift ? "output" : "input");
    pl_json_out_close(o, '}');
}

void pl_export_put_plain(pl_json_out *o, const pl_export *e, int shift) {
    pl_put_array(o, "architectures");
    pl_json_out_str(o, "LlamaForCausalLMEagle3");
    pl_json_out_close(o, ']');
    pl_export_put_layer(o, e);
    pl_export_put_eagle3(o, e, shift);
}

bool pl_export_is_parallel(const pl_export *e) {
    return e->config.backbone == PL_HF_PEAGLE;
}

int pl_export_tokens(const pl_export *e) {
    return pl_export_is_parallel(e) ? e->config.block.size : PL_EXPORT_TOKENS;
}

char *pl_export_quote(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%";
    pl_strbuf         b = {0};
    if (!word) return NULL;
    if (*word && strspn(word, plain) == strlen(word)) return pl_strdup(word);
    pl_strbuf_add(&b, "'", 1);
    for (; *word; word++)
        pl_strbuf_add(&b, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
    pl_strbuf_add(&b, "'", 1);
    return pl_strbuf_take(&b);
}

// ---- what is exported ----

static void close_export(pl_export *e) {
    pl_weight_source_close(e->src);
    pl_weight_source_close(e->target_src);
}

static pl_status open_target(pl_export *e, const pl_export_engine *engine, pl_err *err) {
    const pl_hf_config *c = &e->config, *t = &e->target_config;
    PL_TRY(pl_hf_config_read(&e->target_config, e->target, PL_HF_TARGET, err));
    if (t->vocab_size != c->vocab_size || t->hidden_size != c->target_hidden_size)
        return pl_fail(err, PL_E_INPUT, "%s: vocabulary %d and width %d, the drafter was made for %d and %d", e->target,
                       t->vocab_size, t->hidden_size, c->vocab_size, c->target_hidden_size);
    for (int i = 0; i < e->n_taps; i++) {
        if (e->tap[i] == t->num_hidden_layers && !engine->last)
            pl_log_warn(
                "%s: the drafter reads the last layer's output, before the final norm, which %s is not known to "
                "capture; if drafts fail there, train with other drafter.taps",
                e->checkpoint, engine->name);
        if (e->tap[i] > t->num_hidden_layers)
            return pl_fail(err, PL_E_INPUT, "%s: has %d layers, the drafter reads the input of layer %d", e->target,
                           t->num_hidden_layers, e->tap[i]);
    }
    return pl_llama_source(&e->target_src, &e->target_config, e->target, err);
}

static pl_status read_map(pl_export *e, pl_err *err) {
    int32_t *d2t = NULL;
    int64_t  vocab = e->config.vocab_size;
    e->rows = e->config.draft_vocab_size ? e->config.draft_vocab_size : vocab;
    e->whole = e->rows == vocab;
    if (!pl_weight_source_find(e->src, "d2t"))
        return e->whole ? PL_OK
                        : pl_fail(err, PL_E_INPUT, "%s: has no d2t, and rows for %lld of %lld tokens", e->checkpoint,
                                  (long long)e->rows, (long long)vocab);
    PL_TRY(pl_draft_vocab_read(&d2t, e->src, e->rows, vocab, err));
    for (int64_t i = 0; i < e->rows; i++)
        e->whole &= d2t[i] == i;
    pl_free(d2t);
    if (e->whole || e->rows < vocab) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED,
                   "%s: a head of all %lld tokens in another order than its target's, for which engines read no map",
                   e->checkpoint, (long long)vocab);
}

static pl_status check_eagle3(const pl_export *e, const pl_export_engine *engine, pl_err *err) {
    const pl_hf_config *c = &e->config;
    int                 most = engine->layers ? engine->layers : 1;
    if (c->num_hidden_layers > most)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: %d layers, %s serves at most %d", e->checkpoint,
                       c->num_hidden_layers, engine->name, most);
    unsigned lost = pl_export_is_parallel(e) ? engine->parallel_norms : 0;
    for (int i = 0; i < PL_HF_NORMS; i++)
        if (pl_hf_norms(c) & (~engine->norms | lost) & 1U << i)
            return pl_fail(err, PL_E_UNSUPPORTED, "%s: trained with %s, which %s does not compute%s", e->checkpoint,
                           pl_hf_norm_names[i], engine->name,
                           lost & 1U << i ? " for P-EAGLE where vLLM reads it; export it to vllm" : "");
    if (c->n_taps == 0)
        return pl_fail(err, PL_E_INPUT,
                       "%s: names no layers of its target, which engines understand differently; add "
                       "eagle_config.eagle_aux_hidden_state_layer_ids",
                       e->checkpoint);
    if (c->tap_numbering == PL_HF_TAPS_UNSTATED)
        return pl_fail(err, PL_E_INPUT,
                       "%s: does not say whether its layers are numbered by input or by output; add "
                       "\"paceline\": {\"tap_numbering\": \"input\"} (or \"output\") to its config.json",
                       e->checkpoint);
    return PL_OK;
}

bool pl_export_skips_fc(const pl_export_engine *engine, int layers, int64_t wide, int64_t width) {
    return layers < engine->fc_layers || (engine->skips_fc && layers * wide == width);
}

static pl_status check_layers(const pl_export *e, const pl_export_engine *engine, pl_err *err) {
    for (int i = 0; i < e->n_taps; i++) {
        if (engine->outputs && e->tap[i] == 0)
            return pl_fail(err, PL_E_UNSUPPORTED, "%s: reads the embeddings, which %s does not capture", e->checkpoint,
                           engine->name);
        if (engine->rising && i > 0 && e->tap[i] <= e->tap[i - 1])
            return pl_fail(err, PL_E_UNSUPPORTED,
                           "%s: reads layer %d after layer %d, and %s captures a set in rising order", e->checkpoint,
                           e->tap[i], e->tap[i - 1], engine->name);
    }
    if (!pl_export_is_block(e) &&
        pl_export_skips_fc(engine, e->n_taps, e->config.target_hidden_size, e->config.hidden_size))
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: reads %d layer%s of width %d, which %s takes in without fc",
                       e->checkpoint, e->n_taps, e->n_taps == 1 ? "" : "s", e->config.target_hidden_size, engine->name);
    return PL_OK;
}

// Of EAGLE-3 and P-EAGLE, once the weights are open.
static pl_status check_embeddings(const pl_export *e, const pl_export_engine *engine, pl_err *err) {
    bool wide = e->config.hidden_size != e->config.target_hidden_size;
    if (wide && !e->own_embed)
        return pl_fail(err, PL_E_INPUT, "%s: of width %d for a target of %d, and has no %s", e->checkpoint,
                       e->config.hidden_size, e->config.target_hidden_size, PL_BACKBONE_EMBED);
    if (!e->own_embed || engine->own & (wide ? PL_EXPORT_OWN_WIDTH : PL_EXPORT_OWN_SAME)) return PL_OK;
    if (wide)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: of width %d for a target of %d, where %s takes the target's width",
                       e->checkpoint, e->config.hidden_size, e->config.target_hidden_size, engine->name);
    return pl_fail(err, PL_E_UNSUPPORTED, "%s: has embeddings of its own, in whose place %s takes the target's",
                   e->checkpoint, engine->name);
}

static pl_status check_blocks(const pl_export *e, const pl_export_engine *engine, pl_err *err) {
    if (!engine->blocks)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: a block drafter, which is not exported to %s", e->checkpoint,
                       engine->name);
    if (!e->targets_head && !engine->blocks->own_head)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: a block drafter with a head of its own, where %s takes the target's; export it to "
                       "speculators",
                       e->checkpoint, engine->name);
    if (engine->blocks->plain && pl_export_is_second(e))
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: a DFlash 2 drafter, which %s does not serve", e->checkpoint,
                       engine->name);
    PL_TRY(pl_export_check_second(e, err));
    const pl_hf_head *head = &e->config.head;
    bool              markov = strcmp(head->kind, "markov") == 0;
    if (engine->blocks->vanilla && markov && pl_hf_markov_of(head) != PL_HF_MARKOV_VANILLA)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: a %s Markov head, %s knows the vanilla one", e->checkpoint,
                       pl_hf_markov_name(pl_hf_markov_of(head)), engine->name);
    if (engine->blocks->markov && pl_export_is_dspark(e) && !markov)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: blocks that draft from their anchor, which %s serves with a Markov head alone",
                       e->checkpoint, engine->name);
    return engine->blocks->check ? engine->blocks->check(e, err) : PL_OK;
}

static pl_status check_kind(const pl_export *e, const pl_export_engine *engine, pl_err *err) {
    const pl_hf_config *c = &e->config;
    const char         *kind = *c->head.kind ? c->head.kind : "full";
    bool                block = pl_export_is_block(e);
    if (c->backbone != PL_HF_EAGLE3 && !pl_export_is_parallel(e) && !block)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: is an %s drafter; only eagle3, peagle and dflash are exported",
                       e->checkpoint, pl_hf_backbone_name(c));
    if (pl_export_is_parallel(e) && !engine->parallel)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: a P-EAGLE drafter, which %s does not serve", e->checkpoint,
                       engine->name);
    if (strcmp(kind, "full") != 0 && strcmp(kind, "lowrank") != 0 && !(block && strcmp(kind, "markov") == 0))
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: a %s head is no one matrix, as engines want it; export a full, trimmed or low-rank one",
                       e->checkpoint, kind);
    if (!block && c->selector.candidates > 0)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: a selector behind an EAGLE-3 head, which no engine knows",
                       e->checkpoint);
    PL_TRY(block ? check_blocks(e, engine, err) : check_eagle3(e, engine, err));
    return check_layers(e, engine, err);
}

static bool copies_target(const pl_export *e, const pl_export_engine *engine) {
    return pl_export_is_block(e) ? engine->blocks->copies : engine->embeddings;
}

static pl_status open_export(pl_export *e, const pl_export_engine *engine, pl_err *err) {
    PL_TRY(pl_hf_config_read(&e->config, e->checkpoint, PL_HF_DRAFTER, err));
    const pl_hf_config *c = &e->config;
    e->targets_head = pl_export_is_block(e) && (!*c->head.kind || strcmp(c->head.kind, "markov") == 0);
    if (c->target_hidden_size == 0) e->config.target_hidden_size = c->hidden_size;
    pl_taps taps;
    pl_backbone_taps(&taps, c, 0);
    e->n_taps = taps.n;
    memcpy(e->tap, taps.layer, sizeof taps.layer[0] * (size_t)taps.n);
    PL_TRY(check_kind(e, engine, err));
    PL_TRY(pl_weight_source_open(&e->src, e->checkpoint, err));
    e->own_embed = !pl_export_is_block(e) && pl_weight_source_find(e->src, PL_BACKBONE_EMBED);
    if (!pl_export_is_block(e)) PL_TRY(check_embeddings(e, engine, err));
    PL_TRY(read_map(e, err));
    if (e->target && !engine->write) PL_TRY(open_target(e, engine, err));
    if (!e->target && copies_target(e, engine))
        return pl_fail(err, PL_E_USAGE, "--target: is missing; %s wants a copy of its embeddings", engine->name);
    return engine->check && !pl_export_is_block(e) ? engine->check(e, err) : PL_OK;
}

// ---- tensors ----

typedef struct tensors {
    pl_st_source t[TENSORS];
    char         name[TENSORS][128];
    int          n;
    uint8_t     *head; // multiplied out
    int32_t     *map;  // d2t in 32 bits
} tensors;

static pl_status add(tensors *ts, const char *name, const pl_weight_entry *w, pl_err *err) {
    if (ts->n == TENSORS) return pl_fail(err, PL_E_INPUT, "%s: more tensors than a drafter has", w->name);
    if (w->rope_heads) return pl_fail(err, PL_E_UNSUPPORTED, "%s: rows in another order than engines read", w->name);
    pl_st_source *s = &ts->t[ts->n];
    snprintf(ts->name[ts->n], sizeof ts->name[ts->n], "%s", name);
    *s = (pl_st_source){.name = ts->name[ts->n++], .dtype = w->dtype, .rank = w->rank, .data = w->data};
    memcpy(s->shape, w->shape, sizeof s->shape);
    if (strcmp(name, "mask_hidden") != 0) return PL_OK;
    s->rank = 3; // [1, 1, n] there
    s->shape[2] = s->shape[1];
    s->shape[1] = 1;
    return PL_OK;
}

typedef struct product {
    const float *x, *w; // [MERGED_ROWS, r], [d, r]
    int64_t      n, d, r;
    pl_tensor    y;
} product;

static void multiply(pl_ctx *ctx, void *arg) {
    product *p = arg;
    p->y =
        pl_linear(ctx, pl_tensor_2d((void *)p->x, PL_F32, p->n, p->r), pl_tensor_2d((void *)p->w, PL_F32, p->d, p->r));
}

// up [Vd, r] times down [r, d], products in fp32, rounded once to the checkpoint's type.
static pl_status merge(tensors *ts, const pl_export *e, const pl_env *env, pl_err *err) {
    int64_t        d = e->config.hidden_size, r = pl_hf_head_int(&e->config.head, "rank");
    pl_weight_spec up = {.part = {{"efficient_lm_head.weight", e->rows}}, .n_parts = 1, .rows = e->rows, .cols = r};
    pl_weight_spec down = {.part = {{"efficient_lm_head_down_proj.weight", r}}, .n_parts = 1, .rows = r, .cols = d};
    float         *rows = pl_malloc(pl_size_mul(MERGED_ROWS, (size_t)r, sizeof *rows)),
          *wide = pl_malloc(pl_size_mul((size_t)r, (size_t)d, sizeof *wide)),
          *across = pl_malloc(pl_size_mul((size_t)d, (size_t)r, sizeof *across));
    product   p = {.x = rows, .w = across, .n = MERGED_ROWS, .d = d, .r = r};
    pl_ctx    ctx = {0};
    pl_status st = PL_OK;
    ts->head = pl_malloc(pl_size_mul((size_t)e->rows, (size_t)d, pl_dtype_size(e->config.dtype)));
    if (!rows || !wide || !across || !ts->head)
        PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory for the head", e->checkpoint));
    PL_TRY_GOTO(st, done, pl_weight_source_check(e->src, &up, 1, err));
    PL_TRY_GOTO(st, done, pl_weight_source_check(e->src, &down, 1, err));
    PL_TRY_GOTO(st, done, pl_weight_read_f32(e->src, &down, wide, err));
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < d; j++)
            across[j * r + i] = wide[i * d + j];
    PL_TRY_GOTO(st, done, pl_ctx_init(&ctx, pl_backend_cpu(), env->pool));
    PL_TRY_GOTO(st, done, pl_ctx_measure(&ctx, multiply, &p, err));
    for (int64_t at = 0; at < e->rows; at += MERGED_ROWS) {
        p.n = e->rows - at < MERGED_ROWS ? e->rows - at : MERGED_ROWS;
        PL_TRY_GOTO(st, done, pl_weight_read_rows(e->src, &up, at, p.n, rows, err));
        pl_ctx_begin(&ctx);
        multiply(&ctx, &p);
        PL_TRY_GOTO(st, done, pl_ctx_sync(&ctx, err));
        pl_from_f32(ts->head + (size_t)(at * d) * pl_dtype_size(e->config.dtype), e->config.dtype, pl_f32(&p.y),
                    (size_t)(p.n * d));
    }
    ts->t[ts->n++] = (pl_st_source){
        .name = "lm_head.weight", .dtype = e->config.dtype, .rank = 2, .shape = {e->rows, d}, .data = ts->head};
done:
    pl_ctx_fini(&ctx);
    pl_free(rows);
    pl_free(wide);
    pl_free(across);
    return st;
}

static pl_status add_map32(tensors *ts, const pl_export *e, pl_err *err) {
    int64_t vocab = e->config.vocab_size;
    PL_TRY(pl_draft_vocab_read(&ts->map, e->src, e->rows, vocab, err));
    for (int64_t i = 0; i < e->rows; i++)
        ts->map[i] -= (int32_t)i; // ids, to offsets
    ts->t[ts->n++] = (pl_st_source){.name = "d2t", .dtype = PL_I32, .rank = 1, .shape = {e->rows}, .data = ts->map};
    return PL_OK;
}

static bool begins(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}

// Of several layers: as they are called here, but for what norms the input of those behind the first.
static bool layers_name(const pl_export_engine *engine, const char *name, char *out, size_t size) {
    static const char norm[] = "input_layernorm.weight";
    int               layer = 0, skip = 0;
    bool              known = sscanf(name, "layers.%d.%n", &layer, &skip) == 1 && skip > 0;
    bool              renamed = known && layer > 0 && engine->later_norm && strcmp(name + skip, norm) == 0;
    snprintf(out, size, "%.*s%s", skip, name, renamed ? engine->later_norm : name + skip);
    return known;
}

// Under the engine's name; false for what no engine knows.
static bool engines_name(const pl_export *e, const pl_export_engine *engine, const char *name, char *out, size_t size) {
    static const char *const        both[] = {"fc.weight", "norm.weight", "lm_head.weight", "embed_tokens.weight"},
                             *const blocks[] = {"layers.", "hidden_norm.weight", "markov_head.", "confidence_head.",
                                                "candidate_selector."};
    bool                            known = strcmp(name, "d2t") == 0 || strcmp(name, "t2d") == 0;
    snprintf(out, size, "%s", name);
    for (int i = 0; i < 4; i++)
        known |= strcmp(name, both[i]) == 0;
    for (int i = 0; i < 5 && pl_export_is_block(e); i++)
        known |= begins(name, blocks[i]);
    if (pl_export_is_block(e)) return known;
    if (begins(name, "layers.")) return layers_name(engine, name, out, size);
    if (begins(name, LAYER)) snprintf(out, size, "%s%s", engine->layer, name + strlen(LAYER));
    return known || begins(name, LAYER) || begins(name, "fc_norm.") || strcmp(name, "input_norm.weight") == 0 ||
           (pl_export_is_parallel(e) && strcmp(name, "mask_hidden") == 0);
}

// A copy of the target's embeddings or of its head.
static pl_status add_target(tensors *ts, const pl_export *e, bool head, pl_err *err) {
    const char *as = head ? "lm_head.weight" : "embed_tokens.weight";
    if (pl_weight_source_find(e->src, as)) return PL_OK;
    const pl_weight_entry *w = pl_llama_matrix(e->target_src, &e->target_config, head);
    return w ? add(ts, as, w, err) : pl_fail(err, PL_E_INPUT, "%s: has no %s", e->target, as);
}

// Every tensor of the checkpoint under the engine's name; what no engine knows is refused rather than left out.
static pl_status list_tensors(tensors *ts, tensors *factors, const pl_export *e, const pl_export_engine *engine,
                              const pl_env *env, pl_err *err) {
    for (int64_t i = 0; i < pl_weight_source_count(e->src); i++) {
        const pl_weight_entry *w = pl_weight_source_at(e->src, i);
        char                   name[128];
        bool                   map = strcmp(w->name, "d2t") == 0 || strcmp(w->name, "t2d") == 0;
        if (map && (e->whole || engine->map32)) continue;
        if (begins(w->name, "efficient_lm_head"))
            PL_TRY(add(factors, w->name, w, err));
        else if (engines_name(e, engine, w->name, name, sizeof name))
            PL_TRY(add(ts, name, w, err));
        else
            return pl_fail(err, PL_E_INPUT, "%s: tensor \"%.80s\": none that %s reads", e->checkpoint, w->name,
                           engine->name);
    }
    if (factors->n) PL_TRY(merge(ts, e, env, err));
    if (engine->map32 && !e->whole) PL_TRY(add_map32(ts, e, err));
    if (!copies_target(e, engine)) return PL_OK;
    PL_TRY(add_target(ts, e, false, err));
    return e->targets_head ? add_target(ts, e, true, err) : PL_OK;
}

// ---- files ----

static pl_status write_text(const char *dir, const char *name, const char *text, size_t n, pl_err *err) {
    char     *path = pl_path_join(dir, name);
    pl_status st =
        path ? pl_file_write_atomic(path, text, n, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(path);
    return st;
}

static pl_status write_tensors(const char *dir, const tensors *ts, pl_err *err) {
    static const pl_st_pair format = {"format", "pt"}; // without which transformers refuses a file
    char                   *path = pl_path_join(dir, "model.safetensors");
    pl_status               st =
        path ? pl_st_write(path, ts->t, ts->n, &format, 1, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(path);
    return st;
}

static pl_status write_factors(const char *dir, const tensors *factors, pl_err *err) {
    char     *sub = pl_path_join(dir, "factors");
    pl_status st = sub ? pl_dir_make(sub, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK) st = write_tensors(sub, factors, err);
    pl_free(sub);
    return st;
}

static pl_status write_config(const char *dir, const pl_export *e, const pl_export_engine *engine, pl_err *err) {
    pl_json_out o;
    pl_json_out_begin(&o, 2);
    pl_json_out_object(&o);
    (pl_export_is_block(e) ? engine->blocks->config : engine->config)(&o, e);
    pl_json_out_close(&o, '}');
    PL_TRY(pl_json_out_end(&o, err));
    pl_status st = write_text(dir, "config.json", o.text, o.len, err);
    pl_free(o.text);
    return st;
}

static pl_status write_more(const char *temp, const char *dir, const pl_export *e, const pl_export_engine *engine,
                            pl_err *err) {
    char     *text = engine->more_text(e, dir);
    pl_status st = text ? write_text(temp, engine->more, text, strlen(text), err)
                        : pl_fail(err, PL_E_MEMORY, "export: out of memory");
    pl_free(text);
    return st;
}

static pl_status make_runnable(const char *path, pl_err *err) {
    struct stat s;
    if (stat(path, &s) == 0 && chmod(path, (s.st_mode & 0777) | (s.st_mode & 0444) >> 2) == 0) return PL_OK;
    return pl_fail(err, PL_E_IO, "%s: %s", path, strerror(errno));
}

static pl_status write_serve(const char *dir, const char *command, pl_err *err) {
    char     *text = pl_sprintf("#!/bin/sh\nexec %s \"$@\"\n", command), *path = pl_path_join(dir, "serve.sh");
    pl_status st = text && path ? write_text(dir, "serve.sh", text, strlen(text), err)
                                : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK) st = make_runnable(path, err);
    pl_free(path);
    pl_free(text);
    return st;
}

// What finds it from any folder; the caller's.
static pl_status from_root(char **out, const char *path, pl_err *err) {
    char here[4096];
    if (*path != '/' && !getcwd(here, sizeof here))
        return pl_fail(err, PL_E_IO, "%s: the folder that it is looked for in: %s", path, strerror(errno));
    *out = *path == '/' ? pl_strdup(path) : pl_path_join(here, path);
    return *out ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
}

// What the engines' folders hold.
static const char *const written[] = {"config.json", "model.safetensors", "serve.sh", "trtllm.yaml",
                                      "factors/",    "drafter.gguf",      NULL};

// Whether it is what write_serve writes: two lines.
static bool is_serve(const char *front, size_t n) {
    static const char first[] = "#!/bin/sh\nexec ", last[] = " \"$@\"\n";
    const size_t      head = sizeof first - 1, tail = sizeof last - 1;
    return n > head + tail && memcmp(front, first, head) == 0 && memcmp(front + n - tail, last, tail) == 0 &&
           memchr(front + head, '\n', n - head) == front + n - 1;
}

static pl_status check_serve(const char *dir, pl_err *err) {
    char *path = pl_path_join(dir, "serve.sh");
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_status st = pl_file_spares(path, is_serve, "--out", err);
    pl_free(path);
    return st;
}

pl_status pl_export_write(const pl_export_engine *engine, const char *checkpoint, const char *target, const char *dir,
                          bool f32, const pl_env *env, char **serve, pl_err *err) {
    pl_export     e = {.checkpoint = checkpoint, .target = target, .f32 = f32};
    tensors      *ts = pl_calloc(2, sizeof *ts);
    pl_atomic_dir out = {0};
    char         *quoted = NULL, *served = NULL, *place = NULL;
    pl_status     st = ts ? PL_OK : pl_fail(err, PL_E_MEMORY, "export: out of memory");
    *serve = NULL;
    if (st != PL_OK) return st;
    if (f32 && !engine->write)
        PL_TRY_GOTO(st, done,
                    pl_fail(err, PL_E_USAGE, "--weights fp32: %s takes weights as they are stored", engine->name));
    PL_TRY_GOTO(st, done, open_export(&e, engine, err));
    PL_TRY_GOTO(st, done, list_tensors(&ts[0], &ts[1], &e, engine, env, err));
    PL_TRY_GOTO(st, done, from_root(&place, dir, err));
    if (target) PL_TRY_GOTO(st, done, from_root(&served, target, err));
    quoted = pl_export_quote(place);
    e.served = pl_export_quote(target ? served : "TARGET");
    if (quoted && e.served) *serve = (pl_export_is_block(&e) ? engine->blocks->serve : engine->serve)(&e, quoted);
    if (!*serve) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "export: out of memory"));
    if (pl_path_same(dir, checkpoint) || (target && pl_path_same(dir, target)))
        PL_TRY_GOTO(st, done, pl_fail(err, PL_E_INPUT, "--out %s: is what is read; give another folder", dir));
    PL_TRY_GOTO(st, done, pl_dir_spares(dir, "serve.sh", written, err));
    PL_TRY_GOTO(st, done, check_serve(dir, err));
    PL_TRY_GOTO(st, done, pl_atomic_dir_begin(&out, dir, err));
    const char *temp = pl_atomic_dir_path(&out);
    if (engine->write) {
        st = engine->write(&e, ts[0].t, ts[0].n, temp, err);
    } else {
        st = write_config(temp, &e, engine, err);
        if (st == PL_OK) st = write_tensors(temp, &ts[0], err);
    }
    if (st == PL_OK && ts[1].n) st = write_factors(temp, &ts[1], err);
    if (st == PL_OK && engine->more) st = write_more(temp, place, &e, engine, err);
    if (st == PL_OK) st = write_serve(temp, *serve, err);
    if (st == PL_OK) st = pl_dir_spares(dir, "serve.sh", written, err); // what came meanwhile
    if (st == PL_OK)
        st = pl_atomic_dir_commit(&out, err);
    else
        pl_atomic_dir_abort(&out);
done:
    if (st != PL_OK) {
        pl_free(*serve);
        *serve = NULL;
    }
    close_export(&e);
    pl_free(e.served);
    pl_free(quoted);
    pl_free(served);
    pl_free(place);
    pl_free(ts[0].head);
    pl_free(ts[0].map);
    pl_free(ts);
    return st;
}
