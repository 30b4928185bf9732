// Every key drafter.head.* with every drafter and every kind of head: it changes the drafter that the recipe makes, or
// is refused by name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/model/target.h"
#include "kernels/base/arena.h"
#include "tests/train/small.h"
#include "train/keys.h"
#include "train/run/pipeline.h"
#include "train/run/run.h"
#include "train/task/head_keys.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

#define TINY PACELINE_SOURCE_DIR "/checkpoints/tiny"

// Lines that a kind of head or of drafter needs; "": none.
static const char *const needs[][2] = {
    {"lowrank", "drafter.head.rank=4\n"},     {"specvocab", "drafter.head.rank=4\ndrafter.head.candidates=9\n"},
    {"markov", "drafter.head.rank=4\n"},      {"xpress", "drafter.head.rank=4\n"},
    {"dynaspec", "drafter.start=" TINY "\n"}, {"lm", "drafter.start=" TINY "\n"},
    {"peagle", "drafter.block=4\n"},          {"dflash", "drafter.block=4\n"},
    {"medusa", "drafter.block=4\n"},          {"hydra", "drafter.block=4\n"},
    {"hydrapp", "drafter.block=4\n"}};

// A value of each key that is not its default, and the keys without which it says nothing.
static const struct {
    const char *key, *value, *with;
} keys[] = {{"vocab", TINY "/config.json", ""},
            {"vocab_size", "100", "vocab=" TINY "/config.json"},
            {"position_aware", "true", "vocab=" TINY "/config.json"},
            {"redistribute", "50", "vocab=" TINY "/config.json"},
            {"init", "target", ""},
            {"init", "random", ""},
            {"frozen", "true", ""},
            {"frozen", "false", ""},
            {"acceptance", "true", ""},
            {"max_rejection", "500", "acceptance=true"},
            {"rank", "8", ""},
            {"candidates", "12", ""},
            {"form", "gated", ""},
            {"confidence", "true", ""},
            {"min_confidence", "100", "confidence=true"},
            {"mlp_ratio", "3", ""},
            {"passes", "3", ""},
            {"clusters", "64", ""},
            {"router", "coral", ""},
            {"width", "32", ""},
            {"k0", "9", ""},
            {"k1", "7", ""},
            {"kmin", "3", ""},
            {"fixed", "true", ""},
            {"floored", "true", ""},
            {"top", "3", ""}};
enum { KEYS = sizeof keys / sizeof *keys };

static pl_target target;

static const char *needed(const char *name) {
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (strcmp(needs[i][0], name) == 0) return needs[i][1];
    return "";
}

static int setup(void **state) {
    (void)state;
    pl_err err = {0};
    if (pl_target_open(&target, TINY, NULL, NULL, PL_WEIGHTS_BF16, pl_backend_cpu(), &err) == PL_OK) return 0;
    print_error("%s\n", err.msg);
    return -1;
}

static int teardown(void **state) {
    (void)state;
    pl_target_close(&target);
    return 0;
}

static pl_status check(const pl_recipe *r, pl_err *err) {
    pl_status st = pl_train_check(r, err);
    return st == PL_OK ? pl_train_check_alone(r, err) : st;
}

// Describes what the recipe's keys of heads make of its drafter, as train/task/drafter.c reads them.
static pl_status describe(char *out, size_t size, const pl_recipe *r, pl_err *err) {
    const pl_head_recipe *hd = pl_head_recipe_of(r);
    int32_t               list[200];
    bool                  freezes = pl_train_freezes_head(r);
    pl_backbone          *b;
    for (int i = 0; i < 200; i++)
        list[i] = 200 - i;
    pl_backbone_options o = {.head = pl_train_head_read(r),
                             .own_head = !freezes,
                             .block = (int)pl_train_recipe_of(r)->drafter.block,
                             .mask_token = 5,
                             .d2t = hd->vocab ? list : NULL,
                             .draft_vocab = hd->vocab_size > 0 ? hd->vocab_size : 200};
    PL_TRY(pl_backbone_create(&b, pl_train_backbone(r), &target.model, &o, pl_backend_cpu(), err));
    const pl_hf_head *head = &b->head.spec;
    int n = snprintf(out, size, "%s of %lld%s%s", head->kind, (long long)b->head.vocab, freezes ? " frozen" : "",
                     b->head.shared ? " shared" : "");
    for (int i = 0; i < head->n; i++)
        n += snprintf(out + n, size - (size_t)n, " %s=%lld%s", head->setting[i].name, (long long)head->setting[i].value,
                      head->setting[i].text);
    if (!b->head.shared) snprintf(out + n, size - (size_t)n, " init %d", hd->init); // train/start/start.c
    pl_backbone_destroy(b);
    return PL_OK;
}

