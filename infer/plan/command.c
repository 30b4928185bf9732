// `paceline plan`: parses the options, opens the heads, finds the best trees and prints the plan.
#include "infer/bench/cycle.h"
#include "infer/bench/shapes.h"
#include "infer/cli/machine.h"
#include "infer/cli/show.h"
#include "infer/drafter/drafter.h"
#include "infer/model/kv.h"
#include "infer/model/target.h"
#include "infer/plan/plan.h"
#include "kernels/base/check.h"
#include "kernels/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE_POSITIONS 32768 // positions of a model by shape
#define HEADS 48
#define HEAD_TREES 2 // trees planned for each head

// The source of a head's acceptance.
typedef enum acceptance_source { ASSUMED, GIVEN, TRAINING, EVALUATION } acceptance_source;
static const char *const sources[] = {"assumed", "given", "training", "evaluation"};

typedef struct plan_head {
    char                  name[64];
    pl_backbone          *backbone;
    bool                  full; // over the whole vocabulary; the reference for other heads
    acceptance_source     from;
    bool                  as_full; // acceptance is the full head's, an upper bound for smaller heads
    pl_plan_acceptance    accept;
    const pl_plan_method *measured; // NULL: none
} plan_head;

typedef struct plan_entry {
    int              head;
    char             tree[PL_TREE_TEXT];
    pl_plan_cycle    cycle, full; // full: the same tree with the full head
    pl_plan_slimspec slim;
} plan_entry;

typedef struct plan {
    const pl_env      *env;
    const pl_cli_args *args;
    const char        *model; // --target or --shape
    pl_target          target;
    int                batch, context;
    double             temperature;
    pl_plan_methods    measured;
    const char        *given[HEADS]; // --acceptance
    int                n_given;
    pl_plan_acceptance assumed; // of --acceptance without a name, or the default
    bool               assumed_given;
    plan_head          head[HEADS];
    pl_plan_subject    subject[HEADS];
    int                n, reference; // reference: the head of rho and lambda
    int32_t           *ids;          // 0, 1, 2, ...: the rows of trimmed heads
    bool               chain, tree;  // kinds to search for the best; neither: `shape`
    pl_shape           shape;        // of --tree
    int                k;            // most children of a node
    pl_plan_plain      plain;
    pl_plan_cycle      plain_cycle;
    plan_entry         entry[HEAD_TREES * HEADS];
    int                n_entries, best; // best: -1 where plain decoding is fastest
} plan;

// ---- the request ----

static pl_status read_tree(plan *p, pl_err *err) {
    const char    *text = pl_cli_text(p->args, "tree");
    pl_tree_policy policy;
    p->chain = strcmp(text, "all") == 0 || strcmp(text, "chain:auto") == 0;
    p->tree = strcmp(text, "all") == 0 || strcmp(text, "auto") == 0;
    p->k = p->tree ? PL_SHAPE_RANKS : 1;
    if (p->chain || p->tree) return PL_OK;
    PL_TRY(pl_tree_policy_parse(&policy, text, err));
    bool chain = policy.kind->fixed_shape && policy.width == 1 && policy.k == 1;
    int  n = chain ? policy.depth + 1 : policy.shape_n;
    if (policy.adapt || n < 2)
        return pl_fail(err, PL_E_USAGE,
                       "--tree %s: its shape depends on what is drafted, which is not known ahead; plan takes all, "
                       "auto, chain:auto, chain:N or static:...",
                       text);
    if (n > PL_SHAPE_NODES || policy.depth > PL_SHAPE_LEVELS || policy.k > PL_SHAPE_RANKS)
        return pl_fail(err, PL_E_USAGE, "--tree %s: plan takes at most %d nodes, %d levels and %d children", text,
                       PL_SHAPE_NODES, PL_SHAPE_LEVELS, PL_SHAPE_RANKS);
    p->k = policy.k;
    p->shape.n = n;
    for (int i = 0; i < n; i++)
        p->shape.parent[i] = chain ? i - 1 : policy.shape_parent[i];
    return PL_OK;
}

