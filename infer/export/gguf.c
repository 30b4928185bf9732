// llama.cpp's draft-eagle3 (src/models/eagle3.cpp, common/speculative.cpp): one GGUF file. Embeddings in it replace
// the target's. It numbers layers by inputs and reads exactly three; the last layer's output is not supported, since
// its graphs leave it empty. d2t holds target ids, rows of queries and keys are interleaved in pairs as Llama's are in
// GGUF, norms are fp32. The draft's vocabulary must equal the target's, piece by piece: its keys are copied from the
// target's own file, which --target names.
//
// Blocks are its draft-dflash and draft-dspark (src/models/dflash.cpp), architecture dflash: any layers, the
// target's width; rows of queries and keys in this program's order; embeddings, and the head if the file has none, are
// the target's. It supports only the vanilla Markov head, and DFlash 2 if the width has room for all pairs of
// candidates. A block has the length of the requested drafts, so that only the trained --spec-draft-n-max drafts as
// trained.
#include "checkpoints/gguf.h"
#include "infer/export/rules.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BUFFERS 1024
#define MASK "tokenizer.ggml.mask_token_id" // replaced by a block drafter's own

// Reads ARCHITECTURE.NAME, a whole number of 31 bits; -1: none.
static int64_t read_whole(const pl_gguf *g, const char *arch, const char *name) {
    char    key[128];
    int64_t v;
    snprintf(key, sizeof key, "%s.%s", arch, name);
    return pl_gguf_int(g, key, &v) && v >= 0 && v <= INT32_MAX ? v : -1;
}

static double read_number(const pl_gguf *g, const char *arch, const char *name) {
    char  key[128];
    float f;
    snprintf(key, sizeof key, "%s.%s", arch, name);
    const pl_gguf_value *v = pl_gguf_find(g, key);
    if (!v || v->type != PL_GGUF_F32) return NAN;
    memcpy(&f, v->data, sizeof f);
    return (double)f;
}

static const pl_gguf_value *find_pieces(const pl_gguf *g) {
    const pl_gguf_value *v = pl_gguf_find(g, "tokenizer.ggml.tokens");
    return v && v->type == PL_GGUF_ARRAY ? v : NULL;
}

static pl_status open_served(pl_gguf **g, const char *target, pl_err *err) {
    if (pl_path_ends(target, ".gguf")) return pl_gguf_open(g, target, err);
    return pl_fail(err, PL_E_USAGE, "--target: %s is no .gguf file; gguf needs the one that is served", target);
}

static pl_status take_target(pl_hf_config *t, const pl_gguf *g, const char *path, pl_err *err) {
    static const char *const needed[] = {"block_count", "embedding_length", "context_length"};
    int *const               to[] = {&t->num_hidden_layers, &t->hidden_size, &t->max_position_embeddings};
    const pl_gguf_value     *pieces = find_pieces(g);
    char                     arch[64];
    if (!pl_gguf_text(g, "general.architecture", arch, sizeof arch))
        return pl_fail(err, PL_E_INPUT, "%s: has no general.architecture", path);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if ((*to[i] = (int)read_whole(g, arch, needed[i])) < 0)
            return pl_fail(err, PL_E_INPUT, "%s: has no %s.%s", path, arch, needed[i]);
    int64_t drafts = read_whole(g, arch, "nextn_predict_layers"); // blocks behind the layers
    if (drafts > 0 && drafts < t->num_hidden_layers) t->num_hidden_layers -= (int)drafts;
    t->vocab_size = pieces && pieces->n <= PL_HF_VOCAB_MAX ? (int)pieces->n : 0;
    t->rope.theta = read_number(g, arch, "rope.freq_base");
    return PL_OK;
}

static pl_status read_target(pl_hf_config *t, const char *path, pl_err *err) {
    pl_gguf *g;
    PL_TRY(open_served(&g, path, err));
    pl_status st = take_target(t, g, path, err);
    pl_gguf_close(g);
    return st;
}

// ---- keys ----

