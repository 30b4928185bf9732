#include "infer/cli_plan.h"

#include "infer/drafter.h"
#include "infer/machine.h"
#include "infer/plan_measured.h"
#include "infer/plan_rig.h"
#include "infer/put.h"
#include "infer/show.h"
#include "infer/target.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEADS 48
#define CONTEXT 128
#define TREES 2 // planned for each head

typedef enum source { SOURCE_ASSUMED, SOURCE_GIVEN, SOURCE_TRAINING, SOURCE_EVALUATION } source;
static const char *const source_names[] = {"assumed", "given", "training", "evaluation"};

typedef struct plan_head {
    char                  name[64];
    pl_backbone          *backbone;
    bool                  full; // over the whole vocabulary: what others are compared with
    source                from;
    bool                  as_full; // acceptance is the full head's: an upper bound for smaller ones
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
    pl_target          target;
    int                batch, context;
    double             temperature;
    pl_plan_methods    measured;
    const char        *given[HEADS]; // --acceptance
    int                n_given;
    pl_plan_acceptance assumed; // the one without a name, or the default
    bool               assumed_given;
    plan_head          head[HEADS];
    pl_plan_subject    subject[HEADS];
    int                n, reference; // head: what rho and lambda refer to
    int32_t           *ids;          // 0, 1, 2, ...: the rows of trimmed heads
    bool               chain, tree;  // which kinds are looked for; neither: `shape`
    pl_shape           shape;        // of --tree
    pl_plan_plain      plain;
    pl_plan_cycle      plain_cycle;
    plan_entry         entry[TREES * HEADS];
    int                n_entries, best; // best: -1 where plain decoding is
} plan;

static void name_shape(const int32_t *parent, int n, char *text, size_t size) {
    pl_tree_policy p = {0};
    pl_tree_shape_set(&p, n, parent);
    pl_tree_shape_text(&p, text, size);
}

// ---- what is asked ----

static pl_status read_tree(plan *p, pl_err *err) {
    const char    *text = pl_cli_text(p->args, "tree");
    pl_tree_policy policy;
    p->chain = strcmp(text, "all") == 0 || strcmp(text, "chain:auto") == 0;
    p->tree = strcmp(text, "all") == 0 || strcmp(text, "auto") == 0;
    if (p->chain || p->tree) return PL_OK;
    PL_TRY(pl_tree_policy_parse(&policy, text, err));
    if (policy.shape_n < 2 || policy.adapt)
        return pl_fail(err, PL_E_USAGE,
                       "--tree %s: its shape depends on what is drafted; plan takes all, auto, chain:auto, chain:N or "
                       "static:...",
                       text);
    if (policy.shape_n > PL_SHAPE_NODES || policy.depth > PL_SHAPE_LEVELS || policy.k > PL_SHAPE_RANKS)
        return pl_fail(err, PL_E_USAGE, "--tree %s: plan takes at most %d nodes, %d levels and %d children", text,
                       PL_SHAPE_NODES, PL_SHAPE_LEVELS, PL_SHAPE_RANKS);
    p->shape.n = policy.shape_n;
    memcpy(p->shape.parent, policy.shape_parent, (size_t)policy.shape_n * sizeof *p->shape.parent);
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

// The acceptance that is known of a head: given by name, evaluated, or from its training; else assumed.
static pl_status find_acceptance(plan *p, plan_head *h, const char *checkpoint, pl_err *err) {
    double rate[PL_SHAPE_LEVELS];
    int    n = 0;
    h->accept = p->assumed;
    h->from = p->assumed_given && checkpoint ? SOURCE_GIVEN : SOURCE_ASSUMED;
    for (int i = 0; i < p->n_given; i++) {
        size_t length = (size_t)(strrchr(p->given[i], '=') - p->given[i]);
        if (strlen(h->name) != length || strncmp(h->name, p->given[i], length) != 0) continue;
        h->from = SOURCE_GIVEN;
        return read_rates(&h->accept, p->given[i] + length + 1, err);
    }
    if (!checkpoint) return PL_OK;
    if (h->measured && h->measured->ranked) {
        h->from = SOURCE_EVALUATION;
        pl_plan_acceptance_counts(&h->accept, &h->measured->counts);
    } else if (h->measured && h->measured->n_rates) {
        h->from = SOURCE_EVALUATION;
        pl_plan_acceptance_rates(&h->accept, h->measured->rate, h->measured->n_rates);
    } else {
        PL_TRY(pl_plan_metrics_read(rate, &n, checkpoint, p->temperature, err));
        if (!n) return PL_OK;
        h->from = SOURCE_TRAINING;
        pl_plan_acceptance_rates(&h->accept, rate, n);
    }
    return PL_OK;
}

static bool name_taken(const plan *p, const char *name) {
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->head[i].name, name) == 0) return true;
    return false;
}

