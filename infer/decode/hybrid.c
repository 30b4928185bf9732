// Drafts for free where they pay, a model's otherwise, nothing where neither does; chosen for each session and cycle.
//
//   "hybrid:FREE[+MODEL]"   FREE: a drafter without a model (suffix:12,keep; lookup; recycle:8; retrieval:PATH); MODEL:
//                           any other, a checkpoint's folder among them. --tree: auto, or chain:auto for verifiers of
//                           chains.
//
// FREE drafts in every cycle. What its drafts are worth is learnt whether they were verified or not, since what the
// target says next judges them all: the share of drafted paths that came true, by depth and by the drafter's own
// probability of the path (pl_tree.score; by rank where it has none). A path of own probability x at depth l counts as
// f(x) = that share. MODEL is drafted by the shape that its autotuner chooses (infer/decode/autotuner.h), whose
// calibration and probes are followed as they come.
//
// One cycle of S sessions in a forward of R rows takes V(R) seconds of the target and what MODEL takes, both measured.
// Chosen is the largest goodput (SmartSpec, Liu et al. 2024, arXiv 2406.14066): expected tokens of all sessions over
// seconds,
//   without MODEL   (S + sum f) / V(S + k) for the k likeliest nodes of all sessions' drafts together: since f does not
//                   rise along a path they are trees, each session's as long as its draft deserves at this batch;
//   with it         for the m sessions that gain most by it, (m E + rest) / (V(rows) + first(m) + levels(m)), E and the
//                   levels being those of its shape.
// A tree of MODEL's is joined by the FREE paths that begin outside of it and pay at the rate so found (RASD's union,
// arXiv 2503.03434), their worth beside MODEL's being learnt apart. Drafts that MODEL draws stand alone.
//
// MODEL is tried by one session at a time (its autotuner's calibration and trials): what its drafts are worth does not
// depend on how many draft. The session whose rows wait least does.
//
// MODEL does not see rows that it need not see yet: where the backend is the host's, rows of a session that became
// final wait, with their features, until that session is drafted for (infer/decode/waiting.h). So plain decoding, and
// what is free, are not charged with it.
//
// FREE is not quite free: looking takes host time, which counts where the target is small. It is timed, and where what
// looking finds is worth less than looking in every cycle takes, FREE looks only as often as takes LOOKING of all
// seconds. (Tokens that came in between are added then: a look's time is shared among the cycles since the last one. A
// FREE that learns from logits, recycle, is shown every step and so looks in all.)
//
// What a plan promises is one thing; what a cycle takes besides (features, copies, rows that waited, other row counts'
// weights in the caches), and what was measured in another hour, another. So all that is above is one of three ways to
// decode that take turns and are judged by what they took for what they gave (infer/decode/bandit.h), for each octave
// of the number of sessions by itself:
//   REST   nothing is drafted, looked for or learnt; MODEL sees nothing
//   FREE   FREE drafts, where it pays; MODEL sees nothing
//   BOTH   and MODEL, where it pays; only while somebody's rows are kept and it drafts or may be tried
// What MODEL's trials lose is bounded by its autotuner, what turns of a way that is slower lose by the bandit.
//
// Where nothing pays, nothing is planned until FREE may look, MODEL is tried again or another way has its turn. Then a
// cycle costs the features of the sessions that keep them, taken out of the target's forward and copied: while BOTH is
// not the fastest, those that begin when it is due, KEEPERS at most, while others drop theirs; MODEL is not asked for
// sessions without. (All by what is known at the usual number of sessions, not at the few that end last.) While none
// keeps them, and with a MODEL that reads the text alone, it costs nothing: the hybrid rests
// (pl_drafter.rests), and the decode loop goes plain's way.
//
// Lossless: with verifier match the text is plain sampling's. With verifiers that draw MODEL's tokens are drawn as they
// ask and FREE's nodes, which are not drawn, are matched; which of the two drafts depends on the past alone.
#include "infer/decode/autotuner.h"
#include "infer/decode/bandit.h"
#include "infer/decode/calibration.h"
#include "infer/decode/hybrid_parts.h"
#include "infer/decode/likely.h"
#include "infer/decode/waiting.h"
#include "infer/drafter/drafter.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"

