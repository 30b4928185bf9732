// Quantised folders as sources: values against the formats' own libraries (golden_quant.safetensors), names, types,
// prints, what is refused.
#include "checkpoints/fingerprint.h"
#include "checkpoints/hf.h"
#include "checkpoints/quant.h"
#include "kernels/base/hash.h"
#include "scratch.h"
#include <inttypes.h>

#define MODULE "model.layers.0.mlp.down_proj"
#define GOLDEN "tests/checkpoints/golden_quant.safetensors"
enum { TENSORS = 16 };

// A case of the golden file, which a test may change before it is written.
typedef struct folder {
    char         config[2048];
    pl_st_source tensor[TENSORS];
    char         name[TENSORS][128];
    int          n;
    int64_t      rows, cols;
    char         hash[17];
} folder;

static pl_st *golden;

static int setup(void **state) {
    pl_err err;
    if (scratch_setup(state) != 0) return -1;
    const char *path = PACELINE_SOURCE_DIR "/" GOLDEN;
    return pl_st_open(&golden, pl_path_exists(path) ? path : GOLDEN, &err) == PL_OK ? 0 : -1;
}

static int teardown(void **state) {
    pl_st_close(golden);
    return scratch_teardown(state);
}

static void add(folder *f, const char *name, pl_dtype t, int rank, const int64_t *shape, const void *data) {
    assert_true(f->n < TENSORS);
    snprintf(f->name[f->n], sizeof f->name[0], "%s", name);
    f->tensor[f->n] = (pl_st_source){.dtype = t, .rank = rank, .data = data};
    for (int i = 0; i < rank; i++)
        f->tensor[f->n].shape[i] = shape[i];
    f->n++;
}

// The tensors of a case under a module's name.
static void add_case(folder *f, const char *name, const char *module) {
    char key[128], full[128];
    int  n = snprintf(key, sizeof key, "%s|", name);
    for (int64_t i = 0; i < pl_st_count(golden); i++) {
        const pl_st_entry *e = pl_st_at(golden, i);
        if (strncmp(e->name, key, (size_t)n) != 0) continue;
        snprintf(full, sizeof full, "%s%s", module, e->name + n);
        add(f, full, e->dtype, e->rank, e->shape, e->data);
    }
}

static folder load(const char *name) {
    static const int64_t  shape[2] = {4, 2};
    static const uint16_t embed[8] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100};
    folder                f = {0};
    char                  key[128];
    const char           *config = pl_st_metadata(golden, name);
    snprintf(key, sizeof key, "%s.hash", name);
    if (!config) fail_msg("no case %s", name);
    snprintf(f.config, sizeof f.config, "%s", config);
    assert_int_equal(sscanf(pl_st_metadata(golden, key), "%" SCNd64 " %" SCNd64 " %16s", &f.rows, &f.cols, f.hash), 3);
    add_case(&f, name, MODULE);
    add(&f, "model.embed_tokens.weight", PL_BF16, 2, shape, embed);
    return f;
}

static int index_of(const folder *f, const char *end) {
    for (int i = 0; i < f->n; i++) {
        size_t n = strlen(f->name[i]), e = strlen(end);
        if (n >= e && strcmp(f->name[i] + n - e, end) == 0) return i;
    }
    fail_msg("no tensor %s", end);
    return 0;
}

static pl_st_source *tensor(folder *f, const char *end) {
    return &f->tensor[index_of(f, end)];
}

static void drop(folder *f, const char *end) {
    int i = index_of(f, end);
    f->n--;
    memmove(&f->tensor[i], &f->tensor[i + 1], (size_t)(f->n - i) * sizeof f->tensor[0]);
    memmove(&f->name[i], &f->name[i + 1], (size_t)(f->n - i) * sizeof f->name[0]);
}

static void edit(folder *f, const char *from, const char *to) {
    char  whole[sizeof f->config];
    char *at = strstr(f->config, from);
    if (!at) fail_msg("no %s in %s", from, f->config);
    assert_true(snprintf(whole, sizeof whole, "%.*s%s%s", (int)(at - f->config), f->config, to, at + strlen(from)) <
                (int)sizeof whole);
    memcpy(f->config, whole, sizeof whole);
}

