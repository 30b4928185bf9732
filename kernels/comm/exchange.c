// What ranks hand to each other beside sums: bytes of the host, from each to each.
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/comm/impl.h"

#include <string.h>

// What everybody says, in order of ranks, this one's own included.
static pl_status hear(pl_comm *c, uint64_t mine, uint64_t *all, pl_err *err) {
    pl_comm_swap s = {0};
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        s.out[r] = &mine;
        s.in[r] = &all[r];
        s.out_bytes[r] = s.in_bytes[r] = sizeof mine;
    }
    all[c->rank] = mine;
    return c->group->swap(c, PL_MEET_EXCHANGE, &s, err);
}

static size_t part(size_t bytes, size_t at, size_t most) {
    return at >= bytes ? 0 : bytes - at < most ? bytes - at : most;
}

pl_status pl_comm_exchange(pl_comm *c, const pl_comm_parcels *p, pl_err *err) {
    uint64_t all[PL_RANKS_MAX], longest = 0;
    if (!c) return PL_OK;
    size_t most = PL_COMM_ROUND / (size_t)c->ranks;
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank && p->out_bytes[r] > longest) longest = p->out_bytes[r];
    PL_TRY(hear(c, longest, all, err)); // as many rounds as the longest parcel of all takes
    for (int r = 0; r < c->ranks; r++)
        if (all[r] > longest) longest = all[r];
    for (size_t at = 0; at < longest; at += most) {
        pl_comm_swap s = {0};
        for (int r = 0; r < c->ranks; r++) {
            if (r == c->rank) continue;
            s.out_bytes[r] = part(p->out_bytes[r], at, most);
            s.in_bytes[r] = part(p->in_bytes[r], at, most);
            s.out[r] = s.out_bytes[r] ? (const uint8_t *)p->out[r] + at : NULL;
            s.in[r] = s.in_bytes[r] ? (uint8_t *)p->in[r] + at : NULL;
        }
        PL_TRY(c->group->swap(c, PL_MEET_EXCHANGE, &s, err));
    }
    return PL_OK;
}

pl_status pl_comm_gather(pl_comm *c, const void *mine, size_t n, uint8_t **all, size_t *bytes, pl_err *err) {
    uint64_t        sizes[PL_RANKS_MAX] = {n};
    pl_comm_parcels p = {0};
    size_t          total = 0;
    *all = NULL;
    if (c) PL_TRY(hear(c, n, sizes, err));
    for (int r = 0; r < pl_comm_ranks(c); r++)
        total += bytes[r] = (size_t)sizes[r];
    *all = pl_malloc(total + 1);
    if (!*all) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    size_t at = 0;
    for (int r = 0; r < pl_comm_ranks(c); at += bytes[r], r++) {
        p.out[r] = mine;
        p.out_bytes[r] = n;
        p.in[r] = *all + at;
        p.in_bytes[r] = bytes[r];
        if (r == pl_comm_rank(c) && n) memcpy(*all + at, mine, n);
    }
    pl_status st = pl_comm_exchange(c, &p, err);
    if (st != PL_OK) {
        pl_free(*all);
        *all = NULL;
    }
    return st;
}
