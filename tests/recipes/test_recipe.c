// Recipes: what is read, --set, what owners complain of, dump, hash and help.
#include "tests/recipes/recipe_fixture.h"

// ---- good inputs ----

static void test_defaults(void **state) {
    (void)state;
    static const char *const empty[] = {"",     "\n",  "# only a comment\n", "---\n",
                                        "{}\n", "~\n", "train:\n",           "train: ~\n"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        int        n = -1;
        pl_recipe *r = must_read(empty[i], NULL, 0);
        assert_int_equal(recipe_int(r, "train.steps"), 300);
        assert_true(recipe_real(r, "train.steps") == 300.0);
        assert_true(recipe_real(r, "train.lr") == 1e-4);
        assert_true(recipe_real(r, "train.floor") == -1.5);
        assert_false(recipe_bool(r, "train.deterministic"));
        assert_string_equal(recipe_str(r, "train.optim.kind"), "adamw");
        assert_int_equal(recipe_choice(r, "train.optim.kind"), 0);
        assert_string_equal(recipe_str(r, "train.late"), "");
        assert_null(recipe_str(r, "title"));
        assert_null(recipe_str(r, "target.path"));
        const double *betas = recipe_reals(r, "train.optim.betas", &n);
        assert_int_equal(n, 2);
        assert_true(betas[0] == 0.9 && betas[1] == 0.95);
        assert_null(recipe_ints(r, "target.layers", &n));
        assert_int_equal(n, 0);
        n = -1;
        assert_null(recipe_list(r, "data.prompts", &n));
        assert_int_equal(n, 0);
        assert_int_equal(recipe_list_count(r, "drafters"), 0);
        assert_false(recipe_has(r, "train.steps"));
        assert_true(recipe_knows(r, "train.steps"));
        assert_false(recipe_knows(r, "train"));
        pl_recipe_close(r);
    }
}

static void test_every_type(void **state) {
    (void)state;
    int        n = 0;
    pl_recipe *r = must_read("\xef\xbb\xbf%YAML 1.2\n---\n"
                             "# a comment\n"
                             "train:\n"
                             "  steps: +0012   # decimal\n"
                             "  lr: .5e-1\n"
                             "  deterministic: true\n"
                             "  optim: {kind: \"sgd\", betas: [0.5, 1.]}\n"
                             "train.offset: -9223372036854775808\n"
                             "target:\n"
                             "  path: '../models/a b'\n"
                             "  layers: [2, 5, 8]\n"
                             "data:\n"
                             "  prompts:\n"
                             "    - a.jsonl\n"
                             "    - \"b, c.jsonl\"\n"
                             "title: 123\n"
                             "seed: 9223372036854775807\r\n",
                             NULL, 0);
    assert_int_equal(recipe_int(r, "train.steps"), 12);
    assert_true(recipe_real(r, "train.lr") == 0.05);
    assert_true(recipe_bool(r, "train.deterministic"));
    assert_int_equal(recipe_choice(r, "train.optim.kind"), 1);
    assert_true(recipe_reals(r, "train.optim.betas", &n)[1] == 1.0);
    assert_int_equal(n, 2);
    assert_true(recipe_int(r, "train.offset") == INT64_MIN);
    assert_string_equal(recipe_str(r, "target.path"), "../models/a b");
    const int64_t *layers = recipe_ints(r, "target.layers", &n);
    assert_int_equal(n, 3);
    assert_true(layers[0] == 2 && layers[1] == 5 && layers[2] == 8);
    const char *const *prompts = recipe_list(r, "data.prompts", &n);
    assert_int_equal(n, 2);
    assert_string_equal(prompts[0], "a.jsonl");
    assert_string_equal(prompts[1], "b, c.jsonl");
    assert_string_equal(recipe_str(r, "title"), "123");
    assert_true(recipe_int(r, "seed") == INT64_MAX);
    assert_true(recipe_has(r, "train.optim.betas"));
    assert_false(recipe_has(r, "train.floor"));
    pl_recipe_close(r);
}

