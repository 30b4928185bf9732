// Chooses which drafters draft, by what decoding by each of them took. An engine has up to two: MODEL, any drafter, and
// beside it FREE (pl_drafter_source.free), where it was opened as "hybrid:FREE[+MODEL]" (infer/drafter/hybrid.c).
//
//   PL_ARM_NONE    Nothing is drafted.
//   PL_ARM_FREE    FREE drafts. The k likeliest nodes of all sessions' drafts are verified, k of the largest goodput
//                  (SmartSpec, Liu et al. 2024, arXiv 2406.14066): (S + sum f) / V(S + k) tokens per second of S
//                  sessions, V(rows) the seconds of a forward, f the acceptance rate of similar paths (cost.h).
//   PL_ARM_MODEL   MODEL drafts; where its tree adapts, the autotuner's.
//   PL_ARM_BOTH    FREE drafts, then MODEL for the m sessions that gain most by it, m by goodput again. FREE's paths
//                  that leave MODEL's tree and pay at that rate join it (RASD's union, arXiv 2503.03434), but for trees
//                  whose nodes are drawn.
//
// A bandit plays the arms in blocks of cycles. An arm's ratio is, of the middle half of its last blocks, the mean of
// seconds over those that plain decoding would have taken for as many tokens. The arm of the least ratio is played.
// Another arm is retried when its expected loss per block of waiting falls to PL_CHOOSE_REGRET of all time, and goes on
// while its blocks are better.
// A lone drafter of fixed shape always drafts.
//
// Beside FREE a session is attached, so that MODEL takes in its rows, or dropped for good. It begins attached while an
// arm with MODEL is in play, the best, untried or due, and such an arm is played while half of the sessions are
// attached; once none is, all are dropped. A session that has finished counts until it is ended. The seconds of taking
// in rows do not count for arms without MODEL. A lone MODEL has all sessions, and they count. With verifier match no
// text depends on the choice; verifiers that draw get MODEL's tokens drawn and match FREE's, and the choice depends on
// the past alone.
//
// Plain sessions (pl_session_options.plain) are neither drafted for nor attached. Beside others each is a row and a
// token of the step's goodput. A step of plain sessions alone teaches the cost of its rows and counts for no arm.
// Acceptance is counted by level, of the levels that were drafted, so that a limited depth does not lower it.
#ifndef PL_CHOOSE_H
#define PL_CHOOSE_H

#include "infer/decode/autotuner.h"
#include "infer/drafter/drafter.h"
#include "infer/verify/verify.h"

#define PL_CHOOSE_BLOCK 16      // cycles; tokens of fewer differ too much from block to block
#define PL_CHOOSE_MEMORY 16     // blocks, 256 cycles: beyond them a change of machine or text is forgotten
#define PL_CHOOSE_REGRET 0.0005 // share of all time that one arm's trials may lose,
#define PL_CHOOSE_REST 256      // but for one trial in so many blocks, so that changes are noticed

typedef enum pl_arm { PL_ARM_NONE, PL_ARM_FREE, PL_ARM_MODEL, PL_ARM_BOTH, PL_ARMS } pl_arm;

typedef struct pl_choose_arm {
    long   blocks, since; // played; blocks of other arms since then
    double x[PL_CHOOSE_MEMORY];
} pl_choose_arm;

typedef struct pl_choose_session pl_choose_session;

typedef struct pl_choose {
    pl_drafter        *free, *model; // NULL: none
    unsigned           arms;         // bits of pl_arm
    pl_arm             arm, best;    // in play; of the least ratio, PL_ARM_NONE at first
    int                cycles;       // of the block in play; -1: trees of the arm before are still to be verified
    double             seconds, worth;
    pl_choose_arm      of[PL_ARMS];
    pl_autotuner       tuner; // of MODEL
    pl_autotuner_cycle cycle; // of the last draft
    pl_calibration     alone, beside;
    double             apart;   // share of FREE's nodes that are not in MODEL's tree
    pl_choose_session *session; // [sessions]
    int                sessions, most_nodes, most_rows;
    struct pl_likely  *node;                                    // FREE's nodes by worth, or sessions
    pl_draft_item     *item;                                    // [sessions] of a call of one drafter
    double            *at_rows, *first_of, *idle_of, *level_of; // seconds by rows, sessions and a level's rows
    long               steps;
    int                plain;     // plain sessions of the step
    double             rate;      // expected tokens per second of the plan
    double             taking_in; // seconds that MODEL took for sessions when none was drafted for
    pl_draft_parts     parts;     // of the last draft
} pl_choose;

// drafter: NULL, or as pl_drafter_open gave it; borrowed. fini: also of {0}.
pl_status pl_choose_init(pl_choose *c, pl_drafter *drafter, int sessions, pl_err *err);
void      pl_choose_fini(pl_choose *c);
void      pl_choose_start(pl_choose *c, int slot, bool plain); // a session takes the slot
void      pl_choose_end(pl_choose *c, int slot);
// True if MODEL takes in the session's rows.
bool      pl_choose_attached(const pl_choose *c, int slot);
// Drops nodes of a session's tree as pl_tree_prune does, after the draft.
void      pl_choose_drop(pl_choose *c, int slot, pl_tree *t, const bool *keep);
// Learns from a tree's verdict, before the tree is grown anew.
void      pl_choose_verdict(pl_choose *c, int slot, const pl_tree *t, const pl_verdict *v);
// Hands final rows to the drafters and grows the items' trees; an item's depth is what its session has room for. plain:
// plain sessions that decode beside the items'. On a measuring context it walks the largest step, for which the batch
// needs features alone.
void      pl_choose_draft(pl_choose *c, pl_ctx *ctx, pl_draft_batch *b, int plain);
// Ends a step in which all sessions decoded.
void      pl_choose_step(pl_choose *c, const pl_draft_pace *p);
// Writes the adapting shape in use, "none" while plain decoding is the best arm; false: there is none to write.
bool      pl_choose_tree(const pl_choose *c, char *text, size_t size);

#endif
