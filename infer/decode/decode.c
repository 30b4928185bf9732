#include "infer/decode/decode.h"

#include "infer/decode/choose.h"
#include "infer/decode/session.h"
#include "infer/decode/verification.h"
#include "infer/drafter/backbone.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/topk.h"

#include <stdio.h>
#include <string.h>

// One session's part of a step's rows.
typedef struct part {
    pl_session *s;
    int         row0, rows;
    bool        decoding; // the rows of a tree, root included; else a chunk of the prompt
    bool        last;     // the chunk that ends the prompt
    pl_verified verified;
    pl_verdict  verdict;
    int32_t     first, count; // positions first .. first + count - 1 became final
    int32_t     emitted;
} part;

_Static_assert(PL_TREE_MAX <= PL_TP_PATH_MAX, "a tree path fits in a message of a row");
_Static_assert(PL_TREE_MAX <= PL_GDN_NODES, "a tree fits in a walk over recurrent states");

// The union of tapped target layers, without duplicates; those of the options come first.
typedef struct taps {
    int layer[PL_MAX_TAPS], n, n_options;
    int options[PL_MAX_TAPS], drafter[PL_MAX_TAPS]; // indices into layer[] of the options' and the drafter's taps
} taps;

struct pl_engine {
    pl_ctx            ctx;
    const pl_llama   *target;
    pl_drafter       *drafter;
    pl_tp_caches     *others; // caches of the tensor-parallel ranks; NULL: one rank
    pl_engine_options opt;
    pl_final_fn       on_final;
    void             *on_final_arg;
    pl_cycle_fn       on_cycle;
    void             *on_cycle_arg;
    pl_choose         choose;
    pl_session       *session;    // [max_sessions]
    int               slots;      // of each cache: max_len + a tree
    int               max_logits; // rows of a step whose logits are computed, at most
    uint64_t          ends;       // sessions that ended and left a prefix
    // one step's rows
    part             *parts;
    int               n_parts;
    pl_arena          arrays; // of op index arrays that devices read: id, pos, path, logits_index, argmax, row
    int32_t          *id, *pos, *path, *logits_index, *logits_row, *argmax, *final_row;
    taps              taps;
    pl_kvrow         *row; // [layers][rows of the step], capacity max_rows per layer
    pl_verification   verification;
    pl_draft_item    *item;
};

// ---- target forward; creation and destruction -----------------------------------------------------------------------

typedef struct forward_out {
    pl_llama_out out;
    pl_tensor    logits, features, drafter_features;
} forward_out;

static void add_taps(taps *t, const int *tap, int n, int *place) {
    for (int i = 0; i < n; i++) {
        int j = 0;
        while (j < t->n && t->layer[j] != tap[i])
            j++;
        PL_CHECK(j < PL_MAX_TAPS, "more than %d different tap layers", PL_MAX_TAPS);
        if (j == t->n) t->layer[t->n++] = tap[i];
        place[i] = j;
    }
}

// Concatenates n of the tapped layers; returns an empty tensor for n = 0.
static pl_tensor select_features(pl_ctx *ctx, const pl_llama_out *out, const int *place, int n) {
    pl_llama_out some = {0};
    for (int i = 0; i < n; i++)
        some.tap[i] = out->tap[place[i]];
    return n ? pl_features(ctx, &some, n) : (pl_tensor){0};
}

// Records the target's forward, head, argmax and draws. drafted: captures the drafter's taps, too.
static void forward(pl_engine *e, int rows, int n_logits, bool greedy, int n_draws, bool drafted, forward_out *f) {
    pl_ctx *ctx = &e->ctx;
    pl_view view = {.pos = e->pos, .cos = e->target->cos, .sin = e->target->sin, .row = e->row, .m = rows};
    int     n_taps = drafted ? e->taps.n : e->taps.n_options;
    pl_llama_forward(ctx, e->target, e->id, rows, &view, e->taps.layer, n_taps, &f->out);
    pl_tensor hidden = n_logits == rows ? f->out.hidden : pl_gather(ctx, f->out.hidden, e->logits_index, n_logits);
    f->logits = pl_llama_logits(ctx, e->target, hidden);
    if (greedy) pl_topk(ctx, &(pl_topk_args){.x = f->logits, .id = e->argmax, .k = 1});
    pl_verification_draw(&e->verification, ctx, f->logits, n_draws);
    f->features = select_features(ctx, &f->out, e->taps.options, e->opt.n_taps);
    f->drafter_features = select_features(ctx, &f->out, e->taps.drafter, drafted ? e->drafter->n_taps : 0);
}

