#include "infer/bench/shapes.h"

#include "kernels/base/room.h"

#include <stdio.h>
#include <string.h>

static const struct shape {
    const char *name;
    int         vocab, d, layers, heads, kv_heads, inter;
    bool        tied, bias;
    double      theta;
    int         head_dim, experts, of_token, expert; // 0: d / heads; no experts
    bool        planned;                             // never with weights
} shapes[] = {
    {"llama3-8b", 128256, 4096, 32, 32, 8, 14336, false, false, 500000, 0, 0, 0, 0, false},
    {"llama2-7b", 32000, 4096, 32, 32, 32, 11008, false, false, 10000, 0, 0, 0, 0, false},
    {"llama3.2-1b", 128256, 2048, 16, 32, 8, 8192, true, false, 500000, 0, 0, 0, 0, false},
    {"qwen2-7b", 152064, 3584, 28, 28, 4, 18944, false, true, 1000000, 0, 0, 0, 0, false},
    {"llama3-70b", 128256, 8192, 80, 64, 8, 28672, false, false, 500000, 0, 0, 0, 0, true},
    {"qwen3-30b-a3b", 151936, 2048, 48, 32, 4, 6144, false, false, 1000000, 128, 128, 8, 768, true},
    {"tiny", 600, 64, 2, 4, 2, 96, false, true, 10000, 0, 0, 0, 0, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const struct shape *find(const char *name) {
    for (int i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

pl_status pl_bench_shape_find(pl_hf_config *c, const char *name, int layers, int positions, pl_err *err) {
    const struct shape *s = find(name);
    if (!s)
        return pl_fail(err, PL_E_USAGE, "--shape %s: no such shape; known are " PL_SHAPE_NAMES PL_SHAPE_PLANNED, name);
    pl_hf_config_init(c);
    snprintf(c->architecture, sizeof c->architecture, "LlamaForCausalLM");
    snprintf(c->model_type, sizeof c->model_type, "llama");
    c->hidden_size = s->d;
    c->intermediate_size = s->inter;
    c->num_hidden_layers = layers ? layers : s->layers;
    c->num_attention_heads = s->heads;
    c->num_key_value_heads = s->kv_heads;
    c->head_dim = s->head_dim ? s->head_dim : s->d / s->heads;
    c->experts = s->experts;
    c->experts_per_token = s->of_token;
    c->expert_size = s->expert;
    c->vocab_size = s->vocab;
    c->max_position_embeddings = positions;
    c->rms_norm_eps = 1e-5;
    c->rope.theta = s->theta;
    c->tie_word_embeddings = s->tied;
    c->qkv_bias = s->bias;
    c->dtype = PL_BF16;
    return PL_OK;
}

pl_status pl_bench_shape_planned(const pl_cli_args *a, const char **name, int *layers, pl_err *err) {
    *name = pl_cli_text(a, "shape");
    *layers = pl_cli_has(a, "layers") ? (int)pl_cli_int(a, "layers") : 0;
    if (*name && pl_cli_has(a, "target"))
        return pl_fail(err, PL_E_USAGE, "--shape: stands in for --target; give one of them");
    if (*layers && !*name) return pl_fail(err, PL_E_USAGE, "--layers: is for --shape");
    pl_hf_config c;
    return *name ? pl_bench_shape_find(&c, *name, *layers, 1, err) : PL_OK;
}

pl_status pl_bench_shape_options(const pl_cli_args *a, const char **name, int *layers, pl_err *err) {
    PL_TRY(pl_bench_shape_planned(a, name, layers, err));
    if (*name && find(*name)->planned)
        return pl_fail(err, PL_E_USAGE, "--shape %s: is for `plan train` alone; take one of " PL_SHAPE_NAMES, *name);
    return PL_OK;
}

pl_status pl_bench_shape_room(double bytes, const pl_backend *be, pl_err *err) {
    if (!pl_backend_on_host(be)) return PL_OK;
    return pl_memory_room(bytes, "random weights",
                          "take a smaller model, a shorter --context or, of a --shape, give fewer --layers", err);
}