static pl_status read_rates(pl_plan_acceptance *a, const char *text, pl_err *err) {
    double rate[PL_SHAPE_LEVELS];
    int    n = 0;
    for (const char *s = text;; s++) {
        char *end;
        if (n == PL_SHAPE_LEVELS)
            return pl_fail(err, PL_E_USAGE, "--acceptance %s: more than %d depths", text, PL_SHAPE_LEVELS);
        rate[n] = strtod(s, &end);
        if (end == s || !(rate[n] >= 0 && rate[n] <= 1))
            return pl_fail(err, PL_E_USAGE, "--acceptance %s: expected [HEAD=]A1,A2,... with shares from 0 to 1", text);
        n++;
        s = end;
        if (!*s) break;
        if (*s != ',') return pl_fail(err, PL_E_USAGE, "--acceptance %s: expected a comma at \"%s\"", text, s);
    }
    pl_plan_acceptance_rates(a, rate, n);
    return PL_OK;
}

static pl_status read_given(plan *p, pl_err *err) {
    const char **list = pl_calloc((size_t)p->args->n_given + 1, sizeof *list);
    pl_status    st = list ? PL_OK : pl_fail(err, PL_E_MEMORY, "arguments: out of memory");
    int          n = 0;
    if (list) pl_cli_list(p->args, "acceptance", list, &n);
    if (st == PL_OK && n > HEADS) st = pl_fail(err, PL_E_USAGE, "--acceptance: more than %d of them", HEADS);
    for (int i = 0; i < n && st == PL_OK; i++) {
        pl_plan_acceptance a;
        const char        *equals = strrchr(list[i], '=');
        st = read_rates(equals ? &a : &p->assumed, equals ? equals + 1 : list[i], err);
        if (equals)
            p->given[p->n_given++] = list[i];
        else
            p->assumed_given = true;
    }
    if (st == PL_OK && !p->assumed_given) st = read_rates(&p->assumed, pl_cli_text(p->args, "assume"), err);
    pl_free(list);
    return st;
}

// ---- heads ----

// Returns the rates of an --acceptance NAME=RATES, NULL for another head's name.
static const char *rates_of(const char *given, const char *name) {
    size_t length = (size_t)(strrchr(given, '=') - given);
    return strlen(name) == length && strncmp(name, given, length) == 0 ? given + length + 1 : NULL;
}

// Fills a head's acceptance: given by name, evaluated, or from its training; else assumed.
static pl_status find_acceptance(plan *p, plan_head *h, const char *checkpoint, pl_err *err) {
    double rate[PL_SHAPE_LEVELS];
    int    n = 0;
    h->accept = p->assumed;
    h->from = p->assumed_given && checkpoint ? GIVEN : ASSUMED;
    for (int i = 0; i < p->n_given; i++) {
        const char *rates = rates_of(p->given[i], h->name);
        if (!rates) continue;
        h->from = GIVEN;
        return read_rates(&h->accept, rates, err);
    }
    if (!checkpoint) return PL_OK;
    if (h->measured && h->measured->ranked) {
        h->from = EVALUATION;
        pl_plan_acceptance_counts(&h->accept, &h->measured->counts);
    } else if (h->measured && h->measured->n_rates) {
        h->from = EVALUATION;
        pl_plan_acceptance_rates(&h->accept, h->measured->rate, h->measured->n_rates);
    } else {
        PL_TRY(pl_plan_metrics_read(rate, &n, checkpoint, p->temperature, err));
        if (!n) return PL_OK;
        h->from = TRAINING;
        pl_plan_acceptance_rates(&h->accept, rate, n);
    }
    return PL_OK;
}

static bool name_taken(const plan *p, const char *name) {
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->head[i].name, name) == 0) return true;
    return false;
}

// Names a drafter: by its name in the evaluation, else by its run's folder (NAME/checkpoints/best), else by its own
// folder.
static void name_drafter(const plan *p, plan_head *h, const char *dir) {
    const char *end = dir + strlen(dir), *start, *inner = strstr(dir, "/checkpoints/");
    while (end > dir + 1 && end[-1] == '/')
        end--;
    if (inner && inner > dir) end = inner;
    for (start = end; start > dir && start[-1] != '/';)
        start--;
    if (h->measured)
        snprintf(h->name, sizeof h->name, "%s", h->measured->name);
    else
        snprintf(h->name, sizeof h->name, "%.*s", (int)(end - start), start);
    size_t n = strnlen(h->name, sizeof h->name - 4);
    for (int i = 2; name_taken(p, h->name) && i < 100; i++)
        snprintf(h->name + n, sizeof h->name - n, "-%d", i);
}

