#include "infer/drafter/backbone.h"
#include "infer/export/rules.h"
#include "infer/head/draft_vocab.h"
#include "infer/model/llama.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"
#include "kernels/op/linear.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TENSORS 256
#define MERGED_ROWS 256 // rows of the product computed at a time
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

// ---- the drafter ----

const pl_export_map pl_export_offsets = {.type = PL_I64, .marks = true};

bool pl_export_skips_equal(int64_t layers, int64_t wide, int64_t width) {
    return layers * wide == width;
}

bool pl_export_is_block(const pl_export *e) {
    return e->config.backbone == PL_HF_DFLASH;
}

bool pl_export_is_parallel(const pl_export *e) {
    return e->config.backbone == PL_HF_PEAGLE;
}

static bool has_markov(const pl_export *e) {
    return strcmp(e->config.head.kind, "markov") == 0;
}

bool pl_export_is_xpress(const pl_export *e) {
    return pl_export_is_block(e) && strcmp(e->config.head.kind, "xpress") == 0;
}

bool pl_export_is_dspark(const pl_export *e) {
    return pl_export_is_block(e) && !pl_export_is_xpress(e) && (e->config.block.anchor_first || has_markov(e));
}

bool pl_export_is_lilicorr(const pl_export *e) {
    return pl_export_is_block(e) && pl_hf_is_lattice(&e->config.selector);
}

bool pl_export_is_second(const pl_export *e) {
    return pl_export_is_block(e) && !pl_export_is_lilicorr(e) &&
           (e->config.block.taps > 0 || e->config.selector.candidates > 0);
}

bool pl_export_is_causal(const pl_export *e) {
    for (int l = 0; l < e->config.num_hidden_layers; l++)
        if (!pl_hf_causal_in(&e->config, l)) return false;
    return true;
}

static void close_export(pl_export *e) {
    pl_weight_source_close(e->src);
    pl_weight_source_close(e->target_src);
    pl_free(e->served);
}

static pl_status read_map(pl_export *e, pl_err *err) {
    int32_t *d2t = NULL;
    int64_t  vocab = e->config.vocab_size;
    e->rows = e->config.draft_vocab_size ? e->config.draft_vocab_size : e->config.vocab_size;
    e->whole = e->rows == vocab;
    if (!pl_weight_source_find(e->src, "d2t"))
        return e->whole ? PL_OK
                        : pl_fail(err, PL_E_INPUT, "%s: has no d2t, and rows for %d of %lld tokens", e->checkpoint,
                                  e->rows, (long long)vocab);
    PL_TRY(pl_draft_vocab_read(&d2t, e->src, e->rows, vocab, err));
    for (int64_t i = 0; i < e->rows; i++)
        e->whole &= d2t[i] == i;
    pl_free(d2t);
    if (e->whole || e->rows < vocab) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED,
                   "%s: a head of all %lld tokens in another order than its target's, for which engines read no map",
                   e->checkpoint, (long long)vocab);
}

// Checks DFlash 2 as engines define it: both of its parts, none of DSpark's, and a head of all tokens.
static pl_status check_second(const pl_export *e, pl_err *err) {
    bool conv = e->config.block.taps > 0, selector = e->config.selector.candidates > 0;
    if (!conv || !selector)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: %s without %s; engines' DFlash 2 has both (drafter.%s)",
                       e->checkpoint, conv ? "convolutions" : "a selector", conv ? "a selector" : "convolutions",
                       conv ? "selector" : "conv");
    if (pl_export_is_dspark(e))
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: %s, which engines' DFlash 2 has not", e->checkpoint,
                       has_markov(e) ? "a markov head" : "blocks that draft from their anchor");
    int rows = e->config.draft_vocab_size;
    if (rows == 0 || rows == e->config.vocab_size) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED, "%s: a head of %d tokens; engines' DFlash 2 has all %d", e->checkpoint, rows,
                   e->config.vocab_size);
}

