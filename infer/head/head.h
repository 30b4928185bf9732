// Draft heads: from the drafter's hidden state to a distribution over (draft) tokens.
//
// Every head here is a projection followed by one dense matrix:  logits = out . project(x)
//   full      project = identity,          out = lm_head [Vd, d]                         full.c
//   lowrank   project = down [r, d],       out = up [V, r]      (SlimSpec: z = W_up W_down h)   lowrank.c
//   specvocab the same as a scorer, whose candidates exact rows [V, d] rescore                  specvocab.c
//   dynaspec  project = identity,          out = lm_head sorted by cluster, a router's support  dynaspec.c
//   markov    the target's own rows, plus low-rank logits of the token before                   markov.c
// Training hands project(x) and out to the divergence engine, decoding chooses among the rows of out: one definition
// serves both. A head that does not read all its rows says which ones it reads for given rows of hidden states, its
// support: the proposal's distribution is the softmax over the support, and tokens outside come from the target alone.
// Behind any of them may stand a selector (infer/head/selector.h), which rescores its best tokens by the one before.
// A head is one file and one line in heads.def: its kind has its name, its settings (the keys of recipes and what its
// checkpoint states), its weights and what they start as, its projection, its support, how a held-out draft of it is
// scored, and the examples that benches and plans measure before one is trained.
#ifndef PL_HEAD_H
#define PL_HEAD_H

#include "checkpoints/hf.h"
#include "infer/head/outside.h"
#include "infer/head/selector.h"
#include "infer/model/params.h"
#include "kernels/base/key.h"
#include "kernels/op/route.h"

typedef struct pl_head pl_head;

// The supports of rows: group g's rows are row[g]..row[g+1]-1, and its spans (ascending, apart) the g-th of `spans`.
// Which ones those are a device may know alone (spans.held); pl_route_read tells the host.
typedef struct pl_head_support {
    const int *row; // [spans.groups + 1]
    pl_spans   spans;
} pl_head_support;

// What a head reads: one row for each node whose candidates are wanted.
typedef struct pl_head_rows {
    pl_tensor        x;      // [M, d] normed outputs of the backbone
    int              level;  // draft depth of the candidates: 0 for the first
    int              levels; // training: its rows are of so many levels of the same blocks, level after level; 0: 1
    pl_tensor        base;   // [M, Vd] their logits by `out` alone, where the caller has them already
    pl_selector_list list;   // what its selector rescores, where the caller has it already
    // For heads that read them (pl_head_reads_inputs):
    pl_tensor        hidden; // [M, d] what the backbone's step consumed to compute the row
    const int32_t   *token;  // [M] and the token beside it
    pl_tensor        embed;  // [V, d] the target's embedding
    const int32_t   *group;  // [M] ascending: rows of one session share a number (and a support); NULL: all of one
    // Of heads that go from slot to slot: what they keep of the slots before, [M, r] of the row that each stands behind
    // (data NULL: nothing yet), and what pl_head_carry has made of it and of the token before.
    pl_tensor        state;
    pl_tensor        mixed, after; // [M, r] what their logits are of; the state behind the row (data NULL: none)
    // What pl_head_begin has found.
    bool             foreseen;
    pl_head_support  support;
} pl_head_rows;

// A head that nobody has trained, at settings that are usual for a vocabulary and a width: what a kind costs before one
// is trained.
enum {
    PL_EXAMPLE_HEADS = 1, // for `bench heads`
    PL_EXAMPLE_PLAN = 2,  // for `plan`
    PL_EXAMPLE_CYCLE = 4, // for `bench decode --shape`
};
typedef struct pl_head_example {
    char       name[48]; // "trimmed-V/8"
    pl_hf_head spec;
    int64_t    rows;   // of its vocabulary; 0: there is no such head for this shape
    int        level;  // draft depth at which it is measured
    bool       uneven; // its table (pl_head_kind.draw_table) is uneven
    unsigned   in;     // who measures it: bits of the above
} pl_head_example;

// Where examples come from.
typedef struct pl_head_shape {
    int64_t        vocab, d;
    const int64_t *rank; // the ranks asked for; NULL: the usual ones
    int            n_ranks;
} pl_head_shape;

