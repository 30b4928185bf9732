// A model in a GGUF file: each tensor of what opens can be read to its last row.
#include "checkpoints/gguf_model.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float values[512], negative[4] = {-1, -1, -1, -1};

typedef struct seed_tensor {
    const char *name;
    int         rank;
    int64_t     shape[3];
    uint32_t    type; // ggml's
} seed_tensor;

static void put_keys(pl_gguf_out *o, const char *arch, int experts) {
    static const struct {
        const char *name;
        uint32_t    value;
    } keys[] = {{"block_count", 1},
                {"context_length", 8},
                {"embedding_length", 32},
                {"feed_forward_length", 32},
                {"attention.head_count", 1},
                {"attention.key_length", 2},
                {"attention.value_length", 2},
                {"attention.sliding_window", 4},
                {"expert_used_count", 1},
                {"ssm.group_count", 2},
                {"ssm.time_step_rank", 4},
                {"ssm.state_size", 1},
                {"ssm.inner_size", 8},
                {"ssm.conv_kernel", 2}};
    char key[64];
    pl_gguf_put_text(o, "general.architecture", arch);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, keys[i].name);
        pl_gguf_put_u32(o, key, keys[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    pl_gguf_put_f32(o, key, 1e-5F);
    snprintf(key, sizeof key, "%s.expert_count", arch);
    if (experts > 0) pl_gguf_put_u32(o, key, (uint32_t)experts);
}

static void seed(const char *arch, int experts, const seed_tensor *t, int n) {
    pl_err       err;
    uint8_t     *data;
    size_t       bytes;
    pl_gguf_out *o = pl_gguf_out_new();
    put_keys(o, arch, experts);
    for (int i = 0; i < n; i++)
        pl_gguf_put_tensor(o, t[i].name, PL_F32, t[i].rank, t[i].shape,
                           strcmp(t[i].name, "blk.0.ssm_a") == 0 ? negative : values);
    pl_fuzz_must(pl_gguf_write(o, pl_fuzz_path("seed.gguf"), &err), &err);
    pl_gguf_out_free(o);
    pl_fuzz_must(pl_file_read(pl_fuzz_path("seed.gguf"), &data, &bytes, 1 << 20, &err), &err);
    for (int i = 0; i < n; i++) { // behind the name: rank, sizes, type
        uint8_t *at = memmem(data, bytes, t[i].name, strlen(t[i].name));
        memcpy(at + strlen(t[i].name) + 4 + 8 * t[i].rank, &t[i].type, sizeof t[i].type);
    }
    pl_weight_source *src;
    pl_fuzz_must(pl_gguf_model_open(&src, NULL, pl_fuzz_file("seed.gguf", data, bytes), &err), &err);
    pl_weight_source_close(src);
    pl_fuzz_seed(data, bytes);
    pl_free(data);
}

static void seeds(void) {
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = 1;
    static const seed_tensor llama[] = {{"token_embd.weight", 2, {2, 32}, 8},
                                        {"blk.0.attn_q.weight", 2, {2, 32}, 0},
                                        {"blk.0.attn_norm.weight", 1, {32}, 0},
                                        {"rope_freqs.weight", 1, {1}, 0},
                                        {"blk.0.attn_qkv.bias", 1, {6}, 0}},
                             oss[] = {{"token_embd.weight", 2, {2, 32}, 20},
                                      {"blk.0.ffn_gate_exps.weight", 3, {2, 2, 32}, 39},
                                      {"blk.0.ffn_up_exps.bias", 2, {2, 2}, 0},
                                      {"blk.0.attn_sinks.weight", 1, {1}, 0}},
                             gemma[] = {{"token_embd.weight", 2, {1, 256}, 14},
                                        {"blk.0.ffn_norm.weight", 1, {32}, 1},
                                        {"blk.0.post_ffw_norm.weight", 1, {32}, 30}},
                             delta[] = {{"token_embd.weight", 2, {2, 32}, 8},
                                        {"blk.0.ssm_a", 1, {4}, 0},
                                        {"blk.0.ssm_beta.weight", 2, {4, 32}, 0},
                                        {"blk.0.ssm_conv1d.weight", 2, {12, 2}, 0},
                                        {"blk.0.ssm_out.weight", 2, {32, 8}, 0}};
    seed("llama", 0, llama, 5);
    seed("gpt-oss", 2, oss, 4);
    seed("gemma3", 0, gemma, 3);
    seed("qwen35", 0, delta, 5);
}

static const char *const words[] = {"llama",
                                    "qwen2",
                                    "qwen3moe",
                                    "phi3",
                                    "gemma2",
                                    ".rope.scaling.type",
                                    "yarn",
                                    "longrope",
                                    "split.count",
                                    "split.no",
                                    "blk.0.",
                                    ".weight",
                                    "\x0c\0",
                                    "\x17\0\0\0",
                                    "ffn_down_exps",
                                    "\xff\xff\xff\xff",
                                    NULL};

const pl_fuzz_target pl_fuzz = {.name = "gguf_model", .seeds = seeds, .words = words, .runs = 5000, .max_len = 1 << 12};

static void read_all(const pl_weight_source *src) {
    for (int64_t i = 0; i < pl_weight_source_count(src); i++) {
        pl_err                 err;
        const pl_weight_entry *e = pl_weight_source_at(src, i);
        int64_t                rows = e->rank == 3 ? e->shape[0] * e->shape[2] : e->shape[0]; // 3: a convolution's taps
        pl_weight_spec         spec = {.part = {{e->name, rows}},
                                       .n_parts = 1,
                                       .rows = rows,
                                       .cols = e->rank == 2 ? e->shape[1] : 0,
                                       .inner = {e->rank == 3, e->rank == 3 ? e->shape[2] : 0}};
        size_t                 n = (size_t)rows * (size_t)(e->rank == 2 ? e->shape[1] : 1);
        float                 *to = malloc(n * sizeof *to);
        if (!to) pl_fuzz_finding("no memory");
        bool checked = pl_fuzz_result(pl_weight_source_check(src, &spec, 1, &err), &err, NULL);
        if (!checked && !(e->code && e->code->check)) pl_fuzz_finding("%s", err.msg);
        if (!checked) {
            free(to);
            continue;
        }
        pl_fuzz_must(pl_weight_read_f32(src, &spec, to, &err), &err);
        pl_fuzz_touch(to, n * sizeof *to);
        free(to);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err            err;
    pl_hf_config      c;
    pl_weight_source *src = NULL;
    const char       *path = pl_fuzz_file("m-00001-of-00002.gguf", data, n);
    if (!pl_fuzz_result(pl_gguf_model_open(&src, &c, path, &err), &err, &src)) return 0;
    pl_fuzz_must(pl_hf_config_check(&c, path, &err), &err);
    for (int i = 0; i < c.n_eos; i++)
        if (c.eos_token_id[i] < 0 || c.eos_token_id[i] >= c.vocab_size) pl_fuzz_finding("EOS %d", c.eos_token_id[i]);
    read_all(src);
    pl_weight_source_close(src);
    return 0;
}
