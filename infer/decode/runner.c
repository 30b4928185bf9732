#include "infer/decode/runner.h"

#include "kernels/base/json.h"

#define CHUNK 256 // rows of a prefill chunk
_Static_assert(PL_TREE_MAX <= CHUNK, "a session's rows in one step");

const char *pl_runner_tree(const char *tree, const pl_verifier *v) {
    return v && v->chain && !(tree && *tree) ? "chain:auto" : tree;
}

pl_status pl_runner_open(pl_runner *r, const pl_backend *be, pl_pool *pool, const pl_target *target,
                         const pl_runner_options *o, pl_err *err) {
    int positions = target->model.config.max_position_embeddings;
    *r = (pl_runner){.target = target, .max_len = o->max_len};
    if (r->max_len <= 0 || r->max_len > positions) r->max_len = positions;
    const char *tree = pl_runner_tree(o->tree, o->verifier);
    int         least = 1, sessions = o->sessions > 0 ? o->sessions : 1;
    if (o->drafter) {
        pl_tree_policy policy;
        PL_TRY(pl_drafter_shape(&policy, o->drafter, tree, err));
        least = policy.max_nodes;
    }
    int                rows = least * sessions > CHUNK ? least * sessions : CHUNK;
    pl_drafter_options d = {.target = &target->model,
                            .dtype = target->dtype,
                            .tree = tree,
                            .max_sessions = sessions,
                            .max_rows = rows,
                            .chunk = CHUNK,
                            .slots = r->max_len,
                            .pool = pool,
                            .tok = target->tok};
    if (o->drafter) PL_TRY(pl_drafter_open(&r->drafter, o->drafter, &d, err));
    if (r->drafter) r->drafter->watch = o->watch;
    pl_engine_options eo = {.max_sessions = sessions,
                            .max_rows = rows,
                            .chunk = CHUNK,
                            .max_len = r->max_len,
                            .verifier = o->verifier,
                            .see_logits = o->see_logits,
                            .host_logits = o->host_logits,
                            .keep_prefixes = o->keep_prefixes};
    pl_status         st = pl_engine_create(&r->engine, be, pool, &target->model, r->drafter, &eo, err);
    if (st != PL_OK) pl_runner_close(r);
    return st;
}

void pl_runner_close(pl_runner *r) {
    pl_engine_destroy(r->engine);
    pl_drafter_destroy(r->drafter);
    *r = (pl_runner){0};
}

static void end(pl_runner *r) {
    if (r->session) pl_engine_end(r->engine, r->session);
    r->session = NULL;
}

pl_status pl_runner_run(pl_runner *r, const int32_t *prompt, int64_t n, const pl_sampling *sampling, int max_new,
                        pl_token_fn fn, void *arg, pl_err *err) {
    end(r);
    PL_TRY(pl_sampling_check(sampling, err));
    if (n >= r->max_len)
        return pl_fail(err, PL_E_INPUT, "the prompt has %lld tokens, the context holds %d; shorten it", (long long)n,
                       r->max_len);
    pl_session_options o = {.sampling = *sampling, .max_new = max_new, .n_stop = r->target->n_stop};
    for (int i = 0; i < o.n_stop; i++)
        o.stop[i] = r->target->stop[i];
    pl_session *s;
    PL_TRY(pl_engine_start(r->engine, prompt, (int)n, &o, &s, err));
    r->session = s;
    int32_t told = 0;
    while (pl_session_finish(s) == PL_RUNNING) {
        PL_TRY(pl_engine_step(r->engine, err));
        int32_t        count;
        const int32_t *answer = pl_session_answer(s, &count);
        for (; fn && told < count; told++)
            if (!fn(arg, answer[told])) return PL_OK;
    }
    return PL_OK;
}

pl_status pl_runner_save(pl_runner *r, pl_err *err) {
    end(r);
    return pl_drafter_save(r->drafter, err);
}

pl_status pl_runner_forget(pl_runner *r, pl_err *err) {
    end(r);
    return pl_drafter_forget(r->drafter, err);
}

pl_status pl_runner_retake(pl_runner *r, const char *dir, pl_err *err) {
    if (!r->drafter) return pl_fail(err, PL_E_UNSUPPORTED, "%s: there is no drafter in use", dir);
    return pl_drafter_retake(r->drafter, dir, &r->target->model, r->target->dtype, err);
}

