#include "train/source/online.h"

#include "infer/generate/generate.h"
#include "kernels/base/check.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "train/source/share.h"

#include <string.h>

typedef struct online {
    pl_feature_source    base;
    const pl_llama      *target; // borrowed
    pl_tokenizer        *tok;
    pl_prompts          *prompts;
    const pl_env        *env;
    pl_prompt_form       form; // form of the training prompts; held-out sources do not need it
    pl_generator_options opt;
    pl_generator        *gen;
    int64_t              at;    // number of gen's last document, -1: none
    pl_columns           last;  // that document, the generator's
    pl_columns          *kept;  // [base.docs] of a held-out source, else NULL
    pl_doc_share        *share; // if several ranks train together; else NULL
} online;

static pl_status begin_at(online *o, int64_t at, pl_err *err) {
    pl_generator_destroy(o->gen);
    o->gen = NULL;
    o->at = at - 1;
    o->last = (pl_columns){0};
    o->opt.first_job = at;
    return pl_generator_create(&o->gen, o->env, o->target, o->tok, o->prompts, &o->opt, err);
}

// Advances the generator to document `at`; any but the next number restarts it there.
static pl_status advance_to(online *o, int64_t at, pl_err *err) {
    if (o->gen && at == o->at && o->last.n > 0) return PL_OK;
    if (!o->gen || at != o->at + 1) PL_TRY(begin_at(o, at, err));
    pl_status st = pl_generator_next(o->gen, &o->last, err);
    if (st != PL_OK) { // a failed generator can only be destroyed
        pl_generator_destroy(o->gen);
        o->gen = NULL;
        return st;
    }
    PL_CHECK(o->last.n > 0, "document %lld is empty", (long long)at);
    o->at = at;
    return PL_OK;
}

static pl_status get(pl_feature_source *s, int64_t at, pl_columns *doc, pl_err *err) {
    online *o = (online *)s;
    if (o->kept) {
        *doc = o->kept[at % s->docs];
        doc->room = 0; // lent
        return PL_OK;
    }
    PL_TRY(advance_to(o, at, err));
    *doc = o->last;
    return PL_OK;
}

// A document's length is the target's answer's: the document must be made.
static pl_status rows(pl_feature_source *s, int64_t at, int64_t *n, pl_err *err) {
    pl_columns doc;
    PL_TRY(get(s, at, &doc, err));
    *n = doc.n;
    return PL_OK;
}

// ---- by several ranks

static pl_status begin_shared(pl_feature_source *s, int64_t at, pl_err *err) {
    return pl_doc_share_begin(((online *)s)->share, at, err);
}

static pl_status gather_shared(pl_feature_source *s, const pl_doc_span *rank, pl_err *err) {
    return pl_doc_share_gather(((online *)s)->share, rank, err);
}

static pl_status get_shared(pl_feature_source *s, int64_t at, pl_columns *doc, pl_err *err) {
    return pl_doc_share_get(((online *)s)->share, at, doc, err);
}

static pl_status rows_shared(pl_feature_source *s, int64_t at, int64_t *n, pl_err *err) {
    return pl_doc_share_rows(((online *)s)->share, at, n, err);
}

static pl_status share_docs(online *o, pl_err *err) {
    o->base.get = get_shared;
    o->base.rows = rows_shared;
    o->base.begin = begin_shared;
    o->base.gather = gather_shared;
    return pl_doc_share_create(&o->share, o->env, o->target, o->tok, o->prompts, &o->opt, err);
}

static void destroy(pl_feature_source *s) {
    online *o = (online *)s;
    if (!o) return;
    pl_doc_share_destroy(o->share);
    pl_generator_destroy(o->gen);
    for (int64_t i = 0; o->kept && i < s->docs; i++)
        pl_columns_free(&o->kept[i]);
    pl_free(o->kept);
    pl_prompts_destroy(o->prompts);
    pl_prompt_form_close(&o->form);
    pl_tokenizer_close(o->tok);
    pl_free(o);
}

static pl_status keep_all(online *o, pl_err *err) {
    pl_columns_shape shape = {.d = o->base.d, .taps = o->base.taps};
    PL_TRY(begin_at(o, 0, err));
    o->base.docs = pl_generator_jobs(o->gen);
    o->kept = pl_calloc((size_t)o->base.docs, sizeof *o->kept);
    if (!o->kept) return pl_fail(err, PL_E_MEMORY, "held-out answers: out of memory");
    for (int64_t i = 0; i < o->base.docs; i++) {
        PL_TRY(advance_to(o, i, err));
        PL_TRY(pl_columns_copy(&o->kept[i], &o->last, &shape, o->last.n, err));
    }
    pl_generator_destroy(o->gen);
    o->gen = NULL;
    return PL_OK;
}

