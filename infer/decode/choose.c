#include "infer/decode/choose.h"

#include "kernels/base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST 2    // blocks of each arm before one is preferred: the first one is often slow, on new memory
#define FEW 4      // blocks from which on there is a middle half
#define PROBE 4    // cycles after which a block ends early,
#define HOPELESS 2 // where it takes so many times the best arm's seconds for as many tokens
#define REFRESH 8  // cycles between two readings of costs, which take some microseconds
#define APART 256  // nodes over which the share of FREE's that leave MODEL's tree is averaged
#define SLOPE 4    // rows over which the cost of one more row is averaged
#define NODES PL_SHAPE_NODES

struct pl_choose_session {
    pl_tree free;       // FREE's draft
    double  own[NODES]; // probability of each node's path, by FREE
    double  f[NODES];   // the same, calibrated
    double  g[NODES];   // calibrated for paths beside MODEL's tree
    bool    drafted;    // `free` is of the tree in hand
    int     of_model;   // nodes of that tree that are MODEL's, the root included; 0: it did not draft
    int     chosen;     // nodes of FREE's that pay without MODEL
    double  worth;      // expected tokens with them
    double  more;       // expected tokens of FREE's nodes beside MODEL's tree
    bool    takes_model, attached, running;
};

typedef struct pl_likely {
    double f;
    int    item; // of the batch
} pl_likely;

static bool has_free(pl_arm a) {
    return a == PL_ARM_FREE || a == PL_ARM_BOTH;
}

static bool has_model(pl_arm a) {
    return a == PL_ARM_MODEL || a == PL_ARM_BOTH;
}

// ---- the bandit -----------------------------------------------------------------------------------------------------

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Returns the mean of the middle half of an arm's blocks, which neither a busy machine nor luck moves far; of few the
// least, since a step may take longer than it needs, and not less.
static double ratio_of(const pl_choose_arm *a) {
    double x[PL_CHOOSE_MEMORY], sum = 0;
    int    n = a->blocks < PL_CHOOSE_MEMORY ? (int)a->blocks : PL_CHOOSE_MEMORY;
    if (n < FIRST) return INFINITY;
    memcpy(x, a->x, (size_t)n * sizeof *x);
    qsort(x, (size_t)n, sizeof *x, by_size);
    for (int i = n / 4; i < n - n / 4; i++)
        sum += x[i];
    return n < FEW ? x[0] : sum / (n - n / 4 * 2);
}

// True once the arm has waited so long that playing it loses little, or eight times as long as after the block before,
// since a first impression may be wrong.
static bool is_due(const pl_choose *c, pl_arm a) {
    const pl_choose_arm *of = &c->of[a];
    double               wait = (ratio_of(of) / ratio_of(&c->of[c->best]) - 1) / PL_CHOOSE_REGRET;
    return of->blocks < FIRST || (double)of->since > fmin(wait, fmin(exp2(3 * (double)of->blocks), PL_CHOOSE_REST));
}

// True if an arm with MODEL is the best, untried or due.
static bool needs_model(const pl_choose *c) {
    bool needed = false;
    for (pl_arm a = PL_ARM_MODEL; a < PL_ARMS; a++)
        needed |= c->arms >> a & 1 && (a == c->best || is_due(c, a));
    return needed;
}

// True unless MODEL takes in less than half of the sessions.
static bool may_play(const pl_choose *c, pl_arm a) {
    int running = 0, attached = 0;
    if (!(c->arms >> a & 1)) return false;
    for (int i = 0; i < c->sessions; i++) {
        running += c->session[i].running;
        attached += c->session[i].running && c->session[i].attached;
    }
    return !has_model(a) || (attached > 0 && 2 * attached >= running);
}

static void find_best(pl_choose *c) {
    for (pl_arm a = 0; a < PL_ARMS; a++)
        if (c->arms >> a & 1 && ratio_of(&c->of[a]) < ratio_of(&c->of[c->best])) c->best = a;
}

