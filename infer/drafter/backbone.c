#include "infer/drafter/backbone.h"

#include "infer/head/draft_vocab.h"
#include "infer/head/settings.h"
#include "infer/head/stopping.h"
#include "infer/model/llama_params.h"

#include "kernels/base/files.h"
#include "kernels/op/elementwise.h"

#include <stdio.h>
#include <string.h>

#define PL_BACKBONE(name) extern const pl_backbone_kind pl_backbone_##name;
#include "infer/drafter/backbones.def"
#undef PL_BACKBONE
#define PL_BACKBONE(name) &pl_backbone_##name,
static const pl_backbone_kind *const kinds[] = {
#include "infer/drafter/backbones.def"
};
#undef PL_BACKBONE
enum {
    KINDS = sizeof kinds / sizeof *kinds,
    MAX_PARAMS = 32 + PL_SELECTOR_PARAMS,
    LAYER_PARAMS = 16,
    DRAFT_PARAMS = 4, // and two for each layer
};

// Returns choice i: kind names first, then aliases (EAGLE-2 is EAGLE-1's model with its own tree).
static const pl_backbone_kind *choice_at(int i, bool *alias) {
    *alias = i >= KINDS;
    if (i < KINDS) return kinds[i];
    for (int k = 0, n = KINDS; k < KINDS; k++)
        if (kinds[k]->alias && n++ == i) return kinds[k];
    return NULL;
}

const char *pl_backbone_choice(int i) {
    bool                    alias;
    const pl_backbone_kind *kind = choice_at(i, &alias);
    return !kind ? NULL : alias ? kind->alias : kind->name;
}

const pl_backbone_kind *pl_backbone_at(int i) {
    bool alias;
    return choice_at(i, &alias);
}

const char *pl_backbone_tree(int i) {
    bool                    alias;
    const pl_backbone_kind *kind = choice_at(i, &alias);
    return kind && alias ? kind->alias_tree : NULL;
}

const pl_backbone_kind *pl_backbone_find(const char *name) {
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
    return NULL;
}

bool pl_backbone_in_blocks(const pl_backbone_kind *k) {
    return k->draft && !k->step;
}

pl_tensor pl_backbone_context(pl_ctx *ctx, const pl_backbone *b, const pl_block_view *view, int64_t n) {
    bool reads = b->head.selector.candidates > 0 && b->head.selector.kind->blocks;
    return reads ? b->kind->context(ctx, b, pl_gather(ctx, view->features, view->anchor, n)) : (pl_tensor){0};
}

void pl_backbone_slot_row(const pl_backbone *b, const pl_kv *kv, pl_kvrow *row, int64_t m, int32_t anchor, int32_t at) {
    pl_kv_row(kv, row, m, anchor, NULL, b->block, at);
    for (int l = 0; l < b->layers; l++)
        if (pl_hf_causal_in(&b->config, l)) row[l * m].n_path = at - anchor + 1;
}

// A block's context has keys of its own features alone; a row of `step` has those of what it saw in the layer below.
pl_kv_window pl_backbone_window(const pl_backbone *b, int most) {
    int w = b->config.sliding_window;
    for (int l = 0; l < b->layers; l++)
        if (!pl_hf_windowed(&b->config, l)) return (pl_kv_window){0};
    return (pl_kv_window){.seen = w, .most = most, .refill = (pl_backbone_in_blocks(b->kind) ? 1 : b->layers) * w};
}

void pl_backbone_windows(pl_hf_config *c, const pl_backbone_options *o) {
    pl_hf_set_window(c, o->window);
    if (!o->like_windows) return;
    c->sliding_window = o->like_windows->sliding_window;
    memcpy(c->windowed, o->like_windows->windowed, sizeof c->windowed);
    c->block.causal = o->like_windows->block.causal;
}

const char *pl_backbone_name(const pl_backbone *b) {
    return b->kind->name;
}

// Lets the head draft with the target's own output matrix.
static pl_status share_target(pl_backbone *b, const pl_llama *target, pl_err *err) {
    if (target->comm)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "the drafter drafts by the target's own head, which lies over %d ranks; take a drafter with a "
                       "head of its own, or run without --tensor-parallel",
                       pl_comm_ranks(target->comm));
    if (b->config.draft_vocab_size && b->config.draft_vocab_size != target->vocab)
        return pl_fail(
            err, PL_E_UNSUPPORTED,
            "the drafter states a draft_vocab_size of %d, but drafts by the target's own matrix, which is not "
            "trimmed",
            b->config.draft_vocab_size);
    pl_head_share(&b->head, target->head);
    return PL_OK;
}

