#include "train/task/decoded.h"

#include "data/chat/prompts.h"
#include "kernels/base/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LOOKED_AT 4    // documents examined for each one selected
#define SHORTEST 2     // the fewest tokens of an answer: prefill emits the first
#define ERRORS 4       // standard errors of an alarm, plus
#define SHARE 0.02     // this share of the promised length
#define ROUNDED 0.01   // share of cycles of the same text whose drafts rounding may change
#define REPRODUCED 0.9 // share of greedy answers' tokens
#define FEWER 0.5      // share of the expected greedy answers

// ---- the texts ----

static pl_status add_text(pl_decoded *d, const int32_t *ids, int64_t n, int64_t prompt, int64_t doc, pl_err *err) {
    pl_decoded_text *t = &d->text[d->n];
    *t = (pl_decoded_text){.doc = doc, .n = n, .prompt = prompt};
    size_t cycles = (size_t)(n - prompt > d->max_new ? n - prompt : d->max_new); // each emits a token
    d->n++;
    t->ids = pl_malloc((size_t)n * sizeof *t->ids);
    t->promised.at = pl_malloc(4 * cycles * sizeof *t->promised.at);
    if (!t->ids || !t->promised.at) return pl_fail(err, PL_E_MEMORY, "held-out texts: out of memory");
    memcpy(t->ids, ids, (size_t)n * sizeof *ids);
    t->promised.accepted = t->promised.at + cycles;
    t->decoded.at = t->promised.at + 2 * cycles;
    t->decoded.accepted = t->promised.at + 3 * cycles;
    return PL_OK;
}

static void drop_text(pl_decoded_text *t) {
    pl_free(t->ids);
    pl_free(t->promised.at);
}

static void add_cycle(pl_cycle_list *l, int64_t at, int64_t accepted) {
    l->at[l->n] = (int32_t)at;
    l->accepted[l->n++] = (int32_t)accepted;
}

// Finds the first answer of a document: tokens [*first, *end).
static void find_answer(const pl_columns *doc, int64_t *first, int64_t *end) {
    *first = 0;
    while (*first < doc->n && !doc->loss_mask[*first])
        ++*first;
    *end = *first;
    while (*end < doc->n && doc->loss_mask[*end])
        ++*end;
}

static bool is_greedy(const pl_columns *doc, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; i++)
        if (doc->argmax[i - 1] != doc->tokens[i]) return false;
    return true;
}

// Keeps at most `most` of the texts of d whose flag is `keep`, evenly spread; frees the others.
static void choose(pl_decoded *d, const bool *flag, bool keep, int most) {
    int of = 0, n = 0, seen = 0;
    for (int i = 0; i < d->n; i++)
        of += flag[i] == keep;
    for (int i = 0; i < d->n; i++) {
        bool in = flag[i] == keep;
        bool take = in && (of <= most || (int64_t)(seen + 1) * most / of > (int64_t)seen * most / of);
        seen += in;
        if (take)
            d->text[n++] = d->text[i];
        else
            drop_text(&d->text[i]);
    }
    d->n = n;
}

// Returns the i-th document to examine, of *look.
static int64_t looked_at(const pl_feature_source *held, int most, int64_t i, int64_t *look) {
    *look = (int64_t)most * LOOKED_AT < held->docs ? (int64_t)most * LOOKED_AT : held->docs;
    return *look > 0 ? i * held->docs / *look : 0;
}

pl_status pl_decoded_fetch(pl_feature_source *held, int64_t rows, int64_t longest, int most, pl_err *err) {
    int64_t at = 0, taken = 0, n, look;
    if (!held || !held->fetch) return PL_OK;
    for (; at < held->docs && taken < rows; at++) {
        PL_TRY(held->rows(held, at, &n, err));
        taken += n < longest ? n : longest;
    }
    PL_TRY(held->fetch(held, 0, at, err));
    looked_at(held, most, 0, &look);
    for (int64_t i = 0; i < look; i++) {
        int64_t number = looked_at(held, most, i, &look);
        if (number >= at) PL_TRY(held->fetch(held, number, number + 1, err));
    }
    return PL_OK;
}