static void test_scalar_is_list_of_one(void **state) {
    (void)state;
    int        n = 0;
    pl_recipe *r = must_read("data: {prompts: one.jsonl}\ntarget: {layers: 7}\n", NULL, 0);
    assert_string_equal(recipe_list(r, "data.prompts", &n)[0], "one.jsonl");
    assert_int_equal(n, 1);
    assert_int_equal(recipe_ints(r, "target.layers", &n)[0], 7);
    assert_int_equal(n, 1);
    pl_recipe_close(r);
}

static void test_list_of_maps(void **state) {
    (void)state;
    pl_recipe *r = must_read(drafters_yaml, NULL, 0);
    assert_int_equal(recipe_list_count(r, "drafters"), 2);
    const pl_recipe *full = recipe_item(r, "drafters", 0), *slim = recipe_item(r, "drafters", 1);
    assert_string_equal(recipe_str(full, "name"), "eagle3-full");
    assert_int_equal(recipe_int(full, "head.rank"), 64);
    assert_false(recipe_has(full, "head.rank"));
    assert_string_equal(recipe_str(slim, "name"), "eagle3-slim");
    assert_int_equal(recipe_choice(slim, "head.kind"), 1);
    assert_int_equal(recipe_int(slim, "head.rank"), 32);
    assert_true(recipe_has(slim, "head.rank"));
    pl_recipe_close(r);
}

// null, in a file or by --set: as if the key were not given.
static void test_null(void **state) {
    (void)state;
    static const char *const given[] = {"train.steps=5", "title=t", "data.prompts=a,b", "target.layers=1"};
    static const char *const undone[] = {"train.steps=5",    "title=t",    "data.prompts=a,b",  "target.layers=1",
                                         "train.steps=null", "title=null", "data.prompts=null", "target.layers=null"};
    static const char *const files[] = {
        "", "train: {steps: null, lr: ~, optim: {kind: Null, betas: NULL}}\ntitle: ~\ndata: {prompts: null}\n",
        "drafters: null\ntarget: {path: ~}\n"};
    char *plain = NULL, *text;
    char  hash[2][17];
    for (int i = 0; i < 4; i++) {
        int        n = -1;
        pl_recipe *r = i < 3 ? must_read(files[i], NULL, 0) : must_read("", undone, 8);
        assert_int_equal(pl_recipe_dump(r, &text, NULL), PL_OK);
        assert_int_equal(pl_recipe_hash(r, 0, hash[i > 0], NULL), PL_OK);
        if (i == 0)
            plain = text;
        else
            assert_string_equal(text, plain);
        assert_string_equal(hash[i > 0], hash[0]);
        assert_int_equal(recipe_int(r, "train.steps"), 300);
        assert_false(recipe_has(r, "train.steps"));
        assert_false(recipe_has(r, "title"));
        assert_null(recipe_str(r, "title"));
        assert_null(recipe_list(r, "data.prompts", &n));
        assert_int_equal(n, 0);
        if (i > 0) pl_free(text);
        pl_recipe_close(r);
    }
    pl_free(plain);
    // The last one wins; quoted it is the text.
    static const char *const again[] = {"title=null", "train.steps=null", "train.steps=7"};
    pl_recipe               *r = must_read("title: \"null\"\n", NULL, 0);
    assert_string_equal(recipe_str(r, "title"), "null");
    pl_recipe_close(r);
    r = must_read("title: a\n", again, 3);
    assert_null(recipe_str(r, "title"));
    assert_int_equal(recipe_int(r, "train.steps"), 7);
    pl_recipe_close(r);
    r = must_read("title: null\n", given, 4);
    assert_string_equal(recipe_str(r, "title"), "t");
    pl_recipe_close(r);
    // A key of an item.
    r = must_read("drafters: [{name: a, head.rank: null}]\n", NULL, 0);
    assert_int_equal(recipe_int(recipe_item(r, "drafters", 0), "head.rank"), 64);
    pl_recipe_close(r);
}

