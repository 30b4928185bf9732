#include "infer/drafter/drafter.h"

#include "infer/drafter/backbone.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PL_DRAFTER(name) extern const pl_drafter_source pl_drafter_##name;
#include "infer/drafter/drafters.def"
#undef PL_DRAFTER
#define PL_DRAFTER(name) &pl_drafter_##name,
static const pl_drafter_source *const sources[] = {
#include "infer/drafter/drafters.def"
};
#undef PL_DRAFTER
enum { SOURCES = sizeof sources / sizeof *sources };

// Returns the source that `what` names; NULL: it is a folder.
static const pl_drafter_source *find_named(const char *what, const char **from) {
    size_t n = strcspn(what, ":");
    for (int i = 0; i < SOURCES; i++) {
        const pl_drafter_source *s = sources[i];
        if (!s->syntax || strlen(s->name) != n || memcmp(s->name, what, n) != 0) continue;
        *from = what[n] ? what + n + 1 : "";
        return s;
    }
    return NULL;
}

const pl_drafter_source *pl_drafter_without_checkpoint(int i) {
    for (int s = 0; s < SOURCES; s++)
        if (sources[s]->syntax && i-- == 0) return sources[s];
    return NULL;
}

// Returns the source of drafters whose checkpoints have this config; NULL: none.
static const pl_drafter_source *find_declared(const pl_hf_config *c) {
    for (int i = 0; i < SOURCES; i++)
        if (sources[i]->declared && sources[i]->declared(c)) return sources[i];
    return NULL;
}

// Fails for a text that is neither a folder nor a drafter's name.
static pl_status fail_unknown(const char *what, pl_err *err) {
    char                     known[512] = "";
    const pl_drafter_source *s;
    for (int i = 0; (s = pl_drafter_without_checkpoint(i)); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", s->syntax);
    }
    return pl_fail(err, PL_E_INPUT, "drafter \"%s\": no such checkpoint; without one there are: %s", what, known);
}

static pl_status find_source(const pl_drafter_source **out, const char *what, const char **from, pl_err *err) {
    pl_hf_config c;
    *out = find_named(what, from);
    if (*out) return PL_OK;
    *from = what;
    if (!pl_path_exists(what)) return fail_unknown(what, err);
    PL_TRY(pl_hf_config_read(&c, what, PL_HF_DRAFTER, err));
    *out = find_declared(&c);
    if (*out) return PL_OK;
    return pl_fail(err, PL_E_UNSUPPORTED, "%s: \"%s\" is no drafter that is known here", what, c.architecture);
}

static pl_status shape(const pl_drafter_source *s, pl_tree_policy *p, char name[PL_TREE_TEXT], const char *from,
                       const char *tree, pl_err *err) {
    if (s && s->shape) {
        snprintf(name, PL_TREE_TEXT, "%s", tree ? tree : "");
        return s->shape(p, name, s->name, from, tree, err);
    }
    snprintf(name, PL_TREE_TEXT, "%s", tree && *tree ? tree : "auto");
    return pl_tree_policy_parse(p, tree, err);
}

pl_status pl_drafter_nodes(const char *who, int def, const char *args, int *nodes, const char **keep, pl_err *err) {
    char       *end = (char *)args;
    const char *word = args;
    long        n = def;
    if (*args && strncmp(args, "keep", 4) != 0) {
        n = strtol(args, &end, 10);
        word = *end == ',' && end[1] ? end + 1 : end;
        if (end == args) n = 0;
    }
    *nodes = (int)n;
    *keep = strcmp(word, "keep") == 0 ? "" : strncmp(word, "keep=", 5) == 0 && word[5] ? word + 5 : NULL;
    if (n >= 1 && n < PL_TREE_MAX && (*keep || !*word)) return PL_OK;
    return pl_fail(err, PL_E_USAGE, "drafter \"%s:%s\": expected %s[:NODES[,keep[=FILE]]], NODES in 1..%d", who, args,
                   who, PL_TREE_MAX - 1);
}

bool pl_drafter_is_folder(const char *what) {
    const char *from;
    return !find_named(what, &from);
}

