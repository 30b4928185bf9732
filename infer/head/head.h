// Draft heads: from the drafter's hidden state to a distribution over (draft) tokens.
//
// Every head here is a projection followed by one dense matrix:  logits = out . project(x)
//   full      project = identity,          out = lm_head [Vd, d]                         full.c
//   lowrank   project = down [r, d],       out = up [V, r]      (SlimSpec: z = W_up W_down h)   lowrank.c
//   specvocab the same as a scorer, whose candidates exact rows [V, d] rescore                  specvocab.c
//   dynaspec  project = identity,          out = lm_head sorted by cluster, a router's support  dynaspec.c
//   markov    the target's own rows, plus low-rank logits of the previous token                 markov.c
//   xpress    the same, of the block and of all tokens before                                   xpress.c
// Training passes project(x) and out to the divergence ops, decoding chooses among the rows of out: one definition
// serves both. A head that reads only some rows returns them as its support, for given hidden states: the proposal's
// distribution is the softmax over the support, and other tokens come from the target alone. Any head may be followed
// by a selector (infer/head/selector.h), which rescores its best tokens by the previous token. A head is one file and
// one line in heads.def; its kind has its name, settings (recipe keys, and fields in a checkpoint), weights with their
// initialisation, projection, support, held-out scoring, and untrained examples for benches and plans.
#ifndef PL_HEAD_H
#define PL_HEAD_H

#include "checkpoints/hf.h"
#include "infer/head/outside.h"
#include "infer/head/selector.h"
#include "infer/head/sequence.h"
#include "infer/model/params.h"
#include "kernels/base/key.h"
#include "kernels/op/route.h"

typedef struct pl_head pl_head;

// Supports of rows: group g's rows are row[g]..row[g+1]-1, and its spans (ascending, disjoint) are the g-th of `spans`.
// On a device the host reads them only with pl_route_read (spans.held).
typedef struct pl_head_support {
    const int *row; // [spans.groups + 1]
    pl_spans   spans;
} pl_head_support;

// Input of a head: one row for each node whose candidates are wanted.
typedef struct pl_head_rows {
    pl_tensor             x;      // [M, d] normed outputs of the backbone
    int                   level;  // draft depth of the candidates: 0 for the first
    int                   levels; // training: number of levels in the rows, of the same blocks, level after level; 0: 1
    pl_tensor             base;   // [M, Vd] logits by `out` alone, if the caller has them already
    pl_selector_list      list;   // the selector's list, if the caller has it already
    // For heads that read them (pl_head_reads_inputs):
    pl_tensor             hidden; // [M, d] input of the backbone's step for the row
    const int32_t        *token;  // [M] the token that the step consumed with it
    pl_tensor             embed;  // [V, d] the target's embedding
    const int32_t        *group; // [M] ascending: rows of one session share a number (and a support); NULL: one session
    // Heads that go from slot to slot (infer/head/sequence.h): the blocks that the rows are slots of; each row's block
    // (NULL: row i of each draft is of block i); their state after the slot before each row (data NULL: none); and the
    // results of pl_head_carry.
    const pl_head_blocks *blocks;
    const int32_t        *block;
    pl_tensor             state;
    pl_tensor             mixed, after; // [M, r] input of the additional logits; state after the row (data NULL: none)
    // Set by pl_head_begin.
    bool                  foreseen;
    pl_head_support       support;
} pl_head_rows;

// An untrained head with settings that are usual for a vocabulary and a width, to measure a kind's cost before
// training.
enum {
    PL_EXAMPLE_HEADS = 1, // for `bench heads`
    PL_EXAMPLE_PLAN = 2,  // for `plan`
    PL_EXAMPLE_CYCLE = 4, // for `bench decode --shape`
};
typedef struct pl_head_example {
    char       name[48]; // "trimmed-V/8"
    pl_hf_head spec;
    int64_t    rows;   // of its vocabulary; 0: the kind has no head for this shape
    int        level;  // draft depth at which it is measured
    bool       uneven; // its table (pl_head_table.draw) is uneven
    unsigned   in;     // commands that measure it: bits of the above
} pl_head_example;

// The shape that examples are made for.
typedef struct pl_head_shape {
    int64_t        vocab, d;
    const int64_t *rank; // requested ranks; NULL: the usual ones
    int            n_ranks;
} pl_head_shape;

// Optional groups of a kind's functions; a kind without them has a NULL pointer.

