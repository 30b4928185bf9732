// Structs that keys fill: what the file, --set and defaults say stands in the fields; fields name keys in complaints;
// items of a list override keys; a key may fill fields of several tables. A field that is misspelt or of another type
// does not compile: tests/recipes/check_keys.sh.
#include "tests/recipes/recipe_fixture.h"

static void filled(void **state) {
    (void)state;
    static const char *const sets[] = {"train.steps=7", "drafters.1.head.rank=3"};
    pl_recipe               *r = must_read("train:\n  lr: 0.5\n  optim: {kind: sgd, betas: [0.1, 0.2, 0.3]}\n"
                                                         "target: {path: x, layers: [1, 2]}\ndata: {prompts: [a, b], mode: bounded}\n"
                                                         "drafters:\n  - {name: one, head: {kind: lowrank}}\n",
                                           sets, 2);
    const train_fields      *t = pl_recipe_struct(r, train_keys);
    const other_fields      *o = pl_recipe_struct(r, other_keys);
    assert_int_equal(t->train.steps, 7);
    assert_true(t->train.lr == 0.5 && t->train.floor == -1.5);
    assert_false(t->train.deterministic);
    assert_int_equal(t->train.optim.kind, 1);
    assert_int_equal(t->train.optim.betas.n, 3);
    assert_true(t->train.optim.betas.at[2] == 0.3);
    assert_string_equal(o->target.path, "x");
    assert_int_equal(o->target.layers.n, 2);
    assert_int_equal(o->target.layers.at[1], 2);
    assert_string_equal(o->data.prompts.at[1], "b");
    assert_int_equal(o->data.mode, 2);
    assert_null(o->title);
    assert_string_equal(o->train.late, "");
    assert_int_equal(o->drafters.n, 2);
    assert_string_equal(o->drafters.at[0].name, "one");
    assert_int_equal(o->drafters.at[0].head.kind, 1);
    assert_int_equal(o->drafters.at[0].head.rank, 64);
    assert_null(o->drafters.at[1].name);
    assert_int_equal(o->drafters.at[1].head.rank, 3);

    assert_true(pl_recipe_given(r, &t->train.lr) && pl_recipe_given(r, &t->train.steps));
    assert_false(pl_recipe_given(r, &t->train.floor));
    assert_true(pl_recipe_given(r, &o->drafters.at[1].head.rank));
    assert_false(pl_recipe_given(r, &o->drafters.at[0].head.rank));
    assert_string_equal(pl_recipe_path(r, &o->drafters.at[1].head.rank), "head.rank");
    round_trip(r);
    assert_null(pl_recipe_struct(r, head_keys)); // the items' table is none of the recipe's
    pl_recipe_close(r);
}

// ---- one key, several tables ----

typedef struct scorer {
    int rank, candidates;
} scorer;

typedef struct factors {
    int64_t rank;
} factors;

static const pl_key factors_keys[] = {{PL_KEY_AS_INT("head.rank", factors, rank), .deflt = "8", .min = 1, .max = 64},
                                      PL_KEYS_END(factors)};
static const pl_key scorer_keys[] = {
    {PL_KEY_AS_INT("head.rank", scorer, rank), .deflt = "8", .min = 1, .max = 64},
    {PL_KEY_AS_INT("head.candidates", scorer, candidates), .deflt = "4", .min = 1, .max = 9},
    PL_KEYS_END(scorer)};

static void shared(void **state) {
    (void)state;
    static const pl_key *const both[] = {factors_keys, scorer_keys};
    static const char          yaml[] = "head: {rank: 16}\n";
    pl_recipe                 *r;
    pl_err                     err = {0};
    char                      *text;
    assert_int_equal(pl_recipe_parse(&r, yaml, sizeof yaml - 1, "x", both, 2, NULL, 0, &err), PL_OK);
    const factors *f = pl_recipe_struct(r, factors_keys);
    const scorer  *s = pl_recipe_struct(r, scorer_keys);
    assert_int_equal(f->rank, 16);
    assert_int_equal(s->rank, 16);
    assert_int_equal(s->candidates, 4);
    assert_int_equal(pl_recipe_fail(r, &s->rank, &err, "too large"), PL_E_INPUT);
    assert_string_equal(err.msg, "x:1:14: head.rank: too large");
    assert_int_equal(pl_recipe_dump(r, &text, &err), PL_OK);
    assert_string_equal(text, "head:\n  rank: 16\n  candidates: 4\n");
    pl_free(text);
    pl_recipe_close(r);
}

