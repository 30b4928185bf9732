#include "infer/eval/gather.h"

#include "kernels/base/arena.h"
#include "kernels/base/room.h"
#include "kernels/comm/reader.h"

#include <stddef.h>
#include <string.h>

// The host's free memory bounds the sizes that ranks announce: texts and traces have no other bound.
static pl_status check_sizes(const uint64_t *size, int ranks, const char *what, size_t *total, pl_err *err) {
    double have;
    bool   lacks = false;
    *total = 0;
    for (int r = 1; r < ranks; r++) {
        bool over = __builtin_add_overflow(*total, (size_t)size[r], total) || *total == SIZE_MAX;
        if (!over) PL_TRY(pl_memory_lacks((double)*total, &lacks, &have, err));
        if (!over && !lacks) continue;
        return pl_fail(err, PL_E_IO, "rank %d sent %s: %llu bytes, more than this host's memory can take", r, what,
                       (unsigned long long)size[r]);
    }
    return PL_OK;
}

// Gathers the sizes of the ranks' parts: bytes[r], 0 for rank 0.
static pl_status hear_sizes(pl_comm *c, uint64_t mine, const char *what, size_t *bytes, size_t *total, pl_err *err) {
    uint64_t  size[PL_RANKS_MAX] = {0};
    uint8_t  *all;
    pl_reader in;
    PL_TRY(pl_comm_gather(c, &mine, sizeof mine, sizeof mine, &all, bytes, err));
    in = pl_reader_of(-1, "the sizes of their parts", all, (size_t)pl_comm_ranks(c) * sizeof *size, err);
    for (int r = 0; r < pl_comm_ranks(c) && in.status == PL_OK; r++) {
        in.rank = r;
        if (bytes[r] != sizeof *size) pl_reader_refuse(&in, "it is of %zu bytes, not %zu", bytes[r], sizeof *size);
        pl_reader_copy(&in, "a size", &size[r], sizeof *size);
    }
    pl_free(all);
    PL_TRY(in.status);
    for (int r = 0; r < pl_comm_ranks(c); r++)
        bytes[r] = r ? (size_t)size[r] : 0;
    return pl_comm_rank(c) > 0 ? PL_OK : check_sizes(size, pl_comm_ranks(c), what, total, err);
}

