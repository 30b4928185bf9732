#include "checkpoints/quant.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <stdio.h>

#define CONFIG_MAX ((size_t)16 << 20)
enum { GROUP_MAX = 1 << 20 };

static bool same_scheme(const pl_quant_scheme *a, const pl_quant_scheme *b) {
    return a->kind == b->kind && a->bits == b->bits && a->real == b->real && a->zeros == b->zeros &&
           a->either == b->either && a->group_rows == b->group_rows && a->group_cols == b->group_cols;
}

static pl_status add_scheme(pl_quant *q, const pl_json *j, const cJSON *at, pl_quant_scheme s, pl_err *err) {
    for (int i = 0; i < q->n; i++)
        if (same_scheme(&q->scheme[i], &s)) return PL_OK;
    if (q->n == PL_QUANT_SCHEMES) return pl_json_fail(j, at, err, "more than %d schemes", PL_QUANT_SCHEMES);
    q->scheme[q->n++] = s;
    return PL_OK;
}

static void set_name(pl_quant *q, const char *method, const char *format) {
    snprintf(q->name, sizeof q->name, "%.20s%s%.40s", method, *format ? " " : "", format);
}

// Columns of a group: -1, null and 0 are all of a row's (0 here).
static pl_status read_group(const pl_json *j, const cJSON *of, const char *key, int64_t def, int64_t *out,
                            pl_err *err) {
    PL_TRY(pl_json_opt_int(j, of, key, -1, GROUP_MAX, def, out, err));
    if (*out < 0) *out = 0;
    return PL_OK;
}