// Checks that the engine is given the windows and the directions of a block drafter's layers.
static pl_status check_sight(const pl_export *e, pl_err *err) {
    const pl_hf_config *c = &e->config;
    bool                causal = c->block.causal != PL_HF_CAUSAL_NONE, all = pl_export_is_causal(e);
    if (c->sliding_window > 0 && !e->engine->windows)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: layers with a sliding window, which %s is not given; export it to vllm", e->checkpoint,
                       e->engine->name);
    for (int l = 0; l < c->num_hidden_layers && causal; l++)
        if (!pl_hf_windowed(c, l) && pl_hf_causal_in(c, l))
            return pl_fail(err, PL_E_UNSUPPORTED,
                           "%s: causal blocks in a layer without a window, which engines do not agree on",
                           e->checkpoint);
    // vLLM takes speculators' member for all layers.
    if (!causal || all || !e->engine->inner) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED,
                   "%s: causal layers beside others, which %s' form cannot say; export it to vllm", e->checkpoint,
                   e->engine->name);
}

// Refuses drafters that the engine's form cannot express; all other refusals are rules of `check`.
static pl_status check_block(const pl_export *e, pl_err *err) {
    PL_TRY(check_sight(e, err));
    if (pl_export_is_lilicorr(e) && e->config.block.anchor_first)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: blocks that draft from their anchor, which engines' LiLiCorr has not", e->checkpoint);
    if (!e->targets_head && !e->engine->block_heads)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: a block drafter with a head of its own, where %s takes the target's; export it to "
                       "speculators",
                       e->checkpoint, e->engine->name);
    if (has_markov(e) && !e->config.block.anchor_first && e->engine->blocks == pl_rows_block)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: a markov head whose blocks do not draft from their anchor, which DSpark's form cannot say; "
                       "export it to speculators, or train with drafter.anchor_first",
                       e->checkpoint);
    return pl_export_is_second(e) ? check_second(e, err) : PL_OK;
}

static pl_status check_eagle3(const pl_export *e, pl_err *err) {
    const pl_hf_config *c = &e->config;
    const char         *lost = pl_export_lost_norm(e->engine, e->sort, pl_hf_norms(c));
    bool                by_vllm = lost && !pl_export_lost_norm(e->engine, PL_EXPORT_EAGLE3, pl_hf_norms(c));
    if (lost)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: trained with %s, which %s does not compute%s", e->checkpoint, lost,
                       e->engine->name, by_vllm ? " for P-EAGLE where vLLM reads it; export it to vllm" : "");
    if (c->sliding_window > 0)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: a sliding window in an EAGLE-3 head, which no engine knows; train without drafter.window",
                       e->checkpoint);
    if (c->selector.candidates > 0)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: a selector behind an EAGLE-3 head, which no engine knows",
                       e->checkpoint);
    if (pl_hf_head_find(&c->head, "acceptance"))
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: a head that predicts the acceptance of its drafts, which no engine knows; train without "
                       "drafter.head.acceptance",
                       e->checkpoint);
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

static pl_status check_kind(pl_export *e, pl_err *err) {
    static const char *const names[] = {"an EAGLE-3", "a P-EAGLE", "a block",   "a DFlash 2",
                                        "a DSpark",   "an xPress", "a LiLiCorr"};
    const pl_hf_config      *c = &e->config;
    const char              *kind = *c->head.kind ? c->head.kind : "full";
    bool                     block = pl_export_is_block(e);
    e->sort = pl_export_is_parallel(e)   ? PL_EXPORT_PEAGLE
              : !block                   ? PL_EXPORT_EAGLE3
              : pl_export_is_xpress(e)   ? PL_EXPORT_XPRESS
              : pl_export_is_lilicorr(e) ? PL_EXPORT_LILICORR
              : pl_export_is_dspark(e)   ? PL_EXPORT_DSPARK
              : pl_export_is_second(e)   ? PL_EXPORT_DFLASH2
                                         : PL_EXPORT_DFLASH;
    if (c->backbone != PL_HF_EAGLE3 && !pl_export_is_parallel(e) && !block)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: is an %s drafter; only eagle3, peagle and dflash are exported",
                       e->checkpoint, pl_hf_backbone_name(c));
    if (!e->engine->classes[e->sort])
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: %s drafter, which %s does not serve", e->checkpoint, names[e->sort],
                       e->engine->name);
    if (strcmp(kind, "full") != 0 && strcmp(kind, "lowrank") != 0 && !(block && has_markov(e)) &&
        !pl_export_is_xpress(e))
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: a %s head is no one matrix, as engines want it; export a full, trimmed or low-rank one",
                       e->checkpoint, kind);
    return block ? check_block(e, err) : check_eagle3(e, err);
}