#include <math.h>
#include <string.h>

#define REFRESH 8      // cycles between readings of costs
#define READING 0.0005 // of all seconds at most
#define LOOKING 0.001
#define HOPED 4  // times its cost, before anything was found
#define LOOKS 32 // that the worth of looking is averaged over
#define LATE 16  // waiting rows of a session beyond which a cycle's cost is no sample
#define KEEPERS 4
#define NODES PL_HYBRID_NODES

enum { REST, FREE, BOTH };

// A session's.
typedef struct slot {
    pl_tree    free;       // what FREE drafts
    double     own[NODES]; // of each node, its path's probability as the drafter has it
    double     f[NODES];   // and as it is calibrated
    bool       drafted;    // `free` is of the tree in hand
    int        of_model;   // nodes of that tree that are MODEL's, the root included; 0: it did not draft
    int        chosen;     // nodes of FREE's that are wanted
    double     worth;      // expected tokens with them
    bool       takes_model;
    int32_t    seen;    // positions that MODEL was shown
    bool       keeps;   // its rows wait, where MODEL reads features
    pl_waiting waiting; // rows behind `seen`, if so
} slot;

// How a call drafted.
typedef struct plan {
    pl_bandit *way; // NULL: nobody was asked
    int        arm;
    double     drafting; // seconds
} plan;

typedef struct hybrid {
    pl_drafter         base;
    pl_drafter        *free, *model; // model NULL: none
    bool               defers;
    pl_autotuner       tuner; // of model's
    pl_autotuner_cycle cycle;
    pl_calibration     alone, beside;
    slot              *slot;
    pl_draft_item     *item;     // [sessions] of a call of one of the two
    pl_likely         *node;     // [sessions * NODES]
    int               *by_worth; // [sessions]
    // Read anew every REFRESH cycles: seconds by rows, by sessions, by rows of a level.
    double            *at_rows, *first_of, *idle_of, *level_of;
    int                most_rows;
    long               paced;
    double             reading, since;   // seconds that the last reading took; of decoding since then
    double             seconds, looking; // of decoding; spent on looks that did not pay
    double             look, gain;       // running: seconds of a cycle's look, and those that it saves
    int                skipped;          // cycles since the last look
    pl_bandits         way;
    plan               next, last; // of the last call, and of the one before, whose trees were verified since
    bool               silent;     // no look and no draft in the last call
    bool               asleep;     // nothing to plan
    double             rate;       // tokens per second of the plan in hand
    size_t             width;      // bytes of a row of features that waits; 0: none do
} hybrid;

// ---- what paths are worth -------------------------------------------------------------------------------------------

// The drafter's own probabilities of its paths; of ranks where it has none.
static void weigh(const hybrid *d, slot *s) {
    const pl_tree *t = &s->free;
    s->own[0] = s->f[0] = 1;
    for (int i = 1; i < t->n; i++) {
        int p = t->parent[i], r = t->rank[i] < PL_SHAPE_RANKS ? t->rank[i] : PL_SHAPE_RANKS - 1;
        s->own[i] = t->score[i] < 0 ? exp((double)t->score[i]) : s->own[p] * pl_autotuner_guess[r];
        s->f[i] = fmin(s->f[p], pl_calibration_expected(&d->alone, t->depth[i], s->own[i]));
    }
}

// Judges FREE's draft by what was said: every path that the target's tokens pass or leave.
static void learn_free(hybrid *d, slot *s, const pl_tree *t, const pl_verdict *v) {
    int said[NODES] = {0};     // how many of the said tokens the path to a node is, -1: it left them
    int of_model[NODES] = {0}; // which of MODEL's nodes it is, -1: none
    for (int i = 1; i < s->free.n; i++) {
        int p = s->free.parent[i], at = said[p], child = -1;
        if (of_model[p] >= 0) child = pl_tree_child(t, of_model[p], s->free.token[i]);
        of_model[i] = child < s->of_model ? child : -1;
        said[i] = at;
        if (at > v->n) continue; // nothing is known behind the last
        bool right = at >= 0 && s->free.token[i] == (at < v->n ? t->token[v->path[at + 1]] : v->bonus);
        said[i] = right ? at + 1 : -1;
        pl_calibration_observe(&d->alone, s->free.depth[i], s->own[i], right);
        if (s->of_model && of_model[i] < 0) pl_calibration_observe(&d->beside, s->free.depth[i], s->own[i], right);
    }
}

