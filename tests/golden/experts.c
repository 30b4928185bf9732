#include "tests/golden/experts.h"
#include "tests/golden/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoints/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(pl_status st, const pl_err *err) {
    if (st != PL_OK) fail_msg("%s", err->msg);
}

// ---- Mixtral's names ----

// A folder's tensors under other names.
static void rename_all(const char *dir, void (*rename_one)(char to[128], const char *name)) {
    pl_err err;
    pl_st *plain;
    char   path[96], again[96], (*name)[128];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    snprintf(again, sizeof again, "%s/again", dir);
    must(pl_st_open(&plain, path, &err), &err);
    int64_t       count = pl_st_count(plain);
    pl_st_source *all = calloc((size_t)count, sizeof *all);
    name = calloc((size_t)count, sizeof *name);
    assert_true(all && name);
    for (int64_t i = 0; i < count; i++) {
        const pl_st_entry *e = pl_st_at(plain, i);
        rename_one(name[i], e->name);
        all[i] = (pl_st_source){.name = name[i], .dtype = e->dtype, .rank = e->rank, .data = e->data};
        memcpy(all[i].shape, e->shape, sizeof e->shape);
    }
    must(pl_st_write(again, all, count, NULL, 0, &err), &err);
    pl_st_close(plain);
    assert_int_equal(rename(again, path), 0);
    free(all);
    free(name);
}

static void mixtral_name(char to[128], const char *name) {
    static const char *const ends[3][2] = {{".gate_proj.", ".w1."}, {".down_proj.", ".w2."}, {".up_proj.", ".w3."}};
    const char              *mlp = strstr(name, ".mlp."), *rest = mlp ? mlp + 5 : "";
    snprintf(to, 128, "%s", name);
    if (!mlp) return;
    for (int i = 0; i < 3; i++) {
        const char *end = strstr(rest, ends[i][0]);
        if (end)
            snprintf(to, 128, "%.*s.block_sparse_moe.%.*s%sweight", (int)(mlp - name), name, (int)(end - rest), rest,
                     ends[i][1]);
    }
    if (strncmp(rest, "gate.", 5) == 0) snprintf(to, 128, "%.*s.block_sparse_moe.%s", (int)(mlp - name), name, rest);
}

void as_mixtral(const char *dir) {
    rename_all(dir, mixtral_name);
}

// ---- GPT-OSS's files: the experts of a layer in one tensor ----

typedef struct stacking {
    pl_st        *plain; // experts one by one
    pl_st_source *all;
    int64_t       n;
    char (*name)[128];
} stacking;

static void *put(stacking *s, pl_dtype t, int rank, const int64_t *shape, int layer, const char *what) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= shape[i];
    void *data = calloc((size_t)count, pl_dtype_size(t));
    assert_non_null(data);
    snprintf(s->name[s->n], sizeof s->name[0], "model.layers.%d.mlp.experts.%s", layer, what);
    s->all[s->n] = (pl_st_source){.name = s->name[s->n], .dtype = t, .rank = rank, .data = data};
    memcpy(s->all[s->n++].shape, shape, (size_t)rank * sizeof *shape);
    return data;
}

static const uint16_t *one_expert(const stacking *s, int layer, int expert, const char *what, int64_t shape[2]) {
    char name[128];
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s", layer, expert, what);
    const pl_st_entry *e = pl_st_find(s->plain, name);
    assert_true(e && e->dtype == PL_BF16);
    shape[0] = e->shape[0];
    shape[1] = e->rank == 2 ? e->shape[1] : 1;
    return e->data;
}

// Matrices or biases of `turns` projections whose rows come in turns; matrices are transposed.
static void put_stack(stacking *s, int layer, int experts, int turns, const char *const *part, const char *what) {
    int64_t   shape[2], all[3];
    uint16_t *to = NULL;
    for (int e = 0; e < experts; e++)
        for (int t = 0; t < turns; t++) {
            const uint16_t *from = one_expert(s, layer, e, part[t], shape);
            bool            bias = shape[1] == 1;
            all[0] = experts;
            all[1] = bias ? turns * shape[0] : shape[1];
            all[2] = turns * shape[0];
            if (!to) to = put(s, PL_BF16, bias ? 2 : 3, all, layer, what);
            for (int64_t r = 0; r < shape[0]; r++)
                for (int64_t c = 0; c < shape[1]; c++)
                    to[(e * shape[1] + c) * all[2] + turns * r + t] = from[r * shape[1] + c];
        }
}