static pl_status open_folder(pl_weight_source **src, folder *f, pl_err *err) {
    char text[2200];
    snprintf(text, sizeof text, "{\"quantization_config\": %s}", f->config);
    bool beside = strncmp(f->config, "{\"producer\"", 11) == 0; // ModelOpt's own file
    assert_int_equal(pl_dir_make(at("model"), err), PL_OK);
    put_text(at("model/config.json"), beside ? "{}" : text);
    unlink(at("model/hf_quant_config.json"));
    if (beside) put_text(at("model/hf_quant_config.json"), f->config);
    for (int i = 0; i < f->n; i++)
        f->tensor[i].name = f->name[i];
    assert_int_equal(pl_st_write(at("model/model.safetensors"), f->tensor, f->n, NULL, 0, err), PL_OK);
    return pl_weight_source_open(src, at("model"), err);
}

static pl_weight_source *opened(folder *f) {
    pl_err            err;
    pl_weight_source *src;
    assert_ok(open_folder(&src, f, &err));
    return src;
}

static pl_weight_spec matrix(const folder *f) {
    return (pl_weight_spec){.part = {{MODULE ".weight", f->rows}}, .n_parts = 1, .rows = f->rows, .cols = f->cols};
}

static float *values(const pl_weight_source *src, const folder *f) {
    pl_err         err;
    pl_weight_spec spec = matrix(f);
    float         *v = malloc((size_t)(f->rows * f->cols) * sizeof *v);
    assert_non_null(v);
    assert_ok(pl_weight_source_check(src, &spec, 1, &err));
    assert_ok(pl_weight_read_f32(src, &spec, v, &err));
    return v;
}

// ---- values ----

static void check_rows(const pl_weight_source *src, const folder *f, const float *all) {
    pl_err         err;
    pl_weight_spec spec = matrix(f);
    float         *v = malloc((size_t)(f->rows * f->cols) * sizeof *v);
    assert_non_null(v);
    for (int64_t r = 0; r < f->rows; r++) {
        int64_t n = f->rows - r < 1 + r % 3 ? f->rows - r : 1 + r % 3;
        assert_ok(pl_weight_read_rows(src, &spec, r, n, v, &err));
        assert_memory_equal(v, all + r * f->cols, (size_t)(n * f->cols) * sizeof *v);
    }
    free(v);
}

static void check_copy(const pl_weight_source *src, const folder *f, const float *all) {
    pl_err       err;
    size_t       n = (size_t)(f->rows * f->cols);
    uint16_t    *wanted = malloc(2 * n), *got = malloc(2 * n);
    pl_st_source s = {.name = "copy"};
    assert_true(wanted && got);
    pl_weight_copy(&s, pl_weight_source_find(src, MODULE ".weight"));
    assert_int_equal(s.dtype, PL_BF16);
    pl_from_f32(wanted, PL_BF16, all, n);
    for (size_t i = 0; i < n; i += 37)
        assert_ok(s.fill(s.arg, 2 * i, got + i, 2 * (n - i < 37 ? n - i : 37), &err));
    assert_memory_equal(wanted, got, 2 * n);
    free(wanted);
    free(got);
}

static void check_folder(const char *name, folder *of) {
    folder            f = *of;
    pl_weight_source *src = opened(&f);
    char              hash[17];
    assert_int_equal(pl_weight_source_count(src), 2); // the matrix and the embeddings
    assert_int_equal(pl_weight_source_stored_dtype(src, NULL, 0), PL_BF16);
    float *v = values(src, &f);
    check_rows(src, &f, v);
    check_copy(src, &f, v);
    for (int64_t i = 0; i < f.rows * f.cols; i++)
        v[i] += 0; // as the golden file has it
    pl_hash_hex(hash, pl_hash(v, (size_t)(f.rows * f.cols) * sizeof *v));
    if (strcmp(hash, f.hash) != 0)
        fail_msg("%s: %s, wanted %s; begins with %g %g %g", name, hash, f.hash, (double)v[0], (double)v[1],
                 (double)v[2]);
    free(v);
    pl_weight_source_close(src);
}

static void check_case(const char *name) {
    folder f = load(name);
    check_folder(name, &f);
}

