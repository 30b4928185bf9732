#include "infer/inspect/acceptance.h"

#include "data/text/prompts.h"
#include "infer/inspect/parts.h"
#include "infer/model/kv.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Quadrature over the clocks' time exp(u), u from -RANGE to RANGE.
#define RANGE 33.0
#define NODES 180

#define PER_PROMPT 16 // tokens decoded after each prompt if there are enough prompts
#define TRIALS 32     // per position, for a verifier without a closed form
#define VERIFIERS 32
#define DRAFTS (PL_PROPOSE_TOP_ONE + 1)

typedef struct token {
    double ratio, p, q;
} token;

pl_status pl_acceptance_init(pl_acceptance *a, int64_t v, pl_err *err) {
    size_t n = (size_t)v;
    *a = (pl_acceptance){.v = v,
                         .sorted = pl_calloc(n, sizeof(token)),
                         .w = pl_calloc(pl_size_mul(5, n, 1), sizeof *a->w),
                         .q = pl_calloc(n, sizeof *a->q),
                         .logits = pl_calloc(n, sizeof *a->logits)};
    pl_status st = pl_distribution_work_init(&a->dist, v, err);
    if (st == PL_OK && a->sorted && a->w && a->q && a->logits) return PL_OK;
    pl_acceptance_fini(a);
    return st != PL_OK ? st : pl_fail(err, PL_E_MEMORY, "acceptance over %lld tokens: out of memory", (long long)v);
}

void pl_acceptance_fini(pl_acceptance *a) {
    pl_distribution_work_fini(&a->dist);
    pl_free(a->sorted);
    pl_free(a->w);
    pl_free(a->q);
    pl_free(a->logits);
    *a = (pl_acceptance){0};
}

// ---- the bound ------------------------------------------------------------------------------------------------------

static int compare_ratios(const void *x, const void *y) {
    const token *a = x, *b = y;
    return (a->ratio > b->ratio) - (a->ratio < b->ratio);
}

// Sorts the tokens that can be drawn by p / q and returns how many they are; the others only add to p(H).
static int64_t sort_tokens(token *t, const double *p, const double *q, int64_t v) {
    int64_t n = 0;
    for (int64_t i = 0; i < v; i++)
        if (q[i] > 0) t[n++] = (token){.ratio = p[i] / q[i], .p = p[i], .q = q[i]};
    qsort(t, (size_t)n, sizeof *t, compare_ratios);
    return n;
}

static void bound_iid(const token *t, int64_t tokens, int n_max, double *bound) {
    double ph = 0, qh = 0;
    for (int64_t i = 0; i < tokens; i++) {
        double power = 1;
        ph += t[i].p;
        qh += t[i].q;
        for (int n = 0; n < n_max; n++)
            bound[n] = fmin(bound[n], 1 + ph - (power *= qh));
    }
}

// Returns the chance 1 - exp(-x) that a clock rings, x >= 0.
static double find_chance(double x) {
    return x < 1e-8 ? x - x * x / 2 : x > 45 ? 1 : -expm1(-x);
}

// Without replacement the order of draws is that of exponential clocks with rates q: all n come from H unless fewer
// than n clocks of H ring before the first outside,
//   1 - Pr = integral of c exp(-c t) P(fewer than n of H ring before t) dt,   c = 1 - q(H),
// and the number that rings is a sum of independent indicators. With t = exp(u) the trapezoidal rule converges
// exponentially and covers every scale of c. Adding a token to H updates the first n probabilities of the number.
static void bound_wor(const token *t, int64_t tokens, int n_max, double *bound) {
    double time[NODES + 1], ring[NODES + 1][PL_ACCEPTANCE_CHILDREN] = {{0}};
    double ph = 0, outside = 0, h = 2 * RANGE / NODES;
    for (int g = 0; g <= NODES; g++) {
        time[g] = exp(-RANGE + h * g);
        ring[g][0] = 1;
    }
    for (int64_t i = 0; i < tokens; i++)
        outside += t[i].q;
    for (int64_t i = 0; i < tokens; i++) {
        double miss[PL_ACCEPTANCE_CHILDREN] = {0};
        ph += t[i].p;
        outside = i + 1 < tokens ? fmax(outside - t[i].q, 0) : 0;
        for (int g = 0; g <= NODES; g++) {
            double rings = find_chance(t[i].q * time[g]), weight = h * outside * time[g];
            double end = weight * (1 - find_chance(outside * time[g])), fewer = 0;
            for (int n = n_max - 1; n >= 0; n--)
                ring[g][n] = ring[g][n] * (1 - rings) + (n > 0 ? ring[g][n - 1] * rings : 0);
            for (int n = 0; n < n_max; n++)
                miss[n] += end * (fewer += ring[g][n]);
        }
        for (int n = 0; n < n_max; n++)
            bound[n] = fmin(bound[n], ph + miss[n]);
    }
}

