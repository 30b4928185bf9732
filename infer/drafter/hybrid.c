// Two drafters among which the engine chooses (infer/decode/choose.h):
//
//   "hybrid:FREE[+MODEL]"   FREE: a drafter that needs no model (suffix:12,keep; lookup; recycle:8; retrieval:PATH);
//                           MODEL: any other, a checkpoint's folder among them. --tree: auto, chain:auto or
//                           chain:confidence, the latter two for verifiers of chains.
#include "infer/drafter/drafter.h"
#include "infer/tree/best.h"
#include "kernels/base/arena.h"

#include <stdio.h>
#include <string.h>

// The text behind "hybrid:" and a tree, taken apart.
typedef struct parts {
    char           free[512];
    const char    *model; // part of the text; NULL: none
    const char    *free_tree, *model_tree;
    pl_tree_policy of_free, of_model;
} parts;

static bool is_hybrid(const char *text) {
    return strncmp(text, "hybrid", 6) == 0 && (!text[6] || text[6] == ':');
}

static pl_status split(parts *x, const char *args, pl_err *err) {
    size_t n = strcspn(args, "+");
    if (n == 0 || (args[n] && !args[n + 1]) || n >= sizeof x->free)
        return pl_fail(err, PL_E_USAGE, "drafter \"hybrid:%s\": expected hybrid:FREE[+MODEL], as hybrid:suffix+PATH",
                       args);
    memcpy(x->free, args, n);
    x->free[n] = 0;
    x->model = args[n] ? args + n + 1 : NULL;
    if (is_hybrid(x->free) || (x->model && is_hybrid(x->model)))
        return pl_fail(err, PL_E_USAGE, "drafter \"hybrid:%s\": there is no hybrid in a hybrid", args);
    if (pl_drafter_is_folder(x->free))
        return pl_fail(err, PL_E_USAGE,
                       "drafter \"hybrid:%s\": \"%s\" is no drafter without a checkpoint; it comes behind +", args,
                       x->free);
    if (pl_drafter_is_free(x->free)) return PL_OK;
    return pl_fail(err, PL_E_USAGE, "drafter \"hybrid:%s\": \"%s\" is a model, which comes behind +", args, x->free);
}

// FREE drafts a tree of its own, or a chain; MODEL's tree adapts, as a chain where it drafts nothing else.
static pl_status take_apart(parts *x, const char *args, const char *tree, pl_err *err) {
    bool   confidence = tree && strcmp(tree, "chain:confidence") == 0;
    bool   chains = confidence || (tree && strcmp(tree, "chain:auto") == 0);
    pl_err ignored = {0};
    if (tree && *tree && !chains && strcmp(tree, "auto") != 0)
        return pl_fail(
            err, PL_E_USAGE,
            "drafter \"hybrid\" chooses its tree in every cycle: auto, chain:auto or chain:confidence, not \"%s\"",
            tree);
    PL_TRY(split(x, args, err));
    x->free_tree = chains ? "chain:16" : NULL;
    PL_TRY(pl_drafter_shape(&x->of_free, x->free, x->free_tree, err));
    if (x->of_free.adapt) PL_TRY(pl_drafter_shape(&x->of_free, x->free, x->free_tree = "chain:16", err));
    if (x->of_free.max_nodes > PL_SHAPE_NODES)
        return pl_fail(err, PL_E_USAGE, "drafter \"hybrid\": \"%s\" drafts %d tokens, at most %d", x->free,
                       x->of_free.max_nodes - 1, PL_SHAPE_NODES - 1);
    if (!x->model && confidence)
        return pl_fail(err, PL_E_USAGE,
                       "drafter \"hybrid:%s\": a MODEL's drafts end by confidence, and there is none: take chain:auto",
                       args);
    if (!x->model) return PL_OK;
    x->model_tree = confidence ? "chain:confidence" : chains ? "chain:auto" : "auto";
    if (confidence) return pl_drafter_shape(&x->of_model, x->model, x->model_tree, err);
    if (pl_drafter_shape(&x->of_model, x->model, x->model_tree, &ignored) == PL_OK) return PL_OK;
    return pl_drafter_shape(&x->of_model, x->model, x->model_tree = "chain:auto", err);
}