// What a drafter is called: in the evaluation, else by its run's folder (NAME/checkpoints/best), else by its own.
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
    return b->head.kind == &pl_head_full && b->head.vocab == t->model.vocab;
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

// A head that nobody has trained: random weights on a backbone of the first drafter's shape, EAGLE-3 where none is
// given.
static pl_status add_random(plan *p, const char *name, const char *kind, int64_t rank, int64_t vocab, pl_err *err) {
    const pl_backbone  *like = p->n ? p->head[0].backbone : NULL;
    pl_backbone_options o = {.head_kind = kind, .head_rank = rank, .own_head = true};
    if (name_taken(p, name)) return PL_OK;
    if (p->n == HEADS) return pl_fail(err, PL_E_USAGE, "more than %d heads", HEADS);
    if (vocab < p->target.model.vocab) {
        o.d2t = p->ids;
        o.draft_vocab = vocab;
    }
    if (like) {
        o.n_taps = like->n_taps;
        memcpy(o.tap, like->tap, sizeof o.tap);
        o.inter = (int)like->shape.inter;
    } else {
        o.n_taps = pl_llama_default_taps(p->target.model.n_layers, o.tap);
    }
    plan_head *h = &p->head[p->n];
    *h = (plan_head){0};
    snprintf(h->name, sizeof h->name, "%s", name);
    PL_TRY(
        pl_backbone_create(&h->backbone, like ? like->kind : &pl_backbone_eagle3, &p->target.model, &o, PL_F32, err));
    p->n++;
    PL_TRY(pl_params_draw(&h->backbone->params, p->target.dtype, (uint64_t)p->n, p->env->pool, err));
    h->full = is_full(h->backbone, &p->target);
    PL_TRY(find_acceptance(p, h, NULL, err));
    h->as_full = h->from == SOURCE_ASSUMED && !h->full;
    return PL_OK;
}

static pl_status add_heads(plan *p, pl_err *err) {
    int64_t v = p->target.model.vocab, d = p->target.model.shape.d;
    char    name[64];
    p->ids = pl_malloc((size_t)v * sizeof *p->ids);
    if (!p->ids) return pl_fail(err, PL_E_MEMORY, "plan: out of memory");
    for (int64_t i = 0; i < v; i++)
        p->ids[i] = (int32_t)i;
    p->reference = -1;
    for (int i = p->n - 1; i >= 0; i--)
        if (p->head[i].full) p->reference = i;
    if (p->reference < 0) {
        PL_TRY(add_random(p, "full", "full", 0, v, err));
        p->reference = p->n - 1;
    }
    if (pl_cli_choice(p->args, "heads") == 1) return PL_OK;
    for (int part = 2; part <= 16 && v / part >= PL_SHAPE_RANKS; part *= 2) {
        snprintf(name, sizeof name, "trimmed V/%d", part);
        PL_TRY(add_random(p, name, "full", 0, v / part, err));
    }
    for (int part = 2; part <= 16 && d / part >= 1; part *= 2) {
        snprintf(name, sizeof name, "lowrank d/%d", part);
        PL_TRY(add_random(p, name, "lowrank", d / part, v, err));
    }
    return PL_OK;
}