static bool is_linear(const pl_export *e) {
    return e->config.rope.scaling == PL_HF_ROPE_LINEAR;
}

static const pl_export_row
    both[] = {{PL_INT("block_count", config.num_hidden_layers)},
              {PL_INT("context_length", positions), .need = PL_ROW_NEEDED},
              {PL_INT("embedding_length", config.hidden_size), .need = PL_ROW_NEEDED},
              {PL_INT("feed_forward_length", config.intermediate_size), .need = PL_ROW_NEEDED},
              {PL_INT("attention.head_count", config.num_attention_heads), .need = PL_ROW_NEEDED},
              {PL_INT("attention.head_count_kv", config.num_key_value_heads), .need = PL_ROW_DEFAULT},
              {PL_INT("attention.key_length", config.head_dim), .need = PL_ROW_DEFAULT},
              {PL_INT("attention.value_length", config.head_dim), .need = PL_ROW_DEFAULT},
              {PL_NUM("attention.layer_norm_rms_epsilon", config.rms_norm_eps), .need = PL_ROW_NEEDED},
              {PL_INT("rope.dimension_count", config.head_dim), .need = PL_ROW_DEFAULT},
              {PL_NUM("rope.freq_base", config.rope.theta), .need = PL_ROW_DEFAULT},
              {"rope.scaling.type", PL_ROW_TEXT, .text = "linear", .when = is_linear},
              {PL_NUM("rope.scaling.factor", config.rope.factor), .when = is_linear},
              {PL_INT("vocab_size", config.vocab_size)},
              {.key = "target_layers", .type = PL_ROW_TAPS},
              {0}},
    eagle3[] = {{PL_ROWS(both)},
                {PL_INT("target_hidden_size", config.target_hidden_size), .need = PL_ROW_NEEDED},
                {PL_BOOL("norm_before_residual", config.norm_before_residual), .need = PL_ROW_DEFAULT},
                {PL_BOOL("norm_before_fc", config.norm_before_fc)},
                {0}},
    dflash[] = {{PL_ROWS(both)},
                {PL_INT("block_size", config.block.size), .need = PL_ROW_DEFAULT},
                {.key = "attention.causal", .type = PL_ROW_BOOL, .need = PL_ROW_DEFAULT},
                {PL_BOOL("sample_from_anchor", config.block.anchor_first), .need = PL_ROW_DEFAULT},
                {PL_BOOL("has_confidence_head", confidence)},
                {PL_ROWS(pl_rows_second)},
                {0}};

static void put_row(pl_gguf_out *o, const pl_export *e, const pl_export_row *r, const char *key) {
    const void *at = (const char *)e + r->at;
    int32_t     layer[PL_HF_TAPS];
    switch (r->type) {
    case PL_ROW_INT: pl_gguf_put_u32(o, key, (uint32_t) * (const int *)at); break;
    case PL_ROW_NUM: pl_gguf_put_f32(o, key, (float)*(const double *)at); break;
    case PL_ROW_BOOL: pl_gguf_put_bool(o, key, r->at && *(const bool *)at); break;
    case PL_ROW_TEXT: pl_gguf_put_text(o, key, r->text); break;
    default:
        for (int i = 0; i < e->n_taps; i++)
            layer[i] = e->tap[i];
        pl_gguf_put_i32s(o, key, layer, (uint64_t)e->n_taps);
    }
}

static void put_keys(pl_gguf_out *o, const pl_export *e, const pl_export_row *rows) {
    for (const pl_export_row *r = rows; r->key || r->rows; r++) {
        char key[64];
        if (r->rows) put_keys(o, e, r->rows);
        if (r->rows || (r->when && !r->when(e))) continue;
        snprintf(key, sizeof key, "%s.%s", e->engine->classes[e->sort], r->key);
        put_row(o, e, r, key);
    }
}