void pl_stats_add(pl_session_stats *to, const pl_session_stats *s) {
    to->emitted += s->emitted;
    to->steps += s->steps;
    to->drafted += s->drafted;
    to->accepted += s->accepted;
    to->seconds += s->seconds;
    to->prefill_seconds += s->prefill_seconds;
    for (int i = 0; i < PL_TREE_MAX; i++) {
        to->position_drafted[i] += s->position_drafted[i];
        to->position_reached[i] += s->position_reached[i];
        to->position_accepted[i] += s->position_accepted[i];
    }
    for (int l = 0; l < PL_SHAPE_LEVELS; l++)
        for (int r = 0; r < PL_SHAPE_RANKS; r++) {
            to->rank_offered[l][r] += s->rank_offered[l][r];
            to->rank_accepted[l][r] += s->rank_accepted[l][r];
        }
    pl_step_parts_add(&to->parts, &s->parts);
}

double pl_stats_speed(const pl_session_stats *s) {
    return pl_ratio((double)s->emitted, s->seconds);
}
double pl_stats_acceptance(const pl_session_stats *s) {
    return pl_ratio((double)s->emitted, (double)s->steps);
}
double pl_stats_accepted(const pl_session_stats *s) {
    return pl_ratio((double)s->accepted, (double)s->drafted);
}

int pl_stats_depth(const pl_session_stats *s) {
    int n = PL_TREE_MAX;
    while (n > 0 && s->position_drafted[n - 1] == 0)
        n--;
    return n;
}

double pl_stats_position(const pl_session_stats *s, int i) {
    return pl_ratio((double)s->position_accepted[i], (double)s->position_drafted[i]);
}

static void put_ranks(pl_json_out *o, const char *key, const pl_session_stats *s,
                      const int64_t count[PL_SHAPE_LEVELS][PL_SHAPE_RANKS]) {
    pl_put_array(o, key);
    for (int l = 0; l < PL_SHAPE_LEVELS && s->rank_offered[l][0]; l++) {
        pl_json_out_array(o);
        for (int r = 0; r < PL_SHAPE_RANKS && s->rank_offered[l][r]; r++)
            pl_json_out_int(o, count[l][r]);
        pl_json_out_close(o, ']');
    }
    pl_json_out_close(o, ']');
}

void pl_stats_write_acceptance(pl_json_out *o, const pl_session_stats *s) {
    pl_put_array(o, "acceptance_by_position");
    for (int i = 0, n = pl_stats_depth(s); i < n; i++)
        pl_json_out_num(o, pl_stats_position(s, i));
    pl_json_out_close(o, ']');
    put_ranks(o, "offered_by_rank", s, s->rank_offered);
    put_ranks(o, "accepted_by_rank", s, s->rank_accepted);
}

void pl_stats_write_parts(pl_json_out *o, const pl_session_stats *s) {
    const pl_step_parts  *p = &s->parts;
    const pl_draft_parts *d = &p->draft;
    pl_put_object(o, "seconds_by_part");
    pl_put_num(o, "target", p->target);
    pl_put_num(o, "verify", p->verify);
    pl_put_num(o, "take_in", d->take_in);
    pl_put_num(o, "layer", d->layer);
    pl_put_num(o, "head", d->head);
    pl_put_num(o, "draw", d->draw);
    pl_put_num(o, "other", s->seconds - p->target - p->verify - d->take_in - d->layer - d->head - d->draw);
    pl_json_out_close(o, '}');
}

void pl_stats_write(pl_json_out *o, const pl_session_stats *s, int64_t n_prompt) {
    pl_put_int(o, "tokens", s->emitted);
    pl_put_num(o, "seconds", s->seconds);
    pl_put_num(o, "tokens_per_second", pl_stats_speed(s));
    pl_put_int(o, "steps", s->steps);
    pl_put_num(o, "acceptance_length", pl_stats_acceptance(s));
    pl_put_int(o, "drafted", s->drafted);
    pl_put_int(o, "accepted", s->accepted);
    pl_put_num(o, "accepted_over_drafted", pl_stats_accepted(s));
    pl_stats_write_acceptance(o, s);
    pl_stats_write_parts(o, s);
    pl_put_int(o, "prefill_tokens", n_prompt);
    pl_put_num(o, "prefill_seconds", s->prefill_seconds);
    pl_put_num(o, "prefill_tokens_per_second", pl_ratio((double)n_prompt, s->prefill_seconds));
}