// The layouts of GPTQ and AWQ under AutoRound's names.
static void test_autoround(void **state) {
    (void)state;
    static const char *const as[][3] = {
        {"gptq 4", "\"gptq\", \"bits\"", "auto_round:auto_gptq\", \"extra_config\": {\"a\": {\"bits\": 16}}, \"bits\""},
        {"gptq 3 v2", "\"gptq\", \"bits\"", "auto_round:gptqmodel\", \"bits\""},
        {"gptq 4 v2 in another order", "\"gptq\", \"bits\"", "auto_round\", \"bits\""},
        {"awq", "\"awq\", \"bits\"", "auto_round:auto_awq\", \"bits\""}};
    for (size_t i = 0; i < sizeof as / sizeof *as; i++) {
        char   to[160];
        folder f = load(as[i][0]);
        snprintf(to, sizeof to, "\"auto-round\", \"packing_format\": \"%s", as[i][2]);
        edit(&f, as[i][1], to);
        check_folder(as[i][0], &f);
    }
}

static void test_values(void **state) {
    (void)state;
    char *list = strdup(pl_st_metadata(golden, "cases")), *next = list;
    int   n = 0;
    for (char *name; (name = strsep(&next, "\n")) != NULL; n++)
        check_case(name);
    assert_int_equal(n, 27);
    free(list);
}

// ---- names ----

static void expect_names(folder *f, const char *const *names, int n) {
    pl_weight_source *src = opened(f);
    assert_int_equal(pl_weight_source_count(src), n);
    for (int i = 0; i < n; i++)
        if (!pl_weight_source_find(src, names[i])) fail_msg("no %s", names[i]);
    pl_weight_source_close(src);
}

// Experts one by one, Mixtral's under Qwen3-MoE's names; what wraps a decoder goes; what lies beside it stays out.
static void test_names(void **state) {
    (void)state;
    static const float              one = 1;
    static const char *const        mixture[] = {"model.layers.0.mlp.experts.3.down_proj.weight", MODULE ".weight",
                                                 "model.layers.0.mlp.experts.11.up_proj.weight", "model.embed_tokens.weight"},
                             *const wrapped[] = {MODULE ".weight", "lm_head.weight", "model.embed_tokens.weight"};
    folder                          f = load("awq");
    add_case(&f, "awq", "model.layers.0.block_sparse_moe.experts.3.w2");
    add_case(&f, "awq", "model.layers.0.mlp.experts.11.up_proj");
    expect_names(&f, mixture, 4);
    folder w = load("pack 4");
    w.n = 0;
    add_case(&w, "pack 4", "language_model." MODULE);
    add_case(&w, "pack 4", "language_model.lm_head");
    add_case(&w, "float tensor", "vision_tower.layers.0.proj"); // of another scheme, and not the decoder's
    add(&w, "language_model.model.embed_tokens.weight", PL_F32, 0, NULL, &one);
    expect_names(&w, wrapped, 3);
}

// ---- prints ----

static void print_of(char out[17], folder *f) {
    pl_err            err;
    pl_weight_source *src = opened(f);
    assert_ok(pl_fingerprint(out, src, NULL, false, &err));
    pl_weight_source_close(src);
}

// A bit of the elements, a scale, a zero, an order, and what the config makes of them change the print; what engines
// alone read does not.
static void test_prints(void **state) {
    (void)state;
    static const char *const of[] = {".qweight", ".scales", ".qzeros", ".g_idx"};
    char                     plain[17], other[17];
    folder                   f = load("gptq 4");
    print_of(plain, &f);
    for (int i = 0; i < 4; i++) {
        pl_st_source *t = tensor(&f, of[i]);
        const void   *had = t->data;
        uint8_t       copy[2048];
        size_t        bytes = pl_dtype_size(t->dtype);
        for (int d = 0; d < t->rank; d++)
            bytes *= (size_t)t->shape[d];
        assert_true(bytes <= sizeof copy);
        memcpy(copy, had, bytes);
        copy[bytes - 4] ^= 1;
        t->data = copy;
        print_of(other, &f);
        assert_string_not_equal(plain, other);
        t->data = had;
    }
    edit(&f, "\"gptq\", \"bits\"", "\"gptq\",  \"bits\"");
    print_of(other, &f);
    assert_string_equal(plain, other);
    edit(&f, "\"checkpoint_format\": \"gptq\"", "\"checkpoint_format\": \"gptq_v2\"");
    print_of(other, &f);
    assert_string_not_equal(plain, other);
    folder e = load("modelopt nvfp4");
    print_of(plain, &e);
    drop(&e, ".input_scale");
    print_of(other, &e);
    assert_string_equal(plain, other);
}

