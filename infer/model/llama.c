#include "infer/model/llama.h"

#include "checkpoints/fingerprint.h"
#include "checkpoints/gguf_model.h"
#include "checkpoints/llama2c.h"
#include "infer/model/kv.h"
#include "infer/model/llama_params.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/linear.h"
#include "kernels/op/norm.h"
#include "kernels/op/rope.h"
#include "kernels/tape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

pl_status pl_layer_shape_from_config(pl_layer_shape *s, const pl_hf_config *c, pl_err *err) {
    *s = (pl_layer_shape){.d = c->hidden_size,
                          .d_attn = c->hidden_size,
                          .inter = c->intermediate_size,
                          .nh = c->num_attention_heads,
                          .nkv = c->num_key_value_heads,
                          .hd = c->head_dim,
                          .eps = c->rms_norm_eps,
                          .fused = c->fused};
    if (s->hd % 2)
        return pl_fail(err, PL_E_INPUT, "config.json: head_dim: %d is odd, rotary embedding needs pairs", s->hd);
    return PL_OK;
}

pl_status pl_rope_reach(pl_tensor *cos, pl_tensor *sin, pl_rope_blocks *b, const pl_hf_config *c, int64_t positions,
                        pl_dtype real, const pl_memory *memory, pl_err *err) {
    const int64_t first = 1 << 12, most = c->max_position_embeddings, have = cos->data ? cos->dim[0] : 0;
    int64_t       half = pl_hf_rotary_dim(c) / 2, n = 2 * have > first ? 2 * have : first;
    if (have == most || (have > 0 && positions <= have)) return PL_OK;
    if (n < positions) n = positions;
    if (n > most) n = most;
    PL_CHECK(b->n < PL_ROPE_BLOCKS, "rope tables grew %d times", b->n);
    size_t one = pl_size_mul((size_t)n, (size_t)half, pl_dtype_size(real)), bytes = pl_size_mul(one, 2, 1);
    void  *block = pl_memory_create(memory, PL_LOCAL, bytes, err);
    if (!block) return PL_E_MEMORY;
    b->block[b->n] = block;
    b->bytes[b->n++] = bytes;
    uint8_t *stage = pl_memory_stage(memory, block, bytes);
    if (!stage) return pl_fail(err, PL_E_MEMORY, "rope tables of %lld positions: out of memory", (long long)n);
    pl_rope_spec spec = {.theta = c->rope.theta,
                         .hd = pl_hf_rotary_dim(c),
                         .factor = c->rope.factor,
                         .low_freq_factor = c->rope.low_freq_factor,
                         .high_freq_factor = c->rope.high_freq_factor,
                         .original_positions = c->rope.original_max_position_embeddings,
                         .beta_fast = c->rope.beta_fast,
                         .beta_slow = c->rope.beta_slow,
                         .attention = c->rope.attention_factor,
                         .truncate = c->rope.truncate,
                         .divisor = pl_hf_long_divisors(c)};
    spec.scaling = c->rope.scaling == PL_HF_ROPE_LLAMA3   ? PL_ROPE_LLAMA3
                   : c->rope.scaling == PL_HF_ROPE_LINEAR ? PL_ROPE_LINEAR
                   : c->rope.scaling == PL_HF_ROPE_YARN   ? PL_ROPE_YARN
                   : c->rope.scaling == PL_HF_ROPE_LONG   ? PL_ROPE_LONG
                                                          : PL_ROPE_DEFAULT;
    pl_rope_table(stage, stage + one, real, &spec, n);
    PL_TRY(pl_memory_put(memory, block, stage, bytes, PL_OK, err));
    *cos = pl_tensor_2d(block, real, n, half);
    *sin = pl_tensor_2d((uint8_t *)block + one, real, n, half);
    return PL_OK;
}

void pl_rope_fini(pl_rope_blocks *b, const pl_memory *memory) {
    for (int i = 0; i < b->n; i++)
        pl_memory_destroy(memory, PL_LOCAL, b->block[i], b->bytes[i]);
    *b = (pl_rope_blocks){0};
}