// Returns an arm that lacks blocks; else the one due for longest; else the best.
static pl_arm next_arm(const pl_choose *c) {
    pl_arm next = may_play(c, c->best) ? c->best : c->free ? PL_ARM_FREE : PL_ARM_NONE;
    long   longest = -1;
    for (pl_arm a = PL_ARMS; a-- > 0;) {
        if (!may_play(c, a)) continue;
        if (c->of[a].blocks < FIRST) return a;
        if (a == c->best || !is_due(c, a) || c->of[a].since <= longest) continue;
        longest = c->of[a].since;
        next = a;
    }
    return next;
}

static void end_block(pl_choose *c) {
    pl_choose_arm *of = &c->of[c->arm];
    double         x = c->seconds / c->worth;
    bool           wins = c->arm != c->best && of->blocks >= FIRST && x < ratio_of(&c->of[c->best]);
    of->x[of->blocks++ % PL_CHOOSE_MEMORY] = x;
    for (int a = 0; a < PL_ARMS; a++)
        c->of[a].since = a == (int)c->arm ? 0 : c->of[a].since + 1;
    find_best(c);
    pl_arm next = wins && may_play(c, c->arm) ? c->arm : next_arm(c);
    c->cycles = next == c->arm ? 0 : -1;
    c->seconds = c->worth = 0;
    c->arm = next;
    if (!c->free || has_model(next) || needs_model(c)) return;
    for (int i = 0; i < c->sessions; i++)
        c->session[i].attached = false;
}

static void read_costs(pl_choose *c) {
    pl_autotuner_cost_read(&c->tuner.verify, 1, c->most_rows, c->at_rows);
    if (!c->free || !c->model) return;
    pl_autotuner_cost_read(&c->tuner.first, 1, c->sessions, c->first_of);
    pl_autotuner_cost_read(&c->tuner.idle, 1, c->sessions, c->idle_of);
    pl_autotuner_cost_read(&c->tuner.draft, 1, c->sessions * PL_SHAPE_WIDTH, c->level_of);
}

void pl_choose_step(pl_choose *c, const pl_draft_pace *p) {
    bool alone = (c->arms & (c->arms - 1)) == 0;
    if (alone) return;
    c->cycle.pace = *p;
    pl_autotuner_learn(&c->tuner, &c->cycle);
    if (c->steps++ % REFRESH == 0 || c->steps < REFRESH) read_costs(c);
    if (p->plain == p->sessions) return;
    double plain = c->at_rows[p->sessions] / p->sessions; // seconds of a token
    double unused = c->free && !has_model(c->arm) ? c->taking_in : 0;
    if (c->cycles++ >= 0) {
        c->seconds += p->verifying + p->drafting - unused;
        c->worth += p->emitted * plain;
    }
    bool hopeless = c->cycles >= PROBE && c->seconds > HOPELESS * ratio_of(&c->of[c->best]) * c->worth;
    if ((c->cycles >= PL_CHOOSE_BLOCK || hopeless) && c->worth > 0) end_block(c);
    if (c->model && has_model(c->arm)) pl_autotuner_next(&c->tuner, &c->model->policy, p->sessions - p->plain);
}

// ---- the worth of FREE's paths --------------------------------------------------------------------------------------

// Sets the probabilities of the paths of a draft; by rank where FREE has none.
static void weigh(const pl_choose *c, pl_choose_session *s) {
    const pl_tree *t = &s->free;
    s->own[0] = s->f[0] = s->g[0] = 1;
    s->more = 0;
    for (int i = 1; i < t->n; i++) {
        int p = t->parent[i], r = t->rank[i] < PL_SHAPE_RANKS ? t->rank[i] : PL_SHAPE_RANKS - 1;
        s->own[i] = t->score[i] < 0 ? exp((double)t->score[i]) : s->own[p] * pl_autotuner_guess[r];
        s->f[i] = fmin(s->f[p], pl_calibration_expected(&c->alone, t->depth[i], s->own[i]));
        s->g[i] = fmin(s->g[p], pl_calibration_expected(&c->beside, t->depth[i], s->own[i]));
        s->more += c->apart * s->g[i];
    }
}

