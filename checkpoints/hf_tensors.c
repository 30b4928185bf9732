#include "checkpoints/hf_tensors.h"

#include <stdio.h>
#include <string.h>

pl_hf_sizes pl_hf_sizes_of(const pl_hf_config *c, int64_t target_width) {
    int64_t rank = strcmp(c->head.kind, "markov") == 0 ? pl_hf_head_int(&c->head, "rank") : 0;
    int64_t refiner = strcmp(c->head.kind, "xpress") == 0 ? pl_hf_head_int(&c->head, "rank") : 0;
    int64_t ratio = pl_hf_head_int(&c->head, "mlp_ratio");
    bool    sure = rank > 0 && pl_hf_head_find(&c->head, "confidence");
    return (pl_hf_sizes){.backbone = c->backbone,
                         .layers = c->num_hidden_layers,
                         .width = c->hidden_size,
                         .heads = c->num_attention_heads,
                         .kv_heads = c->num_key_value_heads,
                         .head_dim = c->head_dim,
                         .intermediate = c->intermediate_size,
                         .taps = c->n_taps,
                         .target_width = target_width,
                         .vocab = c->vocab_size,
                         .head_rows = c->vocab_size,
                         .norms = pl_hf_norms(c),
                         .markov_rank = rank,
                         .markov_form = pl_hf_markov_of(&c->head),
                         .confidence_inputs = sure ? c->hidden_size + rank : 0,
                         .conv_taps = c->block.taps,
                         .conv_group = c->block.group,
                         .selector_rank = pl_hf_is_lattice(&c->selector) ? 0 : c->selector.rank,
                         .refiner_rank = refiner,
                         .refiner_ratio = ratio > 0 ? ratio : PL_HF_REFINER_RATIO,
                         .slots = c->block.size,
                         .lattice = pl_hf_is_lattice(&c->selector) ? c->selector : (pl_hf_selector){0}};
}

// at: the places of this program's two sizes.
static const struct {
    const char *name;
    int         rank, at[2];
} padded[] = {{"mask_hidden", 3, {0, 2}},
              {"lilicorr.slot_embedding", PL_HF_PADDED, {2, 4}},
              {"lilicorr.rank_embedding", PL_HF_PADDED, {3, 4}}};
enum { PADDED = sizeof padded / sizeof *padded };

int pl_hf_pad(const char *name, int64_t *shape, int rank) {
    const int64_t own[2] = {shape[0], shape[1]};
    int           i = 0;
    while (i < PADDED && strcmp(padded[i].name, name) != 0)
        i++;
    if (i == PADDED || rank != 2) return rank;
    for (int k = 0; k < padded[i].rank; k++)
        shape[k] = k == padded[i].at[0] ? own[0] : k == padded[i].at[1] ? own[1] : 1;
    return padded[i].rank;
}

int pl_hf_unpad(const char *name, int64_t *shape, int rank) {
    for (int i = 0; i < PADDED; i++) {
        if (strcmp(padded[i].name, name) != 0 || rank != padded[i].rank) continue;
        const int64_t own[2] = {shape[padded[i].at[0]], shape[padded[i].at[1]]};
        for (int k = 0; k < rank; k++)
            if (shape[k] != 1 && k != padded[i].at[0] && k != padded[i].at[1]) return rank;
        memset(shape, 0, (size_t)rank * sizeof *shape);
        memcpy(shape, own, sizeof own);
        return 2;
    }
    return rank;
}

typedef struct tensor {
    const char *name;
    int64_t     size[3];
} tensor;

typedef struct walk {
    pl_hf_tensor_fn fn;
    void           *arg;
    char            prefix[32];
    bool            go;
} walk;

static void visit(walk *w, const tensor *t, size_t n) {
    for (size_t i = 0; i < n && w->go; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s%s", w->prefix, t[i].name);
        w->go = w->fn(w->arg, name, t[i].size);
    }
}
#define VISIT(w, list) visit(w, list, sizeof(list) / sizeof *(list))

