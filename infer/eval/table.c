// Prints an evaluation as tables of text.
#include "infer/eval/batch.h"
#include "infer/eval/harness.h"

#include <math.h>
#include <string.h>

#define MAX_COLUMNS 32 // most categories with a column

enum { CELL = 32 };

// Formats a figure, "-" where it is not finite.
static const char *put_figure(char cell[CELL], const char *form, double v) {
    if (isfinite(v))
        snprintf(cell, CELL, form, v);
    else
        snprintf(cell, CELL, "-");
    return cell;
}

static const char *put_interval(char cell[CELL], pl_interval i) {
    if (isfinite(i.low) && isfinite(i.high))
        snprintf(cell, CELL, "%.2f..%.2f", i.low, i.high);
    else
        snprintf(cell, CELL, "-");
    return cell;
}

static int name_width(const pl_results *r) {
    int width = 24;
    for (int m = 0; m < r->n_methods; m++)
        if ((int)strlen(r->method[m].name) > width) width = (int)strlen(r->method[m].name);
    return width;
}

static void method_line(FILE *f, const pl_results *r, int m, int width) {
    const pl_method *a = &r->method[m];
    pl_figures       g;
    char interval[CELL] = "", acceptance[CELL] = "", share[CELL] = "-", accepted[CELL] = "-", same[32] = "yes";
    char speed[CELL], speedup[CELL], length[CELL], repeated[CELL];
    pl_results_figures(r, m, &g);
    if (m != a->base) put_interval(interval, g.all.speedup_95);
    if (a->drafter) put_interval(acceptance, g.all.acceptance_95);
    if (g.floor > 0) put_figure(share, "%.0f %%", 100 * pl_stats_speed(&a->stats) / g.floor);
    if (a->stats.drafted) snprintf(accepted, sizeof accepted, "%.2f", pl_stats_accepted(&a->stats));
    if (a->promise != PL_PROMISE_IDENTICAL)
        snprintf(same, sizeof same, a->promise == PL_PROMISE_DISTRIBUTION ? "in distribution" : "lossy");
    else if (!g.identical)
        snprintf(same, sizeof same, "NO, %lld/%lld", (long long)g.different, (long long)r->n_prompts * a->seeds);
    fprintf(f, "%-*s %10s %8s %11s %7s %11s %9s %10s %7s %8s\n", width, a->name, put_figure(speed, "%.1f", g.all.speed),
            put_figure(speedup, "%.2f", g.all.speedup), interval, put_figure(length, "%.2f", g.all.acceptance),
            acceptance, accepted, same, share, put_figure(repeated, "%.0f %%", 100 * g.repeated));
}

// Prints a line for each drafter of methods from..to-1, which share a temperature, with a column for each category.
static void category_lines(FILE *f, const pl_results *r, int from, int to, int width) {
    const char *name;
    pl_share    share;
    char        cell[2 * CELL + 4];
    int         column[MAX_COLUMNS], n = 0;
    if (!pl_results_category(r, 1)) return;
    fprintf(f, "\n%-*s", width, "speed-up (accept)");
    for (; n < MAX_COLUMNS && (name = pl_results_category(r, n)) != NULL; n++) {
        column[n] = (int)strlen(name) > 12 ? (int)strlen(name) : 12;
        fprintf(f, "  %*s", column[n], name);
    }
    fprintf(f, "\n%-*s", width, "prompts");
    for (int i = 0; i < n; i++) {
        pl_results_share(r, from, pl_results_category(r, i), &share);
        fprintf(f, "  %*lld", column[i], (long long)share.prompts);
    }
    fputc('\n', f);
    for (int m = from; m < to; m++) {
        if (!r->method[m].drafter) continue;
        fprintf(f, "%-*s", width, r->method[m].name);
        for (int i = 0; i < n; i++) {
            pl_results_share(r, m, pl_results_category(r, i), &share);
            char speedup[CELL], length[CELL];
            snprintf(cell, sizeof cell, "%s (%s)", put_figure(speedup, "%.2f", share.speedup),
                     put_figure(length, "%.2f", share.acceptance));
            fprintf(f, "  %*s", column[i], cell);
        }
        fputc('\n', f);
    }
}

// Prints the parts of the speed-up of the fastest of methods from..to-1, which share a temperature and the base `from`.
static void why_line(FILE *f, const pl_results *r, int from, int to) {
    pl_share share, best = {0};
    int      b = -1;
    for (int m = from; m < to; m++) {
        if (!r->method[m].drafter || r->method[m].promise == PL_PROMISE_NONE) continue;
        pl_results_share(r, m, NULL, &share);
        if (!isfinite(share.speedup)) continue; // no answer has a token
        if (b >= 0 && !(share.speedup > best.speedup)) continue;
        b = m;
        best = share;
    }
    if (b < 0) return;
    const pl_session_stats *s = &r->method[b].stats, *plain = &r->method[from].stats;
    double cycles = (double)s->steps * pl_ratio(plain->seconds, (double)plain->steps); // seconds of as many plain steps
    double draft = s->parts.draft.take_in + s->parts.draft.layer + s->parts.draft.head + s->parts.draft.draw;
    fprintf(f, "temperature %g: ", r->method[b].temperature);
    if (best.speedup > 1)
        fprintf(f, "%s is fastest", r->method[b].name);
    else
        fprintf(f, "no drafter pays; of them %s is fastest", r->method[b].name);
    fprintf(f, ": %.2f tokens a cycle that takes %.2f plain steps (target %.2f, drafting %.2f, rest %.2f)\n",
            best.acceptance, pl_ratio(s->seconds, cycles), pl_ratio(s->parts.target, cycles), pl_ratio(draft, cycles),
            pl_ratio(s->seconds - s->parts.target - draft, cycles));
}

