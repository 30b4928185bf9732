#include "infer/plan/command.h"

#include "infer/bench/shapes.h"
#include "infer/drafter/drafter.h"
#include "infer/model/kv.h"
#include "infer/plan/parts.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "kernels/base/probe.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT 128
#define SHAPE_POSITIONS 32768 // of a model by shape

static void name_shape(const int32_t *parent, int n, char *text, size_t size) {
    pl_tree_policy p = {0};
    pl_tree_shape_set(&p, n, parent);
    pl_tree_shape_text(&p, text, size);
}

// ---- what is asked ----

static pl_status read_tree(pl_plan *p, pl_err *err) {
    const char    *text = pl_cli_text(p->args, "tree");
    pl_tree_policy policy;
    p->chain = strcmp(text, "all") == 0 || strcmp(text, "chain:auto") == 0;
    p->tree = strcmp(text, "all") == 0 || strcmp(text, "auto") == 0;
    if (p->chain || p->tree) return PL_OK;
    PL_TRY(pl_tree_policy_parse(&policy, text, err));
    bool chain = policy.kind->fixed_shape && policy.width == 1 && policy.k == 1;
    int  n = chain ? policy.depth + 1 : policy.shape_n;
    if (policy.adapt || n < 2)
        return pl_fail(err, PL_E_USAGE,
                       "--tree %s: its shape depends on what is drafted, which is not known ahead; plan takes all, "
                       "auto, chain:auto, chain:N or "
                       "static:...",
                       text);
    if (n > PL_SHAPE_NODES || policy.depth > PL_SHAPE_LEVELS || policy.k > PL_SHAPE_RANKS)
        return pl_fail(err, PL_E_USAGE, "--tree %s: plan takes at most %d nodes, %d levels and %d children", text,
                       PL_SHAPE_NODES, PL_SHAPE_LEVELS, PL_SHAPE_RANKS);
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

static pl_status read_given(pl_plan *p, pl_err *err) {
    const char **list = pl_calloc((size_t)p->args->n_given + 1, sizeof *list);
    pl_status    st = list ? PL_OK : pl_fail(err, PL_E_MEMORY, "arguments: out of memory");
    int          n = 0;
    if (list) pl_cli_list(p->args, "acceptance", list, &n);
    if (st == PL_OK && n > PL_PLAN_HEADS)
        st = pl_fail(err, PL_E_USAGE, "--acceptance: more than %d of them", PL_PLAN_HEADS);
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
static pl_status find_acceptance(pl_plan *p, pl_plan_head *h, const char *checkpoint, pl_err *err) {
    double rate[PL_SHAPE_LEVELS];
    int    n = 0;
    h->accept = p->assumed;
    h->from = p->assumed_given && checkpoint ? PL_PLAN_GIVEN : PL_PLAN_ASSUMED;
    for (int i = 0; i < p->n_given; i++) {
        size_t length = (size_t)(strrchr(p->given[i], '=') - p->given[i]);
        if (strlen(h->name) != length || strncmp(h->name, p->given[i], length) != 0) continue;
        h->from = PL_PLAN_GIVEN;
        return read_rates(&h->accept, p->given[i] + length + 1, err);
    }
    if (!checkpoint) return PL_OK;
    if (h->measured && h->measured->ranked) {
        h->from = PL_PLAN_EVALUATION;
        pl_plan_acceptance_counts(&h->accept, &h->measured->counts);
    } else if (h->measured && h->measured->n_rates) {
        h->from = PL_PLAN_EVALUATION;
        pl_plan_acceptance_rates(&h->accept, h->measured->rate, h->measured->n_rates);
    } else {
        PL_TRY(pl_plan_metrics_read(rate, &n, checkpoint, p->temperature, err));
        if (!n) return PL_OK;
        h->from = PL_PLAN_TRAINING;
        pl_plan_acceptance_rates(&h->accept, rate, n);
    }
    return PL_OK;
}

static bool name_taken(const pl_plan *p, const char *name) {
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->head[i].name, name) == 0) return true;
    return false;
}

