#include "checkpoints/hf.h"
#include "checkpoints/weights.h"
#include <stdio.h>
#include <string.h>

// An entry whose name is the first n bytes of one, then another's.
static void add(pl_weight_list *l, const pl_weight_entry *e, int n, const char *name, const char *then) {
    size_t bytes = (size_t)n + strlen(then) + 1;
    if (l->entry) {
        pl_weight_entry *to = &l->entry[l->n];
        *to = *e;
        to->name = l->names + l->text;
        snprintf(l->names + l->text, bytes, "%.*s%s", n, name, then);
    }
    l->n++;
    l->text += bytes;
}

// Mixtral's names. False: it is none of them.
static bool add_mixtral(pl_weight_list *l, const pl_weight_entry *e, const char *name) {
    static const char        block[] = ".block_sparse_moe.", gate[] = "gate.weight", experts[] = "experts.";
    static const char *const ends[][2] = {
        {".w1.weight", ".gate_proj.weight"}, {".w3.weight", ".up_proj.weight"}, {".w2.weight", ".down_proj.weight"}};
    const char *at = strstr(name, block), *rest = at ? at + sizeof block - 1 : NULL;
    char        then[64];
    if (!at || strncmp(name, "model.layers.", 13) != 0) return false;
    if (strcmp(rest, gate) == 0) {
        add(l, e, (int)(at - name), name, ".mlp.gate.weight");
        return true;
    }
    size_t digits = strncmp(rest, experts, sizeof experts - 1) == 0 ? strspn(rest + 8, "0123456789") : 0;
    for (int i = 0; i < 3 && digits > 0 && digits < 8; i++) {
        if (strcmp(rest + 8 + digits, ends[i][0]) != 0) continue;
        snprintf(then, sizeof then, ".mlp.experts.%.*s%s", (int)digits, rest + 8, ends[i][1]);
        add(l, e, (int)(at - name), name, then);
        return true;
    }
    return false;
}

// ---- GPT-OSS: all experts of a layer in one tensor ----

// What a tensor stacks, by what follows ".mlp.experts." in its name.
typedef struct stack {
    const char *name;
    bool        two;    // gate and up in turns, gate first
    bool        packed; // MXFP4: [experts, rows, columns / 32, 16], scales beside it
    int         rank;   // 3: [experts, columns, rows]; 2: biases, [experts, rows]
    const char *part[2];
} stack;

static const stack stacks[] = {
    {"gate_up_proj", true, false, 3, {"gate_proj.weight", "up_proj.weight"}},
    {"gate_up_proj_bias", true, false, 2, {"gate_proj.bias", "up_proj.bias"}},
    {"gate_up_proj_blocks", true, true, 4, {"gate_proj.weight", "up_proj.weight"}},
    {"down_proj", false, false, 3, {"down_proj.weight"}},
    {"down_proj_bias", false, false, 2, {"down_proj.bias"}},
    {"down_proj_blocks", false, true, 4, {"down_proj.weight"}},
};

// The scales of a tensor of blocks, or NULL where they are not what belongs to it.
static const uint8_t *scales_of(const pl_st *set, const pl_st_entry *s) {
    char   name[512];
    size_t n = strlen(s->name), blocks = sizeof "_blocks" - 1;
    if (n + 8 > sizeof name) return NULL;
    snprintf(name, sizeof name, "%.*s_scales", (int)(n - blocks), s->name);
    const pl_st_entry *found = pl_st_find(set, name);
    if (!found || found->dtype != PL_U8 || found->rank != 3) return NULL;
    for (int i = 0; i < 3; i++)
        if (found->shape[i] != s->shape[i]) return NULL;
    return found->data;
}

// The layout of each expert's part; false where the tensor is not of the shape that its name promises.
static bool lay_out(const stack *k, const pl_st *set, const pl_st_entry *s, pl_weight_entry *one) {
    int64_t turns = k->two ? 2 : 1, all = s->rank == k->rank ? s->shape[k->rank == 3 ? 2 : 1] : 0;
    for (int i = 0; i < s->rank; i++)
        if (s->shape[i] < 1) return false;
    if (all == 0 || all % turns != 0 || s->shape[0] > PL_HF_EXPERTS_MAX) return false;
    *one = (pl_weight_entry){.dtype = s->dtype, .rank = 2, .shape = {all / turns}, .row_stride = turns};
    if (k->rank == 2) {
        one->rank = 1;
        return true;
    }
    one->column_stride = all;
    one->shape[1] = k->packed ? s->shape[2] * 32 : s->shape[1];
    if (!k->packed) return true;
    one->code = &pl_weight_mxfp4;
    one->scale = scales_of(set, s);
    one->dtype = PL_BF16;
    return one->scale && s->dtype == PL_U8 && s->shape[3] == 16;
}