void pl_acceptance_bound(pl_acceptance *a, pl_proposal kind, const double *p, const double *q, int n_max,
                         double *bound) {
    PL_CHECK(n_max >= 1 && n_max <= PL_ACCEPTANCE_CHILDREN, "%d children", n_max);
    const pl_verifier *best = kind == PL_PROPOSE_TOP ? &pl_verify_match : &pl_verify_transport;
    if (kind == PL_PROPOSE_TOP || kind == PL_PROPOSE_TOP_ONE) {
        for (int n = 0; n < n_max; n++)
            bound[n] = best->acceptance(p, q, a->v, n + 1, a->w);
        return;
    }
    for (int n = 0; n < n_max; n++)
        bound[n] = 1; // H empty
    int64_t tokens = sort_tokens(a->sorted, p, q, a->v);
    if (kind == PL_PROPOSE_IID)
        bound_iid(a->sorted, tokens, n_max, bound);
    else
        bound_wor(a->sorted, tokens, n_max, bound);
}

// ---- expected acceptance --------------------------------------------------------------------------------------------

typedef struct known_dist {
    const double *p;
    int64_t       v;
} known_dist;

static bool copy_dist(void *arg, int node, double *p) {
    const known_dist *l = arg;
    (void)node;
    memcpy(p, l->p, (size_t)l->v * sizeof *p);
    return true;
}

// Drafts and verifies one node; returns true if a child was accepted.
static bool run_trial(pl_acceptance *a, const pl_verifier *v, const double *p, int n, pl_coin *coin) {
    static const pl_sampling all = {.temperature = 1, .top_p = 1};
    int64_t                  size = a->v;
    known_dist               dist = {.p = p, .v = size};
    int32_t                  id[PL_ACCEPTANCE_CHILDREN];
    float                    logp[PL_ACCEPTANCE_CHILDREN];
    pl_verdict               out;
    pl_proposing             o = {.kind = v->proposal,
                                  .sampling = &all,
                                  .coin = coin,
                                  .q = a->q,
                                  .q_rows = 1,
                                  .vocab = size,
                                  .work = &a->dist,
                                  .dist = a->w + 3 * size};
    pl_verify_in             in = {.tree = &a->tree,
                                   .dist = copy_dist,
                                   .arg = &dist,
                                   .v = size,
                                   .coin = coin,
                                   .p = a->w,
                                   .q = a->w + size,
                                   .r = a->w + 2 * size};
    pl_tree_root(&a->tree, 0);
    pl_propose_draw(&o, &a->tree, 0, a->logits, &(pl_drafted){.n = size}, n, id, logp);
    for (int i = 0; i < n && id[i] >= 0; i++)
        pl_tree_add(&a->tree, 0, id[i], 0);
    pl_verify(v, &in, &out);
    return out.n > 0;
}

double pl_acceptance_expected(pl_acceptance *a, const pl_verifier *v, const double *p, const double *q, int n,
                              int trials, pl_coin *coin, double *variance) {
    PL_CHECK(n >= 1 && n <= PL_ACCEPTANCE_CHILDREN && trials > 1, "%d children, %d trials", n, trials);
    PL_CHECK(n == 1 || !v->chain, "%d children for the chain verifier \"%s\"", n, v->name);
    double exact = v->acceptance ? v->acceptance(p, q, a->v, n, a->w) : NAN;
    *variance = 0;
    if (!isnan(exact)) return exact;
    PL_CHECK(v->proposal != PL_PROPOSE_TOP, "verifier \"%s\" of chosen children states no acceptance", v->name);
    int accepted = 0;
    for (int64_t i = 0; i < a->v; i++)
        a->logits[i] = (float)log(q[i]);
    for (int i = 0; i < trials; i++)
        accepted += run_trial(a, v, p, n, coin);
    double share = (double)accepted / trials;
    *variance = share * (1 - share) / (trials - 1);
    return share;
}

// ---- texts of inspect --acceptance and --ceilings -------------------------------------------------------------------

// The end of one text, by the number of observed positions.
typedef struct share {
    const int64_t *positions;
    int64_t        until;
} share;

static bool goes_on(void *arg, int32_t id) {
    (void)id;
    return *((share *)arg)->positions < ((share *)arg)->until;
}