static void put_vocabulary(pl_gguf_out *o, const pl_gguf *target) {
    static const char mark[] = "tokenizer.";
    for (int64_t i = 0; i < pl_gguf_values(target); i++) {
        const pl_gguf_value *v = pl_gguf_value_at(target, i);
        if (v->n_key <= sizeof mark || memcmp(v->key, mark, sizeof mark - 1) != 0) continue;
        if (v->n_key != sizeof MASK - 1 || memcmp(v->key, MASK, sizeof MASK - 1) != 0) pl_gguf_put_value(o, v);
    }
}

// ---- tensors ----

// This program's names and llama.cpp's; for layers, the part after "layers.N." or "midlayer.".
typedef struct named {
    const char *ours, *theirs;
} named;

static const named once_names[] = {{"d2t", "d2t"},
                                   {"fc.weight", "fc.weight"},
                                   {"norm.weight", "output_norm.weight"},
                                   {"lm_head.weight", "output.weight"},
                                   {"embed_tokens.weight", "token_embd.weight"},
                                   {"hidden_norm.weight", "enc.output_norm.weight"},
                                   {"input_norm.weight", "enc.output_norm.weight"},
                                   {"markov_head.markov_w1.weight", "markov_w1.weight"},
                                   {"markov_head.markov_w2.weight", "markov_w2.weight"},
                                   {"confidence_head.proj.weight", "conf_proj.weight"},
                                   {"confidence_head.proj.bias", "conf_proj.bias"},
                                   {"candidate_selector.predecessor_codebook", "selector_predecessor.weight"},
                                   {"candidate_selector.successor_codebook", "selector_successor.weight"},
                                   {"candidate_selector.hidden_projection.weight", "selector_hidden.weight"}},
                   layer_names[] = {{"input_layernorm.weight", "attn_norm.weight"},
                                    {"hidden_norm.weight", "attn_norm_2.weight"},
                                    {"self_attn.q_proj.weight", "attn_q.weight"},
                                    {"self_attn.k_proj.weight", "attn_k.weight"},
                                    {"self_attn.v_proj.weight", "attn_v.weight"},
                                    {"self_attn.o_proj.weight", "attn_output.weight"},
                                    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
                                    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
                                    {"post_attention_layernorm.weight", "ffn_norm.weight"},
                                    {"mlp.gate_proj.weight", "ffn_gate.weight"},
                                    {"mlp.up_proj.weight", "ffn_up.weight"},
                                    {"mlp.down_proj.weight", "ffn_down.weight"},
                                    {"attention_conv.base_kernel", "attn_conv_base"},
                                    {"attention_conv.kernel_projection.weight", "attn_conv_proj.weight"},
                                    {"mlp_conv.base_kernel", "ffn_conv_base"},
                                    {"mlp_conv.kernel_projection.weight", "ffn_conv_proj.weight"}};

static const char *find_name(const named *list, size_t n, const char *ours) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].ours, ours) == 0) return list[i].theirs;
    return NULL;
}

static bool name_tensor(bool block, const char *ours, char *theirs, size_t size) {
    const char *found;
    int         at = 0, used = 0;
    bool        mid = !block && strncmp(ours, "midlayer.", 9) == 0;
    if (mid || sscanf(ours, "layers.%d.%n", &at, &used) == 1) {
        found = find_name(layer_names, sizeof layer_names / sizeof *layer_names, ours + (mid ? 9 : used));
        if (found) snprintf(theirs, size, "blk.%d.%s", at, found);
    } else {
        found = find_name(once_names, sizeof once_names / sizeof *once_names, ours);
        if (found) snprintf(theirs, size, "%s", found);
    }
    return found;
}

typedef struct writer {
    const pl_export *e;
    pl_gguf_out     *o;
    void            *own[BUFFERS]; // converted tensors, kept until they are written
    int              n;
} writer;

static void *keep_buffer(writer *w, size_t bytes) {
    return w->n < BUFFERS ? w->own[w->n++] = pl_malloc(bytes) : NULL;
}

// Returns the source of the file's row `row`: in each head, row 2i is row i here, row 2i + 1 is row i + dim/2.
static int64_t find_paired(int64_t row, int64_t dim) {
    int64_t head = row / dim, at = row % dim;
    return head * dim + at / 2 + (at % 2) * (dim / 2);
}

