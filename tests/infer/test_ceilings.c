// Ceilings of acceptance: the lemmas against all supports of a small vocabulary, the order that is asserted, recall and
// retained mass by hand; then whole inspections of random models with trimmed and position-aware heads.
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

#include "tests/device.h"

// A vocabulary so small that a random drafter is often right.
enum { V = 6, VOCAB = 9, DRAFTED = 6, POSITIONS = 1500 };

static const double dist[V] = {0.30, 0.05, 0.25, 0.10, 0.20, 0.10};

// The support's tokens as a list of draft ids, or as a mask over all ids.
static void every_support(void **state) {
    (void)state;
    double best[V + 1] = {0}, oracle[V + 1];
    pl_err err = {0};
    for (int set = 1; set < 1 << V; set++)
        for (int listed = 0; listed < 2; listed++) {
            pl_ceilings c;
            float       logits[V];
            int32_t     d2t[V];
            int         n = 0, k = 0;
            double      q[V], sum = 0, achieved = 0, inside = 0;
            assert_int_equal(pl_ceilings_init(&c, V, 0.7, 2, &err), PL_OK);
            for (int v = 0; v < V; v++) {
                bool in = set >> v & 1;
                if (listed && !in) continue;
                d2t[n] = v;
                logits[n++] = in ? (float)(v * v % 5) * 0.4f : -INFINITY;
                k += in;
                if (in) sum += q[v] = exp((double)logits[n - 1] / 0.7);
            }
            for (int v = 0; v < V; v++)
                if (set >> v & 1) {
                    achieved += fmin(dist[v], q[v] / sum);
                    inside += dist[v];
                }
            pl_ceiling_row row = {.depth = 1, .p = dist, .logits = logits, .d2t = listed ? d2t : NULL, .vd = n};
            if (pl_ceilings_add(&c, &row, &err) != PL_OK) fail_msg("%s", err.msg);
            assert_int_equal(c.at[1].rows, 1);
            assert_true(c.at[1].support == k);
            assert_true(c.at[1].target == (set & 1)); // the target's best is token 0
            assert_true(fabs(c.at[1].achieved - achieved) < 1e-7 && fabs(c.at[1].ceiling - inside) < 1e-15);
            best[k] = fmax(best[k], inside);
            oracle[k] = c.at[1].oracle; // depends on k alone
            pl_ceilings_fini(&c);
        }
    for (int k = 1; k <= V; k++) // lemma 2, by all supports of k tokens
        assert_true(fabs(best[k] - oracle[k]) < 1e-15);
}

// At temperature 0 what is drafted is the best of S and what is accepted the target's best: the ceiling is whether S
// holds it.
static void at_temperature_zero(void **state) {
    (void)state;
    static const float z[V] = {0.5f, 2.0f, 2.0f, -1.0f, 3.0f, 0.0f};
    static const int   best[] = {4, 1, 2, 0, 5, 3}; // by z, the lower id among equals
    double             p[V] = {0};
    pl_err             err = {0};
    for (int target = 0; target < V; target++)
        for (int set = 1; set < 1 << V; set++) {
            pl_ceilings c;
            float       logits[V];
            int         drafted = 0;
            for (int v = 0; v < V; v++) {
                p[v] = v == target ? 0.4 : 0.12;
                logits[v] = set >> v & 1 ? z[v] : -INFINITY;
            }
            while (!(set >> best[drafted] & 1))
                drafted++;
            pl_ceiling_row row = {.p = p, .logits = logits, .whole = z, .vd = V};
            assert_int_equal(pl_ceilings_init(&c, V, 0, 3, &err), PL_OK);
            if (pl_ceilings_add(&c, &row, &err) != PL_OK) fail_msg("%s", err.msg);
            const pl_ceiling_sums *s = &c.at[0];
            assert_true(s->support == __builtin_popcount((unsigned)set) && s->oracle == 1);
            assert_true(s->ceiling == (set >> target & 1) && s->achieved == (best[drafted] == target));
            bool three = true; // of the head's own
            for (int i = 0; i < 3; i++)
                three &= set >> best[i] & 1;
            assert_true(s->target == s->ceiling && s->best == (set >> best[0] & 1) && s->bests == three &&
                        s->retained == s->best);
            pl_ceilings_fini(&c);
        }
}

