#include "checkpoints/llama2c.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a little-endian machine");

enum { HEADER = 28, MATRICES = 7, VECTORS = 2 };

typedef struct file {
    pl_map           map;
    pl_weight_entry *entries; // names are owned
    int64_t          count, cap;
} file;

static void release(void *owner) {
    file *f = owner;
    for (int64_t i = 0; i < f->count; i++)
        pl_free((char *)f->entries[i].name);
    pl_free(f->entries);
    pl_map_close(&f->map);
    pl_free(f);
}

static pl_status read_header(pl_hf_config *c, const file *f, const char *path, pl_err *err) {
    int32_t h[7];
    if (f->map.size < HEADER) return pl_fail(err, PL_E_INPUT, "%s: %zu bytes are no llama2.c file", path, f->map.size);
    if (memcmp(f->map.data, "24ka", 4) == 0)
        return pl_fail(err, PL_E_INPUT, "%s: a llama2.c file of a newer version; export it as version 0", path);
    memcpy(h, f->map.data, sizeof h);
    pl_hf_config_init(c);
    strcpy(c->architecture, "LlamaForCausalLM");
    strcpy(c->model_type, "llama");
    c->hidden_size = h[0];
    c->intermediate_size = h[1];
    c->num_hidden_layers = h[2];
    c->num_attention_heads = h[3];
    c->num_key_value_heads = h[4];
    int64_t vocab = h[5] < 0 ? -(int64_t)h[5] : h[5];
    c->vocab_size = vocab <= PL_HF_VOCAB_MAX ? (int)vocab : 0; // 0 is refused below
    c->max_position_embeddings = h[6];
    c->head_dim = h[3] > 0 && h[0] % h[3] == 0 ? h[0] / h[3] : 0;
    c->rms_norm_eps = 1e-5;
    c->bos_token_id = 1;
    c->eos_token_id[0] = 1;
    c->eos_token_id[1] = 2;
    c->n_eos = 2;
    c->tie_word_embeddings = h[5] > 0;
    char *where = pl_sprintf("%s: not a llama2.c version 0 file", path);
    if (!where) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = pl_hf_config_check(c, where, err);
    pl_free(where);
    const char *other = st == PL_E_INPUT ? pl_sniff(f->map.data, f->map.size) : NULL;
    return other ? pl_fail(err, PL_E_INPUT, "%s: %s", path, other) : st;
}

// Where the walk through the file stands.
typedef struct cursor {
    file  *f;
    size_t at;
    bool   failed; // out of memory
} cursor;

// The next tensor of the file. Its place was checked against the file's size before.
static void take(cursor *c, int64_t rows, int64_t cols, int64_t rope_heads, const char *fmt, ...) PL_PRINTF(5, 6);
static void take(cursor *c, int64_t rows, int64_t cols, int64_t rope_heads, const char *fmt, ...) {
    char    name[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    size_t bytes = (size_t)rows * (size_t)(cols > 0 ? cols : 1) * sizeof(float);
    char  *own = pl_strdup(name);
    if (!own) {
        c->failed = true;
        return;
    }
    c->f->entries[c->f->count++] = (pl_weight_entry){.name = own,
                                                     .dtype = PL_F32,
                                                     .rank = cols > 0 ? 2 : 1,
                                                     .shape = {rows, cols},
                                                     .data = c->f->map.data + c->at,
                                                     .bytes = bytes,
                                                     .rope_heads = rope_heads};
    c->at += bytes;
}

// The layers' tensors of one kind.
static void take_layers(cursor *c, int layers, const char *kind, int64_t rows, int64_t cols, int64_t rope_heads) {
    for (int l = 0; l < layers; l++)
        take(c, rows, cols, rope_heads, "model.layers.%d.%s.weight", l, kind);
}

// The floats that the header promises. Within the bounds of pl_hf_config_check no product here comes near 2^63:
// layers * (wider side of a matrix) * (other side) < 2^10 * 2^20 * 2^16.
static int64_t promised(const pl_hf_config *c) {
    int64_t d = c->hidden_size, h = c->intermediate_size, l = c->num_hidden_layers, v = c->vocab_size;
    int64_t kv = (int64_t)c->num_key_value_heads * c->head_dim;
    int64_t freq = (int64_t)c->max_position_embeddings * c->head_dim;
    return v * d * (c->tie_word_embeddings ? 1 : 2) + l * (2 * d * d + 2 * kv * d + 3 * h * d + 2 * d) + d + freq;
}

static pl_status walk(file *f, const pl_hf_config *c, const char *path, pl_err *err) {
    int64_t floats = promised(c);
    if ((uint64_t)f->map.size != HEADER + (uint64_t)floats * sizeof(float))
        return pl_fail(err, PL_E_INPUT,
                       "%s: %zu bytes where the header promises %" PRId64 "; the file is cut, or is no llama2.c file",
                       path, f->map.size, HEADER + floats * (int64_t)sizeof(float));
    int     l = c->num_hidden_layers;
    int64_t d = c->hidden_size, h = c->intermediate_size, kv = (int64_t)c->num_key_value_heads * c->head_dim;
    f->cap = (int64_t)l * (MATRICES + VECTORS) + 3;
    f->entries = pl_calloc((size_t)f->cap, sizeof *f->entries);
    if (!f->entries) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    cursor at = {.f = f, .at = HEADER};
    take(&at, c->vocab_size, d, 0, "model.embed_tokens.weight");
    take_layers(&at, l, "input_layernorm", d, 0, 0);
    take_layers(&at, l, "self_attn.q_proj", d, d, c->num_attention_heads);
    take_layers(&at, l, "self_attn.k_proj", kv, d, c->num_key_value_heads);
    take_layers(&at, l, "self_attn.v_proj", kv, d, 0);
    take_layers(&at, l, "self_attn.o_proj", d, d, 0);
    take_layers(&at, l, "post_attention_layernorm", d, 0, 0);
    take_layers(&at, l, "mlp.gate_proj", h, d, 0);
    take_layers(&at, l, "mlp.down_proj", d, h, 0);
    take_layers(&at, l, "mlp.up_proj", h, d, 0);
    take(&at, d, 0, 0, "model.norm.weight");
    at.at += (size_t)c->max_position_embeddings * (size_t)c->head_dim * sizeof(float);
    if (!c->tie_word_embeddings) take(&at, c->vocab_size, d, 0, "lm_head.weight");
    return at.failed ? pl_fail(err, PL_E_MEMORY, "%s: out of memory", path) : PL_OK;
}

pl_status pl_llama2c_open(pl_weight_source **out, pl_hf_config *cfg, const char *path, pl_err *err) {
    *out = NULL;
    if (cfg) memset(cfg, 0, sizeof *cfg);
    pl_hf_config c;
    file        *f = pl_calloc(1, sizeof *f);
    if (!f) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = PL_OK;
    PL_TRY_GOTO(st, fail, pl_map_open(&f->map, path, err));
    PL_TRY_GOTO(st, fail, read_header(&c, f, path, err));
    PL_TRY_GOTO(st, fail, walk(f, &c, path, err));
    PL_TRY(pl_weight_source_create(out, path, f->entries, f->count, release, f, err)); // releases f when it fails
    if (cfg) *cfg = c;
    return PL_OK;
fail:
    release(f);
    return st;
}
