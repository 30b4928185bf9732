#include "infer/model/llama_params.h"

#include <math.h>
#include <stdio.h>

static void add_matrix(pl_params *ps, pl_tensor *w, pl_weight_part part, int64_t cols, double init_std) {
    pl_params_add(
        ps, &(pl_param_args){.tensor = w, .kind = PL_PARAM_MATRIX, .part = {part}, .cols = cols, .init_std = init_std});
}

// Takes matrices that files stack in one tensor as parts of it; over ranks, this rank's piece of each.
static void take_stacked(pl_weight_part *part, const pl_comm *c, const char *name, const int64_t *rows, int n) {
    int64_t of = 0, first = 0;
    for (int i = 0; i < n; i++)
        of += rows[i];
    if (!c) part[0] = pl_tp_part(NULL, name, of);
    for (int i = 0; i < n && c; first += rows[i++])
        part[i] = pl_tp_run(c, name, first, rows[i], of);
}

// Takes rows of a tensor that lie in n runs of `run`, the first at `first`, every `pitch` rows; over ranks, this rank's
// runs.
static pl_weight_part take_runs(const pl_comm *c, const char *name, int64_t first, int64_t run, int64_t pitch,
                                int64_t n) {
    const pl_weight_part own = c ? pl_tp_run(c, name, 0, n, n) : (pl_weight_part){.rows = n};
    return (pl_weight_part){.name = name,
                            .rows = own.rows * run,
                            .first = own.first * pitch + first,
                            .of = n * pitch,
                            .run = run,
                            .pitch = pitch};
}

// gated: each head's rows of q_proj are those of its queries and those of its gate.
static void add_attention(pl_params *ps, pl_layer *w, const pl_layer_shape *s, const char *prefix, bool gated,
                          double out_scale) {
    char    n[4][96];
    int64_t q = (int64_t)s->nh * s->hd, kv = (int64_t)s->nkv * s->hd;
    for (int i = 0; i < 4; i++)
        snprintf(n[i], sizeof n[i], "%sself_attn.%c_proj.weight", prefix, "qkvo"[i]);
    pl_param_args qkv = {.tensor = &w->wqkv, .kind = PL_PARAM_MATRIX, .cols = s->d_attn, .init_std = 0.02};
    int64_t       rows[3] = {q, kv, kv};
    for (int i = 0; i < 3 && !s->fused; i++)
        qkv.part[i] = pl_tp_part(w->comm, n[i], rows[i]);
    if (s->fused) { // one tensor with the same rows in the same order
        snprintf(n[0], sizeof n[0], "%sself_attn.qkv_proj.weight", prefix);
        take_stacked(qkv.part, w->comm, n[0], rows, 3);
    }
    if (gated) qkv.part[0] = take_runs(w->comm, n[0], 0, s->hd, 2 * (int64_t)s->hd, s->nh);
    pl_params_add(ps, &qkv);
    if (gated)
        add_matrix(ps, &w->wgate, take_runs(w->comm, n[0], s->hd, s->hd, 2 * (int64_t)s->hd, s->nh), s->d_attn, 0.02);
    add_matrix(ps, &w->wo, pl_tp_part(w->comm, n[3], s->d), q, 0.02 * out_scale);
}

// of: the MLP's name, "mlp" or an expert's. c: the ranks that share it, NULL: none. alone: not part of a mixture, whose
// products are grouped and end without their gate.
static void add_mlp(pl_params *ps, const pl_comm *c, pl_tensor *wgu, pl_tensor *wdown, const pl_layer_shape *s,
                    int64_t width, const char *prefix, const char *of, bool alone, double out_scale) {
    char n[3][96];
    snprintf(n[0], sizeof n[0], "%s%s.%s.weight", prefix, of, s->fused ? "gate_up_proj" : "gate_proj");
    snprintf(n[1], sizeof n[1], "%s%s.up_proj.weight", prefix, of);
    snprintf(n[2], sizeof n[2], "%s%s.down_proj.weight", prefix, of);
    pl_param_args gu = {.tensor = wgu, .kind = PL_PARAM_MATRIX, .cols = s->d, .init_std = 0.02, .gated = alone};
    int64_t       rows[2] = {width, width};
    for (int i = 0; i < 2 && !s->fused; i++)
        gu.part[i] = pl_tp_part(c, n[i], width);
    if (s->fused) take_stacked(gu.part, c, n[0], rows, 2);
    pl_params_add(ps, &gu);
    add_matrix(ps, wdown, pl_tp_part(c, n[2], s->d), width, 0.02 * out_scale);
}