static pl_status reach_rope(pl_llama *m, int64_t positions, pl_err *err) {
    const pl_hf_config *c = &m->config;
    const pl_backend   *be = m->be;
    PL_TRY(pl_rope_reach(&m->cos, &m->sin, &m->rope, c, positions, be->real, be->memory, err));
    if (c->local_theta == 0) return PL_OK;
    pl_hf_config local = *c;
    local.rope = (pl_hf_rope){.theta = c->local_theta};
    PL_TRY(pl_rope_reach(&m->local_cos, &m->local_sin, &m->local_rope, &local, positions, be->real, be->memory, err));
    for (int l = 0; l < m->n_layers; l++) {
        if (!pl_hf_windowed(c, l)) continue;
        m->layer[l].cos = m->local_cos;
        m->layer[l].sin = m->local_sin;
    }
    return PL_OK;
}

pl_status pl_llama_reach(const pl_llama *m, int64_t positions, pl_err *err) {
    return reach_rope((pl_llama *)(uintptr_t)m, positions, err);
}

pl_mixture pl_mixture_over(pl_tensor *of, const pl_hf_config *c) {
    ptrdiff_t n = c->experts;
    return (pl_mixture){.wgu = of,
                        .wdown = of + n,
                        .bgu = of + 2 * n,
                        .bdown = of + 3 * n,
                        .n = c->experts,
                        .k = c->experts_per_token,
                        .normalised = c->expert_norm};
}

// Marks the layers with experts, and allocates the experts' tensors.
static pl_status set_mixtures(pl_llama *m, pl_err *err) {
    const pl_hf_config *c = &m->config;
    if (c->experts == 0) return PL_OK;
    m->expert = pl_calloc((size_t)m->n_layers * PL_EXPERT_TENSORS * (size_t)c->experts, sizeof *m->expert);
    if (!m->expert) return pl_fail(err, PL_E_MEMORY, "%d experts: out of memory", c->experts);
    for (int l = 0; l < m->n_layers; l++) {
        if (pl_hf_dense(c, l)) continue;
        m->layer[l].mixture = pl_mixture_over(m->expert + (ptrdiff_t)l * PL_EXPERT_TENSORS * c->experts, c);
    }
    return PL_OK;
}

// Marks the layers with a recurrence.
static pl_status set_recurrent(pl_llama *m, pl_err *err) {
    const pl_hf_delta *c = &m->config.delta;
    if (c->value_heads == 0) return PL_OK;
    m->recurrent = pl_calloc((size_t)m->n_layers, sizeof *m->recurrent);
    if (!m->recurrent) return pl_fail(err, PL_E_MEMORY, "%d layers: out of memory", m->n_layers);
    m->shape.recurrent = m->recurrent;
    m->shape.delta = pl_recurrent_shape(c);
    for (int l = 0; l < m->n_layers; l++) {
        m->recurrent[l] = pl_hf_recurrent(&m->config, l);
        if (m->recurrent[l]) m->layer[l].delta.shape = m->shape.delta;
    }
    return PL_OK;
}

// Sets the layers' properties besides widths and weights.
static void set_layers(pl_llama *m) {
    const pl_hf_config *c = &m->config;
    for (int l = 0; l < m->n_layers; l++) {
        pl_layer *w = &m->layer[l];
        w->gate = c->activation == PL_HF_GELU_TANH ? PL_GATE_GELU_TANH
                  : c->activation == PL_HF_CLAMPED ? PL_GATE_CLAMPED
                                                   : PL_GATE_SILU;
        w->rule = (pl_attention_rule){.scale = c->query_scalar > 0 ? 1 / sqrt(c->query_scalar) : 0,
                                      .cap = c->attention_softcap,
                                      .window = pl_hf_windowed(c, l) ? c->sliding_window : 0};
    }
}

pl_status pl_llama_trainable(const pl_hf_config *c, const char *where, pl_err *err) {
    const char *what = c->foreign                 ? "layers that are not computed here"
                       : c->delta.value_heads > 0 ? "recurrent layers"
                       : c->experts > 0           ? "experts"
                       : c->qkv_bias && strcmp(c->architecture, "LlamaForCausalLM") == 0
                           ? "biases, which no config.json of its states"
                       : c->post_norms                                    ? "norms whose files hold their gain less 1"
                       : c->attention_softcap > 0 || c->final_softcap > 0 ? "soft caps"
                                                                          : NULL;
    return what ? pl_fail(err, PL_E_INPUT, "%s: %s is decoded and learned from, not trained: it has %s", where,
                          c->architecture, what)
                : PL_OK;
}

