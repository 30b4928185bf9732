// Whether llama.cpp (draft-eagle3) would load a drafter's GGUF file, and draft with it as it was trained. What it reads
// and how it counts: infer/export/gguf.c. Whether rows of queries and keys stand in pairs cannot be told from a file.
#include "checkpoints/gguf.h"
#include "infer/export/export.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct look {
    pl_gguf *g, *target; // target NULL: not given
    char     arch[64];   // the target's
    // As the file says; -1 where it does not.
    int64_t  d, wide, inner, heads, kv, head_dim, vocab;
    int64_t  rows; // of the head, -1: the target's is used
    char     why[PL_CHECK_WHY];
} look;

#define broken(k, ...) pl_check_say((k)->why, PL_CHECK_BROKEN, __VA_ARGS__)
#define unseen(k, ...) pl_check_say((k)->why, PL_CHECK_UNSEEN, __VA_ARGS__)

// ---- reading ----

static int64_t whole(const pl_gguf *g, const char *arch, const char *name) {
    char    key[128];
    int64_t v;
    snprintf(key, sizeof key, "%s.%s", arch, name);
    return pl_gguf_int(g, key, &v) && v >= 0 && v <= INT32_MAX ? v : -1;
}

static double number(const pl_gguf *g, const char *arch, const char *name) {
    char  key[128];
    float f;
    snprintf(key, sizeof key, "%s.%s", arch, name);
    const pl_gguf_value *v = pl_gguf_find(g, key);
    if (!v || v->type != PL_GGUF_F32) return NAN;
    memcpy(&f, v->data, sizeof f);
    return (double)f;
}

static const pl_gguf_value *tokens(const pl_gguf *g) {
    const pl_gguf_value *v = pl_gguf_find(g, "tokenizer.ggml.tokens");
    return v && v->type == PL_GGUF_ARRAY ? v : NULL;
}

static const pl_gguf_value *layers(const look *k) {
    const pl_gguf_value *v = pl_gguf_find(k->g, "eagle3.target_layers");
    return v && v->type == PL_GGUF_ARRAY && (v->item == PL_GGUF_I32 || v->item == PL_GGUF_U32) ? v : NULL;
}

static int32_t layer_at(const pl_gguf_value *v, uint64_t i) {
    int32_t id;
    memcpy(&id, v->data + 4 * i, sizeof id);
    return id;
}

static bool trimmed(const look *k) {
    return k->rows >= 0 && k->rows != k->vocab;
}

// ---- rules: keys ----

static pl_check_verdict architecture(look *k) {
    char arch[64];
    if (!pl_gguf_text(k->g, "general.architecture", arch, sizeof arch))
        return broken(k, "general.architecture is missing");
    return strcmp(arch, "eagle3") == 0 ? PL_CHECK_HOLDS : broken(k, "general.architecture: %s; expected eagle3", arch);
}

static pl_check_verdict one_layer(look *k) {
    int64_t n = whole(k->g, "eagle3", "block_count");
    return n == 1 ? PL_CHECK_HOLDS : broken(k, "eagle3.block_count: %lld; one layer is served", (long long)n);
}

