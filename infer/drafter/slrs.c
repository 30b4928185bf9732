// String-level rejection sampling (arXiv 2502.05202, Algorithm 3): a model of another vocabulary drafts the target's
// tokens from the distribution of its own strings (string_law.h); any verifier handles them as drawn tokens.
//
//   "slrs:PATH[:TOKENIZER][,strings=N]"
//
// A string is extended while its probability is at least 1 / N (16 unless given), so at most N strings a level: target
// tokens that only rarer strings reach have psi 0 and are never drafted. N bounds the rows of a forward.
//
// The paper drafts one token a cycle, as the rest of a string after its first token has no known distribution. Here the
// drafter reads the text with t_1 appended, in its own tokens, and the distribution of its next strings is computed
// anew: a distribution of t_2 given t_1, which is all that verification needs, so chains of any length are drafted.
// Rows that the new text shares with the written one are not read again (draft_model.h).
//
//   "omni:PATH[:TOKENIZER][,strings=N]"
//
// A variant has OmniDraft's n-gram cache (arXiv 2507.02659; ngrams.h) in place of all strings: it drafts tokens that
// both vocabularies have, and target tokens that have occurred and that the drafter writes as several. A token then
// takes one forward unless the drawn token begins a list. The cache grows with every text, prompts included, over all
// sessions of the process: drafts, and so speed, depend on earlier texts; the text's distribution does not. OmniDraft
// gives a merged token the product of its parts' probabilities; here a list's probability is taken from the token that
// begins it, so that the distribution is that of the drawn token.
//
// Two statements of the paper do not hold to the letter. Theorem 3.1 says that exact matching accepts less than
// rejection sampling where q = p and two probabilities differ; with p(t) = 1 for one token two differ, and both always
// accept: it holds where some 0 < p(t) < 1 (tests/infer/test_string_law.c). And Algorithm 3's line 7 must be read as
// "else", or a token with p >= psi would be tested twice.
#include "infer/drafter/string_law.h"
#include "infer/drafter/translation.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CAP 8 // most drafter tokens of one target token
#define STRINGS 16
#define STRINGS_MAX 1024

enum { NO_PLACE = -2 };

typedef struct drafting {
    bool          on;
    int           node, level;
    int           state; // the next state whose row of logits arrives
    double       *psi;
    double       *best; // [vt] psi if nothing is drawn
    int          *row;  // [law.most] drafted row of a state
    pl_string_law law;
} drafting;

typedef struct slrs {
    pl_standalone        own;
    pl_ngrams            grams;   // omni
    bool                 cached;  // omni
    int                  strings; // most strings of a level
    int32_t             *learned; // [sessions] tokens of the text that the cache has learned
    float               *said;    // [vd] logits of the tokens that may come first
    drafting            *at;      // [sessions], by item
    double              *dist;    // [vd]
    pl_distribution_work work;
} slrs;

// Computes the drafter's distribution after a state, as the session samples, or its best token.
static bool find_next(slrs *d, const pl_draft_item *it, const float *logits) {
    pl_sampling s = {.top_p = 1};
    if (it->proposing) s = pl_sampling_bare(it->proposing->sampling);
    return pl_distribution(d->dist, logits, d->own.tr.vd, &s, &(pl_history){0}, &d->work);
}

// Masks tokens that neither are the target's nor begin a list; temperature, top-k, ... act on the others.
static const float *mask_unsayable(slrs *d, const float *logits) {
    const pl_translation *tr = &d->own.tr;
    for (int64_t i = 0; i < tr->vd; i++)
        d->said[i] = tr->to_target[i] >= 0 || d->grams.root[i] ? logits[i] : -INFINITY;
    return d->said;
}

static void begin_token(drafting *a, const pl_draft_item *it) {
    a->psi = it->proposing ? pl_propose_row(it->proposing) : a->best;
    a->state = 0;
    a->row[0] = -1;
    pl_string_law_begin(&a->law, a->psi);
}