static void take_fields(pl_export *e) {
    pl_hf_config       *c = &e->config;
    const pl_hf_config *t = &e->target_config;
    bool                block = pl_export_is_block(e);
    pl_taps             taps;
    if (c->target_hidden_size == 0) c->target_hidden_size = c->hidden_size;
    pl_backbone_taps(&taps, c, 0);
    e->n_taps = taps.n;
    memcpy(e->tap, taps.layer, sizeof taps.layer[0] * (size_t)taps.n);
    e->positions = t->max_position_embeddings > c->max_position_embeddings ? t->max_position_embeddings
                                                                           : c->max_position_embeddings;
    e->target_layers = c->block.target_layers ? c->block.target_layers : t->num_hidden_layers;
    e->tokens = block                      ? c->block.size - !c->block.anchor_first
                : pl_export_is_parallel(e) ? c->block.size
                                           : PL_EXPORT_TOKENS;
    e->markov_rank = has_markov(e) ? pl_hf_head_int(&c->head, "rank") : 0;
    e->markov_form = pl_hf_markov_name(pl_hf_markov_of(&c->head));
    e->refiner_rank = pl_export_is_xpress(e) ? (int)pl_hf_head_int(&c->head, "rank") : 0;
    e->refiner_ratio = (int)pl_hf_head_int(&c->head, "mlp_ratio");
    if (e->refiner_ratio == 0) e->refiner_ratio = PL_HF_REFINER_RATIO;
    e->passes = (int)pl_hf_head_int(&c->head, "passes");
    e->confidence = has_markov(e) && pl_hf_head_find(&c->head, "confidence");
    e->dtype = pl_hf_dtype_name(c->dtype);
}

static pl_status read_target(pl_export *e, pl_err *err) {
    const pl_export_file *file = e->engine->file;
    return file ? file->read_target(&e->target_config, e->target, err)
                : pl_llama_config(&e->target_config, e->target, err);
}

// Refuses a wrong target before tensors are read: the rules look at what is written.
static pl_status check_target(const pl_export *e, pl_err *err) {
    const pl_hf_config *c = &e->config, *t = &e->target_config;
    if (t->vocab_size != c->vocab_size || t->hidden_size != c->target_hidden_size)
        return pl_fail(err, PL_E_INPUT, "%s: vocabulary %d and width %d, the drafter was made for %d and %d", e->target,
                       t->vocab_size, t->hidden_size, c->vocab_size, c->target_hidden_size);
    for (int i = 0; i < e->n_taps; i++)
        if (e->tap[i] > t->num_hidden_layers)
            return pl_fail(err, PL_E_INPUT, "%s: has %d layers, the drafter reads the input of layer %d", e->target,
                           t->num_hidden_layers, e->tap[i]);
    return PL_OK;
}

static pl_status open_export(pl_export *e, pl_err *err) {
    const pl_export_engine *engine = e->engine;
    PL_TRY(pl_hf_config_read(&e->config, e->checkpoint, PL_HF_DRAFTER, err));
    e->targets_head = pl_export_is_block(e) && (!*e->config.head.kind || has_markov(e) || pl_export_is_xpress(e));
    PL_TRY(check_kind(e, err));
    if (!e->target && engine->wants_target)
        return pl_fail(err, PL_E_USAGE, "--target: is missing; %s", engine->wants_target);
    PL_TRY(pl_weight_source_open(&e->src, e->checkpoint, err));
    PL_TRY(read_map(e, err));
    if (e->target) PL_TRY(read_target(e, err));
    take_fields(e);
    if (e->target) PL_TRY(check_target(e, err));
    if (e->target && !engine->file) PL_TRY(pl_llama_source(&e->target_src, &e->target_config, e->target, err));
    e->own_embed = !pl_export_is_block(e) && pl_weight_source_find(e->src, PL_BACKBONE_EMBED);
    if (e->own_embed && e->config.hidden_size == e->config.target_hidden_size && !(engine->own & PL_EXPORT_OWN_SAME))
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: has embeddings of its own, in whose place %s takes the target's",
                       e->checkpoint, engine->name);
    return PL_OK;
}

