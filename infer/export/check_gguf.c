// Whether llama.cpp (draft-eagle3, draft-dflash, draft-dspark) would load a drafter's GGUF file, and draft with it as
// it was trained. What it reads and how it counts: infer/export/gguf.c. Whether rows of queries and keys stand in pairs
// cannot be told from a file.
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
    bool     block;      // the drafter's is dflash; else eagle3
    // As the file says; -1 where it does not.
    int64_t  d, wide, inner, heads, kv, head_dim, vocab, layers;
    int64_t  taps, group, rank; // DFlash 2's
    int64_t  rows;              // of the head, -1: the target's is used
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

// Of the drafter's architecture.
static const char *own_arch(const look *k) {
    return k->block ? "dflash" : "eagle3";
}

static int64_t own(const look *k, const char *name) {
    return whole(k->g, own_arch(k), name);
}

static const pl_gguf_value *layers(const look *k) {
    const pl_gguf_value *v = pl_gguf_find(k->g, k->block ? "dflash.target_layers" : "eagle3.target_layers");
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
    if (k->block || strcmp(arch, "eagle3") == 0) return PL_CHECK_HOLDS;
    return broken(k, "general.architecture: %s; expected eagle3 or dflash", arch);
}

static pl_check_verdict one_layer(look *k) {
    if (k->layers == 1 || (k->block && k->layers > 0)) return PL_CHECK_HOLDS;
    return broken(k, "%s.block_count: %lld; %s", own_arch(k), (long long)k->layers,
                  k->block ? "a layer at least" : "one layer is served");
}