// Chooses a token from the finished distribution and appends it to the text. Returns false when the draft ends.
static bool choose_token(slrs *d, pl_ctx *ctx, drafting *a, pl_draft_item *it) {
    const pl_tree_policy *policy = &d->own.base.policy;
    pl_transcript        *text = &d->own.tr.text[it->slot];
    bool                  good = pl_string_law_end(&a->law);
    int32_t               id = -1;
    float                 logp = 0;
    pl_err                err = {0};
    if (it->proposing)
        pl_propose_from(it->proposing, it->tree, a->node, good ? a->psi : NULL, 1, &id, &logp);
    else if (good)
        id = (int32_t)pl_propose_best(a->psi, d->own.tr.vt);
    int next, n = policy->kind->grow(policy, it->tree, a->level, &a->node, 1, &id, &logp, &next);
    if (n > 0) a->node = next;
    if (n == 0 || ++a->level >= policy->depth || a->level >= it->depth || id == a->law.end_target) return false;
    if (text->n_said == text->said_room) return false;
    pl_status st = pl_transcript_add(text, id, &err);
    if (st != PL_OK) pl_ctx_fail(ctx, st, "drafter \"%s\": %s", d->own.base.kind->name, err.msg);
    if (st != PL_OK || text->full || !pl_draft_model_context(&d->own.model, it->slot, text->ids, text->n, true))
        return false;
    begin_token(a, it);
    return true;
}

// Takes the rows of logits that arrived for an item. Returns the start of the next item's rows.
static const float *take_rows(slrs *d, drafting *a, const pl_draft_item *it, const float *logits) {
    for (int to = a->law.n; a->state < to; a->state++) {
        if (a->row[a->state] == NO_PLACE) continue;
        if (find_next(d, it, d->cached && a->state == 0 ? mask_unsayable(d, logits) : logits))
            pl_string_law_take(&a->law, a->state, d->dist);
        logits += d->own.tr.vd;
    }
    return logits;
}

// Queues rows for the new states; if there are none, the distribution is complete. Invalidates earlier logits.
static void queue_rows(slrs *d, pl_ctx *ctx, drafting *a, pl_draft_item *it) {
    for (int s = a->state; s < a->law.n; s++) {
        const pl_string_state *x = &a->law.state[s];
        a->row[s] = pl_draft_model_row(&d->own.model, it->slot, x->token, a->row[x->parent]);
        if (a->row[s] >= 0) continue;
        a->row[s] = NO_PLACE;
        pl_string_law_stop(&a->law, s);
    }
    if (a->law.n == a->state) a->on = choose_token(d, ctx, a, it);
}

static void learn_tokens(slrs *d, const pl_draft_item *it) {
    for (int32_t *i = &d->learned[it->slot]; *i < it->n_tokens; ++*i)
        pl_ngrams_learn(&d->grams, it->tokens[*i]);
}

static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    slrs  *d = (slrs *)base;
    double began = pl_now(), at = began;
    if (ctx->measuring) return; // its model runs its own steps
    for (int i = 0; i < b->n && d->cached; i++)
        learn_tokens(d, &b->item[i]);
    for (int i = 0; i < b->n; i++) {
        drafting *a = &d->at[i];
        a->on = pl_standalone_take_in(&d->own, ctx, &b->item[i]);
        a->node = a->level = 0;
        if (a->on) begin_token(a, &b->item[i]);
    }
    const float *logits = pl_draft_model_run(&d->own.model);
    pl_draft_lap(&base->parts.take_in, &at);
    while (logits) {
        for (int i = 0; i < b->n; i++)
            if (d->at[i].on) logits = take_rows(d, &d->at[i], &b->item[i], logits);
        for (int i = 0; i < b->n; i++)
            if (d->at[i].on) queue_rows(d, ctx, &d->at[i], &b->item[i]);
        pl_draft_lap(&base->parts.draw, &at);
        logits = pl_draft_model_run(&d->own.model);
        pl_draft_lap(&base->parts.layer, &at);
    }
    for (int i = 0; i < b->n; i++)
        if (b->item[i].tree) pl_tree_notes_share(b->item[i].tree, began, pl_now(), NULL);
    pl_draft_model_check(&d->own.model, ctx);
}

// ---- opening --------------------------------------------------------------------------------------------------------

static void destroy(pl_drafter *base) {
    slrs *d = (slrs *)base;
    for (int i = 0; d->at && i < base->max_sessions; i++) {
        pl_string_law_fini(&d->at[i].law);
        pl_free(d->at[i].best);
        pl_free(d->at[i].row);
    }
    pl_standalone_close(&d->own);
    pl_distribution_work_fini(&d->work);
    pl_ngrams_close(&d->grams);
    pl_free(d->learned);
    pl_free(d->said);
    pl_free(d->at);
    pl_free(d->dist);
}

static pl_status out_of_memory(const slrs *d, pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "drafter \"%s\": out of memory", d->own.base.kind->name);
}

