#include "train/start/layer.h"

#include "infer/drafter/eagle3.h"
#include "kernels/base/arena.h"
#include "train/keys.h"

#include <stdio.h>
#include <string.h>

#define OWN "midlayer."
#define OTHER_TAPS 0.1 // weight of the taps beside the last one, of drawn weights

// Sets the names in the target's file of parameter p, whose norm of hidden_t is the target's before attention.
static void target_names(pl_weight_spec *spec, char names[][96], const pl_param *p, int layer) {
    for (int i = 0; i < spec->n_parts; i++) {
        const char *rest = p->name[i] + strlen(OWN);
        if (strcmp(rest, "hidden_norm.weight") == 0) rest = "input_layernorm.weight";
        snprintf(names[i], 96, "model.layers.%d.%s", layer, rest);
        spec->part[i].name = names[i];
    }
}

// Reads the target's values of parameter p. Of a matrix with twice the columns they are the second half, and w holds
// the drawn values of the first.
static pl_status read_target(float *w, const pl_start *s, const pl_param *p, pl_err *err) {
    const pl_llama *target = &s->teacher->model;
    pl_weight_spec  spec = pl_param_spec(p);
    char            names[PL_WEIGHT_PARTS][96];
    int64_t         d = s->model->d_target, skip = spec.cols == 2 * d ? d : 0;
    pl_err          why = {0};
    target_names(&spec, names, p, target->n_layers - 1);
    spec.cols -= skip;
    if (pl_weight_source_check(s->teacher->src, &spec, 1, &why) != PL_OK)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "drafter.layer: the target's last layer has other weights (%s); leave it out", why.msg);
    if (!skip) PL_TRY(pl_weight_read_f32(s->teacher->src, &spec, w, err));
    for (int64_t r = 0; r < spec.rows && skip; r++)
        PL_TRY(pl_weight_read_rows(s->teacher->src, &spec, r, 1, w + r * (skip + d) + skip, err));
    for (int64_t i = 0; i < spec.rows && spec.cols == 0 && target->config.norm_plus_one; i++)
        w[i] += 1;
    return PL_OK;
}

// fc [d, n_taps d]: the last tap over its rms on the diagonal, the others as they are, scaled.
static pl_status pass_last_tap(pl_start *s, int at, double rms, pl_err *err) {
    const pl_backbone *b = s->model;
    int64_t            d = b->d_target, width = b->n_taps * d;
    float             *w = pl_malloc(pl_size_mul((size_t)pl_param_block_count(s->block, at), sizeof *w, 1));
    if (!w) return pl_fail(err, PL_E_MEMORY, "training: out of memory for fc");
    pl_param_block_draw(s->block, at, (uint64_t)pl_generate_recipe_of(s->r)->seed, w);
    for (int64_t r = 0; r < d; r++)
        for (int64_t c = 0; c < width; c++) {
            bool last = c >= width - d;
            w[r * width + c] *= last ? 0 : (float)OTHER_TAPS;
            if (c == width - d + r) w[r * width + c] = (float)(1 / rms);
        }
    pl_status st = pl_param_block_set(s->block, at, w, err);
    pl_free(w);
    return st;
}

static pl_status start_param(pl_start *s, int at, pl_err *err) {
    const pl_param *p = &s->model->params.p[at];
    float          *w = pl_malloc(pl_size_mul((size_t)pl_param_block_count(s->block, at), sizeof *w, 1));
    if (!w) return pl_fail(err, PL_E_MEMORY, "training: out of memory for %s", p->name[0]);
    pl_param_block_draw(s->block, at, (uint64_t)pl_generate_recipe_of(s->r)->seed, w);
    pl_status st = read_target(w, s, p, err);
    if (st == PL_OK) st = pl_param_block_set(s->block, at, w, err);
    pl_free(w);
    return st;
}

pl_status pl_start_layer(pl_start *s, double rms, pl_err *err) {
    const pl_params *ps = &s->model->params;
    for (int i = 0; i < s->model->head_param; i++) {
        bool own = strncmp(ps->p[i].name[0], OWN, strlen(OWN)) == 0;
        bool embedding = strcmp(ps->p[i].name[0], OWN "input_layernorm.weight") == 0;
        if (own && !embedding) PL_TRY(start_param(s, i, err));
        if (ps->p[i].start == PL_START_FEATURES) PL_TRY(pass_last_tap(s, i, rms > 0 ? rms : 1, err));
    }
    return PL_OK;
}
