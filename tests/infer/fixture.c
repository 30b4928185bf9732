#include "tests/infer/fixture.h"

#include "infer/drafter/mtp.h"
#include "infer/head/dynaspec.h"
#include "infer/head/stopping.h"
#include "infer/model/llama_params.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(pl_status st, const pl_err *err) {
    PL_CHECK(st == PL_OK, "%s", err->msg);
}

// Normal weights, large enough that logits differ clearly; norms around 1.
static float **random_values(const pl_params *ps, uint64_t seed) {
    float **data = calloc((size_t)ps->n, sizeof *data);
    for (int i = 0; i < ps->n; i++) {
        const pl_param *p = &ps->p[i];
        int64_t         n = p->spec.rows * (p->spec.cols ? p->spec.cols : 1);
        pl_rng          r = pl_rng_make(seed, PL_STREAM_TEST, (uint64_t)i);
        data[i] = malloc((size_t)n * sizeof(float));
        for (int64_t k = 0; k < n; k++)
            data[i][k] =
                p->spec.cols ? 0.15f * pl_rng_normal(r, (uint64_t)k) : 1 + 0.1f * pl_rng_normal(r, (uint64_t)k);
        for (int64_t k = 0; k < n && strstr(p->name[0], "A_log"); k++)
            data[i][k] -= 4; // states that last for some positions
    }
    return data;
}

static void free_values(float **data, int n) {
    for (int i = 0; i < n; i++)
        free(data[i]);
    free(data);
}

// Of the first layer and each n-th behind it.
static void set_windows(pl_hf_config *c, int window, int each) {
    c->sliding_window = window;
    for (int l = 0; l < c->num_hidden_layers; l += each)
        c->windowed[l / 8] |= (uint8_t)(1 << l % 8);
}

static void set_experts(pl_hf_config *c, int experts, int of_a_row, int width) {
    c->experts = experts;
    c->experts_per_token = of_a_row;
    c->expert_size = width;
    c->expert_norm = true;
}

// Gated delta nets in all but the last of each three layers; heads that fill no vector.
static void set_delta(pl_hf_config *c, bool by_key_head) {
    c->qk_norm = c->output_gate = c->norm_plus_one = true;
    c->rope.partial = 0.25;
    c->delta = (pl_hf_delta){.key_heads = 2,
                             .value_heads = 4,
                             .key_dim = 12,
                             .value_dim = 20,
                             .taps = by_key_head ? 4 : 3,
                             .joined_qkvz = by_key_head,
                             .joined_gates = by_key_head};
    for (int l = 0; l < c->num_hidden_layers; l++)
        if (l % 3 < 2) c->delta.layer[l / 8] |= (uint8_t)(1 << l % 8);
}

static pl_hf_config config_of(const char *family, int layers, int vocab) {
    pl_hf_config c;
    pl_hf_config_init(&c);
    snprintf(c.architecture, sizeof c.architecture, "%sForCausalLM", family);
    snprintf(c.model_type, sizeof c.model_type, "%s", family);
    c.model_type[0] |= 0x20;
    c.hidden_size = 48;
    c.intermediate_size = 80;
    c.num_hidden_layers = layers;
    c.num_attention_heads = 6;
    c.num_key_value_heads = 2;
    c.head_dim = 8;
    c.vocab_size = vocab;
    c.max_position_embeddings = 256;
    c.rms_norm_eps = 1e-5;
    c.dtype = PL_BF16;
    c.qkv_bias = strcmp(family, "Qwen2") == 0;
    c.qk_norm = strcmp(family, "Qwen3") == 0;
    c.fused = strcmp(family, "Phi3") == 0;
    if (strcmp(family, "Mistral") == 0) set_windows(&c, 9, 1);
    if (strcmp(family, "Mixtral") == 0) set_experts(&c, 5, 2, c.intermediate_size);
    if (strcmp(family, "Qwen3Moe") == 0) {
        set_experts(&c, 9, 3, 24);
        c.qk_norm = true;
        c.expert_norm = false;
        c.dense[0] = 2; // the second layer
    }
    if (strcmp(family, "GptOss") == 0) {
        set_experts(&c, 5, 2, c.intermediate_size);
        c.qkv_bias = c.biased = c.sinks = true;
        c.activation = PL_HF_CLAMPED;
        set_windows(&c, 7, 2);
    }
    if (strcmp(family, "Qwen3_5") == 0) set_delta(&c, false);
    if (strcmp(family, "Qwen3Next") == 0) {
        set_delta(&c, true);
        set_experts(&c, 5, 2, 24);
        c.shared_expert = 20;
    }
    if (strcmp(family, "Gemma2") != 0) return c;
    c.norm_plus_one = c.post_norms = c.embedding_scaled = true;
    c.activation = PL_HF_GELU_TANH;
    c.query_scalar = 12;
    c.attention_softcap = 3;
    c.final_softcap = 8;
    set_windows(&c, 7, 2);
    return c;
}