// Prints acceptance lengths by other projects' formulas (infer/eval/harness.h).
static void length_lines(FILE *f, const pl_results *r, int from, int to, int width) {
    bool headed = false;
    for (int m = from; m < to; m++) {
        pl_lengths l;
        if (!r->method[m].drafter) continue;
        if (!headed)
            fprintf(f, "\n%-*s %8s %8s %8s %8s %14s\n", width, "acceptance length", "total", "steps", "prompts",
                    "turns", "accepted only");
        headed = true;
        pl_lengths_of(r, m, &l);
        const double figure[] = {l.total, l.mean_of_steps, l.mean_of_prompts, l.mean_of_turns};
        char         cell[CELL];
        fprintf(f, "%-*s", width, r->method[m].name);
        for (int i = 0; i < 4; i++)
            fprintf(f, " %8s", put_figure(cell, "%.3f", figure[i]));
        fprintf(f, " %14s\n", put_figure(cell, "%.3f", l.accepted_only));
    }
}

// Prints the ratios of each drafter to the first one.
static void pair_lines(FILE *f, const pl_results *r, int from, int to, int width) {
    bool headed = false;
    for (int m = from; m < to; m++) {
        pl_pair p;
        char    over[64], acceptance[CELL], speed[CELL], gain[CELL], ratio[CELL];
        if (!pl_results_pair(r, m, &p)) continue;
        snprintf(over, sizeof over, "over %.58s", r->method[p.first].name);
        if (!headed) fprintf(f, "\n%-*s %8s %11s %8s %11s\n", width, over, "accept", "95 %", "speed", "95 %");
        headed = true;
        fprintf(f, "%-*s %8s %11s %8s %11s\n", width, r->method[m].name, put_figure(gain, "%.2f", p.acceptance),
                put_interval(acceptance, p.acceptance_95), put_figure(ratio, "%.2f", p.speed),
                put_interval(speed, p.speed_95));
    }
}

// Prints the number of right answers of plain decoding and of each drafter.
static void accuracy_lines(FILE *f, const pl_results *r, int from, int to, int width) {
    int64_t scored;
    pl_results_correct(r, from, &scored);
    if (scored == 0) return;
    fprintf(f, "\n%-*s %8s %8s %9s\n", width, "answers", "scored", "right", "accuracy");
    for (int m = from; m < to; m++) {
        int64_t right = pl_results_correct(r, m, &scored);
        fprintf(f, "%-*s %8lld %8lld %7.2f %%\n", width, r->method[m].name, (long long)scored, (long long)right,
                100 * pl_ratio((double)right, (double)scored));
    }
}

static void batch_lines(FILE *f, const pl_results *r, int from, int to, int width) {
    bool headed = false;
    for (int i = 0; i < r->n_batched; i++) {
        const pl_batched *b = &r->batched[i], *base = pl_batch_base(r, b);
        char              same[32] = "yes";
        if (b->method < from || b->method >= to) continue;
        if (!headed)
            fprintf(f, "\n%-*s %6s %10s %8s %7s %10s %9s %9s\n", width, "many at a time", "batch", "tokens/s",
                    "speed-up", "accept", "identical", "TPOT p50", "p99");
        headed = true;
        if (r->method[b->method].promise != PL_PROMISE_IDENTICAL)
            snprintf(same, sizeof same, "-");
        else if (b->different)
            snprintf(same, sizeof same, "NO, %lld", (long long)b->different);
        char speed[CELL], speedup[CELL], length[CELL], p50[CELL], p99[CELL];
        fprintf(f, "%-*s %6d %10s %8s %7s %10s %9s %9s\n", width, r->method[b->method].name, b->sessions,
                put_figure(speed, "%.1f", pl_batch_speed(b)),
                put_figure(speedup, "%.2f", base ? pl_ratio(pl_batch_speed(b), pl_batch_speed(base)) : 1.0),
                put_figure(length, "%.2f", pl_stats_acceptance(&b->stats)), same,
                put_figure(p50, "%.2f ms", 1e3 * b->tpot.p50), put_figure(p99, "%.2f ms", 1e3 * b->tpot.p99));
    }
}

void pl_results_table(FILE *f, const pl_results *r) {
    int width = name_width(r), seeds = 1;
    fprintf(f, "%-*s %10s %8s %11s %7s %11s %9s %10s %7s %8s\n", width, "method", "tokens/s", "speed-up", "95 %",
            "accept", "95 %", "acc/draft", "identical", "floor", "repeated");
    for (int m = 0; m < r->n_methods; m++) {
        method_line(f, r, m, width);
        if (r->method[m].seeds > seeds) seeds = r->method[m].seeds;
    }
    for (int from = 0, to; from < r->n_methods; from = to) {
        for (to = from + 1; to < r->n_methods && r->method[to].base == from;)
            to++;
        category_lines(f, r, from, to, width);
        length_lines(f, r, from, to, width);
        pair_lines(f, r, from, to, width);
        accuracy_lines(f, r, from, to, width);
        batch_lines(f, r, from, to, width);
        why_line(f, r, from, to);
    }
    fprintf(f, "%lld prompts, %d new tokens at most, temperature", (long long)r->n_prompts, r->max_new_tokens);
    for (int m = 0; m < r->n_methods; m++)
        if (r->method[m].base == m) fprintf(f, "%s %g", m ? "," : "", r->method[m].temperature);
    if (seeds > 1) fprintf(f, " (%d seeds above 0)", seeds);
    if (r->ranks > 1) fprintf(f, ", shared by %d ranks, each timed beside the others", r->ranks);
    fprintf(f, ", batch 1, %d threads on %s; floor: share of what reading each cycle's bytes alone would allow\n",
            r->machine.threads, r->machine.cpu);
}
