// Measures the planner's costs by steps of the decode loop (infer/bench/cycle.h) with trees of several row counts and
// widths. Rounds go over all drafters and trees, with steps of plain decoding in between, so that drift of the machine
// affects all alike; a figure is the median over the last samples. The first round warms up and is not counted.
//
// A device runs a draft asynchronously: its parts can be timed only with a synchronisation after each. A device's first
// rounds are measured so, and the parts are then scaled to the seconds of drafts without these synchronisations.
#include "infer/bench/cycle.h"
#include "infer/plan/plan.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"

#include <math.h>
#include <string.h>

#define ROUNDS_LEAST 3
#define ROUNDS_APART 2 // first rounds on a device, synchronised after each part
#define ROUNDS_MOST 200
#define PLAIN_STEPS 5 // of plain decoding after each drafter's cycles
#define SAMPLES 512   // last samples of one part at one number of rows
#define SIZES 24      // most row counts of one part
#define TREES 14
#define GIVEN 4 // consecutive cycles of the tree of --tree

typedef struct plan_tree {
    int     n, levels, children, times; // n: with the root; children: most of a node; times: counted cycles of a round
    int32_t parent[PL_SHAPE_NODES];
    int     w[PL_SHAPE_LEVELS]; // expanded nodes by depth
} plan_tree;

// Samples of one part at one number of rows.
typedef struct series {
    int    rows, n; // n: all that were taken; a sample beyond SAMPLES replaces the oldest
    double x[SAMPLES];
} series;
typedef struct part_samples {
    int    n;
    series size[SIZES];
} part_samples;

typedef struct measured {
    const struct measuring *r;
    pl_plan_subject        *s;
    pl_cycles              *cycles;
    int                     tree; // of the run in progress
    part_samples            target, verify, other, take_in, first, layer, head, by_level, router;
    part_samples            draft[2]; // by tree: asynchronous; synchronised after each part
    part_samples            whole;    // steps by tree, asynchronous
} measured;

typedef struct measuring {
    const pl_plan_measuring *o;
    plan_tree                tree[TREES];
    int                      n_trees, rows, width, levels; // rows to levels: maxima over trees
    measured                *m;
    int                      n;
    bool                     device, parts; // parts: this round synchronises after each part
    measured                 plain;
} measuring;

static void add_sample(part_samples *p, int rows, double seconds) {
    int i = 0;
    while (i < p->n && p->size[i].rows != rows)
        i++;
    if (i == SIZES) return;
    if (i == p->n) p->size[p->n++].rows = rows;
    p->size[i].x[p->size[i].n++ % SAMPLES] = seconds;
}

static double median(const series *s) {
    return pl_stats(s->x, s->n < SAMPLES ? s->n : SAMPLES).median;
}

static double median_of(const part_samples *p, int rows) {
    for (int i = 0; i < p->n; i++)
        if (p->size[i].rows == rows) return median(&p->size[i]);
    return 0;
}

static void read_samples(const part_samples *p, double scale, pl_autotuner_cost *c) {
    *c = (pl_autotuner_cost){0};
    for (int i = 0; i < p->n; i++)
        pl_autotuner_cost_add(c, p->size[i].rows, scale * median(&p->size[i]));
}

// ---- trees ----------------------------------------------------------------------------------------------------------

static void add_tree(measuring *r, int n, const int32_t *parent, int times) {
    plan_tree *t = &r->tree[r->n_trees++];
    int        children[PL_SHAPE_NODES] = {0}, depth[PL_SHAPE_NODES] = {0};
    *t = (plan_tree){.n = n, .times = times};
    for (int i = 1; i < n; i++) {
        t->parent[i] = parent[i];
        depth[i] = depth[parent[i]] + 1;
        if (++children[parent[i]] == 1) r->width = (int)fmax(r->width, ++t->w[depth[parent[i]]]);
        t->children = (int)fmax(t->children, children[parent[i]]);
        t->levels = (int)fmax(t->levels, depth[i]);
    }
    r->rows = (int)fmax(r->rows, n);
    r->levels = (int)fmax(r->levels, t->levels);
}

// Adds a tree by its levels; by[l]: children of each node of level l, 0 ends them.
static void add_levels(measuring *r, const int by[3]) {
    int32_t parent[PL_SHAPE_NODES] = {-1};
    int     n = 1, first = 0;
    for (int l = 0; l < 3; l++)
        for (int end = n; first < end; first++)
            for (int c = 0; c < by[l]; c++)
                parent[n++] = first;
    add_tree(r, n, parent, 1);
}