// Logits in proportion to p attain what p(S) allows once p(S) is 1, and never more; twice the same token in a map is
// more than an oracle can have and is refused, as is what is no distribution.
static void the_order_is_asserted(void **state) {
    (void)state;
    pl_ceilings   c;
    pl_err        err = {0};
    float         logits[V], nan[2] = {0, NAN}, nothing[2] = {-INFINITY, -INFINITY};
    const int32_t twice[2] = {0, 0}, once[2] = {0, 2};
    assert_int_equal(pl_ceilings_init(&c, V, 1, 1, &err), PL_OK);
    for (int v = 0; v < V; v++)
        logits[v] = (float)log(dist[v]);
    pl_ceiling_row row = {.p = dist, .logits = logits, .vd = V};
    assert_int_equal(pl_ceilings_add(&c, &row, &err), PL_OK);
    assert_true(fabs(c.at[0].achieved - 1) < 1e-6 && fabs(c.at[0].ceiling - 1) < 1e-12);
    row.vd = 2;
    row.d2t = twice;
    assert_int_equal(pl_ceilings_add(&c, &row, &err), PL_E_INTERNAL);
    assert_int_equal(pl_status_exit(err.status), 1);
    assert_non_null(strstr(err.msg, "internal error"));
    row.d2t = once;
    assert_int_equal(pl_ceilings_add(&c, &row, &err), PL_OK);
    row.logits = nan;
    assert_int_equal(pl_ceilings_add(&c, &row, &err), PL_E_INPUT);
    row.logits = nothing;
    assert_int_equal(pl_ceilings_add(&c, &row, &err), PL_E_INPUT);
    assert_int_equal(c.at[0].rows, 2); // what is refused is not counted
    pl_ceilings_fini(&c);
}

static void recall(void **state) {
    (void)state;
    pl_ceilings c;
    pl_err      err = {0};
    const float whole[V] = {0, 3, 1, 2, -1, 0};
    double      sum = 0, in = 0;
    assert_int_equal(pl_ceilings_init(&c, V, 1, 2, &err), PL_OK);
    for (int v = 0; v < V; v++)
        sum += exp((double)whole[v]);
    for (int left_out = 0; left_out < V; left_out++) {
        float logits[V];
        memcpy(logits, whole, sizeof logits);
        logits[left_out] = -INFINITY;
        in += 1 - exp((double)whole[left_out]) / sum;
        assert_int_equal(
            pl_ceilings_add(&c, &(pl_ceiling_row){.p = dist, .logits = logits, .whole = whole, .vd = V}, &err), PL_OK);
    }
    assert_true(c.at[0].routed == V && c.at[0].best == V - 1 && c.at[0].bests == V - 2);
    assert_true(fabs(c.at[0].retained - in) < 1e-6);
    pl_ceilings_fini(&c);
}

static double figure(const pl_json *j, const cJSON *row, const char *key) {
    double x;
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(row, key))) return NAN;
    assert_int_equal(pl_json_get_num(j, row, key, 0, 1e9, &x, NULL), PL_OK);
    return x;
}

// The fixture's targets have no first token of their own.
static void give_bos(const char *dir) {
    char     path[96], *text;
    uint8_t *data;
    size_t   n;
    pl_err   err = {0};
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (pl_file_read(path, &data, &n, 1 << 20, &err) != PL_OK) fail_msg("%s", err.msg);
    text = pl_sprintf("%.*s", (int)n, (const char *)data);
    assert_non_null(text);
    char *none = strstr(strstr(text, "\"bos_token_id\""), "null");
    memcpy(none, "1   ", 4);
    assert_int_equal(pl_file_write_atomic(path, text, strlen(text), &err), PL_OK);
    pl_free(text);
    pl_free(data);
}

// An inspection on a backend, as JSON in `text`.
static char *look(const char *target, const pl_backend *be, const pl_inspect_ceilings_options *o) {
    pl_json_out out;
    pl_err      err = {0};
    char       *text;
    pl_env      env = {.backend = be};
    pl_target   t;
    pl_json_out_begin(&out, 0);
    pl_json_out_object(&out);
    if (pl_target_open(&t, target, NULL, NULL, PL_WEIGHTS_AUTO, be, &err) != PL_OK ||
        pl_inspect_ceilings(&out, &env, &t, target, o, &err) != PL_OK)
        fail_msg("%s", err.msg);
    pl_target_close(&t);
    pl_json_out_close(&out, '}');
    assert_int_equal(pl_json_out_end(&out, &err), PL_OK);
    text = out.text;
    return text;
}

enum { WHOLE, TRIMMED, BY_POSITION, SPREAD, CANDIDATES, SELECTED, KINDS };