static pl_status init_selector(pl_backbone *b, int64_t draft_vocab, pl_err *err) {
    if (b->config.selector.candidates > 0 && b->head.kind->over_target)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "a head of kind \"%s\" reads the token before itself and has no selector; take another head",
                       b->head.kind->name);
    PL_TRY(pl_selector_init(&b->head.selector, &b->config.selector, b->shape.d, draft_vocab,
                            b->kind->context ? b->drafts : 0, err));
    b->head.selector.norm_eps = b->shape.eps;
    if (b->head.position_aware && b->head.selector.candidates > 0 && b->head.selector.kind->blocks)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "a %s selector needs candidates in every slot, and a position_aware head reads fewer rows in "
                       "later ones; take one of the two",
                       b->head.selector.kind->name);
    return PL_OK;
}

// Checks that the head and the kind allow the drafter its own embeddings.
static pl_status check_own_embed(const pl_backbone *b, pl_err *err) {
    bool wide = b->config.hidden_size != b->d_target;
    if (!b->own_embed && !wide) return PL_OK;
    if (!b->kind->embeds || !b->own_embed)
        return pl_fail(
            err, PL_E_UNSUPPORTED,
            "an %s drafter of width %d for a target of width %lld: it takes the target's embeddings and width",
            b->kind->name, b->config.hidden_size, (long long)b->d_target);
    if (b->head.kind->routed || (wide && b->head.kind->shortlisted))
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "a %s head reads the target's %s, this drafter has its own; take a full or lowrank head",
                       b->head.kind->name, b->head.kind->routed ? "embeddings" : "rows");
    return PL_OK;
}

pl_status pl_backbone_reach(const pl_backbone *b, int64_t positions, pl_err *err) {
    pl_backbone *grown = (pl_backbone *)(uintptr_t)b; // const away: only the tables grow
    pl_hf_config c = b->config;
    c.max_position_embeddings = b->positions;
    return pl_rope_reach(&grown->cos, &grown->sin, &grown->rope, &c, positions, b->real, b->params.memory, err);
}

// Adds the heads of all drafts but the first. Their tensors have the first head's names behind their number.
static pl_status add_heads(pl_backbone *b, int64_t vd, pl_err *err) {
    pl_params *ps = &b->params;
    b->more = pl_calloc((size_t)b->drafts, sizeof *b->more);
    if (!b->more) return pl_fail(err, PL_E_MEMORY, "drafter: out of memory");
    for (int k = 1; k < b->drafts; k++) {
        pl_head *h = &b->more[k - 1];
        PL_TRY(pl_head_init(h, &b->config.head, b->shape.d, vd, err));
        int first = ps->n;
        h->kind->params(h, ps);
        for (int i = first; i < ps->n; i++) {
            char name[64];
            snprintf(name, sizeof name, "%.63s", ps->p[i].name[0]);
            snprintf(ps->p[i].name[0], sizeof ps->p[i].name[0], "heads.%d.%s", k, name);
        }
    }
    return PL_OK;
}