// ---- items that override ----

typedef struct variant {
    const char *name;
} variant;

typedef struct whole {
    struct {
        int64_t steps;
        double  lr;
        pl_ints taps;
    } train;
    PL_KEY_ITEMS(variant) variants;
    int64_t     seed;
    const char *note;
} whole;

static const pl_key variant_keys[] = {{PL_KEY_FIELD_STRING(variant, name)}, PL_KEYS_END(variant)};
static const pl_key whole_keys[] = {
    {PL_KEY_FIELD_INT(whole, train.steps), .each = true, .deflt = "10", .min = 1, .max = 99},
    {PL_KEY_FIELD_REAL(whole, train.lr), .deflt = "0.5", .min = 0, .max = 1},
    {PL_KEY_FIELD_INTS(whole, train.taps), .each = true, .deflt = "[]", .min = 0, .max = 9},
    {PL_KEY_FIELD_ITEMS(whole, variants, variant), .item = variant_keys, .overrides = true},
    {PL_KEY_FIELD_INT(whole, seed), .each = true, .deflt = "1"},
    {PL_KEY_FIELD_STRING(whole, note), .each = true},
    PL_KEYS_END(whole)};
static const pl_key *const whole_tables[] = {whole_keys};

// What all items share and one of them does without.
static void undone(void **state) {
    (void)state;
    static const char yaml[] =
        "train: {steps: 7, taps: [4]}\nnote: shared\nvariants:\n"
        "  - {name: bare, steps: null, taps: ~, note: null}\n  - {name: \"null\", note: \"null\"}\n"
        "  - {name: plain}\n";
    pl_recipe *r, *again, *one;
    pl_err     err = {0};
    char      *text, *twice, hash[4][17];
    assert_int_equal(pl_recipe_parse(&r, yaml, sizeof yaml - 1, "x.yaml", whole_tables, 1, NULL, 0, &err), PL_OK);
    const whole   *w = pl_recipe_struct(r, whole_keys), *o;
    const variant *v = w->variants.at;
    assert_true(pl_recipe_undone(r, &v[0], &w->note) && pl_recipe_undone(r, &v[0], &w->train.steps));
    assert_false(pl_recipe_undone(r, &v[1], &w->note) || pl_recipe_undone(r, &v[2], &w->note));
    assert_null(pl_recipe_override(r, &v[0], &w->note));
    assert_string_equal(pl_recipe_override(r, &v[0], &w->train.steps), "10"); // its default
    assert_string_equal(pl_recipe_override(r, &v[1], &w->note), "null");
    pl_recipe_fail_override(r, &v[0], &w->note, &err, "no");
    assert_string_equal(err.msg, "x.yaml:4:46: variants.0.note: no");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pl_recipe_of_item(&one, r, &v[i], "one", NULL, 0, &err), PL_OK);
        o = pl_recipe_struct(one, whole_keys);
        assert_int_equal(o->train.steps, i ? 7 : 10);
        assert_int_equal(o->train.taps.n, i ? 1 : 0);
        if (i)
            assert_string_equal(o->note, i == 1 ? "null" : "shared");
        else
            assert_null(o->note);
        assert_int_equal(pl_recipe_item_hash(r, &v[i], hash[i], &err), PL_OK);
        pl_recipe_close(one);
    }
    assert_string_not_equal(hash[0], hash[2]);
    // The effective recipe says so too.
    assert_int_equal(pl_recipe_dump(r, &text, &err), PL_OK);
    assert_non_null(strstr(text, "note: null"));
    assert_int_equal(pl_recipe_parse(&again, text, strlen(text), "y.yaml", whole_tables, 1, NULL, 0, &err), PL_OK);
    assert_int_equal(pl_recipe_dump(again, &twice, &err), PL_OK);
    assert_string_equal(twice, text);
    pl_recipe_close(again);
    pl_free(text), pl_free(twice);
    pl_recipe_close(r);
    // By --set as well, and back.
    static const char *const sets[] = {"variants.2.note=null", "variants.0.note=own"};
    assert_int_equal(pl_recipe_parse(&r, yaml, sizeof yaml - 1, "x.yaml", whole_tables, 1, sets, 2, &err), PL_OK);
    w = pl_recipe_struct(r, whole_keys);
    v = w->variants.at;
    assert_true(pl_recipe_undone(r, &v[2], &w->note));
    assert_string_equal(pl_recipe_override(r, &v[0], &w->note), "own");
    pl_recipe_close(r);
}

