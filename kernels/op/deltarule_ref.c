#include "kernels/op/deltarule.h"
#include "kernels/ref.h"

// Returns a pointer to x, or within the window, at `back` positions before row m.
static const pl_real *input_at(const pl_shortconv_args *a, const int32_t *parent, int64_t m, int back) {
    const pl_gdn_shape *s = &a->shape;
    int64_t             C = a->x.dim[1];
    const pl_real      *window = (const pl_real *)a->row[m].k + (int64_t)s->nv * s->dk * s->dv;
    for (; back > 0 && parent[m] >= 0; back--)
        m = parent[m];
    return back > 0 ? window + (s->taps - 1 - back) * C : (const pl_real *)a->x.data + m * C;
}

static void convolve_row(const pl_shortconv_args *a, const int32_t *parent, int64_t m) {
    int            taps = a->shape.taps;
    int64_t        C = a->x.dim[1];
    pl_real       *y = (pl_real *)a->y.data + m * C;
    const pl_real *w = a->w.data;
    for (int t = 0; t < taps; t++) {
        const pl_real *x = input_at(a, parent, m, taps - 1 - t);
        for (int64_t c = 0; c < C; c++)
            y[c] = w[c * taps + t] * x[c] + (t > 0 ? y[c] : 0);
    }
    for (int64_t c = 0; c < C; c++)
        y[c] = y[c] / (1 + exp(-y[c]));
}

// Moves the sessions' windows on, and keeps the inputs of trees.
static void keep_inputs(const pl_shortconv_args *a) {
    const pl_gdn_shape *s = &a->shape;
    int64_t             C = a->x.dim[1];
    for (int64_t m = 0; m < a->x.dim[0]; m++) {
        const pl_kvrow *r = &a->row[m];
        const pl_real  *x = (const pl_real *)a->x.data + m * C;
        pl_real        *window = (pl_real *)r->k + (int64_t)s->nv * s->dk * s->dv;
        if (pl_gdn_keeps(r))
            memcpy((pl_real *)r->v + (r->slot - r->n_ctx) * pl_gdn_kept(s), x, (size_t)C * sizeof *x);
        else
            pl_gdn_push(window, s->taps - 1, x, (size_t)C * sizeof *x);
    }
}

void PL_REF(shortconv_fwd)(pl_ctx *ctx, const void *args) {
    const pl_shortconv_args *a = args;
    const pl_gdn_shape      *s = &a->shape;
    int64_t                  rows = a->x.dim[0];
    size_t                   mark = pl_arena_mark(&ctx->scratch);
    int32_t                 *parent = pl_arena_alloc(&ctx->scratch, (size_t)rows * sizeof *parent);
    if (!ctx->measuring) {
        pl_gdn_parents(a->row, rows, parent);
        for (int64_t m = 0; m < rows; m++)
            if (pl_gdn_begins(&a->row[m]))
                memset((pl_real *)a->row[m].k + (int64_t)s->nv * s->dk * s->dv, 0,
                       (size_t)((s->taps - 1) * a->x.dim[1]) * sizeof(pl_real));
        for (int64_t m = 0; m < rows; m++)
            convolve_row(a, parent, m);
        keep_inputs(a);
    }
    pl_arena_release(&ctx->scratch, mark);
}

// ---- the recurrence -------------------------------------------------------------------------------------------------

// Updates one head's state by a row; q NULL: without an output.
typedef struct update {
    const pl_real *k, *q, *v;
    pl_real        a, b, *o;
} update;

static void apply(pl_real *S, const pl_gdn_shape *s, const update *p) {
    for (int j = 0; j < s->dv; j++) {
        pl_real u = 0, o = 0;
        for (int i = 0; i < s->dk; i++) {
            S[i * s->dv + j] *= p->a;
            u += p->k[i] * S[i * s->dv + j];
        }
        u = p->b * (p->v[j] - u);
        for (int i = 0; i < s->dk; i++) {
            S[i * s->dv + j] += p->k[i] * u;
            if (p->q) o += p->q[i] * S[i * s->dv + j];
        }
        if (p->q) p->o[j] = o;
    }
}

// to = x scale / sqrt(sum x^2 + eps)
static void scale_to_unit(pl_real *to, const pl_real *x, int n, pl_real scale) {
    pl_real square = 0;
    for (int i = 0; i < n; i++)
        square += x[i] * x[i];
    pl_real by = 1 / sqrt(square + (pl_real)PL_GDN_L2_EPS);
    for (int i = 0; i < n; i++)
        to[i] = x[i] * by * scale;
}

static pl_real softplus(pl_real x) {
    return x > 20 ? x : log1p(exp(x));
}

