// A session's state, inside infer/decode. Other folders use decode.h.
#ifndef PL_SESSION_H
#define PL_SESSION_H

#include "infer/decode/decode.h"
#include "infer/model/kv.h"

struct pl_session {
    int32_t             *tokens;                     // prompt, then what was emitted (the stop token included)
    int32_t              n_tokens, n_prompt, n_read; // n_read: positions the target has in its cache
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
    double              *q;    // [nodes][V]
    pl_rng_coin          draft_coin;
    pl_proposing         proposing;
};

#endif
