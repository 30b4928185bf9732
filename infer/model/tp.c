#include "infer/model/tp.h"

#include "kernels/base/check.h"

pl_status pl_tp_check(const pl_hf_config *c, int ranks, pl_err *err) {
    if (ranks <= 1) return PL_OK;
    if (c->experts > 0)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "%s has experts, which are not divided among ranks; run it without --tensor-parallel",
                       c->architecture);
    if (c->num_key_value_heads % ranks != 0)
        return pl_fail(err, PL_E_USAGE,
                       "--tensor-parallel %d: the target's %d key/value heads do not divide by it; take a divisor",
                       ranks, c->num_key_value_heads);
    return PL_OK;
}

// Returns the first element of a width that rank r has: its part is [first_of(n, r), first_of(n, r + 1)).
static int64_t first_of(const pl_comm *c, int64_t n, int rank) {
    return n * rank / pl_comm_ranks(c);
}

int64_t pl_tp_own(const pl_comm *c, int64_t n) {
    int rank = pl_comm_rank(c);
    return first_of(c, n, rank + 1) - first_of(c, n, rank);
}

pl_weight_part pl_tp_part(const pl_comm *c, const char *name, int64_t rows) {
    return c ? pl_tp_run(c, name, 0, rows, rows) : (pl_weight_part){.name = name, .rows = rows};
}

pl_weight_part pl_tp_run(const pl_comm *c, const char *name, int64_t first, int64_t rows, int64_t of) {
    return (pl_weight_part){
        .name = name, .rows = pl_tp_own(c, rows), .first = first + first_of(c, rows, pl_comm_rank(c)), .of = of};
}

static pl_tensor gather_columns(pl_ctx *ctx, pl_comm *c, pl_tensor x, int64_t width, int to) {
    int64_t own[PL_RANKS_MAX];
    if (!c) return x;
    for (int r = 0; r < pl_comm_ranks(c); r++)
        own[r] = first_of(c, width, r + 1) - first_of(c, width, r);
    PL_CHECK(!pl_ctx_recording(ctx), "a target that lies over %d ranks is not trained", pl_comm_ranks(c));
    return pl_comm_columns(c, ctx, x, own, to);
}

pl_tensor pl_tp_all(pl_ctx *ctx, pl_comm *c, pl_tensor x, int64_t width) {
    return gather_columns(ctx, c, x, width, PL_TO_ALL);
}

pl_tensor pl_tp_first_rank(pl_ctx *ctx, pl_comm *c, pl_tensor x, int64_t width) {
    return gather_columns(ctx, c, x, width, 0);
}
