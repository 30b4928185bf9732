// GGUF files as targets: small models of each architecture (tests/peers/check_gguf_target.py --golden) continue ids as
// transformers does on their values; split files, folders, and files that are refused.
#include "checkpoints/fingerprint.h"
#include "checkpoints/gguf_model.h"
#include "infer/model/llama.h"
#include "infer/model/target.h"
#include "kernels/codes.h"
#include "kernels/panels.h"
#include "paceline.h"
#include "tests/checkpoints/scratch.h"
#include "tests/gguf_texts.h"

#define GOLDEN PACELINE_SOURCE_DIR "/tests/infer/gguf/"

static const char *golden(const char *name, const char *end) {
    static char path[2][512];
    static int  next;
    char       *p = path[next++ % 2];
    snprintf(p, sizeof path[0], "%s%s.%s", GOLDEN, name, end);
    return p;
}

enum { PROMPT = 20, NEW = 24, VOCAB = 64 };

typedef struct answer {
    int32_t id[NEW];
    int     n;
} answer;

static bool take_token(void *arg, int32_t token, const char *text, size_t bytes) {
    answer *a = arg;
    (void)text, (void)bytes;
    if (a->n < NEW) a->id[a->n++] = token;
    return true;
}

static void decode(answer *a, const char *target, const char *weights, const char *drafter) {
    char        why[256] = "";
    int32_t     prompt[PROMPT];
    pl_decoder *d;
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (7 * i * i + 3 * i) % VOCAB;
    *a = (answer){0};
    pl_decoder_options o = {.target = target, .drafter = drafter, .weights = weights, .threads = 1};
    if (pl_decoder_open(&d, &o, why, sizeof why) != 0) fail_msg("%s", why);
    pl_decoder_request r = {.prompt = prompt, .n_prompt = PROMPT, .max_new_tokens = NEW};
    if (pl_decoder_generate(d, &r, take_token, a, NULL, why, sizeof why) != 0) fail_msg("%s", why);
    pl_decoder_close(d);
}

static void test_tokens(void **state) {
    (void)state;
    static const char *const names[] = {"llama",   "llama_freqs", "llama_linear", "llama_yarn", "llama_bias",
                                        "mixtral", "qwen2",       "qwen3",        "qwen3moe",   "phi3",
                                        "gemma2",  "gemma3",      "gpt-oss",      "qwen3next",  "qwen3next_old",
                                        "qwen35",  "qwen35moe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        answer a;
        FILE  *f = fopen(golden(names[i], "ids"), "r");
        int    want;
        assert_non_null(f);
        decode(&a, golden(names[i], "gguf"), "fp32", NULL);
        assert_int_equal(a.n, NEW);
        for (int k = 0; k < NEW; k++) {
            assert_int_equal(fscanf(f, "%d", &want), 1);
            if (a.id[k] != want) fail_msg("%s: token %d is %d, transformers has %d", names[i], k, a.id[k], want);
        }
        fclose(f);
    }
}

// A bf16 target holds a matrix as codes if all parts of it have a type with a form, and the codes have the values of the
// same target in fp32, which holds none, at the same places.
static void check_codes(const char *name) {
    pl_err   err;
    pl_llama m, exact;
    int      codes = 0, gated = 0;
    assert_ok(pl_llama_open(&m, golden(name, "gguf"), PL_BF16, pl_backend_ref(), &err));
    assert_ok(pl_llama_open(&exact, golden(name, "gguf"), PL_F32, pl_backend_ref(), &err));
    for (int i = 0; i < m.params.n; i++) {
        const pl_tensor *w = m.params.p[i].tensor, *of = exact.params.p[i].tensor;
        assert_int_equal(of->code, PL_CODE_NONE);
        if (!w->code) continue;
        codes++;
        gated += w->layout == PL_GATED;
        assert_int_equal(m.params.p[i].owned_bytes, pl_packed_bytes(w));
        for (int64_t n = 0; n < w->dim[0]; n++)
            for (int64_t k = 0; k < w->dim[1]; k++) {
                int64_t place = w->layout == PL_GATED ? pl_gated_place(n, w->dim[0]) : n;
                float   want = pl_round_bf16(pl_panels_at(of->data, PL_F32, place, k, w->dim[1]));
                if (pl_codes_at(w->data, w->code, place, k, w->dim[1]) != want)
                    fail_msg("%s: row %d, column %d has another value", m.params.p[i].name[0], (int)n, (int)k);
            }
    }
    assert_true(codes > gated && gated == m.n_layers);
    pl_llama_fini(&m);
    pl_llama_fini(&exact);
}

