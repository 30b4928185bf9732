#include "checkpoints/gguf_model.h"
#include "checkpoints/ggml.h"
#include "checkpoints/hf_family.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a little-endian machine");

enum { PARTS_MAX = 4096 };

// ---- which file

// The number in NAME-00002-of-00003.gguf, 0: it is no part of a split file.
static int part_of(const char *name, int *n) {
    size_t len = strlen(name);
    int    at = 0, end = 0;
    if (len < 20 || sscanf(name + len - 20, "-%5d-of-%5d.gguf%n", &at, n, &end) != 2 || end != 20) return 0;
    return at;
}

// A vocabulary alone, or a projector of images, is no model.
static bool is_model(const char *name) {
    int n;
    return pl_path_ends(name, ".gguf") && *name != '.' && strcmp(name, "tokenizer.gguf") != 0 &&
           strncmp(name, "mmproj", 6) != 0 && part_of(name, &n) <= 1;
}

// first, second: names of models in the folder (owned), NULL: there are no more.
static pl_status list_models(const char *dir, char **first, char **second, pl_err *err) {
    DIR *d = opendir(dir);
    bool others = false;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        others |= pl_path_ends(e->d_name, ".safetensors") || pl_path_ends(e->d_name, ".safetensors.index.json");
        if (!is_model(e->d_name) || *second) continue;
        char **to = *first ? second : first;
        if (!(*to = pl_strdup(e->d_name))) break;
    }
    if (d) closedir(d);
    if (others) {
        pl_free(*first);
        pl_free(*second);
        *first = *second = NULL;
    }
    if (!*first || !*second) return PL_OK;
    bool ordered = strcmp(*first, *second) < 0;
    return pl_fail(err, PL_E_INPUT, "%s: holds several models, such as %s and %s; name the file itself", dir,
                   ordered ? *first : *second, ordered ? *second : *first);
}

pl_status pl_gguf_model_find(char **file, const char *path, pl_err *err) {
    char     *first = NULL, *second = NULL;
    pl_status st = PL_OK;
    *file = NULL;
    if (pl_path_is_dir(path)) {
        st = list_models(path, &first, &second, err);
        if (st == PL_OK && first && !(*file = pl_path_join(path, first)))
            st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    } else if (pl_gguf_is(path) && !(*file = pl_strdup(path))) {
        st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    }
    pl_free(first);
    pl_free(second);
    return st;
}

// ---- parts

static void close_parts(pl_gguf_parts *p) {
    for (int i = 0; i < p->n; i++)
        pl_gguf_close(p->part[i]);
    pl_free(p->part);
    pl_free(p->path);
}

const pl_gguf_tensor *pl_gguf_parts_find(const pl_gguf_parts *p, const char *name) {
    const pl_gguf_tensor *t = NULL;
    for (int i = 0; i < p->n && !t; i++)
        t = pl_gguf_find_tensor(p->part[i], name);
    return t;
}

static int64_t count_tensors(const pl_gguf_parts *p) {
    int64_t n = 0;
    for (int i = 0; i < p->n; i++)
        n += pl_gguf_tensors(p->part[i]);
    return n;
}

static pl_status open_part(pl_gguf_parts *p, int number, int n, pl_err *err) {
    int64_t   no = -1, count = -1;
    int       stem = (int)strlen(p->path) - 20;
    char     *path = pl_sprintf("%.*s-%05d-of-%05d.gguf", stem, p->path, number + 1, n);
    pl_gguf  *g = NULL;
    pl_status st = path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", p->path);
    if (st == PL_OK && !pl_path_exists(path))
        st = pl_fail(err, PL_E_INPUT, "%s: missing; it is part %d of %d of %s", path, number + 1, n, p->path);
    if (st == PL_OK) st = pl_gguf_open(&g, path, err);
    if (g) p->part[p->n++] = g;
    if (st == PL_OK &&
        (!pl_gguf_int(g, "split.no", &no) || !pl_gguf_int(g, "split.count", &count) || no != number || count != n))
        st = pl_fail(err, PL_E_INPUT, "%s: says to be part %lld of %lld, expected %d of %d: parts of different sets?",
                     path, (long long)no + 1, (long long)count, number + 1, n);
    pl_free(path);
    return st;
}