// Returns true if all steps' logits are read on the host.
static bool reads_logits(const pl_engine *e) {
    return !e->ctx.be->memory || e->opt.see_logits;
}

// Returns true if there is room for reading them in any step.
static bool may_read_logits(const pl_engine *e) {
    return reads_logits(e) || e->opt.host_logits || !e->verification.draws;
}

// Records the largest step to size the context's memory.
static void measure_step(pl_ctx *ctx, void *arg) {
    pl_engine  *e = arg;
    forward_out f;
    forward(e, e->opt.max_rows, e->max_logits, true, e->max_logits, e->drafter != NULL, &f);
    pl_gather(ctx, f.out.hidden, e->logits_index, e->max_logits); // a smaller step may gather where this one did not
    if (may_read_logits(e)) pl_ctx_read(ctx, &f.logits);
    if (f.features.data) pl_ctx_read(ctx, &f.features);
    pl_ctx_read(ctx, &f.out.hidden);
    pl_choose_draft(&e->choose, &e->ctx, &(pl_draft_batch){.features = f.drafter_features}, 0);
}

// Allocates sampling buffers; unused pages take no memory.
static pl_status allocate_sampling(pl_engine *e, pl_session *x, pl_err *err) {
    size_t v = (size_t)e->target->vocab, nodes = e->drafter ? (size_t)pl_tree_expanded(&e->drafter->policy) : 0;
    PL_TRY(pl_distribution_work_init(&x->work, e->target->vocab, err));
    x->dist = pl_calloc(pl_size_mul(4, v, 1), sizeof *x->dist);
    if (e->drafter && e->opt.verifier->proposal == PL_PROPOSE_TOP) nodes = 1;
    if (nodes) x->q = pl_calloc(pl_size_mul(nodes, v, 1), sizeof *x->q);
    if (nodes) x->mask = pl_calloc((v + 31) / 32, sizeof *x->mask);
    if (!x->dist || (nodes && (!x->q || !x->mask)))
        return pl_fail(err, PL_E_MEMORY, "sampling over %lld tokens: out of memory", (long long)e->target->vocab);
    x->proposing = (pl_proposing){.sampling = &x->opt.sampling,
                                  .mask = x->mask,
                                  .coin = &x->draft_coin.base,
                                  .races = nodes > 0 && e->drafter->policy.kind->races,
                                  .q = x->q,
                                  .q_rows = (int)nodes,
                                  .vocab = e->target->vocab,
                                  .work = &x->work,
                                  .dist = x->dist + 3 * v};
    return PL_OK;
}

// Allocates the step's arrays; the first call measures.
static void take_arrays(void *arg) {
    pl_engine *e = arg;
    size_t     rows = (size_t)e->opt.max_rows;
    e->id = pl_arena_alloc(&e->arrays, rows * sizeof *e->id);
    e->pos = pl_arena_alloc(&e->arrays, rows * sizeof *e->pos);
    e->path = pl_arena_alloc(&e->arrays, rows * PL_TREE_MAX * sizeof *e->path);
    e->logits_index = pl_arena_alloc(&e->arrays, (size_t)e->max_logits * sizeof *e->logits_index);
    e->argmax = pl_arena_alloc(&e->arrays, (size_t)e->max_logits * sizeof *e->argmax);
    e->row = pl_arena_alloc(&e->arrays, rows * (size_t)e->target->n_layers * sizeof *e->row);
    pl_verification_take(&e->verification, &e->arrays, e->max_logits);
}

