// String-level exact match (arXiv 2502.05202, Algorithm 2): the drafter writes a text in its own tokens, the target's
// tokenizer encodes it, and these tokens are a chain for exact matching: the target's own draw decides and is followed
// where it was drafted. So the text is plain sampling's, token for token, whatever the two tokenizers are.
//
//   "slem:PATH[:TOKENIZER]"
//
// The drafter draws its tokens as the session samples (line 5), with coins of its own, and writes its best ones in a
// greedy session. The first token t is then accepted with probability sum over t of p(t) psi(t), psi the distribution
// of the first token of the drafter's strings (Table 3).
//
// Borders. The draft is encoded together with the words before it, and counts from the border on (pl_lexicon_continue),
// so the target's text is never re-encoded. Its last token may be an artefact of where the draft was cut; it is drafted
// all the same, as it costs one row and may be right. The number of drafter tokens is the requested number of target
// tokens times the ratio of both so far in this text.
#include "infer/drafter/translation.h"
#include "kernels/base/arena.h"

#include <math.h>
#include <string.h>

#define WRITTEN 64 // most drafter tokens of one draft

typedef struct writing {
    int  left, row; // tokens that may still be written; row of the last one
    bool ended;     // by a token that ends an answer
    int  n;
    char text[4096]; // the written text
} writing;

typedef struct slem {
    pl_standalone        own;
    writing             *w;    // [sessions]
    double              *dist; // [vd] the drafter's distribution of a token
    pl_distribution_work work;
} slem;

static int levels_of(const slem *d, const pl_draft_item *it) {
    return it->depth < d->own.base.policy.depth ? it->depth : d->own.base.policy.depth;
}

// Returns the number of drafter tokens that correspond to `depth` target tokens.
static int count_wanted(const slem *d, const pl_draft_item *it, int depth) {
    const pl_transcript *t = &d->own.tr.text[it->slot];
    int                  n = (int)ceil((double)depth * t->n / (t->n_said > 0 ? t->n_said : 1));
    n = n < depth ? depth : n;
    return n < WRITTEN ? n : WRITTEN;
}

// Returns the next token of an item's text from a row of results; -1: its logits are not numbers.
static int32_t choose_token(slem *d, const pl_draft_item *it, const pl_draft_best *best, int row) {
    int64_t vd = d->own.tr.vd;
    if (!it->writing) return best->id[row];
    pl_sampling s = pl_sampling_bare(it->writing->sampling);
    if (!pl_distribution(d->dist, best->logits + row * vd, vd, &s, &(pl_history){0}, &d->work)) return -1;
    return (int32_t)it->writing->coin->draw(it->writing->coin, d->dist, vd, -1);
}

// Appends one token; returns false when the text is complete.
static bool write_token(slem *d, writing *w, const pl_draft_item *it, int32_t id) {
    size_t n;
    if (id < 0) return false;
    const char *s = pl_lexicon_bytes(&d->own.tr.draft, id, &n);
    w->ended = id == pl_tokenizer_eos_id(d->own.tr.draft.tok);
    if (w->ended || n == 0 || (size_t)w->n + n > sizeof w->text) return false;
    memcpy(w->text + w->n, s, n);
    w->n += (int)n;
    if (--w->left == 0) return false;
    w->row = pl_draft_model_row(&d->own.model, it->slot, id, w->row);
    return w->row >= 0;
}