// Takes over prompts, also on failure; the form, which `held` sources do not use afterwards, on the other's success.
static pl_status create_source(pl_feature_source **out, const pl_recipe *r, const pl_env *env, pl_prompt_form *form,
                               pl_prompts *prompts, const pl_llama *target, const int *taps, int n_taps, bool held,
                               pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    *out = NULL;
    online *o = pl_calloc(1, sizeof *o);
    if (!o) {
        pl_prompts_destroy(prompts);
        return pl_fail(err, PL_E_MEMORY, "online data: out of memory");
    }
    const char *path = gen->target.path, *tokenizer = gen->target.tokenizer;
    pl_status   st;
    o->base = (pl_feature_source){.taps = n_taps, .get = get, .rows = rows, .destroy = destroy};
    o->target = target;
    o->prompts = prompts;
    o->env = env;
    o->at = -1;
    pl_generator_options_from(&o->opt, r, form, taps, n_taps);
    if (held)
        o->opt.seed ^= 0x9e3779b97f4a7c15u; // other draws than in training, in case a prompt is on both sides
    else
        o->opt.samples = -1;
    PL_TRY_GOTO(st, fail, pl_tokenizer_open_pre(&o->tok, tokenizer ? tokenizer : path, gen->target.pre, err));
    o->base.d = target->shape.d;
    o->base.greedy_share = o->opt.greedy ? 1.0 / (1 + o->opt.samples) : 0;
    o->base.temperature = o->opt.temperature;
    o->base.top_p = o->opt.top_p;
    uint64_t id = pl_prompts_hash(prompts, pl_hash(target->fingerprint, 16));
    id = pl_hash_more(id, pl_tokenizer_fingerprint(o->tok), strlen(pl_tokenizer_fingerprint(o->tok)));
    if (!pl_tokenizer_adds_bos(o->tok)) id = pl_hash_more(id, "no bos", 6);
    pl_hash_hex(o->base.identity, id);
    if (held) PL_TRY_GOTO(st, fail, keep_all(o, err));
    if (!held) {
        o->form = *form;
        o->opt.form = &o->form;
        *form = (pl_prompt_form){0};
        if (pl_comm_ranks(env->comm) > 1) PL_TRY_GOTO(st, fail, share_docs(o, err));
    }
    *out = &o->base;
    return PL_OK;
fail:
    destroy(&o->base);
    return st;
}

pl_status pl_online_sources(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r, const pl_env *env,
                            const pl_llama *target, const int *taps, int n_taps, int64_t every, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    *train = *held = NULL;
    pl_prompts    *mine = NULL, *eval = NULL, *a = NULL, *b = NULL;
    pl_prompt_form form;
    PL_TRY(pl_recipe_require(r, &gen->target.path, err));
    pl_status st = pl_recipe_form(&form, r, err);
    if (st == PL_OK) st = pl_recipe_prompts(r, &form, &mine, &eval, err);
    if (st != PL_OK) {
        pl_prompt_form_close(&form);
        return st;
    }
    pl_prompts_destroy(eval); // kept for the evaluation of decoding
    if (every > 1 && mine->n / every > 0)
        st = pl_prompts_split(mine, (uint64_t)gen->seed + 1, mine->n / every, &a, &b, err);
    if (a) {
        pl_prompts_destroy(mine);
        mine = a;
    }
    if (st == PL_OK && b && pl_comm_rank(env->comm) == 0) // rank 0 evaluates
        st = create_source(held, r, env, &form, b, target, taps, n_taps, true, err);
    else
        pl_prompts_destroy(b);
    if (st == PL_OK)
        st = create_source(train, r, env, &form, mine, target, taps, n_taps, false, err);
    else
        pl_prompts_destroy(mine);
    bool none = st == PL_OK && *held && (*held)->docs == 0; // neither greedy nor sampled answers are requested
    if (none)
        pl_log_warn("data.samples: 0 without data.greedy leaves nothing to hold out; acceptance is not estimated");
    if ((st != PL_OK || none) && *held) {
        (*held)->destroy(*held);
        *held = NULL;
    }
    pl_prompt_form_close(&form);
    return st;
}