static pl_status allocate(pl_engine *e, pl_err *err) {
    size_t rows = (size_t)e->opt.max_rows, s = (size_t)e->opt.max_sessions;
    e->session = pl_calloc(s, sizeof *e->session);
    e->parts = pl_calloc(s, sizeof *e->parts);
    e->item = pl_calloc(s, sizeof *e->item);
    e->logits_row = pl_calloc(rows, sizeof *e->logits_row);
    e->final_row = pl_calloc(rows, sizeof *e->final_row);
    if (!e->session || !e->parts || !e->item || !e->logits_row || !e->final_row)
        return pl_fail(err, PL_E_MEMORY, "decode engine of %d rows: out of memory", e->opt.max_rows);
    PL_TRY(pl_arena_init_shared(&e->arrays, "decode engine", e->ctx.be->memory, take_arrays, e, err));
    for (size_t i = 0; i < s; i++) {
        pl_session *x = &e->session[i];
        x->slot = (int)i;
        x->tokens = pl_calloc((size_t)e->slots + 1, sizeof *x->tokens);
        if (!x->tokens) return pl_fail(err, PL_E_MEMORY, "session of %d positions: out of memory", e->opt.max_len);
        PL_TRY(pl_llama_reach(e->target, e->slots, err));
        if (e->opt.caches)
            x->kv = e->opt.caches->session[i].kv;
        else
            PL_TRY(pl_kv_create(&x->kv, e->target->n_layers, e->slots, &e->target->shape, e->ctx.be, err));
        if (!e->opt.caches) PL_TRY(pl_recurrent_keep(&x->kv.state, e->slots - e->opt.max_len, err));
        if (e->opt.keep_prefixes) PL_TRY(pl_recurrent_keep_saved(&x->kv.state, err));
        PL_TRY(allocate_sampling(e, x, err));
    }
    return PL_OK;
}

// Checks that the verifier takes the drafter's trees and proposals.
static pl_status check_verifier(const pl_engine *e, pl_err *err) {
    const pl_drafter *d = e->drafter;
    PL_TRY(pl_verifier_takes(e->opt.verifier, &d->policy, err));
    return pl_verifier_takes_draws(e->opt.verifier, d->kind->name, d->proposals, err);
}

pl_status pl_engine_create(pl_engine **out, const pl_backend *be, pl_pool *pool, const pl_llama *target,
                           pl_drafter *drafter, const pl_engine_options *o, pl_err *err) {
    *out = NULL;
    pl_engine *e = pl_calloc(1, sizeof *e);
    if (!e) return pl_fail(err, PL_E_MEMORY, "decode engine: out of memory");
    e->target = target;
    e->drafter = drafter;
    e->opt = *o;
    if (!e->opt.verifier) e->opt.verifier = &pl_verify_match;
    if (target->recurrent) e->opt.caches = NULL; // two engines cannot move one state on in turns
    int positions = target->config.max_position_embeddings;
    if (e->opt.max_len <= 0 || e->opt.max_len > positions) e->opt.max_len = positions;
    int tree = drafter ? drafter->policy.max_nodes : 1;
    pl_verification_init(&e->verification, e->opt.verifier, drafter != NULL, target->vocab, e->opt.max_sessions,
                         be->memory != NULL);
    PL_CHECK(e->opt.max_rows >= e->opt.max_sessions * tree, "%d rows for %d sessions with trees of %d", e->opt.max_rows,
             e->opt.max_sessions, tree);
    e->slots = e->opt.max_len + tree;
    PL_CHECK(!e->opt.caches || (e->slots <= o->caches->slots && o->max_sessions <= o->caches->opt.max_sessions),
             "an engine's caches are too small for another");
    PL_CHECK(!e->opt.caches || !(o->keep_prefixes || o->caches->opt.keep_prefixes),
             "prefixes in caches of two engines");
    // Tree rows and each prompt's last row alone have logits, so the memory of logits over a large vocabulary does not
    // limit the size of a prompt's chunk.
    e->max_logits = o->max_logits > o->max_sessions * tree ? o->max_logits : o->max_sessions * tree;
    if (o->all_logits || e->max_logits > o->max_rows) e->max_logits = o->max_rows;
    add_taps(&e->taps, o->tap, o->n_taps, e->taps.options);
    e->taps.n_options = e->taps.n;
    if (drafter) add_taps(&e->taps, drafter->tap, drafter->n_taps, e->taps.drafter);
    pl_status st;
    PL_TRY_GOTO(st, fail, pl_ctx_init(&e->ctx, be, pool));
    PL_TRY_GOTO(st, fail, pl_choose_init(&e->choose, drafter, o->max_sessions, err));
    e->ctx.repeats = !target->comm; // a graph cannot hold communication with other ranks
    PL_TRY_GOTO(st, fail,
                pl_tp_caches_create(&e->others, target,
                                    &(pl_tp_sizes){.sessions = e->opt.max_sessions,
                                                   .slots = e->slots,
                                                   .rows = e->opt.max_rows,
                                                   .logits = e->max_logits,
                                                   .path = PL_TREE_MAX,
                                                   .nodes = tree,
                                                   .saved = e->opt.keep_prefixes && target->recurrent,
                                                   .kv = target->shape.kv},
                                    err));
    if (drafter) PL_TRY_GOTO(st, fail, check_verifier(e, err));
    PL_TRY_GOTO(st, fail, allocate(e, err));
    PL_TRY_GOTO(st, fail, pl_ctx_measure(&e->ctx, measure_step, e, err));
    *out = e;
    return PL_OK;
fail:
    pl_engine_destroy(e);
    return st;
}

