#include "infer/generate/questions.h"

#include "kernels/base/arena.h"
#include "kernels/base/log.h"

#include <string.h>

const char *pl_questions_path(const pl_questions *w) {
    return w->opt->form && w->opt->form->path ? w->opt->form->path : "data.prompts";
}

pl_status pl_question_render(const pl_questions *w, const pl_question *a, const pl_chat_turn *turn, char **text,
                             size_t *bytes, int32_t **ids, int64_t *n, pl_err *err) {
    const pl_prompt_form *f = w->opt->form;
    pl_jinja_out          out;
    PL_TRY(pl_chat_prompt_turn(a->prompt, pl_questions_path(w), f->chat, &f->options, turn, &out, err));
    pl_status st = pl_chat_encode(w->tok, out.text, out.n, ids, n, err);
    if (st != PL_OK) pl_fail_at(err, st, "data.prompts: line %lld", (long long)a->prompt->line);
    if (st == PL_OK && text) {
        *text = out.text;
        *bytes = out.n;
        out.text = NULL;
    }
    pl_jinja_out_fini(&out);
    return st;
}

int pl_questions_positions(const pl_questions *w) {
    int context = w->target->config.max_position_embeddings;
    return w->opt->max_len > 0 && w->opt->max_len < context ? w->opt->max_len : context;
}

pl_status pl_questions_check_ids(const pl_questions *w, const int32_t *ids, int64_t n, pl_err *err) {
    for (int64_t k = 0; k < n; k++)
        if (ids[k] < 0 || ids[k] >= w->target->vocab)
            return pl_fail(err, PL_E_INPUT,
                           "target.tokenizer: id %d lies outside the target's vocabulary of %lld; "
                           "give the target's own tokenizer",
                           ids[k], (long long)w->target->vocab);
    return PL_OK;
}

int64_t pl_question_longer(const pl_questions *w, const pl_question *a) {
    return a->n_given > w->opt->max_new ? a->n_given - w->opt->max_new : 0;
}

static pl_status check_given(const pl_questions *w, const pl_prompt *p, pl_err *err) {
    if (strcmp(p->target, w->target->fingerprint) != 0)
        return pl_fail(err, PL_E_INPUT,
                       "data.prompts: line %lld: another model answered (%s, the target is %s); a drafter learns from "
                       "its own target's answers",
                       (long long)p->line, p->target, w->target->fingerprint);
    return pl_questions_check_ids(w, p->ids + p->n_prompt, p->n_ids - p->n_prompt, err);
}

// Counts the tokens of a turn.
static pl_status measure(const pl_questions *w, const pl_question *a, const pl_chat_turn *turn, int64_t *n,
                         pl_err *err) {
    int32_t *ids;
    PL_TRY(pl_question_render(w, a, turn, NULL, NULL, &ids, n, err));
    pl_free(ids);
    return PL_OK;
}

// Sets *fits if the turn leaves room for an answer, at least without the exchanges before it. *longest: upper bound of
// its tokens, with answers of full length in its history that re-encode to a few more tokens.
static pl_status turn_fits(const pl_questions *w, const pl_question *a, const pl_chat_turn *turn, bool *fits,
                           int64_t *longest, pl_err *err) {
    enum { WORSE = 16 };
    int     exchanges;
    int64_t n, limit = pl_questions_positions(w) - 1;
    PL_TRY(measure(w, a, turn, &n, err));
    n += (int64_t)turn->number * (w->opt->max_new + WORSE);
    *fits = n < limit;
    if (!*fits) {
        int64_t      least;
        pl_chat_turn alone = *turn;
        PL_TRY(pl_chat_prompt_exchanges(a->prompt, pl_questions_path(w), turn->number, &exchanges, err));
        alone.skip = exchanges - 1;
        PL_TRY(measure(w, a, &alone, &least, err));
        *fits = least < limit;
    }
    if ((*fits || w->opt->cut) && n > *longest) *longest = n;
    return PL_OK;
}