typedef struct pl_head_kind {
    const char   *name; // "full", "lowrank": recipe key drafter.head.kind and config paceline.head.kind
    // Its settings, each a key drafter.head.NAME of recipes and NAME of the config's paceline.head; they fill a struct
    // of the kind's own, pl_head.own. 0 of a number means that nothing is stated. NULL: it has none.
    const pl_key *keys;
    // Fills in what a recipe leaves open. NULL: nothing.
    void (*settle)(void *own);
    bool        reads_inputs;
    // It reads all its rows, or a prefix, and may draft a list of tokens and redistribute mass to the others.
    bool        listed;
    // What the head of another drafter, or the target's, is to one that starts from it:
    const char *dense;    // the tensor of its checkpoint that holds rows [Vd, d] that others start from; NULL: none
    bool        factored; // out and down are factors, which one of the same rank starts from as they are
    // Published drafters have it: a checkpoint with it needs no paceline.head, and it can be the target's own matrix.
    bool        published;
    // `out` is the target's own matrix, shared and frozen, and the kind's weights add to what it gives.
    bool        over_target;
    // Its clusters are chosen by a router, which alone is trained (train/task/routed.h).
    bool        routed;
    // Completes h from h->spec, and refuses a spec that makes no head with one line. NULL: nothing to do.
    pl_status (*init)(pl_head *h, pl_err *err);
    // What init made. NULL: nothing.
    void (*fini)(pl_head *h);
    // Adds the head's weights (as engines name them: lm_head.weight; efficient_lm_head*.weight) to the drafter's list.
    void (*params)(pl_head *h, pl_params *ps);
    // A table of the checkpoint beside the weights: its tensor's name, how it is read from one (refused with one line
    // where it is missing or broken), and as it is written (borrowed from h). A head that has one has its d2t in the
    // checkpoint too. NULL: none.
    const char *table_name;
    pl_status (*read_table)(pl_head *h, const pl_weight_source *src, pl_err *err);
    pl_st_source (*table)(const pl_head *h);
    // [M, d] -> [M, width of out]; y.data NULL: a new tensor. Rows are independent. NULL: the identity (the step that
    // computes x then writes it where y is).
    pl_tensor (*project)(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor y);
    // Whether `support` asks for the step's inputs alone, not for x. NULL: no.
    bool (*foresees)(const pl_head *h);
    // The rows of out that are read; what it returns lies in ctx's frame. NULL: all, or the position-aware prefix.
    pl_head_support (*support)(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r);
    // Instead of the general ones, for heads whose distribution is no softmax over rows of out. NULL: the general ones.
    void (*topk)(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, int k, int32_t *id, float *value, float *lse);
    pl_tensor (*logits)(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r);
    // For heads that propose by the logits of `exact` over the best rows of `out`: how many rows those are. Held-out
    // acceptance is then that of the softmax over them (train/task/rescored.h). NULL: by the logits of `out`.
    int64_t (*shortlisted)(const pl_head *h);
    // For training: rows [M, n] and a matrix [Vd, n] whose products are the logits. NULL: project(x) and out.
    void (*teach)(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, pl_tensor *x, pl_tensor *w);
    // Fills in r->mixed and r->after. NULL: nothing.
    void (*carry)(pl_ctx *ctx, const pl_head *h, pl_head_rows *r);
    // How likely each row's draft is to be accepted, as the logit of a probability [M, 1], which depends on the tokens
    // before it alone; .data NULL: this head has no opinion. NULL: none of the kind has.
    pl_tensor (*confidence)(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r);
    // The least confidence with which drafting goes on; 0: it does in any case. Of kinds with an opinion.
    double (*least_confidence)(const pl_head *h);
    // Example i, from 0; false: there is none further.
    bool (*example)(pl_head_example *e, int i, const pl_head_shape *s);
    // Gives an untrained head its table. NULL: it has none.
    pl_status (*draw_table)(pl_head *h, bool uneven, pl_err *err);
    // Bytes that one draft step at this depth must read; NULL: out's rows and down.
    double (*step_bytes)(const pl_head *h, int level);
} pl_head_kind;

struct pl_head {
    const pl_head_kind *kind;
    pl_hf_head          spec;           // as the config has it; kind never ""
    void               *own;            // the kind's settings, filled by its keys; owned
    bool                position_aware; // settings of any head that drafts a list
    int                 redistribute;   // thousandths of its mass that go to tokens outside the list
    int64_t             d, vocab, rank; // vocab: draft vocabulary Vd; rank: width of out's rows (d for a full head)
    pl_tensor           out;            // [Vd, rank]
    pl_tensor           down;           // [rank, d] (lowrank, specvocab)
    pl_tensor           exact;          // [Vd, d] row-major, never trained (specvocab)
    bool                shared;         // out is the target's own matrix: borrowed, frozen, not in the checkpoint
    void               *state;          // what the kind keeps beside; its init and fini see to it
    int32_t            *d2t;            // [Vd] absolute target ids, NULL: draft id = target id; owned
    pl_outside          outside;        // where spec.redistribute > 0
    pl_selector         selector;       // behind it; the drafter's to set up
};