// ---- malformed folders ----

typedef enum change {
    DROP,   // a tensor
    COLUMN, // the last size of a tensor is one less
    TYPE,   // a tensor's type is another of that size
    FILL,   // a tensor's bytes are all `byte`
    EDIT,   // of the config: `name` becomes `to`
    ADD     // a tensor, of another case
} change;

static const struct bad {
    const char *base;
    change      change;
    const char *name, *to;
    const char *says;
} bad[] = {
    {"fp8 blocks", DROP, ".weight_scale_inv", NULL, "down_proj.weight: has no " MODULE ".weight_scale beside it"},
    {"fp8 blocks", DROP, "down_proj.weight", NULL, "weight_scale_inv: belongs to a matrix that is not there"},
    {"fp8 blocks", COLUMN, ".weight_scale_inv", NULL, "expected F32, BF16, F16 or F8_E8M0 [3, 3], found F32 [3, 2]"},
    {"fp8 blocks", EDIT, "[16, 32]", "[32, 32]", "[2, 3], found F32 [3, 3]; the config says fp8"},
    {"fp8 blocks", EDIT, "[16, 32]", "[16]", "weight_block_size: expected two sizes"},
    {"fp8 blocks", EDIT, "[16, 32]", "[16, 0]", "weight_block_size[1]: expected a positive integer"},
    {"fp8 blocks", EDIT, "\"e4m3\"", "\"e5m2\"", "fmt: \"e5m2\" is not supported, only e4m3"},
    {"fp8 blocks", FILL, ".weight_scale_inv", "\377", "weight_scale_inv: scale 0 is"},
    {"fp8 blocks", TYPE, "down_proj.weight", "I8",
     "weight_scale_inv: belongs to a matrix that is not there, or is not quantised"},
    {"fp8 tensor", EDIT, "\"fp8\"", "\"awq\"",
     "weight: is of F8_E4M3, which is not in the config's schemes (awq gemm)"},
    {"int channel", DROP, ".weight_scale", NULL, "has no " MODULE ".weight_scale beside it"},
    {"int channel", EDIT, "\"symmetric\": true", "\"symmetric\": false",
     "has no " MODULE ".weight_zero_point beside it"},
    {"int channel with zeros", EDIT, "\"symmetric\": false", "\"symmetric\": true",
     "weight_zero_point: zeros, and the config (compressed-tensors int-quantized) says that there are none"},
    {"pack 4", DROP, ".weight_shape", NULL, "has no " MODULE ".weight_shape beside it"},
    {"pack 4", FILL, ".weight_shape", "\1", "weight_shape: says ["},
    {"pack 4", COLUMN, ".weight_packed", NULL, "weight_packed: expected I32 [6, 12], found I32 [6, 11]"},
    {"pack 4", EDIT, "\"num_bits\": 4", "\"num_bits\": 8", "weight_packed: expected I32 [6, 24], found I32 [6, 12]"},
    {"pack 4", EDIT, "\"group_size\": 32", "\"group_size\": 36", "groups of 36 columns do not divide the 96"},
    {"pack 4", EDIT, "\"group_size\": 32", "\"group_size\": 48",
     "weight_scale: expected F32, BF16 or F16 [6, 2], found"},
    {"pack 4", EDIT, "[\"lm_head\"]", "[\"" MODULE "\"]", "weight_packed: is quantised, and the config"},
    {"pack 4", EDIT, "pack-quantized", "marlin-24", "format \"marlin-24\" is not supported"},
    {"pack 4", EDIT, "\"strategy\": \"group\"", "\"strategy\": \"attn_head\"",
     "strategy \"attn_head\" is not supported"},
    {"pack 4", EDIT, "\"config_groups\"", "\"config_group\"", "config_groups: missing"},
    {"pack 4", EDIT, "\"ignore\"", "\"transform_config\": {\"a\": 1}, \"ignore\"", "rotations of activations"},
    {"pack 4", EDIT, "\"ignore\"", "\"sparsity_config\": {\"format\": \"sparse-24\"}, \"ignore\"", "only dense"},
    {"pack 4 in another order", FILL, ".weight_g_idx", "\1", "weight_g_idx: column 0 is in group 16843009 of 2"},
    {"pack 4 with zeros", COLUMN, ".weight_zero_point", NULL,
     "weight_zero_point: expected I32 [2, 2], found I32 [2, 1]"},
    {"nvfp4", DROP, ".weight_global_scale", NULL, "has no " MODULE ".weight_global_scale beside it"},
    {"nvfp4", FILL, ".weight_global_scale", "\0", "weight_global_scale: 0 is no scale"},
    {"nvfp4", FILL, ".weight_scale", "\177", "weight_scale: scale 0 is nan"},
    {"nvfp4", TYPE, ".weight_scale", "U8", "weight_scale: expected F8_E4M3 [6, 3], found U8 [6, 3]"},
    {"nvfp4", EDIT, "\"group_size\": 16", "\"group_size\": 32", "groups of 32, not 16, which the format has"},
    {"mxfp4", COLUMN, ".weight_scale", NULL, "weight_scale: expected U8 or F8_E8M0 [6, 2], found U8 [6, 1]"},
    {"awq", DROP, ".qzeros", NULL, "has no " MODULE ".qzeros beside it"},
    {"awq", DROP, ".scales", NULL, "has no " MODULE ".scales beside it"},
    {"awq", EDIT, "\"group_size\": 32", "\"group_size\": 24", "groups of 24 columns do not divide the 64"},
    {"awq", EDIT, "\"gemm\"", "\"gemv\"", "version: \"gemv\" is not supported, only gemm"},
    {"awq", EDIT, "\"gemm\"", "\"gemv_fast\"", "version: \"gemv_fast\" is not supported"},
    {"awq", EDIT, "\"bits\": 4", "\"bits\": 8", "AWQ of 8 bits is not supported"},
    {"awq", COLUMN, ".scales", NULL, "scales: expected F16, BF16 or F32 [2, 32], found F16 [2, 31]"},
    {"awq", TYPE, ".qweight", "F32", "qweight: is of F32"},
    {"awq", FILL, ".scales", "\177", "scales: scale 0 is nan"},
    {"gptq 4", EDIT, "\"bits\": 4", "\"bits\": 8", "scales: expected F16, BF16 or F32 [1, 32], found F16 [2, 32]"},
    {"gptq 4", EDIT, "\"bits\": 4", "\"bits\": 5", "GPTQ of 5 bits is not supported"},
    {"gptq 4", EDIT, "\"checkpoint_format\": \"gptq\"", "\"checkpoint_format\": \"marlin\"",
     "format \"marlin\" is not supported"},
    {"gptq 4", EDIT, "\"sym\"", "\"dynamic\": {\"+:.*up.*\": {\"bits\": 8}}, \"sym\"", "by module are not supported"},
    {"gptq 4", EDIT, "\"group_size\": 32", "\"group_size\": 64",
     "scales: expected F16, BF16 or F32 [1, 32], found F16 [2, 32]"},
    {"gptq 4", FILL, ".g_idx", "\2", "g_idx: column 0 is in group 33686018 of 2"},
    {"gptq 4", COLUMN, ".qzeros", NULL, "qzeros: expected I32 [2, 4], found I32 [2, 3]"},
    {"modelopt nvfp4", DROP, ".weight_scale_2", NULL, "has no " MODULE ".weight_scale_2 beside it"},
    {"modelopt nvfp4", EDIT, "\"NVFP4\"", "\"NVFP4_AWQ\"", "quant_algo: \"NVFP4_AWQ\" is not supported"},
    {"modelopt fp8", EDIT, "\"FP8\"", "\"NVFP4\"",
     "weight: is of F8_E4M3, which is not in the config's schemes (modelopt NVFP4)"},
    {"modelopt fp8", ADD, "int channel", NULL, "other.weight: is of I8, which is not in the config's schemes"},
    {"gptq 4", EDIT, "\"gptq\", \"bits\"", "\"bitsandbytes\", \"bits\"", "\"bitsandbytes\" is not supported; load it"},
    {"gptq 4", EDIT, "\"gptq\", \"bits\"", "\"torchao\", \"bits\"", "\"torchao\" is not supported; take the model"},
    {"gptq 4", EDIT, "\"gptq\", \"bits\"", "\"auto-round\", \"bits\"", "packing_format: missing"},
    {"gptq 4", EDIT, "\"gptq\", \"bits\"", "\"auto-round\", \"packing_format\": \"auto_round:fp8\", \"bits\"",
     "packing_format: \"auto_round:fp8\" is not supported; export as auto_gptq"},
    {"gptq 4", EDIT, "\"gptq\", \"bits\"",
     "\"auto-round\", \"packing_format\": \"auto_round\", \"extra_config\": {\"a\": {\"bits\": 8}}, \"bits\"",
     "extra_config.a: bits or groups by layer are not supported"},
    {"awq", EDIT, "\"awq\", \"bits\": 4", "\"auto-round\", \"packing_format\": \"auto_round:auto_awq\", \"bits\": 8",
     "\"int\" of 8 bits is not supported in this packing"},
    {"gptq 4", EDIT, "\"gptq\", \"bits\"", "\"quark\", \"bits\"", "\"quark\" is not supported; known are fp8"},
};