static pl_status read_ignored(pl_quant *q, const pl_json *j, const cJSON *config, pl_err *err) {
    static const char *const keys[] = {"ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !q->ignore; i++)
        PL_TRY(pl_json_opt_array(j, config, keys[i], &q->ignore, err));
    return PL_OK;
}

// ---- fp8 of transformers and DeepSeek, FBGEMM's ----

// [rows, columns] of a block.
static pl_status read_block(pl_quant_scheme *s, const pl_json *j, const cJSON *block, pl_err *err) {
    int64_t size[2] = {0};
    int     n = 0;
    for (const cJSON *c = block->child; c; c = c->next, n++) {
        if (n == 2) break;
        PL_TRY(pl_json_int_of(j, c, 1, GROUP_MAX, &size[n], err));
    }
    if (n != 2 || cJSON_GetArraySize(block) != 2) return pl_json_fail(j, block, err, "expected two sizes");
    s->group_rows = size[0];
    s->group_cols = size[1];
    return PL_OK;
}

static pl_status read_fp8(pl_quant *q, const pl_json *j, const cJSON *c, pl_err *err) {
    pl_quant_scheme s = {.kind = PL_QUANT_BYTES, .bits = 8, .real = true, .group_rows = 1, .either = true};
    const cJSON    *block;
    const char     *fmt;
    PL_TRY(pl_json_opt_str(j, c, "fmt", "e4m3", &fmt, err));
    if (strcmp(fmt, "e4m3") != 0 && strcmp(fmt, "float8_e4m3fn") != 0)
        return pl_json_fail(j, pl_json_find(j, c, "fmt"), err, "\"%.40s\" is not supported, only e4m3", fmt);
    PL_TRY(pl_json_opt_array(j, c, "weight_block_size", &block, err));
    if (block) PL_TRY(read_block(&s, j, block, err));
    s.either = !block;
    q->activations = true;
    set_name(q, "fp8", "");
    return add_scheme(q, j, c, s, err);
}

static pl_status read_fbgemm(pl_quant *q, const pl_json *j, const cJSON *c, pl_err *err) {
    q->activations = true;
    set_name(q, "fbgemm_fp8", "");
    return add_scheme(q, j, c, (pl_quant_scheme){.kind = PL_QUANT_BYTES, .bits = 8, .real = true, .group_rows = 1},
                      err);
}

// ---- compressed-tensors ----

static const struct {
    const char   *name;
    pl_quant_kind kind;
    int           group; // of a scale; 0: as stated
} formats[] = {
    {"float-quantized", PL_QUANT_BYTES, 0},       {"int-quantized", PL_QUANT_BYTES, 0},
    {"naive-quantized", PL_QUANT_BYTES, 0},       {"mxfp8-quantized", PL_QUANT_BYTES, 32},
    {"pack-quantized", PL_QUANT_PACKED, 0},       {"nvfp4-pack-quantized", PL_QUANT_NVFP4, 16},
    {"mxfp4-pack-quantized", PL_QUANT_MXFP4, 32},
};

// "group", "128x128", ...: which elements share a scale.
static pl_status read_strategy(pl_quant_scheme *s, const pl_json *j, const cJSON *w, pl_err *err) {
    const char  *name;
    const cJSON *block = pl_json_find(j, w, "block_structure");
    int          end = 0, rows = 0, cols = 0;
    PL_TRY(read_group(j, w, "group_size", 0, &s->group_cols, err));
    PL_TRY(pl_json_opt_str(j, w, "strategy", s->group_cols > 0 ? "group" : "tensor", &name, err));
    s->group_rows = 1;
    if (strcmp(name, "group") == 0 || strcmp(name, "tensor_group") == 0) {
        if (s->group_cols > 0) return PL_OK;
        return pl_json_fail(j, w, err, "strategy %.20s without a group_size", name);
    }
    s->group_cols = 0;
    if (strcmp(name, "channel") == 0) return PL_OK;
    s->group_rows = 0;
    if (strcmp(name, "tensor") == 0) return PL_OK;
    if (strcmp(name, "block") != 0 || !block)
        return pl_json_fail(j, w, err, "strategy \"%.40s\" is not supported for weights%s", name,
                            block ? "" : " without a block_structure");
    if (cJSON_IsArray(block)) return read_block(s, j, block, err);
    if (!cJSON_IsString(block) || sscanf(block->valuestring, "%dx%d%n", &rows, &cols, &end) != 2 ||
        block->valuestring[end] || rows < 1 || cols < 1 || rows > GROUP_MAX || cols > GROUP_MAX)
        return pl_json_fail(j, block, err, "expected two sizes, [128, 128]");
    s->group_rows = rows;
    s->group_cols = cols;
    return PL_OK;
}

// Checks that a scheme's numbers are those of its format's files.
static pl_status check_scheme(const pl_quant_scheme *s, const pl_json *j, const cJSON *w, int group, bool real,
                              pl_err *err) {
    bool four = s->kind == PL_QUANT_NVFP4 || s->kind == PL_QUANT_MXFP4;
    bool good = s->kind == PL_QUANT_PACKED ? !real && s->bits >= 2 && s->bits <= 8
                : four                     ? real && s->bits == 4
                : real                     ? s->bits == 8
                                           : s->bits <= 8;
    if (!good)
        return pl_json_fail(j, w, err, "%s of %d bits are not of this format", real ? "floats" : "integers", s->bits);
    if (group > 0 && s->group_cols != group)
        return pl_json_fail(j, w, err, "groups of %d, not %d, which the format has", (int)s->group_cols, group);
    if (real && s->zeros) return pl_json_fail(j, w, err, "floats with zeros are not supported");
    if (s->kind == PL_QUANT_PACKED && s->group_rows != 1)
        return pl_json_fail(j, w, err, "packed integers have scales for a row or a group");
    return PL_OK;
}

static pl_status read_weights(pl_quant *q, const pl_json *j, const cJSON *w, const char *format, pl_err *err) {
    pl_quant_scheme s = {0};
    const char     *type;
    bool            symmetric;
    int64_t         bits;
    size_t          f = 0;
    while (f < sizeof formats / sizeof *formats && strcmp(formats[f].name, format) != 0)
        f++;
    if (strcmp(format, "dense") == 0) return PL_OK;
    if (f == sizeof formats / sizeof *formats)
        return pl_json_fail(j, w, err,
                            "format \"%.40s\" is not supported; known are float-, int-, pack-quantized, "
                            "nvfp4-, mxfp4-pack-quantized and mxfp8-quantized",
                            format);
    PL_TRY(pl_json_opt_int(j, w, "num_bits", 1, 16, 8, &bits, err));
    PL_TRY(pl_json_opt_str(j, w, "type", "int", &type, err));
    PL_TRY(pl_json_opt_bool(j, w, "symmetric", true, &symmetric, err));
    PL_TRY(read_strategy(&s, j, w, err));
    s.kind = formats[f].kind;
    s.bits = (int)bits;
    s.zeros = !symmetric;
    bool real = strcmp(type, "float") == 0;
    s.real = real && s.kind == PL_QUANT_BYTES;
    PL_TRY(check_scheme(&s, j, w, formats[f].group, real, err));
    return add_scheme(q, j, w, s, err);
}

// A member that changes what a layer computes beside its weights.
static pl_status refuse_member(const pl_json *j, const cJSON *c, const char *key, const char *why, pl_err *err) {
    const cJSON *node = pl_json_find(j, c, key);
    return !node || !node->child ? PL_OK : pl_json_fail(j, node, err, "%s", why);
}

static pl_status read_compressed(pl_quant *q, const pl_json *j, const cJSON *c, pl_err *err) {
    const cJSON *groups, *sparsity, *inputs;
    const char  *format, *own, *sparse;
    PL_TRY(pl_json_opt_str(j, c, "format", "", &format, err));
    PL_TRY(refuse_member(j, c, "transform_config", "rotations of activations are not supported", err));
    PL_TRY(pl_json_opt_object(j, c, "sparsity_config", &sparsity, err));
    if (sparsity && sparsity->child) {
        PL_TRY(pl_json_opt_str(j, sparsity, "format", "dense", &sparse, err));
        if (strcmp(sparse, "dense") != 0)
            return pl_json_fail(j, sparsity, err, "format \"%.40s\" is not supported, only dense", sparse);
    }
    PL_TRY(pl_json_get_object(j, c, "config_groups", &groups, err));
    for (const cJSON *g = groups->child; g; g = g->next) {
        const cJSON *w;
        if (!cJSON_IsObject(g)) return pl_json_fail(j, g, err, "expected an object");
        PL_TRY(pl_json_opt_object(j, g, "weights", &w, err));
        PL_TRY(pl_json_opt_object(j, g, "input_activations", &inputs, err));
        PL_TRY(pl_json_opt_str(j, g, "format", format, &own, err));
        q->activations |= inputs != NULL;
        if (w) PL_TRY(read_weights(q, j, w, own, err));
    }
    q->cache = pl_json_find(j, c, "kv_cache_scheme") != NULL;
    set_name(q, "compressed-tensors", format);
    return PL_OK;
}

// ---- AWQ, GPTQ ----

// A whole number under either of two names.
static pl_status read_either(const pl_json *j, const cJSON *c, const char *key, const char *old, int64_t def,
                             int64_t *out, pl_err *err) {
    return read_group(j, c, pl_json_find(j, c, key) ? key : old, def, out, err);
}

static pl_status read_awq(pl_quant *q, const pl_json *j, const cJSON *c, pl_err *err) {
    pl_quant_scheme s = {.kind = PL_QUANT_AWQ, .bits = 4};
    const char     *version;
    int64_t         bits;
    PL_TRY(read_either(j, c, "bits", "w_bit", 4, &bits, err));
    PL_TRY(read_either(j, c, "group_size", "q_group_size", 128, &s.group_cols, err));
    PL_TRY(pl_json_opt_str(j, c, "version", "gemm", &version, err));
    if (strcmp(version, "gemm") != 0 && strcmp(version, "GEMM") != 0)
        return pl_json_fail(j, pl_json_find(j, c, "version"), err,
                            "\"%.40s\" is not supported, only gemm; quantise with version GEMM", version);
    if (bits != 4) return pl_json_fail(j, c, err, "AWQ of %d bits is not supported, only 4", (int)bits);
    set_name(q, "awq", "gemm");
    return add_scheme(q, j, c, s, err);
}

// GPTQModel's: modules with numbers of their own. Those that begin with '-' are left out, which the file says as well.
static pl_status refuse_dynamic(const pl_json *j, const cJSON *c, pl_err *err) {
    const cJSON *dynamic;
    PL_TRY(pl_json_opt_object(j, c, "dynamic", &dynamic, err));
    for (const cJSON *d = dynamic ? dynamic->child : NULL; d; d = d->next)
        if (*d->string != '-') return pl_json_fail(j, d, err, "bits or groups by module are not supported");
    return PL_OK;
}

static pl_status read_gptq(pl_quant *q, const pl_json *j, const cJSON *c, pl_err *err) {
    pl_quant_scheme s = {.kind = PL_QUANT_GPTQ};
    const char     *format, *key = pl_json_find(j, c, "checkpoint_format") ? "checkpoint_format" : "format";
    bool            marlin;
    int64_t         bits;
    PL_TRY(pl_json_get_int(j, c, "bits", 1, 16, &bits, err));
    PL_TRY(read_group(j, c, "group_size", 128, &s.group_cols, err));
    PL_TRY(pl_json_opt_str(j, c, key, "gptq", &format, err));
    PL_TRY(pl_json_opt_bool(j, c, "is_marlin_format", false, &marlin, err));
    PL_TRY(refuse_dynamic(j, c, err));
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
        return pl_json_fail(j, c, err, "GPTQ of %d bits is not supported, only 2, 3, 4 and 8", (int)bits);
    if (marlin || (strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0))
        return pl_json_fail(j, c, err, "format \"%.40s\" is not supported, only gptq and gptq_v2; save it as one",
                            marlin ? "marlin" : format);
    s.bits = (int)bits;
    q->zero_shift = strcmp(format, "gptq") == 0;
    set_name(q, format, "");
    return add_scheme(q, j, c, s, err);
}

// ---- AutoRound: GPTQ's and AWQ's layouts under names of its own ----

// Layers with numbers of their own: those of 16 bits and more are left out, which the file says as well.
static pl_status refuse_extra(const pl_json *j, const cJSON *c, int64_t bits, int64_t group, pl_err *err) {
    const cJSON *extra;
    int64_t      own_bits, own_group;
    PL_TRY(pl_json_opt_object(j, c, "extra_config", &extra, err));
    for (const cJSON *l = extra ? extra->child : NULL; l; l = l->next) {
        if (!cJSON_IsObject(l)) return pl_json_fail(j, l, err, "expected an object");
        PL_TRY(pl_json_opt_int(j, l, "bits", 1, 64, bits, &own_bits, err));
        PL_TRY(read_group(j, l, "group_size", group, &own_group, err));
        if (own_bits < 16 && (own_bits != bits || own_group != group))
            return pl_json_fail(j, l, err, "bits or groups by layer are not supported");
    }
    return PL_OK;
}

static pl_status read_autoround(pl_quant *q, const pl_json *j, const cJSON *c, pl_err *err) {
    pl_quant_scheme s = {.kind = PL_QUANT_GPTQ};
    const char     *packing, *type;
    int64_t         bits, activations;
    PL_TRY(pl_json_get_str(j, c, "packing_format", &packing, err));
    PL_TRY(pl_json_opt_str(j, c, "data_type", "int", &type, err));
    PL_TRY(pl_json_get_int(j, c, "bits", 1, 16, &bits, err));
    PL_TRY(read_group(j, c, "group_size", 128, &s.group_cols, err));
    PL_TRY(pl_json_opt_int(j, c, "act_bits", 1, 64, 16, &activations, err));
    PL_TRY(refuse_extra(j, c, bits, s.group_cols, err));
    bool awq = strcmp(packing, "auto_round:auto_awq") == 0, first = strcmp(packing, "auto_round:auto_gptq") == 0;
    if (!awq && !first && strcmp(packing, "auto_round:gptqmodel") != 0 && strcmp(packing, "auto_round") != 0)
        return pl_json_fail(j, pl_json_find(j, c, "packing_format"), err,
                            "\"%.40s\" is not supported; export as auto_gptq, auto_awq or llm_compressor", packing);
    if (strcmp(type, "int") != 0 || (bits != 4 && (awq || (bits != 2 && bits != 3 && bits != 8))))
        return pl_json_fail(j, c, err, "\"%.20s\" of %d bits is not supported in this packing", type, (int)bits);
    if (awq) s.kind = PL_QUANT_AWQ;
    s.bits = (int)bits;
    q->zero_shift = first;
    q->activations = activations < 16;
    set_name(q, "auto-round", packing);
    return add_scheme(q, j, c, s, err);
}

// ---- ModelOpt ----

static pl_status read_algorithm(pl_quant *q, const pl_json *j, const cJSON *c, pl_err *err) {
    static const struct {
        const char     *name;
        bool            activations;
        pl_quant_scheme scheme;
    } known[] = {
        {"FP8", true, {.kind = PL_QUANT_BYTES, .bits = 8, .real = true}},
        {"FP8_PER_CHANNEL_PER_TOKEN", true, {.kind = PL_QUANT_BYTES, .bits = 8, .real = true, .group_rows = 1}},
        {"MXFP8", true, {.kind = PL_QUANT_BYTES, .bits = 8, .real = true, .group_rows = 1, .group_cols = 32}},
        {"NVFP4", true, {.kind = PL_QUANT_NVFP4, .bits = 4, .group_rows = 1, .group_cols = 16}},
        {"W4A16_NVFP4", false, {.kind = PL_QUANT_NVFP4, .bits = 4, .group_rows = 1, .group_cols = 16}},
    };
    const char *name;
    int64_t     group;
    PL_TRY(pl_json_get_str(j, c, "quant_algo", &name, err));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) != 0) continue;
        PL_TRY(read_group(j, c, "group_size", known[i].scheme.group_cols, &group, err));
        if (known[i].scheme.group_cols > 0 && group != known[i].scheme.group_cols)
            return pl_json_fail(j, c, err, "%s in groups of %d is not supported, only of %d", name, (int)group,
                                (int)known[i].scheme.group_cols);
        q->activations |= known[i].activations;
        return add_scheme(q, j, c, known[i].scheme, err);
    }
    return pl_json_fail(
        j, pl_json_find(j, c, "quant_algo"), err,
        "\"%.40s\" is not supported; known are FP8, FP8_PER_CHANNEL_PER_TOKEN, MXFP8, NVFP4, W4A16_NVFP4", name);
}

