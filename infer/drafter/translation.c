#include "infer/drafter/translation.h"

#include "kernels/base/files.h"
#include "kernels/base/log.h"

#include <string.h>

// ---- equal tokens ---------------------------------------------------------------------------------------------------

bool pl_translation_same(const pl_tokenizer *a, const pl_tokenizer *b) {
    int32_t n = pl_tokenizer_vocab_size(a), m = pl_tokenizer_vocab_size(b);
    for (int32_t i = 0; i < n && i < m; i++)
        if (strcmp(pl_tokenizer_piece(a, i), pl_tokenizer_piece(b, i)) != 0) return false;
    return true;
}

static pl_status map_tokens(pl_translation *t, pl_err *err) {
    int32_t *to;
    PL_TRY(pl_lexicon_map(&to, &t->draft, &t->target, err));
    t->to_target = pl_malloc((size_t)t->vd * sizeof *t->to_target);
    t->to_draft = pl_malloc((size_t)t->vt * sizeof *t->to_draft);
    t->shared = pl_malloc((size_t)t->vt * sizeof *t->shared);
    t->shared_as = pl_malloc((size_t)t->vt * sizeof *t->shared_as);
    if (!t->to_target || !t->to_draft || !t->shared || !t->shared_as) {
        pl_free(to);
        return pl_fail(err, PL_E_MEMORY, "two vocabularies: out of memory");
    }
    int32_t n = pl_tokenizer_vocab_size(t->draft.tok), end = pl_tokenizer_eos_id(t->draft.tok),
            ends = pl_tokenizer_eos_id(t->target.tok);
    memset(t->to_draft, 0xff, (size_t)t->vt * sizeof *t->to_draft); // -1 everywhere
    for (int64_t d = 0; d < t->vd; d++) {
        int32_t x = d < n ? (d == end ? ends : to[d]) : -1;
        t->to_target[d] = x < t->vt ? x : -1;
        if (x >= 0 && x < t->vt) t->to_draft[x] = (int32_t)d;
    }
    for (int64_t x = 0; x < t->vt; x++)
        if (t->to_draft[x] >= 0) {
            t->shared[t->n_shared] = t->to_draft[x];
            t->shared_as[t->n_shared++] = (int32_t)x;
        }
    pl_free(to);
    return PL_OK;
}

static pl_status open_texts(pl_translation *t, const pl_draft_model *m, const pl_drafter_options *o, pl_err *err) {
    PL_TRY(pl_lexicon_init(&t->target, o->tok, err));
    PL_TRY(pl_lexicon_init(&t->draft, m->target.tok, err));
    PL_TRY(map_tokens(t, err));
    t->cannot_draft = pl_lexicon_inexpressible(&t->target, &t->draft);
    t->cannot_say = pl_lexicon_inexpressible(&t->draft, &t->target);
    if (t->cannot_draft < 0 || t->cannot_say < 0) return pl_fail(err, PL_E_MEMORY, "two vocabularies: out of memory");
    t->text = pl_calloc((size_t)t->sessions, sizeof *t->text);
    if (!t->text) return pl_fail(err, PL_E_MEMORY, "%d texts: out of memory", t->sessions);
    for (int i = 0; i < t->sessions; i++)
        PL_TRY(pl_transcript_init(&t->text[i], &t->target, &t->draft, o->slots + 2 * PL_TREE_MAX, m->positions, err));
    return PL_OK;
}

pl_status pl_translation_open(pl_translation *t, const pl_draft_model *m, const char *name, const pl_drafter_options *o,
                              pl_err *err) {
    *t = (pl_translation){.vt = o->target->vocab, .vd = m->target.model.vocab, .sessions = o->max_sessions};
    if (!o->tok) return pl_fail(err, PL_E_INPUT, "drafter \"%s\": the target's tokenizer is not known; give it", name);
    if (!m->target.tok)
        return pl_fail(err, PL_E_INPUT, "drafter \"%s\": its model brings no tokenizer; give it, %s:PATH:TOKENIZER",
                       name, name);
    pl_status st = open_texts(t, m, o, err);
    if (st != PL_OK) {
        pl_translation_close(t);
        return st;
    }
    return PL_OK;
}

void pl_translation_close(pl_translation *t) {
    for (int i = 0; t->text && i < t->sessions; i++)
        pl_transcript_fini(&t->text[i]);
    pl_free(t->text);
    pl_free(t->to_target);
    pl_free(t->to_draft);
    pl_free(t->shared);
    pl_free(t->shared_as);
    pl_lexicon_fini(&t->target);
    pl_lexicon_fini(&t->draft);
    *t = (pl_translation){0};
}

// Logs once, after all has opened, so that an error stays one line.
static void log_shared(pl_translation *t) {
    t->told = true;
    pl_log(
        "drafter: %lld tokens are in both vocabularies, %.1f %% of the target's %lld and %.1f %% of its own %lld; %lld "
        "of the target's are no string of its own, %lld the other way round",
        (long long)t->n_shared, 100.0 * (double)t->n_shared / (double)t->vt, (long long)t->vt,
        100.0 * (double)t->n_shared / (double)t->vd, (long long)t->vd, (long long)t->cannot_draft,
        (long long)t->cannot_say);
}

bool pl_translation_tell(pl_translation *t, pl_ctx *ctx, int slot, const int32_t *tokens, int n,
                         const pl_transcript **text) {
    pl_transcript *x = &t->text[slot];
    pl_err         err = {0};
    *text = x;
    if (!t->told) log_shared(t);
    if (n > x->said_room) return false;
    pl_status st = pl_transcript_tell(x, tokens, n, &err);
    if (st != PL_OK) pl_ctx_fail(ctx, st, "drafter: %s", err.msg);
    return st == PL_OK && !x->full && x->n > 0;
}