// Decodes one text up to `until` positions, tokens for `each` positions, or the end of the context.
static pl_status decode(const pl_inspect_texts *t, pl_runner *runner, const int32_t *ids, int64_t n, int64_t each,
                        int64_t until, pl_sampling *sampling, pl_err *err) {
    share   s = {.positions = t->positions, .until = until};
    int64_t tokens = each * t->tokens, room = runner->max_len - n - 2;
    if (tokens > room) tokens = room;
    if (tokens < 1) return PL_OK; // skips a prompt that leaves no room
    sampling->seed++;
    // Two more: prefill emits the first token, and no draft follows the last one.
    return pl_runner_run(runner, ids, n, sampling, (int)tokens + 2, t->tokens > 1 ? goes_on : NULL, &s, err);
}

static pl_status decode_prompts(const pl_inspect_texts *t, pl_runner *runner, pl_sampling *sampling, pl_err *err) {
    const pl_tokenizer *tok = runner->target->tok;
    const pl_prompts   *p = t->texts;
    pl_prompts         *read = NULL;
    if (!tok)
        return pl_fail(err, PL_E_USAGE, "--prompts: the target has no tokenizer; leave it out to use its own text");
    if (!p) {
        PL_TRY(pl_prompts_read(&read, t->prompts, err));
        p = read;
    }
    int64_t   wanted = (t->most + PER_PROMPT - 1) / PER_PROMPT, n = wanted < p->n ? wanted : p->n;
    int64_t   each = (t->most + n - 1) / n;
    pl_status st = PL_OK;
    for (int64_t i = 0; i < n && st == PL_OK; i++) {
        const pl_prompt *x = &p->p[i * p->n / n];
        int32_t         *ids;
        int64_t          len;
        st = pl_prompt_encode(tok, x, &ids, &len, err);
        if (st != PL_OK) break;
        if (len > 0) st = decode(t, runner, ids, len, each, t->most * (i + 1) / n, sampling, err);
        pl_free(ids);
    }
    pl_prompts_destroy(read);
    return st;
}

// Decodes the target's own text from BOS on.
static pl_status decode_own(const pl_inspect_texts *t, pl_runner *runner, pl_sampling *sampling, pl_err *err) {
    int32_t bos = runner->target->model.config.bos_token_id;
    if (bos < 0) return pl_fail(err, PL_E_USAGE, "--prompts: is missing; the target has no BOS token to start from");
    int64_t before = -1;
    while (*t->positions<t->most && * t->positions> before) {
        int64_t left = t->most - *t->positions, room = runner->max_len - 3;
        before = *t->positions;
        PL_TRY(decode(t, runner, &bos, 1, left < room ? left : room, t->most, sampling, err));
    }
    return PL_OK;
}

pl_status pl_inspect_decode(const pl_inspect_texts *t, pl_runner *runner, pl_sampling *sampling, pl_err *err) {
    PL_TRY(t->prompts ? decode_prompts(t, runner, sampling, err) : decode_own(t, runner, sampling, err));
    if (*t->positions > 0) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: no position was decoded: prompts are too long or texts end at once",
                   t->prompts ? t->prompts : t->target);
}

// ---- inspect --acceptance -------------------------------------------------------------------------------------------

// A verifier that samples as plain decoding does and records the distributions of target and drafter.
typedef struct recorder {
    pl_verifier   verifier;
    pl_acceptance acceptance;
    int           children;
    int64_t       positions, most;
    uint64_t      seed;
    double        accepted[VERIFIERS][PL_ACCEPTANCE_CHILDREN], variance[VERIFIERS][PL_ACCEPTANCE_CHILDREN];
    double        bound[DRAFTS][PL_ACCEPTANCE_CHILDREN];
} recorder;

static bool is_applicable(const pl_verifier *v, int n) {
    return n == 1 || !v->chain;
}

static void add_position(recorder *r, const double *p, const double *q) {
    double bound[PL_ACCEPTANCE_CHILDREN], variance;
    for (int kind = 0; kind < DRAFTS; kind++) {
        pl_acceptance_bound(&r->acceptance, (pl_proposal)kind, p, q, r->children, bound);
        for (int n = 0; n < r->children; n++)
            r->bound[kind][n] += bound[n];
    }
    pl_rng_coin coin;
    pl_rng_coin_init(&coin, r->seed, PL_STREAM_ACCEPT, 0, r->positions);
    for (int i = 0; pl_verifier_at(i); i++)
        for (int n = 1; n <= r->children; n++) {
            const pl_verifier *v = pl_verifier_at(i);
            if (!is_applicable(v, n)) continue;
            r->accepted[i][n - 1] += pl_acceptance_expected(&r->acceptance, v, p, q, n, TRIALS, &coin.base, &variance);
            r->variance[i][n - 1] += variance;
        }
    r->positions++;
}