static void run_step(const pl_deltarule_args *a, const pl_gdn_step *step, int h, pl_real *states, pl_real *unit) {
    const pl_gdn_shape *s = &a->shape;
    const pl_kvrow     *r = &a->row[step->row];
    int64_t             area = (int64_t)s->dk * s->dv, key = h / (s->nv / s->nk) * (int64_t)s->dk;
    const pl_real      *x = (const pl_real *)a->x.data + step->row * a->x.dim[1];
    const pl_real      *gates = (const pl_real *)a->gates.data + step->row * (int64_t)(2 * s->nv);
    pl_real            *own = (pl_real *)r->k + h * area;
    pl_real            *from = step->from == PL_GDN_OWN ? own : states + step->from * area;
    pl_real            *to = step->to == PL_GDN_OWN ? own : states + step->to * area;
    scale_to_unit(unit, x + key, s->dk, 1 / sqrt((pl_real)s->dk));
    scale_to_unit(unit + s->dk, x + (int64_t)s->nk * s->dk + key, s->dk, 1);
    update p = {.q = unit,
                .k = unit + s->dk,
                .v = x + 2 * (int64_t)s->nk * s->dk + (int64_t)h * s->dv,
                .b = 1 / (1 + exp(-gates[h])),
                .o = (pl_real *)a->o.data + step->row * a->o.dim[1] + (int64_t)h * s->dv};
    p.a =
        exp(-exp(((const pl_real *)a->a_log.data)[h]) * softplus(gates[s->nv + h] + ((const pl_real *)a->dt.data)[h]));
    if (pl_gdn_begins(r)) memset(own, 0, (size_t)area * sizeof *own);
    if (from != to) memcpy(to, from, (size_t)area * sizeof *to);
    apply(to, s, &p);
    if (!pl_gdn_keeps(r)) return;
    pl_real *kept = (pl_real *)r->v + (r->slot - r->n_ctx) * pl_gdn_kept(s) + a->x.dim[1];
    memcpy(kept + key, p.k, (size_t)s->dk * sizeof *kept);
    kept += (int64_t)s->nk * s->dk;
    memcpy(kept + (int64_t)h * s->dv, p.v, (size_t)s->dv * sizeof *kept);
    kept += (int64_t)s->nv * s->dv;
    kept[h] = p.a;
    kept[s->nv + h] = p.b;
}

void PL_REF(deltarule_fwd)(pl_ctx *ctx, const void *args) {
    const pl_deltarule_args *a = args;
    const pl_gdn_shape      *s = &a->shape;
    int64_t                  rows = a->x.dim[0];
    size_t                   mark = pl_arena_mark(&ctx->scratch), area = (size_t)s->dk * (size_t)s->dv;
    pl_gdn_step             *step = pl_arena_alloc(&ctx->scratch, (size_t)rows * sizeof *step);
    int32_t                 *work = pl_arena_alloc(&ctx->scratch, PL_GDN_WORK * (size_t)rows * sizeof *work);
    pl_real                 *states = pl_arena_alloc(&ctx->scratch, PL_GDN_STATES * area * sizeof *states);
    pl_real                 *unit = pl_arena_alloc(&ctx->scratch, 2 * (size_t)s->dk * sizeof *unit);
    if (!ctx->measuring) {
        pl_gdn_order(a->row, rows, step, work);
        for (int h = 0; h < s->nv; h++)
            for (int64_t i = 0; i < rows; i++)
                run_step(a, &step[i], h, states, unit);
    }
    pl_arena_release(&ctx->scratch, mark);
}

static void replay_row(const pl_gdn_shape *s, pl_real *state, const pl_real *kept) {
    int64_t        C = pl_gdn_channels(s), area = (int64_t)s->dk * s->dv;
    const pl_real *k = kept + C, *v = k + (int64_t)s->nk * s->dk, *a = v + (int64_t)s->nv * s->dv;
    for (int h = 0; h < s->nv; h++)
        apply(state + h * area, s,
              &(update){.k = k + h / (s->nv / s->nk) * (int64_t)s->dk,
                        .v = v + (int64_t)h * s->dv,
                        .a = a[h],
                        .b = a[s->nv + h]});
    pl_gdn_push(state + s->nv * area, s->taps - 1, kept, (size_t)C * sizeof *kept);
}

void PL_REF(replay_fwd)(pl_ctx *ctx, const void *args) {
    const pl_replay_args *a = args;
    PL_OP_SKIP_IF_MEASURING(ctx);
    for (int64_t l = 0; l < a->layers; l++)
        for (int i = 1; i <= a->rows[0]; i++)
            replay_row(&a->shape, (pl_real *)a->state + l * pl_gdn_state(&a->shape),
                       (const pl_real *)a->kept + l * a->pitch + a->rows[i] * pl_gdn_kept(&a->shape));
}