static pl_status init_backbone(pl_backbone **out, const pl_backbone_kind *kind, const pl_hf_config *c, bool own_embed,
                               const pl_llama *target, const pl_backend *be, pl_err *err) {
    *out = NULL;
    pl_backbone *b = pl_calloc(1, kind->size);
    if (!b) return pl_fail(err, PL_E_MEMORY, "drafter: out of memory");
    *b = (pl_backbone){.kind = kind, .config = *c, .d_target = target->shape.d, .own_embed = own_embed};
    if (!own_embed) b->embed = target->embed;
    b->embed.grad = NULL; // frozen
    b->layers = c->num_hidden_layers;
    b->block = c->block.size;
    b->first = b->block > 0 && !c->block.anchor_first;
    b->drafts = b->block - b->first;
    b->masks = kind->ahead ? b->block - 1 : b->block;
    int64_t vd = c->draft_vocab_size ? c->draft_vocab_size : c->vocab_size;
    b->real = be->real;
    b->positions = c->max_position_embeddings; // published heads state fewer positions than their target has and meet
                                               // longer texts
    if (b->positions < target->config.max_position_embeddings) b->positions = target->config.max_position_embeddings;
    pl_status st;
    PL_TRY_GOTO(st, fail, pl_layer_shape_from_config(&b->shape, c, err));
    b->shape.kv = target->shape.kv;
    PL_TRY_GOTO(st, fail, pl_head_init(&b->head, &c->head, b->shape.d, vd, err));
    b->head.slots = b->block;
    if (b->head.acceptance && kind->draft)
        PL_TRY_GOTO(st, fail,
                    pl_fail(err, PL_E_INPUT,
                            "drafter.head.acceptance: %s drafts blocks, this is of drafters that go token after token",
                            kind->name));
    PL_TRY_GOTO(st, fail, check_own_embed(b, err));
    PL_TRY_GOTO(st, fail, init_selector(b, vd, err));
    if (c->target_head || b->head.kind->over_target) PL_TRY_GOTO(st, fail, share_target(b, target, err));
    size_t tensors = PL_EXPERT_TENSORS * (size_t)c->experts;
    if (tensors > 0 && !(b->expert = pl_calloc(tensors, sizeof *b->expert)))
        PL_TRY_GOTO(st, fail, pl_fail(err, PL_E_MEMORY, "drafter: out of memory"));
    PL_TRY_GOTO(
        st, fail,
        pl_params_init(&b->params,
                       MAX_PARAMS + LAYER_PARAMS * b->layers + (DRAFT_PARAMS + 2 * b->layers) * b->block + (int)tensors,
                       err));
    b->params.memory = be->memory;
    kind->init(b);
    b->head_param = b->params.n;
    b->head.kind->params(&b->head, &b->params);
    pl_stopping_params(&b->head, &b->params);
    if (kind->own_heads) PL_TRY_GOTO(st, fail, add_heads(b, vd, err));
    b->selector_param = b->params.n;
    pl_selector_params(&b->head.selector, &b->params, b->shape.d, c->vocab_size, vd);
    PL_TRY_GOTO(st, fail, pl_backbone_reach(b, 1, err));
    *out = b;
    return PL_OK;
fail:
    pl_backbone_destroy(b);
    return st;
}

pl_status pl_backbone_check_taps(const int *tap, int n, int n_layers, const char *where, pl_err *err) {
    if (n < 1) return pl_fail(err, PL_E_INPUT, "%s: no tap layers are given", where);
    for (int i = 0; i < n; i++)
        if (tap[i] < 0 || tap[i] > n_layers)
            return pl_fail(err, PL_E_INPUT, "%s: tap layer %d does not exist, the target has %d layers", where, tap[i],
                           n_layers);
    return PL_OK;
}

// Refuses a head that needs a token list, most frequent first, when none is given.
static pl_status check_listed(const pl_backbone_options *o, pl_err *err) {
    const char *asks = pl_head_wants_list(&o->head);
    if (!asks || o->d2t) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "drafter.head.%s: all tokens are drafted, in order of their ids; give a list",
                   asks);
}

void pl_backbone_taps(pl_taps *t, const pl_hf_config *c, int n_layers) {
    const pl_backbone_kind *kind = pl_backbone_find(pl_hf_backbone_name(c));
    *t = (pl_taps){0};
    if (kind && kind->taps) kind->taps(t, c, n_layers);
}

void pl_backbone_like(pl_backbone_options *o, const pl_hf_config *c) {
    pl_taps t = {0};
    if (c->n_taps > 0) pl_backbone_taps(&t, c, 0);
    o->n_taps = t.n;
    memcpy(o->tap, t.layer, sizeof t.layer);
    o->width = c->hidden_size;
    o->inter = c->intermediate_size;
    o->layers = c->num_hidden_layers;
    o->block = c->block.size;
    o->mask_token = c->block.mask_token;
    o->like_windows = c;
    o->anchor_first = c->block.anchor_first;
    o->conv_taps = c->block.taps;
    o->conv_group = c->block.group;
    o->fc_norm = c->fc_norm;
    o->norm_before_fc = c->norm_before_fc;
    o->norm_output = c->norm_output;
    o->norm_before_residual = c->norm_before_residual;
}

