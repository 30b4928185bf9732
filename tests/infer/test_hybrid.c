// A hybrid's plan at invented costs; and, where PACELINE_PAIRS asks for it, its speed beside plain decoding's and its
// parts' in interleaved rounds (tests/shown.sh hybrid).
//   PACELINE_PAIRS: "TARGET TOKENIZER|- PROMPTS SESSIONS TEMPERATURE ROUNDS TOKENS DRAFTER..."; the first is the hybrid
#include "tests/infer/fixture.h"

#include "data/chat/prompts.h"
#include "infer/eval/batch.h"
#include "kernels/base/arena.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- the plan -------------------------------------------------------------------------------------------------------

enum { SLOTS = 4, TEXT = 400 };

typedef struct play {
    pl_drafter *d;
    pl_tree     tree[SLOTS];
    int32_t     text[SLOTS][TEXT];
    int         n[SLOTS];
    double      cost[SLOTS * 64 + 1]; // seconds by rows
    int64_t     drafted[SLOTS], rows, cycles;
} play;

static void open_play(play *p, const char *what) {
    pl_err err = {0};
    memset(p, 0, sizeof *p);
    if (pl_drafter_open(&p->d, what, &(pl_drafter_options){.max_sessions = SLOTS, .max_rows = 256, .slots = TEXT},
                        &err) != PL_OK)
        fail_msg("%s", err.msg);
    for (int s = 0; s < SLOTS; s++) {
        p->d->kind->reset(p->d, s);
        p->n[s] = 8;
    }
}

// What comes at a place: in the first `right` texts periodic, in the others periodic but for every third token.
static int32_t said(int s, int at, int right) {
    return s >= right && at % 3 == 2 ? 100 + (int32_t)((unsigned)(at * 2654435761u) >> 8 & 1023) : at % 5;
}

// Cycles as an engine has them: verdicts by what the texts say, seconds by rows.
static void run(play *p, int cycles, int right) {
    pl_ctx ctx = {.be = pl_backend_cpu()};
    for (int s = 0; s < SLOTS; s++)
        for (int i = 0; i < p->n[s]; i++)
            p->text[s][i] = said(s, i, right);
    p->rows = p->cycles = 0;
    memset(p->drafted, 0, sizeof p->drafted);
    for (int c = 0; c < cycles; c++) {
        pl_draft_item it[SLOTS];
        int           rows = 0;
        for (int s = 0; s < SLOTS; s++) {
            it[s] =
                (pl_draft_item){.slot = s, .tokens = p->text[s], .n_tokens = p->n[s], .tree = &p->tree[s], .depth = 16};
            pl_tree_root(&p->tree[s], p->text[s][p->n[s] - 1]);
        }
        p->d->kind->propose(p->d, &ctx, &(pl_draft_batch){.item = it, .n = SLOTS});
        for (int s = 0; s < SLOTS; s++) {
            pl_verdict v = {.n = 0, .path = {0}};
            for (int child; (child = pl_tree_child(&p->tree[s], v.path[v.n], said(s, p->n[s] + v.n, right))) >= 0;)
                v.path[++v.n] = child;
            v.bonus = said(s, p->n[s] + v.n, right);
            p->d->kind->judged(p->d, s, &p->tree[s], &v);
            p->drafted[s] += p->tree[s].n - 1;
            rows += p->tree[s].n;
            for (int i = 0; i <= v.n; i++, p->n[s]++)
                p->text[s][p->n[s]] = said(s, p->n[s], right);
            if (p->n[s] < TEXT - 40) continue;
            p->d->kind->reset(p->d, s);
            p->n[s] = 8;
        }
        p->d->kind->paced(p->d, &(pl_draft_pace){.sessions = SLOTS, .rows = rows, .verifying = p->cost[rows]});
        p->rows += rows;
        p->cycles++;
    }
}

static void costs(play *p, double first, double free_rows, double row) {
    for (int r = 0; r <= SLOTS * 64; r++)
        p->cost[r] = first + (r > free_rows ? (r - free_rows) * row : 0);
    for (int r = 1; r <= SLOTS * 64; r++) // all of it is known before
        for (int k = 0; k < 3; k++)
            p->d->kind->paced(p->d, &(pl_draft_pace){.sessions = SLOTS, .rows = r, .verifying = p->cost[r]});
}

