// A session's state, inside infer/decode. Other folders use decode.h.
#ifndef PL_SESSION_H
#define PL_SESSION_H

#include "infer/decode/decode.h"
#include "infer/model/kv.h"

struct pl_session {
    int32_t             *tokens;                     // prompt, then what was emitted (the stop token included)
    int32_t              n_tokens, n_prompt, n_read; // n_read: positions the target has in its cache; 0 in a free slot
                                                     // that keeps no prefix
    int32_t              n_taken;                    // positions whose rows the drafter has, of these tokens
    int32_t              n_reused;
    int32_t              mark;  // reading the prompt ends a chunk here and saves the states of recurrent layers
    uint64_t             ended; // order of the ends of slots that keep prefixes; 0: none yet
    int                  slot;
    pl_finish            finish;
    pl_session_options   opt;
    pl_session_stats     stats;
    pl_kv                kv;
    pl_tree              tree;
    bool                 live;
    // Sampling: scratch, and the distributions that the tree's children were drawn from.
    pl_distribution_work work;
    double              *dist; // [4][V]: p, q, r of verification, the drafter's
    double              *q;    // [nodes][V], at least one
    uint32_t            *mask; // scratch of constrained drafts
    pl_rng_coin          draft_coin;
    pl_proposing         proposing;
};

// Returns the length of the prefix that the positions in the cache share with a prompt.
int32_t     pl_session_shared(const pl_session *s, const int32_t *prompt, int32_t n);
// Returns the slot for a new prompt, NULL if none is free: the one that saves the most positions of it, if the prompt
// has at least half of the slot's tokens, else the one that ended longest ago.
pl_session *pl_session_choose(pl_session *slots, int n_slots, const int32_t *prompt, int32_t n);
// Returns where the prompt's reading should save states, if it begins at position `first`: where it parts from the
// other texts if none of their states could serve it, else before the tokens that open the answer, which the next turn
// of the conversation may not repeat.
int32_t pl_session_place_mark(const pl_session *slots, int n_slots, const int32_t *prompt, int32_t n, int32_t first);
// The same of its text, whose last token is not in the cache.
int32_t pl_session_said(const pl_session *s, const int32_t *prompt, int32_t n);
// Sets keep[i] false for drafted tokens that the session's constraint forbids, and for what follows them or the end;
// drawn ones stay, since their law is the verifier's. Returns true if there are any.
bool    pl_session_forbids(const pl_session *s, bool *keep);
// Returns the most levels of its draft, by its limit and by the tokens left of max_len, less the bonus token.
int     pl_session_draft_depth(const pl_session *s, int max_len);
// Returns true if the token ends the session's answer.
bool    pl_session_stops(const pl_session *s, int32_t token);
// Counts a step in the statistics, from its tree and verdict; accepted: the drafted tokens among the emitted ones.
void    pl_session_count(pl_session *s, const pl_verdict *v, int emitted, int accepted);

#endif