static pl_status open_others(pl_gguf_parts *p, pl_err *err) {
    const pl_gguf *first = p->part[0];
    int64_t        n = 1, no = 0, tensors;
    int            of = 0;
    if (!pl_gguf_find(first, "split.count")) return PL_OK;
    if (!pl_gguf_int(first, "split.count", &n) || n < 0 || n > PARTS_MAX || !pl_gguf_int(first, "split.no", &no))
        return pl_fail(err, PL_E_INPUT, "%s: split.count and split.no are no numbers of parts", p->path);
    if (n <= 1) return PL_OK;
    if (no != 0)
        return pl_fail(err, PL_E_INPUT, "%s: part %lld of %lld; name the first", p->path, (long long)no + 1,
                       (long long)n);
    if (part_of(p->path, &of) != 1 || of != n)
        return pl_fail(err, PL_E_INPUT, "%s: part 1 of %lld, whose name must end with -00001-of-%05lld.gguf", p->path,
                       (long long)n, (long long)n);
    pl_gguf **grown = pl_realloc(p->part, (size_t)n * sizeof(pl_gguf *));
    if (!grown) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", p->path);
    p->part = grown;
    for (int i = 1; i < n; i++)
        PL_TRY(open_part(p, i, (int)n, err));
    if (!pl_gguf_int(p->part[0], "split.tensors.count", &tensors) || tensors == count_tensors(p)) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: the parts hold %lld tensors, expected %lld: parts of different sets?", p->path,
                   (long long)count_tensors(p), (long long)tensors);
}

static pl_status open_parts(pl_gguf_parts *p, const char *path, pl_err *err) {
    p->path = pl_strdup(path);
    p->part = pl_calloc(1, sizeof(pl_gguf *));
    if (!p->path || !p->part) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    PL_TRY(pl_gguf_open(&p->part[0], path, err));
    p->n = 1;
    return open_others(p, err);
}

// ---- tensors

typedef struct model {
    pl_gguf_parts    parts;
    pl_weight_entry *entry; // names are owned
    int64_t          n, room;
} model;

static void release(void *owner) {
    model *m = owner;
    for (int64_t i = 0; i < m->n; i++)
        pl_free((char *)m->entry[i].name);
    pl_free(m->entry);
    close_parts(&m->parts);
    pl_free(m);
}

typedef struct named {
    const char *theirs, *ours;
} named;