// What a drafter is called: in the evaluation, else by its run's folder (NAME/checkpoints/best), else by its own.
static void name_drafter(const pl_plan *p, pl_plan_head *h, const char *dir) {
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

static pl_status add_drafter(pl_plan *p, const char *dir, pl_err *err) {
    if (p->n == PL_PLAN_HEADS) return pl_fail(err, PL_E_USAGE, "more than %d heads", PL_PLAN_HEADS);
    if (!pl_drafter_is_folder(dir))
        return pl_fail(err, PL_E_USAGE, "--drafter %s: has no head to plan; give a checkpoint's folder", dir);
    pl_plan_head *h = &p->head[p->n];
    *h = (pl_plan_head){.measured = pl_plan_methods_find(&p->measured, dir)};
    name_drafter(p, h, dir);
    PL_TRY(pl_backbone_open(&h->backbone, dir, &p->target.model, p->target.dtype, err));
    p->n++;
    h->full = is_full(h->backbone, &p->target);
    return find_acceptance(p, h, dir, err);
}

static pl_status add_drafters(pl_plan *p, pl_err *err) {
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

// Random weights: on a device made there, without an upload of gigabytes.
static pl_status draw(pl_plan *p, pl_params *ps, uint64_t seed, pl_err *err) {
    const pl_backend *be = p->env->backend;
    pl_ctx            ctx;
    PL_TRY(pl_bench_shape_room((double)pl_params_count(ps) * (double)pl_dtype_size(p->target.dtype), be, err));
    if (!be->memory) return pl_params_draw(ps, p->target.dtype, seed, p->env->pool, err);
    PL_TRY(pl_ctx_init(&ctx, be, p->env->pool));
    pl_status st = pl_params_tile(ps, p->target.dtype, seed, &ctx, err);
    pl_ctx_fini(&ctx);
    return st;
}

// A head that nobody has trained: random weights on a backbone of the first drafter's shape that drafts token after
// token, EAGLE-3 where none is given.
static pl_status add_random(pl_plan *p, const pl_head_example *e, pl_err *err) {
    const pl_backbone  *like = NULL;
    pl_backbone_options o = {.head = e->spec, .own_head = true};
    for (int i = p->n - 1; i >= 0; i--)
        if (!p->head[i].backbone->kind->draft) like = p->head[i].backbone;
    if (name_taken(p, e->name)) return PL_OK;
    const pl_head_kind *kind = pl_head_find(e->spec.kind, err);
    if (!kind) return PL_E_USAGE;
    // A drafter of another width has no place for heads that read the target's embeddings or rows.
    if (like && like->d_target != like->shape.d && (kind->routed || kind->shortlisted)) return PL_OK;
    if (p->n == PL_PLAN_HEADS) return pl_fail(err, PL_E_USAGE, "more than %d heads", PL_PLAN_HEADS);
    if (e->rows < p->target.model.vocab) {
        o.d2t = p->ids;
        o.draft_vocab = e->rows;
    }
    if (like) {
        pl_backbone_like(&o, &like->config);
    } else {
        o.n_taps = pl_llama_default_taps(p->target.model.n_layers, o.tap);
    }
    pl_plan_head *h = &p->head[p->n];
    *h = (pl_plan_head){0};
    snprintf(h->name, sizeof h->name, "%s", e->name);
    PL_TRY(pl_backbone_create(&h->backbone, like ? like->kind : pl_backbone_at(0), &p->target.model, &o,
                              p->env->backend, err));
    if (kind->shortlisted && kind->shortlisted(&h->backbone->head) < PL_SHAPE_RANKS) {
        pl_backbone_destroy(h->backbone);
        return PL_OK;
    }
    p->n++;
    if (kind->draw_table) PL_TRY(kind->draw_table(&h->backbone->head, e->uneven, err));
    PL_TRY(draw(p, &h->backbone->params, (uint64_t)p->n, err));
    h->full = is_full(h->backbone, &p->target);
    PL_TRY(find_acceptance(p, h, NULL, err));
    h->as_full = h->from == PL_PLAN_ASSUMED && !h->full;
    return PL_OK;
}

// What the kinds of heads offer (a routed one's clusters are equal: what a router finds in real ones is known after
// training), of which PL_SHAPE_RANKS rows can be drafted at least.
static pl_status add_heads(pl_plan *p, pl_err *err) {
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
    bool first =
        pl_head_next_example(&e, &at, &shape, PL_EXAMPLE_PLAN); // the full head, with which others are compared
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

// Heads of which nothing is known are taken to be right as often as the full one.
static void assume_rest(pl_plan *p) {
    for (int i = 0; i < p->n; i++)
        if (p->head[i].as_full) p->head[i].accept = p->head[p->reference].accept;
}

static pl_status check_names(const pl_plan *p, pl_err *err) {
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

static void add_entry(pl_plan *p, int head, const int32_t *parent, int n) {
    pl_plan_entry *e = &p->entry[p->n_entries++];
    *e = (pl_plan_entry){.head = head, .nodes = n};
    memcpy(e->parent, parent, (size_t)n * sizeof *parent);
    name_shape(parent, n, e->tree, sizeof e->tree);
    pl_plan_predict(&p->subject[head].costs, &p->head[head].accept, parent, n, &e->cycle);
    pl_plan_predict(&p->subject[p->reference].costs, &p->head[p->reference].accept, parent, n, &e->full);
    e->slim = pl_plan_compare(&e->full, &e->cycle);
}

// The best tree may be the best chain.
static void drop_twin(pl_plan *p) {
    const pl_plan_entry *e = &p->entry[p->n_entries - 1];
    if (p->n_entries > 1 && e[-1].head == e->head && strcmp(e[-1].tree, e->tree) == 0) p->n_entries--;
}

static void choose(pl_plan *p) {
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
    // What is only assumed of a smaller head cannot recommend it.
    p->best = -1;
    for (int i = 0; i < p->n_entries; i++) {
        double fastest = p->best < 0 ? p->plain_cycle.speed : p->entry[p->best].cycle.speed;
        if (!p->head[p->entry[i].head].as_full && p->entry[i].cycle.speed > fastest) p->best = i;
    }
}

// ---- with another unit ----

static pl_plan_weights weights_of(const pl_plan *p, int head) {
    const pl_backbone *b = p->head[head].backbone;
    return (pl_plan_weights){.target = pl_llama_step_bytes(&p->target.model, 0),
                             .layer = pl_backbone_step_bytes(b, 0),
                             .head = pl_head_step_bytes(&b->head, 0)};
}

// The unit's figure beside this machine's own.
static pl_status measure_unit(pl_plan *p, pl_err *err) {
    const pl_backend *be = p->env->backend;
    if (!pl_cli_has(p->args, "unit")) return PL_OK;
    p->unit =
        (pl_plan_unit){.flops = 1e9 * pl_cli_real(p->args, "unit"),
                       .now = pl_backend_peak(be, p->target.dtype, p->env->pool),
                       .bandwidth = pl_probe_bandwidth(p->env->pool, (size_t)pl_llama_step_bytes(&p->target.model, 0)),
                       .element = (int)pl_dtype_size(p->target.dtype)};
    if (p->unit.bandwidth > 0 && p->unit.now > 0) return PL_OK;
    return pl_fail(err, PL_E_MEMORY, "--unit: out of memory for measuring this machine's limits");
}

// The same trees, predicted again.
static void predict_unit(pl_plan *p) {
    pl_plan_acceptance none = {0};
    int32_t            root = -1;
    if (p->unit.flops == 0) return;
    for (int b = 0; b < 2; b++) {
        pl_plan_weights w = weights_of(p, p->reference);
        pl_plan_costs   plain;
        pl_plan_unit_costs(&p->unit, b, &w, &p->plain.costs, &plain);
        pl_plan_predict(&plain, &none, &root, 1, &p->plain_on[b]);
        pl_plan_unit_costs(&p->unit, b, &w, &p->subject[p->reference].costs, &p->target_on[b]);
        for (int i = 0; i < p->n_entries; i++) {
            pl_plan_entry *e = &p->entry[i];
            pl_plan_costs  costs;
            w = weights_of(p, e->head);
            pl_plan_unit_costs(&p->unit, b, &w, &p->subject[e->head].costs, &costs);
            pl_plan_predict(&costs, &p->head[e->head].accept, e->parent, e->nodes, &e->on_unit[b]);
        }
    }
}

// ---- the command ----

// --target, or a model of a --shape with random weights.
static pl_status open_target(pl_plan *p, const char *shape, int layers, pl_err *err) {
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

static pl_status prepare(pl_plan *p, pl_err *err) {
    const pl_cli_args *a = p->args;
    const char        *shape, *results = pl_cli_text(a, "results");
    int                layers;
    PL_TRY(pl_bench_shape_options(a, &shape, &layers, err));
    p->model = shape ? shape : pl_cli_text(a, "target");
    if (!p->model) return pl_fail(err, PL_E_USAGE, "--target: is missing; plan needs a model, or a --shape");
    if (pl_cli_has(a, "unit") && p->env->backend->memory)
        return pl_fail(err, PL_E_USAGE, "--unit: is predicted for processors; leave out --device");
    p->batch = (int)pl_cli_int(a, "batch");
    p->temperature = pl_cli_real(a, "temperature");
    PL_TRY(read_tree(p, err));
    PL_TRY(read_given(p, err));
    if (results) PL_TRY(pl_plan_methods_read(&p->measured, results, p->temperature, err));
    PL_TRY(open_target(p, shape, layers, err));
    int room = p->target.model.config.max_position_embeddings - 2 * PL_SHAPE_NODES;
    p->context = pl_cli_has(a, "context") ? (int)pl_cli_int(a, "context") : room < CONTEXT ? room : CONTEXT;
    if (p->context < PL_SHAPE_LEVELS || p->context > room)
        return pl_fail(err, PL_E_INPUT, "%s: has %d positions; plan needs a --context of %d to %d there", p->model,
                       p->target.model.config.max_position_embeddings, PL_SHAPE_LEVELS,
                       room > PL_SHAPE_LEVELS ? room : PL_SHAPE_LEVELS);
    PL_TRY(add_drafters(p, err));
    PL_TRY(add_heads(p, err));
    PL_TRY(check_names(p, err));
    assume_rest(p);
    return PL_OK;
}

static pl_status measure(pl_plan *p, pl_err *err) {
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
    pl_plan *p = pl_calloc(1, sizeof *p);
    if (!p) return pl_fail(err, PL_E_MEMORY, "plan: out of memory");
    p->env = env;
    p->args = a;
    pl_status st = prepare(p, err);
    if (st == PL_OK) st = measure_unit(p, err);
    if (st == PL_OK) st = measure(p, err);
    if (st == PL_OK) {
        choose(p);
        predict_unit(p);
        st = pl_plan_say(p, err);
    }
    for (int i = 0; i < PL_PLAN_HEADS; i++)
        pl_backbone_destroy(p->head[i].backbone);
    pl_target_close(&p->target);
    pl_plan_methods_fini(&p->measured);
    pl_free(p->ids);
    pl_free(p);
    return st;
}

static const pl_cli_option options[] = {
    {.name = "target", .type = PL_CLI_TEXT, .arg = "DIR|FILE", .help = "the model"},
    {.name = "shape",
     .type = PL_CLI_TEXT,
     .arg = "NAME",
     .help = "instead of --target, a model of this shape with random weights: " PL_SHAPE_NAMES},
    {.name = "layers", .type = PL_CLI_INT, .arg = "N", .min = 1, .max = 1024, .help = "of --shape [the model's]"},
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
     .help = "all: beside the drafters, heads with random weights are planned too: trimmed and low-rank ones by size, "
             "specvocab, dynaspec"},
    {.name = "temperature", .type = PL_CLI_REAL, .arg = "T", .deflt = "0", .min = 0, .max = 1000, .help = "0: greedy"},
    {.name = "batch",
     .type = PL_CLI_INT,
     .arg = "B",
     .deflt = "1",
     .min = 1,
     .max = PL_PLAN_BATCH,
     .help = "sessions at once"},
    {.name = "context",
     .type = PL_CLI_INT,
     .arg = "N",
     .min = PL_SHAPE_LEVELS,
     .max = 1 << 24,
     .help = "tokens of each session [128]"},
    {.name = "kv", .type = PL_CLI_CHOICE, .arg = "fp32|bf16", .deflt = "fp32", .help = PL_KV_HELP},
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
     .help = "seconds of measuring, about; at least three rounds"},
    {.name = "unit",
     .type = PL_CLI_REAL,
     .arg = "GFLOPS",
     .min = 1,
     .max = 1e9,
     .help =
         "predict the same trees for a processor whose unit of products does so many GFLOP/s, all threads together"},
    {0}};

static bool find_model(const pl_cli_args *a, const char **model) {
    *model = pl_cli_text(a, "target");
    return true;
}

const pl_command pl_command_plan = {
    .name = "plan",
    .summary = "predicts which draft head, size, chain or tree is fastest on this machine or device",
    .options = options,
    .devices = true,
    .runs = find_model,
    .about = "Measures cycles of speculative decoding part by part (the target's forward by rows, the drafter's\n"
             "layer, draft heads by kind and size) at this temperature, batch and context, and predicts speeds from\n"
             "acceptance: that of --results, else that seen in the drafter's training, else what is given or assumed.\n"
             "Heads that nobody has trained are assumed to be accepted as often as the full one; least_rho says which\n"
             "share of its acceptance length they must keep to be faster. A draft step takes embed + core + router +\n"
             "head; where router_overlaps (a device runs a routed head's router beside the layer), embed + max(core,\n"
             "router - embed) + head. Block drafters (drafts above 1): core is the forward of a block, head_first the\n"
             "head's part of a block that is drafted to its end, and draft_step both over its drafts.\n"
             "\n"
             "For the same tree: rho = tau / tau of the full head, tau: tokens per cycle; lambda = seconds of the\n"
             "head / of the full head; kappa = the full head's seconds / those of the rest of its cycle;\n"
             "slimspec_speedup = rho (1 + kappa) / (1 + lambda kappa), over the full head. For a chain of gamma\n"
             "tokens of which a share alpha of those verified is accepted: omega = (1 - alpha^(gamma+1)) / (1 -\n"
             "alpha) tokens. --unit gives an interval: only what products must take is gained, or all of a part goes\n"
             "with that. Speed-ups without \"full\" in their name are over plain decoding.",
    .example = "paceline plan --target checkpoints/tiny --results runs/quickstart",
    .run = run,
};
