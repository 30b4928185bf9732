// Recipes: what is refused and in which words, callers' mistakes, failures injected, and that no bytes crash the
// reader.
#include "tests/recipes/recipe_fixture.h"

static void must_refuse(const char *yaml, const char *const *sets, int n_sets, const char *message) {
    pl_recipe *r = (pl_recipe *)&r;
    pl_err     err = {.msg = ""};
    pl_status  st = read_n(&r, yaml, strlen(yaml), sets, n_sets, &err);
    if (st != PL_E_INPUT) fail_msg("accepted: %s", yaml);
    assert_string_equal(err.msg, message);
    assert_null(r);
    malformed_seen();
}

// ---- bad inputs ----

static const struct {
    const char *yaml, *message;
} bad_yaml[] = {
    // spelling
    {"train:\n  stepz: 3\n", "x.yaml:2:3: train.stepz: unknown key; did you mean train.steps?"},
    {"train:\n  setps: 3\n", "x.yaml:2:3: train.setps: unknown key; did you mean train.steps?"},
    {"trian: {steps: 3}\n", "x.yaml:1:1: trian: unknown key; did you mean train?"},
    {"steps: 3\n", "x.yaml:1:1: steps: unknown key; did you mean train.steps?"},
    {"train.optim.knd: sgd\n", "x.yaml:1:1: train.optim.knd: unknown key; did you mean train.optim.kind?"},
    {"zzzzzzzzzzzz: 1\n", "x.yaml:1:1: zzzzzzzzzzzz: unknown key; the nearest known one is train.steps"},
    {"drafters:\n  - name: a\n    head: {rnak: 3}\n",
     "x.yaml:3:12: drafters.0.head.rnak: unknown key; did you mean drafters.0.head.rank?"},
    {"<<: {a: 1}\n", "x.yaml:1:1: <<: unknown key; the nearest known one is train.lr"},
    {"\"a\\nb\": 1\n", "x.yaml:1:1: a\\x0ab: unknown key; the nearest known one is data"},
    // types
    {"# one\n\ntrain:\n  lr: 1\n  steps: many\n", "x.yaml:5:10: train.steps: expected an integer, found \"many\""},
    {"train: {steps: 1.5}\n", "x.yaml:1:16: train.steps: expected an integer, found \"1.5\""},
    {"train: {steps: 1e3}\n", "x.yaml:1:16: train.steps: expected an integer, found \"1e3\""},
    {"train: {steps: 0x10}\n", "x.yaml:1:16: train.steps: expected an integer, found \"0x10\""},
    {"train: {steps: \"3\"}\n",
     "x.yaml:1:16: train.steps: expected an integer, found the string \"3\"; remove the quotes"},
    {"train: {steps: }\n", "x.yaml:1:16: train.steps: expected an integer, found nothing"},
    {"train: {steps: [1]}\n", "x.yaml:1:16: train.steps: expected an integer, found a list"},
    {"train:\n  steps:\n    a: 1\n", "x.yaml:3:5: train.steps: expected an integer, found a mapping"},
    {"train: {lr: fast}\n", "x.yaml:1:13: train.lr: expected a number, found \"fast\""},
    {"train: {lr: .nan}\n", "x.yaml:1:13: train.lr: expected a number, found \".nan\""},
    {"train: {lr: .}\n", "x.yaml:1:13: train.lr: expected a number, found \".\""},
    {"train: {lr: 1e}\n", "x.yaml:1:13: train.lr: expected a number, found \"1e\""},
    {"train: {lr: inf}\n", "x.yaml:1:13: train.lr: expected a number, found \"inf\""},
    {"train: {deterministic: yes}\n", "x.yaml:1:24: train.deterministic: expected true or false, found \"yes\""},
    {"title:\n", "x.yaml:1:7: title: expected a string, found nothing"},
    {"target: {path: ''}\n", "x.yaml:1:16: target.path: expected a path, found an empty string"},
    {"data: {mode: onlin}\n", "x.yaml:1:14: data.mode: expected one of offline, online, bounded, found \"onlin\"; "
                              "did you mean online?"},
    {"data: {mode: disk}\n", "x.yaml:1:14: data.mode: expected one of offline, online, bounded, found \"disk\""},
    {"data: {mode: [a]}\n", "x.yaml:1:14: data.mode: expected one of offline, online, bounded, found a list"},
    {"data: {prompts: {a: b}}\n", "x.yaml:1:17: data.prompts: expected a list of strings, found a mapping"},
    {"data: {prompts: [[a]]}\n", "x.yaml:1:18: data.prompts: expected a list of strings, found a list in it"},
    {"data: {prompts: }\n", "x.yaml:1:17: data.prompts: expected a list of strings, found nothing"},
    {"target:\n  layers:\n    - 1\n    - two\n", "x.yaml:4:7: target.layers: expected an integer, found \"two\""},
    {"target: {layers: [1, ~]}\n", "x.yaml:1:22: target.layers: expected a list of integers, found nothing in it"},
    {"train: 5\n", "x.yaml:1:8: train: expected a section with keys such as train.steps, found \"5\""},
    {"train: [5]\n", "x.yaml:1:8: train: expected a section with keys such as train.steps, found a list"},
    {"drafters: eagle\n", "x.yaml:1:11: drafters: expected a list of mappings, found \"eagle\""},
    {"drafters: {name: a}\n", "x.yaml:1:11: drafters: expected a list of mappings, found a mapping"},
    {"drafters: [a]\n", "x.yaml:1:12: drafters: expected a list of mappings, found \"a\" in it"},
    {"drafters: [{head: {rank: x}}]\n", "x.yaml:1:26: drafters.0.head.rank: expected an integer, found \"x\""},
    // ranges
    {"train: {steps: 0}\n", "x.yaml:1:16: train.steps: expected an integer of at least 1, found 0"},
    {"train: {lr: 1.5}\n", "x.yaml:1:13: train.lr: expected a number from 0 to 1, found 1.5"},
    {"train: {floor: 3}\n", "x.yaml:1:16: train.floor: expected a number of at most 2.5, found 3"},
    {"train: {lr: 1e999}\n", "x.yaml:1:13: train.lr: 1e999 is too large for a number"},
    {"seed: 9223372036854775808\n", "x.yaml:1:7: seed: 9223372036854775808 does not fit into 64 bits"},
    {"target: {layers: [1, 101]}\n", "x.yaml:1:22: target.layers: expected an integer from 0 to 100, found 101"},
    {"drafters:\n- name: a\n- head:\n    rank: 0\n",
     "x.yaml:4:11: drafters.1.head.rank: expected an integer from 1 to 4096, found 0"},
    // twice
    {"seed: 1\nseed: 2\n", "x.yaml:2:1: seed: duplicate key; it stands on line 1 already"},
    {"train: {lr: 1}\nseed: 1\ntrain: {steps: 1}\n", "x.yaml:3:1: train: duplicate key; it stands on line 1 already"},
    {"train:\n  steps: 1\ntrain.steps: 2\n", "x.yaml:3:1: train.steps: duplicate key; it stands on line 2 already"},
    {"drafters:\n- {name: a}\n- name: b\n  name: c\n",
     "x.yaml:4:3: drafters.1.name: duplicate key; it stands on line 3 already"},
    // what recipes leave out of YAML
    {"train: &t\n  steps: 1\n", "x.yaml:1:8: train: anchors (&t) are not part of recipes; write the value out"},
    {"&k seed: 1\n", "x.yaml:1:1: anchors (&k) are not part of recipes; write the value out"},
    {"title: *t\n", "x.yaml:1:8: title: aliases (*t) are not part of recipes; write the value out"},
    {"title: !!str 3\n", "x.yaml:1:8: title: tags (tag:yaml.org,2002:str) are not part of recipes; remove it"},
    {"seed: 1\n---\nseed: 2\n", "x.yaml:2:1: a second document; a recipe is one document"},
    {"train:\n\tsteps: 1\n", "x.yaml:2:1: a tab; use spaces (and \\t inside double quotes)"},
    {"seed: 1 \t# x\n", "x.yaml:1:9: a tab; use spaces (and \\t inside double quotes)"},
    {"[a]: 1\n", "x.yaml:1:1: a key must be a name, found a list"},
    {"- seed\n", "x.yaml:1:1: expected keys (name: value), found a list"},
    {"seed\n", "x.yaml:1:1: expected keys (name: value), found \"seed\""},
    {"title: \"\xc3\xa4\"\nseed: \xff\n", "x.yaml:2:7: not UTF-8; save the recipe as UTF-8 text"},
    {"title: \xe4pfel\n", "x.yaml:1:8: not UTF-8; save the recipe as UTF-8 text"},
    {"seed: 1\x01\n", "x.yaml:1:8: a control character (U+0001); remove it"},
    {"title: \"a\\0b\"\n", "x.yaml:1:8: title: a NUL character in a value"},
    // not YAML
    {"train: {steps: 1\n", "x.yaml:2:1: not valid YAML: while parsing a flow mapping did not find expected ',' or '}'; "
                           "check indentation, colons and quotes"},
    {"title: a: b\n", "x.yaml:1:9: not valid YAML: mapping values are not allowed in this context; check indentation, "
                      "colons and quotes"},
    {"train:\n  lr: 1\n steps: 3\n", "x.yaml:3:2: not valid YAML: while parsing a block mapping did not find expected "
                                     "key; check indentation, colons and quotes"},
    {"title: \"open\n", "x.yaml:2:1: not valid YAML: while scanning a quoted scalar found unexpected end of stream; "
                        "check indentation, colons and quotes"},
};