static void test_codes(void **state) {
    (void)state;
    check_codes("llama_linear");
    check_codes("qwen35"); // value heads are put in order, in rows and in columns
}

// The same values as a folder has, and quantised ones are in bf16 unless fp32 is asked for.
static void test_types(void **state) {
    (void)state;
    pl_err   err;
    pl_dtype t;
    answer   a, b;
    assert_ok(pl_target_stored(&t, golden("gpt-oss", "gguf"), &err)); // whose routers are in fp32
    assert_int_equal(t, PL_BF16);
    decode(&a, golden("llama", "gguf"), NULL, NULL);
    decode(&b, golden("llama", "gguf"), "bf16", NULL);
    assert_memory_equal(&a, &b, sizeof a);
}

// The layer for drafting that a file holds changes no token.
static void test_own_drafter(void **state) {
    (void)state;
    answer a, b;
    decode(&a, golden("qwen35", "gguf"), NULL, NULL);
    decode(&b, golden("qwen35", "gguf"), NULL, "mtp");
    assert_memory_equal(&a, &b, sizeof a);
}

static void print_of(char print[17], const char *file) {
    pl_err err;
    assert_ok(pl_llama_fingerprint(print, file, &err));
}

// ---- small files

typedef struct edit {
    const char *key; // of a tensor: its name
    char        how; // -: left out; i, f, t: another value; r: rows; q: ggml's type; b: a list of flags
    double      value;
    const char *text;
} edit;

enum { D = 32, EDITS = 4 };

static const edit *find_edit(const edit *e, const char *key) {
    for (int i = 0; i < EDITS && e && e[i].key; i++)
        if (strcmp(e[i].key, key) == 0) return &e[i];
    return NULL;
}

static void put_key(pl_gguf_out *o, const edit *edits, const char *key, char how, double value, const char *text) {
    const edit *e = find_edit(edits, key);
    edit        plain = {key, how, value, text};
    if (!e) e = &plain;
    if (e->how == 'i') pl_gguf_put_u32(o, key, (uint32_t)e->value);
    if (e->how == 'f') pl_gguf_put_f32(o, key, (float)e->value);
    if (e->how == 't') pl_gguf_put_text(o, key, e->text);
}

static void put_tensor(pl_gguf_out *o, const edit *edits, const char *name, int64_t rows, int64_t cols) {
    static float w[256 * D];
    const edit  *e = find_edit(edits, name);
    int64_t      shape[2] = {e && e->how == 'r' ? (int64_t)e->value : rows, cols};
    for (int i = 0; i < 256 * D; i++)
        w[i] = (float)(i * i % 37 - 18) / 64;
    if (e && e->how == '-') return;
    pl_gguf_put_tensor(o, name, PL_F32, cols > 0 ? 2 : 1, shape, w);
}

static void put_keys(pl_gguf_out *o, const edit *edits) {
    const edit *arch = find_edit(edits, "general.architecture");
    char        key[96];
    const char *of = arch && arch->how == 't' ? arch->text : "llama";
    static const struct {
        const char *name;
        char        how;
        double      value;
    } keys[] = {{"block_count", 'i', .value = 1},
                {"context_length", 'i', .value = 64},
                {"embedding_length", 'i', .value = D},
                {"feed_forward_length", 'i', .value = D},
                {"attention.head_count", 'i', .value = 4},
                {"attention.head_count_kv", 'i', .value = 2},
                {"attention.layer_norm_rms_epsilon", 'f', .value = 1e-5}};
    put_key(o, edits, "general.architecture", 't', 0, "llama");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const edit *e = find_edit(edits, keys[i].name);
        snprintf(key, sizeof key, "%s.%s", of, keys[i].name);
        edit one[EDITS] = {e ? (edit){key, e->how, e->value, e->text} : (edit){0}};
        put_key(o, one, key, keys[i].how, keys[i].value, NULL);
    }
    for (int i = 0; i < EDITS && edits && edits[i].key; i++) // keys that the model has not
        if (strchr(edits[i].key, '.') && strncmp(edits[i].key, of, strlen(of)) == 0)
            put_key(o, edits, edits[i].key, 'i', 0, NULL);
}