// Reduces the shape to this rank's part.
static void take_part(pl_llama *m) {
    m->shape.nh = (int)pl_tp_own(m->comm, m->shape.nh);
    m->shape.nkv = (int)pl_tp_own(m->comm, m->shape.nkv);
    m->shape.inter = pl_tp_own(m->comm, m->shape.inter);
    m->shape.delta.nk = (int)pl_tp_own(m->comm, m->shape.delta.nk);
    m->shape.delta.nv = (int)pl_tp_own(m->comm, m->shape.delta.nv);
    for (int l = 0; l < m->n_layers; l++)
        if (m->recurrent && m->recurrent[l]) m->layer[l].delta.shape = m->shape.delta;
}

static pl_status init_model(pl_llama *m, const pl_hf_config *config, const pl_backend *be, pl_comm *comm, bool packed,
                            pl_err *err) {
    *m = (pl_llama){
        .be = be, .comm = comm, .config = *config, .n_layers = config->num_hidden_layers, .vocab = config->vocab_size};
    pl_status st;
    PL_TRY_GOTO(st, fail, pl_layer_shape_from_config(&m->shape, config, err));
    m->layer = pl_calloc((size_t)m->n_layers, sizeof *m->layer);
    if (!m->layer) PL_TRY_GOTO(st, fail, pl_fail(err, PL_E_MEMORY, "%d layers: out of memory", m->n_layers));
    PL_TRY_GOTO(st, fail, set_mixtures(m, err));
    PL_TRY_GOTO(st, fail, set_recurrent(m, err));
    PL_TRY_GOTO(st, fail,
                pl_params_init(&m->params, (16 + PL_EXPERT_TENSORS * config->experts) * m->n_layers + 3, err));
    m->params.memory = be->memory;
    for (int l = 0; l < m->n_layers; l++)
        m->layer[l].comm = comm;
    pl_llama_list(m, packed);
    take_part(m);
    set_layers(m);
    PL_TRY_GOTO(st, fail, reach_rope(m, 1, err));
    return PL_OK;
fail:
    pl_llama_fini(m);
    return st;
}

pl_status pl_llama_init(pl_llama *m, const pl_hf_config *config, const pl_backend *be, bool packed, pl_err *err) {
    return init_model(m, config, be, NULL, packed, err);
}

static const char EMBED[] = "model.embed_tokens.weight", HEAD[] = "lm_head.weight";

// Sets *same if two rows hold the same numbers; a and b have room for one row each.
static pl_status same_row(bool *same, const pl_weight_source *src, const pl_weight_entry *const of[2], int64_t row,
                          float *a, float *b, pl_err *err) {
    float *to[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        const pl_weight_entry *e = of[i];
        pl_weight_spec         spec = {
                    .part = {{e->name, e->shape[0]}}, .n_parts = 1, .rows = e->shape[0], .cols = e->shape[1]};
        PL_TRY(pl_weight_read_rows(src, &spec, row, 1, to[i], err));
    }
    *same = true;
    for (int64_t k = 0; k < of[0]->shape[1] && *same; k++)
        *same = a[k] == b[k];
    return PL_OK;
}

static pl_status same_matrix(bool *same, const pl_weight_source *src, const pl_weight_entry *a,
                             const pl_weight_entry *b, pl_err *err) {
    const pl_weight_entry *of[2] = {a, b};
    *same = a->rank == 2 && b->rank == 2 && a->shape[0] == b->shape[0] && a->shape[1] == b->shape[1];
    bool plain = !a->code && !b->code && a->dtype == b->dtype && a->bytes == b->bytes;
    if (!*same || (plain && memcmp(a->data, b->data, a->bytes) == 0)) return PL_OK;
    float    *rows = pl_malloc(pl_size_mul((size_t)a->shape[1], 2 * sizeof *rows, 1));
    pl_status st = rows ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", pl_weight_source_path(src));
    for (int64_t i = 0; i < a->shape[0] && *same && st == PL_OK; i++)
        st = same_row(same, src, of, i, rows, rows + a->shape[1], err);
    pl_free(rows);
    return st;
}