static pl_check_verdict every_key(look *k) {
    static const struct {
        const char *name;
        bool        has_default;
        int         of; // 0: either architecture, 1: eagle3, 2: dflash
    } keys[] = {{"context_length", false, 0},
                {"embedding_length", false, 0},
                {"feed_forward_length", false, 0},
                {"attention.head_count", false, 0},
                {"attention.layer_norm_rms_epsilon", false, 0},
                {"target_hidden_size", false, 1},
                {"block_size", true, 2},
                {"attention.causal", true, 2},
                {"sample_from_anchor", true, 2},
                {"attention.head_count_kv", true, 0},
                {"attention.key_length", true, 0},
                {"attention.value_length", true, 0},
                {"rope.dimension_count", true, 0},
                {"rope.freq_base", true, 0},
                {"norm_before_residual", true, 1}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        if (keys[i].of == 1 + !k->block) continue;
        snprintf(key, sizeof key, "%s.%s", own_arch(k), keys[i].name);
        if (pl_gguf_find(k->g, key)) continue;
        if (!keys[i].has_default) return broken(k, "%s is missing", key);
        return unseen(k, "%s is missing: right only if llama.cpp's default is what was trained", key);
    }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict layers_written(look *k) {
    const pl_gguf_value *v = layers(k);
    if (!v) return broken(k, "%s.target_layers is missing, or no list of 32-bit numbers", own_arch(k));
    if (v->n == 3 || (k->block && v->n > 0)) return PL_CHECK_HOLDS;
    return broken(k, "%s.target_layers: %llu layers; %s", own_arch(k), (unsigned long long)v->n,
                  k->block ? "one is read at least" : "exactly three are read");
}

// Counted by their inputs: what leaves the last layer is number block_count, which graphs leave unfilled.
static pl_check_verdict layers_there(look *k) {
    const pl_gguf_value *v = layers(k);
    if (!k->target) return unseen(k, "give --target, the served .gguf file");
    if (!v) return unseen(k, "%s.target_layers is missing", own_arch(k)); // told by layers-written
    int64_t n = whole(k->target, k->arch, "block_count");
    for (uint64_t i = 0; i < v->n; i++) {
        int32_t id = layer_at(v, i);
        if (id < 0 || id > n) return broken(k, "layer %d of a target of %lld layers", id, (long long)n);
        if (id == n) return broken(k, "layer %d is what leaves the last one, which llama.cpp does not fill", id);
    }
    return PL_CHECK_HOLDS;
}

// What a block is made of; as wide as the target, which llama.cpp takes for granted.
static pl_check_verdict block(look *k) {
    int64_t size = own(k, "block_size"), mask, top = own(k, "selector_top_k");
    if (!k->block) return PL_CHECK_HOLDS;
    if (size >= 0 && size < 2) return broken(k, "dflash.block_size: %lld is no block", (long long)size);
    if (!pl_gguf_int(k->g, "tokenizer.ggml.mask_token_id", &mask))
        return broken(k, "tokenizer.ggml.mask_token_id is missing");
    if (mask < 0 || (k->vocab > 0 && mask >= k->vocab))
        return broken(k, "tokenizer.ggml.mask_token_id: %lld, beyond the vocabulary", (long long)mask);
    if ((k->rank > 0) != (k->taps > 0) || (k->rank > 0) != (top > 0) || (k->rank > 0) != (k->group > 0))
        return broken(k, "of conv_kernel_size, conv_group_size, selector_rank and selector_top_k some are missing");
    if (k->group > 0 && k->d > 0 && k->d % k->group != 0)
        return broken(k, "dflash.conv_group_size: %lld does not divide the width", (long long)k->group);
    if (top > 0 && k->d > 0 && top * (top + 1) > k->d)
        return broken(k, "dflash.selector_top_k: %lld wants a width of %lld at least", (long long)top,
                      (long long)(top * (top + 1)));
    return PL_CHECK_HOLDS;
}

// ---- rules: tensors ----

enum { F32 = 0, F16 = 1, I64 = 27, BF16 = 30 }; // ggml's numbers

// Sizes of tensors, as the keys have them.
typedef enum size {
    NONE,
    ANY,
    ONE,
    D,
    D_TWICE,
    TAPS,
    QUERIES,
    KEYS,
    HEAD,
    INNER,
    VOCAB,
    ANGLES,
    RANK,
    KERNELS,
    CONV // of a tensor [2, taps, d]
} size;

static int64_t times(int64_t a, int64_t b) {
    return a > 0 && b > 0 ? a * b : -1;
}

// 0: there is no such dimension; -1: whatever it is, also where a key is missing, which another rule tells.
static int64_t size_of(const look *k, size s) {
    switch (s) {
    case NONE: return 0;
    case ANY:
    case CONV: break;
    case ONE: return 1;
    case HEAD: return times(k->head_dim, 1);
    case RANK: return times(k->rank, 1);
    case KERNELS: return k->group > 0 ? times(2 * k->taps, k->d / k->group) : -1;
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
// SECOND: of DFlash 2, always; WIDTH: of a drafter of another width than its target's, always.
typedef enum when { ALWAYS, MAYBE, SECOND, WIDTH } when;
typedef struct tensor {
    const char *name;
    size        cols, rows; // rows NONE: a vector
    when        when;
} tensor;

static const tensor eagle[] = {{"fc.weight", TAPS, D, ALWAYS},
                               {"enc.output_norm.weight", TAPS, NONE, MAYBE},
                               {"output_norm.weight", D, NONE, ALWAYS},
                               {"output.weight", D, ANY, MAYBE},
                               {"token_embd.weight", D, VOCAB, WIDTH},
                               {"d2t", ANY, NONE, MAYBE},
                               {"rope_freqs.weight", ANGLES, NONE, MAYBE},
                               {"blk.0.attn_norm.weight", D, NONE, ALWAYS},
                               {"blk.0.attn_norm_2.weight", D, NONE, ALWAYS},
                               {"blk.0.attn_q.weight", D_TWICE, QUERIES, ALWAYS},
                               {"blk.0.attn_k.weight", D_TWICE, KEYS, ALWAYS},
                               {"blk.0.attn_v.weight", D_TWICE, KEYS, ALWAYS},
                               {"blk.0.attn_output.weight", QUERIES, D, ALWAYS},
                               {"blk.0.ffn_norm.weight", D, NONE, ALWAYS},
                               {"blk.0.ffn_gate.weight", D, INNER, ALWAYS},
                               {"blk.0.ffn_up.weight", D, INNER, ALWAYS},
                               {"blk.0.ffn_down.weight", INNER, D, ALWAYS}},
                    blocks[] = {{"fc.weight", TAPS, D, ALWAYS},
                                {"output_norm.weight", D, NONE, ALWAYS},
                                {"enc.output_norm.weight", D, NONE, ALWAYS},
                                {"output.weight", D, ANY, MAYBE},
                                {"token_embd.weight", D, VOCAB, MAYBE},
                                {"d2t", ANY, NONE, MAYBE},
                                {"rope_freqs.weight", ANGLES, NONE, MAYBE},
                                {"markov_w1.weight", ANY, VOCAB, MAYBE},
                                {"markov_w2.weight", ANY, ANY, MAYBE},
                                {"conf_proj.weight", ANY, ONE, MAYBE},
                                {"conf_proj.bias", ONE, NONE, MAYBE},
                                {"selector_predecessor.weight", RANK, VOCAB, SECOND},
                                {"selector_successor.weight", RANK, VOCAB, SECOND},
                                {"selector_hidden.weight", D, RANK, SECOND}},
                    each[] = {{"attn_norm.weight", D, NONE, ALWAYS},
                              {"attn_q.weight", D, QUERIES, ALWAYS},
                              {"attn_k.weight", D, KEYS, ALWAYS},
                              {"attn_v.weight", D, KEYS, ALWAYS},
                              {"attn_output.weight", QUERIES, D, ALWAYS},
                              {"attn_q_norm.weight", HEAD, NONE, ALWAYS},
                              {"attn_k_norm.weight", HEAD, NONE, ALWAYS},
                              {"ffn_norm.weight", D, NONE, ALWAYS},
                              {"ffn_gate.weight", D, INNER, ALWAYS},
                              {"ffn_up.weight", D, INNER, ALWAYS},
                              {"ffn_down.weight", INNER, D, ALWAYS},
                              {"attn_conv_base", D, CONV, SECOND},
                              {"attn_conv_proj.weight", D, KERNELS, SECOND},
                              {"ffn_conv_base", D, CONV, SECOND},
                              {"ffn_conv_proj.weight", D, KERNELS, SECOND}};
enum {
    EAGLE = sizeof eagle / sizeof *eagle,
    BLOCKS = sizeof blocks / sizeof *blocks,
    EACH = sizeof each / sizeof *each,
    MOST = 64 // layers
};

// The i-th of them, under its whole name; false past the last.
static bool known(const look *k, int64_t i, tensor *t, char name[64]) {
    int64_t once = k->block ? BLOCKS : EAGLE, layer = (i - once) / EACH;
    if (i < once) {
        *t = k->block ? blocks[i] : eagle[i];
        snprintf(name, 64, "%s", t->name);
    } else {
        if (!k->block || layer >= k->layers || layer >= MOST) return false;
        *t = each[(i - once) % EACH];
        snprintf(name, 64, "blk.%lld.%s", (long long)layer, t->name);
    }
    t->name = name;
    if (t->when == SECOND && k->rank <= 0) t->when = MAYBE;
    if (t->when == WIDTH) t->when = k->wide == k->d ? MAYBE : ALWAYS;
    return true;
}

static bool is_known(const look *k, const pl_gguf_tensor *have) {
    tensor t;
    char   name[64];
    for (int64_t i = 0; known(k, i, &t, name); i++)
        if (strlen(name) == have->n_name && memcmp(name, have->name, have->n_name) == 0) return true;
    return false;
}

static pl_check_verdict names(look *k) {
    tensor t;
    char   name[64];
    for (int64_t i = 0; known(k, i, &t, name); i++)
        if (t.when != MAYBE && !pl_gguf_find_tensor(k->g, name)) return broken(k, "tensor %s is missing", name);
    const pl_gguf_value *before = pl_gguf_find(k->g, "eagle3.norm_before_fc");
    bool                 norms = before && before->type == PL_GGUF_BOOL && before->data[0];
    if (!k->block && norms != (pl_gguf_find_tensor(k->g, "enc.output_norm.weight") != NULL))
        return broken(k, "eagle3.norm_before_fc is %s, and enc.output_norm.weight is %s", norms ? "set" : "not set",
                      norms ? "missing" : "there");
    for (int64_t i = 0; i < pl_gguf_tensors(k->g); i++) {
        const pl_gguf_tensor *have = pl_gguf_tensor_at(k->g, i);
        if (!is_known(k, have))
            return broken(k, "tensor %.*s: llama.cpp reads none", (int)(have->n_name < 80 ? have->n_name : 80),
                          have->name);
    }
    if (!pl_gguf_find_tensor(k->g, "markov_w1.weight") != !pl_gguf_find_tensor(k->g, "markov_w2.weight"))
        return broken(k, "of markov_w1.weight and markov_w2.weight one is missing");
    return PL_CHECK_HOLDS;
}

static pl_check_verdict types(look *k) {
    tensor t;
    char   name[64];
    for (int64_t i = 0; known(k, i, &t, name); i++) {
        const pl_gguf_tensor *have = pl_gguf_find_tensor(k->g, name);
        if (!have || strcmp(name, "d2t") == 0) continue;
        if ((t.rows == NONE || t.rows == CONV) && have->type != F32)
            return broken(k, "%s: ggml type %u; norms are fp32", name, have->type);
        if (have->type != F32 && have->type != F16 && have->type != BF16)
            return unseen(k, "%s: ggml type %u, quantised: what it costs in acceptance is not known here", name,
                          have->type);
    }
    return PL_CHECK_HOLDS;
}

static pl_check_verdict shapes(look *k) {
    tensor t;
    char   name[64];
    for (int64_t i = 0; known(k, i, &t, name); i++) {
        const pl_gguf_tensor *have = pl_gguf_find_tensor(k->g, name);
        int64_t               cols = size_of(k, t.cols), rows = size_of(k, t.rows);
        if (!have) continue;
        if (have->rank != (rows == 0        ? 1
                           : t.rows == CONV ? 3
                                            : 2) ||
            (cols > 0 && have->shape[0] != cols) || (rows > 0 && have->shape[1] != rows) ||
            (t.rows == CONV && (have->shape[1] != k->taps || have->shape[2] != 2)))
            return broken(k, "%s is not as large as the keys say", name);
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
               : broken(k, "%s.%s: %lld, the target has %lld", own_arch(k),
                        k->block ? "embedding_length" : "target_hidden_size", (long long)k->wide, (long long)wide);
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
    int64_t n = own(k, "context_length");
    if (!k->target) return unseen(k, "give --target, the served .gguf file");
    int64_t most = whole(k->target, k->arch, "context_length");
    if (n >= most) return PL_CHECK_HOLDS;
    return broken(k, "%s.context_length: %lld, the target is served up to %lld", own_arch(k), (long long)n,
                  (long long)most);
}

static pl_check_verdict rope_target(look *k) {
    double mine = number(k->g, own_arch(k), "rope.freq_base");
    if (!k->target) return unseen(k, "give --target, the served .gguf file");
    double theirs = number(k->target, k->arch, "rope.freq_base");
    if (isnan(mine) || isnan(theirs))
        return unseen(k, "%s has no rope.freq_base", isnan(mine) ? "the drafter" : "the target");
    return mine == theirs ? PL_CHECK_HOLDS
                          : broken(k, "%s.rope.freq_base: %g, the target's is %g: right only if it was trained so",
                                   own_arch(k), mine, theirs);
}

static const struct {
    const char *name, *help;
    pl_check_verdict (*holds)(look *k);
} rules[] = {
    {"architecture", "the name by which llama.cpp finds its code", architecture},
    {"one-layer", "one draft layer, of a block drafter one at least", one_layer},
    {"every-field", "nothing is left to a default", every_key},
    {"layers-written", "the target's layers are named, for EAGLE-3 three", layers_written},
    {"layers-there", "the target has them, and llama.cpp fills them", layers_there},
    {"block", "block, mask and DFlash 2's parts are stated and fit", block},
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
    char arch[64];
    k->block = pl_gguf_text(k->g, "general.architecture", arch, sizeof arch) && strcmp(arch, "dflash") == 0;
    k->layers = own(k, "block_count");
    k->d = own(k, "embedding_length");
    k->wide = k->block ? k->d : own(k, "target_hidden_size");
    k->inner = own(k, "feed_forward_length");
    k->heads = own(k, "attention.head_count");
    k->kv = own(k, "attention.head_count_kv");
    k->head_dim = own(k, "attention.key_length");
    k->taps = own(k, "conv_kernel_size");
    k->group = own(k, "conv_group_size");
    k->rank = own(k, "selector_rank");
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