// ---- tensors ----

typedef struct tensors {
    pl_st_source t[TENSORS + 2]; // two more: a head that is multiplied out, and d2t
    char         name[TENSORS + 2][128];
    int          n;
    uint8_t     *head; // multiplied out
    void        *map;  // d2t if it is not the checkpoint's
} tensors;

static pl_status add_tensor(tensors *ts, const char *name, const pl_weight_entry *w, pl_err *err) {
    if (ts->n == TENSORS) return pl_fail(err, PL_E_INPUT, "%s: more tensors than a drafter has", w->name);
    if (w->rope_heads) return pl_fail(err, PL_E_UNSUPPORTED, "%s: rows in another order than engines read", w->name);
    pl_st_source *s = &ts->t[ts->n];
    snprintf(ts->name[ts->n], sizeof ts->name[ts->n], "%s", name);
    *s = (pl_st_source){.name = ts->name[ts->n++]};
    pl_weight_copy(s, w);
    s->rank = pl_hf_pad(name, s->shape, s->rank);
    return PL_OK;
}

typedef struct product {
    const float *x, *w; // [MERGED_ROWS, r], [d, r]
    int64_t      n, d, r;
    pl_tensor    y;
} product;

static void multiply_rows(pl_ctx *ctx, void *arg) {
    product *p = arg;
    p->y =
        pl_linear(ctx, pl_tensor_2d((void *)p->x, PL_F32, p->n, p->r), pl_tensor_2d((void *)p->w, PL_F32, p->d, p->r));
}

// Adds the head up * down, [Vd, r] * [r, d], multiplied in fp32 and rounded once to the checkpoint's type.
static pl_status merge_head(tensors *ts, const pl_export *e, const pl_env *env, pl_err *err) {
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
    PL_TRY_GOTO(st, done, pl_ctx_measure(&ctx, multiply_rows, &p, err));
    for (int64_t at = 0; at < e->rows; at += MERGED_ROWS) {
        p.n = e->rows - at < MERGED_ROWS ? e->rows - at : MERGED_ROWS;
        PL_TRY_GOTO(st, done, pl_weight_read_rows(e->src, &up, at, p.n, rows, err));
        pl_ctx_begin(&ctx);
        multiply_rows(&ctx, &p);
        PL_TRY_GOTO(st, done, pl_ctx_sync(&ctx, err));
        pl_from_f32(ts->head + (size_t)(at * d) * pl_dtype_size(e->config.dtype), e->config.dtype, pl_f32(&p.y),
                    (size_t)(p.n * d));
    }
    pl_export_name(e->engine, pl_export_is_block(e), 1, "lm_head.weight", ts->name[ts->n], sizeof ts->name[ts->n]);
    ts->t[ts->n] = (pl_st_source){
        .name = ts->name[ts->n], .dtype = e->config.dtype, .rank = 2, .shape = {e->rows, d}, .data = ts->head};
    ts->n++;
done:
    pl_ctx_fini(&ctx);
    pl_free(rows);
    pl_free(wide);
    pl_free(across);
    return st;
}

static pl_status add_map(tensors *ts, const pl_export *e, pl_err *err) {
    const pl_export_map *m = e->engine->map;
    int32_t             *ids;
    PL_TRY(pl_draft_vocab_read(&ids, e->src, e->rows, e->config.vocab_size, err));
    ts->map = pl_malloc(pl_size_mul((size_t)e->rows, sizeof(int64_t), 1));
    for (int i = 0; ts->map && i < e->rows; i++) {
        int32_t v = ids[i] - (m->ids ? 0 : i);
        if (m->type == PL_I32)
            ((int32_t *)ts->map)[i] = v;
        else
            ((int64_t *)ts->map)[i] = v;
    }
    pl_free(ids);
    if (!ts->map) return pl_fail(err, PL_E_MEMORY, "%s: out of memory for d2t", e->checkpoint);
    ts->t[ts->n++] = (pl_st_source){.name = "d2t", .dtype = m->type, .rank = 1, .shape = {e->rows}, .data = ts->map};
    return PL_OK;
}