static void test_sets(void **state) {
    (void)state;
    static const char *const sets[] = {
        "train.steps=5",           "train.steps=6",         "train.lr=1e-3",
        "title=a: b # c = d",      "target.layers=2, 5 ,8", "data.prompts=[a, \"b,c\"]",
        "drafters.0.head.rank=16", "drafters.2.name=third", "drafters.2.head.kind=routed",
        "train.optim.betas=",      "train.late=\"null\""};
    int        n = -1;
    pl_recipe *r = must_read(drafters_yaml, sets, sizeof sets / sizeof *sets);
    assert_int_equal(recipe_int(r, "train.steps"), 6);
    assert_true(recipe_real(r, "train.lr") == 1e-3);
    assert_string_equal(recipe_str(r, "title"), "a: b # c = d");
    assert_int_equal(recipe_ints(r, "target.layers", &n)[2], 8);
    assert_int_equal(n, 3);
    assert_string_equal(recipe_list(r, "data.prompts", &n)[1], "b,c");
    assert_int_equal(n, 2);
    assert_null(recipe_reals(r, "train.optim.betas", &n));
    assert_int_equal(n, 0);
    assert_true(recipe_has(r, "train.optim.betas"));
    assert_string_equal(recipe_str(r, "train.late"), "null");
    assert_int_equal(recipe_list_count(r, "drafters"), 3);
    assert_int_equal(recipe_int(recipe_item(r, "drafters", 0), "head.rank"), 16);
    assert_string_equal(recipe_str(recipe_item(r, "drafters", 0), "name"), "eagle3-full");
    assert_string_equal(recipe_str(recipe_item(r, "drafters", 2), "name"), "third");
    assert_int_equal(recipe_choice(recipe_item(r, "drafters", 2), "head.kind"), 2);
    pl_recipe_close(r);

    static const char *const whole[] = {"drafters=[{name: only, head.rank: 8}]"};
    r = must_read(drafters_yaml, whole, 1);
    assert_int_equal(recipe_list_count(r, "drafters"), 1);
    assert_int_equal(recipe_int(recipe_item(r, "drafters", 0), "head.rank"), 8);
    pl_recipe_close(r);
}

// ---- owners' complaints ----

#define AT(table, S, f) table, offsetof(S, f)

static const void *field_at(const pl_recipe *r, const pl_key *table, size_t offset) {
    return (const char *)pl_recipe_struct(r, table) + offset;
}