static const named once_names[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                   {"output_norm.weight", "model.norm.weight"},
                                   {"output.weight", "lm_head.weight"}},
                   layer_names[] = {{"attn_norm.weight", "input_layernorm.weight"},
                                    {"attn_q.weight", "self_attn.q_proj.weight"},
                                    {"attn_k.weight", "self_attn.k_proj.weight"},
                                    {"attn_v.weight", "self_attn.v_proj.weight"},
                                    {"attn_q.bias", "self_attn.q_proj.bias"},
                                    {"attn_k.bias", "self_attn.k_proj.bias"},
                                    {"attn_v.bias", "self_attn.v_proj.bias"},
                                    {"attn_qkv.weight", "self_attn.qkv_proj.weight"},
                                    {"attn_output.weight", "self_attn.o_proj.weight"},
                                    {"attn_output.bias", "self_attn.o_proj.bias"},
                                    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
                                    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
                                    {"attn_sinks.weight", "self_attn.sinks"},
                                    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
                                    {"ffn_norm.weight", "post_attention_layernorm.weight"},
                                    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
                                    {"ffn_gate.weight", "mlp.gate_proj.weight"},
                                    {"ffn_up.weight", "mlp.up_proj.weight"},
                                    {"ffn_down.weight", "mlp.down_proj.weight"},
                                    {"ffn_gate_inp.weight", "mlp.gate.weight"},
                                    {"ffn_gate_inp.bias", "mlp.gate.bias"},
                                    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"},
                                    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
                                    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
                                    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"}},
                   // of the first layer for drafting
    drafter_names[] = {{"nextn.eh_proj.weight", "mtp.fc.weight"},
                       {"nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight"},
                       {"nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight"},
                       {"nextn.shared_head_norm.weight", "mtp.norm.weight"}},
                   // of all experts of a layer
    expert_names[] = {{"ffn_gate_exps.weight", "gate_proj.weight"}, {"ffn_up_exps.weight", "up_proj.weight"},
                      {"ffn_down_exps.weight", "down_proj.weight"}, {"ffn_gate_exps.bias", "gate_proj.bias"},
                      {"ffn_up_exps.bias", "up_proj.bias"},         {"ffn_down_exps.bias", "down_proj.bias"}};

// Tensors of a gated delta net. heads: the rows (columns: the columns) are those of value heads; behind: rows of
// queries and keys precede them; wide: a head has value_dim of them, else one.
static const struct delta_name {
    const char *theirs, *ours;
    bool        heads, behind, wide, columns;
} delta_names[] = {{"attn_qkv.weight", "in_proj_qkv.weight", .heads = true, .behind = true, .wide = true},
                   {"attn_gate.weight", "in_proj_z.weight", .heads = true, .wide = true},
                   {"ssm_in.weight", "in_proj_qkvz.weight", .heads = false},
                   {"ssm_ba.weight", "in_proj_ba.weight", .heads = false},
                   {"ssm_beta.weight", "in_proj_b.weight", .heads = true},
                   {"ssm_alpha.weight", "in_proj_a.weight", .heads = true},
                   {"ssm_conv1d.weight", "conv1d.weight", .heads = true, .behind = true, .wide = true},
                   {"ssm_dt.bias", "dt_bias", .heads = true},
                   {"ssm_a", "A_log", .heads = true},
                   {"ssm_norm.weight", "norm.weight", .heads = false},
                   {"ssm_out.weight", "out_proj.weight", .heads = true, .wide = true, .columns = true}};

#define FIND(list, name, n) find_name(list, sizeof(list) / sizeof *(list), name, n)
static const char *find_name(const named *list, size_t count, const char *theirs, size_t n) {
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i].theirs) == n && memcmp(list[i].theirs, theirs, n) == 0) return list[i].ours;
    return NULL;
}

// A tensor of the file while its entries are added.
typedef struct listing {
    model                *m;
    const pl_hf_config   *c;
    const pl_gguf_family *f;
    const pl_gguf_tensor *t;
    const pl_ggml_type   *type;
    char                  layer[64]; // what its names begin with
} listing;

static pl_status add(const listing *l, const pl_weight_entry *e, pl_err *err, const char *fmt, ...) PL_PRINTF(4, 5);
static pl_status add(const listing *l, const pl_weight_entry *e, pl_err *err, const char *fmt, ...) {
    model  *m = l->m;
    char    name[640];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    if (m->n == m->room) {
        int64_t          room = m->room > 0 ? 2 * m->room : 256;
        pl_weight_entry *grown = pl_realloc(m->entry, (size_t)room * sizeof *grown);
        if (!grown) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", m->parts.path);
        m->entry = grown;
        m->room = room;
    }
    char *own = pl_strdup(name);
    if (!own) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", m->parts.path);
    m->entry[m->n] = *e;
    m->entry[m->n++].name = own;
    return PL_OK;
}

// An entry of rows [first, first + rows) of a tensor whose rows are `cols` wide (0: a vector's elements). They lie in
// the file, as all of the tensor does.
static pl_weight_entry take_rows(const listing *l, int64_t first, int64_t rows, int64_t cols) {
    size_t row = (size_t)(cols > 0 ? cols : 1) / (size_t)l->type->block * (size_t)l->type->bytes;
    return (pl_weight_entry){.dtype = l->type->dtype,
                             .rank = cols > 0 ? 2 : 1,
                             .shape = {rows, cols},
                             .data = l->t->data + (size_t)first * row,
                             .bytes = (size_t)rows * row,
                             .code = l->type->code};
}

static pl_status fail_shape(const listing *l, const char *what, pl_err *err) {
    return pl_fail(err, PL_E_INPUT, "%s: %.*s: %s", l->m->parts.path, (int)l->t->n_name, l->t->name, what);
}