static bool begins(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}

bool pl_export_name(const pl_export_engine *engine, bool block, int64_t layers, const char *ours, char *out,
                    size_t size) {
    static const char norm[] = "input_layernorm.weight";
    int               layer = 0, skip = 0;
    if (engine->file) return engine->file->name(block, ours, out, size);
    if (!block && layers == 1 && begins(ours, LAYER))
        snprintf(out, size, "%s%s", engine->layer, ours + strlen(LAYER));
    else if (!block && sscanf(ours, "layers.%d.%n", &layer, &skip) == 1 && skip > 0 && layer > 0 &&
             engine->later_norm && strcmp(ours + skip, norm) == 0)
        snprintf(out, size, "%.*s%s", skip, ours, engine->later_norm);
    else
        snprintf(out, size, "%s", ours);
    return true;
}

// Adds a copy of the target's embeddings or of its head.
static pl_status add_target(tensors *ts, const pl_export *e, bool head, pl_err *err) {
    const char *as = head ? "lm_head.weight" : "embed_tokens.weight";
    if (pl_weight_source_find(e->src, as)) return PL_OK;
    const pl_weight_entry *w = pl_llama_matrix(e->target_src, &e->target_config, head);
    return w ? add_tensor(ts, as, w, err) : pl_fail(err, PL_E_INPUT, "%s: has no %s", e->target, as);
}