static pl_check_verdict every_key(look *k) {
    static const struct {
        const char *name;
        bool        has_default;
    } keys[] = {{"context_length", false},
                {"embedding_length", false},
                {"feed_forward_length", false},
                {"attention.head_count", false},
                {"attention.layer_norm_rms_epsilon", false},
                {"target_hidden_size", false},
                {"attention.head_count_kv", true},
                {"attention.key_length", true},
                {"attention.value_length", true},
                {"rope.dimension_count", true},
                {"rope.freq_base", true},
                {"norm_before_residual", true}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        snprintf(key, sizeof key, "eagle3.%s", keys[i].name);
        if (pl_gguf_find(k->g, key)) continue;
        if (!keys[i].has_default) return broken(k, "%s is missing", key);
        return unseen(k, "%s is missing: right only if llama.cpp's default is what was trained", key);
    }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict layers_written(look *k) {
    const pl_gguf_value *v = layers(k);
    if (!v) return broken(k, "eagle3.target_layers is missing, or no list of 32-bit numbers");
    return v->n == 3 ? PL_CHECK_HOLDS
                     : broken(k, "eagle3.target_layers: %llu layers; exactly three are read", (unsigned long long)v->n);
}

// Counted by their inputs: what leaves the last layer is number block_count, which graphs leave unfilled.
static pl_check_verdict layers_there(look *k) {
    const pl_gguf_value *v = layers(k);
    if (!k->target) return unseen(k, "give --target, the served .gguf file");
    if (!v) return unseen(k, "eagle3.target_layers is missing"); // told by layers-written
    int64_t n = whole(k->target, k->arch, "block_count");
    for (uint64_t i = 0; i < v->n; i++) {
        int32_t id = layer_at(v, i);
        if (id < 0 || id > n) return broken(k, "layer %d of a target of %lld layers", id, (long long)n);
        if (id == n) return broken(k, "layer %d is what leaves the last one, which llama.cpp does not fill", id);
    }
    return PL_CHECK_HOLDS;
}

// ---- rules: tensors ----

enum { F32 = 0, F16 = 1, I64 = 27, BF16 = 30 }; // ggml's numbers

// Sizes of tensors, as the keys have them.
typedef enum size { NONE, ANY, D, D_TWICE, TAPS, QUERIES, KEYS, INNER, VOCAB, ANGLES } size;

static int64_t times(int64_t a, int64_t b) {
    return a > 0 && b > 0 ? a * b : -1;
}

// 0: there is no such dimension; -1: whatever it is, also where a key is missing, which another rule tells.
static int64_t size_of(const look *k, size s) {
    switch (s) {
    case NONE: return 0;
    case ANY: break;
    case D: return times(k->d, 1);
    case D_TWICE: return times(k->d, 2);
    case TAPS: return layers(k) && layers(k)->n < 100 ? times(k->wide, (int64_t)layers(k)->n) : -1;
    case QUERIES: return times(k->heads, k->head_dim);
    case KEYS: return times(k->kv, k->head_dim);
    case INNER: return times(k->inner, 1);
    case VOCAB: return times(k->vocab, 1);
    case ANGLES: return k->head_dim >= 2 ? k->head_dim / 2 : -1;
    }
    return -1;
}

// What llama.cpp reads.
static const struct {
    const char *name;
    size        cols, rows; // rows NONE: a vector
    bool        optional;
} known[] = {{"fc.weight", TAPS, D, false},
             {"output_norm.weight", D, NONE, false},
             {"output.weight", D, ANY, true},
             {"token_embd.weight", D, VOCAB, true},
             {"d2t", ANY, NONE, true},
             {"rope_freqs.weight", ANGLES, NONE, true},
             {"blk.0.attn_norm.weight", D, NONE, false},
             {"blk.0.attn_norm_2.weight", D, NONE, false},
             {"blk.0.attn_q.weight", D_TWICE, QUERIES, false},
             {"blk.0.attn_k.weight", D_TWICE, KEYS, false},
             {"blk.0.attn_v.weight", D_TWICE, KEYS, false},
             {"blk.0.attn_output.weight", QUERIES, D, false},
             {"blk.0.ffn_norm.weight", D, NONE, false},
             {"blk.0.ffn_gate.weight", D, INNER, false},
             {"blk.0.ffn_up.weight", D, INNER, false},
             {"blk.0.ffn_down.weight", INNER, D, false}};
enum { KNOWN = sizeof known / sizeof *known };

static bool is_known(const pl_gguf_tensor *t) {
    for (int i = 0; i < KNOWN; i++)
        if (strlen(known[i].name) == t->n_name && memcmp(known[i].name, t->name, t->n_name) == 0) return true;
    return false;
}

static pl_check_verdict names(look *k) {
    for (int i = 0; i < KNOWN; i++)
        if (!known[i].optional && !pl_gguf_find_tensor(k->g, known[i].name))
            return broken(k, "tensor %s is missing", known[i].name);
    for (int64_t i = 0; i < pl_gguf_tensors(k->g); i++) {
        const pl_gguf_tensor *t = pl_gguf_tensor_at(k->g, i);
        if (!is_known(t))
            return broken(k, "tensor %.*s: llama.cpp reads none", (int)(t->n_name < 80 ? t->n_name : 80), t->name);
    }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict types(look *k) {
    for (int i = 0; i < KNOWN; i++) {
        const pl_gguf_tensor *t = pl_gguf_find_tensor(k->g, known[i].name);
        if (!t || strcmp(known[i].name, "d2t") == 0) continue;
        if (known[i].rows == NONE && t->type != F32)
            return broken(k, "%s: ggml type %u; norms are fp32", known[i].name, t->type);
        if (t->type != F32 && t->type != F16 && t->type != BF16)
            return unseen(k, "%s: ggml type %u, quantised: what it costs in acceptance is not known here",
                          known[i].name, t->type);
    }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict shapes(look *k) {
    for (int i = 0; i < KNOWN; i++) {
        const pl_gguf_tensor *t = pl_gguf_find_tensor(k->g, known[i].name);
        int64_t               cols = size_of(k, known[i].cols), rows = size_of(k, known[i].rows);
        if (!t) continue;
        if (t->rank != (rows == 0 ? 1 : 2) || (cols > 0 && t->shape[0] != cols) || (rows > 0 && t->shape[1] != rows))
            return broken(k, "%s is not as large as the keys say", known[i].name);
    }
    return PL_CHECK_HOLDS;
}

// Its ids are the target's, unlike the offsets of other engines.
static pl_check_verdict map(look *k) {
    const pl_gguf_tensor *t = pl_gguf_find_tensor(k->g, "d2t");
    if (!t)
        return trimmed(k) ? broken(k, "the head has %lld rows of %lld and there is no d2t", (long long)k->rows,
                                   (long long)k->vocab)
                          : PL_CHECK_HOLDS;
    if (k->rows < 0) return broken(k, "d2t without output.weight");
    if (t->type != I64 || t->rank != 1)
        return broken(k, "d2t: ggml type %u of rank %d; expected a list of int64", t->type, t->rank);
    if (t->shape[0] != k->rows)
        return broken(k, "d2t has %lld ids, the head %lld rows", (long long)t->shape[0], (long long)k->rows);
    uint8_t *seen = pl_calloc((size_t)(k->vocab > 0 ? k->vocab : 1), 1);
    if (!seen) return unseen(k, "out of memory");
    pl_check_verdict v = PL_CHECK_HOLDS;
    for (int64_t i = 0; i < k->rows && v == PL_CHECK_HOLDS; i++) {
        int64_t id;
        memcpy(&id, t->data + 8 * i, sizeof id);
        if (id < 0 || id >= k->vocab)
            v = broken(k, "row %lld drafts token %lld of %lld", (long long)i, (long long)id, (long long)k->vocab);
        else if (seen[id])
            v = broken(k, "two rows for token %lld: offsets where ids are meant?", (long long)id);
        else
            seen[id] = 1;
    }
    pl_free(seen);
    return v;
}

// ---- rules: beside the target ----

static pl_check_verdict target_fits(look *k) {
    if (!k->target) return unseen(k, "give --target, the served .gguf file");
    int64_t wide = whole(k->target, k->arch, "embedding_length");
    return wide == k->wide
               ? PL_CHECK_HOLDS
               : broken(k, "eagle3.target_hidden_size: %lld, the target has %lld", (long long)k->wide, (long long)wide);
}

static pl_check_verdict vocabulary(look *k) {
    const pl_gguf_value *mine = tokens(k->g), *theirs = k->target ? tokens(k->target) : NULL;
    if (!mine) return broken(k, "tokenizer.ggml.tokens is missing");
    if (!k->target) return unseen(k, "give --target, the served .gguf file");
    if (!theirs) return unseen(k, "the target has no tokenizer.ggml.tokens");
    if (mine->n != theirs->n)
        return broken(k, "%llu pieces, the target has %llu", (unsigned long long)mine->n,
                      (unsigned long long)theirs->n);
    if (mine->n_raw != theirs->n_raw || memcmp(mine->raw, theirs->raw, mine->n_raw) != 0)
        return broken(k, "the pieces are not the target's");
    return PL_CHECK_HOLDS;
}

static pl_check_verdict positions(look *k) {
    int64_t n = whole(k->g, "eagle3", "context_length");
    if (!k->target) return unseen(k, "give --target, the served .gguf file");
    int64_t most = whole(k->target, k->arch, "context_length");
    if (n >= most) return PL_CHECK_HOLDS;
    return broken(k, "eagle3.context_length: %lld, the target is served up to %lld", (long long)n, (long long)most);
}

static pl_check_verdict rope_target(look *k) {
    double mine = number(k->g, "eagle3", "rope.freq_base");
    if (!k->target) return unseen(k, "give --target, the served .gguf file");
    double theirs = number(k->target, k->arch, "rope.freq_base");
    if (isnan(mine) || isnan(theirs))
        return unseen(k, "%s has no rope.freq_base", isnan(mine) ? "the drafter" : "the target");
    return mine == theirs ? PL_CHECK_HOLDS
                          : broken(k, "eagle3.rope.freq_base: %g, the target's is %g: right only if it was trained so",
                                   mine, theirs);
}

static const struct {
    const char *name, *help;
    pl_check_verdict (*holds)(look *k);
} rules[] = {
    {"architecture", "the name by which llama.cpp finds its code", architecture},
    {"one-layer", "one draft layer", one_layer},
    {"every-field", "nothing is left to a default", every_key},
    {"layers-written", "three of the target's layers are named", layers_written},
    {"layers-there", "the target has them, and llama.cpp fills them", layers_there},
    {"names", "exactly the tensors that llama.cpp knows", names},
    {"types", "norms in fp32, matrices not quantised", types},
    {"shapes", "tensors of the sizes that the keys name", shapes},
    {"map", "d2t, where the head lacks rows, holds ids of the target, each once", map},
    {"target-fits", "made for the target's width", target_fits},
    {"vocabulary", "the target's pieces", vocabulary},
    {"positions", "as many positions as the target has", positions},
    {"rope-target", "the target's RoPE base", rope_target},
};

static pl_status open_look(look *k, const char *path, const char *target, pl_err *err) {
    if (pl_path_ends(path, ".gguf")) {
        PL_TRY(pl_gguf_open(&k->g, path, err));
    } else {
        char     *file = pl_path_join(path, "drafter.gguf");
        pl_status st = file ? pl_gguf_open(&k->g, file, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
        pl_free(file);
        PL_TRY(st);
    }
    k->d = whole(k->g, "eagle3", "embedding_length");
    k->wide = whole(k->g, "eagle3", "target_hidden_size");
    k->inner = whole(k->g, "eagle3", "feed_forward_length");
    k->heads = whole(k->g, "eagle3", "attention.head_count");
    k->kv = whole(k->g, "eagle3", "attention.head_count_kv");
    k->head_dim = whole(k->g, "eagle3", "attention.key_length");
    k->vocab = tokens(k->g) ? (int64_t)tokens(k->g)->n : -1;
    const pl_gguf_tensor *head = pl_gguf_find_tensor(k->g, "output.weight");
    k->rows = head && head->rank == 2 ? head->shape[1] : -1;
    if (!target) return PL_OK;
    if (!pl_path_ends(target, ".gguf"))
        return pl_fail(err, PL_E_USAGE, "--target: %s is no .gguf file; gguf is checked beside the one that is served",
                       target);
    PL_TRY(pl_gguf_open(&k->target, target, err));
    if (!pl_gguf_text(k->target, "general.architecture", k->arch, sizeof k->arch))
        return pl_fail(err, PL_E_INPUT, "%s: has no general.architecture", target);
    static const char *const needed[] = {"block_count", "embedding_length", "context_length"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (whole(k->target, k->arch, needed[i]) < 0)
            return pl_fail(err, PL_E_INPUT, "%s: has no %s.%s", target, k->arch, needed[i]);
    return PL_OK;
}

pl_status pl_check_gguf(const char *path, const char *target, pl_check_tell tell, void *arg, pl_check_count *count,
                        pl_err *err) {
    look      k = {0};
    pl_status st = open_look(&k, path, target, err);
    *count = (pl_check_count){0};
    for (size_t i = 0; i < sizeof rules / sizeof *rules && st == PL_OK; i++) {
        k.why[0] = 0;
        pl_check_told(count, tell, arg, rules[i].name, rules[i].help, rules[i].holds(&k), k.why);
    }
    pl_gguf_close(k.target);
    pl_gguf_close(k.g);
    return st;
}