// Heads of which nothing is known are taken to be right as often as the full one.
static void assume_rest(plan *p) {
    for (int i = 0; i < p->n; i++)
        if (p->head[i].as_full) p->head[i].accept = p->head[p->reference].accept;
}

static pl_status check_names(const plan *p, pl_err *err) {
    for (int i = 0; i < p->n_given; i++) {
        size_t length = (size_t)(strrchr(p->given[i], '=') - p->given[i]);
        bool   found = false;
        for (int k = 0; k < p->n && !found; k++)
            found = strlen(p->head[k].name) == length && strncmp(p->head[k].name, p->given[i], length) == 0;
        if (!found) return pl_fail(err, PL_E_USAGE, "--acceptance %s: no head of that name is planned", p->given[i]);
    }
    return PL_OK;
}

// ---- planning ----

static void add_entry(plan *p, int head, const int32_t *parent, int n) {
    plan_entry *e = &p->entry[p->n_entries++];
    *e = (plan_entry){.head = head};
    name_shape(parent, n, e->tree, sizeof e->tree);
    pl_plan_predict(&p->subject[head].costs, &p->head[head].accept, parent, n, &e->cycle);
    pl_plan_predict(&p->subject[p->reference].costs, &p->head[p->reference].accept, parent, n, &e->full);
    e->slim = pl_plan_compare(&e->full, &e->cycle);
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
        }
    }
    // What is only assumed of a smaller head cannot recommend it.
    p->best = -1;
    for (int i = 0; i < p->n_entries; i++) {
        double fastest = p->best < 0 ? p->plain_cycle.speed : p->entry[p->best].cycle.speed;
        if (!p->head[p->entry[i].head].as_full && p->entry[i].cycle.speed > fastest) p->best = i;
    }
}

// ---- saying it ----