// Puts rows of a part where its tensor has them.
static void put_part(float *tensor, const pl_weight_part *p, int64_t width, const float *rows) {
    for (int64_t r = 0; r < p->rows; r++) {
        int64_t to = p->run > 0 ? p->first + r / p->run * p->pitch + r % p->run : p->first + r;
        memcpy(tensor + to * width, rows + r * width, (size_t)width * sizeof *rows);
    }
}

// Adds tensors of weights, of which one may be parts of several. Returns how many there are.
static int add_parts(pl_st_source *s, int n, const pl_params *ps, float *const *data) {
    for (int i = 0; i < ps->n; i++) {
        pl_weight_spec spec = pl_param_spec(&ps->p[i]);
        int64_t        width = spec.cols > 0 ? spec.cols : 1;
        const float   *from = data[i];
        for (int k = 0; k < spec.n_parts; from += spec.part[k++].rows * width) {
            const pl_weight_part *p = &spec.part[k];
            int64_t               rows = p->of > 0 ? p->of : p->rows, inner = spec.inner[1];
            int                   at = 0;
            while (at < n && strcmp(s[at].name, p->name) != 0)
                at++;
            if (at == n)
                s[n++] = (pl_st_source){.name = p->name,
                                        .dtype = PL_F32,
                                        .rank = inner > 0       ? 3
                                                : spec.cols > 0 ? 2
                                                                : 1,
                                        .shape = {inner > 0 ? rows / inner : rows, inner > 0 ? 1 : width, inner},
                                        .data = calloc((size_t)(rows * width), sizeof(float))};
            put_part((float *)(uintptr_t)s[at].data, p, width, from);
        }
    }
    return n;
}

// Lists the weights of a target's own layer for drafting, as infer/drafter/mtp.c does.
static void list_own_drafter(pl_params *ps, pl_mtp *e, const pl_llama *m) {
    static pl_tensor expert[4 * 16];
    pl_err           err = {0};
    int64_t          d = m->shape.d;
    must(pl_params_init(ps, 128, &err), &err);
    if (m->config.experts > 0) e->layer.mixture = pl_mixture_over(expert, &m->config);
    pl_params_weight(ps, &e->fc, PL_PARAM_MATRIX, "mtp.fc.weight", d, 2 * d, 0);
    pl_params_norm(ps, &e->norm_embedding, "mtp.", "pre_fc_norm_embedding", d);
    pl_params_norm(ps, &e->norm_hidden, "mtp.", "pre_fc_norm_hidden", d);
    pl_llama_list_layer(ps, &e->layer, &m->shape, &m->config, "mtp.layers.0.", 1);
    pl_params_norm(ps, &e->norm, "mtp.", "norm", d);
}

static void round_matrix(pl_st_source *s) {
    size_t n = (size_t)(s->shape[0] * s->shape[1]);
    void  *to = malloc(n * pl_dtype_size(PL_BF16));
    pl_from_f32(to, PL_BF16, s->data, n);
    free((void *)(uintptr_t)s->data);
    s->data = to;
    s->dtype = PL_BF16;
}

// Writes a target with gated delta nets, and with its own layer for drafting.
static void write_parts(const char *path, const pl_llama *m, float *const *data, uint64_t seed) {
    pl_err        err = {0};
    pl_mtp        e = {0};
    pl_params     own;
    pl_st_source *s = calloc((size_t)(m->params.n + 128) * PL_WEIGHT_PARTS, sizeof *s);
    list_own_drafter(&own, &e, m);
    float **values = random_values(&own, seed + 1);
    int     n = add_parts(s, add_parts(s, 0, &m->params, data), &own, values);
    for (int i = 0; i < n; i++)
        if (s[i].rank == 2) round_matrix(&s[i]);
    must(pl_st_write(path, s, n, NULL, 0, &err), &err);
    for (int i = 0; i < n; i++)
        free((void *)(uintptr_t)s[i].data);
    free(s);
    free_values(values, own.n);
    pl_params_fini(&own);
}