// Counts every path of FREE's that the emitted tokens follow or leave.
static void learn_free(pl_choose *c, const pl_choose_session *s, const pl_tree *t, const pl_verdict *v) {
    int right[NODES] = {0};    // emitted tokens along the path to a node, -1: they left it
    int of_model[NODES] = {0}; // MODEL's node with the same path, -1: none
    for (int i = 1; i < s->free.n; i++) {
        int p = s->free.parent[i], at = right[p], child = -1;
        if (of_model[p] >= 0) child = pl_tree_child(t, of_model[p], s->free.token[i]);
        of_model[i] = child < s->of_model ? child : -1;
        right[i] = at;
        if (s->of_model) c->apart += ((of_model[i] < 0) - c->apart) / APART;
        if (at > v->n) continue; // no token was emitted there
        bool is = at >= 0 && s->free.token[i] == (at < v->n ? t->token[v->path[at + 1]] : v->bonus);
        right[i] = is ? at + 1 : -1;
        pl_calibration_observe(&c->alone, s->free.depth[i], s->own[i], is);
        if (s->of_model && of_model[i] < 0) pl_calibration_observe(&c->beside, s->free.depth[i], s->own[i], is);
    }
}

void pl_choose_drop(pl_choose *c, int slot, pl_tree *t, const bool *keep) {
    int to[PL_TREE_GROWN], n = 0, of_model = c->session[slot].of_model, kept = 0;
    for (int i = 0; i < t->n; i++) {
        to[i] = i == 0 || keep[i] ? n++ : -1;
        if (i < of_model) kept = n;
    }
    pl_tree_prune(t, keep);
    c->session[slot].of_model = kept;
    for (int e = 0; e < t->notes.n; e++)
        t->notes.node[e] = to[t->notes.node[e]];
}

void pl_choose_verdict(pl_choose *c, int slot, const pl_tree *t, const pl_verdict *v) {
    pl_choose_session *s = &c->session[slot];
    if (s->drafted) learn_free(c, s, t, v);
    pl_autotuner_accepted(&c->tuner, t, v);
    s->drafted = false;
    s->of_model = 0;
}

// ---- the plan of a cycle --------------------------------------------------------------------------------------------

static pl_choose_session *session_of(const pl_choose *c, const pl_draft_batch *b, int item) {
    return &c->session[b->item[item].slot];
}

// Returns true if the tree's children are drawn.
static bool is_drawn(const pl_draft_item *it) {
    return it->proposing && it->proposing->kind != PL_PROPOSE_TOP;
}

static double rows_cost(const pl_choose *c, int rows) {
    return c->at_rows[rows < c->most_rows ? rows : c->most_rows];
}

static int likelier(const void *a, const void *b) {
    double x = ((const pl_likely *)a)->f, y = ((const pl_likely *)b)->f;
    return (x < y) - (x > y);
}

// Chooses the likeliest nodes of all of FREE's drafts, as many as pay. Worth does not rise along a path, so that they
// are trees. Returns tokens per second.
static double plan_free(pl_choose *c, const pl_draft_batch *b, int running) {
    int    rows = running + c->plain, n = 0, most = 0;
    double idle = has_model(c->arm) ? c->idle_of[running] : 0, tokens = rows, best = rows / (rows_cost(c, rows) + idle);
    for (int i = 0; i < b->n; i++) {
        const pl_choose_session *s = session_of(c, b, i);
        for (int x = 1; s->drafted && x < s->free.n; x++)
            c->node[n++] = (pl_likely){.f = s->f[x], .item = i};
    }
    qsort(c->node, (size_t)n, sizeof *c->node, likelier);
    for (int k = 1; k <= n && rows + k <= c->most_rows; k++) {
        tokens += c->node[k - 1].f;
        double rate = tokens / (rows_cost(c, rows + k) + idle);
        if (rate > best) {
            best = rate;
            most = k;
        }
    }
    for (int k = 0; k < most; k++) {
        pl_choose_session *s = session_of(c, b, c->node[k].item);
        s->chosen++;
        s->worth += c->node[k].f;
    }
    return best;
}