static void test_bad_yaml(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_yaml / sizeof *bad_yaml; i++)
        must_refuse(bad_yaml[i].yaml, NULL, 0, bad_yaml[i].message);
}

static const struct {
    const char *set, *message;
} bad_sets[] = {
    {"train.stepz=3", "--set train.stepz=3: unknown key; did you mean train.steps?"},
    {"train.steps=many", "--set train.steps=many: expected an integer, found \"many\""},
    {"train.steps=", "--set train.steps=: expected an integer, found \"\""},
    {"train.steps=0", "--set train.steps=0: expected an integer of at least 1, found 0"},
    {"train.steps", "--set train.steps: expected key.path=value"},
    {"=3", "--set =3: expected key.path=value"},
    {"train=3", "--set train=3: train is a section; set one of its keys, such as train.steps"},
    {"train.steps.x=3", "--set train.steps.x=3: unknown key; train.steps is an integer and has no keys"},
    {"data.mode=zz\nzz", "--set data.mode=zz\\x0azz: expected one of offline, online, bounded, found "
                         "\"zz\\x0azz\""},
    {"target.layers=1,x", "--set target.layers=1,x: expected an integer, found \"x\""},
    {"target.layers=1,", "--set target.layers=1,: a comma at the end; write a,b"},
    {"target.layers=[1", "--set target.layers=[1: not valid YAML: while parsing a flow sequence did not find expected "
                         "',' or ']'; check indentation, colons and quotes"},
    {"target.layers=[1]\n--- [2]", "--set target.layers=[1]\\x0a--- [2]: more than one value; write [a, b]"},
    {"target.layers=[&a 1]", "--set target.layers=[&a 1]: anchors (&a) are not part of recipes; write the value out"},
    {"title=\xff", "--set title=\\xff: not UTF-8"},
    {"drafters.name=a", "--set drafters.name=a: expected an item's number and key, such as drafters.0.name"},
    {"drafters.0=a", "--set drafters.0=a: expected an item's number and key, such as drafters.0.name"},
    {"drafters.3.name=a", "--set drafters.3.name=a: drafters has 2 items; the next is drafters.2"},
    {"drafters.99999999999999999999.name=a",
     "--set drafters.99999999999999999999.name=a: expected an item's number and key, such as drafters.0.name"},
    {"drafters.1.nam=a", "--set drafters.1.nam=a: unknown key; did you mean drafters.1.name?"},
    {"drafters.1.head=a", "--set drafters.1.head=a: drafters.1.head is a section; set one of its keys, such as "
                          "drafters.1.head.kind"},
    {"drafters=[{name: a, name: b}]", "--set drafters=[{name: a, name: b}]: drafters.0.name stands twice"},
    {"drafters=", "--set drafters=: expected a list of mappings, found nothing"},
    {"drafters=a", "--set drafters=a: expected a list of mappings, found \"a\""},
};