static bool is_full(const pl_backbone *b, const pl_target *t) {
    PL_CHECK(b, "a head of the plan has no backbone");
    return !b->kind->draft && b->head.kind->published && b->head.vocab == t->model.vocab;
}

static pl_status add_drafter(plan *p, const char *dir, pl_err *err) {
    if (p->n == HEADS) return pl_fail(err, PL_E_USAGE, "more than %d heads", HEADS);
    if (!pl_drafter_is_folder(dir))
        return pl_fail(err, PL_E_USAGE, "--drafter %s: has no head to plan; give a checkpoint's folder", dir);
    plan_head *h = &p->head[p->n];
    *h = (plan_head){.measured = pl_plan_methods_find(&p->measured, dir)};
    name_drafter(p, h, dir);
    PL_TRY(pl_backbone_open(&h->backbone, dir, &p->target.model, p->target.dtype, err));
    p->n++;
    h->full = is_full(h->backbone, &p->target);
    return find_acceptance(p, h, dir, err);
}

static pl_status add_drafters(plan *p, pl_err *err) {
    const char **list = pl_calloc((size_t)p->args->n_given + 1, sizeof *list);
    pl_status    st = list ? PL_OK : pl_fail(err, PL_E_MEMORY, "arguments: out of memory");
    int          n = 0;
    if (list) pl_cli_list(p->args, "drafter", list, &n);
    for (int i = 0; i < n && st == PL_OK; i++)
        st = add_drafter(p, list[i], err);
    for (int i = 0; n == 0 && i < p->measured.n && st == PL_OK; i++)
        st = add_drafter(p, p->measured.m[i].checkpoint, err);
    pl_free(list);
    return st;
}

// Fills the weights with random values, on the device itself where there is one.
static pl_status draw(plan *p, pl_params *ps, uint64_t seed, pl_err *err) {
    const pl_backend *be = p->env->backend;
    pl_ctx            ctx;
    PL_TRY(pl_bench_shape_room((double)pl_params_count(ps) * (double)pl_dtype_size(p->target.dtype), be, err));
    if (!be->memory) return pl_params_draw(ps, p->target.dtype, seed, p->env->pool, err);
    PL_TRY(pl_ctx_init(&ctx, be, p->env->pool));
    pl_status st = pl_params_tile(ps, p->target.dtype, seed, &ctx, err);
    pl_ctx_fini(&ctx);
    return st;
}

// Adds an untrained head: random weights, on a backbone of the shape of the first drafter that drafts token after
// token; of EAGLE-3's shape without one.
static pl_status add_random(plan *p, const pl_head_example *e, pl_err *err) {
    const pl_backbone  *like = NULL;
    pl_backbone_options o = {.head = e->spec, .own_head = true};
    for (int i = p->n - 1; i >= 0; i--)
        if (!p->head[i].backbone->kind->draft) like = p->head[i].backbone;
    if (name_taken(p, e->name)) return PL_OK;
    const pl_head_kind *kind = pl_head_find(e->spec.kind, err);
    if (!kind) return PL_E_USAGE;
    // Heads that read the target's embeddings or rows need a drafter of the target's width.
    if (like && like->d_target != like->shape.d && (kind->routed || kind->shortlisted)) return PL_OK;
    if (p->n == HEADS) return pl_fail(err, PL_E_USAGE, "more than %d heads", HEADS);
    if (e->rows < p->target.model.vocab) {
        o.d2t = p->ids;
        o.draft_vocab = e->rows;
    }
    if (like) {
        pl_backbone_like(&o, &like->config);
    } else {
        o.n_taps = pl_llama_default_taps(p->target.model.n_layers, o.tap);
    }
    plan_head *h = &p->head[p->n];
    *h = (plan_head){0};
    snprintf(h->name, sizeof h->name, "%s", e->name);
    PL_TRY(pl_backbone_create(&h->backbone, like ? like->kind : pl_backbone_at(0), &p->target.model, &o,
                              p->env->backend, err));
    if (kind->shortlisted && kind->shortlisted(&h->backbone->head) < PL_SHAPE_RANKS) {
        pl_backbone_destroy(h->backbone);
        return PL_OK;
    }
    p->n++;
    if (kind->table) PL_TRY(kind->table->draw(&h->backbone->head, e->uneven, err));
    PL_TRY(draw(p, &h->backbone->params, (uint64_t)p->n, err));
    h->full = is_full(h->backbone, &p->target);
    PL_TRY(find_acceptance(p, h, NULL, err));
    h->as_full = h->from == ASSUMED && !h->full;
    return PL_OK;
}