// Rows that cost what the first one costs pay for nothing that may be wrong, rows that are free for everything, and
// rows that are free up to a number for the likeliest of all sessions' drafts up to it.
static void plans_by_goodput(void **state) {
    (void)state;
    static play p;
    open_play(&p, "hybrid:suffix:16");
    costs(&p, 1e-4, 1e9, 0);
    run(&p, 200, SLOTS);
    assert_true(p.drafted[0] > 5 * p.cycles); // long copies of a text that repeats itself
    pl_drafter_destroy(p.d);
    open_play(&p, "hybrid:suffix:16");
    costs(&p, 1e-4 * SLOTS, SLOTS, 2e-4);
    run(&p, 200, 0);
    assert_true(p.rows < p.cycles * SLOTS * 11 / 10);
    pl_drafter_destroy(p.d);
    open_play(&p, "hybrid:suffix:16");
    costs(&p, 1e-4, 12, 1e-3);
    run(&p, 200, SLOTS / 2);
    run(&p, 200, SLOTS / 2);
    double rows = (double)p.rows / (double)p.cycles;
    print_message("12 free rows for 4 sessions: %.2f used; drafts of sessions that repeat themselves %lld and %lld, of "
                  "the others %lld and %lld\n",
                  rows, (long long)p.drafted[0], (long long)p.drafted[1], (long long)p.drafted[2],
                  (long long)p.drafted[3]);
    assert_true(rows > 11 && rows <= 12.5);
    assert_true(p.drafted[0] + p.drafted[1] > 2 * (p.drafted[2] + p.drafted[3]));
    pl_drafter_destroy(p.d);
}

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *what, *tree, *line;
    } bad[] = {
        {"hybrid", NULL, "drafter \"hybrid:\": expected hybrid:FREE[+MODEL], as hybrid:suffix+PATH"},
        {"hybrid:suffix+", NULL, "drafter \"hybrid:suffix+\": expected hybrid:FREE[+MODEL], as hybrid:suffix+PATH"},
        {"hybrid:runs/x+suffix", NULL,
         "drafter \"hybrid:runs/x+suffix\": \"runs/x\" is no drafter without a checkpoint; it comes behind +"},
        {"hybrid:hybrid:suffix", NULL, "drafter \"hybrid:hybrid:suffix\": there is no hybrid in a hybrid"},
        {"hybrid:suffix+hybrid:lookup", NULL,
         "drafter \"hybrid:suffix+hybrid:lookup\": there is no hybrid in a hybrid"},
        {"hybrid:recycle:64", NULL, "drafter \"hybrid\": \"recycle:64\" drafts 64 tokens, at most 63"},
        {"hybrid:suffix", "chain:3",
         "drafter \"hybrid\" chooses its tree in every cycle: auto or chain:auto, not \"chain:3\""}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_tree_policy p;
        pl_err         err = {0};
        assert_int_equal(pl_drafter_shape(&p, bad[i].what, bad[i].tree, &err), PL_E_USAGE);
        assert_string_equal(err.msg, bad[i].line);
    }
}

// ---- speed ----------------------------------------------------------------------------------------------------------

enum { METHODS = 8, ROUNDS = 64, SESSIONS = 64 };

typedef struct pairs {
    pl_target   target;
    pl_prompts *prompts;
    int32_t    *ids[SESSIONS];
    int64_t     n_ids[SESSIONS];
    int         sessions, rounds, tokens, n; // methods, plain decoding the first
    double      temperature;
    char       *name[METHODS];
    pl_runner   runner[METHODS];
    double      speed[METHODS][ROUNDS];
} pairs;

static void answer(pairs *x, int m, double *speed) {
    pl_err        err = {0};
    pl_sampling   sampling[SESSIONS];
    pl_batched    b = {.sessions = x->sessions};
    pl_batch_work w = {
        .n = x->sessions, .prompt = x->ids, .prompt_n = x->n_ids, .sampling = sampling, .max_new = x->tokens};
    for (int i = 0; i < x->sessions; i++)
        sampling[i] = (pl_sampling){.temperature = x->temperature, .top_p = 1, .seed = (uint64_t)i + 1};
    if (pl_batch_run(&x->runner[m], &w, &b, NULL, NULL, &err) != PL_OK) fail_msg("%s: %s", x->name[m], err.msg);
    *speed = pl_batch_speed(&b);
}