static void judged(pl_drafter *base, int which, const pl_tree *t, const pl_verdict *v) {
    hybrid *d = (hybrid *)base;
    slot   *s = &d->slot[which];
    if (s->drafted) learn_free(d, s, t, v);
    if (d->model && s->of_model) pl_autotuner_accepted(&d->tuner, t, v);
    if (d->model && d->model->kind->judged) d->model->kind->judged(d->model, which, t, v);
    s->drafted = false;
    s->of_model = 0;
}

// ---- what rows cost -------------------------------------------------------------------------------------------------

// Whether FREE looks in this cycle.
static bool looks(const hybrid *d) {
    return d->gain >= d->look || d->looking <= LOOKING * d->seconds;
}

static void read_costs(hybrid *d) {
    int s = d->base.max_sessions;
    pl_autotuner_cost_read(&d->tuner.verify, 1, d->most_rows, d->at_rows);
    if (!d->model) return;
    pl_autotuner_cost_read(&d->tuner.first, 1, s, d->first_of);
    pl_autotuner_cost_read(&d->tuner.idle, 1, s, d->idle_of);
    pl_autotuner_cost_read(&d->tuner.draft, 1, s * PL_SHAPE_WIDTH, d->level_of);
}

// MODEL pays nothing, as far as is known.
static bool is_silent(const pl_autotuner *t) {
    return t->choices > 0 && t->chosen.n < 2 && !t->trials.on;
}

// Another plan would be that of the last cycle.
static bool may_sleep(const hybrid *d, int arm) {
    if (d->free->learns || (d->model && !d->defers)) return false;
    if (arm == REST) return true;
    return d->silent && !looks(d) && (arm == FREE || is_silent(&d->tuner));
}

// Seconds of host work, without what else the machine did meanwhile: no more than twice what was known.
static double usual(double seconds, double known) {
    return known > 0 ? fmin(seconds, 2 * known) : seconds;
}

// Sessions whose rows wait, or are taken in.
static int keepers(const hybrid *d) {
    int n = 0;
    for (int i = 0; i < d->base.max_sessions; i++)
        n += d->slot[i].keeps;
    return n;
}

// As many as may while BOTH is not the fastest.
static void leave_keepers(hybrid *d) {
    for (int i = 0, n = 0; i < d->base.max_sessions; i++)
        if (d->slot[i].keeps && ++n > KEEPERS) d->slot[i].keeps = false;
}

// MODEL drafts, or may be tried, and somebody can.
static bool has_both(const hybrid *d) {
    if (!d->model || (d->width && keepers(d) == 0)) return false;
    return !is_silent(&d->tuner) || pl_autotuner_may_try(&d->tuner);
}

// Trees were verified: what they took and gave counts for the way that drafted them. Then it may be another's turn.
static void take_turns(hybrid *d, const pl_draft_pace *p) {
    pl_bandit *b = pl_bandit_of(&d->way, p->sessions);
    pl_bandits_cycle(&d->way, p->sessions);
    double plain = d->at_rows[p->sessions] / p->sessions; // seconds of a token
    if (d->last.way == b && d->last.arm == b->arm)
        pl_bandit_add(b, d->last.drafting + p->verifying, p->emitted * plain);
    if (d->base.rests) d->next = (plan){.way = b, .arm = REST};
    d->last = d->next;
    d->last.drafting = p->drafting;
    if (!pl_bandit_ends(b) || (b->arm == BOTH && d->tuner.trials.on)) return;
    bool both = has_both(d);
    pl_bandit_turn(b, 1u << REST | 1u << FREE | (unsigned)both << BOTH);
    if (b == pl_bandits_usual(&d->way) && b->best != BOTH && !(both && pl_bandit_is_due(b, BOTH))) leave_keepers(d);
}