// Adds the examples of every kind of head that can draft PL_SHAPE_RANKS rows. A routed head's clusters have equal
// sizes: those of a trained head are known only after training.
static pl_status add_heads(plan *p, pl_err *err) {
    pl_head_shape   shape = {.vocab = p->target.model.vocab, .d = p->target.model.shape.d};
    pl_head_example e;
    int             at = 0;
    p->ids = pl_malloc((size_t)shape.vocab * sizeof *p->ids);
    if (!p->ids) return pl_fail(err, PL_E_MEMORY, "plan: out of memory");
    for (int64_t i = 0; i < shape.vocab; i++)
        p->ids[i] = (int32_t)i;
    p->reference = -1;
    for (int i = p->n - 1; i >= 0; i--)
        if (p->head[i].full) p->reference = i;
    bool first = pl_head_next_example(&e, &at, &shape, PL_EXAMPLE_PLAN); // the full head, the reference for the others
    PL_CHECK(first && e.rows == shape.vocab, "the first example is the full head");
    if (p->reference < 0) {
        PL_TRY(add_random(p, &e, err));
        p->reference = p->n - 1;
    }
    if (pl_cli_choice(p->args, "heads") == 1) return PL_OK;
    while (pl_head_next_example(&e, &at, &shape, PL_EXAMPLE_PLAN)) {
        if (e.rows >= PL_SHAPE_RANKS) PL_TRY(add_random(p, &e, err));
    }
    return PL_OK;
}

static pl_status check_names(const plan *p, pl_err *err) {
    for (int i = 0; i < p->n_given; i++) {
        bool found = false;
        for (int k = 0; k < p->n; k++)
            found |= rates_of(p->given[i], p->head[k].name) != NULL;
        if (!found) return pl_fail(err, PL_E_USAGE, "--acceptance %s: no head of that name is planned", p->given[i]);
    }
    return PL_OK;
}

// ---- planning ----

static void add_entry(plan *p, int head, const int32_t *parent, int n) {
    plan_entry    *e = &p->entry[p->n_entries++];
    pl_tree_policy shape = {0};
    *e = (plan_entry){.head = head};
    pl_tree_shape_set(&shape, n, parent);
    pl_tree_shape_text(&shape, e->tree, sizeof e->tree);
    pl_plan_predict(&p->subject[head].costs, &p->head[head].accept, parent, n, &e->cycle);
    pl_plan_predict(&p->subject[p->reference].costs, &p->head[p->reference].accept, parent, n, &e->full);
    e->slim = pl_plan_compare(&e->full, &e->cycle);
}

// Drops the best tree where it equals the best chain.
static void drop_twin(plan *p) {
    const plan_entry *e = &p->entry[p->n_entries - 1];
    if (p->n_entries > 1 && e[-1].head == e->head && strcmp(e[-1].tree, e->tree) == 0) p->n_entries--;
}

static void choose(plan *p) {
    pl_plan_acceptance none = {0};
    int32_t            root = -1;
    pl_plan_predict(&p->plain.costs, &none, &root, 1, &p->plain_cycle);
    for (int i = 0; i < p->n; i++) {
        pl_shape best;
        if (p->shape.n) add_entry(p, i, p->shape.parent, p->shape.n);
        for (int chain = 1; chain >= 0; chain--) {
            if (!(chain ? p->chain : p->tree) || (!chain && p->chain && p->head[i].accept.ranks == 1)) continue;
            pl_plan_best(&p->subject[i].costs, &p->head[i].accept, PL_PLAN_NODES, chain, &best);
            add_entry(p, i, best.parent, best.n);
            drop_twin(p);
        }
    }
    // Never recommend a head whose acceptance was assumed rather than measured.
    p->best = -1;
    for (int i = 0; i < p->n_entries; i++) {
        double fastest = p->best < 0 ? p->plain_cycle.speed : p->entry[p->best].cycle.speed;
        if (!p->head[p->entry[i].head].as_full && p->entry[i].cycle.speed > fastest) p->best = i;
    }
}