static void test_bad_sets(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_sets / sizeof *bad_sets; i++)
        must_refuse(drafters_yaml, &bad_sets[i].set, 1, bad_sets[i].message);
}

static void test_limits(void **state) {
    (void)state;
    // A key longer than any table's, and 256 items but not 257.
    char   yaml[8192];
    size_t n = 0;
    memset(yaml, 'k', 300);
    snprintf(yaml + 300, sizeof yaml - 300, ": 1\n");
    pl_recipe *r = NULL;
    pl_err     err = {.msg = ""};
    assert_int_equal(read_n(&r, yaml, strlen(yaml), NULL, 0, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "kkk...: unknown key; the nearest known one is "));
    n = (size_t)snprintf(yaml, sizeof yaml, "drafters:\n");
    for (int i = 0; i < PL_RECIPE_MAX_ITEMS; i++)
        n += (size_t)snprintf(yaml + n, sizeof yaml - n, "- {name: a}\n");
    r = must_read(yaml, NULL, 0);
    assert_int_equal(recipe_list_count(r, "drafters"), PL_RECIPE_MAX_ITEMS);
    pl_recipe_close(r);
    snprintf(yaml + n, sizeof yaml - n, "- {name: a}\n");
    must_refuse(yaml, NULL, 0, "x.yaml:258:3: drafters: more than 256 items");

    size_t big = PL_RECIPE_MAX_BYTES + 1;
    char  *spaces = malloc(big);
    assert_non_null(spaces);
    memset(spaces, ' ', big);
    assert_int_equal(read_n(&r, spaces, big, NULL, 0, &err), PL_E_INPUT);
    assert_string_equal(err.msg, "x.yaml: larger than 1048576 bytes; this is no recipe");
    assert_int_equal(read_n(&r, spaces, big - 1, NULL, 0, &err), PL_OK);
    pl_recipe_close(r);
    free(spaces);
}

