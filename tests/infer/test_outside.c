// Redistribution of a trimmed head's mass: the distribution by hand, what a checkpoint's tensor may not be, ceilings of
// heads that have it, drafting with one from a checkpoint.
#include "infer/head/outside.h"
#include "infer/inspect/ceilings.h"
#include "kernels/base/files.h"
#include "tests/infer/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { V = 7, N = 3 };
static const int32_t d2t[N] = {4, 1, 6};
static const int32_t on[V] = {0, 1, 0, 2, 0, 0, 2}; // 0, 2 and 5 hang on token 4, 3 on token 6, nothing on token 1

static void dist_by_hand(void **state) {
    (void)state;
    pl_outside   o;
    pl_err       err = {0};
    const double list[N] = {0.5, 0.3, 0.2}, e = 0.12;
    double       q[V], sum = 0;
    assert_int_equal(pl_outside_init(&o, 120, on, V, d2t, N, "x", &err), PL_OK);
    pl_drafted_distribution(&(pl_drafted){.n = N, .d2t = d2t, .outside = &o}, q, V, list);
    const double expected[V] = {0.5 * e / 3, 0.3, 0.5 * e / 3, 0.2 * e, 0.5 * (1 - e), 0.5 * e / 3, 0.2 * (1 - e)};
    for (int y = 0; y < V; y++) {
        assert_true(fabs(q[y] - expected[y]) < 1e-15);
        sum += q[y];
    }
    assert_true(fabs(sum - 1) < 1e-15);
    pl_drafted_distribution(&(pl_drafted){.n = N, .d2t = d2t}, q, V, list); // without
    for (int y = 0; y < V; y++)
        assert_true(q[y] == (y == 4 ? 0.5 : y == 1 ? 0.3 : y == 6 ? 0.2 : 0));
    pl_outside_fini(&o);
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        int         at;
        int32_t     value;
        const char *says;
    } bad[] = {{3, 3, "outside[3] is 3, the draft vocabulary has 3"},
               {0, -1, "outside[0] is -1"},
               {6, 0, "outside[6] is 0, but draft id 2 stands for it"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_outside o;
        pl_err     err = {0};
        int32_t    broken[V];
        memcpy(broken, on, sizeof on);
        broken[bad[i].at] = bad[i].value;
        assert_int_equal(pl_outside_init(&o, 100, broken, V, d2t, N, "x", &err), PL_E_INPUT);
        if (!strstr(err.msg, bad[i].says)) fail_msg("%s", err.msg);
        assert_null(o.on);
    }
}

// Against sums over all tokens of the distribution that is drawn from.
static void ceilings(void **state) {
    (void)state;
    static const double p[V] = {0.05, 0.1, 0.2, 0.05, 0.3, 0.1, 0.2};
    for (int unread = 0; unread < 2; unread++) {
        const float logits[N] = {1, 0, unread ? -INFINITY : 0.5f};
        pl_outside  o;
        pl_ceilings c;
        pl_err      err = {0};
        double      list[N], q[V], sum = 0, achieved = 0, inside = 0;
        int         k = 0;
        assert_int_equal(pl_outside_init(&o, 250, on, V, d2t, N, "x", &err), PL_OK);
        assert_int_equal(pl_ceilings_init(&c, V, 1, 1, &err), PL_OK);
        for (int j = 0; j < N; j++)
            sum += list[j] = exp((double)logits[j]);
        for (int j = 0; j < N; j++)
            list[j] /= sum;
        pl_drafted_distribution(&(pl_drafted){.n = N, .d2t = d2t, .outside = &o}, q, V, list);
        for (int y = 0; y < V; y++)
            if (q[y] > 0) {
                achieved += fmin(p[y], q[y]);
                inside += p[y];
                k++;
            }
        pl_ceiling_row row = {.p = p, .logits = logits, .d2t = d2t, .vd = N, .outside = &o};
        if (pl_ceilings_add(&c, &row, &err) != PL_OK) fail_msg("%s", err.msg);
        assert_true(c.at[0].support == k && k == (unread ? 5 : 7));
        assert_true(fabs(c.at[0].achieved - achieved) < 1e-12 && fabs(c.at[0].ceiling - inside) < 1e-12);
        pl_ceilings_fini(&c);
        pl_outside_fini(&o);
    }
}