pl_status pl_decoded_documents(pl_decoded *d, pl_feature_source *held, int most, bool greedy, int max_new, int steps,
                               int64_t capacity, pl_err *err) {
    int64_t look;
    looked_at(held, most, 0, &look);
    *d = (pl_decoded){.steps = steps, .max_new = max_new};
    bool     *flag = pl_calloc((size_t)look + 1, sizeof *flag);
    pl_status st = PL_OK;
    int       found = 0;
    d->text = pl_calloc((size_t)look + 1, sizeof *d->text);
    if (!flag || !d->text) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "held-out documents: out of memory"));
    for (int64_t i = 0; i < look; i++) {
        pl_columns doc;
        int64_t    number = looked_at(held, most, i, &look), first, end;
        PL_TRY_GOTO(st, done, held->get(held, number, &doc, err));
        find_answer(&doc, &first, &end);
        if (end > capacity) end = capacity;
        if (first < 1 || end - first < SHORTEST) continue;
        flag[d->n] = is_greedy(&doc, first, end);
        found += flag[d->n];
        PL_TRY_GOTO(st, done, add_text(d, doc.tokens, end, first, number, err));
    }
    d->few_greedy = found < FEWER * held->greedy_share * d->n;
    bool which = greedy ? found > 0 : found == d->n;
    choose(d, flag, which, most);
    d->sampling = (pl_sampling){.top_p = 1, .temperature = which ? 0 : held->temperature};
    if (!which) d->sampling.top_p = held->top_p;
done:
    pl_free(flag);
    if (st != PL_OK) pl_decoded_fini(d);
    return st;
}

pl_status pl_decoded_prompts(pl_decoded *d, const pl_prompts *prompts, const pl_tokenizer *tok, int most,
                             const pl_sampling *sampling, int max_new, int steps, int64_t room, pl_err *err) {
    int64_t   n = prompts->n < most ? prompts->n : most;
    pl_status st = PL_OK;
    *d = (pl_decoded){.steps = steps, .max_new = max_new, .sampling = *sampling};
    d->text = pl_calloc((size_t)n + 1, sizeof *d->text);
    if (!d->text) return pl_fail(err, PL_E_MEMORY, "held-out prompts: out of memory");
    for (int64_t i = 0; i < n && st == PL_OK; i++) {
        int32_t *ids;
        int64_t  count;
        st = pl_prompt_encode(tok, &prompts->p[i * prompts->n / n], &ids, &count, err);
        if (st != PL_OK) break;
        if (count > 0 && count <= room) st = add_text(d, ids, count, count, -1, err);
        pl_free(ids);
    }
    if (st != PL_OK) pl_decoded_fini(d);
    return st;
}

void pl_decoded_fini(pl_decoded *d) {
    for (int i = 0; i < d->n; i++)
        drop_text(&d->text[i]);
    pl_free(d->text);
    *d = (pl_decoded){0};
}

// ---- cycles ----

// Returns how many leading drafts of the row before token `at` equal the text's tokens.
static int64_t agreeing(const pl_unroll *u, const pl_decoded_text *t, int64_t at, int steps) {
    const int32_t *d2t = u->model->head.d2t;
    int64_t        row = at - 2, k = 0;
    for (; k < steps && at + k < t->n; k++) {
        int32_t id = u->student_argmax[k * u->pack.rows + row];
        if (id < 0 || (d2t ? d2t[id] : id) != t->ids[at + k]) break;
    }
    return k;
}

