#include "infer/plan/plan.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBSERVED 16                    // least number of offers at the root for a rank's acceptance
#define ROUNDS 4                       // iterations of choosing a tree: costs depend on its emitted tokens
#define RESULTS_MAX ((size_t)64 << 20) // bytes of results.json
#define FILE_MAX ((size_t)256 << 20)   // bytes of metrics.jsonl

void pl_plan_acceptance_rates(pl_plan_acceptance *a, const double *rate, int n) {
    PL_CHECK(n >= 1, "%d rates", n);
    *a = (pl_plan_acceptance){.ranks = 1};
    for (int l = 0; l < PL_SHAPE_LEVELS; l++)
        a->accept[l][0] = rate[l < n ? l : n - 1];
}

void pl_plan_acceptance_counts(pl_plan_acceptance *a, const pl_autotuner_counts *n) {
    pl_shape_costs c = {.levels = PL_SHAPE_LEVELS, .ranks = 1};
    while (c.ranks < PL_SHAPE_RANKS && n->seen[0][c.ranks] >= OBSERVED)
        c.ranks++;
    pl_autotuner_acceptance(n, &c);
    *a = (pl_plan_acceptance){.ranks = c.ranks};
    memcpy(a->accept, c.accept, sizeof a->accept);
}

double pl_plan_seconds(const pl_autotuner_cost *c, double rows) {
    double at[2], low = floor(rows), share = rows - low;
    if (low < 1) low = 1, share = 0;
    pl_autotuner_cost_read(c, (int)low, 1, at);
    double below = at[1];
    if (share == 0) return below;
    pl_autotuner_cost_read(c, (int)low + 1, 1, at);
    return below + share * (at[1] - below);
}

static double share_of(const pl_plan_costs *c, int level) {
    return c->level_share[level] > 0 ? c->level_share[level] : 1;
}

double pl_plan_step(const pl_plan_costs *c, double rows) {
    if (c->drafts > 0) {
        int more = c->drafts > 1 ? c->drafts - 1 : 1;
        return (pl_plan_seconds(&c->first, c->batch * c->drafts) - pl_plan_seconds(&c->first, c->batch)) / more;
    }
    return pl_plan_seconds(&c->layer, rows) + pl_plan_seconds(&c->head, rows);
}

void pl_plan_predict(const pl_plan_costs *c, const pl_plan_acceptance *a, const int32_t *parent, int n,
                     pl_plan_cycle *out) {
    double f[PL_SHAPE_NODES] = {1};
    int    depth[PL_SHAPE_NODES] = {0}, children[PL_SHAPE_NODES] = {0}, expanded[PL_SHAPE_LEVELS] = {0};
    PL_CHECK(n >= 1 && n <= PL_SHAPE_NODES, "%d nodes", n);
    *out = (pl_plan_cycle){.nodes = n, .emitted = 1};
    for (int i = 1; i < n; i++) {
        int p = parent[i];
        PL_CHECK(p >= 0 && p < i && depth[p] < PL_SHAPE_LEVELS, "node %d: parent %d", i, p);
        int rank = children[p]++;
        depth[i] = depth[p] + 1;
        if (c->drafts > 0 && depth[i] > c->drafts) { // deeper than the block
            out->nodes--;
            continue;
        }
        f[i] = rank < a->ranks ? f[p] * a->accept[depth[p]][rank] : 0;
        out->emitted += f[i];
        if (rank == 0) expanded[depth[p]]++;
        if (depth[i] > out->depth) out->depth = depth[i];
    }
    double b = c->batch;
    out->target = pl_plan_seconds(&c->target, b * out->nodes);
    out->verify = pl_plan_seconds(&c->verify, b * out->emitted);
    out->other = pl_plan_seconds(&c->other, b * out->nodes);
    if (n > 1) {
        out->take_in = pl_plan_seconds(&c->take_in, b * out->emitted);
        out->head = pl_plan_seconds(&c->first, c->drafts > 0 ? b * out->depth : b);
    }
    for (int l = 1; l < out->depth && c->drafts == 0; l++) {
        out->layer += pl_plan_seconds(&c->layer, b * expanded[l]);
        out->head += share_of(c, l) * pl_plan_seconds(&c->head, b * expanded[l]);
    }
    out->seconds = out->target + out->verify + out->take_in + out->layer + out->head + out->other;
    out->speed = b * out->emitted / out->seconds;
}

