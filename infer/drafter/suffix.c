// Drafts from a suffix automaton (SuffixDecoding, Oliaro et al. 2024, arXiv 2411.04975): the most frequent
// continuations of the text's end, earlier in this text and in previous answers.
//
//   "suffix[:NODES[,keep[=FILE]]]"
//                the longest suffix of the session's text, prompt included, that occurs earlier in it; its
//                continuations by frequency: the NODES (12) most probable ones, which share prefixes and so form a
//                tree, none below 1 in 20. --tree selects another shape: chains (chain:auto, chain:N) or trees (auto,
//                static:...).
//   keep         also searches all answers of this process that have ended: the longer match wins, ties go to the text.
//   keep=FILE    and those in FILE when it was opened (infer/drafter/datastore.h); saving writes all of them there.
// A repetitive text is drafted as repeating, since the search continues after drafted tokens.
//
// With `keep` drafts, and so speed, depend on which answers ended before, and so on the order of prompts, on their
// batch and, where trees adapt, on timing; with verifier match the text does not. Answers enter when their session
// ends, in that order. The last 131,072 to 262,144 tokens are kept: when one half is full the other is dropped.
#include "infer/drafter/automaton.h"
#include "infer/drafter/datastore.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <stdio.h>
#include <string.h>

#define NODES 12
#define KEPT (1 << 17) // tokens per half

typedef struct suffix {
    pl_drafter     base;
    bool           given; // base.policy comes from --tree
    int            nodes;
    pl_automaton **own;     // [sessions]
    pl_automaton  *kept[2]; // NULL: nothing is kept; [0] is the one that grows
    char          *file;    // NULL: not saved
    pl_datastore   of;
    int32_t       *opened; // [n_opened] the file's contents
    int64_t        n_opened;
} suffix;

static void take_in(suffix *d, const pl_draft_item *it) {
    pl_automaton *a = d->own[it->slot];
    for (int64_t i = pl_automaton_tokens(a); i < it->n_tokens; i++)
        pl_automaton_add(a, it->tokens[i]);
}

static void propose_one(const suffix *d, const pl_draft_item *it) {
    const pl_automaton *own = d->own[it->slot], *from = own;
    pl_suffix           at = pl_automaton_repeated(own);
    for (int i = 0; i < 2 && d->kept[i]; i++) {
        pl_suffix other = pl_automaton_find(d->kept[i], it->tokens, it->n_tokens);
        if (other.length <= at.length) continue;
        from = d->kept[i];
        at = other;
    }
    pl_automaton_draft(from, at, d->given ? &d->base.policy : NULL, d->nodes, it->depth, it->tree);
}

static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    suffix *d = (suffix *)base;
    if (ctx->measuring) return;
    for (int i = 0; i < b->n; i++) {
        take_in(d, &b->item[i]);
        if (b->item[i].tree) propose_one(d, &b->item[i]);
    }
}

static void reset(pl_drafter *base, int slot) {
    pl_automaton_clear(((suffix *)base)->own[slot]);
}

static void remember_answer(suffix *d, const int32_t *answer, int64_t n) {
    if (n == 0 || n >= KEPT) return;
    if (pl_automaton_room(d->kept[0]) <= n) {
        pl_automaton *full = d->kept[0];
        d->kept[0] = d->kept[1];
        d->kept[1] = full;
        pl_automaton_clear(d->kept[0]);
    }
    for (int64_t i = 0; i < n; i++)
        pl_automaton_add(d->kept[0], answer[i]);
    pl_automaton_add(d->kept[0], PL_AUTOMATON_END);
}

static void ended(pl_drafter *base, int slot, const int32_t *answer, int n) {
    suffix *d = (suffix *)base;
    (void)slot;
    if (d->kept[0]) remember_answer(d, answer, n);
}

// Restores the state after opening, as if the file's answers had just ended one after the other.
static pl_status forget(pl_drafter *base, pl_err *err) {
    suffix *d = (suffix *)base;
    (void)err;
    for (int i = 0; i < 2 && d->kept[i]; i++)
        pl_automaton_clear(d->kept[i]);
    for (int64_t i = 0, first = 0; i < d->n_opened; i++)
        if (d->opened[i] == PL_AUTOMATON_END || i == d->n_opened - 1) {
            remember_answer(d, d->opened + first, i + (d->opened[i] != PL_AUTOMATON_END) - first);
            first = i + 1;
        }
    return PL_OK;
}