static pl_status settle_tie(pl_hf_config *c, const pl_weight_source *src, pl_err *err) {
    const pl_weight_entry *embed = pl_weight_source_find(src, EMBED), *head = pl_weight_source_find(src, HEAD);
    bool                   same;
    if (!c->tie_word_embeddings || !embed || !head) return PL_OK;
    PL_TRY(same_matrix(&same, src, embed, head, err));
    if (same) return PL_OK;
    c->tie_word_embeddings = false;
    pl_log_warn_once(
        "%s: config.json ties the output matrix to the embeddings, and the file has an %s of its own: that "
        "one counts, as in transformers 5 (other engines take the embeddings); say "
        "\"tie_word_embeddings\": false, or remove the tensor",
        pl_weight_source_path(src), HEAD);
    return PL_OK;
}

pl_status pl_llama_source(pl_weight_source **src, pl_hf_config *config, const char *path, pl_err *err) {
    char *gguf;
    PL_TRY(pl_gguf_model_find(&gguf, path, err));
    if (gguf) {
        pl_status opened = pl_gguf_model_open(src, config, gguf, err);
        pl_free(gguf);
        return opened;
    }
    if (!pl_path_is_dir(path)) return pl_llama2c_open(src, config, path, err);
    PL_TRY(pl_hf_config_read(config, path, PL_HF_TARGET, err));
    PL_TRY(pl_weight_source_open(src, path, err));
    // A foreign config may leave out tie_word_embeddings: a file without an output matrix is tied.
    if (config->foreign && !pl_weight_source_find(*src, HEAD)) config->tie_word_embeddings = true;
    pl_status st = settle_tie(config, *src, err);
    if (st == PL_OK) return PL_OK;
    pl_weight_source_close(*src);
    *src = NULL;
    return st;
}

const pl_weight_entry *pl_llama_matrix(const pl_weight_source *src, const pl_hf_config *config, bool head) {
    const pl_weight_entry *own = pl_weight_source_find(src, head ? HEAD : EMBED);
    return own || !config->tie_word_embeddings ? own : pl_weight_source_find(src, head ? EMBED : HEAD);
}

pl_status pl_llama_config(pl_hf_config *config, const char *path, pl_err *err) {
    pl_weight_source *src;
    char             *gguf;
    PL_TRY(pl_gguf_model_find(&gguf, path, err));
    if (!gguf && (pl_path_is_dir(path) || pl_path_ends(path, ".json") || !pl_path_exists(path)))
        return pl_hf_config_read(config, path, PL_HF_TARGET, err);
    pl_status st = gguf ? pl_gguf_model_open(&src, config, gguf, err) : pl_llama2c_open(&src, config, path, err);
    pl_free(gguf);
    if (st == PL_OK) pl_weight_source_close(src);
    return st;
}

pl_status pl_llama_fingerprint(char out[17], const char *path, pl_err *err) {
    pl_hf_config      config;
    pl_weight_source *src;
    PL_TRY(pl_llama_source(&src, &config, path, err));
    pl_status st = pl_fingerprint(out, src, &config, false, err);
    pl_weight_source_close(src);
    return st;
}

static bool is_carried(const char *name) {
    static const char *const along[] = {"rotary_emb.", "vision_tower.",          "vision_model.",
                                        "visual.",     "multi_modal_projector.", "mtp."};
    for (size_t i = 0; i < sizeof along / sizeof *along; i++)
        if (strstr(name, along[i])) return true;
    return false;
}

// Returns whether a tensor is a bias of zeros, which quantisers write for layers that have none.
static bool is_zero_bias(const pl_weight_source *src, const char *name) {
    const pl_weight_entry *e = pl_weight_source_find(src, name);
    size_t                 n = strlen(name);
    if (n < 5 || strcmp(name + n - 5, ".bias") != 0 || e->rank != 1 || e->row_stride > 0) return false;
    for (size_t i = 0; i < e->bytes; i++)
        if (((const uint8_t *)e->data)[i]) return false;
    return true;
}