// Qwen3.5's stacks: [experts, rows, columns], gate above up, without biases beside them. False: it is none of them.
static bool add_halves(pl_weight_list *l, const pl_st *set, const pl_st_entry *s, const char *name) {
    static const char experts[] = ".mlp.experts.";
    const char       *at = strstr(name, experts), *rest = at ? at + sizeof experts - 1 : "";
    char              biases[512];
    int               parts = strcmp(rest, "gate_up_proj") == 0 ? 2 : strcmp(rest, "down_proj") == 0 ? 1 : 0;
    bool              layers = strncmp(name, "model.layers.", 13) == 0 || strncmp(name, "mtp.layers.", 11) == 0;
    if (parts == 0 || !layers || strlen(s->name) + 6 > sizeof biases) return false;
    snprintf(biases, sizeof biases, "%s_bias", s->name);
    if (s->rank != 3 || s->shape[0] < 1 || s->shape[0] > PL_HF_EXPERTS_MAX || s->shape[1] < parts || s->shape[2] < 1 ||
        s->shape[1] % parts != 0 || pl_st_find(set, biases))
        return false;
    size_t bytes = s->bytes / (size_t)s->shape[0] / (size_t)parts;
    for (int64_t e = 0; e < s->shape[0] * parts; e++) {
        static const char *const part[] = {"down_proj", "gate_proj", "up_proj"};
        pl_weight_entry          one = {.dtype = s->dtype,
                                        .rank = 2,
                                        .shape = {s->shape[1] / parts, s->shape[2]},
                                        .data = (const uint8_t *)s->data + (size_t)e * bytes,
                                        .bytes = bytes};
        char                     then[64];
        snprintf(then, sizeof then, ".mlp.experts.%d.%s.weight", (int)(e / parts), part[parts - 1 + e % parts]);
        add(l, &one, (int)(at - name), name, then);
    }
    return true;
}

// Each expert's part of a stack. What is not of its name's shape stays one tensor, which nobody asks for. False: it is
// no stack.
static bool add_stack(pl_weight_list *l, const pl_st *set, const pl_st_entry *s, const char *name) {
    static const char experts[] = ".mlp.experts.";
    const char       *at = strstr(name, experts), *rest = at ? at + sizeof experts - 1 : "";
    const stack      *k = NULL;
    pl_weight_entry   one;
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++)
        if (strcmp(rest, stacks[i].name) == 0) k = &stacks[i];
    if (!k || strncmp(name, "model.layers.", 13) != 0 || !lay_out(k, set, s, &one)) return false;
    size_t         slice = s->bytes / (size_t)s->shape[0];
    const uint8_t *data = s->data, *scale = one.scale;
    int64_t        blocks = one.shape[1] / 32; // of a row of MXFP4
    one.bytes = (slice + (scale ? slice / 16 : 0)) / (size_t)one.row_stride;
    for (int64_t e = 0; e < s->shape[0]; e++)
        for (int64_t t = 0; t < one.row_stride; t++) {
            char   then[64];
            size_t skip = k->packed ? (size_t)(t * blocks * 16) : (size_t)t * pl_dtype_size(s->dtype);
            one.data = data + (size_t)e * slice + skip;
            if (scale) one.scale = scale + (e * one.shape[0] * one.row_stride + t) * blocks;
            snprintf(then, sizeof then, ".mlp.experts.%d.%s", (int)e, k->part[t]);
            add(l, &one, (int)(at - name), name, then);
        }
    return true;
}

static bool add_router(pl_weight_list *l, const pl_weight_entry *e, const char *name) {
    static const char router[] = ".mlp.router.";
    const char       *at = strstr(name, router);
    char              then[64];
    if (!at || strncmp(name, "model.layers.", 13) != 0 || strlen(at) > 32) return false;
    snprintf(then, sizeof then, ".mlp.gate.%s", at + sizeof router - 1);
    add(l, e, (int)(at - name), name, then);
    return true;
}

void pl_weight_list_add(pl_weight_list *l, const pl_st *set, const pl_st_entry *s, const char *name) {
    pl_weight_entry e = {.dtype = s->dtype, .rank = s->rank, .data = s->data, .bytes = s->bytes};
    memcpy(e.shape, s->shape, sizeof s->shape);
    if (!add_halves(l, set, s, name) && !add_stack(l, set, s, name)) pl_weight_list_add_matrix(l, &e, name);
}

void pl_weight_list_add_matrix(pl_weight_list *l, const pl_weight_entry *e, const char *name) {
    if (!add_mixtral(l, e, name) && !add_router(l, e, name)) add(l, e, 0, "", name);
}