static void put_rows(pl_json_out *o, const char *key, const pl_pace_cost *c, const int *rows, int n) {
    pl_put_array(o, key);
    for (int i = 0; i < n; i++) {
        pl_json_out_object(o);
        pl_put_int(o, "rows", rows[i]);
        pl_put_num(o, "seconds", pl_plan_seconds(c, rows[i]));
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

static void put_plain(pl_json_out *o, const plan *p) {
    const pl_plan_cycle *c = &p->plain_cycle;
    pl_put_object(o, "plain");
    pl_put_num(o, "target_seconds", c->target);
    pl_put_num(o, "verify_seconds", c->verify);
    pl_put_num(o, "other_seconds", c->other);
    pl_put_num(o, "step_seconds", c->seconds);
    pl_put_num(o, "tokens_per_second", c->speed);
    pl_json_out_close(o, '}');
}

static void put_heads(pl_json_out *o, const plan *p) {
    int b = p->batch;
    pl_put_array(o, "heads");
    for (int i = 0; i < p->n; i++) {
        const plan_head     *h = &p->head[i];
        const pl_plan_costs *c = &p->subject[i].costs;
        double               layer = pl_plan_seconds(&c->layer, b), head = pl_plan_seconds(&c->head, b);
        double               embed = fmin(c->embed, layer);
        pl_json_out_object(o);
        pl_put_str(o, "name", h->name);
        pl_put_str(o, "kind", h->backbone->head.kind->name);
        pl_put_int(o, "vocab", h->backbone->head.vocab);
        pl_put_int(o, "rank", h->backbone->head.rank);
        pl_put_num(o, "head_bytes", pl_head_step_bytes(&h->backbone->head));
        pl_put_num(o, "embed_seconds", embed);
        pl_put_num(o, "core_seconds", layer - embed);
        pl_put_num(o, "head_first_seconds", pl_plan_seconds(&c->first, b));
        pl_put_num(o, "head_seconds", head);
        pl_put_num(o, "draft_step_seconds", layer + head);
        pl_put_num(o, "take_in_seconds", pl_plan_seconds(&c->take_in, b));
        pl_put_str(o, "acceptance_from", h->as_full ? "assumed as full" : source_names[h->from]);
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

static void put_cycle(pl_json_out *o, const plan *p, const pl_plan_cycle *c) {
    pl_put_num(o, "target_seconds", c->target);
    pl_put_num(o, "verify_seconds", c->verify);
    pl_put_num(o, "take_in_seconds", c->take_in);
    pl_put_num(o, "layer_seconds", c->layer);
    pl_put_num(o, "head_seconds", c->head);
    pl_put_num(o, "other_seconds", c->other);
    pl_put_num(o, "cycle_seconds", c->seconds);
    pl_put_num(o, "tokens_per_second", c->speed);
    pl_put_num(o, "speedup", c->speed / p->plain_cycle.speed);
}

// Parts and figures are two tables for people and one list of objects for machines.
static void put_plans(pl_json_out *o, const plan *p) {
    for (int table = 0; table < (p->env->json ? 1 : 2); table++) {
        pl_put_array(o, table ? "cycles" : "plans");
        for (int i = 0; i < p->n_entries; i++) {
            const plan_entry *e = &p->entry[i];
            const plan_head  *h = &p->head[e->head];
            pl_json_out_object(o);
            pl_put_str(o, "name", h->name);
            pl_put_str(o, "tree", e->tree);
            if (table == 0) {
                pl_put_num(o, "tau", e->cycle.emitted);
                pl_put_num(o, "measured_tau", h->measured ? h->measured->tau : NAN);
                pl_put_num(o, "rho", e->slim.rho);
                pl_put_num(o, "lambda", e->slim.lambda);
                pl_put_num(o, "kappa", e->slim.kappa);
                pl_put_num(o, "least_rho", e->slim.threshold);
                pl_put_num(o, "slimspec_speedup", e->slim.speedup);
                pl_put_num(o, "speedup_over_full", e->cycle.speed / e->full.speed);
                if (!p->env->json) {
                    pl_put_num(o, "tokens_per_second", e->cycle.speed);
                    pl_put_num(o, "speedup", e->cycle.speed / p->plain_cycle.speed);
                } else {
                    pl_put_int(o, "nodes", e->cycle.nodes);
                    pl_put_int(o, "depth", e->cycle.depth);
                }
                pl_put_num(o, "measured_speedup", h->measured ? h->measured->speed / h->measured->plain_speed : NAN);
            }
            if (table == 1 || p->env->json) put_cycle(o, p, &e->cycle);
            pl_json_out_close(o, '}');
        }
        pl_json_out_close(o, ']');
    }
}

// Every chain: of all heads for machines, of the chosen one (else the full one) for people.
static void put_chains(pl_json_out *o, const plan *p) {
    int shown = p->best < 0 ? p->reference : p->entry[p->best].head;
    pl_put_array(o, "chains");
    for (int i = 0; i < p->n; i++) {
        if (!p->env->json && i != shown) continue;
        for (int gamma = 1; gamma <= PL_PLAN_CHAIN; gamma++) {
            int32_t       parent[PL_PLAN_CHAIN + 1];
            pl_plan_cycle c;
            for (int k = 0; k <= gamma; k++)
                parent[k] = k - 1;
            pl_plan_predict(&p->subject[i].costs, &p->head[i].accept, parent, gamma + 1, &c);
            double alpha = pl_plan_alpha(&p->head[i].accept, gamma);
            pl_json_out_object(o);
            pl_put_str(o, "name", p->head[i].name);
            pl_put_int(o, "gamma", gamma);
            pl_put_num(o, "alpha", alpha);
            pl_put_num(o, "omega", pl_plan_omega(alpha, gamma));
            pl_put_num(o, "tau", c.emitted);
            pl_put_num(o, "cycle_seconds", c.seconds);
            pl_put_num(o, "tokens_per_second", c.speed);
            pl_put_num(o, "speedup", c.speed / p->plain_cycle.speed);
            pl_json_out_close(o, '}');
        }
    }
    pl_json_out_close(o, ']');
}

static pl_status put_recommended(pl_json_out *o, const plan *p, pl_err *err) {
    char *text;
    if (p->best < 0) {
        text = pl_strdup("plain decoding: no drafter of known acceptance is expected to be faster");
    } else {
        const plan_entry *e = &p->entry[p->best];
        const plan_head  *h = &p->head[e->head];
        text = pl_sprintf("%s, --tree %s: %.2f times plain decoding (acceptance %s)", h->name, e->tree,
                          e->cycle.speed / p->plain_cycle.speed, source_names[h->from]);
    }
    if (!text) return pl_fail(err, PL_E_MEMORY, "plan: out of memory");
    if (p->env->json) {
        pl_put_str(o, "recommended_head", p->best < 0 ? NULL : p->head[p->entry[p->best].head].name);
        pl_put_str(o, "recommended_tree", p->best < 0 ? NULL : p->entry[p->best].tree);
    }
    pl_put_str(o, "recommended", text);
    pl_free(text);
    return PL_OK;
}

static pl_status say(const plan *p, pl_err *err) {
    static const int rows[] = {1, 2, 3, 4, 6, 8, 12, 16};
    pl_json_out      local, *o = pl_show_begin(p->env, &local);
    int              at[8];
    for (int i = 0; i < 8; i++)
        at[i] = rows[i] * p->batch;
    pl_put_str(o, "target", pl_cli_text(p->args, "target"));
    pl_put_int(o, "batch", p->batch);
    pl_put_int(o, "context", p->context);
    pl_put_num(o, "temperature", p->temperature);
    pl_put_int(o, "rounds", p->plain.rounds);
    if (p->env->json) {
        pl_machine m;
        pl_machine_describe(&m, p->env);
        pl_json_out_key(o, "machine");
        pl_machine_write(o, &m);
    }
    put_plain(o, p);
    put_rows(o, "target_by_rows", &p->subject[p->reference].costs.target, at, 8);
    put_heads(o, p);
    put_plans(o, p);
    put_chains(o, p);
    pl_status st = put_recommended(o, p, err);
    if (st == PL_OK) return pl_show_end(p->env, &local, err);
    pl_show_abort(&local);
    return st;
}

// ---- the command ----

static pl_status prepare(plan *p, pl_err *err) {
    const pl_cli_args *a = p->args;
    const char        *target = pl_cli_text(a, "target"), *results = pl_cli_text(a, "results");
    if (!target) return pl_fail(err, PL_E_USAGE, "--target: is missing; plan needs a model");
    p->batch = (int)pl_cli_int(a, "batch");
    p->temperature = pl_cli_real(a, "temperature");
    PL_TRY(read_tree(p, err));
    PL_TRY(read_given(p, err));
    if (results) PL_TRY(pl_plan_methods_read(&p->measured, results, p->temperature, err));
    PL_TRY(pl_target_open(&p->target, target, NULL, NULL, PL_WEIGHTS_BF16, err));
    int room = p->target.model.config.max_position_embeddings - 2 * PL_SHAPE_NODES;
    p->context = pl_cli_has(a, "context") ? (int)pl_cli_int(a, "context") : room < CONTEXT ? room : CONTEXT;
    if (p->context < PL_SHAPE_LEVELS || p->context > room)
        return pl_fail(err, PL_E_INPUT, "%s: has %d positions; plan needs a --context of %d to %d there", target,
                       p->target.model.config.max_position_embeddings, PL_SHAPE_LEVELS,
                       room > PL_SHAPE_LEVELS ? room : PL_SHAPE_LEVELS);
    PL_TRY(add_drafters(p, err));
    PL_TRY(add_heads(p, err));
    PL_TRY(check_names(p, err));
    assume_rest(p);
    return PL_OK;
}

static pl_status measure(plan *p, pl_err *err) {
    pl_plan_rig_options o = {.target = &p->target.model,
                             .batch = p->batch,
                             .context = p->context,
                             .temperature = p->temperature,
                             .seconds = pl_cli_real(p->args, "seconds"),
                             .tree = p->shape.n ? &p->shape : NULL};
    bool                chains = p->chain && !p->tree;
    for (int i = 0; i < p->n; i++) {
        int64_t vocab = p->head[i].backbone->head.vocab;
        p->subject[i].backbone = p->head[i].backbone;
        p->subject[i].k = chains ? 1 : vocab < PL_SHAPE_RANKS ? (int)vocab : PL_SHAPE_RANKS;
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
        st = say(p, err);
    }
    for (int i = 0; i < HEADS; i++)
        pl_backbone_destroy(p->head[i].backbone);
    pl_target_close(&p->target);
    pl_plan_methods_fini(&p->measured);
    pl_free(p->ids);
    pl_free(p);
    return st;
}

static const pl_cli_option options[] = {
    {.name = "target", .type = PL_CLI_TEXT, .arg = "DIR|FILE", .help = "the model (required)"},
    {.name = "drafter",
     .type = PL_CLI_TEXT,
     .arg = "DIR",
     .many = true,
     .help = "a trained draft head; may be given again [those of --results]"},
    {.name = "results",
     .type = PL_CLI_TEXT,
     .arg = "RUN",
     .help = "an evaluation (a run's folder or its results.json) to take acceptance from"},
    {.name = "acceptance",
     .type = PL_CLI_TEXT,
     .arg = "[HEAD=]A1,A2,...",
     .many = true,
     .help = "acceptance by depth, of one head or of drafters that were never evaluated"},
    {.name = "assume",
     .type = PL_CLI_TEXT,
     .arg = "A1,A2,...",
     .deflt = "0.7",
     .help = "acceptance of the full head where nothing is known"},
    {.name = "heads",
     .type = PL_CLI_CHOICE,
     .arg = "all|none",
     .deflt = "all",
     .help = "heads that are planned beside the drafters, with random weights: trimmed and low-rank ones by size"},
    {.name = "temperature", .type = PL_CLI_REAL, .arg = "T", .deflt = "0", .min = 0, .max = 1000, .help = "0: greedy"},
    {.name = "batch", .type = PL_CLI_INT, .arg = "B", .deflt = "1", .min = 1, .max = 64, .help = "sessions at once"},
    {.name = "context",
     .type = PL_CLI_INT,
     .arg = "N",
     .min = PL_SHAPE_LEVELS,
     .max = 1 << 24,
     .help = "tokens of each session [128]"},
    {.name = "tree",
     .type = PL_CLI_TEXT,
     .arg = "TREE",
     .deflt = "all",
     .help = "all (best chain, best tree), chain:auto, auto, chain:N, static:..."},
    {.name = "seconds",
     .type = PL_CLI_REAL,
     .arg = "S",
     .deflt = "20",
     .min = 0,
     .max = 86400,
     .help = "to measure, about; three rounds at least"},
    {0}};

const pl_command pl_command_plan = {
    .name = "plan",
    .summary = "which draft head, size, chain or tree pays on this machine",
    .options = options,
    .about =
        "Measures whole cycles part by part (target by rows, layer, head by kind and size) at this temperature, batch\n"
        "and context, and predicts speeds from acceptance: that of --results, else the training's own metrics, else\n"
        "what is given or assumed. Heads nobody has trained are taken to be right as often as the full one: least_rho\n"
        "says which share of its acceptance length they must keep to pay.\n\n"
        "  rho = tau / tau of the full head    lambda = head's seconds / full head's    kappa = full head's seconds /\n"
        "  rest of its cycle, all for the same tree; slimspec_speedup = rho (1 + kappa) / (1 + lambda kappa), over "
        "the\n"
        "  full head; omega = (1 - alpha^(gamma+1)) / (1 - alpha). Speed-ups without \"full\" are over plain decoding.",
    .example = "paceline plan --target checkpoints/tiny --results runs/quickstart",
    .run = run,
};
