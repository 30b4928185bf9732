// A loss in one file: cross-entropy with the target's choice, beside the divergence. Its only use is to show that this
// file and its line in losses.def are all that a loss needs.
#include "kernels/base/arena.h"
#include "train/task/unroll.h"

typedef struct settings {
    double weight;
} settings;

static const pl_key keys[] = {
    {PL_KEY_AS_REAL("train.choice_weight", settings, weight), .each = true, .late = true, .deflt = "0", .min = 0,
     .max = 1e6, .help = "weight of cross-entropy with the target's choice; 0: none", .stages = PL_STAGE_DRAFTER},
    PL_KEYS_END(settings)};

typedef struct choice {
    pl_loss   base;
    int32_t  *t2d; // [V] draft ids; NULL: as they are
    pl_tensor loss;
} choice;

static double read_factor(const pl_unroll *u, const void *own) {
    (void)u;
    return ((const settings *)own)->weight;
}

static pl_status create_lists(pl_loss *l, const pl_unroll *u, pl_err *err) {
    return pl_loss_draft_ids(&((choice *)l)->t2d, u, err);
}

static void destroy_lists(pl_loss *l) {
    pl_free(((choice *)l)->t2d);
}

static void build_loss(pl_ctx *ctx, pl_loss *l, pl_pass *p) {
    choice        *own = (choice *)l;
    const pl_rows *r = &p->u->rows;
    int32_t       *label = pl_ctx_bytes(ctx, (size_t)r->cells * sizeof *label);
    for (int64_t c = 0; c < r->cells && !ctx->measuring; c++) {
        int32_t id = r->weight[c] > 0 && r->teacher_row[c] >= 0 ? p->u->pack.argmax[r->teacher_row[c]] : -1;
        label[c] = id >= 0 && own->t2d ? own->t2d[id] : id;
    }
    own->loss = pl_divergence(ctx, &(pl_divergence_args){.objective = PL_OBJ_LABEL,
                                                         .x = p->out,
                                                         .w = p->w,
                                                         .label = label,
                                                         .weight = l->weight,
                                                         .keep = pl_loss_objective(p->u).keep});
}

static void read_values(pl_ctx *ctx, pl_loss *l, const pl_pass *p) {
    pl_loss_read(ctx, l, ((choice *)l)->loss, 0, p->u->rows.cells);
}

const pl_loss_kind pl_loss_choice = {.name = "choice_loss",
                                     .keys = keys,
                                     .scored = true,
                                     .size = sizeof(choice),
                                     .factor = read_factor,
                                     .create = create_lists,
                                     .destroy = destroy_lists,
                                     .build = build_loss,
                                     .read = read_values};
