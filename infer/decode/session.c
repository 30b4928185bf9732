#include "infer/decode/session.h"

#include "kernels/base/check.h"

enum { OPENING = 8 }; // tokens with which chat templates open an answer ("<|im_start|>assistant\n<think>\n"), at most

const int32_t *pl_session_tokens(const pl_session *s) {
    return s->tokens;
}

int32_t pl_session_length(const pl_session *s) {
    return s->n_tokens;
}

int32_t pl_session_prompt(const pl_session *s) {
    return s->n_prompt;
}

int32_t pl_session_reused(const pl_session *s) {
    return s->n_reused;
}

const int32_t *pl_session_answer(const pl_session *s, int32_t *n) {
    *n = s->n_tokens - s->n_prompt - (s->finish == PL_STOPPED ? 1 : 0);
    return s->tokens + s->n_prompt;
}

bool pl_session_reading(const pl_session *s) {
    return s->n_read < s->n_prompt;
}

pl_finish pl_session_finish(const pl_session *s) {
    return s->finish;
}

const char *pl_finish_name(pl_finish f) {
    static const char *const name[] = {"running", "stop", "length", "context"};
    return name[f];
}

void pl_session_rewind(pl_session *s, int32_t n) {
    PL_CHECK(n > s->n_prompt && n <= s->n_tokens, "back to %d of %d tokens", n, s->n_tokens);
    s->tokens[n - 1] = s->tokens[s->n_tokens - 1];
    s->n_tokens = n;
    s->n_read = n - 1;
    if (s->n_taken > s->n_read) s->n_taken = s->n_read;
    if (s->kv.state.at) *s->kv.state.at = s->n_read;
}

uint64_t pl_session_key(const pl_session *s) {
    return s->opt.key;
}

const pl_session_stats *pl_session_statistics(const pl_session *s) {
    return &s->stats;
}

int32_t pl_session_shared(const pl_session *s, const int32_t *prompt, int32_t n) {
    int32_t i = 0;
    while (i < n && i < s->n_read && s->tokens[i] == prompt[i])
        i++;
    return i;
}

pl_session *pl_session_choose(pl_session *slots, int n_slots, const int32_t *prompt, int32_t n) {
    pl_session *oldest = NULL, *best = NULL;
    int32_t     most = 0;
    for (pl_session *s = slots; s < slots + n_slots; s++) {
        if (s->live) continue;
        int32_t shared = pl_session_shared(s, prompt, n), saved = pl_recurrent_from(&s->kv.state, shared);
        if (!oldest || s->ended < oldest->ended) oldest = s;
        if (saved <= most || 2 * shared < s->n_read) continue;
        most = saved;
        best = s;
    }
    return best ? best : oldest;
}

int32_t pl_session_place_mark(const pl_session *slots, int n_slots, const int32_t *prompt, int32_t n, int32_t first) {
    int32_t shared = 0;
    for (const pl_session *s = slots; s < slots + n_slots && first == 0; s++) {
        int32_t of = pl_session_shared(s, prompt, n - 1);
        if (of > shared) shared = of;
    }
    return shared > 0 ? shared - 1 : n - OPENING; // a drafter's last row has read the token behind it
}

int32_t pl_session_said(const pl_session *s, const int32_t *prompt, int32_t n) {
    int32_t i = pl_session_shared(s, prompt, n);
    bool    whole = i > 0 && i == s->n_read && i < n && i < s->n_tokens;
    return whole && s->tokens[i] == prompt[i] ? i + 1 : i;
}

int pl_session_draft_depth(const pl_session *s, int max_len) {
    int left = s->opt.max_new - (s->n_tokens - s->n_prompt) - 1, room = max_len - s->n_tokens - 1;
    int depth = left < room ? left : room;
    return s->opt.draft_depth > 0 && s->opt.draft_depth < depth ? s->opt.draft_depth : depth;
}

bool pl_session_stops(const pl_session *s, int32_t token) {
    for (int i = 0; i < s->opt.n_stop; i++)
        if (s->opt.stop[i] == token) return true;
    return false;
}

// Returns the mask of what may stand behind a node.
static const uint32_t *allowed_after(const pl_session *s, int node) {
    pl_constraint *c = s->opt.sampling.constraint;
    int32_t        path[PL_TREE_MAX];
    int            n = pl_tree_path(&s->tree, node, path) - 1; // without the root, which is part of the answer
    for (int i = 0; i < n; i++)
        path[i] = s->tree.token[path[i + 1]];
    return c->allowed(c, s->tokens + s->n_prompt, s->n_tokens - s->n_prompt, path, n);
}

bool pl_session_forbids(const pl_session *s, bool *keep) {
    const pl_tree *t = &s->tree;
    bool           any = false;
    for (int i = 0; i < t->n; i++)
        keep[i] = true;
    for (int p = 0; p < t->n; p++) { // parents precede children
        bool            looks = keep[p] && t->first[p] >= 0 && t->kind[p] == PL_PROPOSE_TOP;
        bool            ended = looks && p > 0 && pl_session_stops(s, t->token[p]);
        const uint32_t *may = looks && !ended ? allowed_after(s, p) : NULL;
        for (int x = t->first[p]; x >= 0; x = t->sibling[x]) {
            keep[x] = keep[p] && !ended && (!may || may[t->token[x] / 32] >> t->token[x] % 32 & 1);
            any |= !keep[x];
        }
    }
    return any;
}

// Counts children offered and accepted by depth and rank.
static void count_ranks(pl_session *s, const pl_verdict *v) {
    const pl_tree *t = &s->tree;
    for (int i = 0; i <= v->n && i < PL_SHAPE_LEVELS; i++)
        for (int child = t->first[v->path[i]]; child >= 0; child = t->sibling[child]) {
            if (t->rank[child] >= PL_SHAPE_RANKS) continue;
            s->stats.rank_offered[i][t->rank[child]]++;
            s->stats.rank_accepted[i][t->rank[child]] += i < v->n && child == v->path[i + 1];
        }
}

void pl_session_count(pl_session *s, const pl_verdict *v, int emitted, int accepted) {
    s->stats.steps++;
    s->stats.emitted += emitted;
    s->stats.accepted += accepted;
    s->stats.drafted += s->tree.n - 1;
    int depth = 0;
    for (int i = 1; i < s->tree.n; i++)
        if (s->tree.depth[i] > depth) depth = s->tree.depth[i];
    for (int i = 0; i < depth; i++) {
        s->stats.position_drafted[i]++;
        s->stats.position_reached[i] += i <= v->n;
        s->stats.position_accepted[i] += i < v->n;
    }
    count_ranks(s, v);
}