static pl_status read_modelopt(pl_quant *q, const pl_json *j, const cJSON *c, pl_err *err) {
    const cJSON *inner, *layers;
    const char  *algorithm;
    PL_TRY(pl_json_opt_object(j, c, "quantization", &inner, err));
    if (inner) c = inner;
    PL_TRY(pl_json_get_str(j, c, "quant_algo", &algorithm, err));
    q->cache = pl_json_find(j, c, "kv_cache_scheme") || pl_json_find(j, c, "kv_cache_quant_algo");
    set_name(q, "modelopt", algorithm);
    PL_TRY(read_ignored(q, j, c, err));
    if (strcmp(algorithm, "MIXED_PRECISION") != 0) return read_algorithm(q, j, c, err);
    PL_TRY(pl_json_get_object(j, c, "quantized_layers", &layers, err));
    for (const cJSON *l = layers->child; l; l = l->next) {
        if (!cJSON_IsObject(l)) return pl_json_fail(j, l, err, "expected an object");
        PL_TRY(read_algorithm(q, j, l, err));
    }
    return PL_OK;
}

// ---- any ----

static const struct {
    const char *name;
    pl_status (*read)(pl_quant *q, const pl_json *j, const cJSON *config, pl_err *err); // NULL: nothing to read
    const char *why;                                                                    // it is refused
} methods[] = {
    {"fp8", read_fp8, NULL},
    {"fbgemm_fp8", read_fbgemm, NULL},
    {"compressed-tensors", read_compressed, NULL},
    {"awq", read_awq, NULL},
    {"gptq", read_gptq, NULL},
    {"modelopt", read_modelopt, NULL},
    {"modelopt_fp4", read_modelopt, NULL},
    {"mxfp4", NULL, NULL},
    {"bitsandbytes", NULL,
     "load it with transformers, dequantize() and save it, or take the model that it was made of"},
    {"hqq", NULL, "load it with transformers, dequantise and save it, or take the model that it was made of"},
    {"torchao", NULL, "take the model that it was made of, which torchao quantises while loading"},
    {"auto-round", read_autoround, NULL},
    {"intel/auto-round", read_autoround, NULL},
};