// A table stored in the checkpoint besides the weights. A head with a table stores its d2t too.
typedef struct pl_head_table {
    const char *name; // of its tensor
    // Refuses a missing or broken one.
    pl_status (*read)(pl_head *h, const pl_weight_source *src, pl_err *err);
    pl_st_source (*stored)(const pl_head *h); // the tensor to write, borrowed from h
    // Gives an untrained head a table.
    pl_status (*draw)(pl_head *h, bool uneven, pl_err *err);
} pl_head_table;

typedef struct pl_head_kind {
    const char   *name; // "full", "lowrank": recipe key drafter.head.kind and config paceline.head.kind
    // Settings, each a recipe key drafter.head.NAME and NAME in the config's paceline.head; they fill the kind's own
    // struct, pl_head.own. A number of 0 is unset. NULL: none.
    const pl_key *keys;
    // Fills in settings that a recipe leaves open. NULL: nothing to fill in.
    void (*settle)(void *own);
    bool        reads_inputs;
    // Reads all rows, or a prefix, and may draft a token list and redistribute mass to the other tokens.
    bool        listed;
    // For initialising a head from that of another drafter or of the target:
    const char *dense;    // checkpoint tensor with rows [Vd, d] that others start from; NULL: none
    bool        factored; // out and down are factors, which a head of equal rank copies
    // Published drafters have this kind: a checkpoint then needs no paceline.head, and the head can be the target's
    // matrix.
    bool        published;
    // `out` is the target's own matrix, shared and frozen; the kind's weights add to its logits.
    bool        over_target;
    // A router chooses its clusters and is the only part that is trained (train/task/routed.h).
    bool        routed;
    // Completes h from h->spec, and refuses an invalid spec with one line. NULL: nothing to do.
    pl_status (*init)(pl_head *h, pl_err *err);
    // Frees what init allocated. NULL: nothing to free.
    void (*fini)(pl_head *h);
    // Adds the head's weights (as engines name them: lm_head.weight; efficient_lm_head*.weight) to the drafter's list.
    void (*params)(pl_head *h, pl_params *ps);
    // [M, d] -> [M, width of out]; y.data NULL: a new tensor. Rows are independent. NULL: the identity (the step then
    // writes x to y directly).
    pl_tensor (*project)(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor y);
    // Returns true if `support` needs the step's inputs alone, not x. NULL: it needs x.
    bool (*foresees)(const pl_head *h);
    // Returns the rows of out to read, in ctx's frame. NULL: all, or the position-aware prefix.
    pl_head_support (*support)(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r);
    // Replace the general functions, for heads whose distribution is no softmax over rows of out. NULL: the general
    // ones.
    void (*topk)(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, int k, int32_t *id, float *value, float *lse);
    pl_tensor (*logits)(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r);
    // For heads that propose by the logits of `exact` over the best rows of `out`: returns the number of those rows.
    // Held-out acceptance is then that of the softmax over them (train/task/rescored.h). NULL: proposes by the logits
    // of `out`.
    int64_t (*shortlisted)(const pl_head *h);
    // Fills in example i, from 0; false past the last.
    bool (*example)(pl_head_example *e, int i, const pl_head_shape *s);
    // Returns the bytes that one draft step at this depth must read; NULL: out's rows and down.
    double (*step_bytes)(const pl_head *h, int level);
    const pl_head_table    *table;
    const pl_head_sequence *sequence;
} pl_head_kind;

struct pl_head {
    const pl_head_kind *kind;
    pl_hf_head          spec;            // as in the config; kind never ""
    void               *own;             // the kind's settings, filled by its keys; owned
    bool                position_aware;  // any head that drafts a list: fewer rows at deeper levels
    int                 redistribute;    // thousandths of the mass that go to tokens outside the list
    bool                acceptance;      // predicts the acceptance of its drafts (infer/head/stopping.h)
    int                 max_rejection;   // thousandths; 0: drafts do not end by it
    int64_t             d, vocab, rank;  // vocab: draft vocabulary Vd; rank: width of out's rows (d for a full head)
    int                 slots;           // of a block drafter's blocks; else 0. Set before params
    pl_tensor           out;             // [Vd, rank]
    pl_tensor           down;            // [rank, d] (lowrank, specvocab)
    pl_tensor           exact;           // [Vd, d] row-major, never trained (specvocab)
    pl_tensor           sure, sure_bias; // [1, d], [1] of the acceptance
    bool                shared;          // out is the target's own matrix: borrowed, frozen, not in the checkpoint
    void               *state;           // additional state of the kind, owned by its init and fini
    int32_t            *d2t;             // [Vd] absolute target ids, NULL: draft id = target id; owned
    pl_outside          outside;         // set if spec.redistribute > 0
    pl_selector         selector;        // follows the head; set up by the drafter
};

