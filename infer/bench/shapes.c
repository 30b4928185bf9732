#include "infer/bench/shapes.h"

#include <stdio.h>
#include <string.h>

#define ROOM 0.9 // of the host's available memory, for weights

static const struct shape {
    const char *name;
    int         vocab, d, layers, heads, kv_heads, inter;
    bool        tied, bias;
    double      theta;
} shapes[] = {
    {"llama3-8b", 128256, 4096, 32, 32, 8, 14336, false, false, 500000},
    {"llama2-7b", 32000, 4096, 32, 32, 32, 11008, false, false, 10000},
    {"llama3.2-1b", 128256, 2048, 16, 32, 8, 8192, true, false, 500000},
    {"qwen2-7b", 152064, 3584, 28, 28, 4, 18944, false, true, 1000000},
    {"tiny", 600, 64, 2, 4, 2, 96, false, true, 10000},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

pl_status pl_bench_shape_find(pl_hf_config *c, const char *name, int layers, int positions, pl_err *err) {
    const struct shape *s = NULL;
    for (int i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0) s = &shapes[i];
    if (!s) return pl_fail(err, PL_E_USAGE, "--shape %s: no such shape; known are " PL_SHAPE_NAMES, name);
    pl_hf_config_init(c);
    snprintf(c->architecture, sizeof c->architecture, "LlamaForCausalLM");
    snprintf(c->model_type, sizeof c->model_type, "llama");
    c->hidden_size = s->d;
    c->intermediate_size = s->inter;
    c->num_hidden_layers = layers ? layers : s->layers;
    c->num_attention_heads = s->heads;
    c->num_key_value_heads = s->kv_heads;
    c->head_dim = s->d / s->heads;
    c->vocab_size = s->vocab;
    c->max_position_embeddings = positions;
    c->rms_norm_eps = 1e-5;
    c->rope.theta = s->theta;
    c->tie_word_embeddings = s->tied;
    c->qkv_bias = s->bias;
    c->dtype = PL_BF16;
    return PL_OK;
}

pl_status pl_bench_shape_options(const pl_cli_args *a, const char **name, int *layers, pl_err *err) {
    pl_hf_config c;
    *name = pl_cli_text(a, "shape");
    *layers = pl_cli_has(a, "layers") ? (int)pl_cli_int(a, "layers") : 0;
    if (*name && pl_cli_has(a, "target"))
        return pl_fail(err, PL_E_USAGE, "--shape: stands in for --target; give one of them");
    if (*layers && !*name) return pl_fail(err, PL_E_USAGE, "--layers: is for --shape");
    return *name ? pl_bench_shape_find(&c, *name, *layers, 1, err) : PL_OK;
}

// What the host can still give, 0 where the system does not say.
static double available(void) {
    double kib = 0;
    char   line[256];
    FILE  *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lf kB", &kib) == 1) break;
    if (f) fclose(f);
    return kib * 1024;
}

pl_status pl_bench_shape_room(int64_t values, const pl_backend *be, pl_err *err) {
    double bytes = (double)values * (double)pl_dtype_size(PL_BF16), have = ROOM * available();
    // The emulated device's memory is the host's.
    if ((be->memory && be != pl_backend_emulated()) || have == 0 || bytes < have) return PL_OK;
    return pl_fail(err, PL_E_MEMORY,
                   "random weights take %.1f GiB, there is room for %.1f GiB; take a smaller model or, of a --shape, "
                   "give fewer --layers",
                   bytes / 1073741824, have / 1073741824);
}