pl_status pl_quant_parse(pl_quant *q, const pl_json *j, const cJSON *config, pl_err *err) {
    const char  *method;
    const cJSON *at;
    *q = (pl_quant){0};
    if (!cJSON_IsObject(config)) return pl_json_fail(j, config, err, "expected an object");
    PL_TRY(pl_json_get_str(j, config, "quant_method", &method, err));
    at = pl_json_find(j, config, "quant_method");
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (strcmp(methods[i].name, method) != 0) continue;
        if (methods[i].why) return pl_json_fail(j, at, err, "\"%s\" is not supported; %s", method, methods[i].why);
        if (!methods[i].read) return PL_OK;
        PL_TRY(read_ignored(q, j, config, err));
        PL_TRY(methods[i].read(q, j, config, err));
        return q->n > 0 ? PL_OK : pl_json_fail(j, config, err, "no scheme for weights; leave quantization_config out");
    }
    return pl_json_fail(
        j, at, err,
        "\"%.40s\" is not supported; known are fp8, fbgemm_fp8, compressed-tensors, awq, gptq, auto-round, modelopt "
        "and, of GPT-OSS, mxfp4",
        method);
}

// The file's config; NULL: it has none.
static const cJSON *find_config(const pl_json *j) {
    static const char *const places[] = {"quantization_config", "compression_config",
                                         "text_config.quantization_config"};
    const cJSON             *node = NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places && !node && cJSON_IsObject(j->root); i++)
        node = pl_json_find(j, NULL, places[i]);
    return node;
}

static pl_status open_in(pl_json *j, const char *dir, const char *name, pl_err *err) {
    char     *path = pl_path_join(dir, name);
    pl_status st = path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    *j = (pl_json){0};
    if (st == PL_OK && pl_path_exists(path)) st = pl_json_open(j, path, CONFIG_MAX, PL_JSON_UNIQUE, err);
    pl_free(path);
    return st;
}

pl_status pl_quant_read(pl_quant *q, pl_json *j, const char *dir, pl_err *err) {
    *q = (pl_quant){0};
    *j = (pl_json){0};
    if (!pl_path_is_dir(dir)) return PL_OK;
    PL_TRY(open_in(j, dir, "config.json", err));
    if (!j->root) return PL_OK;
    const cJSON *config = find_config(j);
    if (config) return pl_quant_parse(q, j, config, err);
    pl_json_close(j);
    PL_TRY(open_in(j, dir, "hf_quant_config.json", err));
    return j->root ? read_modelopt(q, j, j->root, err) : PL_OK;
}
