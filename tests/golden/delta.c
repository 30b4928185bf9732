#include "tests/golden/delta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoints/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 160 };

static bool ends(const char *name, const char *with) {
    size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

// make_golden_delta.py's `value`.
static void set_values(float *v, const char *name, int rank, int64_t n) {
    char     key[160];
    pl_param p = {.kind = strstr(name, "embed") ? PL_PARAM_EMBED : PL_PARAM_MATRIX,
                  .spec = {.part = {{NULL, n}}, .n_parts = 1, .rows = n, .cols = rank > 1}};
    snprintf(key, sizeof key, "delta/%s", name);
    snprintf(p.name[0], sizeof p.name[0], "%.95s", name);
    golden_weight(v, &p, GOLDEN_COARSE, "delta");
    if (ends(name, "conv1d.weight")) golden_coarse(v, n, 9, key);
    for (int64_t i = 0; i < n && rank == 1; i++) {
        if (ends(name, "A_log"))
            v[i] = v[i] * 8 - 10;
        else if (!strstr(name, "linear_attn"))
            v[i] -= 1;
    }
}

void golden_delta_write(golden *g, const char *dir, const char *instead, const char *before) {
    static char         names[TENSORS][128];
    static pl_st_source s[TENSORS];
    const golden_entry *list = golden_at(g, "tensors");
    char               *text = calloc((size_t)list->count + 1, 1), path[96], *line = text;
    int                 n = 0;
    pl_err              err;
    assert_non_null(text);
    memcpy(text, list->data, (size_t)list->count);
    for (char *end; (end = strchr(line, '\n')); line = end + 1, n++) {
        char      name[128];
        long long d[3] = {1, 1, 1};
        assert_true(n < TENSORS);
        int    rank = sscanf(line, "%127s %lld %lld %lld", name, &d[0], &d[1], &d[2]) - 1;
        float *v = malloc((size_t)(d[0] * d[1] * d[2]) * sizeof *v);
        assert_true(rank >= 1 && v);
        set_values(v, name, rank, d[0] * d[1] * d[2]);
        bool other = strncmp(name, instead, strlen(instead)) == 0;
        snprintf(names[n], sizeof names[n], "%s%s", other ? before : "", name + (other ? strlen(instead) : 0));
        s[n] = (pl_st_source){.name = names[n], .dtype = PL_F32, .rank = rank, .shape = {d[0], d[1], d[2]}, .data = v};
    }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (pl_st_write(path, s, n, NULL, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int i = 0; i < n; i++)
        free((void *)(uintptr_t)s[i].data);
    free(text);
}