static pl_status allocate_law(slrs *d, const pl_drafter_options *o, pl_err *err) {
    const pl_translation *tr = &d->own.tr;
    d->at = pl_calloc((size_t)o->max_sessions, sizeof *d->at);
    d->dist = pl_calloc((size_t)tr->vd, sizeof *d->dist);
    d->learned = pl_calloc((size_t)o->max_sessions, sizeof *d->learned);
    d->said = pl_calloc((size_t)tr->vd, sizeof *d->said);
    if (!d->at || !d->dist || !d->learned || !d->said) return out_of_memory(d, err);
    if (d->cached) PL_TRY(pl_ngrams_open(&d->grams, &tr->target, tr->vt, &tr->draft, tr->vd, tr->to_draft, err));
    for (int i = 0; i < o->max_sessions; i++) {
        drafting *a = &d->at[i];
        PL_TRY(pl_string_law_init(&a->law, &tr->target, tr->vt, &tr->draft, tr->vd, CAP, 1.0 / d->strings, err));
        if (d->cached) pl_string_law_use(&a->law, &d->grams, tr->to_target);
        PL_CHECK(a->law.most <= 1 + CAP * d->strings, "%d states", a->law.most);
        a->best = pl_calloc((size_t)tr->vt, sizeof *a->best);
        a->row = pl_calloc((size_t)a->law.most, sizeof *a->row);
        if (!a->best || !a->row) return out_of_memory(d, err);
    }
    return pl_distribution_work_init(&d->work, tr->vd, err);
}

static void reset(pl_drafter *base, int slot) {
    pl_standalone_reset(base, slot);
    ((slrs *)base)->learned[slot] = 0;
}

static int keep(pl_drafter *base, int slot, int n) {
    ((slrs *)base)->learned[slot] = 0;
    return pl_standalone_keep(base, slot, n);
}

static pl_status forget(pl_drafter *base, pl_err *err) {
    slrs *d = (slrs *)base;
    (void)err;
    pl_ngrams_forget(&d->grams);
    memset(d->learned, 0, (size_t)base->max_sessions * sizeof *d->learned);
    return PL_OK;
}

static const pl_drafter_kind slrs_kind = {.name = "slrs",
                                          .propose = propose,
                                          .reset = reset,
                                          .keep = keep,
                                          .step_bytes = pl_standalone_step_bytes,
                                          .destroy = destroy};
static const pl_drafter_kind omni_kind = {.name = "omni",
                                          .propose = propose,
                                          .reset = reset,
                                          .keep = keep,
                                          .step_bytes = pl_standalone_step_bytes,
                                          .destroy = destroy,
                                          .forget = forget};

// Splits off ",strings=N". A path may hold it: an existing path is not split. *path becomes the caller's.
static pl_status read_strings(char **path, int *strings, const char *name, const char *args, pl_err *err) {
    static const char key[] = ",strings=";
    const char       *at = pl_path_exists(args) ? NULL : strstr(args, key);
    char             *end = (char *)args + strlen(args);
    long              n = at ? strtol(at + strlen(key), &end, 10) : STRINGS;
    if (n < 1 || n > STRINGS_MAX || *end)
        return pl_fail(err, PL_E_USAGE, "drafter \"%s:%s\": expected strings=N, N in 1..%d", name, args, STRINGS_MAX);
    *strings = (int)n;
    *path = pl_sprintf("%.*s", (int)(at ? (size_t)(at - args) : strlen(args)), args);
    return *path ? PL_OK : pl_fail(err, PL_E_MEMORY, "drafter \"%s\": out of memory", name);
}

static pl_status init(pl_drafter *base, const char *args, const pl_drafter_options *o, pl_err *err) {
    slrs *d = (slrs *)base;
    char *path;
    d->cached = base->kind == &omni_kind;
    PL_TRY(read_strings(&path, &d->strings, base->kind->name, args, err));
    pl_status st = pl_standalone_open(&d->own, path, d->strings, CAP * d->strings, true, o, err);
    pl_free(path);
    if (st == PL_OK) pl_standalone_warn_stops(&d->own);
    return st == PL_OK ? allocate_law(d, o, err) : st;
}

const pl_drafter_source pl_drafter_slrs = {.name = "slrs",
                                           .syntax = "slrs:PATH[:TOKENIZER][,strings=N]",
                                           .help = "the same, drawn from the law of its strings (SLRS)",
                                           .shape = pl_standalone_chain,
                                           .kind = &slrs_kind,
                                           .size = sizeof(slrs),
                                           .init = init};
const pl_drafter_source pl_drafter_omni = {.name = "omni",
                                           .syntax = "omni:PATH[:TOKENIZER][,strings=N]",
                                           .help = "the same, of tokens in both and of those that the target has said",
                                           .shape = pl_standalone_chain,
                                           .kind = &omni_kind,
                                           .size = sizeof(slrs),
                                           .init = init};