// ---- callers' mistakes abort ----

static void get_unknown(const pl_recipe *r) {
    recipe_int(r, "train.stepz");
}
static void get_other_type(const pl_recipe *r) {
    recipe_bool(r, "train.steps");
}
static void get_str_of_list(const pl_recipe *r) {
    recipe_str(r, "data.prompts");
}
static void get_item_past_end(const pl_recipe *r) {
    recipe_item(r, "drafters", 0);
}

static void open_row(pl_key row) {
    const pl_key        table[] = {row, {.path = "b.c", .type = PL_KEY_STRING}, {0}};
    const pl_key *const one[] = {table};
    pl_recipe          *r = NULL;
    pl_recipe_open(&r, NULL, one, 1, NULL, 0, NULL);
    pl_recipe_close(r);
}

static void bad_default(const pl_recipe *r) {
    (void)r;
    open_row((pl_key){.path = "a", .type = PL_KEY_INT, .deflt = "x"});
}
static void default_out_of_range(const pl_recipe *r) {
    (void)r;
    open_row((pl_key){.path = "a", .type = PL_KEY_INT, .deflt = "0", .min = 1, .max = 2});
}
static void row_twice(const pl_recipe *r) {
    (void)r;
    open_row((pl_key){.path = "b.c", .type = PL_KEY_INT});
}
static void row_is_section(const pl_recipe *r) {
    (void)r;
    open_row((pl_key){.path = "b", .type = PL_KEY_INT});
}
static void good_row(const pl_recipe *r) {
    (void)r;
    open_row((pl_key){.path = "b.d", .type = PL_KEY_INT, .deflt = "1", .min = 1, .max = 2});
}

static bool aborts(void (*call)(const pl_recipe *), const pl_recipe *r) {
    int   how = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); // cmocka catches it
        if (!freopen("/dev/null", "w", stderr)) _exit(3);
        call(r);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT;
}

static void test_callers_mistakes(void **state) {
    (void)state;
    pl_recipe *r = must_read("", NULL, 0);
    assert_true(aborts(get_unknown, r));
    assert_true(aborts(get_other_type, r));
    assert_true(aborts(get_str_of_list, r));
    assert_true(aborts(get_item_past_end, r));
    assert_true(aborts(bad_default, r));
    assert_true(aborts(default_out_of_range, r));
    assert_true(aborts(row_twice, r));
    assert_true(aborts(row_is_section, r));
    assert_false(aborts(good_row, r));
    pl_recipe_close(r);
}

// ---- failures injected ----

