#include "train/source/answers.h"

#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"

pl_status pl_answers_open(pl_answers *a, const pl_recipe *r, const pl_env *env, const pl_llama *target, const int *taps,
                          int n_taps, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const char               *tokenizer = gen->target.tokenizer ? gen->target.tokenizer : gen->target.path;
    pl_prompts               *held = NULL;
    *a = (pl_answers){.env = env, .target = target};
    PL_TRY(pl_recipe_require(r, &gen->target.path, err));
    PL_TRY(pl_recipe_form(&a->form, r, err));
    pl_status st = pl_recipe_prompts(r, &a->form, &a->prompts, &held, err);
    pl_prompts_destroy(held); // kept for the evaluation of decoding
    PL_TRY(st);
    pl_generator_options_from(&a->opt, r, &a->form, taps, n_taps);
    return pl_tokenizer_open_pre(&a->tok, tokenizer, gen->target.pre, err);
}

void pl_answers_close(pl_answers *a) {
    pl_prompts_destroy(a->prompts);
    pl_prompt_form_close(&a->form);
    pl_tokenizer_close(a->tok);
}

void pl_answers_describe(pl_feature_source *s, const pl_answers *a) {
    s->d = a->target->shape.d;
    s->taps = a->opt.n_taps;
    s->greedy_share = a->opt.greedy ? 1.0 / (1 + a->opt.samples) : 0;
    s->temperature = a->opt.temperature;
    s->top_p = a->opt.top_p;
}

// ---- held-out answers

typedef struct held_out {
    pl_feature_source       base;
    const pl_answers       *a;
    const pl_dataset_attrs *stored;
    int64_t                *number;          // [base.docs] jobs
    pl_columns             *kept;            // [base.docs]; n 0: not made yet
    pl_generator           *g;               // NULL: not needed yet, or any more
    int64_t                 from, end, made; // range requested of the generator; answers in memory
} held_out;

static bool next_held(void *arg, pl_jobs *range) {
    held_out *h = arg;
    while (h->from < h->end && h->kept[h->from].n > 0)
        h->from++;
    if (h->from >= h->end) return false;
    *range = (pl_jobs){h->number[h->from], h->number[h->from] + 1};
    h->from++;
    return true;
}

static pl_status create_generator(held_out *h, pl_err *err) {
    pl_generator_options o = h->a->opt;
    o.work = (pl_generator_work){next_held, h};
    return pl_generator_create(&h->g, h->a->env, h->a->target, h->a->tok, h->a->prompts, &o, err);
}

// Sequential readers: generates a full batch of `sessions` documents at once.
static pl_status make_held(held_out *h, int64_t at, pl_err *err) {
    pl_columns_shape shape = {.d = h->base.d, .taps = h->base.taps};
    pl_columns       doc;
    bool             follows = at == 0 || h->kept[at - 1].n > 0;
    h->from = at;
    h->end = at + (follows ? h->a->opt.sessions : 1);
    if (h->end > h->base.docs) h->end = h->base.docs;
    if (!h->g) PL_TRY(create_generator(h, err));
    for (int64_t i = at; i < h->end; i++) {
        if (h->kept[i].n > 0) continue;
        PL_TRY(pl_generator_next(h->g, &doc, err));
        PL_CHECK(doc.n > 0 && pl_generator_number(h->g) == h->number[i], "job %lld is not the held-out one",
                 (long long)h->number[i]);
        PL_TRY(pl_columns_copy(&h->kept[i], &doc, &shape, doc.n, err));
        h->kept[i].about = NULL;
        if (h->stored) PL_TRY(pl_dataset_as_stored(h->stored, &h->kept[i], err));
        h->made++;
    }
    if (h->made < h->base.docs) return PL_OK;
    pl_generator_destroy(h->g);
    h->g = NULL;
    return PL_OK;
}

static pl_status get_held(pl_feature_source *s, int64_t at, pl_columns *doc, pl_err *err) {
    held_out *h = (held_out *)s;
    PL_CHECK(at >= 0 && at < s->docs, "document %lld of %lld", (long long)at, (long long)s->docs);
    if (h->kept[at].n == 0) PL_TRY(make_held(h, at, err));
    *doc = h->kept[at];
    doc->room = 0; // lent
    return PL_OK;
}

static pl_status rows_held(pl_feature_source *s, int64_t at, int64_t *n, pl_err *err) {
    pl_columns doc;
    PL_TRY(get_held(s, at, &doc, err));
    *n = doc.n;
    return PL_OK;
}

static void destroy_held(pl_feature_source *s) {
    held_out *h = (held_out *)s;
    pl_generator_destroy(h->g);
    for (int64_t i = 0; h->kept && i < s->docs; i++)
        pl_columns_free(&h->kept[i]);
    pl_free(h->kept);
    pl_free(h->number);
    pl_free(h);
}

static pl_status number_all(held_out *h, pl_err *err) {
    PL_TRY(create_generator(h, err));
    h->base.docs = pl_generator_jobs(h->g);
    h->number = pl_calloc((size_t)h->base.docs + 1, sizeof *h->number);
    for (int64_t i = 0; h->number && i < h->base.docs; i++)
        h->number[i] = i;
    return PL_OK;
}

pl_status pl_answers_hold(pl_feature_source **out, const pl_answers *a, int64_t *number, int64_t docs,
                          const pl_dataset_attrs *stored, pl_err *err) {
    held_out *h = pl_calloc(1, sizeof *h);
    *out = NULL;
    if (!h) {
        pl_free(number);
        return pl_fail(err, PL_E_MEMORY, "held-out documents: out of memory");
    }
    *h = (held_out){.base = {.docs = docs, .get = get_held, .rows = rows_held, .destroy = destroy_held},
                    .a = a,
                    .stored = stored,
                    .number = number};
    pl_answers_describe(&h->base, a);
    pl_status st = number ? PL_OK : number_all(h, err);
    if (st == PL_OK) h->kept = pl_calloc((size_t)h->base.docs + 1, sizeof *h->kept);
    if (st == PL_OK && (!h->number || !h->kept)) st = pl_fail(err, PL_E_MEMORY, "held-out documents: out of memory");
    if (st == PL_OK)
        *out = &h->base;
    else
        destroy_held(&h->base);
    return st;
}