static void one_round(pairs *x, int r) {
    pl_err err = {0};
    for (int i = 0; i < x->sessions; i++) {
        const pl_prompt *p = &x->prompts->p[((int64_t)(r + 3) * x->sessions + i) % x->prompts->n];
        assert_int_equal(pl_prompt_encode(x->target.tok, p, &x->ids[i], &x->n_ids[i], &err), PL_OK);
    }
    for (int k = 0; k < x->n; k++) {
        double speed;
        int    m = (r + 3 + k) % x->n; // in turns
        answer(x, m, r < 0 ? &speed : &x->speed[m][r]);
    }
    for (int i = 0; i < x->sessions; i++)
        pl_free(x->ids[i]);
}

// Mean of the pairs' ratios and the lower end of its 95 % interval (Student's t for some 30 pairs).
static double ratio(const pairs *x, int m, int to, double *lower) {
    double sum = 0, square = 0;
    for (int r = 0; r < x->rounds; r++)
        sum += x->speed[m][r] / x->speed[to][r];
    sum /= x->rounds;
    for (int r = 0; r < x->rounds; r++)
        square += pow(x->speed[m][r] / x->speed[to][r] - sum, 2);
    *lower = sum - 2.045 * sqrt(square / (x->rounds - 1) / x->rounds);
    return sum;
}

// By kind of prompt, where a round has one.
static void print_domains(const pairs *x) {
    for (int r = 0; x->sessions == 1 && r < x->rounds; r++) {
        const char *of = x->prompts->p[(r + 3) % x->prompts->n].category;
        double      sum = 0;
        int         n = 0;
        for (int k = 0; k < x->rounds; k++) {
            if (strcmp(x->prompts->p[(k + 3) % x->prompts->n].category, of) != 0) continue;
            if (k < r) break; // told
            sum += x->speed[1][k] / x->speed[0][k];
            n++;
        }
        if (n) print_message("  %s: %.3f times plain in %d rounds\n", of, sum / n, n);
    }
}

static void speed_in_pairs(void **state) {
    (void)state;
    static pairs x;
    char         text[2048], *word[8 + METHODS], *at = text;
    int          n = 0;
    pl_err       err = {0};
    pl_pool     *pool;
    if (!getenv("PACELINE_PAIRS")) skip();
    snprintf(text, sizeof text, "%s", getenv("PACELINE_PAIRS"));
    for (char *w; n < 8 + METHODS - 1 && (w = strtok_r(at, " ", &at));)
        word[n++] = w;
    assert_true(n >= 8);
    x.sessions = atoi(word[3]);
    x.temperature = atof(word[4]);
    x.rounds = atoi(word[5]);
    x.tokens = atoi(word[6]);
    assert_true(x.sessions >= 1 && x.sessions <= SESSIONS && x.rounds >= 2 && x.rounds <= ROUNDS && x.tokens >= 2);
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
    if (pl_target_open(&x.target, word[0], strcmp(word[1], "-") ? word[1] : NULL, NULL, PL_WEIGHTS_BF16,
                       pl_backend_cpu(), &err) != PL_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(pl_prompts_read(&x.prompts, word[2], &err), PL_OK);
    x.name[x.n++] = "plain";
    for (int i = 7; i < n; i++)
        x.name[x.n++] = word[i];
    for (int m = 0; m < x.n; m++)
        if (pl_runner_open(&x.runner[m], pl_backend_cpu(), pool, &x.target,
                           &(pl_runner_options){.drafter = m ? x.name[m] : NULL, .sessions = x.sessions},
                           &err) != PL_OK)
            fail_msg("%s: %s", x.name[m], err.msg);
    for (int r = -3; r < x.rounds; r++) // the first are not counted
        one_round(&x, r);
    double lower, best = 0, mine = ratio(&x, 1, 0, &lower), others;
    for (int m = 1; m < x.n; m++) {
        double mean = ratio(&x, m, 0, &others);
        print_message("  %-60.60s %.3f times plain, at least %.3f\n", x.name[m], mean, others);
        if (m > 1 && mean > best) best = mean;
    }
    print_domains(&x);
    print_message(
        "pairs: %d sessions, T=%g, %d rounds: hybrid %.3f, at least %.3f (0.98 asked: %s); the best of its parts "
        "%.3f (less 1 %%: %s)\n",
        x.sessions, x.temperature, x.rounds, mine, lower, lower >= 0.98 ? "yes" : "NO", best,
        mine >= 0.99 * best ? "yes" : "NO");
    for (int m = 0; m < x.n; m++)
        pl_runner_close(&x.runner[m]);
    pl_prompts_destroy(x.prompts);
    pl_target_close(&x.target);
    pl_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_by_goodput), cmocka_unit_test(refuses),
                                       cmocka_unit_test(speed_in_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