void pl_engine_destroy(pl_engine *e) {
    if (!e) return;
    for (int i = 0; e->session && i < e->opt.max_sessions; i++) {
        pl_free(e->session[i].tokens);
        if (!e->opt.caches) pl_kv_destroy(&e->session[i].kv);
        pl_distribution_work_fini(&e->session[i].work);
        pl_free(e->session[i].dist);
        pl_free(e->session[i].q);
        pl_free(e->session[i].mask);
    }
    void *owned[] = {e->session, e->parts, e->item, e->logits_row, e->final_row};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
    pl_choose_fini(&e->choose);
    pl_ctx_fini(&e->ctx);
    pl_arena_fini(&e->arrays);
    pl_tp_caches_destroy(e->others);
    pl_free(e);
}

void pl_engine_on_final(pl_engine *e, pl_final_fn fn, void *arg) {
    e->on_final = fn;
    e->on_final_arg = arg;
}

void pl_engine_on_cycle(pl_engine *e, pl_cycle_fn fn, void *arg) {
    e->on_cycle = fn;
    e->on_cycle_arg = arg;
}

// ---- sessions -------------------------------------------------------------------------------------------------------

// Refuses a prompt that does not fit, and tokens outside the vocabulary.
static pl_status check_start(const pl_engine *e, const int32_t *prompt, int n, const pl_session_options *o,
                             pl_err *err) {
    if (n < 1) return pl_fail(err, PL_E_INPUT, "the prompt is empty: give at least one token");
    if (n >= e->opt.max_len)
        return pl_fail(err, PL_E_INPUT, "the prompt has %d tokens, the context holds %d; shorten it", n,
                       e->opt.max_len);
    for (int i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= e->target->vocab)
            return pl_fail(err, PL_E_INPUT, "prompt token %d is %d, outside the vocabulary of %lld", i, prompt[i],
                           (long long)e->target->vocab);
    for (int i = 0; i < o->sampling.n_bias; i++)
        if (o->sampling.bias[i].id < 0 || o->sampling.bias[i].id >= e->target->vocab)
            return pl_fail(err, PL_E_INPUT, "logit_bias: token %d is outside the vocabulary of %lld",
                           o->sampling.bias[i].id, (long long)e->target->vocab);
    if ((o->prompt_logits || pl_sampling_on_host(&o->sampling)) && !may_read_logits(e))
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "a prompt's logits, logit_bias, presence and frequency penalties need logits on the host; give "
                       "the engine room for them (host_logits)");
    return PL_OK;
}

// Prepares the slot's caches for a prompt. Returns the position from which it is read: at least one is, and from where
// an attached drafter lacks rows, or keys that its windows no longer hold: both take the target's features.
static int32_t reuse_prefix(pl_engine *e, pl_session *s, const int32_t *prompt, int n, const pl_session_options *o) {
    int32_t shared = pl_session_shared(s, prompt, n), first = shared < n ? shared : n - 1;
    int32_t kept = e->drafter ? pl_drafter_keep(e->drafter, s->slot, pl_session_said(s, prompt, n)) : 0;
    if (o->prompt_logits) first = 0;
    if (s->n_taken > kept) s->n_taken = kept;
    bool attached = pl_choose_attached(&e->choose, s->slot);
    if (attached && first > s->n_taken) first = s->n_taken;
    first = pl_recurrent_from(&s->kv.state, first);
    if (attached) first = pl_recurrent_from(&s->kv.state, pl_drafter_from(e->drafter, s->slot, first, n));
    pl_recurrent_go(&e->ctx, &s->kv.state, first);
    if (attached) s->n_taken = first;
    return first;
}

