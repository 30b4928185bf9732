// llama.cpp's draft-eagle3 (src/models/eagle3.cpp, common/speculative.cpp): one GGUF file. Embeddings in it stand for
// the target's. It counts layers by their inputs and reads exactly three; the last layer's output is none of them,
// since its graphs leave that unfilled. d2t holds target ids, rows of queries and keys stand in pairs as Llama's do
// there, norms are fp32. The draft's vocabulary must be the target's, piece by piece: its keys are copied from the
// target's own file, which --target names.
//
// Blocks are its draft-dflash and draft-dspark (src/models/dflash.cpp), architecture dflash: any layers, as wide as the
// target; rows of queries and keys in our order; embeddings, and the head where the file has none, are the target's. It
// knows the vanilla Markov head alone, and DFlash 2 where the width has room for all pairs of candidates. A block is
// computed as long as the drafts that are asked for, so that only --spec-draft-n-max as trained drafts as trained.
#include "checkpoints/gguf.h"
#include "infer/export/export.h"
#include "infer/head/draft_vocab.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BUFFERS 1024

static pl_status whole(const pl_gguf *g, const pl_export *e, const char *arch, const char *name, int64_t *v,
                       pl_err *err) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    if (pl_gguf_int(g, key, v)) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: has no %s", e->target, key);
}

// The served target fits the drafter.
static pl_status check_target(const pl_gguf *g, const pl_export *e, pl_err *err) {
    char                 arch[64];
    int64_t              layers, width;
    const pl_gguf_value *tokens = pl_gguf_find(g, "tokenizer.ggml.tokens");
    if (!pl_gguf_text(g, "general.architecture", arch, sizeof arch))
        return pl_fail(err, PL_E_INPUT, "%s: has no general.architecture", e->target);
    PL_TRY(whole(g, e, arch, "block_count", &layers, err));
    PL_TRY(whole(g, e, arch, "embedding_length", &width, err));
    if (!tokens || tokens->type != PL_GGUF_ARRAY)
        return pl_fail(err, PL_E_INPUT, "%s: has no tokenizer.ggml.tokens", e->target);
    if (width != e->config.target_hidden_size || tokens->n != (uint64_t)e->config.vocab_size)
        return pl_fail(err, PL_E_INPUT, "%s: vocabulary %llu and width %lld, the drafter was made for %d and %d",
                       e->target, (unsigned long long)tokens->n, (long long)width, e->config.vocab_size,
                       e->config.target_hidden_size);
    for (int i = 0; i < e->n_taps; i++)
        if (e->tap[i] >= layers)
            return pl_fail(err, PL_E_UNSUPPORTED,
                           "%s: reads %s, which llama.cpp does not fill for a target of %lld layers", e->checkpoint,
                           e->tap[i] == layers ? "what leaves the last layer" : "a layer beyond the last",
                           (long long)layers);
    return PL_OK;
}

static pl_status check_served(const pl_export *e, pl_err *err) {
    pl_gguf *g;
    if (!e->target || !pl_path_ends(e->target, ".gguf"))
        return pl_fail(err, PL_E_USAGE,
                       "--target: is no .gguf file; gguf copies the vocabulary of the one that is "
                       "served");
    if (e->config.rope.scaling == PL_HF_ROPE_YARN)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: RoPE scaled by YaRN is not exported to GGUF", e->checkpoint);
    PL_TRY(pl_gguf_open(&g, e->target, err));
    pl_status st = check_target(g, e, err);
    pl_gguf_close(g);
    return st;
}

static pl_status check(const pl_export *e, pl_err *err) {
    if (e->n_taps != 3)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: reads %d layers, llama.cpp exactly three", e->checkpoint, e->n_taps);
    return check_served(e, err);
}