// The limits of both.
static pl_status shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args, const char *tree,
                       pl_err *err) {
    parts x;
    (void)who;
    PL_TRY(take_apart(&x, args, tree, err));
    *p = x.model ? x.of_model : x.of_free;
    p->adapt = false; // MODEL's does
    if (x.of_free.max_nodes > p->max_nodes) p->max_nodes = x.of_free.max_nodes;
    if (x.of_free.depth > p->depth_max) p->depth_max = x.of_free.depth;
    p->depth = p->depth_max;
    if (x.of_free.k > p->k) p->k = x.of_free.k;
    snprintf(name, PL_TREE_TEXT, "%s", x.model ? x.model_tree : x.free_tree ? "chain:auto" : "auto");
    snprintf(p->text, sizeof p->text, "%s", name);
    return PL_OK;
}

static unsigned proposals(const char *args) {
    const char *plus = strchr(args, '+');
    return plus ? pl_drafter_proposals(plus + 1) : 1u << PL_PROPOSE_TOP;
}

static void reset(pl_drafter *d, int slot) {
    pl_drafter_reset(d->free, slot);
    if (d->model) pl_drafter_reset(d->model, slot);
}

// FREE may miss any row.
static int keep(pl_drafter *d, int slot, int n) {
    pl_drafter_reset(d->free, slot);
    return d->model ? pl_drafter_keep(d->model, slot, n) : n;
}

static int from(const pl_drafter *d, int slot, int n, int n_prompt) {
    return d->model ? pl_drafter_from(d->model, slot, n, n_prompt) : n;
}

static void ended(pl_drafter *d, int slot, const int32_t *answer, int n) {
    if (d->free->kind->ended) d->free->kind->ended(d->free, slot, answer, n);
    if (d->model && d->model->kind->ended) d->model->kind->ended(d->model, slot, answer, n);
}

static pl_status forget(pl_drafter *d, pl_err *err) {
    PL_TRY(pl_drafter_forget(d->free, err));
    return pl_drafter_forget(d->model, err);
}

static pl_status save(pl_drafter *d, pl_err *err) {
    PL_TRY(pl_drafter_save(d->free, err));
    return pl_drafter_save(d->model, err);
}

static double step_bytes(const pl_drafter *d) {
    const pl_drafter *of = d->model ? d->model : d->free;
    return of->kind->step_bytes(of);
}

static void destroy(pl_drafter *d) {
    pl_drafter_destroy(d->free);
    pl_drafter_destroy(d->model);
}

static const pl_drafter_kind kind = {.name = "hybrid",
                                     .reset = reset,
                                     .keep = keep,
                                     .from = from,
                                     .step_bytes = step_bytes,
                                     .destroy = destroy,
                                     .ended = ended,
                                     .forget = forget,
                                     .save = save};

static pl_status init(pl_drafter *d, const char *args, const pl_drafter_options *o, pl_err *err) {
    parts              x;
    pl_drafter_options of = *o;
    PL_TRY(take_apart(&x, args, o->tree, err));
    of.tree = x.free_tree;
    PL_TRY(pl_drafter_open(&d->free, x.free, &of, err));
    of.tree = x.model_tree;
    if (!x.model) return PL_OK;
    PL_TRY(pl_drafter_open(&d->model, x.model, &of, err));
    d->cache_bytes = d->free->cache_bytes + d->model->cache_bytes;
    d->n_taps = d->model->n_taps;
    memcpy(d->tap, d->model->tap, sizeof d->tap);
    return PL_OK;
}

const pl_drafter_source pl_drafter_hybrid = {.name = "hybrid",
                                             .syntax = "hybrid:FREE[+MODEL]",
                                             .help = "free drafts where they pay, a model's otherwise, or none",
                                             .shape = shape,
                                             .proposals_of = proposals,
                                             .kind = &kind,
                                             .size = sizeof(pl_drafter),
                                             .init = init};