static void paced(pl_drafter *base, const pl_draft_pace *p) {
    hybrid *d = (hybrid *)base;
    double  seconds = p->verifying + p->drafting;
    d->cycle.pace = *p;
    if (d->model && d->next.arm == BOTH && !base->rests)
        pl_autotuner_step(&d->tuner, &d->model->policy, &d->cycle);
    else
        pl_autotuner_rest(&d->tuner, p);
    d->seconds += seconds;
    d->since += seconds;
    d->skipped += base->rests;
    take_turns(d, p);
    d->asleep = may_sleep(d, pl_bandit_of(&d->way, p->sessions)->arm);
    base->rests = d->asleep && d->silent && (d->width == 0 || keepers(d) == 0);
    if (d->paced++ >= REFRESH && (d->paced % REFRESH || d->reading > READING * d->since)) return;
    double at = pl_now();
    read_costs(d);
    d->reading = usual(pl_now() - at, d->reading);
    d->since = 0;
}

static double rows_cost(const hybrid *d, int rows) {
    return d->at_rows[rows < d->most_rows ? rows : d->most_rows];
}

// ---- the plan -------------------------------------------------------------------------------------------------------

// The likeliest nodes that all sessions' free drafts offer, from a heap of all: worth does not rise along a path, so a
// node is counted no later than its children but for equal ones, whose sum is the same.
static double without_model(hybrid *d, const pl_draft_batch *b, int running) {
    double idle = d->next.arm == BOTH ? d->idle_of[running] : 0, tokens = running,
           best = running / (rows_cost(d, running) + idle);
    int n = 0, taken = 0, best_taken = 0;
    for (int i = 0; i < b->n; i++) {
        slot *s = &d->slot[b->item[i].slot];
        s->chosen = 0;
        s->worth = 1;
        if (!b->item[i].tree || !s->drafted) continue;
        for (int x = 1; x < s->free.n; x++)
            d->node[n++] = (pl_likely){.f = s->f[x], .item = i, .node = x};
    }
    pl_likely_heap(d->node, n);
    for (; taken < n && running + taken < d->most_rows; taken++) {
        tokens += pl_likely_take(d->node, n - taken).f;
        double rate = tokens / (rows_cost(d, running + taken + 1) + idle);
        if (rate > best) {
            best = rate;
            best_taken = taken + 1;
        }
    }
    for (int i = 0; i < best_taken; i++) {
        const pl_likely *x = &d->node[n - 1 - i];
        slot            *s = &d->slot[b->item[x->item].slot];
        s->chosen++;
        s->worth += x->f;
    }
    return best;
}

// MODEL has seen its rows, or they wait.
static bool can_take(const hybrid *d, const slot *s) {
    return d->width == 0 || s->keeps;
}

// The sessions that gain most by MODEL take it, as many as pay; `best`: the rate without.
static double with_model(hybrid *d, const pl_draft_batch *b, int running, double best) {
    const pl_shape *shape = &d->tuner.chosen;
    int             n = 0, m_best = 0, width[PL_SHAPE_LEVELS] = {0}, depth[PL_SHAPE_NODES] = {0};
    bool            expanded[PL_SHAPE_NODES] = {false};
    double          tokens = running, rows = running;
    if (shape->n < 2) return best;
    for (int i = 1; i < shape->n; i++) {
        depth[i] = depth[shape->parent[i]] + 1;
        if (!expanded[shape->parent[i]]) width[depth[i] - 1]++;
        expanded[shape->parent[i]] = true;
    }
    for (int i = 0; i < b->n; i++) {
        const slot *s = &d->slot[b->item[i].slot];
        if (!b->item[i].tree || !can_take(d, s)) continue;
        int at = n++;
        for (; at > 0 && d->slot[b->item[d->by_worth[at - 1]].slot].worth > s->worth; at--)
            d->by_worth[at] = d->by_worth[at - 1];
        d->by_worth[at] = i;
        rows += s->chosen;
        tokens += s->worth - 1;
    }
    for (int m = 1; m <= n; m++) {
        const slot *s = &d->slot[b->item[d->by_worth[m - 1]].slot];
        rows += shape->rows - 1 - s->chosen;
        tokens += shape->emitted - s->worth;
        double seconds = rows_cost(d, (int)(rows + 0.5)) + d->first_of[m];
        for (int l = 1; l < PL_SHAPE_LEVELS && width[l]; l++)
            seconds += (1 - d->tuner.costs.ended[l]) * d->level_of[m * width[l]];
        if (tokens > best * seconds) {
            best = tokens / seconds;
            m_best = m;
        }
    }
    for (int i = 0; i < m_best; i++)
        d->slot[b->item[d->by_worth[i]].slot].takes_model = true;
    return best;
}