pl_status pl_decoded_promise(pl_decoded *d, pl_unroll *u, pl_feature_source *held, pl_err *err) {
    bool      outside = u->pack.outside;
    pl_status st = PL_OK;
    PL_CHECK(d->steps == u->pack.steps, "drafts of %d tokens, an unroll of %d steps", d->steps, u->pack.steps);
    u->pack.outside = true; // rows without a drafted choice count: such a token ends a draft
    for (int i = 0; i < d->n && st == PL_OK; i++) {
        pl_decoded_text *t = &d->text[i];
        pl_columns       doc;
        pl_pack_clear(&u->pack);
        st = held->get(held, t->doc, &doc, err);
        if (st != PL_OK) break;
        pl_pack_add(&u->pack, &doc, 0, t->n);
        pl_pack_close(&u->pack);
        st = pl_unroll_score_all(u, err);
        t->promised.n = 0;
        for (int64_t at = t->prompt + 1; at < t->n && st == PL_OK;) {
            int64_t accepted = agreeing(u, t, at, d->steps);
            add_cycle(&t->promised, at, accepted);
            at += accepted + 1;
        }
    }
    pl_pack_clear(&u->pack);
    u->pack.outside = outside;
    return st;
}

static void on_cycle(void *arg, const pl_cycle *c) {
    pl_decoded_text *const *t = arg;
    add_cycle(&(*t)->decoded, pl_session_length(c->session) - c->emitted, c->verdict->n);
}

static pl_status decode_text(pl_decoded_text *t, const pl_decoded *d, pl_runner *r, uint64_t seed, pl_err *err) {
    pl_sampling sampling = d->sampling;
    int64_t     answer = t->n - t->prompt;
    int         most = t->doc >= 0 && sampling.temperature == 0 ? (int)answer : d->max_new;
    sampling.seed = seed;
    t->decoded.n = 0;
    PL_TRY(pl_runner_run(r, t->ids, t->prompt, &sampling, most, NULL, NULL, err));
    const int32_t *said = pl_session_tokens(r->session) + t->prompt;
    t->said = pl_session_length(r->session) - t->prompt;
    t->same = 0;
    while (t->same < t->said && t->same < answer && said[t->same] == t->ids[t->prompt + t->same])
        t->same++;
    return PL_OK;
}

pl_status pl_decoded_run(pl_decoded *d, const pl_env *env, const pl_target *target, const char *drafter, pl_err *err) {
    char              tree[32];
    int64_t           longest = 0;
    pl_runner         r;
    pl_decoded_text  *now;
    pl_status         st = PL_OK;
    pl_runner_options o = {.drafter = drafter, .tree = tree};
    snprintf(tree, sizeof tree, "chain:%d", d->steps);
    for (int i = 0; i < d->n; i++) {
        const pl_decoded_text *t = &d->text[i];
        if (t->n > longest) longest = t->n;
        if (t->prompt + d->max_new > longest) longest = t->prompt + d->max_new;
    }
    o.max_len = (int)longest + 1;
    PL_TRY(pl_runner_open(&r, env->backend, env->pool, target, &o, err));
    pl_engine_on_cycle(r.engine, on_cycle, &now);
    for (int i = 0; i < d->n && st == PL_OK; i++) {
        now = &d->text[i];
        st = decode_text(now, d, &r, d->sampling.seed + (uint64_t)i, err);
    }
    pl_runner_close(&r);
    return st;
}

// ---- figures ----

// Adds (sign 1) or subtracts (-1) the cycles of a text that begin before token `end`; clips the last cycle there.
static void add(pl_cycle_sums *s, const pl_cycle_list *l, int64_t end, int steps, int sign) {
    for (int i = 0; i < l->n && l->at[i] < end; i++) {
        int64_t left = end - l->at[i];
        s->cycles += sign;
        s->emitted += sign * (double)(l->accepted[i] + 1 < left ? l->accepted[i] + 1 : left);
        if (steps + 1 > left) continue;
        s->whole += sign;
        for (int k = 0; k < l->accepted[i] && k < steps; k++)
            s->accepted[k] += sign;
    }
}

static bool is_greedy_document(const pl_decoded *d, const pl_decoded_text *t) {
    return t->doc >= 0 && d->sampling.temperature == 0;
}