// Fills the costs of tree/best.h, which depend on rows and widths alone; costs by emitted tokens are those of
// `emitted`.
static void shape_costs(const pl_plan_costs *c, const pl_plan_acceptance *a, int nodes, bool chain, double emitted,
                        pl_shape_costs *s) {
    double b = c->batch;
    *s = (pl_shape_costs){.levels = nodes - 1 < PL_SHAPE_LEVELS ? nodes - 1 : PL_SHAPE_LEVELS,
                          .ranks = chain ? 1 : a->ranks,
                          .width = chain || a->ranks == 1 ? 1 : PL_SHAPE_WIDTH,
                          .nodes = nodes};
    if (c->drafts > 0 && s->levels > c->drafts) s->levels = c->drafts;
    memcpy(s->accept, a->accept, sizeof s->accept);
    double fixed = pl_plan_seconds(&c->take_in, b * emitted) + pl_plan_seconds(&c->first, b) +
                   pl_plan_seconds(&c->verify, b * emitted);
    for (int n = 1; n <= nodes; n++)
        s->verify[n] = pl_plan_seconds(&c->target, b * n) + pl_plan_seconds(&c->other, b * n) + fixed;
    for (int w = 1; w <= s->width; w++)
        s->draft[w] = pl_plan_step(c, b * w);
}

void pl_plan_best(const pl_plan_costs *c, const pl_plan_acceptance *a, int nodes, bool chain, pl_shape *best) {
    PL_CHECK(nodes >= 2 && nodes <= PL_SHAPE_NODES, "%d nodes", nodes);
    double  emitted = 1 + a->accept[0][0];
    int32_t one[2] = {-1, 0};
    *best = (pl_shape){.n = 2, .parent = {-1, 0}};
    pl_plan_cycle cycle;
    pl_plan_predict(c, a, one, 2, &cycle);
    double fastest = cycle.speed;
    for (int i = 0; i < ROUNDS; i++) {
        pl_shape_costs s;
        pl_shape       tree;
        shape_costs(c, a, nodes, chain, emitted, &s);
        pl_shape_best(&s, &tree);
        if (tree.n < 2) continue; // drafting does not pay: *best stays as it is
        pl_plan_predict(c, a, tree.parent, tree.n, &cycle);
        emitted = cycle.emitted;
        if (cycle.speed <= fastest) continue;
        fastest = cycle.speed;
        *best = tree;
    }
    pl_plan_predict(c, a, best->parent, best->n, &cycle);
    best->emitted = cycle.emitted;
    best->seconds = cycle.seconds;
}

double pl_plan_slimspec_speedup(double rho, double lambda, double kappa) {
    return rho * (1 + kappa) / (1 + lambda * kappa);
}

pl_plan_slimspec pl_plan_compare(const pl_plan_cycle *full, const pl_plan_cycle *head) {
    pl_plan_slimspec s = {.rho = head->emitted / full->emitted,
                          .lambda = head->head / full->head,
                          .kappa = full->head / (full->seconds - full->head)};
    s.speedup = pl_plan_slimspec_speedup(s.rho, s.lambda, s.kappa);
    s.threshold = (1 + s.lambda * s.kappa) / (1 + s.kappa);
    return s;
}

double pl_plan_omega(double alpha, int gamma) {
    double sum = 0, power = 1; // the quotient loses digits where alpha is near 1
    for (int i = 0; i <= gamma; i++, power *= alpha)
        sum += power;
    return sum;
}

double pl_plan_alpha(const pl_plan_acceptance *a, int gamma) {
    double judged = 0, accepted = 0, reached = 1;
    for (int l = 0; l < gamma && l < PL_SHAPE_LEVELS; l++) {
        judged += reached;
        reached *= a->accept[l][0];
        accepted += reached;
    }
    return judged > 0 ? accepted / judged : 0;
}

// ---- acceptance of earlier runs -------------------------------------------------------------------------------------

void pl_plan_methods_fini(pl_plan_methods *l) {
    for (int i = 0; i < l->n; i++) {
        pl_free(l->m[i].name);
        pl_free(l->m[i].checkpoint);
    }
    l->n = 0;
}

static bool same_folder(const char *a, const char *b) {
    char *x = realpath(a, NULL), *y = realpath(b, NULL);
    bool  same = x && y ? strcmp(x, y) == 0 : strcmp(a, b) == 0;
    free(x);
    free(y);
    return same;
}