// ---- output ----

// Rounds to four significant digits, beyond the precision of a timing.
static double rounded(double v) {
    if (!(fabs(v) > 0) || !isfinite(v)) return v;
    double unit = pow(10, floor(log10(fabs(v))) - 3);
    return round(v / unit) * unit;
}

static void put_figure(pl_json_out *o, const plan *p, const char *key, double v) {
    pl_put_num(o, key, p->env->json ? v : rounded(v));
}

// Writes KEY_seconds in JSON, KEY_us in a table.
static void put_seconds(pl_json_out *o, const plan *p, const char *key, double seconds) {
    char name[64];
    snprintf(name, sizeof name, p->env->json ? "%s_seconds" : "%s_us", key);
    put_figure(o, p, name, p->env->json ? seconds : seconds * 1e6);
}

// Writes the parts of a cycle and their sum; whole: the sum's key.
static void put_cycle(pl_json_out *o, const plan *p, const pl_plan_cycle *c, const char *whole) {
    put_seconds(o, p, "target", c->target);
    put_seconds(o, p, "verify", c->verify);
    put_seconds(o, p, "take_in", c->take_in);
    put_seconds(o, p, "layer", c->layer);
    put_seconds(o, p, "head", c->head);
    put_seconds(o, p, "other", c->other);
    put_seconds(o, p, whole, c->seconds);
    put_figure(o, p, "tokens_per_second", c->speed);
    put_figure(o, p, "speedup", c->speed / p->plain_cycle.speed);
}

