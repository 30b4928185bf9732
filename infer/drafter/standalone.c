// Shared parts of drafters with a model of their own.
#include "infer/drafter/translation.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"

#include <stdio.h>
#include <string.h>

#define LONGER 4 // a context may have this many times the target's positions, as the drafter's tokens may be shorter

// Splits PATH[:TOKENIZER]. A path may hold a colon: an existing path is not split.
static pl_status split_paths(char **path, char **tokenizer, const char *name, const char *args, pl_err *err) {
    const char *colon = pl_path_exists(args) ? NULL : strrchr(args, ':');
    *path = *tokenizer = NULL;
    if (!*args)
        return pl_fail(err, PL_E_USAGE,
                       "drafter \"%s\": expected %s:PATH[:TOKENIZER], PATH a model as --target takes it", name, name);
    *path = colon ? pl_sprintf("%.*s", (int)(colon - args), args) : pl_strdup(args);
    if (colon) *tokenizer = pl_strdup(colon + 1);
    if (*path && !colon == !*tokenizer) return PL_OK;
    return pl_fail(err, PL_E_MEMORY, "drafter \"%s\": out of memory", name);
}

static pl_status check_same(const pl_standalone *d, const char *path, const pl_drafter_options *o, pl_err *err) {
    const pl_tokenizer *own = d->model.target.tok;
    bool same = o->tok && own ? pl_translation_same(o->tok, own) : d->model.target.model.vocab == o->target->vocab;
    if (same) return PL_OK;
    return pl_fail(err, PL_E_INPUT,
                   "drafter lm:%s: its vocabulary is not the target's; take slem:, tli: or slrs: for lm:", path);
}

static pl_status open_model(pl_standalone *d, const char *path, const char *tokenizer, int per_level, int drafted,
                            bool translated, const pl_drafter_options *o, pl_err *err) {
    const char *name = d->base.kind->name;
    PL_TRY(pl_draft_model_open(&d->model, path, tokenizer, translated ? LONGER * o->slots : o->slots, per_level,
                               drafted, o, err));
    d->base.cache_bytes = d->model.cache_bytes;
    return translated ? pl_translation_open(&d->tr, &d->model, name, o, err) : check_same(d, path, o, err);
}

pl_status pl_standalone_open(pl_standalone *d, const char *args, int per_level, int drafted, bool translated,
                             const pl_drafter_options *o, pl_err *err) {
    char     *path, *tokenizer;
    pl_status st = split_paths(&path, &tokenizer, d->base.kind->name, args, err);
    if (st == PL_OK) st = open_model(d, path, tokenizer, per_level, drafted, translated, o, err);
    pl_free(path);
    pl_free(tokenizer);
    return st;
}

void pl_standalone_warn_stops(const pl_standalone *d) {
    const char *dir = d->model.target.model.path;
    char       *path = pl_path_join(dir, PL_STOPPING_FILE);
    if (path && pl_path_exists(path))
        pl_log_warn("drafter %s:%s: does not read " PL_STOPPING_FILE "; drafts end by it with lm, tli and union",
                    d->base.kind->name, dir);
    pl_free(path);
}

void pl_standalone_close(pl_standalone *d) {
    pl_translation_close(&d->tr);
    pl_draft_model_close(&d->model);
}

void pl_standalone_reset(pl_drafter *base, int slot) {
    pl_standalone *d = (pl_standalone *)base;
    pl_draft_model_reset(&d->model, slot);
    if (d->tr.text) pl_transcript_clear(&d->tr.text[slot]);
}

// The model's context finds its rows of the same tokens itself.
int pl_standalone_keep(pl_drafter *base, int slot, int n) {
    pl_standalone *d = (pl_standalone *)base;
    if (d->tr.text) pl_transcript_clear(&d->tr.text[slot]);
    return n;
}

double pl_standalone_step_bytes(const pl_drafter *base) {
    return pl_draft_model_bytes(&((const pl_standalone *)base)->model);
}

bool pl_standalone_take_in(pl_standalone *d, pl_ctx *ctx, const pl_draft_item *it) {
    const int32_t       *ids = it->tokens;
    const pl_transcript *text;
    int                  n = it->tree ? it->n_tokens : it->first + it->count;
    if (d->tr.text) {
        if (!pl_translation_tell(&d->tr, ctx, it->slot, ids, n, &text)) return false;
        ids = text->ids;
        n = text->n;
    }
    return pl_draft_model_context(&d->model, it->slot, ids, n, it->tree) && it->tree;
}

pl_status pl_standalone_tree(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args,
                             const char *tree, pl_err *err) {
    (void)who, (void)args;
    if (!tree || !*tree) snprintf(name, PL_TREE_TEXT, "chain:auto");
    return pl_tree_policy_parse(p, tree && *tree ? tree : name, err);
}

pl_status pl_standalone_scored_chain(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args,
                                     const char *tree, pl_err *err) {
    PL_TRY(pl_standalone_tree(p, name, who, args, tree, err));
    if (p->width == 1 && p->k == 1) return PL_OK;
    return pl_fail(err, PL_E_USAGE, "drafter \"%s\" drafts chains, not the tree \"%s\": take chain:LENGTH", who, tree);
}

pl_status pl_standalone_chain(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args,
                              const char *tree, pl_err *err) {
    PL_TRY(pl_standalone_tree(p, name, who, args, tree, err));
    if (p->stops)
        return pl_fail(err, PL_E_USAGE,
                       "drafter \"%s\" has no probabilities of what it drafts for \"%s\": take chain:auto", who, tree);
    return pl_standalone_scored_chain(p, name, who, args, tree, err);
}