// in: the width of what queries, keys and values read.
static void visit_layer(walk *w, const pl_hf_sizes *s, int64_t in) {
    int64_t      d = s->width, q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, inter = s->intermediate;
    const tensor layer[] = {{"self_attn.q_proj.weight", {q, in}},  {"self_attn.k_proj.weight", {kv, in}},
                            {"self_attn.v_proj.weight", {kv, in}}, {"self_attn.o_proj.weight", {d, q}},
                            {"mlp.gate_proj.weight", {inter, d}},  {"mlp.up_proj.weight", {inter, d}},
                            {"mlp.down_proj.weight", {d, inter}},  {"post_attention_layernorm.weight", {d}}};
    VISIT(w, layer);
}

static void visit_eagle1(walk *w, const pl_hf_sizes *s) {
    const tensor once[] = {{"fc.weight", {s->width, 2 * s->width}}};
    VISIT(w, once);
    for (int64_t i = 0; i < s->layers && w->go; i++) {
        snprintf(w->prefix, sizeof w->prefix, "layers.%lld.", (long long)i);
        visit_layer(w, s, s->width);
    }
}

static void visit_eagle3(walk *w, const pl_hf_sizes *s) {
    int64_t      d = s->width, read = s->taps * s->target_width;
    const tensor once[] = {{"fc.weight", {d, read}}, {"norm.weight", {d}}}, before[] = {{"input_norm.weight", {read}}},
                 each[] = {{"weight", {s->target_width}}}, mask[] = {{"mask_hidden", {1, read}}},
                 norms[] = {{"input_layernorm.weight", {d}}, {"hidden_norm.weight", {d}}};
    VISIT(w, once);
    if (s->norms & PL_HF_NORM_BEFORE_FC) VISIT(w, before);
    for (int64_t i = 0; i < s->taps && s->norms & PL_HF_FC_NORM && w->go; i++) {
        snprintf(w->prefix, sizeof w->prefix, "fc_norm.%lld.", (long long)i);
        VISIT(w, each);
    }
    *w->prefix = 0;
    if (s->backbone == PL_HF_PEAGLE) VISIT(w, mask);
    for (int64_t i = 0; i < s->layers && w->go; i++) {
        snprintf(w->prefix, sizeof w->prefix, "midlayer.");
        if (s->layers > 1) snprintf(w->prefix, sizeof w->prefix, "layers.%lld.", (long long)i);
        visit_layer(w, s, i == 0 ? 2 * d : d);
        visit(w, norms, i == 0 ? 2 : 1);
    }
}

// A matrix and its bias.
static void visit_affine(walk *w, const char *name, int64_t rows, int64_t cols) {
    char         weight[64], bias[64];
    const tensor both[] = {{weight, {rows, cols}}, {bias, {rows}}};
    snprintf(weight, sizeof weight, "%sweight", name);
    snprintf(bias, sizeof bias, "%sbias", name);
    VISIT(w, both);
}

static void visit_lattice(walk *w, const pl_hf_sizes *s) {
    const pl_hf_selector *l = &s->lattice;
    int64_t               H = l->width, d = s->width, slots = s->slots - 1, wide = (int64_t)(l->mlp_ratio * (double)H);
    const tensor          once[] = {{"slot_embedding", {slots, H}},
                                    {"rank_embedding", {l->candidates, H}},
                                    {"relative_slot_bias", {l->heads, 2 * slots + 1}},
                                    {"same_slot_bias", {l->heads}},
                                    {"output_norm.weight", {H}},
                                    {"anchor_norm.weight", {H}},
                                    {"feature_mlp.0.weight", {5}},
                                    {"feature_mlp.0.bias", {5}}};
    const tensor          norms[] = {{"attn_norm.weight", {H}}, {"mlp_norm.weight", {H}}};
    snprintf(w->prefix, sizeof w->prefix, "lilicorr.");
    VISIT(w, once);
    if (H != d) visit_affine(w, "token_proj.", H, d);
    visit_affine(w, "pass_hidden_proj.", H, d);
    visit_affine(w, "feature_mlp.1.", H, 5);
    visit_affine(w, "feature_mlp.3.", H, H);
    visit_affine(w, "context_proj.", H, d);
    visit_affine(w, "factor_input_proj.", H, 3 * H);
    visit_affine(w, "out_head.", l->rank, H);
    visit_affine(w, "in_head.", l->rank, H);
    visit_affine(w, "anchor_out_head.", l->rank, H);
    for (int i = 0; i < l->layers && w->go; i++) {
        snprintf(w->prefix, sizeof w->prefix, "lilicorr.layers.%d.", i);
        VISIT(w, norms);
        visit_affine(w, "attn.in_proj_", 3 * H, H);
        visit_affine(w, "attn.out_proj.", H, H);
        visit_affine(w, "mlp.0.", wide, H);
        visit_affine(w, "mlp.2.", H, wide);
    }
}

