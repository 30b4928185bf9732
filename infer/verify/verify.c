#include "infer/verify/verify.h"

#include <stdio.h>
#include <string.h>

#define PL_VERIFIER(name) extern const pl_verifier pl_verify_##name;
#include "infer/verify/verifiers.def"
#undef PL_VERIFIER
#define PL_VERIFIER(name) &pl_verify_##name,
static const pl_verifier *const verifiers[] = {
#include "infer/verify/verifiers.def"
};
#undef PL_VERIFIER
enum { VERIFIERS = sizeof verifiers / sizeof *verifiers };

void pl_verify_walk(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out) {
    int32_t token[PL_TREE_MAX];
    int     node = out->path[out->n];
    for (;;) {
        int64_t position = in->position + in->tree->depth[node] + 1;
        if (in->own) {
            out->bonus = in->own[node];
        } else if (!in->dist(in->arg, node, in->p)) {
            out->bonus = -1;
        } else {
            pl_children c = {.kind = in->tree->kind[node], .q = in->tree->q[node], .token = token};
            c.n = c.q ? pl_tree_draws(in->tree, node, token) : 0;
            bool coupled = c.n > 0 && c.kind == v->proposal && v->couple;
            out->bonus =
                coupled ? v->couple(in, &c, position) : (int32_t)in->coin->draw(in->coin, in->p, in->v, position);
        }
        if (out->bonus < 0 || (v->accepts && out->n == *v->accepts)) return;
        int child = v->accepts ? in->tree->first[node] : pl_tree_child(in->tree, node, out->bonus);
        if (child < 0) return;
        node = child;
        out->path[++out->n] = node;
    }
}

void pl_verify(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out) {
    bool drawn = in->tree->q[0] != NULL; // otherwise paths cannot be compared
    out->n = 0;
    out->path[0] = 0;
    if (v->verify && !in->own && (drawn || v->proposal == PL_PROPOSE_TOP))
        v->verify(v, in, out);
    else
        pl_verify_walk(v, in, out);
}

bool pl_verifier_matches(const pl_verifier *v) {
    return !v->couple && !v->verify;
}

double pl_surplus(const double *p, const double *q, int64_t v, double scale) {
    enum { LANES = 8 }; // a single sum would stall on the adder at every token
    double  lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= v; i += LANES)
        for (int j = 0; j < LANES; j++) {
            double d = scale * p[i + j] - q[i + j];
            lane[j] += d > 0 ? d : 0;
        }
    for (; i < v; i++) {
        double d = scale * p[i] - q[i];
        sum += d > 0 ? d : 0;
    }
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

bool pl_residual(double *p, const double *q, int64_t v) {
    double sum = pl_surplus(p, q, v, 1);
    if (!(sum > 0)) return false;
    for (int64_t i = 0; i < v; i++) {
        double d = p[i] - q[i];
        p[i] = d > 0 ? d / sum : 0;
    }
    return true;
}

double pl_overlap(const double *p, const double *q, int64_t v) {
    double sum = 0;
    for (int64_t i = 0; i < v; i++)
        sum += p[i] < q[i] ? p[i] : q[i];
    return sum;
}

bool pl_ratio_test(pl_coin *coin, const double *p, const double *q, int32_t x) {
    return x >= 0 && q[x] > 0 && coin->flip(coin, p[x] / q[x]);
}

int32_t pl_verify_drawn(const pl_verify_in *in, const double *q, int32_t x) {
    if (pl_ratio_test(in->coin, in->p, q, x)) return x;
    pl_residual(in->p, q, in->v);
    return (int32_t)in->coin->draw(in->coin, in->p, in->v, -1);
}

const pl_verifier *pl_verifier_at(int i) {
    return i < VERIFIERS ? verifiers[i] : NULL;
}

const pl_verifier *pl_verifier_find(const char *name, pl_err *err) {
    char known[256] = "";
    for (int i = 0; i < VERIFIERS; i++) {
        if (strcmp(verifiers[i]->name, name) == 0) return verifiers[i];
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s%s", used ? ", " : "", verifiers[i]->name,
                 verifiers[i]->lossless ? "" : " (lossy)");
    }
    pl_fail(err, PL_E_USAGE, "verifier \"%s\" is not known; known are: %s", name, known);
    return NULL;
}

pl_status pl_verifier_takes(const pl_verifier *v, const pl_tree_policy *p, pl_err *err) {
    if (v->proposal != PL_PROPOSE_TOP && v->proposal != PL_PROPOSE_WOR && p->kind->predictable)
        return pl_fail(err, PL_E_USAGE,
                       "tree \"%s\" decides by what it has drawn how many children follow, which verifier \"%s\" does "
                       "not take: take recursive-wor or match, or a static tree",
                       p->kind->name, v->name);
    if (v->proposal != PL_PROPOSE_TOP && !p->kind->fixed_shape && !p->kind->predictable)
        return pl_fail(err, PL_E_USAGE,
                       "verifier \"%s\" draws its children, tree \"%s\" chooses among them: take a chain or a static "
                       "tree, or verifier \"match\"",
                       v->name, p->kind->name);
    if (v->chain && (p->width > 1 || p->k > 1))
        return pl_fail(err, PL_E_USAGE, "verifier \"%s\" takes chains, not the tree \"%s\": take chain:LENGTH|auto",
                       v->name, p->kind->name);
    return PL_OK;
}

pl_status pl_verifier_takes_draws(const pl_verifier *v, const char *drafter, unsigned proposals, pl_err *err) {
    if (!proposals || proposals >> v->proposal & 1) return PL_OK;
    if (!(proposals >> PL_PROPOSE_IID & 1))
        return pl_fail(err, PL_E_USAGE, "drafter \"%s\" drafts without probabilities, which \"%s\" needs: take match",
                       drafter, v->name);
    return pl_fail(err, PL_E_USAGE,
                   "drafter \"%s\" does not draw as verifier \"%s\" asks it to: take match, rejection or block",
                   drafter, v->name);
}