typedef struct looker {
    pl_verifier verifier;
    int64_t     outside, drafted;
} looker;
static looker the_looker;

static bool listed(int32_t token) {
    for (int i = 0; i < N; i++)
        if (d2t[i] == token) return true;
    return false;
}

// Counts what was drafted, then judges as rejection does.
static void count(const pl_verifier *v, const pl_verify_in *in, pl_verdict *out) {
    for (int i = 1; i < in->tree->n; i++) {
        the_looker.drafted++;
        the_looker.outside += !listed(in->tree->token[i]);
    }
    pl_verify_walk(v, in, out);
}

// Through a checkpoint: drawn drafts reach tokens outside, about as often as e says.
static void drafted(void **state) {
    (void)state;
    char     dir[64], draft[64];
    pl_llama m;
    pl_err   err = {0};
    test_target(&m, test_mkdir(dir), 2, 7, PL_BF16);
    pl_backbone_options o = {.head = pl_hf_head_of("full:redistribute=250"), .d2t = d2t, .draft_vocab = N};
    test_backbone_write(test_mkdir(draft), &m, &pl_backbone_eagle3, &o, 9);
    pl_backbone *b;
    if (pl_backbone_open(&b, draft, &m, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_true(b->head.outside.share == 0.25 && b->head.outside.on[5] == 5 % N && b->head.outside.on[6] == 2);
    pl_backbone_destroy(b);
    pl_drafter *d;
    pl_engine  *e;
    pl_session *s;
    the_looker = (looker){.verifier = pl_verify_rejection};
    the_looker.verifier.verify = count;
    pl_engine_options  eo = {.max_sessions = 1, .max_rows = 16, .max_len = 256, .verifier = &the_looker.verifier};
    pl_session_options so = {.sampling = {.temperature = 1, .top_p = 1, .seed = 3}, .max_new = 200};
    assert_int_equal(
        pl_drafter_open(
            &d, draft,
            &(pl_drafter_options){
                .target = &m, .dtype = PL_BF16, .tree = "chain:3", .max_sessions = 1, .max_rows = 16, .slots = 256},
            &err),
        PL_OK);
    assert_int_equal(pl_engine_create(&e, pl_backend_cpu(), NULL, &m, d, &eo, &err), PL_OK);
    assert_int_equal(pl_engine_start(e, (int32_t[]){5, 17, 40}, 3, &so, &s, &err), PL_OK);
    while (pl_session_finish(s) == PL_RUNNING)
        assert_int_equal(pl_engine_step(e, &err), PL_OK);
    pl_engine_destroy(e);
    pl_drafter_destroy(d);
    assert_true(the_looker.drafted > 300);
    double share = (double)the_looker.outside / (double)the_looker.drafted;
    if (!(fabs(share - 0.25) < 0.08)) fail_msg("%.3f of what was drafted lies outside", share);
    // One that says it redistributes and has no tensor, or no list.
    pl_hf_head_set(&o.head, "redistribute", 0);
    test_backbone_write(draft, &m, &pl_backbone_eagle3, &o, 9);
    pl_hf_config c;
    char         path[96];
    snprintf(path, sizeof path, "%s/config.json", draft);
    assert_int_equal(pl_hf_config_read(&c, draft, PL_HF_DRAFTER, &err), PL_OK);
    pl_hf_head_set(&c.head, "redistribute", 100);
    assert_int_equal(pl_hf_config_write(path, &c, &err), PL_OK);
    assert_int_equal(pl_backbone_open(&b, draft, &m, PL_BF16, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "no tensor \"outside\""));
    test_backbone_write(draft, &m, &pl_backbone_eagle3, &(pl_backbone_options){0}, 9);
    assert_int_equal(pl_hf_config_read(&c, draft, PL_HF_DRAFTER, &err), PL_OK);
    pl_hf_head_set(&c.head, "redistribute", 100);
    assert_int_equal(pl_hf_config_write(path, &c, &err), PL_OK);
    assert_int_equal(pl_backbone_open(&b, draft, &m, PL_BF16, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "trimmed"));
    pl_llama_fini(&m);
    test_rmdir(dir);
    test_rmdir(draft);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dist_by_hand),
        cmocka_unit_test(refusals),
        cmocka_unit_test(ceilings),
        cmocka_unit_test(drafted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