// Encodes the written text as a chain of the target's tokens.
static void read_chain(slem *d, pl_ctx *ctx, const writing *w, pl_draft_item *it, int depth) {
    const pl_tree_policy *policy = &d->own.base.policy;
    const pl_translation *tr = &d->own.tr;
    int32_t               id[PL_TREE_MAX];
    size_t                n_tail;
    int                   n, node = 0, end = pl_tokenizer_eos_id(tr->target.tok);
    pl_err                err = {0};
    const char           *tail = pl_transcript_tail(&tr->text[it->slot], &n_tail);
    pl_status st = pl_lexicon_continue(&tr->target, tail, n_tail, w->text, (size_t)w->n, id, PL_TREE_MAX - 1, &n, &err);
    if (st != PL_OK) {
        pl_ctx_fail(ctx, st, "drafter \"slem\": %s", err.msg);
        return;
    }
    if (w->ended && end >= 0) id[n++] = end;
    for (int level = 0, next; level < n && level < depth && id[level] < tr->vt; level++, node = next)
        if (policy->kind->grow(policy, it->tree, level, &node, 1, &id[level], &(float){0}, &next) == 0) break;
}

static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    slem  *d = (slem *)base;
    double began = pl_now(), at = began;
    bool   draws = false;
    if (ctx->measuring) return; // its model runs its own steps
    for (int i = 0; i < b->n; i++) {
        pl_draft_item *it = &b->item[i];
        draws |= it->writing != NULL;
        bool drafts = pl_standalone_take_in(&d->own, ctx, it);
        d->w[i] = (writing){.row = -1, .left = drafts ? count_wanted(d, it, levels_of(d, it)) : 0};
    }
    pl_draft_best best;
    bool          more = pl_draft_model_results(&d->own.model, true, draws, &best);
    pl_draft_lap(&base->parts.take_in, &at);
    while (more) {
        for (int i = 0, row = 0; i < b->n; i++) {
            if (d->w[i].left == 0) continue;
            int32_t id = choose_token(d, &b->item[i], &best, row++);
            if (!write_token(d, &d->w[i], &b->item[i], id)) d->w[i].left = 0;
        }
        pl_draft_lap(&base->parts.head, &at);
        more = pl_draft_model_results(&d->own.model, true, draws, &best);
        pl_draft_lap(&base->parts.layer, &at);
    }
    for (int i = 0; i < b->n; i++) {
        pl_draft_item *it = &b->item[i];
        if (d->w[i].n == 0 && !d->w[i].ended) continue;
        read_chain(d, ctx, &d->w[i], it, levels_of(d, it));
        pl_tree_notes_share(it->tree, began, pl_now(), NULL);
    }
    pl_draft_model_check(&d->own.model, ctx);
}

static void destroy(pl_drafter *base) {
    slem *d = (slem *)base;
    pl_standalone_close(&d->own);
    pl_distribution_work_fini(&d->work);
    pl_free(d->w);
    pl_free(d->dist);
}

static const pl_drafter_kind kind = {.name = "slem",
                                     .propose = propose,
                                     .reset = pl_standalone_reset,
                                     .keep = pl_standalone_keep,
                                     .step_bytes = pl_standalone_step_bytes,
                                     .destroy = destroy};

static pl_status init(pl_drafter *base, const char *args, const pl_drafter_options *o, pl_err *err) {
    slem *d = (slem *)base;
    PL_TRY(pl_standalone_open(&d->own, args, 1, WRITTEN, true, o, err));
    pl_standalone_warn_stops(&d->own);
    d->w = pl_calloc((size_t)o->max_sessions, sizeof *d->w);
    d->dist = pl_calloc((size_t)d->own.tr.vd, sizeof *d->dist);
    if (!d->w || !d->dist) return pl_fail(err, PL_E_MEMORY, "drafter \"slem\": out of memory");
    PL_TRY(pl_distribution_work_init(&d->work, d->own.tr.vd, err));
    return pl_draft_model_chooses(&d->own.model, 1, false, NULL, d->own.tr.vd, err);
}

const pl_drafter_source pl_drafter_slem = {.name = "slem",
                                           .syntax = "slem:PATH[:TOKENIZER]",
                                           .help = "a model of another vocabulary: its text, read by the target's "
                                                   "tokenizer (SLEM)",
                                           .shape = pl_standalone_chain,
                                           .proposals = 1u << PL_PROPOSE_TOP,
                                           .kind = &kind,
                                           .size = sizeof(slem),
                                           .init = init};
