#include "train/loop/watch.h"

#include "kernels/base/arena.h"
#include "kernels/base/room.h"

#include <math.h>
#include <string.h>

enum { FIGURES = PL_WATCH_FIGURES };
_Static_assert(PL_RANKS_MAX *FIGURES <= 4096, "one sum of doubles holds all ranks' figures");

pl_status pl_watch_init(pl_watch *w, pl_comm *comm, pl_err *err) {
    *w = (pl_watch){.comm = comm, .all = pl_calloc((size_t)pl_comm_ranks(comm) * FIGURES, sizeof *w->all)};
    return w->all ? PL_OK : pl_fail(err, PL_E_MEMORY, "training: out of memory");
}

void pl_watch_fini(pl_watch *w) {
    pl_free(w->all);
    *w = (pl_watch){0};
}

void pl_watch_step(pl_watch *w, const double step[PL_WATCH_MEMORY]) {
    w->steps++;
    for (int i = 0; i < PL_WATCH_MEMORY; i++)
        w->own[i] += step[i];
}

pl_status pl_watch_collect(pl_watch *w, pl_err *err) {
    int     ranks = pl_comm_ranks(w->comm);
    double *own = w->all + (size_t)pl_comm_rank(w->comm) * FIGURES;
    memset(w->all, 0, (size_t)ranks * FIGURES * sizeof *w->all);
    for (int i = 0; i < PL_WATCH_MEMORY; i++)
        own[i] = w->own[i] / fmax(w->steps, 1);
    own[PL_WATCH_MEMORY] = pl_memory_peak();
    w->steps = 0;
    memset(w->own, 0, sizeof w->own);
    return pl_comm_sum_doubles(w->comm, w->all, ranks * FIGURES, err);
}

// Writes the largest of the ranks' figures; of flops their sum.
static void put_one(const pl_watch *w, pl_metrics *m, const char *key, int figure) {
    double most = 0, sum = 0;
    for (int r = 0; r < pl_comm_ranks(w->comm); r++) {
        most = fmax(most, w->all[r * FIGURES + figure]);
        sum += w->all[r * FIGURES + figure];
    }
    pl_metrics_num(m, key, figure == PL_WATCH_FLOPS ? sum : most);
}

static void put_ranks(const pl_watch *w, pl_metrics *m, const char *key, int figure) {
    double x[PL_RANKS_MAX];
    int    ranks = pl_comm_ranks(w->comm);
    for (int r = 0; r < ranks; r++) {
        const double *of = w->all + (size_t)r * FIGURES;
        double        busy = of[PL_WATCH_SECONDS] - of[PL_WATCH_RANKS];
        x[r] = figure != PL_WATCH_TOKENS ? of[figure] : busy > 0 ? of[figure] / busy : 0;
    }
    pl_metrics_nums(m, key, x, ranks);
}

void pl_watch_report(const pl_watch *w, pl_metrics *m) {
    put_one(w, m, "step_seconds", PL_WATCH_SECONDS);
    put_one(w, m, "wait_data_seconds", PL_WATCH_DATA);
    put_one(w, m, "step_flops", PL_WATCH_FLOPS);
    put_one(w, m, "memory_bytes", PL_WATCH_MEMORY);
    if (pl_comm_ranks(w->comm) == 1) return;
    put_one(w, m, "wait_ranks_seconds", PL_WATCH_RANKS);
    put_one(w, m, "sent_bytes", PL_WATCH_SENT);
    put_ranks(w, m, "rank_tokens_per_second", PL_WATCH_TOKENS);
    put_ranks(w, m, "rank_wait_data_seconds", PL_WATCH_DATA);
    put_ranks(w, m, "rank_wait_ranks_seconds", PL_WATCH_RANKS);
    put_ranks(w, m, "rank_memory_bytes", PL_WATCH_MEMORY);
}