pl_status pl_llama_warn_unclaimed(const pl_llama *m, const pl_weight_source *src, pl_err *err) {
    enum { NAMED = 3 };
    int64_t      n = 0, left = 0;
    char         list[NAMED * 100] = "", more[40] = "";
    const char **name = pl_malloc((size_t)(pl_weight_source_count(src) + 1) * sizeof *name);
    pl_status    st = name ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", pl_weight_source_path(src));
    if (st == PL_OK && !m->config.foreign)
        st = pl_params_unclaimed(&m->params, src, name, pl_weight_source_count(src), &n, err);
    for (int64_t i = 0; st == PL_OK && i < n; i++) {
        // In a tied model a separate output matrix has been compared with the embeddings already.
        bool tied = m->config.tie_word_embeddings && strcmp(name[i], HEAD) == 0;
        if (tied || is_carried(name[i]) || is_zero_bias(src, name[i])) continue;
        size_t at = strlen(list);
        if (left++ < NAMED) snprintf(list + at, sizeof list - at, "%s%.80s", at ? ", " : "", name[i]);
    }
    if (left > NAMED) snprintf(more, sizeof more, " and %lld more", (long long)(left - NAMED));
    if (left > 0)
        pl_log_warn_once("%s: %s%s: of no part of %s that is known here; the model is computed without what these "
                         "tensors hold",
                         pl_weight_source_path(src), list, more, m->config.architecture);
    pl_free(name);
    return st;
}

pl_status pl_llama_computable(const pl_hf_config *c, const pl_backend *be, pl_err *err) {
    static const pl_op needs[] = {PL_OP_EXPERTS, PL_OP_GROUPED, PL_OP_COMBINE};
    for (size_t i = 0; i < sizeof needs / sizeof *needs && c->experts > 0; i++)
        if (!be->fwd[needs[i]])
            return pl_fail(err, PL_E_UNSUPPORTED, "%s has experts, which %s does not compute; take the CPU",
                           c->architecture, be->name);
    return PL_OK;
}

static pl_status refuse_foreign(const pl_hf_config *c, const char *path, pl_err *err) {
    if (!c->foreign) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED,
                   "%s: %s is not computed here; a drafter for it learns from hidden states that an engine took "
                   "(data.hidden_states.path), and is exported to that engine",
                   path, c->architecture);
}