static void apply(folder *f, const struct bad *b) {
    static uint8_t bytes[4096];
    if (b->change == DROP) drop(f, b->name);
    if (b->change == COLUMN) {
        pl_st_source *t = tensor(f, b->name);
        t->shape[t->rank - 1]--;
    }
    for (int t = 0; t < PL_DTYPE_COUNT && b->change == TYPE; t++)
        if (strcmp(pl_dtype_name((pl_dtype)t), b->to) == 0) tensor(f, b->name)->dtype = (pl_dtype)t;
    if (b->change == FILL) {
        memset(bytes, b->to[0], sizeof bytes);
        tensor(f, b->name)->data = bytes;
    }
    if (b->change == EDIT) edit(f, b->name, b->to);
    if (b->change == ADD) add_case(f, b->name, "model.layers.0.mlp.other");
}

// Refused when the folder is opened; bad numbers in scales when the matrix is checked.
static void test_bad(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err            err = {0};
        pl_weight_source *src = NULL;
        folder            f = load(bad[i].base);
        pl_weight_spec    spec = matrix(&f);
        apply(&f, &bad[i]);
        pl_status st = open_folder(&src, &f, &err);
        if (st == PL_OK) st = pl_weight_source_check(src, &spec, 1, &err);
        if (st == PL_OK) fail_msg("%s, %s: accepted", bad[i].base, bad[i].name);
        assert_refused(st, &err, bad[i].says);
        pl_weight_source_close(src);
    }
}

