#include "kernels/op/frontier.h"
#include "kernels/ref.h"
#include <tgmath.h>

typedef pl_frontier_args  args_t;
typedef pl_frontier_group group_t;

static bool is_there(const args_t *a, const group_t *g, int32_t c) {
    int64_t m = g->first + c / a->k;
    return a->id[m * a->k + c % a->k] >= 0 && !(a->at.score && a->at.score[m] > 0);
}

static float score_of(const args_t *a, const group_t *g, int32_t c) {
    int64_t m = g->first + c / a->k;
    float   of_parent = a->at.score ? a->at.score[m] : 0, logp = a->lse ? a->value[m * a->k + c % a->k] - a->lse[m] : 0;
    return of_parent + (logp < 0 ? logp : 0);
}

// The best candidate after `last` in descending order of score, then ascending c; -1: none is left.
static int32_t next_best(const args_t *a, const group_t *g, int32_t last) {
    int32_t found = -1;
    float   most = last < 0 ? 0 : score_of(a, g, last), best = 0;
    for (int32_t c = 0; c < g->rows * a->k; c++) {
        if (!is_there(a, g, c)) continue;
        float s = score_of(a, g, c);
        if (last >= 0 && (s > most || (s == most && c <= last))) continue;
        if (found < 0 || s > best) found = c, best = s;
    }
    return found;
}

// Fills row i of the group: candidate c, -1: none; then the row repeats candidate `like`.
static void fill(const args_t *a, const group_t *g, int32_t i, int32_t c, int32_t like) {
    int32_t from = c < 0 ? like : c;
    int64_t m = g->first + (from < 0 ? 0 : from / a->k), to = g->to + i;
    int32_t id = from < 0 ? -1 : a->id[m * a->k + from % a->k];
    a->next.token[to] = id >= 0 && a->d2t ? a->d2t[id] : id;
    a->next.row[to] = a->index ? a->index[m] : (int32_t)m;
    a->next.score[to] = c < 0 ? INFINITY : score_of(a, g, c);
    a->next.picked[to] = c;
    int32_t *path = a->next.path + to * (a->depth + 1);
    for (int32_t j = 0; j < a->depth; j++)
        path[j] = a->at.path[m * a->depth + j];
    path[a->depth] = g->slot + i;
}

// Returns the candidate of the group's first existing row; -1: none.
static int32_t first_there(const args_t *a, const group_t *g) {
    if (!a->pick) return next_best(a, g, -1);
    for (int32_t i = g->to; i < g->to + g->width; i++)
        if (is_there(a, g, a->pick[i])) return a->pick[i];
    return -1;
}

void PL_REF(frontier_fwd)(pl_ctx *ctx, const void *args) {
    const args_t *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    for (int n = 0; n < a->n_groups; n++) {
        const group_t *g = &a->group[n];
        int32_t        like = first_there(a, g), c = like;
        for (int32_t i = 0; i < g->width; i++) {
            if (a->pick)
                c = is_there(a, g, a->pick[g->to + i]) ? a->pick[g->to + i] : -1;
            else if (i > 0 && c >= 0)
                c = next_best(a, g, c);
            fill(a, g, i, c, like);
        }
    }
}