static void put_tensors(pl_gguf_out *o, const edit *edits, bool first, bool second) {
    if (first) put_tensor(o, edits, "token_embd.weight", VOCAB, D);
    if (first) put_tensor(o, edits, "output_norm.weight", D, 0);
    if (first) put_tensor(o, edits, "blk.0.attn_norm.weight", D, 0);
    if (first) put_tensor(o, edits, "blk.0.attn_q.weight", D, D);
    if (first) put_tensor(o, edits, "blk.0.attn_k.weight", D / 2, D);
    if (second) put_tensor(o, edits, "blk.0.attn_v.weight", D / 2, D);
    if (second) put_tensor(o, edits, "blk.0.attn_output.weight", D, D);
    if (second) put_tensor(o, edits, "blk.0.ffn_norm.weight", D, 0);
    if (second) put_tensor(o, edits, "blk.0.ffn_gate.weight", D, D);
    if (second) put_tensor(o, edits, "blk.0.ffn_up.weight", D, D);
    if (second) put_tensor(o, edits, "blk.0.ffn_down.weight", D, D);
}

// Gives tensors other types: behind its name a tensor's rank, sizes and type.
static void set_types(const char *path, const edit *edits) {
    pl_err   err;
    uint8_t *data;
    size_t   n;
    assert_ok(pl_file_read(path, &data, &n, 1 << 20, &err));
    for (int i = 0; i < EDITS && edits && edits[i].key; i++) {
        size_t   length = strlen(edits[i].key);
        uint8_t *at = edits[i].how == 'q' ? memmem(data, n, edits[i].key, length) : NULL;
        uint32_t rank, type = (uint32_t)edits[i].value;
        if (!at) continue;
        memcpy(&rank, at + length, sizeof rank);
        memcpy(at + length + 4 + 8 * (size_t)rank, &type, sizeof type);
    }
    put_file(path, data, n);
    pl_free(data);
}

static void write_model(const char *path, const edit *edits) {
    pl_err       err;
    pl_gguf_out *o = pl_gguf_out_new();
    put_keys(o, edits);
    for (int i = 0; i < EDITS && edits && edits[i].key; i++) // tensors that the model has not
        if (edits[i].how == 'v') put_tensor(o, NULL, edits[i].key, (int64_t)edits[i].value, 0);
    put_tensors(o, edits, true, true);
    assert_ok(pl_gguf_write(o, path, &err));
    pl_gguf_out_free(o);
    set_types(path, edits);
}