static void add_text_to(pl_decoded_figures *f, const pl_decoded *d, const pl_decoded_text *t, int sign) {
    int64_t said = t->prompt + t->said, end = t->n;
    if (is_greedy_document(d, t)) said = end = t->prompt + t->same;
    add(&f->promised, &t->promised, end, d->steps, sign);
    add(&f->decoded, &t->decoded, said, d->steps, sign);
}

// A length: promised, decoded, or their difference, decoded less promised.
enum side { PROMISED, DECODED, DIFFERENCE };

static double length(const pl_decoded_figures *f, enum side side) {
    double promised = pl_ratio(f->promised.emitted, f->promised.cycles);
    double decoded = pl_ratio(f->decoded.emitted, f->decoded.cycles);
    return side == PROMISED ? promised : side == DECODED ? decoded : decoded - promised;
}

static double jackknife(const pl_decoded *d, const pl_decoded_figures *f, enum side side) {
    double mean = 0, squares = 0;
    int    n = d->n;
    if (n < 2) return NAN;
    for (int i = 0; i < n; i++) {
        pl_decoded_figures without = *f;
        add_text_to(&without, d, &d->text[i], -1);
        double x = length(&without, side);
        squares += (x - mean) * (x - mean) * i / (i + 1);
        mean += (x - mean) / (i + 1);
    }
    return sqrt(squares * (n - 1) / n);
}

static double bound(double error, double promised) {
    return ERRORS * error + SHARE * promised;
}

void pl_decoded_compare(const pl_decoded *d, pl_decoded_figures *f) {
    int64_t answers = 0, same = 0;
    *f = (pl_decoded_figures){.reproduced = NAN, .few_greedy = d->few_greedy};
    for (int i = 0; i < d->n; i++) {
        add_text_to(f, d, &d->text[i], 1);
        answers += d->text[i].n - d->text[i].prompt;
        same += d->text[i].same;
    }
    f->promised_length = length(f, PROMISED);
    f->decoded_length = length(f, DECODED);
    bool documents = d->n > 0 && d->text[0].doc >= 0, greedy = documents && d->sampling.temperature == 0;
    f->error = greedy ? sqrt(pl_ratio(ROUNDED, f->promised.cycles)) : jackknife(d, f, documents ? DIFFERENCE : DECODED);
    if (!documents) return;
    if (greedy) f->reproduced = pl_ratio((double)same, (double)answers);
    f->alarm = f->few_greedy || f->reproduced < REPRODUCED ||
               fabs(length(f, DIFFERENCE)) > bound(f->error, f->promised_length);
}

bool pl_decoded_falls_behind(const pl_decoded *served, const pl_decoded *documents) {
    pl_decoded_figures s, d;
    pl_decoded_compare(served, &s);
    pl_decoded_compare(documents, &d);
    double error = hypot(s.error, jackknife(documents, &d, PROMISED));
    return s.decoded_length < d.promised_length - bound(error, d.promised_length);
}

const char *pl_decoded_cause(const pl_decoded_figures *f, int steps) {
    double whole[2] = {f->promised.whole, f->decoded.whole};
    if (f->few_greedy)
        return "fewer answers are the target's first choices than the data say; likely a loss mask that does not begin "
               "where answers do, or another target's answers";
    if (f->reproduced < REPRODUCED)
        return "the target says other texts than they hold; likely another target or tokenizer, another chat template "
               "or thinking mode, or a loss mask that does not begin where answers do";
    for (int k = 0; k < steps && whole[0] > 0 && whole[1] > 0; k++) {
        double p = f->promised.accepted[k] / whole[0], c = f->decoded.accepted[k] / whole[1];
        if (fabs(p - c) <= SHARE * p) continue;
        if (k == 0)
            return "drafts are others from the first token on; likely the numbers of the layers that are read, "
                   "features "
                   "that stand a row too early or too late, or a norm that one side lacks";
        return "drafts are others from a later token on; likely RoPE, or the hidden state that a step hands to the "
               "next";
    }
    return "only lengths differ; likely the limit of an answer, or stop tokens";
}
