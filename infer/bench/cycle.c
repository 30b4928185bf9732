#include "infer/bench/cycle.h"

#define READING 64 // least row limit of a forward, for prefill
#define COLD 3     // first steps of a run; a device launches a step's graph from its third repetition on
#define SLOW 0.1   // seconds after which no further cold step begins

// ---- trees that cost nothing ----------------------------------------------------------------------------------------

typedef struct free_drafter {
    pl_drafter base;
    int64_t    vocab;
    uint64_t   token; // number of candidates so far, from which tokens are made: siblings and consecutive tokens differ
} free_drafter;

static void offer(void *arg, const pl_tree_policy *p, const pl_tree *t, int node, int32_t *id) {
    free_drafter *d = arg;
    (void)t, (void)node;
    for (int i = 0; i < p->k; i++)
        id[i] = (int32_t)(++d->token % (uint64_t)d->vocab);
}

static void propose(pl_drafter *base, pl_ctx *ctx, pl_draft_batch *b) {
    (void)ctx;
    for (int i = 0; i < b->n; i++)
        if (b->item[i].tree) pl_tree_draft(&base->policy, b->item[i].tree, b->item[i].depth, offer, base);
}

static double step_bytes(const pl_drafter *base) {
    (void)base;
    return 0;
}

static const pl_drafter_kind kind = {.name = "free", .propose = propose, .step_bytes = step_bytes};

static pl_status create_free(pl_drafter **out, const pl_cycle_options *o, pl_err *err) {
    free_drafter *d = pl_calloc(1, sizeof *d);
    if (!d) return pl_fail(err, PL_E_MEMORY, "cycles: out of memory");
    d->base = (pl_drafter){.kind = &kind, .policy = *o->policy};
    d->vocab = o->target->vocab;
    *out = &d->base;
    return PL_OK;
}

// ---- the engine -----------------------------------------------------------------------------------------------------

void pl_cycle_policy(pl_tree_policy *p, int nodes, int k, int width, int depth) {
    *p = (pl_tree_policy){.kind = &pl_tree_static, .k = k, .width = width, .max_nodes = nodes, .depth_max = depth};
    pl_tree_shape_set(p, 2, (int32_t[]){-1, 0});
}

static pl_status open_drafter(pl_cycles *c, const pl_cycle_options *o, const pl_engine_options *eo, pl_err *err) {
    pl_drafter_options of = {
        .target = o->target, .max_sessions = o->batch, .max_rows = eo->max_rows, .slots = eo->max_len};
    if (!o->policy) return PL_OK;
    if (!o->backbone) return create_free(&c->drafter, o, err);
    return pl_drafter_over(&c->drafter, o->backbone, o->policy, &of, err);
}

// Prefills each session with a prompt of the context's length.
static pl_status read_prompts(pl_cycles *c, const pl_cycle_options *o, pl_err *err) {
    int32_t *prompt = pl_malloc((size_t)o->context * sizeof *prompt);
    if (!prompt) return pl_fail(err, PL_E_MEMORY, "cycles: out of memory");
    pl_status st = PL_OK;
    for (int s = 0; s < o->batch && st == PL_OK; s++) {
        pl_session        *x;
        pl_session_options so = {.sampling = {.temperature = o->temperature, .top_p = 1, .seed = (uint64_t)s + 1},
                                 .max_new = 1 << 30};
        for (int i = 0; i < o->context; i++)
            prompt[i] = (int32_t)((7 * (int64_t)(i + s) + 3) % o->target->vocab);
        st = pl_engine_start(c->engine, prompt, o->context, &so, &x, err);
    }
    // The first sessions decode while the later ones prefill: they are rewound too.
    while (st == PL_OK && pl_session_reading(pl_engine_session(c->engine, o->batch - 1))) {
        for (int s = 0; s < o->batch; s++) {
            pl_session *x = pl_engine_session(c->engine, s);
            if (pl_session_length(x) > o->context) pl_session_rewind(x, o->context + 1);
        }
        st = pl_engine_step(c->engine, err);
    }
    pl_free(prompt);
    return st;
}

