#include "infer/eval/gather.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"

#include <string.h>

// To rank 0 alone: *all (pl_free) holds the ranks' bytes one after the other, rank 0's left out; NULL elsewhere.
static pl_status send(pl_comm *c, const void *mine, size_t n, uint8_t **all, size_t *bytes, pl_err *err) {
    uint8_t         *sizes;
    size_t           of_sizes[PL_RANKS_MAX], total = 0;
    uint64_t         size = n;
    bool             first = pl_comm_rank(c) == 0;
    pl_comm_parcels *p = pl_calloc(1, sizeof *p);
    *all = NULL;
    if (!p) return pl_fail(err, PL_E_MEMORY, "eval: out of memory");
    pl_status st = pl_comm_gather(c, &size, sizeof size, sizeof size, &sizes, of_sizes, err);
    for (int r = 0; st == PL_OK && r < pl_comm_ranks(c); r++) {
        memcpy(&size, sizes + (size_t)r * sizeof size, sizeof size);
        bytes[r] = r ? (size_t)size : 0;
        total += bytes[r];
    }
    if (st == PL_OK) pl_free(sizes);
    if (st == PL_OK && first) *all = pl_malloc(total + 1);
    if (st == PL_OK && first && !*all) st = pl_fail(err, PL_E_MEMORY, "eval: out of memory");
    size_t at = 0;
    for (int r = 1; st == PL_OK && first && r < pl_comm_ranks(c); at += bytes[r], r++) {
        p->in[r] = *all + at;
        p->in_bytes[r] = bytes[r];
    }
    if (!first) p->out[0] = mine, p->out_bytes[0] = n;
    if (st == PL_OK) st = pl_comm_exchange(c, p, err);
    pl_free(p);
    return st;
}

static bool owns(const pl_eval_part *p, int64_t i, int rank) {
    return pl_eval_owner(p->r, i, p->comm) == rank;
}

// ---- this rank's part, as bytes: prompts, then of each method stats, answers and samples

static void put(pl_strbuf *b, const void *x, size_t n) {
    if (n) pl_strbuf_add(b, x, n);
}

static void write_part(pl_strbuf *b, const pl_eval_part *p) {
    int rank = pl_comm_rank(p->comm);
    for (int64_t i = 0; i < p->r->n_prompts; i++) {
        if (!owns(p, i, rank)) continue;
        put(b, &p->prompt_n[i], sizeof p->prompt_n[i]);
        put(b, &p->cut[i], sizeof p->cut[i]);
    }
    for (int m = 0; m < p->r->n_methods; m++) {
        const pl_method *a = &p->r->method[m];
        put(b, &a->stats, sizeof a->stats);
        for (int64_t i = 0; i < p->r->n_prompts; i++)
            if (owns(p, i, rank)) put(b, a->answer + i * a->seeds, (size_t)a->seeds * sizeof *a->answer);
        put(b, &a->samples.n, sizeof a->samples.n);
        put(b, a->samples.s, a->samples.n);
    }
}

static void take(const uint8_t **at, void *to, size_t n) {
    memcpy(to, *at, n);
    *at += n;
}

// samples[m]: where that rank's lines of method m stand.
static void read_part(const pl_eval_part *p, int rank, const uint8_t *at, const char **samples) {
    for (int64_t i = 0; i < p->r->n_prompts; i++) {
        if (!owns(p, i, rank)) continue;
        take(&at, &p->prompt_n[i], sizeof p->prompt_n[i]);
        take(&at, &p->cut[i], sizeof p->cut[i]);
    }
    for (int m = 0; m < p->r->n_methods; m++) {
        pl_method       *a = &p->r->method[m];
        pl_session_stats stats;
        size_t           n;
        take(&at, &stats, sizeof stats);
        pl_stats_add(&a->stats, &stats);
        for (int64_t i = 0; i < p->r->n_prompts; i++)
            if (owns(p, i, rank)) take(&at, a->answer + i * a->seeds, (size_t)a->seeds * sizeof *a->answer);
        take(&at, &n, sizeof n);
        samples[m] = (const char *)at;
        at += n;
    }
}

// Line by line in the order in which one process would have written them: seed by seed, prompt by prompt.
// from[rank * methods + m]: the ranks' lines, which it moves through.
static pl_status merge_samples(const pl_eval_part *p, const char **from, pl_err *err) {
    int n = p->r->n_methods;
    for (int m = 0; m < n; m++) {
        pl_method *a = &p->r->method[m];
        pl_strbuf  all = {0};
        for (int64_t k = 0; k < a->seeds; k++)
            for (int64_t i = 0; i < p->r->n_prompts; i++) {
                if (!p->sampled[i]) continue;
                const char **at = &from[pl_eval_owner(p->r, i, p->comm) * n + m];
                size_t       line = strcspn(*at, "\n") + 1;
                pl_strbuf_add(&all, *at, line);
                *at += line;
            }
        pl_free(a->samples.s);
        a->samples = all;
        if (all.failed) return pl_fail(err, PL_E_MEMORY, "answers: out of memory");
    }
    return PL_OK;
}

pl_status pl_eval_gather(const pl_eval_part *p, pl_err *err) {
    int          ranks = pl_comm_ranks(p->comm), n = p->r->n_methods;
    size_t       bytes[PL_RANKS_MAX];
    pl_strbuf    mine = {0};
    uint8_t     *all = NULL;
    const char **samples = NULL;
    pl_status    st;
    if (ranks == 1) return PL_OK;
    if (pl_comm_rank(p->comm) > 0) write_part(&mine, p);
    if (mine.failed) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "answers: out of memory"));
    PL_TRY_GOTO(st, done, send(p->comm, mine.s, mine.n, &all, bytes, err));
    if (!all) goto done;
    samples = pl_calloc((size_t)ranks * (size_t)n, sizeof *samples);
    if (!samples) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "answers: out of memory"));
    for (int m = 0; m < n; m++)
        samples[m] = p->r->method[m].samples.s;
    size_t at = 0;
    for (int r = 1; r < ranks; at += bytes[r], r++)
        read_part(p, r, all + at, samples + r * n);
    st = merge_samples(p, samples, err);
done:
    pl_free(mine.s);
    pl_free(all);
    pl_free(samples);
    return st;
}

pl_status pl_eval_gather_trace(pl_comm *c, pl_trace *t, pl_err *err) {
    size_t    bytes[PL_RANKS_MAX], n = 0, total = 0;
    uint8_t  *mine = NULL, *all = NULL;
    pl_status st = PL_OK;
    if (pl_comm_ranks(c) == 1) return PL_OK;
    if (pl_comm_rank(c) > 0) st = pl_file_read(t->file.temp, &mine, &n, (size_t)1 << 40, err);
    if (st == PL_OK) st = send(c, mine, n, &all, bytes, err);
    for (int r = 1; st == PL_OK && all && r < pl_comm_ranks(c); r++)
        total += bytes[r];
    if (st == PL_OK && all) st = pl_atomic_file_append(&t->file, all, total, err);
    pl_free(mine);
    pl_free(all);
    return st;
}
