// The law of the target's first token in a drafter's text, against every string that it can write, one by one; and
// Algorithm 3 of arXiv 2502.05202 step by step with it (strings drawn, accepted or rejected): the target's law.
#include "infer/drafter/drafter.h"
#include "infer/drafter/string_law.h"
#include "kernels/base/rng.h"
#include "tests/infer/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VT = 7, VD = 6, TEXT = 64 };

static const char *const target_pieces[VT + 1] = {"a", "b", "ab", "ba", "aba", "bbab", "abc", NULL};
static const char *const draft_pieces[VD + 1] = {"b", "a", "bb", "abb", "aa", "c", NULL};
static const char *const none[] = {NULL};

typedef struct vocabulary {
    char          dir[64];
    pl_tokenizer *tok;
    pl_lexicon    lexicon;
} vocabulary;

static vocabulary target, drafter;

static void open_vocabulary(vocabulary *v, const char *const *pieces) {
    pl_err err = {0};
    test_tokenizer_write(test_mkdir(v->dir), pieces, none);
    if (pl_tokenizer_open(&v->tok, v->dir, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_lexicon_init(&v->lexicon, v->tok, &err), PL_OK);
}

static void close_vocabulary(vocabulary *v) {
    pl_lexicon_fini(&v->lexicon);
    pl_tokenizer_close(v->tok);
    test_rmdir(v->dir);
}

static int setup(void **state) {
    (void)state;
    open_vocabulary(&target, target_pieces);
    open_vocabulary(&drafter, draft_pieces);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_vocabulary(&target);
    close_vocabulary(&drafter);
    return 0;
}

// What the drafter says behind a list of its tokens: numbers of their own for every list, some of them 0.
static void drafters(const int *path, int n, uint64_t seed, double *q) {
    uint64_t key = 1;
    double   sum = 0;
    for (int i = 0; i < n; i++)
        key = key * 31 + (uint64_t)path[i] + 1;
    pl_rng r = pl_rng_make(seed, PL_STREAM_TEST, key);
    for (int d = 0; d < VD; d++)
        sum += q[d] = pl_rng_below(r, (uint64_t)(2 * d), 5) == 0 && d > 0
                          ? 0
                          : exp(1.5 * pl_rng_normal(r, (uint64_t)(2 * d + 1)));
    for (int d = 0; d < VD; d++)
        q[d] /= sum;
}

// ---- one by one -----------------------------------------------------------------------------------------------------

typedef struct brute {
    uint64_t seed;
    int      cap;
    double   least, psi[VT], lost;
    int64_t  strings;
} brute;

static int first_token(const char *s) {
    int best = -1;
    for (int i = 0; i < VT; i++)
        if (strncmp(s, target_pieces[i], strlen(target_pieces[i])) == 0 &&
            (best < 0 || strlen(target_pieces[i]) > strlen(target_pieces[best])))
            best = i;
    return best;
}

static bool may_grow(const char *s) {
    for (int i = 0; i < VT; i++)
        if (strlen(target_pieces[i]) > strlen(s) && strncmp(target_pieces[i], s, strlen(s)) == 0) return true;
    return false;
}

static void every_string(brute *b, int *path, int n, const char *s, double w) {
    double q[VD];
    drafters(path, n, b->seed, q);
    for (int d = 0; d < VD; d++) {
        char   more[TEXT];
        double v = w * q[d];
        if (!(v > 0)) continue;
        snprintf(more, sizeof more, "%s%s", s, draft_pieces[d]);
        path[n] = d;
        if (n + 1 < b->cap && v >= b->least && may_grow(more)) {
            every_string(b, path, n + 1, more, v);
            continue;
        }
        int first = first_token(more);
        b->strings++;
        *(first < 0 ? &b->lost : &b->psi[first]) += v;
    }
}

static void by_the_law(uint64_t seed, int cap, double least, double *psi) {
    pl_string_law l;
    pl_err        err = {0};
    assert_int_equal(pl_string_law_init(&l, &target.lexicon, VT, &drafter.lexicon, VD, cap, least, &err), PL_OK);
    pl_string_law_begin(&l, psi);
    int level[16] = {0};
    for (int s = 0; s < l.n; s++) {
        int    path[16], n = l.state[s].depth;
        double q[VD];
        for (int at = s, to = n; to > 0; at = l.state[at].parent)
            path[--to] = l.state[at].token;
        drafters(path, n, seed, q);
        pl_string_law_take(&l, s, q);
        level[n]++;
    }
    for (int i = 1; i < 16; i++)
        assert_true(level[i] <= pl_string_law_level(&l));
    assert_true(pl_string_law_end(&l));
    pl_string_law_fini(&l);
}

static const struct {
    int    cap;
    double least;
} rules[] = {{1, 1.0 / 16}, {2, 1.0 / 64}, {3, 1.0 / 8}, {4, 1.0 / 200}, {6, 1.0 / 50}};
enum { RULES = sizeof rules / sizeof *rules };

static void psi_is_the_sum_over_all_strings(void **state) {
    (void)state;
    int64_t strings = 0;
    for (int r = 0; r < RULES; r++)
        for (uint64_t seed = 0; seed < 40; seed++) {
            brute  b = {.seed = seed, .cap = rules[r].cap, .least = rules[r].least};
            int    path[16];
            double psi[VT], sum = 0;
            every_string(&b, path, 0, "", 1);
            by_the_law(seed, rules[r].cap, rules[r].least, psi);
            for (int i = 0; i < VT; i++) {
                assert_true(fabs(psi[i] - b.psi[i] / (1 - b.lost)) < 1e-14);
                sum += psi[i];
            }
            assert_true(fabs(sum - 1) < 1e-14);
            strings += b.strings;
        }
    print_message("%lld strings\n", (long long)strings);
    assert_true(strings > 2000);
}

// Theorem 3.2. Algorithm 3: a string is drawn, its first token t is accepted with probability min(1, p(t) / psi(t)), else
// the token is drawn from (p - min(p, psi)) / (1 - sum min(p, psi)), line 8: the law of the result is p. With the law of
// another rule (one token written) in the place of psi it is not.
static void algorithm_3_is_exact(void **state) {
    (void)state;
    double wrong = 0;
    for (int r = 1; r < RULES; r++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            brute  b = {.seed = seed, .cap = rules[r].cap, .least = rules[r].least};
            int    path[16];
            double p[VT], psi[2][VT], sum = 0;
            pl_rng rng = pl_rng_make(seed, PL_STREAM_TEST, 99);
            for (int i = 0; i < VT; i++)
                sum += p[i] = exp(1.5 * pl_rng_normal(rng, (uint64_t)i));
            every_string(&b, path, 0, "", 1);
            by_the_law(seed, rules[r].cap, rules[r].least, psi[0]);
            by_the_law(seed, 1, 1, psi[1]);
            for (int which = 0; which < 2; which++) {
                double out[VT], rest[VT], all = 0, rejected = 1, error = 0;
                for (int i = 0; i < VT; i++) {
                    double share = p[i] / sum;
                    out[i] = b.psi[i] / (1 - b.lost) * fmin(1, psi[which][i] > 0 ? share / psi[which][i] : 1);
                    rejected -= out[i];
                    all += rest[i] = share - fmin(share, psi[which][i]);
                }
                for (int i = 0; i < VT; i++)
                    error = fmax(error, fabs(out[i] + (all > 0 ? rejected * rest[i] / all : 0) - p[i] / sum));
                if (which == 0) assert_true(error < 1e-14);
                wrong = fmax(wrong, which ? error : 0);
            }
        }
    print_message("with another law: off by %.3f\n", wrong);
    assert_true(wrong > 0.05);
}

// ---- real vocabularies ----------------------------------------------------------------------------------------------

static void open_real(vocabulary *v, const char *name) {
    char   path[512];
    pl_err err = {0};
    snprintf(path, sizeof path, "%s/tokenizers/%s", getenv("PACELINE_TEST_DATA"), name);
    if (pl_tokenizer_open(&v->tok, path, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_lexicon_init(&v->lexicon, v->tok, &err), PL_OK);
}

// A few tokens say most, beginnings of many of the target's among them; one in so many others has some of the rest.
static void real_drafter(const vocabulary *v, int64_t vd, int seed, int one_in, double *q) {
    static const char *const often[] = {" ", "a", "th", " the", "\n", "He", "in", "l", "1"};
    pl_rng                   r = pl_rng_make((uint64_t)seed, PL_STREAM_TEST, 0);
    double                   sum = 0;
    for (int64_t d = 0; d < vd; d++)
        sum += q[d] = d % 7 == seed || d % one_in ? 0 : exp(3 * pl_rng_normal(r, (uint64_t)d));
    for (int64_t d = 0; d < vd; d++)
        q[d] *= 0.2 / sum;
    for (int i = 0; i < 9; i++) {
        int32_t d = pl_lexicon_find(&v->lexicon, often[i], strlen(often[i]));
        q[d >= 0 ? d : 0] += 0.8 / 9;
    }
}

// The same law as one token after the other gives, read byte by byte.
static void token_by_token(pl_string_law *l, const double *q, int state, double *psi) {
    pl_string_state s = l->state[state];
    for (int64_t d = 0; d < l->vd; d++) {
        size_t        n;
        const char   *bytes = pl_lexicon_bytes(l->draft, (int32_t)d, &n);
        pl_lexicon_at at = s.at;
        if (d == l->end_draft && s.depth > 0 && at.longest >= 0) psi[at.longest] += s.w * q[d];
        if (d == l->end_draft && s.depth == 0 && l->end_target >= 0) psi[l->end_target] += q[d];
        if (d == l->end_draft || n == 0) continue;
        pl_lexicon_read(l->target, &at, bytes, n);
        bool more = s.depth + 1 < l->cap && s.w * q[d] >= l->least && pl_lexicon_open(l->target, &at);
        if (!more && at.longest >= 0) psi[at.longest] += s.w * q[d];
    }
}

static void compare_real(const vocabulary *t, const vocabulary *d, const char *names, int seed, int one_in) {
    pl_string_law l;
    pl_err        err = {0};
    int64_t       vt = pl_tokenizer_vocab_size(t->tok), vd = pl_tokenizer_vocab_size(d->tok);
    double       *q = calloc((size_t)vd, sizeof *q), *psi = calloc((size_t)vt, sizeof *psi),
           *want = calloc((size_t)vt, sizeof *want), taking = 0, reading = 0, exponentials = 0, off = 0, sum = 0;
    assert_int_equal(pl_string_law_init(&l, &t->lexicon, vt, &d->lexicon, vd, 8, 1.0 / 300, &err), PL_OK);
    real_drafter(d, vd, seed, one_in, q);
    pl_string_law_begin(&l, psi);
    for (int s = 0; s < l.n; s++) {
        double at = pl_now();
        pl_string_law_take(&l, s, q);
        pl_draft_lap(&taking, &at);
        token_by_token(&l, q, s, want);
        pl_draft_lap(&reading, &at);
        for (int64_t x = 0; x < vd; x++)
            sum += exp(q[x] - 1);
        pl_draft_lap(&exponentials, &at);
    }
    assert_true(l.n > 20 && pl_string_law_end(&l) && sum > 0);
    sum = 0;
    for (int64_t x = 0; x < vt; x++)
        sum += want[x];
    for (int64_t x = 0; x < vt; x++)
        off = fmax(off, fabs(psi[x] - want[x] / sum));
    print_message(
        "%s, one in %d of %lld tokens said: %d strings gone on with, each %.2f ms (exponentials of all tokens %.2f, "
        "all token by token %.2f), off by %.1e\n",
        names, one_in, (long long)vd, l.n, 1e3 * taking / l.n, 1e3 * exponentials / l.n, 1e3 * reading / l.n, off);
    assert_true(off < 1e-14);
    pl_string_law_fini(&l);
    free(q);
    free(psi);
    free(want);
}

// psi of all tokens of two real vocabularies, some of whose tokens stand for the bytes of others (Llama-2's), where
// the drafter may say most of its tokens or few: what reading every token finds, within rounding.
static void real_vocabularies(void **state) {
    (void)state;
    static const char *const pair[][3] = {{"qwen2", "llama3", "Llama-3 for Qwen2"},
                                          {"llama3", "qwen2", "Qwen2 for Llama-3"},
                                          {"qwen2", "llama2", "Llama-2 for Qwen2"},
                                          {"gpt2", "llama2", "Llama-2 for GPT-2"}};
    const char              *data = getenv("PACELINE_TEST_DATA");
    if (!data || !*data) skip();
    for (int i = 0; i < 4; i++) {
        vocabulary t, d;
        open_real(&t, pair[i][0]);
        open_real(&d, pair[i][1]);
        compare_real(&t, &d, pair[i][2], i, 1);
        compare_real(&t, &d, pair[i][2], i, 40);
        pl_lexicon_fini(&t.lexicon);
        pl_lexicon_fini(&d.lexicon);
        pl_tokenizer_close(t.tok);
        pl_tokenizer_close(d.tok);
    }
}

// ---- how many -------------------------------------------------------------------------------------------------------

// Lemma 3.1: over a vocabulary of all strings of at most n letters there are 2^(m-1) ways to write one of m <= n.
static void complete_vocabulary(void **state) {
    (void)state;
    static char        piece[64][8];
    static const char *pieces[64];
    vocabulary         v;
    int                count = 0;
    for (int m = 1; m <= 5; m++)
        for (int bits = 0; bits < 1 << m; bits++, count++) {
            for (int i = 0; i < m; i++)
                piece[count][i] = bits >> i & 1 ? 'b' : 'a';
            pieces[count] = piece[count];
        }
    assert_int_equal(count, 62);
    open_vocabulary(&v, pieces);
    for (int i = 0; i < count; i++)
        assert_true(pl_lexicon_ways(&v.lexicon, pieces[i], strlen(pieces[i]), NULL) ==
                    (double)(1 << (strlen(pieces[i]) - 1)));
    // One letter longer there is one way less, that of the whole.
    assert_true(pl_lexicon_ways(&v.lexicon, "ababab", 6, NULL) == 31);
    assert_true(pl_lexicon_ways(&v.lexicon, "abxab", 5, NULL) == 0);
    assert_true(pl_lexicon_ways(&v.lexicon, "", 0, NULL) == 1);
    close_vocabulary(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(psi_is_the_sum_over_all_strings),
        cmocka_unit_test(algorithm_3_is_exact),
        cmocka_unit_test(real_vocabularies),
        cmocka_unit_test(complete_vocabulary),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