const pl_plan_method *pl_plan_methods_find(const pl_plan_methods *l, const char *checkpoint) {
    for (int i = 0; i < l->n; i++)
        if (same_folder(l->m[i].checkpoint, checkpoint)) return &l->m[i];
    return NULL;
}

// ---- results.json ----

// Reads the numbers of a list up to the first entry of another type, and returns their number.
static int numbers(const cJSON *list, double *out, int most) {
    int          n = 0;
    const cJSON *x;
    cJSON_ArrayForEach(x, list) {
        if (n == most || !cJSON_IsNumber(x)) break;
        out[n++] = x->valuedouble;
    }
    return n;
}

static pl_status add_counts(pl_plan_method *m, const pl_json *j, const cJSON *method, bool *any, pl_err *err) {
    const cJSON *offered, *accepted;
    PL_TRY(pl_json_opt_array(j, method, "offered_by_rank", &offered, err));
    PL_TRY(pl_json_opt_array(j, method, "accepted_by_rank", &accepted, err));
    *any = offered && accepted && offered->child;
    if (!*any) return PL_OK;
    const cJSON *o = offered->child, *a = accepted->child;
    for (int l = 0; l < PL_SHAPE_LEVELS && o && a; l++, o = o->next, a = a->next) {
        double seen[PL_SHAPE_RANKS], hit[PL_SHAPE_RANKS];
        int    n = numbers(o, seen, PL_SHAPE_RANKS), k = numbers(a, hit, PL_SHAPE_RANKS);
        if (n != k)
            return pl_json_fail(j, a, err, "accepted_by_rank and offered_by_rank differ in length: %d and %d", k, n);
        for (int r = 0; r < n; r++) {
            if (!(hit[r] >= 0 && hit[r] <= seen[r]))
                return pl_json_fail(j, a, err, "%g accepted of %g offered", hit[r], seen[r]);
            m->counts.seen[l][r] += seen[r];
            m->counts.hit[l][r] += hit[r];
        }
    }
    return PL_OK;
}

// Adds the rates of acceptance_by_position, which are cumulative: a level's rate is the ratio to the level before.
static pl_status add_positions(pl_plan_method *m, const pl_json *j, const cJSON *method, pl_err *err) {
    const cJSON *list;
    double       at[PL_SHAPE_LEVELS], before = 1;
    PL_TRY(pl_json_opt_array(j, method, "acceptance_by_position", &list, err));
    int n = list ? numbers(list, at, PL_SHAPE_LEVELS) : 0;
    m->n_rates = 0;
    for (int l = 0; l < n && at[l] > 0; before = at[l++]) {
        if (at[l] > 1) return pl_json_fail(j, list, err, "a share of %g", at[l]);
        m->rate[m->n_rates++] = fmin(at[l] / before, 1);
    }
    return PL_OK;
}

// Returns `written` where it is a folder, else its end from drafters/ or checkpoints/ on inside `folder`.
static char *find_checkpoint(const char *folder, const char *written) {
    static const char *const inner[] = {"/drafters/", "/checkpoints/"};
    if (pl_path_is_dir(written)) return pl_strdup(written);
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        const char *tail = strstr(written, inner[i]);
        if (tail) return pl_path_join(folder, tail + 1);
    }
    return pl_strdup(written);
}

static pl_status read_method(pl_plan_methods *l, const pl_json *j, const cJSON *method, const char *folder,
                             double temperature, double plain, pl_err *err) {
    const char *name, *checkpoint, *verify;
    double      t, speed, tau;
    bool        any;
    PL_TRY(pl_json_get_str(j, method, "name", &name, err));
    PL_TRY(pl_json_opt_str(j, method, "checkpoint", "", &checkpoint, err));
    PL_TRY(pl_json_opt_str(j, method, "verify", "match", &verify, err));
    PL_TRY(pl_json_opt_num(j, method, "temperature", 0, 1e6, 0, &t, err));
    PL_TRY(pl_json_opt_num(j, method, "tokens_per_second", 0, 1e12, NAN, &speed, err));
    PL_TRY(pl_json_opt_num(j, method, "acceptance_length", 0, 1e6, NAN, &tau, err));
    if (!*checkpoint || t != temperature || strcmp(verify, "match") != 0) return PL_OK;
    char *path = find_checkpoint(folder, checkpoint);
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
    pl_plan_method *m = NULL;
    for (int i = 0; i < l->n && !m; i++)
        if (same_folder(l->m[i].checkpoint, path)) m = &l->m[i];
    if (m) {
        pl_free(path);
    } else {
        if (l->n == PL_PLAN_MEASURED) {
            pl_free(path);
            return pl_fail(err, PL_E_INPUT, "%s: more than %d drafters", j->where, PL_PLAN_MEASURED);
        }
        m = &l->m[l->n++];
        *m = (pl_plan_method){.name = pl_strdup(name), .checkpoint = path, .tau = NAN, .speed = NAN};
        if (!m->name) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
    }
    PL_TRY(add_counts(m, j, method, &any, err));
    m->ranked |= any;
    if (!m->n_rates) PL_TRY(add_positions(m, j, method, err));
    if (!isnan(m->speed) && !(speed > m->speed)) return PL_OK;
    m->speed = speed;
    m->plain_speed = plain;
    m->tau = tau;
    return PL_OK;
}