// Checks the recipe of these lines and describes its drafter; of a routed or a standalone one, "".
static pl_status made(char *out, size_t size, const char *lines, pl_err *err) {
    pl_recipe *r = small_recipe(lines);
    *err = (pl_err){0};
    *out = 0;
    pl_status st = check(r, err);
    bool      plain = pl_train_recipe_of(r)->kind == PL_KIND_DRAFTER && !pl_train_standalone(r) && !pl_train_routed(r);
    if (st == PL_OK && plain) st = describe(out, size, r, err);
    pl_recipe_close(r);
    return st;
}

// Returns 1 if the key is refused by name; fails unless it is or changes the drafter.
static int try_key(const char *base, const char *with, int at, const char *drafter, const char *head) {
    char   before[512], after[512], lines[2048];
    pl_err err;
    if (made(before, sizeof before, base, &err) != PL_OK) return 0; // `with` is refused, which is tried alone
    snprintf(lines, sizeof lines, "%sdrafter.head.%s=%s\n", base, keys[at].key, keys[at].value);
    pl_status st = made(after, sizeof after, lines, &err);
    if (st != PL_OK) {
        if (!strstr(err.msg, keys[at].key) || strchr(err.msg, '\n'))
            fail_msg("%s, %s: %s refused so: %s", drafter, head, keys[at].key, err.msg);
        return 1;
    }
    bool told = strcmp(keys[at].key, "frozen") == 0 || !*before; // what it is without may be what is given
    if (!told && strcmp(before, after) == 0)
        fail_msg("%s, %s: %s%s%s is dropped: %s", drafter, head, keys[at].key, *with ? " beside " : "", with, before);
    return 0;
}

static void dropped_nowhere(void **state) {
    (void)state;
    int pairs = 0, refused = 0;
    for (int d = 0; pl_train_drafter_choice(d); d++)
        for (int h = 0; pl_head_at(h); h++) {
            const char *drafter = pl_train_drafter_choice(d), *head = pl_head_at(h)->name;
            char        base[1024], more[1536], text[512];
            pl_err      err;
            snprintf(base, sizeof base,
                     "target.path=" TINY "\ndata.prompts=" TINY "/README.md\ndrafter.kind=%s\ndrafter.head.kind=%s\n"
                     "%s%s",
                     drafter, head, needed(drafter), needed(head));
            if (made(text, sizeof text, base, &err) != PL_OK) continue; // they do not go together
            pairs++;
            for (int i = 0; i < KEYS; i++) {
                refused += try_key(base, "", i, drafter, head);
                if (!*keys[i].with) continue;
                snprintf(more, sizeof more, "%sdrafter.head.%s\n", base, keys[i].with);
                refused += try_key(more, keys[i].with, i, drafter, head);
            }
            // Frozen or not, it makes a difference.
            char frozen[2][512];
            bool both = true;
            for (int i = 0; i < 2; i++) {
                snprintf(more, sizeof more, "%sdrafter.head.frozen=%s\n", base, i ? "true" : "false");
                both &= made(frozen[i], sizeof frozen[i], more, &err) == PL_OK && *frozen[i];
            }
            assert_true(!both || strcmp(frozen[0], frozen[1]) != 0);
        }
    assert_true(pairs > 20 && refused > 200);
}

// kind: target has no drafter.
static void of_no_drafter(void **state) {
    (void)state;
    char text[8];
    for (int i = 0; i < KEYS; i++) {
        char   lines[512];
        pl_err err;
        snprintf(lines, sizeof lines, "kind=target\ndata.text=" TINY "/README.md\ndrafter.head.%s=%s\n", keys[i].key,
                 keys[i].value);
        assert_int_equal(made(text, sizeof text, lines, &err), PL_E_INPUT);
        if (!strstr(err.msg, keys[i].key)) fail_msg("%s: %s", keys[i].key, err.msg);
    }
}