void pl_layer_params(pl_params *ps, pl_layer *w, const pl_layer_shape *s, const char *prefix, double out_scale) {
    add_attention(ps, w, s, prefix, false, out_scale);
    add_mlp(ps, w->comm, &w->wgu, &w->wdown, s, s->inter, prefix, "mlp", true, out_scale);
}

static void add_bias(pl_params *ps, const pl_comm *c, pl_tensor *b, const char *prefix, const char *name,
                     int64_t rows) {
    char whole[160];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    pl_params_add(ps, &(pl_param_args){.tensor = b, .kind = PL_PARAM_BIAS, .part = {pl_tp_part(c, whole, rows)}});
}

static void add_expert_biases(pl_params *ps, pl_mixture *w, const pl_layer_shape *s, int64_t width,
                              const char *prefix) {
    add_bias(ps, NULL, &w->router_bias, prefix, "mlp.gate.bias", w->n);
    for (int e = 0; e < w->n; e++) {
        char n[2][96], down[48];
        snprintf(n[0], sizeof n[0], "%smlp.experts.%d.gate_proj.bias", prefix, e);
        snprintf(n[1], sizeof n[1], "%smlp.experts.%d.up_proj.bias", prefix, e);
        snprintf(down, sizeof down, "mlp.experts.%d.down_proj.bias", e);
        pl_params_add(
            ps, &(pl_param_args){.tensor = &w->bgu[e], .kind = PL_PARAM_BIAS, .part = {{n[0], width}, {n[1], width}}});
        add_bias(ps, NULL, &w->bdown[e], prefix, down, s->d);
    }
}

static void add_mixture(pl_params *ps, pl_mixture *w, const pl_layer_shape *s, int64_t width, int64_t shared,
                        const char *prefix, double out_scale) {
    char name[96];
    snprintf(name, sizeof name, "%smlp.gate.weight", prefix);
    pl_params_weight(ps, &w->router, PL_PARAM_MATRIX, name, w->n, s->d, 0.02)->fp32 = true;
    for (int e = 0; e < w->n; e++) {
        snprintf(name, sizeof name, "mlp.experts.%d", e);
        add_mlp(ps, NULL, &w->wgu[e], &w->wdown[e], s, width, prefix, name, false, out_scale);
    }
    if (shared == 0) return;
    add_mlp(ps, NULL, &w->shared_wgu, &w->shared_wdown, s, shared, prefix, "mlp.shared_expert", true, out_scale);
    snprintf(name, sizeof name, "%smlp.shared_expert_gate.weight", prefix);
    pl_params_weight(ps, &w->shared_gate, PL_PARAM_MATRIX, name, 1, s->d, 0.02);
}