static void write_target(pl_llama *m, const char *dir, const pl_hf_config *c, uint64_t seed, pl_dtype t) {
    pl_err err = {0};
    char   path[128];
    must(pl_llama_init(m, c, pl_backend_cpu(), true, &err), &err);
    float **data = random_values(&m->params, seed);
    snprintf(path, sizeof path, "%s/config.json", dir);
    must(pl_hf_config_write(path, c, &err), &err);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (c->delta.value_heads > 0)
        write_parts(path, m, data, seed);
    else
        must(pl_params_write(&m->params, path, (const float *const *)data, PL_BF16, NULL, 0, &err), &err);
    free_values(data, m->params.n);
    pl_llama_fini(m);
    must(pl_llama_open(m, dir, t, pl_backend_cpu(), &err), &err);
}

void test_foresee(const char *dir, const pl_llama *m, int max_rejection, uint64_t seed) {
    pl_err    err = {0};
    pl_head   h = {.d = m->shape.d, .acceptance = true, .max_rejection = max_rejection};
    pl_params ps;
    must(pl_params_init(&ps, 2, &err), &err);
    pl_stopping_params(&h, &ps);
    float **data = random_values(&ps, seed);
    must(pl_stopping_write(&h, &ps, dir, (const float *const *)data, PL_F32, &err), &err);
    free_values(data, ps.n);
    pl_params_fini(&ps);
}

void test_target_sized(pl_llama *m, const char *dir, int layers, int vocab, uint64_t seed, pl_dtype t) {
    pl_hf_config c = config_of("Llama", layers, vocab);
    write_target(m, dir, &c, seed, t);
}

void test_target(pl_llama *m, const char *dir, int layers, uint64_t seed, pl_dtype t) {
    test_target_sized(m, dir, layers, TEST_VOCAB, seed, t);
}

void test_target_family(pl_llama *m, const char *dir, const char *family, int layers, uint64_t seed, pl_dtype t) {
    pl_hf_config c = config_of(family, layers, TEST_VOCAB);
    c.head_dim = 16; // heads that are wider together than the hidden state
    write_target(m, dir, &c, seed, t);
}

void test_target_heads(pl_llama *m, const char *dir, const char *family, int heads, int kv_heads, int layers,
                       uint64_t seed, pl_dtype t) {
    pl_hf_config c = config_of(family, layers, TEST_VOCAB);
    c.num_attention_heads = heads;
    c.num_key_value_heads = kv_heads;
    c.intermediate_size = 83;
    if (c.delta.key_heads > 0) c.delta.key_heads = kv_heads, c.delta.value_heads = heads;
    write_target(m, dir, &c, seed, t);
}

// Sizes from 0 up, so that some clusters are empty and one is large.
static int64_t *random_clusters(int64_t n, int64_t rows, uint64_t seed) {
    pl_rng   r = pl_rng_make(seed, PL_STREAM_TEST, 1u << 20);
    int64_t *offset = pl_calloc((size_t)n + 1, sizeof *offset);
    for (int64_t c = 0; c + 1 < n; c++)
        offset[c + 1] = offset[c] + (int64_t)pl_rng_below(r, (uint64_t)c, (uint64_t)(2 * rows / n));
    for (int64_t c = 0; c < n; c++)
        offset[c] = offset[c] < rows ? offset[c] : rows;
    offset[n] = rows;
    return offset;
}

// Tokens outside the list hang on its members in turn.
static void hang_outside(pl_head *h, int64_t vocab) {
    pl_err   err = {0};
    int32_t *on = calloc((size_t)vocab, sizeof *on);
    for (int64_t y = 0; y < vocab; y++)
        on[y] = (int32_t)(y % h->vocab);
    for (int64_t j = 0; j < h->vocab; j++)
        on[h->d2t[j]] = (int32_t)j;
    must(pl_outside_init(&h->outside, h->redistribute, on, vocab, h->d2t, h->vocab, "fixture", &err), &err);
    free(on);
}