static pl_status read_methods(pl_plan_methods *l, const pl_json *j, const char *folder, double temperature,
                              pl_err *err) {
    const cJSON *methods, *m;
    double       plain = NAN;
    int          before = l->n;
    PL_TRY(pl_json_get_array(j, NULL, "methods", &methods, err));
    cJSON_ArrayForEach(m, methods) {
        const char *kind;
        double      t, speed;
        if (!cJSON_IsObject(m)) return pl_json_fail(j, m, err, "expected an object");
        PL_TRY(pl_json_opt_str(j, m, "kind", "", &kind, err));
        PL_TRY(pl_json_opt_num(j, m, "temperature", 0, 1e6, 0, &t, err));
        PL_TRY(pl_json_opt_num(j, m, "tokens_per_second", 0, 1e12, NAN, &speed, err));
        if (strcmp(kind, "plain") == 0 && t == temperature && isnan(plain)) plain = speed;
        PL_TRY(read_method(l, j, m, folder, temperature, plain, err));
    }
    if (l->n > before) return PL_OK;
    return pl_fail(err, PL_E_INPUT,
                   "%s: has no drafter with a checkpoint and verifier \"match\" at temperature %g; evaluate one there",
                   j->where, temperature);
}

pl_status pl_plan_methods_read(pl_plan_methods *l, const char *run, double temperature, pl_err *err) {
    bool      folder = pl_path_is_dir(run);
    char     *file = folder ? pl_path_join(run, "results.json") : pl_strdup(run);
    char     *dir = folder ? pl_strdup(run)
                           : pl_sprintf("%.*s", pl_path_name(run) > run ? (int)(pl_path_name(run) - run) : 1,
                                    pl_path_name(run) > run ? run : ".");
    pl_status st = file && dir ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", run);
    pl_json   j = {0};
    if (st == PL_OK) st = pl_json_open(&j, file, RESULTS_MAX, 0, err);
    if (st == PL_OK) st = read_methods(l, &j, dir, temperature, err);
    pl_json_close(&j);
    pl_free(file);
    pl_free(dir);
    return st;
}

// ---- metrics.jsonl ----

pl_status pl_plan_metrics_read(double rate[PL_SHAPE_LEVELS], int *n, const char *checkpoint, double temperature,
                               pl_err *err) {
    const char *key = temperature == 0 ? "eval_step_accuracy" : "eval_step_acceptance";
    char       *path = pl_path_join(checkpoint, "../../metrics.jsonl");
    uint8_t    *data = NULL;
    size_t      bytes = 0;
    int64_t     line = 1;
    *n = 0;
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", checkpoint);
    pl_status st = PL_OK;
    if (pl_path_exists(path)) st = pl_file_read(path, &data, &bytes, FILE_MAX, err);
    for (size_t at = 0; at < bytes && st == PL_OK; line++) {
        const uint8_t *end = memchr(data + at, '\n', bytes - at);
        if (!end) break; // an incomplete last line
        size_t       length = (size_t)(end - data) - at;
        pl_json      j = {0};
        const cJSON *list = NULL;
        if (length) st = pl_json_parse(&j, path, line, data + at, length, 0, err);
        if (length && st == PL_OK) st = pl_json_opt_array(&j, NULL, key, &list, err);
        if (list && list->child) *n = numbers(list, rate, PL_SHAPE_LEVELS);
        for (int i = 0; list && i < *n && st == PL_OK; i++)
            if (!(rate[i] >= 0 && rate[i] <= 1)) st = pl_json_fail(&j, list, err, "a share of %g", rate[i]);
        pl_json_close(&j);
        at += length + 1;
    }
    pl_free(data);
    pl_free(path);
    if (st != PL_OK) *n = 0;
    return st;
}