pl_status pl_engine_start(pl_engine *e, const int32_t *prompt, int n, const pl_session_options *o, pl_session **out,
                          pl_err *err) {
    *out = NULL;
    PL_TRY(check_start(e, prompt, n, o, err));
    PL_CHECK(o->max_new >= 1 && o->draft_depth >= 0, "max_new %d, draft_depth %d", o->max_new, o->draft_depth);
    pl_session *s = pl_session_choose(e->session, e->opt.max_sessions, prompt, n);
    PL_CHECK(s, "no free slot among %d", e->opt.max_sessions);
    pl_choose_start(&e->choose, s->slot, o->plain);
    int32_t first = reuse_prefix(e, s, prompt, n, o);
    s->mark = s->kv.state.saved ? pl_session_place_mark(e->session, e->opt.max_sessions, prompt, n, first) : 0;
    s->n_reused = s->n_read = first;
    memcpy(s->tokens, prompt, (size_t)n * sizeof *prompt);
    s->n_tokens = s->n_prompt = n;
    pl_verification_text(&e->verification, s);
    s->finish = PL_RUNNING;
    s->opt = *o;
    s->stats = (pl_session_stats){0};
    s->live = true;
    s->tree.n = 0;
    *out = s;
    return PL_OK;
}

pl_session *pl_engine_session(pl_engine *e, int slot) {
    return e->session[slot].live ? &e->session[slot] : NULL;
}

int pl_engine_free_slots(const pl_engine *e) {
    int n = 0;
    for (int i = 0; i < e->opt.max_sessions; i++)
        n += !e->session[i].live;
    return n;
}

void pl_engine_end(pl_engine *e, pl_session *s) {
    const pl_drafter *d = s->opt.plain ? NULL : e->drafter;
    if (d && d->kind->ended) d->kind->ended(e->drafter, s->slot, s->tokens + s->n_prompt, s->n_tokens - s->n_prompt);
    pl_choose_end(&e->choose, s->slot);
    s->live = false;
    if (e->opt.keep_prefixes && pl_recurrent_reaches(&s->kv.state, s->n_read)) // not behind a step that failed
        s->ended = ++e->ends;
    else
        s->n_read = 0;
}

// ---- one step -------------------------------------------------------------------------------------------------------

static void add_row(pl_engine *e, int m, int stride, const pl_session *s, int32_t token, int32_t pos, int32_t n_ctx,
                    const int32_t *path, int n_path, int32_t slot, bool logits, int *n_logits) {
    e->id[m] = token;
    e->pos[m] = pos;
    pl_kv_row(&s->kv, &e->row[m], stride, n_ctx, path, n_path, slot);
    pl_tp_add(e->others, &(pl_tp_row){.token = token,
                                      .pos = pos,
                                      .session = s->slot,
                                      .n_ctx = n_ctx,
                                      .path = path,
                                      .n_path = n_path,
                                      .slot = slot,
                                      .logits = logits});
    e->logits_row[m] = -1;
    if (logits) {
        e->logits_row[m] = *n_logits;
        e->logits_index[(*n_logits)++] = m;
    }
}

// Adds the tree's rows. Node i writes its keys and values to position n_read + i of the cache and attends to the
// n_read positions before and its path.
static void add_tree(pl_engine *e, part *p, int m, int stride, int *n_logits) {
    pl_session *s = p->s;
    for (int i = 0; i < s->tree.n; i++, m++) {
        int32_t *path = e->path + (size_t)m * PL_TREE_MAX;
        int      n = pl_tree_path(&s->tree, i, path);
        for (int j = 0; j < n; j++)
            path[j] += s->n_read;
        add_row(e, m, stride, s, s->tree.token[i], s->n_read + s->tree.depth[i], s->n_read, path, n, s->n_read + i,
                true, n_logits);
    }
}

// Adds rows of the prompt; only the last needs logits unless all are requested.
static void add_chunk(pl_engine *e, part *p, int m, int stride, int *n_logits) {
    pl_session *s = p->s;
    // Other ranks go where this rank's states went when the session began, once however often the slot was taken.
    if (s->kv.state.layers > 0 && s->n_read == s->n_reused) pl_tp_state(e->others, s->slot, s->n_read, false);
    for (int i = 0; i < p->rows; i++, m++) {
        int32_t t = s->n_read + i;
        bool    logits = e->opt.all_logits || s->opt.prompt_logits || (p->last && i == p->rows - 1);
        add_row(e, m, stride, s, s->tokens[t], t, s->n_read, NULL, i + 1, t, logits, n_logits);
    }
}