static pl_status open_model(const char *path, pl_err *err) {
    pl_llama  m;
    pl_status st = pl_llama_open(&m, path, PL_F32, pl_backend_cpu(), err);
    if (st == PL_OK) pl_llama_fini(&m);
    return st;
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        edit        edits[EDITS];
        pl_status   status;
        const char *says;
    } cases[] = {
        {{{"general.architecture", .how = '-'}}, PL_E_INPUT, "has no general.architecture"},
        {{{"general.architecture", 't', 0, "mamba"}}, PL_E_UNSUPPORTED, "the architecture mamba is not supported"},
        {{{"block_count", .how = '-'}}, PL_E_INPUT, "llama.block_count is missing"},
        {{{"block_count", 't', 0, "two"}}, PL_E_INPUT, "llama.block_count is no whole number"},
        {{{"block_count", 'i', .value = 0}}, PL_E_INPUT, "llama.block_count is 0, expected 1 to 1024"},
        {{{"block_count", 'i', .value = 2}}, PL_E_INPUT, "model.layers.1.input_layernorm.weight: missing"},
        {{{"attention.head_count", 'i', .value = 0}}, PL_E_INPUT, "llama.attention.head_count is 0"},
        {{{"attention.head_count_kv", 'i', .value = 3}}, PL_E_INPUT, "num_key_value_heads"},
        {{{"attention.layer_norm_rms_epsilon", .how = '-'}},
         PL_E_INPUT,
         "llama.attention.layer_norm_rms_epsilon is missing"},
        {{{"attention.layer_norm_rms_epsilon", 'i', .value = 1}}, PL_E_INPUT, "epsilon is no number"},
        {{{"llama.attention.value_length", 'i', .value = 4}}, PL_E_UNSUPPORTED, "values of 4 elements, keys of 8"},
        {{{"llama.attention.key_length", 'i', .value = 7}}, PL_E_UNSUPPORTED, "values of 8 elements, keys of 7"},
        {{{"llama.rope.dimension_count", 'i', .value = 6}}, PL_E_UNSUPPORTED, "RoPE of 6 of 8 elements"},
        {{{"llama.rope.dimension_count", 'i', .value = 5}}, PL_E_INPUT, "llama.rope.dimension_count is odd"},
        {{{"llama.rope.freq_base", 'f', .value = 0}}, PL_E_INPUT, "llama.rope.freq_base is 0"},
        {{{"llama.rope.scaling.type", 't', 0, "dynamic"}}, PL_E_UNSUPPORTED, "RoPE scaled by dynamic"},
        {{{"llama.rope.scaling.attn_factor", 'f', .value = 2}}, PL_E_INPUT, "belongs to yarn and longrope"},
        {{{"llama.expert_count", 'i', .value = 4}}, PL_E_INPUT, "llama.expert_used_count is missing"},
        {{{"blk.0.ffn_up_exps.weight", 'v', .value = 3}}, PL_E_INPUT, "is not one for each expert"},
        {{{"rope_freqs.weight", 'v', .value = 3}}, PL_E_INPUT, "rope_freqs.weight is no list of 4 divisors in F32"},
        {{{"rope_freqs.weight", 'v', .value = 4}}, PL_E_INPUT, "rope_freqs.weight: a divisor of -0.28125"},
        {{{"general.architecture", 't', 0, "gpt-oss"}}, PL_E_INPUT, "gpt-oss.expert_count is missing"},
        {{{"general.architecture", 't', 0, "gemma3"},
          {"gemma3.attention.sliding_window", 'i', .value = 8},
          {"gemma3.attention.sliding_window_pattern", 't', 0, "x"}},
         PL_E_INPUT,
         "sliding_window_pattern is no whole number"},
        {{{"general.architecture", 't', 0, "gemma2"}, {"gemma2.rope.freq_base_swa", 'f', .value = 5}},
         PL_E_UNSUPPORTED,
         "a RoPE base of its own in windowed layers"},
        {{{"token_embd.weight", .how = '-'}}, PL_E_INPUT, "has no matrix token_embd.weight"},
        {{{"blk.0.attn_v.weight", .how = '-'}}, PL_E_INPUT, "self_attn.v_proj.weight: missing"},
        {{{"blk.0.attn_q.weight", 'r', .value = 24}}, PL_E_INPUT, "blk.0.attn_q.weight: is not of the heads' rows"},
        {{{"blk.0.attn_v.weight", 'r', .value = 8}}, PL_E_INPUT, "expected shape [16, 32], found [8, 32]"},
        {{{"blk.0.post_attention_norm.weight", 'v', .value = D}}, PL_E_INPUT, "two tensors named"},
        {{{"blk.0.ffn_up.weight", 'q', .value = 16}}, PL_E_UNSUPPORTED, "tensors of type IQ2_XXS are not supported"},
        {{{"blk.0.ffn_up.weight", 'q', .value = 99}}, PL_E_UNSUPPORTED, "blk.0.ffn_up.weight: type 99 is unknown"},
        {{{"blk.0.ffn_up.weight", 'q', .value = 12}},
         PL_E_INPUT,
         "rows of 32 elements are no blocks of Q4_K, which have 256"},
        {{{"blk.0.ffn_norm.weight", 'q', .value = 8}}, PL_E_UNSUPPORTED, "a vector of type Q8_0"},
    };
    pl_err err;
    write_model(at("whole.gguf"), NULL);
    assert_ok(open_model(at("whole.gguf"), &err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_model(at("m.gguf"), cases[i].edits);
        assert_says(open_model(at("m.gguf"), &err), cases[i].status, &err, cases[i].says);
        malformed_seen();
    }
}