static void visit_block(walk *w, const pl_hf_sizes *s) {
    int64_t d = s->width, r = s->markov_rank, kernels = s->conv_taps > 0 ? 2 * s->conv_taps * (d / s->conv_group) : 0;
    const tensor once[] = {
        {"fc.weight", {d, s->taps * s->target_width}}, {"hidden_norm.weight", {d}}, {"norm.weight", {d}}};
    const tensor  norms[] = {{"input_layernorm.weight", {d}},
                             {"self_attn.q_norm.weight", {s->head_dim}},
                             {"self_attn.k_norm.weight", {s->head_dim}}};
    const tensor  conv[] = {{"attention_conv.base_kernel", {2, s->conv_taps, d}},
                            {"attention_conv.kernel_projection.weight", {kernels, d}},
                            {"mlp_conv.base_kernel", {2, s->conv_taps, d}},
                            {"mlp_conv.kernel_projection.weight", {kernels, d}}};
    const tensor  markov[] = {{"markov_head.markov_w1.weight", {s->vocab, r}},
                              {"markov_head.markov_w2.weight", {s->head_rows, r}}};
    const tensor  gate[] = {{"markov_head.gate_proj.weight", {r, d + r}}, {"markov_head.gate_proj.bias", {r}}};
    const tensor  joint[] = {{"markov_head.joint_proj.weight", {3 * r, d + 2 * r}},
                             {"markov_head.joint_proj.bias", {3 * r}}};
    const tensor  confidence[] = {{"confidence_head.proj.weight", {1, s->confidence_inputs}},
                                  {"confidence_head.proj.bias", {1}}};
    const tensor  selector[] = {{"candidate_selector.predecessor_codebook", {s->vocab, s->selector_rank}},
                                {"candidate_selector.successor_codebook", {s->head_rows, s->selector_rank}},
                                {"candidate_selector.hidden_projection.weight", {s->selector_rank, d}}};
    const int64_t p = s->refiner_rank, wide = p * s->refiner_ratio;
    const tensor  refiner[] = {{"token_embed.weight", {s->vocab, p}},
                               {"down_h.weight", {p, d}},
                               {"down_g.weight", {p, d}},
                               {"in_proj.weight", {p, 3 * p}},
                               {"mix_l", {p, s->slots, s->slots}},
                               {"mlp_gate.weight", {wide, p}},
                               {"mlp_up.weight", {wide, p}},
                               {"mlp_down.weight", {p, wide}},
                               {"readout.weight", {s->head_rows, p}}};
    VISIT(w, once);
    for (int64_t i = 0; i < s->layers && w->go; i++) {
        snprintf(w->prefix, sizeof w->prefix, "layers.%lld.", (long long)i);
        visit_layer(w, s, d);
        VISIT(w, norms);
        if (s->conv_taps > 0) VISIT(w, conv);
    }
    *w->prefix = 0;
    if (r > 0) VISIT(w, markov);
    if (r > 0 && s->markov_form == PL_HF_MARKOV_GATED) VISIT(w, gate);
    if (r > 0 && s->markov_form == PL_HF_MARKOV_RNN) VISIT(w, joint);
    if (s->confidence_inputs > 0) VISIT(w, confidence);
    if (s->selector_rank > 0) VISIT(w, selector);
    snprintf(w->prefix, sizeof w->prefix, "refiner_head.");
    if (p > 0) VISIT(w, refiner);
    if (s->lattice.candidates > 0) visit_lattice(w, s);
}

bool pl_hf_tensors(const pl_hf_sizes *s, pl_hf_tensor_fn fn, void *arg) {
    walk w = {.fn = fn, .arg = arg, .go = true};
    (s->backbone == PL_HF_DFLASH ? visit_block : s->backbone == PL_HF_EAGLE1 ? visit_eagle1 : visit_eagle3)(&w, s);
    return w.go;
}