// Chooses the sessions that MODEL drafts for: those that gain most by it, as many as pay. best: tokens per second
// without MODEL. Returns those of the choice; `best` before MODEL's first choice of a shape, when it drafts for all.
static double plan_model(pl_choose *c, const pl_draft_batch *b, int running, double best) {
    const pl_shape *shape = &c->tuner.chosen;
    int             n = 0, most = 0, width[PL_SHAPE_LEVELS] = {0}, depth[PL_SHAPE_NODES] = {0};
    bool            expanded[PL_SHAPE_NODES] = {false}, unknown = shape->n < 2;
    double          tokens = running + c->plain, rows = tokens;
    for (int i = 1; i < shape->n; i++) {
        depth[i] = depth[shape->parent[i]] + 1;
        if (!expanded[shape->parent[i]]) width[depth[i] - 1]++;
        expanded[shape->parent[i]] = true;
    }
    for (int i = 0; i < b->n; i++) {
        const pl_choose_session *s = session_of(c, b, i);
        if (!b->item[i].tree) continue;
        rows += s->chosen;
        tokens += s->worth - 1;
        if (s->attached) c->node[n++] = (pl_likely){.f = -s->worth, .item = i};
    }
    qsort(c->node, (size_t)n, sizeof *c->node, likelier);
    for (int m = 1; m <= n && !unknown; m++) {
        const pl_choose_session *s = session_of(c, b, c->node[m - 1].item);
        rows += shape->rows - 1 - s->chosen;
        tokens += shape->emitted + (is_drawn(&b->item[c->node[m - 1].item]) ? 0 : s->more) - s->worth;
        double seconds = rows_cost(c, (int)(rows + 0.5)) + c->first_of[m];
        for (int l = 1; l < PL_SHAPE_LEVELS && width[l]; l++)
            seconds += (1 - c->tuner.costs.ended[l]) * c->level_of[m * width[l]];
        if (tokens > best * seconds) {
            best = tokens / seconds;
            most = m;
        }
    }
    for (int m = 0; m < (unknown ? n : most); m++)
        session_of(c, b, c->node[m].item)->takes_model = true;
    return best;
}

static void plan(pl_choose *c, const pl_draft_batch *b) {
    int running = 0;
    for (int i = 0; i < b->n; i++) {
        pl_choose_session *s = session_of(c, b, i);
        running += b->item[i].tree != NULL;
        s->chosen = 0;
        s->worth = 1;
        s->takes_model = b->item[i].tree && c->arm == PL_ARM_MODEL;
    }
    if (!running || !has_free(c->arm)) return;
    c->rate = plan_free(c, b, running);
    if (c->arm == PL_ARM_BOTH) c->rate = plan_model(c, b, running, c->rate);
}

// ---- drafting -------------------------------------------------------------------------------------------------------

static void draft_free(pl_choose *c, pl_ctx *ctx, const pl_draft_batch *b) {
    pl_draft_batch of = *b;
    of.item = c->item;
    of.features = (pl_tensor){0};
    for (int i = 0; i < b->n; i++) {
        pl_choose_session *s = session_of(c, b, i);
        pl_draft_item     *it = &c->item[i];
        *it = b->item[i];
        it->proposing = NULL;
        if (it->depth > c->free->policy.depth) it->depth = c->free->policy.depth;
        s->drafted = it->tree;
        if (!s->drafted) continue;
        pl_tree_root(&s->free, it->tree->token[0]);
        it->tree = &s->free;
    }
    c->free->kind->propose(c->free, ctx, &of);
    for (int i = 0; i < b->n; i++)
        if (session_of(c, b, i)->drafted) weigh(c, session_of(c, b, i));
}

