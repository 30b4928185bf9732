// inspect --acceptance: how often each verifier would accept on a target and a drafter, beside the bound.
#include "infer/inspect/acceptance.h"
#include "infer/inspect/parts.h"
#include "kernels/base/json_put.h"

#include <math.h>
#include <string.h>

#define TRIALS 32 // of a verifier without a closed form, at each position
#define VERIFIERS 32
#define DRAFTS (PL_PROPOSE_TOP_ONE + 1)

// A verifier that plain-samples the text, for the distributions of target and drafter that pass by.
typedef struct recorder {
    pl_verifier   verifier;
    pl_acceptance acceptance;
    int           children;
    int64_t       positions, most;
    uint64_t      seed;
    double        accepted[VERIFIERS][PL_ACCEPTANCE_CHILDREN], variance[VERIFIERS][PL_ACCEPTANCE_CHILDREN];
    double        bound[DRAFTS][PL_ACCEPTANCE_CHILDREN];
} recorder;

static bool applies(const pl_verifier *v, int n) {
    return n == 1 || !v->chain;
}

static void weigh(recorder *r, const double *p, const double *q) {
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
            if (!applies(v, n)) continue;
            r->accepted[i][n - 1] += pl_acceptance_expected(&r->acceptance, v, p, q, n, TRIALS, &coin.base, &variance);
            r->variance[i][n - 1] += variance;
        }
    r->positions++;
}

static void verify(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out) {
    recorder     *r = (recorder *)(uintptr_t)v; // its own verifier, which the engine sees as read-only
    const double *q = in->tree->q[0];
    if (r->positions < r->most && in->dist(in->arg, 0, in->p)) weigh(r, in->p, q);
    pl_verify_walk(v, in, out);
}

// ---- the result ----

static const char *const drafts[DRAFTS] = {[PL_PROPOSE_TOP] = "the best",
                                           [PL_PROPOSE_IID] = "drawn with replacement",
                                           [PL_PROPOSE_WOR] = "drawn without replacement",
                                           [PL_PROPOSE_TOP_ONE] = "the best and one drawn"};

static void put_row(pl_json_out *o, const recorder *r, const double *sum, const pl_verifier *v) {
    for (int n = 1; n <= r->children; n++) {
        char key[16];
        snprintf(key, sizeof key, "n=%d", n);
        pl_put_num(o, key, v && !applies(v, n) ? NAN : round(sum[n - 1] / (double)r->positions * 1e6) / 1e6);
    }
}

static void write(pl_json_out *o, const recorder *r) {
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

pl_status pl_inspect_acceptance(pl_json_out *o, const pl_env *env, const char *path,
                                const pl_inspect_acceptance_options *opt, pl_err *err) {
    pl_target   target;
    pl_runner   runner = {0};
    pl_sampling sampling = {.temperature = opt->temperature, .top_p = 1, .seed = env->seed};
    pl_status   st = PL_OK;
    PL_TRY(pl_target_open(&target, path, NULL, opt->pre, PL_WEIGHTS_AUTO, env->backend, err));
    target.model.shape.kv = opt->kv;
    recorder *r = pl_calloc(1, sizeof *r);
    if (!r) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "acceptance: out of memory"));
    r->verifier =
        (pl_verifier){.name = "inspect --acceptance", .proposal = PL_PROPOSE_IID, .lossless = true, .verify = verify};
    r->children = opt->children;
    r->most = opt->positions;
    r->seed = env->seed;
    PL_TRY_GOTO(st, done, pl_acceptance_init(&r->acceptance, target.model.vocab, err));
    pl_runner_options ro = {.drafter = opt->drafter, .tree = "chain:1", .verifier = &r->verifier};
    PL_TRY_GOTO(st, done, pl_runner_open(&runner, env->backend, env->pool, &target, &ro, err));
    pl_inspect_texts texts = {
        .target = path, .prompts = opt->prompts, .most = r->most, .tokens = 1, .positions = &r->positions};
    PL_TRY_GOTO(st, done, pl_inspect_decode(&texts, &runner, &sampling, err));
    pl_put_str(o, "kind", "acceptance");
    pl_put_str(o, "drafter", opt->drafter);
    pl_put_str(o, "prompts", opt->prompts);
    pl_put_num(o, "temperature", opt->temperature);
    pl_put_str(o, "kv", pl_weights_name(opt->kv));
    write(o, r);
done:
    pl_runner_close(&runner);
    if (r) pl_acceptance_fini(&r->acceptance);
    pl_free(r);
    pl_target_close(&target);
    return st;
}