static pl_status check_block(const pl_export *e, pl_err *err) {
    const pl_hf_config *c = &e->config;
    int                 k = c->selector.candidates;
    if (c->target_hidden_size != c->hidden_size)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: a block drafter of width %d, where llama.cpp takes the target's, %d",
                       e->checkpoint, c->hidden_size, c->target_hidden_size);
    if (strcmp(c->head.kind, "markov") == 0 && pl_hf_markov_of(&c->head) != PL_HF_MARKOV_VANILLA)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: a %s Markov head, llama.cpp knows the vanilla one", e->checkpoint,
                       pl_hf_markov_name(pl_hf_markov_of(&c->head)));
    if (k * (k + 1) > c->hidden_size)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s: a selector of %d candidates, for which llama.cpp wants a width of %d at least, not %d",
                       e->checkpoint, k, k * (k + 1), c->hidden_size);
    return check_served(e, err);
}

// ---- keys ----

// ARCHITECTURE.NAME
typedef struct keys {
    pl_gguf_out *o;
    const char  *arch;
    char         key[64];
} keys;

static const char *key(keys *k, const char *name) {
    snprintf(k->key, sizeof k->key, "%s.%s", k->arch, name);
    return k->key;
}

// What both have.
static void put_layer(keys *k, const pl_export *e, int64_t positions) {
    const pl_hf_config *c = &e->config;
    int32_t             layer[PL_HF_TAPS];
    for (int i = 0; i < e->n_taps; i++)
        layer[i] = e->tap[i];
    pl_gguf_put_text(k->o, "general.architecture", k->arch);
    pl_gguf_put_text(k->o, "general.type", "model");
    pl_gguf_put_u32(k->o, key(k, "block_count"), (uint32_t)(pl_export_is_block(e) ? c->num_hidden_layers : 1));
    pl_gguf_put_u32(k->o, key(k, "context_length"), (uint32_t)positions);
    pl_gguf_put_u32(k->o, key(k, "embedding_length"), (uint32_t)c->hidden_size);
    pl_gguf_put_u32(k->o, key(k, "feed_forward_length"), (uint32_t)c->intermediate_size);
    pl_gguf_put_u32(k->o, key(k, "attention.head_count"), (uint32_t)c->num_attention_heads);
    pl_gguf_put_u32(k->o, key(k, "attention.head_count_kv"), (uint32_t)c->num_key_value_heads);
    pl_gguf_put_u32(k->o, key(k, "attention.key_length"), (uint32_t)c->head_dim);
    pl_gguf_put_u32(k->o, key(k, "attention.value_length"), (uint32_t)c->head_dim);
    pl_gguf_put_f32(k->o, key(k, "attention.layer_norm_rms_epsilon"), (float)c->rms_norm_eps);
    pl_gguf_put_u32(k->o, key(k, "rope.dimension_count"), (uint32_t)c->head_dim);
    pl_gguf_put_f32(k->o, key(k, "rope.freq_base"), (float)c->rope.theta);
    if (c->rope.scaling == PL_HF_ROPE_LINEAR) {
        pl_gguf_put_text(k->o, key(k, "rope.scaling.type"), "linear");
        pl_gguf_put_f32(k->o, key(k, "rope.scaling.factor"), (float)c->rope.factor);
    }
    pl_gguf_put_u32(k->o, key(k, "vocab_size"), (uint32_t)c->vocab_size);
    pl_gguf_put_i32s(k->o, key(k, "target_layers"), layer, (uint64_t)e->n_taps);
}

static void put_block(keys *k, const pl_export *e) {
    const pl_hf_config *c = &e->config;
    bool                markov = strcmp(c->head.kind, "markov") == 0;
    pl_gguf_put_u32(k->o, key(k, "block_size"), (uint32_t)c->block.size);
    pl_gguf_put_bool(k->o, key(k, "attention.causal"), false);
    pl_gguf_put_bool(k->o, key(k, "sample_from_anchor"), c->block.anchor_first);
    pl_gguf_put_bool(k->o, key(k, "has_confidence_head"), markov && pl_hf_head_find(&c->head, "confidence"));
    if (c->block.taps > 0) {
        pl_gguf_put_u32(k->o, key(k, "conv_kernel_size"), (uint32_t)c->block.taps);
        pl_gguf_put_u32(k->o, key(k, "conv_group_size"), (uint32_t)c->block.group);
    }
    if (c->selector.candidates > 0) {
        pl_gguf_put_u32(k->o, key(k, "selector_rank"), (uint32_t)c->selector.rank);
        pl_gguf_put_u32(k->o, key(k, "selector_top_k"), (uint32_t)c->selector.candidates);
    }
}