// Examples of all kinds that any of `in` measures, of which this shape has one, in turn: *at begins as 0, false after
// the last.
bool pl_head_next_example(pl_head_example *e, int *at, const pl_head_shape *s, unsigned in);

// The kinds of heads.def in turn; NULL past the last.
const pl_head_kind *pl_head_at(int i);
const char         *pl_head_name(int i);
// By name; NULL and one line naming the known kinds.
const pl_head_kind *pl_head_find(const char *name, pl_err *err);

// What recipes say of any head beside its kind's own keys: drafter.head.*.
enum { PL_INIT_AUTO, PL_INIT_TARGET, PL_INIT_RANDOM };    // init
enum { PL_FROZEN_AUTO, PL_FROZEN_TRUE, PL_FROZEN_FALSE }; // frozen
typedef struct pl_head_recipe {
    int         kind;
    const char *vocab;
    int64_t     vocab_size;
    bool        position_aware;
    int         redistribute, init, frozen;
} pl_head_recipe;
extern const pl_key pl_head_keys[];
// The head that a recipe asks for; own: the struct that the kind's keys have filled (NULL: it has none).
pl_hf_head          pl_head_spec(const pl_head_recipe *r, const void *own);
// The setting of spec that wants a list of tokens, most frequent first; NULL: none does.
const char         *pl_head_wants_list(const pl_hf_head *spec);
// spec->kind "": a full head. What the kind does not have (a rank) is ignored; what it must have is checked.
pl_status           pl_head_init(pl_head *h, const pl_hf_head *spec, int64_t d, int64_t vocab, pl_err *err);
void                pl_head_fini(pl_head *h);
// Before params: a full head becomes the target's output matrix.
void                pl_head_share(pl_head *h, pl_tensor out);

// [M, d] -> [M, width of out], by the kind; y as pl_head_kind.project takes it.
pl_tensor pl_head_project(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor y);

// Rows of out that a position-aware head (arXiv 2510.13847, appendix A.1: FR-Spec with a budget by depth) reads at this
// depth: all Vd at depths 0 and 1, floor(Vd / (t + 1)) after, at least 1. Its rows lie in order of frequency, so that
// these are the most frequent. Other heads read all Vd.
int64_t    pl_head_budget(const pl_head *h, int level);
// Which tokens its logits are over.
pl_drafted pl_head_drafted(const pl_head *h);

// Whether it, or its selector, reads what the step consumed.
bool pl_head_reads_inputs(const pl_head *h);

// Before the backbone's step that computes x: what of the head asks for its inputs alone is queued beside it (a branch:
// no wait until the head is asked). r without x, kept by the caller for the calls below.
void pl_head_begin(pl_ctx *ctx, const pl_head *h, pl_head_rows *r);

// Before the calls below, once for rows that a drafter walks to slot by slot: what the head makes of the tokens and the
// states before them, and what the slots behind get as their state.
void pl_head_carry(pl_ctx *ctx, const pl_head *h, pl_head_rows *r);

// logits [M, Vd], where the host reads them (pl_ctx_read; .data NULL on a measuring and on a failed context); -infinity
// outside a row's support: their softmax is the distribution that drafts are drawn from.
pl_tensor pl_head_logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r);
// The same over all rows, whatever the support, without the selector: of out, or of the exact rows where out is their
// scorer.
pl_tensor pl_head_all_logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r);
// id, value and lse lie in the step's shared memory (pl_ctx_bytes) and are read after pl_ctx_wait.
// The k best draft ids of each row [M, k] (-1 where the support ends), their logits and, lse not NULL, each row's
// log-sum-exp over its support: projection and choice in one pass, no logits written. The ids and values are those of
// topk over pl_head_logits, bit for bit; a selector's of its list alone, whatever its law.
void pl_head_topk(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, int k, int32_t *id, float *value, float *lse);
// What a selector rescores, of all rows: r->list for calls of the above that know the token before. draws: for
// pl_head_logits too.
pl_selector_list pl_head_list(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, bool draws);
// Rows [M, vocab] of -infinity but for what z [M, n] has for the ids [M, n] (-1: none), where the host reads them.
pl_tensor        pl_head_spread(pl_ctx *ctx, int64_t vocab, const int32_t *id, pl_tensor z);
// Bytes that one draft step at this depth must read.
double           pl_head_step_bytes(const pl_head *h, int level);

// Kinds that others are made of.
extern const pl_head_kind pl_head_full, pl_head_lowrank;

#endif