// Calls MODEL with the attached sessions' rows.
static void draft_model(pl_choose *c, pl_ctx *ctx, const pl_draft_batch *b) {
    pl_draft_batch of = *b;
    double         at = pl_now();
    of.item = c->item;
    of.n = 0;
    for (int i = 0; i < b->n; i++) {
        const pl_choose_session *s = session_of(c, b, i);
        if (!s->attached) continue;
        pl_draft_item *it = &c->item[of.n++];
        *it = b->item[i];
        if (it->depth > c->model->policy.depth) it->depth = c->model->policy.depth;
        if (!s->takes_model || it->depth <= 0) it->tree = NULL;
    }
    if (of.n == 0) return;
    c->model->parts = (pl_draft_parts){0};
    c->model->kind->propose(c->model, ctx, &of);
    c->parts = c->model->parts;
    if (ctx->err.status != PL_OK) return;
    for (int i = 0; i < of.n; i++) {
        pl_tree *t = c->item[i].tree;
        if (!t) continue;
        pl_tree_finish(&c->model->policy, t);
        pl_autotuner_drafted(&c->cycle, t);
        c->session[c->item[i].slot].of_model = t->n;
    }
    if (c->cycle.levels > 0) return;
    pl_ctx_wait(ctx); // a device has only queued the rows
    c->cycle.taken = of.n;
    c->taking_in = pl_now() - at;
}

// Takes the likeliest nodes of FREE's draft, s->chosen of them.
static void take_free(const pl_choose_session *s, pl_tree *t) {
    int to[NODES] = {0};
    for (int i = 1; i < s->free.n; i++)
        to[i] = -1;
    for (int left = s->chosen; left > 0; left--) {
        int best = -1;
        for (int i = 1; i < s->free.n; i++)
            if (to[i] < 0 && to[s->free.parent[i]] >= 0 && (best < 0 || s->f[i] > s->f[best])) best = i;
        if (best < 0) return;
        to[best] = pl_tree_add(t, to[s->free.parent[best]], s->free.token[best], s->free.score[best]);
    }
}

// Joins FREE's paths that leave MODEL's tree and pay beside it. rows: of the next forward.
static void join_free(const pl_choose *c, const pl_choose_session *s, pl_tree *t, int rows) {
    int    to[NODES] = {0};
    double row = (rows_cost(c, rows + SLOPE) - rows_cost(c, rows)) / SLOPE;
    for (int i = 1; i < s->free.n; i++) {
        int p = s->free.parent[i];
        to[i] = to[p] < 0 ? -1 : pl_tree_child(t, to[p], s->free.token[i]);
        if (to[i] >= 0 || to[p] < 0 || t->n >= c->most_nodes || !(s->g[i] > c->rate * row)) continue;
        to[i] = pl_tree_add(t, to[p], s->free.token[i], s->free.score[i]);
    }
}

static void add_free(const pl_choose *c, const pl_draft_batch *b) {
    int rows = c->plain;
    for (int i = 0; i < b->n; i++) {
        const pl_choose_session *s = session_of(c, b, i);
        if (b->item[i].tree) rows += s->of_model ? s->of_model : 1 + s->chosen;
    }
    for (int i = 0; i < b->n; i++) {
        const pl_draft_item     *it = &b->item[i];
        const pl_choose_session *s = session_of(c, b, i);
        if (!it->tree || !s->drafted) continue;
        if (!s->of_model)
            take_free(s, it->tree);
        else if (!is_drawn(it))
            join_free(c, s, it->tree, rows);
    }
}