static void overrides(void **state) {
    (void)state;
    static const char        yaml[] = "train: {lr: 0.25}\nvariants:\n  - {name: short, steps: 3, taps: [1, 2]}\n"
                                      "  - {name: plain}\n  - {name: wrong, steps: many}\n";
    static const char *const sets[] = {"seed=9"};
    pl_recipe               *r, *one;
    pl_err                   err = {0};
    char                    *text;
    assert_int_equal(pl_recipe_parse(&r, yaml, sizeof yaml - 1, "x.yaml", whole_tables, 1, NULL, 0, &err), PL_OK);
    const whole   *w = pl_recipe_struct(r, whole_keys), *o;
    const variant *v = w->variants.at;
    assert_string_equal(pl_recipe_override(r, &v[0], &w->train.steps), "3");
    assert_null(pl_recipe_override(r, &v[1], &w->train.steps));
    assert_null(pl_recipe_override(r, &v[0], &w->train.lr));
    assert_true(pl_recipe_overrides(r, &v[0], &w->train.taps) && pl_recipe_overrides(r, &v[0], &w->train.steps));
    assert_false(pl_recipe_overrides(r, &v[1], &w->train.taps) || pl_recipe_overrides(r, &v[0], &w->train.lr));
    assert_int_equal(pl_recipe_fail_override(r, &v[0], &w->train.steps, &err, "no"), PL_E_INPUT);
    assert_string_equal(err.msg, "x.yaml:3:26: variants.0.steps: no");

    assert_int_equal(pl_recipe_of_item(&one, r, &v[0], "variant \"short\"", sets, 1, &err), PL_OK);
    o = pl_recipe_struct(one, whole_keys);
    assert_int_equal(o->train.steps, 3);
    assert_true(o->train.lr == 0.25);
    assert_int_equal(o->train.taps.n, 2);
    assert_int_equal(o->train.taps.at[1], 2);
    assert_int_equal(o->seed, 9);
    assert_int_equal(o->variants.n, 0);
    pl_recipe_fail(one, &o->train.steps, &err, "no");
    assert_string_equal(err.msg, "variant \"short\": train.steps: no");
    pl_recipe_close(one);

    assert_int_equal(pl_recipe_of_item(&one, r, &v[1], "plain", NULL, 0, &err), PL_OK);
    assert_int_equal(((const whole *)pl_recipe_struct(one, whole_keys))->train.steps, 10);
    pl_recipe_close(one);
    // What it says is checked as the key it replaces.
    assert_int_equal(pl_recipe_of_item(&one, r, &v[2], "variant \"wrong\"", NULL, 0, &err), PL_E_INPUT);
    assert_null(one);
    assert_non_null(strstr(err.msg, "train.steps=many: expected an integer"));
    pl_recipe_close(r);

    static const char unknown[] = "variants: [{name: a, lr: 0.5}]\n";
    assert_int_equal(pl_recipe_parse(&r, unknown, sizeof unknown - 1, "x.yaml", whole_tables, 1, NULL, 0, &err),
                     PL_E_INPUT);
    assert_non_null(strstr(err.msg, "variants.0.lr: unknown key"));
    assert_int_equal(pl_recipe_help(whole_tables, 1, &text, &err), PL_OK);
    assert_non_null(strstr(text, "variants.N.steps: instead of train.steps\n"));
    assert_null(strstr(text, "variants.N.lr"));
    pl_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filled),
        cmocka_unit_test(shared),
        cmocka_unit_test(undone),
        cmocka_unit_test(overrides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