// Returns in turn the examples of all kinds that any of `in` measures and that this shape has: *at starts at 0; false
// past the last.
bool pl_head_next_example(pl_head_example *e, int *at, const pl_head_shape *s, unsigned in);

// Returns the i-th kind of heads.def; NULL past the last.
const pl_head_kind *pl_head_at(int i);
// Finds a kind by name; otherwise NULL, and one line with the known kinds.
const pl_head_kind *pl_head_find(const char *name, pl_err *err);

// Recipe settings of any head besides its kind's own keys: drafter.head.*.
enum { PL_INIT_AUTO, PL_INIT_TARGET, PL_INIT_RANDOM };    // init
enum { PL_FROZEN_AUTO, PL_FROZEN_TRUE, PL_FROZEN_FALSE }; // frozen
typedef struct pl_head_recipe {
    int         kind;
    const char *vocab;
    int64_t     vocab_size;
    bool        position_aware;
    int         redistribute, init, frozen;
    bool        acceptance;
    int         max_rejection;
} pl_head_recipe;
extern const pl_key pl_head_keys[];
// Returns the head that a recipe describes; own: the struct that the kind's keys have filled (NULL: it has none).
pl_hf_head          pl_head_spec(const pl_head_recipe *r, const void *own);
// Returns the setting of spec that needs a token list, most frequent first; NULL: none does.
const char         *pl_head_wants_list(const pl_hf_head *spec);
// spec->kind "": a full head. Settings of other kinds (a rank) are ignored; required ones are checked.
pl_status           pl_head_init(pl_head *h, const pl_hf_head *spec, int64_t d, int64_t vocab, pl_err *err);
void                pl_head_fini(pl_head *h);
// Makes a full head share the target's output matrix. Call it before params.
void                pl_head_share(pl_head *h, pl_tensor out);

// Projects [M, d] -> [M, width of out] as the kind does; y as for pl_head_kind.project.
pl_tensor pl_head_project(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor y);

// Returns the tokens of its logits.
pl_drafted pl_head_drafted(const pl_head *h);

// Returns true if the head or its selector reads the step's inputs.
bool pl_head_reads_inputs(const pl_head *h);

// Call before the backbone's step that computes x: starts the parts of the head that need the step's inputs alone, on a
// branch that overlaps with the step (synchronised at the head's first use). r without x, kept for the calls below.
void pl_head_begin(pl_ctx *ctx, const pl_head *h, pl_head_rows *r);

// Call before the calls below, once for rows that a drafter visits slot by slot: computes the head's state from the
// previous tokens and states, and the state of the next slots.
void pl_head_carry(pl_ctx *ctx, const pl_head *h, pl_head_rows *r);

// Returns logits [M, Vd], read by the host (pl_ctx_read; .data NULL on a measuring and on a failed context); -infinity
// outside a row's support: their softmax is the distribution that drafts are drawn from.
pl_tensor pl_head_logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r);
// Returns logits over all rows, whatever the support, without the selector: of out, or of the exact rows if out is
// their scorer.
pl_tensor pl_head_all_logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r);
// Computes the k best draft ids of each row [M, k] (-1 where the support ends), their logits and, if lse is not NULL,
// each row's log-sum-exp over its support: projection and choice in one pass, no logits written. id, value and lse lie
// in the step's shared memory (pl_ctx_bytes) and are read after pl_ctx_wait. The ids and values are those of topk over
// pl_head_logits, bit for bit; with a selector those of its list alone, whatever its law.
void pl_head_topk(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, int k, int32_t *id, float *value, float *lse);
// Computes the selector's list for all rows: r->list of the calls above, which need the previous token. draws: for
// pl_head_logits too.
pl_selector_list pl_head_list(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, bool draws);
// Returns rows [M, vocab] of -infinity except z [M, n] at the ids [M, n] (-1: none), read by the host.
pl_tensor        pl_head_spread(pl_ctx *ctx, int64_t vocab, const int32_t *id, pl_tensor z);
// Returns the bytes that one draft step at this depth must read.
double           pl_head_step_bytes(const pl_head *h, int level);

// Kinds that other kinds build on.
extern const pl_head_kind pl_head_full, pl_head_lowrank;

#endif