void pl_choose_draft(pl_choose *c, pl_ctx *ctx, pl_draft_batch *b, int plain) {
    c->plain = plain;
    c->cycle = (pl_autotuner_cycle){0};
    c->parts = (pl_draft_parts){0};
    c->taking_in = 0;
    if (ctx->measuring) {
        if (c->free) c->free->kind->propose(c->free, ctx, b);
        if (c->model) c->model->kind->propose(c->model, ctx, b);
        return;
    }
    if (b->n == 0) return;
    double at = pl_now();
    if (has_free(c->arm)) draft_free(c, ctx, b);
    if (ctx->err.status != PL_OK) return;
    plan(c, b);
    if (has_free(c->arm)) c->cycle.free = pl_now() - at;
    if (c->model) draft_model(c, ctx, b);
    if (ctx->err.status == PL_OK && has_free(c->arm)) add_free(c, b);
}

// ---- sessions and life ----------------------------------------------------------------------------------------------

void pl_choose_start(pl_choose *c, int slot, bool plain) {
    pl_choose_session *s = &c->session[slot];
    s->drafted = false;
    s->of_model = 0;
    s->running = !plain; // so that plain ones count neither as attached nor as dropped
    s->attached = !plain && c->model && (!c->free || has_model(c->arm) || needs_model(c));
}

void pl_choose_end(pl_choose *c, int slot) {
    c->session[slot].running = c->session[slot].attached = false;
}

bool pl_choose_attached(const pl_choose *c, int slot) {
    return c->session[slot].attached;
}

pl_status pl_choose_init(pl_choose *c, pl_drafter *d, int sessions, pl_err *err) {
    size_t s = (size_t)sessions;
    *c = (pl_choose){.sessions = sessions, .most_nodes = d ? d->policy.max_nodes : 1};
    c->free = d ? d->free : NULL;
    c->model = c->free ? d->model : d;
    c->most_rows = sessions * c->most_nodes;
    pl_autotuner_init(&c->tuner, c->model ? &c->model->policy : NULL);
    c->arms = (unsigned)(c->free || !c->model || c->tuner.adapt) << PL_ARM_NONE |
              (unsigned)(c->free != NULL) << PL_ARM_FREE | (unsigned)(c->model != NULL) << PL_ARM_MODEL |
              (unsigned)(c->free && c->model) << PL_ARM_BOTH;
    for (pl_arm a = 0; a < PL_ARMS; a++)
        if (c->arms >> a & 1) c->arm = a;
    // The ratio of plain decoding is 1 until it is measured: short answers need not decode plainly to learn that.
    c->of[PL_ARM_NONE] = (pl_choose_arm){.blocks = FIRST, .x = {1, 1}};
    // Pages of trees that FREE never grows are never touched.
    c->session = pl_calloc(s, sizeof *c->session);
    c->item = pl_calloc(s, sizeof *c->item);
    c->node = pl_calloc(s * NODES, sizeof *c->node);
    c->at_rows = pl_calloc((size_t)c->most_rows + 1, sizeof *c->at_rows);
    c->first_of = pl_calloc(s + 1, sizeof *c->first_of);
    c->idle_of = pl_calloc(s + 1, sizeof *c->idle_of);
    c->level_of = pl_calloc(s * PL_SHAPE_WIDTH + 1, sizeof *c->level_of);
    if (c->session && c->item && c->node && c->at_rows && c->first_of && c->idle_of && c->level_of) return PL_OK;
    return pl_fail(err, PL_E_MEMORY, "drafts of %d sessions: out of memory", sessions);
}

void pl_choose_fini(pl_choose *c) {
    void *owned[] = {c->session, c->item, c->node, c->at_rows, c->first_of, c->idle_of, c->level_of};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
    *c = (pl_choose){0};
}

bool pl_choose_tree(const pl_choose *c, char *text, size_t size) {
    pl_tree_policy p;
    bool           none = c->best == PL_ARM_NONE && c->of[PL_ARM_MODEL].blocks >= FIRST;
    if (c->free || !c->tuner.adapt || (!none && c->tuner.chosen.n == 0)) return false;
    pl_tree_shape_set(&p, none ? 1 : c->tuner.chosen.n, c->tuner.chosen.parent);
    pl_tree_shape_text(&p, text, size);
    return true;
}