// Registers a tree for verification. After the prompt's last chunk the tree is its root, and the bonus is the first
// token.
static void ask_verdict(pl_engine *e, part *p) {
    int root = p->decoding ? p->row0 : p->row0 + p->rows - 1;
    p->verified = (pl_verified){
        .s = p->s, .position = p->decoding ? p->s->n_read : p->s->n_prompt - 1, .row = e->logits_row[root]};
    if (!p->decoding) pl_tree_root(&p->s->tree, p->s->tokens[p->verified.position]);
    pl_verification_ask(&e->verification, &p->verified);
}

static bool is_running(const pl_session *s) {
    return s->live && s->finish == PL_RUNNING;
}

// Returns the rows with logits that remain when each prompt has one, for its last row.
static int spare_logits(const pl_engine *e) {
    int n = e->max_logits;
    for (int i = 0; i < e->opt.max_sessions; i++)
        n -= is_running(&e->session[i]) && pl_session_reading(&e->session[i]);
    return n;
}

// Assigns rows to decoding sessions, then to prompts' chunks; returns how many rows there are.
static int plan_rows(pl_engine *e) {
    int m = 0, most = e->opt.max_rows, logits = spare_logits(e);
    e->n_parts = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && e->opt.chunk) {
            int least = m + (e->opt.chunk + 3) / 4, to = least > e->opt.chunk ? least : e->opt.chunk;
            if (to < most) most = to;
        }
        for (int i = 0; i < e->opt.max_sessions; i++) {
            pl_session *s = &e->session[i];
            if (!is_running(s)) continue;
            bool decoding = !pl_session_reading(s), all = !decoding && s->opt.prompt_logits && !e->opt.all_logits;
            if (decoding != (pass == 0)) continue;
            int left = most - m, want = decoding ? s->tree.n : s->n_prompt - s->n_read;
            if (!decoding && s->mark > s->n_read && want > s->mark - s->n_read) want = s->mark - s->n_read;
            if (want > left) want = left;
            if (all && want > logits + 1) want = logits + 1;
            if (want == 0) continue;
            if (decoding || all) logits -= want - all;
            e->parts[e->n_parts++] = (part){.s = s,
                                            .row0 = m,
                                            .rows = want,
                                            .decoding = decoding,
                                            .last = !decoding && s->n_read + want == s->n_prompt};
            m += want;
        }
    }
    return m;
}

typedef struct verify_job {
    pl_engine   *e;
    const float *logits;
} verify_job;

// Computes the verdict of one part.
static void verify_part(void *arg, int i, int parts) {
    (void)parts;
    verify_job *j = arg;
    part       *p = &j->e->parts[i];
    if (p->decoding || p->last)
        pl_verification_verdict(&j->e->verification, &p->verified, j->logits, j->e->argmax, &p->verdict);
}

// Appends a token; returns false if it ends the session.
static bool emit(pl_engine *e, pl_session *s, int32_t token) {
    s->tokens[s->n_tokens++] = token;
    pl_verification_said(&e->verification, s, token);
    if (pl_session_stops(s, token)) {
        s->finish = PL_STOPPED;
    } else if (s->n_tokens - s->n_prompt >= s->opt.max_new) {
        s->finish = PL_LENGTH;
    } else if (s->n_tokens >= e->opt.max_len) {
        s->finish = PL_CONTEXT;
    }
    return s->finish == PL_RUNNING;
}

// Returns true if a session of this step is attached to MODEL, which then needs its features.
static bool taps_drafter(const pl_engine *e) {
    bool any = false;
    for (int i = 0; i < e->n_parts; i++)
        any |= pl_choose_attached(&e->choose, e->parts[i].s->slot);
    return any;
}

static void commit_decoding(pl_engine *e, part *p) {
    pl_session *s = p->s;
    pl_verdict *v = &p->verdict;
    int32_t     n0 = s->n_tokens, slot[PL_TREE_MAX];
    int         kept = 0;
    bool        go = true;
    // Emission ends at a stop token or a limit inside the accepted path.
    while (go && kept < v->n)
        go = emit(e, s, s->tree.token[v->path[++kept]]);
    if (go) emit(e, s, v->bonus);
    pl_choose_verdict(&e->choose, s->slot, &s->tree, v);
    p->emitted = s->n_tokens - n0;
    pl_session_count(s, v, p->emitted, kept);
    if (e->on_cycle)
        e->on_cycle(e->on_cycle_arg, &(pl_cycle){.session = s, .tree = &s->tree, .verdict = v, .emitted = p->emitted});
    // Keys and values of the root and of the emitted nodes become final; all other rows are discarded.
    p->first = s->n_read;
    p->count = kept + 1;
    for (int i = 0; i <= kept; i++) {
        slot[i] = s->n_read + v->path[i];
        e->final_row[p->row0 + i] = p->row0 + v->path[i];
    }
    pl_kv_move(&e->ctx, &s->kv, s->n_read, slot, kept + 1);
    pl_tp_move(e->others, s->slot, s->n_read, slot, kept + 1);
    s->n_read += kept + 1;
}