static void make_trees(measuring *r) {
    static const int chains[] = {1, 2, 3, 4, 5, 7, 9, 12, 15};
    static const int wide[][3] = {{2, 1, 1}, {3, 2, 0}, {4, 1, 1}, {8, 1, 0}};
    int32_t          parent[PL_SHAPE_NODES];
    for (int i = 0; i < PL_SHAPE_NODES; i++)
        parent[i] = i - 1;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
        add_tree(r, chains[i] + 1, parent, 1);
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        add_levels(r, wide[i]);
    if (r->o->tree && r->o->tree->n > 1) add_tree(r, r->o->tree->n, r->o->tree->parent, GIVEN);
}

// ---- cycles ---------------------------------------------------------------------------------------------------------

static void add_draft(measured *m, const pl_cycle_sample *s) {
    const measuring      *r = m->r;
    const plan_tree      *t = &r->tree[m->tree];
    const pl_draft_parts *p = &s->parts.draft, *level = m->cycles->level;
    int                   b = r->o->batch;
    add_sample(&m->draft[r->parts], m->tree, s->draft);
    if (!r->parts) add_sample(&m->whole, m->tree, s->seconds);
    if (r->device && !r->parts) return;
    bool   block = m->s->costs.drafts > 0;
    double head = block ? p->head + p->draw : level[t->levels - 1].head;
    add_sample(&m->take_in, s->emitted, block ? p->take_in + p->layer : p->take_in);
    add_sample(&m->other, s->rows, s->draft - p->take_in - p->layer - head);
    if (block) {
        if (t->n == t->levels + 1) add_sample(&m->first, b * t->levels, head);
        return;
    }
    add_sample(&m->first, b, level[0].head);
    for (int l = 1; l < t->levels; l++) {
        int rows = b * t->w[l];
        add_sample(&m->layer, rows, level[l].layer - level[l - 1].layer);
        add_sample(&m->head, rows, level[l].head - level[l - 1].head);
        add_sample(&m->router, rows, level[l].router - level[l - 1].router);
        if (t->w[l] == 1) add_sample(&m->by_level, l, level[l].head - level[l - 1].head);
    }
}

static void add_cycle(void *arg, const pl_cycle_sample *s) {
    measured *m = arg;
    add_sample(&m->target, s->rows, s->parts.target);
    add_sample(&m->verify, s->emitted, s->parts.verify);
    if (m->cycles->drafter)
        add_draft(m, s);
    else
        add_sample(&m->other, s->rows, s->draft);
}

static pl_status run_tree(measuring *r, measured *m, int tree, bool keep, pl_err *err) {
    const plan_tree *t = &r->tree[tree];
    if (t->children > m->s->k || (m->s->costs.drafts && t->levels > m->s->costs.drafts)) return PL_OK;
    m->tree = tree;
    pl_tree_shape_set(&m->cycles->drafter->policy, t->n, t->parent);
    return pl_cycles_run(m->cycles, keep ? t->times : 0, r->parts, add_cycle, m, err);
}

static pl_status run_round(measuring *r, bool keep, pl_err *err) {
    for (int i = 0; i == 0 || i < r->n; i++) {
        int trees = r->n ? r->n_trees : 0;
        for (int t = 0; t < trees; t += keep ? 1 : trees - 1) // a warm-up runs the first and the last alone
            PL_TRY(run_tree(r, &r->m[i], t, keep, err));
        PL_TRY(pl_cycles_run(r->plain.cycles, keep ? PLAIN_STEPS : 0, false, add_cycle, &r->plain, err));
    }
    return PL_OK;
}

static pl_status run_rounds(measuring *r, int *rounds, pl_err *err) {
    pl_progress p;
    double      t0 = pl_now();
    int         apart = r->device ? ROUNDS_APART : 0, least = ROUNDS_LEAST + apart;
    r->parts = apart > 0;
    PL_TRY(run_round(r, false, err));
    pl_progress_begin(&p, "plan", 0, ROUNDS_MOST);
    *rounds = 0;
    pl_status st = PL_OK;
    while (st == PL_OK && *rounds < ROUNDS_MOST && (*rounds < least || pl_now() - t0 < r->o->seconds)) {
        r->parts = *rounds < apart;
        st = run_round(r, true, err);
        pl_progress_update(&p, ++*rounds, "rounds of measuring");
    }
    pl_progress_end(&p);
    return st;
}

// ---- the whole ------------------------------------------------------------------------------------------------------

static pl_status open_subject(measuring *r, measured *m, const pl_backend *be, pl_pool *pool, pl_err *err) {
    pl_tree_policy   policy;
    pl_cycle_options o = {.target = r->o->target,
                          .policy = &policy,
                          .backbone = m->s->backbone,
                          .batch = r->o->batch,
                          .context = r->o->context,
                          .temperature = r->o->temperature,
                          .caches = r->plain.cycles};
    m->s->costs = (pl_plan_costs){.batch = r->o->batch};
    if (m->s->backbone->kind->draft) m->s->costs.drafts = m->s->backbone->drafts;
    pl_cycle_policy(&policy, r->rows, m->s->k, r->width, r->levels);
    return pl_cycles_open(&m->cycles, be, pool, &o, err);
}