static pl_status open_engine(pl_cycles *c, const pl_backend *be, pl_pool *pool, const pl_cycle_options *o,
                             pl_err *err) {
    int               tree = o->policy ? o->policy->max_nodes : 0, rows = o->batch * tree;
    int               positions = o->target->config.max_position_embeddings;
    pl_engine_options eo = {.max_sessions = o->batch,
                            .max_rows = rows > READING ? rows : READING,
                            .verifier = &c->verifier,
                            .caches = o->caches ? o->caches->engine : NULL};
    eo.max_len = o->context + PL_CYCLE_SPARE - tree; // the caches of plain decoding are shared and hold any tree
    if (o->context + PL_CYCLE_SPARE > positions)
        return pl_fail(err, PL_E_INPUT, "a context of %d leaves no room for drafts: the target has %d positions",
                       o->context, positions);
    PL_TRY(open_drafter(c, o, &eo, err));
    PL_TRY(pl_engine_create(&c->engine, be, pool, o->target, c->drafter, &eo, err));
    return read_prompts(c, o, err);
}

pl_status pl_cycles_open(pl_cycles **out, const pl_backend *be, pl_pool *pool, const pl_cycle_options *o, pl_err *err) {
    *out = NULL;
    pl_cycles *c = pl_calloc(1, sizeof *c);
    if (!c) return pl_fail(err, PL_E_MEMORY, "cycles: out of memory");
    c->batch = o->batch;
    c->context = o->context;
    c->device = be->device != NULL;
    c->verifier = pl_verify_match;
    c->verifier.accepts = &c->accepts;
    pl_status st = open_engine(c, be, pool, o, err);
    if (st == PL_OK)
        *out = c;
    else
        pl_cycles_close(c);
    return st;
}

void pl_cycles_close(pl_cycles *c) {
    if (!c) return;
    pl_engine_destroy(c->engine);
    pl_drafter_destroy(c->drafter);
    pl_free(c);
}

pl_status pl_cycles_step(pl_cycles *c, pl_cycle_sample *s, pl_err *err) {
    const pl_session_stats *of = pl_session_statistics(pl_engine_session(c->engine, 0));
    double                  seconds = of->seconds;
    pl_step_parts           before = of->parts;
    *s = (pl_cycle_sample){.rows = c->batch};
    for (int i = 0; i < c->batch; i++) {
        pl_session             *x = pl_engine_session(c->engine, i);
        const pl_session_stats *t = pl_session_statistics(x);
        pl_session_rewind(x, c->context + 1);
        s->rows -= (int)t->drafted;
        s->emitted -= (int)t->emitted;
    }
    PL_TRY(pl_engine_step(c->engine, err));
    for (int i = 0; i < c->batch; i++) {
        const pl_session_stats *t = pl_session_statistics(pl_engine_session(c->engine, i));
        s->rows += (int)t->drafted;
        s->emitted += (int)t->emitted;
    }
    s->seconds = of->seconds - seconds;
    s->parts = (pl_step_parts){.target = of->parts.target - before.target, .verify = of->parts.verify - before.verify};
    if (c->drafter) s->parts.draft = c->drafter->parts;
    s->draft = s->seconds - s->parts.target - s->parts.verify;
    return PL_OK;
}

pl_status pl_cycles_run(pl_cycles *c, int steps, bool apart, void (*add)(void *arg, const pl_cycle_sample *s),
                        void *arg, pl_err *err) {
    pl_cycle_sample s;
    double          t0 = pl_now();
    if (c->drafter) {
        c->accepts = c->drafter->policy.depth / 2;
        c->drafter->by_level = apart || !c->device ? c->level : NULL;
    }
    for (int i = 0; i < COLD && (i == 0 || pl_now() - t0 < SLOW); i++)
        PL_TRY(pl_cycles_step(c, &s, err));
    for (int i = 0; i < steps; i++) {
        PL_TRY(pl_cycles_step(c, &s, err));
        add(arg, &s);
    }
    return PL_OK;
}