// Rows that wait for MODEL.
static int behind(const hybrid *d, const pl_draft_item *it) {
    return it->first - d->slot[it->slot].seen;
}

// The session that tries MODEL: of those that draft, the one whose rows wait least.
static void choose_trial(hybrid *d, const pl_draft_batch *b) {
    const pl_draft_item *least = NULL;
    for (int i = 0; i < b->n; i++) {
        const pl_draft_item *it = &b->item[i];
        if (!it->tree || !can_take(d, &d->slot[it->slot])) continue;
        if (!least || behind(d, it) < behind(d, least)) least = it;
    }
    if (least) d->slot[least->slot].takes_model = true;
}

// Returns the seconds that FREE's nodes save where it drafts alone.
static double choose(hybrid *d, const pl_draft_batch *b, int running) {
    bool   both = d->next.arm == BOTH;
    double tokens = 0, plain = running / (rows_cost(d, running) + (both ? d->idle_of[running] : 0));
    d->rate = without_model(d, b, running);
    // Its autotuner asks for cycles without a draft too, however well drafts pay.
    bool drafts = both && d->model->policy.shape_n > 1;
    if (drafts && pl_autotuner_tries(&d->tuner)) {
        choose_trial(d, b);
    } else if (drafts) {
        double with = with_model(d, b, running, d->rate);
        if (with > d->rate) plain = with;
        d->rate = with;
    }
    for (int i = 0; i < b->n; i++)
        if (b->item[i].tree) tokens += d->slot[b->item[i].slot].worth;
    return plain > 0 && d->rate > plain ? tokens / plain - tokens / d->rate : 0;
}

// ---- drafting -------------------------------------------------------------------------------------------------------

static void draft_free(hybrid *d, pl_ctx *ctx, const pl_draft_batch *b) {
    pl_draft_batch of = *b;
    of.item = d->item;
    of.features = (pl_tensor){0};
    for (int i = 0; i < b->n; i++) {
        slot *s = &d->slot[b->item[i].slot];
        d->item[i] = b->item[i];
        d->item[i].proposing = NULL;
        s->drafted = b->item[i].tree;
        d->item[i].tree = s->drafted ? &s->free : NULL;
        if (s->drafted) pl_tree_root(&s->free, b->item[i].tree->token[0]);
    }
    d->free->kind->propose(d->free, ctx, &of);
    for (int i = 0; i < b->n; i++)
        if (d->slot[b->item[i].slot].drafted) weigh(d, &d->slot[b->item[i].slot]);
}

static void looked(hybrid *d, double seconds, double gain) {
    double each = usual(seconds / (1 + d->skipped), d->look);
    if (d->look == 0) d->gain = HOPED * each; // some looks long
    d->look += d->look > 0 ? (each - d->look) / LOOKS : each;
    d->gain += (gain - d->gain) / LOOKS;
    if (d->gain < d->look) d->looking += each * (1 + d->skipped);
    d->skipped = 0;
}

static pl_waiting *waiting_of(void *arg, const pl_draft_item *it) {
    return &((hybrid *)arg)->slot[it->slot].waiting;
}

// Rows of sessions that do not keep them are not MODEL's to read, though it is asked for those sessions.
static bool reads(const pl_drafter *base, int which) {
    const hybrid *d = (const hybrid *)base;
    return can_take(d, &d->slot[which]);
}

static void keep_rows(hybrid *d, const pl_draft_batch *b, const pl_draft_item *it) {
    slot *s = &d->slot[it->slot];
    if (d->width && s->keeps) pl_waiting_add(&s->waiting, it, &b->features);
}