void test_backbone_write(const char *dir, const pl_llama *target, const pl_backbone_kind *kind,
                         const pl_backbone_options *o, uint64_t seed) {
    pl_err              err = {0};
    pl_backbone        *b;
    pl_backbone_options options = *o;
    int32_t            *order = calloc((size_t)target->vocab, sizeof *order);
    bool                routed = *o->head.kind && pl_head_find(o->head.kind, NULL)->routed;
    if (routed && !o->d2t) {
        for (int32_t i = 0; i < target->vocab; i++)
            order[i] = (i + 5) % (int32_t)target->vocab;
        options.d2t = order;
        options.draft_vocab = target->vocab;
    }
    must(pl_backbone_create(&b, kind, target, &options, pl_backend_cpu(), &err), &err);
    if (routed)
        pl_routed_set_offsets(&b->head, random_clusters(pl_routed_of(&b->head)->own->clusters, b->head.vocab, seed));
    if (b->head.redistribute > 0) hang_outside(&b->head, target->vocab);
    free(order);
    float **data = random_values(&b->params, seed);
    must(pl_backbone_write(b, dir, (const float *const *)data, PL_BF16, &err), &err);
    free_values(data, b->params.n);
    pl_backbone_destroy(b);
}

void test_backbone_begun(const char *dir, const pl_llama *target, const pl_backbone_kind *kind,
                         const pl_backbone_options *o, uint64_t seed) {
    pl_err       err = {0};
    pl_backbone *b;
    must(pl_backbone_create(&b, kind, target, o, pl_backend_cpu(), &err), &err);
    float **data = random_values(&b->params, seed);
    for (int i = 0; i < b->params.n; i++) {
        const pl_param *p = &b->params.p[i];
        pl_rng          r = pl_rng_make(seed, PL_STREAM_TEST, pl_hash(p->name[0], strlen(p->name[0])));
        bool            drawn = p->neutral ? p->init_std > 0 : p->spec.cols > 0;
        for (int64_t k = 0; k < p->spec.rows * (p->spec.cols ? p->spec.cols : 1); k++)
            data[i][k] = drawn ? 0.15f * pl_rng_normal(r, (uint64_t)k) : (float)pl_param_begins(p, k);
    }
    must(pl_backbone_write(b, dir, (const float *const *)data, PL_BF16, &err), &err);
    free_values(data, b->params.n);
    pl_backbone_destroy(b);
}

void test_drafter_write(const char *dir, const pl_llama *target, const char *head, int rank, uint64_t seed) {
    pl_backbone_options o = {.head = pl_hf_head_make(head, rank)};
    test_backbone_write(dir, target, &pl_backbone_eagle3, &o, seed);
}

// ---- oracles --------------------------------------------------------------------------------------------------------

static int32_t scripted(const test_oracle *o, const pl_draft_item *it, int32_t at) {
    return at < o->script_n[it->slot] ? o->script[it->slot][at] : 0;
}

static void mixed_tree(test_oracle *o, pl_draft_item *it) {
    pl_rng r = pl_rng_make(o->seed, PL_STREAM_TEST, ++o->calls);
    int    right = 0; // the deepest node on the right chain
    int    nodes = 1 + (int)pl_rng_below(r, 0, (uint64_t)o->base.policy.max_nodes);
    for (int i = 1; i < nodes; i++) {
        bool    go_right = pl_rng_below(r, (uint64_t)(4 * i), 100) < 60;
        int     parent = go_right ? right : (int)pl_rng_below(r, (uint64_t)(4 * i + 1), (uint64_t)it->tree->n);
        int32_t token = go_right ? scripted(o, it, it->n_tokens + it->tree->depth[right])
                                 : (int32_t)pl_rng_below(r, (uint64_t)(4 * i + 2), TEST_VOCAB);
        if (it->tree->depth[parent] >= it->depth || pl_tree_child(it->tree, parent, token) >= 0) continue;
        int node = pl_tree_add(it->tree, parent, token, 0);
        if (go_right) right = node;
    }
}

int test_oracle_unplaced(const test_oracle *o) {
    int left = 0;
    for (int i = 0; i < PL_ATTN_GROUP; i++)
        for (int n = 1; n <= TEST_NODES; n++)
            left += !o->placed[i][n];
    return left;
}