static void put_keys(pl_gguf_out *o, const pl_export *e, int64_t positions) {
    keys k = {.o = o, .arch = pl_export_is_block(e) ? "dflash" : "eagle3"};
    put_layer(&k, e, positions);
    if (pl_export_is_block(e)) {
        put_block(&k, e);
        return;
    }
    pl_gguf_put_u32(o, "eagle3.target_hidden_size", (uint32_t)e->config.target_hidden_size);
    pl_gguf_put_bool(o, "eagle3.norm_before_residual", e->config.norm_before_residual);
    pl_gguf_put_bool(o, "eagle3.norm_before_fc", e->config.norm_before_fc);
}

#define MASK "tokenizer.ggml.mask_token_id" // a block drafter's own, the target's is of no use to a drafter

static void put_vocabulary(pl_gguf_out *o, const pl_gguf *target) {
    static const char mark[] = "tokenizer.";
    for (int64_t i = 0; i < pl_gguf_values(target); i++) {
        const pl_gguf_value *v = pl_gguf_value_at(target, i);
        if (v->n_key <= sizeof mark || memcmp(v->key, mark, sizeof mark - 1) != 0) continue;
        if (v->n_key != sizeof MASK - 1 || memcmp(v->key, MASK, sizeof MASK - 1) != 0) pl_gguf_put_value(o, v);
    }
}

// ---- tensors ----

typedef struct writer {
    const pl_export *e;
    pl_gguf_out     *o;
    void            *own[BUFFERS]; // what tensors were made into, until they are written
    int              n;
} writer;

static void *keep(writer *w, size_t bytes) {
    return w->n < BUFFERS ? w->own[w->n++] = pl_malloc(bytes) : NULL;
}

// Names, and whether the rows of their heads are to be paired; of blocks, of each layer behind "layers.N.".
typedef struct named {
    const char *ours, *theirs;
    bool        pairs;
} named;

static const named once_names[] = {{"fc.weight", "fc.weight", false},
                                   {"norm.weight", "output_norm.weight", false},
                                   {"lm_head.weight", "output.weight", false},
                                   {"embed_tokens.weight", "token_embd.weight", false},
                                   {"hidden_norm.weight", "enc.output_norm.weight", false},
                                   {"input_norm.weight", "enc.output_norm.weight", false},
                                   {"markov_head.markov_w1.weight", "markov_w1.weight", false},
                                   {"markov_head.markov_w2.weight", "markov_w2.weight", false},
                                   {"confidence_head.proj.weight", "conf_proj.weight", false},
                                   {"confidence_head.proj.bias", "conf_proj.bias", false},
                                   {"candidate_selector.predecessor_codebook", "selector_predecessor.weight", false},
                                   {"candidate_selector.successor_codebook", "selector_successor.weight", false},
                                   {"candidate_selector.hidden_projection.weight", "selector_hidden.weight", false}},
                   layer_names[] = {{"input_layernorm.weight", "attn_norm.weight", false},
                                    {"hidden_norm.weight", "attn_norm_2.weight", false},
                                    {"self_attn.q_proj.weight", "attn_q.weight", true},
                                    {"self_attn.k_proj.weight", "attn_k.weight", true},
                                    {"self_attn.v_proj.weight", "attn_v.weight", false},
                                    {"self_attn.o_proj.weight", "attn_output.weight", false},
                                    {"self_attn.q_norm.weight", "attn_q_norm.weight", false},
                                    {"self_attn.k_norm.weight", "attn_k_norm.weight", false},
                                    {"post_attention_layernorm.weight", "ffn_norm.weight", false},
                                    {"mlp.gate_proj.weight", "ffn_gate.weight", false},
                                    {"mlp.up_proj.weight", "ffn_up.weight", false},
                                    {"mlp.down_proj.weight", "ffn_down.weight", false},
                                    {"attention_conv.base_kernel", "attn_conv_base", false},
                                    {"attention_conv.kernel_projection.weight", "attn_conv_proj.weight", false},
                                    {"mlp_conv.base_kernel", "ffn_conv_base", false},
                                    {"mlp_conv.kernel_projection.weight", "ffn_conv_proj.weight", false}};