// The last tensor is of a type whose size the reader of files does not know.
static void test_cut(void **state) {
    (void)state;
    const edit edits[EDITS] = {{"blk.0.ffn_down.weight", 'q', .value = 8}};
    pl_err     err;
    uint8_t   *data;
    size_t     n;
    write_model(at("q.gguf"), edits);
    assert_ok(open_model(at("q.gguf"), &err));
    assert_ok(pl_file_read(at("q.gguf"), &data, &n, 1 << 20, &err));
    put_file(at("cut.gguf"), data, n - D * D * 4 + D * 34 - 1);
    assert_refused(open_model(at("cut.gguf"), &err), &err, "blk.0.ffn_down.weight: does not lie in the file");
    put_file(at("cut.gguf"), data, n - D * D * 4 + D * 34);
    assert_ok(open_model(at("cut.gguf"), &err));
    put_file(at("cut.gguf"), data, 100);
    assert_refused(open_model(at("cut.gguf"), &err), &err, "the file ends inside");
    pl_free(data);
}

// ---- parts

static void write_part(const char *path, int no, int count, int tensors) {
    pl_err       err;
    pl_gguf_out *o = pl_gguf_out_new();
    if (no == 0) put_keys(o, NULL);
    pl_gguf_put_u32(o, "split.no", (uint32_t)no);
    pl_gguf_put_u32(o, "split.count", (uint32_t)count);
    pl_gguf_put_u32(o, "split.tensors.count", (uint32_t)tensors);
    put_tensors(o, NULL, no == 0, no == 1);
    if (no == 2) put_tensor(o, NULL, "output.weight", VOCAB, D);
    assert_ok(pl_gguf_write(o, path, &err));
    pl_gguf_out_free(o);
}

static void test_parts(void **state) {
    (void)state;
    static const char first[] = "s/m-00001-of-00002.gguf", second[] = "s/m-00002-of-00002.gguf";
    pl_err            err;
    char              one[17], two[17];
    char             *found;
    assert_ok(pl_dir_make(at("s"), &err));
    write_part(at(first), 0, 2, 11);
    assert_refused(open_model(at(first), &err), &err, "m-00002-of-00002.gguf: missing; it is part 2 of 2");
    write_part(at(second), 1, 2, 11);
    assert_ok(open_model(at(first), &err));
    write_model(at("whole.gguf"), NULL);
    print_of(one, at("whole.gguf"));
    print_of(two, at(first));
    assert_string_equal(one, two);
    assert_ok(pl_gguf_model_find(&found, at("s"), &err)); // the folder
    assert_non_null(found);
    assert_true(pl_path_ends(found, "s/m-00001-of-00002.gguf"));
    pl_free(found);
    assert_ok(open_model(at("s"), &err));
    assert_refused(open_model(at(second), &err), &err, "part 2 of 2; name the first");
    write_part(at(second), 1, 3, 11);
    assert_refused(open_model(at(first), &err), &err,
                   "says to be part 2 of 3, expected 2 of 2: parts of different sets?");
    write_part(at(second), 1, 2, 11);
    write_part(at(first), 0, 2, 12);
    assert_refused(open_model(at(first), &err), &err, "the parts hold 11 tensors, expected 12");
    write_part(at("alone.gguf"), 0, 2, 11);
    assert_refused(open_model(at("alone.gguf"), &err), &err, "must end with -00001-of-00002.gguf");
    write_part(at("alone.gguf"), 0, 5000, 11);
    assert_refused(open_model(at("alone.gguf"), &err), &err, "split.count and split.no are no numbers of parts");
}

static void test_folders(void **state) {
    (void)state;
    pl_err err;
    char  *found;
    assert_ok(pl_dir_make(at("f"), &err));
    assert_ok(pl_gguf_model_find(&found, at("f"), &err));
    assert_null(found);
    write_model(at("f/a.gguf"), NULL);
    write_model(at("f/tokenizer.gguf"), NULL);
    write_model(at("f/mmproj-a.gguf"), NULL);
    assert_ok(open_model(at("f"), &err));
    write_model(at("f/b.gguf"), NULL);
    assert_refused(open_model(at("f"), &err), &err, "holds several models, such as a.gguf and b.gguf");
    put_text(at("f/model.safetensors"), "");
    assert_ok(pl_gguf_model_find(&found, at("f"), &err));
    assert_null(found);
    write_model(at("blob"), NULL); // a file is known by its first bytes
    assert_ok(open_model(at("blob"), &err));
}