// MODEL's batch: items that draft, and all whose rows cannot wait.
static void draft_model(hybrid *d, pl_ctx *ctx, const pl_draft_batch *b) {
    pl_draft_batch of = *b;
    int            rows = 0, n = 0;
    d->cycle = (pl_autotuner_cycle){0};
    of.item = d->item;
    for (int i = 0; i < b->n; i++) {
        const pl_draft_item *it = &b->item[i];
        slot                *s = &d->slot[it->slot];
        bool                 drafts = it->tree && s->takes_model;
        s->of_model = 0;
        if (!drafts && d->defers) {
            keep_rows(d, b, it);
            continue;
        }
        d->cycle.late |= behind(d, it) > LATE;
        s->seen = it->first + it->count;
        if (d->width) pl_waiting_catch_up(&s->waiting, d->model, ctx, it, &b->features);
        rows += it->count + s->waiting.n;
        d->item[n] = *it;
        if (!drafts) d->item[n].tree = NULL;
        n++;
    }
    of.n = n;
    if (n == 0) return;
    if (d->width) pl_waiting_join(&of, ctx, rows, waiting_of, d);
    d->model->parts = (pl_draft_parts){0};
    d->model->kind->propose(d->model, ctx, &of);
    d->base.parts = d->model->parts;
    for (int i = 0; i < n; i++) {
        if (!d->item[i].tree) continue;
        pl_tree_finish(&d->model->policy, d->item[i].tree);
        pl_autotuner_drafted(&d->cycle, d->item[i].tree);
        d->slot[d->item[i].slot].of_model = d->item[i].tree->n;
    }
}

// The chosen nodes of FREE's draft: the likeliest of its own.
static void take_free(const slot *s, pl_tree *t) {
    int to[NODES] = {0}, left = s->chosen;
    for (int i = 1; i < s->free.n; i++)
        to[i] = -1;
    while (left-- > 0) {
        int best = -1;
        for (int i = 1; i < s->free.n; i++)
            if (to[i] < 0 && to[s->free.parent[i]] >= 0 && (best < 0 || s->f[i] > s->f[best])) best = i;
        if (best < 0) return;
        to[best] = pl_tree_add(t, to[s->free.parent[best]], s->free.token[best], s->free.score[best]);
    }
}

// What is not in MODEL's tree and pays beside it. Returns the seconds that it saves.
static double join(const hybrid *d, const slot *s, pl_tree *t, int rows) {
    int    to[NODES] = {0};
    double f[NODES] = {1}, row = (rows_cost(d, rows + 4) - rows_cost(d, rows)) / 4, gain = 0;
    for (int i = 1; i < s->free.n; i++) {
        int p = s->free.parent[i];
        to[i] = to[p] < 0 ? -1 : pl_tree_child(t, to[p], s->free.token[i]);
        f[i] = fmin(f[p], pl_calibration_expected(&d->beside, s->free.depth[i], s->own[i]));
        if (to[i] >= 0 || to[p] < 0 || t->n >= d->base.policy.max_nodes || !(f[i] > d->rate * row)) continue;
        to[i] = pl_tree_add(t, to[p], s->free.token[i], s->free.score[i]);
        gain += f[i] / d->rate - row;
    }
    return gain;
}

// The largest step.
static void measure(hybrid *d, pl_ctx *ctx, pl_draft_batch *b) {
    pl_draft_batch most = *b;
    d->base.rests = d->asleep = false;
    d->free->kind->propose(d->free, ctx, b);
    if (!d->model) return;
    d->defers = d->model->waits && !ctx->be->memory;
    if (!d->defers) d->width = 0;
    if (d->width) {
        int64_t rows = d->model->max_rows;
        PL_CHECK(d->width == (size_t)b->features.dim[1] * pl_dtype_size(b->features.dtype), "rows of %zu bytes wait",
                 d->width);
        most.features = pl_tensor_2d(NULL, b->features.dtype, rows, b->features.dim[1]);
        most.features.data = pl_ctx_bytes(ctx, (size_t)rows * d->width);
        pl_ctx_bytes(ctx, (size_t)rows * sizeof(int32_t));
    }
    d->model->kind->propose(d->model, ctx, &most);
}