static const named *find_name(const named *list, size_t n, const char *ours) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].ours, ours) == 0) return &list[i];
    return NULL;
}

// Under llama.cpp's name; false: it has none.
static bool translate(const char *ours, bool block, char theirs[96], bool *pairs) {
    const named *found;
    int          at = 0, used = 0;
    bool         mid = strncmp(ours, "midlayer.", 9) == 0;
    if (mid || sscanf(ours, "layers.%d.%n", &at, &used) == 1) {
        found = find_name(layer_names, sizeof layer_names / sizeof *layer_names, ours + (mid ? 9 : used));
        if (found) snprintf(theirs, 96, "blk.%d.%s", at, found->theirs);
    } else {
        found = find_name(once_names, sizeof once_names / sizeof *once_names, ours);
        if (found) snprintf(theirs, 96, "%s", found->theirs);
    }
    *pairs = found && found->pairs && !block;
    return found;
}

// Row `row` of the file's: of each head, element 2i is ours i, element 2i + 1 is ours i + dim/2.
static int64_t paired(int64_t row, int64_t dim) {
    int64_t head = row / dim, at = row % dim;
    return head * dim + at / 2 + (at % 2) * (dim / 2);
}

static pl_status add(writer *w, const pl_st_source *s, const char *name, bool pairs, pl_err *err) {
    int64_t  rows = s->rank == 2 ? s->shape[0] : 1, cols = s->rank == 2 ? s->shape[1] : s->shape[0];
    pl_dtype to = s->rank != 2 || w->e->f32 ? PL_F32 : s->dtype;
    if (s->rank == 3) cols *= s->shape[1] * s->shape[2];
    size_t   each = pl_size_mul((size_t)cols, pl_dtype_size(to), 1), from = (size_t)cols * pl_dtype_size(s->dtype);
    uint8_t *data = keep(w, pl_size_mul((size_t)rows, each, 1));
    float   *row = pl_malloc((size_t)cols * sizeof *row);
    bool     room = data && row;
    for (int64_t i = 0; room && i < rows; i++) {
        int64_t k = pairs ? paired(i, w->e->config.head_dim) : i;
        pl_to_f32(row, (const uint8_t *)s->data + (size_t)k * from, s->dtype, (size_t)cols);
        pl_from_f32(data + (size_t)i * each, to, row, (size_t)cols);
    }
    pl_free(row);
    if (!room) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", name);
    pl_gguf_put_tensor(w->o, name, to, s->rank, s->shape, data);
    return PL_OK;
}