static void test_out_of_memory(void **state) {
    (void)state;
    static const char *const sets[] = {"drafters.2.name=x", "target.layers=[1,2,3]", "data.prompts=a,b",
                                       "drafters.0.head.rank=3"};
    for (uint64_t n = 1;; n++) {
        pl_recipe *r = NULL;
        pl_err     err;
        char      *text = NULL, *help = NULL, hash[17];
        assert_true(n < 2000);
        pl_alloc_fail_after(n);
        pl_status st = read_n(&r, drafters_yaml, strlen(drafters_yaml), sets, 4, &err);
        if (st != PL_OK) assert_null(r);
        if (st == PL_OK) st = pl_recipe_dump(r, &text, &err);
        if (st == PL_OK) st = pl_recipe_hash(r, 0, hash, &err);
        if (st == PL_OK) st = pl_recipe_help(tables, N_TABLES, &help, &err);
        pl_alloc_fail_after(0);
        pl_recipe_close(r);
        pl_free(text);
        pl_free(help);
        if (st == PL_OK) {
            assert_true(n > 50);
            return;
        }
        assert_int_equal(st, PL_E_MEMORY);
    }
}

// Random bytes, and a good recipe with a few bytes changed, cut or doubled: an answer or one line, never a crash.
static void try_bytes(const char *bytes, size_t n) {
    pl_recipe *r = NULL;
    pl_err     err = {.msg = ""};
    char      *exact = malloc(n + 1); // the reader must not look past n
    assert_non_null(exact);
    if (n) memcpy(exact, bytes, n);
    exact = realloc(exact, n ? n : 1);
    assert_non_null(exact);
    pl_status st = read_n(&r, exact, n, NULL, 0, &err);
    if (st == PL_OK) {
        round_trip(r);
    } else {
        assert_int_equal(st, PL_E_INPUT);
        assert_null(r);
        assert_true(!strncmp(err.msg, "x.yaml:", 7));
        assert_null(strchr(err.msg, '\n'));
    }
    pl_recipe_close(r);
    free(exact);
}

static void test_fuzz(void **state) {
    (void)state;
    static const char seed_text[] = "train: {steps: 5, lr: 1e-3, optim: {betas: [0.1, 1]}}\n"
                                    "data:\n  prompts:\n    - a\n    - 'b c'\n  mode: online\n"
                                    "title: \"x \\u00e4 y\"\n"
                                    "drafters:\n  - name: full\n    head: {kind: full}\n  - name: slim\n";
    static const char alphabet[] = " \n:-{}[],\"'#&*!|>%@`?~\\0123eE.+trainsep\xc3\xa4";
    pl_rng            rng = pl_rng_make(7, PL_STREAM_TEST, 0);
    uint64_t          at = 0;
    for (int i = 0; i < 4000; i++) {
        char   bytes[sizeof seed_text + 64];
        size_t n = 0;
        if (i % 4 == 0) {
            n = (size_t)pl_rng_below(rng, at++, 64);
            for (size_t j = 0; j < n; j++)
                bytes[j] = (char)pl_rng_below(rng, at++, 256);
        } else if (i % 4 == 1) {
            n = (size_t)pl_rng_below(rng, at++, 64);
            for (size_t j = 0; j < n; j++)
                bytes[j] = alphabet[pl_rng_below(rng, at++, sizeof alphabet - 1)];
        } else {
            n = sizeof seed_text - 1;
            memcpy(bytes, seed_text, n);
            for (uint64_t j = pl_rng_below(rng, at++, 4); j > 0; j--) {
                size_t where = (size_t)pl_rng_below(rng, at++, n);
                bytes[where] = alphabet[pl_rng_below(rng, at++, sizeof alphabet - 1)];
            }
            if (i % 4 == 3) n = (size_t)pl_rng_below(rng, at++, n);
        }
        try_bytes(bytes, n);
    }
}

// Deep and long nests of brackets end quickly.
static void test_deep(void **state) {
    (void)state;
    size_t n = 100000;
    char  *bytes = malloc(n);
    assert_non_null(bytes);
    static const char fill[] = "[{-";
    for (int f = 0; fill[f]; f++) {
        memset(bytes, fill[f], n);
        try_bytes(bytes, n);
        memcpy(bytes, "data.prompts: ", 14);
        try_bytes(bytes, n);
    }
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_yaml),      cmocka_unit_test(test_bad_sets),
        cmocka_unit_test(test_limits),        cmocka_unit_test(test_callers_mistakes),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_fuzz),
        cmocka_unit_test(test_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