// FREE's share of the trees. Returns the seconds that it saves.
static double add_free(hybrid *d, const pl_draft_batch *b) {
    int    rows = 0;
    double gain = 0;
    for (int i = 0; i < b->n; i++) {
        const slot *s = &d->slot[b->item[i].slot];
        if (b->item[i].tree) rows += s->of_model ? s->of_model : 1 + s->chosen;
    }
    for (int i = 0; i < b->n; i++) {
        const pl_draft_item *it = &b->item[i];
        const slot          *s = &d->slot[it->slot];
        if (!it->tree || !s->drafted) continue;
        if (!s->of_model)
            take_free(s, it->tree);
        else if (!it->proposing && d->rate > 0)
            gain += join(d, s, it->tree, rows);
    }
    return gain;
}

static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    hybrid *d = (hybrid *)base;
    if (ctx->measuring) {
        measure(d, ctx, b);
        return;
    }
    int    running = 0;
    double at, spent, gain = 0;
    for (int i = 0; i < b->n; i++) {
        running += b->item[i].tree != NULL;
        d->slot[b->item[i].slot].takes_model = false;
        d->slot[b->item[i].slot].chosen = 0;
    }
    pl_bandit *way = pl_bandit_of(&d->way, b->n);
    d->next = (plan){.way = way, .arm = way->arm};
    if (d->asleep) {
        for (int i = 0; i < b->n; i++)
            keep_rows(d, b, &b->item[i]);
        d->skipped += running > 0;
        d->silent = true;
        return;
    }
    at = pl_now();
    bool look = running && d->next.arm != REST && (looks(d) || d->free->learns);
    if (look || d->free->learns) draft_free(d, ctx, b);
    if (ctx->err.status != PL_OK) return;
    if (running && d->next.arm != REST) gain = choose(d, b, running);
    spent = pl_now() - at;
    if (d->model) draft_model(d, ctx, b);
    if (ctx->err.status != PL_OK) return;
    d->silent = !look && d->cycle.levels == 0;
    if (look)
        looked(d, spent, gain + add_free(d, b));
    else
        d->skipped += running > 0;
}

// ---- opening --------------------------------------------------------------------------------------------------------

// Whether the rows of a session that begins now wait: all do where BOTH is the fastest, or was not tried yet.
static bool keeps(hybrid *d) {
    const pl_bandit *b = pl_bandits_usual(&d->way);
    if (!d->model) return false;
    if (b->best == BOTH || b->of[BOTH].blocks == 0) return true;
    if (keepers(d) >= KEEPERS || !pl_bandit_is_due(b, BOTH)) return false;
    return !is_silent(&d->tuner) || pl_autotuner_may_try(&d->tuner);
}

static void reset(pl_drafter *base, int which) {
    hybrid *d = (hybrid *)base;
    slot   *s = &d->slot[which];
    s->drafted = s->takes_model = s->keeps = false;
    s->of_model = s->chosen = s->seen = s->waiting.n = 0;
    s->keeps = keeps(d);
    if (d->width && s->keeps) base->rests = false;
    d->free->kind->reset(d->free, which);
    if (d->model) d->model->kind->reset(d->model, which);
}

static void ended(pl_drafter *base, int which, const int32_t *answer, int n) {
    hybrid *d = (hybrid *)base;
    d->slot[which].keeps = false;
    if (d->free->kind->ended) d->free->kind->ended(d->free, which, answer, n);
    if (d->model && d->model->kind->ended) d->model->kind->ended(d->model, which, answer, n);
}

static pl_status forget(pl_drafter *base, pl_err *err) {
    const hybrid *d = (const hybrid *)base;
    PL_TRY(pl_drafter_forget(d->free, err));
    return pl_drafter_forget(d->model, err);
}

static pl_status save(pl_drafter *base, pl_err *err) {
    const hybrid *d = (const hybrid *)base;
    PL_TRY(pl_drafter_save(d->free, err));
    return pl_drafter_save(d->model, err);
}

static double step_bytes(const pl_drafter *base) {
    const hybrid *d = (const hybrid *)base;
    return d->model ? d->model->kind->step_bytes(d->model) : d->free->kind->step_bytes(d->free);
}

static void destroy(pl_drafter *base) {
    hybrid *d = (hybrid *)base;
    for (int i = 0; d->slot && i < base->max_sessions; i++)
        pl_waiting_fini(&d->slot[i].waiting);
    void *owned[] = {d->slot, d->item, d->node, d->by_worth, d->at_rows, d->first_of, d->idle_of, d->level_of};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
    pl_drafter_destroy(d->free);
    pl_drafter_destroy(d->model);
    pl_free(d);
}