static void put_heads(pl_json_out *o, const plan *p) {
    int b = p->batch;
    pl_put_array(o, "heads");
    for (int i = 0; i < p->n; i++) {
        const plan_head     *h = &p->head[i];
        const pl_plan_costs *c = &p->subject[i].costs;
        int                  drafts = c->drafts > 0 ? c->drafts : 1;
        double               layer = pl_plan_seconds(c->drafts > 0 ? &c->take_in : &c->layer, b);
        double               first = pl_plan_seconds(&c->first, b * drafts);
        pl_json_out_object(o);
        pl_put_str(o, "name", h->name);
        pl_put_str(o, "kind", h->backbone->head.kind->name);
        pl_put_int(o, "vocab", h->backbone->head.vocab);
        pl_put_int(o, "rank", h->backbone->head.rank);
        pl_put_int(o, "drafts", drafts);
        put_figure(o, p, "head_bytes", pl_head_step_bytes(&h->backbone->head, 0));
        put_seconds(o, p, "core", layer);
        put_seconds(o, p, "router", c->router);
        put_seconds(o, p, "head_first", first);
        put_seconds(o, p, "head", pl_plan_seconds(&c->head, b) - c->router);
        put_seconds(o, p, "draft_step", c->drafts > 0 ? (layer + first) / drafts : pl_plan_step(c, b));
        put_seconds(o, p, "take_in", pl_plan_seconds(&c->take_in, b));
        pl_put_str(o, "acceptance_from", h->as_full ? "assumed as full" : sources[h->from]);
        if (p->env->json) {
            pl_put_nums(o, "acceptance", &h->accept.accept[0][0], h->accept.ranks);
            pl_put_array(o, "acceptance_by_depth");
            for (int l = 0; l < PL_SHAPE_LEVELS; l++)
                pl_json_out_num(o, h->accept.accept[l][0]);
            pl_json_out_close(o, ']');
        }
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

// Writes parts and figures: two tables as text, one list of objects in JSON.
static void put_plans(pl_json_out *o, const plan *p) {
    for (int table = 0; table < (p->env->json ? 1 : 2); table++) {
        pl_put_array(o, table ? "cycles" : "plans");
        for (int i = 0; i < p->n_entries; i++) {
            const plan_entry *e = &p->entry[i];
            const plan_head  *h = &p->head[e->head];
            double            step = p->subject[e->head].step;
            pl_json_out_object(o);
            pl_put_str(o, "name", h->name);
            pl_put_str(o, "tree", e->tree);
            if (table == 0) {
                put_figure(o, p, "tau", e->cycle.emitted);
                put_figure(o, p, "measured_tau", h->measured ? h->measured->tau : NAN);
                put_figure(o, p, "rho", e->slim.rho);
                put_figure(o, p, "lambda", e->slim.lambda);
                put_figure(o, p, "kappa", e->slim.kappa);
                put_figure(o, p, "least_rho", e->slim.threshold);
                put_figure(o, p, "slimspec_speedup", e->slim.speedup);
                put_figure(o, p, "speedup_over_full", e->cycle.speed / e->full.speed);
                pl_put_int(o, "nodes", e->cycle.nodes);
                pl_put_int(o, "depth", e->cycle.depth);
                put_figure(o, p, "measured_speedup", h->measured ? h->measured->speed / h->measured->plain_speed : NAN);
                put_seconds(o, p, "measured_cycle", step > 0 ? step : NAN);
            }
            if (table == 1 || p->env->json) put_cycle(o, p, &e->cycle, "cycle");
            pl_json_out_close(o, '}');
        }
        pl_json_out_close(o, ']');
    }
}

// Writes the chains of each length: of all heads in JSON, of the chosen head (else the full one) as text.
static void put_chains(pl_json_out *o, const plan *p) {
    int shown = p->best < 0 ? p->reference : p->entry[p->best].head;
    pl_put_array(o, "chains");
    for (int i = 0; i < p->n; i++) {
        if (!p->env->json && i != shown) continue;
        int drafts = p->subject[i].costs.drafts, most = drafts > 0 && drafts < PL_PLAN_CHAIN ? drafts : PL_PLAN_CHAIN;
        for (int gamma = 1; gamma <= most; gamma++) {
            int32_t       parent[PL_PLAN_CHAIN + 1];
            pl_plan_cycle c;
            for (int k = 0; k <= gamma; k++)
                parent[k] = k - 1;
            pl_plan_predict(&p->subject[i].costs, &p->head[i].accept, parent, gamma + 1, &c);
            double alpha = pl_plan_alpha(&p->head[i].accept, gamma);
            pl_json_out_object(o);
            pl_put_str(o, "name", p->head[i].name);
            pl_put_int(o, "gamma", gamma);
            put_figure(o, p, "alpha", alpha);
            put_figure(o, p, "omega", pl_plan_omega(alpha, gamma));
            put_figure(o, p, "tau", c.emitted);
            put_seconds(o, p, "cycle", c.seconds);
            put_figure(o, p, "tokens_per_second", c.speed);
            put_figure(o, p, "speedup", c.speed / p->plain_cycle.speed);
            pl_json_out_close(o, '}');
        }
    }
    pl_json_out_close(o, ']');
}

static void put_all(pl_json_out *o, const plan *p) {
    pl_put_str(o, "target", p->model);
    pl_put_int(o, "batch", p->batch);
    pl_put_int(o, "context", p->context);
    pl_put_str(o, "kv", pl_weights_name(p->target.model.shape.kv));
    put_figure(o, p, "temperature", p->temperature);
    pl_put_int(o, "rounds", p->plain.rounds);
    if (p->env->json) {
        pl_machine m;
        pl_machine_describe(&m, p->env);
        pl_json_out_key(o, "machine");
        pl_machine_write(o, &m);
    }
    pl_put_object(o, "plain");
    put_cycle(o, p, &p->plain_cycle, "step");
    pl_json_out_close(o, '}');
    put_heads(o, p);
    put_plans(o, p);
    put_chains(o, p);
}

static pl_status print_plan(const plan *p, pl_err *err) {
    char last[PL_TREE_TEXT + 160] = "plain decoding: no drafter of known acceptance is expected to be faster";
    const plan_entry *e = p->best < 0 ? NULL : &p->entry[p->best];
    const plan_head  *h = e ? &p->head[e->head] : NULL;
    pl_json_out       local, *o = pl_show_begin(p->env, &local);
    if (e)
        snprintf(last, sizeof last, "%s, --tree %s: %.2f times plain decoding (acceptance: %s)", h->name, e->tree,
                 e->cycle.speed / p->plain_cycle.speed, sources[h->from]);
    put_all(o, p);
    if (p->env->json) {
        pl_put_str(o, "recommended_head", h ? h->name : NULL);
        pl_put_str(o, "recommended_tree", e ? e->tree : NULL);
        pl_put_str(o, "recommended", last);
    }
    pl_status st = pl_show_end(p->env, &local, err);
    if (st == PL_OK && !p->env->json) fprintf(p->env->text, "recommended: %s\n", last);
    return st;
}

// ---- the command ----

// Opens --target, or makes a model of --shape with random weights.
static pl_status open_target(plan *p, const char *shape, int layers, pl_err *err) {
    const pl_backend *be = p->env->backend;
    pl_hf_config      c;
    pl_dtype          kv = pl_kv_chosen(pl_cli_choice(p->args, "kv"));
    if (!shape) {
        PL_TRY(pl_target_open(&p->target, p->model, NULL, NULL, PL_WEIGHTS_BF16, be, err));
        p->target.model.shape.kv = kv;
        return PL_OK;
    }
    PL_TRY(pl_bench_shape_find(&c, shape, layers, SHAPE_POSITIONS, err));
    p->target.dtype = PL_BF16;
    PL_TRY(pl_llama_init(&p->target.model, &c, be, true, err));
    p->target.model.shape.kv = kv;
    return draw(p, &p->target.model.params, 0, err);
}

static pl_status prepare(plan *p, pl_err *err) {
    const pl_cli_args *a = p->args;
    const char        *shape, *results = pl_cli_text(a, "results");
    int                layers;
    PL_TRY(pl_bench_shape_options(a, &shape, &layers, err));
    p->model = shape ? shape : pl_cli_text(a, "target");
    if (!p->model) return pl_fail(err, PL_E_USAGE, "--target: is missing; plan needs a model, or a --shape");
    p->batch = (int)pl_cli_int(a, "batch");
    p->temperature = pl_cli_real(a, "temperature");
    PL_TRY(read_tree(p, err));
    PL_TRY(read_given(p, err));
    if (results) PL_TRY(pl_plan_methods_read(&p->measured, results, p->temperature, err));
    PL_TRY(open_target(p, shape, layers, err));
    int room = p->target.model.config.max_position_embeddings - PL_CYCLE_SPARE;
    p->context = room < PL_SHAPE_CONTEXT ? room : PL_SHAPE_CONTEXT;
    if (pl_cli_has(a, "context")) p->context = (int)pl_cli_int(a, "context");
    if (p->context < PL_SHAPE_LEVELS || p->context > room)
        return pl_fail(err, PL_E_INPUT, "%s: has %d positions; plan needs a --context of %d to %d there", p->model,
                       p->target.model.config.max_position_embeddings, PL_SHAPE_LEVELS,
                       room > PL_SHAPE_LEVELS ? room : PL_SHAPE_LEVELS);
    PL_TRY(add_drafters(p, err));
    PL_TRY(add_heads(p, err));
    PL_TRY(check_names(p, err));
    // Heads of unknown acceptance are assumed to have the full head's.
    for (int i = 0; i < p->n; i++)
        if (p->head[i].as_full) p->head[i].accept = p->head[p->reference].accept;
    return PL_OK;
}

static pl_status measure(plan *p, pl_err *err) {
    pl_plan_measuring o = {.target = &p->target.model,
                           .batch = p->batch,
                           .context = p->context,
                           .temperature = p->temperature,
                           .seconds = pl_cli_real(p->args, "seconds"),
                           .tree = p->shape.n ? &p->shape : NULL};
    for (int i = 0; i < p->n; i++) {
        int64_t vocab = p->head[i].backbone->head.vocab;
        p->subject[i].backbone = p->head[i].backbone;
        p->subject[i].k = vocab < p->k ? (int)vocab : p->k;
    }
    return pl_plan_measure(p->subject, p->n, &p->plain, p->env->backend, p->env->pool, &o, err);
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    plan *p = pl_calloc(1, sizeof *p);
    if (!p) return pl_fail(err, PL_E_MEMORY, "plan: out of memory");
    p->env = env;
    p->args = a;
    pl_status st = prepare(p, err);
    if (st == PL_OK) st = measure(p, err);
    if (st == PL_OK) {
        choose(p);
        st = print_plan(p, err);
    }
    for (int i = 0; i < HEADS; i++)
        pl_backbone_destroy(p->head[i].backbone);
    pl_target_close(&p->target);
    pl_plan_methods_fini(&p->measured);
    pl_free(p->ids);
    pl_free(p);
    return st;
}

static const pl_key options[] = {
    {PL_OPTION_TEXT("target", "DIR|FILE"), .help = "the model"},
    {PL_OPTION_TEXT("shape", "NAME"),
     .help = "instead of --target, a model of this shape with random weights: " PL_SHAPE_NAMES},
    PL_OPTION_LAYERS(""),
    {PL_OPTION_TEXTS("drafter", "DIR"), .help = "a trained draft head; may be given again [those of --results]"},
    {PL_OPTION_TEXT("results", "RUN"),
     .help = "an evaluation (a run's folder or its results.json) to take acceptance from"},
    {PL_OPTION_TEXTS("acceptance", "[HEAD=]A1,A2,..."),
     .help = "acceptance by depth, of one head or of drafters that were never evaluated"},
    {PL_OPTION_TEXT("assume", "A1,A2,..."), .deflt = "0.7",
     .help = "acceptance of the full head where nothing is known"},
    {PL_OPTION_CHOICE("heads", "all", "none"), .deflt = "all",
     .help = "all: beside the drafters, heads with random weights are planned too: trimmed and low-rank ones by size, "
             "specvocab, dynaspec"},
    PL_OPTION_TEMPERATURE,
    {PL_OPTION_INT("batch", "B"), .deflt = "1", .min = 1, .max = PL_PLAN_BATCH, .help = "sessions at once"},
    {PL_OPTION_INT("context", "N"), .min = PL_SHAPE_LEVELS, .max = 1 << 24,
     .help = "tokens of each session [128, or as many as fit]"},
    PL_OPTION_KV(""),
    {PL_OPTION_TEXT("tree", "TREE"), .deflt = "all",
     .help = "all (best chain, best tree), chain:auto, auto, chain:N, static:..."},
    {PL_OPTION_REAL("seconds", "S"), .deflt = "20", .min = 0, .max = 86400,
     .help = "seconds of measuring, about; at least three rounds"},
    {0}};

static bool find_model(const pl_cli_args *a, const char **model, pl_dtype *weights) {
    (void)weights;
    *model = pl_cli_text(a, "target");
    return true;
}

const pl_command pl_command_plan = {
    .name = "plan",
    .summary = "predicts which draft head, size, chain or tree is fastest on this machine or device",
    .options = options,
    .devices = true,
    .runs = find_model,
    .about =
        "Measures cycles of speculative decoding part by part (the target's forward by rows, the drafter's\n"
        "layer, draft heads by kind and size) at this temperature, batch and context, and predicts speeds from\n"
        "acceptance: that of --results, else that seen in the drafter's training, else what is given or assumed.\n"
        "Heads that were never trained are assumed to be accepted as often as the full one; least_rho says which\n"
        "share of its acceptance length they must keep to be faster. A draft step takes core + router + head, where\n"
        "a device that runs a routed head's router beside the layer shares it out in proportion. Block drafters\n"
        "(drafts above 1): core is the forward of a block, head_first the head's part of a block that is drafted to\n"
        "its end, and draft_step both over its drafts. Of a --tree, measured_cycle is the median of whole cycles\n"
        "that accept half of its depth; cycle is the sum of the parts at the tree's tau.\n"
        "\n"
        "For the same tree: rho = tau / tau of the full head, tau: tokens per cycle; lambda = seconds of the\n"
        "head / of the full head; kappa = the full head's seconds / those of the rest of its cycle;\n"
        "slimspec_speedup = rho (1 + kappa) / (1 + lambda kappa), over the full head. For a chain of gamma\n"
        "tokens of which a share alpha of those verified is accepted: omega = (1 - alpha^(gamma+1)) / (1 -\n"
        "alpha) tokens. Speed-ups without \"full\" in their name are over plain decoding.",
    .example = "paceline plan --target checkpoints/tiny --results runs/quickstart",
    .run = run,
};