// Qwen3-Next's files have one tensor for queries, keys, values and z, and one for both gates, by key head.
static void add_delta_inputs(pl_params *ps, const pl_comm *c, pl_gdn *w, int64_t d, const char *prefix,
                             const pl_hf_delta *files) {
    char                     n[4][96];
    const pl_gdn_shape      *s = &w->shape;
    static const char *const names[2][4] = {{"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"},
                                            {"in_proj_qkvz", "in_proj_qkvz", "in_proj_ba", "in_proj_ba"}};
    int64_t                  group = s->nv / s->nk, dk = s->dk, v = group * s->dv, pitch = 2 * dk + 2 * v, nv = s->nv;
    for (int i = 0; i < 4; i++)
        snprintf(n[i], sizeof n[i], "%slinear_attn.%s.weight", prefix,
                 names[i < 2 ? files->joined_qkvz : files->joined_gates][i]);
    pl_param_args qkv = {.tensor = &w->wqkv, .kind = PL_PARAM_MATRIX, .cols = d, .init_std = 0.02};
    pl_param_args gates = {.tensor = &w->wgates, .kind = PL_PARAM_MATRIX, .cols = d, .init_std = 0.02};
    gates.part[0] = pl_tp_part(c, n[2], nv);
    gates.part[1] = pl_tp_part(c, n[3], nv);
    if (files->joined_qkvz) {
        qkv.part[0] = take_runs(c, n[0], 0, dk, pitch, s->nk);
        qkv.part[1] = take_runs(c, n[0], dk, dk, pitch, s->nk);
        qkv.part[2] = take_runs(c, n[0], 2 * dk, v, pitch, s->nk);
    } else {
        take_stacked(qkv.part, c, n[0], (int64_t[]){s->nk * dk, s->nk * dk, nv * s->dv}, 3);
    }
    if (files->joined_gates) {
        gates.part[0] = take_runs(c, n[2], 0, group, 2 * group, s->nk);
        gates.part[1] = take_runs(c, n[2], group, group, 2 * group, s->nk);
    }
    pl_params_add(ps, &qkv);
    pl_params_add(ps, &gates);
    add_matrix(ps, &w->wz,
               files->joined_qkvz ? take_runs(c, n[1], 2 * dk + v, v, pitch, s->nk) : pl_tp_part(c, n[1], nv * s->dv),
               d, 0.02);
}

static void add_delta(pl_params *ps, const pl_comm *c, pl_gdn *w, int64_t d, const char *prefix,
                      const pl_hf_delta *files, double out_scale) {
    char                conv[96], out[96];
    const pl_gdn_shape *s = &w->shape;
    int64_t             q = (int64_t)s->nk * s->dk * s->taps, v = (int64_t)s->nv * s->dv;
    snprintf(conv, sizeof conv, "%slinear_attn.conv1d.weight", prefix);
    snprintf(out, sizeof out, "%slinear_attn.out_proj.weight", prefix);
    add_delta_inputs(ps, c, w, d, prefix, files);
    pl_param_args taps = {.tensor = &w->conv, .kind = PL_PARAM_TAPS, .inner = {1, s->taps}};
    take_stacked(taps.part, c, conv, (int64_t[]){q, q, v * s->taps}, 3);
    pl_params_add(ps, &taps);
    add_bias(ps, c, &w->a_log, prefix, "linear_attn.A_log", s->nv);
    add_bias(ps, c, &w->dt, prefix, "linear_attn.dt_bias", s->nv);
    pl_params_norm(ps, &w->norm, prefix, "linear_attn.norm", s->dv); // its gain is stored as it is
    add_matrix(ps, &w->wo, pl_tp_part(c, out, d), v, 0.02 * out_scale);
}

static void add_biases(pl_params *ps, pl_layer *w, const pl_layer_shape *s, const char *prefix) {
    char    n[3][96];
    int64_t kv = (int64_t)s->nkv * s->hd;
    for (int i = 0; i < 3; i++)
        snprintf(n[i], sizeof n[i], "%sself_attn.%c_proj.bias", prefix, "qkv"[i]);
    pl_params_add(ps, &(pl_param_args){.tensor = &w->bqkv,
                                       .kind = PL_PARAM_BIAS,
                                       .part = {pl_tp_part(w->comm, n[0], (int64_t)s->nh * s->hd),
                                                pl_tp_part(w->comm, n[1], kv), pl_tp_part(w->comm, n[2], kv)}});
}