// foreign: a target whose layers are not computed here, or not by be, is opened without them.
static pl_status open_model(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_comm *comm,
                            bool foreign, pl_err *err) {
    *m = (pl_llama){0};
    pl_hf_config      config;
    pl_weight_source *src = NULL;
    char              print[17];
    pl_status         st;
    PL_TRY(pl_llama_source(&src, &config, path, err));
    config.foreign |= foreign && pl_llama_computable(&config, be, NULL) != PL_OK;
    if (!foreign) PL_TRY_GOTO(st, fail, refuse_foreign(&config, path, err));
    if (!foreign) PL_TRY_GOTO(st, fail, pl_llama_computable(&config, be, err));
    PL_TRY_GOTO(st, fail, pl_tp_check(&config, pl_comm_ranks(comm), err));
    PL_TRY_GOTO(st, fail, pl_fingerprint(print, src, &config, false, err));
    PL_TRY_GOTO(st, fail, init_model(m, &config, be, comm, true, err));
    memcpy(m->fingerprint, print, sizeof print);
    m->path = pl_strdup(path);
    st = m->path ? pl_llama_warn_unclaimed(m, src, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    if (st != PL_OK) {
        pl_weight_source_close(src);
        pl_llama_fini(m);
        return st;
    }
    st = pl_params_load(&m->params, src, t, err);
    if (st != PL_OK) pl_llama_fini(m);
    return st;
fail:
    pl_weight_source_close(src);
    return st;
}

pl_status pl_llama_open_part(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_comm *comm,
                             pl_err *err) {
    return open_model(m, path, t, be, comm, false, err);
}

pl_status pl_llama_open_ends(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_err *err) {
    return open_model(m, path, t, be, NULL, true, err);
}

pl_status pl_llama_open(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_err *err) {
    return pl_llama_open_part(m, path, t, be, NULL, err);
}

pl_status pl_llama_open_over(pl_llama *m, const char *path, pl_dtype t, const pl_backend *be, pl_comm *comm,
                             pl_err *err) {
    int id = 0;
    if (!comm) return pl_llama_open_part(m, path, t, be, NULL, err);
    PL_TRY(pl_tp_open(comm, &id, t, err));
    PL_TRY(pl_llama_open_part(m, path, t, be, comm, err));
    m->number = id;
    pl_status st = pl_tp_agree(comm, m->fingerprint, err);
    if (st != PL_OK) pl_llama_fini(m);
    return st;
}

void pl_llama_fini(pl_llama *m) {
    if (m->number > 0) pl_tp_close(m->comm, m->number);
    pl_rope_fini(&m->rope, m->params.memory);
    pl_rope_fini(&m->local_rope, m->params.memory);
    pl_params_fini(&m->params);
    pl_free(m->path);
    pl_free(m->expert);
    pl_free(m->recurrent);
    pl_free(m->layer);
    *m = (pl_llama){0};
}

// One layer as a stretch of the tape.
typedef struct layer_run {
    const pl_llama *m;
    pl_view        *view;
    int             layer;
    pl_tensor       h, delta; // the residual stream; the last sub-layer's output, not yet added to it
    pl_tensor      *input;    // out: the stream at this layer's input; NULL: not needed
} layer_run;

enum { STREAM, DELTA, LAYER_OUT };

static void run_layer(pl_ctx *ctx, const void *arg, pl_tensor *out) {
    const layer_run *r = arg;
    const pl_llama  *m = r->m;
    const pl_layer  *w = &m->layer[r->layer];
    double           eps = m->shape.eps;
    pl_tensor        h = r->h;
    pl_tensor        x = r->layer == 0 ? pl_rmsnorm(ctx, h, w->norm_attn, eps)
                                       : pl_rmsnorm_residual(ctx, &h, r->delta, w->norm_attn, eps);
    if (r->input) *r->input = h;
    pl_tensor delta = pl_layer_attention(ctx, &m->shape, w, x, r->view, r->layer);
    if (w->norm_attn_out.data) delta = pl_rmsnorm(ctx, delta, w->norm_attn_out, eps);
    x = pl_rmsnorm_residual(ctx, &h, delta, w->norm_mlp, eps);
    out[DELTA] = pl_layer_mlp(ctx, w, x);
    if (w->norm_mlp_out.data) out[DELTA] = pl_rmsnorm(ctx, out[DELTA], w->norm_mlp_out, eps);
    out[STREAM] = h;
}

// Returns sqrt(d) as transformers computes it: a float, rounded to the weights' type.
static double embedding_scale(const pl_llama *m) {
    if (!m->config.embedding_scaled) return 1;
    float scale = (float)sqrt((double)m->shape.d);
    return m->embed.dtype == PL_BF16 ? pl_round_bf16(scale) : scale;
}

// Without a tape, two layers at a time have memory in the frame: a layer reuses that of the layer before the previous
// one, whose results have been read, and so writes memory that is still cached (256 rows through all 16 layers of a 1B
// model: 80 MB instead of 640). The ops after the last layer, logits included, take such a turn too.
typedef struct turns {
    size_t begin, second; // offsets: begin of the first turn; end of the first turn
    int    first;         // first layer of the current pair
    int    n;             // number of layers in the pair
} turns;

// Layers of a model need equal memory, except that layers with and without experts, or a recurrence, differ.
static void take_turn(pl_ctx *ctx, turns *t, const pl_llama *m, int layer) {
    const pl_layer *w = &m->layer[layer], *first = &m->layer[t->first];
    if (t->n == 2 && w->mixture.n == first->mixture.n && w->delta.shape.nv == first->delta.shape.nv) {
        pl_arena_release(&ctx->frame, t->begin);
        t->n = 0;
    } else if (t->n == 0 || t->n == 2) {
        *t = (turns){.begin = pl_arena_mark(&ctx->frame), .first = layer};
    }
}

// keep: the layer's results stay.
static void end_turn(pl_ctx *ctx, turns *t, bool keep) {
    size_t now = pl_arena_mark(&ctx->frame);
    if (keep) {
        *t = (turns){0};
        return;
    }
    PL_CHECK(t->n > 0 || t->second == 0 || now <= t->second, "layer %d takes %zu bytes of the frame, now %zu", t->first,
             t->second - t->begin, now - t->begin);
    if (t->n++ == 0) t->second = now;
}

// Takes x as the taps of layer `of`; true if there are any.
static bool take_taps(const int *taps, int n_taps, int of, pl_tensor x, pl_llama_out *out) {
    bool kept = false;
    for (int i = 0; i < n_taps; i++) {
        if (taps[i] != of) continue;
        out->tap[i] = x;
        kept = true;
    }
    return kept;
}

void pl_llama_forward(pl_ctx *ctx, const pl_llama *m, const int32_t *id, int64_t rows, pl_view *view, const int *taps,
                      int n_taps, pl_llama_out *out) {
    PL_CHECK(!view->rerun || n_taps == 0, "%d taps of layers that are not kept", n_taps);
    pl_tensor  shape = {.dim = {rows, m->shape.d, 1, 1}}, input;
    layer_run  r = {.m = m,
                    .view = view,
                    .h = pl_embed_scaled(ctx, m->embed, id, rows, embedding_scale(m)),
                    .input = n_taps ? &input : NULL};
    turns      t = {0};
    const bool pass = !pl_ctx_recording(ctx) && !view->block;
    for (r.layer = 0; r.layer < m->n_layers; r.layer++) {
        pl_tensor o[LAYER_OUT] = {shape, shape};
        if (pass) take_turn(ctx, &t, m, r.layer);
        if (view->rerun)
            pl_tape_stretch(ctx, run_layer, &r, sizeof r, o, LAYER_OUT);
        else
            run_layer(ctx, &r, o);
        r.h = o[STREAM];
        r.delta = o[DELTA];
        bool tapped = n_taps > 0 && take_taps(taps, n_taps, r.layer, input, out);
        if (pass && r.layer == 0)
            pl_ctx_const(ctx, rows, m->shape.d); // this pass makes no stream, but must allocate
                                                 // as much
        if (pass) end_turn(ctx, &t, tapped);
    }
    if (t.n == 2) pl_arena_release(&ctx->frame, t.begin); // the final norm reads the last layer's output alone
    pl_tensor h = r.h;
    out->hidden = pl_rmsnorm_residual(ctx, &h, r.delta, m->norm, m->shape.eps);
    take_taps(taps, n_taps, m->n_layers, h, out);
    take_taps(taps, n_taps, PL_TAP_FINAL, out->hidden, out);
}

pl_tensor pl_llama_logits(pl_ctx *ctx, const pl_llama *m, pl_tensor hidden) {
    pl_tensor z = pl_tp_first_rank(ctx, m->comm, pl_linear(ctx, hidden, m->head), m->vocab);
    if (m->config.final_softcap > 0 && pl_comm_rank(m->comm) == 0) pl_softcap(ctx, z, m->config.final_softcap);
    return z;
}

int pl_llama_default_taps(int n_layers, int taps[PL_MAX_TAPS]) {
    int want[3] = {2, n_layers / 2, n_layers - 3}, n = 0;
    if (n_layers < 7) {
        want[0] = (2 * n_layers + 3) / 6; // L/3 rounded half up
        want[1] = (4 * n_layers + 3) / 6;
        want[2] = n_layers;
    }
    for (int i = 0; i < 3; i++)
        if (n == 0 || taps[n - 1] != want[i]) taps[n++] = want[i];
    return n;
}

static double packed_bytes(const pl_tensor *w) {
    return (double)pl_packed_bytes(w);
}

double pl_llama_step_bytes(const pl_llama *m, int64_t context) {
    double bytes = 0;
    for (int i = 0; i < m->params.n; i++)
        if (m->params.p[i].kind != PL_PARAM_EMBED) bytes += (double)m->params.p[i].owned_bytes;
    for (int l = 0; l < m->n_layers; l++) {
        const pl_mixture *x = &m->layer[l].mixture;
        if (x->n > 0) bytes -= (x->n - x->k) * (packed_bytes(x->wgu) + packed_bytes(x->wdown));
        if (x->router_bias.data) bytes -= (x->n - x->k) * (double)(x->bgu->dim[0] + x->bdown->dim[0]) * sizeof(float);
        if (m->layer[l].delta.shape.nv > 0) {
            bytes += (double)pl_gdn_state(&m->shape.delta) * sizeof(float);
            continue;
        }
        int     window = m->layer[l].rule.window;
        int64_t seen = window > 0 && window < context ? window : context;
        bytes += 2.0 * (double)(m->shape.nkv * m->shape.hd) * (double)pl_kv_elem(&m->shape, PL_F32) * (double)seen;
    }
    return bytes;
}