// Another value than the default, however it is written, and the same of a recipe and of its dump.
static void test_differs(void **state) {
    (void)state;
    static const struct {
        const char   *set;
        const pl_key *table;
        size_t        offset;
        bool          differs;
    } cases[] = {{"seed=0", AT(other_keys, other_fields, seed), false},
                 {"seed=1", AT(other_keys, other_fields, seed), true},
                 {"train.lr=0.0001", AT(train_keys, train_fields, train.lr), false},
                 {"train.lr=0.0002", AT(train_keys, train_fields, train.lr), true},
                 {"train.deterministic=false", AT(train_keys, train_fields, train.deterministic), false},
                 {"train.deterministic=true", AT(train_keys, train_fields, train.deterministic), true},
                 {"train.optim.kind=adamw", AT(train_keys, train_fields, train.optim.kind), false},
                 {"train.optim.kind=sgd", AT(train_keys, train_fields, train.optim.kind), true},
                 {"train.optim.betas=[0.90, 0.95]", AT(train_keys, train_fields, train.optim.betas), false},
                 {"train.optim.betas=0.9", AT(train_keys, train_fields, train.optim.betas), true},
                 {"train.optim.betas=0.9,0.96", AT(train_keys, train_fields, train.optim.betas), true},
                 {"target.layers=[]", AT(other_keys, other_fields, target.layers), false},
                 {"target.layers=3", AT(other_keys, other_fields, target.layers), true},
                 {"train.late=", AT(other_keys, other_fields, train.late), false},
                 {"target.path=x", AT(other_keys, other_fields, target.path), true}, // it has none
                 {"seed=1", AT(other_keys, other_fields, target.path), false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_recipe *r, *again;
        pl_err     err = {0};
        char      *text;
        assert_int_equal(pl_recipe_open(&r, NULL, tables, 2, &cases[i].set, 1, &err), PL_OK);
        const void *field = field_at(r, cases[i].table, cases[i].offset), *deflt = pl_recipe_default(r, field);
        assert_int_equal(pl_recipe_differs(r, field), cases[i].differs);
        assert_int_equal(pl_recipe_dump(r, &text, &err), PL_OK);
        assert_int_equal(pl_recipe_parse(&again, text, strlen(text), "dump", tables, 2, NULL, 0, &err), PL_OK);
        assert_int_equal(pl_recipe_differs(again, field_at(again, cases[i].table, cases[i].offset)), cases[i].differs);
        if (cases[i].differs && deflt) { // back to it
            char *set = pl_sprintf("%s=%s", pl_recipe_path(r, field), (const char *)deflt);
            pl_recipe_close(again);
            assert_int_equal(
                pl_recipe_parse(&again, text, strlen(text), "dump", tables, 2, (const char *const *)&set, 1, &err),
                PL_OK);
            assert_false(pl_recipe_differs(again, field_at(again, cases[i].table, cases[i].offset)));
            pl_free(set);
        }
        pl_free(text);
        pl_recipe_close(r);
        pl_recipe_close(again);
    }
}

static void test_require_and_fail(void **state) {
    (void)state;
    static const char *const sets[] = {"train.steps=7", "drafters.1.head.rank=3"};
    pl_err                   err = {.msg = ""};
    pl_recipe               *r = must_read("train:\n  lr: 0.5\ndrafters:\n  - head.kind: full\n", sets, 2);
    const train_fields      *t = pl_recipe_struct(r, train_keys);
    const other_fields      *o = pl_recipe_struct(r, other_keys);
    assert_int_equal(pl_recipe_require(r, &t->train.lr, &err), PL_OK);
    assert_int_equal(pl_recipe_require(r, &o->seed, &err), PL_OK);
    assert_int_equal(pl_recipe_require(r, &o->target.path, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "x.yaml: target.path: missing (the target's folder); add it to the recipe or give "
                                 "--set target.path=VALUE");
    assert_int_equal(pl_recipe_require(r, &o->drafters.at[0].name, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "x.yaml:4:5: drafters.0.name: missing (name of the variant); add it to the recipe or "
                                 "give --set drafters.0.name=VALUE");
    assert_int_equal(pl_recipe_require(r, &o->drafters.at[1].name, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "x.yaml: drafters.1.name: missing (name of the variant); add it to the recipe or give "
                                 "--set drafters.1.name=VALUE");

    assert_int_equal(pl_recipe_fail(r, &t->train.lr, &err, "too bold by %d", 2), PL_E_INPUT);
    assert_string_equal(err.msg, "x.yaml:2:7: train.lr: too bold by 2");
    pl_recipe_fail(r, &t->train.steps, &err, "too few");
    assert_string_equal(err.msg, "--set train.steps=7: too few");
    pl_recipe_fail(r, &o->seed, &err, "dull");
    assert_string_equal(err.msg, "x.yaml: seed: dull (0 is its default)");
    pl_recipe_fail(r, &o->title, &err, "needed here");
    assert_string_equal(err.msg, "x.yaml: title: needed here");
    pl_recipe_fail(r, &o->drafters.at[0].head.kind, &err, "no");
    assert_string_equal(err.msg, "x.yaml:4:16: drafters.0.head.kind: no");
    pl_recipe_close(r);

    assert_int_equal(pl_recipe_open(&r, NULL, tables, N_TABLES, NULL, 0, &err), PL_OK);
    o = pl_recipe_struct(r, other_keys);
    assert_int_equal(pl_recipe_require(r, &o->title, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "title: missing (a string); add it to the recipe or give --set title=VALUE");
    pl_recipe_close(r);
}

// ---- dump, hash, help ----

static void test_dump(void **state) {
    (void)state;
    static const char *const sets[] = {"train.lr=0.00010", "drafters.2.head.rank=8"};
    static const char        expected[] = "train:\n"
                                          "  steps: 300\n"
                                          "  lr: 0.0001\n"
                                          "  offset: 0\n"
                                          "  floor: -1.5\n"
                                          "  deterministic: false\n"
                                          "  optim:\n"
                                          "    kind: adamw\n"
                                          "    betas: [0.9, 0.95]\n"
                                          "  late: \"\"\n"
                                          "target:\n"
                                          "  path: models/x\n"
                                          "  layers: []\n"
                                          "data:\n"
                                          "  prompts: [a.jsonl, \"b c\"]\n"
                                          "  mode: offline\n"
                                          "drafters:\n"
                                          "  - name: eagle3-full\n"
                                          "    head:\n"
                                          "      kind: full\n"
                                          "      rank: 64\n"
                                          "  - name: \"no\"\n"
                                          "    head:\n"
                                          "      kind: lowrank\n"
                                          "      rank: 32\n"
                                          "  - head:\n"
                                          "      kind: full\n"
                                          "      rank: 8\n"
                                          "seed: 0\n";
    char                    *text = NULL;
    pl_recipe               *r = must_read("data: {prompts: [a.jsonl, b c]}\ntarget.path: models/x\n"
                                                         "drafters:\n"
                                                         "  - name: eagle3-full\n"
                                                         "  - {name: no, head: {kind: lowrank, rank: 32}}\n",
                                           sets, 2);
    assert_int_equal(pl_recipe_dump(r, &text, NULL), PL_OK);
    assert_string_equal(text, expected);
    char hash[17], of_text[17];
    hash_of(r, 0, hash);
    pl_hash_hex(of_text, pl_hash(text, strlen(text)));
    assert_string_equal(hash, of_text);
    pl_free(text);
    // An item is a recipe of its own.
    assert_int_equal(pl_recipe_dump(recipe_item(r, "drafters", 1), &text, NULL), PL_OK);
    assert_string_equal(text, "name: \"no\"\nhead:\n  kind: lowrank\n  rank: 32\n");
    pl_free(text);
    pl_recipe_close(r);
}

static void test_round_trip(void **state) {
    (void)state;
    static const char *const strings[] = {"",
                                          " a ",
                                          "null",
                                          "~",
                                          "Yes",
                                          "12",
                                          "-",
                                          "---",
                                          "...",
                                          "# no",
                                          "a: b",
                                          "a\nb\n",
                                          "\ttab",
                                          "\"q\" \\ 'q'",
                                          "[x]",
                                          "{x}",
                                          "*a &b !c",
                                          "%d",
                                          "@x `y`",
                                          "\x01\x1f\x7f",
                                          "\xc3\xa4\xc2\x85\xe2\x80\xa8\xef\xbb\xbf\xf0\x9f\x9a\xb4",
                                          "\xef\xbf\xbe",
                                          "../a/b.c",
                                          ".5",
                                          "/abs/path",
                                          "a,b",
                                          "\r\n"};
    char                     set[64];
    const char              *sets[] = {set};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        char *text = NULL;
        snprintf(set, sizeof set, strcmp(strings[i], "null") == 0 ? "title=\"%s\"" : "title=%s", strings[i]);
        pl_recipe *r = must_read(drafters_yaml, sets, 1);
        assert_int_equal(pl_recipe_dump(r, &text, NULL), PL_OK);
        pl_recipe *again = must_read(text, NULL, 0);
        assert_string_equal(recipe_str(again, "title"), strings[i]);
        round_trip(r);
        pl_recipe_close(again);
        pl_recipe_close(r);
        pl_free(text);
    }
    // Long text is neither folded nor cut.
    char long_set[6000] = "title=";
    memset(long_set + 6, ' ', 5000);
    for (size_t i = 6; i < 5006; i += 7)
        long_set[i] = 'w';
    sets[0] = long_set;
    pl_recipe *r = must_read("", sets, 1);
    assert_string_equal(recipe_str(r, "title"), long_set + 6);
    round_trip(r);
    pl_recipe_close(r);
}

static void test_numbers_round_trip(void **state) {
    (void)state;
    pl_rng rng = pl_rng_make(11, PL_STREAM_TEST, 0);
    char   set[64];
    for (uint64_t i = 0; i < 200; i++) {
        double      x = ldexp(pl_rng_uniform(rng, i) - 0.5, (int)pl_rng_below(rng, 1000 + i, 80) - 78);
        const char *sets[] = {set};
        snprintf(set, sizeof set, "train.floor=%.17g", x);
        char      *text = NULL;
        pl_recipe *r = must_read("", sets, 1);
        assert_true(recipe_real(r, "train.floor") == x);
        assert_int_equal(pl_recipe_dump(r, &text, NULL), PL_OK);
        pl_recipe *again = must_read(text, NULL, 0);
        assert_true(recipe_real(again, "train.floor") == x);
        pl_recipe_close(again);
        pl_recipe_close(r);
        pl_free(text);
    }
}

static void hash_after(const char *yaml, unsigned stages, char out[17]) {
    pl_recipe *r = must_read(yaml, NULL, 0);
    hash_of(r, stages, out);
    pl_recipe_close(r);
}

static void test_hash(void **state) {
    (void)state;
    char base[17], other[17];
    // Spelling, order and comments do not matter; values do.
    hash_after("train: {lr: 1e-4, steps: 300}\nseed: 0\n", 0, base);
    hash_after("# x\nseed: +0\ntrain:\n  steps: 0300\n  lr: 0.0001\n", 0, other);
    assert_string_equal(base, other);
    hash_after("train.floor: 0\n", 0, base);
    hash_after("train.floor: -0.0\n", 0, other);
    assert_string_equal(base, other);
    hash_after("train.floor: 1e-30\n", 0, other);
    assert_string_not_equal(base, other);
    // Each stage sees its own keys, and those of no stage in particular.
    hash_after("", STAGE_DATA, base);
    hash_after("train.steps: 7\ntrain.lr: 0.5\ntitle: x\n", STAGE_DATA, other);
    assert_string_equal(base, other);
    hash_after("data.prompts: a\n", STAGE_DATA, other);
    assert_string_not_equal(base, other);
    hash_after("seed: 1\n", STAGE_DATA, other);
    assert_string_not_equal(base, other);
    hash_after("", STAGE_TRAIN, base);
    hash_after("train.steps: 7\n", STAGE_TRAIN, other);
    assert_string_not_equal(base, other);
    hash_after("title: x\n", STAGE_TRAIN, other);
    assert_string_equal(base, other);
    hash_after("title: x\n", 0, other);
    hash_after("", 0, base);
    assert_string_not_equal(base, other);
    // A key that came later changes nothing until it is used.
    static const pl_key        before[] = {{.path = "steps", .type = PL_KEY_INT, .deflt = "3"}, {0}};
    static const pl_key        after[] = {{.path = "steps", .type = PL_KEY_INT, .deflt = "3"},
                                          {.path = "more", .type = PL_KEY_INT, .deflt = "0", .late = true},
                                          {.path = "rates", .type = PL_KEY_REAL_LIST, .deflt = "0,1e-1", .late = true},
                                          {0}};
    static const pl_key *const both[] = {before, after};
    static const struct {
        int         table;
        const char *yaml;
        bool        same;
    } late[] = {{1, "steps: 3\n", true},  {1, "more: 0\n", true},         {1, "more: 1\n", false},
                {1, "steps: 4\n", false}, {1, "rates: [0, 0.1]\n", true}, {1, "rates: [0]\n", false}};
    pl_recipe *r;
    assert_int_equal(pl_recipe_parse(&r, "", 0, "x", &both[0], 1, NULL, 0, NULL), PL_OK);
    hash_of(r, 0, base);
    pl_recipe_close(r);
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        assert_int_equal(
            pl_recipe_parse(&r, late[i].yaml, strlen(late[i].yaml), "x", &both[late[i].table], 1, NULL, 0, NULL),
            PL_OK);
        hash_of(r, 0, other);
        assert_true((strcmp(base, other) == 0) == late[i].same);
        pl_recipe_close(r);
    }
    // Within items too.
    hash_after("drafters: [{head.rank: 1}]\n", STAGE_DATA, base);
    hash_after("drafters: [{head.rank: 2}]\n", STAGE_DATA, other);
    assert_string_equal(base, other);
    hash_after("drafters: [{head.rank: 1}]\n", STAGE_TRAIN, base);
    hash_after("drafters: [{head.rank: 2}]\n", STAGE_TRAIN, other);
    assert_string_not_equal(base, other);
}

static void test_help(void **state) {
    (void)state;
    static const char expected[] = "target.path: a path; no default\n"
                                   "    the target's folder\n"
                                   "target.layers: a list of integers from 0 to 100; default []\n"
                                   "data.prompts: a list of strings; no default\n"
                                   "data.mode: one of offline, online, bounded; default offline\n"
                                   "title: a string; no default\n"
                                   "drafters: a list of mappings; no default\n"
                                   "    variants\n"
                                   "drafters.N.name: a string; no default\n"
                                   "    name of the variant\n"
                                   "drafters.N.head.kind: one of full, lowrank, routed; default full\n"
                                   "drafters.N.head.rank: an integer from 1 to 4096; default 64\n"
                                   "train.late: a string; default \"\"\n"
                                   "seed: an integer; default 0\n";
    char             *text = NULL;
    assert_int_equal(pl_recipe_help(&tables[1], 1, &text, NULL), PL_OK);
    assert_string_equal(text, expected);
    pl_free(text);
}

// A default of a list of mappings is read like a --set, and its items are not "given".
static void test_default_items(void **state) {
    (void)state;
    static const pl_key list[] = {
        {.path = "v", .type = PL_KEY_LIST_OF_MAPS, .item = head_keys, .deflt = "[{name: a}, {name: b, head.rank: 2}]"},
        {0}};
    static const pl_key *const one[] = {list};
    static const char *const   sets[] = {"v.1.head.rank=9"};
    pl_recipe                 *r = NULL;
    pl_err                     err;
    assert_int_equal(pl_recipe_open(&r, NULL, one, 1, NULL, 0, &err), PL_OK);
    assert_int_equal(recipe_list_count(r, "v"), 2);
    assert_false(recipe_has(r, "v"));
    assert_false(recipe_has(recipe_item(r, "v", 1), "head.rank"));
    assert_int_equal(recipe_int(recipe_item(r, "v", 1), "head.rank"), 2);
    pl_recipe_close(r);
    assert_int_equal(pl_recipe_open(&r, NULL, one, 1, sets, 1, &err), PL_OK);
    assert_true(recipe_has(r, "v"));
    assert_int_equal(recipe_int(recipe_item(r, "v", 1), "head.rank"), 9);
    assert_string_equal(recipe_str(recipe_item(r, "v", 0), "name"), "a");
    pl_recipe_close(r);
}

static void test_file(void **state) {
    (void)state;
    char       path[] = "/tmp/paceline-recipe-XXXXXX", expected[128];
    int        fd = mkstemp(path);
    pl_recipe *r = NULL;
    pl_err     err = {.msg = ""};
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "seed: 4\nsed: 5\n", 15), 15);
    close(fd);
    assert_int_equal(pl_recipe_open(&r, path, tables, N_TABLES, NULL, 0, &err), PL_E_INPUT);
    assert_null(r);
    snprintf(expected, sizeof expected, "%s:2:1: sed: unknown key; did you mean seed?", path);
    assert_string_equal(err.msg, expected);
    assert_int_equal(pl_file_write_atomic(path, "seed: 4\n", 8, &err), PL_OK);
    assert_int_equal(pl_recipe_open(&r, path, tables, N_TABLES, NULL, 0, &err), PL_OK);
    assert_int_equal(recipe_int(r, "seed"), 4);
    pl_recipe_close(r);
    unlink(path);
    assert_int_equal(pl_recipe_open(&r, path, tables, N_TABLES, NULL, 0, &err), PL_E_INPUT);
    assert_null(r);
    assert_non_null(strstr(err.msg, path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_scalar_is_list_of_one),
        cmocka_unit_test(test_list_of_maps),
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_differs),
        cmocka_unit_test(test_require_and_fail),
        cmocka_unit_test(test_dump),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_numbers_round_trip),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_default_items),
        cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