static pl_status open_all(measuring *r, pl_plan_subject *subject, const pl_backend *be, pl_pool *pool, pl_err *err) {
    pl_cycle_options o = {
        .target = r->o->target, .batch = r->o->batch, .context = r->o->context, .temperature = r->o->temperature};
    r->m = pl_calloc((size_t)r->n, sizeof *r->m);
    if (!r->m) return pl_fail(err, PL_E_MEMORY, "plan: out of memory");
    PL_TRY(pl_cycles_open(&r->plain.cycles, be, pool, &o, err));
    for (int i = 0; i < r->n; i++) {
        r->m[i].r = r;
        r->m[i].s = &subject[i];
        PL_TRY(open_subject(r, &r->m[i], be, pool, err));
    }
    return PL_OK;
}

static void close_all(measuring *r) {
    for (int i = 0; r->m && i < r->n; i++)
        pl_cycles_close(r->m[i].cycles);
    pl_cycles_close(r->plain.cycles);
    pl_free(r->m);
    pl_free(r);
}

// Reads the ratio of a device's asynchronous drafts to those synchronised after each part: for the chain of one, which
// is level 0, and for the additional seconds of the other trees.
static void read_scales(const measuring *r, const measured *m, double *level0, double *deeper) {
    double queued = 0, waited = 0, q0 = median_of(&m->draft[0], 0), w0 = median_of(&m->draft[1], 0);
    *level0 = *deeper = 1;
    if (!r->device || w0 <= 0) return;
    for (int t = 1; t < r->n_trees; t++) {
        double w = median_of(&m->draft[1], t);
        if (w == 0) continue; // not run
        queued += median_of(&m->draft[0], t) - q0;
        waited += w - w0;
    }
    *level0 = *deeper = q0 / w0;
    if (queued > 0 && waited > 0) *deeper = queued / waited;
}

// Reads the head's seconds at each level over their mean, for heads that read fewer rows at deeper levels.
static void read_levels(const measured *m, pl_plan_costs *c) {
    const pl_head *h = &m->s->backbone->head;
    double         mean = median_of(&m->head, c->batch);
    bool           even = true;
    for (int l = 2; l < PL_SHAPE_LEVELS; l++)
        if (pl_head_step_bytes(h, l) != pl_head_step_bytes(h, 1)) even = false;
    for (int l = 1; l < PL_SHAPE_LEVELS && !even && mean > 0; l++)
        c->level_share[l] = median_of(&m->by_level, l) / mean;
}

static void read_costs(const measuring *r, const measured *m, pl_plan_costs *c) {
    double level0, deeper;
    read_scales(r, m, &level0, &deeper);
    read_samples(&m->target, 1, &c->target);
    read_samples(&m->verify, 1, &c->verify);
    read_samples(&m->other, level0, &c->other);
    read_samples(&m->take_in, level0, &c->take_in);
    read_samples(&m->first, level0, &c->first);
    read_samples(&m->layer, deeper, &c->layer);
    read_samples(&m->head, deeper, &c->head);
    c->router = deeper * median_of(&m->router, c->batch);
    m->s->step = r->o->tree ? median_of(&m->whole, r->n_trees - 1) : 0;
    if (!c->drafts) read_levels(m, c);
}

pl_status pl_plan_measure(pl_plan_subject *subject, int n, pl_plan_plain *plain, const pl_backend *be, pl_pool *pool,
                          const pl_plan_measuring *o, pl_err *err) {
    PL_CHECK(o->batch >= 1 && o->batch <= PL_PLAN_BATCH && o->context >= PL_SHAPE_LEVELS, "batch %d, context %d",
             o->batch, o->context);
    measuring *r = pl_calloc(1, sizeof *r);
    if (!r) return pl_fail(err, PL_E_MEMORY, "plan: out of memory");
    r->o = o;
    r->n = n;
    r->device = be->device != NULL;
    make_trees(r);
    pl_status st = open_all(r, subject, be, pool, err);
    if (st == PL_OK) st = run_rounds(r, &plain->rounds, err);
    if (st == PL_OK) {
        plain->costs = (pl_plan_costs){.batch = o->batch};
        read_samples(&r->plain.target, 1, &plain->costs.target);
        read_samples(&r->plain.verify, 1, &plain->costs.verify);
        read_samples(&r->plain.other, 1, &plain->costs.other);
        for (int i = 0; i < n; i++)
            read_costs(r, &r->m[i], &subject[i].costs);
    }
    close_all(r);
    return st;
}