// Experts lie one after another.
static pl_status add_experts(const listing *l, const char *ours, pl_err *err) {
    const pl_gguf_tensor *t = l->t;
    bool                  bias = strstr(ours, ".bias") != NULL;
    if (t->rank != (bias ? 2 : 3) || t->shape[t->rank - 1] != l->c->experts || (bias && l->type->code))
        return fail_shape(l, "is not one for each expert", err);
    int64_t n = l->c->experts, rows = t->shape[t->rank - 2], cols = bias ? 0 : t->shape[0];
    for (int64_t i = 0; i < n; i++) {
        pl_weight_entry e = take_rows(l, i * rows, rows, cols);
        PL_TRY(add(l, &e, err, "%smlp.experts.%d.%s", l->layer, (int)i, ours));
    }
    return PL_OK;
}

// Each expert's gate above its up.
static pl_status add_joined_experts(const listing *l, pl_err *err) {
    const pl_gguf_tensor *t = l->t;
    if (t->rank != 3 || t->shape[2] != l->c->experts || t->shape[1] % 2 != 0)
        return fail_shape(l, "is not one gate and up for each expert", err);
    for (int64_t i = 0, rows = t->shape[1] / 2; i < 2 * l->c->experts; i++) {
        pl_weight_entry e = take_rows(l, i * rows, rows, t->shape[0]);
        PL_TRY(add(l, &e, err, "%smlp.experts.%d.%s_proj.weight", l->layer, (int)(i / 2), i % 2 ? "up" : "gate"));
    }
    return PL_OK;
}

// Queries (with their gates), keys and values in one tensor, where the architecture has three.
static pl_status add_split(const listing *l, const char *end, pl_err *err) {
    const pl_hf_config   *c = l->c;
    const pl_gguf_tensor *t = l->t;
    int64_t               q = (int64_t)c->num_attention_heads * c->head_dim * (c->output_gate ? 2 : 1);
    int64_t               kv = (int64_t)c->num_key_value_heads * c->head_dim;
    int64_t               rows[3] = {q, kv, kv}, heads[3] = {c->num_attention_heads, c->num_key_value_heads, 0}, at = 0;
    if (t->shape[t->rank - 1] != q + 2 * kv) return fail_shape(l, "is not queries, keys and values", err);
    for (int i = 0; i < 3; at += rows[i++]) {
        pl_weight_entry e = take_rows(l, at, rows[i], t->rank == 2 ? t->shape[0] : 0);
        e.rope_heads = l->f->paired ? heads[i] : 0;
        PL_TRY(add(l, &e, err, "%sself_attn.%c_proj.%s", l->layer, "qkv"[i], end));
    }
    return PL_OK;
}

// Heads whose rows alternate in the file: those of queries and keys where llama.cpp's converter reorders them.
static int64_t paired_heads(const listing *l, const char *ours) {
    if (!l->f->paired) return 0;
    if (strncmp(ours, "self_attn.q_proj", 16) == 0) return l->c->num_attention_heads;
    return strncmp(ours, "self_attn.k_proj", 16) == 0 ? l->c->num_key_value_heads : 0;
}

static const struct delta_name *find_delta(const char *theirs, size_t n) {
    for (size_t i = 0; i < sizeof delta_names / sizeof *delta_names; i++)
        if (strlen(delta_names[i].theirs) == n && memcmp(delta_names[i].theirs, theirs, n) == 0) return &delta_names[i];
    return NULL;
}

// Notes the order of a tensor's value heads. each: elements of a head's row that count (of a convolution its taps).
static pl_status set_tiles(const listing *l, const struct delta_name *d, pl_weight_entry *e, int64_t each,
                           pl_err *err) {
    const pl_hf_delta *c = &l->c->delta;
    pl_weight_tiles    tiles = {.first = d->behind ? 2 * (int64_t)c->key_heads * c->key_dim * each : 0,
                                .keys = c->key_heads,
                                .each = c->value_heads / c->key_heads,
                                .width = (d->wide ? c->value_dim : 1) * each};
    int64_t            all = d->columns ? e->shape[1] : e->shape[0] * each;
    if (all != tiles.first + c->value_heads * tiles.width) return fail_shape(l, "is not of the heads' size", err);
    if (l->f->tiled) *(d->columns ? &e->column_tiles : &e->row_tiles) = tiles;
    return PL_OK;
}