static pl_status check_config(const pl_backbone_kind *kind, pl_hf_config *c, const pl_llama *target, const char *where,
                              pl_err *err) {
    int most = kind->layers ? kind->layers : 1;
    if (c->num_hidden_layers > most)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: num_hidden_layers %d, an %s drafter has at most %d", where,
                       c->num_hidden_layers, kind->name, most);
    if (c->sliding_window > 0 && !kind->windows)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: a sliding window, which an %s drafter has not", where, kind->name);
    return kind->check(c, target, where, err);
}

// Resizes a layer to another width: heads of the same size, a proportional number of key/value groups, and a
// proportional MLP. transformers accepts only widths that are divisible by the number of heads.
static pl_status resize_layer(pl_hf_config *c, int width, pl_err *err) {
    int group = c->num_attention_heads / c->num_key_value_heads, was = c->hidden_size;
    int groups = (2 * c->num_key_value_heads * width + was) / (2 * was);
    while (groups > 1 && width % (groups * group) != 0)
        groups--;
    if (width % group != 0)
        return pl_fail(err, PL_E_INPUT, "drafter.width: %d, give a multiple of %d, the target's heads to a key", width,
                       group);
    c->num_key_value_heads = groups > 0 ? groups : 1;
    c->num_attention_heads = c->num_key_value_heads * group;
    c->intermediate_size = (int)(((int64_t)c->intermediate_size * width / was + 15) / 16 * 16);
    c->hidden_size = width;
    return PL_OK;
}

pl_status pl_backbone_create(pl_backbone **out, const pl_backbone_kind *kind, const pl_llama *target,
                             const pl_backbone_options *o, const pl_backend *be, pl_err *err) {
    *out = NULL;
    pl_hf_config c = target->config;
    c.backbone = kind->which;
    if (kind->which == PL_HF_OTHER) {
        snprintf(c.backbone_name, sizeof c.backbone_name, "%s", kind->name);
        snprintf(c.architecture, sizeof c.architecture, "PacelineDrafter");
    }
    snprintf(c.model_type, sizeof c.model_type, "llama");
    c.head = o->head;
    if (!*c.head.kind) strcpy(c.head.kind, "full");
    if (!pl_head_find(c.head.kind, err)) return PL_E_INPUT;
    c.num_hidden_layers = 1;
    bool other = o->width > 0 && o->width != target->shape.d;
    if (other) PL_TRY(resize_layer(&c, o->width, err));
    if (o->inter) c.intermediate_size = o->inter;
    c.tie_word_embeddings = false;
    pl_hf_config_plain(&c); // a drafter's layer is Llama's, whatever the target's family
    c.dtype = PL_BF16;
    c.selector = o->selector;
    pl_selector_settle(&c.selector, c.hidden_size, c.vocab_size);
    kind->configure(&c, target, o);
    if (c.target_head && pl_head_any_setting(&o->head))
        return pl_fail(
            err, PL_E_INPUT,
            "drafter.head.%s: the target's own matrix has nothing beside it; give drafter.head.frozen: false",
            pl_head_any_setting(&o->head));
    if (o->d2t) c.draft_vocab_size = (int)o->draft_vocab;
    PL_TRY(check_config(kind, &c, target, kind->draft ? "drafter" : "drafter.taps", err));
    if (o->d2t && (c.target_head || pl_head_find(c.head.kind, NULL)->over_target))
        return pl_fail(err, PL_E_INPUT,
                       "drafter.head.vocab: the target's own matrix is not trimmed; give "
                       "drafter.head.frozen: false");
    PL_TRY(init_backbone(out, kind, &c, o->own_embed || other, target, be, err));
    pl_status st = check_listed(o, err);
    if (st != PL_OK) {
        pl_backbone_destroy(*out);
        *out = NULL;
        return st;
    }
    if (!o->d2t) return PL_OK;
    pl_head *h = &(*out)->head;
    h->d2t = pl_malloc((size_t)o->draft_vocab * sizeof *h->d2t);
    if (h->d2t) {
        memcpy(h->d2t, o->d2t, (size_t)o->draft_vocab * sizeof *h->d2t);
        return PL_OK;
    }
    pl_backbone_destroy(*out);
    *out = NULL;
    return pl_fail(err, PL_E_MEMORY, "drafter: out of memory");
}