// As llama.cpp's converter derives them: what Llama 3's scaling divides each frequency by.
static pl_status add_rope(writer *w, pl_err *err) {
    const pl_hf_config *c = &w->e->config;
    const pl_hf_rope   *r = &c->rope;
    int64_t             n = c->head_dim / 2;
    if (r->scaling != PL_HF_ROPE_LLAMA3) return PL_OK;
    float *f = keep(w, (size_t)n * sizeof *f);
    if (!f) return pl_fail(err, PL_E_MEMORY, "rope_freqs: out of memory");
    for (int64_t i = 0; i < n; i++) {
        double length = 2 * 3.14159265358979323846 * pow(r->theta, 2.0 * (double)i / c->head_dim);
        double original = r->original_max_position_embeddings;
        double smooth = (original / length - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
        f[i] = (float)(length < original / r->high_freq_factor  ? 1
                       : length > original / r->low_freq_factor ? r->factor
                                                                : 1 / ((1 - smooth) / r->factor + smooth));
    }
    pl_gguf_put_tensor(w->o, "rope_freqs.weight", PL_F32, 1, &n, f);
    return PL_OK;
}

static pl_status add_map(writer *w, pl_err *err) {
    int32_t *ids;
    int64_t  n = w->e->rows;
    if (w->e->whole) return PL_OK;
    PL_TRY(pl_draft_vocab_read(&ids, w->e->src, n, w->e->config.vocab_size, err));
    int64_t *wide = keep(w, (size_t)n * sizeof *wide);
    for (int64_t i = 0; wide && i < n; i++)
        wide[i] = ids[i];
    pl_free(ids);
    if (!wide) return pl_fail(err, PL_E_MEMORY, "d2t: out of memory");
    pl_gguf_put_tensor(w->o, "d2t", PL_I64, 1, &n, wide);
    return PL_OK;
}

static pl_status add_tensors(writer *w, const pl_st_source *t, int n, pl_err *err) {
    for (int i = 0; i < n; i++) {
        if (strcmp(t[i].name, "d2t") == 0 || strcmp(t[i].name, "t2d") == 0) continue;
        char *theirs = keep(w, 96); // until it is written
        bool  pairs;
        if (!theirs) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", t[i].name);
        if (!translate(t[i].name, pl_export_is_block(w->e), theirs, &pairs))
            return pl_fail(err, PL_E_INPUT, "%s: tensor \"%.80s\": none that gguf reads", w->e->checkpoint, t[i].name);
        PL_TRY(add(w, &t[i], theirs, pairs, err));
    }
    PL_TRY(add_rope(w, err));
    return add_map(w, err);
}

static pl_status write_file(writer *w, const pl_gguf *target, const pl_st_source *t, int n, const char *dir,
                            pl_err *err) {
    char    arch[64] = "";
    int64_t positions = w->e->config.max_position_embeddings, more = 0;
    pl_gguf_text(target, "general.architecture", arch, sizeof arch);
    if (whole(target, w->e, arch, "context_length", &more, NULL) == PL_OK && more > positions) positions = more;
    put_keys(w->o, w->e, positions);
    put_vocabulary(w->o, target);
    if (pl_export_is_block(w->e)) pl_gguf_put_u32(w->o, MASK, (uint32_t)w->e->config.block.mask_token);
    PL_TRY(add_tensors(w, t, n, err));
    char     *path = pl_path_join(dir, "drafter.gguf");
    pl_status st = path ? pl_gguf_write(w->o, path, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(path);
    return st;
}

static pl_status write(const pl_export *e, const pl_st_source *t, int n, const char *dir, pl_err *err) {
    writer   w = {.e = e, .o = pl_gguf_out_new()};
    pl_gguf *target = NULL;
    if (!w.o) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_status st = pl_gguf_open(&target, e->target, err);
    if (st == PL_OK) st = write_file(&w, target, t, n, dir, err);
    pl_gguf_close(target);
    pl_gguf_out_free(w.o);
    for (int i = 0; i < w.n; i++)
        pl_free(w.own[i]);
    return st;
}

static char *serve(const pl_export *e, const char *dir) {
    return pl_sprintf("llama-server --model %s --model-draft %s/drafter.gguf --spec-type draft-eagle3 "
                      "--spec-draft-n-max %d",
                      e->served, dir, PL_EXPORT_TOKENS);
}

// As many drafts as a block has: a shorter one would be another than was trained.
static char *serve_block(const pl_export *e, const char *dir) {
    return pl_sprintf(
        "llama-server --model %s --model-draft %s/drafter.gguf --spec-type draft-%s --spec-draft-n-max %d", e->served,
        dir, pl_export_is_dspark(e) ? "dspark" : "dflash", pl_export_block_tokens(e));
}

static const pl_export_blocks blocks = {.own_head = true, .check = check_block, .serve = serve_block};

const pl_export_engine pl_export_gguf = {.name = "gguf",
                                         .help = "llama.cpp, draft-eagle3, draft-dflash, draft-dspark; --target is the "
                                                 "served .gguf file",
                                         .blocks = &blocks,
                                         .layer = "midlayer.",
                                         .norms = PL_HF_NORM_BEFORE_FC | PL_HF_NORM_BEFORE_RESIDUAL,
                                         .own = PL_EXPORT_OWN_SAME | PL_EXPORT_OWN_WIDTH,
                                         .check = check,
                                         .write = write,
                                         .rules = pl_check_gguf,
                                         .serve = serve};