static void commit_chunk(pl_engine *e, part *p) {
    pl_session *s = p->s;
    p->first = s->n_read;
    p->count = p->rows;
    for (int i = 0; i < p->rows; i++)
        e->final_row[p->row0 + i] = p->row0 + i;
    s->n_read += p->rows;
    if (s->n_read == s->mark) {
        pl_recurrent_save(&e->ctx, &s->kv.state);
        pl_tp_state(e->others, s->slot, s->mark, true);
    }
    if (p->last) emit(e, s, p->verdict.bonus);
}

static void report_final(pl_engine *e, const forward_out *f, const float *logits) {
    if (!e->on_final) return;
    pl_tensor features = f->features, hidden = f->out.hidden;
    if (features.data) features.data = pl_ctx_read(&e->ctx, &f->features);
    hidden.data = pl_ctx_read(&e->ctx, &f->out.hidden);
    if (e->ctx.err.status != PL_OK) return; // pl_engine_step returns the error when it synchronises
    for (int i = 0; i < e->n_parts; i++) {
        part *p = &e->parts[i];
        e->on_final(e->on_final_arg, &(pl_final_rows){.session = p->s,
                                                      .first = p->first,
                                                      .count = p->count,
                                                      .row = e->final_row + p->row0,
                                                      .features = features,
                                                      .hidden = hidden,
                                                      .logits = logits,
                                                      .logits_row = e->logits_row,
                                                      .argmax = e->argmax});
    }
}

// Sets how this cycle's drafts are drawn or, under a constraint, chosen.
static void prepare_drawing(const pl_engine *e, pl_session *s, pl_draft_item *it) {
    bool          sampled = s->opt.sampling.temperature > 0;
    pl_proposing *o = &s->proposing;
    o->kind = sampled ? e->opt.verifier->proposal : PL_PROPOSE_TOP;
    o->q_used = 0;
    o->answer = s->tokens + s->n_prompt;
    o->n_answer = s->n_tokens - s->n_prompt;
    if (sampled) pl_rng_coin_init(&s->draft_coin, s->opt.sampling.seed, PL_STREAM_DRAFT, s->opt.key, s->n_tokens - 1);
    it->writing = sampled ? o : NULL;
    it->proposing = o->kind != PL_PROPOSE_TOP || s->opt.sampling.constraint ? o : NULL;
}

// Drops what constraints forbid in drafts that were not drawn.
static void drop_forbidden(pl_engine *e, int n) {
    for (int i = 0; i < n; i++) {
        pl_session *s = &e->session[e->item[i].slot];
        bool        keep[PL_TREE_GROWN];
        if (e->item[i].tree && s->opt.sampling.constraint && pl_session_forbids(s, keep))
            pl_choose_drop(&e->choose, s->slot, &s->tree, keep);
    }
}

// Passes final rows to the drafters and grows the next trees. Sessions that read their prompts get no tree.
static void draft(pl_engine *e, const forward_out *f) {
    int n = 0, plain = 0;
    for (int i = 0; i < e->n_parts; i++) {
        part       *p = &e->parts[i];
        pl_session *s = p->s;
        bool        ended = s->finish != PL_RUNNING, decoding = !pl_session_reading(s);
        // A prompt that continues this text reads none of its rows again where a state cannot go back.
        if (ended && !(e->opt.keep_prefixes && e->target->recurrent)) continue;
        if (decoding) pl_tree_root(&s->tree, s->tokens[s->n_tokens - 1]);
        if (s->opt.plain) {
            plain += decoding;
            continue;
        }
        if (pl_choose_attached(&e->choose, s->slot)) s->n_taken = p->first + p->count;
        int depth = pl_session_draft_depth(s, e->opt.max_len);
        e->item[n] = (pl_draft_item){.slot = s->slot,
                                     .tokens = s->tokens,
                                     .n_tokens = s->n_tokens,
                                     .first = p->first,
                                     .count = p->count,
                                     .feature_row = e->final_row + p->row0,
                                     .row0 = p->row0,
                                     .rows = p->rows,
                                     .tree = decoding && depth > 0 && !ended ? &s->tree : NULL,
                                     .depth = depth};
        prepare_drawing(e, s, &e->item[n++]);
    }
    if (e->ctx.err.status != PL_OK) return;
    pl_choose_draft(&e->choose, &e->ctx,
                    &(pl_draft_batch){.item = e->item,
                                      .n = n,
                                      .features = f->drafter_features,
                                      .token = e->id,
                                      .logits = f->logits,
                                      .logits_row = e->logits_row},
                    plain);
    if (e->ctx.err.status == PL_OK) drop_forbidden(e, n);
    // Adds the drafter's name: the target has tensors of the same names.
    if (e->ctx.err.status != PL_OK)
        pl_fail_at(&e->ctx.err, e->ctx.err.status, "drafter \"%s\"", e->drafter->kind->name);
}