// Adds the gains of the norms of queries' and keys' heads.
static void add_head_norms(pl_params *ps, pl_layer *w, const pl_layer_shape *s, const char *prefix, float offset) {
    pl_tensor *norm[2] = {&w->norm_q, &w->norm_k};
    for (int i = 0; i < 2; i++)
        pl_params_norm(ps, norm[i], prefix, i ? "self_attn.k_norm" : "self_attn.q_norm", s->hd)->offset = offset;
}

// post_attention_layernorm is the norm before the MLP; in layers that norm their outputs it is that of attention's
// output.
void pl_llama_list_layer(pl_params *ps, pl_layer *w, const pl_layer_shape *s, const pl_hf_config *c, const char *prefix,
                         double out_scale) {
    int64_t d = s->d;
    bool    post = c->post_norms;
    float   offset = c->norm_plus_one ? 1 : 0;
    pl_params_norm(ps, &w->norm_attn, prefix, "input_layernorm", d)->offset = offset;
    if (w->delta.shape.nv > 0)
        add_delta(ps, w->comm, &w->delta, d, prefix, &c->delta, out_scale);
    else
        add_attention(ps, w, s, prefix, c->output_gate, out_scale);
    if (w->mixture.n > 0)
        add_mixture(ps, &w->mixture, s, c->expert_size, c->shared_expert, prefix, out_scale);
    else
        add_mlp(ps, w->comm, &w->wgu, &w->wdown, s, s->inter, prefix, "mlp", true, out_scale);
    if (c->biased) add_bias(ps, w->comm, &w->bo, prefix, "self_attn.o_proj.bias", d);
    if (c->biased && w->mixture.n > 0) add_expert_biases(ps, &w->mixture, s, c->expert_size, prefix);
    if (c->sinks) add_bias(ps, w->comm, &w->rule.sink, prefix, "self_attn.sinks", s->nh);
    if (c->qkv_bias) add_biases(ps, w, s, prefix);
    if (c->qk_norm && w->delta.shape.nv == 0) add_head_norms(ps, w, s, prefix, offset);
    if (post) pl_params_norm(ps, &w->norm_attn_out, prefix, "post_attention_layernorm", d)->offset = offset;
    pl_params_norm(ps, &w->norm_mlp, prefix, post ? "pre_feedforward_layernorm" : "post_attention_layernorm", d)
        ->offset = offset;
    if (post) pl_params_norm(ps, &w->norm_mlp_out, prefix, "post_feedforward_layernorm", d)->offset = offset;
}

void pl_llama_list(pl_llama *m, bool packed) {
    pl_params *ps = &m->params;
    int64_t    d = m->shape.d;
    bool       tied = m->config.tie_word_embeddings; // files hold the matrix under either name
    pl_params_weight(ps, &m->embed, PL_PARAM_EMBED, "model.embed_tokens.weight", m->vocab, d, 0.02)->spec.alias =
        tied ? "lm_head.weight" : NULL;
    // GPT-2's scaling of the layers' outputs keeps the variance of the residual stream bounded with depth.
    double out_scale = 1 / sqrt(2.0 * m->n_layers);
    float  offset = m->config.norm_plus_one ? 1 : 0;
    for (int l = 0; l < m->n_layers && !m->config.foreign; l++) {
        char prefix[48];
        snprintf(prefix, sizeof prefix, "model.layers.%d.", l);
        pl_llama_list_layer(ps, &m->layer[l], &m->shape, &m->config, prefix, out_scale);
    }
    pl_params_norm(ps, &m->norm, "model.", "norm", d)->offset = offset;
    if (tied && !packed) return;
    pl_params_add(ps, &(pl_param_args){.tensor = &m->head,
                                       .kind = PL_PARAM_MATRIX,
                                       .part = {pl_tp_part(m->comm, "lm_head.weight", m->vocab)},
                                       .cols = d,
                                       .init_std = tied ? 0 : 0.02,
                                       .alias = tied ? "model.embed_tokens.weight" : NULL});
}