// A tensor of a gated delta net. Vectors are never quantised, and A_log is stored as -exp(A_log).
static pl_status add_delta(const listing *l, const struct delta_name *d, pl_err *err) {
    const pl_gguf_tensor *t = l->t;
    bool                  taps = strcmp(d->ours, "conv1d.weight") == 0, log = strcmp(d->ours, "A_log") == 0;
    bool vector = taps || log || strcmp(d->ours, "dt_bias") == 0 || strcmp(d->ours, "norm.weight") == 0;
    if (t->rank != (vector && !taps ? 1 : 2)) return fail_shape(l, "has not the rank of its kind", err);
    if (vector && (l->type->code || (log && l->type->dtype != PL_F32)))
        return fail_shape(l, log ? "is not F32" : "is quantised, which only matrices may be", err);
    pl_weight_entry e = take_rows(l, 0, t->shape[t->rank - 1], t->rank == 2 ? t->shape[0] : 0);
    if (d->heads) PL_TRY(set_tiles(l, d, &e, taps ? t->shape[0] : 1, err));
    if (taps) {
        e.rank = 3; // [channels, 1, taps] in folders
        e.shape[2] = e.shape[1];
        e.shape[1] = 1;
    }
    if (log) {
        e.code = &pl_weight_decay;
        e.shape[1] = 1;
    }
    return add(l, &e, err, "%slinear_attn.%s", l->layer, d->ours);
}

static pl_status add_of_layer(const listing *l, int layer, const char *rest, pl_err *err) {
    const pl_gguf_tensor    *t = l->t;
    const struct delta_name *delta = NULL;
    size_t                   n = t->n_name - (size_t)(rest - t->name);
    const char              *ours = FIND(expert_names, rest, n);
    int64_t                  rows = t->shape[t->rank - 1];
    if (ours) return add_experts(l, ours, err);
    if (n == 23 && memcmp(rest, "ffn_gate_up_exps.weight", n) == 0) return add_joined_experts(l, err);
    if (layer < l->c->num_hidden_layers && pl_hf_recurrent(l->c, layer)) delta = find_delta(rest, n);
    if (delta) return add_delta(l, delta, err);
    ours = FIND(layer_names, rest, n);
    if (t->rank > 2) return fail_shape(l, "has too many dimensions", err);
    if (ours && strstr(ours, "qkv_proj") && !l->c->fused) return add_split(l, "weight", err);
    if (n == 13 && memcmp(rest, "attn_qkv.bias", n) == 0) return add_split(l, "bias", err);
    pl_weight_entry e = take_rows(l, 0, rows, t->rank == 2 ? t->shape[0] : 0);
    if (ours && strstr(ours, "shared_expert_gate") && t->rank == 1) e = take_rows(l, 0, 1, rows); // of one row
    const char *drafts = strcmp(l->layer, "mtp.layers.0.") == 0 ? FIND(drafter_names, rest, n) : NULL;
    if (drafts) return add(l, &e, err, "%s", drafts);
    if (!ours && strncmp(l->layer, "mtp.", 4) == 0) return add(l, &e, err, "%s%.*s", l->layer, (int)n, rest);
    if (!ours) return add(l, &e, err, "%.*s", (int)t->n_name, t->name);
    if (l->c->post_norms && n == 15 && memcmp(rest, "ffn_norm.weight", n) == 0)
        ours = "pre_feedforward_layernorm.weight";
    if (l->c->fused && n == 13 && memcmp(rest, "ffn_up.weight", n) == 0) ours = "mlp.gate_up_proj.weight";
    e.rope_heads = paired_heads(l, ours);
    if (e.rope_heads > 0 && rows != e.rope_heads * l->c->head_dim)
        return fail_shape(l, "is not of the heads' rows", err);
    return add(l, &e, err, "%s%s", l->layer, ours);
}

// RoPE's divisors became the config's.
static bool is_setting(const pl_gguf_tensor *t) {
    static const char *const names[] = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == t->n_name && memcmp(names[i], t->name, t->n_name) == 0) return true;
    return false;
}