// Refuses a drafter of another target, at the first size that differs.
static pl_status check_fits(const pl_hf_config *c, const pl_llama *target, const char *dir, pl_err *err) {
    int64_t dt = c->target_hidden_size ? c->target_hidden_size : c->hidden_size;
    if (dt != target->shape.d)
        return pl_fail(err, PL_E_INPUT,
                       "%s: made for a target of width %lld, this one has %lld; use the drafter's own "
                       "target",
                       dir, (long long)dt, (long long)target->shape.d);
    if (c->vocab_size != target->vocab)
        return pl_fail(err, PL_E_INPUT,
                       "%s: made for a vocabulary of %d, the target has %lld; use the drafter's own "
                       "target",
                       dir, c->vocab_size, (long long)target->vocab);
    return PL_OK;
}

// Returns true for tensors that this head stores beside its weights.
static bool head_has(const pl_head *h, const char *tensor) {
    const char *table = h->kind->table ? h->kind->table->name : NULL;
    return (table && strcmp(tensor, table) == 0) || (h->redistribute > 0 && strcmp(tensor, PL_OUTSIDE_TENSOR) == 0);
}

// Refuses a tensor that the model does not have: the file then holds another model.
static pl_status check_claimed(const pl_backbone *b, const pl_weight_source *src, const char *dir, pl_err *err) {
    enum { NAMES = 64 };
    const char *name[NAMES];
    int64_t     n;
    if (!b->kind->ignores) return PL_OK;
    PL_TRY(pl_params_check(&b->params, src, err)); // missing tensors are reported before unexpected ones
    PL_TRY(pl_params_unclaimed(&b->params, src, name, NAMES, &n, err));
    for (int64_t i = 0; i < n && i < NAMES; i++)
        if (!b->kind->ignores(name[i]) && !head_has(&b->head, name[i]))
            return pl_fail(err, PL_E_UNSUPPORTED,
                           "%s: tensor \"%.80s\": an %s drafter as its config.json has it has none", dir, name[i],
                           pl_backbone_name(b));
    return PL_OK;
}

// A list of all tokens counts as a list: it gives the order of the head's rows.
static bool has_list(const pl_backbone *b, const pl_weight_source *src, const pl_llama *target) {
    return b->head.vocab < target->vocab || b->head.kind->table ||
           (!b->head.shared && pl_weight_source_find(src, "d2t"));
}

static pl_status read_outside(pl_backbone *b, const pl_weight_source *src, int64_t vocab, const char *dir,
                              pl_err *err) {
    pl_head *h = &b->head;
    if (!h->d2t)
        return pl_fail(err, PL_E_INPUT,
                       "%s: paceline.head.redistribute is for a trimmed draft vocabulary, this is whole", dir);
    return pl_outside_read(&h->outside, h->redistribute, src, vocab, h->d2t, h->vocab, err);
}

// Loads the weights of a drafter whose opening came to st; else closes src and destroys b. b may be NULL.
static pl_status finish_open(pl_backbone **out, pl_backbone *b, pl_weight_source *src, pl_dtype t, pl_status st,
                             pl_err *err) {
    if (st == PL_OK)
        st = pl_params_load(&b->params, src, t, err); // which takes src over
    else
        pl_weight_source_close(src);
    if (st == PL_OK)
        *out = b;
    else
        pl_backbone_destroy(b);
    return st;
}

pl_status pl_backbone_open(pl_backbone **out, const char *dir, const pl_llama *target, pl_dtype t, pl_err *err) {
    *out = NULL;
    pl_hf_config      c;
    pl_weight_source *src = NULL;
    pl_backbone      *b = NULL;
    pl_status         st;
    PL_TRY(pl_hf_config_read(&c, dir, PL_HF_DRAFTER, err));
    const pl_backbone_kind *kind = pl_backbone_find(pl_hf_backbone_name(&c));
    if (!kind)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: its backbone \"%s\" is not known here", dir,
                       pl_hf_backbone_name(&c));
    PL_TRY(check_fits(&c, target, dir, err));
    PL_TRY(check_config(kind, &c, target, dir, err));
    PL_TRY(pl_weight_source_open(&src, dir, err));
    bool own = kind->embeds && (c.hidden_size != target->shape.d || pl_weight_source_find(src, PL_BACKBONE_EMBED));
    PL_TRY_GOTO(st, done, init_backbone(&b, kind, &c, own, target, target->be, err));
    PL_TRY_GOTO(st, done, check_claimed(b, src, dir, err));
    if (b->head.kind->table) PL_TRY_GOTO(st, done, b->head.kind->table->read(&b->head, src, err));
    if (has_list(b, src, target))
        PL_TRY_GOTO(st, done, pl_draft_vocab_read(&b->head.d2t, src, b->head.vocab, target->vocab, err));
    if (b->head.position_aware && !b->head.d2t)
        PL_TRY_GOTO(st, done,
                    pl_fail(err, PL_E_INPUT,
                            "%s: paceline.head.position_aware is for a trimmed draft vocabulary, most frequent token "
                            "first, this is whole; train it anew with drafter.head.vocab",
                            dir));
    if (b->head.redistribute > 0) PL_TRY_GOTO(st, done, read_outside(b, src, target->vocab, dir, err));