static void write_head(const char *dir, const pl_llama *target, int kind) {
    int32_t             d2t[DRAFTED];
    pl_backbone_options o = {0};
    for (int i = 0; i < DRAFTED; i++)
        d2t[i] = (4 * i + 7) % VOCAB;
    if (kind == SELECTED) o.selector = (pl_hf_selector){.rank = 4, .candidates = 5};
    if (kind == CANDIDATES) o.head = pl_hf_head_of("specvocab:rank=4,candidates=5");
    if (kind == TRIMMED || kind == BY_POSITION || kind == SPREAD) {
        o.d2t = d2t;
        o.draft_vocab = DRAFTED;
        pl_hf_head_set_flag(&o.head, "position_aware", kind == BY_POSITION);
        pl_hf_head_set(&o.head, "redistribute", kind == SPREAD ? 100 : 0);
    }
    test_backbone_write(dir, target, &pl_backbone_eagle3, &o, 9);
}

// What must hold of any head of this kind; how many depths there are.
static int check_depths(const pl_json *j, int kind, bool cold, int64_t positions) {
    const cJSON *rows, *row;
    int          depths = 0;
    double       before = (double)positions;
    assert_int_equal(pl_json_get_array(j, NULL, "ceilings", &rows, NULL), PL_OK);
    cJSON_ArrayForEach(row, rows) {
        double n = figure(j, row, "rows"), k = figure(j, row, "support");
        int    depth = (int)figure(j, row, "depth");
        double a = figure(j, row, "achieved"), c = figure(j, row, "ceiling"), h = figure(j, row, "oracle");
        assert_true(depths++ > 0 ? n <= before : n == before);
        before = n;
        bool all = kind == WHOLE || ((kind == SPREAD || kind == SELECTED) && !cold), five = kind >= CANDIDATES,
             fewer = kind == BY_POSITION && depth >= 2;
        double retained = figure(j, row, "retained");
        assert_true(k == (all ? VOCAB : five ? 5 : fewer ? DRAFTED / (depth + 1) : DRAFTED));
        assert_true((cold || 0 < a) && a <= c + 1e-6 && c <= h + 1e-6);
        double target = figure(j, row, "recall_target_best"); // of any head, not of the head's own best
        assert_true(0 <= target && target <= 1 && (!all || target == 1));
        if (cold) assert_true(h == 1 && target == c);
        if (all)
            assert_true(fabs(c - 1) < 1e-6);
        else if (!cold)
            assert_true(c < 1 && h < 1);
        if (kind == CANDIDATES && cold)
            assert_true(retained == figure(j, row, "recall_head_best"));
        else if (kind == BY_POSITION || kind == CANDIDATES)
            assert_true(cold                          ? retained >= 0
                        : fewer || kind == CANDIDATES ? retained < 1 && retained > 0
                                                      : fabs(retained - 1) < 1e-6);
        else
            assert_true(isnan(retained) && isnan(figure(j, row, "recall_head_top")));
    }
    return depths;
}

static void inspect_all(const pl_backend *be, int64_t positions) {
    char     dir[64], draft[64];
    pl_llama m;
    test_target_sized(&m, test_mkdir(dir), 2, VOCAB, 7, PL_BF16);
    give_bos(dir);
    for (int kind = 0; kind < KINDS; kind++) {
        write_head(test_mkdir(draft), &m, kind);
        for (int sampled = 0; sampled < 3; sampled++) {
            // A flat distribution: some of what is drafted is drawn. The last is greedy.
            pl_inspect_ceilings_options opt = {.drafter = draft,
                                               .seed = 3,
                                               .positions = positions,
                                               .depth = 4,
                                               .n_best = 3,
                                               .temperature = sampled == 2 ? 0
                                                              : sampled    ? 2
                                                                           : 1,
                                               .sampled = sampled == 1};
            char                       *text = look(dir, be, &opt);
            pl_json                     j;
            pl_err                      err = {0};
            if (pl_json_parse(&j, "ceilings", 0, text, strlen(text), 0, &err) != PL_OK) fail_msg("%s", err.msg);
            int depths = check_depths(&j, kind, sampled == 2, positions);
            assert_true(depths >= (sampled == 1 && positions == POSITIONS ? 3 : 1));
            pl_json_close(&j);
            pl_free(text);
        }
        test_rmdir(draft);
    }
    pl_llama_fini(&m);
    test_rmdir(dir);
}

static void inspections(void **state) {
    (void)state;
    inspect_all(pl_backend_cpu(), POSITIONS);
}

// What heads list lies where the device reads it.
static void inspections_on_a_device(void **state) {
    (void)state;
    inspect_all(test_device(), 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_support),         cmocka_unit_test(at_temperature_zero),
        cmocka_unit_test(the_order_is_asserted), cmocka_unit_test(recall),
        cmocka_unit_test(inspections),           cmocka_unit_test(inspections_on_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