// ---- what belongs to a file

static void test_fingerprints(void **state) {
    (void)state;
    const edit other[EDITS] = {{"llama.rope.freq_base", 'f', .value = 500000}};
    char       print[4][17];
    write_model(at("a.gguf"), NULL);
    write_model(at("b.gguf"), other);
    print_of(print[0], at("a.gguf"));
    print_of(print[1], at("b.gguf"));
    print_of(print[2], golden("llama_linear", "gguf"));
    print_of(print[3], at("a.gguf"));
    assert_string_not_equal(print[0], print[1]);
    assert_string_not_equal(print[0], print[2]);
    assert_string_equal(print[0], print[3]);
}

static void test_config(void **state) {
    (void)state;
    pl_err       err;
    pl_hf_config c;
    assert_ok(pl_llama_config(&c, golden("gemma3", "gguf"), &err));
    assert_true(pl_hf_windowed(&c, 4) && !pl_hf_windowed(&c, 5) && c.sliding_window == 8);
    assert_true(c.local_theta == 10000 && c.rope.scaling == PL_HF_ROPE_LINEAR && c.rope.factor == 8);
    assert_true(!c.norm_plus_one && c.tie_word_embeddings && c.query_scalar == 8);
    assert_says(pl_llama_trainable(&c, "x", &err), PL_E_INPUT, &err, "is decoded and learned from, not trained");
    assert_ok(pl_llama_config(&c, golden("phi3", "gguf"), &err));
    assert_true(pl_hf_rotary_dim(&c) == 6 && c.rope.n_divisors == 3 && pl_hf_long_divisors(&c)[1] == 2.5);
    assert_true(c.sliding_window == 0 && c.fused); // as in llama.cpp
    assert_ok(pl_llama_config(&c, golden("llama_bias", "gguf"), &err));
    assert_says(pl_llama_trainable(&c, "x", &err), PL_E_INPUT, &err, "biases");
}

// Answers end at eos, eot and eom, by key or by name; GPT-OSS's <|end|> ends a message alone.
static void test_ends(void **state) {
    (void)state;
    static const struct {
        int         id;
        const char *name;
    } named[] = {{5, "<|im_end|>"}, {6, "<|return|>"}, {7, "<|call|>"}, {8, "<|end|>"}};
    pl_err       err;
    pl_hf_config c;
    gguf_array   tokens = {0};
    pl_gguf_out *o = pl_gguf_out_new();
    for (int i = 0; i < VOCAB; i++) {
        char        text[16];
        const char *name = text;
        snprintf(text, sizeof text, "t%d", i);
        for (size_t k = 0; k < sizeof named / sizeof *named; k++)
            if (named[k].id == i) name = named[k].name;
        gguf_text(&tokens, name, strlen(name));
    }
    put_keys(o, NULL);
    gguf_put_array(o, "tokenizer.ggml.tokens", &tokens);
    pl_gguf_put_u32(o, "tokenizer.ggml.bos_token_id", 1);
    pl_gguf_put_u32(o, "tokenizer.ggml.eos_token_id", 3);
    pl_gguf_put_u32(o, "tokenizer.ggml.eot_token_id", 9);
    pl_gguf_put_u32(o, "tokenizer.ggml.eom_token_id", 1000); // outside the vocabulary
    put_tensors(o, NULL, true, true);
    assert_ok(pl_gguf_write(o, at("ends.gguf"), &err));
    pl_gguf_out_free(o);
    assert_ok(pl_llama_config(&c, at("ends.gguf"), &err));
    assert_int_equal(c.bos_token_id, 1);
    assert_int_equal(c.n_eos, 5);
    assert_memory_equal(c.eos_token_id, ((const int[]){3, 9, 5, 6, 7}), 5 * sizeof(int));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),   cmocka_unit_test(test_codes),        cmocka_unit_test(test_types),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_cut),          cmocka_unit_test(test_parts),
        cmocka_unit_test(test_folders),  cmocka_unit_test(test_fingerprints), cmocka_unit_test(test_config),
        cmocka_unit_test(test_ends),     cmocka_unit_test(test_own_drafter)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