static const pl_drafter_kind kind = {.name = "hybrid",
                                     .propose = propose,
                                     .reset = reset,
                                     .step_bytes = step_bytes,
                                     .destroy = destroy,
                                     .ended = ended,
                                     .judged = judged,
                                     .paced = paced,
                                     .reads = reads,
                                     .forget = forget,
                                     .save = save};

static pl_status allocate(hybrid *d, const pl_drafter_options *o, pl_err *err) {
    size_t s = (size_t)o->max_sessions;
    d->most_rows = o->max_sessions * d->base.policy.max_nodes;
    d->slot = pl_calloc(s, sizeof *d->slot);
    d->item = pl_calloc(s, sizeof *d->item);
    d->node = pl_calloc(s * NODES, sizeof *d->node);
    d->by_worth = pl_calloc(s, sizeof *d->by_worth);
    d->at_rows = pl_calloc((size_t)d->most_rows + 1, sizeof *d->at_rows);
    d->first_of = pl_calloc(s + 1, sizeof *d->first_of);
    d->idle_of = pl_calloc(s + 1, sizeof *d->idle_of);
    d->level_of = pl_calloc(s * PL_SHAPE_WIDTH + 1, sizeof *d->level_of);
    pl_bandits_init(&d->way, d->model ? 3 : 2, o->max_sessions);
    bool good = d->slot && d->item && d->node && d->by_worth && d->at_rows && d->first_of && d->idle_of && d->level_of;
    // Pages that no row waits in are never touched. On devices nothing waits (measure).
    if (d->base.n_taps && d->model->waits && !o->target->be->memory)
        d->width = (size_t)d->base.n_taps * (size_t)o->target->config.hidden_size * pl_dtype_size(o->target->be->real);
    for (size_t i = 0; good && i < s; i++)
        good = pl_waiting_init(&d->slot[i].waiting, o->slots, d->width, err) == PL_OK;
    return good ? PL_OK : pl_fail(err, PL_E_MEMORY, "drafter \"hybrid\": out of memory");
}

static pl_status open_both(hybrid *d, const char *args, const pl_drafter_options *o, pl_err *err) {
    pl_hybrid_parts    x;
    pl_drafter_options of = *o;
    PL_TRY(pl_hybrid_parts_of(&x, args, o->tree, err));
    of.tree = x.free_tree;
    PL_TRY(pl_drafter_open(&d->free, x.free, &of, err));
    if (d->free->waits || d->free->n_taps)
        return pl_fail(err, PL_E_USAGE, "drafter \"hybrid:%s\": \"%s\" is a model, which comes behind +", args, x.free);
    if (!x.model) return allocate(d, o, err);
    of.tree = x.model_tree;
    of.max_rows += o->max_sessions * PL_WAITING_MOST;
    PL_TRY(pl_drafter_open(&d->model, x.model, &of, err));
    d->base.n_taps = d->model->n_taps;
    memcpy(d->base.tap, d->model->tap, sizeof d->base.tap);
    pl_autotuner_init(&d->tuner, &d->model->policy);
    return allocate(d, o, err);
}

static pl_status open(pl_drafter **out, const char *args, const pl_tree_policy *policy, const pl_drafter_options *o,
                      pl_err *err) {
    *out = NULL;
    hybrid *d = pl_calloc(1, sizeof *d);
    if (!d) return pl_fail(err, PL_E_MEMORY, "drafter \"hybrid\": out of memory");
    d->base = (pl_drafter){.kind = &kind, .policy = *policy, .max_sessions = o->max_sessions, .max_rows = o->max_rows};
    pl_status st = open_both(d, args, o, err);
    if (st == PL_OK)
        *out = &d->base;
    else
        destroy(&d->base);
    return st;
}

const pl_drafter_source pl_drafter_hybrid = {.name = "hybrid",
                                             .syntax = "hybrid:FREE[+MODEL]",
                                             .help = "free drafts where they pay, a model's otherwise, or none",
                                             .shape = pl_hybrid_shape,
                                             .proposals_of = pl_hybrid_proposals,
                                             .open = open};