static pl_status save(pl_drafter *base, pl_err *err) {
    const suffix *d = (const suffix *)base;
    if (!d->file) return PL_OK;
    int64_t  older = pl_automaton_tokens(d->kept[1]), n = pl_automaton_tokens(d->kept[0]);
    int32_t *all = pl_malloc((size_t)(older + n + 1) * sizeof *all);
    if (!all) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", d->file);
    memcpy(all, pl_automaton_text(d->kept[1]), (size_t)older * sizeof *all);
    memcpy(all + older, pl_automaton_text(d->kept[0]), (size_t)n * sizeof *all);
    pl_status st = pl_datastore_write(d->file, &d->of, all, older + n, err);
    pl_free(all);
    return st;
}

// Counts and edges of a few nodes.
static double step_bytes(const pl_drafter *base) {
    return 64.0 * base->policy.max_nodes;
}

static void destroy(pl_drafter *base) {
    suffix *d = (suffix *)base;
    for (int i = 0; d->own && i < base->max_sessions; i++)
        pl_automaton_destroy(d->own[i]);
    pl_free(d->own);
    for (int i = 0; i < 2; i++)
        pl_automaton_destroy(d->kept[i]);
    pl_free(d->file);
    pl_free(d->opened);
}

static const pl_drafter_kind kind = {.name = "suffix",
                                     .propose = propose,
                                     .reset = reset,
                                     .keep = pl_drafter_keep_text,
                                     .step_bytes = step_bytes,
                                     .destroy = destroy,
                                     .ended = ended,
                                     .forget = forget,
                                     .save = save};

// ---- opening --------------------------------------------------------------------------------------------------------

static pl_status shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args, const char *tree,
                       pl_err *err) {
    int         nodes;
    const char *keep;
    PL_TRY(pl_drafter_nodes(who, NODES, args, &nodes, &keep, err));
    return pl_automaton_shape(p, name, who, nodes, tree, err);
}

static pl_status open_file(suffix *d, const pl_drafter_options *o, const char *path, pl_err *err) {
    d->of = (pl_datastore){.kind = PL_DATASTORE_ANSWERS, .tok = o->tok, .vocab = o->target->vocab};
    d->file = pl_strdup(path);
    if (!d->file) return pl_fail(err, PL_E_MEMORY, "drafter \"suffix\": out of memory");
    PL_TRY(pl_file_look(path, err)); // fails early if the file cannot be written
    PL_TRY(pl_datastore_read(path, &d->of, &d->opened, &d->n_opened, err));
    return forget(&d->base, err);
}

// keep: as pl_drafter_nodes returns it.
static pl_status fill_texts(suffix *d, const pl_drafter_options *o, const char *keep, pl_err *err) {
    d->own = pl_calloc((size_t)o->max_sessions, sizeof(void *));
    if (!d->own) return pl_fail(err, PL_E_MEMORY, "drafter \"suffix\": out of memory");
    for (int i = 0; i < o->max_sessions; i++)
        PL_TRY(pl_automaton_create(&d->own[i], (int64_t)o->slots + 1, err));
    for (int i = 0; i < 2 && keep; i++)
        PL_TRY(pl_automaton_create(&d->kept[i], KEPT, err));
    return keep && *keep ? open_file(d, o, keep, err) : PL_OK;
}

static pl_status init(pl_drafter *base, const char *args, const pl_drafter_options *o, pl_err *err) {
    suffix     *d = (suffix *)base;
    const char *keep;
    PL_TRY(pl_drafter_nodes("suffix", NODES, args, &d->nodes, &keep, err));
    d->given = o->tree && *o->tree;
    return fill_texts(d, o, keep, err);
}

const pl_drafter_source pl_drafter_suffix = {
    .name = "suffix",
    .syntax = "suffix[:NODES[,keep[=FILE]]]",
    .help = "what mostly followed the longest end of the text that came before; keep: in answers too",
    .shape = shape,
    .proposals = 1u << PL_PROPOSE_TOP,
    .free = true,
    .kind = &kind,
    .size = sizeof(suffix),
    .init = init};