// Sends n bytes to rank 0. There *all (pl_free) gets the bytes of all other ranks in order, terminated by a 0;
// elsewhere NULL. what: a name of the bytes, for messages.
static pl_status send_first(pl_comm *c, const char *what, const void *mine, size_t n, uint8_t **all, size_t *bytes,
                            pl_err *err) {
    size_t           total = 0, at = 0;
    bool             first = pl_comm_rank(c) == 0;
    pl_comm_parcels *p = pl_calloc(1, sizeof *p);
    *all = NULL;
    if (!p) return pl_fail(err, PL_E_MEMORY, "eval: out of memory");
    pl_status st = hear_sizes(c, n, what, bytes, &total, err);
    if (st == PL_OK && first) *all = pl_malloc(total + 1);
    if (st == PL_OK && first && !*all) st = pl_fail(err, PL_E_MEMORY, "eval: out of memory");
    if (*all) (*all)[total] = 0;
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

// ---- a rank's part, as bytes: prompts, then of each method stats, answers and samples

// Greatest count of one rank, so that the sum over all ranks is exact in a double.
#define COUNT_MAX (((int64_t)1 << 53) / PL_RANKS_MAX)
#define SECONDS_MAX 1e9 // 31 years
enum { COUNTS = offsetof(pl_session_stats, seconds) / sizeof(int64_t) };
_Static_assert(offsetof(pl_session_stats, seconds) % sizeof(int64_t) == 0 &&
                   (sizeof(pl_session_stats) - offsetof(pl_session_stats, seconds)) % sizeof(double) == 0,
               "stats are int64 counts, then doubles");

static void put(pl_strbuf *b, const void *x, size_t n) {
    if (n) pl_strbuf_add(b, x, n);
}

static void put_answer(pl_strbuf *b, const pl_answer *a) {
    const uint8_t flags[] = {a->identical, a->scored, a->correct};
    const int64_t counts[] = {a->emitted, a->steps, a->accepted, a->drafting, a->tokens, a->repeated};
    put(b, &a->seconds, sizeof a->seconds);
    put(b, &a->prefill_seconds, sizeof a->prefill_seconds);
    put(b, counts, sizeof counts);
    put(b, &a->hash, sizeof a->hash);
    put(b, flags, sizeof flags);
}

void pl_eval_part_write(pl_strbuf *b, const pl_eval_part *p, int rank) {
    for (int64_t i = 0; i < p->r->n_prompts; i++) {
        if (!owns(p, i, rank)) continue;
        put(b, &p->prompt_n[i], sizeof p->prompt_n[i]);
        put(b, &p->cut[i], sizeof p->cut[i]);
    }
    for (int m = 0; m < p->r->n_methods; m++) {
        const pl_method *a = &p->r->method[m];
        int64_t          bytes = (int64_t)a->samples.n;
        put(b, &a->stats, sizeof a->stats);
        for (int64_t i = 0; i < p->r->n_prompts; i++)
            for (int64_t k = 0; k < a->seeds && owns(p, i, rank); k++)
                put_answer(b, &a->answer[i * a->seeds + k]);
        put(b, &bytes, sizeof bytes);
        put(b, a->samples.s, a->samples.n);
    }
}

static void take_answer(pl_reader *in, pl_answer *a) {
    a->seconds = pl_reader_real(in, "seconds of an answer", 0, SECONDS_MAX);
    a->prefill_seconds = pl_reader_real(in, "prefill seconds of an answer", 0, SECONDS_MAX);
    a->emitted = pl_reader_int(in, "emitted tokens", 0, COUNT_MAX);
    a->steps = pl_reader_int(in, "steps", 0, COUNT_MAX);
    a->accepted = pl_reader_int(in, "accepted drafts", 0, COUNT_MAX);
    a->drafting = pl_reader_int(in, "drafting steps", 0, COUNT_MAX);
    a->tokens = pl_reader_int(in, "tokens of an answer", 0, COUNT_MAX);
    a->repeated = pl_reader_int(in, "repeated tokens", 0, a->tokens);
    pl_reader_copy(in, "the hash of an answer", &a->hash, sizeof a->hash);
    a->identical = pl_reader_byte(in, "identical", 1);
    a->scored = pl_reader_byte(in, "scored", 1);
    a->correct = pl_reader_byte(in, "correct", 1);
}

static void take_stats(pl_reader *in, pl_session_stats *s) {
    uint8_t *at = (uint8_t *)s;
    for (size_t i = 0; i < sizeof *s / sizeof(int64_t); i++, at += sizeof(int64_t)) {
        int64_t count = i < COUNTS ? pl_reader_int(in, "a count of a method", 0, COUNT_MAX) : 0;
        double  seconds = i < COUNTS ? 0 : pl_reader_real(in, "seconds of a method", 0, SECONDS_MAX);
        memcpy(at, i < COUNTS ? (const void *)&count : (const void *)&seconds, sizeof count);
    }
}

// Returns the number of lines of samples of `rank` and a method.
static int64_t count_samples(const pl_eval_part *p, const pl_method *a, int rank) {
    int64_t n = 0;
    for (int64_t i = 0; i < p->r->n_prompts; i++)
        if (p->sampled[i] && owns(p, i, rank)) n += a->seeds;
    return n;
}

// Returns the samples' text, which must have exactly `want` whole lines: merging reads line after line.
static const char *take_samples(pl_reader *in, int64_t want) {
    int64_t     n = pl_reader_count(in, "the bytes of samples", INT64_MAX, 1), lines = 0;
    const char *text = (const char *)pl_reader_lend(in, "samples", (size_t)n);
    for (int64_t i = 0; text && i < n; i++)
        lines += text[i] == '\n';
    if (text && (lines != want || (n > 0 && text[n - 1] != '\n') || memchr(text, 0, (size_t)n)))
        pl_reader_refuse(in, "%lld lines of samples, not %lld whole ones", (long long)lines, (long long)want);
    return text;
}

pl_status pl_eval_part_read(const pl_eval_part *p, int rank, const uint8_t *data, size_t n, const char **samples,
                            pl_err *err) {
    pl_reader in = pl_reader_of(rank, "a part of an evaluation", data, n, err);
    for (int64_t i = 0; i < p->r->n_prompts; i++) {
        if (!owns(p, i, rank)) continue;
        p->prompt_n[i] = pl_reader_int(&in, "the tokens of a prompt", 0, COUNT_MAX);
        p->cut[i] = pl_reader_byte(&in, "whether a prompt was cut", 1);
    }
    for (int m = 0; m < p->r->n_methods && in.status == PL_OK; m++) {
        pl_method       *a = &p->r->method[m];
        pl_session_stats stats;
        take_stats(&in, &stats);
        pl_stats_add(&a->stats, &stats);
        for (int64_t i = 0; i < p->r->n_prompts; i++)
            for (int64_t k = 0; k < a->seeds && owns(p, i, rank); k++)
                take_answer(&in, &a->answer[i * a->seeds + k]);
        samples[m] = take_samples(&in, count_samples(p, a, rank));
    }
    return pl_reader_end(&in);
}

// Merges the samples in the order of one process: seed by seed, prompt by prompt. from[rank * methods + m]: the ranks'
// lines, advanced line by line.
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
    if (pl_comm_rank(p->comm) > 0) pl_eval_part_write(&mine, p, pl_comm_rank(p->comm));
    if (mine.failed) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "answers: out of memory"));
    PL_TRY_GOTO(st, done, send_first(p->comm, "a part of an evaluation", mine.s, mine.n, &all, bytes, err));
    if (!all) goto done;
    samples = pl_calloc((size_t)ranks * (size_t)n, sizeof *samples);
    if (!samples) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "answers: out of memory"));
    for (int m = 0; m < n; m++)
        samples[m] = p->r->method[m].samples.s;
    size_t at = 0;
    for (int r = 1; r < ranks; at += bytes[r], r++)
        PL_TRY_GOTO(st, done, pl_eval_part_read(p, r, all + at, bytes[r], samples + r * n, err));
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
    if (st == PL_OK) st = send_first(c, "a trace", mine, n, &all, bytes, err);
    for (int r = 1; st == PL_OK && all && r < pl_comm_ranks(c); total += bytes[r++])
        if (bytes[r] > 0 && all[total + bytes[r] - 1] != '\n')
            st = pl_fail(err, PL_E_IO, "rank %d sent a trace: its last line has no end", r);
    if (st == PL_OK && all) st = pl_atomic_file_append(&t->file, all, total, err);
    pl_free(mine);
    pl_free(all);
    return st;
}