// Adds a tensor; interleaves the rows of EAGLE-3's queries and keys in pairs.
static pl_status add_tensor(writer *w, const pl_st_source *s, pl_err *err) {
    bool     pairs = !pl_export_is_block(w->e) && (strstr(s->name, "attn_q.") || strstr(s->name, "attn_k."));
    int64_t  rows = s->rank == 2 ? s->shape[0] : 1, cols = s->rank == 2 ? s->shape[1] : s->shape[0];
    pl_dtype to = s->rank != 2 || w->e->f32 ? PL_F32 : s->dtype;
    if (s->rank == 3) cols *= s->shape[1] * s->shape[2];
    size_t    each = pl_size_mul((size_t)cols, pl_dtype_size(to), 1), from = (size_t)cols * pl_dtype_size(s->dtype);
    uint8_t  *data = keep_buffer(w, pl_size_mul((size_t)rows, each, 1));
    float    *row = pl_malloc((size_t)cols * sizeof *row);
    void     *stored = pl_malloc(from); // a row of a source without data
    pl_status st = data && row && stored ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", s->name);
    for (int64_t i = 0; st == PL_OK && i < rows; i++) {
        size_t at = (size_t)(pairs ? find_paired(i, w->e->config.head_dim) : i) * from;
        if (s->fill) st = s->fill(s->arg, at, stored, from, err);
        pl_to_f32(row, s->fill ? stored : (const uint8_t *)s->data + at, s->dtype, (size_t)cols);
        pl_from_f32(data + (size_t)i * each, to, row, (size_t)cols);
    }
    pl_free(row);
    pl_free(stored);
    PL_TRY(st);
    pl_gguf_put_tensor(w->o, s->name, to, s->rank, s->shape, data);
    return PL_OK;
}