done:
    return finish_open(out, b, src, t, st, err);
}

// Refuses tensors of a target's own drafter that this one does not have: further layers, embeddings of its own.
static pl_status check_own_tensors(const pl_backbone *b, const pl_weight_source *src, const char *path, pl_err *err) {
    const char  *first = b->params.p[0].name[0];
    size_t       prefix = strcspn(first, ".") + 1;
    int64_t      n = 0;
    const char **name = pl_malloc((size_t)pl_weight_source_count(src) * sizeof *name);
    pl_status    st = name ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    if (st == PL_OK) st = pl_params_unclaimed(&b->params, src, name, pl_weight_source_count(src), &n, err);
    for (int64_t i = 0; i < n && st == PL_OK; i++)
        if (strncmp(name[i], first, prefix) == 0)
            st = pl_fail(err, PL_E_UNSUPPORTED,
                         "%s: tensor \"%.80s\": the layer for drafting has none here; take another drafter", path,
                         name[i]);
    pl_free(name);
    return st;
}

pl_status pl_backbone_open_within(pl_backbone **out, const pl_backbone_kind *kind, const pl_llama *target, pl_dtype t,
                                  pl_err *err) {
    pl_hf_config      stored, c = target->config;
    pl_weight_source *src;
    pl_backbone      *b = NULL;
    pl_status         st;
    *out = NULL;
    if (!target->path)
        return pl_fail(err, PL_E_INPUT, "drafter %s: the target has random weights and no files", kind->name);
    kind->configure(&c, target, NULL);
    PL_TRY(pl_llama_computable(&c, target->be, err));
    PL_TRY(pl_llama_source(&src, &stored, target->path, err));
    PL_TRY_GOTO(st, done, check_config(kind, &c, target, target->path, err));
    PL_TRY_GOTO(st, done, init_backbone(&b, kind, &c, false, target, target->be, err));
    if (!pl_weight_source_find(src, b->params.p[0].name[0]))
        PL_TRY_GOTO(st, done,
                    pl_fail(err, PL_E_INPUT, "%s: has no layer for drafting (no tensor %s); take another drafter",
                            target->path, b->params.p[0].name[0]));
    PL_TRY_GOTO(st, done, pl_params_check(&b->params, src, err));
    PL_TRY_GOTO(st, done, check_own_tensors(b, src, target->path, err));
done:
    return finish_open(out, b, src, t, st, err);
}

// Returns what of another checkpoint's drafter differs beside its weights; NULL: nothing.
static const char *differs(const pl_backbone *a, const pl_backbone *b) {
    const pl_head *g = &a->head, *h = &b->head;
    size_t         list = (size_t)g->vocab * sizeof *g->d2t;
    if (memcmp(&a->config, &b->config, sizeof a->config) != 0 || a->params.block_bytes != b->params.block_bytes)
        return "its config.json";
    if (!g->d2t != !h->d2t || (g->d2t && memcmp(g->d2t, h->d2t, list) != 0)) return "the list of tokens that it drafts";
    if (g->outside.on || h->outside.on) return "what it redistributes";
    if (!g->kind->table) return NULL;
    pl_st_source x = g->kind->table->stored(g), y = h->kind->table->stored(h);
    size_t       bytes = pl_dtype_size(x.dtype);
    for (int i = 0; i < x.rank; i++)
        bytes *= (size_t)x.shape[i];
    bool same = memcmp(x.shape, y.shape, sizeof x.shape) == 0 && memcmp(x.data, y.data, bytes) == 0;
    return same ? NULL : g->kind->table->name;
}