// The tensor's type is supported, rows are whole blocks, and all of it lies in the file.
static pl_status check_tensor(listing *l, pl_err *err) {
    const pl_gguf_tensor *t = l->t;
    const pl_ggml_type   *k = l->type = pl_ggml_type_of(t->type);
    const char           *path = l->m->parts.path;
    int                   n = (int)t->n_name;
    if (!k) return pl_fail(err, PL_E_UNSUPPORTED, "%s: %.*s: type %u is unknown", path, n, t->name, t->type);
    if (k->bytes == 0)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: %.*s: tensors of type %s are not supported", path, n, t->name,
                       k->name);
    if (k->code && t->rank < 2)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: %.*s: a vector of type %s is not supported", path, n, t->name,
                       k->name);
    if (t->shape[0] % k->block != 0)
        return pl_fail(err, PL_E_INPUT, "%s: %.*s: rows of %lld elements are no blocks of %s, which have %d", path, n,
                       t->name, (long long)t->shape[0], k->name, k->block);
    size_t bytes = (size_t)(t->shape[0] / k->block) * (size_t)k->bytes;
    bool   fits = bytes <= t->room;
    for (int i = 1; i < t->rank && fits; i++) {
        fits = (size_t)t->shape[i] <= t->room / bytes;
        bytes *= fits ? (size_t)t->shape[i] : 1;
    }
    return fits ? PL_OK : fail_shape(l, "does not lie in the file, which is cut", err);
}

static pl_status add_tensor(listing *l, pl_err *err) {
    const pl_gguf_tensor *t = l->t;
    int                   layer = 0, used = 0;
    char                  name[64];
    if (is_setting(t)) return PL_OK;
    PL_TRY(check_tensor(l, err));
    const char *ours = FIND(once_names, t->name, t->n_name);
    snprintf(name, sizeof name, "%.*s", (int)t->n_name, t->name);
    if (!ours && sscanf(name, "blk.%4d.%n", &layer, &used) == 1 && used > 0 && layer >= 0) {
        int drafts = l->c->delta.value_heads > 0 ? layer - l->c->num_hidden_layers : -1;
        snprintf(l->layer, sizeof l->layer, "%s.layers.%d.", drafts < 0 ? "model" : "mtp", drafts < 0 ? layer : drafts);
        return add_of_layer(l, layer, t->name + used, err);
    }
    if (t->rank > 2) return fail_shape(l, "has too many dimensions", err);
    pl_weight_entry e = take_rows(l, 0, t->shape[t->rank - 1], t->rank == 2 ? t->shape[0] : 0);
    return ours ? add(l, &e, err, "%s", ours) : add(l, &e, err, "%.*s", (int)t->n_name, t->name);
}

static pl_status list_tensors(model *m, const pl_hf_config *c, const pl_gguf_family *f, pl_err *err) {
    listing l = {.m = m, .c = c, .f = f};
    for (int i = 0; i < m->parts.n; i++)
        for (int64_t k = 0; k < pl_gguf_tensors(m->parts.part[i]); k++) {
            l.t = pl_gguf_tensor_at(m->parts.part[i], k);
            PL_TRY(add_tensor(&l, err));
        }
    return PL_OK;
}

bool pl_gguf_model_is(const char *file) {
    pl_gguf *g;
    if (pl_gguf_open(&g, file, NULL) != PL_OK) return false;
    bool is = pl_gguf_family_of(g) && pl_gguf_find_tensor(g, "token_embd.weight");
    is |= pl_gguf_family_of(g) && pl_gguf_find(g, "split.count");
    pl_gguf_close(g);
    return is;
}

pl_status pl_gguf_model_open(pl_weight_source **out, pl_hf_config *cfg, const char *file, pl_err *err) {
    pl_hf_config          c;
    const pl_gguf_family *f;
    pl_status             st = PL_OK;
    *out = NULL;
    if (cfg) memset(cfg, 0, sizeof *cfg);
    model *m = pl_calloc(1, sizeof *m);
    if (!m) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", file);
    PL_TRY_GOTO(st, fail, open_parts(&m->parts, file, err));
    PL_TRY_GOTO(st, fail, pl_gguf_config(&c, &f, &m->parts, err));
    PL_TRY_GOTO(st, fail, list_tensors(m, &c, f, err));
    PL_TRY(pl_weight_source_create(out, m->parts.path, m->entry, m->n, release, m, err)); // releases m when it fails
    if (cfg) *cfg = c;
    return PL_OK;
fail:
    release(m);
    return st;
}