// Adds the divisors of frequencies by Llama 3's scaling, as llama.cpp's converter derives them.
static pl_status add_rope(writer *w, pl_err *err) {
    const pl_hf_config *c = &w->e->config;
    const pl_hf_rope   *r = &c->rope;
    int64_t             n = c->head_dim / 2;
    if (r->scaling != PL_HF_ROPE_LLAMA3) return PL_OK;
    float *f = keep_buffer(w, (size_t)n * sizeof *f);
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

static pl_status write_file(writer *w, const pl_gguf *target, const pl_st_source *t, int n, const char *dir,
                            pl_err *err) {
    bool block = pl_export_is_block(w->e), map = n > 0 && strcmp(t[n - 1].name, "d2t") == 0;
    pl_gguf_put_text(w->o, "general.architecture", w->e->engine->classes[w->e->sort]);
    pl_gguf_put_text(w->o, "general.type", "model");
    put_keys(w->o, w->e, block ? w->e->engine->blocks : w->e->engine->rows);
    put_vocabulary(w->o, target);
    if (block) pl_gguf_put_u32(w->o, MASK, (uint32_t)w->e->config.block.mask_token);
    for (int i = 0; i < n - map; i++)
        PL_TRY(add_tensor(w, &t[i], err));
    PL_TRY(add_rope(w, err));
    if (map) pl_gguf_put_tensor(w->o, "d2t", t[n - 1].dtype, 1, t[n - 1].shape, t[n - 1].data);
    char     *path = pl_path_join(dir, "drafter.gguf");
    pl_status st = path ? pl_gguf_write(w->o, path, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(path);
    return st;
}

static pl_status write_gguf(const pl_export *e, const pl_st_source *t, int n, const char *dir, pl_err *err) {
    writer        w = {.e = e};
    pl_gguf      *target = NULL;
    pl_hf_scaling scaling = e->config.rope.scaling;
    if (scaling == PL_HF_ROPE_YARN || scaling == PL_HF_ROPE_LONG)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: RoPE scaled by %s is not exported to GGUF", e->checkpoint,
                       scaling == PL_HF_ROPE_YARN ? "YaRN" : "longrope");
    PL_TRY(open_served(&target, e->target, err));
    w.o = pl_gguf_out_new();
    pl_status st = w.o ? write_file(&w, target, t, n, dir, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_gguf_close(target);
    pl_gguf_out_free(w.o);
    for (int i = 0; i < w.n; i++)
        pl_free(w.own[i]);
    return st;
}

// ---- checking ----

typedef struct file {
    pl_gguf *g, *target; // target NULL: not given
    char     arch[64];
    int      vocab; // as stated in the file
} file;

static pl_check_verdict check_architecture(pl_look *k) {
    const char *arch = ((const file *)k->own)->arch;
    if (strcmp(arch, k->engine->classes[k->e.sort]) == 0) return PL_CHECK_HOLDS;
    return pl_broken(k, "general.architecture: %s; expected eagle3 or dflash", *arch ? arch : "missing");
}

// Checks that block, mask and parts agree; llama.cpp assumes the target's width.
static pl_check_verdict check_block(pl_look *k) {
    const pl_hf_config *c = &k->e.config;
    int                 size = c->block.size, top = c->selector.candidates, rank = c->selector.rank;
    int64_t             mask;
    if (!pl_export_is_block(&k->e)) return PL_CHECK_HOLDS;
    if (size >= 0 && size < 2) return pl_broken(k, "dflash.block_size: %d is no block", size);
    if (!pl_gguf_int(((const file *)k->own)->g, MASK, &mask)) return pl_broken(k, MASK " is missing");
    if (mask < 0 || (c->vocab_size > 0 && mask >= c->vocab_size))
        return pl_broken(k, MASK ": %lld, beyond the vocabulary", (long long)mask);
    if ((rank > 0) != (c->block.taps > 0) || (rank > 0) != (top > 0) || (rank > 0) != (c->block.group > 0))
        return pl_broken(k, "of conv_kernel_size, conv_group_size, selector_rank and selector_top_k some are missing");
    if (c->block.group > 0 && c->hidden_size > 0 && c->hidden_size % c->block.group != 0)
        return pl_broken(k, "dflash.conv_group_size: %d does not divide the width", c->block.group);
    if (top > 0 && c->hidden_size > 0 && (int64_t)top * (top + 1) > c->hidden_size)
        return pl_broken(k, "a selector of %d candidates, for which llama.cpp wants a width of %lld at least, not %d",
                         top, (long long)top * (top + 1), c->hidden_size);
    return PL_CHECK_HOLDS;
}

static pl_check_verdict check_types(pl_look *k) {
    for (int64_t i = 0; i < k->want.n; i++) {
        const pl_look_tensor *w = &k->want.t[i], *h = pl_look_find(&k->have, w->name);
        if (!h || strcmp(w->name, "d2t") == 0) continue;
        if (w->rank != 2 && h->dtype != PL_F32) return pl_broken(k, "%s is not fp32, as norms are", w->name);
        if (h->dtype != PL_F32 && h->dtype != PL_F16 && h->dtype != PL_BF16)
            return pl_unseen(k, "%s is quantised: what it costs in acceptance is not known here", w->name);
    }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict check_vocabulary(pl_look *k) {
    const file          *f = k->own;
    const pl_gguf_value *mine = find_pieces(f->g), *theirs = f->target ? find_pieces(f->target) : NULL;
    if (!mine) return pl_broken(k, "tokenizer.ggml.tokens is missing");
    if (f->vocab >= 0 && f->vocab != k->s.vocab)
        return pl_broken(k, "the drafter was made for a vocabulary of %d, there are %lld pieces", f->vocab,
                         (long long)k->s.vocab);
    if (!f->target) return pl_unseen(k, "give --target, the served .gguf file");
    if (!theirs) return pl_unseen(k, "the target has no tokenizer.ggml.tokens");
    if (mine->n != theirs->n)
        return pl_broken(k, "%llu pieces, the target has %llu", (unsigned long long)mine->n,
                         (unsigned long long)theirs->n);
    if (mine->n_raw != theirs->n_raw || memcmp(mine->raw, theirs->raw, mine->n_raw) != 0)
        return pl_broken(k, "the pieces are not the target's");
    return PL_CHECK_HOLDS;
}

static const pl_check_rule rules[] = {
    {"architecture", "the name by which llama.cpp finds its code", check_architecture, PL_CHECK_ALL},
    {"block", "block, mask and DFlash 2's parts are stated and fit", check_block, PL_CHECK_ALL},
    {"types", "norms in fp32, matrices not quantised", check_types, PL_CHECK_ALL},
    {"vocabulary", "the target's pieces", check_vocabulary, PL_CHECK_ALL},
    {0}};

static void copy_tensors(pl_look *k, const pl_gguf *g) {
    for (int64_t i = 0; i < pl_gguf_tensors(g); i++) {
        const pl_gguf_tensor *from = pl_gguf_tensor_at(g, i);
        pl_look_tensor       *t = pl_look_add(&k->have);
        if (!t) return;
        snprintf(t->name, sizeof t->name, "%.*s", (int)(from->n_name < 95 ? from->n_name : 95), from->name);
        t->rank = from->rank;
        for (int d = 0; d < t->rank; d++)
            t->size[d] = from->shape[t->rank - 1 - d];
        t->dtype = from->type == 0    ? PL_F32 // ggml's numbers
                   : from->type == 1  ? PL_F16
                   : from->type == 27 ? PL_I64
                   : from->type == 30 ? PL_BF16
                                      : PL_DTYPE_COUNT;
        t->data = from->data;
    }
}

static cJSON *copy_value(const pl_gguf *g, const char *key, const pl_gguf_value *v) {
    cJSON  *list;
    int64_t n;
    int32_t item;
    float   f;
    switch (v->type) {
    case PL_GGUF_F32: memcpy(&f, v->data, sizeof f); return cJSON_CreateNumber((double)f);
    case PL_GGUF_BOOL: return cJSON_CreateBool(*v->data != 0);
    case PL_GGUF_ARRAY:
        list = cJSON_CreateArray(); // empty for lists of other types, and for lists longer than PL_HF_TAPS
        for (uint64_t i = 0; (v->item == PL_GGUF_I32 || v->item == PL_GGUF_U32) && v->n <= PL_HF_TAPS && i < v->n;
             i++) {
            memcpy(&item, v->data + 4 * i, sizeof item);
            cJSON_AddItemToArray(list, cJSON_CreateNumber(item));
        }
        return list;
    default: return pl_gguf_int(g, key, &n) ? cJSON_CreateNumber((double)n) : cJSON_CreateNull();
    }
}

// Makes k->j an object of the architecture's keys, without their prefix, as the tables name them.
static pl_status copy_keys(pl_look *k, const pl_gguf *g, const char *path, pl_err *err) {
    const char *arch = k->engine->classes[k->e.sort];
    size_t      n = strlen(arch);
    bool        done = (k->j.where = pl_strdup(path)) && (k->j.root = cJSON_CreateObject());
    for (int64_t i = 0; done && i < pl_gguf_values(g); i++) {
        const pl_gguf_value *v = pl_gguf_value_at(g, i);
        char                 key[64];
        if (v->n_key >= sizeof key || v->n_key < n + 2 || memcmp(v->key, arch, n) != 0 || v->key[n] != '.') continue;
        snprintf(key, sizeof key, "%.*s", (int)v->n_key, v->key);
        cJSON *node = copy_value(g, key, v);
        done = node && cJSON_AddItemToObject(k->j.root, key + n + 1, node);
        if (!done) cJSON_Delete(node);
    }
    k->layer = k->j.root;
    return done ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
}

static int64_t cols_of(const pl_look *k, const char *name) {
    const pl_look_tensor *t = pl_look_find(&k->have, name);
    return t && t->rank == 2 ? t->size[1] : t ? 1 : 0;
}

// Fills in k->s; sizes of heads, which have no keys, come from their tensors.
static void take_sizes(pl_look *k, const pl_gguf *g) {
    pl_hf_config        *c = &k->e.config;
    const pl_gguf_value *pieces = find_pieces(g);
    pl_look_take_rows(k);
    ((file *)k->own)->vocab = c->vocab_size;
    c->vocab_size = pieces && pieces->n <= PL_HF_VOCAB_MAX ? (int)pieces->n : -1;
    k->s = pl_hf_sizes_of(c, pl_export_is_block(&k->e) ? c->hidden_size : c->target_hidden_size);
    if (c->block.taps < 0) k->s.conv_taps = k->s.conv_group = 0;
    k->s.markov_rank = cols_of(k, "markov_w1.weight");
    if (!k->s.markov_rank) k->s.markov_rank = cols_of(k, "markov_w2.weight");
    k->s.confidence_inputs = cols_of(k, "conf_proj.weight");
    pl_look_tensor *angles = c->head_dim >= 2 ? pl_look_add(&k->want) : NULL;
    if (angles) *angles = (pl_look_tensor){.name = "rope_freqs.weight", .rank = 1, .size = {c->head_dim / 2}};
}

static pl_status look_at_file(pl_look *k, const char *path, const char *target, pl_err *err) {
    file     *f = k->own = pl_calloc(1, sizeof *f);
    char     *inside = pl_path_ends(path, ".gguf") ? pl_strdup(path) : pl_path_join(path, "drafter.gguf");
    pl_status st =
        f && inside ? pl_gguf_open(&f->g, inside, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_free(inside);
    PL_TRY(st);
    if (!pl_gguf_text(f->g, "general.architecture", f->arch, sizeof f->arch)) *f->arch = 0;
    k->e.sort = strcmp(f->arch, "dflash") == 0 ? PL_EXPORT_DFLASH : PL_EXPORT_EAGLE3;
    k->e.config.backbone = k->e.sort == PL_EXPORT_DFLASH ? PL_HF_DFLASH : PL_HF_EAGLE3;
    copy_tensors(k, f->g);
    PL_TRY(copy_keys(k, f->g, path, err));
    take_sizes(k, f->g);
    if (!target) return PL_OK;
    PL_TRY(open_served(&f->target, target, err));
    return take_target(&k->e.target_config, f->target, target, err);
}

static void close_look(pl_look *k) {
    file *f = k->own;
    if (f) pl_gguf_close(f->target);
    if (f) pl_gguf_close(f->g);
    pl_free(f);
}

// Returns the command; a block drafts the trained number of tokens.
static char *make_command(const pl_export *e, const char *dir) {
    return pl_sprintf(
        "llama-server --model %s --model-draft %s/drafter.gguf --spec-type draft-%s --spec-draft-n-max %d", e->served,
        dir,
        !pl_export_is_block(e)        ? "eagle3"
        : e->sort == PL_EXPORT_DSPARK ? "dspark"
                                      : "dflash",
        e->tokens);
}

static const pl_export_file gguf_file = {
    .write = write_gguf, .name = name_tensor, .read_target = read_target, .look = look_at_file, .close = close_look};
static const pl_export_map map = {.type = PL_I64, .ids = true};

const pl_export_engine pl_export_gguf = {
    .name = "gguf",
    .help = "llama.cpp, draft-eagle3, draft-dflash, draft-dspark; --target is the served .gguf file",
    .classes = {"eagle3", NULL, "dflash", "dflash", "dflash"},
    .norms = PL_HF_NORM_BEFORE_FC | PL_HF_NORM_BEFORE_RESIDUAL,
    .rows = eagle3,
    .blocks = dflash,
    .own = PL_EXPORT_OWN_SAME | PL_EXPORT_OWN_WIDTH,
    .block_heads = true,
    .taps = 3,
    .wants_target = "gguf copies the vocabulary of the .gguf file that is served",
    .map = &map,
    .file = &gguf_file,
    .rules = rules,
    .serve = make_command};