// Lists every tensor of the checkpoint under the engine's name; refuses unknown ones.
static pl_status list_tensors(tensors *ts, tensors *factors, const pl_export *e, const pl_env *env, pl_err *err) {
    bool block = pl_export_is_block(e), marks = e->engine->map->marks;
    for (int64_t i = 0; i < pl_weight_source_count(e->src); i++) {
        const pl_weight_entry *w = pl_weight_source_at(e->src, i);
        char                   name[128];
        if ((strcmp(w->name, "d2t") == 0 || strcmp(w->name, "t2d") == 0) && (e->whole || !marks)) continue;
        if (begins(w->name, "efficient_lm_head"))
            PL_TRY(add_tensor(factors, w->name, w, err));
        else if (pl_export_name(e->engine, block, e->config.num_hidden_layers, w->name, name, sizeof name))
            PL_TRY(add_tensor(ts, name, w, err));
        else
            return pl_fail(err, PL_E_INPUT, "%s: tensor \"%.80s\": none that %s reads", e->checkpoint, w->name,
                           e->engine->name);
    }
    if (factors->n) PL_TRY(merge_head(ts, e, env, err));
    if (!marks && !e->whole) PL_TRY(add_map(ts, e, err));
    if (!e->engine->copies) return PL_OK;
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
    static const pl_st_pair format = {"format", "pt"}; // transformers refuses a file without it
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

static pl_status write_config(const char *dir, const pl_export *e, pl_err *err) {
    pl_json_out o;
    pl_json_out_begin(&o, 2);
    pl_json_out_object(&o);
    pl_export_put_rows(&o, e, pl_export_is_block(e) ? e->engine->blocks : e->engine->rows);
    pl_json_out_close(&o, '}');
    PL_TRY(pl_json_out_end(&o, err));
    pl_status st = write_text(dir, "config.json", o.text, o.len, err);
    pl_free(o.text);
    return st;
}

static pl_status write_more(const char *temp, const char *dir, const pl_export *e, pl_err *err) {
    char     *text = e->engine->more_text(e, dir);
    pl_status st = text ? write_text(temp, e->engine->more, text, strlen(text), err)
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

// Writes the absolute path to *out, owned by the caller.
static pl_status make_absolute(char **out, const char *path, pl_err *err) {
    char here[4096];
    if (*path != '/' && !getcwd(here, sizeof here))
        return pl_fail(err, PL_E_IO, "%s: the folder that it is looked for in: %s", path, strerror(errno));
    *out = *path == '/' ? pl_strdup(path) : pl_path_join(here, path);
    return *out ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
}

// Files of exports.
static const char *const written[] = {"config.json", "model.safetensors", "serve.sh", "trtllm.yaml",
                                      "factors/",    "drafter.gguf",      NULL};

// Returns true for the two lines of write_serve.
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

// The first broken rule.
typedef struct refusal {
    const pl_export *e;
    char             rule[40], why[PL_CHECK_WHY];
} refusal;

static void note_verdict(void *arg, const pl_check_rule *rule, pl_check_verdict v, const char *why) {
    refusal *r = arg;
    bool     warns = rule->of & PL_CHECK_WARNS;
    if (v == PL_CHECK_HOLDS || (v == PL_CHECK_UNSEEN && !(warns && r->e->target))) return;
    if (warns) pl_log_warn("%s: %s", r->e->checkpoint, why);
    if (warns || *r->rule) return;
    snprintf(r->rule, sizeof r->rule, "%s", rule->name);
    snprintf(r->why, sizeof r->why, "%s", why);
}

// Checks the export by the rules for any folder.
static pl_status keep_rules(const pl_export *e, const char *dir, pl_err *err) {
    refusal r = {.e = e};
    PL_TRY(pl_check_each(e->engine, dir, e->target, note_verdict, &r, err));
    if (!*r.rule) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED, "%s: %s would not serve it as it was trained: %s: %s", e->checkpoint,
                   e->engine->name, r.rule, r.why);
}

// Writes all files into `temp`, which becomes `place`.
static pl_status write_files(const pl_export *e, const tensors *ts, const tensors *factors, const char *temp,
                             const char *place, const char *serve, pl_err *err) {
    if (e->engine->file) {
        PL_TRY(e->engine->file->write(e, ts->t, ts->n, temp, err));
    } else {
        PL_TRY(write_config(temp, e, err));
        PL_TRY(write_tensors(temp, ts, err));
    }
    PL_TRY(keep_rules(e, temp, err));
    if (factors->n) PL_TRY(write_factors(temp, factors, err));
    if (e->engine->more) PL_TRY(write_more(temp, place, e, err));
    return write_serve(temp, serve, err);
}

pl_status pl_export_write(const pl_export_engine *engine, const char *checkpoint, const char *target, const char *dir,
                          bool f32, const pl_env *env, char **serve, pl_err *err) {
    pl_export     e = {.engine = engine, .checkpoint = checkpoint, .target = target, .f32 = f32};
    tensors      *ts = pl_calloc(2, sizeof *ts);
    pl_atomic_dir out = {0};
    char         *quoted = NULL, *served = NULL, *place = NULL;
    pl_status     st = ts ? PL_OK : pl_fail(err, PL_E_MEMORY, "export: out of memory");
    *serve = NULL;
    if (st != PL_OK) return st;
    if (f32 && !engine->file)
        PL_TRY_GOTO(st, done,
                    pl_fail(err, PL_E_USAGE, "--weights fp32: %s takes weights as they are stored", engine->name));
    PL_TRY_GOTO(st, done, open_export(&e, err));
    PL_TRY_GOTO(st, done, list_tensors(&ts[0], &ts[1], &e, env, err));
    PL_TRY_GOTO(st, done, make_absolute(&place, dir, err));
    if (target) PL_TRY_GOTO(st, done, make_absolute(&served, target, err));
    quoted = pl_export_quote(place);
    e.served = pl_export_quote(target ? served : "TARGET");
    if (quoted && e.served) *serve = engine->serve(&e, quoted);
    if (!*serve) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "export: out of memory"));
    if (pl_path_same(dir, checkpoint) || (target && pl_path_same(dir, target)))
        PL_TRY_GOTO(st, done, pl_fail(err, PL_E_INPUT, "--out %s: is what is read; give another folder", dir));
    PL_TRY_GOTO(st, done, pl_dir_spares(dir, "serve.sh", written, err));
    PL_TRY_GOTO(st, done, check_serve(dir, err));
    PL_TRY_GOTO(st, done, pl_atomic_dir_begin(&out, dir, err));
    st = write_files(&e, &ts[0], &ts[1], pl_atomic_dir_path(&out), place, *serve, err);
    if (st == PL_OK) st = pl_dir_spares(dir, "serve.sh", written, err); // files that appeared meanwhile
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
    pl_free(quoted);
    pl_free(served);
    pl_free(place);
    pl_free(ts[0].head);
    pl_free(ts[0].map);
    pl_free(ts);
    return st;
}