// An item's own keys are refused, those that it shares with others are not.
static void of_a_list(void **state) {
    (void)state;
    static const struct {
        const char *drafters, *says;
    } lists[] = {
        {"[{name: a, head: {kind: full}}]", NULL},
        {"[{name: a, head: {kind: full, rank: 7}}]", "drafters.0.head.rank: is of another kind of head"},
        {"[{name: a, head: {kind: full, vocab_size: 7}}]", "drafters.0.head.vocab_size: is of drafter.head.vocab"},
        {"[{name: a, head: {kind: full, rank: null}}]", NULL}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        int                  n;
        const pl_key *const *tables = pl_stage_tables(&n);
        pl_recipe           *r, *one;
        pl_err               err = {0};
        char *text = pl_sprintf("drafter: {head: {kind: lowrank, rank: 4}}\ndrafters: %s\n", lists[i].drafters);
        const char *const none[] = {NULL};
        assert_int_equal(pl_recipe_parse(&r, text, strlen(text), "recipe", tables, n, none, 0, &err), PL_OK);
        const void *item = pl_pipeline_recipe_of(r)->drafters.at;
        assert_int_equal(pl_recipe_of_item(&one, r, item, "a", none, 0, &err), PL_OK);
        pl_status st = pl_head_keys_check_own(one, r, item, &err);
        assert_int_equal(st, lists[i].says ? PL_E_INPUT : PL_OK);
        if (lists[i].says && !strstr(err.msg, lists[i].says)) fail_msg("%s", err.msg);
        pl_recipe_close(one), pl_recipe_close(r);
        pl_free(text);
    }
}

static void check_recipe(const char *path) {
    int                  n;
    const pl_key *const *tables = pl_stage_tables(&n);
    pl_recipe           *r, *one;
    pl_err               err = {0};
    if (pl_recipe_open(&r, path, tables, n, NULL, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    const pl_pipeline_recipe *pipe = pl_pipeline_recipe_of(r);
    pl_status                 st = pipe->drafters.n > 0 ? PL_OK : pl_head_keys_check(r, &err);
    if (pipe->drafters.n == 0 && st == PL_OK) st = pl_head_keys_check_own(r, NULL, NULL, &err);
    for (int i = 0; i < pipe->drafters.n && st == PL_OK; i++) {
        const void *item = &pipe->drafters.at[i];
        st = pl_recipe_of_item(&one, r, item, "item", NULL, 0, &err);
        if (st == PL_OK) st = pl_head_keys_check(one, &err);
        if (st == PL_OK) st = pl_head_keys_check_own(one, r, item, &err);
        pl_recipe_close(one);
    }
    if (st != PL_OK) fail_msg("%s: %s", path, err.msg);
    pl_recipe_close(r);
}

// No recipe of the repository has a key that its drafters would drop.
static void of_recipes(void **state) {
    (void)state;
    glob_t g = {0};
    assert_int_equal(glob(PACELINE_SOURCE_DIR "/recipes/*.yaml", 0, NULL, &g), 0);
    assert_true(g.gl_pathc > 20);
    for (size_t i = 0; i < g.gl_pathc; i++)
        check_recipe(g.gl_pathv[i]);
    globfree(&g);
}

// Each key of a head has a value above.
static void all_are_tried(void **state) {
    (void)state;
    for (int t = -1; t < 0 || pl_head_at(t); t++)
        for (const pl_key *row = t < 0 ? pl_head_keys : pl_head_at(t)->keys; row && row->path; row++) {
            const char *key = row->path + strlen("drafter.head.");
            bool        tried = strcmp(key, "kind") == 0;
            for (int i = 0; i < KEYS; i++)
                tried |= strcmp(key, keys[i].key) == 0;
            if (!tried) fail_msg("%s: give it a value here", row->path);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_tried), cmocka_unit_test(dropped_nowhere), cmocka_unit_test(of_no_drafter),
        cmocka_unit_test(of_a_list),     cmocka_unit_test(of_recipes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