// Reports the step's cost. Steps that also read prompts are skipped: their time is not that of decoding.
static void learn_pace(pl_engine *e, int rows, double verifying, double drafting) {
    pl_draft_pace pace = {.sessions = e->n_parts, .rows = rows, .verifying = verifying, .drafting = drafting};
    for (int i = 0; i < e->n_parts; i++) {
        if (!e->parts[i].decoding) return;
        pace.emitted += e->parts[i].emitted;
        pace.plain += e->parts[i].s->opt.plain;
    }
    pl_choose_step(&e->choose, &pace);
}

pl_status pl_engine_step(pl_engine *e, pl_err *err) {
    double t0 = pl_now();
    int    rows = plan_rows(e), n_logits = 0;
    if (rows == 0) return PL_OK;
    bool greedy = e->opt.all_logits, on_host = false;
    pl_verification_begin(&e->verification);
    for (int i = 0; i < e->n_parts; i++) {
        part *p = &e->parts[i];
        if (p->decoding)
            add_tree(e, p, p->row0, rows, &n_logits);
        else
            add_chunk(e, p, p->row0, rows, &n_logits);
        greedy |= pl_verification_greedy(p->s);
        on_host |= !p->decoding && p->s->opt.prompt_logits;
        if (!p->decoding && !p->last) continue;
        on_host |= pl_verification_on_host(&e->verification, &p->s->opt.sampling);
        ask_verdict(e, p);
    }
    pl_ctx_begin(&e->ctx);
    forward_out f;
    PL_TRY(pl_tp_begin(e->others, err));
    forward(e, rows, n_logits, greedy && n_logits > 0, e->verification.n_draws, taps_drafter(e), &f);
    pl_tp_finish(e->others, &e->ctx);
    verify_job job = {.e = e};
    if (n_logits > 0 && (on_host || reads_logits(e))) job.logits = pl_ctx_read(&e->ctx, &f.logits);
    PL_TRY(pl_ctx_sync(&e->ctx, err));
    double t_target = pl_now();
    pl_parallel(on_host && e->n_parts > 1 ? e->ctx.pool : NULL, e->n_parts, verify_part, &job);
    for (int i = 0; i < e->n_parts; i++) {
        part *p = &e->parts[i];
        if ((p->decoding || p->last) && p->verdict.bonus < 0)
            return pl_fail(err, PL_E_INPUT,
                           "the target's logits are not numbers at position %d; its weights are broken", p->s->n_read);
        if (p->decoding)
            commit_decoding(e, p);
        else
            commit_chunk(e, p);
    }
    report_final(e, &f, job.logits);
    double t1 = pl_now();
    draft(e, &f);
    PL_TRY(pl_ctx_sync(&e->ctx, err));
    double        t2 = pl_now();
    pl_step_parts parts = {.target = t_target - t0, .verify = t1 - t_target, .draft = e->choose.parts};
    for (int i = 0; i < e->n_parts; i++) {
        part *p = &e->parts[i];
        if (!p->decoding) {
            p->s->stats.prefill_seconds += t2 - t0;
            continue;
        }
        p->s->stats.seconds += t2 - t0;
        pl_step_parts_add(&p->s->stats.parts, &parts);
    }
    learn_pace(e, rows, t1 - t0, t2 - t1);
    return PL_OK;
}

void pl_engine_tree(const pl_engine *e, char *text, size_t size) {
    if (!pl_choose_tree(&e->choose, text, size))
        snprintf(text, size, "%s", e->drafter ? e->drafter->policy.text : "none");
}
