// Exchange of host bytes between ranks besides sums: from each to each.
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/comm/impl.h"

#include <string.h>

// Collects a number from each rank, in order of ranks, this one's included.
static pl_status collect_numbers(pl_comm *c, uint64_t mine, uint64_t *all, pl_err *err) {
    all[c->rank] = mine;
    return pl_comm_show(c, PL_MEET_EXCHANGE, &mine, (uint8_t *)all, sizeof mine, err);
}

// Limit of a rank's parcels in one exchange: 4 TiB, more than any host holds. It keeps n k / rounds within 64 bits.
enum { ROUNDS_MAX = 1 << 20 };

// Returns floor(n k / rounds) for k <= rounds <= ROUNDS_MAX without forming n k.
static size_t cut_at(size_t n, uint64_t k, uint64_t rounds) {
    return n / rounds * k + n % rounds * k / rounds;
}

// Takes as many rounds as the rank with the most bytes needs; round k takes bytes [n k / rounds, n (k + 1) / rounds) of
// a parcel of n, at both ends.
pl_status pl_comm_exchange(pl_comm *c, const pl_comm_parcels *p, pl_err *err) {
    uint64_t all[PL_RANKS_MAX], rounds = 0, total = 0;
    size_t   most = PL_COMM_ROUND - PL_RANKS_MAX; // a byte of rounding per parcel
    if (!c) return PL_OK;
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) total += p->out_bytes[r];
    PL_TRY(collect_numbers(c, (total + most - 1) / most, all, err));
    for (int r = 0; r < c->ranks; r++) {
        if (all[r] > ROUNDS_MAX)
            return pl_fail(err, PL_E_IO, "rank %d: announces %llu rounds of an exchange, at most %d can be", r,
                           (unsigned long long)all[r], ROUNDS_MAX);
        if (all[r] > rounds) rounds = all[r];
    }
    for (uint64_t k = 0; k < rounds; k++) {
        pl_comm_swap s = {0};
        for (int r = 0; r < c->ranks; r++) {
            if (r == c->rank) continue;
            size_t out = cut_at(p->out_bytes[r], k, rounds), in = cut_at(p->in_bytes[r], k, rounds);
            s.out_bytes[r] = cut_at(p->out_bytes[r], k + 1, rounds) - out;
            s.in_bytes[r] = cut_at(p->in_bytes[r], k + 1, rounds) - in;
            s.out[r] = s.out_bytes[r] ? (const uint8_t *)p->out[r] + out : NULL;
            s.in[r] = s.in_bytes[r] ? (uint8_t *)p->in[r] + in : NULL;
        }
        PL_TRY(pl_comm_meet(c, PL_MEET_EXCHANGE, &s, err));
    }
    return PL_OK;
}

// Collects the lengths of all ranks' bytes and adds them up; each is checked before anything is allocated.
static pl_status hear_lengths(pl_comm *c, size_t n, size_t most, size_t *bytes, size_t *total, pl_err *err) {
    uint64_t sizes[PL_RANKS_MAX] = {n};
    if (c) PL_TRY(collect_numbers(c, n, sizes, err));
    *total = 0;
    for (int r = 0; r < pl_comm_ranks(c); r++) {
        if (sizes[r] > most)
            return pl_fail(err, PL_E_IO, "rank %d: announces %llu bytes, at most %zu can be", r,
                           (unsigned long long)sizes[r], most);
        bytes[r] = (size_t)sizes[r];
        if (__builtin_add_overflow(*total, bytes[r], total))
            return pl_fail(err, PL_E_IO, "rank %d: announces more bytes than memory has", r);
    }
    return PL_OK;
}

pl_status pl_comm_gather(pl_comm *c, const void *mine, size_t n, size_t most, uint8_t **all, size_t *bytes,
                         pl_err *err) {
    pl_comm_parcels p = {0};
    size_t          total, at = 0;
    *all = NULL;
    PL_CHECK(n <= most, "a rank gives %zu bytes, its limit is %zu", n, most);
    PL_TRY(hear_lengths(c, n, most, bytes, &total, err));
    *all = total < SIZE_MAX ? pl_malloc(total + 1) : NULL;
    if (!*all) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
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