// A tree of exactly `nodes` nodes around a right path of random length, every number of nodes once at each offset
// before any comes again.
static void placed_tree(test_oracle *o, pl_draft_item *it) {
    pl_rng   r = pl_rng_make(o->seed, PL_STREAM_TEST, ++o->calls);
    bool    *placed = o->placed[(it->n_tokens - 1) % PL_ATTN_GROUP];
    int      nodes = 1 + (int)pl_rng_below(r, 0, TEST_NODES), right = 0;
    int      length = (int)pl_rng_below(r, 1, 5), deepest = 1 + (int)pl_rng_below(r, 2, (uint64_t)it->depth);
    uint64_t at = 3;
    for (int n = 1; n <= TEST_NODES && placed[nodes]; n++)
        nodes = nodes % TEST_NODES + 1;
    placed[nodes] = true;
    while (it->tree->n < nodes) {
        bool    go_right = it->tree->depth[right] < length && it->tree->depth[right] < it->depth;
        int     parent = go_right ? right : (int)pl_rng_below(r, at++, (uint64_t)it->tree->n);
        int32_t token = go_right ? scripted(o, it, it->n_tokens + it->tree->depth[right])
                                 : (int32_t)pl_rng_below(r, at++, TEST_VOCAB);
        if (!go_right && it->tree->depth[parent] >= deepest) continue;
        if (pl_tree_child(it->tree, parent, token) >= 0) continue;
        int node = pl_tree_add(it->tree, parent, token, 0);
        if (go_right) right = node;
    }
}

static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    test_oracle *o = (test_oracle *)base;
    if (ctx->measuring) return;
    for (int i = 0; i < b->n; i++) {
        pl_draft_item *it = &b->item[i];
        if (!it->tree) continue;
        if (o->mode == TEST_MIXED || o->mode == TEST_PLACED) {
            (o->mode == TEST_MIXED ? mixed_tree : placed_tree)(o, it);
            continue;
        }
        int depth = it->depth < base->policy.depth ? it->depth : base->policy.depth;
        for (int d = 0, node = 0; d < depth; d++) {
            int32_t right = scripted(o, it, it->n_tokens + d);
            int32_t token = o->mode == TEST_ACCEPT ? right : o->mode == TEST_STOP ? o->stop : (right + 1) % TEST_VOCAB;
            node = pl_tree_add(it->tree, node, token, 0);
        }
    }
}

static double step_bytes(const pl_drafter *d) {
    return d->max_rows;
}
static const pl_drafter_kind oracle_kind = {.name = "oracle", .propose = propose, .step_bytes = step_bytes};

void test_oracle_init(test_oracle *o, test_oracle_mode mode, const char *tree, int max_nodes, int sessions) {
    pl_err err = {0};
    *o = (test_oracle){.base = {.kind = &oracle_kind, .max_sessions = sessions}, .mode = mode, .seed = 7};
    must(pl_tree_policy_parse(&o->base.policy, tree, &err), &err);
    if (max_nodes > 0) o->base.policy.max_nodes = max_nodes;
}

void test_tokenizer_write(const char *dir, const char *const *pieces, const char *const *merges) {
    char  path[128];
    FILE *f;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    PL_CHECK((f = fopen(path, "w")), "%s", path);
    fprintf(f, "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,"
               "\"post_processor\":null,\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\","
               "\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
               "\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{");
    for (int i = 0; pieces[i]; i++)
        fprintf(f, "%s\"%s\":%d", i ? "," : "", pieces[i], i);
    fprintf(f, "},\"merges\":[");
    for (int i = 0; merges[i]; i++)
        fprintf(f, "%s\"%s\"", i ? "," : "", merges[i]);
    fprintf(f, "]}}\n");
    PL_CHECK(fclose(f) == 0, "%s", path);
}

const char *test_mkdir(char buf[64]) {
    const char *tmp = getenv("TMPDIR");
    snprintf(buf, 64, "%.40s/paceline-XXXXXX", tmp ? tmp : "/tmp");
    PL_CHECK(mkdtemp(buf), "%s", buf);
    return buf;
}

void test_rmdir(const char *dir) {
    pl_tree_remove(dir, NULL);
}
