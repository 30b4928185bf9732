// Drafts from a datastore (REST, He et al. 2023, arXiv 2311.08252): the most frequent continuations, in other texts, of
// the end of this one.
//
//   "retrieval:PATH"   PATH: a text, a folder of texts (*.txt), or records (*.jsonl) with a member "text", as kept
//                      answers have (data/text/text.h), encoded with the target's tokenizer when the drafter is opened;
//                      or the file of a suffix:keep=FILE, which holds tokens (infer/drafter/datastore.h). Some 110
//                      bytes of memory per token, one copy for all sessions.
// The longest suffix of the session's text that occurs in the datastore, of 2 to 32 tokens, is continued by its most
// frequent continuations: the most probable nodes of the trie into which REST merges its hits, found by counts
// (infer/drafter/automaton.h) where REST walks a suffix array. --tree selects another shape. Without a hit nothing is
// drafted. Combined with a model's drafts in one tree (RASD, arXiv 2503.03434): hybrid.
#include "checkpoints/state.h"
#include "data/text/text.h"
#include "infer/drafter/automaton.h"
#include "infer/drafter/datastore.h"
#include "kernels/base/arena.h"
#include "kernels/base/log.h"

#define NODES 12
#define LEAST 2 // least tokens of a hit: the continuations of a single token depend too little on this text

typedef struct retrieval {
    pl_drafter    base;
    bool          given; // base.policy comes from --tree
    pl_automaton *store;
} retrieval;

static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    const retrieval *d = (const retrieval *)base;
    for (int i = 0; i < b->n && !ctx->measuring; i++) {
        const pl_draft_item *it = &b->item[i];
        if (!it->tree) continue;
        pl_suffix at = pl_automaton_find(d->store, it->tokens, it->n_tokens);
        if (at.length < LEAST) continue;
        pl_automaton_draft(d->store, at, d->given ? &base->policy : NULL, NODES, it->depth, it->tree);
    }
}

// Counts and edges of a few nodes.
static double step_bytes(const pl_drafter *base) {
    return 64.0 * base->policy.max_nodes;
}

static void destroy(pl_drafter *base) {
    pl_automaton_destroy(((retrieval *)base)->store);
}

static const pl_drafter_kind kind = {.name = "retrieval",
                                     .propose = propose,
                                     .keep = pl_drafter_keep_text,
                                     .step_bytes = step_bytes,
                                     .destroy = destroy};

// ---- opening --------------------------------------------------------------------------------------------------------

typedef struct ids {
    int32_t *id;
    int64_t  n;
} ids;

// Appends PL_AUTOMATON_END to each text.
static pl_status build_automaton(retrieval *d, const ids *text, int64_t n, const char *path, pl_err *err) {
    int64_t tokens = 0;
    for (int64_t i = 0; i < n; i++)
        tokens += text[i].n + 1;
    if (tokens >= INT32_MAX / 4)
        return pl_fail(err, PL_E_INPUT, "%s: %lld tokens are more than a datastore holds; take fewer texts", path,
                       (long long)tokens);
    PL_TRY(pl_automaton_create(&d->store, tokens, err));
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < text[i].n; j++)
            pl_automaton_add(d->store, text[i].id[j]);
        pl_automaton_add(d->store, PL_AUTOMATON_END);
    }
    pl_log("%s: a datastore of %lld texts, %lld tokens", path, (long long)n, (long long)(tokens - n));
    return PL_OK;
}

// Opens a file of concatenated answers.
static pl_status open_kept(retrieval *d, const char *path, const pl_drafter_options *o, pl_err *err) {
    const pl_datastore of = {.kind = PL_DATASTORE_ANSWERS, .tok = o->tok, .vocab = o->target->vocab};
    ids                all;
    PL_TRY(pl_datastore_read(path, &of, &all.id, &all.n, err));
    pl_status st =
        all.n > 0 ? build_automaton(d, &all, 1, path, err) : pl_fail(err, PL_E_INPUT, "%s: holds no answers", path);
    pl_free(all.id);
    return st;
}

static pl_status encode_texts(retrieval *d, const pl_corpus *c, const pl_tokenizer *tok, const char *path,
                              pl_err *err) {
    ids      *text = pl_calloc((size_t)c->n, sizeof *text);
    pl_status st = text ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    for (int64_t i = 0; st == PL_OK && i < c->n; i++)
        st = pl_tokenizer_encode(tok, c->docs[i].text, c->docs[i].bytes, 0, &text[i].id, &text[i].n, err);
    if (st == PL_OK) st = build_automaton(d, text, c->n, path, err);
    for (int64_t i = 0; text && i < c->n; i++)
        pl_free(text[i].id);
    pl_free(text);
    return st;
}

static pl_status shape(pl_tree_policy *p, char name[PL_TREE_TEXT], const char *who, const char *args, const char *tree,
                       pl_err *err) {
    if (!*args) return pl_fail(err, PL_E_USAGE, "drafter \"%s\": expected retrieval:PATH, PATH a text or *.jsonl", who);
    return pl_automaton_shape(p, name, who, NODES, tree, err);
}

static pl_status open_texts(retrieval *d, const char *path, const pl_drafter_options *o, pl_err *err) {
    pl_corpus *c;
    if (!o->tok)
        return pl_fail(err, PL_E_INPUT, "drafter \"retrieval:%s\": the target's tokenizer is not known here", path);
    PL_TRY(pl_corpus_read(&c, &path, 1, (pl_text_options){0}, err));
    pl_status st = encode_texts(d, c, o->tok, path, err);
    pl_corpus_destroy(c);
    return st;
}

static pl_status init(pl_drafter *base, const char *args, const pl_drafter_options *o, pl_err *err) {
    retrieval *d = (retrieval *)base;
    d->given = o->tree && *o->tree;
    return pl_state_is(args) ? open_kept(d, args, o, err) : open_texts(d, args, o, err);
}

const pl_drafter_source pl_drafter_retrieval = {.name = "retrieval",
                                                .syntax = "retrieval:PATH",
                                                .help = "what mostly followed in the texts of PATH (REST)",
                                                .shape = shape,
                                                .proposals = 1u << PL_PROPOSE_TOP,
                                                .free = true,
                                                .kind = &kind,
                                                .size = sizeof(retrieval),
                                                .init = init};
