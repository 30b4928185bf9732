// The planner's parts: what is planned and what came out (command.c), and saying it (show.c).
#ifndef PL_PLAN_PARTS_H
#define PL_PLAN_PARTS_H

#include "infer/cli/cli.h"
#include "infer/model/target.h"
#include "infer/plan/measured.h"
#include "infer/plan/rig.h"
#include "infer/plan/unit.h"

#define PL_PLAN_HEADS 48
#define PL_PLAN_TREES 2 // planned for each head

// Where acceptance comes from.
typedef enum pl_plan_source {
    PL_PLAN_ASSUMED,
    PL_PLAN_GIVEN,
    PL_PLAN_TRAINING,
    PL_PLAN_EVALUATION,
} pl_plan_source;
extern const char *const pl_plan_sources[];

typedef struct pl_plan_head {
    char                  name[64];
    pl_backbone          *backbone;
    bool                  full; // over the whole vocabulary: what others are compared with
    pl_plan_source        from;
    bool                  as_full; // acceptance is the full head's: an upper bound for smaller ones
    pl_plan_acceptance    accept;
    const pl_plan_method *measured; // NULL: none
} pl_plan_head;

typedef struct pl_plan_entry {
    int              head, nodes; // nodes of the tree, with the root; a block may end before it does
    char             tree[PL_TREE_TEXT];
    int32_t          parent[PL_SHAPE_NODES];
    pl_plan_cycle    cycle, full; // full: the same tree with the full head
    pl_plan_slimspec slim;
    pl_plan_cycle    on_unit[2]; // with the unit that was asked for, by pl_plan_bound
} pl_plan_entry;

typedef struct pl_plan {
    const pl_env      *env;
    const pl_cli_args *args;
    const char        *model; // --target or --shape
    pl_target          target;
    int                batch, context;
    double             temperature;
    pl_plan_methods    measured;
    const char        *given[PL_PLAN_HEADS]; // --acceptance
    int                n_given;
    pl_plan_acceptance assumed; // the one without a name, or the default
    bool               assumed_given;
    pl_plan_head       head[PL_PLAN_HEADS];
    pl_plan_subject    subject[PL_PLAN_HEADS];
    int                n, reference; // head: what rho and lambda refer to
    int32_t           *ids;          // 0, 1, 2, ...: the rows of trimmed heads
    bool               chain, tree;  // which kinds are looked for; neither: `shape`
    pl_shape           shape;        // of --tree
    pl_plan_plain      plain;
    pl_plan_cycle      plain_cycle;
    pl_plan_unit       unit;         // --unit; flops 0: none
    pl_plan_costs      target_on[2]; // of the reference with that unit, by pl_plan_bound
    pl_plan_cycle      plain_on[2];  // plain decoding with it
    pl_plan_entry      entry[PL_PLAN_TREES * PL_PLAN_HEADS];
    int                n_entries, best; // best: -1 where plain decoding is
} pl_plan;

// Prints the plan, or adds its members to the command's JSON.
pl_status pl_plan_say(const pl_plan *p, pl_err *err);

#endif