bool pl_drafter_is_free(const char *what) {
    const char              *from;
    const pl_drafter_source *s = find_named(what, &from);
    return s && s->free;
}

pl_status pl_drafter_shape(pl_tree_policy *p, const char *what, const char *tree, pl_err *err) {
    const char              *from = what;
    const pl_drafter_source *s = find_named(what, &from);
    char                     name[PL_TREE_TEXT];
    return shape(s, p, name, from, tree, err);
}

static unsigned proposals(const pl_drafter_source *s, const char *from) {
    return s->proposals_of ? s->proposals_of(from) : s->proposals;
}

unsigned pl_drafter_proposals(const char *what) {
    const char              *from;
    const pl_drafter_source *s = find_named(what, &from);
    return s ? proposals(s, from) : 0;
}

static pl_status open_source(pl_drafter **out, const pl_drafter_source *s, const char *from,
                             const pl_tree_policy *policy, const pl_drafter_options *o, pl_err *err) {
    pl_drafter *d = pl_calloc(1, s->size);
    if (!d) return pl_fail(err, PL_E_MEMORY, "drafter \"%s\": out of memory", s->name);
    *d = (pl_drafter){.kind = s->kind,
                      .policy = *policy,
                      .proposals = proposals(s, from),
                      .max_sessions = o->max_sessions,
                      .max_rows = o->max_rows};
    pl_status st = s->init ? s->init(d, from, o, err) : PL_OK;
    if (st == PL_OK)
        *out = d;
    else
        pl_drafter_destroy(d);
    return st;
}

pl_status pl_drafter_open(pl_drafter **out, const char *what, const pl_drafter_options *o, pl_err *err) {
    const pl_drafter_source *s;
    const char              *from;
    pl_tree_policy           policy;
    char                     name[PL_TREE_TEXT];
    *out = NULL;
    PL_TRY(find_source(&s, what, &from, err));
    PL_TRY(shape(s, &policy, name, from, o->tree, err));
    PL_TRY(open_source(out, s, from, &policy, o, err));
    memcpy((*out)->tree, name, sizeof name);
    return PL_OK;
}

pl_status pl_drafter_over(pl_drafter **out, const pl_backbone *model, const pl_tree_policy *policy,
                          const pl_drafter_options *o, pl_err *err) {
    const pl_drafter_source *s = find_declared(&model->config);
    pl_drafter_options       of = *o;
    *out = NULL;
    PL_CHECK(s, "no drafter is declared by a backbone of kind \"%s\"", pl_backbone_name(model));
    of.model = model;
    return open_source(out, s, pl_backbone_name(model), policy, &of, err);
}

void pl_drafter_reset(pl_drafter *d, int slot) {
    if (d->kind->reset) d->kind->reset(d, slot);
}

int pl_drafter_keep(pl_drafter *d, int slot, int n) {
    if (n > 0 && d->kind->keep) return d->kind->keep(d, slot, n);
    pl_drafter_reset(d, slot);
    return 0;
}

int pl_drafter_from(const pl_drafter *d, int slot, int n, int n_prompt) {
    return d->kind->from ? d->kind->from(d, slot, n, n_prompt) : n;
}

int pl_drafter_keep_text(pl_drafter *d, int slot, int n) {
    pl_drafter_reset(d, slot);
    return n;
}

pl_status pl_drafter_forget(pl_drafter *d, pl_err *err) {
    return d && d->kind->forget ? d->kind->forget(d, err) : PL_OK;
}

pl_status pl_drafter_retake(pl_drafter *d, const char *dir, const pl_llama *target, pl_dtype t, pl_err *err) {
    if (!d->kind->retake)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: the drafter in use (%s) has no weights to replace", dir,
                       d->kind->name);
    return d->kind->retake(d, dir, target, t, err);
}

pl_status pl_drafter_save(pl_drafter *d, pl_err *err) {
    return d && d->kind->save ? d->kind->save(d, err) : PL_OK;
}

void pl_drafter_destroy(pl_drafter *d) {
    if (d && d->kind->destroy) d->kind->destroy(d);
    pl_free(d);
}