// Counts the turns that can be answered. *refused: the template refuses the turn after them, for the reason in err.
static pl_status ask_turns(const pl_questions *w, pl_question *a, int64_t *longest, bool *refused, pl_err *err) {
    int          turns = a->prompt->turns;
    bool         fits = true;
    const char **stand_in = pl_malloc((size_t)turns * sizeof *stand_in);
    pl_status    st = stand_in ? PL_OK : pl_fail(err, PL_E_MEMORY, "a conversation of %d turns: out of memory", turns);
    for (int k = 0; k < turns && st == PL_OK; k++)
        stand_in[k] = PL_CHAT_STAND_IN;
    while (st == PL_OK && fits && a->turns < turns) {
        st = turn_fits(w, a, &(pl_chat_turn){.number = a->turns, .answer = stand_in}, &fits, longest, err);
        fits = fits || w->opt->cut;
        a->turns += st == PL_OK && fits;
    }
    pl_free(stand_in);
    *refused = st == PL_E_INPUT && !w->opt->strict;
    return *refused ? PL_OK : st;
}

typedef struct left_out {
    int64_t too_long, ended, unwritten; // prompts; conversations that end before a turn, or before one that the
                                        // template refuses
    pl_err  first;                      // why the first of the latter
} left_out;

static pl_status take(pl_questions *w, const pl_prompt *p, left_out *out, pl_err *err) {
    int64_t      limit = pl_questions_positions(w) - 1, room = limit - (int64_t)w->opt->max_new, n;
    pl_question *a = &w->q[w->n];
    int32_t     *ids;
    bool         refused = false;
    pl_err       why = {0};
    PL_TRY(pl_prompt_encode(w->tok, p, &ids, &n, err));
    int64_t whole = p->ids ? p->n_ids : n;
    out->too_long += whole >= limit;
    if (whole >= limit && (p->ids || !w->opt->cut)) {
        pl_free(ids);
        return PL_OK;
    }
    *a = (pl_question){.prompt = p, .ids = ids, .turns = 1, .cut = n >= limit};
    w->n++; // owns the ids from here on
    if (n < 1) return pl_fail(err, PL_E_INPUT, "data.prompts: line %lld: the prompt has no tokens", (long long)p->line);
    if (a->cut) pl_prompt_cut(w->tok, ids, &n, room > 2 ? room : 2);
    a->n = n;
    a->n_given = p->ids ? p->n_ids - p->n_prompt : 0;
    PL_TRY(pl_questions_check_ids(w, ids, n, err));
    if (p->ids) PL_TRY(check_given(w, p, err));
    if (n + pl_question_longer(w, a) > w->longest) w->longest = n + pl_question_longer(w, a);
    pl_status st = p->turns > 1 ? ask_turns(w, a, &w->longest, &refused, &why) : PL_OK;
    if (st != PL_OK) return pl_fail(err, st, "%s", why.msg);
    if (refused && out->unwritten++ == 0) out->first = why;
    out->ended += a->turns < p->turns && !refused;
    return PL_OK;
}

pl_status pl_questions_list(pl_questions *w, const pl_prompts *prompts, pl_err *err) {
    left_out    out = {0};
    long long   most = pl_questions_positions(w) - 2, all = prompts->n;
    // Their limit: the target's context, or the recipe.
    bool        lower = pl_questions_positions(w) < w->target->config.max_position_embeddings;
    const char *raise = lower ? "raise data.max_length, " : "";
    w->q = pl_calloc((size_t)prompts->n, sizeof *w->q);
    if (!w->q) return pl_fail(err, PL_E_MEMORY, "%lld prompts: out of memory", all);
    for (int64_t i = 0; i < prompts->n; i++)
        PL_TRY(take(w, &prompts->p[i], &out, err));
    if (w->n == 0)
        return pl_fail(
            err, PL_E_INPUT,
            "data.prompts: all %lld prompts have more tokens than there is room for, %lld; shorten them, %sor "
            "set data.long_prompts=cut",
            all, most, raise);
    if (out.too_long)
        pl_log_warn("data.prompts: %lld of %lld prompts have more tokens than there is room for, %lld: %s%s",
                    (long long)out.too_long, all, most, w->opt->cut ? "cut" : "left out",
                    lower ? " (data.max_length)" : "");
    if (out.ended)
        pl_log_warn("data.prompts: %lld of %lld conversations end before a turn with more tokens than there is room "
                    "for, %lld",
                    (long long)out.ended, all, most);
    if (out.unwritten) pl_chat_warn_ended(out.unwritten, out.first.msg);
    return PL_OK;
}

void pl_questions_fini(pl_questions *w) {
    for (int64_t i = 0; i < w->n; i++)
        pl_free(w->q[i].ids);
    pl_free(w->q);
}
