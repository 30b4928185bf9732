// plan: what is said of it. One document; what people get leaves out what only machines read, and tells microseconds.
#include "infer/cli/show.h"
#include "infer/cli/machine.h"
#include "infer/plan/parts.h"
#include "kernels/base/json_put.h"

#include <math.h>
#include <string.h>

const char *const pl_plan_sources[] = {"assumed", "given", "training", "evaluation"};

// Four digits are more than a timing has.
static double rounded(double v) {
    if (!(fabs(v) > 0) || !isfinite(v)) return v;
    double unit = pow(10, floor(log10(fabs(v))) - 3);
    return round(v / unit) * unit;
}

static void put_figure(pl_json_out *o, const pl_plan *p, const char *key, double v) {
    pl_put_num(o, key, p->env->json ? v : rounded(v));
}

// KEY_seconds, or KEY_us for people.
static void put_seconds(pl_json_out *o, const pl_plan *p, const char *key, double seconds) {
    char name[64];
    snprintf(name, sizeof name, p->env->json ? "%s_seconds" : "%s_us", key);
    put_figure(o, p, name, p->env->json ? seconds : seconds * 1e6);
}

static void put_rows(pl_json_out *o, const pl_plan *p, const char *key, const pl_autotuner_cost *c, const int *rows,
                     int n) {
    pl_put_array(o, key);
    for (int i = 0; i < n; i++) {
        pl_json_out_object(o);
        pl_put_int(o, "rows", rows[i]);
        put_seconds(o, p, "forward", pl_plan_seconds(c, rows[i]));
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

static void put_plain(pl_json_out *o, const pl_plan *p) {
    const pl_plan_cycle *c = &p->plain_cycle;
    pl_put_object(o, "plain");
    put_seconds(o, p, "target", c->target);
    put_seconds(o, p, "verify", c->verify);
    put_seconds(o, p, "other", c->other);
    put_seconds(o, p, "step", c->seconds);
    put_figure(o, p, "tokens_per_second", c->speed);
    pl_json_out_close(o, '}');
}

static void put_heads(pl_json_out *o, const pl_plan *p) {
    int b = p->batch;
    pl_put_array(o, "heads");
    for (int i = 0; i < p->n; i++) {
        const pl_plan_head  *h = &p->head[i];
        const pl_plan_costs *c = &p->subject[i].costs;
        int                  drafts = c->drafts > 0 ? c->drafts : 1;
        double               layer = pl_plan_seconds(c->drafts > 0 ? &c->take_in : &c->layer, b);
        double               embed = fmin(c->embed, layer), first = pl_plan_seconds(&c->first, b * drafts);
        pl_json_out_object(o);
        pl_put_str(o, "name", h->name);
        pl_put_str(o, "kind", h->backbone->head.kind->name);
        pl_put_int(o, "vocab", h->backbone->head.vocab);
        pl_put_int(o, "rank", h->backbone->head.rank);
        pl_put_int(o, "drafts", drafts);
        put_figure(o, p, "head_bytes", pl_head_step_bytes(&h->backbone->head, 0));
        put_seconds(o, p, "embed", embed);
        put_seconds(o, p, "core", layer - embed);
        put_seconds(o, p, "router", pl_plan_seconds(&c->router, b));
        pl_put_bool(o, "router_overlaps", c->overlaps);
        put_seconds(o, p, "head_first", first);
        put_seconds(o, p, "head", pl_plan_seconds(&c->head, b));
        put_seconds(o, p, "draft_step", c->drafts > 0 ? (layer + first) / drafts : pl_plan_step(c, b));
        if (p->env->json) put_seconds(o, p, "router_first", pl_plan_seconds(&c->router_first, b));
        put_seconds(o, p, "top_k", c->top_k);
        put_seconds(o, p, "log_sum_exp", c->log_sum_exp);
        put_seconds(o, p, "take_in", pl_plan_seconds(&c->take_in, b));
        pl_put_str(o, "acceptance_from", h->as_full ? "assumed as full" : pl_plan_sources[h->from]);
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

static void put_cycle(pl_json_out *o, const pl_plan *p, const pl_plan_cycle *c) {
    put_seconds(o, p, "target", c->target);
    put_seconds(o, p, "verify", c->verify);
    put_seconds(o, p, "take_in", c->take_in);
    put_seconds(o, p, "layer", c->layer);
    put_seconds(o, p, "head", c->head);
    put_seconds(o, p, "other", c->other);
    put_seconds(o, p, "cycle", c->seconds);
    put_figure(o, p, "tokens_per_second", c->speed);
    put_figure(o, p, "speedup", c->speed / p->plain_cycle.speed);
}

// Parts and figures are two tables for people and one list of objects for machines.
static void put_plans(pl_json_out *o, const pl_plan *p) {
    for (int table = 0; table < (p->env->json ? 1 : 2); table++) {
        pl_put_array(o, table ? "cycles" : "plans");
        for (int i = 0; i < p->n_entries; i++) {
            const pl_plan_entry *e = &p->entry[i];
            const pl_plan_head  *h = &p->head[e->head];
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
                if (!p->env->json) {
                    put_figure(o, p, "tokens_per_second", e->cycle.speed);
                    put_figure(o, p, "speedup", e->cycle.speed / p->plain_cycle.speed);
                } else {
                    pl_put_int(o, "nodes", e->cycle.nodes);
                    pl_put_int(o, "depth", e->cycle.depth);
                }
                put_figure(o, p, "measured_speedup", h->measured ? h->measured->speed / h->measured->plain_speed : NAN);
            }
            if (table == 1 || p->env->json) put_cycle(o, p, &e->cycle);
            pl_json_out_close(o, '}');
        }
        pl_json_out_close(o, ']');
    }
}

// Every chain: of all heads for machines, of the chosen one (else the full one) for people.
static void put_chains(pl_json_out *o, const pl_plan *p) {
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

// The interval of a figure with the other unit.
static void put_interval(pl_json_out *o, const pl_plan *p, const char *key, double least, double most) {
    char name[64];
    snprintf(name, sizeof name, "%s_least", key);
    put_seconds(o, p, name, least);
    snprintf(name, sizeof name, "%s_most", key);
    put_seconds(o, p, name, most);
}

static void put_unit(pl_json_out *o, const pl_plan *p) {
    static const int rows[] = {1, 4, 8, 16};
    pl_put_object(o, "unit");
    put_figure(o, p, "gflops", p->unit.flops / 1e9);
    put_figure(o, p, "gflops_here", p->unit.now / 1e9);
    put_figure(o, p, "gb_per_second", p->unit.bandwidth / 1e9);
    put_interval(o, p, "plain_step", p->plain_on[PL_PLAN_LEAST].seconds, p->plain_on[PL_PLAN_MOST].seconds);
    pl_json_out_close(o, '}');
    pl_put_array(o, "target_on_unit");
    for (int i = 0; i < 4; i++) {
        int r = rows[i] * p->batch;
        pl_json_out_object(o);
        pl_put_int(o, "rows", r);
        put_interval(o, p, "forward", pl_plan_seconds(&p->target_on[PL_PLAN_LEAST].target, r),
                     pl_plan_seconds(&p->target_on[PL_PLAN_MOST].target, r));
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
    pl_put_array(o, "cycles_on_unit");
    for (int i = 0; i < p->n_entries; i++) {
        const pl_plan_entry *e = &p->entry[i];
        const pl_plan_cycle *least = &e->on_unit[PL_PLAN_LEAST], *most = &e->on_unit[PL_PLAN_MOST];
        pl_json_out_object(o);
        pl_put_str(o, "name", p->head[e->head].name);
        pl_put_str(o, "tree", e->tree);
        put_interval(o, p, "target", least->target, most->target);
        put_interval(o, p, "cycle", least->seconds, most->seconds);
        put_figure(o, p, "speedup_least", most->speed / p->plain_on[PL_PLAN_MOST].speed);
        put_figure(o, p, "speedup_most", least->speed / p->plain_on[PL_PLAN_LEAST].speed);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

static char *recommended(const pl_plan *p) {
    if (p->best < 0) return pl_strdup("plain decoding: no drafter of known acceptance is expected to be faster");
    const pl_plan_entry *e = &p->entry[p->best];
    const pl_plan_head  *h = &p->head[e->head];
    return pl_sprintf("%s, --tree %s: %.2f times plain decoding (acceptance: %s)", h->name, e->tree,
                      e->cycle.speed / p->plain_cycle.speed, pl_plan_sources[h->from]);
}

static void put_all(pl_json_out *o, const pl_plan *p) {
    static const int rows[] = {1, 2, 3, 4, 6, 8, 12, 16};
    int              at[8];
    for (int i = 0; i < 8; i++)
        at[i] = rows[i] * p->batch;
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
    put_plain(o, p);
    put_rows(o, p, "target_by_rows", &p->subject[p->reference].costs.target, at, 8);
    put_heads(o, p);
    put_plans(o, p);
    put_chains(o, p);
    if (p->unit.flops > 0) put_unit(o, p);
}

pl_status pl_plan_say(const pl_plan *p, pl_err *err) {
    pl_json_out local, *o;
    char       *last = recommended(p);
    if (!last) return pl_fail(err, PL_E_MEMORY, "plan: out of memory");
    o = pl_show_begin(p->env, &local);
    put_all(o, p);
    if (p->env->json) {
        pl_put_str(o, "recommended_head", p->best < 0 ? NULL : p->head[p->entry[p->best].head].name);
        pl_put_str(o, "recommended_tree", p->best < 0 ? NULL : p->entry[p->best].tree);
        pl_put_str(o, "recommended", last);
    }
    pl_status st = pl_show_end(p->env, &local, err);
    if (st == PL_OK && !p->env->json) fprintf(p->env->text, "recommended: %s\n", last);
    pl_free(last);
    return st;
}