// Without a config, or with one that promises what no tensor is; with several schemes.
static void test_schemes(void **state) {
    (void)state;
    pl_err            err;
    pl_weight_source *src;
    folder            f = load("fp8 tensor");
    while (f.n > 1)
        drop(&f, f.name[0]);
    assert_refused(open_folder(&src, &f, &err), &err, "no tensor is quantised, and the config says fp8");
    folder         p = load("fp8 tensor");
    pl_weight_spec spec = matrix(&p);
    snprintf(p.config, sizeof p.config, "null");
    src = opened(&p);
    assert_refused(pl_weight_source_check(src, &spec, 1, &err), &err,
                   "F8_E4M3; config.json has no quantization_config");
    pl_weight_source_close(src);
    folder m = load("pack 4");
    edit(&m, "\"config_groups\": {",
         "\"config_groups\": {\"a\": {\"targets\": [\"re:.*up\"], \"format\": "
         "\"float-quantized\", \"weights\": {\"num_bits\": 8, \"type\": \"float\", "
         "\"strategy\": \"channel\"}}, \"b\": {\"weights\": null}, ");
    add_case(&m, "float channel", "model.layers.0.mlp.up_proj");
    src = opened(&m);
    assert_int_equal(pl_weight_source_count(src), 3);
    assert_ptr_equal(pl_weight_source_find(src, "model.layers.0.mlp.up_proj.weight")->code, &pl_weight_fp8);
    assert_ptr_equal(pl_weight_source_find(src, MODULE ".weight")->code, &pl_weight_packed);
    pl_weight_source_close(src);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_autoround), cmocka_unit_test(test_names),
        cmocka_unit_test(test_prints), cmocka_unit_test(test_bad),       cmocka_unit_test(test_schemes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