static void verify_recorded(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out) {
    recorder     *r = (recorder *)(uintptr_t)v; // its own verifier; the engine holds it as const
    const double *q = in->tree->q[0];
    if (r->positions < r->most && in->dist(in->arg, 0, in->p)) add_position(r, in->p, q);
    pl_verify_walk(v, in, out);
}

static const char *const drafts[DRAFTS] = {[PL_PROPOSE_TOP] = "the best",
                                           [PL_PROPOSE_IID] = "drawn with replacement",
                                           [PL_PROPOSE_WOR] = "drawn without replacement",
                                           [PL_PROPOSE_TOP_ONE] = "the best and one drawn"};

static void put_row(pl_json_out *o, const recorder *r, const double *sum, const pl_verifier *v) {
    for (int n = 1; n <= r->children; n++) {
        char key[16];
        snprintf(key, sizeof key, "n=%d", n);
        pl_put_num(o, key, v && !is_applicable(v, n) ? NAN : round(sum[n - 1] / (double)r->positions * 1e6) / 1e6);
    }
}

static void put_acceptance(pl_json_out *o, const recorder *r) {
    pl_put_int(o, "positions", r->positions);
    pl_put_array(o, "acceptance");
    for (int i = 0; pl_verifier_at(i); i++) {
        const pl_verifier *v = pl_verifier_at(i);
        double             worst = 0;
        for (int n = 0; n < r->children; n++)
            worst = fmax(worst, sqrt(r->variance[i][n]) / (double)r->positions);
        pl_json_out_object(o);
        pl_put_str(o, "verifier", v->name);
        pl_put_bool(o, "lossless", v->lossless);
        pl_put_str(o, "children", drafts[v->proposal]);
        put_row(o, r, r->accepted[i], v);
        pl_put_num(o, "error", worst);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
    pl_put_array(o, "bound");
    for (int kind = 0; kind < DRAFTS; kind++) {
        pl_json_out_object(o);
        pl_put_str(o, "children", drafts[kind]);
        put_row(o, r, r->bound[kind], NULL);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

pl_status pl_inspect_acceptance(pl_json_out *o, const pl_env *env, const pl_cli_args *a, pl_err *err) {
    const char *path = a->positional[0], *drafter = pl_cli_text(a, "drafter"), *prompts = pl_cli_text(a, "prompts");
    pl_target   target;
    pl_runner   runner = {0};
    pl_sampling sampling = {.temperature = pl_cli_real(a, "temperature"), .top_p = 1, .seed = env->seed};
    pl_status   st = PL_OK;
    if (!drafter) return pl_fail(err, PL_E_USAGE, "--acceptance: needs a --drafter");
    PL_TRY(pl_target_open(&target, path, NULL, pl_cli_text(a, "pre"), PL_WEIGHTS_AUTO, env->backend, err));
    target.model.shape.kv = pl_kv_chosen(pl_cli_choice(a, "kv"));
    recorder *r = pl_calloc(1, sizeof *r);
    if (!r) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "acceptance: out of memory"));
    r->verifier = (pl_verifier){
        .name = "inspect --acceptance", .proposal = PL_PROPOSE_IID, .lossless = true, .verify = verify_recorded};
    r->children = (int)pl_cli_int(a, "children");
    r->most = pl_cli_int(a, "positions");
    r->seed = env->seed;
    PL_TRY_GOTO(st, done, pl_acceptance_init(&r->acceptance, target.model.vocab, err));
    pl_runner_options ro = {.drafter = drafter, .tree = "chain:1", .verifier = &r->verifier};
    PL_TRY_GOTO(st, done, pl_runner_open(&runner, env->backend, env->pool, &target, &ro, err));
    pl_inspect_texts texts = {
        .target = path, .prompts = prompts, .most = r->most, .tokens = 1, .positions = &r->positions};
    PL_TRY_GOTO(st, done, pl_inspect_decode(&texts, &runner, &sampling, err));
    pl_put_str(o, "kind", "acceptance");
    pl_put_str(o, "drafter", drafter);
    pl_put_str(o, "prompts", prompts);
    pl_put_num(o, "temperature", sampling.temperature);
    pl_put_str(o, "kv", pl_weights_name(target.model.shape.kv));
    put_acceptance(o, r);
done:
    pl_runner_close(&runner);
    if (r) pl_acceptance_fini(&r->acceptance);
    pl_free(r);
    pl_target_close(&target);
    return st;
}