// Bytes by name, as packed() of make_golden.py has them.
static void bytes_of(uint8_t *to, int64_t n, const char *name, const char *what) {
    char   whole[160];
    float *v = calloc((size_t)n, sizeof *v);
    assert_non_null(v);
    snprintf(whole, sizeof whole, "llama/%s/%s", name, what);
    golden_coarse(v, n, 0, whole);
    for (int64_t i = 0; i < n; i++)
        to[i] = (uint8_t)((v[i] + 255) / 2);
    free(v);
}

static void put_packed(stacking *s, int layer, int experts, int turns, const char *const *part, const char *what) {
    int64_t  shape[2];
    uint8_t *to = NULL, *scale = NULL, own[4096];
    char     name[128];
    for (int e = 0; e < experts; e++)
        for (int t = 0; t < turns; t++) {
            one_expert(s, layer, e, part[t], shape);
            int64_t rows = shape[0], half = shape[1] / 2, blocks = shape[1] / 32,
                    all[] = {experts, turns * rows, blocks, 16};
            assert_true(rows * half <= (int64_t)sizeof own);
            if (!to) {
                snprintf(name, sizeof name, "%s_blocks", what);
                to = put(s, PL_U8, 4, all, layer, name);
                snprintf(name, sizeof name, "%s_scales", what);
                scale = put(s, PL_U8, 3, all, layer, name);
            }
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s", layer, e, part[t]);
            bytes_of(own, rows * half, name, "blocks");
            for (int64_t r = 0; r < rows; r++)
                memcpy(to + ((e * rows + r) * turns + t) * half, own + r * half, (size_t)half);
            bytes_of(own, rows * blocks, name, "scales");
            for (int64_t i = 0; i < rows * blocks; i++)
                scale[((e * rows + i / blocks) * turns + t) * blocks + i % blocks] = own[i] % 4 + 121;
        }
}

void stack_experts(const char *dir, const pl_hf_config *c, bool packed) {
    static const char *const two[] = {"gate_proj.weight", "up_proj.weight"}, *const one[] = {"down_proj.weight"};
    static const char *const bias[] = {"gate_proj.bias", "up_proj.bias"}, *const last[] = {"down_proj.bias"};
    pl_err   err;
    char     path[96], again[96];
    stacking s = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    snprintf(again, sizeof again, "%s/again", dir);
    must(pl_st_open(&s.plain, path, &err), &err);
    int64_t count = pl_st_count(s.plain), borrowed = 0;
    s.all = calloc((size_t)count, sizeof *s.all);
    s.name = calloc((size_t)count, sizeof *s.name);
    assert_true(s.all && s.name);
    for (int64_t i = 0; i < count; i++) {
        const pl_st_entry *e = pl_st_at(s.plain, i);
        const char        *gate = strstr(e->name, ".mlp.gate.");
        if (strstr(e->name, ".experts.")) continue;
        snprintf(s.name[s.n], sizeof s.name[0], "%s", e->name);
        if (gate)
            snprintf(s.name[s.n], sizeof s.name[0], "%.*s.mlp.router.%s", (int)(gate - e->name), e->name, gate + 10);
        s.all[s.n] = (pl_st_source){.name = s.name[s.n], .dtype = e->dtype, .rank = e->rank, .data = e->data};
        memcpy(s.all[s.n++].shape, e->shape, sizeof e->shape);
    }
    borrowed = s.n;
    for (int l = 0; l < c->num_hidden_layers; l++) {
        (packed ? put_packed : put_stack)(&s, l, c->experts, 2, two, "gate_up_proj");
        (packed ? put_packed : put_stack)(&s, l, c->experts, 1, one, "down_proj");
        put_stack(&s, l, c->experts, 2, bias, "gate_up_proj_bias");
        put_stack(&s, l, c->experts, 1, last, "down_proj_bias");
    }
    must(pl_st_write(again, s.all, s.n, NULL, 0, &err), &err);
    pl_st_close(s.plain);
    assert_int_equal(rename(again, path), 0);
    for (int64_t i = borrowed; i < s.n; i++)
        free((void *)(uintptr_t)s.all[i].data);
    free(s.all);
    free(s.name);
}
