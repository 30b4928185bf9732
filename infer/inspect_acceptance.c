// inspect --acceptance: how often each verifier would accept on a target and a drafter, beside the bound.
#include "data/prompts.h"
#include "infer/acceptance.h"
#include "infer/inspect_parts.h"
#include "infer/put.h"
#include "infer/runner.h"
#include "kernels/base/log.h"

#include <math.h>
#include <string.h>

#define TRIALS 32     // of a verifier without a closed form, at each position
#define PER_PROMPT 16 // tokens decoded after each prompt, where there are prompts enough
#define VERIFIERS 32
#define DRAFTS (PL_PROPOSE_TOP_ONE + 1)

// A verifier that plain-samples the text, for the laws of target and drafter that pass by.
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
    if (r->positions < r->most && in->law(in->arg, 0, in->p)) weigh(r, in->p, q);
    pl_verify_walk(v, in, out);
}

// ---- texts ----

static pl_status decode(pl_runner *runner, const int32_t *ids, int64_t n, int64_t tokens, pl_sampling *sampling,
                        pl_err *err) {
    if (n + tokens + 2 > runner->max_len) return PL_OK; // a prompt that leaves no room is passed over
    sampling->seed++;
    // The first token comes with the prompt, the last is drafted for no more.
    return pl_runner_run(runner, ids, n, sampling, (int)tokens + 2, NULL, NULL, err);
}

static pl_status decode_prompts(recorder *r, pl_runner *runner, const char *path, pl_sampling *sampling, pl_err *err) {
    const pl_tokenizer *tok = runner->target->tok;
    pl_prompts         *p;
    if (!tok)
        return pl_fail(err, PL_E_USAGE, "--prompts: the target has no tokenizer; leave it out to use its own text");
    PL_TRY(pl_prompts_read(&p, path, err));
    int64_t   wanted = (r->most + PER_PROMPT - 1) / PER_PROMPT, n = wanted < p->n ? wanted : p->n;
    int64_t   each = (r->most + n - 1) / n;
    pl_status st = PL_OK;
    for (int64_t i = 0; i < n && st == PL_OK; i++) {
        const pl_prompt *x = &p->p[i * p->n / n];
        int32_t         *ids;
        int64_t          len;
        st = pl_tokenizer_encode(tok, x->text, strlen(x->text), PL_TOK_ADD_BOS, &ids, &len, err);
        if (st != PL_OK) break;
        if (len > 0) st = decode(runner, ids, len, each, sampling, err);
        pl_free(ids);
    }
    pl_prompts_destroy(p);
    return st;
}

// The target's own text, from its first token on.
static pl_status decode_own(recorder *r, pl_runner *runner, pl_sampling *sampling, pl_err *err) {
    int32_t bos = runner->target->model.config.bos_token_id;
    if (bos < 0) return pl_fail(err, PL_E_USAGE, "--prompts: is missing; the target has no BOS token to start from");
    int64_t before = -1;
    while (r->positions < r->most && r->positions > before) {
        int64_t left = r->most - r->positions, room = runner->max_len - 3;
        before = r->positions;
        PL_TRY(decode(runner, &bos, 1, left < room ? left : room, sampling, err));
    }
    return PL_OK;
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
    PL_TRY(pl_target_open(&target, path, NULL, opt->pre, PL_WEIGHTS_AUTO, err));
    recorder *r = pl_calloc(1, sizeof *r);
    if (!r) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "acceptance: out of memory"));
    r->verifier = (pl_verifier){.name = "record", .proposal = PL_PROPOSE_IID, .lossless = true, .verify = verify};
    r->children = opt->children;
    r->most = opt->positions;
    r->seed = env->seed;
    PL_TRY_GOTO(st, done, pl_acceptance_init(&r->acceptance, target.model.vocab, err));
    pl_runner_options ro = {.drafter = opt->drafter, .tree = "chain:1", .verifier = &r->verifier};
    PL_TRY_GOTO(st, done, pl_runner_open(&runner, env->backend, env->pool, &target, &ro, err));
    PL_TRY_GOTO(st, done,
                opt->prompts ? decode_prompts(r, &runner, opt->prompts, &sampling, err)
                             : decode_own(r, &runner, &sampling, err));
    if (r->positions == 0)
        PL_TRY_GOTO(st, done,
                    pl_fail(err, PL_E_INPUT,
                            "%s: no position was decoded: prompts are too long or texts end "
                            "at once",
                            opt->prompts ? opt->prompts : path));
    pl_put_str(o, "kind", "acceptance");
    pl_put_str(o, "drafter", opt->drafter);
    pl_put_str(o, "prompts", opt->prompts);
    pl_put_num(o, "temperature", opt->temperature);
    write(o, r);
done:
    pl_runner_close(&runner);
    if (r) pl_acceptance_fini(&r->acceptance);
    pl_free(r);
    pl_target_close(&target);
    return st;
}
