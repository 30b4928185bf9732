// inspect --ceilings: what the support of a draft head lets through, by depth (infer/inspect/ceilings.h).
#include "infer/head/head.h"
#include "infer/inspect/ceilings.h"
#include "infer/inspect/parts.h"
#include "kernels/base/json_put.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

// Looks on twice: at what the head reads while the drafter drafts, and at the target's distributions when the draft is
// verified, where it decides which text is written.
typedef struct looker {
    pl_draft_watch watch;
    pl_verifier    verifier;
    pl_ceilings    ceilings;
    bool           greedy;
    int64_t        positions, most;
    pl_err         err; // the first row that would not do; status PL_OK: none
    // The draft in hand.
    int            levels;
    const pl_head *head;
    bool           routed;
    float         *logits, *whole; // [PL_CEILINGS_DEPTH, v]
} looker;

static looker *from_watch(pl_draft_watch *w) {
    return (looker *)w; // its first member
}

static void see(pl_draft_watch *w, pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    looker *l = from_watch(w);
    bool    routed = h->kind->support || h->position_aware || h->exact.data;
    pl_head greedy = *h;
    greedy.selector.law = PL_HF_LAW_LIST; // what is not listed is never the best
    pl_tensor part = pl_head_logits(ctx, l->ceilings.temperature > 0 ? h : &greedy, r), whole = part;
    if (routed) whole = pl_head_all_logits(ctx, h, r);
    if (!part.data || !whole.data || r->level >= PL_CEILINGS_DEPTH) return;
    size_t at = (size_t)r->level * (size_t)l->ceilings.v, n = (size_t)h->vocab * sizeof(float);
    memcpy(l->logits + at, pl_f32(&part), n);
    memcpy(l->whole + at, pl_f32(&whole), n);
    l->head = h;
    l->routed = routed;
    l->levels = r->level + 1;
}

static void look(looker *l, const pl_verify_in *in, int node) {
    int            depth = in->tree->depth[node];
    size_t         at = (size_t)depth * (size_t)l->ceilings.v;
    pl_ceiling_row row = {.depth = depth, .p = in->p, .logits = l->logits + at};
    if (depth >= l->levels || l->err.status != PL_OK || !in->dist(in->arg, node, in->p)) return;
    row.whole = l->routed ? l->whole + at : NULL;
    row.d2t = l->head->d2t;
    row.vd = l->head->vocab;
    row.outside = pl_head_drafted(l->head).outside;
    pl_ceilings_add(&l->ceilings, &row, &l->err);
}

// The target's best tokens as far as they were drafted.
static void follow_best(const pl_verify_in *in, pl_verdict *out) {
    int node = 0;
    for (out->n = 0, out->path[0] = 0;; out->path[++out->n] = node) {
        if (!in->dist(in->arg, node, in->p)) {
            out->bonus = -1;
            return;
        }
        out->bonus = (int32_t)pl_propose_best(in->p, in->v);
        node = pl_tree_child(in->tree, node, out->bonus);
        if (node < 0) return;
    }
}

static void verify(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out) {
    looker *l = (looker *)(uintptr_t)((const char *)v - offsetof(looker, verifier));
    if (l->greedy)
        follow_best(in, out);
    else
        pl_verify_walk(v, in, out);
    if (l->levels > 0 && l->positions < l->most) {
        for (int i = 0; i <= out->n; i++)
            look(l, in, out->path[i]);
        l->positions++;
    }
    l->levels = 0;
}

pl_status pl_inspect_ceilings(pl_json_out *o, const pl_env *env, const pl_target *target, const char *path,
                              const pl_inspect_ceilings_options *opt, pl_err *err) {
    pl_runner   runner = {0};
    pl_sampling sampling = {.temperature = opt->temperature > 0 ? opt->temperature : 1, .top_p = 1, .seed = opt->seed};
    pl_status   st = PL_OK;
    char        tree[32];
    if (!pl_drafter_is_folder(opt->drafter))
        return pl_fail(err, PL_E_USAGE, "--ceilings: %s has no head; name a drafter's checkpoint", opt->drafter);
    size_t  room = (size_t)PL_CEILINGS_DEPTH * (size_t)target->model.vocab;
    looker *l = pl_calloc(1, sizeof *l);
    if (!l) return pl_fail(err, PL_E_MEMORY, "ceilings: out of memory");
    l->watch.see = see;
    l->verifier = (pl_verifier){.name = "look on", .proposal = PL_PROPOSE_TOP, .lossless = true, .verify = verify};
    l->greedy = !opt->sampled;
    l->most = opt->positions;
    PL_TRY_GOTO(st, done, pl_ceilings_init(&l->ceilings, target->model.vocab, opt->temperature, opt->n_best, err));
    l->logits = pl_calloc(room, sizeof *l->logits);
    l->whole = pl_calloc(room, sizeof *l->whole);
    if (!l->logits || !l->whole) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "ceilings: out of memory"));
    snprintf(tree, sizeof tree, "chain:%d", opt->depth);
    pl_runner_options ro = {.drafter = opt->drafter, .tree = tree, .verifier = &l->verifier, .watch = &l->watch};
    pl_inspect_texts  texts = {.target = path,
                               .prompts = opt->prompts,
                               .texts = opt->texts,
                               .most = l->most,
                               .tokens = opt->depth + 1,
                               .positions = &l->positions};
    PL_TRY_GOTO(st, done, pl_runner_open(&runner, env->backend, env->pool, target, &ro, err));
    PL_TRY_GOTO(st, done, pl_inspect_decode(&texts, &runner, &sampling, err));
    if (l->err.status != PL_OK) PL_TRY_GOTO(st, done, pl_fail(err, l->err.status, "%s: %s", opt->drafter, l->err.msg));
    pl_put_str(o, "kind", "ceilings");
    pl_put_str(o, "drafter", opt->drafter);
    pl_put_str(o, "head", l->head->kind->name);
    pl_put_str(o, "weights", pl_weights_name(target->dtype));
    pl_put_str(o, "kv", pl_weights_name(target->model.shape.kv));
    pl_put_str(o, "prompts", opt->prompts);
    pl_put_num(o, "temperature", opt->temperature);
    pl_put_str(o, "answers", opt->sampled ? "drawn" : "greedy");
    pl_put_int(o, "positions", l->positions);
    pl_put_int(o, "top", opt->n_best);
    pl_ceilings_write(&l->ceilings, o);
done:
    pl_runner_close(&runner);
    pl_ceilings_fini(&l->ceilings);
    pl_free(l->logits);
    pl_free(l->whole);
    pl_free(l);
    return st;
}