static pl_status copy_block(pl_params *to, const pl_params *from, pl_err *err) {
    uint8_t *host = pl_malloc(from->block_bytes);
    if (!host) return pl_fail(err, PL_E_MEMORY, "a drafter's weights: out of memory");
    pl_status st = pl_memory_read(from->memory, host, from->block, from->block_bytes, err);
    if (st == PL_OK) st = pl_memory_write(to->memory, to->block, host, to->block_bytes, err);
    pl_free(host);
    return st;
}

// Exchanges the files, and the embeddings that are views of them.
static void swap_views(pl_params *a, pl_params *b) {
    pl_weight_source *src = a->src;
    a->src = b->src;
    b->src = src;
    for (int i = 0; i < a->n; i++) {
        if (a->p[i].owned || b->p[i].owned) continue;
        pl_tensor view = *a->p[i].tensor;
        *a->p[i].tensor = *b->p[i].tensor;
        *b->p[i].tensor = view;
    }
}

pl_status pl_backbone_retake(pl_backbone *b, const char *dir, const pl_llama *target, pl_dtype t, pl_err *err) {
    pl_backbone *other;
    PL_TRY(pl_backbone_open(&other, dir, target, t, err));
    const char *what = differs(b, other);
    pl_status   st = what ? pl_fail(err, PL_E_INPUT,
                                    "%s: %s differs from the drafter's, whose weights alone can be replaced", dir, what)
                          : copy_block(&b->params, &other->params, err);
    if (st == PL_OK) swap_views(&b->params, &other->params);
    pl_backbone_destroy(other);
    return st;
}

void pl_backbone_destroy(pl_backbone *b) {
    if (!b) return;
    pl_rope_fini(&b->rope, b->params.memory);
    pl_params_fini(&b->params);
    pl_head_fini(&b->head);
    for (int k = 1; b->more && k < b->drafts; k++)
        pl_head_fini(&b->more[k - 1]);
    pl_free(b->more);
    pl_free(b->expert);
    pl_free(b);
}

pl_status pl_backbone_write(const pl_backbone *b, const char *dir, const float *const *data, pl_dtype t, pl_err *err) {
    char                  *config = pl_path_join(dir, "config.json"), *model = pl_path_join(dir, "model.safetensors");
    pl_status              st = config && model ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_hf_config           c = b->config;
    pl_draft_vocab_tensors map = {0};
    pl_st_source           extra[4];
    int                    n_extra = 0;
    c.dtype = t;
    if (st == PL_OK) st = pl_hf_config_write(config, &c, err);
    if (st == PL_OK && b->head.d2t)
        st = pl_draft_vocab_tensors_init(&map, b->head.d2t, b->head.vocab, b->config.vocab_size, err);
    for (int i = 0; i < 2 && b->head.d2t; i++)
        extra[n_extra++] = map.tensor[i];
    if (b->head.outside.on) extra[n_extra++] = pl_outside_tensor(&b->head.outside);
    if (b->head.kind->table) extra[n_extra++] = b->head.kind->table->stored(&b->head);
    if (st == PL_OK) st = pl_params_write(&b->params, model, data, t, extra, n_extra, err);
    pl_draft_vocab_tensors_fini(&map);
    pl_free(config);
    pl_free(model);
    return st;
}

double pl_backbone_step_bytes(const pl_backbone *b, int depth) {
    const pl_tensor *skipped = b->kind->fuse_only ? b->kind->fuse_only(b) : NULL;
    double           layer = 0, head = 0;
    for (int i = 0; i < b->head_param; i++)
        if (b->params.p[i].tensor != skipped && b->params.p[i].tensor != &b->embed)
            layer += (double)b->params.p[i].owned_bytes;
    if (b->expert) // a row reads its own experts
        layer -= (b->config.experts - b->config.experts_per_token) *
                 (double)(pl_packed_bytes(b->expert) + pl_packed_bytes(b->expert + b->config.experts));
    for (int t = 0; t < depth; t++)
        head += pl_head_step_bytes(&b->head, t);
    return layer + (depth > 0 ? head / depth : 0);
}

pl_tensor pl_features(pl_ctx *ctx, const pl_llama_out *out, int n_taps) {
    pl_tensor f = out->tap[0];
    for (int i = 1; i < n_taps; i++)
        f = pl_concat(ctx, f, out->tap[i]);
    return pl_round(ctx, f);
}
