#include "infer/decode/hybrid_parts.h"

#include <stdio.h>
#include <string.h>

static bool is_hybrid(const char *text) {
    return strncmp(text, "hybrid", 6) == 0 && (!text[6] || text[6] == ':');
}

// "FREE[+MODEL]"; *model NULL: there is none.
static pl_status split(char *text, size_t size, const char *args, const char **model, pl_err *err) {
    size_t n = strcspn(args, "+");
    if (n == 0 || (args[n] && !args[n + 1]) || n >= size)
        return pl_fail(err, PL_E_USAGE, "drafter \"hybrid:%s\": expected hybrid:FREE[+MODEL], as hybrid:suffix+PATH",
                       args);
    memcpy(text, args, n);
    text[n] = 0;
    *model = args[n] ? args + n + 1 : NULL;
    if (is_hybrid(text) || (*model && is_hybrid(*model)))
        return pl_fail(err, PL_E_USAGE, "drafter \"hybrid:%s\": there is no hybrid in a hybrid", args);
    if (!pl_drafter_is_folder(text)) return PL_OK;
    return pl_fail(err, PL_E_USAGE,
                   "drafter \"hybrid:%s\": \"%s\" is no drafter without a checkpoint; it comes behind +", args, text);
}

pl_status pl_hybrid_parts_of(pl_hybrid_parts *x, const char *args, const char *tree, pl_err *err) {
    bool confidence = tree && strcmp(tree, "chain:confidence") == 0;
    bool chains = confidence || (tree && strcmp(tree, "chain:auto") == 0);
    if (tree && *tree && !chains && strcmp(tree, "auto") != 0)
        return pl_fail(
            err, PL_E_USAGE,
            "drafter \"hybrid\" chooses its tree in every cycle: auto, chain:auto or chain:confidence, not \"%s\"",
            tree);
    PL_TRY(split(x->free, sizeof x->free, args, &x->model, err));
    x->free_tree = chains ? "chain:16" : NULL;
    PL_TRY(pl_drafter_shape(&x->of_free, x->free, x->free_tree, err));
    if (x->of_free.adapt) PL_TRY(pl_drafter_shape(&x->of_free, x->free, x->free_tree = "chain:16", err));
    if (x->of_free.max_nodes > PL_HYBRID_NODES)
        return pl_fail(err, PL_E_USAGE, "drafter \"hybrid\": \"%s\" drafts %d tokens, at most %d", x->free,
                       x->of_free.max_nodes - 1, PL_HYBRID_NODES - 1);
    if (!x->model && confidence)
        return pl_fail(err, PL_E_USAGE,
                       "drafter \"hybrid:%s\": a MODEL's drafts end by confidence, and there is none: take chain:auto",
                       args);
    if (!x->model) return PL_OK;
    x->model_tree = confidence ? "chain:confidence" : chains ? "chain:auto" : "auto";
    pl_err ignored = {0};
    if (confidence) return pl_drafter_shape(&x->of_model, x->model, x->model_tree, err);
    if (pl_drafter_shape(&x->of_model, x->model, x->model_tree, &ignored) == PL_OK) return PL_OK;
    return pl_drafter_shape(&x->of_model, x->model, x->model_tree = "chain:auto", err);
}

pl_status pl_hybrid_shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *args, const char *tree, pl_err *err) {
    pl_hybrid_parts x;
    PL_TRY(pl_hybrid_parts_of(&x, args, tree, err));
    *p = x.model ? x.of_model : x.of_free;
    p->adapt = false; // by itself
    if (x.of_free.max_nodes > p->max_nodes) p->max_nodes = x.of_free.max_nodes;
    if (x.of_free.depth > p->depth_max) p->depth_max = x.of_free.depth;
    p->depth = p->depth_max;
    if (x.of_free.k > p->k) p->k = x.of_free.k;
    snprintf(name, PL_TREE_TEXT, "%s", x.model ? x.model_tree : x.free_tree ? "chain:auto" : "auto");
    snprintf(p->text, sizeof p->text, "%s", name);
    return PL_OK;
}

unsigned pl_hybrid_proposals(const char *args) {
    const char *plus = strchr(args, '+');
    return plus ? pl_drafter_proposals(plus + 1) : 1u << PL_PROPOSE_TOP;
}
